"""Operators on tables (ai.onnx.ml) besides trees: scaling, filling, encoding, linear models, support vectors.

Source: the ONNX standard (ai.onnx.ml); scores of two classes as onnxruntime has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.graph.decompositions.scores import TRANSFORMS, classified, transformed
from tilewright.graph.model import Array, Repeat
from tilewright.graph.parts import Parts, decomposition
from tilewright.graph.registry import ML, OWN

_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
#: Sweeps of the iteration for probabilities of several classes, and what counts as sure (libsvm's).
SWEEPS: Final = 100
_LEAST_PROBABILITY: Final = 1e-7
#: Each class of a sweep is four stages.
MOST_CLASSES: Final = 64


def _numbers(p: Parts, x: str) -> tuple[str, str]:
    """The rows as numbers: those of f64 stay such, all others are f32."""
    dtype = p.type(0).dtype
    if dtype in ("f32", "f64"):
        return x, dtype
    return p.add("Cast", (x,), to="f32"), "f32"


def _row(p: Parts, values: tuple[float, ...], dtype: str) -> str:
    return p.constant(np.array(values, np.float64 if dtype == "f64" else np.float32))


@decomposition("Scaler", domain=ML)
def scaler(p: Parts, x: str) -> None:
    """(x - offset) scale, one each or one a feature, in f32."""
    value = x if p.type(0).dtype == "f32" else p.add("Cast", (x,), to="f32")
    offset, scale = p.ctx.reals("offset", (0.0,)), p.ctx.reals("scale", (1.0,))
    width = p.type(0).sizes[-1]
    for name, given in (("offset", offset), ("scale", scale)):
        p.ctx.require(len(given) in (1, width), f"{name} has {len(given)} values for {width} features")
    p.give(p.add("Mul", (p.add("Sub", (value, _row(p, offset, "f32"))), _row(p, scale, "f32"))))


@decomposition("Normalizer", domain=ML)
def normalizer(p: Parts, x: str) -> None:
    """Rows divided by their norm; rows of zeros stay such."""
    value = x if p.type(0).dtype == "f32" else p.add("Cast", (x,), to="f32")
    norm = p.ctx.choice("norm", ("MAX", "L1", "L2"), "MAX")
    op = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}[norm]
    # the largest by sign, as runtimes have it
    total = p.add(op, (value, p.ints((-1,))), keepdims=1)
    zero = p.add("Equal", (total, p.number(0.0, "f32")))
    p.give(p.add("Div", (value, p.add("Where", (zero, p.number(1.0, "f32"), total)))))


@decomposition("Imputer", domain=ML)
def imputer(p: Parts, x: str) -> None:
    """Other values in place of those that stand for missing ones."""
    dtype = p.type(0).dtype
    whole = dtype in ("i64", "i32")
    ctx = p.ctx
    values: tuple[float, ...] = (
        ctx.integers("imputed_value_int64s", ()) if whole else ctx.reals("imputed_value_floats", ())
    )
    width = p.type(0).sizes[-1]
    ctx.require(len(values) in (1, width), f"{len(values)} values are given for {width} features")
    old = ctx.integer("replaced_value_int64", 0) if whole else ctx.real("replaced_value_float", 0.0)
    missing = p.add("IsNaN", (x,)) if np.isnan(old) else p.add("Equal", (x, p.number(old, dtype)))
    made = p.constant(np.array(values, np.int64 if dtype == "i64" else np.float32).astype(_held(dtype)))
    p.give(p.add("Where", (missing, made, x)))


def _held(dtype: str) -> str:
    return {"i64": "int64", "i32": "int32", "f64": "float64"}.get(dtype, "float32")


@decomposition("LabelEncoder", domain=ML)
def label_encoder(p: Parts, x: str) -> None:
    """The value of each key; a default for what is no key."""
    keys, values = _list(p, "keys"), _list(p, "values")
    p.ctx.require(len(keys) == len(values) > 0, f"it has {len(keys)} keys and {len(values)} values")
    default = _default(p, values)
    # of equal keys the last one counts
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    last = np.append(keys[1:] != keys[:-1], True) & ~((keys != keys) & np.append(keys[1:] != keys[1:], False))
    keys, values = keys[last], values[last]
    flat = p.reshape(x, (-1, 1))
    if p.type(0).dtype != _name(keys):
        flat = p.add("Cast", (flat,), to=_name(keys))
    same = p.add("Equal", (flat, p.constant(keys[None])))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        unknown = p.add("IsNaN", (flat,))
        nan = p.constant(np.isnan(keys)[None])
        same = p.add("Or", (same, p.add("And", (unknown, nan))))
    place = p.add("ArgMax", (p.add("Cast", (same,), to="u8"),), axis=1, keepdims=0)
    found = p.add(
        "Cast", (p.add("ReduceMax", (p.add("Cast", (same,), to="u8"), p.ints((1,))), keepdims=0),), to="bool"
    )
    chosen = p.add("Gather", (p.constant(values), place), axis=0)
    p.give(p.reshape(p.add("Where", (found, chosen, p.constant(default))), p.shape(0)))


def _list(p: Parts, what: str) -> Array:
    given = p.ctx.node.attributes
    for name, dtype in (
        (f"{what}_tensor", None),
        (f"{what}_int64s", np.int64),
        (f"{what}_floats", np.float32),
    ):
        if name in given:
            return np.asarray(given[name], dtype).reshape(-1)
    return np.zeros(0, np.int64)


def _default(p: Parts, values: Array) -> Array:
    given = p.ctx.node.attributes.get("default_tensor")
    if isinstance(given, np.ndarray):
        return given.reshape(-1)[:1].astype(values.dtype)
    if values.dtype.kind == "f":
        return np.array([p.ctx.real("default_float", -0.0)], values.dtype)
    return np.array([p.ctx.integer("default_int64", -1)], values.dtype)


def _name(array: Array) -> str:
    return {
        "int64": "i64",
        "int32": "i32",
        "int16": "i16",
        "float32": "f32",
        "float64": "f64",
        "bool": "bool",
    }.get(array.dtype.name, "i64")


@decomposition("OneHotEncoder", domain=ML)
def one_hot_encoder(p: Parts, x: str) -> None:
    """1 at the place of a category, nothing where there is none."""
    cats = p.ctx.integers("cats_int64s", ())
    p.ctx.require(bool(cats), "it has no categories")
    value = x if p.type(0).dtype == "i64" else p.add("Cast", (x,), to="i64")
    spread = p.reshape(value, (*p.shape(0), 1))
    same = p.add("Equal", (spread, p.constant(np.array(cats, np.int64))))
    p.give(p.add("Cast", (same,), to="f32"))


@decomposition("FeatureVectorizer", domain=ML)
def feature_vectorizer(p: Parts, *given: str) -> None:
    """Tables side by side, each cut or filled with zeros to the width that it is said to have."""
    widths = p.ctx.integers("inputdimensions", ())
    p.ctx.require(len(widths) == len(given), f"{len(given)} inputs, and {len(widths)} inputdimensions")
    parts = []
    for at, (name, width) in enumerate(zip(given, widths, strict=True)):
        type_ = p.type(at)
        value = name if type_.dtype == "f32" else p.add("Cast", (name,), to="f32")
        have = type_.sizes[1] if type_.rank > 1 else 1
        value = p.reshape(value, (type_.sizes[0], have)) if type_.rank != 2 else value
        if width < have:
            value = p.split(value, (width, have - width), 1)[0]
        elif width > have:
            value = p.add("Pad", (value, p.ints((0, 0, 0, width - have))))
        parts.append(value)
    p.give(p.add("Concat", parts, axis=1))


def _linear(p: Parts, x: str, rows: int, width: int) -> tuple[str, str]:
    """X A^T + b in the type of x, and that type."""
    value, dtype = _numbers(p, x)
    weights = p.ctx.reals("coefficients")
    fits = len(weights) == rows * width
    p.ctx.require(fits, f"coefficients has {len(weights)} values for {rows} rows of {width} features")
    kind = np.float64 if dtype == "f64" else np.float32
    matrix = p.constant(np.ascontiguousarray(np.array(weights, kind).reshape(rows, width).T))
    total = p.add("MatMul", (value, matrix))
    shift = p.ctx.reals("intercepts", ())
    p.ctx.require(len(shift) in (0, 1, rows), f"intercepts has {len(shift)} values for {rows} rows")
    return (p.add("Add", (total, _row(p, shift, dtype))) if shift else total), dtype


@decomposition("LinearRegressor", domain=ML)
def linear_regressor(p: Parts, x: str) -> None:
    """Linear functions of rows."""
    how, targets = p.ctx.choice("post_transform", TRANSFORMS, "NONE"), p.ctx.integer("targets", 1)
    p.ctx.require(targets > 0 and p.type(0).rank == 2, f"{targets} targets of rows {p.type(0)}")
    total, dtype = _linear(p, x, targets, p.type(0).sizes[1])
    if targets > 1 or not how.startswith("SOFTMAX"):
        total = transformed(p, total, how, dtype)
    p.give(total if dtype == "f32" else p.add("Cast", (total,), to="f32"))


@decomposition("LinearClassifier", domain=ML)
def linear_classifier(p: Parts, x: str) -> None:
    """Labels, and scores that are linear functions of rows."""
    ctx = p.ctx
    labels, how = ctx.integers("classlabels_ints", ()), ctx.choice("post_transform", TRANSFORMS, "NONE")
    width = p.type(0).sizes[-1]
    weights = ctx.reals("coefficients")
    ctx.require(p.type(0).rank == 2 and width > 0, f"its input is {p.type(0)}; it must be rows of features")
    rows = max(len(weights) // width, 1)
    ctx.require(
        len(labels) == rows or (rows, len(labels)) == (1, 2), f"{len(labels)} labels of {rows} scores"
    )
    total, dtype = _linear(p, x, rows, width)
    one = rows == 1 and len(labels) == 2
    if one:
        least = 0.0
        total = p.add("Concat", (p.add("Neg", (total,)), total), axis=1)
        classified(p, total, labels, how, dtype, least=least)
        return
    classified(p, total, labels, how, dtype)


@decomposition("SVMRegressor", domain=ML)
def svm_regressor(p: Parts, x: str) -> None:
    """A sum of kernels with support vectors, or a linear function."""
    ctx = p.ctx
    count, how = ctx.integer("n_supports", 0), ctx.choice("post_transform", TRANSFORMS, "NONE")
    rho = ctx.reals("rho", (0.0,))
    ctx.require(
        p.type(0).rank == 2 and len(rho) > 0, f"its input is {p.type(0)}; it must be rows of features"
    )
    value, dtype = _numbers(p, x)
    weights = np.array(ctx.reals("coefficients"))
    if count:
        kernels = _kernels(p, value, dtype, count)
        ctx.require(len(weights) == count, f"{len(weights)} coefficients of {count} support vectors")
    else:
        kernels = value
        width = p.type(0).sizes[1]
        ctx.require(len(weights) == width, f"{len(weights)} coefficients of {width} features")
    column = p.constant(weights.reshape(-1, 1).astype(_held(dtype)))
    total = p.add("Add", (p.add("MatMul", (kernels, column)), p.number(rho[0], dtype)))
    if ctx.integer("one_class", 0):
        above = p.add("Greater", (total, p.number(0.0, dtype)))
        total = p.add("Where", (above, p.number(1.0, dtype), p.number(-1.0, dtype)))
    total = transformed(p, total, how, dtype) if how in ("LOGISTIC", "PROBIT") else total
    p.give(total if dtype == "f32" else p.add("Cast", (total,), to="f32"))


def _kernels(p: Parts, x: str, dtype: str, count: int) -> str:
    """The kernel of each row with each support vector, [rows, vectors]."""
    ctx, width = p.ctx, p.type(0).sizes[1]
    given = np.array(ctx.reals("support_vectors"), _held(dtype))
    ctx.require(
        given.size == count * width, f"{given.size} numbers are no {count} vectors of {width} features"
    )
    vectors = np.ascontiguousarray(given.reshape(count, width).T)
    kind = ctx.choice("kernel_type", _KERNELS, "LINEAR")
    gamma, shift, degree = (*ctx.reals("kernel_params", ()), 0.0, 0.0, 0.0)[:3]
    products = p.add("MatMul", (x, p.constant(vectors)))
    if kind == "LINEAR":
        return products
    if kind == "RBF":
        # differences first: sums of squares less twice the products would cancel
        spread = p.add("Unsqueeze", (x, p.ints((1,))))
        apart = p.add("Sub", (spread, p.constant(given.reshape(1, count, width))))
        squares = p.add("ReduceSum", (p.add("Mul", (apart, apart)), p.ints((2,))), keepdims=0)
        return p.add("Exp", (p.add("Mul", (squares, p.number(-gamma, dtype))),))
    scaled = p.add("Add", (p.add("Mul", (products, p.number(gamma, dtype))), p.number(shift, dtype)))
    if kind == "SIGMOID":
        return p.add("Tanh", (scaled,))
    return p.add("Pow", (scaled, p.number(degree, dtype)))


@decomposition("SVMClassifier", domain=ML)
def svm_classifier(p: Parts, x: str) -> None:
    """Labels by the votes of a classifier for each pair of classes, and what these say."""
    ctx = p.ctx
    labels, how = ctx.integers("classlabels_ints", ()), ctx.choice("post_transform", TRANSFORMS, "NONE")
    counts, rho = ctx.integers("vectors_per_class", ()), ctx.reals("rho", (0.0,))
    classes = len(labels)
    ctx.require(p.type(0).rank == 2 and classes > 1, f"{classes} labels for rows {p.type(0)}")
    value, dtype = _numbers(p, x)
    weights = np.array(ctx.reals("coefficients"), _held(dtype))
    if not sum(counts):
        width = p.type(0).sizes[1]
        ctx.require(weights.size == classes * width, f"{weights.size} coefficients of {classes} classes")
        matrix = np.ascontiguousarray(weights.reshape(classes, width).T)
        total = p.add("Add", (p.add("MatMul", (value, p.constant(matrix))), p.number(rho[0], dtype)))
        classified(p, total, labels, how, dtype)
        return
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    fits = len(counts) == classes and weights.size == (classes - 1) * sum(counts) and len(rho) == len(pairs)
    ctx.require(fits, f"{weights.size} coefficients and {len(rho)} rho do not fit {counts} support vectors")
    weights = weights.reshape(classes - 1, sum(counts))
    ends = np.cumsum((0, *counts))
    matrix, votes = (
        np.zeros((sum(counts), len(pairs)), weights.dtype),
        np.zeros((len(pairs), classes), np.float32),
    )
    for at, (i, j) in enumerate(pairs):
        own, other = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        matrix[own, at], matrix[other, at] = weights[j - 1, own], weights[i, other]
        votes[at, i], votes[at, j] = 1, -1
    kernels = _kernels(p, value, dtype, sum(counts))
    scores = p.add("Add", (p.add("MatMul", (kernels, p.constant(matrix))), _row(p, rho, dtype)))
    won = p.add("Cast", (p.add("Greater", (scores, p.number(0.0, dtype))),), to="f32")
    # who has not won a pair has lost it: the constant part says how many the second ones win without
    counted = p.add("Add", (p.add("MatMul", (won, p.constant(votes))), p.constant(-votes.clip(max=0).sum(0))))
    chosen = p.add("ArgMax", (counted,), axis=1, keepdims=0)
    first, second = ctx.reals("prob_a", ()), ctx.reals("prob_b", ())
    if first:
        fits = len(first) == len(second) == len(pairs)
        ctx.require(fits, "prob_a and prob_b must have one value a pair of classes")
        value = p.add("Add", (p.add("Mul", (scores, _row(p, first, dtype))), _row(p, second, dtype)))
        lost = p.add("Sigmoid", (value,))
        if classes > 2:
            scores = _coupled(p, lost, pairs, classes, dtype)
        else:
            scores = p.add("Concat", (p.add("Sub", (p.number(1.0, dtype), lost)), lost), axis=1)
    elif classes == 2:
        scores = p.add("Concat", (p.add("Neg", (scores,)), scores), axis=1)
    scores = transformed(p, scores, how, dtype)
    p.give(p.add("Gather", (p.constant(np.array(labels, np.int64)), chosen), axis=0))
    p.give(scores if dtype == "f32" else p.add("Cast", (scores,), to="f32"), 1)


def _coupled(p: Parts, lost: str, pairs: Sequence[tuple[int, int]], classes: int, dtype: str) -> str:
    """Probabilities [rows, classes] from those [rows, pairs] that of (i, j) it is j: see `CoupledStep`.

    Of r(i, j), that it is i, the matrix has -r(j, i) r(i, j) beside the diagonal, and on it sums over i of
    r(i, j)^2. What is nearly sure is taken as a little less, as by libsvm, whose iteration this is.
    """
    if classes > MOST_CLASSES:
        raise p.ctx.unsupported(f"probabilities of {classes} classes; at most {MOST_CLASSES} are computed")
    sure = p.number(1 - _LEAST_PROBABILITY, dtype), p.number(_LEAST_PROBABILITY, dtype)
    won = p.add("Sub", (p.number(1.0, dtype), lost))
    first = p.transpose(p.add("Min", (p.add("Max", (won, sure[1])), sure[0])), 1, 0)
    second = p.add("Sub", (p.number(1.0, dtype), first))
    both = p.add("Neg", (p.add("Mul", (first, second)),))
    beside = np.zeros((classes * classes, len(pairs)), _held(dtype))
    of_second, of_first = beside.copy(), beside.copy()
    for at, (i, j) in enumerate(pairs):
        beside[[i * classes + j, j * classes + i], at] = 1
        of_first[j * (classes + 1), at] = of_second[i * (classes + 1), at] = 1
    squares = (p.add("Mul", (each, each)) for each in (first, second))
    matrix = p.add("MatMul", (p.constant(beside), both))
    for sums, each in zip((of_first, of_second), squares, strict=True):
        matrix = p.add("Add", (matrix, p.add("MatMul", (p.constant(sums), each))))
    rows = p.shape(0)[0]
    even = p.filled((classes, rows), 1 / classes, dtype)
    shaped = p.reshape(matrix, (classes, classes, rows))
    repeat = Repeat(SWEEPS, (), ((1, 0),))
    (steps,) = p.several("CoupledStep", (shaped, even), 1, OWN, repeat=repeat)
    last = p.add("Gather", (steps, p.constant(np.array(SWEEPS - 1))), axis=0)
    return p.transpose(last, 1, 0)
