"""Tilewright compiles tensor programs into fast native code and finds the fast version by itself.

The names below are loaded on first use, so that importing the package stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.support import InternalError, TilewrightError, UserError

__version__ = "0.1.0"

# Public name -> the package that defines it.
_EXPORTS = {
    "InternalError": "tilewright.support",
    "TilewrightError": "tilewright.support",
    "UserError": "tilewright.support",
}

__all__ = ["InternalError", "TilewrightError", "UserError", "__version__"]


def __getattr__(name: str) -> object:
    """Load a public name from the package that defines it (PEP 562)."""
    try:
        home = _EXPORTS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *_EXPORTS})
