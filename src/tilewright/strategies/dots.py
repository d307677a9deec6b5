"""Contractions by dot-product instructions: which one, along which reduction axis, and where operands lie.

Such an instruction takes ``depth`` neighbours along a reduction axis from both operands. The operand without
the vector axis has them side by side where that axis is its last; the other one is stored with groups of
``depth`` innermost: ``[...][k // depth][n][k % depth]``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.ir import Binary, Cast, DType, Expr, Load, Mod, Var
from tilewright.strategies.roles import Contraction, contiguous_reduction
from tilewright.target import Instruction, Target


@dataclass(frozen=True, slots=True)
class Dot:
    """An instruction for a contraction, and the reduction axis whose neighbours it sums."""

    instruction: Instruction
    axis: str


def find_dot(c: Contraction, target: Target) -> Dot | None:
    """The instruction of the target for a contraction's products; ``None`` where there is none."""
    if c.b is None or c.vector in (v for i in c.a.indices for v in i.vars):
        return None
    axis, run = contiguous_reduction(c)
    if axis is None:
        return None
    factors = _factors(c)
    if factors is None:
        return None
    for instruction in target.instructions:
        depth = instruction.depth
        if len(instruction.inner_axes) != 1 or c.extent(axis) % depth or (run or depth) % depth:
            continue
        types = [(instruction.a.dtype, instruction.b.dtype), (instruction.b.dtype, instruction.a.dtype)]
        if c.write.value.dtype == instruction.result.dtype and factors in types:
            return Dot(instruction, axis)
    return None


def products_at_once(factor: DType, total: DType, target: Target) -> int:
    """How many products of two such factors each lane of an instruction sums at once; 1 without one."""
    for instruction in target.instructions:
        types = {instruction.a.dtype, instruction.b.dtype}
        if types == {factor} and instruction.result.dtype == total and len(instruction.inner_axes) == 1:
            return instruction.depth
    return 1


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
        and atom.divisor == found.instruction.depth
        and atom.arg.as_var() == found.axis
    )
    # a whole reduction of one group has no remainder to take
    single = (
        isinstance(atom, Var) and atom.name == found.axis and c.extent(found.axis) == found.instruction.depth
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
