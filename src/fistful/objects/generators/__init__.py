"""Built-in objects: household-like shapes of real size, generated here, in metres, z up.

Every generator takes no arguments and returns the same mesh at every call: watertight, one body, faces
outwards, no slivers, the origin at the centre of mass of the solid.
"""

from collections.abc import Callable

import trimesh

from fistful.objects.generators.goods import box, camera, light_bulb, marker, mouse
from fistful.objects.generators.produce import apple, banana, egg, pear
from fistful.objects.generators.tools import hammer, l_bracket, padlock, scissors, screwdriver, wrench
from fistful.objects.generators.toys import ball, cube, die, duck, dumbbell, torus
from fistful.objects.generators.vessels import bottle, bowl, can, cup, funnel, goblet, mug, spray_bottle

GENERATORS: dict[str, Callable[[], trimesh.Trimesh]] = {
    generator.__name__: generator
    for generator in (
        apple, ball, banana, bottle, bowl, box, camera, can, cube, cup, die, duck, dumbbell, egg, funnel,
        goblet, hammer, l_bracket, light_bulb, marker, mouse, mug, padlock, pear, scissors, screwdriver,
        spray_bottle, torus, wrench,
    )
}  # fmt: skip
"""Name to generator, in alphabetical order."""

__all__ = ["GENERATORS"]
