"""Forms of old operator sets: what they compute, and what of them means nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph import Attribute, Node, evaluate_graph, type_of, typed_graph
from tilewright.support import ModelError

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((2, 3, 4, 5)).astype(np.float32)


def run(op: str, *inputs: np.ndarray, version: int, **attributes: Attribute) -> np.ndarray:
    feeds = {f"x{at}": array for at, array in enumerate(inputs)}
    node = Node(op, tuple(feeds), ("y",), attributes, name="culprit", version=version)
    graph = typed_graph({name: type_of(array) for name, array in feeds.items()}, ["y"], [node], {})
    return evaluate_graph(graph, feeds)["y"]


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Less", "Greater"])
@pytest.mark.parametrize(
    ("axis", "shape"), [(1, (3,)), (1, (3, 4)), (0, (2,)), (2, (4, 5)), (-1, (5,)), (-3, (3,))]
)
def test_broadcast_from_an_axis(op: str, axis: int, shape: tuple[int, ...]) -> None:
    y = RANDOM.standard_normal(shape).astype(np.float32) + 3
    found = run(op, X, y, version=6, broadcast=1, axis=axis)
    after = 4 - axis % 4 - len(shape)
    functions = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
    functions |= {"Less": np.less, "Greater": np.greater}
    np.testing.assert_allclose(found, functions[op](X, y.reshape(*shape, *(1,) * after)), rtol=1e-6)


def test_an_axis_without_broadcast_means_nothing() -> None:
    np.testing.assert_array_equal(run("Add", X, X, version=6, axis=1), X + X)
    with pytest.raises(ModelError, match=r"node 'culprit' \(Add\): \[4, 5\] from axis 3 on does not fit"):
        run("Add", X, X[0, 0], version=6, broadcast=1, axis=3)


def test_slopes_of_channels() -> None:
    slopes = np.array([0.1, 0.2, 0.3], np.float32)
    wanted = np.where(X < 0, X * slopes[:, None, None], X)
    np.testing.assert_allclose(run("PRelu", X, slopes, version=6), wanted, rtol=1e-6)
    with pytest.raises(ModelError, match="broadcast"):
        run("PRelu", X, slopes, version=7)


def test_batch_normalisation_by_element() -> None:
    scale, bias, mean = (RANDOM.standard_normal((3, 4, 5)).astype(np.float32) for _ in range(3))
    variance = RANDOM.random((3, 4, 5)).astype(np.float32) + 0.5
    found = run("BatchNormalization", X, scale, bias, mean, variance, version=7, spatial=0, epsilon=1e-3)
    np.testing.assert_allclose(
        found, (X - mean) / np.sqrt(variance + 1e-3) * scale + bias, rtol=1e-4, atol=1e-5
    )
    with pytest.raises(ModelError, match=r"its input 1 \[3\] must be \[3, 4, 5\] as spatial is 0"):
        run("BatchNormalization", X, scale[:, 0, 0], bias, mean, variance, version=7, spatial=0)
    with pytest.raises(ModelError, match=r"its factors \[3, 4, 5\].* must have the shape \[3\]"):
        run("BatchNormalization", X, scale, bias, mean, variance, version=9)
