# type: ignore
# ruff: noqa: UP018, RUF046, D103
"""What touches what: overlaps of hand, target object, held objects and the hand itself, as wrenches on bodies.

One thread a (grasp, body), (grasp, held object) or the grasp's own pairs of bodies. `order` 1 sums depths, as
the paper's terms do: a point of depth d pushes with force 1. `order` 2 sums half squares, pushes with d, and
also sums the curvature s s^T of each point, where s is the wrench of its unit force: the Gauss-Newton matrix
of a body. Bounding balls of body, shape and group of points are tested first, conservatively, so skipping
changes no digit.
"""

from fistful.geometry.quiet_warp import wp
from fistful.synthesis.field_kernels import clearance, distance
from fistful.synthesis.hand_kernels import position, rotation, shape_distance
from fistful.synthesis.structs import BatchData, HandData, ObjectData, WeightData

wp.set_module_options({"enable_backward": False})


@wp.struct
class Push:
    """Sums over the overlapping points of one owner: energy, wrench, curvature, deepest overlap."""

    energy: float
    wrench: wp.spatial_vector
    A: wp.spatial_matrix
    deepest: float


@wp.func
def pushed(push: Push, order: int, depth: float, outward: wp.vec3, arm: wp.vec3) -> Push:
    """The sums with one more point, at `arm` from the origin of H, which moving `outward` would free."""
    s = wp.spatial_vector(outward, wp.cross(arm, outward))
    push.deepest = wp.max(push.deepest, depth)
    if order == 1:
        push.energy += depth
        push.wrench -= s
    else:
        push.energy += 0.5 * depth * depth
        push.wrench -= depth * s
        push.A += wp.outer(s, s)
    return push


@wp.func
def skin_in_object(
    hand: HandData, objects: ObjectData, k: int, b: int, order: int, p_KB: wp.vec3, R_KB: wp.mat33, R_OK: wp.mat33,
    arm_K: wp.vec3,
) -> Push:
    """Skin points of body b inside object k; the body's pose is given in the object's frame K.

    Wrenches are about the point arm_K, in axes of O.
    """
    push = Push()
    centre = p_KB + R_KB * hand.body_centre[b]
    if hand.body_radius[b] < 0.0 or clearance(objects, k, centre) > hand.body_radius[b]:
        return push
    for g in range(hand.geom_start[b], hand.geom_start[b + 1]):
        middle = p_KB + R_KB * hand.p_BG[g]
        if clearance(objects, k, middle) <= hand.ball[g]:
            for c in range(hand.geom_cluster[g], hand.geom_cluster[g + 1]):
                spot = p_KB + R_KB * hand.cluster_centre[c]
                if clearance(objects, k, spot) <= hand.cluster_radius[c]:
                    for i in range(hand.cluster_start[c], hand.cluster_start[c + 1]):
                        p = p_KB + R_KB * hand.points[i]
                        if clearance(objects, k, p) <= 0.0:
                            d = distance(objects, k, p)
                            if d[3] < 0.0:
                                outward = R_OK * wp.vec3(d[0], d[1], d[2])
                                push = pushed(push, order, -d[3], outward, R_OK * (p - arm_K))
    return push


@wp.func
def object_in_shapes(
    hand: HandData, objects: ObjectData, k: int, b: int, order: int, p_KB: wp.vec3, R_KB: wp.mat33, R_OK: wp.mat33,
    arm_K: wp.vec3,
) -> Push:
    """Surface points of object k inside the shapes of body b; the wrench is the body's."""
    push = Push()
    centre = p_KB + R_KB * hand.body_centre[b]
    if hand.body_radius[b] < 0.0 or clearance(objects, k, centre) > hand.body_radius[b]:
        return push
    for g in range(hand.geom_start[b], hand.geom_start[b + 1]):
        p_KG = p_KB + R_KB * hand.p_BG[g]
        if clearance(objects, k, p_KG) <= hand.ball[g]:
            R_KG = R_KB * hand.R_BG[g]
            R_GK = wp.transpose(R_KG)
            for c in range(objects.object_cluster[k], objects.object_cluster[k + 1]):
                spot = objects.cluster_centre[c] - p_KG
                if wp.length(spot) <= hand.ball[g] + objects.cluster_radius[c]:
                    inside = shape_distance(hand, g, R_GK * spot)
                    if inside[3] <= objects.cluster_radius[c]:
                        for i in range(objects.cluster_start[c], objects.cluster_start[c + 1]):
                            p = objects.points[i]
                            d = shape_distance(hand, g, R_GK * (p - p_KG))
                            if d[3] < 0.0:
                                # The body has to move against the gradient for the point to come out.
                                outward = R_OK * (R_KG * wp.vec3(-d[0], -d[1], -d[2]))
                                push = pushed(push, order, -d[3], outward, R_OK * (p - arm_K))
    return push


