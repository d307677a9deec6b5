"""Recurrent layers taken apart: one product for all inputs, then a loop over time of one step.

    before                              after, for each direction
    Y, Y_h, Y_c = LSTM(X, W, R, B)      P = X W^T + B                     one product for all steps
                                        H, C = LSTMStep(P[t], R, h, c)    for each t; h, c: before
                                        Y = H, Y_h = H[-1], Y_c = C[-1]

As one program a long sequence would be thousands of stages, and as nodes thousands of nodes; a loop is one
node, whose program is that of one step. Sequences of different lengths keep their state once they have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from tilewright.graph.model import Attribute, Node, Repeat
from tilewright.graph.ops.recurrent import parameters_of
from tilewright.graph.parts import Parts, decomposition
from tilewright.graph.registry import OWN
from tilewright.graph.unroll import taken
from tilewright.ir import dtype_of


@dataclass(frozen=True, slots=True)
class _Cell:
    """A recurrent operator: blocks of rows in its weights, states, and activations a direction."""

    gates: int
    states: int
    activations: int


_CELLS: Final[Mapping[str, _Cell]] = MappingProxyType(
    {"RNN": _Cell(1, 1, 1), "GRU": _Cell(3, 1, 2), "LSTM": _Cell(4, 2, 3)}
)
#: A run lists its calls, and saved models hold the list.
MAX_CALLS: Final = 1 << 17
_KEPT: Final = ("clip", "input_forget", "linear_before_reset")
_X, _W, _R, _B, _LENGTHS, _STATES = range(6)
_PEEPHOLES: Final = 7
_DIRECTIONS: Final[Mapping[str, tuple[bool, ...]]] = MappingProxyType(
    {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
)


@dataclass(frozen=True, slots=True)
class OtherWeights:
    """Weights of another form than the operators': how inputs are multiplied, and what steps read."""

    product: Callable[[str, int], str]
    """The products [rows, gates * hidden] of inputs [rows, width] in one direction."""
    of_steps: Callable[[int], tuple[str, ...]]
    """The recurrence weights of one direction, and what a step reads behind all else."""


@decomposition("RNN", "GRU", "LSTM")
def recurrent_steps(parts: Parts, *given: str) -> bool:
    """The nodes of a recurrent layer; false where it stays one node, which then says what is wrong.

    It stays one where there is a single step. Raises UnsupportedOperatorError for too many of them.
    """
    return layer_steps(parts, given)


