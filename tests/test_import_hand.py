"""Hands that nobody annotated, the vendors' and small ones written here: described, edited, read again.

Every opposition space is judged by MuJoCo's own distances, not by the code that found it.
"""

import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import mujoco
import numpy as np
import pytest
import trimesh

from fistful.errors import HandError
from fistful.geometry.primitives import sample_surface
from fistful.hands import Hand, hand_names, load_hand, save_hand
from fistful.hands.describing import verify_space
from fistful.hands.library import import_model
from fistful.hands.model import Model
from fistful.hands.skin import geom_distances
from fistful.storage import default_storage

FILES = {
    "allegro": "menagerie/wonik_allegro/right_hand.xml",
    "shadow": "menagerie/shadow_hand/right_hand.xml",
    "leap": "menagerie/leap_hand/right_hand.xml",
    "barrett": "barrett_hand/bhand_model.urdf",
}
SEVEN = ("middle-ring", "index-middle", "thumb-index", "ring-palm", "middle-palm", "index-palm", "thumb-palm")


@pytest.fixture(scope="session")
def vendor(assets: Path):
    """The automatically described vendor hands by name, each described once."""

    @cache
    def load(name: str) -> Hand:
        return load_hand(assets / FILES[name])

    return load


# ---------------------------------------------------------------------------------------------------
# The model that is left is the vendor's


def vendor_compiled(path: Path) -> mujoco.MjModel:
    """The vendor's file as MuJoCo itself reads it; its URDF reader needs to be told where the meshes are."""
    if path.suffix == ".xml":
        return mujoco.MjModel.from_xml_path(str(path))
    settings = (
        f'<compiler strippath="false" meshdir="{path.parent}" fusestatic="false" balanceinertia="true"/>'
    )
    text = path.read_text().replace("<link", f"<mujoco>{settings}</mujoco><link", 1)
    return mujoco.MjModel.from_xml_string(text)


@pytest.mark.parametrize("name", FILES)
def test_kinematics_are_the_vendors(name, vendor, assets):
    model: Model = vendor(name).model
    m = vendor_compiled(assets / FILES[name])
    d = mujoco.MjData(m)
    palm, theirs = m.body(model.bodies[0]).id, [m.body(body).id for body in model.bodies]
    addresses = [m.jnt_qposadr[m.joint(joint).id] for joint in model.all_joints]
    rng = np.random.default_rng(0)
    for q in rng.uniform(model.lower, model.upper, (50, len(model.joints))):
        # Whatever the wrist does, nothing moves relative to the palm.
        d.qpos[:] = rng.uniform(m.jnt_range[:, 0], m.jnt_range[:, 1])
        d.qpos[addresses] = model.expand(q)
        mujoco.mj_kinematics(m, d)
        R_WH = d.xmat[palm].reshape(3, 3)
        poses = model.poses(q)
        np.testing.assert_allclose(poses.p_HB, (d.xpos[theirs] - d.xpos[palm]) @ R_WH, atol=1e-7)
        np.testing.assert_allclose(poses.R_HB, R_WH.T @ d.xmat[theirs].reshape(-1, 3, 3), atol=1e-7)


@pytest.mark.parametrize("name", FILES)
def test_mass_and_limits_are_the_vendors(name, vendor, assets):
    model: Model = vendor(name).model
    m = vendor_compiled(assets / FILES[name])
    below = [b for b in range(m.nbody) if model.bodies[0] in names_above(m, b)]
    # The Barrett's file puts the mass of two links far outside of them; only there it is made anew.
    impossible = [note for note in vendor(name).notes if "centre of mass" in note]
    assert len(impossible) == (2 if name == "barrett" else 0)
    if not impossible:
        assert model.compiled.body_mass.sum() == pytest.approx(m.body_mass[below].sum(), rel=1e-5)
    for k, joint in enumerate(model.joints):
        np.testing.assert_allclose([model.lower[k], model.upper[k]], m.joint(joint).range, atol=1e-8)


