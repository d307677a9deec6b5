"""Few long rows: threads share each of them, in any layout and at any length."""

import re

import pytest
from tests.unit.plan.rows.test_rows_side_by_side import normalised
from tests.unit.strategies.test_default import check, t

from tilewright import lang
from tilewright.lang import ops


def shared(s):
    """The stages of which threads reduce parts."""
    return {name for name in s.blocks() if name.endswith("_part")}


def loops_of(s, name):
    """The kinds of the loops around a block."""
    return [s.loop(loop).kind.name for loop in s.loops(name)]


CASES = {
    "one row": ((1, 1, 40000), None),
    "one odd row": ((1, 1, 33333), None),
    "one image": ((1, 1, 200, 190), None),
    "two rows": ((1, 2, 20011), None),
    "a block": ((1, 16, 50, 47), 16),
    "a block of lines that parts do not divide": ((1, 16, 61, 41), 16),
    "a small block": ((1, 8, 90, 47), 8),
    "volumes": ((1, 8, 17, 16, 16), 8),
    "long lines": ((1, 16, 3, 1000), 16),
}


@pytest.mark.few(8)
@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("case", CASES)
def test_threads_share_rows(case, threads):
    shape, size = CASES[case]
    s = check(normalised(shape, size), threads=threads, interpret=False)
    if case != "two rows" or threads > 2:
        # mean and deviation
        assert len(shared(s)) == 2
        assert all(loops_of(s, name)[0] == "parallel" for name in shared(s))
    else:
        assert not shared(s)


def test_on_the_interpreter():
    assert shared(check(normalised((1, 8, 66, 64), 8)))


def test_softmax_of_one_row():
    x = t(1, 50001, name="X")
    s = check(lang.program([x], [ops.softmax(x, axis=-1, name="Y")]), interpret=False)
    assert shared(s)


def test_sums_of_blocks_are_in_registers():
    s = check(normalised((1, 16, 64, 40), 16), interpret=False)
    for name in shared(s):
        assert re.search(rf"alloc {name}_register: .* register", str(s))


@pytest.mark.parametrize(
    ("shape", "size", "threads"),
    [
        ((1, 1, 40000), None, 1),  # nobody to share with
        ((1, 1, 20000), None, 2),  # too short
        ((1, 64, 50, 47), 16, 2),  # a block for each thread
        ((4, 1, 40000), None, 3),
    ],
)
def test_rows_that_are_not_shared(shape, size, threads):
    assert not shared(check(normalised(shape, size), threads=threads, interpret=False))


def test_products_keep_their_rows():
    """Attention's scores are a contraction's rows, which stay near."""
    q, k = t(1, 64, name="Q"), t(40000, 64, name="K")
    s = check(
        lang.program([q, k], [ops.softmax(ops.matmul(q, k, transpose_b=True), axis=-1, name="Y")]),
        interpret=False,
    )
    assert not shared(s)
