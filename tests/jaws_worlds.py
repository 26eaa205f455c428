"""Small worlds for the tests of soft jaws: a solid between two pads, no plane unless asked for."""

import numpy as np
import trimesh

from fistful.jaws.gripper import Pad
from fistful.jaws.pad_mesh import PadMesh, mesh_pad
from fistful.jaws.simulation import Settings, Solid, World

INWARD = np.array([[1.0, 0, 0], [-1.0, 0, 0]])


def solid_of(mesh: trimesh.Trimesh, mass: float, at=(0.0, 0.0, 0.0)) -> Solid:
    vertices = np.asarray(mesh.vertices) - mesh.center_mass
    inertia = mesh.moment_inertia * mass / mesh.mass
    at = np.asarray(at, float)
    return Solid(vertices + at, np.asarray(mesh.faces), at, mass, inertia, mesh.volume)


def block(size, mass: float, at=(0.0, 0.0, 0.0)) -> Solid:
    return solid_of(trimesh.creation.box(size), mass, at)


def world_between(
    solid: Solid, pad: Pad, gap: float, settings: Settings, mesh: PadMesh | None = None, **options
) -> World:
    """Pads with their faces `gap` (m) away from the solid's ends along x."""
    mesh = mesh or mesh_pad(pad.outline, pad.thickness, settings.pad_size, settings.pad_layers)
    ends = solid.vertices_W[:, 0].min() - gap, solid.vertices_W[:, 0].max() + gap
    pads = [
        PadMesh(nodes=m.nodes + np.array([x, 0, 0]), tets=m.tets, faces=m.faces, backing=m.backing)
        for m, x in ((mesh, ends[0]), (mesh.mirrored(), ends[1]))
    ]
    return World(solid, (pads[0], pads[1]), pad, INWARD, settings, **options)


def forces(world: World) -> np.ndarray:
    """(2,) N. Normal force on each pad along its closing axis."""
    push = world.contact.push(world.x)
    return np.array([-(push[world.surfaces.part == i] @ INWARD[i]).sum() for i in range(2)])


def squeeze(world: World, force: float, h: float = 2e-3, steps: int = 30) -> None:
    """Close with a limited force until all stands still, then hold the jaws where they are."""
    world.servo.limit = force
    for _ in range(steps):
        world.servo.target = world.servo.target + INWARD * 1e-4
        world.step(h)
    hold = world.servo.force(world.shifts) / world.servo.stiffness
    world.servo.target = world.shifts + hold[:, None] * INWARD
    world.servo.limit = np.inf
    world.v[:] = 0
