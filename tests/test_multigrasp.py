"""Simultaneous grasps: clusters on a table, the summed energy, the optimiser's rule, and the record."""

from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
import torch
from scipy.spatial import ConvexHull

from fistful.errors import PlanError
from fistful.geometry.mesh_distance import MeshDistance
from fistful.geometry.pose import apply, rotation_from_quaternion
from fistful.hands.facing import palm_facing
from fistful.objects import Object, load_object
from fistful.synthesis import reference
from fistful.synthesis.clusters import Clusters, overlaps, rests, sample_clusters
from fistful.synthesis.core import Core
from fistful.synthesis.langevin import ClusterEnergy, Langevin, cluster_cores, contact_areas, optimise
from fistful.synthesis.multigrasp import CONTACTS, MultiGrasp, MultiGrasps, multigrasp, starts
from fistful.synthesis.stage import contact_points, unpacked
from fistful.synthesis.tables import ObjectTables
from fistful.synthesis.targets import contact_jacobian
from fistful.synthesis.task import Solution
from fistful.synthesis.weights import Weights
from test_energy import TOLERANCE, gradient_error, hand, hand_tables

NAMES = ("cube", "pear", "mug")
SHORT = Langevin(steps=60, refine_steps=30)
GRASPS = 10


@cache
def thing(name: str) -> Object:
    return load_object(name, rescale=True, voxels=40_000)


def things(count: int) -> list[Object]:
    return [thing(name) for name in NAMES[:count]]


@cache
def clusters(count: int, number: int = GRASPS) -> Clusters:
    return sample_clusters(things(count), number, 0.0375, np.random.default_rng(0))


@cache
def cores(name: str, count: int) -> tuple[Core, ...]:
    return cluster_cores(hand_tables(name), things(count), CONTACTS)


@cache
def grasps(name: str, count: int, threads: int = 1, refine_steps: int = 30) -> MultiGrasps:
    settings = MultiGrasp(langevin=replace(SHORT, refine_steps=refine_steps), skin_points=300)
    return multigrasp(hand(name), things(count), count=GRASPS, seed=5, settings=settings, threads=threads)


# Clusters.


@pytest.mark.parametrize("name", (*NAMES, "ball", "hammer", "torus"))
def test_an_object_rests_where_it_does_not_tip(name):
    """The centre of mass is above the polygon of what touches the table."""
    item, ways = thing(name), rests(thing(name))
    np.testing.assert_allclose(ways.R_WO @ np.swapaxes(ways.R_WO, 1, 2) - np.eye(3), 0, atol=1e-9)
    np.testing.assert_allclose(np.linalg.det(ways.R_WO), 1)
    assert ways.weight.sum() == pytest.approx(1) and np.all(ways.weight > 0)
    for R, z in zip(ways.R_WO[:40], ways.z_WO, strict=False):
        p = item.vertices @ R.T + [0, 0, z]
        assert p[:, 2].min() == pytest.approx(0, abs=1e-9)
        support = ConvexHull(p[p[:, 2] < 1e-6, :2])
        com = (R @ item.mass_properties.com_O)[:2]
        assert np.all(support.equations[:, :2] @ com + support.equations[:, 2] < 1e-7)


def test_a_cube_has_six_rests_and_each_is_as_likely():
    np.testing.assert_allclose(rests(thing("cube")).weight, np.full(6, 1 / 6))


