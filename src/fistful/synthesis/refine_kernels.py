# type: ignore
# ruff: noqa: B007, D103, E741, RUF046, RUF100, SIM102, UP018
"""Levenberg-Marquardt on a batch of grasps: the least-squares counterpart of the energy.

Cost = 1/2 sum of squared residuals: contact distances, overlap depths, how far opposed contacts leave
their friction cones, how far the skin's normal turns from the object's. It is zero exactly where the
grasp touches with all its contacts, opposes, and overlaps nothing.

Unknowns are (translation, rotation about the origin of H, joints). A residual that depends on one body
has the row screw . s in joint space, with s its wrench, so the curvatures s s^T are summed up the tree
before they meet the joints: H_kl = screw_k . (sum of A over the subtree of k) screw_l for l between k and
the base. That is the composite-rigid-body algorithm with curvature in the place of inertia.
"""

from fistful.geometry.quiet_warp import wp
from fistful.synthesis.energy_kernels import contact_point, sum_parts
from fistful.synthesis.field_kernels import Grid, grid_of, near
from fistful.synthesis.hand_kernels import position, rotation
from fistful.synthesis.structs import (
    DIS,
    FRICTION,
    HHO,
    HOP,
    HSP,
    OHP,
    OOP,
    BatchData,
    HandData,
    ObjectData,
    WeightData,
)

wp.set_module_options({"enable_backward": False})

MAX_MOVE = wp.constant(0.02)
MAX_TURN = wp.constant(0.3)


@wp.struct
class RefineData:
    """Memory of the refinement: D = 6 + K unknowns.

    `x`, `cost`, `H`, `g` belong to the accepted state, BatchData.x and the new_ ones to the trial.
    """

    x: wp.array2d(dtype=float)
    cost: wp.array(dtype=float)
    H: wp.array3d(dtype=float)
    g: wp.array2d(dtype=float)
    new_H: wp.array3d(dtype=float)
    new_g: wp.array2d(dtype=float)
    row: wp.array2d(dtype=float)
    L: wp.array3d(dtype=float)
    free: wp.array2d(dtype=int)
    damping: wp.array(dtype=float)
    fresh: wp.array(dtype=int)


@wp.struct
class RefineWeights:
    """Weights of the contact residuals (those of overlaps are in WeightData), and cosines of their cones."""

    dis: float
    align: float
    align_cosine: float
    friction: float
    friction_cosine: float


@wp.func
def along_chain(hand: HandData, batch: BatchData, r: RefineData, n: int, body: int, s: wp.spatial_vector):
    """Add to the row of a residual what the joints between a body and the base contribute."""
    for i in range(6):
        r.row[n, i] = r.row[n, i] + s[i]
    b = int(body)
    while b > 0:
        for j in range(hand.joint_start[b], hand.joint_start[b + 1]):
            k = hand.driver[j]
            if k >= 0:
                r.row[n, 6 + k] = r.row[n, 6 + k] + hand.factor[j] * wp.dot(batch.screw[n, j], s)
        b = hand.parent[b]


@wp.func
def wrench_at(batch: BatchData, n: int, x: wp.vec3, force: wp.vec3) -> wp.spatial_vector:
    return wp.spatial_vector(force, wp.cross(x - position(batch.x, n), force))


@wp.func
def add_single(batch: BatchData, n: int, b: int, weight: float, residual: float, s: wp.spatial_vector):
    batch.outer[n, b] = batch.outer[n, b] + weight * residual * s
    batch.outer_A[n, b] = batch.outer_A[n, b] + weight * wp.outer(s, s)


