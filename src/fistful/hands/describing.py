"""A description of a hand that nobody has annotated.

1. Fingers and palm from the tree (anatomy.py).
2. Pads and sides of fingers from the flexion axes and the skin; six sides of the base.
3. Random joint vectors show which pairs of sides ever face each other across a gap of 2-8 cm with their
   normals near the line between them; the base side that the pads face most often is the palm.
4. Between two parts, the pair of sides that is shown by optimisation to hold a 4 cm ball, free of collisions
   and with all other joints open, becomes their opposition space. Pads (and the palm) come first, then sides
   against sides, then pads against sides; a later kind is only taken if it holds more sizes of balls.
   The joints of the space are those of the fingers involved.
"""

from collections.abc import Callable
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from fistful.errors import HandError
from fistful.hands.anatomy import SIDE_CONE_DEG, Side, find_fingers, finger_sides, palm_sides
from fistful.hands.description import Description, OppositionSpaceDescription, Patch, SurfaceDescription
from fistful.hands.model import Model
from fistful.hands.opposition import BallGrasp, grasp_ball, self_overlap
from fistful.hands.skin import Skin, contact_candidates, sample_skin

BALL_DIAMETERS_MM = (20.0, 40.0, 60.0, 80.0)
BALL_MM = 40.0
"""The ball that every opposition space must be able to hold."""
GAP = (0.02, 0.08)
"""m. Objects that a hand of ordinary size holds between two surfaces."""
FACING_COS = np.cos(np.deg2rad(50.0))
SAMPLES, SPREAD, STARTS = 1200, 20, 4
MORE_STARTS = 16
"""For each pair of links, when STARTS did not lead to a grasp of the ball that counts."""
START_GAP, START_OVERLAP = 0.012, 0.003
"""m. How far a start's gap may be from the ball's diameter, and how deep its fingers may overlap."""
RARELY = 0.005
"""Sides that face each other in a smaller share of random poses are not tried."""
ENOUGH_BALLS = {0: 4, 1: 3, 2: 2}
"""By rank: pairs of this rank are not tried if one of a better rank holds so many of the four balls."""

Progress = Callable[[str], None]


class _Pair(NamedTuple):
    """Two sides, their contact candidates, and in how many random poses they face each other."""

    first: Side
    second: Side
    candidates: tuple[Skin, Skin]
    facing: int


def describe(model: Model, name: str, progress: Progress = lambda _: None) -> Description:
    """The automatic description of a hand, the same for the same model. No I/O.

    Raises:
      HandError: No two surfaces of the hand can hold a ball.
    """
    skin = sample_skin(model)
    fingers = find_fingers(model)
    joints_of = {f.name: f.joint_mask for f in fingers} | {"palm": np.zeros(len(model.joints), dtype=bool)}
    facing = _Facing(model)

    def pair(first: Side, second: Side) -> _Pair:
        a, b = (contact_candidates(model, skin, _patches(model, side)) for side in (first, second))
        return _Pair(first, second, (a, b), facing.count(a, b))

    sides = [finger_sides(model, skin, finger) for finger in fingers]
    palm = _choose_palm(model, pair, palm_sides(model, skin), [pad for pad, _, _ in sides])
    surfaces: dict[str, SurfaceDescription] = {}
    spaces: list[OppositionSpaceDescription] = []
    for options in _part_pairs(sides, palm):
        best: tuple[_Pair, list[float]] | None = None
        for option in sorted((pair(a, b) for a, b in options), key=lambda p: (_rank(p), -p.facing)):
            if option.facing < RARELY * SAMPLES or (best and len(best[1]) >= ENOUGH_BALLS[_rank(option)]):
                continue
            first, second = option.first, option.second
            progress(" against ".join(" ".join(dict.fromkeys((s.part, s.kind))) for s in (first, second)))
            held = _held_balls(model, facing, option, joints_of[first.part] | joints_of[second.part])
            if held and (best is None or len(held) > len(best[1])):
                best = option, held
        if best is None:
            continue
        (first, second, _, _), held = best
        mask = joints_of[first.part] | joints_of[second.part]
        ends = [_surface(model, a, b) for a, b in ((first, second), (second, first))]
        surfaces |= {end.name: end for end in ends}
        spaces.append(
            OppositionSpaceDescription(
                name=f"{first.part}-{second.part}",
                surfaces=(ends[0].name, ends[1].name),
                joints=tuple(np.array(model.joints)[mask].tolist()),
                span_mm=(min(held), max(held)),
            )
        )
    if not spaces:
        raise HandError(
            f"no two surfaces of {name!r} can hold a {BALL_MM:g} mm ball between them "
            f"({len(fingers)} fingers found: {', '.join(f.name for f in fingers)}); is it a hand, in metres?"
        )
    return Description(
        name=name,
        model=f"{name}.xml",
        summary="described automatically",
        fingers=tuple((f.name, model.bodies[f.bodies[0]]) for f in fingers),
        surfaces=tuple(surfaces.values()),
        opposition_spaces=tuple(spaces),
    )


def verify_space(
    model: Model, first: Skin, second: Skin, mask: np.ndarray, ball_mm: float
) -> BallGrasp | None:
    """A grasp of a ball between two surfaces with all other joints at the open pose, or None. No I/O."""
    starts = _Facing(model).starts(first, second, mask, ball_mm / 1000, MORE_STARTS)
    return grasp_ball(model, first, second, mask, starts, ball_mm / 2000)


