"""The Neo-Hookean solid of the pads: energy, gradient and Hessian of every tetrahedron."""

from typing import Any

import numpy as np

from fistful.jaws.pad_mesh import tet_volumes


def lame(youngs_modulus: float, poissons_ratio: float) -> tuple[float, float]:
    """Lame's mu and lambda (Pa): E / (2 (1 + nu)) and E nu / ((1 + nu) (1 - 2 nu))."""
    E, nu = youngs_modulus, poissons_ratio
    return E / (2 * (1 + nu)), E * nu / ((1 + nu) * (1 - 2 * nu))


class NeoHookean:
    """psi(F) = mu / 2 (tr F'F - 3) - mu ln J + lambda / 2 (ln J)^2 over linear tetrahedra, J = det F > 0.

    With G_a the rest gradient of node a's shape function and g_a = F^-T G_a, a tetrahedron of volume V has
    gradient V (mu F G_a - (mu - lambda ln J) g_a) and Hessian blocks
    V (mu G_a.G_b 1 + (mu - lambda ln J) g_b g_a' + lambda g_a g_b'). The energy of an inverted one is inf.
    """

    def __init__(self, nodes: np.ndarray, tets: np.ndarray, mu: float, lam: float):
        """Take the rest shape.

        Args:
          nodes: (N, 3) float, m.
          tets: (T, 4) int, each with positive volume.
          mu: Pa.
          lam: Pa.
        """
        from fistful.geometry.quiet_warp import wp
        from fistful.jaws import elasticity_kernels as kernels

        self.tets = np.ascontiguousarray(tets, np.int32)
        self.volumes = tet_volumes(nodes, tets)
        """(T,) float64, m3. At rest."""
        a, b, c, d = np.moveaxis(nodes[tets], 1, 0)
        inverse = np.linalg.inv(np.stack([b - a, c - a, d - a], axis=2))
        slopes = np.concatenate([-inverse.sum(axis=1, keepdims=True), inverse], axis=1)
        count = len(tets)

        def array(data: np.ndarray, dtype: type) -> "wp.array":
            return wp.array(data, dtype=dtype, device="cpu")

        self._x = array(nodes, wp.vec3d)
        self._energies = wp.zeros(count, dtype=wp.float64, device="cpu")
        gradients = wp.zeros((count, 4), dtype=wp.vec3d, device="cpu")
        hessians = wp.zeros((count, 12, 12), dtype=wp.float64, device="cpu")
        rest = [
            self._x,
            array(self.tets, wp.int32),
            array(slopes, wp.vec3d),
            array(self.volumes, wp.float64),
            wp.float64(mu),
            wp.float64(lam),
        ]
        launch = {"dim": count, "device": "cpu", "record_cmd": True}
        outputs = [self._energies]
        # With record_cmd a launch is returned instead of run, which Warp's types do not say.
        self._energy: Any = wp.launch(kernels.energy_kernel, inputs=rest, outputs=outputs, **launch)
        outputs = [gradients, hessians]
        self._derive: Any = wp.launch(kernels.derivative_kernel, inputs=rest, outputs=outputs, **launch)
        # Views of Warp's memory: on the CPU nothing is copied.
        self._x_view, self._energy_view = self._x.numpy(), self._energies.numpy()
        self._gradient_view, self._hessian_view = gradients.numpy(), np.asarray(hessians.numpy(), np.float64)

    def energies(self, x: np.ndarray) -> np.ndarray:
        """(T,) float64, J. At node positions x (N, 3); inf where a tetrahedron is inverted."""
        self._x_view[:] = x
        self._energy.launch()
        return self._energy_view.copy()

    def derivatives(self, x: np.ndarray, project: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Gradient (T, 4, 3), N, and Hessian (T, 12, 12), N/m, of each tetrahedron, until the next call.

        Args:
          x: (N, 3) float64, m. No tetrahedron inverted.
          project: Set negative eigenvalues of each Hessian to zero.
        """
        self._x_view[:] = x
        self._derive.launch()
        hessian = self._hessian_view
        if project:
            values, vectors = np.linalg.eigh(hessian)
            hessian = np.einsum("tij,tj,tkj->tik", vectors, np.maximum(values, 0), vectors)
        return self._gradient_view, hessian

    def inverted(self, x: np.ndarray) -> int:
        """How many tetrahedra have no positive volume at x (N, 3)."""
        return int((tet_volumes(x, self.tets) <= 0).sum())