def names_above(m: mujoco.MjModel, body: int) -> list[str]:
    """Names of a body and of all that carry it."""
    names = [m.body(body).name]
    while body:
        body = int(m.body_parentid[body])
        names.append(m.body(body).name)
    return names


def surface_points(m: mujoco.MjModel, g: int) -> np.ndarray:
    """Points on the hull of a vendor's geom, in the geom's frame."""
    kind, size = m.geom_type[g], m.geom_size[g]
    rng = np.random.default_rng(0)
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = m.geom_dataid[g]
        first, count = m.mesh_vertadr[mesh], m.mesh_vertnum[mesh]
        hull = trimesh.convex.convex_hull(m.mesh_vert[first : first + count].astype(float))
        return np.asarray(trimesh.sample.sample_surface(hull, 500, seed=0)[0])
    if kind == mujoco.mjtGeom.mjGEOM_ELLIPSOID:
        v = rng.normal(size=(500, 3))
        return size * v / np.linalg.norm(v, axis=1, keepdims=True)
    return sample_surface(kind, size, 500, rng)


@pytest.mark.parametrize(
    ("name", "median_mm", "p95_mm"),
    [("allegro", 1e-3, 1e-3), ("shadow", 0.7, 2.5), ("leap", 0.7, 2), ("barrett", 1, 3)],
)
def test_primitives_follow_the_collision_geometry(name, median_mm, p95_mm, vendor, assets, figure):
    """How far every collision shape's surface is from the shapes that stand for its body."""
    model: Model = vendor(name).model
    m = vendor_compiled(assets / FILES[name])
    d = mujoco.MjData(m)
    mujoco.mj_kinematics(m, d)
    palm = m.body(model.bodies[0]).id
    q = np.clip(0, model.lower, model.upper)
    for joint, value in zip(model.all_joints, model.expand(q), strict=True):
        d.qpos[m.jnt_qposadr[m.joint(joint).id]] = value
    mujoco.mj_kinematics(m, d)
    worst = []
    for g in range(m.ngeom):
        above = [body for body in names_above(m, int(m.geom_bodyid[g])) if body in model.bodies]
        if not above or not (m.geom_contype[g] or m.geom_conaffinity[g]):
            continue
        p_W = surface_points(m, g) @ d.geom_xmat[g].reshape(3, 3).T + d.geom_xpos[g]
        p_H = (p_W - d.xpos[palm]) @ d.xmat[palm].reshape(3, 3)
        distance = geom_distances(model, model.poses(q), p_H)
        own = [k for k, geom in enumerate(model.geoms) if model.bodies[geom.body] == above[0]]
        worst.append(np.abs(distance[:, own]).min(axis=1))
    distance_mm = 1e3 * np.concatenate(worst)
    median, p95 = np.median(distance_mm), np.percentile(distance_mm, 95)
    figure(f"{name} (vendor file, automatic): collision surface to primitives, 95 %", p95, "mm")
    assert median < median_mm
    assert p95 < p95_mm


# ---------------------------------------------------------------------------------------------------
# What was left out or assumed is said


def test_the_wrist_is_left_out_and_said(vendor):
    hand = vendor("shadow")
    assert len(hand.joints) == 22
    assert not any("WRJ" in joint for joint in hand.model.all_joints)
    assert any("rh_WRJ2" in note and "rh_WRJ1" in note and "'rh_palm'" in note for note in hand.notes)


@pytest.mark.parametrize("name", FILES)
def test_every_replaced_mesh_is_said(name, vendor):
    hand = vendor(name)
    became = [note for note in hand.notes if " became " in note]
    assert len(became) == {"allegro": 0, "shadow": 5, "leap": 4, "barrett": 3}[name]
    assert all("\n" not in note for note in hand.notes)
    unstated = [note for note in hand.notes if "no force limit stated" in note]
    assert len(unstated) == (name != "shadow")


