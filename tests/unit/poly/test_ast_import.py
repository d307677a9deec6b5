"""Imported loops, and marks that cannot be followed."""

import islpy as isl
import pytest

from tilewright.ir import Alloc, For, locate, to_function
from tilewright.poly import check_legal
from tilewright.poly.ast_import import import_tree
from tilewright.poly.extract import extract_model
from tilewright.poly.spaces import CONTEXT
from tilewright.poly.tree import tree_of
from tilewright.support import ProgramError
from unit.poly.builders import chain

FUSED = """{ domain: "{ C[x] : 0 <= x < 6; B[x] : 0 <= x < 8 }", child: { %s
    schedule: "[{ C[x] -> [x]; B[x] -> [x - 2] }]", child: {
    sequence: [ { filter: "{ B[x] }" }, { filter: "{ C[x] }" } ] } } %s }"""


def imported(text):
    func = to_function(chain())
    model = extract_model(func)
    return func, import_tree(model, isl.Schedule.read_from_str(CONTEXT, text))


def test_a_shifted_fusion_has_loops_from_zero():
    func, fused = imported(FUSED % ("", ""))
    assert check_legal(func, fused) == []
    assert {p.node.lo.as_int() for p in locate(fused.body, For)} == {0}


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("scratch(Z)", "'scratch\\(Z\\)' cannot allocate the buffer 'Z'"),
        ("scratch(A)", "cannot allocate the buffer 'A'"),
        ("scratch(B, B)", "cannot allocate the buffer 'B'"),
    ],
)
def test_marks_that_allocate_what_they_cannot(mark, message):
    with pytest.raises(ProgramError, match=message):
        imported(FUSED % (f'mark: "{mark}", child: {{', "}"))


def test_storage_below_a_mark_is_for_what_is_below():
    only_c = """{ domain: "{ C[x] : 0 <= x < 6; B[x] : 0 <= x < 8 }", child: { sequence: [
        { filter: "{ B[x] }", child: { %s schedule: "[{ B[x] -> [x] }]" %s } },
        { filter: "{ C[x] }", child: { %s schedule: "[{ C[x] -> [x] }]" %s } } ] } }"""
    mark = 'mark: "scratch(B)", child: {'
    with pytest.raises(ProgramError, match="block 'B' accesses 'B', but is not below the mark") as caught:
        imported(only_c % ("", "", mark, "}"))
    assert "below the mark" in caught.value.hint


def test_a_mark_needs_accesses_below_it():
    text = """{ domain: "{ C[x] : 0 <= x < 6; B[x] : 0 <= x < 8 }", child: { sequence: [
        { filter: "{ B[x] }" },
        { filter: "{ C[x] : x < 0 }", child: { mark: "scratch(B)", child: { leaf } } },
        { filter: "{ C[x] : x >= 0 }" } ] } }"""
    with pytest.raises(ProgramError, match="nothing below the mark that allocates 'B' accesses it"):
        imported(text)


def test_storage_of_a_loop_is_allocated_in_it():
    """The whole box of every iteration, where the loop carries nothing."""
    text = """{ domain: "{ C[x] : 0 <= x < 6 }", child: { schedule: "[{ C[x] -> [x - x mod 3] }]", child: {
        mark: "scratch(B)", child: { extension: "{ [o] -> B[x] : o <= x <= o + 4 }", child: { sequence: [
        { filter: "{ B[x] }", child: { schedule: "[{ B[x] -> [x] }]" } },
        { filter: "{ C[x] }", child: { schedule: "[{ C[x] -> [x] }]" } } ] } } } } }"""
    func, fused = imported(text)
    assert check_legal(func, fused) == []
    (place,) = locate(fused.body, Alloc)
    assert place.node.buffer.layout.shape[0].as_int() == 5 and len(place.loops) == 1


def test_trees_as_written_need_no_marks():
    func = to_function(chain())
    model = extract_model(func)
    assert check_legal(func, import_tree(model, tree_of(model))) == []
