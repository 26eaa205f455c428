"""Reading a hand's files: everything it refers to must lie inside its own folder."""

from pathlib import Path
from xml.etree import ElementTree

from fistful.errors import HandError

MAX_XML_BYTES = 20_000_000
"""A hand is kilobytes of XML; anything near this is something else."""


def read_xml(path: Path) -> ElementTree.Element:
    """The root element of an XML file. Reads the file.

    Raises:
      HandError: Too big, not XML, or with a document type (entities can expand without bound).
    """
    size = path.stat().st_size
    if size > MAX_XML_BYTES:
        raise HandError(f"{path.name} has {size:,} bytes; a hand model has at most {MAX_XML_BYTES:,}")
    data = path.read_bytes()
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise HandError(
            f"{path.name} declares a document type; remove <!DOCTYPE ...> (expand xacro or entities first)"
        )
    try:
        return ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise HandError(f"{path.name} is not well-formed XML: {error}") from None


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
    if reference.startswith("package://"):
        package, _, rest = reference.removeprefix("package://").partition("/")
        bases = [f for f in [folder, *folder.parents][:4] if f.name == package] + [root, folder]
        path = next((b / rest for b in bases if (b / rest).is_file()), root / rest)
        root = next((b for b in bases if b.name == package), root)
    elif "://" in reference and not reference.startswith("file://"):
        raise HandError(f"the model refers to {reference!r}; only files beside the model are read")
    else:
        path = folder / reference.removeprefix("file://")
    if not path.resolve().is_relative_to(root.resolve()):
        raise HandError(
            f"the model refers to {reference!r}, outside of its folder {root.name!r}; move it there"
        )
    if not path.is_file():
        raise HandError(f"the model refers to {reference!r}, which does not exist")
    return path


def check_mjcf_references(path: Path) -> None:
    """Raise HandError if an MJCF, or one it includes, refers to a file outside its folder. Reads them."""
    root = asset_root(path)
    _check_mjcf(path, path.resolve().parent, root, seen=[])


def _check_mjcf(path: Path, folder: Path, root: Path, seen: list[Path]) -> None:
    if path.resolve() in seen:
        raise HandError(f"{path.name} includes itself: {' -> '.join(p.name for p in [*seen, path])}")
    seen = [*seen, path.resolve()]
    element = read_xml(path)
    directories = {"meshdir": "", "texturedir": "", "assetdir": ""}
    for compiler in element.iter("compiler"):
        directories |= {k: v for k, v in compiler.attrib.items() if k in directories}
    for node in element.iter():
        reference = node.get("file")
        if reference is None:
            continue
        if node.tag == "include":
            # MuJoCo resolves nested includes against the main model's folder.
            _check_mjcf(resolve(reference, folder=folder, root=root), folder, root, seen)
            continue
        kind = "texturedir" if node.tag == "texture" else "meshdir"
        base = folder / (directories[kind] or directories["assetdir"])
        if not (base / reference).resolve().is_relative_to(root):
            raise HandError(
                f"{path.name} refers to {reference!r}, outside of its folder {root.name!r}; move it there"
            )
