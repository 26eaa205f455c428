"""Spheres, capsules, boxes and cylinders: closed-form signed distance, surface samples, fits.

Sizes follow MuJoCo: sphere (radius), capsule and cylinder (radius, half length along z, without caps),
box (three half extents). The first three are one formula, a *rounded box*: the box of half extents `core`
inflated by `radius`. Only the cylinder needs its own.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np


class Kind(IntEnum):
    """The four shapes, numbered as MuJoCo numbers its geoms."""

    SPHERE = 2
    CAPSULE = 3
    CYLINDER = 5
    BOX = 6


SIZES = {Kind.SPHERE: 1, Kind.CAPSULE: 2, Kind.CYLINDER: 2, Kind.BOX: 3}
"""How many numbers give the size of each kind."""


class Primitive(NamedTuple):
    """One shape posed in the frame of its owner B.

    Attributes:
      kind: Shape.
      size: (3,) float, m. MuJoCo's convention; unused entries are 0.
      p_BG: (3,) float, m. Centre.
      R_BG: (3, 3) float. Orientation.
    """

    kind: Kind
    size: np.ndarray
    p_BG: np.ndarray
    R_BG: np.ndarray


def core_and_radius(kind: Kind, size: np.ndarray) -> tuple[np.ndarray, float]:
    """Half extents (3,) of the inner box, and the radius it is inflated by. Not for cylinders."""
    if kind == Kind.SPHERE:
        return np.zeros(3), float(size[0])
    if kind == Kind.CAPSULE:
        return np.array([0.0, 0.0, size[1]]), float(size[0])
    if kind == Kind.BOX:
        return np.asarray(size, dtype=float), 0.0
    raise ValueError(f"{kind!r} is not a rounded box")


def half_extents(kind: Kind, size: np.ndarray) -> np.ndarray:
    """Half extents (3,) of the shape's bounding box in its own frame."""
    if kind == Kind.CYLINDER:
        return np.array([size[0], size[0], size[1]])
    core, radius = core_and_radius(kind, size)
    return core + radius


def signed_distance(kind: Kind, size: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Distance of points to the shape's surface, negative inside.

    With d = |p| - core componentwise: |max(d, 0)| + min(max_i d_i, 0) - radius.

    Args:
      kind: Shape.
      size: (3,) float, m.
      points: (..., 3) float, m, in the shape's frame.

    Returns:
      (...) float, m. Exact everywhere.
    """
    d, radius, _ = _excess(kind, size, points)
    outside = np.linalg.norm(np.maximum(d, 0.0), axis=-1)
    inside = np.minimum(np.max(d, axis=-1), 0.0)
    return outside + inside - radius


def outward_normal(kind: Kind, size: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Gradient of `signed_distance` at points, (..., 3) unit vectors.

    On the medial axis, where it is not defined, one of the nearest surface points is taken.
    """
    d, _, direction = _excess(kind, size, points)
    positive = np.maximum(d, 0.0)
    length = np.linalg.norm(positive, axis=-1, keepdims=True)
    nearest_face = np.eye(d.shape[-1])[np.argmax(d, axis=-1)]
    g = np.where(length > 1e-12, positive / np.maximum(length, 1e-12), nearest_face)
    return np.sum(g[..., None] * direction, axis=-2)


def _excess(kind: Kind, size: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """Excess over the core (..., D), the radius, and the outward direction (..., D, 3) of each excess.

    A cylinder is a box in the half plane (distance from the axis, |z|): D is 2 for it and 3 otherwise.
    """
    points = np.asarray(points, dtype=float)
    away = np.where(points >= 0, 1.0, -1.0)
    if kind == Kind.CYLINDER:
        rho = np.linalg.norm(points[..., :2], axis=-1)
        radial = np.zeros_like(points)
        radial[..., 0] = 1.0
        off_axis = rho > 1e-12
        radial[off_axis, :2] = points[off_axis, :2] / rho[off_axis, None]
        axial = np.zeros_like(points)
        axial[..., 2] = away[..., 2]
        d = np.stack([rho - size[0], np.abs(points[..., 2]) - size[1]], axis=-1)
        return d, 0.0, np.stack([radial, axial], axis=-2)
    core, radius = core_and_radius(kind, size)
    return np.abs(points) - core, radius, away[..., None] * np.eye(3)


class Shapes(NamedTuple):
    """Many primitives as arrays, for distances to all of them at once.

    Attributes:
      cylinder: (G,) bool.
      core, radius: (G, 3), (G,) float, m. Rounded boxes; (radius, 0, half length) and 0 for a cylinder.
      p_BG, R_BG: (G, 3), (G, 3, 3) float. Poses in the frames of their owners.
    """

    cylinder: np.ndarray
    core: np.ndarray
    radius: np.ndarray
    p_BG: np.ndarray
    R_BG: np.ndarray

    @classmethod
    def of(cls, primitives: Sequence[Primitive]) -> "Shapes":
        """The arrays of a list."""
        core, radius = np.zeros((len(primitives), 3)), np.zeros(len(primitives))
        for g, shape in enumerate(primitives):
            if shape.kind == Kind.CYLINDER:
                core[g] = shape.size[0], 0.0, shape.size[1]
            else:
                core[g], radius[g] = core_and_radius(shape.kind, shape.size)
        return cls(
            cylinder=np.array([shape.kind == Kind.CYLINDER for shape in primitives]),
            core=core,
            radius=radius,
            p_BG=np.array([shape.p_BG for shape in primitives]),
            R_BG=np.array([shape.R_BG for shape in primitives]),
        )

    def signed_distance(self, points: np.ndarray) -> np.ndarray:
        """Distances (..., G), m, of points (..., G, 3), each given in the frame of its shape.

        A cylinder becomes a box by replacing (x, y) by (distance from the axis, far inside).
        """
        p = np.abs(points)
        if np.any(self.cylinder):
            p = p.copy()
            c = self.cylinder
            p[..., c, 0] = np.hypot(p[..., c, 0], p[..., c, 1])
            p[..., c, 1] = -np.inf
        d = p - self.core
        outside = np.sqrt(np.sum(np.maximum(d, 0.0) ** 2, axis=-1))
        return outside + np.minimum(np.max(d, axis=-1), 0.0) - self.radius


def surface_area(kind: Kind, size: np.ndarray) -> float:
    """Area of the shape's surface, m2."""
    if kind == Kind.BOX:
        x, y, z = 2 * np.asarray(size)
        return float(2 * (x * y + y * z + z * x))
    radius, half_length = float(size[0]), 0.0 if kind == Kind.SPHERE else float(size[1])
    side = 4 * np.pi * radius * half_length
    return side + (2 if kind == Kind.CYLINDER else 4) * np.pi * radius**2


def sample_surface(kind: Kind, size: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` points spread uniformly over the surface, (count, 3), in the shape's frame.

    Draws from a shell around the surface, thin against the shape, and moves each point to the surface.
    """
    box = half_extents(kind, size)
    shell = 0.02 * float(box.min())
    found: list[np.ndarray] = []
    while sum(map(len, found)) < count:
        p = rng.uniform(-1, 1, (8 * count + 64, 3)) * (box + shell)
        d = signed_distance(kind, size, p)
        near = np.abs(d) < shell
        p, d = p[near], d[near]
        found.append(p - d[:, None] * outward_normal(kind, size, p))
    return np.concatenate(found)[:count]
