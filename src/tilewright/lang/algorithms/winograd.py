"""Convolutions with 3x3 windows by Winograd's minimal filtering, F(2x2, 3x3) and F(4x4, 3x3).

A tile of ``m x m`` results needs ``(m+2)**2`` products a channel instead of ``9*m**2``: the input tile and
the weights are transformed, multiplied point by point (summed over channels: one matrix product a point),
and the sums transformed back (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016).
A third, leading spatial axis is left as a reduction, so that one input transform serves all of its taps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from tilewright.analysis import reduction_of
from tilewright.ir import (
    CONST,
    I64,
    LOCAL,
    Binary,
    Buffer,
    Cast,
    Compare,
    Condition,
    Const,
    DType,
    Expr,
    If,
    Index,
    Iter,
    Load,
    OfIndex,
    Pred,
    Program,
    Select,
    Stage,
    Unary,
    floordiv,
    ge0,
    index,
    mod,
    stmt_loads,
    store,
    substitute_index,
    var,
)
from tilewright.support import ProgramError

#: Elements of transformed weights that are computed at once: 2 MiB of f64.
PART_OF_WEIGHTS: Final = 1 << 18

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Matrices:
    """Transforms of F(m, 3): of the input, of the weights, and back."""

    input: Matrix
    weight: Matrix
    output: Matrix


#: Lavin and Gray, section 4: points 0, 1, -1 (and 2, -2 for m = 4) and infinity.
MATRICES: Final = MappingProxyType(
    {
        2: Matrices(
            ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
            ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
            ((1, 1, 1, 0), (0, 1, -1, -1)),
        ),
        4: Matrices(
            (
                (4, 0, -5, 0, 1, 0),
                (0, -4, -4, 1, 1, 0),
                (0, 4, -4, -1, 1, 0),
                (0, -2, -1, 2, 1, 0),
                (0, 2, -1, -2, 1, 0),
                (0, 4, 0, -5, 0, 1),
            ),
            (
                (1 / 4, 0, 0),
                (-1 / 6, -1 / 6, -1 / 6),
                (-1 / 6, 1 / 6, -1 / 6),
                (1 / 24, 1 / 12, 1 / 6),
                (1 / 24, -1 / 12, 1 / 6),
                (0, 0, 1),
            ),
            ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
        ),
    }
)


@dataclass(frozen=True, slots=True)
class WinogradMatch:
    """A convolution that the method applies to.

    Iterators of the stage by their part: ``n``, ``oc``, ``rows`` and ``cols`` of the result, the leading
    spatial axis ``depth`` or ``None``, and the reductions. ``data`` and ``weights`` are the loads, ``inside``
    the conditions on rows and columns, ``along`` those on the depth.
    """

    stage: Stage
    n: str
    oc: str
    depth: str | None
    rows: str
    cols: str
    ic: str
    kd: str | None
    kh: str
    kw: str
    data: Load
    weights: Load
    inside: Pred
    along: Pred

    def extent(self, name: str) -> int:
        """Extent of an iterator."""
        return self.stage.extent(name)

    @property
    def dtype(self) -> DType:
        """The type of the arithmetic; the data may be stored in a narrower one."""
        return self.weights.dtype

    @property
    def weight_axes(self) -> tuple[int, ...]:
        """Dimensions of the weights in the order kd (if any), kh, kw, ic, oc."""
        names = [i.as_var() for i in self.weights.indices]
        order = [*([self.kd] if self.kd else []), self.kh, self.kw, self.ic, self.oc]
        return tuple(names.index(name) for name in order)


def match_winograd(program: Program, stage: Stage) -> WinogradMatch | None:
    """The parts of a 3x3 convolution of stride 1 with constant weights, ``None`` for other stages.

    Padding must have become a condition on the stage's terms (``skip_padding``).
    """
    update = reduction_of(stage)
    if update is None:
        return None
    guard = update.guard
    pars = [it.name for it in stage.iters if it.kind == "par"]
    reds = [it.name for it in stage.iters if it.kind == "red"]
    if not all(it.lo == Index(0) and it.extent.is_const for it in stage.iters):
        return None
    if [i.as_var() for i in update.write.indices] != pars or update.old.dtype.name != "f32":
        return None
    constants = {b.name for b in program.inputs if b.scope == CONST and b.layout is None}
    found = update.loaded_factors
    if found is None or len(pars) not in (4, 5) or len(reds) != len(pars) - 1:
        return None
    data, weights = found if found[1].buffer in constants else found[::-1]
    n, oc, *spatial = pars
    names = [i.as_var() for i in weights.indices]
    if (
        weights.dtype != update.old.dtype
        or weights.buffer not in constants
        or set(names) != {oc, *reds}
        or len(names) != len(reds) + 1
    ):
        return None
    uses = [ld for s in program.stages for ld in stmt_loads(s.body) if ld.buffer == weights.buffer]
    taps = _taps(data, n, spatial, reds)
    if len(uses) != 1 or taps is None:
        return None
    ic, windows = taps
    kh, kw = windows[-2:]
    size = {it.name: it.extent.as_int() for it in stage.iters}
    if size[kh] != 3 or size[kw] != 3:
        return None
    depth = spatial[0] if len(spatial) == 3 else None
    kd = windows[0] if len(windows) == 3 else None
    deep = {depth, kd}
    along = tuple(c for c in guard if c.vars <= deep)
    inside = tuple(c for c in guard if not c.vars & deep)
    if not all(c.vars & {kh, kw} for c in inside):
        # not padding of the data: results that are left out, as in a padded layout
        return None
    if len(along) + len(inside) != len(guard) or any(c.index is None for c in guard):
        return None
    if any(not c.vars <= {*spatial, *windows} for c in guard):
        # of results that are padded, not of the image's border
        return None
    return WinogradMatch(
        stage, n, oc, depth, spatial[-2], spatial[-1], ic, kd, kh, kw, data, weights, inside, along
    )


def _taps(data: Load, n: str, spatial: list[str], reds: list[str]) -> tuple[str, list[str]] | None:
    """The channel reduction and the window axis of each spatial axis (rows and columns by single steps)."""
    if len(data.indices) != len(spatial) + 2 or data.indices[0].as_var() not in (n, None):
        return None
    if data.indices[0].as_var() is None and data.indices[0] != Index(0):
        return None
    ic = data.indices[1].as_var()
    if ic not in reds:
        return None
    windows: list[str] = []
    for axis, i in zip(spatial, data.indices[2:], strict=True):
        rest = [v for v in i.vars if v in reds]
        if len(rest) != 1 or i.vars != {axis, rest[0]} or len(i.terms) != 2:
            return None
        if axis in spatial[-2:] and not (i.coefficient(axis) == 1 and i.coefficient(rest[0]) == 1):
            return None
        windows.append(rest[0])
    return (ic, windows) if len(set(windows)) == len(windows) else None


def transform_weights(
    match: WinogradMatch, m: int, array: npt.NDArray[np.generic]
) -> npt.NDArray[np.float32]:
    """Weights ``(xi, nu, [kd,] ic, oc)`` of F(m, 3) from the convolution's own array, computed in f64.

    Some input channels at a time: in f64 all at once would be up to eight times the model's weights, which
    threads' allocators keep.
    """
    g = np.array(MATRICES[m].weight)
    ordered = array.transpose(match.weight_axes)
    *depth, _, _, channels, results = ordered.shape
    sizes = (m + 2, m + 2, *depth, channels, results)
    # A map of its own: what a thread's heap once had at its end stays with the process.
    room = mmap(-1, 4 * prod(sizes), MAP_PRIVATE | MAP_ANONYMOUS) if all(sizes) else bytearray()
    made = np.frombuffer(room, np.float32).reshape(sizes)
    text = "xh,yw,dhwio->xydio" if depth else "xh,yw,hwio->xyio"
    step = max(1, PART_OF_WEIGHTS // max(made.size // max(channels, 1), 1))
    for at in range(0, channels, step):
        part = np.asarray(ordered[..., at : at + step, :], np.float64)
        made[..., at : at + step, :] = np.einsum(text, g, g, part)
    return made


def winograd(program: Program, match: WinogradMatch, m: int, weights: str, tiles: int = 0) -> Program:
    """The program with a convolution done by F(m x m, 3x3), ``m`` 2 or 4.

    The constant input of the convolution's weights is replaced by the constant input ``weights``, which holds
    what :func:`transform_weights` gives. New stages are called after the convolution: ``_rows`` and ``_cols``
    (input transform), ``_points`` (products), ``_lines`` and ``_tiles`` (transform back); the convolution's
    own stage then copies from the tiles, and can be inlined. Equal to the direct method in exact arithmetic;
    in f32 the error relative to the largest result grows to about 4e-7 (m = 2) and 2e-5 (m = 4).

    ``tiles``, if more than there are, is how many tiles the new tensors hold: those past the end are
    zeros, and blocks of tiles can be whole.

    Raises ProgramError for another ``m``.
    """
    if m not in MATRICES:
        raise ProgramError(f"there is no Winograd method for tiles of {m}x{m}", hint="use 2 or 4")
    return _Rewrite(program, match, m, weights, tiles).run()


class _Rewrite:
    def __init__(self, program: Program, match: WinogradMatch, m: int, weights: str, tiles: int) -> None:
        self.program, self.c, self.m, self.weights = program, match, m, weights
        self.alpha = m + 2
        self.matrices = MATRICES[m]
        self.dtype: DType = match.dtype
        self.name = match.stage.name
        self.high = -(-match.extent(match.rows) // m)
        self.wide = -(-match.extent(match.cols) // m)
        self.tiles = max(tiles, self.high * self.wide)
        self.temps: list[Buffer] = []

    def run(self) -> Program:
        """Build the stages and put them where the convolution was."""
        c = self.c
        stages = [self.rows(), self.cols(), self.points(), self.lines(), self.back(), self.result()]
        at = self.program.stages.index(c.stage)
        shape = [self.alpha, self.alpha, *([c.extent(c.kd)] if c.kd else []), c.extent(c.ic), c.extent(c.oc)]
        new = Buffer(self.weights, tuple(index(e) for e in shape), self.dtype, CONST)
        return replace(
            self.program,
            inputs=tuple(new if b.name == c.weights.buffer else b for b in self.program.inputs),
            temps=(*self.program.temps, *self.temps),
            stages=(*self.program.stages[:at], *stages, *self.program.stages[at + 1 :]),
        )

    def make(self, suffix: str, axes: list[tuple[str, int]], value: Expr) -> Stage:
        """A point-wise stage over named axes."""
        name = f"{self.name}_{suffix}"
        self.temps.append(Buffer(name, tuple(index(e) for _, e in axes), self.dtype, LOCAL))
        iters = tuple(Iter(a, Index(0), index(e), "par") for a, e in axes)
        return Stage(
            name, iters, store(name, tuple(var(a) for a, _ in axes), value), None, self.c.stage.source
        )

    def load(self, suffix: str, *indices: Index) -> Load:
        """A load from one of the new buffers."""
        return Load(f"{self.name}_{suffix}", indices, self.dtype)

    def lead(self, depth: bool) -> list[tuple[str, int]]:
        """The axes in front: batch, and the depth of the input or of the result."""
        c = self.c
        axes = [("n", c.extent(c.n))]
        if c.depth is not None:
            axes.append(("d", self.input_depth() if depth else c.extent(c.depth)))
        return axes

    def input_depth(self) -> int:
        """Extent of the input's leading spatial dimension."""
        return self.program.buffer(self.c.data.buffer).shape[2].as_int()

    def rows(self) -> Stage:
        """Input transform along the rows of each tile."""
        c, a = self.c, self.alpha
        axes = [*self.lead(True), ("t", self.tiles), ("x", a), ("b", a), ("c", c.extent(c.ic))]
        value = self.chosen("x", self.matrices.input, [self.read(k) for k in range(a)])
        return self.make("rows", axes, value)

    def read(self, k: int) -> Expr:
        """Element (k, b) of an input tile, zero where padding is."""
        c, m = self.c, self.m
        place = {
            c.rows: floordiv(var("t"), self.wide) * m,
            c.kh: index(k),
            c.cols: mod(var("t"), self.wide) * m,
            c.kw: var("b"),
            c.n: var("n"),
            c.ic: var("c"),
        }
        indices = [substitute_index(i, place) for i in c.data.indices]
        if c.depth is not None:
            indices[2] = var("d")
        loaded: Expr = Load(c.data.buffer, tuple(indices), c.data.dtype)
        if c.data.dtype != self.dtype:
            loaded = Cast(loaded, self.dtype)
        wanted = [Condition("ge", substitute_index(x.index, place)) for x in c.inside if x.index is not None]
        shape = self.program.buffer(c.data.buffer).shape
        for extent, i in zip(shape[-2:], indices[-2:], strict=True):
            # partial tiles reach past the end also where there is no padding
            wanted.append(ge0(extent - 1 - i))
        test: Expr | None = None
        for x in dict.fromkeys(wanted):
            assert x.index is not None
            one = Compare("ge", OfIndex(x.index, I64), OfIndex(Index(0), I64))
            test = one if test is None else Binary("and", test, one)
        return loaded if test is None else Select(test, loaded, Const(0.0, self.dtype))

    def cols(self) -> Stage:
        """Input transform along the columns."""
        c, a = self.c, self.alpha
        axes = [*self.lead(True), ("x", a), ("y", a), ("t", self.tiles), ("c", c.extent(c.ic))]
        lead = [var(name) for name, _ in self.lead(True)]
        loads: list[Expr] = [
            self.load("rows", *lead, var("t"), var("x"), index(k), var("c")) for k in range(a)
        ]
        return self.make("cols", axes, self.chosen("y", self.matrices.input, loads))

    def points(self) -> Stage:
        """One matrix product a point of the transformed tiles."""
        c, a = self.c, self.alpha
        axes = [*self.lead(False), ("x", a), ("y", a), ("t", self.tiles), ("o", c.extent(c.oc))]
        iters = [Iter(name, Index(0), index(e), "par") for name, e in axes]
        if c.kd is not None:
            iters.append(Iter("kd", Index(0), index(c.extent(c.kd)), "red"))
        iters.append(Iter("c", Index(0), index(c.extent(c.ic)), "red"))
        name = f"{self.name}_points"
        self.temps.append(Buffer(name, tuple(index(e) for _, e in axes), self.dtype, LOCAL))
        here = tuple(var(a) for a, _ in axes)
        lead = [var("n")]
        guard: Pred = ()
        if c.depth is not None and c.kd is not None:
            place = {c.depth: var("d"), c.kd: var("kd")}
            lead.append(substitute_index(c.data.indices[2], place))
            guard = tuple(
                Condition("ge", substitute_index(x.index, place)) for x in c.along if x.index is not None
            )
        data = self.load("cols", *lead, var("x"), var("y"), var("t"), var("c"))
        taps = [var("kd")] if c.kd is not None else []
        weight = Load(self.weights, (var("x"), var("y"), *taps, var("c"), var("o")), self.dtype)
        product = Binary("mul", data, weight)
        body = store(name, here, Binary("add", Load(name, here, self.dtype), product))
        return Stage(
            name,
            tuple(iters),
            If(guard, body) if guard else body,
            store(name, here, Const(0.0, self.dtype)),
            c.stage.source,
        )

    def lines(self) -> Stage:
        """Transform back along the rows."""
        c, m, a = self.c, self.m, self.alpha
        lead = [var(name) for name, _ in self.lead(False)]
        axes = [*self.lead(False), ("t", self.tiles), ("i", m), ("y", a), ("o", c.extent(c.oc))]
        loads: list[Expr] = [
            self.load("points", *lead, index(k), var("y"), var("t"), var("o")) for k in range(a)
        ]
        return self.make("lines", axes, self.chosen("i", self.matrices.output, loads))

    def back(self) -> Stage:
        """Transform back along the columns."""
        c, m, a = self.c, self.m, self.alpha
        lead = [var(name) for name, _ in self.lead(False)]
        axes = [*self.lead(False), ("t", self.tiles), ("i", m), ("j", m), ("o", c.extent(c.oc))]
        loads: list[Expr] = [
            self.load("lines", *lead, var("t"), var("i"), index(k), var("o")) for k in range(a)
        ]
        return self.make("tiles", axes, self.chosen("j", self.matrices.output, loads))

    def result(self) -> Stage:
        """The convolution's own tensor, read from the tiles."""
        c, m = self.c, self.m
        row, col = var(c.rows), var(c.cols)
        lead = [var(c.n), *([var(c.depth)] if c.depth is not None else [])]
        tile = floordiv(row, m) * self.wide + floordiv(col, m)
        value = self.load("tiles", *lead, tile, mod(row, m), mod(col, m), var(c.oc))
        iters = tuple(it for it in c.stage.iters if it.kind == "par")
        buffer = c.stage.writes[0]
        here = tuple(var(it.name) for it in iters)
        return Stage(self.name, iters, store(buffer, here, value), None, c.stage.source)

    def chosen(self, axis: str, matrix: Matrix, terms: list[Expr]) -> Expr:
        """The row of ``matrix`` that ``axis`` says, applied to ``terms``."""
        rows = [_combination(row, terms, self.dtype) for row in matrix]
        out = rows[-1]
        for k in reversed(range(len(rows) - 1)):
            here = Compare("eq", OfIndex(var(axis), I64), OfIndex(index(k), I64))
            out = Select(here, rows[k], out)
        return out


