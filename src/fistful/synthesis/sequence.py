"""SeqGrasp (Algorithm 1): objects are grasped one after the other, each with what is still free of the hand."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from fistful.contact.resistance import WRENCHES, resistance
from fistful.errors import PlanError
from fistful.geometry.mesh_distance import MeshDistance
from fistful.geometry.pose import apply
from fistful.hands.hand import Hand
from fistful.objects.object import Object
from fistful.synthesis import fast, paper
from fistful.synthesis.antipodal import AntipodalPairs, antipodal_pairs
from fistful.synthesis.contact_set import ContactSet, contact_sets, remaining_masks
from fistful.synthesis.core import Core
from fistful.synthesis.fast import Fast
from fistful.synthesis.measure import Measures, measure
from fistful.synthesis.paper import Paper
from fistful.synthesis.stage import Grasps, Stage, inverse_pose
from fistful.synthesis.tables import HandTables, ObjectTables
from fistful.synthesis.targets import joint_targets
from fistful.synthesis.task import Solution, Task
from fistful.synthesis.weights import Weights

Method = Literal["fast", "paper"]
Parents = Literal["good", "all"]
CHUNK = 8192
"""Grasps that are planned together; more are planned in several goes, so that memory stays bounded."""
_ENERGY_BLOCK = 1024


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that decides what a plan is, besides hand and objects."""

    count: int = 256
    """Grasps a stage."""
    method: Method = "fast"
    """fast: antipodal starts and Levenberg-Marquardt. paper: 6000 steps of MALA."""
    seed: int = 0
    """Same seed, same plan."""
    pairs: int = 1
    """Opposed pairs of contacts that hold each object: 1 as in the paper; 2 uses three or more links."""
    rounds: int = 4
    """fast: how often what is not good is planned anew, with another opposition space and another parent."""
    uniform: bool = False
    """Choose opposition spaces uniformly, as the paper does, rather than by what the first round achieved."""
    parents: Parents = "good"
    """Which grasps of a stage the next one continues; all of them if none is good."""
    skin_points: int = 3000
    """Points on the hand that are kept out of objects."""
    object_points: int = 2048
    """Points on each object that are kept out of the hand and of other objects."""
    fast: Fast = field(default_factory=Fast)
    """Of the fast method."""
    paper: Paper = field(default_factory=Paper)
    """Of the paper's method."""


