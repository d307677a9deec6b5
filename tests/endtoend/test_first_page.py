"""The Python blocks of the first page run as they stand."""

import re
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, save

import tilewright
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
def test_from_a_torch_module_to_a_running_model(tmp_path, monkeypatch):
    """Five lines; torch, and what its exporter needs, are no dependencies (`benchmarks/fresh_models.py`)."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    monkeypatch.chdir(tmp_path)

    def network():
        layers = torch.nn
        return layers.Sequential(
            layers.Conv2d(3, 4, 3), layers.ReLU(), layers.Flatten(), layers.LazyLinear(7)
        )

    names = {"MyNetwork": network}
    exec(block("torch.onnx.export"), names)
    wanted = names["net"](names["image"]).detach().numpy()
    np.testing.assert_allclose(names["logits"], wanted, rtol=1e-4, atol=1e-4)


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
