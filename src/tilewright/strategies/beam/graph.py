"""The graph of a program's stages as the search sees it: what each reads of which other, what it computes.

Made once a program; states refer to stages by their number, in the program's order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Final, TypeAlias

from tilewright.ir import (
    Atom,
    Binary,
    Call,
    Cast,
    Compare,
    Expr,
    FloorDiv,
    Load,
    MinMax,
    Mod,
    Program,
    Select,
    Stage,
    Unary,
    Var,
    children,
    stmt_exprs,
    stmt_loads,
    walk,
)
from tilewright.plan import is_plain

#: Kinds of operations that are counted, as in Adams et al. (SIGGRAPH 2019).
OPERATIONS: Final = ("add", "mul", "div", "compare", "select", "cast", "call")
#: What each counts for, in vector instructions.
WEIGHTS: Final = MappingProxyType(
    {"add": 1.0, "mul": 1.0, "div": 8.0, "compare": 1.0, "select": 1.0, "cast": 1.0, "call": 20.0}
)
#: Operations up to which a stage is cheap: it may be inlined wherever it is read.
CHEAP: Final = 12.0
#: Iterations that an axis of a size known only at run time counts for.
UNKNOWN: Final = 64

Span: TypeAlias = tuple[int, int]
#: One dimension of a read: terms of the index, the least and the largest constant beside them.
Dimension: TypeAlias = tuple[tuple[tuple[Atom, int], ...], int, int]


@dataclass(frozen=True, slots=True)
class Read:
    """What a stage reads of one buffer; ``node`` is the stage that makes it (-1: none, or several).

    ``dims`` are, for each dimension, the hulls of the indices that differ in more than constants; ``count``
    are different loads an instance.
    """

    buffer: str
    node: int
    dims: tuple[tuple[Dimension, ...], ...]
    shape: tuple[int, ...]
    width: int
    count: int
    loads: tuple[Load, ...]

    @property
    def bytes(self) -> int:
        """All of the buffer."""
        return prod(self.shape) * self.width

    def steps(self, axis: str) -> int | None:
        """Elements by which it moves in the last dimension with an axis; ``None`` where it jumps."""
        for n, dim in enumerate(self.dims):
            for terms, _, _ in dim:
                for atom, c in terms:
                    if isinstance(atom, Var):
                        if atom.name == axis and (n < len(self.dims) - 1 or abs(c) > 1):
                            return None
                    elif axis in _names(atom):
                        return None
        last = self.dims[-1] if self.dims else ()
        return int(any(isinstance(a, Var) and a.name == axis for terms, _, _ in last for a, _ in terms))


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A stage: its axes, what it reads, operations an instance. Only ``plain`` ones are decided about."""

    index: int
    stage: Stage
    plain: bool
    output: bool
    names: tuple[str, ...]
    extents: tuple[int, ...]
    sums: int
    width: int
    reads: tuple[Read, ...]
    operations: Mapping[str, int]
    work: float
    branching: int

    @property
    def points(self) -> int:
        """Elements of the result, or instances of a stage that is not plain."""
        return prod(self.extents)

    @property
    def bytes(self) -> int:
        """All of the result."""
        return self.points * self.width

    @property
    def name(self) -> str:
        """The stage's name."""
        return self.stage.name


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """The stages, and for each those that read it."""

    program: Program
    nodes: tuple[Node, ...]
    readers: tuple[tuple[int, ...], ...]

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
        found = [i.as_var() for i in reads[0].loads[0].indices]
        return None not in found and len({*found}) == len(found) == len(reader.names)


def graph_of(program: Program) -> Graph:
    """The graph of a program."""
    made: dict[str, list[int]] = {}
    for n, stage in enumerate(program.stages):
        for name in stage.writes:
            made.setdefault(name, []).append(n)
    maker = {name: found[0] for name, found in made.items() if len(found) == 1}
    outputs = {b.name for b in program.outputs}
    nodes = tuple(_node(program, n, stage, maker, outputs) for n, stage in enumerate(program.stages))
    readers = tuple(
        tuple(r.index for r in nodes if any(read.node == n.index for read in r.reads)) for n in nodes
    )
    return Graph(program, nodes, readers)


