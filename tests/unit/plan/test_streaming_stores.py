"""Results that are stored past the caches by default."""

import pytest
from tests.unit.strategies.test_default import STATED, check, t

from tilewright import lang
from tilewright.cost import Machine, machine as caches
from tilewright.ir import For, stmt_children
from tilewright.plan import EXACT, plan_unit, streaming_stores as stores
from tilewright.plan.contraction.gemm import GemmPlan
from tilewright.strategies import default_schedule


def hinted(s):
    """Loops that bypass the caches, with the buffers."""

    def visit(node):
        here = (
            [(node.var, value) for key, value in node.hints if key == "nontemporal"]
            if isinstance(node, For)
            else []
        )
        return here + [found for k in stmt_children(node) for found in visit(k)]

    return visit(s.func.body)


@pytest.fixture
def tiny_cache(monkeypatch):
    """Results of 16 KiB exceed the caches; plans otherwise follow the machine's."""
    monkeypatch.setattr(stores, "goes_past_caches", lambda nbytes, target: nbytes >= 1 << 14)


def softmax(rows, columns):
    x = t(rows, columns, name="X")
    return lang.program([x], [lang.ops.softmax(x, axis=-1, name="Y")])


def test_results_larger_than_the_caches_are():
    rows = int(STATED.past_share * caches.last_cache(STATED)) // 4 // 1024
    assert hinted(default_schedule(softmax(rows + 1, 1024), Machine(STATED, 2))) != []
    assert hinted(default_schedule(softmax(rows, 1024), Machine(STATED, 2))) == []


@pytest.mark.few(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(64, 64), (70, 131), (65, 80)])
def test_they_are_right(tiny_cache, shape, threads):
    x = t(*shape, name="X")
    across = lang.compute(shape[::-1], lambda i, j: x[j, i] * 2.0, name="Y")
    for program in (softmax(*shape), lang.program([x], [across])):
        s = check(program, threads=threads)
        assert [names for _, names in hinted(s)] == ["Y"] * len(hinted(s)) != []


def test_results_that_are_read_again_are_not(tiny_cache):
    x = t(64, 128, name="X")
    y = lang.compute((64, 128), lambda i, j: x[i, j] + 1, name="Y")
    k = lang.reduce_axis(64, "k")
    z = lang.compute((64, 128), lambda i, j: lang.max(y[k, j], axis=k) + y[i, j], name="Z")
    found = {
        name
        for _, names in hinted(default_schedule(lang.program([x], [y, z]), Machine(STATED, 2)))
        for name in names.split(",")
    }
    assert found == {"Z"}


def test_sizes_known_only_at_run_time_are_small(tiny_cache):
    n = lang.param("n")
    x = lang.placeholder((n, 1024), name="X")
    y = lang.compute((n, 1024), lambda i, j: x[i, j] + 1, name="Y")
    assert hinted(default_schedule(lang.program([x], [y]), Machine(STATED, 2))) == []


def product(m, n, k):
    a, b, r = t(m, k, name="A"), t(k, n, name="B"), lang.reduce_axis(k, "k")
    c = lang.compute((m, n), lambda i, j: lang.sum(a[i, r] * b[r, j], axis=r), name="C")
    return lang.program([a, b], [c])


def inner_tiles(s):
    """The loop over register tiles: that of rows, or that of columns."""
    (loops,) = {s.loops(name) for name in s.blocks() if name == "C"}
    order = [loop for loop in loops if loop.startswith(("i_", "j_"))]
    return order[-3][0]


def directly(program):
    return default_schedule(program, Machine(STATED, 2), accuracy=EXACT)


def test_results_that_take_longer_to_store_than_to_compute_are_made_line_by_line(tiny_cache):
    assert inner_tiles(directly(product(512, 512, 4))) == "j"
    assert inner_tiles(directly(product(512, 512, 128))) == "i"
    assert inner_tiles(directly(product(512, 500, 4))) == "i"
    assert hinted(check(product(200, 320, 4), interpret=False)) != []


@pytest.mark.parametrize(("columns", "depth"), [(256, 16), (1024, 32)])
def test_what_is_added_to_large_results_is_read_row_after_row(columns, depth):
    """Tiles below one another would touch a page a row of the other operand."""

    def plan_of(added):
        rows = 4 * caches.second_cache(STATED) // (4 * columns)
        a, b, c = t(rows, depth, name="A"), t(depth, columns, name="B"), t(rows, columns, name="C")
        if added:
            program = lang.program([a, b, c], [lang.ops.gemm(a, b, c, 1.5, 0.5)])
        else:
            program = lang.program([a, b], [lang.ops.matmul(a, b)])
        nests = plan_unit(program, Machine(STATED, 1)).plan.nests
        # operands that are put in order first are nests of their own
        (plan,) = (nest.choice for nest in nests if "matmul" in nest.stages)
        return rows, plan

    rows, plan = plan_of(added=True)
    if isinstance(plan, GemmPlan):
        assert plan.blocks == -(-rows // plan.tile_rows)
        assert plan_of(added=False)[1].blocks < plan.blocks
    else:
        assert plan.columns_inside
