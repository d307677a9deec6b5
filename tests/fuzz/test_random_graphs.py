"""Random models are computed as another engine computes them: different seeds, every one a model of its own.

``pytest tests/fuzz`` takes seconds, ``pytest tests/fuzz -m slow`` minutes. The first seed is that of
``--hypothesis-seed``, which every run states; a failure names its own. `python -m fuzz.test_random_graphs
FIRST COUNT`, from `tests`, runs as many as one wants, and prints the seeds that fail.
"""

import sys

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

import tilewright
from fuzz.node_sizes import by_reference
from fuzz.random_graphs import random_model
from tilewright.support import InternalError, TilewrightError

#: Relative and absolute, without and with numbers of 16 bits.
TOLERANCES = ((1e-4, 1e-5), (1e-2, 1e-3))
#: What ends the process in onnxruntime 1.32 where operands are empty.
FATAL = {"Einsum", "InstanceNormalization"}


def by_another(model, feeds):
    """What onnxruntime gives, or else the onnx package's evaluator; None where neither can."""
    if not FATAL.isdisjoint(node.op_type for node in model.graph.node):
        return by_reference(model, feeds)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)
    except Exception:  # noqa: BLE001  # of any kind: the other judge is asked
        return by_reference(model, feeds)


def by_both(model, feeds):
    """What the two engines agree on: of nothing at all one says a mean is 0, and one slices as numpy does."""
    first, second = by_another(model, feeds), by_reference(model, feeds)
    if first is None or second is None:
        return None
    same = all(
        np.shape(a) == np.shape(b)
        and np.allclose(a, b, *TOLERANCES[np.asarray(a).dtype == np.float16], equal_nan=True)
        for a, b in zip(first, second, strict=True)
    )
    return second if same else None


def run(seed):
    """Compare a model of this seed; whether there was something to compare. Raises AssertionError."""
    model, feeds = random_model(seed, by_both)
    if not model.graph.node:
        return False
    wanted = by_another(model, feeds)
    try:
        results = tilewright.compile(model, threads=1).run(None, feeds)
    except InternalError as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error
    except TilewrightError as error:
        assert wanted is None, f"seed {seed} is refused, and another engine runs it: {error}"
        return False
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error
    if wanted is None:
        return False
    halves = any(value.type.tensor_type.elem_type == TensorProto.FLOAT16 for value in model.graph.value_info)
    relative, absolute = TOLERANCES[halves]
    for value, got, want in zip(model.graph.output, results, wanted, strict=True):
        where = f"seed {seed}, {value.name}"
        assert (got.dtype, got.shape) == (want.dtype, want.shape), where
        if want.dtype.kind != "f":
            assert np.array_equal(got, want), where
            continue
        size = max(float(np.abs(want[np.isfinite(want)]).max(initial=0)), 1.0)
        close = np.isclose(got, want, relative, absolute * size, equal_nan=True)
        assert close.all(), f"{where}: {got[~close][:3]} instead of {want[~close][:3]}"
    return True


@pytest.mark.timeout(0)
@pytest.mark.parametrize("count", [30, pytest.param(3000, marks=pytest.mark.slow)])
def test_random_models(request, count):
    first = int(request.config.option.hypothesis_seed) % (1 << 30)
    assert sum(map(run, range(first, first + count))) > count // 4


if __name__ == "__main__":
    start, count = int(sys.argv[1]), int(sys.argv[2])
    bad = compared = 0
    for ran, each in enumerate(range(start, start + count), 1):
        try:
            compared += run(each)
        except AssertionError as failure:
            bad += 1
            print(str(failure).splitlines()[0][:300], flush=True)
        if ran % 1000 == 0 or ran == count:
            print(f"seeds {start} to {each}: {compared} compared, {bad} failed", flush=True)
