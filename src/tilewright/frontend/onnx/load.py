"""Reading a model file without trusting it: what it is, how large it is, and whether it is well formed.

The weights are set apart before the onnx package's native code sees the model, so that checking and rewriting
a model never copies them. Each is checked before anything of its size is allocated.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

import onnx
from google.protobuf.message import DecodeError, Message
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper

from tilewright.frontend.onnx.tolerance import complete
from tilewright.graph import MICROSOFT
from tilewright.support import InputError, ModelError, ResourceError, format_bytes, quoted

Source: TypeAlias = str | os.PathLike[str] | bytes | ModelProto

#: The largest message that protocol buffers can hold; larger models keep their weights in files of their own.
MAX_FILE_BYTES: Final = (1 << 31) - 1

#: Initializers up to this size stay in the skeleton: shapes and axes that shape inference wants to see.
_SMALL_BYTES: Final = 4096

#: How deep graphs may be nested in attributes (`If` in `If`; protocol buffers hold about 32), and how many
#: nodes functions may expand to.
MAX_NESTING: Final = 28
MAX_NODES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A parsed model: `skeleton` holds everything but large weights, which are inputs there.

    `weights` are the initializers of the main graph, large and small. `outputs` are its outputs as they are
    declared; those of the skeleton may have types that only the checker asks for. `folder` is where external
    data may be.
    """

    skeleton: ModelProto
    outputs: tuple[ValueInfoProto, ...]
    weights: tuple[TensorProto, ...]
    folder: Path | None
    label: str


def load(source: Source) -> LoadedModel:
    """Read and check a model. Raises ModelError naming the file, ResourceError for one that is too large."""
    model, folder, label = _parse(source)
    if not model.graph.node and not model.graph.output:
        raise ModelError(f"{label} is not an ONNX model: it holds no graph")
    if not model.opset_import:
        raise ModelError(f"{label} does not say which operator set it uses")
    _check_text(model, label)
    _check_versions(model, label)
    _check_nesting(model.graph, label)
    _check_functions(model, label)
    skeleton = _skeleton(model)
    complete(skeleton)
    outputs, weights = tuple(model.graph.output), tuple(model.graph.initializer)
    loaded = LoadedModel(skeleton, outputs, weights, folder, label)
    _check(loaded)
    return loaded


#: Operators that onnxruntime knew in the standard's domain, and the version from which on the standard has
#: them.
_STANDARD_SINCE: Final[Mapping[str, int]] = MappingProxyType(
    {"LayerNormalization": 17, "SimplifiedLayerNormalization": 1 << 31}
)


def _parse(source: Source) -> tuple[ModelProto, Path | None, str]:
    if isinstance(source, ModelProto):
        return source, None, "the model"
    folder: Path | None = None
    if isinstance(source, bytes):
        data, label = source, "the model"
    elif not isinstance(source, str | os.PathLike):
        kind = type(source).__name__
        raise InputError(
            f"a model is the path of an ONNX file, its bytes or an onnx.ModelProto, not {kind}",
            hint="torch.onnx.export(module, example_inputs, 'model.onnx') writes a file of a torch module",
        )
    else:
        path = Path(source)
        label = quoted(str(path), limit=200)
        data = _read_file(path, label)
        folder = path.parent
    if not data:
        raise ModelError(f"{label} is empty")
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RecursionError) as error:
        raise ModelError(
            f"{label} is not an ONNX model, or is cut short: it cannot be parsed ({error})"
        ) from None
    return model, folder, label


def _read_file(path: Path, label: str) -> bytes:
    try:
        if not path.is_file():
            raise ModelError(
                f"there is no model file {label}" if not path.exists() else f"{label} is not a file"
            )
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ResourceError(
                f"{label} has {format_bytes(size)}; an ONNX file has at most {format_bytes(MAX_FILE_BYTES)}",
                hint="save the model with its weights as external data",
            )
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{label} cannot be read: {error.strerror}") from None


def _check_text(model: ModelProto, label: str) -> None:
    """Refuse names that are not UTF-8: every later reading of one would fail. Weights are not looked into."""
    pending: list[Message] = [model]
    while pending:
        for field, value in pending.pop().ListFields():
            values = value if _is_repeated(value) else [value]
            if field.message_type is not None:
                pending.extend(values)
            # Protocol buffers hand out bytes where a text is not UTF-8.
            elif field.type == field.TYPE_STRING and any(isinstance(text, bytes) for text in values):
                raise ModelError(f"{label} is not a valid ONNX model: it holds a name that is not UTF-8 text")


