"""Unsharp mask: what a Gaussian blur takes away is added once more."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, pi, sqrt

import numpy as np

from application import Application, Array, at, padded, to_bytes
from photo import photo
from strips import strips
from tilewright import ir, lang
from tilewright.schedule import Schedule

SIGMA = 1.5
KERNEL = [exp(-(d**2) / (2 * SIGMA**2)) / (sqrt(2 * pi) * SIGMA) for d in range(4)]


def program(h: int, w: int) -> ir.Program:
    image = lang.placeholder((3, h, w), name="image")
    near = lang.boundary(image, mode="clamp")
    gray = lang.stage(
        lambda y, x: 0.299 * near[0, y, x] + 0.587 * near[1, y, x] + 0.114 * near[2, y, x], name="gray"
    )
    blur_y = lang.stage(
        lambda y, x: (
            KERNEL[0] * gray[y, x] + sum(KERNEL[d] * (gray[y - d, x] + gray[y + d, x]) for d in (1, 2, 3))
        ),
        name="blur_y",
    )
    blur_x = lang.stage(
        lambda y, x: (
            KERNEL[0] * blur_y[y, x]
            + sum(KERNEL[d] * (blur_y[y, x - d] + blur_y[y, x + d]) for d in (1, 2, 3))
        ),
        name="blur_x",
    )
    sharpen = lang.stage(lambda y, x: 2 * gray[y, x] - blur_x[y, x], name="sharpen")
    ratio = lang.stage(lambda y, x: sharpen[y, x] / lang.maximum(gray[y, x], 0.01), name="ratio")
    unsharp = lang.stage(lambda c, y, x: ratio[y, x] * image[c, y, x], name="unsharp")
    return lang.program([image], unsharp, name="unsharp", region=[3, h, w])


def reference(arrays: Mapping[str, Array]) -> Array:
    image = arrays["image"].astype(np.float64)
    r, g, b = padded(image, 3)
    gray = 0.299 * r + 0.587 * g + 0.114 * b
    blur = sum(
        KERNEL[abs(dy)] * KERNEL[abs(dx)] * at(gray, dy, dx, 3) for dy in range(-3, 4) for dx in range(-3, 4)
    )
    inner = at(gray, 0, 0, 3)
    return ((2 * inner - blur) / np.maximum(inner, 0.01) * image).astype(np.float32)


def schedule(program: ir.Program) -> Schedule:
    """Gray once a tile, the blur and the ratio row by row."""
    return strips(program, 64, ("blur_x", "sharpen"), ("blur_y", "ratio"), columns=512)


APPLICATION = Application(
    "unsharp",
    "Unsharp mask",
    program,
    lambda h, w: {"image": photo(h, w)},
    reference,
    small=(29, 45),
    schedule=schedule,
    picture=to_bytes,
)
