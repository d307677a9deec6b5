"""The compiler's counted work: primitives, instructions and plans priced, as they were when written down.

Time differs between machines, work does not. ``pytest tests/budgets/test_counts.py --update-golden`` writes
what is found; a change that means to do more or less of it says so.
"""

import importlib.util
import json
from pathlib import Path

GOLDEN = Path(__file__).with_name("counts.json")
_spec = importlib.util.spec_from_file_location(
    "compile_time", Path(__file__).parents[2] / "benchmarks" / "compile_time.py"
)
compile_time = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(compile_time)


def test_work_is_as_it_was(update_golden):
    found = {name: compile_time.counted(make()) for name, make in compile_time.COUNTED.items()}
    if update_golden:
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(GOLDEN.read_text()), "pytest tests/budgets/test_counts.py --update-golden"


def test_refusals_and_prices_are_counted(monkeypatch):
    """A count that nothing changes would hold whatever the compiler did."""
    first = compile_time.counted(compile_time.softmax())
    monkeypatch.setattr("tilewright.strategies.catalog.PRICED", 3)
    fewer = compile_time.counted(compile_time.chain(2))
    assert fewer["instructions"] != first["instructions"]
    assert fewer["applied"] < compile_time.counted(compile_time.chain(4))["applied"]
