"""isl's generated loops as a loop function again.

``schedule tree -> isl AST -> For, If and Block``. Marks in the tree say where buffers of a tile are allocated
(``scratch(B, C)``) and which loop is parallel (``parallel`` directly above its band). Loops come out so that
other primitives can work on them: from 0 in steps of 1, without those of a single iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import islpy as isl

from tilewright.ir import (
    BOOL,
    I64,
    NOTHING,
    PARALLEL,
    SERIAL,
    ZERO,
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
    MinMax,
    OfIndex,
    Pred,
    Stmt,
    condition_of,
    eq0,
    floordiv,
    fresh_name,
    ge0,
    holds,
    imax,
    imin,
    index,
    mod,
    rename_buffers,
    seq,
    simplify,
    simplify_seqs,
    substitute_index,
    var,
)
from tilewright.poly.budget import limited
from tilewright.poly.executions import (
    PARALLEL_MARK,
    SCRATCH_MARK,
    MarkedPart,
    children,
    marked_parts,
    scratch_buffers,
    type_of,
)
from tilewright.poly.extract import Model, PolyStatement
from tilewright.poly.scratch import Scratch, scratch_of
from tilewright.poly.spaces import DIM
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


def _selections(e: isl.AstExpr) -> Iterator[isl.AstExpr]:
    """The parts of an expression that select one of two values; not those inside of them."""
    match _kind(e):
        case "int" | "id":
            return
        case "select":
            yield e
        case _:
            for x in _operands(e):
                yield from _selections(x)


PROBE = "@"
"""In front of the names of probes; no name of a statement begins so."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Values of the AST's iterators, and the name of the one whose loop is parallel (isl counts dimensions).

    Values of selections stand by their text beside them, below the branches that decide them.

    ``ranges`` are those of the loops around; ``names`` tells what buffers of tiles are called here.
    """

    env: Mapping[str, Index]
    parallel: str = ""
    ranges: Mapping[str, tuple[Index, Index]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def inside(self, iterator: str, value: Index) -> _Place:
        return replace(self, env={**self.env, iterator: value})

    def within(self, loop: str, lo: Index, hi: Index) -> _Place:
        return replace(self, ranges={**self.ranges, loop: (lo, hi - 1)})


class _Importer:
    def __init__(self, model: Model, scratch: Sequence[tuple[Scratch, ...]], taken: Iterable[str]) -> None:
        self.model = model
        self.scratch = scratch  # by the number of the mark
        self.allocated = {s.buffer for found in scratch for s in found}
        self.taken: set[str] = {*taken, *(p.name for p in model.params)}
        self.buffers: set[str] = {*model.buffers, *self.taken}
        self.made: set[str] = set()
        self.statements = {s.name: s for s in model.statements}

    def visit(self, node: isl.AstNode, at: _Place) -> Stmt:
        match _name(node.get_type()):
            case "for":
                bounds = [node.for_get_init(), node.for_get_cond()]
                return self.decided(bounds, at, lambda at: self.loop(node, at))
            case "if":
                return self.branch(node, at)
            case "block":
                children = node.block_get_children()
                count = children.n_ast_node()
                return seq(*(self.visit(children.get_at(n), at) for n in range(count)))
            case "mark":
                return self.mark(node, at)
            case "user":
                e = node.user_get_expr()
                return self.decided([e], at, lambda at: self.call(e, at))
            case other:
                raise InternalError(f"isl generated a node of type {other}")

    def decided(self, exprs: Sequence[isl.AstExpr], at: _Place, made: Callable[[_Place], Stmt]) -> Stmt:
        """What is made of expressions that select one of two values: an index cannot, so branches do."""
        e = next((x for each in exprs for x in _selections(each) if x.to_C_str() not in at.env), None)
        if e is None:
            return made(at)
        which, *values = _operands(e)

        def branched(at: _Place) -> Stmt:
            return If(self.pred(which, at.env), *(self.decided([x], at, taking(x)) for x in values))

        def taking(x: isl.AstExpr) -> Callable[[_Place], Stmt]:
            return lambda at: self.decided(exprs, at.inside(e.to_C_str(), self.index(x, at.env)), made)

        return self.decided([which], at, branched)

    def mark(self, node: isl.AstNode, at: _Place) -> Stmt:
        name = str(node.mark_get_id().get_name())
        found = self.probed(node.mark_get_node(), at)
        if found is None:
            raise InternalError(f"isl lost the probe of the mark {name}")
        boxes, tile = self.scratch[found[0]], found[1]
        if name == PARALLEL_MARK:
            return self.visit(node.mark_get_node(), replace(at, parallel=f"c{len(tile)}"))
        names = {s.buffer: self.storage(s.buffer) for s in boxes}
        body = self.visit(node.mark_get_node(), replace(at, names={**at.names, **names}))
        for s in reversed(boxes):
            body = Alloc(self.buffer(s, names[s.buffer], tile), body)
        return body

    def probed(self, node: isl.AstNode, at: _Place) -> tuple[int, tuple[Index, ...]] | None:
        """The number of a mark and the values of the dimensions there: the probe below it, its arguments."""
        match _name(node.get_type()):
            case "user":
                target, *args = _operands(node.user_get_expr())
                called = str(target.get_id().get_name())
                if not called.startswith(PROBE):
                    return None
                values = tuple(simplify(self.index(a, at.env), at.ranges) for a in args)
                return int(called[len(PROBE) :]), values
            case "block":
                return self.probed(node.block_get_children().get_at(0), at)
            case "if":
                return self.probed(node.if_get_then_node(), at)
        return None

    def storage(self, buffer: str) -> str:
        """What one allocation of a buffer is called: a tree's part may be generated several times."""
        if buffer not in self.made:
            self.made.add(buffer)
            return buffer
        name = fresh_name(buffer, self.buffers)
        self.buffers.add(name)
        return name

    def buffer(self, s: Scratch, name: str, loops: tuple[Index, ...]) -> Buffer:
        declared = self.model.buffers[s.buffer]
        mapping = {f"o{n}": x for n, x in enumerate(loops)}
        rank = len(declared.shape)
        dims = tuple(f"d{n}" for n in range(rank)) if declared.layout is None else declared.layout.dims
        where = declared.physical(tuple(var(d) for d in dims))
        exprs = tuple(x - substitute_index(o, mapping) for x, o in zip(where, s.origin, strict=True))
        return replace(declared, name=name, layout=IndexMap(dims, exprs, s.extents), halo=None)

    def loop(self, node: isl.AstNode, at: _Place) -> Stmt:
        """A loop from 0 in steps of 1; of a single iteration only its body.

        A first value that is a maximum stays where it is: moved into the body it would make every index
        there one that is not affine.
        """
        iterator = node.for_get_iterator().get_id().get_name()
        low = simplify(self.index(node.for_get_init(), at.env), at.ranges)
        if node.for_is_degenerate():
            return self.visit(node.for_get_body(), at.inside(iterator, low))
        step = self.index(node.for_get_inc(), at.env).as_int()
        cond = node.for_get_cond()
        if _kind(cond) not in ("le", "lt"):
            raise InternalError(f"isl generated a loop with the condition {cond.to_C_str()}")
        high = self.index(cond.op_get_arg(1), at.env) + (1 if _kind(cond) == "le" else 0)
        if step == 1 and any(isinstance(atom, MinMax) for atom, _ in low.terms):
            first, extent = low, simplify(high, at.ranges)
        else:
            first, extent = ZERO, simplify(floordiv(_minus(high, low) + (step - 1), step), at.ranges)
        if first is ZERO and extent.is_const and extent.const <= 1:
            return self.visit(node.for_get_body(), at.inside(iterator, low)) if extent.const == 1 else NOTHING
        name = fresh_name(iterator, self.taken)
        self.taken.add(name)
        value = var(name) if first is low else low + var(name) * step
        body = self.visit(node.for_get_body(), at.inside(iterator, value).within(name, first, extent))
        return For(name, first, extent, body, PARALLEL if iterator == at.parallel else SERIAL)

    def branch(self, node: isl.AstNode, at: _Place) -> Stmt:
        then = self.visit(node.if_get_then_node(), at)
        orelse = self.visit(node.if_get_else_node(), at) if node.if_has_else_node() else None
        return If(self.pred(node.if_get_cond(), at.env), then, orelse)

    def call(self, e: isl.AstExpr, at: _Place) -> Stmt:
        target, *args = _operands(e)
        called = str(target.get_id().get_name())
        if called.startswith(PROBE):
            return NOTHING
        s = self.statements[called]
        mapping = dict(zip(s.dims, (self.index(a, at.env) for a in args), strict=True))
        name = fresh_name(s.name, self.taken)
        self.taken.add(name)
        bind = tuple(substitute_index(c, mapping) for c in s.coords)
        block = block_for(s)
        for buffer in {a.buffer for a in (*s.reads, *s.writes)} & self.allocated - at.names.keys():
            raise ProgramError(
                f"block {s.name!r} accesses {buffer!r}, but is not below the mark that allocates it",
                hint="keep the buffer whole, or put the block below the mark as well",
            )
        names = {old: new for old, new in at.names.items() if old != new}
        return replace(block, name=name, bind=bind, body=rename_buffers(block.body, names))

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
        if kind == "select" and e.to_C_str() in env:
            return env[e.to_C_str()]
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

    A condition of its body stays, though the loops imply it: blocks move to other loops, which do not.

    Raises :class:`~tilewright.support.ProgramError` for a block whose body has loops of its own.
    """
    if "loop" in s.coord_kinds:
        raise ProgramError(f"block {s.block.name!r} has loops inside of its body")
    kept = set(s.coord_names)
    iters: tuple[Iter, ...] = tuple(it for it in s.block.iters if it.name in kept)
    condition, inner = condition_of(s.block.body)
    body = s.block.body if condition and s.part == "body" and inner == s.node else s.node
    return Block(s.name, s.stage, iters, s.coords, body)


def with_probes(schedule: isl.Schedule, parts: Iterable[MarkedPart]) -> isl.Schedule:
    """The tree with a statement in front of what each mark holds, whose arguments are the dimensions there.

    isl leaves loops of one iteration out of the AST, so what encloses a mark there does not tell them.
    """
    for n, part in enumerate(parts):
        node = list(_marks(schedule.get_root()))[n]
        tiles = part.executed.range()
        named = isl.Map.from_union_map(tiles.identity()).set_tuple_name(DIM.out, f"{PROBE}{n}")
        probe = isl.ScheduleNode.from_extension(named.to_union_map())
        schedule = node.child(0).graft_before(probe).get_schedule()
    return schedule


def _marks(node: isl.ScheduleNode) -> Iterator[isl.ScheduleNode]:
    """The marks below a node, outer ones first."""
    if type_of(node) == "mark":
        yield node
    for child in children(node):
        yield from _marks(child)


def generate(schedule: isl.Schedule, context: isl.Set) -> isl.AstNode:
    """Isl's loops for a schedule tree."""
    return isl.AstBuild.from_context(context).node_from_schedule(schedule)


