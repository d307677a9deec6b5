"""Products by warpgroups: which are planned so, right on the interpreter, and what compilers make of them."""

import re
import subprocess
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from devices import HAVE_NVRTC
from tilewright import lang, tiling
from tilewright.build import kernel_source, lowered_for
from tilewright.codegen import compile_cuda, emit_kernels
from tilewright.cost import Machine
from tilewright.ir import Teams, dtype_of, locate, run_function
from tilewright.plan import plan_unit
from tilewright.plan.gpu.group import GroupTiles, group_problem, group_tree
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import A100, H200

MACHINE = Machine(H200, 1)


def product(m, n, k, dtype="bf16", *, batch=(), turned=(False, True), out="f32", relu=False):
    """``turned``: whether the factors lie along their rows or columns, not along the sums."""
    a = lang.placeholder((*batch, k, m) if turned[0] else (*batch, m, k), dtype, name="A")
    b = lang.placeholder((*batch, k, n) if turned[1] else (*batch, n, k), dtype, name="B")
    r = lang.reduce_axis(k, "k")
    factor = lang.tf32 if dtype == "f32" else (lambda e: lang.cast(e, "f32"))

    def element(*at):
        *z, i, j = at
        first = a[(*z, r, i)] if turned[0] else a[(*z, i, r)]
        second = b[(*z, r, j)] if turned[1] else b[(*z, j, r)]
        return lang.sum(factor(first) * factor(second), axis=r)

    c = lang.compute((*batch, m, n), element, name="C")
    if out != "f32" or relu:
        given = c
        zero = lang.const(0.0, "f32")
        c = lang.compute(
            (*batch, m, n),
            lambda *at: lang.cast(lang.maximum(given[at], zero) if relu else given[at], out),
            name="D",
        )
    return lang.program([a, b], [c], name="product")


def planned(program, machine=MACHINE):
    found = plan_unit(program, machine, ())
    (nest,) = found.plan.nests
    return nest, found.schedule.func


CASES = [
    (product(128, 128, 128), "group"),
    (product(128, 128, 128, turned=(False, False)), "group"),
    (product(128, 256, 128, "f16", turned=(True, True), out="f16", relu=True), "group"),
    (product(128, 128, 64, "f32", turned=(False, False)), "group"),
    (product(128, 128, 128, batch=(2,), turned=(True, False)), "group"),
    (product(100, 120, 128), "group"),
    # f32 lies along the sums; so many terms are whole steps; rows are multiples of 16 bytes
    (product(128, 128, 64, "f32"), "matrix"),
    (product(128, 128, 100), "matrix"),
    (product(128, 99, 128), "matrix"),
]


@pytest.mark.parametrize(("program", "kind"), CASES)
def test_which_products_are_of_warpgroups(program, kind):
    nest, _ = planned(program)
    assert nest.rule == {"group": "gpu_group_product", "matrix": "gpu_matrix"}[kind]
    assert planned(program, Machine(A100, 1))[0].rule in ("gpu_matrix", "gpu_product")


def fast(windows, _):
    """What a product does for a thread, by numpy: exact for small integers."""
    total, a, b = windows
    total += np.einsum("rk,kjc->rjc", a.reshape(2, -1).astype(np.float32), b.astype(np.float32)).reshape(
        total.shape
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "dtype", "turned"),
    [
        ((64, 64), "bf16", (False, True)),
        ((64, 64), "f16", (True, False)),
        ((64, 64), "f32", (False, False)),
        ((72, 64), "f16", (False, True)),
        ((64, 88), "bf16", (True, False)),
    ],
)
def test_they_are_right_in_any_order(size, dtype, turned):
    """A tile of a block with its ring, the factors lying all ways; zeros beyond them."""
    k, depth = (64, 32) if dtype == "f32" else (128, 64)
    program = product(*size, k, dtype, turned=turned)
    s = Schedule(program).as_matrices("C", (*(64 if n == 64 else 128 for n in size), 32), "P", narrow=True)
    problem = group_problem(s.require_program(), H200, "C", ("P_a", "P_b", "P"))
    assert problem is not None
    lowered = lowered_for(tiling.apply(s, [group_tree(problem, GroupTiles(64, 64, depth, 2))]).func, "cuda")
    assert any(True for _ in locate(lowered.body, Teams))
    assert len(emit_kernels(lowered, "cuda").kernels[0].maps) == 2
    rng = np.random.default_rng(0)
    given = {
        b.name: rng.integers(-3, 4, [e.const for e in b.shape]).astype(dtype_of(b.dtype.name).numpy)
        for b in program.inputs
    }
    wide = [given[name].astype(np.float64) for name in "AB"]
    first, second = (x.T if turn else x for x, turn in zip(wide, turned, strict=True))
    got = run_function(lowered, given, instructions={row.name: fast for row in H200.group_units})["C"]
    np.testing.assert_array_equal(got, first @ second.T)


