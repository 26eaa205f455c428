"""Things from the workshop: hammer, screwdriver, wrench, scissors, L-bracket, padlock."""

import numpy as np
import trimesh
from manifold3d import CrossSection, Manifold

from fistful.objects.generators.curves import polyline, resample, spline, superellipse
from fistful.objects.generators.solids import finish, lathe, outline, rounded_box, slab, stack, sweep

_ALONG_X = (0.0, 90.0, 0.0)
"""Turns a solid that was made standing on z so that it lies along +x."""


def hammer() -> trimesh.Trimesh:
    """Claw hammer lying flat: 277 mm long, head 113 mm from face to claw, 28 mm thick."""
    # Handle along x from 0 to 270; head along y about x = 262, face towards +y, claw towards -y.
    grip = spline([(0, 20), (3, 25), (15, 32), (45, 34), (90, 29), (150, 25), (210, 24), (272, 24)], step=5)
    sections = [superellipse(0.74 * w, w, 2.5, 40) for w in grip[:, 1]]
    handle = stack(sections, grip[:, 0].tolist()).rotate(_ALONG_X)
    poll = lathe(
        polyline((0, 0), (12, 0), (10.5, 6, 8), (10.5, 18, 8), (14, 24, 3), (14, 38, 1.5), (0, 39)),
        segments=48,
    )
    cheek = rounded_box((30, 32, 28), 5)
    side = outline(
        (-14, 8, 2), (-14, -14, 24), (-24, -42, 36), (-44, -58, 0.8), (-43, -61, 0.8), (-10, -46, 40),
        (13, -12, 30), (13, 8, 2),
    )  # fmt: skip
    claw = slab(side, 26, edge=1.2, step=3)
    # The gap between the claws is drawn in (y, z) and runs along x.
    vee = outline((-19, 1.2), (-70, 6), (-70, -6), (-19, -1.2)).extrude(120).translate((0, 0, -60))
    vee = vee.transform(np.array([[0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0]], dtype=float))
    head = poll.rotate((-90, 0, 0)).translate((0, 13, 0)) + cheek + (claw - vee)
    return finish(handle + head.translate((262, 0, 0)))


def screwdriver() -> trimesh.Trimesh:
    """Slotted screwdriver lying along x: 205 mm long, fluted handle 31 mm across, 6.5 mm shaft."""
    profile = polyline(
        (0, 0), (11, 0, 6), (15.5, 12, 12), (15.5, 70, 10), (10, 84, 8), (12.5, 98, 3), (8, 104, 2),
        (3.25, 104), (3.25, 190), (0, 190),
    )  # fmt: skip
    body = lathe(profile, segments=64)
    flute = lathe(polyline((0, 14), (5, 20, 4), (5, 66, 4), (0, 72)), segments=32)
    for k in range(6):
        body -= flute.translate((18.2, 0, 0)).rotate((0, 0, 60.0 * k + 30.0))
    blade = stack(
        [superellipse(5.5, 5.5, 3, 32), superellipse(9, 2.6, 5, 32), superellipse(9, 2.2, 6, 32),
         superellipse(7.5, 1.2, 6, 32)],
        (182.0, 194.0, 198.0, 205.0),
    )  # fmt: skip
    return finish((body + blade).rotate(_ALONG_X))


