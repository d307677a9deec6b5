"""Helper functions of generated text: what the IR's operations mean where C has no operator for it.

Texts are templates: ``$f32`` and the like are types, ``$T`` the type in question, ``$U`` its unsigned twin,
``$lo`` and ``$hi`` its ends. ``ir/scalar_ops`` says what they must compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template
from types import MappingProxyType
from typing import Final

from tilewright.codegen.clike.dialect import Dialect
from tilewright.ir import DTYPES, DType

_UNSIGNED: Final = MappingProxyType({"i8": "u8", "i16": "u16", "i32": "u32", "i64": "u64"})

_INTEGER: Final = MappingProxyType({
    "truncdiv": "$T $name($T a, $T b) { return b == -1 ? ($T)(0 - ($U)a) : ($T)(a / b); }",
    "rem": "$T $name($T a, $T b) { return b == -1 ? 0 : ($T)(a % b); }",
    "floordiv": """$T $name($T a, $T b) {
    $T q, r;
    if (b == -1) return ($T)(0 - ($U)a);
    q = ($T)(a / b);
    r = ($T)(a % b);
    return r != 0 && (r < 0) != (b < 0) ? ($T)(q - 1) : q;
}""",
    "mod": """$T $name($T a, $T b) {
    $T r;
    if (b == -1) return 0;
    r = ($T)(a % b);
    return r != 0 && (r < 0) != (b < 0) ? ($T)(r + b) : r;
}""",
    "min": "$T $name($T a, $T b) { return a < b ? a : b; }",
    "max": "$T $name($T a, $T b) { return a > b ? a : b; }",
})  # fmt: skip

_FLOAT: Final = MappingProxyType({
    "min": "$T $name($T a, $T b) { return a <= b || a != a ? a : b; }",
    "max": "$T $name($T a, $T b) { return a >= b || a != a ? a : b; }",
    "rem": "$T $name($T a, $T b) { return $fmod(a, b); }",
    "truncdiv": "$T $name($T a, $T b) { return $trunc(a / b); }",
    "mod": """$T $name($T a, $T b) {
    $T r = $fmod(a, b);
    if (r == 0) return $copysign(0, b);
    return (r < 0) != (b < 0) ? r + b : r;
}""",
    "floordiv": """$T $name($T a, $T b) {
    $T r = $fmod(a, b), q;
    if (b == 0) return a / b;
    q = (a - r) / b;
    return $rint(r != 0 && (r < 0) != (b < 0) ? q - 1 : q);
}""",
    "ldexp": """$T $name($T x, $T n) {
    if (n != n || n - n != 0) return x * $exp2(n);
    n = $floor(n);
    return $ldexp(x, (int)(n < -5000 ? -5000 : n > 5000 ? 5000 : n));
}""",
})  # fmt: skip

_CONVERSIONS: Final = MappingProxyType({
    "bits_f32": "$u32 $name($f32 x) { union { $f32 f; $u32 u; } v; v.f = x; return v.u; }",
    "f32_bits": "$f32 $name($u32 x) { union { $f32 f; $u32 u; } v; v.u = x; return v.f; }",
    "bits_f64": "$i64 $name($f64 x) { union { $f64 f; $i64 u; } v; v.f = x; return v.u; }",
    "f64_bits": "$f64 $name($i64 x) { union { $f64 f; $i64 u; } v; v.u = x; return v.f; }",
    "from_f16": """$f32 $name($u16 h) {
    $u32 s = ($u32)(h & 0x8000) << 16, m = h & 0x7fff;
    if (m >= 0x7c00) return tw_f32_bits(s | 0x7f800000u | (m & 0x3ff) << 13);
    if (m >= 0x400) return tw_f32_bits(s | ((m << 13) + 0x38000000u));
    return tw_f32_bits(s | tw_bits_f32(($f32)m * 0x1p-24f));
}""",
    "to_f16": """$u16 $name($f32 f) {
    $u32 x = tw_bits_f32(f), s = (x >> 16) & 0x8000u, a = x & 0x7fffffffu;
    if (a > 0x7f800000u) return ($u16)(s | 0x7e00u);
    if (a >= 0x477ff000u) return ($u16)(s | 0x7c00u);
    if (a < 0x38800000u) return ($u16)(s | ($u32)$rint(tw_f32_bits(a) * 0x1p24f));
    return ($u16)(s | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13));
}""",
    "from_bf16": "$f32 $name($u16 h) { return tw_f32_bits(($u32)h << 16); }",
    "to_bf16": """$u16 $name($f32 f) {
    $u32 x = tw_bits_f32(f);
    if ((x & 0x7fffffffu) > 0x7f800000u) return ($u16)((x >> 16) | 0x40u);
    return ($u16)((x + 0x7fffu + ((x >> 16) & 1u)) >> 16);
}""",
    # f64 to f32 rounded to odd: rounding that once more, to less, is right
    "odd": """$f32 $name($f64 x) {
    $f32 near = ($f32)x;
    $u32 u = tw_bits_f32(near);
    if (($f64)near == x || near - near != 0 || (u & 1u)) return near;
    return tw_f32_bits((x > ($f64)near) == (x > 0) ? u + 1u : u - 1u);
}""",
})  # fmt: skip
_NEEDS: Final = MappingProxyType({
    "from_f16": ("f32_bits", "bits_f32"), "to_f16": ("f32_bits", "bits_f32"), "from_bf16": ("f32_bits",),
    "to_bf16": ("bits_f32",), "odd": ("f32_bits", "bits_f32"),
})  # fmt: skip

_MATH: Final = ("fmod", "trunc", "copysign", "rint", "floor", "ldexp", "exp2")


class Helpers:
    """The helper functions that a text uses, each defined once, before what uses it."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._texts: dict[str, str] = {}

    def text(self) -> list[str]:
        """The definitions, in order."""
        return list(self._texts.values())

    def function(self, op: str, dtype: DType) -> str:
        """The name of the function that does a binary operation (or ``ldexp``) on values of a type."""
        name = f"tw_{op}_{dtype.name}"
        if name not in self._texts:
            table = _FLOAT if dtype.is_float else _INTEGER
            template = table[op]
            if dtype.kind == "uint" and op in ("floordiv", "truncdiv", "rem", "mod"):
                sign = "/" if op.endswith("div") else "%"
                template = f"$T $name($T a, $T b) {{ return ($T)(a {sign} b); }}"
            self._add(name, template, dtype)
        return name

    def conversion(self, name: str) -> str:
        """The name of a conversion: between bits and floats, or of a narrow float."""
        for need in _NEEDS.get(name, ()):
            self.conversion(need)
        full = f"tw_{name}"
        if full not in self._texts:
            self._add(full, self._dialect.overrides.get(name, _CONVERSIONS[name]), None)
        return full

    def saturate(self, source: DType, target: DType) -> str:
        """The name of the conversion to an integer type that clamps."""
        name = f"tw_sat_{source.name}_{target.name}"
        if name not in self._texts:
            if source.is_float:
                # the ends as floats: the largest one may round up past the range
                low, high = (f"(({self._dialect.types[source.name]}){end})" for end in _ends(target))
                least, most = _ends(target)
                body = f"x != x ? 0 : x <= {low} ? {least} : x >= {high} ? {most} : ($to)x"
            else:
                # compared in the source's type, of which an end that matters is a number
                least, most = _ends(target)
                body = "($to)x"
                if int(source.max_value) > int(target.max_value):
                    body = f"x > {integer_literal(int(target.max_value), source)} ? {most} : {body}"
                if int(source.min_value) < int(target.min_value):
                    body = f"x < {integer_literal(int(target.min_value), source)} ? {least} : {body}"
            types = {"to": self._dialect.types[target.name], "from": self._dialect.types[source.name]}
            text = Template(f"$to {name}($from x) {{ return {body}; }}").substitute(types)
            self._texts[name] = f"{self._dialect.inline} {text}"
        return name

    def vector(self, dtype: DType, width: int) -> str:
        """The type of some elements side by side; its members are ``s0`` to ``sF``."""
        kind = self._dialect.storage_type(dtype)
        if self._dialect.vectors:
            return f"{kind}{width}"
        name = f"tw_{dtype.name}x{width}"
        if name not in self._texts:
            members = ", ".join(f"s{lane:X}" for lane in range(width))
            align = dtype.bytes * width
            self._texts[name] = f"struct __align__({align}) {name} {{ {kind} {members}; }};"
        return name

    def wide_load(self, dtype: DType, width: int, pointer: str, space: str) -> str:
        """The elements from ``pointer`` on; ``space`` is how the language calls that memory."""
        return f"*({space}const {self.vector(dtype, width)} *)({pointer})"

    def wide_store(self, dtype: DType, width: int, pointer: str, values: Sequence[str], space: str) -> str:
        """The statement that stores elements from ``pointer`` on."""
        kind, listed = self.vector(dtype, width), ", ".join(values)
        made = f"({kind})({listed})" if self._dialect.vectors else f"{kind}{{{listed}}}"
        return f"*({space}{kind} *)({pointer}) = {made};"

    def verbatim(self, name: str, text: str) -> str:
        """The name of a function whose text is given, without what begins every helper."""
        self._texts.setdefault(name, f"{self._dialect.inline} {text}")
        return name

    def declaration(self, name: str, text: str) -> None:
        """A definition that is no function, whose whole text is given."""
        self._texts.setdefault(name, text)

    def _add(self, name: str, template: str, dtype: DType | None) -> None:
        dialect = self._dialect
        values: dict[str, str] = dict(dialect.types) | {"name": name}
        values["u64"] = dialect.types["u64"]
        if dtype is not None:
            values["T"] = dialect.types[dtype.name]
            values["U"] = dialect.types[_UNSIGNED.get(dtype.name, dtype.name)]
        at = 1 if dtype is not None and dtype.name == "f64" else 0
        for fn in _MATH:
            values[fn] = call_name(dialect, fn, at)
        self._texts[name] = f"{dialect.inline} {Template(template).substitute(values)}"


def call_name(dialect: Dialect, fn: str, wide: int) -> str:
    """A library function of one f32 (``wide`` 0) or f64 (1): C's name with its suffix unless stated."""
    known = dialect.functions.get(fn)
    return known[wide] if known is not None else fn + ("" if wide else "f")


def _ends(dtype: DType) -> tuple[str, str]:
    return integer_literal(int(dtype.min_value), dtype), integer_literal(int(dtype.max_value), dtype)


def integer_literal(value: int, dtype: DType) -> str:
    """An integer as text; the least value of a type is no literal of its own."""
    if dtype.kind == "uint":
        return f"{value}{'ul' if dtype.bits == DTYPES['u64'].bits else 'u'}"
    suffix = "L" if dtype.bits == DTYPES["i64"].bits else ""
    if value == int(dtype.min_value) and dtype.bits >= DTYPES["i32"].bits:
        return f"(-{-(value + 1)}{suffix} - 1)"
    return f"{value}{suffix}" if value >= 0 else f"({value}{suffix})"
