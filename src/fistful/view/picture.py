"""Pictures of a hand with its opposition spaces, of objects, and of a plan, as labelled sheets."""

from collections.abc import Sequence

import mujoco
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fistful.geometry.pose import quaternion_from_rotation
from fistful.hands.describing import verify_space
from fistful.hands.hand import Hand, OppositionSpace
from fistful.hands.skin import Skin
from fistful.planning.plan import Plan
from fistful.view.raycast import Camera, framing, render

# Okabe and Ito's colours, which colour-blind people can tell apart.
FIRST, SECOND, BALL = (0.90, 0.62, 0.0), (0.0, 0.45, 0.70), (0.35, 0.75, 0.60)
OBJECT_COLOURS = (
    (0.35, 0.70, 0.90),
    (0.90, 0.62, 0.0),
    (0.0, 0.62, 0.45),
    (0.80, 0.47, 0.65),
    (0.94, 0.89, 0.26),
)
CELL = 300
DOT = 0.0018


def hand_sheet(hand: Hand, columns: int = 4) -> Image.Image:
    """The open hand, then every opposition space with its two surfaces and a ball that it holds. No I/O.

    The ball has 4 cm or, for a space that can not hold that, 3 or 2 cm; without one, the space is shown open.
    """
    cells = [(f"{hand.name}: {hand.summary.split(':')[-1].strip()}", _hand_picture(hand, None))]
    for space in hand.opposition_spaces:
        cells.append((space.name, _hand_picture(hand, space)))
    return _sheet(cells, columns)


def object_sheet(objects: Sequence[tuple[str, np.ndarray, np.ndarray]], columns: int = 6) -> Image.Image:
    """Named meshes (name, vertices in m, faces) side by side with their extents; not to one scale. No I/O."""
    cells = []
    for k, (name, vertices, faces) in enumerate(objects):
        extents = " x ".join(f"{1000 * e:.0f}" for e in np.ptp(vertices, axis=0))
        picture = object_picture(vertices, faces, OBJECT_COLOURS[k % len(OBJECT_COLOURS)])
        cells.append((f"{name}  {extents} mm", picture))
    return _sheet(cells, columns)


def plan_picture(plan: Plan, stage: int = -1, grasp: int | None = None) -> Image.Image:
    """The hand after every stage up to one, on the way to a grasp of it (by default its best). No I/O.

    Two rows: into the palm, and from the side of the thumb or first finger.
    """
    last = range(len(plan.stages))[stage]
    path = plan.lineage(last, plan.best(last) if grasp is None else grasp)
    views = [[_grasp_picture(plan, n, i, side) for n, i in enumerate(path)] for side in (0.55, 2.5)]
    labels = []
    for n, i in enumerate(path):
        s = plan.stages[n]
        labels.append(f"{n + 1}. {s.object_name}: {s.spaces[s.grasps.space[i]]}")
    cells = [*zip([""] * len(path), views[0], strict=True), *zip(labels, views[1], strict=True)]
    return _sheet(cells, len(path))


def object_picture(
    vertices: np.ndarray, faces: np.ndarray, colour: tuple[float, float, float] = OBJECT_COLOURS[0]
) -> Image.Image:
    """One mesh, seen from the front and somewhat above. No I/O."""
    spec = mujoco.MjSpec()
    mesh = spec.add_mesh(name="object", uservert=np.ravel(vertices), userface=np.ravel(faces))
    mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
    geom = spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="object")
    geom.rgba = [*colour, 1]
    m, d = _posed(spec, None)
    camera = framing(vertices, np.array([0.6, -1.0, 0.55]), np.array([0.0, 0.0, 1.0]))
    return render(m, d, camera, CELL, CELL)


def _hand_picture(hand: Hand, space: OppositionSpace | None) -> Image.Image:
    """The hand with the contact candidates of a space (of all, without one) and a ball in its grasp."""
    grasp = None
    if space is not None:
        a, b = (surface.candidates for surface in space.surfaces)
        tries = (verify_space(hand.model, a, b, space.joint_mask, mm) for mm in (40, 30, 20))
        grasp = next((g for g in tries if g is not None), None)
    spec = mujoco.MjSpec.from_string(hand.model.mjcf)
    for geom in spec.geoms:
        # Links that the space does not move are paler: they are what is left for the next object.
        moving = space is None or _moves(hand, geom, space)
        geom.rgba = [0.42, 0.43, 0.45, 1.0] if moving else [0.78, 0.79, 0.80, 1.0]
    surfaces = hand.surfaces if space is None else space.surfaces
    for surface in surfaces:
        first = surface is space.surfaces[0] if space else "side" not in surface.name
        _add_dots(spec, hand, surface.candidates, FIRST if first else SECOND)
    if grasp is not None:
        ball = spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, pos=grasp.c_H)
        ball.size, ball.rgba = [grasp.radius, 0, 0], [*BALL, 1]
    q = hand.model.open_pose if grasp is None else grasp.q
    m, d = _posed(spec, hand.model.expand(q))
    return render(m, d, _hand_camera(hand, q), CELL, CELL)


