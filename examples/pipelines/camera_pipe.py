"""A camera's pipeline in integers: hot pixels, demosaicking, colour matrix, tone curve, sharpening."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from application import Application, Array, at
from photo import photo
from strips import strips
from tilewright import ir, lang
from tilewright.lang import Scalar, Tensor
from tilewright.schedule import Schedule

MARGIN = 12  # rows and columns of the raw image around the result
BITS = 10  # of a raw value
MATRIX = np.array([[429, -133, -40], [-58, 387, -73], [-5, -156, 417]])  # in 1/256
GAMMA, CONTRAST = 2.0, 50.0
STRENGTH = 32  # of the sharpening, in 1/32


def curve() -> Array:
    """The tone curve: an entry for each raw value."""
    x = np.arange(1 << BITS) / ((1 << BITS) - 1)
    g = x ** (1 / GAMMA)
    b = 2 - 2 ** (CONTRAST / 100)
    a = 2 - 2 * b
    z = np.where(g > 0.5, 1 - (a * (1 - g) ** 2 + b * (1 - g)), a * g**2 + b * g)
    return np.clip(z * 255 + 0.5, 0, 255).astype(np.uint8)


def program(h: int, w: int) -> ir.Program:
    raw = lang.placeholder((h + 2 * MARGIN, w + 2 * MARGIN), "u16", name="raw")  # green red / blue green
    tones = lang.placeholder((1 << BITS,), "u8", name="tones")
    value = lang.stage(lambda y, x: lang.cast(raw[y + MARGIN, x + MARGIN], "i32"), name="value")

    def calm(y, x):
        around = lang.maximum(
            lang.maximum(value[y - 2, x], value[y + 2, x]), lang.maximum(value[y, x - 2], value[y, x + 2])
        )
        return lang.clamp(value[y, x], 0, around)

    f = lang.stage(calm, name="calm")
    g_r = lang.stage(lambda y, x: f[2 * y, 2 * x], name="g_r")  # green in rows with red
    r_r = lang.stage(lambda y, x: f[2 * y, 2 * x + 1], name="r_r")
    b_b = lang.stage(lambda y, x: f[2 * y + 1, 2 * x], name="b_b")
    g_b = lang.stage(lambda y, x: f[2 * y + 1, 2 * x + 1], name="g_b")

    def smoother(a: tuple[Scalar, Scalar], b: tuple[Scalar, Scalar]) -> Scalar:
        """The average of the pair that differs less."""
        return lang.select(lang.absd(*a) < lang.absd(*b), lang.avg_round(*a), lang.avg_round(*b))

    g_at_r = lang.stage(
        lambda y, x: smoother((g_r[y, x], g_r[y, x + 1]), (g_b[y - 1, x], g_b[y, x])), name="g_at_r"
    )
    g_at_b = lang.stage(
        lambda y, x: smoother((g_b[y, x - 1], g_b[y, x]), (g_r[y, x], g_r[y + 1, x])), name="g_at_b"
    )

    def along(f: Tensor, g: Tensor, own: Tensor, dy: int, dx: int, name: str) -> Tensor:
        """A colour between two of its pixels, corrected by how green bends there."""

        def at_green(y, x):
            bend = own[y, x] - lang.avg_round(g[y, x], g[y + dy, x + dx])
            return bend + lang.avg_round(f[y, x], f[y + dy, x + dx])

        return lang.stage(at_green, name=name)

    r_at_gr = along(r_r, g_at_r, g_r, 0, -1, "r_at_gr")
    b_at_gr = along(b_b, g_at_b, g_r, -1, 0, "b_at_gr")
    r_at_gb = along(r_r, g_at_r, g_b, 1, 0, "r_at_gb")
    b_at_gb = along(b_b, g_at_b, g_b, 0, 1, "b_at_gb")

    def diagonal(f: Tensor, g: Tensor, own: Tensor, dy: int, dx: int, name: str) -> Tensor:
        """A colour in the middle of four of its pixels: along the diagonal that differs less."""

        def in_the_middle(y, x):
            pairs = [((y, x), (y + dy, x + dx)), ((y + dy, x), (y, x + dx))]
            d = [lang.absd(f[a], f[b]) for a, b in pairs]
            v = [own[y, x] - lang.avg_round(g[a], g[b]) + lang.avg_round(f[a], f[b]) for a, b in pairs]
            return lang.select(d[0] < d[1], v[0], v[1])

        return lang.stage(in_the_middle, name=name)

    b_at_r = diagonal(b_b, g_at_b, g_at_r, -1, 1, "b_at_r")
    r_at_b = diagonal(r_r, g_at_r, g_at_b, 1, -1, "r_at_b")

    def woven(a: Tensor, b: Tensor, c: Tensor, d: Tensor, name: str) -> Tensor:
        def pixel(y, x):
            at = y // 2, x // 2
            return lang.select(
                y % 2 == 0,
                lang.select(x % 2 == 0, a[at], b[at]),
                lang.select(x % 2 == 0, c[at], d[at]),
            )

        return lang.stage(pixel, name=name)

    red = woven(r_at_gr, r_r, r_at_b, r_at_gb, "red")
    green = woven(g_r, g_at_r, g_at_b, g_b, "green")
    blue = woven(b_at_gr, b_at_r, b_b, b_at_gb, "blue")

    def corrected(c, y, x):
        rgb = red[y, x], green[y, x], blue[y, x]
        rows = [sum(int(m) * v for m, v in zip(row, rgb, strict=True)) for row in MATRIX]
        return (lang.mux(c, rows) + 128) >> 8

    colour = lang.stage(corrected, name="colour")
    curved = lang.stage(
        lambda c, y, x: lang.cast(tones[lang.clamp(colour[c, y, x], 0, (1 << BITS) - 1)], "i32"),
        name="curved",
    )
    blurred = lang.stage(
        lambda c, y, x: lang.avg_round(
            lang.avg_round(curved[c, y - 1, x], curved[c, y + 1, x]), curved[c, y, x]
        ),
        name="blurred",
    )
    mask = lang.stage(
        lambda c, y, x: (
            curved[c, y, x]
            - lang.avg_round(lang.avg_round(blurred[c, y, x - 1], blurred[c, y, x + 1]), blurred[c, y, x])
        ),
        name="mask",
    )
    out = lang.stage(
        lambda c, y, x: lang.saturating_cast(curved[c, y, x] + (mask[c, y, x] * STRENGTH >> 5), "u8"),
        name="camera_pipe",
    )
    return lang.program([raw, tones], out, name="camera_pipe", region=[3, h, w])


def inputs(h: int, w: int) -> dict[str, Array]:
    rgb = photo(h + 2 * MARGIN, w + 2 * MARGIN) ** 2 * ((1 << BITS) - 1)
    raw = rgb[1].copy()
    raw[0::2, 1::2] = rgb[0, 0::2, 1::2]
    raw[1::2, 0::2] = rgb[2, 1::2, 0::2]
    raw[np.random.default_rng(5).random(raw.shape) < 0.001] = (1 << BITS) - 1
    return {"raw": raw.astype(np.uint16), "tones": curve()}


def reference(arrays: Mapping[str, Array]) -> Array:
    raw = arrays["raw"].astype(int)
    h, w = raw.shape[0] - 2 * MARGIN, raw.shape[1] - 2 * MARGIN
    f = raw.copy()
    inner = np.maximum.reduce([at(raw, dy, dx, 2) for dy, dx in ((-2, 0), (2, 0), (0, -2), (0, 2))])
    f[2:-2, 2:-2] = np.clip(f[2:-2, 2:-2], 0, inner)

    def moved(a: Array, dy: int, dx: int) -> Array:
        return np.roll(a, (-dy, -dx), (0, 1))  # what wraps around lies within the margin

    def avg(a: Array, b: Array) -> Array:
        return (a + b + 1) >> 1

    g_r, r_r, b_b, g_b = f[0::2, 0::2], f[0::2, 1::2], f[1::2, 0::2], f[1::2, 1::2]

    def smoother(a: Array, b: Array, c: Array, d: Array) -> Array:
        return np.where(abs(a - b) < abs(c - d), avg(a, b), avg(c, d))

    g_at_r = smoother(g_r, moved(g_r, 0, 1), moved(g_b, -1, 0), g_b)
    g_at_b = smoother(moved(g_b, 0, -1), g_b, g_r, moved(g_r, 1, 0))

    def along(f: Array, g: Array, own: Array, dy: int, dx: int) -> Array:
        return own - avg(g, moved(g, dy, dx)) + avg(f, moved(f, dy, dx))

    def diagonal(f: Array, g: Array, own: Array, dy: int, dx: int) -> Array:
        one, two = (
            ((f, moved(f, dy, dx)), (g, moved(g, dy, dx))),
            (
                (moved(f, dy, 0), moved(f, 0, dx)),
                (moved(g, dy, 0), moved(g, 0, dx)),
            ),
        )
        v = [own - avg(*gs) + avg(*fs) for fs, gs in (one, two)]
        return np.where(abs(one[0][0] - one[0][1]) < abs(two[0][0] - two[0][1]), v[0], v[1])

    planes = [
        [
            along(r_r, g_at_r, g_r, 0, -1),
            r_r,
            diagonal(r_r, g_at_r, g_at_b, 1, -1),
            along(r_r, g_at_r, g_b, 1, 0),
        ],
        [g_r, g_at_r, g_at_b, g_b],
        [
            along(b_b, g_at_b, g_r, -1, 0),
            diagonal(b_b, g_at_b, g_at_r, -1, 1),
            b_b,
            along(b_b, g_at_b, g_b, 0, 1),
        ],
    ]
    rgb = np.empty((3, *raw.shape), int)
    for c, (a, b, d, e) in enumerate(planes):
        rgb[c, 0::2, 0::2], rgb[c, 0::2, 1::2], rgb[c, 1::2, 0::2], rgb[c, 1::2, 1::2] = a, b, d, e
    colour = (np.tensordot(MATRIX, rgb, 1) + 128) >> 8
    curved = arrays["tones"].astype(int)[np.clip(colour, 0, (1 << BITS) - 1)]
    blurred = avg(avg(at(curved, -1, 0, 1), at(curved, 1, 0, 1)), at(curved, 0, 0, 1))
    mask = at(curved, 0, 0, 2) - avg(avg(at(blurred, 0, -1, 1), at(blurred, 0, 1, 1)), at(blurred, 0, 0, 1))
    out = np.clip(at(curved, 0, 0, 2) + (mask * STRENGTH >> 5), 0, 255).astype(np.uint8)
    return out[:, MARGIN - 2 :, MARGIN - 2 :][:, :h, :w]


def schedule(program: ir.Program) -> Schedule:
    """Tiles: every colour is found once at half size, woven, and curved once a row."""
    inlined = ("value", "g_r", "r_r", "b_b", "g_b", "colour", "mask")
    return strips(program, 64, inlined, ("blurred",), {"curved": 4}, columns=512)


APPLICATION = Application(
    "camera_pipe",
    "Camera pipeline",
    program,
    inputs,
    reference,
    small=(20, 34),
    schedule=schedule,
    tolerance=0,
    picture=lambda out: out,
)
