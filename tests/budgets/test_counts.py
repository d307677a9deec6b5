"""The compiler's counted work: primitives, instructions, plans priced, calls, as they were when written down.

Time differs between machines, work does not. ``pytest tests/budgets --update-golden`` writes
what is found; a change that means to do more or less of it says so.
"""

import importlib.util
import json
from pathlib import Path

from tilewright.schedule import PRIMITIVES
from tilewright.target import find_target

GOLDEN, CALLS = (Path(__file__).with_name(name) for name in ("counts.json", "calls.json"))
#: Calls of Python functions, in proportion to those written down: another version of Python or of isl's
#: wrapper, and small changes, are within it; work of another order is not.
SLACK = 1.5
_spec = importlib.util.spec_from_file_location(
    "compile_time", Path(__file__).parents[2] / "benchmarks" / "compile_time.py"
)
compile_time = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(compile_time)


def test_work_is_as_it_was(update_golden):
    found = {name: compile_time.counted(make()) for name, make in compile_time.COUNTED.items()}
    assert found == held(GOLDEN, found, update_golden), "pytest tests/budgets --update-golden"


def held(path, found, update):
    if update:
        path.write_text(json.dumps(found, indent=1) + "\n")
    return json.loads(path.read_text())


def test_calls_are_as_few_as_they_were(update_golden):
    """What has a budget of time: every primitive, a replay, lowering and emitting, a long chain."""
    applied = compile_time.primitive_works()
    assert set(applied) == set(PRIMITIVES)
    works = applied | compile_time.works(find_target("x86_avx512"), stages=20)
    found = {name: compile_time.calls(work) for name, work in works.items()}
    known = held(CALLS, found, update_golden)
    assert known.keys() == found.keys(), "pytest tests/budgets --update-golden"
    assert {name: n for name, n in found.items() if n > SLACK * known[name]} == {}


def test_refusals_and_prices_are_counted(monkeypatch):
    """A count that nothing changes would hold whatever the compiler did."""
    first = compile_time.counted(compile_time.softmax())
    monkeypatch.setattr("tilewright.strategies.catalog.PRICED", 3)
    fewer = compile_time.counted(compile_time.chain(2))
    assert fewer["instructions"] != first["instructions"]
    assert fewer["applied"] < compile_time.counted(compile_time.chain(4))["applied"]
