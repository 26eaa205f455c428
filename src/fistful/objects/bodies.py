"""The bodies of a closed mesh: simplified, turned outward, told from cavities, united where they overlap."""

from typing import Any, NamedTuple

import numpy as np

from fistful.errors import MeshError
from fistful.objects.measures import body_volumes
from fistful.objects.statements import Statements, counted
from fistful.objects.topology import closed_bodies, compact

MAX_FACES = 200_000
_COARSEST = 2e-3  # of the longest side: the largest tolerance for simplification


class MendedMesh(NamedTuple):
    """A closed surface, outward oriented."""

    vertices: np.ndarray  # (V, 3) float64
    faces: np.ndarray  # (F, 3) int64
    bodies: int  # pieces of solid material
    cavities: int  # closed surfaces inside them
    self_intersections: int  # pairs of faces that still cross


def simplify(vertices: np.ndarray, faces: np.ndarray, says: Statements) -> tuple[np.ndarray, np.ndarray]:
    """The mesh with at most 200,000 faces, moved by at most 0.4 % of its size; MeshError if that fails."""
    if len(faces) <= MAX_FACES:
        return vertices, faces
    before = len(faces)
    solid = _manifold(vertices, faces)
    if solid is None:
        raise MeshError(
            f"{before:,} faces are more than {MAX_FACES:,}, and the surface is too damaged to be simplified"
        )
    size = float((vertices.max(axis=0) - vertices.min(axis=0)).max())
    tolerance = 1e-5 * size
    while solid.num_tri() > MAX_FACES and tolerance < _COARSEST * size:
        solid = solid.simplify(tolerance)
        tolerance *= 2
    if solid.num_tri() > MAX_FACES:
        raise MeshError(
            f"{before:,} faces could only be simplified to {solid.num_tri():,} (tolerance "
            f"{1e3 * _COARSEST * size:.2g} mm), more than {MAX_FACES:,}; simplify the mesh first"
        )
    says.found.append(f"{before:,} faces, more than {MAX_FACES:,}")
    says.mended.append(f"simplified to {solid.num_tri():,} faces (tolerance {1e3 * tolerance / 2:.2g} mm)")
    return _arrays(solid)


