# type: ignore
# ruff: noqa: B007, D103, E741, RUF046, RUF100, SIM102, UP018
"""Starts of the fast optimiser: an antipodal pair of the hand is laid on an antipodal pair of the object.

An opposition space is a pair of surfaces that face each other. Draw joints, find two candidates that face
each other, and two opposed points of the object about as far apart; then only the spin about the line
through them is free. A few points of the hand and of held objects tell which spin is the clearest. That
is most of a grasp.
"""

from fistful.geometry.quiet_warp import wp
from fistful.synthesis.field_kernels import Grid, grid_of, value
from fistful.synthesis.hand_kernels import place_bodies
from fistful.synthesis.structs import BatchData, HandData, ObjectData

wp.set_module_options({"enable_backward": False})

DRAWS = wp.constant(6)
PAIRS = wp.constant(24)
SPINS = wp.constant(6)
FACING = wp.constant(0.7)
WINDOW = wp.constant(0.006)
"""m. How far the widths of the two pairs may differ."""


@wp.struct
class PairData:
    """Opposed points of the object, sorted by width."""

    a: wp.array(dtype=wp.vec3)
    b: wp.array(dtype=wp.vec3)
    width: wp.array(dtype=float)


@wp.func
def first_wider(pairs: PairData, width: float) -> int:
    """How many pairs are narrower than `width`."""
    low = int(0)
    high = int(pairs.width.shape[0])
    while low < high:
        middle = (low + high) // 2
        if pairs.width[middle] < width:
            low = middle + 1
        else:
            high = middle
    return low


@wp.func
def frame(e: wp.vec3) -> wp.mat33:
    """A rotation whose first column is the unit vector e."""
    other = wp.vec3(1.0, 0.0, 0.0)
    if wp.abs(e[0]) > 0.7:
        other = wp.vec3(0.0, 1.0, 0.0)
    f = wp.normalize(wp.cross(e, other))
    return wp.matrix_from_cols(e, f, wp.cross(e, f))


@wp.func
def probed(
    hand: HandData,
    objects: ObjectData,
    grid: Grid,
    batch: BatchData,
    n: int,
    target: int,
    p: wp.vec3,
    R: wp.mat33,
) -> float:
    """How deep the probes are in the target, summed, m, with the hand base at (p, R) and its bodies in H."""
    total = float(0.0)
    for i in range(hand.probe_body.shape[0]):
        b = hand.probe_body[i]
        x = p + R * (batch.p_OB[n, b] + batch.R_OB[n, b] * hand.probe_p_B[i])
        total += wp.max(-value(grid, x), 0.0)
    for h in range(target):
        for i in range(objects.probe.shape[1]):
            x = p + R * (batch.p_HO[n, h] + batch.R_HO[n, h] * objects.probe[h, i])
            total += wp.max(-value(grid, x), 0.0)
    return total


@wp.func
def draw_start(
    hand: HandData,
    objects: ObjectData,
    pairs: PairData,
    batch: BatchData,
    n: int,
    target: int,
    state: wp.uint32,
):
    """Write a start to grasp n: joints of J_n, pose of the base, first pair of contacts."""
    for i in range(9):
        batch.x[n, i] = 0.0
    batch.x[n, 3] = 1.0
    batch.x[n, 7] = 1.0
    count = pairs.width.shape[0]
    narrow = pairs.width[0]
    wide = pairs.width[count - 1]
    s = batch.surface[n, 0]
    t = batch.surface[n, 1]
    best = float(-1.0e30)
    x_a = wp.vec3(0.0, 0.0, 0.0)
    x_b = wp.vec3(0.0, 0.0, 0.0)
    for draw in range(DRAWS):
        if best < FACING:
            for k in range(batch.mask.shape[1]):
                if batch.mask[n, k] > 0.0:
                    batch.x[n, 9 + k] = wp.randf(state, hand.lower[k], hand.upper[k])
            place_bodies(hand, batch, n)
            # Joints are drawn anew until a pair fits them, so a pair of an earlier draw is of no use.
            best = float(-1.0e30)
            for attempt in range(PAIRS):
                a = wp.randi(state, hand.surface_start[s], hand.surface_start[s + 1])
                b = wp.randi(state, hand.surface_start[t], hand.surface_start[t + 1])
                i = hand.candidate_body[a]
                j = hand.candidate_body[b]
                y_a = batch.p_OB[n, i] + batch.R_OB[n, i] * hand.candidate_p_B[a]
                y_b = batch.p_OB[n, j] + batch.R_OB[n, j] * hand.candidate_p_B[b]
                line = y_b - y_a
                width = wp.max(wp.length(line), 1.0e-4)
                u = line / width
                facing = wp.min(
                    wp.dot(batch.R_OB[n, i] * hand.candidate_n_B[a], u),
                    -wp.dot(batch.R_OB[n, j] * hand.candidate_n_B[b], u),
                )
                # A pair that is too narrow or too wide for the object is as bad as one that faces away.
                misfit = wp.max(wp.max(narrow - width, width - wide), 0.0)
                score = wp.min(facing, 0.95) - 50.0 * misfit
                if score > best:
                    best = score
                    x_a = y_a
                    x_b = y_b
                    batch.contact[n, 0] = a
                    batch.contact[n, 1] = b
    line = x_b - x_a
    width = wp.length(line)
    if width < 1.0e-4:
        line = wp.vec3(1.0, 0.0, 0.0)
    low = first_wider(pairs, width - WINDOW)
    high = first_wider(pairs, width + WINDOW)
    if low >= high:
        low = wp.clamp(low - 8, 0, count - 1)
        high = wp.min(low + 16, count)
    pick = wp.randi(state, low, high)
    y_a = pairs.a[pick]
    y_b = pairs.b[pick]
    if wp.randf(state) < 0.5:
        swap = y_a
        y_a = y_b
        y_b = swap
    for j in range(2, batch.contact.shape[1]):
        more = batch.surface[n, j]
        batch.contact[n, j] = wp.randi(state, hand.surface_start[more], hand.surface_start[more + 1])
    grid = grid_of(objects, target)
    along = frame(wp.normalize(y_b - y_a))
    back = wp.transpose(frame(wp.normalize(line)))
    first = wp.randf(state, 0.0, 6.2831853)
    least = float(1.0e30)
    for i in range(SPINS):
        angle = first + 6.2831853 * float(i) / float(SPINS)
        R = along * wp.quat_to_matrix(wp.quat_from_axis_angle(wp.vec3(1.0, 0.0, 0.0), angle)) * back
        p = 0.5 * (y_a + y_b) - R * (0.5 * (x_a + x_b))
        depth = probed(hand, objects, grid, batch, n, target, p, R)
        if depth < least:
            least = depth
            for k in range(3):
                batch.x[n, k] = p[k]
                batch.x[n, 3 + k] = R[k, 0]
                batch.x[n, 6 + k] = R[k, 1]
