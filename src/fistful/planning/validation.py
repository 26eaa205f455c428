"""Validation: the stages of a plan tried in physics, and how often they hold.

Two rates, always both. Conditional: of the grasps of a stage whose ancestors held, the share that holds. It
answers "does one more object fit", and is what the SeqGrasp paper reports. Chained: the product of these up
to a stage, which is the chance that a sequence grown from nothing holds everything.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fistful.hands.hand import Hand
from fistful.objects.object import Object
from fistful.objects.parts import ConvexParts, PartsKind, convex_parts
from fistful.physics.protocol import Protocol
from fistful.physics.scene import Scene
from fistful.physics.trial import Attempts, Film, film, simulate
from fistful.physics.vendor import HandModel
from fistful.physics.verdict import Reason, Verdicts
from fistful.synthesis.measure import Tolerance, measure
from fistful.synthesis.stage import Stage, inverse_pose


@dataclass(frozen=True, kw_only=True, eq=False)
class Validation:
    """Verdicts on the stages of a plan.

    Attributes:
      protocol: What the grasps had to stand.
      parts: "parts", or "hull" if convex hulls stood in for the objects.
      verdicts: One record a stage.
      cpu_s, wall_s: Seconds that each stage took.
    """

    protocol: Protocol
    parts: PartsKind = "parts"
    verdicts: tuple[Verdicts, ...] = ()
    cpu_s: tuple[float, ...] = ()
    wall_s: tuple[float, ...] = ()

    def with_stage(self, verdicts: Verdicts, cpu_s: float, wall_s: float) -> "Validation":
        """The validation with one more stage."""
        return replace(
            self,
            verdicts=(*self.verdicts, verdicts),
            cpu_s=(*self.cpu_s, cpu_s),
            wall_s=(*self.wall_s, wall_s),
        )


class Rates(NamedTuple):
    """How often the grasps of a stage hold. `tried` are those whose ancestors held; rates are 0 to 1."""

    generated: int
    tried: int
    valid: int
    conditional: float
    chained: float


def stage_rates(stages: Sequence[Stage], validation: Validation) -> list[Rates]:
    """The rates of every stage that was validated."""
    rates, chained = [], 1.0
    before = np.ones(1, dtype=bool)
    for n, (stage, verdicts) in enumerate(zip(stages, validation.verdicts, strict=False)):
        tried = before[stage.grasps.parent] if n else np.ones(len(stage), dtype=bool)
        before = tried & verdicts.success
        conditional = before.sum() / max(tried.sum(), 1)
        chained *= float(conditional)
        rates.append(Rates(len(stage), int(tried.sum()), int(before.sum()), float(conditional), chained))
    return rates


class Agreement(NamedTuple):
    """How many grasps hold by two validations of the same stages, by one of them, by neither."""

    both: int
    only_first: int
    only_second: int
    neither: int

    @property
    def grasps(self) -> int:
        """All of them."""
        return sum(self)

    @property
    def equal(self) -> float:
        """The share of grasps with the same verdict, 0 to 1."""
        return (self.both + self.neither) / max(self.grasps, 1)


def agreement(first: Validation, second: Validation) -> Agreement:
    """Compare two validations of the same stages: does each grasp, as it was generated, hold by both?"""
    a, b = (np.concatenate([v.success for v in each.verdicts]) for each in (first, second))
    return Agreement(*(int(np.sum(cell)) for cell in (a & b, a & ~b, ~a & b, ~a & ~b)))


def held_throughout(stages: Sequence[Stage], validation: Validation) -> list[np.ndarray]:
    """For each stage, which grasps (N,) bool hold everything, as did all grasps they continue."""
    held: list[np.ndarray] = []
    for stage, verdicts in zip(stages, validation.verdicts, strict=False):
        held.append(verdicts.success & (held[-1][stage.grasps.parent] if held else True))
    return held


class Tester:
    """Tries stages of one hand under one protocol; prepares objects once.

    Args:
      hand: Hand.
      protocol: Protocol.
      parts: "parts", or "hull" to let hulls stand in for the objects.
      hand_model: "own", or "menagerie" for the vendor's model of the hand; see physics/vendor.py.
      threads: Threads that share the work; None for all cores. They do not change the result.
    """

    def __init__(
        self,
        hand: Hand,
        protocol: Protocol,
        *,
        parts: PartsKind = "parts",
        hand_model: HandModel = "own",
        threads: int | None = None,
    ):
        self.hand, self.protocol, self.threads = hand, protocol, threads
        self.kind: PartsKind = parts
        self.hand_model: HandModel = hand_model
        self._parts: dict[str, ConvexParts] = {}

    def prepare(self, objects: Sequence[Object], progress: Callable[[str], None] = lambda _: None) -> None:
        """Cut the objects into convex parts, where that was not done before: some seconds each, once."""
        for item in objects:
            if item.key not in self._parts:
                progress(f"convex parts of {item.name}")
                self._parts[item.key] = convex_parts(item, kind=self.kind)

    def test(self, objects: Sequence[Object], attempts: Attempts) -> Verdicts:
        """Verdicts on grasps that hold all of some objects."""
        return simulate(self.scene(objects), self.protocol, attempts, threads=self.threads or 0)

    def film(self, objects: Sequence[Object], attempt: Attempts) -> Film:
        """One grasp on its way through the protocol, step by step."""
        return film(self.scene(objects), self.protocol, attempt)

    def scene(self, objects: Sequence[Object]) -> Scene:
        """The hand with some objects, compiled for the protocol."""
        self.prepare(objects)
        parts = [self._parts[item.key] for item in objects]
        return Scene.of(self.hand, objects, parts, self.protocol, self.hand_model)

    def add_stage(self, validation: Validation, objects: Sequence[Object], stage: Stage) -> Validation:
        """The validation with verdicts on one more stage."""
        wall, cpu = time.perf_counter(), time.process_time()
        verdicts = self.test(objects, attempts_of(stage))
        return validation.with_stage(verdicts, time.process_time() - cpu, time.perf_counter() - wall)


def attempts_of(stage: Stage) -> Attempts:
    """The grasps of a stage, to be tried."""
    g, m = stage.grasps, stage.measures
    overlap = np.maximum(m.penetration_mm, m.object_penetration_mm)
    return Attempts(
        q=g.q,
        pre_grasp=g.pre_grasp,
        squeeze=g.squeeze,
        moving=g.joint_mask,
        p_HO=g.p_HO,
        R_HO=g.R_HO,
        penetration_mm=np.nan_to_num(overlap, nan=np.inf),
    )


def settled(hand: Hand, objects: Sequence[Object], stage: Stage, verdicts: Verdicts, threads: int) -> Stage:
    """The stage with its grasps as they came to rest in physics, measured anew.

    What continues a grasp starts from here: joints that hold something stay where the objects stopped them.

    Args:
      hand: Hand.
      objects: The objects it holds, in the order of the stages.
      stage: As generated.
      verdicts: On all of its grasps.
      threads: Threads that share the work.
    """
    g = stage.grasps
    p_OH, R_OH = inverse_pose(verdicts.p_HO[:, -1], verdicts.R_HO[:, -1])
    # A contact presses a joint a little beyond its limit.
    q = np.clip(verdicts.q, hand.model.lower, hand.model.upper)
    grasps = replace(
        g, q=q, squeeze=verdicts.targets, p_OH=p_OH, R_OH=R_OH, p_HO=verdicts.p_HO, R_HO=verdicts.R_HO
    )
    measures = measure(
        hand,
        objects,
        p_OH,
        R_OH,
        q,
        g.contact_body,
        g.contact_p_B,
        verdicts.p_HO[:, :-1],
        verdicts.R_HO[:, :-1],
        threads=threads,
    )
    return replace(stage, grasps=grasps, measures=measures)


def parents_of(rest: Stage, held: np.ndarray) -> np.ndarray:
    """Grasps of a settled stage to continue, (P,) int: those that held, without deep overlaps if any.

    Args:
      rest: The stage, settled.
      held: (N,) bool. Which of its grasps hold everything.
    """
    limit, m = Tolerance().penetration_mm, rest.measures
    clear = held & (m.penetration_mm < limit) & (m.object_penetration_mm < limit)
    return np.flatnonzero(clear if clear.any() else held)


def why_none_held(stage: Stage, verdicts: Verdicts, protocol: Protocol) -> str:
    """One line: what happened to the grasps of a stage none of which held."""
    words = {
        Reason.DEEP: "were generated too deep in something",
        Reason.STAND_IN: "could not be judged because convex parts fill space where the hand is",
        Reason.UNTOUCHED: "did not touch every object after closing",
        Reason.LOST: "lost an object",
        Reason.MOVED: "let an object move too far",
        Reason.UNSTABLE: "broke the simulation",
    }
    counts = {reason: int((verdicts.reason == reason).sum()) for reason in words}
    told = ", ".join(f"{n} {words[r]}" for r, n in sorted(counts.items(), key=lambda e: -e[1]) if n)
    return (
        f"none of the {len(stage)} grasps of {stage.object_name} holds under protocol {protocol.name}: {told}"
    )


def reason_counts(verdicts: Verdicts) -> dict[str, int]:
    """How many grasps met each fate, by lower-case name; fates that nobody met are left out."""
    return {r.name.lower(): n for r in Reason if (n := int((verdicts.reason == r).sum()))}


def validation_record(stages: Sequence[Stage], validation: Validation) -> list[dict[str, Any]]:
    """Rates and motion of every stage as JSON-able values; rates in percent; see docs/physics.md."""
    records = []
    for n, rate in enumerate(stage_rates(stages, validation)):
        v = validation.verdicts[n]
        records.append(
            {
                "object": stages[n].object_name,
                "generated": rate.generated,
                "tried": rate.tried,
                "valid": rate.valid,
                "sr": round(100 * rate.conditional, 3),
                "sr_chained": round(100 * rate.chained, 3),
                "penetration_mm": _mean(v.penetration_mm[np.isfinite(v.penetration_mm)]),
                "drift_mm": _median(v.drift_mm[v.success]),
                "turn_deg": _median(v.turn_deg[v.success]),
                "reasons": reason_counts(v),
                "cpu_s": round(validation.cpu_s[n], 3),
                "wall_s": round(validation.wall_s[n], 3),
            }
        )
    return records


def shape_records(objects: Sequence[Object], kind: PartsKind) -> list[dict[str, Any]]:
    """How far the shapes that stand for objects in physics are from their meshes, as JSON-able values."""
    records = []
    for item in dict.fromkeys(objects):
        parts = convex_parts(item, kind=kind)
        record = {"object": item.name, "parts": len(parts.vertices), "kind": kind}
        records.append(
            record | {"outside_mm": asdict(parts.outside_mm), "inside_mm": asdict(parts.inside_mm)}
        )
    return records


def _mean(values: np.ndarray) -> float | None:
    return round(float(np.mean(values)), 4) if values.size else None


def _median(values: np.ndarray) -> float | None:
    return round(float(np.median(values)), 4) if values.size else None
