"""Changes that a test makes are seen: plans and texts of kernels that are remembered do not know of them."""

import pytest

from tilewright.build import kernel
from tilewright.strategies import search


class Forgetting(pytest.MonkeyPatch):
    """Monkeypatch, after whose changes nothing is planned or emitted yet."""

    def setattr(self, *args, **kwargs):
        super().setattr(*args, **kwargs)
        forget()

    def setitem(self, *args):
        super().setitem(*args)
        forget()

    def undo(self):
        super().undo()
        forget()


def forget():
    search._default.cache_clear()
    kernel.emit.cache_clear()
