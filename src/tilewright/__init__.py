"""Tilewright compiles tensor programs into fast native code.

The names below are loaded on first use, so that importing the package stays cheap.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tilewright.devices import load_model as load
    from tilewright.driver import (
        CompiledModel,
        CompiledProgram,
        DynamicModel,
        Nest,
        compile_model as compile,
        scop,
        tune_model as tune,
    )
    from tilewright.runtime import Model, SavedDynamicModel, SavedModel, SavedNest, Stop
    from tilewright.support import InternalError, StoppedError, TilewrightError, UserError

    # of a package above those that import this one: a type checker does without its signature
    from_torch: Callable[..., Any]

__version__ = "0.1.0"

# Public name -> the package that defines it, and its name there.
_EXPORTS: Final = {
    "CompiledProgram": ("tilewright.driver", "CompiledProgram"),
    "DynamicModel": ("tilewright.driver", "DynamicModel"),
    "CompiledModel": ("tilewright.driver", "CompiledModel"),
    "Nest": ("tilewright.driver", "Nest"),
    "Model": ("tilewright.runtime", "Model"),
    "InternalError": ("tilewright.support", "InternalError"),
    "SavedDynamicModel": ("tilewright.runtime", "SavedDynamicModel"),
    "SavedModel": ("tilewright.runtime", "SavedModel"),
    "SavedNest": ("tilewright.runtime", "SavedNest"),
    "Stop": ("tilewright.runtime", "Stop"),
    "StoppedError": ("tilewright.support", "StoppedError"),
    "TilewrightError": ("tilewright.support", "TilewrightError"),
    "UserError": ("tilewright.support", "UserError"),
    "compile": ("tilewright.driver", "compile_model"),
    "from_torch": ("tilewright.torch", "from_torch"),
    "load": ("tilewright.devices", "load_model"),
    "scop": ("tilewright.driver", "scop"),
    "tune": ("tilewright.driver", "tune_model"),
}

__all__ = [
    "CompiledModel",
    "CompiledProgram",
    "DynamicModel",
    "InternalError",
    "Model",
    "Nest",
    "SavedDynamicModel",
    "SavedModel",
    "SavedNest",
    "Stop",
    "StoppedError",
    "TilewrightError",
    "UserError",
    "__version__",
    "compile",
    "from_torch",
    "load",
    "scop",
    "tune",
]


def __getattr__(name: str) -> object:
    """Load a public name from the package that defines it (PEP 562)."""
    try:
        home, attribute = _EXPORTS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value: object = getattr(import_module(home), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *_EXPORTS})


class _Package(ModuleType):
    """The package itself: importing a part of it does not hide a public name that is called the same."""

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute, but for the package ``tilewright.tune``: the name is the function's."""
        if name in _EXPORTS and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
