"""Options and arguments that commands have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from math import isfinite
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click

from tilewright.cli.state import State
from tilewright.driver import AS_WRITTEN, PRECISIONS
from tilewright.plan import WINOGRAD_MODES
from tilewright.strategies import DEFAULT, MEASURED, STRATEGIES
from tilewright.support import InputError, WaitPolicy, configure_logging, quoted, read_settings

_F = TypeVar("_F", bound=Callable[..., Any])

_LEVELS: Final = ("", "INFO", "DEBUG")


_THREADS = click.option("--threads", type=click.IntRange(min=1), help="Threads of a run. Default: one a CPU.")


def seed_option(text: str) -> Callable[[_F], _F]:
    """``--seed``, a number from 0 on, with its help."""
    return click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help=text)


def trials_option(text: str, least: int) -> Callable[[_F], _F]:
    """``--trials``: how many candidates are measured at most, ``least`` or more, with its help."""
    return click.option("--trials", default=64, show_default=True, type=click.IntRange(min=least), help=text)


class FiniteRange(click.FloatRange):
    """A range of numbers that `nan` and `inf` are not in, which click lets pass where a bound is open."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number of a text; fails for one that is none or outside."""
        number = float(super().convert(value, param, ctx))
        if not isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How a model is compiled; the fields are those of ``tilewright.compile``."""

    target: str = "cpu"
    threads: int | None = None
    wait_policy: str | None = None
    precision: str = "f32"
    accuracy: str = "auto"
    winograd: str | None = None
    checks: bool = True
    strategy: str = "default"
    plan: str | None = None
    records: str | None = None
    shapes: Mapping[str, tuple[int, ...] | int] = field(default_factory=dict)
    defines: Mapping[str, str] = field(default_factory=dict)
    headers: tuple[Path, ...] = ()
    plan_file: str | None = None
    """Where ``plan``, its text, was read."""

    @property
    def read(self) -> tuple[str, ...]:
        """The files that it reads besides the model, by the names that were given."""
        return tuple(each for each in (self.plan_file, self.records) if each is not None)


def plan_text(path: str) -> str:
    """The text of a plan's file; what it says is checked where it is taken apart."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"the plan {quoted(path)} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(
            f"the plan {quoted(path)} is no text", hint="`tilewright explain MODEL --show plan` prints a plan"
        ) from None


def _set_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.ensure_object(State).json = value


