# type: ignore
# ruff: noqa: UP018, RUF046, D103
"""Distance to an object, read from its grid: value, gradient, normal and how the normal turns.

With q the point p clamped to the box of the grid and f the trilinear interpolation of the stored values, the
distance is f(q) + |p - q|: continuous, exact derivative everywhere, and too large by at most a factor far from
the object, where only its direction matters. The normal is the interpolation of the stored gradients, which is
smooth across the surface, normalised.
"""

from fistful.geometry.quiet_warp import wp
from fistful.synthesis.structs import ObjectData

wp.set_module_options({"enable_backward": False})

# Interpolating between nodes and taking the nearest node each differ from the exact field by at most half the
# diagonal of a cell, so a ball of radius r whose nearest node has a value above r + SLACK h holds no point
# with a negative interpolated value.
SLACK = wp.constant(1.7321)
# A normal shorter than this comes from a fold of the field (the middle of a thin wall) and fades out.
FOLD = wp.constant(0.05)


@wp.func
def clamped(o: ObjectData, k: int, p: wp.vec3) -> wp.vec3:
    upper = o.origin[k] + o.spacing[k] * wp.vec3(
        float(o.shape[k][0] - 1), float(o.shape[k][1] - 1), float(o.shape[k][2] - 1)
    )
    return wp.min(wp.max(p, o.origin[k]), upper)


@wp.func
def node(o: ObjectData, k: int, i: int, j: int, l: int) -> int:
    return o.node_start[k] + (i * o.shape[k][1] + j) * o.shape[k][2] + l


@wp.func
def clearance(o: ObjectData, k: int, p: wp.vec3) -> float:
    """A lower bound: no point with a negative distance is nearer to p than this. One memory access."""
    q = clamped(o, k, p)
    h = o.spacing[k]
    t = (q - o.origin[k]) / h
    value = o.values[node(o, k, int(t[0] + 0.5), int(t[1] + 0.5), int(t[2] + 0.5))] - SLACK * h
    return wp.max(value, wp.length(p - q))


@wp.func
def distance(o: ObjectData, k: int, p: wp.vec3) -> wp.vec4:
    """The exact derivative of the distance, and as fourth number the distance."""
    q = clamped(o, k, p)
    h = o.spacing[k]
    t = (q - o.origin[k]) / h
    i = wp.min(int(t[0]), o.shape[k][0] - 2)
    j = wp.min(int(t[1]), o.shape[k][1] - 2)
    l = wp.min(int(t[2]), o.shape[k][2] - 2)
    u = t[0] - float(i)
    v = t[1] - float(j)
    w = t[2] - float(l)
    row = o.shape[k][2]
    slab = o.shape[k][1] * row
    a = node(o, k, i, j, l)
    v000 = o.values[a]
    v001 = o.values[a + 1]
    v010 = o.values[a + row]
    v011 = o.values[a + row + 1]
    v100 = o.values[a + slab]
    v101 = o.values[a + slab + 1]
    v110 = o.values[a + slab + row]
    v111 = o.values[a + slab + row + 1]
    v00 = v000 + w * (v001 - v000)
    v01 = v010 + w * (v011 - v010)
    v10 = v100 + w * (v101 - v100)
    v11 = v110 + w * (v111 - v110)
    v0 = v00 + v * (v01 - v00)
    v1 = v10 + v * (v11 - v10)
    value = v0 + u * (v1 - v0)
    dx = (v1 - v0) / h
    dy = ((1.0 - u) * (v01 - v00) + u * (v11 - v10)) / h
    dz = (
        (1.0 - u) * ((1.0 - v) * (v001 - v000) + v * (v011 - v010))
        + u * ((1.0 - v) * (v101 - v100) + v * (v111 - v110))
    ) / h
    away = p - q
    gap = wp.length(away)
    if gap > 0.0:
        # Along a clamped axis q does not move.
        if away[0] != 0.0:
            dx = away[0] / gap
        if away[1] != 0.0:
            dy = away[1] / gap
        if away[2] != 0.0:
            dz = away[2] / gap
    return wp.vec4(dx, dy, dz, value + gap)


@wp.struct
class Normal:
    """Outward unit normal n, and D with dn = D dp."""

    n: wp.vec3
    D: wp.mat33


@wp.func
def normal(o: ObjectData, k: int, p: wp.vec3) -> Normal:
    q = clamped(o, k, p)
    h = o.spacing[k]
    t = (q - o.origin[k]) / h
    i = wp.min(int(t[0]), o.shape[k][0] - 2)
    j = wp.min(int(t[1]), o.shape[k][1] - 2)
    l = wp.min(int(t[2]), o.shape[k][2] - 2)
    u = t[0] - float(i)
    v = t[1] - float(j)
    w = t[2] - float(l)
    row = o.shape[k][2]
    slab = o.shape[k][1] * row
    a = node(o, k, i, j, l)
    g000 = o.gradients[a]
    g001 = o.gradients[a + 1]
    g010 = o.gradients[a + row]
    g011 = o.gradients[a + row + 1]
    g100 = o.gradients[a + slab]
    g101 = o.gradients[a + slab + 1]
    g110 = o.gradients[a + slab + row]
    g111 = o.gradients[a + slab + row + 1]
    g00 = g000 + w * (g001 - g000)
    g01 = g010 + w * (g011 - g010)
    g10 = g100 + w * (g101 - g100)
    g11 = g110 + w * (g111 - g110)
    g0 = g00 + v * (g01 - g00)
    g1 = g10 + v * (g11 - g10)
    g = g0 + u * (g1 - g0)
    dx = (g1 - g0) / h
    dy = ((g01 - g00) * (1.0 - u) + (g11 - g10) * u) / h
    dz = (
        ((g001 - g000) * (1.0 - v) + (g011 - g010) * v) * (1.0 - u)
        + ((g101 - g100) * (1.0 - v) + (g111 - g110) * v) * u
    ) / h
    if p[0] != q[0]:
        dx = wp.vec3(0.0, 0.0, 0.0)
    if p[1] != q[1]:
        dy = wp.vec3(0.0, 0.0, 0.0)
    if p[2] != q[2]:
        dz = wp.vec3(0.0, 0.0, 0.0)
    m = wp.sqrt(wp.dot(g, g) + FOLD * FOLD)
    result = Normal()
    result.n = g / m
    # d(g / m) = (I - n n^T) dg / m, since dm = n . dg.
    dx = (dx - result.n * wp.dot(result.n, dx)) / m
    dy = (dy - result.n * wp.dot(result.n, dy)) / m
    dz = (dz - result.n * wp.dot(result.n, dz)) / m
    result.D = wp.matrix_from_cols(dx, dy, dz)
    return result
