"""Strings of tabular models: numbers inside of a model, texts at its border.

Every text that a file holds has a number, and operators that move, compare and look up texts do so with
numbers. Texts of inputs that the file does not hold are all alike: none of its texts. So what can tell them
apart, or returns them, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from onnx import AttributeProto, NodeProto, TensorProto, ValueInfoProto, helper

from tilewright.frontend.onnx.load import LoadedModel
from tilewright.graph import ML
from tilewright.support import NodeLocation, UnsupportedOperatorError, quoted

#: Lists of texts that are values, by operator: the lists of numbers in their place.
_LISTS: Final = {
    "classlabels_strings": {"TreeEnsembleClassifier": "classlabels_int64s", "": "classlabels_ints"},
    "keys_strings": {"": "keys_int64s"},
    "values_strings": {"": "values_int64s"},
    "cats_strings": {"OneHotEncoder": "cats_int64s"},
}
#: Operators whose results are texts where their first input is: they only move elements.
_MOVING: Final = frozenset(
    {"Identity", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Gather", "Concat"}
    | {"GatherElements", "GatherND", "Split", "Expand", "Tile", "ArrayFeatureExtractor", "Cast"}
)
#: Operators that look texts up.
_READING: Final = frozenset({"LabelEncoder", "OneHotEncoder", "CategoryMapper", "Equal"})


@dataclass(slots=True)
class Strings:
    """The texts of a model in the order of their numbers, the empty one first, and where there are texts."""

    numbers: dict[str, int] = field(default_factory=lambda: {"": 0})
    values: set[str] = field(default_factory=set)
    foreign: set[str] = field(default_factory=set)
    """Values that may hold texts which the file does not have."""
    maps: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    """Outputs of ZipMap, and their keys."""

    def number(self, text: bytes | str) -> int:
        """The number of a text."""
        known = text if isinstance(text, str) else text.decode("utf-8", "replace")
        return self.numbers.setdefault(known, len(self.numbers))

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts, by their numbers."""
        return tuple(self.numbers)


def with_numbers(loaded: LoadedModel) -> tuple[LoadedModel, Strings]:
    """The model with numbers in place of texts; as it is where it has neither texts nor maps.

    Raises UnsupportedOperatorError for nodes that tell texts apart which the file does not have.
    """
    graph, made = loaded.skeleton.graph, Strings()
    every = [*graph.input, *loaded.outputs]
    if not (
        any(_is_text(value) for value in every)
        or any(node.domain == ML for node in graph.node)
        or any(tensor.data_type == TensorProto.STRING for tensor in loaded.weights)
    ):
        return loaded, made
    weights = tuple(_numbered(tensor, made) for tensor in loaded.weights)
    made.foreign = {value.name for value in graph.input if _is_text(value)} - made.values
    made.values |= made.foreign
    for tensor in graph.initializer:
        tensor.CopyFrom(_numbered(tensor, made))
    for value in (*every, *graph.output):
        if _is_text(value):
            value.type.tensor_type.elem_type = TensorProto.INT64
    for node in graph.node:
        _number_node(node, made)
    for value in loaded.outputs:
        if value.name in made.foreign:
            what = f"returns {quoted(value.name)}, whose texts are those of an input"
            raise UnsupportedOperatorError(f"the model {what}")
    return replace(loaded, weights=weights), made


def _is_text(value: ValueInfoProto) -> bool:
    return value.type.tensor_type.elem_type == TensorProto.STRING


def _numbered(tensor: TensorProto, made: Strings) -> TensorProto:
    if tensor.data_type != TensorProto.STRING:
        return tensor
    made.values.add(tensor.name)
    numbers = [made.number(text) for text in tensor.string_data]
    return helper.make_tensor(tensor.name, TensorProto.INT64, tuple(tensor.dims), numbers)


def _number_node(node: NodeProto, made: Strings) -> None:
    """Put numbers in place of a node's texts, and note which of its results are texts."""
    read = [name for name in node.input if name in made.values]
    foreign = [name for name in read if name in made.foreign]
    if (read and node.op_type not in _MOVING | _READING) or (node.op_type == "Equal" and len(foreign) > 1):
        location = NodeLocation(node.name or node.output[0], node.op_type)
        reason = f"{quoted(read[0])} holds texts, which it does not move or look up"
        raise UnsupportedOperatorError.of([(location, reason)])
    texts = bool(read) and node.op_type in _MOVING
    for attribute in list(node.attribute):
        if attribute.type == AttributeProto.TENSOR and attribute.t.data_type == TensorProto.STRING:
            texts = texts or attribute.name in ("value", "values_tensor")
            attribute.t.CopyFrom(_numbered(attribute.t, made))
        elif attribute.name == "value_strings" and node.op_type == "Constant":
            _replace(node, attribute, "value_ints", made, attribute.strings)
            texts = True
        elif node.domain == ML and attribute.name in _LISTS and attribute.strings:
            names = _LISTS[attribute.name]
            if node.op_type == "ZipMap":
                continue
            name = names.get(node.op_type, names.get(""))
            if name is not None:
                _replace(node, attribute, name, made, attribute.strings)
                texts = texts or attribute.name in ("classlabels_strings", "values_strings")
        elif node.op_type == "LabelEncoder" and attribute.name == "default_string":
            number = made.number(attribute.s)
            node.attribute.remove(attribute)
            node.attribute.append(helper.make_attribute("default_int64", number))
    if node.op_type == "LabelEncoder" and texts and not _has(node, "default_int64", "default_tensor"):
        node.attribute.append(helper.make_attribute("default_int64", made.number("_Unused")))
    if node.op_type == "Cast" and texts and _is_to_text(node):
        node.op_type = "Identity"
        del node.attribute[:]
    if node.op_type == "ZipMap":
        made.maps[node.output[0]] = _keys(node)
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
    if texts:
        # the first output of a classifier is its labels
        results = node.output[:1] if node.domain == ML else node.output
        made.values.update(results)
        if foreign and node.op_type in _MOVING:
            made.foreign.update(results)


def _replace(
    node: NodeProto, attribute: AttributeProto, name: str, made: Strings, texts: Iterable[bytes]
) -> None:
    numbers = [made.number(text) for text in texts]
    node.attribute.remove(attribute)
    node.attribute.append(helper.make_attribute(name, numbers))


def _has(node: NodeProto, *names: str) -> bool:
    return any(attribute.name in names for attribute in node.attribute)


def _is_to_text(node: NodeProto) -> bool:
    return any(a.name == "to" and a.i == TensorProto.STRING for a in node.attribute)


def _keys(node: NodeProto) -> tuple[int | str, ...]:
    for attribute in node.attribute:
        if attribute.strings:
            return tuple(text.decode("utf-8", "replace") for text in attribute.strings)
        if attribute.ints:
            return tuple(attribute.ints)
    return ()
