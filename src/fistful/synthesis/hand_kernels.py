# type: ignore
# ruff: noqa: B007, D103, E741, RUF046, RUF100, SIM102, UP018
"""Where the hand is: poses of its bodies, axes of its joints, and distance to its shapes."""

from fistful.geometry.quiet_warp import wp
from fistful.synthesis.structs import BatchData, HandData

wp.set_module_options({"enable_backward": False})


@wp.func
def rotation(x: wp.array2d(dtype=float), n: int) -> wp.mat33:
    """The rotation whose first two columns are x[3:6] and x[6:9], made orthonormal (Gram-Schmidt)."""
    a = wp.vec3(x[n, 3], x[n, 4], x[n, 5])
    b = wp.vec3(x[n, 6], x[n, 7], x[n, 8])
    e = wp.normalize(a)
    f = wp.normalize(b - wp.dot(e, b) * e)
    return wp.matrix_from_cols(e, f, wp.cross(e, f))


@wp.func
def position(x: wp.array2d(dtype=float), n: int) -> wp.vec3:
    return wp.vec3(x[n, 0], x[n, 1], x[n, 2])


@wp.func
def place_bodies(hand: HandData, batch: BatchData, n: int):
    """Forward kinematics of grasp n. The screw of a joint is (velocity at the origin of H, axis)."""
    p_OH = position(batch.x, n)
    R_OH = rotation(batch.x, n)
    for b in range(hand.parent.shape[0]):
        parent = hand.parent[b]
        p = hand.p_PB[b]
        R = hand.R_PB[b]
        p_OP = p_OH
        R_OP = R_OH
        moved = int(0)
        if parent >= 0:
            R_OP = batch.R_OB[n, parent]
            p_OP = batch.p_OB[n, parent]
            moved = batch.moves[n, parent]
        p = p_OP + R_OP * p
        R = R_OP * R
        for j in range(hand.joint_start[b], hand.joint_start[b + 1]):
            travel = hand.offset[j] - hand.zero[j]
            k = hand.driver[j]
            if k >= 0:
                travel += hand.factor[j] * batch.x[n, 9 + k]
                if batch.mask[n, k] > 0.0:
                    moved = 1
            axis = R * hand.axis_B[j]
            if hand.slides[j] == 1:
                p = p + travel * axis
                batch.screw[n, j] = wp.spatial_vector(axis, wp.vec3(0.0, 0.0, 0.0))
            else:
                anchor = p + R * hand.anchor_B[j]
                batch.screw[n, j] = wp.spatial_vector(wp.cross(anchor - p_OH, axis), axis)
                R = R * wp.quat_to_matrix(wp.quat_from_axis_angle(hand.axis_B[j], travel))
                p = anchor - R * hand.anchor_B[j]
        batch.p_OB[n, b] = p
        batch.R_OB[n, b] = R
        batch.centre[n, b] = p + R * hand.body_centre[b]
        batch.moves[n, b] = moved


@wp.func
def strayed(hand: HandData, batch: BatchData, n: int) -> bool:
    """Whether a point may be farther than the margin from where it was when neighbours were listed.

    A point moves with the centre of its body's ball and turns about it by at most |dR| times the radius; the
    norm of a difference dR of two rotations is the root of half the sum of its squares. Rounding gets 1 um.
    """
    for b in range(hand.parent.shape[0]):
        shift = wp.length(batch.centre[n, b] - batch.listed_centre[n, b])
        dR = batch.R_OB[n, b] - batch.listed_R[n, b]
        turn = wp.sqrt(0.5 * wp.ddot(dR, dR)) * hand.body_radius[b]
        if not (shift + turn + 1.0e-6 <= batch.margin):  # Also if it is not a number.
            return True
    return False


@wp.kernel
def pose_kernel(hand: HandData, batch: BatchData):
    """Place the bodies and say if touch_kernel, which has to follow, must list their neighbours anew."""
    n = wp.tid()
    if batch.active[n] == 1:
        place_bodies(hand, batch, n)
        batch.stale[n] = 1
        if batch.margin > 0.0:
            if strayed(hand, batch, n):
                for b in range(hand.parent.shape[0]):
                    batch.listed_centre[n, b] = batch.centre[n, b]
                    batch.listed_R[n, b] = batch.R_OB[n, b]
            else:
                batch.stale[n] = 0


@wp.struct
class Shape:
    """A rounded box or a cylinder; see geometry.primitives.Shapes. Small, as it is passed by value."""

    core: wp.vec3
    radius: float
    cylinder: int


@wp.func
def shape_of(hand: HandData, g: int) -> Shape:
    shape = Shape()
    shape.core = hand.core[g]
    shape.radius = hand.radius[g]
    shape.cylinder = hand.cylinder[g]
    return shape


@wp.func
def shape_distance(shape: Shape, p: wp.vec3) -> wp.vec4:
    """Gradient of the distance of p (frame of the shape) to a shape, and the distance, negative inside.

    With d = |p| - core componentwise: |max(d, 0)| + min(max_i d_i, 0) - radius. A cylinder is the same in the
    half plane (distance from the axis, height).
    """
    a = wp.vec3(wp.abs(p[0]), wp.abs(p[1]), wp.abs(p[2]))
    rho = float(0.0)
    if shape.cylinder == 1:
        rho = wp.max(wp.sqrt(p[0] * p[0] + p[1] * p[1]), 1.0e-9)
        a = wp.vec3(rho, -1.0e6, a[2])
    d = a - shape.core
    out = wp.vec3(wp.max(d[0], 0.0), wp.max(d[1], 0.0), wp.max(d[2], 0.0))
    value = wp.length(out)
    e = wp.vec3(0.0, 0.0, 0.0)
    if value > 0.0:
        e = out / value
    elif d[0] >= d[1] and d[0] >= d[2]:
        value = d[0]
        e = wp.vec3(1.0, 0.0, 0.0)
    elif d[1] >= d[2]:
        value = d[1]
        e = wp.vec3(0.0, 1.0, 0.0)
    else:
        value = d[2]
        e = wp.vec3(0.0, 0.0, 1.0)
    gx = e[0] * wp.sign(p[0])
    gy = e[1] * wp.sign(p[1])
    if shape.cylinder == 1:
        gx = e[0] * p[0] / rho
        gy = e[0] * p[1] / rho
    return wp.vec4(gx, gy, e[2] * wp.sign(p[2]), value - shape.radius)
