"""Contractions of a model joined in bands of rows: the same results, and where the rule joins them."""

import random
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper
from tests import onnx_models
from tests.native_kernel import HERE, HOST

import tilewright
from tilewright.build import describe
from tilewright.cost import Machine
from tilewright.driver import graph_plan, verify_model
from tilewright.driver.graph_plan import choose_graph_plan
from tilewright.driver.units import UnitMaker, make_units
from tilewright.frontend import import_onnx, zoo
from tilewright.frontend.zoo import mobilenet_v2
from tilewright.graph import fuse, simplify
from tilewright.plan.contraction import sharing as contraction
from tilewright.plan.fused import bands
from tilewright.strategies import default_schedule
from tilewright.support import assert_close
from tilewright.target import AARCH64_NEON, X86_AVX2, X86_AVX512


@pytest.fixture
def joined_anyway(monkeypatch):
    """Whatever can be joined is, however small and however unequal threads are."""
    monkeypatch.setattr(contraction, "MIN_PARALLEL_PRODUCTS", 0)
    monkeypatch.setattr(bands, "LEAST_GAIN", -1e9)
    monkeypatch.setattr(bands, "MOST_AGAIN", 1e9)


def contractions(group):
    return sum(operator in ("Conv", "Gemm", "MatMul") for operator in group.operators.split("+"))


@pytest.mark.few(2)
@pytest.mark.parametrize(("batch", "threads"), [(1, 2), (1, 3), (2, 3)])
def test_joined_kernels_give_what_the_reference_gives(batch, threads, joined_anyway, monkeypatch):
    model = mobilenet_v2(batch=batch, image=53, width=0.5, depth=0.5, classes=10)
    monkeypatch.setattr(graph_plan, "choose_parts", lambda flows, *_: (1,) * len(flows))
    compiled = tilewright.compile(model, threads=threads)
    groups = compiled.groups()
    assert sum(contractions(group) == 3 for group in groups) >= 4
    assert any("in bands of" in describe(group.kernel.schedule, threads).algorithm for group in groups)
    feeds = compiled.sample_feeds(1)
    assert verify_model(compiled, model, feeds, "onnx").ok
    (once,), (again,) = compiled.run(None, feeds), compiled.run(None, feeds)
    np.testing.assert_array_equal(once, again)
    (alone,) = tilewright.compile(model, threads=1).run(None, feeds)
    assert_close(once, alone, magnitude=np.full(once.shape, 10 * np.abs(alone).max()), terms=2000)


def default_units(partition, target, threads, precision="f32"):
    maker = UnitMaker(partition, precision)
    return make_units(maker, choose_graph_plan(maker, target, threads))


def units_of(model, threads):
    return default_units(fuse(simplify(import_onnx(model))), HERE, threads)


def test_blocks_of_mobilenet_are_joined_on_two_threads():
    found = [contractions(unit) for unit in units_of(zoo.FULL["mobilenet_v2"](), 2)]
    assert found.count(3) >= 12
    assert sum(found) == 53


def test_narrower_values_go_through_memory():
    partition = fuse(simplify(import_onnx(zoo.FULL["mobilenet_v2"]())))
    assert max(contractions(unit) for unit in default_units(partition, HOST, 2, "bf16")) == 1


def test_one_thread_and_batches_in_parts_keep_their_kernels():
    assert max(contractions(unit) for unit in units_of(zoo.FULL["mobilenet_v2"](), 1)) == 1
    batch = units_of(mobilenet_v2(batch=16), 2)
    assert max(contractions(unit) for unit in batch if unit.parts > 1) == 1


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "resnet3d18"])
def test_convolutions_for_winograd_stay_apart(name):
    # with two multiply-adds a cycle the last stage of ResNet-50, which has no better method, may be joined
    partition = fuse(simplify(import_onnx(zoo.FULL[name]())))
    slower = replace(HOST, fma_per_cycle=1.0)
    assert max(contractions(unit) for unit in default_units(partition, slower, 2)) == 1


def test_products_of_a_feed_forward_layer_stay_apart():
    found = [unit for unit in units_of(zoo.SMALL["bert_base"](), 2) if contractions(unit) > 1]
    assert all("Softmax" in unit.operators for unit in found)


