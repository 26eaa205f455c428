"""What sets the models of soft jaws apart, and what would make the simulator fit the physical trials better.

python benchmarks/jaws_models.py penetration --data DIR [--count 25] [--picture PNG] [--json OUT]
python benchmarks/jaws_models.py study --data DIR [--trials 3] [--workers 1] [--json OUT]

penetration: how far pads and object overlap in the penalty model, untuned and tuned, and in the simulator, on
the same grasps; and one grasp side by side, cut open.
study: one setting at a time is changed from the paper's (BASE below), and every physical
grasp is simulated again. Which change fits best is chosen without the grasp it is then judged on (leave one
out).

DIR holds the physical trials (see fistful.jaws.trials). Finished simulations are kept in --out; the same
command goes on from there.
"""

import argparse
import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # One thread for each simulation, also in this process.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from PIL import Image

from fistful.errors import JawsError
from fistful.jaws.comparison import what_decides
from fistful.jaws.contact import Contact, Surfaces
from fistful.jaws.gripper import Gripper
from fistful.jaws.ledger import Ledger
from fistful.jaws.metrics import always_success
from fistful.jaws.models import get_model
from fistful.jaws.outcome import Frame, Recording
from fistful.jaws.penalty import Penalty, PenaltySettings, overlap_mm
from fistful.jaws.penalty import simulate as penalty_simulate
from fistful.jaws.processes import in_processes
from fistful.jaws.robustness import Robustness, perturbed_units, robustness_of_each
from fistful.jaws.simulation import Settings
from fistful.jaws.start import BlockedError
from fistful.jaws.trial import simulate
from fistful.jaws.trials import GRIPPER, PhysicalGrasp, read_trials
from fistful.objects.object import Object
from fistful.view.section import section_picture

BASE = replace(GRIPPER, closing_speed=0.125)
"""What both studies start from: the gripper of the trials, at the closing speed of the paper."""
DEFAULT = "default"
CONTROL = "default, other poses"
CHANGES: dict[str, tuple[dict[str, Any], ...]] = {
    "jaw stiffness": ({"stiffness": 3e4}, {"stiffness": 1e4}, {"stiffness": 3e3}),
    "bending jaws": tuple({"stiffness": k, "jaw_length": 0.06} for k in (3e4, 1e4, 3e3)),
    "ground friction": ({"ground_friction": 0.05}, {"ground_friction": 0.3}, {"ground_friction": 0.5}),
    "closing speed": ({"closing_speed": 0.03}, {"closing_speed": 0.25}),
    "friction": ({"friction": 0.3}, {"friction": 0.6}),
    "stop rule": ({"stop": "energy"},),
    "closing force": ({"closing_force": 10.0}, {"closing_force": 40.0}),
}
"""Of the gripper, one at a time, by family."""
OTHER_SEED = 1000  # Of the control: the defaults on other perturbed poses.


MODELS = ("mujoco-untuned", "mujoco", "ipc")
"""What `penetration` compares."""
VISIBLE_MM = 0.1
"""An overlap that counts."""


class Variant(NamedTuple):
    """A gripper that differs from the default in one setting."""

    family: str
    name: str
    gripper: Gripper


class Choice(NamedTuple):
    """What comes of choosing a variant by its error on other grasps."""

    chosen: tuple[int, ...]  # for each grasp, the variant that is best on all others
    mae: float  # mean error of each grasp under the variant chosen without it
    hindsight: int  # the variant that is best on all grasps
    hindsight_mae: float


def leave_one_out(errors: np.ndarray) -> Choice:
    """The honest error of a setting that is chosen on the data. No I/O.

    Grasp i is predicted by v(i) = argmin_v sum_(j != i) e_vj, so its own result plays no part in the choice;
    the error is the mean of e_(v(i), i). Of equally good variants the first is chosen: put the default there.

    Args:
      errors: (V, N) float. |predicted - physical robustness| of N >= 2 grasps under V variants.
    """
    others = errors.sum(axis=1, keepdims=True) - errors
    # Robustness is a fraction of few trials: ties are common, and must not be broken by rounding.
    chosen = np.argmin(np.round(others, 9), axis=0)
    best = int(np.argmin(np.round(errors.sum(axis=1), 9)))
    honest = errors[chosen, np.arange(errors.shape[1])].mean()
    return Choice(tuple(int(v) for v in chosen), float(honest), best, float(errors[best].mean()))


