# type: ignore
# ruff: noqa: UP018, RUF046, D103
"""Warp kernel: one small second-order cone programme per grasp and direction, by an interior-point method.

Kernels are Python syntax in another language, so the checkers are switched off here: a variable that changes
in a loop has to be declared by wp.float64(0.0), and array types are calls.
"""

from fistful.geometry.quiet_warp import wp

wp.set_module_options({"enable_backward": False})

real = wp.float64
vec6 = wp.types.vector(length=6, dtype=wp.float64)
mat64 = wp.types.matrix(shape=(6, 4), dtype=wp.float64)
mat66 = wp.types.matrix(shape=(6, 6), dtype=wp.float64)

MAX_STEPS = wp.constant(60)
# Part of the way to the boundary of the cones that a step may go.
REACH = wp.constant(wp.float64(0.95))
# Weight of |y|^2 / 2, which keeps y finite where the forces do not span all wrenches, and rounding noise.
SMALL = wp.constant(wp.float64(1.0e-12))
NOISE = wp.constant(wp.float64(1.0e-14))


@wp.struct
class Contact:
    """State of one contact in one programme, and its present step."""

    f: wp.vec4d  # force on the unit cone
    u: wp.float64  # 1 - f[0], what is left of the bound on the normal force
    z: wp.vec4d  # dual of f: s e0 - A^T y, on the unit cone
    s: wp.float64  # dual of u
    w: wp.vec4d  # Nesterov-Todd scaling point: H = eta (2 w w^T - J), H z = f
    eta: wp.float64
    q: wp.vec4d  # right-hand side of the linearised complementarity of f and z
    qu: wp.float64  # the same for u and s
    df: wp.vec4d
    du: wp.float64
    dz: wp.vec4d
    ds: wp.float64


@wp.func
def _flip(x: wp.vec4d) -> wp.vec4d:
    """Return J x with J = diag(1, -1, -1, -1)."""
    return wp.vec4d(x[0], -x[1], -x[2], -x[3])


@wp.func
def _side(x: wp.vec4d) -> wp.float64:
    return wp.sqrt(x[1] * x[1] + x[2] * x[2] + x[3] * x[3])


@wp.func
def _det(x: wp.vec4d) -> wp.float64:
    """Return x^T J x, positive inside the cone."""
    side = _side(x)
    return (x[0] - side) * (x[0] + side)


@wp.func
def _scale(eta: wp.float64, w: wp.vec4d, x: wp.vec4d) -> wp.vec4d:
    """Return H x."""
    return eta * (real(2.0) * wp.dot(w, x) * w - _flip(x))


@wp.func
def _root(w: wp.vec4d, x: wp.vec4d) -> wp.vec4d:
    """Return V x, where V V = H / eta; with J w instead of w, its inverse."""
    dot = w[1] * x[1] + w[2] * x[2] + w[3] * x[3]
    a = x[0] + dot / (real(1.0) + w[0])
    return wp.vec4d(w[0] * x[0] + dot, x[1] + a * w[1], x[2] + a * w[2], x[3] + a * w[3])


@wp.func
def _product(a: wp.vec4d, b: wp.vec4d) -> wp.vec4d:
    """Jordan product of the cone."""
    x = a[0] * b + b[0] * a
    x[0] = wp.dot(a, b)
    return x


@wp.func
def _quotient(a: wp.vec4d, x: wp.vec4d) -> wp.vec4d:
    """Return b with _product(a, b) = x."""
    first = wp.dot(_flip(a), x) / _det(a)
    b = (x - first * a) / a[0]
    b[0] = first
    return b


@wp.func
def _reach(x: wp.vec4d, dx: wp.vec4d) -> wp.float64:
    """Largest t <= 1 with x + t dx short of the cone's boundary: smallest root of a t^2 + 2 b t + c."""
    a = _det(dx)
    b = wp.dot(_flip(x), dx)
    c = _det(x)
    root = wp.sqrt(wp.max(b * b - a * c, real(0.0))) - b
    if REACH * c < root:
        return REACH * c / root
    return real(1.0)


