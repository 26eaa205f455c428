# type: ignore
# ruff: noqa: B007, D103, E741, RUF046, RUF100, SIM102, UP018
"""The paper's update rule, as its public code runs it (SeqGrasp Algorithm 1, lines 6-8)."""

from fistful.geometry.quiet_warp import wp
from fistful.synthesis.structs import BatchData, HandData

wp.set_module_options({"enable_backward": False})


@wp.struct
class ChainData:
    """State of the chains in one block of grasps, and the mean square gradient of the whole batch.

    `square` holds the squared gradients of all grasps of the batch, in two copies that take turns, so that
    the blocks of a batch need to wait for each other only once a step. The block begins at row `first`.
    """

    x: wp.array2d(dtype=float)
    contact: wp.array2d(dtype=int)
    energy: wp.array(dtype=float)
    gradient: wp.array2d(dtype=float)
    key: wp.array(dtype=int)
    step: wp.array(dtype=int)
    mean_square: wp.array(dtype=float)
    square: wp.array3d(dtype=float)
    first: int
    seed: int
    steps: int
    step_size: float
    temperature: float
    switching: float
    hop: float
    growth: float


@wp.func
def draw(chain: ChainData, n: int, t: int) -> wp.uint32:
    return wp.rand_init(chain.seed, chain.key[n] * 65536 + t)


@wp.kernel
def accept_kernel(batch: BatchData, chain: ChainData):
    """Accept the proposal if u < exp((E - E') / T), T = T0 0.95^floor(t / 30); the start always."""
    n = wp.tid()
    t = chain.step[n]
    state = draw(chain, n, 2 * t)
    T = chain.temperature * wp.pow(0.95, float(t // 30))
    if t == 0 or wp.randf(state) < wp.exp((chain.energy[n] - batch.energy[n]) / T):
        chain.energy[n] = batch.energy[n]
        for i in range(batch.x.shape[1]):
            chain.x[n, i] = batch.x[n, i]
            chain.gradient[n, i] = batch.gradient[n, i]
        for j in range(batch.contact.shape[1]):
            chain.contact[n, j] = batch.contact[n, j]
    for i in range(batch.x.shape[1]):
        chain.square[t % 2, chain.first + n, i] = chain.gradient[n, i] * chain.gradient[n, i]


@wp.kernel
def mean_kernel(chain: ChainData):
    """v = 0.98 mean over the batch of g^2 + 0.02 v, one thread a coordinate, always in the same order."""
    i = wp.tid()
    t = chain.step[0]
    count = chain.square.shape[1]
    total = float(0.0)
    for n in range(count):
        total += chain.square[t % 2, n, i]
    chain.mean_square[i] = 0.98 * total / float(count) + 0.02 * chain.mean_square[i]


@wp.kernel
def propose_kernel(hand: HandData, batch: BatchData, chain: ChainData):
    """x' = x - s [1, J_n] g / sqrt(v), s = s0 0.95^floor(t / 50); now and then a contact is switched."""
    n = wp.tid()
    t = chain.step[n]
    s = chain.step_size * wp.pow(0.95, float(t // 50))
    for i in range(batch.x.shape[1]):
        stride = s * chain.gradient[n, i] / (wp.sqrt(chain.mean_square[i]) + 1.0e-6)
        if i >= 9:
            stride *= batch.mask[n, i - 9]
        batch.x[n, i] = chain.x[n, i] - stride
    state = draw(chain, n, 2 * t + 1)
    for j in range(batch.contact.shape[1]):
        batch.contact[n, j] = chain.contact[n, j]
        if wp.randf(state) < chain.switching:
            surface = batch.surface[n, j]
            batch.contact[n, j] = wp.randi(
                state, hand.surface_start[surface], hand.surface_start[surface + 1]
            )
    batch.w_hop[n] = chain.hop * wp.exp(chain.growth * float(t + 1) / float(chain.steps))
    chain.step[n] = t + 1
