"""Kernels of groups: every plan of random groups is carried out and right; what is none says why."""

from random import Random

import numpy as np
import pytest
from tests.random_pipelines import random_program

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import run_function, run_program, verify
from tilewright.lower import insert_barriers
from tilewright.plan import GpuGroupPlan, graph_of, kernel_boxes, no_kernel, shared_bytes, too_large
from tilewright.plan.catalog import RULES
from tilewright.plan.rule import Cluster, Context
from tilewright.poly import check_legal
from tilewright.schedule import Schedule
from tilewright.target import A100, POCL
from tilewright.tiling import apply

RULE = RULES["gpu_group"]


def random_group(rng, program, machine):
    """A problem of a random group of a program, ``None`` where it has none."""
    g = graph_of(program)
    root = rng.choice([n for n in g.nodes if n.output])
    names, inside = [], {root.index}
    for n in reversed(g.nodes):
        readers = g.readers[n.index]
        if n.plain and not n.output and readers and {*readers} <= inside and rng.random() < 0.8:
            inside.add(n.index)
            names.insert(0, n.name)
    return RULE.match(Context(program, machine), root.name, tuple(names))


@pytest.mark.few(12)
@pytest.mark.parametrize("target", [A100, POCL], ids=lambda t: t.name)
@pytest.mark.parametrize("seed", range(16))
def test_random_plans_are_never_refused_and_always_right(seed, target):
    rng = Random(seed)
    program = random_program(rng)
    problem = random_group(rng, program, Machine(target, 1))
    if problem is None:
        pytest.skip("no group ends in this result")
    space = RULE.space(problem)
    x = np.random.default_rng(seed).integers(
        -9, 9, [n.as_int() for n in program.inputs[0].shape], dtype=np.int32
    )
    wanted = run_program(program, {"X": x})
    for plan in (RULE.default(problem), space.sample(rng)):
        assert RULE.seconds(problem, plan) > 0
        nest = RULE.write(Cluster(RULE.name, problem.group.root.name), problem, plan)
        s = apply(Schedule(program, operations=target.operations).replay(nest.steps), nest.trees)
        func = insert_barriers(s.func)
        verify(func)
        results = run_function(func, {"X": x}, seed=seed)
        for name, value in wanted.items():
            np.testing.assert_array_equal(results[name], value, err_msg=f"{seed} {plan}")
        if "inline" not in plan.placements:
            assert check_legal(Schedule(program).func, func, {}) == []


def stencil():
    x = lang.placeholder((66, 130), name="X")
    a = lang.compute((66, 130), lambda y, i: x[y, i] * 2, name="a")
    b = lang.compute((64, 128), lambda y, i: a[y, i] + a[y + 2, i + 2], name="b")
    program = lang.program([x], [b])
    problem = RULE.match(Context(program, Machine(A100, 1)), "b", ("a",))
    return program, problem.group


def test_what_a_block_and_a_thread_need():
    program, g = stencil()
    plan = GpuGroupPlan((8, 32), (2, 1), 1, ("tile",))
    assert plan.threads == 128
    tile, thread = kernel_boxes(g, plan)
    assert [int(hi[0] - lo[0]) + 1 for lo, hi in tile["a"]] == [10, 34]
    assert [int(hi[0] - lo[0]) + 1 for lo, hi in thread["a"]] == [4, 3]
    assert shared_bytes(g, program, plan) == 4 * 10 * 34


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (GpuGroupPlan((8,), (1,), 0, ("tile",)), "the result has 2 axes"),
        (GpuGroupPlan((8, 32), (1, 1), 1, ()), "the kernel has 1 producers"),
        (GpuGroupPlan((8, 32), (1, 1), 1, ("slide",)), "the kernel has 1 producers"),
        (GpuGroupPlan((8, 32), (3, 1), 1, ("tile",)), "has no parts of 3"),
        (GpuGroupPlan((128, 32), (1, 1), 1, ("tile",)), "a tile of 128 elements along axis 0, of 64"),
        (GpuGroupPlan((8, 32), (4, 4), 1, ("tile",)), "16 elements a thread are not written out"),
    ],
)
def test_what_is_no_kernel_says_why(plan, reason):
    assert reason in no_kernel(stencil()[1], plan)


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (GpuGroupPlan((32, 64), (1, 1), 1, ("tile",)), "2048 threads a block are more than 1024"),
        (GpuGroupPlan((56, 14), (7, 2), 1, ("row",)), ""),
        (GpuGroupPlan((64, 256), (8, 1), 1, ("tile",)), "threads a block"),
    ],
)
def test_limits_of_a_device(plan, reason):
    program, g = stencil()
    found = too_large(g, program, plan, A100)
    assert (reason in found) if reason else found == ""