@wp.func
def _reach_scalar(x: wp.float64, dx: wp.float64) -> wp.float64:
    if REACH * x < -dx:
        return -REACH * x / dx
    return real(1.0)


@wp.func
def _cholesky(M: mat66) -> mat66:
    L = mat66()
    for j in range(6):
        for i in range(j, 6):
            x = M[i, j]
            for k in range(j):
                x -= L[i, k] * L[j, k]
            if i == j:
                L[i, j] = wp.sqrt(wp.max(x, real(1.0e-300)))
            else:
                L[i, j] = x / L[j, j]
    return L


@wp.func
def _solve(L: mat66, b: vec6) -> vec6:
    x = b
    for i in range(6):
        for k in range(i):
            x[i] -= L[i, k] * x[k]
        x[i] = x[i] / L[i, i]
    for j in range(6):
        i = 5 - j
        for k in range(i + 1, 6):
            x[i] -= L[k, i] * x[k]
        x[i] = x[i] / L[i, i]
    return x


@wp.func
def _right_side(
    A: wp.array2d(dtype=mat64), state: wp.array2d(dtype=Contact), grasp: int, problem: int
) -> vec6:
    """What the linearised complementarities add to the six equations of dy."""
    b = vec6()
    for c in range(A.shape[1]):
        k = state[problem, c]
        h = _scale(k.eta, k.w, wp.vec4d(real(1.0), real(0.0), real(0.0), real(0.0)))
        b -= A[grasp, c] * (k.q - h * ((k.q[0] + k.qu) / (h[0] + k.u / k.s)))
    return b


@wp.func
def _follow(
    A: wp.array2d(dtype=mat64), state: wp.array2d(dtype=Contact), grasp: int, problem: int, dy: vec6
) -> wp.float64:
    """Set the steps of all contacts from dy; return the part of them that stays inside all cones."""
    reach = real(1.0)
    for c in range(A.shape[1]):
        k = state[problem, c]
        x = wp.transpose(A[grasp, c]) * dy
        h = _scale(k.eta, k.w, wp.vec4d(real(1.0), real(0.0), real(0.0), real(0.0)))
        k.ds = (k.q[0] + k.qu + wp.dot(h, x)) / (h[0] + k.u / k.s)
        k.dz = wp.vec4d(k.ds - x[0], -x[1], -x[2], -x[3])
        k.df = k.q - _scale(k.eta, k.w, k.dz)
        k.du = k.qu - k.u / k.s * k.ds
        state[problem, c] = k
        reach = wp.min(reach, wp.min(_reach(k.f, k.df), _reach_scalar(k.u, k.du)))
        reach = wp.min(reach, wp.min(_reach(k.z, k.dz), _reach_scalar(k.s, k.ds)))
    return reach


