"""Trees of a typical size for all sizes: nothing in them follows from that one size."""

import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import function_at, program_at, run_function
from tilewright.schedule import Schedule
from tilewright.target import X86_AVX512
from tilewright.tiling import apply, parse, show, symbolic, verify

N = lang.param("N", lo=1, hi=64)
ROWS = {"C": {"i": 9, "j": 32, "k": 8}}
KEPT = """\
nest C
  cut i at 8
  part 0
    for i/8
      keep C in register
        for k/1
          for i/1 unroll
            for j/1 vector
              do C
      drain
        for i/1 unroll
          for j/1 vector
            do C
  part 1 as part 0
"""


def opened(text, extents=None, symbols=("i",), threads=1, lanes=16):
    """The text of a tree for all sizes of some axes of its root."""
    (tree,) = parse(text)
    found = symbolic(tree, extents or ROWS, {tree.root: frozenset(symbols)}, threads, lanes)
    assert "".join(map(show, parse(show(found)))) == show(found)
    return show(found)


def lines(*body):
    return "nest C\n" + "".join(f"  {line}\n" for line in body)


def test_a_serial_level_of_all_elements_goes():
    text = lines("for i/9", "  for j/16", "    for i/1", "      for j/1 vector", "        do C")
    assert opened(text) == lines("for j/16", "  for i/1", "    for j/1 vector", "      do C")


def test_a_register_tile_of_all_elements_keeps_its_level_or_gets_one():
    inner = ["keep C in register", "  for k/1", "    for i/1 unroll", "      for j/1 vector", "        do C"]
    inner += ["drain", "  for i/1 unroll", "    for j/1 vector", "      do C"]
    whole = lines("for i/9", *(f"  {x}" for x in inner))
    assert opened(whole) == whole
    assert opened(lines(*inner)) == whole


def test_lanes_of_all_columns_in_registers_become_whole_vectors():
    inner = ["keep C in register", "  for k/1", "    for j/1 vector", "      do C", "drain"]
    inner += ["  for j/1 vector", "    do C"]
    extents = {"C": {"i": 1, "j": 36, "k": 8}}
    assert opened(lines(*inner), extents, "j") == lines("for j/48", *(f"  {x}" for x in inner))
    extents = {"C": {"i": 1, "j": 5, "k": 8}}
    assert opened(lines(*inner), extents, "j") == lines("for j/8", *(f"  {x}" for x in inner))


def test_expanded_loops_of_all_elements_are_loops_where_nothing_is_in_registers():
    text = lines("for i/1 unroll", "  for j/1 vector", "    do C")
    assert opened(text) == lines("for i/1", "  for j/1 vector", "    do C")


def test_of_cuts_those_near_the_beginning_stay():
    extents = {"C": {"i": 64, "j": 32, "k": 8}}
    body = ["  for i/8", "    for i/1", "      for j/1 vector", "        do C"]
    text = lines("cut i at 8 56", "part 0", *body, "part 1 as part 0", "part 2 as part 0")
    assert opened(text, extents) == lines("cut i at 8", "part 0", *body, "part 1 as part 0")
    text = lines("cut i at 56", "part 0", *body, "part 1 as part 0")
    assert opened(text, extents) == lines("cut i at end", "part 0", *body)


def test_products_with_a_symbol_are_taken_apart():
    text = lines("for i*k/32", "  for i*k/1 vector", "    for j/1 unroll", "      do C")
    assert opened(text, symbols=("k",)) == lines(
        "for i/1", "  for k/32", "    for k/1 vector", "      for j/1 unroll", "        do C"
    )


def test_threads_share_the_loops_that_become_one():
    text = lines("for j/16 i/1 k/1 parallel", "  for j/1 vector", "    do C")
    inner = ["for j/1 vector", "  do C"]
    # of two iterations of j for four threads there are too few; i and k are one loop, as k is known
    assert opened(text, threads=4) == lines(
        "for j/16", "  for i/1 k/1 parallel", *(f"    {line}" for line in inner)
    )
    assert opened(text, threads=2) == lines(
        "for j/16 parallel", "  for i/1 k/1", *(f"    {line}" for line in inner)
    )


@pytest.mark.parametrize("sizes", [(1, 2, 7, 8), (9, 15, 16), (17, 63, 64)])
def test_ends_are_apart_wherever_they_are(sizes):
    A, B = lang.placeholder((N, 8), name="A"), lang.placeholder((8, 32), name="B")
    k = lang.reduce_axis(8, "k")
    C = lang.compute((N, 32), lambda i, j: lang.sum(A[i, k] * B[k, j], axis=k), name="C")
    program = lang.program([A, B], [C])
    (tree,) = parse(opened(KEPT))
    verify([tree], program, X86_AVX512.operations)
    s = apply(Schedule(program, operations=X86_AVX512.operations), [tree])
    assert [step.args[1] for step in s.trace.steps if step.primitive == "partition"] == ["tail"]
    for n in sizes:
        fixed = program_at(program, {"N": n})
        inputs = {
            b.name: (at + 1 + _numbers(tuple(e.as_int() for e in b.shape))) / 8
            for at, b in enumerate(fixed.inputs)
        }
        wanted = lang.evaluate(fixed, list(inputs.values()))["C"]
        assert (run_function(function_at(s.func, {"N": n}), inputs)["C"] == wanted).all()


def _numbers(shape):
    """Small integers: sums of their products are exact."""
    return (np.arange(np.prod(shape)) % 7).astype(np.float32).reshape(shape)
