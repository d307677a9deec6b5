"""Templates: the layouts that an operator's tensors may have, as a few tunable factors (ALT, Sec. 5.1).

Of a result with images H, W and channels O: ``N · H/ht · W/wt · O/ot · ht · wt · ot``; with two levels
``N · H/(ht' ht) · W/(wt' wt) · O/(ot' ot) · ht' · wt' · ot' · ht · wt · ot``. Data follow the result's image
tiles, by overlapping tiles where windows slide over them; their channels are tiled by ``it``. Weights are
tiled by ``ot'`` and ``it'``, or lie as the loops want them. Products: ``M/mt · N/nt · mt · nt`` and its like.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Final, Literal, TypeAlias

from tilewright.analysis import Operand, Operator
from tilewright.ir import CONST, F32, Program
from tilewright.schedule import Step
from tilewright.target import Target

Kind = Literal["tile", "choice"]
Point: TypeAlias = tuple[int, ...]
"""A value for each factor of a layout space, in order."""

#: What the choice ``data`` stands for besides 0, as it is, and 1, laid out: of padded data their source is.
FROM_SOURCE: Final = 2
#: The choice of the direct method where the default's is another one: it is made with layouts, as plans are.
DIRECT: Final = "direct"
#: Vectors that a tile of channels may hold which does not divide them.
PADDED_VECTORS: Final = (1, 2)


@dataclass(frozen=True, slots=True)
class Factor:
    """One tunable number of a template: a tile of a dimension of ``extent`` elements, or a choice.

    ``options`` are the values in increasing order; of a choice those from 0 on.
    """

    name: str
    kind: Kind
    extent: int
    options: tuple[int, ...]

    def pick(self, part: float) -> int:
        """The value that an action in (0, 1) stands for.

        Of a tile the feasible one nearest to ``extent * part`` (ALT, formula 2), by the logarithm.
        """
        if self.kind == "choice":
            return self.options[min(int(part * len(self.options)), len(self.options) - 1)]
        wanted = log(max(1.0, self.extent * part))
        return min(self.options, key=lambda value: (abs(log(value) - wanted), value))


@dataclass(frozen=True, slots=True, eq=False)
class LayoutSpace:
    """The layouts of an operator's tensors that may be chosen, as points over ``factors``.

    ``movable`` are the tensors that they lay out; a vector register has ``lanes`` elements.
    """

    program: Program
    operator: Operator
    factors: tuple[Factor, ...]
    movable: frozenset[str]
    lanes: int

    def direct(self, point: Point) -> bool:
        """Whether a point keeps to the direct method."""
        return bool(self.value(point, DIRECT, 0))

    def value(self, point: Point, name: str, otherwise: int) -> int:
        """The factor of that name at a point, if the space has it."""
        for factor, value in zip(self.factors, point, strict=True):
            if factor.name == name:
                return value
        return otherwise

    def steps(self, point: Point) -> tuple[Step, ...]:
        """The program-phase steps that lay the tensors out so."""
        op = self.operator
        tiles = {d: self.value(point, f"space{d}", op.extents[d]) for d in op.space}
        outer = {d: self.value(point, f"space{d}'", 1) for d in op.space}
        tiles[op.channel] = self.value(point, "channel", 1)
        outer[op.channel] = self.value(point, "channel'", 1)
        found: list[Step] = []
        order = (*op.space, op.channel)
        if self.value(point, "result", 0):
            texts = _places(op.extents, order, tiles, outer)
            found += [Step("layout_place", (name, texts)) for name in op.results if name in self.movable]
            # what is computed in blocks to be put in order afterwards need not be
            temps = {b.name for b in self.program.temps if b.layout is not None}
            found += [Step("layout_place", (name, ())) for name in op.results if name in temps]
            if self.value(point, "follow", 0):
                found += [Step("layout_adopt", (n,)) for n in op.results if n in self.movable]
        stored = self.value(point, "data", 0)
        if stored:
            found += self._data(point, tiles, from_source=stored == FROM_SOURCE)
        if self.value(point, "weight", 0):
            found += self._weight(point)
        return tuple(found)

    def _data(self, point: Point, tiles: dict[int, int], *, from_source: bool) -> list[Step]:
        data, op = self.operator.data, self.operator
        if from_source and op.source is not None:
            shape = self.program.buffer(op.source).shape
            data = replace(data, tensor=op.source, extents=tuple(n.as_int() for n in shape))
        own: dict[int, int] = {}
        unfolds: list[tuple[int, int, int]] = []
        for dim, (at, window) in enumerate(zip(data.result_dims, data.windows, strict=True)):
            if at not in op.space:
                continue
            tile = tiles[at]
            if window is None:
                own[dim] = min(tile, data.extents[dim])
            elif tile < op.extents[at] and self.value(point, "unfold", 0) and not from_source:
                unfolds.append((dim, window.stride * (tile - 1) + window.reach, window.stride * tile))
        channel = _channel_of(data, op)
        if channel is not None:
            own[channel] = self.value(point, "data channel", 1)
        space = [d for d, at in enumerate(data.result_dims) if at in op.space]
        order = [*space, *([] if channel is None else [channel])]
        if not unfolds:
            return [Step("layout_place", (data.tensor, _places(data.extents, order, own, {})))]
        return _unfolded(data, order, own, unfolds)

    def _weight(self, point: Point) -> list[Step]:
        weight, op = self.operator.weight, self.operator
        out = [d for d, at in enumerate(weight.result_dims) if at == op.channel]
        summed = _summed(weight)
        tiles = {d: self.value(point, "weight out", 1) for d in out}
        tiles |= {d: self.value(point, "weight in", 1) for d in summed[:1]}
        # O/ot' · I/it' · KH · KW · it' · ot'
        outer = [d for d in (*out, *summed[:1]) if tiles[d] < weight.extents[d]]
        rest = [d for d in range(len(weight.extents)) if d not in (*out, *summed[:1])]
        inner = [d for d in (*summed[:1], *out) if tiles[d] > 1]
        texts = [*(_outer(d, tiles[d]) for d in outer), *(f"d{d}" for d in rest)]
        texts += [_inner(d, tiles[d], weight.extents[d]) for d in inner]
        return [Step("layout_place", (weight.tensor, tuple(texts)))]


def layout_space(
    program: Program,
    operator: Operator,
    free: Collection[str],
    target: Target,
    levels: int = 1,
    *,
    algorithms: bool = False,
) -> LayoutSpace:
    """The layouts of an operator's tensors; of arguments those in ``free`` may be laid out, and constants.

    ``levels`` is 1 or 2: how often a result is tiled. ``algorithms`` says that there is a choice between the
    direct method and another one.
    """
    constants = {b.name for b in program.inputs if b.scope == CONST}
    temps = {b.name for b in program.temps}
    arguments = {b.name for b in (*program.inputs, *program.outputs)}
    lanes = target.lanes(F32)
    factors: list[Factor] = []
    kept = [name for name in operator.results if name in arguments]
    movable = {name for name in kept if name in free}
    dims = (*operator.space, operator.channel)
    if movable and len(movable) == len(kept):
        factors += [Factor("result", "choice", 2, (0, 1)), Factor("follow", "choice", 2, (0, 1))]
        for d in dims:
            n = operator.extents[d]
            name = "channel" if d == operator.channel else f"space{d}"
            factors.append(_tile(name, n, lanes if d == operator.channel else 0))
            if levels > 1:
                factors.append(_tile(f"{name}'", n, 0))
    else:
        movable = set()
    data = operator.data
    if data.tensor in free or data.tensor in temps:
        source = operator.source if operator.source in free else None
        factors.append(Factor("data", "choice", 3, (0, 1) if source is None else (0, 1, FROM_SOURCE)))
        movable |= {data.tensor} if source is None else {data.tensor, source}
        if operator.windowed and any(f.name.startswith("space") for f in factors):
            factors.append(Factor("unfold", "choice", 2, (0, 1)))
        channel = _channel_of(data, operator)
        if channel is not None:
            factors.append(_tile("data channel", data.extents[channel], lanes))
    weight = operator.weight
    if weight.tensor in constants or weight.tensor in free:
        factors.append(Factor("weight", "choice", 2, (0, 1)))
        movable.add(weight.tensor)
        out = [d for d, at in enumerate(weight.result_dims) if at == operator.channel]
        if out:
            factors.append(_tile("weight out", weight.extents[out[0]], lanes))
        if _summed(weight):
            factors.append(_tile("weight in", weight.extents[_summed(weight)[0]], 0))
    if algorithms:
        factors.append(Factor(DIRECT, "choice", 2, (0, 1)))
    return LayoutSpace(program, operator, tuple(factors), frozenset(movable), lanes)


def _tile(name: str, extent: int, lanes: int) -> Factor:
    """All divisors; with ``lanes`` also full vectors that do not divide, the rest of which is padding."""
    options = {n for n in range(1, extent + 1) if extent % n == 0}
    if lanes:
        options |= {k * lanes for k in PADDED_VECTORS if k * lanes < extent}
    return Factor(name, "tile", extent, tuple(sorted(options)))


def _channel_of(data: Operand, op: Operator) -> int | None:
    """The dimension of the data that is summed, or the depthwise channel."""
    summed = _summed(data)
    along = [d for d, at in enumerate(data.result_dims) if at == op.channel]
    found = summed or along
    return found[0] if found else None


def _summed(operand: Operand) -> list[int]:
    """Dimensions that only a reduction moves along, the widest first: channels before taps."""
    found = [d for d, at in enumerate(operand.result_dims) if at is None]
    return sorted(found, key=lambda d: -operand.extents[d])


def _places(
    extents: Sequence[int], order: Sequence[int], tiles: dict[int, int], second: dict[int, int]
) -> tuple[str, ...]:
    """The template: dimensions that are not tiled, tiles' numbers, then what is in tiles, level by level."""
    whole = [f"d{d}" for d in range(len(extents)) if d not in order]
    size = {d: tiles.get(d, extents[d]) for d in order}
    # a second level must divide what is left; else there is one
    both = {d: size[d] * second.get(d, 1) for d in order}
    both = {d: n if n <= extents[d] else size[d] for d, n in both.items()}
    outer = [_outer(d, both[d]) for d in order if both[d] < extents[d]]
    middle = [
        _inner(d, both[d], extents[d]) + (f"//{size[d]}" if size[d] > 1 else "")
        for d in order
        if both[d] > size[d]
    ]
    inner = [_inner(d, size[d], extents[d]) for d in order if size[d] > 1]
    return (*whole, *outer, *middle, *inner)


