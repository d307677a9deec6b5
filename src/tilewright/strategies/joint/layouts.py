"""The actor of layouts: it chooses one factor after another, and sees the factor lists as they stand."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

import numpy as np

from tilewright.strategies.joint.network import Array
from tilewright.strategies.joint.ppo import Batch, Learner, Parts, part_of
from tilewright.strategies.joint.settings import MOST_PARAMETERS, REMEMBERED, REWARD, TABLE_3
from tilewright.strategies.joint.templates import DIRECT, LayoutSpace, Point

#: The actor's name among those of a learner.
NAME = "layout"
#: Factors are shown to networks as logarithms over this one.
_LARGEST = 12.0


@dataclass(frozen=True, slots=True, eq=False)
class _Episode:
    states: Array
    actions: Array
    before: Array


class LayoutAgent:
    """Chooses layouts of a space: the fixed ones of templates first, then what the actor says."""

    def __init__(
        self, space: LayoutSpace | None, learner: Learner, rng: np.random.Generator, size: int
    ) -> None:
        self._space, self._learner, self._rng, self._size = space, learner, rng, size
        self._fixed = [] if space is None else fixed_points(space)
        self._waiting: dict[Point, _Episode] = {}
        self._done: list[tuple[_Episode, float]] = []
        learner.actors[NAME] = Parts(rng, size)

    def choose(self, *, fixed: bool) -> Point | None:
        """The next point: with ``fixed`` one of templates' fixed ones, ``None`` where there is none left."""
        if self._space is None:
            return None
        if self._fixed:
            return self._fixed.pop(0)
        if fixed:
            return None
        actor = self._learner.actors[NAME]
        assert isinstance(actor, Parts)
        factors = self._space.factors
        states = np.zeros((len(factors), self._size))
        actions = np.zeros(len(factors))
        point: list[int] = []
        for n, factor in enumerate(factors):
            states[n] = self._whole(tuple(point))
            actions[n] = actor.act(self._rng, states[n])
            point.append(factor.pick(part_of(actions[n])))
        before = actor.log_probability(states, actions)
        self._waiting[tuple(point)] = _Episode(states, actions, before)
        return tuple(point)

    def reward(self, point: Point | None, best: float) -> None:
        """What the best loops under a layout came to, over the untuned time: the actor learns from it."""
        episode = None if point is None else self._waiting.pop(point, None)
        if episode is None:
            return
        self._done = [*self._done, (episode, REWARD - best)][-REMEMBERED:]
        batch = Batch(
            np.concatenate([e.states for e, _ in self._done]),
            np.concatenate([e.actions for e, _ in self._done]),
            np.concatenate([e.before for e, _ in self._done]),
            np.concatenate([np.full(len(e.actions), r) for e, r in self._done]),
        )
        self._learner.learn({NAME: batch})

    def forget(self, point: Point) -> None:
        """A point that comes to layouts tried before teaches nothing."""
        self._waiting.pop(point, None)

    def state(self, point: Point | None) -> Array:
        """The part of a state that says which layouts there are."""
        return self._lists(() if point is None else point)

    def features(self, point: Point) -> dict[str, float]:
        """What a cost model sees of a layout."""
        if self._space is None:
            return {}
        return {
            f"layout {factor.name}": log2(1 + value)
            for factor, value in zip(self._space.factors, point, strict=True)
        }

    def _whole(self, point: Point) -> Array:
        return np.concatenate([self._lists(point), np.zeros(MOST_PARAMETERS)])

    def _lists(self, point: Point) -> Array:
        """The factor lists, one behind the other: of an undecided factor [1, D], else [D/F, F]."""
        if self._space is None:
            return np.zeros(0)
        out: list[float] = []
        for n, factor in enumerate(self._space.factors):
            decided = n < len(point)
            if factor.kind == "choice":
                out += [0.0, point[n] / (factor.extent - 1) if decided else 0.0]
            else:
                tile = point[n] if decided else factor.extent
                out += [log2(-(-factor.extent // tile)) / _LARGEST, log2(tile) / _LARGEST]
            out.append(float(decided))
        return np.array(out)


def fixed_points(space: LayoutSpace) -> list[Point]:
    """What is always tried: channels last, in blocks of a vector and of two, channels first, and Table 3's.

    Those are NHWO, NCHW16c, NOHW of ALT's comparisons, and the analogous ones of other ranks. Before them the
    direct method under the layouts that there are, where the default's method is another one.
    """
    op = space.operator
    channels, vector = op.extents[op.channel], space.lanes
    whole = {f"space{d}": op.extents[d] for d in op.space}
    single = {f"space{d}": 1 for d in op.space}
    table = dict(zip((f"space{d}" for d in op.space[-2:]), (TABLE_3["ht"], TABLE_3["wt"]), strict=False))
    found = [
        *([{DIRECT: 1, "result": 0, "data": 0}] if any(f.name == DIRECT for f in space.factors) else []),
        {**single, "channel": channels, "data channel": 1 << 30},
        {**whole, "channel": vector, "data channel": vector},
        {**whole, "channel": 2 * vector, "data channel": vector},
        {**whole, "channel": 1, "data channel": 1},
        {**whole, **table, "channel": TABLE_3["ot"], "data channel": TABLE_3["it"], "follow": 1, "unfold": 1},
    ]
    return list(dict.fromkeys(_point(space, wanted) for wanted in found))


def _point(space: LayoutSpace, wanted: dict[str, int]) -> Point:
    out: list[int] = []
    for factor in space.factors:
        if factor.kind == "choice":
            on = {"result": 1, "data": factor.options[-1], "weight": 0}.get(factor.name, 0)
            out.append(wanted.get(factor.name, on))
        else:
            value = min(wanted.get(factor.name, 1), factor.extent)
            out.append(min((abs(n - value), n) for n in factor.options)[1])
    return tuple(out)
