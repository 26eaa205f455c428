"""A grasp to simulate: a unit of work for any process, whose outcome may be that it does not fit."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper
from fistful.jaws.outcome import JawOutcome, Reason
from fistful.jaws.patch import ROOM
from fistful.jaws.processes import in_processes
from fistful.jaws.simulation import Settings
from fistful.jaws.start import BlockedError
from fistful.jaws.trial import simulate


class Job(NamedTuple):
    """One grasp to simulate."""

    resting: Resting
    grasp: JawGrasp
    gripper: Gripper
    settings: Settings


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
