"""The command line: parse, call, print. Standard output is data, standard error is talk."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from fistful import __version__
from fistful.cli.console import fail, say
from fistful.cli.doctor import Doctor
from fistful.cli.evaluate import Evaluate
from fistful.cli.hands import Hands
from fistful.cli.jaws import Jaws
from fistful.cli.objects import Objects
from fistful.cli.plan import Plan
from fistful.cli.validate import Validate
from fistful.cli.view import View
from fistful.errors import FistfulError

Command = (
    Annotated[Hands, tyro.conf.subcommand("hands")]
    | Annotated[Objects, tyro.conf.subcommand("objects")]
    | Annotated[Plan, tyro.conf.subcommand("plan")]
    | Annotated[Validate, tyro.conf.subcommand("validate")]
    | Annotated[View, tyro.conf.subcommand("view")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Jaws, tyro.conf.subcommand("jaws")]
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
            config=(
                tyro.conf.OmitSubcommandPrefixes,
                tyro.conf.OmitArgPrefixes,
                tyro.conf.FlagCreatePairsOff,
            ),
        )
        command.run()
    except FistfulError as error:
        fail(str(error))
    except KeyboardInterrupt as stop:
        say(f"\nfistful: interrupted; {stop if str(stop) else 'what was finished is kept in the cache'}")
        raise SystemExit(130) from None
    except BrokenPipeError:
        # The reader (head, less) has gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