def turn_outward(
    vertices: np.ndarray, faces: np.ndarray, says: Statements
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Faces with every outermost body turned outward, their bodies (F,), and each body's parent (B,).

    The parent of a cavity is the outermost body around it; that of a solid is itself.
    """
    bodies = closed_bodies(faces)
    volume = body_volumes(vertices, faces, bodies)
    inside = _nesting(vertices, faces, bodies, volume)
    outermost = np.logical_not(inside.any(axis=1))
    # A body is turned with the outermost one that holds it: a file inside out has its cavities inside out
    # too.
    root = np.where(outermost, np.arange(len(volume)), np.argmax(inside & outermost, axis=1))
    inverted = (volume < 0)[root]
    if inverted.any():
        says.found.append("inside out" if inverted.all() else f"{counted(inverted.sum(), 'body')} inside out")
        says.mended.append("turned the surface outward")
        faces = np.where(inverted[bodies][:, None], faces[:, ::-1], faces)
        volume = np.where(inverted, -volume, volume)
    return faces, bodies, np.where(volume < 0, root, np.arange(len(volume)))


def _pieces(faces: np.ndarray, bodies: np.ndarray) -> list[np.ndarray]:
    """The faces of each body."""
    return np.split(faces[np.argsort(bodies, kind="stable")], np.cumsum(np.bincount(bodies))[:-1])


def _boxes(vertices: np.ndarray, pieces: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper corners of the bounding boxes, (B, 3) each."""
    lower = np.array([vertices[p].min(axis=(0, 1)) for p in pieces])
    return lower, np.array([vertices[p].max(axis=(0, 1)) for p in pieces])


def _nesting(vertices: np.ndarray, faces: np.ndarray, bodies: np.ndarray, volume: np.ndarray) -> np.ndarray:
    """inside[i, j], (B, B) bool: body i lies inside body j, judged by one vertex and the bounding boxes."""
    from fistful.geometry.mesh_distance import signed_distance

    inside = np.zeros((len(volume), len(volume)), bool)
    if len(volume) == 1:
        return inside
    pieces = _pieces(faces, bodies)
    lower, upper = _boxes(vertices, pieces)
    for j, piece in enumerate(pieces):
        held = np.all((lower > lower[j]) & (upper < upper[j]), axis=1)
        if held.any():
            outward = piece if volume[j] > 0 else piece[:, ::-1]
            some = vertices[[pieces[i][0, 0] for i in np.flatnonzero(held)]]
            inside[held, j] = signed_distance(*compact(vertices, outward), some).values < 0
    return inside


def unite(
    vertices: np.ndarray, faces: np.ndarray, bodies: np.ndarray, parent: np.ndarray, says: Statements
) -> MendedMesh:
    """Solids that overlap or touch made one; those apart from all others, and cavities, kept."""
    from fistful.geometry.mesh_distance import crossing_faces

    crossings = crossing_faces(vertices, faces)
    solid = parent == np.arange(len(parent))
    pieces, cavities = int(solid.sum()), int((~solid).sum())
    shells = _pieces(faces, np.unique(parent[bodies], return_inverse=True)[1])
    if pieces > 1 and _any_boxes_meet(*_boxes(vertices, shells)):
        across = bool(np.any(bodies[crossings.pairs[:, 0]] != bodies[crossings.pairs[:, 1]]))
        parts = [_manifold(*compact(vertices, shell)) for shell in shells]
        united = None if any(p is None for p in parts) else _union(parts)
        if united is None and across:
            says.found.append(
                "overlapping bodies could not be united and stay as they are; their overlap is weighed twice"
            )
        elif united is not None:
            new_vertices, new_faces = _arrays(united)
            volume = body_volumes(new_vertices, new_faces, closed_bodies(new_faces))
            if across or (volume > 0).sum() != pieces:
                says.found.append(f"{pieces:,} bodies that overlap or touch")
                pieces, cavities = int((volume > 0).sum()), int((volume < 0).sum())
                says.mended.append(f"united them into {pieces:,}")
                vertices, faces = new_vertices, new_faces
                crossings = crossing_faces(vertices, faces)
    return _finish(vertices, faces, pieces, cavities, crossings, says)


def _any_boxes_meet(lower: np.ndarray, upper: np.ndarray) -> bool:
    slack = 1e-6 * float((upper - lower).max())
    meet = np.all(lower[:, None] <= upper[None] + slack, axis=2)
    return bool(np.any(meet & meet.T & ~np.eye(len(lower), dtype=bool)))


def _finish(
    vertices: np.ndarray, faces: np.ndarray, pieces: int, cavities: int, crossings: Any, says: Statements
) -> MendedMesh:
    if pieces > 1:
        says.found.append(f"{pieces:,} separate bodies; they are treated as rigidly joined")
    if cavities:
        says.found.append(f"{counted(cavities, 'closed cavity')} inside; kept hollow")
    if crossings.found:
        at_least = "" if crossings.complete else "at least "
        says.found.append(
            f"the surface crosses itself ({at_least}{counted(crossings.found, 'pair')} of faces); kept"
        )
    if not crossings.complete:
        says.found.append(
            "the search for self-intersections was cut short: too many faces share the same space"
        )
    return MendedMesh(vertices, faces, pieces, cavities, crossings.found)


def _manifold(vertices: np.ndarray, faces: np.ndarray) -> Any:
    """A manifold3d solid, or None if the faces do not pair up."""
    from manifold3d import Error, Manifold, Mesh64

    solid = Manifold(Mesh64(np.ascontiguousarray(vertices, float), np.ascontiguousarray(faces, np.uint64)))
    return solid if solid.status() == Error.NoError and not solid.is_empty() else None


def _union(parts: list) -> Any:
    from manifold3d import Error, Manifold, OpType

    solid = Manifold.batch_boolean(parts, OpType.Add)
    return solid if solid.status() == Error.NoError and not solid.is_empty() else None


def _arrays(solid: Any) -> tuple[np.ndarray, np.ndarray]:
    mesh = solid.to_mesh64()
    return np.array(mesh.vert_properties[:, :3], float), np.array(mesh.tri_verts, np.int64)
