"""The matcher on random accesses: exactly what enumeration permits, and what it permits is exact."""

import numpy as np
import pytest

from tilewright import lang
from tilewright.build import pack, unpack
from tilewright.ir import I32, run_function
from tilewright.lang import evaluate
from tilewright.mapping import Needle, find_mappings, match, tensorized, three_operand_form
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import interpreted
from unit.mapping.kernels import ROWS, matmul
from unit.mapping.test_mapper import enumerated, reduction

EXTENTS = (2, 3, 2, 2, 3)
CASES = 240


def program(seed):
    """A sum of products of two tensors whose dimensions are random combinations of the axes."""
    rng = np.random.default_rng(seed)
    pars, reds = int(rng.integers(2, 4)), int(rng.integers(1, 3))
    red = [lang.reduce_axis(EXTENTS[pars + n], f"r{n}") for n in range(reds)]
    chosen = [[[0] * (pars + reds) for _ in range(int(rng.integers(2, 4)))] for _ in range(2)]
    for axis in range(pars + reds):
        # rows, columns, batches; sums over both or over one
        kinds = ((0,), (1,), (0, 1)) if axis < pars else ((0, 1), (0, 1), (0,))
        for operand in kinds[int(rng.integers(3))]:
            rows = chosen[operand]
            for _ in range(int(rng.choice([0, 1, 2], p=(0.05, 0.9, 0.05)))):
                rows[int(rng.integers(len(rows)))][axis] = int(rng.choice([1, 1, 1, 1, 2]))
    sizes = EXTENTS[: pars + reds]
    shapes = [
        tuple(1 + sum(c * (n - 1) for c, n in zip(r, sizes, strict=True)) for r in rows) for rows in chosen
    ]
    a, b = (lang.placeholder(s, "i32", name=n) for s, n in zip(shapes, "AB", strict=True))

    def term(*at):
        axes = (*at, *red)

        def read(t, rows):
            return t[tuple(sum((c * x for c, x in zip(r, axes, strict=True) if c), 0) for r in rows)]

        return lang.sum(read(a, chosen[0]) * read(b, chosen[1]), tuple(red))

    return lang.program([a, b], [lang.compute(EXTENTS[:pars], term, name="C")])


@pytest.mark.parametrize("places", [{}, {"a": ROWS["a"]}], ids=["dense", "free rows"])
def test_equal_to_enumeration(places):
    row = matmul((4, 4, 4), types=(I32, I32, I32), **places)
    some = 0
    for seed in range(CASES):
        p = program(seed)
        form = three_operand_form(reduction(p))
        mappings = [m for m in find_mappings(p, row).mappings if all(b.program for b in m.axes)]
        for order, exchanged in (((0, 1), False), ((1, 0), True)):
            found = {tuple(b.program[0] for b in m.axes) for m in mappings if m.exchanged == exchanged}
            wanted = enumerated(Needle.of(row), form, order, (0,) if places else ())
            assert found == wanted, (seed, order)
            some += len(found)
    assert some > 20


def test_what_is_mapped_is_exact():
    row = matmul((4, 4, 4), types=(I32, I32, I32), **ROWS)
    done = 0
    for seed in range(CASES):
        p = program(seed)
        for m in find_mappings(p, row).mappings[:2]:
            try:
                s = tensorized(Schedule(p, operations={row.name: row}), m)
            except ScheduleError:
                continue
            rng = np.random.default_rng(seed)
            given = {
                b.name: rng.integers(-9, 9, [e.as_int() for e in b.shape]).astype("i4") for b in p.inputs
            }
            (wanted,) = evaluate(p, given).values()
            packed = {name: pack(x, s.func.buffer(name)) for name, x in given.items()}
            ((name, made),) = run_function(s.func, packed, instructions=interpreted([row])).items()
            np.testing.assert_array_equal(unpack(made, s.func.buffer(name)), wanted)
            done += 1
    assert done > 20


def test_equal_problems_are_solved_once():
    match.solve.cache_clear()
    for name in "XYZ":
        a, b = lang.placeholder((4, 5), name=name), lang.placeholder((5, 6), name="W" + name)
        k = lang.reduce_axis(5, "k" + name)
        c = lang.compute((4, 6), lambda i, j, a=a, b=b, k=k: lang.sum(a[i, k] * b[k, j], k), name="O" + name)
        assert len(find_mappings(lang.program([a, b], [c]), matmul()).mappings) == 2
    assert match.solve.cache_info().misses == 2  # one for each order of the factors
