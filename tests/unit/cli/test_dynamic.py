"""``tilewright run --dynamic``: sizes that are drawn, checked against compiles for them alone."""

import json

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
