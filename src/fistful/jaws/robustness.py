"""Robustness of a grasp: the part of its perturbed poses that hold (IPC-GraspSim section 3.1)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fistful.errors import JawsError
from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper
from fistful.jaws.outcome import JawOutcome, Reason
from fistful.jaws.patch import ROOM
from fistful.jaws.perturbation import LEVER, SHIFT, TURN, perturbed
from fistful.jaws.processes import in_processes
from fistful.jaws.simulation import Settings
from fistful.jaws.start import BlockedError
from fistful.jaws.trial import simulate


@dataclass(frozen=True, kw_only=True, eq=False)
class Robustness:
    """R = mean of S over perturbed poses, and every outcome."""

    value: float
    """R, 0 .. 1."""
    outcomes: tuple[JawOutcome, ...]
    """In the order of the poses; what did not fit has the reason "blocked"."""

    @property
    def cpu_s(self) -> float:
        """Mean CPU time of a trial, s."""
        return float(np.mean([outcome.cpu_s for outcome in self.outcomes]))


class Job(NamedTuple):
    """One grasp to simulate."""

    resting: Resting
    grasp: JawGrasp
    gripper: Gripper
    settings: Settings


def robustness(
    resting: Resting,
    grasp: JawGrasp,
    gripper: Gripper | None = None,
    settings: Settings | None = None,
    *,
    count: int = 5,
    shift: float = SHIFT,
    turn: float = TURN,
    lever: float = LEVER,
    seed: int = 0,
    workers: int = 1,
) -> Robustness:
    """R of a grasp: the mean success of `count` perturbed poses. The same for any number of workers.

    Starts `workers` processes if there is more than one. The pose asked for has to fit around the object;
    perturbed ones that do not count as failures. For shift, turn and lever see `perturbed`.

    Raises:
      JawsError: As `simulate` does for the unperturbed grasp.
    """
    if count < 1:
        raise JawsError(f"robustness needs at least one pose, not {count}")
    gripper, settings = gripper or Gripper(), settings or Settings()
    poses = perturbed(grasp, count, seed, shift, turn, lever=lever)
    jobs = [Job(resting, pose, gripper, settings) for pose in poses]
    outcomes = tuple(simulate_all(jobs, workers))
    if all(outcome.reason is Reason.BLOCKED for outcome in outcomes):
        simulate(resting, grasp, gripper, settings)  # Says what is wrong with the pose itself.
    return Robustness(value=float(np.mean([o.success for o in outcomes])), outcomes=outcomes)


def simulate_all(jobs: Iterable[Job], workers: int = 1) -> Iterator[JawOutcome]:
    """The outcome of each job, in their order, as they become ready; blocked ones are outcomes too.

    Starts `workers` processes if there is more than one, each with one thread.
    """
    yield from in_processes(run, jobs, workers)


def run(job: Job) -> JawOutcome:
    """The outcome of one job; a start that does not fit is the outcome "blocked".

    Noise may put an open pad into the object. On a robot, the finger would push the object aside by that
    millimetre on its way down; here the jaws start up to ROOM farther open, and push it while they close.
    """
    try:
        return simulate(*job)
    except BlockedError as error:
        if not error.narrow:
            return blocked(str(error))
    try:
        return simulate(*job._replace(gripper=replace(job.gripper, opening=job.gripper.opening + 2 * ROOM)))
    except BlockedError as error:
        return blocked(str(error))


def blocked(why: str) -> JawOutcome:
    """The outcome of a grasp that could not start."""
    return JawOutcome(
        success=False,
        reason=Reason.BLOCKED,
        first_contact=None,
        first_contact_s=None,
        squeeze_displacement_mm=0.0,
        squeeze_rotation_deg=0.0,
        lift_displacement_mm=0.0,
        lift_rotation_deg=0.0,
        time_s=np.zeros(0),
        lifting=np.zeros(0, bool),
        force_N=np.zeros((0, 2)),
        area_mm2=np.zeros((0, 2)),
        height_mm=np.zeros(0),
        steps=0,
        newton_iterations=0,
        unconverged_steps=0,
        min_gap_m=np.inf,
        intersections=0,
        inverted_tets=0,
        cpu_s=0.0,
        notes=(why,),
    )
