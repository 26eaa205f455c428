"""The fast optimiser: antipodal starts, Levenberg-Marquardt, restart of what does not converge.

    1. lay an antipodal pair of the hand on one of the object, `tries` times; keep the cheapest;
    2. refine by Levenberg-Marquardt, choosing the contact candidates anew every few steps;
    3. done when contacts touch, oppose and nothing overlaps; a grasp that stalls starts again at 1.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fistful.geometry.quiet_warp import wp
from fistful.synthesis.core import Batch, Core, launch, recorded, weight_data
from fistful.synthesis.fast_kernels import LifeData, advance_kernel, begin_kernel
from fistful.synthesis.hand_kernels import pose_kernel
from fistful.synthesis.refine_kernels import RefineData, RefineWeights, assemble_kernel
from fistful.synthesis.start_kernels import PairData
from fistful.synthesis.touch_kernels import touch_kernel
from fistful.synthesis.weights import Weights

PER_MM2 = 1e6


@dataclass(frozen=True, kw_only=True)
class Fast:
    """Settings of the fast optimiser."""

    tries: int = 8
    """Starts to draw and compare before each refinement."""
    steps: int = 60
    """Evaluations that one refinement may take."""
    pick_every: int = 6
    """Evaluations between two choices of contact candidates."""
    lives: int = 5
    """How often a grasp may start again."""
    touch_mm: float = 0.5
    """A contact nearer than this touches."""
    depth_mm: float = 0.5
    """An overlap below this is none."""
    friction_deg: float = 25.0
    """The line through opposed contacts stays within this angle of the object's normals."""
    align_deg: float = 35.0
    """The skin's normal stays within this angle of the object's."""
    angle_weight: float = 30.0
    """mm that an error of 1 in a cosine weighs."""
    both_ways: bool = True
    """Also keep points of the object out of the hand's shapes."""


def refine_weights(s: Fast) -> Any:
    """Contact weights of the refinement."""
    w: Any = RefineWeights()
    w.dis = PER_MM2
    w.align = s.angle_weight**2
    w.align_cosine = float(np.cos(np.deg2rad(s.align_deg)))
    w.friction = s.angle_weight**2
    w.friction_cosine = float(np.cos(np.deg2rad(s.friction_deg)))
    return w


def optimise(core: Core, batch: Batch, pairs: tuple[np.ndarray, np.ndarray, np.ndarray], key: np.ndarray, seed: int, s: Fast) -> int:
    """Run it."""
    N, K, C = batch.count, core.independent, core.contacts
    D = 6 + K
    dev = core.device
    pd: Any = PairData()
    pd.a = wp.array(pairs[0].astype(np.float32), dtype=wp.vec3, device=dev)
    pd.b = wp.array(pairs[1].astype(np.float32), dtype=wp.vec3, device=dev)
    pd.width = wp.array(pairs[2].astype(np.float32), dtype=float, device=dev)
    r: Any = RefineData()
    z = lambda shape, dtype=float: wp.zeros(shape, dtype=dtype, device=dev)
    r.x = z((N, 9 + K)); r.cost = z(N); r.H = z((N, D, D)); r.g = z((N, D)); r.new_H = z((N, D, D)); r.new_g = z((N, D))
    r.row = z((N, D)); r.L = z((N, D, D)); r.free = z((N, D), int); r.damping = z(N); r.fresh = z(N, int)
    life: Any = LifeData()
    life.key = wp.array(key.astype(np.int32), dtype=int, device=dev); life.seed = seed
    for f in ("counter", "phase", "age", "lives"): setattr(life, f, z(N, int))
    life.lives.fill_(s.lives)
    life.mark = z(N); life.start_x = z((N, 9 + K)); life.start_contact = z((N, C), int); life.start_cost = z(N)
    life.best_x = z((N, 9 + K)); life.best_contact = z((N, C), int); life.best_cost = z(N)
    life.scratch = z((N, 128), wp.vec4)
    life.tries, life.steps, life.pick_every = s.tries, s.steps, s.pick_every
    life.touch, life.depth = 1e-3 * s.touch_mm, 1e-3 * s.depth_mm
    w = weight_data(Weights(hsp=PER_MM2, oop=PER_MM2, hho=PER_MM2, ohp=PER_MM2 if s.both_ways else 0.0))
    c = refine_weights(s)
    batch.data.w_hop.fill_(PER_MM2)
    wp.launch(begin_kernel, dim=N, inputs=[core.hand, pd, batch.data, life], device=dev)
    its = [
        recorded(pose_kernel, N, [core.hand, batch.data], dev),
        recorded(touch_kernel, (N, core.lanes), [core.hand, core.objects, batch.data, w, core.target, 2, core.lanes], dev),
        recorded(assemble_kernel, N, [core.hand, core.objects, batch.data, r, w, c, core.target], dev),
        recorded(advance_kernel, N, [core.hand, core.objects, pd, batch.data, r, c, life, core.target], dev),
    ]
    count = 0
    for it in range(s.lives * (s.tries + s.steps + 2)):
        launch(its)
        if it % 8 == 7:
            a = int(batch.data.active.numpy().sum())
            count += a * 8
            if a == 0:
                break
    batch.data.x.assign(life.best_x)
    batch.data.contact.assign(life.best_contact)
    return count, life, its
