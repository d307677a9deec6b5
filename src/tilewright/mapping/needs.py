"""What a program must become before an instruction can do a part of it: layouts, copies, padding.

Axes of the program may be bundled onto one axis of the instruction: in place where every operand has them
behind one another, else through a copy with rows of its own (im2col).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping as Dict, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import TypeAlias

from tilewright.ir import Index, Param, Program
from tilewright.mapping.access import AccessMatrix, ThreeOperandForm
from tilewright.mapping.mapping import (
    Bundle,
    ConditionNeed,
    CopyNeed,
    LayoutNeed,
    Mapping,
    Need,
    PadNeed,
)
from tilewright.mapping.needle import Needle
from tilewright.target import Placement

Axes: TypeAlias = Dict[str, tuple[str, ...]]
"""The program's axes by those of the instruction."""


@dataclass(frozen=True, slots=True)
class Pair:
    """An operand of the instruction with the access that it is."""

    operand: str
    mine: AccessMatrix
    theirs: AccessMatrix
    placement: Placement


class UnmetError(Exception):
    """What keeps a choice of axes from being a mapping: operand, place, expected, found."""

    def __init__(self, operand: str, place: str, expected: str, found: str) -> None:
        self.reason = (operand, place, expected, found)
        super().__init__(f"{operand} {place}: expected {expected}, found {found}")


def bundles_of(
    program: Program | None,
    own: ThreeOperandForm,
    form: ThreeOperandForm,
    pairs: Sequence[Pair],
    names: Dict[str, str],
) -> Iterator[Axes]:
    """The choice itself; with the program also as many axes as lie side by side, and all by copies."""
    base: Axes = {a: (x,) if x else () for a, x in names.items()}
    yield base
    if program is None:
        return
    alike = {a: _alike(form, pairs, names, x[0]) if x else () for a, x in base.items()}
    made = [base]
    for found in ({a: _in_place(program, own, form, pairs, a, base[a], alike[a]) for a in base}, alike):
        if found not in made:
            made.append(found)
            yield found


def needs_of(
    mapping: Mapping, own: ThreeOperandForm, form: ThreeOperandForm, pairs: Sequence[Pair], axes: Axes,
    program: Program | None,
) -> Mapping:  # fmt: skip
    """The mapping for a choice of axes, with its needs. Raises :class:`UnmetError` where it cannot be."""
    needle = mapping.instruction
    needs: list[Need] = []
    bundles = tuple(_bundle(needle, form, a, axes[a]) for a in own.axes)
    if own.initialised:
        _check_whole(form, pairs[0], bundles)
    for b in bundles:
        multiple = _multiple(needle, own, pairs, b.axis)
        if not _divides(multiple, b):
            if own.kinds[own.axes.index(b.axis)] == "red" and not _adds_products(own):
                shown = "*".join(map(str, b.extents)) or "1"
                raise UnmetError("", f"axis {b.axis}", f"a multiple of {multiple}", shown)
            needs.append(PadNeed(b.axis, multiple))
    mapped = {x for b in bundles for x in b.program}
    for statement in mapping.statements:
        guard = form.operations[statement.number].guard
        if guard is not None:
            needs.append(ConditionNeed(guard.axes, str(guard).strip()))
    dims: list[tuple[str, tuple[tuple[int, ...], ...]]] = []
    for p in pairs:
        own_dims = tuple(_dims(own, form, p, row, axes) for row in p.mine.rows)
        dims.append((p.operand, own_dims))
        needs.extend(_copies(program, own, form, p, axes, mapped))
        layout = _layout(own, p, own_dims, {b.axis for b in bundles if _is_whole(b)})
        if layout is not None:
            needs.append(layout)
    return replace(mapping, axes=bundles, dims=tuple(dims), needs=tuple(dict.fromkeys(needs)))


