"""The assembler: instruction streams as text, and back. ``stream.py`` shows the text.

The text is untrusted: Python's ``ast`` parses it, nothing is evaluated, and what is unknown is a ParseError
with its line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Final

from tilewright.ir import DTYPES, DType, Index, Param, floordiv, imax, imin, mod, var
from tilewright.mapping.system.stream import (
    Box,
    Call,
    Item,
    Move,
    Post,
    Ref,
    Region,
    Repeat,
    StreamProgram,
    StreamTensor,
    Wait,
)
from tilewright.support import ParseError, quoted

MAX_TEXT: Final = 64 << 20
"""Characters of the longest text that is read."""


def print_streams(program: StreamProgram) -> str:
    """The text of a stream program, which :func:`parse_streams` reads back, equal in every field."""
    lines = [f"machine({_string(program.machine)}, {_string(program.fingerprint)})"]
    for p in program.params:
        lines.append(f"{p.name} = param({p.lo}, {p.hi}, {p.multiple_of})")
    for t in program.tensors:
        flags = "".join(f", {f}=True" for f in ("output", "temp", "given") if getattr(t, f))
        lines.append(f"{t.name} = tensor({t.dtype}[{_list(map(_index, t.shape))}]{flags})")
    for name, items in program.streams.items():
        lines.append(f"with stream({_string(name)}):")
        _print_items(items, 1, lines)
    return "\n".join(lines) + "\n"


def _string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _list(parts: Iterable[str]) -> str:
    """What stands between brackets: Python has no empty subscripts."""
    return ", ".join(parts) or "()"


def _index(x: Index) -> str:
    return str(x)


def _print_items(items: tuple[Item, ...], depth: int, lines: list[str]) -> None:
    pad = "    " * depth
    if not items:
        lines.append(f"{pad}pass")
    for item in items:
        match item:
            case Move():
                lines.append(f"{pad}move({_string(item.mover)}, {_ref(item.source)}, {_ref(item.target)})")
            case Call():
                sizes = ", ".join(f"{n}={v}" for n, v in item.sizes)
                operands = "".join(f", {n}={_ref(r)}" for n, r in item.operands)
                lines.append(
                    f"{pad}call({_string(item.unit)}, {_string(item.instruction)}, dict({sizes}){operands})"
                )
            case Repeat():
                lines.append(f"{pad}for {item.var} in range({_index(item.lo)}, {_index(item.hi)}):")
                _print_items(item.body, depth + 1, lines)
            case Post() | Wait():
                verb = "post" if isinstance(item, Post) else "wait"
                lines.append(f"{pad}{verb}({_string(item.event)})")


def _ref(ref: Ref) -> str:
    if isinstance(ref, Region):
        shape = _list(map(str, ref.shape))
        return f"at({_string(ref.memory)}, {_index(ref.offset)}, {ref.dtype}[{shape}])"
    steps = ref.steps or (1,) * len(ref.lows)
    inner = _list(
        f"{_index(lo)}:{n}" + (f":{s}" if s > 1 else "")
        for lo, n, s in zip(ref.lows, ref.extents, steps, strict=True)
    )
    text = f"{ref.tensor}[{inner}]"
    if ref.dims == tuple(range(len(ref.lows))):
        return text
    return f"box({text}, dims=({', '.join(map(str, ref.dims))},))"


def parse_streams(text: str) -> StreamProgram:
    """The stream program that a text describes; ParseError, with the line, where it describes none."""
    if len(text) > MAX_TEXT:
        raise ParseError(f"the text has {len(text)} characters, more than {MAX_TEXT}")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ParseError(f"not the text of instruction streams: {error}") from None
    try:
        return _Parser().program(tree.body)
    except RecursionError:
        raise ParseError("the streams are nested too deeply") from None


def _fail(node: ast.AST, what: str) -> ParseError:
    return ParseError(what, where=f"line {getattr(node, 'lineno', 1)}")


class _Parser:
    def __init__(self) -> None:
        self.params: dict[str, Param] = {}
        self.tensors: dict[str, StreamTensor] = {}
        self.loops: list[str] = []

    def program(self, body: list[ast.stmt]) -> StreamProgram:
        if not body:
            raise ParseError("the text is empty")
        name, args, _ = self.call(body[0], "machine")
        if len(args) != 2:
            raise _fail(body[0], "expected machine(name, fingerprint)")
        machine, fingerprint = map(self.string, args)
        streams: dict[str, tuple[Item, ...]] = {}
        for node in body[1:]:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as value):
                    self.declare(name, value)
                case ast.With(items=[ast.withitem(context_expr=head)], body=inner):
                    _, args, _ = self.call(head, "stream")
                    if len(args) != 1:
                        raise _fail(node, "expected stream(name)")
                    key = self.string(args[0])
                    if key in streams:
                        raise _fail(node, f"there are two streams called {quoted(key)}")
                    streams[key] = self.items(inner)
                case _:
                    raise _fail(node, "expected a declaration or a stream")
        return StreamProgram(
            machine, fingerprint, tuple(self.tensors.values()), streams, tuple(self.params.values())
        )

    def declare(self, name: str, value: ast.Call) -> None:
        if name in self.tensors or name in self.params:
            raise _fail(value, f"{quoted(name)} is declared twice")
        kind, args, keywords = self.call(value, "tensor", "param")
        if kind == "param":
            if len(args) != 3:
                raise _fail(value, "expected param(lo, hi, multiple_of)")
            lo, hi, multiple_of = map(self.integer, args)
            self.params[name] = Param(name, lo, hi, multiple_of)
            return
        if len(args) != 1:
            raise _fail(value, "expected tensor(type[shape])")
        dtype, shape = self.shaped(args[0])
        flags: dict[str, bool] = {}
        for key, node in keywords.items():
            if key not in ("output", "temp", "given") or not isinstance(node, ast.Constant):
                raise _fail(value, f"{quoted(key)} says nothing about a tensor")
            flags[key] = node.value is True
        self.tensors[name] = StreamTensor(
            name,
            shape,
            dtype,
            flags.get("output", False),
            flags.get("temp", False),
            flags.get("given", False),
        )

    def items(self, body: list[ast.stmt]) -> tuple[Item, ...]:
        return tuple(self.item(node) for node in body if not isinstance(node, ast.Pass))

    def item(self, node: ast.stmt) -> Item:
        if isinstance(node, ast.For):
            if not isinstance(node.target, ast.Name) or node.orelse:
                raise _fail(node, "expected for name in range(lo, hi)")
            _, args, _ = self.call(node.iter, "range")
            if len(args) != 2:
                raise _fail(node, "expected range(lo, hi)")
            name = node.target.id
            if name in self.loops or name in self.params:
                raise _fail(node, f"the loop variable {quoted(name)} is in use")
            lo, hi = map(self.index, args)
            self.loops.append(name)
            inner = self.items(node.body)
            self.loops.pop()
            return Repeat(name, lo, hi, inner)
        verb, args, keywords = self.call(node, "move", "call", "post", "wait")
        if verb in ("post", "wait"):
            if len(args) != 1:
                raise _fail(node, f"expected {verb}(event)")
            event = self.string(args[0])
            return Post(event) if verb == "post" else Wait(event)
        if len(args) != 3:
            raise _fail(node, f"{verb} takes three arguments")
        if verb == "move":
            return Move(self.string(args[0]), self.ref(args[1]), self.ref(args[2]))
        _, extra, sizes = self.call(args[2], "dict")
        if extra:
            raise _fail(node, "sizes are given by name")
        return Call(
            self.string(args[0]),
            self.string(args[1]),
            tuple((n, self.integer(v)) for n, v in sizes.items()),
            tuple((n, self.ref(v)) for n, v in keywords.items()),
        )

    def ref(self, node: ast.expr) -> Ref:
        dims: tuple[int, ...] | None = None
        if isinstance(node, ast.Call):
            kind, args, keywords = self.call(node, "at", "box")
            if kind == "at":
                if len(args) != 3:
                    raise _fail(node, "expected at(memory, offset, type[shape])")
                dtype, shape = self.shaped(args[2])
                if not all(x.is_const for x in shape):
                    raise _fail(node, "a tile's shape must be constant")
                sizes = tuple(x.as_int() for x in shape)
                return Region(self.string(args[0]), self.index(args[1]), sizes, dtype)
            if len(args) != 1 or not isinstance(keywords.get("dims"), ast.Tuple):
                raise _fail(node, "expected box(tensor[...], dims=(...))")
            given = keywords["dims"]
            assert isinstance(given, ast.Tuple)
            dims = tuple(self.integer(x) for x in given.elts)
            node = args[0]
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            raise _fail(node, "expected a box of a tensor, or at(...)")
        name = node.value.id
        if name not in self.tensors:
            raise _fail(node, f"there is no tensor {quoted(name)}")
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        rank = len(self.tensors[name].shape)
        if len(parts) != rank:
            raise _fail(node, f"the tensor {quoted(name)} has {rank} dimensions")
        lows: list[Index] = []
        extents: list[int] = []
        steps: list[int] = []
        for part in parts:
            if not isinstance(part, ast.Slice) or part.lower is None or part.upper is None:
                raise _fail(node, "expected low:extent, or low:extent:step, in every dimension")
            steps.append(1 if part.step is None else self.integer(part.step))
            lows.append(self.index(part.lower))
            extents.append(self.integer(part.upper))
        if dims is None:
            dims = tuple(range(rank))
        real = [d for d in dims if d >= 0]
        if (
            any(d >= rank or d < -1 for d in dims)
            or len(set(real)) != len(real)
            or min([*extents, *steps], default=1) < 1
        ):
            raise _fail(node, "the dimensions, extents or steps of the box are wrong")
        if any(extents[d] > 1 for d in range(rank) if d not in real):
            raise _fail(node, "a dimension that the tile leaves out has an extent above 1")
        return Box(name, tuple(lows), tuple(extents), dims, tuple(steps) if max(steps, default=1) > 1 else ())

    def shaped(self, node: ast.expr) -> tuple[DType, tuple[Index, ...]]:
        if (
            not isinstance(node, ast.Subscript)
            or not isinstance(node.value, ast.Name)
            or node.value.id not in DTYPES
        ):
            raise _fail(node, "expected a type and shape such as f32[16, 16]")
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return DTYPES[node.value.id], tuple(map(self.index, parts))

    def call(self, node: ast.AST, *names: str) -> tuple[str, list[ast.expr], Mapping[str, ast.expr]]:
        if isinstance(node, ast.Expr):
            node = node.value
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in names:
            raise _fail(node, f"expected {' or '.join(names)}(...)")
        keywords: dict[str, ast.expr] = {}
        for k in node.keywords:
            if k.arg is None or k.arg in keywords:
                raise _fail(node, "an argument is given twice")
            keywords[k.arg] = k.value
        return node.func.id, node.args, keywords

    def string(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        raise _fail(node, "expected a name in quotes")

    def integer(self, node: ast.expr) -> int:
        x = self.index(node)
        if not x.is_const:
            raise _fail(node, "expected an integer")
        return x.as_int()

    def index(self, node: ast.expr) -> Index:
        match node:
            case ast.Constant(value=int(v)) if not isinstance(v, bool) and abs(v) < 1 << 60:
                return Index(v)
            case ast.Name(id=name) if name in self.loops:
                return var(name)
            case ast.Name(id=name) if name in self.params:
                return Index(0) + self.params[name]
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return self.index(inner) * -1
            case ast.BinOp(left=left, op=op, right=right):
                a, b = self.index(left), self.index(right)
                match op:
                    case ast.Add():
                        return a + b
                    case ast.Sub():
                        return a - b
                    case ast.Mult() if a.is_const:
                        return b * a.as_int()
                    case ast.Mult() if b.is_const:
                        return a * b.as_int()
                    case ast.FloorDiv() if b.is_const and b.as_int() > 0:
                        return floordiv(a, b.as_int())
                    case ast.Mod() if b.is_const and b.as_int() > 0:
                        return mod(a, b.as_int())
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=args, keywords=[]) if args:
                return (imin if name == "min" else imax)(*map(self.index, args))
        raise _fail(node, f"{ast.unparse(node)} is no index here")
