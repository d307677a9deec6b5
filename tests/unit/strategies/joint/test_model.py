"""The learned cost model: trees fit what they saw, and the model orders points by it."""

import numpy as np

from tilewright.strategies.joint.boosting import boosted
from tilewright.strategies.joint.model import CostModel
from tilewright.strategies.joint.settings import LEAST_SAMPLES


def test_trees_fit_steps_and_products():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (200, 4))
    y = np.where(x[:, 0] > 0.5, 2.0, 0.0) + 3 * x[:, 1] * x[:, 2]
    trees = boosted(x, y)
    rest = y - trees.predict(x)
    assert rest.std() < 0.2 * y.std()
    fresh = rng.uniform(0, 1, (200, 4))
    expected = np.where(fresh[:, 0] > 0.5, 2.0, 0.0) + 3 * fresh[:, 1] * fresh[:, 2]
    assert (expected - trees.predict(fresh)).std() < 0.4 * y.std()


def test_trees_of_one_value_are_that_value():
    assert boosted(np.ones((5, 2)), np.full(5, 3.0)).predict(np.zeros((2, 2))).tolist() == [3.0, 3.0]


def test_the_model_learns_online_and_orders_points():
    model = CostModel()
    assert model.predict([{"rows": 1.0}]).tolist() == [1.0]
    for n in range(LEAST_SAMPLES + 20):
        assert model.ready == (n >= LEAST_SAMPLES)
        rows = n % 8
        model.add({"rows": float(rows), **({"block": 1.0} if n % 3 else {})}, 0.5 + abs(rows - 5) / 4)
    found = model.predict([{"rows": float(r)} for r in range(8)])
    assert int(found.argmin()) in (4, 5, 6)
    assert found[0] > 1.3 * found.min()
