"""Complex numbers as pairs of tensors: arithmetic, products, Fourier transforms, movement of both parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from tilewright.frontend.torch import elementwise, indexing, layers, movement, reductions
from tilewright.frontend.torch.writer import Operand, Value, Writer

#: Lengths up to which transforms are products with tables; torch's own take fewer steps beyond.
_LONGEST: Final = 4096

Part: TypeAlias = Operand
Rule: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Complex:
    """Complex numbers: their real and their imaginary parts, of one type."""

    real: Value
    imaginary: Value

    @property
    def dtype(self) -> str:
        """The type of the parts."""
        return self.real.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each part."""
        return self.real.shape


def joined(w: Writer, x: Complex) -> Value:
    """The two parts along a last axis of two."""
    parts = [w.reshape(part, [*part.shape, 1]) for part in (x.real, x.imaginary)]
    return w.add("Concat", *parts, axis=len(x.shape))


def split(w: Writer, x: Value) -> Complex:
    """What stands along a last axis of two as the parts."""
    axis = x.rank - 1
    real, imaginary = (w.reshape(w.slice(x, axis, at, at + 1), x.shape[:-1]) for at in (0, 1))
    return Complex(real, imaginary)


def parts(x: Any) -> tuple[Part, Part]:
    """The real and the imaginary part of an operand."""
    if isinstance(x, Complex):
        return x.real, x.imaginary
    return (x.real, x.imag) if isinstance(x, complex) else (x, 0)


def _whole(w: Writer, x: Part) -> Value:
    return w.expand(w.to(x, w.out.dtype), w.out.sizes)


def _combined(w: Writer, op: str, a: Part, b: Part) -> Part:
    """A sum, difference or product; what is zero is left out."""
    zero_a, zero_b = (not isinstance(x, Value) and x == 0 for x in (a, b))
    if op == "Mul" and (zero_a or zero_b):
        return 0
    if zero_b and op != "Mul":
        return a
    if zero_a and op == "Add":
        return b
    return w.add(op, w.to(a, w.out.dtype), w.to(b, w.out.dtype))


def _sum(op: str) -> Rule:
    def rule(w: Writer, self: Any, other: Any, alpha: Any = 1) -> Complex:
        pairs = zip(parts(self), parts(other), strict=True)
        scaled = [(a, b if alpha == 1 else _combined(w, "Mul", b, alpha)) for a, b in pairs]
        return Complex(*(_whole(w, _combined(w, op, a, b)) for a, b in scaled))

    return rule


def _product(w: Writer, self: Any, other: Any) -> Complex:
    (a, b), (c, d) = parts(self), parts(other)
    real = _combined(w, "Sub", _combined(w, "Mul", a, c), _combined(w, "Mul", b, d))
    imaginary = _combined(w, "Add", _combined(w, "Mul", a, d), _combined(w, "Mul", b, c))
    return Complex(_whole(w, real), _whole(w, imaginary))


def _quotient(w: Writer, self: Any, other: Any) -> Complex:
    """By Smith's method (1962): the smaller part of the divisor is divided by the larger."""
    dtype = w.out.dtype
    a, b, c, d = (w.to(x, dtype) for x in (*parts(self), *parts(other)))
    if not isinstance(other, Complex | complex):
        return Complex(_whole(w, w.add("Div", a, c)), _whole(w, w.add("Div", b, c)))
    wide = w.add("GreaterOrEqual", w.add("Abs", c), w.add("Abs", d))
    large, small = w.add("Where", wide, c, d), w.add("Where", wide, d, c)
    share = w.add("Div", small, large)
    bottom = w.add("Add", large, w.add("Mul", small, share))
    a_share, b_share = w.add("Mul", a, share), w.add("Mul", b, share)
    real = w.add("Where", wide, w.add("Add", a, b_share), w.add("Add", a_share, b))
    imaginary = w.add("Where", wide, w.add("Sub", b, a_share), w.add("Sub", b_share, a))
    return Complex(*(_whole(w, w.add("Div", x, bottom)) for x in (real, imaginary)))


