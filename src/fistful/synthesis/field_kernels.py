# type: ignore
# ruff: noqa: B007, D103, E741, RUF046, RUF100, SIM102, UP018
"""Distance to an object, read from its grid: value, gradient, normal and how the normal turns.

In the box of the grid the distance f is the trilinear interpolation of the stored values, and its
gradient the exact derivative of that; the normal n is the interpolation of the stored gradients,
normalised, which unlike the derivative is smooth from cell to cell. Outside, q is the nearest point of
the box, s = q - f(q) n(q) about the nearest point of the surface, and
    distance = |p - s|,  normal = (p - s) / |p - s|,
much as `geometry.sdf.SdfGrid.query` has it; derivatives are exact here, too.
"""

from fistful.geometry.quiet_warp import wp
from fistful.synthesis.structs import ObjectData

wp.set_module_options({"enable_backward": False})

# A normal shorter than this comes from a fold of the field (the middle of a thin wall) and fades out.
FOLD = wp.constant(0.05)


@wp.struct
class Grid:
    """The grid of one object. Small, because Warp passes records by value."""

    origin: wp.vec3
    upper: wp.vec3
    h: float
    per_h: float
    last: wp.vec3i
    row: int
    slab: int
    start: int
    values: wp.array(dtype=float)
    gradients: wp.array(dtype=wp.vec3)
    bound: wp.array(dtype=wp.int8)
    bound_start: int
    bound_row: int
    bound_slab: int


@wp.func
def grid_of(o: ObjectData, k: int) -> Grid:
    grid = Grid()
    shape = o.shape[k]
    grid.origin = o.origin[k]
    grid.h = o.spacing[k]
    grid.per_h = 1.0 / o.spacing[k]
    grid.last = wp.vec3i(shape[0] - 2, shape[1] - 2, shape[2] - 2)
    grid.upper = grid.origin + grid.h * wp.vec3(float(shape[0] - 1), float(shape[1] - 1), float(shape[2] - 1))
    grid.row = shape[2]
    grid.slab = shape[1] * shape[2]
    grid.start = o.node_start[k]
    grid.values = o.values
    grid.gradients = o.gradients
    grid.bound = o.bound
    grid.bound_start = o.bound_start[k]
    grid.bound_row = o.bound_shape[k][2]
    grid.bound_slab = o.bound_shape[k][1] * o.bound_shape[k][2]
    return grid


