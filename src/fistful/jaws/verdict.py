"""What a model says of one grasp."""

from typing import NamedTuple


class Verdict(NamedTuple):
    """What a model says of one pose."""

    held: bool
    cpu_s: float
    reason: str
    """The word held, or why not. A pose that does not fit around the object fails too."""
    unconverged_steps: int
    """Of a simulation; 0 for other models."""
    moved_mm: float | None = None
    """How far the squeeze moved the object, by `ipc`; the others do not say."""
