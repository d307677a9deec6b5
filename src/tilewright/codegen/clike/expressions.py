"""Scalar expressions as text. Shared nodes become constants of their own; the sides of a selection are lazy.

f16 and bf16 values are f32 numbers that those types hold: each operation rounds to the type, once (f32 has
more than twice their digits, so rounding twice is rounding once).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from tilewright.codegen.clike.dialect import Dialect
from tilewright.codegen.clike.helpers import Helpers, call_name, integer_literal
from tilewright.codegen.clike.indices import Indices
from tilewright.codegen.clike.writer import Writer
from tilewright.ir import (
    F32,
    F64,
    I32,
    I64,
    Binary,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    DType,
    Expr,
    Index,
    Load,
    OfIndex,
    Select,
    Unary,
    children,
    prove_ge0,
    shared_nodes,
    simplify,
)
from tilewright.support import InternalError

_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}
_COMPARISONS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}
_NARROW = frozenset({"f16", "bf16"})
_OF_TWO_CONVERSIONS = frozenset({"i32", "u32", "i64", "u64", "f64"})


@dataclass(frozen=True, slots=True)
class Place:
    """A buffer of the text: its name, and the strides of its physical dimensions (numbers or texts)."""

    text: str
    buffer: Buffer
    strides: tuple[int | str, ...]
    shift: int
    """Elements before the first one: those of its halo."""


class Expressions(Indices):
    """Scalar expressions in one language."""

    def __init__(self, dialect: Dialect, helpers: Helpers, writer: Writer, *, wide: bool) -> None:
        signed, unsigned = ("i64", "u64") if wide else ("i32", "u32")
        super().__init__(dialect.types[signed], dialect.types[unsigned], "L")
        self._index_dtype = I64 if wide else I32
        self.dialect = dialect
        self.helpers = helpers
        self.writer = writer
        self.places: dict[str, Place] = {}
        self._shared: frozenset[int] = frozenset()
        self._memos: list[dict[int, str]] = []
        self._pure: dict[int, bool] = {}
        self.known: dict[Load, str] = {}
        """Loads whose values are at hand."""

    def extreme(self, op: str, a: str, b: str) -> str:
        """A call: the texts of its arguments may be long."""
        return f"{self.helpers.function(op, self._index_dtype)}({a}, {b})"

    @contextmanager
    def statement(self, roots: Iterable[Expr]) -> Iterator[None]:
        """Print the expressions of one statement: nodes that they share are computed once."""
        outer = self._shared, self._memos, self._pure
        self._shared, self._memos, self._pure = shared_nodes(roots), [{}], {}
        yield
        self._shared, self._memos, self._pure = outer

    def opaque(self, e: Expr) -> str:
        """A data-dependent integer, or condition."""
        if self._memos:
            return self.value(e)
        with self.statement([e]):
            return self.value(e)

    def temporary(self, dtype: DType, text: str) -> str:
        """A constant of its own for a text."""
        name = self.writer.name("t")
        self.writer.line(f"const {self.dialect.value_type(dtype)} {name} = {text};")
        return name

    # -- addresses ------------------------------------------------------------------------------------------

    def offset(self, place: Place, indices: tuple[Index, ...]) -> tuple[Index, list[str]]:
        """Where an element is: an index, and products with strides that are no numbers."""
        total = Index(place.shift)
        products: list[str] = []
        for i, stride in zip(place.buffer.physical(indices), place.strides, strict=True):
            if isinstance(stride, int):
                total = total + i * stride
            else:
                products.append(f"{self.index(i)} * {stride}")
        return total, products

    def element(self, buffer: str, indices: tuple[Index, ...]) -> str:
        """An element of a buffer as text that can be assigned to."""
        place = self.place(buffer)
        total, products = self.offset(place, indices)
        if not products:
            return f"{place.text}[{self.index_text(total)}]"
        parts = [*products, *([] if total == Index(0) else [self.index(total)])]
        return f"{place.text}[{' + '.join(parts)}]"

    def place(self, buffer: str) -> Place:
        """Where a buffer is."""
        try:
            return self.places[buffer]
        except KeyError:
            raise InternalError(f"the buffer {buffer} is not in scope") from None

    # -- values ---------------------------------------------------------------------------------------------

    def value(self, e: Expr) -> str:
        """An expression as text that may stand as an operand; lines before it may compute parts of it."""
        if id(e) not in self._shared or not children(e):
            return self._value(e)
        for memo in reversed(self._memos):
            if id(e) in memo:
                return memo[id(e)]
        text = self._value(e)
        if not text.isidentifier():
            text = self.temporary(e.dtype, text)
        self._memos[-1][id(e)] = text
        return text

    def _value(self, e: Expr) -> str:
        match e:
            case Const():
                return self.literal(e.value, e.dtype)
            case OfIndex():
                return self._converted(self.index(e.index), I64, e.dtype, "wrap")
            case Load():
                return self.known.get(e) or self.loaded(self.element(e.buffer, e.indices), e.dtype)
            case Unary():
                return self._unary(e.op, self.value(e.a), e.dtype)
            case Binary():
                return self._binary(e.op, self.value(e.a), self.value(e.b), e.dtype)
            case Compare():
                a, b = self._as_index(e.a), self._as_index(e.b)
                if a is None or b is None:
                    a, b = self.value(e.a), self.value(e.b)
                return f"({a} {_COMPARISONS[e.op]} {b})"
            case Select():
                return self._select(e)
            case Cast():
                return self._converted(self.value(e.a), e.a.dtype, e.dtype, e.mode)
            case Call():
                return self._call(e.fn, [self.value(a) for a in e.args], e.args[0].dtype)

    def _as_index(self, e: Expr) -> str | None:
        """An index, or a number that is no larger, in the type of indices; ``None`` of other expressions."""
        if isinstance(e, OfIndex) and e.dtype == I64:
            return self.index(e.index)
        if isinstance(e, Const) and e.dtype.is_integer and abs(int(e.value)) < 1 << 31:
            return str(int(e.value))
        return None

    def loaded(self, element: str, dtype: DType) -> str:
        """The value of an element in memory."""
        if dtype.name in _NARROW:
            return f"{self.helpers.conversion(f'from_{dtype.name}')}({element})"
        return f"({element} != 0)" if dtype.kind == "bool" else element

    def stored(self, text: str, dtype: DType) -> str:
        """What memory holds for a value."""
        return f"{self.helpers.conversion(f'to_{dtype.name}')}({text})" if dtype.name in _NARROW else text

    def kept(self, e: Expr, dtype: DType) -> str | None:
        """What memory holds for a value that is an element of narrow numbers, or zero, as it is.

        ``None`` for values that are computed.
        """
        if dtype.name not in _NARROW or e.dtype != dtype:
            return None
        if isinstance(e, Const) and e.value == 0 and math.copysign(1, e.value) > 0:
            return "0"
        if isinstance(e, Load):
            text, wide = self.value(e), f"{self.helpers.conversion(f'from_{dtype.name}')}("
            return text.removeprefix(wide)[:-1] if text.startswith(wide) else None
        if isinstance(e, Select):
            parts = []
            for side in (e.a, e.b):
                with self.writer.aside() as lines:
                    part = self.kept(side, dtype)
                if part is None or lines:
                    return None
                parts.append(part)
            return f"({self.value(e.cond)} ? {parts[0]} : {parts[1]})"
        return None

    def literal(self, value: float | int | bool, dtype: DType) -> str:
        """A constant."""
        if dtype.kind == "bool":
            return "1" if value else "0"
        if dtype.is_integer:
            wrapped = int(
                np.array(int(value) & ((1 << dtype.bits) - 1)).astype(f"u{dtype.bytes}").view(dtype.numpy)
            )
            return integer_literal(wrapped, dtype)
        number = float(dtype.numpy.type(value))
        suffix = "" if dtype == F64 else "f"
        if math.isnan(number) or math.isinf(number):
            name = "NAN" if math.isnan(number) else "INFINITY"
            text = f"({self.dialect.value_type(dtype)}){name}"
            return f"({'-' if number < 0 else ''}{text})"
        shortest = repr(number) if dtype == F64 else str(np.float32(number))
        text = shortest if any(c in shortest for c in ".e") else f"{shortest}.0"
        return f"{text}{suffix}" if math.copysign(1.0, number) > 0 else f"({text}{suffix})"

    def _rounded(self, text: str, dtype: DType) -> str:
        """An f32 result as a value of a narrow type."""
        if dtype.name not in _NARROW:
            return text
        to, back = (self.helpers.conversion(f"{way}_{dtype.name}") for way in ("to", "from"))
        return f"{back}({to}({text}))"

    def _wrapped(self, op: str, a: str, b: str, dtype: DType) -> str:
        """Integer arithmetic that wraps around: in the unsigned type, which C defines."""
        if dtype.kind == "uint" and dtype.bits >= F32.bits:
            return f"({a} {op} {b})"
        kind = "u64" if dtype.bits == I64.bits else "u32"
        wide = self.dialect.types[kind]
        return f"(({self.dialect.value_type(dtype)})(({wide}){a} {op} ({wide}){b}))"

    def _unary(self, op: str, a: str, dtype: DType) -> str:
        if op == "not":
            return f"(!{a})" if dtype.kind == "bool" else f"(({self.dialect.value_type(dtype)})(~{a}))"
        if op == "neg":
            return f"(-{a})" if dtype.is_float else self._wrapped("-", "0", a, dtype)
        if dtype.is_float:
            return f"{self._function('fabs', dtype)}({a})"
        return a if dtype.kind != "int" else f"({a} < 0 ? {self._wrapped('-', '0', a, dtype)} : {a})"

    def _binary(self, op: str, a: str, b: str, dtype: DType) -> str:
        if dtype.is_float:
            if op in _ARITHMETIC and op not in ("and", "or", "xor"):
                return self._rounded(f"({a} {_ARITHMETIC[op]} {b})", dtype)
            made = f"{self.helpers.function(op, F64 if dtype == F64 else F32)}({a}, {b})"
            return made if op in ("min", "max") else self._rounded(made, dtype)
        if dtype.kind == "bool":
            sign = {"min": "&", "max": "|"}.get(op) or _ARITHMETIC[op]
            return f"({a} {sign} {b})"
        if op in ("and", "or", "xor"):
            return f"({a} {_ARITHMETIC[op]} {b})"
        if op in ("add", "sub", "mul"):
            return self._wrapped(_ARITHMETIC[op], a, b, dtype)
        if op == "shl":
            return self._wrapped("<<", a, b, dtype)
        if op == "shr":
            return f"({a} >> {b})"
        return f"{self.helpers.function(op, dtype)}({a}, {b})"

    def _function(self, fn: str, dtype: DType) -> str:
        return call_name(self.dialect, fn, 1 if dtype == F64 else 0)

    def _call(self, fn: str, args: list[str], dtype: DType) -> str:
        listed = ", ".join(args)
        if fn == "isnan":
            return f"({args[0]} != {args[0]})"
        if fn == "isinf":
            return f"({self._function('fabs', dtype)}({args[0]}) == {self.literal(math.inf, dtype)})"
        if fn == "ldexp":
            return f"{self.helpers.function('ldexp', dtype)}({listed})"
        if fn == "rsqrt" and "rsqrt" not in self.dialect.functions:
            one = self.literal(1.0, dtype)
            return f"({one} / {self._function('sqrt', dtype)}({listed}))"
        names = {"round": "rint", "exp_nonpositive": "exp"}
        return f"{self._function(names.get(fn, fn), dtype)}({listed})"

    def _converted(self, text: str, source: DType, target: DType, mode: str) -> str:
        if source == target:
            return text
        if mode == "bits":
            return self._bits(text, source, target)
        if target.kind == "bool":
            return f"({text} != 0)"
        kind = self.dialect.value_type(target)
        if target.is_float:
            if target.name in _NARROW and source.name in _OF_TWO_CONVERSIONS:
                odd = self.helpers.conversion("odd")
                return self._rounded(f"{odd}(({self.dialect.types['f64']}){text})", target)
            return self._rounded(f"(({kind}){text})", target)
        if mode == "saturate" and source.kind != "bool":
            wide = F32 if source.name in _NARROW else source
            return f"{self.helpers.saturate(wide, target)}({text})"
        return f"(({kind}){text})"

    def _bits(self, text: str, source: DType, target: DType) -> str:
        """The same bits as another type: through the unsigned integer that memory holds."""
        if source.name in _NARROW:
            text = f"{self.helpers.conversion(f'to_{source.name}')}({text})"
        elif source.is_float:
            text = f"{self.helpers.conversion(f'bits_{source.name}')}({text})"
        if target.name in _NARROW:
            kind = self.dialect.types["u16"]
            return f"{self.helpers.conversion(f'from_{target.name}')}(({kind}){text})"
        if target.is_float:
            return f"{self.helpers.conversion(f'{target.name}_bits')}({text})"
        return f"(({self.dialect.value_type(target)}){text})"

    # -- selections -----------------------------------------------------------------------------------------

    def guarded(self, e: Expr) -> tuple[list[Expr], Expr, Const | None]:
        """The conditions of nested selections that all give one constant where theirs does not hold.

        Then what they guard, and that constant. Beyond the first, conditions are such as may be evaluated at
        any time; those that always hold are left out.
        """
        conds: list[Expr] = []
        other: Const | None = None
        while isinstance(e, Select) and isinstance(e.b, Const):
            if not self._always(e.cond):
                if other is not None and (not self._alike(other, e.b) or not self._is_pure(e.cond)):
                    break
                other = e.b
                conds.append(e.cond)
            e = e.a
        return conds, e, other

    def _alike(self, a: Const, b: Const) -> bool:
        """Whether two constants are the same, the signs of zeros as well."""
        return self.literal(a.value, a.dtype) == self.literal(b.value, b.dtype)

    def _always(self, cond: Expr) -> bool:
        """Whether a condition on an index holds in the ranges that are known."""
        if not isinstance(cond, Compare) or cond.op != "ge" or not isinstance(cond.a, OfIndex):
            return False
        if not isinstance(cond.b, Const) or cond.b.value != 0:
            return False
        return prove_ge0(simplify(cond.a.index, self.env), self.env)

    def _select(self, e: Select) -> str:
        conds, inner, other = self.guarded(e)
        if other is None and inner is not e:
            return self.value(inner)
        if other is not None and conds != [e.cond]:
            # all at once: a branch for each would keep compilers from loading for several at a time
            cond = f"({' & '.join(self.value(each) for each in conds)})"
            e = Select(conds[0], inner, other)
        else:
            cond = self.value(e.cond)
        self._hoist((e.a, e.b))
        sides: list[tuple[str, list[str]]] = []
        for side in (e.a, e.b):
            self._memos.append({})
            with self.writer.aside() as lines:
                text = self.value(side)
            self._memos.pop()
            sides.append((text, lines))
        if not any(lines for _, lines in sides):
            return f"({cond} ? {sides[0][0]} : {sides[1][0]})"
        name = self.writer.name("t")
        self.writer.line(f"{self.dialect.value_type(e.dtype)} {name};")
        for head, (text, lines) in zip((f"if ({cond})", "else"), sides, strict=True):
            with self.writer.block(head):
                self.writer.lines.extend(lines)
                self.writer.line(f"{name} = {text};")
        return name

    def _hoist(self, sides: Iterable[Expr]) -> None:
        """Compute the shared nodes below that may be computed at any time before the selection.

        What they share with the text after it is known there then, and none is computed in both sides.
        """
        seen: set[int] = set()
        todo = list(sides) if self._shared else []
        while todo:
            node = todo.pop()
            if id(node) in seen or not children(node) or any(id(node) in memo for memo in self._memos):
                continue
            seen.add(id(node))
            if id(node) in self._shared and self._is_pure(node):
                self.value(node)
            else:
                todo.extend(children(node))

    def _is_pure(self, e: Expr) -> bool:
        """Whether evaluating an expression can do no harm: no access to memory, no integer division."""
        known = self._pure.get(id(e))
        if known is None:
            match e:
                case Load():
                    known = False
                case OfIndex():
                    known = not any(type(a).__name__ == "Opaque" for a, _ in e.index.terms)
                case Binary() if e.dtype.is_integer and e.op in ("floordiv", "mod", "truncdiv", "rem"):
                    known = False
                case _:
                    known = all(self._is_pure(kid) for kid in children(e))
            self._pure[id(e)] = known
        return known
