"""Selection: which instructions do a program, none of its operations twice (ISA Mapper, Sec. 2.4).

An instruction does a stage from the root of its expression: as many operations as it has; each operand stands
for an element, or for an expression that gets a tensor of its own and is done in turn. An instruction of
several stages does a chain of them, where nothing else reads what is between. Of all ways the cheapest is
taken, by the number of executions (the paper's rule) or by a price that the caller gives.

    D[i, j] = max(C[i, j] + bias[j], 0)     with add_row and relu:    D_0[i, j] = C[i, j] + bias[j]
                                                                      D[i, j] = max(D_0[i, j], 0)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import Final, TypeAlias

from tilewright.ir import (
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    OfIndex,
    Program,
    Stage,
    Store,
    children,
    fresh_name,
    loads,
    store,
    substitute_expr,
    var,
    with_children,
)
from tilewright.mapping.access import ThreeOperandForm, operation_names, three_operand_form, widens
from tilewright.mapping.mapper import find_mappings
from tilewright.mapping.mapping import Failure, Mapping
from tilewright.mapping.needle import Needle
from tilewright.support import ProgramError

MAX_WAYS: Final = 4096
"""Ways to read one expression as one instruction that are looked at."""

Cost: TypeAlias = tuple[float, ...]
"""What a choice costs; sums are made of each number, and compared in order."""


@dataclass(frozen=True, slots=True)
class Use:
    """An instruction for a stage, a part of one, or a chain of them.

    ``stages`` are what it does: those of the program, in which operands that are expressions are read from
    tensors of their own. ``source`` is the program's stage that they come from. An instruction that continues
    a sum has it started by ``starts``; ``whole`` says that it does all operations itself. ``executions``
    counts how often it runs.
    """

    mapping: Mapping
    stages: tuple[Stage, ...]
    source: str
    whole: bool
    starts: Needle | None
    executions: int

    @property
    def instruction(self) -> str:
        """The instruction's name."""
        return self.mapping.instruction.name


@dataclass(frozen=True, slots=True)
class Option:
    """A way to do an expression: what the root's instruction and everything below it cost together."""

    use: Use
    cost: Cost


@dataclass(frozen=True, slots=True)
class Uncovered:
    """An expression of a stage that no instruction does, combined by ``combine`` if that is given, and why.

    ``value`` is empty where the stage is no single assignment.
    """

    stage: str
    value: str
    combine: str
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """A program as its instructions do it: equal to the one given, with the ``uses`` in its order.

    Stages that are ``uncovered`` stand in the program as they were.
    """

    program: Program
    uses: tuple[Use, ...]
    uncovered: tuple[Uncovered, ...]
    cost: Cost


Price: TypeAlias = Callable[[Use], Cost | None]
"""What an instruction's use costs; ``None`` where the machine cannot have it so."""
Choice: TypeAlias = Callable[[Sequence[Option], Stage], int]
"""Which of several ways to do an expression of a stage is taken."""


def fewest(use: Use) -> Cost:
    """The paper's rule: as few executions as can be."""
    return (float(use.executions),)


def cheapest(options: Sequence[Option], stage: Stage) -> int:
    """The first of the options with the least cost."""
    costs = [o.cost for o in options]
    return costs.index(min(costs))


def select_instructions(
    program: Program, needles: Sequence[Needle], price: Price = fewest, choose: Choice = cheapest
) -> Selection:
    """The instructions that do a program.

    >>> from tilewright import lang
    >>> from tilewright.mapping import Needle
    >>> x, y = lang.placeholder((8, 8), name="x"), lang.placeholder((8, 8), name="y")
    >>> def unit(name, value):
    ...     z = lang.compute((8, 8), value, name="z")
    ...     return Needle.of_program(name, lang.program([x, y] if name != "relu" else [x], [z]))
    >>> zero = lang.const(0, "f32")
    >>> add = unit("add", lambda i, j: x[i, j] + y[i, j])
    >>> relu = unit("relu", lambda i, j: lang.maximum(x[i, j], zero))
    >>> both = unit("add_relu", lambda i, j: lang.maximum(x[i, j] + y[i, j], zero))
    >>> d = lang.compute((8, 8), lambda i, j: lang.maximum(zero, y[i, j] + x[i, j]), name="d")
    >>> for needles in ([add, relu], [add, relu, both]):
    ...     print([use.instruction for use in select_instructions(lang.program([x, y], [d]), needles).uses])
    ['add', 'relu']
    ['add_relu']
    """
    return _Selector(program, needles, price, choose).run()


