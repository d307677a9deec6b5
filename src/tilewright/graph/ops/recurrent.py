"""Recurrent layers (RNN, GRU, LSTM) of one step, and single steps of them.

Layers arrive as loops over single steps (:mod:`tilewright.graph.decompositions.recurrent`); whole layers are
those of one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tilewright import lang
from tilewright.graph.operand import At, Ix, Operand, compute
from tilewright.graph.ops.common import Scalar, chosen, number, stem
from tilewright.graph.ops.quantisation import ByteWeights, dynamic_product
from tilewright.graph.registry import OWN, Context, Kind, operator

Act = Callable[[Scalar], Scalar]


@dataclass(frozen=True, slots=True)
class _Activation:
    """An activation of `x`, `alpha` and `beta`; the defaults of those that it has."""

    of: Callable[[Scalar, float, float], Scalar]
    alpha: float | None = None
    beta: float | None = None


_ACTIVATIONS: Final[Mapping[str, _Activation]] = MappingProxyType(
    {
        "sigmoid": _Activation(lambda x, a, b: lang.sigmoid(x)),
        "tanh": _Activation(lambda x, a, b: lang.tanh(x)),
        "relu": _Activation(lambda x, a, b: lang.relu(x)),
        "softsign": _Activation(lambda x, a, b: lang.softsign(x)),
        "softplus": _Activation(lambda x, a, b: lang.softplus(x)),
        "affine": _Activation(lambda x, a, b: x * a + b, 1.0, 0.0),
        "leakyrelu": _Activation(lambda x, a, b: lang.leaky_relu(x, a), 0.01),
        "thresholdedrelu": _Activation(lambda x, a, b: lang.select(x > a, x, number(0, x.dtype.name)), 1.0),
        "scaledtanh": _Activation(lambda x, a, b: lang.tanh(x * b) * a, 1.0, 1.0),
        "hardsigmoid": _Activation(lang.hard_sigmoid, 0.2, 0.5),
        "elu": _Activation(lambda x, a, b: lang.elu(x, a), 1.0),
    }
)


def parameters_of(names: Sequence[str], given: Sequence[float], which: str) -> int:
    """How many of the values of `activation_alpha` or `activation_beta` the named activations take."""
    known = [_ACTIVATIONS[name.lower()] for name in names if name.lower() in _ACTIVATIONS]
    takes = sum((a.alpha if which == "alpha" else a.beta) is not None for a in known)
    return min(takes, len(given))


_LENGTHS: Final = 4
_DIRECTIONS: Final = ("forward", "reverse", "bidirectional")


@dataclass(frozen=True, slots=True)
class _Layer:
    """The inputs of a recurrent operator, and its sizes. `gates` blocks of rows in the weights."""

    ctx: Context
    x: Operand
    w: Operand
    r: Operand
    b: Operand | None
    lengths: Operand | None
    hidden: int
    gates: int
    batch_first: bool
    clip: float
    products: Operand | None = None
    """Of a single step: the products of all inputs, biases included."""
    candidate: Operand | None = None
    """Of a single step: the last gate's rows of `r` as a tensor of their own, which then lacks them."""
    multiplied: Callable[[Operand, str], Operand] | None = None
    """Of a single step: a state times the recurrence weights, where that is no product of numbers."""

    @property
    def steps(self) -> int:
        return self.x.shape[1 if self.batch_first else 0]

    @property
    def batch(self) -> int:
        return self.x.shape[0 if self.batch_first else 1]

    def element(self, t: int, n: Ix, k: At) -> Scalar:
        return self.x[(n, t, k) if self.batch_first else (t, n, k)]

    def inputs_part(self, d: int, t: int, name: str) -> Operand:
        """x[t] W^T for all gates: [batch, gates * hidden]."""
        if self.products is not None:
            return self.products
        k = lang.reduce_axis(self.x.shape[2], "k")
        return compute(
            (self.batch, self.gates * self.hidden),
            lambda n, j: lang.sum(self.element(t, n, k) * self.w[(d, j, k)], axis=k),
            name=f"{name}_x",
        )

    def state_part(self, d: int, state: Operand, name: str, gates: range | None = None) -> Operand:
        """State R^T for some gates: [batch, their rows]."""
        if self.multiplied is not None:
            return self.multiplied(state, f"{name}_h")
        rows = gates or range(self.gates)
        k = lang.reduce_axis(self.hidden, "k")
        apart = self.candidate is not None and rows.start == self.gates - 1
        weights = self.candidate if apart and self.candidate is not None else self.r
        first = 0 if apart else rows.start * self.hidden
        return compute(
            (self.batch, len(rows) * self.hidden),
            lambda n, j: lang.sum(state[(n, k)] * weights[(d, j + first, k)], axis=k),
            name=f"{name}_h",
        )

    def bias(self, d: int, gate: int, j: At, of_state: bool = False) -> Scalar:
        """One element of the bias of a gate: that of the inputs or that of the state."""
        if self.b is None:
            return number(0, self.x.dtype)
        offset = self.gates * self.hidden if of_state else 0
        return self.b[(d, j + (gate * self.hidden + offset))]

    def limited(self, value: Scalar) -> Scalar:
        if self.clip == 0.0:
            return value
        bound = number(self.clip, self.x.dtype)
        return lang.maximum(lang.minimum(value, bound), -bound)

    def kept(self, t: int, new: Operand, old: Operand, name: str) -> Operand:
        """The new state, or the old one where a sequence has ended."""
        lengths = self.lengths
        if lengths is None:
            return new

        def of(n: Ix, j: Ix) -> Scalar:
            running = lang.cast(lengths[(n,)], "i64") > number(t, "i64")
            return lang.select(running, new[(n, j)], old[(n, j)])

        return compute(new.shape, of, name=f"{name}_kept")


