"""Sequences: what Algorithm 1 spends and keeps, what a stage promises; every hand holds two objects."""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import trimesh
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from fistful.errors import PlanError
from fistful.geometry.mesh_distance import MeshDistance
from fistful.geometry.pose import apply
from fistful.hands import hand_names
from fistful.objects import Object, load_object
from fistful.synthesis import sequence
from fistful.synthesis.contact_set import contact_sets, remaining_masks
from fistful.synthesis.core import Core
from fistful.synthesis.fast import Fast
from fistful.synthesis.measure import measure
from fistful.synthesis.paper import Paper
from fistful.synthesis.sequence import NoSpaceLeftError, Parents, Planner
from fistful.synthesis.settings import Settings
from fistful.synthesis.stage import Stage, contact_points, inverse_pose, packed
from fistful.synthesis.tables import ObjectTables
from fistful.synthesis.weights import Weights
from test_energy import hand

NAMES = ("ball", "cube", "mug")
HASTY = Settings(
    count=32,
    rounds=1,
    skin_points=100,
    object_points=50,
    fast=Fast(tries=1, steps=2, lives=1),
    paper=Paper(steps=5),
)
"""For what does not depend on how good the grasps are."""


@cache
def item(name: str) -> Object:
    return load_object(name, rescale=True)


@cache
def planner(name: str = "allegro", settings: Settings = HASTY) -> Planner:
    return Planner.of(hand(name), settings, threads=1)


@cache
def three() -> tuple[Stage, ...]:
    """Three objects in an Allegro hand."""
    stages: list[Stage] = []
    able = planner(settings=Settings(count=32))
    for n in range(3):
        things = [item(name) for name in NAMES[: n + 1]]
        stages.append(able.stage(things, stages[-1] if n else None, to_come=2 - n))
    return tuple(stages)


@cache
def first_stage() -> Stage:
    return planner().stage([item("ball")])


def next_stage(previous: Stage, settings: Settings = HASTY, **options) -> Stage:
    return planner(settings=settings).stage([item("ball"), item("cube")], previous, **options)


def joints_of(name: str) -> np.ndarray:
    """The mask of an opposition space of the Allegro hand, or of a finger."""
    hits = [f.joint_mask for f in hand("allegro").fingers if f.name == name]
    return hits[0] if hits else hand("allegro").space(name).joint_mask


def parents_with(free: np.ndarray) -> Parents:
    P, K = free.shape
    return Parents(
        index=np.arange(P),
        q=np.zeros((P, K)),
        squeeze=np.zeros((P, K)),
        free=free,
        p_HO=np.zeros((P, 1, 3)),
        R_HO=np.zeros((P, 1, 3, 3)),
    )


def assert_same(found, expected, rows=slice(None)) -> None:
    """All arrays of two records are the same bits."""
    for f in fields(expected):
        a, b = getattr(found, f.name), getattr(expected, f.name)
        np.testing.assert_array_equal(a[rows], b[rows], err_msg=f.name)


# Algorithm 1.


def usable_after(*used: str) -> dict[str, np.ndarray]:
    """Names of the spaces that are usable after some were used, and what is left of their joints."""
    free = ~np.any([np.zeros(16, dtype=bool), *(joints_of(name) for name in used)], axis=0)
    sets = contact_sets(hand("allegro"))
    can = parents_with(free[None]).usable(sets, 0)[0]
    left = remaining_masks(sets, free)
    return {s.name: left[t] for t, s in enumerate(sets) if can[t]}


def test_what_is_left_after_thumb_and_index():
    """The paper's example: both fingers are spent; index-middle goes on with the middle finger alone."""
    left = usable_after("thumb-index")
    assert set(left) == {"middle-ring", "index-middle", "ring-palm", "middle-palm"}
    np.testing.assert_array_equal(left["index-middle"], joints_of("middle-palm"))
    np.testing.assert_array_equal(left["middle-ring"], joints_of("middle-ring"))


def test_what_is_left_after_that():
    assert set(usable_after("thumb-index", "middle-ring")) == set()
    assert set(usable_after("thumb-index", "ring-palm")) == {"middle-ring", "index-middle", "middle-palm"}
    assert set(usable_after("index-palm", "ring-palm", "middle-palm")) == {"thumb-index", "thumb-palm"}
    assert len(usable_after()) == 7


