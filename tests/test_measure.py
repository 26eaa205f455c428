"""Measures of grasps: closed forms with boxes and balls, and a slow version without any culling."""

import time
from pathlib import Path

import numpy as np
import pytest

from fistful.geometry.mesh_distance import MeshDistance
from fistful.geometry.pose import apply, rotation_from_quaternion
from fistful.hands import load_hand
from fistful.hands.description import (
    Description,
    OppositionSpaceDescription,
    Patch,
    SurfaceDescription,
)
from fistful.hands.hand import Hand, resolve_hand
from fistful.hands.library import import_model
from fistful.hands.opposition import self_overlap
from fistful.hands.skin import geom_distances
from fistful.objects import Object, load_object
from fistful.synthesis import measure as module
from fistful.synthesis.measure import Measures, Tolerance, measure, probes

GRIPPER = Path(__file__).resolve().parents[1] / "examples" / "gripper.urdf"
EYE = np.eye(3)[None]


@pytest.fixture(scope="module")
def allegro() -> Hand:
    return load_hand("allegro")


@pytest.fixture(scope="module")
def gripper() -> Hand:
    """Two boxes that slide towards each other along y, driven by one joint; inner faces at +-(45 mm - q)."""
    model, _ = import_model(GRIPPER)
    sides = {"left": (0.0, -1.0, 0.0), "right": (0.0, 1.0, 0.0)}
    surfaces = tuple(
        SurfaceDescription(name=name, patches=(Patch(body=name, direction=way, cone_deg=20.0),))
        for name, way in sides.items()
    )
    space = OppositionSpaceDescription(
        name="left-right", surfaces=("left", "right"), joints=model.joints, span_mm=None
    )
    description = Description(
        name="gripper",
        summary="two fingers",
        model="gripper.xml",
        fingers=(("left", "left"), ("right", "right")),
        surfaces=surfaces,
        opposition_spaces=(space,),
    )
    return resolve_hand(model, description)


@pytest.fixture(scope="module")
def cube() -> Object:
    return load_object("cube")


def rotations(rng: np.random.Generator, count: int) -> np.ndarray:
    return rotation_from_quaternion(rng.normal(size=(count, 4)))


def touching(hand: Hand, item: Object, rng: np.random.Generator, count: int) -> tuple[np.ndarray, ...]:
    """p_OH, R_OH, q, contact_body, contact_p_B: the first contact is up to 30 mm off the surface."""
    m = hand.model
    q = m.open_pose + rng.uniform(0, 0.8) * (
        rng.uniform(m.lower, m.upper, (count, len(m.joints))) - m.open_pose
    )
    body, p_B = np.zeros((count, 2), int), np.zeros((count, 2, 3))
    for i in range(count):
        space = hand.opposition_spaces[rng.integers(len(hand.opposition_spaces))]
        for c, surface in enumerate(space.surfaces):
            k = rng.integers(len(surface.candidates.body))
            body[i, c], p_B[i, c] = surface.candidates.body[k], surface.candidates.p_B[k]
    poses, rows, R_OH = m.poses(q), np.arange(count), rotations(rng, count)
    first_H = poses.p_HB[rows, body[:, 0]] + apply(poses.R_HB[rows, body[:, 0]], p_B[:, 0])
    chosen = rng.integers(len(item.surface_points), size=count)
    away = rng.uniform(-0.002, 0.03, (count, 1)) * item.surface_normals[chosen]
    return item.surface_points[chosen] + away - apply(R_OH, first_H), R_OH, q, body, p_B


def near(
    grasps: tuple[np.ndarray, ...], rng: np.random.Generator, held: int
) -> tuple[np.ndarray, np.ndarray]:
    """p_HO, R_HO of held objects that lie around the target, some of them in it."""
    p_OH, R_OH = grasps[:2]
    p_HT = -apply(np.swapaxes(R_OH, 1, 2), p_OH)
    p_HO = p_HT[:, None] + rng.uniform(-0.06, 0.06, (len(p_OH), held, 3))
    return p_HO, rotations(rng, len(p_OH) * held).reshape(len(p_OH), held, 3, 3)


