"""The cases of `sweep.py`: models of one node over shapes, element types and operator sets.

A family is a generator of cases that share how they are drawn; adding an operator is adding a family, or a
row of one.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Arrays = dict[str, np.ndarray]

#: The operator sets that are swept: those in which many operators changed.
OPSETS = (7, 9, 11, 13, 18, 21)
#: The version of the file format that goes with an operator set, at least.
_FORMAT = 9


@dataclass(frozen=True)
class Case:
    """One node: its inputs in order, of which those in `fixed` are constants of the model."""

    op: str
    opset: int
    label: str
    inputs: tuple[tuple[str, np.ndarray | None], ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    outputs: int = 1
    tolerance: float = 2e-4
    steps: int = 0
    domain: str = ""
    excuse: str = ""
    """Why the result may be another one than onnxruntime's."""

    @property
    def name(self) -> str:
        """Operator, operator set, and what distinguishes it."""
        return f"{self.op}-{self.opset} {self.label}"

    @property
    def feeds(self) -> Arrays:
        """The inputs that a run is given."""
        return {n: a for n, a in self.inputs if a is not None and n not in self.fixed}

    def model(self) -> onnx.ModelProto:
        """The model; its outputs have no declared shapes."""
        node = helper.make_node(
            self.op,
            [name if array is not None else "" for name, array in self.inputs],
            [f"y{at}" for at in range(self.outputs)],
            name="operator",
            domain=self.domain,
            **self.attributes,
        )
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self.inputs
            if array is not None and name not in self.fixed
        ]
        outputs = [onnx.ValueInfoProto(name=f"y{at}") for at in range(self.outputs)]
        known = [numpy_helper.from_array(a, n) for n, a in self.inputs if a is not None and n in self.fixed]
        graph = helper.make_graph([node], "sweep", inputs, outputs, known)
        sets = [helper.make_opsetid("", self.opset)]
        sets += [helper.make_opsetid(self.domain, 1)] if self.domain else []
        return helper.make_model(graph, opset_imports=sets, ir_version=_FORMAT)


def since(op: str, opset: int) -> bool:
    """Whether that operator set has the operator."""
    try:
        onnx.defs.get_schema(op, opset, "")
    except onnx.defs.SchemaError:
        return False
    return True


def drawn(label: str, shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
    """An array that depends on the label alone."""
    random = np.random.default_rng(zlib.crc32(label.encode()))
    kind = np.dtype(dtype).kind
    if kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if kind == "u":
        return random.integers(0, 100, shape).astype(dtype)
    if kind == "i":
        return random.integers(-100, 100, shape).astype(dtype)
    return np.asarray(random.standard_normal(shape)).astype(dtype)


def ints(*values: int) -> np.ndarray:
    """An index vector."""
    return np.array(values, np.int64)


SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (7,), (3, 5), (2, 3, 4), (1, 8, 16), (2, 3, 4, 5), (100,))

UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Elu", "Erf", "Exp",
    "Floor", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu",
    "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
    "ThresholdedRelu", "Gelu", "Celu", "Shrink", "IsNaN", "IsInf",
)  # fmt: skip
LIMITED = {"Acos": 0.99, "Asin": 0.99, "Atanh": 0.99}
POSITIVE = {"Log", "Sqrt", "Acosh"}


def unary() -> Iterator[Case]:
    """Element-wise operators of one input."""
    for op, opset in itertools.product(UNARY, OPSETS):
        if not since(op, opset):
            continue
        dtypes = ["float32", "float64", "float16"] if opset in (13, 21) else ["float32"]
        for dtype, shape in itertools.product(dtypes, SHAPES):
            if dtype != "float32" and shape not in ((7,), (2, 3, 4)):
                continue
            label = f"{dtype}{list(shape)}"
            x = drawn(op + label, shape, "float64")
            if op in LIMITED:
                x = np.tanh(x) * LIMITED[op]
            if op in POSITIVE:
                x = np.abs(x) + (1.0 if op == "Acosh" else 1e-3)
            yield Case(op, opset, label, (("x", x.astype(dtype)),))
    for op in ("Abs", "Neg", "Sign", "Relu", "Identity"):
        for dtype in ("int8", "int32", "int64"):
            x = drawn(op + dtype, (3, 5), dtype)
            yield Case(op, 21, dtype, (("x", x),))
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3e38, -3e38, 88.8, -104.0, 0.5, 1.5, 2.5])
    for op in UNARY:
        if op not in ("Acosh",) and since(op, 21):
            yield Case(op, 21, "special", (("x", special.astype(np.float32)),))


BROADCASTS = (
    ((3, 5), (3, 5)), ((3, 5), (5,)), ((5,), (3, 5)), ((3, 1), (1, 5)), ((), (3, 5)), ((2, 3, 4), (3, 1)),
    ((1,), (7,)), ((2, 1, 4, 1), (3, 1, 5)), ((0, 3), (3,)), ((4, 1), (4, 1)),
)  # fmt: skip


