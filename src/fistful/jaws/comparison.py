"""Models against physical trials: Table 4.2 of IPC-GraspSim, and its grids of E and mu (Tables 3.1, 3.2)."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fistful import __version__
from fistful.errors import JawsError
from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper, rectangle
from fistful.jaws.ledger import Ledger
from fistful.jaws.metrics import always_success, scores
from fistful.jaws.models import get_model, model_names
from fistful.jaws.perturbation import perturbed
from fistful.jaws.processes import in_processes
from fistful.jaws.trials import GRIPPER, PhysicalGrasp, read_trials
from fistful.storage import content_key

PUBLISHED: dict[str, tuple[float, float, float, float]] = {
    "soft-point": (0.89, 0.59, 0.71, 0.02),
    "reach": (0.75, 0.57, 0.65, 0.44),
    "6dfc": (0.82, 0.83, 0.82, 0.07),
    "mujoco": (0.75, 0.79, 0.76, 421.0),
    "ipc": (0.86, 0.84, 0.85, 605.0),
}
"""AP, AR, F1 and seconds a grasp of Table 4.2, over 13 objects that are not at hand. Isaac Gym's row stands
beside `mujoco`, our penalty simulator."""
MODULI = (1e5, 1e6, 1e7, 1e8, 1e9)
"""Pa. The paper's 1e7 .. 1e11 are of a world scaled by 100 (docs/jaws.md)."""
FRICTIONS = (0.3, 0.4, 0.5, 0.6)
GRID_F1: dict[str, tuple[tuple[float, ...], ...]] = {
    "rectangular": (
        (0.77, 0.82, 0.83, 0.84),
        (0.85, 0.86, 0.80, 0.78),
        (0.84, 0.81, 0.77, 0.74),
        (0.77, 0.78, 0.75, 0.74),
        (0.77, 0.74, 0.73, 0.74),
    ),
    "rounded": (
        (0.66, 0.70, 0.70, 0.74),
        (0.85, 0.91, 0.89, 0.85),
        (0.85, 0.82, 0.86, 0.83),
        (0.82, 0.88, 0.87, 0.84),
        (0.82, 0.84, 0.81, 0.86),
    ),
}
"""F1 of Tables 3.1 and 3.2, by E and mu, over three other objects."""
Say = Callable[[str], None]


class Trial(NamedTuple):
    """One grasp for one model: a unit of work."""

    key: str
    model: str
    resting: Resting
    grasp: JawGrasp
    gripper: Gripper


def compare(
    data: Path | str,
    *,
    models: Sequence[str] | None = None,
    trials: int = 5,
    seed: int = 0,
    gripper: Gripper = GRIPPER,
    mass: float | None = None,
    workers: int = 1,
    out: Path,
    progress: Say = lambda _: None,
) -> dict[str, Any]:
    """Scores of all models on the physical trials of a folder, as JSON-able values.

    Every model gets the same perturbed poses of each grasp. Finished units are kept in `out`; the same call
    goes on from there, with the same result.

    Args:
      data: Folder; see trials.read_trials.
      models: Some of `model_names()`; all by default.
      trials: Perturbed poses of each grasp; the robot tried each 5 times.
      seed: Of the noise. Grasp k draws from seed + k.
      gripper: Pads, friction and force: fixed beforehand.
      mass: kg. Of objects whose mass is not known.
      workers: Processes.
      out: Folder of the ledger.
      progress: Called with a line now and then.
    """
    chosen = tuple(models or model_names())
    for name in chosen:
        get_model(name)
    if trials < 1:
        raise JawsError(f"trials is {trials}; a robustness needs at least one")
    physical = read_trials(data, mass=mass)
    work = {"format": "fistful jaws compare", "trials": trials, "seed": seed, **_what(physical, gripper)}
    ledger = Ledger(out / "units.jsonl", work)
    units = [
        Trial(f"{name} {grasp.name} {k}", name, grasp.resting, pose, gripper)
        for name in chosen
        for number, grasp in enumerate(physical)
        for k, pose in enumerate(perturbed(grasp.grasp, trials, seed + number))
    ]
    run_units(ledger, units, workers, progress)
    results = [grasp.results for grasp in physical]
    rows = []
    for name in chosen:
        done = [[ledger[f"{name} {g.name} {k}"] for k in range(trials)] for g in physical]
        robustness = [float(np.mean([unit["held"] for unit in of])) for of in done]
        seconds = float(np.mean([unit["cpu_s"] for of in done for unit in of]))
        rows.append(
            {
                "model": name,
                **asdict(scores(robustness, results)),
                "cpu_s_per_grasp": seconds,
                "unconverged_steps": sum(unit["unconverged_steps"] for of in done for unit in of),
                "robustness": robustness,
            }
        )
    base = asdict(always_success(results))
    return {
        "models": rows,
        "always_success": base,
        "grasps": [g.name for g in physical],
        "physical": [g.robustness for g in physical],
        **work,
    }


