"""Branches and loops that data decides: each body compiled once, nested, with values that grow."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from tests import onnx_models

import tilewright
from tilewright.support import InputError

node, info = helper.make_node, helper.make_tensor_value_info
INT, BOOL, FLOAT = TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT
RNG = np.random.default_rng(11)


def graph(nodes, inputs, outputs, weights=()):
    initial = [helper.make_tensor(n, INT, np.shape(v), np.ravel(v)) for n, v in dict(weights).items()]
    return helper.make_graph(
        nodes, "body", [info(*each) for each in inputs], [info(*each) for each in outputs], initial
    )


def compared(made, source, *feeds):
    reference = ReferenceEvaluator(source)
    for each in feeds:
        wanted = reference.run(None, each)
        for got, want in zip(made.run(None, each), wanted, strict=True):
            want = np.asarray(want)
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert made.compilations == 0


def branches():
    """The doubled input, or the sum of its rows: of unlike sizes."""
    then = graph([node("Add", ["x", "x"], ["a"])], [], [("a", FLOAT, None)])
    other = graph([node("ReduceSum", ["x", "zero"], ["b"])], [], [("b", FLOAT, None)], {"zero": [0]})
    nodes = [
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Greater", ["most", "limit"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        node("Relu", ["y"], ["z"]),
    ]
    weights = {"limit": np.array(2, np.float32)}
    return onnx_models.model(
        nodes, [onnx_models.tensor("x", ("n", 3))], [info("z", FLOAT, None), info("y", FLOAT, None)], weights
    )


def test_branches_of_unlike_sizes():
    source = branches()
    made = tilewright.compile(source, threads=1, dynamic={"n": (1, 40)})
    x = RNG.standard_normal((7, 3)).astype(np.float32)
    compared(made, source, {"x": x}, {"x": x + 9}, {"x": x[:1] - 9}, {"x": np.tile(x + 3, (5, 1))})


def test_conditions_of_several_elements_are_refused():
    source = branches()
    source.graph.node[0].attribute[0].i = 1  # keepdims
    source.graph.node[0].input.append("axes")
    source.graph.initializer.append(helper.make_tensor("axes", INT, [1], [1]))
    made = tilewright.compile(source, threads=1, dynamic={"n": (1, 40)})
    with pytest.raises(InputError, match="'c' has 5 elements where one is needed"):
        made(np.ones((5, 3), np.float32))
    assert made(np.ones((1, 3), np.float32))[0].shape == (1, 3)


def growing():
    """What is carried grows by a row a step; each step's number is collected."""
    body = graph(
        [
            node("Cast", ["i"], ["f"], to=FLOAT),
            node("Reshape", ["f", "one"], ["row"]),
            node("Expand", ["row", "width"], ["wide"]),
            node("Add", ["wide", "start"], ["more"]),
            node("Concat", ["old", "more"], ["new"], axis=0),
            node("ReduceSum", ["new"], ["total"], keepdims=0),
            node("Identity", ["go"], ["on"]),
        ],
        [("i", INT, ()), ("go", BOOL, ()), ("old", FLOAT, None)],
        [("on", BOOL, ()), ("new", FLOAT, None), ("total", FLOAT, ())],
        {"one": [1, 1], "width": [1, 3]},
    )
    nodes = [node("Loop", ["steps", "", "start"], ["all", "totals"], body=body)]
    inputs = [onnx_models.tensor("steps", (), INT), onnx_models.tensor("start", (1, 3))]
    return onnx_models.model(nodes, inputs, [info("all", FLOAT, None), info("totals", FLOAT, None)])


def test_loops_carry_values_that_grow():
    source = growing()
    made = tilewright.compile(source, threads=1, dynamic={})
    start = RNG.standard_normal((1, 3)).astype(np.float32)
    for steps in (0, 1, 4, 19):
        whole, totals = made.run(None, {"steps": np.array(steps), "start": start})
        wanted = np.concatenate([start, *(start + n for n in range(steps))])
        np.testing.assert_allclose(whole, wanted, rtol=1e-5)
        sums = [wanted[: n + 2].sum() for n in range(steps)]
        assert totals.shape == (steps,)
        np.testing.assert_allclose(totals, np.array(sums, np.float32), rtol=1e-4, atol=1e-4)
    assert made.compilations == 0


def halving():
    """x is halved while its sum is above a limit, in a branch if it is above another."""
    then = graph([node("Mul", ["v", "quarter"], ["a"])], [], [("a", FLOAT, None)])
    other = graph([node("Mul", ["v", "half"], ["b"])], [], [("b", FLOAT, None)])
    body = graph(
        [
            node("ReduceSum", ["v"], ["s"], keepdims=0),
            node("Greater", ["s", "much"], ["c"]),
            node("If", ["c"], ["w"], then_branch=then, else_branch=other),
            node("ReduceSum", ["w"], ["t"], keepdims=0),
            node("Greater", ["t", "limit"], ["on"]),
        ],
        [("i", INT, ()), ("go", BOOL, ()), ("v", FLOAT, None)],
        [("on", BOOL, ()), ("w", FLOAT, None)],
    )
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "limit"], ["first"]),
        node("Loop", ["", "first", "x"], ["y"], body=body),
    ]
    numbers = {"half": 0.5, "quarter": 0.25, "limit": 1.0, "much": 100.0}
    weights = {name: np.array(value, np.float32) for name, value in numbers.items()}
    return onnx_models.model(nodes, [onnx_models.tensor("x", ("n", 2))], [info("y", FLOAT, None)], weights)


