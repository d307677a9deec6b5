"""The faults of `tests/mutants.py`: enough of them, everywhere they are meant to be, each one a change."""

import ast
import inspect
from collections import Counter
from pathlib import Path

import mutants
import tilewright
from tilewright.schedule import PRIMITIVES

LEAST = 120
ALSO = ("schedule/carried.py", "schedule/footprint.py", "schedule/regions.py")


def test_faults_are_enough_and_everywhere():
    chosen = mutants.drawn(0, 2, "")
    faults = Counter(str(path.relative_to(mutants.SOURCES)) for path, _ in chosen)
    assert len(chosen) >= LEAST
    # the package may be an installed copy of the sources
    package = Path(tilewright.__file__).parent
    wanted = {inspect.getfile(p.function) for p in PRIMITIVES.values()}
    files = [*ALSO, *(str(Path(f).relative_to(package)) for f in sorted(wanted))]
    assert {f: faults[f] for f in files if faults[f] < 2} == {}
    assert sum(n for f, n in faults.items() if f.startswith("lower/")) >= 2
    assert sum(n for f, n in faults.items() if f.startswith("codegen/")) >= 2
    assert all((mutants.ROOT / test).exists() for test in mutants.TESTS)


def test_every_fault_is_a_change():
    for path, number in mutants.drawn(1, 1, "schedule/loop"):
        fault = mutants.mutant(path, number)
        assert ast.unparse(fault.tree) != ast.unparse(ast.parse(path.read_text())), fault.what


SOURCE = """
from functools import cache
LEAST = max(1, 2)
@cache
def larger(a, b):
    def chosen():
        return max(a, b)
    return chosen()
"""


def test_faults_are_put_into_loaded_functions(tmp_path, monkeypatch):
    monkeypatch.setattr(mutants, "SOURCES", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    variables = {}
    exec(compile(SOURCE, str(path), "exec"), variables)
    larger = variables["larger"]
    at_import, in_function = (mutants.mutant(path, n) for n in (0, 2))
    # code that ran with the import stays as it was, and is said to
    assert not mutants.put(at_import, [larger.__wrapped__])
    assert larger(1, 2) == 2
    assert in_function.lines == {7}
    assert mutants.put(in_function, [larger.__wrapped__])
    assert larger(3, 4) == 3
