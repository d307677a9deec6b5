"""The examples in docstrings run, in every module of the package."""

import doctest
import importlib
from pathlib import Path

import pytest

import tilewright
from extras import has_torch

ROOT = Path(tilewright.__path__[0])
# by name, not by import: some packages need an extra
NAMES = {
    ".".join(("tilewright", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
}


@pytest.mark.parametrize("name", sorted(name for name in NAMES if not name.endswith("__main__")))
def test_docstring_examples(name):
    if ".torch" in name and not has_torch():
        pytest.skip("torch is not installed")
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert failed == 0
