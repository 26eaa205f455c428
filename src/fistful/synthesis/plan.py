"""A plan: grasps of several objects one after the other, stage by stage (SeqGrasp, Algorithm 1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from fistful.errors import PlanError
from fistful.hands.hand import Hand
from fistful.objects.object import Object
from fistful.synthesis.compiling import check_device, compile_kernels
from fistful.synthesis.measure import Tolerance
from fistful.synthesis.sequence import Planner
from fistful.synthesis.settings import Method, Settings
from fistful.synthesis.stage import Stage
from fistful.synthesis.weights import TERMS

if TYPE_CHECKING:
    from fistful.synthesis.run_folder import RunFolder

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
      stages: Finished stages, one for each object that was reached.
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
    stopped: str | None = None
    origin: Origin = Origin()

    def __repr__(self) -> str:
        names = ", ".join(item.name for item in self.objects)
        good = ", ".join(f"{stage.good.sum()} of {len(stage)}" for stage in self.stages)
        return f"Plan({self.hand.name!r}: {names}; good: {good or 'nothing planned'})"

    def best(self, stage: int = -1) -> int:
        """The best grasp of a stage: a good one if there is any, with the highest quality."""
        return int(self._stage(stage).ranked()[0])

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
            "stages": [_stage_summary(stage) for stage in self.stages],
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
    2. For each object: grasps of it while the objects before are held, continuing good grasps of those.
    3. Save the stage. Stop, and say why, if no grasp of it is good or nothing of the hand is left.

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
        origin=origin or Origin(),
    )
    folder = None if out is None else _open(out, result, force)
    if folder is not None and folder.found is not None:
        result = folder.resumed(result)
    # Here, on one thread: whoever meets a kernel that is not compiled yet would compile it on several.
    used: tuple[Method, ...] = ("fast", settings.method) if order == "auto" else (settings.method,)
    for each in used:
        compile_kernels(each, device, lambda name: say(f"compiling kernels (once a machine): {name}"))
    if order == "auto" and not result.stages:
        result = _ordered(planner, result, say)

    stopped = None
    for n in range(len(result.stages), len(objects)):
        stopped = _dead_end(result)
        if stopped:
            break
        title = f"stage {n + 1} of {len(objects)}, {result.objects[n].name}"
        try:
            stage = planner.stage(
                result.objects[: n + 1],
                result.stages[-1] if n else None,
                to_come=len(objects) - n - 1,
                preference=result.preference[n],
                progress=lambda line, title=title: say(f"{title}: {line}"),
            )
        except PlanError as error:
            if n == 0:
                raise
            stopped = str(error)
            break
        result = replace(result, stages=(*result.stages, stage))
        if folder is not None:
            folder.save(result)
        if on_stage is not None:
            on_stage(result)
    result = replace(result, stopped=stopped or _dead_end(result))
    if folder is not None:
        folder.save(result)
    return result


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
    from fistful.synthesis.run_folder import RunFolder

    return RunFolder.open(Path(out).expanduser(), plan, force=force)


def _ordered(planner: Planner, plan: Plan, say: Callable[[str], None]) -> Plan:
    """The plan with its objects in the order that a search advises."""
    from fistful.synthesis.order import search_order

    found = search_order(planner, plan.objects, progress=say)
    return replace(
        plan,
        objects=tuple(plan.objects[i] for i in found.order),
        order=tuple(found.order),
        order_explanation=found.explanation,
        # The search may have ended before the last object.
        preference=(*found.preference, *[None] * (len(found.order) - len(found.preference))),
    )


def _dead_end(plan: Plan) -> str | None:
    """Why nothing can follow the last stage: it has no good grasp. None if it has, or if all may go on."""
    if not plan.stages or plan.stages[-1].good.any():
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


def _stage_summary(stage: Stage) -> dict[str, Any]:
    g, m = stage.grasps, stage.measures
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
        "energy": dict(zip(TERMS, map(_number, np.median(g.energy, axis=0)), strict=True)),
        "cpu_s": round(stage.cpu_s, 3),
        "wall_s": round(stage.wall_s, 3),
    }


def _spread(values: np.ndarray) -> dict[str, float | None]:
    """Median and maximum; None where a grasp has no finite measure."""
    return {"median": _number(np.median(values)), "max": _number(np.max(values))}


def _number(value: Any) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None
