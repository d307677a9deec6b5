"""Command line options that the benchmarks have in common."""

import argparse
from collections.abc import Iterable

from tilewright.driver import OURS
from tilewright.support import available_cpus


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """A parser that shows the text of the benchmark's module as it is written."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_turns(parser: argparse.ArgumentParser, rounds: int, seconds: float) -> None:
    """Add what those have that take turns: ``--threads``, ``--rounds``, ``--seconds`` and ``--json``."""
    parser.add_argument("--threads", type=int, default=available_cpus(), help="threads of every engine")
    parser.add_argument("--rounds", type=int, default=rounds, help="turns an engine")
    parser.add_argument("--seconds", type=float, default=seconds, help="seconds a turn")
    parser.add_argument("--json", action="store_true", help="one JSON line for each thing measured")


def add_engines(parser: argparse.ArgumentParser, default: str) -> None:
    """Add ``--against``, read by :func:`engine_names`."""
    parser.add_argument("--against", default=default, help="other engines, by commas; may be empty")


def add_models(parser: argparse.ArgumentParser, known: Iterable[str]) -> None:
    """Add ``--models``, to be split by :func:`names`; all that are known by default."""
    parser.add_argument("--models", default=",".join(known), help="which, by commas")


def names(text: str) -> list[str]:
    """The names in a list by commas."""
    return [name for part in text.split(",") if (name := part.strip())]


def engine_names(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Tilewright and the engines that ``--against`` names, each once."""
    return tuple(dict.fromkeys([OURS, *names(arguments.against)]))
