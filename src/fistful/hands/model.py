"""The mechanics of a hand, read from one MJCF of primitives: bodies, joints, couplings, shapes, limits."""

from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TypeVar

import mujoco
import numpy as np

from fistful.errors import HandError
from fistful.geometry.pose import apply, rotation_from_quaternion
from fistful.geometry.primitives import Kind, Primitive, Shapes
from fistful.hands.kinematics import BodyPoses, Tree, forward_kinematics

OPEN_KEYFRAME = "open"
MAX_SPAN = 1.0
"""m. A hand is smaller than this in every direction."""
# MuJoCo's enums do not compare equal to the integers in its arrays.
HINGE, SLIDE = int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)
FREE = int(mujoco.mjtJoint.mjJNT_FREE)
JOINT_EQUALITY = int(mujoco.mjtEq.mjEQ_JOINT)
JOINT, TENDON = int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_TENDON)
WRAPPED_JOINT = int(mujoco.mjtWrap.mjWRAP_JOINT)
_T = TypeVar("_T")
MUJOCO_ERRORS = (ValueError, RuntimeError, MemoryError, mujoco.FatalError)
"""What its parser and compiler raise; RuntimeError is any exception from inside, such as a lack of memory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Geom:
    """A collision shape: its name, the index of its body, and the primitive in the body's frame."""

    name: str
    body: int
    primitive: Primitive


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A hand's mechanics. `K` independent joints drive all `J` joints of the tree: joints = C q + c.

    Attributes:
      mjcf: The MJCF text it was read from; planner, simulator and viewer share it.
      bodies: B names; body 0 is the hand base.
      tree: Kinematic tree over bodies and all J joints.
      joints: K names of the independent joints, in MJCF order.
      all_joints: J names.
      lower, upper: (K,) float, rad or m. Limits, narrowed so that coupled joints keep theirs.
      torque_limit: (K,) float, N m or N. What the actuator of each joint can exert.
      coupling: (J, K) float. C.
      coupling_offset: (J,) float. c.
      open_pose: (K,) float. Natural, opened, free of collision.
      geoms: Collision shapes.
      collision_pairs: (P, 2) int. Pairs of geoms that must not overlap.
    """

    mjcf: str
    bodies: tuple[str, ...]
    tree: Tree
    joints: tuple[str, ...]
    all_joints: tuple[str, ...]
    lower: np.ndarray
    upper: np.ndarray
    torque_limit: np.ndarray
    coupling: np.ndarray
    coupling_offset: np.ndarray
    open_pose: np.ndarray
    geoms: tuple[Geom, ...]
    collision_pairs: np.ndarray

    @classmethod
    def from_mjcf(cls, text: str) -> "Model":
        """The model of a canonical MJCF: one base body, hinges and slides, primitives only. No I/O."""
        m = compile_mjcf(text)
        bodies = range(1, m.nbody)
        roots = [b for b in bodies if m.body_parentid[b] == 0]
        if len(roots) != 1 or m.body_jntnum[roots[0]]:
            raise HandError(
                f"a hand's MJCF has one base body, without joints; found {len(roots)} bodies in the world"
            )
        if np.any(m.body_pos[roots[0]]) or np.any(m.body_quat[roots[0]] != [1, 0, 0, 0]):
            raise HandError("the base body of a hand's MJCF is at the origin: remove its pos, quat or euler")
        if not m.njnt:
            raise HandError("the hand's MJCF has no joint")
        still = [m.body(b).name for b in bodies if b not in roots and not m.body_jntnum[b]]
        if still:
            raise HandError(f"body {still[0]!r} has no joint; make its geoms part of its parent body")
        check_size(m, list(bodies))
        joint_names = tuple(_name(m, "joint", j) for j in range(m.njnt))
        C, c, independent = joint_coupling(m)
        lower, upper = independent_limits(m, C, c, independent)
        # What collides with nothing is decoration.
        geoms = np.flatnonzero((m.geom_contype != 0) | (m.geom_conaffinity != 0))
        model = cls(
            mjcf=text,
            bodies=tuple(_name(m, "body", b) for b in bodies),
            tree=_tree(m),
            joints=tuple(joint_names[j] for j in independent),
            all_joints=joint_names,
            lower=lower,
            upper=upper,
            torque_limit=np.array([_force_limit(m, j) for j in independent]),
            coupling=C,
            coupling_offset=c,
            open_pose=_open_pose(m, independent, lower, upper),
            geoms=tuple(_geom(m, int(g)) for g in geoms),
            collision_pairs=_collision_pairs(m, geoms),
        )
        return lock(model)

    def poses(self, q: np.ndarray) -> BodyPoses:
        """Poses of all bodies for independent joint values (..., K)."""
        return forward_kinematics(self.tree, self.expand(q))

    def expand(self, q: np.ndarray) -> np.ndarray:
        """All joint values (..., J) of independent ones (..., K)."""
        q = np.asarray(q, dtype=float)
        if q.shape[-1:] != (len(self.joints),):
            raise ValueError(
                f"joint vectors of this hand have {len(self.joints)} entries; got shape {q.shape}"
            )
        return q @ self.coupling.T + self.coupling_offset

    @cached_property
    def shapes(self) -> Shapes:
        """The geoms' primitives as arrays."""
        return Shapes.of([geom.primitive for geom in self.geoms])

    @cached_property
    def geom_body(self) -> np.ndarray:
        """(G,) int. Body of each geom."""
        return np.array([geom.body for geom in self.geoms], dtype=int)

    @cached_property
    def compiled(self) -> mujoco.MjModel:
        """MuJoCo's own form of the model."""
        return compile_mjcf(self.mjcf)


