"""A mesh file read into two arrays, with nothing repaired yet.

The file is not trusted: its size is checked before it is opened, its content decides what it is, references
that leave its folder are refused, and whatever the parsers throw becomes one MeshError of one line.
"""

import json
import re
import struct
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fistful.errors import MeshError

MAX_FACES = 5_000_000
MAX_BYTES = 1 << 30
# Extensions and the parser's name for them. Archives are left out: unpacking is the user's decision.
_FORMATS = ("obj", "stl", "ply", "off", "glb", "gltf", "dae", "3mf", "3dxml", "xaml", "zae")
_ZIPPED = ("3mf", "3dxml", "zae")


@dataclass(frozen=True, kw_only=True, eq=False)
class RawMesh:
    """Vertices and faces as a file states them."""

    vertices: np.ndarray
    """(V, 3) float64, in the file's units. May hold anything, NaN too."""
    faces: np.ndarray
    """(F, 3) int64, every index within the vertices."""
    units: str | None
    """The unit of length that the file or its format states, as trimesh spells it; None if it states none."""
    built_in: bool = False
    """Generated here rather than read."""
    notes: tuple[str, ...] = ()
    """What was odd about the file, one statement each."""


def read_mesh(path: Path) -> RawMesh:
    """The triangles of a mesh file; scenes are joined with their transforms. Reads files, writes nothing."""
    name = path.name
    data = _bytes(path)
    extension = path.suffix.lower().lstrip(".")
    content = _sniff(data)
    notes = []
    kind = extension
    if (
        content is not None
        and content != extension
        and (content, extension) not in (("zip", k) for k in _ZIPPED)
    ):
        if content not in _FORMATS:
            raise MeshError(f"{name} is a {content} file, not a mesh; unpack or convert it first")
        notes.append(
            f"the file is called .{extension} but holds {content.upper()}; read as {content.upper()}"
        )
        kind = content
    if kind not in _FORMATS:
        raise MeshError(
            f"{name}: unknown mesh format {'.' + kind if kind else '(no extension)'}; use one of {_known()}"
        )
    if kind in _ZIPPED:
        _check_unpacked_size(path)
    if kind in ("glb", "gltf"):
        _check_gltf_counts(name, data)

    resolver = _folder_resolver(path)
    with _one_line_errors(name, kind, resolver.refused):
        vertices, faces, units = _parse(path, kind, resolver)
    if vertices.ndim != 2 or vertices.shape[1] != 3 or faces.ndim != 2 or faces.shape[1] != 3:
        raise MeshError(
            f"{name}: vertices of shape {vertices.shape} are not points in space; export it again"
        )
    if len(faces) == 0:
        what = f"{len(vertices)} points and no faces" if len(vertices) else "no vertices and no faces"
        raise MeshError(f"{name} holds {what}; a closed triangle mesh is needed")
    if len(faces) > MAX_FACES:
        raise MeshError(f"{name} has {len(faces):,} faces, more than {MAX_FACES:,}; simplify it first")
    if faces.min() < 0 or faces.max() >= len(vertices):
        wrong = int(faces.min()) if faces.min() < 0 else int(faces.max())
        raise MeshError(f"{name}: a face refers to vertex {wrong} of {len(vertices)}; export it again")
    return RawMesh(vertices=vertices, faces=faces, units=units, notes=tuple(notes))


def _bytes(path: Path) -> bytes:
    """The content of a regular, non-empty file of bearable size."""
    name = path.name
    try:
        if path.is_dir():
            raise MeshError(f"{path} is a folder, not a mesh file; name a file in it")
        if not path.is_file():
            raise MeshError(f"{path} is not a regular file; copy the mesh to one")
        size = path.stat().st_size
        if size == 0:
            raise MeshError(f"{name} is empty (0 bytes)")
        if size > MAX_BYTES:
            raise MeshError(
                f"{name} has {size / 1e9:.1f} GB, more than {MAX_BYTES / 1e9:.1f} GB; simplify the mesh first"
            )
        return path.read_bytes()
    except OSError as error:
        raise MeshError(f"{path} can not be read: {error.strerror or error}") from error


def _sniff(data: bytes) -> str | None:
    """The format that the first bytes show, or None if they could be several."""
    head = data[:1024].lstrip()
    if data[:4] == b"glTF":
        return "glb"
    if data[:4] == b"PK\x03\x04":
        return "zip"
    if data[:2] == b"\x1f\x8b":
        return "gzip"
    if re.match(rb"ply\s", head):
        return "ply"
    if re.match(rb"(ST)?(C)?(N)?OFF\s", head):
        return "off"
    binary_stl = len(data) >= 84 and len(data) == 84 + 50 * struct.unpack("<I", data[80:84])[0]
    if binary_stl or (re.match(rb"solid\b", head) and b"facet" in data[:4096]):
        return "stl"
    if head.startswith(b"{") and b'"asset"' in data:
        return "gltf"
    if re.match(rb"(#.*\n\s*)*(v|o|g|mtllib|usemtl)\s", head):
        return "obj"
    return None


