"""URDF read into a MuJoCo model: links, joints, limits, mimic couplings, collision shapes.

MuJoCo's own URDF reader drops mimic tags, strips mesh paths and knows few mesh formats, so this one is ours.
Only what a hand needs is read; visuals serve as shapes only where a hand has no collision geometry at all.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import mujoco
import numpy as np

from fistful.errors import HandError, MeshError
from fistful.geometry.pose import quaternion_from_rotation, rotation_from_quaternion, rotation_from_rpy
from fistful.hands.files import asset_root, read_xml, resolve
from fistful.hands.model import MUJOCO_ERRORS, one_line
from fistful.objects.inspection import stated_factor
from fistful.objects.reading import read_mesh

_JOINT_TYPES = {
    "revolute": mujoco.mjtJoint.mjJNT_HINGE,
    "continuous": mujoco.mjtJoint.mjJNT_HINGE,
    "prismatic": mujoco.mjtJoint.mjJNT_SLIDE,
}


class Imported(NamedTuple):
    """A compiled model and what was noticed on the way, one statement each."""

    model: mujoco.MjModel
    notes: tuple[str, ...]


def read_urdf(path: Path) -> Imported:
    """The MuJoCo model of a URDF file. Reads it and the meshes it refers to."""
    robot = read_xml(path)
    if robot.tag != "robot":
        raise HandError(f"{path.name}: the root element of a URDF is <robot>, found <{robot.tag}>")
    links = _by_name(robot.findall("link"), "link")
    joints = _by_name(robot.findall("joint"), "joint")
    if not links or not joints:
        raise HandError(
            f"{path.name} has {len(links)} links and {len(joints)} joints; a hand has several of both"
        )
    spec = mujoco.MjSpec()
    spec.modelname = robot.get("name", "")
    spec.compiler.degree = False
    # Inertias of exported URDFs are often not those of any rigid body; MuJoCo balances them on request.
    spec.compiler.balanceinertia = True
    spec.compiler.boundmass, spec.compiler.boundinertia = 1e-6, 1e-12
    notes: list[str] = []
    tag = "collision" if any(link.find("collision") is not None for link in links.values()) else "visual"
    if tag == "visual":
        notes.append("no link has collision geometry: took the visual geometry")
    shapes = _Shapes(spec, path.resolve().parent, asset_root(path), tag)
    bodies: dict[str, mujoco.MjsBody] = {}
    for link, joint in _walk(links, joints):
        parent = spec.worldbody if joint is None else bodies[_attribute(joint, "parent", "link")]
        name = link.attrib["name"]
        # MuJoCo keeps the name of the root of many URDFs, "world", for itself.
        body = bodies[name] = parent.add_body(name=name if name != "world" else "world_link")
        if joint is not None:
            body.pos, body.quat = _origin(joint)
            _add_joint(body, joint)
        _add_inertial(body, link)
        shapes.add(body, link)
    for name, joint in joints.items():
        mimic = joint.find("mimic")
        if mimic is not None and joint.get("type") in _JOINT_TYPES:
            driver = mimic.get("joint", "")
            if driver not in joints or joints[driver].get("type") not in _JOINT_TYPES:
                raise HandError(f"joint {name!r} mimics {driver!r}, which is not a moving joint")
            coefficients = [_number(mimic, "offset", 0.0), _number(mimic, "multiplier", 1.0), 0, 0, 0]
            equality = spec.add_equality(name=f"mimic_{name}", type=mujoco.mjtEq.mjEQ_JOINT)
            equality.objtype = mujoco.mjtObj.mjOBJ_JOINT
            equality.name1, equality.name2 = name, driver
            equality.data[: len(coefficients)] = coefficients
    try:
        return Imported(spec.compile(), tuple(notes))
    except MUJOCO_ERRORS as error:
        raise HandError(f"{path.name}: {one_line(error)}") from None


def _by_name(elements: Iterable[ElementTree.Element], kind: str) -> dict[str, ElementTree.Element]:
    named: dict[str, ElementTree.Element] = {}
    for element in elements:
        name = element.get("name", "")
        if not name or name in named:
            raise HandError(f"every {kind} needs a name of its own; {name!r} is missing or used twice")
        named[name] = element
    return named


def _walk(
    links: dict[str, ElementTree.Element], joints: dict[str, ElementTree.Element]
) -> list[tuple[ElementTree.Element, ElementTree.Element | None]]:
    """Links from the root down, each with the joint that carries it."""
    children: dict[str, list[tuple[str, ElementTree.Element]]] = {}
    for name, joint in joints.items():
        parent, child = _attribute(joint, "parent", "link"), _attribute(joint, "child", "link")
        for link in (parent, child):
            if link not in links:
                raise HandError(f"joint {name!r} refers to link {link!r}, which does not exist")
        children.setdefault(parent, []).append((child, joint))
    carried = [child for pairs in children.values() for child, _ in pairs]
    roots = [name for name in links if name not in carried]
    if len(roots) != 1 or len(set(carried)) != len(carried):
        raise HandError(
            f"the links must form one tree; found {len(roots)} roots ({', '.join(roots) or 'a cycle'})"
        )
    order: list[tuple[ElementTree.Element, ElementTree.Element | None]] = [(links[roots[0]], None)]
    for link, _ in order:
        order.extend((links[child], joint) for child, joint in children.get(link.attrib["name"], []))
    if len(order) != len(links):
        raise HandError("some links hang in a cycle and are not connected to the root")
    return order


def _attribute(element: ElementTree.Element, child: str, attribute: str) -> str:
    node = element.find(child)
    value = None if node is None else node.get(attribute)
    if value is None:
        raise HandError(f"{element.tag} {element.get('name')!r} has no <{child} {attribute}=...>")
    return value


def _vector(text: str | None, default: tuple[float, ...], where: str) -> np.ndarray:
    if text is None:
        return np.array(default, dtype=float)
    try:
        vector = np.array([float(t) for t in text.split()])
    except ValueError:
        vector = np.array([np.nan])
    # Larger numbers than a billion are a mistake, and overflow when squared again and again.
    if vector.shape != (len(default),) or not np.all(np.abs(vector) < 1e9):
        raise HandError(f"{where}: expected {len(default)} numbers of ordinary size, found {text[:60]!r}")
    return vector


def _number(element: ElementTree.Element, attribute: str, default: float) -> float:
    return float(_vector(element.get(attribute), (default,), f"<{element.tag} {attribute}>")[0])


def _origin(element: ElementTree.Element) -> tuple[np.ndarray, np.ndarray]:
    """Position and quaternion wxyz of an element's <origin>; the identity without one."""
    origin = element.find("origin")
    if origin is None:
        return np.zeros(3), np.array([1.0, 0, 0, 0])
    where = f"origin of {element.tag} {element.get('name') or ''}"
    rpy = _vector(origin.get("rpy"), (0, 0, 0), where)
    return _vector(origin.get("xyz"), (0, 0, 0), where), quaternion_from_rotation(rotation_from_rpy(rpy))


