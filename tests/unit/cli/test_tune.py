"""``tilewright tune``: what it says of layouts and kernels, and the plan that it writes."""

import json
from pathlib import Path

import onnx
import pytest
from tests.unit.tune.test_database import filled

import onnx_models as tiny
from tilewright.cli import main


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "mlp.onnx"
    onnx.save(tiny.mlp(), file)
    return str(file)


@pytest.mark.slow
def test_the_joint_search_tunes_layouts_and_then_kernels(path, tmp_path, capsys):
    plan = tmp_path / "plan.json"
    arguments = ["--strategy", "joint", "--budget", "40s", "--trials", "3", "--threads", "1", "-o", str(plan)]
    arguments += ["--records", str(tmp_path / "r.db")]
    assert main(["tune", path, *arguments]) == 0
    out = capsys.readouterr().out
    assert "layouts: " in out and " kernels measured" in out
    assert "trials" in out
    made = json.loads(plan.read_text())
    assert made["units"] and made["graph"] is not None
    # a plan that is given has its layouts: kernels alone are tuned
    assert main(["tune", path, *arguments, "--plan", str(plan)]) == 0
    assert "layouts: " not in capsys.readouterr().out
    assert main(["verify", path, "--plan", str(plan), "--threads", "1"]) == 0


def test_where_the_plan_goes_is_looked_at_before_the_search(path, tmp_path, capsys, monkeypatch):
    """A search takes minutes, and a model is not written over by its plan."""
    monkeypatch.setattr("tilewright.cli.commands.tune.tune_model", lambda *_, **__: pytest.fail("it began"))
    before = Path(path).read_bytes()
    records = str(filled(tmp_path / "r.db"))
    for place, reason in (
        (path, "is a file that the command reads"),
        (records, "is a file that the command reads"),
        (str(tmp_path / "none" / "plan.json"), "its folder is not there"),
        (f"{path}/plan.json", "Not a directory"),
        ("/dev/full", "not a regular file"),
    ):
        assert main(["tune", path, "--records", records, "-o", place]) == 2
        assert reason in capsys.readouterr().err
    assert Path(path).read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["mlp.onnx", "r.db"]


def test_a_budget_that_suffices_for_nothing_is_said_in_words(path, tmp_path, capsys):
    """Neither `inf us` nor `cannot be`: what there was no time for a later tuning does."""
    arguments = [
        "--strategy",
        "joint",
        "--budget",
        "0.001s",
        "--threads",
        "1",
        "--records",
        str(tmp_path / "r.db"),
    ]
    assert main(["tune", path, *arguments]) == 0
    out = capsys.readouterr().out
    assert "kernels: no time" in out and "layouts: no time" in out
    assert "not measured: no time was left" in out and "inf" not in out
