"""Contractions by instructions: all mappings that register tiles carry out, and the cheapest of them.

The mapper says how an instruction's axes and operands can be the contraction's; here remain those whose
lanes or columns are the vectors of the result and whose reduction is what lies together in ``a``. The other
operand, ``b``, is stored as the mapping needs it: groups of neighbours along the reduction innermost,
``[...][k // group][n][k % group]``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Final

from tilewright.analysis import Contraction, contiguous_reduction, row_axis, run_length
from tilewright.cost import execution_cycles, is_fast, multiply_add_cycles
from tilewright.ir import DType, FloorDiv, Index, Load, Mod, Stage, Var, map_loads
from tilewright.mapping import (
    LayoutNeed,
    Mapping,
    Needle,
    ThreeOperandForm,
    match_form,
    three_operand_form,
)
from tilewright.plan.contraction.matrix_tiles import MatrixTile, matrix_axes, matrix_tile, tile_cost
from tilewright.support import ProgramError
from tilewright.target import Instruction, Target

#: Axes of an instruction that multiplies whole matrices.
MATRIX_AXES: Final = 3
#: Stages whose mappings are remembered: a unit's rules ask for each of its contractions some ten times.
REMEMBERED: Final = 1024


@dataclass(frozen=True, slots=True)
class InstructionUse:
    """An instruction for a contraction's products: a mapping onto it, as a value of plans.

    ``instruction`` is the row's name and ``digest`` what it means; ``axes`` are its axes with the
    contraction's, ``layouts`` how its operands must lie. It sums ``depth`` neighbours along ``axis``, of
    which ``group`` lie together in ``b``. One for whole matrices does the parts in ``tile``, of results that
    the moves ``clear`` and ``store`` begin and put into memory.
    """

    instruction: str
    digest: str
    axis: str
    depth: int
    group: int
    axes: tuple[tuple[str, str], ...]
    layouts: tuple[LayoutNeed, ...]
    tile: MatrixTile | None = None
    clear: str = ""
    store: str = ""


@dataclass(frozen=True, slots=True)
class Priced:
    """A use, and its cycles by the model on one core."""

    use: InstructionUse
    cycles: float


@dataclass(frozen=True, slots=True)
class Mapped(Contraction):
    """A contraction by an instruction: the groups that it sums are taken out of the indices of ``b``."""

    use: InstructionUse = field(kw_only=True)


def use_of(c: Contraction) -> InstructionUse | None:
    """The instruction that does a contraction's products; ``None`` for multiply-adds."""
    return c.use if isinstance(c, Mapped) else None


def tile_of(c: Contraction) -> MatrixTile | None:
    """The parts of a contraction that an instruction for whole matrices does; ``None`` for others."""
    return c.use.tile if isinstance(c, Mapped) else None


def select_instruction(c: Contraction, target: Target, packing: float = 0.0) -> InstructionUse | None:
    """The instruction with the fewest cycles for a contraction; ``None`` where multiply-adds take fewer.

    ``packing`` are the cycles, at run time, until ``b`` is stored as instructions need it.
    """
    found = instruction_uses(c, target)
    best = min(found, key=lambda each: each.cycles, default=None)
    if best is None:
        return None
    assert c.b is not None
    products = prod(it.extent.as_int() for it in c.stage.iters)
    plain = multiply_add_cycles(products, c.b.dtype, c.write.value.dtype, target)
    return best.use if best.cycles + packing < plain else None


def instruction_uses(c: Contraction, target: Target) -> tuple[Priced, ...]:
    """All instructions for a contraction, in the target's order."""
    if c.b is None or (c.group is None and c.vector in (v for i in c.a.indices for v in i.vars)):
        return ()
    axis, run = contiguous_reduction(c)
    if axis is None or not c.extent(axis):
        return ()  # sums of nothing are zeros
    out: list[Priced] = []
    for row in target.contractions:
        if not _is_alike(row, c):
            continue
        for mapping, names in _mappings(c.stage, row):
            found = _use(c, row, mapping, names, axis, run, target)
            if found is not None:
                out.append(found)
    return tuple(out)