def layer_steps(parts: Parts, given: Sequence[str], weights: OtherWeights | None = None) -> bool:
    """The same for weights in another form; false where there are no steps, or it is not as it should be."""
    node = parts.ctx.node
    layer = _read(parts, [*given, *[""] * 8][:8], weights is not None)
    if layer is None:
        return False
    p, cell = parts.prefix, layer.cell
    steps, batch, width, hidden = layer.steps, layer.batch, layer.width, layer.hidden
    if steps > MAX_CALLS:
        raise parts.ctx.unsupported(f"{steps} steps; at most {MAX_CALLS} are run")
    inputs, rows = layer.inputs, layer.cell.gates * layer.hidden
    source = (
        parts.add("Transpose", (inputs[_X],), f"{p}x", perm=(1, 0, 2)) if layer.batch_first else inputs[_X]
    )
    flat = parts.reshape(source, (steps * batch, width), f"{p}flat")
    made: list[str] = []
    last: list[tuple[str, ...]] = []
    for d, back in enumerate(layer.backwards):
        at = f"{p}{d}/"
        if weights is None:
            matrix = _slice(parts, inputs[_W], d, 0, f"{at}w")
            turned = parts.add("Transpose", (matrix,), f"{at}w/turned", perm=(1, 0))
            product = parts.add("MatMul", (flat, turned), f"{at}product")
        else:
            product = weights.product(flat, d)
        inside = ""
        if inputs[_B]:
            row = _slice(parts, inputs[_B], d, 0, f"{at}b")
            outside, inside = _biases(parts, row, hidden, rows)
            product = parts.add("Add", (product, outside), f"{at}sum")
        series = parts.reshape(product, (steps, batch, rows), f"{at}series")
        own: tuple[str, ...] = ()
        if weights is None:
            recurrence = _slice(parts, inputs[_R], d, 0, f"{at}r")
            kept = rows
            if _two_products(node):
                # A product each, a tensor each: both are packed when compiling.
                kept = rows - hidden
                recurrence, apart = parts.split(recurrence, (kept, hidden), 0)
                own = (parts.reshape(apart, (1, hidden, hidden), f"{at}r/own"),)
            recurrence = parts.reshape(recurrence, (1, kept, hidden), f"{at}r/one")
        else:
            recurrence, *own_values = weights.of_steps(d)
            own = tuple(own_values)
        state = [
            _slice(parts, initial, d, int(layer.batch_first), f"{at}initial{s}")
            if initial
            else parts.filled((batch, hidden), 0, parts.type(_X).dtype, f"{d}/initial{s}")
            for s, initial in enumerate(inputs[_STATES : _STATES + cell.states])
        ]
        clock = parts.reshape(parts.places(steps, name=f"{d}/clock"), (steps, 1)) if inputs[_LENGTHS] else ""
        extra = inside
        if cell is _CELLS["LSTM"] and inputs[_PEEPHOLES]:
            extra = _slice(parts, inputs[_PEEPHOLES], d, 0, f"{at}peepholes")
        attributes: dict[str, Attribute] = {k: node.attributes[k] for k in _KEPT if k in node.attributes}
        if layer.activations:
            before, own_names = (
                layer.activations[n * cell.activations :][: cell.activations] for n in (0, d)
            )
            attributes["activations"] = own_names
            for which in ("alpha", "beta"):
                values = parts.ctx.reals(f"activation_{which}", ())
                values = values[parameters_of(before, values, which) if d else 0 :]
                attributes[f"activation_{which}"] = values[: parameters_of(own_names, values, which)]
        reads = (series, recurrence, *state, clock, inputs[_LENGTHS], extra, *own)
        first = 1 if clock else 0
        repeat = Repeat(
            steps,
            (0, 2 + cell.states) if clock else (0,),
            tuple((2 + s, first + s) for s in range(cell.states)),
            back,
        )
        outputs = tuple(f"{at}{s}" for s in range(first + cell.states))
        parts.several(f"{layer.kind}Step", reads, outputs, OWN, attributes, repeat)
        made.append(outputs[0])
        end = 0 if back else steps - 1
        last.append(tuple(_slice(parts, output, end, 0, f"{output}/last") for output in outputs[first:]))
    _outputs(parts, node, made, last, (steps, len(made), batch, hidden), layer.batch_first)
    return True


@dataclass(frozen=True, slots=True)
class _Layer:
    """A recurrent layer whose inputs fit one another."""

    kind: str
    cell: _Cell
    inputs: tuple[str, ...]
    backwards: tuple[bool, ...]
    activations: tuple[str, ...]
    batch_first: bool
    steps: int
    batch: int
    width: int
    hidden: int


