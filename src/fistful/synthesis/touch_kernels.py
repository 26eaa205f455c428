# type: ignore
# ruff: noqa: B007, D103, E741, RUF046, RUF100, SIM102, UP018
"""What touches what: overlaps of hand, target object, held objects and the hand itself, as wrenches on
bodies.

A slot is a body, a held object or the hand against itself.
`order` 1 sums depths, as the paper's terms do: a point of depth d pushes with force 1. `order` 2 sums
half squares, pushes with d, and also sums the curvature s s^T of each point, where s is the wrench of its
unit force: the Gauss-Newton matrix of a body. Only what is listed as near is looked at, and bounding balls
of shape and group of points are tested first, conservatively: skipping changes no digit.
"""

from fistful.geometry.quiet_warp import wp
from fistful.synthesis.field_kernels import Grid, clearance, distance, grid_of
from fistful.synthesis.hand_kernels import position, rotation, shape_distance, shape_of
from fistful.synthesis.neighbour_kernels import FAR, list_pairs, list_skin
from fistful.synthesis.structs import BatchData, HandData, ObjectData, WeightData

wp.set_module_options({"enable_backward": False})


@wp.struct
class Push:
    """Sums over the overlapping points of one owner: energy, wrench, deepest overlap."""

    energy: float
    wrench: wp.spatial_vector
    deepest: float


@wp.struct
class Curvature:
    """Where to add weight s s^T for every overlapping point, when the order is 2: one slot, or two bodies."""

    A: wp.array2d(dtype=wp.spatial_matrix)
    weight: float
    order: int
    n: int
    slot: int
    other: int


@wp.func
def curvature(
    A: wp.array2d(dtype=wp.spatial_matrix), weight: float, order: int, n: int, slot: int
) -> Curvature:
    to = Curvature()
    to.A = A
    to.weight = weight
    to.order = order
    to.n = n
    to.slot = slot
    to.other = -1
    return to


@wp.func
def pushed(push: Push, to: Curvature, depth: float, outward: wp.vec3, arm: wp.vec3) -> Push:
    """The sums with one more point, at `arm` from the origin of H, which moving `outward` would free."""
    s = wp.spatial_vector(outward, wp.cross(arm, outward))
    push.deepest = wp.max(push.deepest, depth)
    if to.order == 1:
        push.energy += depth
        push.wrench -= s
    else:
        push.energy += 0.5 * depth * depth
        push.wrench -= depth * s
        A = to.weight * wp.outer(s, s)
        to.A[to.n, to.slot] = to.A[to.n, to.slot] + A
        if to.other >= 0:
            to.A[to.n, to.other] = to.A[to.n, to.other] + A
    return push


@wp.func
def skin_in_object(
    hand: HandData,
    grid: Grid,
    batch: BatchData,
    n: int,
    k: int,
    b: int,
    to: Curvature,
    p_KB: wp.vec3,
    R_KB: wp.mat33,
    R_OK: wp.mat33,
    base_K: wp.vec3,
) -> Push:
    """Listed skin points of body b inside object k; the body's pose is given in the object's frame K.

    Wrenches are about the origin of the hand base, which is at base_K, in axes of O.
    """
    push = Push()
    first = hand.tree_point[hand.geom_start[b]]
    for j in range(first, first + batch.near_count[n, k, b]):
        p = p_KB + R_KB * hand.points[batch.near_skin[n, k, j]]
        d = distance(grid, p)
        if d[3] < 0.0:
            outward = R_OK * wp.vec3(d[0], d[1], d[2])
            push = pushed(push, to, -d[3], outward, R_OK * (p - base_K))
    return push


@wp.func
def object_in_shapes(
    hand: HandData,
    objects: ObjectData,
    grid: Grid,
    k: int,
    b: int,
    to: Curvature,
    p_KB: wp.vec3,
    R_KB: wp.mat33,
    R_OK: wp.mat33,
    base_K: wp.vec3,
) -> Push:
    """Surface points of object k inside the shapes of body b; the wrench is the body's."""
    push = Push()
    for g in range(hand.geom_start[b], hand.geom_start[b + 1]):
        p_KG = p_KB + R_KB * hand.p_BG[g]
        if clearance(grid, p_KG) <= hand.ball[g]:
            R_KG = R_KB * hand.R_BG[g]
            R_GK = wp.transpose(R_KG)
            shape = shape_of(hand, g)
            node = objects.tree_node[k]
            end = objects.tree_node[k + 1]
            while node < end:
                ball = objects.node_ball[node]
                after = objects.node_next[node]
                if shape_distance(shape, R_GK * (wp.vec3(ball[0], ball[1], ball[2]) - p_KG))[3] <= ball[3]:
                    for i in range(after[1], after[2]):
                        p = objects.points[i]
                        d = shape_distance(shape, R_GK * (p - p_KG))
                        if d[3] < 0.0:
                            # The body has to move against the gradient for the point to come out.
                            outward = R_OK * (R_KG * wp.vec3(-d[0], -d[1], -d[2]))
                            push = pushed(push, to, -d[3], outward, R_OK * (p - base_K))
                    node += 1
                else:
                    node = after[0]
    return push


