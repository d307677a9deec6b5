"""Sub-expressions that occur more than once: expanded functions share them, and as trees they explode."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from tilewright.ir.expr import Binary, Call, Cast, Compare, Expr, Select, Unary, children


def shared_nodes(roots: Iterable[Expr]) -> frozenset[int]:
    """``id`` of every node with operands that stands in more than one place below the roots."""
    seen: set[int] = set()
    twice: set[int] = set()
    todo = list(roots)
    while todo:
        node = todo.pop()
        kids = children(node)
        if not kids:
            continue
        if id(node) in seen:
            twice.add(id(node))
            continue
        seen.add(id(node))
        todo.extend(kids)
    return frozenset(twice)


class Numbering:
    """Numbers expressions by value, operands first: equal ones get one number, shared as objects or not.

    Linear in the number of distinct objects below the roots.
    """

    def __init__(self, roots: Iterable[Expr]) -> None:
        self.number_of: dict[int, int] = {}
        """``id`` of a node to its number."""
        self.nodes: list[Expr] = []
        """One node for each number."""
        self.size: list[int] = []
        """Nodes of each as a tree."""
        self.uses: list[int] = []
        """In how many places of distinct expressions (and roots) each occurs."""
        self.operands: list[list[int]] = []
        """The operands of each."""
        self.roots: list[int] = []
        self._known: dict[Hashable, int] = {}
        for e in roots:
            self.add(e)

    def add(self, root: Expr) -> int:
        """Number one more root; it must last as long as this."""
        n = self.number(root)
        self.roots.append(n)
        self.uses[n] += 1
        return n

    def number(self, e: Expr) -> int:
        """The number of an expression below a root."""
        known = self.number_of.get(id(e))
        if known is None:
            operands = children(e)
            known = self.enter(e, [self.number(k) for k in operands]) if operands else self.leaf(e)
            self.number_of[id(e)] = known
        return known

    def leaf(self, e: Expr) -> int:
        """The number of an expression without operands."""
        return self.enter(e, [])

    def enter(self, e: Expr, operands: list[int]) -> int:
        """The number of what ``e`` does with operands that have these numbers."""
        key = _key(e, operands)
        n = self._known.get(key)
        if n is None:
            n = self._known[key] = len(self.nodes)
            self.nodes.append(e)
            self.operands.append(operands)
            self.size.append(1 + sum(self.size[k] for k in operands))
            self.uses.append(0)
            for k in operands:
                self.uses[k] += 1
        return n


def _key(e: Expr, kids: list[int]) -> Hashable:
    match e:
        case Unary() | Binary() | Compare():
            return (type(e).__name__, e.op, *kids)
        case Select():
            return ("Select", *kids)
        case Cast():
            return ("Cast", e.dtype, e.mode, *kids)
        case Call():
            return (e.fn, *kids)
        case _:
            return e