def _read(parts: Parts, inputs: list[str], turned: bool) -> _Layer | None:
    """What is known of a layer; None for one of a single step, or which is not as it should be.

    The weights of a `turned` one are `[direction, input, gate]`, and it may have a single step.
    """
    node = parts.ctx.node
    kind = node.op.removeprefix("DynamicQuantize")
    cell = _CELLS[kind]
    types = [*parts.ctx.types, *[None] * 8]
    x, weights, recurrence, lengths = (types[at] for at in (_X, _W, _R, _LENGTHS))
    bias = types[_B]
    backwards = _DIRECTIONS.get(str(node.attributes.get("direction", "forward")))
    if x is None or x.rank != 3 or backwards is None or weights is None or recurrence is None:
        return None
    if recurrence.rank != 3:
        return None
    batch_first = bool(node.attributes.get("layout", 0))
    steps, batch, width = (x.sizes[1], x.sizes[0], x.sizes[2]) if batch_first else x.sizes
    count, hidden = len(backwards), recurrence.sizes[1 if turned else 2]
    rows = cell.gates * hidden
    state = (batch, count, hidden) if batch_first else (count, batch, hidden)
    states = [t for t in types[_STATES : _STATES + cell.states] if t is not None]
    peepholes = types[_PEEPHOLES] if kind == "LSTM" else None

    def matrix(width: int) -> tuple[int, ...]:
        return (count, width, rows) if turned else (count, rows, width)

    fits = (
        node.attributes.get("hidden_size", hidden) == hidden
        and weights.sizes == matrix(width)
        and recurrence.sizes == matrix(hidden)
        and (bias is None or bias.sizes == (count, 2 * rows))
        and (lengths is None or lengths.sizes == (batch,))
        and all(t.sizes == state for t in states)
        and (peepholes is None or peepholes.sizes == (count, 3 * hidden))
    )
    names = node.attributes.get("activations", ())
    if not fits or steps < (1 if turned else 2) or not batch or not hidden:
        return None
    if not isinstance(names, tuple) or len(names) not in (0, count * cell.activations):
        return None
    activations = tuple(map(str, names))
    return _Layer(kind, cell, tuple(inputs), backwards, activations, batch_first, steps, batch, width, hidden)


def _biases(parts: Parts, row: str, hidden: int, rows: int) -> tuple[str, str]:
    """What is added to the products of the inputs, and what stays inside of a step, if anything.

    With `linear_before_reset` the bias of a GRU's state is multiplied by a gate before it is added.
    """
    node = parts.ctx.node
    if node.op != "GRU" or _two_products(node):
        return parts.add("Add", parts.split(row, (rows, rows), 0)), ""
    gates, of_input, of_gates, of_state = parts.split(row, (2 * hidden, hidden, 2 * hidden, hidden), 0)
    outside = parts.add("Concat", (parts.add("Add", (gates, of_gates)), of_input), axis=0)
    before = parts.constant(np.zeros(rows + 2 * hidden, dtype_of(parts.type(_B).dtype).numpy))
    inside = parts.add("Concat", (before, of_state), axis=0)
    return outside, parts.reshape(inside, (1, 2 * rows))


def _two_products(node: Node) -> bool:
    """Whether a step has a product of the state, and then one of the state times a gate."""
    return node.op == "GRU" and not node.attributes.get("linear_before_reset", 0)


def _slice(parts: Parts, value: str, at: int, axis: int, output: str) -> str:
    taking, index = taken(value, at, axis, output)
    parts.nodes.append(taking)
    parts.constants.update(index)
    return output


def _outputs(
    parts: Parts,
    node: Node,
    made: Sequence[str],
    last: Sequence[tuple[str, ...]],
    sizes: tuple[int, int, int, int],
    batch_first: bool,
) -> None:
    """Y of [steps, directions, batch, hidden], and the last states of [directions, batch, hidden]."""
    steps, count, batch, hidden = sizes
    wanted = [*node.outputs, "", "", ""]
    if wanted[0]:
        name = f"{parts.prefix}y" if batch_first else wanted[0]
        if count == 1:
            shaped = parts.reshape(made[0], sizes, name)
        else:
            one = (steps, 1, batch, hidden)
            pieces = [parts.reshape(piece, one, f"{piece}/one") for piece in made]
            shaped = parts.add("Concat", pieces, name, axis=1)
        if batch_first:
            parts.add("Transpose", (shaped,), wanted[0], perm=(2, 0, 1, 3))
    for s, output in enumerate(wanted[1:3]):
        if not output or s >= len(last[0]):
            continue
        ends = [state[s] for state in last]
        name = f"{parts.prefix}last{s}"
        joined = ends[0] if count == 1 else parts.add("Concat", ends, name, axis=0)
        shaped = parts.reshape(joined, (count, batch, hidden), f"{name}/shaped" if batch_first else output)
        if batch_first:
            parts.add("Transpose", (shaped,), output, perm=(1, 0, 2))
