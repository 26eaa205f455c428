"""MultiGrasp's optimiser: Langevin steps of one hand around a cluster of objects that stay where they are.

The energy is a sum over the objects, each evaluated by the compiled core in its own frame. A proposal is

    x' = x - s (g / rms(g) + noise z),    z ~ N(0, 1),    s = 0.01 0.95^floor(t / 100),

with rms over the batch of 256 as in paper.py. It is accepted if u < exp((E - E') / T), where
T = 8 0.95^floor(t / 50). The noise of 0.01 is multiplied by the step, as MultiGrasp's public code does: it is
0.1 mm at first and fades with the step.

Refining then takes 1500 steps without noise, without new contacts, and refuses none: x' = x - s m, where
m = 0.9 m + 0.1 g / rms(g) and s = 0.01 0.95^floor(t / 15); the best state of each grasp is kept. The mean m
is needed because the energy is a sum of depths and distances, with a kink wherever a contact lies on a
surface: there a step along the gradient alone goes up, however short.

A contact is a candidate in a contact area, a surface on one body. In a step it may go to another area, or to
another candidate in its own, where MultiGrasp has weights of the area's corners that follow the gradient.

Three more things were chosen because they are better here. The gradient is exact, with normals that turn,
which paper.py leaves out. One contact of one object is changed at a time; MultiGrasp's code changes one of
every object at once, and most of such proposals are refused for the sake of the others. Penetration is seen
from both sides, `hop` and `ohp`: without the second, thin walls as of a mug run through palm and fingers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Barrier, BrokenBarrierError, Event
from typing import Any, NamedTuple

import numpy as np

from fistful.errors import PlanError
from fistful.geometry.quiet_warp import wp
from fistful.objects.object import Object
from fistful.synthesis import langevin_kernels
from fistful.synthesis.clusters import Clusters
from fistful.synthesis.core import Core, launch, recorded
from fistful.synthesis.langevin_kernels import (
    LangevinData,
    PlaceData,
    SumData,
    accept_kernel,
    gather_kernel,
    mean_kernel,
    place_kernel,
    propose_kernel,
)
from fistful.synthesis.tables import HandTables, ObjectTables
from fistful.synthesis.task import Solution, blocks, in_threads
from fistful.synthesis.weights import TERMS, Weights

BATCH = 256
"""Grasps that share one mean square gradient."""
MARGIN = 1e-3
"""m. Margin of the neighbours; see Core.batch and paper.MARGIN."""
MAX_STEPS = 32767
"""A grasp's stream of random numbers is that long."""


@dataclass(frozen=True, kw_only=True)
class Langevin:
    """Settings of the optimiser."""

    steps: int = 6500
    refine_steps: int = 1500
    step_size: float = 0.01
    step_period: int = 100
    """Steps after which the step size is multiplied by `decay`."""
    temperature: float = 8.0
    temperature_period: int = 50
    decay: float = 0.95
    noise: float = 0.01
    """Standard deviation of the noise, as a part of the step size."""
    switch_probability: float = 0.25
    """How often, in a step of a grasp, one contact of one object goes to another area of the hand ..."""
    slide_probability: float = 0.5
    """... or to another place in its area."""
    refine_step: float = 0.01
    """Step size at which refining begins ..."""
    refine_period: int = 15
    """... and steps after which it is multiplied by `decay`."""
    weights: Weights = field(
        default_factory=lambda: Weights(fc=1.0, dis=10.0, hop=10.0, ohp=10.0, hsp=10.0, joint=10.0)
    )
    """Those of MultiGrasp, and our `ohp`. `hop` does not grow; `oop` and `hho` have no meaning here."""

    def check(self) -> None:
        """Raise PlanError for a value that makes no sense."""
        if min(self.steps, self.refine_steps) < 0 or self.steps + self.refine_steps > MAX_STEPS:
            raise PlanError(
                f"steps = {self.steps}, refine_steps = {self.refine_steps}: take from 0 to {MAX_STEPS} in all"
            )
        if min(self.step_period, self.temperature_period) < 1:
            raise PlanError(
                f"step_period = {self.step_period}, temperature_period = {self.temperature_period}: "
                "at least one step"
            )
        if not (self.temperature > 0 and self.step_size > 0 and self.refine_step > 0 and self.decay > 0):
            raise PlanError(
                f"temperature = {self.temperature}, step_size = {self.step_size}, refine_step = "
                f"{self.refine_step}, decay = {self.decay}: all are above 0"
            )