@wp.func
def held_in_target(objects: ObjectData, batch: BatchData, n: int, h: int, target: int, to: Curvature) -> Push:
    """Surface points of held object h inside the target; it moves with the base of the hand."""
    push = Push()
    grid = grid_of(objects, target)
    R_OH = rotation(batch.x, n)
    p_OH = position(batch.x, n)
    R_OK = R_OH * batch.R_HO[n, h]
    p_OK = p_OH + R_OH * batch.p_HO[n, h]
    node = objects.tree_node[h]
    end = objects.tree_node[h + 1]
    while node < end:
        ball = objects.node_ball[node]
        after = objects.node_next[node]
        if clearance(grid, p_OK + R_OK * wp.vec3(ball[0], ball[1], ball[2])) <= ball[3]:
            for i in range(after[1], after[2]):
                p = p_OK + R_OK * objects.points[i]
                if clearance(grid, p) <= 0.0:
                    d = distance(grid, p)
                    if d[3] < 0.0:
                        push = pushed(push, to, -d[3], wp.vec3(d[0], d[1], d[2]), p - p_OH)
            node += 1
        else:
            node = after[0]
    return push


@wp.func
def skin_in_shape(
    hand: HandData,
    g: int,
    h: int,
    to: Curvature,
    p_Oa: wp.vec3,
    R_Oa: wp.mat33,
    p_Oh: wp.vec3,
    R_Oh: wp.mat33,
    base_O: wp.vec3,
) -> Push:
    """Skin points of shape g, whose body is at (p_Oa, R_Oa), inside shape h; the wrench is of g's body."""
    push = Push()
    R_hO = wp.transpose(R_Oh)
    shape = shape_of(hand, h)
    node = hand.tree_node[g]
    end = hand.tree_node[g + 1]
    while node < end:
        ball = hand.node_ball[node]
        after = hand.node_next[node]
        spot = p_Oa + R_Oa * wp.vec3(ball[0], ball[1], ball[2])
        if shape_distance(shape, R_hO * (spot - p_Oh))[3] <= ball[3]:
            for i in range(after[1], after[2]):
                p = p_Oa + R_Oa * hand.points[i]
                d = shape_distance(shape, R_hO * (p - p_Oh))
                if d[3] < 0.0:
                    push = pushed(push, to, -d[3], R_Oh * wp.vec3(d[0], d[1], d[2]), p - base_O)
            node += 1
        else:
            node = after[0]
    return push


@wp.func
def meet_itself(hand: HandData, batch: BatchData, w: WeightData, n: int, order: int, slot: int):
    """Overlaps of the hand with itself, all listed pairs; equal and opposite wrenches on the two bodies."""
    for b in range(hand.parent.shape[0]):
        batch.own[n, b] = wp.spatial_vector()
        if order == 2:
            batch.own_A[n, b] = wp.spatial_matrix()
    energy = float(0.0)
    deepest = float(0.0)
    base_O = position(batch.x, n)
    for j in range(batch.near_pair_count[n]):
        shapes = hand.geom_pair[batch.near_pair[n, j]]
        g = shapes[0]
        h = shapes[1]
        a = hand.geom_body[g]
        b = hand.geom_body[h]
        p_a = batch.p_OB[n, a]
        R_a = batch.R_OB[n, a]
        p_b = batch.p_OB[n, b]
        R_b = batch.R_OB[n, b]
        p_g = p_a + R_a * hand.p_BG[g]
        p_h = p_b + R_b * hand.p_BG[h]
        # (u - v)^2 <= 2 u^2 + 2 v^2: the curvatures of the two bodies bound that of the pair.
        both = curvature(batch.own_A, 2.0 * w.hsp, order, n, a)
        both.other = b
        there = skin_in_shape(hand, g, h, both, p_a, R_a, p_h, R_b * hand.R_BG[h], base_O)
        back = skin_in_shape(hand, h, g, both, p_b, R_b, p_g, R_a * hand.R_BG[g], base_O)
        energy += there.energy + back.energy
        deepest = wp.max(deepest, wp.max(there.deepest, back.deepest))
        force = w.hsp * (there.wrench - back.wrench)
        batch.own[n, a] = batch.own[n, a] + force
        batch.own[n, b] = batch.own[n, b] - force
    batch.part[n, slot] = wp.vec4(energy, 0.0, 0.0, 0.0)
    batch.deepest[n, slot] = deepest


