"""How far gains by the model are off, and the training command where few pipelines were measured."""

import json
import sys
from argparse import Namespace
from math import exp, inf, log
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

from tilewright.strategies.beam.cost import TERMS
from tilewright.strategies.beam.features import ALGORITHM, FEATURES
from tilewright.strategies.beam.network import Sample, gains_off, pick
from tilewright.strategies.beam.weights import fresh

# the command's own directory, where its modules import one another
sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks"))

import beam_ablation
import beam_training

NOWHERE = Path("samples.jsonl")


def sample(predicted, seconds):
    """One stage that takes so long by the machine's coefficients, and took so long."""
    terms = np.zeros((1, len(TERMS)))
    terms[0, 0] = predicted
    return Sample(np.zeros((1, ALGORITHM)), np.zeros((1, len(FEATURES))), terms, seconds)


def test_gains_are_off_by_what_they_promise_beyond_what_was_measured():
    # the second is taken: it was to be 3 and 4 times as fast, and is 2 and 8 times
    samples = [sample(3.0, 2.0), sample(1.0, 1.0), sample(4.0, 8.0)]
    assert pick(fresh(), samples) == 1
    assert gains_off(fresh(), samples) == pytest.approx([log(3 / 2), log(4 / 8)])
    assert gains_off(fresh(), samples[:1]) == []


def test_without_applications_errors_are_those_of_random_pipelines(capsys):
    known = {
        "random0": [sample(2.0, 1.0), sample(1.0, 1.0)],
        "random1": [sample(1.0, 1.0), sample(1.0, 1.0)],
    }
    asked = []

    def fitted(samples):
        asked.append(len(samples))
        return fresh()

    _, errors, found = beam_training.fit(known, fitted, NOWHERE)
    # each pipeline by a network of the other's samples, then one of all
    assert asked == [2, 2, 4]
    # a gain of two that was none, and one that was foreseen: 0.95 of the way from one to the other
    assert errors.trained == errors.untrained == pytest.approx(exp(0.95 * log(2)), abs=1e-3)
    assert set(found["held_out"].values()) == {None}
    assert found["samples"] == {"random0": 2, "random1": 2}
    assert capsys.readouterr().out == ""


def test_an_application_is_judged_by_a_network_of_the_others(capsys):
    known = {
        "harris": [sample(1.0, 1.0), sample(2.0, 2.0), sample(3.0, 3.0)],
        "random0": [sample(1.0, 1.0), sample(2.0, 3.0)],
    }
    _, errors, found = beam_training.fit(known, lambda _: fresh(), NOWHERE)
    assert '"held_out": "harris"' in capsys.readouterr().out
    assert found["held_out"] == {"rank_before": 1.0, "pick_before": 1.0, "rank": 1.0, "pick": 1.0}
    # gains that were larger than promised leave no margin
    assert errors.trained == 1.0


@pytest.mark.parametrize("known", [{}, {"harris": [sample(1.0, 1.0)]}])
def test_nothing_is_learned_where_nothing_can_be_compared(known):
    with pytest.raises(SystemExit, match=r"two states of a pipeline were measured nowhere.*samples\.jsonl"):
        beam_training.fit(known, lambda _: fresh(), NOWHERE)


def test_lines_of_an_ablation_are_made_once(tmp_path, monkeypatch):
    made = []

    def run(command, **_):
        made.append(command[command.index("--own") + 2])
        return CompletedProcess(command, 0, stdout='{"part": "search", "states": 3}\n', stderr="")

    monkeypatch.setattr(beam_ablation.subprocess, "run", run)
    numbers = dict.fromkeys(("seeds", "budget", "limit", "beam", "passes", "states"), 1)
    file = tmp_path / "lines.jsonl"
    for _ in range(2):
        known = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        options = Namespace(known=known, until=inf, samples=None, to=file, **numbers)
        assert beam_ablation.own_process("search", "harris", options, "sampling")["states"] == 3
    assert made == ["harris"]
    assert beam_ablation.own_process("search", "unsharp", over(options), "") is None


def over(options):
    """The options of a run whose time is over."""
    return Namespace(**vars(options) | {"until": 0.0})