def _minus(x: Index, y: Index) -> Index:
    """``x - y``, taken into a minimum or maximum that ``x`` is: ``min(a, b) - y = min(a - y, b - y)``."""
    extremes = [(atom, c) for atom, c in x.terms if isinstance(atom, MinMax)]
    if len(extremes) != 1 or extremes[0][1] != 1:
        return x - y
    atom = extremes[0][0]
    others = x - index(atom) - y
    return (imin if atom.op == "min" else imax)(*(a + others for a in atom.args))


def scratch_marks(model: Model, schedule: isl.Schedule) -> list[tuple[Scratch, ...]]:
    """The boxes of the buffers that each mark of a tree allocates, in the order of the tree.

    Raises :class:`~tilewright.support.ProgramError` for buffers that have no place of their own: unknown
    ones, arguments, those named twice, and those that nothing below the mark accesses.
    """
    return [boxes for _, boxes in _scratch(model, schedule) if boxes]


def _scratch(model: Model, schedule: isl.Schedule) -> list[tuple[MarkedPart, tuple[Scratch, ...]]]:
    found: list[tuple[MarkedPart, tuple[Scratch, ...]]] = []
    arguments = {b.name for b in model.function.buffers}
    for part in marked_parts(schedule):
        names = scratch_buffers(part.name) or ()
        for n, name in enumerate(names):
            if name not in model.buffers or name in arguments or name in names[:n]:
                raise ProgramError(f"the mark {part.name!r} cannot allocate the buffer {name[:80]!r}")
            layout = model.buffers[name].layout
            if layout is not None and any(x.vars - set(layout.dims) for x in layout.exprs):
                raise ProgramError(
                    f"buffer {name!r} is a tile already: its layout depends on the loops around it",
                    hint="import the tree before other steps",
                )
        found.append((part, tuple(scratch_of(model, part, name) for name in names)))
    return found


