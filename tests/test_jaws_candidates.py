"""Stable poses against solid angles and mechanics; candidates against what they promise."""

import numpy as np
import pytest

from fistful.errors import JawsError
from fistful.geometry.mesh_distance import MeshDistance
from fistful.jaws.candidates import CLEARANCE, STEEPEST, _Clear, candidates, shortage
from fistful.jaws.grasp import JawGrasp
from fistful.jaws.gripper import Gripper, Pad, rectangle
from fistful.jaws.patch import outline_points, press, surface
from fistful.jaws.reach import Reach
from fistful.jaws.stable_poses import laid_flat, rest, stable_poses, turn_between
from fistful.objects import load_object


def made(tmp_path, mesh, name="item"):
    path = tmp_path / f"{name}.stl"
    mesh.export(path)
    return load_object(path, units="m", voxels=20_000)


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    import trimesh

    return made(tmp_path_factory.mktemp("box"), trimesh.creation.box([0.02, 0.03, 0.06]))


@pytest.fixture(scope="module")
def lifted(box):
    """The box on its largest face, and a gripper for it."""
    return rest(box, stable_poses(box)[0], 0.05)


def test_a_box_rests_on_six_faces_most_likely_the_largest(box):
    poses = stable_poses(box)
    assert len(poses) == 6 and sum(p.probability for p in poses) == pytest.approx(1)
    assert [round(2 * p.height, 6) for p in poses] == [0.02, 0.02, 0.03, 0.03, 0.06, 0.06]
    # The solid angle of a face a x b at the distance d: 4 atan(ab / (2 d sqrt(4 d^2 + a^2 + b^2))).
    a, b, d = 0.03, 0.06, 0.01
    share = 4 * np.arctan(a * b / (2 * d * np.sqrt(4 * d**2 + a**2 + b**2))) / (4 * np.pi)
    assert poses[0].probability == pytest.approx(share, abs=1e-6)
    for pose in poses:
        z = (box.vertices @ pose.R_WO.T)[:, 2] + pose.height
        assert z.min() == pytest.approx(0, abs=1e-9) and np.sum(z < 1e-9) >= 4


def test_an_overhanging_face_topples(tmp_path):
    """A sheared block whose centre lies beyond its end face: it does not rest there, its neighbours gain."""
    import trimesh

    mesh = trimesh.creation.box([0.02, 0.02, 0.06])
    sheared = mesh.vertices.copy()
    sheared[:, 0] += 1.0 * sheared[:, 2]  # The ends are shifted by 30 mm either way, beyond their half width.
    item = made(tmp_path, trimesh.Trimesh(sheared, mesh.faces))
    poses = stable_poses(item)
    assert [p for p in poses if abs(p.R_WO[2, 2]) > 0.99] == []
    assert sum(p.probability for p in poses) == pytest.approx(1)
    # They topple over the edge across x. The faces across y gain nothing: theirs is the share of directions.
    rays = np.random.default_rng(0).normal(size=(40_000, 3))
    hits = MeshDistance(item.vertices, item.faces).first_hits(np.zeros_like(rays), rays)
    across = sum(p.probability for p in poses if abs(p.R_WO[2, 1]) > 0.99)
    assert across == pytest.approx(np.mean(np.abs(hits.normals[:, 1]) > 0.99), abs=0.01)
    upright = made(tmp_path, mesh, "upright")
    assert len([p for p in stable_poses(upright) if abs(p.R_WO[2, 2]) > 0.99]) == 2


def test_toppling_against_plain_loops(tmp_path):
    """Probabilities of a lumpy hull, every triangle a face, by walking from face to face."""
    import trimesh

    rng = np.random.default_rng(3)
    points = rng.normal(size=(60, 3))
    points *= [0.03, 0.02, 0.04] / np.linalg.norm(points, axis=1, keepdims=True)
    item = made(tmp_path, trimesh.convex.convex_hull(points))
    corners = item.hull_vertices - item.mass_properties.com_O
    size = np.ptp(corners, axis=0).max()
    sides = {tuple(f[[e, (e + 1) % 3]]): t for t, f in enumerate(item.hull_faces) for e in range(3)}
    found = np.zeros(len(item.hull_faces))
    for start, face in enumerate(item.hull_faces):
        a, b, c = corners[face] / np.linalg.norm(corners[face], axis=1, keepdims=True)
        # The angle sum of a spherical triangle, less pi.
        share = -np.pi
        for x, y, z in ((a, b, c), (b, c, a), (c, a, b)):
            u, v = np.cross(x, y), np.cross(x, z)
            share += np.arccos(u @ v / np.linalg.norm(u) / np.linalg.norm(v))
        at = start
        while True:
            f = item.hull_faces[at]
            normal = np.cross(corners[f[1]] - corners[f[0]], corners[f[2]] - corners[f[0]])
            over = []
            for e in range(3):
                p, q = corners[f[e]], corners[f[(e + 1) % 3]]
                out = np.cross(q - p, normal)
                over.append((-p @ out / np.linalg.norm(out), sides[f[(e + 1) % 3], f[e]]))
            if max(over)[0] + 1e-3 * size <= 0:
                break
            at = max(over)[1]
        found[at] += share / (4 * np.pi)
    poses = stable_poses(item)
    expected = -np.sort(-found[found > 0])
    assert 3 < len(expected) < 40
    assert [pose.probability for pose in poses] == pytest.approx(expected, abs=1e-9)
    for pose in poses:
        assert ((item.vertices @ pose.R_WO.T)[:, 2] + pose.height).min() == pytest.approx(0, abs=1e-9)


