"""The folder of a run: the one that a user names, or the next number that is free."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fistful.cli.console import RUNS


@contextmanager
def out_folder(wanted: Path | None, kind: str) -> Iterator[Path]:
    """The folder that is wanted, or a new runs/KIND-1, KIND-2 ... What was made and stays empty goes."""
    made = _missing(wanted or RUNS)
    if wanted is None:
        wanted = _next_free(kind)
        made.insert(0, wanted)
    try:
        yield wanted
    finally:
        for empty in made:
            with suppress(OSError):
                empty.rmdir()


def _missing(folder: Path) -> list[Path]:
    """The folder and its parents, innermost first, as far as they are not there."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def _next_free(kind: str) -> Path:
    """A new folder; by making it, so that no other process has the same."""
    RUNS.mkdir(exist_ok=True)
    number = 1
    while True:
        try:
            folder = RUNS / f"{kind}-{number}"
            folder.mkdir()
            return folder
        except FileExistsError:
            number += 1
