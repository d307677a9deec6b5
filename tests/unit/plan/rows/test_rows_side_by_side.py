"""Chains of reductions over images in blocks of channels: a lane computes a channel, vectors lie together."""

import re
from dataclasses import replace

import pytest
from tests.unit.strategies.test_default import check, t

from tilewright import lang
from tilewright.ir import blocks
from tilewright.lang import ops
from tilewright.plan.graph.layouts import Block
from tilewright.schedule import with_layout

SHAPES = {"one block": (1, 16, 5, 7), "two images": (2, 32, 3, 4), "volumes": (1, 32, 2, 3, 5)}


def normalised(shape, size=None):
    """Every channel of every image, less its mean, over its deviation; in blocks of channels, if wanted."""
    x = t(*shape, name="X")
    g, b = t(shape[1], name="G"), t(shape[1], name="B")
    program = lang.program([x, g, b], [ops.instance_norm(x, g, b, name="Y")])
    if size is None:
        return program
    layout = Block(1, size)
    return replace(
        program,
        inputs=tuple(
            with_layout(b, layout.indices(len(b.shape))) if b.name == "X" else b for b in program.inputs
        ),
        outputs=tuple(with_layout(b, layout.indices(len(b.shape))) for b in program.outputs),
    )


def vectors(s):
    """The extents of all vector loops."""
    loops = [f for place in blocks(s.func.body) for f in place.loops if f.kind.name == "vector"]
    return {f.extent.as_int() for f in loops}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", SHAPES)
def test_lanes_are_channels(case, threads):
    s = check(normalised(SHAPES[case], 16), threads=threads)
    assert vectors(s) == {16}


def test_sums_are_in_registers():
    s = check(normalised((1, 64, 5, 7), 16))
    assert re.search(r"alloc Y_inverse_sum: .* register", str(s))


def test_smaller_blocks():
    assert vectors(check(normalised((1, 24, 5, 9), 8))) == {8}


def test_plain_images_are_computed_along_their_rows():
    assert 7 in vectors(check(normalised((1, 16, 5, 7))))


def test_results_that_are_plain_are_right():
    """Read in blocks, stored plain."""
    mixed = normalised((1, 32, 5, 7), 16)
    check(replace(mixed, outputs=tuple(b.with_(layout=None) for b in mixed.outputs)))


def test_sums_that_are_several_of_a_row_stay_in_memory():
    """A row's lines have sums of their own, which loops over its lines read."""
    x = t(1, 32, 6, 7, name="X")
    h, w, v = lang.reduce_axis(6, "h"), lang.reduce_axis(7, "w"), lang.reduce_axis(7, "v")
    lines = lang.compute((1, 32, 6), lambda n, c, i: lang.sum(x[n, c, i, v], axis=v), name="L")
    total = lang.compute(
        (1, 32), lambda n, c: lang.sum(x[n, c, h, w] * lines[n, c, h], axis=(h, w)), name="T"
    )
    y = lang.compute((1, 32, 6, 7), lambda n, c, i, j: x[n, c, i, j] * lines[n, c, i] + total[n, c], name="Y")
    program = lang.program([x], [y])
    layout = Block(1, 16)
    check(
        replace(
            program,
            inputs=tuple(with_layout(b, layout.indices(len(b.shape))) for b in program.inputs),
            outputs=tuple(with_layout(b, layout.indices(len(b.shape))) for b in program.outputs),
        )
    )
