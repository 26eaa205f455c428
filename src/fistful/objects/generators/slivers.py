"""Removal of the slivers that booleans leave where two surfaces cut each other at a shallow angle."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
Faces = NDArray[np.int64]
Corners = tuple[int, int, int]
Vector = tuple[float, float, float]
Patch = dict[int, Corners | None]
"""New corners of some faces, by index; None for a face that goes."""

_ROUNDS = 40
_SAME_SIDE = 0.5
"""Smallest cosine between a face's normal before and after; slivers are exempt, theirs is noise."""
_FOLDED = -0.9
"""Two faces across an edge, neither of them a sliver, whose normals have a smaller cosine are a fold."""


def altitudes(vertices: Points, faces: Faces) -> Points:
    """Smallest height of each triangle, (f,): twice its area over its longest edge; 0 for a point."""
    corners = vertices[faces]
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).max(axis=1)
    doubled = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    return np.divide(doubled, longest, out=np.zeros_like(longest), where=longest > 0.0)


def remove_slivers(vertices: Points, faces: Faces, *, altitude: float, reach: float) -> tuple[Points, Faces]:
    """The closed mesh without triangles lower than an altitude, as far as that moves the surface little.

    1. Find the slivers, flattest first.
    2. Collapse one of its edges shorter than `reach` onto one of its ends, or flip its longest edge:
       whichever leaves the best triangles around it and neither turns nor folds another face.
    3. Drop what was emptied; repeat until no sliver is left or nothing helps any more.

    Args:
        vertices: (v, 3).
        faces: (f, 3) of a closed manifold.
        altitude: triangles with a smaller height are slivers, in the unit of the vertices.
        reach: longest edge that may be collapsed; bounds how far the surface moves.

    Returns:
        (vertices, faces) of the same topology.
    """
    for _ in range(_ROUNDS):
        heights = altitudes(vertices, faces)
        slivers = np.flatnonzero(heights < altitude)
        if len(slivers) == 0:
            break
        surgery = _Surgery(vertices, faces, altitude)
        slivers = slivers[np.argsort(heights[slivers], kind="stable")]
        mended = [surgery.mend(f, reach) for f in slivers.tolist()]
        if not any(mended):
            break
        faces = surgery.result()
    used, index = np.unique(faces, return_inverse=True)
    return vertices[used], index.reshape(faces.shape)