def naive(hand: Hand, objects: list[Object], p_OH, R_OH, q, body, p_B, p_HO, R_HO) -> Measures:
    """Every point of everything against everything else, one grasp at a time."""
    m, target = hand.model, objects[-1]
    rows: list[list] = []
    meshes = [MeshDistance(o.vertices, o.faces) for o in objects]
    for i in range(len(q)):
        poses = m.poses(q[i])
        skin_H = poses.points(hand.skin.body, hand.skin.p_B)
        # Poses of all objects in the hand; the target's is the inverse of what is given.
        R = [*R_HO[i], R_OH[i].T]
        p = [*p_HO[i], -R_OH[i].T @ p_OH[i]]
        depth = 0.0
        for k, item in enumerate(objects):
            depth = max(depth, -meshes[k].query((skin_H - p[k]) @ R[k]).values.min())
            depth = max(depth, -geom_distances(m, poses, probes(item) @ R[k].T + p[k]).min())
        between = 0.0
        for k, item in enumerate(objects[:-1]):
            there = (probes(item) @ R[k].T + p[k] - p[-1]) @ R[-1]
            back = (probes(target) @ R[-1].T + p[-1] - p[k]) @ R[k]
            between = max(between, -meshes[-1].query(there).values.min(), -meshes[k].query(back).values.min())
        c_O = np.array([poses.p_HB[b] + poses.R_HB[b] @ x for b, x in zip(body[i], p_B[i], strict=True)])
        c_O = (c_O - p[-1]) @ R[-1]
        distance, normal = meshes[-1].query(c_O)
        line = (c_O[1] - c_O[0]) / np.linalg.norm(c_O[1] - c_O[0])
        angles = np.rad2deg(np.arccos(np.clip([-normal[0] @ line, normal[1] @ line], -1, 1)))
        kept = np.all((q[i] >= m.lower - 1e-6) & (q[i] <= m.upper + 1e-6))
        rows.append([depth, abs(distance), angles, self_overlap(m, q[i : i + 1])[0], between, kept])
    depth, distance, angles, own, between, kept = (np.array(column) for column in zip(*rows, strict=True))
    return Measures(
        penetration_mm=1e3 * depth,
        contact_distance_mm=1e3 * distance,
        opposition_deg=angles,
        self_penetration_mm=1e3 * own,
        object_penetration_mm=1e3 * between,
        limits_kept=kept,
    )


def assert_same(a: Measures, b: Measures, atol: float) -> None:
    for name in ("penetration_mm", "contact_distance_mm", "self_penetration_mm", "object_penetration_mm"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=atol, err_msg=name)
    np.testing.assert_allclose(a.opposition_deg, b.opposition_deg, atol=0.2 if atol else 0)
    np.testing.assert_array_equal(a.limits_kept, b.limits_kept)


@pytest.mark.parametrize("name, target", [("allegro", "duck"), ("shadow", "mug"), ("human", "wrench")])
def test_culling_changes_nothing(name: str, target: str):
    hand, rng = load_hand(name), np.random.default_rng(3)
    objects = [load_object("cube"), load_object("torus"), load_object(target)]
    grasps = touching(hand, objects[-1], rng, 8)
    held = near(grasps, rng, 2)
    expected = naive(hand, objects, *grasps, *held)
    assert np.sum(expected.penetration_mm > 0.5) >= 4 and np.sum(expected.object_penetration_mm > 0.5) >= 2
    assert_same(measure(hand, objects, *grasps, *held), expected, atol=1e-4)
    # Without held objects there is less to hit, so that the target's own overlaps show.
    none = np.zeros((8, 0, 3)), np.zeros((8, 0, 3, 3))
    alone = naive(hand, objects[-1:], *grasps, *none)
    assert_same(measure(hand, objects[-1:], *grasps), alone, atol=1e-4)
    assert np.any(alone.penetration_mm < expected.penetration_mm)


def grip(gripper: Hand, travel: float, shift_y: float = 0.0, tilt_deg: float = 0.0) -> tuple[np.ndarray, ...]:
    """A grasp of something at the origin of O, between the fingers: contacts are the middles of their faces.

    Tilting turns the object about x.
    """
    left, right = (gripper.model.bodies.index(side) for side in ("left", "right"))
    c, s = np.cos(np.deg2rad(tilt_deg)), np.sin(np.deg2rad(tilt_deg))
    R_OH = np.array([[[1, 0, 0], [0, c, s], [0, -s, c]]], float)
    middle_H = np.array([0, shift_y, 0.081])
    p_B = np.array([[[0, -0.005, 0.04], [0, 0.005, 0.04]]])
    return -apply(R_OH, middle_H), R_OH, np.array([[travel]]), np.array([[left, right]]), p_B


