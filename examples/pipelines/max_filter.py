"""The largest value within a disc: columns of heights 2**k, two of which cover any column of the disc."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from application import Application, Array, padded, to_bytes
from photo import photo
from tilewright import ir, lang
from tilewright.schedule import Schedule

RADIUS = 26


def half_height(dx: int, radius: int) -> int:
    """Rows above and below the middle that column ``dx`` of the disc has."""
    return sum(dx * dx + dy * dy < (radius + 0.25) ** 2 for dy in range(1, radius + 1))


def program(h: int, w: int, radius: int = RADIUS) -> ir.Program:
    image = lang.placeholder((3, h, w), name="image")
    near = lang.boundary(image, mode="clamp")
    powers = [lang.stage(lambda c, y, x: near[c, y, x], name="column1")]  # largest of 2**k rows from y on
    while 2 ** len(powers) <= 2 * radius + 1:
        step, below = 2 ** (len(powers) - 1), powers[-1]
        powers.append(
            lang.stage(
                lambda c, y, x, below=below, step=step: lang.maximum(below[c, y, x], below[c, y + step, x]),
                name=f"column{2 * step}",
            )
        )
    columns = {}
    for t in sorted({half_height(dx, radius) for dx in range(-radius, radius + 1)}):
        k = (2 * t + 1).bit_length() - 1
        columns[t] = lang.stage(
            lambda c, y, x, t=t, f=powers[k], rows=2**k: lang.maximum(
                f[c, y - t, x], f[c, y + t + 1 - rows, x]
            ),
            name=f"rows{2 * t + 1}",
        )

    def largest(c: lang.Axis, y: lang.Axis, x: lang.Axis) -> lang.Scalar:
        out = columns[half_height(-radius, radius)][c, y, x - radius]
        for dx in range(-radius + 1, radius + 1):
            out = lang.maximum(out, columns[half_height(dx, radius)][c, y, x + dx])
        return out

    final = lang.stage(largest, name="max_filter")
    return lang.program([image], final, name="max_filter", region=[3, h, w])


def reference(arrays: Mapping[str, Array], radius: int = RADIUS) -> Array:
    image = arrays["image"]
    h, w = image.shape[-2:]
    near = padded(image, radius)
    out = np.full_like(image, -np.inf)
    for dx in range(-radius, radius + 1):
        t = half_height(dx, radius)
        for dy in range(-t, t + 1):
            np.maximum(out, near[:, radius + dy :, radius + dx :][:, :h, :w], out=out)
    return out


def schedule(program: ir.Program) -> Schedule:
    """Tiles, channel by channel, with all columns that a tile needs in the cache."""
    s = Schedule(program).inline_stage("column1")
    assert s.program is not None
    *producers, last = [stage.name for stage in s.program.stages]
    c, y, x = s.loops(last)
    s = s.split(y, 64).split(x, 256).reorder(c, f"{y}_o", f"{x}_o", f"{y}_i", f"{x}_i")
    s = s.fuse(c, f"{y}_o", names=["strip"]).parallel("strip")
    for name in reversed(producers):
        s = s.compute_at(name, f"{x}_o")
    for block in s.blocks():
        s = s.vectorize(s.loops(block)[-1])
    return s


APPLICATION = Application(
    "max_filter",
    "Maximum over discs",
    program,
    lambda h, w: {"image": photo(h, w)},
    reference,
    small=(21, 33),
    schedule=schedule,
    tolerance=0,
    picture=to_bytes,
)
