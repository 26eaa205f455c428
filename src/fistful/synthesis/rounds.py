"""Rounds of one stage: choose a parent and a space, optimise, measure; what is not good is tried anew."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fistful.contact.resistance import WRENCHES, resistance
from fistful.geometry.pose import apply
from fistful.synthesis import fast, paper
from fistful.synthesis.contact_set import remaining_masks
from fistful.synthesis.core import Core
from fistful.synthesis.measure import Measures, measure
from fistful.synthesis.stage import Grasps, contact_points, inverse_pose, packed, unpacked
from fistful.synthesis.target import Target
from fistful.synthesis.targets import joint_targets
from fistful.synthesis.task import Solution, Task
from fistful.synthesis.weights import Weights

if TYPE_CHECKING:
    from fistful.synthesis.sequence import Parents, Planner

ROUNDS_STREAM = 2
"""First number of every seed for rounds; see target.PAIRS_STREAM."""
_ENERGY_BLOCK = 1024
_Record = TypeVar("_Record", Grasps, Measures)


class Rounds:
    """The making of a batch of grasps, of one stage."""

    def __init__(
        self,
        planner: "Planner",
        target: Target,
        start: "Parents",
        usable: np.ndarray,
        seed: tuple[int, ...],
        preference: np.ndarray | None,
    ):
        self.planner, self.target, self.start, self.seed = planner, target, start, seed
        wanted = usable * (1.0 if preference is None else np.asarray(preference, float))
        # Where only spent sets are preferred, any other will do.
        self.preference = np.where(wanted.any(axis=1, keepdims=True), wanted, usable)
        self.masks = remaining_masks(planner.sets, start.free)

    def plan(self, count: int, first: int, progress: Callable[[str], None]) -> tuple[Grasps, Measures]:
        """Rounds of choosing, optimising and measuring; what is good stays, the rest is tried anew."""
        s, sets = self.planner.settings, len(self.planner.sets)
        rounds = s.rounds if s.method == "fast" else 1
        made, won, todo = np.zeros(sets), np.zeros(sets), np.arange(count)
        best: tuple[Grasps, Measures] | None = None
        for turn in range(rounds):
            progress(f"round {turn + 1} of at most {rounds}: {len(todo)} grasps")
            rng = np.random.default_rng([ROUNDS_STREAM, *self.seed, turn])
            # At first every parent gets its share of children; then any parent may help out.
            parents = len(self.start.free)
            row = (first + todo) % parents if turn == 0 else rng.integers(parents, size=len(todo))
            rate = np.ones(sets) if s.uniform or turn == 0 else (won + 0.5) / (made + 1.0)
            space = _choose(self.preference[row] * rate, rng)
            new, seen = self._grasps(row, space, rng)
            made += np.bincount(space, minlength=sets)
            won += np.bincount(space[seen.good], minlength=sets)
            if best is None:
                best = new, seen
            else:
                better = seen.good | (seen.excess() < best[1].take(todo).excess())
                place = todo[better]
                best = _put(best[0], place, new.take(better)), _put(best[1], place, seen.take(better))
            todo = np.flatnonzero(~best[1].good)
            if not len(todo):
                break
        assert best is not None
        return best

    def _grasps(
        self, row: np.ndarray, space: np.ndarray, rng: np.random.Generator
    ) -> tuple[Grasps, Measures]:
        planner, start = self.planner, self.start
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
            return fast.optimise(
                core, task, self.target.pairs, seed=seed, settings=s.fast, threads=planner.threads
            )
        x = paper.starts(planner.hand, self.target.objects[-1], task.q, task.mask, rng, s.paper)
        return paper.optimise(core, task, x, seed=seed, settings=s.paper, threads=planner.threads)

    def _complete(
        self, task: Task, found: Solution, row: np.ndarray, space: np.ndarray
    ) -> tuple[Grasps, Measures]:
        """The found states as grasps: measured, with joint targets, energies and quality."""
        planner, target, start = self.planner, self.target, self.start
        hand, tables = planner.hand, planner.tables
        p_OH, R_OH, moved = unpacked(found.x)
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
            # What holds something already goes on pressing as it does.
            pre_grasp=np.where(task.mask, aims.pre_grasp, start.squeeze[row]),
            squeeze=np.where(task.mask, aims.squeeze, start.squeeze[row]),
            joint_mask=task.mask,
            free=start.free[row] & ~task.mask,
            contact_body=body,
            contact_p_B=p_B,
            contact_n_O=n_O,
            p_HO=np.concatenate([task.p_HO, p_HO[:, None]], axis=1),
            R_HO=np.concatenate([task.R_HO, R_HO[:, None]], axis=1),
            curve=found.curve,
            energy=_energies(target.core, task, found._replace(x=packed(p_OH, R_OH, q))),
            quality=resistance(
                x_O,
                n_O,
                centre_O=item.mass_properties.com_O,
                size=float(np.linalg.norm(item.report.extents_m)) / 2,
                directions=WRENCHES,
            ).value,
        )
        return grasps, measures


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


def _put(old: _Record, index: np.ndarray, new: _Record) -> _Record:
    """A record of arrays with the rows of an index array replaced."""
    columns = {}
    for f in fields(old):
        columns[f.name] = getattr(old, f.name).copy()
        columns[f.name][index] = getattr(new, f.name)
    return replace(old, **columns)
