"""The order search: what it returns, that it is deterministic, and that it pays."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fistful as ff
from fistful.errors import PlanError
from fistful.objects.object import Object
from fistful.planning.order import (
    FLOOR,
    MARGIN,
    PRIOR,
    SHARPNESS,
    Itinerary,
    _State,
    search_order,
    usable_by_stage,
)
from fistful.synthesis.sequence import Planner
from fistful.synthesis.settings import Settings

PROBES = 16


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner.of(ff.load_hand("allegro"), Settings(count=32), threads=1)


@pytest.fixture(scope="module")
def objects() -> list[Object]:
    """A bowl that is hard to get beside anything else, given last."""
    return [ff.load_object(name, rescale=True) for name in ("pear", "die", "bowl")]


@pytest.fixture(scope="module")
def found(planner: Planner, objects: list[Object]) -> Itinerary:
    return search_order(planner, objects, probes=PROBES)


def chained(planner: Planner, objects: list[Object], preference: tuple | None = None) -> float:
    """Product of the shares of good grasps of all stages."""
    stage, success = None, 1.0
    for n in range(len(objects)):
        weights = None if preference is None else preference[n]
        stage = planner.stage(objects[: n + 1], stage, to_come=len(objects) - 1 - n, preference=weights)
        success *= float(stage.good.mean())
    return success


def test_the_order_is_a_permutation_and_the_weights_fit(planner: Planner, found: Itinerary):
    assert sorted(found.order) == [0, 1, 2]
    assert len(found.preference) == 3
    for weights, usable in zip(found.preference, usable_by_stage(planner.sets, 3), strict=True):
        assert weights.shape == (len(planner.sets),)
        assert weights.max() == 1 and np.all(weights[usable] >= FLOOR) and np.all(weights[~usable] == 0)
    assert 0 <= found.given < found.success <= 1


def test_the_explanation_says_what_was_chosen(found: Itinerary):
    names = ", ".join(("pear", "die", "bowl")[i] for i in found.order)
    assert found.explanation == (
        f"{names}: {100 * found.success:.0f} % of grasps are predicted to hold, "
        f"against {100 * found.given:.0f} % in the order given"
    )


def test_the_large_object_comes_first_and_it_pays(
    planner: Planner, objects: list[Object], found: Itinerary, figure
):
    assert found.order[0] == 2
    given, chosen = (
        chained(planner, objects),
        chained(planner, [objects[i] for i in found.order], found.preference),
    )
    figure("order: pear, die, bowl as given, chained good", given)
    figure("order: the same in the order that was chosen", chosen)
    assert chosen > given + 0.2


def test_same_seed_same_itinerary_on_any_number_of_threads(planner: Planner, objects: list[Object]):
    one, two = (search_order(replace(planner, threads=n), objects[1:], probes=8) for n in (1, 2))
    assert (one.order, one.success, one.given) == (two.order, two.success, two.given)
    assert all(np.array_equal(a, b) for a, b in zip(one.preference, two.preference, strict=True))
    other = replace(planner, settings=replace(planner.settings, seed=1))
    again = search_order(other, objects[1:], probes=8)
    assert any(not np.array_equal(a, b) for a, b in zip(one.preference, again.preference, strict=True))


def test_probes_do_not_know_the_order_given(planner: Planner, objects: list[Object]):
    """Each order is predicted the same whichever was given; the better one is chosen, but for the margin."""
    pair = objects[1:]
    there, back = search_order(planner, pair, probes=8), search_order(planner, pair[::-1], probes=8)
    best = max(there.given, back.given)
    for found, other in ((there, back), (back, there)):
        assert found.success == (found.given if found.order == (0, 1) else other.given)
        assert best - MARGIN <= found.success <= best
        assert ("no other order is clearly better" in found.explanation) == (found.order == (0, 1))


def test_one_object(planner: Planner, objects: list[Object]):
    one = search_order(planner, objects[:1], probes=8)
    assert one.order == (0,) and one.success == one.given > 0.9
    assert one.explanation == f"pear: {100 * one.success:.0f} % of grasps are predicted to hold"


def test_more_objects_than_the_hand_can_hold(planner: Planner, objects: list[Object]):
    """Five equal dice: four fingers, four stages, and equal objects are probed once."""
    lines: list[str] = []
    five = search_order(planner, [objects[1]] * 5, probes=16, progress=lines.append)
    assert five.order == (0, 1, 2, 3, 4)
    assert five.explanation.endswith("the hand has no room left for die")
    assert len([line for line in lines if line.startswith("order: die")]) == 4
    assert len(five.preference) == 5 and not five.preference[4].any()


def test_probes_of_the_papers_method_are_fast_ones(planner: Planner, objects: list[Object]):
    slow = replace(planner, settings=replace(planner.settings, method="paper"))
    one = search_order(slow, objects[2:], probes=8)
    assert one.success < search_order(planner, objects[2:], probes=8).success, "it has one round only"


def test_nothing_to_search(planner: Planner, objects: list[Object]):
    with pytest.raises(PlanError, match="at least one object, state and probe; got 0, 6, 48"):
        search_order(planner, [])
    with pytest.raises(PlanError, match="got 3, 0, 48"):
        search_order(planner, objects, beam=0)


def stage_of(space: list[int], parent: list[int], good: list[bool]) -> Any:
    class Fake(SimpleNamespace):
        def __len__(self) -> int:
            return len(self.good)

    return Fake(good=np.array(good), grasps=SimpleNamespace(space=np.array(space), parent=np.array(parent)))


def test_weights_look_ahead_by_hand():
    """All of stage 1 is good, but only what was held by set 0 could be continued."""
    first = stage_of([0] * 4 + [1] * 4, [-1] * 8, [True] * 8)
    second = stage_of([2] * 8, list(range(8)), [True] * 4 + [False] * 4)
    chance = tuple(stage.good.astype(float) for stage in (first, second))
    state = _State(places=(0, 1), stages=(first, second), chance=chance, rounds=2)
    now, then, never = state.weights(
        [np.ones(3, bool), np.array([False, True, True]), np.array([True, False, False])]
    )
    mean = 4.5 / 9
    ahead = PRIOR * mean / (4 + PRIOR * mean)
    np.testing.assert_allclose(now[:2], [1, ahead**SHARPNESS])
    np.testing.assert_allclose(then, [0, 1, 1])  # No probe of set 1, so that it counts as the mean.
    np.testing.assert_array_equal(never, [1, 0, 0])
    np.testing.assert_allclose(state.success, (1 - (0.5 / 9) ** 2) * (1 - (1 - mean) ** 2))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_usable_sets_against_all_sequences(planner: Planner, count: int):
    """A set is usable at a stage if one of the longest sequences of sets has it there."""
    sets = planner.sets

    def sequences(held: np.ndarray, length: int) -> list[tuple[int, ...]]:
        fresh = [t for t, s in enumerate(sets) if length and np.any(s.joint_mask & ~held)]
        longer = [(t, *rest) for t in fresh for rest in sequences(held | sets[t].joint_mask, length - 1)]
        return longer or [()]

    every = sequences(np.zeros(len(sets[0].joint_mask), dtype=bool), count)
    longest = np.array([s for s in every if len(s) == max(map(len, every))])
    found = usable_by_stage(sets, count)
    assert len(found) == longest.shape[1] == min(count, 4)
    for n, usable in enumerate(found):
        np.testing.assert_array_equal(np.flatnonzero(usable), np.unique(longest[:, n]))
