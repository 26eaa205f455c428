"""Robustness of a grasp: the part of its perturbed poses that hold (IPC-GraspSim section 3.1)."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from fistful.errors import JawsError
from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper
from fistful.jaws.ledger import Ledger
from fistful.jaws.models import Ipc, Model, Simulator, get_model
from fistful.jaws.outcome import Reason
from fistful.jaws.perturbation import LEVER, SHIFT, TURN, perturbed
from fistful.jaws.processes import as_done
from fistful.jaws.start import make_start
from fistful.jaws.verdict import Verdict

TRIALS = 5
"""Perturbed poses for one robustness, as many as there were physical trials."""
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Robustness:
    """What a model says of the poses of one grasp."""

    verdicts: tuple[Verdict, ...]
    """In the order of the poses; at least one."""

    @property
    def value(self) -> float:
        """R = mean of S over the poses, 0 .. 1."""
        return float(np.mean([verdict.held for verdict in self.verdicts]))

    @property
    def cpu_s(self) -> float:
        """Mean CPU time of a pose, s."""
        return float(np.mean([verdict.cpu_s for verdict in self.verdicts]))

    @property
    def unconverged_steps(self) -> int:
        """Of all poses."""
        return sum(verdict.unconverged_steps for verdict in self.verdicts)

    @property
    def reasons(self) -> list[str]:
        """What came of each pose."""
        return [verdict.reason for verdict in self.verdicts]


def robustness(
    model: Model | str,
    resting: Resting,
    grasp: JawGrasp,
    gripper: Gripper,
    *,
    trials: int = TRIALS,
    seed: int = 0,
    workers: int = 1,
    shift: float = SHIFT,
    turn: float = TURN,
    lever: float = LEVER,
    progress: Say = lambda _: None,
) -> Robustness:
    """R of a grasp by a model: the mean success of `trials` perturbed poses.

    The same seed gives every model the same poses, and the same result for any number of workers. Starts
    `workers` processes if there is more than one. Perturbed poses that do not fit around the object count as
    failures.

    Args:
      model: A model, or one of `model_names()`.
      resting: The object on the plane.
      grasp: Where the jaws close, before noise.
      gripper: Pads and drive.
      trials: Perturbed poses.
      seed: Of the noise.
      workers: Processes.
      shift, turn, lever: See `perturbed`.
      progress: Called with a line after each pose.

    Raises:
      JawsError: A number or the object can not be used, or neither the grasp nor any of its poses fits.
    """
    model = get_model(model) if isinstance(model, str) else model
    poses = perturbed_units(
        "pose", model, resting, grasp, gripper, trials=trials, seed=seed, shift=shift, turn=turn, lever=lever
    )
    found = robustness_of_each([poses], workers, progress=progress)[0]
    if isinstance(model, Ipc) and set(found.reasons) == {Reason.BLOCKED}:
        make_start(resting, grasp, gripper, model.settings)  # Says what is wrong with the grasp itself.
    return found


class Unit(NamedTuple):
    """One pose for one model: a unit of work."""

    key: str
    model: Model | str
    resting: Resting
    grasp: JawGrasp
    gripper: Gripper


def perturbed_units(
    key: str,
    model: Model | str,
    resting: Resting,
    grasp: JawGrasp,
    gripper: Gripper,
    *,
    trials: int,
    seed: int,
    shift: float = SHIFT,
    turn: float = TURN,
    lever: float = LEVER,
) -> list[Unit]:
    """The units of one robustness, with the keys "KEY 0", "KEY 1" ... No I/O."""
    if trials < 1:
        raise JawsError(f"trials is {trials}; a robustness needs at least one")
    poses = perturbed(grasp, trials, seed, shift, turn, lever=lever)
    return [Unit(f"{key} {k}", model, resting, pose, gripper) for k, pose in enumerate(poses)]


def robustness_of_each(
    poses: Sequence[Sequence[Unit]],
    workers: int,
    *,
    ledger: Ledger | None = None,
    progress: Say = lambda _: None,
) -> list[Robustness]:
    """One robustness for the poses of each grasp; all of them share the processes and the ledger."""
    verdicts = iter(run_units(ledger, [unit for of in poses for unit in of], workers, progress))
    return [Robustness(verdicts=tuple(islice(verdicts, len(of)))) for of in poses]


def run_units(ledger: Ledger | None, units: Sequence[Unit], workers: int, progress: Say) -> list[Verdict]:
    """The verdict on each unit, in their order. Does what the ledger does not have yet and keeps it there."""
    known = {} if ledger is None else ledger.records
    verdicts = {unit.key: Verdict(**known[unit.key]) for unit in units if unit.key in known}
    todo = [unit for unit in units if unit.key not in verdicts]
    # Kept in the order in which they end, so that a kill loses no more than what is under way.
    with closing(as_done(judge, todo, workers)) as done:
        for index, verdict in done:
            key = todo[index].key
            if ledger is not None:
                ledger.add(key, verdict._asdict())
            verdicts[key] = verdict
            progress(f"{len(verdicts)} of {len(units)}: {key}: {verdict.reason}")
    return [verdicts[unit.key] for unit in units]


def judge(unit: Unit) -> Verdict:
    """What a model says of one pose, and at what cost; a simulator also says why."""
    model = get_model(unit.model) if isinstance(unit.model, str) else unit.model
    if isinstance(model, Simulator):
        return model.judge(unit.resting, unit.grasp, unit.gripper)
    began = time.process_time()
    held = bool(model.outcomes(unit.resting, [unit.grasp], unit.gripper)[0])
    return Verdict(held, time.process_time() - began, "held" if held else "fails", 0)
