"""Where hands come from: the built-in ones, a described one (TOML), any MJCF or URDF."""

import re
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path

import mujoco

from fistful.errors import CacheError, HandError, UnknownNameError
from fistful.hands.describing import BALL_DIAMETERS_MM, describe, verify_space
from fistful.hands.description import (
    Description,
    file_name,
    parse_description,
    read_description,
    write_description,
    write_text,
)
from fistful.hands.files import check_mjcf, read_self_contained_mjcf, read_xml, resolve
from fistful.hands.hand import Hand, resolve_hand
from fistful.hands.model import MUJOCO_ERRORS, Model, one_line
from fistful.hands.reduction import reduce_model
from fistful.hands.skin import SKIN_VERSION
from fistful.hands.urdf import Imported, read_urdf
from fistful.storage import content_key, default_storage

DEFAULT_MODEL_NAME = "MuJoCo Model"
_BUILTIN = resources.files("fistful.hands") / "builtin"
_DESCRIBER_VERSION = 3
"""Raise it when `describe` may give another result for the same model: old cache entries are then ignored."""


def hand_names() -> tuple[str, ...]:
    """Names of the built-in hands."""
    return tuple(sorted(Path(f.name).stem for f in _BUILTIN.iterdir() if f.name.endswith(".toml")))


def load_hand(
    name_or_path: str | Path, *, use_cache: bool = True, progress: Callable[[str], None] = lambda _: None
) -> Hand:
    """A built-in hand by name, a described hand (.toml), or any MJCF (.xml) or URDF (.urdf).

    A model without a description is described automatically (describing.py).

    Args:
      name_or_path: One of `hand_names()`, or a path.
      use_cache: Whether to keep and reuse automatic descriptions, which take 5-35 s, in the cache folder.
      progress: Called with a line for every step of an automatic description.

    Raises:
      HandError: The file is not a usable hand; says why.
      UnknownNameError: Neither a built-in hand nor a file.
    """
    path = Path(name_or_path).expanduser()
    if len(path.name) > 255:
        raise HandError(f"{path.name[:40]!r}... is too long for a file name")
    if str(name_or_path) in hand_names():
        with resources.as_file(_BUILTIN) as folder:
            return _described(folder / f"{name_or_path}.toml")
    if not path.is_file():
        if path.is_dir():
            raise HandError(f"{str(path)!r} is a folder; name the .xml, .urdf or .toml file in it")
        hint = "`fistful hands` lists the built-in hands; a path to an .xml, .urdf or .toml file works too."
        raise UnknownNameError("hand", str(name_or_path), hand_names(), hint)
    kind = path.suffix.lower()
    if kind == ".toml":
        return _described(path)
    if kind not in (".xml", ".mjcf", ".urdf"):
        raise HandError(f"{path.name} is not a hand file; use .xml (MJCF), .urdf, or .toml (a description)")
    model, import_notes = import_model(path)
    name = _model_name(model.compiled) or path.stem
    description, notes = _describe_cached(model, name, use_cache, progress)
    return resolve_hand(model, description, (*import_notes, *notes))


def import_model(path: Path) -> tuple[Model, tuple[str, ...]]:
    """The mechanics of any MJCF or URDF, and what was changed to get them. Reads files, writes nothing.

    Raises:
      HandError: The file is not a usable hand; says why.
    """
    is_urdf = path.suffix.lower() == ".urdf" or read_xml(path).tag.lower() == "robot"
    imported = read_urdf(path) if is_urdf else _read_mjcf(path)
    reduced = reduce_model(imported.model, _model_name(imported.model) or path.stem)
    return Model.from_mjcf(reduced.mjcf), (*imported.notes, *reduced.notes)


def _model_name(m: mujoco.MjModel) -> str:
    """What the model calls itself, made fit for a file name; empty if it says nothing of its own."""
    name = bytes(m.names).split(b"\0")[0].decode(errors="replace")
    return "" if name == DEFAULT_MODEL_NAME else re.sub(r"[^\w.-]+", "_", name).strip("._-")


