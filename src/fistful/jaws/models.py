"""The models to compare: grasp, object and pads in, robustness and seconds out."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from fistful.errors import UnknownNameError
from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper
from fistful.jaws.perturbation import perturbed

TRIALS = 5
"""Perturbed grasps for one robustness, as many as there were physical trials."""


class Model(Protocol):
    """Something that says which grasps hold."""

    @property
    def name(self) -> str:
        """As in `model_names()`."""
        ...

    def outcomes(self, resting: Resting, grasps: Sequence[JawGrasp], gripper: Gripper) -> np.ndarray:
        """(N,) bool. Which grasps hold the object until it is lifted."""
        ...


class Robustness(NamedTuple):
    """The share of perturbed grasps that hold."""

    mean: float
    cpu_s: float  # CPU seconds for each perturbed grasp, of this process


def robustness(
    model: Model,
    resting: Resting,
    grasp: JawGrasp,
    gripper: Gripper,
    *,
    trials: int = TRIALS,
    seed: int = 0,
) -> Robustness:
    """The mean outcome over `trials` perturbed grasps; the same seed gives every model the same grasps."""
    grasps = perturbed(grasp, trials, seed)
    began = time.process_time()
    held = model.outcomes(resting, grasps, gripper)
    return Robustness(float(np.mean(held)), (time.process_time() - began) / trials)


def model_names() -> tuple[str, ...]:
    """Names of the models, from the simplest to the most costly."""
    return tuple(_MAKERS)


def get_model(name: str) -> Model:
    """A model by its name, with its fixed settings."""
    if name not in _MAKERS:
        raise UnknownNameError("model", name, _MAKERS, "Models are built in; none is read from a file.")
    return _MAKERS[name]()


def _soft_point() -> Model:
    from fistful.jaws.soft_point import SoftPoint

    return SoftPoint()


def _reach() -> Model:
    from fistful.jaws.reach import Reach

    return Reach()


def _six_dfc() -> Model:
    from fistful.jaws.six_dfc import SixDFC

    return SixDFC()


def _mujoco() -> Model:
    from fistful.jaws.penalty import Penalty

    return Penalty()


def _mujoco_untuned() -> Model:
    from fistful.jaws.penalty import UNTUNED, Penalty, PenaltySettings

    return Penalty(name="mujoco-untuned", settings=PenaltySettings(contact=UNTUNED))


def _ipc() -> Model:
    return _Ipc()


class _Ipc:
    """The simulator with Incremental Potential Contact, behind the same interface."""

    name = "ipc"

    def outcomes(self, resting: Resting, grasps: Sequence[JawGrasp], gripper: Gripper) -> np.ndarray:
        from fistful.jaws.robustness import Job, run
        from fistful.jaws.simulation import Settings

        return np.array([run(Job(resting, g, gripper, Settings())).success for g in grasps], dtype=bool)


_MAKERS: dict[str, Callable[[], Model]] = {
    "soft-point": _soft_point,
    "reach": _reach,
    "6dfc": _six_dfc,
    "mujoco": _mujoco,
    "mujoco-untuned": _mujoco_untuned,
    "ipc": _ipc,
}
