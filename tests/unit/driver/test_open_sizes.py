"""What callers and files say of open sizes: ranges with steps, expressions, equalities."""

import random

import numpy as np
import pytest
from onnx import helper
from tests import onnx_models

import tilewright
from tilewright.driver.open_sizes import UNSAID, OpenSizes, symbol_of
from tilewright.driver.size_program import SizeNumbers
from tilewright.ir import Param, Size, bind_params, imax, imin, index, times
from tilewright.runtime import AffineDim, SizeRange, amount_in
from tilewright.support import InputError, ResourceError

node = helper.make_node


def sums(dims_a, dims_b):
    """Two inputs, one after the other: as long as both."""
    inputs = [onnx_models.tensor("a", dims_a), onnx_models.tensor("b", dims_b)]
    nodes = [node("Concat", ["a", "b"], ["y"], axis=0)]
    return onnx_models.model(nodes, inputs, [onnx_models.tensor("y", (None, 2))])


def decoder():
    """Scores of new places for all, old ones and new, to which a mask is added."""
    nodes = [
        node("Concat", ["old", "new"], ["all"], axis=0),
        node("Transpose", ["all"], ["turned"], perm=[1, 0]),
        node("MatMul", ["new", "turned"], ["scores"]),
        node("Add", ["scores", "mask"], ["y"], name="masked"),
    ]
    inputs = [
        onnx_models.tensor(name, dims)
        for name, dims in (("old", ("past", 4)), ("new", ("seq", 4)), ("mask", ("seq", "total")))
    ]
    return onnx_models.model(nodes, inputs, [onnx_models.tensor("y", ("seq", "total"))])


