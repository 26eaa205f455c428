"""The penalty model: MuJoCo's soft contacts with pads of flexible elements, squeezing and lifting.

It stands in for Isaac Gym's FleX in the comparison of the paper. MuJoCo allows bodies to overlap and pushes
them apart with a spring whose stiffness follows the effective mass of the contact. For nodes of some 10 mg
the ordinary setting is so soft that the object sinks into the pads by millimetres: `UNTUNED`. `TUNED` makes
the springs as stiff as the time step allows. Neither is free of penetration; both report it.
"""

import contextlib
import itertools
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import mujoco
import numpy as np

from fistful.errors import JawsError
from fistful.geometry.mesh_distance import MeshDistance
from fistful.geometry.pose import quaternion_from_rotation, rotation_from_quaternion
from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper, Pad
from fistful.jaws.outcome import Frame, Recording
from fistful.jaws.pad_mesh import PadMesh, mesh_pad, polygon_area, tet_volumes
from fistful.jaws.patch import foundation, outline_points, surface, touch
from fistful.jaws.verdict import Verdict
from fistful.objects.object import Object
from fistful.objects.parts import ConvexParts, convex_parts

LIFT = 0.02
"""m. How far the object has to come up."""
_LOOK = 0.02  # s; how often penetration is measured


@dataclass(frozen=True, kw_only=True)
class ContactSettings:
    """What MuJoCo needs to know about the contacts between pads and object."""

    solref: tuple[float, float]
    """Time constant (s) and damping ratio of the contact spring."""
    solimp: tuple[float, float, float, float, float]
    """Impedance: at no overlap, from a width on, that width (m), midpoint, power."""


UNTUNED = ContactSettings(solref=(0.02, 1.0), solimp=(0.9, 0.95, 0.001, 0.5, 2.0))
"""MuJoCo's defaults."""
TUNED = ContactSettings(solref=(0.002, 1.0), solimp=(0.99, 0.999, 1e-4, 0.5, 2.0))
"""The shortest time constant that MuJoCo accepts at the step of 1 ms, and almost rigid impedance."""


@dataclass(frozen=True, kw_only=True)
class PenaltySettings:
    """How the penalty model is simulated."""

    contact: ContactSettings = TUNED
    step: float = 1e-3
    """s. Time step."""
    iterations: int = 100
    """Of the constraint solver in each step."""
    size: float = 3e-3
    """m. Edge of the pads' elements."""
    layers: int = 2
    radius: float = 1e-4
    """m. MuJoCo thickens the elements by this much; it counts as pad in the contacts."""
    careful_speed: float = 0.02
    """m/s. Of each jaw when it is about to touch; from `near` on."""
    near: float = 1e-3
    """m."""
    time_limit: float = 2.5
    """s of simulated time, for squeeze and lift together."""
    cpu_limit: float = 60.0
    """s."""


class Outcome(NamedTuple):
    """How one simulated grasp ended."""

    held: bool
    reason: str  # "held", or why not
    penetration_mm: float  # deepest overlap of pads and object, on exact meshes, looked at every 20 ms
    force: np.ndarray  # (2,) N. Of the pads along the closing axis at the end
    simulated_s: float
    cpu_s: float
    unconverged: int  # steps in which MuJoCo's solver for the pads ran out of iterations
    recording: Recording | None = (
        None  # if asked for: a frame every 20 ms, the last at the moment of judgement
    )


class _Scene(NamedTuple):
    model: mujoco.MjModel
    meshes: tuple[PadMesh, PadMesh]
    dofs: tuple[np.ndarray, np.ndarray]  # (N, 3) int: degrees of freedom of each pad's nodes