def _add_joint(body: mujoco.MjsBody, joint: ElementTree.Element) -> None:
    name, kind = joint.attrib["name"], joint.get("type", "")
    if kind == "fixed":
        return
    if kind not in _JOINT_TYPES:
        raise HandError(
            f"joint {name!r} is {kind!r}; a hand has revolute, continuous, prismatic and fixed joints"
        )
    node, limit = joint.find("axis"), joint.find("limit")
    axis = _vector(None if node is None else node.get("xyz"), (1, 0, 0), f"axis of joint {name!r}")
    if np.linalg.norm(axis) < 1e-9:
        raise HandError(f"joint {name!r} has a zero axis")
    added = body.add_joint(name=name, type=_JOINT_TYPES[kind], axis=axis / np.linalg.norm(axis))
    if limit is not None and kind != "continuous":
        lower, upper = _number(limit, "lower", 0.0), _number(limit, "upper", 0.0)
        if lower >= upper:
            raise HandError(f"joint {name!r} has the empty range [{lower:g}, {upper:g}]")
        added.range, added.limited = [lower, upper], mujoco.mjtLimited.mjLIMITED_TRUE
    if limit is not None and _number(limit, "effort", 0.0) > 0:
        effort = _number(limit, "effort", 0.0)
        added.actfrcrange, added.actfrclimited = [-effort, effort], mujoco.mjtLimited.mjLIMITED_TRUE


