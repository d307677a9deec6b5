"""Set-up of the tests of strategies."""

import pytest

from remembered import Forgetting
from tilewright.plan.contraction import sharing as contraction


@pytest.fixture(autouse=True, scope="module")
def parallel_however_small():
    """Contractions of the tests run on all threads, where they would not pay for starting them."""
    with Forgetting.context() as patch:
        patch.setattr(contraction, "MIN_PARALLEL_PRODUCTS", 0)
        yield
