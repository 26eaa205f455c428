"""Perturbed grasps: the same grasp as an imprecise arm would reach it."""

import numpy as np

from fistful.errors import JawsError
from fistful.jaws.grasp import JawGrasp

SHIFT = 1e-3
"""m. Standard deviation along each axis."""
TURN = 3e-3
"""rad. Standard deviation of each component of the rotation vector."""
LEVER = 0.16
"""m. From the base of the gripper, where the noise acts, to the grasp frame."""


def perturbed(
    grasp: JawGrasp,
    count: int,
    seed: int,
    shift: float = SHIFT,
    turn: float = TURN,
    *,
    lever: float = LEVER,
) -> list[JawGrasp]:
    """`count` grasps around `grasp`, none of them the unperturbed one; the same for the same seed. No I/O.

    The noise acts on the base of the gripper, `lever` behind the grasp frame along the approach, as in the
    code of IPC-GraspSim: a turn by theta there also shifts the pads by theta x lever, about 0.5 mm. Every
    prefix of the list is the list of a smaller count.

    Args:
      grasp: The grasp as planned.
      count: Number of grasps.
      seed: Of the numpy Generator that draws them.
      shift: Standard deviation of the shift along each axis, m.
      turn: Standard deviation of each component of the rotation vector, rad.
      lever: Distance of the base from the grasp frame, m; 0 turns the grasp about its own origin.
    """
    for name, value in (("seed", seed), ("count", count), ("shift", shift), ("turn", turn), ("lever", lever)):
        if not (np.isfinite(value) and value >= 0):
            raise JawsError(f"{name} is {value!r}; perturbed grasps need a finite number >= 0")
    noise = np.random.default_rng(seed).normal(size=(count, 2, 3)) * np.array([[shift], [turn]])
    base_G = np.array([0.0, 0.0, -lever])
    moved = []
    for shift_W, turn_W in noise:
        turned = grasp.moved(np.zeros(3), turn_W)
        # The base keeps its place under the turn, so the pads swing about it.
        swing_W = grasp.R_WG @ base_G - turned.R_WG @ base_G
        moved.append(turned.moved(shift_W + swing_W, np.zeros(3)))
    return moved
