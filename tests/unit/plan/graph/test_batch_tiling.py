"""Batches in parts: which programs have them, what a part computes, and when dividing pays."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import CONST, F32, IndexMap, floordiv, mod, var
from tilewright.plan import Flow, choose_parts, resized, slice_program, sliced_buffers
from tilewright.target import X86_AVX512

N, C, H = 6, 5, 7


def conv():
    x = lang.placeholder((N, C, H, H), "f32", "X")
    w = lang.placeholder((4, C, 3, 3), "f32", "W")
    c = lang.ops.conv(x, w, strides=2, padding=1, name="C")
    r = lang.placeholder(c.shape, "f32", "R")
    y = lang.compute(c.shape, lambda n, f, i, j: lang.maximum(c[n, f, i, j] + r[n, f, i, j], 0), name="Y")
    return with_constant(lang.program([x, w, r], [y]), "W")


def softmax():
    x = lang.placeholder((N, 9), "f32", "X")
    return lang.program([x], [lang.ops.softmax(x, axis=1)])


def with_constant(program, name):
    inputs = tuple(b.with_(scope=CONST) if b.name == name else b for b in program.inputs)
    return replace(program, inputs=inputs)


@pytest.mark.parametrize("make", [conv, softmax])
@pytest.mark.parametrize("parts", [2, 3, 6])
def test_a_part_computes_its_elements_of_the_whole(make, parts):
    program = make()
    assert sliced_buffers(program)
    part = slice_program(program, parts)
    rng = np.random.default_rng(0)
    arrays = {
        b.name: rng.standard_normal([e.as_int() for e in b.shape]).astype(np.float32) for b in program.inputs
    }
    whole = lang.evaluate(program, arrays)
    sliced = sliced_buffers(program)
    for at in range(parts):
        here = slice(at * N // parts, (at + 1) * N // parts)
        own = {name: array[here] if name in sliced else array for name, array in arrays.items()}
        for name, array in lang.evaluate(part, own).items():
            np.testing.assert_array_equal(array, whole[name][here])


def test_what_mixes_or_counts_the_elements_of_a_batch_has_no_parts():
    x = lang.placeholder((N, N), "f32", "X")
    k = lang.reduce_axis(N, "k")
    mixes = {
        "transposed": lang.compute((N, N), lambda i, j: x[j, i], name="Y"),
        "reversed": lang.compute((N, N), lambda i, j: x[N - 1 - i, j], name="Y"),
        "summed": lang.compute((N,), lambda j: lang.sum(x[k, j], axis=k), name="Y"),
        "both ways": lang.compute((N, N), lambda i, j: x[i, j] + x[j, i], name="Y"),
        "counted": lang.compute((N, N), lambda i, j: x[i, j] * i, name="Y"),
        "selected": lang.compute((N, N), lambda i, j: lang.select(i < 2, x[i, j], 0), name="Y"),
        "by a row": lang.compute((N, N), lambda i, j: x[i, j] * x[0, j], name="Y"),
    }
    for name, tensor in mixes.items():
        assert not sliced_buffers(lang.program([x], [tensor])), name
    w = lang.placeholder((N, N), "f32", "W")
    scaled = lang.compute((N, N), lambda i, j: x[i, j] * w[i, j], name="Y")
    assert sliced_buffers(lang.program([x, w], [scaled])) == {"X", "W", "Y"}
    assert not sliced_buffers(with_constant(lang.program([x, w], [scaled]), "W"))
    with pytest.raises(ValueError, match="4 equal parts"):
        slice_program(lang.program([x, w], [scaled]), 4)


def test_what_all_parts_read_is_no_part_of_them():
    x, b = lang.placeholder((N, 3), "f32", "X"), lang.placeholder((3,), "f32", "B")
    y = lang.compute((N, 3), lambda i, j: x[i, j] + b[j], name="Y")
    assert sliced_buffers(lang.program([x, b], [y])) == {"X", "Y"}


def test_elements_that_are_looked_up_in_their_own_row_have_parts():
    x, at = lang.placeholder((N, 8), "f32", "X"), lang.placeholder((N, 5), "i32", "I")
    own = lang.compute((N, 5), lambda i, j: x[i, lang.clamp(at[i, j], 0, 7)], name="Y")
    program = lang.program([x, at], [own])
    assert sliced_buffers(program) == {"X", "I", "Y"}
    rng = np.random.default_rng(0)
    given = {"X": rng.standard_normal((N, 8)).astype(np.float32), "I": rng.integers(-1, 9, (N, 5), np.int32)}
    whole = lang.evaluate(program, given)["Y"]
    half = lang.evaluate(slice_program(program, 2), {name: array[N // 2 :] for name, array in given.items()})
    np.testing.assert_array_equal(half["Y"], whole[N // 2 :])
    counted = lang.compute((N, 5), lambda i, j: x[i, lang.clamp(at[i, j] + i, 0, 7)], name="Y")
    assert not sliced_buffers(lang.program([x, at], [counted]))
    found = lang.compute((N, 5), lambda i, j: x[lang.clamp(at[i, j], 0, N - 1), j], name="Y")
    assert "X" not in sliced_buffers(lang.program([x, at], [found]))


def test_blocked_buffers_are_resized_with_their_layout():
    program = conv()
    x = program.inputs[0]
    layout = IndexMap(
        ("d0", "d1", "d2", "d3"),
        (var("d0"), floordiv(var("d1"), 4), var("d2"), var("d3"), mod(var("d1"), 4)),
        tuple(map(resized(x, N).shape[0].__class__, (N, 2, H, H, 4))),
    )
    blocked = replace(program, inputs=(x.with_(layout=layout), *program.inputs[1:]))
    part = slice_program(blocked, 3).inputs[0]
    assert [e.as_int() for e in part.physical_shape] == [2, 2, H, H, 4]
    assert resized(part, N) == blocked.inputs[0]
    behind = IndexMap(layout.dims, (*layout.exprs[1:], layout.exprs[0]), (*layout.shape[1:], layout.shape[0]))
    assert not sliced_buffers(replace(program, inputs=(x.with_(layout=behind), *program.inputs[1:])))


def chain(batch, size, channels, length=4):
    """Convolutions with 1x1 windows, one after another."""
    flows = []
    for at in range(length):
        x = lang.placeholder((batch, channels, size, size), "f32", "X")
        w = lang.placeholder((channels, channels, 1, 1), "f32", "W")
        program = lang.program([x, w], [lang.ops.conv(x, w, name="Y")])
        flows.append(Flow(with_constant(program, "W"), {"X": f"v{at}", "W": f"w{at}"}, {"Y": f"v{at + 1}"}))
    return flows


def test_large_images_are_taken_in_parts_and_large_weights_are_not():
    target = X86_AVX512
    cache = target.memory[-2].size
    assert cache is not None
    images = chain(16, 112, 32)
    assert 16 * 112 * 112 * 32 * F32.bytes > cache / 2
    parts = choose_parts(images, 16, Machine(target, 2))
    assert len(set(parts)) == 1 and parts[0] > 1 and 16 % parts[0] == 0 and parts[0] % 2 == 0
    assert choose_parts(chain(16, 1, 1024), 16, Machine(target, 2)) == (1, 1, 1, 1)


def test_nothing_is_divided_without_a_batch_or_unevenly():
    assert choose_parts(chain(1, 112, 32), 1, Machine(X86_AVX512, 2)) == (1, 1, 1, 1)
    assert choose_parts(chain(3, 112, 32), 3, Machine(X86_AVX512, 2)) == (1, 1, 1, 1)
    # 3 elements of 7 x 7 x 5 floats do not begin on cache lines
    assert set(choose_parts(chain(4, 7, 5), 4, Machine(X86_AVX512, 2))) == {1}
