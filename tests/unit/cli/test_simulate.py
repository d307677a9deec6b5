"""tilewright simulate: programs and streams on machines from files."""

import json

import pytest

from tilewright.cli import main


@pytest.fixture
def call(capsys):
    """Run a command; gives its status, stdout and stderr."""

    def run(*arguments):
        status = main([str(each) for each in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


PRODUCT = """program("mm")
A = input(i8[20, 40])
B = input(i8[40, 18])
C = output(i32[20, 18])
with stage("C"):
    i = par(0, 20)
    j = par(0, 18)
    k = red(0, 40)
    with init:
        C[i, j] = i32(0)
    C[i, j] = C[i, j] + cast(A[i, k], i32) * cast(B[k, j], i32)
"""


def test_simulate(call, tmp_path):
    (tmp_path / "mm.txt").write_text(PRODUCT)
    status, out, _ = call("simulate", tmp_path / "mm.txt", "--target", "gemmini", "--check", "--timeline", 50)
    assert status == 0 and "results equal" in out and "mvout" in out
    status, out, _ = call("simulate", tmp_path / "mm.txt", "--target", "gemmini", "--json")
    cycles = json.loads(out)["cycles"]
    status, out, _ = call("simulate", tmp_path / "mm.txt", "--target", "gemmini", "--emit")
    streams = out[: out.index(f"{cycles} cycles")]
    (tmp_path / "streams.txt").write_text(streams)
    status, out, _ = call("simulate", tmp_path / "streams.txt", "--target", "gemmini")
    assert status == 0 and out.startswith(f"{cycles} cycles")


def test_simulate_refuses(call, tmp_path):
    (tmp_path / "mm.txt").write_text(PRODUCT)
    assert call("simulate", tmp_path / "mm.txt", "--target", "abacus")[0] == 2
    status, _, err = call("simulate", tmp_path / "none.txt", "--target", "gemmini")
    assert status == 2 and "cannot be read" in err
    (tmp_path / "bytes.txt").write_bytes(b"\xff")
    status, _, err = call("simulate", tmp_path / "bytes.txt", "--target", "gemmini")
    assert status == 2 and "is not UTF-8" in err
    with (tmp_path / "long.txt").open("wb") as sparse:
        sparse.truncate((64 << 20) + 2)
    status, _, err = call("simulate", tmp_path / "long.txt", "--target", "gemmini")
    assert status == 2 and "has more than" in err
    status, _, err = call("simulate", tmp_path / "mm.txt", "--target", "gemmini", "--size", "n")
    assert status == 2 and "is not NAME=N" in err
    (tmp_path / "broken.txt").write_text(PRODUCT.replace("B[k, j]", "B[k]"))
    status, _, err = call("simulate", tmp_path / "broken.txt", "--target", "gemmini")
    assert status == 2 and err.startswith("error: stage ")
    status, out, _ = call("simulate", tmp_path / "mm.txt", "--target", "gemmini", "--emit")
    (tmp_path / "streams.txt").write_text(out[: out.rindex("C[") + out[out.rindex("C[") :].index("\n") + 1])
    status, _, err = call("simulate", tmp_path / "streams.txt", "--target", "gemmini", "--check")
    assert status == 2 and "only programs can be checked" in err


def test_help(call):
    status, out, _ = call("simulate", "--help")
    assert status == 0 and "--target" in out and "--json" in out
