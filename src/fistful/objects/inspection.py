"""A mesh checked: what it is, what was odd about it, what was mended; or a MeshError that says why not."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from fistful.errors import MeshError
from fistful.objects.measures import body_volumes, centre_and_inertia, face_areas
from fistful.objects.mending import mend
from fistful.objects.reading import RawMesh
from fistful.objects.statements import Statements, counted
from fistful.objects.topology import compact

Units = Literal["auto", "m", "cm", "mm", "in"]
METRES = {"m": 1.0, "cm": 0.01, "mm": 0.001, "in": 0.0254}
# Longest side (m) of what a hand may pick up; a length outside is taken for a wrong unit.
_SMALLEST, _LARGEST = 0.003, 1.0
# With units given by the user, only what no hand could hold is refused.
_TINIEST, _HUGEST = 0.001, 5.0
# Of the square of the longest side: a smaller area is zero but for rounding.
_NO_AREA = 1e-14
# A longest side in this range, without a unit, can only be millimetres.
_MILLIMETRES = (20.0, 1000.0)


@dataclass(frozen=True, kw_only=True)
class MeshReport:
    """What inspection found and mended, and the measures of the result. Prints as a few lines of text."""

    found: tuple[str, ...]
    """What was odd about the mesh, one statement each."""
    mended: tuple[str, ...]
    """What was changed, one statement each. Empty: the surface is the file's."""
    scale: float
    """Factor from the file's coordinates to metres (rescaling included)."""
    vertices: int
    faces: int
    bodies: int
    """Separate pieces of solid material."""
    cavities: int
    """Closed surfaces inside them."""
    watertight: bool
    self_intersections: int
    """Pairs of faces that cross each other; a lower bound if a finding says that the search was cut short."""
    extents_m: tuple[float, float, float]
    """Sides of the bounding box."""
    volume_m3: float
    area_m2: float

    def __str__(self) -> str:
        x, y, z = (1e3 * side for side in self.extents_m)
        lines = [
            f"{self.faces:,} faces, {self.bodies} {'body' if self.bodies == 1 else 'bodies'}, "
            f"{x:.1f} x {y:.1f} x {z:.1f} mm, {1e6 * self.volume_m3:.4g} cm3, "
            f"{'watertight' if self.watertight else 'not watertight'}"
        ]
        lines += [f"found: {line}" for line in self.found] or ["found nothing odd"]
        lines += [f"mended: {line}" for line in self.mended]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-able values. No I/O."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "MeshReport":
        """The report that `to_dict` was made from. No I/O."""
        lists = {k: tuple(v) for k, v in values.items() if isinstance(v, list)}
        return cls(**{**values, **lists})


class Inspected(NamedTuple):
    """A usable mesh and its report."""

    vertices: np.ndarray  # (V, 3) float64, m
    faces: np.ndarray  # (F, 3) int32, counter-clockwise seen from outside
    report: MeshReport


def inspect_mesh(
    raw: RawMesh, *, units: Units = "auto", rescale: tuple[float, float] | None = None
) -> Inspected:
    """The mesh in metres, checked and mended; MeshError if it can not be used. No I/O.

    Args:
      raw: Vertices and faces as read.
      units: Unit of the coordinates. "auto": what the file states, else judged by the longest side L:
        0.003 <= L <= 1 is metres, 20 <= L <= 1000 millimetres, anything else is refused as ambiguous
        (unless it is rescaled, when the unit does not matter).
      rescale: Range of the longest side, m; a mesh outside is scaled uniformly to the nearer end.
    """
    says = Statements(found=list(raw.notes))
    vertices, faces = _finite(raw, says)
    size = float((vertices.max(axis=0) - vertices.min(axis=0)).max())
    if not size > 0:
        raise MeshError("all vertices coincide; a closed triangle mesh is needed")
    factor = _factor(size, units, raw.units, rescale is not None, says)
    if rescale is not None and not rescale[0] <= factor * size <= rescale[1]:
        wanted = min(max(factor * size, rescale[0]), rescale[1])
        says.mended.append(
            f"rescaled the longest side from {1e3 * factor * size:.4g} to {1e3 * wanted:.4g} mm"
        )
        factor = wanted / size
    vertices, faces, bodies, cavities, crossings = mend(vertices * factor, faces, says)
    volume = float(body_volumes(vertices, faces, np.zeros(len(faces), int))[0])
    com, _ = centre_and_inertia(vertices, faces, volume)
    if np.any(com < vertices.min(axis=0)) or np.any(com > vertices.max(axis=0)):
        raise MeshError(
            f"the surface crosses itself and is partly inside out ({volume * 1e6:.3g} cm3, centre of mass "
            "outside of it); rebuild the mesh"
        )
    flat = int(np.sum(face_areas(vertices, faces) < _NO_AREA * (factor * size) ** 2))
    if flat:
        says.found.append(f"{counted(flat, 'face')} of zero area; kept, as the surface is closed with them")
    return Inspected(
        vertices,
        faces.astype(np.int32),
        MeshReport(
            found=tuple(says.found),
            mended=tuple(says.mended),
            scale=factor,
            vertices=len(vertices),
            faces=len(faces),
            bodies=bodies,
            cavities=cavities,
            watertight=True,  # mend() returns nothing else.
            self_intersections=crossings,
            extents_m=tuple(float(s) for s in vertices.max(axis=0) - vertices.min(axis=0)),  # type: ignore[arg-type]
            volume_m3=volume,
            area_m2=float(face_areas(vertices, faces).sum()),
        ),
    )