@dataclass(frozen=True, slots=True)
class _Way:
    """An option with the expressions below it, done, and the program's stages that it does as well."""

    option: Option
    own: Cost
    inner: tuple[_Way, ...]
    consumed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Root:
    """What a stage computes: an expression, combined with what is there where it is a reduction.

    ``source`` is the program's stage that it is a part of.
    """

    source: Stage
    stage: Stage
    value: Expr
    combine: str

    @staticmethod
    def of(stage: Stage) -> _Root | None:
        """A stage of the program; ``None`` where it is no single assignment."""
        if not isinstance(stage.body, Store) or len(stage.body.writes) != 1:
            return None
        (w,) = stage.body.writes
        e = w.value
        if (
            isinstance(e, Binary)
            and isinstance(e.a, Load)
            and (e.a.buffer, e.a.indices) == (w.buffer, w.indices)
        ):
            return _Root(stage, stage, e.b, e.op)
        return _Root(stage, stage, e, "")

    def stage_of(self, value: Expr) -> Stage:
        """The stage with another expression."""
        assert isinstance(self.stage.body, Store)
        (w,) = self.stage.body.writes
        if self.combine and isinstance(w.value, Binary):
            value = replace(w.value, b=value)
        return replace(self.stage, body=store(w.buffer, w.indices, value))


@dataclass(frozen=True, slots=True)
class _Cut:
    """An expression in which some parts are read from tensors, and what is left of an instruction.

    ``consumed`` are stages whose values stand in it, in place of what they write.
    """

    value: Expr
    parts: tuple[Expr, ...]
    left: Counter[str]
    consumed: tuple[str, ...] = ()


_Reading: TypeAlias = tuple[tuple[Stage, ...], tuple[tuple[_Root, Expr], ...], tuple[str, ...]]
"""Stages as an instruction may do them, the expressions that they read, and which stages it does as well."""