def binary() -> Iterator[Case]:
    """Element-wise operators of two inputs, broadcast."""
    arithmetic, logic = ("Add", "Sub", "Mul", "Div"), ("And", "Or", "Xor")
    compare = ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
    for opset, op, (a, b) in itertools.product(
        (7, 13, 21), (*arithmetic, "Pow", "PRelu", "Min", "Max", "Mod", *compare), BROADCASTS
    ):
        if not since(op, opset) or (op == "PRelu" and len(b) > len(a)):
            continue
        for dtype in ("float32", "int64", "int32", "float64", "float16"):
            if op in ("Pow", "PRelu") and dtype[0] == "i":
                continue
            if dtype not in ("float32", "int64") and a != (2, 3, 4):
                continue
            label = f"{dtype}{list(a)}{list(b)}"
            x, y = drawn(op + label, a, dtype), drawn(op + label + "y", b, dtype)
            x = np.abs(x) if op == "Pow" else x
            if op in ("Div", "Mod") and dtype[0] == "i":
                y = np.where(y == 0, 3, y).astype(dtype)
            attributes = {"fmod": 1} if op == "Mod" and dtype[0] == "f" else {}
            yield Case(op, opset, label, (("a", x), ("b", y)), attributes)
    for op, (a, b) in itertools.product(logic, BROADCASTS):
        yield Case(op, 13, f"{a}{b}", (("a", drawn("l", a, "bool")), ("b", drawn("m", b, "bool"))))
    for op, dtype in itertools.product(
        (*arithmetic, "Max", "Min"), ("uint8", "int8", "int16", "uint32", "uint64")
    ):
        x, y = drawn(op + dtype, (3, 5), dtype), drawn(dtype, (3, 5), dtype)
        yield Case(op, 21, dtype, (("a", x), ("b", np.where(y == 0, 1, y).astype(dtype))))
    for dtype, direction in itertools.product(("uint8", "uint16", "uint32", "uint64"), ("LEFT", "RIGHT")):
        x, y = drawn(dtype, (9,), dtype), np.arange(9).astype(dtype)
        yield Case("BitShift", 11, f"{dtype} {direction}", (("a", x), ("b", y)), {"direction": direction})
    for op, dtype in itertools.product(
        ("BitwiseAnd", "BitwiseOr", "BitwiseXor"), ("uint8", "int32", "int64")
    ):
        yield Case(op, 18, dtype, (("a", drawn("p", (3, 5), dtype)), ("b", drawn("q", (5,), dtype))))
    nans = np.array([np.nan, 1.0, np.nan, -1.0, np.inf, -np.inf, 0.0, -0.0], np.float32)
    for op in (*arithmetic, "Max", "Min", *compare, "Pow"):
        yield Case(op, 21, "NaN", (("a", nans), ("b", nans[::-1].copy())))
    for op, x_dtype, y_dtype in itertools.product(
        ("Pow",), ("float32", "int32", "int64", "float64"), ("float32", "int32", "int64")
    ):
        x, y = np.abs(drawn("w", (3, 5), x_dtype)) % 5, np.abs(drawn("v", (5,), y_dtype)) % 3
        yield Case(op, 13, f"{x_dtype} {y_dtype}", (("a", x.astype(x_dtype)), ("b", y.astype(y_dtype))))


def several() -> Iterator[Case]:
    """Operators of any number of inputs, and selections."""
    for op, opset, count in itertools.product(("Sum", "Mean", "Max", "Min"), (8, 13), (1, 2, 4)):
        inputs = tuple((f"x{n}", drawn(f"{op}{n}", (2, 3, 4)[n % 3 :])) for n in range(count))
        yield Case(op, opset, f"{count}", inputs)
    for (a, b), dtype in itertools.product(BROADCASTS, ("float32", "int64", "bool", "uint8")):
        condition = ("c", drawn("c", a, "bool"))
        yield Case(
            "Where",
            16,
            f"{dtype}{a}{b}",
            (condition, ("a", drawn("a", a, dtype)), ("b", drawn("b", b, dtype))),
        )
    for opset, dtype in itertools.product(
        (7, 11, 12, 13), ("float32", "int64", "float16", "int8", "uint8", "int32")
    ):
        x = ("x", drawn("clip", (3, 7), dtype))
        low, high = np.array(-1 if dtype[0] != "u" else 1).astype(dtype), np.array(3).astype(dtype)
        if opset < 11:
            if dtype == "float32":
                yield Case("Clip", opset, "attributes", (x,), {"min": -0.5, "max": 0.25})
                yield Case("Clip", opset, "min", (x,), {"min": -0.5})
            continue
        yield Case("Clip", opset, f"{dtype}", (x, ("low", low), ("high", high)))
        yield Case(
            "Clip", opset, f"{dtype} fixed", (x, ("low", low), ("high", high)), {}, frozenset({"low", "high"})
        )
        yield Case("Clip", opset, f"{dtype} high", (x, ("low", None), ("high", high)))
        yield Case("Clip", opset, f"{dtype} crossed", (x, ("low", high), ("high", low)))
    types = (
        "float32",
        "float16",
        "float64",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "bool",
    )
    for source, target in itertools.product(types, types):
        x = (
            np.abs(drawn(source, (3, 7), source))
            if target[0] == "u" and source != "bool"
            else drawn(source, (3, 7), source)
        )
        to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
        yield Case("Cast", 13, f"{source} {target}", (("x", x),), {"to": to})


REDUCTIONS = (
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
)


