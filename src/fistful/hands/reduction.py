"""Any hand that MuJoCo compiles, reduced to the canonical MJCF: base, moving bodies, primitives.

The base (palm) is the deepest body that all fingers hang from; what is above it (wrist, forearm, arm) is
left out. Bodies without a joint are merged into the body that carries them. Collision meshes become the
primitive that fits them best. Whatever is left out or replaced is said in the notes.
"""

from itertools import product
from typing import NamedTuple
from xml.etree import ElementTree

import mujoco
import numpy as np

from fistful.errors import HandError
from fistful.geometry.pose import quaternion_from_rotation
from fistful.geometry.primitives import SIZES
from fistful.hands.branching import (
    body_name,
    carriers,
    descends,
    find_palm,
    joint_name,
    joints_of,
    unused_name,
)
from fistful.hands.model import (
    HINGE,
    JOINT_EQUALITY,
    OPEN_KEYFRAME,
    SLIDE,
    check_size,
    compile_mjcf,
    independent_limits,
    joint_coupling,
    stated_force_limit,
)
from fistful.hands.shapes import as_primitives

DEFAULT_FORCE = {HINGE: 1.0, SLIDE: 20.0}
"""N m and N, for a joint whose file states no force limit (or 0, as some URDFs do)."""
FULL_FORCE_ERROR = {HINGE: 0.14, SLIDE: 0.005}
"""rad and m. How far a position servo is off when it pushes with all its force: kp is force over this."""
LARGE_NUMBER = 1e15
"""No quantity of a model is as large, in whatever units."""
LARGE_RANGE = 1e3
"""rad or m. A joint with a wider range has none."""
MAX_BODIES = 64
"""Moving bodies; a Shadow hand has 22, a humanoid with two such hands fewer than this."""
MASS_OUTSIDE = 0.02
"""m. A centre of mass farther outside of all shapes than this is an error of the file."""
STRUCTURAL_OVERLAP = 0.95
"""Two bodies that overlap in this share of random poses overlap by design and are never tested again."""


class Reduced(NamedTuple):
    """Canonical MJCF text and what was changed to get there, one statement each."""

    mjcf: str
    notes: tuple[str, ...]


def reduce_model(m: mujoco.MjModel, name: str) -> Reduced:
    """The canonical MJCF of a compiled model. No I/O."""
    _check_numbers(m)
    notes: list[str] = []
    palm = find_palm(m)
    carrier = carriers(m, palm)
    kept = [b for b in range(m.nbody) if b == palm or (descends(m, b, palm) and m.body_jntnum[b])]
    if len(kept) > MAX_BODIES:
        raise HandError(f"the model has {len(kept) - 1} moving bodies; a hand has fewer than {MAX_BODIES}")
    _note_left_out(m, palm, kept, notes)
    at_rest = mujoco.MjData(m)
    at_rest.qpos[:] = m.qpos0
    mujoco.mj_kinematics(m, at_rest)

    root = _skeleton(name)
    members = {b: [c for c in range(m.nbody) if carrier[c] == b and descends(m, c, palm)] for b in kept}
    check_size(m, [c for group in members.values() for c in group])
    shapes = _collision_geoms(m, [c for group in members.values() for c in group])
    elements: dict[int, ElementTree.Element] = {}
    for b in kept:
        if b == palm:
            element = ElementTree.SubElement(_section(root, "worldbody"), "body", name=body_name(m, b))
        else:
            parent = carrier[m.body_parentid[b]]
            pose = _relative_pose(at_rest, parent, b)
            element = ElementTree.SubElement(elements[parent], "body", name=body_name(m, b), attrib=pose)
        elements[b] = element
        geoms = [g for g in shapes if m.geom_bodyid[g] in members[b]]
        _add_inertial(m, at_rest, element, b, members[b], geoms, notes)
        if b != palm:
            _add_joints(m, element, b, notes)
        _add_geoms(m, at_rest, element, b, geoms, notes)
    _note_unstated_forces(m, kept[1:], notes)
    notes.append(
        "actuators, damping, friction and contact settings are fistful's own, for validation in physics"
    )
    kept_joints = {j for b in kept[1:] for j in joints_of(m, b)}
    coupled = _add_couplings(m, root, kept_joints, notes)
    for j in sorted(kept_joints - coupled):
        name, kp = joint_name(m, j), _force(m, j) / FULL_FORCE_ERROR[int(m.jnt_type[j])]
        servo = {"name": name, "joint": name, "kp": f"{kp:g}", "inheritrange": "1"}
        if m.jnt_type[j] == SLIDE:
            # The default damping is that of a hinge, in N m s; a slide gets what its servo needs.
            servo["dampratio"] = "1"
        ElementTree.SubElement(_section(root, "actuator"), "position", attrib=servo)
    contact = _section(root, "contact")
    for signature in m.exclude_signature:
        a, b = carrier[int(signature) >> 16], carrier[int(signature) & 0xFFFF]
        if a in elements and b in elements and a != b:
            ElementTree.SubElement(contact, "exclude", body1=body_name(m, a), body2=body_name(m, b))
    _exclude_structural_overlaps(root)
    _add_open_pose(root, notes)
    ElementTree.indent(root)
    return Reduced(ElementTree.tostring(root, encoding="unicode") + "\n", tuple(notes))


