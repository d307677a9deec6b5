"""isl's generated loops as a loop function again.

``schedule tree -> isl AST -> For, If and Block``. Marks in the tree say where buffers of a tile are allocated
(``scratch``) and which loop is parallel (``parallel`` directly above its band).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from tilewright.ir import (
    BOOL,
    I64,
    PARALLEL,
    SERIAL,
    Alloc,
    Binary,
    Block,
    Buffer,
    Compare,
    Condition,
    Const,
    Expr,
    For,
    If,
    Index,
    IndexMap,
    Iter,
    LoopFunction,
    LoopKind,
    OfIndex,
    Pred,
    Stmt,
    eq0,
    floordiv,
    fresh_name,
    ge0,
    holds,
    imax,
    imin,
    index,
    mod,
    seq,
    simplify_seqs,
    substitute_index,
    var,
)
from tilewright.poly.extract import Model, PolyStatement
from tilewright.poly.spaces import DIM
from tilewright.poly.tree import PARALLEL_MARK, SCRATCH_MARK, TiledTree
from tilewright.support import InternalError, ProgramError


def _name(member: object) -> str:
    """The name of a member of one of isl's enumerations (typed as a number in islpy's stubs)."""
    return str(member.name).rstrip("_")  # type: ignore[attr-defined]  # see above


def _kind(e: isl.AstExpr) -> str:
    """``int``, ``id``, or the name of an operation."""
    kind = _name(e.get_type())
    return _name(e.op_get_type()) if kind == "op" else kind


def _operands(e: isl.AstExpr) -> list[isl.AstExpr]:
    return [e.op_get_arg(n) for n in range(e.op_get_n_arg())]


@dataclass(frozen=True, slots=True)
class Scratch:
    """A buffer of one tile: the first element and the extent per physical dimension.

    ``origin`` is over the names ``o0``, ``o1``, ... of the loops above the mark, outermost first.
    """

    buffer: str
    origin: tuple[Index, ...]
    extents: tuple[int, ...]


def scratch_of(model: Model, tree: TiledTree, buffer: str) -> Scratch:
    """The constant box that holds the elements of ``buffer`` needed by any tile.

    Raises :class:`~tilewright.support.ProgramError` where a box has no constant extent.
    """
    m = tree.scratch[buffer]
    names = [f"o{k}" for k in range(m.dim(DIM.in_))]
    origin: list[Index] = []
    extents: list[int] = []
    for k in range(m.dim(DIM.out)):
        low, extent = _one_dimension(model, m, k, names, buffer)
        origin.append(low)
        extents.append(extent)
    return Scratch(buffer, tuple(origin), tuple(extents))


def _one_dimension(model: Model, m: isl.Map, k: int, names: Sequence[str], buffer: str) -> tuple[Index, int]:
    """A lower bound of dimension ``k`` and how far above it the elements of any tile reach."""
    n = m.dim(DIM.out)
    one = m.project_out(DIM.out, k + 1, n - k - 1).project_out(DIM.out, 0, k)
    region = one.wrap().flatten()  # the tile's coordinates, then the element's
    x = len(names)
    params = {p.name: p for p in model.params}
    best: tuple[Index, int] | None = None
    for c in region.simple_hull().get_constraints():
        scale = c.get_coefficient_val(DIM.set, x).to_python()
        if abs(scale) != 1 or (scale < 0 and not c.is_equality()) or _uses_divisions(c):
            continue
        # scale * x + rest >= 0
        low = index(c.get_constant_val().to_python() * -scale)
        distance = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(region.get_space()))
        distance = distance.set_coefficient_val(DIM.in_, x, 1).set_constant_val(-low.const)
        for p in range(region.dim(DIM.param)):
            coefficient = c.get_coefficient_val(DIM.param, p).to_python() * -scale
            low = low + index(params[str(region.get_dim_name(DIM.param, p))]) * coefficient
            distance = distance.set_coefficient_val(DIM.param, p, -coefficient)
        for i, name in enumerate(names):
            coefficient = c.get_coefficient_val(DIM.set, i).to_python() * -scale
            low = low + var(name) * coefficient
            distance = distance.set_coefficient_val(DIM.in_, i, -coefficient)
        top = region.apply(isl.Map.from_aff(distance)).dim_max_val(0)
        if top.is_int():
            reach: int = top.to_python() + 1
            if best is None or reach < best[1]:
                best = (low, reach)
    if best is None:
        raise ProgramError(
            f"the part of {buffer} that a tile needs has no constant extent in dimension {k}",
            hint="tile more dimensions, or keep the buffer whole",
        )
    return best


def _uses_divisions(c: isl.Constraint) -> bool:
    return any(not c.get_coefficient_val(DIM.div, n).is_zero() for n in range(c.dim(DIM.div)))


@dataclass(frozen=True, slots=True)
class _Place:
    """Values of the AST's iterators, the same in the order of the loops, and the kind of the next loop."""

    env: Mapping[str, Index]
    loops: tuple[Index, ...] = ()
    kind: LoopKind = SERIAL

    def inside(self, iterator: str, value: Index) -> _Place:
        return _Place({**self.env, iterator: value}, (*self.loops, value))