def simulate(
    resting: Resting,
    grasp: JawGrasp,
    gripper: Gripper,
    settings: PenaltySettings | None = None,
    *,
    record: bool = False,
) -> Outcome:
    """Squeeze until both pads press with the closing force, lift by 2 cm, judge. Deterministic.

    1. The jaws start just before the first of them touches (found by rays) and close at their speed, slowly
       once they are near, and under a force servo as soon as both press.
    2. When both pads press with 95 % of the closing force the backings stop, and rise at the lifting speed.
    3. Held: after the lift both pads press, and the object is off the plane.

    The backings are driven kinematically; servo stiffness and the stop by energy are not modelled here.
    Reads and writes the cache of convex parts, as MuJoCo collides those. With `record`, frames are kept as
    the simulator of this package keeps them; their strain energy is that of its solid in the same shape.
    """
    settings = PenaltySettings() if settings is None else settings
    began = time.process_time()
    mesh = surface(resting)
    points = outline_points(gripper.pad.outline)
    met = [touch(mesh, grasp, gripper, jaw, points) for jaw in (0, 1)]
    if any(t.inside for t in met):
        return _missed("an opened jaw starts inside the object", began)
    reach = np.array([t.distances.min() for t in met])
    if not np.isfinite(reach).all():
        return _missed("a pad does not meet the object", began)
    start = np.minimum(reach - settings.near / 2, gripper.opening / 2 - 1e-3)
    # Both jaws move alike: neither goes on closing before the other.
    start = np.full(2, start.min())
    scene = _build(resting, grasp, gripper, settings, convex_parts(resting.item), start)
    with _quiet():
        return _run(scene, resting, grasp, gripper, settings, start, float(reach.sum()), began, record)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Warnings are counted in the outcome; MuJoCo would also write them to a file where one works."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _missed(reason: str, began: float) -> Outcome:
    return Outcome(False, reason, 0.0, np.zeros(2), 0.0, time.process_time() - began, 0)


def _build(
    resting: Resting,
    grasp: JawGrasp,
    gripper: Gripper,
    settings: PenaltySettings,
    parts: ConvexParts,
    start: np.ndarray,
) -> _Scene:
    """Object, plane and pads compiled for MuJoCo, jaws closed by `start` (2,) m from fully open."""
    spec = mujoco.MjSpec()
    spec.memory = 2**26
    spec.option.timestep = settings.step
    # Flexible elements are integrated implicitly by this integrator only.
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_DISCRETE
    spec.option.solver = mujoco.mjtSolver.mjSOL_CG
    spec.option.iterations = settings.iterations
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.gravity = [0.0, 0.0, -9.80665]
    # Bit 1: pads and object; bit 2: plane and object. Pads pass through the plane.
    spec.worldbody.add_geom(
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[1, 1, 0.1],
        contype=2,
        conaffinity=2,
        condim=3,
        friction=[gripper.ground_friction, 0, 0],
        solref=[2 * settings.step, 1.0],
        priority=1,
    )
    _add_object(spec, resting, parts, gripper)
    pad = mesh_pad(gripper.pad.outline, gripper.pad.thickness, settings.size, settings.layers)
    meshes = (pad, pad.mirrored())
    for jaw in (0, 1):
        _add_pad(spec, jaw, meshes[jaw], grasp, gripper, settings, gripper.opening / 2 - start[jaw])
    try:
        with warnings.catch_warnings():
            # MuJoCo warns that the pads have neither edge constraints nor passive edges; they have elements.
            warnings.filterwarnings("ignore", message="flex .* is not rigid")
            model = spec.compile()
    except ValueError as error:
        raise JawsError(f"MuJoCo can not build the scene: {error}") from error
    dofs = []
    for jaw in (0, 1):
        first = [model.body(_node(jaw, i)).dofadr[0] for i in range(len(pad.nodes))]
        dofs.append(np.array(first)[:, None] + np.arange(3))
    return _Scene(model, meshes, (dofs[0], dofs[1]))


def _node(jaw: int, index: int) -> str:
    return f"pad {jaw} node {index}"


