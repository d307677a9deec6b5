"""Lines of generated text, indented, and names that clash with nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tilewright.codegen.llvm.kernel import symbol_of

INDENT: Final = "    "
MOST_NAME: Final = 40
"""Characters of a name taken from a loop or a buffer."""


class Writer:
    """Lines of a function's body, and the names given out in it."""

    def __init__(self, depth: int = 1) -> None:
        self.lines: list[str] = []
        self._depth = depth
        self._taken: set[str] = set()

    def line(self, text: str) -> None:
        """Add a line at the present depth."""
        self.lines.append(INDENT * self._depth + text)

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """Lines inside of braces after ``head``."""
        self.line(f"{head} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line(tail)

    @contextmanager
    def aside(self) -> Iterator[list[str]]:
        """Lines written inside are collected instead of added."""
        outer, self.lines = self.lines, []
        self._depth += 1
        collected = self.lines
        yield collected
        self._depth -= 1
        self.lines = outer

    def name(self, wanted: str) -> str:
        """A name like ``wanted`` that no keyword, macro or other name equals: it ends in an underscore or in
        one and a number.
        """
        plain = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in wanted)[:MOST_NAME]
        plain = plain.strip("_") or "v"
        if plain[0].isdigit():
            plain = f"v{plain}"
        found = f"{plain}_"
        number = 1
        while found in self._taken:
            number += 1
            found = f"{plain}_{number}"
        self._taken.add(found)
        return found


def entry_name(name: str) -> str:
    """The name of an entry function, which languages let nobody call ``main``."""
    symbol = symbol_of(name)
    return "k_main" if symbol == "main" else symbol