@wp.func
def contact_residuals(
    hand: HandData,
    objects: ObjectData,
    batch: BatchData,
    r: RefineData,
    w: RefineWeights,
    n: int,
    target: int,
) -> float:
    """Residuals of contacts; those of one body go to its curvature, those of two into H at once."""
    size = r.row.shape[1]
    grid = grid_of(objects, target)
    dis = float(0.0)
    friction = float(0.0)
    align = float(0.0)
    for j in range(batch.contact.shape[1]):
        c = batch.contact[n, j]
        b = hand.candidate_body[c]
        x = contact_point(hand, batch, n, j)
        m = near(grid, x)
        dis += 0.5 * m.d * m.d
        add_single(batch, n, b, w.dis, m.d, wrench_at(batch, n, x, m.g))
        skin = batch.R_OB[n, b] * hand.candidate_n_B[c]
        off = w.align_cosine + wp.dot(skin, m.n)
        if off > 0.0:
            align += 0.5 * off * off
            s = wrench_at(batch, n, x, wp.transpose(m.D) * skin)
            turn = wp.cross(skin, m.n)
            s += wp.spatial_vector(wp.vec3(0.0, 0.0, 0.0), turn)
            add_single(batch, n, b, w.align, off, s)
        # The opposed contact.
        o = j + 1 - 2 * (j % 2)
        y = contact_point(hand, batch, n, o)
        line = y - x
        length = wp.max(wp.length(line), 1.0e-3)
        u = line / length
        excess = w.friction_cosine + wp.dot(m.n, u)
        if excess > 0.0:
            friction += 0.5 * excess * excess
            across = (m.n - u * wp.dot(u, m.n)) / length
            for i in range(size):
                r.row[n, i] = 0.0
            b_o = hand.candidate_body[batch.contact[n, o]]
            along_chain(hand, batch, r, n, b, wrench_at(batch, n, x, wp.transpose(m.D) * u - across))
            along_chain(hand, batch, r, n, b_o, wrench_at(batch, n, y, across))
            for i in range(size):
                v = w.friction * r.row[n, i]
                if v != 0.0:
                    r.new_g[n, i] = r.new_g[n, i] + v * excess
                    for l in range(size):
                        r.new_H[n, i, l] = r.new_H[n, i, l] + v * r.row[n, l]
    batch.terms[n, DIS] = dis
    batch.terms[n, FRICTION] = friction
    return w.dis * dis + w.friction * friction + w.align * align


@wp.func
def sum_up_the_tree(hand: HandData, batch: BatchData, r: RefineData, n: int, target: int):
    """Gradient and Gauss-Newton matrix in joint space, from wrenches and curvatures of bodies."""
    bodies = hand.parent.shape[0]
    for b in range(bodies):
        batch.own[n, b] = batch.own[n, b] + batch.held[n, b]
        batch.own_A[n, b] = batch.own_A[n, b] + batch.held_A[n, b]
    for back in range(1, bodies):
        b = bodies - back
        parent = hand.parent[b]
        if batch.moves[n, b] == 1:
            outer = batch.outer_A[n, b]
            whole = outer + batch.own_A[n, b]
            force = batch.outer[n, b] + batch.own[n, b]
            for j in range(hand.joint_start[b], hand.joint_start[b + 1]):
                k = hand.driver[j]
                if k >= 0:
                    if batch.mask[n, k] > 0.0:
                        f = hand.factor[j]
                        screw = batch.screw[n, j]
                        on_base = outer * screw
                        r.new_g[n, 6 + k] = r.new_g[n, 6 + k] + f * wp.dot(screw, force)
                        for i in range(6):
                            r.new_H[n, 6 + k, i] = r.new_H[n, 6 + k, i] + f * on_base[i]
                            r.new_H[n, i, 6 + k] = r.new_H[n, i, 6 + k] + f * on_base[i]
                        v = whole * screw
                        r.new_H[n, 6 + k, 6 + k] = r.new_H[n, 6 + k, 6 + k] + f * f * wp.dot(screw, v)
                        a = int(b)
                        while a > 0:
                            last = hand.joint_start[a + 1]
                            if a == b:
                                last = j
                            for i in range(hand.joint_start[a], last):
                                l = hand.driver[i]
                                if l >= 0:
                                    if batch.mask[n, l] > 0.0:
                                        h = f * hand.factor[i] * wp.dot(batch.screw[n, i], v)
                                        r.new_H[n, 6 + k, 6 + l] = r.new_H[n, 6 + k, 6 + l] + h
                                        r.new_H[n, 6 + l, 6 + k] = r.new_H[n, 6 + l, 6 + k] + h
                            a = hand.parent[a]
        batch.outer[n, parent] = batch.outer[n, parent] + batch.outer[n, b]
        batch.own[n, parent] = batch.own[n, parent] + batch.own[n, b]
        batch.outer_A[n, parent] = batch.outer_A[n, parent] + batch.outer_A[n, b]
        batch.own_A[n, parent] = batch.own_A[n, parent] + batch.own_A[n, b]
    total = batch.outer[n, 0]
    A = batch.outer_A[n, 0]
    for h in range(target):
        total += batch.outer[n, bodies + h]
        A += batch.outer_A[n, bodies + h]
    for i in range(6):
        r.new_g[n, i] = r.new_g[n, i] + total[i]
        for l in range(6):
            r.new_H[n, i, l] = r.new_H[n, i, l] + A[i, l]


