"""What there is to see of one grasp: the hand at three moments, the objects, contacts and overlaps."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fistful.geometry.mesh_distance import MeshDistance
from fistful.geometry.primitives import Kind, Primitive
from fistful.hands.hand import Hand
from fistful.objects.object import Object
from fistful.planning.plan import Plan
from fistful.synthesis.stage import contact_points
from fistful.view.colours import ACTIVE, FREE, FROZEN, RGB

if TYPE_CHECKING:
    import trimesh

PHASES = ("pre-grasp", "grasp", "squeeze")
OVERLAP = 1e-4
"""m. Points of the hand's skin deeper than this in an object are shown."""


class BodyMesh(NamedTuple):
    """What is seen of one body of a hand: its number, vertices (V, 3) in its frame, m, and faces (F, 3)."""

    body: int
    vertices_B: np.ndarray
    faces: np.ndarray


class Contacts(NamedTuple):
    """Contact points of all held objects.

    Attributes:
      number: (C,) int. Which object each is on, in the order of the stages.
      p_H: (C, 3) float, m. Points on the hand, in the hand base frame.
      n_H: (C, 3) float. Unit normals there, into the object: the axes of the friction cones.
    """

    number: np.ndarray
    p_H: np.ndarray
    n_H: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Moment:
    """One grasp of a plan, ready to be drawn; H is the hand base.

    Attributes:
      stage, grasp: Which one.
      q: (3, K) float. Joints at the pre-grasp, the grasp, the squeeze. Joints that hold something already
        stay where they are.
      p_HO, R_HO: (n, 3), (n, 3, 3) float. All held objects.
      active, frozen: (K,) bool. Joints that this stage moves, and joints that hold something already.
      contacts: Contacts of all held objects.
    """

    stage: int
    grasp: int
    q: np.ndarray
    p_HO: np.ndarray
    R_HO: np.ndarray
    active: np.ndarray
    frozen: np.ndarray
    contacts: Contacts


def moment_of(plan: Plan, stage: int, grasp: int) -> Moment:
    """One grasp of a plan. No I/O."""
    stage = range(len(plan.stages))[stage]
    g = plan.stages[stage].grasps
    q, active = g.q[grasp], g.joint_mask[grasp]
    return Moment(
        stage=stage,
        grasp=grasp,
        q=np.stack([np.where(active, g.pre_grasp[grasp], q), q, np.where(active, g.squeeze[grasp], q)]),
        p_HO=g.p_HO[grasp],
        R_HO=g.R_HO[grasp],
        active=active,
        frozen=~(active | g.free[grasp]),
        contacts=_contacts(plan, stage, grasp),
    )


def _contacts(plan: Plan, stage: int, grasp: int) -> Contacts:
    """Those of the grasp and of all that it continues, as they are on the hand now."""
    now = plan.stages[stage].grasps
    number, body, p_B, normals = [], [], [], []
    for n, i in enumerate(plan.lineage(stage, grasp)):
        g = plan.stages[n].grasps
        number.append(np.full(len(g.contact_body[i]), n))
        body.append(g.contact_body[i])
        p_B.append(g.contact_p_B[i])
        normals.append(-g.contact_n_O[i] @ now.R_HO[grasp, n].T)
    body, p_B = np.concatenate(body)[None], np.concatenate(p_B)[None]
    p_H = contact_points(plan.hand, now.q[[grasp]], body, p_B)[0]
    return Contacts(np.concatenate(number), p_H, np.concatenate(normals))


def joints_between(moment: Moment, phase: float) -> np.ndarray:
    """Joints (K,) on the way from the pre-grasp (0) over the grasp (1) to the squeeze (2)."""
    leg = min(int(phase), len(PHASES) - 2)
    return moment.q[leg] + (phase - leg) * (moment.q[leg + 1] - moment.q[leg])


