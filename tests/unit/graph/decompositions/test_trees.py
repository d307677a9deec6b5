"""Trees against walking them node by node, in the comparisons of the standard."""

from statistics import NormalDist

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tilewright.support import ModelError

WIDTH, ROWS = 4, 9
COMPARE = {
    "BRANCH_LEQ": np.less_equal,
    "BRANCH_LT": np.less,
    "BRANCH_GTE": np.greater_equal,
    "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal,
    "BRANCH_NEQ": np.not_equal,
}
GRID = np.array([-np.inf, -1, -0.5, 0, 0.25, 1, np.inf], np.float32)


def _ensemble(rng, count, depth, targets, every):
    """Trees as lists of nodes (mode, feature, limit, missing, yes, no) and of leaves' (target, weight)."""
    trees = []
    for _ in range(count):
        nodes, leaves, own = [], {}, int(rng.integers(targets))

        def grow(left, nodes=nodes, leaves=leaves, own=own):
            at = len(nodes)
            nodes.append(("LEAF", 0, 0.0, 0, 0, 0))
            if left == 0 or rng.random() < 0.15:
                leaves[at] = [(k, float(rng.normal())) for k in (range(targets) if every else [own])]
                return at
            mode, limit = str(rng.choice(list(COMPARE))), float(rng.choice(GRID))
            yes, no = grow(left - 1), grow(left - 1)
            nodes[at] = (mode, int(rng.integers(WIDTH)), limit, int(rng.integers(2)), yes, no)
            return at

        grow(depth)
        trees.append((nodes, leaves))
    return trees


def _attributes(trees, prefix):
    rows = [(t, n, *node) for t, (nodes, _) in enumerate(trees) for n, node in enumerate(nodes)]
    tree, number, modes, features, limits, missing, yes, no = zip(*rows, strict=True)
    leaves = [(t, n, k, w) for t, (_, of) in enumerate(trees) for n, each in of.items() for k, w in each]
    leaf_tree, leaf_number, ids, weights = zip(*leaves, strict=True)
    return {
        "nodes_treeids": tree,
        "nodes_nodeids": number,
        "nodes_modes": modes,
        "nodes_featureids": features,
        "nodes_values": limits,
        "nodes_missing_value_tracks_true": missing,
        "nodes_truenodeids": yes,
        "nodes_falsenodeids": no,
        f"{prefix}_treeids": leaf_tree,
        f"{prefix}_nodeids": leaf_number,
        f"{prefix}_ids": ids,
        f"{prefix}_weights": weights,
    }


def _walked(trees, x, targets, start=0.0, join=np.add):
    sums = np.full((len(x), targets), start)
    for row, out in zip(x, sums, strict=True):
        for nodes, leaves in trees:
            at = 0
            while nodes[at][0] != "LEAF":
                mode, feature, limit, missing, yes, no = nodes[at]
                value = row[feature]
                holds = COMPARE[mode](value, np.float32(limit)) or (np.isnan(value) and missing)
                at = yes if holds else no
            for k, weight in leaves[at]:
                out[k] = join(out[k], np.float32(weight))
    return sums


def _model(op, outputs, dtype=TensorProto.FLOAT, version=3, **attributes):
    node = helper.make_node(op, ["x"], [name for name, _ in outputs], "n", domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", dtype, (ROWS, WIDTH))],
        [helper.make_tensor_value_info(name, type_, None) for name, type_ in outputs],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


def _rows(rng, dtype=np.float32):
    x = np.where(
        rng.random((ROWS, WIDTH)) < 0.5, rng.choice(GRID, (ROWS, WIDTH)), rng.normal(size=(ROWS, WIDTH))
    )
    x[rng.random(x.shape) < 0.15] = np.nan
    return x.astype(dtype)


@pytest.mark.few(8)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regressors(seed, aggregate):
    rng = np.random.default_rng(seed)
    targets, every = (1, 3, 3)[seed % 3], seed % 3 == 2 or aggregate in ("MIN", "MAX")
    trees = _ensemble(rng, 5, 3 + seed % 2, targets, every)
    more = {"aggregate_function": aggregate, "n_targets": targets, "base_values": [0.5] * targets}
    model = _model(
        "TreeEnsembleRegressor", [("y", TensorProto.FLOAT)], **_attributes(trees, "target"), **more
    )
    x = _rows(rng)
    start = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0)
    join = {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add)
    right = _walked(trees, x, targets, start, join) / (5 if aggregate == "AVERAGE" else 1) + 0.5
    np.testing.assert_allclose(tw.compile(model, threads=1).run(None, {"x": x})[0], right, 1e-5, 1e-5)