@wp.func
def held_in_target(objects: ObjectData, batch: BatchData, n: int, h: int, target: int, order: int) -> Push:
    """Surface points of held object h inside the target; it moves with the base of the hand."""
    push = Push()
    R_OH = rotation(batch.x, n)
    p_OH = position(batch.x, n)
    R_OK = R_OH * batch.R_HO[n, h]
    p_OK = p_OH + R_OH * batch.p_HO[n, h]
    for c in range(objects.object_cluster[h], objects.object_cluster[h + 1]):
        spot = p_OK + R_OK * objects.cluster_centre[c]
        if clearance(objects, target, spot) <= objects.cluster_radius[c]:
            for i in range(objects.cluster_start[c], objects.cluster_start[c + 1]):
                p = p_OK + R_OK * objects.points[i]
                if clearance(objects, target, p) <= 0.0:
                    d = distance(objects, target, p)
                    if d[3] < 0.0:
                        push = pushed(push, order, -d[3], wp.vec3(d[0], d[1], d[2]), p - p_OH)
    return push


@wp.func
def skin_in_shape(hand: HandData, batch: BatchData, n: int, order: int, a: int, g: int, b: int, h: int) -> Push:
    """Skin points of shape g (body a) inside shape h (body b); the wrench is that of body a."""
    push = Push()
    R_OH = batch.R_OB[n, b] * hand.R_BG[h]
    p_Oh = batch.p_OB[n, b] + batch.R_OB[n, b] * hand.p_BG[h]
    R_hO = wp.transpose(R_OH)
    origin = position(batch.x, n)
    for c in range(hand.geom_cluster[g], hand.geom_cluster[g + 1]):
        spot = batch.p_OB[n, a] + batch.R_OB[n, a] * hand.cluster_centre[c]
        inside = shape_distance(hand, h, R_hO * (spot - p_Oh))
        if inside[3] <= hand.cluster_radius[c]:
            for i in range(hand.cluster_start[c], hand.cluster_start[c + 1]):
                p = batch.p_OB[n, a] + batch.R_OB[n, a] * hand.points[i]
                d = shape_distance(hand, h, R_hO * (p - p_Oh))
                if d[3] < 0.0:
                    push = pushed(push, order, -d[3], R_OH * wp.vec3(d[0], d[1], d[2]), p - origin)
    return push


@wp.func
def meet_itself(hand: HandData, batch: BatchData, w: WeightData, n: int, order: int, slot: int):
    """Overlaps of the hand with itself, all pairs of bodies; equal and opposite wrenches on the two."""
    for b in range(hand.parent.shape[0]):
        batch.own[n, b] = wp.spatial_vector()
        if order == 2:
            batch.own_A[n, b] = wp.spatial_matrix()
    energy = float(0.0)
    deepest = float(0.0)
    for q in range(hand.pair_body.shape[0]):
        a = hand.pair_body[q, 0]
        b = hand.pair_body[q, 1]
        c_a = batch.p_OB[n, a] + batch.R_OB[n, a] * hand.body_centre[a]
        c_b = batch.p_OB[n, b] + batch.R_OB[n, b] * hand.body_centre[b]
        reach = hand.body_radius[a] + hand.body_radius[b]
        if wp.length_sq(c_a - c_b) <= reach * reach:
            for r in range(hand.pair_start[q], hand.pair_start[q + 1]):
                g = hand.geom_pair[r, 0]
                h = hand.geom_pair[r, 1]
                c_g = batch.p_OB[n, a] + batch.R_OB[n, a] * hand.p_BG[g]
                c_h = batch.p_OB[n, b] + batch.R_OB[n, b] * hand.p_BG[h]
                reach_gh = hand.ball[g] + hand.ball[h]
                if wp.length_sq(c_g - c_h) <= reach_gh * reach_gh:
                    there = skin_in_shape(hand, batch, n, order, a, g, b, h)
                    back = skin_in_shape(hand, batch, n, order, b, h, a, g)
                    energy += there.energy + back.energy
                    deepest = wp.max(deepest, wp.max(there.deepest, back.deepest))
                    force = w.hsp * (there.wrench - back.wrench)
                    batch.own[n, a] = batch.own[n, a] + force
                    batch.own[n, b] = batch.own[n, b] - force
                    if order == 2:
                        # (u - v)^2 <= 2 u^2 + 2 v^2: the bodies' curvatures apart bound that of the pair.
                        A = 2.0 * w.hsp * (there.A + back.A)
                        batch.own_A[n, a] = batch.own_A[n, a] + A
                        batch.own_A[n, b] = batch.own_A[n, b] + A
    batch.part[n, slot] = wp.vec4(energy, 0.0, 0.0, 0.0)
    batch.deepest[n, slot] = deepest


