"""Things from the kitchen basket: banana, pear, apple, egg."""

import numpy as np
import trimesh

from fistful.objects.generators.curves import circle, ribbed_circle, spline
from fistful.objects.generators.solids import finish, lathe, sweep


def banana() -> trimesh.Trimesh:
    """Banana lying on its side: 185 mm along the curve (168 x 61 mm), 35 mm thick, five blunt ridges."""
    bend = np.deg2rad(105.0)
    length = 185.0
    # (arc length, radius): blossom tip, belly, neck, stem.
    shape = spline(
        [(0, 3.5), (2, 5.5), (8, 9), (25, 14), (60, 17), (95, 17.4), (130, 15.5), (150, 12), (163, 7.5),
         (172, 5.6), (185, 5.8)],
        step=3.5,
    )  # fmt: skip
    angle = (shape[:, 0] / length - 0.5) * bend
    radius = length / bend
    path = np.column_stack([radius * np.sin(angle), radius * np.cos(angle), np.zeros(len(angle))])
    section = ribbed_circle(1.0, ribs=5, height=0.035, per_rib=8)
    return finish(sweep(path, shape[:, 1:], normal=(0, 0, 1), section=section))


def pear() -> trimesh.Trimesh:
    """Pear with a stem: 67 mm across, 91 mm tall without its 16 mm stem."""
    outline = [(0, 5), (9, 1.2), (20, 2.5), (32, 17), (33.2, 34), (26, 53), (18, 68), (14.5, 81), (7.5, 90.5)]
    profile = spline([*outline, (0, 89)], tangents=((0.95, -0.3), (-0.9, -0.4)), step=3)
    path = spline([(0, 0, 84), (0.6, 0, 95), (4, 0, 107)], step=2)
    radii = np.linspace(2.2, 1.7, len(path))
    radii[-2:] = 2.3, 2.5
    stem = sweep(path, radii[:, None], normal=(0, 1, 0), section=circle(1.0, 14))
    return finish(lathe(profile, segments=64) + stem)


def apple() -> trimesh.Trimesh:
    """Apple with a stem: 75 mm across, 68 mm tall without its stem."""
    outline = [(0, 8), (6, 4), (15, 0.6), (27, 9), (37, 32), (36.5, 48), (28, 63), (15, 67.5), (6, 63)]
    profile = spline([*outline, (0, 56)], tangents=((0.9, -0.4), (-0.6, -0.8)), step=3)
    lobes = lathe(profile, segments=70).warp_batch(_five_lobes)
    path = spline([(0, 0, 52), (0.8, 0, 64), (4.5, 0, 78)], step=2)
    radii = np.linspace(1.8, 1.6, len(path))
    radii[-2:] = 2.0, 2.2
    stem = sweep(path, radii[:, None], normal=(0, 1, 0), section=circle(1.0, 14))
    return finish(lobes + stem)


def egg() -> trimesh.Trimesh:
    """Hen's egg standing on its blunt end: 44 mm across, 58 mm tall."""
    angle = np.linspace(0.0, np.pi, 29)
    height = 29.0 * (1.0 - np.cos(angle))
    # An ellipse whose widest place is drawn down towards the blunt end.
    radius = 21.8 * np.sin(angle) * (1.0 + 0.13 * np.cos(angle))
    radius[[0, -1]] = 0.0
    return finish(lathe(np.column_stack([radius, height]), segments=56))


def _five_lobes(points: np.ndarray) -> np.ndarray:
    """An apple's points with the underside drawn into five low lobes."""
    p = np.array(points)
    turn = np.arctan2(p[:, 1], p[:, 0])
    low = np.clip(1.0 - p[:, 2] / 40.0, 0.0, 1.0) * np.clip(np.hypot(p[:, 0], p[:, 1]) / 15.0, 0.0, 1.0)
    p[:, 2] -= 1.5 * low * np.cos(5 * turn)
    return p


__all__ = ["apple", "banana", "egg", "pear"]
