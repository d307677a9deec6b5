"""``tilewright map``: mappings and reasons, for tables and for machines from files."""

import json

import pytest

from machine_programs import layer
from tilewright.cli import main
from tilewright.ir import print_program
from unit.mapping.kernels import gemm, separable


@pytest.fixture
def call(capsys):
    """Run the command on a program; gives its status, stdout and stderr."""

    def run(*arguments):
        status = main(["map", *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def bytes_(tmp_path):
    file = tmp_path / "gemm.txt"
    file.write_text(print_program(gemm(4, 16, 8, types=("i32", "u8", "i8"))))
    return file


def test_mappings_and_what_they_need(call, bytes_):
    status, out, _ = call(bytes_, "--target", "x86_avx512")
    assert status == 0
    assert "vpdpbusd: 2 mappings" in out
    assert "stage C: lane = j, k = k; result = C[i, j], a = A[i, k], b = B[k, j]" in out
    assert "needs layout operand b, buffer B, dims (1, 0), group 1" in out


def test_reasons(call, tmp_path):
    file = tmp_path / "separable.txt"
    file.write_text(print_program(separable()))
    _, quiet, _ = call(file, "--target", "x86_avx512")
    status, out, _ = call(file, "--target", "x86_avx512", "--why")
    assert status == 0 and "vpdpbusd: 0 mappings" in quiet and "not:" not in quiet
    assert "not: vpdpbusd, stage C: operation 0: type: expected i32, found f32" in out


def test_transformations(call, tmp_path):
    file = tmp_path / "signed.txt"
    file.write_text(print_program(gemm(4, 16, 8, types=("i32", "i8", "i8"))))
    assert "vpdpbusd: 0 mappings" in call(file, "--target", "x86_avx512")[1]
    out = call(file, "--target", "x86_avx512", "--transform", "--instruction", "vpdpbusd")[1]
    assert 'shift_factor("C", 0, "C_shifted0"), then stage C_shifted0_sum' in out


def test_the_selection(call, tmp_path):
    """Instructions that are faster than multiply-adds with what packing takes; all that a machine has."""
    file = tmp_path / "program.txt"
    file.write_text(print_program(gemm(1, 16, 8, types=("i32", "u8", "i8"))))
    assert "selection: 0 instructions\n  C: no instruction" in call(file, "--target", "x86_avx512")[1]
    file.write_text(print_program(gemm(64, 64, 64, types=("i32", "u8", "i8"))))
    out = call(file, "--target", "x86_avx512")[1]
    assert "selection: 1 instructions, cost " in out
    assert "\n  C: vpdpbusd, 4096 executions, lane = j, k = k; " in out
    file.write_text(print_program(layer(20, 40, 24, "f16", "f32")))
    out = call(file, "--target", "davinci", "--rule", "fewest")[1]
    assert "selection: 3 instructions, cost 0, 3, 0" in out
    assert "\n  C: mad_add (started by mad), 1 executions, i = i, j = j, x = k" in out
    data = json.loads(call(file, "--target", "davinci", "--json")[1])
    assert [u["instruction"] for u in data["selection"]] == ["mad_add", "add_row", "relu"]
    assert data["uncovered"] == [] and data["cost"][1] > 3
    file.write_text(print_program(gemm(8, 8, 8)))
    out = call(file, "--target", "davinci", "--why")[1]
    assert "\n  C: no instruction for (A[i, k] * B[k, j])\n    not: mad" in out


def test_json(call, bytes_):
    status, out, _ = call(bytes_, "--target", "x86_avx512", "--json", "--why")
    data = json.loads(out)
    assert status == 0 and data["command"] == "map"
    (row,) = data["instructions"]
    assert row["instruction"] == "vpdpbusd" and row["mappings"][1]["axes"] == {"lane": ["j"], "k": ["k"]}


TYPES = {
    "clusters": ("f32", "bf16", "bf16"),
    "davinci": ("f32", "f16", "f16"),
    "gemmini": ("i32", "i8", "i8"),
}


@pytest.mark.parametrize("machine", TYPES)
def test_machines_from_files(call, tmp_path, machine):
    file = tmp_path / "gemm.txt"
    file.write_text(print_program(gemm(16, 16, 16, types=TYPES[machine])))
    status, out, _ = call(file, "--target", machine, "--why")
    assert status == 0
    assert "\n  stage C: " in out and "not: " in out


@pytest.mark.parametrize(
    ("text", "message"),
    [(b"\xff\xfe", "is not UTF-8"), (b"program(", "")],
    ids=["bytes", "syntax"],
)
def test_what_is_no_program(call, tmp_path, text, message):
    file = tmp_path / "program.txt"
    file.write_bytes(text)
    status, _, err = call(file)
    assert status == 2 and message in err


def test_no_such_instruction(call, bytes_):
    status, _, err = call(bytes_, "--target", "x86_avx512", "--instruction", "mma")
    assert status == 2 and "target x86_avx512 has no instruction 'mma'" in err


BROKEN = """program("broken")
A = input(f32[8])
B = input(i32[8])
C = output(f32[8])
with stage("C"):
    i = par(0, 8)
    C[i] = A[i] + B[i]
"""
"""It reads as a program, and is none: types differ."""


def test_a_text_that_reads_as_a_program_and_is_none(call, tmp_path):
    file = tmp_path / "broken.txt"
    file.write_text(BROKEN)
    status, _, err = call(file, "--target", "gemmini")
    assert status == 2
    assert err.startswith("error: stage 'C': operands of add have types f32 and i32")


def test_a_program_without_iterations(call, tmp_path):
    file = tmp_path / "empty.txt"
    file.write_text(print_program(layer(0, 16, 16, "i8", "i32")))
    status, out, _ = call(file, "--target", "gemmini")
    assert status == 0 and ", 0 executions" in out