def _check_numbers(m: mujoco.MjModel) -> None:
    """Raise HandError for numbers that no hand has: MuJoCo lets infinity pass, and makes NaN of 1e300."""
    for kind, view, count, fields in (
        ("body", m.body, m.nbody, ("pos", "quat", "ipos", "iquat", "mass", "inertia")),
        ("joint", m.joint, m.njnt, ("pos", "axis", "qpos0")),
        ("geom", m.geom, m.ngeom, ("pos", "quat", "size")),
        ("equality constraint", m.eq, m.neq, ("data",)),
    ):
        for item, field in product(map(view, range(count)), fields):
            values = np.ravel(getattr(item, field))
            if not np.all(np.abs(values) < LARGE_NUMBER):
                numbers = ", ".join(f"{v:g}" for v in values[:4])
                raise HandError(f"{kind} {item.name!r} of the model has {field} {numbers}")


def _skeleton(name: str) -> ElementTree.Element:
    """An MJCF with our physics settings and nothing in it."""
    root = ElementTree.Element("mujoco", model=name)
    add = ElementTree.SubElement
    # Rounding may push the moments of a flat body just beyond what a rigid body can have.
    add(root, "compiler", angle="radian", autolimits="true", balanceinertia="true")
    add(root, "option", timestep="0.002", integrator="implicitfast", cone="elliptic", impratio="100")
    default = add(root, "default")
    add(default, "joint", damping="0.1", armature="0.0001")
    contact = {
        "condim": "4",
        "friction": "1 0.005 0.0001",
        "solref": "0.004 1",
        "solimp": "0.95 0.99 0.001 0.5 2",
    }
    add(default, "geom", rgba="0.3 0.32 0.35 1", attrib=contact)
    for section in ("worldbody", "contact", "equality", "actuator", "keyframe"):
        add(root, section)
    return root


def _section(root: ElementTree.Element, name: str) -> ElementTree.Element:
    section = root.find(name)
    assert section is not None, name
    return section


def _numbers(values: np.ndarray) -> str:
    """Space-separated, exact enough that a round trip moves nothing by more than a nanometre."""
    return " ".join(f"{float(np.round(v, 9)) + 0.0:.9g}" for v in np.ravel(values))


def _note_left_out(m: mujoco.MjModel, palm: int, kept: list[int], notes: list[str]) -> None:
    above = [joint_name(m, j) for b in range(m.nbody) if b not in kept or b == palm for j in joints_of(m, b)]
    if above:
        where = f"above or beside the palm {body_name(m, palm)!r}"
        notes.append(f"left out what is {where}: joints {', '.join(above)}")


def _relative_pose(d: mujoco.MjData, parent: int, body: int) -> dict[str, str]:
    R_WP, R_WB = d.xmat[parent].reshape(3, 3), d.xmat[body].reshape(3, 3)
    p_PB = R_WP.T @ (d.xpos[body] - d.xpos[parent])
    return {"pos": _numbers(p_PB), "quat": _numbers(quaternion_from_rotation(R_WP.T @ R_WB))}


def _add_inertial(
    m: mujoco.MjModel,
    d: mujoco.MjData,
    element: ElementTree.Element,
    body: int,
    members: list[int],
    geoms: list[int],
    notes: list[str],
) -> None:
    """Mass and inertia of a body and all that is fixed to it."""
    mass = float(sum(m.body_mass[c] for c in members))
    if mass <= 0:
        # A hand without stated masses: MuJoCo will derive them from the shapes.
        return
    p_WC = sum(m.body_mass[c] * d.xipos[c] for c in members) / mass
    inertia = np.zeros((3, 3))
    for c in members:
        R, r = d.ximat[c].reshape(3, 3), d.xipos[c] - p_WC
        inertia += R @ np.diag(m.body_inertia[c]) @ R.T
        inertia += m.body_mass[c] * (r @ r * np.eye(3) - np.outer(r, r))
    reach = min((np.linalg.norm(d.geom_xpos[g] - p_WC) - m.geom_rbound[g] for g in geoms), default=0.0)
    if reach > MASS_OUTSIDE:
        notes.append(
            f"the centre of mass of {body_name(m, body)!r} is {1e3 * reach:.0f} mm outside of its shapes: "
            "its mass and inertia are derived from the shapes instead"
        )
        return
    R_WB = d.xmat[body].reshape(3, 3)
    moments, axes = np.linalg.eigh(R_WB.T @ inertia @ R_WB)
    axes[:, 2] *= np.sign(np.linalg.det(axes))
    ElementTree.SubElement(
        element,
        "inertial",
        pos=_numbers(R_WB.T @ (p_WC - d.xpos[body])),
        quat=_numbers(quaternion_from_rotation(axes)),
        mass=f"{mass:.9g}",
        # Real files hold moments that no rigid body has; a floor keeps them positive.
        diaginertia=" ".join(f"{max(v, 1e-9 * mass + 1e-12):.6g}" for v in moments),
    )