def _known() -> str:
    import trimesh

    return ", ".join(k for k in _FORMATS if k in trimesh.available_formats())


def _parse(path: Path, kind: str, resolver: Any) -> tuple[np.ndarray, np.ndarray, str | None]:
    import trimesh

    if kind not in trimesh.available_formats():
        raise MeshError(
            f"reading .{kind} needs `pip install fistful[formats]`; or convert it to one of {_known()}"
        )
    with path.open("rb") as file:
        scene = trimesh.load_scene(
            file, file_type=kind, resolver=resolver, process=False, skip_materials=True
        )
    meshes = {k: g for k, g in scene.geometry.items() if isinstance(g, trimesh.Trimesh) and len(g.faces)}
    if not meshes:
        loose = sum(len(getattr(g, "vertices", ())) for g in scene.geometry.values())
        return np.zeros((loose, 3)), np.zeros((0, 3), np.int64), None
    placed = [scene.graph[node] for node in scene.graph.nodes_geometry]
    total = sum(len(meshes[key].faces) for _, key in placed if key in meshes)
    if total > MAX_FACES:
        raise MeshError(f"{path.name} has {total:,} faces, more than {MAX_FACES:,}; simplify it first")
    vertices, faces, count = [], [], 0
    for transform, key in placed:
        if key not in meshes:
            continue
        mesh = meshes[key]
        points = np.asarray(mesh.vertices, float)
        triangles = np.asarray(mesh.faces, np.int64)
        if not np.array_equal(transform, np.eye(4)):
            points = points @ transform[:3, :3].T + transform[:3, 3]
            if np.linalg.det(transform[:3, :3]) < 0:  # A mirror turns every face inside out.
                triangles = triangles[:, ::-1]
        vertices.append(points)
        faces.append(triangles + count)
        count += len(points)
    if not vertices:
        return np.zeros((0, 3)), np.zeros((0, 3), np.int64), None
    # Plain arrays: trimesh's own remember every change, which costs time.
    joined = np.concatenate(vertices).view(np.ndarray), np.concatenate(faces).view(np.ndarray)
    return *joined, scene.units


@contextmanager
def _one_line_errors(name: str, kind: str, refused: list[str]) -> Iterator[None]:
    """Turn whatever a parser raises into a MeshError, and keep its log and warnings off the screen."""
    from trimesh.util import log

    before = log.disabled
    log.disabled = True
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    except MeshError:
        raise
    except Exception as error:
        if refused:
            raise MeshError(
                f"{name} refers to {refused[0]!r}, which is not a file in its own folder"
            ) from error
        if isinstance(error, ImportError):
            # The parser gave up and wanted a package that guesses text encodings.
            raise MeshError(f"{name} is damaged or not {kind.upper()} at all; export it again") from error
        lines = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {lines[0][:120]}" if lines else type(error).__name__
        raise MeshError(
            f"{name} is not a readable {kind.upper()} file ({reason}); export it again"
        ) from error
    finally:
        log.disabled = before


def _folder_resolver(path: Path) -> Any:
    """A resolver that opens files beside the mesh or below, and remembers what it refused.

    trimesh's own would fall back from '../a/b.bin' to a 'b.bin' in the folder; we would rather know.
    """
    from trimesh.resolvers import Resolver

    class FolderResolver(Resolver):
        def __init__(self):
            self.refused: list[str] = []

        def get(self, key: str) -> bytes:
            folder = path.parent.resolve()
            target = (folder / str(key).strip()).resolve()
            if not target.is_relative_to(folder) or not target.is_file() or target.stat().st_size > MAX_BYTES:
                self.refused.append(str(key)[:80])
                raise FileNotFoundError(str(key)[:80])
            return target.read_bytes()

        def write(self, name: str, data: object) -> None:
            raise PermissionError("a mesh is only read")

        def namespaced(self, namespace: str) -> Resolver:
            return self

        def keys(self) -> tuple[str, ...]:
            return ()

    return FolderResolver()


def _check_unpacked_size(path: Path) -> None:
    """Refuse a zipped format that unpacks to more than the limit, before anything is unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            total = sum(item.file_size for item in archive.infolist())
    except Exception as error:
        raise MeshError(
            f"{path.name} is not a readable {path.suffix.lstrip('.').upper()} file (bad archive)"
        ) from error
    if total > MAX_BYTES:
        raise MeshError(f"{path.name} unpacks to {total / 1e9:.1f} GB, more than {MAX_BYTES / 1e9:.1f} GB")


def _check_gltf_counts(name: str, data: bytes) -> None:
    """Refuse a glTF that claims too many numbers: an accessor need not have any data behind it."""
    try:
        text = data
        if data[:4] == b"glTF":
            length = struct.unpack("<I", data[12:16])[0]
            text = data[20 : 20 + length]
        tree = json.loads(text)
        claimed = sum(int(accessor["count"]) for accessor in tree.get("accessors", []))
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise MeshError(f"{name} is not a readable glTF file ({reason}); export it again") from error
    if claimed > 12 * MAX_FACES:
        raise MeshError(f"{name} claims {claimed:,} numbers, more than {12 * MAX_FACES:,}; simplify it first")
