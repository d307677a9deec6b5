"""Checking a compiled model against a reference, tensor by tensor in the order of the computation.

The allowed error of a tensor is the package's one bound (``support.numerics``): its magnitude is the largest
element of the reference tensor, its number of terms the longest sum of reduction lengths on a way from the
inputs. The reference itself computes in the model's precision, for which the bound has room.

Models compiled with the precision bf16 round every value between kernels, and the weights. Two such roundings
a kernel are the terms then, with bf16's unit roundoff, and whole tensors are compared by norms as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, helper
from onnx.reference import ReferenceEvaluator

from tilewright.driver.engines import first_line, have_module, onnxruntime_errors, optional_module
from tilewright.driver.model import CompiledModel
from tilewright.graph import FILLED
from tilewright.ir import BF16, Program, dtype_of, most_iterations
from tilewright.lang import evaluate, largest
from tilewright.runtime import SavedModel
from tilewright.support import Comparison, InputError, InstallationError, compare, compare_norms

Array = npt.NDArray[Any]
Reference = Literal["auto", "onnx", "onnxruntime"]
ROUNDINGS_OF_A_KERNEL: Final = 2
"""Roundings to bf16 that a kernel adds on a way: its weights, and its result."""
ROUNDINGS_OF_A_PROGRAM: Final = 64
"""Roundings on the way to an element of a program, besides those of its sums."""
TERMS_OF_SAVED: Final = 10_000
"""Roundings on the way to an output of a saved model: as in a network of fifty layers of 200 terms."""
STEPS: Final = 2
"""Steps of quantisation by which what follows from a rounding may differ: it may fall on either side."""
LEVELS: Final = 255
"""Steps from the negative of the largest number to that: what is made of quantised numbers is compared so."""
REFERENCES: Final = ("auto", "onnx", "onnxruntime")


@dataclass(frozen=True, slots=True)
class TensorCheck:
    """The comparison of one tensor with its reference; ``made_by`` names the nodes that compute it."""

    name: str
    made_by: str
    comparison: Comparison
    output: bool

    @property
    def ok(self) -> bool:
        """Whether every element is within its bound."""
        return bool(self.comparison)


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome: every tensor compared, in the order of the computation, outputs of the model last."""

    reference: str
    checks: tuple[TensorCheck, ...]

    @property
    def first_difference(self) -> TensorCheck | None:
        """The first tensor that differs; None where all agree."""
        return next((check for check in self.checks if not check.ok), None)

    @property
    def ok(self) -> bool:
        """Whether all tensors agree with the reference."""
        return self.first_difference is None

    @property
    def worst(self) -> float:
        """The largest error of any tensor in units of its bound."""
        return max((check.comparison.ratio for check in self.checks), default=0.0)


def verify_model(
    compiled: CompiledModel | SavedModel,
    model: ModelProto,
    feeds: Mapping[str, Array],
    reference: Reference = "auto",
) -> Verification:
    """Compare the values between the kernels, and the outputs, of a compiled model with a reference.

    ``model`` is what was compiled. Of a saved model the outputs are compared; its file does not say how long
    its sums are, which are taken to have ``TERMS_OF_SAVED`` terms. ``auto`` is onnxruntime where installed,
    else the reference evaluator of the onnx package. Raises InstallationError where the wanted reference is
    not installed, InputError where it cannot run the model.
    """
    engine = _engine(reference)
    if isinstance(compiled, SavedModel):
        return _verify_saved(engine, compiled, model, feeds)
    found = compiled.intermediates(feeds)
    outputs = [info.name for info in compiled.outputs]
    result = compiled.run(None, feeds)
    named = {value for node in model.graph.node for value in node.output if value}
    originals = {value: value if value in named else value.removesuffix(FILLED) for value in found}
    inner = [value for value, name in originals.items() if name in named and name not in outputs]
    expected = _evaluate(engine, model, [originals[value] for value in inner], outputs, feeds)
    rounded = compiled.precision != "f32"
    terms, makers = _terms(compiled, rounded), _makers(compiled)
    deepest = max(terms.values(), default=1)
    quantised = _is_quantised(model)

    def check(name: str, value: str, array: Array, least: int, output: bool) -> TensorCheck:
        compared = _compare(array, expected[name], terms.get(value, least), rounded, quantised)
        return TensorCheck(name, makers.get(value, ""), compared, output)

    checks = []
    for value in inner:
        name, array = originals[value], found[value]
        if name != value:
            # the compiler added channels of zeros after those that the model has
            array = array[:, : expected[name].shape[1]]
        checks.append(check(name, value, array, 1, False))
    checks += [check(name, name, array, deepest, True) for name, array in zip(outputs, result, strict=True)]
    return Verification(engine, tuple(checks))


def verify_program(compiled: CompiledModel, program: Program, feeds: Mapping[str, Array]) -> Verification:
    """Compare the results of a compiled program with the language's evaluation by numpy, stage by stage.

    ``program`` is what was compiled, of fixed sizes; each element is allowed the rounding of what was summed
    for it. Where a rounding error makes a float another index, results differ that are both right.
    """
    expected, sums = evaluate(program, feeds), evaluate(program, feeds, absolute=True)
    results = compiled.run(None, feeds)
    longest = sum(most_iterations(stage, "red") for stage in program.stages)
    terms, checks = ROUNDINGS_OF_A_PROGRAM + longest, []
    for info, array in zip(compiled.outputs, results, strict=True):
        wanted = expected[info.name]
        size = np.maximum(np.abs(wanted * 1), sums[info.name])
        found = compare(array, wanted, magnitude=size, terms=terms)
        checks.append(TensorCheck(info.name, program.name, found, output=True))
    return Verification("its evaluation by numpy", tuple(checks))


