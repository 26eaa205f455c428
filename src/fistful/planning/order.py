"""Which object first, and with what of the hand: beam search over orders, with small plans as the oracle.

1. A state is an order of some of the objects with a few probe grasps of each, planned as a sequence is:
   what is held is in the way of what comes.
2. Expand every state by every object left. What one try achieves, how often the planner tries, and how
   likely the good probes are to hold in physics give the predicted success of a stage; their product is
   that of the state.
3. Keep the best states by success times room: what the objects to come achieved in the company of each
   held one. States that leave no contact set for the rest come last.
4. In the best complete order, a contact set is preferred at a stage as its probes and the probes that
   continue them were good and are likely to hold.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from fistful.errors import PlanError
from fistful.objects.object import Object
from fistful.physics.protocol import PAPER
from fistful.planning.prediction import chance_to_hold
from fistful.synthesis.contact_set import ContactSet, usable_sets
from fistful.synthesis.sequence import Planner
from fistful.synthesis.stage import Stage

MARGIN = 0.02
"""The order given is kept unless another is predicted to be better than it by more than this."""
FLOOR = 0.05
"""Weight of a usable contact set, of that of the best, below which none falls."""
PRIOR = 4.0
"""Probes that the stage's mean counts for in the success of a contact set."""
SHARPNESS = 2.0
"""Exponent of the success of a contact set in its weight."""
ORDER_STREAM = 3
"""First number of the seed of the search; see target.PAIRS_STREAM."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Itinerary:
    """What the search chose.

    Attributes:
      order: Places in the objects given, in the order to grasp them; all of them.
      preference: One (T,) float a stage: weights of the contact sets, the largest 1, for Planner.stage. Sets
        that can not be used at a stage have 0; where no probe got to, all others have 1.
      success: Predicted share of grasps that hold everything in this order, as far as it was searched.
      given: The same for the order given; 0 if it ends before.
      explanation: One line for the user.
    """

    order: tuple[int, ...]
    preference: tuple[np.ndarray, ...]
    success: float
    given: float
    explanation: str


def search_order(
    planner: Planner,
    objects: Sequence[Object],
    *,
    beam: int = 6,
    probes: int = 48,
    protocol: str = PAPER.name,
    progress: Callable[[str], None] = lambda _: None,
) -> Itinerary:
    """The order in which to grasp some objects, and which contact sets to prefer at each stage.

    Deterministic for the seed of the planner's settings, and independent of its threads. What is probed does
    not depend on the order given, other than that the order given is always among what is compared.

    Args:
      planner: Planner; probes are planned with its settings, but by the fast method and with one round.
      objects: The objects.
      beam: States that are kept of each length.
      probes: Grasps planned for a stage of a state.
      protocol: Name of the protocol that the grasps are to hold under; see prediction.chance_to_hold.
      progress: Called with a line now and then.

    Raises:
      PlanError: The hand can not span one of the objects, or has no contact set.
    """
    if not objects or beam < 1 or probes < 1:
        raise PlanError(
            f"an order needs at least one object, state and probe; got {len(objects)}, {beam}, {probes}"
        )
    return _Search(planner, objects, beam, probes, protocol, progress).run()


@dataclass(frozen=True, kw_only=True, eq=False)
class _State:
    """An order of some objects, with probe grasps of each.

    Attributes:
      places: The objects, places in those given.
      stages: Their stages.
      chance: One (N,) float a stage: that each probe is good and holds; 0 if it is not good.
      rounds: How often the planner will try each grasp.
    """

    places: tuple[int, ...]
    stages: tuple[Stage, ...]
    chance: tuple[np.ndarray, ...]
    rounds: int

    @property
    def alive(self) -> bool:
        """Whether there is anything to continue."""
        return not self.stages or bool(self.stages[-1].good.any())

    @cached_property
    def by_stage(self) -> list[float]:
        """Predicted success of each stage: (1 - (1 - r)^rounds) c.

        r is the smoothed rate of good probes of one try, c the mean chance that a good one holds: the planner
        tries anew what is not good, but not what does not hold.
        """
        return [
            (1 - (1 - _rate(s.good)) ** self.rounds) * float(c.sum()) / max(int(s.good.sum()), 1)
            for s, c in zip(self.stages, self.chance, strict=True)
        ]

    @cached_property
    def success(self) -> float:
        """Predicted success of all stages."""
        return prod(self.by_stage)

    def weights(self, usable: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Preferences of the contact sets at each stage.

        With r_m(t) the mean chance of the probes at stage m that come from set t at stage n, the weight of t
        at n is the product of r_m(t) over m = n .. N, to the power SHARPNESS.
        """
        T, N = len(usable[0]), len(self.stages)
        value = np.ones((N, T))
        for m, chance in enumerate(self.chance):
            row, mean = np.arange(len(chance)), _rate(chance)
            for n in range(m, -1, -1):
                space = self.stages[n].grasps.space[row]
                made, won = np.bincount(space, minlength=T), np.bincount(space, chance, minlength=T)
                value[n] *= (won + PRIOR * mean) / (made + PRIOR)
                row = self.stages[n].grasps.parent[row]
        value = np.where(usable[:N], value, 0.0) ** SHARPNESS
        value /= value.max(axis=1, keepdims=True)
        known = np.where(usable[:N], np.maximum(value, FLOOR), 0.0)
        return (*known, *(row.astype(float) for row in usable[N:]))


