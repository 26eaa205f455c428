"""Contact of object and pads: ipctk's barrier, lagged friction and continuous collision detection."""

from types import ModuleType
from typing import NamedTuple

import numpy as np

from fistful.errors import JawsError

# m. Boxes are inflated by this when candidates are sought; they serve until something moved as far.
_INFLATION = 6e-4
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
        ipctk = self._ipctk = load_ipctk()
        vertices, faces = np.asfortranarray(surfaces.vertices), np.asfortranarray(surfaces.faces)
        self.mesh = ipctk.CollisionMesh(vertices, ipctk.edges(faces), faces)
        self.mesh.can_collide = ipctk.make_vertex_patches_filter(surfaces.part)
        self.dhat, self.friction = dhat, friction
        self.stiffness = barrier_stiffness(dhat)
        self._barrier = ipctk.BarrierPotential(dhat, self.stiffness)
        self._ccd = ipctk.AdditiveCCD()
        self._psd = ipctk.PSDProjectionMethod.CLAMP
        self._candidates = ipctk.Candidates()
        self._centre: np.ndarray | None = None
        self._pairs = ipctk.NormalCollisions()
        self._sliding = ipctk.TangentialCollisions()
        self._smooth = ipctk.FrictionPotential(1.0)

    def cover(self, x: np.ndarray, p: np.ndarray) -> float:
        """The largest step a <= 1 for which the candidates, renewed if need be, are complete on x + a p.

        Boxes inflated by r miss only pairs more than 2 r apart, so all is well while no vertex moved more
        than r - dhat / 2 since then, a common translation apart.
        """
        reach = _INFLATION - self.dhat / 2
        if self._centre is not None:
            moved = max(_spread(x - self._centre), _spread(x + p - self._centre))
            if moved <= reach:
                return 1.0
        self._candidates.build(self.mesh, np.asfortranarray(x), _INFLATION, self._ipctk.LBVH())
        self._centre = x.copy()
        step = _spread(p)
        return 1.0 if step <= reach else reach / step

    def free_step(self, x: np.ndarray, p: np.ndarray) -> float:
        """The largest step a <= 1 along p (V, 3) that is free of contact, by additive CCD with a margin."""
        a = self.cover(x, p)
        if not len(self._candidates):
            return a
        end = np.asfortranarray(x + a * p)
        start = np.asfortranarray(x)
        return a * self._candidates.compute_collision_free_stepsize(self.mesh, start, end, 0.0, self._ccd)

    def find(self, x: np.ndarray) -> None:
        """Find the pairs closer than dhat at x; energies and derivatives are of these."""
        self._pairs.build(self._candidates, self.mesh, np.asfortranarray(x), self.dhat)

    def lag(self, x: np.ndarray, smoothing: float) -> None:
        """Take normal forces and tangents for friction from x, with |u| smoothed below `smoothing` (m)."""
        self._smooth = self._ipctk.FrictionPotential(smoothing)
        self._sliding.clear()
        if self.friction > 0:
            self._sliding.build(self.mesh, np.asfortranarray(x), self._pairs, self._barrier, self.friction)

    @property
    def count(self) -> int:
        """Number of pairs within dhat."""
        return len(self._pairs)

    def energy(self, x: np.ndarray, u: np.ndarray) -> float:
        """Barrier at x plus friction of the sliding u, J."""
        value = 0.0
        if len(self._pairs):
            value += self._barrier(self._pairs, self.mesh, np.asfortranarray(x))
        if len(self._sliding):
            value += self._smooth(self._sliding, self.mesh, np.asfortranarray(u))
        return value

    def push(self, x: np.ndarray) -> np.ndarray:
        """(V, 3) float64, N. Force of the barrier on each vertex."""
        if not len(self._pairs):
            return np.zeros_like(x)
        return -self._barrier.gradient(self._pairs, self.mesh, np.asfortranarray(x)).reshape(-1, 3)

    def drag(self, u: np.ndarray) -> np.ndarray:
        """(V, 3) float64, N. Force of friction on each vertex."""
        if not len(self._sliding):
            return np.zeros_like(u)
        return -self._smooth.gradient(self._sliding, self.mesh, np.asfortranarray(u)).reshape(-1, 3)

    def hessians(self, x: np.ndarray, u: np.ndarray) -> list:
        """Hessians (3V, 3V) of barrier and friction as CSC matrices, each pair's positive semi-definite."""
        found = []
        if len(self._pairs):
            found.append(self._barrier.hessian(self._pairs, self.mesh, np.asfortranarray(x), self._psd))
        if len(self._sliding):
            # Convex in u: needs no projection.
            found.append(self._smooth.hessian(self._sliding, self.mesh, np.asfortranarray(u)))
        return found

    def gap(self, x: np.ndarray) -> float:
        """Smallest distance of a pair within dhat, m; inf if there is none."""
        if not len(self._pairs):
            return np.inf
        return float(np.sqrt(self._pairs.compute_minimum_distance(self.mesh, np.asfortranarray(x))))

    def intersects(self, x: np.ndarray) -> bool:
        """Does a triangle of one part cut an edge of another?"""
        return self._ipctk.has_intersections(self.mesh, np.asfortranarray(x), self._ipctk.LBVH())

    def travel(self, x: np.ndarray, p: np.ndarray, margin: float) -> float:
        """The part a <= 1 of a long way p (V, 3) that can be gone with `margin` (m) kept free."""
        return self._ipctk.compute_collision_free_stepsize(
            self.mesh,
            np.asfortranarray(x),
            np.asfortranarray(x + p),
            margin,
            self._ipctk.LBVH(),
            self._ccd,
        )


def _spread(move: np.ndarray) -> float:
    """Longest of the displacements (V, 3) once the common translation is taken out, m."""
    off = np.array(move.T, order="C")  # Reductions along rows take an eighth of the time.
    off -= ((off.max(axis=1) + off.min(axis=1)) / 2)[:, None]
    return float(np.sqrt(np.einsum("ij,ij->j", off, off).max()))
