"""What cannot be said in languages like C."""

import pytest

from tilewright.cli import main
from tilewright.cli.arrays import write_archive
from tilewright.cli.files import write_text
from tilewright.codegen import ALL_CALLS, emit_c
from tilewright.ir import F32, ZERO, Exec, LoopFunction, Window, buffer, parse_function
from tilewright.lower import lower
from tilewright.support import InputError, ScheduleError, TargetError


def emitted(body, buffers="x = f32[4]\ny = f32[4]"):
    return emit_c(lower(parse_function(f'function("f", outputs=[y])\n{buffers}\n{body}'), native=ALL_CALLS))


def test_barriers_inside_of_threads_have_no_c():
    with pytest.raises(ScheduleError, match="barrier inside of a thread loop"):
        emitted("""
for t in thread("thread.x", 4):
    with seq:
        y[t] = x[t]
        barrier("shared")
""")


def test_instructions_have_no_c():
    body = Exec("vpdpbusd", (Window("y", (ZERO,), (4,), "rw"),))
    func = LoopFunction("f", (), (buffer("y", (4,), F32),), ("y",), body)
    with pytest.raises(TargetError, match="no instruction vpdpbusd"):
        emit_c(func)


def test_results_whose_folder_is_gone_when_they_are_written(tmp_path):
    with pytest.raises(InputError, match="cannot write"):
        write_text(str(tmp_path / "no" / "folder.c"), "")
    with pytest.raises(InputError, match="cannot write"):
        write_archive(str(tmp_path / "no" / "folder.npz"), {})
    assert main(["compile", "zoo:tinybert4:small", "--emit", "c"]) == 2