class _Search:
    """One search: the probes it made and what it learned from them."""

    def __init__(
        self,
        planner: Planner,
        objects: Sequence[Object],
        beam: int,
        probes: int,
        protocol: str,
        progress: Callable[[str], None],
    ):
        s = planner.settings
        seed = int(np.random.SeedSequence([ORDER_STREAM, s.seed, len(objects)]).generate_state(1)[0] >> 1)
        settings = replace(s, count=probes, rounds=1, method="fast", parents="good", seed=seed)
        self.planner, self.objects, self.beam, self.progress = planner, objects, beam, progress
        self.protocol = protocol
        self.prober = replace(planner, settings=settings)
        self.rounds = s.rounds if s.method == "fast" else 1
        self.usable = usable_by_stage(planner.sets, len(objects))
        self.given = tuple(range(len(objects)))
        self.last: dict[tuple[str, ...], float] = {}
        """Predicted success of the last of some objects, by their keys, while those before it are held."""

    def run(self) -> Itinerary:
        """All lengths, as far as probes get."""
        states = [_State(places=(), stages=(), chance=(), rounds=self.rounds)]
        for n in range(len(self.usable)):
            longer = [child for state in states for child in self._expand(state)]
            if n > 0 and not any(child.alive for child in longer):
                break
            states = self._keep(longer)
        return self._itinerary(states)

    def _expand(self, state: _State) -> list[_State]:
        """The state with each object left; equal objects are tried once."""
        left = {self.objects[i].key: i for i in reversed(self.given) if i not in state.places}
        children = []
        for place in sorted(left.values()) if state.alive else ():
            places = (*state.places, place)
            items = [self.objects[i] for i in places]
            self.progress("order: " + ", ".join(item.name for item in items))
            previous = state.stages[-1] if state.stages else None
            keys = tuple(item.key for item in items)
            self.last[keys] = 0.0
            try:
                stage = self.prober.stage(items, previous, to_come=len(self.usable) - len(items))
            except PlanError as error:
                if previous is None:
                    raise
                self.progress(f"order: {error}")
                continue
            chance = chance_to_hold(self.planner.hand, items, stage, self.protocol) * stage.good
            child = _State(
                places=places,
                stages=(*state.stages, stage),
                chance=(*state.chance, chance),
                rounds=self.rounds,
            )
            if child.alive:
                self.last[keys] = child.by_stage[-1]
            children.append(child)
        return children

    def _keep(self, states: list[_State]) -> list[_State]:
        """The best states, if possible at most half with the same first object, and the order given."""
        first: Counter[int] = Counter()
        ranked = []
        for state in sorted(states, key=self._rank):
            first[state.places[0]] += 1
            ranked.append((not state.alive, first[state.places[0]] > max(self.beam // 2, 1), state))
        ranked = [state for *_, state in sorted(ranked, key=lambda entry: entry[:2])]
        given = [s for s in ranked[self.beam :] if s.places == self.given[: len(s.places)]]
        return ranked[: self.beam] + given

    def _rank(self, state: _State) -> tuple:
        """Sort key, the best first: by success times room, those without room by success, then as given."""
        return (-state.success * self._room(state), -state.success, state.places)

    def _room(self, state: _State) -> float:
        """Predicted success of the objects to come: of each, the worst in company of one that is held.

        0 if what is held leaves no usable space for one of them: no probe of it was good. A pair that was not
        probed is taken for the square of the object alone: what is hard in the empty hand is harder in a full
        one, so that states which have it behind them come first. Of more objects than the hand can hold, the
        easiest count.
        """
        held = [self.objects[i].key for i in state.places]
        left = [self.objects[i].key for i in self.given if i not in state.places]
        each = [min(self.last.get((h, x), self.last[x,] ** 2) for h in held) for x in left]
        return prod(sorted(each, reverse=True)[: len(self.usable) - len(held)])

    def _itinerary(self, states: list[_State]) -> Itinerary:
        best = min(states, key=lambda s: (-s.success, s.places))
        asked = next((s for s in states if s.places == self.given[: len(s.places)]), None)
        given = asked.success if asked else 0.0
        if asked and best.success <= given + MARGIN:
            best = asked
        rest = [i for i in self.given if i not in best.places]
        beyond = len(self.given) - len(self.usable)
        return Itinerary(
            order=(*best.places, *rest),
            preference=(*best.weights(self.usable), *[np.zeros(len(self.planner.sets))] * beyond),
            success=best.success,
            given=given,
            explanation=self._explain(best, given, rest),
        )

    def _explain(self, best: _State, given: float, rest: list[int]) -> str:
        def names(places: Sequence[int]) -> str:
            return ", ".join(self.objects[i].name for i in places)

        text = f"{names(best.places)}: {100 * best.success:.0f} % of grasps are predicted to hold"
        if best.places != self.given[: len(best.places)]:
            text += f", against {100 * given:.0f} % in the order given"
        elif len(self.given) > 1:
            text += "; no other order is clearly better"
        if rest and len(best.places) == len(self.usable):
            text += f"; the hand has no room left for {names(rest)}"
        elif rest:
            text += f"; no probe could also grasp {names(rest)}"
        return text


def _rate(good: np.ndarray) -> float:
    """Mean of good or not, or of chances, kept off 0 and 1."""
    return float(good.sum() + 0.5) / (len(good) + 1.0)


def usable_by_stage(sets: Sequence[ContactSet], count: int) -> list[np.ndarray]:
    """Which sets (T,) bool can be used at each of `count` stages; of fewer, if the hand is full before."""
    level, result = [np.ones(len(sets[0].joint_mask), dtype=bool)], []
    for n in range(count):
        usable = np.array([usable_sets(sets, free, count - n - 1) for free in level])
        if not usable.any():
            break
        result.append(usable.any(axis=0))
        after = [
            free & ~sets[int(t)].joint_mask
            for free, row in zip(level, usable, strict=True)
            for t in np.flatnonzero(row)
        ]
        level = list(np.unique(after, axis=0))
    return result
