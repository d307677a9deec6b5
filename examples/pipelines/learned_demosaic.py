"""Demosaicking by a small network at half resolution, after Gharbi et al. (SIGGRAPH Asia 2016).

The four colours of the mosaic become channels; layers of 3x3 convolutions with ReLU predict twelve residuals,
which are woven back to full size and added to what bilinear interpolation finds. The weights are random here.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from application import Application, Array, to_bytes
from photo import photo
from strips import strip
from tilewright import ir, lang
from tilewright.schedule import Schedule

LAYERS, WIDTH = 3, 16
CHANNELS = [4, *[WIDTH] * (LAYERS - 1), 12]
MARGIN = 2 * (LAYERS + 1)
COLOUR = ((1, 0), (2, 1))  # green red / blue green


def program(h: int, w: int) -> ir.Program:
    mosaic = lang.placeholder((h + 2 * MARGIN, w + 2 * MARGIN), name="mosaic")
    weights = [
        lang.placeholder((n, m, 3, 3), name=f"weight{i}") for i, (m, n) in enumerate(pairwise(CHANNELS))
    ]
    biases = [lang.placeholder((n,), name=f"bias{i}") for i, n in enumerate(CHANNELS[1:])]
    raw = lang.stage(lambda y, x: mosaic[y + MARGIN, x + MARGIN], name="raw")
    f = lang.stage(
        lambda c, y, x: lang.mux(c, [raw[2 * y + a, 2 * x + b] for a in (0, 1) for b in (0, 1)]),
        name="packed",
    )
    kh, kw = (lang.reduce_axis((-1, 2), n) for n in ("kh", "kw"))
    for n, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        ic = lang.reduce_axis(CHANNELS[n], "ic")
        conv = lang.stage(
            lambda c, y, x, f=f, weight=weight, ic=ic: lang.sum(
                f[ic, y + kh, x + kw] * weight[c, ic, kh + 1, kw + 1], axis=(ic, kh, kw)
            ),
            name=f"conv{n}",
        )
        if n < LAYERS - 1:
            f = lang.stage(
                lambda c, y, x, f=conv, bias=bias: lang.relu(f[c, y, x] + bias[c]), name=f"layer{n}"
            )
        else:
            f = lang.stage(lambda c, y, x, f=conv, bias=bias: f[c, y, x] + bias[c], name="residual")

    def known(c, y, x):
        """The colour where the mosaic has it, else 0."""
        colours = lang.mux((y % 2) * 2 + x % 2, [colour for row in COLOUR for colour in row])
        return lang.select(colours == lang.to_scalar(c), raw[y, x], 0.0)

    plane = lang.stage(known, name="plane")
    tent = [(-1, 0.5), (0, 1.0), (1, 0.5)]
    near = lang.stage(
        lambda c, y, x: sum(plane[c, y + dy, x + dx] * (a * b) for dy, a in tent for dx, b in tent),
        name="near",
    )
    out = lang.stage(
        lambda c, y, x: lang.clamp(
            near[c, y, x] * lang.select(c == 1, 0.5, 1.0) + f[c * 4 + (y % 2) * 2 + x % 2, y // 2, x // 2],
            0.0,
            1.0,
        ),
        name="learned_demosaic",
    )
    return lang.program([mosaic, *weights, *biases], out, name="learned_demosaic", region=[3, h, w])


def inputs(h: int, w: int) -> dict[str, Array]:
    rng = np.random.default_rng(6)
    rgb = photo(h + 2 * MARGIN, w + 2 * MARGIN)
    mosaic = np.empty(rgb.shape[1:], np.float32)
    for a in (0, 1):
        for b in (0, 1):
            mosaic[a::2, b::2] = rgb[COLOUR[a][b], a::2, b::2]
    out = {"mosaic": mosaic}
    for i, (m, n) in enumerate(pairwise(CHANNELS)):
        out[f"weight{i}"] = (rng.normal(size=(n, m, 3, 3)) * 0.3 / m**0.5).astype(np.float32)
    for i, n in enumerate(CHANNELS[1:]):
        out[f"bias{i}"] = rng.normal(0, 0.02, n).astype(np.float32)
    return out


def reference(arrays: Mapping[str, Array]) -> Array:
    mosaic = arrays["mosaic"].astype(np.float64)
    f = np.stack([mosaic[a::2, b::2] for a in (0, 1) for b in (0, 1)])
    for n in range(LAYERS):
        windows = np.lib.stride_tricks.sliding_window_view(f, (3, 3), axis=(1, 2))
        f = np.einsum("cyxkl,ockl->oyx", windows, arrays[f"weight{n}"]) + arrays[f"bias{n}"][:, None, None]
        f = np.maximum(f, 0) if n < LAYERS - 1 else f
    f = f[:, 1:-1, 1:-1]  # half the margin is larger by one than the layers need
    h, w = 2 * f.shape[1], 2 * f.shape[2]
    planes = np.zeros((3, *mosaic.shape))
    residual = np.empty((3, h, w))
    for a in (0, 1):
        for b in (0, 1):
            planes[COLOUR[a][b], a::2, b::2] = mosaic[a::2, b::2]
            residual[:, a::2, b::2] = f[2 * a + b :: 4]
    rolled = [
        np.roll(planes, (dy, dx), (1, 2)) / 2 ** (abs(dy) + abs(dx)) for dy in (-1, 0, 1) for dx in (-1, 0, 1)
    ]
    near = sum(rolled)[:, MARGIN:, MARGIN:][:, :h, :w] * np.array([1, 0.5, 1])[:, None, None]
    return np.clip(near + residual, 0, 1).astype(np.float32)


def schedule(program: ir.Program) -> Schedule:
    """Layers in tiles of channels and columns that are summed in registers; the mosaic in strips."""
    s = Schedule(program).inline_stage("raw")
    c, y, x = s.loops("packed")
    s = s.reorder(y, c, x).parallel(y).unroll(c).vectorize(x)
    for conv, layer, channels, columns in (
        ("conv0", "layer0", 8, 48),
        ("conv1", "layer1", 8, 48),
        ("conv2", "residual", 4, 80),
    ):
        c, y, x = s.loops(layer)
        s = (
            s.split(c, channels)
            .split(x, columns)
            .reorder(y, f"{x}_o", f"{c}_o", f"{c}_i", f"{x}_i")
            .parallel(y)
        )
        s = s.compute_at(conv, f"{c}_o").set_scope(conv, "register")
        s = s.reorder(*(f"{conv}_{axis}" for axis in ("ic", "kh", "kw", "c", "x")))
        s = s.decompose_init(conv, f"{conv}_ic")
        for nest in (
            (f"{conv}_c_init", f"{conv}_x_init"),
            (f"{conv}_c", f"{conv}_x"),
            (f"{c}_i", f"{x}_i"),
        ):
            s = s.unroll(nest[0]).vectorize(nest[1])
    s = strip(s, "learned_demosaic", 8, ["near", "plane"], plane=True)
    for block in ("plane", "near", "learned_demosaic"):
        s = s.vectorize(s.loops(block)[-1])
    return s


APPLICATION = Application(
    "learned_demosaic",
    "Learned demosaicking",
    program,
    inputs,
    reference,
    small=(12, 20),
    schedule=schedule,
    picture=to_bytes,
)
