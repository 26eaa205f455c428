"""One hand, several objects: plan, validate, learn and execute sequential multi-object grasps.

    import fistful as ff

    hand = ff.load_hand("allegro")          # or a path to MJCF / URDF
    objects = [ff.load_object(name, rescale=True) for name in ("mug", "pear", "part.stl")]
    plan = ff.plan(hand, objects, out="runs/mine")
    plan.stages[-1].grasps.q[plan.best()]   # joints of the best grasp that holds all three

Names are imported when first used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fistful.errors import (
        CacheError,
        FistfulError,
        HandError,
        MeshError,
        PhysicsError,
        PlanError,
        UnknownNameError,
    )
    from fistful.hands import Hand, check_hand, hand_names, load_hand, save_hand
    from fistful.objects import Object, load_object, object_names
    from fistful.planning.plan import Plan, plan, validate
    from fistful.planning.run_folder import load_plan
    from fistful.synthesis.sequence import Planner
    from fistful.synthesis.settings import Settings
    from fistful.synthesis.stage import Stage

__version__ = "0.1.0"
__all__ = [
    "CacheError",
    "FistfulError",
    "Hand",
    "HandError",
    "MeshError",
    "Object",
    "PhysicsError",
    "Plan",
    "PlanError",
    "Planner",
    "Settings",
    "Stage",
    "UnknownNameError",
    "check_hand",
    "hand_names",
    "load_hand",
    "load_object",
    "load_plan",
    "object_names",
    "plan",
    "save_hand",
    "validate",
]

_HOME = {
    "fistful.errors": (
        "CacheError",
        "FistfulError",
        "HandError",
        "MeshError",
        "PhysicsError",
        "PlanError",
        "UnknownNameError",
    ),
    "fistful.hands": ("Hand", "check_hand", "hand_names", "load_hand", "save_hand"),
    "fistful.objects": ("Object", "load_object", "object_names"),
    "fistful.planning.plan": ("Plan", "plan", "validate"),
    "fistful.planning.run_folder": ("load_plan",),
    "fistful.synthesis.sequence": ("Planner",),
    "fistful.synthesis.settings": ("Settings",),
    "fistful.synthesis.stage": ("Stage",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'fistful' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
