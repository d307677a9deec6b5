"""Buffers, layouts, element types, and programs as unscheduled loop functions."""

import ml_dtypes
import numpy as np
import pytest

from tilewright.ir import (
    DTYPES,
    F32,
    SCHEDULED,
    IndexMap,
    buffer,
    dtype_of,
    floordiv,
    identity_map,
    index,
    mod,
    parse_program,
    print_function,
    to_function,
    var,
    verify,
)

i, j, k = (var(v) for v in "ijk")


def test_layouts_compose_and_take_loop_variables():
    blocked = IndexMap(
        ("c", "h"), (floordiv(var("c"), 16), var("h"), mod(var("c"), 16)), (index(2), index(8), index(16))
    )
    assert [str(x) for x in blocked.apply((16 * i + j, k))] == ["i + j//16", "k", "j%16"]
    swapped = IndexMap(("a", "b", "c"), (var("b"), var("a"), var("c")), (index(8), index(2), index(16)))
    assert [str(x) for x in blocked.then(swapped).exprs] == ["h", "c//16", "c%16"]
    tile = IndexMap(("d",), (var("d") - 4 * i,), (index(4),))
    assert tile.vars == {"i"}
    assert str(tile.substitute({"i": j, "d": k}).exprs[0]) == "d - 4*j"
    assert tile.substitute({"k": j}) is tile
    assert identity_map((4, 5)).apply((i, j)) == (i, j)


def test_a_buffer_knows_its_box():
    b = buffer("b", (4, 8), F32)
    assert b.physical_shape == (index(4), index(8))
    assert b.physical((i, j)) == (i, j)
    turned = b.with_(layout=IndexMap(("x", "y"), (var("y"), var("x")), (index(8), index(4))))
    assert turned.physical((i, j)) == (j, i)
    assert turned.physical_shape == (index(8), index(4))
    assert b.substitute({"i": j}) is b


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_element_types_agree_with_numpy(dtype):
    assert dtype.numpy.itemsize == dtype.bytes
    assert (
        dtype_of(dtype.name)
        is dtype_of(dtype.numpy)
        is dtype_of(dtype.numpy.type)
        is dtype_of(dtype)
        is dtype
    )
    if dtype.is_integer:
        info = ml_dtypes.iinfo(dtype.numpy)
        assert (dtype.min_value, dtype.max_value) == (info.min, info.max)


@pytest.mark.parametrize("unknown", ["f33", np.complex64, str, np.longdouble])
def test_unknown_element_types(unknown):
    with pytest.raises(KeyError):
        dtype_of(unknown)


PROGRAM = """
program("p")
n = param(1, 8)
x = input(f32[n])
y = output(f32[n])
t = temp(f32[n])
with stage("i"):
    i = par(0, n)
    t[i] = x[i]
with stage("s"):
    i = ord(1, n)
    j = red(0, i)
    y[i] = y[i] + t[j]
"""


def test_programs_know_their_stages_and_buffers():
    p = parse_program(PROGRAM)
    assert [s.name for s in p.producers("y")] == ["s"]
    assert [s.name for s in p.consumers("t")] == ["s"]
    assert p.stage("s").reads == ("t",)
    assert p.stage("s").writes == ("y",)
    assert p.stage("s").is_reduction
    assert p.buffer("t").name == "t"
    for lookup in (p.stage, p.buffer):
        with pytest.raises(KeyError):
            lookup("nothing")


def test_a_stage_knows_the_extents_of_its_iterators():
    stage = parse_program(PROGRAM.replace("par(0, n)", "par(2, 8)")).stage("i")
    assert stage.extent("i") == 6
    with pytest.raises(KeyError):
        stage.extent("j")
    with pytest.raises(ValueError, match="not a constant"):
        parse_program(PROGRAM).stage("i").extent("i")


def test_the_unscheduled_function_has_unique_names_and_triangular_bounds():
    f = to_function(parse_program(PROGRAM))
    verify(f, SCHEDULED)
    text = print_function(f)
    # the stage is called i, so its loop cannot be
    assert "for i_i in range(n):" in text
    assert "for s_i in range(1, n):" in text
    assert "for j in range(s_i):" in text
    assert f.outputs == ("y",)
