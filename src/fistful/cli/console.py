"""What the commands share: talk on standard error, data on standard output, pictures in files."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fistful.errors import FistfulError

if TYPE_CHECKING:
    from PIL.Image import Image

    from fistful.hands import Hand
    from fistful.objects import Object

RUNS = Path("runs")
talk = Console(stderr=True)


def complain(message: str) -> None:
    """An error, on standard error."""
    talk.print(f"fistful: {message}", style="red", highlight=False, markup=False, soft_wrap=True)


def fail(message: str) -> None:
    """An error, and exit code 2."""
    complain(message)
    raise SystemExit(2) from None


def say(message: str) -> None:
    """A line on standard error."""
    talk.print(message, highlight=False, markup=False, soft_wrap=True)


def note(message: str) -> None:
    """A line that should not be overlooked, on standard error."""
    talk.print(message, style="yellow", highlight=False, markup=False, soft_wrap=True)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a word about what is kept."""


@contextmanager
def steps(title: str) -> Iterator[Callable[[str], None]]:
    """A spinner with the current step on a terminal; otherwise a line every few seconds."""
    if talk.is_terminal:
        with talk.status(escape(title)) as status:
            yield lambda text: status.update(escape(f"{title}: {text}"))
        return
    last = time.monotonic()

    def line(text: str) -> None:
        nonlocal last
        if time.monotonic() - last > 5:
            last = time.monotonic()
            talk.print(f"{title}: {text}", highlight=False, markup=False, soft_wrap=True)

    yield line


def check_picture(path: Path | None) -> None:
    """Raise FistfulError unless the file is a .png."""
    if path is not None and path.suffix.lower() != ".png":
        raise FistfulError(f"pictures are .png files; {path.name!r} is not")


def save_picture(picture: "Image", path: Path) -> None:
    """Write a picture, atomically."""
    from fistful.storage import write_file

    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, lambda file: picture.save(file, "PNG"))


def say_where(what: str, path: Path | None) -> None:
    """Where something was written, if it was."""
    if path is not None:
        say(f"{what}: {path}")


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(document, indent=2, default=str))


def table(*columns: str) -> Table:
    """A table; columns whose name ends in ">>" are aligned to the right."""
    rows = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        name, _, align = column.partition(">")
        rows.add_column(name, justify="right" if align else "left", overflow="fold")
    return rows


def show(rows: Table) -> None:
    """Print a table on standard output."""
    # Piped output is for tools: no wrapping to a terminal width that is not there.
    width = None if sys.stdout.isatty() else 200
    Console(width=width, highlight=False, markup=False).print(rows)


def print_shapes(records: Sequence[dict[str, Any]]) -> None:
    """How well the shapes that stand for objects in physics fit, on standard error."""
    for r in records:
        far, lack = r["outside_mm"], r["inside_mm"]
        say(
            f"note: {r['object']}: {r['parts']} convex part(s) in physics; beyond the mesh by "
            f"{far['mean']:.2f} mm on average, {far['p95']:.2f} at 95 %, {far['max']:.2f} at most; "
            f"short of it by at most {lack['max']:.2f} mm"
        )


def print_notes(hand: "Hand", objects: "Sequence[Object]") -> None:
    """What was assumed or changed on the way to a hand and objects that can be planned with."""
    for line in hand.notes:
        say(f"note: {hand.name}: {line}")
    for item in dict.fromkeys(objects):
        print_object_notes(item)


def print_object_notes(item: "Object") -> None:
    """What was assumed or changed on the way to an object, on standard error."""
    for line in (*item.report.found, *item.report.mended):
        say(f"note: {item.name}: {line}")