def variants() -> list[Variant]:
    """The default first."""
    changed = [
        Variant(family, ", ".join(f"{k} {v}" for k, v in change.items()), replace(BASE, **change))
        for family, changes in CHANGES.items()
        for change in changes
    ]
    return [Variant(DEFAULT, DEFAULT, BASE), *changed]


def study(options: argparse.Namespace) -> dict[str, Any]:
    """What would improve the fit to the physical grasps, judged on grasps that had no part in the choice."""
    physical = read_trials(options.data)
    work = {
        "format": "fistful jaws study",
        "trials": options.trials,
        "seed": options.seed,
        **what_decides(physical, BASE),
    }
    tried = variants()
    # The control comes second, so that what noise alone does is known early.
    rows = [(DEFAULT, BASE, options.seed), (CONTROL, BASE, options.seed + OTHER_SEED)]
    rows += [(v.name, v.gripper, options.seed) for v in tried[1:]]
    poses = [
        perturbed_units(
            f"{name} {g.name}", "ipc", g.resting, g.grasp, gripper, trials=options.trials, seed=seed + number
        )
        for name, gripper, seed in rows
        for number, g in enumerate(physical)
    ]
    with Ledger(options.out / "study.jsonl", work) as ledger:
        found = iter(robustness_of_each(poses, options.workers, ledger=ledger, progress=_say))
    names = [name for name, _, _ in rows]
    table = {name: _row(list(islice(found, len(physical))), physical) for name in names}
    choices = choices_by_family(tried, {name: row["error"] for name, row in table.items()})
    base = always_success([g.results for g in physical]).mae
    _print_study(names, table, choices)
    print(f"always success: MAE {base:.3f}")
    return {
        **work,
        "grasps": [g.name for g in physical],
        "physical": [g.robustness for g in physical],
        "always_success_mae": base,
        "variants": table,
        "choices": choices,
    }


def _row(found: Sequence[Robustness], physical: Sequence[PhysicalGrasp]) -> dict[str, Any]:
    """Robustness and errors of a variant, by grasp."""
    error = [abs(r.value - g.robustness) for r, g in zip(found, physical, strict=True)]
    return {
        "robustness": [r.value for r in found],
        "error": error,
        "mae": float(np.mean(error)),
        "reasons": dict(Counter(reason for r in found for reason in r.reasons)),
        "cpu_s_per_grasp": float(np.mean([r.cpu_s for r in found])),
    }


def choices_by_family(tried: Sequence[Variant], error: dict[str, list[float]]) -> list[dict[str, Any]]:
    """The leave-one-out result of each family with the default, and of all variants together."""
    families = [v.family for v in tried[1:]]
    groups = {f: [tried[0], *(v for v in tried[1:] if v.family == f)] for f in dict.fromkeys(families)}
    groups["all"] = list(tried)
    rows = []
    for family, group in groups.items():
        found = leave_one_out(np.array([error[v.name] for v in group]))
        times = Counter(group[v].name for v in found.chosen)
        rows.append(
            {
                "family": family,
                "variants": len(group),
                "default_mae": float(np.mean(error[DEFAULT])),
                "leave_one_out_mae": found.mae,
                "hindsight_mae": found.hindsight_mae,
                "hindsight": group[found.hindsight].name,
                "chosen": dict(times.most_common()),
            }
        )
    return rows


def _print_study(
    names: Sequence[str], table: dict[str, dict[str, Any]], choices: list[dict[str, Any]]
) -> None:
    default = table[DEFAULT]["robustness"]
    print(f"{'variant':22} {'MAE':>6} {'grasps that differ':>18} {'blocked':>7} {'lost':>5} {'CPU s':>6}")
    for name in names:
        row = table[name]
        differ = sum(a != b for a, b in zip(row["robustness"], default, strict=True))
        blocked, lost = (
            sum(row["reasons"].get(r, 0) for r in of) for of in (("blocked",), ("unconverged", "budget"))
        )
        print(f"{name:22} {row['mae']:6.3f} {differ:18} {blocked:7} {lost:5} {row['cpu_s_per_grasp']:6.2f}")
    print(f"\n{'family':16} {'default':>8} {'leave one out':>13} {'in hindsight':>12}  chosen")
    for row in choices:
        chosen = ", ".join(f"{name} ({n})" for name, n in row["chosen"].items())
        print(
            f"{row['family']:16} {row['default_mae']:8.3f} {row['leave_one_out_mae']:13.3f} "
            f"{row['hindsight_mae']:12.3f}  {chosen}"
        )
    print()


