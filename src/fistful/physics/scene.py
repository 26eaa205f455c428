"""A scene: one hand and the objects it holds, compiled for MuJoCo once and used for every grasp of them.

The frame of the world is that of the hand base when the simulation begins, so a grasp is only a state:
joints, poses of the objects in the hand, and joint targets.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import mujoco
import numpy as np

from fistful.errors import PhysicsError
from fistful.geometry.pose import quaternion_from_rotation, rotation_from_quaternion
from fistful.hands.hand import Hand
from fistful.hands.model import MUJOCO_ERRORS
from fistful.objects.object import Object
from fistful.objects.parts import ConvexParts
from fistful.physics.protocol import Protocol
from fistful.physics.vendor import HandModel, vendor_spec

SLIDE_LEVER = 0.05
"""m. A slide counts as a hinge with this lever."""
_INTEGRATORS = {
    "implicitfast": mujoco.mjtIntegrator.mjINT_IMPLICITFAST,
    "discrete": mujoco.mjtIntegrator.mjINT_DISCRETE,
}
# Bits of contype and conaffinity: hand, object.
_HAND, _OBJECT = 1, 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """A hand and n objects for MuJoCo.

    Attributes:
      model: MuJoCo's model, for simulating.
      probe: The same for looking: it reports a contact as soon as it counts as one, and has the sensors. To
        simulate with it would cost half as much again.
      hand: The hand.
      mass: (n,) float, kg.
      joints: (J,) int. Places of all joints of the hand in qpos.
      independent: (K,) int. Places of the independent joints of the hand in qpos.
      objects: (n,) int. First of the seven places of each object in qpos.
      bodies: (n,) int. Bodies of the objects.
      sensors: (n,) int. First of the two places of each object's contact with the hand in sensordata.
      dofs: (n,) int. First of the six places of each object in qvel.
      com_O, inertia_O: (n, 3), (n, 3, 3) float. Centres of mass, and inertia about them, kg m2.
    """

    model: mujoco.MjModel
    probe: mujoco.MjModel
    hand: Hand
    mass: np.ndarray
    joints: np.ndarray
    independent: np.ndarray
    objects: np.ndarray
    bodies: np.ndarray
    sensors: np.ndarray
    dofs: np.ndarray
    com_O: np.ndarray
    inertia_O: np.ndarray

    @classmethod
    def of(
        cls,
        hand: Hand,
        objects: Sequence[Object],
        parts: Sequence[ConvexParts],
        protocol: Protocol,
        hand_model: HandModel = "own",
    ) -> "Scene":
        """Compile a scene. Raises PhysicsError if MuJoCo will not have it, or there is no such hand model."""
        own = hand_model == "own"
        spec = mujoco.MjSpec.from_string(hand.model.mjcf) if own else vendor_spec(hand)
        _set_options(spec, protocol)
        _drive(spec, hand, protocol)
        root = spec.worldbody.first_body()
        for name, item, pieces in zip(_names(objects), objects, parts, strict=True):
            _add_object(spec, name, item, pieces, protocol)
            sensor = spec.add_sensor(
                name=f"{name}_contact", type=mujoco.mjtSensor.mjSENS_CONTACT, objname=root.name, refname=name
            )
            sensor.objtype, sensor.reftype = mujoco.mjtObj.mjOBJ_XBODY, mujoco.mjtObj.mjOBJ_XBODY
            # Found and distance, of the nearest contact, in one slot.
            sensor.intprm[:3] = [1 | 8, 1, 1]
        try:
            probe = spec.compile()
        except MUJOCO_ERRORS as error:
            what = ", ".join(item.name for item in objects)
            raise PhysicsError(f"MuJoCo can not simulate {hand.name} with {what}: {error}") from error
        model = copy(probe)
        model.geom_gap[:] = 0.0
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_SENSOR
        names = _names(objects)
        return cls(
            model=model,
            probe=probe,
            hand=hand,
            mass=np.array([model.body(n).mass[0] for n in names]),
            joints=np.array([model.joint(n).qposadr[0] for n in hand.model.all_joints]),
            independent=np.array([model.joint(n).qposadr[0] for n in hand.model.joints]),
            objects=np.array([model.joint(n).qposadr[0] for n in names]),
            bodies=np.array([model.body(n).id for n in names]),
            sensors=np.array([model.sensor(f"{n}_contact").adr[0] for n in names]),
            dofs=np.array([model.joint(n).dofadr[0] for n in names]),
            com_O=np.array([model.body(n).ipos for n in names]),
            inertia_O=np.array([_inertia(model, model.body(n).id) for n in names]),
        )

    def qpos(self, q: np.ndarray, p_HO: np.ndarray, R_HO: np.ndarray) -> np.ndarray:
        """States (N, nq) with joints (N, K) and objects (N, n, 3), (N, n, 3, 3) in the hand."""
        state = np.zeros((len(q), self.model.nq))
        state[:, self.joints] = self.hand.model.expand(q)
        for k, place in enumerate(self.objects):
            state[:, place : place + 3] = p_HO[:, k]
            state[:, place + 3 : place + 7] = quaternion_from_rotation(R_HO[:, k])
        return state

    def poses(self, qpos: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """p_HO (N, n, 3), R_HO (N, n, 3, 3) of states (N, nq)."""
        places = self.objects[:, None] + np.arange(7)
        free = qpos[:, places]
        return free[..., :3], rotation_from_quaternion(free[..., 3:])

    def velocities(self, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Velocities (N, n, 3) of the objects' origins in the hand, and angular ones in their own frames."""
        free = qvel[:, self.dofs[:, None] + np.arange(6)]
        return free[..., :3], free[..., 3:]


