"""A blur of first order: recursive down, up, right and left."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from application import Application, Array, to_bytes
from photo import photo
from tilewright import ir, lang
from tilewright.lang import Tensor
from tilewright.schedule import Schedule

ALPHA = 0.25


def program(h: int, w: int) -> ir.Program:
    image = lang.placeholder((3, h, w), name="image")

    def down_and_up(f: Tensor, n: int, m: int, name: str) -> Tensor:
        down = lang.scan(
            (3, n, m),
            lambda t, c, y, x: lang.select(
                y == 0, f[c, y, x], (1 - ALPHA) * t[c, y - 1, x] + ALPHA * f[c, y, x]
            ),
            axis=1,
            name=f"{name}_down",
        )
        return lang.scan(
            (3, n, m),
            lambda t, c, y, x: lang.select(
                y == n - 1, down[c, y, x], (1 - ALPHA) * t[c, y + 1, x] + ALPHA * down[c, y, x]
            ),
            axis=1,
            reverse=True,
            name=f"{name}_up",
        )

    columns = down_and_up(image, h, w, "columns")
    turned = lang.stage(lambda c, y, x: columns[c, x, y], name="turned")
    rows = down_and_up(turned, w, h, "rows")
    out = lang.stage(lambda c, y, x: rows[c, x, y], name="iir_blur")
    return lang.program([image], out, name="iir_blur", region=[3, h, w])


def reference(arrays: Mapping[str, Array]) -> Array:
    f = arrays["image"].astype(np.float64)
    for axis in (1, 2):
        g = np.moveaxis(f, axis, 0).copy()
        for _ in range(2):
            for n in range(1, len(g)):
                g[n] = (1 - ALPHA) * g[n - 1] + ALPHA * g[n]
            g = g[::-1]
        f = np.moveaxis(g, 0, axis)
    return f.astype(np.float32)


def schedule(program: ir.Program) -> Schedule:
    """Stripes of columns down and up, then bands of turned rows, each in the cache."""
    s = Schedule(program)
    s = s.split("columns_up_x", 64)
    s = s.reorder("columns_up_c", "columns_up_x_o", "columns_up_y", "columns_up_x_i")
    s = s.fuse("columns_up_c", "columns_up_x_o", names=["stripe"]).parallel("stripe")
    s = s.compute_at("columns_down", "stripe").vectorize("columns_down_x").vectorize("columns_up_x_i")

    s = s.split("iir_blur_y", 16).fuse("iir_blur_c", "iir_blur_y_o", names=["band"]).parallel("band")
    for name in ("rows_up", "rows_down", "turned"):
        s = s.compute_at(name, "band")
    s = s.vectorize("rows_down_x").vectorize("rows_up_x")
    # squares of 16 x 16 are transposed in registers
    s = s.split("turned_y", 16).reorder("turned_y_o", "turned_x", "turned_y_i")
    s = s.split("iir_blur_x", 16).reorder("iir_blur_x_o", "iir_blur_x_i", "iir_blur_y_i")
    s = s.vectorize("turned_x").unroll("turned_y_i")
    return s.vectorize("iir_blur_x_i").unroll("iir_blur_y_i")


APPLICATION = Application(
    "iir_blur",
    "Recursive blur",
    program,
    lambda h, w: {"image": photo(h, w)},
    reference,
    small=(23, 34),
    schedule=schedule,
    picture=to_bytes,
)
