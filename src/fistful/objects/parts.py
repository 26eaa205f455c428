"""Convex parts: an object as a union of convex solids, which a simulator collides faster than a mesh.

An object whose hull fits is its hull; any other one is cut by CoACD (Wei et al., SIGGRAPH 2022). Cutting is
approximate: the parts fill notches and thicken thin walls a little. How much is measured each time.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fistful.errors import CacheError, MeshError
from fistful.geometry.sampling import sample_triangles
from fistful.objects.object import Object, _convex_hull
from fistful.storage import Entry, Lookup, content_key, default_storage

PartsKind = Literal["parts", "hull"]

# Part of every cache key: raise it when the result for the same mesh changes.
ALGORITHM = 2
# Corners of one of several parts, and of a hull that stands alone. That one can afford to be round: MuJoCo
# walks along edges and is hardly slower with 256 corners than with 64.
MAX_CORNERS = 64
MAX_HULL_CORNERS = 256
MAX_PARTS = 32
# A hull that lies within this distance of the surface everywhere stands for the object, m.
_NEARLY_CONVEX = 0.001
# CoACD's cost grows with the faces, and its answer hardly changes with them.
_MAX_FACES = 6_000
_COARSEST = 5e-3  # of the longest side: the largest tolerance for simplification
_CORNER_GAP = 2e-5  # m; corners that would add less are left out
_DUST = 1e-6  # of the hull's volume: parts below it are dropped
_SEED = 20240229
_ERROR_POINTS = 8192
# CoACD's threshold, in half longest sides, and the same for objects above 0.1 m, m. Measured on 51 household
# meshes: a lower one, or a longer search, costs more time and parts than it gains in accuracy.
_THRESHOLD = 0.07
_THRESHOLD_M = 0.0035
_COACD = {
    "max_convex_hull": MAX_PARTS,
    "preprocess_mode": "auto",
    "resolution": 500,
    "mcts_nodes": 20,
    "mcts_iterations": 20,
    "mcts_max_depth": 2,
    "merge": True,
    "seed": 0,
}
# Should CoACD crash or not come to an end, another seed goes another way; the last attempt makes the mesh
# anew (several times slower, and thicker). The slowest mesh met so far took 60 CPU seconds, most below 5.
_ATTEMPTS = ({}, {"seed": 1}, {"preprocess_mode": "on"})
_CPU_LIMIT_S = 120
_WALL_LIMIT_S = 900.0


class _Solid(NamedTuple):
    """A triangle mesh."""

    vertices: np.ndarray  # (V, 3) float64, m
    faces: np.ndarray  # (F, 3) int32, outward


@dataclass(frozen=True, kw_only=True)
class ErrorStats:
    """A distance, sampled evenly over a surface, mm; 0 where it does not apply."""

    mean: float
    p95: float
    """95 % of the surface is below this."""
    max: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ConvexParts:
    """Convex solids whose union stands for an object. Lengths in metres, frame O of the object."""

    vertices: tuple[np.ndarray, ...]
    """Of each part, (V_i, 3) float64: its corners; at most 64, or 256 if the part is the only one."""
    faces: tuple[np.ndarray, ...]
    """Of each part, (F_i, 3) int32, counter-clockwise seen from outside."""
    outside_mm: ErrorStats
    """How far the surface of the union sticks out of the mesh: notches filled, walls too thick."""
    inside_mm: ErrorStats
    """How far the mesh's surface sticks out of the union: material that the parts lack."""
    buried_mm: ErrorStats
    """How deep the mesh's surface lies under the surface of the union: `outside_mm` seen from the mesh, which
    also shows a slit or a bore that is filled all the way down."""


