"""`fistful jaws`: soft parallel jaws, simulated with Incremental Potential Contact."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro

from fistful.cli.console import (
    RUNS,
    Interrupted,
    print_json,
    save_picture,
    say,
    say_where,
    show,
    steps,
    table,
)
from fistful.cli.jaws_options import GraspOptions, GripperOptions, ObjectOptions, planned
from fistful.errors import JawsError

if TYPE_CHECKING:
    from fistful.jaws.grasp import JawGrasp, Resting
    from fistful.jaws.gripper import Gripper
    from fistful.jaws.outcome import JawOutcome

OBJECT = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="OBJECT")]
Out = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]


@dataclass(frozen=True, kw_only=True)
class GraspCommand:
    """Plan grasps of an object, rank them by simulated robustness, and show the best.

    The folder gets a table of all grasps, a picture, an animation, and the frames for `fistful view DIR`.
    """

    object: OBJECT
    """Built-in object, or path to a mesh."""
    count: int = 5
    """Planned grasps to simulate."""
    trials: int = 3
    """Perturbed poses of each."""
    seed: int = 0
    """Same seed, same grasps and noise."""
    workers: int = 2
    """Processes."""
    target: ObjectOptions = field(default_factory=ObjectOptions)
    gripper: GripperOptions = field(default_factory=GripperOptions)
    out: Out = None
    """Folder for the result. Default: runs/jaws-1, or the next number that is free."""
    no_picture: bool = False
    """Draw neither picture nor animation."""
    json: bool = False
    """Print one JSON document instead of a table."""

    def run(self) -> None:
        """Print to standard output; write the folder."""
        from fistful.jaws.perturbation import perturbed
        from fistful.jaws.robustness import Job, simulate_all
        from fistful.jaws.simulation import Settings

        if min(self.count, self.trials, self.workers) < 1:
            raise JawsError("count, trials and workers are at least 1")
        folder = _folder(self.out)
        gripper, resting = self.gripper.made(), self.target.resting(self.object)
        found = planned(resting, gripper, self.count, self.seed)
        poses = [pose for grasp in found for pose in perturbed(grasp, self.trials, self.seed)]
        jobs = [Job(resting, pose, gripper, Settings()) for pose in poses]
        outcomes = []
        try:
            with steps("simulating") as step:
                for outcome in simulate_all(jobs, self.workers):
                    outcomes.append(outcome)
                    step(f"{len(outcomes)} of {len(jobs)} lifts")
        except KeyboardInterrupt:
            raise Interrupted(f"{len(outcomes)} of {len(jobs)} lifts were simulated; none is kept") from None
        rows = [
            _grasp_row(k, grasp, outcomes[k * self.trials : (k + 1) * self.trials])
            for k, grasp in enumerate(found)
        ]
        ranked = sorted(rows, key=lambda row: (-row["robustness"], row["candidate"]))
        best = found[ranked[0]["candidate"]]
        outcome = _recorded(resting, best, gripper, folder, draw=not self.no_picture, ranked=ranked)
        if self.json:
            print_json({"out": folder, "grasps": ranked, "best": outcome})
            return
        lines = table("grasp>>", "robustness>>", "moved mm>>", "CPU s>>", "what happened")
        for row in ranked:
            told = ", ".join(f"{n} x {r}" for r, n in _counted(row["reasons"]))
            lines.add_row(
                str(row["candidate"]),
                f"{row['robustness']:.2f}",
                f"{row['displacement_mm']:.1f}",
                f"{row['cpu_s']:.2f}",
                told,
            )
        show(lines)
        print(f"robustness: mean of {self.trials} simulated lifts with noise of 1 mm and 3 mrad")
        _tell_unconverged(rows)
        print(f"best grasp, unperturbed: {outcome['reason']}")


@dataclass(frozen=True, kw_only=True)
class SimulateCommand:
    """Simulate one grasp: close, squeeze, lift. Keeps every frame for `fistful view DIR`."""

    object: OBJECT
    """Built-in object, or path to a mesh."""
    grasp: GraspOptions = field(default_factory=GraspOptions)
    target: ObjectOptions = field(default_factory=ObjectOptions)
    gripper: GripperOptions = field(default_factory=GripperOptions)
    out: Out = None
    """Folder for the result. Default: runs/jaws-1, or the next number that is free."""
    no_picture: bool = False
    """Draw neither picture nor animation."""
    json: bool = False
    """Print one JSON document instead of lines."""

    def run(self) -> None:
        """Print to standard output; write the folder. Exit code 0 also if the object is not held."""
        folder = _folder(self.out)
        gripper, resting = self.gripper.made(), self.target.resting(self.object)
        grasp = self.grasp.chosen(resting, gripper)
        outcome = _recorded(resting, grasp, gripper, folder, draw=not self.no_picture)
        if self.json:
            print_json({"out": folder, **outcome})
            return
        for name, value in outcome.items():
            if value not in (None, []):
                shown = f"{value:.4g}" if isinstance(value, float) else value
                print(f"{name.replace('_', ' '):26} {shown}")


@dataclass(frozen=True, kw_only=True)
class RobustnessCommand:
    """Robustness of one grasp: the share of perturbed poses (1 mm, 3 mrad) that hold, by any model."""

    object: OBJECT
    """Built-in object, or path to a mesh."""
    model: str = "ipc"
    """soft-point, reach, 6dfc, mujoco, mujoco-untuned or ipc."""
    trials: int = 5
    """Perturbed poses."""
    workers: int = 2
    """Processes."""
    grasp: GraspOptions = field(default_factory=GraspOptions)
    target: ObjectOptions = field(default_factory=ObjectOptions)
    gripper: GripperOptions = field(default_factory=GripperOptions)
    json: bool = False
    """Print one JSON document instead of lines."""

    def run(self) -> None:
        """Print to standard output."""
        from fistful.jaws.comparison import Trial, judge
        from fistful.jaws.models import get_model
        from fistful.jaws.perturbation import perturbed
        from fistful.jaws.processes import in_processes

        get_model(self.model)
        if min(self.trials, self.workers) < 1:
            raise JawsError("trials and workers are at least 1")
        gripper, resting = self.gripper.made(), self.target.resting(self.object)
        grasp = self.grasp.chosen(resting, gripper)
        poses = perturbed(grasp, self.trials, self.grasp.seed)
        units = [Trial(str(k), self.model, resting, pose, gripper) for k, pose in enumerate(poses)]
        judged = []
        with steps("simulating") as step:
            for done in in_processes(judge, units, self.workers):
                judged.append(done)
                step(f"{len(judged)} of {self.trials}")
        value = float(np.mean([verdict.held for verdict in judged]))
        seconds = float(np.mean([verdict.cpu_s for verdict in judged]))
        reasons = [verdict.reason for verdict in judged]
        _tell_unconverged([verdict._asdict() for verdict in judged])
        if self.json:
            print_json({"model": self.model, "robustness": value, "cpu_s": seconds, "reasons": reasons})
        else:
            told = ", ".join(f"{n} x {r}" for r, n in _counted(reasons))
            print(f"robustness {value:.2f} by {self.model}: {told}; {seconds:.3f} CPU s a pose")


@dataclass(frozen=True, kw_only=True)
class CompareCommand:
    """Compare models with physical trials: Table 4.2 of IPC-GraspSim, on the data at hand.

    Finished units are kept: the same command goes on after Ctrl-C.
    """

    data: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder with object_meshes/NAME.obj and phys_grasps_json/NAME.json."""
    models: str = "soft-point,reach,6dfc,mujoco,mujoco-untuned,ipc"
    """Some of these, separated by commas."""
    trials: int = 5
    """Perturbed poses of each grasp."""
    seed: int = 0
    """Same seed, same noise for all models."""
    workers: int = 2
    """Processes."""
    out: Out = None
    """Folder for units and tables. Default: runs/jaws-compare."""
    mass_g: float | None = None
    """Mass in grams of objects whose mass is not known; the cube's is."""
    json: bool = False
    """Print one JSON document instead of the table; it is written to the folder in any case."""

    def run(self) -> None:
        """Print to standard output; write the folder."""
        from fistful.jaws.comparison import PUBLISHED, compare

        out = self.out or RUNS / "jaws-compare"
        names = tuple(m for m in self.models.split(",") if m)
        result = _long(
            out,
            lambda step: compare(
                self.data,
                models=names,
                trials=self.trials,
                seed=self.seed,
                mass=_kilograms(self.mass_g),
                workers=self.workers,
                out=out,
                progress=step,
            ),
        )
        _write_result(result, out / "compare.json", shown=self.json)
        if self.json:
            return
        ours, theirs = ("AP>>", "AR>>", "F1>>"), ("paper: AP>>", "AR>>", "F1>>", "s>>")
        lines = table("model", *ours, "MAE>>", "balanced acc.>>", "CPU s>>", *theirs)
        for row in [*result["models"], {"model": "always success", **result["always_success"]}]:
            theirs = PUBLISHED.get(row["model"])
            cost = f"{row['cpu_s_per_grasp']:.3f}" if "cpu_s_per_grasp" in row else "-"
            ours = [f"{row[k]:.3f}" for k in ("ap", "ar", "f1", "mae", "balanced_accuracy")]
            lines.add_row(row["model"], *ours, cost, *(("",) * 4 if theirs is None else map(str, theirs)))
        show(lines)
        _tell_unconverged(result["models"])
        print(
            f"{len(result['grasps'])} grasps, {self.trials} perturbed poses each. MAE: of robustness. The "
            "paper's rows are over 13 objects (Isaac Gym beside mujoco); AR counts threshold 0, where every "
            "model has recall 1"
        )
        say_where("result", out / "compare.json")


