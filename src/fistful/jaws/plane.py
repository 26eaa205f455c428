"""The plane z = 0 under object and pads: the same barrier and friction, vertex by vertex."""

from typing import NamedTuple

import numpy as np

from fistful.jaws.contact import barrier_curvature, barrier_slope, barrier_stiffness, barrier_value


class Touching(NamedTuple):
    """What a lagged friction needs of the vertices on the plane."""

    vertices: np.ndarray
    """(K,) int."""
    pressure: np.ndarray
    """(K,) float64, N. Coefficient of friction times normal force."""


class Plane:
    """kappa sum b(z_k) and the friction of vertices lower than dhat; CCD is a division.

    Friction as in Contact: f0(u) = -u^3 / (3 e^2) + u^2 / e + e / 3 below e, u above; f1 = f0'.
    """

    def __init__(self, dhat: float, friction: np.ndarray):
        """Take the activation distance (m) and each vertex's coefficient of friction, (V,) float."""
        self.dhat, self.friction = dhat, friction
        self.stiffness = barrier_stiffness(dhat)
        self._lagged = Touching(np.zeros(0, int), np.zeros(0))
        self._smoothing = 1.0

    def free_step(self, x: np.ndarray, p: np.ndarray) -> float:
        """The largest step a <= 1 along p (V, 3) that keeps a tenth of every height above the plane."""
        down = p[:, 2] < 0
        if not down.any():
            return 1.0
        return float(min(1.0, (0.9 * x[down, 2] / -p[down, 2]).min()))

    def lag(self, x: np.ndarray, smoothing: float) -> None:
        """Take normal forces for friction from x (V, 3), with sliding smoothed below `smoothing` (m)."""
        k = np.flatnonzero((x[:, 2] < self.dhat) & (self.friction > 0))
        force = -self.stiffness * barrier_slope(x[k, 2], self.dhat)
        self._lagged, self._smoothing = Touching(k, self.friction[k] * force), smoothing

    def energy(self, x: np.ndarray, u: np.ndarray) -> float:
        """Barrier at x plus friction of the sliding u, J; inf below the plane."""
        z = x[:, 2]
        if z.min() <= 0:
            return np.inf
        value = self.stiffness * float(barrier_value(z[z < self.dhat], self.dhat).sum())
        k, pressure = self._lagged
        s, e = np.linalg.norm(u[k, :2], axis=1), self._smoothing
        f0 = np.where(s < e, -(s**3) / (3 * e**2) + s**2 / e + e / 3, s)
        return value + float(pressure @ f0)

    def push(self, x: np.ndarray) -> np.ndarray:
        """(V, 3) float64, N. Force of the barrier on each vertex."""
        force = np.zeros_like(x)
        k = x[:, 2] < self.dhat
        force[k, 2] = -self.stiffness * barrier_slope(x[k, 2], self.dhat)
        return force

    def drag(self, u: np.ndarray) -> np.ndarray:
        """(V, 3) float64, N. Force of friction on each vertex."""
        force = np.zeros_like(u)
        k, pressure = self._lagged
        s, e = np.linalg.norm(u[k, :2], axis=1), self._smoothing
        ratio = np.where(s < e, 2 / e - s / e**2, 1 / np.maximum(s, 1e-20))
        force[k, :2] = -(pressure * ratio)[:, None] * u[k, :2]
        return force

    def hessian(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Vertices (K,) int on the plane, and their blocks (K, 3, 3) of the Hessian, N/m."""
        low = np.flatnonzero(x[:, 2] < self.dhat)
        blocks = np.zeros((len(x) if len(low) or len(self._lagged.vertices) else 0, 3, 3))
        if not len(blocks):
            return low, blocks
        blocks[low, 2, 2] = self.stiffness * barrier_curvature(x[low, 2], self.dhat)
        k, pressure = self._lagged
        s, e = np.linalg.norm(u[k, :2], axis=1), self._smoothing
        inside = s < e
        safe = np.maximum(s, 1e-20)
        ratio = np.where(inside, 2 / e - s / e**2, 1 / safe)
        # d(ratio u) = ratio 1 + ratio' u u' / s; ratio' is negative, the sum is positive semi-definite.
        slope = np.where(inside, -1 / e**2, -1 / safe**2) / safe
        t = u[k, :2]
        tangent = ratio[:, None, None] * np.eye(2) + slope[:, None, None] * t[:, :, None] * t[:, None, :]
        blocks[k, :2, :2] = pressure[:, None, None] * tangent
        used = np.union1d(low, k)
        return used, blocks[used]

    def gap(self, x: np.ndarray) -> float:
        """Smallest height, m."""
        return float(x[:, 2].min())
