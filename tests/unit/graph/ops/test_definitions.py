"""What single operators compute where definitions once went wrong, and attributes that mean nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.graph import Attribute, Node, evaluate_graph, type_of, typed_graph
from tilewright.support import ModelError


def run(
    op: str,
    *inputs: np.ndarray | None,
    version: int = 21,
    outputs: int = 1,
    fixed: Sequence[int] = (),
    **attributes: Attribute,
) -> list[np.ndarray]:
    """The outputs of one node, evaluated by the reference; the inputs `fixed` are constants."""
    arrays = {f"x{at}": array for at, array in enumerate(inputs) if array is not None}
    names = tuple(f"x{at}" if array is not None else "" for at, array in enumerate(inputs))
    made = tuple(f"y{at}" for at in range(outputs))
    known = {f"x{at}": arrays[f"x{at}"] for at in fixed}
    given = {name: array for name, array in arrays.items() if name not in known}
    node = Node(op, names, made, attributes, name="culprit", version=version)
    graph = typed_graph({name: type_of(a) for name, a in given.items()}, made, [node], known)
    found: Mapping[str, np.ndarray] = evaluate_graph(graph, given)
    return [found[name] for name in made]


X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


ZEROS = np.array([-0.0, 0.0, 1, -1, np.nan], np.float32)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("op", "known", "zeros"),
    [
        ("Add", 0.0, [0.0, 0.0]),
        ("Add", -0.0, [-0.0, 0.0]),
        ("Sub", 0.0, [-0.0, 0.0]),
        ("Sub", -0.0, [0.0, 0.0]),
        ("Max", 0.0, [0.0, 0.0]),
        ("Max", -0.0, [-0.0, 0.0]),
        ("Min", -0.0, [-0.0, -0.0]),
        ("Min", 0.0, [-0.0, 0.0]),
        ("Sign", None, [0.0, 0.0]),
        ("Neg", None, [0.0, -0.0]),
    ],
)
def test_zeros_have_the_sign_that_ieee_754_gives_them(
    op: str, known: float | None, zeros: list[float], dtype: type
) -> None:
    """Its `maximum` and `minimum` (2019, 9.6), of which one operand is known when compiling."""
    x = np.tile(ZEROS, 9).astype(dtype)
    constants = [] if known is None else [onnx.numpy_helper.from_array(np.array(known, dtype), "c")]
    elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *["c"] * len(constants)], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", elem, x.shape)],
        [helper.make_tensor_value_info("y", elem, x.shape)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (found,) = tilewright.compile(model, threads=1).run(None, {"x": x})
    assert not found.reshape(9, 5)[:, :2].any()
    np.testing.assert_array_equal(np.signbit(found.reshape(9, 5)[:, :2]), [np.signbit(zeros)] * 9)
    assert np.isnan(found.reshape(9, 5)[:, 4]).all()


@pytest.mark.parametrize("fmod", [0, 1])
def test_remainders_of_zero_have_a_sign(fmod: int) -> None:
    x, y = np.float32([-0.0, 0.0, -3, 3, -4]), np.float32([2, -2, 3, -3, 2])
    (found,) = run("Mod", x, y, fmod=fmod)
    wanted = np.fmod(x, y) if fmod else np.mod(x, y)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


@pytest.mark.parametrize(("shape", "axes"), [((0,), [0]), ((0, 3), [-2]), ((2, 1, 0), [0, 2])])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_mean_of_nothing_is_no_number(shape: tuple[int, ...], axes: list[int], dtype: type) -> None:
    """The standard leaves it open: 0 divided by 0, as numpy, torch and the onnx package's evaluator say."""
    (found,) = run("ReduceMean", np.zeros(shape, dtype), np.array(axes), fixed=[1], keepdims=0)
    np.testing.assert_array_equal(found, np.sum(np.zeros(shape, dtype), axis=tuple(axes)) + np.nan)


@pytest.mark.parametrize("axes", [[3], [2, 3]])
def test_sums_of_nothing_along_planes(axes: list[int]) -> None:
    (found,) = run("ReduceL1", np.zeros((7, 4, 2, 0), np.float32), np.array(axes), fixed=[1])
    np.testing.assert_array_equal(found, np.zeros((7, 4, 1 if 2 in axes else 2, 1)))