def _names(objects: Sequence[Object]) -> list[str]:
    """Names that no body of a hand has: two objects may share theirs."""
    return [f"object {k}" for k in range(len(objects))]


def _set_options(spec: mujoco.MjSpec, protocol: Protocol) -> None:
    o = spec.option
    o.timestep = protocol.step_s / protocol.substeps
    o.integrator = _INTEGRATORS[protocol.integrator]
    o.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    o.impratio = protocol.impratio
    o.noslip_iterations = protocol.noslip_iterations
    o.gravity = [0, 0, 0]
    # A state that blew up stays so and is seen, instead of starting again as if nothing had been.
    o.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    spec.memory = 64 * 2**20


def _drive(spec: mujoco.MjSpec, hand: Hand, protocol: Protocol) -> None:
    """One position servo for each independent joint, in their order, as strong as its motor."""
    for actuator in list(spec.actuators):
        spec.delete(actuator)
    for key in list(spec.keys):
        spec.delete(key)
    for geom in spec.geoms:
        _set_contact(geom, protocol)
        if geom.contype or geom.conaffinity:
            geom.contype, geom.conaffinity = _HAND, _HAND | _OBJECT
    for coupling in spec.equalities:
        # As stiff as contacts: by default, a coupled finger gives way to its object by millimetres.
        coupling.solref, coupling.solimp = protocol.solref, protocol.solimp
    limits = dict(zip(hand.model.joints, hand.model.torque_limit, strict=True))
    slides = dict(zip(hand.model.all_joints, hand.model.tree.slides, strict=True))
    for joint in spec.joints:
        lever = SLIDE_LEVER if slides[joint.name] else 1.0
        joint.damping = np.maximum(joint.damping, [protocol.joint_damping / lever**2, 0, 0])
        joint.frictionloss = 0.0
    for name, limit in limits.items():
        stiffness = protocol.stiffness / (SLIDE_LEVER**2 if slides[name] else 1.0)
        servo = spec.add_actuator(name=f"{name} servo", target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        servo.set_to_position(kp=stiffness)
        servo.forcelimited, servo.forcerange = True, [-limit, limit]
        servo.ctrllimited = False


def _set_contact(geom: mujoco.MjsGeom, protocol: Protocol) -> None:
    geom.condim = 4
    geom.friction = [protocol.friction, protocol.torsion, 0.0001]
    geom.solref, geom.solimp = protocol.solref, protocol.solimp
    geom.margin, geom.gap, geom.priority = 0.0, 0.0, 0


def _add_object(spec: mujoco.MjSpec, name: str, item: Object, parts: ConvexParts, protocol: Protocol) -> None:
    """A free body with the mass of the real mesh: convex parts overlap, and would weigh too much."""
    mass = item.mass_properties.at_density(protocol.density or 1.0)
    scale = 1.0 if protocol.mass is None else protocol.mass / mass.mass
    body = spec.worldbody.add_body(name=name)
    body.add_freejoint(name=name)
    body.explicitinertial = True
    body.mass, body.ipos = mass.mass * scale, mass.com_O
    body.fullinertia = scale * mass.inertia_O[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    for k, corners in enumerate(parts.vertices):
        mesh = spec.add_mesh(name=f"{name} part {k}")
        mesh.uservert = np.ascontiguousarray(corners, np.float32).ravel()
        geom = body.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname=mesh.name)
        _set_contact(geom, protocol)
        geom.contype = _OBJECT
        geom.conaffinity = _HAND | _OBJECT if protocol.objects_collide else _HAND
        # Reported, without force, as soon as it counts as contact.
        geom.gap = 1e-3 * protocol.contact_mm


def _inertia(model: mujoco.MjModel, body: int) -> np.ndarray:
    """(3, 3) float, kg m2. About the centre of mass, along the axes of the body."""
    R = rotation_from_quaternion(model.body_iquat[body])
    return R @ np.diag(model.body_inertia[body]) @ R.T
