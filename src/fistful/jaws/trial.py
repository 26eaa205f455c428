"""One simulated grasp: initialise, squeeze, lift (IPC-GraspSim section 3.2)."""

import time
from dataclasses import dataclass, field

import numpy as np

from fistful.jaws.affine_body import nearest_rotation
from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper
from fistful.jaws.outcome import Frame, JawOutcome, Reason, Recording
from fistful.jaws.simulation import Settings, World
from fistful.jaws.start import Start, make_start

# m. Of the object's lowest point, in the paper.
LIFT = 0.02
# m. The jaws go no higher: what is not up by then hangs down or stayed behind.
_MAX_LIFT = 0.06
# s. In which the lift gets up to its speed.
_RAMP = 0.02
# m. How far jaws that keep their force follow an object that gives way.
_FOLLOW = 5e-3
# s. That the squeeze may take beyond the way of the jaws.
_PATIENCE = 0.3
# The squeeze ends with both forces this close to the one asked for, and jaws this slow (m/s).
_CLOSE, _SLOW = 0.05, 5e-3
# Psi_1 ~ Psi_2: the smaller is at least this part of the larger.
_ALIKE = 0.5
# A step of the energy rule is taken again, shorter, if it went beyond the threshold by this factor, or, once
# both pads are beyond it and wait to be alike, if the smaller energy grew by it.
_OVERSHOOT = 1.3
# Part of the steps that may fail to converge before the result is worthless, and how many at least.
_MAX_FAILED, _FEW_FAILED = 0.25, 5


class _End(Exception):  # noqa: N818 - not an error: how a trial leaves its loop.
    def __init__(self, reason: Reason):
        super().__init__(reason)
        self.reason = reason


@dataclass(eq=False)
class _Log:
    """What is written down while a grasp runs."""

    begun: float
    offset: float = 0.0
    """s. Time of the free closing that was skipped."""
    times: list[float] = field(default_factory=list)
    lifting: list[bool] = field(default_factory=list)
    forces: list[np.ndarray] = field(default_factory=list)
    areas: list[np.ndarray] = field(default_factory=list)
    heights: list[float] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    iterations: int = 0
    unconverged: int = 0
    gap: float = np.inf
    intersections: int = 0
    inverted: int = 0
    first: tuple[int, float] | None = None
    squeezed: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    """Centre of mass, rotation and place of the jaws when the squeeze ended."""


def simulate(
    resting: Resting,
    grasp: JawGrasp,
    gripper: Gripper | None = None,
    settings: Settings | None = None,
    *,
    record: bool = False,
) -> JawOutcome:
    """What comes of a grasp: the jaws close, squeeze, and lift the object by 2 cm.

    1. Initialise: open jaws, the object at rest. One CCD query brings the jaws to first contact; if there is
       none, they meet and the grasp has missed.
    2. Squeeze: both jaws close at constant speed, each with at most the closing force, until both push with
       that force and stand still (stop = "force"), or until the elastic energies of both pads exceed the
       threshold and are alike (stop = "energy", the paper's rule).
    3. Lift: the jaws keep their distance (or, with hold = "force", their force) and rise until the object's
       lowest point is 2 cm up. Success = both pads touch the object then, and it does not touch the plane.

    The same input gives the same outcome. Reads no clock but for the CPU budget and `cpu_s`.

    Args:
      resting: The object on the plane.
      grasp: Where the jaws close.
      gripper: Pads and drive; by default those of the paper.
      settings: Time step, tolerances and budgets.
      record: Keep a frame of every step for a viewer.

    Raises:
      JawsError: The mesh, a number or the start can not be used; zero friction can.
    """
    gripper, settings = gripper or Gripper(), settings or Settings()
    log = _Log(begun=time.process_time())
    start = make_start(resting, grasp, gripper, settings)
    trial = _Trial(start, gripper, settings, log, record)
    try:
        trial.approach()
        trial.squeeze()
        reason = trial.lift()
    except _End as end:
        reason = end.reason
    return trial.outcome(reason)


