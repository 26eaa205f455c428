"""Which grasp of a plan is looked at: a list to sort and filter, and a way through the stages."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from fistful.errors import ViewError
from fistful.planning.plan import Plan

Order = Literal["rank", "verdict", "space", "quality", "penetration"]
ORDERS: tuple[Order, ...] = get_args(Order)
Shown = Literal["all", "holds", "fails"]
ANY_SPACE = "all"


@dataclass(frozen=True, kw_only=True)
class Filter:
    """What a list of grasps shows, and in which order."""

    order: Order = "rank"
    verdict: Shown = "all"
    space: str = ANY_SPACE
    """An opposition space, or all."""
    max_penetration_mm: float = np.inf


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the list."""

    grasp: int
    verdict: str
    space: str
    quality: float
    penetration_mm: float

    def __str__(self) -> str:
        told = f"{self.grasp} · {self.verdict} · {self.space}"
        return f"{told} · quality {self.quality:.2f} · {self.penetration_mm:.1f} mm"


class Gallery:
    """The grasps of all stages of a plan, ready to be listed. A plan without stages has nothing to show."""

    def __init__(self, plan: Plan):
        if not plan.stages:
            raise ViewError(f"{plan!r} has no finished stage: there is nothing to see yet")
        self.plan = plan
        self._ranked = [plan.ranked(n) for n in range(len(plan.stages))]
        self._held = [plan.held(n) for n in range(len(plan.stages))]
        self._overlap = [
            np.fmax(s.measures.penetration_mm, s.measures.object_penetration_mm) for s in plan.stages
        ]

    def listed(self, stage: int, wanted: Filter) -> np.ndarray:
        """(M,) int. The grasps of a stage that pass the filter, in its order; of equals, the better first."""
        grasps = self.plan.stages[stage].grasps
        i = self._ranked[stage]
        names = np.array(self.plan.stages[stage].spaces)[grasps.space]
        keep = np.ones(len(i), dtype=bool)
        if wanted.verdict != "all":
            keep &= self._held[stage][i] == (wanted.verdict == "holds")
        if wanted.space != ANY_SPACE:
            keep &= names[i] == wanted.space
        if np.isfinite(wanted.max_penetration_mm):
            keep &= self._overlap[stage][i] <= wanted.max_penetration_mm
        i = i[keep]
        key = {
            "rank": np.arange(len(i)),
            "verdict": ~self._held[stage][i],
            "space": names[i],
            "quality": -grasps.quality[i],
            "penetration": self._overlap[stage][i],
        }[wanted.order]
        return i[np.argsort(key, kind="stable")]

    def row(self, stage: int, grasp: int) -> Row:
        """One grasp."""
        s = self.plan.stages[stage]
        return Row(
            grasp=grasp,
            verdict=self._verdict(stage, grasp),
            space=s.spaces[s.grasps.space[grasp]],
            quality=float(s.grasps.quality[grasp]),
            penetration_mm=float(self._overlap[stage][grasp]),
        )

    def holding(self, stage: int) -> int:
        """How many grasps of a stage hold everything."""
        return int(self._held[stage].sum())

    def best(self, stage: int) -> int:
        """The best grasp of a stage."""
        return int(self._ranked[stage][0])

    def path(self, stage: int, grasp: int) -> list[int]:
        """Grasps of all stages, by way of one: what it continues, then the best that continues it.

        It ends early where nothing does.
        """
        path = list(self.plan.lineage(stage, grasp))
        for n in range(stage + 1, len(self.plan.stages)):
            children = self._ranked[n][self.plan.stages[n].grasps.parent[self._ranked[n]] == path[-1]]
            if not len(children):
                break
            path.append(int(children[0]))
        return path

    def explanation(self, stage: int, grasp: int) -> str:
        """One line: what physics said of a grasp."""
        validation = self.plan.validation
        if validation is None or stage >= len(validation.verdicts):
            return "not tried in physics"
        names = [item.name for item in self.plan.objects]
        told = validation.verdicts[stage].explain(grasp, names)
        if validation.verdicts[stage].success[grasp] and not self._held[stage][grasp]:
            told += "; but a grasp that it continues did not hold"
        return told

    def _verdict(self, stage: int, grasp: int) -> str:
        validation = self.plan.validation
        if validation is None or stage >= len(validation.verdicts):
            return "good" if self.plan.stages[stage].good[grasp] else "not good"
        return "holds" if self._held[stage][grasp] else "fails"