def grid(
    data: Path | str,
    *,
    moduli: Sequence[float] = MODULI,
    frictions: Sequence[float] = FRICTIONS,
    gripper: Gripper = GRIPPER,
    mass: float | None = None,
    workers: int = 1,
    out: Path,
    progress: Say = lambda _: None,
) -> dict[str, Any]:
    """Scores of the simulator for every E, mu and pad shape, as JSON-able values.

    Each physical grasp is simulated once, unperturbed, so its predicted robustness is 0 or 1.
    """
    physical = read_trials(data, mass=mass)
    results = [grasp.results for grasp in physical]
    pads = {"rectangular": replace(gripper.pad, outline=_rectangular(gripper)), "rounded": gripper.pad}
    work = {"format": "fistful jaws grid", **_what(physical, gripper)}
    ledger = Ledger(out / "units.jsonl", work)
    cells = [(shape, E, mu) for shape in pads for E in moduli for mu in frictions]
    units = []
    for shape, E, mu in cells:
        pad = replace(pads[shape], youngs_modulus=E)
        changed = replace(gripper, pad=pad, friction=mu)
        units += [
            Trial(f"{shape} {E:g} {mu:g} {g.name}", "ipc", g.resting, g.grasp, changed) for g in physical
        ]
    run_units(ledger, units, workers, progress)
    rows = []
    for shape, E, mu in cells:
        done = [ledger[f"{shape} {E:g} {mu:g} {g.name}"] for g in physical]
        predicted = [float(unit["held"]) for unit in done]
        seconds = float(np.mean([unit["cpu_s"] for unit in done]))
        rows.append(
            {
                "pad": shape,
                "youngs_modulus": E,
                "friction": mu,
                **asdict(scores(predicted, results)),
                "cpu_s_per_grasp": seconds,
                "unconverged_steps": sum(unit["unconverged_steps"] for unit in done),
            }
        )
    return {"cells": rows, "always_success": asdict(always_success(results)), **work}


def run_units(ledger: Ledger, units: Sequence[Trial], workers: int, progress: Say) -> None:
    """Do what the ledger does not have yet, and keep it there."""
    todo = [unit for unit in units if unit.key not in ledger]
    verdicts = in_processes(judge, todo, workers)
    for done, (unit, verdict) in enumerate(zip(todo, verdicts, strict=True), len(units) - len(todo) + 1):
        ledger.add(unit.key, verdict._asdict())
        progress(f"{done} of {len(units)}: {unit.key}: {verdict.reason}")


class Verdict(NamedTuple):
    """What a model says of one grasp."""

    held: bool
    cpu_s: float
    reason: str
    unconverged_steps: int
    """Of a simulation; 0 for other models."""


def judge(unit: Trial) -> Verdict:
    """Whether a grasp holds, at what cost, and why."""
    began = time.process_time()
    if unit.model == "ipc":
        from fistful.jaws.robustness import Job, run
        from fistful.jaws.simulation import Settings

        outcome = run(Job(unit.resting, unit.grasp, unit.gripper, Settings()))
        return Verdict(outcome.success, outcome.cpu_s, str(outcome.reason), outcome.unconverged_steps)
    held = bool(get_model(unit.model).outcomes(unit.resting, [unit.grasp], unit.gripper)[0])
    return Verdict(held, time.process_time() - began, "held" if held else "fails", 0)


def _what(physical: Sequence[PhysicalGrasp], gripper: Gripper) -> dict[str, Any]:
    """What decides every unit: data, gripper, settings and version."""
    from fistful.jaws.simulation import Settings

    parts = []
    for g in physical:
        r = g.resting
        parts += [g.name, r.item.key, r.mass, r.p_WO.tolist(), r.R_WO.tolist()]
        parts += [g.grasp.p_WG.tolist(), g.grasp.R_WG.tolist(), list(g.results)]
    return {
        "data": content_key(json.dumps(parts)),
        "gripper": gripper_record(gripper),
        "settings": asdict(Settings()),
        "fistful": __version__,
    }


def gripper_record(gripper: Gripper) -> dict[str, Any]:
    """A gripper as JSON-able values."""
    record = asdict(gripper)
    record["pad"]["outline"] = np.round(gripper.pad.outline, 9).tolist()
    return record


def _rectangular(gripper: Gripper) -> np.ndarray:
    """The bounding rectangle of the pad, at the same place."""
    low, high = gripper.pad.outline.min(axis=0), gripper.pad.outline.max(axis=0)
    return rectangle(*(high - low)) + (low + high) / 2
