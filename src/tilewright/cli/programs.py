"""Programs from Python files: ``FILE.py`` and ``FILE.py:NAME`` in place of a model."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Final

import click

from tilewright.ir import Program
from tilewright.support import counted, quoted

#: What a file's program is called where nothing else is said.
DEFAULT_NAME: Final = "program"
_FILE: Final = re.compile(r"(?P<file>.+\.py)(?::(?P<name>\w+))?")
#: What a user's file may raise besides this package's errors.
_RAISED: Final = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, OSError,
    RuntimeError, SyntaxError, TypeError, ValueError,
)  # fmt: skip

Shapes = Mapping[str, tuple[int, ...] | int]


def names_program(text: str) -> bool:
    """Whether a MODEL argument names a Python file."""
    return _FILE.fullmatch(text) is not None


def program_file(text: str) -> str:
    """The file of a MODEL argument, which may name a program in it: ``FILE.py`` of ``FILE.py:NAME``."""
    found = _FILE.fullmatch(text)
    return text if found is None else found["file"]


def open_program(text: str, shapes: Shapes) -> tuple[Program, Shapes]:
    """The program that ``FILE.py:NAME`` makes, and what of ``shapes`` is left for its symbolic sizes.

    The file is run, with its own folder in front of the import path, as by ``python FILE.py``. ``NAME`` is a
    program, or a function of sizes that returns one: ``shapes`` has them by the names of its parameters.
    Raises UsageError for anything else.
    """
    found = _FILE.fullmatch(text)
    assert found is not None
    file, name = Path(found["file"]), found["name"] or DEFAULT_NAME
    if not os.path.isfile(file):
        raise click.UsageError(f"there is no file {quoted(str(file))}")
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return _made(_loaded(file), file, name, shapes)
    except _RAISED as error:
        raise click.UsageError(
            f"{quoted(str(file))} cannot be run: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(folder)


def _loaded(file: Path) -> Any:
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _made(module: Any, file: Path, name: str, shapes: Shapes) -> tuple[Program, Shapes]:
    made = getattr(module, name, None)
    where = f"{quoted(name)} in {quoted(str(file))}"
    if isinstance(made, Program):
        return made, shapes
    if not callable(made):
        raise click.UsageError(
            f"there is no {where}: it should be a program, or a function of sizes that returns one; "
            f"{quoted(file.name + ':NAME')} says another name"
        )
    given, missing = {}, []
    for each in signature(made).parameters.values():
        size = shapes.get(each.name)
        if isinstance(size, int):
            given[each.name] = size
        elif size is not None:
            raise click.UsageError(f"{each.name} of {where} is one size, got {counted(len(size), 'number')}")
        elif each.default is Parameter.empty and each.kind not in (
            Parameter.VAR_POSITIONAL,
            Parameter.VAR_KEYWORD,
        ):
            missing.append(each.name)
    if missing:
        options = " ".join(f"--shape {each}=N" for each in missing)
        raise click.UsageError(f"{where} is a function of sizes: give {options}")
    program = made(**given)
    if not isinstance(program, Program):
        raise click.UsageError(f"{where} returns {type(program).__name__}, and no program")
    return program, {k: v for k, v in shapes.items() if k not in given}
