"""Bad ONNX models: each refused by one clear error that names the culprit, before anything large is made."""

from __future__ import annotations

import contextlib
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, strategies as st
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tilewright.frontend import import_onnx, zoo
from tilewright.graph import Limits
from tilewright.graph.registry import unsupported
from tilewright.support import InputError, ModelError, ResourceError, UnsupportedOperatorError, UserError

#: What refusing a model may allocate: far less than the tensors it asks for.
MEMORY = 64 << 20


@pytest.fixture(autouse=True)
def _bounded_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


def _value(name: str, *shape: int | str | None, elem: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, elem, list(shape))


def _model(*nodes: onnx.NodeProto, inputs=None, outputs=None, weights=(), opset=21) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [_value("x", 2, 3)] if inputs is None else inputs,
        [_value("y", None, None)] if outputs is None else outputs,
        initializer=list(weights),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


RELU = helper.make_node("Relu", ["x"], ["y"], name="relu")


def refused(model: object, error: type[UserError], *fragments: str, **kwargs: object) -> str:
    with pytest.raises(error) as caught:
        import_onnx(model, **kwargs)
    text = str(caught.value)
    for fragment in fragments:
        assert fragment in text, text
    assert all(line.isprintable() for line in text.split("\n")), text
    return text


# files


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    refused(tmp_path / "none.onnx", ModelError, "there is no model file", "none.onnx")
    refused(tmp_path, ModelError, "is not a file")


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    path.write_bytes(b"")
    refused(path, ModelError, "empty.onnx", "is empty")


@pytest.mark.parametrize(
    "content", [b"hello, world\n" * 10, bytes(range(256)), b"\x89PNG\r\n\x1a\n" + bytes(90)]
)
def test_a_file_that_is_no_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.onnx"
    path.write_bytes(content)
    refused(path, ModelError, "other.onnx", "not an ONNX model")


@pytest.mark.parametrize("kept", [0.03, 0.5, 0.9, 0.999])
def test_a_truncated_file(tmp_path: Path, kept: float) -> None:
    data = zoo.SMALL["resnet18"]().SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: int(len(data) * kept)])
    refused(path, ModelError, "cut.onnx")


def test_a_file_that_is_larger_than_any_model(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    refused(path, ResourceError, "large.onnx", "3.0 GiB")


def test_messages_nested_without_end(tmp_path: Path) -> None:
    # graph (field 7 of the model) of node (1) of attribute (5) of graph (6) ...
    data = b""
    for tag in (*(0x32, 0x2A, 0x0A) * 1000, 0x3A):
        size, length = len(data), b""
        while size >= 0x80:
            length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
        data = bytes([tag]) + length + bytes([size]) + data
    refused(data, ModelError, "cannot be parsed")


def test_graphs_nested_in_graphs() -> None:
    inner = helper.make_graph([helper.make_node("Identity", ["x"], ["o"])], "inner", [], [_value("o", 2, 3)])
    for at in range(30):
        node = helper.make_node("If", ["c"], [f"o{at}"], then_branch=inner)
        inner = helper.make_graph([node], "inner", [], [_value(f"o{at}", 2, 3)])
    model = _model(helper.make_node("If", ["c"], ["y"], then_branch=inner), inputs=[_value("x", 2, 3)])
    refused(model.SerializeToString(), ResourceError, "nests graphs in graphs more than 28 deep")


# structure


def test_no_graph_or_no_operator_set() -> None:
    refused(onnx.ModelProto(ir_version=10), ModelError, "holds no graph")
    model = _model(RELU)
    del model.opset_import[:]
    refused(model, ModelError, "which operator set")


def test_an_operator_set_from_the_future() -> None:
    refused(_model(RELU, opset=999), ModelError, "999", "older operator set")


def test_a_cycle() -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], name="one"), helper.make_node("Neg", ["a"], ["b"])]
    refused(_model(*nodes, helper.make_node("Neg", ["b"], ["y"])), ModelError)


def test_a_value_that_nothing_makes() -> None:
    refused(_model(helper.make_node("Add", ["x", "ghost"], ["y"], name="sum")), ModelError, "ghost")


def test_a_value_made_twice() -> None:
    refused(_model(RELU, helper.make_node("Neg", ["x"], ["y"])), ModelError, "y")


