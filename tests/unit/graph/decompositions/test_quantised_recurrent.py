import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.driver import compile_model
from tilewright.support import ModelError, assert_close


def _model(steps, lengths=None, unsigned=False, zero=0, seed=0):
    rng = np.random.default_rng(seed)
    batch, width, hidden = 3, 7, 5
    low, dtype = (0, np.uint8) if unsigned else (-128, np.int8)
    constants = {
        "w": rng.integers(low, low + 256, (1, width, 4 * hidden)).astype(dtype),
        "r": rng.integers(low, low + 256, (1, hidden, 4 * hidden)).astype(dtype),
        "b": rng.normal(size=(1, 8 * hidden)).astype(np.float32),
        "s": rng.uniform(0.002, 0.006, (1, 4 * hidden)).astype(np.float32),
        "z": np.full((1, 4 * hidden), low + 128 + zero, dtype),
    }
    if lengths is not None:
        constants["l"] = np.array(lengths, np.int32)
    reads = ("x", "w", "r", "b", "l" if lengths is not None else "", "", "", "", "s", "z", "s", "z")
    node = helper.make_node("DynamicQuantizeLSTM", reads, ("y", "h", "c"), "n", domain="com.microsoft")
    node.attribute.append(helper.make_attribute("hidden_size", hidden))
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (steps, batch, width))],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yhc"],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    x = rng.normal(size=(steps, batch, width)).astype(np.float32)
    return helper.make_model(graph, opset_imports=sets, ir_version=9), x, constants


def _bytes_times(x, matrix, scale, zero):
    low, high = min(np.float32(0), x.min()), max(np.float32(0), x.max())
    step = np.float32(high - low) / np.float32(255) or np.float32(1)
    shift = np.rint(-low / step)
    held = np.clip(np.rint(x / step) + shift, 0, 255)
    return (held - shift) @ (matrix.astype(np.int64) - zero) * (step * scale)


def _expected(x, constants):
    w, r, b, s, z = (constants[name][0] for name in "wrbsz")
    lengths = constants.get("l", np.full(x.shape[1], len(x)))
    h = c = np.zeros((x.shape[1], r.shape[0]), np.float32)
    previous, rows = h, []
    for t, products in enumerate(_bytes_times(x, w, s, z)):
        total = products + _bytes_times(previous, r, s, z) + b[: len(b) // 2] + b[len(b) // 2 :]
        i, o, f, g = np.split(total.astype(np.float32), 4, axis=-1)
        i, o, f = (1 / (1 + np.exp(-v)) for v in (i, o, f))
        running = (t < lengths)[:, None]
        cell = f * c + i * np.tanh(g)
        previous = np.where(running, o * np.tanh(cell), 0)
        h, c = np.where(running, previous, h), np.where(running, cell, c)
        rows.append(previous)
    return np.stack(rows)[:, None], h[None], c[None]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("steps", "lengths", "unsigned", "zero"),
    [
        (4, None, False, 0),
        (1, None, False, 0),
        (5, (5, 2, 3), False, 0),
        (4, None, True, 0),
        (4, None, True, -9),
        (4, None, False, 5),
    ],
    ids=["several steps", "one step", "lengths", "unsigned", "unsigned with zero points", "zero points"],
)
def test_inputs_and_states_are_bytes(steps, lengths, unsigned, zero):
    """Rounding to bytes is a part of the result: a layer on numbers differs by hundredths."""
    model, x, constants = _model(steps, lengths, unsigned, zero)
    got = compile_model(model, threads=1).run(None, {"x": x})
    for value, right in zip(got, _expected(x, constants), strict=True):
        assert_close(value, right, magnitude=np.ones_like(right) * 4, terms=64)


def test_without_steps_states_are_the_initial_ones():
    model, x, _ = _model(0)
    y, h, c = compile_model(model, threads=1).run(None, {"x": x})
    assert y.shape == (0, 1, 3, 5) and not h.any() and not c.any()


def test_weights_that_do_not_fit_blame_the_node():
    model, _, _ = _model(4)
    del model.graph.initializer[1]
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((1, 6, 20), np.int8), "r"))
    with pytest.raises(ModelError, match="its recurrence weights are"):
        compile_model(model, threads=1)
