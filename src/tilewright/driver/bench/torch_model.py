"""ONNX nodes as torch functions: enough to run the reference architectures in PyTorch.

The torch package is passed in, since Tilewright does not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from onnx import ModelProto, helper, numpy_helper

from tilewright.support import NodeLocation, UnsupportedOperatorError

Attributes = Mapping[str, Any]
Handler = Callable[[Any, Attributes, list[Any]], Any]


def torch_module(torch: Any, model: ModelProto) -> Callable[[Mapping[str, Any]], list[Any]]:
    """A function from input tensors by name to the list of output tensors.

    Shapes and axes that the model keeps as tensors are taken as constants. Raises UnsupportedOperatorError
    listing the nodes that it has no function for.
    """
    constants = {
        # A copy: torch does not take read-only memory.
        tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy())
        for tensor in model.graph.initializer
    }
    unknown = [
        node for node in model.graph.node if node.op_type not in _HANDLERS and node.op_type != "Constant"
    ]
    if unknown:
        places = [(NodeLocation(node.name, node.op_type), "there is no torch function") for node in unknown]
        raise UnsupportedOperatorError.of(places)
    steps: list[tuple[Handler, Attributes, list[str], list[str]]] = []
    for node in model.graph.node:
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        if node.op_type == "Constant":
            constants[node.output[0]] = torch.from_numpy(numpy_helper.to_array(attributes["value"]).copy())
            continue
        steps.append((_HANDLERS[node.op_type], attributes, list(node.input), list(node.output)))
    outputs = [value.name for value in model.graph.output]
    last_use = _last_uses(model.graph.node, outputs)

    def run(feeds: Mapping[str, Any]) -> list[Any]:
        values = {**constants, **feeds}
        for handler, attributes, inputs, made in steps:
            result = handler(torch, attributes, [values[name] if name else None for name in inputs])
            values.update(zip(made, result if isinstance(result, (list, tuple)) else (result,), strict=False))
            for name in last_use.get(made[0], ()):
                if name not in constants:
                    values.pop(name, None)
        return [values[name].contiguous() for name in outputs]

    return run


def _last_uses(nodes: Any, outputs: list[str]) -> dict[str, list[str]]:
    """For each node, by its first output, the values that nothing reads after it."""
    last: dict[str, str] = {}
    for node in nodes:
        for name in node.input:
            last[name] = node.output[0]
    uses: dict[str, list[str]] = {}
    for name, reader in last.items():
        if name not in outputs:
            uses.setdefault(reader, []).append(name)
    return uses


def _ints(tensor: Any) -> list[int]:
    return [int(value) for value in tensor.tolist()]


def _symmetric(pads: list[int]) -> list[int]:
    half = len(pads) // 2
    if pads[:half] != pads[half:]:
        raise UnsupportedOperatorError(
            f"pads={pads}: torch pads both sides of an axis alike", hint="compare with other engines"
        )
    return pads[:half]


def _conv(torch: Any, a: Attributes, x: list[Any]) -> Any:
    rank = x[0].dim() - 2
    function = (torch.conv1d, torch.conv2d, torch.conv3d)[rank - 1]
    ones = [1] * rank
    return function(
        x[0],
        x[1],
        x[2] if len(x) > 2 else None,
        a.get("strides", ones),
        _symmetric(list(a.get("pads", [0] * (2 * rank)))),
        a.get("dilations", ones),
        a.get("group", 1),
    )


def _batch_norm(torch: Any, a: Attributes, x: list[Any]) -> Any:
    return torch.nn.functional.batch_norm(x[0], x[3], x[4], x[1], x[2], False, 0.0, a.get("epsilon", 1e-5))


def _max_pool(torch: Any, a: Attributes, x: list[Any]) -> Any:
    rank = x[0].dim() - 2
    functional = torch.nn.functional
    function = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[rank - 1]
    pads = _symmetric(list(a.get("pads", [0] * (2 * rank))))
    return function(x[0], list(a["kernel_shape"]), list(a.get("strides", [1] * rank)), pads)


def _gemm(torch: Any, a: Attributes, x: list[Any]) -> Any:
    left = x[0].t() if a.get("transA") else x[0]
    right = x[1].t() if a.get("transB") else x[1]
    alpha, beta = a.get("alpha", 1.0), a.get("beta", 1.0)
    if len(x) > 2 and x[2] is not None:
        return torch.addmm(x[2], left, right, beta=beta, alpha=alpha)
    return alpha * torch.mm(left, right)


def _clip(torch: Any, a: Attributes, x: list[Any]) -> Any:
    low = x[1] if len(x) > 1 and x[1] is not None else a.get("min")
    high = x[2] if len(x) > 2 and x[2] is not None else a.get("max")
    return torch.clamp(x[0], None if low is None else float(low), None if high is None else float(high))


def _layer_norm(torch: Any, a: Attributes, x: list[Any]) -> Any:
    axis = a.get("axis", -1) % x[0].dim()
    bias = x[2] if len(x) > 2 else None
    return torch.nn.functional.layer_norm(x[0], x[0].shape[axis:], x[1], bias, a.get("epsilon", 1e-5))


def _reshape(torch: Any, a: Attributes, x: list[Any]) -> Any:
    sizes = [x[0].shape[at] if size == 0 else size for at, size in enumerate(_ints(x[1]))]
    return x[0].reshape(sizes)


def _axes(a: Attributes, x: list[Any]) -> list[int] | None:
    if "axes" in a:
        return list(a["axes"])
    return _ints(x[1]) if len(x) > 1 and x[1] is not None else None


def _reduce_mean(torch: Any, a: Attributes, x: list[Any]) -> Any:
    axes = _axes(a, x)
    every = list(range(x[0].dim())) if axes is None else axes
    return x[0].mean(dim=every, keepdim=bool(a.get("keepdims", 1)))


def _gather(torch: Any, a: Attributes, x: list[Any]) -> Any:
    axis = a.get("axis", 0) % x[0].dim()
    if axis == 0 and x[0].dim() == 2:
        return torch.nn.functional.embedding(x[1].long(), x[0])
    flat = torch.index_select(x[0], axis, x[1].long().reshape(-1))
    return flat.reshape([*x[0].shape[:axis], *x[1].shape, *x[0].shape[axis + 1 :]])


def _split(torch: Any, a: Attributes, x: list[Any]) -> Any:
    sizes = list(a["split"]) if "split" in a else _ints(x[1])
    return torch.split(x[0], sizes, dim=a.get("axis", 0))


def _slice(torch: Any, a: Attributes, x: list[Any]) -> Any:
    starts, ends = _ints(x[1]), _ints(x[2])
    axes = _ints(x[3]) if len(x) > 3 and x[3] is not None else list(range(len(starts)))
    steps = _ints(x[4]) if len(x) > 4 and x[4] is not None else [1] * len(starts)
    where = [slice(None)] * x[0].dim()
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        where[axis] = slice(start, end, step)
    return x[0][tuple(where)]


def _gelu(torch: Any, a: Attributes, x: list[Any]) -> Any:
    kind = a.get("approximate", b"none")
    return torch.nn.functional.gelu(x[0], approximate=kind.decode() if isinstance(kind, bytes) else kind)


def _unsqueeze(torch: Any, a: Attributes, x: list[Any]) -> Any:
    result = x[0]
    for axis in sorted(_axes(a, x) or []):
        result = result.unsqueeze(axis)
    return result


_HANDLERS: Final[Mapping[str, Handler]] = MappingProxyType(
    {
        "Add": lambda t, a, x: x[0] + x[1],
        "BatchNormalization": _batch_norm,
        "Cast": lambda t, a, x: x[0].to({1: t.float32, 6: t.int32, 7: t.int64, 9: t.bool}[a["to"]]),
        "Clip": _clip,
        "Concat": lambda t, a, x: t.cat(x, dim=a["axis"]),
        "Conv": _conv,
        "Div": lambda t, a, x: x[0] / x[1],
        "Erf": lambda t, a, x: t.erf(x[0]),
        "Flatten": lambda t, a, x: x[0].flatten(a.get("axis", 1)),
        "Gather": _gather,
        "Gelu": _gelu,
        "Gemm": _gemm,
        "GlobalAveragePool": lambda t, a, x: x[0].mean(dim=list(range(2, x[0].dim())), keepdim=True),
        "Identity": lambda t, a, x: x[0],
        "LayerNormalization": _layer_norm,
        "MatMul": lambda t, a, x: t.matmul(x[0], x[1]),
        "MaxPool": _max_pool,
        "Mul": lambda t, a, x: x[0] * x[1],
        "Pow": lambda t, a, x: t.pow(x[0], x[1]),
        "ReduceMax": lambda t, a, x: t.amax(x[0], dim=_axes(a, x) or (), keepdim=bool(a.get("keepdims", 1))),
        "ReduceMean": _reduce_mean,
        "ReduceSum": lambda t, a, x: t.sum(x[0], dim=_axes(a, x) or (), keepdim=bool(a.get("keepdims", 1))),
        "Relu": lambda t, a, x: t.relu(x[0]),
        "Reshape": _reshape,
        "Slice": _slice,
        "Softmax": lambda t, a, x: t.softmax(x[0], dim=a.get("axis", -1)),
        "Split": _split,
        "Sqrt": lambda t, a, x: t.sqrt(x[0]),
        "Sub": lambda t, a, x: x[0] - x[1],
        "Tanh": lambda t, a, x: t.tanh(x[0]),
        "Transpose": lambda t, a, x: x[0].permute(list(a["perm"])),
        "Unsqueeze": _unsqueeze,
        "Where": lambda t, a, x: t.where(x[0], x[1], x[2]),
    }
)
