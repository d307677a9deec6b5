"""Kernels start other threads only where that pays."""

import numpy as np
import pytest
from onnx import helper

import onnx_models as tiny
import tilewright
from tilewright.ir import For, stmt_children


def _has_parallel(stmt):
    here = isinstance(stmt, For) and stmt.kind.name == "parallel"
    return here or any(map(_has_parallel, stmt_children(stmt)))


def _parallel_kernels(model):
    compiled = tilewright.compile(model, threads=2)
    return [_has_parallel(group.kernel.loops().body) for group in compiled.groups()]


@pytest.mark.parametrize(("size", "parallel"), [(16, False), (48, False), (128, True)])
def test_contractions(size, parallel):
    weights = {"w": np.ones((size, size), np.float32)}
    tensors = [tiny.tensor(name, (size, size)) for name in "xy"]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    assert _parallel_kernels(tiny.model([node], tensors[:1], tensors[1:], weights)) == [parallel]


@pytest.mark.parametrize(("size", "parallel"), [(16, False), (96, False), (512, True)])
def test_element_wise(size, parallel):
    assert _parallel_kernels(tiny.relu((size, size))) == [parallel]
