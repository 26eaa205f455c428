"""Friction of a soft finger: how much tangential force and torsion a normal force can carry."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Friction:
    """A soft-finger contact with an elliptic limit surface.

    A contact force f = (f_n, f_t1, f_t2, tau) holds if |(f_t1 / mu, f_t2 / mu, tau / torsion_m)| <= f_n.
    It is MuJoCo's elliptic cone for condim 4, with mu = friction[0] and torsion_m = friction[1].

    Attributes:
      mu: Coefficient of sliding friction. 0 is a frictionless contact.
      torsion_m: Largest torsional torque for a unit normal force, m. 0 is a hard finger.
    """

    mu: float = 1.0
    torsion_m: float = 0.005

    def __post_init__(self):
        for name in ("mu", "torsion_m"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value!r}; a friction coefficient is a finite number >= 0")

    @property
    def scale(self) -> np.ndarray:
        """(1, mu, mu, torsion_m): multiplies the unit cone |x_1..3| <= x_0 into the cone of forces."""
        return np.array([1.0, self.mu, self.mu, self.torsion_m])

    def usage(self, forces: np.ndarray) -> np.ndarray:
        """Share of the available friction that contact forces use; they hold where it is <= 1.

        Args:
          forces: (..., 4) float. f_n, f_t1, f_t2 in N and tau in N m.

        Returns:
          (...) float. 0 for a pure push; infinite for a pull, for friction without a push, and for a
          component whose coefficient is 0.
        """
        x = self._unit(forces)
        used, push = np.linalg.norm(x[..., 1:], axis=-1), x[..., 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(push > 0, used / push, np.inf)
        return np.where((used == 0) & (push == 0), 0.0, share)

    def project(self, forces: np.ndarray) -> np.ndarray:
        """The nearest forces that hold, (..., 4), of forces (..., 4).

        Newtons and newton metres have no common distance, so nearness is measured on the unit cone, where
        x = (f_n, f_t / mu, tau / torsion_m): inside stays, the polar cone goes to 0, and between the two
        x goes to (x_0 + r) / 2 * (1, x_1..3 / r) with r = |x_1..3|. A component without friction becomes 0.
        """
        x = np.where(self.scale > 0, self._unit(forces), 0.0)
        r = np.linalg.norm(x[..., 1:], axis=-1, keepdims=True)
        push = x[..., :1]
        middle = np.maximum(push + r, 0.0) / 2
        ring = np.concatenate([middle, middle * x[..., 1:] / np.where(r > 0, r, 1.0)], axis=-1)
        return np.where(r <= push, x, ring) * self.scale

    def _unit(self, forces: np.ndarray) -> np.ndarray:
        """Forces (..., 4) on the unit cone; infinite where friction is asked of a coefficient 0."""
        forces = np.asarray(forces, dtype=float)
        if forces.shape[-1:] != (4,):
            raise ValueError(f"forces have shape {forces.shape}, expected (..., 4): f_n, f_t1, f_t2, tau")
        none = np.where(forces == 0, 0.0, np.inf)
        return np.where(self.scale > 0, forces / np.where(self.scale > 0, self.scale, 1.0), none)
