"""A hand's mechanics against MuJoCo's: kinematics, couplings, limits, frozen joints, distances."""

from functools import cache

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fistful.errors import HandError
from fistful.hands import Hand, hand_names, load_hand
from fistful.hands.model import Model, freeze
from fistful.hands.skin import geom_distances, sample_skin

HANDS = hand_names()


@cache
def hand(name: str) -> Hand:
    return load_hand(name)


def mjcf(bodies: str, *, joints: int, equality: str = "", base: str = "", extra: str = "") -> str:
    """A canonical MJCF around some bodies, open at zero."""
    return f"""
    <mujoco>
      <compiler angle="radian"/>
      <default><joint actuatorfrcrange="-1 1" range="-1 1"/></default>
      <worldbody>
        <body name="palm" {base}><geom name="palm" type="box" size=".04 .04 .01"/>{bodies}</body>
      </worldbody>
      <equality>{equality}</equality>
      <keyframe><key name="open" qpos="{"0 " * joints}"/></keyframe>
      {extra}
    </mujoco>"""


def link(name: str, joints: str, inner: str = "", pos: str = "0 0 .03") -> str:
    geom = f'<geom name="{name}" type="capsule" fromto="0 0 .004 0 0 .026" size=".006"/>'
    return f'<body name="{name}" pos="{pos}">{joints}{geom}{inner}</body>'


def chain(*joints: str) -> str:
    """One finger of a link per joint element."""
    body = ""
    for k in reversed(range(len(joints))):
        body = link(f"link{k}", joints[k], body)
    return body


# Several joints on a body, slides, anchors off the origin, reference values, posed and rotated bodies.
ODD = mjcf(
    link(
        "a",
        '<joint name="a0" axis="1 2 -1" pos=".01 -.02 .03" ref=".4" range="-1 2"/>'
        '<joint name="a1" axis="0 1 1" pos="-.01 0 .01" range="-2 1"/>'
        '<joint name="a2" type="slide" axis="3 -1 1" ref="-.02" range="-.05 .05"/>',
        '<body name="b" pos=".01 .02 .03" euler=".3 -.7 1.1"><geom name="b" type="box" size=".01 .008 .02"/>'
        '<joint name="b0" type="slide" axis="0 0 1" range="-.03 .03"/>'
        '<joint name="b1" axis="1 0 0" pos="0 .01 0" ref="-.3"/>'
        '<body name="c" pos="0 0 .03"><joint name="c0" axis="0 1 0"/>'
        '<geom name="c" type="cylinder" size=".01 .01"/></body></body>'
        '<body name="d" pos="0 .02 .03" quat=".5 .5 -.5 .1"><joint name="d0" axis="0 1 0" pos="0 0 -.02"/>'
        '<geom name="d" type="sphere" size=".01"/></body>',
    ),
    joints=7,
)  # fmt: skip


def mujoco_poses(m: mujoco.MjModel, qpos: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    d = mujoco.MjData(m)
    d.qpos[:] = qpos
    mujoco.mj_kinematics(m, d)
    return d.xpos[1:].copy(), d.xmat[1:].reshape(-1, 3, 3).copy()


def assert_same_kinematics(model: Model, count: int = 40) -> None:
    q = np.random.default_rng(0).uniform(model.lower, model.upper, (count, len(model.joints)))
    poses, joints = model.poses(q), model.expand(q)
    assert poses.p_HB.shape == (count, len(model.bodies), 3)
    for k in range(count):
        p, R = mujoco_poses(model.compiled, joints[k])
        np.testing.assert_allclose(poses.p_HB[k], p, atol=1e-9)
        np.testing.assert_allclose(poses.R_HB[k], R, atol=1e-9)


@pytest.mark.parametrize("name", HANDS)
def test_kinematics_of_built_in_hands_are_mujocos(name):
    assert_same_kinematics(hand(name).model)


def test_kinematics_of_an_odd_hand_are_mujocos():
    assert_same_kinematics(Model.from_mjcf(ODD))


vectors = st.tuples(*[st.floats(-1, 1)] * 3).filter(lambda v: np.linalg.norm(v) > 0.1)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.booleans(), vectors, vectors, st.floats(-1, 1)), min_size=1, max_size=5))
def test_kinematics_of_any_chain_are_mujocos(parts):
    joints = [
        f'<joint name="j{k}" type="{"slide" if slide else "hinge"}" axis="{x:.9f} {y:.9f} {z:.9f}"'
        f' pos="{a / 20:.9f} {b / 20:.9f} {c / 20:.9f}" ref="{ref:.9f}" range="-2 2"/>'
        for k, (slide, (x, y, z), (a, b, c), ref) in enumerate(parts)
    ]
    assert_same_kinematics(Model.from_mjcf(mjcf(chain(*joints), joints=len(joints))), count=5)


