"""The errors a user can meet. Each is also a builtin; each message names the value and the fix."""

from collections.abc import Iterable
from difflib import get_close_matches


class FistfulError(Exception):
    """Any failure whose message is meant for the user; the CLI prints it on one line and exits with 2."""


class MeshError(FistfulError, ValueError):
    """A mesh that can not be used, and why."""


class HandError(FistfulError, ValueError):
    """A hand model or description that can not be used, and why."""


class PlanError(FistfulError, ValueError):
    """Grasps that can not be planned as asked, and why."""


class PhysicsError(FistfulError, ValueError):
    """Grasps that can not be simulated as asked, and why."""


class JawsError(FistfulError, ValueError):
    """A jaw grasp that can not be simulated or judged as asked, and why."""


class ViewError(FistfulError, ValueError):
    """Something that can not be shown as asked, and why."""


class CacheError(FistfulError, OSError):
    """The cache folder can not be read or written."""


class UnknownNameError(FistfulError, LookupError):
    """A name that is neither built in nor a file."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str):
        """Say what was asked for, the nearest known name, and what else would have worked."""
        known = sorted(known)
        near = get_close_matches(name, known, n=1)
        guess = f" Did you mean {near[0]!r}?" if near else f" Built in: {', '.join(known)}."
        super().__init__(f"no {kind} called {name!r}, and no such file.{guess} {hint}")