class _Importer:
    def __init__(self, model: Model, scratch: Mapping[str, Scratch]) -> None:
        self.model = model
        self.scratch = scratch
        self.taken: set[str] = {p.name for p in model.params}
        self.statements = {s.name: s for s in model.statements}

    def visit(self, node: isl.AstNode, at: _Place) -> Stmt:
        match _name(node.get_type()):
            case "for":
                return self.loop(node, at)
            case "if":
                return self.branch(node, at)
            case "block":
                children = node.block_get_children()
                count = children.n_ast_node()
                return seq(*(self.visit(children.get_at(n), at) for n in range(count)))
            case "mark":
                return self.mark(node, at)
            case "user":
                return self.call(node.user_get_expr(), at)
            case other:
                raise InternalError(f"isl generated a node of type {other}")

    def mark(self, node: isl.AstNode, at: _Place) -> Stmt:
        name = node.mark_get_id().get_name()
        if name == PARALLEL_MARK:
            return self.visit(node.mark_get_node(), replace(at, kind=PARALLEL))
        body = self.visit(node.mark_get_node(), at)
        if name == SCRATCH_MARK:
            for s in reversed(list(self.scratch.values())):
                body = Alloc(self.buffer(s, at.loops), body)
        return body

    def buffer(self, s: Scratch, loops: tuple[Index, ...]) -> Buffer:
        declared = self.model.buffers[s.buffer]
        mapping = {f"o{n}": x for n, x in enumerate(loops)}
        rank = len(declared.shape)
        dims = tuple(f"d{n}" for n in range(rank)) if declared.layout is None else declared.layout.dims
        where = declared.physical(tuple(var(d) for d in dims))
        exprs = tuple(x - substitute_index(o, mapping) for x, o in zip(where, s.origin, strict=True))
        shape = tuple(index(e) for e in s.extents)
        return replace(declared, layout=IndexMap(dims, exprs, shape), halo=None)

    def loop(self, node: isl.AstNode, at: _Place) -> Stmt:
        iterator = node.for_get_iterator().get_id().get_name()
        low = self.index(node.for_get_init(), at.env)
        if node.for_is_degenerate():
            return self.visit(node.for_get_body(), at.inside(iterator, low))
        name = fresh_name(iterator, self.taken)
        self.taken.add(name)
        step = self.index(node.for_get_inc(), at.env).as_int()
        cond = node.for_get_cond()
        if _kind(cond) not in ("le", "lt"):
            raise InternalError(f"isl generated a loop with the condition {cond.to_C_str()}")
        high = self.index(cond.op_get_arg(1), at.env) + (1 if _kind(cond) == "le" else 0)
        body = self.visit(node.for_get_body(), at.inside(iterator, var(name)))
        return For(name, low, high, body, at.kind, step)

    def branch(self, node: isl.AstNode, at: _Place) -> Stmt:
        then = self.visit(node.if_get_then_node(), at)
        orelse = self.visit(node.if_get_else_node(), at) if node.if_has_else_node() else None
        return If(self.pred(node.if_get_cond(), at.env), then, orelse)

    def call(self, e: isl.AstExpr, at: _Place) -> Stmt:
        target, *args = _operands(e)
        s = self.statements[target.get_id().get_name()]
        mapping = dict(zip(s.dims, (self.index(a, at.env) for a in args), strict=True))
        name = fresh_name(s.name, self.taken)
        self.taken.add(name)
        bind = tuple(substitute_index(c, mapping) for c in s.coords)
        return replace(block_for(s), name=name, bind=bind)

    # -- expressions ---------------------------------------------------------------------------------------

    def index(self, e: isl.AstExpr, env: Mapping[str, Index]) -> Index:
        kind = _kind(e)
        if kind == "int":
            return index(e.get_val().to_python())
        if kind == "id":
            name = e.get_id().get_name()
            if name in env:
                return env[name]
            return index(next(p for p in self.model.params if p.name == name))
        values = [self.index(a, env) for a in _operands(e)]
        match kind:
            case "add":
                return values[0] + values[1]
            case "sub":
                return values[0] - values[1]
            case "minus":
                return -values[0]
            case "mul":
                return values[0] * values[1]
            case "div" | "fdiv_q" | "pdiv_q":
                return floordiv(values[0], values[1].as_int())
            case "pdiv_r" | "zdiv_r":
                return mod(values[0], values[1].as_int())
            case "min":
                return imin(*values)
            case "max":
                return imax(*values)
            case _:
                raise InternalError(f"isl generated the index {e.to_C_str()}")

    def pred(self, e: isl.AstExpr, env: Mapping[str, Index]) -> Pred:
        if _kind(e) in ("and", "and_then"):
            left, right = _operands(e)
            return (*self.pred(left, env), *self.pred(right, env))
        simple = self.comparison(e, env)
        return (simple if simple is not None else holds(self.truth(e, env)),)

    def comparison(self, e: isl.AstExpr, env: Mapping[str, Index]) -> Condition | None:
        kind = _kind(e)
        if kind not in ("le", "lt", "ge", "gt", "eq"):
            return None
        a, b = (self.index(x, env) for x in _operands(e))
        match kind:
            case "le":
                return ge0(b - a)
            case "lt":
                return ge0(b - a - 1)
            case "ge":
                return ge0(a - b)
            case "gt":
                return ge0(a - b - 1)
            case _:
                return eq0(a - b)

    def truth(self, e: isl.AstExpr, env: Mapping[str, Index]) -> Expr:
        """A condition with alternatives as a boolean expression."""
        kind = _kind(e)
        if kind == "int":
            return Const(bool(e.get_val().to_python()), BOOL)
        if kind in ("and", "and_then", "or", "or_else"):
            left, right = _operands(e)
            return Binary(kind.split("_")[0], self.truth(left, env), self.truth(right, env))
        simple = self.comparison(e, env)
        if simple is None or simple.index is None:
            raise InternalError(f"isl generated the condition {e.to_C_str()}")
        return Compare(simple.op, OfIndex(simple.index, I64), Const(0, I64))