def depth(masks: Sequence[int], free: int) -> int:
    """The most stages that free joints allow, by trying everything. Joints are bits."""
    return max((1 + depth(masks, free & ~m) for m in masks if m & free), default=0)


@limits(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 31), min_size=1, max_size=5),
    st.lists(st.integers(0, 31), min_size=1),
    st.integers(0, 5),
)
def test_usable_sets_leave_room_for_what_is_to_come(masks, free, to_come):
    """A set is usable if it has a free joint and no other set leaves more stages, of those still needed."""

    def bits(number: int) -> np.ndarray:
        return np.array([number >> j & 1 for j in range(5)], dtype=bool)

    sets = [SimpleNamespace(joint_mask=bits(m), spaces=(t,)) for t, m in enumerate(masks)]
    found = parents_with(np.array([bits(f) for f in free])).usable(sets, to_come)
    for row, f in zip(found, free, strict=True):
        wanted = min(to_come, depth(masks, f) - 1)
        assert row.tolist() == [bool(m & f) and depth(masks, f & ~m) >= wanted for m in masks]
        assert row.any() == (depth(masks, f) > 0)


@given(st.integers(0, 2**16 - 1))
def test_remaining_masks_are_the_products(number):
    free = np.array([number >> j & 1 for j in range(16)], dtype=bool)
    sets = contact_sets(hand("allegro"), 2)
    for one, left in zip(sets, remaining_masks(sets, free), strict=True):
        np.testing.assert_array_equal(left, one.joint_mask * (1 - (~free).astype(int)))


@pytest.mark.parametrize(
    ("to_come", "fingers"), ((3, {1}), (2, {1, 2}), (0, {1, 2}), (50, {1})), ids=lambda v: str(v)
)
def test_looking_ahead(to_come, fingers):
    """With three more to come, the first object gets one finger of four; with fewer, two may be spent."""
    stage = planner().stage([item("ball")], to_come=to_come)
    used = {stage.spaces[t] for t in stage.grasps.space}
    count = {
        name: sum(joints_of(f.name) @ joints_of(name) > 0 for f in hand("allegro").fingers) for name in used
    }
    assert set(count.values()) == fingers
    if fingers == {1}:
        assert used == {"ring-palm", "middle-palm", "index-palm", "thumb-palm"}


def test_nothing_is_left():
    spent = replace(first_stage().grasps, free=np.zeros_like(first_stage().grasps.free))
    with pytest.raises(NoSpaceLeftError, match=r"allegro .* object 2, cube: the 1 before it"):
        next_stage(replace(first_stage(), grasps=spent))


def test_spent_parents_have_no_children():
    g = first_stage().grasps
    alive = np.arange(len(g)) % 3 == 0
    mixed = replace(first_stage(), grasps=replace(g, free=g.free & alive[:, None]))
    stage = next_stage(mixed, parents=np.arange(len(g)))
    assert set(stage.grasps.parent) <= set(np.flatnonzero(alive))


# What a stage keeps.


def test_three_objects_are_held(figure):
    for n, stage in enumerate(three()):
        assert stage.good.mean() >= 0.5
        figure(f"good grasps of 32, allegro, object {n + 1} of ball, cube, mug", stage.good.sum())


def test_held_joints_never_move_again():
    """Joints outside of J_n are the parent's bit for bit; J_n is free in the parent, and spent after."""
    for before, after in zip(three()[:-1], three()[1:], strict=True):
        g, p = after.grasps, before.grasps.take(after.grasps.parent)
        np.testing.assert_array_equal(g.q[~g.joint_mask], p.q[~g.joint_mask])
        assert np.all(p.free | ~g.joint_mask)
        np.testing.assert_array_equal(g.free, p.free & ~g.joint_mask)
        assert np.all(np.any(g.joint_mask & (g.q != p.q), axis=1))
        masks = np.array([s.joint_mask for s in contact_sets(hand("allegro"))])
        np.testing.assert_array_equal(g.joint_mask, masks[g.space] & p.free)
    g = three()[0].grasps
    assert np.all(g.parent == -1)
    # Before the first, they are around the open pose: within two standard deviations, and not all alike.
    model = hand("allegro").model
    off = (g.q - model.open_pose) / (model.upper - model.lower) * ~g.joint_mask
    assert np.abs(off).max() <= 2 * Settings().spread + 1e-9 and np.abs(off).max() > Settings().spread