@dataclass(frozen=True, kw_only=True)
class GridCommand:
    """Score the simulator for every pad stiffness, friction and pad shape: Tables 3.1 and 3.2.

    Every physical grasp is simulated once, as recorded. Finished units are kept, as in compare.
    """

    data: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder with object_meshes/NAME.obj and phys_grasps_json/NAME.json."""
    moduli: tuple[float, ...] = (1e5, 1e6, 1e7, 1e8, 1e9)
    """Pa. The paper's 1e7 to 1e11 in SI units."""
    frictions: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6)
    """Between pads and object."""
    stop: Literal["force", "energy"] = "energy"
    """What ends the squeeze; energy, as in the paper."""
    workers: int = 2
    """Processes."""
    out: Out = None
    """Folder for units, table and heat map. Default: runs/jaws-grid."""
    mass_g: float | None = None
    """Mass in grams of objects whose mass is not known; the cube's is."""
    json: bool = False
    """Print one JSON document instead of the table; it is written to the folder in any case."""

    def run(self) -> None:
        """Print to standard output; write the folder."""
        from dataclasses import replace

        from fistful.jaws.comparison import GRID_F1, MODULI, grid
        from fistful.jaws.trials import GRIPPER
        from fistful.view.heat_map import heat_map

        out = self.out or RUNS / "jaws-grid"
        gripper = replace(GRIPPER, stop=self.stop)
        result = _long(
            out,
            lambda step: grid(
                self.data,
                moduli=self.moduli,
                frictions=self.frictions,
                gripper=gripper,
                mass=_kilograms(self.mass_g),
                workers=self.workers,
                out=out,
                progress=step,
            ),
        )
        _write_result(result, out / "grid.json", shown=self.json)
        picture = out / "grid.png"
        save_picture(heat_map(result), picture)
        if self.json:
            return
        lines = table("pads", "E Pa>>", "mu>>", "F1>>", "MAE>>", "CPU s>>", "paper's F1>>")
        for cell in result["cells"]:
            E, mu = cell["youngs_modulus"], cell["friction"]
            known = E in MODULI and mu in (0.3, 0.4, 0.5, 0.6)
            theirs = GRID_F1[cell["pad"]][MODULI.index(E)][(0.3, 0.4, 0.5, 0.6).index(mu)] if known else None
            lines.add_row(
                cell["pad"], f"{E:.0e}", f"{mu:g}", f"{cell['f1']:.3f}", f"{cell['mae']:.3f}",
                f"{cell['cpu_s_per_grasp']:.2f}", "" if theirs is None else f"{theirs:.2f}",
            )  # fmt: skip
        show(lines)
        _tell_unconverged(result["cells"])
        base = result["always_success"]
        print(
            f"always success: F1 {base['f1']:.3f}, MAE {base['mae']:.3f}. The paper's F1 are of three other "
            "objects"
        )
        say_where("result", out / "grid.json")
        say_where("heat map", picture)


