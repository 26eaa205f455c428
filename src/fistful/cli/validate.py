"""`fistful validate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from fistful.cli.console import print_json, print_shapes, say_where, show, steps, table
from fistful.errors import FistfulError
from fistful.objects import PartsKind

if TYPE_CHECKING:
    from fistful.planning.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Validate:
    """Try the grasps of a plan in physics, under any protocol, and say which hold and why others do not.

    Nothing is planned anew: every grasp is tried as it was generated. Verdicts are saved in the folder of the
    run, with the protocol that they were made by.
    """

    run_folder: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(name="run", metavar="RUN")] = None
    """Folder of a plan, as `fistful plan` wrote it."""
    protocol: str = "paper"
    """paper, strict, shake, or paper-ghosts (objects pass through each other; for comparison only)."""
    parts: PartsKind = "parts"
    """Shapes of objects: convex parts, or hull, which is quicker to make and fills every hole."""
    hand_model: Literal["own", "menagerie"] = "own"
    """menagerie: the vendor's model of the hand, from MENAGERIE_ROOT, and how far its verdicts agree with
    those of our own, which are the ones that are saved."""
    grasp: int | None = None
    """Say what happened to this grasp of the last stage, and to all it continues."""
    threads: int | None = None
    """Threads that share the work; all cores by default. They do not change the result."""
    json: bool = False
    """Print one JSON document instead of a table."""

    def run(self) -> None:
        """Print to standard output; write verdicts into the folder. Exit code 2 if nothing holds."""
        from fistful.physics.protocol import find_protocol
        from fistful.planning.plan import validate
        from fistful.planning.run_folder import load_plan, save_validation
        from fistful.planning.validation import shape_records

        if self.run_folder is None:
            raise FistfulError("name the folder of a plan: fistful validate RUN; `fistful plan` makes one")
        rules = find_protocol(self.protocol)
        with steps(f"reading {self.run_folder}"):
            plan = load_plan(self.run_folder)
        if self.grasp is not None and not 0 <= self.grasp < len(plan.stages[-1]):
            raise FistfulError(
                f"--grasp {self.grasp}: the last stage has grasps 0 to {len(plan.stages[-1]) - 1}"
            )
        with steps("validating") as step:
            options: dict[str, Any] = {"parts": self.parts, "threads": self.threads, "progress": step}
            seen = validate(plan, rules, hand_model=self.hand_model, **options)
            own = seen if self.hand_model == "own" else validate(plan, rules, **options)
        saved = save_validation(self.run_folder, own)
        summary = seen.summary()
        document: dict[str, Any] = {
            "run": self.run_folder,
            "protocol": summary["protocol"],
            "hand_model": self.hand_model,
            "shapes": shape_records(plan.objects[: len(plan.stages)], self.parts),
            "stages": [row["validation"] for row in summary["stages"]],
            "saved": saved,
        }
        if own is not seen:
            document["agreement"] = _agreement(own, seen)
        if self.grasp is not None:
            document["grasp"] = _story(seen, self.grasp)
        if self.json:
            print_json(document)
        else:
            print_shapes(document["shapes"])
            _print(seen, document)
            say_where("verdicts", saved)
        if not seen.held(0).any():
            raise SystemExit(2)


def _print(plan: "Plan", document: dict[str, Any]) -> None:
    rows = table(
        "stage",
        "object",
        "generated>>",
        "tried>>",
        "valid>>",
        "SR %>>",
        "chained %>>",
        "penetration mm>>",
        "drift mm>>",
        "turn deg>>",
        "CPU s>>",
        "fates",
    )
    for number, v in enumerate(document["stages"], 1):
        lengths = ("-" if v[k] is None else f"{v[k]:.2f}" for k in ("penetration_mm", "drift_mm", "turn_deg"))
        rows.add_row(
            str(number),
            v["object"],
            *(str(v[k]) for k in ("generated", "tried", "valid")),
            f"{v['sr']:.1f}",
            f"{v['sr_chained']:.1f}",
            *lengths,
            f"{v['cpu_s']:.1f}",
            ", ".join(f"{name} {n}" for name, n in v["reasons"].items()),
        )
    show(rows)
    assert plan.validation is not None
    print(f"protocol {plan.validation.protocol.name}: {plan.validation.protocol.summary}")
    print("tried: grasps that continue one that held; SR: of those; chained: of all from the first stage on")
    if "agreement" in document:
        a = document["agreement"]
        print(
            f"vendor's hand and ours agree on {a['equal']:.1f} % of {a['grasps']} grasps: held by both "
            f"{a['both']}, by neither {a['neither']}, only by the vendor's {a['only_menagerie']}, "
            f"only by ours {a['only_own']}"
        )
    for line in document.get("grasp", ()):
        print(line)


def _agreement(own: "Plan", vendor: "Plan") -> dict[str, Any]:
    """How far the verdicts on all grasps of all stages agree; `equal` in percent."""
    from fistful.planning.validation import agreement

    assert own.validation is not None and vendor.validation is not None
    a = agreement(own.validation, vendor.validation)
    return {
        "grasps": a.grasps,
        "equal": round(100 * a.equal, 3),
        "both": a.both,
        "only_own": a.only_first,
        "only_menagerie": a.only_second,
        "neither": a.neither,
    }


def _story(plan: "Plan", grasp: int) -> list[str]:
    """What happened to a grasp of the last stage and to those it continues, one line each."""
    assert plan.validation is not None
    names = [stage.object_name for stage in plan.stages]
    path = plan.lineage(-1, grasp)
    return [
        f"stage {n}, grasp {i}: {verdicts.explain(i, names)}"
        for n, (i, verdicts) in enumerate(zip(path, plan.validation.verdicts, strict=True), 1)
    ]
