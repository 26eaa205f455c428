"""Tetrahedra of a pad: a polygon, triangulated and extruded in layers from its rigid backing to its face."""

from dataclasses import dataclass

import numpy as np

from fistful.errors import JawsError

# A grid point nearer to the outline than this, in units of the edge length, would make slivers.
_CLEARANCE = 0.55
_MAX_SPLITS = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class PadMesh:
    """A pad in its own frame P: x out of its face, y across, z to the tip; x = -thickness at the backing.

    Neighbouring nodes have near numbers, so that the stiffness matrix is a narrow band.
    """

    nodes: np.ndarray
    """(N, 3) float64, m."""
    tets: np.ndarray
    """(T, 4) int32, each with positive volume."""
    faces: np.ndarray
    """(F, 3) int32. The closed surface, counter-clockwise seen from outside."""
    backing: np.ndarray
    """(N,) bool. Nodes glued to the rigid backing."""

    def mirrored(self) -> "PadMesh":
        """The pad of the other jaw: x -> -x, orientations kept positive."""
        return PadMesh(
            nodes=self.nodes * [-1, 1, 1],
            tets=np.ascontiguousarray(self.tets[:, [1, 0, 2, 3]]),
            faces=np.ascontiguousarray(self.faces[:, ::-1]),
            backing=self.backing,
        )


def mesh_pad(
    outline: np.ndarray,
    thickness: float,
    size: float,
    layers: int | np.ndarray = 2,
    inner: np.ndarray | None = None,
) -> PadMesh:
    """The tetrahedra of a polygon extruded by `thickness`; each prism is cut into three.

    1. Edges of the outline are divided to at most `size`; a grid of that size fills the inside.
    2. Delaunay triangles of all these points inside the outline; edges are split until they follow it.
    3. Each triangle becomes a prism in each layer, cut along the diagonals from lower to higher numbers, so
       that neighbours agree.

    Args:
      outline: (N, 2) float, m. Simple polygon, counter-clockwise, coordinates (y, z).
      thickness: m.
      size: Longest edge of the outline's pieces, m.
      layers: Number of equal layers, or (L+1,) depths from 0 (backing) to 1 (face), ascending.
      inner: (M, 2) float. Points inside instead of the grid; for graded meshes.
    """
    outline = np.asarray(outline, float)
    check_outline(outline)
    points, triangles = _triangulate(outline, size, inner)
    depths = np.linspace(0, 1, layers + 1) if isinstance(layers, int) else np.asarray(layers, float)
    L = len(depths)
    nodes = np.empty((len(points), L, 3))
    nodes[:, :, 0] = thickness * (depths - 1)
    nodes[:, :, 1:] = points[:, None]
    nodes = nodes.reshape(-1, 3)
    low = np.sort(triangles, axis=1)[:, None, :] * L + np.arange(L - 1)[None, :, None]
    a, b, c = np.moveaxis(low.reshape(-1, 3), 1, 0)
    tets = np.concatenate(
        [
            np.stack([a, b, c, c + 1], axis=1),
            np.stack([a, b, b + 1, c + 1], axis=1),
            np.stack([a, a + 1, b + 1, c + 1], axis=1),
        ]
    )
    turned = tet_volumes(nodes, tets) < 0
    tets[turned] = tets[turned][:, [1, 0, 2, 3]]
    tets = tets[np.argsort(tets.min(axis=1), kind="stable")]
    backing = np.zeros((len(points), L), bool)
    backing[:, 0] = True
    return PadMesh(
        nodes=nodes,
        tets=tets.astype(np.int32),
        faces=_surface(tets).astype(np.int32),
        backing=backing.ravel(),
    )


def check_outline(outline: np.ndarray) -> None:
    """Raise JawsError unless the polygon is simple and counter-clockwise. No I/O."""
    if outline.ndim != 2 or outline.shape[1] != 2 or len(outline) < 3 or not np.isfinite(outline).all():
        raise JawsError(f"a pad's outline is (N, 2) finite numbers with N >= 3, not of shape {outline.shape}")
    if polygon_area(outline) <= 0:
        raise JawsError("the pad's outline runs clockwise or has no area; list its corners counter-clockwise")
    a, b = outline, np.roll(outline, -1, axis=0)
    n = len(a)
    i, j = np.triu_indices(n, 2)
    i, j = i[(j + 1) % n != i], j[(j + 1) % n != i]
    cross = (_side(a[i], b[i], a[j]) * _side(a[i], b[i], b[j]) <= 0) & (
        _side(a[j], b[j], a[i]) * _side(a[j], b[j], b[i]) <= 0
    )
    if cross.any():
        k = int(np.argmax(cross))
        raise JawsError(f"edges {i[k]} and {j[k]} of the pad's outline cross; a simple polygon is needed")


def polygon_area(outline: np.ndarray) -> float:
    """Signed area (m2) of a polygon (N, 2); positive if counter-clockwise."""
    y, z = outline.T
    return float(y @ np.roll(z, -1) - z @ np.roll(y, -1)) / 2


