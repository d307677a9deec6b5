"""The mapper answers what default schedules ask: an instruction wherever their search finds one."""

from dataclasses import replace

import pytest

from tilewright.driver.graph_plan import graph_units
from tilewright.frontend import import_onnx, zoo
from tilewright.mapping import find_mappings
from tilewright.plan.contraction.instructions import select_instruction
from tilewright.plan.contraction.match import contraction_of
from tilewright.plan.contraction.precision import round_weights
from tilewright.plan.inlining import inline_stages
from tilewright.schedule import Schedule
from tilewright.target import X86_AVX512
from tilewright.target.x86_amx import INSTRUCTIONS, MOVES, TILES
from tilewright.target.x86_avx512 import INSTRUCTIONS as ROWS

FEATURES = {"amx-tile", "amx-bf16", "amx-int8", "avx512bf16", "avx512vnni"}
#: As fast as on Zen 5, so that they are worth it.
LANES = tuple(replace(row, per_cycle=2) for row in ROWS)
TILED = replace(
    X86_AVX512,
    features=X86_AVX512.features | FEATURES,
    instructions=(*INSTRUCTIONS, *LANES),
    moves=MOVES,
    tiles=TILES,
)
LANED = replace(TILED, instructions=LANES, moves=(), tiles=0)


@pytest.mark.parametrize("target", [TILED, LANED], ids=["tiles", "lanes"])
@pytest.mark.parametrize("name", sorted(zoo.SMALL))
def test_an_instruction_wherever_there_is_one(name, target):
    units = graph_units(import_onnx(zoo.SMALL[name]()), target, 2, "bf16").units
    asked = 0
    for program in dict.fromkeys(unit.program for unit in units):
        constants = {b.name for b in program.inputs}
        made = round_weights(inline_stages(Schedule(program)), target, constants).require_program()
        for stage in made.stages:
            c = contraction_of(made, stage, target)
            found = None if c is None else select_instruction(c, target)
            if found is None:
                continue
            asked += 1
            match = find_mappings(made, target.operations[found.instruction], c.stage.name)
            assert match.mappings, (made.name, c.stage.name, match.failures[:3])
            assert match.nodes < 1000
    # the small TinyBERT's extents are no multiples of what any instruction takes together
    assert (asked == 0) == (name == "tinybert4")
