"""Requests that share a model: each has its own length, joins when there is room, and leaves when it ends.

Rows of the caches that requests hold lie together: those that have all of their prompt run as one batch, one
token each; one at most, behind them, is still reading its prompt, in parts between the tokens of the others
(continuous batching: Yu et al., "Orca", OSDI 2022).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from tilewright.llm.sampling import Sampling, choose
from tilewright.llm.text import TextStream, Token
from tilewright.support import UserError

Array = npt.NDArray[Any]

CHUNK: Final = 512
"""Tokens of a prompt that are read at once, as llama.cpp does by default (``--ubatch-size``)."""


class Runs(Protocol):
    """What a batch asks of a model."""

    requests: int
    keeps: bool
    ends: frozenset[int]

    def states(self) -> list[Array]:
        """Caches before the first token, with a row for each request."""
        ...

    def step(
        self, new: Sequence[Sequence[int]], totals: Sequence[int], states: list[Array]
    ) -> tuple[Array, list[Array]]:
        """Scores [rows, length, tokens] of new tokens [rows, length], and the next caches."""
        ...


@dataclass(slots=True, eq=False)
class Request:
    """A text that is written: made by :meth:`LanguageModel.batch` and its ``add``."""

    ids: list[int]
    most: int
    sampling: Sampling
    stream: TextStream
    reason: str = ""
    """Why it ended: ``stop``, ``length``, ``cancelled`` or ``error``; empty before."""
    error: UserError | None = None
    """What was wrong with it, where that was seen when it ran."""
    made: int = 0
    """Tokens that were made."""
    held: int = 0
    _generator: np.random.Generator = field(init=False)
    _cancelled: bool = False

    def __post_init__(self) -> None:
        self._generator = np.random.default_rng(self.sampling.seed)

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants the rest."""
        return self._cancelled

    def cancel(self) -> None:
        """End the text with the next step. Any thread may say so."""
        self._cancelled = True

    def take(self, scores: Array, ends: frozenset[int]) -> Token | None:
        """The token that follows by its scores; None where it ends the text and there is no more of it."""
        token = choose(scores, self.ids, self.sampling, self._generator)
        if token in ends:
            self.reason = "stop"
            rest = self.stream.finish()
            return Token(token, rest) if rest else None
        self.ids.append(token)
        self.made += 1
        text = self.stream.push(token)
        if self.stream.stopped:
            self.reason = "stop"
        elif self.made == self.most:
            self.reason = "length"
            text += self.stream.finish()
        return Token(token, text)


class Batch:
    """The requests of a model that run together; one thread steps, any may add and cancel."""

    def __init__(self, model: Runs, request: Callable[..., Request]) -> None:
        self._model, self._request = model, request
        self._states = model.states()
        self._rows: list[Request] = []
        self._waiting: deque[Request] = deque()
        self._lock = threading.Lock()

    def add(
        self,
        prompt: str | Sequence[int],
        *,
        tokens: int | None = None,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
    ) -> Request:
        """A request that joins as soon as there is room; raises as :meth:`LanguageModel.generate` does."""
        made = self._request(prompt, tokens=tokens, sampling=sampling, stop=stop)
        with self._lock:
            self._waiting.append(made)
        return made

    @property
    def waiting(self) -> int:
        """Requests that have not begun."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Requests that have begun."""
        return len(self._rows)

    def step(self) -> list[tuple[Request, Token]]:
        """Read a part of a prompt, and write a token of each request that has read its own.

        Returns the new tokens. A request that cannot run ends with its ``error``; the others go on.
        """
        with self._lock:
            every = [*self._rows, *self._waiting]
        for request in every:
            if request.cancelled and not request.reason:
                request.reason = "cancelled"
        self._leave()
        writing = [request for request in self._rows if len(request.ids) - request.held == 1 and request.held]
        with self._lock:
            if len(writing) == len(self._rows) < self._model.requests and self._waiting:
                self._rows.append(self._waiting.popleft())
                if not self._model.keeps:
                    self._states = self._model.states()
        made = []
        if len(writing) < len(self._rows):
            made += self._read(len(writing))
        if writing:
            made += self._write(writing)
        self._leave()
        return made

    def _read(self, row: int) -> list[tuple[Request, Token]]:
        """A part of the prompt of the last row."""
        request = self._rows[row]
        part = request.ids[request.held : request.held + (CHUNK if self._states else len(request.ids))]
        request.held += len(part)
        mine = [state[row : row + 1] for state in self._states] if self._model.keeps else self._states
        try:
            scores, states = self._model.step([part], [request.held], mine)
        except UserError as error:
            request.reason, request.error = "error", error
            return []
        if not self._model.keeps:
            self._states = states
        return self._taken([request], scores) if request.held == len(request.ids) else []

    def _write(self, writing: list[Request]) -> list[tuple[Request, Token]]:
        """A token of each."""
        new = [request.ids[-1:] if self._states else request.ids for request in writing]
        for request in writing:
            request.held = len(request.ids)
        mine = [state[: len(writing)] for state in self._states] if self._model.keeps else self._states
        try:
            scores, states = self._model.step(new, [request.held for request in writing], mine)
        except UserError as error:
            for request in writing:
                request.reason, request.error = "error", error
            return []
        if not self._model.keeps:
            self._states = states
        return self._taken(writing, scores)

    def _taken(self, requests: list[Request], scores: Array) -> list[tuple[Request, Token]]:
        pairs = zip(requests, scores, strict=True)
        tokens = [(request, request.take(each[-1], self._model.ends)) for request, each in pairs]
        return [(request, token) for request, token in tokens if token is not None]

    def _leave(self) -> None:
        """Let go of requests that have ended, and move the rows behind them up."""
        with self._lock:
            for request in [request for request in self._waiting if request.reason]:
                self._waiting.remove(request)
        kept = [(n, request) for n, request in enumerate(self._rows) if not request.reason]
        for to, (at, request) in enumerate(kept):
            for state in self._states if to != at else []:
                state[to, :, : request.held] = state[at, :, : request.held]
        self._rows = [request for _, request in kept]
