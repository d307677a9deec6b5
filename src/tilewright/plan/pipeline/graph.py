"""The graph of a program's stages as searches see it: what each reads of which other, what it computes.

Made once a program; states refer to stages by their number, in the program's order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from types import MappingProxyType
from typing import Final, TypeVar

from tilewright.analysis import (
    Access,
    AccessTable,
    Box,
    accesses_of,
    extent_of,
    table_of,
)
from tilewright.ir import (
    Binary,
    Call,
    Cast,
    Compare,
    DType,
    Expr,
    FloorDiv,
    Index,
    Load,
    MinMax,
    Mod,
    Numbering,
    Opaque,
    Program,
    Select,
    Stage,
    Stmt,
    Store,
    Unary,
    Var,
    children,
    indices_of,
    map_loads,
    stmt_exprs,
    stmt_loads,
    substitute_body,
    walk,
)
from tilewright.plan.pipeline.boxes import iteration
from tilewright.plan.pipeline.group import is_plain

K = TypeVar("K")
V = TypeVar("V")
#: Kinds of operations that are counted, as in Adams et al. (SIGGRAPH 2019).
OPERATIONS: Final = ("add", "mul", "div", "compare", "select", "cast", "call")
#: What each counts for, in vector instructions.
WEIGHTS: Final = MappingProxyType(
    {
        "add": 1.0,
        "mul": 1.0,
        "div": 8.0,
        "compare": 1.0,
        "select": 1.0,
        "cast": 1.0,
        "call": 20.0,
    }
)
#: Operations up to which a stage is cheap: it may be inlined wherever it is read.
CHEAP: Final = 12.0
#: Nests of a program of which boxes and the like are kept.
MOST_KNOWN: Final = 20_000


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

    ``work`` counts instructions as they are executed: what occurs twice once, and no product that the sum
    which alone reads it takes along. ``inlined`` are elements of other stages that an instance computes.
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
    operations: Mapping[str, int]
    work: float
    branching: int
    inlined: int = 0

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
class Amortised:
    """What an instance takes where others stand beside it: instructions, and different loads by buffer.

    With what is computed to look elements up.
    """

    work: float
    loads: Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class StageGraph:
    """The stages, and for each those that read it."""

    program: Program
    table: AccessTable
    nodes: tuple[Node, ...]
    readers: tuple[tuple[int, ...], ...]
    _merged: dict[tuple[int, frozenset[int]], Node] = field(default_factory=dict, repr=False)
    _inlined: dict[tuple[int, frozenset[int]], Node] = field(default_factory=dict, repr=False)
    #: What searches found out of nests, by what decides it: why producers cannot be placed so.
    refused: dict[Hashable, str] = field(default_factory=dict, repr=False)
    _boxes: dict[tuple[int, Box, frozenset[int], int], Mapping[int, Box]] = field(
        default_factory=dict, repr=False
    )
    _amortised: dict[tuple[Node, tuple[int, ...]], Amortised] = field(default_factory=dict, repr=False)

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
        found = self._inlined.get((index, inlined))
        if found is None:
            used, waiting = set[int](), [index]
            while waiting:
                new = {r.node for r in self.nodes[waiting.pop()].reads} & inlined - used
                used |= new
                waiting += new
            key = index, frozenset(used)
            if used and key not in self._merged:
                self._merged[key] = self._with(self.nodes[index], used)
            found = self._merged[key] if used else self.nodes[index]
            keep(self._inlined, (index, inlined), found)
        return found

    def amortised(self, node: Node, copies: tuple[int, ...]) -> Amortised:
        """An instance of a stage among so many along each of its axes: equal values are made once.

        The loads that Anderson et al. (OOPSLA 2021, Appendix A) amortise over unrolled loops.
        """
        found = self._amortised.get((node, copies))
        if found is None:
            found = self._amortised[node, copies] = _side_by_side(node, copies)
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

    def _with(self, node: Node, inlined: set[int]) -> Node:
        makers = {self.nodes[n].stage.writes[0]: self.nodes[n] for n in inlined}
        known: dict[Load, Expr] = {}

        def element(ld: Load) -> Expr:
            maker = makers.get(ld.buffer)
            if maker is None:
                return ld
            if ld not in known:
                at = dict(zip(maker.names, ld.indices, strict=True))
                made = map_loads(substitute_body(maker.stage.body, at), element)
                assert isinstance(made, Store)
                known[ld] = made.writes[0].value
            return known[ld]

        stage = replace(node.stage, body=map_loads(node.stage.body, element))
        alone = {n.stage.writes[0]: n.name for n in self.nodes if n.plain}
        number = {n.name: n.index for n in self.nodes}
        counts, work, branching = _computed(stage)
        reads = _reads(accesses_of(self.program, stage, alone), number, node.names)
        return replace(
            node,
            stage=stage,
            reads=reads,
            operations=counts,
            work=work,
            branching=branching,
            inlined=len(known),
        )


def keep(known: dict[K, V], key: K, value: V) -> V:
    """Keep what was found, and nothing of before where that is too much."""
    if len(known) >= MOST_KNOWN:
        known.clear()
    known[key] = value
    return value


def graph_of(program: Program) -> StageGraph:
    """The graph of a program."""
    table = table_of(program)
    number = {stage.name: n for n, stage in enumerate(program.stages)}
    outputs = {b.name for b in program.outputs}
    nodes = tuple(_node(program, n, stage, table, number, outputs) for n, stage in enumerate(program.stages))
    readers = tuple(
        tuple(r.index for r in nodes if any(read.node == n.index for read in r.reads)) for n in nodes
    )
    return StageGraph(program, table, nodes, readers)


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
    counts, work, branching = _computed(stage)
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
        counts,
        work,
        branching,
    )


def _reads(accesses: Sequence[Access], number: Mapping[str, int], names: Sequence[str]) -> tuple[Read, ...]:
    return tuple(
        Read(
            a,
            number.get(a.maker, -1),
            {name: a.steps(name, inside=True) for name in names},
        )
        for a in accesses
    )


def _computed(stage: Stage) -> tuple[Mapping[str, int], float, int]:
    """Of an instance of a stage the different operations by kind, what they take, and Strahler's number."""
    roots = tuple(stmt_exprs(stage.body))
    distinct = Numbering(roots)
    counts = _operations(distinct)
    return (
        MappingProxyType(counts),
        _work(distinct),
        max((strahler(e) for e in roots), default=1),
    )


