# type: ignore
# ruff: noqa: B007, D103, E741, RUF046, RUF100, SIM102, UP018
"""The life of a grasp in the fast optimiser, one step a call: try starts, refine the best, succeed or start
anew.

Every grasp goes its own way, driven by its own counter-based random numbers, so neither the batch it is
in nor the number of threads changes it.
"""

from fistful.geometry.quiet_warp import wp
from fistful.synthesis.energy_kernels import contact_point
from fistful.synthesis.field_kernels import grid_of, near
from fistful.synthesis.hand_kernels import place_bodies
from fistful.synthesis.refine_kernels import RefineData, RefineWeights, accept, pick_contacts, propose
from fistful.synthesis.start_kernels import PairData, draw_start
from fistful.synthesis.structs import FRICTION, BatchData, HandData, ObjectData

wp.set_module_options({"enable_backward": False})

TRYING = wp.constant(0)
REFINING = wp.constant(1)
FIRST_DAMPING = wp.constant(0.01)
NOTHING = wp.constant(1.0e30)


@wp.struct
class LifeData:
    """Where each grasp is in its life, and the best state it has had so far."""

    key: wp.array(dtype=int)
    seed: int
    counter: wp.array(dtype=int)
    phase: wp.array(dtype=int)
    age: wp.array(dtype=int)
    mark: wp.array(dtype=float)
    lives: wp.array(dtype=int)
    start_x: wp.array2d(dtype=float)
    start_contact: wp.array2d(dtype=int)
    start_cost: wp.array(dtype=float)
    best_x: wp.array2d(dtype=float)
    best_contact: wp.array2d(dtype=int)
    best_cost: wp.array(dtype=float)
    curve: wp.array2d(dtype=float)
    evaluations: wp.array(dtype=int)
    scratch: wp.array2d(dtype=wp.vec4)
    tries: int
    steps: int
    pick_every: int
    touch: float
    depth: float


@wp.func
def is_good(
    hand: HandData, objects: ObjectData, batch: BatchData, life: LifeData, n: int, target: int
) -> bool:
    """Whether the trial state touches with all contacts, opposes within friction, and overlaps nothing."""
    good = batch.terms[n, FRICTION] < 1.0e-4
    for b in range(batch.deepest.shape[1]):
        if batch.deepest[n, b] > life.depth:
            good = False
    if good:
        for j in range(batch.contact.shape[1]):
            m = near(grid_of(objects, target), contact_point(hand, batch, n, j))
            if wp.abs(m.d) > life.touch:
                good = False
    return good


@wp.func
def next_start(
    hand: HandData,
    objects: ObjectData,
    pairs: PairData,
    batch: BatchData,
    life: LifeData,
    n: int,
    target: int,
):
    state = wp.rand_init(life.seed, life.key[n] * 65536 + life.counter[n])
    life.counter[n] = life.counter[n] + 1
    draw_start(hand, objects, pairs, batch, n, target, state)


@wp.func
def begin_life(
    hand: HandData,
    objects: ObjectData,
    pairs: PairData,
    batch: BatchData,
    life: LifeData,
    n: int,
    target: int,
):
    life.phase[n] = TRYING
    life.age[n] = 0
    life.start_cost[n] = NOTHING
    next_start(hand, objects, pairs, batch, life, n, target)


@wp.func
def keep_best(batch: BatchData, r: RefineData, life: LifeData, n: int):
    if r.cost[n] < life.best_cost[n]:
        life.best_cost[n] = r.cost[n]
        for i in range(batch.x.shape[1]):
            life.best_x[n, i] = r.x[n, i]
        for j in range(batch.contact.shape[1]):
            life.best_contact[n, j] = batch.contact[n, j]


@wp.kernel
def begin_kernel(
    hand: HandData, objects: ObjectData, pairs: PairData, batch: BatchData, life: LifeData, target: int
):
    n = wp.tid()
    life.best_cost[n] = NOTHING
    begin_life(hand, objects, pairs, batch, life, n, target)


@wp.kernel
def log_kernel(batch: BatchData, r: RefineData, life: LifeData):
    """Keep what the state that `advance_kernel` is about to choose costs: the trial's, if it is accepted."""
    n = wp.tid()
    step = life.evaluations[n]
    if batch.active[n] == 0 or step >= life.curve.shape[1]:
        return
    cost = batch.energy[n]
    if life.phase[n] == REFINING and r.fresh[n] == 0:
        cost = wp.min(cost, r.cost[n])
    life.curve[n, step] = cost
    life.evaluations[n] = step + 1


@wp.kernel
def advance_kernel(
    hand: HandData,
    objects: ObjectData,
    pairs: PairData,
    batch: BatchData,
    r: RefineData,
    c: RefineWeights,
    life: LifeData,
    target: int,
):
    n = wp.tid()
    if batch.active[n] == 0:
        return
    life.age[n] = life.age[n] + 1
    if life.phase[n] == TRYING:
        if batch.energy[n] < life.start_cost[n]:
            life.start_cost[n] = batch.energy[n]
            for i in range(batch.x.shape[1]):
                life.start_x[n, i] = batch.x[n, i]
            for j in range(batch.contact.shape[1]):
                life.start_contact[n, j] = batch.contact[n, j]
        if life.age[n] < life.tries:
            next_start(hand, objects, pairs, batch, life, n, target)
            return
        for i in range(batch.x.shape[1]):
            batch.x[n, i] = life.start_x[n, i]
        for j in range(batch.contact.shape[1]):
            batch.contact[n, j] = life.start_contact[n, j]
        if life.best_cost[n] >= NOTHING:
            # Whatever comes, there is something to show.
            for i in range(batch.x.shape[1]):
                life.best_x[n, i] = batch.x[n, i]
            for j in range(batch.contact.shape[1]):
                life.best_contact[n, j] = batch.contact[n, j]
        life.phase[n] = REFINING
        life.age[n] = 0
        life.mark[n] = NOTHING
        r.fresh[n] = 1
        r.damping[n] = FIRST_DAMPING
        return
    if r.fresh[n] == 1 or batch.energy[n] < r.cost[n]:
        if r.fresh[n] == 0:
            r.damping[n] = wp.max(0.25 * r.damping[n], 1.0e-5)
        r.fresh[n] = 0
        accept(batch, r, n)
        if is_good(hand, objects, batch, life, n, target):
            life.best_cost[n] = NOTHING
            keep_best(batch, r, life, n)
            batch.active[n] = 0
            return
    else:
        r.damping[n] = 5.0 * r.damping[n]
    if life.age[n] % life.pick_every == 0:
        # A grasp that gains little between two picks has run into a wall.
        hopeless = r.cost[n] > 0.7 * life.mark[n]
        life.mark[n] = r.cost[n]
        if hopeless or life.age[n] >= life.steps:
            keep_best(batch, r, life, n)
            life.lives[n] = life.lives[n] - 1
            if life.lives[n] <= 0:
                batch.active[n] = 0
            else:
                begin_life(hand, objects, pairs, batch, life, n, target)
            return
        for i in range(batch.x.shape[1]):
            batch.x[n, i] = r.x[n, i]
        place_bodies(hand, batch, n)
        pick_contacts(hand, objects, batch, life.scratch, c, n, target)
        r.fresh[n] = 1
        return
    propose(hand, batch, r, n)
