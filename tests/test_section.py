"""A grasp cut open: what is left is as large as by hand, and overlaps are red."""

import numpy as np
import pytest
import trimesh
from scipy.spatial import ConvexHull

from fistful.jaws.grasp import JawGrasp
from fistful.jaws.gripper import rectangle
from fistful.jaws.outcome import Frame, Recording
from fistful.jaws.pad_mesh import mesh_pad
from fistful.objects import load_object
from fistful.view.colours import PENETRATING
from fistful.view.section import BACKING, STEP, Layer, clipped, middle_z, section, section_picture

HALF, WIDTH, LENGTH, THICKNESS = 0.015, 0.016, 0.022, 0.0024
# From above, along x; its origin is 5 mm above the middle of the cube, which lies at `AT`.
AT = np.array([0.1, -0.2, HALF])
GRASP = JawGrasp(p_WG=AT + np.array([0, 0, 0.005]), R_WG=np.diag([1.0, -1.0, -1.0]))


@pytest.fixture(scope="module")
def cube(tmp_path_factory):
    path = tmp_path_factory.mktemp("mesh") / "cube.stl"
    trimesh.creation.box([2 * HALF] * 3).export(path)
    return load_object(path, units="m")


def pressed(depth: float) -> tuple[Recording, Frame]:
    """Two undeformed boxes as pads, `depth` m in the cube."""
    mesh = mesh_pad(rectangle(WIDTH, LENGTH), THICKNESS, 6e-3, 1)
    both = (mesh, mesh.mirrored())
    nodes_G = [m.nodes + np.array([x, 0, 0]) for m, x in zip(both, (depth - HALF, HALF - depth), strict=True)]
    nodes_W = np.stack(nodes_G) @ GRASP.R_WG.T + GRASP.p_WG
    tets, faces = (np.stack([getattr(m, name) for m in both]) for name in ("tets", "faces"))
    frame = Frame(time=0.0, nodes_W=nodes_W, energies=np.zeros(tets.shape[:2]), p_WO=AT, R_WO=np.eye(3))
    return Recording(tets=tets, faces=faces, frames=(frame,)), frame


def volume(layer: Layer) -> float:
    """m3, by the divergence theorem: right only if all triangles face outward."""
    a, b, c = np.moveaxis(layer.corners_W - AT, 1, 0)
    return float(np.einsum("ij,ij->", a, np.cross(b, c))) / 6


def area_at(layer: Layer, z: float) -> float:
    """m2. Of the triangles in the plane at height z, which face up."""
    a, b, c = np.moveaxis(layer.corners_W[np.all(np.abs(layer.corners_W[..., 2] - z) < 1e-9, axis=1)], 1, 0)
    return float(np.cross(b - a, c - a)[:, 2].sum()) / 2


def test_a_clipped_box_has_the_volume_that_is_left():
    """A unit cube cut by x <= 0.25, and by x + y + z <= 1, which leaves a corner of 1/6."""
    box = np.array([[x, y, z] for x in (0.0, 1) for y in (0.0, 1) for z in (0.0, 1)])
    assert ConvexHull(clipped(box, np.array([[1.0, 0, 0, -0.25]]))).volume == pytest.approx(0.25)
    assert ConvexHull(clipped(box, np.array([[1.0, 1, 1, -1]]))).volume == pytest.approx(1 / 6)
    assert clipped(box, np.array([[1.0, 0, 0, 0.5]])).shape == (0, 3)
    # A plane that only touches leaves all; one that leaves a side leaves nothing solid.
    assert ConvexHull(clipped(box, np.array([[1.0, 0, 0, -1]]))).volume == pytest.approx(1)
    assert clipped(box, np.array([[1.0, 0, 0, 0]])).shape == (0, 3)


@pytest.mark.parametrize("depth", [-1e-3, 2e-3])
def test_a_section_has_the_areas_and_volumes_of_its_boxes(cube, depth):
    """Cut 2 mm beyond the origin, 3 mm above the middle of the cube; pads reach to 11 mm beyond."""
    at_z = 0.002
    cut = section(cube, GRASP, at_z, *pressed(depth))
    heights = AT[2] + 0.003 + STEP * np.arange(4)
    tops = [area_at(layer, z) for layer, z in zip(cut, heights, strict=True)]
    inside = max(depth, 0)
    areas = [(2 * HALF) ** 2, *(2 * WIDTH * t for t in (BACKING, THICKNESS, inside))]
    assert tops == pytest.approx(areas, rel=1e-6)
    # All but the cube end where the pads do, 9 mm below the cut.
    deep = [HALF + 0.003, *(LENGTH / 2 - at_z + STEP * np.arange(1, 4))]
    wanted = [area * by for area, by in zip(areas, deep, strict=True)]
    assert [volume(layer) for layer in cut] == pytest.approx(wanted, rel=1e-6)
    assert (len(cut.overlap.corners_W) > 0) is (depth > 0)
    # Backings begin where the pads end.
    inner = np.abs(cut.backings.corners_W[..., 0] - AT[0]).min()
    assert inner == pytest.approx(HALF - depth + THICKNESS)


def test_the_middle_is_of_what_pads_and_object_share(cube):
    """Along the approach the pads reach from -11 to 11 mm, the cube from -10 to 20 mm."""
    recording, frame = pressed(0.0)
    assert middle_z(cube, GRASP, frame) == pytest.approx(0.0005)
    assert len(section(cube, GRASP, 0.1, recording, frame).object.corners_W) == 0


def test_overlaps_are_red_and_nothing_else_is(cube):
    moments = [(str(depth), *pressed(depth)) for depth in (2e-3, -1e-3)]
    picture = np.asarray(section_picture(cube, GRASP, moments, size=160), float)
    # By hue, since shades differ: nothing else has so much more red than green and blue.
    red = picture[..., 0] > 2.5 * picture[..., 1:].max(axis=-1)
    assert PENETRATING[0] > 2.5 * max(PENETRATING[1:])
    assert picture.shape[1] == 320
    left, right = red[:160, :160], red[:160, 160:]
    assert right.sum() == 0 and left.sum() > 20
    # One patch at each jaw.
    assert left[:, :80].any() and left[:, 80:].any()
