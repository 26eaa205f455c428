"""An object: a mesh made ready for planning, measuring and simulation, prepared once and cached."""

import contextlib
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fistful.errors import CacheError, MeshError, UnknownNameError
from fistful.geometry.sampling import farthest_points, sample_triangles
from fistful.geometry.sdf import DEFAULT_VOXELS, SdfGrid, build_sdf
from fistful.objects.inspection import MeshReport, Units, inspect_mesh
from fistful.objects.measures import centre_and_inertia
from fistful.objects.reading import RawMesh, read_mesh
from fistful.storage import Entry, Lookup, content_key, default_storage

if TYPE_CHECKING:
    import trimesh

# Part of every cache key: raise it when the result for the same mesh and options changes.
ALGORITHM = 1
SURFACE_POINTS = 2048
# SeqGrasp scales every object so that its bounding box is between these lengths (m).
RESCALE = (0.06, 0.10)
_CANDIDATES = 8192
_SEED = 20240229
_ERROR_POINTS = 4096
_ERROR_BAND = 0.005


@dataclass(frozen=True, kw_only=True, eq=False)
class MassProperties:
    """Volume, centre and inertia of a homogeneous solid; O is the frame of the mesh file."""

    volume_m3: float
    density: float
    """kg/m3."""
    mass: float
    """kg."""
    com_O: np.ndarray
    """(3,) float64, m. Centre of mass."""
    inertia_O: np.ndarray
    """(3, 3) float64, kg m2. About the centre of mass, along the axes of O."""

    def at_density(self, density: float) -> "MassProperties":
        """The same shape at another density (kg/m3, positive)."""
        if not (np.isfinite(density) and density > 0):
            raise ValueError(f"density {density} must be a positive number of kg/m3; water has 1000")
        inertia = self.inertia_O * (density / self.density)
        return replace(self, density=density, mass=self.volume_m3 * density, inertia_O=inertia)


