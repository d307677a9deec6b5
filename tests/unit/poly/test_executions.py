"""What schedule trees execute, and the marks in them."""

import islpy as isl
import pytest

from tilewright.ir import to_function
from tilewright.poly.executions import marked_parts, prefixes, scratch_buffers, scratch_mark
from tilewright.poly.extract import extract_model
from tilewright.poly.spaces import CONTEXT, maps_of, pairs
from tilewright.poly.tree import tile_and_fuse, tree_of
from tilewright.support import InternalError
from unit.poly.builders import chain
from unit.poly.cases import CASES


@pytest.mark.parametrize("name", [n for n in CASES if n != "overlapped"])
def test_prefixes_of_trees_as_written_are_those_of_isl(name):
    schedule = tree_of(extract_model(CASES[name]()))

    def leaves(node):
        if not node.n_children():
            return [node.get_prefix_schedule_relation().intersect_domain(node.get_domain())]
        return [m for n in range(node.n_children()) for m in leaves(node.child(n))]

    wanted = leaves(schedule.get_root())
    found = prefixes(schedule)
    assert all(m.is_subset(found) for m in wanted)
    assert sum(len(maps_of(m)) for m in wanted) == len(maps_of(found))


def test_extension_nodes_add_instances_of_their_tiles():
    model = extract_model(to_function(chain()))
    tree = tile_and_fuse(model, "C", [2], ["B"])
    (part,) = marked_parts(tree.schedule)
    assert part.depth == 1 and scratch_buffers(part.name) == ("B",)
    by_name = {m.get_tuple_name(isl.dim_type.in_): pairs(m) for m in maps_of(part.executed)}
    assert by_name["B"] == {((p,), (o,)) for o in (0, 2, 4) for p in range(o, o + 4)}
    assert by_name["C"] == {((p,), (p - p % 2,)) for p in range(6)}


def test_marks_of_storage():
    assert scratch_buffers(scratch_mark(("B", "C")).get_name()) == ("B", "C")
    assert scratch_buffers("parallel") is None


def test_nodes_of_other_types_have_no_meaning_here():
    text = '{ domain: "{ A[] }", child: { context: "{ [] }" } }'
    with pytest.raises(InternalError, match="a node of type context"):
        prefixes(isl.Schedule.read_from_str(CONTEXT, text))