def freeze(model: Model, mask: np.ndarray) -> tuple[Model, np.ndarray]:
    """The model with only the masked joints left, the others at the open pose, and the new body indices.

    Bodies that no longer move become part of the base: body b of the model is body index[b] of the result,
    and its frame is the base frame where index[b] is 0. `mjcf` and `collision_pairs` stay those of the model.

    Args:
      model: Hand.
      mask: (K,) bool. Joints that stay free.
    """
    tree, poses = model.tree, model.poses(model.open_pose)
    live = np.any(model.coupling[:, mask] != 0, axis=1)
    index = np.zeros(len(tree.parent), dtype=int)
    kept = [0]
    for b in range(1, len(tree.parent)):
        if index[tree.parent[b]] or np.any(live[tree.joint_body == b]):
            index[b] = len(kept)
            kept.append(b)
    joints = np.flatnonzero(index[tree.joint_body])
    parent = np.where(np.arange(len(kept)) == 0, -1, index[tree.parent[kept]])
    on_base = (parent <= 0)[:, None]
    p_PB, R_PB = tree.p_PB[kept], tree.R_PB[kept]
    R_HP, p_HP = poses.R_HB[tree.parent[kept]], poses.p_HB[tree.parent[kept]]
    p_HP[0], R_HP[0] = 0.0, np.eye(3)
    frozen_tree = Tree(
        parent=parent,
        p_PB=np.where(on_base, p_HP + apply(R_HP, p_PB), p_PB),
        R_PB=np.where(on_base[..., None], R_HP @ R_PB, R_PB),
        joint_body=index[tree.joint_body[joints]],
        slides=tree.slides[joints],
        anchor_B=tree.anchor_B[joints],
        axis_B=tree.axis_B[joints],
        zero=tree.zero[joints],
    )
    geoms = []
    for geom in model.geoms:
        shape, b = geom.primitive, geom.body
        if not index[b]:
            p, R = poses.p_HB[b] + poses.R_HB[b] @ shape.p_BG, poses.R_HB[b] @ shape.R_BG
            shape = shape._replace(p_BG=p, R_BG=R)
        geoms.append(Geom(name=geom.name, body=int(index[b]), primitive=shape))
    offset = model.coupling_offset + model.coupling[:, ~mask] @ model.open_pose[~mask]
    frozen = replace(
        model,
        bodies=tuple(model.bodies[b] for b in kept),
        tree=frozen_tree,
        joints=tuple(np.array(model.joints)[mask].tolist()),
        all_joints=tuple(model.all_joints[j] for j in joints),
        lower=model.lower[mask],
        upper=model.upper[mask],
        torque_limit=model.torque_limit[mask],
        coupling=model.coupling[joints][:, mask],
        coupling_offset=offset[joints],
        open_pose=model.open_pose[mask],
        geoms=tuple(geoms),
    )
    return frozen, index


def compile_mjcf(text: str) -> mujoco.MjModel:
    """Compile MJCF text; MuJoCo's complaint becomes a one-line HandError. No I/O."""
    try:
        return mujoco.MjSpec.from_string(text).compile()
    except MUJOCO_ERRORS as error:
        raise HandError(f"MuJoCo can not use this model: {one_line(error)}") from None


def one_line(error: Exception) -> str:
    """MuJoCo's complaint without its line breaks."""
    return " ".join(str(error).split())[:300]


