"""The camera pipeline of ``examples/pipelines/camera_pipe.py`` in Halide, in the same integers."""

from collections.abc import Callable
from typing import Any

import camera_pipe


def camera_pipeline(hl: Any, raw: Any, tones: Any) -> Any:
    """Halide's function of a raw image of 16 bits, with its margin, and a tone curve; indices ``x, y, c``.

    ``hl`` is the module. Values are i32 between the two, as ours are: averages that round up, differences and
    shifts are exact there, so both compute the same bits.
    """
    x, y, c = (hl.Var(n) for n in "xyc")
    margin = camera_pipe.MARGIN
    avg = hl.rounding_halving_add

    def stage(name: str, value: Callable[[Any, Any], Any]) -> Any:
        """A function of a row and a column: ``value(y, x)``, in the order of our own."""
        f = hl.Func(name)
        f[x, y] = value(y, x)
        return f

    value = stage("value", lambda y, x: hl.i32(raw[x + margin, y + margin]))

    def calm(y: Any, x: Any) -> Any:
        around = hl.max(hl.max(value[x, y - 2], value[x, y + 2]), hl.max(value[x - 2, y], value[x + 2, y]))
        return hl.clamp(value[x, y], 0, around)

    f = stage("calm", calm)
    g_r = stage("g_r", lambda y, x: f[2 * x, 2 * y])
    r_r = stage("r_r", lambda y, x: f[2 * x + 1, 2 * y])
    b_b = stage("b_b", lambda y, x: f[2 * x, 2 * y + 1])
    g_b = stage("g_b", lambda y, x: f[2 * x + 1, 2 * y + 1])

    def smoother(a: Any, b: Any, c: Any, d: Any) -> Any:
        return hl.select(hl.absd(a, b) < hl.absd(c, d), avg(a, b), avg(c, d))

    g_at_r = stage("g_at_r", lambda y, x: smoother(g_r[x, y], g_r[x + 1, y], g_b[x, y - 1], g_b[x, y]))
    g_at_b = stage("g_at_b", lambda y, x: smoother(g_b[x - 1, y], g_b[x, y], g_r[x, y], g_r[x, y + 1]))

    def along(name: str, f: Any, g: Any, own: Any, dy: int, dx: int) -> Any:
        def at_green(y: Any, x: Any) -> Any:
            bend = own[x, y] - avg(g[x, y], g[x + dx, y + dy])
            return bend + avg(f[x, y], f[x + dx, y + dy])

        return stage(name, at_green)

    r_at_gr = along("r_at_gr", r_r, g_at_r, g_r, 0, -1)
    b_at_gr = along("b_at_gr", b_b, g_at_b, g_r, -1, 0)
    r_at_gb = along("r_at_gb", r_r, g_at_r, g_b, 1, 0)
    b_at_gb = along("b_at_gb", b_b, g_at_b, g_b, 0, 1)

    def diagonal(name: str, f: Any, g: Any, own: Any, dy: int, dx: int) -> Any:
        def in_the_middle(y: Any, x: Any) -> Any:
            pairs = [((x, y), (x + dx, y + dy)), ((x, y + dy), (x + dx, y))]
            d = [hl.absd(f[a], f[b]) for a, b in pairs]
            v = [own[x, y] - avg(g[a], g[b]) + avg(f[a], f[b]) for a, b in pairs]
            return hl.select(d[0] < d[1], v[0], v[1])

        return stage(name, in_the_middle)

    b_at_r = diagonal("b_at_r", b_b, g_at_b, g_at_r, -1, 1)
    r_at_b = diagonal("r_at_b", r_r, g_at_r, g_at_b, 1, -1)

    def woven(name: str, a: Any, b: Any, c: Any, d: Any) -> Any:
        def pixel(y: Any, x: Any) -> Any:
            even = x % 2 == 0
            at = x // 2, y // 2
            return hl.select(y % 2 == 0, hl.select(even, a[at], b[at]), hl.select(even, c[at], d[at]))

        return stage(name, pixel)

    red = woven("red", r_at_gr, r_r, r_at_b, r_at_gb)
    green = woven("green", g_r, g_at_r, g_at_b, g_b)
    blue = woven("blue", b_at_gr, b_at_r, b_b, b_at_gb)
    colour, curved, blurred, mask, out = (
        hl.Func(n) for n in ("colour", "curved", "blurred", "mask", "camera_pipe")
    )
    rows = [
        int(m[0]) * red[x, y] + int(m[1]) * green[x, y] + int(m[2]) * blue[x, y] for m in camera_pipe.MATRIX
    ]
    colour[x, y, c] = (hl.mux(c, rows) + 128) >> 8
    curved[x, y, c] = hl.i32(tones[hl.clamp(colour[x, y, c], 0, (1 << camera_pipe.BITS) - 1)])
    blurred[x, y, c] = avg(avg(curved[x, y - 1, c], curved[x, y + 1, c]), curved[x, y, c])
    mask[x, y, c] = curved[x, y, c] - avg(avg(blurred[x - 1, y, c], blurred[x + 1, y, c]), blurred[x, y, c])
    out[x, y, c] = hl.u8_sat(curved[x, y, c] + (mask[x, y, c] * camera_pipe.STRENGTH >> 5))
    return out
