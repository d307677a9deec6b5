"""Reductions over all there is, and over axes that lie one after the other: whole vectors."""

import numpy as np
import pytest
from onnx import helper
from tests.native_kernel import STATED
from tests.unit.plan.rows.test_reduction import used
from tests.unit.strategies.test_default import check, t

import onnx_models as tiny
import tilewright
from tilewright import lang
from tilewright.cost import Machine
from tilewright.plan.rows.merge_axes import merge_axes
from tilewright.schedule import Schedule
from tilewright.strategies import default_schedule


def reduction(shape, axes, fold=lang.max, stored=None):
    """The reduction of a tensor over some of its axes; it is part of one that is ``stored`` so."""
    x = t(*(stored or shape), name="X")
    reds = {axis: lang.reduce_axis(shape[axis], f"r{axis}") for axis in axes}
    kept = [axis for axis in range(len(shape)) if axis not in axes]

    def of(*i):
        place = reds | dict(zip(kept, i, strict=False))
        return fold(x[tuple(place[axis] for axis in range(len(shape)))], axis=[*reds.values()])

    return lang.program([x], [lang.compute([shape[a] for a in kept] or (1,), of, name="Y")])


def axes_of(s):
    """The extents of the reduction axes of the result's stage."""
    return [it.extent.as_int() for it in s.require_program().stage("Y").iters if it.kind == "red"]


@pytest.mark.parametrize(
    ("shape", "axes", "stored", "found"),
    [
        ((5, 32, 13, 13), (0, 1, 2, 3), None, [27040]),
        ((5, 32, 13, 13), (1, 2, 3), None, [5408]),
        ((7, 5, 13, 13), (0, 2, 3), None, [7, 169]),  # the axis between is kept
        ((40, 13), (0, 1), (40, 16), [40, 13]),  # lines are parts of longer ones
        ((9, 40, 13), (0, 1, 2), (9, 50, 13), [9, 520]),
        ((5, 32, 13, 64), (0, 1, 2, 3), None, [5, 32, 13, 64]),  # whole vectors as it is
        ((3, 5), (0, 1), None, [3, 5]),  # hardly a vector
    ],
)
def test_axes_that_follow_one_another(shape, axes, stored, found):
    s = merge_axes(Schedule(reduction(shape, axes, stored=stored)), STATED)
    assert axes_of(s) == found


def test_products_keep_their_axes():
    a, b = t(9, 3, 50, name="A"), t(3, 50, 40, name="B")
    r, k = lang.reduce_axis(3, "r"), lang.reduce_axis(50, "k")
    y = lang.compute((9, 40), lambda i, j: lang.sum(a[i, r, k] * b[r, k, j], axis=(r, k)), name="Y")
    assert axes_of(merge_axes(Schedule(lang.program([a, b], [y])), STATED)) == [3, 50]


@pytest.mark.few(14)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("shape", [(5, 3, 13, 13), (2, 1, 1031), (3, 7, 101)])
@pytest.mark.parametrize("fold", [lang.max, lang.sum])
def test_results(shape, threads, fold):
    assert used(check(reduction(shape, range(len(shape)), fold), threads=threads, interpret=False))


def softmax(op, axis, shape):
    """The model of a softmax as operator sets before 13 have it: over all axes from one on."""
    node = helper.make_node(op, ["x"], ["y"], axis=axis)
    made = tiny.model([node], [tiny.tensor("x", shape)], [tiny.tensor("y", shape)])
    made.opset_import[0].version = 11
    return made


def expected(op, axis, x):
    """In double precision."""
    rows = x.reshape(int(np.prod(x.shape[:axis])), -1).astype(np.float64)
    with np.errstate(all="ignore"):
        centred = rows - rows.max(axis=1, keepdims=True)
        total = np.exp(centred).sum(axis=1, keepdims=True)
        y = centred - np.log(total) if op == "LogSoftmax" else np.exp(centred) / total
    return y.reshape(x.shape)


@pytest.mark.few(12)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(
    ("axis", "shape"),
    [
        (0, (5, 32, 13, 13)),
        (1, (5, 32, 13, 13)),
        (0, (20011,)),
        (0, (3, 331)),
        (0, (7, 5, 13)),
        (0, (2, 17000)),
    ],
)
def test_softmax_over_all_axes(op, axis, shape, threads):
    random = np.random.default_rng(3)
    run = tilewright.compile(softmax(op, axis, shape), threads=threads)
    for worst in (None, "some -inf", "all -inf", "NaN", "inf", "large"):
        x = random.standard_normal(shape).astype(np.float32)
        flat = x.reshape(-1)
        if worst == "some -inf":
            flat[::3] = -np.inf
        elif worst == "all -inf":
            flat[:] = -np.inf
        elif worst in ("NaN", "inf"):
            flat[flat.size // 2 + 1] = np.nan if worst == "NaN" else np.inf
        elif worst == "large":
            flat *= 1e30
        (y,) = run.run(None, {"x": x})
        np.testing.assert_allclose(y, expected(op, axis, x), rtol=1e-4, atol=1e-6, err_msg=str(worst))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_only_row_is_reduced_in_vectors_that_threads_share(threads):
    """Its maximum was a chain of single elements, its sum one of single vectors, on one thread."""
    x = t(27040, name="X")
    program = lang.program([x], [lang.ops.softmax(x, axis=-1, name="Y")])
    s = default_schedule(program, Machine(STATED, threads))
    lanes = [name for name in s.blocks() if name.endswith("_lanes")]
    assert len(lanes) == 2
    for name in lanes:
        kinds = [s.loop(loop).kind.name for loop in s.loops(name)]
        assert kinds[-1] == "vector"
        assert (kinds[0] == "parallel") == (threads > 1)
    check(program, threads=threads, interpret=False)


def test_rows_with_a_loop_of_their_own_stay_near():
    """One row in that is normalised while it is in the first cache."""
    x = t(1, 5000, name="X")
    s = check(lang.program([x], [lang.ops.softmax(x, axis=-1, name="Y")]), interpret=False)
    assert not used(s)