def test_types_that_lie_along_the_sums():
    s, other = (
        Schedule(product(64, 64, 64, "f32", turned=(False, turn))).as_matrices(
            "C", (64, 64, 32), "P", narrow=True
        )
        for turn in (True, False)
    )
    stages = ("P_a", "P_b", "P")
    assert group_problem(s.require_program(), H200, "C", stages) is None
    wrong = replace(group_problem(other.require_program(), H200, "C", stages), along=(True, False))
    lowered = lowered_for(tiling.apply(s, [group_tree(wrong, GroupTiles(64, 64, 32, 2))]).func, "cuda")
    with pytest.raises(ScheduleError, match="takes 'P_b' with neighbours along the sums together"):
        emit_kernels(lowered, "cuda")


def disassembled(cubin, tmp_path):
    """Instructions of machine code by name; ``None`` where there is no disassembler."""
    spec = find_spec("nvidia")
    tools = [
        p for root in (spec.submodule_search_locations if spec else ()) for p in Path(root).rglob("nvdisasm")
    ]
    if not tools:
        return None
    (tmp_path / "k.cubin").write_bytes(cubin)
    text = subprocess.run([tools[0], tmp_path / "k.cubin"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\s((?:HGMMA|UTMALDG|WARPGROUP\.ARRIVE)\S*)", text)


def proven(program, tmp_path):
    """Compile a product for sm_90a: no spills, nothing serialised, as many instructions as a step has."""
    nest, func = planned(program)
    assert nest.rule == "gpu_group_product", nest
    source = kernel_source(func, "cuda")
    (entry,) = source.kernels
    plan, size = nest.choice, 4 if "tf32" in source.text else 2
    assert entry.shared_bytes <= plan.shared_bytes(size) <= H200.shared_per_block
    if not HAVE_NVRTC:
        return
    made = compile_cuda(source.text, "sm_90a")
    (used,) = made.resources.values()
    assert not made.warnings and not used.spilled and not used.stack
    assert used.registers <= plan.registers
    found = disassembled(made.cubin, tmp_path)
    if found is not None:
        count = {name: sum(x.startswith(name) for x in found) for name in ("HGMMA", "UTMALDG", "WARPGROUP")}
        assert count["HGMMA"] == plan.depth * size // 32
        assert all(f"64x{plan.columns}x" in x for x in found if x.startswith("HGMMA"))
        boxes = zip((plan.rows, plan.columns), (m.box[-2:] for m in entry.maps), strict=True)
        assert count["UTMALDG"] == sum(length * plan.depth // (x * y) for length, (x, y) in boxes)
        assert all(m.box[-1] * size == 128 and m.swizzle == 128 for m in entry.maps)


def test_what_compilers_make_of_them(tmp_path):
    proven(product(256, 256, 512), tmp_path)


SHAPES = [
    (m, n, k, dtype, turned)
    for m, n, k in (
        (4096, 4096, 4096), (8192, 8192, 8192), (2048, 1024, 512), (128, 4096, 1024), (4096, 256, 1024),
    )
    for dtype, turned in (
        ("bf16", (False, True)), ("bf16", (False, False)), ("f16", (True, True)), ("f16", (True, False)),
        ("f32", (False, False)),
    )
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_many_shapes(shape, tmp_path):
    m, n, k, dtype, turned = shape
    proven(product(m, n, k, dtype, turned=turned), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("batch", [(), (3,), (16,)])
def test_batches_and_what_follows(batch, relu, tmp_path):
    proven(product(512, 512, 512, "f16", batch=batch, out="f16", relu=relu), tmp_path)
