"""Repairs that leave no doubt about what was meant, each of them stated; everything else is refused.

The order matters: each step may rely on those before it.
  1. vertices: merged across gaps        4. holes: small ones closed, stray sheets dropped
  2. faces: none degenerate or double    5. bodies: debris dropped, turned outward, cavities told from solids
  3. winding: neighbours agree           6. size: simplified above 200,000 faces; overlapping bodies united
"""

import numpy as np

from fistful.errors import MeshError
from fistful.objects.bodies import MendedMesh, simplify, turn_outward, unite
from fistful.objects.measures import body_volumes, face_areas
from fistful.objects.statements import Statements, counted
from fistful.objects.topology import (
    Hole,
    closed_bodies,
    compact,
    components,
    edges_of,
    holes_of,
    leaks,
    winding_flips,
)

MAX_BODIES = 2_000
MAX_OPEN_EDGES = 50_000
# Closest vertices are one, relative to the longest side: always, and on the rims of holes.
_MERGE = 1e-8
_WELD = 1e-5
_SMALL_HOLE = 0.15  # of the area of its body
_STRAY_SHEET = 0.01  # of the area of the mesh
_DEBRIS = 0.001  # of the volume of the largest body
_FLAT = 1e-5  # mean thickness 2 V / A, of the longest side


def mend(vertices: np.ndarray, faces: np.ndarray, says: Statements) -> MendedMesh:
    """The mesh made a closed, outward oriented surface; adds to `says`, raises MeshError if it can not be.

    Args:
      vertices: (V, 3) float64, m.
      faces: (F, 3) int64.
      says: Receives one statement per finding and per repair.
    """
    faces = _drop_degenerate(faces, says)
    if not edges_of(faces).closed:
        vertices, faces = _merge_vertices(vertices, faces, says)
        faces = _drop_degenerate(faces, says)
    if not edges_of(faces).closed:
        faces = _drop_double_faces(faces, says)
        faces = _agree_winding(faces, says)
        faces = _close_holes(vertices, faces, says)
        faces = _drop_sheets(vertices, faces, says)
    faces = _drop_debris(vertices, faces, says)
    vertices, faces = compact(vertices, faces)
    vertices, faces = simplify(vertices, faces, says)
    faces, bodies, parent = turn_outward(vertices, faces, says)
    return unite(vertices, faces, bodies, parent, says)


def _drop_degenerate(faces: np.ndarray, says: Statements) -> np.ndarray:
    a, b, c = faces.T
    degenerate = (a == b) | (b == c) | (c == a)
    if degenerate.any():
        says.mended.append(f"dropped {counted(degenerate.sum(), 'degenerate face')}")
        faces = faces[~degenerate]
    if len(faces) == 0:
        raise MeshError("every face has zero area; a closed triangle mesh is needed")
    return faces


def _merge_vertices(
    vertices: np.ndarray, faces: np.ndarray, says: Statements
) -> tuple[np.ndarray, np.ndarray]:
    """Vertices merged where the file's own faces leave gaps; two closed bodies that touch stay apart."""
    from scipy.spatial import KDTree

    bodies = closed_bodies(faces)
    gaping = _used(faces[leaks(faces, bodies)[bodies]], len(vertices))
    if len(gaping) == 0:
        return vertices, faces
    size = float((vertices.max(axis=0) - vertices.min(axis=0)).max())
    onto = np.arange(len(vertices))
    onto[gaping] = gaping[_same_place(vertices[gaping], _MERGE * size)]
    merged = int((onto != np.arange(len(onto))).sum())
    faces = onto[faces]
    edges = edges_of(faces)
    rim = _used(edges.ends[edges.open], len(vertices))
    if 0 < len(rim) <= MAX_OPEN_EDGES:
        pairs = rim[KDTree(vertices[rim]).query_pairs(_WELD * size, output_type="ndarray")]
        if len(pairs):
            label = components(pairs[:, 0], pairs[:, 1], len(vertices))
            onto = np.unique(label, return_index=True)[1][label]
            merged += int((onto != np.arange(len(onto))).sum())
            faces = onto[faces]
    if merged:
        says.mended.append(f"merged {merged:,} vertices that lie on others")
    return compact(vertices, faces)


def _used(indices: np.ndarray, count: int) -> np.ndarray:
    """The distinct indices among 0 .. count - 1, sorted."""
    mask = np.zeros(count, bool)
    mask[indices.ravel()] = True
    return np.flatnonzero(mask)


def _same_place(points: np.ndarray, tolerance: float) -> np.ndarray:
    """For each point, the first one in the same cell of a grid, (N,) int."""
    cells = np.rint((points - points.min(axis=0)) / tolerance).astype(np.int64)
    # One hash is sorted ten times faster than three columns. Should two cells collide, the columns are used.
    mixed = (
        cells
        * np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64).view(np.int64)
    ).sum(axis=1)
    _, first, group = np.unique(mixed, return_index=True, return_inverse=True)
    if np.any(cells[first[group]] != cells):
        _, first, group = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    return first[group.reshape(-1)]


def _drop_double_faces(faces: np.ndarray, says: Statements) -> np.ndarray:
    _, first, count = np.unique(np.sort(faces, axis=1), axis=0, return_index=True, return_counts=True)
    if len(first) == len(faces):
        return faces
    single = faces[np.sort(first)]
    extra = len(faces) - len(first)
    says.found.append(f"{counted(extra, 'face')} given twice")
    if np.any(edges_of(single).degree % 2):
        # Not a doubled skin but, perhaps, a wall between two halves that both have it: it cancels.
        cancelled = faces[np.sort(first[count % 2 == 1])]
        if len(cancelled) and not np.any(edges_of(cancelled).degree % 2):
            says.mended.append(
                f"dropped {counted(len(faces) - len(cancelled), 'face')} of inner double walls"
            )
            return cancelled
    says.mended.append(f"dropped {counted(extra, 'duplicate face')}")
    return single


