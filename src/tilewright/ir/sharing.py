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
        self._known: dict[Hashable, int] = {}
        self.roots = [self._visit(e) for e in roots]
        for n in self.roots:
            self.uses[n] += 1

    def _visit(self, e: Expr) -> int:
        known = self.number_of.get(id(e))
        if known is not None:
            return known
        kids = [self._visit(k) for k in children(e)]
        key = _key(e, kids)
        n = self._known.get(key)
        if n is None:
            n = self._known[key] = len(self.nodes)
            self.nodes.append(e)
            self.size.append(1 + sum(self.size[k] for k in kids))
            self.uses.append(0)
            for k in kids:
                self.uses[k] += 1
        self.number_of[id(e)] = n
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
