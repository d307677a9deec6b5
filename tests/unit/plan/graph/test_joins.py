"""Joined kernels: only those that are scheduled as the chain for which they were joined."""

import re

import pytest
from tests.native_kernel import STATED
from tests.unit.plan.fused.test_bands import block, stage
from tests.unit.strategies.test_default import blocked, constant, t

from tilewright import lang
from tilewright.cost import Machine
from tilewright.plan import fits_together
from tilewright.plan.fused import nests as chain_nests
from tilewright.plan.fused.bands import find_band
from tilewright.plan.inlining import inline_stages
from tilewright.schedule import Schedule
from tilewright.strategies import default_schedule


def parts_of(program):
    found = find_band(inline_stages(Schedule(program)).program, Machine(STATED, 2))
    return found and found[1].parts


@pytest.mark.parametrize(("size", "channels", "parts"), [(28, (32, 192, 32), 1), (7, (160, 960, 160), 2)])
def test_what_fits_together_is_one_nest(size, channels, parts):
    program = block(1, (size, size), *channels)
    assert parts_of(program) == parts
    assert fits_together(program, Machine(STATED, 2))
    # the widened value is held a part at a time, inside of loops
    assert re.search(r"^ {8,}alloc Y1: ", str(default_schedule(program, Machine(STATED, 2))), re.MULTILINE)
    assert not fits_together(program, Machine(STATED, 1))


def test_a_chain_without_a_register_tile_does_not_fit(monkeypatch, caplog):
    program = block(1, (28, 28), 32, 192, 32)
    monkeypatch.setattr(chain_nests, "is_tileable", lambda *_: None)
    with caplog.at_level("INFO", "tilewright"):
        assert not fits_together(program, Machine(STATED, 2))
    assert "stays apart" in caplog.text and "has no register tile" in caplog.text


@pytest.mark.parametrize("shared", [False, True])
def test_weights_that_two_links_read_are_packed_for_neither(shared):
    x, v, w = t(1, 96, 14, 14, name="X"), t(96, 96, 1, 1, name="V"), t(96, 96, 1, 1, name="W")

    def product(a, b, name):
        c = lang.reduce_axis(96, "c")
        return lang.compute(
            a.shape, lambda n, o, y, z: lang.sum(a[n, c, y, z] * b[o, c, 0, 0], axis=c), name=name
        )

    filtered, more = stage(product(x, v, "A"), 1, 96, 1, 3, 3, pad=1)
    out = product(filtered, v if shared else w, "Y")
    program = lang.program([x, v, *([] if shared else [w]), *more], [out])
    assert fits_together(blocked(constant(program, "V", "W", "W1", "B1")), Machine(STATED, 2)) != shared
