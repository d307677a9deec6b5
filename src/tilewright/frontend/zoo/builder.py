"""A small writer of ONNX models: nodes appended one by one, random weights from one seed.

Read this first, then `convolutional.py` and `transformers.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

Attribute = int | float | str | Sequence[int] | Sequence[float]

#: The operator set the models are written in. 17 is the first with LayerNormalization as one operator.
OPSET = 17
#: The file format version that goes with it, so that older runtimes read the files as well.
IR_VERSION = 8


@dataclass(slots=True)
class ModelBuilder:
    """Collects nodes, weights, inputs and outputs, and hands them back as one `ModelProto`.

    Tensors are named by strings. Every method that makes a node returns the name of its output, so that
    calls nest. Weights are drawn from one generator in the order of the calls: the same calls and the same
    `seed` give the same bytes.
    """

    name: str
    seed: int = 0
    _nodes: list[NodeProto] = field(default_factory=list)
    _weights: list[TensorProto] = field(default_factory=list)
    _inputs: list[ValueInfoProto] = field(default_factory=list)
    _outputs: list[ValueInfoProto] = field(default_factory=list)
    _count: dict[str, int] = field(default_factory=dict)
    _random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def fresh(self, stem: str) -> str:
        """A name that no other tensor or node has, starting with `stem`."""
        number = self._count.get(stem, 0)
        self._count[stem] = number + 1
        return stem if number == 0 else f"{stem}_{number}"

    def input(self, name: str, shape: Sequence[int | str], elem_type: int = TensorProto.FLOAT) -> str:
        """Declare a model input; a string in `shape` is a symbolic dimension."""
        self._inputs.append(helper.make_tensor_value_info(name, elem_type, list(shape)))
        self._count.setdefault(name, 1)
        return name

    def output(
        self, tensor: str, name: str, shape: Sequence[int | str], elem_type: int = TensorProto.FLOAT
    ) -> None:
        """Declare `tensor` a model output called `name`."""
        self._nodes.append(
            helper.make_node("Identity", [tensor], [name], name=self.fresh(f"{name}/identity"))
        )
        self._outputs.append(helper.make_tensor_value_info(name, elem_type, list(shape)))

    def constant(self, values: NDArray[np.generic], stem: str = "constant") -> str:
        """Store an array in the model and return its name."""
        name = self.fresh(stem)
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def scalar(self, value: float, stem: str = "scalar") -> str:
        """Store a float32 scalar (rank 0)."""
        return self.constant(np.array(value, np.float32), stem)

    def ints(self, *values: int, stem: str = "shape") -> str:
        """Store a vector of int64."""
        return self.constant(np.array(values, np.int64), stem)

    def normal(self, shape: Sequence[int], scale: float, stem: str, mean: float = 0.0) -> str:
        """Store float32 weights drawn from a normal distribution."""
        values = self._random.standard_normal(tuple(shape), dtype=np.float32)
        return self.constant(values * np.float32(scale) + np.float32(mean), stem)

    def uniform(self, shape: Sequence[int], low: float, high: float, stem: str) -> str:
        """Store float32 weights drawn uniformly from [low, high)."""
        values = self._random.random(tuple(shape), dtype=np.float32)
        return self.constant(values * np.float32(high - low) + np.float32(low), stem)

    def node(self, op: str, *inputs: str, stem: str | None = None, **attributes: Attribute) -> str:
        """Append a node with one output and return the output's name."""
        return self.nodes(op, inputs, 1, stem, **attributes)[0]

    def nodes(
        self, op: str, inputs: Sequence[str], outputs: int, stem: str | None = None, **attributes: Attribute
    ) -> list[str]:
        """Append a node with several outputs and return their names."""
        base = self.fresh(stem or op.lower())
        names = [base] if outputs == 1 else [f"{base}:{i}" for i in range(outputs)]
        # `Attribute` cannot be told apart from the keywords that make_node has itself
        node = helper.make_node(op, list(inputs), names, name=f"{base}/{op}", **attributes)  # type: ignore[arg-type]
        self._nodes.append(node)
        return names

    def conv(
        self,
        x: str,
        channels: tuple[int, int],
        kernel: Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: Sequence[int] | None = None,
        groups: int = 1,
        stem: str = "conv",
    ) -> str:
        """Append a bias-free convolution from `channels[0]` to `channels[1]`, "same" padded by default."""
        before, after = channels
        pads = [k // 2 for k in kernel] if padding is None else list(padding)
        strides = [stride] * len(kernel) if isinstance(stride, int) else list(stride)
        fan_in = before // groups * math.prod(kernel)
        weight = self.normal((after, before // groups, *kernel), math.sqrt(2.0 / fan_in), f"{stem}.weight")
        return self.node(
            "Conv",
            x,
            weight,
            stem=stem,
            kernel_shape=list(kernel),
            strides=strides,
            pads=pads + pads,
            dilations=[1] * len(kernel),
            group=groups,
        )

    def batch_norm(self, x: str, channels: int, gain: float = 1.0, stem: str = "bn") -> str:
        """Append an inference-mode batch normalisation whose scale is about `gain`."""
        return self.node(
            "BatchNormalization",
            x,
            self.uniform((channels,), 0.7 * gain, 1.3 * gain, f"{stem}.weight"),
            self.normal((channels,), 0.1, f"{stem}.bias"),
            self.normal((channels,), 0.1, f"{stem}.running_mean"),
            self.uniform((channels,), 0.7, 1.3, f"{stem}.running_var"),
            stem=stem,
            epsilon=1e-5,
            momentum=0.9,
        )

    def classifier(self, x: str, features: int, classes: int, stem: str = "fc") -> str:
        """Append global average pooling, flattening and a fully connected layer with bias."""
        pooled = self.node("GlobalAveragePool", x, stem="pool")
        flat = self.node("Flatten", pooled, stem="flatten", axis=1)
        weight = self.normal((classes, features), 1.0 / math.sqrt(features), f"{stem}.weight")
        bias = self.normal((classes,), 0.1, f"{stem}.bias")
        return self.node("Gemm", flat, weight, bias, stem=stem, transB=1)

    def linear(self, x: str, before: int, after: int, stem: str) -> str:
        """Append MatMul and Add, as exporters write a linear layer on a tensor of rank 3."""
        weight = self.normal((before, after), 1.0 / math.sqrt(before), f"{stem}.weight")
        bias = self.normal((after,), 0.02, f"{stem}.bias")
        return self.node("Add", self.node("MatMul", x, weight, stem=f"{stem}/matmul"), bias, stem=stem)

    def layer_norm(self, x: str, features: int, epsilon: float, decomposed: bool, stem: str = "ln") -> str:
        """Append a layer normalisation over the last axis.

        As one operator, or `decomposed` into the chain that older exporters write.
        """
        scale = self.uniform((features,), 0.8, 1.2, f"{stem}.weight")
        bias = self.normal((features,), 0.05, f"{stem}.bias")
        if not decomposed:
            return self.node("LayerNormalization", x, scale, bias, stem=stem, axis=-1, epsilon=epsilon)
        mean = self.node("ReduceMean", x, stem=f"{stem}/mean", axes=[-1], keepdims=1)
        centred = self.node("Sub", x, mean, stem=f"{stem}/centred")
        square = self.node("Pow", centred, self.scalar(2.0), stem=f"{stem}/square")
        variance = self.node("ReduceMean", square, stem=f"{stem}/variance", axes=[-1], keepdims=1)
        shifted = self.node("Add", variance, self.scalar(epsilon), stem=f"{stem}/shifted")
        deviation = self.node("Sqrt", shifted, stem=f"{stem}/deviation")
        normal = self.node("Div", centred, deviation, stem=f"{stem}/normal")
        scaled = self.node("Mul", normal, scale, stem=f"{stem}/scaled")
        return self.node("Add", scaled, bias, stem=stem)

    def build(self) -> ModelProto:
        """The finished model."""
        graph = helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, self._weights)
        domains = sorted({node.domain for node in self._nodes} - {""})
        opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(name, 1) for name in domains)]
        return helper.make_model(
            graph, producer_name="tilewright", opset_imports=opsets, ir_version=IR_VERSION
        )
