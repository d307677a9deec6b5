"""Indices out of range: a run ends with an error that names node, index and range, results as they were."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from saved_models import rewrite
from tilewright.cli import main
from tilewright.driver import CompiledModel
from tilewright.frontend import import_onnx
from tilewright.graph import fuse, simplify
from tilewright.runtime import PlanBuilder, RangeCheck, default_pool
from tilewright.support import ArtefactError, InputError, ModelError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
TABLE = np.random.default_rng(0).standard_normal((10, 4)).astype(np.float32)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, np.ndarray],
    outputs: Sequence[str] = ("y",),
    opset: int = 24,
    **known: np.ndarray,
) -> onnx.ModelProto:
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in inputs.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    weights = [numpy_helper.from_array(array, name) for name, array in known.items()]
    graph = helper.make_graph(nodes, "g", declared, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def embedding(ids: np.ndarray, **options: object) -> CompiledModel:
    nodes = [
        helper.make_node("Gather", ["E", "ids"], ["e"], name="words"),
        helper.make_node("Relu", ["e"], ["y"]),
    ]
    return tilewright.compile(model_of(nodes, {"ids": ids}, E=TABLE), threads=2, **options)


#: Attributes, inputs with places that are right, the input that holds them, what they may be at least and at
#: most, and which of them (of a flat array) is replaced.
X = np.random.default_rng(1).standard_normal((3, 4, 5)).astype(np.float32)
I64 = np.int64
CASES: dict[str, tuple[dict[str, object], list[np.ndarray], int, int, int, int]] = {
    "Gather": ({"axis": 1}, [X, np.array([[0, -4], [3, 1]])], 1, -4, 3, 2),
    "GatherElements": ({"axis": 2}, [X, np.zeros((3, 4, 5), I64)], 1, -5, 4, 17),
    "GatherND": ({"batch_dims": 1}, [X, np.zeros((3, 2, 2), I64)], 1, -5, 4, 7),
    "ScatterElements": ({"axis": 0}, [X, np.zeros((1, 4, 5), I64), X[:1]], 1, -3, 2, 3),
    "ScatterND": ({}, [X, np.zeros((2, 2), I64), np.ones((2, 5), np.float32)], 1, -4, 3, 1),
    "MaxUnpool": ({"kernel_shape": [2]}, [X, np.arange(60).reshape(3, 4, 5)], 1, 0, 71, 0),
    "ReverseSequence": ({"time_axis": 1, "batch_axis": 0}, [X, np.array([4, 0, 2])], 1, 0, 4, 1),
    "TensorScatter": ({"axis": 1}, [X, X[:, :2], np.array([0, 1, 2])], 2, 0, 2, 2),
    "RoiAlign": (
        {"sampling_ratio": 1},
        [X[None], np.array([[0, 0, 2, 2]], np.float32), np.array([0])],
        2,
        0,
        0,
        0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("op", CASES)
def test_each_operator_that_reads_places(op: str, computed: bool) -> None:
    attributes, arrays, at, least, most, changed = CASES[op]
    names = [f"x{n}" for n in range(len(arrays))]
    feeds = dict(zip(names, arrays, strict=True))
    nodes = [helper.make_node(op, names, ["y"], name="culprit", **attributes)]
    if computed:
        nodes[0].input[at] = "places"
        nodes.insert(0, helper.make_node("Add", [f"x{at}", "one"], ["places"]))
        made = tilewright.compile(model_of(nodes, feeds, one=np.ones((), I64)), threads=1)
    else:
        made = tilewright.compile(model_of(nodes, feeds), threads=1)
    places = feeds[f"x{at}"]
    where = [int(i) for i in np.unravel_index(changed, places.shape)]
    for number, right in (
        (least, True),
        (most, True),
        (least - 1, False),
        (most + 1, False),
        (2**63 - 1, False),
    ):
        flat = places.copy().reshape(-1)
        flat[changed] = number
        feeds[f"x{at}"] = flat.reshape(places.shape) - int(computed)
        if right:
            made.run(None, feeds)
            continue
        named = "places" if computed else f"x{at}"
        with pytest.raises(InputError) as caught:
            made.run(None, feeds)
        said = f"node 'culprit' ({op}): '{named}' holds {number} at {where}"
        assert caught.value.what == f"{said}, which is out of range (from {least} to {most})"


def test_results_of_a_bound_model_stay_as_they_were() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["before"]),
        helper.make_node("Cast", ["x"], ["places"], to=INT64),
        helper.make_node("Gather", ["E", "places"], ["y"], name="late"),
        helper.make_node("Exp", ["y"], ["after"]),
    ]
    x = np.array([1, 2, -3], np.float32)
    model = tilewright.compile(model_of(nodes, {"x": x}, ["before", "y", "after"], E=TABLE), threads=2)
    bound = model.bind({"x": x})
    results = bound.run()
    old = [array.copy() for array in results]
    np.testing.assert_array_equal(old[0], -x)
    np.testing.assert_array_equal(old[1], TABLE[[1, 2, -3]])
    x[:] = 5, 10, 3
    with pytest.raises(InputError, match=r"node 'late' \(Gather\): 'places' holds 10 at \[1\]"):
        bound.run()
    for now, then in zip(results, old, strict=True):
        np.testing.assert_array_equal(now, then)
    x[1] = 9
    bound.run()
    np.testing.assert_array_equal(results[0], -x)
    np.testing.assert_array_equal(results[1], TABLE[[5, 9, 3]])


def test_every_way_to_run_checks_and_none_without_checks() -> None:
    ids = np.array([[1, 2], [3, -10]])
    model, unchecked = embedding(ids), embedding(ids, checks=False)
    wrong = {"ids": np.array([[1, 2], [3, 10]])}
    calls = (
        lambda: model.run(None, wrong),
        lambda: model(wrong["ids"]),
        lambda: model.bind(wrong).run(),
        lambda: model.profile(wrong, repeats=2),
        lambda: model.intermediates(wrong),
    )
    for call in calls:
        with pytest.raises(InputError, match=r"node 'words' \(Gather\): 'ids' holds 10 at \[1, 1\]"):
            call()
    assert unchecked.run(None, wrong)[0].shape == (2, 2, 4)
    np.testing.assert_array_equal(model.run(None, {"ids": ids})[0], np.maximum(TABLE[ids], 0))


def test_many_indices_are_looked_at_by_all_threads() -> None:
    ids = np.zeros(200_001, np.int32)
    model = embedding(ids)
    for at in (0, 65_536, 200_000):
        ids[:] = 9
        model.run(None, {"ids": ids})
        ids[at] = -11
        with pytest.raises(InputError, match=rf"holds -11 at \[{at}\]"):
            model.run(None, {"ids": ids})


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64])
def test_indices_of_every_type(dtype: type) -> None:
    kind = np.dtype(dtype)
    lowest, highest = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    for low, high in ((-5, 5), (0, 100), (0, 0), (-3, 1 << 40)):
        for number in {lowest, highest, -6, -5, -1, 0, 4, 5, 99, 100}:
            if not lowest <= number <= highest:
                continue
            for stride, count in ((1, 40), (3, 40)):
                numbers = np.zeros(count, kind)
                numbers[stride * 4] = number
                numbers[1] = highest if stride > 1 else 0  # another check's
                builder = PlanBuilder(default_pool())
                place = builder.input(numbers.nbytes)
                builder.check(RangeCheck(place, kind.name, low, high, "node", "v", (count,), 0, stride))
                plan = builder.build()
                taken = numbers[::stride]
                if ((taken >= low) & (taken < high)).all():
                    plan.run([numbers], [])
                    continue
                first = int(np.flatnonzero((taken < low) | (taken >= high))[0])
                with pytest.raises(InputError, match=rf"holds {taken[first]} at \[{first * stride}\]"):
                    plan.run([numbers], [])


def test_known_indices_are_checked_when_compiling() -> None:
    x = np.ones((3, 4), np.float32)
    for op, places in (("Gather", [[0, 1], [4, 0]]), ("GatherND", [[0, 0], [2, 4]])):
        node = helper.make_node(
            op, ["x", "i"], ["y"], name="culprit", **({"axis": 1} if op == "Gather" else {})
        )
        with pytest.raises(ModelError, match=r"node 'culprit'.*input 1 holds 4 at \[1, [01]\]"):
            tilewright.compile(model_of([node], {"x": x}, i=np.array(places)))


def test_a_part_of_a_batch_says_where_in_the_whole() -> None:
    # Convolutions of a batch take its elements in parts, lanes side by side; the places are computed between.
    x = np.random.default_rng(2).standard_normal((4, 8, 16, 16)).astype(np.float32)
    weight = np.random.default_rng(3).standard_normal((8, 8, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("ArgMax", ["b"], ["chosen"], axis=1, keepdims=0),
        helper.make_node("Mul", ["chosen", "factor"], ["places"]),
        helper.make_node("Gather", ["E", "places"], ["y"], name="late"),
    ]
    for factor in (1, 2):
        made = model_of(nodes, {"x": x}, ["y", "b"], E=TABLE, w=weight, factor=np.array(factor))
        model = tilewright.compile(made, threads=2)
        places = model.intermediates({"x": x})["chosen"] if factor == 1 else None
        if places is not None:
            np.testing.assert_array_equal(model.run(None, {"x": x})[0], TABLE[places])
            continue
        with pytest.raises(InputError, match=r"node 'late' \(Gather\): 'places' holds 1[024] at") as caught:
            model.run(None, {"x": x})
        assert "from -10 to 9" in caught.value.what


# ---- saved and exported ----


def test_saved_models_keep_the_checks(tmp_path: Path) -> None:
    ids, path = np.array([[1, 2]]), tmp_path / "m.tw"
    embedding(ids).save(path)
    loaded = tilewright.load(path)
    np.testing.assert_array_equal(loaded.run(None, {"ids": ids})[0], np.maximum(TABLE[ids], 0))
    with pytest.raises(InputError, match=r"node 'words' \(Gather\): 'ids' holds 10 at \[0, 1\]"):
        loaded.run(None, {"ids": np.array([[1, 10]])})
    embedding(ids, checks=False).save(path)
    tilewright.load(path).run(None, {"ids": np.array([[1, 10]])})


def _plan(change: object) -> object:
    return lambda m: m | {"plan": m["plan"] | change(m["plan"])}


@pytest.mark.parametrize(
    ("entry", "changes", "message"),
    [
        ("checks", {"dtype": "float32"}, "checks"),
        ("checks", {"stride": 0}, "checks"),
        ("checks", {"stride": 1 << 60}, "stride"),
        ("checks", {"low": "0"}, "checks"),
        ("checks", {"low": 1 << 70}, "checks"),
        ("checks", {"node": 5}, "node"),
        ("checks", {"first": 2}, "the check of 'ids'"),
        ("checks", {"shape": [1, 1]}, "the check of 'ids'"),
        ("checks", {"place": [0, 0, 4, 8]}, "the check of 'ids'"),
        ("checks", {"place": [0, 0, 0, 24]}, "does not exist"),
        ("checks", {"place": [0, 3, 0, 8]}, "does not exist"),
        ("checks", {"step": 9}, "the steps of the checks"),
        ("copies", [[[3, 0, 0, 8]]], "copies"),
        ("copies", [[[0, 0, 0, 8], [1, 0, 0, 16]]], "copies"),
        ("copies", [[[0, 0, 0, 8], [0, 0, 0, 8]]], "copies"),
        ("copies", [[[0, 0, 0, 8], [1, 0, 0, 1 << 40]]], "does not exist"),
    ],
)
def test_checks_that_do_not_fit_are_refused(
    tmp_path: Path, entry: str, changes: object, message: str
) -> None:
    path = tmp_path / "m.tw"
    embedding(np.array([[1, 2]])).save(path)
    if isinstance(changes, dict):
        rewrite(path, _plan(lambda plan: {"checks": [plan["checks"][0] | changes]}))
    else:
        rewrite(path, _plan(lambda plan: {entry: changes}))
    with pytest.raises(ArtefactError, match=f"malformed: .*{message}"):
        tilewright.load(path)


def test_programs_in_c_are_told(tmp_path: Path) -> None:
    ids = np.array([[1, 2]])
    _, library = embedding(ids).export_c(tmp_path / "words.h")
    loaded = ctypes.CDLL(str(library))
    loaded.words_open.restype = ctypes.c_void_p
    loaded.words_message.restype = ctypes.c_char_p
    loaded.words_explain.restype = ctypes.c_char_p
    model = ctypes.c_void_p(loaded.words_open(None, None))
    made = np.full((1, 2, 4), 7, np.float32)

    def run(given: np.ndarray) -> int:
        inputs, outputs = (ctypes.c_void_p * 1)(given.ctypes.data), (ctypes.c_void_p * 1)(made.ctypes.data)
        return int(loaded.words_run(model, inputs, outputs))

    assert run(np.array([[1, -11]])) == -4
    assert (made == 7).all()
    assert b"out of range" in loaded.words_explain(-4)
    said = b"node 'words' (Gather): 'ids' holds -11 (element 1), which is out of range (from -10 to 9)"
    assert loaded.words_message() == said
    assert run(ids) == 0
    np.testing.assert_array_equal(made, np.maximum(TABLE[ids], 0))
    loaded.words_close(model)


def test_the_command_line_may_leave_them_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Gather", ["E", "ids"], ["y"], name="words")]
    path, feed = tmp_path / "m.onnx", tmp_path / "ids.npy"
    onnx.save(model_of(nodes, {"ids": np.array([1, 2])}, E=TABLE), path)
    np.save(feed, np.array([1, 10]))
    arguments = ["run", str(path), "--input", f"ids={feed}", "--json"]
    assert main(arguments) != 0
    assert "'ids' holds 10 at [1]" in json.dumps(capsys.readouterr().err)
    assert main([*arguments, "--no-checks"]) == 0


def test_the_reference_evaluation_of_a_group_looks_at_indices():
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"], name="tokens", axis=0)]
    graph = import_onnx(model_of(nodes, {"ids": np.zeros(3, np.int64)}, table=TABLE))
    partition = fuse(simplify(graph))
    (group,) = partition.groups
    program = partition.program(group)
    arrays = {"table": TABLE, "ids": np.array([0, 10, 1])}
    with pytest.raises(InputError, match=r"tokens.*10"):
        program.evaluate(arrays)
    found = program.evaluate(arrays | {"ids": np.array([0, 9, -10])})
    np.testing.assert_array_equal(found["y"], TABLE[[0, 9, 0]])
