"""Runs of one model are bit for bit the same: repeated, from several threads at once, compiled and saved."""

import threading

import numpy as np
import pytest

import tilewright
from tilewright.frontend import zoo

CALLERS = 4
TURNS = 8


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "bert_base"])
def test_runs_are_the_same_bit_for_bit(name, tmp_path, parallel_however_small):
    model = zoo.SMALL[name]()
    for threads in (1, 2, 3):
        compiled = tilewright.compile(model, threads=threads)
        compiled.save(tmp_path / "m.tw")
        loaded = tilewright.load(tmp_path / "m.tw")
        assert loaded.threads == threads
        feeds = [compiled.sample_feeds(seed) for seed in range(CALLERS)]
        expected = [compiled.run(None, each) for each in feeds]
        assert not all(np.array_equal(a, b) for a, b in zip(expected[0], expected[1], strict=True))
        wrong: list[tuple[int, int]] = []

        def work(caller, feeds=feeds, expected=expected, engines=(compiled, loaded), wrong=wrong):
            for turn in range(TURNS):
                made = engines[(caller + turn) % 2].run(None, feeds[caller])
                if not all(np.array_equal(a, b) for a, b in zip(made, expected[caller], strict=True)):
                    wrong.append((caller, turn))

        workers = [threading.Thread(target=work, args=(caller,)) for caller in range(CALLERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert wrong == []


@pytest.mark.few(3)
@pytest.mark.parametrize("name", sorted(zoo.SMALL))
def test_models_give_the_same_in_place_and_apart(name, parallel_however_small):
    """`intermediates` gives every value memory of its own; a run shares it where the plan says so."""
    compiled = tilewright.compile(zoo.SMALL[name](), threads=3)
    for seed in range(3):
        feeds = compiled.sample_feeds(seed)
        apart = compiled.intermediates(feeds)
        values = compiled._steps.graph.outputs
        for value, array in zip(values, compiled.run(None, feeds), strict=True):
            np.testing.assert_array_equal(array, apart[value], err_msg=value)
