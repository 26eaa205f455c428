"""The incremental potential of one time step: inertia, pads, object, contact, plane and servo."""

from dataclasses import dataclass

import numpy as np

from fistful.jaws.affine_body import AffineBody
from fistful.jaws.contact import Contact
from fistful.jaws.newton import COMMON, Arrow
from fistful.jaws.pads import Pads
from fistful.jaws.plane import Plane


@dataclass(kw_only=True, eq=False)
class Servo:
    """Springs that pull the backings to their targets; one motor with a force limit closes both jaws.

    With e_i how far jaw i lags behind its target along its closing direction, m = (e_0 + e_1) / 2 and
    d = (e_0 - e_1) / 2, the energy is 2 U(m) + k d^2 plus k' / 2 times the square of the error across. U is
    k m^2 / 2 up to the force limit and linear beyond it. Unlimited, these are two springs k; with the limit
    the jaws still keep their common middle, as those that one motor drives through a rack and pinion do.
    """

    inward: np.ndarray
    """(2, 3) float64. Direction in which each jaw closes."""
    stiffness: float
    """N/m. k, of each jaw along the closing axis."""
    across: float
    """N/m. k', in the other two directions."""
    target: np.ndarray
    """(2, 3) float64, m. Shift that each backing is asked for."""
    limit: float = np.inf
    """N. On each jaw."""
    bending: float = 0.0
    """N m / rad. Of the springs that keep the jaws from tilting."""

    def error(self, b: np.ndarray) -> np.ndarray:
        """(2,) float64, m. How far each target lies ahead of the backing's shift b (2, 3), along the axis."""
        return np.einsum("ij,ij->i", self.target - b, self.inward)

    def force(self, b: np.ndarray) -> np.ndarray:
        """(2,) float64, N. With which each jaw is driven inward."""
        e = self.error(b)
        mean = (e[0] + e[1]) / 2
        return self._drive(mean) + self.stiffness * (e - mean)

    def _drive(self, error: float) -> float:
        """N. Of the motor at the mean error of both jaws, m."""
        return max(-self.limit, min(self.limit, self.stiffness * error))

    def energy(self, b: np.ndarray, tilts: np.ndarray) -> float:
        """J. At the shifts b (2, 3), m, and tilts (2,), rad."""
        e = self.error(b)
        mean = (e[0] + e[1]) / 2
        drive = self._drive(mean)
        closing = 2 * drive * mean - drive**2 / self.stiffness
        off = self.target - b - e[:, None] * self.inward
        apart = self.stiffness / 4 * (e[0] - e[1]) ** 2
        bent = self.bending / 2 * (tilts**2).sum()
        return float(closing + apart + bent + self.across / 2 * (off**2).sum())

    def derivatives(self, b: np.ndarray, tilts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient (8,) by tilts and b, and Hessian (8, 8)."""
        e = self.error(b)
        off = self.target - b - e[:, None] * self.inward
        k = self.stiffness if abs(self.stiffness * e.mean()) < self.limit else 0.0
        axes = np.zeros((2, 6))
        axes[0, :3], axes[1, 3:] = self.inward
        modes = (
            np.array([[k + self.stiffness, k - self.stiffness], [k - self.stiffness, k + self.stiffness]]) / 2
        )
        hessian = self.bending * np.eye(8)
        hessian[2:, 2:] = axes.T @ modes @ axes + self.across * (np.eye(6) - axes.T @ axes)
        gradient = -self.force(b)[:, None] * self.inward - self.across * off
        return np.concatenate([self.bending * tilts, gradient.ravel()]), hessian


class IncrementalPotential:
    """E(q) = |q - q~|^2_M / (2 h^2) + pads + object + contact + plane + servo, with q~ = q_t + h v_t + h^2 g.

    Its minimum is the backward Euler step of length h (IPC eq. 3, over h^2).
    """

    def __init__(
        self,
        pads: Pads,
        body: AffineBody,
        contact: Contact,
        plane: Plane | None,
        servo: Servo,
        surface: np.ndarray,
        common: np.ndarray,
    ):
        """Join the parts.

        Args:
          pads: The elastic pads.
          body: The object.
          contact: Between vertices x of the pads' surfaces and the object's.
          plane: Under the same vertices, if there is one.
          servo: Moves the backings.
          surface: (S,) int. Nodes of the pads among the vertices of contact, in their order.
          common: (3 V, 20) float64. dx / d(tilts, shifts of backings, q of the object), 0 for free nodes.
        """
        self.pads, self.body, self.contact, self.plane, self.servo = pads, body, contact, plane, servo
        self.surface, self.common = surface, common
        self._lever = common[3 * len(surface) :, -12:]
        # Unknown of each contact coordinate if it is a free node's, else -1.
        column = pads.column[surface].ravel()
        self._free = np.full(len(common), -1)
        self._free[: len(column)] = np.where(column < 2 * pads.n, column, -1)
        self._free_rows = np.flatnonzero(self._free >= 0)
        self._h = 1.0
        self._ahead = self._x_start = np.zeros(0)
        self._shape_at, self._shapes = np.zeros(0), (np.zeros((0, 3)), np.zeros((0, 3)))

    def begin(self, h: float, q: np.ndarray, ahead: np.ndarray, smoothing: float) -> None:
        """Start a step of h seconds at q towards the ballistic `ahead`; friction smoothed below m/s."""
        self._h, self._ahead = h, ahead
        self._x_start = self.vertices(q)
        self.contact.cover(self._x_start, np.zeros_like(self._x_start))
        self.contact.find(self._x_start)
        self.lag(q, smoothing)

    def lag(self, q: np.ndarray, smoothing: float) -> None:
        """Take the normal forces and tangents of friction from q; its contacts must have been found."""
        x = self.vertices(q)
        self.contact.lag(x, smoothing * self._h)
        if self.plane:
            self.plane.lag(x, smoothing * self._h)

    def vertices(self, q: np.ndarray) -> np.ndarray:
        """(V, 3) float64, m. Vertices of contact for the unknowns q."""
        return self._shape(q)[1]

    def _shape(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All nodes of the pads, and the vertices of contact; kept, as one place is asked for many times."""
        if not np.array_equal(q, self._shape_at):
            nodes = self.pads.positions(q)
            body = (self._lever @ q[-12:]).reshape(-1, 3)
            self._shape_at, self._shapes = q.copy(), (nodes, np.concatenate([nodes[self.surface], body]))
        return self._shapes

    def moves(self, p: np.ndarray) -> np.ndarray:
        """(V, 3) float64, m. Displacement of the vertices of contact when the unknowns change by p."""
        x = self.pads.displacements(p)[self.surface]
        return np.concatenate([x, (self._lever @ p[-12:]).reshape(-1, 3)])

    def contact_forces(self, q: np.ndarray) -> np.ndarray:
        """(V, 3) float64, N. Barrier and friction between the parts, where the contacts were found last."""
        x = self.vertices(q)
        return self.contact.push(x) + self.contact.drag(x - self._x_start)

    def length(self, p: np.ndarray) -> float:
        """The longest displacement of a vertex of contact along one axis, m."""
        return float(np.abs(self.moves(p)).max())

    def free_step(self, q: np.ndarray, p: np.ndarray) -> float:
        """The largest step <= 1 along p without contact."""
        x, move = self.vertices(q), self.moves(p)
        step = self.contact.free_step(x, move)
        return min(step, self.plane.free_step(x, move)) if self.plane else step

    def energy(self, q: np.ndarray) -> float:
        """J. Also finds the contacts at q, which `system` then uses."""
        nodes, x = self._shape(q)
        elastic = self.pads.solid.energies(nodes).sum()
        if not np.isfinite(elastic):
            return np.inf
        u = x - self._x_start
        self.contact.find(x)
        value = elastic + self.contact.energy(x, u) + self.body.energy(q[-12:])
        if self.plane:
            value += self.plane.energy(x, u)
        value += self.servo.energy(q[-18:-12].reshape(2, 3), q[-20:-18])
        off = q - self._ahead
        inertia = self.pads.mass @ off[:-12] ** 2 + off[-12:] @ self.body.mass_matrix @ off[-12:]
        return float(value + inertia / (2 * self._h**2))

    def system(self, q: np.ndarray, project: bool) -> tuple[np.ndarray, Arrow]:
        """Gradient (2 n + 20,) and Hessian at q, where the contacts were found last."""
        pads, n = self.pads, self.pads.n
        off, h2 = q - self._ahead, self._h**2
        gradient = np.zeros(len(q))
        gradient[:-12], arrow = pads.derivatives(self._shape(q)[0], project)
        gradient[:-12] += pads.mass * off[:-12] / h2
        gradient[-12:] += self.body.mass_matrix @ off[-12:] / h2
        for i in range(2):
            arrow.bands[i][0] += pads.mass[i * n : (i + 1) * n] / h2
        corner = arrow.corner
        corner[range(8), range(8)] += pads.mass[2 * n :] / h2
        corner[-12:, -12:] += self.body.mass_matrix / h2
        rigid, rigid_hessian = self.body.derivatives(q[-12:])
        gradient[-9:] += rigid
        corner[-9:, -9:] += rigid_hessian
        pull, pull_hessian = self.servo.derivatives(q[-18:-12].reshape(2, 3), q[-20:-18])
        gradient[-20:-12] += pull
        corner[:8, :8] += pull_hessian
        self._add_contact(q, gradient, arrow)
        return gradient, arrow

    def _add_contact(self, q: np.ndarray, gradient: np.ndarray, arrow: Arrow) -> None:
        """Add contact and plane: g += J'f and H += J'H J, J the motion of vertices by unknowns."""
        x = self.vertices(q)
        u = x - self._x_start
        force = self.contact.push(x) + self.contact.drag(u)
        dofs = (3 * self.contact.near[:, None] + np.arange(3)).ravel()
        for hessian in self.contact.hessians(x, u):
            filled = np.diff(hessian.indptr)
            self._add_bands(arrow, dofs[hessian.indices], np.repeat(dofs, filled), hessian.data)
            used = np.flatnonzero(filled)
            self._add_common(arrow, dofs[used], (hessian @ self.common[dofs])[used])
        if self.plane:
            force = force + self.plane.push(x) + self.plane.drag(u)
            k, blocks = self.plane.hessian(x, u)
            dofs = 3 * k[:, None] + np.arange(3)
            row, col = np.broadcast_arrays(dofs[:, :, None], dofs[:, None, :])
            self._add_bands(arrow, row.ravel(), col.ravel(), blocks.ravel())
            self._add_common(arrow, dofs.ravel(), (blocks @ self.common[dofs]).reshape(-1, COMMON))
        gradient[: 2 * self.pads.n] -= np.bincount(
            self._free[self._free_rows], force.ravel()[self._free_rows], 2 * self.pads.n
        )
        gradient[2 * self.pads.n :] -= self.common.T @ force.ravel()

    def _add_bands(self, arrow: Arrow, row: np.ndarray, col: np.ndarray, data: np.ndarray) -> None:
        """Add entries (row, col) of the Hessian by vertex coordinates where both are of free nodes."""
        row, col = self._free[row], self._free[col]
        both = (row >= 0) & (col >= 0) & (row >= col)
        place = self.pads.places(row[both], col[both])
        # Contact of one pad with the other has no place; without it the matrix stays positive definite.
        kept = place >= 0
        arrow.flat[place[kept]] += data[both][kept]

    def _add_common(self, arrow: Arrow, dofs: np.ndarray, product: np.ndarray) -> None:
        """Add the Hessian's rows `dofs` times dx / d(common unknowns), (D, 20), to sides and corner."""
        target = self._free[dofs]
        free = target >= 0
        sides = arrow.flat[2 * arrow.bands[0].size : -COMMON * COMMON].reshape(-1, COMMON)
        sides[target[free]] += product[free]
        arrow.corner += self.common[dofs].T @ product
