"""The deterministic mapper: every way to run operations of a stage by an instruction, or why there is none.

An instruction (the needle) and a stage (the haystack) are both in three-operand form. A mapping binds the
needle's operations to the haystack's in order, its operands to accesses, its axes to axes, such that each
operand's access matrix, restricted to the rows and columns that are mapped, is the needle's, and the rows
left out do not move with the axes mapped. (ISA Mapper, Sec. 2.2; conditions a-g of the reconstruction.)

The search goes operation by operation, then axis by axis, the one with the fewest candidates first.
Candidates are told by signatures, how an axis moves each operand, before anything is tried; a conflict ends a
branch where it arises. Equal problems, whatever their names, are solved once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from tilewright.ir import Const, Program
from tilewright.mapping.access import AccessMatrix, Guard, Operation, ThreeOperandForm
from tilewright.mapping.mapping import Bound, Failure, Mapping, Statement
from tilewright.mapping.needle import Needle, variants
from tilewright.mapping.needs import Pair, UnmetError, bundles_of, needs_of
from tilewright.support import ResourceError, quoted
from tilewright.target import Placement

MAX_NODES: Final = 200_000
"""Steps of one search: two needles of eight axes on a stage of twenty take a hundredth of it."""
MAX_FAILURES: Final = 64
"""Reasons that are kept of one search."""
CACHED: Final = 1024
"""Problems whose solutions are remembered."""

Row: TypeAlias = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """What the mapper found: mappings in a fixed order, each once; and what kept others from being one."""

    mappings: tuple[Mapping, ...]
    failures: tuple[Failure, ...]
    nodes: int = 0
    """Steps of the search."""


@dataclass(frozen=True, slots=True)
class Access:
    """An access without names: its buffer by number, ``-1 - n`` for temporaries."""

    buffer: int
    rows: tuple[Row, ...]
    dtype: str

    @property
    def temporary(self) -> bool:
        """Whether it exists in the form alone."""
        return self.buffer < 0


@dataclass(frozen=True, slots=True)
class Op:
    """An operation without names; ``src`` may be a constant, as text."""

    dst: Access
    op: str
    src: Access | str
    guarded: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A needle's operations and a stage's, without names, and what placements allow of the needle's axes.

    ``allowed`` gives for each of the needle's buffers the axes that are strided, overlapping and broadcast.
    """

    needle: tuple[Op, ...]
    kinds: tuple[str, ...]
    allowed: tuple[tuple[frozenset[int], frozenset[int], frozenset[int]], ...]
    stage: tuple[Op, ...]
    stage_kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Solution:
    """For each needle operation the stage's, for each needle axis the stage's (``-1``: none)."""

    statements: tuple[int, ...]
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """A failure without names: ``operand`` is a buffer of the needle, ``axis`` one of its axes, or ``-1``."""

    statement: int
    operand: int
    axis: int
    stage_axis: int
    place: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Solved:
    """All solutions of a problem, what failed, and the steps taken."""

    solutions: tuple[Solution, ...]
    reasons: tuple[Reason, ...]
    nodes: int


