"""Programs and loop functions as text that :mod:`tilewright.ir.parser` reads back, equal in every field.

The syntax is Python's, so that any editor colours it; the meaning is the IR's own:

    function("matmul", outputs=[C])
    n = param(1, 1024, multiple_of=8)
    A = f32[n, 64]
    B = buffer(f32[64, 32], scope="const")
    C = f32[n, 32]
    for i in parallel(n):
        acc = alloc(f32[32], scope="register")
        ...
            with block("C", stage="matmul"):
                i = par(0, n, i)                 # iterator = kind(lo, hi, binding over the loop variables)
                k = red(0, 64, 16*ko + ki)
                where(63 - 16*ko - ki >= 0)
                with init:
                    C[i, j] = f32(0.0)
                C[i, j] = C[i, j] + A[i, k] * B[k, j]

A store of a large expression is preceded by assignments ``_0 = ...`` to its repeated parts. An ``alloc``
assignment holds for the rest of its suite (``with alloc(...) as name:`` where the suite goes on
without it); a name that is no plain identifier is written ``_["name"]``.
"""

from __future__ import annotations

import keyword
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from tilewright.ir.buffer import GLOBAL, Buffer
from tilewright.ir.dtypes import DTYPES, DType
from tilewright.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Load, OfIndex, Select, Unary
from tilewright.ir.index import Atom, FloorDiv, Index, MinMax, Mod, Opaque, Param, Var
from tilewright.ir.program import Program, Stage
from tilewright.ir.sharing import Numbering
from tilewright.ir.stmt import (
    Alloc,
    Barrier,
    Block,
    Condition,
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
    Team,
    Teams,
    Window,
)

MARK = "  # <-- here"
_INDENT = "    "
LARGE = 128
"""Nodes from which on the repeated parts of a store's values are written once: below, a line reads better."""

#: Symbols of binary operations and comparisons with Python's precedence of them; others are written as calls.
SYMBOLS: Mapping[str, tuple[str, int]] = MappingProxyType({
    "lt": ("<", 1), "le": ("<=", 1), "eq": ("==", 1), "ne": ("!=", 1), "gt": (">", 1), "ge": (">=", 1),
    "or": ("|", 2), "xor": ("^", 3), "and": ("&", 4), "shl": ("<<", 5), "shr": (">>", 5),
    "add": ("+", 6), "sub": ("-", 6), "mul": ("*", 7), "div": ("/", 7), "floordiv": ("//", 7),
    "mod": ("%", 7),
})  # fmt: skip
_UNARY, _ATOM = 8, 9


def print_name(name: str) -> str:
    """A name as it stands in the text: itself where Python reads it back unchanged, else quoted."""
    plain = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    return name if plain and name not in DTYPES and name != "_" else f"_[{_string(name)}]"


def _string(text: str) -> str:
    """A Python string literal in double quotes."""
    quoted = repr(text)
    return quoted if '"' in quoted else f'"{quoted[1:-1]}"'


