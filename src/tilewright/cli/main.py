"""The entry of the command line: the group of commands, and what becomes of errors.

Exit status: 0 done, 1 a check failed, 2 wrong use (options, models, inputs, settings), 3 an internal error,
130 interrupted. Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from types import TracebackType
from typing import Final

import click

from tilewright import __version__
from tilewright.cli.state import DONE, INTERNAL, INTERRUPTED, WRONG_USE, State
from tilewright.support import TilewrightError, UserError

#: Those that Python has a function of: theirs has an underscore.
_BUILT_IN: Final = ("compile", "map")
#: The commands, each a file of its name.
_COMMANDS: Final = (
    "compile",
    "run",
    "bench",
    "verify",
    "explain",
    "profile",
    "map",
    "tune",
    "db",
    "schedule",
    "demo",
    "targets",
    "doctor",
    "simulate",
    "report",
)


class _Commands(click.Group):
    """Commands that are imported when they are wanted: inside of what reports errors and interruptions."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"tilewright.cli.commands.{cmd_name}")
        command: click.Command = getattr(module, f"{cmd_name}_" if cmd_name in _BUILT_IN else cmd_name)
        return command


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="tilewright")
def cli() -> None:
    """Tilewright compiles tensor programs into fast native code.

    A MODEL is an ONNX file, or zoo:NAME for one of the reference architectures with random weights
    (zoo:resnet18, or zoo:resnet18:small for a version made small).

    Exit status: 0 done, 1 a check failed, 2 wrong use, 3 an internal error, 130 interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; the arguments default to the process's own."""
    state = State()
    with _LastResort(state) as guard:
        result = cli.main(
            None if arguments is None else list(arguments),
            prog_name="tilewright",
            standalone_mode=False,
            obj=state,
        )
        guard.status = result if isinstance(result, int) else DONE
        sys.stdout.flush()
    return guard.status


class _LastResort:
    """Turns whatever ends a command into a message and an exit status."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.status = DONE

    def __enter__(self) -> _LastResort:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            return False
        if isinstance(error, BrokenPipeError):
            # The reader of our output went away; nothing may be written to it at exit either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return True
        if isinstance(error, click.exceptions.Exit):
            self.status = error.exit_code
        elif isinstance(error, (KeyboardInterrupt, click.Abort)):
            click.echo("interrupted", err=True)
            self.status = INTERRUPTED
        elif isinstance(error, click.ClickException):
            error.show()
            self.status = WRONG_USE
        elif isinstance(error, Exception):
            self._report(error)
        else:
            return False
        return True

    def _report(self, error: Exception) -> None:
        expected = isinstance(error, UserError)
        self.status = WRONG_USE if expected else INTERNAL
        known = isinstance(error, TilewrightError)
        text = str(error) if known else f"internal error: {type(error).__name__}: {error}"
        if self.state.traceback:
            click.echo("".join(traceback.format_exception(error)).rstrip(), err=True)
        else:
            click.echo(f"error: {text}" if expected else text, err=True)
            if not expected:
                click.echo("  run again with --traceback, and please report it", err=True)
        if self.state.json:
            self.state.print_json({"error": {"kind": type(error).__name__, "message": text}})
