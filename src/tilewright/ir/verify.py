"""The verifier: the invariants of programs and loop functions, checked after every pass in tests.

Checked always: names are unique and in scope; blocks are closed over their iterators and parameters;
element types and numbers of indices agree; shapes depend on parameters only, layouts on their dimensions
and the loops around the allocation; only outputs and allocated buffers are written; no barrier in a vector
or parallel loop; teams are all of a block, and one of them fills a channel. A block's bindings are evaluated
at the corners of its loop nest: an instance that its guards let through and that lies outside of the
iterators' domains is reported, as is an iterator of an output's block whose bindings cannot reach the ends of
the domain. What cannot be decided passes: the interpreter finds the rest.

A :class:`Level` adds what one stage of the pipeline promises.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tilewright.ir.bounds import int_upper, loop_env, prove_ge0, upper
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import DTYPES
from tilewright.ir.expr import Expr
from tilewright.ir.hints import hint_problem, nontemporal_hints
from tilewright.ir.index import Index, Param
from tilewright.ir.parser import parse_program
from tilewright.ir.program import Program
from tilewright.ir.stmt import (
    Alloc,
    Barrier,
    Block,
    Exec,
    For,
    If,
    Iter,
    LoopFunction,
    Pred,
    Stmt,
    Store,
    Sync,
    Teams,
    Window,
    stmt_children,
    stmt_writes,
)
from tilewright.ir.substitution import evaluate_index
from tilewright.ir.verify_expr import Names, check_access, check_expr, check_index, check_pred
from tilewright.support import ParseError, VerificationError, quoted

_CORNERS = 64  # instances looked at per block: enough for both ends of six loops
_KINDS = frozenset(("serial", "parallel", "vector", "unroll", "thread"))


@dataclass(frozen=True, slots=True)
class Level:
    """What a function must look like at one stage: which statements and loop kinds may occur."""

    name: str
    blocks: bool = True
    """Whether blocks may occur."""
    inits: bool = True
    """Whether blocks may have an ``init``."""
    bare: bool = True
    """Whether stores and instructions may stand outside of blocks."""
    kinds: frozenset[str] = _KINDS
    """The loop kinds that may occur."""


ANY = Level("any")
SCHEDULED = Level("scheduled", bare=False)
DECOMPOSED = Level("decomposed", inits=False, bare=False)
LOWERED = Level("lowered", blocks=False)


def verify(func: LoopFunction, level: Level = ANY) -> None:
    """Check a loop function; VerificationError names the broken invariant and the node that breaks it."""
    names = Names({}, where=f"function {quoted(func.name)}")
    names = _check_head(func.params, func.assumes, func.buffers, names)
    argument_names = {b.name for b in func.buffers}
    for name in func.outputs:
        if name not in argument_names:
            names.fail(f"output {quoted(name)} is no argument")
    if len(set(func.outputs)) != len(func.outputs):
        names.fail("an output is listed twice")
    for name in func.inouts:
        if name not in func.outputs:
            names.fail(f"the in-out argument {quoted(name)} is not among the outputs")
    if len(set(func.inouts)) != len(func.inouts):
        names.fail("an in-out argument is listed twice")
    writable = frozenset(func.outputs)
    walker = _Walker(func, level, writable, {*names.params}, {*argument_names, *names.params})
    walker.stmt(func.body, names, _Context())
    _check_coverage(func, walker.seen)


def read_program(text: str) -> Program:
    """The program that a user's text describes; ParseError, naming the stage, also where it is broken."""
    program = parse_program(text)
    try:
        verify_program(program)
    except VerificationError as error:
        raise ParseError(error.what, where=error.where, hint=error.hint) from None
    return program