def test_a_scene_around_the_hand_changes_nothing(assets):
    """Floor and ball of the vendor's scene file are not part of the hand."""
    folder = assets / "menagerie" / "wonik_allegro"
    alone, _ = import_model(folder / "right_hand.xml")
    scene, notes = import_model(folder / "scene_right.xml")
    assert any("beside the palm" in note for note in notes)
    assert scene.mjcf.splitlines()[1:] == alone.mjcf.splitlines()[1:]  # All but the name.


def test_a_hand_without_its_pictures_is_read(assets, tmp_path):
    """Only visual meshes are missing: that is said, and the mechanics are the same."""
    source = assets / "menagerie" / "wonik_allegro" / "right_hand.xml"
    model, notes = import_model(Path(shutil.copy(source, tmp_path)))
    assert any("left out visual geometry" in note for note in notes)
    assert [g.name for g in model.geoms] == [g.name for g in import_model(source)[0].geoms]


# ---------------------------------------------------------------------------------------------------
# Fingers and opposition spaces


@pytest.mark.parametrize(
    ("name", "fingers", "joints"),
    [
        ("allegro", ("index", "middle", "ring", "thumb"), (4, 4, 4, 4)),
        ("shadow", ("index", "middle", "ring", "little", "thumb"), (4, 4, 4, 5, 5)),
        ("leap", ("index", "middle", "ring", "thumb"), (4, 4, 4, 4)),
        ("barrett", ("finger_1", "finger_2", "finger_3"), (3, 3, 2)),
    ],
)
def test_fingers_are_found(name, fingers, joints, vendor):
    hand = vendor(name)
    found = {finger.name: int(finger.joint_mask.sum()) for finger in hand.fingers}
    assert found == dict(zip(fingers, joints, strict=True))


@pytest.mark.parametrize("name", FILES)
def test_a_space_spends_the_joints_of_its_fingers(name, vendor):
    hand = vendor(name)
    joints = {finger.name: finger.joint_mask for finger in hand.fingers}
    joints["palm"] = np.zeros(len(hand.joints), dtype=bool)
    for space in hand.opposition_spaces:
        first, second = space.name.split("-")
        np.testing.assert_array_equal(space.joint_mask, joints[first] | joints[second])


def test_the_papers_seven_spaces_are_among_the_allegros(vendor):
    hand = vendor("allegro")
    vendor_joints = {
        finger: {f"{short}j{k}" for k in range(4)}
        for finger, short in {"index": "ff", "middle": "mf", "ring": "rf", "thumb": "th"}.items()
    }
    for name in SEVEN:
        expected = set().union(*(vendor_joints[part] for part in name.split("-") if part != "palm"))
        assert set(np.array(hand.joints)[hand.space(name).joint_mask]) == expected


@pytest.mark.parametrize(
    ("name", "at_least"), [("allegro", 10), ("shadow", 15), ("leap", 10), ("barrett", 6)]
)
def test_as_many_spaces_as_ever_are_found(name, at_least, vendor):
    """Every pair of fingers, and every finger with the palm; all hold at least the 40 mm ball."""
    spaces = vendor(name).description.opposition_spaces
    assert len(spaces) >= at_least
    for space in spaces:
        assert space.span_mm is not None
        assert space.span_mm[0] <= 40 <= space.span_mm[1]


class Verdict(NamedTuple):
    """MuJoCo's measurements of a grasp: gap to the farther surface, deepest overlap, tilt of the contacts."""

    gap_mm: float
    overlap_mm: float
    tilt_deg: float