def _matrix_product(w: Writer, self: Any, mat2: Any) -> Complex:
    (a, b), (c, d) = parts(self), parts(mat2)

    def times(x: Part, y: Part) -> Part:
        return w.add("MatMul", x, y) if isinstance(x, Value) and isinstance(y, Value) else 0

    real = _combined(w, "Sub", times(a, c), times(b, d))
    return Complex(_whole(w, real), _whole(w, _combined(w, "Add", times(a, d), times(b, c))))


def _conjugate(w: Writer, self: Complex) -> Complex:
    return Complex(self.real, w.add("Neg", self.imaginary))


def _exponential(w: Writer, self: Complex) -> Complex:
    size = w.add("Exp", self.real)
    return Complex(*(w.add("Mul", size, w.add(op, self.imaginary)) for op in ("Cos", "Sin")))


def _polar(w: Writer, abs: Value, angle: Value) -> Complex:
    return Complex(*(_whole(w, w.add("Mul", abs, w.add(op, angle))) for op in ("Cos", "Sin")))


def _converted(w: Writer, self: Any, *_: Any, **__: Any) -> Any:
    real, imaginary = (_whole(w, part) for part in parts(self))
    return Complex(real, imaginary) if w.complex else real


def _filled(w: Writer, *given: Any, **_: Any) -> Complex:
    return Complex(*(_whole(w, part) for part in parts(given[1] if len(given) > 1 else 0)))


def _chosen(w: Writer, condition: Value, self: Any, other: Any) -> Complex:
    pairs = zip(parts(self), parts(other), strict=True)
    return Complex(*(elementwise.where(w, condition, a, b) for a, b in pairs))  # type: ignore[arg-type]


def _equal(negated: bool) -> Rule:
    def rule(w: Writer, self: Any, other: Any) -> Value:
        pairs = zip(parts(self), parts(other), strict=True)
        dtype = next(x.dtype for x in (self, other) if isinstance(x, Complex))
        same = [w.add("Equal", w.to(a, dtype), w.to(b, dtype)) for a, b in pairs]
        made = w.add("And", *same)
        return w.add("Not", made) if negated else made

    return rule


def _parted(rule: Rule) -> Rule:
    """A rule that does the same to both parts."""

    def part(x: Any, at: int) -> Any:
        if isinstance(x, list | tuple):
            return [part(each, at) for each in x]
        return parts(x)[at] if isinstance(x, Complex | complex) else x

    def made(w: Writer, *args: Any, **kwargs: Any) -> Any:
        both = [rule(w, *part(args, at), **{k: part(v, at) for k, v in kwargs.items()}) for at in (0, 1)]
        if isinstance(both[0], Value):
            return Complex(*both)
        return [Complex(a, b) for a, b in zip(*both, strict=True)]

    return made


def _transformed(
    w: Writer, x: Value, axis: int, inverse: bool, onesided: bool, length: int | None = None
) -> Value:
    """A transform along an axis of pairs, or of single numbers; the inverse one divided by the length."""
    count = x.shape[axis] if length is None else length
    w.require(0 < count <= _LONGEST, f"a transform of {count} numbers")
    asked = None if length is None else w.number(length, "i64")
    return w.add("DFT", x, asked, w.number(axis, "i64"), inverse=int(inverse), onesided=int(onesided))


def _scaled(w: Writer, x: Value, counts: Sequence[int], normalization: int, inverse: bool) -> Value:
    total = math.prod(counts)
    factor = (1.0, 1 / math.sqrt(total), 1 / total)[normalization] * (total if inverse else 1)
    return x if factor == 1 else w.add("Mul", x, w.number(factor, x.dtype))


