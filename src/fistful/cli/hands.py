"""`fistful hands`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from fistful.cli.console import (
    RUNS,
    check_picture,
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
    from fistful.hands import Hand


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

        check_picture(self.picture)
        if self.name is None and (self.write or self.picture or self.check):
            raise FistfulError("--write, --picture and --check need a hand: fistful hands HAND ...")
        if self.name is None:
            hands = [load_hand(name) for name in hand_names()]
            if self.json:
                print_json({"hands": [_hand_record(hand) for hand in hands]})
            else:
                _print_hand_list(hands)
            return
        with steps(f"describing {self.name}") as step:
            hand = load_hand(self.name, progress=step)
        if self.check:
            with steps(f"checking {hand.name}") as step:
                hand = check_hand(hand, progress=step)
        written = None if self.write is None else save_hand(hand, self.write, overwrite=self.force)
        path = None
        if not self.no_picture:
            from fistful.view.picture import hand_sheet

            path = self.picture or RUNS / "hands" / f"{hand.name}.png"
            with steps(f"drawing {hand.name}"):
                sheet = hand_sheet(hand)
            save_picture(sheet, path)
        if self.json:
            print_json(_hand_record(hand) | {"picture": path, "written": written})
        else:
            _print_hand(hand)
            say_where("description", written)
            say_where("picture", path)


def _print_hand_list(hands: "Sequence[Hand]") -> None:
    rows = table("hand", "joints>>", "fingers>>", "spaces>>", "about")
    for hand in hands:
        counts = (len(hand.joints), len(hand.fingers), len(hand.opposition_spaces))
        rows.add_row(hand.name, *map(str, counts), hand.summary)
    show(rows)


def _print_hand(hand: "Hand") -> None:
    model = hand.model
    print(f"{hand.name}: {hand.summary}\n")
    rows = table("joint", "lower>>", "upper>>", "open>>", "limit N m (N)>>", "finger")
    for k, joint in enumerate(model.joints):
        finger = ", ".join(f.name for f in hand.fingers if f.joint_mask[k])
        numbers = (model.lower[k], model.upper[k], model.open_pose[k], model.torque_limit[k])
        rows.add_row(joint, *(f"{v:.3f}" for v in numbers), finger)
    show(rows)
    print()
    rows = table("opposition space", "surfaces", "balls mm>>", "joints")
    for entry in hand.description.opposition_spaces:
        span = "" if entry.span_mm is None else f"{entry.span_mm[0]:g}-{entry.span_mm[1]:g}"
        rows.add_row(entry.name, " - ".join(entry.surfaces), span, " ".join(entry.joints))
    show(rows)
    coupled = [joint for joint in model.all_joints if joint not in model.joints]
    if coupled:
        print(f"\ncoupled joints: {', '.join(coupled)}")
    for line in hand.notes:
        say(f"note: {line}")


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
