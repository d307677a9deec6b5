"""The Python blocks of the first page run as they stand."""

import importlib
import re
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, save

import tilewright
from extras import has_torch
from onnx_models import model, tensor

PAGE = Path(__file__).parents[2] / "README.md"


def block(word):
    """The one block of Python with a word in it."""
    (found,) = [
        code for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S) if word in code
    ]
    return compile(found, f"README.md: {word}", "exec")


def test_a_program_with_its_schedule():
    names = {}
    exec(block("decompose_init"), names)
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((512, 256), (256, 512)))
    np.testing.assert_allclose(names["kernel"](a, b)[0], a @ b, rtol=1e-4, atol=1e-3)


@pytest.mark.filterwarnings("ignore")  # what torch's exporter remarks
@pytest.mark.skipif(
    not has_torch() or not entry_points(group="torch_dynamo_backends", name="tilewright"),
    reason="torch is not installed, or the package is not, so that torch does not find it",
)
def test_from_a_torch_module_to_a_running_model():
    torch = importlib.import_module("torch")

    def network():
        layers = torch.nn
        return layers.Sequential(
            layers.Conv2d(3, 4, 7, stride=4), layers.ReLU(), layers.MaxPool2d(9), layers.Flatten(),
            layers.Linear(144, 7),
        )  # fmt: skip

    names = {"MyNetwork": network, "loss_of": lambda logits: logits.square().mean()}
    exec(block("from_torch"), names)
    wanted = names["net"](names["image"])
    torch.testing.assert_close(names["logits"], wanted, rtol=1e-4, atol=1e-4)
    assert all(weight.grad is not None for weight in names["net"].parameters())


def test_calls_and_saved_models(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    nodes = [
        helper.make_node("Conv", ["input", "w"], ["h"], strides=[4, 4]),
        helper.make_node("GlobalAveragePool", ["h"], ["logits"]),
    ]
    weights = {"w": np.ones((5, 3, 4, 4), np.float32)}
    given, made = tensor("input", ("batch", 3, 224, 224)), tensor("logits", ("batch", 5, 1, 1))
    save(model(nodes, [given], [made], weights), "model.onnx")
    image = np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32)
    names = {"image": image}
    exec(block("model.save"), names)
    assert isinstance(names["saved"], tilewright.SavedModel)
    np.testing.assert_array_equal(names["saved"](image)[0], names["outputs"][0])
    np.testing.assert_allclose(names["outputs"][0].ravel(), [image.mean() * 48] * 5, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(names["logits"], names["outputs"][0])
    assert "GFLOP/s" in capsys.readouterr().out
