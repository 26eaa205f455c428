"""Things to play and train with: cube, ball, torus, die, duck, dumbbell."""

import numpy as np
import trimesh
from manifold3d import CrossSection, Manifold

from fistful.objects.generators.curves import circle, polyline
from fistful.objects.generators.solids import ellipsoid, finish, lathe, rounded_box, slab


def cube() -> trimesh.Trimesh:
    """Wooden block with sharp edges: 50 x 50 x 50 mm."""
    return finish(Manifold.cube((50, 50, 50), True), longest_edge=6)


def ball() -> trimesh.Trimesh:
    """Tennis ball without its seam: 66 mm across."""
    return finish(Manifold.sphere(33, 80))


def torus() -> trimesh.Trimesh:
    """Ring toy lying flat: 92 mm across, 22 mm thick (radii 35 and 11 mm)."""
    return finish(lathe(circle(11, 32) + np.array([35, 0]), segments=72))


def die() -> trimesh.Trimesh:
    """Foam die: 40 x 40 x 40 mm, rounded, with 21 hollow pips; opposite faces add up to seven."""
    body = rounded_box((40, 40, 40), 6, step=5)
    d = 10.0
    rising, falling, sides = [(-d, -d), (d, d)], [(-d, d), (d, -d)], [(-d, 0.0), (d, 0.0)]
    pips = {1: [(0.0, 0.0)], 2: rising, 4: rising + falling}
    pips |= {3: pips[2] + pips[1], 5: pips[4] + pips[1], 6: pips[4] + sides}
    turns = {1: (0, 0, 0), 6: (180, 0, 0), 2: (90, 0, 0), 5: (-90, 0, 0), 3: (0, 90, 0), 4: (0, -90, 0)}
    pip = Manifold.sphere(6, 40).translate((0, 0, 24))
    for value, turn in turns.items():
        for x, y in pips[value]:
            body -= pip.translate((x, y, 0)).rotate(turn)
    return finish(body)


def duck() -> trimesh.Trimesh:
    """Bath duck looking along x: 97 mm from beak to tail, 60 mm wide, 75 mm tall."""
    body = ellipsoid((76, 56, 48), 64).translate((0, 0, 22))
    tail = ellipsoid((36, 28, 14), 40).rotate((0, 40, 0)).translate((-29, 0, 33))
    head = ellipsoid((42, 40, 40), 56).translate((19, 0, 55))
    beak = ellipsoid((30, 22, 8), 40).translate((38, 0, 52))
    wing = ellipsoid((42, 12, 24), 40).rotate((0, 15, 0)).translate((-6, 24, 26))
    below = Manifold.cube((200, 200, 50), True).translate((0, 0, -25))
    return finish(body + tail + head + beak + wing + wing.mirror((0, 1, 0)) - below)


def dumbbell() -> trimesh.Trimesh:
    """Small dumbbell lying along x: 150 mm long, six-sided heads 58 mm across flats, 28 mm handle."""
    hexagon = CrossSection.circle(29 / 0.75**0.5 - 6, 6).offset(6, circular_segments=64)
    head = slab(hexagon, 42, edge=5, step=4).rotate((0, 90, 0))
    bar = lathe(polyline((0, -40), (12, -40), (14, 0, 120), (12, 40), (0, 40)), segments=48).rotate(
        (0, 90, 0)
    )
    return finish(bar + head.translate((-54, 0, 0)) + head.translate((54, 0, 0)))


__all__ = ["ball", "cube", "die", "duck", "dumbbell", "torus"]
