"""The random walk over loops: an actor for each parameter proposes a direction, all step together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.strategies.joint.loops import LoopPoint, LoopSpace
from tilewright.strategies.joint.network import Array
from tilewright.strategies.joint.ppo import DIRECTIONS, Batch, Directions, Learner
from tilewright.strategies.joint.settings import DISCOUNT, MOST_PARAMETERS, REFUSED, REWARD
from tilewright.strategies.joint.templates import LayoutSpace


def states_of(space: LayoutSpace | None) -> int:
    """The length of states: factor lists, what is decided of them, the place of each loop parameter."""
    return (0 if space is None else 3 * len(space.factors)) + MOST_PARAMETERS


@dataclass(frozen=True, slots=True, eq=False)
class Visited:
    """A walk: the points after each step, the states before, each actor's actions, the times predicted."""

    points: tuple[LoopPoint, ...]
    states: Array
    actions: Mapping[str, Array]
    before: Mapping[str, Array]
    predicted: tuple[float, ...]

    def learn(self, learner: Learner, known: Mapping[LoopPoint, float]) -> None:
        """Improve the actors of the walk; measured times count instead of predicted ones."""
        times = [known.get(p, t) for p, t in zip(self.points, self.predicted, strict=True)]
        rewards = REWARD - np.minimum(np.array(times), REFUSED)
        returns = np.zeros(len(rewards))
        following = float(rewards[-1]) if len(rewards) else 0.0
        for n in reversed(range(len(rewards))):
            following = (1 - DISCOUNT) * rewards[n] + DISCOUNT * following
            returns[n] = following
        learner.learn(
            {
                name: Batch(self.states, actions, self.before[name], returns)
                for name, actions in self.actions.items()
            }
        )


def walk(
    learner: Learner,
    rng: np.random.Generator,
    layout: Array,
    loops: LoopSpace,
    start: LoopPoint,
    steps: int,
    price: Callable[[Sequence[LoopPoint]], list[float]],
) -> Visited:
    """So many steps from ``start``; ``layout`` is the part of states that says which layouts there are."""
    names = [p.name for p in loops.parameters][:MOST_PARAMETERS]
    size = len(layout) + MOST_PARAMETERS
    for name in names:
        if name not in learner.actors:
            learner.actors[name] = Directions(rng, size)
    points: list[LoopPoint] = []
    states = np.zeros((steps if names else 0, size))
    actions = {name: np.zeros(len(states)) for name in names}
    valid: dict[LoopPoint, bool] = {}
    at = start
    for n in range(len(states)):
        states[n] = np.concatenate([layout, _place(loops, at)])
        directions = [0] * len(loops.parameters)
        for slot, name in enumerate(names):
            actor = learner.actors[name]
            assert isinstance(actor, Directions)
            action = actor.act(rng, states[n])
            actions[name][n] = action
            directions[slot] = DIRECTIONS[action]
        there = loops.moved(at, directions)
        points.append(there)
        if there not in valid:
            valid[there] = loops.plan(there) is not None
        if valid[there]:
            at = there
    before = {name: learner.actors[name].log_probability(states, actions[name]) for name in names}
    prices = dict(zip(valid, price(list(valid)), strict=True))
    predicted = tuple(prices[p] if valid[p] else REFUSED for p in points)
    return Visited(tuple(points), states, actions, before, predicted)


def _place(loops: LoopSpace, point: LoopPoint) -> Array:
    """Where each parameter is among its options, 0 to 1."""
    out = np.zeros(MOST_PARAMETERS)
    for n, (parameter, at) in enumerate(zip(loops.parameters[:MOST_PARAMETERS], point, strict=False)):
        out[n] = at / (len(parameter.options) - 1)
    return out
