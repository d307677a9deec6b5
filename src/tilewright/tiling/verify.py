"""The invariants of tilings, checked without making loops: what is accepted here, ``apply`` carries out.

Each has a name, which errors give:

* *axes*: levels run along iterators of the stage whose nest they are in, of copies along dimensions ``d0`` …;
* *digits*: the smallest size of an axis on a path is 1: each element is computed once;
* *parts*: cuts rise, lie inside of the tile around, and are multiples of the sizes below;
* *lanes*: a leaf is in lanes of one level at most, inside of which are expanded levels alone;
* *threads*: parallel levels are in no others, thread levels inside of block levels;
* *kinds*: what is shared by threads or blocks is no sum and no ordered iterator, ordered ones stay serial;
* *producers*: a stage is made once, above what reads it, and nobody else reads it;
* *starts*: sums start in their own levels, or in any ahead of all loops;
* *registers*: loops along what is kept in registers are expanded, or of threads;
* *storage*: what is kept is the nest's own result, and is drained; copies are of what the nest reads;
* *layouts*: each physical dimension is one of a buffer's ``d0``, ``d1`` …, divided, and no two elements meet;
* *instructions*: a leaf's instruction exists, and stands in the levels of its own axes;
* *hints*: they are known, and have values that mean something.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import Final, NoReturn

from tilewright.ir import (
    CONST,
    GLOBAL,
    HINTS,
    LOCAL,
    REGISTER,
    SHARED,
    TILE,
    Buffer,
    Program,
    Stage,
    hint_problem,
    stmt_loads,
)
from tilewright.schedule import with_layout
from tilewright.support import ScheduleError, known_names
from tilewright.target import Operations
from tilewright.tiling.grammar import EXPANDED, KEPT, MADE, Body, Cut, Leaf, Level, Nest, Place, Seq
from tilewright.tiling.text import line_of
from tilewright.tiling.walk import computed_in, leaf_of, next_of, spine

#: Hints of levels besides those of loops: a ring of so many stages.
LEVEL_HINTS: Final = ("stages",)
#: Hints of places.
PLACE_HINTS: Final = ("pad", "rows", "borders", "threads", "vector", "rounds", "along", "swizzle")
#: Where a producer's result stays as the program has it.
WHOLE: Final = "whole"
_SCOPES: Final = (GLOBAL, CONST, LOCAL, SHARED, REGISTER, TILE, WHOLE)


def verify(nests: Iterable[Nest], program: Program, operations: Operations) -> None:
    """Check nests against the program that they are for, and the instructions that their leaves may name.

    Raises ScheduleError, with the line and the invariant, for the first that is broken.
    """
    stages = {stage.name: stage for stage in program.stages}
    made: set[str] = set()
    for nest in nests:
        if nest.root not in stages:
            raise ScheduleError(
                f"the nest {nest.root!r} is of no stage of the program",
                hint=known_names(nest.root, stages, "its stages"),
            )
        for name, _ in (*nest.layouts, *nest.scopes):
            if name not in {b.name for b in program.buffers}:
                raise ScheduleError(f"{name!r} is laid out, and no buffer of the program")
        for name, exprs in nest.layouts:
            _laid_out(program.buffer(name), exprs, nest.body)
        _Checker(program, stages, operations, made).nest(stages[nest.root], nest.body)


@dataclass(frozen=True, slots=True)
class _Where:
    """What is around a node: elements left of each axis, sizes of its levels, lanes and threads."""

    stage: Stage
    axes: Mapping[str, int | None]
    """The axes there are, and elements left of each; ``None`` where only the readers of a value say."""
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    lanes: bool = False
    expanded: bool = False
    parallel: bool = False
    block: bool = False
    innermost: tuple[str, ...] = ()
    kept: bool = False
    """Whether the result is kept somewhere around: all of its elements are then computed, one by one."""
    registers: frozenset[str] = frozenset()
    """Axes along which what is in registers around is addressed."""


@dataclass(slots=True)
class _Checker:
    program: Program
    stages: Mapping[str, Stage]
    operations: Operations
    made: set[str]

    def nest(self, stage: Stage, body: Body, around: _Where | None = None, scope: str = "") -> None:
        """The nest of a stage: of the root, or one that is made inside of another's."""
        self.once(stage, body)
        axes: dict[str, int | None] = {
            it.name: it.extent.as_int()
            # ahead of all loops it is made whole
            if it.extent.is_const and (around is None or not around.innermost or it.kind != "par")
            else None
            for it in stage.iters
        }
        where = _Where(stage, axes)
        if around is not None:
            where = replace(where, parallel=around.parallel, block=around.block)
        if scope == REGISTER:
            where = replace(where, registers=frozenset(it.name for it in stage.iters if it.kind == "par"))
        self.body(body, where)

    def once(self, stage: Stage, node: Body) -> None:
        """A stage is made in one place."""
        if stage.name in self.made:
            _fail("producers", f"{stage.name} is made twice", node)
        self.made.add(stage.name)

    def body(self, b: Body, at: _Where) -> None:
        """One node and what is below."""
        if isinstance(b, Leaf):
            self.leaf(b, at)
        elif isinstance(b, Level):
            self.body(b.body, self.level(b, at))
        elif isinstance(b, Cut):
            self.cut(b, at)
        else:
            self.sequence(b, at)

    def level(self, b: Level, at: _Where) -> _Where:
        """The invariants of one loop; returns what is around its body."""
        axes, sizes, once, rising = dict(at.axes), dict(at.sizes), True, False
        for axis, size in b.axes:
            self.axis(axis, axes, b)
            left = axes[axis]
            if size < 1:
                _fail("digits", f"a level of {axis} has iterations of {size} elements", b)
            around = sizes.get(axis, ())
            uneven = bool(around) and around[-1] > size and around[-1] % size > 0
            if uneven and (at.kept or any(p.how in KEPT for row in spine(b)[1] for p in row.places)):
                _fail("digits", f"tiles of {around[-1]} of what is kept have no parts of {size}", b)
            sizes[axis] = (*around, size)
            # digits out of their order: there are more iterations than the elements around say
            rising = rising or (bool(around) and around[-1] < size)
            once = once and left is not None and left <= size
            axes[axis] = size if left is None else min(size, left)
            self.numbered(b, at, axis, None if rising else left, size)
        if rising and len(b.axes) > 1:
            _fail("digits", "levels of one loop over several axes stand in the order of their sizes", b)
        self.bind(b, at, once=once, rising=rising)
        for key, value in b.hints:
            if key not in (*HINTS, *LEVEL_HINTS):
                _fail("hints", f"there is no hint {key!r}", b)
            if problem := hint_problem("unroll" if key in LEVEL_HINTS else key, value):
                _fail("hints", problem, b)
        return replace(
            at,
            axes=axes,
            sizes=sizes,
            lanes=at.lanes or b.bind == "vector",
            expanded=at.expanded or b.bind in EXPANDED,
            parallel=at.parallel or b.bind == "parallel",
            block=at.block or b.bind.startswith("block"),
            innermost=(*at.innermost, *(axis for axis, _ in b.axes)),
        )

    def numbered(self, b: Level, at: _Where, axis: str, left: int | None, size: int) -> None:
        """Registers have no addresses: loops along what is kept in them are expanded, or of threads."""
        names = {part.partition("/")[0] for part in axis.split("*")}
        if b.bind == "vector" and len(b.axes) > 1 and at.expanded and not names.isdisjoint(at.registers):
            _fail("registers", "lanes along several axes of registers are outside of what is written out", b)
        if b.bind in (*EXPANDED, "virtual") or b.bind.startswith("thread") or names.isdisjoint(at.registers):
            return
        # of a producer only what reads it says how many elements there are; a warp's tile has one of its own
        several = not at.block if left is None else left > size
        if several and not leaf_of(b).instruction:
            _fail("registers", f"{axis} moves along registers, which have no addresses", b)

    def axis(self, axis: str, axes: dict[str, int | None], b: Level) -> None:
        """An axis is there; products of axes, or of their tiles, take the place of these."""
        if axis in axes:
            return
        parts = [part.partition("/") for part in axis.split("*")]
        unknown = next((name for name, _, _ in parts if name not in axes), None)
        if unknown is not None or axis == parts[0][0]:
            known = ", ".join(axes) or "none"
            _fail("axes", f"there is no axis {unknown or axis!r} here: there are {known}", b)
        extents: list[int | None] = []
        for name, _, tile in parts:
            left = axes[name]
            size = int(tile) if tile else 1
            extents.append(None if left is None else -(-left // size))
            if tile:
                axes[name] = size if left is None else min(size, left)
            else:
                del axes[name]
        axes[axis] = None if None in extents else prod(n for n in extents if n is not None)

    def bind(self, b: Level, at: _Where, *, once: bool, rising: bool) -> None:
        """What a level runs on agrees with what is around it and with the kinds of its axes."""
        several = rising or any((at.axes.get(axis) or 1) > 1 for axis, _ in b.axes)
        in_lanes = at.lanes and not leaf_of(b).instruction
        if in_lanes and (b.bind == "vector" or (b.bind != "unroll" and several)):
            _fail("lanes", "inside of lanes are expanded levels alone", b)
        shared = b.bind == "parallel" or b.bind.startswith(("block", "thread"))
        if b.bind == "parallel" and (at.parallel or at.block):
            _fail("threads", "a parallel level is inside of another one", b)
        if b.bind.startswith("thread") and not at.block:
            _fail("threads", "threads are inside of no block", b)
        kinds = {it.name: it.kind for it in at.stage.iters}
        for axis, _ in b.axes:
            for name in (part.partition("/")[0] for part in axis.split("*")):
                kind = kinds.get(name, "par")
                if shared and kind != "par" and not once:
                    _fail("kinds", f"{name} is {_KINDS[kind]}: its iterations are not shared", b)
                if kind == "ord" and b.bind != "serial":
                    _fail("kinds", f"{name} is {_KINDS[kind]}: it stays serial", b)

    def cut(self, b: Cut, at: _Where) -> None:
        """Parts lie inside of what is left, and each goes on with the axis that is cut."""
        if len(b.parts) != len(b.at) + 1:
            _fail("parts", f"{len(b.at)} cuts make {len(b.at) + 1} parts, not {len(b.parts)}", b)
        axes = dict(at.axes)
        first = b.parts[0]
        if isinstance(first, Level):
            self.axis(b.axis, axes, first)
        left = axes.get(b.axis)
        bounds = [0, *b.at, *([left] if left is not None else [])]
        if any(lo >= hi for lo, hi in pairwise(bounds)):
            _fail("parts", f"cuts of {b.axis} rise, inside of {left} elements", b)
        for n, part in enumerate(b.parts):
            if not isinstance(part, Level) or part.axes[0][0] != b.axis:
                _fail("parts", f"part {n} begins with a level of another axis than {b.axis}", b)
            if any(row.size > part.axes[0][1] for row in spine(part)[1] if row.axis == b.axis):
                _fail("parts", f"the first level of part {n} is not the largest of {b.axis}", b)
            if any(place % part.axes[0][1] for place in b.at):
                _fail("parts", f"cuts of {b.axis} are multiples of the {part.axes[0][1]} elements below", b)
            here = dict(axes)
            if left is not None:
                here[b.axis] = [*b.at, left][n] - [0, *b.at][n]
            made = set(self.made)
            self.body(part, replace(at, axes=here))
            # parts make the same producers, each for itself
            if n < len(b.parts) - 1:
                self.made.clear()
                self.made.update(made)

    def sequence(self, b: Seq, at: _Where) -> None:
        """Places in one level, then one body; further leaves go along with it."""
        others = [x for x in b.items if not isinstance(x, Place)]
        kept = [x for x in b.items if isinstance(x, Place) and x.how in KEPT]
        bodies = [x for x in others if not isinstance(x, Leaf)]
        if len(kept) + len(bodies) > 1 or not (kept or others) or (kept and others):
            _fail("storage", "a level has one body: a loop, leaves, or what keeps its result", b)
        self.order(b)
        at = replace(at, registers=at.registers | self.read_in_registers(b, at.stage))
        for item in b.items:
            if isinstance(item, Place):
                if item.how == "init" and at.sizes:
                    self.start(item, b)
                elif item.how in MADE:
                    self.readers(item, b)
                self.place(item, at)
            elif isinstance(item, Leaf) and item is not others[0]:
                self.along(item, at)
            else:
                self.body(item, at)

    def read_in_registers(self, b: Seq, stage: Stage) -> set[str]:
        """The axes of a stage along which it reads what a level has in registers."""
        held: set[str] = set()
        for p in b.items:
            if isinstance(p, Place) and p.scope == REGISTER and p.how in (*MADE, "copy"):
                held |= {p.value} if p.how == "copy" else {*self.stages[p.value].writes}
        return {
            name for ld in stmt_loads(stage.body) if ld.buffer in held for i in ld.indices for name in i.vars
        }

    def order(self, b: Seq) -> None:
        """What is read in a level is made in it before."""
        before: dict[str, Place] = {}
        for n, item in enumerate(b.items):
            if isinstance(item, Place) and item.how == "copy":
                late = {*computed_in(Seq(b.items[n + 1 :]))}.intersection(self.makers(item.value))
                if late and item.value in self.buffers:
                    _fail("producers", f"{item.value} is copied before {min(late)} makes it", item)
            if not isinstance(item, Place) or item.how not in MADE:
                continue
            inside = set(computed_in(item.nest))
            for name in inside:
                for reader in (
                    r.name for x in self.stage(name, item).writes for r in self.program.consumers(x)
                ):
                    if reader in before and reader not in inside:
                        _fail("producers", f"{name} is made after {reader}, which reads it", item)
            before |= dict.fromkeys(inside, item)

    def along(self, b: Leaf, at: _Where) -> None:
        """A stage that goes along with another one; a sum does so in all of its levels."""
        stage = self.stage(b.stage, b)
        self.once(stage, b)
        axis = at.innermost[-1] if at.innermost else ""
        if stage.init is not None and len(at.sizes.get(axis, ())) > 1:
            _fail("starts", f"sums of {b.stage} would start in each iteration of {axis} around", b)

    def readers(self, p: Place, b: Seq) -> None:
        """Whoever reads what is made in a level stands in it."""
        inside = set(computed_in(b))
        for name in computed_in(p.nest) if p.scope != WHOLE else ():
            for reader in self.reading(name, p):
                if reader not in inside:
                    _fail("producers", f"{name} is also read by {reader}, outside of this level", p)

    def reading(self, name: str, node: Leaf | Place) -> list[str]:
        """The stages that read what a stage writes."""
        return [r.name for b in self.stage(name, node).writes for r in self.program.consumers(b)]

    def start(self, p: Place, b: Seq) -> None:
        """A start of sums below a level has the levels of the sums; ahead of all it has its own."""
        below: dict[str, list[int]] = {}
        for row in spine(next_of(b))[1]:
            below.setdefault(row.axis, []).append(row.size)
        own: dict[str, list[int]] = {}
        for row in spine(p.nest)[1]:
            own.setdefault(row.axis, []).append(row.size)
        for axis, sizes in own.items():
            if sizes != below.get(axis):
                known = " ".join(map(str, below.get(axis, ()))) or "none"
                _fail("starts", f"{axis} has levels of {known} elements below, the start of sums others", p)

    def place(self, p: Place, at: _Where) -> None:
        """Storage: what is in it, who fills and drains it, what is said of it."""
        if p.scope not in _SCOPES:
            _fail("storage", f"there is no scope {p.scope!r}", p)
        for key, _ in p.hints:
            if key not in PLACE_HINTS:
                _fail("hints", f"there is no hint {key!r} of places", p)
        stored = self.stages[p.value].writes[0] if p.how in MADE and p.value in self.stages else p.value
        if p.layout and stored in self.buffers:
            _laid_out(self.program.buffer(stored), p.layout, p)
        if p.how in MADE:
            self.producer(p, at)
        elif p.how in KEPT:
            if p.nest is None or p.drain is None:
                _fail("storage", f"{p.value} is kept, and has a nest and a drain", p)
            pars = {it.name for it in at.stage.iters if it.kind == "par"} if p.scope == REGISTER else set()
            self.body(p.nest, replace(at, kept=True, registers=at.registers | pars))
            self.drain(p, at)
        elif p.how == "copy":
            if p.value not in self.buffers or p.nest is None:
                _fail("storage", f"{p.value!r} is no buffer of the program that could be copied", p)
            rank = len(self.program.buffer(p.value).shape)
            stage = replace(at.stage, iters=())
            self.body(p.nest, _Where(stage, {f"d{n}": None for n in range(rank)}))
        elif p.nest is None or at.stage.init is None:
            _fail("storage", f"{at.stage.name} has no sums that could start here", p)
        else:
            pars = {it.name for it in at.stage.iters if it.kind == "par"}
            axes = {a: n for a, n in at.axes.items() if a in pars}
            self.body(p.nest, replace(at, axes=axes, innermost=()))

    def producer(self, p: Place, at: _Where) -> None:
        """A stage that is made where it is read, and nowhere else."""
        stage = self.stage(p.value, p)
        if p.nest is None:
            _fail("producers", f"{p.value} is made without a nest", p)
        if at.lanes:
            _fail("lanes", f"{p.value} is made inside of lanes", p)
        self.nest(stage, p.nest, at, p.scope)
        readers = {r.name for b in stage.writes for r in self.program.consumers(b)}
        if p.scope != WHOLE and not readers:
            _fail("producers", f"nobody reads {p.value}", p)
        if p.scope != WHOLE and stage.name in {s for b in self.program.outputs for s in self.makers(b.name)}:
            _fail("producers", f"{p.value} is a result of the program: it stays whole", p)

    def drain(self, p: Place, at: _Where) -> None:
        """The way out: a copy in the axes of the nest's own result, or the nest of what reads it."""
        if p.drain is None:
            return
        reader = leaf_of(p.drain).stage
        if reader == at.stage.name:
            pars = {it.name for it in at.stage.iters if it.kind == "par"}
            axes = {a: n for a, n in at.axes.items() if a in pars}
            held = frozenset(pars) if p.scope == REGISTER else frozenset[str]()
            self.body(p.drain, replace(at, axes=axes, innermost=(), registers=at.registers | held))
        else:
            self.nest(self.stage(reader, p), p.drain, at)

    def leaf(self, b: Leaf, at: _Where) -> None:
        """All elements are reached, and an instruction stands in its own levels."""
        if at.stage.iters and b.stage not in (at.stage.name, *at.stage.writes):
            _fail("axes", f"{b.stage} stands in the nest of {at.stage.name}", b)
        for axis, sizes in at.sizes.items():
            if axis in at.axes and min(sizes) != 1:
                _fail("digits", f"the innermost level of {axis} has iterations of {min(sizes)} elements", b)
        for axis, left in at.axes.items():
            if left is not None and left > 1:
                _fail("axes", f"{axis} has {left} elements, and no level that runs over them", b)
        if b.instruction and b.instruction not in self.operations:
            _fail("instructions", f"the target has no instruction {b.instruction!r}", b)

    def stage(self, name: str, node: Leaf | Place) -> Stage:
        if name not in self.stages:
            _fail("producers", f"there is no stage {name!r}", node)
        return self.stages[name]

    def makers(self, buffer: str) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.program.producers(buffer))

    @property
    def buffers(self) -> frozenset[str]:
        return frozenset(b.name for b in self.program.buffers)


def _laid_out(buffer: Buffer, layout: tuple[str, ...], node: Body | Place) -> None:
    try:
        with_layout(buffer, layout)
    except ScheduleError as error:
        _fail("layouts", error.what, node)


_KINDS: Final[Mapping[str, str]] = {"red": "a sum", "ord": "in order"}


def _fail(law: str, what: str, node: Body | Place) -> NoReturn:
    raise ScheduleError(f"{what} ({law}): `{line_of(node)}`")