def save_hand(hand: Hand, folder: str | Path, name: str | None = None, *, overwrite: bool = False) -> Path:
    """Write NAME.xml and NAME.toml to a folder, to be edited and loaded again; returns the .toml file.

    Raises:
      HandError: One of the files is there already, and `overwrite` is False: it may have been edited.
    """
    name = file_name(name or hand.name)
    folder = Path(folder).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    existing = [f for f in (folder / f"{name}.xml", folder / f"{name}.toml") if f.exists()]
    if existing and not overwrite:
        raise HandError(f"{existing[0]} is there and may have been edited; name another folder, or --force")
    write_text(folder / f"{name}.xml", hand.model.mjcf)
    path = folder / f"{name}.toml"
    write_description(replace(hand.description, name=name, model=f"{name}.xml"), path)
    return path


def check_hand(hand: Hand, progress: Callable[[str], None] = lambda _: None) -> Hand:
    """The hand with the span of every opposition space measured anew; notes say what changed. No I/O."""
    entries, notes = [], list(hand.notes)
    for space, entry in zip(hand.opposition_spaces, hand.description.opposition_spaces, strict=True):
        progress(space.name)
        first, second = (surface.candidates for surface in space.surfaces)
        held = [
            mm
            for mm in BALL_DIAMETERS_MM
            if verify_space(hand.model, first, second, space.joint_mask, mm) is not None
        ]
        span = (min(held), max(held)) if held else None
        if span != entry.span_mm:
            now = f"{span[0]:g}-{span[1]:g} mm" if span else "no size tried"
            notes.append(f"space {space.name!r} now holds balls of {now}")
        entries.append(replace(entry, span_mm=span))
    description = replace(hand.description, opposition_spaces=tuple(entries))
    return resolve_hand(hand.model, description, tuple(notes))


def _described(path: Path) -> Hand:
    description = read_description(path)
    xml = resolve(description.model, folder=path.resolve().parent, root=path.resolve().parent)
    return resolve_hand(Model.from_mjcf(read_self_contained_mjcf(xml)), description)


def _read_mjcf(path: Path) -> Imported:
    """Compile an MJCF. If only its pictures are missing (visual meshes, textures), go on without them."""
    check_mjcf(path)
    # With a relative path MuJoCo does not find what an included file includes.
    file = str(path.resolve())
    try:
        return Imported(mujoco.MjSpec.from_file(file).compile(), ())
    except MUJOCO_ERRORS as error:
        complaint = one_line(error)
    try:
        spec = mujoco.MjSpec.from_file(file)
        # Pictures may have carried all the mass.
        spec.compiler.boundmass, spec.compiler.boundinertia = 1e-6, 1e-12
        for geom in [g for g in spec.geoms if not g.contype and not g.conaffinity]:
            spec.delete(geom)
        used = {g.meshname for g in spec.geoms}
        for asset in [
            *(mesh for mesh in spec.meshes if mesh.name not in used),
            *spec.materials,
            *spec.textures,
        ]:
            spec.delete(asset)
        return Imported(spec.compile(), (f"left out visual geometry, and its mass: {complaint}",))
    except MUJOCO_ERRORS:
        raise HandError(f"MuJoCo can not use {path.name}: {complaint}") from None


def _describe_cached(
    model: Model, name: str, use_cache: bool, progress: Callable[[str], None]
) -> tuple[Description, tuple[str, ...]]:
    """The automatic description, from the cache if it is there, and notes about the cache."""
    if not use_cache:
        return describe(model, name, progress), ()
    storage = default_storage("hands")
    key = content_key(model.mjcf, name, _DESCRIBER_VERSION, SKIN_VERSION)
    found = storage.load(key)
    notes = [found.problem] if found.problem else []
    if found.entry is not None:
        try:
            return parse_description(found.entry.metadata), ()
        except (LookupError, TypeError, ValueError) as error:
            notes.append(f"the cached description is not one ({type(error).__name__}) and was made again")
    description = describe(model, name, progress)
    try:
        storage.store(key, {}, asdict(description))
    except CacheError as error:
        notes.append(str(error))
    return description, tuple(notes)
