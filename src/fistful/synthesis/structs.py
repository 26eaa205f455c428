# type: ignore
"""Records that the kernels share: hand, objects, weights, and a batch of grasps with its intermediate
results.

O is the frame of the target object, H that of the hand base, B that of a body. A *wrench* here is the
gradient of the energy by a small motion: a spatial vector (by translation, by rotation about the origin
of H), axes of O. Force at a point -> wrench of its body -> summed up the chain -> axis . wrench: that is
the whole gradient.
"""

from fistful.geometry.quiet_warp import wp

# Places of the energy terms; their names are weights.TERMS.
FC = wp.constant(0)
DIS = wp.constant(1)
HOP = wp.constant(2)
HSP = wp.constant(3)
JOINT = wp.constant(4)
OOP = wp.constant(5)
HHO = wp.constant(6)
OHP = wp.constant(7)
FRICTION = wp.constant(8)


@wp.struct
class HandData:
    """Tables of a hand; see tables.HandTables."""

    parent: wp.array(dtype=int)
    p_PB: wp.array(dtype=wp.vec3)
    R_PB: wp.array(dtype=wp.mat33)
    joint_start: wp.array(dtype=int)
    axis_B: wp.array(dtype=wp.vec3)
    anchor_B: wp.array(dtype=wp.vec3)
    slides: wp.array(dtype=int)
    zero: wp.array(dtype=float)
    driver: wp.array(dtype=int)
    factor: wp.array(dtype=float)
    offset: wp.array(dtype=float)
    lower: wp.array(dtype=float)
    upper: wp.array(dtype=float)
    points: wp.array(dtype=wp.vec3)
    node_ball: wp.array(dtype=wp.vec4)
    node_next: wp.array(dtype=wp.vec3i)
    tree_node: wp.array(dtype=int)
    tree_point: wp.array(dtype=int)
    geom_start: wp.array(dtype=int)
    geom_body: wp.array(dtype=int)
    cylinder: wp.array(dtype=int)
    core: wp.array(dtype=wp.vec3)
    radius: wp.array(dtype=float)
    p_BG: wp.array(dtype=wp.vec3)
    R_BG: wp.array(dtype=wp.mat33)
    ball: wp.array(dtype=float)
    body_centre: wp.array(dtype=wp.vec3)
    body_radius: wp.array(dtype=float)
    pair_body: wp.array(dtype=wp.vec2i)
    pair_reach: wp.array(dtype=float)
    pair_start: wp.array(dtype=int)
    geom_pair: wp.array(dtype=wp.vec2i)
    probe_body: wp.array(dtype=int)
    probe_p_B: wp.array(dtype=wp.vec3)
    surface_start: wp.array(dtype=int)
    candidate_body: wp.array(dtype=int)
    candidate_p_B: wp.array(dtype=wp.vec3)
    candidate_n_B: wp.array(dtype=wp.vec3)
    set_surface: wp.array2d(dtype=int)


@wp.struct
class ObjectData:
    """Tables of the objects; see tables.ObjectTables. The target is the last, those before it are held."""

    origin: wp.array(dtype=wp.vec3)
    spacing: wp.array(dtype=float)
    shape: wp.array(dtype=wp.vec3i)
    node_start: wp.array(dtype=int)
    values: wp.array(dtype=float)
    gradients: wp.array(dtype=wp.vec3)
    bound: wp.array(dtype=wp.int8)
    bound_start: wp.array(dtype=int)
    bound_shape: wp.array(dtype=wp.vec3i)
    centre: wp.array(dtype=wp.vec3)
    size: wp.array(dtype=float)
    points: wp.array(dtype=wp.vec3)
    node_ball: wp.array(dtype=wp.vec4)
    node_next: wp.array(dtype=wp.vec3i)
    tree_node: wp.array(dtype=int)
    tree_point: wp.array(dtype=int)
    probe: wp.array2d(dtype=wp.vec3)


@wp.struct
class WeightData:
    """Weights of the terms but w_hop, which grows and belongs to each grasp; friction coefficient."""

    fc: float
    dis: float
    hsp: float
    joint: float
    oop: float
    hho: float
    ohp: float
    friction: float
    mu: float
    turning: float


@wp.struct
class BatchData:
    """N grasps and what one evaluation makes of them.

    State: x (N, 9 + K) = position of H in O, its 6D rotation (first two columns), joints; mask (N, K), 1 for
    the joints of J_n; contact (N, C), candidates in use, and their surfaces; poses of Q held objects in H.
    Bodies and held objects share the second index of `outer`, `part`: B bodies, then Q objects.
    """

    x: wp.array2d(dtype=float)
    mask: wp.array2d(dtype=float)
    contact: wp.array2d(dtype=int)
    surface: wp.array2d(dtype=int)
    p_HO: wp.array2d(dtype=wp.vec3)
    R_HO: wp.array2d(dtype=wp.mat33)
    active: wp.array(dtype=int)
    w_hop: wp.array(dtype=float)
    # Kinematics: poses of bodies, centres of their balls, screws of joints, whether J_n moves a body.
    p_OB: wp.array2d(dtype=wp.vec3)
    R_OB: wp.array2d(dtype=wp.mat33)
    centre: wp.array2d(dtype=wp.vec3)
    screw: wp.array2d(dtype=wp.spatial_vector)
    moves: wp.array2d(dtype=int)
    # Neighbours (neighbour_kernels): how far a body may move before they are listed anew, if one has; where
    # bodies were then; skin points near each object and their number, body after body; pairs of shapes.
    margin: float
    stale: wp.array(dtype=int)
    listed_centre: wp.array2d(dtype=wp.vec3)
    listed_R: wp.array2d(dtype=wp.mat33)
    near_skin: wp.array3d(dtype=int)
    near_count: wp.array3d(dtype=int)
    near_pair: wp.array2d(dtype=int)
    near_pair_count: wp.array(dtype=int)
    # Wrenches: by the target object (base and joints feel it); within the hand and its held objects (only
    # joints do); their curvatures for the least-squares refinement.
    outer: wp.array2d(dtype=wp.spatial_vector)
    held: wp.array2d(dtype=wp.spatial_vector)
    own: wp.array2d(dtype=wp.spatial_vector)
    outer_A: wp.array2d(dtype=wp.spatial_matrix)
    held_A: wp.array2d(dtype=wp.spatial_matrix)
    own_A: wp.array2d(dtype=wp.spatial_matrix)
    part: wp.array2d(dtype=wp.vec4)
    deepest: wp.array2d(dtype=float)
    # Results.
    terms: wp.array2d(dtype=float)
    energy: wp.array(dtype=float)
    gradient: wp.array2d(dtype=float)