def test_an_output_that_nothing_makes() -> None:
    refused(_model(RELU, outputs=[_value("z", 2, 3)]), ModelError, "'z'")


def test_functions_that_call_themselves() -> None:
    model = _model(helper.make_node("F", ["x"], ["y"], domain="custom"))
    model.opset_import.append(helper.make_opsetid("custom", 1))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("custom", 1)]
    for name, callee in (("F", "G"), ("G", "F")):
        call = helper.make_node(callee, ["a"], ["b"], domain="custom")
        model.functions.append(helper.make_function("custom", name, ["a"], ["b"], [call], opsets))
    refused(model, ModelError, "calls itself")


def test_functions_that_double_and_double() -> None:
    model = _model(helper.make_node("F0", ["x"], ["y"], domain="custom"))
    model.opset_import.append(helper.make_opsetid("custom", 1))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("custom", 1)]
    for at in range(40):
        domain = "custom" if at < 39 else ""
        callee = f"F{at + 1}" if at < 39 else "Neg"
        calls = [
            helper.make_node(callee, ["a"], ["m"], domain=domain),
            helper.make_node(callee, ["m"], ["b"], domain=domain),
        ]
        model.functions.append(helper.make_function("custom", f"F{at}", ["a"], ["b"], calls, opsets))
    refused(model, ResourceError, "1099511627776 nodes")


# sizes


def test_weights_of_17_gigabytes_in_a_hundred_bytes() -> None:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[65536, 65536])
    model = _model(helper.make_node("MatMul", ["x", "w"], ["y"]), weights=[weight])
    assert len(model.SerializeToString()) < 150
    refused(model.SerializeToString(), ModelError, "tensor name: w")
    model.graph.initializer[0].raw_data = bytes(8)
    refused(model.SerializeToString(), UserError, "w")


def test_a_constant_of_17_gigabytes() -> None:
    shape = numpy_helper.from_array(np.array([65536, 65536]), "shape")
    model = _model(
        helper.make_node("ConstantOfShape", ["shape"], ["h"], name="fill"),
        helper.make_node("MatMul", ["x", "h"], ["y"]),
        weights=[shape],
    )
    refused(model, ResourceError, "'fill'", "16.0 GiB")


@pytest.mark.parametrize("op", ["Expand", "Tile"])
def test_data_blown_up_to_17_gigabytes(op: str) -> None:
    target = numpy_helper.from_array(np.array([65536 * 32, 3 if op == "Expand" else 1024]), "target")
    inputs = [_value("x", 1, 3)]
    model = _model(helper.make_node(op, ["x", "target"], ["y"], name="blow"), inputs=inputs, weights=[target])
    if op == "Tile":
        refused(model, ResourceError, "'blow'", "GiB")
    else:
        assert import_onnx(model).types["y"].nbytes < 1 << 33
        big = numpy_helper.from_array(np.array([1 << 40, 3]), "target")
        model.graph.initializer[0].CopyFrom(big)
        refused(model, ResourceError, "'blow'", "TiB")


def test_an_input_of_17_gigabytes() -> None:
    refused(_model(RELU, inputs=[_value("x", 65536, 65536)]), ResourceError, "'x'")


def test_a_weight_whose_data_is_cut_short() -> None:
    weight = numpy_helper.from_array(np.ones((3, 4), np.float32), "w")
    weight.raw_data = weight.raw_data[:-4]
    model = _model(helper.make_node("MatMul", ["x", "w"], ["y"]), weights=[weight])
    refused(model, ModelError, "w")


def test_a_weight_with_a_negative_size() -> None:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[-3, 4], raw_data=b"")
    refused(_model(helper.make_node("MatMul", ["x", "w"], ["y"]), weights=[weight]), ModelError, "w")


# external data


def _external(folder: Path, location: str, shape=(3, 4), **entries: object) -> Path:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=list(shape))
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=str(value))
    model = _model(helper.make_node("MatMul", ["x", "w"], ["y"]), weights=[weight])
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_in_the_models_folder_is_read(tmp_path: Path) -> None:
    data = np.arange(16, dtype=np.float32)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(data.tobytes())
    graph = import_onnx(_external(tmp_path, "data/w.bin", offset=16, length=48))
    np.testing.assert_array_equal(graph.constants["w"].reshape(-1), data[4:])


