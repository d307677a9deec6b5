"""The node tests of the onnx package: their cases, how to run one, and the lists of those that pass.

A list has one case a line: its name and, behind it, the inputs that are fixed when compiling, because they
decide shapes (the shape given to a Reshape). Such a model is compiled for the values the case gives.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from tilewright.graph import UndeterminedError
from tilewright.support import UnsupportedOperatorError

#: The version of the onnx package whose cases are counted: another one has other cases.
ONNX_VERSION = "1.23"
HERE = Path(__file__).parent

Arrays = dict[str, np.ndarray]
#: Runs a model on its inputs, those in the second mapping fixed when compiling; the outputs in order.
Engine = Callable[[onnx.ModelProto, Arrays, Arrays], list[np.ndarray]]


class NotRunnableError(Exception):
    """The case needs what is not supported: an operator, a type, a sequence."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a list: a case that passes, and the inputs fixed for it."""

    name: str
    fixed: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}  {', '.join(self.fixed)}" if self.fixed else self.name


@cache
def cases() -> Mapping[str, TestCase]:
    """All node cases, by name."""
    with warnings.catch_warnings():
        # The package's own generators overflow and divide by zero on purpose.
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def read_list(name: str) -> dict[str, Entry]:
    """The entries of a list, by case."""
    path = HERE / name
    lines = path.read_text().splitlines() if path.exists() else []
    entries = (line.partition("  ") for line in lines if line and not line.startswith("#"))
    return {case: Entry(case, tuple(fixed.split(", ")) if fixed else ()) for case, _, fixed in entries}


def write_list(name: str, entries: Mapping[str, Entry], title: str) -> None:
    """Write a list, sorted."""
    lines = [f"# {title}", f"# {len(entries)} of {len(cases())} cases of onnx {ONNX_VERSION}", ""]
    (HERE / name).write_text("\n".join([*lines, *(str(entries[key]) for key in sorted(entries))]) + "\n")


def _array(value: object) -> np.ndarray:
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    if isinstance(value, list | tuple | dict | None):
        raise NotRunnableError("a sequence, a map or an optional value")
    return np.asarray(value)


def run(case: TestCase, engine: Engine) -> Entry:
    """Run a case and compare at its own tolerances.

    Raises NotRunnableError where something is not supported, AssertionError where a result is wrong.
    """
    fixed: dict[str, None] = {}
    for given, wanted in case.data_sets:
        names = [value.name for value in case.model.graph.input]
        feeds = dict(zip(names, map(_array, given), strict=False))
        expected = [_array(value) for value in wanted]
        while True:
            constants = {name: feeds[name] for name in fixed}
            others = {name: array for name, array in feeds.items() if name not in fixed}
            try:
                found = engine(case.model, others, constants)
                break
            except UndeterminedError as error:
                if set(error.inputs) <= set(fixed):
                    raise NotRunnableError(str(error)) from None
                fixed |= dict.fromkeys(error.inputs)
            except UnsupportedOperatorError as error:
                raise NotRunnableError(str(error)) from None
        Runner.assert_similar_outputs(expected, found, rtol=case.rtol, atol=case.atol)
    return Entry(case.name, tuple(fixed))
