"""Set-up of the tests of whole models."""

import pytest

from tilewright.plan import threads
from tilewright.plan.contraction import sharing as contraction


@pytest.fixture
def parallel_however_small(monkeypatch):
    """Kernels of small models run on all threads too, where they would not pay for starting them."""
    monkeypatch.setattr(contraction, "MIN_PARALLEL_PRODUCTS", 0)
    monkeypatch.setattr(threads, "MIN_PARALLEL_ELEMENTS", 0)