def _node(program: Program, n: int, stage: Stage, maker: Mapping[str, int], outputs: set[str]) -> Node:
    plain = is_plain(program, stage)
    own = [it for it in stage.iters if it.kind != "red"]
    sums = prod(_extent(it.extent) for it in stage.iters if it.kind == "red")
    by_buffer: dict[str, list[Load]] = {}
    for ld in dict.fromkeys(stmt_loads(stage.body)):
        if ld.buffer not in stage.writes:
            by_buffer.setdefault(ld.buffer, []).append(ld)
    reads = tuple(_read(program, name, found, maker.get(name, -1)) for name, found in by_buffer.items())
    counts = dict.fromkeys(OPERATIONS, 0)
    for root in stmt_exprs(stage.body):
        for e in walk(root):
            kind = _kind(e)
            if kind:
                counts[kind] += 1
    work = max(1.0, sum(WEIGHTS[k] * c for k, c in counts.items()))
    return Node(
        n,
        stage,
        plain,
        not outputs.isdisjoint(stage.writes),
        tuple(it.name for it in own),
        tuple(_extent(it.extent) for it in own),
        sums,
        program.buffer(stage.writes[0]).dtype.bytes,
        reads,
        MappingProxyType(counts),
        work,
        max((strahler(e) for e in stmt_exprs(stage.body)), default=1),
    )


def strahler(e: Expr, known: dict[int, int] | None = None) -> int:
    """Strahler's number of an expression: the registers that it takes at least, evaluated as a tree."""
    known = {} if known is None else known
    if id(e) not in known:
        ranks = sorted((strahler(x, known) for x in children(e)), reverse=True)
        known[id(e)] = max(1, ranks[0], ranks[1] + 1 if len(ranks) > 1 else 1) if ranks else 1
    return known[id(e)]


def _extent(index: object) -> int:
    const, terms = getattr(index, "const", UNKNOWN), getattr(index, "terms", ())
    return UNKNOWN if terms else max(1, const)


def _read(program: Program, name: str, found: list[Load], node: int) -> Read:
    buffer = program.buffer(name)
    dims = []
    for d in range(len(buffer.shape)):
        hulls: dict[tuple[tuple[Atom, int], ...], Span] = {}
        for ld in found:
            i = ld.indices[d]
            lo, hi = hulls.get(i.terms, (i.const, i.const))
            hulls[i.terms] = min(lo, i.const), max(hi, i.const)
        dims.append(tuple((terms, lo, hi) for terms, (lo, hi) in hulls.items()))
    shape = tuple(_extent(n) for n in buffer.shape)
    return Read(name, node, tuple(dims), shape, buffer.dtype.bytes, len(found), tuple(found))


def _kind(e: Expr) -> str:
    if isinstance(e, Binary):
        return {"mul": "mul", "div": "div", "floordiv": "div", "mod": "div"}.get(e.op, "add")
    if isinstance(e, Unary):
        return "call" if e.op in ("sqrt", "exp", "log") else "add"
    if isinstance(e, Call):
        return "call"
    return {Compare: "compare", Select: "select", Cast: "cast"}.get(type(e), "")


def _names(atom: Atom) -> frozenset[str]:
    if isinstance(atom, FloorDiv | Mod):
        return atom.arg.vars
    if isinstance(atom, MinMax):
        return frozenset(v for i in atom.args for v in i.vars)
    expr = getattr(atom, "expr", None)
    return frozenset() if expr is None else expr.vars if hasattr(expr, "vars") else frozenset()


def box_of(read: Read, env: Mapping[str, Span]) -> tuple[Span, ...]:
    """The box of a buffer that is read while a stage's iterators take these values."""
    out = []
    for dim, n in zip(read.dims, read.shape, strict=True):
        first, last = n, -1
        for terms, lo, hi in dim:
            for atom, c in terms:
                a, b = _range(atom, env, n)
                if c > 0:
                    lo, hi = lo + c * a, hi + c * b
                else:
                    lo, hi = lo + c * b, hi + c * a
            first, last = min(first, lo), max(last, hi)
        out.append((min(max(first, 0), n - 1), min(max(last, 0), n - 1)))
    return tuple(out)


_FAR: Final = 1 << 40


def _range(atom: Atom, env: Mapping[str, Span], extent: int) -> Span:
    if isinstance(atom, Var):
        return env.get(atom.name, (0, extent))
    if isinstance(atom, FloorDiv | Mod):
        lo = hi = atom.arg.const
        for a, c in atom.arg.terms:
            p, q = _range(a, env, _FAR)
            lo, hi = (lo + c * p, hi + c * q) if c > 0 else (lo + c * q, hi + c * p)
        if isinstance(atom, FloorDiv):
            return lo // atom.divisor, hi // atom.divisor
        same = lo // atom.divisor == hi // atom.divisor
        return (lo % atom.divisor, hi % atom.divisor) if same else (0, atom.divisor - 1)
    if isinstance(atom, MinMax):
        pick = min if atom.op == "min" else max
        ranges = []
        for i in atom.args:
            lo = hi = i.const
            for a, c in i.terms:
                p, q = _range(a, env, _FAR)
                lo, hi = (lo + c * p, hi + c * q) if c > 0 else (lo + c * q, hi + c * p)
            ranges.append((lo, hi))
        return pick(lo for lo, _ in ranges), pick(hi for _, hi in ranges)
    return -_FAR, _FAR
