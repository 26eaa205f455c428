"""The command line: parse, call, print. Standard output is data, standard error is talk."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fistful import __version__
from fistful.errors import FistfulError
from fistful.objects import Units

if TYPE_CHECKING:
    from PIL.Image import Image

    from fistful.hands import Hand
    from fistful.objects import Object
    from fistful.synthesis.plan import Plan as PlanResult

RUNS = Path("runs")
_talk = Console(stderr=True)


@dataclass(frozen=True, kw_only=True)
class Hands:
    """List the built-in hands, or show one: joints, opposition spaces and a picture.

    A path to an MJCF (.xml) or URDF (.urdf) works like a name: contact surfaces and opposition spaces are
    found from its geometry (5-35 s the first time, then cached).
    """

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[HAND]")] = None
    """Built-in hand, or path to .xml, .urdf or .toml. Without it, all built-in hands are listed."""
    write: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder to write the hand to, as NAME.xml and NAME.toml, to be edited and loaded again."""
    force: bool = False
    """Let --write replace files that are there already."""
    check: bool = False
    """Try every opposition space anew with balls of 20 to 80 mm, for instance after editing."""
    picture: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """File for the picture (.png). Default: runs/hands/NAME.png."""
    no_picture: bool = False
    """Draw no picture."""
    json: bool = False
    """Print one JSON document instead of tables."""

    def run(self) -> None:
        """Print to standard output; write the picture and the files asked for."""
        from fistful.hands import check_hand, hand_names, load_hand, save_hand

        _check_picture(self.picture)
        if self.name is None and (self.write or self.picture or self.check):
            raise FistfulError("--write, --picture and --check need a hand: fistful hands HAND ...")
        if self.name is None:
            hands = [load_hand(name) for name in hand_names()]
            if self.json:
                _print_json({"hands": [_hand_record(hand) for hand in hands]})
            else:
                _print_hand_list(hands)
            return
        with _steps(f"describing {self.name}") as step:
            hand = load_hand(self.name, progress=step)
        if self.check:
            with _steps(f"checking {hand.name}") as step:
                hand = check_hand(hand, progress=step)
        written = None if self.write is None else save_hand(hand, self.write, overwrite=self.force)
        path = None
        if not self.no_picture:
            from fistful.view.picture import hand_sheet

            path = self.picture or RUNS / "hands" / f"{hand.name}.png"
            with _steps(f"drawing {hand.name}"):
                sheet = hand_sheet(hand)
            _save_picture(sheet, path)
        if self.json:
            _print_json(_hand_record(hand) | {"picture": path, "written": written})
        else:
            _print_hand(hand)
            _say_where("description", written)
            _say_where("picture", path)


