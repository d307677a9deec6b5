"""The compile-time budgets of the design, at twice their value.

What is compared is processor time, the least of several runs, so that other work on the machine hardly shows,
in proportion to how fast plain Python runs at that moment: work of other guests on a shared core does show.
``benchmarks/compile_time.py`` measures, and prints the same figures as a table.
"""

import importlib.util
import statistics
from pathlib import Path

import pytest

from tilewright.schedule import PRIMITIVES

SLACK = 2.0
SLOWEST = 4.0  # times the budget of the median: what a single primitive may take

_spec = importlib.util.spec_from_file_location(
    "compile_time", Path(__file__).parents[2] / "benchmarks" / "compile_time.py"
)
compile_time = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(compile_time)
BUDGETS = compile_time.BUDGETS


@pytest.fixture(scope="module")
def primitives():
    found = compile_time.primitives(15)
    for name, ms in sorted(found.items(), key=lambda item: -item[1]):
        print(f"{name:20} {ms:7.3f} ms")
    return found


def test_every_primitive_is_measured(primitives):
    assert set(primitives) == set(PRIMITIVES)


def test_primitives(primitives):
    budget = SLACK * BUDGETS["primitive"] * compile_time.slowness()
    assert statistics.median(primitives.values()) <= budget
    slow = {k: v for k, v in primitives.items() if v > SLOWEST * budget}
    assert slow == {}


@pytest.mark.parametrize(
    ("what", "measure", "repeats"),
    [
        ("replay of a convolution", compile_time.replay_ms, 5),
        ("lower and emit a convolution", compile_time.lower_and_emit_ms, 5),
        ("100 stages, 1000 primitives", compile_time.chain_ms, 2),
        ("import tilewright", compile_time.import_ms, 3),
    ],
)
def test_budget(what, measure, repeats):
    slower = compile_time.slowness()
    ms = measure(repeats)
    print(f"{what:30} {ms:8.2f} ms, budget {BUDGETS[what]} ms, machine {slower:.1f} times slower")
    assert 0 <= ms <= SLACK * BUDGETS[what] * slower
