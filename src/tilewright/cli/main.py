"""The entry of the command line: the group of commands, and what becomes of errors.

Exit status: 0 done, 1 a check failed, 2 wrong use (options, models, inputs, settings), 3 an internal error,
130 interrupted, 141 where the reader of the output went away before its end. Results go to stdout, everything
else to stderr.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from types import MappingProxyType, TracebackType
from typing import Any, Final

import click

from tilewright import __version__
from tilewright.cli.state import DONE, INTERNAL, INTERRUPTED, UNREAD, WRONG_USE, State
from tilewright.support import TilewrightError, UserError, quoted, suggestion

#: Those that Python has a function of: theirs has an underscore.
_BUILT_IN: Final = ("compile", "map")
#: The commands, each a file of its name, and what `--help` says of them: it imports none.
_COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "compile": "Compile MODEL, and report its inputs, outputs, kernels and memory.",
        "run": "Run MODEL on given inputs, or on random ones.",
        "generate": "Write the text that a language model lets follow a prompt.",
        "serve": "Serve a language model over HTTP, to clients of OpenAI's interface.",
        "bench": "Time MODEL, alone or against other engines.",
        "verify": "Compare MODEL's values with a reference.",
        "explain": "Show what MODEL was compiled to, from groups of nodes to assembly.",
        "diff": "Show what two plans of a model decide differently.",
        "profile": "Time every kernel of MODEL, and compare it with its limit.",
        "map": "List the ways to run PROGRAM by instructions of a machine.",
        "tune": "Search for faster plans of MODEL's kernels by measuring.",
        "db": "Look into databases of tuning, and move what they hold.",
        "schedule": "Print the schedule that --strategy finds for a program, as a Python function.",
        "demo": "Build, compile, run, time and check ResNet-18 with random weights.",
        "targets": "List the machines that can be compiled for.",
        "doctor": "Check the installation: packages, native runtime, machine, cache.",
        "simulate": "Schedule a program for a machine of files, and time it in its simulator.",
        "report": "Write a page: the tasks of a tuning database, or MODEL's kernels.",
    }
)

#: A disk, a quota or a file that takes no more: said as such, whoever wrote.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _UnreadError(Exception):
    """A broken pipe, which click would make an exit of status 1: that of a failed check."""


@contextmanager
def _unread() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise _UnreadError from None


class _Commands(click.Group):
    """Commands that are imported when they are wanted: inside of what reports errors and interruptions."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """As click does: it prints the help."""
        with _unread():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        with _unread():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return sorted(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments begin with. Raises UsageError for what is none."""
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            hint = suggestion(args[0], _COMMANDS)
            raise click.UsageError(
                f"No such command {quoted(args[0])}." + (f" {hint[0].upper()}{hint[1:]}" if hint else ""), ctx
            )
        return super().resolve_command(ctx, args)

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

    Exit status: 0 done, 1 a check failed, 2 wrong use, 3 an internal error, 130 interrupted, 141 the output's
    reader went away.
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
        if sys.stdout is not None:  # it is where the process began with it closed
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
        if isinstance(error, (BrokenPipeError, _UnreadError)):
            _discard_output()
            self.status = UNREAD
            return True
        if isinstance(error, click.exceptions.Exit):
            self.status = error.exit_code
        elif isinstance(error, (KeyboardInterrupt, click.Abort)):
            _tell("interrupted")
            self.status = INTERRUPTED
        elif isinstance(error, click.ClickException):
            with suppress(OSError):
                error.show()
            self.status = WRONG_USE
        elif isinstance(error, Exception):
            self._report(error)
        else:
            return False
        return True

    def _report(self, error: Exception) -> None:
        expected = isinstance(error, UserError)
        known = isinstance(error, TilewrightError)
        text = str(error) if known else f"internal error: {type(error).__name__}: {error}"
        if isinstance(error, OSError) and error.errno in _FULL:
            expected, text = True, f"nothing more can be written: {error.strerror}"
            _discard_output()
        self.status = WRONG_USE if expected else INTERNAL
        if self.state.traceback:
            _tell("".join(traceback.format_exception(error)).rstrip())
        else:
            _tell(f"error: {text}" if expected else text)
            if not expected:
                _tell("  run again with --traceback, and please report it")
        if self.state.json:
            try:
                self.state.print_json({"error": {"kind": type(error).__name__, "message": text}})
            except OSError:
                _discard_output()


def _tell(text: str) -> None:
    """Print a line on stderr, where it takes one: the status says the same."""
    with suppress(OSError):
        click.echo(text, err=True)


def _discard_output() -> None:
    """Let nothing be written to stdout any more, at exit either: what is in its buffer goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
