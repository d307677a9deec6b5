"""An algorithm is one file: a primitive that rewrites a stage, its record, and its method with its choices.

Its lines in the catalogs are made here by replacing these. The algorithm sums backwards, with a constant
factor that is turned round when compiling.
"""

import sys
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pytest
from onnx import helper

import onnx_models as tiny
import tilewright
from tilewright.ir import CONST, Index, map_loads, substitute_index, var
from tilewright.lang import match_sum
from tilewright.plan.algorithms import methods
from tilewright.schedule import ALGORITHMS, PRIMITIVES, Algorithm, DerivedConstant, primitive
from tilewright.schedule.registry import primitive_of
from tilewright.support import ScheduleError

# -- the algorithm


def match(program, stage):
    """A sum along the first dimension of a constant matrix that nothing else reads."""
    found = match_sum(program, stage)
    if found is None or not found.constant or len(found.other.indices) != 2:
        return None
    along = found.other.indices[0].as_var()
    return found if along in {it.name for it in stage.iters if it.kind == "red"} else None


@primitive("backwards", phase="program")
def backwards(program, stage: str, weights: str):
    """Sum from the last term on: ``C[i, j] += A[i, n - 1 - k] * W[k, j]``, the factor given turned round."""
    old = program.stage(stage)
    found = match(program, old)
    if found is None:
        raise ScheduleError(f"{stage} is no sum along a constant matrix")
    buffer = program.buffer(found.other.buffer)
    k = found.other.indices[0].as_var()
    last = buffer.shape[0].as_int() - 1

    def turned(ld):
        if ld.buffer == buffer.name:
            return replace(ld, buffer=weights)
        back = {k: Index(last) - var(k)}
        return replace(ld, indices=tuple(substitute_index(i, back) for i in ld.indices))

    body = map_loads(old.body, turned)
    stages = tuple(replace(s, body=body) if s.name == stage else s for s in program.stages)
    inputs = tuple(b.with_(name=weights, scope=CONST) if b is buffer else b for b in program.inputs)
    return replace(program, stages=stages, inputs=inputs)


def turned_round(weights):
    return np.ascontiguousarray(weights[::-1])


BACKWARDS = Algorithm(
    "backwards",
    match,
    lambda found, step: {str(step.args[1]): DerivedConstant((found.other.buffer,), turned_round, error)},
    lambda step: {str(step.args[0]): "backwards"},
)
ERRORS = [0.0]


def error(weights):
    return ERRORS[-1]


@dataclass(frozen=True)
class Choice:
    found: object
    cycles: float = 1.0
    plan: object = None
    match: object = None
    stages: tuple = ()

    def rewrite(self, s, last):
        name = self.found.stage.name
        return s.apply("backwards", name, f"{self.found.other.buffer}_turned")


def choose(asked):
    found = match(asked.schedule.require_program(), asked.stage)
    return Choice(found) if found is not None else None


METHOD = methods.Method(BACKWARDS, choose)

# -- its lines in the catalogs


@pytest.fixture(autouse=True)
def _listed(monkeypatch):
    lines = {
        "PRIMITIVES": (PRIMITIVES, MappingProxyType({**PRIMITIVES, "backwards": primitive_of(backwards)})),
        "ALGORITHMS": (ALGORITHMS, MappingProxyType({**ALGORITHMS, "backwards": BACKWARDS})),
        "METHODS": (methods.METHODS, MappingProxyType({"backwards": METHOD, **methods.METHODS})),
    }
    for name, module in list(sys.modules.items()):
        for attribute, (old, new) in lines.items():
            if name.startswith("tilewright.") and getattr(module, attribute, None) is old:
                monkeypatch.setattr(module, attribute, new)


def model():
    rng = np.random.default_rng(0)
    w = rng.standard_normal((24, 40)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    return tiny.model([node], [tiny.tensor("x", (8, 24))], [tiny.tensor("y", (8, 40))], {"w": w}), w


def algorithms(compiled):
    return [str(g.kernel.schedule.trace) for g in compiled.groups()]


def test_models_are_computed_by_it():
    given, w = model()
    compiled = tilewright.compile(given)
    assert "backwards(" in algorithms(compiled)[0]
    x = np.random.default_rng(1).standard_normal((8, 24)).astype(np.float32)
    np.testing.assert_allclose(compiled.run(None, {"x": x})[0], x @ w, rtol=1e-4, atol=1e-4)
    again = tilewright.compile(given, plan=compiled.plan().to_json())
    assert algorithms(again) == algorithms(compiled)


def test_it_is_left_out_where_it_is_not_exact_enough(monkeypatch):
    given, _ = model()
    monkeypatch.setitem(globals(), "ERRORS", [1.0])
    assert "backwards(" not in algorithms(tilewright.compile(given))[0]
    monkeypatch.setitem(globals(), "ERRORS", [0.0])
    assert "backwards(" not in algorithms(tilewright.compile(given, accuracy="exact"))[0]
