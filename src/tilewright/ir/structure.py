"""Equality and hashing up to renaming: what two functions have in common that differ in names alone.

Everything is renamed in program order: parameters ``p0``, arguments ``a0``, allocations ``t0``, loops ``l0``,
blocks ``b0``, stages ``s0``, iterators ``v0`` and layout dimensions ``d0`` (per block and buffer), alias
groups ``g0``, teams ``m0``, channels ``c0``. Names of instructions, scopes, hardware axes and hints carry
meaning and stay; buffers that hints name are renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import overload

from tilewright.ir.buffer import Buffer, IndexMap
from tilewright.ir.expr import Expr, Load, map_expr, map_indices
from tilewright.ir.hints import renamed_hint
from tilewright.ir.index import (
    FloorDiv,
    Index,
    MinMax,
    Mod,
    Opaque,
    Param,
    Var,
    floordiv,
    imax,
    imin,
    index,
    mod,
    var,
)
from tilewright.ir.printer import print_source
from tilewright.ir.program import Program, Stage
from tilewright.ir.rewrite import map_accesses, map_pred
from tilewright.ir.stmt import (
    Access,
    Alloc,
    Block,
    Exec,
    For,
    If,
    Iter,
    LoopFunction,
    Pred,
    Seq,
    Stmt,
    Store,
    Sync,
    Teams,
)
from tilewright.support import digest_text


def structurally_equal(a: LoopFunction | Program, b: LoopFunction | Program) -> bool:
    """Whether two functions (or two programs) are equal but for names, source locations and roles."""
    if a is b:
        return True
    # compared as texts, which state once what expressions share
    return type(a) is type(b) and _canonical_text(a) == _canonical_text(b)


def structural_hash(f: LoopFunction | Program) -> str:
    """A digest that is the same for structurally equal functions or programs, in every process."""
    return digest_text(_canonical_text(f))


def _canonical_text(f: LoopFunction | Program) -> str:
    return print_source(canonical(f))


@overload
def canonical(f: LoopFunction) -> LoopFunction: ...
@overload
def canonical(f: Program) -> Program: ...
def canonical(f: LoopFunction | Program) -> LoopFunction | Program:
    """A function or a program with canonical names: structurally equal ones become equal."""
    return canonical_program(f) if isinstance(f, Program) else canonical_function(f)


def canonical_function(func: LoopFunction) -> LoopFunction:
    """The function with canonical names: structurally equal ones become equal."""
    r = _Renamer(func.params)
    buffers = tuple(r.declare(b, "a", {}) for b in func.buffers)
    return LoopFunction(
        "f",
        tuple(r.params.values()),
        buffers,
        tuple(r.buffers[name] for name in func.outputs),
        r.stmt(func.body, {}),
        r.pred(func.assumes, {}),
        tuple(r.buffers[name] for name in func.inouts),
    )


def canonical_program(program: Program) -> Program:
    """The program with canonical names, without roles and source locations."""
    r = _Renamer(program.params)
    inputs, outputs, temps = (
        tuple(r.declare(b, prefix, {}) for b in group)
        for prefix, group in (("a", program.inputs), ("a", program.outputs), ("t", program.temps))
    )
    stages = tuple(r.stage(s) for s in program.stages)
    return Program("p", tuple(r.params.values()), inputs, outputs, temps, stages, r.pred(program.assumes, {}))


class _Renamer:
    """Names handed out so far. ``names`` arguments map the variables in scope."""

    def __init__(self, params: tuple[Param, ...]) -> None:
        self.params = {p.name: replace(p, name=f"p{n}") for n, p in enumerate(params)}
        self.buffers: dict[str, str] = {}
        self.stages: dict[str, str] = {}
        self.groups: dict[str, str] = {}
        self.channels: dict[str, str] = {}
        self.counts: dict[str, int] = {}

    def new(self, prefix: str) -> str:
        n = self.counts.get(prefix, 0)
        self.counts[prefix] = n + 1
        return f"{prefix}{n}"

    # ---- parts ----

    def index(self, x: Index, names: Mapping[str, str]) -> Index:
        if not x.terms:
            return x
        out = Index(x.const)
        for atom, c in x.terms:
            match atom:
                case Var(name):
                    new = var(names.get(name, name))
                case Param():
                    new = index(self.params.get(atom.name, atom))
                case FloorDiv(arg, d):
                    new = floordiv(self.index(arg, names), d)
                case Mod(arg, d):
                    new = mod(self.index(arg, names), d)
                case MinMax(op, args):
                    new = (imin if op == "min" else imax)(*(self.index(a, names) for a in args))
                case Opaque(e):
                    new = index(Opaque(self.expr(e, names)))
            out = out + new * c
        return out

    def indices(self, xs: tuple[Index, ...], names: Mapping[str, str]) -> tuple[Index, ...]:
        return tuple(self.index(x, names) for x in xs)

    def expr(self, e: Expr, names: Mapping[str, str]) -> Expr:
        e = map_indices(e, lambda x: self.index(x, names))
        return map_expr(e, self._load)

    def _load(self, e: Expr) -> Expr:
        if not isinstance(e, Load):
            return e
        return Load(self.buffers.get(e.buffer, e.buffer), e.indices, e.dtype)

    def pred(self, p: Pred, names: Mapping[str, str]) -> Pred:
        return map_pred(p, lambda x: self.index(x, names), lambda e: self.expr(e, names))

    def declare(self, b: Buffer, prefix: str, names: Mapping[str, str]) -> Buffer:
        """The declaration under its new name, which holds from here on."""
        layout = b.layout
        if layout is not None:
            dims = {d: f"d{n}" for n, d in enumerate(layout.dims)}
            exprs = self.indices(layout.exprs, {**names, **dims})
            layout = IndexMap(tuple(dims.values()), exprs, self.indices(layout.shape, names))
        alias = b.alias
        if alias is not None:
            alias = self.groups.setdefault(alias, f"g{len(self.groups)}")
        name = self.buffers[b.name] = self.new(prefix)
        return replace(b, name=name, shape=self.indices(b.shape, names), layout=layout, alias=alias)

    def iters(self, iters: tuple[Iter, ...]) -> tuple[tuple[Iter, ...], dict[str, str]]:
        names: dict[str, str] = {}
        out: list[Iter] = []
        for n, it in enumerate(iters):
            out.append(Iter(f"v{n}", self.index(it.lo, names), self.index(it.hi, names), it.kind))
            names[it.name] = f"v{n}"
        return tuple(out), names

    def stage(self, s: Stage) -> Stage:
        iters, names = self.iters(s.iters)
        init = None if s.init is None else self.stmt(s.init, names)
        return Stage(self.new("s"), iters, self.stmt(s.body, names), init)

    # ---- statements ----

    def stmt(self, s: Stmt, names: Mapping[str, str]) -> Stmt:
        match s:
            case Seq():
                return Seq(tuple(self.stmt(k, names) for k in s.stmts))
            case If():
                orelse = None if s.orelse is None else self.stmt(s.orelse, names)
                return If(self.pred(s.cond, names), self.stmt(s.then, names), orelse)
            case Alloc():
                outer = dict(self.buffers)
                buffer = self.declare(s.buffer, "t", names)
                body = self.stmt(s.body, names)
                self.buffers = outer
                return Alloc(buffer, body)
            case For():
                lo, hi = self.index(s.lo, names), self.index(s.hi, names)
                new = self.new("l")
                hints = tuple((key, renamed_hint(key, value, self.buffers)) for key, value in s.hints)
                body = self.stmt(s.body, {**names, s.var: new})
                return replace(s, var=new, lo=lo, hi=hi, hints=hints, body=body)
            case Block():
                return self._block(s, names)
            case Store() | Exec():
                return self._leaf(s, names)
            case Teams():
                self.channels = {c.name: self.new("c") for c in s.channels}
                channels = tuple(replace(c, name=self.channels[c.name]) for c in s.channels)
                teams = [replace(t, name=self.new("m"), body=self.stmt(t.body, names)) for t in s.teams]
                return Teams(channels, tuple(teams))
            case Sync():
                return Sync(s.op, self.channels.get(s.channel, s.channel), self.index(s.item, names))
            case _:
                return s

    def _block(self, s: Block, names: Mapping[str, str]) -> Block:
        name = self.new("b")
        stage = self.stages.setdefault(s.stage, f"s{len(self.stages)}")
        bind, where = self.indices(s.bind, names), self.pred(s.where, names)
        iters, inner = self.iters(s.iters)
        init = None if s.init is None else self.stmt(s.init, inner)
        return Block(name, stage, iters, bind, self.stmt(s.body, inner), init, where)

    def _leaf(self, s: Store | Exec, names: Mapping[str, str]) -> Stmt:
        new = map_accesses(s, lambda x: self.index(x, names), lambda e: self.expr(e, names))
        known = self.buffers
        if isinstance(new, Store):
            return Store(tuple(Access(known.get(w.buffer, w.buffer), w.indices, w.value) for w in new.writes))
        assert isinstance(new, Exec)
        windows = tuple(replace(w, buffer=known.get(w.buffer, w.buffer)) for w in new.windows)
        return Exec(new.instr, windows, new.args)
