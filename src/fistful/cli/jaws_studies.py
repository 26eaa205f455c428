"""`fistful jaws compare` and `grid`: models and settings against physical trials."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from fistful.cli.console import RUNS, Interrupted, save_picture, say_where, show, steps, table
from fistful.cli.jaws_options import Out, tell_unconverged
from fistful.errors import JawsError


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
        result = _resumable(
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
        tell_unconverged([row["unconverged_steps"] for row in result["models"]])
        print(
            f"{len(result['grasps'])} grasps, {self.trials} perturbed pose(s) each. MAE: of robustness. The "
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

        from fistful.jaws.comparison import FRICTIONS, GRID_F1, MODULI, grid
        from fistful.jaws.trials import GRIPPER
        from fistful.view.heat_map import heat_map

        out = self.out or RUNS / "jaws-grid"
        gripper = replace(GRIPPER, stop=self.stop)
        result = _resumable(
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
            known = E in MODULI and mu in FRICTIONS
            theirs = GRID_F1[cell["pad"]][MODULI.index(E)][FRICTIONS.index(mu)] if known else None
            lines.add_row(
                cell["pad"], f"{E:.0e}", f"{mu:g}", f"{cell['f1']:.3f}", f"{cell['mae']:.3f}",
                f"{cell['cpu_s_per_grasp']:.2f}", "" if theirs is None else f"{theirs:.2f}",
            )  # fmt: skip
        show(lines)
        tell_unconverged([row["unconverged_steps"] for row in result["cells"]])
        base = result["always_success"]
        print(
            f"always success: F1 {base['f1']:.3f}, MAE {base['mae']:.3f}. The paper's F1 are of three other "
            "objects"
        )
        say_where("result", out / "grid.json")
        say_where("heat map", picture)


def _resumable(out: Path, work: Callable[[Callable[[str], None]], dict[str, Any]]) -> dict[str, Any]:
    """What the work gives, which is called with a way to tell its progress; Ctrl-C says how to go on."""
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


def _kilograms(grams: float | None) -> float | None:
    if grams is not None and not grams > 0:
        raise JawsError(f"mass_g is {grams}; it has to be positive")
    return None if grams is None else 1e-3 * grams