def judge(hand: Hand, space_name: str, ball_mm: float) -> Verdict:
    """Hold a ball, put hand and ball into MuJoCo, and measure there."""
    space, model = hand.space(space_name), hand.model
    first, second = (surface.candidates for surface in space.surfaces)
    grasp = verify_space(model, first, second, space.joint_mask, ball_mm)
    assert grasp is not None, f"{hand.name} {space_name}: no grasp of a {ball_mm:g} mm ball"
    assert np.all((grasp.q >= model.lower - 1e-9) & (grasp.q <= model.upper + 1e-9))
    np.testing.assert_array_equal(grasp.q[~space.joint_mask], model.open_pose[~space.joint_mask])

    spec = mujoco.MjSpec.from_string(model.mjcf)
    ball = spec.worldbody.add_body(name="ball", pos=grasp.c_H)
    ball.add_geom(name="ball", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[ball_mm / 2000, 0, 0])
    m = spec.compile()
    d = mujoco.MjData(m)
    d.qpos[:] = model.expand(grasp.q)
    mujoco.mj_forward(m, d)
    ball = m.geom("ball").id
    segment = np.empty(6)
    distance, contact = {}, {}
    for g in range(m.ngeom):
        if g != ball:
            distance[g] = mujoco.mj_geomDistance(m, d, ball, g, 0.2, segment)
            contact[g] = segment[:3].copy()
    touching = []
    for skin in (first, second):
        bodies = {model.bodies[b] for b in skin.body}
        own = [g for g in distance if m.body(m.geom_bodyid[g]).name in bodies]
        touching.append(min(own, key=lambda g: distance[g]))
    gap = max(abs(distance[g]) for g in touching)
    itself = max((-c.dist for c in d.contact if ball not in c.geom), default=0.0)
    overlap = max(itself, -min(distance.values()), 0.0)
    normals = np.array([contact[g] - grasp.c_H for g in touching])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    line = normals[1] - normals[0]
    line /= np.linalg.norm(line)
    tilt = np.rad2deg(np.arccos(np.clip([-line @ normals[0], line @ normals[1]], -1, 1))).max()
    return Verdict(1e3 * gap, 1e3 * overlap, float(tilt))


def judge_all(hand: Hand, label: str = "", figure: Callable[..., None] = lambda *_: None) -> None:
    verdicts = {}
    for space in hand.description.opposition_spaces:
        ball_mm = min(40.0, space.span_mm[1] if space.span_mm else 40.0)
        verdicts[space.name] = judge(hand, space.name, ball_mm)
    assert verdicts
    worst = Verdict(*np.max(list(verdicts.values()), axis=0))
    figure(f"{label}: opposition spaces that hold a ball in MuJoCo", len(verdicts))
    figure(f"{label}: opposition spaces, largest gap", worst.gap_mm, "mm")
    figure(f"{label}: opposition spaces, deepest overlap", worst.overlap_mm, "mm")
    figure(f"{label}: opposition spaces, largest tilt", worst.tilt_deg, "deg")
    assert worst.gap_mm < 1, verdicts
    assert worst.overlap_mm < 0.6, verdicts
    assert worst.tilt_deg < 45, verdicts


@pytest.mark.parametrize("name", FILES)
def test_mujoco_agrees_that_every_space_found_holds_a_ball(name, vendor, figure):
    judge_all(vendor(name), f"{name} (vendor file, automatic)", figure)


@pytest.mark.parametrize("name", hand_names())
def test_mujoco_agrees_that_every_built_in_space_holds_a_ball(name, figure):
    judge_all(load_hand(name), name, figure)


# ---------------------------------------------------------------------------------------------------
# Small hands written here

BOX = '<geometry><box size="{}"/></geometry>'


def urdf(*parts: str) -> str:
    return f'<robot name="small">{"".join(parts)}</robot>'


def link(name: str, size: str, at: str = "0 0 .03", geometry: str = BOX) -> str:
    return f'<link name="{name}"><collision><origin xyz="{at}"/>{geometry.format(size)}</collision></link>'


def joint(
    name: str, parent: str, child: str, at: str, axis: str, limits: str, kind: str, extra: str = ""
) -> str:
    lower, upper = limits.split()
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
        f'<origin xyz="{at}"/><axis xyz="{axis}"/>'
        f'<limit lower="{lower}" upper="{upper}" effort="20"/>{extra}</joint>'
    )


