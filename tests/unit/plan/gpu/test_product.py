"""Products on GPUs: tiles at ragged and prime sizes, split sums, copies, registers."""

from random import Random

import numpy as np
import pytest
from tests.plans import asked_of, chosen

from devices import HAVE_NVRTC, LANGUAGES, checked_by_nvrtc, on_device
from tilewright import lang
from tilewright.build import kernel_source
from tilewright.codegen import compile_cuda
from tilewright.cost import SCHEDULERS, Machine, ProductTiles, occupancy
from tilewright.ir import run_program
from tilewright.lang import ops
from tilewright.lower import insert_barriers
from tilewright.plan import RULES, build_unit, plan_from_json, plan_unit, rewritten
from tilewright.poly import check_legal
from tilewright.schedule import Schedule
from tilewright.support import ArtefactError, assert_close
from tilewright.target import A100, H200, POCL, SIMULATED

RNG = np.random.default_rng(3)


def t(name, *shape):
    return lang.placeholder(shape, name=name)


def product(m, n, k):
    a, b = t("A", m, k), t("B", k, n)
    c = ops.matmul(a, b)
    return lang.program([a, b], [lang.compute((m, n), lambda i, j: lang.maximum(c[i, j], 0.0), name="Y")])


def conv(channels, size, filters, window, stride=1, padding=0, groups=1):
    x, w = t("X", 1, channels, size, size), t("W", filters, channels // groups, window, window)
    y = ops.conv(x, w, strides=stride, padding=padding, groups=groups)
    return lang.program([x, w], [y])


def arrays(program):
    return {
        b.name: RNG.standard_normal([e.as_int() for e in b.shape]).astype(np.float32) for b in program.inputs
    }


def compare(program, schedule, languages):
    given = arrays(program)
    want = run_program(program, given)
    largest = run_program(program, {name: np.abs(value) for name, value in given.items()})
    for language in languages:
        got = on_device(schedule.func, language)(given)
        for name, value in want.items():
            assert_close(got[name], value, magnitude=largest[name], terms=4096)


def with_tiles(program, target, tiles):
    """The default plan with other tiles for its product."""
    plan = plan_unit(program, Machine(target, 1)).plan
    return asked_of(plan, tiles, "gpu_product")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("size", "tiles", "languages"),
    [
        ((67, 131, 45), ProductTiles(32, 64, 8, 4, 4, 2), LANGUAGES),
        ((64, 64, 64), ProductTiles(64, 64, 16, 8, 8, 1), ["c"]),
        ((5, 37, 19), ProductTiles(16, 16, 8, 1, 4, 2), LANGUAGES),
        ((130, 36, 40), ProductTiles(128, 32, 8, 8, 4, 2), ["c"]),
    ],
    ids=["ragged", "even", "few", "high"],
)
def test_tiles_at_ragged_and_prime_sizes(size, tiles, languages):
    program = product(*size)
    plan = with_tiles(program, POCL, tiles)
    s = build_unit(program, plan, Machine(POCL, 1))
    compare(program, s, languages)
    checked_by_nvrtc(s.func, registers=168)


def test_tiles_are_legal_by_the_exact_judge():
    program = conv(8, 3, 6, 1)
    planned = plan_unit(program, Machine(POCL, 1))
    assert [nest.rule for nest in planned.plan.nests] == ["gpu_product"]
    rewritten_ = Schedule(program).replay(planned.plan.rewrites)
    assert not check_legal(rewritten_.func, insert_barriers(planned.schedule.func))


@pytest.mark.parametrize(
    "program",
    [conv(4, 9, 11, 3, stride=2, padding=1), conv(16, 8, 20, 1)],
    ids=["strided", "pointwise"],
)
def test_convolutions_are_products(program):
    planned = plan_unit(program, Machine(POCL, 1))
    assert planned.plan.nests[0].rule == "gpu_product"
    assert not planned.schedule.notes
    compare(program, planned.schedule, LANGUAGES)


def test_borders_are_copied_without_waiting():
    """Zeros arrive where a window is outside; nothing waits for an element, and sums stay in registers."""
    program = conv(64, 9, 24, 3, padding=1)
    planned = plan_unit(program, Machine(H200, 1))
    assert not planned.schedule.notes
    text = checked_by_nvrtc(planned.schedule.func)
    body = text.partition("__global__")[2]
    assert "tw_copy_4_if(&" in body and "? X_[" not in body
    if HAVE_NVRTC:
        assert not any(used.stack for used in compile_cuda(text, "sm_90").resources.values())
    compare(program, planned.schedule, LANGUAGES)


def test_convolutions_with_few_tiles_share_sums():
    program = conv(512, 7, 512, 3, padding=1)
    planned = plan_unit(program, Machine(H200, 1))
    (tiles,) = [nest.choice for nest in planned.plan.nests if nest.rule == "gpu_product"]
    (split,) = [step for step in planned.plan.rewrites.steps if step.primitive == "rfactor"]
    assert split.args[0] == "conv"
    first, *_ = kernel_source(planned.schedule.func, "cuda").kernels
    blocks = [extent.as_int() for extent in first.grid.blocks]
    assert np.prod(blocks) * tiles.threads >= H200.units * H200.warp * SCHEDULERS
    text = checked_by_nvrtc(planned.schedule.func, registers=168)
    if HAVE_NVRTC:
        assert not any(used.stack for used in compile_cuda(text, "sm_90").resources.values())


def test_groups_are_elements():
    program = conv(12, 7, 8, 3, groups=4, padding=1)
    planned = plan_unit(program, Machine(POCL, 1))
    assert [nest.rule for nest in planned.plan.nests] == ["gpu_elements"]
    compare(program, planned.schedule, ["c"])


