"""Carrying out trees that people write: the loops compute what the program says."""

import numpy as np
import pytest

from tilewright.ir import run_function, verify
from tilewright.lower import lower
from tilewright.schedule import Schedule
from tilewright.support import InternalError
from tilewright.tiling import Leaf, Level, Nest, Place, Seq, apply, verify as verify_nests
from unit.tiling import trees


def computed(program, text):
    """The result of a program by a tree, with the schedule."""
    nests = [trees.nest(text)]
    verify_nests(nests, program, {})
    s = apply(Schedule(program), nests)
    verify(s.func)
    rng = np.random.default_rng(3)
    arrays = {b.name: rng.standard_normal([e.as_int() for e in b.shape], np.float32) for b in program.inputs}
    (out,) = program.outputs
    made = {**arrays, out.name: np.zeros([e.as_int() for e in out.shape], np.float32)}
    return s, arrays, run_function(lower(s.func), made, {})[out.name]


@pytest.mark.parametrize("text", [trees.TILES, trees.COPIED])
def test_products(text):
    _, arrays, found = computed(trees.product(), text)
    np.testing.assert_allclose(found, arrays["A"] @ arrays["B"], rtol=1e-5, atol=1e-5)


def test_strips():
    _, arrays, found = computed(trees.blur(), trees.STRIPS)
    twice = arrays["X"] * 2
    np.testing.assert_allclose(found, twice[:-2] + twice[1:-1] + twice[2:], rtol=1e-6, atol=1e-6)


def test_the_last_iteration_is_cut_off_from_the_end():
    """So that the steps hold for other sizes too."""
    s, _, _ = computed(trees.product(), trees.TILES)
    (cut,) = (step for step in s.trace.steps if step.primitive == "partition")
    assert cut.args[1] == (-1,)


def test_lanes_are_cut_before_they_are_lanes():
    text = "nest C\n  for y/1\n    cut x at 4 12\n    part 0\n      for x/1 vector\n        do C\n"
    text += "    part 1 as part 0\n    part 2 as part 0\n"
    blurred = "nest A\n  for y/1\n    for x/1\n      do A\n"
    program = trees.blur()
    s = apply(Schedule(program), [trees.nest(blurred), trees.nest(text)])
    lanes = [s.loop(name) for name in s.loops() if s.loop(name).kind.name == "vector"]
    assert [loop.extent.as_int() for loop in lanes] == [4, 8, 4]


def test_axes_that_stand_in_any_order_are_digits():
    """Iterations of two elements inside of those of one: each element once."""
    text = "nest C\n  for j/1\n    for i/1\n      for i/5\n        for k/1\n          do C\n"
    _, arrays, found = computed(trees.product(), text)
    np.testing.assert_allclose(found, arrays["A"] @ arrays["B"], rtol=1e-5, atol=1e-5)


def test_products_of_axes_are_one_loop():
    text = "nest C\n  for i*j/40 parallel\n    for i*j/1\n      for k/1\n        do C\n"
    s, arrays, found = computed(trees.product(), text)
    np.testing.assert_allclose(found, arrays["A"] @ arrays["B"], rtol=1e-5, atol=1e-5)
    assert s.loop(s.loops("C")[0]).extent.as_int() == 5


@pytest.mark.parametrize(
    "place",
    [
        Place("C", "keep", "register", Level((("k", 1),), Leaf("C"))),
        Place("B", "copy", "local"),
        Place("C", "init", "register"),
    ],
)
def test_trees_that_are_none_are_our_fault(place):
    """``verify`` refuses them: what is carried out without is an error of ours."""
    body = Level((("i", 1),), Level((("j", 1),), Seq((place, Level((("k", 1),), Leaf("C"))))))
    with pytest.raises(InternalError):
        apply(Schedule(trees.product()), [Nest("C", body)])
