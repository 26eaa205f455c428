"""Energy and gradient of the kernels against the float64 reference, and the reference against calculus.

The energy has kinks (cells of a grid, faces of a shape, a surface passed, a limit) and, at folds of a field,
normals that turn fast. There float32 cannot tell on which side it is: the last digit of the state decides.
Gradients agree within TOLERANCE or, in a few states that are counted and limited, within what the reference
itself changes by when it runs in float32 or the state moves by 1e-7 (m, rad).
"""

from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from fistful.geometry.pose import apply, rotation_from_quaternion
from fistful.geometry.primitives import signed_distance
from fistful.hands import Hand, hand_names, load_hand
from fistful.objects import load_object
from fistful.synthesis import reference
from fistful.synthesis.contact_set import contact_sets
from fistful.synthesis.core import Batch, Core
from fistful.synthesis.structs import BatchData
from fistful.synthesis.tables import HandTables, ObjectTables
from fistful.synthesis.weights import TERMS, Weights

GRIPPER = Path(__file__).resolve().parents[1] / "examples" / "gripper.urdf"
TOLERANCE = 1e-4
"""Of the largest component of a gradient, or of an energy."""
HANDS = (*hand_names(), "gripper", "odd")
"""The gripper slides, one motor for two fingers; the odd hand has every kind of joint and coupling."""
SEQUENCE = ("cube", "banana", "mug")
KINDS = ("near", "deep", "far")
EACH = 8

torch.set_num_threads(1)
ALL = Weights(hop=17, hho=7, ohp=11, friction=13, mu=0.6)
NONE = replace(Weights(**{field.name: 0.0 for field in fields(Weights)}), turning=1.0)


class States(NamedTuple):
    """Arrays of a batch, as `Batch.write` takes them."""

    x: np.ndarray
    mask: np.ndarray
    contact: np.ndarray
    p_HO: np.ndarray
    R_HO: np.ndarray

    def take(self, rows) -> "States":
        return States(*(array[rows] for array in self))


class Result(NamedTuple):
    energy: np.ndarray
    terms: np.ndarray
    gradient: np.ndarray


@cache
def hand(name: str) -> Hand:
    return load_hand({"gripper": GRIPPER, "odd": "shadow"}.get(name, name))


@cache
def hand_tables(name: str, pairs: int = 1) -> HandTables:
    tables = HandTables.of(hand(name), contact_sets(hand(name), pairs), skin_points=300)
    return odd(tables) if name == "odd" else tables


def odd(tables: HandTables) -> HandTables:
    """The same tree with slides among the hinges, anchors, reference values and couplings."""
    rng = np.random.default_rng(5)
    J, K = len(tables.zero), len(tables.lower)
    return replace(
        tables,
        slides=(rng.random(J) < 0.3).astype(int),
        anchor_B=rng.uniform(-0.01, 0.01, (J, 3)),
        zero=rng.uniform(-0.1, 0.1, J),
        driver=rng.integers(-1, K, J),
        factor=rng.uniform(-1.5, 1.5, J) * 0.2,
        offset=rng.uniform(-0.1, 0.1, J),
    )


@cache
def object_tables(held: int) -> ObjectTables:
    things = [load_object(name, rescale=True, voxels=40_000) for name in SEQUENCE[2 - held :]]
    return ObjectTables.of(things, points=200)


@cache
def core(name: str, held: int) -> Core:
    return Core(hand_tables(name), object_tables(held), device="cpu")


