"""Things that hold liquids: mug, cup, bowl, goblet, funnel, can, bottle, spray bottle."""

import numpy as np
import trimesh
from manifold3d import CrossSection, Manifold

from fistful.objects.generators.curves import polyline, ribbed_circle, spline, superellipse
from fistful.objects.generators.solids import finish, lathe, outline, rounded_box, slab, stack, sweep


def mug() -> trimesh.Trimesh:
    """Open mug with a handle: 82 mm across (117 with the handle), 95 mm tall, 4 mm wall, 5 mm floor."""
    outside = [(0, 0), (41, 0, 5), (41, 95, 1.9)]
    inside = [(37, 95, 1.9), (37, 5, 8), (0, 5)]
    body = lathe(polyline(*outside, *inside, step=6), segments=64)
    # Both ends of the handle stop in the middle of the wall, so that nothing shows inside.
    path = polyline((38.9, 78), (72, 78, 18), (70, 26, 26), (38.9, 20), step=3)
    handle = sweep(np.insert(path, 1, 0.0, axis=1), (4.5, 7.0), normal=(0, 1, 0))
    return finish(body + handle)


def cup() -> trimesh.Trimesh:
    """Open tapered cup: 54 mm across below, 80 mm above, 92 mm tall, 3.4 mm wall, rolled rim."""
    rim = [(38, 87.5, 1), (40, 88, 1.2), (40, 92, 1.9), (35.2, 92, 1.9)]
    profile = polyline((0, 3), (23, 3, 1), (23.5, 0, 1), (27, 0, 1), *rim, (24.2, 7, 3), (0, 7))
    return finish(lathe(profile, segments=64))


def bowl() -> trimesh.Trimesh:
    """Open bowl on a foot ring: 140 mm across, 58 mm tall, 4 mm wall."""
    foot = polyline((0, 3.5), (25, 3.5, 1), (26, 0, 1), (32, 0, 1.5), (33, 5), step=5)
    outside = spline([(33, 5), (52, 14), (65, 32), (70, 56)], step=5)
    rim = polyline((70, 56), (69.8, 58, 1.5), (66.3, 58, 1.5), (66, 56), step=5)
    inside = spline([(66, 56), (61, 33.5), (49.5, 17.5), (30, 9), (0, 7)], step=5)
    profile = np.concatenate([foot, outside[1:-1], rim, inside[1:]])
    return finish(lathe(profile, segments=80), longest_edge=9)


def goblet() -> trimesh.Trimesh:
    """Open stemmed glass: 74 mm across, 160 mm tall, 3.2 mm wall, 9 mm stem."""
    foot = polyline(
        (0, 0), (33, 0, 1), (33, 3.5, 1), (12, 6, 14), (4.5, 16, 14), (4.5, 65, 20), (10, 74), step=4
    )
    outside = spline([(10, 74), (27, 88), (36, 112), (31.5, 158)], step=4)
    rim = polyline((31.5, 158), (31.2, 160, 1.2), (28.3, 160, 1.2), (28.2, 158))
    inside = spline([(28.2, 158), (32.7, 113), (24.5, 90.5), (12, 80), (0, 77)], step=4)
    profile = np.concatenate([foot, outside[1:-1], rim, inside[1:]])
    return finish(lathe(profile, segments=56))


def funnel() -> trimesh.Trimesh:
    """Funnel open at both ends: 90 mm across, 105 mm tall, 3.4 mm wall, 18 mm spout, hanging lug."""
    outside = [(5.4, 0, 1), (8.8, 0, 1), (8.8, 48, 6), (42, 82, 4), (42, 101), (45, 101, 1.2), (45, 105, 1.2)]
    inside = [(38.6, 105, 1.2), (38.6, 83.5, 4), (5.4, 49.8, 6)]
    body = lathe(polyline(*outside, *inside, closed=True, step=5), segments=64)
    tab = CrossSection.circle(9.0, 40).translate((50, 0)) + outline((32, -9), (52, -9), (52, 9), (32, 9))
    lug = slab(tab - CrossSection.circle(4.0, 32).translate((51, 0)), 3.2, edge=0.8)
    hole = lathe(polyline((0, 80), (40.5, 80), (40.5, 120), (0, 120)), segments=64)
    return finish(body + (lug.translate((0, 0, 103)) - hole))