def check_size(m: mujoco.MjModel, bodies: list[int]) -> None:
    """Raise HandError if some bodies, at the reference pose, are too large to be a hand. No I/O."""
    d = mujoco.MjData(m)
    mujoco.mj_kinematics(m, d)
    own = np.isin(m.geom_bodyid, bodies)
    reach = m.geom_rbound[own, None]
    with np.errstate(all="ignore"):
        corners = np.concatenate([d.xpos[bodies], d.geom_xpos[own] - reach, d.geom_xpos[own] + reach])
        span = float(np.max(np.ptp(corners, axis=0)))
    if not span <= MAX_SPAN:
        raise HandError(
            f"the hand measures {span:.3g} m, and a hand is smaller than {MAX_SPAN:g} m: this is an arm "
            "without fingers, or a hand in millimetres (scale it by 0.001)"
        )


def _name(m: mujoco.MjModel, kind: str, index: int) -> str:
    name = getattr(m, kind)(index).name
    if not name:
        raise HandError(f"{kind} {index} of the hand's MJCF has no name; give every body, joint and geom one")
    return name


def _tree(m: mujoco.MjModel) -> Tree:
    """MuJoCo's tree without its world body."""
    return Tree(
        parent=m.body_parentid[1:].astype(int) - 1,
        p_PB=m.body_pos[1:].copy(),
        R_PB=rotation_from_quaternion(m.body_quat[1:]),
        joint_body=m.jnt_bodyid.astype(int) - 1,
        slides=m.jnt_type == SLIDE,
        anchor_B=m.jnt_pos.copy(),
        axis_B=m.jnt_axis.copy(),
        zero=m.qpos0.copy(),
    )


