"""`fistful jaws`: soft parallel jaws, simulated with Incremental Potential Contact."""

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
    on: ObjectOptions = field(default_factory=ObjectOptions)
    by: GripperOptions = field(default_factory=GripperOptions)
    out: Out = None
    """Folder for the result. Default: runs/jaws-1, or the next number that is free."""
    no_picture: bool = False
    """Draw neither picture nor animation."""
    json: bool = False
    """Print one JSON document instead of a table."""

    def run(self) -> None:
        """Print to standard output; write the folder."""
        from fistful.jaws.robustness import robustness

        if min(self.count, self.trials, self.workers) < 1:
            raise JawsError("count, trials and workers are at least 1")
        gripper, resting = self.by.gripper(), self.on.resting(self.object)
        found = planned(resting, gripper, self.count, self.seed)
        rows: list[dict[str, Any]] = []
        with steps("simulating") as step:
            for k, grasp in enumerate(found):
                step(f"grasp {k + 1} of {len(found)}")
                seen = robustness(
                    resting, grasp, gripper, count=self.trials, seed=self.seed, workers=self.workers
                )
                reasons = [str(o.reason) for o in seen.outcomes]
                moved = [o.squeeze_displacement_mm for o in seen.outcomes]
                rows.append(
                    {
                        "candidate": k,
                        "robustness": seen.value,
                        "reasons": reasons,
                        "displacement_mm": float(np.mean(moved)),
                        "unconverged_steps": sum(o.unconverged_steps for o in seen.outcomes),
                        "cpu_s": seen.cpu_s,
                        "p_WG": grasp.p_WG.tolist(),
                        "R_WG": grasp.R_WG.tolist(),
                    }
                )
        ranked = sorted(rows, key=lambda row: (-row["robustness"], row["candidate"]))
        best = found[ranked[0]["candidate"]]
        out, outcome = _recorded(resting, best, gripper, self.out, draw=not self.no_picture)
        if self.json:
            print_json({"out": out, "grasps": ranked, "best": outcome})
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
        print(f"best grasp, unperturbed: {outcome['reason']}")
        say(f"look closer: fistful view {out}")


@dataclass(frozen=True, kw_only=True)
class SimulateCommand:
    """Simulate one grasp: close, squeeze, lift. Keeps every frame for `fistful view DIR`."""

    object: OBJECT
    """Built-in object, or path to a mesh."""
    at: GraspOptions = field(default_factory=GraspOptions)
    on: ObjectOptions = field(default_factory=ObjectOptions)
    by: GripperOptions = field(default_factory=GripperOptions)
    out: Out = None
    """Folder for the result. Default: runs/jaws-1, or the next number that is free."""
    no_picture: bool = False
    """Draw neither picture nor animation."""
    json: bool = False
    """Print one JSON document instead of lines."""

    def run(self) -> None:
        """Print to standard output; write the folder. Exit code 0 also if the object is not held."""
        gripper, resting = self.by.gripper(), self.on.resting(self.object)
        grasp = self.at.grasp(resting, gripper)
        out, outcome = _recorded(resting, grasp, gripper, self.out, draw=not self.no_picture)
        if self.json:
            print_json({"out": out, **outcome})
            return
        for name, value in outcome.items():
            if value not in (None, []):
                shown = f"{value:.4g}" if isinstance(value, float) else value
                print(f"{name.replace('_', ' '):26} {shown}")
        say(f"look closer: fistful view {out}")


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
    at: GraspOptions = field(default_factory=GraspOptions)
    on: ObjectOptions = field(default_factory=ObjectOptions)
    by: GripperOptions = field(default_factory=GripperOptions)
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
        gripper, resting = self.by.gripper(), self.on.resting(self.object)
        grasp = self.at.grasp(resting, gripper)
        poses = perturbed(grasp, self.trials, self.at.seed)
        units = [Trial(str(k), self.model, resting, pose, gripper) for k, pose in enumerate(poses)]
        judged = []
        with steps("simulating") as step:
            for done in in_processes(judge, units, self.workers):
                judged.append(done)
                step(f"{len(judged)} of {self.trials}")
        value = float(np.mean([held for held, _, _ in judged]))
        seconds = float(np.mean([cpu for _, cpu, _ in judged]))
        reasons = [reason for _, _, reason in judged]
        if self.json:
            print_json({"model": self.model, "robustness": value, "cpu_s": seconds, "reasons": reasons})
        else:
            told = ", ".join(f"{n} x {r}" for r, n in _counted(reasons))
            print(f"robustness {value:.2f} by {self.model}: {told}; {seconds:.3f} CPU s a pose")


