"""A small C preprocessor: macros, conditionals, and includes of a user's own headers.

Headers of the system (``#include <…>``) are left out: of the standard ones the constants are known. Lines
keep their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tilewright.frontend.c.source import constant_value
from tilewright.support import ProgramError, SourceLocation

MAX_BYTES: Final = 1 << 22
"""Longest file that is read, and longest text that macros may expand to."""
MAX_DEPTH: Final = 20
"""Deepest nesting of includes."""
MAX_EXPANSIONS: Final = 200_000
"""Most macros expanded in one file."""

_TOKEN: Final = re.compile(
    r'[A-Za-z_]\w*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|\d[\w.]*(?:[eE][+-]\d+)?|.', re.S
)
_PASTE: Final = re.compile(r"\s*##\s*")
_COMMENT: Final = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\')', re.S)
_DIRECTIVE: Final = re.compile(r"\s*#\s*(\w+)\s*(.*)")
_DEFINE: Final = re.compile(r"(\w+)(\(([\w\s,]*)\))?\s*(.*)")


#: Constants of the standard headers, as they are on 64-bit machines of Linux and macOS.
STANDARD: Final = {
    "stdbool.h": {"true": "1", "false": "0"},
    "stddef.h": {"NULL": "0"},
    "math.h": {
        "M_PI": "3.14159265358979323846", "M_PI_2": "1.57079632679489661923", "M_E": "2.71828182845904523536",
        "M_SQRT2": "1.41421356237309504880", "M_LN2": "0.69314718055994530942", "INFINITY": "1e999f",
        "HUGE_VAL": "1e999",
    },
    "float.h": {
        "DBL_MAX": "1.7976931348623157e308", "DBL_MIN": "2.2250738585072014e-308",
        "FLT_MIN": "1.17549435e-38f",
        "DBL_EPSILON": "2.220446049250313e-16", "FLT_MAX": "3.40282347e38f", "FLT_EPSILON": "1.19209290e-7f",
    },
    "limits.h": {
        "CHAR_BIT": "8", "SCHAR_MIN": "(-128)", "SCHAR_MAX": "127", "UCHAR_MAX": "255", "CHAR_MIN": "(-128)",
        "CHAR_MAX": "127", "SHRT_MIN": "(-32768)", "SHRT_MAX": "32767", "USHRT_MAX": "65535",
        "INT_MIN": "(-2147483647-1)", "INT_MAX": "2147483647", "UINT_MAX": "4294967295u",
        "LONG_MIN": "(-9223372036854775807L-1)", "LONG_MAX": "9223372036854775807L",
        "ULONG_MAX": "18446744073709551615uL",
    },
    "stdint.h": {
        "INT8_MIN": "(-128)", "INT8_MAX": "127", "UINT8_MAX": "255", "INT16_MIN": "(-32768)",
        "INT16_MAX": "32767", "UINT16_MAX": "65535", "INT32_MIN": "(-2147483647-1)",
        "INT32_MAX": "2147483647", "UINT32_MAX": "4294967295u", "INT64_MIN": "(-9223372036854775807L-1)",
        "INT64_MAX": "9223372036854775807L", "UINT64_MAX": "18446744073709551615uL",
        "SIZE_MAX": "18446744073709551615uL",
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Macro:
    """A macro: ``parameters`` is ``None`` for one without parentheses."""

    parameters: tuple[str, ...] | None
    body: str


@dataclass(slots=True)
class Preprocessor:
    """Expands files; ``folders`` are searched for headers, ``macros`` are defined at first."""

    folders: Sequence[Path] = ()
    macros: dict[str, Macro] = field(default_factory=dict)
    headers: list[str] = field(default_factory=list)
    """The headers of the system that were included, in order."""
    _expansions: int = 0

    @staticmethod
    def of(folders: Sequence[Path], defines: Mapping[str, str]) -> Preprocessor:
        """A preprocessor with ``-D`` definitions."""
        return Preprocessor(folders, {name: Macro(None, body) for name, body in defines.items()})

    def file(self, path: Path, depth: int = 0) -> str:
        """The text of a file after preprocessing; raises ProgramError where it cannot be read."""
        if depth > MAX_DEPTH:
            raise ProgramError(f"includes are nested deeper than {MAX_DEPTH}", where=str(path))
        try:
            if path.stat().st_size > MAX_BYTES:
                raise ProgramError(f"the file is longer than {MAX_BYTES} bytes", where=str(path))
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ProgramError(f"the file cannot be read: {error}", where=str(path)) from None
        return self.text(text, path, depth)

    def text(self, text: str, path: Path, depth: int = 0) -> str:
        """A text after preprocessing, a line for each of its lines."""
        text = text.replace("\r\n", "\n")
        text = _COMMENT.sub(lambda m: m.group(1) or " " + "\n" * m.group().count("\n"), text)
        out: list[str] = []
        taken: list[bool] = []  # of open conditionals, whether their present part is taken
        done: list[bool] = []  # and whether some part was
        lines = text.split("\n")
        n = 0
        while n < len(lines):
            at, line = n, lines[n]
            while line.endswith("\\") and n + 1 < len(lines):
                n += 1
                line = line[:-1] + " " + lines[n]
            blank = [""] * (n - at)
            n += 1
            where = SourceLocation(str(path), at + 1, line)
            found = _DIRECTIVE.match(line)
            if found is None or found.group(1) == "pragma":
                kept = all(taken)
                out.append((line if found else self.expanded(line, where)) if kept else "")
                out += blank
                continue
            word, rest = found.groups()
            out += ["", *blank]
            match word:
                case "ifdef" | "ifndef":
                    holds = (rest.strip() in self.macros) == (word == "ifdef")
                    taken.append(holds)
                    done.append(holds)
                case "if":
                    holds = all(taken) and self.holds(rest, where)
                    taken.append(holds)
                    done.append(holds)
                case "elif" | "else" | "endif" if not taken:
                    raise ProgramError(f"#{word} without #if", where=where)
                case "elif":
                    taken[-1] = not done[-1] and self.holds(rest, where)
                    done[-1] = done[-1] or taken[-1]
                case "else":
                    taken[-1] = not done[-1]
                case "endif":
                    taken.pop()
                    done.pop()
                case _ if all(taken):
                    included = self.directive(word, rest, where, path, depth)
                    if included:
                        # what a header holds stands on the line that includes it
                        out[-1 - len(blank)] = " ".join(included.split("\n"))
        if taken:
            raise ProgramError("#if without #endif", where=str(path))
        return "\n".join(out)

    def directive(self, word: str, rest: str, where: SourceLocation, path: Path, depth: int) -> str:
        """Follow a directive; what an include brings."""
        match word:
            case "define":
                found = _DEFINE.match(rest)
                if found is None:
                    raise ProgramError("a macro without a name", where=where)
                name, brackets, parameters, body = found.groups()
                listed = None
                if brackets is not None and rest[len(name) : len(name) + 1] == "(":
                    listed = tuple(p.strip() for p in parameters.split(",") if p.strip())
                elif brackets is not None:
                    body = f"{brackets} {body}"
                self.macros[name] = Macro(listed, body.strip())
            case "undef":
                self.macros.pop(rest.strip(), None)
            case "include":
                name = rest.strip()
                quoted = name.startswith('"')
                for folder in (*((path.parent,) if quoted else ()), *self.folders):
                    if (folder / name.strip('"<>')).is_file():
                        return self.file(folder / name.strip('"<>'), depth + 1)
                if not quoted:
                    header = name.strip("<>")
                    if header not in self.headers:
                        self.headers.append(header)
                    for constant, value in STANDARD.get(header, {}).items():
                        self.macros.setdefault(constant, Macro(None, value))
                    return ""
                raise ProgramError(f"there is no header {name}", where=where, hint="give its folder")
            case "error":
                raise ProgramError(f"#error {rest}", where=where)
        return ""

    def holds(self, condition: str, where: SourceLocation) -> bool:
        """A condition of ``#if``: an expression of integers, in which names without a macro are 0."""
        text = re.sub(
            r"defined\s*(?:\(\s*(\w+)\s*\)|(\w+))",
            lambda m: "1" if (m.group(1) or m.group(2)) in self.macros else "0",
            condition,
        )
        text = re.sub(r"\b[A-Za-z_]\w*", "0", self.expanded(text, where))
        value = constant_value(text)
        if value is None:
            raise ProgramError(
                "this condition of #if is not supported",
                where=where,
                hint="write one of integers and defined()",
            )
        return value != 0

    def expanded(self, line: str, where: SourceLocation, hidden: frozenset[str] = frozenset()) -> str:
        """A line with its macros expanded; a macro is not expanded inside of itself."""
        if not self.macros:
            return line
        tokens = _TOKEN.findall(line)
        out: list[str] = []
        n = 0
        while n < len(tokens):
            macro = self.macros.get(tokens[n]) if tokens[n] not in hidden else None
            if macro is None:
                out.append(tokens[n])
                n += 1
                continue
            self._expansions += 1
            if self._expansions > MAX_EXPANSIONS:
                raise ProgramError(f"more than {MAX_EXPANSIONS} macros are expanded", where=where)
            inside = hidden | {tokens[n]}
            if macro.parameters is None:
                out.append(_apart(self.expanded(macro.body, where, inside)))
                n += 1
                continue
            arguments, after = _arguments(tokens, n + 1)
            if arguments is None:
                out.append(tokens[n])
                n += 1
                continue
            if len(arguments) != len(macro.parameters) and (macro.parameters or arguments != [""]):
                raise ProgramError(
                    f"the macro {tokens[n]} takes {len(macro.parameters)} arguments", where=where
                )
            # what is pasted together is expanded afterwards only
            pasted = "##" in macro.body
            given = arguments if pasted else [self.expanded(a, where, hidden) for a in arguments]
            values = dict(zip(macro.parameters, given, strict=False))
            body = "".join(values.get(t, t) for t in _TOKEN.findall(_PASTE.sub("##", macro.body)))
            body = body.replace("##", "")
            out.append(_apart(self.expanded(body, where, inside)))
            n = after
        text = "".join(out)
        if len(text) > MAX_BYTES:
            raise ProgramError(f"macros expand to more than {MAX_BYTES} bytes", where=where)
        return text


def _apart(text: str) -> str:
    """What a macro expands to, kept from becoming one token with its neighbours: ``3 -N`` with N ``-1``."""
    return f" {text} "


def _arguments(tokens: Sequence[str], at: int) -> tuple[list[str] | None, int]:
    """The arguments of a macro whose parenthesis opens at or after ``at``; ``None`` where none does."""
    while at < len(tokens) and tokens[at].isspace():
        at += 1
    if at >= len(tokens) or tokens[at] != "(":
        return None, at
    out, depth = [""], 0
    for n in range(at, len(tokens)):
        t = tokens[n]
        depth += (t in "([") - (t in ")]")
        if depth == 0:
            return [a.strip() for a in out], n + 1
        if t == "," and depth == 1:
            out.append("")
        elif n > at:
            out[-1] += t
    return None, at
