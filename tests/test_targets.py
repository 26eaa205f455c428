"""Joint targets: the Jacobian against finite differences, and what pre-grasp and squeeze promise."""

from pathlib import Path

import numpy as np
import pytest

from fistful.geometry.pose import apply, rotation_from_quaternion
from fistful.hands import hand_names, load_hand
from fistful.hands.hand import Hand
from fistful.hands.library import import_model
from fistful.hands.model import Model
from fistful.objects import load_object
from fistful.physics.protocol import PROTOCOLS
from fistful.physics.scene import SLIDE_LEVER
from fistful.synthesis.targets import (
    BACK_OFF,
    EFFORT,
    FORCE,
    MAX_OPENING,
    ROUNDING,
    SLIDE_SCALE,
    STIFFNESS,
    contact_jacobian,
    joint_targets,
)

GRIPPER = Path(__file__).resolve().parents[1] / "examples" / "gripper.urdf"
# Two joints on one body, the first of which turns the axis of the second; a slide; a coupled joint.
CHAIN = """
<mujoco>
  <worldbody>
    <body name="base">
      <geom name="base" type="box" size=".04 .04 .01"/>
      <body name="one" pos=".01 .02 .03" euler="20 30 40">
        <joint name="a" axis="0 1 0" pos=".01 0 .002" range="-90 90" actuatorfrcrange="-1 1"/>
        <joint name="b" axis="1 0 1" pos="0 .01 0" range="-90 90" actuatorfrcrange="-1 1"/>
        <geom name="one" type="capsule" fromto="0 0 0 0 0 .04" size=".008"/>
        <body name="two" pos="0 0 .05">
          <joint name="c" type="slide" axis="0 1 1" range="-.02 .02" actuatorfrcrange="-1 1"/>
          <joint name="d" axis="1 0 0" range="-90 90" actuatorfrcrange="-1 1"/>
          <geom name="two" type="sphere" size=".008" pos="0 0 .02"/>
        </body>
      </body>
    </body>
  </worldbody>
  <equality><joint joint1="d" joint2="a" polycoef=".1 .7 0 0 0"/></equality>
  <keyframe><key name="open" qpos="0 0 0 .1"/></keyframe>
</mujoco>
"""


def positions(model: Model, q: np.ndarray, body: np.ndarray, p_B: np.ndarray) -> np.ndarray:
    """Points (N, C, 3) in the hand base frame."""
    poses, row = model.poses(q), np.arange(len(q))[:, None]
    return poses.p_HB[row, body] + apply(poses.R_HB[row, body], p_B)


def assert_jacobian(model: Model, q: np.ndarray, body: np.ndarray, p_B: np.ndarray) -> None:
    steps = 1e-6 * np.eye(len(model.joints))
    columns = [
        (positions(model, q + s, body, p_B) - positions(model, q - s, body, p_B)) / 2e-6 for s in steps
    ]
    np.testing.assert_allclose(contact_jacobian(model, q, body, p_B), np.stack(columns, axis=-1), atol=1e-8)


@pytest.mark.parametrize("name", ["chain", "gripper", *hand_names()])
def test_the_jacobian_is_the_derivative(name: str):
    if name == "chain":
        model = Model.from_mjcf(CHAIN)
    else:
        model = import_model(GRIPPER)[0] if name == "gripper" else load_hand(name).model
    rng = np.random.default_rng(0)
    q = rng.uniform(model.lower, model.upper, (6, len(model.joints)))
    body = rng.integers(len(model.bodies), size=(6, 4))
    assert_jacobian(model, q, body, rng.uniform(-0.02, 0.02, (6, 4, 3)))


