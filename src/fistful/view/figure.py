"""A hand with the objects of one grasp, compiled to be drawn, and from where all of them are seen best."""

from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.spatial import ConvexHull

from fistful.geometry.pose import quaternion_from_rotation
from fistful.hands.hand import Hand
from fistful.objects.object import Object
from fistful.planning.plan import Plan
from fistful.view.camera import Axes, Camera, axes_of, framing
from fistful.view.colours import of_object
from fistful.view.moment import Moment, body_colours, moment_of
from fistful.view.raycast import geoms_seen

TURNS = np.deg2rad(np.arange(-75, 76, 15))
LIFTS = np.deg2rad([-20, 10, 35])
_GLANCE = 48
"""Side, in pixels, of the small pictures by which views are compared."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Figure:
    """One grasp ready to be drawn; `pose` moves it.

    Attributes:
      hand: Hand.
      objects: What it holds, the first first.
      moment: The grasp.
      m, d: Model and state of MuJoCo.
      geoms: The geom of each object.
    """

    hand: Hand
    objects: tuple[Object, ...]
    moment: Moment
    m: mujoco.MjModel
    d: mujoco.MjData
    geoms: tuple[int, ...]

    def pose(self, q: np.ndarray) -> None:
        """Move the joints (K,) there."""
        self.d.qpos[:] = self.hand.model.expand(q)
        mujoco.mj_kinematics(self.m, self.d)

    def points(self, q: np.ndarray) -> np.ndarray:
        """Points (N, 3), m, around all that is seen at joints q (K,), in the hand base frame."""
        held = zip(self.objects, self.moment.p_HO, self.moment.R_HO, strict=True)
        skin = self.hand.poses(q).points(self.hand.skin.body, self.hand.skin.p_B)
        return np.concatenate([skin, *(p_HO + item.hull_vertices @ R_HO.T for item, p_HO, R_HO in held)])


def figure_of(plan: Plan, stage: int, grasp: int) -> Figure:
    """One grasp of a plan, with all objects that are held by then, at the grasp. No I/O."""
    moment = moment_of(plan, stage, grasp)
    hand, objects = plan.hand, plan.objects[: moment.stage + 1]
    spec = mujoco.MjSpec.from_string(hand.model.mjcf)
    colours = body_colours(hand, moment)
    for geom in spec.geoms:
        geom.rgba = [*colours[hand.model.bodies.index(geom.parent.name)], 1]
    for n, item in enumerate(objects):
        geom = add_mesh(spec, f"object {n}", item.vertices, item.faces)
        geom.pos, geom.quat = moment.p_HO[n], quaternion_from_rotation(moment.R_HO[n])
        geom.rgba = [*of_object(n), 1]
    m = spec.compile()
    geoms = tuple(m.geom(f"object {n}").id for n in range(len(objects)))
    figure = Figure(hand=hand, objects=objects, moment=moment, m=m, d=mujoco.MjData(m), geoms=geoms)
    figure.pose(moment.q[1])
    return figure


def add_mesh(spec: mujoco.MjSpec, name: str, vertices: np.ndarray, faces: np.ndarray) -> mujoco.MjsGeom:
    """A geom of the world with that mesh; vertices (V, 3) in m, faces (F, 3)."""
    mesh = spec.add_mesh(name=name, uservert=np.ravel(vertices), userface=np.ravel(faces))
    mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
    return spec.worldbody.add_geom(name=name, type=mujoco.mjtGeom.mjGEOM_MESH, meshname=name)


def view_axes(hand: Hand) -> Axes:
    """Directions (3,) in the hand base frame: into the palm, to the right of who looks there, to the tips."""
    poses = hand.poses(hand.model.open_pose)
    points = poses.points(hand.skin.body, hand.skin.p_B)
    tips = np.mean([poses.p_HB[finger.bodies[-1]] for finger in hand.fingers], axis=0)
    up = tips - points[hand.skin.body == 0].mean(axis=0) if np.any(hand.skin.body == 0) else tips
    palm = next((s for s in hand.surfaces if s.name == "palm"), hand.surfaces[0])
    normal = poses.directions(palm.candidates.body, palm.candidates.n_B).mean(axis=0)
    normal /= np.linalg.norm(normal)
    up = up - (up @ normal) * normal
    if np.linalg.norm(up) < 1e-6:
        up = np.cross(normal, [1.0, 0.3, 0.2])
    up /= np.linalg.norm(up)
    return Axes(-normal, np.cross(-normal, up), up)


def direction(axes: Axes, turn: float, lift: float) -> np.ndarray:
    """From the hand to a camera (3,): away from the palm, then to the right by `turn`, up by `lift`, rad."""
    level = -np.cos(turn) * axes.forward + np.sin(turn) * axes.right
    return np.cos(lift) * level + np.sin(lift) * axes.above


def best_views(figure: Figure, apart: float = np.deg2rad(60)) -> tuple[np.ndarray, np.ndarray]:
    """Two directions (3,) from which all objects are seen well, at least an angle apart, the better first.

    Views on the palm's side are compared by small pictures. A view is as good as the share that it shows of
    the object that is hidden most, by how much of that any view shows; of views alike, one that shows more of
    all and is nearer to straight into the palm.
    """
    axes, points = view_axes(figure.hand), figure.points(figure.moment.q[1])
    turns, lifts = (a.ravel() for a in np.meshgrid(TURNS, LIFTS))
    ways = np.array([direction(axes, t, f) for t, f in zip(turns, lifts, strict=True)])
    share = np.array([_visible(figure, framing(points, way, axes.above)) for way in ways])
    share /= np.maximum(share.max(axis=0), 1e-9)
    merit = share.min(axis=1) + 0.5 * share.mean(axis=1) + 0.1 * np.cos(turns) - 0.1 * np.abs(lifts)
    first = int(np.argmax(merit))
    far = ways @ ways[first] < np.cos(apart)
    second = int(np.argmax(np.where(far, merit, -np.inf)))
    return ways[first], ways[second]


def _visible(figure: Figure, camera: Camera) -> np.ndarray:
    """(n,) float. How much of each object's convex outline shows the object, seen by a camera."""
    geoms = geoms_seen(figure.m, figure.d, camera, _GLANCE, _GLANCE)
    forward, right, above = axes_of(camera.target - camera.eye, camera.up)
    pixel = 2 * np.tan(np.deg2rad(camera.fov_deg) / 2) / _GLANCE
    shares = []
    for n, item in enumerate(figure.objects):
        p = figure.moment.p_HO[n] + item.hull_vertices @ figure.moment.R_HO[n].T - camera.eye
        flat = np.stack([p @ right, p @ above], axis=1) / (p @ forward)[:, None] / pixel
        # In the plane, what scipy calls the volume is the area.
        shares.append(np.sum(geoms == figure.geoms[n]) / ConvexHull(flat).volume)
    return np.array(shares)


def view_of(hand: Hand, points: np.ndarray, way: np.ndarray, aspect: float = 1.0) -> Camera:
    """The camera in a direction (3,) from a hand, fingers up, that sees points (N, 3)."""
    return framing(points, way, view_axes(hand).above, aspect=aspect)