@wp.func
def meet_target(
    hand: HandData,
    objects: ObjectData,
    grid: Grid,
    batch: BatchData,
    w: WeightData,
    n: int,
    b: int,
    target: int,
    order: int,
):
    """Body b and the target object, skin in object and object in shapes."""
    same = wp.identity(3, dtype=float)
    base_O = position(batch.x, n)
    p_OB = batch.p_OB[n, b]
    R_OB = batch.R_OB[n, b]
    to = curvature(batch.outer_A, batch.w_hop[n], order, n, b)
    hop = skin_in_object(hand, grid, batch, n, target, b, to, p_OB, R_OB, same, base_O)
    batch.outer[n, b] = batch.w_hop[n] * hop.wrench
    batch.part[n, b] = wp.vec4(hop.energy, 0.0, 0.0, 0.0)
    batch.deepest[n, b] = hop.deepest
    if w.ohp > 0.0:
        to.weight = w.ohp
        ohp = object_in_shapes(hand, objects, grid, target, b, to, p_OB, R_OB, same, base_O)
        batch.outer[n, b] = batch.outer[n, b] + w.ohp * ohp.wrench
        batch.part[n, b] = wp.vec4(hop.energy, ohp.energy, 0.0, 0.0)
        batch.deepest[n, b] = wp.max(hop.deepest, ohp.deepest)


@wp.func
def meet_held(
    hand: HandData, objects: ObjectData, batch: BatchData, w: WeightData, n: int, b: int, h: int, order: int
):
    """Body b, which moves, and held object h, which does not."""
    grid = grid_of(objects, h)
    R_KH = wp.transpose(batch.R_HO[n, h])
    R_KO = R_KH * wp.transpose(rotation(batch.x, n))
    base_K = R_KH * (-batch.p_HO[n, h])
    origin = position(batch.x, n)
    if clearance(grid, base_K + R_KO * (batch.centre[n, b] - origin)) > hand.body_radius[b]:
        return
    p_KB = base_K + R_KO * (batch.p_OB[n, b] - origin)
    R_KB = R_KO * batch.R_OB[n, b]
    R_OK = wp.transpose(R_KO)
    to = curvature(batch.held_A, w.hho, order, n, b)
    list_skin(hand, grid, batch, n, h, b, 0.0, p_KB, R_KB)
    into = skin_in_object(hand, grid, batch, n, h, b, to, p_KB, R_KB, R_OK, base_K)
    wrench = into.wrench
    energy = into.energy
    deepest = into.deepest
    if w.ohp > 0.0:
        onto = object_in_shapes(hand, objects, grid, h, b, to, p_KB, R_KB, R_OK, base_K)
        wrench += onto.wrench
        energy += onto.energy
        deepest = wp.max(deepest, onto.deepest)
    batch.held[n, b] = batch.held[n, b] + w.hho * wrench
    batch.part[n, b] = batch.part[n, b] + wp.vec4(0.0, 0.0, energy, 0.0)
    batch.deepest[n, b] = wp.max(batch.deepest[n, b], deepest)


@wp.func
def touch(
    hand: HandData,
    objects: ObjectData,
    batch: BatchData,
    w: WeightData,
    n: int,
    target: int,
    order: int,
    lane: int,
    lanes: int,
):
    """Overlaps of grasp n: every so many slots, which are bodies, held objects, and the hand with itself.

    One call for all slots, as Warp passes records by value and copying them takes longer than most slots do.
    """
    grid = grid_of(objects, target)
    bodies = hand.parent.shape[0]
    for slot in range(lane, bodies + target + 1, lanes):
        if slot < bodies:
            batch.outer[n, slot] = wp.spatial_vector()
            batch.held[n, slot] = wp.spatial_vector()
            batch.part[n, slot] = wp.vec4()
            batch.deepest[n, slot] = 0.0
            if order == 2:
                batch.outer_A[n, slot] = wp.spatial_matrix()
                batch.held_A[n, slot] = wp.spatial_matrix()
            if batch.stale[n] == 1:
                batch.near_count[n, target, slot] = FAR
                if clearance(grid, batch.centre[n, slot]) <= hand.body_radius[slot] + batch.margin:
                    p_OB = batch.p_OB[n, slot]
                    list_skin(hand, grid, batch, n, target, slot, batch.margin, p_OB, batch.R_OB[n, slot])
            if batch.near_count[n, target, slot] != FAR:
                meet_target(hand, objects, grid, batch, w, n, slot, target, order)
            if target > 0 and w.hho > 0.0 and batch.moves[n, slot] == 1:
                for h in range(target):
                    meet_held(hand, objects, batch, w, n, slot, h, order)
        elif slot < bodies + target:
            if order == 2:
                batch.outer_A[n, slot] = wp.spatial_matrix()
            to = curvature(batch.outer_A, w.oop, order, n, slot)
            push = held_in_target(objects, batch, n, slot - bodies, target, to)
            batch.outer[n, slot] = w.oop * push.wrench
            batch.part[n, slot] = wp.vec4(0.0, 0.0, 0.0, push.energy)
            batch.deepest[n, slot] = push.deepest
        else:
            if batch.stale[n] == 1:
                list_pairs(hand, batch, n, order)
            meet_itself(hand, batch, w, n, order, slot)


@wp.kernel
def touch_kernel(
    hand: HandData, objects: ObjectData, batch: BatchData, w: WeightData, target: int, order: int, lanes: int
):
    """The slots of a grasp are shared by some threads: one on a CPU, as many as there are slots on a GPU."""
    n, lane = wp.tid()
    if batch.active[n] == 1:
        touch(hand, objects, batch, w, n, target, order, lane, lanes)