def feeds(past, seq, total):
    rng = np.random.default_rng(past + seq)
    shapes = {"old": (past, 4), "new": (seq, 4), "mask": (seq, total)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("said", [{}, {"total": "past + seq"}, {"total": "(past+seq)*2 - seq - past"}])
def test_the_cache_of_a_decoder(said):
    """The sum is said, or found out: both are checked in each run, by name and with both values."""
    model = tilewright.compile(decoder(), threads=1, dynamic={"past": (0, 60), "seq": (1, 9), **said})
    assert list(model.sizes) == (["past", "seq"] if said else ["past", "seq", "total"])
    for past, seq in ((0, 1), (60, 9), (13, 1), (13, 4)):
        given = feeds(past, seq, past + seq)
        both = np.concatenate([given["old"], given["new"]])
        np.testing.assert_allclose(
            model.run(None, given)[0], given["new"] @ both.T + given["mask"], rtol=1e-4, atol=1e-5
        )
    message = "axis 1 of 'mask' has 9 elements, not past" if said else "the size 'total' is 9"
    with pytest.raises(InputError, match=message):
        model.run(None, feeds(5, 2, 9))
    assert model.compilations == 0


def halved():
    """A picture at half of its size and doubled again, and the picture."""
    nodes = [
        node("AveragePool", ["x"], ["half"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", ["half", "", "scales"], ["back"], mode="nearest"),
        node("Sub", ["x", "back"], ["y"]),
    ]
    weights = {"scales": np.array([1, 1, 2, 2], np.float32)}
    x, y = onnx_models.tensor("x", (1, 3, "h", "w")), onnx_models.tensor("y", (1, 3, "h", "w"))
    return onnx_models.model(nodes, [x], [y], weights)


def test_sizes_in_steps():
    model = tilewright.compile(halved(), threads=1, dynamic={"h": (2, 64, 2), "w": (8, 40, 4)})
    assert model.sizes == {"h": SizeRange(2, 64, 2), "w": SizeRange(8, 40, 4)} and "in steps of 4" in repr(
        model
    )
    for h, w in ((2, 8), (64, 40), (10, 12), (34, 36)):
        x = np.random.default_rng(h).standard_normal((1, 3, h, w)).astype(np.float32)
        means = x.reshape(1, 3, h // 2, 2, w // 2, 2).mean((3, 5), keepdims=True)
        wanted = (x.reshape(1, 3, h // 2, 2, w // 2, 2) - means).reshape(x.shape)
        np.testing.assert_allclose(model(x)[0], wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(
        InputError, match="the size 'h' is 7; the model is compiled for 2 to 64 in steps of 2"
    ):
        model(np.zeros((1, 3, 7, 8), np.float32))


def test_expressions_of_the_file_are_read():
    model = tilewright.compile(
        sums(("2*n + 1", 2), ("n + m", 2)), threads=1, dynamic={"n": (1, 9), "m": (0, 5)}
    )
    a, b = np.ones((7, 2), np.float32), np.zeros((5, 2), np.float32)
    np.testing.assert_array_equal(model(a, b)[0], np.concatenate([a, b]))
    with pytest.raises(InputError, match=r"axis 0 of 'a' has 8 elements, which is 2\*n \+ 1 for no size 'n'"):
        model(np.ones((8, 2), np.float32), b)
    with pytest.raises(InputError, match="the size 'm' is 7; the model is compiled for 0 to 5"):
        model(a, np.ones((10, 2), np.float32))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dynamic": {"n": (1, 2, 3, 4)}}, "dynamic= gives 'n' the range"),
        ({"dynamic": {"n": (1, 9, 0)}}, "dynamic= gives 'n' the range"),
        ({"dynamic": {"n": (5, 7, 4)}}, "holds no multiple of 4"),
        ({"dynamic": {"n": "m +"}}, "'n' is given as 'm \\+', which is no expression of sizes"),
        ({"dynamic": {"n": "m ** 2"}}, "no expression of sizes"),
        ({"dynamic": {"n": "k + 1"}}, "there is no open size 'k'"),
        ({"dynamic": {"n": "m", "m": "n"}}, "the sizes 'n' and 'm' are given by each other"),
        ({"dynamic": {"n": "m // 2"}}, "the size 'n' is no sum of open sizes"),
        ({"dynamic": {}, "same": ["n"]}, "same= must map names to names"),
        ({"dynamic": {}, "same": {"k": "n"}}, "the model has no open size 'k'"),
    ],
)
def test_what_says_nothing_of_sizes_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        tilewright.compile(sums(("n", 2), ("m", 2)), **given)


def test_what_no_memory_holds_is_refused():
    model = tilewright.compile(sums(("n", 2), ("m", 2)), threads=1, dynamic={"n": (1, 1 << 44)})
    (planned,) = model.plans
    with pytest.raises(ResourceError, match="a run would take more than"):
        planned.plan.run(None, {}, (1 << 44, 1))


def test_ranges_are_parted_and_solved():
    sizes = OpenSizes({"n": UNSAID, "m": SizeRange(0, 64, 2)}, ("n", "m"))
    n, m = (index(Param(symbol_of(at), lo, hi)) for at, (lo, hi) in enumerate(((1, 4096), (0, 32))))
    below, above = sizes.parted(n - 7)
    assert (below.ranges["n"], above.ranges["n"]) == (SizeRange(1, 6), SizeRange(7, 4096))
    assert sizes.parted(m * 2 - 9)[0].ranges["m"] == SizeRange(0, 8, 2)
    (only,) = sizes.parted(imin(n, 64) - n, equal=True)
    assert only.ranges["n"] == SizeRange(1, 64)
    assert sizes.parted(n - m) == () and sizes.parted(n + 3) == ()
    solved = sizes.with_equal(n - m * 2 - 3)
    assert str(solved.values()["n"]) == "2*size1 + 3" and "'n'" in sizes.shown(n)
    assert sizes.with_equal(times(n, m) - 3) is None
    assert sizes.shows("n", sizes.values()) == "n"


@pytest.mark.parametrize("seed", range(20))
def test_numbers_of_a_run_are_the_expressions(seed):
    rng = random.Random(seed)
    symbols = [index(Param(name, 1, 99)) for name in ("size0", "size1", "count2")]
    known = [*symbols]
    for _ in range(10):
        a, b = rng.choice(known), rng.choice(known)
        made = [
            a + b * rng.randint(1, 3),
            times(a, b),
            a // rng.randint(2, 5),
            a % 7,
            imin(a, b + 2),
            imax(a, b),
        ]
        known.append(rng.choice(made) + rng.randint(0, 2))
    numbers = SizeNumbers({"size0": 1, "size1": 4, "count2": 1})
    amounts = [numbers.amount(Size(x)) for x in known] + [numbers.amount(5)]
    largest = numbers.largest([Size(x) for x in known])
    for _ in range(5):
        at = {"size0": rng.randint(1, 99), "size1": rng.randint(1, 24), "count2": rng.randint(1, 9)}
        values = numbers.program().values([at["size0"], at["size1"] * 4, at["count2"]])
        wanted = [bind_params(x, at).as_int() for x in known]
        assert [amount_in(n, values) for n in amounts] == [*wanted, 5]
        assert amount_in(largest, values) == max(wanted)


def test_affine_dimensions_show_their_sizes():
    dim = AffineDim((("past", 1), ("seq", -2)), -3)
    assert str(dim) == "past - 2*seq - 3" and dim.at({"past": 20, "seq": 3}) == 11
    assert dim.unknown(11, {"seq": 3}) == ("past", 20) and dim.unknown(11, {}) is None
    assert dim.unknown(10, {"past": 20}) == ("seq", None)