class _Trial:
    """The state machine over one world."""

    def __init__(self, start: Start, gripper: Gripper, settings: Settings, log: _Log, record: bool):
        self.start, self.gripper, self.settings, self.log, self.record = start, gripper, settings, log, record
        self.world: World = start.world
        part = self.world.surfaces.part
        self.skins = [part == 0, part == 1]
        self.areas = _face_areas(self.world, start.inward)
        self.closing = start.inward * gripper.closing_speed
        tets = len(self.world.pads.tets) // 2
        self.tets = (slice(0, tets), slice(tets, None))

    def approach(self) -> None:
        """Bring the open jaws to first contact without simulating the way."""
        world, g = self.world, self.gripper
        way = np.zeros_like(world.x)
        for i in range(2):
            way[self.skins[i]] = self.start.inward[i] * (g.opening / 2)
        gone, more = 0.0, np.inf
        # Each query stops short by a tenth of what was left.
        while more > self.settings.dhat:
            more = world.contact.travel(world.x, way, 2 * self.settings.dhat) * (g.opening / 2 - gone)
            world.shift_jaws(self.start.inward * more, np.zeros((2, 3)))
            gone += more
            way *= (g.opening / 2 - gone) / (g.opening / 2 - gone + more)
        world.shift_jaws(np.zeros((2, 3)), self.closing)
        self.log.offset = gone / g.closing_speed
        self._check_meeting()

    def squeeze(self) -> None:
        """Close until the stop rule is met."""
        world, g, dt = self.world, self.gripper, self.settings.dt
        by_force = g.stop == "force"
        world.servo.limit = g.closing_force if by_force else np.inf
        left = (g.opening / 2) / g.closing_speed - self.log.offset + _PATIENCE
        h, psi = dt, np.zeros(2)
        while world.time < left:
            h = min(dt, 2 * h)
            most = _OVERSHOOT * max(g.stop_energy, psi.min())
            before = (world.q, world.v, world.time, world.servo.target)
            for _ in range(3):
                world.servo.target = before[3] + self.closing * h
                report = world.step(h)
                if by_force or self._pad_energies().min() <= most:
                    break
                world.q, world.v, world.time, world.servo.target = before
                h /= 4
            else:
                world.servo.target = before[3] + self.closing * h
                report = world.step(h)
            forces = self._note(report, lifting=False)
            self._check_meeting()
            if by_force:
                drive = world.servo.force(world.shifts)
                speeds = np.abs(np.einsum("ij,ij->i", world.v[-18:-12].reshape(2, 3), self.start.inward))
                off = max(np.abs(forces / g.closing_force - 1).max(), 1 - drive.mean() / g.closing_force)
                if off < _CLOSE and speeds.max() < _SLOW:
                    break
            else:
                psi = self._pad_energies()
                if psi.min() >= g.stop_energy and psi.min() >= _ALIKE * psi.max():
                    break
        else:
            raise _End(Reason.NOT_CLOSED)
        ahead = world.servo.force(world.shifts) / world.servo.stiffness
        world.servo.limit = np.inf
        if g.hold == "force":
            # With the energy rule the jaws still move, so what drives them is not what they press with.
            world.servo.limit = g.closing_force if by_force else forces.mean()
            ahead += _FOLLOW  # Beyond its limit, the servo's force is the same for any target.
        world.servo.target = world.shifts + ahead[:, None] * self.start.inward
        self.log.squeezed = (world.com_W.copy(), world.turn_W, self._jaws())

    def lift(self) -> Reason:
        """Raise the jaws until the object is up; why it ended."""
        world, g, h = self.world, self.gripper, self.settings.lift_dt
        gone, speed = 0.0, 0.0
        while gone < _MAX_LIFT:
            speed = min(g.lifting_speed, speed + g.lifting_speed * h / _RAMP)
            gone += speed * h
            world.servo.target = world.servo.target + np.array([0, 0, speed * h])
            self._note(world.step(h), lifting=True)
            if self._pads_apart() < 2 * self.settings.dhat:
                return Reason.DROPPED
            touching = self.log.areas[-1] > 0
            if self.log.heights[-1] >= 1e3 * LIFT:
                return Reason.HELD if touching.all() else Reason.DROPPED
            if not touching.any() and gone > LIFT / 4:
                return Reason.DROPPED
        return Reason.NOT_LIFTED

    def _check_meeting(self) -> None:
        """End the trial if the faces of the pads would meet within the next step."""
        if self._pads_apart() < 2 * self.gripper.closing_speed * self.settings.dt + 2 * self.settings.dhat:
            raise _End(Reason.MISSED if self.log.first is None else Reason.PUSHED_OUT)

    def _pads_apart(self) -> float:
        """m. From the foremost point of one pad to that of the other, along the closing axis."""
        axis, x = self.start.inward[0], self.world.x
        return float((x[self.skins[1]] @ axis).min() - (x[self.skins[0]] @ axis).max())

    def _pad_energies(self) -> np.ndarray:
        """(2,) float64, J. Psi of both pads."""
        energies = self.world.energies()
        return np.array([energies[part].sum() for part in self.tets])

    def _jaws(self) -> np.ndarray:
        """(3,) float64, m. How far the middle of both backings moved since the start."""
        return self.world.shifts.mean(axis=0)

    def _note(self, report, lifting: bool) -> np.ndarray:
        """Write a step down; the contact forces (2,), N. Ends the trial when a budget is spent."""
        world, log = self.world, self.log
        log.iterations += report.iterations
        log.unconverged += not report.converged
        log.gap = min(log.gap, report.gap)
        log.intersections += report.intersects
        log.inverted += report.inverted
        push = world.contact_forces()
        forces = np.array(
            [-(push[skin] @ inward).sum() for skin, inward in zip(self.skins, self.start.inward, strict=True)]
        )
        pressed = (push != 0).any(axis=1)
        areas = np.array([1e6 * self.areas[skin & pressed].sum() for skin in self.skins])
        now = log.offset + world.time
        if log.first is None and (areas > 0).any():
            log.first = (int(np.argmax(areas > 0)), now)
        log.times.append(now)
        log.lifting.append(lifting)
        log.forces.append(forces)
        log.areas.append(areas)
        log.heights.append(1e3 * float(world.x[world.surfaces.part == 2, 2].min()))
        if self.record:
            log.frames.append(self._frame(now))
        steps = len(log.times)
        if log.unconverged > max(_FEW_FAILED, _MAX_FAILED * steps):
            raise _End(Reason.UNCONVERGED)
        if steps >= self.settings.max_steps or time.process_time() - log.begun > self.settings.max_cpu_s:
            raise _End(Reason.BUDGET)
        return forces

    def _frame(self, now: float) -> Frame:
        world, start = self.world, self.start
        turn = world.turn_W @ start.R_WO
        density = world.energies() / world.pads.solid.volumes
        return Frame(
            time=now,
            nodes_W=world.nodes.reshape(2, -1, 3).astype(np.float32),
            energies=density.reshape(2, -1).astype(np.float32),
            p_WO=world.com_W - turn @ start.p_OC,
            R_WO=turn,
        )

    def outcome(self, reason: Reason) -> JawOutcome:
        """The record of the trial."""
        log, world, pads = self.log, self.world, self.world.pads
        com, turn, jaws = log.squeezed or (world.com_W, world.turn_W, self._jaws())
        slip = (world.com_W - com) - (self._jaws() - jaws)
        # Every step was checked where parts are near each other; the last place is, once, with all faces.
        cut = world.contact.intersects(world.x, everywhere=True)
        recording = None
        if self.record:
            n = pads.count
            faces = self.world.pad_faces
            recording = Recording(
                tets=np.stack([pads.tets[self.tets[0]], pads.tets[self.tets[1]] - n]),
                faces=faces,
                frames=tuple(log.frames),
            )
        return JawOutcome(
            success=reason is Reason.HELD,
            reason=reason,
            first_contact=log.first[0] if log.first else None,
            first_contact_s=log.first[1] if log.first else None,
            squeeze_displacement_mm=1e3 * float(np.linalg.norm(com - self.start.p_WC)),
            squeeze_rotation_deg=_angle_deg(turn),
            lift_displacement_mm=1e3 * float(np.linalg.norm(slip)),
            lift_rotation_deg=_angle_deg(world.turn_W @ turn.T),
            time_s=np.array(log.times),
            lifting=np.array(log.lifting, bool),
            force_N=np.array(log.forces).reshape(-1, 2),
            area_mm2=np.array(log.areas).reshape(-1, 2),
            height_mm=np.array(log.heights),
            steps=len(log.times),
            newton_iterations=log.iterations,
            unconverged_steps=log.unconverged,
            min_gap_m=log.gap,
            intersections=max(log.intersections, int(cut)),
            inverted_tets=log.inverted,
            cpu_s=time.process_time() - log.begun,
            notes=self.start.notes,
            recording=recording,
        )


def _angle_deg(R: np.ndarray) -> float:
    """Angle of a rotation."""
    R = nearest_rotation(R)
    return float(np.degrees(2 * np.arcsin(min(1.0, np.linalg.norm(R - np.eye(3)) / np.sqrt(8)))))


def _face_areas(world: World, inward: np.ndarray) -> np.ndarray:
    """(V,) float64, m2. A third of the triangles of the pads' faces around each vertex of contact; else 0."""
    vertices, faces, part = world.surfaces
    a, b, c = np.moveaxis(vertices[faces], 1, 0)
    normal = np.cross(b - a, c - a) / 2
    pad = part[faces[:, 0]]
    ahead = np.einsum("ij,ij->i", normal, np.concatenate([inward, np.zeros((1, 3))])[pad])
    area = np.where(ahead > 0.5 * np.linalg.norm(normal, axis=1), ahead, 0.0)
    return np.bincount(faces.ravel(), np.repeat(area / 3, 3), len(vertices))
