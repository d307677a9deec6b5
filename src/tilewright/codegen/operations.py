"""The IR's scalar operations as instructions, on scalars or lanes; ``ir/scalar_ops`` says what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.codegen.llvm.builder import Builder
from tilewright.codegen.llvm.values import Val, literals
from tilewright.ir import BF16, BOOL, F32, F64, I16, I32, I64, DType
from tilewright.support import InternalError

_FLOAT: Final = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTRINSICS: Final = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "roundeven", "trunc": "trunc",
    "copysign": "copysign", "fma": "fma",
}  # fmt: skip


def unary(b: Builder, op: str, a: Val) -> Val:
    """``neg``, ``abs`` or ``not``."""
    if op == "not":
        return b.op("xor", a, b.const(True, BOOL) if a.dtype.kind == "bool" else b.const(-1, a.dtype))
    if op == "neg":
        return b.fneg(a) if a.dtype.is_float else b.op("sub", b.const(0, a.dtype), a)
    if a.dtype.is_float:
        return b.intrinsic("fabs", a.dtype, (a,))
    if a.dtype.kind != "int":
        return a
    return b.intrinsic("abs", a.dtype, (a,), extra="i1 false")


def binary(b: Builder, op: str, a: Val, c: Val) -> Val:
    """A binary operation on values of one dtype."""
    t = a.dtype
    if t == BF16:
        # few machines have its arithmetic; in f32, rounded once more
        return _float_to_float(b, binary(b, op, b.convert("fpext", a, F32), b.convert("fpext", c, F32)), t)
    if t.is_float:
        if op in _FLOAT:
            return b.op(_FLOAT[op], a, c)
        if op in ("min", "max"):
            return _float_extreme(b, op, a, c)
        return _float_division(b, op, a, c)
    if t.kind == "bool" and op in ("min", "max"):
        return b.op("and" if op == "min" else "or", a, c)
    signed = t.kind == "int"
    if op == "mul":
        a, c = b.multiplier(a, c), b.multiplier(c, a)
    match op:
        case "add" | "sub" | "mul" | "and" | "or" | "xor" | "shl":
            return b.op(op, a, c)
        case "shr":
            return b.op("ashr" if signed else "lshr", a, c)
        case "min" | "max":
            return b.intrinsic(("s" if signed else "u") + op, t, (a, c))
        case "truncdiv" | "rem" | "floordiv" | "mod":
            return _int_division(b, op, a, c)
        case _:
            raise InternalError(f"no native code for {op} of {t}")


def _int_division(b: Builder, op: str, a: Val, c: Val) -> Val:
    """Quotients and remainders that never trap: masked-off lanes and sides not taken may divide by zero."""
    t = a.dtype
    zero, one = b.const(0, t), b.const(1, t)
    remainder = op in ("rem", "mod")
    if t.kind != "int":
        if c.depth:
            c = b.select(b.compare("icmp eq", c, zero), one, c)
        return b.op("urem" if remainder else "udiv", a, c)
    # -1 apart: the smallest number divided by it overflows
    plain = c.depth == 0 and c.lanes == 1 and c.text not in ("0", "-1")
    minus = b.const(False, BOOL) if plain else b.compare("icmp eq", c, b.const(-1, t))
    safe = c if plain else b.select(b.op("or", minus, b.compare("icmp eq", c, zero)), one, c)
    r = b.op("srem", a, safe)
    if op == "rem":
        return r
    opposite = b.compare("icmp slt", b.op("xor", r, safe), zero)
    fix = b.op("and", opposite, b.compare("icmp ne", r, zero))
    if op == "mod":
        return b.select(fix, b.op("add", r, safe), r)
    q = b.op("sdiv", a, safe)
    if op == "floordiv":
        q = b.op("sub", q, b.convert("zext", fix, t))
    return q if plain else b.select(minus, b.op("sub", zero, a), q)


def _float_extreme(b: Builder, op: str, a: Val, c: Val) -> Val:
    if a.depth == 0 and c.depth:
        a, c = c, a
    if c.depth == 0 and a.dtype in (F32, F64) and "0x7FF8" not in c.text:
        # with a constant, the machine's min/max (second operand on NaN) propagates NaN in one instruction
        cmp = b.compare("fcmp olt" if op == "min" else "fcmp ogt", c, a)
        return b.select(cmp, c, a)
    # the same for the second operand; a NaN in the first is put back (IEEE's `maximum` would also order the
    # zeros, for twice the instructions)
    chosen = b.select(b.compare("fcmp olt" if op == "min" else "fcmp ogt", a, c), a, c)
    # LLVM would merge both selections into one of a combined condition, which is no min/max any more
    return b.select(b.compare("fcmp uno", a, a), a, b.freeze(chosen))


def horizontal_extreme(b: Builder, op: str, v: Val) -> Val:
    """The smallest or largest lane; NaN where any lane is."""
    chosen = b.reduce("fmin" if op == "min" else "fmax", v, flags="nnan ")
    any_nan = b.reduce("or", b.compare("fcmp uno", v, v))
    return b.select(any_nan, b.const(float("nan"), v.dtype), chosen)


def _float_division(b: Builder, op: str, a: Val, c: Val) -> Val:
    if op == "truncdiv":
        return b.intrinsic("trunc", a.dtype, (b.op("fdiv", a, c),))
    if op not in ("rem", "mod", "floordiv"):
        raise InternalError(f"no native code for {op} of {a.dtype}")
    r = b.op("frem", a, c)
    if op == "rem":
        return r
    # as numpy: the remainder has the divisor's sign, and the quotient follows from it
    zero, one = b.const(0.0, a.dtype), b.const(1.0, a.dtype)
    differs = b.op("xor", b.compare("fcmp olt", r, zero), b.compare("fcmp olt", c, zero))
    fix = b.op("and", differs, b.compare("fcmp une", r, zero))
    if op == "mod":
        signed = b.select(fix, b.op("fadd", r, c), r)
        exact = b.compare("fcmp oeq", r, zero)
        return b.select(exact, b.intrinsic("copysign", a.dtype, (zero, c)), signed)
    q = b.op("fdiv", b.op("fsub", a, r), c)
    q = b.intrinsic("roundeven", a.dtype, (b.select(fix, b.op("fsub", q, one), q),))
    return b.select(b.compare("fcmp oeq", c, zero), b.op("fdiv", a, c), q)


def call(b: Builder, fn: str, args: Sequence[Val]) -> Val:
    """A function that the machine has; all others the lowering has expanded."""
    t = args[0].dtype
    if t == BF16:
        wide = call(b, fn, [b.convert("fpext", a, F32) for a in args])
        return wide if wide.dtype.kind == "bool" else _float_to_float(b, wide, t)
    if fn == "rsqrt":
        return b.op("fdiv", b.const(1.0, t), b.intrinsic("sqrt", t, args))
    if fn == "isnan":
        return b.compare("fcmp uno", args[0], args[0])
    if fn == "isinf":
        return b.compare("fcmp oeq", b.intrinsic("fabs", t, args), b.const(float("inf"), t))
    if fn == "ldexp" and b.triple.startswith("x86_64"):
        return _scalef(b, args[0], args[1])
    if fn == "exp2_fraction" and t == F32 and b.triple.startswith("x86_64"):
        return _exp2_fraction(b, args[0])
    if fn not in _INTRINSICS:
        raise InternalError(f"{fn} reaches code generation: the lowering expands it into arithmetic")
    return b.intrinsic(_INTRINSICS[fn], t, args)


def _exp2_fraction(b: Builder, x: Val) -> Val:
    """``2**(k/32)`` for the lowest five bits ``k`` of the elements, by a choice of two registers."""
    lanes, whole = x.lanes, 512 // F32.bits
    if lanes > whole:
        half = lanes // 2
        low, high = (_exp2_fraction(b, b.pick(x, x, range(at, at + half))) for at in (0, half))
        return b.pick(low, high, range(lanes))
    bits = b.convert("bitcast", b.resize(x, whole), I32)
    low, high = (literals([2.0 ** (k / 32) for k in range(at, at + whole)], F32) for at in (0, whole))
    return b.resize(b.choose_of_two("llvm.x86.avx512.vpermi2var.ps.512", low, bits, high), lanes)


def _scalef(b: Builder, x: Val, n: Val) -> Val:
    """``x * 2**floor(n)`` by AVX-512's instruction, in vectors of 128 bits and more."""
    t, lanes = x.dtype, max(x.lanes, n.lanes)
    if lanes * t.bits > 512:
        half, pair = lanes // 2, [b.splat(v, lanes) for v in (x, n)]
        low, high = (_scalef(b, *[b.pick(v, v, range(at, at + half)) for v in pair]) for at in (0, half))
        return b.pick(low, high, range(lanes))
    whole = next(bits // t.bits for bits in (128, 256, 512) if bits >= lanes * t.bits)
    operands = [b.resize(b.splat(v, lanes) if lanes > 1 else v, whole) for v in (x, n)]
    kind = "ps" if t == F32 else "pd"
    name = f"llvm.x86.avx512.mask.scalef.{kind}.{whole * t.bits}"
    return b.resize(b.masked(name, operands), lanes)


def cast(b: Builder, a: Val, t: DType, mode: str) -> Val:
    """Convert a value; see ``CAST_MODES`` of the IR."""
    s = a.dtype
    if s == t:
        return a
    if mode == "bits":
        if s.is_integer and t.is_integer:
            return Val(a.text, t, a.lanes, a.depth, a.root)
        return b.convert("bitcast", a, t)
    if t.kind == "bool":
        if s.is_float:
            return b.compare("fcmp une", a, b.const(0.0, s))
        return b.compare("icmp ne", a, b.const(0, s))
    if s.kind == "bool":
        return b.convert("uitofp" if t.is_float else "zext", a, t)
    if s.is_float and t.is_float:
        return _float_to_float(b, a, t)
    if s.is_float:
        if mode == "saturate":
            return b.saturating(a, t)
        if t.kind == "uint" and t.bits < 64:
            # through wider signed integers, so that negative values wrap as they do for integers
            return b.convert("trunc", b.convert("fptosi", a, I64 if t.bits == 32 else I32), t)
        if t.kind == "int" and t.bits < 32:
            return b.convert("trunc", b.convert("fptosi", a, I32), t)
        return b.convert("fptosi" if t.kind == "int" else "fptoui", a, t)
    if t.is_float:
        if a.depth == 0 and a.lanes == 1:
            n = int(a.text)
            return b.const(float(n if s.kind == "int" or n >= 0 else n + (1 << s.bits)), t)
        if t == BF16:
            return _float_to_float(b, cast(b, a, F64, mode), t)
        return b.convert("sitofp" if s.kind == "int" else "uitofp", a, t)
    if mode == "saturate":
        a = _saturate(b, a, t)
    if t.bits == s.bits:
        return Val(a.text, t, a.lanes, a.depth, a.root)
    if t.bits < s.bits:
        return b.convert("trunc", a, t)
    return b.convert("sext" if s.kind == "int" else "zext", a, t)


def _float_to_float(b: Builder, a: Val, t: DType) -> Val:
    s = a.dtype
    if t.bits > s.bits:
        return b.convert("fpext", a, t)
    if t.bits == s.bits:
        a = b.convert("fpext", a, F32)
    elif s == F64 and t != F32:
        a = _to_odd(b, a)
    # vectors by an instruction where there is one, which takes subnormal numbers for zero: without one LLVM
    # calls a function of compilers' own libraries
    whole = t == BF16 and (a.lanes == 1 or not b.rounds_bf16)
    return _to_bf16(b, a) if whole else b.convert("fptrunc", a, t)


def _to_odd(b: Builder, a: Val) -> Val:
    """An f64 in f32, its last bit set where it is inexact: rounding it again, to less, is then right."""
    near = b.convert("fptrunc", a, F32)
    back = b.convert("fpext", near, F64)
    away = b.compare("fcmp ogt", b.intrinsic("fabs", F64, (back,)), b.intrinsic("fabs", F64, (a,)))
    bits = b.convert("bitcast", near, I32)
    odd = b.op("or", b.op("sub", bits, b.convert("zext", away, I32)), b.const(1, I32))
    return b.convert("bitcast", b.select(b.compare("fcmp one", back, a), odd, bits), F32)


def _to_bf16(b: Builder, a: Val) -> Val:
    """An f32 rounded to nearest even: the upper half of its bits. (Machines that can flush subnormals.)"""
    bits = b.convert("bitcast", a, I32)
    even = b.op("and", b.op("lshr", bits, b.const(16, I32)), b.const(1, I32))
    rounded = b.op("add", bits, b.op("add", even, b.const(0x7FFF, I32)))
    quiet = b.op("or", bits, b.const(0x400000, I32))
    chosen = b.select(b.compare("fcmp uno", a, a), quiet, rounded)
    return b.convert("bitcast", b.convert("trunc", b.op("lshr", chosen, b.const(16, I32)), I16), BF16)


def _saturate(b: Builder, a: Val, t: DType) -> Val:
    s = a.dtype
    prefix = "s" if s.kind == "int" else "u"
    low, high = max(int(s.min_value), int(t.min_value)), min(int(s.max_value), int(t.max_value))
    a = b.intrinsic(f"{prefix}max", s, (a, b.const(low, s)))
    return b.intrinsic(f"{prefix}min", s, (a, b.const(high, s)))
