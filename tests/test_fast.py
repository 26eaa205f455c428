"""The fast optimiser: its least-squares system against plain residuals, its steps against plain algebra.

The oracle is a list of residuals in float64 (torch, as the reference), one number for each contact and for
each point and shape that overlap. Cost, gradient and Gauss-Newton matrix follow from it and its central
differences.
"""

from dataclasses import fields, replace
from functools import cache
from threading import Event
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch

from fistful.geometry.pose import apply, rotation_about
from fistful.geometry.quiet_warp import wp
from fistful.hands import hand_names
from fistful.objects import load_object
from fistful.synthesis import fast, reference
from fistful.synthesis.antipodal import AntipodalPairs, antipodal_pairs
from fistful.synthesis.contact_set import contact_sets
from fistful.synthesis.core import Core, launch
from fistful.synthesis.fast import Fast
from fistful.synthesis.fast_kernels import REFINING, TRYING
from fistful.synthesis.sequence import Planner
from fistful.synthesis.settings import Settings
from fistful.synthesis.stage import Stage, contact_points, packed, unpacked
from fistful.synthesis.start_kernels import SPINS, WINDOW, PairData
from fistful.synthesis.tables import ObjectTables
from fistful.synthesis.task import Solution, Task
from test_energy import (
    HANDS,
    SEQUENCE,
    States,
    core,
    hand,
    hand_tables,
    hand_tensors,
    object_tables,
    object_tensors,
    states,
)

TOLERANCE = 2e-4
STEP = 1e-7
"""Of the differences, m or rad; in float64."""
EACH = 2
"""States of each kind."""


# Residuals, in mm: contacts and overlaps. Their half square sum is the cost.


def contact_residuals(hand, objects, bodies: reference.Poses, contact, s: Fast) -> torch.Tensor:
    """Distance of each contact, and how far skin and opposed contact leave their cones, (N, 3 C)."""
    n, body = torch.arange(len(contact))[:, None], hand.candidate_body[contact]
    x = reference.contact_points(hand, bodies, contact)
    d, normal = reference.near(objects, len(objects.size) - 1, x)
    skin = (bodies.R[n, body] @ hand.candidate_n_B[contact][..., None])[..., 0]
    line = x[:, torch.arange(x.shape[1]) ^ 1] - x
    toward = line / line.norm(dim=2, keepdim=True)
    align = torch.relu(np.cos(np.deg2rad(s.align_deg)) + (skin * normal).sum(dim=2))
    friction = torch.relu(np.cos(np.deg2rad(s.friction_deg)) + (toward * normal).sum(dim=2))
    return torch.cat([1e3 * d, s.angle_weight_mm * align, s.angle_weight_mm * friction], dim=1)


def overlap_residuals(hand, objects, bodies, base, state: reference.State, s: Fast) -> torch.Tensor:
    """Depths of the hand in target and held objects, of these in the target, and both ways, (N, ...)."""
    target = len(objects.size) - 1
    skin, shapes = reference.skin_points(hand, bodies), reference.shape_poses(hand, bodies)
    held = reference.Poses(base.points(0, state.p_HO), base.R @ state.R_HO)
    shape_moves = reference.moves(hand, state.mask)[:, reference.shape_body(hand)].double()
    skin_moves = shape_moves[:, reference.point_shape(hand)]

    def in_shapes(points: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.relu(-reference.shape_distance(hand, g, shapes.seen(g, points)))
            for g in range(len(hand.ball))
        ]

    parts = [reference.depth(objects, target, skin)]
    if s.both_ways:
        parts += in_shapes(reference.surface(objects, target))
    for h in range(target):
        points = held.points(h, reference.surface(objects, h))
        parts += [reference.depth(objects, target, points)]
        parts += [skin_moves * reference.depth(objects, h, held.seen(h, skin))]
        if s.both_ways:
            parts += [shape_moves[:, [g]] * depths for g, depths in enumerate(in_shapes(points))]
    return 1e3 * torch.cat(parts, dim=1)


