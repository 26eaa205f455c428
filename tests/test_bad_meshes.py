"""Broken mesh files: each gives one line of error or a stated repair; no other exception, no hang."""

import base64
import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import trimesh
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fistful.errors import MeshError, UnknownNameError
from fistful.objects.inspection import inspect_mesh
from fistful.objects.object import load_object
from fistful.objects.reading import read_mesh


def box(side: float = 0.05) -> trimesh.Trimesh:
    return trimesh.creation.box((side, side * 0.8, side * 0.6))


def ball(radius: float = 0.03, subdivisions: int = 3) -> trimesh.Trimesh:
    return trimesh.creation.icosphere(subdivisions=subdivisions, radius=radius)


def save(path: Path, mesh: trimesh.Trimesh) -> Path:
    mesh.export(path)
    return path


def obj(path: Path, vertices, faces) -> Path:
    """Write the numbers as they are, which trimesh's exporter would not do with NaN."""
    lines = ["v " + " ".join(str(x) for x in v) for v in np.asarray(vertices)]
    lines += ["f " + " ".join(str(i + 1) for i in f) for f in np.asarray(faces)]
    path.write_text("\n".join(lines) + "\n")
    return path


def binary_stl(path: Path, triangles: np.ndarray) -> Path:
    """Write (F, 3, 3) triangles; 50 bytes each."""
    record = np.zeros(len(triangles), dtype=[("n", "<3f4"), ("v", "<9f4"), ("a", "<u2")])
    record["v"] = triangles.reshape(-1, 9)
    path.write_bytes(b"\0" * 80 + struct.pack("<I", len(triangles)) + record.tobytes())
    return path


def inspect(path: Path, **options):
    return inspect_mesh(read_mesh(path), **options)


def gltf(path: Path, uri: str) -> Path:
    mesh = box()
    blob = mesh.vertices.astype("<f4").tobytes() + mesh.faces.astype("<u4").tobytes()
    tree = {
        "asset": {"version": "2.0"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1}]}],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": len(mesh.vertices), "type": "VEC3"},
            {"bufferView": 1, "componentType": 5125, "count": 3 * len(mesh.faces), "type": "SCALAR"},
        ],
        "bufferViews": [
            {"buffer": 0, "byteOffset": 0, "byteLength": 96},
            {"buffer": 0, "byteOffset": 96, "byteLength": len(blob) - 96},
        ],
        "buffers": [{"uri": uri, "byteLength": len(blob)}],
    }
    path.write_text(json.dumps(tree))
    return path


def gltf_blob() -> bytes:
    mesh = box()
    return mesh.vertices.astype("<f4").tobytes() + mesh.faces.astype("<u4").tobytes()


# --- files that can not be used: a builder, and words that the one line must contain ---


def _nan(folder):
    vertices = box().vertices.copy()
    vertices[3] = np.nan
    return obj(folder / "a.obj", vertices, box().faces)


def _infinite(folder):
    vertices = box().vertices.copy()
    vertices[0, 0] = np.inf
    return obj(folder / "a.obj", vertices, box().faces)


def _half_sphere(folder):
    mesh = ball()
    keep = mesh.triangles_center[:, 2] > 0
    return obj(folder / "a.obj", mesh.vertices, mesh.faces[keep])


def _square(folder):
    corners = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]) * 0.1
    return obj(folder / "a.obj", corners, [[0, 1, 2], [0, 2, 3], [2, 1, 0], [3, 2, 0]])