FINGER = ".02 .01 .06"
BASE = link("base", ".06 .16 .04", "0 0 -.02")
GRIPPER = urdf(
    BASE,
    link("left", FINGER),
    link("right", FINGER),
    joint("left_slide", "base", "left", "0 .006 0", "0 1 0", "0 .05", "prismatic"),
    joint("right_slide", "base", "right", "0 -.006 0", "0 -1 0", "0 .05", "prismatic"),
)
MIMIC = '<mimic joint="left_slide"/>'
COUPLED_GRIPPER = GRIPPER.replace('effort="20"/></joint></robot>', f'effort="20"/>{MIMIC}</joint></robot>')


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("text", "joints"), [(GRIPPER, 2), (COUPLED_GRIPPER, 1)], ids=["free", "coupled"])
def test_a_sliding_gripper(text, joints, tmp_path):
    hand = load_hand(write(tmp_path, "gripper.urdf", text))
    assert len(hand.joints) == joints
    assert [space.name for space in hand.opposition_spaces] == ["left-right"]
    assert hand.space("left-right").joint_mask.all()
    # The inner faces hold, not the outer ones.
    poses = hand.poses(hand.model.open_pose)
    skins = [surface.candidates for surface in hand.space("left-right").surfaces]
    normals = [poses.directions(skin.body, skin.n_B).mean(axis=0) for skin in skins]
    assert normals[0][1] < -0.6 and normals[1][1] > 0.6
    judge_all(hand)


def test_one_finger(tmp_path):
    """A single finger can only press against the palm, or nothing: this one does."""
    text = urdf(
        link("base", ".1 .1 .02", "0 0 -.01"),
        link("lower", ".015 .015 .04", "0 0 .02"),
        link("upper", ".015 .015 .04", "0 0 .02"),
        joint("knuckle", "base", "lower", "-.045 0 .01", "0 1 0", "0 1.6", "revolute"),
        joint("middle", "lower", "upper", "0 0 .04", "0 1 0", "0 1.6", "revolute"),
    )
    hand = load_hand(write(tmp_path, "one.urdf", text))
    assert len(hand.fingers) == 1
    assert [space.name.endswith("-palm") for space in hand.opposition_spaces] == [True]
    judge_all(hand)


def test_one_finger_that_reaches_nothing_is_said(tmp_path):
    text = urdf(
        link("base", ".02 .02 .02"),
        link("lower", ".01 .01 .04", "0 0 .02"),
        joint("knuckle", "base", "lower", "0 0 .05", "0 0 1", "-1 1", "revolute"),
    )
    with pytest.raises(HandError, match=r"hold a 40 mm ball.*1 fingers found: lower"):
        load_hand(write(tmp_path, "poor.urdf", text))


def test_mimic_joints(tmp_path):
    """Multiplier, offset, and a mimic of a mimic; MuJoCo's kinematics of the expanded vector agree."""
    mimic = '<mimic joint="{}" multiplier="{}" offset="{}"/>'
    chain = [
        link("base", ".1 .1 .02", "0 0 -.01"),
        *(link(f"l{k}", ".01 .01 .02", "0 0 .01") for k in range(4)),
        joint("j0", "base", "l0", "0 0 .01", "0 1 0", "-.2 1", "revolute"),
        joint("j1", "l0", "l1", "0 0 .02", "0 1 0", "-3 3", "revolute", mimic.format("j0", 1.5, 0.1)),
        joint("j2", "l1", "l2", "0 0 .02", "0 1 0", "-3 3", "revolute", mimic.format("j1", -2, 0)),
        joint("j3", "l2", "l3", "0 0 .02", "0 1 0", "0 .5", "revolute", '<mimic joint="j0"/>'),
    ]
    model, _ = import_model(write(tmp_path, "mimic.urdf", urdf(*chain)))
    assert model.joints == ("j0",)
    np.testing.assert_allclose(model.expand(np.array([0.4])), [0.4, 0.7, -1.4, 0.4])
    # j3 = j0 in [0, .5], j0 in [-.2, 1].
    np.testing.assert_allclose([model.lower, model.upper], [[0], [0.5]])
    np.testing.assert_allclose(model.open_pose, 0, atol=1e-9)