def self_residuals(hand, skin_bodies, shape_bodies, state: reference.State) -> torch.Tensor:
    """Depths of the hand's skin in other shapes of the hand, of pairs that J_n moves, (N, ...).

    Skin and shapes may be placed apart, to see what each of them contributes to a derivative.
    """
    skin, shapes = reference.skin_points(hand, skin_bodies), reference.shape_poses(hand, shape_bodies)
    moves = reference.moves(hand, state.mask)[:, reference.shape_body(hand)]
    tested = torch.zeros(len(hand.ball), len(hand.ball), dtype=torch.bool)
    tested[hand.geom_pair[:, 0], hand.geom_pair[:, 1]] = tested[
        hand.geom_pair[:, 1], hand.geom_pair[:, 0]
    ] = True
    own, parts = reference.point_shape(hand), []
    for h in range(len(hand.ball)):
        depths = torch.relu(-reference.shape_distance(hand, h, shapes.seen(h, skin)))
        parts.append(depths * (tested[own, h] & (moves[:, own] | moves[:, [h]])))
    return 1e3 * torch.cat(parts, dim=1)


class System(NamedTuple):
    """Cost (N,), gradient (N, D) and matrix (N, D, D) by translation, rotation about H, joints."""

    cost: np.ndarray
    g: np.ndarray
    H: np.ndarray


class Truth(NamedTuple):
    """What residuals say: the system, the matrix J^T J itself, and at which states a residual begins."""

    system: System
    exact: np.ndarray
    kink: np.ndarray


def moved(x: np.ndarray, step: float) -> np.ndarray:
    """States (N D, 9 + K): each moved along each of the D = 6 + K unknowns."""
    D, K = x.shape[1] - 3, x.shape[1] - 9
    p, R, q = (np.repeat(part[:, None], D, axis=1) for part in unpacked(x))
    for i in range(3):
        p[:, i, i] += step
        R[:, 3 + i] = rotation_about(np.eye(3)[i], step) @ R[:, 3 + i]
    q[:, np.arange(6, D), np.arange(K)] += step
    return packed(*(part.reshape(-1, *part.shape[2:]) for part in (p, R, q)))