@pytest.mark.parametrize(
    "location", ["../w.bin", "data/../../w.bin", "/etc/passwd", "", ".", "a\0b", "..\\w"]
)
def test_external_data_outside_of_the_models_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(48))
    refused(_external(tmp_path / "inside", location), ModelError, "'w'", "outside of the model's folder")


def test_external_data_behind_a_link_that_leaves_the_folder(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(48))
    (inside / "w.bin").symlink_to(tmp_path / "w.bin")
    refused(_external(inside, "w.bin"), ModelError, "outside of the model's folder")
    (inside / "up").symlink_to(tmp_path)
    refused(_external(inside, "up/w.bin"), ModelError, "outside of the model's folder")


def test_external_data_that_is_missing_short_or_too_long(tmp_path: Path) -> None:
    refused(_external(tmp_path, "w.bin"), ModelError, "'w.bin'", "cannot be opened")
    (tmp_path / "w.bin").write_bytes(bytes(40))
    refused(_external(tmp_path, "w.bin"), ModelError, "ends at byte 40, before byte 48")
    refused(_external(tmp_path, "w.bin", length=40), ModelError, "needs 48 bytes", "says 40")
    refused(_external(tmp_path, "w.bin", offset="1e3"), ModelError, "'1e3'", "no number")
    refused(_external(tmp_path, "w.bin", offset=-8), ModelError, "'-8'", "no number")
    refused(_external(tmp_path, "w.bin", shape=(65536, 65536)), ResourceError, "'w'", "16.0 GiB")


def test_external_data_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused(_external(tmp_path, "pipe"), ModelError, "'pipe'", "not a regular file")
    (tmp_path / "folder").mkdir()
    refused(_external(tmp_path, "folder"), ModelError, "'folder'")


def test_external_data_of_a_model_without_a_folder(tmp_path: Path) -> None:
    data = _external(tmp_path, "w.bin").read_bytes()
    refused(data, ModelError, "'w'", "'w.bin'", "give the model as a path")


# types, sizes left open, names


def test_sizes_left_open_are_all_named() -> None:
    inputs = [_value("x", "N", 3), _value("z", None, 3)]
    node = helper.make_node("Add", ["x", "z"], ["y"])
    refused(_model(node, inputs=inputs), InputError, "'x': axis 0 ('N')", "'z': axis 0", "shapes=")


@pytest.mark.parametrize(
    "name", ['say "hi"', "it's", "two\nlines", "tab\there", "bell\a", "a" * 500, "ü→", "%s{x}"]
)
def test_strange_names_are_legal_and_stay_on_one_line(name: str) -> None:
    good = _model(helper.make_node("Relu", [name], ["y"], name=name), inputs=[_value(name, 2, 3)])
    assert import_onnx(good).inputs == (name,)
    bad = _model(helper.make_node("Mystery", [name], ["y"], name=name), inputs=[_value(name, 2, 3)])
    bad.graph.node[0].domain = "custom"
    bad.opset_import.append(helper.make_opsetid("custom", 1))
    text = refused(bad, UnsupportedOperatorError, "custom.Mystery")
    assert len(text.split("\n")) == 2
    assert len(text) < 300


def test_elements_that_tensors_cannot_have() -> None:
    inputs = [_value("x", 2, 3, elem=TensorProto.COMPLEX64)]
    outputs = [_value("y", 2, 3, elem=TensorProto.COMPLEX64)]
    node = helper.make_node("Identity", ["x"], ["y"])
    refused(_model(node, inputs=inputs, outputs=outputs), UnsupportedOperatorError, "'x'", "complex64")
    weight = helper.make_tensor("w", TensorProto.COMPLEX64, [1], [1j])
    refused(_model(RELU, weights=[weight]), UnsupportedOperatorError, "'w'", "complex64")


def test_inputs_that_are_no_tensors() -> None:
    sequence = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2, 3])
    node = helper.make_node("SequenceLength", ["x"], ["y"])
    outputs = [_value("y", elem=TensorProto.INT64)]
    refused(_model(node, inputs=[sequence], outputs=outputs), UnsupportedOperatorError, "'x'", "sequence")


