"""Candidate grasps of a resting object: antipodal, reachable from above, free of collisions, best first."""

from typing import NamedTuple

import numpy as np

from fistful.errors import JawsError
from fistful.geometry.mesh_distance import MeshDistance
from fistful.geometry.pose import apply, rotation_about
from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper
from fistful.jaws.patch import outline_points, press, surface
from fistful.jaws.reach import Reach
from fistful.synthesis.antipodal import antipodal_pairs

FINGER = 0.05
"""m. From the grasp frame back to the palm."""
DEPTH = 0.010
"""m. Of a finger behind its pad's face, pad included."""
CLEARANCE = 1e-3
"""m. Free way around fingers and palm, and above the plane."""
STEEPEST = np.deg2rad(75.0)
"""Largest angle between the approach and straight down."""
# Rays a pad for the ranking: coarse, it only tells half a pad from a whole one.
_COARSE = 2e-3
_PAIRS_PER_GRASP, _FEWEST_PAIRS = 4, 400
# Of the pads' length from contact to tip: how much of it drawing back may use up.
_STAY = 0.75


class _Box(NamedTuple):
    """A box in the grasp frame."""

    low: np.ndarray  # (3,) m
    high: np.ndarray  # (3,) m


def candidates(
    resting: Resting, gripper: Gripper, *, count: int = 50, seed: int = 0, rolls: int = 12
) -> list[JawGrasp]:
    """At most `count` grasps of a resting object, best first; empty if there are none.

    The same seed gives the same grasps.

    1. Antipodal pairs: the line between the contacts lies in both friction cones and fits into the opening.
    2. The jaws' middle goes to the middle of the pair; `rolls` approaches about the closing axis, at most 75
       degrees from straight down. Where the tips would meet the plane the jaws are drawn back along the
       approach, as long as the contacts stay on the pads.
    3. Opened pads, fingers and palm, as boxes with `CLEARANCE`, must be free of the object and the plane.
       Approaching along a straight line adds nothing to that: the fingers cover the pads' way.
    4. Worth = coverage * margin / (1 + lever / size): the smaller share of the two pads that is pressed; how
       far inside the friction cone the line is (1: along both normals); and the distance of the centre of
       mass from the closing axis, relative to the object's size. Of one pair only the best roll is kept.
    5. The best twice `count` are judged by the area contact model: those that hold come first.

    Args:
      resting: Object on the plane.
      gripper: Gripper.
      count: Number of grasps wanted.
      seed: Of the numpy Generator that draws the pairs.
      rolls: Number of approaches tried for each pair.
    """
    if count < 1 or rolls < 1:
        raise JawsError(f"count is {count} and rolls is {rolls}; candidates need at least 1 of each")
    a_W, b_W, width, angle = _pairs(resting, gripper, max(_FEWEST_PAIRS, _PAIRS_PER_GRASP * count), seed)
    item, cone = resting.item, np.arctan(gripper.friction)
    axis = (b_W - a_W) / np.maximum(width, 1e-12)[:, None]
    fits = (width < gripper.opening - 2 * CLEARANCE) & (width > 0) & (angle <= cone)
    clear = _Clear(resting, gripper)
    mesh, points = surface(resting), outline_points(gripper.pad.outline, _COARSE)
    size = float(np.ptp(item.vertices, axis=0).max())
    ranked = []
    for k in np.flatnonzero(fits):
        middle = (a_W[k] + b_W[k]) / 2
        grasps = [JawGrasp(p_WG=middle, R_WG=R) for R in _approaches(axis[k], rolls)]
        free = [g for g in (_drawn_back(g, gripper, clear) for g in grasps) if g is not None and clear(g)]
        offset = resting.com_W - middle
        lever = float(np.linalg.norm(offset - (offset @ axis[k]) * axis[k]))
        worth = (1 - angle[k] / cone) / (1 + lever / size)
        covers = [_coverage(mesh, g, gripper, points) for g in free]
        if free and max(covers) > 0:
            most = int(np.argmax(covers))
            ranked.append((covers[most] * worth, int(k), free[most]))
    ranked.sort(key=lambda entry: (-entry[0], entry[1]))
    best = [grasp for _, _, grasp in ranked[: 2 * count]]
    holds = Reach(spacing=_COARSE).outcomes(resting, best, gripper)
    return [best[k] for k in np.argsort(~holds, kind="stable")[:count]]


def shortage(resting: Resting, gripper: Gripper, seed: int = 0) -> str:
    """Why there are no candidates, in numbers and words, with what would help."""
    _, _, width, angle = _pairs(resting, gripper, _FEWEST_PAIRS, seed)
    if not len(width):
        return "it has no two places that face each other"
    wide, slips = width >= gripper.opening - 2 * CLEARANCE, angle > np.arctan(gripper.friction)
    needed = 1e3 * (float(width[~slips].min() if not slips.all() else width.min()) + 2 * CLEARANCE)
    said = (
        f"of {len(width)} pairs of places that face each other, {100 * slips.mean():.0f} % slip at friction "
        f"{gripper.friction:g} and {100 * wide.mean():.0f} % are too wide for {1e3 * gripper.opening:g} mm"
    )
    if (slips | wide).all():
        return f"{said}; the narrowest that holds needs {needed:.0f} mm" if not slips.all() else said
    return f"{said}; jaws at the others would touch the object or the plane, or press on too little of it"


