"""What all commands share while one runs: where output goes, and how it looks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

import click
import numpy as np
from rich.console import Console

SCHEMA = 1
"""Version of all JSON that the commands print."""

#: Exit statuses: a check that failed is one, wrong use of the command line or a wrong input another.
DONE: Final = 0
FAILED: Final = 1
WRONG_USE: Final = 2
INTERNAL: Final = 3
INTERRUPTED: Final = 130
#: What shells say of a program that the signal of a broken pipe ended.
UNREAD: Final = 141


class _Console(Console):
    """A console whose broken pipe is an error like that of other output, not the exit of a failed check."""

    def on_broken_pipe(self) -> None:
        """Called where the error is handled."""
        raise BrokenPipeError


@dataclass(slots=True)
class State:
    """Options that every command has, and its two consoles."""

    json: bool = False
    traceback: bool = False
    lines: bool = False
    """Whether each JSON document is one line: of a command that prints several."""
    out: Console = field(default_factory=lambda: _Console(markup=False, highlight=False, soft_wrap=True))
    log: Console = field(default_factory=lambda: _Console(stderr=True, markup=False, highlight=False))

    def print_json(self, data: dict[str, Any]) -> None:
        """Print one JSON document on stdout: what is no finite number is null, JSON has none such."""
        indent = None if self.lines else 2
        known = _finite({"schema": SCHEMA, **data})
        click.echo(json.dumps(known, indent=indent, allow_nan=False))

    def say(self, text: str) -> None:
        """Print a line of a result for people; nothing where JSON is wanted."""
        if not self.json:
            click.echo(text)

    def note(self, text: str) -> None:
        """Print a remark on stderr."""
        click.echo(text, err=True)


def _finite(value: object) -> object:
    """Plain data: numpy's scalars and arrays too, and None for infinities and what is no number."""
    if isinstance(value, np.generic | np.ndarray):
        return _finite(value.tolist())
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value