@dataclass(frozen=True, kw_only=True)
class Jaws:
    """Soft parallel jaws squeeze and lift an object, without intersections (IPC-GraspSim)."""

    command: (
        Annotated[GraspCommand, tyro.conf.subcommand("grasp")]
        | Annotated[SimulateCommand, tyro.conf.subcommand("simulate")]
        | Annotated[RobustnessCommand, tyro.conf.subcommand("robustness")]
        | Annotated[CompareCommand, tyro.conf.subcommand("compare")]
        | Annotated[GridCommand, tyro.conf.subcommand("grid")]
    )

    def run(self) -> None:
        """Do what was chosen."""
        self.command.run()


def _grasp_row(candidate: int, grasp: "JawGrasp", outcomes: "list[JawOutcome]") -> dict[str, Any]:
    """What came of the perturbed poses of one grasp."""
    return {
        "candidate": candidate,
        "robustness": float(np.mean([o.success for o in outcomes])),
        "reasons": [str(o.reason) for o in outcomes],
        "displacement_mm": float(np.mean([o.squeeze_displacement_mm for o in outcomes])),
        "unconverged_steps": sum(o.unconverged_steps for o in outcomes),
        "cpu_s": float(np.mean([o.cpu_s for o in outcomes])),
        "p_WG": grasp.p_WG.tolist(),
        "R_WG": grasp.R_WG.tolist(),
    }


