"""The paper's optimiser, step by step against its formulas, and the poses that it starts from."""

from dataclasses import replace
from functools import cache
from threading import Barrier, Event, Timer
from typing import NamedTuple

import numpy as np
import pytest

from fistful.geometry.mesh_distance import MeshDistance
from fistful.geometry.pose import apply
from fistful.geometry.quiet_warp import wp
from fistful.hands import hand_names
from fistful.hands.facing import palm_facing
from fistful.objects import load_object
from fistful.synthesis import paper
from fistful.synthesis.contact_set import contact_sets
from fistful.synthesis.core import Core, launch
from fistful.synthesis.paper import MARGIN, Paper
from fistful.synthesis.stage import unpacked
from fistful.synthesis.tables import ObjectTables
from fistful.synthesis.task import Solution, Task, in_threads
from fistful.synthesis.weights import Weights
from test_energy import core, hand, hand_tables, states

GRASPS, STEPS, SEED = 12, 120, 3
COLD = Paper(steps=STEPS, temperature=1.0)
"""Cold enough that 120 steps see proposals refused."""


@wp.kernel
def draws_kernel(
    seed: int,
    key: wp.array(dtype=int),
    switching: float,
    first: wp.array2d(dtype=int),
    end: wp.array2d(dtype=int),
    uniform: wp.array2d(dtype=float),
    contact: wp.array3d(dtype=int),
):
    """Random numbers of each grasp and step: u of the acceptance, new contacts or -1."""
    n, t = wp.tid()
    state = wp.rand_init(seed, key[n] * 65536 + 2 * t)
    uniform[n, t] = wp.randf(state)
    state = wp.rand_init(seed, key[n] * 65536 + 2 * t + 1)
    for j in range(first.shape[1]):
        contact[n, t, j] = -1
        if wp.randf(state) < switching:
            contact[n, t, j] = wp.randi(state, first[n, j], end[n, j])


def draws(task: Task, s: Paper) -> tuple[np.ndarray, np.ndarray]:
    """u (N, T) and new contacts (N, T, C)."""
    N, C = task.surface.shape
    start = hand_tables("allegro").surface_start
    key, first, end = (
        wp.array(a.astype(np.int32), dtype=int, device="cpu")
        for a in (task.key, start[task.surface], start[task.surface + 1])
    )
    uniform = wp.zeros((N, s.steps + 1), dtype=float, device="cpu")
    contact = wp.zeros((N, s.steps + 1, C), dtype=int, device="cpu")
    inputs = [SEED, key, s.switch_probability, first, end, uniform, contact]
    wp.launch(draws_kernel, dim=uniform.shape, inputs=inputs, device="cpu")
    return uniform.numpy(), contact.numpy()


class Step(NamedTuple):
    """One proposal, and the state of the chains after it was accepted or not."""

    x_new: np.ndarray
    contact_new: np.ndarray
    energy_new: np.ndarray
    w_hop: np.ndarray
    x: np.ndarray
    contact: np.ndarray
    energy: np.ndarray
    gradient: np.ndarray


def some_task(count: int = GRASPS) -> tuple[Task, np.ndarray]:
    """Grasps of a mug while a banana is held, and states to start from."""
    tables, sets = hand_tables("allegro"), contact_sets(hand("allegro"))
    space = np.arange(count) % len(sets)
    some = states("allegro", 1, "near", count)
    task = Task(
        q=some.x[:, 9:],
        mask=np.array([s.joint_mask for s in sets])[space],
        surface=tables.set_surface[space],
        p_HO=some.p_HO,
        R_HO=some.R_HO,
        key=100 + np.arange(count),
    )
    return task, some.x


def first_contacts(task: Task) -> np.ndarray:
    start = hand_tables("allegro").surface_start
    return np.random.default_rng(SEED).integers(start[task.surface], start[task.surface + 1])


def new_chains(task: Task, x: np.ndarray, s: Paper):
    square = wp.zeros((2, len(task), x.shape[1]), dtype=float, device="cpu")
    return paper._Chains(core("allegro", 1), task, x, first_contacts(task), square, 0, SEED, s)


