"""Models against physical trials: Table 4.2 of IPC-GraspSim, and its grids of E and mu (Tables 3.1, 3.2)."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from fistful import __version__
from fistful.errors import JawsError
from fistful.jaws.gripper import Gripper, rectangle
from fistful.jaws.ledger import Ledger
from fistful.jaws.metrics import always_success, scores
from fistful.jaws.models import get_model, model_names
from fistful.jaws.robustness import (
    TRIALS,
    Robustness,
    Say,
    Unit,
    perturbed_units,
    robustness_of_each,
)
from fistful.jaws.simulation import Settings
from fistful.jaws.start import check_gripper
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


def compare(
    data: Path | str,
    *,
    models: Sequence[str] | None = None,
    trials: int = TRIALS,
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
    physical = read_trials(data, mass=mass)
    work = {
        "format": "fistful jaws compare",
        "trials": trials,
        "seed": seed,
        **what_decides(physical, gripper),
    }
    asked = [
        perturbed_units(
            f"{name} {g.name}", name, g.resting, g.grasp, gripper, trials=trials, seed=seed + number
        )
        for name in chosen
        for number, g in enumerate(physical)
    ]
    with Ledger(out / "units.jsonl", work) as ledger:
        found = robustness_of_each(asked, workers, ledger=ledger, progress=progress)
    results = [grasp.results for grasp in physical]
    rows = []
    for k, name in enumerate(chosen):
        of_model = found[k * len(physical) : (k + 1) * len(physical)]
        values = [robustness.value for robustness in of_model]
        rows.append({"model": name, **_row(of_model, results), "robustness": values})
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
    work = {"format": "fistful jaws grid", **what_decides(physical, gripper)}
    cells = [(shape, E, mu) for shape in pads for E in moduli for mu in frictions]
    if not cells:
        raise JawsError("a grid needs at least one modulus and one friction")
    asked = []
    for shape, E, mu in cells:
        pad = replace(pads[shape], youngs_modulus=E)
        changed = replace(gripper, pad=pad, friction=mu)
        check_gripper(changed)
        asked += [
            [Unit(f"{shape} {E:g} {mu:g} {g.name}", "ipc", g.resting, g.grasp, changed)] for g in physical
        ]
    with Ledger(out / "units.jsonl", work) as ledger:
        found = robustness_of_each(asked, workers, ledger=ledger, progress=progress)
    rows = []
    for k, (shape, E, mu) in enumerate(cells):
        of_cell = found[k * len(physical) : (k + 1) * len(physical)]
        rows.append({"pad": shape, "youngs_modulus": E, "friction": mu, **_row(of_cell, results)})
    return {"cells": rows, "always_success": asdict(always_success(results)), **work}


def _row(found: Sequence[Robustness], results: Sequence[Sequence[bool]]) -> dict[str, Any]:
    """Scores of predictions for all grasps, what they cost, and how many steps failed."""
    return {
        **asdict(scores([robustness.value for robustness in found], results)),
        "cpu_s_per_grasp": float(np.mean([robustness.cpu_s for robustness in found])),
        "unconverged_steps": sum(robustness.unconverged_steps for robustness in found),
    }


def what_decides(physical: Sequence[PhysicalGrasp], gripper: Gripper) -> dict[str, Any]:
    """What decides every unit: data, gripper, settings and version."""
    parts = []
    for g in physical:
        r = g.resting
        parts += [g.name, r.item.key, r.mass, r.p_WO.tolist(), r.R_WO.tolist()]
        parts += [g.grasp.p_WG.tolist(), g.grasp.R_WG.tolist(), list(g.results)]
    return {
        "data": content_key(json.dumps(parts)),
        "gripper": gripper.record(),
        "settings": asdict(Settings()),
        "fistful": __version__,
    }


def _rectangular(gripper: Gripper) -> np.ndarray:
    """The bounding rectangle of the pad, at the same place."""
    low, high = gripper.pad.outline.min(axis=0), gripper.pad.outline.max(axis=0)
    return rectangle(*(high - low)) + (low + high) / 2