class Printer:
    """Prints with the parameters and buffers that are in scope, which are then written by name alone."""

    def __init__(self, params: Iterable[Param] = (), buffers: Mapping[str, DType] | None = None) -> None:
        self.params = {p.name: p for p in params}
        self.buffers = dict(buffers or {})
        self.lines: list[str] = []
        self.depth = 0
        self.at: dict[str, int] = {}
        self.lets: dict[int, str] = {}

    # ---- indices ----

    def index(self, x: Index) -> str:
        """An index as a sum."""
        if not x.terms:
            return str(x.const)
        out = ""
        for atom, c in x.terms:
            text, tight = self._atom(atom)
            if abs(c) != 1:
                text = f"{abs(c)}*{text if tight else f'({text})'}"
            elif c < 0 and not out and not tight:
                text = f"({text})"
            sign = "-" if c < 0 else "+"
            out = f"{out} {sign} {text}" if out else (f"-{text}" if c < 0 else text)
        if x.const:
            out += f" {'-' if x.const < 0 else '+'} {abs(x.const)}"
        return out

    def _atom(self, atom: Atom) -> tuple[str, bool]:
        """Text, and whether it binds tighter than a product."""
        match atom:
            case Var(name):
                return (f"var({_string(name)})" if name in self.params else print_name(name)), True
            case Param():
                if self.params.get(atom.name) == atom:
                    return print_name(atom.name), True
                return f"param({_string(atom.name)}, {_param_fields(atom)})", True
            case FloorDiv(arg, d):
                return f"{self._divided(arg)}//{d}", False
            case Mod(arg, d):
                return f"{self._divided(arg)}%{d}", False
            case MinMax(op, args):
                return f"{op}({', '.join(map(self.index, args))})", True
            case Opaque(expr):
                return f"int({self.expr(expr)})", True

    def _divided(self, x: Index) -> str:
        single = x.const == 0 and len(x.terms) == 1 and x.terms[0][1] == 1
        if single and self._atom(x.terms[0][0])[1]:
            return self.index(x)
        return f"({self.index(x)})"

    def indices(self, xs: tuple[Index, ...]) -> str:
        """The inside of a subscript."""
        return ", ".join(map(self.index, xs)) if xs else "()"

    def condition(self, c: Condition) -> str:
        """One conjunct."""
        if c.expr is not None:
            return f"holds({self.expr(c.expr)})"
        assert c.index is not None
        return f"{self.index(c.index)} {'>=' if c.op == 'ge' else '=='} 0"

    def pred(self, p: Pred, joint: str) -> str:
        """All conjuncts."""
        return joint.join(map(self.condition, p))

    # ---- scalar expressions ----

    def expr(self, e: Expr, least: int = 0) -> str:
        """An expression, in parentheses where it binds looser than ``least``."""
        if self.lets and id(e) in self.lets:
            return self.lets[id(e)]
        text, strength = self._expr(e)
        return text if strength >= least else f"({text})"

    def _expr(self, e: Expr) -> tuple[str, int]:
        match e:
            case Const():
                return f"{e.dtype}({e.value!r})", _ATOM
            case OfIndex():
                return f"{e.dtype}[{self.index(e.index)}]", _ATOM
            case Load():
                if self.buffers.get(e.buffer) == e.dtype:
                    return f"{print_name(e.buffer)}[{self.indices(e.indices)}]", _ATOM
                args = [str(e.dtype), print_name(e.buffer), *map(self.index, e.indices)]
                return f"load({', '.join(args)})", _ATOM
            case Unary():
                if e.op in ("neg", "not"):
                    return f"{'-' if e.op == 'neg' else '~'}{self.expr(e.a, _UNARY)}", _UNARY
                return f"{e.op}({self.expr(e.a)})", _ATOM
            case Binary() | Compare():
                if e.op not in SYMBOLS:
                    return f"{e.op}({self.expr(e.a)}, {self.expr(e.b)})", _ATOM
                symbol, strength = SYMBOLS[e.op]
                # comparisons chain in Python, so neither side may be one
                left = self.expr(e.a, strength + (strength == 1))
                return f"{left} {symbol} {self.expr(e.b, strength + 1)}", strength
            case Select():
                return f"select({', '.join(map(self.expr, (e.cond, e.a, e.b)))})", _ATOM
            case Cast():
                mode = "" if e.mode == "wrap" else f", {_string(e.mode)}"
                return f"cast({self.expr(e.a)}, {e.dtype}{mode})", _ATOM
            case Call():
                return f"{e.fn}({', '.join(map(self.expr, e.args))})", _ATOM

    # ---- declarations ----

    def buffer(self, b: Buffer, call: str = "buffer") -> str:
        """The declaration of a buffer without its name; ``call`` is the word around it."""
        kind = f"{b.dtype}[{self.indices(b.shape)}]"
        more: list[str] = []
        if b.scope != GLOBAL:
            more.append(f"scope={_string(b.scope)}")
        if b.layout is not None:
            dims = ", ".join(map(print_name, b.layout.dims))
            exprs, shape = (
                ", ".join(map(self.index, b.layout.exprs)),
                ", ".join(map(self.index, b.layout.shape)),
            )
            more.append(f"layout=index_map([{dims}], [{exprs}], [{shape}])")
        if b.align != 64:
            more.append(f"align={b.align}")
        if b.alias is not None:
            more.append(f"alias={_string(b.alias)}")
        if b.halo is not None:
            more.append(f"halo=[{', '.join(f'({before}, {after})' for before, after in b.halo)}]")
        if not more and call == "buffer":
            return kind
        return f"{call}({', '.join([kind, *more])})"

    # ---- statements ----

    def line(self, text: str) -> None:
        """One more line at the present depth."""
        self.lines.append(_INDENT * self.depth + text)

    def suite(self, s: Stmt) -> None:
        """The statements of an indented suite."""
        self.depth += 1
        self.body(s)
        self.depth -= 1

    def body(self, s: Stmt) -> None:
        """A statement as a whole suite: a sequence of two or more is written line by line."""
        if isinstance(s, Seq) and len(s.stmts) != 1:
            self.sequence(s.stmts)
        else:
            self.sequence((s,))

    def sequence(self, stmts: tuple[Stmt, ...]) -> None:
        """Statements of one suite; an allocation at its end needs no suite of its own."""
        if not stmts:
            self.line("pass")
        for n, s in enumerate(stmts):
            if isinstance(s, Alloc) and n == len(stmts) - 1:
                self.line(f"{print_name(s.buffer.name)} = {self.buffer(s.buffer, 'alloc')}")
                with_buffer = self._scoped(s.buffer)
                self.body(s.body)
                self.buffers = with_buffer
            else:
                self.stmt(s)

    def _scoped(self, b: Buffer) -> dict[str, DType]:
        outer = self.buffers
        self.buffers = {**outer, b.name: b.dtype}
        return outer

    def stmt(self, s: Stmt) -> None:
        """One statement that stands for itself among others."""
        match s:
            case Seq():
                self.line("with seq:")
                self.depth += 1
                self.sequence(s.stmts)
                self.depth -= 1
            case If():
                self.line(f"if {self.pred(s.cond, ' and ') or 'always'}:")
                self.suite(s.then)
                if s.orelse is not None:
                    self.line("else:")
                    self.suite(s.orelse)
            case Alloc():
                self.line(f"with {self.buffer(s.buffer, 'alloc')} as {print_name(s.buffer.name)}:")
                outer = self._scoped(s.buffer)
                self.suite(s.body)
                self.buffers = outer
            case Barrier():
                self.line(f"barrier({_string(s.scope)})")
            case For():
                self._for(s)
            case Block():
                self._block(s)
            case Store():
                self._store(s)
            case Exec():
                parts = [_string(s.instr), *map(self._window, s.windows), *map(self.expr, s.args)]
                self.line(f"execute({', '.join(parts)})")
            case Teams():
                channels = ", ".join(f"channel({_string(c.name)}, {c.slots})" for c in s.channels)
                self.line(f"with teams({channels}):")
                self.depth += 1
                self.sequence(s.teams)
                self.depth -= 1
            case Team():
                registers = f", registers={s.registers}" if s.registers else ""
                self.line(f"with team({_string(s.name)}, {s.threads}{registers}):")
                self.suite(s.body)
            case Sync():
                self.line(f"{s.op}({_string(s.channel)}, {self.index(s.item)})")

    def _for(self, s: For) -> None:
        self.at[s.var] = len(self.lines)
        kind = "range" if s.kind.name == "serial" else s.kind.name
        args = [_string(s.kind.axis)] if s.kind.name == "thread" else []
        if s.lo.terms or s.lo.const:
            args.append(self.index(s.lo))
        args.append(self.index(s.hi))
        if s.step != 1:
            args.append(f"step={s.step}")
        if s.hints:
            hints = ", ".join(f"{_string(k)}: {_string(v)}" for k, v in s.hints)
            args.append(f"hints={{{hints}}}")
        self.line(f"for {print_name(s.var)} in {kind}({', '.join(args)}):")
        self.suite(s.body)

    def _iter(self, it: Iter, bind: Index | None) -> None:
        args = [it.lo, it.hi] if bind is None else [it.lo, it.hi, bind]
        self.line(f"{print_name(it.name)} = {it.kind}({', '.join(map(self.index, args))})")

    def _block(self, s: Block) -> None:
        self.at[s.name] = len(self.lines)
        stage = "" if s.stage == s.name else f", stage={_string(s.stage)}"
        self.line(f"with block({_string(s.name)}{stage}):")
        self.depth += 1
        for it, b in zip(s.iters, s.bind, strict=True):
            self._iter(it, b)
        if s.where:
            self.line(f"where({self.pred(s.where, ', ')})")
        self._init_and_body(s.init, s.body)
        self.depth -= 1

    def _init_and_body(self, init: Stmt | None, body: Stmt) -> None:
        if init is not None:
            self.line("with init:")
            self.suite(init)
        self.body(body)

    def _store(self, s: Store) -> None:
        if not s.writes:
            self.line("store()")
            return
        self._let([w.value for w in s.writes])
        targets = ", ".join(f"{print_name(w.buffer)}[{self.indices(w.indices)}]" for w in s.writes)
        self.line(f"{targets} = {', '.join(self.expr(w.value) for w in s.writes)}")
        self.lets = {}

    def _let(self, values: list[Expr]) -> None:
        """Write the repeated parts of large values on lines of their own; equal values give equal lines."""
        numbers = Numbering(values)
        if sum(numbers.size[n] for n in numbers.roots) < LARGE:
            return
        places: dict[int, list[int]] = {}
        for at, n in numbers.number_of.items():
            places.setdefault(n, []).append(at)
        count = 0
        for n, node in enumerate(numbers.nodes):
            if numbers.uses[n] > 1 and numbers.size[n] > 1:
                self.line(f"_{count} = {self.expr(node)}")
                self.lets.update(dict.fromkeys(places[n], f"_{count}"))
                count += 1

    def _window(self, w: Window) -> str:
        parts = [f"{print_name(w.buffer)}[{self.indices(w.offsets)}]", *map(str, w.extents)]
        if w.axes:
            axes = "".join(f"({a.dim}, {a.count}, {a.step}), " for a in w.axes)
            parts.append(f"axes=({axes.rstrip()})")
        return f"window({_string(w.mode)}, {', '.join(parts)})"

    # ---- whole things ----

    def head(self, params: tuple[Param, ...], assumes: Pred, buffers: Iterable[tuple[str, Buffer]]) -> None:
        """Declarations of parameters and buffers, with the word around each buffer, and the assumptions."""
        for p in params:
            self.line(f"{print_name(p.name)} = param({_param_fields(p)})")
        for call, b in buffers:
            self.line(f"{print_name(b.name)} = {self.buffer(b, call)}")
            self.buffers[b.name] = b.dtype
        for c in assumes:
            self.line(f"assume({self.condition(c)})")

    def function(self, f: LoopFunction) -> None:
        """A loop function."""
        inouts = f", inouts=[{', '.join(map(print_name, f.inouts))}]" if f.inouts else ""
        outputs = ", ".join(map(print_name, f.outputs))
        self.line(f"function({_string(f.name)}, outputs=[{outputs}]{inouts})")
        self.head(f.params, f.assumes, (("buffer", b) for b in f.buffers))
        self.body(f.body)

    def program(self, p: Program) -> None:
        """A program."""
        self.line(f"program({_string(p.name)})")
        groups = (("input", p.inputs), ("output", p.outputs), ("temp", p.temps))
        self.head(p.params, p.assumes, ((call, b) for call, group in groups for b in group))
        for stage in p.stages:
            self.stage(stage)

    def stage(self, s: Stage) -> None:
        """A stage of a program."""
        self.at[s.name] = len(self.lines)
        self.line(f"with stage({_string(s.name)}):")
        self.depth += 1
        for it in s.iters:
            self._iter(it, None)
        self._init_and_body(s.init, s.body)
        self.depth -= 1

    def text(self, mark: Collection[str] = ()) -> str:
        """All lines; those of the loops, blocks or stages named by ``mark`` end with an arrow."""
        lines = self.lines.copy()
        for name in mark:
            if name in self.at:
                lines[self.at[name]] += MARK
        return "\n".join(lines) + "\n"


