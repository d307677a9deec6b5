"""The price of tilings: their loops and what is computed in them by one walk over trees, without a schedule.

The walk makes the nodes that cost models read (``cost.LoopTree``), equal but for names to those of the
function that ``apply`` would schedule, and many times as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import prod

from tilewright.cost import LoopTree, Node, Place as At, Term, Work, loop
from tilewright.ir import Program, Store, condition_of, evaluate_index, var
from tilewright.target import Operations
from tilewright.tiling.boxes import Boxes, Here, UnknownError
from tilewright.tiling.grammar import KEPT, Body, Cut, Leaf, Level, Nest, Place, Seq
from tilewright.tiling.walk import bodies, leaf_of, next_of, spine
from tilewright.tiling.works import (
    NOTHING,
    Instance,
    Instances,
    Storage,
    Stored,
    accessed,
    divided,
    moved,
    placed,
    started,
)


class Prices:
    """Loop trees of tilings of one program; what is asked of its stages is asked once."""

    def __init__(self, program: Program, operations: Operations) -> None:
        self._operations, self._boxes, self._instances = operations, Boxes(program), Instances(program)
        self._stages = {stage.name: stage for stage in program.stages}
        self._sums = {
            st.name: frozenset(it.name for it in st.iters if it.kind == "red" and st.init is not None)
            for st in program.stages
        }
        self._count = 0

    def loops(self, nests: Iterable[Nest]) -> LoopTree | None:
        """The loops of nests; ``None`` where extents are symbols, or a stage is no plain definition."""
        nodes: list[Node] = []
        try:
            for nest in nests:
                root = self._stages.get(nest.root)
                if root is None or not all(it.extent.is_const for it in root.iters):
                    return None
                stored = {name: Storage(frozenset(), layout=exprs) for name, exprs in nest.layouts}
                for name, scope in nest.scopes:
                    before = stored.get(name, Storage(frozenset()))
                    stored[name] = replace(before, registers=scope in ("register", "tile"))
                left = {it.name: it.extent.as_int() for it in root.iters}
                plain = not any(isinstance(b, Leaf) and b.instruction for b in bodies(nest.body))
                nodes += self._walk(nest.body, Here(nest.root, {}, left, {}, plain=plain), stored)
        except UnknownError:
            return None
        return LoopTree(tuple(nodes))

    # one block

    def _walk(self, b: Body, here: Here, stored: Stored) -> Sequence[Node]:
        if isinstance(b, Leaf):
            return (self._work(b, here, stored),)
        if isinstance(b, Cut):
            return [x for part, each in self._parts(b, here) for x in self._walk(part, each, stored)]
        if isinstance(b, Seq):
            return self._sequence(b, here, stored)
        if not here.plain and self._is_instruction(b):
            return (self._work(leaf_of(b), here, stored),)
        ahead: list[Node] = []
        if isinstance(b.body, Seq):
            ahead = self._ahead(b, b.body, here, stored)
        if here.fresh and self._is_sum(here, b) and not _keeps(b):
            ahead += self._start(b, here, stored)
            here = here._replace(fresh=False)
        out = ahead
        for bind, each in self._turns(b, here) if here.borders else [(b.bind, here)]:
            name, count, inside = self._entered(b, each)
            out += loop(name, count, bind, self._walk(b.body, inside, stored), b.hints)
        return out

    def _meets_borders(self, place: Place, stage: str) -> bool:
        """Whether loops over taps are cut in a place, as conditions of the stage have it."""
        return "borders" in dict(place.hints) and bool(condition_of(self._stages[stage].body)[0])

    def _turns(self, b: Level, here: Here) -> list[tuple[str, Here]]:
        """A loop over taps in parts, as ``borders.cut_borders`` cuts it: its kind, and what is left."""
        ((axis, _), *others) = b.axes
        whole = [(str(b.bind), here)]
        serial = [row for row in spine(b)[1] if row.level.bind == "serial" and here.left[row.axis] > 1]
        if b.bind != "serial" or others or len(serial) < 2 or here.left[axis] < 2 or "*" in axis:
            return whole
        extent, found = here.left[axis], set[int]()
        condition, _ = condition_of(self._stages[here.stage].body)
        for c in condition:
            step = 0 if c.index is None or c.op != "ge" else c.index.coefficient(axis)
            if c.index is None or not step:
                continue
            rest = c.index - var(axis) * step
            if axis in rest.vars or any(here.at.get(name) for name in rest.vars):
                continue
            # from this tap on the condition holds, or up to the one before it
            for copy in product(*(range(here.left.get(name, 1)) for name in sorted(rest.vars))):
                r = evaluate_index(rest, dict(zip(sorted(rest.vars), copy, strict=True)))
                found.add(-(r // step) if step > 0 else r // -step + 1)
        cuts = sorted(n for n in found if 0 < n < extent)
        if len(cuts) == extent - 1:
            return [("unroll", here)]
        ends = [0, *cuts, extent]
        return [("serial", here._replace(left={**here.left, axis: hi - lo})) for lo, hi in pairwise(ends)]

    def _is_sum(self, here: Here, b: Level) -> bool:
        sums = self._sums.get(here.stage)
        if not sums:
            return False
        return any(
            part in sums for axis, _ in b.axes for part in ([axis] if "*" not in axis else _parts_of(axis))
        )

    def _parts(self, b: Cut, here: Here) -> list[tuple[Body, Here]]:
        left = _with_products(here.left, [b.axis])
        bounds = (0, *b.at, left[b.axis])
        return [
            (part, here._replace(left={**left, b.axis: bounds[n + 1] - bounds[n]}))
            for n, part in enumerate(b.parts)
            if bounds[n + 1] > bounds[n]
        ]

    def _entered(self, b: Level, here: Here) -> tuple[str, int, Here]:
        """The loop of a level: its name, its iterations, and where the walk is inside of it."""
        self._count += 1
        name = f"{b.axes[0][0]}.{self._count}"
        if len(b.axes) == 1 and "*" not in b.axes[0][0]:
            ((axis, size),) = b.axes
            count = -(-here.left[axis] // size)
            where = here.at
            if count > 1:
                where = {**where, axis: (*where.get(axis, ()), Term(size, ((1, name),)))}
            inside = {**here.left, axis: min(size, here.left[axis])}
            return name, count, here._replace(at=where, left=inside, loops={**here.loops, name: count})
        left = _with_products(here.left, [axis for axis, _ in b.axes])
        parts: list[tuple[str, int, int]] = []
        for axis, size in b.axes:
            count = -(-left[axis] // size)
            if parts and parts[-1][0] == axis and parts[-1][1] == size * count:
                # neighbours along one axis, one in the other, are one
                count *= parts.pop()[2]
            parts.append((axis, size, count))
            left[axis] = min(size, left[axis])
        total = below = prod(count for _, _, count in parts)
        at = dict(here.at)
        for axis, size, count in parts:
            first = below == total
            below //= count
            if count > 1:
                at[axis] = (*at.get(axis, ()), Term(size, ((1, name),), below, 0 if first else count))
        return name, total, here._replace(at=at, left=left, loops={**here.loops, name: total})

    def _through(
        self,
        b: Body,
        here: Here,
        work: Callable[[Leaf, Here], Work],
        skipped: Callable[[Level], bool] = lambda level: False,
    ) -> list[Node]:
        """A nest of one block alone, but for levels that are ``skipped``."""
        if isinstance(b, Leaf):
            return [work(b, here)]
        if isinstance(b, Cut):
            return [
                x for part, each in self._parts(b, here) for x in self._through(part, each, work, skipped)
            ]
        if isinstance(b, Seq):
            return self._through(next_of(b), here, work, skipped)
        if skipped(b):
            return self._through(b.body, here, work, skipped)
        if not here.plain and self._is_instruction(b):
            return [work(leaf_of(b), here)]
        name, count, inside = self._entered(b, here)
        return [*loop(name, count, b.bind, self._through(b.body, inside, work, skipped))]

    def _is_instruction(self, b: Level) -> bool:
        """Whether these are the levels of an instruction's own axes: it has no loops over them."""
        name = leaf_of(b).instruction
        return bool(name) and len(spine(b)[1]) == len(self._operations[name].inner_axes)

    def _start(self, b: Body, here: Here, stored: Stored, *, instructions: bool = False) -> list[Node]:
        """The start of sums: the levels of a nest but those of the sums."""

        def work(leaf: Leaf, here: Here) -> Work:
            if leaf.instruction and instructions:
                return self._by_instruction(leaf, here, stored, starts=True)
            return started(self._instance(here.stage, stored), self._binding(here), here.loops, stored)

        return self._through(b, here, work, lambda level: self._is_sum(here, level))

    def _work(self, leaf: Leaf, here: Here, stored: Stored) -> Work:
        if leaf.instruction:
            return self._by_instruction(leaf, here, stored)
        return placed(self._instance(leaf.stage, stored), self._binding(here), here.loops, stored)

    def _by_instruction(self, leaf: Leaf, here: Here, stored: Stored, *, starts: bool = False) -> Work:
        """An instruction's work: its products, and what it reads and writes from where its operands begin."""
        instance, known = self._instance(leaf.stage, stored), self._operations[leaf.instruction]
        written = {t.buffer for t in instance.writes}
        used = [t for t in instance.touched if t.writes or not (starts or t.buffer in written)]
        binding = self._binding(here)
        found = tuple({accessed(t, binding, here.loops, stored): None for t in used})
        return Work(instance.name, found, max(1, known.products), 4, leaf.instruction)

    def _instance(self, stage: str, stored: Stored) -> Instance:
        found = self._instances.of(self._stages[stage], stored)
        if found is None:
            raise UnknownError
        return found

    def _binding(self, here: Here) -> Mapping[str, At]:
        """Where the iterators are: axes taken together are taken apart."""
        products = [axis for axis in here.at if "*" in axis]
        if not products:
            return here.at
        out = dict(here.at)
        for axis in products:
            below = prod(here.left[f"{axis}|{n}"] for n, _ in enumerate(axis.split("*")))
            for n, part in enumerate(axis.split("*")):
                name, _, tile = part.partition("/")
                count = here.left[f"{axis}|{n}"]
                below //= count
                term = Term(1, ((1, axis),), below, count if n else 0)
                terms = divided(term, here.at, here.loops) if below > 1 or n else [*here.at[axis]]
                by = int(tile) if tile else 1
                out[name] = (*out.get(name, ()), *(Term(t.stride * by, *t[1:]) for t in terms))
        return out

    def _named(self, here: Here) -> Here:
        """The same with the iterators of axes that are taken together."""
        return here._replace(at=self._binding(here))

    # what stands in one level

    def _ahead(self, b: Level, inside: Seq, here: Here, stored: Stored) -> list[Node]:
        """What goes ahead of a level for what stands in it: starts of sums that go along, first turns."""
        out: list[Node] = []
        leaves = [x for x in inside.items if isinstance(x, Leaf)]
        for leaf in leaves[1:]:
            there = self._along(leaf.stage, leaves[0].stage, here)
            out.append(started(self._instance(leaf.stage, stored), there.at, there.loops, stored))
        for place in inside.items:
            if isinstance(place, Place) and place.how == "slide":
                name, _, within = self._entered(b, here)
                there, moves = self._boxes.made(inside, self._named(within))[place.value], {}
                for axis, n in there.left.items():
                    step = _step_of(there.at.get(axis, ()), name)
                    moves[axis] = max(1, n - step) if step else n
                before = there._replace(left=moves, loops=here.loops, at=_without(there.at, name))
                out += self._nest(place, before, self._kept(place, before, stored))
        return out

    def _sequence(self, b: Seq, here: Here, stored: Stored) -> list[Node]:
        out: list[Node] = []
        boxes: Mapping[str, Here] = {}
        first = True
        for item in b.items:
            if isinstance(item, Place):
                if item.how in KEPT:
                    out += self._keep(item, here, stored)
                elif item.how == "init":
                    if item.nest is None:
                        raise UnknownError
                    out += self._start(item.nest, here, stored, instructions=True)
                    here = here._replace(fresh=False)
                elif item.how == "copy":
                    boxes = boxes or self._boxes.made(b, self._named(here))
                    nodes, storage = self._fetch(item, here, boxes, stored)
                    out += nodes
                    stored = {**stored, item.value: storage}
                else:
                    boxes = boxes or self._boxes.made(b, self._named(here))
                    there = boxes[item.value]
                    if item.how == "slide":
                        there = _next_turn(there, here)
                    stored = self._kept(item, there, stored)
                    out += self._nest(item, there, stored)
            elif isinstance(item, Leaf) and not first:
                there = self._along(item.stage, here.stage, here)
                out.append(placed(self._instance(item.stage, stored), there.at, there.loops, stored))
            else:
                out += self._walk(item, here, stored)
                first = False
        return out

    def _kept(self, place: Place, there: Here, stored: Stored) -> Stored:
        """What is stored where, with the result of a producer that is made here."""
        if place.scope == "whole":
            return stored
        (buffer, *_) = self._stages[place.value].writes
        outside = frozenset(there.loops)
        along = {
            self._stages[leaf.stage].writes[0]: Storage(outside)
            for row in spine(place.nest)[1]
            for leaf in row.folded
        }
        own = Storage(outside, place.scope in ("register", "tile"), place.layout)
        return {**stored, **along, buffer: own}

    def _nest(self, place: Place, there: Here, stored: Stored) -> Sequence[Node]:
        """A producer's own nest; as it stands, all of its loops in order."""
        there = there._replace(borders=self._meets_borders(place, there.stage))
        if place.nest is not None and not isinstance(place.nest, Leaf):
            return self._walk(place.nest, there, stored)
        body: Body = Leaf(place.value)
        for it in reversed(self._stages[place.value].iters):
            body = Level(((it.name, 1),), body)
        return self._walk(body, there._replace(fresh=False), stored)

    def _keep(self, place: Place, here: Here, stored: Stored) -> list[Node]:
        """A result in storage of its own: perhaps fetched, computed, then drained by a copy or a reader."""
        if place.nest is None or place.drain is None:
            raise UnknownError
        (result,) = self._stages[here.stage].writes
        registers = place.scope in ("register", "tile")
        inside = {**stored, result: Storage(frozenset(here.loops), registers, place.layout)}
        out: list[Node] = []
        if place.how == "accumulate":
            out += self._moves(place.drain, here, stored, inside, back=True)
        there = here._replace(borders=here.borders or self._meets_borders(place, here.stage))
        out += self._walk(place.nest, there, inside)
        reader = leaf_of(place.drain).stage
        if reader == here.stage:
            return [*out, *self._moves(place.drain, here, stored, inside, back=False)]
        return [*out, *self._walk(place.drain, self._along(reader, here.stage, here), inside)]

    def _moves(self, b: Body, here: Here, stored: Stored, kept: Stored, *, back: bool) -> list[Node]:
        """The nest of a copy of what is kept."""
        instance = self._instance(here.stage, NOTHING)

        def work(leaf: Leaf, here: Here) -> Work:
            found = moved(instance, self._binding(here), here.loops, stored, kept, back=back)
            return self._copied(found, leaf)

        return self._through(b, here, work)

    def _copied(self, work: Work, leaf: Leaf) -> Work:
        """A copy as it stands, or by an instruction."""
        if not leaf.instruction:
            return work
        known = self._operations[leaf.instruction]
        return work._replace(operations=known.products, element=4, instruction=leaf.instruction)

    # boxes

    def _along(self, reader: str, made: str, here: Here) -> Here:
        """A stage that goes along with another one, whose result it reads: its axes are there by that."""
        stage, (result, *_) = self._stages[reader], self._stages[made].writes
        _, body = condition_of(self._stages[made].body)
        if not isinstance(body, Store):
            raise UnknownError
        at, left = dict[str, At](), {it.name: it.extent.as_int() for it in stage.iters}
        binding = self._binding(here)
        read = self._boxes.loads(reader, result)[0]
        for i, w in zip(read.indices, body.writes[0].indices, strict=True):
            name, axis = i.as_var(), w.as_var()
            if name is not None and axis is not None:
                at[name], left[name] = binding.get(axis, ()), here.left.get(axis, 1)
        return Here(reader, at, left, here.loops, plain=here.plain)

    def _fetch(
        self, place: Place, here: Here, readers: Mapping[str, Here], stored: Stored
    ) -> tuple[Sequence[Node], Storage]:
        """A copy of the box that is read below, and the storage of it."""
        dims = self._boxes.read(place.value, readers)
        if dims is None or place.nest is None:
            raise UnknownError
        names = [f"d{n}" for n in range(len(dims))]
        own = Here(place.value, {}, {d: n for d, (_, n) in zip(names, dims, strict=True)}, here.loops)
        base = {d: at for d, (at, _) in zip(names, dims, strict=True)}
        before = stored.get(place.value)
        read = self._instances.copied(place.value, () if before is None else before.layout, False)
        written = self._instances.copied(place.value, place.layout, True)
        storage = Storage(
            frozenset(here.loops), place.scope in ("register", "tile"), place.layout, copied=True
        )
        made = {place.value: storage}

        def work(leaf: Leaf, here: Here) -> Work:
            own = self._binding(here)
            there = {d: (*at, *own.get(d, ())) for d, at in base.items()}
            found = (accessed(written, own, here.loops, made), accessed(read, there, here.loops, stored))
            return self._copied(Work(f"{read.buffer}_copy", found, 1, read.width), leaf)

        return self._through(place.nest, own, work), storage


