"""Pictures of a hand with its opposition spaces, of objects, and of a plan, as labelled sheets."""

from collections.abc import Sequence

import mujoco
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fistful.hands.describing import verify_space
from fistful.hands.hand import Hand, OppositionSpace
from fistful.hands.skin import Skin
from fistful.planning.plan import Plan
from fistful.view.camera import framing
from fistful.view.colours import BLUE, GREEN, ORANGE, PURPLE, RGB, SKY, YELLOW
from fistful.view.figure import Figure, add_mesh, best_views, direction, figure_of, view_axes, view_of
from fistful.view.render import render

FIRST, SECOND, BALL = ORANGE, BLUE, GREEN
OBJECT_COLOURS = (SKY, ORANGE, GREEN, PURPLE, YELLOW)
CELL = 300
PLAN_CELL = 480
DOT = 0.0018


def hand_sheet(hand: Hand, columns: int = 4) -> Image.Image:
    """The open hand, then every opposition space with its two surfaces and a ball that it holds. No I/O.

    The ball has 4 cm or, for a space that can not hold that, 3 or 2 cm; without one, the space is shown open.
    """
    cells = [(f"{hand.name}: {hand.summary.split(':')[-1].strip()}", _hand_picture(hand, None))]
    for space in hand.opposition_spaces:
        cells.append((space.name, _hand_picture(hand, space)))
    return sheet(cells, columns)


def object_sheet(objects: Sequence[tuple[str, np.ndarray, np.ndarray]], columns: int = 6) -> Image.Image:
    """Named meshes (name, vertices in m, faces) side by side with their extents; not to one scale. No I/O."""
    cells = []
    for k, (name, vertices, faces) in enumerate(objects):
        extents = " x ".join(f"{1000 * e:.0f}" for e in np.ptp(vertices, axis=0))
        picture = object_picture(vertices, faces, OBJECT_COLOURS[k % len(OBJECT_COLOURS)])
        cells.append((f"{name}  {extents} mm", picture))
    return sheet(cells, columns)


def plan_picture(plan: Plan, stage: int = -1, grasp: int | None = None, size: int = PLAN_CELL) -> Image.Image:
    """The hand after every stage up to one, on the way to a grasp of it (by default its best). No I/O.

    Two rows: the two views that show most of all objects of the last stage. Objects go from light to dark;
    links that the stage moves are blue, links that hold something already are grey.

    Args:
      plan: Plan.
      stage: Number of the last stage.
      grasp: Which grasp of it.
      size: Side of each picture, in pixels.
    """
    figures = figures_of(plan, stage, grasp)
    points = np.concatenate([figure.points(figure.moment.q[1]) for figure in figures])
    cameras = [view_of(plan.hand, points, way) for way in best_views(figures[-1])]
    pictures = [[render(figure.m, figure.d, camera, size, size) for camera in cameras] for figure in figures]
    labels = [caption(plan, figure) for figure in figures]
    above = [("", views[0]) for views in pictures]
    below = [(label, views[1]) for label, views in zip(labels, pictures, strict=True)]
    return sheet([*above, *below], len(figures))


def grasp_picture(
    plan: Plan, stage: int = -1, grasp: int | None = None, width: int = 1200, height: int = 900
) -> Image.Image:
    """One grasp with all objects that it holds, from where these are seen best. No I/O."""
    last = range(len(plan.stages))[stage]
    figure = figure_of(plan, last, plan.best(last) if grasp is None else grasp)
    points = figure.points(figure.moment.q[1])
    camera = view_of(plan.hand, points, best_views(figure)[0], width / height)
    return render(figure.m, figure.d, camera, width, height)


def object_picture(
    vertices: np.ndarray, faces: np.ndarray, colour: RGB = OBJECT_COLOURS[0], size: int = CELL
) -> Image.Image:
    """One mesh, seen from the front and somewhat above. No I/O."""
    spec = mujoco.MjSpec()
    add_mesh(spec, "object", vertices, faces).rgba = [*colour, 1]
    m, d = _posed(spec, None)
    camera = framing(vertices, np.array([0.6, -1.0, 0.55]), np.array([0.0, 0.0, 1.0]))
    return render(m, d, camera, size, size)


def figures_of(plan: Plan, stage: int = -1, grasp: int | None = None) -> list[Figure]:
    """The grasps of all stages up to one that lead to a grasp of it (by default its best). No I/O."""
    last = range(len(plan.stages))[stage]
    path = plan.lineage(last, plan.best(last) if grasp is None else grasp)
    return [figure_of(plan, n, i) for n, i in enumerate(path)]


def caption(plan: Plan, figure: Figure) -> str:
    """Stage, object and opposition space of a grasp."""
    number, grasp = figure.moment.stage, figure.moment.grasp
    stage = plan.stages[number]
    return f"{number + 1}. {stage.object_name}: {stage.spaces[stage.grasps.space[grasp]]}"


def sheet(cells: Sequence[tuple[str, Image.Image]], columns: int) -> Image.Image:
    """A grid of pictures of one size, each with its label below; rows without any label are closed up."""
    columns = min(columns, len(cells))
    rows = [cells[k : k + columns] for k in range(0, len(cells), columns)]
    width, height = cells[0][1].size
    size = max(15, round(17 * width / CELL))
    heights = [height + (round(1.8 * size) if any(text for text, _ in row) else 0) for row in rows]
    page = Image.new("RGB", (columns * width, sum(heights)), "white")
    draw = ImageDraw.Draw(page)
    y = 0
    for row, tall in zip(rows, heights, strict=True):
        for k, (text, picture) in enumerate(row):
            page.paste(picture, (k * width, y))
            write(draw, text, (k + 0.5) * width, y + height + 0.3 * size, size, width - 8)
        y += tall
    return page


def write(draw: ImageDraw.ImageDraw, text: str, x: float, y: float, size: float, width: float) -> None:
    """A line of text, centred at x, below y, as large as fits into a width in pixels."""
    while draw.textlength(text, ImageFont.load_default(size)) > width and size > 9:
        size -= 1
    draw.text((x, y), text, "black", ImageFont.load_default(size), anchor="ma")


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
    # Framed for the hand open and at q, so that all spaces of a hand are shown at nearly one scale.
    skin = [hand.poses(j).points(hand.skin.body, hand.skin.p_B) for j in (hand.model.open_pose, q)]
    way = direction(view_axes(hand), np.deg2rad(29), np.deg2rad(12))
    return render(m, d, view_of(hand, np.concatenate(skin), way), CELL, CELL)


def _moves(hand: Hand, geom: mujoco.MjsGeom, space: OppositionSpace) -> bool:
    body = hand.model.bodies.index(geom.parent.name)
    return (
        any(body in f.bodies and np.any(f.joint_mask & space.joint_mask) for f in hand.fingers) or body == 0
    )


def _add_dots(spec: mujoco.MjSpec, hand: Hand, candidates: Skin, colour: RGB) -> None:
    for body, p in zip(candidates.body, candidates.p_B, strict=True):
        dot = spec.body(hand.model.bodies[body]).add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, pos=p)
        dot.size, dot.rgba, dot.mass = [DOT, 0, 0], [*colour, 1], 0.0


def _posed(spec: mujoco.MjSpec, joints: np.ndarray | None) -> tuple[mujoco.MjModel, mujoco.MjData]:
    m = spec.compile()
    d = mujoco.MjData(m)
    if joints is not None:
        d.qpos[:] = joints
    mujoco.mj_kinematics(m, d)
    return m, d
