"""Comparing engines: the harness, and PyTorch's way to run a model where it is installed."""

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnx_models as tiny
from tilewright.driver import Bench, BenchPlan, model_samples, run_benchmark
from tilewright.driver.bench.torch_model import torch_module
from tilewright.frontend import zoo
from tilewright.support import InputError, UnsupportedOperatorError


def _plan(**changes):
    return BenchPlan(
        **{"engines": ("tilewright",), "threads": 1, "rounds": 2, "seconds": 0.0, "warmup": 0.0} | changes
    )


def test_each_engine_takes_its_turns(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(tiny.mlp(), path)
    _, feeds = model_samples(str(path))
    steps = []
    result = run_benchmark("mlp", path, feeds, _plan(least=4), lambda *step: steps.append(step[:3]))
    (ours,) = result.engines
    assert result.ours is ours and ours.error is None
    assert [len(turn) for turn in ours.rounds] == [4, 4]
    assert ours.difference == 0.0
    assert ours.minimum is not None and ours.median is not None and 0 < ours.minimum <= ours.median
    assert steps[-1] == ("rounds", 2, 2)
    assert result.as_data()["engines"][0]["ours_to_this"] == 1.0


def test_an_engine_that_fails_says_why(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"no model")
    result = run_benchmark("bad", path, {}, _plan())
    assert result.ours is not None and "ModelError" in str(result.ours.error)
    assert result.as_data()["engines"][0]["error"] == result.ours.error


def test_one_process_measures_several_models_and_is_started_again_once_it_ended(tmp_path):
    plan = _plan(pause=0.0, uncounted=3, keep_memory=True)
    rounds = []
    with Bench(plan) as bench:
        for made in (tiny.mlp(), None, tiny.mlp()):
            path = tmp_path / "m.onnx"
            path.write_bytes(b"no model") if made is None else onnx.save(made, path)
            feeds = {} if made is None else model_samples(str(path))[1]
            (ours,) = bench.measure("m", path, feeds, each_round=lambda: rounds.append(1)).engines
            assert (ours.error is None) == (made is not None)
            assert [len(turn) for turn in ours.rounds] == ([3, 3] if made else [])
            if made is None:
                process = bench._workers._running["tilewright"]
                process.kill()
                process.wait()
    assert len(rounds) == 6


def test_an_unknown_engine_is_refused():
    with pytest.raises(InputError, match=r"no engine 'onnxruntim'\n.*did you mean 'onnxruntime'"):
        _plan(engines=("onnxruntim",))


def test_samples_fit_the_model_and_are_repeatable():
    model = zoo.SMALL["tinybert4"]()
    infos, feeds = model_samples(model, seed=3)
    assert [info.name for info in infos] == list(feeds)
    assert all(feeds[info.name].shape == info.shape for info in infos)
    again = model_samples(model, seed=3)[1]
    assert all(np.array_equal(feeds[name], again[name]) for name in feeds)


@pytest.mark.parametrize("name", sorted(zoo.SMALL))
def test_torch_computes_what_the_model_says(name):
    torch = pytest.importorskip("torch")
    model = zoo.SMALL[name]()
    _, feeds = model_samples(model)
    run = torch_module(torch, model)
    with torch.inference_mode():
        found = run({key: torch.from_numpy(array) for key, array in feeds.items()})
    for tensor, expected in zip(found, ReferenceEvaluator(model).run(None, feeds), strict=True):
        np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-3, atol=1e-4)


def test_nodes_without_a_torch_function_are_listed():
    node = onnx.helper.make_node("Selu", ["x"], ["y"], name="odd")
    model = tiny.model([node], [tiny.tensor("x", (2,))], [tiny.tensor("y", (2,))])
    with pytest.raises(UnsupportedOperatorError, match=r"node 'odd' \(Selu\)"):
        torch_module(None, model)
