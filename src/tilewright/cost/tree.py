"""Loop trees: what a cost model sees of a scheduled function, or of a plan before it is scheduled.

A tree has loops and, as leaves, works: blocks of a function with what each instance reads, writes and
computes. Places of accesses are sums of terms over the loops around them, so that footprints at any depth
follow from the extents of the loops inside. Loops of one iteration are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from tilewright.ir import (
    REGISTER,
    TILE,
    Alloc,
    Binary,
    Block,
    Call,
    Exec,
    Expr,
    FloorDiv,
    For,
    If,
    Index,
    LoopFunction,
    MinMax,
    Mod,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
    blocks,
    buffers_of,
    evaluate_index,
    int_upper,
    loop_env,
    simplify,
    stmt_children,
    stmt_loads,
    substitute_index,
    var,
)
from tilewright.target import Operations

#: Scalar operations that an elementary function counts as: about the terms of its polynomial.
CALL_OPERATIONS = 20
#: Elements between lanes up to which whole vectors are loaded, and lanes picked from them.
APART: Final = 4
#: Iterations that a loop of an extent known only at run time counts as.
UNKNOWN_EXTENT = 64


class Term(NamedTuple):
    """``stride * ((sum of coefficients times loops) // quotient % modulus)``; a modulus of 0 is none."""

    stride: int
    inner: tuple[tuple[int, str], ...]
    quotient: int = 1
    modulus: int = 0

    def span(self, extents: Mapping[str, int]) -> int:
        """The largest value less the smallest, while loops take so many values each."""
        reach = 0
        for c, name in self.inner:
            n = extents.get(name)
            if n is not None:
                reach += abs(c) * (n - 1)
        if self.quotient > 1:
            reach //= self.quotient
        if self.modulus:
            reach = min(reach, self.modulus - 1)
        return abs(self.stride) * reach


Place: TypeAlias = tuple[Term, ...]


class Access(NamedTuple):
    """An access of a work: one place a dimension of the buffer in memory, that of the longest stride first.

    ``width`` are bytes of an element; ``kept`` says that the buffer is in registers. ``loops`` are those that
    it moves with, ``together`` those that move it by single elements.
    """

    buffer: str
    places: tuple[Place, ...]
    width: int
    writes: bool
    kept: bool
    loops: frozenset[str]
    together: frozenset[str]
    apart: tuple[tuple[str, int], ...] = ()

    def footprints(self, loops: Sequence[Loop]) -> list[int]:
        """Bytes that it takes in a cache while the loops from each depth on run, from depth 0 to all of them.

        Strides along the last two dimensions count as what they span: of a cache with few ways, every other
        line takes as much room as all of them.
        """
        # by loop the terms that it moves: its coefficient, and dimension, stride, quotient, modulus, the sum
        # of what the loops inside reach, and that as the term takes it
        moved: dict[str, list[tuple[int, list[int]]]] = {}
        for n, place in enumerate(self.places):
            for stride, inner, quotient, modulus in place:
                term = [n, abs(stride), quotient, modulus, 0, 0]
                for c, name in inner:
                    moved.setdefault(name, []).append((abs(c), term))
        last = len(self.places) - 2
        whole, values = [1] * (last + 2), [1] * (last + 2)
        now = self.width
        out = [now]
        for name, extent, _, _, _ in reversed(loops):
            if name in moved:
                for c, term in moved[name]:
                    n, stride, quotient, modulus, total, before = term
                    total += c * (extent - 1)
                    reach = total // quotient
                    if modulus and reach >= modulus:
                        reach = modulus - 1
                    term[4:] = total, reach
                    whole[n] += stride * (reach - before)
                    values[n] = values[n] // (before + 1) * (reach + 1)
                now = self.width
                for n, span in enumerate(whole):
                    now *= span if n >= last else min(span, values[n])
            out.append(now)
        out.reverse()
        return out


def access(buffer: str, places: Sequence[Place], width: int, writes: bool, kept: bool = False) -> Access:
    """An access with what its places say about loops."""
    loops: set[str] = set()
    for place in places[:-1]:
        for term in place:
            for _, name in term[1]:
                loops.add(name)
    together: set[str] = set()
    apart: list[tuple[str, int]] = []
    if places:
        moved: set[str] = set()
        for stride, inner, quotient, _ in places[-1]:
            for c, name in inner:
                moved.add(name)
                step = abs(c * stride)
                if quotient == 1 and name not in loops:
                    if step == 1:
                        together.add(name)
                    elif step <= APART:
                        apart.append((name, step))
        loops |= moved
    return Access(
        buffer, tuple(places), width, writes, kept, frozenset(loops), frozenset(together), tuple(apart)
    )


class Work(NamedTuple):
    """A block: what it accesses, operations an instance, bytes of an element of its result.

    ``instruction`` names one that does several operations at once (empty: plain operations).
    """

    name: str
    accesses: tuple[Access, ...]
    operations: int
    element: int
    instruction: str = ""


class Loop(NamedTuple):
    """A loop, its kind, what is inside, and how often that is written out where turns still follow turns."""

    name: str
    extent: int
    kind: str
    body: tuple[Node, ...]
    written: int = 1


Node: TypeAlias = Loop | Work


@dataclass(frozen=True, slots=True)
class LoopTree:
    """The nests of a function, in order."""

    nests: tuple[Node, ...]

    def works(self) -> Iterator[tuple[tuple[Loop, ...], Work]]:
        """Each work with the loops around it, outermost first."""
        return _works(self.nests, ())

    def canonical(self) -> tuple[object, ...]:
        """The tree but for names and for the order of neighbours and accesses: equal ones cost the same."""
        return tuple(sorted((_canonical(node, {}) for node in self.nests), key=repr))


def _works(nodes: tuple[Node, ...], around: tuple[Loop, ...]) -> Iterator[tuple[tuple[Loop, ...], Work]]:
    for node in nodes:
        if isinstance(node, Work):
            yield around, node
        else:
            yield from _works(node.body, (*around, node))


def _canonical(node: Node, depth: Mapping[str, int]) -> tuple[object, ...]:
    if isinstance(node, Loop):
        inside = {**depth, node.name: len(depth)}
        return node.kind, node.extent, tuple(sorted((_canonical(n, inside) for n in node.body), key=repr))
    accesses = sorted(
        (
            a.writes,
            a.kept,
            a.width,
            tuple(
                tuple(
                    sorted(
                        (
                            abs(t.stride),
                            t.quotient,
                            t.modulus,
                            *sorted((abs(c), depth[n]) for c, n in t.inner),
                        )
                        for t in place
                    )
                )
                for place in a.places
                if not a.kept and place
            ),
            tuple(sorted(depth[n] for n in a.loops)),
        )
        for a in node.accesses
    )
    return node.operations, node.element, node.instruction, tuple(accesses)


def loop(
    name: str, extent: int, kind: str, body: Sequence[Node], hints: Iterable[tuple[str, str]] = ()
) -> tuple[Node, ...]:
    """A loop around nodes; of one iteration, the nodes alone."""
    if extent <= 1 or not body:
        return tuple(body)
    written = next((int(value) for key, value in hints if key == "unroll"), 1)
    return (Loop(name, extent, kind, tuple(body), min(written, extent)),)


def terms_of(x: Index, loops: frozenset[str] | None = None) -> Place:
    """The terms of an index, of the names ``loops`` alone. Clamps count as what they limit."""
    out: list[Term] = []
    for atom, c in x.terms:
        match atom:
            case Var():
                out.append(Term(c, ((1, atom.name),)))
            case FloorDiv(Index(const=0, terms=((Mod() as mod, 1),)), d):
                out.append(Term(c, _linear(mod.arg), d, max(1, mod.divisor // d)))
            case FloorDiv():
                out.append(Term(c, _linear(atom.arg), atom.divisor))
            case Mod(Index(const=0, terms=((FloorDiv() as div, 1),)), m):
                out.append(Term(c, _linear(div.arg), div.divisor, m))
            case Mod():
                out.append(Term(c, _linear(atom.arg), 1, atom.divisor))
            case MinMax():
                widest = max(atom.args, key=lambda i: len(i.vars))
                out += [Term(c * t.stride, t.inner, t.quotient, t.modulus) for t in terms_of(widest)]
            case _:
                pass
    if loops is not None:
        out = [Term(t.stride, kept, t.quotient, t.modulus) for t in out if (kept := _of(t, loops))]
    return tuple(out)


def _of(term: Term, loops: frozenset[str]) -> tuple[tuple[int, str], ...]:
    return tuple((c, n) for c, n in term.inner if n in loops)


def _linear(x: Index) -> tuple[tuple[int, str], ...]:
    return tuple((t.stride * c, n) for t in terms_of(x) for c, n in t.inner)


def tree_of(func: LoopFunction, operations: Operations | None = None) -> LoopTree:
    """The tree of a scheduled function.

    ``operations`` are the instructions that its blocks name, by default none.
    """
    found = buffers_of(func)
    kept = {name for name, b in found.items() if b.scope in (REGISTER, TILE)}
    one = Index(1)

    def visit(
        s: Stmt, env: dict[str, tuple[Index, Index]], around: frozenset[str], middle: Mapping[str, int]
    ) -> tuple[Node, ...]:
        if isinstance(s, Seq | If | Alloc):
            return tuple(node for each in stmt_children(s) for node in visit(each, env, around, middle))
        if isinstance(s, For):
            lo, extent = _range(s, env, middle)
            inside = around | {s.var} if extent > 1 else around
            now = {**middle, s.var: lo + (extent - 1) // 2 * s.step}
            body = visit(s.body, {**env, s.var: (s.lo, s.hi - 1)}, inside, now)
            return loop(s.var, extent, s.kind.name, body, s.hints)
        return (work(s, env, around),) if isinstance(s, Block) else ()

    def placed(
        name: str, indices: Sequence[Index], s: Block, env: Mapping[str, tuple[Index, Index]],
        around: frozenset[str], writes: bool,
    ) -> Access:  # fmt: skip
        b, binding = found[name], s.binding()
        physical = zip(b.physical(tuple(indices)), b.physical_shape, strict=True)
        places = [
            terms_of(simplify(substitute_index(i, binding), env), around) for i, n in physical if n != one
        ]
        return access(name, places, b.dtype.bytes, writes, name in kept)

    def work(s: Block, env: Mapping[str, tuple[Index, Index]], around: frozenset[str]) -> Work:
        accesses: dict[Access, None] = {}
        count, element, instruction = 0, 4, ""
        body = s.body
        if isinstance(body, Exec):
            instruction = body.instr
            known = operations.get(instruction) if operations is not None else None
            count = 0 if known is None else known.products
            for w in body.windows:
                accesses[placed(w.buffer, w.offsets, s, env, around, w.mode != "r")] = None
        else:
            for store in _stores(body):
                for a in store.writes:
                    count += operations_of(a.value)
                    element = a.value.dtype.bytes
                    accesses[placed(a.buffer, a.indices, s, env, around, True)] = None
            for ld in stmt_loads(body):
                accesses[placed(ld.buffer, ld.indices, s, env, around, False)] = None
        return Work(s.name, tuple(accesses), max(1, count), element, instruction)

    return LoopTree(visit(func.body, {}, frozenset(), {}))


def _range(s: For, env: Mapping[str, tuple[Index, Index]], middle: Mapping[str, int]) -> tuple[int, int]:
    """The first value of a loop and its turns; of one whose range others move, in the ``middle`` of these."""
    if s.extent.is_const and s.lo.is_const:
        return s.lo.const, _turns(s, env)
    try:
        lo, hi = (evaluate_index(x, middle, _unknown) for x in (s.lo, s.hi))
    except KeyError:
        return 0, UNKNOWN_EXTENT
    return lo, max(1, -((lo - hi) // s.step))


def _unknown(e: Expr) -> int:
    """What data say is known at run time only."""
    raise KeyError(str(e))


def _turns(s: For, env: Mapping[str, tuple[Index, Index]]) -> int:
    """Iterations of a loop in which some block below runs: of a partial tile those that are left."""
    extent = s.extent.as_int()
    found = 0
    for place in blocks(s.body):
        most = extent
        around = None
        for c in place.node.where:
            step = 0 if c.index is None or c.op != "ge" else c.index.coefficient(s.var)
            if c.index is None or step >= 0:
                continue
            around = around or {**env, s.var: (s.lo, s.hi - 1), **loop_env(place.loops)}
            rest = int_upper(c.index - var(s.var) * step, around)
            if rest is not None:
                most = min(most, rest // -step + 1 - s.lo.as_int())
        found = max(found, most)
        if found == extent:
            break
    return max(1, found)


def _stores(s: Stmt) -> Iterator[Store]:
    if isinstance(s, Store):
        yield s
    elif isinstance(s, If):
        yield from _stores(s.then)
        if s.orelse is not None:
            yield from _stores(s.orelse)
    elif isinstance(s, Seq):
        for each in s.stmts:
            yield from _stores(each)


def operations_of(e: Expr) -> int:
    """Scalar operations of an expression; a product that is added is one."""
    if isinstance(e, Binary):
        fused = e.op == "add" and any(isinstance(x, Binary) and x.op == "mul" for x in (e.a, e.b))
        return operations_of(e.a) + operations_of(e.b) + (0 if fused and e.dtype.is_float else 1)
    if isinstance(e, Unary):
        return operations_of(e.a) + 1
    if isinstance(e, Select):
        return operations_of(e.a) + operations_of(e.b) + 2
    if isinstance(e, Call):
        return sum(map(operations_of, e.args)) + CALL_OPERATIONS
    return 0
