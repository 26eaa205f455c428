"""Friction, grasp matrix and resistance: hand-computed grasps, theorems, and an exact linear programme."""

import time

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.spatial.transform import Rotation

from fistful.contact.epsilon import cone_generators, epsilon
from fistful.contact.friction import Friction
from fistful.contact.grasp_matrix import contact_frames, grasp_matrix
from fistful.contact.opposition import opposition_angles
from fistful.contact.resistance import ACCELERATIONS, RELATIVE_ERROR, WRENCHES, resistance

HALF = 0.03
ORIGIN = np.zeros(3)
seeds = st.integers(0, 10**6)
few = settings(max_examples=15, deadline=None, derandomize=True)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def opposed(offset=ORIGIN) -> tuple[np.ndarray, np.ndarray]:
    """Two contacts on the x faces of a cube, (1, 2, 3) each; the centre of mass stays at the origin."""
    n = np.array([[[1.0, 0, 0], [-1.0, 0, 0]]])
    return HALF * n - offset, n


def random_contacts(rng: np.random.Generator, N: int, C: int, tilt=0.25) -> tuple[np.ndarray, np.ndarray]:
    """Contacts around a ball, with tilted normals; pairs roughly face each other."""
    v = unit(rng.normal(size=(N, C, 3)))
    if C == 2:
        v[:, 1] = unit(-v[:, 0] + 0.5 * rng.normal(size=(N, 3)))
    return HALF * v, unit(v + tilt * rng.normal(size=v.shape))


def oracle(A: np.ndarray, d: np.ndarray) -> tuple[float, float]:
    """Bounds below and above the largest lambda with sum A_c f_c = lambda d, f_c in Q, f_c0 <= 1.

    A linear programme over a few edges of each cone bounds it from below; the support function at its dual y
    bounds it from above and names the missing edges. Repeated until both meet.
    """
    C = len(A)
    edges = [np.concatenate([np.eye(3), -np.eye(3)]) for _ in range(C)]
    lower, upper = 0.0, np.inf
    for _ in range(100):
        columns = [a @ np.column_stack([np.ones(len(e)), e]).T for a, e in zip(A, edges, strict=True)]
        owner = np.repeat(np.arange(C), [len(e) for e in edges])
        limit = np.column_stack([owner == np.arange(C)[:, None], np.zeros(C)])
        equal = np.column_stack([*columns, -d])
        cost = np.zeros(equal.shape[1])
        cost[-1] = -1
        found = linprog(cost, A_ub=limit, b_ub=np.ones(C), A_eq=equal, b_eq=np.zeros(6))
        y = -found.eqlin.marginals
        x = np.einsum("cij,i->cj", A, y / (y @ d))
        side = np.linalg.norm(x[:, 1:], axis=1)
        lower, upper = found.x[-1], min(upper, np.maximum(0, x[:, 0] + side).sum())
        if upper - lower < 1e-6:
            break
        edges = [np.concatenate([e, [v[1:] / max(s, 1e-12)]]) for e, v, s in zip(edges, x, side, strict=True)]
    return lower, upper


# Friction


def test_usage_and_projection_by_hand():
    friction = Friction(mu=0.5, torsion_m=0.01)
    forces = np.array([[2.0, 0.6, 0.8, 0], [1.0, 0, 0, 0.005], [1.0, 0, 0, 0], [0, 0, 0, 0], [-1.0, 0, 0, 0]])
    assert friction.usage(forces) == pytest.approx([1.0, 0.5, 0.0, 0.0, np.inf])
    # On the unit cone (1, 3, 0, 0) goes to (2, 2, 0, 0); inside stays; a pull goes to nothing.
    forces = np.array([[1.0, 1.5, 0, 0], [1.0, 0.1, 0, 0.001], [-2.0, 0.1, 0, 0]])
    assert friction.project(forces) == pytest.approx(np.array([[2.0, 1, 0, 0], forces[1], [0, 0, 0, 0]]))


