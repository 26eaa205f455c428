# type: ignore
# ruff: noqa: SIM300, D103
"""Warp kernels of the Neo-Hookean solid, in float64, one thread for each tetrahedron.

Kernels are Python syntax in another language, so the checkers are switched off here.
"""

from fistful.geometry.quiet_warp import wp

wp.set_module_options({"enable_backward": False})


@wp.func
def _deformation(
    t: int, x: wp.array(dtype=wp.vec3d), tets: wp.array2d(dtype=int), slopes: wp.array2d(dtype=wp.vec3d)
) -> wp.mat33d:
    """F = sum_a x_a (x) grad N_a."""
    F = wp.outer(x[tets[t, 0]], slopes[t, 0])
    for a in range(1, 4):
        F += wp.outer(x[tets[t, a]], slopes[t, a])
    return F


@wp.kernel
def energy_kernel(
    x: wp.array(dtype=wp.vec3d),
    tets: wp.array2d(dtype=int),
    slopes: wp.array2d(dtype=wp.vec3d),
    volumes: wp.array(dtype=wp.float64),
    mu: wp.float64,
    lam: wp.float64,
    energies: wp.array(dtype=wp.float64),
):
    t = wp.tid()
    F = _deformation(t, x, tets, slopes)
    J = wp.determinant(F)
    if J <= wp.float64(0.0):
        energies[t] = wp.float64(wp.inf)
    else:
        log_J = wp.log(J)
        square = wp.ddot(F, F)
        stretch = wp.float64(0.5) * mu * (square - wp.float64(3.0)) - mu * log_J
        energies[t] = volumes[t] * (stretch + wp.float64(0.5) * lam * log_J * log_J)


@wp.kernel
def derivative_kernel(
    x: wp.array(dtype=wp.vec3d),
    tets: wp.array2d(dtype=int),
    slopes: wp.array2d(dtype=wp.vec3d),
    volumes: wp.array(dtype=wp.float64),
    mu: wp.float64,
    lam: wp.float64,
    gradients: wp.array2d(dtype=wp.vec3d),
    hessians: wp.array3d(dtype=wp.float64),
):
    t = wp.tid()
    F = _deformation(t, x, tets, slopes)
    log_J = wp.log(wp.determinant(F))
    inverse_T = wp.transpose(wp.inverse(F))
    V = volumes[t]
    pull = V * (mu - lam * log_J)
    for a in range(4):
        G_a = slopes[t, a]
        g_a = inverse_T * G_a
        gradients[t, a] = V * mu * (F * G_a) - pull * g_a
        for b in range(4):
            G_b = slopes[t, b]
            g_b = inverse_T * G_b
            diagonal = V * mu * wp.dot(G_a, G_b)
            for i in range(3):
                for j in range(3):
                    value = pull * g_a[j] * g_b[i] + V * lam * g_a[i] * g_b[j]
                    if i == j:
                        value += diagonal
                    hessians[t, 3 * a + i, 3 * b + j] = value