def reductions() -> Iterator[Case]:
    """Reductions over axes, with sizes of one kept or not; arg-reductions; sums along an axis."""
    places: tuple[tuple[tuple[int, ...], tuple[int, ...] | None], ...] = (
        ((7,), (0,)), ((3, 5), (1,)), ((3, 5), (0,)), ((2, 3, 4), (-1,)), ((2, 3, 4), (0, 2)),
        ((2, 3, 4), None), ((2, 3, 4), (1, 2)), ((1, 100), (1,)), ((2, 130), (-1,)), ((300, 3), (0,)),
        ((1, 1), (0,)), ((2, 3, 4, 5), (1,)),
    )  # fmt: skip
    for op, opset, (shape, axes), keep in itertools.product(REDUCTIONS, (7, 11, 13, 18), places, (0, 1)):
        as_input = opset >= 18 or (op == "ReduceSum" and opset >= 13)
        dtypes = ("float32", "float16", "float64", "int32", "int64") if opset in (13, 18) else ("float32",)
        for dtype in dtypes:
            if dtype != "float32" and (keep or (dtype != "float16" and shape != (2, 3, 4))):
                continue
            if dtype[0] == "i" and op in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp"):
                continue
            label = f"{dtype}{list(shape)} {axes} keep={keep}"
            x = drawn(op + label, shape, dtype)
            x = np.abs(x) + 1 if op == "ReduceLogSum" else x
            x = (x % 3).astype(dtype) if dtype[0] == "i" else x
            x = (x / 8 + 1).astype(dtype) if op == "ReduceProd" and dtype[0] == "f" else x
            attributes: dict[str, Any] = {"keepdims": keep}
            inputs: tuple[tuple[str, np.ndarray | None], ...] = (("x", x),)
            if axes is not None and as_input:
                inputs = (*inputs, ("axes", ints(*axes)))
            elif axes is not None:
                if min(axes) < 0 and opset < 11:
                    continue
                attributes["axes"] = axes
            yield Case(op, opset, label, inputs, attributes, frozenset({"axes"}), tolerance=1e-3)
    for op, opset, (shape, axes), keep in itertools.product(
        ("ArgMax", "ArgMin"), (7, 11, 12, 13), places, (0, 1)
    ):
        if axes is None or len(axes) > 1 or (axes[0] < 0 and opset < 11):
            continue
        for last in (0, 1) if opset >= 12 else (0,):
            x = np.round(drawn(f"{op}{shape}", shape) * 2)
            extra = {"select_last_index": last} if opset >= 12 else {}
            yield Case(
                op,
                opset,
                f"{list(shape)} {axes} keep={keep} last={last}",
                (("x", x),),
                {"axis": axes[0], "keepdims": keep, **extra},
            )
    nans = np.array([[1, np.nan, 3, np.nan], [np.nan] * 4, [np.inf, 1, np.nan, -np.inf]], np.float32)
    for op in ("ReduceMax", "ReduceMin", "ReduceSum"):
        excuse = "" if op == "ReduceSum" else "torch and numpy keep NaN, onnxruntime where it comes first"
        yield Case(op, 18, "NaN", (("x", nans), ("axes", ints(1))), {}, frozenset({"axes"}), excuse=excuse)
    for exclusive, reverse, shape, dtype in itertools.product(
        (0, 1), (0, 1), ((7,), (3, 5), (2, 3, 40)), ("float32", "int64", "float64")
    ):
        for axis in range(-1, len(shape)):
            yield Case(
                "CumSum",
                14,
                f"{dtype}{shape} {axis} {exclusive}{reverse}",
                (("x", drawn("cs", shape, dtype)), ("axis", np.array(axis, np.int64))),
                {"exclusive": exclusive, "reverse": reverse},
                frozenset({"axis"}),
            )


def rows() -> Iterator[Case]:
    """Softmax and normalisations."""
    for op, opset, shape in itertools.product(
        ("Softmax", "LogSoftmax", "Hardmax"),
        (7, 11, 13),
        ((7,), (3, 5), (2, 3, 4), (2, 3, 4, 5), (2, 130), (1, 1), (5, 32, 13, 13)),
    ):
        for axis in range(-len(shape), len(shape)):
            if axis < 0 and opset < 11:
                continue
            for dtype in ("float32", "float64", "float16") if opset == 13 else ("float32",):
                yield Case(
                    op,
                    opset,
                    f"{dtype}{list(shape)} axis={axis}",
                    (("x", drawn(op, shape, dtype)),),
                    {"axis": axis},
                )
    for shape, axis in (((3, 8), -1), ((2, 3, 8), -1), ((2, 3, 8), 1), ((2, 3, 8), 0), ((4, 100), -1)):
        tail = shape[axis:]
        for bias in (True, False):
            inputs = (
                ("x", drawn("ln", shape)),
                ("s", drawn("s", tail)),
                *((("b", drawn("b", tail)),) if bias else ()),
            )
            yield Case("LayerNormalization", 17, f"{shape} {axis} {bias}", inputs, {"axis": axis})
    for shape in ((2, 4, 5), (2, 4, 5, 3), (1, 3, 2, 3, 4)):
        c = shape[1]
        channel = [(n, np.abs(drawn(n, (c,))) + 0.1) for n in ("s", "b", "m", "v")]
        for opset in (7, 9, 14, 15):
            yield Case(
                "BatchNormalization",
                opset,
                f"{shape}",
                (("x", drawn("bn", shape)), *channel),
                {"epsilon": 1e-3},
                frozenset("sbmv"),
            )
        yield Case("InstanceNormalization", 6 + 16, f"{shape}", (("x", drawn("in", shape)), *channel[:2]))
    for shape, groups in (((2, 4, 5), 2), ((2, 6, 3, 3), 3), ((1, 4, 2, 2), 1)):
        c = shape[1]
        yield Case(
            "GroupNormalization",
            21,
            f"{shape} {groups}",
            (("x", drawn("gn", shape)), ("s", drawn("s", (c,))), ("b", drawn("b", (c,)))),
            {"num_groups": groups},
        )
    for p, axis, shape in itertools.product((1, 2), (-1, 0, 1), ((3, 5), (2, 3, 4))):
        yield Case(
            "LpNormalization",
            13,
            f"{shape} p={p} {axis}",
            (("x", drawn("lp", shape)),),
            {"p": p, "axis": axis},
        )
    for size in (1, 2, 3, 5):
        yield Case("LRN", 13, f"{size}", (("x", drawn("lrn", (2, 6, 4, 3))),), {"size": size, "alpha": 1e-2})
    yield Case("MeanVarianceNormalization", 13, "", (("x", drawn("mvn", (2, 3, 4, 5))),), {"axes": [0, 2, 3]})


