"""The primitives that come closest to a convex body given by points."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation

from fistful.geometry.pose import rotation_about
from fistful.geometry.primitives import SIZES, Kind, Primitive, signed_distance
from fistful.geometry.sampling import sample_triangles

SAMPLES = 400
MAX_PARTS = 4
TOLERANCE = 1.5e-3
"""m, root mean square: what a primitive may be off before the body is cut in two."""
NEGLIGIBLE = 1e-6
"""m. A smaller difference of two fits says nothing about which is right."""


class Fit(NamedTuple):
    """A primitive and its distance to the surface it stands for: root mean square and maximum, m."""

    primitive: Primitive
    rms: float
    max: float


def fit_primitives(points: np.ndarray) -> list[Fit]:
    """One to MAX_PARTS primitives that follow the convex hull of points to about TOLERANCE.

    While the worst part is off by more than TOLERANCE, it is cut in two across its longest axis and both
    halves are fitted; a cut that brings no gain is the last.

    Args:
      points: (N, 3) float, m. At least four, not in one plane.

    Raises:
      ValueError: The points span no volume.
    """
    parts = [(points, fit_primitive(points))]
    while len(parts) < MAX_PARTS:
        worst = max(range(len(parts)), key=lambda k: parts[k][1].rms)
        body, fit = parts[worst]
        if fit.rms <= TOLERANCE:
            break
        try:
            halves = [(half, fit_primitive(half)) for half in _halves(body)]
        except ValueError:
            break
        if max(half.rms for _, half in halves) > 0.9 * fit.rms:
            break
        parts[worst : worst + 1] = halves
    return [fit for _, fit in parts]


def _halves(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two bodies left and right of the plane that cuts a convex hull across its longest axis."""
    hull = ConvexHull(points)
    corners = points[hull.vertices]
    axis = np.linalg.svd(corners - corners.mean(axis=0), full_matrices=False)[2][0]
    height = points @ axis
    cut = (height[hull.vertices].min() + height[hull.vertices].max()) / 2
    edges = np.concatenate([hull.simplices[:, [a, b]] for a, b in ((0, 1), (1, 2), (2, 0))])
    # Qhull's triangles are not oriented: an edge may run the same way in both of its triangles.
    crossing = edges[(height[edges] <= cut).sum(axis=1) == 1]
    start, end = height[crossing].T
    first, second = points[crossing].swapaxes(0, 1)
    section = first + ((cut - start) / (end - start))[:, None] * (second - first)
    inside = height[hull.vertices] <= cut
    return np.concatenate([corners[inside], section]), np.concatenate([corners[~inside], section])


def fit_primitive(points: np.ndarray) -> Fit:
    """The sphere, capsule, cylinder or box whose surface is nearest to the convex hull of points.

    Each kind is started from the points' principal axes, or what is best of them turned: a capsule or
    cylinder may lie along any of the three, and those of a square plate are arbitrary in its plane. It is
    refined by least squares on the closed-form distance of samples of the hull's surface. The simplest of
    equally good kinds is taken: a ball is a sphere, not a capsule of no length.

    Args:
      points: (N, 3) float, m. At least four, not in one plane.

    Raises:
      ValueError: The points span no volume.
    """
    surface = _hull_samples(points)
    centre = surface.mean(axis=0)
    axes = np.linalg.svd(surface - centre, full_matrices=False)[2]
    axes[2] *= np.sign(np.linalg.det(axes))
    fits = []
    for kind in Kind:
        starts = [_start(kind, surface, turned) for turned in _turned(kind, axes)]
        best = min(starts, key=lambda x: float(np.sum(_residual(x, kind, surface) ** 2)))
        solved = least_squares(_residual, best, args=(kind, surface), x_scale="jac", max_nfev=60)
        residual = np.abs(solved.fun)
        rms = float(np.sqrt(np.mean(residual**2)))
        fits.append(Fit(_primitive(solved.x, kind), rms, float(residual.max())))
    good_enough = 1.02 * min(fit.rms for fit in fits) + NEGLIGIBLE
    return next(fit for fit in fits if fit.rms <= good_enough)


def _turned(kind: Kind, axes: np.ndarray) -> list[np.ndarray]:
    """Axes (rows) to start from: in every order for round shapes, turned by a third about each for a box."""
    if kind == Kind.SPHERE:
        return [axes]
    if kind != Kind.BOX:
        return [np.roll(axes, turn, axis=0) for turn in range(3)]
    turns = [rotation_about(axis, angle) for axis in axes for angle in np.deg2rad([30, 60])]
    return [axes, *(axes @ R.T for R in turns)]


def _hull_samples(points: np.ndarray) -> np.ndarray:
    """Points uniform over the surface of the convex hull, always the same for the same input."""
    try:
        hull = ConvexHull(points)
    except Exception as error:
        raise ValueError("the points span no volume") from error
    return sample_triangles(points[hull.simplices], SAMPLES, np.random.default_rng(0))[0]


def _start(kind: Kind, surface: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Parameters (centre, rotation vector, log sizes) of the shape that bounds the samples along `axes`."""
    local = surface @ axes.T
    low, high = local.min(axis=0), local.max(axis=0)
    half = (high - low) / 2
    if kind == Kind.BOX:
        size = half
    elif kind == Kind.SPHERE:
        size = half.mean(keepdims=True)
    else:
        radius = half[:2].mean()
        size = np.array([radius, max(half[2] - (radius if kind == Kind.CAPSULE else 0), 0.1 * radius)])
    return np.concatenate(
        [axes.T @ ((low + high) / 2), Rotation.from_matrix(axes.T).as_rotvec(), np.log(size)]
    )


def _primitive(x: np.ndarray, kind: Kind) -> Primitive:
    size = np.zeros(3)
    size[: SIZES[kind]] = np.exp(np.clip(x[6:], -20, 5))
    return Primitive(kind, size, x[:3], Rotation.from_rotvec(x[3:6]).as_matrix())


def _residual(x: np.ndarray, kind: Kind, surface: np.ndarray) -> np.ndarray:
    shape = _primitive(x, kind)
    return signed_distance(kind, shape.size, (surface - shape.p_BG) @ shape.R_BG)
