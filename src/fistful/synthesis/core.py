"""The compiled core: energy and gradient of a batch of grasps on CPU or CUDA.

A `Core` holds a hand and a sequence of objects on a device; the last object is the target, those before
it are held. A `Batch` is a block of grasps with the memory of one evaluation. Everything is float32.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from fistful.geometry.quiet_warp import wp
from fistful.synthesis.energy_kernels import energy_kernel
from fistful.synthesis.hand_kernels import pose_kernel
from fistful.synthesis.structs import BatchData, HandData, ObjectData, WeightData
from fistful.synthesis.tables import HandTables, ObjectTables
from fistful.synthesis.task import Task
from fistful.synthesis.touch_kernels import touch_kernel
from fistful.synthesis.weights import TERMS, Weights

_NOWHERE = 1e9
"""m. Where bodies are said to have been before their neighbours are listed for the first time."""


class Core:
    """A hand and objects, ready on a device."""

    def __init__(self, hand: HandTables, objects: ObjectTables, *, device: str = "cpu"):
        self.device = device
        self.tables = hand
        self.hand: Any = _uploaded(HandData, hand, device)
        self.objects: Any = _uploaded(ObjectData, objects, device)
        self.target = len(objects.size) - 1
        self.bodies, self.joints, self.independent = len(hand.parent), len(hand.zero), len(hand.lower)
        # A GPU takes a thread a body; a CPU is faster with one a grasp.
        self.lanes = 1 if device == "cpu" else self.bodies + self.target + 1
        self.contacts = hand.set_surface.shape[1]

    def batch(self, count: int, *, second_order: bool = False, margin: float = 0.0) -> "Batch":
        """Memory for `count` grasps.

        Args:
          count: Number of grasps.
          second_order: With room for curvatures, if they are to be refined.
          margin: m. How far bodies may move before their neighbours are listed anew; 0 lists them every time.
            Of no effect on results; pays where states move by less than this, evaluation after evaluation.
        """
        return Batch(self, count, second_order, margin)


class Batch:
    """A block of grasps: state in, energy and gradient out. See BatchData for the arrays."""

    def __init__(self, core: Core, count: int, second_order: bool, margin: float):
        self.core, self.count = core, count
        B, J, K, C, Q = core.bodies, core.joints, core.independent, core.contacts, core.target
        curved = B + Q if second_order else 0
        shapes = {
            "x": (count, 9 + K),
            "mask": (count, K),
            "contact": (count, C),
            "surface": (count, C),
            "p_HO": (count, Q),
            "R_HO": (count, Q),
            "active": (count,),
            "w_hop": (count,),
            "p_OB": (count, B),
            "R_OB": (count, B),
            "centre": (count, B),
            "screw": (count, J),
            "moves": (count, B),
            "stale": (count,),
            "listed_centre": (count, B),
            "listed_R": (count, B),
            "near_skin": (count, Q + 1, len(core.tables.points)),
            "near_count": (count, Q + 1, B),
            "near_pair": (count, len(core.tables.geom_pair)),
            "near_pair_count": (count,),
            "outer": (count, B + Q),
            "held": (count, B),
            "own": (count, B),
            "outer_A": (count, curved),
            "held_A": (count, min(curved, B)),
            "own_A": (count, min(curved, B)),
            "part": (count, B + Q + 1),
            "deepest": (count, B + Q + 1),
            "terms": (count, len(TERMS)),
            "energy": (count,),
            "gradient": (count, 9 + K),
        }
        self.data: Any = BatchData()
        for name, shape in shapes.items():
            dtype = _fields(BatchData)[name].type.dtype
            setattr(self.data, name, wp.zeros(shape, dtype=dtype, device=core.device))
        self.data.active.fill_(1)
        self.data.margin = margin
        self.data.listed_centre.fill_(_NOWHERE)

    def write_task(self, task: Task) -> None:
        """Set joints, masks, surfaces and held objects of a task that has as many grasps."""
        x = np.zeros((self.count, 9 + self.core.independent))
        x[:, 9:] = task.q
        self.write(x=x, mask=task.mask, surface=task.surface, p_HO=task.p_HO, R_HO=task.R_HO)

    def write(self, **arrays: np.ndarray) -> None:
        """Set arrays of the batch by name."""
        for name, value in arrays.items():
            target = getattr(self.data, name)
            target.assign(np.ascontiguousarray(value).astype(_plain(target)).reshape(_shape(target)))

    def read(self, name: str) -> np.ndarray:
        """A copy of an array of the batch."""
        return getattr(self.data, name).numpy().copy()

    def evaluation(self, weights: Weights) -> "list[Any]":
        """Recorded launches that evaluate energy and gradient at `x`; run them with `launch`."""
        core, w = self.core, weight_data(weights)
        inputs = [core.hand, core.objects, self.data, w, core.target]
        return [
            recorded(pose_kernel, self.count, [core.hand, self.data], core.device),
            recorded(touch_kernel, (self.count, core.lanes), [*inputs, 1, core.lanes], core.device),
            recorded(energy_kernel, self.count, inputs, core.device),
        ]

    def evaluate(self, weights: Weights) -> None:
        """Energy, terms and gradient at `x`, with the weights as they are (hop does not grow)."""
        self.data.w_hop.fill_(weights.hop)
        launch(self.evaluation(weights))


def recorded(kernel: Any, dim: Any, inputs: Sequence[Any], device: str) -> Any:
    """A launch to be run many times; cheaper than launching anew."""
    return wp.launch(kernel, dim=dim, inputs=list(inputs), device=device, record_cmd=True)


def launch(launches: Sequence[Any]) -> None:
    """Run recorded launches in order."""
    for command in launches:
        command.launch()


def weight_data(weights: Weights) -> Any:
    """The record that kernels read."""
    data: Any = WeightData()
    for name in _fields(WeightData):
        setattr(data, name, float(getattr(weights, name)))
    return data


def _uploaded(record: Any, tables: HandTables | ObjectTables, device: str) -> Any:
    data = record()
    for field in fields(tables):
        dtype = _fields(record)[field.name].type.dtype
        kind = {
            int: np.int32,
            wp.int32: np.int32,
            wp.vec2i: np.int32,
            wp.vec3i: np.int32,
            wp.int8: np.int8,
        }.get(dtype, np.float32)
        array = np.ascontiguousarray(getattr(tables, field.name), dtype=kind)
        setattr(data, field.name, wp.array(array, dtype=dtype, device=device))
    return data


def _fields(record: Any) -> dict[str, Any]:
    """Fields of a Warp record by name."""
    return record.vars


def _plain(array: Any) -> Any:
    return np.int32 if array.dtype in (int, wp.int32) else np.float32


def _shape(array: Any) -> tuple[int, ...]:
    return (
        array.numpy().shape
        if array.device.is_cpu
        else tuple(array.shape) + tuple(getattr(array.dtype, "_shape_", ()))
    )