def movement() -> Iterator[Case]:
    """Reshapes, slices, pads, gathers: elements that move."""
    dtypes = ("float32", "int64", "bool", "uint8", "float16")
    for shape in ((3, 5), (2, 3, 4), (2, 1, 3, 4)):
        for perm in itertools.permutations(range(len(shape))):
            yield Case("Transpose", 13, f"{shape}{perm}", (("x", drawn("t", shape)),), {"perm": perm})
    ends = (-100, -4, -1, 0, 1, 3, 4, 100)
    for first, last, step in itertools.product(ends, ends, (-2, -1, 1, 3)):
        fixed = frozenset({"s", "e", "a", "t"})
        inputs = (
            ("x", drawn("sl", (4, 3))),
            ("s", ints(first)),
            ("e", ints(last)),
            ("a", ints(0)),
            ("t", ints(step)),
        )
        yield Case("Slice", 13, f"{first}:{last}:{step}", inputs, {}, fixed)
    for first, last in itertools.product((-5, -1, 0, 2), (-1, 0, 3, 9)):
        yield Case(
            "Slice",
            9,
            f"{first}:{last}",
            (("x", drawn("sl", (4, 3))),),
            {"starts": [first], "ends": [last], "axes": [0]},
        )
    for mode, pads, dtype, opset in itertools.product(
        ("constant", "reflect", "edge", "wrap"),
        ((0, 1, 2, 0), (2, 2, 1, 1), (0, 0, 0, 0), (-1, 0, 1, 0)),
        ("float32", "int64", "bool"),
        (11, 13, 19),
    ):
        if (mode == "wrap" and opset < 19) or (dtype == "bool" and opset < 13):
            continue
        yield Case(
            "Pad",
            opset,
            f"{mode} {pads} {dtype}",
            (("x", drawn("pad", (3, 4), dtype)), ("p", ints(*pads))),
            {"mode": mode},
            frozenset("p"),
        )
    for mode, pads in itertools.product(("constant", "reflect", "edge"), ((0, 1, 2, 0), (2, 2, 1, 1))):
        yield Case(
            "Pad",
            9,
            f"{mode} {pads}",
            (("x", drawn("pad", (3, 4))),),
            {"mode": mode, "pads": pads, **({"value": 1.5} if mode == "constant" else {})},
        )
    for opset, dtype in itertools.product((7, 11, 13), dtypes):
        for axis in (0, 1):
            yield Case(
                "Concat",
                opset,
                f"{dtype} {axis}",
                (
                    ("a", drawn("a", (2, 3), dtype)),
                    ("b", drawn("b", (2, 3), dtype)),
                    ("c", drawn("c", (2, 3), dtype)),
                ),
                {"axis": axis},
            )
        yield Case(
            "Expand",
            max(opset, 8),
            dtype,
            (("x", drawn("e", (3, 1), dtype)), ("s", ints(2, 1, 4))),
            {},
            frozenset("s"),
        )
        yield Case(
            "Tile", opset, dtype, (("x", drawn("e", (3, 2), dtype)), ("s", ints(2, 3))), {}, frozenset("s")
        )
        yield Case(
            "Reshape",
            opset,
            dtype,
            (("x", drawn("e", (3, 4), dtype)), ("s", ints(2, -1, 3))),
            {},
            frozenset("s"),
        )
        yield Case("Flatten", opset, dtype, (("x", drawn("e", (2, 3, 4), dtype)),), {"axis": 2})
    for opset, axis in itertools.product((7, 11, 13, 18), (0, 1)):
        x = ("x", drawn("split", (4, 6)))
        if opset >= 13:
            yield Case(
                "Split",
                opset,
                f"{axis} sizes",
                (x, ("s", ints(1, 3 + 2 * axis))),
                {"axis": axis},
                frozenset("s"),
                2,
            )
        else:
            yield Case(
                "Split", opset, f"{axis} sizes", (x,), {"axis": axis, "split": [1, 3 + 2 * axis]}, outputs=2
            )
        yield Case(
            "Split",
            opset,
            f"{axis} equal",
            (x,),
            {"axis": axis, **({"num_outputs": 2} if opset >= 18 else {})},
            outputs=2,
        )
    for opset in (7, 11, 13):
        axes: dict[str, Any] = {} if opset >= 13 else {"axes": [0, 2]}
        extra = (("s", ints(0, 2)),) if opset >= 13 else ()
        yield Case("Unsqueeze", opset, "", (("x", drawn("u", (3, 4))), *extra), axes, frozenset("s"))
        yield Case("Squeeze", opset, "", (("x", drawn("u", (1, 3, 1))), *extra), axes, frozenset("s"))
    for mode, block in itertools.product(("DCR", "CRD"), (1, 2, 3)):
        yield Case(
            "DepthToSpace",
            13,
            f"{mode} {block}",
            (("x", drawn("d", (2, 36, 2, 3))),),
            {"mode": mode, "blocksize": block},
        )
        yield Case("SpaceToDepth", 13, f"{block}", (("x", drawn("d", (2, 3, 6, 12))),), {"blocksize": block})
    for upper, k, shape in itertools.product((0, 1), (-2, 0, 1, 9), ((3, 5), (2, 5, 3))):
        yield Case(
            "Trilu",
            14,
            f"{shape} {upper} {k}",
            (("x", drawn("tr", shape)), ("k", np.array(k))),
            {"upper": upper},
            frozenset("k"),
        )
    yield Case("EyeLike", 9, "", (("x", drawn("eye", (3, 4))),), {"k": 1})
    for shape in ((2, 3, 4), (7,), ()):
        yield Case("Shape", 15, f"{shape}", (("x", drawn("sh", shape)),))
        yield Case("Size", 13, f"{shape}", (("x", drawn("sh", shape)),))