@pytest.mark.parametrize("overlap_mm", [-3.0, -0.5, 0.0, 0.7, 1.9, 3.0])
def test_a_gripper_on_a_cube(gripper: Hand, cube: Object, overlap_mm: float):
    m = measure(gripper, [cube], *grip(gripper, 0.020 + 1e-3 * overlap_mm))
    assert m.penetration_mm[0] == pytest.approx(max(overlap_mm, 0), abs=2e-3)
    np.testing.assert_allclose(m.contact_distance_mm, abs(overlap_mm), atol=2e-3)
    np.testing.assert_allclose(m.opposition_deg, 0, atol=0.1)
    assert m.self_penetration_mm[0] == 0 and m.object_penetration_mm[0] == 0 and m.limits_kept[0]
    assert m.good[0] == (abs(overlap_mm) < 2)
    assert m.within(Tolerance(contact_mm=4, penetration_mm=4))[0]


def test_a_shifted_cube_is_touched_on_one_side(gripper: Hand, cube: Object):
    m = measure(gripper, [cube], *grip(gripper, 0.0185, shift_y=0.001))
    np.testing.assert_allclose(m.contact_distance_mm, [[0.5, 2.5]], atol=2e-3)
    assert m.penetration_mm[0] == 0 and not m.good[0]


@pytest.mark.parametrize("tilt_deg", [10.0, 40.0])
def test_the_opposition_angle_is_that_of_the_faces(gripper: Hand, cube: Object, tilt_deg: float):
    """The line is along y of the hand, the faces of the cube are tilted."""
    m = measure(gripper, [cube], *grip(gripper, 0.0, tilt_deg=tilt_deg))
    assert m.opposition_deg.shape == (1, 2)
    half = 0.025 / np.cos(np.deg2rad(tilt_deg))
    inside = grip(gripper, 0.045 - half, tilt_deg=tilt_deg)
    np.testing.assert_allclose(measure(gripper, [cube], *inside).opposition_deg, tilt_deg, atol=0.1)


def test_a_ball_in_a_gripper(gripper: Hand):
    """A sphere deeper in the fingers than its facets are high; only points on it are on the outside."""
    ball = load_object("ball")
    radius = 0.5 * ball.report.extents_m[0]
    m = measure(gripper, [ball], *grip(gripper, 0.045 - radius + 0.003))
    assert m.penetration_mm[0] == pytest.approx(3.0, abs=0.1)
    np.testing.assert_allclose(m.contact_distance_mm, 3.0, atol=0.1)
    np.testing.assert_allclose(m.opposition_deg, 0.0, atol=4.0)  # Facets of 3 mm.


def test_fingers_in_each_other_and_beyond_limits(gripper: Hand, cube: Object):
    far = grip(gripper, 0.047)
    m = measure(gripper, [cube], far[0] + [0, 0, 1.0], *far[1:])
    assert m.self_penetration_mm[0] == pytest.approx(4.0, abs=0.01)
    assert not m.limits_kept[0] and m.penetration_mm[0] == 0
    np.testing.assert_allclose(m.contact_distance_mm, 1e3 * np.hypot(0, 1.0 - 0.025), rtol=0.01)


def test_contacts_that_coincide_have_no_line(gripper: Hand, cube: Object):
    p_OH, R_OH, q, body, p_B = grip(gripper, 0.02)
    m = measure(gripper, [cube], p_OH, R_OH, q, body[:, [0, 0]], p_B[:, [0, 0]])
    np.testing.assert_array_equal(m.opposition_deg, 180.0)
    assert not m.good[0]


def test_cubes_in_each_other(gripper: Hand, cube: Object):
    """The overlap of two aligned cubes is what is missing to their width, however the hand is posed."""
    rng = np.random.default_rng(0)
    apart_O = np.array([[0.060, 0, 0], [0.047, 0.004, 0.003], [0.006, -0.041, 0.008], [0.003, 0.002, -0.045]])
    expected = [0.0, 3.0, 9.0, 5.0]
    R_OH = rotations(rng, 4)
    p_OH = rng.uniform(0.5, 0.6, (4, 3))
    R_HO = np.swapaxes(R_OH, 1, 2)
    p_HO = apply(R_HO, apart_O - p_OH)
    q, body, p_B = np.zeros((4, 1)), np.tile([[1, 2]], (4, 1)), np.zeros((4, 2, 3))
    m = measure(gripper, [cube, cube], p_OH, R_OH, q, body, p_B, p_HO[:, None], R_HO[:, None])
    np.testing.assert_allclose(m.object_penetration_mm, expected, atol=5e-3)
    np.testing.assert_array_equal(m.penetration_mm, 0)


