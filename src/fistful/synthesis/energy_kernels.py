# type: ignore
# ruff: noqa: B007, D103, E741, RUF046, RUF100, SIM102, UP018
"""The energy of a batch of grasps and its gradient (SeqGrasp eq. 3): contacts, joint limits, and the sum."""

from fistful.geometry.quiet_warp import wp
from fistful.synthesis.field_kernels import grid_of, near
from fistful.synthesis.hand_kernels import position, rotation
from fistful.synthesis.structs import (
    DIS,
    FC,
    FRICTION,
    HHO,
    HOP,
    HSP,
    JOINT,
    OHP,
    OOP,
    BatchData,
    HandData,
    ObjectData,
    WeightData,
)

wp.set_module_options({"enable_backward": False})


@wp.func
def contact_point(hand: HandData, batch: BatchData, n: int, j: int) -> wp.vec3:
    c = batch.contact[n, j]
    b = hand.candidate_body[c]
    return batch.p_OB[n, b] + batch.R_OB[n, b] * hand.candidate_p_B[c]


@wp.func
def feel(hand: HandData, batch: BatchData, n: int, j: int, x: wp.vec3, force: wp.vec3):
    """Add the wrench of a force at contact j to its body."""
    b = hand.candidate_body[batch.contact[n, j]]
    arm = x - position(batch.x, n)
    batch.outer[n, b] = batch.outer[n, b] + wp.spatial_vector(force, wp.cross(arm, force))


