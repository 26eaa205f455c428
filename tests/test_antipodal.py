"""Rays against closed forms, and what antipodal pairs promise on every kind of shape."""

import time
from dataclasses import replace

import numpy as np
import pytest
import trimesh

from fistful.geometry.mesh_distance import MeshDistance, signed_distance
from fistful.objects import Object, load_object
from fistful.synthesis.antipodal import FEW, antipodal_pairs

SHAPES = ("cube", "ball", "mug", "hammer", "scissors", "torus", "duck")


def pairs_of(item: Object, seed: int = 0, **options):
    return antipodal_pairs(item, np.random.default_rng(seed), 512, **options)


def shaped(mesh: trimesh.Trimesh) -> Object:
    """An object with another surface; nothing else of it is used here."""
    return replace(
        load_object("cube"), vertices=np.array(mesh.vertices), faces=np.array(mesh.faces, np.int32)
    )


def test_one_hierarchy_serves_many_queries():
    mesh = trimesh.creation.icosphere(subdivisions=2, radius=0.03)
    distance = MeshDistance(mesh.vertices, mesh.faces)
    rng = np.random.default_rng(0)
    for _ in range(3):
        points = rng.uniform(-0.05, 0.05, (50, 3))
        for got, expected in zip(
            distance.query(points), signed_distance(mesh.vertices, mesh.faces, points), strict=True
        ):
            np.testing.assert_array_equal(got, expected)
    points[7] = np.nan
    values, gradients = distance.query(points)
    assert np.isnan(values[7]) and np.all(np.isnan(gradients[7])) and np.isnan(values).sum() == 1
    assert distance.query(np.zeros((0, 3))).values.shape == (0,)


@pytest.mark.parametrize("offset", [0.0, 40.0])
def test_rays_hit_a_box_where_the_slabs_say(offset: float):
    mesh = trimesh.creation.box(extents=[0.04, 0.06, 0.10])
    mesh.apply_translation([offset, 0, -offset])
    centre, half = np.array([offset, 0, -offset]), np.array([0.02, 0.03, 0.05])
    rng = np.random.default_rng(1)
    origins = rng.uniform(-0.1, 0.1, (400, 3))
    directions = rng.uniform(-0.06, 0.06, (400, 3)) - origins
    unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    near = np.minimum((-half - origins) / unit, (half - origins) / unit)
    far = np.maximum((-half - origins) / unit, (half - origins) / unit)
    enter, leave = near.max(axis=1), far.min(axis=1)
    met = (enter < leave) & (leave > 0)
    expected = np.where(met, np.where(enter > 0, enter, leave), np.inf)
    hits = MeshDistance(mesh.vertices, mesh.faces).first_hits(origins + centre, directions)
    assert 50 < met.sum() < 350 and np.any(met & (enter < 0))
    np.testing.assert_allclose(hits.distances, expected, atol=1e-6)
    np.testing.assert_array_equal(hits.faces >= 0, met)
    np.testing.assert_allclose(hits.normals[met], mesh.face_normals[hits.faces[met]], atol=1e-9)
    assert np.all(hits.normals[~met] == 0)
    short = MeshDistance(mesh.vertices, mesh.faces).first_hits(
        origins + centre, directions, max_distance=0.05
    )
    np.testing.assert_array_equal(np.isfinite(short.distances), expected < 0.05)


@pytest.mark.parametrize("name", SHAPES)
def test_pairs_keep_what_they_promise(name: str):
    item = load_object(name)
    pairs = pairs_of(item)
    mesh = MeshDistance(item.vertices, item.faces)
    assert len(pairs.width) == 512 and pairs.cone_deg == pytest.approx(np.rad2deg(np.arctan(0.6)))
    line = (pairs.b_O - pairs.a_O) / pairs.width[:, None]
    np.testing.assert_allclose(np.linalg.norm(pairs.b_O - pairs.a_O, axis=1), pairs.width, rtol=1e-9)
    assert np.all(np.diff(pairs.width) >= 0) and pairs.width[0] > 0
    # Within the cone, but for what the first micrometre off the surface turns the line by.
    slack = 1e-5 * mesh.size / pairs.width
    cosine = np.cos(np.deg2rad(pairs.cone_deg)) - slack
    assert np.all(np.sum(-pairs.n_a * line, axis=1) >= cosine)
    assert np.all(np.sum(pairs.n_b * line, axis=1) >= cosine)
    for points, normals in ((pairs.a_O, pairs.n_a), (pairs.b_O, pairs.n_b)):
        assert np.abs(mesh.query(points).values).max() < 5e-7
        # The normals point out of the solid, and into free room.
        assert np.all(mesh.query(points + 2e-5 * normals).values > 0)
        assert np.all(mesh.query(points - 2e-5 * normals).values < 0)
        assert not np.any(mesh.first_hits(points + 1e-5 * normals, normals).distances < 0.0079)