@cache
def history(s: Paper = COLD) -> list[Step]:
    chains = new_chains(*some_task(), s)
    b, c = chains.batch, chains.chain

    def step() -> Step:
        launch(chains.evaluate)
        proposal = (b.read(name) for name in ("x", "contact", "energy", "w_hop"))
        return Step(*proposal, *(a.numpy().copy() for a in (c.x, c.contact, c.energy, c.gradient)))

    steps = [step()]
    for _ in range(s.steps):
        launch(chains.propose)
        steps.append(step())
    return steps


def optimise(task: Task, x: np.ndarray, s: Paper = COLD, threads: int = 1) -> Solution:
    return paper.optimise(core("allegro", 1), task, x, seed=SEED, settings=s, threads=threads)


def assert_same(found: Solution, expected: Solution) -> None:
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(found.contact, expected.contact)


# Each step.


def test_proposals_follow_the_scaled_gradient():
    """x' = x - s [1, J_n] g / sqrt(v): v = 0.98 mean g^2 + 0.02 v, s = 0.005 x 0.95^floor(t / 50)."""
    task, _ = some_task()
    moving = np.concatenate([np.ones((GRASPS, 9)), task.mask], axis=1)
    v = np.zeros(moving.shape[1])
    for t, (now, then) in enumerate(zip(history()[:-1], history()[1:], strict=True)):
        g = now.gradient.astype(float)
        v = 0.98 * np.mean(g**2, axis=0) + 0.02 * v
        stride = 0.005 * 0.95 ** (t // 50) * moving * g / (np.sqrt(v) + 1e-6)
        np.testing.assert_allclose(then.x_new, now.x - stride, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal((then.x_new - now.x)[moving == 0], 0)


def test_acceptance_is_boltzmann():
    """Kept if u < exp((E - E') / T), T = T0 0.95^floor(t / 30), and only then; u is drawn for each."""
    uniform, _ = draws(some_task()[0], COLD)
    worse_kept = refused = 0
    for t, (now, then) in enumerate(zip(history()[:-1], history()[1:], strict=True), start=1):
        T = COLD.temperature * 0.95 ** (t // 30)
        chance = np.exp(np.minimum((now.energy.astype(float) - then.energy_new) / T, 50))
        doubtful = np.abs(chance - uniform[:, t]) < 1e-4
        kept = uniform[:, t] < chance
        same = np.all(then.x == then.x_new, axis=1) & np.all(then.contact == then.contact_new, axis=1)
        np.testing.assert_array_equal(same[~doubtful], kept[~doubtful])
        for n in np.flatnonzero(~kept & ~doubtful):
            for name in ("x", "contact", "energy", "gradient"):
                np.testing.assert_array_equal(getattr(then, name)[n], getattr(now, name)[n])
        np.testing.assert_array_equal(then.energy[same], then.energy_new[same])
        refused += np.sum(~kept)
        worse_kept += np.sum(kept & (then.energy_new > now.energy))
    assert refused > 20
    assert worse_kept > 20


def test_energies_are_those_of_the_core_with_a_growing_weight():
    """w_hop grows from 5 to 36.95 = 5 e^2, by the same factor each step; all else as in the core."""
    task, _ = some_task()
    hop = [step.w_hop for step in history()]
    np.testing.assert_allclose(hop[0], 5)
    np.testing.assert_allclose(hop[-1], 36.95, rtol=1e-5)
    np.testing.assert_allclose(np.diff(np.log(hop), axis=0), np.log(36.95 / 5) / STEPS, rtol=1e-3)
    assert Weights().hop_end == pytest.approx(5 * np.e**2, rel=1e-3)
    batch = core("allegro", 1).batch(GRASPS)
    batch.write_task(task)
    for step in history()[::17]:
        batch.write(x=step.x_new, contact=step.contact_new)
        batch.evaluate(replace(COLD.weights, hop=float(step.w_hop[0])))
        np.testing.assert_array_equal(batch.read("energy"), step.energy_new)


def test_contacts_switch_with_their_probability(figure):
    """To any candidate of their own surface, each as often; as the kernel's random numbers say."""
    task, _ = some_task()
    _, drawn = draws(task, COLD)
    switched, where = 0, []
    start = hand_tables("allegro").surface_start
    first, end = start[task.surface], start[task.surface + 1]
    for t, (now, then) in enumerate(zip(history()[:-1], history()[1:], strict=True)):
        expected = np.where(drawn[:, t] < 0, now.contact, drawn[:, t])
        np.testing.assert_array_equal(then.contact_new, expected)
        changed = then.contact_new != now.contact
        switched += np.sum(changed / (1 - 1 / (end - first)))
        where.append(((then.contact_new - first + 0.5) / (end - first))[changed])
    trials = STEPS * task.surface.size
    assert switched / trials == pytest.approx(0.3, abs=4 * np.sqrt(0.3 * 0.7 / trials))
    counts = np.histogram(np.concatenate(where), bins=8, range=(0, 1))[0]
    expected = counts.sum() / 8
    assert np.sum((counts - expected) ** 2 / expected) < 30  # 7 degrees of freedom: p = 1e-4.
    figure("contacts switched in a step", 100 * switched / trials, "% (asked for: 30)")


# The whole.


def test_optimise_is_these_steps():
    found = optimise(*some_task())
    np.testing.assert_array_equal(found.x, history()[-1].x)
    np.testing.assert_array_equal(found.contact, history()[-1].contact)


def test_threads_do_not_matter():
    """The mean over the batch couples all chains; yet the same bits on one, two, three, too many threads."""
    task, x = some_task()
    whole = optimise(task, x)
    for threads in (2, 3, 2 * GRASPS):
        assert_same(optimise(task, x, threads=threads), whole)


def small_steps(monkeypatch, margin: float, careless: bool = False) -> tuple[Solution, float]:
    """400 steps of up to a millimetre or two, and the share of them that list neighbours anew.

    If careless, moves are measured from the step before instead of from where neighbours were listed.
    """
    monkeypatch.setattr(paper, "MARGIN", margin)
    chains, stale = new_chains(*some_task(), replace(COLD, steps=400, step_size=1e-3)), []
    data = chains.batch.data
    launch(chains.evaluate)
    for _ in range(400):
        launch(chains.propose)
        launch(chains.evaluate)
        stale.append(data.stale.numpy().mean())
        if careless:
            wp.copy(data.listed_centre, data.centre)
            wp.copy(data.listed_R, data.R_OB)
    found = Solution(chains.chain.x.numpy().copy(), chains.chain.contact.numpy().copy())
    return found, float(np.mean(stale))


def test_neighbours_do_not_matter(monkeypatch, figure):
    """Kept for a while or listed at every step: the same bits. A margin that is not kept shows."""
    exact, always = small_steps(monkeypatch, 0.0)
    assert always == 1
    for margin in (MARGIN, 0.01):
        found, share = small_steps(monkeypatch, margin)
        assert_same(found, exact)
        assert share < 0.5
        figure(f"small steps that list neighbours anew, margin {1e3 * margin:.0f} mm", 100 * share, "%")
    wrong, _ = small_steps(monkeypatch, 0.01, careless=True)
    assert np.any(wrong.x != exact.x)


def test_batches_do_not_know_of_each_other(monkeypatch):
    task, x = some_task()
    short = replace(COLD, steps=20)
    monkeypatch.setattr(paper, "BATCH", 8)
    both = optimise(task, x, short)
    first = np.arange(8)
    assert_same(optimise(task.take(first), x[first], short), Solution(both.x[first], both.contact[first]))
    other = x.copy()
    other[:8, :3] += 0.01
    changed = optimise(task, other, short)
    assert_same(Solution(changed.x[8:], changed.contact[8:]), Solution(both.x[8:], both.contact[8:]))
    assert np.any(changed.x[:8] != both.x[:8])
    # One batch is not two: they share their mean square gradient.
    monkeypatch.setattr(paper, "BATCH", 256)
    assert np.any(optimise(task, x, short).x[:8] != both.x[:8])


def test_held_joints_keep_their_bits():
    task, x = some_task()
    found = optimise(task, x)
    np.testing.assert_array_equal(found.x[:, 9:][~task.mask], x[:, 9:][~task.mask])
    assert np.all(np.any(found.x[:, 9:] != x[:, 9:], axis=1))


def test_another_seed_is_another_chain():
    task, x = some_task()
    s = replace(COLD, steps=5)
    other = paper.optimise(core("allegro", 1), task, x, seed=SEED + 1, settings=s)
    assert np.any(other.contact != optimise(task, x, s).contact)


def test_energy_falls(figure):
    """2000 steps from the inflated hull of a ball, with the weights as they are in the end."""
    ball = load_object("ball", rescale=True, voxels=40_000)
    tables = hand_tables("allegro")
    alone = Core(tables, ObjectTables.of([ball], points=200))
    rng, N = np.random.default_rng(0), 32
    sets = contact_sets(hand("allegro"))
    space = rng.integers(len(sets), size=N)
    task = Task(
        q=np.tile(hand("allegro").model.open_pose, (N, 1)),
        mask=np.array([s.joint_mask for s in sets])[space],
        surface=tables.set_surface[space],
        p_HO=np.zeros((N, 0, 3)),
        R_HO=np.zeros((N, 0, 3, 3)),
        key=np.arange(N),
    )
    x = paper.starts(hand("allegro"), ball, task.q, task.mask, rng, Paper())
    batch, energies = alone.batch(N), []
    batch.write_task(task)
    for steps in (0, 2000):
        found = paper.optimise(alone, task, x, seed=0, settings=Paper(steps=steps))
        batch.write(x=found.x, contact=found.contact)
        batch.evaluate(replace(Weights(), hop=36.95))
        energies.append(batch.read("energy"))
    before, after = energies
    assert np.mean(after < before) > 0.9
    assert np.median(after) < 0.5 * np.median(before)
    figure(
        "median energy after 2000 of the paper's steps, of that before", np.median(after) / np.median(before)
    )


# Ending early.


def test_stopped_before_it_starts():
    task, x = some_task()
    stop = Event()
    stop.set()
    found = new_chains(task, x, replace(COLD, steps=10**9)).run(Barrier(1), stop)
    np.testing.assert_array_equal(found.x, x)


def test_stopping_ends_all_blocks():
    """Chains that would run for days: the flag of `in_threads` ends them, whoever sees it first."""
    task, x = some_task()
    days, barrier, events = replace(COLD, steps=10**9), Barrier(2), []
    halves = [new_chains(task, x, days) for _ in range(2)]

    def run(chains, stop: Event) -> Solution:
        events.append(stop)
        return chains.run(barrier, stop)

    timer = Timer(0.2, lambda: events[0].set())
    timer.start()
    found = in_threads(run, halves, 2)
    timer.cancel()
    steps = [int(chains.chain.step.numpy()[0]) for chains in halves]
    assert min(steps) > 1
    assert abs(steps[0] - steps[1]) <= 1
    assert len(found) == 2


def test_an_error_in_one_block_ends_the_others(monkeypatch):
    task, x = some_task()
    calls = []

    def faulty(launches) -> None:
        calls.append(1)
        if len(calls) == 21:
            raise MemoryError("no more")
        launch(launches)

    monkeypatch.setattr(paper, "launch", faulty)
    with pytest.raises(MemoryError, match="no more"):
        optimise(task, x, replace(COLD, steps=10**9), threads=3)


# Where it starts.


@pytest.mark.parametrize("name", hand_names())
def test_hands_start_around_the_object_and_face_it(name):
    """The palm's axis meets the inflated hull after 0.2 to 0.3 m, within 30 degrees of its middle."""
    mug, s, N = load_object("mug", rescale=True, voxels=40_000), Paper(), 48
    model = hand(name).model
    q = np.tile(model.open_pose, (N, 1))
    x = paper.starts(hand(name), mug, q, np.ones_like(q, dtype=bool), np.random.default_rng(0), s)
    p_OH, R_OH, joints = unpacked(x)
    np.testing.assert_allclose(R_OH @ R_OH.swapaxes(1, 2), np.broadcast_to(np.eye(3), R_OH.shape), atol=1e-12)
    np.testing.assert_allclose(x[:, 3:6], R_OH[:, :, 0], atol=1e-12)
    np.testing.assert_allclose(x[:, 6:9], R_OH[:, :, 1], atol=1e-12)
    z_H, centre_H = palm_facing(hand(name))
    axis, eye = apply(R_OH, z_H), p_OH + apply(R_OH, centre_H)
    hits = MeshDistance(*mug.inflated_hull(s.hull_m)).first_hits(eye, axis)
    assert np.all((hits.distances > 0.2 - 1e-5) & (hits.distances < 0.3 + 1e-5))
    assert np.all(np.sum(hits.normals * axis, axis=1) < 0)
    place = eye + hits.distances[:, None] * axis
    towards = mug.hull_vertices.mean(axis=0) - place
    angle = np.arccos(np.sum(towards * axis, axis=1) / np.linalg.norm(towards, axis=1))
    assert np.rad2deg(angle.max()) < 30.01
    assert np.rad2deg(angle.max()) > 20
    # All around: no side is left out.
    assert np.linalg.norm((towards / np.linalg.norm(towards, axis=1, keepdims=True)).mean(axis=0)) < 0.3
    assert np.all((joints >= model.lower) & (joints <= model.upper))
    assert np.all(np.abs(joints - q) <= 2 * s.spread * (model.upper - model.lower) + 1e-12)
    assert np.all(joints.std(axis=0) > 0.03 * (model.upper - model.lower))


@pytest.mark.parametrize("name", hand_names())
def test_the_palm_is_what_faces_the_object(name):
    """The axis points away from the base's middle, to where open fingers do not cover it."""
    z_H, centre_H = palm_facing(hand(name))
    assert np.linalg.norm(z_H) == pytest.approx(1)
    poses = hand(name).poses(hand(name).model.open_pose)
    skin = hand(name).skin
    points = poses.points(skin.body, skin.p_B)
    # Fingertips bend towards where the palm looks.
    low, high = hand(name).model.open_pose, hand(name).model.upper
    bent = hand(name).poses(low + 0.5 * (high - low)).points(skin.body, skin.p_B)
    assert np.mean((bent - points) @ z_H) > 0
    assert np.linalg.norm(centre_H - points.mean(axis=0)) < 0.1


def test_held_joints_are_not_spread():
    rng = np.random.default_rng(1)
    mug, model = load_object("mug", rescale=True, voxels=40_000), hand("allegro").model
    q = rng.uniform(model.lower, model.upper, (16, 16))
    free = rng.random((16, 16)) < 0.5
    x = paper.starts(hand("allegro"), mug, q, free, rng, Paper())
    np.testing.assert_array_equal(x[:, 9:][~free], q[~free])
    assert np.mean(x[:, 9:][free] != q[free]) > 0.9


def test_starts_are_spun_at_random():
    """About the axis of approach every direction is as likely."""
    mug, model = load_object("mug", rescale=True, voxels=40_000), hand("allegro").model
    q = np.tile(model.open_pose, (400, 1))
    x = paper.starts(hand("allegro"), mug, q, np.zeros_like(q, dtype=bool), np.random.default_rng(0), Paper())
    R_OH = unpacked(x)[1]
    z_H = palm_facing(hand("allegro"))[0]
    side_H = np.cross(z_H, np.eye(3)[np.argmin(np.abs(z_H))])
    axis, side = apply(R_OH, z_H), apply(R_OH, side_H / np.linalg.norm(side_H))
    level = np.cross(axis, [0, 0, 1.0])
    up = np.cross(level, axis)
    turn = np.arctan2(np.sum(side * up, axis=1), np.sum(side * level, axis=1))
    counts = np.histogram(turn, bins=8, range=(-np.pi, np.pi))[0]
    assert np.sum((counts - 50) ** 2 / 50) < 30  # 7 degrees of freedom: p = 1e-4.
