"""Which extras are installed: tests that need one are skipped without it."""

import importlib

import pytest


def has_torch():
    """Whether torch is installed; a folder of that name is not enough."""
    try:
        importlib.import_module("torch._C")
    except ModuleNotFoundError:
        return False
    return True


def need_torch():
    """Skip a module of tests where torch is not installed."""
    if not has_torch():
        pytest.skip("torch is not installed", allow_module_level=True)