def _outer(dim: int, tile: int) -> str:
    return f"d{dim}//{tile}" if tile > 1 else f"d{dim}"


def _inner(dim: int, tile: int, extent: int) -> str:
    return f"d{dim}%{tile}" if tile < extent else f"d{dim}"


def _unfolded(
    data: Operand, order: Sequence[int], tiles: dict[int, int], unfolds: Sequence[tuple[int, int, int]]
) -> list[Step]:
    """Overlapping tiles first, which make new dimensions; then where the elements of the new shape lie."""
    name = data.tensor
    steps = [Step("layout_place", (name, ()))]
    extents = list(data.extents)
    at = list(range(len(extents)))  # where each dimension is now
    for dim, tile, stride in sorted(unfolds, reverse=True):
        tile = min(tile, data.extents[dim])
        steps.append(Step("layout_unfold", (name, dim, tile, stride)))
        extents[dim : dim + 1] = [-(-(data.extents[dim] - tile) // stride) + 1, tile]
        at = [n + (d > dim) for d, n in enumerate(at)]
    cut = {dim for dim, _, _ in unfolds}
    whole = [f"d{at[d]}" for d in range(len(at)) if d not in order]
    outer, inner = [], []
    for d in order:
        if d in cut:
            outer.append(f"d{at[d]}")
            inner.append(f"d{at[d] + 1}")
        else:
            tile, extent = tiles.get(d, data.extents[d]), data.extents[d]
            outer += [_outer(at[d], tile)] if tile < extent else []
            inner += [_inner(at[d], tile, extent)] if tile > 1 else []
    return [*steps, Step("layout_place", (name, (*whole, *outer, *inner)))]