class _Surgery:
    """One round of edge collapses and flips on a closed mesh; vertices never move, only faces change.

    It works in plain Python numbers: each patch is a dozen triangles, far below what pays for numpy.
    """

    def __init__(self, vertices: Points, faces: Faces, altitude: float) -> None:
        self.altitude = altitude
        self._points: list[Vector] = [(x, y, z) for x, y, z in vertices.tolist()]
        self._faces: list[Corners | None] = [(a, b, c) for a, b, c in faces.tolist()]
        self._rings: list[set[int]] = [set() for _ in self._points]
        for face, corners in enumerate(faces.tolist()):
            for vertex in corners:
                self._rings[vertex].add(face)

    def mend(self, face: int, reach: float) -> bool:
        """Whether a sliver could be removed, by the best collapse or flip there is."""
        corners = self._faces[face]
        if corners is None or (height := self._height(corners)) >= self.altitude:
            return False
        a, b, c = corners
        edges = sorted(
            (math.dist(self._points[u], self._points[v]), u, v) for u, v in ((a, b), (b, c), (c, a))
        )
        patches = [self._flip(*edges[-1][1:])]
        for size, u, v in edges:
            if size <= reach:
                patches += [self._collapse(u, v), self._collapse(v, u)]
        best, best_height = None, height
        for patch in patches:
            if patch is None:
                continue
            lowest = min(self._height(new) for new in patch.values() if new is not None)
            if lowest > best_height and not self._folds(patch):
                best, best_height = patch, lowest
        if best is not None:
            self._apply(best)
        return best is not None

    def result(self) -> Faces:
        """Faces that are left, (f, 3)."""
        return np.array([corners for corners in self._faces if corners is not None], dtype=np.int64)

    def _collapse(self, gone: int, kept: int) -> Patch | None:
        """The faces after a vertex is drawn onto another; None if that would pinch or turn the surface."""
        shared = self._rings[gone] & self._rings[kept]
        if len(shared) != 2 or len(self._neighbours(gone) & self._neighbours(kept)) != 2:
            return None
        patch: Patch = {}
        for face, (a, b, c) in self._corners(sorted(self._rings[gone] - shared)):
            new = (kept if a == gone else a, kept if b == gone else b, kept if c == gone else c)
            if self._turns((a, b, c), new):
                return None
            patch[face] = new
        return patch | dict.fromkeys(sorted(shared))

    def _flip(self, u: int, v: int) -> Patch | None:
        """The two faces after the edge between them is flipped; None if that pinches or turns the surface."""
        pair = list(self._corners(sorted(self._rings[u] & self._rings[v])))
        if len(pair) != 2:
            return None
        (first, (a, b, c)), (second, other) = pair
        while c in (u, v):
            a, b, c = b, c, a
        far = next(vertex for vertex in other if vertex not in (u, v))
        if far in self._neighbours(c):
            return None
        patch: Patch = {first: (c, a, far), second: (far, b, c)}
        if any(self._turns(old, new) for _, old in pair for new in patch.values() if new is not None):
            return None
        return patch

    def _apply(self, patch: Patch) -> None:
        for face, old in self._corners(patch):
            for vertex in old:
                self._rings[vertex].discard(face)
        for face, new in patch.items():
            self._faces[face] = new
            for vertex in new or ():
                self._rings[vertex].add(face)

    def _folds(self, patch: Patch) -> bool:
        """Whether a new face would lie back on its neighbour across an edge."""
        new = [corners for corners in patch.values() if corners is not None]
        around = sorted({f for corners in new for v in corners for f in self._rings[v]} - patch.keys())
        normals: dict[tuple[int, int], Vector] = {}
        for a, b, c in [*new, *(corners for _, corners in self._corners(around))]:
            if self._height((a, b, c)) >= self.altitude:
                normals[a, b] = normals[b, c] = normals[c, a] = _unit(self._normal((a, b, c)))
        return any(
            _dot(normals[u, v], normals[v, u]) < _FOLDED
            for a, b, c in new
            for u, v in ((a, b), (b, c), (c, a))
            if (u, v) in normals and (v, u) in normals
        )

    def _turns(self, old: Corners, new: Corners) -> bool:
        """Whether a face that is no sliver would look another way, or be no face at all."""
        n0, n1 = self._normal(old), self._normal(new)
        if _dot(n1, n1) == 0.0:
            return True
        return self._height(old) >= self.altitude and _dot(_unit(n0), _unit(n1)) < _SAME_SIDE

    def _corners(self, faces: Iterable[int]) -> Iterable[tuple[int, Corners]]:
        return ((face, corners) for face in faces if (corners := self._faces[face]) is not None)

    def _neighbours(self, vertex: int) -> set[int]:
        return {v for _, corners in self._corners(self._rings[vertex]) for v in corners} - {vertex}

    def _height(self, corners: Corners) -> float:
        a, b, c = (self._points[v] for v in corners)
        n = self._normal(corners)
        longest = max(math.dist(a, b), math.dist(b, c), math.dist(c, a))
        return math.sqrt(_dot(n, n)) / longest if longest > 0.0 else 0.0

    def _normal(self, corners: Corners) -> Vector:
        (ax, ay, az), (bx, by, bz), (cx, cy, cz) = (self._points[v] for v in corners)
        ux, uy, uz, vx, vy, vz = bx - ax, by - ay, bz - az, cx - ax, cy - ay, cz - az
        return uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx


def _dot(a: Vector, b: Vector) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _unit(a: Vector) -> Vector:
    size = math.sqrt(_dot(a, a))
    return a[0] / size, a[1] / size, a[2] / size