def states(name: str, held: int, kind: str, count: int = EACH, seed: int = 0) -> States:
    """Random grasps: palm within centimetres of the target; a link in the middle of it; far outside its grid.

    Held objects sit at links of the hand, half of them right on one, so that fingers are inside.
    """
    rng = np.random.default_rng([seed, held, KINDS.index(kind)])
    tables, objects, model = hand_tables(name), object_tables(held), hand(name).model
    K, width = len(model.lower), model.upper - model.lower
    q = rng.uniform(model.lower - 0.1 * width, model.upper + 0.1 * width, (count, K))
    rotation = rng.normal(size=(count, 6))
    row, links = np.arange(count), rng.integers(len(tables.parent), size=(held + 1, count))
    p_HB = hand(name).poses(q).p_HB
    place = {
        "near": lambda: rng.normal(size=(count, 3)) * 0.04,
        "deep": lambda: objects.centre[-1] + rng.normal(size=(count, 3)) * 0.005,
        "far": lambda: rng.normal(size=(count, 3)) * 0.5,
    }[kind]()
    if kind == "deep":
        columns = reference.base_pose(torch.tensor(np.c_[place, rotation])).R[:, 0].numpy()
        place -= apply(columns, p_HB[row, links[0]])
    surface = tables.set_surface[rng.integers(len(tables.set_surface), size=count)]
    spread = rng.choice([0.0, 0.04], (count, held, 1))
    return States(
        x=np.c_[place, rotation, q].astype(np.float32),
        mask=rng.integers(0, 2, (count, K)).astype(np.float32),
        contact=rng.integers(tables.surface_start[surface], tables.surface_start[surface + 1]),
        p_HO=(p_HB[row, links[1:]].swapaxes(0, 1) + spread * rng.normal(size=(count, held, 3))).astype("f4"),
        R_HO=rotation_from_quaternion(rng.normal(size=(count, held, 4))).astype(np.float32),
    )


def all_kinds(name: str, held: int) -> States:
    return States(*map(np.concatenate, zip(*(states(name, held, kind) for kind in KINDS), strict=True)))


def by_kernels(core: Core, some: States, weights: Weights, margin: float = 0.0) -> Result:
    batch = core.batch(len(some.x), margin=margin)
    batch.write(**some._asdict())
    batch.evaluate(weights)
    return result(batch)


def result(batch: Batch) -> Result:
    return Result(*(batch.read(name) for name in Result._fields))


@cache
def hand_tensors(name: str, dtype: torch.dtype = torch.float64):
    return reference.tensors(hand_tables(name), dtype)


@cache
def object_tensors(held: int, dtype: torch.dtype = torch.float64):
    return reference.tensors(object_tables(held), dtype)


def by_reference(
    name: str, held: int, some: States, weights: Weights, dtype: torch.dtype = torch.float64
) -> Result:
    state = reference.State(
        *(torch.tensor(v, dtype=torch.int64 if v is some.contact else dtype) for v in some)
    )
    state.x.requires_grad_()
    E, terms = reference.energy(hand_tensors(name, dtype), object_tensors(held, dtype), state, weights)
    (gradient,) = torch.autograd.grad(E.sum(), state.x)
    return Result(E.detach().numpy(), terms.detach().numpy(), gradient.numpy())


def gradient_error(gradient: np.ndarray, expected: np.ndarray, weights: Weights) -> np.ndarray:
    """Largest difference over the largest component, or over a tenth of the weights if that is larger."""
    least = 0.1 * term_weights(weights).max()
    return np.abs(gradient - expected).max(axis=1) / np.maximum(np.abs(expected).max(axis=1), least)


def assert_agree(name: str, held: int, some: States, weights: Weights, doubtful: int = 1) -> np.ndarray:
    """Energies and gradients agree; at most `doubtful` states may be too sensitive. Errors of the others."""
    found, expected = by_kernels(core(name, held), some, weights), by_reference(name, held, some, weights)
    np.testing.assert_allclose(found.terms @ term_weights(weights), found.energy, rtol=1e-6)
    unsure = 1e-6 + 1e-7 * np.abs(expected.gradient).max(axis=1)
    assert np.all(np.abs(found.energy - expected.energy) < TOLERANCE * expected.energy + unsure)
    error = gradient_error(found.gradient, expected.gradient, weights)
    sensitive = np.flatnonzero(error > TOLERANCE)
    assert len(sensitive) <= doubtful, error
    for i in sensitive:
        copies = some.take(np.full(32, i))
        around = copies.x + np.random.default_rng(1).uniform(-1e-7, 1e-7, copies.x.shape)
        moved = by_reference(name, held, copies._replace(x=around), weights)
        coarse = by_reference(name, held, some.take([i]), weights, torch.float32)
        gradients = np.concatenate([moved.gradient, coarse.gradient])
        assert error[i] < 2 * gradient_error(gradients, expected.gradient[[i] * 33], weights).max()
    return np.delete(error, sensitive)