class Areas(NamedTuple):
    """Contact areas: the candidates of one surface on one body.

    Attributes:
      area: (M,) int. Area of each candidate.
      start: (A + 1,) int. Area a has the candidates member[start[a] .. start[a + 1]].
      member: (M,) int.
    """

    area: np.ndarray
    start: np.ndarray
    member: np.ndarray


def contact_areas(hand: HandTables) -> Areas:
    """The contact areas of a hand."""
    surface = np.repeat(np.arange(len(hand.surface_start) - 1), np.diff(hand.surface_start))
    both = np.stack([surface, hand.candidate_body], axis=1)
    area = np.unique(both, axis=0, return_inverse=True)[1].ravel()
    start = np.cumsum([0, *np.bincount(area)])
    return Areas(area, start, np.argsort(area, kind="stable"))


def cluster_cores(hand: HandTables, objects: Sequence[Object], contacts: int) -> tuple[Core, ...]:
    """The core of each object with a number of contacts; only the first tests the hand against itself."""
    own = replace(hand, set_surface=np.zeros((1, contacts), dtype=int))
    nothing = np.zeros((0, 2), dtype=int)
    bare = replace(
        own, pair_body=nothing, pair_reach=np.zeros(0), pair_start=np.zeros(1, int), geom_pair=nothing
    )
    return tuple(Core(bare if k else own, ObjectTables.of([item])) for k, item in enumerate(objects))


