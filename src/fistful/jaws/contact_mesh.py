"""The surface of an object as contact sees it: checked, and simplified if it has too many faces."""

from typing import NamedTuple

import numpy as np

from fistful.errors import JawsError
from fistful.objects.object import Object

# m. Collapses go no further, whatever the number of faces: beyond it thin parts are lost.
_COARSEST = 5e-4


class ContactMesh(NamedTuple):
    """A closed surface in the object frame."""

    vertices: np.ndarray
    """(V, 3) float64, m."""
    faces: np.ndarray
    """(F, 3) int32."""
    notes: tuple[str, ...]


_recent: dict[tuple[str, int], ContactMesh] = {}


def contact_mesh(item: Object, max_faces: int) -> ContactMesh:
    """The surface of an object, simplified if it has more than `max_faces`; a note then states the error.

    Raises:
      JawsError: The mesh is open or cuts itself.
    """
    key = (item.key, max_faces)
    if key not in _recent:
        if len(_recent) > 64:
            _recent.clear()
        _recent[key] = _prepare(
            np.asarray(item.vertices, float), np.asarray(item.faces), item.name, max_faces
        )
    return _recent[key]


def check_surface(vertices: np.ndarray, faces: np.ndarray, name: str) -> None:
    """Raise JawsError unless the surface is closed and does not cut itself. No I/O."""
    edges = np.sort(faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
    _, count = np.unique(edges, axis=0, return_counts=True)
    if (count == 1).any():
        raise JawsError(
            f"the mesh of {name!r} is open: {int((count == 1).sum())} edges have one face; close it"
        )
    if _cuts_itself(vertices, faces):
        raise JawsError(f"the mesh of {name!r} cuts itself; make it one solid, for instance by a union")


def _cuts_itself(vertices: np.ndarray, faces: np.ndarray) -> bool:
    from fistful.jaws.contact import load_ipctk

    ipctk = load_ipctk()
    faces = np.asfortranarray(faces, np.int32)
    mesh = ipctk.CollisionMesh(np.asfortranarray(vertices), ipctk.edges(faces), faces)
    return ipctk.has_intersections(mesh, np.asfortranarray(vertices), ipctk.LBVH())


def _prepare(vertices: np.ndarray, faces: np.ndarray, name: str, max_faces: int) -> ContactMesh:
    check_surface(vertices, faces, name)
    if len(faces) <= max_faces:
        return ContactMesh(vertices, faces.astype(np.int32), ())
    return simplify(vertices, faces, max_faces)


def simplify(vertices: np.ndarray, faces: np.ndarray, max_faces: int) -> ContactMesh:
    """A surface of at most `max_faces` faces, by edge collapses within the smallest tolerance that does.

    It keeps more faces if fewer would take a tolerance above 0.5 mm. The note states the largest distance of
    an old vertex from the new surface. Intersections that the collapses may leave do no harm: a surface is
    never tested against itself.
    """
    import manifold3d

    from fistful.geometry.mesh_distance import signed_distance

    mesh = manifold3d.Mesh64(vert_properties=np.array(vertices, float), tri_verts=faces.astype(np.uint64))
    solid = manifold3d.Manifold(mesh)
    if solid.status() != manifold3d.Error.NoError or not solid.num_tri():
        raise JawsError(f"a mesh of {len(faces):,} faces could not be simplified: {solid.status()}")
    low, high = 1e-6 * float(np.ptp(vertices, axis=0).max()), _COARSEST
    while not (simple := solid.simplify(high)).num_tri():
        high /= 2  # What is thinner than the tolerance vanishes.
    for _ in range(14):
        if 0.9 * max_faces < simple.num_tri() or low >= high:
            break
        middle = np.sqrt(low * high)
        tried = solid.simplify(middle)
        if 0 < tried.num_tri() <= max_faces:
            simple, high = tried, middle
        else:
            low = middle
    out = simple.to_mesh64()
    new, corners = np.asarray(out.vert_properties, float)[:, :3], np.asarray(out.tri_verts, np.int32)
    error = float(np.abs(signed_distance(new, corners, vertices).values).max())
    note = (
        f"{len(faces):,} faces were simplified to {len(corners):,} for contact; the surface moved by "
        f"{1e3 * error:.3f} mm at most"
    )
    if len(corners) > max_faces:
        note += f", and by more with the {max_faces:,} asked for"
    return ContactMesh(np.ascontiguousarray(new), np.ascontiguousarray(corners), (note,))