def test_the_open_pose_respects_couplings(tmp_path):
    """Zero would put the coupled joint below its limit: the driver opens a little instead."""
    chain = [
        link("base", ".1 .1 .02", "0 0 -.01"),
        *(link(f"l{k}", ".01 .01 .02", "0 0 .01") for k in range(2)),
        joint("j0", "base", "l0", "0 0 .01", "0 1 0", "-1 1", "revolute"),
        joint("j1", "l0", "l1", "0 0 .02", "0 1 0", "0 2", "revolute", '<mimic joint="j0" offset="-.3"/>'),
    ]
    model, _ = import_model(write(tmp_path, "mimic.urdf", urdf(*chain)))
    np.testing.assert_allclose(model.open_pose, [0.3])
    np.testing.assert_allclose(model.compiled.key("open").qpos, [0.3, 0], atol=1e-9)


def test_a_ros_package(tmp_path):
    """Meshes by package:// from a file in urdf/, both with the package's name and via package.xml."""
    for folder in ("small_hand", "checkout"):
        package = tmp_path / folder
        write(package, "package.xml", "<package><name>small_hand</name></package>")
        mesh = '<mesh filename="package://small_hand/meshes/{}.stl" scale=".001 .001 .001"/>'
        mesh = f"<geometry>{mesh}</geometry>"
        text = urdf(
            BASE,
            link("left", "finger", geometry=mesh),
            link("right", "finger", geometry=mesh),
            *re.findall(r"<joint.*?</joint>", GRIPPER),
        )
        (package / "meshes").mkdir()
        trimesh.creation.box((20, 10, 60)).export(package / "meshes" / "finger.stl")
        model, notes = import_model(write(package, "urdf/gripper.urdf", text))
        sizes = {g.name: np.sort(g.primitive.size) for g in model.geoms}
        np.testing.assert_allclose(sizes["left_0"], [0.005, 0.01, 0.03], atol=1e-5)
        np.testing.assert_allclose(sizes["right_0"], [0.005, 0.01, 0.03], atol=1e-5)
        assert sum(" became box" in note for note in notes) == 2


def test_a_urdf_whose_root_is_called_world(tmp_path):
    text = GRIPPER.replace(
        "</robot>",
        '<link name="world"/><joint name="mount" type="fixed"><parent link="world"/><child link="base"/>'
        "</joint></robot>",
    )
    model, _ = import_model(write(tmp_path, "gripper.urdf", text))
    assert model.bodies == ("base", "left", "right")
    assert model.joints == ("left_slide", "right_slide")


MJCF = """
<mujoco><compiler angle="radian"/><worldbody>{}
  <geom type="box" size=".04 .04 .01"/>
  <body pos=".03 0 .01"><joint axis="0 1 0" range="-1.5 0"/><joint axis="1 0 0" range="-.3 .3"/>
    <geom type="capsule" fromto="0 0 .01 0 0 .05" size=".008"/></body>
  <body pos="-.03 0 .01"><joint axis="0 1 0" range="0 1.5"/>
    <geom type="capsule" fromto="0 0 .01 0 0 .05" size=".008"/>
    <geom name="body_2_0" size=".009" pos="0 0 .05"/></body>
  {}</worldbody></mujoco>"""


@pytest.mark.parametrize(
    "body", [("", ""), ('<body pos="0 0 .3"><freejoint/>', "</body>")], ids=["world", "floating"]
)
def test_what_has_no_name_is_given_one(body, tmp_path):
    """Unnamed bodies, joints and geoms, and a palm that is the world itself or floats."""
    model, notes = import_model(write(tmp_path, "anonymous.xml", MJCF.format(*body)))
    for names in (model.bodies, model.joints, [g.name for g in model.geoms]):
        assert len(set(names)) == len(names)
        assert all(names)
    assert (len(model.bodies), len(model.joints), len(model.geoms)) == (3, 3, 4)
    assert any("left out what is above or beside the palm" in note for note in notes) == bool(body[0])
    assert sum("no force limit stated" in note and model.joints[0] in note for note in notes) == 1


