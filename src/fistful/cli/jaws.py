"""`fistful jaws`: soft parallel jaws, simulated with Incremental Potential Contact."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from fistful.cli.console import (
    Interrupted,
    print_json,
    save_picture,
    say,
    say_where,
    show,
    steps,
    table,
)
from fistful.cli.jaws_options import (
    GraspOptions,
    GripperOptions,
    ObjectOptions,
    Out,
    check_counts,
    planned,
    tell_unconverged,
)
from fistful.cli.jaws_studies import CompareCommand, GridCommand
from fistful.cli.out_folder import out_folder

if TYPE_CHECKING:
    from fistful.jaws.grasp import JawGrasp, Resting
    from fistful.jaws.gripper import Gripper
    from fistful.jaws.ledger import Ledger
    from fistful.jaws.robustness import Robustness

OBJECT = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="OBJECT")]


@dataclass(frozen=True, kw_only=True)
class GraspCommand:
    """Plan grasps of an object, rank them by simulated robustness, and show the best.

    The folder gets a table of all grasps, a picture, an animation, and the frames for `fistful view DIR`.
    Finished lifts are kept: the same command with the same --out goes on after Ctrl-C.
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
        from fistful.jaws.jaw_run import LIFTS
        from fistful.jaws.robustness import perturbed_units, robustness_of_each

        check_counts(count=self.count, trials=self.trials, workers=self.workers)
        with _folder(self.out, LIFTS) as folder:
            self.gripper.tell_unused("ipc")
            gripper, resting = self.gripper.made(), self.target.resting(self.object)
            found = planned(resting, gripper, self.count, self.seed)
            lifts = [
                perturbed_units(
                    f"grasp {k}", "ipc", resting, grasp, gripper, trials=self.trials, seed=self.seed
                )
                for k, grasp in enumerate(found)
            ]
            work = self._work(resting, gripper, found)
            with _unfinished(folder / LIFTS, work, len(found) * self.trials) as ledger:
                with steps("simulating") as step:
                    judged = robustness_of_each(lifts, self.workers, ledger=ledger, progress=step)
                rows = [_grasp_row(k, *row) for k, row in enumerate(zip(found, judged, strict=True))]
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
                "-" if row["displacement_mm"] is None else f"{row['displacement_mm']:.1f}",
                f"{row['cpu_s']:.2f}",
                told,
            )
        show(lines)
        print(f"robustness: mean over {self.trials} simulated lift(s), with noise of 1 mm and 3 mrad")
        tell_unconverged([row["unconverged_steps"] for row in rows])
        print(f"best grasp, unperturbed: {outcome['reason']}")

    def _work(self, resting: "Resting", gripper: "Gripper", found: "list[JawGrasp]") -> dict[str, Any]:
        """What decides every lift; what a user chose comes first, for that is what an error names."""
        from fistful import __version__
        from fistful.jaws.simulation import Settings
        from fistful.storage import content_key

        return {
            "format": "fistful jaws grasp",
            "object": resting.item.name,
            "mesh": resting.item.key,
            "rest": self.target.rest,
            "mass": resting.mass,
            "count": self.count,
            "trials": self.trials,
            "seed": self.seed,
            "gripper": gripper.record(),
            "settings": asdict(Settings()),
            "fistful": __version__,
            "grasps": content_key(*(np.round([g.p_WG, *g.R_WG], 9) + 0.0 for g in found)),
        }


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
        with _folder(self.out) as folder:
            self.gripper.tell_unused("ipc")
            gripper, resting = self.gripper.made(), self.target.resting(self.object)
            grasp = self.grasp.chosen(resting, gripper)
            outcome = _recorded(resting, grasp, gripper, folder, draw=not self.no_picture)
        if self.json:
            print_json({"out": folder, **outcome})
            return
        for name, value in outcome.items():
            if value not in (None, []):
                shown = ", ".join(_short(v) for v in value) if isinstance(value, list) else _short(value)
                told = "first contact of jaw" if name == "first_contact" else name.replace("_", " ")
                print(f"{told:26} {shown}")


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
        from fistful.jaws.models import get_model
        from fistful.jaws.robustness import robustness

        model = get_model(self.model)
        check_counts(trials=self.trials, workers=self.workers)
        self.gripper.tell_unused(self.model)
        gripper, resting = self.gripper.made(), self.target.resting(self.object)
        grasp = self.grasp.chosen(resting, gripper)
        with steps("simulating") as step:
            found = robustness(
                model,
                resting,
                grasp,
                gripper,
                trials=self.trials,
                seed=self.grasp.seed,
                workers=self.workers,
                progress=step,
            )
        tell_unconverged([found.unconverged_steps])
        if self.json:
            document = {"robustness": found.value, "cpu_s": found.cpu_s, "reasons": found.reasons}
            print_json({"model": self.model, **document})
        else:
            told = ", ".join(f"{n} x {r}" for r, n in _counted(found.reasons))
            print(f"robustness {found.value:.2f} by {self.model}: {told}; {found.cpu_s:.3f} CPU s a pose")


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


def _grasp_row(candidate: int, grasp: "JawGrasp", found: "Robustness") -> dict[str, Any]:
    """What came of the perturbed poses of one grasp."""
    from fistful.jaws.outcome import Reason

    # Nothing was squeezed in a pose that could not start.
    moved = [v.moved_mm for v in found.verdicts if v.reason != Reason.BLOCKED and v.moved_mm is not None]
    return {
        "candidate": candidate,
        "robustness": found.value,
        "reasons": found.reasons,
        "displacement_mm": float(np.mean(moved)) if moved else None,
        "unconverged_steps": found.unconverged_steps,
        "cpu_s": found.cpu_s,
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


@contextmanager
def _folder(wanted: Path | None, *also: str) -> Iterator[Path]:
    """The folder of a grasp, if it may be used. Needs ipctk.

    `also` names files that the folder may hold, besides those of a saved grasp.
    """
    from fistful.jaws.contact import load_ipctk
    from fistful.jaws.jaw_run import check_folder

    load_ipctk()
    if wanted is not None:
        check_folder(wanted, *also)
    with out_folder(wanted, "jaws") as folder:
        yield folder


@contextmanager
def _unfinished(path: Path, work: dict[str, Any], total: int) -> "Iterator[Ledger]":
    """A ledger of lifts, there as long as the work is not finished and something of it is."""
    from fistful.jaws.ledger import Ledger

    with Ledger(path, work) as ledger:
        if ledger.records:
            say(f"{len(ledger.records)} of {total} lifts were in {path.parent} already")
        finished = False
        try:
            yield ledger
            finished = True
        except KeyboardInterrupt:
            raise Interrupted(_kept(ledger, total) if ledger.records else "no lift was finished") from None
        except Exception:
            if ledger.records:
                say(_kept(ledger, total))
            raise
        finally:
            if finished or not ledger.records:
                ledger.remove()


def _kept(ledger: "Ledger", total: int) -> str:
    """What is kept, and how to go on."""
    folder = ledger.path.parent
    return (
        f"{len(ledger.records)} of {total} lifts are kept in {folder}; the same command with --out {folder} "
        "goes on from there"
    )


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _counted(words: list[str]) -> list[tuple[str, int]]:
    """Each word with how often it is there, in the order of the first ones."""
    return [(word, words.count(word)) for word in dict.fromkeys(words)]
