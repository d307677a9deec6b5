"""Sizes that models leave open: what they are called, and what callers say of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from onnx import GraphProto, ValueInfoProto

from tilewright.frontend.onnx.tensors import DTYPES, type_name
from tilewright.graph import Array, Dim, Limits, ListType, TensorType, type_of
from tilewright.ir import MAX_RANK, Size, is_open
from tilewright.support import (
    InputError,
    ModelError,
    ResourceError,
    UnsupportedOperatorError,
    quoted,
    suggestion,
    whole_number,
)

Shapes = Mapping[str, Sequence[int] | int]
#: What exporters write in place of a name; it is the same for sizes that have nothing in common.
_NO_NAMES: Final = frozenset({"", "?", "-1", "None"})


def checked_shapes(shapes: object) -> dict[str, tuple[int, ...] | int]:
    """The shapes and sizes that a caller gives, by name. Raises InputError for what is none."""
    given = {} if shapes is None else shapes
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InputError("shapes= must map names to shapes", hint="shapes={'x': (1, 3, 224, 224)}")
    return {
        name: tuple(_size(name, size) for size in shape)
        if isinstance(shape, Iterable) and not isinstance(shape, str)
        else _size(name, shape)
        for name, shape in given.items()
    }


def _size(name: str, given: object) -> int:
    size = whole_number(given)
    if size is None or size < 0:
        raise InputError(f"shapes= gives {quoted(name)} the size {given!r}, no whole number from 0")
    return size


def declared_type(value: ValueInfoProto) -> TensorType:
    """The type an input or output is declared with; unknown sizes get their names, or `name[axis]`.

    Negative sizes are unknown ones, and "?" is no name: exporters write it wherever they know nothing.

    Raises UnsupportedOperatorError for what is no dense tensor of a known element type.
    """
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        found = (kind or "no type").removesuffix("_type").replace("_", " ")
        hint = "dynamic={} takes lists" if kind in ("sequence_type", "optional_type") else None
        raise UnsupportedOperatorError(f"{quoted(value.name)} is not a dense tensor but: {found}", hint=hint)
    tensor = value.type.tensor_type
    dtype = _element_type(value, tensor.elem_type)
    if len(tensor.shape.dim) > MAX_RANK:
        dimensions = f"{len(tensor.shape.dim)} dimensions; a tensor has at most {MAX_RANK}"
        raise ModelError(f"{quoted(value.name)} has {dimensions}")
    dims: list[Dim] = []
    for axis, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            dims.append(dim.dim_value)
        else:
            dims.append(f"{value.name}[{axis}]" if dim.dim_param in _NO_NAMES else dim.dim_param)
    return TensorType(dtype, tuple(dims))


def _element_type(value: ValueInfoProto, given: int) -> str:
    dtype = DTYPES.get(given)
    if dtype is None:
        raise UnsupportedOperatorError(
            f"{quoted(value.name)} has elements of {type_name(given)}, which cannot be computed with"
        )
    return dtype


def declared_list(value: ValueInfoProto) -> ListType | None:
    """The type of an input or output that is a list of tensors, or may be absent; None for a tensor.

    Raises UnsupportedOperatorError for other values.
    """
    kind = value.type
    optional = kind.HasField("optional_type")
    kind = kind.optional_type.elem_type if optional else kind
    many = kind.HasField("sequence_type")
    kind = kind.sequence_type.elem_type if many else kind
    if not (optional or many):
        return None
    if not kind.HasField("tensor_type"):
        raise UnsupportedOperatorError(f"{quoted(value.name)} holds what are no dense tensors")
    dims = [dim.dim_value if dim.HasField("dim_value") else "?" for dim in kind.tensor_type.shape.dim]
    shape = tuple(dims) if kind.tensor_type.HasField("shape") else None
    return ListType(_element_type(value, kind.tensor_type.elem_type), shape, many, optional)


def input_types(
    graph: GraphProto,
    weights: Collection[str],
    shapes: Mapping[str, tuple[int, ...] | int],
    fixed: Mapping[str, Array],
    limits: Limits,
) -> dict[str, TensorType]:
    """The types of the inputs that are given at run time, without ``weights``. Every size is known then."""
    # Weights are listed as inputs by old models, and in the skeleton.
    values = [value for value in graph.input if value.name not in weights]
    names = [value.name for value in values]
    for value in values:
        # exporters write -1 for a size that has no name
        if any(dim.dim_value < -1 for dim in value.type.tensor_type.shape.dim):
            raise ModelError(f"the input {quoted(value.name)} has a negative size")
    dims = {dim for value in values for dim in declared_type(value).shape if isinstance(dim, str)}
    no_names = {text for value in values for text in _written(value)}
    whole = [name for name, given in shapes.items() if not isinstance(given, int | Size)]
    by_name = [name for name in shapes if name not in whole and name not in no_names]
    _check_keys(whole, names, "shapes= names the input")
    _check_keys(by_name, dims, "shapes= names the unknown size")
    _check_keys(fixed, names, "constants= names the input")
    sizes = known_sizes(values, shapes, fixed)
    types: dict[str, TensorType] = {}
    unknown: list[str] = []
    examples: dict[str, str] = {}
    for value in values:
        given = shapes.get(value.name)
        if value.name in fixed:
            _check_fixed(value, fixed[value.name])
            continue
        type_ = _settled(value, None if isinstance(given, int | Size) else given, sizes, unknown, examples)
        if type_.is_static:
            if not is_open(type_.nbytes) and type_.nbytes > limits.tensor_bytes:
                raise ResourceError(
                    f"the input {quoted(value.name)}, {type_}, is larger than any tensor may be"
                )
            types[value.name] = type_
    if unknown:
        raise InputError(
            "the model leaves sizes open: " + "; ".join(unknown),
            hint=_how_to_settle(examples),
        )
    return types


def _written(value: ValueInfoProto) -> list[str]:
    """What the file has for each size of an input: a number, a name, or what is none."""
    return [dim.dim_param or str(dim.dim_value) for dim in value.type.tensor_type.shape.dim]


def known_sizes(
    values: Iterable[ValueInfoProto],
    shapes: Mapping[str, Sequence[int] | int],
    fixed: Mapping[str, Array],
) -> dict[str, int]:
    """The sizes of which something is said: by name, or by the whole shapes of inputs where these agree.

    What is no name ("?", -1) stands for all sizes that are written so.
    """
    known: dict[str, int] = {}
    said: dict[str, set[int]] = {}
    for value in values:
        given = fixed[value.name].shape if value.name in fixed else shapes.get(value.name)
        type_ = declared_type(value)
        for axis, (dim, text) in enumerate(zip(type_.shape, _written(value), strict=True)):
            if not isinstance(dim, str):
                continue
            size = shapes.get(dim, shapes.get(text))
            if isinstance(size, int | Size):
                known[dim] = size
            elif isinstance(given, tuple) and len(given) == type_.rank:
                said.setdefault(dim, set()).add(given[axis])
    return {name: min(sizes) for name, sizes in said.items() if len(sizes) == 1} | known


def _how_to_settle(examples: Mapping[str, str]) -> str:
    """What to write for the sizes that are open, in Python and on the command line."""
    python = ", ".join(f"{name!r}: {example}" for name, example in examples.items())
    options = " ".join(f"--shape {name}={example.strip('()')}" for name, example in examples.items())
    return f"give them, for example shapes={{{python}}}, on the command line {options}"


def _check_keys(given: Iterable[str], known: Iterable[str], what: str) -> None:
    names = sorted(known)
    for name in given:
        if name not in names:
            has = ", ".join(quoted(other) for other in names) or "none"
            hint = suggestion(name, names)
            raise InputError(f"{what} {quoted(name)}, which the model does not have; it has {has}", hint=hint)


def _settled(
    value: ValueInfoProto,
    given: tuple[int, ...] | None,
    sizes: Mapping[str, int],
    unknown: list[str],
    examples: dict[str, str],
) -> TensorType:
    """The input's type with unknown sizes filled in; what stays unknown is noted, with an example of each."""
    type_ = declared_type(value)
    has_shape = value.type.tensor_type.HasField("shape")
    name = quoted(value.name)
    if given is not None:
        fits = not has_shape or (
            len(given) == type_.rank
            and all(
                not isinstance(dim, int) or dim == size for dim, size in zip(type_.shape, given, strict=True)
            )
        )
        if not fits:
            raise InputError(f"the shape {list(given)} does not fit the input {name}, which is {type_}")
        return replace(type_, shape=given)
    if not has_shape:
        unknown.append(f"{name}: its whole shape")
        examples[value.name] = "(1,3,224,224)"
        return replace(type_, shape=("?",))
    shape = tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in type_.shape)
    missing = [f"axis {axis} ({quoted(dim)})" for axis, dim in enumerate(shape) if isinstance(dim, str)]
    if missing:
        unknown.append(f"{name}: {', '.join(missing)}")
        examples.update({dim: "1" for dim in shape if isinstance(dim, str)})
    return replace(type_, shape=shape)


def matches(shape: Sequence[Dim], declared: Sequence[Dim]) -> bool:
    """Whether a shape has the declared rank and the sizes that are declared as numbers."""
    return len(shape) == len(declared) and all(
        not isinstance(wanted, int) or wanted == size for wanted, size in zip(declared, shape, strict=True)
    )


def _check_fixed(value: ValueInfoProto, array: Array) -> None:
    declared, found = declared_type(value), type_of(array)
    any_shape = not value.type.tensor_type.HasField("shape")
    if found.dtype != declared.dtype or not (any_shape or matches(found.shape, declared.shape)):
        raise InputError(f"constants= gives {found} for the input {quoted(value.name)}, which is {declared}")
