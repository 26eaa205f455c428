"""A plan: grasps of several objects one after the other, stage by stage (SeqGrasp, Algorithm 1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from fistful.errors import PlanError
from fistful.hands.hand import Hand
from fistful.objects.object import Object
from fistful.objects.parts import PartsKind
from fistful.physics.protocol import Protocol, find_protocol
from fistful.physics.vendor import HandModel
from fistful.planning.prediction import chance_to_hold
from fistful.planning.validation import (
    Tester,
    Validation,
    held_throughout,
    parents_of,
    settled,
    validation_record,
    why_none_held,
)
from fistful.synthesis.compiling import check_device, compile_kernels
from fistful.synthesis.measure import Tolerance
from fistful.synthesis.sequence import Planner
from fistful.synthesis.settings import Method, Settings
from fistful.synthesis.stage import Stage
from fistful.synthesis.weights import TERMS

if TYPE_CHECKING:
    from fistful.planning.run_folder import RunFolder

Order = Literal["given", "auto"]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where hand and objects of a plan came from. For the record: planning does not look at it."""

    hand: str | None = None
    """Name or path the hand was loaded from."""
    objects: tuple[str, ...] = ()
    """Names or paths of the objects, in the order they were given."""
    units: str = "auto"
    """Unit of the files' coordinates that was asked for."""
    rescale: bool = False
    """Whether the objects were scaled into 0.06-0.10 m."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan:
    """What was planned, and everything that decided it.

    Attributes:
      hand: The hand.
      objects: All objects, in the order they are grasped.
      settings: Settings.
      order: Places of `objects` in the list that was given.
      ordering: Whether that order was given or searched for (auto).
      order_explanation: Why the search chose it; None if the order was given.
      preference: One for each object: weights (T,) of the contact sets that the search advises, or None.
      device: Where it was planned; another device rounds differently.
      threads: How many threads planned it, which does not change the result.
      stages: Finished stages, one for each object that was reached, as generated.
      validation: What they did in physics; None if that was not tried.
      stopped: Why there are no good grasps of all objects; None if there are.
      origin: Where hand and objects came from.
    """

    hand: Hand
    objects: tuple[Object, ...]
    settings: Settings
    order: tuple[int, ...]
    ordering: Order = "given"
    order_explanation: str | None = None
    preference: tuple[np.ndarray | None, ...]
    device: str = "cpu"
    threads: int = 1
    stages: tuple[Stage, ...] = ()
    validation: Validation | None = None
    stopped: str | None = None
    origin: Origin = Origin()

    def __repr__(self) -> str:
        names = ", ".join(item.name for item in self.objects)
        good = ", ".join(f"{stage.good.sum()} of {len(stage)}" for stage in self.stages)
        return f"Plan({self.hand.name!r}: {names}; good: {good or 'nothing planned'})"

    def best(self, stage: int = -1) -> int:
        """The best grasp of a stage: one that holds if there is any, or else a good one; see `ranked`."""
        return int(self.ranked(stage)[0])

    def ranked(self, stage: int = -1) -> np.ndarray:
        """(N,) int. All grasps of a stage, the best first.

        Those that hold come first, then good ones; of either, those that are most likely to hold (also where
        that was tried: such a grasp stands more). What is not good is ranked by how near to good it is.
        """
        chosen = self._stage(stage)
        objects = self.objects[: range(len(self.stages))[stage] + 1]
        chance = chance_to_hold(self.hand, objects, chosen)
        merit = np.where(chosen.good, -chance, chosen.measures.excess())
        return np.lexsort((merit, ~chosen.good, ~self.held(stage)))

    def held(self, stage: int = -1) -> np.ndarray:
        """(N,) bool. Which grasps of a stage hold everything in physics, as did all that they continue.

        Without a validation, none.
        """
        number = range(len(self.stages))[stage]
        if self.validation is None or number >= len(self.validation.verdicts):
            return np.zeros(len(self._stage(stage)), dtype=bool)
        return held_throughout(self.stages, self.validation)[number]

    def lineage(self, stage: int, grasp: int) -> tuple[int, ...]:
        """The grasps of the first, second, ... stage that lead to a grasp of some stage, itself last."""
        last = range(len(self.stages))[stage]
        path = [int(grasp)]
        for n in range(last, 0, -1):
            path.append(int(self.stages[n].grasps.parent[path[-1]]))
        return tuple(reversed(path))

    def summary(self) -> dict[str, Any]:
        """Counts, measures and costs of all stages as JSON-able values; docs/planning.md explains them."""
        return {
            "hand": self.hand.name,
            "seed": self.settings.seed,
            "order": [item.name for item in self.objects],
            "order_explanation": self.order_explanation,
            "stopped": self.stopped,
            "protocol": None if self.validation is None else self.validation.protocol.to_dict(),
            "stages": [_stage_summary(self, n) for n in range(len(self.stages))],
        }

    def _stage(self, stage: int) -> Stage:
        if not self.stages:
            raise PlanError(f"{self!r} has no finished stage")
        return self.stages[stage]


def plan(
    hand: Hand,
    objects: Sequence[Object],
    *,
    count: int | None = None,
    method: Method | None = None,
    order: Order = "given",
    seed: int | None = None,
    pairs: int | None = None,
    settings: Settings | None = None,
    validate: bool = True,
    protocol: str | Protocol = "paper",
    parts: PartsKind = "parts",
    threads: int | None = None,
    device: str = "cpu",
    out: str | Path | None = None,
    force: bool = False,
    origin: Origin | None = None,
    progress: Callable[[str], None] | None = None,
    on_stage: Callable[[Plan], None] | None = None,
) -> Plan:
    """Grasps of all objects, one after the other, as far as the hand can hold them.

    1. If asked for, find the order in which the hand can hold most.
    2. For each object: grasps of it while the objects before are held, continuing what held of those, from
       where it came to rest in physics.
    3. Try the stage in physics and save it. Stop, and say why, if none holds or nothing of the hand is left.

    With `out`, a stage is on disk as soon as it is finished; planning the same into the same folder again
    goes on after the last finished stage, with the result that an uninterrupted run has.

    Args:
      hand: Hand.
      objects: Objects, at least one.
      count: Grasps a stage; 256 by default. Like the next three, it replaces what `settings` has.
      method: "fast" (the default) or "paper".
      seed: Same seed, same plan; 0 by default.
      pairs: Opposed pairs of contacts that hold each object; 1 by default.
      settings: All of the settings.
      order: "given", or "auto" to search for it.
      validate: Try every stage in physics and continue only what held. Otherwise, what is geometrically good.
      protocol: What a grasp has to stand; a name of physics.protocol.PROTOCOLS or a record.
      parts: "hull" lets convex hulls stand in for the objects in physics; see objects.parts.
      threads: Threads that share the work; all cores by default. They do not change the result.
      device: "cpu", or a CUDA device such as "cuda:0".
      out: Folder to save to; see run_folder.py.
      force: Replace a plan in that folder that is not this one, or start this one anew.
      origin: Where hand and objects came from, to be saved with the plan.
      progress: Called with a line now and then.
      on_stage: Called with the plan so far after every stage.

    Raises:
      PlanError: Not even the first object can be planned, or `out` holds something else.
    """
    say = progress or (lambda _: None)
    given = {"count": count, "method": method, "seed": seed, "pairs": pairs}
    settings = replace(settings or Settings(), **{k: v for k, v in given.items() if v is not None})
    _check(hand, objects, settings, order, device)
    rules = find_protocol(protocol) if isinstance(protocol, str) else protocol
    planner = Planner.of(hand, settings, threads=threads, device=device)
    result = Plan(
        hand=hand,
        objects=tuple(objects),
        settings=settings,
        order=tuple(range(len(objects))),
        ordering=order,
        preference=(None,) * len(objects),
        device=device,
        threads=planner.threads,
        validation=Validation(protocol=rules, parts=parts) if validate else None,
        origin=origin or Origin(),
    )
    tester = Tester(hand, rules, parts=parts, threads=planner.threads)
    folder = None if out is None else _open(out, result, force)
    if folder is not None and folder.found is not None:
        result = folder.resumed(result)
    # Here, on one thread: whoever meets a kernel that is not compiled yet would compile it on several.
    used: tuple[Method, ...] = ("fast", settings.method) if order == "auto" else (settings.method,)
    for each in used:
        compile_kernels(each, device, lambda name: say(f"compiling kernels (once a machine): {name}"))
    if order == "auto" and not result.stages:
        result = _ordered(planner, result, rules, say)
    if validate:
        tester.prepare(result.objects, say)

    stopped = None
    for n in range(len(result.stages), len(objects)):
        stopped = _dead_end(result)
        if stopped:
            break
        title = f"stage {n + 1} of {len(objects)}, {result.objects[n].name}"
        before, parents = _continued(result, planner.threads)
        try:
            stage = planner.stage(
                result.objects[: n + 1],
                before,
                to_come=len(objects) - n - 1,
                parents=parents,
                preference=result.preference[n],
                progress=lambda line, title=title: say(f"{title}: {line}"),
            )
        except PlanError as error:
            if n == 0:
                raise
            stopped = str(error)
            break
        result = replace(result, stages=(*result.stages, stage))
        if result.validation is not None:
            say(f"{title}: {len(stage)} grasps in physics")
            seen = tester.add_stage(result.validation, result.objects[: n + 1], stage)
            result = replace(result, validation=seen)
        if folder is not None:
            folder.save(result)
        if on_stage is not None:
            on_stage(result)
    result = replace(result, stopped=stopped or _dead_end(result))
    if folder is not None:
        folder.save(result)
    return result


def validate(
    plan: Plan,
    protocol: str | Protocol = "paper",
    *,
    parts: PartsKind = "parts",
    hand_model: HandModel = "own",
    threads: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Plan:
    """The plan with all of its grasps tried in physics, under any protocol; `best` and `held` go by it.

    Stages are tried as they were generated; nothing is planned anew.

    Args:
      plan: Plan.
      protocol: A name of physics.protocol.PROTOCOLS, or a record.
      parts: "hull" lets convex hulls stand in for the objects; see objects.parts.
      hand_model: "menagerie" for the vendor's model of the hand, from the folder that MENAGERIE_ROOT names.
      threads: Threads that share the work; all cores by default. They do not change the result.
      progress: Called with a line now and then.

    Raises:
      PlanError: The plan has no finished stage.
      PhysicsError: There is no such protocol, or no vendor model.
    """
    say = progress or (lambda _: None)
    rules = find_protocol(protocol) if isinstance(protocol, str) else protocol
    if not plan.stages:
        raise PlanError(f"{plan!r} has no finished stage to validate")
    tester = Tester(plan.hand, rules, parts=parts, hand_model=hand_model, threads=threads)
    tester.prepare(plan.objects[: len(plan.stages)], say)
    result = Validation(protocol=rules, parts=parts)
    for n, stage in enumerate(plan.stages):
        say(f"stage {n + 1} of {len(plan.stages)}, {stage.object_name}: {len(stage)} grasps in physics")
        result = tester.add_stage(result, plan.objects[: n + 1], stage)
    return replace(plan, validation=result)


def _check(hand: Hand, objects: Sequence[Object], settings: Settings, order: str, device: str) -> None:
    """Raise PlanError for what the planner itself would not notice or not say well."""
    if not objects:
        raise PlanError("there is no object to plan for: name at least one")
    if not hand.opposition_spaces:
        raise PlanError(f"{hand.name} has no opposition space, so it can hold nothing; describe one first")
    choices = (("method", settings.method, get_args(Method)), ("order", order, get_args(Order)))
    for name, value, known in choices:
        if value not in known:
            raise PlanError(f"{name} = {value!r}; it is one of {', '.join(known)}")
    check_device(device)


def _open(out: str | Path, plan: Plan, force: bool) -> "RunFolder":
    # Saving knows what a plan is, so a plan learns of saving only here.
    from fistful.planning.run_folder import RunFolder

    return RunFolder.open(Path(out).expanduser(), plan, force=force)


def _ordered(planner: Planner, plan: Plan, protocol: Protocol, say: Callable[[str], None]) -> Plan:
    """The plan with its objects in the order that a search advises."""
    from fistful.planning.order import search_order

    found = search_order(planner, plan.objects, protocol=protocol.name, progress=say)
    return replace(
        plan,
        objects=tuple(plan.objects[i] for i in found.order),
        order=tuple(found.order),
        order_explanation=found.explanation,
        # The search may have ended before the last object.
        preference=(*found.preference, *[None] * (len(found.order) - len(found.preference))),
    )


def _continued(plan: Plan, threads: int) -> tuple[Stage | None, np.ndarray | None]:
    """The stage that the next one continues, at rest if it was tried in physics, and which grasps of it."""
    if not plan.stages or plan.validation is None:
        return (plan.stages[-1] if plan.stages else None), None
    n = len(plan.stages)
    rest = settled(plan.hand, plan.objects[:n], plan.stages[-1], plan.validation.verdicts[-1], threads)
    return rest, parents_of(rest, plan.held())


def _dead_end(plan: Plan) -> str | None:
    """Why nothing can follow the last stage: no grasp holds, or is good. None if something can."""
    if not plan.stages:
        return None
    if plan.validation is not None:
        tried = plan.validation.verdicts[-1]
        return None if plan.held().any() else why_none_held(plan.stages[-1], tried, plan.validation.protocol)
    if plan.stages[-1].good.any():
        return None
    stage, done = plan.stages[-1], len(plan.stages) == len(plan.objects)
    if plan.settings.parents == "all" and not done:
        return None
    m, limit, i = stage.measures, Tolerance(), int(stage.ranked()[0])
    overlap = max(m.penetration_mm[i], m.self_penetration_mm[i], m.object_penetration_mm[i])
    tips = ["--method fast"] if plan.settings.method == "paper" else []
    tips += ["a larger --count", "a smaller object (--rescale)"]
    tips += ["another order (--order auto)", "fewer objects"] if len(plan.stages) > 1 else ["another hand"]
    return (
        f"none of the {len(stage)} grasps of {stage.object_name} is good; the nearest one overlaps by "
        f"{overlap:.1f} mm (allowed {limit.penetration_mm:g}), its contacts are "
        f"{m.contact_distance_mm[i].max():.1f} mm off (allowed {limit.contact_mm:g}) and "
        f"{m.opposition_deg[i].max():.0f} deg from opposed (allowed {limit.opposition_deg:g}). "
        f"Try {', '.join(tips[:-1])} or {tips[-1]}"
    )


def _stage_summary(plan: Plan, number: int) -> dict[str, Any]:
    stage = plan.stages[number]
    g, m = stage.grasps, stage.measures
    records = [] if plan.validation is None else validation_record(plan.stages, plan.validation)
    used = np.bincount(g.space, minlength=len(stage.spaces))
    often = [t for t in np.argsort(-used, kind="stable") if used[t]]
    return {
        "object": stage.object_name,
        "count": len(stage),
        "good": int(stage.good.sum()),
        "opposition_spaces": {stage.spaces[t]: int(used[t]) for t in often},
        "penetration_mm": _spread(m.penetration_mm),
        "contact_distance_mm": _spread(m.contact_distance_mm.max(axis=1)),
        "self_penetration_mm": _spread(m.self_penetration_mm),
        "object_penetration_mm": _spread(m.object_penetration_mm),
        "best_quality": _number(g.quality[plan.best(number)]),
        "validation": records[number] if number < len(records) else None,
        "energy": dict(zip(TERMS, map(_number, np.median(g.energy, axis=0)), strict=True)),
        "cpu_s": round(stage.cpu_s, 3),
        "wall_s": round(stage.wall_s, 3),
    }


def _spread(values: np.ndarray) -> dict[str, float | None]:
    """Median and maximum; None where a grasp has no finite measure."""
    return {"median": _number(np.median(values)), "max": _number(np.max(values))}


def _number(value: Any) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None