def tet_volumes(nodes: np.ndarray, tets: np.ndarray) -> np.ndarray:
    """Signed volume of each tetrahedron, (T,): det(b - a, c - a, d - a) / 6."""
    a, b, c, d = np.moveaxis(nodes[tets], 1, 0)
    return np.einsum("ij,ij->i", b - a, np.cross(c - a, d - a)) / 6


def _side(a: np.ndarray, b: np.ndarray, p: np.ndarray) -> np.ndarray:
    u, v = b - a, p - a
    return u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]


def _triangulate(outline: np.ndarray, size: float, inner: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Points (P, 2) and triangles (K, 3) that fill the polygon."""
    from scipy.spatial import Delaunay

    pieces = []
    for a, b in zip(outline, np.roll(outline, -1, axis=0), strict=True):
        count = max(1, int(np.ceil(np.linalg.norm(b - a) / size - 1e-9)))
        pieces.append(a + (b - a) * np.arange(count)[:, None] / count)
    edge = np.concatenate(pieces)
    inside = _grid(outline, size) if inner is None else inner
    area = polygon_area(outline)
    for _ in range(_MAX_SPLITS):
        points = np.concatenate([edge, inside])
        triangles = Delaunay(points).simplices
        a, b, c = np.moveaxis(points[triangles], 1, 0)
        areas = np.abs(_side(a, b, c)) / 2
        keep = (areas > 1e-10 * area) & contains(outline, (a + b + c) / 3)
        triangles = triangles[keep]
        found = {
            tuple(sorted(e)) for t in triangles.tolist() for e in ((t[0], t[1]), (t[1], t[2]), (t[0], t[2]))
        }
        n = len(edge)
        split = [i for i in range(n) if tuple(sorted((i, (i + 1) % n))) not in found]
        if not split and abs(areas[keep].sum() - area) < 1e-6 * area:
            return _renumbered(points, triangles, 0.25 * size)
        middles = (edge + np.roll(edge, -1, axis=0)) / 2
        edge = np.insert(edge, [i + 1 for i in split], middles[split], axis=0)
    raise JawsError(
        f"the pad's outline could not be meshed with edges of {1e3 * size:.2f} mm; use smaller ones"
    )


def _renumbered(
    points: np.ndarray, triangles: np.ndarray, row_height: float
) -> tuple[np.ndarray, np.ndarray]:
    """The same triangles, points in rows along z or as by Cuthill and McKee: whichever band is narrower."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    used, triangles = np.unique(triangles, return_inverse=True)
    triangles = triangles.reshape(-1, 3)
    row, col = triangles[:, [0, 1, 2]].ravel(), triangles[:, [1, 2, 0]].ravel()
    ones = np.ones(2 * len(row))
    graph = coo_matrix((ones, (np.append(row, col), np.append(col, row)))).tocsr()
    rows = np.lexsort((points[used, 0], np.round(points[used, 1] / row_height)))
    choices = []
    for order in (rows, reverse_cuthill_mckee(graph, symmetric_mode=True)):
        number = np.empty(len(order), int)
        number[order] = np.arange(len(order))
        choices.append((int(np.ptp(number[triangles], axis=1).max()), points[used[order]], number[triangles]))
    _, points, triangles = min(choices, key=lambda choice: choice[0])
    return points, triangles


def _grid(outline: np.ndarray, size: float) -> np.ndarray:
    """Points (M, 2) of a regular grid inside the polygon, none close to its edges."""
    low, high = outline.min(axis=0), outline.max(axis=0)
    counts = np.maximum(1, np.ceil((high - low) / size - 1e-9)).astype(int)
    axes = [np.linspace(a, b, n + 1)[1:-1] for a, b, n in zip(low, high, counts, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    if not len(points):
        return points
    a, b = outline, np.roll(outline, -1, axis=0)
    along = b - a
    t = np.clip(((points[:, None] - a) * along).sum(-1) / (along**2).sum(-1), 0, 1)
    distance = np.linalg.norm(points[:, None] - a - t[..., None] * along, axis=-1).min(axis=1)
    return points[contains(outline, points) & (distance > _CLEARANCE * size)]


def contains(outline: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(M,) bool. Which points (M, 2) lie inside the polygon, by counting crossings."""
    a, b = outline[None], np.roll(outline, -1, axis=0)[None]
    y, z = points[:, None, 0], points[:, None, 1]
    straddles = (a[..., 1] > z) != (b[..., 1] > z)
    rise = np.where(straddles, b[..., 1] - a[..., 1], 1.0)
    crossing = a[..., 0] + (z - a[..., 1]) / rise * (b[..., 0] - a[..., 0])
    return (straddles & (y < crossing)).sum(axis=1) % 2 == 1


def _surface(tets: np.ndarray) -> np.ndarray:
    """Faces (F, 3) that belong to one tetrahedron only, outward."""
    faces = np.concatenate([tets[:, c] for c in ([0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3])])
    _, first, count = np.unique(np.sort(faces, axis=1), axis=0, return_index=True, return_counts=True)
    return faces[np.sort(first[count == 1])]
