"""Palm, fingers and the sides of fingers, found from a hand's tree and geometry alone."""

import re
from dataclasses import dataclass

import numpy as np

from fistful.hands.hand import Finger, moving_joints
from fistful.hands.kinematics import BodyPoses
from fistful.hands.model import Model
from fistful.hands.skin import Skin, select

SIDE_CONE_DEG = 50.0
"""Half angle of the normals that count as one side of a link: the four sides of a finger just meet."""
SHORT_LINK = 5e-3
"""m. A link shorter than this is part of a universal joint and has no side of its own."""

# How common models abbreviate fingers; only labels depend on it.
_FINGER_WORDS = {
    "thumb": ("thumb", "th"),
    "index": ("index", "fore", "ff", "if"),
    "middle": ("middle", "mf"),
    "ring": ("ring", "rf"),
    "little": ("little", "pinky", "pinkie", "lf"),
}


@dataclass(frozen=True, kw_only=True)
class Side:
    """A side of a finger or of the palm: the skin that faces one way.

    Attributes:
      part: Name of the finger, or "palm".
      kind: "pad", "side" or "palm".
      patches: Pairs (body, direction in the body frame).
    """

    part: str
    kind: str
    patches: tuple[tuple[int, np.ndarray], ...]


def find_fingers(model: Model) -> tuple[Finger, ...]:
    """The fingers: for each tip of the tree, the bodies that it does not share with other tips.

    A moving body that carries several fingers (a folding palm) belongs to none, but its joints count as
    moving all of them.
    """
    parent = model.tree.parent
    tips = [b for b in range(1, len(parent)) if b not in parent]
    chains = {}
    for tip in tips:
        chain, b = [], tip
        while b > 0:
            chain.append(b)
            b = int(parent[b])
        chains[tip] = chain[::-1]
    fingers = []
    for tip, chain in chains.items():
        own = tuple(b for b in chain if sum(b in other for other in chains.values()) == 1)
        fingers.append(Finger(name=model.bodies[own[0]], bodies=own, joint_mask=moving_joints(model, tip)))
    names = _finger_names([[model.bodies[b] for b in f.bodies] for f in fingers])
    return tuple(
        Finger(name=name, bodies=f.bodies, joint_mask=f.joint_mask)
        for name, f in zip(names, fingers, strict=True)
    )


def _finger_names(body_names: list[list[str]]) -> list[str]:
    """A word for each finger: what its bodies' names say, else their common beginning, else a number."""
    names = []
    for bodies in body_names:
        # "ffmiddle" speaks of two fingers, but only one is in the names of all bodies.
        votes = {
            finger: sum(_mentions(body, words) for body in bodies) for finger, words in _FINGER_WORDS.items()
        }
        likely = [finger for finger, count in votes.items() if count and count == max(votes.values())]
        names.append(likely[0] if len(likely) == 1 else _common_start(bodies).strip("_- ."))
    if len(set(names)) != len(names) or not all(names) or "palm" in names:
        return [f"finger_{k + 1}" for k in range(len(names))]
    return names


def _common_start(words: list[str]) -> str:
    first, last = min(words), max(words)
    return next((first[:k] for k in range(len(first)) if not last.startswith(first[: k + 1])), first)


def _mentions(body: str, words: tuple[str, ...]) -> bool:
    """Whether a body's name contains the full word, or a part of it starts with one of the short ones."""
    full, *short = words
    parts = re.findall(r"[a-z]+", body.lower())
    return full in body.lower() or any(part.startswith(s) for part in parts for s in short)