def _operations(distinct: Numbering) -> dict[str, int]:
    counts = dict.fromkeys(OPERATIONS, 0)
    for e in distinct.nodes:
        kind = kind_of(e)
        if kind:
            counts[kind] += 1
    return counts


def _work(distinct: Numbering) -> float:
    counts = _operations(distinct)
    return sum(WEIGHTS[k] * c for k, c in counts.items()) - WEIGHTS["mul"] * _fused(distinct)


def _side_by_side(node: Node, copies: tuple[int, ...]) -> Amortised:
    bodies = []
    for offsets in product(*map(range, copies)):
        axes = zip(node.names, offsets, copies, strict=True)
        at = {name: Index(offset, ((Var(name), n),)) for name, offset, n in axes if n > 1}
        bodies.append(substitute_body(node.stage.body, at))
    work = _work(Numbering(e for body in bodies for e in _roots(body)))
    loads = Counter(ld.buffer for ld in {ld for body in bodies for ld in stmt_loads(body)})
    return Amortised(work / len(bodies), {buffer: n / len(bodies) for buffer, n in loads.items()})


def _roots(s: Stmt) -> Iterator[Expr]:
    """The expressions of a statement, and those by which elements are looked up."""
    for root in stmt_exprs(s):
        yield root
        for e in walk(root):
            for i in indices_of(e):
                yield from _looked_up(i)


def _looked_up(i: Index) -> Iterator[Expr]:
    for atom, _ in i.terms:
        match atom:
            case Opaque(expr=e):
                yield e
            case FloorDiv(arg=arg) | Mod(arg=arg):
                yield from _looked_up(arg)
            case MinMax(args=args):
                for arg in args:
                    yield from _looked_up(arg)


def _fused(distinct: Numbering) -> int:
    """Products that one instruction adds to something: those that a sum or a difference alone reads."""
    count = 0
    for e in distinct.nodes:
        if isinstance(e, Binary) and e.op in ("add", "sub") and e.dtype.is_float:
            sides = (side for side in (e.a, e.b) if isinstance(side, Binary) and side.op == "mul")
            count += any(distinct.uses[distinct.number_of[id(side)]] == 1 for side in sides)
    return count


def strahler(e: Expr, known: dict[int, int] | None = None) -> int:
    """Strahler's number of an expression: the registers that it takes at least, evaluated as a tree."""
    known = {} if known is None else known
    if id(e) not in known:
        ranks = sorted((strahler(x, known) for x in children(e)), reverse=True)
        known[id(e)] = max(1, ranks[0], ranks[1] + 1 if len(ranks) > 1 else 1) if ranks else 1
    return known[id(e)]


def kind_of(e: Expr) -> str:
    """Which of :data:`OPERATIONS` an expression is; empty for none."""
    if isinstance(e, Binary):
        return {"mul": "mul", "div": "div", "floordiv": "div", "mod": "div"}.get(e.op, "add")
    if isinstance(e, Unary):
        return "call" if e.op in ("sqrt", "exp", "log") else "add"
    if isinstance(e, Call):
        return "call"
    return {Compare: "compare", Select: "select", Cast: "cast"}.get(type(e), "")
