"""A grasp of soft jaws cut open: object, pads, and where they overlap."""

from collections.abc import Sequence
from typing import NamedTuple

import mujoco
import numpy as np
from PIL import Image
from scipy.spatial import ConvexHull, QhullError

from fistful.jaws.grasp import JawGrasp
from fistful.jaws.outcome import Frame, Recording
from fistful.objects.object import Object
from fistful.objects.parts import convex_parts
from fistful.view.camera import Camera, framing
from fistful.view.colours import ACTIVE, FROZEN, PENETRATING, RGB, SEQUENCE
from fistful.view.figure import add_mesh
from fistful.view.picture import sheet
from fistful.view.render import render

STEP = 2e-4
"""m. Between the cuts of what lies over each other: surfaces in one plane would flicker."""
BACKING = 3e-3
"""m. How thick the backings are drawn, which no model simulates."""
_TILT = 0.3
# m. Hulls thinner than this are flat.
_FLAT = 1e-8


class Layer(NamedTuple):
    """Solids of one colour: corners of their triangles (F, 3, 3) in m, counter-clockwise from outside."""

    corners_W: np.ndarray
    colour: RGB


class Section(NamedTuple):
    """What a cut leaves, each layer cut STEP higher than the one before, which it hides."""

    object: Layer
    backings: Layer
    pads: Layer
    overlap: Layer


def section_picture(
    item: Object, grasp: JawGrasp, moments: Sequence[tuple[str, Recording, Frame]], size: int = 640
) -> Image.Image:
    """Moments of a grasp in a row, each with its text: cut open, seen from the palm, at one scale.

    Each is cut through the middle of what pads and object have in common along the approach. The object is
    yellow, the pads are blue, what is both is red, and the backings are grey. Uses the cache of convex parts.
    """
    cut_open = [
        (text, section(item, grasp, middle_z(item, grasp, frame), kept, frame))
        for text, kept, frame in moments
    ]
    corners = np.concatenate([layer.corners_W.reshape(-1, 3) for _, cut in cut_open for layer in cut])
    _, y_G, z_G = grasp.R_WG.T
    camera = framing(corners, -z_G - _TILT * y_G, y_G)
    return sheet([(text, _drawn(cut, camera, size)) for text, cut in cut_open], len(cut_open))


def middle_z(item: Object, grasp: JawGrasp, frame: Frame) -> float:
    """m, along the approach from the grasp's origin: middle of what pads and object have in common. No I/O.

    If they have nothing in common it lies between them.
    """
    approach = grasp.R_WG[:, 2]
    pads, thing = (
        (x.reshape(-1, 3) - grasp.p_WG) @ approach
        for x in (np.asarray(frame.nodes_W, float), item.vertices @ frame.R_WO.T + frame.p_WO)
    )
    return float(max(pads.min(), thing.min()) + min(pads.max(), thing.max())) / 2


def section(item: Object, grasp: JawGrasp, at_z: float, recording: Recording, frame: Frame) -> Section:
    """What of a grasp lies beyond `at_z` m along the approach. Uses the cache of convex parts."""
    back = -grasp.R_WG[:, 2]
    height = float(back @ grasp.p_WG) - at_z
    solids = [np.asarray(v) @ frame.R_WO.T + frame.p_WO for v in convex_parts(item).vertices]
    tets = [x[t] for x, own in zip(frame.nodes_W, recording.tets, strict=True) for t in own]
    backings = [_backing(x, side * grasp.axis_W) for x, side in zip(frame.nodes_W, (-1, 1), strict=True)]
    sides = [_planes(solid) for solid in solids]
    both = [clipped(tet, planes) for tet in tets for planes in sides]
    layers = []
    for k, (pieces, colour) in enumerate(
        ((solids, SEQUENCE[0]), (backings, FROZEN), (tets, ACTIVE), (both, PENETRATING))
    ):
        plane = np.array([[*back, -(height + k * STEP)]])
        hulls = [_triangles(clipped(piece, plane)) for piece in pieces]
        layers.append(Layer(np.concatenate([np.zeros((0, 3, 3)), *hulls]), colour))
    return Section(*layers)


def clipped(corners: np.ndarray, planes: np.ndarray) -> np.ndarray:
    """(M, 3) float, m. Corners of a convex solid with corners (N, 3), where n.x + d <= 0 for planes (P, 4).

    None, that is (0, 3), if nothing is left but a flat piece. No I/O.
    """
    x = np.asarray(corners, float)
    for *n, d in planes:
        side = x @ n + d
        a, b = x[side <= 0], x[side > 0]
        # Segments between all corners on either side, not edges only: the others end inside the hull.
        t = side[side <= 0][:, None] / (side[side <= 0][:, None] - side[side > 0][None])
        x = np.concatenate([a, (a[:, None] + t[..., None] * (b[None] - a[:, None])).reshape(-1, 3)])
        hull = _hull(x)
        x = x[hull.vertices] if hull else x[:0]
    return x


def _backing(nodes: np.ndarray, outward: np.ndarray) -> np.ndarray:
    """(M, 3) float, m. Corners of a plate behind a pad (N, 3); its rear nodes are in one plane."""
    along = nodes @ outward
    rear = nodes[along > along.max() - 1e-5]
    return np.concatenate([rear, rear + BACKING * outward])


def _planes(corners: np.ndarray) -> np.ndarray:
    """(P, 4) float. Outward normals and offsets of a convex solid's sides."""
    hull = _hull(corners)
    assert hull is not None
    return np.unique(np.round(hull.equations, 9), axis=0)


def _hull(corners: np.ndarray) -> ConvexHull | None:
    """None if there is nothing, or nothing but a flat piece."""
    try:
        return ConvexHull(corners) if len(corners) > 3 and np.ptp(corners, axis=0).min() > _FLAT else None
    except QhullError:
        return None


def _triangles(corners: np.ndarray) -> np.ndarray:
    """(F, 3, 3) float, m. The surface of a convex hull, counter-clockwise seen from outside."""
    hull = _hull(corners)
    if hull is None:
        return np.zeros((0, 3, 3))
    x = corners[hull.simplices]
    normal = np.cross(x[:, 1] - x[:, 0], x[:, 2] - x[:, 0])
    inward = np.einsum("ij,ij->i", normal, hull.equations[:, :3]) < 0
    x[inward] = x[inward][:, ::-1]
    return x


def _drawn(cut: Section, camera: Camera, size: int) -> Image.Image:
    spec = mujoco.MjSpec()
    for k, (x, colour) in enumerate(cut):
        if len(x):
            geom = add_mesh(spec, f"layer {k}", x.reshape(-1, 3), np.arange(3 * len(x)).reshape(-1, 3))
            geom.rgba = [*colour, 1]
    m = spec.compile()
    d = mujoco.MjData(m)
    mujoco.mj_kinematics(m, d)
    return render(m, d, camera, size, size)
