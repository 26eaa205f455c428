"""Collision geometry of any kind as primitives: meshes and ellipsoids become what fits them best."""

import mujoco
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fistful.geometry.fitting import Fit, fit_primitives
from fistful.geometry.primitives import Kind, Primitive, half_extents

MINIMUM_SIZE = 5e-4
"""m. Shapes thinner than twice this are left out: nothing can be grasped with them."""
MAX_PIECES = 6
"""A mesh of more disconnected pieces than this is an assembly drawing: its hull is taken as a whole."""
MESH, ELLIPSOID = int(mujoco.mjtGeom.mjGEOM_MESH), int(mujoco.mjtGeom.mjGEOM_ELLIPSOID)
_directions = np.random.default_rng(0).normal(size=(500, 3))
_UNIT_SPHERE = _directions / np.linalg.norm(_directions, axis=1, keepdims=True)


def as_primitives(m: mujoco.MjModel, g: int, label: str, notes: list[str]) -> list[Primitive]:
    """A geom in its own frame as primitives; empty (and a note) if nothing fits."""
    kind, size = int(m.geom_type[g]), m.geom_size[g]
    if kind in set(Kind):
        shapes = [Primitive(Kind(kind), size.copy(), np.zeros(3), np.eye(3))]
    elif kind in (MESH, ELLIPSOID):
        bodies = _mesh_bodies(m, int(m.geom_dataid[g])) if kind == MESH else [size * _UNIT_SPHERE]
        try:
            fits = [fit for points in bodies for fit in _fit(points)]
        except ValueError:
            notes.append(f"left out mesh geom {label!r}: it has no volume")
            return []
        shapes = [fit.primitive for fit in fits]
        kinds = ", ".join(shape.kind.name.lower() for shape in shapes)
        error = f"rms {1e3 * max(f.rms for f in fits):.1f} mm, max {1e3 * max(f.max for f in fits):.1f} mm"
        notes.append(
            f"{'mesh' if kind == MESH else 'ellipsoid'} {label!r} became {kinds} ({error} from its hull)"
        )
    else:
        notes.append(f"left out geom {label!r}: planes, height fields and SDFs are not part of a hand")
        return []
    solid = [shape for shape in shapes if half_extents(shape.kind, shape.size).min() >= MINIMUM_SIZE]
    if len(solid) < len(shapes):
        notes.append(f"left out geom {label!r}: thinner than {2e3 * MINIMUM_SIZE:g} mm")
    return solid


def _mesh_bodies(m: mujoco.MjModel, mesh: int) -> list[np.ndarray]:
    """Vertices of each connected piece of a mesh; of all of it if it has very many pieces (or no faces)."""
    first, count = int(m.mesh_vertadr[mesh]), int(m.mesh_vertnum[mesh])
    vertices = m.mesh_vert[first : first + count].astype(float)
    faces = m.mesh_face[int(m.mesh_faceadr[mesh]) : int(m.mesh_faceadr[mesh]) + int(m.mesh_facenum[mesh])]
    places, same = np.unique(np.round(vertices, 7), axis=0, return_inverse=True)
    edges = same.ravel()[faces][:, [0, 1, 1, 2]].reshape(-1, 2)
    graph = coo_array((np.ones(len(edges)), edges.T), shape=(len(places), len(places)))
    pieces, piece = connected_components(graph, directed=False)
    bodies = [places[piece == k] for k in range(pieces)]
    large = [body for body in bodies if np.ptp(body, axis=0).min() > 2 * MINIMUM_SIZE]
    return large if 0 < len(large) <= MAX_PIECES else [vertices]


_fit_cache: dict[bytes, list[Fit]] = {}


def _fit(points: np.ndarray) -> list[Fit]:
    """`fit_primitives`, once for each mesh: the fingers of a hand share theirs."""
    key = points.tobytes()
    if key not in _fit_cache:
        _fit_cache[key] = fit_primitives(points)
    return _fit_cache[key]