def test_a_coupling_to_a_joint_that_is_left_out_holds_the_joint(tmp_path):
    text = """
    <mujoco><compiler angle="radian"/><worldbody>
      <body name="arm"><joint name="wrist" axis="0 0 1" range="-1 1"/><geom size=".03"/>
      <body name="palm" pos="0 0 .05"><joint name="tilt" axis="1 0 0" range="-1 1"/>
        <geom type="box" size=".04 .04 .01"/>
        <body name="a" pos=".03 0 .01"><joint name="a" axis="0 1 0" range="-1.5 1"/>
          <geom type="capsule" fromto="0 0 .01 0 0 .05" size=".008"/></body>
        <body name="b" pos="-.03 0 .01"><joint name="b" axis="0 1 0" range="0 1.5"/>
          <geom type="capsule" fromto="0 0 .01 0 0 .05" size=".008"/></body>
      </body></body></worldbody>
      <equality><joint joint1="a" joint2="wrist" polycoef="-.2 1 0 0 0"/>
        <joint joint1="tilt" joint2="wrist"/><weld body1="arm" active="true"/></equality>
    </mujoco>"""
    model, notes = import_model(write(tmp_path, "held.xml", text))
    assert model.joints == ("b",)
    np.testing.assert_allclose(model.expand(np.array([0.3])), [-0.2, 0.3])
    assert any("'a' is held at a constant value" in note for note in notes)


# ---------------------------------------------------------------------------------------------------
# Written out, edited, read again; the cache


def assert_same_hand(first: Hand, second: Hand) -> None:
    assert first.model.mjcf == second.model.mjcf
    assert first.description == second.description
    for a, b in zip(first.surfaces, second.surfaces, strict=True):
        np.testing.assert_array_equal(a.candidates.p_B, b.candidates.p_B)


@pytest.mark.parametrize("name", FILES)
def test_written_and_read_again_it_is_the_same(name, vendor, tmp_path):
    hand = vendor(name)
    again = load_hand(save_hand(hand, tmp_path, name=hand.name))
    assert again.model.mjcf == hand.model.mjcf
    assert again.fingers[0].name == hand.fingers[0].name
    for a, b in zip(hand.opposition_spaces, again.opposition_spaces, strict=True):
        assert a.name == b.name
        np.testing.assert_array_equal(a.joint_mask, b.joint_mask)
        for s, t in zip(a.surfaces, b.surfaces, strict=True):
            np.testing.assert_allclose(s.candidates.p_B, t.candidates.p_B, atol=1e-12)


def test_what_was_edited_is_there(vendor, tmp_path):
    hand = vendor("allegro")
    path = save_hand(hand, tmp_path / "new" / "folder", name="mine")
    assert sorted(p.name for p in path.parent.iterdir()) == ["mine.toml", "mine.xml"]
    head, *blocks = path.read_text(encoding="utf-8").split("\n\n")
    blocks = [block for block in blocks if 'name = "index-ring"' not in block]
    text = "\n\n".join([head, *blocks]).replace('"thumb" = ', '"Daumen 🖐" = ')
    surface = re.search(r'\[\[surface\]\]\nname = "palm".*?\]\n', text, re.S)
    assert surface is not None
    text = text.replace(surface[0], surface[0].replace("cone_deg = 50", "cone_deg = 95"))
    path.write_text(text, encoding="utf-8")

    edited = load_hand(path)
    assert edited.name == "mine"
    assert [f.name for f in edited.fingers] == ["index", "middle", "ring", "Daumen 🖐"]
    names = [space.name for space in hand.opposition_spaces]
    assert [space.name for space in edited.opposition_spaces] == [n for n in names if n != "index-ring"]
    spread = {h.name: surface_spread(h, "palm") for h in (hand, edited)}
    assert spread["mine"] > spread[hand.name] + 20
    # And the edited hand can be written and read once more.
    assert load_hand(save_hand(edited, tmp_path)).fingers[3].name == "Daumen 🖐"


def surface_spread(hand: Hand, name: str) -> float:
    """Largest angle in degrees between a surface's normals and their mean."""
    (normals,) = (s.candidates.n_B for s in hand.surfaces if s.name == name)
    mean = normals.mean(axis=0) / np.linalg.norm(normals.mean(axis=0))
    return float(np.rad2deg(np.arccos(np.clip(normals @ mean, -1, 1))).max())


