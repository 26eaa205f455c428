# type: ignore
# ruff: noqa: B007, D103, E741, RUF046, RUF100, SIM102, UP018
"""MultiGrasp's update rule, and the sum over the objects of a cluster.

A state of the chain is the hand in the frame W of the cluster. Each object is evaluated by the core in its
own frame O; what comes back is turned into W and added up.
"""

from fistful.geometry.quiet_warp import wp
from fistful.synthesis.structs import BatchData

wp.set_module_options({"enable_backward": False})


@wp.struct
class SumData:
    """N grasps of n objects in W: state x (N, 9 + K), contacts (N, n C); their energy and gradient."""

    x: wp.array2d(dtype=float)
    contact: wp.array2d(dtype=int)
    energy: wp.array(dtype=float)
    gradient: wp.array2d(dtype=float)


@wp.struct
class PlaceData:
    """Where object `index` of the cluster lies: p_WO, R_WO (N,)."""

    p_WO: wp.array(dtype=wp.vec3)
    R_WO: wp.array(dtype=wp.mat33)
    index: int


@wp.struct
class LangevinData:
    """State of the chains in one block of grasps, and the mean square gradient of the whole batch.

    Candidates of contact area a are member[area_start[a] .. area_start[a + 1]]; `area` tells that of each.
    `best_x` is the state at the end of the Langevin steps, or what was better when refining. `square` holds
    the squared gradients of all grasps of the batch, in two copies that take turns, so that the blocks of a
    batch need to wait for each other only once a step. The block begins at row `first`.
    """

    x: wp.array2d(dtype=float)
    contact: wp.array2d(dtype=int)
    energy: wp.array(dtype=float)
    gradient: wp.array2d(dtype=float)
    key: wp.array(dtype=int)
    step: wp.array(dtype=int)
    best_x: wp.array2d(dtype=float)
    best_energy: wp.array(dtype=float)
    momentum: wp.array2d(dtype=float)
    mean_square: wp.array(dtype=float)
    square: wp.array3d(dtype=float)
    first: int
    seed: int
    steps: int
    step_size: float
    step_period: int
    temperature: float
    temperature_period: int
    decay: float
    noise: float
    switching: float
    sliding: float
    refine_step: float
    refine_period: int
    area: wp.array(dtype=int)
    area_start: wp.array(dtype=int)
    member: wp.array(dtype=int)


@wp.func
def part(x: wp.array2d(dtype=float), n: int, i: int) -> wp.vec3:
    return wp.vec3(x[n, 3 * i], x[n, 3 * i + 1], x[n, 3 * i + 2])


@wp.kernel
def place_kernel(sums: SumData, place: PlaceData, batch: BatchData):
    """The hand in the frame of the object: p_OH = R_WO^T (p_WH - p_WO), R_OH = R_WO^T R_WH."""
    n = wp.tid()
    R_OW = wp.transpose(place.R_WO[n])
    for i in range(3):
        v = part(sums.x, n, i)
        if i == 0:
            v = v - place.p_WO[n]
        v = R_OW * v
        for j in range(3):
            batch.x[n, 3 * i + j] = v[j]
    for k in range(9, sums.x.shape[1]):
        batch.x[n, k] = sums.x[n, k]
    contacts = batch.contact.shape[1]
    for j in range(contacts):
        batch.contact[n, j] = sums.contact[n, place.index * contacts + j]


@wp.kernel
def gather_kernel(sums: SumData, place: PlaceData, batch: BatchData):
    """Energy and gradient of one object, turned into W, put down for the first and added for the others."""
    n = wp.tid()
    more = float(1.0)
    if place.index == 0:
        more = 0.0
        sums.energy[n] = 0.0
    sums.energy[n] = sums.energy[n] + batch.energy[n]
    for i in range(3):
        g = place.R_WO[n] * part(batch.gradient, n, i)
        for j in range(3):
            sums.gradient[n, 3 * i + j] = more * sums.gradient[n, 3 * i + j] + g[j]
    for k in range(9, sums.x.shape[1]):
        sums.gradient[n, k] = more * sums.gradient[n, k] + batch.gradient[n, k]


