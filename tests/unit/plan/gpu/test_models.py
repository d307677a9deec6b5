"""What the rules of GPUs take of the reference models: nothing is left to one thread alone."""

from collections import Counter

import pytest

from tilewright.driver import emit_model
from tilewright.frontend import zoo
from tilewright.target import find_target

A100 = find_target("cuda:sm_80")
#: The rules that each architecture needs, besides that of elements.
NEEDED = {
    "resnet18": {"gpu_product", "gpu_windows", "gpu_rows"},
    "resnet50": {"gpu_product", "gpu_windows", "gpu_rows"},
    "mobilenet_v2": {"gpu_product", "gpu_windows", "gpu_rows"},
    "resnet3d18": {"gpu_product", "gpu_rows"},
    "bert_base": {"gpu_product", "gpu_rows"},
    "tinybert4": {"gpu_product", "gpu_rows"},
    "gpt2": {"gpu_product", "gpu_rows"},
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", sorted(zoo.SMALL))
def test_what_each_rule_takes(name):
    units = emit_model(zoo.SMALL[name](), A100)
    rules = Counter(rule for unit in units for rule in unit.rules)
    assert set(rules) - {"gpu_elements"} == NEEDED[name]
    for unit in units:
        assert unit.seconds is not None and unit.seconds > 0, unit.nodes
        for kernel in unit.source.kernels:
            # one thread alone: only where there is one result
            blocks = [extent.as_int() for extent in kernel.grid.blocks]
            threads = [extent.as_int() for extent in kernel.grid.threads]
            assert max(blocks + threads) > 1, (unit.nodes, kernel.symbol)
    data = units[0].as_data()
    assert data["rules"] == list(units[0].rules) and data["calls"] >= 1