def overlapping_points(hand: Hand, objects: tuple[Object, ...], moment: Moment, q: np.ndarray) -> np.ndarray:
    """Points (M, 3), m, of the hand's skin that are inside a held object, in the hand base frame. No I/O."""
    inside = overlapping(hand, objects, q[None], moment.p_HO[None], moment.R_HO[None])[0]
    return hand.poses(q).points(hand.skin.body[inside], hand.skin.p_B[inside])


def overlapping(
    hand: Hand, objects: tuple[Object, ...], q: np.ndarray, p_HO: np.ndarray, R_HO: np.ndarray
) -> np.ndarray:
    """Which points of the hand's skin, (N, S) bool, are inside a held object. No I/O.

    Args:
      hand: Hand; S points of its skin.
      objects: Objects, at least n.
      q: (N, K) float. Joints.
      p_HO, R_HO: (N, n, 3), (N, n, 3, 3) float, m. The n objects that are held.
    """
    p_H = hand.poses(q).points(hand.skin.body, hand.skin.p_B)
    inside = np.zeros(p_H.shape[:-1], dtype=bool)
    for n, item in enumerate(objects[: p_HO.shape[1]]):
        p_O = (p_H - p_HO[:, n, None]) @ R_HO[:, n]
        # A distance changes by no more than one moves: most points are farther out than a cell.
        grid = item.sdf
        node = np.rint((p_O - grid.origin) / grid.spacing).astype(int)
        near = np.all((node >= 0) & (node < grid.shape), axis=-1)
        near[near] = grid.values[tuple(node[near].T)] < np.sqrt(3) / 2 * grid.spacing - OVERLAP
        if near.any():
            inside[near] |= _distance_to(item).query(p_O[near]).values < -OVERLAP
    return inside


_DISTANCES: WeakKeyDictionary[Object, MeshDistance] = WeakKeyDictionary()


def _distance_to(item: Object) -> MeshDistance:
    if item not in _DISTANCES:
        _DISTANCES[item] = MeshDistance(item.vertices, item.faces)
    return _DISTANCES[item]


def hand_meshes(hand: Hand) -> list[BodyMesh]:
    """One mesh for each body that has a shape. No I/O."""
    found = []
    for body in range(len(hand.model.bodies)):
        shapes = [_tessellated(geom.primitive) for geom in hand.model.geoms if geom.body == body]
        if shapes:
            starts = np.cumsum([0, *(len(mesh.vertices) for mesh in shapes)])
            vertices = np.concatenate([mesh.vertices for mesh in shapes])
            faces = np.concatenate([mesh.faces + k for mesh, k in zip(shapes, starts, strict=False)])
            found.append(BodyMesh(body, vertices, faces.astype(np.int32)))
    return found


def _tessellated(shape: Primitive) -> "trimesh.Trimesh":
    import trimesh

    X_BG = np.eye(4)
    X_BG[:3, :3], X_BG[:3, 3] = shape.R_BG, shape.p_BG
    a, b, _ = shape.size
    if shape.kind == Kind.SPHERE:
        mesh = trimesh.creation.icosphere(subdivisions=2, radius=a)
    elif shape.kind == Kind.CAPSULE:
        mesh = trimesh.creation.capsule(height=2 * b, radius=a, count=(16, 24))
        mesh.apply_translation(-mesh.bounds.mean(axis=0))
    elif shape.kind == Kind.CYLINDER:
        mesh = trimesh.creation.cylinder(radius=a, height=2 * b, sections=24)
    else:
        mesh = trimesh.creation.box(extents=2 * np.asarray(shape.size))
    mesh.apply_transform(X_BG)
    return mesh


def body_colours(hand: Hand, moment: Moment) -> list[RGB]:
    """One colour a body: what this stage moves, what holds something already, what is still free."""
    tree, C = hand.model.tree, hand.model.coupling
    colours = []
    for body in range(len(hand.model.bodies)):
        own = np.any(C[tree.joint_body == body] != 0, axis=0)
        if np.any(own & moment.frozen):
            colours.append(FROZEN)
        elif np.any(own & moment.active):
            colours.append(ACTIVE)
        else:
            colours.append(FREE)
    return colours
