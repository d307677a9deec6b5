"""States that stay where they are: what the pass rewrites, and what it refuses."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.frontend import import_onnx
from tilewright.graph import KeepStates, writes_state
from tilewright.support import InputError


def model(nodes=(), outputs=(), **attributes):
    """``present`` is ``past`` with new entries, and ``y`` a product with it."""
    tensor = helper.make_tensor_value_info
    inputs = [
        tensor("past", TensorProto.FLOAT, [2, 8, 4]),
        tensor("new", TensorProto.FLOAT, [2, "n", 4]),
        tensor("start", TensorProto.INT64, [2]),
    ]
    made = [
        helper.make_node("TensorScatter", ["past", "new", "start"], ["written"], axis=1, **attributes),
        helper.make_node("Identity", ["written"], ["present"]),
        helper.make_node("MatMul", ["present", "w"], ["y"]),
        *nodes,
    ]
    given = [tensor(name, TensorProto.FLOAT, None) for name in ("present", "y", *outputs)]
    weights = [numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w")]
    graph = helper.make_graph(made, "g", inputs, given, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def test_new_entries_alone_are_written():
    graph = import_onnx(model(), shapes={"n": 3})
    kept = KeepStates({"past": "present"})(graph)
    (node,) = [node for node in kept.nodes if node.op == "WriteState"]
    assert node.inputs == ("new", "start") and dict(node.attributes) == {"axis": 1, "room": 8}
    assert kept.inputs == graph.inputs and kept.types["written"].sizes == (2, 8, 4)
    assert writes_state(kept, "written") and not writes_state(kept, "y")


_READ = helper.make_node("Neg", ["past"], ["z"])
_CONCAT = helper.make_node("Concat", ["past", "new"], ["z"], axis=1)


@pytest.mark.parametrize(
    ("states", "made", "problem"),
    [
        ({"later": "present"}, model(), "no input 'later' that state= could name"),
        ({"past": "next"}, model(), "no output 'next' that state= could name"),
        ({"past": "y"}, model(), "'y' cannot be written where the input 'past' is"),
        ({"new": "present"}, model(), "'present' cannot be written where the input 'new' is"),
        ({"past": "present"}, model([_READ], ["z"]), "'present' cannot be written"),
        ({"past": "present"}, model(mode="circular"), "'present' cannot be written"),
        ({"past": "z"}, model([_CONCAT], ["z"]), "'z' cannot be written"),
    ],
)
def test_what_is_not_the_input_with_new_entries_is_refused(states, made, problem):
    with pytest.raises(InputError, match=problem):
        KeepStates(states)(import_onnx(made, shapes={"n": 3}))
