"""Contact of object and pads: ipctk's barrier, lagged friction and continuous collision detection."""

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from fistful.errors import JawsError

# m. Boxes are inflated by this when candidates are sought; they serve until something moved as far.
_INFLATION = 6e-4
# m. Only faces whose boxes are this close to the box of another part are looked at; they serve until
# something moved by almost half of it. Most of an object of thousands of faces is far from the pads.
_NEIGHBOURHOOD = 6e-3
# Of the barrier: the force (N) of one contact at half the activation distance.
_HALFWAY_FORCE = 1.0


def load_ipctk() -> ModuleType:
    """The module ipctk, or JawsError if it is not installed. Sets its number of threads to one."""
    try:
        import ipctk
    except ImportError as error:
        raise JawsError("soft jaws need ipctk; install it with: pip install 'fistful[jaws]'") from error
    ipctk.set_num_threads(1)
    ipctk.set_logger_level(ipctk.LoggerLevel.error)
    return ipctk


def barrier_stiffness(dhat: float) -> float:
    """kappa (N / m^3) at which a contact at half the activation distance dhat (m) pushes with 1 N."""
    return _HALFWAY_FORCE / -float(barrier_slope(np.array(dhat / 2), dhat))


def barrier_value(d: np.ndarray, dhat: float) -> np.ndarray:
    """b(d) = -(d^2 - dhat^2)^2 ln(d^2 / dhat^2) for 0 < d < dhat; IPC eq. 6 of squared distances."""
    s, s0 = d**2, dhat**2
    return -((s - s0) ** 2) * np.log(s / s0)


def barrier_slope(d: np.ndarray, dhat: float) -> np.ndarray:
    """db/dd, negative."""
    s, s0 = d**2, dhat**2
    return 2 * d * (-2 * (s - s0) * np.log(s / s0) - (s - s0) ** 2 / s)


def barrier_curvature(d: np.ndarray, dhat: float) -> np.ndarray:
    """d2b/dd2, positive."""
    s, s0 = d**2, dhat**2
    log = np.log(s / s0)
    first = -2 * (s - s0) * log - (s - s0) ** 2 / s
    second = -2 * log - 4 * (s - s0) / s + ((s - s0) / s) ** 2
    return 2 * first + 4 * s * second


class Surfaces(NamedTuple):
    """Triangle meshes that may touch each other, one after the other; none touches itself."""

    vertices: np.ndarray
    """(V, 3) float64, m. At the start."""
    faces: np.ndarray
    """(F, 3) int32."""
    part: np.ndarray
    """(V,) int32. Which mesh a vertex belongs to."""