def _pairs(
    resting: Resting, gripper: Gripper, wanted: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Antipodal pairs: both places (N, 3), widths (N,), m, and the larger angle off a normal (N,), rad."""
    if not gripper.friction > 0:
        raise JawsError(f"friction is {gripper.friction:g}; two jaws hold something only if it is above 0")
    if seed < 0:
        raise JawsError(f"seed is {seed}; it has to be 0 or more")
    rng = np.random.default_rng(seed)
    pairs = antipodal_pairs(resting.item, rng, wanted, gripper.friction, room=0.0)
    a_W, b_W = (p @ resting.R_WO.T + resting.p_WO for p in (pairs.a_O, pairs.b_O))
    axis = (b_W - a_W) / np.maximum(pairs.width, 1e-12)[:, None]
    # The sampler widens its cone if it finds little: such pairs would slip.
    angle = np.maximum(_angle(-pairs.n_a @ resting.R_WO.T, axis), _angle(pairs.n_b @ resting.R_WO.T, axis))
    return a_W, b_W, pairs.width, angle


def _drawn_back(grasp: JawGrasp, gripper: Gripper, clear: "_Clear") -> JawGrasp | None:
    """The grasp, or the one behind it whose tips are just above the plane; None if that is too far."""
    approach = grasp.R_WG[:, 2]
    missing = CLEARANCE - clear.lowest(grasp)
    if missing <= 0:
        return grasp
    back = 1.01 * missing / -approach[2]
    if back > _STAY * gripper.pad.outline[:, 1].max():
        return None
    return JawGrasp(p_WG=grasp.p_WG - back * approach, R_WG=grasp.R_WG)


def _angle(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Angles (N,) between unit vectors (N, 3), rad."""
    return np.arccos(np.clip(np.einsum("ij,ij->i", a, b), -1.0, 1.0))


def _approaches(axis: np.ndarray, rolls: int) -> list[np.ndarray]:
    """Rotations R_WG whose x is `axis`, from the approach nearest to straight down to the least."""
    down = np.array([0.0, 0.0, -1.0])
    first = down - (down @ axis) * axis
    if np.linalg.norm(first) < 1e-6:
        first = np.cross(axis, np.eye(3)[np.argmin(np.abs(axis))])
    first /= np.linalg.norm(first)
    z = apply(rotation_about(axis, 2 * np.pi * np.arange(rolls) / rolls), first)
    z = z[np.argsort(-(z @ down), kind="stable")]
    z = z[z @ down >= np.cos(STEEPEST)]
    return [np.stack([axis, np.cross(approach, axis), approach], axis=1) for approach in z]


def _coverage(mesh: MeshDistance, grasp: JawGrasp, gripper: Gripper, points: np.ndarray) -> float:
    """The share of elements pressed, of the pad that has fewer; 0 if one misses."""
    patches = [press(mesh, grasp, gripper, jaw, points) for jaw in (0, 1)]
    return min(0.0 if p is None else len(p.f) / len(points) for p in patches)


class _Clear:
    """Tells whether opened pads, fingers and palm are free of the object and the plane."""

    def __init__(self, resting: Resting, gripper: Gripper):
        item = resting.item
        points = np.concatenate([item.vertices, item.surface_points])
        self.points_W = points @ resting.R_WO.T + resting.p_WO
        self.boxes = _boxes(gripper)
        self.corners_G = np.concatenate(
            [
                np.stack(np.meshgrid(*zip(b.low, b.high, strict=True), indexing="ij"), -1).reshape(-1, 3)
                for b in self.boxes
            ]
        )
        self.mesh = surface(resting)

    def lowest(self, grasp: JawGrasp) -> float:
        """Height of the gripper's lowest corner, m."""
        return float((grasp.p_WG[2] + self.corners_G @ grasp.R_WG[2]).min())

    def __call__(self, grasp: JawGrasp) -> bool:
        corners_W = grasp.p_WG + self.corners_G @ grasp.R_WG.T
        if self.lowest(grasp) < CLEARANCE:
            return False
        points_G = (self.points_W - grasp.p_WG) @ grasp.R_WG
        for box in self.boxes:
            inside = (points_G > box.low - CLEARANCE) & (points_G < box.high + CLEARANCE)
            if np.any(inside.all(axis=1)):
                return False
        # An object larger than a box can swallow it without a point of its surface being inside.
        return bool(self.mesh.query(corners_W).values.min() > 0)


def _boxes(gripper: Gripper) -> list[_Box]:
    """Both fingers, opened, with their pads, and the palm behind them."""
    (y0, z0), (y1, z1) = gripper.pad.outline.min(axis=0), gripper.pad.outline.max(axis=0)
    face, back = gripper.opening / 2, gripper.opening / 2 + max(DEPTH, gripper.pad.thickness)
    behind = min(-FINGER, z0)
    return [
        _Box(np.array([-back, y0, behind]), np.array([-face, y1, z1])),
        _Box(np.array([face, y0, behind]), np.array([back, y1, z1])),
        _Box(np.array([-back, y0, behind - DEPTH]), np.array([back, y1, behind])),
    ]