def _bundle(needle: Needle, form: ThreeOperandForm, a: str, program: tuple[str, ...]) -> Bundle:
    extents = tuple(form.extents[form.axes.index(x)] for x in program)
    most = needle.axis(a).extent
    if all(e.is_const for e in extents):
        total = prod(e.const for e in extents)
        return Bundle(a, program, extents, min(most, total) if needle.axis(a).partial else most)
    return Bundle(a, program, extents, most)


def _multiple(needle: Needle, own: ThreeOperandForm, pairs: Sequence[Pair], a: str) -> int:
    """What the extent of an axis must be a multiple of."""
    axis = needle.axis(a)
    if not axis.partial:
        return axis.extent
    groups = [p.placement.group for p in pairs if p.placement.group > 1 and _slowest(own, p.mine) == a]
    return max(groups, default=1)


def _slowest(own: ThreeOperandForm, access: AccessMatrix) -> str:
    """The axis that moves the first dimension of an access."""
    return next((own.axes[n] for row in access.rows for n, c in enumerate(row) if c), "")


def _divides(multiple: int, b: Bundle) -> bool:
    if multiple == 1:
        return True
    found = 1
    for e in b.extents:
        found *= _known_multiple(e)
    return found % multiple == 0


def _known_multiple(e: Index) -> int:
    """A number that an extent is always a multiple of."""
    if e.is_const:
        return e.const
    if e.const == 0 and len(e.terms) == 1 and isinstance(e.terms[0][0], Param):
        return e.terms[0][1] * e.terms[0][0].multiple_of
    return 1


def _adds_products(own: ThreeOperandForm) -> bool:
    """Whether zeros in the operands leave the result as it is."""
    *before, last = own.operations[own.initialised :]
    return last.op == "+=" and all(o.op in (":=", "*=") for o in before)


def _check_whole(form: ThreeOperandForm, result: Pair, bundles: Sequence[Bundle]) -> None:
    """An instruction that starts its result does all of the reduction at once."""
    for b in bundles:
        for x, extent in zip(b.program, b.extents, strict=True):
            if form.kinds[form.axes.index(x)] == "red" and (not extent.is_const or extent.const > b.part):
                raise UnmetError(result.operand, f"axis {b.axis}", f"at most {b.part}", str(extent))
    mapped = {x for b in bundles for x in b.program}
    for x, kind, extent in zip(form.axes, form.kinds, form.extents, strict=True):
        if kind == "red" and x not in mapped and extent != Index(1):
            raise UnmetError(result.operand, f"axis {x}", "no reduction around", f"a reduction of {extent}")


def _dims(
    own: ThreeOperandForm, form: ThreeOperandForm, p: Pair, row: Sequence[int | None], axes: Axes
) -> tuple[int, ...]:
    """The program's dimensions that one of the instruction's is."""
    columns = [form.axes.index(x) for a, c in zip(own.axes, row, strict=True) if c for x in axes[a]]
    return tuple(d for d, other in enumerate(p.theirs.rows) if any(other[n] for n in columns))


# -- several axes of the program as one ---------------------------------------------------------------------


def _alike(form: ThreeOperandForm, pairs: Sequence[Pair], names: Dict[str, str], x: str) -> tuple[str, ...]:
    """The axes that move the same operands as ``x``, that one too, in the stage's order."""
    taken = set(names.values()) - {x}
    column = form.axes.index(x)

    def moved(n: int) -> tuple[bool, ...]:
        return tuple(any(row[n] != 0 for row in p.theirs.rows) for p in pairs)

    def affine(n: int) -> bool:
        return all(row[n] is not None for p in pairs for row in p.theirs.rows)

    return tuple(
        y
        for n, y in enumerate(form.axes)
        if y not in taken and form.kinds[n] == form.kinds[column] and affine(n) and moved(n) == moved(column)
    )


