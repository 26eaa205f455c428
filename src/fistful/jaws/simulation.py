"""The world of a grasp - object, two soft pads, plane - and its implicit time step."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fistful.jaws.affine_body import AffineBody, lever, nearest_rotation
from fistful.jaws.contact import Contact, Surfaces
from fistful.jaws.gripper import Pad
from fistful.jaws.newton import COMMON, minimise
from fistful.jaws.pad_mesh import PadMesh
from fistful.jaws.pads import Pads
from fistful.jaws.plane import Plane
from fistful.jaws.potential import IncrementalPotential, Servo

GRAVITY = 9.80665
RIGID = 1e6
"""N/m. Of what hardly gives way, such as the servo across the closing axis."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How finely a grasp is simulated, and when to give up."""

    dt: float = 2e-3
    """s. Time step while the jaws close."""
    lift_dt: float = 4e-3
    """s. Time step of the lift."""
    dhat: float = 5e-5
    """m. Distance at which contact begins to push."""
    slip_speed: float = 1e-3
    """m/s. Friction is smoothed below this speed: what is held creeps at a part of it."""
    tolerance: float = 1e-3
    """m/s. Newton's method ends once a step would change no speed by more."""
    max_iterations: int = 60
    """Of Newton's method in one time step."""
    lag_rounds: int = 1
    """How often normal forces for friction are taken anew in one time step."""
    pad_size: float = 3.2e-3
    """m. Edges of the pads' mesh."""
    pad_layers: int = 2
    """Of tetrahedra through the thickness of a pad."""
    max_faces: int = 4000
    """An object with more is simplified for contact, as long as that moves its surface by little."""
    max_steps: int = 600
    """Time steps of one grasp."""
    max_cpu_s: float = 60.0
    """s. CPU time of one grasp."""


class StepReport(NamedTuple):
    """What one time step did."""

    iterations: int
    converged: bool
    gap: float
    """m. Smallest distance within dhat, of parts to each other or to the plane; inf if all are farther."""
    intersects: bool
    inverted: int
    """Tetrahedra without positive volume."""


class Solid(NamedTuple):
    """The object at the start: what moves and what touches."""

    vertices_W: np.ndarray
    """(V, 3) float64, m."""
    faces: np.ndarray
    """(F, 3) int."""
    com_W: np.ndarray
    """(3,) float64, m."""
    mass: float
    """kg."""
    inertia_W: np.ndarray
    """(3, 3) float64, kg m2. About the centre of mass."""
    volume: float
    """m3."""


class Hinge(NamedTuple):
    """Where jaws bend: a small turn about it opens a jaw, its tip most."""

    levers: np.ndarray
    """(2, N) float64, m. How far each node of pad 0 and of pad 1 is from it, along the jaw."""
    stiffness: float
    """N m / rad."""


