"""Arrays that are changed where they lie: which are, which are copied, and which are refused."""

import numpy as np
import pytest

from tilewright.runtime import named_arguments, pointed_at, run_in_place
from tilewright.support import InputError


def doubled(table):
    table["b"][...] = 2 * table["a"]


@pytest.mark.parametrize("kind", ["rows", "columns", "unaligned"])
def test_results_lie_in_the_arrays_that_were_given(kind):
    a = np.arange(12.0).reshape(3, 4)
    b = {
        "rows": np.zeros((3, 4)),
        "columns": np.zeros((4, 3)).T,
        "unaligned": np.zeros(97, np.uint8)[1:].view(np.float64).reshape(3, 4),
    }[kind]
    seen = []

    def run(table):
        seen.append(table["b"] is b)
        assert table["b"].flags.c_contiguous and table["b"].flags.aligned
        doubled(table)

    run_in_place({"a": a, "b": b}, {"a": a, "b": b}, ["b"], run)
    assert np.array_equal(b, 2 * a) and seen == [kind == "rows"]


def test_arrays_that_share_memory_or_may_not_be_written_are_refused():
    a = np.arange(12.0)
    both = {"a": a, "b": a[6:]}
    with pytest.raises(InputError, match="'a' and 'b' share memory"):
        run_in_place(both, both, ["b"], doubled)
    a.flags.writeable = False
    with pytest.raises(InputError, match="'a' is written: it must be an array that may be written"):
        run_in_place({"a": a}, {"a": a}, ["a"], doubled)
    run_in_place(both, both, [], lambda table: None)


def test_arguments_by_place_and_name():
    assert named_arguments("f", ["x", "y"], (1,), {"y": 2}) == {"x": 1, "y": 2}
    with pytest.raises(InputError, match="the nest 'f' takes 1 arguments, got 2"):
        named_arguments("f", ["x"], (1, 2), {})
    with pytest.raises(InputError, match="'x' of 'f' is given twice"):
        named_arguments("f", ["x"], (1,), {"x": 2})


def test_what_pointers_point_at():
    a = np.arange(6).reshape(2, 3)
    assert pointed_at("a", a, 1).tolist() == [0, 1, 2, 3, 4, 5] and pointed_at("a", a, 2) is a
    with pytest.raises(InputError, match="'a' is read through a pointer: its rows must lie in order"):
        pointed_at("a", a.T, 1)