def finger_sides(model: Model, skin: Skin, finger: Finger) -> tuple[Side, Side, Side]:
    """The pad of a finger and its two lateral sides.

    The last hinge is taken as the flexion axis f at the open pose. A link that extends along u has its pad
    in the direction in which closing moves it, +-f x u, and its lateral sides along +-f. The finger closes
    the way in which its joints about f have more travel left. For a sliding finger the pad faces the way it
    closes in. Links that at least half of the finger's joints move count: those near the palm hardly reach
    anything.
    """
    tree = model.tree
    poses = model.poses(model.open_pose)
    chain_joints = [int(j) for b in finger.bodies for j in np.flatnonzero(tree.joint_body == b)]
    last = chain_joints[-1]
    axis = poses.R_HB[tree.joint_body[last]] @ tree.axis_B[last]
    anchors = {b: _anchor(model, poses, b) for b in finger.bodies}
    tip = _far_point(poses, skin, finger.bodies[-1], anchors[finger.bodies[-1]])
    if tree.slides[last]:
        closing = axis * _sliding_sign(model, poses, tip, axis)
        along = tip - poses.p_HB[0]
        if np.linalg.norm(np.cross(closing, along)) < 1e-6:
            # The finger sticks out along its own slide: any direction across will do.
            along = np.eye(3)[np.argmin(np.abs(closing))]
        lateral = np.cross(closing, along)
    else:
        closing = None
        lateral = axis * _flexion_sign(model, chain_joints, poses, axis)
    lateral = lateral / np.linalg.norm(lateral)
    ends = [*(anchors[b] for b in finger.bodies[1:]), tip]
    pads, left, right = [], [], []
    for b, end in zip(finger.bodies, ends, strict=True):
        u = end - anchors[b]
        length = np.linalg.norm(u - (u @ lateral) * lateral)
        if 2 * moving_joints(model, b).sum() < finger.joint_mask.sum() or length < SHORT_LINK:
            continue
        pad = np.cross(lateral, u) if closing is None else closing
        for group, direction in ((pads, pad), (left, lateral), (right, -lateral)):
            patch = _settle(skin, b, poses.R_HB[b].T @ (direction / np.linalg.norm(direction)))
            if patch is not None:
                group.append((b, patch))
    return (
        Side(part=finger.name, kind="pad", patches=tuple(pads)),
        Side(part=finger.name, kind="side", patches=tuple(left)),
        Side(part=finger.name, kind="side", patches=tuple(right)),
    )


def palm_sides(model: Model, skin: Skin) -> tuple[Side, ...]:
    """Six sides of the base body, along the axes of its largest shape; one of them is the palm."""
    shapes = [g.primitive for g in model.geoms if g.body == 0]
    if not shapes:
        return ()
    largest = max(shapes, key=lambda s: float(np.sum(s.size)))
    sides = []
    for axis in np.concatenate([largest.R_BG.T, -largest.R_BG.T]):
        direction = _settle(skin, 0, axis)
        if direction is not None:
            sides.append(Side(part="palm", kind="palm", patches=((0, direction),)))
    return tuple(sides)


def _anchor(model: Model, poses: BodyPoses, body: int) -> np.ndarray:
    """Where a body's last joint is, in the hand frame."""
    j = np.flatnonzero(model.tree.joint_body == body)[-1]
    return poses.p_HB[body] + poses.R_HB[body] @ model.tree.anchor_B[j]


def _far_point(poses: BodyPoses, skin: Skin, body: int, anchor: np.ndarray) -> np.ndarray:
    """The skin point of a body that is farthest from its joint; just beyond the joint if it has no skin."""
    own = skin.take(skin.body == body)
    if not len(own.body):
        return anchor + 1e-3 * poses.R_HB[body][:, 2]
    points = poses.points(own.body, own.p_B)
    return points[np.argmax(np.sum((points - anchor) ** 2, axis=1))]


def _flexion_sign(model: Model, joints: list[int], poses: BodyPoses, axis: np.ndarray) -> float:
    """+1 if the joints about `axis` have more travel left in the positive direction, else -1."""
    travel = 0.0
    q = model.expand(model.open_pose)
    limits = np.sort(np.stack([model.expand(model.lower), model.expand(model.upper)]), axis=0)
    for j in joints:
        alignment = float(poses.R_HB[model.tree.joint_body[j]] @ model.tree.axis_B[j] @ axis)
        if not model.tree.slides[j] and abs(alignment) > 0.7:
            travel += np.sign(alignment) * (limits[0, j] + limits[1, j] - 2 * q[j])
    return 1.0 if travel >= 0 else -1.0


def _sliding_sign(model: Model, poses: BodyPoses, tip: np.ndarray, axis: np.ndarray) -> float:
    """+1 if sliding along +axis brings the tip nearer to the middle of the hand."""
    others = [b for b in range(1, len(model.bodies)) if b not in model.tree.parent]
    middle = np.mean([poses.p_HB[b] for b in others], axis=0)
    return 1.0 if (middle - tip) @ axis >= 0 else -1.0


def _settle(skin: Skin, body: int, direction: np.ndarray) -> np.ndarray | None:
    """The mean normal of the skin that faces a direction: turns a rough guess to the face that is there."""
    for _ in range(3):
        mask = select(skin, body, direction, SIDE_CONE_DEG)
        if not np.any(mask):
            return None
        mean = skin.n_B[mask].mean(axis=0)
        direction = mean / np.linalg.norm(mean)
    return direction