@pytest.mark.parametrize("value", [None, False, True])
def test_truth_values_are_padded_with_truth_values(value: bool | None) -> None:
    x = np.array([[True, False], [False, True]])
    filler = None if value is None else np.array(value)
    found = run("Pad", x, np.array([1, 0, 0, 2]), filler, fixed=[1] if value is None else [1, 2])
    np.testing.assert_array_equal(found[0], np.pad(x, ((1, 0), (0, 2)), constant_values=bool(value)))


@pytest.mark.parametrize("axis", [-3, -2, -1, 0, 1, 2, 3])
def test_softmax_before_operator_set_13_takes_the_axes_from_one_on(axis: int) -> None:
    first = axis % 3 if axis < 3 else 3
    rows = X.reshape(int(np.prod(X.shape[:first])), -1).astype(np.float64)
    powers = np.exp(rows - rows.max(axis=1, keepdims=True))
    wanted = (powers / powers.sum(axis=1, keepdims=True)).reshape(X.shape)
    np.testing.assert_allclose(run("Softmax", X, version=11, axis=axis)[0], wanted, rtol=1e-5)
    np.testing.assert_allclose(
        run("LogSoftmax", X, version=11, axis=axis)[0], np.log(wanted), rtol=1e-4, atol=1e-6
    )
    hard = np.zeros_like(rows)
    hard[np.arange(len(rows)), rows.argmax(axis=1)] = 1
    np.testing.assert_array_equal(run("Hardmax", X, version=11, axis=axis)[0], hard.reshape(X.shape))


@pytest.mark.parametrize("axis", [-4, 4])
def test_softmax_before_operator_set_13_has_no_axis_beyond_the_last(axis: int) -> None:
    with pytest.raises(ModelError, match=f"axis {axis} is out of range for rank 3"):
        run("Softmax", X, version=11, axis=axis)


@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_sorts_what_is_no_number_beyond_the_largest(largest: int) -> None:
    x = np.array([3, np.nan, 1, np.inf, np.nan, -np.inf, 1], np.float32)
    order = np.argsort(x, kind="stable")
    if largest:  # of equal ones the first comes first here too
        order = np.array([1, 4, 3, 0, 2, 6, 5])
    values, places = run("TopK", x, np.array([7]), outputs=2, fixed=[1], largest=largest)
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, x[order])


@pytest.mark.parametrize(
    ("first", "last", "step", "wanted"),
    [
        (-100, -200, -1, [0]),
        (-5, -100, -1, [0]),
        (-4, -100, -1, [0]),
        (2, -100, -2, [2, 0]),
        (9, 0, -1, [3, 2, 1]),
    ],
)
def test_slices_that_run_backwards_begin_inside(first: int, last: int, step: int, wanted: list[int]) -> None:
    x = np.arange(4, dtype=np.float32)
    bounds = [np.array([value]) for value in (first, last, 0, step)]
    np.testing.assert_array_equal(run("Slice", x, *bounds, fixed=[1, 2, 3, 4])[0], x[wanted])


def test_old_half_pixels_of_nearest_neighbours() -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)
    scales, empty = np.array([1, 1, 1, 0.5], np.float32), np.array([], np.float32)
    mode = "tf_half_pixel_for_nn"
    found = run(
        "Resize",
        x,
        empty,
        scales,
        version=11,
        fixed=[1, 2],
        coordinate_transformation_mode=mode,
        nearest_mode="floor",
    )
    np.testing.assert_array_equal(found[0].reshape(-1), [1, 3])  # (i + 0.5) / 0.5


def test_corners_are_aligned_with_the_output_that_there_is() -> None:
    # 5 * 1.7 is 8.5: the last of the 8 elements lies on the last one, as in torch and onnxruntime.
    x = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
    scales = np.array([1, 1, 1.7], np.float32)
    found = run(
        "Resize", x, None, scales, fixed=[2], mode="linear", coordinate_transformation_mode="align_corners"
    )
    np.testing.assert_allclose(found[0].reshape(-1), np.linspace(0, 4, 8), rtol=1e-6)


