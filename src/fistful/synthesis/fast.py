"""The fast optimiser: antipodal starts, Levenberg-Marquardt, and a new start for what does not converge.

    1. Lay an antipodal pair of the hand on one of the object, `tries` times; keep the cheapest.
    2. Refine it by Levenberg-Marquardt, choosing the contact candidates anew every few steps.
    3. Done when all contacts touch and oppose and nothing overlaps. A grasp that stalls goes back to 1.

Grasps do not know of each other, so the result depends neither on how they are split nor on threads.
"""

from dataclasses import dataclass
from threading import Event
from typing import Any

import numpy as np

from fistful.geometry.quiet_warp import wp
from fistful.hands.skin import MAX_CANDIDATES
from fistful.synthesis.antipodal import AntipodalPairs
from fistful.synthesis.core import Core, launch, recorded, weight_data
from fistful.synthesis.fast_kernels import LifeData, advance_kernel, begin_kernel, log_kernel
from fistful.synthesis.hand_kernels import pose_kernel
from fistful.synthesis.refine_kernels import RefineData, RefineWeights, assemble_kernel
from fistful.synthesis.start_kernels import PairData
from fistful.synthesis.task import Solution, Task, blocks, in_threads
from fistful.synthesis.touch_kernels import touch_kernel
from fistful.synthesis.weights import Weights

PER_MM2 = 1e6
"""Residuals are counted in millimetres: a squared metre weighs this."""
BLOCK = 512
"""Grasps that one thread works on at a time."""
_LOOK = 8  # Evaluations between two looks at how many grasps are still at work.


@dataclass(frozen=True, kw_only=True)
class Fast:
    """Settings of the fast optimiser."""

    tries: int = 6
    """Starts to draw and compare before each refinement."""
    steps: int = 60
    """Evaluations that one refinement may take."""
    pick_every: int = 6
    """Evaluations between two choices of contact candidates."""
    lives: int = 2
    """How often a grasp may start before another opposition space is tried."""
    touch_mm: float = 0.4
    """A contact nearer than this touches."""
    depth_mm: float = 0.25
    """An overlap below this is none."""
    friction_deg: float = 15.0
    """The line through opposed contacts stays within this angle of the object's normals."""
    align_deg: float = 35.0
    """The skin's normal stays within this angle of the object's."""
    angle_weight_mm: float = 20.0
    """What an error of 1 in a cosine counts."""
    both_ways: bool = True
    """Also keep points of the object out of the hand's shapes, not only skin out of the object."""


def optimise(
    core: Core, task: Task, pairs: AntipodalPairs, *, seed: int, settings: Fast, threads: int = 1
) -> Solution:
    """Grasps for a task, the best state that each has had. Deterministic for a seed.

    Args:
      core: Hand and objects.
      task: What to find.
      pairs: Antipodal pairs of the target; not empty.
      seed: Any int32.
      settings: Settings.
      threads: Threads that share the grasps; of no effect on a GPU.
    """
    opposed: Any = PairData()
    opposed.a = wp.array(pairs.a_O.astype(np.float32), dtype=wp.vec3, device=core.device)
    opposed.b = wp.array(pairs.b_O.astype(np.float32), dtype=wp.vec3, device=core.device)
    opposed.width = wp.array(pairs.width.astype(np.float32), dtype=float, device=core.device)

    def work(block: np.ndarray, stop: Event) -> Solution:
        lives = _Lives(core, task.take(block), opposed, seed, settings)
        lives.run(stop)
        return lives.best()

    split = blocks(len(task), threads, BLOCK) if core.device == "cpu" else [np.arange(len(task))]
    return Solution.join(in_threads(work, split, threads))


class _Lives:
    """One block of grasps on its way."""

    def __init__(self, core: Core, task: Task, opposed: Any, seed: int, s: Fast):
        def zeros(*shape: int, dtype: Any = float) -> Any:
            return wp.zeros(shape, dtype=dtype, device=core.device)

        N, K, C = len(task), core.independent, core.contacts
        D = 6 + K
        self.batch = core.batch(N, second_order=True)
        self.batch.write_task(task)
        self.batch.data.w_hop.fill_(PER_MM2)
        r: Any = RefineData()
        r.x, r.cost, r.damping, r.fresh = zeros(N, 9 + K), zeros(N), zeros(N), zeros(N, dtype=int)
        r.H, r.new_H, r.L = zeros(N, D, D), zeros(N, D, D), zeros(N, D, D)
        r.g, r.new_g, r.row, r.free = zeros(N, D), zeros(N, D), zeros(N, D), zeros(N, D, dtype=int)
        self.refine = r
        life: Any = LifeData()
        life.key = wp.array(task.key.astype(np.int32), dtype=int, device=core.device)
        life.seed = seed
        for name in ("counter", "phase", "age", "lives"):
            setattr(life, name, zeros(N, dtype=int))
        life.lives.fill_(s.lives)
        life.mark, life.start_cost, life.best_cost = zeros(N), zeros(N), zeros(N)
        life.start_x, life.best_x = zeros(N, 9 + K), zeros(N, 9 + K)
        life.start_contact, life.best_contact = zeros(N, C, dtype=int), zeros(N, C, dtype=int)
        self.most = s.lives * (s.tries + s.steps + s.pick_every)
        life.curve, life.evaluations = zeros(N, self.most), zeros(N, dtype=int)
        life.curve.fill_(np.nan)
        life.scratch = zeros(N, 2 * MAX_CANDIDATES, dtype=wp.vec4)
        life.tries, life.steps, life.pick_every = s.tries, s.steps, s.pick_every
        life.touch, life.depth = 1e-3 * s.touch_mm, 1e-3 * s.depth_mm
        self.life = life
        overlaps = Weights(hsp=PER_MM2, oop=PER_MM2, hho=PER_MM2, ohp=PER_MM2 if s.both_ways else 0.0)
        w, c, data = weight_data(overlaps), _contact_weights(s), self.batch.data
        hand, objects, target, device = core.hand, core.objects, core.target, core.device
        self.begin = recorded(begin_kernel, N, [hand, objects, opposed, data, life, target], device)
        self.step = [
            recorded(pose_kernel, N, [hand, data], device),
            recorded(touch_kernel, (N, core.lanes), [hand, objects, data, w, target, 2, core.lanes], device),
            recorded(assemble_kernel, N, [hand, objects, data, r, w, c, target], device),
            recorded(log_kernel, N, [data, r, life], device),
            recorded(advance_kernel, N, [hand, objects, opposed, data, r, c, life, target], device),
        ]

    def run(self, stop: Event) -> None:
        """Step until every grasp is done."""
        launch([self.begin])
        for step in range(self.most):
            launch(self.step)
            if step % _LOOK == 0 and (stop.is_set() or not self.batch.data.active.numpy().any()):
                return

    def best(self) -> Solution:
        life = self.life
        return Solution(*(a.numpy().copy() for a in (life.best_x, life.best_contact, life.curve)))


def _contact_weights(s: Fast) -> Any:
    w: Any = RefineWeights()
    w.dis = PER_MM2
    w.align = w.friction = s.angle_weight_mm**2
    w.align_cosine = float(np.cos(np.deg2rad(s.align_deg)))
    w.friction_cosine = float(np.cos(np.deg2rad(s.friction_deg)))
    return w