State = tuple[Operand, ...]
Step = Callable[[_Layer, int, int, State, Sequence[Act]], State]


def _rnn_step(layer: _Layer, d: int, t: int, state: State, act: Sequence[Act]) -> State:
    name = stem(layer.ctx)
    xs, hs = layer.inputs_part(d, t, name), layer.state_part(d, state[0], name)

    def of(n: Ix, j: Ix) -> Scalar:
        total = xs[(n, j)] + hs[(n, j)] + layer.bias(d, 0, j) + layer.bias(d, 0, j, True)
        return act[0](layer.limited(total))

    return (compute(state[0].shape, of, name=name),)


def _gru_step(layer: _Layer, d: int, t: int, state: State, act: Sequence[Act]) -> State:
    """Gates z, r, h; `linear_before_reset` multiplies the state's product instead of the state."""
    name, hidden = stem(layer.ctx), layer.hidden
    old = state[0]
    linear = bool(layer.ctx.integer("linear_before_reset", 0))
    xs = layer.inputs_part(d, t, name)
    hs = layer.state_part(d, old, name, range(3 if linear else 2))

    def gate(at: int, n: Ix, j: Ix) -> Scalar:
        place = (n, j + at * hidden)
        total = xs[place] + hs[place] + layer.bias(d, at, j) + layer.bias(d, at, j, True)
        return act[0](layer.limited(total))

    z = compute(old.shape, lambda n, j: gate(0, n, j), name=f"{name}_z")
    r = compute(old.shape, lambda n, j: gate(1, n, j), name=f"{name}_r")
    reset = compute(old.shape, lambda n, j: r[(n, j)] * old[(n, j)], name=f"{name}_reset")
    product = hs if linear else layer.state_part(d, reset, name, range(2, 3))

    def new(n: Ix, j: Ix) -> Scalar:
        inner = product[(n, j + (2 * hidden if linear else 0))] + layer.bias(d, 2, j, True)
        inner = r[(n, j)] * inner if linear else inner
        h = act[1](layer.limited(xs[(n, j + 2 * hidden)] + inner + layer.bias(d, 2, j)))
        keep = z[(n, j)]
        return (number(1, old.dtype) - keep) * h + keep * old[(n, j)]

    return (compute(old.shape, new, name=name),)


def _lstm_step(peepholes: Operand | None) -> Step:
    def step(layer: _Layer, d: int, t: int, state: State, act: Sequence[Act]) -> State:
        """Gates i, o, f, c; peepholes i, o, f."""
        name, hidden = stem(layer.ctx), layer.hidden
        h, c = state
        xs, hs = layer.inputs_part(d, t, name), layer.state_part(d, h, name)

        def total(at: int, n: Ix, j: Ix) -> Scalar:
            place = (n, j + at * hidden)
            return xs[place] + hs[place] + layer.bias(d, at, j) + layer.bias(d, at, j, True)

        def peep(at: int, cell: Operand, n: Ix, j: Ix) -> Scalar:
            if peepholes is None:
                return number(0, h.dtype)
            return peepholes[(d, j + at * hidden)] * cell[(n, j)]

        def cell(n: Ix, j: Ix) -> Scalar:
            let_in = act[0](layer.limited(total(0, n, j) + peep(0, c, n, j)))
            forget = act[0](layer.limited(total(2, n, j) + peep(2, c, n, j)))
            if layer.ctx.flag("input_forget", False):
                forget = number(1, h.dtype) - let_in
            return forget * c[(n, j)] + let_in * act[1](layer.limited(total(3, n, j)))

        new_c = compute(c.shape, cell, name=f"{name}_cell")

        def out(n: Ix, j: Ix) -> Scalar:
            let_out = act[0](layer.limited(total(1, n, j) + peep(1, new_c, n, j)))
            return let_out * act[2](new_c[(n, j)])

        return compute(h.shape, out, name=name), new_c

    return step