def _finite(raw: RawMesh, says: Statements) -> tuple[np.ndarray, np.ndarray]:
    """Vertices that faces use, all of them finite."""
    vertices, faces = compact(raw.vertices, raw.faces)
    unused = len(raw.vertices) - len(vertices)
    if unused:
        broken = int((~np.isfinite(raw.vertices)).any(axis=1).sum())
        extra = f", {broken:,} of them not finite" if broken else ""
        says.mended.append(f"dropped {unused:,} vertices that no face uses{extra}")
    bad = ~np.isfinite(vertices).all(axis=1)
    if bad.any():
        value = vertices[bad][0]
        raise MeshError(
            f"{int(bad.sum()):,} vertices are not finite (first: {value[0]:g} {value[1]:g} {value[2]:g}); "
            "export the mesh again"
        )
    if np.abs(vertices).max() > 1e30:
        raise MeshError(
            f"coordinates reach {np.abs(vertices).max():.3g}; the file is damaged or has absurd units"
        )
    return vertices, faces


def _factor(size: float, units: Units, stated: str | None, rescaled: bool, says: Statements) -> float:
    """Metres per unit of the file. Without a plausible one, only what is rescaled anyway passes."""
    if units not in get_args(Units):
        raise MeshError(f"units {units!r} are unknown; use one of {', '.join(get_args(Units))}")
    if units != "auto":
        length = size * METRES[units]
        if not _TINIEST <= length <= _HUGEST:
            raise MeshError(
                f"the longest side is {size:.4g} {units} = {length:.3g} m, not within {_TINIEST:g} to "
                f"{_HUGEST:g} m; check --units"
            )
        return METRES[units]
    if stated is not None:
        factor = stated_factor(stated)
        if not rescaled and not _SMALLEST <= size * factor <= _LARGEST:
            raise MeshError(
                f"the longest side is {size:.4g} and the file states {stated[:40]}: {size * factor:.3g} m; "
                "if that is wrong, give --units m, cm, mm or in"
            )
        if factor != 1.0:
            says.found.append(f"the file states {stated}; longest side {1e3 * size * factor:.4g} mm")
        return factor
    if _SMALLEST <= size <= _LARGEST:
        return 1.0
    if _MILLIMETRES[0] <= size <= _MILLIMETRES[1]:
        says.found.append(f"no units stated; longest side {size:.4g}, so read as millimetres")
        return METRES["mm"]
    if rescaled:
        says.found.append(f"no units stated and none plausible; longest side {size:.4g}, rescaled anyway")
        return 1.0
    raise MeshError(
        f"the longest side is {size:.4g} and the file states no units; give --units m, cm, mm or in "
        "(0.003 to 1 is taken for metres, 20 to 1000 for millimetres)"
    )


def stated_factor(stated: str) -> float:
    """Metres per stated unit of length; MeshError if trimesh does not know the unit."""
    from trimesh.units import unit_conversion

    try:
        factor = float(unit_conversion(stated, "meters"))
    except Exception as error:
        raise MeshError(
            f"the file states the unknown unit {stated[:40]!r}; give --units m, cm, mm or in"
        ) from error
    if not (np.isfinite(factor) and factor > 0):
        raise MeshError(f"the file states the unit {stated[:40]!r}; give --units m, cm, mm or in")
    return 1.0 if abs(factor - 1.0) < 1e-9 else factor