def _in_place(
    program: Program,
    own: ThreeOperandForm,
    form: ThreeOperandForm,
    pairs: Sequence[Pair],
    a: str,
    base: tuple[str, ...],
    alike: tuple[str, ...],
) -> tuple[str, ...]:
    """The most axes, those of ``base`` among them, that lie behind one another in every operand."""
    others = [x for x in alike if x not in base]
    for count in range(len(others), 0, -1):
        for more in combinations(others, count):
            chosen = tuple(x for x in alike if x in base or x in more)
            if all(_lies_so(program, form, p, chosen) for p in pairs):
                return chosen
    return base


def _lies_so(program: Program, form: ThreeOperandForm, p: Pair, axes: Sequence[str]) -> bool:
    """Whether an operand moves along axes as along one, by equal steps, or not at all."""
    shape = program.buffer(p.theirs.buffer).shape
    places: list[int] = []
    for x in axes:
        n = form.axes.index(x)
        moved = [d for d, row in enumerate(p.theirs.rows) if row[n] != 0]
        if not moved:
            continue
        if len(moved) != 1 or p.theirs.rows[moved[0]][n] != 1:
            return False
        (d,) = moved
        alone = sum(1 for c in p.theirs.rows[d] if c != 0) == 1
        whole = shape[d] == form.extents[n] and p.theirs.offsets[d] == Index(0)
        if places and not (alone and whole):
            return False
        if not places and not alone:
            return False
        places.append(d)
    return places == list(range(places[0], places[0] + len(places))) if places else True


# -- needs --------------------------------------------------------------------------------------------------


def _copies(
    program: Program | None,
    own: ThreeOperandForm,
    form: ThreeOperandForm,
    p: Pair,
    axes: Axes,
    mapped: set[str],
) -> Iterator[Need]:
    guard = p.theirs.guard
    if guard is not None:
        inside = tuple(x for x in guard.axes if x in mapped)
        neutral = guard.otherwise is not None and guard.otherwise.value == 0 and _adds_products(own)
        if inside or not neutral:
            yield CopyNeed(p.operand, p.theirs.buffer, "padding", inside)
        else:
            yield ConditionNeed(guard.axes, str(guard).strip())
    for chosen in axes.values():
        if len(chosen) > 1 and program is not None and not _lies_so(program, form, p, chosen):
            windows = _shares_dimensions(form, p, chosen, mapped)
            yield CopyNeed(p.operand, p.theirs.buffer, "windows" if windows else "rows", chosen)


def _shares_dimensions(form: ThreeOperandForm, p: Pair, chosen: Sequence[str], mapped: set[str]) -> bool:
    """Whether some axis moves a dimension that another moves, too."""
    columns = [form.axes.index(x) for x in chosen]
    return any(any(row[n] for n in columns) and sum(1 for c in row if c != 0) > 1 for row in p.theirs.rows)


def _is_whole(b: Bundle) -> bool:
    """Whether one execution does all of an axis."""
    return all(e.is_const for e in b.extents) and prod(e.const for e in b.extents) == b.part


def _layout(
    own: ThreeOperandForm, p: Pair, dims: Sequence[tuple[int, ...]], whole: set[str]
) -> LayoutNeed | None:
    """The order of dimensions that the instruction asks of an operand in memory, where it has another one.

    In row-major order, which is what programs have before any layout is chosen.
    """
    if p.placement.scope:
        return None
    strided = {own.axes.index(a) for a in p.placement.strided if a in own.axes}
    inner: list[int] = []
    for row, found in zip(p.mine.rows, dims, strict=True):
        if not any(c and n in strided for n, c in enumerate(row)):
            inner.extend(found)
    if p.placement.group > 1:
        every = tuple(d for found in dims for d in found)
        return LayoutNeed(p.operand, p.theirs.buffer, every, p.placement.group)
    rank = len(p.theirs.rows)
    if not inner or inner == [rank - 1]:
        return None
    later = {own.axes[n] for row in p.mine.rows[1:] for n, c in enumerate(row) if c}
    if inner == list(range(rank - len(inner), rank)) and not strided and later <= whole:
        return None
    return LayoutNeed(p.operand, p.theirs.buffer, tuple(inner))
