"""Plans of ranges: every size of a prepared range runs at once, right, and checked as any other."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests import onnx_models
from tests.unit.driver.test_dynamic import decoder_step, encoder, ids

import tilewright
from tilewright.driver import dynamic
from tilewright.driver.aside import Aside
from tilewright.driver.dynamic import DynamicModel, ranges_between
from tilewright.driver.open_kernels import Compiler
from tilewright.driver.range_plan import NoRangePlanError, _affine, sizes_to_compare
from tilewright.support import InputError


@pytest.fixture(scope="module")
def prepared():
    model = tilewright.compile(encoder(), threads=2, shapes={"batch": 2}, dynamic={"seq": (1, 48)})
    model.prepare()
    return model


@pytest.fixture
def no_front_end(monkeypatch):
    """What a further size may not need."""

    def refuse(*_, **__):
        raise AssertionError("the front end, or a compilation")

    monkeypatch.setattr(DynamicModel, "_units", refuse)
    monkeypatch.setattr(Compiler, "kernels", refuse)


def test_all_sizes_of_all_ranges_need_no_front_end(prepared, no_front_end):
    assert list(prepared._plans) == [((1, 1),), ((2, 16),), ((17, 32),), ((33, 48),)]
    assert all(plan is not None for plan in prepared._plans.values())
    longest = prepared(ids(2, 48))[0]
    for length in range(1, 49):
        (got,) = prepared(ids(2, 48)[:, :length])
        assert got.shape == (2, length, 8)
        assert np.isfinite(got).all()
    np.testing.assert_array_equal(got, longest)


@pytest.mark.parametrize("length", [1, 2, 16, 17, 31, 33, 48])
def test_results_are_those_of_a_compilation_for_the_size(prepared, length):
    static = tilewright.compile(encoder(), threads=2, shapes={"batch": 2, "seq": length})
    want = static(ids(2, length))[0]
    np.testing.assert_allclose(prepared(ids(2, length))[0], want, rtol=1e-4, atol=1e-5)
    out = np.empty((2, length, 8), np.float32)
    assert prepared.run(["out"], {"ids": ids(2, length)}, out=[out])[0] is out
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)


def test_indices_are_checked_at_the_size_of_the_run(prepared):
    for length, place in ((48, (1, 47)), (20, (1, 0)), (3, (0, 2))):
        wrong = ids(2, length)
        wrong[place] = 50
        with pytest.raises(InputError, match=rf"'ids' holds 50 at \[{place[0]}, {place[1]}\]"):
            prepared(wrong)
    # what lies behind the numbers of a run is not looked at
    wide = np.full((2, 48), 99, np.int64)
    wide[:, :20] = ids(2, 20)
    assert prepared(np.ascontiguousarray(wide[:, :20]))[0].shape == (2, 20, 8)


def test_outputs_are_given_by_name_and_twice_as_copies():
    model = tilewright.compile(decoder_step(), threads=1, dynamic={"past": (0, 40)})
    model.prepare()
    rng = np.random.default_rng(0)
    past, new = rng.standard_normal((1, 33, 16), np.float32), rng.standard_normal((1, 1, 16), np.float32)
    present, out, again = model.run(["present", "out", "present"], {"past": past, "new": new})
    np.testing.assert_array_equal(present, np.concatenate([past, new], axis=1))
    np.testing.assert_array_equal(again, present)
    assert again is not present and out.shape == (1, 1, 16)
    with pytest.raises(InputError, match="no output 'pressent'"):
        model.run(["pressent"], {"past": past, "new": new})


def test_a_growing_cache_plans_ahead(monkeypatch):
    model = tilewright.compile(decoder_step(), threads=1, dynamic={"past": (0, 64)})
    new = np.ones((1, 1, 16), np.float32)
    for n in range(2, 16):
        model(np.ones((1, n, 16), np.float32), new)
        model.wait()
    assert ((17, 32),) in model._plans
    monkeypatch.setattr(DynamicModel, "_units", None)
    _, past = model(np.ones((1, 17, 16), np.float32), new)
    assert past.shape == (1, 18, 16)


def test_sizes_that_are_often_used_get_kernels_of_their_own():
    model = tilewright.compile(decoder_step(), threads=1, dynamic={"past": (0, 40)})
    model.prepare({"past": 33})
    new = np.ones((1, 1, 16), np.float32)
    found = {}
    for n in (33, 34, 35):
        past = np.random.default_rng(n).standard_normal((1, n, 16), np.float32)
        for _ in range(dynamic.SINGLE_AFTER + 1):
            found[n] = model(past, new)
        model.wait()
        for a, b in zip(model(past, new), found[n], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert [sizes for (sizes,) in model._single] == [34, 35]
    assert not any(group.kernel.sizes for single in model._single.values() for group in single.groups())


def test_what_is_not_affine_has_a_plan_a_size():
    # half of the rows, rounded up: no one function of the size
    nodes = [
        helper.make_node("MaxPool", ["x"], ["out"], kernel_shape=[3], strides=[2], pads=[1, 1]),
    ]
    x, out = onnx_models.tensor("x", (1, 4, "n")), onnx_models.tensor("out", (1, 4, "m"))
    model = tilewright.compile(onnx_models.model(nodes, [x], [out], {}), dynamic={"n": (17, 32)})
    model.prepare()
    assert model._plans == {((17, 32),): None}
    for n in (17, 18, 31, 32):
        assert model(np.ones((1, 4, n), np.float32))[0].shape == (1, 4, (n + 1) // 2)


def test_what_inputs_may_hold_can_depend_on_a_size():
    nodes = [helper.make_node("Gather", ["x", "at"], ["out"], axis=0)]
    x, at = onnx_models.tensor("x", ("n", 4)), onnx_models.tensor("at", (3,), TensorProto.INT64)
    out = onnx_models.tensor("out", (3, 4))
    model = tilewright.compile(onnx_models.model(nodes, [x, at], [out], {}), dynamic={"n": (17, 32)})
    model.prepare()
    assert model._plans == {((17, 32),): None}
    data = np.arange(80, dtype=np.float32).reshape(20, 4)
    np.testing.assert_array_equal(model(data, np.array([19, 0, -20]))[0], data[[19, 0, 0]])
    with pytest.raises(InputError, match="'at' holds 20"):
        model(data, np.array([0, 20, 0]))


def test_preparing_refuses_sizes_that_are_not_the_models(prepared):
    with pytest.raises(InputError, match="the size 'seq' is 49; the model is compiled for 1 to 48"):
        prepared.prepare({"seq": 49})
    with pytest.raises(InputError, match="no open size 'sek'"):
        prepared.prepare({"sek": 4})
    with pytest.raises(InputError, match="the size 'seq' is missing"):
        prepared.prepare({})


def test_sizes_to_compare_begin_with_the_largest_and_have_both_ends():
    for ranges in ([(2, 16)], [(17, 32), (1, 1)], [(257, 512), (33, 64)], [(5, 6)], [(0, 0)]):
        found = sizes_to_compare(ranges)
        assert found[0] == tuple(hi for _, hi in ranges)
        assert tuple(lo for lo, _ in ranges) in found
        assert all(lo <= n <= hi for sizes in found for n, (lo, hi) in zip(sizes, ranges, strict=True))
    assert {n % 32 for (n,) in sizes_to_compare([(257, 512)])} >= {0, 1, 2, 4, 8, 16}


def test_ranges_in_order():
    assert ranges_between(0, 40) == [(0, 0), (1, 1), (2, 16), (17, 32), (33, 40)]
    assert ranges_between(20, 20) == [(20, 20)]


def test_affine_extents_are_exact_or_none():
    at = [(32, 4), (17, 4), (20, 4), (25, 4)]
    assert _affine([65, 35, 41, 51], at) == (1, 2, 0)
    with pytest.raises(NoRangePlanError):
        _affine([16, 9, 10, 13], at)


def test_tasks_are_done_aside_in_order_and_failures_given_up():
    aside, done = Aside(), []

    def fail():
        raise InputError("no")

    for n in range(3):
        aside.want(n, lambda n=n: done.append(n))
        aside.want("fail", fail)
    aside.wait()
    aside.want(0, lambda: done.append("again"))
    aside.wait()
    assert done == [0, 1, 2, "again"] and not aside.is_over()


@pytest.mark.parametrize("over", [False, True])
def test_what_the_end_of_the_process_cuts_short_is_no_warning(over, monkeypatch, caplog):
    monkeypatch.setattr(Aside, "is_over", lambda self: over and bool(asked))
    aside, asked = Aside(), []

    def cut_short():
        asked.append("the process ends while this is at work")
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    aside.want("task", cut_short)
    aside.wait()
    assert [r.levelname for r in caplog.records if r.name == "tilewright.driver.aside"] == ["WARNING"] * (
        not over
    )
