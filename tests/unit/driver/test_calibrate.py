import json

import pytest

import tilewright
from tilewright import lang
from tilewright.cli import main
from tilewright.driver import line_seconds, measure_quantities
from tilewright.target import detect, keep_calibration


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_quantities_of_this_machine_are_plausible():
    seen = []
    table = detect(calibration=False)
    found = measure_quantities(table, 1, 0.01, lambda what, n, of, _="": seen.append((what, n, of)))
    assert seen[0] == ("products", 0, 8) and seen[-1] == ("done", 8, 8)
    assert 1e8 < found.clock_hz < 1e11 and 0.05 < found.fma_per_cycle < 8
    assert len(found.bandwidths) == len(table.memory) and min(found.bandwidths) > 0
    assert found.page_walk >= 0 and found.stream_gain > 0
    assert found.fork_seconds == table.fork_seconds  # one thread starts none
    assert found.line_seconds == table.line_seconds  # nor takes lines of others
    assert found.rounded().rounded() == found.rounded()


def test_lines_of_the_other_thread_are_plausible():
    table = detect(calibration=False)
    if table.units > 1:
        assert 1e-9 <= line_seconds(table, 2, 0.05) < 1e-6
    assert line_seconds(table, 1, 0.05) == table.line_seconds


def test_the_command_measures_keeps_and_forgets(folder, capsys):
    assert main(["targets", "--calibrate", "--seconds", "0.01", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["file"] == str(folder / "calibration.json")
    assert told["digest"] == detect().quantities.digest != detect(calibration=False).quantities.digest
    assert told["fingerprint"] == detect(calibration=False).fingerprint
    assert main(["targets", "--forget"]) == 0
    assert "forgotten" in capsys.readouterr().out
    assert detect() == detect(calibration=False)


def test_the_command_shows_what_it_measured(folder, capsys):
    assert main(["targets", "--calibrate", "--seconds", "0.01"]) == 0
    out, err = capsys.readouterr()
    assert all(name in out for name in detect().quantities.to_data()) and "kept in" in out
    assert "0/8 products" in err
    assert main(["targets", "--calibrate", "--forget"]) == 2
    (folder / "calibration.json").unlink()
    (folder / "calibration.json").mkdir()
    assert main(["targets", "--forget"]) == 2
    assert "TILEWRIGHT_CACHE_DIR" in capsys.readouterr().err


def test_a_plan_records_what_was_measured(folder, caplog):
    X = lang.placeholder((64, 64), name="X")
    program = lang.program([X], [lang.compute((64, 64), lambda i, j: X[i, j] + 1, name="Y")])
    compiled = tilewright.compile(program, threads=1)
    plan = compiled.plan()
    assert plan.quantities == detect().quantities.digest
    table = detect(calibration=False)
    keep_calibration(table, table.quantities.__class__(bandwidths=(1.0,) * len(table.memory), page_walk=99.0))
    again = tilewright.compile(program, threads=1, plan=plan.to_json())
    assert "other quantities of this machine" in caplog.text
    assert again.plan().quantities != plan.quantities and again.plan().target == plan.target