def verify_program(program: Program) -> None:
    """Check a program; VerificationError names the broken invariant and the stage that breaks it."""
    buffers = program.buffers
    names = _check_head(
        program.params, program.assumes, buffers, Names({}, where=f"program {quoted(program.name)}")
    )
    writable = frozenset(b.name for b in (*program.outputs, *program.temps))
    taken: set[str] = set()
    defined = {b.name for b in program.inputs}
    for stage in program.stages:
        at = names.at(f"stage {quoted(stage.name)}")
        if stage.name in taken:
            at.fail("two stages have this name")
        taken.add(stage.name)
        inner = _check_iters(stage.iters, at)
        dummy = LoopFunction(program.name, program.params, (), (), stage.body)
        walker = _Walker(dummy, ANY, writable, set(), set())
        for part in (stage.init, stage.body):
            if part is not None:
                walker.stmt(part, inner, _Context(inside=True))
        if not stage.writes:
            at.fail("the stage writes nothing")
        for name in stage.reads:
            if name not in defined:
                at.fail(f"reads {quoted(name)}, which no stage before it defines")
        defined.update(stage.writes)
    for b in program.outputs:
        if b.name not in defined:
            names.fail(f"no stage defines the output {quoted(b.name)}")


def _check_head(params: tuple[Param, ...], assumes: Pred, buffers: Iterable[Buffer], names: Names) -> Names:
    table: dict[str, Param] = {}
    for p in params:
        if p.name in table:
            names.fail(f"two parameters are called {quoted(p.name)}")
        if p.lo > p.hi or p.multiple_of < 1:
            names.fail(
                f"parameter {quoted(p.name)} has no value: [{p.lo}, {p.hi}], multiple of {p.multiple_of}"
            )
        table[p.name] = p
    names = Names(table, where=names.where)
    check_pred(assumes, names)
    for b in buffers:
        if b.name in names.buffers:
            names.fail(f"two buffers are called {quoted(b.name)}")
        _check_buffer(b, names)
        names = names.with_buffer(b)
    return names


def _check_buffer(b: Buffer, names: Names) -> None:
    """A declaration: shapes over parameters, the layout's dimensions, halo and alignment."""
    here = replace(names, where=f"buffer {quoted(b.name)}")
    only_params = here.only_vars(())
    if DTYPES.get(b.dtype.name) != b.dtype:
        here.fail(f"{b.dtype!r} is no element type")
    for extent in (*b.shape, *b.physical_shape):
        check_index(extent, only_params, "extent")
        if (most := int_upper(extent, {})) is not None and most < 0:
            here.fail(f"extent {extent} is negative")
    if b.align < 1 or b.align & (b.align - 1):
        here.fail(f"alignment {b.align} is no power of two")
    if b.layout is not None:
        if len(b.layout.dims) != len(b.shape) or len(set(b.layout.dims)) != len(b.shape):
            here.fail(f"layout {b.layout} does not have one dimension for each of {len(b.shape)}")
        if len(b.layout.exprs) != len(b.layout.shape):
            here.fail(
                f"layout {b.layout} has {len(b.layout.exprs)} indices and {len(b.layout.shape)} extents"
            )
        for x in b.layout.exprs:
            check_index(x, here.with_vars(b.layout.dims), "layout index")
    if b.halo is not None:
        if len(b.halo) != len(b.physical_shape):
            here.fail(f"halo {b.halo} does not have one pair for each of {len(b.physical_shape)} dimensions")
        if any(n < 0 for pair in b.halo for n in pair):
            here.fail(f"halo {b.halo} is negative")


def _check_iters(iters: tuple[Iter, ...], names: Names) -> Names:
    """Iterators with names of their own, whose bounds mention parameters and earlier iterators only."""
    inner = names.only_vars(())
    for it in iters:
        if it.name in inner.vars:
            names.fail(f"two iterators are called {quoted(it.name)}")
        if it.kind not in ("par", "red", "ord"):
            names.fail(f"iterator {quoted(it.name)} is of the unknown kind {quoted(it.kind)}")
        check_index(it.lo, inner, f"lower bound of iterator {it.name}:")
        check_index(it.hi, inner, f"upper bound of iterator {it.name}:")
        inner = inner.with_vars((it.name,))
    return inner