def convolutions(x, layers, *, blocked=False, shared=False):
    """A model of convolutions ``(channels, taps, stride, by channel, relu)`` one after the other."""
    nodes, weights, channels, rank = [], {}, x[1], len(x) - 2
    for at, (out, taps, stride, apart, relu) in enumerate(layers):
        out = channels if apart else out
        shape = (out, 1 if apart else channels, *[taps] * rank)
        weights[f"w{at}"] = np.full(shape, 0.5 if shared else at, np.float32)
        made = f"c{at}" if relu else f"v{at + 1}"
        options = {
            "strides": [stride] * rank,
            "pads": [taps // 2] * 2 * rank,
            "group": channels if apart else 1,
        }
        nodes.append(helper.make_node("Conv", [f"v{at}", f"w{at}"], [made], name=f"n{at}", **options))
        if relu:
            nodes.append(helper.make_node("Relu", [made], [f"v{at + 1}"]))
        channels = out
    value = f"v{len(layers)}"
    if blocked:
        nodes.append(helper.make_node("GlobalAveragePool", [value], ["y"]))
        value = "y"
    names = [f"s{n}" for n in range(len(x))]
    return onnx_models.model(
        nodes, [onnx_models.tensor("v0", x)], [onnx_models.tensor(value, names)], weights
    )


def joined_of(model, threads, target=HOST):
    found = default_units(fuse(simplify(import_onnx(model))), target, threads)
    return [unit for unit in found if contractions(unit) > 1]


def assert_in_bands(unit, threads, target=HOST):
    s = default_schedule(unit.program, Machine(target, threads))
    assert not [note for note in s.notes if "no chain" in note]
    sums = {
        node.stage: [set(s.loops(b)) for b in s.blocks() if s.block(b).stage == node.stage]
        for node in map(s.block, s.blocks())
        if any(it.kind == "red" for it in node.iters)
    }
    # some loop is around all of them, that over the bands; sums of parts are added up behind it
    inside = [set.union(*loops) for stage, loops in sums.items() if f"{stage}_part" not in sums]
    assert len(inside) > 1 and set.intersection(*inside)


def test_a_wide_product_before_a_plain_result_stays_apart():
    # as one kernel it took 70 times as long: its last sums have no register tile in the result's order
    layers = [(channels, 1, 1, False, False) for channels in (512, 2048, 16)]
    compiled = tilewright.compile(convolutions((1, 16, 7, 7), layers), threads=2, target=HERE)
    assert not [note for row in compiled.explain() for note in row["fallbacks"] if "no chain" in note]
    for unit in joined_of(convolutions((1, 16, 7, 7), layers), 2, HERE):
        assert_in_bands(unit, 2, HERE)
    # in blocks of channels it is one
    assert len(joined_of(convolutions((1, 16, 7, 7), layers, blocked=True), 2, HERE)) == 1


def test_kernels_that_share_weights_stay_apart():
    layers = [(96, 1, 1, False, False), (0, 3, 1, True, True), (96, 1, 1, False, False)]
    found = joined_of(convolutions((1, 96, 14, 14), layers, blocked=True), 2)
    assert [contractions(unit) for unit in found] == [3]
    shared = convolutions((1, 96, 14, 14), layers, blocked=True, shared=True)
    assert not joined_of(shared, 2)
    compiled = tilewright.compile(shared, threads=2)
    assert verify_model(compiled, shared, compiled.sample_feeds(1), "onnx").ok


@pytest.mark.few(6)
@pytest.mark.parametrize("seed", range(8))
def test_what_is_joined_is_scheduled_as_a_chain(seed, joined_anyway):
    rng = random.Random(seed)
    count = 0
    for _ in range(8):
        size = [rng.choice([1, 2, 5, 7, 7, 8, 13, 14, 28]) for _ in range(rng.choice([1, 2, 2, 2]))]
        x = (rng.choice([1, 1, 2]), rng.choice([4, 16, 32, 100]), *size)
        layers = [
            (
                rng.choice([8, 16, 24, 72, 100, 256]),
                rng.choice([1, 1, 3]),
                rng.choice([1, 1, 2]),
                rng.random() < 0.25,
                rng.random() < 0.5,
            )
            for _ in range(rng.choice([2, 3, 4]))
        ]
        model = convolutions(x, layers, blocked=rng.random() < 0.4)
        threads = rng.choice([2, 3, 8])
        target = rng.choice([HOST, X86_AVX2, X86_AVX512, AARCH64_NEON])
        joined = joined_of(model, threads, target)
        for unit in joined:
            assert_in_bands(unit, threads, target)
        count += len(joined)
    assert count
