"""Non-local means: pixels become averages of those whose surroundings look alike (Buades, 2005)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from application import Application, Array, at, padded, to_bytes
from photo import photo
from tilewright import ir, lang
from tilewright.schedule import Schedule

PATCH, SEARCH = 3, 3  # half sizes of the windows of 7x7
SIGMA = 0.12
SCALE = -1 / (SIGMA * SIGMA * (2 * PATCH + 1) ** 2)


def program(h: int, w: int) -> ir.Program:
    image = lang.placeholder((3, h, w), name="image")
    near = lang.boundary(image, mode="clamp")
    window = range(-PATCH, PATCH + 1)
    different = lang.stage(
        lambda dy, dx, y, x: sum(lang.square(near[c, y, x] - near[c, y + dy, x + dx]) for c in range(3)),
        name="different",
    )
    rows = lang.stage(lambda dy, dx, y, x: sum(different[dy, dx, y + p, x] for p in window), name="rows")
    patch = lang.stage(lambda dy, dx, y, x: sum(rows[dy, dx, y, x + p] for p in window), name="patch")
    weight = lang.stage(lambda dy, dx, y, x: lang.exp(patch[dy, dx, y, x] * SCALE), name="weight")
    sy, sx = (lang.reduce_axis((-SEARCH, SEARCH + 1), n) for n in ("sy", "sx"))
    total = lang.stage(lambda y, x: lang.sum(weight[sy, sx, y, x], axis=(sy, sx)), name="total")
    colour = lang.stage(
        lambda c, y, x: lang.sum(weight[sy, sx, y, x] * near[c, y + sy, x + sx], axis=(sy, sx)), name="colour"
    )
    out = lang.stage(lambda c, y, x: lang.clamp(colour[c, y, x] / total[y, x], 0.0, 1.0), name="nl_means")
    return lang.program([image], out, name="nl_means", region=[3, h, w])


def reference(arrays: Mapping[str, Array]) -> Array:
    image = padded(arrays["image"].astype(np.float64), PATCH + SEARCH)
    middle = at(image, 0, 0, SEARCH)
    total, colour = 0, 0
    for dy in range(-SEARCH, SEARCH + 1):
        for dx in range(-SEARCH, SEARCH + 1):
            moved = at(image, dy, dx, SEARCH)
            d = ((middle - moved) ** 2).sum(axis=0)
            window = range(-PATCH, PATCH + 1)
            weight = np.exp(sum(at(d, py, px, PATCH) for py in window for px in window) * SCALE)
            total, colour = total + weight, colour + weight * at(moved, 0, 0, PATCH)
    return np.clip(colour / total, 0, 1).astype(np.float32)


def schedule(program: ir.Program) -> Schedule:
    """Weights of a tile for all shifts in the cache; what they are made of shift by shift."""
    s = Schedule(program).inline_stage("patch")
    y, c, x = (f"nl_means_{axis}" for axis in ("y", "c", "x"))
    s = s.split(y, 16).split(x, 128).reorder(f"{y}_o", f"{x}_o", f"{y}_i", c, f"{x}_i").parallel(f"{y}_o")
    for name in ("total", "colour", "weight"):
        s = s.compute_at(name, f"{x}_o")
    for name in ("rows", "different"):
        s = s.compute_at(name, "weight_dx")
    s = s.reorder("total_y", "total_sy", "total_sx", "total_x").decompose_init("total", "total_sy")
    s = s.reorder("colour_y", "colour_sy", "colour_sx", "colour_c", "colour_x")
    s = s.decompose_init("colour", "colour_sy")
    for block in s.blocks():
        s = s.vectorize(s.loops(block)[-1])
    return s


APPLICATION = Application(
    "nl_means",
    "Non-local means",
    program,
    lambda h, w: {"image": photo(h, w)},
    reference,
    small=(13, 21),
    large=(384, 640),
    schedule=schedule,
    picture=to_bytes,
)
