"""Requests that share a model: each gets what it would get alone, whatever comes and goes beside it."""

import numpy as np
import pytest

from decoder_folders import write_folder
from tilewright import llm
from tilewright.llm.batch import Batch, Request
from tilewright.llm.text import TextStream
from tilewright.support import InputError

ROOM, WORDS = 40, 50


class _Model:
    """Caches are the tokens themselves, and scores a number made of all of a row's."""

    def __init__(self, requests, keeps=True):
        self.requests, self.keeps, self.ends = requests, keeps, frozenset({0})
        self.sizes = []

    def states(self):
        return [np.zeros((self.requests, 1, ROOM if self.keeps else 0, 1), np.int64)]

    def step(self, new, totals, states):
        self.sizes.append((len(new), len(new[0])))
        if any(token < 0 for row in new for token in row):
            raise InputError("a token is out of range")
        (state,) = states
        assert len(state) == len(new) == len(totals)
        if not self.keeps:
            state = np.concatenate([state, np.zeros((1, 1, len(new[0]), 1), np.int64)], axis=2)
        scores = np.zeros((len(new), len(new[0]), WORDS))
        for row, (tokens, total) in enumerate(zip(new, totals, strict=True)):
            state[row, 0, total - len(tokens) : total, 0] = tokens
            held = state[row, 0, :total, 0]
            scores[row, -1, int(held @ np.arange(1, total + 1)) % WORDS] = 1
        return scores, [state]


def _request(prompt, *, tokens=None, sampling=None, stop=()):
    return Request([*prompt], tokens or 12, sampling or llm.Sampling(), TextStream(lambda _: "", tuple(stop)))


def _alone(prompt):
    batch = Batch(_Model(1), _request)
    request = batch.add(prompt)
    while not request.reason:
        batch.step()
    return request.ids, request.reason


@pytest.mark.parametrize("seed", range(8))
def test_random_arrivals_and_cancels(seed, monkeypatch):
    monkeypatch.setattr("tilewright.llm.batch.CHUNK", 5)
    rng = np.random.default_rng(seed)
    requests, keeps = (1, False) if seed % 4 == 3 else (1 + seed % 4 * 2, True)
    model = _Model(requests, keeps)
    batch, every, got = Batch(model, _request), [], {}
    prompts = [[int(n) for n in rng.integers(1, WORDS, rng.integers(1, 20))] for _ in range(12)]
    left = [*prompts]
    while left or batch.running or batch.waiting:
        for _ in range(rng.integers(0, 3) if left else 0):
            if left:
                every.append((left[0], batch.add(left.pop(0))))
        if every and rng.random() < 0.1:
            every[rng.integers(len(every))][1].cancel()
        for request, token in batch.step():
            got.setdefault(id(request), []).append(token.id)
        assert batch.running <= requests
    assert {request.reason for _, request in every} <= {"stop", "length", "cancelled"}
    for prompt, request in every:
        ids, reason = _alone(prompt)
        assert request.ids == ids if request.reason != "cancelled" else request.ids == ids[: len(request.ids)]
        assert request.reason in (reason, "cancelled")
        assert got.get(id(request), []) == request.ids[len(prompt) :]
    if keeps and requests > 1:
        assert max(rows for rows, _ in model.sizes) > 1
    assert max(length for _, length in model.sizes) <= 5


def test_a_request_that_cannot_run_ends_alone():
    batch = Batch(_Model(3), _request)
    good, bad = batch.add([3, 4]), batch.add([3, -1])
    while not good.reason:
        batch.step()
    assert good.ids == _alone([3, 4])[0]
    assert bad.reason == "error" and "out of range" in str(bad.error) and bad.made == 0


def test_requests_wait_while_there_is_no_room():
    batch = Batch(_Model(2), _request)
    first = [batch.add([n + 1]) for n in range(4)]
    batch.step()
    batch.step()
    assert (batch.running, batch.waiting) == (2, 2)
    first[3].cancel()
    first[0].cancel()
    batch.step()
    assert (batch.running, batch.waiting) == (2, 0) and first[3].reason == "cancelled"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("decoder"), "llama", layers=1)
    return llm.load(folder, capacity=24, threads=1, requests=3)


def test_texts_of_a_model_are_those_that_it_writes_alone(model):
    prompts = [[5, 9, 2], [7], [1, 2, 3, 4, 5, 6, 7], [11, 3], [8, 8, 1]]
    batch = model.batch()
    made = [batch.add(prompt, tokens=6 + n) for n, prompt in enumerate(prompts)]
    while batch.running or batch.waiting:
        batch.step()
    for n, (prompt, request) in enumerate(zip(prompts, made, strict=True)):
        assert request.ids[len(prompt) :] == [token.id for token in model.generate(prompt, tokens=6 + n)]
    assert model.model.compilations == 0


@pytest.mark.parametrize("requests", [0, 1.5, True])
def test_requests_are_a_whole_number(tmp_path, requests):
    with pytest.raises(InputError, match="requests is"):
        llm.load(write_folder(tmp_path, "llama", layers=1), requests=requests)
