"""Models, programs in Python files and texts: what ``map`` and ``simulate`` take, and what they say."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tilewright.cli import main
from tilewright.ir import print_program
from tilewright.mapping import system

ENGINE = Path(__file__).parents[2] / "extensions" / "dot_engine.json"
PYTHON = """from tilewright import lang

def program(m: int = 8):
    a, b = lang.placeholder((m, 8), name="A"), lang.placeholder((8, 6), name="B")
    k = lang.reduce_axis(8, "k")
    return lang.program([a, b], [lang.compute((m, 6), lambda i, j: lang.sum(a[i, k] * b[k, j], k), name="C")])

other = program(3)
"""


@pytest.fixture
def call(capsys):
    def run(*arguments):
        status = main([str(each) for each in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def python(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(PYTHON)
    return file


@pytest.fixture
def model(tmp_path):
    """Three equal layers, and an exponential after the last one, which the machine does not have."""
    constants = [numpy_helper.from_array(np.ones(s, np.float32), n) for n, s in (("w", (8, 8)), ("b", 8))]
    nodes = []
    for n in range(3):
        nodes += [
            helper.make_node("MatMul", [f"x{n}", "w"], [f"p{n}"]),
            helper.make_node("Add", [f"p{n}", "b"], [f"q{n}"]),
            helper.make_node("Relu", [f"q{n}"], [f"x{n + 1}"], name=f"layer{n}"),
        ]
    nodes.append(helper.make_node("Exp", ["x3"], ["e"], name="last"))
    x, e = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n", 8]) for n in ("x0", "e"))
    graph = helper.make_graph(nodes, "g", [x], [e], constants)
    file = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


@pytest.mark.parametrize("name", ["", ":other"])
def test_programs_of_python_files(call, python, name):
    status, out, _ = call("simulate", f"{python}{name}", "--target", ENGINE, "--check")
    assert status == 0 and "results equal" in out
    status, out, _ = call("map", f"{python}{name}", "--target", ENGINE, "--json")
    (use,) = json.loads(out)["selection"]
    assert use["instruction"] == "row_more"


def test_parts_of_models(call, model):
    status, out, _ = call("simulate", model, "--target", ENGINE, "--shape", "n=4", "--json")
    made = json.loads(out)
    layer, last = made["parts"]
    assert status == 0 and (layer["count"], last["count"]) == (2, 1)
    assert "no instruction" in last["host"] and made["cycles"] == 2 * layer["cycles"] > 0
    status, out, _ = call("simulate", model, "--target", ENGINE, "--shape", "n=4", "--check")
    assert status == 0 and "on the host: " in out and "parts on the machine" in out
    status, out, _ = call("map", model, "--target", ENGINE, "--shape", "n=4")
    assert status == 0 and "row_more" in out and "no instruction for exp" in out


def test_transformations_of_a_whole_program(call, tmp_path):
    (tmp_path / "sums.py").write_text(PYTHON.replace("a[i, k] * b[k, j]", "(a[i, k] + a[i, 0]) * b[k, j]"))
    program = tmp_path / "sums.py"
    assert "no instruction for" in call("map", program, "--target", ENGINE)[1]
    status, out, _ = call("map", program, "--target", ENGINE, "--transform")
    assert status == 0 and 'after split_terms("C", "C_term0", ' in out and "no instruction for" not in out
    assert call("simulate", program, "--target", ENGINE, "--check")[0] == 0


def test_rows_of_devices(call, tmp_path, python):
    text = tmp_path / "text.txt"
    narrow = PYTHON.replace('name="A"', '"bf16", name="A"').replace('name="B"', '"bf16", name="B"')
    narrow = narrow.replace("a[i, k] * b[k, j]", 'lang.cast(a[i, k], "f32") * lang.cast(b[k, j], "f32")')
    made = {}
    exec(narrow, made)
    text.write_text(print_program(made["program"](16)))
    status, out, _ = call("map", text, "--target", "a100")
    assert status == 0 and "mma" in out and "mappings" in out


def test_machines_are_listed(call):
    out = call("targets")[1]
    assert all(name in out for name in system.shipped_machines())
    assert {m["name"] for m in json.loads(call("targets", "--json")[1])["machines"]} == set(
        system.shipped_machines()
    )
