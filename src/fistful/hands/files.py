"""Reading a hand's files, which are not trusted.

Everything a model refers to must lie inside its own folder, and nothing may ask for more than a hand needs:
MuJoCo would expand a million replicas without a word, and end the process on a model that attaches itself.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from fistful.errors import HandError

MAX_XML_BYTES = 20_000_000
"""A hand is kilobytes of XML; anything near this is something else."""
MAX_ELEMENTS = 50_000
"""XML elements, copies by <replicate> included."""
MAX_FILES = 50
"""Files that one MJCF may include or attach, directly or not."""
MAX_COUNT = 10_000
"""Any number that makes MuJoCo reserve memory."""

_NAN = re.compile(r"[+-]?nan($|[^a-z_])", re.IGNORECASE)
_SOFT = ("composite", "flexcomp", "flex", "hfield")
_USERS = ("body", "jnt", "geom", "site", "cam", "tendon", "actuator", "sensor")
_COUNTS = {
    "texture": ("width", "height"),
    "mesh": ("params",),
    "user": ("dim",),
    "size": ("nuserdata", "nkey", *(f"nuser_{kind}" for kind in _USERS)),
}


def read_xml(path: Path) -> ElementTree.Element:
    """The root element of an XML file. Reads the file.

    Raises:
      HandError: Too big, not XML in UTF-8, or with a document type (entities can expand without bound).
    """
    text = _read_text(path)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise HandError(
            f"{path.name} declares a document type; remove <!DOCTYPE ...> (expand xacro or entities first)"
        )
    try:
        return ElementTree.fromstring(text.encode())
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise HandError(f"{path.name} is not well-formed XML: {error}") from None


def read_self_contained_mjcf(path: Path) -> str:
    """The text of an MJCF that refers to no other file, as a described hand's must be. Reads the file."""
    element = read_xml(path)
    _check_extent(path, element)
    for node in element.iter():
        for reference in _references(node):
            raise HandError(
                f"{path.name} refers to {reference!r}; the model of a described hand stands alone, without "
                "includes and meshes: load the original model and write it out with `fistful hands MODEL "
                "--write DIR`"
            )
    return _read_text(path)