class Probe(NamedTuple):
    """One grasp for one model, to be looked at for overlaps."""

    model: str
    physical: PhysicalGrasp

    @property
    def key(self) -> str:
        """In the ledger."""
        return f"{self.model} {self.physical.name}"


class Watched(NamedTuple):
    """A grasp that was simulated with all its frames."""

    held: bool
    reason: str
    cpu_s: float
    recording: Recording | None  # None if it could not start
    squeezed: int  # number of the frame in which the squeeze ended, or of the last one


def watch(probe: Probe) -> Watched:
    """Simulate a physical grasp as it was planned, unperturbed."""
    resting, grasp = probe.physical.resting, probe.physical.grasp
    if probe.model == "ipc":
        try:
            done = simulate(resting, grasp, BASE, record=True)
        except BlockedError:
            return Watched(False, "blocked", 0.0, None, 0)
        squeezed = max(0, len(done.lifting) - int(done.lifting.sum()) - 1)
        return Watched(done.success, str(done.reason), done.cpu_s, done.recording, squeezed)
    model = get_model(probe.model)
    assert isinstance(model, Penalty)
    ended = penalty_simulate(resting, grasp, BASE, model.settings, record=True)
    kept = ended.recording
    # Its frames do not say when the lift began: up to then the object stands on the plane.
    low = [_lowest(resting.item, f) < 1e-4 for f in kept.frames] if kept else []
    return Watched(ended.held, ended.reason, ended.cpu_s, kept, max(0, sum(low) - 1))


def _lowest(item: Object, frame: Frame) -> float:
    return float((item.vertices @ frame.R_WO.T + frame.p_WO)[:, 2].min())


def depths_mm(item: Object, recording: Recording) -> list[float]:
    """The deepest overlap in each frame."""
    return [overlap_mm(item, recording.faces, f.nodes_W, f.p_WO, f.R_WO) for f in recording.frames]


def intersects(item: Object, recording: Recording, frame: Frame) -> bool:
    """Does the surface of a pad cut that of the object? By ipctk, for every model alike."""
    object_W = item.vertices @ frame.R_WO.T + frame.p_WO
    parts = [*np.asarray(frame.nodes_W, float), object_W]
    first = np.cumsum([0, *(len(x) for x in parts)])
    faces = [f + n for f, n in zip([*recording.faces, item.faces], first, strict=False)]
    surfaces = Surfaces(
        vertices=np.concatenate(parts),
        faces=np.concatenate(faces).astype(np.int32),
        part=np.repeat([0, 1, 2], np.diff(first)).astype(np.int32),
    )
    contact = Contact(surfaces, Settings().dhat, BASE.friction)
    return contact.intersects(surfaces.vertices, everywhere=True)


def probe_record(probe: Probe) -> dict[str, Any]:
    """What the ledger keeps of a grasp; overlaps are None if it could not start."""
    seen, item = watch(probe), probe.physical.resting.item
    record = {"held": seen.held, "reason": seen.reason, "cpu_s": seen.cpu_s}
    if seen.recording is None:
        return {**record, "worst_mm": None, "end_mm": None, "cut": None, "cut_at_end": None}
    deep = depths_mm(item, seen.recording)
    cut = [intersects(item, seen.recording, f) for f in seen.recording.frames]
    return {**record, "worst_mm": max(deep), "end_mm": deep[-1], "cut": sum(cut), "cut_at_end": cut[-1],
            "frames": len(deep)}  # fmt: skip