@dataclass(frozen=True, slots=True)
class _Context:
    """What encloses a statement."""

    loops: tuple[For, ...] = ()
    conditions: Pred = ()
    inside: bool = False
    concurrent: str = ""
    otherwise: bool = False  # in the else of a branch, whose condition is not known here
    team: str | None = None


@dataclass(slots=True)
class _Walker:
    func: LoopFunction
    level: Level
    writable: frozenset[str]
    taken: set[str]
    """Names of loops, blocks and parameters so far."""
    buffer_names: set[str]
    seen: list[tuple[Block, _Context]] = field(default_factory=list)
    syncs: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    """Of the channels in scope the teams that say something, by what they say."""

    def stmt(self, s: Stmt, names: Names, c: _Context) -> None:
        """Check a statement and everything below it."""
        match s:
            case For():
                self._for(s, names, c)
            case Block():
                self._block(s, names, c)
            case If():
                check_pred(s.cond, names)
                self.stmt(s.then, names, replace(c, conditions=(*c.conditions, *s.cond)))
                if s.orelse is not None:
                    self.stmt(s.orelse, names, replace(c, otherwise=True))
            case Alloc():
                if s.buffer.name in self.buffer_names:
                    names.fail(f"two buffers are called {quoted(s.buffer.name)}, or a parameter is")
                self.buffer_names.add(s.buffer.name)
                _check_buffer(s.buffer, names)
                self.writable |= {s.buffer.name}
                self.stmt(s.body, names.with_buffer(s.buffer), c)
            case Barrier():
                if c.concurrent:
                    names.fail(f"a barrier inside of the {c.concurrent}")
            case Teams():
                self._teams(s, names, c)
            case Sync():
                self._sync(s, names, c)
            case Store() | Exec():
                if not c.inside and not self.level.bare:
                    names.fail(f"{s} stands outside of blocks at the level {self.level.name!r}")
                self._leaf(s, names)
            case _:
                for child in stmt_children(s):
                    self.stmt(child, names, c)

    def _teams(self, s: Teams, names: Names, c: _Context) -> None:
        outside = [f for f in c.loops if not f.kind.axis.startswith("block")]
        if outside or c.conditions or c.otherwise or c.inside or c.team is not None:
            names.fail("teams stand below loops over blocks and allocations alone")
        for what, given in (("channel", [x.name for x in s.channels]), ("team", [x.name for x in s.teams])):
            if len(set(given)) != len(given):
                names.fail(f"two {what}s have the same name")
        self.syncs = {channel.name: {} for channel in s.channels}
        for channel in s.channels:
            if channel.slots < 1:
                names.fail(f"channel {quoted(channel.name)} has {channel.slots} slots")
        for team in s.teams:
            here = names.at(f"team {quoted(team.name)}")
            if team.threads < 1 or team.registers < 0:
                here.fail(f"{team.threads} threads with {team.registers} registers are none")
            self.stmt(team.body, here, replace(c, team=team.name))
        for name, said in self.syncs.items():
            fill, take = (
                said.get("acquire", set()) | said.get("put", set()),
                said.get("get", set()) | said.get("release", set()),
            )
            if len(fill) != 1 or not take or fill & take:
                names.fail(f"channel {quoted(name)} is not filled by one team and taken from by others")

    def _sync(self, s: Sync, names: Names, c: _Context) -> None:
        if c.team is None or s.channel not in self.syncs:
            names.fail(f"there is no channel {quoted(s.channel)} here")
        own = [f for f in c.loops if not f.kind.axis.startswith("block")]
        if c.concurrent or any(f.kind.name == "thread" for f in own):
            names.fail(f"not all threads of the team come to {s.op} {quoted(s.channel)}")
        check_index(s.item, names, "item")
        self.syncs[s.channel].setdefault(s.op, set()).add(c.team or "")

    def _name(self, name: str, what: str, names: Names) -> None:
        if name in self.taken:
            names.fail(f"the name {quoted(name)} of a {what} is taken: names of loops and blocks are unique")
        self.taken.add(name)

    def _for(self, s: For, names: Names, c: _Context) -> None:
        here = names.at(f"loop {quoted(s.var)}")
        self._name(s.var, "loop", here)
        check_index(s.lo, here, "lower bound")
        check_index(s.hi, here, "upper bound")
        if s.step < 1:
            here.fail(f"step {s.step} is not positive")
        if s.kind.name not in _KINDS or (s.kind.name == "thread") != bool(s.kind.axis):
            here.fail(f"{s.kind!r} is no kind of loop: only a thread loop has an axis, and it must have one")
        if s.kind.name not in self.level.kinds:
            here.fail(f"the kind {s.kind} does not occur at the level {self.level.name!r}")
        for problem in (hint_problem(key, value) for key, value in s.hints):
            if problem:
                here.fail(problem)
        for name in sorted(nontemporal_hints(s)):
            if name in here.buffers and name not in self.writable:
                here.fail(f"{quoted(name)} is to be stored to past the caches, but is read only")
        concurrent = c.concurrent
        if s.kind.name in ("parallel", "vector"):
            concurrent = f"{s.kind} loop {quoted(s.var)}"
        inner = replace(c, loops=(*c.loops, s), concurrent=concurrent)
        self.stmt(s.body, here.with_vars((s.var,)), inner)

    def _block(self, s: Block, names: Names, c: _Context) -> None:
        here = names.at(f"block {quoted(s.name)}")
        self._name(s.name, "block", here)
        if not self.level.blocks:
            here.fail(f"a block at the level {self.level.name!r}")
        if s.init is not None and not self.level.inits:
            here.fail(f"an init at the level {self.level.name!r}")
        if len(s.iters) != len(s.bind):
            here.fail(f"{len(s.iters)} iterators are bound to {len(s.bind)} indices")
        for b in s.bind:
            check_index(b, here, "binding")
        check_pred(s.where, here)
        inner = _check_iters(s.iters, here)
        for part in (s.init, s.body):
            if part is not None:
                self.stmt(part, inner, _Context(inside=True, concurrent=f"block {quoted(s.name)}"))
        if not c.inside:
            self.seen.append((s, c))
            if not c.otherwise:
                _check_domain(self.func, s, c, here)

    def _leaf(self, s: Store | Exec, names: Names) -> None:
        if isinstance(s, Store):
            for w in s.writes:
                b = check_access(w.buffer, w.indices, names, "store to")
                check_expr(w.value, names)
                if w.value.dtype != b.dtype:
                    names.fail(
                        f"a value of type {w.value.dtype} is stored to {quoted(w.buffer)} of type {b.dtype}"
                    )
        else:
            for win in s.windows:
                b = check_access(win.buffer, win.offsets, names, "window of")
                if len(win.extents) != len(b.shape) or any(n < 1 for n in win.extents):
                    names.fail(f"window of {quoted(win.buffer)} has the extents {win.extents}")
                if win.axes and _spans(win) != win.extents:
                    names.fail(
                        f"the axes of a window of {quoted(win.buffer)} span {_spans(win)}, not its extents"
                    )
                if win.mode not in ("r", "w", "rw"):
                    names.fail(f"window of {quoted(win.buffer)} has the unknown mode {quoted(win.mode)}")
            for a in s.args:
                check_expr(a, names)
        for name, _ in stmt_writes(s):
            if name not in self.writable:
                names.fail(f"{quoted(name)} is written, but is an argument that is not among the outputs")