@pytest.mark.parametrize("how", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_classifiers(how):
    rng = np.random.default_rng(3)
    trees = _ensemble(rng, 6, 3, 3, False)
    outputs = [("l", TensorProto.INT64), ("y", TensorProto.FLOAT)]
    more = {"classlabels_int64s": [7, 3, 5], "post_transform": how}
    model = _model("TreeEnsembleClassifier", outputs, **_attributes(trees, "class"), **more)
    x = _rows(rng)
    sums = _walked(trees, x, 3)
    labels, scores = tw.compile(model, threads=1).run(None, {"x": x})
    np.testing.assert_array_equal(labels, np.array([7, 3, 5])[sums.argmax(1)])
    parts = np.exp(sums - sums.max(1, keepdims=True))
    right = {
        "NONE": sums,
        "LOGISTIC": 1 / (1 + np.exp(-sums)),
        "SOFTMAX": parts / parts.sum(1, keepdims=True),
    }
    np.testing.assert_allclose(scores, right[how], 1e-5, 1e-6)


@pytest.mark.few(6)
@pytest.mark.parametrize("how", ["NONE", "LOGISTIC", "PROBIT"])
@pytest.mark.parametrize("base", [(), (0.125,), (0.125, 0.25)])
@pytest.mark.parametrize("positive", [False, True])
def test_one_score_of_two_classes(positive, base, how):
    """Positive weights are probabilities, others are logits: labels are parted by a half, or by nothing."""
    rng = np.random.default_rng(4)
    trees = _ensemble(rng, 4, 3, 1, True)
    if positive:
        trees = [(n, {at: [(k, abs(w) / 8) for k, w in of] for at, of in v.items()}) for n, v in trees]
    outputs = [("l", TensorProto.INT64), ("y", TensorProto.FLOAT)]
    more = {"classlabels_int64s": [4, 9], "post_transform": how, **({"base_values": base} if base else {})}
    model = _model("TreeEnsembleClassifier", outputs, **_attributes(trees, "class"), **more)
    x = _rows(rng)
    sums = _walked(trees, x, 1) + (base[0] if base else 0)
    labels, scores = tw.compile(model, threads=1).run(None, {"x": x})
    np.testing.assert_array_equal(labels, np.where(sums[:, 0] > (0.5 if positive else 0), 9, 4))
    inside = (sums[:, 0] > 0) & (sums[:, 0] < 1)
    right = {
        "NONE": lambda s: [1 - s if positive else -s, s],
        "LOGISTIC": lambda s: [1 / (1 + np.exp(s)), 1 / (1 + np.exp(-s))],
        "PROBIT": lambda s: [-NormalDist().inv_cdf(s), NormalDist().inv_cdf(s)],
    }[how]
    for score, row in zip(sums[inside, 0], scores[inside], strict=True):
        np.testing.assert_allclose(row, right(score), 1e-2 if how == "PROBIT" else 1e-5, 1e-2)
    assert scores.shape == (ROWS, 2)
    assert inside.any()


def test_classes_of_which_no_leaf_speaks_are_no_labels():
    leaf = {"nodes_treeids": [0], "nodes_nodeids": [0], "nodes_modes": ["LEAF"], "nodes_featureids": [0]}
    leaf |= {"nodes_values": [0.0], "nodes_truenodeids": [0], "nodes_falsenodeids": [0]}
    for base, wanted in ((None, 3), ([0.0, 0.0, -2.0, 0.0], 7)):
        outputs = [("l", TensorProto.INT64), ("y", TensorProto.FLOAT)]
        more = {"class_treeids": [0, 0], "class_nodeids": [0, 0], "class_ids": [1, 3]}
        more |= {"class_weights": [-1.0, -3.0], "classlabels_int64s": [7, 3, 5, 9]}
        more |= {} if base is None else {"base_values": base}
        model = _model("TreeEnsembleClassifier", outputs, **leaf, **more)
        labels, _ = tw.compile(model, threads=1).run(None, {"x": np.zeros((ROWS, WIDTH), np.float32)})
        np.testing.assert_array_equal(labels, wanted)


def test_rows_of_f64_are_compared_in_f64():
    trees = [
        (
            [("BRANCH_LEQ", 0, 0.1, 0, 1, 2), ("LEAF",) + (0,) * 5, ("LEAF",) + (0,) * 5],
            {1: [(0, 1.0)], 2: [(0, 2.0)]},
        )
    ]
    attributes = _attributes(trees, "target")
    del attributes["nodes_values"]
    limits = helper.make_tensor("", TensorProto.DOUBLE, [3], [0.1, 0.0, 0.0])
    outputs = [("y", TensorProto.FLOAT)]
    model = _model(
        "TreeEnsembleRegressor",
        outputs,
        TensorProto.DOUBLE,
        n_targets=1,
        nodes_values_as_tensor=limits,
        **attributes,
    )
    x = np.zeros((ROWS, WIDTH))
    x[:, 0] = np.nextafter(0.1, [0.0, 1.0, 0.1] * 3)
    y = tw.compile(model, threads=1).run(None, {"x": x})[0]
    assert y[:, 0].tolist() == [1.0, 2.0, 1.0] * 3


def _set_model(**changes):
    attributes = {
        "n_targets": 1,
        "nodes_featureids": [0, 1],
        "nodes_modes": helper.make_tensor("", TensorProto.UINT8, [2], [6, 6]),
        "nodes_splits": helper.make_tensor("", TensorProto.FLOAT, [2], [0, 0]),
        "nodes_truenodeids": [0, 1],
        "nodes_trueleafs": [1, 1],
        "nodes_falsenodeids": [1, 2],
        "nodes_falseleafs": [0, 1],
        "tree_roots": [0],
        "leaf_targetids": [0, 0, 0],
        "leaf_weights": helper.make_tensor("", TensorProto.FLOAT, [3], [1, 2, 4]),
        "membership_values": helper.make_tensor("", TensorProto.FLOAT, [5], [3, 5, np.nan, 7, np.nan]),
        **changes,
    }
    return _model("TreeEnsemble", [("y", TensorProto.FLOAT)], version=5, **attributes)


def test_members_of_sets():
    x = np.zeros((ROWS, WIDTH), np.float32)
    x[:5, 0], x[:5, 1] = [3, 5, 4, 4, np.nan], [0, 7, 7, 3, 7]
    y = tw.compile(_set_model(), threads=1).run(None, {"x": x})[0]
    assert y[:5, 0].tolist() == [1.0, 1.0, 2.0, 4.0, 2.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes_falsenodeids": [1, 0], "nodes_falseleafs": [0, 0]}, "go round in circles"),
        ({"nodes_falsenodeids": [1, 9]}, "nodes_falsenodeids names what is not there"),
        ({"nodes_featureids": [0, 4]}, "ask for features 0 to 4 of rows of 4"),
        ({"tree_roots": [2]}, "tree_roots names no node"),
        ({"leaf_targetids": [0, 0, 1]}, "its targets are 0 to 1; there are 1"),
        ({"nodes_trueleafs": [1]}, "nodes_trueleafs has 1 values; it must have 2"),
        ({"aggregate_function": 4}, "aggregate_function is 4"),
        ({"nodes_modes": helper.make_tensor("", TensorProto.UINT8, [2], [6, 7])}, "numbers below 7"),
    ],
)
def test_trees_that_are_none(changes, message):
    with pytest.raises(ModelError, match=message):
        tw.compile(_set_model(**changes), threads=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes_truenodeids": [7, 0, 0]}, "nodes_truenodeids name node 7 of tree 0, which is not there"),
        ({"nodes_nodeids": [0, 1, 1]}, "the same tree and number"),
        ({"nodes_modes": ["BRANCH_MAYBE", "LEAF", "LEAF"]}, "the mode 'BRANCH_MAYBE'"),
        ({"base_values": [1.0, 2.0]}, "base_values has 2 values for 1 targets"),
    ],
)
def test_nodes_that_are_named_wrongly(changes, message):
    leaf = ("LEAF", 0, 0.0, 0, 0, 0)
    trees = [([("BRANCH_LEQ", 0, 0.1, 0, 1, 2), leaf, leaf], {1: [(0, 1.0)], 2: [(0, 2.0)]})]
    attributes = {**_attributes(trees, "target"), "n_targets": 1, **changes}
    with pytest.raises(ModelError, match=message):
        tw.compile(_model("TreeEnsembleRegressor", [("y", TensorProto.FLOAT)], **attributes), threads=1)