def test_the_nearest_element_is_chosen_in_single_precision() -> None:
    # 1.5 / f32(0.6) - 0.5 is 2 in single precision and a little less in double precision.
    x = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
    scales = np.array([1, 1, 0.6], np.float32)
    found = run("Resize", x, None, scales, fixed=[2], nearest_mode="floor")
    np.testing.assert_array_equal(found[0].reshape(-1), [0, 2, 3])


W = np.random.default_rng(1).standard_normal((2, 4, 3)).astype(np.float32)
R = np.random.default_rng(2).standard_normal((2, 4, 4)).astype(np.float32) / 3


def test_sequences_of_different_lengths_may_be_read_backwards() -> None:
    x = np.random.default_rng(3).standard_normal((5, 2, 3)).astype(np.float32)
    lengths = np.array([5, 2], np.int32)
    y, last = run("RNN", x, W, R, None, lengths, outputs=2, fixed=[1, 2], direction="bidirectional")
    for batch, length in enumerate(lengths):
        for way in range(2):
            state, wanted = np.zeros(4), np.zeros((5, 4))
            for t in reversed(range(length)) if way else range(length):
                state = wanted[t] = np.tanh(W[way] @ x[t, batch] + R[way] @ state)
            np.testing.assert_allclose(y[:, way, batch], wanted, atol=1e-5)
            np.testing.assert_allclose(last[way, batch], state, atol=1e-5)


IMAGE = np.ones((1, 1, 4, 4), np.float32)
MEANINGLESS = {
    "another hidden size": (
        lambda: run("RNN", X, W[:, :, [0, 1, 2, 0]], R, direction="bidirectional", hidden_size=5),
        r"hidden_size is 5, but its recurrence weights are \[2, 4, 4\]",
    ),
    "weights of one direction": (
        lambda: run("RNN", X, W[:1, :, [0, 1, 2, 0]], R[:1], direction="bidirectional"),
        r"its weights \[1, 4, 4\] must be \[2, 4, 4\]",
    ),
    "a bias that is too short": (
        lambda: run("RNN", X, W[:1, :, [0, 1, 2, 0]], R[:1], np.ones((1, 4), np.float32)),
        r"its bias \[1, 4\] must be \[1, 8\]",
    ),
    "a direction": (
        lambda: run("RNN", X, W[:1, :, [0, 1, 2, 0]], R[:1], direction="up"),
        "direction is 'up'",
    ),
    "padding by itself": (
        lambda: run("MaxPool", IMAGE, kernel_shape=(2, 2), auto_pad="%s%n"),
        "auto_pad is '%s%n'; it must be one of NOTSET, SAME_UPPER, SAME_LOWER, VALID",
    ),
    "padding of what is transposed": (
        lambda: run("ConvTranspose", IMAGE, IMAGE, auto_pad="same"),
        "auto_pad is 'same'",
    ),
    "an interpolation": (
        lambda: run("Resize", IMAGE, None, np.ones(4, np.float32), fixed=[2], mode="best"),
        "mode is 'best'",
    ),
    "coordinates": (
        lambda: run(
            "Resize",
            IMAGE,
            None,
            np.ones(4, np.float32),
            fixed=[2],
            coordinate_transformation_mode="?",
        ),
        "coordinate_transformation_mode is '\\?'",
    ),
    "a rounding": (
        lambda: run("Resize", IMAGE, None, np.ones(4, np.float32), fixed=[2], nearest_mode="up"),
        "nearest_mode is 'up'",
    ),
    "a padding mode": (
        lambda: run("Pad", X, np.zeros(6, np.int64), fixed=[1], mode="mirror"),
        "mode is 'mirror'",
    ),
    "an order of channels": (lambda: run("DepthToSpace", IMAGE, blocksize=1, mode="RCD"), "mode is 'RCD'"),
    "a way to shift": (
        lambda: run("BitShift", np.ones(3, np.uint8), np.ones(3, np.uint8), direction="UP"),
        "direction is 'UP'",
    ),
    "a flag": (lambda: run("ArgMax", X, keepdims=2), "keepdims is 2; it must be 0 or 1"),
    "an axis of scales": (
        lambda: run("DequantizeLinear", np.ones((2, 3), np.int8), np.ones(3, np.float32), axis=5),
        "axis 5 is out of range for rank 2",
    ),
    "an approximation": (lambda: run("Gelu", X, approximate="erf"), "approximate is 'erf'"),
}  # fmt: skip


