"""Contractions of a model joined in bands of rows: the same results, and where the rule joins them."""

from dataclasses import replace

import numpy as np
import pytest

import tilewright
from tilewright.driver import describe, units, verify_model
from tilewright.driver.units import make_units
from tilewright.frontend import import_onnx, zoo
from tilewright.frontend.zoo import mobilenet_v2
from tilewright.graph import fuse, simplify
from tilewright.strategies import bands, contraction
from tilewright.support import assert_close
from tilewright.target import detect

HOST = detect()


@pytest.fixture
def joined_anyway(monkeypatch):
    """Whatever can be joined is, however small and however unequal threads are."""
    monkeypatch.setattr(contraction, "MIN_PARALLEL_PRODUCTS", 0)
    monkeypatch.setattr(bands, "LEAST_GAIN", -1e9)
    monkeypatch.setattr(bands, "MOST_AGAIN", 1e9)


def contractions(group):
    return sum(operator in ("Conv", "Gemm", "MatMul") for operator in group.operators.split("+"))


@pytest.mark.parametrize(("batch", "threads"), [(1, 2), (1, 3), (2, 3)])
def test_joined_kernels_give_what_the_reference_gives(batch, threads, joined_anyway, monkeypatch):
    model = mobilenet_v2(batch=batch, image=53, width=0.5, depth=0.5, classes=10)
    monkeypatch.setattr(units, "choose_parts", lambda flows, *_: (1,) * len(flows))
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


def units_of(model, threads):
    return make_units(fuse(simplify(import_onnx(model))), HOST, threads)


def test_blocks_of_mobilenet_are_joined_on_two_threads():
    found = [contractions(unit) for unit in units_of(zoo.FULL["mobilenet_v2"](), 2)]
    assert found.count(3) >= 12
    assert sum(found) == 53


def test_narrower_values_go_through_memory():
    partition = fuse(simplify(import_onnx(zoo.FULL["mobilenet_v2"]())))
    assert max(contractions(unit) for unit in make_units(partition, HOST, 2, "bf16")) == 1


def test_one_thread_and_batches_in_parts_keep_their_kernels():
    assert max(contractions(unit) for unit in units_of(zoo.FULL["mobilenet_v2"](), 1)) == 1
    batch = units_of(mobilenet_v2(batch=16), 2)
    assert max(contractions(unit) for unit in batch if unit.parts > 1) == 1


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "resnet3d18"])
def test_convolutions_for_winograd_stay_apart(name):
    # with two multiply-adds a cycle the last stage of ResNet-50, which has no better method, may be joined
    partition = fuse(simplify(import_onnx(zoo.FULL[name]())))
    slower = replace(HOST, fma_per_cycle=1.0)
    assert max(contractions(unit) for unit in make_units(partition, slower, 2)) == 1


def test_products_of_a_feed_forward_layer_stay_apart():
    found = [unit for unit in units_of(zoo.SMALL["bert_base"](), 2) if contractions(unit) > 1]
    assert all("Softmax" in unit.operators for unit in found)
