# type: ignore
# ruff: noqa: B007, D103, E741, RUF046, RUF100, SIM102, UP018
"""Neighbours: the few skin points and pairs of shapes that are near enough to overlap soon.

Finding out what does not touch takes most of an evaluation, and a chain of small steps would find out the
same again and again. So it is done with a margin and written down (a Verlet list, as molecular dynamics
calls it); until a body has moved by that margin, only what is listed can touch. All that is left out would
have added nothing and the rest keeps its order, so results are the same bit for bit, whatever the margin.
With a margin of 0 every evaluation makes its own lists.
"""

from fistful.geometry.quiet_warp import wp
from fistful.synthesis.field_kernels import Grid, clearance, distance
from fistful.synthesis.hand_kernels import shape_distance, shape_of
from fistful.synthesis.structs import BatchData, HandData

wp.set_module_options({"enable_backward": False})

# The distance of a grid changes by at most this a metre: neighbouring values differ by at most their spacing,
# so each partial derivative is at most 1.
STEEPEST = wp.constant(3.0**0.5)
# In place of a count: the whole body is out of reach.
FAR = wp.constant(-1)


@wp.func
def list_skin(
    hand: HandData,
    grid: Grid,
    batch: BatchData,
    n: int,
    k: int,
    b: int,
    margin: float,
    p_KB: wp.vec3,
    R_KB: wp.mat33,
):
    """List the skin points of body b that a move by `margin` may bring into object k.

    The body's pose is given in the object's frame K. Its list starts where its points do, so there is room.
    """
    first = hand.tree_point[hand.geom_start[b]]
    count = int(0)
    for g in range(hand.geom_start[b], hand.geom_start[b + 1]):
        if clearance(grid, p_KB + R_KB * hand.p_BG[g]) <= hand.ball[g] + margin:
            node = hand.tree_node[g]
            end = hand.tree_node[g + 1]
            while node < end:
                ball = hand.node_ball[node]
                after = hand.node_next[node]
                if clearance(grid, p_KB + R_KB * wp.vec3(ball[0], ball[1], ball[2])) <= ball[3] + margin:
                    for i in range(after[1], after[2]):
                        p = p_KB + R_KB * hand.points[i]
                        if clearance(grid, p) <= margin:
                            if distance(grid, p)[3] <= STEEPEST * margin:
                                batch.near_skin[n, k, first + count] = i
                                count += 1
                    node += 1
                else:
                    node = after[0]
    batch.near_count[n, k, b] = count


@wp.func
def list_pairs(hand: HandData, batch: BatchData, n: int, order: int):
    """List the pairs of shapes that may overlap once both bodies have moved by the margin."""
    margin = 2.0 * batch.margin
    count = int(0)
    for q in range(hand.pair_body.shape[0]):
        pair = hand.pair_body[q]
        a = pair[0]
        b = pair[1]
        # When refining, what does not move under J_n does not matter.
        still = order == 2 and batch.moves[n, a] == 0 and batch.moves[n, b] == 0
        reach = hand.pair_reach[q] + margin
        if wp.length_sq(batch.centre[n, a] - batch.centre[n, b]) <= reach * reach and not still:
            p_a = batch.p_OB[n, a]
            R_a = batch.R_OB[n, a]
            p_b = batch.p_OB[n, b]
            R_b = batch.R_OB[n, b]
            for r in range(hand.pair_start[q], hand.pair_start[q + 1]):
                shapes = hand.geom_pair[r]
                g = shapes[0]
                h = shapes[1]
                apart = p_a + R_a * hand.p_BG[g] - (p_b + R_b * hand.p_BG[h])
                reach_g = hand.ball[g] + margin
                reach_h = hand.ball[h] + margin
                reach_gh = hand.ball[g] + reach_h
                if wp.length_sq(apart) <= reach_gh * reach_gh:
                    R_g = R_a * hand.R_BG[g]
                    R_h = R_b * hand.R_BG[h]
                    from_h = shape_distance(shape_of(hand, h), wp.transpose(R_h) * apart)
                    from_g = shape_distance(shape_of(hand, g), wp.transpose(R_g) * (-apart))
                    if from_h[3] <= reach_g and from_g[3] <= reach_h:
                        batch.near_pair[n, count] = r
                        count += 1
    batch.near_pair_count[n] = count
