"""Damaged models: small networks with outputs of known shapes, and ways to make each of them wrong.

A damage changes one thing of a model that a converter, a hand or a broken disk may change. What comes of it
is judged by `model_judge.py`: the model is refused by an error of ours, or it runs and gives what onnxruntime
gives; anything else is a finding.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def _array(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape).astype(np.float32)


def _model(
    nodes: list[NodeProto], output: tuple[int, ...], elem: int = FLOAT, **known: np.ndarray
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "damaged",
        [helper.make_tensor_value_info("x", FLOAT, [2, 3, 8, 8])],
        [helper.make_tensor_value_info("y", elem, output)],
        [numpy_helper.from_array(array, name) for name, array in known.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def seeds() -> list[ModelProto]:
    """The models before anything is changed."""
    node = helper.make_node
    return [
        _model(
            [
                node("Conv", ["x", "w", "b"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2], name="conv"),
                node("Relu", ["a"], ["r"], name="relu"),
                node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2], name="pool"),
                node("Flatten", ["p"], ["f"], axis=1, name="flat"),
                node("Gemm", ["f", "m", "c"], ["y"], transB=1, alpha=0.5, name="gemm"),
            ],
            (2, 5),
            w=_array(4, 3, 3, 3),
            b=_array(4),
            m=_array(5, 16),
            c=_array(5),
        ),
        _model(
            [
                node("Transpose", ["x"], ["t"], perm=[0, 2, 3, 1], name="turn"),
                node("Reshape", ["t", "s"], ["r"], name="shape"),
                node("MatMul", ["r", "w"], ["m"], name="product"),
                node("Softmax", ["m"], ["p"], axis=-1, name="softmax"),
                node("ReduceMean", ["p"], ["y"], axes=[1], keepdims=0, name="mean"),
            ],
            (2, 6),
            s=_i(2, 64, 3),
            w=_array(3, 6),
        ),
        _model(
            [
                node("Slice", ["x", "b", "e", "a", "t"], ["s"], name="slice"),
                node("Pad", ["s", "p"], ["q"], mode="reflect", name="pad"),
                node("Resize", ["q", "", "k"], ["z"], mode="linear", name="resize"),
                node("Concat", ["z", "z"], ["c"], axis=1, name="join"),
                node("Split", ["c", "n"], ["u", "v"], axis=1, name="split"),
                node("Sub", ["u", "v"], ["d"], name="less"),
                node("Clip", ["d", "lo", "hi"], ["y"], name="clip"),
            ],
            (2, 3, 12, 16),
            b=_i(0, 1),
            e=_i(4, 8),
            a=_i(2, 3),
            t=_i(1, 1),
            p=_i(0, 0, 1, 0, 0, 0, 1, 1),
            k=np.array([1, 1, 2, 2], np.float32),
            n=_i(3, 3),
            lo=np.array(-1, np.float32),
            hi=np.array(1, np.float32),
        ),
        _model(
            [
                node("ArgMax", ["x"], ["i"], axis=1, keepdims=0, name="best"),
                node("Gather", ["table", "i"], ["g"], axis=0, name="look"),
                node("LayerNormalization", ["g", "s", "o"], ["l"], axis=-1, name="norm"),
                node("Unsqueeze", ["l", "u"], ["q"], name="more"),
                node("Squeeze", ["q", "u"], ["k"], name="fewer"),
                node("Cast", ["k"], ["h"], to=TensorProto.DOUBLE, name="cast"),
                node("TopK", ["h", "n"], ["values", "y"], axis=-1, name="top"),
            ],
            (2, 8, 8, 2),
            INT64,
            table=_array(3, 4),
            s=_array(4),
            o=_array(4),
            u=_i(1),
            n=_i(2),
        ),
        _model(
            [
                node("GlobalAveragePool", ["x"], ["g"], name="pool"),
                node("Reshape", ["g", "s"], ["r"], name="shape"),
                node("LSTM", ["r", "w", "u", "b"], ["h", "", ""], hidden_size=4, name="lstm"),
                node("Reshape", ["h", "f"], ["k"], name="flat"),
                node("Where", ["c", "k", "z"], ["y"], name="where"),
            ],
            (3, 8),
            s=_i(3, 2, 1),
            w=_array(1, 16, 1),
            u=_array(1, 16, 4),
            b=_array(1, 32),
            f=_i(3, 8),
            c=np.array([[True], [False], [True]]),
            z=_array(8),
        ),
    ]


def _attribute(model: ModelProto, random_: random.Random) -> None:
    """Another value of an attribute: far off, negative, of another length or kind."""
    nodes = [node for node in model.graph.node if node.attribute]
    attribute = random_.choice(random_.choice(nodes).attribute)
    match attribute.type:
        case AttributeProto.INT:
            attribute.i = random_.choice([-(2**63), -5, -1, 0, 1, 2, 7, 99, 2**31, 2**63 - 1])
        case AttributeProto.INTS:
            values = list(attribute.ints)
            what = random_.randrange(4)
            if what == 0 and values:
                values[random_.randrange(len(values))] = random_.choice([-(2**62), -3, -1, 0, 5, 2**40])
            elif what == 1:
                values.append(random_.choice([0, 1, 2]))
            elif what == 2 and values:
                values.pop()
            else:
                random_.shuffle(values)
            attribute.ints[:] = values
        case AttributeProto.FLOAT:
            attribute.f = random_.choice([float("nan"), float("inf"), -1.0, 0.0, 1e38])
        case AttributeProto.STRING:
            attribute.s = random_.choice([b"", b"%s%n", b"nearest", b"constant", b"\xff\xfe", b"edge"])
    if random_.random() < 0.15:
        attribute.type = random_.choice([AttributeProto.INT, AttributeProto.INTS, AttributeProto.STRING])


def _operator(model: ModelProto, random_: random.Random) -> None:
    names = [
        "Relu",
        "Add",
        "MatMul",
        "Concat",
        "NonZero",
        "Loop",
        "GRU",
        "Einsum",
        "Nothing",
        "ScatterND",
        "Sum",
    ]
    random_.choice(model.graph.node).op_type = random_.choice(names)


def _inputs(model: ModelProto, random_: random.Random) -> None:
    node = random_.choice(model.graph.node)
    values = [name for other in model.graph.node for name in (*other.input, *other.output)] + [
        "x",
        "",
        "ghost",
    ]
    what = random_.randrange(3)
    if what == 0 and node.input:
        node.input[random_.randrange(len(node.input))] = random_.choice(values)
    elif what == 1:
        node.input.append(random_.choice(values))
    elif node.input:
        node.input.pop()


def _outputs(model: ModelProto, random_: random.Random) -> None:
    node = random_.choice(model.graph.node)
    if random_.random() < 0.5:
        node.output.append(random_.choice(["extra", "y", "x", ""]))
    else:
        node.output[0] = random_.choice(["y", "x", "", "renamed"])


def _initializer(model: ModelProto, random_: random.Random) -> None:
    tensor = random_.choice(model.graph.initializer)
    match random_.randrange(6):
        case 0:
            if tensor.dims:
                at = random_.randrange(len(tensor.dims))
                tensor.dims[at] = random_.choice([-1, 0, 1, 3, 2**40])
        case 1:
            tensor.raw_data = tensor.raw_data[: len(tensor.raw_data) // 2]
        case 2:
            tensor.data_type = random_.choice([0, 1, 6, 7, 8, 9, 10, 11, 16, 17, 99])
        case 3:
            array = numpy_helper.to_array(tensor)
            wild = (
                [-(2**62), -7, -1, 0, 1, 3, 77, 2**62]
                if array.dtype.kind == "i"
                else [0.0, np.nan, -2.0, 1e30]
            )
            flat = array.reshape(-1).copy()
            if flat.size:
                flat[random_.randrange(flat.size)] = random_.choice(wild)
            tensor.CopyFrom(numpy_helper.from_array(flat.reshape(array.shape), tensor.name))
        case 4:
            array = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(np.concatenate([array.reshape(-1)] * 2), tensor.name))
        case _:
            tensor.name = random_.choice(["x", "y", "", "other"])


def _declaration(model: ModelProto, random_: random.Random) -> None:
    value = random_.choice([*model.graph.input, *model.graph.output])
    tensor = value.type.tensor_type
    match random_.randrange(4):
        case 0:
            tensor.shape.dim[random_.randrange(len(tensor.shape.dim))].dim_value = random_.choice(
                [-1, 0, 1, 5, 2**40]
            )
        case 1:
            tensor.elem_type = random_.choice([0, 1, 6, 7, 9, 10, 11, 16, 99])
        case 2:
            tensor.shape.dim.pop()
        case _:
            value.name = random_.choice(["x", "y", "z", ""])


def _opset(model: ModelProto, random_: random.Random) -> None:
    model.opset_import[0].version = random_.choice([-1, 0, 1, 5, 6, 7, 9, 11, 13, 18, 21, 999])


def _removal(model: ModelProto, random_: random.Random) -> None:
    what = random_.choice([model.graph.node, model.graph.initializer, model.graph.input, model.graph.output])
    if what:
        del what[random_.randrange(len(what))]


DAMAGES: tuple[Callable[[ModelProto, random.Random], None], ...] = (
    _attribute, _attribute, _attribute, _operator, _inputs, _inputs, _outputs, _initializer, _initializer,
    _initializer, _declaration, _opset, _removal,
)  # fmt: skip


@dataclass(frozen=True)
class Damaged:
    """A damaged model's bytes, and how it came about."""

    content: bytes
    story: str


def damaged(seed: int) -> Damaged:
    """The damaged model of a number: the same in every run."""
    random_ = random.Random(seed)
    models = seeds()
    model = models[seed % len(models)]
    story = []
    for _ in range(random_.choice([1, 1, 1, 2])):
        damage = random_.choice(DAMAGES)
        try:
            damage(model, random_)
        except (ValueError, TypeError, IndexError):
            # nothing there to damage in this way, or not a thing that protocol buffers hold
            continue
        story.append(damage.__name__.strip("_"))
    content = model.SerializeToString()
    if random_.random() < 0.08:
        at = random_.randrange(len(content))
        content = content[:at] + bytes([random_.randrange(256)]) + content[at + 1 :]
        story.append("a byte")
    return Damaged(content, f"model {seed % len(models)}: {', '.join(story)}")
