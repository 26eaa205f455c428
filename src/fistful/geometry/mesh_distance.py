"""Distances, rays and self-crossings of triangle meshes, exact, by Warp on the CPU.

Warp's bounding-volume hierarchy works in float32, so every mesh is first moved to the origin and scaled to a
longest side of 1; lengths are scaled back in float64. An error of float32 is then about 1e-7 of the mesh's
size wherever the mesh lies. Inside and outside are told apart by the winding number, which also copes with
surfaces that cross themselves: a point is inside if the surface winds around it more than half a turn.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from fistful.errors import MeshError
from fistful.geometry import mesh_kernels
from fistful.geometry.mesh_kernels import crossing_kernel, grid_kernel, point_kernel, ray_kernel
from fistful.geometry.quiet_warp import wp

# Of the boxes that overlap one face's box, how many are tested. A fan of a hundred thousand needles would
# otherwise cost the square of its size.
_MAX_CANDIDATES = 2000
_MAX_PAIRS = 100_000


class Distances(NamedTuple):
    """Signed distances to a mesh, negative inside, and their gradients.

    The closest point of the surface is `points - values[:, None] * gradients`.
    """

    values: np.ndarray  # (..., ) float64, m
    gradients: np.ndarray  # (..., 3) float64, unit length


class Hits(NamedTuple):
    """Where rays first meet a mesh."""

    distances: np.ndarray  # (N,) float64, m; inf where nothing is hit
    faces: np.ndarray  # (N,) int32; -1 where nothing is hit
    normals: np.ndarray  # (N, 3) float64, outward unit normals of those faces; 0 where nothing is hit


class Crossings(NamedTuple):
    """Pairs of faces that pass through each other."""

    pairs: np.ndarray  # (P, 2) int32, first < second; at most 100,000 of them
    found: int  # number of pairs (a lower bound unless `complete`)
    complete: bool  # False if the search was cut short to bound its cost


class _UnitMesh:
    """A mesh in Warp, moved to the origin and scaled to a longest side of 1."""

    def __init__(self, vertices: np.ndarray, faces: np.ndarray, *, winding: bool):
        lower, upper = vertices.min(axis=0), vertices.max(axis=0)
        self.centre = (lower + upper) / 2
        self.size = float((upper - lower).max())
        if not (np.isfinite(self.size) and self.size > 0):
            raise MeshError(f"a mesh with a longest side of {self.size:g} has no distance field")
        self.vertices = (vertices - self.centre) / self.size
        self.faces = np.ascontiguousarray(faces, dtype=np.int32)
        self.warp = wp.Mesh(
            points=wp.array(self.vertices.astype(np.float32), dtype=wp.vec3, device="cpu"),
            indices=wp.array(self.faces.ravel(), dtype=int, device="cpu"),
            support_winding_number=winding,
            bvh_leaf_size=2,
        )


class MeshDistance:
    """A closed mesh ready for exact queries: its bounding-volume hierarchy is built once (about 1 us a face).

    Queries release Python's global lock, so threads can share one instance.

    Attributes:
      centre: (3,) float64, m. Middle of the bounding box.
      size: Longest side of the bounding box, m.
      id: Warp's handle, for kernels. The mesh it names is (vertices - centre) / size; it lives as long as
        this instance.
    """

    def __init__(self, vertices: np.ndarray, faces: np.ndarray):
        """Build the hierarchy over vertices (V, 3), m, and faces (F, 3), counter-clockwise from outside."""
        self._unit = _UnitMesh(np.asarray(vertices, float), faces, winding=True)
        self.centre, self.size, self.id = self._unit.centre, self._unit.size, self._unit.warp.id

    def query(self, points: np.ndarray) -> Distances:
        """Signed distances of points (N, 3), m, negative inside, and their unit gradients.

        The gradient is sign * (p - closest) / |p - closest|, and the normal of the closest face for a point
        on the surface. Errors are about 1e-7 of the mesh's size or of the distance. Both are NaN for a point
        that is not finite.
        """
        points = np.asarray(points, float).reshape(-1, 3)
        values, gradients = np.full(len(points), np.nan), np.full((len(points), 3), np.nan)
        finite = np.all(np.isfinite(points), axis=1)
        if not finite.any():
            return Distances(values, gradients)
        local = (points[finite] - self.centre) / self.size
        reach = 2.0 + 2.0 * float(np.abs(local).max())
        found = wp.full(len(local), np.nan, dtype=float, device="cpu")
        towards = wp.zeros(len(local), dtype=wp.vec3, device="cpu")
        inputs = [self.id, _vectors(local), reach]
        wp.launch(point_kernel, dim=len(local), inputs=inputs, outputs=[found, towards], device="cpu")
        exact = _checked(found.numpy() * self.size, towards.numpy().astype(float))
        values[finite], gradients[finite] = exact
        return Distances(values, gradients)

    def first_hits(
        self, origins: np.ndarray, directions: np.ndarray, *, max_distance: float = np.inf
    ) -> Hits:
        """The first face that each ray meets, from either side.

        A ray that starts on the surface may or may not meet the face it starts on: start a little off it.
        Faces without area are not met.

        Args:
          origins: (N, 3) float, m.
          directions: (N, 3) float, not zero; need not be of unit length.
          max_distance: Do not look farther than this, m.
        """
        origins = np.asarray(origins, float).reshape(-1, 3)
        directions = np.asarray(directions, float).reshape(-1, 3)
        local = (origins - self.centre) / self.size
        # Nothing is farther away than the far side of the mesh.
        farthest = 2.0 + 2.0 * float(np.abs(local).max(initial=0.0))
        times = wp.full(len(local), np.inf, dtype=float, device="cpu")
        faces = wp.full(len(local), -1, dtype=int, device="cpu")
        unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        inputs = [self.id, _vectors(local), _vectors(unit), min(farthest, max_distance / self.size)]
        wp.launch(ray_kernel, dim=len(local), inputs=inputs, outputs=[times, faces], device="cpu")
        distances = times.numpy() * np.float64(self.size)
        hit = np.array(faces.numpy(), dtype=np.int32)
        normals = np.where((hit >= 0)[:, None], self.face_normals[hit], 0.0)
        return Hits(distances, hit, normals)

    @cached_property
    def face_normals(self) -> np.ndarray:
        """(F, 3) float64. Outward unit normals of the faces; 0 for a face without area."""
        a, b, c = np.moveaxis(self._unit.vertices[self._unit.faces], 1, 0)
        normals = np.cross(b - a, c - a)
        length = np.linalg.norm(normals, axis=1, keepdims=True)
        return np.divide(normals, length, out=np.zeros_like(normals), where=length > 0)


def compile_kernels() -> None:
    """Compile the kernels now, if Warp does not have them in its cache: some seconds, once a machine."""
    wp.load_module(module=mesh_kernels, device="cpu")


def signed_distance(vertices: np.ndarray, faces: np.ndarray, points: np.ndarray) -> Distances:
    """Signed distances of points to a closed mesh, negative inside, and their unit gradients.

    The one-shot form of `MeshDistance.query`, which says how exact they are.

    Args:
      vertices: (V, 3) float, m.
      faces: (F, 3) int. Counter-clockwise seen from outside.
      points: (N, 3) float, m.

    Returns:
      Values (N,) and gradients (N, 3).
    """
    if len(points) == 0:
        return Distances(np.zeros(0), np.zeros((0, 3)))
    return MeshDistance(vertices, faces).query(points)


def grid_distance(
    vertices: np.ndarray,
    faces: np.ndarray,
    *,
    origin: np.ndarray,
    spacing: float,
    shape: tuple[int, int, int],
) -> Distances:
    """Signed distances and unit gradients at the nodes of a regular grid, all of whose border lies outside.

    Args:
      vertices: (V, 3) float, m.
      faces: (F, 3) int. Counter-clockwise seen from outside.
      origin: (3,) float, m. Node (0, 0, 0); node (i, j, k) lies at origin + spacing * (i, j, k).
      spacing: Distance between neighbouring nodes, m.
      shape: (nx, ny, nz), number of nodes.

    Returns:
      Values (nx, ny, nz) and gradients (nx, ny, nz, 3), as `signed_distance` gives them but several times
      faster.
    """
    unit = _UnitMesh(np.asarray(vertices, float), faces, winding=True)
    values = wp.full(shape, np.nan, dtype=float, device="cpu")
    gradients = wp.zeros(shape, dtype=wp.vec3, device="cpu")
    start = wp.vec3(*((np.asarray(origin, float) - unit.centre) / unit.size))
    inputs = [unit.warp.id, start, spacing / unit.size]
    wp.launch(grid_kernel, dim=shape[:2], inputs=inputs, outputs=[values, gradients], device="cpu")
    return _checked(values.numpy() * np.float32(unit.size), gradients.numpy())


def crossing_faces(vertices: np.ndarray, faces: np.ndarray) -> Crossings:
    """Pairs of faces that pass through each other; faces that share an edge are not compared.

    Touching (a common point, line or plane) is not crossing, so two boxes with flush sides are not reported.

    Args:
      vertices: (V, 3) float, m, with coincident vertices merged.
      faces: (F, 3) int.
    """
    unit = _UnitMesh(np.asarray(vertices, float), faces, winding=False)
    pairs = wp.zeros((_MAX_PAIRS, 2), dtype=int, device="cpu")
    counters = wp.zeros(2, dtype=int, device="cpu")
    points = wp.array(unit.vertices, dtype=wp.vec3d, device="cpu")
    inputs = [unit.warp.id, points, wp.array(unit.faces, dtype=int, device="cpu"), _MAX_CANDIDATES]
    wp.launch(crossing_kernel, dim=len(faces), inputs=inputs, outputs=[pairs, counters], device="cpu")
    count, cut = (int(n) for n in counters.numpy())
    return Crossings(pairs.numpy()[: min(count, _MAX_PAIRS)].copy(), count, not cut)


def _vectors(rows: np.ndarray) -> wp.array:
    """Rows (N, 3) as Warp's vectors of float32."""
    return wp.array(rows.astype(np.float32), dtype=wp.vec3, device="cpu")


def _checked(values: np.ndarray, gradients: np.ndarray) -> Distances:
    if np.isnan(values).any():
        raise MeshError("no distance to the mesh: all of its faces have zero area")
    return Distances(values, gradients)