def test_points_and_directions_move_with_their_bodies():
    model = Model.from_mjcf(ODD)
    rng = np.random.default_rng(1)
    q = rng.uniform(model.lower, model.upper)
    body, v = rng.integers(0, len(model.bodies), 20), rng.normal(size=(20, 3))
    p, R = mujoco_poses(model.compiled, model.expand(q))
    poses = model.poses(q)
    expected = np.einsum("nij,nj->ni", R[body], v)
    np.testing.assert_allclose(poses.directions(body, v), expected, atol=1e-9)
    np.testing.assert_allclose(poses.points(body, v), p[body] + expected, atol=1e-9)


# ---------------------------------------------------------------------------------------------------
# Couplings and limits

CAPSULE = 'type="capsule" fromto="0 0 .004 0 0 .026" size=".006"'
HINGE = '<joint name="j{}" axis="0 1 0" range="{} {}"/>'


def coupled(*pairs: tuple[int, int, float, float], limits: tuple[tuple[float, float], ...]) -> Model:
    """Chain of hinges with j_a = offset + factor j_b for each (a, b, offset, factor)."""
    joints = [HINGE.format(k, *ends) for k, ends in enumerate(limits)]
    equality = "".join(
        f'<joint joint1="j{a}" joint2="j{b}" polycoef="{offset:.9f} {factor:.9f} 0 0 0"/>'
        for a, b, offset, factor in pairs
    )
    return Model.from_mjcf(mjcf(chain(*joints), joints=len(joints), equality=equality))


def test_a_chain_of_couplings():
    wide = (-10.0, 10.0)
    model = coupled((1, 0, 0.1, 2), (2, 1, -0.2, -0.5), (3, 2, 0, 3), limits=(wide,) * 5)
    assert model.joints == ("j0", "j4")
    np.testing.assert_allclose(model.expand(np.array([0.3, 0.7])), [0.3, 0.7, -0.55, -1.65, 0.7])
    assert model.expand(np.zeros((4, 3, 2))).shape == (4, 3, 5)
    assert_same_kinematics(model)


def test_couplings_count_from_the_reference_value():
    """MuJoCo's equality speaks of deviations from qpos0; its own constraint residual is the judge."""
    joints = [
        '<joint name="a" axis="1 0 0" ref=".5" range="-4 4"/>',
        '<joint name="b" axis="1 0 0" ref="-.3" range="-4 4"/>',
    ]
    equality = '<joint joint1="b" joint2="a" polycoef=".2 1.5 0 0 0"/>'
    model = Model.from_mjcf(mjcf(chain(*joints), joints=2, equality=equality))
    for q in (-1.0, 0.0, 0.8):
        d = mujoco.MjData(model.compiled)
        d.qpos[:] = model.expand(np.array([q]))
        mujoco.mj_forward(model.compiled, d)
        is_equality = d.efc_type == mujoco.mjtConstraint.mjCNSTR_EQUALITY
        np.testing.assert_allclose(d.efc_pos[is_equality], 0, atol=1e-12)
        assert np.sum(is_equality) == 1


def test_a_coupling_to_nothing_holds_the_joint():
    joints = [HINGE.format(0, -1, 1), HINGE.format(1, -1, 1)]
    model = Model.from_mjcf(
        mjcf(chain(*joints), joints=2, equality='<joint joint1="j0" polycoef=".4 0 0 0 0"/>')
    )
    assert model.joints == ("j1",)
    np.testing.assert_allclose(model.expand(np.array([0.2])), [0.4, 0.2])


def test_an_inactive_coupling_is_none():
    joints = [HINGE.format(0, -1, 1), HINGE.format(1, -1, 1)]
    equality = '<joint joint1="j0" joint2="j1" active="false"/>'
    assert Model.from_mjcf(mjcf(chain(*joints), joints=2, equality=equality)).joints == ("j0", "j1")


