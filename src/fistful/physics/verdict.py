"""Verdicts: which grasps hold under a protocol, and why the others do not."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np

DIRECTIONS = np.concatenate([np.eye(3), -np.eye(3)])[[0, 3, 1, 4, 2, 5]]
"""(6, 3) float. Pushes in the hand base frame: +x, -x, +y, -y, +z, -z."""
DIRECTION_NAMES = ("+x", "-x", "+y", "-y", "+z", "-z")


class Reason(IntEnum):
    """Why a grasp fails, in the order in which it is found."""

    HELD = 0
    DEEP = 1
    """As generated, the hand is too deep in an object, or objects in each other."""
    STAND_IN = 2
    """The convex parts differ from the mesh where the hand is: the simulator can not judge it."""
    UNTOUCHED = 3
    """After closing, an object is not in contact with the hand."""
    LOST = 4
    """After a push or the shake, an object is not in contact with the hand."""
    MOVED = 5
    """An object moved or turned farther than allowed."""
    UNSTABLE = 6
    """The simulation broke down."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Verdicts:
    """What N grasps of n objects did under a protocol.

    Attributes:
      reason: (N,) int. A `Reason`.
      culprit: (N,) int. Which object failed; -1 if none or all.
      direction: (N,) int. Which push it failed in, a place in DIRECTIONS; -1 if not in a push.
      penetration_mm: (N,) float. Deepest overlap of the grasp as it was generated, on exact meshes.
      shift_mm: (N, n) float. How far each object moved while the hand closed.
      drift_mm, turn_deg: (N, n) float. Largest displacement and rotation of each object in the hand, from
        where it settled, over the tests that were run (none after the first failure).
      q: (N, K) float. Joints after closing.
      targets: (N, K) float. Their targets then: the squeeze, or more where the hand had to reach farther.
      p_HO, R_HO: (N, n, 3), (N, n, 3, 3) float. Objects after closing, in the hand base frame.
    """

    reason: np.ndarray
    culprit: np.ndarray
    direction: np.ndarray
    penetration_mm: np.ndarray
    shift_mm: np.ndarray
    drift_mm: np.ndarray
    turn_deg: np.ndarray
    q: np.ndarray
    targets: np.ndarray
    p_HO: np.ndarray
    R_HO: np.ndarray

    def __len__(self) -> int:
        return len(self.reason)

    @property
    def success(self) -> np.ndarray:
        """(N,) bool. Which grasps hold everything."""
        return self.reason == Reason.HELD

    def take(self, index: np.ndarray) -> "Verdicts":
        """The verdicts of an index array or mask."""
        return Verdicts(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def explain(self, grasp: int, objects: Sequence[str]) -> str:
        """One line for the user: what happened to a grasp of these objects."""
        i, reason = int(grasp), Reason(int(self.reason[grasp]))
        which = int(self.culprit[i])
        name = objects[which] if which >= 0 else "an object"
        drift, turn, shift = self.drift_mm[i], self.turn_deg[i], self.shift_mm[i]
        push = DIRECTION_NAMES[self.direction[i]] if self.direction[i] >= 0 else None
        when = f"pushed along {push} of the hand" if push else "shaken"
        return {
            Reason.HELD: f"held: moved by at most {drift.max():.1f} mm and {turn.max():.0f} deg",
            Reason.DEEP: f"generated with an overlap of {self.penetration_mm[i]:.1f} mm",
            Reason.STAND_IN: f"not judged: the hand is in convex parts of {name}, where its mesh has none",
            Reason.UNTOUCHED: f"{name} is not touched after closing; it moved by {shift[which]:.1f} mm",
            Reason.LOST: f"{name} was lost when {when}",
            Reason.MOVED: f"{name} moved by {drift[which]:.0f} mm and {turn[which]:.0f} deg when {when}",
            Reason.UNSTABLE: "the simulation broke down",
        }[reason]
