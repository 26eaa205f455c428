"""Which way a hand faces: out of its palm, and along its fingers."""

import numpy as np

from fistful.hands.hand import Hand


def palm_facing(hand: Hand) -> tuple[np.ndarray, np.ndarray]:
    """Where the palm looks, a unit vector (3,) in H, and the point (3,), m, that should reach the object.

    The mean normal of the contact candidates on the base; without any, of all candidates at the open pose; if
    these cancel, the direction from the base to them.
    """
    poses = hand.poses(hand.model.open_pose)
    skins = [s.candidates for s in hand.surfaces]
    points = np.concatenate([poses.points(s.body, s.p_B) for s in skins])
    normals = np.concatenate([poses.directions(s.body, s.n_B) for s in skins])
    base = np.concatenate([s.body for s in skins]) == 0
    mean = normals[base].mean(axis=0) if base.any() else normals.mean(axis=0)
    if np.linalg.norm(mean) < 0.1:  # Two jaws that look at each other: the way is from the base to them.
        mean = points.mean(axis=0)
    length = float(np.linalg.norm(mean))
    return (mean / length if length > 1e-6 else np.array([0.0, 0.0, 1.0])), points.mean(axis=0)


def palm_axes(hand: Hand) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors (3,) in H at right angles: out of the palm, and along the fingers of the open hand."""
    poses = hand.poses(hand.model.open_pose)
    along = np.mean([poses.p_HB[f.bodies[-1]] - poses.p_HB[f.bodies[0]] for f in hand.fingers], axis=0)
    out, _ = palm_facing(hand)
    if np.linalg.norm(along) < 1e-6:
        along = np.eye(3)[int(np.argmin(np.abs(out)))]
    along = along / np.linalg.norm(along)
    across = out - along * (out @ along)
    if np.linalg.norm(across) < 0.1:  # Two jaws ahead of their base: any way across will do.
        across = np.cross(along, np.eye(3)[int(np.argmin(np.abs(along)))])
    return across / np.linalg.norm(across), along