def test_everything_unsupported_is_listed_by_name_and_operator() -> None:
    nodes = [
        helper.make_node("Mystery", ["x"], ["a"], name="first", domain="custom"),
        helper.make_node("Relu", ["a"], ["b"], name="fine"),
        helper.make_node("Riddle", ["b"], ["c"], name="second", domain="custom"),
        helper.make_node("Multinomial", ["x"], ["f"], name="third"),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    model = _model(*nodes, inputs=[_value("x", 2, 3)])
    model.opset_import.append(helper.make_opsetid("custom", 1))
    text = refused(model, UnsupportedOperatorError, "3 nodes cannot be compiled")
    assert [line.strip() for line in text.split("\n")[1:]] == [
        "node 'first' (custom.Mystery): the operator is not supported",
        "node 'second' (custom.Riddle): the operator is not supported",
        f"node 'third' (Multinomial): {unsupported('Multinomial')}",
    ]


def test_attributes_of_the_wrong_kind() -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], name="soft")
    node.attribute.add(name="axis", type=AttributeProto.FLOAT, f=1.0)
    refused(_model(node), ModelError)


def test_shapes_that_do_not_agree_name_the_node() -> None:
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    model = _model(helper.make_node("MatMul", ["x", "w"], ["y"], name="product"), weights=[weight])
    refused(model, ModelError, "node 'product' (MatMul)", "3 != 4")


# anything at all

_MODELS = [
    zoo.SMALL["resnet18"]().SerializeToString(),
    _model(
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv", pads=[1, 1, 1, 1], strides=[2, 1]),
        helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2]),
        helper.make_node("Reshape", ["b", "shape"], ["c"], name="reshape"),
        helper.make_node("Softmax", ["c"], ["y"], axis=1),
        inputs=[_value("x", 1, 2, 8, 8)],
        weights=[
            numpy_helper.from_array(np.ones((3, 2, 3, 3), np.float32), "w"),
            numpy_helper.from_array(np.array([0, -1]), "shape"),
        ],
    ).SerializeToString(),
]

_EDITS = st.lists(
    st.tuples(
        st.integers(0, 1 << 16), st.sampled_from(["set", "drop", "insert", "cut"]), st.integers(0, 255)
    ),
    min_size=1,
    max_size=6,
)


@given(st.sampled_from(_MODELS), _EDITS)
def test_bytes_changed_at_random_are_imported_or_refused(
    data: bytes, edits: list[tuple[int, str, int]]
) -> None:
    edited = bytearray(data)
    for place, kind, value in edits:
        at = place % max(len(edited), 1)
        match kind:
            case "set" if edited:
                edited[at] = value
            case "drop":
                del edited[at : at + value % 4 + 1]
            case "insert":
                edited[at:at] = bytes([value])
            case "cut" if value < 32:
                del edited[at:]
    try:
        import_onnx(bytes(edited))
    except UserError as error:
        assert all(line.isprintable() for line in str(error).split("\n"))


@given(st.data())
def test_attributes_and_sizes_changed_at_random_are_imported_or_refused(data: st.DataObject) -> None:
    model = onnx.ModelProto.FromString(_MODELS[1])
    numbers = st.sampled_from([-(2**63), -2, -1, 0, 1, 2, 5, 1000, 2**31, 2**62])
    for _ in range(data.draw(st.integers(1, 3))):
        node = data.draw(st.sampled_from(list(model.graph.node)))
        fields = [field for a in node.attribute for field in ([a.ints] if a.ints else [])]
        dims = [dim for value in model.graph.input for dim in value.type.tensor_type.shape.dim]
        if fields and data.draw(st.booleans()):
            field = data.draw(st.sampled_from(fields))
            field[data.draw(st.integers(0, len(field) - 1))] = data.draw(numbers)
        else:
            data.draw(st.sampled_from(dims)).dim_value = data.draw(st.sampled_from([0, 1, 3, 7, 100, 2**40]))
    with contextlib.suppress(UserError):
        import_onnx(model)


def test_constants_beyond_the_budget_are_computed_at_run_time() -> None:
    shape = numpy_helper.from_array(np.array([64, 3]), "shape")
    weight = numpy_helper.from_array(np.ones(3, np.float32), "w")
    nodes = [helper.make_node("Expand", ["w", "shape"], ["h"]), helper.make_node("Add", ["x", "h"], ["y"])]
    model = _model(*nodes, inputs=[_value("x", 64, 3)], weights=[shape, weight])
    assert [node.op for node in import_onnx(model).nodes] == ["Add"]
    graph = import_onnx(model, limits=Limits(folded_bytes=700))
    assert [node.op for node in graph.nodes] == ["Expand", "Add"]