@wp.kernel
def resistance_kernel(
    A: wp.array2d(dtype=mat64),
    directions: wp.array(dtype=vec6),
    relative: wp.float64,
    absolute: wp.float64,
    state: wp.array2d(dtype=Contact),
    values: wp.array2d(dtype=wp.float64),
    converged: wp.array2d(dtype=bool),
):
    # maximise lambda over forces:   sum_c A_c f_c = lambda d,  f_c in Q,  f_c[0] + u_c = 1,  u_c >= 0
    # minimise sum_c s_c over y:     z_c = s_c e0 - A_c^T y in Q,  s_c >= 0,  d . y = 1
    # The second needs no feasible forces, and its value at any y bounds lambda from above: the result is the
    # least of these bounds. All equations but the first hold from the start and are kept by every step.
    grasp, direction = wp.tid()
    problem = grasp * directions.shape[0] + direction
    contacts = A.shape[1]
    d = directions[direction]
    half = real(0.5)

    y = d / wp.dot(d, d)
    lam = real(0.0)
    for c in range(contacts):
        x = wp.transpose(A[grasp, c]) * y
        k = Contact()
        k.f = wp.vec4d(half, real(0.0), real(0.0), real(0.0))
        k.u = half
        k.s = wp.max(real(0.0), x[0] + _side(x)) + half
        k.z = wp.vec4d(k.s - x[0], -x[1], -x[2], -x[3])
        state[problem, c] = k

    best = real(wp.inf)
    step = int(0)
    while step < MAX_STEPS:
        # 1. How far from the solution?
        gap = real(0.0)
        bound = real(0.0)
        residual = SMALL * y - lam * d
        for c in range(contacts):
            k = state[problem, c]
            gap += wp.dot(k.f, k.z) + k.u * k.s
            bound += wp.max(real(0.0), k.s - k.z[0] + _side(k.z))
            residual += A[grasp, c] * k.f
        best = wp.min(best, bound)
        tolerance = relative * best + absolute
        if best < absolute or (gap < tolerance and wp.length(residual) * wp.length(y) < tolerance):
            converged[grasp, direction] = True
            break

        # 2. The linearised equations, reduced to six unknowns: M dy = b + dlam d, d . dy = 0.
        M = mat66()
        lost = bool(False)
        for c in range(contacts):
            k = state[problem, c]
            det_z = _det(k.z)
            det_f = _det(k.f)
            if not (det_z > real(0.0) and det_f > real(0.0) and k.u > real(0.0) and k.s > real(0.0)):
                lost = True
                break
            z = k.z / wp.sqrt(det_z)
            f = k.f / wp.sqrt(det_f)
            k.w = (f + _flip(z)) / wp.sqrt(real(2.0) * (real(1.0) + wp.dot(z, f)))
            k.eta = wp.sqrt(det_f / det_z)
            k.q = -k.f
            k.qu = -k.u
            state[problem, c] = k
            h = _scale(k.eta, k.w, wp.vec4d(real(1.0), real(0.0), real(0.0), real(0.0)))
            K = real(2.0) * k.eta * wp.outer(k.w, k.w) - wp.outer(h, h) / (h[0] + k.u / k.s)
            K[0, 0] = K[0, 0] - k.eta
            for i in range(1, 4):
                K[i, i] = K[i, i] + k.eta
            M += A[grasp, c] * K * wp.transpose(A[grasp, c])
        if lost:  # The limit of float64, far beyond the tolerance of a well-posed programme.
            break
        damping = SMALL + NOISE * wp.trace(M)
        for i in range(6):
            M[i, i] = M[i, i] + damping
        L = _cholesky(M)
        q = _solve(L, d)

        # 3. Predictor: straight at the solution. The shorter it gets, the more centring is needed.
        p = _solve(L, _right_side(A, state, grasp, problem) - residual)
        short = real(1.0) - _follow(A, state, grasp, problem, p - wp.dot(d, p) / wp.dot(d, q) * q)
        centring = wp.clamp(short * short, real(1.0e-3), real(0.9))
        target = centring * gap / real(2 * contacts)

        # 4. Corrector: Mehrotra's second-order term. Without it, grasps at the edge of closure stall.
        for c in range(contacts):
            k = state[problem, c]
            second = _product(_root(_flip(k.w), k.df), _root(k.w, k.dz))
            second = _root(k.w, _quotient(_root(k.w, k.z), second))
            k.q = target / _det(k.z) * _flip(k.z) - k.f - second
            k.qu = (target - k.du * k.ds) / k.s - k.u
            state[problem, c] = k
        p = _solve(L, _right_side(A, state, grasp, problem) - (real(1.0) - centring) * residual)
        dlam = -wp.dot(d, p) / wp.dot(d, q)
        dy = p + dlam * q
        reach = _follow(A, state, grasp, problem, dy)

        # 5. Step.
        for c in range(contacts):
            k = state[problem, c]
            k.f += reach * k.df
            k.u += reach * k.du
            k.z += reach * k.dz
            k.s += reach * k.ds
            state[problem, c] = k
        lam += reach * dlam
        y += reach * dy
        step += 1

    values[grasp, direction] = best
    if best < absolute:
        values[grasp, direction] = real(0.0)