@dataclass(frozen=True, kw_only=True)
class Objects:
    """List the built-in objects, or make some ready and say what was found and mended.

    A mesh file (obj, stl, ply, off, glb, gltf; 3mf and dae with fistful[formats]) works like a name.
    Prepared objects are cached by content.
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[OBJECT ...]")] = ()
    """Built-in objects, or paths to meshes. Without any, all built-in objects are listed."""
    units: Units = "auto"
    """Unit of the files' coordinates; auto takes metres or millimetres where that is unambiguous."""
    rescale: bool = False
    """Scale the longest side into 0.06-0.10 m, as the SeqGrasp paper does."""
    picture: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """File for a picture (.png). Default: runs/objects.png; none for the list of built-in objects."""
    no_picture: bool = False
    """Draw no picture."""
    json: bool = False
    """Print one JSON document instead of a table."""

    def run(self) -> None:
        """Print to standard output; write the picture. A bad mesh does not stop the others."""
        _check_picture(self.picture)
        if not self.names:
            self._list()
            return
        from fistful.geometry.mesh_distance import compile_kernels
        from fistful.objects import load_object

        with _steps("compiling kernels"):
            compile_kernels()
        ready: list[Object] = []
        records: list[dict[str, Any]] = []
        with _steps("preparing") as step:
            for k, name in enumerate(self.names):
                step(f"{name} ({k + 1} of {len(self.names)})")
                start = time.process_time()
                try:
                    item = load_object(name, units=self.units, rescale=self.rescale)
                except FistfulError as error:
                    records.append({"name": name, "error": str(error)})
                    _complain(str(error))
                    continue
                ready.append(item)
                records.append(_object_record(item, time.process_time() - start))
        path = self._draw([(item.name, item.vertices, item.faces) for item in ready])
        if self.json:
            _print_json({"objects": records, "picture": path})
        else:
            _print_objects(ready, [r["cpu_s"] for r in records if "error" not in r])
            _say_where("picture", path)
        if len(ready) < len(records):
            raise SystemExit(2)

    def _list(self) -> None:
        """The built-in objects, generated but not prepared."""
        from fistful.objects.generators import GENERATORS

        meshes = {name: make() for name, make in GENERATORS.items()}
        path = self._draw([(name, mesh.vertices, mesh.faces) for name, mesh in meshes.items()])
        if self.json:
            extents = {name: {"extents_m": mesh.extents.tolist()} for name, mesh in meshes.items()}
            _print_json({"objects": [{"name": n} | e for n, e in extents.items()], "picture": path})
            return
        table = _table("object", "size mm>>", "cm3>>", "faces>>", "about")
        for name, mesh in meshes.items():
            size = " x ".join(f"{1e3 * e:.0f}" for e in mesh.extents)
            about = (GENERATORS[name].__doc__ or "").splitlines()[0]
            table.add_row(name, size, f"{1e6 * mesh.volume:.0f}", f"{len(mesh.faces):,}", about)
        _show(table)
        _say_where("picture", path)

    def _draw(self, meshes: "list[tuple[str, Any, Any]]") -> Path | None:
        if self.no_picture or not meshes or (self.picture is None and not self.names):
            return None
        from fistful.view.picture import object_sheet

        path = self.picture or RUNS / "objects.png"
        with _steps("drawing"):
            sheet = object_sheet(meshes)
        _save_picture(sheet, path)
        return path


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan grasps of several objects one after the other, all held by one hand.

    Each object is a stage: a batch of grasps that continue good grasps of the stage before, without moving
    what holds something already. Finished stages are kept, also after Ctrl-C; the same command with the same
    --out goes on after them. A mesh file works like the name of an object.
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
    threads: int | None = None
    """Threads that share the work; all cores by default."""
    device: str = "cpu"
    """cpu, or a CUDA device such as cuda:0."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for the result. Default: runs/plan-1, or the next number that is free."""
    force: bool = False
    """Replace a plan in --out instead of continuing it."""
    no_picture: bool = False
    """Draw no picture of the best grasp."""
    json: bool = False
    """Print one JSON document instead of a table."""

    def run(self) -> None:
        """Print to standard output; write the folder. Exit code 2 if no grasp at all is good."""
        from fistful.geometry import mesh_distance
        from fistful.hands import load_hand
        from fistful.objects import load_object
        from fistful.synthesis.compiling import check_device
        from fistful.synthesis.plan import Origin, plan
        from fistful.synthesis.settings import Settings

        if not self.objects:
            raise FistfulError("name at least one object: fistful plan OBJECT ...; see `fistful objects`")
        with _steps(f"describing {self.hand}") as step:
            hand = load_hand(self.hand, progress=step)
        check_device(self.device)
        with _steps("compiling kernels"):
            mesh_distance.compile_kernels()
        objects: list[Object] = []
        with _steps("preparing") as step:
            for k, name in enumerate(self.objects):
                step(f"{name} ({k + 1} of {len(self.objects)})")
                objects.append(load_object(name, units=self.units, rescale=self.rescale))
        _print_notes(hand, objects)
        settings = Settings(
            count=self.count, method=self.method, seed=self.seed, pairs=self.pairs, uniform=self.uniform
        )
        made = 0

        def on_stage(so_far: "PlanResult") -> None:
            nonlocal made
            made += 1
            _say_stage(so_far)

        origin = Origin(hand=self.hand, objects=self.objects, units=self.units, rescale=self.rescale)
        picture = None
        with _run_folder(self.out) as out:
            try:
                with _steps("planning") as step:
                    done = plan(
                        hand,
                        objects,
                        settings=settings,
                        order=self.order,
                        threads=self.threads,
                        device=self.device,
                        out=out,
                        force=self.force,
                        origin=origin,
                        progress=step,
                        on_stage=on_stage,
                    )
                if len(done.stages) > made:
                    _say(f"{len(done.stages) - made} of the stages were in {out} already")
                if not self.no_picture:
                    from fistful.view.picture import plan_picture

                    picture = out / "picture.png"
                    with _steps("drawing"):
                        sheet = plan_picture(done)
                    _save_picture(sheet, picture)
            except KeyboardInterrupt:
                raise _Interrupted(_how_to_resume(out)) from None
        if self.json:
            _print_json({"out": out} | done.summary() | {"best": _best_record(done), "picture": picture})
        else:
            _print_plan(done)
            _say_where("result", out)
            _say_where("picture", picture)
        if done.stopped:
            _note(f"stopped: {done.stopped}")
        if not any(stage.good.any() for stage in done.stages):
            raise SystemExit(2)


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Check this machine: versions, cache folder, compiled kernels, rendering."""

    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        """Print one line a check; exit code 1 if any of them fails."""
        from fistful.doctor import checks

        results = [check() for check in checks()]
        if self.json:
            _print_json([{"check": r.name, "ok": r.ok, "detail": r.detail} for r in results])
        else:
            for result in results:
                print(f"{'ok  ' if result.ok else 'FAIL'}  {result.name}: {result.detail}")
        if not all(result.ok for result in results):
            raise SystemExit(1)


Command = (
    Annotated[Hands, tyro.conf.subcommand("hands")]
    | Annotated[Objects, tyro.conf.subcommand("objects")]
    | Annotated[Plan, tyro.conf.subcommand("plan")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Exit code 2 and one line on standard error for anything the user can mend."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(__version__)
        return
    try:
        command = tyro.cli(
            Command,  # pyright: ignore[reportArgumentType]
            prog="fistful",
            description="A robot hand picks up several objects one after the other and holds them all.",
            args=arguments,
            config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff),
        )
        command.run()
    except FistfulError as error:
        _fail(str(error))
    except KeyboardInterrupt as stop:
        _say(f"\nfistful: interrupted; {stop if str(stop) else 'what was finished is kept in the cache'}")
        raise SystemExit(130) from None
    except BrokenPipeError:
        # The reader (head, less) has gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")


def _complain(message: str) -> None:
    _talk.print(f"fistful: {message}", style="red", highlight=False, markup=False, soft_wrap=True)


def _fail(message: str) -> None:
    _complain(message)
    raise SystemExit(2) from None


def _say(message: str) -> None:
    _talk.print(message, highlight=False, markup=False, soft_wrap=True)


def _note(message: str) -> None:
    _talk.print(message, style="yellow", highlight=False, markup=False, soft_wrap=True)


class _Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a word about what is kept."""