def places() -> Iterator[Case]:
    """Places that depend on data: gathers, scatters, sorting."""
    random = np.random.default_rng(5)
    for shape, axis, count, dtype, kind in itertools.product(
        ((5,), (4, 3), (3, 4, 5)),
        (-1, 0, 1),
        ((), (2,), (2, 3)),
        ("float32", "int64", "bool", "float16"),
        ("int32", "int64"),
    ):
        if axis >= len(shape):
            continue
        if dtype != "float32" and kind == "int32":
            continue
        size = shape[axis]
        index = random.integers(-size, size, count).astype(kind)
        yield Case(
            "Gather",
            13,
            f"{dtype}{shape} {axis} {count} {kind}",
            (("x", drawn("g", shape, dtype)), ("i", np.asarray(index))),
            {"axis": axis},
        )
    for shape, axis, dtype in itertools.product(
        ((5,), (4, 3), (3, 4, 5)), (-1, 0, 1), ("float32", "int64", "float16")
    ):
        if axis >= len(shape):
            continue
        index = random.integers(-shape[axis], shape[axis], shape)
        yield Case(
            "GatherElements",
            13,
            f"{dtype}{shape} {axis}",
            (("x", drawn("g", shape, dtype)), ("i", index)),
            {"axis": axis},
        )
        spread = np.argsort(random.standard_normal(shape), axis=axis)
        for reduction in ("none", "add", "mul", "max", "min"):
            attributes = {"axis": axis, **({"reduction": reduction} if reduction != "none" else {})}
            inputs = (("x", drawn("g", shape, dtype)), ("i", spread), ("u", drawn("u", shape, dtype)))
            yield Case("ScatterElements", 18, f"{dtype}{shape} {axis} {reduction}", inputs, attributes)
        yield Case(
            "ScatterElements",
            11,
            f"{dtype}{shape} {axis}",
            (("x", drawn("g", shape, dtype)), ("i", spread), ("u", drawn("u", shape, dtype))),
            {"axis": axis},
        )
        yield Case(
            "Scatter",
            9,
            f"{dtype}{shape} {axis}",
            (("x", drawn("g", shape, dtype)), ("i", spread), ("u", drawn("u", shape, dtype))),
            {"axis": axis},
        )
    for depth, batch in ((1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2)):
        shape = (2, 3, 4)
        sizes = shape[batch : batch + depth]
        front = shape[:batch]
        index = np.stack([random.integers(-s, s, (*front, 5)) for s in sizes], axis=-1)
        yield Case(
            "GatherND",
            12,
            f"{depth} {batch}",
            (("x", drawn("nd", shape)), ("i", index)),
            {"batch_dims": batch},
        )
        if not batch:
            index = index[:1]
            updates = (
                drawn("up", (1, 5)[:1] + shape[depth:])
                if index.ndim == 2
                else drawn("up", (*index.shape[:-1], *shape[depth:]))
            )
            for reduction in ("none", "add", "mul", "max", "min"):
                yield Case(
                    "ScatterND",
                    18,
                    f"{depth} {reduction}",
                    (("x", drawn("nd", shape)), ("i", index), ("u", updates)),
                    {"reduction": reduction},
                )
    for shape, axis, k, largest, opset in itertools.product(
        ((9,), (3, 7), (2, 5, 3), (4, 40)), (-1, 0), (1, 2, 3), (0, 1), (10, 11)
    ):
        if k > shape[axis] or (opset < 11 and not largest):
            continue
        extra = {"largest": largest} if opset >= 11 else {}
        yield Case(
            "TopK",
            opset,
            f"{shape} {axis} {k} {largest}",
            (("x", np.round(drawn("tk", shape) * 3)), ("k", ints(k))),
            {"axis": axis, **extra},
            frozenset("k"),
            2,
        )
    for axis, depth in itertools.product((-1, 0, 1), (3, 5)):
        inputs = (
            ("i", random.integers(-depth - 2, depth + 2, (4,))),
            ("d", np.array(depth)),
            ("v", np.array([0.5, 2], np.float32)),
        )
        yield Case("OneHot", 11, f"{axis} {depth}", inputs, {"axis": axis}, frozenset("d"))
    for time_axis in (0, 1):
        inputs = (("x", drawn("rs", (4, 4))), ("l", ints(1, 2, 3, 4)))
        yield Case(
            "ReverseSequence",
            10,
            f"{time_axis}",
            inputs,
            {"time_axis": time_axis, "batch_axis": 1 - time_axis},
        )