def _add_joints(m: mujoco.MjModel, element: ElementTree.Element, body: int, notes: list[str]) -> None:
    for j in joints_of(m, body):
        name = joint_name(m, j)
        if m.jnt_type[j] not in (HINGE, SLIDE):
            raise HandError(
                f"joint {name!r} is a ball or free joint; a finger's joints are hinges and slides"
            )
        slide = m.jnt_type[j] == SLIDE
        if m.jnt_limited[j] and np.all(np.abs(m.jnt_range[j]) < LARGE_RANGE):
            limits = m.jnt_range[j]
        else:
            limits = np.array([-0.1, 0.1]) if slide else np.array([-np.pi, np.pi])
            notes.append(f"joint {name!r} has no limits: took [{limits[0]:.3g}, {limits[1]:.3g}]")
        attributes = {
            "pos": _numbers(m.jnt_pos[j]),
            "axis": _numbers(m.jnt_axis[j]),
            "range": _numbers(limits),
        }
        if m.qpos0[m.jnt_qposadr[j]]:
            attributes["ref"] = _numbers(m.qpos0[m.jnt_qposadr[j]])
        if slide:
            attributes["type"] = "slide"
        force = _force(m, j)
        attributes["actuatorfrcrange"] = f"{-force:g} {force:g}"
        ElementTree.SubElement(element, "joint", name=name, attrib=attributes)


def _force(m: mujoco.MjModel, joint: int) -> float:
    return stated_force_limit(m, joint) or DEFAULT_FORCE[int(m.jnt_type[joint])]


def _note_unstated_forces(m: mujoco.MjModel, bodies: list[int], notes: list[str]) -> None:
    names = [joint_name(m, j) for b in bodies for j in joints_of(m, b) if stated_force_limit(m, j) is None]
    if names:
        taken = f"{DEFAULT_FORCE[HINGE]:g} N m for hinges, {DEFAULT_FORCE[SLIDE]:g} N for slides"
        notes.append(f"no force limit stated for {', '.join(names)}: took {taken}")


def _collision_geoms(m: mujoco.MjModel, bodies: list[int]) -> list[int]:
    """The geoms of some bodies that collide with anything; all of them if none does."""
    own = np.isin(m.geom_bodyid, bodies)
    collide = own & ((m.geom_contype != 0) | (m.geom_conaffinity != 0))
    return np.flatnonzero(collide if np.any(collide) else own).tolist()


def _add_geoms(
    m: mujoco.MjModel,
    d: mujoco.MjData,
    element: ElementTree.Element,
    body: int,
    geoms: list[int],
    notes: list[str],
) -> None:
    """The collision shapes of a body, meshes and ellipsoids replaced by the primitive that fits best."""
    R_WB, p_WB = d.xmat[body].reshape(3, 3), d.xpos[body]
    taken = [m.geom(g).name for g in range(m.ngeom)]
    count = 0
    for g in geoms:
        R_BG = R_WB.T @ d.geom_xmat[g].reshape(3, 3)
        p_BG = R_WB.T @ (d.geom_xpos[g] - p_WB)
        label = taken[g] or unused_name(f"{body_name(m, body)}_{count}", taken)
        shapes = as_primitives(m, g, label, notes)
        count += bool(shapes)
        for k, shape in enumerate(shapes):
            ElementTree.SubElement(
                element,
                "geom",
                name=label if len(shapes) == 1 else f"{label}_part{k}",
                type=shape.kind.name.lower(),
                size=_numbers(shape.size[: SIZES[shape.kind]]),
                pos=_numbers(p_BG + R_BG @ shape.p_BG),
                quat=_numbers(quaternion_from_rotation(R_BG @ shape.R_BG)),
            )


