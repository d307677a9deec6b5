"""Contractions whose products an instruction does: chosen, packed and right at odd sizes."""

import numpy as np
import pytest

from native_kernel import HOST, Native
from tilewright.driver.layouts import pack
from tilewright.ir import run_function, verify
from tilewright.strategies import default_schedule
from tilewright.target import INTERPRETED, X86_AVX2, X86_AVX512, find_instruction
from unit.schedule.loop.test_tensorize import KINDS, arrays, expected, product

SIZES = [(3, 32, 16), (16, 48, 64), (17, 40, 52), (29, 200, 24), (1, 64, 16), (5, 9, 128), (13, 19, 68)]


def needs(kind):
    if not find_instruction(kind).features <= HOST.features:
        pytest.skip(f"this machine lacks {kind}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("threads", [1, 2])
def test_products_of_constants(kind, m, n, k, threads):
    needs(kind)
    if threads > 1 and m < 16:
        return  # a single tile, which no threads share
    program = product(m, n, k, kind)
    s = default_schedule(program, HOST, threads, constants=("B",))
    verify(s.func)
    assert f"{kind}(" in str(s)
    given = arrays(program)
    wanted = expected(given)
    given["B"] = pack(given["B"], s.func.buffer("B"))
    tolerance = 0 if kind == "vpdpbusd" else 1e-5 * k
    if m * n * k < 20000:
        made = run_function(s.func, given, instructions=INTERPRETED)["C"]
        np.testing.assert_allclose(made, wanted, rtol=0, atol=tolerance)
    np.testing.assert_allclose(Native(s.func)(given)["C"], wanted, rtol=0, atol=tolerance)


def test_groups_that_do_not_divide_are_multiplied_one_by_one():
    needs("vdpbf16ps")
    program = product(6, 32, 9, "vdpbf16ps")
    s = default_schedule(program, HOST, 1, constants=("B",))
    assert "vdpbf16ps(" not in str(s)
    given = arrays(program)
    wanted = expected(given)
    given["B"] = pack(given["B"], s.func.buffer("B"))
    np.testing.assert_allclose(Native(s.func)(given)["C"], wanted, rtol=0, atol=1e-4)


def test_machines_without_the_instruction():
    for target in (X86_AVX2, X86_AVX512):
        s = default_schedule(product(6, 32, 8, "vdpbf16ps"), target, 1, constants=("B",))
        assert "vdpbf16ps(" not in str(s)