@wp.func
def contact_terms(hand: HandData, objects: ObjectData, batch: BatchData, w: WeightData, n: int, target: int):
    """E_dis (eq. 6), E_fc (eq. 4, torque over object size) and the friction term."""
    contacts = batch.contact.shape[1]
    grid = grid_of(objects, target)
    centre = objects.centre[target]
    size = objects.size[target]
    F = wp.vec3(0.0, 0.0, 0.0)
    T = wp.vec3(0.0, 0.0, 0.0)
    dis = float(0.0)
    for j in range(contacts):
        x = contact_point(hand, batch, n, j)
        m = near(grid, x)
        dis += wp.abs(m.d)
        feel(hand, batch, n, j, x, w.dis * wp.sign(m.d) * m.g)
        F += m.n
        T += wp.cross(x - centre, m.n) / size
    for j in range(contacts):
        x = contact_point(hand, batch, n, j)
        m = near(grid, x)
        e = 2.0 * (F + wp.cross(T, x - centre) / size)
        feel(
            hand, batch, n, j, x, w.fc * (w.turning * (wp.transpose(m.D) * e) + 2.0 * wp.cross(m.n, T) / size)
        )
    friction = float(0.0)
    if w.friction > 0.0:
        cosine = 1.0 / wp.sqrt(1.0 + w.mu * w.mu)
        for i in range(contacts // 2):
            for side in range(2):
                j = 2 * i + side
                o = 2 * i + 1 - side
                x = contact_point(hand, batch, n, j)
                y = contact_point(hand, batch, n, o)
                m = near(grid, x)
                line = y - x
                length = wp.max(wp.length(line), 1.0e-4)
                u = line / length
                excess = cosine + wp.dot(m.n, u)
                if excess > 0.0:
                    friction += excess
                    turn = (m.n - u * wp.dot(u, m.n)) / length
                    feel(hand, batch, n, j, x, w.friction * (wp.transpose(m.D) * u - turn))
                    feel(hand, batch, n, o, y, w.friction * turn)
    batch.terms[n, FC] = wp.dot(F, F) + wp.dot(T, T)
    batch.terms[n, DIS] = dis
    batch.terms[n, FRICTION] = friction


@wp.func
def joint_gradient(hand: HandData, batch: BatchData, n: int):
    """Wrenches summed from the tips to the base; what each joint feels of its part of the tree."""
    bodies = hand.parent.shape[0]
    for b in range(bodies):
        batch.own[n, b] = batch.own[n, b] + batch.held[n, b] + batch.outer[n, b]
    for back in range(1, bodies):
        b = bodies - back
        for j in range(hand.joint_start[b], hand.joint_start[b + 1]):
            k = hand.driver[j]
            if k >= 0:
                batch.gradient[n, 9 + k] = batch.gradient[n, 9 + k] + hand.factor[j] * wp.dot(
                    batch.screw[n, j], batch.own[n, b]
                )
        batch.own[n, hand.parent[b]] = batch.own[n, hand.parent[b]] + batch.own[n, b]


@wp.func
def base_gradient(batch: BatchData, n: int, total: wp.spatial_vector):
    """Gradient by position and 6D rotation (a, b) of the base.

    A turn by omega moves the columns e, f, g of R; da gives omega its parts along f and g, db that along e.
    """
    tau = wp.vec3(total[3], total[4], total[5])
    a = wp.vec3(batch.x[n, 3], batch.x[n, 4], batch.x[n, 5])
    b = wp.vec3(batch.x[n, 6], batch.x[n, 7], batch.x[n, 8])
    R = rotation(batch.x, n)
    e = wp.vec3(R[0, 0], R[1, 0], R[2, 0])
    f = wp.vec3(R[0, 1], R[1, 1], R[2, 1])
    g = wp.vec3(R[0, 2], R[1, 2], R[2, 2])
    along = wp.dot(e, b)
    rest = wp.length(b - along * e)
    by_a = (wp.dot(tau, g) * f - wp.dot(tau, f) * g - wp.dot(tau, e) * along / rest * g) / wp.length(a)
    by_b = wp.dot(tau, e) / rest * g
    for i in range(3):
        batch.gradient[n, i] = total[i]
        batch.gradient[n, 3 + i] = by_a[i]
        batch.gradient[n, 6 + i] = by_b[i]


@wp.func
def sum_parts(hand: HandData, batch: BatchData, n: int, target: int):
    """The terms that touch_kernel left at bodies and held objects."""
    parts = wp.vec4(0.0, 0.0, 0.0, 0.0)
    last = hand.parent.shape[0] + target
    for b in range(last):
        parts += batch.part[n, b]
    batch.terms[n, HOP] = parts[0]
    batch.terms[n, OHP] = parts[1]
    batch.terms[n, HHO] = parts[2]
    batch.terms[n, OOP] = parts[3]
    batch.terms[n, HSP] = batch.part[n, last][0]


@wp.kernel
def energy_kernel(hand: HandData, objects: ObjectData, batch: BatchData, w: WeightData, target: int):
    n = wp.tid()
    if batch.active[n] == 0:
        return
    contact_terms(hand, objects, batch, w, n, target)
    sum_parts(hand, batch, n, target)
    overrun = float(0.0)
    for k in range(hand.lower.shape[0]):
        q = batch.x[n, 9 + k]
        above = wp.max(q - hand.upper[k], 0.0)
        below = wp.max(hand.lower[k] - q, 0.0)
        overrun += above + below
        push = float(0.0)
        if above > 0.0:
            push = w.joint
        if below > 0.0:
            push = -w.joint
        batch.gradient[n, 9 + k] = push
    batch.terms[n, JOINT] = overrun
    total = wp.spatial_vector()
    for b in range(hand.parent.shape[0] + target):
        total += batch.outer[n, b]
    base_gradient(batch, n, total)
    joint_gradient(hand, batch, n)
    batch.energy[n] = (
        w.fc * batch.terms[n, FC]
        + w.dis * batch.terms[n, DIS]
        + batch.w_hop[n] * batch.terms[n, HOP]
        + w.hsp * batch.terms[n, HSP]
        + w.joint * batch.terms[n, JOINT]
        + w.oop * batch.terms[n, OOP]
        + w.hho * batch.terms[n, HHO]
        + w.ohp * batch.terms[n, OHP]
        + w.friction * batch.terms[n, FRICTION]
    )
