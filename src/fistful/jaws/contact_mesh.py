"""The surface of an object as contact sees it: checked, and simplified if it has too many faces."""

from typing import NamedTuple

import numpy as np

from fistful.errors import JawsError
from fistful.objects.object import Object


class ContactMesh(NamedTuple):
    """A closed surface in the object frame."""

    vertices: np.ndarray
    """(V, 3) float64, m."""
    faces: np.ndarray
    """(F, 3) int32."""
    notes: tuple[str, ...]


_recent: dict[tuple[str, int], ContactMesh] = {}


def contact_mesh(item: Object, max_faces: int) -> ContactMesh:
    """The surface of an object, simplified to `max_faces` if it has more; a note then states the error.

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

    The note states the largest distance of an old vertex from the new surface. Intersections that the
    collapses may leave do no harm: a surface is never tested against itself.
    """
    import manifold3d

    from fistful.geometry.mesh_distance import signed_distance

    mesh = manifold3d.Mesh64(vert_properties=np.array(vertices, float), tri_verts=faces.astype(np.uint64))
    solid = manifold3d.Manifold(mesh)
    if solid.status() != manifold3d.Error.NoError:
        raise JawsError(f"a mesh of {len(faces):,} faces could not be simplified: {solid.status()}")
    size = float(np.ptp(vertices, axis=0).max())
    simple, low, high = None, 1e-6 * size, 0.05 * size
    for _ in range(14):
        middle = np.sqrt(low * high)
        tried = solid.simplify(middle)
        if 0 < tried.num_tri() <= max_faces:
            simple, high = tried, middle
            if tried.num_tri() > 0.9 * max_faces:
                break
        else:
            low = middle
    if simple is None:
        raise JawsError(
            f"a mesh of {len(faces):,} faces could not be simplified to {max_faces:,}; simplify it beforehand"
        )
    out = simple.to_mesh64()
    new, corners = np.asarray(out.vert_properties, float)[:, :3], np.asarray(out.tri_verts, np.int32)
    error = float(np.abs(signed_distance(new, corners, vertices).values).max())
    note = (
        f"{len(faces):,} faces were simplified to {len(corners):,} for contact; the surface moved by "
        f"{1e3 * error:.3f} mm at most"
    )
    return ContactMesh(np.ascontiguousarray(new), np.ascontiguousarray(corners), (note,))
