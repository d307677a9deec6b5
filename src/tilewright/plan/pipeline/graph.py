"""The graph of a program's stages as searches see it: what each reads of which other, what it computes.

Made once a program; states refer to stages by their number, in the program's order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Final, TypeVar

from tilewright.analysis import (
    Access,
    AccessTable,
    Box,
    accesses_of,
    extent_of,
    flat_index,
    table_of,
)
from tilewright.ir import (
    DType,
    Expr,
    Index,
    Load,
    Program,
    Stage,
    Store,
    stmt_exprs,
    stmt_writes,
    substitute_body,
)
from tilewright.plan.beginning import begin
from tilewright.plan.pipeline.boxes import iteration
from tilewright.plan.pipeline.group import is_plain
from tilewright.plan.pipeline.values import Amortised, Values, values_of
from tilewright.schedule import Schedule, Step
from tilewright.target import TargetBase

K = TypeVar("K")
V = TypeVar("V")
#: Operations up to which a stage is cheap: it may be inlined wherever it is read.
CHEAP: Final = 12.0
#: Nests of a program of which boxes and the like are kept; stages with others inlined.
MOST_KNOWN: Final = 20_000
MOST_MERGED: Final = 2_000


@dataclass(frozen=True, slots=True)
class Read:
    """What a stage reads of one buffer; ``node`` is the stage that makes it (-1: none, or several).

    ``steps``: by axis of the stage, elements by which it moves away from borders (``None``: it jumps).
    """

    access: Access
    node: int
    steps: Mapping[str, int | None]

    @property
    def count(self) -> int:
        """Different loads an instance."""
        return len(self.access.loads)

    @property
    def looked_up(self) -> bool:
        """Whether what other buffers say decides which elements are read."""
        return any(reach.tag == "data" for reaches in self.access.dims for reach in reaches)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A stage: its axes, what it reads, operations an instance. Only ``plain`` ones are decided about.

    ``values`` are those of an instance, with what is inlined.
    """

    index: int
    stage: Stage
    plain: bool
    output: bool
    names: tuple[str, ...]
    extents: tuple[int, ...]
    sums: int
    dtype: DType
    reads: tuple[Read, ...]
    values: Values

    @property
    def operations(self) -> Mapping[str, int]:
        """Operations of an instance by kind."""
        return self.values.operations

    @property
    def work(self) -> float:
        """Instructions of an instance."""
        return self.values.work

    @property
    def branching(self) -> int:
        """Strahler's number of what an instance computes."""
        return self.values.strahler

    @property
    def inlined(self) -> int:
        """Elements of other stages that an instance computes."""
        return self.values.inlined

    @property
    def points(self) -> int:
        """Elements of the result, or instances of a stage that is not plain."""
        return prod(self.extents)

    @property
    def width(self) -> int:
        """Bytes of an element of the result."""
        return self.dtype.bytes

    @property
    def bytes(self) -> int:
        """All of the result."""
        return self.points * self.width

    @property
    def name(self) -> str:
        """The stage's name."""
        return self.stage.name