def match_form(
    needle: Needle, form: ThreeOperandForm, *, part: int = 0, bundled: Program | None = None
) -> Match:
    """The mappings of one of a needle's stages onto one of a program's.

    With the program (``bundled``) also those in which an axis of the instruction is several of its axes.
    """
    mappings: list[Mapping] = []
    failures: list[Failure] = []
    nodes = 0
    own = needle.forms[part]
    for number, operations in enumerate(variants(own)):
        problem, buffers = _problem(needle, own, operations, form)
        solved = solve(problem)
        nodes += solved.nodes
        if solved.nodes > MAX_NODES:
            raise ResourceError(
                f"mapping {needle.name} onto stage {quoted(form.stage)} takes more than {MAX_NODES} steps",
                hint="map a part of the program, or an instruction with fewer axes that look alike",
            )
        for solution in solved.solutions:
            pairs = _pairs(needle, operations, form, solution)
            axes = tuple(form.axes[x] if x >= 0 else "" for x in solution.axes)
            names = dict(zip(own.axes, axes, strict=True))
            base = Mapping(
                needle,
                tuple(Statement(form.stage, n) for n in solution.statements),
                tuple(Bound(p.operand, p.theirs.buffer, form.indices(p.theirs)) for p in pairs),
                (),
                (),
                exchanged=number > 0,
            )
            try:
                for made in bundles_of(bundled, own, form, pairs, names):
                    mappings.append(needs_of(base, own, form, pairs, made, bundled))
            except UnmetError as unmet:
                failures.append(Failure(needle.name, form.stage, len(own.operations) - 1, *unmet.reason))
        for r in solved.reasons:
            operand = buffers[r.operand] if r.operand >= 0 else ""
            place = r.place
            if r.axis >= 0:
                place = f"axis {own.axes[r.axis]}"
            found = r.found if r.stage_axis < 0 else f"{form.axes[r.stage_axis]}: {r.found}"
            failures.append(Failure(needle.name, form.stage, r.statement, operand, place, r.expected, found))
    return Match(tuple(dict.fromkeys(mappings)), tuple(dict.fromkeys(failures))[:MAX_FAILURES], nodes)


def _pairs(
    needle: Needle, operations: Sequence[Operation], form: ThreeOperandForm, solution: Solution
) -> tuple[Pair, ...]:
    """The needle's operands with the accesses that they are, the result first."""
    found: dict[str, Pair] = {}
    for op, n in zip(operations, solution.statements, strict=True):
        theirs = form.operations[n]
        for mine, other in ((op.dst, theirs.dst), (op.src, theirs.src)):
            if isinstance(mine, Const) or isinstance(other, Const) or mine.temporary:
                continue
            found.setdefault(mine.buffer, Pair(mine.buffer, mine, other, needle.placement(mine.buffer)))
    order = [name for name in needle.operands if name in found]
    return tuple(found[name] for name in (*order, *(n for n in found if n not in order)))


# -- problems without names ---------------------------------------------------------------------------------


def _problem(
    needle: Needle, own: ThreeOperandForm, operations: Sequence[Operation], form: ThreeOperandForm
) -> tuple[Problem, list[str]]:
    mine: dict[str, int] = {}
    theirs: dict[str, int] = {}
    ops = tuple(_op(o, mine, own.axes) for o in operations)
    stage = tuple(_op(o, theirs, form.axes) for o in form.operations)
    named = [name for name, n in mine.items() if n >= 0]

    def axes_of(names: Sequence[str]) -> frozenset[int]:
        return frozenset(own.axes.index(a) for a in names if a in own.axes)

    def of(p: Placement) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
        return axes_of(p.strided), axes_of(p.overlapping), axes_of(p.broadcast)

    allowed = tuple(of(needle.placement(name)) for name in named)
    return Problem(ops, own.kinds, allowed, stage, form.kinds), named


def _op(o: Operation, numbers: dict[str, int], axes: Sequence[str]) -> Op:
    def access(a: AccessMatrix) -> Access:
        if a.buffer not in numbers:
            like = [n for n in numbers.values() if (n < 0) == a.temporary]
            numbers[a.buffer] = -1 - len(like) if a.temporary else len(like)
        return Access(numbers[a.buffer], () if a.temporary else a.rows, a.dtype.name)

    src = f"{o.src.dtype} {o.src.value!r}" if isinstance(o.src, Const) else access(o.src)
    guard: Guard | None = o.guard
    return Op(access(o.dst), o.op, src, None if guard is None else tuple(axes.index(a) for a in guard.axes))


@lru_cache(maxsize=CACHED)
def solve(problem: Problem) -> Solved:
    """All solutions of a problem, in the order of the stage's operations and axes."""
    return _Search(problem).run()


