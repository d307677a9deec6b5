"""Models whose kernels take a batch in parts: the same results, whatever the parts, threads and runs."""

import threading

import numpy as np
import pytest
from onnx import helper

import onnx_models
import tilewright
from tilewright.driver import graph_plan, verify_model
from tilewright.frontend.zoo import mobilenet_v2, resnet18
from tilewright.support import assert_close

BATCH = 6
MODELS = {
    "resnet18": lambda: resnet18(batch=BATCH, image=32, width=0.25, depth=0.5, classes=16),
    "mobilenet_v2": lambda: mobilenet_v2(batch=BATCH, image=37, width=0.25, depth=0.5, classes=10),
}
#: Parts of the kernels, over and over.
PATTERNS = {"one section": [3], "many": [3, 3, 1, 6, 6, 6, 2, 3], "all apart": [6], "halves": [2, 2, 2, 1]}


def _divided(patch, pattern):
    def choose(flows, batch, machine):
        return tuple(pattern[at % len(pattern)] for at in range(len(flows)))

    patch.setattr(graph_plan, "choose_parts", choose)


@pytest.fixture(params=MODELS, scope="module")
def model(request):
    return MODELS[request.param]()


@pytest.fixture(scope="module")
def whole(model):
    with pytest.MonkeyPatch.context() as patch:
        _divided(patch, [1])
        return tilewright.compile(model, threads=2)


@pytest.mark.few(4)
@pytest.mark.parametrize(("pattern", "threads"), [*((p, 2) for p in PATTERNS), ("many", 1), ("many", 3)])
def test_parts_give_what_the_whole_gives(model, whole, pattern, threads, monkeypatch):
    _divided(monkeypatch, PATTERNS[pattern])
    compiled = tilewright.compile(model, threads=threads)
    assert {group.parts for group in compiled.groups()} == set(PATTERNS[pattern])
    feeds = whole.sample_feeds(3)
    (expected,), (found,) = whole.run(None, feeds), compiled.run(None, feeds)
    assert_close(found, expected, magnitude=np.full(found.shape, 10 * np.abs(expected).max()), terms=2000)
    np.testing.assert_array_equal(compiled.run(None, feeds)[0], found)
    profile = compiled.profile(feeds, 2)
    assert sum(row.flops for row in profile.rows) == sum(row.flops for row in whole.profile(feeds, 2).rows)
    assert all(row.milliseconds > 0 for row in profile.rows)


def test_every_value_between_kernels_agrees_with_the_reference(model, monkeypatch):
    _divided(monkeypatch, PATTERNS["many"])
    compiled = tilewright.compile(model, threads=2)
    assert verify_model(compiled, model, compiled.sample_feeds(1), "onnx").ok


def test_runs_at_once_and_after_saving_are_alike(model, monkeypatch, tmp_path):
    _divided(monkeypatch, PATTERNS["many"])
    compiled = tilewright.compile(model, threads=2)
    feeds = [compiled.sample_feeds(seed) for seed in range(4)]
    expected = [compiled.run(None, each)[0] for each in feeds]
    found = [np.zeros(0)] * len(feeds)

    def work(at):
        for _ in range(3):
            found[at] = compiled.run(None, feeds[at])[0]

    running = [threading.Thread(target=work, args=(at,)) for at in range(len(feeds))]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    compiled.save(tmp_path / "model.tw")
    loaded = tilewright.load(tmp_path / "model.tw")
    np.testing.assert_array_equal(loaded.run(None, feeds[0])[0], expected[0])


def test_parts_need_less_memory(model, whole, monkeypatch):
    _divided(monkeypatch, PATTERNS["all apart"])
    assert tilewright.compile(model, threads=1).run_bytes < whole.run_bytes


def _largest(count, *shape):
    return onnx_models.model(
        [helper.make_node("TopK", ["x", "k"], ["v", "i"])],
        [onnx_models.tensor("x", shape)],
        [onnx_models.tensor("v", None), onnx_models.tensor("i", None, onnx_models.INT64)],
        {"k": np.array([count])},
    )


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("count", "shape", "threads", "parts"),
    [(5, (64, 1000), 2, 2), (5, (64, 1000), 1, 1), (2, (32, 12), 2, 1), (5, (1, 50257), 2, 1)],
)
def test_rows_of_stages_in_order_are_shared_between_threads(count, shape, threads, parts):
    compiled = tilewright.compile(_largest(count, *shape), threads=threads)
    assert [group.parts for group in compiled.groups()] == [parts]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    values, places = compiled(x)
    wanted = np.argsort(-x, axis=-1, kind="stable")[:, :count]
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, -1))
