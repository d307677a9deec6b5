"""What the mapper looks for: an instruction's operations, and what it asks of its operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations
from types import MappingProxyType

from tilewright.ir import Param, Program, Stage
from tilewright.mapping.access import Operation, ThreeOperandForm, three_operand_form
from tilewright.support import TargetError
from tilewright.target import Instruction, Placement

COMMUTING = frozenset({"*=", "+=", "max=", "min="})
"""Operations of a chain whose operands may change places."""


@dataclass(frozen=True, slots=True)
class NeedleAxis:
    """An axis of an instruction: its largest extent, and whether one execution may do less."""

    name: str
    extent: int
    partial: bool
    lane: bool = False


@dataclass(frozen=True, slots=True)
class Needle:
    """An instruction as the mapper sees it: the three-operand forms of its stages, axes and placements.

    ``operands`` are the result and what is read, by name; ``placements`` are those of an
    :class:`~tilewright.target.Instruction`. ``digest`` is that of the row, for traces; empty where there is
    none.
    """

    name: str
    forms: tuple[ThreeOperandForm, ...]
    axes: tuple[NeedleAxis, ...]
    operands: tuple[str, ...]
    placements: tuple[tuple[str, Placement], ...] = ()
    digest: str = ""

    @staticmethod
    def of(instruction: Instruction) -> Needle:
        """The needle of a row."""
        return _of_row(instruction)

    @staticmethod
    def of_program(
        name: str, semantics: Program, placements: Mapping[str, Placement] = MappingProxyType({})
    ) -> Needle:
        """The needle of an instruction whose semantics is a program.

        Its parameters are sizes: axes of such extents do as much as the parameter's bound, or less. Raises
        TargetError where a size has no bound.
        """
        axes: dict[str, NeedleAxis] = {}
        for stage in semantics.stages:
            for it in stage.iters:
                axes.setdefault(it.name, _sized(name, it.name, it.extent.terms, it.extent.const))
        inner = {b.name for b in semantics.temps}
        operands = tuple(b.name for b in (*semantics.outputs, *semantics.inputs) if b.name not in inner)
        forms = tuple(three_operand_form(s) for s in semantics.stages)
        return Needle(name, forms, tuple(axes.values()), operands, tuple(sorted(placements.items())))

    def axis(self, name: str) -> NeedleAxis:
        """The axis of a name; ``KeyError`` where there is none."""
        for a in self.axes:
            if a.name == name:
                return a
        raise KeyError(name)

    def placement(self, operand: str) -> Placement:
        """Where an operand must be."""
        return dict(self.placements).get(operand, Placement())

    @property
    def result(self) -> str:
        """The operand that is written."""
        return self.operands[0]


def _sized(name: str, axis: str, terms: tuple[tuple[object, int], ...], const: int) -> NeedleAxis:
    if not terms:
        return NeedleAxis(axis, const, partial=False)
    if len(terms) == 1 and const == 0 and terms[0][1] == 1 and isinstance(terms[0][0], Param):
        p = terms[0][0]
        if p.hi < 1 << 30:
            return NeedleAxis(axis, p.hi, partial=True)
    raise TargetError(
        f"instruction {name!r}: the extent of axis {axis!r} has no bound",
        hint="sizes of instructions are parameters with an upper bound, or numbers",
    )


@cache
def _of_row(row: Instruction) -> Needle:
    stages: tuple[Stage, ...] = (row.stage, *row.epilogue)
    axes = tuple(NeedleAxis(a, n, a in row.partial or a in row.lanes, a in row.lanes) for a, n in row.axes)
    return Needle(
        row.name,
        tuple(three_operand_form(s) for s in stages),
        axes,
        tuple(o.name for o in row.operands),
        row.placements,
        row.digest,
    )


def variants(form: ThreeOperandForm) -> tuple[tuple[Operation, ...], ...]:
    """The operations of a form with the operands of its chains in every order, as they stand first.

    A chain is ``t := x; t *= y; ...``: one temporary, one commuting operation.
    """
    out: list[tuple[Operation, ...]] = [()]
    at = 0
    ops = form.operations
    while at < len(ops):
        end = _chain_end(ops, at)
        sources = [o.src for o in ops[at:end]]
        orders = list(permutations(range(len(sources)))) if end - at > 1 else [(0,)]
        seen: list[tuple[object, ...]] = []
        kept: list[tuple[Operation, ...]] = []
        for order in orders:
            given = tuple(sources[n] for n in order)
            if given in seen:
                continue
            seen.append(given)
            kept.append(tuple(replace(o, src=src) for o, src in zip(ops[at:end], given, strict=True)))
        out = [(*before, *chain) for before in out for chain in kept]
        at = end
    return tuple(out)


def _chain_end(ops: tuple[Operation, ...], at: int) -> int:
    """Behind the last operation of the chain that begins here."""
    first = ops[at]
    end = at + 1
    if not first.dst.temporary or first.op != ":=" or first.guard is not None:
        return end
    while (
        end < len(ops)
        and ops[end].dst.buffer == first.dst.buffer
        and ops[end].op in COMMUTING
        and ops[end].op == ops[at + 1].op
        and ops[end].guard is None
    ):
        end += 1
    return end
