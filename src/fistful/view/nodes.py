"""Hands and objects as nodes of a viser scene: meshes are sent once, afterwards only poses and colours."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fistful.geometry.pose import frames_along, quaternion_from_rotation
from fistful.hands.hand import Hand
from fistful.hands.kinematics import BodyPoses
from fistful.objects.object import Object
from fistful.view.camera import Camera
from fistful.view.colours import PENETRATING, RGB, VERMILION, of_object
from fistful.view.moment import Contacts, hand_meshes

if TYPE_CHECKING:
    import viser

CREASE_DEG = 35.0
"""Edges sharper than this stay sharp in the light."""
CONE_HEIGHT, DOT = 0.014, 0.0022


def rgb255(colour: RGB) -> tuple[int, int, int]:
    """A colour as viser wants it."""
    r, g, b = (round(255 * c) for c in colour)
    return r, g, b


def creased(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mesh with its vertices split at sharp edges, so that smooth shading keeps those."""
    import trimesh

    mesh = trimesh.Trimesh(vertices, faces, process=False)
    smooth = trimesh.graph.smooth_shade(mesh, angle=np.deg2rad(CREASE_DEG))
    return np.asarray(smooth.vertices, np.float32), np.asarray(smooth.faces, np.uint32)


class HandNodes:
    """A hand in a scene."""

    def __init__(self, server: "viser.ViserServer", hand: Hand, colour: RGB):
        self.hand, self.colour = hand, colour
        self.parts = []
        for mesh in hand_meshes(hand):
            v, f = creased(mesh.vertices_B, mesh.faces)
            name = f"/hand/{mesh.body}"
            self.parts.append((mesh.body, server.scene.add_mesh_simple(name, v, f, color=rgb255(colour))))

    def pose(self, poses: BodyPoses) -> None:
        """Move all bodies."""
        wxyz = quaternion_from_rotation(poses.R_HB)
        for body, node in self.parts:
            node.position, node.wxyz = poses.p_HB[body], wxyz[body]

    def paint(self, colours: Sequence[RGB]) -> None:
        """Colour all bodies."""
        for body, node in self.parts:
            node.color = rgb255(colours[body])


class ObjectNodes:
    """The objects of a sequence in a scene, the first one lightest."""

    def __init__(self, server: "viser.ViserServer", objects: Sequence[Object]):
        self.meshes, self.labels = [], []
        for n, item in enumerate(objects):
            v, f = creased(item.vertices, item.faces)
            colour = rgb255(of_object(n))
            self.meshes.append(server.scene.add_mesh_simple(f"/objects/{n}", v, f, color=colour))
            middle = item.hull_vertices.mean(axis=0)
            label = server.scene.add_label(f"/objects/{n}/label", f"{n + 1} {item.name}", position=middle)
            self.labels.append(label)

    def pose(self, p_HO: np.ndarray, R_HO: np.ndarray) -> None:
        """Move the objects that are held, (n, 3), (n, 3, 3), and hide the others."""
        wxyz = quaternion_from_rotation(R_HO)
        for n, node in enumerate(self.meshes):
            node.visible = n < len(p_HO)
            if n < len(p_HO):
                node.position, node.wxyz = p_HO[n], wxyz[n]

    def show(self, *, labels: bool, opacity: float) -> None:
        """Show or hide the names; let contacts shine through."""
        for label, mesh in zip(self.labels, self.meshes, strict=True):
            label.visible = labels
            mesh.opacity = None if opacity >= 1 else opacity


class ContactNodes:
    """Contact points with their normals and friction cones, and the points where the hand is too deep."""

    def __init__(self, server: "viser.ViserServer", most: int, friction: float):
        import trimesh

        dot = trimesh.creation.icosphere(subdivisions=1, radius=DOT)
        cone = trimesh.creation.cone(radius=min(friction, 1.5) * CONE_HEIGHT, height=CONE_HEIGHT, sections=24)
        # The tip at the contact, the axis along z.
        cone.vertices = cone.vertices * [1, 1, -1] + [0, 0, CONE_HEIGHT]
        cone.invert()
        shaft = trimesh.creation.cylinder(radius=0.0004, height=1.6 * CONE_HEIGHT)
        shaft.apply_translation([0, 0, 0.8 * CONE_HEIGHT])
        self.most = most
        none = np.zeros((most, 3), np.float32)
        upright = np.tile(np.array([1, 0, 0, 0], np.float32), (most, 1))
        self.nodes = []
        for name, mesh, colour, opacity in (
            ("points", dot, VERMILION, None),
            ("normals", shaft, VERMILION, None),
            ("cones", cone, VERMILION, 0.25),
        ):
            node = server.scene.add_batched_meshes_simple(
                f"/contacts/{name}",
                np.asarray(mesh.vertices, np.float32),
                np.asarray(mesh.faces, np.uint32),
                batched_wxyzs=upright,
                batched_positions=none,
                batched_scales=np.zeros(most, np.float32),
                batched_colors=rgb255(colour),
                opacity=opacity,
                side="double",
                cast_shadow=False,
                receive_shadow=False,
            )
            self.nodes.append(node)
        self.deep = server.scene.add_point_cloud(
            "/too deep",
            np.zeros((0, 3), np.float32),
            rgb255(PENETRATING),
            point_size=0.0016,
            point_shape="circle",
            precision="float32",
            point_shading="flat",
        )

    def place(self, contacts: Contacts) -> None:
        """Show these contacts, at most as many as were asked for."""
        count = min(len(contacts.number), self.most)
        p, scale = np.zeros((self.most, 3), np.float32), np.zeros(self.most, np.float32)
        wxyz = np.tile(np.array([1, 0, 0, 0], np.float32), (self.most, 1))
        p[:count], scale[:count] = contacts.p_H[:count], 1.0
        wxyz[:count] = quaternion_from_rotation(frames_along(contacts.n_H[:count]))
        for node in self.nodes:
            node.batched_positions, node.batched_wxyzs, node.batched_scales = p, wxyz, scale

    def show(self, contacts: bool, deep: bool) -> None:
        """Show or hide contacts, and points that are too deep."""
        for node in self.nodes:
            node.visible = contacts
        self.deep.visible = deep

    def mark(self, points: np.ndarray) -> None:
        """Points (M, 3), m, where the hand is too deep."""
        self.deep.points = np.asarray(points, np.float32)


def look_from(server: "viser.ViserServer", camera: Camera) -> None:
    """Where new visitors see the scene from. The hand's fingers point up."""
    up = camera.up / np.linalg.norm(camera.up)
    server.scene.set_up_direction((float(up[0]), float(up[1]), float(up[2])))
    # The panel covers part of the page, and browsers are wide: a little farther than for a picture.
    server.initial_camera.position = camera.target + 1.15 * (camera.eye - camera.target)
    server.initial_camera.look_at = camera.target
    server.initial_camera.up = up
    server.initial_camera.fov = float(np.deg2rad(camera.fov_deg))
    server.initial_camera.near, server.initial_camera.far = 0.01, 20.0