COUPLINGS = """
<equality>
  <joint joint1="finger_2_prox_joint" joint2="finger_1_prox_joint" polycoef="0 -1 0 0 0"/>
  <joint joint1="finger_1_dist_joint" joint2="finger_1_med_joint" polycoef="0 .32 0 0 0"/>
  <joint joint1="finger_2_dist_joint" joint2="finger_2_med_joint" polycoef="0 .32 0 0 0"/>
  <joint joint1="finger_3_dist_joint" joint2="finger_3_med_joint" polycoef="0 .32 0 0 0"/>
</equality>"""


def test_couplings_added_by_hand_move_joints_together(vendor, tmp_path):
    """The real Barrett has four motors: spread, and one for each finger."""
    hand = vendor("barrett")
    path = save_hand(hand, tmp_path, name="barrett")
    xml = path.with_suffix(".xml")
    text = xml.read_text()
    assert "<equality />" in text
    # Actuators of coupled joints go, as the couplings drive them.
    text = re.sub(r'\s*<position name="(finger_2_prox|finger_\d_dist)_joint".*?/>', "", text)
    xml.write_text(text.replace("<equality />", COUPLINGS))

    coupled = load_hand(path)
    expected = ("finger_1_prox_joint", "finger_1_med_joint", "finger_2_med_joint", "finger_3_med_joint")
    assert coupled.joints == expected
    q = np.array([-1.0, -0.5, -1.5, -2.0])
    joints = dict(zip(coupled.model.all_joints, coupled.model.expand(q), strict=True))
    assert joints["finger_2_prox_joint"] == pytest.approx(1.0)
    assert joints["finger_2_dist_joint"] == pytest.approx(-0.48)
    # The full hand, given all joints, is in the same place.
    full = [joints[name] for name in hand.joints]
    np.testing.assert_allclose(coupled.poses(q).p_HB, hand.poses(np.array(full)).p_HB, atol=1e-9)
    # A space's joints are those that drive it; finger 2 spreads with finger 1.
    mask = coupled.space("finger_2-palm").joint_mask
    assert set(np.array(coupled.joints)[mask]) == {"finger_1_prox_joint", "finger_2_med_joint"}
    judge(coupled, "finger_1-finger_3", 40)


def test_the_same_file_gives_the_same_description(tmp_path):
    path = write(tmp_path, "gripper.urdf", GRIPPER)
    assert_same_hand(load_hand(path, use_cache=False), load_hand(path, use_cache=False))


def test_the_cache_gives_the_same_and_a_damaged_entry_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("FISTFUL_CACHE", str(tmp_path / "cache"))
    path = write(tmp_path, "gripper.urdf", GRIPPER)
    steps: list[str] = []
    fresh = load_hand(path, progress=steps.append)
    assert steps
    steps.clear()
    cached = load_hand(path, progress=steps.append)
    assert not steps
    assert_same_hand(fresh, cached)
    assert cached.notes == fresh.notes

    (entry,) = default_storage("hands").folder.iterdir()
    body = bytearray(entry.read_bytes())
    body[len(body) // 2] ^= 1
    entry.write_bytes(bytes(body))
    mended = load_hand(path, progress=steps.append)
    assert steps
    assert_same_hand(fresh, mended)
    assert any("damaged" in note for note in mended.notes)
    assert load_hand(path).notes == fresh.notes


def test_a_cache_that_can_not_be_written_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("FISTFUL_CACHE", str(write(tmp_path, "file", "not a folder")))
    hand = load_hand(write(tmp_path, "gripper.urdf", GRIPPER))
    assert any("can not write the cache folder" in note for note in hand.notes)


def test_names_that_are_no_file_names_are_refused(tmp_path):
    hand = load_hand("allegro")
    with pytest.raises(HandError, match=r"'\.\./x'"):
        save_hand(hand, tmp_path, name="../x")
    assert list(tmp_path.iterdir()) == []
