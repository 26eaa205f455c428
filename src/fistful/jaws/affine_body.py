"""The grasped object: an affine body, whose twelve numbers are kept close to a rigid motion."""

import numpy as np

# Pa. Times the volume it is the weight of |A'A - 1|^2: 20 N over 3 cm strain a cube of that size by 1e-6.
RIGIDITY = 1e9
# J. Small parts get at least this.
_LEAST_WEIGHT = 1e3


def lever(points: np.ndarray) -> np.ndarray:
    """(3V, 12) float64. dx / dq of points (V, 3) of the body: x = p + A X with q = (p, rows of A)."""
    J = np.zeros((len(points), 3, 12))
    for i in range(3):
        J[:, i, i] = 1
        J[:, i, 3 + 3 * i : 6 + 3 * i] = points
    return J.reshape(-1, 12)


class AffineBody:
    """x = p + A X, q = (p, rows of A) in R^12, with the energy w |A'A - 1|^2 (affine body dynamics).

    X is measured from the centre of mass, in world axes at the start, so that q = (com, 1) there.
    """

    def __init__(self, mass: float, inertia: np.ndarray, volume: float):
        """Take the inertia of the body.

        Args:
          mass: kg.
          inertia: (3, 3) float, kg m2. About the centre of mass, in world axes at the start.
          volume: m3. Scales the stiffness that keeps the body rigid.
        """
        second = np.trace(inertia) / 2 * np.eye(3) - inertia
        self.mass_matrix = np.zeros((12, 12))
        """(12, 12) float64. v'Mv / 2 is the kinetic energy: mass, second moments for each row of A."""
        self.mass_matrix[:3, :3] = mass * np.eye(3)
        for i in range(3):
            self.mass_matrix[3 + 3 * i : 6 + 3 * i, 3 + 3 * i : 6 + 3 * i] = second
        self.weight = max(RIGIDITY * volume, _LEAST_WEIGHT)
        """J."""

    def energy(self, q: np.ndarray) -> float:
        """w |A'A - 1|^2, J."""
        A = q[3:].reshape(3, 3)
        return self.weight * float(((A.T @ A - np.eye(3)) ** 2).sum())

    def derivatives(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient (9,) and Hessian (9, 9), projected to be positive semi-definite, by the rows of A.

        dE/dA = 4 w A (A'A - 1); d2E = 4 w (dA (A'A - 1) + A (dA'A + A'dA)).
        """
        A = q[3:].reshape(3, 3)
        S = A.T @ A - np.eye(3)
        # [i, j, k, l]: derivative of entry (i, j) of the gradient by A_kl.
        H = np.einsum("ik,lj->ijkl", np.eye(3), S)
        H += np.einsum("il,kj->ijkl", A, A)
        H += np.einsum("ik,lj->ijkl", A @ A.T, np.eye(3))
        values, vectors = np.linalg.eigh(4 * self.weight * H.reshape(9, 9))
        return (4 * self.weight * A @ S).ravel(), (vectors * np.maximum(values, 0)) @ vectors.T


def nearest_rotation(A: np.ndarray) -> np.ndarray:
    """(3, 3) float64. The rotation closest to A, by its singular vectors."""
    U, _, Vt = np.linalg.svd(A)
    return U @ np.diag([1, 1, np.linalg.det(U @ Vt)]) @ Vt
