"""Convex parts: they are convex, they hold the object, and their stated errors are true."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trimesh
from scipy.spatial import ConvexHull

from fistful.errors import MeshError
from fistful.geometry.mesh_distance import MeshDistance
from fistful.objects import ConvexParts, Object, convex_parts, load_object
from fistful.objects import parts as module

SMALL = 20_000  # Voxels; the distance grid is not the subject.


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("FISTFUL_CACHE", str(folder))
    return folder / "parts"


@pytest.fixture
def load(tmp_path):
    """An object from a trimesh."""

    def load(mesh: trimesh.Trimesh, **options) -> Object:
        path = tmp_path / "thing.ply"
        mesh.export(path)
        return load_object(path, units="m", voxels=SMALL, **options)

    return load


@pytest.fixture(scope="module")
def torus() -> tuple[Object, ConvexParts]:
    item = load_object("torus", voxels=SMALL)
    return item, convex_parts(item, use_cache=False)


def heights(parts: ConvexParts, points: np.ndarray) -> np.ndarray:
    """(parts, points): how far each point lies beyond the outermost plane of each part; negative inside.

    Never more than the distance to the part, and equal to it inside: an oracle without triangles or trees.
    """
    rows = []
    for corners in parts.vertices:
        planes = ConvexHull(corners).equations
        rows.append((points @ planes[:, :3].T + planes[:, 3]).max(axis=1))
    return np.array(rows)


def check_parts(parts: ConvexParts, most: int) -> None:
    """Every part is a convex solid: closed, outward, all corners on its hull."""
    assert len(parts.vertices) == len(parts.faces) <= module.MAX_PARTS
    for corners, faces in zip(parts.vertices, parts.faces, strict=True):
        assert len(corners) <= most
        assert not corners.flags.writeable and not faces.flags.writeable
        mesh = trimesh.Trimesh(corners, faces, process=False)
        hull = ConvexHull(corners)
        assert mesh.is_watertight
        assert mesh.volume == pytest.approx(hull.volume, rel=1e-6) and mesh.volume > 0
        height = corners @ hull.equations[:, :3].T + hull.equations[:, 3]
        assert height.max() < 1e-9 and np.all(height.max(axis=1) > -1e-9)


def test_a_torus_keeps_its_hole(torus):
    item, parts = torus
    check_parts(parts, module.MAX_CORNERS)
    assert len(parts.vertices) > 3
    # The largest ball in the hole, less what the parts are known to stick out, touches no part.
    centre = item.mass_properties.com_O
    radius = item.sdf.query(centre[None])[0][0] - 1e-3 * parts.outside_mm.max - item.sdf.spacing
    assert radius > 0.015
    direction = np.random.default_rng(0).normal(size=(2000, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    assert heights(parts, centre + radius * direction).min() > 0
    hull = convex_parts(item, kind="hull", use_cache=False)
    assert heights(hull, centre[None]).item() < 0 and hull.outside_mm.max > 10


def test_the_union_holds_the_surface_within_the_stated_error(torus):
    item, parts = torus
    beyond = heights(parts, item.surface_points).min(axis=0)
    assert 1e3 * beyond.max() < parts.inside_mm.max + 0.1
    assert np.percentile(1e3 * np.maximum(beyond, 0), 95) < parts.inside_mm.p95 + 0.1


def test_stated_errors_equal_an_independent_measurement(torus):
    """Points on every part, those inside another part dropped, against the mesh: no boolean, other points."""
    item, parts = torus
    points, weights = [], []
    for corners, faces in zip(parts.vertices, parts.faces, strict=True):
        mesh = trimesh.Trimesh(corners, faces, process=False)
        points.append(trimesh.sample.sample_surface(mesh, 4000, seed=1)[0])
        weights.append(np.full(4000, mesh.area))
    points, weights = np.concatenate(points), np.concatenate(weights)
    on_union = heights(parts, points).min(axis=0) > -1e-9
    outside = 1e3 * np.maximum(MeshDistance(item.vertices, item.faces).query(points[on_union]).values, 0)
    weights = weights[on_union] / weights[on_union].sum()
    order = np.argsort(outside)
    p95 = outside[order][np.searchsorted(np.cumsum(weights[order]), 0.95)]
    assert parts.outside_mm.mean == pytest.approx(np.sum(weights * outside), abs=0.03)
    assert parts.outside_mm.p95 == pytest.approx(p95, abs=0.15)
    assert parts.outside_mm.max == pytest.approx(outside.max(), abs=0.2)
    depth = 1e3 * np.maximum(-heights(parts, item.surface_points), 0).max(axis=0)
    # In a single part; in the union it can only be deeper.
    assert parts.buried_mm.mean > depth.mean() - 0.05


@pytest.mark.parametrize("name", ["ball", "box", "cube", "egg"])
def test_a_convex_object_is_one_part(name: str):
    item = load_object(name, voxels=SMALL)
    parts = convex_parts(item, use_cache=False)
    assert len(parts.vertices) == 1
    check_parts(parts, module.MAX_HULL_CORNERS)
    for error in (parts.outside_mm, parts.inside_mm, parts.buried_mm):
        assert 0 <= max(error.mean, error.p95) <= error.max < 0.5


@pytest.mark.parametrize("scale", [(0.01, 0.01, 0.01), (0.3, 0.004, 0.004), (0.1, 0.1, 0.001)])
def test_few_corners_keep_small_long_and_flat_shapes(scale):
    rng = np.random.default_rng(3)
    points = rng.normal(size=(3000, 3))
    points *= np.array(scale) / np.linalg.norm(points, axis=1, keepdims=True)
    few, whole = module._few_corners(points, 64), ConvexHull(points)
    assert 32 < len(few.vertices) <= 64
    assert ConvexHull(few.vertices).volume == pytest.approx(whole.volume, rel=0.03)
    assert np.allclose(np.ptp(few.vertices, axis=0), np.ptp(points, axis=0), rtol=0.2)


def test_cached_is_fresh_bit_for_bit(load, cache):
    item = load(trimesh.creation.annulus(0.02, 0.03, 0.02, sections=24))
    said: list[str] = []
    fresh = convex_parts(item, progress=said.append)
    assert len(list(cache.glob("*.npz"))) == 1 and said
    said.clear()
    cached = convex_parts(item, progress=said.append)
    assert not said, "taken from the cache"
    again = convex_parts(item, use_cache=False)
    for other in (cached, again):
        assert (other.outside_mm, other.inside_mm, other.buried_mm) == (
            fresh.outside_mm,
            fresh.inside_mm,
            fresh.buried_mm,
        )
        assert len(other.vertices) == len(fresh.vertices)
        for a, b in zip(other.vertices + other.faces, fresh.vertices + fresh.faces, strict=True):
            assert a.dtype == b.dtype and a.tobytes() == b.tobytes()
    convex_parts(item, kind="hull")
    assert len(list(cache.glob("*.npz"))) == 2


def test_a_cache_that_can_not_be_used_is_passed_over(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("FISTFUL_CACHE", str(tmp_path / "file"))
    item = load_object("cube", voxels=SMALL, use_cache=False)
    assert len(convex_parts(item).vertices) == 1


def test_several_bodies_and_cavities(load):
    hollow = trimesh.creation.box((0.03, 0.03, 0.03))
    cavity = trimesh.creation.box((0.02, 0.02, 0.02))
    cavity.invert()
    far = trimesh.creation.box((0.01, 0.01, 0.01)).apply_translation((0.04, 0, 0))
    item = load(trimesh.util.concatenate([hollow, cavity, far]))
    parts = convex_parts(item, use_cache=False)
    check_parts(parts, module.MAX_CORNERS)
    between, inside = np.array([[0.025, 0, 0]]), np.zeros((1, 3))
    assert heights(parts, between).min() > 0.003
    assert heights(parts, inside).min() > 0.005
    assert parts.outside_mm.p95 < 0.5


def test_many_faces_are_simplified_first(load):
    item = load(trimesh.creation.torus(0.03, 0.01, 250, 120))
    assert len(item.faces) == 60_000
    solid = module._simplified(module._Solid(item.vertices / 0.08, item.faces))
    assert len(solid.faces) <= module._MAX_FACES
    mesh = trimesh.Trimesh(*solid)
    assert mesh.is_watertight and mesh.volume == pytest.approx(item.mesh.volume / 0.08**3, rel=0.01)


@pytest.mark.parametrize(
    ("worker", "says"),
    [
        ("import os; os.abort()", "ended with code -6"),
        ("raise SystemExit('out of luck')", r"ended with code 1 \(out of luck\)"),
        ("import time; time.sleep(60)", "took longer than 1 s"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="signals have other numbers")
def test_a_crash_or_hang_of_coacd_is_an_error_with_a_way_out(torus, monkeypatch, worker, says):
    monkeypatch.setattr(module, "_WORKER", worker)
    monkeypatch.setattr(module, "_ATTEMPTS", ({},))
    monkeypatch.setattr(module, "_WALL_LIMIT_S", 1.0)
    with pytest.raises(MeshError, match=rf"^torus: CoACD.* {says}; .*kind=\"hull\""):
        convex_parts(torus[0], use_cache=False)


def test_when_coacd_fails_once_it_is_tried_anew(torus, monkeypatch):
    item, parts = torus
    seeds = []

    def run(settings, _):
        seeds.append(settings["seed"])
        if len(seeds) == 1:
            raise RuntimeError("ended with code -11")
        return list(parts.vertices)

    monkeypatch.setattr(module, "_run_coacd", run)
    assert len(convex_parts(item, use_cache=False).vertices) == len(parts.vertices)
    assert seeds == [0, 1]


def test_flat_parts_are_dropped(torus, monkeypatch):
    item, parts = torus
    flat = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0.0]])
    monkeypatch.setattr(module, "_run_coacd", lambda *_: [flat, *parts.vertices])
    assert len(convex_parts(item, use_cache=False).vertices) == len(parts.vertices)
    monkeypatch.setattr(module, "_run_coacd", lambda *_: [flat])
    with pytest.raises(MeshError, match="found none"):
        convex_parts(item, use_cache=False)


def test_bad_input(torus):
    with pytest.raises(ValueError, match=r"'box'.*'parts' or 'hull'"):
        convex_parts(torus[0], kind="box")  # pyright: ignore[reportArgumentType]
    gone = replace(torus[0], faces=torus[0].faces[:0])
    with pytest.raises(MeshError, match=r"torus: .*without faces"):
        convex_parts(gone)
    undefined = replace(torus[0], vertices=np.full_like(torus[0].vertices, np.nan))
    with pytest.raises(MeshError, match=r"torus: .*not-a-numbers"):
        convex_parts(undefined)


def test_household_meshes(assets: Path, figure):
    """A solid and a thin shell; docs/objects.md has the figures of all 51."""
    for name, p95 in (("ycb_banana", 2.0), ("ycb_bowl", 3.5)):
        item = load_object(assets / "objects" / f"{name}.obj", rescale=True, voxels=SMALL)
        parts = convex_parts(item, use_cache=False)
        check_parts(parts, module.MAX_CORNERS)
        figure(f"convex parts of {name}, overfill 95 %", parts.outside_mm.p95, "mm")
        assert parts.outside_mm.p95 < p95 and parts.inside_mm.p95 < 0.5
