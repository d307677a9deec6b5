"""Edge-aware smoothing in a coarse grid over place and brightness (Chen, Paris & Durand, 2007)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from application import Application, Array, to_bytes
from photo import photo
from tilewright import ir, lang
from tilewright.schedule import Schedule

CELL = 8  # pixels along each side of a cell
BINS = 10  # bins of brightness
TAPS = [(-2, 1), (-1, 4), (0, 6), (1, 4), (2, 1)]


def program(h: int, w: int) -> ir.Program:
    image = lang.placeholder((h, w), name="image")
    near = lang.boundary(image, mode="clamp")

    def splat(grid, k, gy, gx, ry, rx):  # k = 0: the sum of values, k = 1: how many
        value = near[gy * CELL + ry - CELL // 2, gx * CELL + rx - CELL // 2]
        z = lang.clamp(lang.cast(value * BINS + 0.5, "i32"), 0, BINS)
        cell = (k, z, gy, gx)
        return lang.write(cell, grid[cell] + lang.select(k == 0, value, 1.0))

    gys, gxs = ((-2, (n - 1) // CELL + 4) for n in (h, w))
    axes = [lang.axis(2, "k"), lang.axis(gys, "gy"), lang.axis(gxs, "gx")]
    axes += [lang.ordered_axis(CELL, "ry"), lang.ordered_axis(CELL, "rx")]
    empty = lang.stage(lambda k, z, gy, gx: lang.const(0, "f32"), name="empty")
    grid = lang.update(empty, axes, splat, name="grid")
    along_z = lang.stage(
        lambda k, z, y, x: sum(grid[k, z + d, y, x] * float(c) for d, c in TAPS), name="along_z"
    )
    along_x = lang.stage(
        lambda k, z, y, x: sum(along_z[k, z, y, x + d] * float(c) for d, c in TAPS), name="along_x"
    )
    along_y = lang.stage(
        lambda k, z, y, x: sum(along_x[k, z, y + d, x] * float(c) for d, c in TAPS), name="along_y"
    )

    def slice_at(k, y, x):
        z = image[y, x] * BINS
        zi = lang.to_index(lang.clamp(lang.cast(z, "i32"), 0, BINS))
        zf = z - lang.to_scalar(zi, "f32")
        yf, xf = ((n % CELL) * (1 / CELL) for n in (y, x))
        corner = [
            [[along_y[k, zi + a, y // CELL + b, x // CELL + c] for c in (0, 1)] for b in (0, 1)]
            for a in (0, 1)
        ]
        planes = [lang.lerp(lang.lerp(*p[0], xf), lang.lerp(*p[1], xf), yf) for p in corner]
        return lang.lerp(*planes, zf)

    sliced = lang.stage(slice_at, name="sliced")
    out = lang.stage(lambda y, x: sliced[0, y, x] / sliced[1, y, x], name="bilateral_grid")
    return lang.program([image], out, name="bilateral_grid", region=[h, w])


def reference(arrays: Mapping[str, Array]) -> Array:
    image = arrays["image"]
    h, w = image.shape
    gh, gw = ((n - 1) // CELL + 6 for n in (h, w))
    ys, xs = (np.arange(n * CELL) - 2 * CELL - CELL // 2 for n in (gh, gw))
    value = image[np.clip(ys, 0, h - 1)][:, np.clip(xs, 0, w - 1)]
    z = (value * np.float32(BINS) + np.float32(0.5)).astype(int)
    cells = (z + 2, (np.arange(gh * CELL) // CELL)[:, None], np.arange(gw * CELL) // CELL)
    grid = np.zeros((2, BINS + 6, gh, gw))
    np.add.at(grid[0], cells, value)
    np.add.at(grid[1], cells, 1)
    for axis in (1, 2, 3):
        n = grid.shape[axis] - 4
        grid = sum(c * grid.take(np.arange(n) + 2 + d, axis) for d, c in TAPS)
    y, x = np.mgrid[0:h, 0:w]
    zz = image * np.float32(BINS)
    zi = zz.astype(int)
    zf, yf, xf = zz - zi, y % CELL / CELL, x % CELL / CELL
    found = 0
    for a, wa in ((0, 1 - zf), (1, zf)):
        for b, wb in ((0, 1 - yf), (1, yf)):
            for c, wc in ((0, 1 - xf), (1, xf)):
                found = found + wa * wb * wc * grid[:, zi + a, y // CELL + b, x // CELL + c]
    return (found[0] / found[1]).astype(np.float32)


def schedule(program: ir.Program) -> Schedule:
    """Cells are filled row by row of cells, blurred in strips, and read by vectors of pixels."""
    s = Schedule(program).inline_stage("sliced")
    s = s.reorder("gy", "k", "z", "gx").parallel("gy")
    s = s.reorder(*(f"grid_update_{axis}" for axis in ("gy", "gx")), "ry", "rx", "grid_update_k")
    s = s.unroll("grid_update_k").parallel("grid_update_gy")  # sum and count of a cell at once
    y = "along_y_y"
    s = s.split(y, 8).reorder(f"{y}_o", "along_y_k", "along_y_z", f"{y}_i").parallel(f"{y}_o")
    for name in ("along_x", "along_z"):
        s = s.compute_at(name, "along_y_z")
    s = s.split("bilateral_grid_y", 8).parallel("bilateral_grid_y_o").split("bilateral_grid_x", 16)
    for x in ("gx", "along_z_x", "along_x_x", "along_y_x", "bilateral_grid_x_i"):
        s = s.vectorize(x)
    return s


APPLICATION = Application(
    "bilateral_grid",
    "Bilateral grid",
    program,
    lambda h, w: {"image": photo(h, w).mean(axis=0)},
    reference,
    small=(37, 52),
    schedule=schedule,
    flips=1e-3,
    picture=to_bytes,
)
