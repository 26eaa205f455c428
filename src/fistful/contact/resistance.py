"""How large a disturbance a grasp resists when no contact presses harder than 1."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fistful.contact import resistance_kernels as kernels
from fistful.contact.friction import Friction
from fistful.contact.grasp_matrix import grasp_matrix
from fistful.geometry.quiet_warp import wp

ACCELERATIONS = np.concatenate([np.eye(6)[:3], -np.eye(6)[:3]])[[0, 3, 1, 4, 2, 5]]
"""Unit forces at the centre along +x, -x, +y, -y, +z, -z, (6, 6)."""

WRENCHES = np.concatenate([ACCELERATIONS, np.roll(ACCELERATIONS, 3, axis=1)])
"""`ACCELERATIONS`, then torques of one unit of force times `size` about the same axes, (12, 6)."""

RELATIVE_ERROR = 1e-3
"""Duality gap, relative to the value, at which a programme counts as solved."""

RESOLUTION = 1e-6
"""Values below this are 0."""


@dataclass(frozen=True, kw_only=True)
class Resistance:
    """What a batch of grasps resists, in units of the largest normal force.

    Attributes:
      value: (N,) float. Smallest over the directions; 0 if some direction can not be resisted at all.
      by_direction: (N, D) float. Largest multiple of each disturbance that is resisted.
      converged: (N, D) bool. False where the solver met the limit of float64; `by_direction` is an upper
        bound even then.
    """

    value: np.ndarray
    by_direction: np.ndarray
    converged: np.ndarray


def resistance(
    p_O: np.ndarray,
    n_O: np.ndarray,
    *,
    centre_O: np.ndarray,
    size: float,
    friction: Friction | None = None,
    directions: np.ndarray = ACCELERATIONS,
) -> Resistance:
    """Largest disturbances that grasps resist when each contact's normal force is at most 1.

    For each grasp and disturbance w, a second-order cone programme:

        maximise lambda  subject to  sum_c G_c f_c = -lambda w,  f_c in the friction cone,  f_c,n <= 1

    A grasp of value q, each of whose contacts can press with F newtons, holds an object of mass m under each
    of the accelerations up to q F / m, one at a time. Two opposed contacts with the centre between them give
    min(1, 2 mu). For forces at the centre the result does not depend on `size`; torques are counted in it.

    Deterministic, 0.03 to 0.05 ms per grasp on one core (two contacts, six directions); memory grows linearly
    with N C D. Values are upper bounds within 2 `RELATIVE_ERROR` of the optimum. The first call of a machine
    compiles the kernel, some seconds.

    Args:
      p_O: (N, C, 3) float, m. Contact points.
      n_O: (N, C, 3) float. Outward unit normals of the object.
      centre_O: (3,) or (N, 3) float, m. Where accelerations act: the centre of mass.
      size: Length that divides torques, m, about that of the object.
      friction: Friction of all contacts; None means `Friction()`.
      directions: (D, 6) float. Disturbing wrenches: force, and torque about the centre divided by size.

    Returns:
      `Resistance`. 0, never NaN, where a direction can not be resisted.

    Raises:
      ValueError: A shape, a normal, the size or a number that is not finite.
    """
    friction = Friction() if friction is None else friction
    directions = np.asarray(directions, dtype=float)
    if directions.ndim != 2 or directions.shape[0] < 1 or directions.shape[1] != 6:
        raise ValueError(f"directions have shape {directions.shape}, expected (directions, 6)")
    length = np.linalg.norm(directions, axis=1)
    usable = np.isfinite(length) & (length > 0)
    if not np.all(usable):
        raise ValueError(f"directions must be finite and not 0; one of them is {directions[~usable][0]}")
    # On the unit cone |x_1..3| <= x_0 the coefficients of friction are factors of the columns.
    A = grasp_matrix(p_O, n_O, centre_O=centre_O, size=size) * friction.scale
    unit, converged = _solve(A, -directions / length[:, None])
    by_direction = unit / length
    return Resistance(value=by_direction.min(axis=1), by_direction=by_direction, converged=converged)


def _solve(A: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Largest multiples (N, D) of wrenches (D, 6) that forces on unit cones give through A (N, C, 6, 4)."""
    N, C, D = len(A), A.shape[1], len(wanted)
    if N == 0:
        return np.zeros((0, D)), np.zeros((0, D), dtype=bool)
    values = wp.zeros((N, D), dtype=wp.float64, device="cpu")
    converged = wp.zeros((N, D), dtype=bool, device="cpu")
    record: Any = kernels.Contact
    state = wp.zeros((N * D, C), dtype=record, device="cpu")
    blocks = wp.array(A, dtype=kernels.mat64, device="cpu")
    directions = wp.array(wanted, dtype=kernels.vec6, device="cpu")
    inputs = [blocks, directions, RELATIVE_ERROR, RESOLUTION]
    outputs = [state, values, converged]
    wp.launch(kernels.resistance_kernel, dim=(N, D), inputs=inputs, outputs=outputs, device="cpu")
    return values.numpy(), converged.numpy()
