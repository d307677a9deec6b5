"""Weights that are packed once, and again where they are no longer what they were."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tilewright.support import get_logger
from tilewright.torch.pieces import Runner

_log = get_logger(__name__)

Pack = Callable[[Mapping[int, torch.Tensor]], Runner]


class PackedWeights:
    """A graph some of whose arguments are weights, compiled with what these hold; again when that changes.

    Torch counts the changes of a tensor in place; those through ``Tensor.data`` are not counted.
    """

    def __init__(self, weights: Mapping[int, torch.Tensor], pack: Pack) -> None:
        self._pack = pack
        self._places = tuple(weights)
        self._lock = threading.Lock()
        self._made = (_state(weights.values()), pack(weights))

    def __call__(self, *args: Any) -> Sequence[Any]:
        """Run the graph."""
        return self.current(args)(*args)

    def current(self, args: Sequence[Any]) -> Runner:
        """What runs the graph with the weights among these arguments."""
        weights = [args[at] for at in self._places]
        known, runner = self._made
        state = _state(weights)
        if state == known:
            return runner
        with self._lock:
            known, runner = self._made
            if state != known:
                _log.info("weights have changed: they are packed again")
                runner = self._pack(dict(zip(self._places, weights, strict=True)))
                self._made = (state, runner)
        return runner


def can_be_packed(tensor: Any) -> bool:
    """Whether changes of a tensor are counted."""
    return isinstance(tensor, torch.Tensor) and not tensor.is_inference()


def _state(weights: Any) -> tuple[tuple[int, int], ...]:
    return tuple((x.data_ptr(), x._version) for x in weights)