@dataclass(slots=True)
class _Search:
    p: Problem
    solutions: list[Solution] = field(default_factory=list)
    reasons: dict[Reason, None] = field(default_factory=dict)
    nodes: int = 0

    def run(self) -> Solved:
        for statements in self.statements(0, (), {}):
            self.axes(statements)
        self.solutions.sort(key=lambda s: (s.statements, s.axes))
        return Solved(tuple(dict.fromkeys(self.solutions)), tuple(self.reasons)[:MAX_FAILURES], self.nodes)

    def fail(
        self,
        statement: int,
        operand: int,
        place: str,
        expected: str,
        found: str,
        axis: int = -1,
        on: int = -1,
    ) -> None:
        self.reasons[Reason(statement, operand, axis, on, place, expected, found)] = None

    # -- operations -----------------------------------------------------------------------------------------

    def statements(self, k: int, done: tuple[int, ...], temps: dict[int, int]) -> Iterator[tuple[int, ...]]:
        """Operations of the stage for the needle's from the ``k``-th on."""
        if k == len(self.p.needle):
            if self._temporaries_are_done(done, temps):
                yield done
            return
        op = self.p.needle[k]
        for n in self._candidates(op, done, temps):
            self.nodes += 1
            if self.nodes > MAX_NODES:
                return
            bound = self._fits(k, op, self.p.stage[n], temps)
            if bound is not None:
                yield from self.statements(k + 1, (*done, n), bound)

    def _candidates(self, op: Op, done: tuple[int, ...], temps: dict[int, int]) -> Iterator[int]:
        """Operations that can be the next one: the next use of a bound temporary, else any later one."""
        last = done[-1] if done else -1
        held = [temps[a.buffer] for a in _sides(op) if a.temporary and a.buffer in temps]
        for n in range(last + 1, len(self.p.stage)):
            uses = {a.buffer for a in _sides(self.p.stage[n])}
            if not held:
                yield n
            elif uses & set(held):
                yield n
                return

    def _fits(self, k: int, op: Op, other: Op, temps: dict[int, int]) -> dict[int, int] | None:
        """The temporaries bound if an operation can be another one."""
        if op.op != other.op:
            self.fail(k, -1, "operation", op.op, other.op)
            return None
        bound = dict(temps)
        for mine, theirs in ((op.dst, other.dst), (op.src, other.src)):
            if isinstance(mine, str) or isinstance(theirs, str):
                if mine != theirs:
                    self.fail(k, -1, "operand", _shown(mine), _shown(theirs))
                    return None
                continue
            if mine.temporary != theirs.temporary:
                self.fail(k, max(mine.buffer, -1), "operand", _shown(mine), _shown(theirs))
                return None
            if mine.dtype != theirs.dtype:
                self.fail(k, max(mine.buffer, -1), "type", mine.dtype, theirs.dtype)
                return None
            if mine.temporary and bound.setdefault(mine.buffer, theirs.buffer) != theirs.buffer:
                self.fail(k, -1, "operand", "the value before", "another value")
                return None
        return bound

    def _temporaries_are_done(self, done: tuple[int, ...], temps: dict[int, int]) -> bool:
        """Whether nothing else uses the temporaries."""
        for n, other in enumerate(self.p.stage):
            if n not in done and any(a.buffer in temps.values() for a in _sides(other) if a.temporary):
                self.fail(len(self.p.needle) - 1, -1, "operation", "no more uses", other.op)
                return False
        return True

    # -- axes -----------------------------------------------------------------------------------------------

    def axes(self, statements: tuple[int, ...]) -> None:
        """All axes for these operations."""
        pairs: dict[int, tuple[Access, Access, int]] = {}
        for k, n in enumerate(statements):
            op, other = self.p.needle[k], self.p.stage[n]
            for mine, theirs in ((op.dst, other.dst), (op.src, other.src)):
                if isinstance(mine, str) or isinstance(theirs, str) or mine.temporary:
                    continue
                known = pairs.setdefault(mine.buffer, (mine, theirs, k))
                if known[1] != theirs:
                    self.fail(k, mine.buffer, "operand", "the element accessed before", "another one")
                    return
        result = self.p.needle[-1].dst.buffer
        for b, (_, theirs, k) in pairs.items():
            if b != result and theirs.buffer == pairs[result][1].buffer:
                self.fail(k, b, "operand", "another buffer than the result's", "the result's own")
                return
        guarded = frozenset(x for n in statements for x in self.p.stage[n].guarded or ())
        candidates = [self.candidates(a, pairs, guarded) for a in range(len(self.p.kinds))]
        order = sorted(range(len(candidates)), key=lambda a: (len(candidates[a]), a))
        self.assign(statements, pairs, candidates, order, {})

    def candidates(
        self, a: int, pairs: dict[int, tuple[Access, Access, int]], guarded: frozenset[int]
    ) -> list[int]:
        """Axes of the stage that move every operand as the needle's axis does."""
        out: list[int] = []
        for x in range(len(self.p.stage_kinds)):
            fits = True
            for b, (mine, theirs, k) in pairs.items():
                wanted, found = _moves(mine, a), _moves(theirs, x)
                strided, _, broadcast = self.p.allowed[b]
                same = wanted == found or (a in broadcast and not found)
                same = same or (a in strided and len(wanted) == len(found) == 1 and (found[0] or 0) > 0)
                if not same:
                    self.fail(k, b, "", _movement(wanted), _movement(found), a, x)
                    fits = False
                    break
            if fits and not any(_moves(theirs, x) for _, theirs, _ in pairs.values()):
                fits = False  # it moves nothing: nothing would be done along it
            if fits and self.p.stage_kinds[x] == "ord":
                self.fail(len(self.p.needle) - 1, -1, "", "any order", "iterations in order", a, x)
                fits = False
            if fits and x in guarded:
                self.fail(len(self.p.needle) - 1, -1, "", "every iteration", "a condition", a, x)
                fits = False
            if fits:
                out.append(x)
        return out

    def assign(
        self,
        statements: tuple[int, ...],
        pairs: dict[int, tuple[Access, Access, int]],
        candidates: list[list[int]],
        order: list[int],
        chosen: dict[int, int],
    ) -> None:
        """Complete a choice of axes, the next in order first."""
        if len(chosen) == len(order):
            if any(x >= 0 for x in chosen.values()) or not order:
                self.solutions.append(Solution(statements, tuple(chosen[a] for a in range(len(order)))))
            return
        a = order[len(chosen)]
        for x in candidates[a] or [-1]:
            self.nodes += 1
            if self.nodes > MAX_NODES:
                return
            if x < 0 or (x not in chosen.values() and self._together(a, x, pairs, chosen)):
                self.assign(statements, pairs, candidates, order, {**chosen, a: x})

    def _together(
        self, a: int, x: int, pairs: dict[int, tuple[Access, Access, int]], chosen: dict[int, int]
    ) -> bool:
        """Whether an axis moves the dimensions that others move just where the needle's does."""
        for b, (mine, theirs, k) in pairs.items():
            strided, overlapping, _ = self.p.allowed[b]
            for other, y in chosen.items():
                if y < 0:
                    continue
                wanted, found = _shared(mine, a, other), _shared(theirs, x, y)
                if wanted == found or (found and not wanted and overlapping & {a, other}):
                    continue
                if strided & {a, other} and len(wanted) == len(found):
                    continue
                shown = ["dimensions of their own", "one dimension together"]
                self.fail(k, b, "", shown[bool(wanted)], shown[bool(found)], a, x)
                return False
        return True


def _sides(op: Op) -> tuple[Access, ...]:
    return (op.dst,) if isinstance(op.src, str) else (op.dst, op.src)


def _shown(a: Access | str) -> str:
    if isinstance(a, str):
        return f"the constant {a}"
    return "a value computed before" if a.temporary else "an element of a buffer"


def _moves(a: Access, axis: int) -> tuple[int | None, ...]:
    """By how much an axis moves the dimensions that it moves, sorted."""
    return tuple(sorted((r[axis] for r in a.rows if r[axis] != 0), key=lambda c: (c is None, c)))


def _movement(steps: tuple[int | None, ...]) -> str:
    if not steps:
        return "no movement"
    return "steps of " + ", ".join("?" if c is None else str(c) for c in steps)


def _shared(a: Access, first: int, second: int) -> tuple[tuple[int | None, int | None], ...]:
    """The dimensions that two axes move together: their steps."""
    return tuple((r[first], r[second]) for r in a.rows if r[first] != 0 and r[second] != 0)