def _spans(w: Window) -> tuple[int, ...] | None:
    """The elements that the axes of a window span along each dimension; ``None`` for impossible axes."""
    out = [1] * len(w.extents)
    for a in w.axes:
        if not 0 <= a.dim < len(out) or a.count < 1 or a.step < 1:
            return None
        out[a.dim] += (a.count - 1) * a.step
    return tuple(out)


def _corner_values(params: Iterable[Param]) -> Iterator[dict[str, int]]:
    """All parameters at their least values, then at their greatest."""
    ps = list(params)
    yield {p.name: -(-p.lo // p.multiple_of) * p.multiple_of for p in ps}
    yield {p.name: p.hi // p.multiple_of * p.multiple_of for p in ps}


class _DataDependentError(Exception):
    """An index depends on data: its value is not known here."""


def _value(x: Index, env: Mapping[str, int]) -> int:
    return evaluate_index(x, env, _unknown)


def _unknown(e: Expr) -> int:
    raise _DataDependentError(str(e))


def _holds(p: Pred, env: Mapping[str, int]) -> bool:
    """Whether a predicate holds."""
    for cond in p:
        if cond.index is None:
            raise _DataDependentError(str(cond))
        value = _value(cond.index, env)
        if value < 0 or (cond.op == "eq" and value):
            return False
    return True


def _corners(loops: tuple[For, ...], env: dict[str, int]) -> Iterator[dict[str, int]]:
    """First and last iterations of a nest in all combinations."""
    if not loops:
        yield env
        return
    first, rest = loops[0], loops[1:]
    lo, hi = _value(first.lo, env), _value(first.hi, env)
    if lo >= hi:
        return
    last = lo + (hi - 1 - lo) // first.step * first.step
    for value in dict.fromkeys((last, lo)):
        yield from _corners(rest, {**env, first.var: value})


def _check_domain(func: LoopFunction, s: Block, c: _Context, names: Names) -> None:
    """No corner of the loop nest that passes the guards is bound outside of the iterators' domains."""
    conditions = (*c.conditions, *s.where)
    try:
        for params in _corner_values(func.params):
            if _holds(func.assumes, params):
                for env in itertools.islice(_corners(c.loops, params), _CORNERS):
                    if _holds(conditions, env):
                        _check_instance(s, env, params, names)
    except _DataDependentError:
        return  # nothing can be said here


def _check_instance(s: Block, env: Mapping[str, int], params: Mapping[str, int], names: Names) -> None:
    inner = dict(params)
    for it, b in zip(s.iters, s.bind, strict=True):
        value = _value(b, env)
        lo, hi = _value(it.lo, inner), _value(it.hi, inner)
        if not lo <= value < hi:
            at = ", ".join(f"{n}={v}" for n, v in env.items())
            names.fail(
                f"iterator {quoted(it.name)} is bound to {b} = {value} outside of its domain [{lo}, {hi}) "
                f"where {at or 'there are no loops'}"
            )
        inner[it.name] = value


def _check_coverage(func: LoopFunction, seen: list[tuple[Block, _Context]]) -> None:
    """The bindings of an output's blocks can reach both ends of every iterator's domain.

    Outputs whose contents count before keep what nobody writes.
    """
    whole = set(func.outputs) - set(func.inouts)
    stages: dict[str, list[tuple[Block, _Context]]] = {}
    for block, c in seen:
        if any(name in whole for name, _ in block.writes):
            stages.setdefault(block.stage, []).append((block, c))
    for stage, blocks in stages.items():
        iters = blocks[0][0].iters
        written = {name for b, _ in blocks for name, _ in b.writes}
        others = {name for b, _ in seen if b.stage != stage for name, _ in b.writes}
        if any(b.iters != iters for b, _ in blocks) or written & others:
            continue  # another stage may define what this one leaves out
        for n, it in enumerate(iters):
            if it.lo.vars or it.hi.vars:
                continue
            low = [prove_ge0(_lower(b.bind[n], c) - it.lo - 1, {}) for b, c in blocks]
            high = [prove_ge0(it.hi - 2 - _upper(b.bind[n], c), {}) for b, c in blocks]
            if all(low) or all(high):
                end = "start" if all(low) else "end"
                raise VerificationError(
                    f"no instance reaches the {end} of iterator {quoted(it.name)} over [{it.lo}, {it.hi})",
                    where=f"stage {quoted(stage)}",
                )


def _upper(x: Index, c: _Context) -> Index:
    """A bound over parameters, or a huge number where there is none."""
    found = upper(x, loop_env(c.loops))
    return Index(1 << 62) if found is None or found.vars else found


def _lower(x: Index, c: _Context) -> Index:
    return -_upper(-x, c)