def has_instructions(c: Contraction, target: Target) -> bool:
    """Whether the target has instructions of a contraction's element types, wherever its operands lie."""
    return c.b is not None and any(_is_alike(row, c) for row in target.contractions)


def stored_for_instruction(c: Contraction, target: Target) -> Contraction:
    """The contraction by its instruction, where ``b`` is stored as that needs it; else as it is."""
    found = select_instruction(c, target)
    if found is None or c.b is None or not c.b.indices or not _ends_in_groups(c, c.b, found):
        return c
    given = {name: getattr(c, name) for name in Contraction.__dataclass_fields__}
    made = Mapped(**(given | {"b": replace(c.b, indices=c.b.indices[:-1])}), use=found)
    if found.tile is None:
        return made
    # panels that are stored already say how many columns are done together
    panel = run_length(made.b, c.vector) if made.b is not None else None
    row, (_, run) = target.operations[found.instruction], contiguous_reduction(c)
    tile = _tile(c, row, row_axis(c), run or c.extent(found.axis), panel)
    return c if tile is None else replace(made, use=replace(found, tile=tile))


def matrix_runs(dtype: DType, target: Target) -> tuple[int, ...]:
    """How many neighbours of a type instructions for whole matrices take of a row, the most first."""
    found = (dict(row.axes)[row.a.axes[-1]] for row in target.contractions if _takes_rows(row, dtype))
    return tuple(sorted(set(found), reverse=True))


def matrix_instruction(dtype: DType, target: Target) -> Instruction | None:
    """An instruction for whole matrices that takes rows of a type."""
    return next((row for row in target.contractions if _takes_rows(row, dtype)), None)


def _takes_rows(row: Instruction, dtype: DType) -> bool:
    return len(row.inner_axes) == MATRIX_AXES and row.a.dtype == dtype


def _is_alike(row: Instruction, c: Contraction) -> bool:
    """Whether a row is of the contraction's element types: what the mapper would refuse first."""
    assert c.b is not None
    mine = sorted(d.name for d in (row.a.dtype, row.b.dtype))
    return row.result.dtype == c.write.value.dtype and mine == sorted((c.a.dtype.name, c.b.dtype.name))


@lru_cache(maxsize=REMEMBERED)
def _mappings(stage: Stage, row: Instruction) -> tuple[tuple[Mapping, tuple[tuple[str, str], ...]], ...]:
    """The mappings of a row onto a stage, each with the stage's iterator that an axis of the row is.

    Mapped axes that are digits of an iterator must be its last one: those that move by one.
    """
    try:
        form = three_operand_form(_unfolded(stage))
    except ProgramError:
        return ()
    out = []
    for mapping in match_form(Needle.of(row), form).mappings:
        names = _iterators(mapping, form)
        if names is not None:
            out.append((mapping, names))
    return tuple(out)


def _iterators(mapping: Mapping, form: ThreeOperandForm) -> tuple[tuple[str, str], ...] | None:
    found: list[tuple[str, str]] = []
    for bundle in mapping.axes:
        if len(bundle.program) != 1:
            return None
        name, stride = form.origins[form.axes.index(bundle.program[0])]
        if stride != 1:
            return None
        found.append((bundle.axis, name))
    return tuple(found)


def _unfolded(stage: Stage) -> Stage:
    """The stage with dimensions ``v // d`` and ``v % d`` of one tensor as one dimension ``v``.

    Rewrites lay out temporary tensors so; to the mapper that is a layout, not an access of its own.
    """

    def whole(ld: Load) -> Load:
        indices = list(ld.indices)
        for i in ld.indices:
            atom = i.terms[0][0] if len(i.terms) == 1 and i.const == 0 else None
            if not isinstance(atom, Mod):
                continue
            outer = Index(0, ((FloorDiv(atom.arg, atom.divisor), 1),))
            if outer in indices and i in indices:
                indices[indices.index(outer)] = atom.arg
                indices.remove(i)
        return ld if len(indices) == len(ld.indices) else replace(ld, indices=tuple(indices))

    return replace(stage, body=map_loads(stage.body, whole))