@wp.kernel
def assemble_kernel(
    hand: HandData,
    objects: ObjectData,
    batch: BatchData,
    r: RefineData,
    w: WeightData,
    c: RefineWeights,
    target: int,
):
    """Cost, gradient and Gauss-Newton matrix of the trial state, after touch_kernel of order 2."""
    n = wp.tid()
    if batch.active[n] == 0:
        return
    size = r.row.shape[1]
    for i in range(size):
        r.new_g[n, i] = 0.0
        for l in range(size):
            r.new_H[n, i, l] = 0.0
    contacts = contact_residuals(hand, objects, batch, r, c, n, target)
    sum_parts(hand, batch, n, target)
    sum_up_the_tree(hand, batch, r, n, target)
    batch.energy[n] = (
        contacts
        + batch.w_hop[n] * batch.terms[n, HOP]
        + w.hsp * batch.terms[n, HSP]
        + w.oop * batch.terms[n, OOP]
        + w.hho * batch.terms[n, HHO]
        + w.ohp * batch.terms[n, OHP]
    )


@wp.func
def accept(batch: BatchData, r: RefineData, n: int):
    """Make the trial the current state."""
    size = r.row.shape[1]
    r.cost[n] = batch.energy[n]
    for i in range(batch.x.shape[1]):
        r.x[n, i] = batch.x[n, i]
    for i in range(size):
        r.g[n, i] = r.new_g[n, i]
        for l in range(size):
            r.H[n, i, l] = r.new_H[n, i, l]


@wp.func
def propose(hand: HandData, batch: BatchData, r: RefineData, n: int):
    """Solve (H + damping diag) step = -g over the free unknowns, and move the trial there.

    Free are the base and the joints of J_n, but for those that sit at a limit and are pushed against it.
    """
    m = int(6)
    for i in range(6):
        r.free[n, i] = i
    for k in range(batch.mask.shape[1]):
        if batch.mask[n, k] > 0.0:
            q = r.x[n, 9 + k]
            stuck = (q <= hand.lower[k] and r.g[n, 6 + k] > 0.0) or (
                q >= hand.upper[k] and r.g[n, 6 + k] < 0.0
            )
            if not stuck:
                r.free[n, m] = 6 + k
                m += 1
    # Cholesky; metres and radians are damped in proportion to their own curvature.
    for i in range(m):
        a = r.free[n, i]
        for l in range(i + 1):
            v = r.H[n, a, r.free[n, l]]
            if i == l:
                floor = float(25.0)
                if a < 3:
                    floor = 1.0e4
                v += r.damping[n] * wp.max(v, floor) + 1.0e-3 * floor
            for k in range(l):
                v -= r.L[n, i, k] * r.L[n, l, k]
            if i == l:
                r.L[n, i, i] = wp.sqrt(wp.max(v, 1.0e-6))
            else:
                r.L[n, i, l] = v / r.L[n, l, l]
    for i in range(m):
        v = -r.g[n, r.free[n, i]]
        for k in range(i):
            v -= r.L[n, i, k] * r.row[n, k]
        r.row[n, i] = v / r.L[n, i, i]
    for back in range(m):
        i = m - 1 - back
        v = r.row[n, i]
        for k in range(i + 1, m):
            v -= r.L[n, k, i] * r.row[n, k]
        r.row[n, i] = v / r.L[n, i, i]
    # One factor for the whole step keeps its direction.
    shrink = float(1.0)
    for i in range(m):
        limit = MAX_TURN
        if i < 3:
            limit = MAX_MOVE
        shrink = wp.max(shrink, wp.abs(r.row[n, i]) / limit)
    move = wp.vec3(r.row[n, 0], r.row[n, 1], r.row[n, 2]) / shrink
    turn = wp.vec3(r.row[n, 3], r.row[n, 4], r.row[n, 5]) / shrink
    angle = wp.length(turn)
    R = rotation(r.x, n)
    if angle > 1.0e-9:
        R = wp.quat_to_matrix(wp.quat_from_axis_angle(turn / angle, angle)) * R
    for i in range(3):
        batch.x[n, i] = r.x[n, i] + move[i]
        batch.x[n, 3 + i] = R[i, 0]
        batch.x[n, 6 + i] = R[i, 1]
    for k in range(batch.mask.shape[1]):
        batch.x[n, 9 + k] = r.x[n, 9 + k]
    for i in range(6, m):
        k = r.free[n, i] - 6
        q = r.x[n, 9 + k] + r.row[n, i] / shrink
        batch.x[n, 9 + k] = wp.clamp(q, hand.lower[k], hand.upper[k])


