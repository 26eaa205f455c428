"""What the parts of a hand are for: fingers, contact surfaces, opposition spaces. A small TOML file.

    schema = 1
    name = "allegro"
    model = "allegro_right.xml"        # the MJCF beside this file
    summary = "Wonik Allegro, right"

    [fingers]                          # name = first moving body of the finger
    index = "index_base"

    [[surface]]                        # contact points: where a body's skin faces a direction
    name = "index_pad"
    patches = [{ body = "index_distal", direction = [1, 0, 0], cone_deg = 50 }]

    [[opposition_space]]               # two surfaces that can hold an object between them
    name = "index-palm"
    surfaces = ["index_pad", "palm"]
    joints = ["index_0", "index_1", "index_2", "index_3"]

Mechanics (joints, limits, couplings, torque limits, shapes, open pose) stay in the MJCF.
"""

import json
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fistful.errors import HandError

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Patch:
    """The part of a body's skin whose outward normal is within a cone.

    Attributes:
      body: Name of the body.
      direction: Axis of the cone in the body frame; need not be normalised.
      cone_deg: Half angle of the cone.
    """

    body: str
    direction: tuple[float, float, float]
    cone_deg: float


@dataclass(frozen=True, kw_only=True)
class SurfaceDescription:
    """A named group of patches that acts as one side of a grasp."""

    name: str
    patches: tuple[Patch, ...]


@dataclass(frozen=True, kw_only=True)
class OppositionSpaceDescription:
    """Two surfaces that can press on an object from two sides, and the joints that move them.

    Attributes:
      name: For instance "index-palm".
      surfaces: Names of the two surfaces.
      joints: Names of the joints that are spent when the space is used (SeqGrasp's J); a coupled joint
        stands for the one that drives it.
      span_mm: Diameters of the balls that were verified to fit, smallest and largest; None if not tried.
    """

    name: str
    surfaces: tuple[str, str]
    joints: tuple[str, ...]
    span_mm: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Description:
    """All of the file."""

    name: str
    model: str
    summary: str
    fingers: tuple[tuple[str, str], ...]
    surfaces: tuple[SurfaceDescription, ...]
    opposition_spaces: tuple[OppositionSpaceDescription, ...]


def read_description(path: Path) -> Description:
    """The description in a TOML file. Reads the file; names are checked against the model later."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise HandError(f"{path.name} can not be read: {error.strerror or error}") from None
    except RecursionError:
        raise HandError(f"{path.name} is not a hand's description: it is nested too deeply") from None
    except ValueError as error:  # TOMLDecodeError, UnicodeDecodeError, integers of thousands of digits
        raise HandError(f"{path.name} is not a TOML file: {error}") from None
    if data.get("schema") != SCHEMA:
        raise HandError(
            f"{path.name} has schema {data.get('schema')!r}; this version reads {SCHEMA}. "
            "Write the description anew with `fistful hands MODEL --write DIR`"
        )
    tables = data | {
        "surfaces": data.get("surface", []),
        "opposition_spaces": data.get("opposition_space", []),
    }
    try:
        description = parse_description(tables | {"fingers": list(dict(data["fingers"]).items())})
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        what = f"misses the entry {error}" if isinstance(error, KeyError) else f"is malformed: {error}"
        raise HandError(f"{path.name} {what}; see docs/hands.md for the format") from None
    unknown = set(data) - {"schema", "name", "model", "summary", "fingers", "surface", "opposition_space"}
    if unknown:
        raise HandError(f"{path.name} has an unknown entry {min(unknown)!r}; see docs/hands.md")
    return description


def parse_description(data: dict[str, Any]) -> Description:
    """The description in plain dicts and lists, keyed as the dataclasses are (the inverse of asdict)."""
    surfaces = tuple(
        SurfaceDescription(name=str(s["name"]), patches=tuple(_parse_patch(p) for p in s["patches"]))
        for s in data["surfaces"]
    )
    spaces = tuple(
        OppositionSpaceDescription(
            name=str(s["name"]),
            surfaces=_pair(s["surfaces"]),
            joints=tuple(str(j) for j in s["joints"]),
            span_mm=_span(s.get("span_mm")),
        )
        for s in data["opposition_spaces"]
    )
    return Description(
        name=file_name(str(data["name"])),
        model=str(data["model"]),
        summary=str(data.get("summary", "")),
        fingers=tuple((str(name), str(body)) for name, body in data["fingers"]),
        surfaces=surfaces,
        opposition_spaces=spaces,
    )


def file_name(name: str) -> str:
    """The name of a hand, which its files are called after; HandError if it can not be one."""
    if not name or Path(name).name != name or name != name.strip():
        raise HandError(f"{name!r} can not be the name of a hand; choose one without slashes")
    return name


def _parse_patch(data: dict[str, Any]) -> Patch:
    x, y, z = (float(v) for v in data["direction"])
    if not 1e-9 < math.hypot(x, y, z) < 1e9:
        raise ValueError(f"direction {data['direction']} of a patch on {data['body']!r} has no length")
    cone_deg = float(data.get("cone_deg", 50))
    if not 0 < cone_deg <= 180:
        raise ValueError(f"cone_deg {cone_deg:g} of a patch on {data['body']!r} is not in (0, 180]")
    return Patch(body=str(data["body"]), direction=(x, y, z), cone_deg=cone_deg)


def _span(values: Any) -> tuple[float, float] | None:
    if values is None:
        return None
    low, high = (float(v) for v in values)
    if not 0 < low <= high:
        raise ValueError(f"span_mm {values} does not go from a smaller to a larger diameter")
    return low, high


def _pair(names: Any) -> tuple[str, str]:
    first, second = (str(n) for n in names)
    if first == second:
        raise ValueError(f"an opposition space has two surfaces, not {first!r} twice")
    return first, second


def write_description(description: Description, path: Path) -> None:
    """Write the TOML file, atomically."""
    lines = [
        f"schema = {SCHEMA}",
        f"name = {quote(description.name)}",
        f"model = {quote(description.model)}",
        f"summary = {quote(description.summary)}",
        "",
        "[fingers]",
        *(f"{quote(name)} = {quote(body)}" for name, body in description.fingers),
    ]
    for surface in description.surfaces:
        lines += ["", "[[surface]]", f"name = {quote(surface.name)}", "patches = ["]
        for patch in surface.patches:
            direction = ", ".join(_number(v) for v in patch.direction)
            cone = f"cone_deg = {_number(patch.cone_deg)}"
            lines.append(f"  {{ body = {quote(patch.body)}, direction = [{direction}], {cone} }},")
        lines.append("]")
    for space in description.opposition_spaces:
        lines += ["", "[[opposition_space]]", f"name = {quote(space.name)}"]
        lines.append(f"surfaces = [{', '.join(map(quote, space.surfaces))}]")
        lines.append(f"joints = [{', '.join(map(quote, space.joints))}]")
        if space.span_mm is not None:
            lines.append(f"span_mm = [{', '.join(map(_number, space.span_mm))}]")
    write_text(path, "\n".join(lines) + "\n")


def _number(value: float) -> str:
    """Short if nothing is lost by it: what is read again is the same hand."""
    return short if float(short := f"{value:.4g}") == value else repr(float(value))


def quote(text: str) -> str:
    """A TOML basic string: JSON's, but for characters beyond 16 bits and DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_text(path: Path, text: str) -> None:
    """Write a file, atomically."""
    staged = path.with_name(f"{path.name}.tmp")
    staged.write_text(text, encoding="utf-8")
    staged.replace(path)
