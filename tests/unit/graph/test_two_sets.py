"""Operators that the language and models both define (decision 0066) compute the same."""

import numpy as np
import pytest
from onnx import helper

import onnx_models as tiny
from tilewright import ir, lang
from tilewright.frontend import import_onnx
from tilewright.graph import evaluate_graph
from tilewright.lang import ops

#: The operator of a model, its attributes, the shapes of its inputs, and the language's.
CASES = {
    "convolution": (
        "Conv",
        {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2], "group": 2},
        [(2, 4, 9, 8), (6, 2, 3, 2), (6,)],
        lambda x, w, b: ops.conv(x, w, b, (2, 1), [(1, 2), (0, 1)], (1, 2), 2),
    ),
    "transposed convolution": (
        "ConvTranspose",
        {"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 0], "group": 2},
        [(2, 4, 3, 4), (4, 3, 3, 2), (6,)],
        lambda x, w, b: ops.conv_transpose(x, w, b, (2, 3), [(1, 0), (0, 1)], 1, (1, 0), 2),
    ),
    "softmax": ("Softmax", {"axis": 1}, [(3, 7, 2)], lambda x: ops.softmax(x, 1)),
    "logarithm of softmax": ("LogSoftmax", {"axis": 1}, [(3, 7, 2)], lambda x: ops.log_softmax(x, 1)),
    "layer normalisation": (
        "LayerNormalization",
        {"axis": 1, "epsilon": 2**-10},
        [(3, 4, 5), (4, 5), (4, 5)],
        lambda x, s, b: ops.layer_norm(x, s, b, 1, 2**-10),
    ),
    "group normalisation": (
        "GroupNormalization",
        {"num_groups": 2, "epsilon": 2**-10},
        [(2, 6, 5), (6,), (6,)],
        lambda x, s, b: ops.group_norm(x, s, b, 2, 2**-10),
    ),
    "instance normalisation": (
        "InstanceNormalization",
        {"epsilon": 2**-10},
        [(2, 3, 5, 2), (3,), (3,)],
        lambda x, s, b: ops.instance_norm(x, s, b, 2**-10),
    ),
    "largest of windows": (
        "MaxPool",
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
        [(2, 3, 7, 6)],
        lambda x: ops.max_pool(x, (3, 2), (2, 1), [(1, 1), (0, 1)]),
    ),
    "means of windows": (
        "AveragePool",
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "count_include_pad": 0},
        [(2, 3, 7, 6)],
        lambda x: ops.average_pool(x, (3, 2), (2, 1), [(1, 1), (0, 1)]),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_language_and_models_agree(case):
    op, attributes, shapes, define = CASES[case]
    random = np.random.default_rng(0)
    arrays = {f"x{n}": random.standard_normal(shape) for n, shape in enumerate(shapes)}
    inputs = [lang.placeholder(array.shape, "f64", name=name) for name, array in arrays.items()]
    program = lang.program(inputs, define(*inputs))
    ir.verify_program(program)
    found = lang.evaluate(program, list(arrays.values()))[program.outputs[0].name]
    node = helper.make_node(op, list(arrays), ["y"], **attributes)
    infos = [tiny.tensor(name, array.shape, tiny.DOUBLE) for name, array in arrays.items()]
    model = tiny.model([node], infos, [tiny.tensor("y", found.shape, tiny.DOUBLE)])
    expected = evaluate_graph(import_onnx(model), arrays)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