def _read_text(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > MAX_XML_BYTES:
            raise HandError(f"{path.name} has {size:,} bytes; a hand model has at most {MAX_XML_BYTES:,}")
        data = path.read_bytes()
    except OSError as error:
        raise HandError(f"{path.name} can not be read: {error.strerror or error}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HandError(f"{path.name} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    if not text.strip():
        raise HandError(f"{path.name} is empty")
    if "\0" in text:
        raise HandError(f"{path.name} is not UTF-8 text (it holds zero bytes); save it as UTF-8")
    return text


def asset_root(path: Path) -> Path:
    """The folder that a model's files may come from.

    The model's own folder or, if the model is part of a ROS package, the package (the nearest folder
    above with a `package.xml`).
    """
    folder = path.resolve().parent
    return next((f for f in [folder, *folder.parents][:4] if (f / "package.xml").is_file()), folder)


def resolve(reference: str, *, folder: Path, root: Path) -> Path:
    """The file that a model in `folder` means by `reference`; package:// is looked up above the model.

    Raises:
      HandError: It lies outside `root`, or is not there.
    """
    bases = [folder]
    relative = reference.removeprefix("file://")
    if reference.startswith("package://"):
        package, _, relative = reference.removeprefix("package://").partition("/")
        above = [f for f in [folder, *folder.parents][:4] if f.name == package]
        root = next(iter(above), root)
        bases = [*above, root, folder]
    elif "://" in relative:
        raise HandError(f"the model refers to {reference!r}; only files beside the model are read")
    path = _locate(reference, relative, bases, root)
    if path is None:
        raise HandError(f"the model refers to {reference!r}, which does not exist")
    return path


def _locate(reference: str, relative: str, bases: list[Path], root: Path) -> Path | None:
    """The first file that is there, of those that a reference can mean; HandError if one lies outside."""
    try:
        paths = [base / relative for base in bases]
        existing = [path for path in paths if path.is_file()]
        outside = [p for p in existing or paths if not p.resolve().is_relative_to(root.resolve())]
    except (OSError, ValueError) as error:
        raise HandError(f"the model refers to {reference[:80]!r}, which is no file name: {error}") from None
    if outside:
        raise HandError(
            f"the model refers to {reference!r}, outside of its folder {root.name!r}; move it there"
        )
    return next(iter(existing), None)


def check_mjcf(path: Path) -> None:
    """Raise HandError if an MJCF, or one it includes, leaves its folder or is no hand's. Reads them."""
    _check_model(path.resolve(), asset_root(path), above=[], count=[0])


def _check_model(path: Path, root: Path, above: list[Path], count: list[int]) -> None:
    """Check a model, the files it includes and the models it attaches; `count` is of all files so far."""
    if path in above:
        raise HandError(f"{path.name} attaches itself: {' -> '.join(p.name for p in [*above, path])}")
    sources: dict[Path, ElementTree.Element] = {}
    _collect_includes(path, path.parent, root, sources, count)
    # Included text becomes part of the model: a directory set in one file counts for all.
    directories: dict[str, list[str]] = {"meshdir": [], "texturedir": [], "assetdir": []}
    for element in sources.values():
        for compiler in element.iter("compiler"):
            for key, values in directories.items():
                values.extend([compiler.attrib[key]] if key in compiler.attrib else [])
    for source, element in sources.items():
        for node in element.iter():
            if node.tag.lower() == "include":
                continue
            for reference in _references(node):
                # MuJoCo looks beside the file that refers and beside the main one.
                bases = [source.parent, path.parent]
                if node.tag == "model":
                    attached = _locate(reference, _slashes(reference), bases, root)
                    if attached is None:
                        raise HandError(f"{source.name} attaches {reference!r}, which does not exist")
                    _check_model(attached.resolve(), root, [*above, path], count)
                    continue
                kind = "texturedir" if node.tag == "texture" else "meshdir"
                inner = directories[kind] + directories["assetdir"] or [""]
                bases = [base / _slashes(directory) for base in bases for directory in inner]
                _locate(reference, _slashes(reference), bases, root)


def _collect_includes(
    path: Path, folder: Path, root: Path, sources: dict[Path, ElementTree.Element], count: list[int]
) -> None:
    """Read a file and those it includes, whose places MuJoCo seeks beside the file and in `folder`."""
    if path in sources:
        raise HandError(f"{path.name} is included twice or in a circle")
    count[0] += 1
    if count[0] > MAX_FILES:
        raise HandError(f"{path.name} is one of more than {MAX_FILES} files that the model includes")
    element = sources[path] = read_xml(path)
    _check_extent(path, element)
    for node in element.iter():
        if node.tag.lower() == "include":
            reference = node.get("file", "")
            included = _locate(reference, _slashes(reference), [path.parent, folder], root)
            if included is None:
                raise HandError(f"{path.name} includes {reference!r}, which does not exist")
            _collect_includes(included.resolve(), folder, root, sources, count)


def _references(node: ElementTree.Element) -> Iterator[str]:
    """File names in an MJCF element: `file`, and `fileup` and its like of a cube texture."""
    yield from (value for key, value in node.attrib.items() if key.startswith("file") and value)


def _slashes(reference: str) -> str:
    """MuJoCo takes a backslash as a separator on every system, so that ..\\x climbs out as well."""
    return reference.replace("\\", "/")


def _check_extent(path: Path, element: ElementTree.Element) -> None:
    """Raise HandError for soft bodies, NaN, and numbers that would fill the memory."""
    total, stack = 0, [(element, 1)]
    while stack:
        node, copies = stack.pop()
        total += copies
        if node.tag == "replicate":
            copies *= max(int(_largest(node.get("count", ""))), 1)
        if max(total, copies) > MAX_ELEMENTS:
            raise HandError(f"{path.name} has more than {MAX_ELEMENTS:,} elements, counting replicas")
        if node.tag in _SOFT:
            raise HandError(f"{path.name} has a <{node.tag}>; a hand is made of rigid bodies")
        for key, value in node.attrib.items():
            where = f"{path.name}: {key}={value[:60]!r} of <{node.tag}>"
            if key != "name" and any(map(_NAN.match, value.split())):
                raise HandError(f"{where} is not a number")
            if key in _COUNTS.get(node.tag, ()) and _largest(value) > MAX_COUNT:
                raise HandError(f"{where} is more than {MAX_COUNT:,}")
        stack.extend((child, copies) for child in node)


def _largest(value: str) -> float:
    """The largest of the numbers in an attribute, at most 1e9; 0 for anything else."""
    largest = 0.0
    for token in value.split():
        with contextlib.suppress(ValueError):
            largest = max(largest, min(float(token), 1e9))
    return largest