def test_a_tilted_box_is_laid_flat_by_the_smallest_turn(box):
    flat = stable_poses(box)[2].R_WO
    tilt = turn_between(np.array([0, 0, 1.0]), np.array([0, np.sin(0.03), np.cos(0.03)]))
    R, turn = laid_flat(box, tilt @ flat)
    assert turn == pytest.approx(0.03, abs=1e-9) and np.allclose(R, flat, atol=1e-9)


def test_turn_between_opposite_vectors():
    a = np.array([0.0, 0.6, 0.8])
    for b in (a, -a, np.array([1.0, 0, 0])):
        R = turn_between(a, b)
        assert np.allclose(R @ a, b) and np.linalg.det(R) == pytest.approx(1)


def test_candidates_keep_their_promises(lifted):
    gripper = Gripper()
    grasps = candidates(lifted, gripper, count=12, seed=1)
    assert len(grasps) == 12
    points = outline_points(gripper.pad.outline, 1e-3)
    mesh = surface(lifted)
    for g in grasps:
        assert np.allclose(g.R_WG.T @ g.R_WG, np.eye(3), atol=1e-9) and np.linalg.det(g.R_WG) > 0
        assert -g.R_WG[2, 2] >= np.cos(STEEPEST) - 1e-9
        outline = np.column_stack([np.zeros(len(gripper.pad.outline)), gripper.pad.outline])
        for side in (-1, 1):
            # The whole opened pad, face and backing, is above the plane and outside of the object.
            for x in (gripper.opening / 2, gripper.opening / 2 + gripper.pad.thickness):
                corners = g.p_WG + (outline + np.array([side * x, 0, 0])) @ g.R_WG.T
                assert corners[:, 2].min() >= CLEARANCE - 1e-9
                assert mesh.query(corners).values.min() > 0
        for jaw in (0, 1):
            patch = press(mesh, g, gripper, jaw, points)
            assert patch is not None
            towards = g.axis_W * (1 if jaw == 0 else -1)
            # Where the axis meets the object, it lies in the friction cone.
            assert (patch.n_W @ towards).max() >= np.cos(np.arctan(gripper.friction)) - 1e-6


def test_the_best_come_first_and_the_seed_decides(lifted):
    grasps = candidates(lifted, Gripper(), count=6, seed=1)
    again = candidates(lifted, Gripper(), count=6, seed=1)
    assert all(np.array_equal(a.p_WG, b.p_WG) for a, b in zip(grasps, again, strict=True))
    other = candidates(lifted, Gripper(), count=6, seed=2)
    assert not all(np.array_equal(a.p_WG, b.p_WG) for a, b in zip(grasps, other, strict=True))
    held = Reach().outcomes(lifted, grasps, Gripper())
    assert held[0] and np.all(np.diff(held.astype(int)) <= 0)


def test_low_objects_are_taken_with_the_tips(tmp_path):
    """A plate 8 mm high: the pads, 22 mm long, are drawn back so that they do not meet the plane."""
    import trimesh

    plate = made(tmp_path, trimesh.creation.box([0.03, 0.06, 0.008]))
    low = rest(plate, stable_poses(plate)[0], 0.02)
    grasps = candidates(low, Gripper(), count=5)
    assert grasps
    for g in grasps:
        assert (g.p_WG + 0.011 * g.R_WG[:, 2])[2] >= CLEARANCE - 1e-9


def test_pairs_outside_the_friction_cone_are_no_candidates(tmp_path):
    """Faces of a tetrahedron are 35 degrees from facing each other; the sampler's wider cones find them."""
    import trimesh

    corners = 0.03 * np.array([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    item = made(tmp_path, trimesh.Trimesh(corners, [[0, 1, 2], [0, 2, 3], [0, 3, 1], [1, 3, 2]]))
    assert candidates(rest(item, stable_poses(item)[0], 0.02), Gripper(friction=0.4), count=5) == []
    assert candidates(rest(item, stable_poses(item)[0], 0.02), Gripper(friction=0.9), count=5) != []


def test_a_thin_rod_through_a_finger_is_a_collision(tmp_path):
    """It passes between the finger's corners, so only points of the object tell."""
    import trimesh

    rod = made(tmp_path, trimesh.creation.box([0.006, 0.06, 0.006]))
    pose = min(stable_poses(rod), key=lambda p: np.abs(p.R_WO - np.eye(3)).max())
    below = rest(rod, pose, 0.01)
    along_y = np.abs(below.R_WO[1, 1]) > 0.99
    assert along_y
    clear = _Clear(below, Gripper())
    for x, free in ((0.03, False), (-0.03, False), (0.0, True), (0.06, True)):
        grasp = JawGrasp(p_WG=np.array([x, 0.0, 0.013]), R_WG=np.diag([1.0, -1.0, -1.0]))
        assert clear(grasp) == free, x


def test_there_may_be_none(box):
    upright = rest(box, stable_poses(box)[0], 0.05)
    assert candidates(upright, Gripper(opening=0.015)) == []
    assert "needs 22 mm" in shortage(upright, Gripper(opening=0.015))
    assert "100 % are too wide for 15 mm" in shortage(upright, Gripper(opening=0.015))
    # On its side, 20 mm high, under pads that are too long to be drawn back.
    long = Gripper(pad=Pad(outline=rectangle(0.016, 0.2)), opening=0.05)
    assert candidates(upright, long) == [] and "or the plane" in shortage(upright, long)


@pytest.mark.parametrize(("change", "message"), [({"count": 0}, "count"), ({"rolls": 0}, "rolls")])
def test_senseless_requests_are_refused(lifted, change, message):
    with pytest.raises(JawsError, match=message):
        candidates(lifted, Gripper(), **change)
    with pytest.raises(JawsError, match="friction is 0"):
        candidates(lifted, Gripper(friction=0.0))
    with pytest.raises(JawsError, match="seed is -1"):
        candidates(lifted, Gripper(), seed=-1)
