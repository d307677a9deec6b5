"""Sizes that torch leaves open: expressions, numbers of them, and what is refused of them."""

import extras

extras.need_torch()

from types import SimpleNamespace

import pytest
import sympy
import torch

from tilewright.frontend import torch as frontend
from tilewright.frontend.torch import open as opened
from tilewright.frontend.torch.reader import Output, ReadModule, number_of
from tilewright.frontend.torch.sizes import evaluated, hint_of
from tilewright.frontend.torch.writer import Writer
from tilewright.graph import Limits
from tilewright.ir import OpenSizeError
from tilewright.support import UnsupportedOperatorError
from torch_checks import traced

N, M = sympy.Symbol("n", integer=True), sympy.Symbol("m", integer=True)


def test_expressions():
    assert evaluated(2 * N + M**2 - 1, {"n": 5, "m": 3}) == 18
    with pytest.raises(OpenSizeError, match="no expression of sizes"):
        evaluated(sympy.sin(N), {"n": 5})


def test_sizes_that_data_decides():
    size = SimpleNamespace(node=SimpleNamespace(has_hint=lambda: False))
    with pytest.raises(OpenSizeError, match="data decides the size"):
        hint_of(size)


def test_numbers_of_sizes():
    with pytest.raises(OpenSizeError, match="no number that is computed here"):
        number_of(Writer(Limits()), sympy.tan(N), {"n": 5})


def test_graphs_say_what_is_not_read():
    module = traced(torch.special.airy_ai, torch.ones(3))
    with pytest.raises(UnsupportedOperatorError, match="airy_ai"):
        frontend.OpenModule(module).graph()


def test_results_that_are_alike_at_some_sizes(monkeypatch):
    source = frontend.OpenModule(traced(lambda x: [x + 1, x + 1], torch.ones(3)))
    source.graph()
    alike = ReadModule(source.read.graph, source.read.inputs, (Output("a"), Output("a")), {})
    monkeypatch.setattr(opened, "read_module", lambda *_, **__: alike)
    with pytest.raises(OpenSizeError, match="which results are alike"):
        source.graph()
