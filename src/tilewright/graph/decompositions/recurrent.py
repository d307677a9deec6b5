"""Recurrent layers taken apart into steps: one product for all inputs, then a node a step, all alike.

    before                              after, for each direction
    Y, Y_h, Y_c = LSTM(X, W, R, B)      P = X W^T + B                     one product for all steps
                                        p0, p1, ... = Split(P)
                                        h0, c0 = LSTMStep(p0, R, 0, 0)
                                        h1, c1 = LSTMStep(p1, R, h0, c0)
                                        ...
                                        Y = Concat(h0, h1, ...)

As one program a long sequence would be thousands of stages, and every step would read W again; the steps as
nodes have one program, which is compiled once.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from tilewright.graph.model import Array, Attribute, Node
from tilewright.graph.parts import Parts, decomposition
from tilewright.graph.registry import OWN
from tilewright.graph.unroll import MAX_STEPS, taken


@dataclass(frozen=True, slots=True)
class _Cell:
    """A recurrent operator: blocks of rows in its weights, states, and activations a direction."""

    gates: int
    states: int
    activations: int


_CELLS: Final[Mapping[str, _Cell]] = MappingProxyType(
    {"RNN": _Cell(1, 1, 1), "GRU": _Cell(3, 1, 2), "LSTM": _Cell(4, 2, 3)}
)
_KEPT: Final = ("clip", "input_forget", "linear_before_reset")
_X, _W, _R, _B, _LENGTHS, _STATES = range(6)
_PEEPHOLES: Final = 7
_DIRECTIONS: Final[Mapping[str, tuple[bool, ...]]] = MappingProxyType(
    {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
)


@decomposition("RNN", "GRU", "LSTM")
def recurrent_steps(parts: Parts, *given: str) -> bool:
    """The nodes of a recurrent layer; false where it stays one node, which then says what is wrong.

    It stays one where there is a single step, where weights are computed in each run, and for sequences of
    different lengths.
    """
    node, cell = parts.ctx.node, _CELLS[parts.ctx.node.op]
    inputs = [*given, *[""] * 8][:8]
    known = [*parts.ctx.values, *[None] * 8]
    x, weights, recurrence, bias = parts.ctx.types[_X], known[_W], known[_R], known[_B]
    backwards = _DIRECTIONS.get(str(node.attributes.get("direction", "forward")))
    if x is None or x.rank != 3 or backwards is None or weights is None or recurrence is None:
        return False
    if (bias is None and inputs[_B]) or inputs[_LENGTHS]:
        return False
    batch_first = bool(node.attributes.get("layout", 0))
    steps, batch, width = (x.sizes[1], x.sizes[0], x.sizes[2]) if batch_first else x.sizes
    count, hidden = len(backwards), recurrence.shape[-1]
    rows = cell.gates * hidden
    if node.attributes.get("hidden_size", hidden) != hidden:
        return False
    fits = weights.shape == (count, rows, width) and recurrence.shape == (count, rows, hidden)
    if not fits or (bias is not None and bias.shape != (count, 2 * rows)) or not 1 < steps <= MAX_STEPS:
        return False
    names = node.attributes.get("activations", ())
    if not isinstance(names, tuple) or len(names) not in (0, count * cell.activations):
        return False

    p = parts.prefix
    source = parts.add("Transpose", (inputs[_X],), f"{p}x", perm=(1, 0, 2)) if batch_first else inputs[_X]
    flat = parts.reshape(source, (steps * batch, width), f"{p}flat")
    made: list[list[str]] = []
    last: list[tuple[str, ...]] = []
    for d, back in enumerate(backwards):
        at = f"{p}{d}/"
        own = parts.constant(np.ascontiguousarray(weights[d].T), f"{d}/w")
        product = parts.add("MatMul", (flat, own), f"{at}product")
        inside = ""
        if bias is not None:
            outside, left = _biases(node, bias[d], hidden)
            product = parts.add("Add", (product, parts.constant(outside, f"{d}/b")), f"{at}sum")
            if left is not None:
                inside = parts.constant(left, f"{d}/inside")
        series = tuple(f"{at}{t}/p" for t in range(steps))
        sizes = parts.constant(np.full(steps, batch, np.int64), f"{d}/sizes")
        parts.several("Split", (product, sizes), series, axis=0)
        matrix = parts.constant(recurrence[d : d + 1], f"{d}/r")
        zero = np.zeros((batch, hidden), weights.dtype)
        state = tuple(
            _slice(parts, initial, d, int(batch_first), f"{at}initial{s}")
            if initial
            else parts.constant(zero, f"{d}/initial{s}")
            for s, initial in enumerate(inputs[_STATES : _STATES + cell.states])
        )
        attributes: dict[str, Attribute] = {k: node.attributes[k] for k in _KEPT if k in node.attributes}
        if names:
            attributes["activations"] = names[d * cell.activations : (d + 1) * cell.activations]
        extra = inside
        if node.op == "LSTM" and inputs[_PEEPHOLES]:
            extra = _slice(parts, inputs[_PEEPHOLES], d, 0, f"{at}peepholes")
        outputs: dict[int, str] = {}
        for t in reversed(range(steps)) if back else range(steps):
            after = tuple(f"{at}{t}/{s}" for s in range(cell.states))
            reads = (series[t], matrix, *state, *([extra] if extra else []))
            parts.several(f"{node.op}Step", reads, after, OWN, attributes)
            state, outputs[t] = after, after[0]
        made.append([outputs[t] for t in range(steps)])
        last.append(state)
    _outputs(parts, node, made, last, (steps, count, batch, hidden), batch_first)
    return True


def _biases(node: Node, bias: Array, hidden: int) -> tuple[Array, Array | None]:
    """What is added to the products of the inputs, and what stays inside of a step, if anything.

    With `linear_before_reset` the bias of a GRU's state is multiplied by a gate before it is added.
    """
    of_inputs, of_state = np.split(bias, 2)
    if node.op != "GRU" or not node.attributes.get("linear_before_reset", 0):
        return of_inputs + of_state, None
    inside = np.zeros_like(bias)
    inside[-hidden:] = of_state[-hidden:]
    outside = of_inputs + of_state
    outside[-hidden:] = of_inputs[-hidden:]
    return outside, inside[None]


def _slice(parts: Parts, value: str, at: int, axis: int, output: str) -> str:
    taking, index = taken(value, at, axis, output)
    parts.nodes.append(taking)
    parts.constants.update(index)
    return output


def _outputs(
    parts: Parts,
    node: Node,
    made: Sequence[Sequence[str]],
    last: Sequence[tuple[str, ...]],
    sizes: tuple[int, int, int, int],
    batch_first: bool,
) -> None:
    """Y of [steps, directions, batch, hidden], and the last states of [directions, batch, hidden]."""
    _, count, batch, hidden = sizes
    wanted = [*node.outputs, "", "", ""]
    if wanted[0]:
        pieces = list(itertools.chain.from_iterable(zip(*made, strict=True)))
        joined = parts.add("Concat", pieces, f"{parts.prefix}joined", axis=0)
        shaped = parts.reshape(joined, sizes, f"{parts.prefix}y" if batch_first else wanted[0])
        if batch_first:
            parts.add("Transpose", (shaped,), wanted[0], perm=(2, 0, 1, 3))
    for s, output in enumerate(wanted[1:3]):
        if not output or s >= len(last[0]):
            continue
        pieces = [state[s] for state in last]
        name = f"{parts.prefix}last{s}"
        joined = pieces[0] if count == 1 else parts.add("Concat", pieces, name, axis=0)
        shaped = parts.reshape(joined, (count, batch, hidden), f"{name}/shaped" if batch_first else output)
        if batch_first:
            parts.add("Transpose", (shaped,), output, perm=(1, 0, 2))