def test_long_sums_of_few_results_are_split():
    program = product(16, 24, 2048)
    planned = plan_unit(program, Machine(A100, 1))
    assert any(step.primitive == "rfactor" for step in planned.plan.rewrites.steps)
    assert [nest.rule for nest in planned.plan.nests] == ["gpu_product", "gpu_elements"]
    compare(program, planned.schedule, ["c"])
    # enough results are not
    whole = plan_unit(product(2048, 2048, 512), Machine(A100, 1))
    assert [nest.rule for nest in whole.plan.nests] == ["gpu_product"]


def test_copies_and_results_are_wide_where_elements_lie_together():
    text = kernel_source(plan_unit(product(1024, 1024, 1024), Machine(H200, 1)).schedule.func, "cuda").text
    lines = text.splitlines()
    # the first factor lies along the sums and is stored across: elements, none of which is waited for
    assert any("tw_copy_4(&" in line and "&A_[" in line for line in lines)
    assert any("tw_copy_16(&" in line and "&B_[" in line for line in lines)
    assert any("tw_f32x" in line and "&Y_[" in line for line in lines)
    odd = kernel_source(plan_unit(product(255, 253, 251), Machine(H200, 1)).schedule.func, "cuda").text
    assert "tw_copy_4" in odd and "tw_copy_16" not in odd and "tw_f32x" not in odd


@pytest.mark.few(2)
@pytest.mark.parametrize("target", [A100, H200], ids=lambda x: x.name)
@pytest.mark.parametrize(
    "program",
    [product(1024, 1024, 1024), conv(64, 56, 64, 3, padding=1), conv(3, 224, 64, 7, stride=2, padding=3)],
    ids=["product", "conv3x3", "stem"],
)
def test_registers_are_bounded_and_never_spilled(program, target):
    planned = plan_unit(program, Machine(target, 1))
    checked_by_nvrtc(planned.schedule.func, registers=168)
    (tiles,) = [nest.choice for nest in planned.plan.nests if nest.rule == "gpu_product"]
    held = occupancy(target, tiles.threads, tiles.registers, tiles.shared_bytes(4))
    assert held.blocks >= 2


def test_every_point_of_the_space_is_right():
    program = product(33, 40, 24)
    plan = plan_unit(program, Machine(SIMULATED, 1)).plan
    _, context = rewritten(program, plan, Machine(SIMULATED, 1))
    (nest,) = plan.nests
    space = RULES[nest.rule].space(RULES[nest.rule].match(context, nest.root, nest.stages))
    assert space.size > 500
    seed = 11
    rng = Random(seed)
    for _ in range(4):
        tiles = space.sample(rng)
        other = chosen(program, plan, Machine(SIMULATED, 1), tiles)
        assert plan_from_json(other.to_json()) == other
        problem = RULES[nest.rule].match(context, nest.root, nest.stages)
        assert RULES[nest.rule].seconds(problem, tiles) > 0
        compare(program, build_unit(program, other, Machine(SIMULATED, 1)), ["c"])


def test_tiles_that_do_not_fit_are_refused():
    program = product(64, 64, 64)
    for tiles, reason in (
        (ProductTiles(128, 128, 8, 2, 2), "threads a block"),
        (ProductTiles(16, 16, 8, 8, 8), "threads a block"),
        (ProductTiles(64, 64, 7, 4, 4), "depth is 7"),
    ):
        with pytest.raises(ArtefactError, match=reason):
            build_unit(program, with_tiles(program, A100, tiles), Machine(A100, 1))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("dtype", "target", "rule"),
    [("i32", A100, "gpu_product"), ("i8", A100, "gpu_matrix"), ("i32", POCL, "gpu_product")],
)
def test_parts_of_sums_of_integers_are_joined_at_once(dtype, target, rule):
    # one tile on a device of two units, which more would keep busy
    m, n, count = (11, 13, 4096) if target == POCL else (19, 37, 4096)
    a, b = lang.placeholder((m, count), dtype, name="A"), lang.placeholder((count, n), dtype, name="B")
    k = lang.reduce_axis(count, "k")

    def factor(e):
        return lang.cast(e, "i32")

    c = lang.compute((m, n), lambda i, j: lang.sum(factor(a[i, k]) * factor(b[k, j]), axis=k), name="C")
    planned = plan_unit(lang.program([a, b], [c]), Machine(target, 1))
    s = planned.schedule
    assert [(nest.rule, nest.root) for nest in planned.plan.nests] == [(rule, "C")] and not s.notes
    # nothing but operands and result lies in memory, and a kernel begins the result
    assert {name for name, buffer in s.buffers().items() if buffer.scope == "global"} == {"A", "B", "C"}
    assert len(kernel_source(s.func, "cuda").kernels) == 2
    rng = np.random.default_rng(3)
    given = {"A": rng.integers(-9, 9, (m, count)), "B": rng.integers(-9, 9, (count, n))}
    given = {name: array.astype(a.dtype.numpy) for name, array in given.items()}
    want = given["A"].astype(np.int32) @ given["B"].astype(np.int32)
    for language in LANGUAGES:
        np.testing.assert_array_equal(on_device(s.func, language)(given)["C"], want)
    assert "atomicAdd(" in checked_by_nvrtc(s.func)


def test_parts_of_sums_of_floats_are_joined_in_order():
    a, b = lang.placeholder((19, 4096), name="A"), lang.placeholder((4096, 37), name="B")
    s = plan_unit(lang.program([a, b], [ops.matmul(a, b)]), Machine(A100, 1)).schedule
    text = kernel_source(s.func, "cuda").text
    assert "atomic" not in text and any(name.endswith("_parts") for name in s.buffers())
