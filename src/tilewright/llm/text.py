"""Text from tokens, piece by piece: whole characters, and nothing of what ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Token:
    """A token that was generated, and the text that is sure by it: empty while a character lacks bytes."""

    id: int
    text: str


@dataclass(slots=True)
class TextStream:
    """Text of tokens as it becomes sure. ``decode`` makes the text of tokens, ``stops`` end it.

    What may be the beginning of a stop is kept back; ``stopped`` says that one is there.
    """

    decode: Callable[[Sequence[int]], str]
    stops: tuple[str, ...] = ()
    stopped: bool = False
    _tokens: list[int] = field(default_factory=list)
    _given: int = 0

    def push(self, token: int) -> str:
        """The text that is sure with one more token."""
        self._tokens.append(token)
        text = self.decode(self._tokens)
        ends = [at for stop in self.stops if (at := text.find(stop, max(0, self._given - len(stop)))) >= 0]
        if ends:
            self.stopped = True
            return self._give(text[: min(ends)])
        # the sign for what is no character stands for bytes of one that is not whole yet
        sure = text.rstrip("\ufffd")
        kept = max(
            (n for stop in self.stops for n in range(1, len(stop)) if sure.endswith(stop[:n])), default=0
        )
        return self._give(sure[: len(sure) - kept])

    def finish(self) -> str:
        """What was kept back, where nothing follows."""
        return "" if self.stopped else self._give(self.decode(self._tokens))

    def _give(self, text: str) -> str:
        new = text[self._given :]
        self._given = max(self._given, len(text))
        return new