def test_a_sphere_is_as_wide_as_its_chords():
    """A chord at angle t to the normal is 2 r cos t long, and as oblique at its other end."""
    ball = trimesh.creation.icosphere(subdivisions=4, radius=0.03)
    pairs = pairs_of(shaped(ball))
    line = (pairs.b_O - pairs.a_O) / pairs.width[:, None]
    for cosine in (np.sum(-pairs.n_a * line, axis=1), np.sum(pairs.n_b * line, axis=1)):
        np.testing.assert_allclose(pairs.width, 0.06 * cosine, atol=2e-3)


def test_points_are_uniform_over_the_area():
    """On a plate of 40 x 40 x 10 mm, by the share of its sides, and evenly over a side."""
    plate = trimesh.creation.box(extents=[0.04, 0.04, 0.01])
    pairs = antipodal_pairs(shaped(plate), np.random.default_rng(0), 4096, 0.1)
    broad = np.abs(pairs.n_a[:, 2]) > 0.5
    # Lines from the narrow sides may run out through a broad one, which is not opposed to it.
    assert 0.66 < broad.mean() < 0.80
    assert (
        np.abs(np.histogram(pairs.a_O[broad, 0], bins=4, range=(-0.02, 0.02))[0] / broad.sum() - 0.25).max()
        < 0.04
    )


def test_a_vessel_is_held_by_its_wall_or_across():
    mug = load_object("mug")
    both, wall = pairs_of(mug), pairs_of(mug, exits=1)
    assert np.percentile(wall.width, 95) < 0.015
    assert np.mean(both.width > 0.05) > 0.1 and np.mean(both.width < 0.015) > 0.3


def test_a_narrow_slot_has_no_room_for_a_finger():
    """Two plates 6 mm apart, joined at the back: the faces of the slot are opposed to the outer ones."""
    block = trimesh.creation.box(extents=[0.04, 0.04, 0.026])
    slot = trimesh.creation.box(extents=[0.04, 0.04, 0.006])
    slot.apply_translation([0.01, 0, 0])
    item = shaped(trimesh.boolean.difference([block, slot], engine="manifold"))
    free, tight = pairs_of(item, room=0.0), pairs_of(item)

    def in_slot(p: np.ndarray, n: np.ndarray) -> np.ndarray:
        return np.any((np.abs(p[:, 2]) < 0.0035) & (np.abs(n[:, 2]) > 0.5))

    assert free.blocked == 0 and in_slot(free.a_O, free.n_a) and in_slot(free.b_O, free.n_b)
    assert tight.blocked > 0 and not in_slot(tight.a_O, tight.n_a) and not in_slot(tight.b_O, tight.n_b)


def test_few_pairs_widen_the_cone():
    """The normals of a tetrahedron are 109.5 degrees apart: a line is 35.3 or more from one of two."""
    solid = trimesh.convex.convex_hull(0.03 * np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]))
    pairs = pairs_of(shaped(solid))
    assert pairs.cone_deg == 45.0 and len(pairs.width) >= FEW
    line = (pairs.b_O - pairs.a_O) / pairs.width[:, None]
    assert np.all(np.sum(-pairs.n_a * line, axis=1) >= np.sqrt(0.5) - 1e-3)


def test_no_pairs_at_all():
    """Where no finger has room, there is nothing: an empty result of the right shapes, and the reason."""
    closed = trimesh.creation.icosphere(subdivisions=2, radius=0.05)
    hole = closed.copy()
    hole.apply_scale(0.97)
    hole.invert()
    none = pairs_of(shaped(trimesh.util.concatenate([closed, hole])), room=1.0, exits=1)
    assert none.a_O.shape == (0, 3) and none.width.shape == (0,) and none.cone_deg == 60.0
    assert none.blocked > 0.5 * none.tried > 0


def test_the_same_seed_gives_the_same_pairs():
    mug = load_object("mug")
    for a, b in zip(pairs_of(mug, 5), pairs_of(mug, 5), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(pairs_of(mug, 6).width, pairs_of(mug, 5).width)


@pytest.mark.parametrize("bad", [{"count": 0}, {"friction": 0.0}, {"room": -1.0}, {"exits": 0}])
def test_senseless_options_are_named(bad: dict):
    with pytest.raises(ValueError, match="antipodal pairs need"):
        antipodal_pairs(load_object("cube"), np.random.default_rng(0), **bad)


def test_cost(figure):
    duck = load_object("duck")
    antipodal_pairs(duck, np.random.default_rng(0))
    start = time.process_time()
    assert len(antipodal_pairs(duck, np.random.default_rng(0)).width) == 4096
    spent = time.process_time() - start
    figure("4096 antipodal pairs of 5650 faces", 1e3 * spent, "ms CPU")
    assert spent < 1.0