def grasps(hand: Hand, count: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """The arguments of `joint_targets`: both contacts lie on skin that faces the object's normal there."""
    rng, m = np.random.default_rng(seed), hand.model
    q = m.open_pose + 0.8 * (rng.uniform(m.lower, m.upper, (count, len(m.joints))) - m.open_pose)
    spaces = [hand.opposition_spaces[i % len(hand.opposition_spaces)] for i in range(count)]
    body, p_B, n_B = np.zeros((count, 2), int), np.zeros((count, 2, 3)), np.zeros((count, 2, 3))
    for i, space in enumerate(spaces):
        for c, surface in enumerate(space.surfaces):
            k = rng.integers(len(surface.candidates.body))
            body[i, c], p_B[i, c], n_B[i, c] = (column[k] for column in surface.candidates[:3])
    R_OH = rotation_from_quaternion(rng.normal(size=(count, 4)))
    R_HB = m.poses(q).R_HB[np.arange(count)[:, None], body]
    normals_O = -apply(R_OH[:, None] @ R_HB, n_B)
    mask = np.array([space.joint_mask for space in spaces])
    return rng.normal(size=(count, 3)), R_OH, q, mask, body, p_B, normals_O


def outward(hand: Hand, arguments: tuple[np.ndarray, ...], target: np.ndarray) -> np.ndarray:
    """How far (N, C), m, contacts have moved along their outward normals from the grasp to a target."""
    _, R_OH, q, _, body, p_B, normals_O = arguments
    way_H = positions(hand.model, target, body, p_B) - positions(hand.model, q, body, p_B)
    return np.sum(apply(R_OH[:, None], way_H) * normals_O, axis=-1)


def normal_rows(hand: Hand, arguments: tuple[np.ndarray, ...]) -> np.ndarray:
    """A (N, C, K): how the stage's own joints move the contacts along their outward normals."""
    _, R_OH, q, mask, body, p_B, normals_O = arguments
    n_H = apply(np.swapaxes(R_OH, 1, 2)[:, None], normals_O)
    return np.einsum("nci,ncik->nck", n_H, contact_jacobian(hand.model, q, body, p_B)) * mask[:, None]


def servo_torque(hand: Hand, q: np.ndarray, squeeze: np.ndarray) -> np.ndarray:
    """What servos that are sent to the squeeze exert at the grasp, N m (slides: N)."""
    m = hand.model
    slides = np.array([m.tree.slides[m.all_joints.index(name)] for name in m.joints])
    return STIFFNESS / np.where(slides, 0.05**2, 1.0) * (squeeze - q)


@pytest.mark.parametrize("name", hand_names())
def test_targets_open_and_press(name: str):
    hand = load_hand(name)
    model, arguments = hand.model, grasps(hand, 200)
    q, mask = arguments[2], arguments[3]
    targets = joint_targets(hand, *arguments)
    np.testing.assert_array_equal(targets.grasp, q)
    for target in (targets.pre_grasp, targets.squeeze):
        np.testing.assert_array_equal(target[~mask], q[~mask])
        assert np.all((target >= model.lower) & (target <= model.upper))
    assert np.abs(targets.pre_grasp - q).max() <= MAX_OPENING + 1e-12

    opened, pressed = outward(hand, arguments, targets.pre_grasp), -outward(hand, arguments, targets.squeeze)
    np.testing.assert_allclose(targets.opened, opened, atol=1e-12)
    np.testing.assert_allclose(targets.pressed, pressed, atol=1e-12)
    assert opened.min() > -2 * ROUNDING and pressed.min() > -2 * ROUNDING
    # Contacts that share joints meet in the middle, so one may go too far.
    assert opened.max() < 1.5 * BACK_OFF

    # Movable: some joint of the stage has a lever, and is not at the limit that the way leads to.
    rows = normal_rows(hand, arguments)
    space_out = np.where(rows > 0, (model.upper - q)[:, None], (q - model.lower)[:, None]) > 0.1
    space_in = np.where(rows < 0, (model.upper - q)[:, None], (q - model.lower)[:, None]) > 0.1
    can_open, can_press = (np.any((np.abs(rows) > 0.01) & room, axis=2) for room in (space_out, space_in))
    assert np.all(opened[can_open] > 0) and np.all(pressed[can_press] > 0)
    assert np.median(opened[can_open]) > 0.9 * BACK_OFF and np.median(pressed[can_press]) > 1e-3
    fixed = np.all(rows == 0, axis=2)
    assert np.all(opened[fixed] == 0) and np.all(pressed[fixed] == 0) and can_open.mean() > 0.5


@pytest.mark.parametrize("force", [FORCE, 2.0, 40.0])
@pytest.mark.parametrize("name", hand_names())
def test_a_squeeze_presses_with_the_same_force_at_every_contact(name: str, force: float):
    """Torques gain (squeeze - q) are -A^T (f, f): f as asked, or what the weakest motor can do."""
    hand = load_hand(name)
    model, arguments = hand.model, grasps(hand, 200)
    q, mask, rows = arguments[2], arguments[3], normal_rows(hand, arguments)
    squeeze = joint_targets(hand, *arguments, force=force).squeeze
    torque = servo_torque(hand, q, squeeze)
    assert np.all(torque[~mask] == 0)
    assert np.all(np.abs(torque) <= EFFORT * model.torque_limit + 1e-9), "no motor does more than it can"
    assert np.all((squeeze >= model.lower) & (squeeze <= model.upper))

    # At a joint limit there is less to press with; elsewhere the force of each contact can be read off.
    inside = np.all((squeeze > model.lower) & (squeeze < model.upper) | ~mask, axis=1)
    wanted = np.full(len(q), force)
    for i, k in np.argwhere(rows.sum(axis=1) != 0):
        wanted[i] = min(wanted[i], EFFORT * model.torque_limit[k] / abs(rows[i, :, k].sum()))
    read, shares = [], []
    for i in np.flatnonzero(inside):
        A = rows[i, np.any(rows[i] != 0, axis=1)]  # Without what is on the palm.
        if len(A) and np.linalg.svd(A, compute_uv=False)[-1] > 1e-3:
            f, *_ = np.linalg.lstsq(-A.T, torque[i], rcond=None)
            np.testing.assert_allclose(-A.T @ f, torque[i], atol=1e-9)
            np.testing.assert_allclose(f, f[0], atol=1e-7 * force)
            read.append(f[0])
            shares.append(f[0] / wanted[i])
    assert len(read) > 30
    # Halved where a contact would go the wrong way, at most five times.
    halvings = np.array([0.0, *(0.5**k for k in range(6))])
    assert np.abs(np.array(shares)[:, None] - halvings).min(axis=1).max() < 1e-7
    assert np.mean(np.abs(np.array(shares) - 1) < 1e-7) > 0.75
    assert max(read) <= force * (1 + 1e-9)


def test_a_limit_of_the_motors_is_met_exactly():
    """More than any motor can do: one of each grasp is at EFFORT of its limit, and none beyond."""
    hand = load_hand("allegro")
    arguments = grasps(hand, 100)
    q, mask = arguments[2], arguments[3]
    squeeze = joint_targets(hand, *arguments, force=1e4).squeeze
    effort = np.abs(servo_torque(hand, q, squeeze)) / hand.model.torque_limit
    assert effort.max() <= EFFORT + 1e-9
    inside = np.all((squeeze > hand.model.lower) & (squeeze < hand.model.upper) | ~mask, axis=1)
    assert inside.sum() > 20
    assert np.mean(np.isclose(effort[inside].max(axis=1), EFFORT)) > 0.7, "but where it is halved"


def test_servos_are_those_that_the_squeeze_is_meant_for():
    """Rooms that do not know each other agree on gains."""
    assert {protocol.stiffness for protocol in PROTOCOLS.values()} == {STIFFNESS}
    assert SLIDE_LEVER == SLIDE_SCALE == 0.05


def test_targets_leave_and_enter_a_real_object():
    """The contact is farther from a ball at the pre-grasp than at the grasp, and nearer at the squeeze."""
    hand, ball = load_hand("allegro"), load_object("ball")
    arguments = grasps(hand, 64, seed=2)
    _, R_OH, q, mask, body, p_B, _ = arguments
    movable = body[:, 0] > 0
    # The ball touches the first contact from outside its skin.
    k = np.random.default_rng(0).integers(len(ball.surface_points), size=64)
    first = positions(hand.model, q, body, p_B)[:, 0]
    p_OH = ball.surface_points[k] - apply(R_OH, first)
    normals_O = np.repeat(ball.surface_normals[k][:, None], 2, axis=1)
    # Only the first contact counts: the second is given as one that nothing moves.
    alone = body.copy()
    alone[:, 1] = 0
    targets = joint_targets(hand, p_OH, R_OH, q, mask, alone, p_B, normals_O)

    def height(target: np.ndarray) -> np.ndarray:
        p_H = positions(hand.model, target, body, p_B)[:, 0]
        return ball.sdf.query(p_OH + apply(R_OH, p_H))[0]

    clear = movable & (targets.opened[:, 0] > 3e-3) & (targets.pressed[:, 0] > 1e-3)
    assert clear.sum() > 20
    assert np.all(height(targets.pre_grasp)[clear] > height(q)[clear] + 1e-3)
    assert np.all(height(targets.squeeze)[clear] < height(q)[clear] - 2e-4)


def test_couplings_are_kept():
    """The gripper's one joint drives both slides: opening it moves both contacts by the same way."""
    from fistful.hands.description import Description, OppositionSpaceDescription, Patch, SurfaceDescription
    from fistful.hands.hand import resolve_hand

    model, _ = import_model(GRIPPER)
    ways = {"left": (0.0, -1.0, 0.0), "right": (0.0, 1.0, 0.0)}
    surfaces = tuple(
        SurfaceDescription(name=n, patches=(Patch(body=n, direction=w, cone_deg=20.0),))
        for n, w in ways.items()
    )
    space = OppositionSpaceDescription(name="grip", surfaces=("left", "right"), joints=model.joints)
    description = Description(
        name="gripper",
        model="gripper.xml",
        summary="",
        fingers=(("left", "left"),),
        surfaces=surfaces,
        opposition_spaces=(space,),
    )
    hand = resolve_hand(model, description)
    q = np.array([[0.020], [0.004]])
    body = np.array([[hand.model.bodies.index(side) for side in ways]] * 2)
    p_B = np.array([[[0, -0.005, 0.04], [0, 0.005, 0.04]]] * 2)
    normals = np.array([[[0, 1.0, 0], [0, -1.0, 0]]] * 2)
    R_OH, mask = np.repeat(np.eye(3)[None], 2, axis=0), np.ones((2, 1), bool)
    targets = joint_targets(hand, np.zeros((2, 3)), R_OH, q, mask, body, p_B, normals)
    # Far from the limit by the asked way, else as far as there is to go.
    np.testing.assert_allclose(targets.opened, [[BACK_OFF] * 2, [0.004] * 2], rtol=0.05)
    np.testing.assert_allclose(q - targets.pre_grasp, targets.opened[:, :1], atol=1e-12)
    np.testing.assert_allclose(targets.squeeze - q, targets.pressed[:, :1], atol=1e-12)
    # Both contacts press with 12 N, so the joint that drives both with 24 N, of 40 N that it can.
    np.testing.assert_allclose(servo_torque(hand, q, targets.squeeze), 2 * FORCE)
    strong = joint_targets(hand, np.zeros((2, 3)), R_OH, q, mask, body, p_B, normals, force=1e3).squeeze
    np.testing.assert_allclose(servo_torque(hand, q, strong), EFFORT * 40)


def test_a_squeeze_is_along_the_torque_of_a_normal_force():
    hand = load_hand("allegro")
    arguments = list(grasps(hand, 100))
    arguments[4] = arguments[4].copy()
    arguments[4][:, 1] = 0  # One contact that moves.
    targets = joint_targets(hand, *arguments)
    _, R_OH, q, mask, body, p_B, normals_O = arguments
    J = contact_jacobian(hand.model, q, body, p_B)[:, 0]
    torque = -np.einsum("ni,nik->nk", apply(np.swapaxes(R_OH, 1, 2), normals_O[:, 0]), J) * mask
    step = targets.squeeze - q
    inside = (targets.squeeze > hand.model.lower) & (targets.squeeze < hand.model.upper)
    moved = np.all(inside | ~mask, axis=1) & (np.linalg.norm(step, axis=1) > 1e-3)
    cosine = np.sum(step * torque, axis=1) / np.linalg.norm(step, axis=1) / np.linalg.norm(torque, axis=1)
    assert moved.sum() > 30
    np.testing.assert_allclose(cosine[moved], 1.0, atol=1e-9)


def test_no_grasps():
    hand = load_hand("allegro")
    targets = joint_targets(hand, *(a[:0] for a in grasps(hand, 1)))
    assert targets.pre_grasp.shape == (0, 16) and targets.opened.shape == (0, 2)