def _use(
    c: Contraction,
    row: Instruction,
    mapping: Mapping,
    names: tuple[tuple[str, str], ...],
    axis: str,
    run: int | None,
    target: Target,
) -> Priced | None:
    """A mapping as register tiles carry it out, priced; ``None`` where they do not."""
    of = dict(names)
    layouts = tuple(need for need in mapping.needs if isinstance(need, LayoutNeed))
    group = row.b.group if row.b.group > 1 else row.depth
    use = InstructionUse(row.name, mapping.instruction.digest, axis, row.depth, group, names, layouts)
    reduced = [a for a, _ in row.inner_axes if a not in row.result.axes]
    if len(reduced) != 1 or of.get(reduced[0]) != axis:
        return None
    if len(row.lanes) == 1 and len(row.inner_axes) == 1:
        depth = row.depth
        if of.get(row.lanes[0]) != c.vector or c.extent(axis) % depth or (run or depth) % depth:
            return None
        return Priced(use, _lane_cycles(c, row, target)) if is_fast(row, target) else None
    return _matrix(c, row, of, use, run, target)


def _lane_cycles(c: Contraction, row: Instruction, target: Target) -> float:
    lanes = target.lanes(row.result.dtype)
    columns = -(-c.extent(c.vector) // lanes)
    others = prod(it.extent.as_int() for it in c.stage.iters if it.name != c.vector)
    return execution_cycles(row, columns * others / row.depth)


def _matrix(
    c: Contraction,
    row: Instruction,
    of: dict[str, str],
    use: InstructionUse,
    run: int | None,
    target: Target,
) -> Priced | None:
    """The use of an instruction for whole matrices: rows are its first operand's, columns its second's."""
    along = row_axis(c)
    if len(row.inner_axes) != MATRIX_AXES or along is None or not row.result.scope:
        return None
    if c.guard or c.group is not None or c.rows is not None or c.vector not in c.axes("n"):
        return None
    (high, _), (wide, _), _ = matrix_axes(row)
    if (of.get(high), of.get(wide)) != (along, c.vector):
        return None
    clear, store = (_move(target, row, loads=loads) for loads in (False, True))
    depth = run or c.extent(use.axis)
    tile = _tile(c, row, along, depth, None)
    if tile is None or not clear or not store:
        return None
    count = tile_cost(tile, c.extent(along), c.extent(c.vector), depth)
    done = {along, c.vector, use.axis}
    others = prod(it.extent.as_int() for it in c.stage.iters if it.name not in done)
    others *= c.extent(use.axis) // depth
    return Priced(replace(use, tile=tile, clear=clear, store=store), execution_cycles(row, count * others))


def _tile(
    c: Contraction, row: Instruction, along: str | None, depth: int, panel: int | None
) -> MatrixTile | None:
    assert along is not None
    return matrix_tile(row, c.extent(along), c.extent(c.vector), depth, panel=panel, run=c.run)


def _move(target: Target, row: Instruction, *, loads: bool) -> str:
    """The move that stores results of an instruction to memory, or clears them; empty where there is none."""
    total, scope = row.result.dtype, row.result.scope
    for move in target.moves:
        source = move.source
        stores = source is not None and source.scope == scope and source.dtype == total
        clears = source is None and move.result.scope == scope and move.result.dtype == total
        if stores if loads else clears:
            return move.name
    return ""


def _ends_in_groups(c: Contraction, b: Load, use: InstructionUse) -> bool:
    """Whether the last index of ``b`` is a place in groups of neighbours along the reduction."""
    last = b.indices[-1]
    if last.const or len(last.terms) != 1:
        return False
    atom, coefficient = last.terms[0]
    if isinstance(atom, Mod):
        return coefficient == 1 and atom.divisor == use.group and atom.arg.as_var() == use.axis
    # a whole reduction of one group has no remainder to take
    single = isinstance(atom, Var) and atom.name == use.axis and c.extent(use.axis) == use.group
    return single and coefficient == 1