def test_joints_that_held_the_first_object_still_do_in_the_third_stage():
    last = three()[2].grasps
    middle = three()[1].grasps.take(last.parent)
    first = three()[0].grasps.take(middle.parent)
    np.testing.assert_array_equal(last.q[first.joint_mask], first.q[first.joint_mask])
    np.testing.assert_array_equal(last.q[middle.joint_mask], middle.q[middle.joint_mask])
    assert not np.any(first.joint_mask & middle.joint_mask)
    assert not np.any((first.joint_mask | middle.joint_mask) & last.joint_mask)


def test_held_objects_stay_where_they_are():
    """Poses in the hand frame are carried over bit for bit; the new one is the inverse of X_OH."""
    for n, stage in enumerate(three()):
        g = stage.grasps
        assert g.p_HO.shape == (32, n + 1, 3)
        p_HO, R_HO = inverse_pose(g.p_OH, g.R_OH)
        np.testing.assert_array_equal(g.p_HO[:, -1], p_HO)
        np.testing.assert_array_equal(g.R_HO[:, -1], R_HO)
        np.testing.assert_allclose(apply(g.R_OH, g.p_HO[:, -1]) + g.p_OH, 0, atol=1e-12)
        if n:
            parents = three()[n - 1].grasps.take(g.parent)
            np.testing.assert_array_equal(g.p_HO[:, :-1], parents.p_HO)
            np.testing.assert_array_equal(g.R_HO[:, :-1], parents.R_HO)


def test_good_parents_are_continued():
    for before, after in zip(three()[:-1], three()[1:], strict=True):
        assert np.all(before.good[after.grasps.parent])


def test_targets_move_the_own_joints_and_the_others_go_on_pressing():
    """Joints that are not this stage's own are sent where they were before: to the parent's squeeze."""
    model = hand("allegro").model
    squeezed = three()[0].grasps.q  # Before the first stage, nothing presses.
    for stage in three():
        g = stage.grasps
        before = squeezed if g.parent[0] < 0 else squeezed[g.parent]
        for aim in (g.pre_grasp, g.squeeze):
            np.testing.assert_array_equal(aim[~g.joint_mask], before[~g.joint_mask])
            assert np.mean(np.any((aim != g.q) & g.joint_mask, axis=1)) > 0.9
            assert np.all((aim >= model.lower) & (aim <= model.upper))
        squeezed = g.squeeze


def test_joints_that_hold_the_first_object_press_it_in_the_third_stage():
    last = three()[2].grasps
    middle = three()[1].grasps.take(last.parent)
    first = three()[0].grasps.take(middle.parent)
    for aim in (last.pre_grasp, last.squeeze):
        np.testing.assert_array_equal(aim[first.joint_mask], first.squeeze[first.joint_mask])
        np.testing.assert_array_equal(aim[middle.joint_mask], middle.squeeze[middle.joint_mask])
        assert np.mean(np.any((aim != last.q) & first.joint_mask, axis=1)) > 0.9


# What a stage reports.


def test_measures_are_those_of_the_stored_arrays():
    for n, stage in enumerate(three()):
        g = stage.grasps
        things = [item(name) for name in NAMES[: n + 1]]
        held = g.p_HO[:, :-1], g.R_HO[:, :-1]
        again = measure(hand("allegro"), things, g.p_OH, g.R_OH, g.q, g.contact_body, g.contact_p_B, *held)
        assert_same(stage.measures, again)
        np.testing.assert_array_equal(stage.good, again.good)


def test_energies_are_those_of_the_stored_arrays():
    """The paper's terms, from fresh tables; contacts are found among the candidates by their places."""
    able = planner(settings=Settings(count=32))
    for n, stage in enumerate(three()):
        g, tables = stage.grasps, able.tables
        tables_O = ObjectTables.of([item(name) for name in NAMES[: n + 1]], able.settings.object_points)
        batch = Core(tables, tables_O).batch(len(g))
        same = np.all(tables.candidate_p_B == g.contact_p_B[:, :, None], axis=-1)
        same &= tables.candidate_body == g.contact_body[:, :, None]
        batch.write(
            x=packed(g.p_OH, g.R_OH, g.q),
            mask=g.joint_mask,
            contact=same.argmax(axis=2),
            p_HO=g.p_HO[:, :-1],
            R_HO=g.R_HO[:, :-1],
        )
        batch.evaluate(Weights(hho=1.0, ohp=1.0, friction=1.0))
        np.testing.assert_allclose(g.energy, batch.read("terms"), rtol=1e-6, atol=1e-9)


