"""`fistful plan`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro
from rich.table import Table

from fistful.cli.console import (
    Interrupted,
    note,
    print_json,
    print_notes,
    print_shapes,
    save_picture,
    say,
    say_where,
    show,
    steps,
    table,
)
from fistful.cli.out_folder import out_folder
from fistful.errors import FistfulError
from fistful.objects import PartsKind, Units
from fistful.storage import write_file

if TYPE_CHECKING:
    from fistful.objects import Object
    from fistful.planning.plan import Plan as PlanResult
    from fistful.synthesis.stage import Stage

PAGE_GRASPS = 100
"""Sequences on the page that is written by default; `fistful view --html` has more."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan grasps of several objects one after the other, all held by one hand.

    Each object is a stage: a batch of grasps is planned and tried in physics; the next stage continues what
    held, without moving what holds something already. Finished stages are kept, also after Ctrl-C; the same
    command with the same --out goes on after them. A mesh file works like the name of an object.
    """

    objects: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="OBJECT ...")] = ()
    """Built-in objects, or paths to meshes, in the order they are grasped."""
    hand: Annotated[str, tyro.conf.arg(metavar="HAND")] = "allegro"
    """Built-in hand, or path to .xml, .urdf or .toml."""
    count: int = 256
    """Grasps a stage."""
    rescale: bool = False
    """Scale the longest side of every object into 0.06-0.10 m, as the SeqGrasp paper does."""
    units: Units = "auto"
    """Unit of the files' coordinates; auto takes metres or millimetres where that is unambiguous."""
    method: Literal["fast", "paper"] = "fast"
    """fast: antipodal starts and Levenberg-Marquardt. paper: 6000 steps of MALA, some 20 s a stage."""
    order: Literal["given", "auto"] = "given"
    """Grasp the objects in the given order, or search for the one in which the hand can hold them."""
    seed: int = 0
    """Same seed, same plan, whatever the number of threads."""
    pairs: int = 1
    """Opposed pairs of contacts that hold each object: 1 as in the paper; 2 uses three or more links."""
    uniform: bool = False
    """Choose opposition spaces uniformly, as the paper does, not by what the first round achieved."""
    no_validate: bool = False
    """Do not try the grasps in physics; continue what is geometrically good."""
    protocol: str = "paper"
    """What a grasp has to stand: paper, strict, shake or paper-ghosts; see docs/physics.md."""
    parts: PartsKind = "parts"
    """Shapes of objects in physics: convex parts, or hull, which is quicker to make and fills every hole."""
    threads: int | None = None
    """Threads that share the work; all cores by default."""
    device: str = "cpu"
    """cpu, or a CUDA device such as cuda:0."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for the result. Default: runs/plan-1, or the next number that is free."""
    force: bool = False
    """Replace a plan in --out instead of continuing it."""
    no_picture: bool = False
    """Write neither the picture of the best sequence nor the page."""
    json: bool = False
    """Print one JSON document instead of a table."""

    def run(self) -> None:
        """Print to standard output; write the folder. Exit code 2 if no grasp at all holds, or is good."""
        from fistful.geometry import mesh_distance
        from fistful.hands import load_hand
        from fistful.objects import load_object
        from fistful.physics.protocol import find_protocol
        from fistful.planning.plan import Origin, plan
        from fistful.planning.validation import shape_records
        from fistful.synthesis.compiling import check_device
        from fistful.synthesis.settings import Settings

        if not self.objects:
            raise FistfulError("name at least one object: fistful plan OBJECT ...; see `fistful objects`")
        find_protocol(self.protocol)
        with steps(f"describing {self.hand}") as step:
            hand = load_hand(self.hand, progress=step)
        check_device(self.device)
        with steps("compiling kernels"):
            mesh_distance.compile_kernels()
        objects: list[Object] = []
        with steps("preparing") as step:
            for k, name in enumerate(self.objects):
                step(f"{name} ({k + 1} of {len(self.objects)})")
                objects.append(load_object(name, units=self.units, rescale=self.rescale))
        print_notes(hand, objects)
        settings = Settings(
            count=self.count, method=self.method, seed=self.seed, pairs=self.pairs, uniform=self.uniform
        )
        made = 0

        def on_stage(so_far: "PlanResult") -> None:
            nonlocal made
            made += 1
            _say_stage(so_far)

        origin = Origin(hand=self.hand, objects=self.objects, units=self.units, rescale=self.rescale)
        picture = page = None
        with out_folder(self.out, "plan") as out:
            try:
                with steps("planning") as step:
                    done = plan(
                        hand,
                        objects,
                        settings=settings,
                        order=self.order,
                        validate=not self.no_validate,
                        protocol=self.protocol,
                        parts=self.parts,
                        threads=self.threads,
                        device=self.device,
                        out=out,
                        force=self.force,
                        origin=origin,
                        progress=step,
                        on_stage=on_stage,
                    )
                if len(done.stages) > made:
                    say(f"{len(done.stages) - made} of the stages were in {out} already")
                if not self.no_picture:
                    from fistful.view.page import plan_page
                    from fistful.view.picture import plan_picture

                    picture, page = out / "picture.png", out / "view.html"
                    with steps("drawing"):
                        save_picture(plan_picture(done), picture)
                        write_file(
                            page, lambda file: file.write(plan_page(done, grasps=PAGE_GRASPS).encode())
                        )
            except KeyboardInterrupt:
                raise Interrupted(_how_to_resume(out)) from None
        shapes = [] if self.no_validate else shape_records(done.objects[: len(done.stages)], self.parts)
        if self.json:
            print_json(
                {"out": out}
                | done.summary()
                | {"shapes": shapes, "best": best_record(done), "picture": picture, "page": page}
            )
        else:
            print_shapes(shapes)
            _print_plan(done)
            say_where("result", out)
            say_where("picture", picture)
            say_where("page", page)
            if page is not None:
                say(f"look closer: fistful view {out}")
        if done.stopped:
            note(f"stopped: {done.stopped}")
        found = done.stages[0].good if done.validation is None else done.held(0)
        if not found.any():
            raise SystemExit(2)


