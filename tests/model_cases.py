"""Cases for the tests of graphs: random graphs, inputs for models, and running the groups of a graph."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st

from tilewright.graph import Graph, Node, Partition, Step, TensorType, plan_memory, typed_graph
from tilewright.ir import dtype_of

VERSION = 21


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Repeatable inputs for a model of the zoo."""
    random = np.random.default_rng(0)
    feeds: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if "mask" in value.name:
            feeds[value.name] = np.ones(shape, np.int64)
        elif value.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            feeds[value.name] = random.integers(0, 50, shape)
        else:
            feeds[value.name] = random.standard_normal(shape, dtype=np.float32)
    return feeds


def graph_feeds(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Repeatable inputs for a graph of floats."""
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(graph.types[name].sizes, dtype=np.float32) for name in graph.inputs}


class _Maker:
    """Draws nodes one by one; every value so far may be read."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.nodes: list[Node] = []
        self.constants: dict[str, np.ndarray] = {}
        self.shapes: dict[str, tuple[int, ...]] = {"x": (2, 3, 4), "z": (2, 3, 4)}

    def node(self, op: str, inputs: tuple[str, ...], shape: tuple[int, ...], **attributes: Any) -> None:
        name = f"t{len(self.nodes)}"
        self.nodes.append(Node(op, inputs, (name,), attributes, version=VERSION))
        self.shapes[name] = shape

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def value(self, recent: bool = True) -> str:
        names = list(self.shapes)
        return self.draw(st.sampled_from(names[-4:] if recent else names))

    def step(self) -> None:
        kind = self.draw(st.sampled_from(_STEPS))
        getattr(self, kind)(self.value())

    def unary(self, x: str) -> None:
        op = self.draw(st.sampled_from(["Relu", "Tanh", "Neg", "Abs", "Identity", "Erf"]))
        self.node(op, (x,), self.shapes[x])

    def binary(self, x: str) -> None:
        same = [name for name, shape in self.shapes.items() if shape == self.shapes[x]]
        op = self.draw(st.sampled_from(["Add", "Mul", "Sub"]))
        self.node(op, (x, self.draw(st.sampled_from(same))), self.shapes[x])

    def scalar(self, x: str) -> None:
        op, number = self.draw(st.sampled_from([("Add", 0.0), ("Mul", 1.0), ("Mul", 0.5), ("Add", 0.25)]))
        self.node(op, (x, self.constant(np.array(number, np.float32))), self.shapes[x])

    def bias(self, x: str) -> None:
        shape = self.shapes[x]
        if shape:
            row = np.linspace(-1, 1, shape[-1], dtype=np.float32)
            self.node("Add", (x, self.constant(row)), shape)

    def reshape(self, x: str) -> None:
        size = math.prod(self.shapes[x])
        known = [s for s in ((2, 3, 4), (6, 4), (1, 6, 4), (2, 12), (24,), (4, 6)) if math.prod(s) == size]
        if known:
            shape = self.draw(st.sampled_from(known))
            self.node("Reshape", (x, self.constant(np.array(shape, np.int64))), shape)

    def transpose(self, x: str) -> None:
        perm = tuple(self.draw(st.permutations(range(len(self.shapes[x])))))
        self.node("Transpose", (x,), tuple(self.shapes[x][axis] for axis in perm), perm=perm)

    def matmul(self, x: str) -> None:
        shape = self.shapes[x]
        if len(shape) >= 2:
            width = self.draw(st.sampled_from([3, 4]))
            weight = np.random.default_rng(len(self.nodes)).standard_normal((shape[-1], width))
            name = self.constant((weight / shape[-1]).astype(np.float32))
            self.node("MatMul", (x, name), (*shape[:-1], width))

    def product(self, x: str) -> None:
        shape = self.shapes[x]
        fitting = [n for n, s in self.shapes.items() if len(s) == len(shape) >= 2 and s[-2] == shape[-1]]
        fitting = [n for n in fitting if self.shapes[n][:-2] == shape[:-2]]
        if fitting:
            y = self.draw(st.sampled_from(fitting))
            self.node("MatMul", (x, y), (*shape[:-1], self.shapes[y][-1]))

    def reduce(self, x: str) -> None:
        shape = self.shapes[x]
        if shape:
            keep = self.draw(st.booleans())
            op = self.draw(st.sampled_from(["ReduceMean", "ReduceMax"]))
            axes = self.constant(np.array([-1], np.int64))
            out = (*shape[:-1], 1) if keep else shape[:-1]
            self.node(op, (x, axes), out, keepdims=int(keep))

    def centre(self, x: str) -> None:
        """A value less its mean: the beginning of a normalisation written out."""
        shape = self.shapes[x]
        if shape:
            axes = self.constant(np.array([-1], np.int64))
            self.node("ReduceMean", (x, axes), (*shape[:-1], 1), keepdims=1)
            self.node("Sub", (x, self.nodes[-1].outputs[0]), shape)

    def softmax(self, x: str) -> None:
        if self.shapes[x]:
            self.node("Softmax", (x,), self.shapes[x], axis=-1)

    def split(self, x: str) -> None:
        shape = self.shapes[x]
        if shape and shape[-1] % 2 == 0:
            half = (*shape[:-1], shape[-1] // 2)
            names = (f"t{len(self.nodes)}", f"t{len(self.nodes)}b")
            self.nodes.append(Node("Split", (x,), names, {"axis": -1, "num_outputs": 2}, version=VERSION))
            self.shapes |= dict.fromkeys(names, half)


_STEPS = (
    "unary", "binary", "binary", "scalar", "bias", "reshape", "transpose", "matmul", "product", "reduce",
    "centre", "softmax", "split",
)  # fmt: skip


@st.composite
def random_graphs(draw: st.DrawFn) -> Graph:
    """Typed graphs of up to a dozen nodes over two inputs, with one to three outputs."""
    maker = _Maker(draw)
    for _ in range(draw(st.integers(1, 12))):
        maker.step()
    made = [value for node in maker.nodes for value in node.outputs] or ["x"]
    chosen = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3))
    types = {name: TensorType("f32", (2, 3, 4)) for name in ("x", "z")}
    return typed_graph(types, [made[-1], *chosen], maker.nodes, maker.constants)


def run_partition(partition: Partition, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run the groups one after another on one planned arena of bytes; the model's outputs by name."""
    graph = partition.graph
    made = [value for group in partition.groups for value in group.outputs]
    sizes = {value: graph.types[value].nbytes for value in made}
    steps = [
        Step(tuple({partition.buffer(value): None for value in group.inputs}), group.outputs)
        for group in partition.groups
    ]
    plan = plan_memory(steps, sizes, kept=[partition.buffer(value) for value in graph.outputs])
    arena = np.full(plan.size, 0xFF, np.uint8)

    def array_of(value: str) -> np.ndarray:
        type_, buffer = graph.types[value], partition.buffer(value)
        if buffer in plan.offsets:
            begin = plan.offsets[buffer]
            flat = arena[begin : begin + type_.nbytes].view(dtype_of(type_.dtype).numpy)
            return flat.reshape(type_.sizes)
        return np.asarray(feeds.get(buffer, graph.constants.get(buffer))).reshape(type_.sizes)

    for group in partition.groups:
        results = partition.program(group).evaluate({value: array_of(value).copy() for value in group.inputs})
        for value in group.outputs:
            array_of(value)[...] = results[value]
    return {
        name: array_of(value).copy() for name, value in zip(graph.output_names, graph.outputs, strict=True)
    }