@wp.kernel
def touch_kernel(hand: HandData, objects: ObjectData, batch: BatchData, w: WeightData, target: int, order: int):
    n, b = wp.tid()
    if batch.active[n] == 0:
        return
    bodies = hand.parent.shape[0]
    if b == bodies + target:
        meet_itself(hand, batch, w, n, order, b)
        return
    if b >= bodies:
        push = held_in_target(objects, batch, n, b - bodies, target, order)
        batch.outer[n, b] = w.oop * push.wrench
        if order == 2:
            batch.outer_A[n, b] = w.oop * push.A
        batch.part[n, b] = wp.vec4(0.0, 0.0, 0.0, push.energy)
        batch.deepest[n, b] = push.deepest
        return
    p_OB = batch.p_OB[n, b]
    R_OB = batch.R_OB[n, b]
    origin = position(batch.x, n)
    same = wp.identity(3, dtype=float)
    hop = skin_in_object(hand, objects, target, b, order, p_OB, R_OB, same, origin)
    deepest = hop.deepest
    wrench = batch.w_hop[n] * hop.wrench
    back = float(0.0)
    if order == 2:
        batch.outer_A[n, b] = batch.w_hop[n] * hop.A
    if w.ohp > 0.0:
        ohp = object_in_shapes(hand, objects, target, b, order, p_OB, R_OB, same, origin)
        wrench += w.ohp * ohp.wrench
        back = ohp.energy
        deepest = wp.max(deepest, ohp.deepest)
        if order == 2:
            batch.outer_A[n, b] = batch.outer_A[n, b] + w.ohp * ohp.A
    batch.outer[n, b] = wrench
    hho = float(0.0)
    felt = wp.spatial_vector()
    if order == 2:
        batch.held_A[n, b] = wp.spatial_matrix()
    if target > 0 and w.hho > 0.0 and batch.moves[n, b] == 1:
        R_HO = wp.transpose(rotation(batch.x, n))
        for h in range(target):
            # Pose of the body in the frame K of the held object.
            R_KH = wp.transpose(batch.R_HO[n, h])
            R_KO = R_KH * R_HO
            base = R_KH * (-batch.p_HO[n, h])
            p_KB = base + R_KO * (p_OB - origin)
            R_KB = R_KO * R_OB
            R_OK = wp.transpose(R_KO)
            into = skin_in_object(hand, objects, h, b, order, p_KB, R_KB, R_OK, base)
            felt += w.hho * into.wrench
            hho += into.energy
            deepest = wp.max(deepest, into.deepest)
            if order == 2:
                batch.held_A[n, b] = batch.held_A[n, b] + w.hho * into.A
            if w.ohp > 0.0:
                onto = object_in_shapes(hand, objects, h, b, order, p_KB, R_KB, R_OK, base)
                felt += w.hho * onto.wrench
                hho += onto.energy
                deepest = wp.max(deepest, onto.deepest)
                if order == 2:
                    batch.held_A[n, b] = batch.held_A[n, b] + w.hho * onto.A
    batch.held[n, b] = felt
    batch.part[n, b] = wp.vec4(hop.energy, back, hho, 0.0)
    batch.deepest[n, b] = deepest
