"""Contractions with rows between them: one nest where operands are small, kernels apart elsewhere."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

import onnx_models as tiny
import tilewright
from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import CONST
from tilewright.plan.fused.row_chains import row_chain_cost, row_chain_pays
from tilewright.target import find_target

V4 = find_target("x86_avx512")


def attention(heads, rows, keys, features=64):
    q, v = (lang.placeholder((heads, n, features), name=x) for x, n in (("Q", rows), ("V", keys)))
    k = lang.placeholder((heads, keys, features), name="K")
    f, r = lang.reduce_axis(features, "f"), lang.reduce_axis(keys, "r")
    s = lang.compute((heads, rows, keys), lambda h, i, j: lang.sum(q[h, i, f] * k[h, j, f], axis=f), name="S")
    p = lang.ops.softmax(s)
    o = lang.compute(
        (heads, rows, features), lambda h, i, j: lang.sum(p[h, i, r] * v[h, r, j], axis=r), name="O"
    )
    return lang.program([q, k, v], [o])


def head(rows, inner, width, words):
    """A product, the norm of its rows, and a product of these with a vocabulary."""
    x, w, u = (
        lang.placeholder(shape, name=name)
        for name, shape in (("X", (rows, inner)), ("W", (inner, width)), ("U", (width, words)))
    )
    k, n = lang.reduce_axis(inner, "k"), lang.reduce_axis(width, "n")
    y = lang.compute((rows, width), lambda i, j: lang.sum(x[i, k] * w[k, j], axis=k), name="Y")
    z = lang.ops.softmax(y)
    out = lang.compute((rows, words), lambda i, j: lang.sum(z[i, n] * u[n, j], axis=n), name="L")
    program = lang.program([x, w, u], [out])
    inputs = tuple(b.with_(scope=CONST) if b.name in "WU" else b for b in program.inputs)
    return replace(program, inputs=inputs)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("program", "pays"),
    [
        (attention(12, 128, 128), True),
        (attention(3, 197, 197), True),
        (attention(1, 1024, 1024), True),
        # a few queries: sums along memory need no panels of the keys
        (attention(8, 4, 1000), False),
        # no chain: a step of a decoder, keys that fill no vector
        (attention(8, 1, 1000), False),
        (attention(12, 8, 8), False),
        # tens of megabytes for each tile of rows
        (head(128, 688, 256, 32000), False),
        (head(64, 688, 256, 1000), False),
        # one row: nothing for a tile to share
        (head(1, 688, 256, 32000), False),
    ],
    ids=[
        "bert",
        "vision",
        "one head",
        "few queries",
        "one query",
        "few keys",
        "vocabulary",
        "words",
        "one row",
    ],
)
def test_what_pays(program, pays, threads):
    assert row_chain_pays(program, Machine(V4, threads)) is pays


@pytest.mark.parametrize(
    ("program", "pays"),
    [
        # threads share the panels of one head: its lines go from core to core in each run
        (attention(1, 100, 100), False),
        (attention(5, 50, 50, 32), False),
        (attention(1, 16, 400), False),
        # so do the scores between kernels of their own, and these are more
        (attention(3, 128, 128, 32), True),
        (attention(1, 300, 300), True),
    ],
    ids=["one short head", "five", "few queries", "three", "one long head"],
)
def test_heads_that_threads_do_not_share_evenly(program, pays):
    assert row_chain_pays(program, Machine(V4, 2)) is pays


def test_the_cost_of_operands_grows_with_the_tiles():
    few, many = (row_chain_cost(head(rows, 688, 256, 32000), Machine(V4, 1)) for rows in (32, 128))
    assert many.joined > 2 * few.joined and few.joined > few.apart
    assert row_chain_cost(head(1, 688, 256, 1000), Machine(V4, 1)) is None


def test_a_vocabulary_is_no_part_of_the_last_block():
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((64, 32)).astype(np.float32),
        "u": rng.standard_normal((32, 9000)).astype(np.float32),
        "s": np.ones(32, np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("LayerNormalization", ["h", "s"], ["n"]),
        helper.make_node("MatMul", ["n", "u"], ["y"]),
    ]
    model = tiny.model(nodes, [tiny.tensor("x", (40, 64))], [tiny.tensor("y", (40, 9000))], weights)
    compiled = tilewright.compile(model, threads=2)
    assert [group.operators for group in compiled.groups()] == ["MatMul", "LayerNormalization", "MatMul"]
    x = rng.standard_normal((40, 64)).astype(np.float32)
    h = x @ weights["w"]
    n = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(compiled(x)[0], n @ weights["u"], rtol=1e-3, atol=1e-3)
    # the decision is part of the plan
    again = tilewright.compile(model, threads=2, plan=compiled.plan())
    assert [group.operators for group in again.groups()] == [g.operators for g in compiled.groups()]