def _check_versions(model: ModelProto, label: str) -> None:
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version > onnx.defs.onnx_opset_version():
            raise ModelError(
                f"{label} uses version {entry.version} of the standard operators; "
                f"the newest known is {onnx.defs.onnx_opset_version()}",
                hint="export it for an older operator set",
            )


def _check_nesting(graph: GraphProto, label: str) -> None:
    level = [graph]
    for _ in range(MAX_NESTING):
        level = [
            inner
            for outer in level
            for node in outer.node
            for attribute in node.attribute
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs)
        ]
        if not level:
            return
    raise ResourceError(f"{label} nests graphs in graphs more than {MAX_NESTING} deep")


def _check_functions(model: ModelProto, label: str) -> None:
    """Refuse functions that call themselves, and those that would expand to too many nodes."""
    bodies = {(f.domain, f.name): [(n.domain, n.op_type) for n in f.node] for f in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def expanded(key: tuple[str, str]) -> int:
        """The nodes that a call stands for, by depth-first search with an explicit stack."""
        stack, entered = [key], set[tuple[str, str]]()
        while stack:
            top = stack[-1]
            if top in sizes:
                stack.pop()
                continue
            missing = [callee for callee in bodies[top] if callee in bodies and callee not in sizes]
            if missing:
                entered.add(top)
                if any(callee in entered for callee in missing):
                    raise ModelError(f"{label}: the function {quoted(top[1])} calls itself")
                stack += missing
                continue
            sizes[top] = sum(sizes.get(callee, 1) for callee in bodies[top])
            stack.pop()
        return sizes[key]

    total = 0
    for node in model.graph.node:
        key = (node.domain, node.op_type)
        total += expanded(key) if key in bodies else 1
    if total > MAX_NODES:
        raise ResourceError(f"{label} expands to {total} nodes; at most {MAX_NODES} are allowed")


def _skeleton(model: ModelProto) -> ModelProto:
    """A copy without large initializers: they become inputs of the same name and type."""
    light = ModelProto()
    graph = light.graph
    for source, target, skipped in ((model, light, "graph"), (model.graph, graph, "initializer")):
        for descriptor, value in source.ListFields():
            if descriptor.name == skipped:
                continue
            if _is_repeated(value):
                getattr(target, descriptor.name).extend(value)
            elif hasattr(value, "CopyFrom"):
                getattr(target, descriptor.name).CopyFrom(value)
            else:
                setattr(target, descriptor.name, value)
    declared = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if tensor.ByteSize() <= _SMALL_BYTES and tensor.data_location != TensorProto.EXTERNAL:
            graph.initializer.append(tensor)
        elif tensor.name not in declared:
            graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )
    _name_domains(light)
    return light


def _name_domains(model: ModelProto) -> None:
    """Give operators that onnxruntime files under the standard's domain the one that they belong to, in
    place.

    Its tools write SimplifiedLayerNormalization, which the standard never had, and LayerNormalization into
    models of operator sets that do not have it yet.
    """
    version = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    foreign = [
        node
        for node in model.graph.node
        if node.domain in ("", "ai.onnx") and version < _STANDARD_SINCE.get(node.op_type, 0)
    ]
    for node in foreign:
        node.domain = MICROSOFT
    if foreign and all(entry.domain != MICROSOFT for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))


def _is_repeated(value: object) -> bool:
    return hasattr(value, "extend")


def _check(loaded: LoadedModel) -> None:
    """The onnx package's own checks; its complaint becomes one line."""
    try:
        onnx.checker.check_model(loaded.skeleton)
    except (onnx.checker.ValidationError, ValueError) as error:
        raise ModelError(f"{loaded.label} is not a valid ONNX model: {one_line(str(error))}") from None


def one_line(text: str, limit: int = 300) -> str:
    """The first line of a message of a library, cut to a length, control characters escaped."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else text
    clean = "".join(c if c.isprintable() else repr(c)[1:-1] for c in first)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