def joint_coupling(m: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """C, c and the independent joints, from equality constraints q1 - z1 = a0 + a1 (q2 - z2).

    Without a second joint, q1 is constant: its row of C is 0.
    """
    if any(t not in (HINGE, SLIDE) for t in m.jnt_type):
        raise HandError("a hand's joints are hinges and slides; found a ball or free joint")
    driver: dict[int, tuple[int, float, float]] = {}
    for e in np.flatnonzero(m.eq_active0):
        a, b = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
        a0, a1, *higher = m.eq_data[e, :5]
        if m.eq_type[e] != JOINT_EQUALITY or (b >= 0 and np.any(higher)):
            raise HandError(
                f"equality constraint {e} is not a linear coupling of two joints; closed linkages are not "
                "supported: describe the hand as an open tree with coupled (mimic) joints"
            )
        if a in driver:
            raise HandError(f"joint {m.joint(a).name!r} is coupled twice")
        driver[a] = (b, a1, a0 + m.qpos0[a] - a1 * m.qpos0[b]) if b >= 0 else (-1, 0.0, a0 + m.qpos0[a])
    independent = [j for j in range(m.njnt) if j not in driver]
    C, c = np.zeros((m.njnt, len(independent))), np.zeros(m.njnt)
    for j in range(m.njnt):
        factor, offset, source, seen = 1.0, 0.0, j, {j}
        while source in driver:
            source, a1, a0 = driver[source]
            offset, factor = offset + factor * a0, factor * a1
            if source in seen:
                names = m.joint(j).name, m.joint(source).name
                raise HandError(f"joints {names[0]!r} and {names[1]!r} are coupled in a circle")
            seen.add(source)
        c[j] = offset
        if source >= 0:
            C[j, independent.index(source)] = factor
    if not independent:
        raise HandError("every joint of the hand is held at a constant value by an equality constraint")
    return C, c, independent


def independent_limits(
    m: mujoco.MjModel, C: np.ndarray, c: np.ndarray, independent: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Limits of the independent joints, cut so that every coupled joint stays in its own."""
    lower, upper = np.full(len(independent), -np.inf), np.full(len(independent), np.inf)
    for j in range(m.njnt):
        k = int(np.flatnonzero(C[j])[0]) if np.any(C[j]) else -1
        if not m.jnt_limited[j]:
            raise HandError(f"joint {m.joint(j).name!r} has no limits; give it a range")
        if k >= 0:
            ends = np.sort((m.jnt_range[j] - c[j]) / C[j, k])
            lower[k], upper[k] = max(lower[k], ends[0]), min(upper[k], ends[1])
    if np.any(lower >= upper):
        k = int(np.argmax(lower >= upper))
        raise HandError(
            f"joint {m.joint(independent[k]).name!r} has an empty range [{lower[k]:g}, {upper[k]:g}]"
        )
    return lower, upper


def stated_force_limit(m: mujoco.MjModel, joint: int) -> float | None:
    """The force limit (N m or N) that a model gives for a joint: its own, else its actuator's or tendon's.

    The smallest of several; None if there is none, or 0, as some URDFs have it.
    """
    limits = [m.jnt_actfrcrange[joint, 1]] if m.jnt_actfrclimited[joint] else []
    for a in np.flatnonzero(m.actuator_forcelimited):
        target, lever = int(m.actuator_trnid[a, 0]), abs(float(m.actuator_gear[a, 0]))
        if m.actuator_trntype[a] == TENDON:
            wraps = range(m.tendon_adr[target], m.tendon_adr[target] + m.tendon_num[target])
            own = [w for w in wraps if m.wrap_type[w] == WRAPPED_JOINT and m.wrap_objid[w] == joint]
            limits += [lever * abs(m.wrap_prm[w]) * m.actuator_forcerange[a, 1] for w in own]
        elif m.actuator_trntype[a] == JOINT and target == joint:
            limits.append(lever * m.actuator_forcerange[a, 1])
    return min((float(limit) for limit in limits if limit > 0), default=None)


def _force_limit(m: mujoco.MjModel, joint: int) -> float:
    limit = stated_force_limit(m, joint)
    if limit is None:
        name = m.joint(joint).name
        raise HandError(f"joint {name!r} has no force limit; give it an actuatorfrcrange (N m or N)")
    return limit


def _open_pose(m: mujoco.MjModel, independent: list[int], lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    names = [m.key(k).name for k in range(m.nkey)]
    if OPEN_KEYFRAME not in names:
        raise HandError(f"the hand's MJCF needs a keyframe {OPEN_KEYFRAME!r} that holds its open pose")
    pose = m.key_qpos[names.index(OPEN_KEYFRAME)][independent]
    outside = np.flatnonzero(~((pose > lower - 1e-6) & (pose < upper + 1e-6)))
    if len(outside):
        k = outside[0]
        raise HandError(
            f"keyframe {OPEN_KEYFRAME!r} puts joint {m.joint(independent[k]).name!r} at {pose[k]:g}, outside "
            f"[{lower[k]:g}, {upper[k]:g}]"
        )
    return np.clip(pose, lower, upper)


def _geom(m: mujoco.MjModel, g: int) -> Geom:
    if m.geom_type[g] not in set(Kind):
        raise HandError(f"geom {m.geom(g).name!r} is not a sphere, capsule, box or cylinder")
    if not m.geom_bodyid[g]:
        raise HandError(f"geom {m.geom(g).name!r} belongs to the world; put it into a body of the hand")
    primitive = Primitive(
        kind=Kind(int(m.geom_type[g])),
        size=m.geom_size[g].copy(),
        p_BG=m.geom_pos[g].copy(),
        R_BG=rotation_from_quaternion(m.geom_quat[g]),
    )
    return Geom(name=_name(m, "geom", g), body=int(m.geom_bodyid[g]) - 1, primitive=primitive)


def _collision_pairs(m: mujoco.MjModel, geoms: np.ndarray) -> np.ndarray:
    """Pairs (P, 2) of places in `geoms` that MuJoCo would test for contact.

    Bodies differ, are not excluded and not neighbours; the base and the links on it may well collide.
    """
    skipped = {frozenset((int(s) >> 16, int(s) & 0xFFFF)) for s in m.exclude_signature}
    skipped |= {frozenset((b, int(m.body_parentid[b]))) for b in range(1, m.nbody) if m.body_parentid[b] > 1}
    pairs = []
    for i, j in combinations(range(len(geoms)), 2):
        a, b = geoms[i], geoms[j]
        bodies = frozenset((int(m.geom_bodyid[a]), int(m.geom_bodyid[b])))
        meet = m.geom_contype[a] & m.geom_conaffinity[b] or m.geom_contype[b] & m.geom_conaffinity[a]
        if len(bodies) == 2 and bodies not in skipped and meet:
            pairs.append((i, j))
    return np.array(pairs, dtype=int).reshape(-1, 2)


def lock(value: _T) -> _T:
    """Make every array in nested tuples and dataclasses read-only, and return the value."""
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    elif isinstance(value, tuple):
        for item in value:
            lock(item)
    elif is_dataclass(value):
        for item in fields(value):
            lock(getattr(value, item.name))
    return value