@wp.func
def candidate_cost(hand: HandData, grid: Grid, batch: BatchData, w: RefineWeights, n: int, c: int) -> wp.vec4:
    """The object's normal under a contact candidate, and what the candidate alone would cost."""
    b = hand.candidate_body[c]
    x = batch.p_OB[n, b] + batch.R_OB[n, b] * hand.candidate_p_B[c]
    m = near(grid, x)
    off = wp.max(w.align_cosine + wp.dot(batch.R_OB[n, b] * hand.candidate_n_B[c], m.n), 0.0)
    return wp.vec4(m.n[0], m.n[1], m.n[2], 0.5 * w.dis * m.d * m.d + 0.5 * w.align * off * off)


@wp.func
def pick_contacts(
    hand: HandData,
    objects: ObjectData,
    batch: BatchData,
    scratch: wp.array2d(dtype=wp.vec4),
    w: RefineWeights,
    n: int,
    target: int,
):
    """The cheapest pair of candidates of each opposed pair of surfaces, at the bodies' present poses.

    All pairs are compared; a bound on what a pair can cost skips most of them.
    """
    grid = grid_of(objects, target)
    for i in range(batch.contact.shape[1] // 2):
        s = batch.surface[n, 2 * i]
        t = batch.surface[n, 2 * i + 1]
        a0 = hand.surface_start[s]
        b0 = hand.surface_start[t]
        rows = hand.surface_start[s + 1] - a0
        columns = hand.surface_start[t + 1] - b0
        least = float(1.0e30)
        for k in range(rows):
            scratch[n, k] = candidate_cost(hand, grid, batch, w, n, a0 + k)
        for k in range(columns):
            v = candidate_cost(hand, grid, batch, w, n, b0 + k)
            scratch[n, rows + k] = v
            least = wp.min(least, v[3])
        best = float(1.0e30)
        for k in range(rows):
            v = scratch[n, k]
            if v[3] + least < best:
                bk = hand.candidate_body[a0 + k]
                x = batch.p_OB[n, bk] + batch.R_OB[n, bk] * hand.candidate_p_B[a0 + k]
                for l in range(columns):
                    z = scratch[n, rows + l]
                    alone = v[3] + z[3]
                    if alone < best:
                        bl = hand.candidate_body[b0 + l]
                        y = batch.p_OB[n, bl] + batch.R_OB[n, bl] * hand.candidate_p_B[b0 + l]
                        line = y - x
                        u = line / wp.max(wp.length(line), 1.0e-3)
                        first = wp.max(w.friction_cosine + wp.dot(wp.vec3(v[0], v[1], v[2]), u), 0.0)
                        second = wp.max(w.friction_cosine - wp.dot(wp.vec3(z[0], z[1], z[2]), u), 0.0)
                        cost = alone + 0.5 * w.friction * (first * first + second * second)
                        if cost < best:
                            best = cost
                            batch.contact[n, 2 * i] = a0 + k
                            batch.contact[n, 2 * i + 1] = b0 + l