@wp.func
def draw(chain: LangevinData, n: int, t: int) -> wp.uint32:
    return wp.rand_init(chain.seed, chain.key[n] * 65536 + t)


@wp.func
def keep(chain: LangevinData, n: int):
    chain.best_energy[n] = chain.energy[n]
    for i in range(chain.x.shape[1]):
        chain.best_x[n, i] = chain.x[n, i]


@wp.kernel
def accept_kernel(sums: SumData, chain: LangevinData):
    """Accept if u < exp((E - E') / T), T = T0 0.95^floor(t / 50); the start, and when refining, always.

    What is best since refining began is kept.
    """
    n = wp.tid()
    t = chain.step[n]
    T = chain.temperature * wp.pow(chain.decay, float(t // chain.temperature_period))
    u = wp.randf(draw(chain, n, 2 * t))
    if t == 0 or t > chain.steps or u < wp.exp((chain.energy[n] - sums.energy[n]) / T):
        chain.energy[n] = sums.energy[n]
        for i in range(sums.x.shape[1]):
            chain.x[n, i] = sums.x[n, i]
            chain.gradient[n, i] = sums.gradient[n, i]
        for j in range(sums.contact.shape[1]):
            chain.contact[n, j] = sums.contact[n, j]
    if t <= chain.steps or chain.energy[n] < chain.best_energy[n]:
        keep(chain, n)
    for i in range(sums.x.shape[1]):
        chain.square[t % 2, chain.first + n, i] = chain.gradient[n, i] * chain.gradient[n, i]


@wp.kernel
def mean_kernel(chain: LangevinData):
    """v = 0.98 mean over the batch of g^2 + 0.02 v, one thread a coordinate, always in the same order."""
    i = wp.tid()
    t = chain.step[0]
    count = chain.square.shape[1]
    total = float(0.0)
    for n in range(count):
        total += chain.square[t % 2, n, i]
    chain.mean_square[i] = 0.98 * total / float(count) + 0.02 * chain.mean_square[i]


@wp.kernel
def propose_kernel(sums: SumData, chain: LangevinData):
    """x' = x - s (g / sqrt(v) + noise z), z normal, s = s0 0.95^floor(t / 100); often with another contact.

    When refining, x' = x - s m, with m = 0.9 m + 0.1 g / sqrt(v).
    """
    n = wp.tid()
    t = chain.step[n]
    state = draw(chain, n, 2 * t + 1)
    refining = t >= chain.steps
    s = chain.step_size * wp.pow(chain.decay, float(t // chain.step_period))
    if refining:
        s = chain.refine_step * wp.pow(chain.decay, float((t - chain.steps) // chain.refine_period))
    for i in range(sums.x.shape[1]):
        way = chain.gradient[n, i] / (wp.sqrt(chain.mean_square[i]) + 1.0e-6)
        if refining:
            way = 0.9 * chain.momentum[n, i] + 0.1 * way
            chain.momentum[n, i] = way
        else:
            way += chain.noise * wp.randn(state)
        sums.x[n, i] = chain.x[n, i] - s * way
    for j in range(sums.contact.shape[1]):
        sums.contact[n, j] = chain.contact[n, j]
    if not refining:
        u = wp.randf(state)
        j = wp.randi(state, 0, sums.contact.shape[1])
        a = chain.area[chain.contact[n, j]]
        if u < chain.switching:
            a = wp.randi(state, 0, chain.area_start.shape[0] - 1)
        if u < chain.switching + chain.sliding:
            sums.contact[n, j] = chain.member[wp.randi(state, chain.area_start[a], chain.area_start[a + 1])]
    chain.step[n] = t + 1