@pytest.mark.parametrize("count", (1, 2, 3))
def test_clusters_lie_on_the_table_and_apart(count):
    found, items = clusters(count), things(count)
    assert found.p_WO.shape == (GRASPS, count, 3) and found.R_WO.shape == (GRASPS, count, 3, 3)
    for k, item in enumerate(items):
        p = found.p_WO[:, k, None] + apply(found.R_WO[:, k, None], item.vertices)
        np.testing.assert_allclose(p[..., 2].min(axis=1), 0, atol=1e-9)
        com = found.p_WO[:, k] + apply(found.R_WO[:, k], item.mass_properties.com_O)
        assert np.all(np.abs(com[:, :2]) <= found.half_m[:, None])
        for m, other in enumerate(items):
            if m != k:
                p_O = apply(np.swapaxes(found.R_WO[:, m], 1, 2)[:, None], p - found.p_WO[:, m, None])
                inside = MeshDistance(other.vertices, other.faces).query(p_O.reshape(-1, 3)).values
                assert inside.min() > -1e-6
    assert len(np.unique(found.p_WO[:, 0, 0])) == GRASPS
    assert np.all(overlaps(items, found.p_WO, found.R_WO) == 0)


def test_overlaps_see_two_objects_in_one_place():
    items = [thing("cube"), thing("cube")]
    p = np.array([[[0, 0, 0], [0.05, 0, 0]], [[0, 0, 0], [0.07, 0, 0]]])
    depth = overlaps(items, p, np.tile(np.eye(3), (2, 2, 1, 1)))
    np.testing.assert_allclose(depth, [0.01, 0], atol=1e-6)


def test_the_square_is_widened_only_where_it_has_to_be():
    assert np.all(clusters(1).half_m == 0.0375)
    assert np.all(clusters(3).half_m >= 0.0375) and clusters(3).half_m.max() < 3.2 * 0.0375


def test_objects_that_never_fit_are_refused():
    with pytest.raises(PlanError, match="cube 60 mm, mug 100 mm are too large"):
        sample_clusters([thing("cube"), thing("mug")], 1, 0.002, np.random.default_rng(0))


# The energy.