def _initial(layer: _Layer, d: int, given: Operand | None) -> Operand:
    shape = (layer.batch, layer.hidden)
    if given is None:
        return compute(shape, lambda n, j: number(0, layer.x.dtype), name=f"{stem(layer.ctx)}_zero")
    source: Operand = given

    def of(n: Ix, j: Ix) -> Scalar:
        return source[(n, d, j) if layer.batch_first else (d, n, j)]

    return compute(shape, of, name=f"{stem(layer.ctx)}_initial")


def _activations(ctx: Context, directions: int, defaults: Sequence[str]) -> list[list[Act]]:
    given = ctx.node.attributes.get("activations")
    names = [str(name).lower() for name in given] if isinstance(given, tuple) else list(defaults) * directions
    ctx.require(len(names) == len(defaults) * directions, "activations must be given for each gate")
    for name in names:
        if name not in _ACTIVATIONS:
            raise ctx.unsupported(f"the activation {name!r}")
    width = len(defaults)
    # each activation that has an alpha takes the next one, in order
    alphas, betas = (iter(ctx.reals(f"activation_{which}", ())) for which in ("alpha", "beta"))
    acts = [_of_parameters(_ACTIVATIONS[name], alphas, betas) for name in names]
    return [acts[d * width : (d + 1) * width] for d in range(directions)]


def _of_parameters(known: _Activation, alphas: Iterator[float], betas: Iterator[float]) -> Act:
    alpha = 0.0 if known.alpha is None else next(alphas, known.alpha)
    beta = 0.0 if known.beta is None else next(betas, known.beta)
    return lambda x: known.of(x, alpha, beta)


def _run(
    layer: _Layer, initial: Sequence[Operand | None], step: Step, defaults: Sequence[str]
) -> list[Operand]:
    """All steps in all directions: the sequence of states, the last state, and the last cell, if any."""
    ctx = layer.ctx
    direction = ctx.choice("direction", _DIRECTIONS, "forward")
    directions = 2 if direction == "bidirectional" else 1
    _require_fitting(layer, directions, initial)
    if layer.lengths is not None:
        ctx.limit_indices(_LENGTHS, 0, layer.steps + 1)
    acts = _activations(ctx, directions, defaults)
    history: list[list[Operand]] = []
    last: list[State] = []
    for d in range(directions):
        backwards = direction == "reverse" or d == 1
        state: State = tuple(_initial(layer, d, given) for given in initial)
        made: dict[int, Operand] = {}
        for t in reversed(range(layer.steps)) if backwards else range(layer.steps):
            new = step(layer, d, t, state, acts[d])
            state = tuple(layer.kept(t, n, o, stem(ctx)) for n, o in zip(new, state, strict=True))
            made[t] = _masked(layer, t, new[0])
        history.append([made[t] for t in range(layer.steps)])
        last.append(state)
    return [
        _sequence(layer, history),
        *(_stacked(layer, [s[at] for s in last]) for at in range(len(initial))),
    ]


def _require_fitting(layer: _Layer, directions: int, initial: Sequence[Operand | None]) -> None:
    """Raise ModelError where an input has another shape than those of x, w and r ask for."""
    batch = (layer.batch, directions) if layer.batch_first else (directions, layer.batch)
    states = {f"initial state {at}": (given, (*batch, layer.hidden)) for at, given in enumerate(initial)}
    rows = layer.gates * layer.hidden
    wanted = {
        "weights": (layer.w, (directions, rows, layer.x.shape[2])),
        "recurrence weights": (layer.r, (directions, rows, layer.hidden)),
        "bias": (layer.b, (directions, 2 * rows)),
        "sequence lengths": (layer.lengths, (layer.batch,)),
        **states,
    }
    for what, (given, shape) in wanted.items():
        fits = given is None or given.shape == shape
        found = [] if given is None else list(given.shape)
        layer.ctx.require(fits, f"its {what} {found} must be {list(shape)}")


