"""Iteration spaces, dependences, legality and schedule trees: a thin typed wrapper over isl.

The names below are loaded on first use, so that importing the package loads neither numpy nor islpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.poly.dependences import Dependence, dependences
    from tilewright.poly.extract import Model, PolyAccess, PolyStatement, extract
    from tilewright.poly.legality import Listing, Violation, check_legal, list_function

# Public name -> the module that defines it.
_EXPORTS = {
    "Dependence": "dependences",
    "Model": "extract",
    "PolyAccess": "extract",
    "PolyStatement": "extract",
    "dependences": "dependences",
    "extract": "extract",
    "Listing": "legality",
    "Violation": "legality",
    "check_legal": "legality",
    "list_function": "legality",
}

__all__ = [
    "Dependence",
    "Listing",
    "Model",
    "PolyAccess",
    "PolyStatement",
    "Violation",
    "check_legal",
    "dependences",
    "extract",
    "list_function",
]


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it (PEP 562)."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"tilewright.poly.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *_EXPORTS})