def block_for(s: PolyStatement) -> Block:
    """The block of one statement, its binding over the statement's loops.

    Raises :class:`~tilewright.support.ProgramError` for a block whose body has loops of its own.
    """
    if "loop" in s.coord_kinds:
        raise ProgramError(f"block {s.block.name!r} has loops inside of its body")
    kept = set(s.coord_names)
    iters: tuple[Iter, ...] = tuple(it for it in s.block.iters if it.name in kept)
    return Block(s.name, s.stage, iters, s.coords, s.node)


def generate(schedule: isl.Schedule, context: isl.Set) -> isl.AstNode:
    """Isl's loops for a schedule tree."""
    return isl.AstBuild.from_context(context).node_from_schedule(schedule)


def import_tree(model: Model, schedule: isl.Schedule, scratch: Sequence[Scratch] = ()) -> LoopFunction:
    """The loop function of a schedule tree over the statements of ``model``.

    Buffers of ``scratch`` are allocated at the tree's ``scratch`` mark, all others as they were around the
    whole body. Raises :class:`~tilewright.support.ProgramError` for storage that was allocated inside of
    loops and is not among ``scratch``.
    """
    func = model.function
    importer = _Importer(model, {s.buffer: s for s in scratch})
    ast = generate(schedule, model.context)
    body = simplify_seqs(importer.visit(ast, _Place({})))
    arguments = {b.name for b in func.buffers}
    for name, declared in reversed(list(model.buffers.items())):
        if name in arguments or name in importer.scratch:
            continue
        for s in model.statements:
            for a in (*s.reads, *s.writes):
                if a.buffer == name and a.relation.dim(DIM.out) != len(declared.physical_shape):
                    raise ProgramError(
                        f"buffer {name!r} is allocated inside of loops", hint="give it as scratch of a tile"
                    )
        body = Alloc(declared, body)
    return func.with_body(body)
