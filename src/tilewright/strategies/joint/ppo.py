"""Proximal policy optimisation: actors of parts and of directions, one critic, gradients derived by hand.

Schulman et al., "Proximal policy optimization algorithms", with the clipped objective; ALT, Sec. 5.2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from tilewright.strategies.joint.network import Adam, Array, Parameters, backward, forward, initial

#: How far the ratio of probabilities may move before its gradient ends.
CLIP: Final = 0.2
#: Passes over a batch of transitions.
EPOCHS: Final = 4
#: Weight of the entropy of directions.
ENTROPY: Final = 0.01
#: The standard deviation of an actor's parts, before the sigmoid, in the beginning.
FIRST_SIGMA: Final = 1.0
_LOG_2PI: Final = float(np.log(2 * np.pi))
#: Directions of a step of the random walk.
DIRECTIONS: Final = (-1, 0, 1)


class Policy(Protocol):
    """A distribution of actions, given states."""

    parameters: Parameters

    def log_probability(self, states: Array, actions: Array) -> Array:
        """Of each action in its state."""

    def gradient(self, states: Array, actions: Array, slopes: Array) -> Parameters:
        """Of the sum of ``slopes`` times the logarithms of probabilities."""


class Parts:
    """Actions in (0, 1): ``1 / (1 + exp(-u))`` with ``u`` normally distributed around a network's output.

    Actions are kept as ``u``. The last of the parameters is the logarithm of the deviation.
    """

    def __init__(self, rng: np.random.Generator, inputs: int) -> None:
        self.parameters: Parameters = (*initial(rng, inputs, 1), np.full(1, np.log(FIRST_SIGMA)))

    def act(self, rng: np.random.Generator, state: Array) -> float:
        """An action ``u`` for one state."""
        mean, _ = forward(self.parameters[:-1], state[None])
        return float(mean[0, 0] + np.exp(self.parameters[-1][0]) * rng.standard_normal())

    def log_probability(self, states: Array, actions: Array) -> Array:
        """Of each action in its state, up to what the sigmoid adds, which is the same then and now."""
        mean, _ = forward(self.parameters[:-1], states)
        scale = self.parameters[-1][0]
        z = (actions - mean[:, 0]) / np.exp(scale)
        return np.asarray(-0.5 * z * z - scale - 0.5 * _LOG_2PI)

    def gradient(self, states: Array, actions: Array, slopes: Array) -> Parameters:
        """Of the sum of ``slopes`` times the logarithms of probabilities."""
        mean, layers = forward(self.parameters[:-1], states)
        sigma = np.exp(self.parameters[-1][0])
        z = (actions - mean[:, 0]) / sigma
        own = backward(self.parameters[:-1], layers, (slopes * z / sigma)[:, None])
        return (*own, np.array([np.sum(slopes * (z * z - 1.0))]))


def part_of(u: float) -> float:
    """The part in (0, 1) that an action stands for."""
    return float(1.0 / (1.0 + np.exp(-u)))


class Directions:
    """Actions -1, 0, 1, kept as 0, 1, 2: a soft maximum of a network's outputs."""

    def __init__(self, rng: np.random.Generator, inputs: int) -> None:
        self.parameters: Parameters = initial(rng, inputs, len(DIRECTIONS))

    def act(self, rng: np.random.Generator, state: Array) -> int:
        """An action for one state."""
        logits, _ = forward(self.parameters, state[None])
        return int(rng.choice(len(DIRECTIONS), p=_softmax(logits)[0]))

    def log_probability(self, states: Array, actions: Array) -> Array:
        """Of each action in its state."""
        logits, _ = forward(self.parameters, states)
        p = _softmax(logits)
        return np.asarray(np.log(p[np.arange(len(states)), actions.astype(np.int64)]))

    def gradient(self, states: Array, actions: Array, slopes: Array) -> Parameters:
        """Of the sum of ``slopes`` times the logarithms of probabilities."""
        logits, layers = forward(self.parameters, states)
        p = _softmax(logits)
        chosen = np.zeros_like(p)
        chosen[np.arange(len(states)), actions.astype(np.int64)] = 1.0
        return backward(self.parameters, layers, slopes[:, None] * (chosen - p))

    def entropy_gradient(self, states: Array) -> Parameters:
        """Of the sum of the entropies in the states."""
        logits, layers = forward(self.parameters, states)
        p = _softmax(logits)
        entropy = -np.sum(p * np.log(p), axis=1, keepdims=True)
        return backward(self.parameters, layers, -p * (np.log(p) + entropy))

    def entropy(self, states: Array) -> Array:
        """The entropy in each state."""
        p = _softmax(forward(self.parameters, states)[0])
        return np.asarray(-np.sum(p * np.log(p), axis=1))


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Transitions of one actor: states, actions, logarithms of their probabilities then, what followed."""

    states: Array
    actions: Array
    before: Array
    returns: Array


def surrogate(policy: Policy, batch: Batch, advantages: Array) -> tuple[float, Parameters]:
    """The clipped objective, to be made small, and its gradient.

    The mean of ``-min(r A, clip(r) A)`` with ``r`` the ratio of probabilities now and then.
    """
    ratio = np.exp(policy.log_probability(batch.states, batch.actions) - batch.before)
    clipped = np.clip(ratio, 1 - CLIP, 1 + CLIP)
    terms = np.minimum(ratio * advantages, clipped * advantages)
    moves = np.where(advantages >= 0, ratio < 1 + CLIP, ratio > 1 - CLIP)
    # d(ratio) = ratio * d(log p)
    slopes = np.where(moves, -ratio * advantages, 0.0) / len(ratio)
    return float(-terms.mean()), policy.gradient(batch.states, batch.actions, slopes)


class Critic:
    """The value of a state: what is expected to follow."""

    def __init__(self, rng: np.random.Generator, inputs: int) -> None:
        self.parameters: Parameters = initial(rng, inputs, 1)

    def value(self, states: Array) -> Array:
        """Of each state."""
        return np.asarray(forward(self.parameters, states)[0][:, 0])

    def loss(self, states: Array, returns: Array) -> tuple[float, Parameters]:
        """Half the mean of squared errors, and its gradient."""
        values, layers = forward(self.parameters, states)
        error = values[:, 0] - returns
        slope = error[:, None] / len(error)
        return float(0.5 * np.mean(error * error)), backward(self.parameters, layers, slope)


@dataclass(slots=True)
class Learner:
    """Actors by name with one critic, and their optimisers."""

    critic: Critic
    actors: dict[str, Parts | Directions] = field(default_factory=dict)
    optimisers: dict[str, Adam] = field(default_factory=dict)

    def learn(self, batches: dict[str, Batch]) -> None:
        """Improve the actors that the batches are of, and the critic by all of them."""
        batches = {name: batch for name, batch in batches.items() if len(batch.states)}
        if not batches:
            return
        advantages = {}
        for name, batch in batches.items():
            a = batch.returns - self.critic.value(batch.states)
            advantages[name] = (a - a.mean()) / (a.std() + 1e-6) if len(a) > 1 else a
        states = np.concatenate([batch.states for batch in batches.values()])
        returns = np.concatenate([batch.returns for batch in batches.values()])
        for _ in range(EPOCHS):
            for name, batch in batches.items():
                actor = self.actors[name]
                _, gradient = surrogate(actor, batch, advantages[name])
                if isinstance(actor, Directions):
                    more = actor.entropy_gradient(batch.states)
                    rate = ENTROPY / len(batch.states)
                    gradient = tuple(g - rate * e for g, e in zip(gradient, more, strict=True))
                actor.parameters = self._optimiser(name).step(actor.parameters, gradient)
            _, gradient = self.critic.loss(states, returns)
            self.critic.parameters = self._optimiser("").step(self.critic.parameters, gradient)

    def _optimiser(self, name: str) -> Adam:
        return self.optimisers.setdefault(name, Adam())