def products() -> Iterator[Case]:
    """Matrix products."""
    for a, b in (
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (3, 4, 2)),
        ((1, 130), (130, 17)),
        ((33, 65), (65, 47)),
        ((200, 1, 144), (144, 432)),
        ((1, 1), (1, 1)),
        ((0, 4), (4, 5)),
        ((3, 0), (0, 5)),
    ):
        for dtype, fixed in itertools.product(
            ("float32", "float64", "float16", "int32", "int64", "uint32"), (False, True)
        ):
            if dtype not in ("float32", "float16") and fixed:
                continue
            yield Case(
                "MatMul",
                13,
                f"{dtype}{a}{b} {fixed}",
                (("a", drawn("a", a, dtype)), ("b", drawn("b", b, dtype))),
                {},
                frozenset("b" if fixed else ""),
                tolerance=1e-3,
            )
    for opset, ta, tb, alpha, beta, c in itertools.product(
        (7, 11, 13), (0, 1), (0, 1), (1.0, 0.5), (1.0, 2.0), ((3, 5), (5,), (1,), (3, 1), ())
    ):
        x, y = drawn("a", (4, 3) if ta else (3, 4)), drawn("b", (5, 4) if tb else (4, 5))
        yield Case(
            "Gemm",
            opset,
            f"{ta}{tb} {alpha} {beta} {c}",
            (("a", x), ("b", y), ("c", drawn("c", c))),
            {"transA": ta, "transB": tb, "alpha": alpha, "beta": beta},
            frozenset("bc"),
        )
    for equation, shapes in (
        ("ij,jk->ik", ((3, 4), (4, 5))),
        ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
        ("ij->ji", ((3, 4),)),
        ("ii->i", ((4, 4),)),
        ("i,j->ij", ((3,), (4,))),
        ("bhqd,bhkd->bhqk", ((2, 2, 3, 4), (2, 2, 5, 4))),
        ("...ij,...jk->...ik", ((2, 3, 4), (2, 4, 5))),
        ("ij,ij->", ((3, 4), (3, 4))),
        ("ij", ((3, 4),)),
        # axes of the result are i, j, k ... in the code, whatever letters are summed
        ("bij,jk->bik", ((8, 128, 256), (256, 256))),
        ("bij,bjk->bik", ((8, 128, 64), (8, 64, 128))),
        ("bti,io->bto", ((8, 128, 256), (256, 64))),
        ("bhqd,bhkd->bhqk", ((2, 4, 65, 64), (2, 4, 65, 64))),
        ("bhqk,bhkd->bhqd", ((2, 4, 65, 65), (2, 4, 65, 64))),
    ):
        inputs = tuple((f"x{n}", drawn(f"ein{n}", s)) for n, s in enumerate(shapes))
        label = f"{equation} {shapes}"
        yield Case("Einsum", 12, label, inputs, {"equation": equation}, tolerance=1e-3)
    for signed_a, signed_b, zero, fixed in itertools.product(
        ("uint8", "int8"), ("uint8", "int8"), ("none", "scalar", "column"), (False, True)
    ):
        a, b = drawn("qa", (5, 40), signed_a), drawn("qb", (40, 18), signed_b)
        inputs: tuple[tuple[str, np.ndarray | None], ...] = (("a", a), ("b", b))
        if zero != "none":
            inputs = (
                *inputs,
                ("za", np.array(3).astype(signed_a)),
                ("zb", drawn("zb", () if zero == "scalar" else (18,), signed_b)),
            )
        known = frozenset({"b", "za", "zb"} if fixed else ())
        yield Case("MatMulInteger", 10, f"{signed_a} {signed_b} {zero} {fixed}", inputs, {}, known)


