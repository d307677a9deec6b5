"""Lists of tensors, and values that may be absent, where a run has them: what is known, and nodes on them.

Runs do these nodes between plans, on arrays. Where compiling knows lengths and places, `sequences.py`
resolves them to names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

from tilewright.graph.control import Listing
from tilewright.graph.counting import MOST_COUNTED
from tilewright.graph.model import Dim, ListType, Node, TensorType
from tilewright.graph.registry import OWN
from tilewright.graph.run_numbers import RunNumbers
from tilewright.graph.size_values import is_sized
from tilewright.graph.unroll import VERSION
from tilewright.ir import Size, base_symbols
from tilewright.support import ModelError, quoted

Kind: TypeAlias = TensorType | ListType


def in_common(kinds: Sequence[Kind], inner: Collection[str] = ()) -> ListType | None:
    """What is a list, or absent, of any of some kinds; sizes of ``inner`` symbols are any. None: unlike."""
    first, *rest = (_listed(kind) if isinstance(kind, TensorType) else kind for kind in kinds)
    joined: ListType | None = replace(first, shape=_free(first.shape, inner))
    for each in rest:
        joined = None if joined is None else _joined(joined, replace(each, shape=_free(each.shape, inner)))
    return joined


def _listed(kind: TensorType) -> ListType:
    return ListType(kind.dtype, kind.shape, many=False)


def _free(shape: tuple[Dim, ...] | None, inner: Collection[str]) -> tuple[Dim, ...] | None:
    def moves(n: Dim) -> bool:
        return isinstance(n, Size) and not base_symbols(n.index).keys().isdisjoint(inner)

    return None if shape is None else tuple("?" if moves(n) else n for n in shape)


def _joined(a: ListType, b: ListType) -> ListType | None:
    optional = a.optional or b.optional
    if not (a.dtype and b.dtype):
        some = a if a.dtype else b
        return replace(some, many=a.many or b.many, optional=optional)
    if (a.dtype, a.many) != (b.dtype, b.many):
        return None
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return ListType(a.dtype, None, a.many, optional)
    shape = tuple(n if type(n) is type(m) and n == m else "?" for n, m in zip(a.shape, b.shape, strict=True))
    return ListType(a.dtype, shape, a.many, optional)


class Lists(RunNumbers):
    """A walk that meets lists of a run."""

    def _kind(self, value: str) -> Kind:
        """The type of a value."""
        return self.lists[value] if value in self.lists else self.types[value]

    def as_list(self, value: str) -> str:
        """The value, which runs have as a list from here on, too, if it is a sequence of known length."""
        if value in self.sequences and value not in self.lists:
            op = "SequenceConstruct" if self.sequences[value] else "SequenceEmpty"
            self._list(Node(op, self.sequences[value], (value,), version=VERSION))
        return value

    def _list(self, node: Node) -> None:
        """Take in a node on a list, which a run does."""
        inputs = [self.as_list(value) for value in node.inputs]
        inputs = [self._as_data(v) if is_sized(self.constants.get(v)) else v for v in inputs]
        attributes = {name: n for name, n in node.attributes.items() if isinstance(n, int)}
        (output,) = node.outputs[:1]
        try:
            made = _KINDS[node.op]([self._kind(v) for v in inputs if v], attributes)
        except ModelError as error:
            error.where = node.location
            raise
        if made is None:
            self._refuse(node, f"what its list {quoted(node.inputs[0])} holds is unlike, or of any rank")
            return
        if isinstance(made, ListType):
            self.lists[output] = made
        else:
            shape = [
                self._count(output, at, MOST_COUNTED, axis=True) if isinstance(n, str) else n
                for at, n in enumerate(made.shape)
            ]
            self.types[output] = TensorType(made.dtype, tuple(shape))
        self.controls[output] = Listing(node.op, attributes, str(node.location))
        given = {"inputs": ",".join(str(int(bool(v))) for v in inputs)}
        own = tuple(value for value in inputs if value)
        self.nodes.append(Node(node.op, own, (output,), given, node.name, OWN, 1, node.origin))


_Given: TypeAlias = Sequence[Kind]
_Attributes: TypeAlias = Mapping[str, int]


def _list_of(given: _Given) -> ListType:
    first = given[0] if given else None
    if not isinstance(first, ListType) or not first.many:
        raise ModelError("its input 0 is no sequence")
    return first


def _elements(given: _Given) -> ListType | None:
    tensors = in_common(given) if given else ListType("", ())
    return None if tensors is None else replace(tensors, many=True)


def _inserted(given: _Given, _: _Attributes) -> Kind | None:
    if len(given) < 2 or isinstance(given[1], ListType):
        raise ModelError("its input 1 is no tensor")
    return in_common([_list_of(given), replace(_listed(given[1]), many=True)])


def _element(given: _Given, _: _Attributes) -> Kind | None:
    found = _list_of(given)
    return None if found.shape is None or not found.dtype else TensorType(found.dtype, found.shape)


def _length(given: _Given, _: _Attributes) -> Kind | None:
    _list_of(given)
    return TensorType("i64", ())


def _split(given: _Given, attributes: _Attributes) -> Kind | None:
    (whole, *sizes) = given
    if not isinstance(whole, TensorType):
        raise ModelError("its input 0 is no tensor")
    at, dims = _axis(attributes.get("axis", 0), whole.rank), list(whole.shape)
    dims[at : at + 1] = ["?"] if sizes else [1] if attributes.get("keepdims", 1) else []
    return ListType(whole.dtype, tuple(dims))


def _concatenated(given: _Given, attributes: _Attributes) -> Kind | None:
    found = _element(given, attributes)
    if not isinstance(found, TensorType):
        return None
    new, dims = attributes.get("new_axis", 0), list(found.shape)
    at = _axis(attributes.get("axis", 0), len(dims) + new)
    dims[at : at + 1 - new] = ["?"]
    return TensorType(found.dtype, tuple(dims))


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ModelError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def _optional(given: _Given, _: _Attributes) -> Kind | None:
    found = in_common(given) if given else ListType("", (), many=False)
    return None if found is None else replace(found, optional=True)


def _present(given: _Given, _: _Attributes) -> Kind | None:
    (found,) = given
    if isinstance(found, TensorType) or found.many:
        return replace(found, optional=False) if isinstance(found, ListType) else found
    return None if found.shape is None or not found.dtype else TensorType(found.dtype, found.shape)


_KINDS: Final[Mapping[str, Callable[[_Given, _Attributes], Kind | None]]] = MappingProxyType(
    {
        "SequenceConstruct": lambda given, _: _elements(given),
        "SequenceEmpty": lambda given, _: _elements(given),
        "SequenceInsert": _inserted,
        "SequenceErase": lambda given, _: _list_of(given),
        "SequenceAt": _element,
        "SequenceLength": _length,
        "SplitToSequence": _split,
        "ConcatFromSequence": _concatenated,
        "Identity": lambda given, _: given[0],
        "Optional": _optional,
        "OptionalGetElement": _present,
        "OptionalHasElement": lambda *_: TensorType("bool", ()),
    }
)