def _agree_winding(faces: np.ndarray, says: Statements) -> np.ndarray:
    edges = edges_of(faces)
    crowded = int((edges.degree > 2).sum())
    if crowded:
        says.found.append(f"{counted(crowded, 'non-manifold edge')} (more than two faces)")
    flips = winding_flips(edges)
    if flips is None:
        raise MeshError(
            "the surface has only one side (like a Moebius strip), so it has no inside; rebuild the mesh"
        )
    if flips.any():
        says.found.append("faces disagree about which side is out")
        says.mended.append(f"turned {counted(flips.sum(), 'face')} to agree with their neighbours")
        faces = np.where(flips[:, None], faces[:, ::-1], faces)
    return faces


def _close_holes(vertices: np.ndarray, faces: np.ndarray, says: Statements) -> np.ndarray:
    bodies = closed_bodies(faces)
    edges = edges_of(faces, bodies)
    gaps = int(edges.open.sum())
    if gaps == 0:
        return faces
    says.found.append(f"not watertight: {counted(gaps, 'open edge')}")
    if gaps > MAX_OPEN_EDGES:
        raise MeshError(
            f"the surface has {gaps:,} open edges; it is loose triangles rather than a closed mesh"
        )
    body_area = np.bincount(bodies, weights=face_areas(vertices, faces))
    patches, share = [], 0.0
    for hole in holes_of(edges, bodies):
        area = _fan_area(vertices[hole.rim])
        if area < _SMALL_HOLE * body_area[hole.body]:
            patches.append(_patch(vertices, hole))
            share += area / body_area.sum()
    if patches:
        says.mended.append(f"closed {counted(len(patches), 'hole')} ({100 * share:.2g} % of the surface)")
        faces = np.concatenate([faces, *patches])
    return faces


def _fan_area(rim: np.ndarray) -> float:
    spokes = rim - rim.mean(axis=0)
    return float(np.linalg.norm(np.cross(spokes, np.roll(spokes, -1, axis=0)), axis=1).sum() / 2)


def _patch(vertices: np.ndarray, hole: Hole) -> np.ndarray:
    """Faces (n - 2, 3) that fill a rim without new vertices, triangulated in the rim's own plane."""
    from manifold3d import triangulate

    spokes = vertices[hole.rim] - vertices[hole.rim].mean(axis=0)
    normal = np.cross(spokes, np.roll(spokes, -1, axis=0)).sum(axis=0)
    length = np.linalg.norm(normal)
    corners = np.zeros((0, 3), int)
    if length > 0:
        # Rows: two axes of the plane, right-handed with the normal, so the rim runs counter-clockwise.
        axes = np.linalg.svd((normal / length)[None])[2][1:]
        if np.dot(np.cross(axes[0], axes[1]), normal) < 0:
            axes = axes[::-1]
        corners = np.asarray(triangulate([np.ascontiguousarray(spokes @ axes.T)]))
    if len(corners) != len(hole.rim) - 2:  # A rim that overlaps itself in every view: a plain fan.
        n = len(hole.rim)
        corners = np.column_stack([np.zeros(n - 2, int), np.arange(1, n - 1), np.arange(2, n)])
    return hole.rim[corners]


def _drop_sheets(vertices: np.ndarray, faces: np.ndarray, says: Statements) -> np.ndarray:
    bodies = closed_bodies(faces)
    leaky = leaks(faces, bodies)
    if not leaky.any():
        return faces
    edges = edges_of(faces, bodies)
    area = np.bincount(bodies, weights=face_areas(vertices, faces))
    share = area[leaky].sum() / max(area.sum(), 1e-300)
    if share > _STRAY_SHEET:
        gaps = int(edges.open.sum())
        crowded = int(((edges.degree > 2) & (edges.net != 0)).sum())
        what = f"{gaps:,} open edges" + (f" and {crowded:,} non-manifold ones" if crowded else "")
        raise MeshError(
            f"the surface is not closed ({what} remain), so it has no inside; close it in a mesh editor "
            f"(holes under {100 * _SMALL_HOLE:.0f} % of the surface are closed here)"
        )
    says.mended.append(f"dropped {counted(leaky.sum(), 'open scrap')} ({100 * share:.2g} % of the surface)")
    return faces[~leaky[bodies]]


def _drop_debris(vertices: np.ndarray, faces: np.ndarray, says: Statements) -> np.ndarray:
    bodies = closed_bodies(faces)
    volume = np.abs(body_volumes(vertices, faces, bodies))
    corners = vertices[faces]
    size = float((corners.max(axis=(0, 1)) - corners.min(axis=(0, 1))).max())
    thickness = 2 * volume.sum() / max(float(face_areas(vertices, faces).sum()), 1e-300)
    if not thickness > _FLAT * size:
        raise MeshError(
            f"the mesh encloses no volume (mean thickness {thickness:.2g} m); a solid object is needed"
        )
    debris = volume < _DEBRIS * volume.max()
    if debris.any():
        share = volume[debris].sum() / volume.sum()
        says.mended.append(
            f"dropped {counted(debris.sum(), 'piece')} of debris ({100 * share:.2g} % of the volume)"
        )
        faces = faces[~debris[bodies]]
    if (~debris).sum() > MAX_BODIES:
        raise MeshError(
            f"the mesh has {(~debris).sum():,} separate bodies, more than {MAX_BODIES:,}; give one object"
        )
    return faces