class _Selector:
    def __init__(self, program: Program, needles: Sequence[Needle], price: Price, choose: Choice) -> None:
        self.program, self.price, self.choose = program, price, choose
        # sums are continued: what starts one that another instruction continues is not looked for by itself
        self.needles = [n for n in needles if not any(starts(n, other) for other in needles)]
        self.starting = [n for n in needles if n not in self.needles]
        self.stages = {s.name: s for s in program.stages}
        self.budgets = {n.name: tuple(map(_operations, n.forms)) for n in needles}
        self.tensors = {b.name: b for b in program.buffers}
        self.temporaries: dict[tuple[str, Expr], Load] = {}
        self.done: dict[tuple[str, Expr], _Way | Uncovered] = {}
        self.below: dict[str, list[Stage]] = {s.name: [] for s in program.stages}
        """By stage, those whose results only it reads."""
        self.elementwise = dict(self.elements())
        self.roots: list[Stage] = []
        for s in program.stages:
            reader = self.reader(s)
            (self.roots if reader is None else self.below[reader.name]).append(s)

    def elements(self) -> Iterator[tuple[str, tuple[str, tuple[str, ...], Expr]]]:
        """Buffers with stage, axes and value, where that is element-wise and read at one place."""
        for s in self.program.stages:
            reader, own = self.reader(s), _Root.of(s)
            into = None if reader is None else _Root.of(reader)
            if into is None or own is None or own.combine or not isinstance(s.body, Store):
                continue
            (w,) = s.body.writes
            names = [str(i.as_var()) for i in w.indices]
            if sorted(names) == sorted(it.name for it in s.iters) and _reads(into.value, w.buffer) == 1:
                yield w.buffer, (s.name, tuple(names), own.value)

    def reader(self, stage: Stage) -> Stage | None:
        """The stage that alone reads what a stage writes, where that is no output."""
        buffer = next(iter(stage.writes))
        readers = self.program.consumers(buffer)
        inner = any(b.name == buffer for b in self.program.temps)
        alone = len(stage.writes) == len(self.program.producers(buffer)) == len(readers) == 1
        return readers[0] if inner and alone else None

    def run(self) -> Selection:
        ways: dict[str, _Way] = {}
        uncovered: list[Uncovered] = []
        for s in self.roots:
            self.collect(s, ways, uncovered)
        left = {u.stage for u in uncovered}
        at = {s.name: n for n, s in enumerate(self.program.stages)}
        # what is below stands before what it is for: the order of one stage's own is kept
        ordered = sorted(ways.values(), key=lambda w: at[w.option.use.source])
        uses = tuple(w.option.use for w in ordered)
        stages = [(at[u.source], s) for u in uses for s in u.stages]
        stages += [(at[s.name], s) for s in self.program.stages if s.name in left]
        kept = tuple(s for _, s in sorted(stages, key=lambda x: x[0]))
        known = {b.name for b in self.program.buffers}
        written = {b for s in kept for b in s.writes} - known
        made = tuple(b for name, b in self.tensors.items() if name in written)
        used = {b for s in kept for b in (*s.reads, *s.writes)}
        temps = (*(b for b in self.program.temps if b.name in used), *made)
        return Selection(
            replace(self.program, stages=kept, temps=temps),
            uses,
            tuple(uncovered),
            tuple(map(sum, zip(*(w.own for w in ordered), strict=True))),
        )

    def collect(self, stage: Stage, ways: dict[str, _Way], uncovered: list[Uncovered]) -> None:
        """What does a stage and those that only it reads."""
        found = self.whole(stage)
        consumed = () if isinstance(found, Uncovered) else found.consumed
        for s in (stage, *(self.stages[n] for n in consumed)):
            for child in self.below[s.name]:
                if child.name not in consumed:
                    self.collect(child, ways, uncovered)
        if isinstance(found, Uncovered):
            uncovered.append(replace(found, stage=stage.name))
        else:
            self.add(found, ways)

    def add(self, way: _Way, ways: dict[str, _Way]) -> None:
        for each in way.inner:
            self.add(each, ways)
        ways.setdefault(way.option.use.stages[-1].name, way)

    # ---- expressions ----

    def whole(self, stage: Stage) -> _Way | Uncovered:
        """The way in which a stage of the program is done."""
        root = _Root.of(stage)
        return Uncovered(stage.name, "", "", ()) if root is None else self.solve(root)

    def solve(self, root: _Root) -> _Way | Uncovered:
        key = (root.stage.name, root.value)
        if key not in self.done:
            self.done[key] = self.best(root)
        return self.done[key]

    def best(self, root: _Root) -> _Way | Uncovered:
        failures: list[Failure] = []
        below: list[Uncovered] = []
        ways: list[_Way] = []
        for needle in self.needles:
            for stages, parts, consumed in islice(self.readings(root, self.budgets[needle.name]), MAX_WAYS):
                inner = self.inner(parts)
                if isinstance(inner, Uncovered):
                    below.append(inner)
                    continue
                for use in self.uses(needle, stages, root, failures):
                    price = self.price(use)
                    if price is not None:
                        costs = [price, *(w.option.cost for w in inner), *self.around(root, consumed)]
                        total = tuple(map(sum, zip(*costs, strict=True)))
                        ways.append(_Way(Option(use, total), price, inner, consumed))
        if not ways:
            own = Uncovered(root.source.name, str(root.value), root.combine, tuple(dict.fromkeys(failures)))
            return below[0] if below else own
        return ways[self.choose([w.option for w in ways], root.source)]

    def around(self, root: _Root, consumed: tuple[str, ...]) -> list[Cost]:
        """The costs of the stages that only these read: they count where ways differ in what they consume."""
        found = []
        for name in (root.stage.name, *consumed):
            for child in self.below.get(name, ()):
                way = self.whole(child) if child.name not in consumed else None
                if isinstance(way, _Way):
                    found.append(way.option.cost)
        return found

    def inner(self, parts: Sequence[tuple[_Root, Expr]]) -> tuple[_Way, ...] | Uncovered:
        """The ways in which expressions that get tensors of their own are done."""
        out = []
        for root, e in parts:
            made = self.temporary(root.source, e)
            iters = tuple(it for it in root.source.iters if it.name in e.vars)
            stage = Stage(made.buffer, iters, store(made.buffer, made.indices, e))
            found = self.solve(_Root(root.source, stage, e, ""))
            if isinstance(found, Uncovered):
                return found
            out.append(found)
        return tuple(out)

    def temporary(self, source: Stage, e: Expr) -> Load:
        """The tensor of an expression of a stage, over the axes that it mentions."""
        key = (source.name, e)
        if key not in self.temporaries:
            used = [it for it in source.iters if it.name in e.vars]
            n = sum(1 for s, _ in self.temporaries if s == source.name)
            name = fresh_name(f"{source.name}_{n}", self.tensors)
            self.tensors[name] = Buffer(name, tuple(it.extent for it in used), e.dtype)
            self.temporaries[key] = Load(name, tuple(var(it.name) for it in used), e.dtype)
        return self.temporaries[key]

    # ---- one instruction ----

    def readings(self, root: _Root, budgets: Sequence[Counter[str]]) -> Iterator[_Reading]:
        """Ways to read a stage, and those before it, as an instruction's stages with just its operations."""
        summed = {it.name for it in root.stage.iters if it.kind == "red"}
        for cut in self.grow(root, root.value, budgets[-1], summed, cuttable=False):
            if +cut.left:
                continue
            mine = root.stage_of(cut.value)
            parts = tuple((root, e) for e in cut.parts)
            if len(budgets) == 1:
                yield (mine,), parts, cut.consumed
                continue
            for before in (b for n in (root.stage.name, *cut.consumed) for b in self.below.get(n, ())):
                earlier = _Root.of(before)
                if earlier is None or before.writes[0] not in {ld.buffer for ld in loads(cut.value)}:
                    continue
                for stages, inner, consumed in self.readings(earlier, budgets[:-1]):
                    yield (*stages, mine), (*parts, *inner), (before.name, *consumed, *cut.consumed)

    def grow(
        self, root: _Root, e: Expr, budget: Counter[str], summed: set[str], *, cuttable: bool
    ) -> Iterator[_Cut]:
        """Ways to read an expression with at most these operations."""
        if isinstance(e, Const | Load | OfIndex):
            yield _Cut(e, (), budget)
            name, value = self.inlined(root, e)
            if value is not None:
                for cut in self.grow(root, value, budget, summed, cuttable=False):
                    yield replace(cut, consumed=(name, *cut.consumed))
            return
        if cuttable and not summed & e.vars:
            # a tensor over the axes of a sum would be larger than the operands
            yield _Cut(self.temporary(root.source, e), (e,), budget)
        names = Counter(operation_names(e))
        if isinstance(e, Cast) and e.mode != "bits" and widens(e.a.dtype, e.dtype):
            for cut in self.grow(root, e.a, budget, summed, cuttable=True):
                if isinstance(cut.value, Load):
                    yield replace(cut, value=replace(e, a=cut.value))
        if names <= budget:
            for values, parts, left, done in self.all_of(root, children(e), budget - names, summed):
                yield _Cut(with_children(e, values), parts, left, done)

    def inlined(self, root: _Root, e: Expr) -> tuple[str, Expr | None]:
        """The stage that writes an element, and its value there, where that stands for the element."""
        if not isinstance(e, Load) or root.stage is not root.source or e.buffer not in self.elementwise:
            return "", None
        stage, names, value = self.elementwise[e.buffer]
        return stage, substitute_expr(value, dict(zip(names, e.indices, strict=True)))

    def all_of(
        self, root: _Root, es: Sequence[Expr], budget: Counter[str], summed: set[str]
    ) -> Iterator[tuple[tuple[Expr, ...], tuple[Expr, ...], Counter[str], tuple[str, ...]]]:
        if not es:
            yield (), (), budget, ()
            return
        for first in self.grow(root, es[0], budget, summed, cuttable=True):
            for values, parts, left, done in self.all_of(root, es[1:], first.left, summed):
                yield (first.value, *values), (*first.parts, *parts), left, (*first.consumed, *done)

    def uses(
        self, needle: Needle, stages: tuple[Stage, ...], root: _Root, failures: list[Failure]
    ) -> Iterator[Use]:
        """The instruction's mappings onto these stages that leave none of their operations out."""
        written = {b for s in stages for b in s.writes}
        read = {b for s in stages for b in s.reads} - written
        between = {b for s in stages[:-1] for b in s.writes}
        part = Program(
            self.program.name,
            self.program.params,
            tuple(self.tensors[b] for b in self.tensors if b in read),
            tuple(self.tensors[b] for b in self.tensors if b in written - between),
            tuple(self.tensors[b] for b in self.tensors if b in between),
            stages,
        )
        try:
            forms = [three_operand_form(s) for s in stages]
        except ProgramError:
            return
        match = find_mappings(part, needle, stages[0].name)
        failures.extend(match.failures)
        operations = sum(len(f.operations) for f in forms)
        for mapping in match.mappings:
            missing = operations - len(mapping.statements)
            if missing not in (0, forms[0].initialised):
                continue
            first = self.starter(needle, forms[0]) if missing else None
            count = _executions(mapping, forms[0])
            yield Use(mapping, stages, root.source.name, not missing, first, count)

    def starter(self, needle: Needle, form: ThreeOperandForm) -> Needle | None:
        """The instruction that starts the sum of a stage which another one continues."""
        wanted = [(o.op, o.src) for o in form.operations[: form.initialised]]
        for other in self.starting:
            own = other.forms[0]
            if starts(other, needle) and [(o.op, o.src) for o in own.operations[: own.initialised]] == wanted:
                return other
        return None