@dataclass(frozen=True, slots=True)
class Moves:
    """So many different elements of a buffer that are read, and move alike with all axes of a stage.

    ``where`` is the position of one of them in the buffer.
    """

    where: Index
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class StageGraph:
    """The stages, and for each those that read it; ``begun`` are the steps from the program ``given``."""

    given: Program
    begun: tuple[Step, ...]
    program: Program
    table: AccessTable
    nodes: tuple[Node, ...]
    readers: tuple[tuple[int, ...], ...]
    _merged: dict[tuple[int, frozenset[int]], Node] = field(default_factory=dict, repr=False)
    _used: dict[tuple[int, frozenset[int]], frozenset[int]] = field(default_factory=dict, repr=False)
    _elements: dict[tuple[int, tuple[Index, ...]], Expr] = field(default_factory=dict, repr=False)
    #: What searches found out of nests, by what decides it: why producers cannot be placed so.
    refused: dict[Hashable, str] = field(default_factory=dict, repr=False)
    _boxes: dict[tuple[int, Box, frozenset[int], int], Mapping[int, Box]] = field(
        default_factory=dict, repr=False
    )
    _amortised: dict[tuple[Node, tuple[int, ...]], Amortised] = field(default_factory=dict, repr=False)
    _stored: dict[int, Index] = field(default_factory=dict, repr=False)
    _moves: dict[tuple[Node, tuple[int, ...]], tuple[tuple[Moves, ...], ...]] = field(
        default_factory=dict, repr=False
    )

    @property
    def order(self) -> Iterator[int]:
        """The stages that are decided about, from the results backwards."""
        return (n.index for n in reversed(self.nodes) if n.plain)

    def is_pointwise(self, index: int) -> bool:
        """Whether one stage alone reads a stage, each element once an instance."""
        if len(self.readers[index]) != 1:
            return False
        reader = self.nodes[self.readers[index][0]]
        reads = [r for r in reader.reads if r.node == index]
        if len(reads) != 1 or reads[0].count != 1 or reader.sums > 1:
            return False
        found = [i.as_var() for i in reads[0].access.loads[0].indices]
        return None not in found and len({*found}) == len(found) == len(reader.names)

    def merged(self, index: int, inlined: frozenset[int]) -> Node:
        """A stage with others ``inlined``: elements that are read several times are computed once."""
        used = self._used.get((index, inlined))
        if used is None:
            new, waiting = set[int](), [index]
            while waiting:
                found = {r.node for r in self.nodes[waiting.pop()].reads} & inlined - new
                new |= found
                waiting += found
            used = keep(self._used, (index, inlined), frozenset(new))
        if not used:
            return self.nodes[index]
        node = self._merged.get((index, used))
        if node is None:
            if len(self._merged) >= MOST_MERGED:
                # what is known of such stages by themselves keeps them, too
                self._merged.clear()
                self._amortised.clear()
                self._moves.clear()
            node = self._merged[index, used] = self._with(self.nodes[index], used)
        return node

    def amortised(self, node: Node, copies: tuple[int, ...]) -> Amortised:
        """An instance of a stage among so many along each of its axes: equal values are made once."""
        found = self._amortised.get((node, copies))
        if found is None:
            found = keep(self._amortised, (node, copies), node.values.side_by_side(node.names, copies))
        return found

    def stored(self, index: int) -> Index:
        """Where in its buffer a stage stores an element."""
        found = self._stored.get(index)
        if found is None:
            ((name, indices), *_) = stmt_writes(self.nodes[index].stage.body)
            found = self._stored[index] = flat_index(self.program, name, indices) or Index(0)
        return found

    def moves(self, node: Node, copies: tuple[int, ...]) -> tuple[tuple[Moves, ...], ...]:
        """What so many instances along each axis, next to one another, read by each of a stage's reads."""
        found = self._moves.get((node, copies))
        if found is None:
            each = tuple(self._different(node, read, copies) for read in node.reads)
            found = keep(self._moves, (node, copies), each)
        return found

    def boxes(self, root: int, box: Box, members: frozenset[int], loops: int = 0) -> Mapping[int, Box]:
        """What the instances ``box`` of a root need of the stages of its nest, itself included.

        Or what one iteration of its first so many ``loops`` amid these needs. Nests that differ in places
        alone, or in the order of their loops, need the same.
        """
        key = root, box, members, loops
        found = self._boxes.get(key)
        if found is None:
            number = {self.nodes[n].name: n for n in (*members, root)}
            part, sums = iteration(self.nodes[root].stage, box, loops) if loops else (box, {})
            named = self.table.boxes(self.nodes[root].name, part, number.keys(), sums=sums)
            found = {number[name]: each for name, each in named.items()}
            keep(self._boxes, key, found)
        return found

    def _different(self, node: Node, read: Read, copies: tuple[int, ...]) -> tuple[Moves, ...]:
        found: dict[tuple[object, ...], tuple[Index, tuple[int, ...]]] = {}
        for ld in read.access.loads:
            where = flat_index(self.program, ld.buffer, ld.indices) or Index(0)
            steps = tuple(where.coefficient(axis) for axis in node.names)
            others = tuple(str(i) for i in ld.indices if any(v not in node.names for v in i.vars))
            for at in product(*map(range, copies)):
                moved = sum(k * a for k, a in zip(steps, at, strict=True))
                found.setdefault((where.const + moved, steps, others), (where, steps))
        alike = Counter(steps for _, steps in found.values())
        last = {steps: where for where, steps in found.values()}
        return tuple(Moves(last[steps], count) for steps, count in alike.items())

    def _with(self, node: Node, inlined: frozenset[int]) -> Node:
        makers = {self.nodes[n].stage.writes[0]: n for n in inlined}

        def element(ld: Load) -> Expr | None:
            maker = makers.get(ld.buffer)
            return None if maker is None else self._element(maker, ld.indices)

        values = values_of(stmt_exprs(node.stage.body), element)
        alone = {n.stage.writes[0]: n.name for n in self.nodes if n.plain}
        number = {n.name: n.index for n in self.nodes}
        reads = _reads(accesses_of(self.program, node.stage, values.loads, alone), number, node.names)
        return replace(node, reads=reads, values=values)

    def _element(self, maker: int, indices: tuple[Index, ...]) -> Expr:
        """What a stage computes for one element, others not inlined."""
        found = self._elements.get((maker, indices))
        if found is None:
            node = self.nodes[maker]
            made = substitute_body(node.stage.body, dict(zip(node.names, indices, strict=True)))
            assert isinstance(made, Store)
            found = keep(self._elements, (maker, indices), made.writes[0].value)
        return found


