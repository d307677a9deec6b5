"""The onnx package's node cases at other sizes: axes of 0 and of 1, scalars, other operands constant.

An axis length that occurs in the inputs of a case is replaced everywhere by another one; attributes stay, so
that many of these models are wrong. What another engine computes of them must be computed here, too, and what
is refused must be refused in this package's own words.
"""

from __future__ import annotations

import random
import warnings

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from conformance.node_cases import cases

LENGTHS = (0, 0, 0, 1, 1, 2)


def resized(array: np.ndarray, old: int, new: int, rng: random.Random) -> np.ndarray:
    """The array with `new` elements along every axis of `old`; shapes that are given as integers as well."""
    for axis, size in enumerate(array.shape):
        if size == old:
            array = np.take(array, [at % old for at in range(new)], axis=axis)
    if array.dtype == np.int64 and array.ndim == 1 and rng.random() < 0.5:
        array = np.where(array == old, new, array)
    return array


def variant(seed: int) -> tuple[str, onnx.ModelProto, dict[str, np.ndarray]] | None:
    """A case at other sizes, and what it is run on; None where there is none."""
    rng = random.Random(seed)
    name = rng.choice(sorted(cases()))
    case = cases()[name]
    if not case.data_sets:
        return None
    given = case.data_sets[0][0]
    if not all(isinstance(a, np.ndarray | np.generic | onnx.TensorProto) for a in given):
        return None
    arrays = [numpy_helper.to_array(a) if isinstance(a, onnx.TensorProto) else np.asarray(a) for a in given]
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    names = [value.name for value in model.graph.input]
    feeds = dict(zip(names, arrays, strict=False))
    lengths = sorted({size for a in arrays for size in a.shape if size})
    if lengths and rng.random() < 0.9:
        old, new = rng.choice(lengths), rng.choice(LENGTHS)
        feeds = {key: resized(array, old, new, rng) for key, array in feeds.items()}
    fixed = [key for key, a in feeds.items() if (a.dtype.kind in "iub" and a.size < 9) or rng.random() < 0.15]
    constants = [numpy_helper.from_array(np.ascontiguousarray(feeds.pop(key)), key) for key in fixed]
    inputs = [value for value in model.graph.input if value.name not in fixed]
    del model.graph.input[:]
    for value in inputs:
        if value.name in feeds:
            elem = value.type.tensor_type.elem_type
            value = helper.make_tensor_value_info(value.name, elem, feeds[value.name].shape)
        model.graph.input.append(value)
    model.graph.initializer.extend(constants)
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    model.ir_version = max(model.ir_version, 4)  # from there on constants need not be inputs
    del model.graph.value_info[:]
    return name, model, feeds


def by_reference(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """What the onnx package's evaluator gives; None where it cannot."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return ReferenceEvaluator(model).run(None, feeds)
        except Exception:  # noqa: BLE001  # of any kind: it is no judge then
            return None
