"""Instructions on values: arithmetic, comparisons, conversions, calls of pure intrinsics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.codegen.llvm.scopes import Scopes
from tilewright.codegen.llvm.values import (
    SCALAR_TYPES,
    Val,
    literal,
    literal_lanes,
    mask_literal,
    suffix,
    type_text,
)
from tilewright.ir import BF16, BOOL, F32, I8, I16, I32, DType
from tilewright.support import InternalError

#: Integers whose bits are masks of so many lanes.
_MASK_TYPES: Final = {8: I8, 16: I16}


class Arithmetic(Scopes):
    """Writes operations on scalars and vectors; operands of one operation are widened to equal lanes."""

    rounds_bf16: bool = True
    """Whether an instruction rounds vectors to bf16."""

    def const(self, value: float | int | bool, dtype: DType, lanes: int = 1) -> Val:
        """A literal, splat over ``lanes``."""
        return literal(value, dtype, lanes)

    def splat(self, v: Val, lanes: int) -> Val:
        """A scalar in every lane."""
        if lanes == 1 or v.lanes == lanes:
            return v
        if v.lanes != 1:
            raise InternalError(f"cannot widen {v.lanes} lanes to {lanes}")
        if v.depth == 0:
            return Val(f"splat ({v.typed})", v.dtype, lanes)
        vt = f"<{lanes} x {SCALAR_TYPES[v.dtype.name]}>"
        one = self.pure(
            "insert", v.dtype, lanes, (v,), lambda o: f"insertelement {vt} poison, {o[0].typed}, i64 0"
        )
        return self.pure(
            "shuffle", v.dtype, lanes, (one,),
            lambda o: f"shufflevector {vt} {o[0].text}, {vt} poison, <{lanes} x i32> zeroinitializer",
        )  # fmt: skip

    def same_lanes(self, *vals: Val) -> tuple[Val, ...]:
        """All operands with the widest operand's lanes."""
        lanes = max([v.lanes for v in vals])
        if lanes == 1:
            return vals
        return tuple([self.splat(v, lanes) for v in vals])

    def op(self, name: str, a: Val, b: Val) -> Val:
        """A binary instruction ``name`` such as ``fadd`` or ``add nsw``."""
        if a.lanes != b.lanes:
            a, b = self.same_lanes(a, b)
        return self.pure(
            name, a.dtype, a.lanes, (a, b), lambda o: f"{name} {o[0].type} {o[0].text}, {o[1].text}"
        )

    def both(self, a: Val | None, b: Val) -> Val:
        """The lanes that two masks have in common; ``None`` is all lanes."""
        if a is None:
            return b
        x, y = literal_lanes(a), literal_lanes(b)
        if x is None or y is None:
            return self.op("and", a, b)
        return mask_literal([p and q for p, q in zip(x, y, strict=True)])

    def also(self, a: Val | None, b: Val) -> Val:
        """A condition after another one: where that does not hold this may be of what was never written.

        ``and`` with such a value is no value either, and LLVM may believe that nobody branches on it.
        """
        return b if a is None else self.select(a, b, self.const(False, BOOL))

    def inverse(self, mask: Val) -> Val:
        """The other lanes."""
        known = literal_lanes(mask)
        if known is not None:
            return mask_literal([not on for on in known])
        return self.op("xor", mask, literal(True, BOOL, mask.lanes))

    def fneg(self, a: Val) -> Val:
        """``-a`` of a float."""
        return self.pure("fneg", a.dtype, a.lanes, (a,), lambda o: f"fneg {o[0].typed}")

    def compare(self, name: str, a: Val, b: Val) -> Val:
        """``icmp``/``fcmp`` with the condition in ``name``."""
        a, b = self.same_lanes(a, b)
        if a.lanes > 1 and a.dtype == BF16 and not self.rounds_bf16:
            a, b = self._widened(a), self._widened(b)
        return self.pure(
            name, BOOL, a.lanes, (a, b), lambda o: f"{name} {o[0].type} {o[0].text}, {o[1].text}"
        )

    def _widened(self, a: Val) -> Val:
        """Numbers of bf16 as f32, by integers: LLVM narrows comparisons and the floor of ``fpext`` again."""
        bits = self.convert("zext", self.convert("bitcast", a, I16), I32)
        return self.convert("bitcast", self.op("shl", bits, self.const(16, I32)), F32)

    def select(self, c: Val, a: Val, b: Val) -> Val:
        """``a`` where ``c`` else ``b``, lane by lane."""
        lanes = max(c.lanes, a.lanes, b.lanes)
        if lanes > 1:
            a, b = self.splat(a, lanes), self.splat(b, lanes)
            c = self.splat(c, lanes) if c.lanes > 1 else c
        if lanes > 1 and a.dtype == BF16 and not self.rounds_bf16:
            # LLVM would widen the lanes, and call a function of compilers' own libraries to round them
            bits = self.select(c, self.convert("bitcast", a, I16), self.convert("bitcast", b, I16))
            return self.convert("bitcast", bits, BF16)
        return self.pure(
            "select", a.dtype, lanes, (c, a, b),
            lambda o: f"select {o[0].typed}, {o[1].typed}, {o[2].typed}", root=a.root,
        )  # fmt: skip

    def freeze(self, a: Val) -> Val:
        """The value itself; what follows is not merged with what made it."""
        return self.pure("freeze", a.dtype, a.lanes, (a,), lambda o: f"freeze {o[0].typed}")

    def mask_register(self, mask: Val) -> Val:
        """A literal mask of 8 or 16 lanes in a register of its own, a value that LLVM does not look into.

        A choice by a literal is a shuffle to LLVM, done after the operation that it belongs to; by a mask
        register it is a part of that operation, which then changes its accumulator in place.
        """
        lanes = literal_lanes(mask)
        dtype = _MASK_TYPES.get(mask.lanes)
        if lanes is None or dtype is None:
            return mask
        bits = literal(sum(1 << n for n, used in enumerate(lanes) if used), dtype)
        known = self.pure(
            f"mask register {bits.text}", dtype, 1, (bits,),
            lambda o: f'call {o[0].type} asm "", "=r,0"({o[0].typed})',
        )  # fmt: skip
        return self.pure(
            f"mask of {mask.lanes}", BOOL, mask.lanes, (known,),
            lambda o: f"bitcast {o[0].typed} to <{mask.lanes} x i1>",
        )  # fmt: skip

    def hidden(self, p: Val, n: int) -> Val:
        """A pointer as a value that LLVM does not look into; another one for each ``n``.

        What is loaded through it is a load of its own, and its address a register and a constant: with an
        index in it, a processor may take an operand in memory apart again.
        """
        return self.pure(
            f"hidden {n}", p.dtype, 1, (p,), lambda o: f'call ptr asm "", "=r,0"({o[0].typed})', root=p.root
        )

    def convert(self, name: str, a: Val, dtype: DType) -> Val:
        """A conversion instruction (``sext``, ``fptosi``, ``bitcast`` …)."""
        if name == "fpext" and a.dtype == BF16 and not self.rounds_bf16:
            wide = self._widened(a)
            return wide if dtype == F32 else self.convert(name, wide, dtype)
        target = type_text(dtype.name, a.lanes)
        return self.pure(
            f"{name} {a.dtype.name}", dtype, a.lanes, (a,), lambda o: f"{name} {o[0].typed} to {target}"
        )

    def intrinsic(self, name: str, dtype: DType, args: Sequence[Val], *, extra: str = "") -> Val:
        """A call of the pure overloaded intrinsic ``llvm.name`` on its first operand's type."""
        vals = self.same_lanes(*args)
        first = vals[0]
        lanes = first.lanes
        full = f"llvm.{name}.{suffix(first.dtype.name, lanes)}"
        result = type_text(dtype.name, lanes)
        if full not in self.declared:
            self.declare(full, result, [v.type for v in vals] + ([extra.split()[0]] if extra else []))
        tail = f", {extra}" if extra else ""
        return self.pure(
            full, dtype, lanes, vals,
            lambda o: f"call {result} @{full}({', '.join([v.typed for v in o])}{tail})",
        )  # fmt: skip

    def fma(self, x: Val, y: Val, z: Val) -> Val:
        """``x * y + z`` with one rounding."""
        lanes = max(x.lanes, y.lanes, z.lanes)
        if lanes > 1:
            x = x if x.lanes > 1 else self.splat(x, lanes)
            y = y if y.lanes > 1 else self.splat(y, lanes)
            z = z if z.lanes > 1 else self.splat(z, lanes)
        name = z.dtype.name
        t, full = type_text(name, lanes), f"llvm.fma.{suffix(name, lanes)}"
        if full not in self.declared:
            self.declare(full, t, (t, t, t))
        return self.pure(
            full, z.dtype, lanes, (x, y, z),
            lambda o: f"call {t} @{full}({t} {o[0].text}, {t} {o[1].text}, {t} {o[2].text})",
        )  # fmt: skip

    def resize(self, v: Val, lanes: int) -> Val:
        """The first ``lanes`` lanes of a value; those that it does not have are undefined."""
        if v.lanes == lanes:
            return v
        if lanes == 1:
            return self.lane(v, 0)
        if v.lanes == 1:
            return self.splat(v, lanes)
        picks = ", ".join(f"i32 {n}" if n < v.lanes else "i32 poison" for n in range(lanes))
        return self.pure(
            "resize", v.dtype, lanes, (v,),
            lambda o: f"shufflevector {o[0].typed}, {o[0].type} poison, <{lanes} x i32> <{picks}>",
        )  # fmt: skip

    def dot(self, full: str, total: Val, words: Sequence[Val], operand: str) -> Val:
        """A call of the intrinsic ``full``: ``total`` plus dot products of words, taken as ``operand``."""
        seen = words
        if words[0].type != operand:
            seen = [
                self.pure(
                    f"as {operand}", v.dtype, v.lanes, (v,), lambda o: f"bitcast {o[0].typed} to {operand}"
                )
                for v in words
            ]
        self.declare(full, total.type, [total.type, operand, operand])
        return self.pure(
            full, total.dtype, total.lanes, (total, *seen),
            lambda o: (
                f"call {o[0].type} @{full}({o[0].typed}, {operand} {o[1].text}, {operand} {o[2].text})"
            ),
        )  # fmt: skip

    def as_words(self, v: Val, lanes: int) -> Val:
        """The bits of a vector as ``lanes`` words of 32 bits."""
        t = type_text("i32", lanes)
        return self.pure(f"as {t}", I32, lanes, (v,), lambda o: f"bitcast {o[0].typed} to {t}")

    def masked(self, full: str, args: Sequence[Val]) -> Val:
        """A call of an x86 intrinsic with a mask, all of its lanes on, under the current rounding mode."""
        first = args[0]
        mask = f"i{max(8, first.lanes)}"
        rounding = ", i32 4" if first.lanes * first.dtype.bits == 512 else ""
        self.declare(full, first.type, [v.type for v in (*args, first)] + [mask] + ["i32"] * bool(rounding))
        return self.pure(
            full, first.dtype, first.lanes, args,
            lambda o: (
                f"call {o[0].type} @{full}({', '.join(v.typed for v in o)}, {o[0].type} zeroinitializer, "
                f"{mask} -1{rounding})"
            ),
        )  # fmt: skip

    def choose_of_two(self, full: str, low: Val, at: Val, high: Val) -> Val:
        """A call of the x86 intrinsic ``full``: the elements at the places ``at`` of two vectors together."""
        self.declare(full, low.type, [low.type, at.type, high.type])
        return self.pure(
            full, low.dtype, low.lanes, (low, at, high),
            lambda o: f"call {o[0].type} @{full}({', '.join(v.typed for v in o)})",
        )  # fmt: skip

    def saturating(self, a: Val, dtype: DType) -> Val:
        """A float as an integer of ``dtype``, clamped to its range; NaN becomes 0."""
        result = type_text(dtype.name, a.lanes)
        kind = "fptosi" if dtype.kind == "int" else "fptoui"
        full = f"llvm.{kind}.sat.{suffix(dtype.name, a.lanes)}.{a.suffix}"
        self.declare(full, result, [a.type])
        return self.pure(full, dtype, a.lanes, (a,), lambda o: f"call {result} @{full}({o[0].typed})")

    def nearest(self, a: Val) -> Val:
        """A float rounded to the nearest i32, ties to even: one instruction, rounding apart takes two."""
        full = f"llvm.lrint.{suffix('i32', a.lanes)}.{a.suffix}"
        result = type_text("i32", a.lanes)
        self.declare(full, result, [a.type])
        return self.pure(full, I32, a.lanes, (a,), lambda o: f"call {result} @{full}({o[0].typed})")

    def reduce(self, name: str, v: Val, start: Val | None = None, *, flags: str = "") -> Val:
        """``llvm.vector.reduce.name`` of all lanes (``start`` for ``fadd``/``fmul``, reassociated)."""
        full = f"llvm.vector.reduce.{name}.{v.suffix}"
        scalar = type_text(v.dtype.name, 1)
        args = (v,) if start is None else (start, v)
        self.declare(full, scalar, [a.type for a in args])
        flags += "reassoc " if start is not None else ""
        return self.pure(
            full + flags, v.dtype, 1, args,
            lambda o: f"call {flags}{scalar} @{full}({', '.join([a.typed for a in o])})",
        )  # fmt: skip

    def lane(self, v: Val, n: int) -> Val:
        """Lane ``n`` of a vector."""
        return self.pure(f"lane {n}", v.dtype, 1, (v,), lambda o: f"extractelement {o[0].typed}, i64 {n}")

    def vector(self, elements: Sequence[Val | None], dtype: DType) -> Val:
        """A vector of scalars; lanes of ``None`` are undefined."""
        lanes = len(elements)
        acc = Val("poison", dtype, lanes)
        for n, e in enumerate(elements):
            if e is not None:
                acc = self._with_lane(acc, e, n)
        return acc

    def _with_lane(self, v: Val, e: Val, n: int) -> Val:
        return self.pure(
            f"into {n}", v.dtype, v.lanes, (v, e),
            lambda o: f"insertelement {o[0].typed}, {o[1].typed}, i64 {n}",
        )  # fmt: skip