def _keeps(b: Body) -> bool:
    """Whether a result is kept somewhere below, whose sums begin inside."""
    return any(p.how in KEPT for row in spine(b)[1] for p in row.places)


def _parts_of(axis: str) -> list[str]:
    """The iterators of an axis: of several taken together, each."""
    return [part.partition("/")[0] for part in axis.split("*")]


def _with_products(left: Mapping[str, int], axes: Iterable[str]) -> dict[str, int]:
    """What is left of axes, those included that are taken together here first: of these each part, too."""
    out = dict(left)
    for axis in axes:
        if "*" in axis and axis not in out:
            sizes = []
            for n, part in enumerate(axis.split("*")):
                name, _, tile = part.partition("/")
                size = int(tile) if tile else 1
                sizes.append(-(-out[name] // size))
                out[f"{axis}|{n}"] = sizes[-1]
                out[name] = min(size, out[name])
            out[axis] = prod(sizes)
    return out


def _step_of(place: At, name: str) -> int:
    """How far a loop moves a place."""
    return sum(abs(t.stride * c) for t in place for c, n in t.inner if n == name and t.quotient == 1)


def _without(at: Mapping[str, At], name: str) -> dict[str, At]:
    return {axis: tuple(t for t in place if all(n != name for _, n in t.inner)) for axis, place in at.items()}


def _next_turn(there: Here, here: Here) -> Here:
    """What a producer that slides makes in a turn: what the turn before has not made."""
    innermost = [*here.loops][-1] if here.loops else ""
    left = {}
    for axis, n in there.left.items():
        step = _step_of(there.at.get(axis, ()), innermost)
        left[axis] = min(n, step) if step else n
    return there._replace(left=left)