def by_residuals(hand, objects, some: States, s: Fast) -> Truth:
    """The system, with the bound on J^T J that the kernels use.

    A depth between two moving bodies has the derivative u - v; (u - v)^2 <= 2 u^2 + 2 v^2 keeps the bodies
    apart in the matrix. Neither feels the base.
    """
    N, D = len(some.x), some.x.shape[1] - 3

    def evaluate(x: np.ndarray) -> tuple[torch.Tensor, reference.Poses, reference.State]:
        many = some.take(np.repeat(np.arange(N), len(x) // N))
        arrays = (torch.tensor(v, dtype=torch.int64 if v is many.contact else torch.float64) for v in many)
        state = reference.State(*arrays)._replace(x=torch.tensor(x))
        base, bodies = reference.base_pose(state.x), reference.body_poses(hand, state.x)
        contacts = contact_residuals(hand, objects, bodies, state.contact, s)
        overlaps = overlap_residuals(hand, objects, bodies, base, state, s)
        return torch.cat([contacts, overlaps], dim=1), bodies, state

    def by_moving(pair: list[torch.Tensor]) -> np.ndarray:
        return ((pair[0] - pair[1]) / (2 * STEP)).reshape(N, D, -1).numpy()

    x = some.x.astype(float)
    r, bodies, state = evaluate(x)
    r_own = self_residuals(hand, bodies, bodies, state)
    still = reference.Poses(*(t.repeat_interleave(D, dim=0) for t in bodies))
    J, u, v, kink = [], [], [], np.zeros(N, dtype=bool)
    for sign in (1, -1):
        there, moved_bodies, many = evaluate(moved(x, sign * STEP))
        J.append(there)
        u.append(self_residuals(hand, moved_bodies, still, many))
        v.append(self_residuals(hand, still, moved_bodies, many))
        for after, before in ((there, r), (u[-1], r_own), (v[-1], r_own)):
            kink |= ((after.reshape(N, D, -1) > 0) != (before[:, None] > 0)).any(dim=2).any(dim=1).numpy()
    J, u, v = map(by_moving, (J, u, v))
    u[:, :6] = v[:, :6] = 0
    r, r_own = r.numpy(), r_own.numpy()
    cost = 0.5 * (r**2).sum(axis=1) + 0.5 * (r_own**2).sum(axis=1)
    g = np.einsum("ndr,nr->nd", J, r) + np.einsum("ndr,nr->nd", u + v, r_own)
    bound = squared(J) + 2 * squared(u) + 2 * squared(v)
    return Truth(System(cost, g, bound), squared(J) + squared(u + v), kink)


def squared(J: np.ndarray) -> np.ndarray:
    """J J^T (N, D, D) of rows (N, D, R), most of which are zero."""
    J = J[:, :, np.any(J, axis=(0, 1))]
    return J @ J.swapaxes(1, 2)


def by_kernels(core: Core, some: States, s: Fast) -> System:
    N = len(some.x)
    task = Task(
        q=some.x[:, 9:],
        mask=some.mask > 0,
        surface=np.zeros((N, core.contacts)),
        p_HO=some.p_HO,
        R_HO=some.R_HO,
        key=np.arange(N),
    )
    lives = new_lives(core, task, ONE_PAIR, s)
    lives.batch.write(**some._asdict())
    launch(lives.step[:3])
    return System(lives.batch.read("energy"), lives.refine.new_g.numpy(), lives.refine.new_H.numpy())


ONE_PAIR = AntipodalPairs(
    a_O=np.array([[-0.02, 0, 0]]),
    b_O=np.array([[0.02, 0, 0]]),
    n_a=np.array([[-1.0, 0, 0]]),
    n_b=np.array([[1.0, 0, 0]]),
    width=np.array([0.04]),
    cone_deg=31,
    tried=1,
    blocked=0,
)


def new_lives(core: Core, task: Task, pairs: AntipodalPairs, s: Fast, seed: int = 0):
    opposed = PairData()
    for name, array in (("a", pairs.a_O), ("b", pairs.b_O), ("width", pairs.width)):
        dtype = float if array.ndim == 1 else wp.vec3
        setattr(opposed, name, wp.array(array.astype(np.float32), dtype=dtype, device="cpu"))
    return fast._Lives(core, task, opposed, seed, s)


def assert_system(core: Core, hand, objects, some: States, s: Fast) -> tuple[float, float]:
    """Kernels agree with the residuals; largest errors of gradient and matrix, relative."""
    found, (expected, exact, kink) = by_kernels(core, some, s), by_residuals(hand, objects, some, s)
    assert kink.sum() <= 1
    free = np.concatenate([np.ones((len(some.x), 6)), some.mask], axis=1) > 0
    # |g_i| <= sqrt(H_ii) |r| and |H_ij| <= sqrt(H_ii H_jj): the scales of rounding, whatever the units. A
    # joint that no residual moves is a small difference of large numbers, with levers of about 0.1 m.
    spread = np.sqrt(np.einsum("nii->ni", expected.H))
    lever = np.r_[np.ones(3), np.full(spread.shape[1] - 3, 0.1)]
    spread = np.maximum(spread, 0.03 * lever * spread[:, :3].max(axis=1, keepdims=True))
    np.testing.assert_allclose(found.cost, expected.cost, rtol=TOLERANCE, atol=1e-6)
    g = np.abs(found.g - expected.g) / (spread * np.sqrt(2 * expected.cost[:, None]))
    H = np.abs(found.H - expected.H) / (spread[:, :, None] * spread[:, None])
    g, H = g[free & ~kink[:, None]], H[free[:, :, None] & free[:, None] & ~kink[:, None, None]]
    assert g.max() < TOLERANCE
    assert H.max() < TOLERANCE
    # Up to rounding: symmetric, positive, and not below J^T J.
    np.testing.assert_allclose(found.H, found.H.swapaxes(1, 2), rtol=1e-5, atol=1e-5 * np.abs(found.H).max())
    for n in np.flatnonzero(~kink):
        rows, scale = np.ix_(free[n], free[n]), np.outer(spread[n, free[n]], spread[n, free[n]])
        for matrix in (found.H[n], found.H[n] - exact[n]):
            assert np.linalg.eigvalsh(matrix[rows] / scale).min() > -TOLERANCE
    return g.max(), H.max()


def all_kinds(name: str, held: int) -> States:
    parts = (states(name, held, kind, EACH) for kind in ("near", "deep", "far"))
    return States(*map(np.concatenate, zip(*parts, strict=True)))


@pytest.mark.parametrize("name", HANDS)
def test_gradient_and_matrix_are_those_of_the_residuals(name, figure):
    """g = J^T r, and H = J^T J but for overlaps of the hand with itself, where it is the bound."""
    tensors = hand_tensors(name), object_tensors(1)
    g, H = assert_system(core(name, 1), *tensors, all_kinds(name, 1), Fast())
    figure(f"largest error of the gradient of the cost, {name}", g)
    figure(f"largest error of the Gauss-Newton matrix, {name}", H)


def test_one_way_leaves_object_points_out():
    some = all_kinds("allegro", 1)
    tensors = hand_tensors("allegro"), object_tensors(1)
    assert_system(core("allegro", 1), *tensors, some, Fast(both_ways=False))
    both, one = (by_kernels(core("allegro", 1), some, Fast(both_ways=way)).cost for way in (True, False))
    assert np.all(one <= both)
    assert np.any(one < both)


def test_without_overlaps_the_matrix_is_exact():
    """Alone with the target, a hand that does not meet itself: H = J^T J."""
    rng = np.random.default_rng(0)
    some = states("allegro", 0, "near", 8)
    flat = np.tile(hand("allegro").model.open_pose, (8, 1)) + rng.normal(size=(8, 16)) * 0.02
    some = some._replace(x=np.c_[some.x[:, :9], flat].astype(np.float32))
    objects = object_tensors(0)
    assert_system(core("allegro", 0), hand_tensors("allegro"), objects, some, Fast())
    truth = by_residuals(hand_tensors("allegro"), objects, some, Fast())
    np.testing.assert_allclose(truth.system.H, truth.exact, rtol=1e-9, atol=1e-9)


def test_several_pairs_of_contacts():
    tables = hand_tables("allegro", 2)
    rng = np.random.default_rng(3)
    surface = tables.set_surface[rng.integers(len(tables.set_surface), size=4)]
    contact = rng.integers(tables.surface_start[surface], tables.surface_start[surface + 1])
    some = states("allegro", 1, "near", 4)._replace(contact=contact)
    two = Core(tables, object_tables(1))
    assert_system(two, reference.tensors(tables), object_tensors(1), some, Fast())


def test_residuals_by_hand():
    """A finger 2 mm above a cube, its partner on the other side, both turned by 50 degrees."""
    cube = load_object("cube", rescale=True, voxels=40_000)
    half, objects = cube.vertices.max(), reference.tensors(ObjectTables.of([cube]))
    turn = np.deg2rad(50)
    tables = SimpleNamespace(
        candidate_body=torch.tensor([0, 1]),
        candidate_p_B=torch.zeros(2, 3, dtype=torch.float64),
        candidate_n_B=torch.tensor([[0, np.sin(turn), -np.cos(turn)], [0, np.sin(turn), np.cos(turn)]]),
    )
    p = torch.tensor([[[0, 0, half + 0.002], [half, 0, -half - 0.002]]])
    bodies = reference.Poses(p, torch.eye(3, dtype=torch.float64).expand(1, 2, 3, 3))
    s = Fast(align_deg=35, friction_deg=15, angle_weight_mm=20)
    r = contact_residuals(tables, objects, bodies, torch.tensor([[0, 1]]), s).numpy()[0]
    slant = np.arctan(half / (2 * half + 0.004))
    # Normals of the grid are a little shorter than 1.
    np.testing.assert_allclose(r[0], 2, atol=0.01)
    np.testing.assert_allclose(r[2], 20 * (np.cos(np.deg2rad(35)) - np.cos(turn)), atol=0.03)
    np.testing.assert_allclose(r[4], 20 * (np.cos(np.deg2rad(15)) - np.cos(slant)), atol=0.03)


# Steps.


class Snapshot(NamedTuple):
    """The memory of the optimiser after a step."""

    x: np.ndarray
    contact: np.ndarray
    active: np.ndarray
    phase: np.ndarray
    age: np.ndarray
    current: np.ndarray
    H: np.ndarray
    g: np.ndarray
    damping: np.ndarray


@cache
def pairs(held: int) -> AntipodalPairs:
    item = load_object(SEQUENCE[-1], rescale=True, voxels=40_000)
    return antipodal_pairs(item, np.random.default_rng(held), count=512)


def some_task(name: str, held: int, count: int, seed: int = 0) -> Task:
    """Grasps of random contact sets; held objects in odd places."""
    rng = np.random.default_rng([seed, held])
    tables, model, sets = hand_tables(name), hand(name).model, contact_sets(hand(name))
    space, some = rng.integers(len(sets), size=count), states(name, held, "near", count)
    return Task(
        q=rng.uniform(model.lower, model.upper, (count, len(model.joints))),
        mask=np.array([s.joint_mask for s in sets])[space],
        surface=tables.set_surface[space],
        p_HO=some.p_HO,
        R_HO=some.R_HO,
        key=np.arange(count),
    )


@cache
def history(name: str) -> tuple[Task, list[Snapshot]]:
    """Grasps of a mug with one object held, all the way."""
    task = some_task(name, 1, 24)
    lives = new_lives(core(name, 1), task, pairs(1), Fast(lives=1))
    launch([lives.begin])
    snapshots = []
    for _ in range(40):
        launch(lives.step)
        b, r, life = lives.batch, lives.refine, lives.life
        arrays = (life.phase, life.age, r.x, r.H, r.g, r.damping)
        read = (b.read(name) for name in ("x", "contact", "active"))
        snapshots.append(Snapshot(*read, *(a.numpy().copy() for a in arrays)))
    return task, snapshots


@pytest.mark.parametrize("name", ("allegro", "shadow"))
def test_a_step_solves_the_damped_system(name, figure):
    """(H + damping max(diag H, floor) + floor / 1000) step = -g over what is free, shortened as a whole.

    Where a joint would leave its limits it stops there; one that is pushed against its limit is not free.
    """
    task, snapshots = history(name)
    model, s, errors, stuck = hand(name).model, Fast(), [], 0
    lower, upper = (limit.astype(np.float32) for limit in (model.lower, model.upper))
    floor = np.r_[np.full(3, 1e4), np.full(3 + len(lower), 25.0)]
    for now in snapshots:
        stepped = (now.active == 1) & (now.phase == REFINING) & (now.age % s.pick_every != 0)
        for n in np.flatnonzero(stepped):
            q, g, H = now.current[n, 9:], now.g[n].astype(float), now.H[n].astype(float)
            at_limit = ((q <= lower) & (g[6:] > 0)) | ((q >= upper) & (g[6:] < 0))
            free = np.flatnonzero(np.r_[np.ones(6, dtype=bool), task.mask[n] & ~at_limit])
            stuck += np.sum(task.mask[n] & at_limit)
            diagonal = now.damping[n] * np.maximum(np.diag(H), floor) + 1e-3 * floor
            A = (H + np.diag(diagonal))[np.ix_(free, free)]
            step = np.zeros(len(g))
            step[free] = np.linalg.solve(A, -g[free])
            most = np.r_[np.full(3, 0.02), np.full(len(g) - 3, 0.3)]
            step /= max(1, np.max(np.abs(step) / most))
            p, R, _ = unpacked(now.current[[n]])
            angle = np.linalg.norm(step[3:6])
            R = rotation_about(step[3:6] / angle, angle) @ R[0]
            joints = np.where(task.mask[n], np.clip(q + step[6:], lower, upper), q)
            expected = packed(p + step[:3], R[None], joints[None])[0]
            scale = np.r_[np.full(3, 1 / 0.02), np.ones(len(expected) - 3)]
            size = np.sqrt(np.diag(A))
            errors.append(
                [np.abs(scale * (now.x[n] - expected)).max(), np.linalg.cond(A / np.outer(size, size))]
            )
    error, condition = np.array(errors).T
    assert len(error) > 200
    assert stuck
    # What Cholesky in float32 can do: rounding times condition.
    assert np.all(error < 2e-6 + 1e-6 * condition)
    figure(f"median error of a Levenberg-Marquardt step, {name}", np.median(error), "of 20 mm or 1 rad")


@pytest.mark.parametrize("name", ("allegro", "shadow"))
def test_joints_keep_their_limits_and_held_ones_their_bits(name):
    task, snapshots = history(name)
    lower, upper = (limit.astype(np.float32) for limit in (hand(name).model.lower, hand(name).model.upper))
    for now in snapshots:
        q = now.x[:, 9:]
        np.testing.assert_array_equal(q[~task.mask], task.q.astype(np.float32)[~task.mask])
        assert np.all(((q >= lower) & (q <= upper)) | ~task.mask)


@pytest.mark.parametrize("name", ("allegro", "shadow"))
def test_a_step_is_kept_only_if_it_lowers_the_cost(name):
    """Between two choices of contacts, costs of kept states fall; so does the damping, which else rises."""
    task = some_task(name, 1, 24)
    lives = new_lives(core(name, 1), task, pairs(1), Fast(lives=1))
    launch([lives.begin])
    kept = refused = 0
    for _ in range(40):
        before = {k: getattr(lives.refine, k).numpy().copy() for k in ("cost", "damping", "fresh", "x")}
        trial = lives.batch.read("x")
        running = (lives.batch.read("active") == 1) & (lives.life.phase.numpy() == REFINING)
        running &= before["fresh"] == 0
        launch(lives.step)
        cost, after = lives.batch.read("energy"), lives.refine
        better = running & (cost < before["cost"])
        worse = running & ~better
        np.testing.assert_array_equal(after.x.numpy()[better], trial[better])
        np.testing.assert_array_equal(after.cost.numpy()[better], cost[better])
        np.testing.assert_array_equal(after.x.numpy()[worse], before["x"][worse])
        lower = np.maximum(np.float32(0.25) * before["damping"], np.float32(1e-5))
        np.testing.assert_allclose(after.damping.numpy()[better], lower[better], rtol=1e-6)
        np.testing.assert_allclose(after.damping.numpy()[worse], 5 * before["damping"][worse], rtol=1e-6)
        kept, refused = kept + better.sum(), refused + worse.sum()
    assert kept > 100
    assert refused > 10


def test_contacts_are_the_cheapest_of_all_pairs():
    """Every few steps: the argmin over all pairs of candidates, by the residuals one at a time."""
    task, snapshots = history("allegro")
    tables, tensors, s = hand_tables("allegro"), hand_tensors("allegro"), Fast()
    seen = 0
    for now in snapshots:
        picked = (now.active == 1) & (now.phase == REFINING) & (now.age % s.pick_every == 0) & (now.age > 0)
        for n in np.flatnonzero(picked)[:4]:
            first, second = (np.arange(*tables.surface_start[i : i + 2]) for i in task.surface[n])
            every = torch.tensor([(a, b) for a in first for b in second])
            x = torch.tensor(now.x[[n]]).double().expand(len(every), -1)
            r = contact_residuals(tensors, object_tensors(1), reference.body_poses(tensors, x), every, s)
            cost = 0.5 * r.square().sum(dim=1).numpy()
            chosen = cost[np.all(every.numpy() == now.contact[n], axis=1)]
            assert chosen == pytest.approx(cost.min(), rel=1e-4, abs=1e-4)
            seen += 1
    assert seen > 10


# Starts.


def starts(name: str, pairs: AntipodalPairs, count: int = 64):
    task = some_task(name, 1, count)
    lives = new_lives(core(name, 1), task, pairs, Fast())
    launch([lives.begin])
    assert np.all(lives.life.phase.numpy() == TRYING)
    return task, lives.batch.read("x"), lives.batch.read("contact")


def contact_places(name: str, x: np.ndarray, contact: np.ndarray) -> np.ndarray:
    """Contact points (N, C, 3) in the object's frame."""
    tables, (p_OH, R_OH, q) = hand_tables(name), unpacked(x)
    body, p_B = tables.candidate_body[contact], tables.candidate_p_B[contact]
    return p_OH[:, None] + apply(R_OH[:, None], contact_points(hand(name), q, body, p_B))


@pytest.mark.parametrize("name", hand_names())
def test_a_start_lays_a_pair_of_the_hand_on_one_of_the_object(name):
    """Middles coincide, lines are parallel; widths fit whenever the object has such a width."""
    task, x, contact = starts(name, pairs(1))
    tables = hand_tables(name)
    assert np.all(contact >= tables.surface_start[task.surface])
    assert np.all(contact < tables.surface_start[task.surface + 1])
    np.testing.assert_array_equal(x[:, 9:][~task.mask], task.q.astype(np.float32)[~task.mask])
    a, b = contact_places(name, x, contact).swapaxes(0, 1)
    width = np.linalg.norm(b - a, axis=1)
    middle = (pairs(1).a_O + pairs(1).b_O) / 2
    line = (pairs(1).b_O - pairs(1).a_O) / pairs(1).width[:, None]
    off = np.linalg.norm(middle - (a + b)[:, None] / 2, axis=2)
    turned = np.linalg.norm(np.cross(line, ((b - a) / width[:, None])[:, None]), axis=2)
    laid = (off < 1e-6) & (turned < 1e-4)
    assert np.all(laid.any(axis=1))
    gap = np.abs(pairs(1).width - width[:, None])
    chosen = np.where(laid, gap, np.inf).min(axis=1)
    fits = gap.min(axis=1) < WINDOW - 1e-6
    assert fits.mean() > 0.5
    assert np.all(chosen[fits] <= WINDOW + 1e-6)


def test_a_start_takes_the_clearest_spin():
    """About the line through its contacts, none of the other spins would put fewer probes in the target."""
    task, x, contact = starts("allegro", pairs(1), 16)
    tables, objects = hand_tables("allegro"), object_tables(1)
    p_OH, R_OH, q = unpacked(x)
    poses = hand("allegro").poses(q)
    held = task.p_HO[:, 0, None] + apply(task.R_HO, objects.probe[[0]])
    probes_H = np.concatenate([poses.points(tables.probe_body, tables.probe_p_B), held], axis=1)
    a, b = contact_places("allegro", x, contact).swapaxes(0, 1)
    depth = np.zeros((len(x), SPINS))
    for n in range(len(x)):
        for i in range(SPINS):
            turn = rotation_about((b - a)[n] / np.linalg.norm((b - a)[n]), 2 * np.pi * i / SPINS)
            centre = (a + b)[n] / 2
            p, R = centre + turn @ (p_OH[n] - centre), turn @ R_OH[n]
            at = torch.tensor(p + probes_H[n] @ R.T)
            depth[n, i] = reference.depth(object_tensors(1), 1, at).sum()
    assert np.all(depth[:, 0] <= depth.min(axis=1) + 1e-6)
    assert np.mean(depth[:, 0] < depth.max(axis=1)) > 0.5


@pytest.mark.parametrize("width", (1e-4, 0.5))
def test_a_start_is_a_pose_whatever_the_object_measures(width):
    """Narrower and wider than any opening of the hand: still a rotation, and middles on each other."""
    odd = ONE_PAIR._replace(
        a_O=np.array([[-width / 2, 0, 0]]), b_O=np.array([[width / 2, 0, 0]]), width=np.array([width])
    )
    _, x, contact = starts("allegro", odd)
    assert np.all(np.isfinite(x))
    np.testing.assert_allclose(np.linalg.norm(x[:, 3:6], axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(contact_places("allegro", x, contact).mean(axis=1), 0, atol=1e-5)


# The whole.


def optimise(name: str, task: Task, seed: int = 0, threads: int = 1) -> Solution:
    settings = Fast(steps=18, tries=3)
    return fast.optimise(core(name, 1), task, pairs(1), seed=seed, settings=settings, threads=threads)


def assert_same(found: Solution, expected: Solution) -> None:
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(found.contact, expected.contact)


def test_a_grasp_does_not_depend_on_its_company(monkeypatch):
    """Threads, blocks, the batch and the place in it: the same bits."""
    task = some_task("allegro", 1, 23)
    whole = optimise("allegro", task)
    for threads in (2, 3, 40):
        assert_same(optimise("allegro", task, threads=threads), whole)
    monkeypatch.setattr(fast, "BLOCK", 5)
    for threads in (1, 2):
        assert_same(optimise("allegro", task, threads=threads), whole)
    some = np.array([17, 3, 11])
    assert_same(optimise("allegro", task.take(some)), Solution(whole.x[some], whole.contact[some]))
    for n in (0, 22):
        assert_same(optimise("allegro", task.take(np.array([n]))), Solution(whole.x[[n]], whole.contact[[n]]))


def test_seeds_and_keys_make_other_grasps():
    """Also from grasp to grasp of one task: no two are the same."""
    task = some_task("allegro", 1, 8)
    one = replace(task, **{f.name: getattr(task, f.name)[[0] * 8] for f in fields(task) if f.name != "key"})
    runs = [optimise("allegro", one).x, optimise("allegro", one, seed=1).x]
    runs.append(
        optimise("allegro", replace(one, key=np.array([100, 1000, 8191, 9000, 2**14, 2**15 - 1, 77, 78]))).x
    )
    together = np.concatenate(runs)[:, :3]
    apart = np.linalg.norm(together[:, None] - together, axis=2)[np.triu_indices(len(together), 1)]
    assert apart.min() > 1e-4


def test_done_is_done():
    """A grasp that stopped before its last life touches, opposes and overlaps nothing, by the reference."""
    task, s = some_task("allegro", 0, 64), Fast(lives=3)
    lives = new_lives(core("allegro", 0), task, pairs(0), s)
    lives.run(Event())
    done = (lives.batch.read("active") == 0) & (lives.life.lives.numpy() > 0)
    assert done.sum() > 10
    best, rows = lives.best(), np.flatnonzero(done)
    tensors, x = hand_tensors("allegro"), torch.tensor(best.x[rows]).double()
    nothing = torch.zeros(len(rows), 0, 3, dtype=torch.float64)
    mask = torch.tensor(task.mask[rows]).double()
    state = reference.State(x, mask, torch.tensor(best.contact[rows]).long(), nothing, nothing[..., None])
    base, bodies = reference.base_pose(x), reference.body_poses(tensors, x)
    contacts = contact_residuals(tensors, object_tensors(0), bodies, state.contact, s)
    overlaps = overlap_residuals(tensors, object_tensors(0), bodies, base, state, s)
    own = self_residuals(tensors, bodies, bodies, state)
    assert contacts[:, :2].abs().max() <= s.touch_mm + 1e-3
    # The friction term, half the sum of squares of the excess, is below 1e-4.
    assert (contacts[:, 4:] / s.angle_weight_mm).square().sum(dim=1).max() <= 2.02e-4
    assert overlaps.max() <= s.depth_mm + 1e-3
    assert own.max() <= s.depth_mm + 1e-3


def stage(name: str, settings: Settings) -> Stage:
    planner = Planner.of(hand("allegro"), settings, threads=1)
    return planner.stage([load_object(name, rescale=True)])


@pytest.mark.parametrize("name", ("ball", "cube", "mug"))
def test_it_works(name, figure):
    """By the exact measure, nearly all grasps are good."""
    found = stage(name, Settings(count=64))
    assert found.good.mean() >= 0.9
    figure(f"good grasps of 64, allegro, {name}", found.good.sum())


def test_corners_need_both_ways(figure):
    """Skin points alone let the edges of a cube into the fingers."""
    both, one = (
        stage("cube", Settings(count=64, rounds=1, fast=Fast(both_ways=way))) for way in (True, False)
    )
    assert both.good.mean() > one.good.mean() + 0.15
    assert np.mean(both.measures.penetration_mm > 2) < 0.5 * np.mean(one.measures.penetration_mm > 2)
    figure("good grasps of a cube after one round, object points too", 100 * both.good.mean(), "%")
    figure("good grasps of a cube after one round, skin points only", 100 * one.good.mean(), "%")