class World:
    """Object and pads in motion. `q` holds the unknowns of the pads (see Pads), then the object's twelve."""

    def __init__(
        self,
        solid: Solid,
        meshes: tuple[PadMesh, PadMesh],
        pad: Pad,
        inward: np.ndarray,
        settings: Settings,
        *,
        friction: float,
        ground_friction: float = 0.0,
        stiffness: float = RIGID,
        hinge: Hinge | None = None,
        plane: bool = True,
        gravity: float = GRAVITY,
    ):
        """Put object and pads where they start, at rest.

        Args:
          solid: The object.
          meshes: Both pads, in world coordinates.
          pad: What they are made of.
          inward: (2, 3) float. Unit vectors along which the jaws close.
          settings: Time step and tolerances.
          friction: Between pads and object.
          ground_friction: Of anything on the plane.
          stiffness: Of the servo along the closing axis, N/m.
          hinge: About which jaws bend; None if they do not.
          plane: Is there a plane z = 0?
          gravity: m/s2, along -z.
        """
        self.settings = settings
        turns = None if hinge is None else -(hinge.levers[:, :, None] * inward[:, None]).reshape(-1, 3)
        self.pads = Pads(meshes, pad, turns)
        self.body = AffineBody(solid.mass, solid.inertia_W, solid.volume)
        first, second = meshes
        self.pad_faces = np.stack([first.faces, second.faces])
        """(2, F, 3) int32. Surface of each pad among its own nodes."""
        skins = [np.unique(mesh.faces) for mesh in meshes]
        surface = np.concatenate([skins[0], skins[1] + len(first.nodes)])
        counts = [len(skins[0]), len(skins[1]), len(solid.vertices_W)]
        offsets = np.cumsum([0, *counts])
        arms = solid.vertices_W - solid.com_W
        faces = [np.searchsorted(skin, mesh.faces) for skin, mesh in zip(skins, meshes, strict=True)]
        self.surfaces = Surfaces(
            vertices=np.concatenate([first.nodes[skins[0]], second.nodes[skins[1]], solid.vertices_W]),
            faces=np.concatenate(
                [f + o for f, o in zip([*faces, solid.faces], offsets, strict=False)]
            ).astype(np.int32),
            part=np.repeat([0, 1, 2], counts).astype(np.int32),
        )
        self.contact = Contact(self.surfaces, settings.dhat, friction)
        ground = Plane(settings.dhat, np.full(offsets[-1], ground_friction)) if plane else None
        common = np.zeros((3 * offsets[-1], COMMON))
        column = self.pads.column[surface].ravel()
        row = np.flatnonzero(column >= 2 * self.pads.n)
        common[row, column[row] - 2 * self.pads.n] = 1
        for i in range(2):
            common[3 * offsets[i] : 3 * offsets[i + 1], i] = self.pads.turns[
                surface[offsets[i] : offsets[i + 1]]
            ].ravel()
        common[3 * offsets[2] :, -12:] = lever(arms)
        self.servo = Servo(inward=inward, stiffness=stiffness, across=RIGID, target=np.zeros((2, 3)))
        self.servo.bending = hinge.stiffness if hinge else 0.0
        self.potential = IncrementalPotential(
            self.pads, self.body, self.contact, ground, self.servo, surface, common
        )
        free = self.pads.rest[self.pads.free].ravel()
        self.q = np.concatenate([free, np.zeros(8), solid.com_W, np.eye(3).ravel()])
        self.v = np.zeros_like(self.q)
        self.time = 0.0
        self.gravity = gravity
        # The servos carry the weight of the backings.
        self._down = np.zeros_like(self.q)
        self._down[2 : 2 * self.pads.n : 3] = self._down[-10] = -1

    @property
    def x(self) -> np.ndarray:
        """(V, 3) float64, m. Vertices of contact: skin of pad 0, of pad 1, object."""
        return self.potential.vertices(self.q)

    @property
    def nodes(self) -> np.ndarray:
        """(2 n, 3) float64, m. All nodes of both pads."""
        return self.pads.positions(self.q)

    @property
    def shifts(self) -> np.ndarray:
        """(2, 3) float64, m. How far the backings moved since the start."""
        return self.q[-18:-12].reshape(2, 3)

    @property
    def tilts(self) -> np.ndarray:
        """(2,) float64, rad. How far each jaw is bent open."""
        return self.q[-20:-18]

    @property
    def com_W(self) -> np.ndarray:
        """(3,) float64, m. The object's centre of mass."""
        return self.q[-12:-9]

    @property
    def turn_W(self) -> np.ndarray:
        """(3, 3) float64. The object's rotation since the start."""
        return nearest_rotation(self.q[-9:].reshape(3, 3))

    def shift_jaws(self, shift: np.ndarray, speed: np.ndarray) -> None:
        """Move both jaws rigidly by `shift` (2, 3), m, and let them go on at `speed` (2, 3), m/s."""
        for i in range(2):
            n = self.pads.n
            for values, change in ((self.q, shift[i]), (self.v, speed[i])):
                values[i * n : (i + 1) * n] += np.tile(change, n // 3)
                values[2 * n + 2 + 3 * i : 2 * n + 5 + 3 * i] += change
        self.servo.target = self.servo.target + shift

    def step(self, h: float) -> StepReport:
        """Advance by h seconds; the servo's target is that of the end of the step."""
        s = self.settings
        ahead = self.q + h * self.v + h**2 * self.gravity * self._down
        self.potential.begin(h, self.q, ahead, s.slip_speed)
        q, iterations, converged = self.q, 0, False
        for round_ in range(s.lag_rounds):
            if round_:
                self.potential.lag(q, s.slip_speed)
            guess = self.q + h * self.v if not round_ else None
            found = minimise(self.potential, q, s.tolerance * h, s.max_iterations, guess)
            q, converged = found.q, found.converged
            iterations += found.iterations
        self.v = (q - self.q) / h
        self.q = q
        self.time += h
        x = self.x
        gap = self.contact.gap(x)
        if self.potential.plane:
            low = self.potential.plane.gap(x)
            gap = min(gap, low if low < s.dhat else np.inf)
        return StepReport(
            iterations, converged, gap, self.contact.intersects(x), self.pads.solid.inverted(self.nodes)
        )

    def contact_forces(self) -> np.ndarray:
        """(V, 3) float64, N. Barrier and friction at the end of the last step, on each vertex."""
        return self.potential.contact_forces(self.q)

    def energies(self) -> np.ndarray:
        """(T,) float64, J. Elastic energy of each tetrahedron, pad 0 first."""
        return self.pads.solid.energies(self.nodes)