def test_limits_are_narrowed_so_that_coupled_joints_keep_theirs():
    model = coupled((1, 0, 0.5, 2), (2, 0, 0, -1), limits=((-1, 1), (-0.5, 1.5), (-0.3, 9)))
    # j1 = .5 + 2 j0 in [-.5, 1.5] gives [-.5, .5]; j2 = -j0 in [-.3, 9] gives [-9, .3].
    np.testing.assert_allclose([model.lower, model.upper], [[-0.5], [0.3]])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.floats(-0.2, 0.2), st.floats(0.2, 2), st.booleans()), min_size=1, max_size=4))
def test_every_joint_keeps_its_limits_under_any_coupling(pairs):
    limits = ((-1.0, 1.0),) * (len(pairs) + 1)
    couplings = [(k + 1, k, a0, -a1 if minus else a1) for k, (a0, a1, minus) in enumerate(pairs)]
    try:
        model = coupled(*couplings, limits=limits)
    except HandError as error:
        assert "open" in str(error) or "empty range" in str(error)
        return
    ends = np.concatenate([model.expand(model.lower), model.expand(model.upper)])
    assert np.all(np.abs(ends) < 1 + 1e-9)
    # They are not narrower than needed: at either end some joint is at its own limit.
    assert np.isclose(np.abs(model.expand(model.lower)), 1).any()
    assert np.isclose(np.abs(model.expand(model.upper)), 1).any()


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        (((0, 1, 0, 1), (1, 0, 0, 1)), "circle"),
        (((0, 1, 0, 1), (1, 2, 0, 1), (2, 0, 0, 1)), "circle"),
        (((0, 1, 0, 1), (0, 2, 0, 1)), "'j0' is coupled twice"),
        (((0, 1, 5, 1),), "empty range"),
    ],
)
def test_impossible_couplings_are_refused(pairs, says):
    with pytest.raises(HandError, match=says):
        coupled(*pairs, limits=((-1, 1),) * 3)