def test_loops_go_on_while_data_says_so_and_hold_branches():
    source = halving()
    made = tilewright.compile(source, threads=2, dynamic={"n": (1, 30)})
    feeds = [RNG.random((n, 2)).astype(np.float32) * k for n, k in ((1, 0.1), (4, 3), (30, 50), (2, 1000))]
    compared(made, source, *({"x": x} for x in feeds))


def test_profiles_add_up_what_runs_again():
    made = tilewright.compile(growing(), threads=1, dynamic={})
    start = np.ones((1, 3), np.float32)
    few, many = (made.profile({"steps": np.array(n), "start": start}, repeats=2) for n in (2, 20))
    kernels = [*dict.fromkeys(each.nodes for each in made.groups())]
    # in the turns of a loop both versions of a kernel may run
    for each in (few, many):
        assert [*dict.fromkeys(row.nodes for row in each.rows)] == kernels
    assert many.rows[-1].flops > 10 * few.rows[-1].flops > 0
    assert made.measure({"steps": np.array(2), "start": start}, repeats=2).shape == (2, len(made.groups()))


def decoding():
    """Greedy decoding: the place of the largest product is the next row, until it is the last."""
    body = graph(
        [
            node("Gather", ["table", "token"], ["row"], axis=0),
            node("MatMul", ["row", "weights"], ["scores"]),
            node("ArgMax", ["scores"], ["next"], axis=-1, keepdims=0),
            node("Equal", ["next", "end"], ["over"]),
            node("Not", ["over"], ["on"]),
            node("Concat", ["seen", "next1"], ["more"], axis=0),
            node("Reshape", ["next", "one"], ["next1"]),
        ],
        [("i", INT, ()), ("go", BOOL, ()), ("token", INT, ()), ("seen", INT, None)],
        [("on", BOOL, ()), ("next", INT, ()), ("more", INT, None)],
        {"one": [1]},
    )
    nodes = [node("Loop", ["most", "", "first", "none"], ["last", "tokens"], body=body)]
    table = RNG.standard_normal((12, 8)).astype(np.float32)
    weights = {"table": table, "weights": RNG.standard_normal((8, 12)).astype(np.float32)}
    weights |= {"end": np.array(5), "none": np.zeros(0, np.int64)}
    inputs = [onnx_models.tensor("most", (), INT), onnx_models.tensor("first", (), INT)]
    return onnx_models.model(nodes, inputs, [info("tokens", INT, None)], weights), weights


def test_greedy_decoding_in_the_graph():
    source, weights = decoding()
    made = tilewright.compile(source, threads=1, dynamic={})
    for first in range(12):
        token, wanted = first, []
        while len(wanted) < 9 and (not wanted or token != 5):
            token = int((weights["table"][token] @ weights["weights"]).argmax())
            wanted.append(token)
        (got,) = made.run(None, {"most": np.array(9), "first": np.array(first)})
        np.testing.assert_array_equal(got, wanted)
    assert made.compilations == 0
    with pytest.raises(InputError, match="the input 'first' is missing"):
        made.run(None, {"most": np.array(9)})


def test_steps_whose_results_do_not_stack_are_named():
    body = graph(
        [node("Range", ["zero", "i", "one"], ["r"]), node("Identity", ["go"], ["on"])],
        [("i", INT, ()), ("go", BOOL, ())],
        [("on", BOOL, ()), ("r", INT, None)],
        {"zero": 0, "one": 1},
    )
    source = onnx_models.model(
        [node("Loop", ["steps", ""], ["rows"], body=body)],
        [onnx_models.tensor("steps", (), INT)],
        [info("rows", INT, None)],
    )
    made = tilewright.compile(source, threads=1, dynamic={})
    assert made.run(None, {"steps": np.array(1)})[0].shape == (1, 0)
    with pytest.raises(InputError, match="the steps of a loop collect 'rows' in unlike shapes"):
        made.run(None, {"steps": np.array(3)})


def test_results_are_arrays_of_their_own():
    """Also where a loop makes no step, and a branch gives back what it was given."""
    body = graph(
        [node("Add", ["v", "v"], ["w"]), node("Identity", ["go"], ["on"])],
        [("i", INT, ()), ("go", BOOL, ()), ("v", FLOAT, None)],
        [("on", BOOL, ()), ("w", FLOAT, None)],
    )
    nodes = [node("Loop", ["steps", "", "x"], ["y"], body=body), node("Identity", ["y"], ["z"])]
    inputs = [onnx_models.tensor("steps", (), INT), onnx_models.tensor("x", ("n",))]
    source = onnx_models.model(nodes, inputs, [info(name, FLOAT, None) for name in "yz"])
    made = tilewright.compile(source, threads=1, dynamic={})
    x = np.ones(3, np.float32)
    y, z = made(np.array(0), x)
    y += 1
    np.testing.assert_array_equal([x, z], np.ones((2, 3)))
    np.testing.assert_array_equal(made(np.array(2), x), np.full((2, 3), 4))
    into = [np.empty(3, np.float32), np.empty(3, np.float32)]
    assert made(np.array(1), x, out=into)[0] is into[0]
    np.testing.assert_array_equal(into, np.full((2, 3), 2))
    with pytest.raises(InputError, match=r"the input 'steps': int64.* got elements of float"):
        made(np.array(1.5), x)
