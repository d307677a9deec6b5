"""The option ``accuracy``: what each mode does, and that ``auto`` looks at the weights."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper
from tests.native_kernel import HERE, HOST

import onnx_models as tiny
import tilewright
from tilewright import lang
from tilewright.driver.kernels import KernelOptions
from tilewright.ir import CONST
from tilewright.plan import MOST_ERROR, Accuracy, read_accuracy
from tilewright.support import InputError

CHANNELS, PIXELS = 64, 28
HAS_TILES = any(i.name == "tdpbf16ps" for i in HOST.instructions)
needs_tiles = pytest.mark.skipif(not HAS_TILES, reason="this machine has no tile registers for bf16")


def layers(*scales):
    """3x3 convolutions one after another, the weights of each scaled: equal programs, other contents."""
    random = np.random.default_rng(0)
    weights = {
        f"w{n}": (random.standard_normal((CHANNELS, CHANNELS, 3, 3)) * scale).astype(np.float32)
        for n, scale in enumerate(scales)
    }
    names = ["x", *(f"v{n}" for n in range(len(scales)))]
    nodes = [
        helper.make_node("Conv", [names[n], f"w{n}"], [names[n + 1]], name=f"conv{n}", pads=[1, 1, 1, 1])
        for n in range(len(scales))
    ]
    shape = (1, CHANNELS, PIXELS, PIXELS)
    return tiny.model(nodes, [tiny.tensor("x", shape)], [tiny.tensor(names[-1], shape)], weights)


def tiles(compiled):
    """The tiles of Winograd's method in each step, ``None`` for the direct one."""
    found = []
    for group in compiled.groups():
        steps = [s for s in group.kernel.schedule.trace.steps if s.primitive == "winograd"]
        found.append(int(str(steps[0].args[1])) if steps else None)
    return found


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("mode", "expected"),
    [("exact", None), ("f2", 2), ("f4", 4), ("auto", 4), ("no-f4", 2), ("no-winograd", None)],
)
def test_modes(mode, expected):
    model = layers(0.05)
    compiled = tilewright.compile(model, accuracy=mode, threads=2, target=HERE)
    assert tiles(compiled) == [expected]
    x = np.random.default_rng(1).standard_normal((1, CHANNELS, PIXELS, PIXELS), np.float32)
    direct = tilewright.compile(model, accuracy="exact", threads=2, target=HERE)(x)[0]
    result = compiled(x)[0]
    assert np.abs(result - direct).max() <= MOST_ERROR * np.abs(direct).max()
    assert np.array_equal(result, direct) == (expected is None)


def test_auto_judges_each_layer_by_its_own_weights():
    # the transforms of the third layer's weights leave the range of f32 with tiles of 4, of the last with any
    compiled = tilewright.compile(layers(1, 1e-3, 3e36, 1e-36, 1e38 / 4), target=HERE)
    assert tiles(compiled) == [4, 4, 2, 4, None]
    names = [group.kernel.name for group in compiled.groups()]
    assert names[1] == names[3] != names[2]
    assert tiles(tilewright.compile(layers(3e36), accuracy="f4")) == [4]
    # what is left out stays out, and what is not exact goes besides
    assert tiles(tilewright.compile(layers(1, 1e38 / 4), accuracy="no-f2", target=HERE)) == [4, None]


def products(*scales):
    """Products with constant matrices one after another, each matrix scaled."""
    random = np.random.default_rng(0)
    sizes = (128, 768)
    weights = {
        f"w{n}": (random.standard_normal((768, 768)) * scale).astype(np.float32)
        for n, scale in enumerate(scales)
    }
    nodes = [
        helper.make_node("MatMul", ["x", f"w{n}"], [f"y{n}"], name=f"product{n}") for n in range(len(scales))
    ]
    results = [tiny.tensor(f"y{n}", sizes) for n in range(len(scales))]
    return tiny.model(nodes, [tiny.tensor("x", sizes)], results, weights)


def test_products_take_strassens_method_where_their_weights_allow_it():
    # sums of quarters of the second matrix leave the range of f32
    model = products(0.05, 6e37)
    found = tilewright.compile(model, threads=2, target=HERE)
    assert [each.algorithm for each in found.descriptions()] == ["strassen", "matmul"]
    for word in ("exact", "no-strassen"):
        direct = tilewright.compile(model, threads=2, accuracy=word, target=HERE)
        assert [each.algorithm for each in direct.descriptions()] == ["matmul", "matmul"]
    x = np.random.default_rng(1).standard_normal((128, 768), np.float32) * 0.01
    for got, wanted in zip(found(x), direct(x), strict=True):
        assert np.abs(got - wanted).max() <= MOST_ERROR * np.abs(wanted).max()
    assert np.array_equal(found(x)[0], found(x)[0])


