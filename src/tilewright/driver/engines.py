"""Packages that Tilewright can do without: other engines to compare with, found when they are needed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tilewright.support import InstallationError


def have_module(name: str) -> bool:
    """Whether a package is installed; nothing is imported."""
    return find_spec(name) is not None


def optional_module(name: str) -> Any:
    """Import a package. Raises InstallationError, saying how to install it, where it is missing."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise InstallationError(
            f"{package} cannot be imported: {error}", hint=f"pip install {package}"
        ) from None


def onnxruntime_errors(ort: Any) -> tuple[type[Exception], ...]:
    """The exceptions that onnxruntime raises; they have no base of their own."""
    state = ort.capi.onnxruntime_pybind11_state
    found = [value for value in vars(state).values() if isinstance(value, type)]
    own = [value for value in found if issubclass(value, Exception)]
    return (*own, RuntimeError, ValueError)


def first_line(error: Exception, limit: int = 300) -> str:
    """The first line of a library's message, cut to a length, control characters escaped."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    clean = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