def _masked(layer: _Layer, t: int, state: Operand) -> Operand:
    """The output of a step: zero where the sequence has ended."""
    lengths = layer.lengths
    if lengths is None:
        return state

    def of(n: Ix, j: Ix) -> Scalar:
        running = lang.cast(lengths[(n,)], "i64") > number(t, "i64")
        return lang.select(running, state[(n, j)], number(0, state.dtype))

    return compute(state.shape, of, name=f"{stem(layer.ctx)}_masked")


def _sequence(layer: _Layer, history: list[list[Operand]]) -> Operand:
    """[steps, directions, batch, hidden], or [batch, steps, directions, hidden]."""
    directions = len(history)

    def pick(t: Ix, d: Ix, n: Ix, j: Ix) -> Scalar:
        parts = [part for steps in zip(*history, strict=True) for part in steps]
        if not parts:
            return number(0, layer.x.dtype)
        return chosen(t * directions + d, range(1, len(parts) + 1), lambda at: parts[at][(n, j)])

    steps, batch, hidden = layer.steps, layer.batch, layer.hidden
    name = f"{stem(layer.ctx)}_sequence"
    if layer.batch_first:
        shape = (batch, steps, directions, hidden)
        return compute(shape, lambda n, t, d, j: pick(t, d, n, j), name=name)
    return compute((steps, directions, batch, hidden), pick, name=name)


def _stacked(layer: _Layer, states: Sequence[Operand]) -> Operand:
    """[directions, batch, hidden], or [batch, directions, hidden]."""

    def pick(d: Ix, n: Ix, j: Ix) -> Scalar:
        first = states[0][(n, j)]
        return first if len(states) == 1 else lang.select(d == 0, first, states[1][(n, j)])

    name = f"{stem(layer.ctx)}_last"
    if layer.batch_first:
        shape = (layer.batch, len(states), layer.hidden)
        return compute(shape, lambda n, d, j: pick(d, n, j), name=name)
    return compute((len(states), layer.batch, layer.hidden), pick, name=name)


def _layer(
    ctx: Context, gates: int, x: Operand, w: Operand, r: Operand, b: Operand | None, lengths: Operand | None
) -> _Layer:
    ctx.require(
        len(x.shape) == 3 and len(w.shape) == 3 and len(r.shape) == 3, "input and weights have rank 3"
    )
    hidden = r.shape[2]
    stated = ctx.integer("hidden_size", hidden)
    ctx.require(stated == hidden, f"hidden_size is {stated}, but its recurrence weights are {list(r.shape)}")
    fits = w.shape[1] == gates * hidden and w.shape[2] == x.shape[2] and r.shape[1] == gates * hidden
    ctx.require(fits, f"weights {list(w.shape)} and {list(r.shape)} do not fit the input {list(x.shape)}")
    clip = ctx.real("clip", 0.0)
    return _Layer(ctx, x, w, r, b, lengths, hidden, gates, ctx.flag("layout", False), clip)


@operator("RNN", kind=Kind.OPAQUE)
def rnn(
    ctx: Context,
    x: Operand,
    w: Operand,
    r: Operand,
    b: Operand | None = None,
    lengths: Operand | None = None,
    initial: Operand | None = None,
) -> list[Operand]:
    """A plain recurrent layer."""
    return _run(_layer(ctx, 1, x, w, r, b, lengths), [initial], _rnn_step, ["tanh"])


@operator("GRU", kind=Kind.OPAQUE)
def gru(
    ctx: Context,
    x: Operand,
    w: Operand,
    r: Operand,
    b: Operand | None = None,
    lengths: Operand | None = None,
    initial: Operand | None = None,
) -> list[Operand]:
    """A layer of gated recurrent units."""
    return _run(_layer(ctx, 3, x, w, r, b, lengths), [initial], _gru_step, ["sigmoid", "tanh"])


@operator("LSTM", kind=Kind.OPAQUE)
def lstm(
    ctx: Context,
    x: Operand,
    w: Operand,
    r: Operand,
    b: Operand | None = None,
    lengths: Operand | None = None,
    initial_h: Operand | None = None,
    initial_c: Operand | None = None,
    peepholes: Operand | None = None,
) -> list[Operand]:
    """A layer of long short-term memory."""
    layer = _layer(ctx, 4, x, w, r, b, lengths)
    return _run(layer, [initial_h, initial_c], _lstm_step(peepholes), ["sigmoid", "tanh", "tanh"])


