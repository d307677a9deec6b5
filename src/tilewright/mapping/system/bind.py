"""Stages as instructions of a machine: which axes become sizes, which dimensions the operands' tiles span.

A stage's expression is covered from its root by the largest instructions that fit there (the fewest
instructions: ISA Mapper, Sec. 2.4); an operand stands for a load, or for an expression that gets a temporary
tensor. An operand fits where each of its axes moves exactly one dimension of the tensor, by one
element, and no other dimension moves with an axis of the instruction (conditions b and c of the mapper).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.ir import (
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Param,
    Program,
    Stage,
    Store,
    Unary,
    children,
    var,
)
from tilewright.mapping.system.approach import Approach
from tilewright.mapping.system.graph import SystemGraph, SystemInstruction
from tilewright.support import ProgramError, quoted

_COMMUTES = frozenset({"add", "mul", "max", "min", "and", "or"})


@dataclass(frozen=True, slots=True)
class BoundOperand:
    """An operand: the tensor it is a tile of, the access's indices over the stage's axes, and, for each
    dimension of the tile, the tensor's dimension (-1: one of extent 1 that the tensor lacks).
    """

    name: str
    tensor: str
    indices: tuple[Index, ...]
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BoundStage:
    """A stage, or a part of one, done by calls of one instruction.

    ``axes`` gives for each axis of the instruction the stage's axis (``None``: one of extent 1) and how far
    one call goes along it. ``initial`` is the instruction that starts a sum which ``instruction`` continues.
    """

    stage: str
    instruction: str
    initial: str | None
    extents: Mapping[str, int]
    reduces: tuple[str, ...]
    axes: Mapping[str, tuple[str | None, int]]
    sizes: Mapping[str, str]
    operands: tuple[BoundOperand, ...]
    result: BoundOperand

    def reach(self, axis: str) -> int:
        """How far one call goes along an axis of the stage: 1 where the instruction does not have it."""
        return next((n for a, n in self.axes.values() if a == axis), 1)


@dataclass(frozen=True, slots=True)
class BoundProgram:
    """All stages of a program as instructions, in order, and the tensors, temporary ones included."""

    stages: tuple[BoundStage, ...]
    tensors: Mapping[str, Buffer]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Pattern:
    """An instruction as an expression to be found: of one stage that stores to one buffer."""

    instruction: SystemInstruction
    stage: Stage
    result: str
    indices: tuple[Index, ...]
    value: Expr  # of a reduction: what is combined
    combine: str  # how, or empty
    start: Expr | None
    size: int


@dataclass(frozen=True, slots=True)
class MappingOption:
    """A way in which an expression is an instruction.

    ``cost``: results read as other tiles than they were made, calls, and operands in another order of
    dimensions than their tensors have.
    """

    pattern: _Pattern
    loads: Mapping[str, Expr]
    axes: Mapping[str, str | None]
    cost: tuple[int, int, int]


def bind(program: Program, machine: SystemGraph, approach: Approach) -> BoundProgram:
    """The stages of a program as instructions of a machine.

    Raises ProgramError, naming the stage and what was found there, where no instruction fits.
    """
    binder = _Binder(program, machine, approach)
    for stage in program.stages:
        binder.add(stage)
    return BoundProgram(
        tuple(binder.bound),
        binder.tensors,
        tuple(b.name for b in program.inputs),
        tuple(b.name for b in program.outputs),
    )


def _split_sum(stage: Stage) -> tuple[Store, Expr, str]:
    """The store of a stage, and for a reduction what is combined, and how."""
    if not isinstance(stage.body, Store) or len(stage.body.writes) != 1:
        raise ProgramError(f"stage {quoted(stage.name)} is not a single assignment")
    (w,) = stage.body.writes
    value = w.value
    if isinstance(value, Binary) and isinstance(value.a, Load):
        if (value.a.buffer, value.a.indices) == (w.buffer, w.indices):
            return stage.body, value.b, value.op
    return stage.body, value, ""


def _count(e: Expr) -> int:
    return 1 + sum(map(_count, children(e)))


def _patterns(machine: SystemGraph) -> list[_Pattern]:
    out = []
    for i in machine.instructions.values():
        if len(i.semantics.stages) != 1:
            continue
        (stage,) = i.semantics.stages
        store, value, combine = _split_sum(stage)
        (w,) = store.writes
        start = None
        if isinstance(stage.init, Store):
            start = stage.init.writes[0].value
        out.append(_Pattern(i, stage, w.buffer, w.indices, value, combine, start, _count(value)))
    return sorted(out, key=lambda p: -p.size)


class _Binder:
    def __init__(self, program: Program, machine: SystemGraph, approach: Approach) -> None:
        self.machine, self.approach = machine, approach
        self.patterns = _patterns(machine)
        self.tensors: dict[str, Buffer] = {b.name: b for b in program.buffers}
        self.bound: list[BoundStage] = []

    def add(self, stage: Stage) -> None:
        store, value, combine = _split_sum(stage)
        (w,) = store.writes
        for it in stage.iters:
            if it.kind == "ord" or not it.extent.is_const or it.lo != Index(0):
                raise ProgramError(
                    f"stage {quoted(stage.name)}: axis {quoted(it.name)} is ordered or of unknown extent",
                    hint="give recurrences to schedule_recurrence, one step as a program",
                )
        start = stage.init.writes[0].value if isinstance(stage.init, Store) else None
        self.cover(stage, value, combine, start, w.buffer, w.indices)

    def cover(
        self,
        stage: Stage,
        value: Expr,
        combine: str,
        start: Expr | None,
        buffer: str,
        indices: tuple[Index, ...],
    ) -> None:
        found: list[MappingOption] = []
        for p in self.patterns:
            if found and p.size < found[0].pattern.size:
                break
            if (
                p.combine != combine
                or p.start != start
                or p.instruction.semantics.outputs[0].dtype != self.tensors[buffer].dtype
            ):
                continue
            for loads, axes in self.matches(p, stage, value, buffer, indices):
                found.append(MappingOption(p, loads, axes, self.cost(p, stage, loads, axes, buffer, indices)))
        if not found:
            kinds = sorted({p.instruction.name for p in self.patterns})
            raise ProgramError(
                f"stage {quoted(stage.name)}: no instruction of machine {quoted(self.machine.name)} computes"
                f" {value}" + (f" combined by {combine}" if combine else ""),
                hint=f"its instructions are {', '.join(kinds)}",
            )
        taken = found[self.approach.choose("mapping", found, stage)]
        p, axes = taken.pattern, dict(taken.axes)
        operands = []
        for name, read in taken.loads.items():
            e = read if isinstance(read, Load) else self.temporary(stage, read)
            operands.append(self.operand(p, name, e.buffer, e.indices, axes))
        accumulating = self.accumulating(p) if combine else None
        self.bound.append(
            BoundStage(
                stage.name,
                accumulating or p.instruction.name,
                p.instruction.name if accumulating else None,
                {it.name: it.extent.as_int() for it in stage.iters},
                tuple(it.name for it in stage.iters if it.kind == "red") if combine else (),
                {it.name: (axes.get(it.name), _reach(it.extent)) for it in p.stage.iters},
                {it.name: _size(it.extent) for it in p.stage.iters if _size(it.extent)},
                tuple(operands),
                self.operand(p, p.result, buffer, indices, axes),
            )
        )

    def cost(
        self,
        p: _Pattern,
        stage: Stage,
        loads: Mapping[str, Expr],
        axes: Mapping[str, str | None],
        buffer: str,
        indices: tuple[Index, ...],
    ) -> tuple[int, int, int]:
        reach = {a: _reach_of(p, i) for i, a in axes.items() if a}
        calls = prod(-(-it.extent.as_int() // reach.get(it.name, 1)) for it in stage.iters)
        operands = [self.operand(p, p.result, buffer, indices, axes)]
        for name, e in loads.items():
            if isinstance(e, Load):
                operands.append(self.operand(p, name, e.buffer, e.indices, axes))
        turned = sum(list(o.dims) != sorted(o.dims) for o in operands)
        made = {b.result.tensor: b.result.dims for b in self.bound}
        other = sum(made.get(o.tensor, o.dims) != o.dims for o in operands[1:])
        return other, calls, turned

    def accumulating(self, p: _Pattern) -> str | None:
        """The instruction that continues what ``p`` starts."""
        for q in self.patterns:
            if (
                q.start is None
                and q.combine == p.combine
                and q.value == p.value
                and q.stage.iters == p.stage.iters
            ):
                return q.instruction.name
        return None

    def temporary(self, stage: Stage, e: Expr) -> Load:
        """A tensor of its own for a part of a stage's expression, over the axes that it mentions."""
        used = [it for it in stage.iters if it.kind == "par" and it.name in e.vars]
        n = 0
        while f"{stage.name}_{n}" in self.tensors:
            n += 1
        name = f"{stage.name}_{n}"
        self.tensors[name] = Buffer(name, tuple(it.extent for it in used), e.dtype)
        indices = tuple(var(it.name) for it in used)
        inner = Stage(stage.name, tuple(used), stage.body)
        self.cover(inner, e, "", None, name, indices)
        return Load(name, indices, e.dtype)

    def matches(
        self, p: _Pattern, stage: Stage, value: Expr, buffer: str, indices: tuple[Index, ...]
    ) -> Iterator[tuple[dict[str, Expr], dict[str, str | None]]]:
        """What the operands of an instruction stand for, and its axes, in every way that fits."""
        kinds = {it.name: it.kind for it in stage.iters}
        summed = {it.name for it in stage.iters if it.kind == "red"}
        for loads in _unify(p.value, value, {}):
            if any(not isinstance(e, Load) and summed & e.vars for e in loads.values()):
                continue  # a temporary tensor over the axes of the sum would be larger than its operands
            pairs = [(_indices_of(p, name), _access(e, stage)) for name, e in loads.items()]
            pairs.append((p.indices, indices))
            for axes in _axes(p, pairs, kinds):
                mapped = {a for a in axes.values() if a}
                whole = all(
                    a is None or p.combine == "" or kinds[a] == "par"
                    or self.accumulating(p) is not None or _reach_of(p, i) >= stage.extent(a)
                    for i, a in axes.items()
                )  # fmt: skip
                if whole and (summed <= mapped or self.accumulating(p) is not None):
                    yield loads, axes

    def operand(
        self,
        p: _Pattern,
        name: str,
        tensor: str,
        indices: tuple[Index, ...],
        axes: Mapping[str, str | None],
    ) -> BoundOperand:
        own = p.indices if name == p.result else _indices_of(p, name)
        dims = []
        for x in own:
            axis = axes.get(x.as_var() or "")
            dims.append(next((d for d, y in enumerate(indices) if axis and y.coefficient(axis)), -1))
        return BoundOperand(name, tensor, indices, tuple(dims))