class Contact:
    """Barrier and friction potentials between parts, as functions of vertex positions x (V, 3).

    kappa sum_k b(d_k) over pairs closer than dhat, and sum_k mu lambda_k f0(|u_k|) with the normal forces
    lambda_k and tangents of the last `lag`, u_k the sliding since then and f0 smoothed below eps_v h.
    Vertex-vertex distances are exact; energies in J, forces in N.
    """

    def __init__(self, surfaces: Surfaces, dhat: float, friction: float):
        """Prepare the surfaces.

        Args:
          surfaces: What may touch.
          dhat: Distance below which the barrier acts, m.
          friction: Coulomb's coefficient between parts.
        """
        self._ipctk = load_ipctk()
        self._surfaces = surfaces
        self._whole = self._mesh_of(surfaces)
        self.dhat, self.friction = dhat, friction
        self.stiffness = barrier_stiffness(dhat)
        self._barrier = self._ipctk.BarrierPotential(dhat, self.stiffness)
        self._ccd = self._ipctk.AdditiveCCD()
        self._psd = self._ipctk.PSDProjectionMethod.CLAMP
        self._pairs = self._ipctk.NormalCollisions()
        self._sliding = self._ipctk.TangentialCollisions()
        self._smooth = self._ipctk.FrictionPotential(1.0)
        self._lagged_at: np.ndarray | None = None
        self._candidates = self._ipctk.Candidates()
        self._candidates_at: np.ndarray | None = None
        self.near = np.arange(len(surfaces.vertices))
        """(K,) int. Vertices in the neighbourhood of other parts; nothing else can touch for now."""
        self._mesh, self._near_at = self._whole, surfaces.vertices

    def _mesh_of(self, surfaces: Surfaces) -> Any:
        ipctk = self._ipctk
        faces = np.asfortranarray(surfaces.faces)
        mesh = ipctk.CollisionMesh(np.asfortranarray(surfaces.vertices), ipctk.edges(faces), faces)
        mesh.can_collide = ipctk.make_vertex_patches_filter(surfaces.part)
        return mesh

    def cover(self, x: np.ndarray, p: np.ndarray) -> float:
        """The largest step a <= 1 for which the candidates, renewed if need be, are complete on x + a p.

        Boxes inflated by r miss only pairs more than 2 r apart, so all is well while no vertex moved more
        than r - dhat / 2 since then, a common translation apart. The same holds of the neighbourhood. After
        a renewal the pairs have to be found again.
        """
        reach = _INFLATION - self.dhat / 2
        if self._candidates_at is not None:
            moved = max(_spread(x - self._candidates_at), _spread(x + p - self._candidates_at))
            if moved <= reach:
                return 1.0
        if (
            self._candidates_at is None
            or _spread(x - self._near_at) + reach > (_NEIGHBOURHOOD - self.dhat) / 2
        ):
            self._look_around(x)
        self._seek(x)
        step = _spread(p)
        return 1.0 if step <= reach else reach / step

    def _look_around(self, x: np.ndarray) -> None:
        """Renew the neighbourhood, and what refers to its numbering: the friction of this time step."""
        faces, part = self._surfaces.faces, self._surfaces.part
        close = neighbourhood(x, faces, part, _NEIGHBOURHOOD)
        if self._lagged_at is not None:
            close = np.union1d(close, neighbourhood(self._lagged_at, faces, part, _NEIGHBOURHOOD))
        self.near = np.unique(faces[close])
        local = np.searchsorted(self.near, faces[close]).astype(np.int32)
        self._mesh = self._mesh_of(Surfaces(self._surfaces.vertices[self.near], local, part[self.near]))
        self._near_at = x.copy()
        if self._lagged_at is not None:
            self._seek(self._lagged_at)
            self.find(self._lagged_at)
            self._lag()
        self._pairs.clear()

    def _seek(self, x: np.ndarray) -> None:
        self._candidates.build(self._mesh, self._of_near(x), _INFLATION, self._ipctk.LBVH())
        self._candidates_at = x.copy()

    def _of_near(self, values: np.ndarray) -> np.ndarray:
        """(K, 3) float64, as ipctk wants it: rows of `values` (V, 3) in the neighbourhood."""
        return np.asfortranarray(values[self.near])

    def free_step(self, x: np.ndarray, p: np.ndarray) -> float:
        """The largest step a <= 1 along p (V, 3) that is free of contact, by additive CCD with a margin."""
        a = self.cover(x, p)
        if not len(self._candidates):
            return a
        start, end = self._of_near(x), self._of_near(x + a * p)
        return a * self._candidates.compute_collision_free_stepsize(self._mesh, start, end, 0.0, self._ccd)

    def find(self, x: np.ndarray) -> None:
        """Find the pairs closer than dhat at x; energies and derivatives are of these."""
        self._pairs.build(self._candidates, self._mesh, self._of_near(x), self.dhat)

    def lag(self, x: np.ndarray, smoothing: float) -> None:
        """Take normal forces and tangents for friction from x, with |u| smoothed below `smoothing` (m)."""
        self._smooth = self._ipctk.FrictionPotential(smoothing)
        self._lagged_at = x
        self._lag()

    def _lag(self) -> None:
        self._sliding.clear()
        if self.friction > 0 and self._lagged_at is not None:
            at = self._of_near(self._lagged_at)
            self._sliding.build(self._mesh, at, self._pairs, self._barrier, self.friction)

    @property
    def count(self) -> int:
        """Number of pairs within dhat."""
        return len(self._pairs)

    def energy(self, x: np.ndarray, u: np.ndarray) -> float:
        """Barrier at x plus friction of the sliding u, J."""
        value = 0.0
        if len(self._pairs):
            value += self._barrier(self._pairs, self._mesh, self._of_near(x))
        if len(self._sliding):
            value += self._smooth(self._sliding, self._mesh, self._of_near(u))
        return value

    def push(self, x: np.ndarray) -> np.ndarray:
        """(V, 3) float64, N. Force of the barrier on each vertex."""
        force = np.zeros_like(x)
        if len(self._pairs):
            gradient = self._barrier.gradient(self._pairs, self._mesh, self._of_near(x))
            force[self.near] = -gradient.reshape(-1, 3)
        return force

    def drag(self, u: np.ndarray) -> np.ndarray:
        """(V, 3) float64, N. Force of friction on each vertex."""
        force = np.zeros_like(u)
        if len(self._sliding):
            gradient = self._smooth.gradient(self._sliding, self._mesh, self._of_near(u))
            force[self.near] = -gradient.reshape(-1, 3)
        return force

    def hessians(self, x: np.ndarray, u: np.ndarray) -> list:
        """Hessians (3K, 3K) of barrier and friction as CSC matrices, each pair's positive semi-definite.

        Their rows are the coordinates of the vertices in `near`.
        """
        found = []
        if len(self._pairs):
            found.append(self._barrier.hessian(self._pairs, self._mesh, self._of_near(x), self._psd))
        if len(self._sliding):
            # Convex in u: needs no projection.
            found.append(self._smooth.hessian(self._sliding, self._mesh, self._of_near(u)))
        return found

    def gap(self, x: np.ndarray) -> float:
        """Smallest distance of a pair within dhat, m; inf if there is none."""
        if not len(self._pairs):
            return np.inf
        return float(np.sqrt(self._pairs.compute_minimum_distance(self._mesh, self._of_near(x))))

    def intersects(self, x: np.ndarray, *, everywhere: bool = False) -> bool:
        """Does a triangle of one part cut an edge of another? Unless `everywhere`, x has to be covered."""
        mesh, at = (self._whole, np.asfortranarray(x)) if everywhere else (self._mesh, self._of_near(x))
        return self._ipctk.has_intersections(mesh, at, self._ipctk.LBVH())

    def travel(self, x: np.ndarray, p: np.ndarray, margin: float) -> float:
        """The part a <= 1 of a long way p (V, 3) that can be gone with `margin` (m) kept free."""
        return self._ipctk.compute_collision_free_stepsize(
            self._whole,
            np.asfortranarray(x),
            np.asfortranarray(x + p),
            margin,
            self._ipctk.LBVH(),
            self._ccd,
        )


