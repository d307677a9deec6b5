"""Which refusals have a test: `pytest --refusals`, which `.ci/run` passes, fails where one has none.

A refusal is a `raise` of a `UserError` in `src/`. While the tests run, every such error that is made notes
where: the statements on the stack at that moment. A refusal counts as tested where one of them is its `raise`
and the test is one that says what the message should be: all but random tests and conformance tests, which
meet refusals by chance. The refusals left are printed with their file and line.
"""

import ast
import builtins
import importlib
import os
import sys
import typing
from collections import Counter
from pathlib import Path

import pytest

import tilewright
from extras import has_torch
from tilewright.support import InternalError, TilewrightError, UserError

#: The sources that run: those of the checkout, or the installed ones.
SOURCES = Path(tilewright.__file__).resolve().parent
#: Tests whose refusals do not count, as those of all random tests: nothing in them looks at messages.
BY_CHANCE = ("tests/property/", "tests/conformance/")


def sites():
    """Every refusal in the sources: (file relative to the sources, line) to (last line, its first words)."""
    out = {}
    for path in sorted(SOURCES.rglob("*.py")):
        if "torch" in path.parts and not has_torch():
            continue
        file = path.relative_to(SOURCES).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _is_refusal(file, node.exc):
                out[file, node.lineno] = node.end_lineno, ast.unparse(node.exc)[:100]
    return out


def _is_refusal(file, call):
    """Whether what is called is a user error's class, or a function that makes one."""
    module = importlib.import_module("tilewright." + file.removesuffix(".py").replace("/", "."))
    first, *parts = ast.unparse(call.func).split(".")
    made = getattr(module, first, None) or getattr(builtins, first, None)
    for part in parts:
        made = getattr(made, part, None)
    if isinstance(made, type):
        return issubclass(made, UserError)
    hints = getattr(made, "__annotations__", {})
    result = hints.get("return", UserError)
    if isinstance(result, str):
        result = typing.get_type_hints(made).get("return")
    return not (isinstance(result, type) and issubclass(result, InternalError))


class Recorder:
    """The places where user errors were made, gathered over the tests and xdist's workers."""

    def __init__(self):
        self.met = Counter()
        self.counting = False

    def watch(self):
        """Note where every error is made from now on."""
        plain = TilewrightError.__init__
        prefix = str(SOURCES) + os.sep

        def noting(error, *args, **kwargs):
            plain(error, *args, **kwargs)
            frame = sys._getframe(1) if self.counting else None
            while frame is not None:
                name = frame.f_code.co_filename
                if name.startswith(prefix):
                    self.met[name[len(prefix) :], frame.f_lineno] += 1
                frame = frame.f_back

        TilewrightError.__init__ = noting

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        """Count in tests of messages only."""
        random = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        self.counting = not random and not item.nodeid.startswith(BY_CHANCE)
        try:
            return (yield)
        finally:
            self.counting = False

    @pytest.hookimpl
    def pytest_sessionfinish(self, session):
        """Hand a worker's places to the process that reports; there, fail where a refusal was not met."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["refusals"] = [[*place] for place in self.met]
        elif self.untested() and session.exitstatus == 0:
            session.exitstatus = 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        """Take a worker's places."""
        self.met.update(tuple(place) for place in getattr(node, "workeroutput", {}).get("refusals", ()))

    def untested(self):
        """The refusals that no test met."""
        lines = {}
        for file, line in self.met:
            lines.setdefault(file, set()).add(line)
        return {
            place: text
            for place, (last, text) in sites().items()
            if lines.get(place[0], set()).isdisjoint(range(place[1], last + 1))
        }

    def pytest_terminal_summary(self, terminalreporter):
        """Print what is left."""
        left = self.untested()
        terminalreporter.section("refusals")
        for (file, line), text in left.items():
            terminalreporter.write_line(f"no test: src/tilewright/{file}:{line}: raise {text}")
        terminalreporter.write_line(f"{len(sites())} refusals in the sources, {len(left)} without a test")