ONE = mjcf(chain(HINGE.format(0, -1, 1)), joints=1)
TWO = mjcf(chain(HINGE.format(0, -1, 1), HINGE.format(1, -1, 1)), joints=2, equality="{}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (ONE.replace('name="j0"', ""), "no name"),
        (ONE.replace(' range="-1 1"', ""), "no limits"),
        (ONE.replace('actuatorfrcrange="-1 1"', ""), "no force limit"),
        (ONE.replace('<key name="open"', '<key name="other"'), "keyframe 'open'"),
        (ONE.replace('qpos="0 "', 'qpos="1.5"'), "'j0' at 1.5, outside"),
        (mjcf(chain('<joint name="j0" type="ball" range="0 1"/>'), joints=4), "ball or free"),
        (mjcf(link("a", ""), joints=0), "no joint"),
        (ONE.replace(CAPSULE, 'type="ellipsoid" size=".1 .2 .3"'), "'link0' is not a sphere"),
        (
            ONE.replace("<worldbody>", '<worldbody><geom name="table" size=".1"/>'),
            "'table' belongs to the world",
        ),
        (ONE.replace("<worldbody>", '<worldbody><body name="second"/>'), "found 2 bodies"),
        (ONE.replace('pos="0 0 .03"', 'pos="0 0 30"'), "millimetres"),
        (TWO.format('<connect body1="link0" body2="link1" anchor="0 0 0"/>'), "not a linear coupling"),
        (TWO.format('<joint joint1="j0" joint2="j1" polycoef="0 1 2 0 0"/>'), "not a linear coupling"),
        (TWO.format('<joint joint1="j0"/><joint joint1="j1"/>'), "every joint"),
    ],
)
def test_files_that_are_no_canonical_hand(text, says):
    with pytest.raises(HandError, match=says) as caught:
        Model.from_mjcf(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("base", ['pos="0 0 1"', 'euler="0 0 1"'])
def test_the_base_is_at_the_origin(base):
    with pytest.raises(HandError, match="origin"):
        Model.from_mjcf(mjcf(chain(HINGE.format(0, -1, 1)), joints=1, base=base))


def test_torque_limits_come_from_the_joint_or_its_actuator():
    extra = """
    <tendon><fixed name="t"><joint joint="j1" coef="1"/></fixed></tendon>
    <actuator><motor tendon="t" forcerange="-7 7"/><motor joint="j0" forcerange="-3 3"/>
    <motor joint="j1" forcerange="-5 5"/></actuator>"""
    joints = [HINGE.format(k, -1, 1).replace("/>", ' actuatorfrclimited="false"/>') for k in range(2)]
    joints.append(HINGE.format(2, -1, 1))
    np.testing.assert_allclose(
        Model.from_mjcf(mjcf(chain(*joints), joints=3, extra=extra)).torque_limit, [3, 5, 1]
    )


def test_collision_pairs_are_those_that_mujoco_tests():
    """Balls so large that every pair overlaps: MuJoCo reports what it does not excuse."""
    bodies = chain(*(HINGE.format(k, -1, 1) for k in range(4))).replace(CAPSULE, 'size=".2"')
    bodies += link("other", HINGE.format(4, -1, 1)).replace(CAPSULE, 'size=".2"')
    extra = '<contact><exclude body1="link0" body2="link2"/><exclude body1="palm" body2="other"/></contact>'
    model = Model.from_mjcf(mjcf(bodies, joints=5, extra=extra))
    d = mujoco.MjData(model.compiled)
    mujoco.mj_forward(model.compiled, d)
    theirs = {tuple(sorted(contact.geom.tolist())) for contact in d.contact}
    assert {tuple(pair) for pair in model.collision_pairs.tolist()} == theirs
    assert len(theirs) == 15 - 3 - 2


# ---------------------------------------------------------------------------------------------------
# Frozen joints and distances


def assert_frozen_is_full(model: Model, mask: np.ndarray) -> None:
    frozen, index = freeze(model, mask)
    rng = np.random.default_rng(0)
    x = rng.uniform(model.lower[mask], model.upper[mask], (5, int(mask.sum())))
    q = np.repeat(model.open_pose[None], 5, axis=0)
    q[:, mask] = x
    full, part = model.poses(q), frozen.poses(x)
    moving = np.flatnonzero(index)
    assert [frozen.bodies[k] for k in index[moving]] == [model.bodies[b] for b in moving]
    np.testing.assert_allclose(part.p_HB[:, index[moving]], full.p_HB[:, moving], atol=1e-12)
    np.testing.assert_allclose(part.R_HB[:, index[moving]], full.R_HB[:, moving], atol=1e-12)
    # What index calls the base does not move with the masked joints.
    still = np.flatnonzero(index == 0)
    np.testing.assert_allclose(full.p_HB[:, still], np.repeat(full.p_HB[:1, still], 5, axis=0), atol=1e-12)
    points = rng.uniform(-0.1, 0.1, (5, 30, 3)) + full.p_HB[:, :1]
    np.testing.assert_allclose(
        geom_distances(frozen, part, points), geom_distances(model, full, points), atol=1e-12
    )
    assert [g.name for g in frozen.geoms] == [g.name for g in model.geoms]
    np.testing.assert_array_equal(frozen.lower, model.lower[mask])
    assert frozen.joints == tuple(np.array(model.joints)[mask])


@pytest.mark.parametrize("name", HANDS)
def test_freezing_a_built_in_hand_changes_nothing(name):
    model = hand(name).model
    for space in hand(name).opposition_spaces:
        assert_frozen_is_full(model, space.joint_mask)


@pytest.mark.parametrize("seed", range(6))
def test_freezing_an_odd_hand_changes_nothing(seed):
    model = Model.from_mjcf(ODD)
    assert_frozen_is_full(model, np.random.default_rng(seed).random(len(model.joints)) < 0.5)


def test_freezing_keeps_couplings():
    model = coupled((2, 0, 0.1, 0.5), (3, 1, 0, -1), limits=((-1, 1),) * 4)
    for mask in ([True, False], [False, True], [True, True], [False, False]):
        assert_frozen_is_full(model, np.array(mask))


@pytest.mark.parametrize("name", HANDS)
def test_geom_distances_are_mujocos(name):
    """The distance to a very small sphere, outside of every shape."""
    model = hand(name).model
    spec = mujoco.MjSpec.from_string(model.mjcf)
    probe = spec.worldbody.add_body(name="probe", mocap=True)
    probe.add_geom(name="probe", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[1e-6, 0, 0])
    m = spec.compile()
    d = mujoco.MjData(m)
    ball = m.geom("probe").id
    rng = np.random.default_rng(0)
    compared = 0
    for q in rng.uniform(model.lower, model.upper, (4, len(model.joints))):
        d.qpos[:] = model.expand(q)
        points = rng.uniform(-0.1, 0.15, (5, 3))
        ours = geom_distances(model, model.poses(q), points)
        for point, row in zip(points, ours, strict=True):
            d.mocap_pos[0] = point
            mujoco.mj_kinematics(m, d)
            for geom, distance in zip(model.geoms, row, strict=True):
                if distance > 1e-3:
                    compared += 1
                    theirs = mujoco.mj_geomDistance(m, d, m.geom(geom.name).id, ball, 1.0, None) + 1e-6
                    assert theirs == pytest.approx(distance, abs=2e-6)
    assert compared > 100


@pytest.mark.parametrize("name", HANDS)
def test_skin_is_on_the_outside(name):
    model, skin = hand(name).model, hand(name).skin
    rows = np.arange(len(skin.body))
    poses = model.poses(model.open_pose)
    p = poses.points(skin.body, skin.p_B)
    assert np.abs(geom_distances(model, poses, p)[rows, skin.geom]).max() < 1e-9
    np.testing.assert_array_equal(model.geom_body[skin.geom], skin.body)
    # In some pose, a step along the normal leaves the hand: no point lies inside or between two shapes.
    leaves = np.zeros(len(rows), dtype=bool)
    for q in (
        model.open_pose,
        *np.random.default_rng(0).uniform(model.lower, model.upper, (24, len(model.joints))),
    ):
        poses = model.poses(q)
        ahead = poses.points(skin.body, skin.p_B + 3e-4 * skin.n_B)
        leaves |= geom_distances(model, poses, ahead).min(axis=1) > 0
    assert leaves.mean() > 0.99
    np.testing.assert_array_equal(sample_skin(model).p_B, skin.p_B)


@pytest.mark.parametrize("name", HANDS)
def test_skin_is_dense_in_every_pose(name):
    """A ball that touches the hand, wherever and in whatever pose, is near a skin point."""
    model, skin = hand(name).model, hand(name).skin
    rng = np.random.default_rng(1)
    misses = []
    for q in rng.uniform(model.lower, model.upper, (12, len(model.joints))):
        poses = model.poses(q)
        points = poses.points(skin.body, skin.p_B)
        centres = points[rng.integers(len(points), size=300)] + rng.normal(size=(300, 3)) * 0.02
        radius = geom_distances(model, poses, centres).min(axis=1)
        free = radius > 4e-3
        nearest = np.array([np.linalg.norm(points - c, axis=1).min() for c in centres[free]])
        misses.append(nearest - radius[free])
    miss_mm = 1e3 * np.concatenate(misses)
    assert miss_mm.min() > -1e-6
    assert np.percentile(miss_mm, 99) < 1.5
    assert miss_mm.max() < 4


@pytest.mark.parametrize("name", HANDS)
def test_contact_candidates_keep_off_the_edges(name):
    """2 mm beside a candidate, in any direction, the body's surface is still there."""
    model = hand(name).model
    poses = model.poses(model.open_pose)
    for surface in hand(name).surfaces:
        c = surface.candidates
        u = np.cross(c.n_B, np.eye(3)[np.argmin(np.abs(c.n_B), axis=1)])
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        for angle in np.linspace(0, 2 * np.pi, 6):
            side = c.p_B + 2e-3 * (np.cos(angle) * u + np.sin(angle) * np.cross(c.n_B, u))
            d = geom_distances(model, poses, poses.points(c.body, side))
            d[model.geom_body != c.body[:, None]] = np.inf
            assert d.min(axis=1).max() < 1e-3, surface.name


def test_hands_can_be_told_apart_and_not_be_changed():
    first, second = load_hand("allegro"), load_hand("allegro")
    assert first.key == second.key != load_hand("leap").key
    assert first == first and first != second and len({first, second}) == 2
    assert repr(first) == "Hand('allegro', 16 joints, 7 opposition spaces)"
    arrays = (
        first.model.open_pose,
        first.model.tree.p_PB,
        first.skin.p_B,
        first.model.geoms[0].primitive.size,
    )
    for array in (*arrays, first.opposition_spaces[0].joint_mask):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(ValueError, match=r"16 entries; got shape \(3,\)"):
        first.poses(np.zeros(3))