def _add_object(spec: mujoco.MjSpec, resting: Resting, parts: ConvexParts, gripper: Gripper) -> None:
    properties = resting.item.mass_properties
    inertia = properties.inertia_O * (resting.mass / properties.mass)
    body = spec.worldbody.add_body(name="object", pos=resting.p_WO)
    body.quat = quaternion_from_rotation(resting.R_WO)
    body.add_freejoint()
    body.explicitinertial = True
    body.mass = resting.mass
    body.ipos = properties.com_O
    body.fullinertia = inertia[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    for k, (corners, faces) in enumerate(zip(parts.vertices, parts.faces, strict=True)):
        mesh = spec.add_mesh(name=f"part {k}")
        mesh.uservert = np.ascontiguousarray(corners, np.float32).ravel()
        mesh.userface = np.ascontiguousarray(faces, np.int32).ravel()
        body.add_geom(
            type=mujoco.mjtGeom.mjGEOM_MESH,
            meshname=mesh.name,
            contype=3,
            conaffinity=3,
            condim=3,
            friction=[gripper.friction, 0, 0],
        )


def _add_pad(
    spec: mujoco.MjSpec,
    jaw: int,
    pad: PadMesh,
    grasp: JawGrasp,
    gripper: Gripper,
    settings: PenaltySettings,
    half_opening: float,
) -> None:
    """One pad; each node is a body of its own with three slides along the axes of the world."""
    side = -1.0 if jaw == 0 else 1.0
    at_G = pad.nodes + np.array([side * (half_opening + settings.radius), 0.0, 0.0])
    at_W = grasp.p_WG + at_G @ grasp.R_WG.T
    volume = float(np.abs(tet_volumes(pad.nodes, pad.tets)).sum())
    light = gripper.pad.density * volume / len(pad.nodes)
    for i, x in enumerate(at_W):
        # Nodes on the backing are moved by hand; their mass only has to be too large to be pushed.
        mass = 1.0 if pad.backing[i] else light
        body = spec.worldbody.add_body(
            name=_node(jaw, i), pos=x, mass=mass, inertia=[1e-6] * 3, explicitinertial=True, gravcomp=1.0
        )
        for axis in np.eye(3):
            body.add_joint(type=mujoco.mjtJoint.mjJNT_SLIDE, axis=axis)
    flex = spec.add_flex()
    flex.name = f"pad {jaw}"
    flex.dim = 3
    flex.vertbody = [_node(jaw, i) for i in range(len(pad.nodes))]
    flex.vert = np.zeros(3 * len(pad.nodes))
    flex.elem = pad.tets.ravel()
    flex.young, flex.poisson = gripper.pad.youngs_modulus, gripper.pad.poissons_ratio
    flex.radius = settings.radius
    flex.contype, flex.conaffinity, flex.condim, flex.selfcollide = 1, 1, 3, 0
    flex.friction = [gripper.friction, 0, 0]
    flex.solref, flex.solimp, flex.priority = settings.contact.solref, settings.contact.solimp, 2


def _run(
    scene: _Scene,
    resting: Resting,
    grasp: JawGrasp,
    gripper: Gripper,
    settings: PenaltySettings,
    start: np.ndarray,
    reach: float,
    began: float,
    record: bool,
) -> Outcome:
    model, data = scene.model, mujoco.MjData(scene.model)
    sides, axis, dt = np.array([1.0, -1.0]), grasp.axis_W, settings.step
    stiffness = foundation(gripper.pad) * polygon_area(gripper.pad.outline)
    goal, look = gripper.closing_force, max(1, round(_LOOK / dt))
    travel, rise, force, lifting, penetration = start.copy(), 0.0, np.zeros(2), False, 0.0
    looks: list[_Look] = []

    def end(reason: str) -> Outcome:
        cpu_s = time.process_time() - began
        unconverged = int(data.warning[mujoco.mjtWarning.mjWARN_INERTIA].number)
        kept = None
        if record:
            last = [] if looks and looks[-1].time == data.time else [_look(scene, data)]
            kept = _recording(scene, gripper.pad, [*looks, *last])
        return Outcome(reason == "held", reason, penetration, force, data.time, cpu_s, unconverged, kept)

    for count in itertools.count(1):
        if not lifting and np.all(force >= 0.95 * goal):
            lifting = True
        if lifting:
            speed, up = np.zeros(2), gripper.lifting_speed
        else:
            near = reach - travel.sum() < settings.near
            speed = np.full(
                2, min(settings.careful_speed, gripper.closing_speed) if near else gripper.closing_speed
            )
            # A third of the missing force in a step: a flat pad is the stiffest contact, so this is stable.
            servo = np.clip(0.3 * (goal - force) / (stiffness * dt), -speed, speed)
            speed, up = np.where(force > 0.005 * goal, servo, speed), 0.0
        for jaw in (0, 1):
            backing = scene.dofs[jaw][scene.meshes[jaw].backing]
            # Every joint is a slide after the object's free joint, whose position has one number more.
            data.qpos[backing + 1] = sides[jaw] * (travel[jaw] - start[jaw]) * axis + [0, 0, rise]
            data.qvel[backing] = sides[jaw] * speed[jaw] * axis + [0, 0, up]
        mujoco.mj_step(model, data)
        travel, rise = travel + speed * dt, rise + up * dt
        push = [data.qfrc_constraint[scene.dofs[jaw]].sum(axis=0) @ axis for jaw in (0, 1)]
        force = -sides * push
        if data.warning[mujoco.mjtWarning.mjWARN_BADQACC].number or not np.isfinite(data.qpos).all():
            return end("the simulation became unstable")
        if count % look == 0 or rise >= LIFT:
            looks.append(_look(scene, data))
            penetration = max(penetration, overlap_mm(resting.item, _faces(scene), *looks[-1][1:]))
        if rise >= LIFT:
            return end(_judged(scene, data, resting, force, goal))
        if travel.sum() >= gripper.opening:
            return end("the jaws met before they pressed with the closing force")
        if data.time > settings.time_limit or time.process_time() - began > settings.cpu_limit:
            return end("the closing force was not reached in time")
    raise AssertionError("unreachable")


def _judged(scene: _Scene, data: mujoco.MjData, resting: Resting, force: np.ndarray, goal: float) -> str:
    if np.any(force < 1e-3 * goal):
        return "a pad lost the object"
    R, p = _object_pose(data)
    lowest = float((resting.item.vertices @ R.T + p)[:, 2].min())
    return "held" if lowest > 1e-3 else "the object is still on the plane"


def _object_pose(data: mujoco.MjData) -> tuple[np.ndarray, np.ndarray]:
    return rotation_from_quaternion(data.qpos[3:7]), data.qpos[:3].copy()


def overlap_mm(
    item: Object, faces: np.ndarray, nodes_W: np.ndarray, p_WO: np.ndarray, R_WO: np.ndarray
) -> float:
    """Deepest overlap of the bare meshes, mm: of pad nodes in the object, of object points in a pad. No I/O.

    0 if there is none. Measured on the exact meshes, whatever thickness a simulator gives them.

    Args:
      item: The object.
      faces: (2, F, 3) int. Surface of each pad.
      nodes_W: (2, N, 3) float, m. Nodes of both pads.
      p_WO: (3,) float, m. Origin of the object frame.
      R_WO: (3, 3) float.
    """
    nodes_O = (np.asarray(nodes_W, float) - p_WO) @ R_WO
    points_O = np.concatenate([item.vertices, item.surface_points])
    solid, deepest = MeshDistance(item.vertices, item.faces), 0.0
    for nodes, triangles in zip(nodes_O, faces, strict=True):
        deepest = max(deepest, -float(solid.query(nodes).values.min()))
        deepest = max(deepest, -float(MeshDistance(nodes, triangles).query(points_O).values.min()))
    return 1e3 * deepest


class _Look(NamedTuple):
    """Where pads and object are at one moment; see overlap_mm."""

    time: float
    nodes_W: np.ndarray
    p_WO: np.ndarray
    R_WO: np.ndarray


def _look(scene: _Scene, data: mujoco.MjData) -> _Look:
    # A step leaves the bodies where they were before it, and the joints where they are after it.
    mujoco.mj_kinematics(scene.model, data)
    R_WO, p_WO = _object_pose(data)
    bodies = [scene.model.dof_bodyid[dofs[:, 0]] for dofs in scene.dofs]
    return _Look(data.time, np.stack([data.xpos[own] for own in bodies]), p_WO, R_WO)


def _faces(scene: _Scene) -> np.ndarray:
    return np.stack([mesh.faces for mesh in scene.meshes])


def _recording(scene: _Scene, pad: Pad, looks: Sequence[_Look]) -> Recording:
    from fistful.jaws.elasticity import NeoHookean, lame

    mu_lam = lame(pad.youngs_modulus, pad.poissons_ratio)
    solids = [NeoHookean(mesh.nodes, mesh.tets, *mu_lam) for mesh in scene.meshes]
    frames = [
        Frame(
            time=look.time,
            nodes_W=look.nodes_W.astype(np.float32),
            energies=np.stack(
                [s.energies(x) / s.volumes for s, x in zip(solids, look.nodes_W, strict=True)]
            ).astype(np.float32),
            p_WO=look.p_WO,
            R_WO=look.R_WO,
        )
        for look in looks
    ]
    tets = np.stack([mesh.tets for mesh in scene.meshes])
    return Recording(tets=tets, faces=_faces(scene), frames=tuple(frames))


@dataclass(frozen=True, kw_only=True)
class Penalty:
    """The penalty model as one of the models to compare."""

    name: str = "mujoco"
    settings: PenaltySettings = PenaltySettings()

    def outcomes(self, resting: Resting, grasps: Sequence[JawGrasp], gripper: Gripper) -> np.ndarray:
        """(N,) bool. Which grasps hold."""
        return np.array([self.judge(resting, grasp, gripper).held for grasp in grasps], dtype=bool)

    def judge(self, resting: Resting, grasp: JawGrasp, gripper: Gripper) -> Verdict:
        """What came of one grasp."""
        end = simulate(resting, grasp, gripper, self.settings)
        return Verdict(end.held, end.cpu_s, end.reason, end.unconverged)
