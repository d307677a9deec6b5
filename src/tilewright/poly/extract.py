"""The polyhedral model of a loop function: domains, access relations and the textual schedule.

One :class:`PolyStatement` per store of a block. Its domain is over the enclosing loops; accesses are
physical (layouts applied), and storage allocated inside loops has those loops as further dimensions, so that
iterations with storage of their own have no false dependences. Data-dependent indices and conditions are
over-approximated and marked so; a block whose loops data decide is one statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import islpy as isl

from tilewright.ir import (
    PRIVATE,
    SERIAL,
    SHARED,
    THREAD_AXES,
    Alloc,
    Barrier,
    Block,
    Buffer,
    Exec,
    Expr,
    For,
    If,
    Index,
    Load,
    LoopFunction,
    LoopKind,
    Param,
    Pred,
    Seq,
    Stmt,
    Store,
    Sync,
    Team,
    Teams,
    Window,
    eq0,
    floordiv,
    fresh_name,
    ge0,
    index,
    is_opaque,
    is_thread,
    locate,
    pred_loads,
    substitute_index,
    substitute_pred,
    sums_lanes,
    var,
)
from tilewright.poly.black_box import is_black_box, known_indices
from tilewright.poly.budget import limited
from tilewright.poly.conditions import truth
from tilewright.poly.loads import executed_loads
from tilewright.poly.spaces import DIM, Domain, context_set, union_map, union_set
from tilewright.support import InternalError, ProgramError

TimePart: TypeAlias = int | str  # a textual position or a loop variable


@dataclass(frozen=True, slots=True)
class PolyAccess:
    """``relation``: instances to elements ``storage[enclosing loops of its Alloc..., physical indices...]``.

    ``exact`` is false where more elements are related than are touched, or the access may not happen.
    ``owned`` says that every thread of a block has storage of its own.
    """

    buffer: str
    relation: isl.Map
    exact: bool
    load: Load | None = None
    owned: bool = False


@dataclass(frozen=True, slots=True)
class PolyStatement:
    """One store of a block, or a black box as a whole: ``name[dims]`` over its ``domain``.

    ``coords`` are its logical coordinates (block iterators ``coord_names`` of ``coord_kinds``, then loops of
    the block's own body, kind ``loop``) as indices over ``dims``. ``kinds`` are the kinds of the loops
    ``dims``; ``time`` is the textual schedule: positions and loops in turn. ``everyone`` says that all
    threads of some axis run the instances, each into memory of its own; ``threads`` are the numbers of the
    thread that does, by its axes, over ``dims``.
    """

    name: str
    block: Block
    part: str
    position: int
    node: Stmt
    dims: tuple[str, ...]
    kinds: tuple[LoopKind, ...]
    domain: isl.Set
    exact: bool
    coord_names: tuple[str, ...]
    coord_kinds: tuple[str, ...]
    coords: tuple[Index, ...]
    time: tuple[TimePart, ...]
    reads: tuple[PolyAccess, ...]
    writes: tuple[PolyAccess, ...]
    everyone: bool = False
    threads: Mapping[str, Index] = field(default_factory=dict)

    @property
    def stage(self) -> str:
        """The stage of the block."""
        return self.block.stage

    @property
    def logical(self) -> str:
        """Name of the space of logical instances, the same for all blocks of a stage."""
        suffix = "" if self.part == "body" and self.position == 0 else f"__{self.part}{self.position}"
        return self.stage + suffix


@dataclass(frozen=True, slots=True)
class PolyBarrier:
    """A barrier: its loops, domain and time, as of a statement."""

    name: str
    dims: tuple[str, ...]
    kinds: tuple[LoopKind, ...]
    domain: isl.Set
    time: tuple[TimePart, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """The statements of a function in textual order, and what is known of its parameters."""

    function: LoopFunction
    params: tuple[Param, ...]
    context: isl.Set
    statements: tuple[PolyStatement, ...]
    barriers: tuple[PolyBarrier, ...]
    buffers: Mapping[str, Buffer] = field(repr=False)

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.name

    def statement(self, name: str) -> PolyStatement:
        """The statement called ``name``; ``KeyError`` where there is none."""
        for s in self.statements:
            if s.name == name:
                return s
        raise KeyError(name)

    def space(self, s: PolyStatement | PolyBarrier) -> Domain:
        """The space of a statement's instances."""
        return Domain(s.name, s.dims, self.params)

    def domain(self) -> isl.UnionSet:
        """All instances."""
        return union_set(s.domain for s in self.statements)

    def reads(self) -> isl.UnionMap:
        """All reads: instances to elements."""
        return union_map(a.relation for s in self.statements for a in s.reads)

    def writes(self) -> isl.UnionMap:
        """All writes: instances to elements."""
        return union_map(a.relation for s in self.statements for a in s.writes)

    def schedule(self, *, lockstep: bool = False) -> isl.UnionMap:
        """The textual order as a union map to time vectors of one length.

        With ``lockstep`` the threads of a block advance together: their loops move to the end of the vector.
        """
        return union_map(self.time(s, lockstep=lockstep) for s in self.statements)

    def time(
        self, s: PolyStatement | PolyBarrier, *, lockstep: bool = False, threads: bool = True
    ) -> isl.Map:
        """The time vectors of one statement; without ``threads`` the loops over threads count as 0."""
        everything: list[PolyStatement | PolyBarrier] = [*self.statements, *self.barriers]
        parts = list(s.time)
        length = max(1, *(len(o.time) for o in everything))
        parts += [0] * (length - len(parts))
        if lockstep or not threads:
            hardware = [d for d, k in zip(s.dims, s.kinds, strict=True) if is_thread(k)]
            parts = [0 if p in hardware else p for p in parts]
            if threads:
                deepest = max(sum(map(is_thread, o.kinds)) for o in everything)
                parts += hardware + [0] * (deepest - len(hardware))
        values = [index(p) if isinstance(p, int) else var(p) for p in parts]
        return self.space(s).map_to("", values).intersect_domain(s.domain)

    def instances(self, s: PolyStatement) -> isl.Map:
        """From a statement's loops to its logical instances ``stage[iterators]``."""
        return self.space(s).map_to(s.logical, s.coords).intersect_domain(s.domain)


def team_dims(dims: tuple[str, ...], kinds: tuple[LoopKind, ...]) -> tuple[str, ...] | None:
    """The loops that a block of threads has in common; ``None`` outside of such blocks.

    Up to the innermost loop over blocks; without one, up to (not including) the outermost loop over threads.
    """
    blocks = [n for n, k in enumerate(kinds) if k.name == "thread" and not is_thread(k)]
    if blocks:
        return dims[: blocks[-1] + 1]
    threads = [n for n, k in enumerate(kinds) if is_thread(k)]
    return dims[: threads[0]] if threads else None


@dataclass(frozen=True, slots=True)
class _Context:
    """Where in the tree: enclosing loops, conditions over them, allocations, time."""

    dims: tuple[str, ...] = ()
    kinds: tuple[LoopKind, ...] = ()
    conditions: Pred = ()
    excluded: tuple[Pred, ...] = ()  # conditions of which each must fail somewhere
    time: tuple[TimePart, ...] = ()
    storage: Mapping[str, tuple[str, tuple[str, ...], bool]] = field(default_factory=dict)
    block: Block | None = None
    part: str = "body"
    scope: Mapping[str, Index] | None = None  # iterators to loops, inside a block
    inner: tuple[str, ...] = ()  # loops of the block's body
    counter: list[int] = field(default_factory=lambda: [0])
    threads: Mapping[str, Index] = field(default_factory=dict)  # hardware axis -> number of the thread

    def domain(self, space: Domain) -> tuple[isl.Set, bool]:
        """The executions of this place, and whether no data decides about them."""
        out, exact = space.where(self.conditions)
        for pred in self.excluded:
            region, sure = space.where(pred)
            if sure:
                out = out.subtract(region)
            exact = exact and sure
        return out, exact

    def index(self, x: Index) -> Index:
        return x if self.scope is None else substitute_index(x, self.scope)

    def pred(self, p: Pred) -> Pred:
        return p if self.scope is None else substitute_pred(p, self.scope)


def _several(loop: For) -> bool:
    """Whether a loop is over more than one thread of a block."""
    return is_thread(loop.kind) and not (loop.extent.is_const and loop.extent.const <= 1)


class _Extractor:
    def __init__(self, func: LoopFunction) -> None:
        self.params = func.params
        self.buffers: dict[str, Buffer] = {b.name: b for b in func.buffers}
        self.statements: list[PolyStatement] = []
        self.barriers: list[PolyBarrier] = []
        self.names: set[str] = set()
        self.axes = {p.node.kind.axis for p in locate(func.body, For) if _several(p.node)}

    def visit(self, s: Stmt, c: _Context) -> None:
        match s:
            case Seq():
                for n, child in enumerate(s.stmts):
                    self.visit(child, replace(c, time=(*c.time, n)))
            case For():
                self.loop(s, c)
            case If():
                cond = c.pred(s.cond)
                self.visit(s.then, replace(c, conditions=(*c.conditions, *cond), time=(*c.time, 0)))
                if s.orelse is not None:
                    self.visit(s.orelse, replace(c, excluded=(*c.excluded, cond), time=(*c.time, 1)))
            case Alloc():
                self.visit(s.body, self.alloc(s, c))
            case Barrier():
                name = self.fresh("barrier")
                domain, _ = c.domain(Domain(name, c.dims, self.params))
                self.barriers.append(PolyBarrier(name, c.dims, c.kinds, domain, c.time))
            case Block():
                self.block(s, c)
            case Store() | Exec():
                self.leaf(s, c)
            case Teams() | Team() | Sync():
                raise InternalError("teams are formed by lowering: judge functions before")

    def fresh(self, base: str) -> str:
        name = fresh_name(base, self.names)
        self.names.add(name)
        return name

    def loop(self, s: For, c: _Context) -> None:
        lo, hi = c.index(s.lo), c.index(s.hi)
        if is_opaque(lo) or is_opaque(hi):
            raise ProgramError(
                f"the bounds of loop {s.var} depend on data",
                hint="the model has no exact set for such a loop",
            )
        name = fresh_name(s.var, set(c.dims))
        v = var(name)
        bounds = [ge0(v - lo), ge0(hi - v - 1)]
        if s.step != 1:
            bounds.append(eq0((v - lo) % s.step))
        scope = c.scope
        if scope is not None or name != s.var:
            scope = {**(scope or {}), s.var: v}
        threads = c.threads
        if is_thread(s.kind):
            # threads count iterations, wherever their loop begins
            threads = {**threads, s.kind.axis: floordiv(v - lo, s.step)}
        inside = replace(
            c,
            threads=threads,
            dims=(*c.dims, name),
            kinds=(*c.kinds, SERIAL if sums_lanes(s) else s.kind),
            conditions=(*c.conditions, *bounds),
            time=(*c.time, name),
            scope=scope,
            inner=(*c.inner, name),
        )
        self.visit(s.body, inside)

    def alloc(self, s: Alloc, c: _Context) -> _Context:
        name = fresh_name(s.buffer.name, self.buffers)
        self.buffers[name] = s.buffer.with_(name=name)
        team, scope = team_dims(c.dims, c.kinds), s.buffer.scope
        alone = scope != SHARED and (scope in PRIVATE or any(is_thread(k) for k in c.kinds))
        own = team is not None and alone
        # one for all threads of a block, and the same memory in every iteration of the block's loops
        dims = c.dims if team is None or alone else team
        return replace(c, storage={**c.storage, s.buffer.name: (name, dims, own)})

    def block(self, b: Block, c: _Context) -> None:
        binding = {it.name: c.index(x) for it, x in zip(b.iters, b.bind, strict=True)}
        inside = replace(
            c,
            conditions=(*c.conditions, *c.pred(b.where)),
            block=b,
            scope=binding,
            inner=(),
        )
        if is_black_box(b):
            self.leaf(b.body, replace(inside, counter=[0]))
            return
        if b.init is not None:
            first = tuple(
                eq0(binding[it.name] - substitute_index(it.lo, binding)) for it in b.iters if it.kind == "red"
            )
            self.visit(
                b.init,
                replace(
                    inside,
                    part="init",
                    conditions=(*inside.conditions, *first),
                    time=(*c.time, 0),
                    counter=[0],
                ),
            )
            inside = replace(inside, time=(*c.time, 1))
        self.visit(b.body, replace(inside, counter=[0]))

    def leaf(self, s: Stmt, c: _Context) -> None:
        position = c.counter[0]
        c.counter[0] += 1
        block = c.block if c.block is not None else Block("loose", "loose", (), (), s)
        suffix = "" if c.part == "body" else "_init"
        suffix += f"_{position}" if position else ""
        name = self.fresh(block.name + suffix)
        space = Domain(name, c.dims, self.params)
        domain, exact = c.domain(space)
        iters = [it for it in block.iters if c.part == "body" or it.kind != "red"]
        names = [it.name for it in iters] + list(c.inner)
        coords = [c.index(var(n)) for n in names]
        reads: list[PolyAccess] = []
        writes: list[PolyAccess] = []
        if isinstance(s, Store):

            def split(cond: Expr, region: isl.Set) -> tuple[isl.Set, isl.Set] | None:
                holds = truth(cond, space, c.scope or {})
                return None if holds is None else (region.intersect(holds), region.subtract(holds))

            for load, region, sure in executed_loads(s, domain, split):
                reads.append(self.access(load.buffer, load.indices, space, region, sure and exact, c, load))
            for w in s.writes:
                access = self.access(w.buffer, w.indices, space, domain, exact, c, None)
                if not access.exact:
                    reads.append(access)  # what may not be overwritten flows through
                writes.append(access)
        elif isinstance(s, Exec):
            for win in s.windows:
                relation = self.window(win, space, domain, c)
                name_of, _, owned = c.storage.get(win.buffer, (win.buffer, (), False))
                access = PolyAccess(name_of, relation, exact, None, owned)
                if win.mode != "w":
                    reads.append(access)
                if win.mode != "r":
                    writes.append(access)
        else:
            touched = [(load.buffer, load.indices) for load in block.reads]
            reads += [self.loose(name, x, block, space, domain, c) for name, x in touched]
            writes += [self.loose(name, x, block, space, domain, c) for name, x in block.writes]
            reads += writes  # what may not be overwritten flows through
        # what decides whether a statement runs is read, too; conditions are over loops
        outside = replace(c, scope=None)
        for pred in (c.conditions, *c.excluded):
            for load in dict.fromkeys(pred_loads(pred)):
                reads.append(self.access(load.buffer, load.indices, space, domain, False, outside, None))
        self.statements.append(
            PolyStatement(
                name=name,
                block=block,
                part=c.part,
                position=position,
                node=s,
                dims=c.dims,
                kinds=c.kinds,
                domain=domain,
                exact=exact,
                coord_names=tuple(names),
                coord_kinds=tuple([it.kind for it in iters] + ["loop"] * len(c.inner)),
                coords=tuple(coords),
                time=c.time,
                reads=tuple(reads),
                writes=tuple(writes),
                everyone=bool(writes)
                and all(w.owned for w in writes)
                and not self.axes <= {k.axis for k in c.kinds},
                threads=c.threads,
            )
        )

    def storage(self, buffer: str, c: _Context) -> str:
        return c.storage[buffer][0] if buffer in c.storage else buffer

    def prefix(self, buffer: str, c: _Context) -> list[Index]:
        """Which incarnation of a buffer: the loops around its Alloc, and the thread that owns it."""
        if buffer not in c.storage:
            return []
        _, dims, own = c.storage[buffer]
        out = [var(d) for d in dims]
        if own:
            inner = {k.axis for d, k in zip(c.dims, c.kinds, strict=True) if is_thread(k) and d not in dims}
            out += [c.threads[a] if a in inner else index(0) for a in THREAD_AXES]
        return out

    def access(
        self,
        buffer: str,
        indices: tuple[Index, ...],
        space: Domain,
        region: isl.Set,
        exact: bool,
        c: _Context,
        load: Load | None,
    ) -> PolyAccess:
        declared = self.buffers[self.storage(buffer, c)]
        logical = [None if is_opaque(x) else c.index(x) for x in indices]
        relation = self.relation(buffer, declared, logical, space, region, c)
        name, _, owned = c.storage.get(buffer, (buffer, (), False))
        return PolyAccess(name, relation, exact and all(x is not None for x in logical), load, owned)

    def loose(
        self,
        buffer: str,
        indices: tuple[Index, ...],
        block: Block,
        space: Domain,
        region: isl.Set,
        c: _Context,
    ) -> PolyAccess:
        """What an access of a black box may touch."""
        logical = [None if x is None else c.index(x) for x in known_indices(block, indices)]
        declared = self.buffers[self.storage(buffer, c)]
        name, _, owned = c.storage.get(buffer, (buffer, (), False))
        relation = self.relation(buffer, declared, logical, space, region, c)
        return PolyAccess(name, relation, False, None, owned)

    def relation(
        self,
        buffer: str,
        declared: Buffer,
        logical: list[Index | None],
        space: Domain,
        region: isl.Set,
        c: _Context,
        extents: tuple[int, ...] | None = None,
    ) -> isl.Map:
        """Instances of ``region`` to physical elements; a ``None`` index stands for the whole dimension.

        With ``extents`` an index is the first of that many.
        """
        name = self.storage(buffer, c)
        prefix = self.prefix(buffer, c)
        loose = [n for n, x in enumerate(logical) if x is None or extents is not None]
        if declared.layout is None and not loose:
            return space.map_to(name, [*prefix, *logical]).intersect_domain(region)
        # the loose indices become dimensions of a larger space, projected out at the end
        free = {n: f"free{n}" for n in loose}
        wide = Domain(space.name, (*space.dims, *free.values()), space.params)
        bounds: list[isl.Set] = []
        values: list[Index] = []
        for n, x in enumerate(logical):
            if n not in free:
                assert x is not None
                values.append(x)
                continue
            v = var(free[n])
            values.append(v)
            if x is None:
                bounds += [wide.at_least(v), wide.at_least(declared.shape[n] - v - 1)]
            else:
                assert extents is not None
                bounds += [wide.at_least(v - x), wide.at_least(x + extents[n] - v - 1)]
        physical = declared.physical(tuple(values))
        out = wide.map_to(name, [*prefix, *physical])
        for b in bounds:
            out = out.intersect_domain(b)
        if free:
            out = out.project_out(DIM.in_, len(space.dims), len(free))
            out = out.set_tuple_name(DIM.in_, space.name)
        return out.intersect_domain(region)

    def window(self, w: Window, space: Domain, region: isl.Set, c: _Context) -> isl.Map:
        declared = self.buffers[self.storage(w.buffer, c)]
        offsets: list[Index | None] = [c.index(x) for x in w.offsets]
        return self.relation(w.buffer, declared, offsets, space, region, c, w.extents)


@limited("the accesses of {} are too many", "take a smaller function")
def extract_model(func: LoopFunction, params: Mapping[str, int] | None = None) -> Model:
    """The polyhedral model of a loop function, symbolic in its parameters except for those given.

    Raises :class:`~tilewright.support.ProgramError` for loops whose bounds depend on data.
    """
    context = context_set(func.params, func.assumes)
    for name, value in (params or {}).items():
        at = context.find_dim_by_name(DIM.param, name)
        context = context.fix_val(DIM.param, at, value)
    extractor = _Extractor(func)
    extractor.visit(func.body, _Context())
    statements = extractor.statements
    reducing = {s.stage for s in statements if "red" in s.coord_kinds}
    done = []
    for s in statements:
        inside = replace(
            s,
            domain=s.domain.intersect_params(context),
            reads=tuple(replace(a, relation=a.relation.intersect_params(context)) for a in s.reads),
            writes=tuple(replace(a, relation=a.relation.intersect_params(context)) for a in s.writes),
        )
        if s.stage in reducing and "red" not in s.coord_kinds:
            inside = replace(inside, part="init")
        done.append(inside)
    return Model(func, func.params, context, tuple(done), tuple(extractor.barriers), extractor.buffers)