def test_contacts_are_on_their_surfaces_with_the_objects_normals():
    able = planner(settings=Settings(count=32))
    for n, stage in enumerate(three()):
        g = stage.grasps
        x_H = contact_points(hand("allegro"), g.q, g.contact_body, g.contact_p_B)
        x_O = g.p_OH[:, None] + apply(g.R_OH[:, None], x_H)
        exact = MeshDistance(item(NAMES[n]).vertices, item(NAMES[n]).faces).query(x_O.reshape(-1, 3))
        np.testing.assert_array_equal(g.contact_n_O.reshape(-1, 3), exact.gradients)
        gap = 1e3 * np.abs(exact.values).reshape(len(g), 2)
        np.testing.assert_allclose(gap, stage.measures.contact_distance_mm, atol=1e-3)
        surfaces = {s.name: s.candidates for s in hand("allegro").surfaces}
        for i, space in enumerate(g.space):
            for j, name in enumerate(able.sets[space].surfaces):
                assert g.contact_p_B[i, j].tolist() in surfaces[name].p_B.tolist()


def test_ranked_puts_good_grasps_first_and_the_best_of_them_before():
    stage = three()[2]
    order = stage.ranked()
    assert sorted(order) == list(range(32))
    good, quality = stage.good[order], stage.grasps.quality[order]
    assert np.all(np.diff(good.astype(int)) <= 0)
    assert np.all(np.diff(quality[good]) <= 0)
    assert np.all(np.diff(stage.measures.excess()[order][~good]) >= 0)


def test_a_stage_says_what_it_is():
    stage = first_stage()
    assert (stage.object_name, stage.object_key) == ("ball", item("ball").key)
    assert stage.spaces == tuple(s.name for s in hand("allegro").opposition_spaces)
    assert len(stage) == 32
    assert stage.cpu_s > 0
    assert stage.wall_s > 0


# Parents and spaces.


def test_parents_can_be_chosen():
    """Those and no others, each as often as the others."""
    chosen = np.array([7, 3, 30])
    stage = next_stage(first_stage(), parents=chosen)
    assert np.bincount(stage.grasps.parent, minlength=32)[chosen].tolist() == [11, 11, 10]


def test_good_parents_or_all():
    """Asked for all, or if none is good, all; otherwise the good ones."""
    count = len(first_stage())
    bad = np.arange(count) % 4 != 0
    m = three()[0].measures.take(np.zeros(count, dtype=int))
    assert m.good.all()
    mixed = replace(first_stage(), measures=replace(m, penetration_mm=np.where(bad, 9.0, 0.0)))
    assert set(next_stage(mixed).grasps.parent) == set(np.flatnonzero(~bad))
    assert set(next_stage(mixed, replace(HASTY, parents="all")).grasps.parent) == set(range(count))
    none = replace(first_stage(), measures=replace(m, penetration_mm=np.full(count, 9.0)))
    assert set(next_stage(none).grasps.parent) == set(range(count))


@pytest.mark.parametrize(
    "parents",
    (
        np.array([32]),
        np.array([-1]),
        np.array([[1, 2]]),
        np.ones(32, dtype=bool),
        np.array([0.5]),
        np.array([], int),
    ),
    ids=("beyond", "negative", "table", "mask", "fractions", "none"),
)
def test_bad_parents(parents):
    with pytest.raises(ValueError, match="parents are indices below 32"):
        next_stage(first_stage(), parents=parents)


@pytest.mark.parametrize("held", ((), ("mug",), ("ball", "cube")), ids=("none", "another", "too many"))
def test_held_objects_are_those_of_the_stage_before(held):
    with pytest.raises(ValueError, match="ball"):
        planner().stage([item(name) for name in (*held, "cube")], first_stage())


def test_objects_before_the_first_stage():
    with pytest.raises(ValueError, match="ball"):
        planner().stage([item("ball"), item("cube")])


def test_spaces_are_chosen_uniformly():
    """As the paper does: each of the seven as often, within chance."""
    stage = planner(settings=replace(HASTY, count=700, uniform=True)).stage([item("ball")])
    counts = np.bincount(stage.grasps.space, minlength=7)
    assert np.sum((counts - 100) ** 2 / 100) < 27.9  # 6 degrees of freedom: p = 1e-4.