@pytest.mark.parametrize("what", MEANINGLESS)
def test_attributes_without_a_meaning_are_refused(what: str) -> None:
    make, message = MEANINGLESS[what]
    with pytest.raises(ModelError, match=message) as caught:
        make()
    assert "'culprit'" in str(caught.value)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin", "GlobalMaxPool"])
@pytest.mark.parametrize("size", [100, 130, 4000])
def test_extremes_of_many_numbers_in_half_precision(op: str, size: int) -> None:
    x = np.random.default_rng(size).standard_normal((2, 1, size)).astype(np.float16)
    x[0, 0, size // 2] = np.inf
    attributes = {} if op == "GlobalMaxPool" else {"axes": [2]}
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    model = helper.make_model(
        helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT16, x.shape)],
            [onnx.ValueInfoProto(name="y")],
        ),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=9,
    )
    wanted = (np.min if op == "ReduceMin" else np.max)(x, axis=2, keepdims=True)
    np.testing.assert_array_equal(tilewright.compile(model, threads=1)(x)[0], wanted)


def test_tiles_of_nothing_are_nothing() -> None:
    nothing = np.zeros((2, 0, 3), np.float32)
    for repeats in ([1, 3, 1], [2, 3, 2], [1, 0, 1]):
        found = run("Tile", nothing, np.array(repeats), fixed=[1])[0]
        assert found.shape == np.tile(nothing, repeats).shape


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_images_shrunk_to_nothing_are_nothing(mode: str) -> None:
    scales = np.array([1, 1, 2, 0.5], np.float32)
    image = np.ones((1, 2, 3, 1), np.float32)
    found = run("Resize", image, None, scales, fixed=[2], mode=mode)[0]
    assert found.shape == (1, 2, 6, 0)


@pytest.mark.parametrize(
    ("shape", "scales", "axis", "block"),
    [((8,), (2,), 0, 4), ((8,), (2,), -1, 4), ((7,), (2,), 0, 4), ((8,), (8,), 0, 1), ((8,), (1,), 0, 8),
     ((4, 8), (4, 2), 1, 4), ((4, 8), (2, 8), 0, 2), ((4, 8), (1, 1), 1, 8), ((1, 8), (1, 2), 1, 4)],
)  # fmt: skip
def test_scales_of_blocks(shape: tuple[int, ...], scales: tuple[int, ...], axis: int, block: int) -> None:
    random = np.random.default_rng(2)
    q, s = random.integers(-99, 99, shape).astype(np.int8), random.uniform(0.1, 1, scales).astype(np.float32)
    wide = s if s.size == 1 else np.repeat(s, block, axis)
    wide = np.broadcast_to(wide[tuple(map(slice, shape))], shape)
    for fixed in ((), (1,)):
        (numbers,) = run("DequantizeLinear", q, s, axis=axis, block_size=block, fixed=fixed)
        np.testing.assert_array_equal(numbers, q * wide)
        zero = np.zeros(scales, np.int8)
        (again,) = run("QuantizeLinear", numbers, s, zero, axis=axis, block_size=block, fixed=fixed)
        np.testing.assert_array_equal(again, q)


def test_scales_that_fit_no_blocks_are_refused() -> None:
    q = np.zeros(8, np.int8)
    with pytest.raises(ModelError, match=r"blocks of 4 along axis 0 have the shape \[2\]"):
        run("DequantizeLinear", q, np.ones(3, np.float32), axis=0, block_size=4)
    with pytest.raises(ModelError, match="need the attribute block_size"):
        run("DequantizeLinear", q.reshape(2, 4), np.ones((2, 2), np.float32), axis=1)
