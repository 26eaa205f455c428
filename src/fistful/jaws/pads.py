"""Both pads as one elastic system: unknowns, masses, and where each tetrahedron's numbers go."""

import numpy as np

from fistful.jaws.elasticity import NeoHookean, lame
from fistful.jaws.gripper import Pad
from fistful.jaws.newton import COMMON, Arrow
from fistful.jaws.pad_mesh import PadMesh

# kg. Of a jaw behind its pad.
BACKING_MASS = 0.1


class Pads:
    """Two pads on their backings, with unknowns (free nodes of pad 0, of pad 1, shifts of both backings).

    Free nodes are unknown by their positions, those on a backing move with its shift b (3,): x = X + b.
    """

    def __init__(self, meshes: tuple[PadMesh, PadMesh], pad: Pad):
        """Take two meshes with the same numbering, in world coordinates, undeformed."""
        first, second = meshes
        n = len(first.nodes)
        self.count = n
        """Nodes of one pad."""
        self.rest = np.concatenate([first.nodes, second.nodes])
        """(2 n, 3) float64, m."""
        self.tets = np.concatenate([first.tets, second.tets + n])
        self.solid = NeoHookean(self.rest, self.tets, *lame(pad.youngs_modulus, pad.poissons_ratio))
        backing = np.concatenate([first.backing, second.backing])
        self.free, self.fixed = np.flatnonzero(~backing), np.flatnonzero(backing)
        self._backing = [self.fixed[self.fixed < n], self.fixed[self.fixed >= n]]
        self.n = 3 * len(self.free) // 2
        """Unknowns of one band."""
        self.node_mass = np.bincount(
            self.tets.ravel(), np.repeat(pad.density * self.solid.volumes / 4, 4), len(self.rest)
        )
        self.mass = np.concatenate(
            [
                np.repeat(self.node_mass[self.free], 3),
                *(np.full(3, BACKING_MASS + self.node_mass[self._backing[i]].sum()) for i in range(2)),
            ]
        )
        """(2 n + 6,) float64, kg. Lumped."""
        # Column of each coordinate among the unknowns: free ones first, then the six of the backings.
        column = np.empty((2 * n, 3), int)
        column[self.free] = np.arange(2 * self.n).reshape(-1, 3)
        for i in range(2):
            column[self._backing[i]] = 2 * self.n + 3 * i + np.arange(3)
        self.column = column
        self._scatter_gradient = column[self.tets].ravel()
        self._assemble_pattern()

    def _assemble_pattern(self) -> None:
        """The sparse matrix that sums Hessians of tetrahedra (T, 12, 12), raveled, into Arrow.flat."""
        from scipy.sparse import csr_matrix

        n = self.n
        columns = self.column[self.tets].reshape(-1, 12)
        row, col = np.broadcast_arrays(columns[:, :, None], columns[:, None, :])
        row, col = row.ravel(), col.ravel()
        banded = (row < 2 * n) & (col < 2 * n)
        self.width = int((row - col)[banded].max()) + 1
        place = self.places(row, col)
        used = np.flatnonzero(place >= 0)
        size = Arrow.size(self.width, n)
        self._sum = csr_matrix((np.ones(len(used)), (place[used], used)), shape=(size, len(row)))

    def places(self, row: np.ndarray, col: np.ndarray) -> np.ndarray:
        """(K,) int. Index into Arrow.flat of entries (row, col); -1 if stored by symmetry or not at all."""
        n, width = self.n, self.width
        band, side = width * n, COMMON * n
        place = np.full(len(row), -1)
        free_row, free_col = row < 2 * n, col < 2 * n
        pad = row // n
        in_band = free_row & free_col & (row >= col) & (pad == col // n)
        i, j = row[in_band] - pad[in_band] * n, col[in_band] - pad[in_band] * n
        place[in_band] = pad[in_band] * band + (i - j) * n + j
        in_side = free_row & ~free_col
        i, j = row[in_side] - pad[in_side] * n, col[in_side] - 2 * n
        place[in_side] = 2 * band + pad[in_side] * side + i * COMMON + j
        in_corner = ~free_row & ~free_col
        place[in_corner] = 2 * (band + side) + (row[in_corner] - 2 * n) * COMMON + col[in_corner] - 2 * n
        return place

    def positions(self, q: np.ndarray) -> np.ndarray:
        """(2 n, 3) float64, m. All nodes for the unknowns q."""
        x = self.rest.copy()
        x[self.free] = q[: 2 * self.n].reshape(-1, 3)
        for i in range(2):
            x[self._backing[i]] += q[2 * self.n + 3 * i : 2 * self.n + 3 * i + 3]
        return x

    def displacements(self, p: np.ndarray) -> np.ndarray:
        """(2 n, 3) float64, m. How nodes move when the unknowns change by p."""
        return p[self.column]

    def unknowns(self, force: np.ndarray) -> np.ndarray:
        """(2 n + 6,) float64. Forces or gradients on nodes (2 n, 3), summed over what moves them."""
        return np.bincount(self.column.ravel(), force.ravel(), 2 * self.n + 6)

    def derivatives(self, x: np.ndarray, project: bool) -> tuple[np.ndarray, Arrow]:
        """Gradient (2 n + 6,) of the elastic energy by the unknowns, and its Hessian."""
        gradient, hessian = self.solid.derivatives(x, project)
        summed = np.bincount(self._scatter_gradient, gradient.ravel(), 2 * self.n + 6)
        return summed, Arrow(self._sum @ hessian.ravel(), self.width, self.n)
