"""Arguments may share memory (a plan writes an output over a dead input): outlined code must not deny it."""

import re

from tests.native_kernel import STATED, Native

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import CONST
from tilewright.lang import ops
from tilewright.strategies import default_schedule


def test_only_constants_and_private_memory_are_unaliased():
    a, b = lang.placeholder((16, 32), name="A"), lang.placeholder((32, 32), name="B")
    r = lang.placeholder((16, 32), name="R")
    y = lang.compute((16, 32), lambda i, j: ops.matmul(a, b)[i, j] + r[i, j], name="Y")
    program = lang.program([a, b, r], [y])
    inputs = tuple(x.with_(scope=CONST) if x.name == "B" else x for x in program.inputs)
    text = Native(
        default_schedule(type(program)(**{**fields(program), "inputs": inputs}), Machine(STATED, 1)).func,
        512,
    ).text.text
    (tile,) = re.findall(r"define internal void @\S+_tile_\d+\(([^)]*)\)", text)
    pointers = [p for p in tile.split(", ") if p.startswith("ptr")]
    assert len(pointers) == 4
    assert sum("noalias" in p for p in pointers) == 1  # the packed weights


def fields(program):
    return {name: getattr(program, name) for name in program.__dataclass_fields__}