@contextmanager
def _run_folder(wanted: Path | None) -> Iterator[Path]:
    """The folder of a run: the one that is wanted, or a new one, which is gone again if nothing was saved."""
    if wanted is not None:
        yield wanted
        return
    RUNS.mkdir(exist_ok=True)
    number, folder = 1, RUNS / "plan-1"
    while True:
        try:
            folder.mkdir()
            break
        except FileExistsError:
            number += 1
            folder = RUNS / f"plan-{number}"
    try:
        yield folder
    finally:
        for empty in (folder, RUNS):
            with suppress(OSError):
                empty.rmdir()


def _how_to_resume(out: Path) -> str:
    stages = len(list(out.glob("stage_*.npz"))) if (out / "plan.json").exists() else 0
    if not stages:
        return "no stage was finished"
    kept = "stage 1 is" if stages == 1 else f"stages 1 to {stages} are"
    return f"{kept} kept in {out}; the same command with --out {out}, without --force, goes on from there"


@contextmanager
def _steps(title: str) -> Iterator[Callable[[str], None]]:
    """A spinner with the current step on a terminal; otherwise a line every few seconds."""
    if _talk.is_terminal:
        with _talk.status(escape(title)) as status:
            yield lambda text: status.update(escape(f"{title}: {text}"))
        return
    last = time.monotonic()

    def line(text: str) -> None:
        nonlocal last
        if time.monotonic() - last > 5:
            last = time.monotonic()
            _talk.print(f"{title}: {text}", highlight=False, markup=False, soft_wrap=True)

    yield line


