"""One stage of a sequence: a batch of grasps of one object, as plain arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from fistful.geometry.pose import apply
from fistful.hands.hand import Hand
from fistful.synthesis.measure import Measures


@dataclass(frozen=True, kw_only=True, eq=False)
class Grasps:
    """N grasps of the n-th object of a sequence, with C contacts each; H is the hand base, O the object.

    Attributes:
      parent: (N,) int. The grasp of the stage before that each continues; -1 in the first stage.
      space: (N,) int. Contact set of each, a place in `Stage.spaces`.
      p_OH, R_OH: (N, 3), (N, 3, 3) float. Pose of the hand base in the frame of the object, m.
      q: (N, K) float. Joints at the grasp.
      pre_grasp, squeeze: (N, K) float. Joint targets before and after it; in both, those of joints that are
        not this stage's own are the parent's squeeze.
      joint_mask: (N, K) bool. J_n: joints that this stage moved. All others are those of the parent.
      free: (N, K) bool. Joints that hold nothing after it.
      contact_body: (N, C) int. Bodies of the contacts; 2i and 2i + 1 are opposed.
      contact_p_B: (N, C, 3) float, m. Contact points on the hand, in the frames of their bodies.
      contact_n_O: (N, C, 3) float. Outward unit normals of the object there, in its frame.
      p_HO, R_HO: (N, n, 3), (N, n, 3, 3) float. All objects held after this stage, in the hand base frame, in
        the order of the stages; the last is this stage's own.
      energy: (N, 9) float. Terms of the energy, unweighted, in the order of weights.TERMS.
      curve: (N, S) float32. What the grasp cost on its way, from start to end, in the optimiser's own units:
        squared millimetres for "fast", one value an evaluation; the paper's energy for "paper", about 150
        values. NaN after the end.
      quality: (N,) float. Wrench resistance with friction; see contact.resistance.
    """

    parent: np.ndarray
    space: np.ndarray
    p_OH: np.ndarray
    R_OH: np.ndarray
    q: np.ndarray
    pre_grasp: np.ndarray
    squeeze: np.ndarray
    joint_mask: np.ndarray
    free: np.ndarray
    contact_body: np.ndarray
    contact_p_B: np.ndarray
    contact_n_O: np.ndarray
    p_HO: np.ndarray
    R_HO: np.ndarray
    energy: np.ndarray
    curve: np.ndarray
    quality: np.ndarray

    def __len__(self) -> int:
        return len(self.q)

    def take(self, index: np.ndarray) -> "Grasps":
        """The grasps of an index array or mask."""
        return Grasps(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    @staticmethod
    def join(parts: "Sequence[Grasps]") -> "Grasps":
        """All grasps of several batches, in order."""
        columns = {f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Grasps)}
        return Grasps(**columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """The grasps of one object, what was measured of them, and what they cost.

    Attributes:
      object_name, object_key: The object.
      spaces: Names of the contact sets that `grasps.space` counts.
      grasps: The grasps.
      measures: Exact geometry of each.
      cpu_s, wall_s: Seconds that the stage took.
    """

    object_name: str
    object_key: str
    spaces: tuple[str, ...]
    grasps: Grasps
    measures: Measures
    cpu_s: float
    wall_s: float

    def __len__(self) -> int:
        return len(self.grasps)

    @property
    def good(self) -> np.ndarray:
        """(N,) bool. Geometrically good; see measure.Tolerance."""
        return self.measures.good

    def ranked(self) -> np.ndarray:
        """(N,) int. All grasps, the best first: good ones by quality, then others by how near they are."""
        merit = np.where(self.good, -self.grasps.quality, self.measures.excess())
        return np.lexsort((merit, ~self.good))


def inverse_pose(p: np.ndarray, R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """p_BA, R_BA of p_AB (..., 3), R_AB (..., 3, 3)."""
    R_T = np.swapaxes(R, -1, -2)
    return -apply(R_T, p), R_T


def unpacked(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Position (N, 3), rotation (N, 3, 3), joints (N, K) in float64 of optimiser states (N, 9 + K)."""
    x = x.astype(float)
    # A state that has come to nothing is shown as the base at the object's origin, which is no good grasp.
    broken = ~np.isfinite(x).all(axis=1) | (np.linalg.norm(np.cross(x[:, 3:6], x[:, 6:9]), axis=1) < 1e-9)
    x[broken, :9] = [0, 0, 0, 1, 0, 0, 0, 1, 0]
    x[~np.isfinite(x)] = 0.0
    e = x[:, 3:6] / np.linalg.norm(x[:, 3:6], axis=1, keepdims=True)
    f = x[:, 6:9] - np.sum(e * x[:, 6:9], axis=1, keepdims=True) * e
    f /= np.linalg.norm(f, axis=1, keepdims=True)
    return x[:, :3], np.stack([e, f, np.cross(e, f)], axis=-1), x[:, 9:]


def packed(p_OH: np.ndarray, R_OH: np.ndarray, q: np.ndarray) -> np.ndarray:
    """States (N, 9 + K) of the optimisers; see `unpacked`."""
    return np.concatenate([p_OH, R_OH[:, :, 0], R_OH[:, :, 1], q], axis=1)


def contact_points(hand: Hand, q: np.ndarray, body: np.ndarray, p_B: np.ndarray) -> np.ndarray:
    """Contact points (N, C, 3), m, in the hand base frame."""
    poses, rows = hand.poses(q), np.arange(len(q))[:, None]
    return poses.p_HB[rows, body] + apply(poses.R_HB[rows, body], p_B)
