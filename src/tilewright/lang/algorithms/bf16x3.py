"""Products of f32 numbers by three products of bf16 numbers, where those are much faster.

A number is about the sum of two pieces, ``high = bf16(x)`` and ``low = bf16(x - high)``: 16 of its 24 digits.
Of the four products of two numbers' pieces three are summed up, in f32::

    x * y  ~  high(x) * high(y)  +  high(x) * low(y)  +  low(x) * high(y)

What is left out is at most ``2**-15`` of ``|x * y|``: ``2**-16`` for the product of the low pieces and
``2**-17`` for what the pieces of each number do not hold. (Henry, Tang, Heinecke: "Leveraging the bfloat16
Artificial Intelligence Datatype For Higher-Precision Computations", ARITH 2019, section III; known as
bf16x3.) These errors have any sign: sums of many such products err by 3e-6 to 6e-6 of the largest one, as
Winograd's method with tiles of 4 does, the direct method by 3e-7.

Which pieces are multiplied is an iterator of the sum, 0, 1 or 2, of which one operand takes the quotient by
2 and the other one the remainder: whatever does products of bf16 sees an ordinary contraction. Where
instructions take numbers below the least normal one, 1e-38, for zero, low pieces below that are lost; an
infinite factor makes the results that it enters NaN, as in Winograd's method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from tilewright.analysis import reduction_of
from tilewright.ir import (
    BF16,
    CONST,
    F32,
    I64,
    Binary,
    Buffer,
    Cast,
    Compare,
    Expr,
    Index,
    IndexMap,
    Iter,
    Load,
    OfIndex,
    Program,
    Select,
    Stage,
    floordiv,
    index,
    map_loads,
    mod,
    stmt_loads,
    store,
    var,
)

#: Pieces of a number.
PIECES: Final = 2
#: Products of pieces that are summed up: of ``q`` in this range, piece ``q // 2`` times piece ``q % 2``.
PRODUCTS: Final = 3


@dataclass(frozen=True, slots=True)
class SumMatch:
    """A sum of products of two f32 tensors' elements, perhaps under a condition.

    ``constant`` says whether the second operand is a constant input that nothing else reads.
    """

    stage: Stage
    data: Load
    other: Load
    constant: bool

    @property
    def pieces(self) -> str:
        """The tensor of the first operand's pieces, and the stage that makes it."""
        return f"{self.stage.name}_pieces"

    @property
    def other_pieces(self) -> str:
        """The tensor of the second operand's pieces, if no constant, and the stage that makes it."""
        return f"{self.stage.name}_factors"

    @property
    def which(self) -> str:
        """The iterator over the products of pieces."""
        taken = {it.name for it in self.stage.iters}
        return next(name for name in ("piece", "pieces", "which_piece") if name not in taken)


def match_sum(program: Program, stage: Stage) -> SumMatch | None:
    """The operands of a sum of products of f32 elements, ``None`` for other stages.

    The second operand is the constant one, if there is one.
    """
    update = reduction_of(stage)
    if update is None or update.old.dtype != F32 or not all(it.extent.is_const for it in stage.iters):
        return None
    found = update.loaded_factors
    if found is None or {ld.dtype for ld in found} != {F32} or found[0].buffer == found[1].buffer:
        return None
    buffers = [program.buffer(ld.buffer) for ld in found]
    if any(b.layout is not None and b.scope == CONST for b in buffers):
        return None
    if not all(e.is_const for b in buffers for e in b.shape):
        return None
    swapped = buffers[0].scope == CONST and buffers[1].scope != CONST
    data, other = found[::-1] if swapped else found
    constant = program.buffer(other.buffer).scope == CONST
    uses = [ld for s in program.stages for ld in stmt_loads(s.body) if ld.buffer == other.buffer]
    return SumMatch(stage, data, other, constant and len(uses) == 1)


