"""6DFC: the friction of a curved patch as a six-dimensional friction cone, an ellipsoid in wrench space.

What is certain about 6DFC and what is our reading of it is said in docs/jaws_models.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper
from fistful.jaws.holding import LENGTH, Jaw, load_factor, weight
from fistful.jaws.patch import SPACING, Compression, Patch, outline_points, press, surface
from fistful.jaws.reach import area_contact
from fistful.jaws.soft_point import ellipsoid

TWISTS = 400
"""Number of sampled twists."""
_SEED = 6
# Directions in which the friction wrenches extend less than this, relative to the largest, have none.
_FLAT = 1e-6


def limit_axes(patch: Patch, centre: np.ndarray, friction: float, twists: int = TWISTS) -> np.ndarray:
    """Axes B (6, K), K <= 6, of the ellipsoid {B y : |y| <= 1} that fits the friction wrenches of a patch.

    1. Twists, uniform in direction, about the middle of the patch, with its radius as the unit of length.
    2. Each gives the friction wrench w_m of the patch when it slides so; these lie on the limit surface.
    3. Least squares  min sum_m (w_m^T A w_m - 1)^2  in the subspace that the w_m span (a flat patch has
       friction in three dimensions only); A is made positive by raising eigenvalues that are not.
    4. B = A^(-1/2). The fit does not depend on the frame in which wrenches are written.

    Args:
      patch: Patch, at the full closing force.
      centre: (3,) float, m. Torques are about this point, divided by `holding.LENGTH`.
      friction: Coefficient mu.
      twists: Number of sampled twists.
    """
    slide = area_contact(patch, centre, friction).friction
    middle = np.average(patch.x_W, axis=0, weights=patch.f)
    radius = max(float(np.sqrt(np.mean(np.sum((patch.x_W - middle) ** 2, axis=1)))), 1e-4)
    xi = np.random.default_rng(_SEED).normal(size=(twists, 6))
    xi /= np.linalg.norm(xi, axis=1, keepdims=True)
    # A turn about the middle m of the patch also shifts the centre: v_c = v - omega x (m - c).
    omega = xi[:, 3:] / radius
    shifted = xi[:, :3] - np.cross(omega, middle - centre)
    samples = np.array([slide(np.concatenate([v, LENGTH * w])) for v, w in zip(shifted, omega, strict=True)])
    U, extent, _ = np.linalg.svd(samples.T, full_matrices=False)
    kept = extent > _FLAT * max(extent[0], 1e-300)
    if extent[0] == 0 or not kept.any():
        return np.zeros((6, 1))
    basis = U[:, kept] * (extent[kept] / np.sqrt(twists))
    return basis @ _fitted(np.linalg.lstsq(basis, samples.T, rcond=None)[0].T)


def _fitted(z: np.ndarray) -> np.ndarray:
    """A^(-1/2) (K, K) of the ellipsoid z^T A z = 1 through points (M, K), whitened beforehand."""
    K = z.shape[1]
    i, j = np.triu_indices(K)
    columns = z[:, i] * z[:, j] * np.where(i == j, 1.0, 2.0)
    A = np.zeros((K, K))
    A[i, j] = A[j, i] = np.linalg.lstsq(columns, np.ones(len(z)), rcond=None)[0]
    values, vectors = np.linalg.eigh(A)
    # No axis is longer than the farthest sample along it.
    floor = 1.0 / np.max(np.abs(z @ vectors), axis=0) ** 2
    return vectors @ np.diag(np.maximum(values, floor) ** -0.5) @ vectors.T


@dataclass(frozen=True, kw_only=True)
class SixDFC:
    """A grasp holds if two pressed patches, each with a cone |A^(1/2) w| <= s, together resist the weight."""

    name: str = "6dfc"
    spacing: float = SPACING
    """m. Between contact elements."""
    compression: Compression = "full"
    twists: int = TWISTS

    def outcomes(self, resting: Resting, grasps: Sequence[JawGrasp], gripper: Gripper) -> np.ndarray:
        """(N,) bool. Which grasps hold."""
        mesh, points = surface(resting), outline_points(gripper.pad.outline, self.spacing)
        centre, held = resting.com_W, []
        for grasp in grasps:
            patches = [press(mesh, grasp, gripper, jaw, points, self.compression) for jaw in (0, 1)]
            jaws = [self.jaw(p, centre, gripper.friction) for p in patches if p is not None]
            held.append(len(jaws) == 2 and load_factor(jaws, weight(resting), enough=1.0).lower >= 1.0)
        return np.array(held, dtype=bool)

    def jaw(self, patch: Patch, centre: np.ndarray, friction: float) -> Jaw:
        """A jaw that presses on a patch, with the fitted ellipsoid for its friction."""
        normal = area_contact(patch, centre, friction).normal
        return Jaw(normal, ellipsoid(limit_axes(patch, centre, friction, self.twists)))