def _grasp_picture(plan: Plan, stage: int, grasp: int, side: float) -> Image.Image:
    """The hand at one grasp with all objects that it holds, seen from the palm and `side` of that away."""
    hand, g = plan.hand, plan.stages[stage].grasps
    spec = mujoco.MjSpec.from_string(hand.model.mjcf)
    for geom in spec.geoms:
        geom.rgba = [0.62, 0.63, 0.65, 1.0]
    seen = []
    for n, item in enumerate(plan.objects[: stage + 1]):
        p_HO, R_HO = g.p_HO[grasp, n], g.R_HO[grasp, n]
        mesh = spec.add_mesh(name=f"object {n}", uservert=item.vertices.ravel(), userface=item.faces.ravel())
        mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
        geom = spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname=mesh.name)
        geom.pos, geom.quat = p_HO, quaternion_from_rotation(R_HO)
        geom.rgba = [*OBJECT_COLOURS[n % len(OBJECT_COLOURS)], 1]
        seen.append(p_HO + item.hull_vertices @ R_HO.T)
    m, d = _posed(spec, hand.model.expand(g.q[grasp]))
    return render(m, d, _hand_camera(hand, g.q[grasp], np.concatenate(seen), side), CELL, CELL)


def _moves(hand: Hand, geom: mujoco.MjsGeom, space: OppositionSpace) -> bool:
    body = hand.model.bodies.index(geom.parent.name)
    return (
        any(body in f.bodies and np.any(f.joint_mask & space.joint_mask) for f in hand.fingers) or body == 0
    )


def _add_dots(spec: mujoco.MjSpec, hand: Hand, candidates: Skin, colour: tuple[float, float, float]) -> None:
    for body, p in zip(candidates.body, candidates.p_B, strict=True):
        dot = spec.body(hand.model.bodies[body]).add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, pos=p)
        dot.size, dot.rgba, dot.mass = [DOT, 0, 0], [*colour, 1], 0.0


def _hand_camera(hand: Hand, q: np.ndarray, more: np.ndarray | None = None, side: float = 0.55) -> Camera:
    """A look into the palm from somewhat aside, fingers up, framed for the hand both open and at q.

    Args:
      hand: Hand.
      q: (K,) float. Joints.
      more: (N, 3) float, m. Further points to frame, in the hand base frame.
      side: How far aside, as a multiple of the way away from the palm.
    """
    poses = hand.poses(hand.model.open_pose)
    points = poses.points(hand.skin.body, hand.skin.p_B)
    tips = np.mean([poses.p_HB[finger.bodies[-1]] for finger in hand.fingers], axis=0)
    up = tips - points[hand.skin.body == 0].mean(axis=0) if np.any(hand.skin.body == 0) else tips
    palm = next((s for s in hand.surfaces if s.name == "palm"), hand.surfaces[0])
    normals = poses.directions(palm.candidates.body, palm.candidates.n_B)
    normal = normals.mean(axis=0)
    up = up - (up @ normal) * normal / (normal @ normal)
    if np.linalg.norm(up) < 1e-6:
        up = np.cross(normal, [1.0, 0.3, 0.2])
    up /= np.linalg.norm(up)
    framed = [points, hand.poses(q).points(hand.skin.body, hand.skin.p_B)]
    framed = np.concatenate(framed if more is None else [*framed, more])
    return framing(framed, normal + side * np.cross(up, normal) + 0.25 * up, up)


def _posed(spec: mujoco.MjSpec, joints: np.ndarray | None) -> tuple[mujoco.MjModel, mujoco.MjData]:
    m = spec.compile()
    d = mujoco.MjData(m)
    if joints is not None:
        d.qpos[:] = joints
    mujoco.mj_kinematics(m, d)
    return m, d


def _sheet(cells: Sequence[tuple[str, Image.Image]], columns: int) -> Image.Image:
    """A grid of pictures, each with its label below."""
    columns = min(columns, len(cells))
    rows = -(-len(cells) // columns)
    label = 30
    sheet = Image.new("RGB", (columns * CELL, rows * (CELL + label)), "white")
    draw = ImageDraw.Draw(sheet)
    for k, (text, picture) in enumerate(cells):
        x, y = (k % columns) * CELL, (k // columns) * (CELL + label)
        sheet.paste(picture, (x, y))
        size = 17
        while draw.textlength(text, ImageFont.load_default(size)) > CELL - 8 and size > 9:
            size -= 1
        draw.text((x + CELL / 2, y + CELL + 4), text, "black", ImageFont.load_default(size), anchor="ma")
    return sheet