def starts(first: Needle, continuing: Needle) -> bool:
    """Whether an instruction does what another one does, and starts its result."""
    if len(first.forms) != 1 or len(continuing.forms) != 1:
        return False
    a, b = first.forms[0], continuing.forms[0]
    same = a.operations[a.initialised :] == b.operations[b.initialised :]
    return bool(a.initialised) and not b.initialised and same and first.axes == continuing.axes


def _reads(e: Expr, buffer: str) -> int:
    """How often an expression reads a buffer."""
    return (isinstance(e, Load) and e.buffer == buffer) + sum(_reads(c, buffer) for c in children(e))


def _operations(form: ThreeOperandForm) -> Counter[str]:
    """The operations of an instruction's expression."""
    return Counter(o.op for o in form.operations if o.dst.temporary and o.op != ":=")


def _executions(mapping: Mapping, form: ThreeOperandForm) -> int:
    """How often an instruction runs for a mapping; axes of open extents count once."""
    mapped = {x for b in mapping.axes for x in b.program}
    loops = [e for a, e in zip(form.axes, form.extents, strict=True) if a not in mapped]
    tiles = [
        -(-prod(e.as_int() for e in b.extents) // max(b.part, 1))  # an axis may have no iterations
        for b in mapping.axes
        if all(e.is_const for e in b.extents)
    ]
    return prod(e.as_int() for e in loops if e.is_const) * prod(tiles)