@needs_tiles
def test_products_are_taken_in_pieces_where_their_weights_allow_it():
    infinite = np.full((768, 768), 0.05)
    infinite[3, 5] = np.inf
    model = products(0.05, infinite)
    found = tilewright.compile(model, threads=2)
    assert [each.algorithm for each in found.descriptions()] == ["bf16x3 by tdpbf16ps", "matmul"]
    direct = tilewright.compile(model, threads=2, accuracy="exact")
    assert [each.algorithm for each in direct.descriptions()] == ["matmul", "matmul"]
    x = np.random.default_rng(1).standard_normal((128, 768), np.float32)
    (got, got_infinite), (wanted, wanted_infinite) = found(x), direct(x)
    assert 0 < np.abs(got - wanted).max() <= MOST_ERROR * np.abs(wanted).max()
    np.testing.assert_array_equal(got_infinite, wanted_infinite)
    # an infinity, not what becomes of its pieces
    assert np.isinf(got_infinite[:, 5]).all() and np.isfinite(np.delete(got_infinite, 5, axis=1)).all()


def test_unknown_modes_are_refused():
    with pytest.raises(InputError, match=r"(?s)no method winograd='f6'.*auto, off, f2, f4"):
        tilewright.compile(layers(1), winograd="f6")
    assert KernelOptions(1).accuracy == Accuracy()


@pytest.mark.parametrize("wanted", ["f8", 0, 1.0, -1e-3, True, None, "nan", [1]])
def test_accuracies_that_say_nothing_are_refused(wanted):
    with pytest.raises(InputError, match="neither exact, auto, f2, f4 nor an error between 0 and 1"):
        tilewright.compile(layers(1), accuracy=wanted)


@pytest.mark.parametrize("wanted", ["no-f8", "no-", "no-f2,f4", "no-strassen;no-f2"])
def test_only_algorithms_are_left_out(wanted):
    with pytest.raises(InputError, match=r"(?s)no algorithm.*no-bf16x3, no-strassen, no-winograd"):
        read_accuracy(wanted)


def test_algorithms_are_left_out_one_by_one():
    some = read_accuracy("no-strassen, no-f4")
    assert [some.allows(name) for name in ("f2", "f4", "strassen", "bf16x3")] == [True, False, False, True]
    assert read_accuracy("no-winograd").without == {"f2", "f4"}
    only = read_accuracy("f4")
    assert [only.allows(name) for name in ("f2", "f4", "strassen")] == [False, True, False]
    assert only.is_asked_for and not some.is_asked_for


def test_accuracy_is_said_once():
    with pytest.raises(InputError, match="accuracy= and winograd= say the same thing"):
        tilewright.compile(layers(1), accuracy="exact", winograd="off")
    assert read_accuracy("auto", "off") == read_accuracy("exact") == Accuracy("exact")


def test_a_stricter_bound_takes_smaller_tiles_or_the_direct_method():
    """The error of each layer's own weights decides: none beyond the bound that was asked for."""
    model = layers(1)
    feeds = tilewright.compile(model, threads=2, target=HERE, accuracy="exact").sample_feeds()
    algorithms = []
    for accuracy in ("auto", "1e-12"):
        compiled = tilewright.compile(model, threads=2, target=HERE, accuracy=accuracy)
        algorithms.append([each.algorithm for each in compiled.descriptions()])
    assert any("winograd" in each for each in algorithms[0])
    assert not any("winograd" in each for each in algorithms[1])
    (exact,) = tilewright.compile(model, threads=2, target=HERE, accuracy="exact").run(None, feeds)
    (strict,) = tilewright.compile(model, threads=2, target=HERE, accuracy=1e-12).run(None, feeds)
    np.testing.assert_array_equal(strict, exact)


def _match(channels, depth=None):
    taps = (3, 3) if depth is None else (depth, 3, 3)
    size = (8, 8) if depth is None else (4, 8, 8)
    x = lang.placeholder((1, channels, *size), name="X")
    w = lang.placeholder((channels, channels, *taps), name="W")
    program = lang.program([x, w], [lang.ops.conv(x, w, name="C")])
    known = tuple(b.with_(scope=CONST) if b.name == "W" else b for b in program.inputs)
    match = lang.match_winograd(replace(program, inputs=known), program.stage("C"))
    assert match is not None
    return match, (channels, channels, *taps)


@pytest.mark.parametrize("depth", [None, 2])
def test_errors_are_those_of_the_method(depth):
    match, shape = _match(16, depth)
    weights = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    small, large = (lang.winograd_error(match, m, weights) for m in (2, 4))
    assert 1e-8 < small < 1e-6 < large < 5e-5
    assert lang.winograd_error(match, 4, np.zeros(shape, np.float32)) == 0
    assert np.isnan(lang.winograd_error(match, 4, np.full(shape, 1e38, np.float32)))
    # the largest channels decide
    weights[3] *= 1e10
    assert lang.winograd_error(match, 4, weights) < 5e-5