def convex_parts(
    item: Object,
    *,
    kind: PartsKind = "parts",
    use_cache: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> ConvexParts:
    """The object as convex solids, computed or taken from the cache.

    1. The convex hull, if that is wanted or fits the surface within 1 mm everywhere.
    2. Otherwise the mesh, simplified, is cut by CoACD in a process of its own: some seconds.
    3. Either way, measure how far the union is from the mesh.

    Reads and writes the cache; a cache that can not be used is passed over. Raises MeshError if CoACD fails.

    Args:
      item: The object.
      kind: "parts", or "hull" for the hull whether it fits or not.
      use_cache: False: neither read nor write the cache.
      progress: Called with a line before a step that takes long.
    """
    if kind not in ("parts", "hull"):
        raise ValueError(f"kind {kind!r} of convex parts is unknown; choose 'parts' or 'hull'")
    if len(item.faces) == 0 or not np.isfinite(item.vertices).all():
        raise MeshError(f"{item.name}: no convex parts of a surface without faces or with not-a-numbers")
    options = [ALGORITHM, kind]
    key = content_key(item.vertices, item.faces, options)
    storage = default_storage("parts")
    ready = _readable(storage.load(key)) if use_cache else None
    if ready is not None:
        return ready
    entry = _compute(item, kind, progress)
    if use_cache:
        with contextlib.suppress(CacheError):
            storage.store(key, entry.arrays, entry.metadata)
    return _from_entry(entry)


def _compute(item: Object, kind: PartsKind, progress: Callable[[str], None]) -> Entry:
    """Parts and their errors, as arrays and JSON."""
    from fistful.geometry.mesh_distance import MeshDistance

    surface = MeshDistance(item.vertices, item.faces)
    hull = _Solid(item.hull_vertices, item.hull_faces)
    if kind == "hull" or surface.query(_samples(hull)).values.max() < _NEARLY_CONVEX:
        parts = [_few_corners(hull.vertices, MAX_HULL_CORNERS)]
    else:
        progress(f"cutting {item.name} into convex parts")
        cut = _cut(item)
        most = MAX_CORNERS if len(cut) > 1 else MAX_HULL_CORNERS
        parts = [_few_corners(points, most) for points in cut]
    union = _union(parts)
    outside = surface.query(_samples(union)).values
    inside = MeshDistance(union.vertices, union.faces).query(_samples(_Solid(item.vertices, item.faces)))
    arrays = {
        "vertices": np.concatenate([p.vertices for p in parts]),
        "faces": np.concatenate([p.faces for p in parts]),
        "corners": np.array([len(p.vertices) for p in parts]),
        "triangles": np.array([len(p.faces) for p in parts]),
    }
    metadata = {
        "outside_mm": asdict(_stats(outside)),
        "inside_mm": asdict(_stats(inside.values)),
        "buried_mm": asdict(_stats(-inside.values)),
    }
    return Entry(arrays=arrays, metadata=metadata)


def _readable(found: Lookup) -> ConvexParts | None:
    """The parts of a cache entry; None if there is none, or if other code wrote it under this key."""
    if found.entry is None:
        return None
    try:
        return _from_entry(found.entry)
    except (KeyError, TypeError, ValueError):
        return None


def _from_entry(entry: Entry) -> ConvexParts:
    a, meta = entry.arrays, entry.metadata
    for array in a.values():
        array.setflags(write=False)  # Frozen means frozen.
    return ConvexParts(
        vertices=tuple(np.split(a["vertices"], np.cumsum(a["corners"])[:-1])),
        faces=tuple(np.split(a["faces"], np.cumsum(a["triangles"])[:-1])),
        outside_mm=ErrorStats(**meta["outside_mm"]),
        inside_mm=ErrorStats(**meta["inside_mm"]),
        buried_mm=ErrorStats(**meta["buried_mm"]),
    )


def _samples(solid: _Solid) -> np.ndarray:
    """Points (N, 3), uniform over the area of a surface; the same for the same surface."""
    rng = np.random.default_rng(_SEED)
    return sample_triangles(solid.vertices[solid.faces], _ERROR_POINTS, rng)[0]


def _stats(distance: np.ndarray) -> ErrorStats:
    mm = 1e3 * np.maximum(distance, 0.0)
    return ErrorStats(mean=float(mm.mean()), p95=float(np.percentile(mm, 95)), max=float(mm.max()))


def _union(parts: list[_Solid]) -> _Solid:
    """The surface of the union of convex solids."""
    from manifold3d import Manifold, OpType

    solids = [_manifold(p) for p in parts]
    return _solid(Manifold.batch_boolean(solids, OpType.Add))


def _few_corners(points: np.ndarray, most: int) -> _Solid:
    """The convex hull of points (N, 3), with at most `most` corners.

    Fewer corners are chosen in rounds: those farthest outside of the hull of the ones before. What is then
    missing is given back by pushing the corners outward by its mean thickness, volume / area.
    """
    corners, faces = _convex_hull(points)
    if len(corners) <= most:
        return _Solid(corners, faces)
    chosen = _supports(corners)
    while len(chosen) < most:
        plane = _planes(*_convex_hull(corners[chosen]))
        height = corners @ plane[:, :3].T - plane[:, 3]
        top = np.argmax(height, axis=0)  # Of each facet, the corner farthest beyond it.
        gap = height[top, np.arange(len(plane))]
        top = top[np.argsort(-gap, kind="stable")][: int((gap > _CORNER_GAP).sum())]
        room = min(most - len(chosen), max(1, len(chosen) // 3))
        new = list(dict.fromkeys(top.tolist()))[:room]
        if not new:
            break
        chosen = np.concatenate([chosen, new])
    few = _Solid(*_convex_hull(corners[chosen]))
    thickness = (_volume(_Solid(corners, faces)) - _volume(few)) / _area(few)
    return _Solid(*_convex_hull(few.vertices + thickness * _vertex_normals(few)))


def _supports(corners: np.ndarray) -> np.ndarray:
    """Indices of the corners (N, 3) farthest in 24 directions, spread evenly for the shape made round."""
    i = np.arange(24) + 0.5
    z, turn = 1 - i / 12, i * np.pi * (1 + 5**0.5)
    directions = np.column_stack([np.cos(turn), np.sin(turn), z]) * np.sqrt([1 - z**2, 1 - z**2, 0 * z + 1]).T
    round_ones = np.linalg.svd(corners - corners.mean(axis=0), full_matrices=False)[0]
    return np.unique(np.argmax(round_ones @ directions.T, axis=0))


def _normals(solid: _Solid) -> np.ndarray:
    """(F, 3). Outward, twice as long as each face is large."""
    a, b, c = np.moveaxis(solid.vertices[solid.faces], 1, 0)
    return np.cross(b - a, c - a)


def _planes(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """(F, 4): unit normal n and offset d of each face; n p > d outside."""
    normals = _normals(_Solid(vertices, faces))
    length = np.linalg.norm(normals, axis=1)
    unit = normals[length > 0] / length[length > 0, None]
    return np.column_stack([unit, np.einsum("ij,ij->i", unit, vertices[faces[length > 0, 0]])])


def _vertex_normals(solid: _Solid) -> np.ndarray:
    """(V, 3), of unit length: the mean over the faces around, by area."""
    total = np.zeros_like(solid.vertices)
    for corner in solid.faces.T:
        np.add.at(total, corner, _normals(solid))
    return total / np.linalg.norm(total, axis=1, keepdims=True)


def _area(solid: _Solid) -> float:
    return float(np.linalg.norm(_normals(solid), axis=1).sum() / 2)


def _volume(solid: _Solid) -> float:
    spokes = solid.vertices[solid.faces[:, 0]] - solid.vertices[0]
    return float(np.einsum("ij,ij->", spokes, _normals(solid)) / 6)


def _cut(item: Object) -> list[np.ndarray]:
    """Points (V_i, 3), m, whose hulls are the parts into which CoACD cuts an object."""
    lower, upper = item.vertices.min(axis=0), item.vertices.max(axis=0)
    centre, size = (lower + upper) / 2, float((upper - lower).max())
    solid = _simplified(_Solid((item.vertices - centre) / size, item.faces))
    settings = {**_COACD, "threshold": min(_THRESHOLD, _THRESHOLD_M / (size / 2))}
    problem = ""
    for attempt in _ATTEMPTS:
        try:
            found = _run_coacd({**settings, **attempt}, solid)
        except (OSError, RuntimeError) as error:
            problem = str(error)
            continue
        dust = _DUST * _volume(_Solid(item.hull_vertices, item.hull_faces)) / size**3
        parts = [centre + size * points for points in found if _hull_volume(points) > dust]
        if parts:
            return parts
        problem = "found none"
    raise MeshError(
        f"{item.name}: CoACD, which cuts an object into convex parts, {problem}; mend or simplify the mesh, "
        'or use its convex hull (kind="hull")'
    )


def _hull_volume(points: np.ndarray) -> float:
    """Of the hull of points; 0 if they are flat."""
    try:
        return _volume(_Solid(*_convex_hull(points)))
    except MeshError:
        return 0.0


def _run_coacd(settings: dict[str, Any], solid: _Solid) -> list[np.ndarray]:
    """The points (V_i, 3) of CoACD's parts. It runs in a process of its own: compiled code may crash or hang.

    RuntimeError says what went wrong.
    """
    with tempfile.TemporaryDirectory(prefix="fistful-parts-") as folder:
        given, answer = Path(folder) / "mesh.npz", Path(folder) / "parts.npz"
        np.savez(given, vertices=solid.vertices, faces=solid.faces)
        job = json.dumps({"given": str(given), "answer": str(answer), "path": sys.path, "settings": settings})
        # One thread: several would be faster, but are not promised to give the same parts.
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                [sys.executable, "-c", _WORKER],
                input=job.encode(),
                capture_output=True,
                timeout=_WALL_LIMIT_S,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"took longer than {_WALL_LIMIT_S:.0f} s") from error
        if done.returncode != 0:
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise RuntimeError(f"ended with code {done.returncode}" + (f" ({last[0]})" if last else ""))
        with np.load(answer) as found:
            return [found[str(i)] for i in range(len(found.files))]


# What the other process runs; it needs CoACD and numpy only, so that it starts fast.
_WORKER = f"""
import json, sys
job = json.load(sys.stdin)
sys.path[:] = job["path"]
try:
    import resource  # Not on Windows.
    resource.setrlimit(resource.RLIMIT_CPU, ({_CPU_LIMIT_S}, {_CPU_LIMIT_S}))
except ImportError:
    pass
import coacd
import numpy as np
coacd.set_log_level("error")
with np.load(job["given"]) as given:
    mesh = coacd.Mesh(given["vertices"], given["faces"])
parts = coacd.run_coacd(mesh, **job["settings"])
np.savez(job["answer"], **{{str(i): points for i, (points, _) in enumerate(parts)}})
"""


def _simplified(solid: _Solid) -> _Solid:
    """The mesh of unit size with fewer faces, if it is a manifold."""
    if len(solid.faces) <= _MAX_FACES:
        return solid
    manifold = _manifold(solid)
    if manifold.is_empty():
        return solid
    tolerance = 1e-4
    while manifold.num_tri() > _MAX_FACES and tolerance < _COARSEST:
        manifold = manifold.simplify(tolerance)
        tolerance *= 2
    return _solid(manifold)


def _manifold(solid: _Solid) -> Any:
    """A manifold3d solid, empty if the faces do not pair up."""
    from manifold3d import Manifold, Mesh64

    # Copies, because manifold3d takes no arrays that are read-only.
    return Manifold(Mesh64(np.array(solid.vertices, float), np.array(solid.faces, np.uint64)))


def _solid(manifold: Any) -> _Solid:
    mesh = manifold.to_mesh64()
    return _Solid(np.asarray(mesh.vert_properties, float)[:, :3], np.asarray(mesh.tri_verts, np.int32))