def _add_inertial(body: mujoco.MjsBody, link: ElementTree.Element) -> None:
    inertial = link.find("inertial")
    mass = None if inertial is None else inertial.find("mass")
    if inertial is None or mass is None or _number(mass, "value", 0.0) <= 0:
        return
    position, quaternion = _origin(inertial)
    body.mass, body.ipos, body.iquat = _number(mass, "value", 0.0), position, quaternion
    body.explicitinertial = True
    inertia = inertial.find("inertia")
    keys = ("ixx", "iyy", "izz", "ixy", "ixz", "iyz")
    values = [0.0] * 6 if inertia is None else [_number(inertia, key, 0.0) for key in keys]
    xx, yy, zz, xy, xz, yz = values
    moments, axes = np.linalg.eigh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    axes[:, 2] *= np.sign(np.linalg.det(axes))
    R = rotation_from_quaternion(quaternion) @ axes
    body.iquat, body.inertia = quaternion_from_rotation(R), np.maximum(moments, 1e-9 * body.mass)


class _Shapes:
    """Adds the shapes of links to bodies; each mesh file is read once."""

    def __init__(self, spec: mujoco.MjSpec, folder: Path, root: Path, tag: str):
        self._spec, self._folder, self._root, self._tag = spec, folder, root, tag
        self._meshes: dict[tuple[str, str], str] = {}

    def add(self, body: mujoco.MjsBody, link: ElementTree.Element) -> None:
        """Add all shapes of a link to its body."""
        for element in link.findall(self._tag):
            geometry = element.find("geometry")
            shape = None if geometry is None or not len(geometry) else geometry[0]
            if shape is None:
                continue
            where = f"{shape.tag} of link {link.get('name')!r}"
            position, quaternion = _origin(element)
            geom = body.add_geom(pos=position, quat=quaternion)
            if shape.tag == "box":
                geom.type, geom.size = (
                    mujoco.mjtGeom.mjGEOM_BOX,
                    _vector(shape.get("size"), (0, 0, 0), where) / 2,
                )
            elif shape.tag == "sphere":
                geom.type, geom.size = mujoco.mjtGeom.mjGEOM_SPHERE, [_number(shape, "radius", 0.0), 0, 0]
            elif shape.tag in ("cylinder", "capsule"):
                geom.type = getattr(mujoco.mjtGeom, f"mjGEOM_{shape.tag.upper()}")
                geom.size = [_number(shape, "radius", 0.0), _number(shape, "length", 0.0) / 2, 0]
            elif shape.tag == "mesh":
                geom.type, geom.meshname = mujoco.mjtGeom.mjGEOM_MESH, self._mesh(shape, where)
            else:
                raise HandError(
                    f"link {link.get('name')!r} has a shape <{shape.tag}>; known: box, sphere, cylinder, mesh"
                )

    def _mesh(self, shape: ElementTree.Element, where: str) -> str:
        """Name of the mesh asset that holds a file's triangles."""
        key = (shape.get("filename", ""), shape.get("scale", "1 1 1"))
        if key not in self._meshes:
            path = resolve(key[0], folder=self._folder, root=self._root)
            try:
                mesh = read_mesh(path)
                # A URDF's lengths are metres, as are its meshes' unless they say otherwise (COLLADA does).
                unit = 1.0 if mesh.units is None else stated_factor(mesh.units)
            except MeshError as error:
                raise HandError(f"{where}: {error}") from None
            vertices = unit * mesh.vertices * _vector(key[1], (1, 1, 1), where)
            if not np.all(np.isfinite(vertices)):
                raise HandError(f"{where}: {path.name} has vertices that are not finite")
            name = f"mesh_{len(self._meshes)}_{path.stem}"
            asset = self._spec.add_mesh(
                name=name, uservert=vertices.ravel(), userface=mesh.faces.ravel().astype(np.int32)
            )
            # The hull's inertia is defined for any mesh, open or inside out.
            asset.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_CONVEX
            self._meshes[key] = name
        return self._meshes[key]