def test_without_coefficients_only_the_push_is_left():
    hard = Friction(mu=1.0, torsion_m=0.0)
    assert hard.project(np.array([1.0, 0.5, 0, 7.0])) == pytest.approx([1.0, 0.5, 0, 0])
    assert hard.usage(np.array([[1.0, 0.5, 0, 7.0], [1.0, 0.5, 0, 0.0]])) == pytest.approx([np.inf, 0.5])
    assert Friction(mu=0.0).project(np.array([1.0, 0.5, 0, 0])) == pytest.approx([1.0, 0, 0, 0])


@few
@given(seeds)
def test_projection_is_a_projection(seed):
    """Idempotent, into the cone, and orthogonal on the unit cone (Moreau)."""
    rng = np.random.default_rng(seed)
    friction = Friction(mu=rng.uniform(0.1, 2), torsion_m=rng.uniform(0.001, 0.02))
    x = rng.normal(size=(50, 4))
    near = friction.project(x * friction.scale)
    assert np.all(friction.usage(near) <= 1 + 1e-9)
    assert friction.project(near) == pytest.approx(near)
    rest = x - near / friction.scale
    assert np.sum(rest * (near / friction.scale), axis=-1) == pytest.approx(0, abs=1e-9)
    assert np.all(np.linalg.norm(rest[:, 1:], axis=-1) <= -rest[:, 0] + 1e-9)