def windows() -> Iterator[Case]:
    """Convolutions and pooling."""
    pads = (
        {"pads": [0, 0]},
        {"pads": [1, 2]},
        {"auto_pad": "SAME_UPPER"},
        {"auto_pad": "SAME_LOWER"},
        {"auto_pad": "VALID"},
    )
    for stride, dilation, group, pad, kernel in itertools.product(
        (1, 2, 3), (1, 2), (1, 2, 4), pads, (1, 3, 4)
    ):
        x, w = drawn("cx", (2, 4, 11)), drawn("cw", (8, 4 // group, kernel))
        attributes = {"strides": [stride], "dilations": [dilation], "group": group, **pad}
        if "auto_pad" in pad and dilation > 1:
            continue
        yield Case(
            "Conv",
            11,
            f"1d s{stride} d{dilation} g{group} {pad} k{kernel}",
            (("x", x), ("w", w)),
            attributes,
            frozenset("w"),
            tolerance=1e-3,
        )
    for opset, dtype, kernel, group, bias, fixed in itertools.product(
        (7, 11, 22),
        ("float32", "float16", "float64"),
        ((1, 1), (3, 3), (2, 5)),
        (1, 3),
        (False, True),
        (False, True),
    ):
        if dtype != "float32" and (opset != 11 or not fixed):
            continue
        x, w = drawn("c2", (1, 3, 9, 10), dtype), drawn("w2", (6, 3 // group, *kernel), dtype)
        inputs = (("x", x), ("w", w), *((("b", drawn("b", (6,), dtype)),) if bias else ()))
        yield Case(
            "Conv",
            opset,
            f"2d {dtype} {kernel} g{group} {bias} {fixed}",
            inputs,
            {"group": group, "pads": [1, 0, 1, 2]},
            frozenset("wb" if fixed else ""),
            tolerance=1e-3,
        )
    # groups of few channels, on images of half a vector, of one and of more, read one by one and apart
    for (made, read), (size, stride), kernel in itertools.product(
        ((1, 2), (1, 8), (2, 1), (2, 2), (3, 3), (4, 4), (4, 16), (6, 6), (8, 8), (12, 12), (24, 24)),
        ((7, 1), (14, 2), (28, 1), (56, 2)),
        (1, 3, 5),
    ):
        x, w = drawn("gx", (1, 16 * read, size, size)), drawn("gw", (16 * made, read, kernel, kernel))
        yield Case(
            "Conv",
            11,
            f"groups of {read} to {made} {size} s{stride} k{kernel}",
            (("x", x), ("w", w)),
            {"strides": [stride] * 2, "group": 16, "pads": [kernel // 2] * 4},
            frozenset("w"),
            tolerance=1e-3,
        )
    for stride, dilation, group, padding, extra in itertools.product(
        (1, 2, 3), (1, 2), (1, 2), ([0, 0], [1, 1], [0, 2]), (0, 1)
    ):
        if extra >= max(stride, dilation):
            continue
        x, w = drawn("tx", (2, 4, 7)), drawn("tw", (4, 3, 4))
        attributes = {
            "strides": [stride],
            "dilations": [dilation],
            "group": group,
            "pads": padding,
            "output_padding": [extra],
        }
        yield Case(
            "ConvTranspose",
            11,
            f"s{stride} d{dilation} g{group} {padding} {extra}",
            (("x", x), ("w", w)),
            attributes,
            frozenset("w"),
            tolerance=1e-3,
        )
    # rows of two and one in groups of whole vectors and of parts
    for per_group, group, size in itertools.product((1, 4, 8, 12, 16, 24), (4, 8), ((2, 2), (9, 2), (4, 3))):
        x, w = drawn("rx", (1, 16 * group, *size)), drawn("rw", (16 * group, per_group, 4, 4))
        yield Case(
            "ConvTranspose",
            11,
            f"{size} groups {group} of {per_group}",
            (("x", x), ("w", w)),
            {"strides": [2, 2], "group": group, "pads": [1] * 4},
            frozenset("w"),
            tolerance=1e-3,
        )
    # one element along an axis, or along all
    for size, group, (kernel, stride), padding in itertools.product(
        ((1, 1), (33, 1), (1, 9)), (1, 4), (((4, 4), 2), ((4, 4), 1), ((3, 5), 3)), (0, 1)
    ):
        x, w = drawn("ox", (2, 32, *size)), drawn("ow", (32, 96 // group, *kernel))
        yield Case(
            "ConvTranspose",
            11,
            f"{size} g{group} k{kernel} s{stride} p{padding}",
            (("x", x), ("w", w)),
            {"strides": [stride] * 2, "group": group, "pads": [padding] * 4},
            frozenset("w"),
            tolerance=1e-3,
        )
    for auto, stride in itertools.product(("SAME_UPPER", "SAME_LOWER", "VALID"), (1, 2, 3)):
        yield Case(
            "ConvTranspose",
            11,
            f"{auto} s{stride}",
            (("x", drawn("tx", (2, 4, 7))), ("w", drawn("tw", (4, 3, 4)))),
            {"strides": [stride], "auto_pad": auto},
            frozenset("w"),
            tolerance=1e-3,
        )
    for op, opset, kernel, stride, pad, ceil in itertools.product(
        ("MaxPool", "AveragePool", "LpPool"), (7, 10, 11, 12, 19), (2, 3), (1, 2, 3), pads, (0, 1)
    ):
        if (
            (ceil and opset < 10)
            or (op == "LpPool" and (ceil or opset not in (11, 19)))
            or (ceil and "auto_pad" in pad)
        ):
            continue
        if max(pad.get("pads", [0])) >= kernel:
            continue
        for include in (0, 1) if op == "AveragePool" else (0,):
            attributes = {"kernel_shape": [kernel], "strides": [stride], **pad}
            attributes |= {"ceil_mode": ceil} if opset >= 10 and op != "LpPool" else {}
            attributes |= {"count_include_pad": include} if op == "AveragePool" else {}
            yield Case(
                op,
                opset,
                f"k{kernel} s{stride} {pad} ceil={ceil} {include}",
                (("x", drawn("px", (2, 3, 11))),),
                attributes,
            )
    for dilation, order in itertools.product((1, 2), (0, 1)):
        yield Case(
            "MaxPool",
            12,
            f"indices d{dilation} {order}",
            (("x", drawn("mp", (1, 2, 9, 8))),),
            {"kernel_shape": [3, 2], "dilations": [dilation, 1], "storage_order": order, "strides": [2, 2]},
            outputs=2,
        )
    for op, shape in itertools.product(
        ("GlobalAveragePool", "GlobalMaxPool"), ((2, 3, 5), (2, 3, 4, 5), (1, 2, 3, 4, 5))
    ):
        yield Case(op, 13, f"{shape}", (("x", drawn("gp", shape)),))


def _resize_excuse(mode: str, how: str, kind: str, target: tuple[float, ...]) -> str:
    shrinks = kind == "scales" and min(target) < 1
    if shrinks and how == "align_corners" and mode != "nearest":
        return "node tests pin the corners (decision 0080)"
    last_bit = how == "half_pixel_symmetric" and mode == "nearest"
    return "the last bit of a place (decision 0080)" if last_bit else ""


def resizes() -> Iterator[Case]:
    """Resize and Upsample."""
    coordinates = (
        "half_pixel",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "tf_half_pixel_for_nn",
        "half_pixel_symmetric",
    )
    targets: tuple[tuple[str, tuple[float, ...]], ...] = (
        ("scales", (1.0, 1.0, 2.0, 2.0)), ("scales", (1.0, 1.0, 0.6, 0.6)),
        ("scales", (1.0, 1.0, 1.0, 1.0)), ("scales", (1.0, 1.0, 1.7, 0.45)),
        ("sizes", (1, 2, 7, 5)), ("sizes", (1, 2, 5, 4)), ("sizes", (1, 2, 1, 1)), ("sizes", (1, 2, 3, 9)),
    )  # fmt: skip
    for opset, mode, how, (kind, target) in itertools.product(
        (11, 13, 19), ("nearest", "linear", "cubic"), coordinates, targets
    ):
        if (how == "tf_half_pixel_for_nn" and opset > 11) or (how == "half_pixel_symmetric" and opset < 19):
            continue
        for rounding in (
            ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
            if mode == "nearest"
            else ("round_prefer_floor",)
        ):
            empty = np.array([], np.float32)
            scales = np.array(target, np.float32) if kind == "scales" else (empty if opset < 13 else None)
            inputs = (
                ("x", drawn("rz", (1, 2, 5, 4))),
                ("roi", empty if opset < 13 else None),
                ("s", scales),
                *((("z", ints(*map(int, target))),) if kind == "sizes" else ()),
            )
            yield Case(
                "Resize",
                opset,
                f"{mode} {how} {rounding} {kind}{target}",
                inputs,
                {"mode": mode, "coordinate_transformation_mode": how, "nearest_mode": rounding},
                frozenset({"roi", "s", "z"}),
                tolerance=1e-3,
                excuse=_resize_excuse(mode, how, kind, target),
            )
    for mode, scale in itertools.product(
        ("nearest", "linear"),
        ((1.0, 1.0, 2.0, 3.0), (1.0, 1.0, 0.6, 0.5), (1.0, 1.0, 1.5, 1.0), (1.0, 1.0, 1.0, 1.0)),
    ):
        inputs = (("x", drawn("rz", (1, 2, 5, 4))), ("s", np.array(scale, np.float32)))
        yield Case("Resize", 10, f"{mode} {scale}", inputs, {"mode": mode}, frozenset("s"), tolerance=1e-3)
        if min(scale) >= 1:
            yield Case(
                "Upsample", 9, f"{mode} {scale}", inputs, {"mode": mode}, frozenset("s"), tolerance=1e-3
            )
            yield Case(
                "Upsample", 7, f"{mode} {scale}", inputs[:1], {"mode": mode, "scales": scale}, tolerance=1e-3
            )
    for mode, how, padding, aligned in itertools.product(
        ("linear", "nearest", "cubic"), (0,), ("zeros", "border", "reflection"), (0, 1)
    ):
        grid = np.clip(drawn("gs", (2, 3, 4, 2)), -1.3, 1.3)
        yield Case(
            "GridSample",
            20,
            f"{mode} {padding} {aligned} {how}",
            (("x", drawn("gx", (2, 3, 5, 4))), ("g", grid)),
            {"mode": mode, "padding_mode": padding, "align_corners": aligned},
            tolerance=1e-3,
        )


def recurrent() -> Iterator[Case]:
    """Recurrent layers."""
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}
    for op, direction, lengths, steps, opset, fixed, states in itertools.product(
        gates,
        ("forward", "reverse", "bidirectional"),
        (False, True),
        (1, 4),
        (7, 14),
        (True, False),
        (False, True),
    ):
        count, rows_, hidden = 2 if direction == "bidirectional" else 1, gates[op] * 5, 5
        inputs: list[tuple[str, np.ndarray | None]] = [
            ("x", drawn("rx", (steps, 2, 3))),
            ("w", drawn("rw", (count, rows_, 3))),
            ("r", drawn("rr", (count, rows_, hidden)) / 3),
            ("b", drawn("rb", (count, 2 * rows_))),
            ("l", np.array([steps, max(1, steps - 2)], np.int32) if lengths else None),
        ]
        if states:
            inputs += [("h", drawn("h", (count, 2, hidden)))] + (
                [("c", drawn("c", (count, 2, hidden)))] if op == "LSTM" else []
            )
        yield Case(
            op,
            opset,
            f"{direction} lengths={lengths} {steps} {fixed} {states}",
            tuple(inputs),
            {"direction": direction, "hidden_size": hidden},
            frozenset("wrb" if fixed else ""),
            3 if op == "LSTM" else 2,
        )


def quantised() -> Iterator[Case]:
    """Conversions from and to quantised tensors, and products of them."""
    for dtype, shape, axis, zero in itertools.product(
        ("uint8", "int8"), ((7,), (3, 5), (2, 3, 4)), (None, 0, 1), (True, False)
    ):
        if axis is not None and axis >= len(shape):
            continue
        size = () if axis is None else (shape[axis],)
        scale = (np.abs(drawn("qs", size)) / 20 + 0.01).astype(np.float32)
        point = drawn("qz", size, dtype)
        attributes = {} if axis is None else {"axis": axis}
        if zero or dtype == "uint8":
            extra = (("z", np.asarray(point)),) if zero else ()
            yield Case(
                "QuantizeLinear",
                13,
                f"{dtype}{shape} {axis} {zero}",
                (("x", drawn("qx", shape)), ("s", scale), *extra),
                attributes,
            )
        yield Case(
            "DequantizeLinear",
            13,
            f"{dtype}{shape} {axis} {zero}",
            (("x", drawn("qx", shape, dtype)), ("s", scale), *((("z", np.asarray(point)),) if zero else ())),
            attributes,
        )
    for shape in ((7,), (3, 5), (40, 3)):
        yield Case("DynamicQuantizeLinear", 11, f"{shape}", (("x", drawn("dq", shape)),), outputs=3, steps=1)
    s, z = np.array(0.05, np.float32), np.array(7, np.uint8)
    for fixed in (True, False):
        inputs = (
            ("a", drawn("qa", (3, 8), "uint8")),
            ("as", s),
            ("az", z),
            ("b", drawn("qb", (8, 5), "uint8")),
            ("bs", s),
            ("bz", z),
            ("ys", np.array(0.5, np.float32)),
            ("yz", z),
        )
        yield Case(
            "QLinearMatMul",
            10,
            f"{fixed}",
            inputs,
            {},
            frozenset({"b", "as", "az", "bs", "bz", "ys", "yz"} if fixed else ()),
            steps=1,
        )
        inputs = (
            ("a", drawn("qa", (1, 4, 6, 6), "uint8")),
            ("as", s),
            ("az", z),
            ("b", drawn("qb", (5, 4, 3, 3), "uint8")),
            ("bs", s),
            ("bz", z),
            ("ys", np.array(0.9, np.float32)),
            ("yz", z),
        )
        yield Case(
            "QLinearConv",
            10,
            f"{fixed}",
            inputs,
            {"pads": [1, 1, 1, 1]},
            frozenset({"b", "as", "az", "bs", "bz", "ys", "yz"} if fixed else ()),
            steps=1,
        )
    for a, b, zero in itertools.product(("uint8", "int8"), ("uint8", "int8"), (True, False)):
        inputs = (
            ("x", drawn("ci", (1, 4, 6, 6), a)),
            ("w", drawn("cw", (5, 4, 3, 3), b)),
            *(((("xz", np.array(3).astype(a))), ("wz", np.array(2).astype(b))) if zero else ()),
        )
        yield Case(
            "ConvInteger", 10, f"{a} {b} {zero}", inputs, {"pads": [1, 1, 1, 1]}, frozenset({"w", "xz", "wz"})
        )


FAMILIES: tuple[Callable[[], Iterator[Case]], ...] = (
    unary, binary, several, reductions, rows, movement, places, products, windows, resizes, recurrent,
    quantised,
)  # fmt: skip


def all_cases() -> list[Case]:
    """Every case, in a fixed order."""
    return [case for family in FAMILIES for case in family()]
