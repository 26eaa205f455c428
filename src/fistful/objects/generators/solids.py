"""Modelling verbs behind the built-in objects: lathe, loft, sweep, slab, rounded box, and the finish.

Everything here is in **millimetres**, z up; `finish` alone turns a solid into metres. Every verb returns a
closed, outward-oriented `Manifold`, so that any of them may be united (`+`), cut (`-`) or moved freely.
"""

import math
from collections.abc import Sequence

import numpy as np
import trimesh
from manifold3d import CrossSection, Error, Manifold, Mesh64, triangulate
from numpy.typing import ArrayLike, NDArray

from fistful.objects.generators.curves import STEP_MM, Points, circle, polyline, resample
from fistful.objects.generators.slivers import remove_slivers

_SIMPLIFY_MM = 0.02
"""Detail smaller than this, left by booleans of nearly coincident surfaces, is removed by `finish`."""

_SLIVER_MM = 0.05
"""Triangles lower than this are removed by `finish`."""

_COLLAPSE_MM = 0.7
"""Longest edge that may be collapsed to remove a sliver."""


def lathe(profile: Points, segments: int = 64) -> Manifold:
    """Solid of revolution about z of a profile of (n, 2) points (radius, height).

    A profile that starts and ends on the axis (radius 0) bounds the solid together with the axis; any other
    profile is taken as a closed curve beside the axis, which gives a ring.
    """
    c = circle(1.0, segments)
    rings = np.empty((len(profile), segments, 3))
    rings[..., :2] = profile[:, None, :1] * c
    rings[..., 2] = profile[:, None, 1]
    if profile[0, 0] == 0.0 and profile[-1, 0] == 0.0:
        return _tube(rings[1:-1], tips=rings[[0, -1], 0])
    return loop(rings)


def loft(rings: ArrayLike) -> Manifold:
    """Solid through rings of (n, m, 3) points, closed at both ends by a fan about the end ring's centre."""
    r = np.asarray(rings, dtype=float)
    return _tube(r, tips=r[[0, -1]].mean(axis=1))


def loop(rings: ArrayLike) -> Manifold:
    """Ring-shaped solid through rings of (n, m, 3) points, the last joined to the first."""
    return _tube(np.asarray(rings, dtype=float), tips=None)


def stack(sections: Sequence[Points], heights: Sequence[float]) -> Manifold:
    """Loft through flat sections of (m, 2) points, each at its height along z."""
    return loft([np.column_stack([s, np.full(len(s), z)]) for s, z in zip(sections, heights, strict=True)])


def sweep(
    path: Points,
    radii: ArrayLike,
    *,
    normal: ArrayLike,
    section: Points | None = None,
    closed: bool = False,
) -> Manifold:
    """Solid along a flat curve, with a section that is scaled from point to point.

    Args:
        path: (n, 3) points in one plane.
        radii: (n, 2) or broadcastable: half widths in the plane and along its normal.
        normal: (3,) unit normal of the plane.
        section: (m, 2) unit section; a circle by default.
        closed: join the end of the path to its start instead of capping both.
    """
    e_n = np.asarray(normal, dtype=float)
    ahead, behind = np.roll(path, -1, axis=0), np.roll(path, 1, axis=0)
    tangent = ahead - behind if closed else np.gradient(path, axis=0)
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    e_side = np.cross(e_n, tangent)
    unit = circle(1.0, 24) if section is None else section
    scaled = unit * np.broadcast_to(np.asarray(radii, dtype=float), (len(path), 2))[:, None, :]
    rings = path[:, None, :] + scaled[..., :1] * e_side[:, None, :] + scaled[..., 1:] * e_n
    return loop(rings) if closed else loft(rings)


def outline(*corners: Sequence[float], step: float = STEP_MM) -> CrossSection:
    """Flat section inside a closed `polyline` of corners (x, y) or (x, y, fillet radius)."""
    return CrossSection([polyline(*corners, closed=True, step=step)])


def slab(section: CrossSection, thickness: float, *, edge: float = 1.0, step: float = 2.0) -> Manifold:
    """Plate of a flat section, centred on z = 0, all rims (holes too) rounded with radius `edge`."""
    contours = [resample(np.asarray(c), closed=True, step=step) for c in section.to_polygons()]
    inward = [_left_normals(c) for c in contours]
    for c, n in zip(contours, inward, strict=True):
        before, after = (np.roll(ring, -1, axis=0) - ring for ring in (c, c + edge * n))
        if np.any(np.einsum("ij,ij->i", before, after) <= 0.0):
            raise ValueError(f"slab edge of {edge} mm folds over at a corner of the section; round it more")
    angles = np.linspace(0.0, np.pi / 2.0, 4)
    top = [(edge * (1.0 - math.cos(a)), thickness / 2.0 - edge * (1.0 - math.sin(a))) for a in angles]
    layers = [(inset, -z) for inset, z in reversed(top)] + top
    count = sum(len(c) for c in contours)
    flat, into = np.concatenate(contours), np.concatenate(inward)
    vertices = np.concatenate([np.column_stack([flat + d * into, np.full(count, z)]) for d, z in layers])
    faces, first = [], 0
    for c in contours:
        ring = first + np.arange(len(c))
        faces.append(_bands(ring + count * np.arange(len(layers))[:, None]))
        first += len(c)
    cap = np.asarray(triangulate([c + edge * n for c, n in zip(contours, inward, strict=True)]))
    faces += [cap[:, ::-1], cap + count * (len(layers) - 1)]
    return _solid(vertices, np.concatenate(faces))