def term_weights(weights: Weights) -> np.ndarray:
    return np.array([getattr(weights, name) for name in TERMS])


@pytest.mark.parametrize("held", (0, 1, 2))
@pytest.mark.parametrize("name", HANDS)
def test_kernels_agree_with_the_reference(name, held, figure):
    errors = np.concatenate([assert_agree(name, held, states(name, held, kind), ALL) for kind in KINDS])
    left = EACH * len(KINDS) - len(errors)
    comment = f"(median {np.median(errors):.1e}; {left} of {EACH * len(KINDS)} states too sensitive to say)"
    figure(f"largest gradient error, float32 against float64, {name}, {held} held", errors.max(), comment)


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("name", HANDS)
def test_each_term_alone(name, term):
    some = all_kinds(name, 2)
    weights = replace(NONE, mu=0.6, **{term: 3.0})
    assert_agree(name, 2, some, weights)
    column = by_kernels(core(name, 2), some, weights).terms[:, TERMS.index(term)]
    # A gripper that opens and closes meets itself in no state; everything else happens in some.
    assert (column > 1e-4).any() or (name, term) == ("gripper", "hsp")


@pytest.mark.parametrize("name", ("allegro", "shadow"))
def test_several_pairs_of_contacts(name):
    tables = hand_tables(name, 2)
    some = states(name, 1, "near")
    rng = np.random.default_rng(3)
    surface = tables.set_surface[rng.integers(len(tables.set_surface), size=EACH)]
    some = some._replace(
        contact=rng.integers(tables.surface_start[surface], tables.surface_start[surface + 1])
    )
    assert some.contact.shape == (EACH, 4)
    found = by_kernels(Core(tables, object_tables(1)), some, ALL)
    expected = by_reference(name, 1, some, ALL)
    np.testing.assert_allclose(found.energy, expected.energy, rtol=TOLERANCE)
    assert gradient_error(found.gradient, expected.gradient, ALL).max() < TOLERANCE


@pytest.mark.parametrize("name", HANDS)
def test_the_gradient_is_the_derivative(name, figure):
    """Autograd against central differences in float64, but where forward and backward ones differ: a kink."""
    step, held, count, left = 3e-8, 2, 2, []
    for kind in KINDS:
        some = states(name, held, kind, count)
        D = some.x.shape[1]
        exact = by_reference(name, held, some, ALL)
        copies = some.take(np.repeat(np.arange(count), 2 * D))
        moved = np.kron(np.ones((count, 1)), step * np.r_[np.eye(D), -np.eye(D)])
        E = by_reference(name, held, copies._replace(x=copies.x + moved), ALL).energy.reshape(count, 2, D)
        forward, backward = (E[:, 0] - exact.energy[:, None]) / step, (exact.energy[:, None] - E[:, 1]) / step
        scale = np.abs(exact.gradient).max(axis=1, keepdims=True)
        kink = np.abs(forward - backward) > 1e-3 * scale
        error = np.abs((forward + backward) / 2 - exact.gradient) / scale
        assert kink.mean() < 0.05
        assert error[~kink].max() < 1e-5
        left.append(kink.mean())
    figure(f"derivatives left out at a kink, {name}", 100 * np.mean(left), "%")


