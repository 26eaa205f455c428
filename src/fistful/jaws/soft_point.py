"""The soft point contact model: one point for each jaw, with Coulomb friction and torsion (Dex-Net)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fistful.contact.grasp_matrix import contact_frames
from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper
from fistful.jaws.holding import LENGTH, Jaw, load_factor, weight, wrench
from fistful.jaws.patch import surface, touch

RADIUS = 5e-3
"""m. Of the contact, which sets its torsion; Dex-Net's default."""


def soft_point(
    x_W: np.ndarray,
    n_W: np.ndarray,
    force: float,
    centre: np.ndarray,
    friction: float,
    radius: float = RADIUS,
) -> Jaw:
    """A jaw that presses with `force` at one point.

    Friction (f_t, tau) holds if |(f_t / mu, tau / (2/3 mu r))| <= f_n: an elliptic limit surface whose
    torsion is that of a disc of radius r under even pressure.

    Args:
      x_W: (3,) float, m. Contact.
      n_W: (3,) float. Unit normal into the object.
      force: Normal force, N.
      centre: (3,) float, m. Torques are about this point.
      friction: Coefficient mu.
      radius: Of the contact, m.
    """
    _, t1, t2 = contact_frames(-n_W).T
    slides = [friction * force * wrench(x_W, t, centre) for t in (t1, t2)]
    spin = 2 / 3 * friction * force * radius * np.concatenate([np.zeros(3), n_W / LENGTH])
    return Jaw(force * wrench(x_W, n_W, centre), ellipsoid(np.stack([*slides, spin], axis=1)))


def ellipsoid(axes: np.ndarray):
    """The support of {B y : |y| <= 1} for axes B (6, K): xi -> B B^T xi / |B^T xi|."""

    def support(xi: np.ndarray) -> np.ndarray:
        y = axes.T @ xi
        length = float(np.linalg.norm(y))
        return axes @ (y / length) if length > 0 else np.zeros(6)

    return support


@dataclass(frozen=True, kw_only=True)
class SoftPoint:
    """A grasp holds if both jaws meet the object without slipping and together resist its weight."""

    name: str = "soft-point"
    radius: float = RADIUS
    """m."""

    def outcomes(self, resting: Resting, grasps: Sequence[JawGrasp], gripper: Gripper) -> np.ndarray:
        """(N,) bool. Which grasps hold."""
        mesh, middle = surface(resting), np.zeros((1, 2))
        return np.array([self._holds(mesh, resting, g, gripper, middle) for g in grasps], dtype=bool)

    def _holds(self, mesh, resting: Resting, grasp: JawGrasp, gripper: Gripper, middle: np.ndarray) -> bool:
        jaws, mu = [], gripper.friction
        for jaw in (0, 1):
            met = touch(mesh, grasp, gripper, jaw, middle)
            if met.inside or not np.isfinite(met.distances[0]):
                return False
            towards = grasp.axis_W if jaw == 0 else -grasp.axis_W
            x, n = met.x_W[0], met.n_W[0]
            along = float(n @ towards)
            if mu * along < np.linalg.norm(towards - along * n):
                return False  # The closing direction is outside the friction cone: the jaw slips.
            force = gripper.closing_force * along
            jaws.append(soft_point(x, n, force, resting.com_W, mu, self.radius))
        return load_factor(jaws, weight(resting), enough=1.0).lower >= 1.0
