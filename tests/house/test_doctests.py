"""The examples in docstrings run, in every module of the package."""

import doctest
import importlib
import pkgutil

import pytest

import tilewright
from extras import has_torch

MODULES = ["tilewright", *(found.name for found in pkgutil.walk_packages(tilewright.__path__, "tilewright."))]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith(("_native", "__main__"))])
def test_docstring_examples(name):
    if ".torch" in name and not has_torch():
        pytest.skip("torch is not installed")
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert failed == 0