def _reach(extent: Index) -> int:
    if extent.is_const:
        return extent.as_int()
    atom = extent.terms[0][0]
    assert isinstance(atom, Param)
    return atom.hi // atom.multiple_of * atom.multiple_of


def _reach_of(p: _Pattern, axis: str) -> int:
    return next(_reach(it.extent) for it in p.stage.iters if it.name == axis)


def _size(extent: Index) -> str:
    return "" if extent.is_const else str(extent)


def _indices_of(p: _Pattern, name: str) -> tuple[Index, ...]:
    def find(e: Expr) -> Load | None:
        if isinstance(e, Load) and e.buffer == name:
            return e
        return next((f for f in map(find, children(e)) if f is not None), None)

    found = find(p.value)
    assert found is not None
    return found.indices


def _access(e: Expr, stage: Stage) -> tuple[Index, ...]:
    if isinstance(e, Load):
        return e.indices
    return tuple(var(it.name) for it in stage.iters if it.kind == "par" and it.name in e.vars)


def _unify(pattern: Expr, e: Expr, so_far: dict[str, Expr]) -> Iterator[dict[str, Expr]]:
    """Ways to read ``e`` as ``pattern``, whose loads stand for loads or expressions of their type."""
    if isinstance(pattern, Load):
        if pattern.dtype == e.dtype and not isinstance(e, Const) and so_far.get(pattern.buffer, e) == e:
            yield {**so_far, pattern.buffer: e}
        return
    if type(pattern) is not type(e) or pattern.dtype != e.dtype:
        return
    match pattern:
        case Const():
            if pattern == e:
                yield so_far
            return
        case Binary() | Unary():
            if pattern.op != e.op:  # type: ignore[union-attr]  # of one type, seen above
                return
        case Call():
            if pattern.fn != e.fn:  # type: ignore[union-attr]  # as above
                return
        case Cast():
            pass
        case _:
            return
    inner = children(e)
    orders: list[Sequence[Expr]] = [inner]
    if isinstance(pattern, Binary) and pattern.op in _COMMUTES:
        orders.append(inner[::-1])
    for order in orders:
        yield from _unify_all(children(pattern), order, so_far)


