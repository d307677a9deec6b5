"""What the package does with the extensions of this folder, which it finds by entry points, as JSON."""

import json
import sys

import numpy as np
from onnx import helper

import onnx_models as tiny
import tilewright
from tilewright import lang
from tilewright.cost import Machine
from tilewright.plan import RULES
from tilewright.strategies import Task
from tilewright.target import find_target
from tilewright.tiling import neighbours, parse

RNG = np.random.default_rng(0)


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def run(model, x, expected):
    """The operators of each kernel, and the largest error."""
    compiled = tilewright.compile(model)
    (made,) = compiled.run(None, {"x": x})
    return {
        "kernels": [group.operators for group in compiled.groups()],
        "error": float(np.abs(made - expected).max()),
    }


def rules():
    x = lang.placeholder((40, 30), name="x")
    k = lang.reduce_axis(30, name="k")
    total = lang.compute((40,), lambda i: lang.sum(x[i, k], k), name="total")
    out = lang.compute((40, 30), lambda i, j: x[i, j] - total[i], name="out")
    program = lang.program([x], [out])
    given = random(40, 30)
    (made,) = tilewright.compile(program)(given)
    plan = Task(program, Machine(find_target("x86_avx2"), 2)).default().plan
    return {
        "first": next(iter(RULES)),
        "nests": [[nest.rule, nest.root, *nest.stages] for nest in plan.nests],
        "error": float(np.abs(made - (given - given.sum(1, keepdims=True))).max()),
    }


def passes():
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    x = random(4, 8)
    return run(tiny.model(nodes, [tiny.tensor("x", (4, 8))], [tiny.tensor("y", (4, 8))]), x, np.maximum(x, 0))


def fusions():
    w, x = random(24, 16), random(1, 24, 7, 7)
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["p"], keepdims=0),
        helper.make_node("MatMul", ["p", "w"], ["y"]),
    ]
    constants = {"w": w, "axes": np.array([2, 3])}
    model = tiny.model(nodes, [tiny.tensor("x", x.shape)], [tiny.tensor("y", (1, 16))], constants)
    return run(model, x, x.mean((2, 3)) @ w)


def operators():
    def model(*activation, **attributes):
        w = {"w": np.random.default_rng(1).standard_normal((20, 3, 3, 3)).astype(np.float32)}
        v = {"v": np.random.default_rng(2).standard_normal((8, 20, 1, 1)).astype(np.float32)}
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["a"]),
            helper.make_node(activation[0], ["a"], ["b"], domain="".join(activation[1:]), **attributes),
            helper.make_node("Conv", ["b", "v"], ["y"]),
        ]
        made = tiny.model(
            nodes, [tiny.tensor("x", (1, 3, 34, 34))], [tiny.tensor("y", (1, 8, 32, 32))], w | v
        )
        made.opset_import.append(helper.make_opsetid("outside", 1))
        return made

    x = random(1, 3, 34, 34)
    known = tilewright.compile(model("HardSwish"))
    own = tilewright.compile(model("Swish", "outside", beta=2.0))
    (before,) = tilewright.compile(_first(model("Identity"))).run(None, {"x": x})
    (after,) = tilewright.compile(_second(model("Identity"))).run(
        None, {"b": before / (1 + np.exp(-2.0 * before))}
    )
    (made,) = own.run(None, {"x": x})
    return {
        "kernels": [group.operators for group in own.groups()],
        "as_known": [group.operators.replace("HardSwish", "Swish") for group in known.groups()],
        "error": float(np.abs(made - after).max()),
    }


def _first(model):
    del model.graph.node[1:]
    del model.graph.output[:]
    model.graph.output.append(tiny.tensor("a", (1, 20, 32, 32)))
    return model


def _second(model):
    del model.graph.node[:2]
    del model.graph.input[:]
    model.graph.input.append(tiny.tensor("b", (1, 20, 32, 32)))
    return model


def edits():
    (nest,) = parse("nest out\n  for i/4\n    for i/1\n      do out\n")
    found = [edit for edit in neighbours(nest, {"out": {"i": 16}}) if type(edit).__name__ == "Whole"]
    return {"edits": [str(edit) for edit in found], "levels": [str(edit.of(nest).body) for edit in found]}


json.dump({each.__name__: each() for each in (rules, passes, fusions, operators, edits)}, sys.stdout)
