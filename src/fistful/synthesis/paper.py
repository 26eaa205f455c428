"""The paper's optimiser: MALA as its public code runs it, 6000 steps from the inflated hull.

The text's acceptance rule (eq. 2, accept if E'/E >= u) would accept every worse grasp and is not usable;
as in the code, a proposal is accepted with probability exp((E - E') / T). Also as in the code, the
gradient is scaled by its root mean square over the batch, and there is no noise: exploration comes from
switching contacts.
"""

from dataclasses import dataclass, field
from threading import Barrier, BrokenBarrierError, Event
from typing import Any

import numpy as np

from fistful.geometry.pose import apply, frames_along
from fistful.geometry.quiet_warp import wp
from fistful.geometry.sampling import farthest_points, sample_triangles, tilted
from fistful.hands.facing import palm_facing
from fistful.hands.hand import Hand
from fistful.objects.object import Object
from fistful.synthesis.core import Core, launch, recorded
from fistful.synthesis.mala_kernels import ChainData, accept_kernel, mean_kernel, propose_kernel
from fistful.synthesis.task import Solution, Task, blocks, in_threads
from fistful.synthesis.weights import Weights

BATCH = 256
"""Grasps that share one mean square gradient, as in the paper."""
MARGIN = 1e-3
"""m. Margin of the neighbours (see neighbour_kernels): most of the 6000 steps are much shorter."""
CURVE = 150
"""About how many energies of every chain are kept for showing."""


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Settings of the paper's optimiser."""

    steps: int = 6000
    step_size: float = 0.005
    temperature: float = 32.0
    switch_probability: float = 0.3
    weights: Weights = field(default_factory=lambda: Weights(hho=5.0, turning=0.0))
    """The paper's, and our one addition: moving fingers stay out of held objects (`hho`)."""
    hull_m: float = 0.2
    """How far the object's convex hull is inflated; hands start from there ..."""
    back_off_m: tuple[float, float] = (0.2, 0.3)
    """... and a distance in this range farther away."""
    tilt_deg: float = 30.0
    """Largest angle between the approach and the direction to the object."""
    spread: float = 0.1
    """Standard deviation of the joints around the open pose, as a part of their range."""


def starts(
    hand: Hand, target: Object, q: np.ndarray, free: np.ndarray, rng: np.random.Generator, s: Paper
) -> np.ndarray:
    """States (N, 9 + K) around the target: on the inflated hull, facing it, spun at random.

    Args:
      hand: Hand.
      target: Object to grasp.
      q: (N, K) float. Joints to start from: the open pose, or those of the grasp before.
      free: (N, K) bool. Joints that may be spread around them.
      rng: Randomness.
      s: Settings.
    """
    count, model = len(q), hand.model
    vertices, faces = target.inflated_hull(s.hull_m)
    dense = sample_triangles(vertices[faces], 4 * count + 64, rng)[0]
    place = dense[farthest_points(dense, count)]
    towards = target.hull_vertices.mean(axis=0) - place
    z_O = tilted(towards / np.linalg.norm(towards, axis=1, keepdims=True), np.deg2rad(s.tilt_deg), rng)
    z_H, centre_H = palm_facing(hand)
    # R maps the facing direction of the hand to the approach, with a random spin about it.
    spin = rng.uniform(0, 2 * np.pi, count)
    R_OH = np.einsum("nij,kj->nik", frames_along(z_O, spin), frames_along(z_H[None])[0])
    p_OH = place - rng.uniform(*s.back_off_m, (count, 1)) * z_O - apply(R_OH, centre_H)
    sigma = s.spread * (model.upper - model.lower)
    drawn = np.clip(q + sigma * np.clip(rng.standard_normal(q.shape), -2, 2), model.lower, model.upper)
    return np.concatenate([p_OH, R_OH[:, :, 0], R_OH[:, :, 1], np.where(free, drawn, q)], axis=1)