def _verify_saved(
    engine: str, saved: SavedModel, model: ModelProto, feeds: Mapping[str, Array]
) -> Verification:
    names = [info.name for info in saved.outputs]
    expected = _evaluate(engine, model, [], names, feeds)
    made, quantised = zip(names, saved.run(None, feeds), strict=True), _is_quantised(model)
    checks = [
        TensorCheck(name, "", _compare(array, expected[name], TERMS_OF_SAVED, False, quantised), output=True)
        for name, array in made
    ]
    return Verification(engine, tuple(checks))


def _is_quantised(model: ModelProto) -> bool:
    """Whether a model rounds numbers to steps."""
    return any(
        node.op_type.startswith(("Quantize", "DynamicQuantize", "QLinear")) for node in model.graph.node
    )


def _in_steps(actual: Array, expected: Array, magnitude: float) -> Comparison:
    """The comparison of tensors that follow from quantised ones, in steps: bytes by 1, others by a part."""
    small = expected.dtype.kind in "iu" and expected.dtype.itemsize == 1
    allowed = STEPS * (1.0 if small else 2 * magnitude / LEVELS)
    wide, right = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        errors = np.where((wide == right) | (np.isnan(wide) & np.isnan(right)), 0.0, np.abs(wide - right))
    # nothing is as far from something as it can be
    errors = np.where(np.isnan(errors), np.inf, errors)
    bad = np.argwhere(errors > allowed)
    ratio = float(errors.max() / allowed) if allowed else float("inf")
    if not len(bad):
        return Comparison(ratio, None)
    at = tuple(map(int, bad[0]))
    return Comparison(ratio, at, float(wide[at]), float(right[at]), allowed, len(bad))


def _compare(
    actual: Array, expected: Array, terms: int, rounded: bool, quantised: bool = False
) -> Comparison:
    if expected.dtype == np.uint8 and actual.dtype != np.uint8 and dtype_of(actual.dtype).small:
        # onnxruntime gives the bytes of small floats
        expected = expected.view(actual.dtype)
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return Comparison(ratio=float("inf"), index=(), count=max(actual.size, 1))
    finite = np.abs(expected[np.isfinite(expected)]) if expected.dtype.kind == "f" else np.abs(expected * 1)
    magnitude = float(finite.max()) if finite.size else 0.0
    narrow = "bf16" if rounded and expected.dtype == np.float32 else None
    if narrow is not None:
        # finite values past the range of the type, such as masks, are stored as the largest
        limited = np.clip(expected, -largest(BF16), largest(BF16))
        expected = np.where(np.isinf(expected), expected, limited).astype(BF16.numpy).astype(np.float32)
    single = compare(actual, expected, magnitude=np.full(actual.shape, magnitude), dtype=narrow, terms=terms)
    if quantised and not single and (expected.dtype.kind == "f" or expected.dtype.itemsize == 1):
        return _in_steps(actual, expected, magnitude)
    if narrow is None or not single:
        return single
    return max(
        single, compare_norms(actual, expected, dtype=narrow, terms=terms), key=lambda each: each.ratio
    )


def _engine(reference: Reference) -> str:
    if reference == "auto":
        return "onnxruntime" if have_module("onnxruntime") else "onnx"
    if reference not in REFERENCES:
        raise InputError(f"there is no reference {reference!r}", hint=f"they are {', '.join(REFERENCES)}")
    if reference == "onnxruntime" and not have_module("onnxruntime"):
        raise InstallationError("onnxruntime is not installed", hint="pip install onnxruntime")
    return reference


def _evaluate(
    engine: str, model: ModelProto, inner: Sequence[str], outputs: Sequence[str], feeds: Mapping[str, Array]
) -> dict[str, Array]:
    """All wanted values by the reference."""
    widened = ModelProto()
    widened.CopyFrom(model)
    widened.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in inner)
    names = [*outputs, *inner]
    if engine == "onnx":
        try:
            arrays = ReferenceEvaluator(widened).run(names, dict(feeds))
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
            raise InputError(f"the reference evaluator cannot run the model: {first_line(error)}") from None
        return dict(zip(names, map(np.asarray, arrays), strict=True))
    ort = optional_module("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(
            widened.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return dict(zip(names, session.run(names, dict(feeds)), strict=True))
    except onnxruntime_errors(ort) as error:
        raise InputError(f"onnxruntime cannot run the model: {first_line(error)}") from None


def _terms(compiled: CompiledModel, rounded: bool) -> dict[str, int]:
    """For each value, the roundings on the longest way from the inputs; only those to bf16 if ``rounded``."""
    terms: dict[str, int] = {}
    views = compiled.views
    for group in compiled.groups():
        before = max((terms.get(views.get(value, value), 0) for value in group.inputs), default=0)
        for value in group.outputs:
            terms[value] = before + (ROUNDINGS_OF_A_KERNEL if rounded else group.terms)
    return terms | {view: terms[value] for view, value in views.items() if value in terms}


def _makers(compiled: CompiledModel) -> dict[str, str]:
    makers = {value: group.label for group in compiled.groups() for value in group.outputs}
    return makers | {view: makers[value] for view, value in compiled.views.items() if value in makers}
