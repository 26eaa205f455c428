# type: ignore
# ruff: noqa: D103
"""Warp kernels for the deepest overlap of points with a mesh, and of points with primitives.

Kernels are Python syntax in another language, so the type checker is switched off here: array types are
calls.

Both kernels look for the one deepest point, so whatever can not be deeper than the deepest so far is
passed over: first whole clusters of points by their bounding balls, then single points. What the distance
grid says about a place is exact but for how far the place is from a node, because a distance field
changes by at most the way one goes: value - way <= distance <= value + way. Only the few points that are
left need the mesh.
"""

from fistful.geometry.quiet_warp import wp

wp.set_module_options({"enable_backward": False})


@wp.struct
class SolidArrays:
    """A mesh and its distance grid; lengths in m, relative to the centre C of the mesh's bounding box."""

    mesh: wp.uint64  # At unit size.
    size: float  # Longest side, m.
    origin: wp.vec3  # Node (0, 0, 0) of the grid.
    spacing: float
    values: wp.array3d(dtype=float)


@wp.struct
class CloudArrays:
    """Points in clusters: cluster c holds points[start[c]] .. points[start[c + 1] - 1] of body[c]."""

    points: wp.array(dtype=wp.vec3)
    start: wp.array(dtype=int)
    body: wp.array(dtype=int)
    centre: wp.array(dtype=wp.vec3)
    radius: wp.array(dtype=float)


@wp.func
def _bounds(solid: SolidArrays, point: wp.vec3) -> wp.vec2:
    """Return a lower and an upper bound of the signed distance of a point."""
    # What float32 may be wrong by.
    slack = 1.0e-6 * solid.size
    at = (point - solid.origin) / solid.spacing
    i = wp.clamp(int(wp.round(at[0])), 0, solid.values.shape[0] - 1)
    j = wp.clamp(int(wp.round(at[1])), 0, solid.values.shape[1] - 1)
    k = wp.clamp(int(wp.round(at[2])), 0, solid.values.shape[2] - 1)
    off = at - wp.vec3(float(i), float(j), float(k))
    way = solid.spacing * wp.length(off) + slack
    value = solid.values[i, j, k]
    lower = value - way
    # Outside the grid, the mesh is at least as far away as the box that the grid fills.
    beyond = wp.length(wp.max(wp.abs(off) - wp.vec3(0.5, 0.5, 0.5), wp.vec3(0.0, 0.0, 0.0)))
    if beyond > 0.0:
        lower = wp.max(lower, solid.spacing * beyond - slack)
    return wp.vec2(lower, value + way)


@wp.func
def _depth(solid: SolidArrays, point: wp.vec3, bounds: wp.vec2, depth: float) -> float:
    """Return how deep a point is inside the mesh, or `depth` if it is not deeper than that."""
    at = point / solid.size
    reach = wp.max(wp.abs(bounds[0]), wp.abs(bounds[1])) / solid.size
    near = wp.mesh_query_point_no_sign(solid.mesh, at, reach)
    if near.result:
        unit = wp.length(at - wp.mesh_eval_position(solid.mesh, near.face, near.u, near.v))
        found = unit * solid.size
        if found > depth:
            if bounds[1] < 0.0:
                return found
            sided = wp.mesh_query_point_sign_winding_number(solid.mesh, at, unit * 1.001 + 1.0e-6)
            if sided.sign < 0.0:
                return found
    return depth


@wp.kernel
def points_in_mesh(
    solid: SolidArrays,
    cloud: CloudArrays,
    p_CB: wp.array2d(dtype=wp.vec3),
    R_CB: wp.array2d(dtype=wp.mat33),
    deepest: wp.array(dtype=float),
):
    i = wp.tid()
    depth = deepest[i]
    # One point of each cluster, by the grid alone: some point is at least this deep.
    certain = depth
    for c in range(cloud.body.shape[0]):
        b = cloud.body[c]
        bounds = _bounds(solid, p_CB[i, b] + R_CB[i, b] * cloud.points[cloud.start[c]])
        certain = wp.max(certain, -bounds[1])
    for c in range(cloud.body.shape[0]):
        b = cloud.body[c]
        ball = _bounds(solid, p_CB[i, b] + R_CB[i, b] * cloud.centre[c])
        if ball[0] - cloud.radius[c] < -certain:
            for n in range(cloud.start[c], cloud.start[c + 1]):
                point = p_CB[i, b] + R_CB[i, b] * cloud.points[n]
                bounds = _bounds(solid, point)
                if bounds[0] < -certain:
                    depth = _depth(solid, point, bounds, depth)
                    certain = wp.max(certain, depth)
    deepest[i] = depth


@wp.func
def _primitive_distance(cylinder: int, core: wp.vec3, radius: float, point: wp.vec3) -> float:
    """Return geometry.primitives.Shapes.signed_distance of one point."""
    x = wp.abs(point[0]) - core[0]
    y = wp.abs(point[1]) - core[1]
    z = wp.abs(point[2]) - core[2]
    if cylinder == 1:
        x = wp.sqrt(point[0] * point[0] + point[1] * point[1]) - core[0]
        y = -1.0e9
    outside = wp.length(wp.vec3(wp.max(x, 0.0), wp.max(y, 0.0), wp.max(z, 0.0)))
    return outside + wp.min(wp.max(x, wp.max(y, z)), 0.0) - radius


@wp.kernel
def points_in_primitives(
    solid: SolidArrays,
    cloud: CloudArrays,
    cylinder: wp.array(dtype=int),
    core: wp.array(dtype=wp.vec3),
    radius: wp.array(dtype=float),
    reach: wp.array(dtype=float),
    p_CG: wp.array2d(dtype=wp.vec3),
    R_CG: wp.array2d(dtype=wp.mat33),
    deepest: wp.array(dtype=float),
):
    i = wp.tid()
    depth = deepest[i]
    for g in range(core.shape[0]):
        # The points lie on the solid: none is in a primitive whose bounding ball does not reach the solid.
        ball = _bounds(solid, p_CG[i, g])
        if ball[0] < reach[g]:
            turn = wp.transpose(R_CG[i, g])
            for c in range(cloud.body.shape[0]):
                centre = turn * (cloud.centre[c] - p_CG[i, g])
                away = _primitive_distance(cylinder[g], core[g], radius[g], centre)
                if away - cloud.radius[c] < -depth:
                    for n in range(cloud.start[c], cloud.start[c + 1]):
                        point = turn * (cloud.points[n] - p_CG[i, g])
                        found = _primitive_distance(cylinder[g], core[g], radius[g], point)
                        depth = wp.max(depth, -found)
    deepest[i] = depth
