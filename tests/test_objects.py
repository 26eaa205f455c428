"""Objects made ready: scale, distance field, samples, hull, mass, and the cache they come from."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import trimesh

from fistful.errors import MeshError, UnknownNameError
from fistful.geometry.mesh_distance import signed_distance
from fistful.geometry.sampling import farthest_points
from fistful.objects import MeshReport, Object, load_object, object_names
from fistful.objects.inspection import inspect_mesh
from fistful.objects.object import RESCALE, _surface_samples
from fistful.objects.reading import RawMesh, read_mesh

SMALL = 20_000  # Voxels; enough wherever the accuracy of the field is not the subject.
HERE = Path(__file__).resolve().parent
ASSETS = Path(os.environ.get("FISTFUL_ASSETS", HERE.parent.parent / "shared" / "assets")) / "objects"
MESHES = sorted(ASSETS.glob("*.obj"))
# Thin shells and the largest: tested rescaled too. The benchmark measures all of them in both ways.
HARD = (
    "ycb_bowl",
    "ycb_hammer",
    "ycb_a_cups",
    "ycb_scissors",
    "gso_ecoforms_plant_pot_gp9_sand",
    "ycb_peach",
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("FISTFUL_CACHE", str(folder))
    return folder / "objects"


@pytest.fixture
def torus(tmp_path):
    path = tmp_path / "torus.obj"
    trimesh.creation.torus(0.03, 0.01, 40, 24).export(path)
    return path


def arrays(thing: Object) -> dict[str, np.ndarray]:
    return {
        "vertices": thing.vertices,
        "faces": thing.faces,
        "values": thing.sdf.values,
        "gradients": thing.sdf.gradients,
        "origin": thing.sdf.origin,
        "points": thing.surface_points,
        "normals": thing.surface_normals,
        "hull": thing.hull_vertices,
        "hull_faces": thing.hull_faces,
        "com": thing.mass_properties.com_O,
        "inertia": thing.mass_properties.inertia_O,
    }


def assert_same(a: Object, b: Object) -> None:
    for name, array in arrays(a).items():
        np.testing.assert_array_equal(array, arrays(b)[name], err_msg=name)
    assert a.report == b.report
    assert a.sdf_error == b.sdf_error
    assert a.sdf.spacing == b.sdf.spacing
    assert a.name == b.name


# --- what an object holds ---


def test_object_is_ready(torus):
    thing = load_object(torus, voxels=SMALL)
    assert thing.name == "torus"
    assert thing.scale == 1.0
    assert isinstance(thing.report, MeshReport)
    assert thing.mesh.is_volume
    assert thing.surface_points.shape == thing.surface_normals.shape == (2048, 3)
    assert len(np.unique(thing.surface_points, axis=0)) == 2048
    on_surface, _ = signed_distance(thing.vertices, thing.faces, thing.surface_points)
    assert np.abs(on_surface).max() < 1e-7
    above, _ = signed_distance(
        thing.vertices, thing.faces, thing.surface_points + 1e-3 * thing.surface_normals
    )
    np.testing.assert_allclose(above, 1e-3, rtol=0.05)
    for array in arrays(thing).values():
        assert not array.flags.writeable


def test_object_does_not_depend_on_chance(torus):
    assert_same(
        load_object(torus, use_cache=False, voxels=SMALL), load_object(torus, use_cache=False, voxels=SMALL)
    )


def test_surface_samples_are_uniform():
    """Counts per face against area, and every point in its triangle."""
    vertices = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [3, 3, 1.0]])
    faces = np.array([[0, 1, 2], [1, 3, 2], [0, 1, 1]])
    points, normals = _surface_samples(vertices, faces, 20_000, np.random.default_rng(0))
    flat = np.abs(points[:, 2]) < 1e-12
    area = [np.linalg.norm(np.cross(*(vertices[f[1:]] - vertices[f[0]]))) / 2 for f in faces]
    assert flat.mean() == pytest.approx(area[0] / sum(area), abs=0.01)
    np.testing.assert_allclose(points[flat].mean(axis=0), (1 / 3, 1 / 3, 0), atol=0.01)
    assert (points[flat, :2].sum(axis=1) <= 1 + 1e-12).all()
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1)


def test_farthest_points_against_a_naive_version():
    points = np.random.default_rng(0).normal(size=(200, 3))
    chosen = [0]
    while len(chosen) < 40:
        gap = np.linalg.norm(points[:, None] - points[chosen][None], axis=2).min(axis=1)
        chosen.append(int(np.argmax(gap)))
    np.testing.assert_array_equal(farthest_points(points, 40), chosen)


def test_mass_of_a_box_in_closed_form(tmp_path):
    a, b, c = 0.06, 0.04, 0.02
    mesh = trimesh.creation.box((a, b, c))
    mesh.apply_translation((0.1, -0.2, 0.3))
    mesh.export(tmp_path / "box.ply")
    mass = load_object(tmp_path / "box.ply", voxels=SMALL).mass_properties.at_density(500.0)
    assert mass.volume_m3 == pytest.approx(a * b * c)
    assert mass.mass == pytest.approx(500 * a * b * c)
    np.testing.assert_allclose(mass.com_O, (0.1, -0.2, 0.3), atol=1e-8)
    expected = mass.mass / 12 * np.diag([b * b + c * c, a * a + c * c, a * a + b * b])
    np.testing.assert_allclose(mass.inertia_O, expected, atol=1e-5 * expected.max())


def test_mass_of_a_hollow_ball(tmp_path):
    outer, inner = trimesh.creation.icosphere(5, 0.04), trimesh.creation.icosphere(5, 0.02)
    inner.invert()
    trimesh.util.concatenate(outer, inner).export(tmp_path / "a.ply")
    mass = load_object(tmp_path / "a.ply", voxels=SMALL).mass_properties
    expected = 8 / 15 * np.pi * (0.04**5 - 0.02**5)
    np.testing.assert_allclose(mass.inertia_O, expected * np.eye(3), atol=5e-3 * expected)
    with pytest.raises(ValueError, match="density -1"):
        mass.at_density(-1)


def test_hull_is_convex_outward_and_inflates_radially(torus):
    thing = load_object(torus, voxels=SMALL)
    hull = trimesh.Trimesh(thing.hull_vertices, thing.hull_faces, process=False)
    assert hull.is_volume
    assert hull.volume == pytest.approx(thing.mesh.convex_hull.volume)
    vertices, faces = thing.inflated_hull(0.2)
    inflated = trimesh.Trimesh(vertices, faces, process=False)
    assert inflated.is_volume
    moved = np.linalg.norm(vertices - thing.hull_vertices, axis=1)
    np.testing.assert_allclose(moved, 0.2)
    centre = thing.hull_vertices.mean(axis=0)
    np.testing.assert_allclose(np.cross(vertices - centre, thing.hull_vertices - centre), 0, atol=1e-12)
    np.testing.assert_array_equal(thing.inflated_hull()[0], vertices)


# --- names, units, scale ---


def test_every_builtin_object_has_a_name_and_loads():
    assert len(object_names()) >= 16
    thing = load_object(object_names()[0], voxels=SMALL)
    assert thing.name == object_names()[0]
    assert thing.scale == 1.0
    assert thing.mesh.is_volume


def test_unknown_name_suggests_the_nearest():
    name = max(object_names(), key=len)
    with pytest.raises(UnknownNameError, match=f"Did you mean '{name}'"):
        load_object(name + "x")


@pytest.mark.parametrize(("side", "expected"), [(0.03, 0.06), (0.08, 0.08), (0.30, 0.10), (30.0, 0.06)])
def test_rescale_to_the_nearer_end(tmp_path, side, expected):
    trimesh.creation.box((side, side / 2, side / 3)).export(tmp_path / "a.ply")
    thing = load_object(tmp_path / "a.ply", rescale=True, voxels=SMALL)
    assert thing.mesh.extents.max() == pytest.approx(expected)
    assert thing.scale == pytest.approx(expected / side)
    assert ("rescaled" in str(thing.report)) == (expected != side)


# --- cache ---


def test_second_load_comes_from_the_cache(torus, cache, monkeypatch):
    first = load_object(torus, voxels=SMALL)
    assert len(list(cache.glob("*.npz"))) == 1
    monkeypatch.setattr("fistful.objects.object._prepare", None)  # Must not be needed any more.
    assert_same(first, load_object(torus, voxels=SMALL))


def test_options_and_content_have_entries_of_their_own(torus, cache):
    load_object(torus, voxels=SMALL)
    load_object(torus, voxels=SMALL + 1)
    load_object(torus, voxels=SMALL, rescale=True)
    load_object(torus, voxels=SMALL, units="m")
    torus.write_text(torus.read_text().replace("v 0.0", "v 0.00000001", 1))
    load_object(torus, voxels=SMALL)
    assert len(list(cache.glob("*.npz"))) == 5


@pytest.mark.parametrize("damage", ["truncate", "flip", "garbage"])
def test_damaged_entry_is_reported_and_made_again(torus, cache, damage):
    first = load_object(torus, voxels=SMALL)
    (path,) = cache.glob("*.npz")
    body = bytearray(path.read_bytes())
    match damage:
        case "truncate":
            body = body[: len(body) // 2]
        case "flip":
            body[len(body) // 2] ^= 4
        case "garbage":
            body = bytearray(b"not a zip file")
    path.write_bytes(body)
    second = load_object(torus, voxels=SMALL)
    assert "damaged" in second.report.found[-1]
    np.testing.assert_array_equal(first.sdf.values, second.sdf.values)
    assert_same(first, load_object(torus, voxels=SMALL))


def test_unusable_cache_folder_is_reported_and_the_work_goes_on(torus, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FISTFUL_CACHE", str(tmp_path / "file"))
    thing = load_object(torus, voxels=SMALL)
    assert "nothing was cached" in str(thing.report)
    assert len(thing.surface_points) == 2048


def test_cache_can_be_switched_off(torus, cache):
    load_object(torus, voxels=SMALL, use_cache=False)
    assert not cache.exists()


LOADER = """
import sys
from fistful.objects import load_object
print("ready", flush=True)
thing = load_object(sys.argv[1], voxels=300_000)
print(float(thing.sdf.values.sum()), thing.report.found, flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs kill -9")
def test_two_loaders_at_once_and_killed_ones_leave_a_sound_cache(torus, cache):
    load_object(
        torus, voxels=SMALL, use_cache=False
    )  # Compile the kernels, so that the kills below hit the work.
    command = [sys.executable, "-c", LOADER, str(torus)]
    for delay in (0.2, 0.6, 1.0):
        loader = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert loader.stdout.readline() == b"ready\n"
        time.sleep(delay)
        loader.send_signal(signal.SIGKILL)
        loader.wait()
        loader.stdout.close()
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    texts = [loader.communicate()[0] for loader in both]
    assert [loader.returncode for loader in both] == [0, 0]
    assert texts[0] == texts[1]
    assert "()" in texts[0]
    assert len(list(cache.glob("*.npz"))) == 1
    assert list(cache.glob("*.tmp")) == []
    thing = load_object(torus, voxels=300_000)
    assert float(thing.sdf.values.sum()) == pytest.approx(float(texts[0].splitlines()[1].split()[0]))


def test_nothing_is_printed(torus):
    """No driver warning, no module-loading lines: stdout is data and stderr is for errors."""
    code = f"from fistful.objects import load_object; load_object({str(torus)!r}, voxels={SMALL})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert done.stderr == ""


# --- real household objects ---

needs_assets = pytest.mark.skipif(
    not MESHES, reason=f"no meshes in {ASSETS}; set FISTFUL_ASSETS to the shared assets"
)


def near_surface(thing: Object, count: int) -> np.ndarray:
    """Points within 5 mm of the surface, from another sampler than the package's."""
    points, face = trimesh.sample.sample_surface(thing.mesh, count, seed=7)
    offset = np.random.default_rng(8).uniform(-0.005, 0.005, (count, 1))
    return points + offset * thing.mesh.face_normals[face]


@needs_assets
@pytest.mark.parametrize(
    ("name", "rescale"), [*((path.stem, False) for path in MESHES), *((name, True) for name in HARD)]
)
def test_distance_field_of_real_objects_is_accurate(name, rescale):
    """Bars of the project: mean < 0.3 mm and max < 1.5 mm near the surface, at default resolution."""
    thing = load_object(ASSETS / f"{name}.obj", rescale=rescale)
    points = near_surface(thing, 5000)
    error_mm = 1e3 * np.abs(
        thing.sdf.query(points)[0] - signed_distance(thing.vertices, thing.faces, points).values
    )
    assert error_mm.mean() < 0.3
    assert error_mm.max() < 1.5
    assert thing.sdf_error.mean_mm == pytest.approx(error_mm.mean(), rel=0.25)
    assert thing.sdf_error.max_mm < 1.5


@needs_assets
@pytest.mark.parametrize("path", MESHES, ids=lambda p: p.stem)
def test_every_real_mesh_loads(path):
    """Inspection only; the benchmark prepares and measures all of them."""
    raw = read_mesh(path)
    for span, mended in ((None, 0), (RESCALE, 1)):
        vertices, faces, report = inspect_mesh(raw, rescale=span)
        assert trimesh.Trimesh(vertices, faces, process=False).is_volume
        assert report.bodies == 1
        assert len(report.mended) <= mended
        assert RESCALE[0] * (1 - 1e-9) <= max(report.extents_m) <= RESCALE[1] * (1 + 1e-9) or span is None


def test_errors_name_the_object(tmp_path):
    (tmp_path / "bad.obj").write_text("v 0 0 0\nv 0.1 0 0\nv 0 0.1 0\nf 1 2 3\n")
    with pytest.raises(MeshError, match=r"^bad: the surface is not closed"):
        load_object(tmp_path / "bad.obj")


def test_3mf_is_read_in_its_own_units(tmp_path):
    trimesh.Scene(trimesh.creation.box((50, 60, 70))).export(tmp_path / "box.3mf")
    report = inspect_mesh(read_mesh(tmp_path / "box.3mf")).report
    np.testing.assert_allclose(report.extents_m, [0.05, 0.06, 0.07], rtol=1e-5)
    assert any("millimeter" in line for line in report.found)


def test_rescaling_makes_units_irrelevant():
    vertices, faces = trimesh.creation.box((3, 4, 5)).vertices, trimesh.creation.box((3, 4, 5)).faces
    raw = RawMesh(vertices=np.asarray(vertices), faces=np.asarray(faces, np.int64), units=None)
    with pytest.raises(MeshError, match="--units"):
        inspect_mesh(raw)
    report = inspect_mesh(raw, rescale=(0.06, 0.10)).report
    np.testing.assert_allclose(report.extents_m, [0.06, 0.08, 0.10])
    assert any("units" in line for line in report.found)


def test_faces_without_area_are_reported():
    box = trimesh.creation.box((0.05, 0.06, 0.07))
    a, b, c = box.faces[0]
    # A new vertex in the middle of edge ab splits one face; a face of zero area closes the slit.
    middle = len(box.vertices)
    vertices = np.vstack([box.vertices, (box.vertices[a] + box.vertices[b]) / 2])
    faces = np.array([*box.faces[1:], [a, middle, c], [middle, b, c], [a, b, middle]])
    report = inspect_mesh(RawMesh(vertices=vertices, faces=faces, units=None)).report
    assert report.watertight
    assert any("1 face of zero area" in line for line in report.found)