class ClusterEnergy:
    """The summed energy of a block of grasps: state and contacts in, energy and gradient out.

    E = sum over objects of (E_fc + E_dis + E_hop) + E_hsp + E_joint, weighted; the last two once.
    """

    def __init__(self, cores: Sequence[Core], clusters: Clusters, weights: Weights):
        N, device = len(clusters), cores[0].device
        D, C = 9 + cores[0].independent, cores[0].contacts
        self.data: Any = SumData()
        self.data.x = wp.zeros((N, D), dtype=float, device=device)
        self.data.gradient = wp.zeros((N, D), dtype=float, device=device)
        self.data.contact = wp.zeros((N, len(cores) * C), dtype=int, device=device)
        self.data.energy = wp.zeros(N, dtype=float, device=device)
        self.batches = []
        self.launches: list[Any] = []
        for k, core in enumerate(cores):
            place: Any = PlaceData()
            place.p_WO = wp.array(clusters.p_WO[:, k].astype(np.float32), dtype=wp.vec3, device=device)
            place.R_WO = wp.array(clusters.R_WO[:, k].astype(np.float32), dtype=wp.mat33, device=device)
            place.index = k
            batch = core.batch(N, margin=MARGIN)
            batch.data.mask.fill_(1.0)
            batch.data.w_hop.fill_(weights.hop)
            inputs = [self.data, place, batch.data]
            self.launches += [
                recorded(place_kernel, N, inputs, device),
                *batch.evaluation(weights if k == 0 else replace(weights, hsp=0.0, joint=0.0)),
                recorded(gather_kernel, N, inputs, device),
            ]
            self.batches.append(batch)

    def write(self, x: np.ndarray, contact: np.ndarray) -> None:
        """Set states (N, 9 + K) and contacts (N, n, C)."""
        self.data.x.assign(np.ascontiguousarray(x, dtype=np.float32))
        self.data.contact.assign(np.ascontiguousarray(contact.reshape(len(x), -1), dtype=np.int32))

    def evaluate(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Energy (N,) and gradient (N, 9 + K), and the unweighted terms (N, n, 9) of each object.

        Terms of the hand alone, hsp and joint, are the same for all objects.
        """
        launch(self.launches)
        terms = np.stack([batch.read("terms") for batch in self.batches], axis=1).astype(float)
        hsp = TERMS.index("hsp")  # Only the first object's core has it.
        terms[:, :, hsp] = terms[:, :1, hsp]
        return self.data.energy.numpy().astype(float), self.data.gradient.numpy().copy(), terms


def optimise(
    cores: Sequence[Core],
    clusters: Clusters,
    x: np.ndarray,
    contact: np.ndarray,
    *,
    seed: int,
    settings: Langevin,
    threads: int = 1,
) -> Solution:
    """The last state of every chain. Deterministic for a seed, whatever the number of threads.

    Args:
      cores: Hand and objects; see `cluster_cores`.
      clusters: Where the objects are, at most 256 clusters.
      x: (N, 9 + K) float. States of the hand in W to start from.
      contact: (N, n, C) int. Contact candidates to start from.
      seed: Any int32.
      settings: Settings.
      threads: Threads that share the batch.
    """
    wp.load_module(module=langevin_kernels, device=cores[0].device)
    square = wp.zeros((2, *x.shape), dtype=float, device=cores[0].device)
    chains = [
        _Chains(cores, clusters, x, contact, block, square, seed, settings)
        for block in blocks(len(x), threads, BATCH)
    ]
    barrier = Barrier(len(chains))
    return Solution.join(in_threads(lambda chain, stop: chain.run(barrier, stop), chains, len(chains)))


class _Chains:
    """One block of a batch of chains; all blocks of a batch run together, each on its own thread."""

    def __init__(
        self,
        cores: Sequence[Core],
        clusters: Clusters,
        x: np.ndarray,
        contact: np.ndarray,
        block: np.ndarray,
        square: Any,
        seed: int,
        s: Langevin,
    ):
        device = cores[0].device

        def zeros(*shape: int, dtype: Any = float) -> Any:
            return wp.zeros(shape, dtype=dtype, device=device)

        N, D = len(block), x.shape[1]
        self.steps = s.steps + s.refine_steps
        own = Clusters(p_WO=clusters.p_WO[block], R_WO=clusters.R_WO[block], half_m=clusters.half_m[block])
        self.energy = ClusterEnergy(cores, own, s.weights)
        self.energy.write(x[block], contact[block])
        sums = self.energy.data
        chain: Any = LangevinData()
        chain.x, chain.gradient, chain.energy = zeros(N, D), zeros(N, D), zeros(N)
        chain.contact = zeros(*sums.contact.shape, dtype=int)
        chain.step, chain.mean_square = zeros(N, dtype=int), zeros(D)
        chain.best_x, chain.best_energy, chain.momentum = zeros(N, D), zeros(N), zeros(N, D)
        chain.refine_step, chain.refine_period = s.refine_step, s.refine_period
        chain.key = wp.array(block.astype(np.int32), dtype=int, device=device)
        chain.square, chain.first, chain.seed, chain.steps = square, int(block[0]), seed, s.steps
        chain.step_size, chain.step_period = s.step_size, s.step_period
        chain.temperature, chain.temperature_period = s.temperature, s.temperature_period
        chain.decay, chain.noise, chain.switching = s.decay, s.noise, s.switch_probability
        chain.sliding = s.slide_probability
        areas = contact_areas(cores[0].tables)
        chain.area, chain.area_start, chain.member = (
            wp.array(array.astype(np.int32), dtype=int, device=device) for array in areas
        )
        self.chain = chain
        self.evaluate = [*self.energy.launches, recorded(accept_kernel, N, [sums, chain], device)]
        self.propose = [
            recorded(mean_kernel, D, [chain], device),
            recorded(propose_kernel, N, [sums, chain], device),
        ]

    def run(self, barrier: Barrier, stop: Event) -> Solution:
        """All steps. The blocks wait for each other once a step, as the mean is over all of them."""
        try:
            launch(self.evaluate)
            for _ in range(self.steps):
                if stop.is_set():
                    barrier.abort()
                barrier.wait()
                launch(self.propose)
                launch(self.evaluate)
        except BrokenBarrierError:
            pass
        except BaseException:
            barrier.abort()
            raise
        return Solution(self.chain.best_x.numpy().copy(), self.chain.contact.numpy().copy())
