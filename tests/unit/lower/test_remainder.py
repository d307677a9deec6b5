"""Remainders of floats: exact for every quotient, signs as numpy's."""

import numpy as np
import pytest
from onnx import helper

import tilewright
from tilewright.ir import BF16, F16, F32, F64


def operands(dtype):
    """Numbers of all sizes by numbers of all sizes, and the special ones."""
    rng = np.random.default_rng(7)
    # machines' conversions to bf16 make zeros of subnormal numbers
    low, high = {F16: (-7, 4), BF16: (-36, 38), F32: (-45, 38), F64: (-320, 308)}[dtype]

    def drawn():
        sizes = 10.0 ** rng.uniform(low, high, 3000)
        return (rng.choice([-1.0, 1.0], 3000) * sizes).astype(dtype.numpy).astype(np.float64)

    special = np.array([0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan])
    return (
        np.concatenate([made, pairs.ravel()]).astype(dtype.numpy)
        for made, pairs in zip((drawn(), drawn()), np.meshgrid(special, special), strict=True)
    )


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
@pytest.mark.parametrize(("truncated", "of"), [(1, np.fmod), (0, np.mod)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_remainders_are_exact(truncated, of, dtype):
    x, y = operands(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype.numpy))
    x_, y_, z_ = (helper.make_tensor_value_info(name, kind, x.shape) for name in "xyz")
    node = helper.make_node("Mod", ["x", "y"], ["z"], fmod=truncated)
    graph = helper.make_graph([node], "g", [x_, y_], [z_])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    (found,) = tilewright.compile(model).run(None, {"x": x, "y": y})
    inner = np.float64 if dtype == F64 else np.float32
    wanted = of(x.astype(inner), y.astype(inner)).astype(dtype.numpy).astype(np.float64)
    found = found.astype(np.float64)
    np.testing.assert_array_equal(found, wanted)
    zeros = wanted == 0
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(wanted[zeros]))