class NoSpaceLeft(PlanError):
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
        _check(settings, threads)
        sets = contact_sets(hand, settings.pairs)
        if not sets:
            raise NoSpaceLeft(
                f"{hand.name} has no {settings.pairs} opposition spaces that share a surface; it has "
                f"{len(hand.opposition_spaces)} in all: use fewer pairs"
            )
        return cls(
            hand=hand,
            settings=settings,
            threads=threads or len(os.sched_getaffinity(0)),
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
          NoSpaceLeft: Nothing of the hand is free any more.
          PlanError: The hand can not span the object.
        """
        wall, cpu, n = time.perf_counter(), time.process_time(), len(objects) - 1
        start = _Parents.of(self, previous, parents)
        usable = start.usable(self.sets, to_come)
        start, usable = start.take(usable.any(axis=1)), usable[usable.any(axis=1)]
        if not len(start.free):
            raise NoSpaceLeft(
                f"no opposition space of {self.hand.name} is left for object {n + 1}, {objects[-1].name}: all "
                f"of its {len(self.sets)} are spent after {n}"
            )
        target = _Target.of(self, objects)
        target.check_span(self, usable.any(axis=0))
        parts = []
        for first in range(0, self.settings.count, CHUNK):
            count = min(CHUNK, self.settings.count - first)
            chunk = _Chunk(self, target, start, usable, (self.settings.seed, n, first), preference)
            parts.append(chunk.plan(count, first, progress))
        grasps = Grasps.join([part[0] for part in parts])
        measures = _join([part[1] for part in parts])
        return Stage(
            object_name=objects[-1].name,
            object_key=objects[-1].key,
            spaces=tuple(s.name for s in self.sets),
            grasps=grasps,
            measures=measures,
            cpu_s=time.process_time() - cpu,
            wall_s=time.perf_counter() - wall,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Parents:
    """P grasps to continue: their places in the stage before, joints, free joints, held objects."""

    index: np.ndarray
    q: np.ndarray
    free: np.ndarray
    p_HO: np.ndarray
    R_HO: np.ndarray

    @classmethod
    def of(cls, planner: Planner, previous: Stage | None, chosen: np.ndarray | None) -> "_Parents":
        model = planner.hand.model
        if previous is None:
            K = len(model.joints)
            return cls(
                index=np.array([-1]),
                q=model.open_pose[None],
                free=np.ones((1, K), dtype=bool),
                p_HO=np.zeros((1, 0, 3)),
                R_HO=np.zeros((1, 0, 3, 3)),
            )
        good = np.flatnonzero(previous.good)
        if chosen is None:
            chosen = good if planner.settings.parents == "good" and len(good) else np.arange(len(previous))
        chosen = np.asarray(chosen)
        if chosen.dtype == bool or chosen.ndim != 1 or np.any((chosen < 0) | (chosen >= len(previous))):
            raise ValueError(f"parents are indices below {len(previous)}, shape (P,); got {chosen!r}")
        g = previous.grasps.take(chosen)
        return cls(index=chosen, q=g.q, free=g.free, p_HO=g.p_HO, R_HO=g.R_HO)

    def take(self, index: np.ndarray) -> "_Parents":
        return _Parents(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def usable(self, sets: Sequence[ContactSet], to_come: int) -> np.ndarray:
        """(P, T) bool. Sets with free joints that leave as many stages as can be had, up to `to_come`."""
        masks = tuple(tuple(bool(j) for j in s.joint_mask) for s in sets)
        spaces = tuple(s.spaces for s in sets)
        result = np.zeros((len(self.free), len(sets)), dtype=bool)
        kinds, which = np.unique(self.free, axis=0, return_inverse=True)
        for k, free in enumerate(kinds):
            after = np.array([_stages_after(masks, tuple(free.tolist()), t) for t in range(len(spaces))])
            result[which.ravel() == k] = (after >= 0) & (after >= min(to_come, after.max()))
        return result


@lru_cache(maxsize=4096)
def _stages_after(masks: tuple[tuple[bool, ...], ...], free: tuple[bool, ...], used: int) -> int:
    """How many more objects can be grasped after set `used`; -1 if it has no free joint itself."""
    if not any(m and f for m, f in zip(masks[used], free, strict=True)):
        return -1
    left = tuple(f and not m for m, f in zip(masks[used], free, strict=True))
    return 1 + max(_stages_after(masks, left, t) for t in range(len(masks)))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Target:
    """The object to grasp, with those that are held, on the device."""

    objects: tuple[Object, ...]
    core: Core
    mesh: MeshDistance
    pairs: AntipodalPairs

    @classmethod
    def of(cls, planner: Planner, objects: Sequence[Object]) -> "_Target":
        tables = ObjectTables.of(objects, planner.settings.object_points)
        rng = np.random.default_rng([planner.settings.seed, len(objects)])
        return cls(
            objects=tuple(objects),
            core=Core(planner.tables, tables, device=planner.device),
            mesh=MeshDistance(objects[-1].vertices, objects[-1].faces),
            pairs=antipodal_pairs(objects[-1], rng),
        )

    def check_span(self, planner: Planner, sets: np.ndarray) -> None:
        """Raise PlanError if no two opposed points of the object are near enough for the hand."""
        name = self.objects[-1].name
        if not len(self.pairs.width):
            raise PlanError(
                f"{name} has no two opposed surface points with room for fingers: it can not be pinched"
            )
        narrow = self.pairs.width[0]
        spans = [s.span_mm for s in planner.hand.opposition_spaces]
        if None not in spans and 1e3 * narrow <= max(span[1] for span in spans if span):
            return
        wide = _widest_opening(planner, np.flatnonzero(sets))
        if narrow > wide:
            raise PlanError(
                f"{name} is too big for {planner.hand.name}: its narrowest place measures {1e3 * narrow:.0f} "
                f"mm, and the free surfaces open to {1e3 * wide:.0f} mm; scale it (--rescale) or take another hand"
            )


class _Chunk:
    """At most CHUNK grasps of one stage."""

    def __init__(
        self,
        planner: Planner,
        target: _Target,
        start: _Parents,
        usable: np.ndarray,
        seed: tuple[int, ...],
        preference: np.ndarray | None,
    ):
        self.planner, self.target, self.start, self.usable, self.seed = planner, target, start, usable, seed
        self.preference = np.ones(len(planner.sets)) if preference is None else np.asarray(preference, float)
        self.masks = remaining_masks(planner.sets, start.free)

    def plan(self, count: int, first: int, progress: Callable[[str], None]) -> tuple[Grasps, Measures]:
        """Rounds of choosing, optimising and measuring; what is good stays, the rest is tried anew."""
        s = self.planner.settings
        rounds = s.rounds if s.method == "fast" else 1
        todo, made, won = np.arange(count), np.zeros(len(self.planner.sets)), np.zeros(len(self.planner.sets))
        grasps: Grasps | None = None
        measures: Measures | None = None
        for turn in range(rounds):
            many = f"grasps {first + 1:,} to {first + count:,}, " if s.count > CHUNK else ""
            progress(f"{many}round {turn + 1} of at most {rounds}: {len(todo)} grasps")
            rng = np.random.default_rng([*self.seed, turn])
            row = (first + todo) % len(self.start.free) if turn == 0 else rng.integers(len(self.start.free), size=len(todo))
            rate = np.ones(len(made)) if s.uniform or turn == 0 else (won + 0.5) / (made + 1.0)
            space = _choose(self.usable[row] * self.preference * rate, rng)
            new, seen = self._grasps(row, space, rng)
            good = seen.good
            np.add.at(made, space, 1)
            np.add.at(won, space[good], 1)
            if grasps is None or measures is None:
                grasps, measures = new, seen
            else:
                better = good | (_badness(seen) < _badness(measures.take(todo)))
                grasps, measures = _put(grasps, todo[better], new.take(better)), _put(measures, todo[better], seen.take(better))
            todo = np.flatnonzero(~measures.good)
            if not len(todo):
                break
        assert grasps is not None and measures is not None
        return grasps, measures

    def _grasps(self, row: np.ndarray, space: np.ndarray, rng: np.random.Generator) -> tuple[Grasps, Measures]:
        planner, target, start = self.planner, self.target, self.start
        mask = self.masks[row, space]
        task = Task(
            q=start.q[row],
            mask=mask,
            surface=planner.tables.set_surface[space],
            p_HO=start.p_HO[row],
            R_HO=start.R_HO[row],
            key=np.arange(len(row)),
        )
        found = self._optimise(task, rng)
        return self._complete(task, found, row, space)

    def _optimise(self, task: Task, rng: np.random.Generator) -> Solution:
        planner, core, s = self.planner, self.target.core, self.planner.settings
        seed = int(rng.integers(2**31))
        if s.method == "fast":
            return fast.optimise(core, task, self.target.pairs, seed=seed, settings=s.fast, threads=planner.threads)
        x = paper.starts(planner.hand, self.target.objects[-1], task.q, task.mask, rng, s.paper)
        return paper.optimise(core, task, x, seed=seed, settings=s.paper, threads=planner.threads)

    def _complete(
        self, task: Task, found: Solution, row: np.ndarray, space: np.ndarray
    ) -> tuple[Grasps, Measures]:
        """The found states as grasps: measured, with joint targets, energies and quality."""
        planner, target, start = self.planner, self.target, self.start
        hand, tables = planner.hand, planner.tables
        p_OH, R_OH, moved = unpack(found.x)
        # Joints that are not this stage's own are the parent's, bit for bit.
        q = np.where(task.mask, np.clip(moved, hand.model.lower, hand.model.upper), task.q)
        body, p_B = tables.candidate_body[found.contact], tables.candidate_p_B[found.contact]
        measures = measure(
            hand, target.objects, p_OH, R_OH, q, body, p_B, task.p_HO, task.R_HO, threads=planner.threads
        )
        x_O = p_OH[:, None] + apply(R_OH[:, None], contact_points(hand, q, body, p_B))
        n_O = target.mesh.query(x_O.reshape(-1, 3)).gradients.reshape(x_O.shape)
        aims = joint_targets(hand, p_OH, R_OH, q, task.mask, body, p_B, n_O)
        p_HO, R_HO = inverse_pose(p_OH, R_OH)
        item = target.objects[-1]
        grasps = Grasps(
            parent=start.index[row],
            space=space,
            p_OH=p_OH,
            R_OH=R_OH,
            q=q,
            pre_grasp=aims.pre_grasp,
            squeeze=aims.squeeze,
            joint_mask=task.mask,
            free=start.free[row] & ~task.mask,
            contact_body=body,
            contact_p_B=p_B,
            contact_n_O=n_O,
            p_HO=np.concatenate([task.p_HO, p_HO[:, None]], axis=1),
            R_HO=np.concatenate([task.R_HO, R_HO[:, None]], axis=1),
            energy=_energies(target.core, task, found._replace(x=_packed(p_OH, R_OH, q))),
            quality=resistance(
                x_O,
                n_O,
                centre_O=item.mass_properties.com_O,
                size=float(np.linalg.norm(item.report.extents_m)) / 2,
                directions=WRENCHES,
            ).value,
        )
        return grasps, measures


def unpack(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Position (N, 3), rotation (N, 3, 3), joints (N, K) in float64 of optimiser states (N, 9 + K)."""
    x = x.astype(float)
    e = x[:, 3:6] / np.linalg.norm(x[:, 3:6], axis=1, keepdims=True)
    f = x[:, 6:9] - np.sum(e * x[:, 6:9], axis=1, keepdims=True) * e
    f /= np.linalg.norm(f, axis=1, keepdims=True)
    return x[:, :3], np.stack([e, f, np.cross(e, f)], axis=-1), x[:, 9:]


def _packed(p_OH: np.ndarray, R_OH: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.concatenate([p_OH, R_OH[:, :, 0], R_OH[:, :, 1], q], axis=1)


def contact_points(hand: Hand, q: np.ndarray, body: np.ndarray, p_B: np.ndarray) -> np.ndarray:
    """Contact points (N, C, 3), m, in the hand base frame."""
    poses, rows = hand.poses(q), np.arange(len(q))[:, None]
    return poses.p_HB[rows, body] + apply(poses.R_HB[rows, body], p_B)


def _energies(core: Core, task: Task, found: Solution) -> np.ndarray:
    """Terms (N, 9) of the energy, all of them, unweighted."""
    parts = []
    for start in range(0, len(task), _ENERGY_BLOCK):
        index = np.arange(start, min(start + _ENERGY_BLOCK, len(task)))
        batch = core.batch(len(index))
        batch.write_task(task.take(index))
        batch.write(x=found.x[index], contact=found.contact[index])
        batch.evaluate(Weights(hho=1.0, ohp=1.0, friction=1.0))
        parts.append(batch.read("terms").astype(float))
    return np.concatenate(parts)


def _choose(weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One column of each row (N, T), drawn in proportion to its weight."""
    total = np.cumsum(weights, axis=1)
    return np.argmax(rng.uniform(size=(len(weights), 1)) * total[:, -1:] < total, axis=1)


def _badness(measures: Measures) -> np.ndarray:
    """How far grasps are from good, (N,): the worst of gaps and overlaps, mm."""
    worst = np.max(
        [
            measures.penetration_mm,
            measures.self_penetration_mm,
            measures.object_penetration_mm,
            measures.contact_distance_mm.max(axis=1),
        ],
        axis=0,
    )
    return np.nan_to_num(worst, nan=np.inf)


def _put(old, index: np.ndarray, new):
    """A record of arrays with the rows of an index array replaced."""
    columns = {}
    for f in fields(old):
        columns[f.name] = getattr(old, f.name).copy()
        columns[f.name][index] = getattr(new, f.name)
    return replace(old, **columns)


def _join(parts: Sequence[Measures]) -> Measures:
    return Measures(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Measures)})


def _widest_opening(planner: Planner, sets: np.ndarray) -> float:
    """The largest distance, m, between candidates of two surfaces that face each other, over random joints."""
    hand, rng = planner.hand, np.random.default_rng(0)
    q = rng.uniform(hand.model.lower, hand.model.upper, (256, len(hand.joints)))
    q[0] = hand.model.open_pose
    poses, widest = hand.poses(q), 0.0
    surfaces = {s.name: s.candidates for s in hand.surfaces}
    for t in sets:
        names = planner.sets[t].surfaces
        for a, b in zip(names[::2], names[1::2], strict=True):
            skins = (surfaces[a], surfaces[b])
            x, y = (poses.points(s.body, s.p_B) for s in skins)
            n, m = (poses.directions(s.body, s.n_B) for s in skins)
            line = y[:, None] - x[:, :, None]
            width = np.linalg.norm(line, axis=-1)
            facing = (np.sum(line * n[:, :, None], axis=-1) > 0.5 * width) & (
                np.sum(line * m[:, None], axis=-1) < -0.5 * width
            )
            widest = max(widest, float(np.max(width, where=facing, initial=0.0)))
    return widest


def _check(settings: Settings, threads: int | None) -> None:
    if settings.count < 1:
        raise PlanError(f"count = {settings.count}: plan at least one grasp a stage")
    if settings.pairs < 1:
        raise PlanError(f"pairs = {settings.pairs}: an object is held by at least one opposed pair")
    if threads is not None and threads < 1:
        raise PlanError(f"threads = {threads}: at least one has to do the work")
    if not 0 <= settings.seed < 2**31:
        raise PlanError(f"seed = {settings.seed}: take one from 0 to {2**31 - 1}")
