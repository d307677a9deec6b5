"""C files cut into what stands at their top level; of it functions are parsed, each on its own lines.

What a nest does not need is never parsed: a file may hold any C besides.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from tilewright.frontend.c.steps import steps_apart
from tilewright.support import InstallationError, ProgramError, SourceLocation, quoted

#: The types of <stdint.h> and <stddef.h>, as they are on 64-bit machines of Linux and macOS.
STANDARD_TYPES: Final = {
    "int8_t": "signed char", "uint8_t": "unsigned char", "int16_t": "short", "uint16_t": "unsigned short",
    "int32_t": "int", "uint32_t": "unsigned int", "int64_t": "long", "uint64_t": "unsigned long",
    "size_t": "unsigned long", "ssize_t": "long", "ptrdiff_t": "long", "intptr_t": "long",
    "uintptr_t": "unsigned long", "bool": "_Bool",
}  # fmt: skip
_IGNORED: Final = re.compile(
    r"__extension__|__volatile__|_Pragma\s*\([^)]*\)|__attribute__\s*\(\([^()]*(?:\([^()]*\)[^()]*)*\)\)"
)
_SPELT: Final = re.compile(r"\b__(restrict|inline|const|signed)(?:__)?\b")
_PRAGMA: Final = re.compile(r"^\s*#\s*pragma\b(?!\s+(?:end)?scop\b).*$", re.M)
_SCOP: Final = re.compile(r"^\s*#\s*pragma\s+scop\b", re.M)
_LITERAL: Final = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'')
_LOOPS: Final = re.compile(r"\b(?:for|while|do)\b")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a file at its top level: a function (``name``), or a declaration.

    ``line`` is its first, ``start`` the characters before it.
    """

    text: str
    line: int
    start: int
    name: str | None = None

    @property
    def marked(self) -> bool:
        """Whether a nest in it is marked by ``#pragma scop``."""
        return _SCOP.search(self.text) is not None

    @property
    def declares_types(self) -> bool:
        """Whether it is a declaration of types, or of enumerated constants."""
        return self.name is None and re.match(r"\s*(?:typedef|struct|union|enum)\b", self.text) is not None


def parts_of(text: str) -> list[Part]:
    """A preprocessed file, cut."""
    blanked = _LITERAL.sub(lambda m: " " * len(m.group()), text)
    out: list[Part] = []
    start = depth = 0
    function = False
    for n, c in enumerate(blanked):
        if c in "{(":
            function |= c == "{" and depth == 0 and blanked[start:n].rstrip().endswith(")")
            depth += 1
        elif c in "})":
            depth = max(0, depth - 1)
        if depth == 0 and (c == ";" or (c == "}" and function)):
            piece = text[start : n + 1]
            first = start + len(piece) - len(piece.lstrip())
            found = re.search(r"(\w+)\s*\(", blanked[start : n + 1]) if function else None
            name = found.group(1) if found else None
            out.append(Part(text[first : n + 1], text.count("\n", 0, first) + 1, first, name))
            start, function = n + 1, False
    if text[start:].strip():
        out.append(Part(text[start:], text.count("\n", 0, start) + 1, start))
    return out


