"""Projected Newton with a filtered line search; its linear system: two bands and a few common unknowns."""

from typing import NamedTuple, Protocol

import numpy as np

# Unknowns that both pads share: tilts and translations of the two backings, affine motion of the object.
COMMON = 20
_SUFFICIENT = 1e-4
_MAX_HALVINGS = 40


class Arrow:
    """A symmetric matrix [[K0, 0, C0], [0, K1, C1], [C0', C1', G]] with banded K.

    All numbers lie in `flat`: bands (width, n) in LAPACK's lower form K[j + i, j], sides (n, 20), G (20, 20).
    """

    def __init__(self, flat: np.ndarray, width: int, n: int):
        """View `flat` (see `size`) as the matrix of two bands with n unknowns each."""
        band, side = width * n, COMMON * n
        self.bands = [flat[i * band : (i + 1) * band].reshape(width, n) for i in range(2)]
        rest = flat[2 * band :]
        self.sides = [rest[i * side : (i + 1) * side].reshape(n, COMMON) for i in range(2)]
        self.corner = rest[2 * side :].reshape(COMMON, COMMON)
        self.flat, self.n = flat, n

    @staticmethod
    def size(width: int, n: int) -> int:
        """Length of `flat`."""
        return 2 * n * (width + COMMON) + COMMON**2

    def solve(self, b: np.ndarray) -> np.ndarray | None:
        """x (2 n + 20,) with A x = b, by the Schur complement of the bands; None unless positive definite.

        With K = L L', Y = L^-1 C and z = L^-1 b_K: (G - sum Y'Y) y = b_G - sum Y'z, L'x_K = z - Y y. So the
        20 columns of C are solved with one triangle only.
        """
        from scipy.linalg.lapack import dpbtrf, dpotrf, dpotrs, dtbtrs  # type: ignore[attr-defined]

        n = self.n
        schur, right = self.corner.copy(), b[2 * n :].copy()
        halfway = []
        for i in range(2):
            factor, info = dpbtrf(self.bands[i], lower=1)
            if info:
                return None
            columns = np.column_stack([self.sides[i], b[i * n : (i + 1) * n]])
            Yz, _ = dtbtrs(factor, columns, uplo="L")
            reduced = Yz[:, :COMMON].T @ Yz
            schur -= reduced[:, :COMMON]
            right -= reduced[:, COMMON]
            halfway.append((factor, Yz))
        factor, info = dpotrf(schur, lower=1)
        if info:
            return None
        y, _ = dpotrs(factor, right, lower=1)
        bands = [dtbtrs(L, Yz[:, COMMON] - Yz[:, :COMMON] @ y, uplo="L", trans="T")[0] for L, Yz in halfway]
        return np.concatenate([*(x.ravel() for x in bands), y])


class Potential(Protocol):
    """What is minimised: an energy that is inf where it must not go."""

    def energy(self, q: np.ndarray) -> float:
        """J."""
        ...

    def system(self, q: np.ndarray, project: bool) -> tuple[np.ndarray, Arrow]:
        """Gradient and Hessian at q; with `project` the Hessian is positive definite."""
        ...

    def free_step(self, q: np.ndarray, p: np.ndarray) -> float:
        """The largest step <= 1 along p that does not touch."""
        ...

    def length(self, p: np.ndarray) -> float:
        """How far the step p moves anything, m."""
        ...


class Minimum(NamedTuple):
    """Where Newton's method ended."""

    q: np.ndarray
    iterations: int
    converged: bool


def minimise(
    potential: Potential,
    q: np.ndarray,
    tolerance: float,
    max_iterations: int,
    start: np.ndarray | None = None,
) -> Minimum:
    """The minimum of a potential near q, with every iterate free of contact and inversion.

    1. p = -H^-1 g; H with every element projected if it is not positive definite as it is.
    2. Cut p to the step that continuous collision detection allows; halve it until the energy sinks.
    3. Done once p moves nothing further than `tolerance` (m).

    Args:
      potential: What to minimise.
      q: (Q,) float64. A feasible start.
      tolerance: m.
      max_iterations: At most so many linear systems are solved.
      start: (Q,) float64. A guess to begin at, as far as it is feasible and lower.
    """
    value = potential.energy(q)
    if start is not None:
        p = start - q
        guess = q + potential.free_step(q, p) * p
        lower = potential.energy(guess)
        if lower < value:
            q, value = guess, lower
        else:
            potential.energy(q)  # Its contacts again.
    for iteration in range(max_iterations):
        gradient, system = potential.system(q, False)
        p = system.solve(-gradient)
        if p is None or not gradient @ p < 0:
            gradient, system = potential.system(q, True)
            p = system.solve(-gradient)
            if p is None or not np.isfinite(p).all():
                return Minimum(q, iteration, False)
        last = potential.length(p) <= tolerance
        step = potential.free_step(q, p)
        slope = gradient @ p
        for _ in range(_MAX_HALVINGS):
            lower = potential.energy(q + step * p)
            # Differences below rounding can not be told from progress.
            if lower <= value + _SUFFICIENT * step * slope + 1e-14 * abs(value):
                break
            step /= 2
        else:
            potential.energy(q)
            return Minimum(q, iteration + 1, last)
        q, value = q + step * p, lower
        if last:
            return Minimum(q, iteration + 1, True)
    return Minimum(q, max_iterations, False)