def _from_real(w: Writer, self: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Complex:
    axes = [w.axis(axis, self.rank) for axis in dim]
    x = w.reshape(self, [*self.shape, 1])
    for at, axis in enumerate(reversed(axes)):
        x = _transformed(w, x, axis, False, onesided and at == 0)
    return split(w, _scaled(w, x, [self.shape[axis] for axis in axes], normalization, False))


def _of_complex(w: Writer, self: Complex, dim: Sequence[int], normalization: int, forward: bool) -> Complex:
    axes = [w.axis(axis, len(self.shape)) for axis in dim]
    x = joined(w, self)
    for axis in axes:
        x = _transformed(w, x, axis, not forward, False)
    return split(w, _scaled(w, x, [self.shape[axis] for axis in axes], normalization, not forward))


def _to_real(w: Writer, self: Complex, dim: Sequence[int], normalization: int, last_dim_size: int) -> Value:
    axes = [w.axis(axis, len(self.shape)) for axis in dim]
    x = joined(w, self)
    for axis in axes[:-1]:
        x = _transformed(w, x, axis, True, False)
    x = _transformed(w, x, axes[-1], True, True, last_dim_size)
    counts = [*(self.shape[axis] for axis in axes[:-1]), last_dim_size]
    return _scaled(w, w.reshape(x, w.out.sizes), counts, normalization, True)


_SAME: Final = (
    *(f"{name}.default" for name in ("view", "_unsafe_view", "reshape", "squeeze", "view_copy", "unsqueeze")),
    *(f"{name}.default" for name in ("permute", "permute_copy", "slice_scatter", "select_scatter", "cat")),
    *(
        f"{name}.default"
        for name in ("split_with_sizes", "repeat", "flip", "diagonal", "unfold", "as_strided")
    ),
    *(
        f"{name}.default"
        for name in ("index_select", "gather", "tril", "triu", "sum", "mean", "neg", "cumsum")
    ),
    *(f"{name}.default" for name in ("expand", "clone", "alias", "detach", "index_put", "diagonal_scatter")),
    *(
        "squeeze.dim",
        "squeeze.dims",
        "transpose.int",
        "t.default",
        "slice.Tensor",
        "select.int",
        "index.Tensor",
    ),
    *("sum.dim_IntList", "mean.dim", "constant_pad_nd.default", "scatter_add.default", "copy.default"),
)

_OF_NUMBERS: Final[Mapping[str, Rule]] = {
    **elementwise.RULES,
    **reductions.RULES,
    **movement.RULES,
    **indexing.RULES,
    **layers.RULES,
}

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        **{name: _parted(_OF_NUMBERS[name]) for name in _SAME},
        **{f"add.{kind}": _sum("Add") for kind in ("Tensor", "Scalar")},
        **{f"sub.{kind}": _sum("Sub") for kind in ("Tensor", "Scalar")},
        **{f"mul.{kind}": _product for kind in ("Tensor", "Scalar")},
        **{f"div.{kind}": _quotient for kind in ("Tensor", "Scalar")},
        **{f"eq.{kind}": _equal(False) for kind in ("Tensor", "Scalar")},
        **{f"ne.{kind}": _equal(True) for kind in ("Tensor", "Scalar")},
        **dict.fromkeys(("mm.default", "bmm.default", "mv.default"), _matrix_product),
        **dict.fromkeys(("_conj.default", "_conj_physical.default", "conj_physical.default"), _conjugate),
        **dict.fromkeys(("full.default", "full_like.default"), _filled),
        "reciprocal.default": lambda w, self: _quotient(w, 1, self),
        "exp.default": _exponential,
        "polar.default": _polar,
        "complex.default": lambda w, real, imag: Complex(_whole(w, real), _whole(w, imag)),
        "abs.default": lambda w, self: elementwise.hypotenuse(w, self.real, self.imaginary),
        "angle.default": lambda w, self: elementwise.atan2(w, self.imaginary, self.real),
        "view_as_real.default": joined,
        "view_as_complex.default": split,
        "_to_copy.default": _converted,
        "scalar_tensor.default": _converted,
        "where.self": _chosen,
        "_fft_r2c.default": _from_real,
        "_fft_c2c.default": _of_complex,
        "_fft_c2r.default": _to_real,
    }
)