def scene(name: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Hands in the middle of the clusters, with any contacts."""
    rng, model = np.random.default_rng(2), hand(name).model
    q = rng.uniform(model.lower - 0.05, model.upper + 0.05, (GRASPS, len(model.lower)))
    R = rotation_from_quaternion(rng.normal(size=(GRASPS, 4)))
    x = np.c_[rng.normal(size=(GRASPS, 3)) * 0.05, R[:, :, 0], R[:, :, 1] + 0.3 * R[:, :, 0], q]
    candidates = len(hand_tables(name).candidate_body)
    return x.astype(np.float32), rng.integers(candidates, size=(GRASPS, count, CONTACTS))


def by_reference(name: str, count: int, x: np.ndarray, contact: np.ndarray, weights: Weights):
    """Energy and gradient, in float64, of the hand moved into the frame of each object by autograd."""
    tables, placed = reference.tensors(hand_tables(name)), clusters(count)
    state = torch.tensor(x.astype(float), requires_grad=True)
    total = torch.zeros(len(x), dtype=torch.float64)
    none = torch.zeros((len(x), 0, 3)), torch.zeros((len(x), 0, 3, 3))
    for k, item in enumerate(things(count)):
        R_OW = torch.tensor(placed.R_WO[:, k].astype("f4").astype(float)).mT
        p_WO = torch.tensor(placed.p_WO[:, k].astype("f4").astype(float))
        parts = state[:, :3] - p_WO, state[:, 3:6], state[:, 6:9]
        x_O = torch.cat([*((R_OW @ v[..., None])[..., 0] for v in parts), state[:, 9:]], dim=1)
        some = reference.State(x_O, torch.ones_like(x_O[:, 9:]), torch.tensor(contact[:, k]), *none)
        own = weights if k == 0 else replace(weights, hsp=0.0, joint=0.0)
        total = total + reference.energy(tables, reference.tensors(ObjectTables.of([item])), some, own)[0]
    (gradient,) = torch.autograd.grad(total.sum(), state)
    return total.detach().numpy(), gradient.numpy()


@pytest.mark.parametrize("name", ("allegro", "shadow"))
@pytest.mark.parametrize("count", (1, 3))
def test_the_summed_gradient_is_that_of_the_sum(name, count):
    weights = Langevin().weights
    x, contact = scene(name, count)
    energy = ClusterEnergy(cores(name, count), clusters(count), weights)
    energy.write(x, contact)
    found, gradient, terms = energy.evaluate()
    expected, derivative = by_reference(name, count, x, contact, weights)
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE)
    # Kinks: float32 can not tell on which side it is; see test_energy.
    assert np.sum(gradient_error(gradient, derivative, weights) > TOLERANCE) <= 1
    once = 10 * terms[:, 0, 3] + 10 * terms[:, 0, 4]
    each = terms[:, :, 0] + 10 * (terms[:, :, 1] + terms[:, :, 2] + terms[:, :, 7])
    np.testing.assert_allclose(once + each.sum(axis=1), found, rtol=1e-5)
    assert terms[:, 0, 3].max() > 0 and terms[:, :, 2].max() > 0
    for shared in (3, 4):
        assert np.all(terms[:, :, shared] == terms[:, :1, shared])


def test_the_gradient_is_what_the_energy_falls_by():
    """Central differences of the kernels' own sum along the gradient, as far as float32 and kinks allow."""
    x, contact = scene("allegro", 3)
    energy = ClusterEnergy(cores("allegro", 3), clusters(3), Langevin().weights)
    energy.write(x, contact)
    gradient = energy.evaluate()[1].astype(float)
    way = gradient / np.linalg.norm(gradient, axis=1, keepdims=True)
    step, sides = 2e-4, []
    for sign in (1, -1):
        energy.write(x + sign * step * way, contact)
        sides.append(energy.evaluate()[0])
    slope = (sides[0] - sides[1]) / (2 * step)
    assert np.median(np.abs(slope / np.linalg.norm(gradient, axis=1) - 1)) < 0.03


# The optimiser.


def run(settings: Langevin, threads: int = 1) -> Solution:
    x, contact = scene("allegro", 2)
    return optimise(cores("allegro", 2), clusters(2), x, contact, seed=3, settings=settings, threads=threads)


def energies(found: Solution) -> tuple[np.ndarray, np.ndarray]:
    energy = ClusterEnergy(cores("allegro", 2), clusters(2), Langevin().weights)
    energy.write(found.x, found.contact)
    return energy.evaluate()[:2]


HOT = Langevin(
    steps=1, refine_steps=0, temperature=1e9, switch_probability=0.0, slide_probability=0.0, noise=0.0
)


def test_a_step_follows_the_formula():
    x, contact = scene("allegro", 2)
    g = energies(Solution(x, contact))[1]
    found = run(HOT)
    expected = x - 0.01 * g / (np.sqrt(0.98 * np.mean(g**2, axis=0)) + 1e-6)
    np.testing.assert_allclose(found.x, expected, atol=1e-5)
    np.testing.assert_array_equal(found.contact, contact.reshape(GRASPS, -1))


def test_noise_is_normal_and_scales_with_the_step():
    quiet, loud = run(HOT).x, run(replace(HOT, noise=0.5)).x
    noise = (loud - quiet) / (0.01 * 0.5)
    assert abs(noise.mean()) < 0.2 and noise.std() == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("name", ("allegro", "human"))
def test_contact_areas_are_surfaces_on_bodies(name):
    tables, areas = hand_tables(name), contact_areas(hand_tables(name))
    np.testing.assert_array_equal(np.sort(areas.member), np.arange(len(tables.candidate_body)))
    surface = np.searchsorted(tables.surface_start, np.arange(len(areas.area)), side="right") - 1
    seen = set()
    for a, (first, end) in enumerate(zip(areas.start[:-1], areas.start[1:], strict=True)):
        own = areas.member[first:end]
        assert np.all(areas.area[own] == a)
        (one,) = {*zip(surface[own].tolist(), tables.candidate_body[own].tolist(), strict=True)}
        seen.add(one)
    assert len(seen) == len(areas.start) - 1


def test_one_contact_changes_at_a_time():
    contact, areas = scene("allegro", 2)[1].reshape(GRASPS, -1), contact_areas(hand_tables("allegro"))
    switched = run(replace(HOT, switch_probability=1.0)).contact
    assert np.all(np.sum(switched != contact, axis=1) <= 1)
    assert np.any(areas.area[switched] != areas.area[contact])
    still = replace(HOT, steps=300, step_size=1e-9)
    slid = run(replace(still, slide_probability=0.5)).contact
    np.testing.assert_array_equal(areas.area[slid], areas.area[contact])
    assert np.mean(slid != contact) > 0.8
    quarter = run(replace(still, switch_probability=0.25)).contact
    assert np.mean(areas.area[quarter] != areas.area[contact]) > 0.8


def test_a_cold_chain_only_goes_down():
    before = energies(Solution(*scene("allegro", 2)))[0]
    after = energies(run(replace(SHORT, temperature=1e-9, refine_steps=0)))[0]
    assert np.all(after <= before) and np.median(after) < 0.9 * np.median(before)


def test_refining_keeps_the_best():
    before = energies(run(replace(SHORT, refine_steps=0)))[0]
    after = energies(run(SHORT))[0]
    assert np.all(after <= before) and np.median(after) < np.median(before)
    np.testing.assert_array_equal(run(SHORT).contact, run(replace(SHORT, refine_steps=0)).contact)


# Starts and grasps.


@pytest.mark.parametrize("name", ("allegro", "shadow", "human"))
def test_hands_start_above_and_look_down(name):
    placed, s = clusters(2), MultiGrasp()
    x = starts(hand(name), things(2), placed, np.random.default_rng(0), s)
    p, R, q = unpacked(x)
    z_H, centre_H = palm_facing(hand(name))
    com_O = np.array([item.mass_properties.com_O for item in things(2)])
    middle = np.mean(placed.p_WO + apply(placed.R_WO, com_O), axis=1)
    away = p + apply(R, centre_H) - middle
    np.testing.assert_allclose(np.linalg.norm(away, axis=1), s.distance_m)
    np.testing.assert_allclose(apply(R, z_H), -away / s.distance_m, atol=1e-9)
    assert np.all(away[:, 2] >= 0)
    model = hand(name).model
    assert np.all((q >= model.lower) & (q <= model.upper))
    assert np.all(np.abs(q - model.open_pose) <= 2 * s.spread * (model.upper - model.lower) + 1e-9)


@pytest.mark.parametrize(("name", "count"), (("allegro", 2), ("shadow", 1), ("human", 2)))
def test_grasps_are_complete(name, count):
    g, model, n = grasps(name, count), hand(name).model, count
    K = len(model.lower)
    shapes = {
        "p_WH": (3,),
        "R_WH": (3, 3),
        "p_WO": (n, 3),
        "R_WO": (n, 3, 3),
        "p_HO": (n, 3),
        "R_HO": (n, 3, 3),
        "q": (K,),
        "pre_grasp": (K,),
        "squeeze": (K,),
        "joint_mask": (K,),
        "contact_body": (n, 3),
        "contact_p_B": (n, 3, 3),
        "contact_n_O": (n, 3, 3),
        "energy": (),
        "terms": (n, 9),
        "penetration_mm": (),
        "self_penetration_mm": (),
        "object_penetration_mm": (),
        "contact_distance_mm": (n, 3),
        "square_m": (),
    }
    assert {f.name: getattr(g, f.name).shape for f in fields(g)} == {
        key: (GRASPS, *shape) for key, shape in shapes.items()
    }
    assert len(g) == GRASPS and len(g.take(np.array([1, 2]))) == 2 and g.within().shape == (GRASPS,)
    assert all(np.all(np.isfinite(getattr(g, f.name))) for f in fields(g))
    assert np.all((g.q >= model.lower) & (g.q <= model.upper)) and g.joint_mask.all()
    # The same cluster seen from the hand and from the table.
    np.testing.assert_allclose(g.p_WH[:, None] + apply(g.R_WH[:, None], g.p_HO), g.p_WO, atol=1e-9)
    np.testing.assert_allclose(g.R_WH[:, None] @ g.R_HO, g.R_WO, atol=1e-9)
    assert np.all(g.object_penetration_mm == 0)
    # Contacts, by hand.
    x_H = contact_points(hand(name), g.q, g.contact_body[:, 0], g.contact_p_B[:, 0])
    x_O = apply(np.swapaxes(g.R_HO[:, 0], 1, 2)[:, None], x_H - g.p_HO[:, :1])
    exact = MeshDistance(thing("cube").vertices, thing("cube").faces).query(x_O.reshape(-1, 3))
    np.testing.assert_allclose(1e3 * np.abs(exact.values), g.contact_distance_mm[:, 0].ravel(), atol=1e-6)


def test_objects_never_move():
    """After all steps they are where they were thrown, bit for bit."""
    rng = np.random.default_rng([4, 5, 0])
    thrown = sample_clusters(things(2), GRASPS, 0.0375, rng)
    g = grasps("allegro", 2)
    np.testing.assert_array_equal(g.p_WO, thrown.p_WO)
    np.testing.assert_array_equal(g.R_WO, thrown.R_WO)


def test_the_energy_falls():
    s = MultiGrasp(langevin=Langevin(steps=0, refine_steps=0), skin_points=300)
    before = multigrasp(hand("allegro"), things(2), count=GRASPS, seed=5, settings=s, threads=1)
    longer = replace(s, langevin=Langevin(steps=400, refine_steps=100))
    after = multigrasp(hand("allegro"), things(2), count=GRASPS, seed=5, settings=longer, threads=2)
    assert np.median(after.energy) < 0.6 * np.median(before.energy)


def test_threads_change_nothing():
    one, two = grasps("allegro", 2), grasps("allegro", 2, threads=2)
    for f in fields(one):
        np.testing.assert_array_equal(getattr(one, f.name), getattr(two, f.name), f.name)


@pytest.mark.parametrize("name", ("allegro", "human"))
def test_squeezing_presses_every_contact_inward(name):
    g, N = grasps(name, 2), GRASPS
    model = hand(name).model
    body, p_B = g.contact_body.reshape(N, -1), g.contact_p_B.reshape(N, -1, 3)
    n_H = apply(g.R_HO[:, :, None], g.contact_n_O).reshape(N, -1, 3)
    start = contact_points(hand(name), g.q, body, p_B)
    for target, sign in ((g.pre_grasp, 1), (g.squeeze, -1)):
        assert np.all((target >= model.lower - 1e-9) & (target <= model.upper + 1e-9))
        way = np.sum((contact_points(hand(name), target, body, p_B) - start) * n_H, axis=2)
        assert np.all(sign * way > -1e-8) and np.any(sign * way > 1e-3)
    # Joints of fingers that touch nothing stay.
    J = np.abs(contact_jacobian(model, g.q, body, p_B)).max(axis=(1, 2))
    assert np.all((g.squeeze == g.q) | (J > 0))


@pytest.mark.parametrize(
    ("options", "message"),
    (
        ({"count": 0}, "at least one grasp"),
        ({"seed": -1}, "seed = -1"),
        ({"threads": 0}, "threads = 0"),
        ({"objects": []}, "at least one object"),
        ({"settings": MultiGrasp(skin_points=0)}, "skin_points"),
        ({"settings": MultiGrasp(square_m=0.0)}, "square_m"),
        ({"settings": MultiGrasp(langevin=Langevin(steps=-1))}, "steps = -1"),
        ({"settings": MultiGrasp(langevin=Langevin(temperature=0.0))}, "temperature"),
        ({"settings": MultiGrasp(langevin=Langevin(step_period=0))}, "step_period"),
    ),
)
def test_bad_input_is_refused(options, message):
    objects = options.pop("objects", things(1))
    with pytest.raises(PlanError, match=message):
        multigrasp(hand("allegro"), objects, **options)
