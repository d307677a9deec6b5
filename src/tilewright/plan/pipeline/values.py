"""The values that stages compute, each once: with others inlined, and of several instances side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Final

from tilewright.ir import (
    Binary,
    Call,
    Cast,
    Compare,
    Expr,
    FloorDiv,
    Index,
    Load,
    MinMax,
    Mod,
    Numbering,
    Opaque,
    Select,
    Unary,
    Var,
    indices_of,
    loads,
    map_indices,
    substitute_index,
    walk,
    with_children,
)

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


@dataclass(frozen=True, slots=True)
class Amortised:
    """What an instance takes where others stand beside it: instructions, and different loads by buffer.

    With what is computed to look elements up.
    """

    work: float
    loads: Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """The different values of an instance of a stage, operands before what they are operands of.

    ``nodes`` say what is computed, ``operands`` of which others, ``roots`` are what is stored, ``looked_up``
    those that other values find. ``inlined`` elements of other stages are computed on the way. ``operations``
    are counted by kind; ``work`` are instructions: a product that one sum alone reads is taken along.
    ``strahler``'s number are the registers that it takes at least, evaluated as a tree.
    """

    nodes: tuple[Expr, ...]
    operands: tuple[tuple[int, ...], ...]
    roots: tuple[int, ...]
    looked_up: frozenset[int]
    inlined: int
    operations: Mapping[str, int]
    work: float
    strahler: int

    @property
    def loads(self) -> list[Load]:
        """The different loads in the order of the expressions, with those by which elements are found."""
        found, seen, todo = dict[Load, None](), set[int](), [*reversed(self.roots)]
        while todo:
            n = todo.pop()
            if n not in seen:
                seen.add(n)
                todo.extend(reversed(self.operands[n]))
                if not self.operands[n]:
                    found.update(dict.fromkeys(loads(self.nodes[n])))
        return list(found)

    def side_by_side(self, names: Sequence[str], copies: Sequence[int]) -> Amortised:
        """An instance among so many along each axis: equal values are made once.

        The loads that Anderson et al. (OOPSLA 2021, Appendix A) amortise over unrolled loops.
        """
        beside, count = Numbering(()), 0
        for offsets in product(*map(range, copies)):
            axes = zip(names, offsets, copies, strict=True)
            move = _moving({name: Index(offset, ((Var(name), n),)) for name, offset, n in axes if n > 1})
            numbers: list[int] = []
            for n, (e, operands) in enumerate(zip(self.nodes, self.operands, strict=True)):
                if operands:
                    numbers.append(beside.enter(e, [numbers[k] for k in operands]))
                    continue
                known, leaf = len(beside.nodes), map_indices(e, move)
                numbers.append(beside.enter(leaf, []))
                if n in self.looked_up and len(beside.nodes) > known:
                    for found in _finding(leaf):
                        beside.add(found)
            for n in self.roots:
                beside.uses[numbers[n]] += 1
            count += 1
        read = Counter(e.buffer for e in beside.nodes if isinstance(e, Load))
        return Amortised(_work(beside) / count, {buffer: n / count for buffer, n in read.items()})


def values_of(roots: Sequence[Expr], element: Callable[[Load], Expr | None] = lambda _: None) -> Values:
    """The values of expressions; ``element`` gives those of inlined stages by the loads that read them."""
    found = _Inlining(element)
    for root in roots:
        found.add(root)
    kinds = Counter(filter(None, map(kind_of, found.nodes)))
    return Values(
        tuple(found.nodes),
        tuple(map(tuple, found.operands)),
        tuple(found.roots),
        frozenset(n for n, e in enumerate(found.nodes) if next(_finding(e), None) is not None),
        len(found.inlined),
        MappingProxyType({kind: kinds[kind] for kind in OPERATIONS}),
        _work(found),
        _strahler(found),
    )


class _Inlining(Numbering):
    """Numbers values; a load of what is inlined has the number of the value that it stands for."""

    def __init__(self, element: Callable[[Load], Expr | None]) -> None:
        super().__init__(())
        self._element = element
        self._elements: dict[Load, int] = {}
        self._whole: dict[int, Expr] = {}
        self._finding: _Inlining | None = None
        #: Nodes are known by their identity: what is made on the way must last.
        self._made: list[Expr] = []

    @property
    def inlined(self) -> set[Load]:
        """The loads that stand for others, those by which elements are found among them."""
        return {*self._elements} | (set() if self._finding is None else self._finding.inlined)

    def leaf(self, e: Expr) -> int:
        """The number of an expression without operands. What finds an element is no operand."""
        if next(_finding(e), None) is not None:
            finding = self._finding = self._finding or _Inlining(self._element)
            e = map_indices(e, lambda i: substitute_index(i, {}, finding.whole))
        if not isinstance(e, Load):
            return self.enter(e, [])
        n = self._elements.get(e)
        if n is None:
            made = self._element(e)
            if made is None:
                return self.enter(e, [])
            self._made.append(made)
            n = self._elements[e] = self.number(made)
        return n

    def whole(self, e: Expr) -> Expr:
        """An expression with all that is inlined into it."""
        return self._whole_of(self.number(e))

    def _whole_of(self, n: int) -> Expr:
        if n not in self._whole:
            operands = tuple([self._whole_of(k) for k in self.operands[n]])
            self._whole[n] = with_children(self.nodes[n], operands)
        return self._whole[n]


def _moving(at: Mapping[str, Index]) -> Callable[[Index], Index]:
    """Replaces iterators in indices, in equal ones once."""
    known: dict[Index, Index] = {}

    def move(i: Index) -> Index:
        new = known.get(i)
        if new is None:
            new = known[i] = substitute_index(i, at)
        return new

    return move


def _finding(e: Expr) -> Iterator[Expr]:
    """The expressions that say which element an expression without operands reads."""
    if any(True for i in indices_of(e) for _ in _looked_up(i)):
        for node in walk(e):
            for i in indices_of(node):
                yield from _looked_up(i)


def _looked_up(i: Index) -> Iterator[Expr]:
    for atom, _ in i.terms:
        if type(atom) is Var:  # most are
            continue
        match atom:
            case Opaque(expr=e):
                yield e
            case FloorDiv(arg=arg) | Mod(arg=arg):
                yield from _looked_up(arg)
            case MinMax(args=args):
                for arg in args:
                    yield from _looked_up(arg)


def _work(values: Numbering) -> float:
    total = 0.0
    for e, operands in zip(values.nodes, values.operands, strict=True):
        kind = kind_of(e)
        if kind:
            total += WEIGHTS[kind]
        if isinstance(e, Binary) and e.op in ("add", "sub") and e.dtype.is_float:
            sides = (n for n in operands if values.uses[n] == 1)
            products = (e for e in (values.nodes[n] for n in sides) if isinstance(e, Binary))
            total -= WEIGHTS["mul"] * any(e.op == "mul" for e in products)
    return total


def _strahler(values: Numbering) -> int:
    """Strahler's number of numbered expressions: the largest of them."""
    ranks: list[int] = []
    for operands in values.operands:
        own = sorted((ranks[n] for n in operands), reverse=True)
        ranks.append(max(1, own[0], own[1] + 1 if len(own) > 1 else 1) if own else 1)
    return max((ranks[n] for n in values.roots), default=1)


def kind_of(e: Expr) -> str:
    """Which of :data:`OPERATIONS` an expression is; empty for none."""
    if isinstance(e, Binary):
        return {"mul": "mul", "div": "div", "floordiv": "div", "mod": "div"}.get(e.op, "add")
    if isinstance(e, Unary):
        return "call" if e.op in ("sqrt", "exp", "log") else "add"
    if isinstance(e, Call):
        return "call"
    return {Compare: "compare", Select: "select", Cast: "cast"}.get(type(e), "")
