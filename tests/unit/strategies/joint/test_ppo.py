"""Actors, critic and their gradients, held against finite differences; they learn what pays."""

import numpy as np
import pytest

from tilewright.strategies.joint.network import Adam, backward, forward, initial
from tilewright.strategies.joint.ppo import (
    CLIP,
    Batch,
    Critic,
    Directions,
    Learner,
    Parts,
    part_of,
    surrogate,
)

STEP = 1e-6


def differences(function, parameters):
    """The gradient of a function of parameters, one number after another."""
    out = []
    for n, p in enumerate(parameters):
        slope = np.zeros_like(p)
        for at in np.ndindex(*p.shape):
            ends = []
            for step in (STEP, -STEP):
                moved = [q.copy() for q in parameters]
                moved[n][at] += step
                ends.append(function(tuple(moved)))
            slope[at] = (ends[0] - ends[1]) / (2 * STEP)
        out.append(slope)
    return out


def assert_gradient(function, parameters, gradient):
    for found, expected in zip(gradient, differences(function, parameters), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


def enlarged(parameters, rng):
    """Parameters whose last layer is not nearly zero, and small enough to differentiate one by one."""
    return tuple(p + 0.3 * rng.standard_normal(p.shape) for p in parameters)


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def policies(rng):
    parts, directions = Parts(rng, 4), Directions(rng, 4)
    parts.parameters = (*initial(rng, 4, 1, 5), np.array([-0.4]))
    directions.parameters = initial(rng, 4, 3, 5)
    for policy in (parts, directions):
        policy.parameters = enlarged(policy.parameters, rng)
    return parts, directions


def batch_of(policy, rng, count=9):
    states = rng.standard_normal((count, 4))
    actions = np.array([float(policy.act(rng, s)) for s in states])
    before = policy.log_probability(states, actions)
    return Batch(states, actions, before, rng.standard_normal(count))


def test_a_network_backwards(rng):
    parameters = enlarged(initial(rng, 3, 2, 5), rng)
    x, weights = rng.standard_normal((6, 3)), rng.standard_normal((6, 2))
    y, layers = forward(parameters, x)
    assert y.shape == (6, 2)
    assert_gradient(
        lambda p: float((forward(p, x)[0] * weights).sum()), parameters, backward(parameters, layers, weights)
    )


@pytest.mark.parametrize("which", [0, 1])
def test_logarithms_of_probabilities(rng, which):
    policy = policies(rng)[which]
    batch, slopes = batch_of(policy, rng), rng.standard_normal(9)

    def total(parameters):
        policy.parameters = parameters
        return float((policy.log_probability(batch.states, batch.actions) * slopes).sum())

    own = policy.parameters
    assert_gradient(total, own, policy.gradient(batch.states, batch.actions, slopes))


@pytest.mark.parametrize("which", [0, 1])
def test_the_clipped_objective(rng, which):
    """With old probabilities so far off that some ratios are clipped, on both sides."""
    policy = policies(rng)[which]
    batch = batch_of(policy, rng, 24)
    before = batch.before + rng.uniform(-0.6, 0.6, 24)
    ratio = np.exp(batch.before - before)
    assert (ratio > 1 + CLIP).any() and (ratio < 1 - CLIP).any()
    moved = Batch(batch.states, batch.actions, before, batch.returns)
    own = policy.parameters
    _, gradient = surrogate(policy, moved, batch.returns)

    def loss(parameters):
        policy.parameters = parameters
        return surrogate(policy, moved, batch.returns)[0]

    assert_gradient(loss, own, gradient)


def test_the_entropy_of_directions(rng):
    policy = policies(rng)[1]
    states, own = rng.standard_normal((5, 4)), policy.parameters

    def total(parameters):
        policy.parameters = parameters
        return float(policy.entropy(states).sum())

    assert_gradient(total, own, policy.entropy_gradient(states))


def test_the_critic(rng):
    critic = Critic(rng, 4)
    critic.parameters = enlarged(initial(rng, 4, 1, 5), rng)
    states, returns, own = rng.standard_normal((7, 4)), rng.standard_normal(7), critic.parameters
    _, gradient = critic.loss(states, returns)

    def loss(parameters):
        critic.parameters = parameters
        return critic.loss(states, returns)[0]

    assert_gradient(loss, own, gradient)


def test_adam_goes_down():
    x, adam = (np.array([3.0, -2.0]),), Adam(rate=0.1)
    for _ in range(200):
        x = adam.step(x, (2 * x[0],))
    assert np.abs(x[0]).max() < 0.1


def test_actors_learn_what_pays(rng):
    """Parts near 0.2 and the direction up are rewarded; both become likelier, and the critic expects more."""
    learner = Learner(Critic(rng, 2))
    learner.actors = {"part": Parts(rng, 2), "way": Directions(rng, 2)}
    state = np.array([1.0, 0.5])
    first = learner.critic.value(state[None])[0]
    for _ in range(60):
        batches = {}
        for name, actor in learner.actors.items():
            states = np.tile(state, (32, 1))
            actions = np.array([float(actor.act(rng, state)) for _ in states])
            if name == "part":
                returns = np.array([2.0 - abs(part_of(u) - 0.2) for u in actions])
            else:
                returns = (actions == 2).astype(float) + 1.0
            batches[name] = Batch(states, actions, actor.log_probability(states, actions), returns)
        learner.learn(batches)
    parts = [part_of(learner.actors["part"].act(rng, state)) for _ in range(100)]
    ways = [learner.actors["way"].act(rng, state) for _ in range(100)]
    assert abs(np.median(parts) - 0.2) < 0.15
    assert ways.count(2) > 70
    assert learner.critic.value(state[None])[0] > first + 0.5
    learner.learn({})