def rounded_box(size: Sequence[float], radius: float, *, step: float = STEP_MM) -> Manifold:
    """Box of a size (x, y, z) about the origin with rounded edges and corners."""
    half = np.asarray(size, dtype=float) / 2.0
    core = half - radius
    # Tangents of equal angles, so that the rim of each face wraps an eighth of a turn in equal parts.
    parts = max(2, math.ceil(radius * math.pi / 4.0 / step))
    rim = radius * np.tan(np.linspace(0.0, np.pi / 4.0, parts + 1)[1:])
    grid = []
    for c in core:
        flat = np.linspace(-c, c, max(1, math.ceil(2.0 * c / step)) + 1) if c > 1e-9 else np.zeros(1)
        grid.append(np.concatenate([-c - rim[::-1], flat, c + rim]))
    points, faces, first = [], [], 0
    for axis in range(3):
        u, v = (axis + 1) % 3, (axis + 2) % 3
        nu, nv = len(grid[u]), len(grid[v])
        index = np.arange(nu * nv).reshape(nu, nv)
        quads = np.stack([index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]], axis=-1)
        quads = quads.reshape(-1, 4)
        for side in (-1.0, 1.0):
            p = np.empty((nu, nv, 3))
            p[..., axis] = side * half[axis]
            p[..., u], p[..., v] = grid[u][:, None], grid[v]
            points.append(p.reshape(-1, 3))
            q = first + (quads if side > 0 else quads[:, ::-1])
            faces += [q[:, [0, 1, 2]], q[:, [0, 2, 3]]]
            first += nu * nv
    p = np.concatenate(points)
    anchor = np.clip(p, -core, core)
    outward = p - anchor
    p = anchor + radius * outward / np.linalg.norm(outward, axis=1, keepdims=True)
    # The six faces share their borders: points that agree to a nanometre are one vertex.
    _, keep, index = np.unique(np.round(p, 6), axis=0, return_index=True, return_inverse=True)
    return _solid(p[keep], index.ravel()[np.concatenate(faces)])


def ellipsoid(size: Sequence[float], segments: int = 48) -> Manifold:
    """Ellipsoid of a size (x, y, z) about the origin."""
    return Manifold.sphere(0.5, segments).scale((size[0], size[1], size[2]))


def _tube(rings: Points, *, tips: Points | None) -> Manifold:
    """Solid whose skin joins rings of (n, m, 3) in turn, and the ends to two tips or to each other."""
    n, m = rings.shape[:2]
    index = np.arange(n * m).reshape(n, m)
    vertices = rings.reshape(-1, 3)
    if tips is None:
        return _solid(vertices, _bands(np.concatenate([index, index[:1]])))
    following = np.roll(index, -1, axis=1)
    start = np.column_stack([following[0], index[0], np.full(m, n * m)])
    end = np.column_stack([index[-1], following[-1], np.full(m, n * m + 1)])
    return _solid(np.concatenate([vertices, tips]), np.concatenate([start, _bands(index), end]))


def _bands(index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Triangles between consecutive closed rings of vertex indices, (n, m) to (2 m (n - 1), 3)."""
    a, b = index[:-1], index[1:]
    a1, b1 = np.roll(a, -1, axis=1), np.roll(b, -1, axis=1)
    return np.concatenate([np.stack([a, a1, b1], axis=-1), np.stack([a, b1, b], axis=-1)]).reshape(-1, 3)


def _left_normals(contour: Points) -> Points:
    """Unit normals to the left of a closed contour, (n, 2): into the material, around holes as well."""
    along = np.roll(contour, -1, axis=0) - np.roll(contour, 1, axis=0)
    return np.column_stack([-along[:, 1], along[:, 0]]) / np.linalg.norm(along, axis=1, keepdims=True)


def _solid(vertices: Points, faces: NDArray[np.int64]) -> Manifold:
    """The `Manifold` of a closed mesh, turned outwards if it was inside out."""
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    if np.einsum("ij,ij->", a, np.cross(b, c)) < 0.0:
        faces = faces[:, ::-1]
    solid = Manifold(Mesh64(np.ascontiguousarray(vertices), np.ascontiguousarray(faces, dtype=np.uint64)))
    if solid.status() != Error.NoError:
        raise ValueError(f"generated surface is not a closed manifold: {solid.status()}")
    return solid


def finish(solid: Manifold, *, longest_edge: float = 8.0) -> trimesh.Trimesh:
    """Mesh of a solid in metres, its centre of mass at the origin, long edges cut to about a length in mm."""
    clean = _without_slivers(solid.simplify(_SIMPLIFY_MM))
    mesh = _without_slivers(clean.refine_to_length(longest_edge)).to_mesh64()
    vertices = np.asarray(mesh.vert_properties)[:, :3] * 1e-3
    result = trimesh.Trimesh(vertices, np.asarray(mesh.tri_verts, dtype=np.int64), process=False)
    result.apply_translation(-result.center_mass)
    return result


def _without_slivers(solid: Manifold) -> Manifold:
    """The same solid without triangles lower than `_SLIVER_MM`."""
    mesh = solid.to_mesh64()
    vertices, faces = np.asarray(mesh.vert_properties)[:, :3], np.asarray(mesh.tri_verts, dtype=np.int64)
    return _solid(*remove_slivers(vertices, faces, altitude=_SLIVER_MM, reach=_COLLAPSE_MM))
