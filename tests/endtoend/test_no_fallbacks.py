"""The reference architectures are scheduled by the rules meant for them: none gives way to a simpler one.

Rules that a primitive refuses fall back and log it; results stay right, so that only times would tell.
"""

import pytest

from tilewright.cost import Machine
from tilewright.driver.graph_plan import choose_graph_plan
from tilewright.driver.units import UnitMaker, make_units
from tilewright.frontend import import_onnx, zoo
from tilewright.graph import fuse, simplify
from tilewright.strategies import default_schedule
from tilewright.target import AARCH64_NEON, X86_AVX2, X86_AVX512


@pytest.mark.few(9)
@pytest.mark.parametrize("target", [X86_AVX512, X86_AVX2, AARCH64_NEON], ids=lambda target: target.name)
@pytest.mark.parametrize("name", sorted(zoo.SMALL))
def test_no_rule_gives_way(name, target, caplog):
    maker = UnitMaker(fuse(simplify(import_onnx(zoo.SMALL[name]()))))
    units = make_units(maker, choose_graph_plan(maker, target))
    programs = {str(unit.program): unit.program for unit in units}
    with caplog.at_level("INFO", "tilewright"):
        for program in programs.values():
            default_schedule(program, Machine(target, 2))
    said = [r.getMessage() for r in caplog.records if r.name.startswith("tilewright.plan")]
    assert said == []