def swollen(ball: np.ndarray) -> np.ndarray:
    """The same balls, 100 m wide."""
    return np.column_stack([ball[:, :3], np.full(len(ball), 100.0)])


@pytest.mark.parametrize("name", HANDS)
def test_culling_changes_no_digit(name):
    """Balls so large that no group, shape or body is ever skipped give the same result bit for bit.

    So do longer lists of neighbours.
    """
    some, tables, objects = all_kinds(name, 2), hand_tables(name), object_tables(2)
    huge = {
        field: np.full_like(getattr(tables, field), 100.0) for field in ("ball", "body_radius", "pair_reach")
    }
    dense = Core(
        replace(tables, node_ball=swollen(tables.node_ball), **huge),
        replace(objects, node_ball=swollen(objects.node_ball), bound=np.full_like(objects.bound, -128)),
    )
    full = by_kernels(dense, some, ALL)
    for margin in (0.0, 0.005):
        for i, culled in enumerate(by_kernels(core(name, 2), some, ALL, margin)):
            np.testing.assert_array_equal(culled, full[i])


def moved(some: States, seed: int, name: str, size: float) -> States:
    """The same grasps, moved by up to about `size`, m, most of them by less: the hand, a joint, or both."""
    rng = np.random.default_rng(seed)
    N, D = some.x.shape
    model, which = hand(name).model, rng.integers(3, size=(N, 1))
    size = size * rng.uniform(size=(N, 1)) ** 3
    by_hand = np.where(np.arange(D) < 3, size, 10 * size) * (np.arange(D) < 9)
    by_joint = 20 * size * np.eye(D - 9)[rng.integers(D - 9, size=N)] @ np.eye(D - 9, D, 9)
    by_joint[:, 9:] *= np.minimum(model.upper - model.lower, 1)
    step = np.choose(which, (by_hand, by_joint, by_hand + by_joint))
    return some._replace(x=(some.x + step * rng.choice([-1, 1], (N, D))).astype(np.float32))


def skin_points(name: str, batch: Batch) -> np.ndarray:
    """(N, P, 3) float64. Where the skin points of the hand are."""
    tables = hand_tables(name)
    body = np.repeat(tables.geom_body, np.diff(tables.tree_point))
    p_OB, R_OB = (batch.read(array).astype(float)[:, body] for array in ("p_OB", "R_OB"))
    return p_OB + np.einsum("npij,pj->npi", R_OB, tables.points)


@pytest.mark.parametrize("margin", (0.002, 0.02))
@pytest.mark.parametrize("name", HANDS)
def test_neighbours_change_no_digit(name, margin):
    """Lists kept over many small moves give what fresh ones do; no point strays from its place unnoticed."""
    some, kept = all_kinds(name, 2), []
    batch = core(name, 2).batch(len(some.x), margin=margin)
    batch.write(**some._asdict())
    batch.evaluate(ALL)
    listed_at = skin_points(name, batch)
    for seed in range(12):
        now = moved(some, seed, name, 1.5 * margin)
        batch.write(x=now.x)
        batch.evaluate(ALL)
        for found, fresh in zip(result(batch), by_kernels(core(name, 2), now, ALL), strict=True):
            np.testing.assert_array_equal(found, fresh)
        stale, places = batch.read("stale") == 1, skin_points(name, batch)
        farthest = np.linalg.norm(places - listed_at, axis=2).max(axis=1)
        assert np.all(stale[farthest > margin])
        assert not np.any(stale[farthest < margin / 4])
        listed_at[stale] = places[stale]
        kept.append(~stale)
    assert 0.2 < np.mean(kept) < 0.95