def test_the_cone_is_mujocos():
    """A ball on the floor, spinning and sliding: MuJoCo's force lies on our limit surface."""
    xml = """<mujoco><option cone="elliptic" gravity="0 0 0"/><worldbody>
      <geom type="plane" size="1 1 1" condim="4" friction="0.7 0.02 0"/>
      <body pos="0 0 0.0499"><freejoint/>
      <geom type="sphere" size="0.05" condim="4" friction="0.7 0.02 0"/></body></worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    data.qvel[:] = [1.0, 0.5, 0, 0, 0, 40.0]
    mujoco.mj_forward(model, data)
    force = np.zeros(6)
    mujoco.mj_contactForce(model, data, 0, force)
    assert force[0] > 0 and abs(force[3]) > 0
    assert Friction(mu=0.7, torsion_m=0.02).usage(force[:4]) == pytest.approx(1, abs=1e-6)


# Grasp matrix


@few
@given(seeds)
def test_frames_are_right_handed_and_look_inwards(seed):
    n = unit(np.random.default_rng(seed).normal(size=(20, 3)))
    n[:3] = np.eye(3)
    R = contact_frames(n)
    assert R[..., 0] == pytest.approx(-n)
    assert np.swapaxes(R, -1, -2) @ R == pytest.approx(np.broadcast_to(np.eye(3), R.shape))
    assert np.linalg.det(R) == pytest.approx(1)


def test_the_wrench_is_the_sum_of_forces_and_moments():
    rng = np.random.default_rng(0)
    p, n = random_contacts(rng, 4, 3)
    f, centre, size = rng.normal(size=(4, 3, 4)), rng.normal(size=(4, 3)), 0.02
    wrench = np.einsum("ncij,ncj->ni", grasp_matrix(p, n, centre_O=centre, size=size), f)
    force = np.einsum("ncij,ncj->nci", contact_frames(n), f[..., :3])
    torque = np.cross(p - centre[:, None], force) - f[..., 3:] * n
    assert wrench[:, :3] == pytest.approx(force.sum(axis=1))
    assert wrench[:, 3:] == pytest.approx(torque.sum(axis=1) / size)


# Resistance by hand


@pytest.mark.parametrize("mu", [0.2, 0.5, 1.0, 2.0])
def test_two_opposed_contacts(mu):
    """One finger alone pushes with 1 along the line; both together drag with mu each across it."""
    found = resistance(*opposed(), centre_O=ORIGIN, size=HALF, friction=Friction(mu=mu))
    by_hand = np.array([[1, 1, 2 * mu, 2 * mu, 2 * mu, 2 * mu]])
    assert found.by_direction == pytest.approx(by_hand, rel=RELATIVE_ERROR)
    assert found.value == pytest.approx([min(1, 2 * mu)], rel=RELATIVE_ERROR)
    assert np.all(found.converged)


def test_torques_on_two_opposed_contacts():
    """Torsion of both pads about the line, two drags with the lever 1 about the other axes."""
    friction = Friction(mu=0.8, torsion_m=0.006)
    found = resistance(*opposed(), centre_O=ORIGIN, size=HALF, friction=friction, directions=WRENCHES)
    torsion = 2 * friction.torsion_m / HALF
    by_hand = np.array([[torsion, torsion, 1.6, 1.6, 1.6, 1.6]])
    assert found.by_direction[:, 6:] == pytest.approx(by_hand, rel=RELATIVE_ERROR)


@pytest.mark.parametrize("b", [0.0, 0.005, 0.02])
def test_a_centre_beside_the_line(b):
    """With the contacts a distance b above the centre of mass:

    Along y, the pads share force F and torque F b on the ellipse: F = 2 / sqrt(1/mu^2 + (b/torsion)^2).
    Along z, the lever is 0: F = 2 mu. Along x, the weaker finger has 1 - F left, whose drag on the lever
    2 h balances the torque F b: F = mu / (mu + b / (2 h)).
    """
    friction = Friction(mu=0.8, torsion_m=0.005)
    found = resistance(
        *opposed(np.array([0, 0, b])), centre_O=ORIGIN, size=HALF, friction=friction, directions=ACCELERATIONS
    )
    x = friction.mu / (friction.mu + b / (2 * HALF))
    y = 2 / np.hypot(1 / friction.mu, b / friction.torsion_m)
    assert found.by_direction == pytest.approx(np.array([[x, x, y, y, 1.6, 1.6]]), rel=2 * RELATIVE_ERROR)


def test_hard_fingers_resist_no_torque_about_their_line():
    hard = Friction(mu=1.0, torsion_m=0.0)
    found = resistance(*opposed(), centre_O=ORIGIN, size=HALF, friction=hard, directions=WRENCHES)
    assert np.array_equal(found.by_direction[0, 6:8], [0, 0]) and found.value[0] == 0
    assert np.all(found.by_direction[0, 8:] > 1)
    # Nor a force that has a lever to it.
    beside = resistance(*opposed(np.array([0, 0, 1e-3])), centre_O=ORIGIN, size=HALF, friction=hard)
    assert np.array_equal(beside.by_direction[0, 2:4], [0, 0])


def test_three_frictionless_contacts_hold_in_their_plane_only():
    """Along x one finger pushes with 1, or two with cos 60 deg each; along y one gives sin 60 deg."""
    angle = np.deg2rad([0, 120, 240])
    n = np.stack([np.cos(angle), np.sin(angle), np.zeros(3)], axis=-1)[None]
    slippery = Friction(mu=0.0, torsion_m=0.0)
    found = resistance(HALF * n, n, centre_O=ORIGIN, size=HALF, friction=slippery).by_direction[0]
    assert found[:4] == pytest.approx([1, 1, np.sqrt(3) / 2, np.sqrt(3) / 2], rel=RELATIVE_ERROR)
    assert np.array_equal(found[4:], [0, 0])


# Resistance against the oracle


@pytest.mark.parametrize("C", [2, 3, 4])
@pytest.mark.parametrize("torsion_m", [0.0, 0.005])
def test_resistance_agrees_with_an_exact_programme(C, torsion_m, figure):
    rng = np.random.default_rng(C)
    friction = Friction(mu=0.8, torsion_m=torsion_m)
    p, n = random_contacts(rng, 20, C)
    centre, size = p.mean(axis=1), 0.04  # On the line of two hard fingers; elsewhere they resist nothing.
    found = resistance(p, n, centre_O=centre, size=size, friction=friction, directions=WRENCHES)
    A = grasp_matrix(p, n, centre_O=centre, size=size) * friction.scale
    worst, open_grasps = 0.0, 0
    for g in range(len(p)):
        for i in rng.choice(12, 3, replace=False):
            lower, upper = oracle(A[g], -WRENCHES[i])
            value = found.by_direction[g, i]
            assert upper - lower < 1e-3, "the oracle has not converged"
            assert lower - 1e-5 <= value <= (1 + 2 * RELATIVE_ERROR) * upper + 1e-5
            worst = max(worst, (value - upper) / max(upper, 1e-2), (lower - value) / max(lower, 1e-2))
            open_grasps += upper < 1e-5
    assert np.all(found.converged)
    assert open_grasps < 60, "nothing was compared but zeros"
    figure(f"resistance, {C} contacts, torsion {torsion_m * 1000:g} mm: worst error", 100 * worst, "%")


def test_the_edge_of_closure_is_met_exactly():
    """Where the friction cone just holds the line of two contacts, programmes are hard to solve."""
    p, n = random_contacts(np.random.default_rng(1), 8, 2, tilt=0.5)
    for g, angle in enumerate(opposition_angles(p, n).max(axis=1)):
        for margin in (-1e-3, -1e-4, 1e-4):
            friction = Friction(mu=np.tan(angle + margin))
            one = {"centre_O": ORIGIN, "size": HALF}
            found = resistance(p[g : g + 1], n[g : g + 1], **one, friction=friction)
            A = grasp_matrix(p[g : g + 1], n[g : g + 1], **one)[0] * friction.scale
            lower, upper = oracle(A, -ACCELERATIONS[np.argmin(found.by_direction[0])])
            assert np.all(found.converged)
            assert lower - 1e-5 <= found.value[0] <= (1 + 2 * RELATIVE_ERROR) * upper + 1e-5


def test_two_soft_contacts_close_if_they_see_each_other():
    """Both angles below atan(mu) suffice. Torsion can add asin(2 torsion / distance), and no more."""
    p, n = random_contacts(np.random.default_rng(1), 400, 2, tilt=0.5)
    friction = Friction(mu=0.7)
    angle = opposition_angles(p, n).max(axis=1)
    length = np.linalg.norm(p[:, 1] - p[:, 0], axis=1)
    closed = resistance(p, n, centre_O=ORIGIN, size=HALF, friction=friction, directions=WRENCHES).value > 0
    assert np.all(closed[angle < np.arctan(friction.mu)])
    beyond = np.arctan(friction.mu) + np.arcsin(np.minimum(2 * friction.torsion_m / length, 1))
    assert not np.any(closed[angle > beyond])
    assert 50 < closed.sum() < 350


# Theorems


@few
@given(seeds, st.floats(1e-2, 1e2))
def test_units_of_length_do_not_matter(seed, factor):
    p, n = random_contacts(np.random.default_rng(seed), 6, 3)
    one = resistance(
        p, n, centre_O=ORIGIN, size=HALF, friction=Friction(torsion_m=0.005), directions=WRENCHES
    )
    scaled = Friction(torsion_m=0.005 * factor)
    two = resistance(p * factor, n, centre_O=ORIGIN, size=HALF * factor, friction=scaled, directions=WRENCHES)
    assert two.by_direction == pytest.approx(one.by_direction, rel=1e-6, abs=1e-6)


@few
@given(seeds, st.floats(0.3, 3))
def test_accelerations_do_not_depend_on_the_size(seed, factor):
    p, n = random_contacts(np.random.default_rng(seed), 6, 3)
    one = resistance(p, n, centre_O=ORIGIN, size=HALF)
    two = resistance(p, n, centre_O=ORIGIN, size=HALF * factor)
    assert two.by_direction == pytest.approx(one.by_direction, rel=2 * RELATIVE_ERROR, abs=1e-5)


@few
@given(seeds, st.sampled_from([2, 3, 4]))
def test_frames_do_not_matter(seed, C):
    rng = np.random.default_rng(seed)
    p, n = random_contacts(rng, 6, C)
    R, shift = Rotation.random(rng=rng).as_matrix(), rng.normal(size=3)
    directions = np.kron(np.eye(2), R) @ WRENCHES.T
    one = resistance(p, n, centre_O=ORIGIN, size=HALF, directions=WRENCHES)
    two = resistance(p @ R.T + shift, n @ R.T, centre_O=shift, size=HALF, directions=directions.T)
    assert two.by_direction == pytest.approx(one.by_direction, rel=2 * RELATIVE_ERROR, abs=1e-5)


@few
@given(seeds, st.sampled_from([2, 3]))
def test_friction_and_contacts_never_hurt(seed, C):
    rng = np.random.default_rng(seed)
    p, n = random_contacts(rng, 8, C + 1)
    low, more, soft = Friction(mu=0.4), Friction(mu=0.6), Friction(mu=0.4, torsion_m=0.01)

    def values(contacts: int, friction: Friction) -> np.ndarray:
        p_O, n_O = p[:, :contacts], n[:, :contacts]
        return resistance(p_O, n_O, centre_O=ORIGIN, size=HALF, friction=friction).by_direction

    base = values(C, low) * (1 - RELATIVE_ERROR) - 1e-5
    assert np.all(values(C, more) >= base)
    assert np.all(values(C, soft) >= base)
    assert np.all(values(C + 1, low) >= base)


def test_directions_scale_and_centres_may_differ():
    p, n = random_contacts(np.random.default_rng(3), 5, 3)
    centres = np.random.default_rng(4).normal(size=(5, 3)) * 0.005
    batch = resistance(p, n, centre_O=centres, size=HALF, directions=3 * ACCELERATIONS)
    for g in range(5):
        alone = resistance(p[g : g + 1], n[g : g + 1], centre_O=centres[g], size=HALF)
        assert batch.by_direction[g] == pytest.approx(alone.by_direction[0] / 3, rel=1e-12)
        assert batch.value[g] == batch.by_direction[g].min()


def test_the_same_input_gives_the_same_bits():
    p, n = random_contacts(np.random.default_rng(5), 50, 4)
    one, two = (resistance(p, n, centre_O=ORIGIN, size=HALF).by_direction for _ in range(2))
    assert np.array_equal(one, two)


def test_degenerate_grasps_give_zero():
    p, n = opposed()
    side = np.broadcast_to([0.0, 0, 1], n.shape)
    cases = {
        "coincident contacts": (np.zeros_like(p), n),
        "one contact twice": (np.repeat(p[:, :1], 2, axis=1), np.repeat(n[:, :1], 2, axis=1)),
        "parallel normals": (p, side),
        "pressing apart": (-p, n),
        "a single contact": (p[:, :1], n[:, :1]),
        "far away": (p + 1e3, n),
    }
    for name, (p_O, n_O) in cases.items():
        found = resistance(p_O, n_O, centre_O=ORIGIN, size=HALF, directions=WRENCHES)
        assert np.all(np.isfinite(found.by_direction)), name
        assert np.all(found.by_direction >= 0), name
        if name not in ("coincident contacts", "pressing apart"):
            assert found.value[0] < 1e-4, name
    # Coincident pads on opposite sides still twist about their common normal, and about nothing else.
    found = resistance(*cases["coincident contacts"], centre_O=ORIGIN, size=HALF, directions=WRENCHES)
    assert np.array_equal(found.by_direction[0, 8:], np.zeros(4))
    nothing = resistance(p, n, centre_O=ORIGIN, size=HALF, friction=Friction(mu=0, torsion_m=0))
    assert nothing.by_direction[0] == pytest.approx([1, 1, 0, 0, 0, 0], rel=RELATIVE_ERROR)
    assert resistance(p[:0], n[:0], centre_O=ORIGIN, size=HALF).by_direction.shape == (0, 6)


@pytest.mark.parametrize("C", [2, 4])
def test_cost(C, figure):
    p, n = random_contacts(np.random.default_rng(6), 256, C)
    times = []
    for _ in range(4):
        start = time.process_time()
        resistance(p, n, centre_O=ORIGIN, size=HALF)
        times.append(time.process_time() - start)
    figure(f"resistance, {C} contacts, 6 directions, 256 grasps", min(times) / 256 * 1e3, "ms CPU per grasp")
    assert min(times) / 256 < 0.3e-3 * C / 2


# Opposition and epsilon


def test_opposition_angles_by_hand():
    p, n = opposed()
    assert opposition_angles(p, n) == pytest.approx(np.zeros((1, 2)))
    assert opposition_angles(p, -n) == pytest.approx(np.full((1, 2), np.pi))
    tilted = n.copy()
    tilted[0, 1] = -np.cos(0.3), np.sin(0.3), 0
    assert opposition_angles(p, tilted)[0] == pytest.approx([0, 0.3])
    assert np.array_equal(opposition_angles(np.zeros((2, 3)), n[0]), [np.pi, np.pi])


def test_epsilon_of_two_soft_contacts():
    """min(torsion / size, mu / sqrt(2 + mu^2)).

    A push of one finger along y = (-c, a, 0; 0, 0, a) gives at most -c + mu 2a, the other at most c. Both are
    mu a at c = mu a, and |y| = 1 makes it mu / sqrt(2 + mu^2).
    """
    p, n = (x[0] for x in opposed())
    for mu, torsion in ((0.8, 0.3), (0.4, 0.7)):
        friction = Friction(mu=mu, torsion_m=torsion * HALF)
        exact = min(torsion, mu / np.sqrt(2 + mu**2))
        found = [epsilon(p, n, centre_O=ORIGIN, size=HALF, friction=friction, sides=k) for k in (4, 8)]
        assert found[0] <= found[1] <= exact + 1e-9
        assert found[1] == pytest.approx(exact, rel=0.1)


def test_epsilon_is_zero_without_closure():
    p, n = (x[0] for x in opposed())
    assert epsilon(p, n, centre_O=ORIGIN, size=HALF, friction=Friction(torsion_m=0)) == 0
    assert epsilon(p, np.broadcast_to([0.0, 0, 1], (2, 3)), centre_O=ORIGIN, size=HALF) == 0
    assert epsilon(p[:1], n[:1], centre_O=ORIGIN, size=HALF) == 0


@pytest.mark.parametrize("C", [2, 3])
def test_epsilon_bounds_the_resistance(C):
    """With forces of total 1 a ball of radius epsilon is resisted, so with 1 each all unit wrenches are."""
    p, n = random_contacts(np.random.default_rng(C), 6, C)
    found = resistance(p, n, centre_O=ORIGIN, size=HALF, directions=WRENCHES).value
    radius = [epsilon(p[g], n[g], centre_O=ORIGIN, size=HALF) for g in range(len(p))]
    assert max(radius) > 0
    assert np.all(np.array(radius) <= found + 1e-6)


def test_generators_lie_on_the_cone():
    for friction in (Friction(), Friction(torsion_m=0), Friction(mu=0), Friction(mu=0, torsion_m=0)):
        generators = cone_generators(friction, 8)
        assert np.all(friction.usage(generators) <= 1 + 1e-9)
    assert cone_generators(Friction(mu=0, torsion_m=0), 8) == pytest.approx(np.array([[1.0, 0, 0, 0]]))


# Bad input


def test_bad_input_is_named():
    p, n = opposed()
    good = {"centre_O": ORIGIN, "size": HALF}
    for call, match in (
        (lambda: Friction(mu=-0.5), r"mu is -0\.5"),
        (lambda: Friction(torsion_m=np.nan), "torsion_m is nan"),
        (lambda: Friction().usage(np.zeros(3)), r"\(3,\)"),
        (lambda: resistance(p[0], n[0], **good), r"p_O has shape \(2, 3\)"),
        (lambda: resistance(p, n[:, :1], **good), r"n_O has shape \(1, 1, 3\)"),
        (lambda: resistance(p, 2 * n, **good), "length 2"),
        (lambda: resistance(p, n * np.nan, **good), "length nan"),
        (lambda: resistance(p * np.nan, n, **good), "p_O is not finite: nan"),
        (lambda: resistance(p, n, centre_O=np.zeros(2), size=HALF), r"centre_O has shape \(2,\)"),
        (lambda: resistance(p, n, centre_O=ORIGIN + np.inf, size=HALF), "centre_O is not finite"),
        (lambda: resistance(p, n, centre_O=ORIGIN, size=0.0), r"size is 0\.0"),
        (lambda: resistance(p, n, **good, directions=np.zeros((1, 6))), "not 0"),
        (lambda: resistance(p, n, **good, directions=np.eye(3)), r"directions have shape \(3, 3\)"),
        (lambda: epsilon(p[0], n[0], **good, sides=2), "sides is 2"),
        (lambda: opposition_angles(p[:, :1], n[:, :1]), r"\(1, 1, 3\)"),
    ):
        with pytest.raises(ValueError, match=match):
            call()