def test_a_needle_in_a_large_face_is_found(gripper: Hand):
    """A thin part hidden inside a shape reaches no skin: only the points of the object tell."""
    marker = load_object("marker")
    middle = marker.vertices.mean(axis=0)
    p_OH = middle - np.array([[0.0, 0.0, 0.02]])  # Across the base, 60 x 140 x 40 mm.
    m = measure(gripper, [marker], p_OH, EYE, np.zeros((1, 1)), np.array([[1, 2]]), np.zeros((1, 2, 3)))
    assert m.penetration_mm[0] > 15


def test_blocks_and_threads_change_nothing(allegro: Hand, monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(8)
    objects = [load_object("cube"), load_object("duck")]
    grasps = touching(allegro, objects[-1], rng, 23)
    arguments = (allegro, objects, *grasps, *near(grasps, rng, 1))
    whole = measure(*arguments)
    assert_same(measure(*arguments, threads=3), whole, atol=0)
    monkeypatch.setattr(module, "_BLOCK", 4)
    assert_same(measure(*arguments, threads=2), whole, atol=0)
    picked = whole.take(np.array([3, 1]))
    np.testing.assert_array_equal(picked.penetration_mm, whole.penetration_mm[[3, 1]])


def test_a_mesh_with_very_many_vertices_is_probed_less(monkeypatch: pytest.MonkeyPatch, cube: Object):
    assert len(probes(cube)) == len(cube.surface_points) + len(cube.vertices)
    monkeypatch.setattr(module, "MAX_VERTICES", 100)
    assert len(probes(cube)) == len(cube.surface_points) + len(cube.hull_vertices)


def test_what_is_not_finite_is_not_good(gripper: Hand, cube: Object):
    grasp = [np.repeat(a, 4, axis=0) for a in grip(gripper, 0.02)]
    grasp[0][0, 1], grasp[1][1, 0, 0], grasp[2][2, 0] = np.nan, np.inf, np.nan
    m = measure(gripper, [cube], *grasp)
    np.testing.assert_array_equal(m.good, [False, False, False, True])
    assert np.all(np.isnan(m.penetration_mm[:3])) and not np.isnan(m.penetration_mm[3])


def test_no_grasps(gripper: Hand, cube: Object):
    m = measure(gripper, [cube], *(a[:0] for a in grip(gripper, 0.02)), threads=2)
    assert m.good.shape == (0,) and m.opposition_deg.shape == (0, 2)


def test_wrong_shapes_are_named(gripper: Hand, cube: Object):
    p_OH, R_OH, q, body, p_B = grip(gripper, 0.02)
    with pytest.raises(ValueError, match="p_HO has shape"):
        measure(gripper, [cube, cube], p_OH, R_OH, q, body, p_B)
    with pytest.raises(ValueError, match="even number"):
        measure(gripper, [cube], p_OH, R_OH, q, body[:, :1], p_B[:, :1])
    with pytest.raises(ValueError, match="bodies of gripper are 0 to 2"):
        measure(gripper, [cube], p_OH, R_OH, q, body + 5, p_B)
    with pytest.raises(ValueError, match="q has shape"):
        measure(gripper, [cube], p_OH, R_OH, np.zeros((1, 3)), body, p_B)
    with pytest.raises(ValueError, match="at least one object"):
        measure(gripper, [], p_OH, R_OH, q, body, p_B)


def test_cost(allegro: Hand, figure):
    duck = load_object("duck")
    grasps = touching(allegro, duck, np.random.default_rng(0), 256)
    measure(allegro, [duck], *grasps)
    start = time.process_time()
    measure(allegro, [duck], *grasps)
    cost = (time.process_time() - start) / 256
    figure("measuring one grasp of one object, Allegro, 5650 faces", 1e6 * cost, "us CPU")
    assert cost < 2e-3
