"""Reads the text that :mod:`tilewright.ir.printer` writes (its head shows the syntax).

The text is untrusted: Python's ``ast`` parses it, nothing is evaluated, and anything unknown is a ParseError
with line and column. Names are resolved here (parameters, types of buffers); whether the result is well
formed is :func:`tilewright.ir.verify.verify`'s question.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from tilewright.ir.buffer import GLOBAL, Buffer, IndexMap
from tilewright.ir.index import Index
from tilewright.ir.parser_expr import (
    ANY,
    ExprParser,
    arguments,
    called,
    failure,
    integer,
    items,
    keyword,
    name_of,
    name_or_none,
    string_of,
)
from tilewright.ir.program import Program, Stage
from tilewright.ir.stmt import (
    Access,
    Alloc,
    Along,
    Barrier,
    Block,
    Channel,
    Condition,
    Exec,
    For,
    If,
    Iter,
    IterKind,
    LoopFunction,
    LoopKind,
    LoopKindName,
    Pred,
    Seq,
    Stmt,
    Store,
    Sync,
    Team,
    Teams,
    Window,
    WindowMode,
)
from tilewright.support import ParseError, quoted

MAX_TEXT = 64 << 20
"""Characters of the longest text that is read: far above any real program, well below what fills memory."""

_ITER_KINDS: Mapping[str, IterKind] = MappingProxyType({"par": "par", "red": "red", "ord": "ord"})
_LOOP_KINDS: Mapping[str, LoopKindName] = MappingProxyType(
    {"range": "serial", "parallel": "parallel", "vector": "vector", "unroll": "unroll", "thread": "thread"}
)
_WINDOW_MODES: Mapping[str, WindowMode] = MappingProxyType({"r": "r", "w": "w", "rw": "rw"})

_T = TypeVar("_T")


def parse_function(text: str) -> LoopFunction:
    """The loop function that a text describes; ParseError, with line and column, where it describes none."""
    return _parse(text, lambda p, body: p.function(body))


def parse_program(text: str) -> Program:
    """The program that a text describes; ParseError, with line and column, where it describes none."""
    return _parse(text, lambda p, body: p.program(body))


def parse_source(text: str) -> Program | LoopFunction:
    """The program or the loop function that a text describes; ParseError where it describes neither."""
    return parse_function(text) if text.startswith("function(") else parse_program(text)


def _parse(text: str, read: Callable[[_Parser, list[ast.stmt]], _T]) -> _T:
    if len(text) > MAX_TEXT:
        raise ParseError(f"the text has {len(text)} characters, more than {MAX_TEXT}")
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        place = f"line {error.lineno}, column {error.offset}" if error.lineno else None
        raise ParseError(f"not a program's text: {error.msg}", where=place) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ParseError(f"not a program's text: {error}") from None
    try:
        return read(_Parser(), tree.body)
    except RecursionError:
        raise ParseError("the program is nested too deeply") from None


class _Parser(ExprParser):
    # ---- declarations ----

    def buffer(self, name: str, node: ast.expr) -> Buffer:
        """``f32[n, 4]``, or a call with that and keywords."""
        if isinstance(node, ast.Subscript):
            return Buffer(name, self.indices(node.slice), self.dtype(node.value))
        assert isinstance(node, ast.Call)  # the callers know declarations by being one of the two
        kind = arguments(node, 1, 1, ("scope", "layout", "align", "alias", "halo"))[0]
        if not isinstance(kind, ast.Subscript):
            raise failure(kind, "expected a type and shape such as f32[n, 4]")
        scope, layout, align, alias, halo = (
            keyword(node, k) for k in ("scope", "layout", "align", "alias", "halo")
        )
        return Buffer(
            name,
            self.indices(kind.slice),
            self.dtype(kind.value),
            GLOBAL if scope is None else string_of(scope),
            None if layout is None else self._layout(layout),
            64 if align is None else integer(align),
            None if alias is None else string_of(alias),
            None if halo is None else tuple(map(self._pair, items(halo))),
        )

    def _pair(self, node: ast.expr) -> tuple[int, int]:
        if not isinstance(node, ast.Tuple) or len(node.elts) != 2:
            raise failure(node, "expected a pair (before, after)")
        return integer(node.elts[0]), integer(node.elts[1])

    def _layout(self, node: ast.expr) -> IndexMap:
        if not isinstance(node, ast.Call) or called(node) != "index_map":
            raise failure(node, "expected index_map([dims], [physical indices], [physical shape])")
        dims, exprs, shape = map(items, arguments(node, 3))
        return IndexMap(
            tuple(map(name_of, dims)), tuple(map(self.index, exprs)), tuple(map(self.index, shape))
        )

    def head(self, body: list[ast.stmt], calls: Sequence[str]) -> tuple[int, Pred, list[tuple[str, Buffer]]]:
        """Declarations from the second statement on: where they end, the assumptions, and the buffers."""
        assumes: list[Condition] = []
        buffers: list[tuple[str, Buffer]] = []
        n = 1
        for n, s in enumerate(body[1:], 1):  # noqa: B007  the position of the first other statement is wanted
            if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and called(s.value) == "assume":
                assumes.append(self.condition(arguments(s.value, 1)[0]))
                continue
            if not isinstance(s, ast.Assign) or len(s.targets) != 1:
                break
            name, call = name_or_none(s.targets[0]), called(s.value)
            if name is None:
                break
            if isinstance(s.value, ast.Call) and call == "param":
                bounds = arguments(s.value, 2, 2, ("multiple_of",))
                self.params[name] = self.param(s.value, name, bounds)
            elif call in calls or (isinstance(s.value, ast.Subscript) and "buffer" in calls):
                b = self.buffer(name, s.value)
                self.buffers[name] = b.dtype
                buffers.append((call or "buffer", b))
            else:
                break
        else:
            n = len(body)
        return n, tuple(assumes), buffers

    # ---- statements ----

    def suite(self, body: list[ast.stmt]) -> Stmt:
        """A suite as one statement."""
        stmts = self.sequence(body)
        return stmts[0] if len(stmts) == 1 else Seq(tuple(stmts))

    def sequence(self, body: list[ast.stmt]) -> list[Stmt]:
        out: list[Stmt] = []
        for n, s in enumerate(body):
            if isinstance(s, ast.Pass):
                continue
            if isinstance(s, ast.Assign) and len(s.targets) == 1 and called(s.value) == "alloc":
                name = name_of(s.targets[0])
                out.append(self._alloc(name, s.value, body[n + 1 :]))
                break
            if isinstance(s, ast.Assign) and (let := self._let_name(s)) is not None:
                self.lets[let] = self.expr(s.value)
                continue
            out.append(self.stmt(s))
        return out

    def _let_name(self, s: ast.Assign) -> str | None:
        """The name of a repeated part of an expression, ``_0`` and so on, where one is assigned."""
        (target, *others) = s.targets
        if others or not isinstance(target, ast.Name):
            return None
        return target.id if target.id.startswith("_") and target.id[1:].isdecimal() else None

    def _alloc(self, name: str, call: ast.expr, body: list[ast.stmt]) -> Alloc:
        b, outer = self.buffer(name, call), self.buffers
        self.buffers = {**outer, name: b.dtype}
        inner = self.suite(body)
        self.buffers = outer
        return Alloc(b, inner)

    def stmt(self, s: ast.stmt) -> Stmt:
        match s:
            case ast.For():
                return self._for(s)
            case ast.If():
                orelse = self.suite(s.orelse) if s.orelse else None
                return If(self.pred(s.test), self.suite(s.body), orelse)
            case ast.With() if len(s.items) == 1:
                return self._with(s, s.items[0])
            case ast.Assign() if len(s.targets) == 1:
                return self._store(s)
            case ast.Expr(value=ast.Call() as call):
                return self._call(call)
            case _:
                raise failure(s, "expected a loop, if, with, assignment, barrier or execute")

    def _for(self, s: ast.For) -> For:
        kind = called(s.iter)
        if s.orelse or not isinstance(s.iter, ast.Call) or kind is None or kind not in _LOOP_KINDS:
            raise failure(s.iter, f"expected a loop over one of {', '.join(_LOOP_KINDS)}")
        threads = kind == "thread"
        args = arguments(s.iter, 1 + threads, 2 + threads, ("step", "hints"))
        axis = string_of(args[0]) if threads else ""
        bounds = [self.index(a) for a in args[threads:]]
        step, hints = keyword(s.iter, "step"), keyword(s.iter, "hints")
        return For(
            name_of(s.target),
            bounds[0] if len(bounds) == 2 else Index(0),
            bounds[-1],
            self.suite(s.body),
            LoopKind(_LOOP_KINDS[kind], axis),
            1 if step is None else integer(step),
            () if hints is None else self._hints(hints),
        )

    def _hints(self, node: ast.expr) -> tuple[tuple[str, str], ...]:
        if not isinstance(node, ast.Dict):
            raise failure(node, 'expected hints such as {"outline": ""}')
        return tuple(
            (string_of(k or node), string_of(v)) for k, v in zip(node.keys, node.values, strict=True)
        )

    def _with(self, s: ast.With, item: ast.withitem) -> Stmt:
        call = item.context_expr
        if isinstance(call, ast.Name) and call.id == "seq":
            return Seq(tuple(self.sequence(s.body)))
        match called(call):
            case "alloc" if item.optional_vars is not None:
                return self._alloc(name_of(item.optional_vars), call, s.body)
            case "block":
                assert isinstance(call, ast.Call)
                return self._block(call, s.body)
            case "teams":
                assert isinstance(call, ast.Call)
                channels = tuple(map(self._channel, arguments(call, 0, ANY)))
                return Teams(channels, tuple(map(self._team, s.body)))
            case _:
                raise failure(call, "expected block(...), alloc(...) as name, teams(...), or seq")

    def _channel(self, node: ast.expr) -> Channel:
        if called(node) != "channel" or not isinstance(node, ast.Call):
            raise failure(node, 'expected a channel such as channel("ring", 4)')
        name, slots = arguments(node, 2)
        return Channel(string_of(name), integer(slots))

    def _team(self, s: ast.stmt) -> Team:
        call = s.items[0].context_expr if isinstance(s, ast.With) and len(s.items) == 1 else None
        if not isinstance(s, ast.With) or not isinstance(call, ast.Call) or called(call) != "team":
            raise failure(s, 'expected with team("name", threads):')
        name, threads = arguments(call, 2, 2, ("registers",))
        registers = keyword(call, "registers")
        return Team(
            string_of(name),
            integer(threads),
            self.suite(s.body),
            0 if registers is None else integer(registers),
        )

    def _iters(self, body: list[ast.stmt], bound: bool) -> tuple[list[Iter], list[Index], int]:
        iters: list[Iter] = []
        binds: list[Index] = []
        for s in body:
            if not isinstance(s, ast.Assign) or not isinstance(s.value, ast.Call) or len(s.targets) != 1:
                break
            kind = called(s.value)
            name = name_or_none(s.targets[0])
            if kind is None or kind not in _ITER_KINDS or name is None:
                break
            bounds = [self.index(a) for a in arguments(s.value, 2 + bound)]
            iters.append(Iter(name, bounds[0], bounds[1], _ITER_KINDS[kind]))
            binds.extend(bounds[2:])
        return iters, binds, len(iters)

    def _init_and_body(self, body: list[ast.stmt]) -> tuple[Stmt | None, Stmt]:
        init: Stmt | None = None
        if body and isinstance(body[0], ast.With) and len(body[0].items) == 1:
            what = body[0].items[0].context_expr
            if isinstance(what, ast.Name) and what.id == "init":
                init, body = self.suite(body[0].body), body[1:]
        return init, self.suite(body)

    def _block(self, call: ast.Call, body: list[ast.stmt]) -> Block:
        name = string_of(arguments(call, 1, 1, ("stage",))[0])
        stage = keyword(call, "stage")
        iters, binds, n = self._iters(body, True)
        where: Pred = ()
        if n < len(body):
            s = body[n]
            if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and called(s.value) == "where":
                where = tuple(map(self.condition, arguments(s.value, 1, ANY)))
                n += 1
        init, inner = self._init_and_body(body[n:])
        return Block(
            name, name if stage is None else string_of(stage), tuple(iters), tuple(binds), inner, init, where
        )

    def _store(self, s: ast.Assign) -> Store:
        (target,) = s.targets
        targets, values = [target], [s.value]
        if isinstance(target, ast.Tuple):
            targets = target.elts
            values = s.value.elts if isinstance(s.value, ast.Tuple) else values
            if len(values) != len(targets):
                raise failure(s, f"{len(targets)} targets need as many values")
        writes: list[Access] = []
        for t, v in zip(targets, values, strict=True):
            if not isinstance(t, ast.Subscript):
                raise failure(t, "expected an element such as C[i, j] on the left of =")
            writes.append(Access(name_of(t.value), self.indices(t.slice), self.expr(v)))
        return Store(tuple(writes))

    def _call(self, call: ast.Call) -> Stmt:
        match called(call):
            case "barrier":
                return Barrier(string_of(arguments(call, 1)[0]))
            case "acquire" | "put" | "get" | "release" as op:
                channel, item = arguments(call, 2)
                return Sync(op, string_of(channel), self.index(item))
            case "store":
                arguments(call, 0)
                return Store(())
            case "execute":
                args = arguments(call, 1, ANY)
                n = 1
                while n < len(args) and called(args[n]) == "window":
                    n += 1
                return Exec(
                    string_of(args[0]), tuple(map(self._window, args[1:n])), tuple(map(self.expr, args[n:]))
                )
            case name:
                raise failure(call, f"{quoted(name or '?')} is no statement")

    def _window(self, node: ast.expr) -> Window:
        assert isinstance(node, ast.Call)
        args = arguments(node, 2, ANY, ("axes",))
        mode = _WINDOW_MODES.get(string_of(args[0]))
        if mode is None:
            raise failure(args[0], 'the mode of a window is "r", "w" or "rw"')
        if not isinstance(args[1], ast.Subscript):
            raise failure(args[1], "expected the first element of the window such as A[i, 0]")
        name, offsets = name_of(args[1].value), self.indices(args[1].slice)
        axes = keyword(node, "axes")
        found = () if axes is None else tuple(_along(a) for a in _elements(axes, 0))
        return Window(name, offsets, tuple(map(integer, args[2:])), mode, found)

    # ---- whole things ----

    def _title(self, body: list[ast.stmt], word: str, keywords: Sequence[str]) -> ast.Call:
        first = body[0] if body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Call) and called(first.value) == word:
            arguments(first.value, 1, 1, keywords)
            return first.value
        raise failure(first or ast.Pass(lineno=1, col_offset=0), f'the text must begin with {word}("name")')

    def function(self, body: list[ast.stmt]) -> LoopFunction:
        title = self._title(body, "function", ("outputs", "inouts"))
        outputs, inouts = keyword(title, "outputs"), keyword(title, "inouts")
        n, assumes, buffers = self.head(body, ("buffer",))
        return LoopFunction(
            string_of(title.args[0]),
            tuple(self.params.values()),
            tuple(b for _, b in buffers),
            () if outputs is None else tuple(map(name_of, items(outputs))),
            self.suite(body[n:]),
            assumes,
            () if inouts is None else tuple(map(name_of, items(inouts))),
        )

    def program(self, body: list[ast.stmt]) -> Program:
        title = self._title(body, "program", ())
        n, assumes, buffers = self.head(body, ("input", "output", "temp"))
        stages = [self._stage(s) for s in body[n:]]
        inputs, outputs, temps = (
            tuple(b for call, b in buffers if call == kind) for kind in ("input", "output", "temp")
        )
        params = tuple(self.params.values())
        return Program(string_of(title.args[0]), params, inputs, outputs, temps, tuple(stages), assumes)

    def _stage(self, s: ast.stmt) -> Stage:
        call = s.items[0].context_expr if isinstance(s, ast.With) and len(s.items) == 1 else None
        if not isinstance(s, ast.With) or not isinstance(call, ast.Call) or called(call) != "stage":
            raise failure(s, 'expected with stage("name"):')
        name = string_of(arguments(call, 1, 1)[0])
        iters, _, n = self._iters(s.body, False)
        init, inner = self._init_and_body(s.body[n:])
        return Stage(name, tuple(iters), inner, init)


def _along(node: ast.expr) -> Along:
    """An axis of a window: dimension, count and step."""
    return Along(*map(integer, _elements(node, 3)))


def _elements(node: ast.expr, count: int) -> list[ast.expr]:
    """The elements of a tuple, ``count`` of them if that is not 0."""
    if not isinstance(node, ast.Tuple) or (count and len(node.elts) != count):
        raise failure(
            node, "expected axes such as ((0, 16, 1), (2, 32, 1)): dimension, count and step of each"
        )
    return node.elts
