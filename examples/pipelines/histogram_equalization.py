"""Histogram equalisation: brightnesses are moved so that each is equally frequent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from application import Application, Array
from photo import photo
from tilewright import ir, lang
from tilewright.schedule import Schedule


def program(h: int, w: int) -> ir.Program:
    image = lang.placeholder((3, h, w), "u8", name="image")

    def mixed(y, x, red, green, blue, offset):
        r, g, b = (lang.cast(image[c, y, x], "i32") for c in range(3))
        return (red * r + green * g + blue * b + offset * 256 + 128) >> 8

    luma = lang.stage(lambda y, x: lang.cast(mixed(y, x, 77, 150, 29, 0), "u8"), name="luma")
    cb = lang.stage(lambda y, x: mixed(y, x, -43, -85, 128, 0), name="cb")
    cr = lang.stage(lambda y, x: mixed(y, x, 128, -107, -21, 0), name="cr")
    none = lang.compute((256,), lambda b: lang.const(0, "i32"), name="none")
    rows, columns = lang.reduce_axis(h, "ry"), lang.reduce_axis(w, "rx")
    count = lang.update(
        none, [rows, columns], lambda t, y, x: lang.write(luma[y, x], t[luma[y, x]] + 1), name="count"
    )
    upto = lang.scan(
        (256,), lambda t, b: lang.select(b >= 1, t[b - 1], 0) + count[b], dtype="i32", name="upto"
    )
    equal = lang.stage(lambda y, x: upto[luma[y, x]] * 255 // (h * w), name="equal")

    def colour(c, y, x):
        v, b, r = equal[y, x], cb[y, x], cr[y, x]
        return lang.mux(c, [v + (359 * r >> 8), v - ((88 * b + 183 * r) >> 8), v + (454 * b >> 8)])

    out = lang.stage(
        lambda c, y, x: lang.saturating_cast(colour(c, y, x), "u8"), name="histogram_equalization"
    )
    return lang.program([image], out, name="histogram_equalization", region=[3, h, w])


def reference(arrays: Mapping[str, Array]) -> Array:
    r, g, b = arrays["image"].astype(int)
    luma = (77 * r + 150 * g + 29 * b + 128) >> 8
    cb, cr = (-43 * r - 85 * g + 128 * b + 128) >> 8, (128 * r - 107 * g - 21 * b + 128) >> 8
    equal = np.cumsum(np.bincount(luma.ravel(), minlength=256))[luma] * 255 // luma.size
    out = np.stack([equal + (359 * cr >> 8), equal - ((88 * cb + 183 * cr) >> 8), equal + (454 * cb >> 8)])
    return np.clip(out, 0, 255).astype(np.uint8)


def schedule(program: ir.Program) -> Schedule:
    """Each strip counts in a histogram of its own; colours are made row by row."""
    out = "histogram_equalization"
    s = Schedule(program)
    s = s.clone_stage("luma", "count_update").inline_stage("luma")  # cheaper than to store and read it
    s = s.rfactor("count_update", "ry", 64, name="part").parallel("part_ry_o")
    s = s.compute_at("luma_count_update", "ry_i").vectorize("luma_count_update_x")
    s = s.reorder(f"{out}_y", "c", f"{out}_x").split(f"{out}_y", 16).parallel(f"{out}_y_o")
    for name in ("equal", "cb", "cr"):
        s = s.compute_at(name, f"{out}_y_i").vectorize(f"{name}_x")
    return s.unroll("c").vectorize(f"{out}_x")


APPLICATION = Application(
    "histogram_equalization",
    "Histogram equalisation",
    program,
    lambda h, w: {"image": (photo(h, w) * 200 + 20).astype(np.uint8)},
    reference,
    small=(31, 44),
    schedule=schedule,
    tolerance=0,
    picture=lambda out: out,
)
