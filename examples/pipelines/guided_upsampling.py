"""Bilateral guided upsampling: affine models of colour fitted at low resolution (Chen et al., 2016).

In each cell of a grid over place and brightness the model that best maps the small input to the small output
solves a 4x4 system of normal equations; the full-size input is mapped by models interpolated between cells.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from application import Application, Array, to_bytes
from photo import photo
from tilewright import ir, lang
from tilewright.schedule import Schedule

CELL = 8  # pixels of the small images along each side of a cell
BINS = 8  # bins of brightness
FACTOR = 4  # from the small images to the full size
TAPS = [(-1, 0.25), (0, 0.5), (1, 0.25)]
RIDGE = 1e-2  # keeps systems of few pixels solvable: models tend to what leaves colours as they are
UPPER = [(i, j) for i in range(4) for j in range(i, 4)]


def small_size(n: int) -> int:
    """Pixels of the small images for ``n`` of the full size."""
    return -(-n // FACTOR)


def gray_of(rgb):
    """Brightness: weights that add up to 1 whichever way they are rounded."""
    return rgb[0] * 0.25 + rgb[1] * 0.5 + rgb[2] * 0.25


def program(h: int, w: int) -> ir.Program:
    sh, sw = small_size(h), small_size(w)
    full = lang.placeholder((3, h, w), name="full")
    small, wanted = lang.placeholder((3, sh, sw), name="small"), lang.placeholder((3, sh, sw), name="wanted")
    features = lang.boundary(small, mode="clamp")
    results = lang.boundary(wanted, mode="clamp")

    def products(y, x):
        """The upper half of the matrix of the normal equations, then its right-hand sides."""
        f = [*(features[c, y, x] for c in range(3)), lang.const(1, "f32")]
        return [f[i] * f[j] for i, j in UPPER] + [f[i] * results[c, y, x] for c in range(3) for i in range(4)]

    def splat(grid, z, gy, gx, ry, rx):
        y, x = gy * CELL + ry - CELL // 2, gx * CELL + rx - CELL // 2
        gray = gray_of([features[c, y, x] for c in range(3)])
        cell = lang.clamp(lang.cast(gray * BINS + 0.5, "i32"), 0, BINS)
        return [
            lang.write((k, z, gy, gx), grid[k, z, gy, gx] + v, where=cell == lang.to_scalar(z, "i32"))
            for k, v in enumerate(products(y, x))
        ]

    gys, gxs = ((-1, (n - 1) // CELL + 3) for n in (sh, sw))
    axes = [lang.axis((0, BINS + 1), "z"), lang.axis(gys, "gy"), lang.axis(gxs, "gx")]
    axes += [lang.ordered_axis(CELL, "ry"), lang.ordered_axis(CELL, "rx")]
    empty = lang.stage(lambda k, z, gy, gx: lang.const(0, "f32"), name="empty")
    grid = lang.update(empty, axes, splat, name="grid")
    blur_z = lang.stage(lambda k, z, y, x: sum(grid[k, z + d, y, x] * a for d, a in TAPS), name="blur_z")
    blur_y = lang.stage(lambda k, z, y, x: sum(blur_z[k, z, y + d, x] * a for d, a in TAPS), name="blur_y")
    blur_x = lang.stage(lambda k, z, y, x: sum(blur_y[k, z, y, x + d] * a for d, a in TAPS), name="blur_x")

    def solved(z, y, x):
        """The model of a cell, by Gaussian elimination of a symmetric matrix."""
        b = [blur_x[k, z, y, x] for k in range(len(UPPER) + 12)]
        m = {p: b[k] + (RIDGE if p[0] == p[1] else 0.0) for k, p in enumerate(UPPER)}
        v = [[b[len(UPPER) + 4 * c + i] + (RIDGE if i == c else 0.0) for i in range(4)] for c in range(3)]
        return eliminate(m, v)

    coefficients = lang.stage(
        lambda z, y, x: tuple(solved(z, y, x)), name=[f"model{n}" for n in range(12)], hint="model"
    )
    gray = lang.stage(lambda y, x: gray_of([full[c, y, x] for c in range(3)]), name="gray")

    def model_at(n, y, x):
        z = gray[y, x] * BINS
        zi = lang.to_index(lang.clamp(lang.cast(z, "i32"), 0, BINS - 1))
        zf = z - lang.to_scalar(zi, "f32")
        step = CELL * FACTOR
        yf, xf = ((p % step) * (1 / step) for p in (y, x))
        f = coefficients[n]
        corner = [[[f[zi + a, y // step + b, x // step + c] for c in (0, 1)] for b in (0, 1)] for a in (0, 1)]
        planes = [lang.lerp(lang.lerp(*p[0], xf), lang.lerp(*p[1], xf), yf) for p in corner]
        return lang.lerp(*planes, zf)

    def mapped(c, y, x):
        def channel(c):
            a = [model_at(4 * c + i, y, x) for i in range(4)]
            return sum(a[i] * full[i, y, x] for i in range(3)) + a[3]

        return lang.clamp(lang.mux(c, [channel(n) for n in range(3)]), 0.0, 1.0)

    out = lang.stage(mapped, name="guided_upsampling")
    return lang.program([full, small, wanted], out, name="guided_upsampling", region=[3, h, w])


def eliminate(m, v):
    """The solutions of ``m x = v[c]``, twelve numbers, for a symmetric matrix given by its upper half."""
    m, v = dict(m), [list(row) for row in v]
    pivots = []
    for i in range(4):
        pivots.append(1 / m[i, i])
        for j in range(i + 1, 4):
            share = m[i, j] * pivots[i]
            for k in range(j, 4):
                m[j, k] = m[j, k] - share * m[i, k]
            for row in v:
                row[j] = row[j] - share * row[i]
    for row in v:
        for i in reversed(range(4)):
            for j in range(i + 1, 4):
                row[i] = row[i] - m[i, j] * row[j]
            row[i] = row[i] * pivots[i]
    return [x for row in v for x in row]


def inputs(h: int, w: int) -> dict[str, Array]:
    full = photo(h, w)
    small = np.ascontiguousarray(full[:, ::FACTOR, ::FACTOR])
    wanted = np.clip(small**0.6 * np.array([1.0, 0.9, 0.8])[:, None, None], 0, 1).astype(np.float32)
    return {"full": full, "small": small, "wanted": wanted}


def reference(arrays: Mapping[str, Array]) -> Array:
    full, small, wanted = arrays["full"], arrays["small"], arrays["wanted"]
    h, w = full.shape[1:]
    sh, sw = small.shape[1:]
    gh, gw = ((n - 1) // CELL + 4 for n in (sh, sw))
    ys, xs = (np.arange(n * CELL) - CELL - CELL // 2 for n in (gh, gw))
    ys, xs = np.clip(ys, 0, sh - 1)[:, None], np.clip(xs, 0, sw - 1)
    z = (gray_of(small)[ys, xs] * np.float32(BINS) + np.float32(0.5)).astype(int)
    cells = (z + 1, (np.arange(gh * CELL) // CELL)[:, None], np.arange(gw * CELL) // CELL)
    f = np.concatenate([small, np.ones_like(small[:1])]).astype(np.float64)[:, ys, xs]
    r = wanted.astype(np.float64)[:, ys, xs]
    grid = np.zeros((22, BINS + 3, gh, gw))
    values = [f[i] * f[j] for i, j in UPPER] + [f[i] * r[c] for c in range(3) for i in range(4)]
    for k, value in enumerate(values):
        np.add.at(grid[k], cells, value)
    for axis in (1, 2, 3):
        n = grid.shape[axis] - 2
        grid = sum(a * grid.take(np.arange(n) + 1 + d, axis) for d, a in TAPS)
    m = np.zeros((*grid.shape[1:], 4, 4))
    for k, (i, j) in enumerate(UPPER):
        m[..., i, j] = m[..., j, i] = grid[k]
    v = np.moveaxis(grid[10:].reshape(3, 4, *grid.shape[1:]), (0, 1), (-1, -2)).copy()
    m += RIDGE * np.eye(4)
    v += RIDGE * np.eye(4, 3)
    models = np.linalg.solve(m, v)  # of every cell: 4 x 3
    zz = gray_of(full) * np.float32(BINS)
    zi = np.clip(zz.astype(int), 0, BINS - 1)
    step = CELL * FACTOR
    y, x = np.mgrid[0:h, 0:w]
    zf, yf, xf = zz - zi, y % step / step, x % step / step
    model = 0
    for a, wa in ((0, 1 - zf), (1, zf)):
        for b, wb in ((0, 1 - yf), (1, yf)):
            for c, wc in ((0, 1 - xf), (1, xf)):
                model = model + (wa * wb * wc)[..., None, None] * models[zi + a, y // step + b, x // step + c]
    rgb1 = np.concatenate([full, np.ones_like(full[:1])])
    return np.clip(np.einsum("yxic,iyx->cyx", model, rgb1), 0, 1).astype(np.float32)


def schedule(program: ir.Program) -> Schedule:
    """Cells of the grid in parallel, models by rows of cells, all three colours of a pixel together."""
    s = Schedule(program)
    k, _, _, x = s.loops("grid")
    s = s.parallel(k).vectorize(x)
    s = s.fuse("grid_update_z", "grid_update_gy", names=["cells"]).parallel("cells")
    z, y, x = s.loops("model11")
    s = s.reorder(y, z, x).parallel(y).vectorize(x)
    for name in ("blur_x", "blur_y", "blur_z"):
        s = s.compute_at(name, y).vectorize(f"{name}_x")
    c, y, x = s.loops("guided_upsampling")
    s = s.split(y, 32).reorder(f"{y}_o", f"{y}_i", c, x).parallel(f"{y}_o").unroll(c).vectorize(x)
    return s.compute_at("gray", f"{y}_i").vectorize("gray_x")


APPLICATION = Application(
    "guided_upsampling",
    "Bilateral guided upsampling",
    program,
    inputs,
    reference,
    small=(44, 60),
    schedule=schedule,
    tolerance=5e-3,
    flips=1e-3,
    picture=to_bytes,
)
