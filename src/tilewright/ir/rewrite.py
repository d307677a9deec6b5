"""Finding and rewriting parts of a loop function: paths, substitution, fresh names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Load, map_expr, map_indices
from tilewright.ir.index import Index, var
from tilewright.ir.stmt import (
    Access,
    Alloc,
    Block,
    Condition,
    Exec,
    For,
    If,
    LoopFunction,
    Pred,
    Seq,
    Stmt,
    Store,
    Sync,
    Team,
    Teams,
    stmt_children,
    with_stmt_children,
)
from tilewright.ir.substitution import substitute_index

Path = tuple[int, ...]
NodeT = TypeVar("NodeT", bound=Stmt, covariant=True)


@dataclass(frozen=True, slots=True)
class Located(Generic[NodeT]):
    """A node with the way to it: ``ancestors`` from the root down (without the node) and child positions."""

    node: NodeT
    ancestors: tuple[Stmt, ...]
    path: Path

    @property
    def loops(self) -> tuple[For, ...]:
        """Enclosing loops, outermost first."""
        return tuple(a for a in self.ancestors if isinstance(a, For))

    @property
    def conditions(self) -> Pred:
        """Conditions of the enclosing ``If`` statements whose ``then`` side holds the node."""
        out: list[Condition] = []
        for a, step in zip(self.ancestors, self.path, strict=True):
            if isinstance(a, If) and step == 0:
                out.extend(a.cond)
        return tuple(out)


Location: TypeAlias = Located[Stmt]
"""The place of any node."""


def find(root: Stmt, name: str) -> Location | None:
    """The loop or block called ``name``, or ``None``."""
    ancestors: list[Stmt] = []
    path: list[int] = []
    node = root
    if name not in node.names:
        return None
    while True:
        if (isinstance(node, For) and node.var == name) or (isinstance(node, Block) and node.name == name):
            return Located(node, tuple(ancestors), tuple(path))
        for n, child in enumerate(stmt_children(node)):
            if name in child.names:
                ancestors.append(node)
                path.append(n)
                node = child
                break
        else:
            return None


def find_alloc(root: Stmt, buffer: str) -> Located[Alloc] | None:
    """The allocation of the buffer called ``buffer``, or ``None``."""
    ancestors: list[Stmt] = []
    path: list[int] = []
    node = root
    while not (isinstance(node, Alloc) and node.buffer.name == buffer):
        for n, child in enumerate(stmt_children(node)):
            if any(b.name == buffer for b in child.allocated):
                ancestors.append(node)
                path.append(n)
                node = child
                break
        else:
            return None
    return Located(node, tuple(ancestors), tuple(path))


def locate(root: Stmt, kind: type[NodeT] | tuple[type[NodeT], ...]) -> Iterator[Located[NodeT]]:
    """All nodes of a kind, or of one of several kinds, in program order, parents first."""
    # a stack of (node, depth, position): ancestors and path are kept in one list each, cut back to the depth
    ancestors: list[Stmt] = []
    path: list[int] = []
    todo: list[tuple[Stmt, int, int]] = [(root, 0, 0)]
    while todo:
        node, depth, position = todo.pop()
        if depth:
            del path[depth - 1 :]
            path.append(position)
            del ancestors[depth:]
        if isinstance(node, kind):
            yield Located(node, tuple(ancestors[:depth]), tuple(path))
        kids = stmt_children(node)
        if kids:
            del ancestors[depth:]
            ancestors.append(node)
            todo.extend((kids[n], depth + 1, n) for n in range(len(kids) - 1, -1, -1))


def blocks(root: Stmt) -> list[Located[Block]]:
    """All blocks in program order."""
    return list(locate(root, Block))


def replace_at(root: Stmt, path: Path, new: Stmt) -> Stmt:
    """``root`` with the node at ``path`` replaced; everything off the path is shared."""
    way: list[Stmt] = []
    node = root
    for n in path:
        way.append(node)
        node = stmt_children(node)[n]
    if new is node:
        return root
    for parent, n in zip(reversed(way), reversed(path), strict=True):
        match parent:
            case Alloc():
                new = Alloc(parent.buffer, new)
            case Seq():
                new = Seq((*parent.stmts[:n], new, *parent.stmts[n + 1 :]))
            case _:
                kids = stmt_children(parent)
                new = with_stmt_children(parent, (*kids[:n], new, *kids[n + 1 :]))
    return new


def map_stmt(s: Stmt, fn: Callable[[Stmt], Stmt]) -> Stmt:
    """Rebuild bottom-up; ``fn`` sees every statement after its children. Block bodies are not entered."""
    kids = stmt_children(s)
    if kids:
        s = with_stmt_children(s, tuple(map_stmt(k, fn) for k in kids))
    return fn(s)


def simplify_seqs(s: Stmt) -> Stmt:
    """Flatten nested sequences and drop empty ones, loops and branches around nothing."""

    def visit(node: Stmt) -> Stmt:
        match node:
            case Seq():
                flat: list[Stmt] = []
                for k in node.stmts:
                    flat.extend(k.stmts) if isinstance(k, Seq) else flat.append(k)
                if len(flat) == 1:
                    return flat[0]
                return (
                    node
                    if len(flat) == len(node.stmts)
                    and all(a is b for a, b in zip(flat, node.stmts, strict=True))
                    else Seq(tuple(flat))
                )
            case For() | Alloc() if isinstance(node.body, Seq) and not node.body.stmts:
                return Seq(())
            case If() if node.orelse is None and isinstance(node.then, Seq) and not node.then.stmts:
                return Seq(())
            case _:
                return node

    return map_stmt(s, visit)


def map_pred(p: Pred, index_fn: Callable[[Index], Index], expr_fn: Callable[[Expr], Expr]) -> Pred:
    """Apply functions to the indices and expressions of a predicate, keeping identity."""
    out: list[Condition] = []
    changed = False
    for c in p:
        new = c
        if c.index is not None:
            i = index_fn(c.index)
            if i is not c.index:
                new = Condition(c.op, i)
        elif c.expr is not None:
            e = expr_fn(c.expr)
            if e is not c.expr:
                new = Condition(c.op, None, e)
        changed = changed or new is not c
        out.append(new)
    return tuple(out) if changed else p


def substitute_pred(p: Pred, mapping: Mapping[str, Index]) -> Pred:
    """Replace variables in a predicate."""
    return map_pred(p, lambda i: substitute_index(i, mapping), lambda e: e.substitute(mapping))


def _same(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    return all(x is y for x, y in zip(a, b, strict=True))


def substitute(s: Stmt, mapping: Mapping[str, Index]) -> Stmt:
    """Replace loop variables: in bounds, predicates, bindings and layouts, not inside blocks.

    Outside of blocks (in lowered code) stores and calls are rewritten too. A loop of ``s`` that binds a name
    of ``mapping`` shadows it.
    """
    if not mapping:
        return s

    def sub(i: Index) -> Index:
        return substitute_index(i, mapping)

    match s:
        case For():
            inner = {k: v for k, v in mapping.items() if k != s.var}
            lo, hi, body = sub(s.lo), sub(s.hi), substitute(s.body, inner)
            if lo is s.lo and hi is s.hi and body is s.body:
                return s
            return replace(s, lo=lo, hi=hi, body=body)
        case If():
            cond = substitute_pred(s.cond, mapping)
            then = substitute(s.then, mapping)
            orelse = None if s.orelse is None else substitute(s.orelse, mapping)
            if cond is s.cond and then is s.then and orelse is s.orelse:
                return s
            return If(cond, then, orelse)
        case Alloc():
            buf, body = s.buffer.substitute(mapping), substitute(s.body, mapping)
            return s if buf is s.buffer and body is s.body else Alloc(buf, body)
        case Seq() | Teams() | Team():
            return with_stmt_children(s, tuple(substitute(k, mapping) for k in stmt_children(s)))
        case Block():
            bind = tuple(sub(b) for b in s.bind)
            where = substitute_pred(s.where, mapping)
            if _same(bind, s.bind) and where is s.where:
                return s
            return replace(s, bind=bind, where=where)
        case Store() | Exec() | Sync():
            return map_accesses(s, sub, lambda e: e.substitute(mapping))
        case _:
            return s


def map_accesses(s: Stmt, index_fn: Callable[[Index], Index], expr_fn: Callable[[Expr], Expr]) -> Stmt:
    """Apply functions to the indices and values of a ``Store``, ``Exec`` or ``Sync``, keeping identity."""
    match s:
        case Sync():
            item = index_fn(s.item)
            return s if item is s.item else replace(s, item=item)
        case Store():
            writes = []
            changed = False
            for w in s.writes:
                idx = tuple(index_fn(i) for i in w.indices)
                value = expr_fn(w.value)
                if _same(idx, w.indices) and value is w.value:
                    writes.append(w)
                else:
                    changed = True
                    writes.append(Access(w.buffer, idx, value))
            return Store(tuple(writes)) if changed else s
        case Exec():
            offsets = [tuple(index_fn(i) for i in w.offsets) for w in s.windows]
            args = tuple(expr_fn(a) for a in s.args)
            if _same(args, s.args) and all(
                _same(new, w.offsets) for new, w in zip(offsets, s.windows, strict=True)
            ):
                return s
            pairs = zip(s.windows, offsets, strict=True)
            return Exec(s.instr, tuple(replace(w, offsets=new) for w, new in pairs), args)
        case _:
            return s


def substitute_body(s: Stmt, mapping: Mapping[str, Index]) -> Stmt:
    """Replace iterators inside a block body (or any statement) by indices: :func:`substitute` for bodies."""
    return substitute(s, mapping)


def map_loads(s: Stmt, fn: Callable[[Load], Expr]) -> Stmt:
    """Replace loads everywhere in a statement tree, inside blocks and opaque indices too."""

    def of_index(i: Index) -> Index:
        return substitute_index(i, {}, of_expr)

    def of_expr(e: Expr) -> Expr:
        e = map_indices(e, of_index)
        return map_expr(e, lambda n: fn(n) if isinstance(n, Load) else n)

    return map_exprs(s, of_index, of_expr)


def rename_buffers(s: Stmt, names: Mapping[str, str]) -> Stmt:
    """The statement with buffers renamed in every load, store and window."""
    if not names:
        return s

    def of_load(e: Load) -> Expr:
        return Load(names[e.buffer], e.indices, e.dtype) if e.buffer in names else e

    def written(node: Stmt) -> Stmt:
        match node:
            case Store():
                return Store(
                    tuple(Access(names.get(w.buffer, w.buffer), w.indices, w.value) for w in node.writes)
                )
            case Exec():
                wins = tuple(replace(w, buffer=names.get(w.buffer, w.buffer)) for w in node.windows)
                return Exec(node.instr, wins, node.args)
            case Block():
                init = None if node.init is None else written(node.init)
                return replace(node, init=init, body=written(node.body))
            case _:
                return with_stmt_children(node, tuple(written(k) for k in stmt_children(node)))

    return written(map_loads(s, of_load))


def map_exprs(s: Stmt, index_fn: Callable[[Index], Index], expr_fn: Callable[[Expr], Expr]) -> Stmt:
    """Apply functions to every index and top-level expression of a tree, inside blocks too."""
    match s:
        case For():
            lo, hi, body = index_fn(s.lo), index_fn(s.hi), map_exprs(s.body, index_fn, expr_fn)
            if lo is s.lo and hi is s.hi and body is s.body:
                return s
            return replace(s, lo=lo, hi=hi, body=body)
        case If():
            cond = map_pred(s.cond, index_fn, expr_fn)
            then = map_exprs(s.then, index_fn, expr_fn)
            orelse = None if s.orelse is None else map_exprs(s.orelse, index_fn, expr_fn)
            if cond is s.cond and then is s.then and orelse is s.orelse:
                return s
            return If(cond, then, orelse)
        case Block():
            bind = tuple(index_fn(b) for b in s.bind)
            where = map_pred(s.where, index_fn, expr_fn)
            init = None if s.init is None else map_exprs(s.init, index_fn, expr_fn)
            body = map_exprs(s.body, index_fn, expr_fn)
            if _same(bind, s.bind) and where is s.where and init is s.init and body is s.body:
                return s
            return replace(s, bind=bind, where=where, init=init, body=body)
        case Store() | Exec() | Sync():
            return map_accesses(s, index_fn, expr_fn)
        case _:
            return with_stmt_children(s, tuple(map_exprs(k, index_fn, expr_fn) for k in stmt_children(s)))


def map_blocks(s: Stmt, fn: Callable[[Block], Stmt]) -> Stmt:
    """Replace every block of a tree."""
    return map_stmt(s, lambda n: fn(n) if isinstance(n, Block) else n)


def map_buffers(s: Stmt, fn: Callable[[Buffer], Buffer]) -> Stmt:
    """Replace the declarations of allocated buffers."""

    def visit(n: Stmt) -> Stmt:
        if isinstance(n, Alloc):
            b = fn(n.buffer)
            if b is not n.buffer:
                return Alloc(b, n.body)
        return n

    return map_stmt(s, visit)


def buffers_of(func: LoopFunction) -> dict[str, Buffer]:
    """All buffers by name: arguments and allocations."""
    out = {b.name: b for b in func.buffers}
    for b in func.body.allocated:
        out[b.name] = b
    return out


def fresh_name(base: str, taken: frozenset[str] | set[str] | Mapping[str, object]) -> str:
    """``base``, or ``base_1``, ``base_2`` … where that is taken."""
    if base not in taken:
        return base
    n = 1
    while f"{base}_{n}" in taken:
        n += 1
    return f"{base}_{n}"


def rename_loops(s: Stmt, taken: set[str]) -> Stmt:
    """A copy of ``s`` whose loops and blocks have names not in ``taken`` (which grows by them)."""
    match s:
        case For():
            new = fresh_name(s.var, taken)
            taken.add(new)
            body = s.body
            if new != s.var:
                body = substitute(body, {s.var: var(new)})
            return replace(s, var=new, body=rename_loops(body, taken))
        case Block():
            new = fresh_name(s.name, taken)
            taken.add(new)
            return s if new == s.name else replace(s, name=new)
        case _:
            return with_stmt_children(s, tuple(rename_loops(k, taken) for k in stmt_children(s)))