def keep(known: dict[K, V], key: K, value: V) -> V:
    """Keep what was found, and nothing of before where that is too much."""
    if len(known) >= MOST_KNOWN:
        known.clear()
    known[key] = value
    return value


def graph_of(given: Program, on: TargetBase | None = None) -> StageGraph:
    """The graph of a program, for a machine as plans begin there."""
    s = Schedule(given)
    s = s if on is None else begin(s, on)
    program = s.require_program()
    table = table_of(program)
    number = {stage.name: n for n, stage in enumerate(program.stages)}
    outputs = {b.name for b in program.outputs}
    nodes = tuple(_node(program, n, stage, table, number, outputs) for n, stage in enumerate(program.stages))
    readers = tuple(
        tuple(r.index for r in nodes if any(read.node == n.index for read in r.reads)) for n in nodes
    )
    return StageGraph(given, s.trace.steps, program, table, nodes, readers)


def _node(
    program: Program,
    n: int,
    stage: Stage,
    table: AccessTable,
    number: Mapping[str, int],
    outputs: set[str],
) -> Node:
    plain = is_plain(program, stage)
    own = [it for it in stage.iters if it.kind != "red"]
    names = tuple(it.name for it in own)
    return Node(
        n,
        stage,
        plain,
        not outputs.isdisjoint(stage.writes),
        names,
        tuple(extent_of(it.extent) for it in own),
        prod(extent_of(it.extent) for it in stage.iters if it.kind == "red"),
        program.buffer(stage.writes[0]).dtype,
        _reads(table.accesses[stage.name], number, names),
        values_of(stmt_exprs(stage.body)),
    )


def _reads(accesses: Sequence[Access], number: Mapping[str, int], names: Sequence[str]) -> tuple[Read, ...]:
    return tuple(
        Read(
            a,
            number.get(a.maker, -1),
            {name: a.steps(name, away=True) for name in names},
        )
        for a in accesses
    )
