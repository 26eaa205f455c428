"""SeqGrasp (Algorithm 1): objects are grasped one after the other, each with what is still free."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from fistful.errors import PlanError
from fistful.hands.hand import Hand
from fistful.hands.model import Model
from fistful.hands.opposition import self_overlap
from fistful.objects.object import Object
from fistful.synthesis.compiling import compile_kernels
from fistful.synthesis.contact_set import ContactSet, contact_sets, usable_sets
from fistful.synthesis.measure import Measures
from fistful.synthesis.rounds import Rounds
from fistful.synthesis.settings import Settings
from fistful.synthesis.stage import Grasps, Stage
from fistful.synthesis.tables import HandTables
from fistful.synthesis.target import Target

OPEN_STREAM = 6
"""First number of the seed of the hands that a first stage starts with; see target.PAIRS_STREAM."""
CHUNK = 8192
"""Grasps that are planned together; more are planned in several goes, so that memory stays bounded."""


class NoSpaceLeftError(PlanError):
    """Every opposition space is spent: Algorithm 1 ends here."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Planner:
    """A hand with its contact sets and tables; plans stage after stage.

    Attributes:
      hand: Hand.
      settings: Settings.
      threads: Threads that share the work; they do not change the result.
      device: "cpu", or a CUDA device such as "cuda:0".
      sets: Contact sets of the hand.
      tables: What the kernels read of the hand.
    """

    hand: Hand
    settings: Settings
    threads: int
    device: str
    sets: tuple[ContactSet, ...]
    tables: HandTables

    @classmethod
    def of(
        cls, hand: Hand, settings: Settings, *, threads: int | None = None, device: str = "cpu"
    ) -> "Planner":
        """A planner. Raises PlanError if the hand has no contact set of that many pairs."""
        settings.check()
        if threads is not None and threads < 1:
            raise PlanError(f"threads = {threads}: at least one has to do the work")
        # Before any thread: Warp compiles and loads a module when it is first launched.
        compile_kernels(settings.method, device)
        sets = contact_sets(hand, settings.pairs)
        if not sets:
            raise NoSpaceLeftError(
                f"{hand.name} has no {settings.pairs} opposition spaces that share a surface; it has "
                f"{len(hand.opposition_spaces)} in all: use fewer pairs"
            )
        return cls(
            hand=hand,
            settings=settings,
            threads=threads or cores(),
            device=device,
            sets=sets,
            tables=HandTables.of(hand, sets, settings.skin_points),
        )

    def stage(
        self,
        objects: Sequence[Object],
        previous: Stage | None = None,
        *,
        to_come: int = 0,
        parents: np.ndarray | None = None,
        preference: np.ndarray | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Stage:
        """Grasps of the last of some objects while those before it are held (Algorithm 1, lines 3-16).

        Args:
          objects: The held objects in the order of their stages, then the target.
          previous: The stage before; None for the first.
          to_come: Objects still to be grasped after this one. Spaces that would leave too few for them are
            not used if others are there.
          parents: (P,) int. Grasps of `previous` to continue, for instance those that were validated;
            default: see Settings.parents.
          preference: (T,) float. Weights of the contact sets, for instance from the order search.
          progress: Called with a line now and then.

        Raises:
          NoSpaceLeftError: Nothing of the hand is free any more.
          PlanError: The hand can not span the object.
          ValueError: The held objects or the parents are not those of `previous`.
        """
        wall, cpu, n = time.perf_counter(), time.process_time(), len(objects) - 1
        _check_held(objects, previous)
        start = Parents.of(self, previous, parents)
        usable = start.usable(self.sets, to_come)
        able = np.flatnonzero(usable.any(axis=1))
        start, usable = start.take(able), usable[able]
        if not len(start.free):
            raise NoSpaceLeftError(
                f"no opposition space of {self.hand.name} is left for object {n + 1}, {objects[-1].name}: "
                f"the {n} before it have taken every joint"
            )
        target = Target.of(objects, self.tables, self.settings, self.device)
        target.check_span(self.hand, [self.sets[t] for t in np.flatnonzero(usable.any(axis=0))])
        parts = []
        for first in range(0, self.settings.count, CHUNK):
            count = min(CHUNK, self.settings.count - first)
            rounds = Rounds(self, target, start, usable, (self.settings.seed, n, first), preference)
            which = f"grasps {first + 1:,} to {first + count:,}, " if self.settings.count > CHUNK else ""
            parts.append(rounds.plan(count, first, lambda text, which=which: progress(which + text)))
        grasps = Grasps.join([part[0] for part in parts])
        measures = Measures.join([part[1] for part in parts])
        return Stage(
            object_name=objects[-1].name,
            object_key=objects[-1].key,
            spaces=tuple(s.name for s in self.sets),
            grasps=grasps,
            measures=measures,
            cpu_s=time.process_time() - cpu,
            wall_s=time.perf_counter() - wall,
        )


def _check_held(objects: Sequence[Object], previous: Stage | None) -> None:
    """Raise ValueError if the objects before the last are not those that the stage before holds."""
    held = 0 if previous is None else previous.grasps.p_HO.shape[1]
    names = ", ".join(item.name for item in objects)
    if len(objects) != held + 1:
        after = f"after a stage of {previous.object_name}" if previous else "in the first stage"
        raise ValueError(f"{after}, {held} objects are held: give them and the target; got {names or 'none'}")
    if previous is not None and objects[-2].key != previous.object_key:
        raise ValueError(f"the stage before holds {previous.object_name}; the objects given are {names}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Parents:
    """P grasps to continue: places in the stage before, joints, targets, free joints, held objects."""

    index: np.ndarray
    q: np.ndarray
    squeeze: np.ndarray
    free: np.ndarray
    p_HO: np.ndarray
    R_HO: np.ndarray

    @classmethod
    def of(cls, planner: Planner, previous: Stage | None, chosen: np.ndarray | None) -> "Parents":
        """The grasps of a stage to continue, the chosen ones if any; before the first, the open hand."""
        if previous is None:
            q = _opened(planner.hand.model, planner.settings)
            P = len(q)
            return cls(
                index=np.full(P, -1),
                q=q,
                squeeze=q,
                free=np.ones(q.shape, dtype=bool),
                p_HO=np.zeros((P, 0, 3)),
                R_HO=np.zeros((P, 0, 3, 3)),
            )
        good = np.flatnonzero(previous.good)
        if chosen is None:
            chosen = good if planner.settings.parents == "good" and len(good) else np.arange(len(previous))
        chosen = np.asarray(chosen)
        whole = np.issubdtype(chosen.dtype, np.integer) and chosen.ndim == 1 and len(chosen) > 0
        if not whole or np.any((chosen < 0) | (chosen >= len(previous))):
            raise ValueError(f"parents are indices below {len(previous)}, shape (P,); got {chosen!r}")
        g = previous.grasps.take(chosen)
        return cls(index=chosen, q=g.q, squeeze=g.squeeze, free=g.free, p_HO=g.p_HO, R_HO=g.R_HO)

    def take(self, index: np.ndarray) -> "Parents":
        """The parents of an index array."""
        return Parents(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def usable(self, sets: Sequence[ContactSet], to_come: int) -> np.ndarray:
        """(P, T) bool. Sets with free joints that leave as many stages as can be had, up to `to_come`."""
        kinds, which = np.unique(self.free, axis=0, return_inverse=True)
        by_kind = np.array([usable_sets(sets, free, to_come) for free in kinds])
        return by_kind[which.ravel()]


def _opened(model: Model, settings: Settings) -> np.ndarray:
    """Joints (P, K) of hands that hold nothing: the open pose, then as many around it as grasps are planned.

    Normal, cut off at two standard deviations, as the paper starts; what overlaps itself is left out.
    """
    rng = np.random.default_rng([OPEN_STREAM, settings.seed])
    off = np.clip(rng.normal(size=(min(settings.count, CHUNK) - 1, len(model.joints))), -2, 2)
    q = model.open_pose + settings.spread * (model.upper - model.lower) * off
    q = np.clip(q, model.lower, model.upper)
    return np.concatenate([model.open_pose[None], q[self_overlap(model, q) == 0.0]])


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