@wp.func
def block(grid: Grid, i: int, j: int, k: int) -> float:
    """The lower bound, m, of the block of cells that holds cell (i, j, k)."""
    at = grid.bound_start + (i // 2) * grid.bound_slab + (j // 2) * grid.bound_row + k // 2
    return 0.001 * float(grid.bound[at])


@wp.func
def clearance(grid: Grid, p: wp.vec3) -> float:
    """A lower bound: no point with a negative distance is nearer to p than this. One byte is read."""
    t = (p - grid.origin) * grid.per_h
    i = int(t[0])
    j = int(t[1])
    k = int(t[2])
    if (
        t[0] >= 0.0
        and t[1] >= 0.0
        and t[2] >= 0.0
        and i <= grid.last[0]
        and j <= grid.last[1]
        and k <= grid.last[2]
    ):
        return block(grid, i, j, k)
    # Nothing outside of the box is inside of the object, and the nearest point q of the box is in a block.
    q = wp.min(wp.max(p, grid.origin), grid.upper)
    t = (q - grid.origin) * grid.per_h
    i = wp.min(int(t[0]), grid.last[0])
    j = wp.min(int(t[1]), grid.last[1])
    k = wp.min(int(t[2]), grid.last[2])
    return wp.max(block(grid, i, j, k), wp.length(p - q))


@wp.func
def value(grid: Grid, p: wp.vec3) -> float:
    """The distance alone, of a point in the box; 1 outside of it."""
    t = (p - grid.origin) * grid.per_h
    i = int(t[0])
    j = int(t[1])
    k = int(t[2])
    u = t[0] - float(i)
    v = t[1] - float(j)
    w = t[2] - float(k)
    # Not by i, j, k: they are rounded towards zero.
    below = t[0] < 0.0 or t[1] < 0.0 or t[2] < 0.0
    if below or i > grid.last[0] or j > grid.last[1] or k > grid.last[2]:
        return 1.0
    a = grid.start + i * grid.slab + j * grid.row + k
    b = a + grid.row
    c = a + grid.slab
    d = c + grid.row
    v00 = grid.values[a] + w * (grid.values[a + 1] - grid.values[a])
    v01 = grid.values[b] + w * (grid.values[b + 1] - grid.values[b])
    v10 = grid.values[c] + w * (grid.values[c + 1] - grid.values[c])
    v11 = grid.values[d] + w * (grid.values[d + 1] - grid.values[d])
    v0 = v00 + v * (v01 - v00)
    v1 = v10 + v * (v11 - v10)
    return v0 + u * (v1 - v0)


@wp.func
def distance(grid: Grid, p: wp.vec3) -> wp.vec4:
    """The derivative of the distance, and as fourth number the distance, of a point in the box."""
    q = wp.min(wp.max(p, grid.origin), grid.upper)
    h = grid.h
    t = (q - grid.origin) * grid.per_h
    i = wp.min(int(t[0]), grid.last[0])
    j = wp.min(int(t[1]), grid.last[1])
    l = wp.min(int(t[2]), grid.last[2])
    u = t[0] - float(i)
    v = t[1] - float(j)
    w = t[2] - float(l)
    row = grid.row
    slab = grid.slab
    a = grid.start + i * slab + j * row + l
    v000 = grid.values[a]
    v001 = grid.values[a + 1]
    v010 = grid.values[a + row]
    v011 = grid.values[a + row + 1]
    v100 = grid.values[a + slab]
    v101 = grid.values[a + slab + 1]
    v110 = grid.values[a + slab + row]
    v111 = grid.values[a + slab + row + 1]
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
    return wp.vec4(dx, dy, dz, value)


@wp.struct
class Near:
    """The object seen from a point: distance d, its derivative g, outward normal n, and D with dn = D dp."""

    d: float
    g: wp.vec3
    n: wp.vec3
    D: wp.mat33


@wp.func
def near(grid: Grid, p: wp.vec3) -> Near:
    """Distance and normal at any point, in the box or outside."""
    q = wp.min(wp.max(p, grid.origin), grid.upper)
    t = (q - grid.origin) * grid.per_h
    i = wp.min(int(t[0]), grid.last[0])
    j = wp.min(int(t[1]), grid.last[1])
    l = wp.min(int(t[2]), grid.last[2])
    u = t[0] - float(i)
    v = t[1] - float(j)
    w = t[2] - float(l)
    row = grid.row
    slab = grid.slab
    a = grid.start + i * slab + j * row + l
    g000 = grid.gradients[a]
    g001 = grid.gradients[a + 1]
    g010 = grid.gradients[a + row]
    g011 = grid.gradients[a + row + 1]
    g100 = grid.gradients[a + slab]
    g101 = grid.gradients[a + slab + 1]
    g110 = grid.gradients[a + slab + row]
    g111 = grid.gradients[a + slab + row + 1]
    g00 = g000 + w * (g001 - g000)
    g01 = g010 + w * (g011 - g010)
    g10 = g100 + w * (g101 - g100)
    g11 = g110 + w * (g111 - g110)
    g0 = g00 + v * (g01 - g00)
    g1 = g10 + v * (g11 - g10)
    g = g0 + u * (g1 - g0)
    dx = (g1 - g0) * grid.per_h
    dy = ((g01 - g00) * (1.0 - u) + (g11 - g10) * u) * grid.per_h
    dz = (
        ((g001 - g000) * (1.0 - v) + (g011 - g010) * v) * (1.0 - u)
        + ((g101 - g100) * (1.0 - v) + (g111 - g110) * v) * u
    ) * grid.per_h
    m = wp.sqrt(wp.dot(g, g) + FOLD * FOLD)
    f = distance(grid, q)
    seen = Near()
    seen.d = f[3]
    seen.g = wp.vec3(f[0], f[1], f[2])
    seen.n = g / m
    # d(g / m) = (I - n n^T) dg / m, since dm = n . dg.
    flat = wp.identity(3, dtype=float) - wp.outer(seen.n, seen.n)
    seen.D = flat * wp.matrix_from_cols(dx, dy, dz) / m
    if p[0] != q[0] or p[1] != q[1] or p[2] != q[2]:
        # Along a clamped axis q does not move: P projects onto the others.
        P = wp.diag(wp.vec3(float(p[0] == q[0]), float(p[1] == q[1]), float(p[2] == q[2])))
        spoke = p - q + seen.d * seen.n
        M = wp.identity(3, dtype=float) - P + (wp.outer(seen.n, seen.g) + seen.d * seen.D) * P
        seen.d = wp.length(spoke)
        seen.n = spoke / seen.d
        seen.g = wp.transpose(M) * seen.n
        seen.D = (M - wp.outer(seen.n, seen.g)) / seen.d
    return seen