def can() -> trimesh.Trimesh:
    """Drinks can (330 ml, solid): 66 mm across, 122 mm tall, with a recessed lid and its tab."""
    bottom = [(0, 9), (14, 7.5, 20), (22, 2, 2), (24, 0, 1), (26.5, 0, 1.5), (33, 9, 6)]
    top = [(33, 108, 6), (27.5, 117, 3), (27.5, 122, 0.9), (25.5, 122, 0.9), (25, 117.5, 1), (0, 117.5)]
    oval = CrossSection([superellipse(13, 22, 2.4, 40)]).translate((0, 3))
    tab = slab(oval - CrossSection.circle(3.2, 24).translate((0, 9)), 2.4, edge=0.7, step=1.5)
    return finish(lathe(polyline(*bottom, *top), segments=64) + tab.translate((0, 0, 118.2)))


def bottle() -> trimesh.Trimesh:
    """Water bottle (0.5 l, solid): 64 mm across, 205 mm tall, waisted, with a ribbed cap."""
    foot = polyline((0, 6), (12, 4, 8), (20, 0, 4), (27, 0, 5), (32, 8, 8), (32, 20))
    grip = [(32, 20), (31.9, 40), (30.8, 58), (28.5, 75), (28.5, 90), (30.8, 107), (32, 125), (30.5, 140)]
    neck = spline([*grip, (24, 155), (16.5, 167), (13.2, 176)], tangents=((0, 1), (-0.2, 0.98)), step=5)
    throat = [(13.2, 182, 1), (16.5, 182.3, 0.6), (16.5, 184.7, 0.6), (13, 185, 0.6)]
    rest = polyline((13.2, 176), *throat, (13, 187, 0.5), (14, 187), (14, 205, 1.5), (0, 205))
    body = lathe(np.concatenate([foot, neck[1:-1], rest]), segments=64)
    section = ribbed_circle(14.9, ribs=20)
    cap = stack([section * 0.96, section, section, section * 0.96], (188.0, 188.8, 202.6, 203.4))
    return finish(body + cap)


def spray_bottle() -> trimesh.Trimesh:
    """Trigger spray bottle (solid): oval body 86 x 58 mm, 245 mm tall, head 90 mm from back to nozzle."""
    widths = spline(
        [(70, 0), (83, 5), (86, 25), (86, 90), (78, 120), (54, 145), (34, 160), (30, 166)],
        tangents=((0.8, 0.6), (0, 1)),
        step=5,
    )
    depths = 28.0 + 30.0 * np.clip((widths[:, 0] - 28.0) / 58.0, 0.0, 1.0)
    sections = [superellipse(w, d, 2.6, 56) for (w, _), d in zip(widths, depths, strict=True)]
    body = stack(sections, widths[:, 1].tolist())
    ribbed = ribbed_circle(17.5, ribs=20)
    collar = stack([ribbed * 0.95, ribbed, ribbed, ribbed * 0.93], (164.0, 165.0, 182.0, 184.0))
    # Drawn in the x-z plane, nozzle towards +x.
    head = outline(
        (-14, 174, 6), (13, 174, 6), (13, 200, 8), (30, 212, 6), (50, 212, 6), (50, 234, 6), (20, 240, 20),
        (-30, 246, 10), (-38, 226, 12), (-16, 208, 12),
    )  # fmt: skip
    trigger = outline(
        (24, 217, 2), (25, 200, 16), (38, 184, 16), (43, 160, 2.4), (48, 161, 2.4), (46, 184, 18),
        (36, 206, 12), (37, 217, 2),
    )  # fmt: skip
    upright = (90.0, 0.0, 0.0)
    shell = slab(head, 26, edge=5, step=3.5).rotate(upright)
    lever = slab(trigger, 13, edge=1.8, step=2.5).rotate(upright)
    bore = Manifold.cylinder(8, 2.0, circular_segments=24).rotate((0, 90, 0)).translate((3, 0, 0))
    nozzle = (rounded_box((12, 19, 19), 2.5) - bore).translate((50, 0, 223))
    return finish(body + collar + shell + lever + nozzle)


__all__ = ["bottle", "bowl", "can", "cup", "funnel", "goblet", "mug", "spray_bottle"]
