"""Carry out a tiling: one function from the tree to schedule steps. It decides nothing and asks no machine.

Every block of a nest goes the same way (``_lay``): its loops are split for all levels and put in order;
storage and what fills it is put into them (producers from the last to the first, the kept result, copies,
what drains them); each of these gets its own nest, by the same way; then sums get their starts, levels their
bindings and hints, leaves their instructions. Last come cuts, outermost first, ends of loops in parts,
fusions and threads (``_finish``), from the inside of places to the outside, so that a part has copies of what
is finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tilewright.ir import Index
from tilewright.schedule import Schedule, has_tail
from tilewright.support import InternalError
from tilewright.tiling.borders import cut_borders
from tilewright.tiling.grammar import EXPANDED, KEPT, MADE, Body, Cut, Leaf, Level, Nest, Place, Seq
from tilewright.tiling.loops import axes_of, end_of, fused, loops_below, multiplied, split_axes
from tilewright.tiling.walk import Row, consumers_first, leaf_of, next_of, spine

#: Levels of several axes that are fused when all parts are there.
_FUSED_LAST = ("serial", "parallel")


def apply(s: Schedule, nests: Iterable[Nest]) -> Schedule:
    """Carry out nests, in their order. Raises ScheduleError where a step is refused."""
    for nest in nests:
        for name, exprs in nest.layouts:
            s = s.set_layout(name, exprs)
        for name, scope in nest.scopes:
            s = s.set_scope(name, scope)
        s = _Applying(s).run(nest)
    return s


@dataclass(slots=True)
class _Line:
    """The loops of a block as the tree has them.

    ``names`` are those of the levels in ``rows``, ``left`` the elements of each axis around, ``top`` the
    places ahead of the first level, and ``at`` the loop around the block's own. Copies of the block have the
    same ``kind``.
    """

    block: str
    kind: tuple[str, tuple[str, ...]]
    body: Body
    rows: list[Row]
    names: list[str]
    left: dict[str, int]
    top: tuple[Place, ...]
    at: str | None


@dataclass(frozen=True, slots=True)
class _Inner:
    """A nest in a place, still to be laid: of which block, below which loop, over which loops."""

    block: str
    body: Body
    at: str | None
    axes: Mapping[str, str] | None = None


@dataclass(slots=True)
class _Applying:
    """A nest while it is carried out: the schedule so far, and what is done once all loops are there."""

    s: Schedule
    borders: list[str] = field(default_factory=list)
    readers: list[tuple[str, Body]] = field(default_factory=list)
    threads: dict[str, list[str]] = field(default_factory=dict)
    copies: list[tuple[Place, str]] = field(default_factory=list)

    def run(self, nest: Nest) -> Schedule:
        self._lay(_Inner(nest.root, nest.body, None))
        for stage, body in self.readers:
            # in every part: threads are proved independent while these loops are plain
            for block in [b for b in self.s.blocks() if self.s.block(b).stage == stage]:
                *_, at = self.s.loops(block)[: -len(self.s.block(block).iters)]
                self._lay(_Inner(block, body, at))
        for axis in sorted(self.threads, reverse=True):
            self.s = self.s.bind(tuple(self.threads[axis]), axis)
        for place, copy in self.copies:
            self._cooperate(place, dict(place.hints), copy)
        for stage in dict.fromkeys(self.borders):
            self.s = cut_borders(self.s, stage)
        return self.s

    # one block

    def _lay(self, inner: _Inner) -> None:
        begun = self._begin_ahead(inner)
        line = self._line(inner)
        for loop, row in zip(line.names, line.rows, strict=True):
            for leaf in row.folded:
                # a sum of what has just been stored goes along with it, and starts ahead of the loop
                self.s = self.s.reverse_compute_at(leaf.stage, loop).decompose_init(leaf.stage, loop)
        begun += self._fill(line)
        self._start(line)
        for loop, row in zip(line.names, line.rows, strict=True):
            if "stages" in dict(row.level.hints):
                self.s = self.s.pipeline(loop, int(dict(row.level.hints)["stages"]))
        self._bind(line)
        for each in (line, *begun):
            self._finish(each.body, 0, each, each.names, each.left)

    def _line(self, inner: _Inner) -> _Line:
        """The loops of a block below a loop, split and ordered; what the tree does not name has one turn."""
        block, at = inner.block, inner.at
        axes = dict(axes_of(self.s, block, at) if inner.axes is None else inner.axes)
        top, rows = spine(inner.body)
        self.s, axes = multiplied(self.s, block, at, axes, rows)
        extents = {axis: self.s.loop(loop).extent for axis, loop in axes.items()}
        left = {axis: extent.as_int() for axis, extent in extents.items() if extent.is_const}
        ones = [loop for axis, loop in axes.items() if axis not in {row.axis for row in rows}]
        self.s, names = split_axes(self.s, axes, rows)
        wanted = [*ones, *names]
        if len(wanted) > 1 and wanted != loops_below(self.s, block, at):
            self.s = self.s.reorder(*wanted)
        return _Line(block, _kind(self.s, block), inner.body, rows, names, left, top, at)

    # what stands in its levels

    def _fill(self, line: _Line) -> list[_Line]:
        """Storage, the nests of what fills and drains it; returns the starts of sums that the tree has."""
        places: list[tuple[Place, str | None, int]] = [(p, line.at, -1) for p in line.top]
        for n, (loop, row) in enumerate(zip(line.names, line.rows, strict=True)):
            places += [(p, loop, n) for p in row.places]
        for place, at, n in reversed(places):
            if place.how in MADE:
                own = any(row.level.bind.startswith("thread") for row in line.rows[: n + 1])
                self._move(place, at, of_thread=own)
        begun: list[_Line] = []
        nests: list[_Inner] = []
        for place, at, n in places:
            if place.how in KEPT:
                nests += self._keep(line, place, at)
            elif place.how == "init" and at != line.at:
                begun.append(self._begin(line, place, n))
            elif place.how == "copy":
                nests.append(self._fetch(place, at))
        for place, at, n in places:
            if place.how in MADE and place.nest is not None and not isinstance(place.nest, Leaf):
                nests.append(_Inner(place.value, place.nest, at))
            elif "threads" in dict(place.hints):
                ring = "stages" in dict(line.rows[n].level.hints)
                ahead = ("", "_ahead") if ring else ("",)
                self.copies += [(place, f"{place.value}{suffix}") for suffix in ahead]
        slid = [(place.value, at) for place, at, _ in places if place.how == "slide"]
        for block, at in slid:
            self.s = self.s.slide(block, _inside(at))
        for inner in nests:
            if inner.block in dict(slid):
                # what the first iteration needs beforehand is made in the same nest, ahead of the loop
                around = list(self.s.loops(inner.block))
                first = around.index(_inside(inner.at))
                outer = around[first - 1] if first else None
                self._lay(_Inner(f"{inner.block}_first", inner.body, outer))
            self._lay(inner)
        for place, _, _ in places:
            self._store(place, line.block)
        return begun

    def _move(self, place: Place, at: str | None, *, of_thread: bool) -> None:
        """A producer into the loop where it is made, with what goes along with it and what is made for it.

        What is local inside of a thread's loop is the thread's own; elsewhere that storage is as it comes.
        """
        if at is not None:
            for leaf in (leaf for row in spine(place.nest)[1] for leaf in row.folded):
                self.s = self.s.compute_at(leaf.stage, at)
            self.s = self.s.compute_at(
                place.value, at, **({"keep_storage": True} if place.scope == "whole" else {})
            )
        for buffer, _ in self.s.block(place.value).writes:
            given = place.scope != "whole" and (of_thread or place.scope != "local")
            if given and self.s.buffers()[buffer].scope != place.scope:
                self.s = self.s.set_scope(buffer, place.scope)
        buffer = self.s.block(place.value).writes[0][0]
        if place.layout:
            self.s = self.s.set_layout(buffer, place.layout)
        # what is made inside of it stands here, too, until its own nest has the loop for it
        if at is not None:
            for inner in consumers_first(place.nest):
                self.s = self.s.compute_at(inner.value, at)

    def _keep(self, line: _Line, place: Place, at: str | None) -> list[_Inner]:
        """The block's result in storage of its own. What drains it is a copy, or a stage that reads it."""
        if place.drain is None:
            raise InternalError(f"{place.value} is kept, and nothing drains it")
        out, reader = f"{line.block}_{place.scope}", leaf_of(place.drain).stage
        copied = reader == line.block
        if not copied:
            self.s = self.s.reverse_compute_at(reader, _inside(at), keep_storage=True)
        # storage inside of storage: what the block writes by now
        now = self.s.block(line.block).writes[0][0]
        self.s = self.s.cache(
            now,
            at=at,
            scope=place.scope,
            mode="write" if place.how == "keep" else "accumulate",
            name=out,
            layout=place.layout,
            keep=copied,
        )
        if not copied:
            self.readers.append((reader, place.drain))
            return []
        # sums that start inside are begun there, and not fetched
        blocks = [block for block in (out, f"{out}_init", f"{out}_out") if block in self.s.blocks()]
        return [_Inner(block, place.drain, at) for block in blocks]

    def _fetch(self, place: Place, at: str | None) -> _Inner:
        """A copy of what is read below a loop; its axes are called d0, d1 … as the buffer's dimensions."""
        if place.nest is None:
            raise InternalError(f"{place.value} is copied, and the copy has no loops")
        name = f"{place.value}_copy"
        scope = "local" if place.scope == "local" else place.scope
        self.s = self.s.cache(place.value, at=at, name=name, layout=place.layout, scope=scope)
        axes = {f"d{n}": loop for n, loop in enumerate(loops_below(self.s, name, at))}
        return _Inner(name, place.nest, at, axes)

    def _store(self, place: Place, block: str) -> None:
        """What is said of storage once its nests are there."""
        for key, value in place.hints:
            if key == "borders":
                self.borders.append(block if place.how in KEPT else place.value)
                continue
            buffer = self.s.block(place.value).writes[0][0]
            if key == "pad" and "threads" not in dict(place.hints):
                self.s = self.s.pad_stride(buffer, int(value))
            elif key == "swizzle":
                groups, vector = value.split("x")
                self.s = self.s.swizzle(buffer, int(groups), vector=int(vector))
            elif key == "rows":
                axis, rows = value.split(":")
                dims = [it.name for it in self.s.block(place.value).iters if it.kind == "par"]
                self.s = self.s.roll(buffer, dims.index(axis), int(rows))

    def _cooperate(self, place: Place, hints: Mapping[str, str], copy: str) -> None:
        """A copy into shared memory by all threads of a block. Rows are padded once their ring is there."""
        if "pad" in hints and copy == place.value:
            self.s = self.s.pad_stride(place.value, int(hints["pad"]))
        *_, k, other = self.s.loops(copy)
        if hints.get("along") == "k":
            self.s = self.s.reorder(other, k)
        threads, rounds = tuple(map(int, hints["threads"].split("x"))), f"{copy}_s"
        self.s = self.s.cooperative_copy(copy, threads, vector=int(hints["vector"]))
        if hints["rounds"] == "all":
            self.s = self.s.unroll(rounds)
        else:
            self.s = self.s.annotate(rounds, "unroll", hints["rounds"])

    # starts of sums

    def _begin_ahead(self, inner: _Inner) -> list[_Line]:
        """A start of sums ahead of all loops of a block: its levels need not be those of the sums."""
        top, rows = spine(inner.body)
        nest = next((place.nest for place in top if place.how == "init"), None)
        if nest is None:
            return []
        axes = axes_of(self.s, inner.block, inner.at)
        sums = [axes[part.partition("/")[0]] for part in rows[0].axis.split("*")]
        rest = [loop for loop in loops_below(self.s, inner.block, inner.at) if loop not in sums]
        self.s = self.s.reorder(*sums, *rest).decompose_init(inner.block, sums[0])
        start = self._line(_Inner(f"{inner.block}_init", nest, inner.at))
        self._bind(start)
        return [start]

    def _begin(self, line: _Line, place: Place, n: int) -> _Line:
        """A start of sums that the tree has: the order of its loops, and what these are bound to."""
        if place.nest is None:
            raise InternalError(f"the sums of {place.value} start without loops")
        self.s = self.s.decompose_init(line.block, line.names[n + 1])
        init, left = f"{line.block}_init", dict(line.left)
        there = list(self.s.loops(init))
        for row in line.rows[: n + 1]:
            left[row.axis] = min(row.size, left.get(row.axis, row.size))
        inside = zip(line.rows[n + 1 :], line.names[n + 1 :], strict=True)
        below = [(row.axis, f"{loop}_init") for row, loop in inside if f"{loop}_init" in there]
        top, rows = spine(place.nest)
        loops = []
        for row in rows:
            found = next(i for i, (axis, _) in enumerate(below) if axis == row.axis)
            loops.append(below.pop(found)[1])
        if len(loops) > 1 and loops != [x for x in there if x in loops]:
            self.s = self.s.reorder(*loops)
        start = _Line(init, _kind(self.s, init), place.nest, rows, loops, left, top, None)
        self._bind(start)
        return start

    def _start(self, line: _Line) -> None:
        """Sums start ahead of their outermost level below the storage, in all levels but the sums'."""
        kinds = {it.name: it.kind for it in self.s.block(line.block).iters}
        stored = [n for n, row in enumerate(line.rows) if any(p.how in KEPT for p in row.places)]
        first = stored[-1] + 1 if stored else 0
        below = list(zip(line.names[first:], line.rows[first:], strict=True))
        sums = [loop for loop, row in below if kinds.get(row.axis) == "red"]
        if not sums or self.s.block(line.block).init is None:
            return
        self.s = self.s.decompose_init(line.block, sums[0])
        there = set(self.s.loops(f"{line.block}_init"))
        others = ((loop, row) for loop, row in below if kinds.get(row.axis) != "red")
        start = [(f"{loop}_init", row) for loop, row in others if f"{loop}_init" in there]
        if len(start) > 1:
            self.s = self.s.reorder(*[loop for loop, _ in start])
        while start:
            level = start[0][1].level
            together = [loop for loop, row in start if row.level is level]
            del start[: len(together)]
            loop = together[0]
            if len(together) > 1 and level.bind not in _FUSED_LAST:
                self.s, loop = fused(self.s, together)
                together = [loop]
            for loop in together:
                self._bind_loop(loop, level, hints=False)

    # what levels are bound to

    def _bind(self, line: _Line) -> None:
        leaf = leaf_of(line.body)
        for n, (loop, row) in enumerate(zip(line.names, line.rows, strict=True)):
            axes = row.level.axes
            # hints of a fused level are those of its innermost loop; lanes in parts become such when cut
            if axes[-1] != (row.axis, row.size) or (row.cut and row.level.bind == "vector"):
                continue
            if len(axes) > 1 and row.level.bind not in _FUSED_LAST:
                self.s, loop = fused(self.s, line.names[n + 1 - len(axes) : n + 1])
            self._bind_loop(loop, row.level)
        if leaf.instruction:
            count = len(self.s.operations[leaf.instruction].inner_axes)
            self.s = self.s.tensorize(line.names[-count], leaf.instruction)
            line.kind = _kind(self.s, line.block)
            del line.names[-count:], line.rows[-count:]

    def _bind_loop(self, loop: str, level: Level, *, hints: bool = True) -> None:
        for key, value in level.hints if hints else ():
            if key != "stages":
                self.s = self.s.annotate(loop, key, value)
        if level.bind == "unroll":
            if self.s.loop(loop).kind.name != "unroll":
                self.s = self.s.unroll(loop)
        elif level.bind == "vector":
            self.s = self.s.vectorize(loop)
        elif level.bind.startswith("block"):
            self.s = self.s.bind(loop, level.bind)
        elif level.bind.startswith("thread"):
            # those of all nests of a block together
            self.threads.setdefault(level.bind, []).append(loop)

    # parts

    def _finish(
        self, b: Body, k: int, line: _Line, names: list[str], left: Mapping[str, int], ended: str = ""
    ) -> None:
        """Cuts, outermost first, and loops without the iterations that a part does not have; then threads.

        Of the axis ``ended`` the end is apart already.
        """
        if isinstance(b, Leaf) or k == len(names):
            return
        if isinstance(b, Seq):
            self._finish(next_of(b), k, line, names, left)
        elif isinstance(b, Cut):
            self._cut(b, k, line, names, left)
        else:
            n, here, exact = len(b.axes), dict(left), b.tail == "exact" and b.bind not in EXPANDED
            for at, (axis, size) in enumerate(b.axes, k):
                if exact and axis in here:
                    for end in end_of(self.s, names[at], here[axis], size):
                        self.s = self.s.partition(names[at], end)
                elif exact and size > 1 and axis != ended:
                    names = self._ended(names, at, line)
                here[axis] = min(size, here.get(axis, size))
            self._finish(b.body, k + n, line, names, here)
            loop = names[k]
            if b.bind in _FUSED_LAST:
                self.s, loop = fused(self.s, names[k : k + n])
            if b.bind == "parallel":
                self.s = self.s.parallel(loop)

    def _ended(self, names: list[str], at: int, line: _Line) -> list[str]:
        """The loops of a block once the last iteration is apart, if it may be another than those before."""
        loop = names[at]
        if not has_tail(self.s.func, loop):
            return names
        self.s = self.s.partition(loop, "tail", names=[f"{loop}_tail"])
        # of few elements at most nothing else may be left
        there = any(loop in self.s.loops(name) for name in self.s.blocks())
        return names if there else [*names[:at], *self._copied(line, f"{loop}_tail")]

    def _cut(self, b: Cut, k: int, line: _Line, names: list[str], left: Mapping[str, int]) -> None:
        loop, size = names[k], line.rows[k].size
        bounds = [0, *b.at, *([left[b.axis]] if b.axis in left else [])]
        heads = [f"{loop}_p{n}" for n in range(1, len(b.parts) + 1)]
        exact = spine(b.parts[-1])[1][0].level.tail == "exact"
        ends = [at // size for at in b.at]
        if exact and b.axis in left:
            ends += end_of(self.s, loop, left[b.axis], size)
        if ends and self.s.loop(loop).hi == Index(ends[-1] + 1):
            # the last iteration apart, however many there are
            ends[-1] = -1
        if ends:
            self.s = self.s.partition(loop, ends, names=heads[: len(ends)])
        for n, part in enumerate(b.parts):
            here = {axis: n for axis, n in left.items() if axis != b.axis}
            if n + 1 < len(bounds):
                here[b.axis] = bounds[n + 1] - bounds[n]
            own = names if n == 0 else [*names[:k], *self._copied(line, heads[n - 1])]
            if isinstance(part, Level) and part.bind == "vector":
                self._bind_loop(own[k], part)
            elif b.axis not in here:
                own = self._ended(own, k, line)
            self._finish(part, k, line, own, here, "" if b.axis in here else b.axis)

    def _copied(self, line: _Line, loop: str) -> list[str]:
        """A part's loop, and those of the copy of a block that is inside of it."""
        for name in self.s.blocks():
            around = list(self.s.loops(name))
            if loop in around and _kind(self.s, name) == line.kind:
                return around[around.index(loop) :]
        raise InternalError(f"{line.block} has no copy in {loop}")


def _kind(s: Schedule, block: str) -> tuple[str, tuple[str, ...]]:
    """What copies of a block have in common; its start has no iterators of sums."""
    node = s.block(block)
    return node.stage, tuple(it.name for it in node.iters)


def _inside(at: str | None) -> str:
    """The loop that a place stands in; some kinds need one."""
    if at is None:
        raise InternalError("a place stands ahead of all loops, and needs one around it")
    return at
