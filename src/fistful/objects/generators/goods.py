"""Things from the shelf and the desk: box, light bulb, camera, computer mouse, marker."""

import numpy as np
import trimesh
from manifold3d import Manifold

from fistful.objects.generators.curves import polyline, ribbed_circle, spline
from fistful.objects.generators.solids import finish, lathe, outline, rounded_box, slab, stack


def box() -> trimesh.Trimesh:
    """Tea box: 80 x 60 x 130 mm."""
    return finish(rounded_box((80, 60, 130), 1.5, step=7))


def light_bulb() -> trimesh.Trimesh:
    """Light bulb standing on its screw base: 60 mm across, 108 mm tall, 26 mm base."""
    contact = polyline((0, 0), (5, 0, 1), (6, 2, 1), (11, 5))
    pitch = np.linspace(0.0, 5.0, 41)
    thread = np.column_stack([12.3 - 0.9 * np.cos(2 * np.pi * pitch), 5.5 + 3.6 * pitch])
    collar = polyline((11.6, 24), (13.4, 25.5, 1), (13.4, 30))
    glass = spline(
        [(13.4, 30), (15, 38), (19.5, 49), (26.5, 62), (30, 78), (26, 93.5), (15, 104.5), (0, 108)],
        tangents=((0, 1), (-1, 0)),
    )
    return finish(lathe(np.concatenate([contact, thread, collar[:-1], glass]), segments=60))


def camera() -> trimesh.Trimesh:
    """Compact system camera facing -y: body 118 x 36 x 70 mm, lens 58 mm across and 46 mm long."""
    body = rounded_box((118, 36, 70), 6, step=6)
    grip = rounded_box((26, 26, 64), 9, step=5).translate((-45, -15, -2))
    hump = outline((-26, 26, 4), (26, 26, 4), (15, 50, 4), (-15, 50, 4))
    finder = slab(hump, 34, edge=3, step=3).rotate((90, 0, 0))
    eyepiece = rounded_box((26, 12, 16), 3).translate((0, 18, 36))
    rings = [
        (29, 0),
        (29, 12, 1),
        (27.5, 13, 0.5),
        (27.5, 16, 0.5),
        (29, 17, 1),
        (29, 32, 1),
        (27.5, 33, 0.5),
    ]
    front = [(27.5, 44, 1), (24.5, 44, 1), (21, 38, 1), (12, 39.5, 30), (0, 40.5)]
    lens = lathe(polyline((0, 0), *rings, *front), segments=64).rotate((90, 0, 0)).translate((8, -16, -3))
    button = lathe(polyline((0, 0), (6.5, 0), (6.5, 5, 1), (0, 5.5)), segments=36).translate((-44, -12, 29))
    ribbed = ribbed_circle(9, ribs=16)
    dial = stack([ribbed, ribbed, ribbed * 0.92], (30.0, 41.0, 42.0)).translate((-40, 5, 0))
    return finish(body + grip + finder + eyepiece + lens + button + dial)


def mouse() -> trimesh.Trimesh:
    """Computer mouse, buttons towards +x: 108 x 62 x 37 mm, with a wheel."""
    shell = rounded_box((108, 62, 37), 17, step=4).translate((0, 0, 18.5)).warp_batch(_palm_rest)
    slot = rounded_box((27, 9, 40), 4, step=3).translate((31, 0, 37))
    seam = Manifold.cube((60, 1.6, 40)).translate((0, -0.8, 0))
    core = rounded_box((105.6, 60, 35.8), 16, step=4).translate((0, 0, 17.9)).warp_batch(_palm_rest)
    wheel = lathe(polyline((0, -3), (10.5, -3, 1.5), (10.5, 3, 1.5), (0, 3)), segments=48).rotate((90, 0, 0))
    return finish(shell - (seam - core) - slot + wheel.translate((31, 0, 19)))


def marker() -> trimesh.Trimesh:
    """Capped felt marker lying along x: 138 mm long, 18 mm across, cap with a clip."""
    barrel = [(0, 0), (7, 0, 1), (7.5, 6), (8.2, 7, 0.5), (8.2, 90, 0.5), (9, 90.5, 0.5)]
    cap = [(9, 128, 3), (6.5, 130, 1), (6.5, 138, 1), (0, 138)]
    body = lathe(polyline(*barrel, *cap, step=5), segments=48)
    clip = rounded_box((3.2, 5, 38), 1.2, step=2.5).translate((-11, 0, 108))
    bridge = rounded_box((5, 5, 8), 1.2, step=2.5).translate((-9.5, 0, 122))
    return finish((body + clip + bridge).rotate((0, 90, 0)))


def _palm_rest(points: np.ndarray) -> np.ndarray:
    """A box's points drawn into a mouse: low and narrow in front, humped behind, waisted at the sides."""
    p = np.array(points)
    x = p[:, 0] / 54.0
    p[:, 2] *= 1.0 - 0.16 * (x + 0.25) ** 2 - 0.16 * np.clip(x, 0.0, None)
    p[:, 1] *= 1.0 - 0.10 * np.sin(np.clip((x + 0.75) / 1.5, 0.0, 1.0) * np.pi) ** 2
    p[:, 0] *= 1.0 - 0.12 * (p[:, 1] / 31.0) ** 2
    return p


__all__ = ["box", "camera", "light_bulb", "marker", "mouse"]