def _add_couplings(
    m: mujoco.MjModel, root: ElementTree.Element, kept_joints: set[int], notes: list[str]
) -> set[int]:
    """Copy linear joint couplings; returns the joints that are driven by others or constant."""
    coupled: set[int] = set()
    moving = {int(m.jnt_bodyid[j]) for j in kept_joints}
    for e in np.flatnonzero(m.eq_active0).tolist():
        if m.eq_type[e] != JOINT_EQUALITY:
            if any(carriers(m)[b] in moving for b in _tied_bodies(m, e)):
                raise HandError(
                    f"equality constraint {m.eq(e).name or e!r} closes a linkage; fistful needs an open "
                    "tree: replace the linkage by coupled joints (URDF mimic, or an MJCF joint equality)"
                )
            continue
        a, b = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
        if a not in kept_joints:
            continue
        polynomial = m.eq_data[e, :5]
        if b >= 0 and np.any(polynomial[2:]):
            notes.append(f"coupling of {joint_name(m, a)!r} is not linear: only its linear part is kept")
        coupled.add(a)
        pair = {"joint1": joint_name(m, a)}
        if b in kept_joints:
            pair["joint2"] = joint_name(m, b)
        else:
            # Without its driver, or with one that is left out and so stays at rest, the joint is constant.
            notes.append(f"joint {joint_name(m, a)!r} is held at a constant value by a coupling")
        ElementTree.SubElement(
            _section(root, "equality"), "joint", attrib=pair, polycoef=f"{_numbers(polynomial[:2])} 0 0 0"
        )
    return coupled


def _tied_bodies(m: mujoco.MjModel, equality: int) -> list[int]:
    """The bodies that a constraint other than a joint coupling ties; all of them for a tendon's."""
    ends = [int(m.eq_obj1id[equality]), int(m.eq_obj2id[equality])]
    kind = m.eq_objtype[equality]
    if kind == int(mujoco.mjtObj.mjOBJ_BODY):
        return ends
    if kind == int(mujoco.mjtObj.mjOBJ_SITE):
        return [int(m.site_bodyid[site]) for site in ends]
    return list(range(m.nbody))


def _exclude_structural_overlaps(root: ElementTree.Element) -> None:
    """Exclude pairs of bodies that overlap in (nearly) every pose: they are built into each other."""
    m = compile_mjcf(ElementTree.tostring(root, encoding="unicode"))
    d = mujoco.MjData(m)
    C, c, independent = joint_coupling(m)
    lower, upper = independent_limits(m, C, c, independent)
    rng = np.random.default_rng(0)
    samples = 200
    hits: dict[tuple[int, int], int] = {}
    for _ in range(samples):
        d.qpos[:] = C @ rng.uniform(lower, upper) + c
        mujoco.mj_kinematics(m, d)
        mujoco.mj_collision(m, d)
        overlaps = (contact.geom for contact in d.contact if contact.dist < -1e-4)
        for a, b in {tuple(sorted(m.geom_bodyid[geoms].tolist())) for geoms in overlaps}:
            hits[a, b] = hits.get((a, b), 0) + 1
    for (a, b), count in sorted(hits.items()):
        if count >= STRUCTURAL_OVERLAP * samples:
            ElementTree.SubElement(
                _section(root, "contact"), "exclude", body1=m.body(a).name, body2=m.body(b).name
            )


def _add_open_pose(root: ElementTree.Element, notes: list[str]) -> None:
    """The open pose: hinges at zero within limits, slides where the hand is widest.

    If fingers overlap there, the first free pose on the way to mid-range.
    """
    m = compile_mjcf(ElementTree.tostring(root, encoding="unicode"))
    d = mujoco.MjData(m)
    C, c, independent = joint_coupling(m)
    lower, upper = independent_limits(m, C, c, independent)

    def place(q: np.ndarray) -> None:
        d.qpos[:] = C @ q + c
        mujoco.mj_kinematics(m, d)

    def width(q: np.ndarray) -> float:
        place(q)
        return float(np.sum(np.var(d.geom_xpos, axis=0)))

    opened, middle = np.clip(0.0, lower, upper), (lower + upper) / 2
    for k in np.flatnonzero(m.jnt_type[independent] == SLIDE):
        ends = [np.where(np.arange(len(opened)) == k, end, opened) for end in (lower[k], upper[k])]
        opened = max(ends, key=width)
    for share in np.linspace(0, 1, 11):
        place((1 - share) * opened + share * middle)
        mujoco.mj_collision(m, d)
        if not any(contact.dist < -1e-4 for contact in d.contact):
            break
    else:
        share = 0.0
        place(opened)
        notes.append("no open pose free of self-collision was found: took the widest one")
    if share:
        notes.append(f"the open pose is {100 * share:.0f} % on the way to mid-range: fingers overlap before")
    ElementTree.SubElement(_section(root, "keyframe"), "key", name=OPEN_KEYFRAME, qpos=_numbers(d.qpos))
