"""The models to compare: grasp, object and pads in, which grasps hold out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from fistful.errors import UnknownNameError
from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper
from fistful.jaws.simulation import Settings
from fistful.jaws.verdict import Verdict


class Model(Protocol):
    """Something that says which grasps hold. `robustness.robustness` asks it about perturbed ones."""

    @property
    def name(self) -> str:
        """As in `model_names()`."""
        ...

    def outcomes(self, resting: Resting, grasps: Sequence[JawGrasp], gripper: Gripper) -> np.ndarray:
        """(N,) bool. Which grasps hold the object until it is lifted."""
        ...


@runtime_checkable
class Simulator(Model, Protocol):
    """A model that can say more of a grasp than whether it holds."""

    def judge(self, resting: Resting, grasp: JawGrasp, gripper: Gripper) -> Verdict:
        """What came of one grasp."""
        ...


def model_names() -> tuple[str, ...]:
    """Names of the models, from the simplest to the most costly."""
    return tuple(_MAKERS)


def get_model(name: str) -> Model:
    """A model by its name, with its fixed settings."""
    if name not in _MAKERS:
        raise UnknownNameError("model", name, _MAKERS, "Models are built in; none is read from a file.")
    return _MAKERS[name]()


@dataclass(frozen=True, kw_only=True)
class Ipc:
    """The simulator with Incremental Potential Contact as one of the models to compare."""

    name: str = "ipc"
    settings: Settings = field(default_factory=Settings)

    def outcomes(self, resting: Resting, grasps: Sequence[JawGrasp], gripper: Gripper) -> np.ndarray:
        """(N,) bool. Which grasps hold."""
        return np.array([self.judge(resting, grasp, gripper).held for grasp in grasps], dtype=bool)

    def judge(self, resting: Resting, grasp: JawGrasp, gripper: Gripper) -> Verdict:
        """What came of one grasp; one that does not fit is "blocked"."""
        from fistful.jaws.job import Job, run

        end = run(Job(resting, grasp, gripper, self.settings))
        moved_mm = end.squeeze_displacement_mm
        return Verdict(end.success, end.cpu_s, str(end.reason), end.unconverged_steps, moved_mm)


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


_MAKERS: dict[str, Callable[[], Model]] = {
    "soft-point": _soft_point,
    "reach": _reach,
    "6dfc": _six_dfc,
    "mujoco": _mujoco,
    "mujoco-untuned": _mujoco_untuned,
    "ipc": Ipc,
}
