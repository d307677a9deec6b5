"""What all commands share while one runs: where output goes, and how it looks."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class State:
    """Options that every command has, and its two consoles."""

    json: bool = False
    traceback: bool = False
    lines: bool = False
    """Whether each JSON document is one line: of a command that prints several."""
    out: Console = field(default_factory=lambda: Console(markup=False, highlight=False, soft_wrap=True))
    log: Console = field(default_factory=lambda: Console(stderr=True, markup=False, highlight=False))

    def print_json(self, data: dict[str, Any]) -> None:
        """Print one JSON document on stdout."""
        indent = None if self.lines else 2
        click.echo(json.dumps({"schema": SCHEMA, **data}, indent=indent, default=_plain))

    def say(self, text: str) -> None:
        """Print a line of a result for people; nothing where JSON is wanted."""
        if not self.json:
            click.echo(text)

    def note(self, text: str) -> None:
        """Print a remark on stderr."""
        click.echo(text, err=True)


def _plain(value: object) -> object:
    """What JSON does not know: numpy scalars and arrays."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not plain data")