def _unify_all(
    patterns: Sequence[Expr], es: Sequence[Expr], so_far: dict[str, Expr]
) -> Iterator[dict[str, Expr]]:
    if not patterns:
        yield so_far
        return
    for found in _unify(patterns[0], es[0], so_far):
        yield from _unify_all(patterns[1:], es[1:], found)


def _axes(
    p: _Pattern, pairs: Sequence[tuple[tuple[Index, ...], tuple[Index, ...]]], kinds: Mapping[str, str]
) -> Iterator[dict[str, str | None]]:
    """Injective maps of the instruction's axes to the stage's, or to none (extent 1), most mapped first."""
    names = [it.name for it in p.stage.iters]
    wanted = {it.name: it.kind for it in p.stage.iters}
    may_be_one = {it.name: not it.extent.is_const or it.extent.as_int() == 1 for it in p.stage.iters}
    found: list[dict[str, str | None]] = []

    def extend(n: int, axes: dict[str, str | None]) -> None:
        if n == len(names):
            found.append(dict(axes))
            return
        name = names[n]
        for a, kind in kinds.items():
            if kind == wanted[name] and a not in axes.values() and _moves(name, a, pairs):
                axes[name] = a
                extend(n + 1, axes)
                del axes[name]
        if may_be_one[name]:
            axes[name] = None
            extend(n + 1, axes)
            del axes[name]

    extend(0, {})
    most = max((sum(a is not None for a in x.values()) for x in found), default=0)
    for axes in found:
        if sum(a is not None for a in axes.values()) == most and _apart(axes, pairs):
            yield axes


def _moves(name: str, axis: str, pairs: Sequence[tuple[tuple[Index, ...], tuple[Index, ...]]]) -> bool:
    """Whether an axis moves an operand exactly where the instruction's does: one dimension, by one."""
    for own, theirs in pairs:
        expected = sum(x.coefficient(name) for x in own)
        moved = [x.coefficient(axis) for x in theirs if axis in x.vars]
        if moved != ([1] if expected else []):
            return False
    return True


def _apart(
    axes: Mapping[str, str | None], pairs: Sequence[tuple[tuple[Index, ...], tuple[Index, ...]]]
) -> bool:
    """Whether no dimension moves with two axes of the instruction."""
    mapped = [a for a in axes.values() if a]
    return all(sum(x.coefficient(a) != 0 for a in mapped) <= 1 for _, theirs in pairs for x in theirs)
