"""Contractions by dot-product instructions: which one, along which reduction axis, and where operands lie.

Such an instruction takes ``depth`` neighbours along a reduction axis from both operands. The operand without
the vector axis has them side by side where that axis is its last; the other one is stored with groups of
``depth`` innermost: ``[...][k // depth][n][k % depth]``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tilewright.analysis import Contraction, contiguous_reduction, row_axis, run_length
from tilewright.ir import F32, Binary, Cast, DType, Expr, Load, Mod, Var
from tilewright.plan.contraction.matrix_tiles import MatrixTile, matrix_tile
from tilewright.target import Instruction, Target, find_instruction

#: Axes of an instruction that multiplies whole matrices.
MATRIX_AXES: Final = 3


@dataclass(frozen=True, slots=True)
class Dot:
    """An instruction for a contraction, and the reduction axis whose neighbours it sums."""

    instruction: Instruction
    axis: str


@dataclass(frozen=True, slots=True)
class Matrix(Dot):
    """One that multiplies whole matrices: the parts that it does, and what clears and stores its results."""

    tile: MatrixTile
    clear: str
    store: str


def find_dot(c: Contraction, target: Target) -> Dot | None:
    """The instruction of the target for a contraction's products; ``None`` where there is none."""
    matrix = find_matrix(c, target)
    if matrix is not None:
        return matrix
    found = _factors_and_axis(c)
    if found is None:
        return None
    factors, axis, run = found
    for instruction in target.contractions:
        depth = instruction.depth
        if len(instruction.inner_axes) != 1 or c.extent(axis) % depth or (run or depth) % depth:
            continue
        if not is_fast(instruction, target):
            continue
        if _multiplies(instruction, factors, c):
            return Dot(instruction, axis)
    return None


def find_matrix(c: Contraction, target: Target) -> Matrix | None:
    """The instruction for whole matrices, and how the contraction is cut for it; ``None`` where none fits."""
    row = row_axis(c)
    if row is None or c.guard or c.group is not None or c.rows is not None or c.vector not in c.axes("n"):
        return None
    found = _factors_and_axis(c)
    if found is None or not target.tiles:
        return None
    factors, axis, run = found
    panel = run_length(c.b, c.vector) if c.b is not None and c.dot else None
    for instruction in target.contractions:
        if len(instruction.inner_axes) != MATRIX_AXES or not _multiplies(instruction, factors, c):
            continue
        if c.b is not None and (c.a.dtype, c.b.dtype) != (instruction.a.dtype, instruction.b.dtype):
            # rows are its first operand, panels its second: types may not change places
            continue
        clear = _move(target, instruction, loads=False)
        stores = _move(target, instruction, loads=True)
        depth = run or c.extent(axis)
        tile = matrix_tile(instruction, c.extent(row), c.extent(c.vector), depth, panel=panel, run=c.run)
        if tile is not None and clear and stores:
            return Matrix(instruction, axis, tile, clear, stores)
    return None


def matrix_instructions(dtype: DType, target: Target) -> tuple[Instruction, ...]:
    """The instructions for whole matrices that take rows of a type."""
    return tuple(i for i in target.contractions if len(i.inner_axes) == MATRIX_AXES and i.a.dtype == dtype)


def matrix_depths(dtype: DType, target: Target) -> tuple[int, ...]:
    """How many neighbours of a type the instructions for whole matrices take from each row at once."""
    found = matrix_instructions(dtype, target)
    return tuple(sorted({dict(i.axes)[i.a.axes[-1]] for i in found}, reverse=True))


def is_matrix(c: Contraction) -> bool:
    """Whether an instruction for whole matrices does a contraction's products."""
    return bool(c.dot) and len(find_instruction(c.dot).inner_axes) == MATRIX_AXES


def _move(target: Target, instruction: Instruction, *, loads: bool) -> str:
    """The move that stores results of an instruction to memory, or clears them; empty where there is none."""
    total, scope = instruction.result.dtype, instruction.result.scope
    for move in target.moves:
        source = move.source
        stores = source is not None and source.scope == scope and source.dtype == total
        clears = source is None and move.result.scope == scope and move.result.dtype == total
        if stores if loads else clears:
            return move.name
    return ""


def _factors_and_axis(c: Contraction) -> tuple[tuple[object, object], str, int | None] | None:
    """The types of the factors, the reduction axis whose neighbours lie together in ``a``, and their run."""
    if c.b is None or (c.group is None and c.vector in (v for i in c.a.indices for v in i.vars)):
        return None
    axis, run = contiguous_reduction(c)
    factors = _factors(c)
    return None if axis is None or factors is None else (factors, axis, run)


def _multiplies(instruction: Instruction, factors: tuple[object, object], c: Contraction) -> bool:
    types = [(instruction.a.dtype, instruction.b.dtype), (instruction.b.dtype, instruction.a.dtype)]
    return c.write.value.dtype == instruction.result.dtype and factors in types


def products_rate(factor: DType, total: DType, target: Target) -> float:
    """How many times faster products of two such factors are than multiply-adds of f32, at least 1."""
    best = 1.0
    for instruction in target.contractions:
        types = {instruction.a.dtype, instruction.b.dtype}
        if types == {factor} and instruction.result.dtype == total:
            best = max(best, _rate(instruction, target))
    return best


def is_fast(instruction: Instruction, target: Target) -> bool:
    """Whether an instruction's products are faster than multiply-adds of the same numbers."""
    return not instruction.result.dtype.is_float or _rate(instruction, target) > 1


def _rate(instruction: Instruction, target: Target) -> float:
    """Products of an instruction in the time of one multiply-add of f32."""
    return instruction.products * instruction.per_cycle / (target.fma_per_cycle * target.lanes(F32))


def without_groups(c: Contraction, target: Target) -> Contraction:
    """The contraction with its dot product, where ``b`` is stored for one; else as it is.

    The groups are taken out of the indices of ``b``: what is left is what a vector of lanes moves along.
    """
    found = find_dot(c, target)
    if found is None or c.b is None or not c.b.indices:
        return c
    last = c.b.indices[-1]
    if last.const or len(last.terms) != 1:
        return c
    atom, coefficient = last.terms[0]
    grouped = (
        isinstance(atom, Mod)
        and coefficient == 1
        and atom.divisor == found.instruction.together
        and atom.arg.as_var() == found.axis
    )
    # a whole reduction of one group has no remainder to take
    single = (
        isinstance(atom, Var)
        and atom.name == found.axis
        and c.extent(found.axis) == found.instruction.together
    )
    if not (grouped or (single and coefficient == 1)):
        return c
    return replace(c, b=replace(c.b, indices=c.b.indices[:-1]), dot=found.instruction.name)


def _factors(c: Contraction) -> tuple[object, object] | None:
    """Element types of the two factors, where both are casts of elements to the result's type."""
    value = c.write.value
    assert isinstance(value, Binary)
    old = Load(c.write.buffer, c.write.indices, value.dtype)
    term = value.b if value.a == old else value.a
    if value.op != "add" or not isinstance(term, Binary) or term.op != "mul":
        return None
    kinds = [_element(e) for e in (term.a, term.b)]
    return None if None in kinds else (kinds[0], kinds[1])


def _element(e: Expr) -> object:
    inner = e.a if isinstance(e, Cast) and e.mode == "wrap" else e
    return inner.dtype if isinstance(inner, Load) else None
