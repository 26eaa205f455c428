"""Both pads as one elastic system: unknowns, masses, and where each tetrahedron's numbers go."""

import numpy as np

from fistful.jaws.elasticity import NeoHookean, lame
from fistful.jaws.gripper import Pad
from fistful.jaws.newton import COMMON, Arrow
from fistful.jaws.pad_mesh import PadMesh

# kg. Of a jaw behind its pad.
BACKING_MASS = 0.1


class Pads:
    """Two pads on their backings; unknowns: free nodes of pad 0, of pad 1, tilts and shifts of the backings.

    Free nodes are unknown by their positions. Those on a backing move with its shift b (3,) and its small
    tilt phi: x = X + b + phi r, where r is how far a node moves in a turn of the jaw by one radian.
    """

    def __init__(self, meshes: tuple[PadMesh, PadMesh], pad: Pad, turns: np.ndarray | None = None):
        """Build both pads.

        Args:
          meshes: With the same numbering, in world coordinates, undeformed.
          pad: What they are made of.
          turns: (2 N, 3) float64, m. r of every node of pad 0, then of pad 1; None if jaws can not tilt.
        """
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
        self.turns = np.zeros_like(self.rest)
        """(2 N, 3) float64, m. r of the nodes on a backing, 0 elsewhere."""
        if turns is not None:
            self.turns[self.fixed] = turns[self.fixed]
        self.n = 3 * len(self.free) // 2
        """Unknowns of one band."""
        self.node_mass = np.bincount(
            self.tets.ravel(), np.repeat(pad.density * self.solid.volumes / 4, 4), len(self.rest)
        )
        self.mass = np.concatenate(
            [
                np.repeat(self.node_mass[self.free], 3),
                [self._inertia(i) for i in range(2)],
                *(np.full(3, BACKING_MASS + self.node_mass[self._backing[i]].sum()) for i in range(2)),
            ]
        )
        """(2 n + 8,) float64. Lumped: kg, and kg m2 of the two tilts."""
        # Column of each coordinate among the unknowns: free ones, two tilts, then shifts of the backings.
        column = np.empty((2 * n, 3), int)
        column[self.free] = np.arange(2 * self.n).reshape(-1, 3)
        for i in range(2):
            column[self._backing[i]] = 2 * self.n + 2 + 3 * i + np.arange(3)
        self.column = column
        self._coordinates = (3 * self.tets[:, :, None] + np.arange(3)).ravel()
        self._assemble_pattern()

    def _inertia(self, i: int) -> float:
        """kg m2. Of a jaw that tilts, as if its mass were at its pad; anything for one that can not."""
        square = (self.turns[self._backing[i]] ** 2).sum(axis=1)
        return (BACKING_MASS * square.mean() + self.node_mass[self._backing[i]] @ square) or 1.0

    def _assemble_pattern(self) -> None:
        """The sparse matrix that sums Hessians of tetrahedra (T, 12, 12), raveled, into Arrow.flat."""
        from scipy.sparse import csr_matrix

        n = self.n
        # Unknowns that move each of the twelve coordinates of a tetrahedron, and by how much: its own, and a
        # tilt.
        own = self.column[self.tets].reshape(-1, 12, 1)
        tilt = np.broadcast_to(2 * n + (self.tets[:, :1, None] >= self.count), own.shape)
        lever = self.turns[self.tets].reshape(-1, 12, 1)
        column, weight = own, np.ones(own.shape)
        if lever.any():
            column, weight = np.concatenate([own, tilt], axis=2), np.concatenate([weight, lever], axis=2)
        row, col = np.broadcast_arrays(column[:, :, :, None, None], column[:, None, None, :, :])
        weight = weight[:, :, :, None, None] * weight[:, None, None, :, :]
        entry = np.broadcast_to(np.arange(144 * len(own)).reshape(-1, 12, 1, 12, 1), row.shape).ravel()
        row, col, weight = row.ravel(), col.ravel(), weight.ravel()
        banded = (row < 2 * n) & (col < 2 * n)
        self.width = int((row - col)[banded].max()) + 1
        place = self.places(row, col)
        used = (place >= 0) & (weight != 0)
        shape = (Arrow.size(self.width, n), 144 * len(own))
        self._sum = csr_matrix((weight[used], (place[used], entry[used])), shape=shape)

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
            at = 2 * self.n + 2 + 3 * i
            x[self._backing[i]] += q[at : at + 3] + q[2 * self.n + i] * self.turns[self._backing[i]]
        return x

    def displacements(self, p: np.ndarray) -> np.ndarray:
        """(2 n, 3) float64, m. How nodes move when the unknowns change by p."""
        tilts = np.repeat(p[2 * self.n : 2 * self.n + 2], self.count)
        return p[self.column] + tilts[:, None] * self.turns

    def unknowns(self, force: np.ndarray) -> np.ndarray:
        """(2 n + 8,) float64. Forces or gradients on nodes (2 N, 3), summed over what moves them."""
        summed = np.bincount(self.column.ravel(), force.ravel(), 2 * self.n + 8)
        summed[2 * self.n : 2 * self.n + 2] = (force * self.turns).reshape(2, -1).sum(axis=1)
        return summed

    def derivatives(self, x: np.ndarray, project: bool) -> tuple[np.ndarray, Arrow]:
        """Gradient (2 n + 8,) of the elastic energy by the unknowns, and its Hessian."""
        gradient, hessian = self.solid.derivatives(x, project)
        of_nodes = np.bincount(self._coordinates, gradient.ravel(), 3 * len(x)).reshape(-1, 3)
        return self.unknowns(of_nodes), Arrow(self._sum @ hessian.ravel(), self.width, self.n)
