"""A depthwise convolution of 3x3 windows, a product over channels, bias and ReLU (Vanhoucke, 2014)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from application import Application, Array, shades
from tilewright import ir, lang

BATCH, IN, OUT = 4, 32, 16


def program(h: int, w: int) -> ir.Program:
    image = lang.placeholder((BATCH, IN, h, w), name="image")
    depthwise = lang.placeholder((IN, 3, 3), name="depthwise")
    pointwise = lang.placeholder((OUT, IN), name="pointwise")
    bias = lang.placeholder((OUT,), name="bias")
    near = lang.boundary(image, value=0)
    ic, kh, kw = lang.reduce_axis(IN, "ic"), lang.reduce_axis(3, "kh"), lang.reduce_axis(3, "kw")
    own = lang.stage(
        lambda n, c, y, x: lang.sum(near[n, c, y + kh - 1, x + kw - 1] * depthwise[c, kh, kw], axis=(kh, kw)),
        name="own",
    )
    joined = lang.stage(
        lambda n, oc, y, x: lang.sum(own[n, ic, y, x] * pointwise[oc, ic], axis=ic), name="joined"
    )
    out = lang.stage(
        lambda n, oc, y, x: lang.relu(joined[n, oc, y, x] + bias[oc]), name="depthwise_separable"
    )
    ins = [image, depthwise, pointwise, bias]
    return lang.program(ins, out, name="depthwise_separable", region=[BATCH, OUT, h, w])


def inputs(h: int, w: int) -> dict[str, Array]:
    rng = np.random.default_rng(4)
    shapes = {"image": (BATCH, IN, h, w), "depthwise": (IN, 3, 3), "pointwise": (OUT, IN), "bias": (OUT,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def reference(arrays: Mapping[str, Array]) -> Array:
    image, depthwise, pointwise, bias = (a.astype(np.float64) for a in arrays.values())
    image = np.pad(image, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(2, 3))
    own = np.einsum("nchwkl,ckl->nchw", windows, depthwise)
    out = np.einsum("nchw,oc->nohw", own, pointwise) + bias[:, None, None]
    return np.maximum(out, 0).astype(np.float32)


APPLICATION = Application(
    "depthwise_separable",
    "Depthwise-separable convolution",
    program,
    inputs,
    reference,
    small=(12, 15),
    large=(112, 112),
    picture=lambda out: shades(out[0, 0]),
)