def test_a_preference_is_followed():
    """In proportion to the weights, 0 is never."""
    weights = np.array([0, 0, 3, 1, 0, 0, 0.0])
    able = planner(settings=replace(HASTY, count=400))
    counts = np.bincount(able.stage([item("ball")], preference=weights).grasps.space, minlength=7)
    assert set(np.flatnonzero(counts)) == {2, 3}
    assert counts[2] == pytest.approx(300, abs=4 * np.sqrt(400 * 0.75 * 0.25))


def test_a_preference_for_what_is_spent_is_none():
    """A grasp is never planned with a space that has no joint left, whatever is preferred."""
    g = first_stage().grasps
    free = np.tile(joints_of("thumb-palm"), (len(g), 1))
    only_thumb = replace(first_stage(), grasps=replace(g, free=free))
    preference = np.array([s.name == "ring-palm" for s in planner().sets], dtype=float)
    stage = next_stage(only_thumb, parents=np.arange(len(g)), preference=preference)
    assert {stage.spaces[t] for t in stage.grasps.space} == {"thumb-index", "thumb-palm"}
    assert np.all(stage.grasps.joint_mask.any(axis=1))


# Several pairs.


@pytest.mark.parametrize("name", hand_names())
def test_sets_of_two_pairs_share_a_surface(name):
    spaces = hand(name).opposition_spaces
    found = {s.spaces for s in contact_sets(hand(name), 2)}
    for i, j in product(range(len(spaces)), repeat=2):
        shared = {s.name for s in spaces[i].surfaces} & {s.name for s in spaces[j].surfaces}
        assert ((i, j) in found) == (i < j and bool(shared))
    for one in contact_sets(hand(name), 2):
        assert len(one.surfaces) == 4
        assert len(set(one.surfaces)) == 3
        masks = [spaces[i].joint_mask for i in one.spaces]
        np.testing.assert_array_equal(one.joint_mask, masks[0] | masks[1])
    assert [s.name for s in contact_sets(hand(name))] == [s.name for s in spaces]


def test_two_pairs_hold_with_three_links(figure):
    stage = planner(settings=Settings(count=32, pairs=2)).stage([item("cube")])
    g = stage.grasps
    assert g.contact_body.shape == (32, 4)
    assert stage.measures.opposition_deg.shape == (32, 4)
    assert min(len(set(bodies)) for bodies in g.contact_body.tolist()) >= 3
    assert stage.good.mean() >= 0.5
    figure("good grasps of 32, allegro, cube, two pairs of contacts", stage.good.sum())


def test_a_hand_with_one_space_has_no_two_pairs():
    with pytest.raises(NoSpaceLeftError, match=r"no 2 opposition spaces .* 1 in all: use fewer pairs"):
        Planner.of(hand("gripper"), Settings(pairs=2))


# Sizes, numbers, threads.


def test_an_object_that_is_too_big(tmp_path):
    """The message names both sizes: half a metre, and what the hand opens to."""
    trimesh.creation.box((0.5, 0.5, 0.5)).export(tmp_path / "crate.stl")
    crate = load_object(tmp_path / "crate.stl", units="m", voxels=40_000)
    with pytest.raises(
        PlanError, match=r"crate is too big for allegro: .* 500 mm, .* open to \d\d\d? mm; .*--rescale"
    ):
        planner().stage([crate])


def test_one_grasp():
    stage = planner(settings=replace(HASTY, count=1)).stage([item("ball")])
    assert len(stage) == 1
    assert len(planner(settings=replace(HASTY, count=1)).stage([item("ball"), item("cube")], stage)) == 1


@pytest.mark.parametrize(
    "bad", ({"count": 0}, {"pairs": 0}, {"rounds": 0}, {"seed": -1}, {"seed": 2**31}), ids=str
)
def test_settings_that_make_no_sense(bad):
    (name,) = bad
    with pytest.raises(PlanError, match=name):
        Planner.of(hand("allegro"), replace(HASTY, **bad))


@pytest.mark.parametrize("name", ("tries", "steps", "pick_every", "lives"))
def test_fast_settings_that_make_no_sense(name):
    """Not even a division by zero in a kernel, which would end Python itself."""
    with pytest.raises(PlanError, match=f"{name} = 0"):
        Planner.of(hand("allegro"), replace(HASTY, fast=Fast(**{name: 0})))


def test_a_method_that_there_is_not():
    with pytest.raises(PlanError, match="fast, paper"):
        Planner.of(hand("allegro"), replace(HASTY, method="slow"))