def test_neighbours_of_another_place_would_be_noticed():
    """The tests above can fail: lists of where the hand was, said to be of where it is, miss overlaps."""
    some = all_kinds("allegro", 2)
    there = some._replace(x=some.x + np.where(np.arange(some.x.shape[1]) < 3, 0.01, 0).astype(np.float32))
    place, batch = (core("allegro", 2).batch(len(some.x), margin=1e-3) for _ in range(2))
    for one, states in ((place, there), (batch, some)):
        one.write(**states._asdict())
        one.evaluate(ALL)
    batch.write(x=there.x, listed_centre=place.read("centre"), listed_R=place.read("R_OB"))
    batch.evaluate(ALL)
    assert np.all(batch.read("stale") == 0)
    hop = TERMS.index("hop")
    missed = result(place).terms[:, hop] - result(batch).terms[:, hop]
    assert np.all(missed >= 0)
    assert np.any(missed > 1e-3)


@pytest.mark.parametrize("name", ("allegro", "odd"))
def test_a_result_depends_on_its_own_grasp_only(name):
    """Again, in two halves, in another order, and with a thread a body as on a GPU: the same bits."""
    some = all_kinds(name, 2)
    n = len(some.x)
    whole, again = (by_kernels(core(name, 2), some, ALL) for _ in range(2))
    order = np.random.default_rng(0).permutation(n)
    shuffled = by_kernels(core(name, 2), some.take(order), ALL)
    halves = [by_kernels(core(name, 2), some.take(part), ALL) for part in (slice(n // 2), slice(n // 2, n))]
    spread = Core(hand_tables(name), object_tables(2))
    spread.lanes = spread.bodies + spread.target + 1
    threads = by_kernels(spread, some, ALL)
    for i, expected in enumerate(whole):
        np.testing.assert_array_equal(again[i], expected)
        np.testing.assert_array_equal(threads[i], expected)
        np.testing.assert_array_equal(shuffled[i], expected[order])
        np.testing.assert_array_equal(np.concatenate([half[i] for half in halves]), expected)


def test_inactive_grasps_are_left_alone():
    some = all_kinds("allegro", 2)
    expected = by_kernels(core("allegro", 2), some, ALL)
    batch = core("allegro", 2).batch(len(some.x))
    active = np.arange(len(some.x)) % 3 != 0
    batch.write(active=active, **some._asdict())
    given = (*States._fields, "surface", "active", "w_hop", "margin")
    written = [array for array in BatchData.vars if array not in given]
    for array in written:
        getattr(batch.data, array).fill_(7)
    before = {array: batch.read(array) for array in written}
    batch.evaluate(ALL)
    for array, old in before.items():
        np.testing.assert_array_equal(batch.read(array)[~active], old[~active], err_msg=array)
    for new, full in zip(result(batch), expected, strict=True):
        np.testing.assert_array_equal(new[active], full[active])


# The reference by itself.


@pytest.mark.parametrize("name", [name for name in HANDS if name != "odd"])
def test_reference_places_bodies_as_the_hand_does(name):
    some = states(name, 0, "near")
    x = torch.tensor(some.x, dtype=torch.float64)
    base, bodies = reference.base_pose(x), reference.body_poses(hand_tensors(name), x)
    poses = hand(name).poses(x[:, 9:].numpy())
    p_OB = base.points(0, torch.tensor(poses.p_HB))
    torch.testing.assert_close(bodies.p, p_OB, rtol=0, atol=1e-12)
    torch.testing.assert_close(bodies.R, base.R @ torch.tensor(poses.R_HB), rtol=0, atol=1e-12)


def test_reference_reads_the_field_as_the_object_does():
    """In the box of the grid up to the fading of normals, outside of it up to what that changes there."""
    mug = load_object("mug", rescale=True, voxels=40_000)
    points = np.random.default_rng(0).normal(size=(500, 3)) * 0.06
    values, gradients = mug.sdf.query(points)
    d, n = reference.near(object_tensors(0), 0, torch.tensor(points))
    inside = np.all(np.abs(points - np.clip(points, mug.sdf.origin, mug.sdf.upper)) == 0, axis=1)
    assert 0.2 < inside.mean() < 0.8
    np.testing.assert_allclose(d[inside], values[inside], rtol=0, atol=1e-9)
    length = np.linalg.norm(gradients[inside], axis=1, keepdims=True)
    faded = gradients[inside] / np.hypot(length, reference.FOLD)
    np.testing.assert_allclose(n[inside], faded, rtol=0, atol=1e-9)
    np.testing.assert_allclose(d[~inside], values[~inside], rtol=5e-3)
    assert np.median(np.sum(n[~inside].numpy() * gradients[~inside], axis=1)) > 0.99999
    np.testing.assert_allclose(
        reference.depth(object_tensors(0), 0, torch.tensor(points)), np.maximum(-values, 0), atol=1e-9
    )


@pytest.mark.parametrize("name", ("leap", "shadow", "human"))
def test_reference_measures_shapes_as_geometry_does(name):
    tables = hand_tensors(name)
    order = np.argsort(hand(name).model.geom_body, kind="stable")
    points = np.random.default_rng(0).uniform(-0.04, 0.04, (200, 3))
    for g, geom in enumerate(order):
        primitive = hand(name).model.geoms[geom].primitive
        found = reference.shape_distance(tables, g, torch.tensor(points))
        np.testing.assert_allclose(found, signed_distance(primitive.kind, primitive.size, points), atol=1e-12)


def vectors(*rows) -> torch.Tensor:
    return torch.tensor([rows], dtype=torch.float64)


def test_force_closure_by_hand():
    """Two normals on one line cancel; side by side they leave a torque; along one direction they add up."""
    centre, size = torch.tensor([0.01, 0.02, 0.03], dtype=torch.float64), torch.tensor(0.05)
    apart = vectors([0.04, 0, 0], [-0.04, 0, 0]) + centre
    beside = vectors([0, 0.02, 0], [0, -0.02, 0]) + centre
    opposed, along = vectors([1, 0, 0], [-1, 0, 0]), vectors([1, 0, 0], [1, 0, 0])
    assert reference.e_fc(apart, opposed, centre, size) == pytest.approx(0)
    assert reference.e_fc(beside, opposed, centre, size) == pytest.approx((0.04 / 0.05) ** 2)
    assert reference.e_fc(beside, along, centre, size) == pytest.approx(4)


def test_friction_by_hand():
    """Contacts that face each other cost nothing; those with normals across the line, the cone's cosine."""
    x = vectors([0.03, 0, 0], [-0.03, 0, 0])
    assert reference.e_friction(x, vectors([1, 0, 0], [-1, 0, 0]), 1.0) == 0
    assert reference.e_friction(x, vectors([0, 1, 0], [0, 1, 0]), 1.0) == pytest.approx(2 * 0.5**0.5)
    assert reference.e_friction(x, vectors([-1, 0, 0], [1, 0, 0]), 0.0) == pytest.approx(4)


def test_distance_and_penetration_by_hand():
    """A point 3 mm under the top of a cube and one 5 mm above it."""
    cube = load_object("cube", rescale=True)
    objects = reference.tensors(ObjectTables.of([cube]))
    top = cube.vertices.max(axis=0)[2]
    points = vectors([0, 0, top - 0.003], [0, 0, top + 0.005])
    d, n = reference.near(objects, 0, points)
    assert reference.e_dis(d) == pytest.approx(0.008, abs=1e-5)
    assert reference.e_hop(objects, 0, points) == pytest.approx(0.003, abs=1e-5)
    torch.testing.assert_close(n[0, 1], vectors([0, 0, 1])[0, 0], rtol=0, atol=2e-3)


def test_joint_limits_by_hand():
    tables = hand_tensors("allegro")
    theta = torch.stack([tables.upper + 0.1, tables.lower - 0.2, (tables.lower + tables.upper) / 2])
    assert reference.e_joint(tables, theta).tolist() == pytest.approx([1.6, 3.2, 0])