def _param_fields(p: Param) -> str:
    multiple = "" if p.multiple_of == 1 else f", multiple_of={p.multiple_of}"
    return f"{p.lo}, {p.hi}{multiple}"


def print_function(func: LoopFunction, mark: str | Collection[str] | None = None) -> str:
    """A loop function as text that parses back to an equal one; ``mark`` names what to point at."""
    printer = Printer(func.params)
    printer.function(func)
    return printer.text((mark,) if isinstance(mark, str) else mark or ())


def function_lines(func: LoopFunction) -> tuple[str, dict[str, int]]:
    """The text of a loop function, and the line (from 0) of every loop and block in it."""
    printer = Printer(func.params)
    printer.function(func)
    return printer.text(), printer.at


def print_program(program: Program, mark: str | Collection[str] | None = None) -> str:
    """A program as text that parses back to an equal one (source locations are left out)."""
    printer = Printer(program.params)
    printer.program(program)
    return printer.text((mark,) if isinstance(mark, str) else mark or ())


def print_source(source: Program | LoopFunction) -> str:
    """A program or a loop function as text."""
    return print_program(source) if isinstance(source, Program) else print_function(source)


def print_stmt(stmt: Stmt, buffers: Iterable[Buffer] = (), params: Iterable[Param] = ()) -> str:
    """A statement as it stands in a function's text; loads of buffers not given state their type."""
    printer = Printer(params, {b.name: b.dtype for b in buffers})
    printer.body(stmt)
    return printer.text()


def print_expr(e: Expr, buffers: Iterable[Buffer] = (), params: Iterable[Param] = ()) -> str:
    """A scalar expression as it stands in a function's text."""
    return Printer(params, {b.name: b.dtype for b in buffers}).expr(e)


def print_index(x: Index, params: Iterable[Param] = ()) -> str:
    """An index as it stands in a function's text; parameters not given are written in full."""
    return Printer(params).index(x)