@dataclass(frozen=True)
class Source:
    """A preprocessed C file; ``path`` is for messages, ``headers`` are the system's that it includes."""

    text: str
    path: str
    headers: tuple[str, ...] = ()

    @cached_property
    def parts(self) -> list[Part]:
        """The file cut, without what means nothing to nests; columns stay."""
        text = _IGNORED.sub(lambda m: " " * len(m.group()), self.text)
        text = _SPELT.sub(lambda m: m.group(1).ljust(len(m.group())), text)
        return parts_of(_PRAGMA.sub(lambda m: " " * len(m.group()), text))

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the preprocessed file."""
        return self.text.split("\n")

    @cached_property
    def c(self) -> Any:
        """Pycparser's syntax trees. Raises InstallationError where that package is missing."""
        return _pycparser()[0]

    def where(self, line: int, column: int | None = None) -> SourceLocation | str:
        """A place in the file, with its line's text."""
        text = self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        if column is None:
            return SourceLocation(self.path, line, text)
        return f"{self.path}:{line}:{column}: `{text}`"

    def chosen(self, name: str | None) -> Part:
        """The function called ``name``; without one, that which is marked, or that which has loops.

        Raises ProgramError where that is none, or several are.
        """
        functions = [p for p in self.parts if p.name is not None]
        if name is not None:
            named = next((p for p in functions if p.name == name), None)
            if named is None:
                known = ", ".join(quoted(p.name) for p in functions if p.name) or "none"
                raise ProgramError(
                    f"the file has no function {quoted(name)}", where=self.path, hint=f"it has: {known}"
                )
            return named
        marked = [p for p in functions if p.marked]
        if not marked and any(p.marked for p in self.parts):
            raise ProgramError("#pragma scop stands in no function", where=self.path)
        looping = [p for p in functions if p.name != "main" and _LOOPS.search(p.text)]
        called = {w for p in looping for w in re.findall(r"(\w+)\s*\(", p.text[p.text.index("{") :])}
        found = marked or [p for p in looping if p.name not in called] or looping
        if not found:
            raise ProgramError(
                "the file has no function with loops",
                where=self.path,
                hint="a nest is a function of loops over arrays, or what #pragma scop marks in it",
            )
        if len(found) > 1:
            names = " or ".join(f"{Path(self.path).name}:{p.name}" for p in found[:5])
            raise ProgramError(
                f"the file has {len(found)} functions that may be meant",
                where=self.path,
                hint=f"choose {names}",
            )
        return found[0]

    def function(self, name: str) -> Part | None:
        """The function of this name; ``None`` where the file does not define it."""
        return next((p for p in self.parts if p.name == name), None)

    def declaration(self, name: str) -> Part | None:
        """The declaration outside of functions that has this name; ``None`` where there is none."""
        word = re.compile(rf"\b{re.escape(name)}\b(?!\s*\()")
        declared = (p for p in self.parts if p.name is None and not p.declares_types)
        return next((p for p in declared if word.search(p.text.split("=")[0])), None)

    @cached_property
    def types(self) -> Any:
        """The declarations of types, parsed."""
        return self._tree("".join(self._types), 1)

    @cached_property
    def _types(self) -> list[str]:
        standard = [f"typedef {kind} {name};" for name, kind in STANDARD_TYPES.items()]
        lines = [*standard, *(p.text.replace("\n", " ") for p in self.parts if p.declares_types)]
        return [" ".join(lines)]

    def parsed(self, part: Part) -> Any:
        """The syntax tree of one part: a function, or a list of declarations. Raises ProgramError."""
        if part in self._trees:
            return self._trees[part]
        tree = self._tree(f'{self._types[0]}\n#line {part.line} "{self.path}"\n{part.text}', part.line)
        known = len(self.types.ext)
        self._trees[part] = tree.ext[known:]
        for each in self._trees[part]:
            steps_apart(self.c, each)
        return self._trees[part]

    @cached_property
    def _trees(self) -> dict[Part, Any]:
        return {}

    def _tree(self, text: str, line: int) -> Any:
        _, c_parser = _pycparser()
        try:
            return c_parser.CParser().parse(text, filename=self.path)
        except (c_parser.ParseError, AssertionError) as error:
            raise self._unparsed(str(error), line) from None

    def _unparsed(self, told: str, line: int) -> ProgramError:
        """What pycparser says, at its place in the file, and what may be meant."""
        found = re.search(r":(\d+):(\d+): (?:before: )?(.*)", told)
        if found is None:
            return ProgramError(f"the C does not parse: {told[:200]}", where=self.where(line))
        at, column, near = int(found.group(1)), int(found.group(2)), found.group(3)[:80]
        text = self.lines[at - 1] if 0 < at <= len(self.lines) else ""
        before = re.search(r"([A-Za-z_]\w*)[\s*]*$", text[: column - 1])
        hint = "a nest is C99, without its preprocessor's leftovers"
        if before is not None and re.match(r"\w|\*", near):
            word = quoted(before.group(1))
            hint = f"is {word} a type? declare it by typedef, or give the folder of its header (-I)"
        return ProgramError(
            f"the C does not parse at {quoted(near)}", where=self.where(at, column), hint=hint
        )


def _pycparser() -> tuple[Any, Any]:
    try:
        # an extra of the package, needed for C alone
        from pycparser import c_ast, c_parser  # noqa: PLC0415
    except ImportError:
        raise InstallationError(
            "reading C needs the package pycparser", hint="pip install 'tilewright[c]'"
        ) from None
    return c_ast, c_parser


def constant_value(text: str) -> int | None:
    """The value of an expression of integers as ``#if`` has it; ``None`` for other text."""
    c, c_parser = _pycparser()
    try:
        tree = c_parser.CParser().parse(f"long x = ({text});")
    except (c_parser.ParseError, AssertionError, RecursionError):
        return None
    return _value(c, tree.ext[0].init)


def _value(c: Any, e: Any) -> int | None:
    if isinstance(e, c.Constant) and "int" in e.type.split():
        return int(e.value.rstrip("uUlL"), 8 if re.match(r"0\d", e.value) else 0)
    if isinstance(e, c.TernaryOp):
        test = _value(c, e.cond)
        return None if test is None else _value(c, e.iftrue if test else e.iffalse)
    if isinstance(e, c.UnaryOp) and e.op in _UNARY:
        a = _value(c, e.expr)
        return None if a is None else _UNARY[e.op](a)
    if isinstance(e, c.BinaryOp):
        a, b = _value(c, e.left), _value(c, e.right)
        if e.op in ("/", "%"):
            if not a or not b:
                return None if b in (None, 0) else a
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            return quotient if e.op == "/" else a - quotient * b
        if a is not None and b is not None and (e.op not in ("<<", ">>") or 0 <= b < 64):
            return int(_BINARY[e.op](a, b))
    return None


_UNARY: Final[dict[str, Callable[[int], int]]] = {
    "-": operator.neg, "+": operator.pos, "~": operator.inv, "!": lambda a: int(not a),
}  # fmt: skip
_BINARY: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "&&": lambda a, b: bool(a and b), "||": lambda a, b: bool(a or b),
}  # fmt: skip
