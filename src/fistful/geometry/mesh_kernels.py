# type: ignore
# ruff: noqa: UP018, RUF046, D103
"""Warp kernels over triangle meshes of unit size.

Kernels are Python syntax in another language, so the checkers are switched off here: a variable that changes
in a loop has to be declared by float(0.0), and array types are calls.
"""

from fistful.geometry.quiet_warp import wp

wp.set_module_options({"enable_backward": False})


@wp.func
def _gradient(mesh: wp.uint64, point: wp.vec3, face: int, u: float, v: float, sign: float) -> wp.vec4:
    """Return the unit gradient and, as fourth number, the unsigned distance."""
    away = point - wp.mesh_eval_position(mesh, face, u, v)
    distance = wp.length(away)
    direction = wp.mesh_eval_face_normal(mesh, face)
    # Below the resolution of float32 the difference has no direction, but the surface has.
    if distance > 1.0e-6:
        direction = away * (sign / distance)
    return wp.vec4(direction[0], direction[1], direction[2], distance)


@wp.kernel
def point_kernel(
    mesh: wp.uint64,
    points: wp.array(dtype=wp.vec3),
    reach: float,
    values: wp.array(dtype=float),
    gradients: wp.array(dtype=wp.vec3),
):
    i = wp.tid()
    hit = wp.mesh_query_point_sign_winding_number(mesh, points[i], reach)
    if hit.result:
        g = _gradient(mesh, points[i], hit.face, hit.u, hit.v, hit.sign)
        values[i] = hit.sign * g[3]
        gradients[i] = wp.vec3(g[0], g[1], g[2])


@wp.kernel
def ray_kernel(
    mesh: wp.uint64,
    origins: wp.array(dtype=wp.vec3),
    directions: wp.array(dtype=wp.vec3),
    reach: float,
    times: wp.array(dtype=float),
    faces: wp.array(dtype=int),
):
    i = wp.tid()
    hit = wp.mesh_query_ray(mesh, origins[i], directions[i], reach)
    if hit.result:
        times[i] = hit.t
        faces[i] = hit.face


@wp.kernel
def grid_kernel(
    mesh: wp.uint64,
    origin: wp.vec3,
    spacing: float,
    values: wp.array3d(dtype=float),
    gradients: wp.array3d(dtype=wp.vec3),
):
    # One thread walks one row of nodes, so that each node can profit from the one before it:
    # distance changes by at most one spacing per node, which bounds the search; and a node can only lie on
    # the other side of the surface if the two distances fit into one spacing, else it inherits the sign.
    # Rows start outside, because the grid is padded.
    i, j = wp.tid()
    reach = float(1.0e9)
    before = float(0.0)
    sign = float(1.0)
    for k in range(values.shape[2]):
        point = origin + spacing * wp.vec3(float(i), float(j), float(k))
        hit = wp.mesh_query_point_no_sign(mesh, point, reach)
        if hit.result:
            g = _gradient(mesh, point, hit.face, hit.u, hit.v, 1.0)
            distance = g[3]
            # A node that lies almost on the surface has no trustworthy sign to hand on.
            inherits = before + distance > 1.01 * spacing and before > 0.25 * spacing
            if k > 0 and not inherits:
                sided = wp.mesh_query_point_sign_winding_number(mesh, point, distance * 1.001 + 1.0e-6)
                sign = sided.sign
            direction = wp.vec3(g[0], g[1], g[2])
            if distance > 1.0e-6:
                direction = direction * sign
            values[i, j, k] = sign * distance
            gradients[i, j, k] = direction
            before = distance
            reach = (distance + spacing) * 1.001 + 1.0e-6


@wp.func
def _volume(a: wp.vec3d, b: wp.vec3d, c: wp.vec3d, p: wp.vec3d) -> wp.float64:
    return wp.dot(wp.cross(b - a, c - a), p - a)


@wp.func
def _pierces(p: wp.vec3d, q: wp.vec3d, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d) -> bool:
    """Whether the segment pq passes strictly through the triangle abc; touching does not count."""
    # Volumes of unit-sized meshes in float64; anything below is rounding.
    eps = wp.float64(1.0e-14)
    above = _volume(a, b, c, p)
    below = _volume(a, b, c, q)
    if wp.abs(above) < eps or wp.abs(below) < eps or (above > wp.float64(0.0)) == (below > wp.float64(0.0)):
        return False
    u = _volume(p, q, a, b)
    v = _volume(p, q, b, c)
    w = _volume(p, q, c, a)
    return (u > eps and v > eps and w > eps) or (u < -eps and v < -eps and w < -eps)


@wp.kernel
def crossing_kernel(
    mesh: wp.uint64,
    points: wp.array(dtype=wp.vec3d),
    faces: wp.array2d(dtype=int),
    max_candidates: int,
    pairs: wp.array2d(dtype=int),
    counters: wp.array(dtype=int),
):
    face = wp.tid()
    if counters[0] >= pairs.shape[0]:
        counters[1] = 1
        return
    a = points[faces[face, 0]]
    b = points[faces[face, 1]]
    c = points[faces[face, 2]]
    lower = wp.vec3(wp.min(wp.min(a, b), c))
    upper = wp.vec3(wp.max(wp.max(a, b), c))
    query = wp.mesh_query_aabb(mesh, lower, upper)
    other = int(0)
    tested = int(0)
    while wp.mesh_query_aabb_next(query, other):
        tested += 1
        if tested > max_candidates:
            counters[1] = 1
            break
        if other > face:
            shared = int(0)
            for m in range(3):
                for n in range(3):
                    if faces[face, m] == faces[other, n]:
                        shared += 1
            # Two faces with a common edge can only touch. With one common vertex, the edges opposite to it
            # still tell; those that end in it lie in the other's plane there, which `_pierces` does not
            # count.
            if shared < 2:
                d = points[faces[other, 0]]
                e = points[faces[other, 1]]
                f = points[faces[other, 2]]
                if (
                    _pierces(a, b, d, e, f)
                    or _pierces(b, c, d, e, f)
                    or _pierces(c, a, d, e, f)
                    or _pierces(d, e, a, b, c)
                    or _pierces(e, f, a, b, c)
                    or _pierces(f, d, a, b, c)
                ):
                    slot = wp.atomic_add(counters, 0, 1)
                    if slot < pairs.shape[0]:
                        pairs[slot, 0] = face
                        pairs[slot, 1] = other
