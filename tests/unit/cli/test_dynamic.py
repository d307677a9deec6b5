"""``--dynamic``: runs at drawn sizes, checked against compiles for each; models that are saved with it."""

import json

import numpy as np
import onnx
import pytest
from onnx import helper
from tests import onnx_models

from tilewright.cli import main


@pytest.fixture
def model(tmp_path):
    nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=-1)]
    tensors = [onnx_models.tensor(name, ("rows", 12)) for name in "xy"]
    path = tmp_path / "rows.onnx"
    onnx.save(onnx_models.model(nodes, tensors[:1], tensors[1:], {}), path)
    return str(path)


def test_runs_at_drawn_sizes(model, capsys):
    arguments = ["run", model, "--dynamic", "rows=2:40", "--draws", "3", "--check", "--threads", "1"]
    assert main([*arguments, "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert len(runs) == 3 and all(2 <= run["sizes"]["rows"] <= 40 for run in runs)
    assert all(run["difference"] < 1e-5 for run in runs)
    assert main(arguments) == 0
    assert capsys.readouterr().out.count("first run") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dynamic", "rows=40"], "write NAME=LEAST:LARGEST"),
        (["--dynamic", "rows=a:b"], "write NAME=LEAST:LARGEST"),
        (["--dynamic", "rows=1:4", "--profile"], "--dynamic draws its inputs"),
        (["--dynamic", "columns=1:4"], "the model has no open size 'columns'"),
    ],
)
def test_options_that_do_not_fit(model, arguments, message, capsys):
    assert main(["run", model, *arguments]) != 0
    assert message in capsys.readouterr().err


def test_models_are_saved_and_run_at_any_of_their_sizes(model, tmp_path, capsys):
    path, written = str(tmp_path / "rows.tw"), str(tmp_path / "y.npz")
    arguments = ["compile", model, "--dynamic", "rows=2:40", "--size", "rows=7", "--threads", "1"]
    arguments += ["--output", path]
    assert main([*arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["sizes"] == {"rows": [2, 40]} and {"rows": [7, 7]} in said["ranges"]
    assert main(arguments) == 0
    assert "rows from 2 to 40" in capsys.readouterr().out
    for shape, rows in (([], 40), (["--shape", "rows=7"], 7), (["--shape", "rows=31"], 31)):
        assert main(["run", path, *shape, "--output", written]) == 0
        y = np.load(written)["y"]
        assert y.shape == (rows, 12)
        np.testing.assert_allclose(y.sum(-1), 1, rtol=1e-5)
    np.save(tmp_path / "x.npy", np.zeros((5, 12), np.float32))
    given = ["--input", f"x={tmp_path / 'x.npy'}", "--shape", "rows=5", "--output", written]
    assert main(["run", path, *given]) == 0
    np.testing.assert_allclose(np.load(written)["y"], np.full((5, 12), 1 / 12), rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dynamic", "rows=2:40"], "--dynamic goes with --output alone"),
        (["--size", "rows=7", "--output", "y.tw"], "--size with --dynamic"),
        (["--dynamic", "rows=2:9", "--size", "rows", "--output", "y.tw"], "write NAME=N, such as batch=8"),
        (["--dynamic", "rows=2:9", "--size", "rows=41", "--output", "y.tw"], "the size 'rows' is 41"),
    ],
)
def test_models_that_cannot_be_saved(model, arguments, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["compile", model, *arguments]) != 0
    assert message in capsys.readouterr().err
    assert not (tmp_path / "y.tw").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--shape", "rows=41"], "the size 'rows' is 41; the model is compiled for 2 to 40"),
        (["run", "--shape", "rows=4,12"], "the model's sizes are rows"),
        (["run", "--precision", "bf16"], "a saved model has its shapes"),
        (["bench"], "has open sizes: rows from 2 to 40"),
        (["explain"], "has open sizes: rows from 2 to 40"),
    ],
)
def test_what_a_saved_model_with_open_sizes_refuses(model, arguments, message, capsys, tmp_path):
    path = str(tmp_path / "rows.tw")
    assert main(["compile", model, "--dynamic", "rows=2:40", "--threads", "1", "--output", path]) == 0
    capsys.readouterr()
    assert main([arguments[0], path, *arguments[1:]]) != 0
    assert message in capsys.readouterr().err