def _text(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


def _bytes(folder, name, data):
    (folder / name).write_bytes(data)
    return folder / name


def _truncated(folder, name, share=0.6):
    whole = save(folder / name, ball()).read_bytes()
    return _bytes(folder, name, whole[: int(len(whole) * share)])


def _mobius(folder):
    n = 24
    angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
    rows = []
    for side in (-1, 1):
        width = 0.01 * side * np.cos(angle / 2)
        radius = 0.04 + width
        rows.append(np.c_[radius * np.cos(angle), radius * np.sin(angle), 0.01 * side * np.sin(angle / 2)])
    faces = []
    for i in range(n):
        j = (i + 1) % n
        a, b = i, n + i
        c, d = (j, n + j) if j else (n, 0)
        faces += [(a, b, c), (b, d, c)]
    return obj(folder / "a.obj", np.concatenate(rows), faces)


def _soup(folder):
    rng = np.random.default_rng(0)
    triangles = rng.uniform(0, 0.1, (60_000, 1, 3)) + rng.uniform(-0.001, 0.001, (60_000, 3, 3))
    return binary_stl(folder / "a.stl", triangles)


def _swarm(folder):
    """Three thousand separate little boxes."""
    corner = np.array([(i, j, k) for i in range(15) for j in range(15) for k in range(14)]) * 0.005
    triangles = box(0.004).triangles[None] + corner[:, None, None, :]
    return binary_stl(folder / "a.stl", triangles.reshape(-1, 3, 3))


def _bad_index(folder):
    return _text(folder, "a.off", "OFF\n3 1 0\n0 0 0\n0.1 0 0\n0 0.1 0\n3 0 1 7\n")


def _endless_gltf(folder):
    tree = {
        "asset": {"version": "2.0"},
        "accessors": [{"count": 10**12, "componentType": 5126, "type": "VEC3"}],
    }
    return _text(folder, "a.gltf", json.dumps(tree))


def _climbing(folder, uri):
    inner = folder / "inner"
    inner.mkdir()
    (folder / "secret.bin").write_bytes(gltf_blob())
    return gltf(inner / "a.gltf", uri)


def _linked(folder):
    """A link inside the folder that leads out of it."""
    path = _climbing(folder, "link.bin")
    (path.parent / "link.bin").symlink_to(folder / "secret.bin")
    return path


def _fifo(folder):
    os.mkfifo(folder / "a.stl")
    return folder / "a.stl"


def _huge_file(folder):
    with (folder / "a.stl").open("wb") as file:
        file.truncate(3 << 30)  # Sparse: three gigabytes that take no space.
    return folder / "a.stl"


UNUSABLE = {
    "empty file": (lambda d: _text(d, "a.obj", ""), "empty"),
    "only spaces": (lambda d: _text(d, "a.obj", "  \n \n"), ""),
    "NaN": (_nan, "not finite"),
    "infinite": (_infinite, "not finite"),
    "single triangle": (lambda d: obj(d / "a.obj", np.eye(3) * 0.1, [[0, 1, 2]]), "not closed"),
    "open half": (_half_sphere, "not closed"),
    "box without a side": (lambda d: obj(d / "a.obj", box().vertices, box().faces[2:]), "not closed"),
    "flat square, both sides": (_square, "not closed"),
    "zero volume": (lambda d: obj(d / "a.obj", box().vertices * [1, 1, 0], box().faces), "volume"),
    "one point": (lambda d: obj(d / "a.obj", np.ones((8, 3)), box().faces), "coincide"),
    "faces of one vertex": (lambda d: obj(d / "a.obj", box().vertices, [[1, 1, 2], [3, 3, 3]]), "zero area"),
    "Moebius strip": (_mobius, "one side"),
    "triangle soup": (_soup, "open edges"),
    "too many bodies": (_swarm, "bodies"),
    "unclear units (8)": (lambda d: save(d / "a.obj", box(8.0)), "--units"),
    "microscopic": (lambda d: save(d / "a.ply", box(1e-4)), "--units"),
    "gigantic": (lambda d: save(d / "a.ply", box(1e6)), "--units"),
    "absurd coordinates": (lambda d: obj(d / "a.obj", box().vertices * 1e300, box().faces), "coordinates"),
    "truncated STL": (lambda d: _truncated(d, "a.stl"), ""),
    "truncated PLY": (lambda d: _truncated(d, "a.ply"), ""),
    "truncated OBJ": (lambda d: _truncated(d, "a.obj", 0.7), ""),
    "truncated GLB": (lambda d: _truncated(d, "a.glb"), ""),
    "truncated OFF": (lambda d: _truncated(d, "a.off"), ""),
    "random bytes": (lambda d: _bytes(d, "a.stl", np.random.default_rng(1).bytes(5000)), "a.stl"),
    "random bytes, GLB": (lambda d: _bytes(d, "a.glb", b"glTF" + np.random.default_rng(1).bytes(900)), ""),
    "prose": (lambda d: _text(d, "a.obj", "Dear reader,\nthis is not a mesh.\n"), ""),
    "prose as STL": (lambda d: _text(d, "a.stl", "Dear reader,\nthis is not a mesh.\n"), ""),
    "picture": (lambda d: _bytes(d, "a.png", b"\x89PNG\r\n\x1a\n" + b"\0" * 100), "unknown mesh format"),
    "zip archive": (lambda d: _bytes(d, "a.stl", b"PK\x03\x04" + b"\0" * 100), "zip"),
    "no extension": (lambda d: _bytes(d, "mesh", b"\x01\x02\x03" * 100), "no extension"),
    "folder": (lambda d: d, "folder"),
    "pipe": (_fifo, "regular file"),
    "three gigabytes": (_huge_file, "GB"),
    "point cloud": (lambda d: save(d / "a.ply", trimesh.PointCloud(np.eye(3))), "no faces"),
    "face beyond the vertices": (_bad_index, ""),
    "glTF that climbs out": (lambda d: _climbing(d, "../secret.bin"), "../secret.bin"),
    "glTF with an absolute path": (lambda d: _climbing(d, str(d / "secret.bin")), "folder"),
    "glTF with a URL": (lambda d: _climbing(d, "https://example.invalid/a.bin"), "folder"),
    "glTF through a link": (_linked, "folder"),
    "glTF without end": (_endless_gltf, "claims"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_unusable_file_gives_one_line(case, tmp_path):
    build, words = UNUSABLE[case]
    path = build(tmp_path)
    with pytest.raises(MeshError) as caught:
        inspect(path)
    message = str(caught.value)
    assert words in message
    assert message.strip()
    assert "\n" not in message
    assert len(message) < 300


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="this user may read every file")
def test_unreadable_file(tmp_path):
    path = save(tmp_path / "a.stl", box())
    path.chmod(0)
    with pytest.raises(MeshError, match="can not be read"):
        inspect(path)


@pytest.mark.parametrize("name", ["no-such-object", "missing/file.stl", "x" * 5000, "nul\0byte", ""])
def test_missing_object_names_what_would_have_worked(name):
    with pytest.raises((UnknownNameError, MeshError)) as caught:
        load_object(name)
    assert "\n" not in str(caught.value)


def test_errors_of_load_object_name_the_object(tmp_path, monkeypatch):
    monkeypatch.setenv("FISTFUL_CACHE", str(tmp_path / "cache"))
    with pytest.raises(MeshError, match=r"^a: .*--units"):
        load_object(save(tmp_path / "a.obj", box(8.0)))


# --- files that can be mended: a builder, words of the report, and the volume that must come out ---


def _unused_nan(folder):
    vertices = [*box().vertices.tolist(), ["nan"] * 3]
    lines = ["OFF", f"{len(vertices)} 12 0", *(" ".join(map(str, v)) for v in vertices)]
    return _text(folder, "a.off", "\n".join(lines + ["3 {} {} {}".format(*f) for f in box().faces]))


def _inconsistent(folder):
    mesh = ball()
    faces = mesh.faces.copy()
    faces[::5] = faces[::5, ::-1]
    return obj(folder / "a.obj", mesh.vertices, faces)


def _fin(folder):
    a, b = box().faces[0][:2]
    tip = box().vertices[[a, b]].mean(axis=0) * 1.02
    return obj(folder / "a.obj", [*box().vertices, tip], [*box().faces, [a, b, 8]])


def _open_bottom(folder):
    mesh = trimesh.creation.cylinder(radius=0.03, height=0.1)
    return obj(folder / "a.obj", mesh.vertices, mesh.faces[mesh.face_normals[:, 2] > -0.5])


def _cracked(folder):
    """Every triangle of a ball moved by a tenth of a micrometre: no two corners coincide any more."""
    jitter = np.random.default_rng(0).uniform(-1e-7, 1e-7, (len(ball().faces), 3, 3))
    corners = ball().triangles + jitter
    return obj(folder / "a.obj", corners.reshape(-1, 3), np.arange(3 * len(corners)).reshape(-1, 3))


def _joined(folder, *meshes):
    return save(folder / "a.obj", trimesh.util.concatenate(meshes))


def _moved(mesh, x):
    mesh.apply_translation((x, 0, 0))
    return mesh


def _inverted(mesh):
    mesh.invert()
    return mesh


def _twins():
    """Two boxes with one side in common."""
    a = trimesh.creation.box((0.04, 0.04, 0.04))
    return a, _moved(a.copy(), 0.04)


def _mirror_twins():
    """A box and its picture in a mirror at its side x = 0.02: the triangles there are the same."""
    mesh = trimesh.creation.box((0.04, 0.04, 0.04))
    vertices = mesh.vertices * [-1, 1, 1] + [0.04, 0, 0]
    return mesh, trimesh.Trimesh(vertices, mesh.faces[:, ::-1], process=False)


def _merged(*meshes):
    mesh = trimesh.util.concatenate(meshes)
    vertices, group = np.unique(mesh.vertices.round(9), axis=0, return_inverse=True)
    return vertices, group.reshape(-1)[mesh.faces]


def _renamed(folder, written, called):
    path = save(folder / written, box())
    return path.rename(folder / called)


def _with_faces(folder, extra):
    return obj(folder / "a.obj", box().vertices, np.r_[box().faces, extra])


def _overlapping(folder):
    return _joined(folder, trimesh.creation.box([0.04] * 3), _moved(trimesh.creation.box([0.04] * 3), 0.02))


def _stray(folder):
    return _joined(folder, ball(), trimesh.Trimesh(np.eye(3) * 0.001 + 0.04, [[0, 1, 2]], process=False))


BOX = 0.05**3 * 0.48
CAN = float(trimesh.creation.cylinder(radius=0.03, height=0.1).volume)
TWINS = 2 * 0.04**3
HOLLOW = float(ball().volume) * (1 - 0.125)
BALL = float(ball().volume)
MENDABLE = {
    "inverted": (lambda d: obj(d / "a.obj", box().vertices, box().faces[:, ::-1]), "outward", BOX),
    "inconsistent winding": (_inconsistent, "agree with their neighbours", BALL),
    "non-manifold fin": (_fin, "non-manifold", BOX),
    "NaN in an unused vertex": (_unused_nan, "not finite", BOX),
    "unmerged": (lambda d: save(d / "a.stl", ball()), "merged", BALL),
    "cracked": (_cracked, "merged", BALL),
    "duplicated faces": (lambda d: _with_faces(d, box().faces[:5]), "duplicate", BOX),
    "both sides of every face": (lambda d: _with_faces(d, box().faces[:, ::-1]), "duplicate", BOX),
    "degenerate faces": (lambda d: _with_faces(d, [[0, 0, 1]]), "degenerate", BOX),
    "open bottom": (_open_bottom, "closed 1 hole", CAN),
    "millimetres": (lambda d: save(d / "a.obj", box(50.0)), "millimetres", BOX),
    "wrong extension": (lambda d: _renamed(d, "a.ply", "b.stl"), "holds PLY", BOX),
    "PLY without extension": (lambda d: _renamed(d, "a.ply", "b"), "holds PLY", BOX),
    "overlapping bodies": (_overlapping, "united", 0.06 * 0.04**2),
    "body within a body": (lambda d: _joined(d, ball(), ball(0.01)), "united", BALL),
    "disjoint bodies": (lambda d: _joined(d, ball(), _moved(ball(), 0.1)), "rigidly joined", 2 * BALL),
    "cavity": (lambda d: _joined(d, ball(), _inverted(ball(0.015))), "cavity", HOLLOW),
    "cavity, all inside out": (lambda d: _joined(d, _inverted(ball()), ball(0.015)), "cavity", HOLLOW),
    "touching boxes": (lambda d: _joined(d, *_twins()), "united", TWINS),
    "touching boxes, merged": (lambda d: obj(d / "a.obj", *_merged(*_twins())), "non-manifold", TWINS),
    "double wall": (lambda d: obj(d / "a.obj", *_merged(*_mirror_twins())), "double walls", TWINS),
    "debris": (lambda d: _joined(d, ball(), _moved(ball(0.001, 1), 0.05)), "debris", BALL),
    "stray triangle": (_stray, "scrap", BALL),
}


@pytest.mark.parametrize("case", MENDABLE)
def test_mendable_file_is_mended_and_says_so(case, tmp_path):
    build, words, volume = MENDABLE[case]
    vertices, faces, report = inspect(build(tmp_path))
    assert words in str(report)
    assert report.volume_m3 == pytest.approx(volume, rel=2e-3)
    mesh = trimesh.Trimesh(vertices, faces, process=False)
    assert mesh.volume == pytest.approx(report.volume_m3)
    if case != "touching boxes, merged":  # Its edges have four faces; it is closed, but no manifold.
        assert mesh.is_watertight
        assert mesh.is_winding_consistent


def test_sound_file_is_left_alone(tmp_path):
    mesh = ball()
    vertices, faces, report = inspect(obj(tmp_path / "a.obj", mesh.vertices, mesh.faces))
    assert report.found == ()
    assert report.mended == ()
    np.testing.assert_array_equal(vertices, mesh.vertices)
    np.testing.assert_array_equal(faces, mesh.faces)
    assert (report.bodies, report.cavities, report.self_intersections, report.scale) == (1, 0, 0, 1.0)


def test_self_intersection_is_counted(tmp_path):
    """A torus whose tube is thicker than its radius crosses itself in the middle."""
    mesh = trimesh.creation.torus(0.02, 0.025, 32, 24)
    report = inspect(save(tmp_path / "a.obj", mesh)).report
    assert report.self_intersections > 0
    assert "crosses itself" in str(report)


@pytest.mark.parametrize(("units", "side"), [("m", 0.05), ("cm", 5.0), ("mm", 50.0), ("in", 0.05 / 0.0254)])
def test_units_given_by_the_user(units, side, tmp_path):
    report = inspect(save(tmp_path / "a.obj", box(side)), units=units).report
    assert max(report.extents_m) == pytest.approx(0.05)


def test_units_that_make_no_sense(tmp_path):
    path = save(tmp_path / "a.obj", box(0.05))
    with pytest.raises(MeshError, match=r"0\.05 mm = 5e-05 m"):
        inspect(path, units="mm")
    with pytest.raises(MeshError, match=r"furlong.*auto, m, cm, mm, in"):
        inspect(path, units="furlong")


def test_units_stated_by_the_file(tmp_path):
    """glTF is in metres by its specification, so 50 is not taken for millimetres."""
    with pytest.raises(MeshError, match=r"states meters.*--units"):
        inspect(save(tmp_path / "a.glb", box(50.0)))
    assert inspect(tmp_path / "a.glb", units="mm").report.volume_m3 == pytest.approx(BOX)


def test_scene_is_joined_with_its_transforms(tmp_path):
    scene = trimesh.Scene()
    scene.add_geometry(ball(), transform=trimesh.transformations.translation_matrix((0.1, 0, 0)))
    scene.add_geometry(ball(), transform=np.diag([-1.0, 1.0, 1.0, 1.0]))
    scene.export(tmp_path / "a.glb")
    vertices, _, report = inspect(tmp_path / "a.glb")
    assert report.bodies == 2
    assert report.volume_m3 == pytest.approx(2 * BALL, rel=1e-5)
    np.testing.assert_allclose(vertices.max(axis=0), (0.13, 0.03, 0.03), atol=1e-6)


def test_gltf_with_a_buffer_beside_it_or_inside_it(tmp_path):
    (tmp_path / "near.bin").write_bytes(gltf_blob())
    data = "data:application/octet-stream;base64," + base64.b64encode(gltf_blob()).decode()
    for uri in ("near.bin", data):
        assert inspect(gltf(tmp_path / "a.gltf", uri)).report.volume_m3 == pytest.approx(BOX)


def test_material_references_are_not_followed(tmp_path):
    path = save(tmp_path / "a.obj", box())
    path.write_text("mtllib ../../secret.mtl\nusemtl a\n" + path.read_text())
    assert inspect(path).report.volume_m3 == pytest.approx(BOX)


def test_two_million_faces_are_simplified(tmp_path):
    mesh = ball(0.04, 5)  # 20,480 faces, each split into 100 coplanar ones.
    n = 10
    steps = [(i, j) for i in range(n) for j in range(n - i)]
    a, b, c = np.moveaxis(mesh.triangles, 1, 0)
    u, v = (b - a) / n, (c - a) / n
    corner = [a + i * u + j * v for i, j in steps]
    up = [np.stack([p, p + u, p + v], 1) for p in corner]
    down = [
        np.stack([p + u, p + u + v, p + v], 1)
        for p, (i, j) in zip(corner, steps, strict=True)
        if i + j < n - 1
    ]
    path = binary_stl(tmp_path / "a.stl", np.concatenate(up + down))
    _, faces, report = inspect(path)
    assert "2,048,000 faces" in str(report)
    assert "simplified to" in str(report)
    assert 1000 < len(faces) <= 200_000
    assert report.volume_m3 == pytest.approx(mesh.volume, rel=1e-3)


# --- fuzzing ---

SEEDS: dict[str, bytes] = {}
for _kind in ("obj", "stl", "ply", "off", "glb", "gltf", "stl_ascii", "ply_ascii"):
    if _kind == "gltf":
        continue
    _mesh = trimesh.creation.icosphere(subdivisions=1, radius=0.03)
    if _kind == "ply_ascii":
        SEEDS[_kind] = _mesh.export(file_type="ply", encoding="ascii")
    else:
        _data = _mesh.export(file_type=_kind)
        SEEDS[_kind] = _data.encode() if isinstance(_data, str) else _data


@st.composite
def mutated(draw):
    kind = draw(st.sampled_from(sorted(SEEDS)))
    data = bytearray(SEEDS[kind])
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.sampled_from(["set", "cut", "insert", "drop", "repeat"])):
            case "set":
                data[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case "cut":
                del data[at:]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
            case "drop":
                del data[at : at + draw(st.integers(1, 40))]
            case "repeat":
                data[at:at] = data[at : at + 30]
    return kind, bytes(data)


@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(mutated())
def test_damaged_bytes_give_a_closed_mesh_or_one_line(tmp_path_factory, case):
    kind, data = case
    path = tmp_path_factory.getbasetemp() / f"fuzz-{os.getpid()}.{kind.split('_')[0]}"
    path.write_bytes(data)
    try:
        vertices, faces, report = inspect(path)
    except MeshError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 400
    else:
        assert np.isfinite(vertices).all()
        assert report.volume_m3 > 0
        assert trimesh.Trimesh(vertices, faces, process=False).is_winding_consistent