def _how_to_resume(out: Path) -> str:
    head = out / "plan.json"
    stages = len(json.loads(head.read_text(encoding="utf-8"))["stages"]) if head.exists() else 0
    if not stages:
        return "no stage was finished"
    kept = "stage 1 is" if stages == 1 else f"stages 1 to {stages} are"
    return f"{kept} kept in {out}; the same command with --out {out}, without --force, goes on from there"


def _say_stage(plan: "PlanResult") -> None:
    stage, number = plan.stages[-1], len(plan.stages)
    told = f"{stage.good.sum()} of {len(stage)} grasps are good, {stage.wall_s:.1f} s"
    if plan.validation is not None:
        told += f"; {plan.held().sum()} hold, {plan.validation.wall_s[-1]:.1f} s in physics"
    say(f"stage {number} of {len(plan.objects)}, {stage.object_name}: {told}")


def _print_plan(plan: "PlanResult") -> None:
    """The table of stages, and the best grasp with what it holds the objects by."""
    show(_physics_table(plan) if plan.validation else _geometry_table(plan))
    if plan.validation:
        print(
            f"protocol {plan.validation.protocol.name}: {plan.validation.protocol.summary}\n"
            "SR: of the grasps that continue one that held, those that hold everything; "
            "chained: of all from the first stage on"
        )
    else:
        print(
            "lengths: median / largest over all grasps, measured on the meshes; "
            "a good one keeps each within 2 mm"
        )
    if plan.order_explanation:
        print(f"order: {plan.order_explanation}")
    best = best_record(plan)
    holds = ", ".join(f"{h['object']} by {h['opposition_space']} (grasp {h['grasp']})" for h in best["holds"])
    if best["held"]:
        what = f"best grasp that holds in physics: {best['grasp']} of stage {best['stage']}; it holds"
    elif best["good"]:
        what = f"best grasp by geometry and friction: {best['grasp']} of stage {best['stage']}; it holds"
    else:
        what = f"nearest to a good grasp: {best['grasp']} of stage {best['stage']}; not good; it tried"
    print(f"{what} {holds}")


def _physics_table(plan: "PlanResult") -> Table:
    rows = table(
        "stage",
        "object",
        "generated>>",
        "good>>",
        "valid>>",
        "SR %>>",
        "chained %>>",
        "penetration mm>>",
        "drift mm>>",
        "plan s>>",
        "physics s>>",
        "opposition spaces that held",
    )
    summary = plan.summary()["stages"]
    for number, (stage, row) in enumerate(zip(plan.stages, summary, strict=True), 1):
        v = row["validation"]
        rows.add_row(
            str(number),
            stage.object_name,
            str(v["generated"]),
            str(row["good"]),
            str(v["valid"]),
            f"{v['sr']:.1f}",
            f"{v['sr_chained']:.1f}",
            "-" if v["penetration_mm"] is None else f"{v['penetration_mm']:.2f}",
            "-" if v["drift_mm"] is None else f"{v['drift_mm']:.2f}",
            f"{stage.wall_s:.1f}",
            f"{v['wall_s']:.1f}",
            _used(stage, plan.held(number - 1)),
        )
    return rows


def _geometry_table(plan: "PlanResult") -> Table:
    rows = table(
        "stage",
        "object",
        "good>>",
        "hand in object mm>>",
        "contact off mm>>",
        "hand in hand mm>>",
        "object in object mm>>",
        "best quality>>",
        "CPU s>>",
        "wall s>>",
        "opposition spaces",
    )
    lengths = ("penetration_mm", "contact_distance_mm", "self_penetration_mm", "object_penetration_mm")
    for number, (stage, row) in enumerate(zip(plan.stages, plan.summary()["stages"], strict=True), 1):
        spans = [" / ".join("-" if v is None else f"{v:.2f}" for v in row[name].values()) for name in lengths]
        rows.add_row(
            str(number),
            stage.object_name,
            f"{row['good']} / {row['count']}",
            *spans,
            f"{row['best_quality']:.2f}" if stage.good.any() else "-",
            f"{stage.cpu_s:.1f}",
            f"{stage.wall_s:.1f}",
            _used(stage, np.ones(len(stage), dtype=bool)),
        )
    return rows


def _used(stage: "Stage", chosen: np.ndarray) -> str:
    """The three contact sets that most of the chosen grasps use, with their numbers."""
    counts = np.bincount(stage.grasps.space[chosen], minlength=len(stage.spaces))
    often = [int(t) for t in np.argsort(-counts, kind="stable") if counts[t]]
    more = f", {len(often) - 3} more" if len(often) > 3 else ""
    return ", ".join(f"{stage.spaces[t]} {counts[t]}" for t in often[:3]) + more


def best_record(plan: "PlanResult") -> dict[str, Any]:
    """The best grasp of the last stage, and by what it holds each object."""
    best = plan.best()
    return {
        "stage": len(plan.stages),
        "grasp": best,
        "held": bool(plan.held()[best]),
        "good": bool(plan.stages[-1].good[best]),
        "quality": float(plan.stages[-1].grasps.quality[best]),
        "holds": [
            {"object": s.object_name, "grasp": i, "opposition_space": s.spaces[s.grasps.space[i]]}
            for s, i in zip(plan.stages, plan.lineage(-1, best), strict=True)
        ],
    }
