"""What runs do with lists: beside the reference evaluator of the onnx package."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tilewright.runtime.lists import LIST_OPS, on_lists
from tilewright.support import InputError

ARRAYS = [np.full((n, 2), n, np.float32) for n in (3, 1, 0)]
WHOLE = np.arange(12, dtype=np.float32).reshape(2, 6)
CASES = [
    ("SequenceInsert", {}, (ARRAYS, ARRAYS[0])),
    *(("SequenceInsert", {}, (ARRAYS, ARRAYS[0], np.array(at))) for at in (0, 2, -1)),
    ("SequenceErase", {}, (ARRAYS,)),
    *(("SequenceErase", {}, (ARRAYS, np.array(at))) for at in (0, -2)),
    *(("SequenceAt", {}, (ARRAYS, np.array(at))) for at in (0, 1, -1)),
    ("SequenceLength", {}, (ARRAYS,)),
    ("ConcatFromSequence", {"axis": 0}, (ARRAYS,)),
    *(("ConcatFromSequence", {"axis": a, "new_axis": 1}, ([WHOLE, WHOLE],)) for a in (0, 1, -1)),
    ("SplitToSequence", {"axis": 1}, (WHOLE,)),
    ("SplitToSequence", {"axis": -1, "keepdims": 0}, (WHOLE,)),
    ("SplitToSequence", {"axis": 1}, (WHOLE, np.array(2))),
    ("SplitToSequence", {"axis": 1}, (WHOLE, np.array([1, 3, 2]))),
    ("SequenceConstruct", {}, tuple(ARRAYS)),
    ("SequenceEmpty", {}, ()),
    ("OptionalHasElement", {}, (WHOLE,)),
    ("OptionalGetElement", {}, (WHOLE,)),
]


def reference(op, attributes, values):
    def info(name, value):
        if isinstance(value, list):
            return helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)
        kind = TensorProto.INT64 if value.dtype == np.int64 else TensorProto.FLOAT
        return helper.make_tensor_value_info(name, kind, None)

    names = [f"x{at}" for at in range(len(values))]
    node = helper.make_node(op, names, ["y"], **attributes)
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    inputs = [info(name, value) for name, value in zip(names, values, strict=True)]
    model = helper.make_model(helper.make_graph([node], "g", inputs, outputs))
    return ReferenceEvaluator(model).run(None, dict(zip(names, values, strict=True)))[0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_each_is_what_the_standard_says(case):
    op, attributes, values = case
    got, want = on_lists(op, attributes, "here", values), reference(*case)
    assert isinstance(got, list) == isinstance(want, list)
    lists = (got, want) if isinstance(got, list) else ([got], [want])
    for a, b in zip(*lists, strict=True):
        np.testing.assert_array_equal(a, b)


def test_all_are_compared():
    assert {op for op, *_ in CASES} | {"Identity", "Optional"} == set(LIST_OPS)
    assert on_lists("Optional", {}, "here", ()) is None
    assert on_lists("Identity", {}, "here", (ARRAYS,)) is ARRAYS


@pytest.mark.parametrize("at", [np.array(3), np.array(-4), np.array([0, 1])])
def test_places_out_of_range_are_named(at):
    with pytest.raises(InputError, match=r"here: place .* is out of range for 3 elements"):
        on_lists("SequenceAt", {}, "here", (ARRAYS, at))


def test_behind_the_last_element_others_may_be_put():
    assert on_lists("SequenceInsert", {}, "here", ([1], 2, np.array(1))) == [1, 2]