def _recorded(
    resting: "Resting",
    grasp: "JawGrasp",
    gripper: "Gripper",
    folder: Path,
    *,
    draw: bool,
    ranked: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Simulate a grasp, save it with pictures, and say where; its outcome."""
    from fistful.jaws.jaw_run import JawRun
    from fistful.jaws.trial import simulate
    from fistful.storage import write_file
    from fistful.view.animation import save_gif
    from fistful.view.jaw_picture import jaw_animation, jaw_picture

    with steps("simulating"):
        outcome = simulate(resting, grasp, gripper, record=True)
    for line in outcome.notes:
        say(f"note: {line}")
    if outcome.unconverged_steps:
        say(f"note: {outcome.unconverged_steps} of {outcome.steps} steps did not converge")
    run = JawRun.of(resting, grasp, gripper, outcome)
    run.save(folder)
    if ranked is not None:
        text = (json.dumps(ranked, indent=1) + "\n").encode()
        write_file(folder / "grasps.json", lambda file: file.write(text))
    seen = bool(run.recording.frames)
    if draw and seen:
        with steps("drawing"):
            save_picture(jaw_picture(run), folder / "picture.png")
            save_gif(jaw_animation(run), folder / "animation.gif")
        say_where("picture", folder / "picture.png")
        say_where("animation", folder / "animation.gif")
    say_where("result", folder)
    if seen:
        say(f"look closer: fistful view {folder}")
    return run.record["outcome"]


def _folder(wanted: Path | None) -> Path:
    """The folder that is wanted, if it may be used, or the next one that is free. Needs ipctk."""
    from fistful.jaws.contact import load_ipctk
    from fistful.jaws.jaw_run import check_folder

    load_ipctk()
    if wanted is not None:
        check_folder(wanted)
        return wanted
    number = 1
    while (RUNS / f"jaws-{number}").exists():
        number += 1
    return RUNS / f"jaws-{number}"


def _long(out: Path, work: Any) -> dict[str, Any]:
    try:
        with steps("simulating") as step:
            return work(step)
    except KeyboardInterrupt:
        raise Interrupted(f"the same command with --out {out} goes on from there") from None


def _write_result(result: dict[str, Any], path: Path, *, shown: bool) -> None:
    from fistful.storage import write_file

    text = (json.dumps(_finite(result), indent=1) + "\n").encode()
    write_file(path, lambda file: file.write(text))
    if shown:
        print(text.decode(), end="")


def _finite(value: Any) -> Any:
    """The same with null for numbers that JSON does not have."""
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list | tuple) else value


def _tell_unconverged(rows: list[dict[str, Any]]) -> None:
    total = sum(row["unconverged_steps"] for row in rows)
    if total:
        say(f"note: {total} time steps did not converge")


def _kilograms(grams: float | None) -> float | None:
    if grams is not None and not grams > 0:
        raise JawsError(f"mass_g is {grams}; it has to be positive")
    return None if grams is None else 1e-3 * grams


def _counted(words: list[str]) -> list[tuple[str, int]]:
    """Each word with how often it is there, in the order of the first ones."""
    return [(word, words.count(word)) for word in dict.fromkeys(words)]
