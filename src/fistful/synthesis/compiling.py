"""Compiling all that planning needs, before any clock starts."""

from collections.abc import Callable
from typing import Literal

from fistful.contact import resistance_kernels
from fistful.errors import PlanError
from fistful.geometry import mesh_kernels
from fistful.geometry.quiet_warp import wp
from fistful.synthesis import (
    energy_kernels,
    fast_kernels,
    hand_kernels,
    mala_kernels,
    measure_kernels,
    refine_kernels,
    touch_kernels,
)

_MEASURING = (mesh_kernels, measure_kernels, resistance_kernels)
_PLANNING = {
    "fast": (fast_kernels, refine_kernels, touch_kernels, energy_kernels, hand_kernels),
    "paper": (mala_kernels, touch_kernels, energy_kernels, hand_kernels),
}


def compile_kernels(
    method: Literal["fast", "paper"] = "fast",
    device: str = "cpu",
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Compile the kernels of a method and of measuring, if Warp does not have them in its cache.

    About 20 s on one core, once a machine. `progress` is called with the name of each file.

    Raises:
      PlanError: There is no such device.
    """
    check_device(device)
    # One after the other: Warp holds a lock while it compiles, so threads would not help.
    for modules, place in ((_MEASURING, "cpu"), (_PLANNING[method], device)):
        for module in modules:
            progress(module.__name__.rpartition(".")[2])
            wp.load_module(module=module, device=place)


def check_device(device: str) -> None:
    """Raise PlanError if there is no such device. No I/O."""
    there = [str(d) for d in wp.get_devices()]
    # Warp itself would complain of a missing driver on standard error first.
    if device not in there and not (device == "cuda" and wp.is_cuda_available()):
        raise PlanError(f"device {device!r} is not there; this machine has {', '.join(there)}")
