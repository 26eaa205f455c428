"""`fistful evaluate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from fistful.cli.console import (
    RUNS,
    Interrupted,
    complain,
    print_json,
    save_picture,
    say,
    say_where,
    show,
    steps,
    table,
)
from fistful.errors import FistfulError

if TYPE_CHECKING:
    from fistful.objects import Object

MESHES = (".obj", ".stl", ".ply", ".off", ".glb", ".gltf", ".3mf", ".dae")


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Compare methods on random sequences of objects: Table III of the SeqGrasp paper, by one command.

    Every finished unit of work is kept, also after Ctrl-C or a crash: the same command with the same --out
    goes on, with the same result. All settings decide the result but --threads.
    """

    methods: str = "seqgrasp,multigrasp"
    """Some of seqgrasp (the default planner), seqgrasp-paper (the paper's optimiser), multigrasp."""
    objects: Annotated[tuple[str, ...], tyro.conf.arg(metavar="DIR|NAMES")] = ()
    """A folder of meshes, or names and paths. Default: all built-in objects."""
    hand: Annotated[str, tyro.conf.arg(metavar="HAND")] = "allegro"
    """Built-in hand, or path to .xml, .urdf or .toml."""
    sequences: int = 10
    """Random sequences of objects."""
    length: int = 4
    """Objects in a sequence."""
    count: int = 256
    """Grasps a stage."""
    protocol: str = "paper"
    """What a grasp has to stand: paper, strict, shake or paper-ghosts; see docs/physics.md."""
    seed: int = 0
    """Same seed, same sequences and grasps."""
    no_rescale: bool = False
    """Keep the sizes; otherwise longest sides are scaled into 0.06-0.10 m, as in the paper."""
    threads: int | None = None
    """Threads that share the work; all cores by default."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for units, tables and chart. Default: runs/evaluate."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="OUT")] = None
    """File for the tables as one JSON document; - prints it instead of tables."""

    def run(self) -> None:
        """Print to standard output; write the folder."""
        from fistful.geometry import mesh_distance
        from fistful.hands import load_hand
        from fistful.planning.evaluation import evaluate
        from fistful.view.chart import evaluation_page, evaluation_picture

        with steps(f"describing {self.hand}") as step:
            hand = load_hand(self.hand, progress=step)
        with steps("compiling kernels"):
            mesh_distance.compile_kernels()
        objects = self._load()
        out = self.out or RUNS / "evaluate"
        last = "nothing was finished"

        def on_unit(done: int, of: int, what: str) -> None:
            nonlocal last
            last = f"{done} of {of} units are done"
            say(f"{done + 1} of {of}, {what}")

        try:
            with steps("evaluating") as step:
                tables = evaluate(
                    hand,
                    objects,
                    methods=tuple(m for m in self.methods.split(",") if m),
                    sequences=self.sequences,
                    length=self.length,
                    count=self.count,
                    protocol=self.protocol,
                    seed=self.seed,
                    threads=self.threads,
                    out=out,
                    progress=step,
                    on_unit=on_unit,
                )
        except KeyboardInterrupt:
            raise Interrupted(f"{last}; the same command with --out {out} goes on from there") from None
        page = out / "tables.html"
        page.write_text(evaluation_page(tables), encoding="utf-8")
        picture = out / "tables.png"
        save_picture(evaluation_picture(tables), picture)
        if self.json is not None and str(self.json) == "-":
            print_json(tables)
        else:
            _print(tables)
            if self.json is not None:
                self.json.write_bytes((out / "tables.json").read_bytes())
        say_where("tables", out / "tables.json")
        say_where("chart", page)
        say_where("picture", picture)

    def _load(self) -> "list[Object]":
        from fistful.objects import load_object, object_names

        names = list(self.objects) or list(object_names())
        if len(names) == 1 and Path(names[0]).is_dir():
            folder = Path(names[0])
            names = sorted(str(p) for p in folder.iterdir() if p.suffix.lower() in MESHES)
            if not names:
                raise FistfulError(f"{folder} has no mesh ({', '.join(MESHES)})")
        else:
            # Names may be separated by commas or by spaces.
            names = [n for given in names for n in ([given] if Path(given).exists() else given.split(","))]
        ready: list[Object] = []
        with steps("preparing") as step:
            for k, name in enumerate(names):
                step(f"{name} ({k + 1} of {len(names)})")
                try:
                    ready.append(load_object(name, rescale=not self.no_rescale))
                except FistfulError as error:
                    if len(names) <= self.length:
                        raise
                    complain(f"left out: {error}")
        return ready


def _print(tables: dict[str, Any]) -> None:
    from fistful.planning.evaluation import PUBLISHED

    rows = table(
        "method",
        "objects>>",
        "generated>>",
        "valid>>",
        "SR %>>",
        "95 %>>",
        "chained %>>",
        "95 %>>",
        "penetration mm>>",
        "diversity rad>>",
        "CPU s / 256>>",
        "paper: SR %>>",
        "mm>>",
        "rad>>",
        "A100 s>>",
    )
    for row in tables["rows"]:
        theirs = PUBLISHED.get((row["method"].removesuffix("-paper"), row["n"]))
        rows.add_row(
            row["method"],
            str(row["n"]),
            str(row["generated"]),
            str(row["valid"]),
            f"{row['sr']:.1f}",
            _span(row["sr_interval"]),
            f"{row['sr_chained']:.1f}",
            _span(row["sr_chained_interval"]),
            _number(row["penetration_mm"], 2),
            _number(row["diversity_rad"], 3),
            _number(row["seconds_per_256"], 1),
            *(
                ("", "", "", "")
                if theirs is None
                else (
                    " / ".join(f"{v:.1f}" for v in theirs[0]),
                    " / ".join(f"{v:.2f}" for v in theirs[1]),
                    f"{theirs[2]:.3f}",
                    str(theirs[3]),
                )
            ),
        )
    show(rows)
    print(
        f"protocol {tables['protocol']['name']}: {tables['protocol']['summary']}\n"
        "SR: of the grasps that continue one that held; chained: of all from the first object on; "
        "intervals by a bootstrap over sequences\n"
        "the paper's figures (on SeqDataset / Grasp'Em objects) are from Isaac Gym and other objects: "
        "no yardstick for single percents"
    )
    if tables["opposition_spaces"]:
        print()
        rows = table("method", "opposition space", "valid>>", "generated>>", "SR %>>")
        for row in tables["opposition_spaces"]:
            rows.add_row(
                row["method"],
                row["opposition_space"],
                str(row["valid"]),
                str(row["generated"]),
                f"{row['sr']:.1f}",
            )
        show(rows)
        print()
        rows = table("method", "objects>>", "consumed>>", "valid>>", "consumed rate %>>")
        for row in tables["consumed"]:
            rate = _number(row["consumed_rate"], 1)
            rows.add_row(row["method"], str(row["n"]), str(row["consumed"]), str(row["valid"]), rate)
        show(rows)
        print("consumed: grasps that hold, and leave no opposition space for another object")


def _span(interval: list[float]) -> str:
    return f"{interval[0]:.0f}-{interval[1]:.0f}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
