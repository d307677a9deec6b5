"""Operators on tables against the reference evaluator of the onnx package, and what is refused."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw
from tilewright.support import ModelError, UnsupportedOperatorError

X = np.array([[1, -2, 0.5], [0, 0, 0], [3, 1.5, -1], [np.nan, 2, 2]], np.float32)
LABELS, SCORES = ("l", TensorProto.INT64), ("y", TensorProto.FLOAT)
RNG = np.random.default_rng(0)
VECTORS, WEIGHTS = RNG.normal(size=(5, 3)).ravel().tolist(), RNG.normal(size=10).tolist()


def _model(op, x, outputs, **attributes):
    node = helper.make_node(op, ["x"], [name for name, _ in outputs], "n", domain="ai.onnx.ml", **attributes)
    elem_type = helper.np_dtype_to_tensor_dtype(x.dtype) if x.dtype != object else TensorProto.STRING
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", elem_type, x.shape)],
        [helper.make_tensor_value_info(name, type_, None) for name, type_ in outputs],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


FINITE = np.nan_to_num(X)
CASES = {
    "scaler": ("Scaler", FINITE, (SCORES,), {"offset": [1.0, 2.0, 3.0], "scale": [0.5]}),
    "norm 1": ("Normalizer", FINITE[[0, 2, 3]], (SCORES,), {"norm": "L1"}),
    "imputer": (
        "Imputer",
        X,
        (SCORES,),
        {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": float("nan")},
    ),
    "imputer of a number": (
        "Imputer",
        FINITE,
        (SCORES,),
        {"imputed_value_floats": [9.0], "replaced_value_float": 0.0},
    ),
    "labels": (
        "LabelEncoder",
        np.array([[3, 5], [4, 3]]),
        (SCORES,),
        {"keys_int64s": [3, 4], "values_floats": [1.5, 2.5], "default_float": -1.0},
    ),
    "one hot": ("OneHotEncoder", np.array([[3], [5], [7]]), (SCORES,), {"cats_int64s": [7, 3], "zeros": 1}),
    "linear": (
        "LinearRegressor",
        FINITE,
        (SCORES,),
        {"coefficients": WEIGHTS[:6], "intercepts": [1.0, 2.0], "targets": 2},
    ),
    "linear classes": (
        "LinearClassifier",
        FINITE,
        (LABELS, SCORES),
        {
            "coefficients": WEIGHTS[:9],
            "intercepts": [0.1, 0.2, 0.3],
            "classlabels_ints": [4, 2, 9],
            "post_transform": "SOFTMAX",
        },
    ),
    "two linear classes": (
        "LinearClassifier",
        FINITE,
        (LABELS, SCORES),
        {
            "coefficients": WEIGHTS[:3],
            "intercepts": [0.1],
            "classlabels_ints": [4, 2],
            "post_transform": "LOGISTIC",
        },
    ),
    **{
        f"vectors, {kind}": (
            "SVMRegressor",
            FINITE,
            (SCORES,),
            {
                "coefficients": WEIGHTS[:5],
                "support_vectors": VECTORS,
                "n_supports": 5,
                "rho": [0.5],
                "kernel_type": kind,
                "kernel_params": [0.25, 0.5, 2.0],
            },
        )
        for kind in ("LINEAR", "POLY", "RBF", "SIGMOID")
    },
    "classes of vectors": (
        "SVMClassifier",
        FINITE,
        (LABELS, SCORES),
        {
            "coefficients": WEIGHTS,
            "support_vectors": VECTORS,
            "vectors_per_class": [2, 1, 2],
            "rho": [0.1, -0.2, 0.3],
            "kernel_type": "RBF",
            "kernel_params": [0.25, 0.0, 3.0],
            "classlabels_ints": [4, 2, 9],
        },
    ),
}


@pytest.mark.few(7)
@pytest.mark.parametrize("case", CASES)
def test_operators_say_what_the_standard_says(case):
    op, x, outputs, attributes = CASES[case]
    model = _model(op, x, outputs, **attributes)
    right = ReferenceEvaluator(model).run(None, {"x": x})
    for got, wanted in zip(tw.compile(model, threads=1).run(None, {"x": x}), right, strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, 1e-4, 1e-5)


def test_norms():
    for norm, of in (("MAX", np.array([1, 1, 3])), ("L2", np.linalg.norm(FINITE[:3], axis=1))):
        of = np.where(of == 0, 1, of) if norm == "L2" else np.array([1, 1, 3])
        model = _model("Normalizer", FINITE[:3], (SCORES,), norm=norm)
        got = tw.compile(model, threads=1).run(None, {"x": FINITE[:3]})[0]
        np.testing.assert_allclose(got, FINITE[:3] / of[:, None], 1e-6)


def test_the_last_of_equal_keys_counts_and_no_number_may_be_one():
    keys, values = [1.0, float("nan"), 1.0], [5, 6, 7]
    x = np.array([1, np.nan, 2], np.float32)
    model = _model("LabelEncoder", x, (LABELS,), keys_floats=keys, values_int64s=values)
    assert tw.compile(model, threads=1).run(None, {"x": x})[0].tolist() == [7, 6, -1]


def test_tables_side_by_side():
    node = helper.make_node(
        "FeatureVectorizer", ["a", "b"], ["y"], domain="ai.onnx.ml", inputdimensions=[2, 4]
    )
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("a", TensorProto.FLOAT, (4, 3)),
            helper.make_tensor_value_info("b", TensorProto.INT64, (4, 2)),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=8)
    b = np.arange(8).reshape(4, 2)
    got = tw.compile(model, threads=1).run(None, {"a": FINITE, "b": b})[0]
    np.testing.assert_array_equal(got, np.concatenate((FINITE[:, :2], b, np.zeros((4, 2))), 1))


def test_probabilities_of_two_classes():
    more = {"coefficients": WEIGHTS[:5], "support_vectors": VECTORS, "rho": [0.1], "classlabels_ints": [4, 2]}
    more |= {"vectors_per_class": [2, 3], "prob_a": [-1.5], "prob_b": [0.25]}
    labels, scores = tw.compile(_model("SVMClassifier", FINITE, (LABELS, SCORES), **more), threads=1).run(
        None, {"x": FINITE}
    )
    decision = FINITE @ np.array(VECTORS).reshape(5, 3).T @ WEIGHTS[:5] + 0.1
    second = 1 / (1 + np.exp(-(decision * -1.5 + 0.25)))
    np.testing.assert_array_equal(labels, np.where(decision > 0, 4, 2))
    np.testing.assert_allclose(scores, np.stack((1 - second, second), 1), 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("Scaler", {"offset": [1.0, 2.0], "scale": [1.0]}, "offset has 2 values for 3 features"),
        ("Imputer", {"imputed_value_floats": [1.0, 2.0]}, "2 values are given for 3 features"),
        ("LabelEncoder", {"keys_floats": [1.0], "values_int64s": [1, 2]}, "1 keys and 2 values"),
        ("OneHotEncoder", {}, "it has no categories"),
        ("FeatureVectorizer", {"inputdimensions": [1, 2]}, "1 inputs, and 2 inputdimensions"),
        ("LinearRegressor", {"coefficients": [1.0]}, "1 values for 1 rows of 3 features"),
        (
            "LinearClassifier",
            {"coefficients": [1.0] * 6, "classlabels_ints": [1, 2, 3]},
            "3 labels of 2 scores",
        ),
        ("SVMRegressor", {"coefficients": [1.0], "rho": [0.0]}, "1 coefficients of 3 features"),
        ("SVMClassifier", {"coefficients": [1.0], "classlabels_ints": [1, 2]}, "1 coefficients of 2 classes"),
    ],
)
def test_attributes_that_do_not_fit(op, attributes, message):
    with pytest.raises(ModelError, match=message):
        outputs = (LABELS, SCORES) if op.endswith("Classifier") else (SCORES,)
        tw.compile(_model(op, FINITE, outputs, **attributes), threads=1)


@pytest.mark.few(2)
@pytest.mark.parametrize("classes", [3, 4, 7])
def test_probabilities_of_several_classes(classes):
    rng = np.random.default_rng(seed := classes)
    vectors, pairs = rng.normal(size=(2 * classes, 3)), classes * (classes - 1) // 2
    weights = rng.normal(size=(classes - 1, 2 * classes))
    rho, a, b = rng.normal(size=(3, pairs))
    x = np.concatenate((rng.normal(size=(9, 3)), [[1e4, 0, 0]])).astype(np.float32)
    model = _model(
        "SVMClassifier",
        x,
        (LABELS, SCORES),
        coefficients=weights.ravel().tolist(),
        support_vectors=vectors.ravel().tolist(),
        vectors_per_class=[2] * classes,
        rho=rho.tolist(),
        prob_a=a.tolist(),
        prob_b=b.tolist(),
        kernel_type="LINEAR",
        kernel_params=[0.0, 0.0, 0.0],
        post_transform="NONE",
        classlabels_ints=list(range(classes)),
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    labels, wanted = session.run(None, {"x": x})
    found = tw.compile(model, threads=1).run(None, {"x": x})
    np.testing.assert_array_equal(found[0], labels, err_msg=f"seed {seed}")
    np.testing.assert_allclose(found[1], wanted, 1e-3, 1e-5, err_msg=f"seed {seed}")


def test_probabilities_of_very_many_classes_are_refused():
    more = {
        "coefficients": [1.0] * (64 * 65),
        "support_vectors": [1.0] * (65 * 3),
        "vectors_per_class": [1] * 65,
        "classlabels_ints": list(range(65)),
        **dict.fromkeys(("rho", "prob_a", "prob_b"), [1.0] * (65 * 32)),
    }
    with pytest.raises(UnsupportedOperatorError, match="probabilities of 65 classes; at most 64"):
        tw.compile(_model("SVMClassifier", FINITE, (LABELS, SCORES), **more), threads=1)