@limited("the tree for {} is too large", "use smaller parts, or another tree")
def import_tree(model: Model, schedule: isl.Schedule, taken: Iterable[str] = ()) -> LoopFunction:
    """The loop function of a schedule tree over the statements of ``model``.

    ``taken`` are names that loops and blocks may not have. Buffers of ``scratch`` marks are allocated there,
    all others as they were around the whole body. Raises :class:`~tilewright.support.ProgramError` for
    storage that was allocated inside of loops and that no mark allocates, and as :func:`scratch_marks` does.
    """
    func = model.function
    scratch = _scratch(model, schedule)
    importer = _Importer(model, [boxes for _, boxes in scratch], taken)
    ast = generate(with_probes(schedule, (part for part, _ in scratch)), model.context)
    body = simplify_seqs(importer.visit(ast, _Place({})))
    arguments = {b.name for b in func.buffers}
    for name, declared in reversed(list(model.buffers.items())):
        if name in arguments or name in importer.allocated:
            continue
        for s in model.statements:
            for a in (*s.reads, *s.writes):
                if a.buffer == name and a.relation.dim(DIM.out) != len(declared.physical_shape):
                    raise ProgramError(
                        f"buffer {name!r} is allocated inside of loops",
                        hint=f"put a mark {SCRATCH_MARK}({name}) where it is to be allocated",
                    )
        body = Alloc(declared, body)
    return func.with_body(body)