def _set_traceback(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.ensure_object(State).traceback = value


def _set_verbosity(_: click.Context, __: click.Parameter, value: int) -> None:
    configure_logging(_LEVELS[min(value, 2)] or read_settings().log_level)


def common_options(command: _F) -> _F:
    """Add ``--json``, ``--traceback`` and ``--verbose``, and pass the command its ``State`` first."""
    for option in (
        click.option(
            "-v",
            "--verbose",
            count=True,
            expose_value=False,
            callback=_set_verbosity,
            help="Log what happens; twice: all.",
        ),
        click.option(
            "--traceback",
            is_flag=True,
            expose_value=False,
            callback=_set_traceback,
            is_eager=True,
            help="Show where an error was raised.",
        ),
        click.option(
            "--json",
            is_flag=True,
            expose_value=False,
            callback=_set_json,
            is_eager=True,
            help="Print the result as JSON.",
        ),
    ):
        command = option(command)
    return cast(_F, click.pass_obj(command))


def model_argument(command: _F) -> _F:
    """Add the MODEL argument."""
    return click.argument("model", metavar="MODEL")(command)


def loading_options(command: _F) -> _F:
    """Add what decides how a language model is loaded, and pass it as ``how``, the arguments of ``load``.

    These are ``--capacity``, ``--bits``, ``--accuracy``, ``--cache`` and ``--threads``.
    """

    @wraps(command)
    def bundled(
        *arguments: object,
        capacity: int | None,
        bits: str | None,
        accuracy: str,
        cache: str,
        threads: int | None,
        **others: object,
    ) -> object:
        rounded = None if bits is None else int(bits)
        how = {
            "capacity": capacity,
            "bits": rounded,
            "accuracy": accuracy,
            "cache": cache,
            "threads": threads,
        }
        return command(*arguments, how=how, **others)

    made: Any = bundled
    for option in (
        _THREADS,
        click.option(
            "--accuracy",
            default="auto",
            show_default=True,
            metavar="exact|auto|ERROR",
            help="The largest error of a product, of its largest result. From about 0.01 on products with "
            "matrices of few bits multiply bytes, to which activations are rounded block by block.",
        ),
        click.option(
            "--cache",
            type=click.Choice(["f32", "bf16"]),
            default="f32",
            show_default=True,
            help="The type in which keys and values are kept.",
        ),
        click.option("--bits", type=click.Choice(["4", "8"]), help="Round matrices to so many bits."),
        click.option(
            "--capacity", type=click.IntRange(min=1), help="Tokens of the longest text, with its prompt."
        ),
    ):
        made = option(made)
    return cast(_F, made)


def compile_options(command: _F) -> _F:
    """Add what decides how a model is compiled, and pass it as the command's ``options``.

    These are ``--target``, ``--threads``, ``--precision``, ``--accuracy``, ``--no-checks``, ``--strategy``,
    ``--plan``, ``--records``, ``--wait-policy``, ``--shape`` and ``-D``.
    """

    @wraps(command)
    def bundled(
        *arguments: object,
        target: str,
        threads: int | None,
        wait_policy: str | None,
        precision: str,
        accuracy: str,
        winograd: str | None,
        checks: bool,
        strategy: str,
        plan_file: str | None,
        records: str | None,
        shapes: tuple[str, ...],
        defines: tuple[str, ...],
        headers: tuple[str, ...],
        **others: object,
    ) -> object:
        options = CompileOptions(
            target,
            threads,
            wait_policy,
            precision,
            accuracy,
            winograd,
            checks,
            strategy,
            None if plan_file is None else plan_text(plan_file),
            records,
            parse_shapes(shapes),
            parse_defines(defines),
            tuple(map(Path, headers)),
            plan_file,
        )
        return command(*arguments, options=options, **others)

    made: Any = bundled
    for option in (
        click.option(
            "-D",
            "defines",
            multiple=True,
            metavar="NAME[=TEXT]",
            help="Define a macro of a nest in C. May be given several times.",
        ),
        click.option(
            "-I",
            "headers",
            multiple=True,
            type=click.Path(exists=True, file_okay=False),
            metavar="FOLDER",
            help="Read headers of a nest in C from there, also those in angle brackets.",
        ),
        click.option(
            "--shape",
            "shapes",
            multiple=True,
            metavar="NAME=SIZES",
            help="Settle open sizes: an input's name with its shape (x=1,3,224,224), or the name of an "
            "unknown size with its value (batch=1). May be given several times.",
        ),
        click.option(
            "--wait-policy",
            type=click.Choice([policy.value for policy in WaitPolicy]),
            help="What idle threads do between loops: spin (active), or sleep at once (passive), which "
            "leaves the CPUs to others. Default: active.",
        ),
        click.option(
            "--precision",
            type=click.Choice(PRECISIONS),
            default="f32",
            show_default=True,
            help="What f32 models store between kernels and multiply. bf16: half the memory traffic, twice "
            "the products where the machine has an instruction for them; sums stay f32.",
        ),
        click.option(
            "--accuracy",
            default="auto",
            show_default=True,
            metavar="exact|auto|f2|f4|ERROR",
            help="What may be done instead of the direct method. exact: nothing; auto: Winograd's or "
            "Strassen's method or bf16x3 where they are faster and err by at most 5e-5 of the largest; "
            "a number: by at most that; f2, f4: Winograd's method with tiles of 2 or 4 wherever it applies.",
        ),
        click.option(
            "--winograd", type=click.Choice(WINOGRAD_MODES), hidden=True, help="Older name of --accuracy."
        ),
        click.option(
            "--checks/--no-checks",
            default=True,
            show_default=True,
            help="Whether runs look at indices and end where one is out of range.",
        ),
        click.option(
            "--strategy",
            type=click.Choice((DEFAULT, MEASURED, *STRATEGIES, AS_WRITTEN)),
            default=DEFAULT,
            show_default=True,
            help="What chooses the plan of each kernel. When compiling nothing is measured, the analytic "
            "model decides; tuning measures, by default with auto, several searches at once. Of nests in "
            "C as-written changes nothing.",
        ),
        click.option(
            "--plan",
            "plan_file",
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            help="Make kernels as a plan says that `tilewright explain MODEL --show plan` printed.",
        ),
        click.option(
            "--records",
            metavar="FILE|off",
            help="The database of tuning that kernels' plans are taken from. Default: that of the settings.",
        ),
        _THREADS,
        click.option(
            "--target",
            default="cpu",
            show_default=True,
            help="What to compile for; see `tilewright targets`.",
        ),
    ):
        made = option(made)
    return cast(_F, made)


def input_options(command: _F) -> _F:
    """Add what a model is run on: ``--input``, ``--inputs``, ``--seed``."""
    for option in (
        seed_option("Seed of the random inputs used where none are given."),
        click.option(
            "--inputs", "archive", metavar="FILE.npz", help="All inputs by name, as numpy.savez writes them."
        ),
        click.option(
            "--input",
            "files",
            multiple=True,
            metavar="NAME=FILE.npy",
            help="One input, as numpy.save writes it. May be given several times.",
        ),
    ):
        command = option(command)
    return command


def parse_shapes(texts: tuple[str, ...]) -> dict[str, tuple[int, ...] | int]:
    """``NAME=SIZES`` options as the ``shapes`` of a compilation. Raises UsageError for other text."""
    shapes: dict[str, tuple[int, ...] | int] = {}
    for text in texts:
        # Names may hold "=": sizes never do.
        name, equals, sizes = text.rpartition("=")
        parts = [part.strip() for part in sizes.split(",")]
        # one number alone may be negative: a nest's, which is no size of an array
        numeral = re.compile(r"-?[0-9]+" if len(parts) == 1 else r"[0-9]+")
        if not equals or not name or not all(map(numeral.fullmatch, parts)):
            raise click.UsageError(f"--shape takes NAME=SIZES such as x=1,3,224,224, got {text!r}")
        numbers = tuple(int(part) for part in parts)
        shapes[name] = numbers if len(numbers) > 1 else numbers[0]
    return shapes


def parse_defines(texts: tuple[str, ...]) -> dict[str, str]:
    """``NAME[=TEXT]`` options as macros; 1 where there is no text. Raises UsageError for no name."""
    macros: dict[str, str] = {}
    for text in texts:
        name, equals, body = text.partition("=")
        if not name.isidentifier():
            raise click.UsageError(f"-D takes NAME or NAME=TEXT, got {text!r}")
        macros[name] = body if equals else "1"
    return macros


def parse_assignments(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """``NAME=FILE`` options by name. Raises UsageError for other text."""
    given: dict[str, str] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not equals or not name or not file:
            raise click.UsageError(f"{option} takes NAME=FILE, got {text!r}")
        given[name] = file
    return given


def parse_sizes(texts: tuple[str, ...]) -> list[dict[str, int]]:
    """``NAME=N,NAME=N`` options, each a value of every open size. Raises UsageError for other text."""
    found: list[dict[str, int]] = []
    for text in texts:
        pairs = [part.rpartition("=") for part in text.split(",")]
        if not all(name and value.isdigit() for name, _, value in pairs):
            raise click.UsageError(f"--size {text}: write NAME=N, such as batch=8,seq=128")
        found.append({name: int(value) for name, _, value in pairs})
    return found


def parse_ranges(texts: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """``NAME=LO:HI`` options as the ``dynamic`` of a compilation. Raises UsageError for other text."""
    ranges: dict[str, tuple[int, int]] = {}
    for text in texts:
        name, _, bounds = text.rpartition("=")
        lo, _, hi = bounds.partition(":")
        if not name or not lo.isdigit() or not hi.isdigit():
            raise click.UsageError(f"--dynamic {text}: write NAME=LEAST:LARGEST, such as seq=1:4096")
        ranges[name] = (int(lo), int(hi))
    return ranges
