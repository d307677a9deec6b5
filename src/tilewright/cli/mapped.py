"""What ``map`` and ``simulate`` take: a model's units, the program of a Python file, or the text of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tilewright.cli.models import ZOO, open_model
from tilewright.cli.programs import names_program, open_program
from tilewright.driver import graph_units
from tilewright.frontend import import_onnx
from tilewright.ir import Program, read_program, structural_hash
from tilewright.support import InputError, quoted_path
from tilewright.target import X86_AVX2

MAX_TEXT: Final = 64 << 20
"""Bytes of the longest file of text that is read."""

Shapes = Mapping[str, tuple[int, ...] | int]


@dataclass(frozen=True, slots=True)
class Part:
    """A program, the name of what it computes in a model, and how often the model does so."""

    name: str
    program: Program
    count: int = 1


def read_parts(text: str, shapes: Shapes) -> list[Part]:
    """The programs that a PROGRAM argument names: one, or those of a model, equal ones once.

    ``zoo:NAME[:small]`` and ``FILE.onnx`` are models, ``FILE.py[:NAME]`` is a program of Python, any other
    file the text of one. Raises InputError for files that cannot be read, ParseError for what is no program.
    """
    if names_program(text):
        return [Part("", open_program(text, shapes)[0])]
    if not text.startswith(ZOO) and not text.endswith(".onnx"):
        return [Part("", read_program(read_text(text)))]
    # what is decided for a CPU's kernels beyond the groups of nodes is no part of the programs
    units = graph_units(import_onnx(open_model(text), shapes=shapes), X86_AVX2, 1).units
    found: dict[str, Part] = {}
    for unit in units:
        key = structural_hash(unit.program)
        known = found.get(key, Part(unit.nodes[-1].name or unit.program.name, unit.program, 0))
        found[key] = replace(known, count=known.count + 1)
    return list(found.values())


def read_text(name: str) -> str:
    """A file of text; InputError where there is none, or it is too long."""
    path = Path(name)
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_TEXT + 1)
    except OSError as error:
        raise InputError(f"{quoted_path(path)} cannot be read: {error.strerror}") from None
    if len(data) > MAX_TEXT:
        raise InputError(
            f"{quoted_path(path)} has more than {MAX_TEXT} bytes", hint="is it a program's text?"
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{quoted_path(path)} is not UTF-8", hint="give the text of a program") from None
