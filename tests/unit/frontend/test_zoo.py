"""The reference architectures are valid ONNX, repeatable and keep activations of the order of one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from model_cases import feeds_of
from tilewright.frontend import zoo


def test_the_small_models_have_the_names_of_the_full_ones() -> None:
    assert set(zoo.SMALL) == set(zoo.FULL)


@pytest.mark.parametrize("name", sorted(zoo.SMALL))
def test_small_models_are_valid_and_keep_their_scale(name: str) -> None:
    model = zoo.SMALL[name]()
    onnx.checker.check_model(model, full_check=True)
    for value in ReferenceEvaluator(model).run(None, feeds_of(model)):
        assert np.isfinite(value).all()
        assert 0.05 < float(np.std(value)) < 5.0


@pytest.mark.parametrize("name", sorted(zoo.SMALL))
def test_the_same_seed_gives_the_same_bytes(name: str) -> None:
    assert zoo.SMALL[name]().SerializeToString() == zoo.SMALL[name]().SerializeToString()


def test_full_sizes_are_the_published_ones() -> None:
    for name, parameters in (("resnet18", 11.69e6), ("resnet50", 25.56e6), ("mobilenet_v2", 3.50e6)):
        model = zoo.FULL[name]()
        weights = [t for t in model.graph.initializer if "running" not in t.name]
        count = sum(int(np.prod(t.dims)) for t in weights)
        assert abs(count - parameters) < 0.01 * parameters, name


def test_batch_normalisation_stays_a_node() -> None:
    operators = {n.op_type for n in zoo.SMALL["mobilenet_v2"]().graph.node}
    assert {"Conv", "BatchNormalization", "Clip", "Add", "GlobalAveragePool", "Gemm"} <= operators


def test_a_symbolic_batch_is_kept() -> None:
    model = zoo.resnet18(batch="N", image=32, width=0.125, depth=0.5)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
