"""The seven architectures, made small, from ONNX to native code and checked tensor by tensor."""

import pytest

import tilewright
from tilewright.driver import verify_model
from tilewright.frontend import zoo


@pytest.mark.few(7)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", sorted(zoo.SMALL))
def test_small_models_agree_with_the_reference_evaluator(name, threads, parallel_however_small):
    model = zoo.SMALL[name]()
    compiled = tilewright.compile(model, threads=threads)
    for seed in (0, 1):
        outcome = verify_model(compiled, model, compiled.sample_feeds(seed), "onnx")
        assert outcome.ok, outcome.first_difference
        assert any(not check.output for check in outcome.checks)


def test_two_threads_compute_what_one_does(parallel_however_small):
    model = zoo.SMALL["mobilenet_v2"]()
    one, two = (tilewright.compile(model, threads=threads) for threads in (1, 2))
    feeds = one.sample_feeds()
    outcome = verify_model(two, model, feeds, "onnx")
    assert outcome.ok
    for a, b in zip(one.run(None, feeds), two.run(None, feeds), strict=True):
        assert abs(a - b).max() < 1e-4