@dataclass(frozen=True, kw_only=True)
class CompareCommand:
    """Compare models with physical trials: Table 4.2 of IPC-GraspSim, on the data at hand.

    Finished units are kept: the same command goes on after Ctrl-C. All settings decide the result but
    --workers.
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
    json: Annotated[Path | None, tyro.conf.arg(metavar="OUT")] = None
    """File for the result as one JSON document; - prints it instead of the table."""

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
                workers=self.workers,
                out=out,
                progress=step,
            ),
        )
        _write_result(result, out / "compare.json", self.json)
        if str(self.json) == "-":
            return
        ours, theirs = ("AP>>", "AR>>", "F1>>"), ("paper: AP>>", "AR>>", "F1>>", "s>>")
        lines = table("model", *ours, "MAE>>", "balanced acc.>>", "CPU s>>", *theirs)
        for row in [*result["models"], {"model": "always success", **result["always_success"]}]:
            theirs = PUBLISHED.get(row["model"])
            cost = f"{row['cpu_s_per_grasp']:.3f}" if "cpu_s_per_grasp" in row else "-"
            ours = [f"{row[k]:.3f}" for k in ("ap", "ar", "f1", "mae", "balanced_accuracy")]
            lines.add_row(row["model"], *ours, cost, *(("",) * 4 if theirs is None else map(str, theirs)))
        show(lines)
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
    json: Annotated[Path | None, tyro.conf.arg(metavar="OUT")] = None
    """File for the result as one JSON document; - prints it instead of the table."""

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
                workers=self.workers,
                out=out,
                progress=step,
            ),
        )
        _write_result(result, out / "grid.json", self.json)
        picture = out / "grid.png"
        save_picture(heat_map(result), picture)
        if str(self.json) == "-":
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


def _recorded(
    resting: "Resting", grasp: "JawGrasp", gripper: "Gripper", wanted: Path | None, *, draw: bool
) -> tuple[Path, dict[str, Any]]:
    """Simulate a grasp, save it with pictures, and say where; its folder and outcome."""
    from fistful.jaws.jaw_run import JawRun
    from fistful.jaws.trial import simulate
    from fistful.view.animation import save_gif
    from fistful.view.jaw_picture import jaw_animation, jaw_picture

    with steps("simulating"):
        outcome = simulate(resting, grasp, gripper, record=True)
    for line in outcome.notes:
        say(f"note: {line}")
    if outcome.unconverged_steps:
        say(f"note: {outcome.unconverged_steps} of {outcome.steps} steps did not converge")
    run = JawRun.of(resting, grasp, gripper, outcome)
    folder = wanted or _free_folder()
    run.save(folder)
    if draw and run.recording.frames:
        with steps("drawing"):
            save_picture(jaw_picture(run), folder / "picture.png")
            save_gif(jaw_animation(run), folder / "animation.gif")
        say_where("picture", folder / "picture.png")
        say_where("animation", folder / "animation.gif")
    say_where("result", folder)
    return folder, run.record["outcome"]


def _free_folder() -> Path:
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


def _write_result(result: dict[str, Any], path: Path, asked: Path | None) -> None:
    import json

    from fistful.storage import write_file

    text = (json.dumps(_finite(result), indent=1) + "\n").encode()
    write_file(path, lambda file: file.write(text))
    if str(asked) == "-":
        print(text.decode(), end="")
    elif asked is not None:
        write_file(asked, lambda file: file.write(text))


def _finite(value: Any) -> Any:
    """The same with null for numbers that JSON does not have."""
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list | tuple) else value


def _counted(words: list[str]) -> list[tuple[str, int]]:
    """Each word with how often it is there, in the order of the first ones."""
    return [(word, words.count(word)) for word in dict.fromkeys(words)]
