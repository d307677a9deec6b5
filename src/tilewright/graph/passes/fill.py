"""Channels that do not fill the blocks of a layout get zeros after them, where that saves time.

    before                                         after
    h = Conv(x, w)            104 channels         h.filled = Conv(x, w')           112, the last 8 zeros
    r = Relu(h)                                    r.filled = Relu(h.filled)
    y = Conv(r, v)                                 y = Conv(r.filled, v')           v' is 0 for those

Vectors run along channels, which lie in blocks of a vector. Channels that fill half blocks only are computed
by half vectors, and those that fill none as plain values: at about half of the peak, for a few products less.
Sums of bytes that fill none are without the instructions that sum bytes, and make what they read lie plain
for all other readers.
What makes such channels is a convolution; between it and the convolutions that sum over them they pass
through operators that treat each channel alone. Whatever else reads them gets them without the zeros. Where
instructions sum bytes, what something else makes gets its zeros by a copy.
Channels of zeros must stay finite on the way, or weights of zero would make them NaN: only operators that map
all finite numbers to finite ones let them pass. An infinite input of the first convolution does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import ClassVar, Final, TypeAlias

import numpy as np

from tilewright.graph.model import Graph, Node
from tilewright.graph.passes.nodes import emit_slice, emit_zeros_after
from tilewright.graph.registry import find_operator
from tilewright.graph.rewrite import Rewriter
from tilewright.ir import is_open, typical

#: What is added to the name of a value that got channels of zeros.
FILLED: Final = ".filled"
#: The part of the peak at which channels are computed that fill no half blocks (Zen 5: 12 to 100 channels).
OF_PLAIN: Final = 0.85
#: What Winograd's method does beside the peak, and the fewest channels for it; it wants whole blocks.
OF_WINOGRAD: Final = 1.9
WINOGRAD_CHANNELS: Final = 32
#: Writing an element and reading it again takes the time of so many products; a kernel that only copies,
#: that of so many more.
OF_AN_ELEMENT: Final = 20
OF_A_COPY: Final = 100_000

#: The part of the peak at which sums of bytes are computed where instructions do not sum them (Zen 4: 0.05
#: for one channel, 0.1 for 20).
OF_PLAIN_BYTES: Final = 0.05

#: Bytes that the instructions sum into one result, and the part of the peak for channels that are no multiple
#: of it, element by element and along taps (Zen 4, 3x3, 130 to 130: 0.37 and 0.53).
BYTES_TOGETHER, OF_OTHER_TERMS, OF_TAPS = 4, 0.4, 0.53

#: What normalisations add to the variance, at least, so that a channel of zeros is divided by no zero.
_LEAST_EPSILON: Final = 1e-30
#: Operators that follow sums of bytes, by the rules of one operand and of several.
_CONVERSIONS: Final = frozenset({"Cast", "DequantizeLinear", "QuantizeLinear"})
_QUANTISED: Final = frozenset({"Add", "ConvInteger", "Mul", "Sub"}) | _CONVERSIONS
_INTEGERS: Final = frozenset({"i32", "i8", "u8"})
#: Operators that combine elements of each channel alone.
_WINDOWS: Final = frozenset({"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"})
_REDUCTIONS: Final = frozenset({"ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"})


@dataclass(frozen=True, slots=True)
class FillBlocks:
    """Fill channels of values up to blocks of ``lanes``; half vectors reach ``of_half`` of the peak.

    ``winograd`` says whether convolutions may be done by Winograd's method, ``sums_bytes`` whether
    instructions sum bytes: these have results in blocks, whole or half, only.
    """

    lanes: int
    of_half: float
    winograd: bool = True
    sums_bytes: bool = False
    name: ClassVar[str] = "fill-blocks"

    def __call__(self, graph: Graph) -> Graph:
        """Fill wherever that saves time by the model of this file's head."""
        links = {id(node): found for node in graph.nodes if (found := _links_of(graph, node)) is not None}
        touching = {
            together: found
            for together, found in _components(links.values())
            if self._fits(graph, together, found)
        }
        filled = _chosen(_Costs(graph, links, self), touching)
        channels = {value: self.filled(graph.types[value].sizes[1]) for value in filled}
        return _Filling(graph, links, channels).run() if filled else graph

    def filled(self, channels: int) -> int:
        """The channels of whole blocks."""
        return -(-channels // self.lanes) * self.lanes

    def rate(self, channels: int, of_bytes: bool = False) -> float:
        """The part of the peak at which so many channels are computed, from numbers or ``of_bytes``."""
        if of_bytes and not self.sums_bytes:
            return 1.0
        if of_bytes and channels % (self.lanes // 2):
            return OF_PLAIN_BYTES
        if channels % self.lanes == 0:
            return 1.0
        return self.of_half if channels % (self.lanes // 2) == 0 else OF_PLAIN

    def rate_of_terms(self, channels: int, *, in_taps: bool) -> float:
        """The part of the peak at which bytes of so many channels are summed, four by an instruction."""
        if not self.sums_bytes or channels % BYTES_TOGETHER == 0:
            return 1.0
        return OF_TAPS if in_taps else OF_OTHER_TERMS

    def _fits(self, graph: Graph, together: frozenset[str], touching: Collection[_Links]) -> bool:
        """Whether values of the same channels, all made by operators of this file, can be filled."""
        (channels, *others) = {graph.types[value].sizes[1] for value in together}
        more = self.filled(channels) - channels
        # not worth a copy where taps are summed
        of_bytes = [f for f in touching if f.summed in together and _is_of_bytes(graph, f) and not f.in_taps]
        fits = (self.sums_bytes and of_bytes) or together <= {found.output for found in touching}
        return not others and more > 0 and bool(fits) and not any(more % f.step for f in touching)


@dataclass(frozen=True, slots=True)
class _Costs:
    """What a graph of which some values are filled costs, in products at the peak."""

    graph: Graph
    links: Mapping[int, _Links]
    fill: FillBlocks

    def of(self, together: frozenset[str], touching: Iterable[_Links], filled: Set[str]) -> float:
        """What depends on whether the values ``together`` are filled."""
        copied = [
            value
            for value in together & filled
            for copies in (
                _is_cropped(self.graph, self.links, value),
                value not in {f.output for f in touching},
            )
            if copies
        ]
        return sum(self._made(found, filled) for found in touching) + sum(
            typical(self.graph.types[value].elements) * OF_AN_ELEMENT + OF_A_COPY for value in copied
        )

    def _made(self, found: _Links, filled: Set[str]) -> float:
        """What a convolution costs: its products, and moving its result. What follows is done on the way."""
        if not found.products:
            return 0.0
        axes = (found.summed, found.output) if found.summed else (found.output,)
        before = [self.graph.types[value].sizes[1] for value in axes]
        channels = [
            self.fill.filled(size) if value in filled else size
            for value, size in zip(axes, before, strict=True)
        ]
        of_bytes = _is_of_bytes(self.graph, found)
        rate = self.fill.rate(channels[-1], of_bytes)
        if of_bytes:
            rate *= self.fill.rate_of_terms(channels[0], in_taps=found.in_taps)
        whole = all(self.fill.filled(size) == size >= WINOGRAD_CHANNELS for size in channels)
        if whole and found.winograd and self.fill.winograd:
            rate = OF_WINOGRAD
        moved = typical(self.graph.types[found.output].elements) * OF_AN_ELEMENT * channels[-1] / before[-1]
        return found.products * prod(channels) / prod(before) / rate + moved


def _chosen(costs: _Costs, touching: Mapping[frozenset[str], Collection[_Links]]) -> frozenset[str]:
    """The values to fill: all at first, and then those of the same channels change as long as that helps."""
    filled = frozenset[str]().union(*touching)
    settled = False
    while not settled:
        settled = True
        for together, found in touching.items():
            other = filled - together if together <= filled else filled | together
            if costs.of(together, found, other) < costs.of(together, found, filled):
                filled, settled = other, False
    return filled


@dataclass(frozen=True, slots=True)
class _Pad:
    """Input ``at`` of a node, a constant, grows along ``axis`` with the channels of ``value``."""

    at: int
    axis: int
    value: str
    fill: float = 0.0


@dataclass(frozen=True, slots=True)
class _Links:
    """What a node asks of its values' channels.

    Those of ``joined`` are the same, and come ``step`` at a time; over those of ``summed`` it sums, and it
    makes those of ``result``. ``output`` is one of these; ``products`` are what it computes, as things are.
    ``in_taps`` says that bytes can be summed along taps, too, by an instruction.
    """

    output: str
    joined: tuple[str, ...] = ()
    summed: str = ""
    result: str = ""
    pads: tuple[_Pad, ...] = ()
    step: int = 1
    products: float = 0.0
    winograd: bool = False
    in_taps: bool = False

    @property
    def values(self) -> tuple[str, ...]:
        """The values that may get channels."""
        return tuple(v for v in (*self.joined, self.summed, self.result) if v)


_Rule: TypeAlias = Callable[[Graph, Node], _Links | None]


def _links_of(graph: Graph, node: Node) -> _Links | None:
    """The links of a node whose values are f32 of known sizes; ``None`` where others cannot be told.

    Sums of bytes are i32, and what follows them quantises.
    """
    rule = _rule(node)
    if len(node.used_outputs) != 1 or rule is None:
        return None
    types = [graph.types[v] for v in (*node.used_inputs, *node.used_outputs) if v not in graph.constants]
    dtypes = {"f32", *(_INTEGERS if node.op in _QUANTISED else ())}
    if not all(type_.dtype in dtypes and type_.is_static for type_ in types):
        return None
    if graph.types[node.outputs[0]].rank < 3 or any(map(is_open, (n for t in types for n in t.sizes[1:2]))):
        return None
    return rule(graph, node)


def _rule(node: Node) -> _Rule | None:
    """How a node's channels go together: of any operator that maps finite numbers to finite ones alike."""
    named = None if node.domain else _RULES.get(node.op)
    operator = find_operator(node)
    if named is not None or operator is None or not operator.finite:
        return named
    return _unary if operator.min_inputs == 1 and operator.max_inputs is not None else _binary


def _convolution(graph: Graph, node: Node) -> _Links | None:
    x, y = node.inputs[0], node.outputs[0]
    groups = node.attributes.get("group", 1)
    if not _are_constants(graph, node.inputs[1:]) or not isinstance(groups, int):
        return None
    shape = graph.constants[node.inputs[1]].shape
    bias = [_Pad(2, 0, y)] if len(node.inputs) > 2 and node.inputs[2] else []
    if node.op == "ConvTranspose":
        products = float(typical(graph.types[x].elements) * prod(shape[1:]))
        pads = (_Pad(1, 0, x), _Pad(1, 1, y), *bias)
        if groups != 1:
            return None
        return _Links(y, summed=x, result=y, pads=pads, products=products)
    products = float(typical(graph.types[y].elements) * prod(shape[1:]))
    if groups == 1:
        pads = (_Pad(1, 0, y), _Pad(1, 1, x), *bias)
        ones = {"strides", "dilations"} & node.attributes.keys()
        winograd = shape[-2:] == (3, 3) and all({*_ints(node, name)} == {1} for name in ones)
        return _Links(y, summed=x, result=y, pads=pads, products=products, winograd=winograd)
    if shape[0] != groups * shape[1]:
        return None
    pads = (_Pad(1, 0, y), *bias)
    return _Links(y, joined=(x, y), pads=pads, step=shape[1], products=products)


def _integer_convolution(graph: Graph, node: Node) -> _Links | None:
    """Sums of bytes by known weights without zero points."""
    x, y = node.inputs[0], node.outputs[0]
    if len(node.used_inputs) != 2 or not _are_constants(graph, node.inputs[1:]):
        return None
    if node.attributes.get("group", 1) != 1:
        return None
    shape = graph.constants[node.inputs[1]].shape
    products = float(typical(graph.types[y].elements) * prod(shape[1:]))
    pads, in_taps = (_Pad(1, 0, y), _Pad(1, 1, x)), shape[-1] % BYTES_TOGETHER == 0
    return _Links(y, summed=x, result=y, pads=pads, products=products, in_taps=in_taps)


def _quantisation(graph: Graph, node: Node) -> _Links | None:
    """One scale for all channels, which may be a run's own: whatever it makes of a number is a byte."""
    if any(graph.types[v].elements != 1 for v in node.used_inputs[1:]):
        return None
    return _Links(node.outputs[0], joined=(node.inputs[0], node.outputs[0]))


def _ints(node: Node, name: str) -> tuple[int, ...]:
    values = node.attributes[name]
    assert isinstance(values, tuple)
    return tuple(int(value) for value in values)


def _unary(graph: Graph, node: Node) -> _Links | None:
    numbers = all(graph.constants[v].size == 1 for v in node.used_inputs[1:] if v in graph.constants)
    if not _are_constants(graph, node.inputs[1:]) or not numbers:
        return None
    return _Links(node.outputs[0], joined=(node.inputs[0], node.outputs[0]))


def _binary(graph: Graph, node: Node) -> _Links | None:
    y = node.outputs[0]
    result = graph.types[y]
    joined, pads = [y], []
    for at, value in enumerate(node.inputs):
        divides = node.op == "Div" and at == 1
        known = graph.constants.get(value)
        if known is not None and not (np.isfinite(known).all() and (known.all() or not divides)):
            return None
        if divides and known is None:
            return None
        type_ = graph.types[value]
        axis = 1 - (result.rank - type_.rank)
        size = type_.sizes[axis] if axis >= 0 else 1
        if size == 1:
            continue
        if known is not None:
            pads.append(_Pad(at, axis, y, 1.0 if divides else 0.0))
        elif axis == 1:
            joined.append(value)
        else:
            return None
    return _Links(y, joined=tuple(joined), pads=tuple(pads))


def _normalisation(graph: Graph, node: Node) -> _Links | None:
    """Scales, offsets, and of batches means and variances, by channels."""
    if not _are_constants(graph, node.inputs[1:]) or node.attributes.get("training_mode", 0):
        return None
    epsilon = node.attributes.get("epsilon", 1e-5)
    if not isinstance(epsilon, float) or epsilon < _LEAST_EPSILON:
        return None
    y = node.outputs[0]
    fills = (0.0, 0.0, 0.0, 1.0)
    pads = tuple(_Pad(at, 0, y, fill) for at, fill in zip(range(1, len(node.inputs)), fills, strict=False))
    return _Links(y, joined=(node.inputs[0], y), pads=pads)


def _alone(graph: Graph, node: Node) -> _Links | None:
    return _Links(node.outputs[0], joined=(node.inputs[0], node.outputs[0]))


def _reduction(graph: Graph, node: Node) -> _Links | None:
    axes = node.attributes.get("axes", ())
    if len(node.used_inputs) > 1:
        if not _are_constants(graph, node.inputs[1:]):
            return None
        axes = tuple(int(a) for a in graph.constants[node.inputs[1]])
    rank = graph.types[node.inputs[0]].rank
    if not isinstance(axes, tuple) or not axes or node.attributes.get("keepdims", 1) != 1:
        return None
    return None if 1 in {int(a) % rank for a in axes} else _alone(graph, node)


_RULES: Final[Mapping[str, _Rule]] = MappingProxyType(
    {
        "Conv": _convolution,
        "ConvInteger": _integer_convolution,
        "ConvTranspose": _convolution,
        "Div": _binary,
        "BatchNormalization": _normalisation,
        "InstanceNormalization": _normalisation,
        **dict.fromkeys(_CONVERSIONS, _unary),
        "QuantizeLinear": _quantisation,
        **dict.fromkeys(_WINDOWS, _alone),
        **dict.fromkeys(_REDUCTIONS, _reduction),
    }
)


def _are_constants(graph: Graph, values: Iterable[str]) -> bool:
    return all(not v or v in graph.constants for v in values)


def _components(links: Collection[_Links]) -> Iterator[tuple[frozenset[str], list[_Links]]]:
    """Sets of values whose channels are the same, with the links that name them."""
    members: dict[str, set[str]] = {}
    for found in links:
        for value in found.values:
            members.setdefault(value, {value})
        if found.joined:
            joined = set[str]().union(*(members[value] for value in found.joined))
            members.update(dict.fromkeys(joined, joined))
    sets = {id(together): together for together in members.values()}
    naming: dict[int, list[_Links]] = {at: [] for at in sets}
    for found in links:
        for at in dict.fromkeys(id(members[value]) for value in found.values):
            naming[at].append(found)
    for at, together in sets.items():
        yield frozenset(together), naming[at]


def _is_of_bytes(graph: Graph, found: _Links) -> bool:
    return graph.types[found.output].dtype == "i32"


def _is_cropped(graph: Graph, links: Mapping[int, _Links], value: str) -> bool:
    """Whether something reads a value's channels as they were."""
    readers = graph.consumers(value)
    return value in graph.outputs or any(
        id(node) not in links or value not in links[id(node)].values for node in readers
    )


@dataclass(frozen=True, slots=True)
class _Filling:
    """Writes the graph in which values have the channels that ``filled`` says."""

    graph: Graph
    links: Mapping[int, _Links]
    filled: Mapping[str, int]

    def run(self) -> Graph:
        """The new graph."""
        rewriter = Rewriter(self.graph)
        names = {value: rewriter.fresh(value + FILLED) for value in self.filled}
        made = {found.output for found in self.links.values()}
        copied: set[str] = set()
        for node in self.graph.nodes:
            found = self.links.get(id(node))
            if found is None or not any(value in self.filled for value in found.values):
                rewriter.keep(node)
                continue
            for value in found.values:
                if value in self.filled and value not in made and value not in copied:
                    more = self.filled[value] - self.graph.types[value].sizes[1]
                    emit_zeros_after(rewriter, value, 1, more, names[value], node)
                    copied.add(value)
            self._fill(rewriter, node, found, names)
            output = found.output
            if output in self.filled and _is_cropped(self.graph, self.links, output):
                channels = self.graph.types[output].sizes[1]
                emit_slice(rewriter, names[output], 1, 0, channels, output, node)
        return rewriter.finish()

    def _fill(self, rewriter: Rewriter, node: Node, found: _Links, names: Mapping[str, str]) -> None:
        inputs = [names.get(value, value) if value in found.values else value for value in node.inputs]
        for pad in found.pads:
            if pad.value in self.filled:
                array = rewriter.constants[inputs[pad.at]]
                widths = [(0, 0)] * array.ndim
                widths[pad.axis] = (0, self.filled[pad.value] - self.graph.types[pad.value].sizes[1])
                padded = np.pad(array, widths, constant_values=pad.fill)
                inputs[pad.at] = rewriter.constant(padded, node.inputs[pad.at])
        attributes = dict(node.attributes)
        output = found.output
        if node.op == "Conv" and found.joined:
            attributes["group"] = self.filled[output] // found.step
        type_ = self.graph.types[output]
        if output in self.filled:
            sizes = type_.sizes
            type_ = replace(type_, shape=(sizes[0], self.filled[output], *sizes[2:]))
        new = replace(node, inputs=tuple(inputs), attributes=attributes)
        rewriter.emit(replace(new, outputs=(names.get(output, output),)), [type_])
