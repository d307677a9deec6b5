"""What newcomers write and is answered: numpy on scalars of programs, lists for arrays, pickling."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_models as tiny
import tilewright
from tilewright import lang
from tilewright.build import build
from tilewright.support import InputError, ModelError, ProgramError

A = lang.placeholder((8,), "f32", "A")
N = lang.placeholder((8,), "i32", "N")


def computed(of: Callable[[lang.IndexExpr], object]) -> object:
    return lang.compute((8,), of)


WRITTEN: dict[str, tuple[Callable[[], object], str]] = {
    "a function of numpy": (lambda: computed(lambda i: np.exp(A[i])), r"numpy.exp works on arrays.*lang.exp"),
    "numpy's maximum": (lambda: computed(lambda i: np.maximum(A[i], 0.0)), "numpy.maximum works on arrays"),
    "an array": (lambda: computed(lambda i: np.ones(3) * A[i]), "numpy.multiply works on arrays"),
    "float()": (lambda: computed(lambda i: float(A[i])), "has no value while the program is built"),
    "int()": (lambda: computed(lambda i: int(A[i])), "has no value while the program is built"),
    "round()": (lambda: computed(lambda i: round(A[i])), "use lang.round"),
    "a tensor and a number": (lambda: A + 1, "A is a tensor, not a number.*index its elements"),
    "a number and a tensor": (lambda: 2.0 * A, "A is a tensor"),
    "two tensors": (lambda: A @ A, "A is a tensor"),
    "a power of a tensor": (lambda: A**2, "A is a tensor"),
    "numpy of a tensor": (lambda: np.exp(A), "A is a tensor"),
    "a power of an integer": (
        lambda: computed(lambda i: N[i] ** -1),
        r"`\*\*` with -1 on a value of type i32",
    ),
    "many dimensions": (lambda: lang.placeholder((1,) * 2000), "a shape of 2000 dimensions"),
    "many axes": (lambda: lang.compute((1,) * 65, lambda *i: A[0]), "a shape of 65 dimensions"),
}


@pytest.mark.parametrize("what", WRITTEN)
def test_what_a_program_cannot_say(what: str) -> None:
    make, message = WRITTEN[what]
    with pytest.raises(ProgramError, match=f"(?s){message}") as caught:
        make()
    assert "test_misuse.py" in str(caught.value)


def test_powers_and_numbers_of_numpy_work() -> None:
    made = lang.compute((8,), lambda i: A[i] ** 2 + np.float32(2) * A[i] + 2.0 ** A[i] + A[i] ** 0.5)
    a = np.linspace(0.5, 2, 8, dtype=np.float32)
    found = lang.evaluate(lang.program([A], [made], name="p"), {"A": a})
    np.testing.assert_allclose(next(iter(found.values())), a**2 + 2 * a + 2**a + a**0.5, rtol=1e-5)
    cubes = lang.compute((8,), lambda i: N[i] ** 3)
    n = np.arange(-4, 4, dtype=np.int32)
    found = lang.evaluate(lang.program([N], [cubes], name="p"), {"N": n})
    np.testing.assert_array_equal(next(iter(found.values())), n**3)


def test_an_extent_may_be_a_quotient_of_a_size() -> None:
    h = lang.param("H", 2, 64)
    x = lang.placeholder((h,), "f32", "X")
    halves = lang.program([x], [lang.compute((h // 2,), lambda i: x[2 * i] + x[2 * i + 1])], name="halves")
    given = np.arange(9, dtype=np.float32)
    wanted = given[:8:2] + given[1:8:2]
    np.testing.assert_array_equal(next(iter(lang.evaluate(halves, {"X": given}).values())), wanted)
    np.testing.assert_array_equal(build(halves)(given)[0], wanted)


def test_kernels_take_what_makes_an_array() -> None:
    kernel = build(lang.program([A], [lang.compute((8,), lambda i: A[i] * 2.0)], name="twice"))
    np.testing.assert_array_equal(kernel([np.float32(1)] * 8)[0], np.full(8, 2, np.float32))
    with pytest.raises(InputError, match="input 'A' must be f32"):
        kernel({"A": np.ones(8, np.float32)})
    with pytest.raises(InputError, match="input 'A' cannot be made an array"):
        kernel([[1], [1, 2]])
    odd = np.ones(9, np.float32)[1:]  # not aligned
    np.testing.assert_array_equal(kernel(odd)[0], np.full(8, 2, np.float32))


# ---- models ----


@pytest.fixture(scope="module")
def model() -> tilewright.CompiledModel:
    return tilewright.compile(tiny.mlp(), threads=1)


def test_models_are_not_pickled(model: tilewright.CompiledModel, tmp_path: Path) -> None:
    model.save(tmp_path / "m.tw")
    loaded = tilewright.load(tmp_path / "m.tw")
    bound = model.bind(model.sample_feeds())
    for each in (model, loaded, bound):
        for act in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(InputError, match=rf"a {type(each).__name__} holds code.*cannot be pickled"):
                act(each)


def test_arguments_of_other_kinds(model: tilewright.CompiledModel, tmp_path: Path) -> None:
    feeds = model.sample_feeds()
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: model.run(5, feeds), "output names must be a list"),
        (lambda: model.sample_feeds("a"), "a seed is a whole number from 0, not 'a'"),
        (lambda: model.sample_feeds(-1), "a seed is a whole number from 0, not -1"),
        (lambda: model.profile(feeds, 0), "repeats must be a whole number from 1, not 0"),
        (lambda: model.profile(feeds, "2"), "repeats must be a whole number from 1, not '2'"),
        (lambda: model.save(None), "a saved model is given by its path, not by NoneType"),
        (lambda: model.export_c(5), "a header is given by its path, not by int"),
        (lambda: tilewright.compile(tiny.mlp(), shapes=[2, 3]), "shapes= must map names to shapes"),
        (lambda: tilewright.compile(tiny.mlp(), shapes={5: 3}), "shapes= must map names to shapes"),
        (lambda: tilewright.compile(tiny.mlp(), constants=[1]), "constants= must map names to arrays"),
        (lambda: tilewright.compile(tiny.mlp(), dynamic={}, shapes=5), "shapes= must map names to shapes"),
        (
            lambda: tilewright.compile(tiny.mlp(), dynamic={}, constants=np.ones(2)),
            "constants= must map names to arrays",
        ),
        (
            lambda: tilewright.compile(tiny.mlp(), constants={"x": "a"}),
            "constants= gives 'x' elements of str",
        ),
        (lambda: tilewright.compile(tiny.mlp(), constants={"x": [[1], [1, 2]]}), "cannot be made an array"),
    ]
    for call, message in calls:
        with pytest.raises(InputError, match=message):
            call()
    model.save(tmp_path / "m.tw")
    with pytest.raises(InputError, match="threads must be a whole number from 1 to 1024, got 'two'"):
        tilewright.load(tmp_path / "m.tw", threads="two")


def test_lists_of_numbers_are_told_how_to_become_arrays(model: tilewright.CompiledModel) -> None:
    given = [[1.0] * 8] * 4
    with pytest.raises(InputError, match="got elements of float64") as raised:
        model(given)
    assert raised.value.hint == "convert it: numpy.asarray(x, numpy.float32)"
    model(np.asarray(given, np.float32))


def test_more_dimensions_than_arrays_have() -> None:
    many = numpy_helper.from_array(np.ones(1, np.float32), "w")
    del many.dims[:]
    many.dims.extend([1] * 2000)

    def graph(node: onnx.NodeProto, shape: list[int], *known: onnx.TensorProto) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        made = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name="y")], known)
        return helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    axes = numpy_helper.from_array(np.arange(70), "axes")
    for made, message in (
        (graph(helper.make_node("Add", ["x", "w"], ["y"]), [1], many), "'w' has 2000 dimensions"),
        (graph(helper.make_node("Relu", ["x"], ["y"]), [1] * 65), "'x' has 65 dimensions"),
        (
            graph(helper.make_node("Unsqueeze", ["x", "axes"], ["y"], name="n"), [], axes),
            "node 'n'.*70 dimensions",
        ),
    ):
        with pytest.raises(ModelError, match=message):
            tilewright.compile(made)