def penetration(options: argparse.Namespace) -> dict[str, Any]:
    """How far pads and object overlap in the penalty model and in the simulator, on the same grasps."""
    physical = read_trials(options.data)[: options.count]
    work = {
        "format": "fistful jaws penetration",
        "penalty": asdict(PenaltySettings()),
        **what_decides(physical, BASE),
    }
    with Ledger(options.out / "penetration.jsonl", work) as ledger:
        probes = [Probe(model, grasp) for grasp in physical for model in MODELS]
        todo = [probe for probe in probes if probe.key not in ledger]
        for probe, record in zip(todo, in_processes(probe_record, todo, options.workers), strict=True):
            ledger.add(probe.key, record)
            _say(f"{probe.key}: {record['reason']}, {record['worst_mm']} mm")
        done = {m: {g.name: ledger[Probe(m, g).key] for g in physical} for m in MODELS}
    rows = [{"model": model, **overlap_row(list(done[model].values()))} for model in MODELS]
    print(f"{'':15} {'grasps':>6} {'median mm':>9} {'max mm':>7} {'> 0.1 mm':>8} {'ever cut':>8} "
          f"{'cut at end':>10} {'held':>5} {'CPU s':>6}")  # fmt: skip
    for r in rows:
        print(f"{r['model']:15} {r['grasps']:6} {r['median_mm']:9.3f} {r['max_mm']:7.3f} {r['visible']:8} "
              f"{r['ever_cut']:8} {r['cut_at_end']:10} {r['held']:5} {r['cpu_s']:6.2f}")  # fmt: skip
    shown = typical(done) if options.grasp is None else options.grasp
    if options.picture:
        options.picture.parent.mkdir(parents=True, exist_ok=True)
        picture(next(g for g in physical if g.name == shown)).save(options.picture)
        _say(f"{options.picture}: {shown}")
    return {**work, "rows": rows, "grasps": done, "shown": shown}


def typical(done: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Of the grasps that `ipc` holds, the one with the median overlap of untuned pads and object."""
    untuned = done["mujoco-untuned"]
    names = [name for name, r in done["ipc"].items() if r["held"] and untuned[name]["worst_mm"]]
    return sorted(names, key=lambda name: untuned[name]["worst_mm"])[len(names) // 2]


def overlap_row(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One row of the table; grasps that could not start are left out, and their number is given."""
    ran = [r for r in records if r["worst_mm"] is not None]
    worst = np.array([r["worst_mm"] for r in ran])
    return {
        "grasps": len(ran),
        "not_started": len(records) - len(ran),
        "median_mm": float(np.median(worst)),
        "max_mm": float(worst.max()),
        "visible": int((worst > VISIBLE_MM).sum()),
        "ever_cut": sum(r["cut"] > 0 for r in ran),
        "cut_at_end": sum(r["cut_at_end"] for r in ran),
        "held": sum(r["held"] for r in ran),
        "cpu_s": float(np.mean([r["cpu_s"] for r in ran])),
    }


def picture(physical: PhysicalGrasp) -> Image.Image:
    """A grasp in `mujoco-untuned` and in `ipc`, cut open between pads and seen from the palm.

    Each is shown when pads and object overlap most; without any overlap, at the end of the squeeze.
    """
    item, moments = physical.resting.item, []
    for model in ("mujoco-untuned", "ipc"):
        seen = watch(Probe(model, physical))
        if seen.recording is None:
            raise JawsError(f"{physical.name} can not be drawn: in {model} it is {seen.reason}")
        deep = depths_mm(item, seen.recording)
        frame = seen.recording.frames[int(np.argmax(deep)) if max(deep) > 0 else seen.squeezed]
        moments.append((f"{model}: {max(deep):.1f} mm deep", seen.recording, frame))
    return section_picture(item, physical.grasp, moments)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    studies = parser.add_subparsers(dest="study", required=True)
    one = studies.add_parser("penetration", help=penetration.__doc__)
    one.set_defaults(run=penetration)
    one.add_argument("--count", type=int, help="how many of the grasps, by default all")
    one.add_argument("--picture", type=Path, help="PNG of one grasp to write")
    one.add_argument("--grasp", help="name of the grasp in the picture, by default the typical one")
    two = studies.add_parser("study", help=study.__doc__)
    two.set_defaults(run=study)
    two.add_argument("--trials", type=int, default=3, help="perturbed poses of each grasp, default 3")
    two.add_argument("--seed", type=int, default=0)
    for sub in (one, two):
        sub.add_argument("--data", type=Path, required=True, help="folder of physical trials")
        sub.add_argument("--workers", type=int, default=1, help="processes, default 1")
        sub.add_argument("--out", type=Path, default=Path("runs/jaws_models"), help="folder of the ledgers")
        sub.add_argument("--json", type=Path, help="where to write the results")
    options = parser.parse_args()
    result = options.run(options)
    if options.json:
        machine = {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "load": os.getloadavg(),
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"study": options.study, "machine": machine, **result}, indent=1))


if __name__ == "__main__":
    main()
