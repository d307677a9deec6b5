"""A machine is a file: what it says of memories, moves and instructions is all that programs need.

`dot_engine.json` has two cores with a unit for rows by matrices, one for chains of element-wise work, and a
buffer between the home memory and the units' files.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from machine_programs import check, conv1d, conv2d, gemm, layer
from tilewright import lang
from tilewright.cli import main
from tilewright.ir import print_program
from tilewright.mapping import system

FILE = Path(__file__).with_name("dot_engine.json")


def pooling():
    x, d = lang.placeholder((3, 20, 12), name="X"), lang.reduce_axis(3, "d")
    y = lang.compute((3, 18, 12), lambda n, i, c: lang.max(x[n, i + d, c], axis=d), name="Y")
    return lang.program([x], [y])


PROGRAMS = {
    "product": (gemm(20, 37, 45), {"row_more": 1}),
    "vector": (gemm(1, 100, 64), {"row_more": 1}),
    "layer": (layer(13, 30, 33, "f32", "f32"), {"row_more": 1, "biased": 1}),
    "conv1d": (conv1d(2, 15, 9, 11, 3, "f32", "f32"), {"row_more": 1}),
    "strided conv2d": (conv2d(1, 9, 11, 5, 10, 3, 2, "f32", "f32"), {"row_more": 1}),
    "pooling": (pooling(), {"widest": 1}),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run_on_it(name):
    program, instructions = PROGRAMS[name]
    machine = system.load_machine(FILE)
    selection = system.select(program, machine, system.Heuristics())
    assert Counter(u.instruction for u in selection.uses) == instructions
    streams = system.schedule(program, machine)
    timing = check(program, streams, machine)
    assert set(streams.streams) == {"core0", "core1"}
    assert timing.busy["core0.dots" if "row_more" in instructions else "core0.vector"]


def test_commands_take_it(tmp_path, capsys):
    program = tmp_path / "layer.txt"
    program.write_text(print_program(PROGRAMS["layer"][0]))
    assert main(["map", str(program), "--target", str(FILE), "--json"]) == 0
    selection = json.loads(capsys.readouterr().out)["selection"]
    assert [use["instruction"] for use in selection] == ["row_more", "biased"]
    assert main(["simulate", str(program), "--target", str(FILE), "--check", "--timeline", "60"]) == 0
    out = capsys.readouterr().out
    assert "results equal" in out and "core1.dots" in out
