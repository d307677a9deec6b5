"""From an ONNX model to a typed graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

from tilewright.frontend.onnx.functions import body_of, inline_local_functions, instantiated, versions_of
from tilewright.frontend.onnx.load import MAX_NODES, LoadedModel, Source, load
from tilewright.frontend.onnx.sizes import (
    Shapes,
    checked_shapes,
    declared_list,
    declared_type,
    input_types,
    known_sizes,
    matches,
)
from tilewright.frontend.onnx.strings import Strings, with_numbers
from tilewright.frontend.onnx.tensors import DTYPES, tensor_array, type_name
from tilewright.graph import (
    Array,
    Attribute,
    Counted,
    Graph,
    Limits,
    ListType,
    Node,
    Subgraph,
    TensorType,
    typed_graph,
)
from tilewright.ir import Index, dtype_of
from tilewright.support import (
    InputError,
    ModelError,
    NodeLocation,
    ResourceError,
    UnsupportedOperatorError,
    get_logger,
    quoted,
)

_log = get_logger(__name__)

#: Attributes that name an element type by its number in the format.
_TYPE_ATTRIBUTES: Final = frozenset({"to", "dtype", "output_dtype"})


def import_onnx(
    source: Source,
    *,
    shapes: Shapes | None = None,
    constants: Mapping[str, Array] | None = None,
    limits: Limits | None = None,
) -> Graph:
    """Import a model: a path, the bytes of a file, or a `ModelProto`.

    `shapes` settles sizes that the model leaves open: an input's name with its whole shape, or the name of an
    unknown size with its value. `constants` fixes inputs to values known when compiling, such as the shape
    given to a Reshape. Raises ModelError, ResourceError or InputError naming the culprit, and
    UnsupportedOperatorError listing every node that cannot be compiled.
    """
    return read_onnx(source, limits=limits).graph(shapes, constants)


def read_onnx(source: Source, *, limits: Limits | None = None) -> ReadModel:
    """Read a model, whatever sizes it leaves open. Raises what :func:`import_onnx` raises for files."""
    limits = limits or Limits()
    loaded, strings = with_numbers(load(source))
    weights = _weights(loaded, limits)
    return ReadModel(loaded, weights, inline_local_functions(loaded.skeleton, loaded.label), limits, strings)


@dataclass(frozen=True, slots=True, eq=False)
class ReadModel:
    """A model as its file has it: graphs of it at any sizes share its weights."""

    loaded: LoadedModel
    weights: Mapping[str, Array]
    model: ModelProto
    limits: Limits
    strings: Strings

    @property
    def name(self) -> str:
        """What the file calls it."""
        return str(self.model.graph.name)

    def kinds(self) -> dict[str, TensorType | ListType]:
        """The inputs that are given at run time, as the file declares them; open sizes are names."""
        values = (value for value in self.model.graph.input if value.name not in self.weights)
        return {value.name: declared_list(value) or declared_type(value) for value in values}

    def inputs(self) -> dict[str, TensorType]:
        """Those that are tensors."""
        return {name: kind for name, kind in self.kinds().items() if isinstance(kind, TensorType)}

    def sizes(self, shapes: Shapes, constants: Mapping[str, Array]) -> tuple[dict[str, int], list[str]]:
        """What is said of sizes that the file names, and those of which nothing is."""
        values = [value for value in self.model.graph.input if value.name not in self.weights]
        known = known_sizes(values, shapes, constants)
        others = [type_ for name, type_ in self.inputs().items() if name not in {*shapes, *constants}]
        dims = dict.fromkeys(dim for type_ in others for dim in type_.shape if isinstance(dim, str))
        return known, [dim for dim in dims if dim not in known]

    def graph(
        self,
        shapes: Shapes | None = None,
        constants: Mapping[str, Array] | None = None,
        open_sizes: Mapping[str, int] | None = None,
        said: Mapping[str, Index] = MappingProxyType({}),
    ) -> Graph:
        """The typed graph, as :func:`import_onnx` says; ``open_sizes`` are expressions of sizes of a run.

        With these, empty ones too, sizes may be what data says: ``counts`` of the graph, ``said`` those
        that are known to be something.
        """
        model, loaded, limits = self.model, self.loaded, self.limits
        declared = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
        fixed = {
            name: _as_declared(array, DTYPES.get(declared.get(name, 0)))
            for name, array in checked_constants(constants).items()
        }
        given = {**checked_shapes(shapes), **(open_sizes or {})}
        # without open sizes, lists are refused with the other inputs
        kinds = {} if open_sizes is None else self.kinds()
        lists = {name: kind for name, kind in kinds.items() if isinstance(kind, ListType)}
        inputs = input_types(model.graph, {*self.weights, *lists}, given, fixed, limits)
        reader = _Reader(versions_of(model), limits)
        nodes = reader.nodes(model.graph)
        graph = typed_graph(
            inputs,
            [value.name for value in model.graph.output],
            nodes,
            {**reader.constants, **self.weights, **fixed},
            name=model.graph.name,
            limits=limits,
            refused=reader.refused,
            expand=reader.expand,
            counted=None if open_sizes is None else Counted(said),
            lists=lists,
        )
        _check_outputs(loaded.outputs, graph)
        shown = dict.fromkeys((*inputs, *graph.output_names))
        texts = {name: self.strings.texts for name in shown if name in self.strings.values}
        maps = {name: keys for name, keys in self.strings.maps.items() if name in graph.output_names}
        if open_sizes is not None and (texts or maps):
            name = next(iter({**texts, **maps}))
            raise UnsupportedOperatorError(
                f"{quoted(name)} holds texts or maps, which models with open sizes do not have",
                hint="settle the sizes by shapes=",
            )
        return replace(graph, texts=texts, maps=maps)


def checked_constants(constants: object) -> dict[str, Array]:
    """Values given to inputs when compiling, as arrays. Raises InputError for what is none."""
    given = {} if constants is None else constants
    if not isinstance(given, Mapping):
        raise InputError("constants= must map names to arrays", hint="constants={'axes': array}")
    try:
        fixed = {name: np.asarray(value) for name, value in given.items()}
    except ValueError as error:
        raise InputError(f"constants= gives what cannot be made an array: {error}") from None
    for name, array in fixed.items():
        try:
            dtype_of(array.dtype)
        except KeyError:
            raise InputError(f"constants= gives {quoted(str(name))} elements of {array.dtype.name}") from None
    return fixed


def _as_declared(array: Array, dtype: str | None) -> Array:
    """Bytes given for an input of a small type, as that."""
    small = dtype is not None and dtype_of(dtype).small and array.dtype == dtype_of(dtype).held.numpy
    return array.astype(dtype_of(str(dtype)).numpy) if small else array


def _weights(loaded: LoadedModel, limits: Limits) -> dict[str, Array]:
    weights: dict[str, Array] = {}
    refused: list[tuple[NodeLocation, str]] = []
    if loaded.skeleton.graph.sparse_initializer:
        name = loaded.skeleton.graph.sparse_initializer[0].values.name
        raise UnsupportedOperatorError(f"the sparse initializer {quoted(name)} is not supported")
    for tensor in loaded.weights:
        try:
            weights[tensor.name] = tensor_array(tensor, loaded.folder, limits.tensor_bytes, "initializer")
        except UnsupportedOperatorError as error:
            refused.append((NodeLocation(tensor.name, "initializer"), error.what))
    if refused:
        raise UnsupportedOperatorError.of(refused)
    return weights


def _check_outputs(outputs: Sequence[ValueInfoProto], typed: Graph) -> None:
    """Compare what the model declares of its outputs with what they are.

    Exporters freeze sizes that were examples: another shape than the declared one is a warning.
    """
    for value, made in zip(outputs, typed.outputs, strict=False):
        if made in typed.lists:
            continue
        found = typed.types[made]
        if value.type.WhichOneof("value") != "tensor_type" or not value.type.tensor_type.elem_type:
            continue
        declared = declared_type(value)
        problem = f"the output {quoted(value.name)} is declared as {declared}, but is {found}"
        if declared.dtype != found.dtype:
            raise ModelError(problem)
        if value.type.tensor_type.HasField("shape") and not matches(found.shape, declared.shape):
            _log.warning("%s", problem)


@dataclass(slots=True)
class _Reader:
    """Turns the format's nodes into the graph's.

    `refused` notes, by a node's origin, what cannot be read; `protos` keeps the originals.
    """

    versions: Mapping[str, int]
    limits: Limits
    constants: dict[str, Array] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    protos: dict[str, NodeProto] = field(default_factory=dict)
    expanded: int = 0

    def nodes(self, graph: GraphProto) -> list[Node]:
        """The nodes of a graph, not yet in any order."""
        return [self.node(proto, self.versions) for proto in graph.node]

    def expand(self, node: Node, types: Sequence[TensorType | None]) -> list[Node] | None:
        """The nodes that the standard composes an operator of; None if it has no such definition."""
        proto = self.protos.get(node.origin)
        body = body_of(proto, node.domain, node.version, types) if proto is not None else None
        if proto is None or body is None:
            return None
        if len(self.protos) > MAX_NODES:
            raise ResourceError(f"the model expands to more than {MAX_NODES} nodes", where=node.location)
        self.expanded += 1
        prefix = f"{node.origin}/{node.op}.{self.expanded}/"
        call = NodeProto()
        call.CopyFrom(proto)
        # A copy of the node, in a loop unrolled say, has other values.
        call.input[:], call.output[:] = node.inputs, node.outputs
        inner = instantiated(body, call, node.domain, node.version, prefix)
        return [self.node(made, versions_of(body)) for made in inner]

    def node(self, proto: NodeProto, versions: Mapping[str, int]) -> Node:
        """One node."""
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        origin = next((value for value in proto.output if value), "")
        if origin in self.protos:
            # of another graph, whose values may have the same names
            origin = f"{origin}/{len(self.protos)}"
        node = Node(
            op=proto.op_type,
            inputs=_trimmed(proto.input),
            outputs=_trimmed(proto.output),
            name=proto.name,
            domain=domain,
            version=versions.get(domain, 1),
            origin=origin,
        )
        self.protos[node.origin] = proto
        attributes: dict[str, Attribute] = {}
        for attribute in proto.attribute:
            try:
                attributes[attribute.name] = self._attribute(attribute)
            except UnsupportedOperatorError as error:
                self.refused.setdefault(node.origin, error.what)
            except ModelError as error:
                raise ModelError(error.what, where=node.location, hint=error.hint) from None
        return replace(node, attributes=attributes)

    def _attribute(self, attribute: AttributeProto) -> Attribute:
        name = f"the attribute {quoted(attribute.name)}"
        match attribute.type:
            case AttributeProto.FLOAT:
                return float(attribute.f)
            case AttributeProto.INT:
                if attribute.name in _TYPE_ATTRIBUTES:
                    if attribute.i not in DTYPES:
                        raise UnsupportedOperatorError(
                            f"{name} asks for elements of {type_name(attribute.i)}"
                        )
                    return DTYPES[attribute.i]
                return int(attribute.i)
            case AttributeProto.STRING:
                return _decoded(attribute.s, name)
            case AttributeProto.TENSOR:
                return tensor_array(attribute.t, None, self.limits.tensor_bytes, "tensor of " + name)
            case AttributeProto.FLOATS:
                return tuple(float(value) for value in attribute.floats)
            case AttributeProto.INTS:
                return tuple(int(value) for value in attribute.ints)
            case AttributeProto.STRINGS:
                return tuple(_decoded(value, name) for value in attribute.strings)
            case AttributeProto.TYPE_PROTO:
                return ""  # what is absent is of the type of what may be there
            case AttributeProto.GRAPH:
                return self._subgraph(attribute.g)
            case _:
                kind = AttributeProto.AttributeType.Name(attribute.type).lower()
                raise UnsupportedOperatorError(f"{name} is of the kind {kind}")

    def _subgraph(self, graph: GraphProto) -> Subgraph:
        constants = {
            tensor.name: tensor_array(tensor, None, self.limits.tensor_bytes, "initializer")
            for tensor in graph.initializer
        }
        return Subgraph(
            inputs=tuple(value.name for value in graph.input),
            outputs=tuple(value.name for value in graph.output),
            nodes=tuple(self.nodes(graph)),
            constants=constants,
        )


def _trimmed(names: Sequence[str]) -> tuple[str, ...]:
    """The names without absent ones at the end."""
    kept = list(names)
    while kept and not kept[-1]:
        kept.pop()
    return tuple(kept)


def _decoded(text: bytes, name: str) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        raise ModelError(f"{name} is not valid text") from None