class _Facing:
    """Random joint vectors, and at which of them two surfaces face each other across a gap."""

    def __init__(self, model: Model):
        self._model = model
        self._q = np.random.default_rng(0).uniform(model.lower, model.upper, (SAMPLES, len(model.joints)))
        self._poses = model.poses(self._q)

    def measure(self, first: Skin, second: Skin) -> tuple[np.ndarray, np.ndarray]:
        """Gap (N, A, B), m, and worse cosine (N, A, B) between line and normals, for all pairs."""
        p_a, p_b = self._poses.points(first.body, first.p_B), self._poses.points(second.body, second.p_B)
        n_a, n_b = (
            self._poses.directions(first.body, first.n_B),
            self._poses.directions(second.body, second.n_B),
        )
        line = p_b[:, None] - p_a[:, :, None]
        gap = np.linalg.norm(line, axis=-1)
        line /= np.maximum(gap, 1e-9)[..., None]
        return gap, np.minimum(np.einsum("nabi,nai->nab", line, n_a), -np.einsum("nabi,nbi->nab", line, n_b))

    def count(self, first: Skin, second: Skin) -> int:
        """In how many of the samples the two surfaces face each other."""
        gap, cosine = self.measure(_spread(first), _spread(second))
        facing = (cosine > FACING_COS) & (gap > GAP[0]) & (gap < GAP[1])
        return int(np.sum(np.any(facing, axis=(1, 2))))

    def starts(self, first: Skin, second: Skin, mask: np.ndarray, diameter: float, count: int) -> np.ndarray:
        """Joint vectors (S, K) from which to close on a ball, up to `count` for each pair of links.

        For every link of one surface and every link of the other, the samples in which those two face each
        other best across a gap of about the ball's diameter: the overall best tend to be all of a kind.
        Joints outside the mask are at the open pose; vectors in self-collision are left out.
        """
        first, second = _spread(first), _spread(second)
        gap, cosine = self.measure(first, second)
        cosine = np.where(np.abs(gap - diameter) < START_GAP, cosine, -1.0)
        chosen: dict[int, np.ndarray] = {}
        for a, b in product(np.unique(first.body), np.unique(second.body)):
            best = cosine[:, first.body == a][..., second.body == b].max(axis=(1, 2))
            taken = 0
            for k in np.argsort(-best, kind="stable")[: 4 * count]:
                q = np.where(mask, self._q[k], self._model.open_pose)
                if best[k] < FACING_COS or taken == count:
                    break
                if self_overlap(self._model, q[None])[0] < START_OVERLAP:
                    chosen[int(k)], taken = q, taken + 1
        return np.array(list(chosen.values())).reshape(-1, len(mask))


def _spread(skin: Skin) -> Skin:
    """The first SPREAD candidates: they are in farthest-point order."""
    return skin.take(np.arange(min(SPREAD, len(skin.body))))


def _choose_palm(
    model: Model, pair: Callable[[Side, Side], _Pair], sides: tuple[Side, ...], pads: list[Side]
) -> Side | None:
    """The side of the base that pads face often and that looks the way the pads look when the hand is open.

    The second condition tells the palm from the edge below the knuckles, which pads hover over as often.
    A gripper's pads look at each other, not along the palm: the first condition decides alone.
    """
    if not sides:
        return None
    R_HB = model.poses(model.open_pose).R_HB
    scores = []
    for side in sides:
        direction = side.patches[0][1]
        alike = [np.mean([direction @ R_HB[b] @ v for b, v in pad.patches] or [0.0]) for pad in pads]
        counts = [pair(pad, side).facing for pad in pads]
        scores.append(sum(n * (0.2 + max(a, 0.0)) for n, a in zip(counts, alike, strict=True)))
    return sides[int(np.argmax(scores))] if max(scores) > 0 else None


def _part_pairs(sides: list[tuple[Side, Side, Side]], palm: Side | None) -> list[list[tuple[Side, Side]]]:
    """For each two parts of the hand, the pairs of their sides that could oppose: the palm comes last."""
    # The thumb is named first, as everybody does: thumb-index.
    sides = sorted(sides, key=lambda group: group[0].part != "thumb")
    options = [list(product(first, second)) for first, second in combinations(sides, 2)]
    if palm is not None:
        options += [[(pad, palm)] for pad, _, _ in sides]
    return options


def _rank(pair: _Pair) -> int:
    """0 for pad on pad or palm, 1 for side on side, 2 for pad on side: the order of human preference."""
    kinds = {pair.first.kind, pair.second.kind}
    return 1 if kinds == {"side"} else 2 if "side" in kinds else 0


def _held_balls(model: Model, facing: _Facing, pair: _Pair, mask: np.ndarray) -> list[float]:
    """Diameters in mm of the balls that the pair can hold; none are tried if it can not hold BALL_MM."""
    first, second = pair.candidates

    def held(mm: float, count: int) -> bool:
        starts = facing.starts(first, second, mask, mm / 1000, count)
        return grasp_ball(model, first, second, mask, starts, mm / 2000) is not None

    if not held(BALL_MM, STARTS) and not held(BALL_MM, MORE_STARTS):
        return []
    return [mm for mm in BALL_DIAMETERS_MM if mm == BALL_MM or held(mm, STARTS)]


def _patches(model: Model, side: Side) -> tuple[Patch, ...]:
    return tuple(
        Patch(
            body=model.bodies[body],
            direction=tuple(np.round(direction, 4).tolist()),
            cone_deg=SIDE_CONE_DEG,
        )
        for body, direction in side.patches
    )


def _surface(model: Model, side: Side, opposite: Side) -> SurfaceDescription:
    """A named surface: palm, index_pad, or index_side_middle for the side that faces the middle finger."""
    name = {"palm": "palm", "pad": f"{side.part}_pad"}.get(side.kind, f"{side.part}_side_{opposite.part}")
    return SurfaceDescription(name=name, patches=_patches(model, side))
