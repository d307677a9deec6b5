"""Calls of functions replaced by their bodies: the model's own, and composed operators of the standard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto, helper, inliner

from tilewright.frontend.onnx.load import one_line
from tilewright.frontend.onnx.tensors import DTYPES
from tilewright.graph import TensorType
from tilewright.support import ModelError

_ELEM_TYPES: Final[Mapping[str, int]] = MappingProxyType({name: number for number, name in DTYPES.items()})


def versions_of(model: ModelProto | FunctionProto) -> dict[str, int]:
    """The version of each domain's operator set."""
    return {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in model.opset_import}


def inline_local_functions(model: ModelProto, label: str) -> ModelProto:
    """The model without calls of its own functions. Raises ModelError where the onnx package refuses."""
    if not model.functions:
        return model
    try:
        return inliner.inline_local_functions(model)
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"the functions of {label} cannot be expanded: {one_line(str(error))}") from None


def body_of(
    proto: NodeProto, domain: str, version: int, types: Sequence[TensorType | None]
) -> FunctionProto | None:
    """The body that the standard gives a composed operator for inputs of these types; None without one."""
    try:
        schema = onnx.defs.get_schema(proto.op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    # The package's type stubs lack what follows; it gives serialised functions.
    plain: bool = getattr(schema, "has_function")  # noqa: B009
    dependent: bool = getattr(schema, "has_context_dependent_function")  # noqa: B009
    body = FunctionProto()
    try:
        if plain:
            versions = [v for v in getattr(schema, "function_opset_versions") if v <= version]  # noqa: B009
            if versions:
                find = getattr(schema, "get_function_with_opset_version")  # noqa: B009
                body.ParseFromString(find(max(versions)))
        if dependent and not body.node:
            name = "context_dependent_function_opset_versions"
            versions = [v for v in getattr(schema, name) if v <= version]
            if versions:
                make = getattr(schema, "get_context_dependent_function_with_opset_version")  # noqa: B009
                call = _with_defaults(proto, schema).SerializeToString()
                body.ParseFromString(make(max(versions), call, [_type_proto(t) for t in types]))
    except (RuntimeError, ValueError):
        return None
    return body if body.node else None


def _type_proto(type_: TensorType | None) -> bytes:
    if type_ is None:
        return bytes(TypeProto().SerializeToString())
    made = helper.make_tensor_type_proto(_ELEM_TYPES[type_.dtype], list(type_.shape))
    return bytes(made.SerializeToString())


def _with_defaults(proto: NodeProto, schema: onnx.defs.OpSchema) -> NodeProto:
    """The node with the attributes that it leaves to their defaults."""
    full = NodeProto()
    full.CopyFrom(proto)
    given = {attribute.name for attribute in proto.attribute}
    for name, declared in schema.attributes.items():
        if name not in given and declared.default_value.name:
            full.attribute.append(declared.default_value)
    return full


def instantiated(
    body: FunctionProto, proto: NodeProto, domain: str, version: int, prefix: str
) -> list[NodeProto]:
    """The body's nodes with the call's inputs, outputs and attributes; inner values get the prefix."""
    schema = onnx.defs.get_schema(proto.op_type, version, domain)
    attributes = {attribute.name: attribute for attribute in _with_defaults(proto, schema).attribute}
    for default in body.attribute_proto:
        attributes.setdefault(default.name, default)
    names = {"": ""}
    names.update(
        {formal: proto.input[at] if at < len(proto.input) else "" for at, formal in enumerate(body.input)}
    )
    names.update(
        {
            formal: (proto.output[at] if at < len(proto.output) else "") or f"{prefix}{formal}"
            for at, formal in enumerate(body.output)
        }
    )
    return [_copied(inner, names, attributes, prefix, at) for at, inner in enumerate(body.node)]


def _copied(
    inner: NodeProto,
    names: dict[str, str],
    attributes: Mapping[str, AttributeProto],
    prefix: str,
    at: int,
) -> NodeProto:
    """A node of a body under new names; values met for the first time are entered into `names`."""
    node = NodeProto()
    node.CopyFrom(inner)
    node.name = f"{prefix}{inner.name or at}"
    for values in (node.input, node.output):
        for place, value in enumerate(values):
            values[place] = names.setdefault(value, f"{prefix}{value}")
    del node.attribute[:]
    for attribute in inner.attribute:
        source = attribute if not attribute.ref_attr_name else attributes.get(attribute.ref_attr_name)
        if source is None:
            continue
        bound = node.attribute.add()
        bound.CopyFrom(source)
        bound.name = attribute.name
        if source is attribute and attribute.HasField("g"):
            _rename_graph(bound.g, names, attributes, prefix)
    return node


def _rename_graph(
    graph: GraphProto, names: dict[str, str], attributes: Mapping[str, AttributeProto], prefix: str
) -> None:
    """Rename the values of a graph in an attribute, in place."""
    for owner in (*graph.initializer, *graph.input):
        owner.name = names.setdefault(owner.name, f"{prefix}{owner.name}")
    nodes = [_copied(inner, names, attributes, prefix, at) for at, inner in enumerate(graph.node)]
    del graph.node[:]
    graph.node.extend(nodes)
    for value in graph.output:
        value.name = names.setdefault(value.name, f"{prefix}{value.name}")
