"""Harris corner detection: products of gradients summed over 3x3 windows (Harris & Stephens, 1988)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from application import Application, Array, at, to_bytes
from photo import photo
from strips import strips
from tilewright import ir, lang
from tilewright.lang import Scalar, Tensor
from tilewright.schedule import Schedule

WINDOW = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]


def program(h: int, w: int) -> ir.Program:
    image = lang.placeholder((3, h, w), name="image")
    gray = lang.stage(
        lambda y, x: 0.299 * image[0, y, x] + 0.587 * image[1, y, x] + 0.114 * image[2, y, x], name="gray"
    )

    def gradient(y: object, x: object, f: object) -> Scalar:
        return (f(-1, 1) - f(-1, -1) + (f(0, 1) - f(0, -1)) * 2.0 + f(1, 1) - f(1, -1)) * (1 / 12)

    ix = lang.stage(lambda y, x: gradient(y, x, lambda a, b: gray[y + a, x + b]), name="ix")
    iy = lang.stage(lambda y, x: gradient(y, x, lambda a, b: gray[y + b, x + a]), name="iy")

    def summed(a: Tensor, b: Tensor, name: str) -> Tensor:
        product = lang.stage(lambda y, x: a[y, x] * b[y, x], name=f"i{name}")
        return lang.stage(lambda y, x: sum(product[y + dy, x + dx] for dy, dx in WINDOW), name=f"s{name}")

    sxx, sxy, syy = summed(ix, ix, "xx"), summed(ix, iy, "xy"), summed(iy, iy, "yy")
    det = lang.stage(lambda y, x: sxx[y, x] * syy[y, x] - sxy[y, x] * sxy[y, x], name="det")
    trace = lang.stage(lambda y, x: sxx[y, x] + syy[y, x], name="trace")
    harris = lang.stage(lambda y, x: det[y, x] - 0.04 * trace[y, x] * trace[y, x], name="harris")
    return lang.program([image], harris, name="harris", region=[(2, h - 2), (2, w - 2)])


def reference(arrays: Mapping[str, Array]) -> Array:
    r, g, b = arrays["image"].astype(np.float64)
    gray = 0.299 * r + 0.587 * g + 0.114 * b
    ix = sum(c * (at(gray, d, 1, 1) - at(gray, d, -1, 1)) for d, c in ((-1, 1), (0, 2), (1, 1))) / 12
    iy = sum(c * (at(gray, 1, d, 1) - at(gray, -1, d, 1)) for d, c in ((-1, 1), (0, 2), (1, 1))) / 12
    sxx, sxy, syy = (sum(at(p, dy, dx, 1) for dy, dx in WINDOW) for p in (ix * ix, ix * iy, iy * iy))
    return (sxx * syy - sxy**2 - 0.04 * (sxx + syy) ** 2).astype(np.float32)


def schedule(program: ir.Program) -> Schedule:
    """Gray and gradients once a strip; everything else in registers."""
    return strips(program, 32, ("ixx", "ixy", "iyy", "sxx", "sxy", "syy", "det", "trace"))


APPLICATION = Application(
    "harris",
    "Harris corner detection",
    program,
    lambda h, w: {"image": photo(h, w)},
    reference,
    small=(37, 50),
    schedule=schedule,
    picture=lambda out: to_bytes(np.sqrt(np.abs(out) / np.abs(out).max())),
)