def _check_picture(path: Path | None) -> None:
    if path is not None and path.suffix.lower() != ".png":
        raise FistfulError(f"pictures are .png files; {path.name!r} is not")


def _save_picture(picture: "Image", path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_suffix(f".{os.getpid()}.png")
    picture.save(staged)
    staged.replace(path)


def _say_where(what: str, path: Path | None) -> None:
    if path is not None:
        _say(f"{what}: {path}")


def _print_json(document: Any) -> None:
    print(json.dumps(document, indent=2, default=str))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        name, _, align = column.partition(">")
        table.add_column(name, justify="right" if align else "left", overflow="fold")
    return table


def _show(table: Table) -> None:
    # Piped output is for tools: no wrapping to a terminal width that is not there.
    width = None if sys.stdout.isatty() else 200
    Console(width=width, highlight=False, markup=False).print(table)


def _print_hand_list(hands: "Sequence[Hand]") -> None:
    table = _table("hand", "joints>>", "fingers>>", "spaces>>", "about")
    for hand in hands:
        counts = (len(hand.joints), len(hand.fingers), len(hand.opposition_spaces))
        table.add_row(hand.name, *map(str, counts), hand.summary)
    _show(table)


def _print_hand(hand: "Hand") -> None:
    model = hand.model
    print(f"{hand.name}: {hand.summary}\n")
    table = _table("joint", "lower>>", "upper>>", "open>>", "limit N m (N)>>", "finger")
    for k, joint in enumerate(model.joints):
        finger = ", ".join(f.name for f in hand.fingers if f.joint_mask[k])
        numbers = (model.lower[k], model.upper[k], model.open_pose[k], model.torque_limit[k])
        table.add_row(joint, *(f"{v:.3f}" for v in numbers), finger)
    _show(table)
    print()
    table = _table("opposition space", "surfaces", "balls mm>>", "joints")
    for entry in hand.description.opposition_spaces:
        span = "" if entry.span_mm is None else f"{entry.span_mm[0]:g}-{entry.span_mm[1]:g}"
        table.add_row(entry.name, " - ".join(entry.surfaces), span, " ".join(entry.joints))
    _show(table)
    coupled = [joint for joint in model.all_joints if joint not in model.joints]
    if coupled:
        print(f"\ncoupled joints: {', '.join(coupled)}")
    for note in hand.notes:
        _say(f"note: {note}")


def _hand_record(hand: "Hand") -> dict[str, Any]:
    model = hand.model
    return {
        "name": hand.name,
        "summary": hand.summary,
        "joints": [
            {
                "name": joint,
                "lower": float(model.lower[k]),
                "upper": float(model.upper[k]),
                "open": float(model.open_pose[k]),
                "torque_limit": float(model.torque_limit[k]),
            }
            for k, joint in enumerate(model.joints)
        ],
        "fingers": [finger.name for finger in hand.fingers],
        "surfaces": {s.name: len(s.candidates.body) for s in hand.surfaces},
        "opposition_spaces": [
            {"name": s.name, "surfaces": s.surfaces, "joints": s.joints, "span_mm": s.span_mm}
            for s in hand.description.opposition_spaces
        ],
        "notes": hand.notes,
    }


def _print_notes(hand: "Hand", objects: "Sequence[Object]") -> None:
    """What was assumed or changed on the way to a hand and objects that can be planned with."""
    for note in hand.notes:
        _say(f"note: {hand.name}: {note}")
    for item in dict.fromkeys(objects):
        for line in (*item.report.found, *item.report.mended):
            _say(f"note: {item.name}: {line}")


def _say_stage(plan: "PlanResult") -> None:
    stage, number = plan.stages[-1], len(plan.stages)
    good = f"{stage.good.sum()} of {len(stage)} grasps are good"
    _say(f"stage {number} of {len(plan.objects)}, {stage.object_name}: {good}, {stage.wall_s:.1f} s")


def _print_plan(plan: "PlanResult") -> None:
    """The table of stages, and the best grasp with what it holds the objects by."""
    table = _table(
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
    for number, (stage, row) in enumerate(zip(plan.stages, plan.summary()["stages"], strict=True), 1):
        used = list(row["opposition_spaces"].items())
        more = f", {len(used) - 3} more" if len(used) > 3 else ""
        table.add_row(
            str(number),
            stage.object_name,
            f"{row['good']} / {row['count']}",
            *(
                " / ".join("-" if v is None else f"{v:.2f}" for v in row[name].values())
                for name in (
                    "penetration_mm",
                    "contact_distance_mm",
                    "self_penetration_mm",
                    "object_penetration_mm",
                )
            ),
            f"{stage.grasps.quality[plan.best(number - 1)]:.2f}" if stage.good.any() else "-",
            f"{stage.cpu_s:.1f}",
            f"{stage.wall_s:.1f}",
            ", ".join(f"{name} {n}" for name, n in used[:3]) + more,
        )
    _show(table)
    print(
        "lengths: median / largest over all grasps, measured on the meshes; a good one keeps each within 2 mm"
    )
    if plan.order_explanation:
        print(f"order: {plan.order_explanation}")
    best = _best_record(plan)
    held = ", ".join(f"{h['object']} by {h['opposition_space']} (grasp {h['grasp']})" for h in best["holds"])
    if best["good"]:
        print(
            f"best grasp by geometry and friction: {best['grasp']} of stage {best['stage']}; it holds {held}"
        )
    else:
        print(f"nearest to a good grasp: {best['grasp']} of stage {best['stage']}; not good; it tried {held}")


def _best_record(plan: "PlanResult") -> dict[str, Any]:
    """The best grasp of the last stage, and by what it holds each object."""
    best = plan.best()
    return {
        "stage": len(plan.stages),
        "grasp": best,
        "good": bool(plan.stages[-1].good[best]),
        "quality": float(plan.stages[-1].grasps.quality[best]),
        "holds": [
            {"object": s.object_name, "grasp": i, "opposition_space": s.spaces[s.grasps.space[i]]}
            for s, i in zip(plan.stages, plan.lineage(-1, best), strict=True)
        ],
    }


def _print_objects(ready: "Sequence[Object]", cpu_s: Sequence[float]) -> None:
    table = _table(
        "object",
        "size mm>>",
        "cm3>>",
        "faces>>",
        "bodies>>",
        "grid mm>>",
        "SDF error mean/max mm>>",
        "CPU s>>",
    )
    for item, seconds in zip(ready, cpu_s, strict=True):
        report = item.report
        table.add_row(
            item.name,
            " x ".join(f"{1e3 * e:.0f}" for e in report.extents_m),
            f"{1e6 * report.volume_m3:.0f}",
            f"{report.faces:,}",
            str(report.bodies),
            f"{1e3 * item.sdf.spacing:.2f}",
            f"{item.sdf_error.mean_mm:.3f} / {item.sdf_error.max_mm:.2f}",
            f"{seconds:.2f}",
        )
    if ready:
        _show(table)
    for item in ready:
        for kind, lines in (("found", item.report.found), ("mended", item.report.mended)):
            for line in lines:
                print(f"{item.name}: {kind}: {line}")


def _object_record(item: "Object", cpu_s: float) -> dict[str, Any]:
    mass = item.mass_properties
    return {
        "name": item.name,
        "report": item.report.to_dict(),
        "scale": item.scale,
        "sdf": {"shape": item.sdf.values.shape, "spacing_mm": 1e3 * item.sdf.spacing},
        "sdf_error_mm": {"mean": item.sdf_error.mean_mm, "max": item.sdf_error.max_mm},
        "volume_m3": mass.volume_m3,
        "com_O": mass.com_O.tolist(),
        "cpu_s": round(cpu_s, 3),
    }


if __name__ == "__main__":
    main()