@dataclass(frozen=True, kw_only=True)
class SdfError:
    """|grid - exact mesh distance| at points within 5 mm of the surface, mm."""

    mean_mm: float
    max_mm: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Object:
    """A mesh made ready. Lengths in metres, frame O = the frame of the mesh file."""

    name: str
    key: str
    """The sha256 of the mesh as read, the options and the algorithm: same key, same object."""
    vertices: np.ndarray
    """(V, 3) float64."""
    faces: np.ndarray
    """(F, 3) int32, counter-clockwise seen from outside; a closed surface."""
    scale: float
    """Factor that was applied to the file's coordinates."""
    report: MeshReport
    sdf: SdfGrid
    sdf_error: SdfError
    surface_points: np.ndarray
    """(2048, 3) float64. Spread over the surface by farthest point sampling; so is every prefix."""
    surface_normals: np.ndarray
    """(2048, 3) float64. Outward unit normals there."""
    hull_vertices: np.ndarray
    """(H, 3) float64. Corners of the convex hull."""
    hull_faces: np.ndarray
    """(T, 3) int32, counter-clockwise seen from outside."""
    mass_properties: MassProperties
    """At 1 kg/m3; see `MassProperties.at_density`."""

    def __repr__(self) -> str:
        size = " x ".join(f"{1e3 * e:.0f}" for e in self.report.extents_m)
        return f"Object({self.name!r}, {size} mm, {len(self.faces):,} faces)"

    @cached_property
    def mesh(self) -> "trimesh.Trimesh":
        """The surface as a trimesh."""
        import trimesh

        return trimesh.Trimesh(self.vertices, self.faces, process=False)

    def inflated_hull(self, distance: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
        """Vertices (H, 3) and faces (T, 3) of the convex hull pushed radially outward by `distance` (m).

        v' = c + (v - c) (1 + distance / |v - c|), with c the mean of the hull's corners. Hands start from
        here (SeqGrasp, initialisation).
        """
        if not distance >= 0:
            raise ValueError(f"a hull is inflated by 0 m or more, not by {distance}")
        centre = self.hull_vertices.mean(axis=0)
        spoke = self.hull_vertices - centre
        length = np.linalg.norm(spoke, axis=1, keepdims=True)
        return centre + spoke * (1 + distance / length), self.hull_faces


def object_names() -> tuple[str, ...]:
    """Names of the built-in objects, sorted."""
    return tuple(sorted(_generators()))


def load_object(
    name_or_path: str | Path,
    *,
    units: Units = "auto",
    rescale: bool = False,
    voxels: int = DEFAULT_VOXELS,
    use_cache: bool = True,
) -> Object:
    """An object by its built-in name or from a mesh file, prepared or taken from the cache.

    1. Read the file, or generate the shape.
    2. Look it up under the hash of its vertices, faces, the options and the version of this algorithm.
    3. Otherwise inspect and mend it, build everything that an Object holds, and store that.

    Reads the file, reads and writes the cache. A cache that can not be used is reported in `report.found`;
    the work then goes on in memory.

    Args:
      name_or_path: One of `object_names()`, or a path to any mesh that trimesh reads.
      units: Unit of the file's coordinates; see `inspect_mesh`.
      rescale: Scale the longest side of the bounding box into 0.06 .. 0.10 m, as the SeqGrasp paper does.
      voxels: Number of nodes of the distance field; more are more accurate.
      use_cache: False: neither read nor write the cache.
    """
    name, raw = _resolve(name_or_path)
    if raw.built_in:
        units = "auto"  # Those of files only.
    span = RESCALE if rescale else None
    options = [ALGORITHM, units, span, voxels, raw.units, list(raw.notes)]
    key = content_key(raw.vertices, raw.faces, options)
    try:
        if not use_cache:
            return _from_entry(name, key, _prepare(raw, units, span, voxels))
        storage = default_storage("objects")
        found = storage.load(key)
        ready = _readable(name, key, found)
        if ready is not None:
            return ready
        entry = _prepare(raw, units, span, voxels)
        problem = found.problem
        if found.entry is not None:
            problem = "the cached object is not one and was made again"
        try:
            storage.store(key, entry.arrays, entry.metadata)
        except CacheError as error:
            problem = f"{error}; nothing was cached"
    except MeshError as error:
        raise MeshError(f"{name}: {error}") from error
    ready = _from_entry(name, key, entry)
    if problem:
        ready = replace(ready, report=replace(ready.report, found=(*ready.report.found, problem)))
    return ready


def restore_object(
    name: str,
    key: str,
    vertices: np.ndarray,
    faces: np.ndarray,
    report: MeshReport,
    spacing: float,
) -> Object:
    """An object from its prepared surface, as it was saved with a plan; the rest is made anew or cached.

    Reads and writes the cache. `report.found` says so if the distance grid had another spacing.

    Args:
      name: Its name.
      key: Its key.
      vertices: (V, 3) float, m. As in the object that was saved; not inspected again.
      faces: (F, 3) int.
      report: Of that object.
      spacing: Of its distance grid, m.
    """
    storage = default_storage("objects")
    ready = _readable(name, key, storage.load(key))
    if ready and np.array_equal(ready.vertices, vertices) and np.array_equal(ready.faces, faces):
        return ready
    # Not under the object's own key, which stands for what was read before it was mended.
    own = content_key(vertices, faces, ["restored", ALGORITHM, report.to_dict()])
    ready = _readable(name, key, storage.load(own))
    if ready is None:
        entry = _derived(vertices, faces.astype(np.int32), report, DEFAULT_VOXELS)
        with contextlib.suppress(CacheError):
            storage.store(own, entry.arrays, entry.metadata)
        ready = _from_entry(name, key, entry)
    if ready.sdf.spacing != spacing:
        before, now = 1e3 * spacing, 1e3 * ready.sdf.spacing
        line = f"the distance grid was made anew with {now:.2f} mm instead of {before:.2f}"
        ready = replace(ready, report=replace(report, found=(*report.found, line)))
    return ready


def _generators() -> dict:
    from fistful.objects.generators import GENERATORS

    return GENERATORS


def _resolve(name_or_path: str | Path) -> tuple[str, RawMesh]:
    if isinstance(name_or_path, str) and name_or_path in _generators():
        mesh = _generators()[name_or_path]()
        vertices, faces = np.asarray(mesh.vertices, float), np.asarray(mesh.faces, np.int64)
        return name_or_path, RawMesh(vertices=vertices, faces=faces, units="meters", built_in=True)
    path = Path(name_or_path).expanduser()
    try:
        exists = path.exists()
    except (OSError, ValueError):  # A name too long for the file system, or with a zero byte.
        exists = False
    if not exists:
        hint = "Give a built-in name or the path of a mesh file."
        raise UnknownNameError("object", str(name_or_path), _generators(), hint)
    return path.stem, read_mesh(path)


def _prepare(raw: RawMesh, units: Units, rescale: tuple[float, float] | None, voxels: int) -> Entry:
    """Everything that an Object holds, as arrays and JSON."""
    return _derived(*inspect_mesh(raw, units=units, rescale=rescale), voxels)


def _derived(vertices: np.ndarray, faces: np.ndarray, report: MeshReport, voxels: int) -> Entry:
    """What follows from an inspected surface."""
    sdf = build_sdf(vertices, faces, voxels=voxels)
    rng = np.random.default_rng(_SEED)
    points, normals = _surface_samples(vertices, faces, _CANDIDATES, rng)
    chosen = farthest_points(points, SURFACE_POINTS)
    hull_vertices, hull_faces = _convex_hull(vertices)
    com, inertia = centre_and_inertia(vertices, faces, report.volume_m3)
    arrays = {
        "vertices": vertices,
        "faces": faces,
        "sdf_origin": sdf.origin,
        "sdf_values": sdf.values,
        "sdf_gradients": sdf.gradients,
        "surface_points": points[chosen],
        "surface_normals": normals[chosen],
        "hull_vertices": hull_vertices,
        "hull_faces": hull_faces,
        "com": com,
        "inertia": inertia,
    }
    error = _sdf_error(vertices, faces, sdf, rng)
    metadata = {"report": report.to_dict(), "spacing": sdf.spacing, "sdf_error": asdict(error)}
    return Entry(arrays=arrays, metadata=metadata)


def _readable(name: str, key: str, found: Lookup) -> Object | None:
    """The object of a cache entry; None if there is none, or if other code wrote it under this key."""
    if found.entry is None:
        return None
    try:
        return _from_entry(name, key, found.entry)
    except (KeyError, TypeError, ValueError):
        return None


def _from_entry(name: str, key: str, entry: Entry) -> Object:
    a, meta = entry.arrays, entry.metadata
    report = MeshReport.from_dict(meta["report"])
    for array in a.values():
        array.setflags(write=False)  # Frozen means frozen.
    return Object(
        name=name,
        key=key,
        vertices=a["vertices"],
        faces=a["faces"],
        scale=report.scale,
        report=report,
        sdf=SdfGrid(
            origin=a["sdf_origin"],
            spacing=meta["spacing"],
            values=a["sdf_values"],
            gradients=a["sdf_gradients"],
        ),
        sdf_error=SdfError(**meta["sdf_error"]),
        surface_points=a["surface_points"],
        surface_normals=a["surface_normals"],
        hull_vertices=a["hull_vertices"],
        hull_faces=a["hull_faces"],
        mass_properties=MassProperties(
            volume_m3=report.volume_m3,
            density=1.0,
            mass=report.volume_m3,
            com_O=a["com"],
            inertia_O=a["inertia"],
        ),
    )


def _surface_samples(
    vertices: np.ndarray, faces: np.ndarray, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Points (count, 3), uniform over the area, and the normals of their faces."""
    points, face = sample_triangles(vertices[faces], count, rng)
    a, b, c = np.moveaxis(vertices[faces[face]], 1, 0)
    normals = np.cross(b - a, c - a)
    return points, normals / np.linalg.norm(normals, axis=1, keepdims=True)


def _convex_hull(vertices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Corners (H, 3) and outward faces (T, 3)."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        hull = ConvexHull(vertices)
    except QhullError as error:
        raise MeshError("the mesh is too flat to have a convex hull; a solid object is needed") from error
    corners = np.sort(hull.vertices)
    number = np.zeros(len(vertices), np.int32)
    number[corners] = np.arange(len(corners))
    faces = hull.simplices.copy()
    a, b, c = np.moveaxis(vertices[faces], 1, 0)
    inward = np.einsum("ij,ij->i", np.cross(b - a, c - a), hull.equations[:, :3]) < 0
    faces[inward] = faces[inward][:, ::-1]
    return vertices[corners], number[faces]


def _sdf_error(vertices: np.ndarray, faces: np.ndarray, sdf: SdfGrid, rng: np.random.Generator) -> SdfError:
    """The grid against the exact distance, at points spread evenly through the band around the surface."""
    from fistful.geometry.mesh_distance import signed_distance

    points, normals = _surface_samples(vertices, faces, _ERROR_POINTS, rng)
    points = points + normals * rng.uniform(-_ERROR_BAND, _ERROR_BAND, (len(points), 1))
    error_mm = 1e3 * np.abs(sdf.query(points)[0] - signed_distance(vertices, faces, points).values)
    return SdfError(mean_mm=float(error_mm.mean()), max_mm=float(error_mm.max()))
