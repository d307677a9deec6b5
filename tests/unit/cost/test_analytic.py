"""Terms of the analytic price on trees that no rule writes: registers, loads in common, code, lanes."""

import pytest
from tests.native_kernel import STATED

from tilewright import lang
from tilewright.cost import Machine, cost_of
from tilewright.tiling import Prices, parse, verify

ROWS = """
nest C
  for i/{rows}
    for j/32
      keep C in register
        for k/{step}
          for k/1 unroll
            for i/1 unroll
              for j/1 vector
                do C
      drain
        for i/1 unroll
          for j/1 vector
            do C
"""


def product():
    a, b = lang.placeholder((256, 256), name="A"), lang.placeholder((256, 256), name="B")
    k = lang.reduce_axis(256, "k")
    c = lang.compute((256, 256), lambda i, j: lang.sum(a[i, k] * b[k, j], axis=k), name="C")
    return lang.program([a, b], [c])


def cost(program, text):
    (tree,) = parse(text.strip() + "\n")
    verify([tree], program, STATED.operations)
    loops = Prices(program, STATED.operations).loops([tree])
    return cost_of(loops, Machine(STATED, 1))


def test_sums_without_a_register_are_moved_at_each_step():
    few = cost(product(), ROWS.format(rows=8, step=2))
    many = cost(product(), ROWS.format(rows=32, step=2))
    # 8 rows of two vectors fit into 32 registers, 32 rows do not: 64 sums, two of B and one of A
    assert few.issue == pytest.approx(256**3 / 16 / STATED.fma_per_cycle, rel=0.2)
    assert many.issue > 1.5 * few.issue
    # however many steps are written out
    assert cost(product(), ROWS.format(rows=32, step=8)).issue == pytest.approx(many.issue, rel=0.05)


def test_a_chain_of_steps_that_are_written_out_is_as_long():
    two, eight = (cost(product(), ROWS.format(rows=8, step=step)) for step in (2, 8))
    assert eight.latency == pytest.approx(two.latency, rel=0.01)


def test_code_that_stays_nowhere_is_taken_apart_in_each_turn():
    assert cost(product(), ROWS.format(rows=8, step=2)).code == 0
    whole = cost(product(), ROWS.format(rows=8, step=256))
    assert whole.code > 0.5 * whole.issue


WINDOWS = """
nest S
  for i/{rows}
    for j/16
      keep S in register
        for k/1 unroll
          for i/1 unroll
            for j/1 vector
              do S
      drain
        for i/1 unroll
          for j/1 vector
            do S
"""


def test_taps_that_rows_have_in_common_are_loaded_once():
    x, y = (lang.placeholder((68, 64), name=name) for name in "XY")
    k = lang.reduce_axis(5, "k")
    s = lang.compute((64, 64), lambda i, j: lang.sum(x[i + k, j] * y[i + k, j], k), name="S")
    program = lang.program([x, y], [s])
    one, eight = (cost(program, WINDOWS.format(rows=rows)) for rows in (1, 8))
    # ten loads a row and vector, for eight rows 24 in place of 80: then multiply-adds are the bound
    assert one.issue > 1.5 * eight.issue


@pytest.mark.parametrize(("step", "most"), [(1, 1.0), (2, 3.0), (4, 7.0), (5, 16.0)])
def test_lanes_a_few_elements_apart_are_picked_from_vectors(step, most):
    x = lang.placeholder((64, 64 * step), name="X")
    program = lang.program([x], [lang.compute((64, 64), lambda i, j: x[i, step * j] * 2.0, name="Y")])
    found = cost(program, "nest Y\n  for i/1\n    for j/1 vector\n      do Y\n")
    plain = 64 * 4  # rows, vectors of 16 lanes
    assert found.issue == pytest.approx(plain * max(1.0, most / 2), rel=0.1)


def test_loops_around_loops_are_turns_written_out_or_not():
    x = lang.placeholder((16, 8, 64), name="X")
    program = lang.program([x], [lang.compute((16, 8, 64), lambda *at: x[at] * 2.0, name="Y")])
    serial, written = (
        cost(program, f"nest Y\n  for i/1{bind}\n    for j/1\n      for k/1 vector\n        do Y\n")
        for bind in ("", " unroll")
    )
    assert written.cycles == pytest.approx(serial.cycles)
