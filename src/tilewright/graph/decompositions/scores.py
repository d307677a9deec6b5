"""Scores of classifiers and regressors: what becomes of sums, and which label they mean.

Source: the ONNX standard (ai.onnx.ml); two classes with one score as onnxruntime has them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.graph.parts import Parts

#: What may be done to scores.
TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
#: Scores that count as zero for SOFTMAX_ZERO.
_ZERO: Final = 1e-7
#: The constant of Winitzki's approximation of the inverse of the error function.
_WINITZKI: Final = 0.147


def transformed(p: Parts, scores: str, how: str, dtype: str = "f32") -> str:
    """Scores [rows, classes] after one of `TRANSFORMS`."""
    if how == "LOGISTIC":
        return p.add("Sigmoid", (scores,))
    if how == "SOFTMAX":
        return p.add("Softmax", (scores,), axis=1)
    if how == "SOFTMAX_ZERO":
        return _softmax_zero(p, scores, dtype)
    return _probit(p, scores, dtype) if how == "PROBIT" else scores


def _softmax_zero(p: Parts, scores: str, dtype: str) -> str:
    """Softmax in which zeros stay zeros where the largest score is none; 1/2 each where all are."""
    most = p.add("ReduceMax", (scores, p.ints((1,))), keepdims=1)
    zero = p.add("LessOrEqual", (p.add("Abs", (scores,)), p.number(_ZERO, dtype)))
    scaled = p.add("Mul", (scores, p.add("Exp", (p.add("Neg", (most,)),))))
    parts = p.add("Where", (zero, scaled, p.add("Exp", (p.add("Sub", (scores, most)),))))
    total = p.add("ReduceSum", (parts, p.ints((1,))), keepdims=1)
    none = p.add("Equal", (total, p.number(0.0, dtype)))
    safe = p.add("Where", (none, p.number(1.0, dtype), total))
    return p.add("Where", (none, p.number(0.5, dtype), p.add("Div", (parts, safe))))


def _probit(p: Parts, scores: str, dtype: str) -> str:
    """sqrt(2) erfinv(2 x - 1), by Winitzki's approximation, as runtimes have it."""
    x = p.add("Sub", (p.add("Mul", (scores, p.number(2.0, dtype))), p.number(1.0, dtype)))
    one = p.number(1.0, dtype)
    log = p.add("Log", (p.add("Mul", (p.add("Sub", (one, x)), p.add("Add", (one, x)))),))
    half = p.add("Mul", (log, p.number(0.5, dtype)))
    a = p.add("Add", (half, p.number(2.0 / (math.pi * _WINITZKI), dtype)))
    square = p.add("Sub", (p.add("Mul", (a, a)), p.add("Mul", (log, p.number(1.0 / _WINITZKI, dtype)))))
    root = p.add("Sqrt", (p.add("Sub", (p.add("Sqrt", (square,)), a)),))
    signed = p.add("Where", (p.add("Less", (x, p.number(0.0, dtype))), p.add("Neg", (root,)), root))
    return p.add("Mul", (signed, p.number(math.sqrt(2.0), dtype)))


def classified(
    p: Parts,
    scores: str,
    labels: Sequence[int],
    how: str,
    dtype: str,
    *,
    one: bool = False,
    least: float | None = None,
    scored: Sequence[int] = (),
) -> None:
    """Give a classifier's labels and scores, those of f32 whatever they were computed in.

    With `one` there are two labels and a single score [rows, 1], that of the second. With `least` the second
    is the label where its score is larger; 0.5 says that scores are probabilities. `scored` are the classes
    that may be the label, where that is not all.
    """
    if scored:
        labels = [labels[at] for at in scored]
        rated = p.add("Gather", (scores, p.constant(np.array(scored, np.int64))), axis=1)
        chosen = p.add("ArgMax", (rated,), axis=1, keepdims=0)
    elif least is None:
        chosen = p.add("ArgMax", (scores,), axis=1, keepdims=0)
    else:
        second = scores if one else p.split(scores, (1, 1), 1)[1]
        above = p.add("Greater", (p.reshape(second, (-1,)), p.number(least, dtype)))
        chosen = p.add("Cast", (above,), to="i64")
    likely = one and (how == "PROBIT" or (least == 0.5 and how != "LOGISTIC"))
    if one:
        other = p.add("Sub", (p.number(1.0, dtype), scores)) if likely else p.add("Neg", (scores,))
        scores = p.add("Concat", (other, scores), axis=1)
    made = scores if likely and how != "PROBIT" else transformed(p, scores, how, dtype)
    p.give(p.add("Gather", (p.constant(np.array(labels, np.int64)), chosen), axis=0))
    p.give(made if dtype == "f32" else p.add("Cast", (made,), to="f32"), 1)