def pieces_of(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Both pieces of each number, in a last dimension: what takes a constant operand's place."""
    given = np.asarray(array, np.float32)
    high = given.astype(BF16.numpy)
    low = (given - high.astype(np.float32)).astype(BF16.numpy)
    return np.stack([high, low], axis=-1)


def bf16x3(
    program: Program, match: SumMatch, weights: str = "", panels: tuple[int, int] | None = None
) -> Program:
    """The program with a sum done by products of pieces, three for each of its products.

    The first operand's pieces are made by a stage ``<sum>_pieces``, the second's by ``<sum>_factors``;
    those of a constant are its argument ``weights`` instead, which holds what :func:`pieces_of` gives.
    With ``panels`` the second operand is a matrix of reduction and columns, and its pieces lie in panels of
    so many columns, each in groups of so many neighbours along the reduction:
    ``[column // n][k // g][piece][column % n][k % g]``.
    """
    stage, which = match.stage, var(match.which)
    made = [_split(program, match.data, match.pieces, stage)]
    inputs = program.inputs
    if match.constant:
        old = program.buffer(match.other.buffer)
        new = Buffer(weights, (*old.shape, index(PIECES)), BF16, CONST)
        inputs = tuple(new if b.name == old.name else b for b in inputs)
    else:
        maker, buffer = _split(program, match.other, match.other_pieces, stage)
        made.append((maker, buffer if panels is None else buffer.with_(layout=_in_panels(buffer, *panels))))
    instead = {
        match.data: _piece(match.data, match.pieces, floordiv(which, PIECES)),
        match.other: _piece(
            match.other, weights if match.constant else match.other_pieces, mod(which, PIECES)
        ),
    }
    body = map_loads(stage.body, lambda ld: instead.get(ld, ld))
    iters = (*stage.iters, Iter(match.which, Index(0), index(PRODUCTS), "red"))
    at = program.stages.index(stage)
    return replace(
        program,
        inputs=inputs,
        temps=(*program.temps, *(buffer for _, buffer in made)),
        stages=(
            *program.stages[:at],
            *(new_stage for new_stage, _ in made),
            replace(stage, body=body, iters=iters),
            *program.stages[at + 1 :],
        ),
    )


def _in_panels(b: Buffer, width: int, group: int) -> IndexMap:
    """The layout of a matrix' pieces in panels; both numbers must divide its extents."""
    dims = ("d0", "d1", "d2")
    k, column, piece = map(var, dims)
    exprs = (floordiv(column, width), floordiv(k, group), piece, mod(column, width), mod(k, group))
    depth, columns, pieces = b.shape
    shape = (floordiv(columns, width), floordiv(depth, group), pieces, index(width), index(group))
    return IndexMap(dims, exprs, shape)


def _piece(ld: Load, buffer: str, which: Index) -> Expr:
    return Cast(Load(buffer, (*ld.indices, which), BF16), F32)


def _split(program: Program, ld: Load, name: str, of: Stage) -> tuple[Stage, Buffer]:
    """The stage that makes the pieces of all elements of a tensor, and their tensor."""
    shape = program.buffer(ld.buffer).shape
    names = [f"d{n}" for n in range(len(shape))]
    iters = tuple(Iter(d, Index(0), extent, "par") for d, extent in zip(names, shape, strict=True))
    piece = Iter("piece", Index(0), index(PIECES), "par")
    here = tuple(map(var, names))
    x = Load(ld.buffer, here, F32)
    high = Cast(x, BF16)
    low = Cast(Binary("sub", x, Cast(high, F32)), BF16)
    first = Compare("eq", OfIndex(var("piece"), I64), OfIndex(index(0), I64))
    body = store(name, (*here, var("piece")), Select(first, high, low))
    return (
        Stage(name, (*iters, piece), body, None, of.source),
        Buffer(name, (*shape, index(PIECES)), BF16),
    )


#: Rows of the sample in which errors are measured: half of them of normal numbers, half of absolute values.
ROWS: Final = 16
#: Results of each row in that sample: those with the largest weights, which decide both error and result.
COLUMNS: Final = 32


def bf16x3_error(match: SumMatch, array: npt.NDArray[np.generic]) -> float:
    """``max|error| / max|result|`` of the method with the constant operand ``array``, in f32 as in kernels.

    The other operand is random, the same in each call; the reference is the direct method in f64. NaN or
    infinite where the method leaves the range of f32.
    """
    reds = {it.name for it in match.stage.iters if it.kind == "red"}
    summed = [d for d, i in enumerate(match.other.indices) if reds & i.vars]
    given = np.moveaxis(np.asarray(array, np.float32), summed, range(len(summed)))
    matrix = given.reshape(int(np.prod(given.shape[: len(summed)])), -1)
    with np.errstate(all="ignore"):
        norms = np.einsum("kn,kn->n", matrix, matrix, dtype=np.float64)
        some = np.ascontiguousarray(matrix[:, np.argsort(-norms, kind="stable")[:COLUMNS]])
        x = np.random.default_rng(0).standard_normal((ROWS, len(some)), np.float32)
        x[1::2] = np.abs(x[1::2])
        a, b = (pieces_of(each).astype(np.float32) for each in (x, some))
        found = sum(a[..., which // PIECES] @ b[..., which % PIECES] for which in reversed(range(PRODUCTS)))
        exact = x.astype(np.float64) @ some.astype(np.float64)
        error = np.abs(found - exact).max()
        return float(error / np.abs(exact).max()) if error != 0 else 0.0
