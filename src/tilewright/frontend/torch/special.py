"""Special functions in single precision: polynomials by parts of octaves, fitted to torch's in double."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from types import MappingProxyType
from typing import Final

import numpy as np
import torch

from tilewright.frontend.torch.writer import Made, Rule, Rules, Value, Writer
from tilewright.graph import OWN, Array

#: Parts of each octave, and the degree in each: what is here errs by less than single precision rounds.
_PARTS: Final = 4
_DEGREE: Final = 8
#: The octaves of the positive numbers of single precision.
_OCTAVES: Final = range(-149, 128)
#: Below the first, numbers are raised by the second, so that inverses of widths are no infinities.
_TINY, _RAISED = -60, 64

Exact = Callable[[torch.Tensor], torch.Tensor]


@cache
def _table(exact: Exact, first: int, last: int) -> tuple[Array, ...]:
    """Of each part: its middle, the inverse of half its width, and the coefficients from the constant on."""
    starts = 2.0 ** np.repeat(np.arange(first, last), _PARTS)
    half = starts / (2 * _PARTS)
    middle = starts * (1 + np.tile(np.arange(_PARTS), last - first) / _PARTS) + half
    nodes = np.cos((np.arange(_DEGREE + 1) + 0.5) * np.pi / (_DEGREE + 1))
    values = exact(torch.from_numpy(middle[:, None] + half[:, None] * nodes)).numpy()
    # where the function overflows or is none, its callers say what is
    values = np.clip(np.nan_to_num(values), -np.finfo(np.float32).max, np.finfo(np.float32).max)
    powers = np.linalg.inv(np.vander(nodes, increasing=True))
    raised = np.where(starts < 2.0**_TINY, 2.0**_RAISED, 1.0)
    columns = (middle * raised, 1 / (half * raised), *(values @ powers.T).T)
    return tuple(np.ascontiguousarray(column.astype(np.float32)) for column in columns)


def fitted(
    w: Writer, x: Value, exact: Exact, first: int = _OCTAVES.start, last: int = _OCTAVES.stop
) -> Value:
    """A function of numbers from 2**first to 2**last, constant beyond."""
    f = _Formula(w)
    middle, narrow, *coefficients = (w.constant(column) for column in _table(exact, first, last))
    # at most the largest number below the end
    inside = f("Min", f("Max", x, 2.0**first), 2.0**last * (1 - 2.0**-24))
    tiny = f("Less", inside, 2.0**_TINY)
    inside = f.where(tiny, f("Mul", inside, 2.0**_RAISED), inside)
    # a logarithm next to a whole number may be rounded to it: the part beside is as good, but not the scale
    octave = f("Floor", f("Log2", inside))
    octave = f.where(tiny, f("Min", octave, _TINY + _RAISED - 1.0), f("Max", octave, float(_TINY)))
    share = f("Sub", f("Mul", inside, f("Exp2", f("Neg", octave))), 1.0)
    part = f("Min", f("Max", f("Floor", f("Mul", share, float(_PARTS))), 0.0), _PARTS - 1.0)
    octave = f("Sub", octave, f.where(tiny, float(first + _RAISED), float(first)))
    place = f("Add", f("Mul", octave, float(_PARTS)), part)
    place = w.to(f("Min", f("Max", place, 0.0), (last - first) * _PARTS - 1.0), "i64")
    u = f("Mul", f("Sub", inside, w.add("Gather", middle, place)), w.add("Gather", narrow, place))
    made = w.add("Gather", coefficients[-1], place)
    for column in reversed(coefficients[:-1]):
        made = f("Add", f("Mul", made, u), w.add("Gather", column, place))
    return made


@cache
def _by_itself(exact: Exact) -> Exact:
    """A function by its argument."""
    return lambda x: x * exact(x)


class _Formula:
    """Arithmetic of values in single precision, as formulas have it."""

    def __init__(self, w: Writer) -> None:
        self.w = w

    def __call__(self, op: str, *operands: Value | float) -> Value:
        own = op in ("Exp2", "Log2", "Trunc", "CopySign")
        return self.w.add(op, *(self.w.to(x, "f32") for x in operands), domain=OWN if own else "")

    def where(self, condition: Value, a: Value | float, b: Value | float) -> Value:
        """One or the other."""
        return self.w.add("Where", condition, self.w.to(a, "f32"), self.w.to(b, "f32"))


def _over(f: _Formula, x: Value, exact: Exact) -> Value:
    """A function of positive numbers that grows as their inverse, or slower, next to zero."""
    near = f("Div", fitted(f.w, x, _by_itself(exact), last=0), x)
    return f.where(f("Less", x, 1.0), near, fitted(f.w, x, exact, first=0))


def _rule(of: Callable[[_Formula, Value], Value]) -> Rule:
    """A function of single precision; what is no number stays."""

    def rule(w: Writer, self: Value) -> Made:
        w.require(w.inner == "f32", "special functions in double precision")
        x = w.to(w.to(self, w.out.dtype), "f32")
        f = _Formula(w)
        strange = w.add("IsNaN", x)
        return w.to(f.where(strange, x, of(f, f.where(strange, 1.0, x))), w.out.dtype)

    return rule


def _even(exact: Exact, end: float, odd: bool = False) -> Rule:
    """A function of the magnitude, or with the sign of the number, which goes to ``end``."""

    def of(f: _Formula, x: Value) -> Value:
        size = f("Abs", x)
        made = f.where(f("IsInf", size), end, fitted(f.w, size, exact))
        return f("CopySign", made, x) if odd else made

    return _rule(of)


def _grown(exact: Exact, odd: bool = False) -> Rule:
    """The same by the exponential of the magnitude."""

    def of(f: _Formula, x: Value) -> Value:
        size = f("Abs", x)
        # in two halves: the whole function is finite where the exponential is not
        half = f("Exp", f("Mul", size, 0.5))
        made = f("Mul", f("Mul", fitted(f.w, size, exact), half), half)
        made = f.where(f("IsInf", x), math.nan, made)
        return f("CopySign", made, x) if odd else made

    return _rule(of)


def _decaying(exact: Exact, scaled: bool) -> Rule:
    """A function of positive numbers that falls as the exponential, without it where it is ``scaled``."""

    def of(f: _Formula, x: Value) -> Value:
        made = _over(f, x, exact)
        if not scaled:
            made = f("Mul", made, f("Exp", f("Neg", x)))
        made = f.where(f("IsInf", x), 0.0, made)
        return f.where(f("Less", x, 0.0), math.nan, f.where(f("Equal", x, 0.0), math.inf, made))

    return _rule(of)


def _lgamma(f: _Formula, x: Value) -> Value:
    size = f("Abs", x)
    made = fitted(f.w, size, torch.lgamma)
    made = f.where(f("Equal", size, 0.0), math.inf, f.where(f("Greater", size, 4.08e36), math.inf, made))
    turn = f("Sub", size, f("Round", size))
    sine = f("Abs", f("Sin", f("Mul", turn, math.pi)))
    mirrored = f("Sub", f("Sub", f("Sub", math.log(math.pi), f("Log", size)), f("Log", sine)), made)
    mirrored = f.where(f("Equal", sine, 0.0), math.inf, f.where(f("IsInf", x), math.inf, mirrored))
    return f.where(f("Less", x, 0.0), mirrored, made)


def _digamma(f: _Formula, x: Value) -> Value:
    below = f("Less", x, 0.0)
    size = f.where(below, f("Sub", 1.0, x), x)
    made = f.where(f("IsInf", size), math.inf, _over(f, size, torch.digamma))
    turn = f("Sub", x, f("Round", x))
    mirrored = f("Sub", made, f("Div", math.pi, f("Tan", f("Mul", turn, math.pi))))
    mirrored = f.where(f("Equal", turn, 0.0), math.nan, mirrored)
    made = f.where(f("Equal", x, 0.0), f("CopySign", math.inf, f("Neg", x)), f.where(below, mirrored, made))
    return f.where(f("Equal", x, -math.inf), math.nan, made)


def _square_decay(f: _Formula, x: Value) -> Value:
    """exp(-x * x): the square in two parts, so that its rounding is not magnified."""
    head = f("Mul", f("Trunc", f("Mul", x, 64.0)), 1 / 64)
    rest = f("Mul", f("Sub", x, head), f("Add", x, head))
    return f("Mul", f("Exp", f("Neg", f("Mul", head, head))), f("Exp", f("Neg", rest)))


def _erfcx(f: _Formula, x: Value) -> Value:
    size = f("Abs", x)
    made = f.where(f("IsInf", size), 0.0, fitted(f.w, size, torch.special.erfcx))
    grown = f("Div", 2.0, _square_decay(f, f("Min", size, 16.0)))
    return f.where(f("Less", x, 0.0), f("Sub", grown, made), made)


def _erfc(f: _Formula, x: Value) -> Value:
    size = f("Min", f("Max", x, 0.5), 16.0)
    far = f("Mul", fitted(f.w, size, torch.special.erfcx), _square_decay(f, size))
    return f.where(f("Less", x, 0.5), f("Sub", 1.0, f("Erf", x)), far)


def _ndtri(f: _Formula, x: Value) -> Value:
    upper = f("Greater", x, 0.5)
    size = f.where(upper, f("Sub", 1.0, x), x)
    made = fitted(f.w, size, torch.special.ndtri, last=0)
    made = f.where(f("Equal", size, 0.0), -math.inf, f.where(f("Less", size, 0.0), math.nan, made))
    return f.where(upper, f("Neg", made), made)


def _from_one(t: torch.Tensor) -> torch.Tensor:
    """The inverse of the complementary error function: by the normal quantile, exact next to one."""
    return -torch.special.ndtri(t / 2) / math.sqrt(2)


def _erfinv(f: _Formula, x: Value) -> Value:
    size = f("Abs", x)
    rest = f("Sub", 1.0, size)
    near = fitted(f.w, size, torch.erfinv, last=-1)
    far = f.where(f("Equal", rest, 0.0), math.inf, fitted(f.w, rest, _from_one, last=0))
    made = f.where(f("Equal", size, 0.0), 0.0, f.where(f("Greater", size, 0.5), far, near))
    return f.where(f("Less", rest, 0.0), math.nan, f("CopySign", made, x))


def _spherical(f: _Formula, x: Value) -> Value:
    made = f.where(f("Less", f("Abs", x), 2.0**-10), 1.0, f("Div", f("Sin", x), x))
    return f.where(f("IsInf", x), 0.0, made)


def _bessel(order: int, second: bool) -> Rule:
    """Bessel functions; far out waves whose amplitude and phase change slowly."""
    first_kind = (torch.special.bessel_j0, torch.special.bessel_j1)[order]
    second_kind = (torch.special.bessel_y0, torch.special.bessel_y1)[order]
    own: Exact = second_kind if second else first_kind

    def of(f: _Formula, x: Value) -> Value:
        size = f("Abs", x)
        cosine, sine = _SLOW[order]
        p, q = (fitted(f.w, size, part, 3, _OCTAVES.stop) for part in (cosine, sine))
        c, s = f("Cos", size), f("Sin", size)
        wave = (
            f("Add", f("Mul", p, s), f("Mul", q, c)) if second else f("Sub", f("Mul", p, c), f("Mul", q, s))
        )
        near = _over(f, size, own) if second else fitted(f.w, size, own, last=4)
        made = f.where(f("Less", size, 16.0), near, wave)
        made = f.where(f("IsInf", size), math.nan, made)
        if second:
            return f.where(f("Less", x, 0.0), math.nan, f.where(f("Equal", x, 0.0), -math.inf, made))
        return f.where(f("Less", x, 0.0), f("Neg", made), made) if order else made

    return _rule(of)


def _slow(j: Exact, y: Exact) -> tuple[Exact, Exact]:
    """What multiplies cosine and sine in both kinds: j = p cos - q sin, y = p sin + q cos."""
    return (
        lambda x: j(x) * x.cos() + y(x) * x.sin(),
        lambda x: y(x) * x.cos() - j(x) * x.sin(),
    )


_SLOW: Final = (
    _slow(torch.special.bessel_j0, torch.special.bessel_y0),
    _slow(torch.special.bessel_j1, torch.special.bessel_y1),
)


_SCALED: Final = (torch.special.scaled_modified_bessel_k0, torch.special.scaled_modified_bessel_k1)

RULES: Final[Rules] = MappingProxyType(
    {
        "lgamma.default": _rule(_lgamma),
        "digamma.default": _rule(_digamma),
        "erfc.default": _rule(_erfc),
        "special_erfcx.default": _rule(_erfcx),
        "erfinv.default": _rule(_erfinv),
        "special_ndtri.default": _rule(_ndtri),
        "special_i0e.default": _even(torch.special.i0e, 0.0),
        "special_i1e.default": _even(torch.special.i1e, 0.0, odd=True),
        **dict.fromkeys(("i0.default", "special_modified_bessel_i0.default"), _grown(torch.special.i0e)),
        **dict.fromkeys(
            ("special_i1.default", "special_modified_bessel_i1.default"), _grown(torch.special.i1e, True)
        ),
        **{f"special_scaled_modified_bessel_k{n}.default": _decaying(_SCALED[n], True) for n in (0, 1)},
        **{f"special_modified_bessel_k{n}.default": _decaying(_SCALED[n], False) for n in (0, 1)},
        **{f"special_bessel_{kind}{n}.default": _bessel(n, kind == "y") for kind in "jy" for n in (0, 1)},
        "special_spherical_bessel_j0.default": _rule(_spherical),
    }
)