def optimise(
    core: Core, task: Task, x: np.ndarray, *, seed: int, settings: Paper, threads: int = 1
) -> Solution:
    """The last state of every chain. Deterministic for a seed, whatever the number of threads.

    Args:
      core: Hand and objects.
      task: What to find.
      x: (N, 9 + K) float. States to start from; see `starts`.
      seed: Any int32.
      settings: Settings.
      threads: Threads that share each batch of 256; of no effect on a GPU.
    """
    threads = threads if core.device == "cpu" else 1
    rng = np.random.default_rng(seed)
    first, end = (core.tables.surface_start[task.surface + i] for i in (0, 1))
    contact = rng.integers(first, end)
    parts = []
    for start in range(0, len(task), BATCH):
        batch = np.arange(start, min(start + BATCH, len(task)))
        square = wp.zeros((2, len(batch), x.shape[1]), dtype=float, device=core.device)
        chains = [
            _Chains(
                core,
                task.take(block),
                x[block],
                contact[block],
                square,
                int(block[0] - start),
                seed,
                settings,
            )
            for block in (batch[b] for b in blocks(len(batch), threads, BATCH))
        ]
        barrier = Barrier(len(chains))
        parts += in_threads(lambda chain, stop: chain.run(barrier, stop), chains, len(chains))  # noqa: B023
    return Solution.join(parts)


class _Chains:
    """One block of a batch of chains; all blocks of a batch run together, each on its own thread."""

    def __init__(
        self,
        core: Core,
        task: Task,
        x: np.ndarray,
        contact: np.ndarray,
        square: Any,
        first: int,
        seed: int,
        s: Paper,
    ):
        def zeros(*shape: int, dtype: Any = float) -> Any:
            return wp.zeros(shape, dtype=dtype, device=core.device)

        N, D = len(task), x.shape[1]
        self.steps, self.every = s.steps, max(1, s.steps // CURVE)
        self.batch = core.batch(N, margin=MARGIN)
        self.batch.write_task(task)
        self.batch.write(x=x, contact=contact)
        self.batch.data.w_hop.fill_(s.weights.hop)
        c: Any = ChainData()
        c.x, c.contact, c.energy = zeros(N, D), zeros(N, core.contacts, dtype=int), zeros(N)
        c.gradient, c.step, c.mean_square = zeros(N, D), zeros(N, dtype=int), zeros(D)
        c.key = wp.array(task.key.astype(np.int32), dtype=int, device=core.device)
        c.square, c.first, c.seed, c.steps = square, first, seed, s.steps
        c.step_size, c.temperature, c.switching = s.step_size, s.temperature, s.switch_probability
        c.hop, c.growth = s.weights.hop, float(np.log(s.weights.hop_end / s.weights.hop))
        self.chain, data = c, self.batch.data
        self.evaluate = [
            *self.batch.evaluation(s.weights),
            recorded(accept_kernel, N, [data, c], core.device),
        ]
        self.propose = [
            recorded(mean_kernel, D, [c], core.device),
            recorded(propose_kernel, N, [core.hand, data, c], core.device),
        ]

    def run(self, barrier: Barrier, stop: Event) -> Solution:
        """All steps. The blocks wait for each other once a step, as the mean is over all of them."""
        curve: list[np.ndarray] = []
        try:
            launch(self.evaluate)
            for step in range(self.steps):
                if stop.is_set():
                    barrier.abort()
                barrier.wait()
                launch(self.propose)
                launch(self.evaluate)
                if step % self.every == 0:
                    curve.append(self.chain.energy.numpy().copy())
        except BrokenBarrierError:
            pass
        except BaseException:
            barrier.abort()
            raise
        x, contact = self.chain.x.numpy().copy(), self.chain.contact.numpy().copy()
        return Solution(x, contact, np.stack(curve, axis=1) if curve else np.zeros((len(x), 0), np.float32))