def neighbourhood(x: np.ndarray, faces: np.ndarray, part: np.ndarray, margin: float) -> np.ndarray:
    """(N,) int. Faces that may lie within `margin` (m) of another part, by boxes; never none.

    Args:
      x: (V, 3) float64, m. Vertices.
      faces: (F, 3) int.
      part: (V,) int. Which mesh a vertex belongs to.
      margin: m.
    """
    corners = x[faces]
    low, high = corners.min(axis=1) - margin, corners.max(axis=1) + margin
    owner = part[faces[:, 0]]
    close = np.zeros(len(faces), bool)
    for k in np.unique(part):
        mine = x[part == k]
        close |= (owner != k) & (low <= mine.max(axis=0)).all(axis=1) & (high >= mine.min(axis=0)).all(axis=1)
    # An empty mesh is none to ipctk.
    return np.flatnonzero(close) if close.any() else np.zeros(1, int)


def _spread(move: np.ndarray) -> float:
    """Longest of the displacements (V, 3) once the common translation is taken out, m."""
    off = np.array(move.T, order="C")  # Reductions along rows take an eighth of the time.
    off -= ((off.max(axis=1) + off.min(axis=1)) / 2)[:, None]
    return float(np.sqrt(np.einsum("ij,ij->j", off, off).max()))