def _step(
    ctx: Context,
    gates: int,
    products: Operand,
    r: Operand,
    state: State,
    step: Step,
    defaults: Sequence[str],
    b: Operand | None = None,
    clock: Operand | None = None,
    lengths: Operand | None = None,
    candidate: Operand | None = None,
    multiplied: Callable[[Operand, str], Operand] | None = None,
) -> list[Operand]:
    """One step: products [batch, gates * hidden] of inputs, weights [1, gates * hidden, hidden].

    With `candidate` these lack the last gate's rows.

    With lengths, sequences that are shorter than the step that `clock` tells keep their state, and the first
    output is that of the step: the new state, or zero where there is none.
    """
    hidden, clip = state[0].shape[1], ctx.real("clip", 0.0)
    layer = _Layer(ctx, products, r, r, b, None, hidden, gates, True, clip, products, candidate, multiplied)
    made = step(layer, 0, 0, state, _activations(ctx, 1, defaults)[0])
    if clock is None or lengths is None:
        return list(made)
    now, ends = clock, lengths
    repeat = ctx.node.repeat
    ctx.limit_indices(3 + len(state), 0, 1 + (1 if repeat is None else repeat.count))

    def running(n: Ix) -> Scalar:
        return lang.cast(ends[(n,)], "i64") > now[(0,)]

    def chosen_by(new: Operand, old: Operand | None, name: str) -> Operand:
        def of(n: Ix, j: Ix) -> Scalar:
            other = number(0, new.dtype) if old is None else old[(n, j)]
            return lang.select(running(n), new[(n, j)], other)

        return compute(new.shape, of, name=f"{stem(ctx)}_{name}")

    kept = [chosen_by(new, old, "kept") for new, old in zip(made, state, strict=True)]
    return [chosen_by(made[0], None, "masked"), *kept]


@operator("RNNStep", kind=Kind.OPAQUE, domain=OWN)
def rnn_of_one_step(
    ctx: Context,
    products: Operand,
    r: Operand,
    h: Operand,
    clock: Operand | None = None,
    lengths: Operand | None = None,
) -> list[Operand]:
    """The next state of a plain recurrent layer."""
    return _step(ctx, 1, products, r, (h,), _rnn_step, ["tanh"], None, clock, lengths)


@operator("GRUStep", kind=Kind.OPAQUE, domain=OWN)
def gru_of_one_step(
    ctx: Context,
    products: Operand,
    r: Operand,
    h: Operand,
    clock: Operand | None = None,
    lengths: Operand | None = None,
    b: Operand | None = None,
    candidate: Operand | None = None,
) -> list[Operand]:
    """The next state of gated recurrent units; `b` are the biases that are not in the products.

    `candidate` are the weights of the new state's product, where that is a product of its own.
    """
    return _step(ctx, 3, products, r, (h,), _gru_step, ["sigmoid", "tanh"], b, clock, lengths, candidate)


@operator("LSTMStep", kind=Kind.OPAQUE, domain=OWN)
def lstm_of_one_step(
    ctx: Context,
    products: Operand,
    r: Operand,
    h: Operand,
    c: Operand,
    clock: Operand | None = None,
    lengths: Operand | None = None,
    peepholes: Operand | None = None,
    factor: Operand | None = None,
    sums: Operand | None = None,
    zeros: Operand | None = None,
) -> list[Operand]:
    """The next state and cell of long short-term memory; peepholes [3 * hidden].

    With `factor` and what follows the recurrence weights are those of `ByteWeights`.
    """
    given = peepholes
    row = None if given is None else compute((1, *given.shape), lambda _, j: given[(j,)], name="peepholes")
    multiplied = None
    if factor is not None and sums is not None:
        weights = ByteWeights(r, factor, sums, zeros)

        def multiplied(state: Operand, name: str) -> Operand:
            return dynamic_product(_until_end(state, clock, lengths, name), weights, name)

    defaults = ["sigmoid", "tanh", "tanh"]
    step = _lstm_step(row)
    return _step(ctx, 4, products, r, (h, c), step, defaults, None, clock, lengths, multiplied=multiplied)


def _until_end(state: Operand, clock: Operand | None, lengths: Operand | None, name: str) -> Operand:
    """A state without the rows whose sequences ended before the last step: they do not count in its range."""
    if clock is None or lengths is None:
        return state

    def of(n: Ix, k: Ix) -> Scalar:
        counts = lang.cast(lengths[(n,)], "i64") >= clock[(0,)]
        return lang.select(counts, state[(n, k)], number(0, state.dtype))

    return compute(state.shape, of, name=f"{name}_counted")
