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
    faults = Counter(str(path.relative_to(mutants.SOURCES)) for path, _, _ in chosen)
    assert len(chosen) >= LEAST
    # the package may be an installed copy of the sources
    package = Path(tilewright.__file__).parent
    wanted = {inspect.getfile(p.function) for p in PRIMITIVES.values()}
    files = [*ALSO, *(str(Path(f).relative_to(package)) for f in sorted(wanted))]
    assert {f: faults[f] for f in files if faults[f] < 2} == {}
    assert sum(n for f, n in faults.items() if f.startswith("lower/")) >= 2
    assert sum(n for f, n in faults.items() if f.startswith("codegen/")) >= 2
    assert all((mutants.ROOT / test).exists() for _, _, tests in chosen for test in tests)


def test_every_fault_is_a_change():
    for path, number, _ in mutants.drawn(1, 1, "schedule/loop"):
        source, what = mutants.mutant(path, number)
        assert source != ast.unparse(ast.parse(path.read_text())), what