def _combination(row: tuple[float, ...], terms: list[Expr], dtype: DType) -> Expr:
    """``sum(row[k] * terms[k])``, even and odd places apart: rows of opposite points share both sums."""
    even = _sum([(c, t) for k, (c, t) in enumerate(zip(row, terms, strict=True)) if c and k % 2 == 0], dtype)
    odd = _sum([(c, t) for k, (c, t) in enumerate(zip(row, terms, strict=True)) if c and k % 2], dtype)
    if even is None or odd is None:
        only = even or odd
        assert only is not None
        return _signed(*only)
    (sign_even, a), (sign_odd, b) = even, odd
    if sign_even > 0:
        return Binary("add" if sign_odd > 0 else "sub", a, b)
    return Binary("sub", b, a) if sign_odd > 0 else _signed(-1, Binary("add", a, b))


def _signed(sign: int, e: Expr) -> Expr:
    return e if sign > 0 else Unary("neg", e)


def _sum(items: list[tuple[float, Expr]], dtype: DType) -> tuple[int, Expr] | None:
    """A sum and the sign in front of it, chosen so that the last coefficient is positive."""
    if not items:
        return None
    sign = 1 if items[-1][0] > 0 else -1
    out: Expr | None = None
    for c, t in reversed(items):
        c *= sign
        if out is None:
            out = t if c == 1 else Binary("mul", t, Const(c, dtype))
        elif abs(c) == 1:
            out = Binary("add" if c > 0 else "sub", out, t)
        else:
            out = Binary("add", out, Binary("mul", t, Const(c, dtype)))
    assert out is not None
    return sign, out