def wrench() -> trimesh.Trimesh:
    """Combination wrench lying flat: 183 mm long, 8 mm thick, 17 mm jaw, 17 mm ring."""
    ring = CrossSection.circle(14.0, 64)
    socket = CrossSection.batch_hull(
        [CrossSection.square((17 / 3**0.5, 17), True).rotate(60.0 * k) for k in range(3)]
    )
    jaw = CrossSection([superellipse(38, 36, 2.2, 64)]).translate((152, 0))
    mouth = (
        CrossSection.square((40, 17))
        .translate((-4, -8.5))
        .offset(2.0, circular_segments=32)
        .rotate(15)
        .translate((154, 0))
    )
    shank = outline((0, -7), (150, -7.5), (150, 7.5), (0, 7))
    # Growing and shrinking again fills the inner corners with 8 mm fillets.
    flat = (ring + shank + jaw).offset(8.0, circular_segments=64).offset(-8.0, circular_segments=64)
    flat = (flat - mouth).offset(-1.2, circular_segments=32).offset(1.2, circular_segments=32) - socket
    body = slab(flat, 8, edge=1.0)
    groove = slab(CrossSection([superellipse(88, 7, 6, 64)]), 4, edge=0.8).translate((74, 0, 4.8))
    return finish(body - groove - groove.mirror((0, 0, 1)))


def scissors() -> trimesh.Trimesh:
    """Closed scissors lying flat: 186 mm long, 96 mm across the bows, 12 mm thick there."""
    # One half, pivot at the origin, blade towards +x; the other half is the same, turned over about x.
    blade = outline((-12, -5), (0, -9, 12), (30, -8, 40), (94, -1, 1), (94, 1.5, 1), (10, 9, 10), (-8, 8))
    shank = outline((6, 8, 4), (-14, 8, 30), (-36, 26), (-40, 14), (-16, -4, 30), (6, -8))
    flat = (blade + shank).offset(2.0, circular_segments=32).offset(-2.0, circular_segments=32)
    half = slab(flat, 5, edge=0.9).translate((0, 0, 1.2))
    turn = np.arange(64) * (2 * np.pi / 64)
    oval = np.column_stack([26 * np.cos(turn), 18 * np.sin(turn), np.zeros(64)])
    bow = sweep(oval, (4.5, 6.0), normal=(0, 0, 1), closed=True)
    half += bow.rotate((0, 0, -10)).translate((-62, 25, 0))
    screw = lathe(polyline((0, -6), (5, -6, 1), (5, 6, 1), (0, 6)), segments=32)
    return finish(half + half.rotate((180, 0, 0)) + screw)


def l_bracket() -> trimesh.Trimesh:
    """Angle bracket: legs 60 x 60 mm, 40 mm wide, 5 mm thick, two 7 mm screw holes in each leg."""
    side = outline((0, 0, 7), (60, 0, 1.2), (60, 5, 1.2), (5, 5, 3), (5, 60, 1.2), (0, 60, 1.2))
    plate = slab(side, 40, edge=1.0).rotate((90, 0, 0))
    hole = Manifold.cylinder(30, 3.5, circular_segments=32, center=True)
    for x, y in ((25, -8), (46, 8)):
        plate -= hole.translate((x, y, 0))
        plate -= hole.rotate((0, 90, 0)).translate((0, y, x))
    return finish(plate, longest_edge=6)


def padlock() -> trimesh.Trimesh:
    """Locked padlock standing up: body 50 x 24 x 42 mm, 8 mm shackle, 76 mm tall."""
    body = rounded_box((50, 24, 42), 4).translate((0, 0, 21))
    path = resample(polyline((-16, 35), (-16, 72, 15.9), (16, 72, 15.9), (16, 35), step=1), step=3)
    shackle = sweep(np.insert(path, 1, 0.0, axis=1), (4.0, 4.0), normal=(0, 1, 0))
    sleeve = lathe(polyline((0, 40), (6, 40), (6, 44, 1), (0, 44)), segments=32)
    body = body + shackle + sleeve.translate((-16, 0, 0)) + sleeve.translate((16, 0, 0))
    dial = lathe(polyline((0, 0), (9, 0), (9, 2, 0.8), (0, 2)), segments=40).rotate((90, 0, 0))
    slot = rounded_box((2.4, 6, 9), 1.1, step=1)
    key = dial.translate((0, -11.5, 20)) - slot.translate((0, -14.0, 20))
    return finish(body + key)


__all__ = ["hammer", "l_bracket", "padlock", "scissors", "screwdriver", "wrench"]
