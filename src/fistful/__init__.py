"""One hand, several objects: plan, validate, learn and execute sequential multi-object grasps.

    import fistful as ff

    hand = ff.load_hand("allegro")          # or a path to MJCF / URDF
    mug = ff.load_object("mug")             # or a path to a mesh

Names are imported when first used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fistful.errors import CacheError, FistfulError, HandError, MeshError, UnknownNameError
    from fistful.hands import Hand, check_hand, hand_names, load_hand, save_hand
    from fistful.objects import Object, load_object, object_names

__version__ = "0.1.0"
__all__ = [
    "CacheError",
    "FistfulError",
    "Hand",
    "HandError",
    "MeshError",
    "Object",
    "UnknownNameError",
    "check_hand",
    "hand_names",
    "load_hand",
    "load_object",
    "object_names",
    "save_hand",
]

_HOME = {
    "fistful.errors": ("CacheError", "FistfulError", "HandError", "MeshError", "UnknownNameError"),
    "fistful.hands": ("Hand", "check_hand", "hand_names", "load_hand", "save_hand"),
    "fistful.objects": ("Object", "load_object", "object_names"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'fistful' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