def test_threads_below_one():
    with pytest.raises(PlanError, match="threads = 0"):
        Planner.of(hand("allegro"), HASTY, threads=0)


def test_more_grasps_than_a_chunk(monkeypatch):
    """In several goes: the first is what it would be alone, and no two grasps are the same."""
    settings = replace(HASTY, count=20, rounds=2)
    whole = planner(settings=settings).stage([item("ball")])
    monkeypatch.setattr(sequence, "CHUNK", 16)
    lines = []
    parts = planner(settings=settings).stage([item("ball")], progress=lines.append)
    alone = planner(settings=replace(settings, count=16)).stage([item("ball")])
    assert len(parts) == len(whole) == 20
    for name in ("grasps", "measures"):
        first = getattr(parts, name).take(np.arange(16))
        assert_same(first, getattr(alone, name))
    assert any("grasps 17 to 20" in line for line in lines)
    assert len({tuple(p) for p in parts.grasps.p_OH}) == 20


def test_keys_are_few_enough():
    """Random streams are numbered key x 65536 + counter in 31 bits."""
    assert sequence.CHUNK <= 32768


@pytest.mark.parametrize("method", ("fast", "paper"))
def test_threads_do_not_matter(method):
    settings = replace(HASTY, method=method, count=21, rounds=2)
    stages = []
    for threads in (1, 2):
        able = Planner.of(hand("allegro"), settings, threads=threads)
        first = able.stage([item("ball")])
        stages.append((first, able.stage([item("ball"), item("cube")], first)))
    for one, two in zip(*stages, strict=True):
        assert_same(one.grasps, two.grasps)
        assert_same(one.measures, two.measures)


def test_seeds_matter():
    other = planner(settings=replace(HASTY, seed=1)).stage([item("ball")])
    again = Planner.of(hand("allegro"), HASTY, threads=1).stage([item("ball")])
    assert_same(again.grasps, first_stage().grasps)
    assert not np.any(np.all(other.grasps.p_OH == first_stage().grasps.p_OH, axis=1))


def test_rounds_only_improve(figure):
    """A good grasp stays; what is not good is replaced by what is, or by what is nearer to it."""
    things = [item("ball"), item("mug")]
    before = planner(settings=Settings(count=32)).stage(things[:1])
    one, four = (
        planner(settings=Settings(count=32, rounds=rounds)).stage(things, before) for rounds in (1, 4)
    )
    assert_same(four.grasps.take(one.good), one.grasps.take(one.good))
    assert four.good.sum() > one.good.sum()
    worst = [
        np.max(
            [m.penetration_mm, m.self_penetration_mm, m.object_penetration_mm, *m.contact_distance_mm.T],
            axis=0,
        )
        for m in (one.measures, four.measures)
    ]
    still = ~four.good
    assert np.all(worst[1][still] <= worst[0][still])
    figure("good grasps of 32 of a mug with a ball in hand, one round", one.good.sum())
    figure("good grasps of 32 of a mug with a ball in hand, four rounds", four.good.sum())


# Every hand.


@pytest.mark.parametrize("name", hand_names())
def test_every_hand_holds_two_objects(name, figure):
    able = planner(name, Settings(count=32))
    first = able.stage([item("ball")], to_come=1)
    second = able.stage([item("ball"), item("cube")], first)
    assert first.good.mean() >= 0.5
    assert second.good.mean() >= 0.5
    figure(f"good grasps of 32, {name}, cube with a ball in hand", second.good.sum())


def test_a_gripper_holds_one():
    """An imported hand with one opposition space: one object, and then nothing is left."""
    able = planner("gripper", Settings(count=32))
    stage = able.stage([item("ball")], to_come=1)
    assert stage.good.mean() >= 0.5
    assert not stage.grasps.free.any()
    with pytest.raises(NoSpaceLeftError, match="object 2, cube"):
        able.stage([item("ball"), item("cube")], stage)


def test_without_spread_unused_joints_stay_at_the_open_pose_bit_for_bit():
    settings = Settings(count=8, spread=0.0, skin_points=800, object_points=256)
    g = Planner.of(hand("allegro"), settings).stage([item("ball")]).grasps
    np.testing.assert_array_equal(
        g.q[~g.joint_mask], np.broadcast_to(hand("allegro").model.open_pose, g.q.shape)[~g.joint_mask]
    )
