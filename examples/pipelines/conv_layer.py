"""A convolution layer of 3x3 windows with bias and ReLU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from application import Application, Array, shades
from tilewright import ir, lang

BATCH, CHANNELS = 5, 32


def program(h: int, w: int) -> ir.Program:
    image = lang.placeholder((BATCH, CHANNELS, h + 2, w + 2), name="image")
    weight = lang.placeholder((CHANNELS, CHANNELS, 3, 3), name="weight")
    bias = lang.placeholder((CHANNELS,), name="bias")
    ic, kh, kw = lang.reduce_axis(CHANNELS, "ic"), lang.reduce_axis(3, "kh"), lang.reduce_axis(3, "kw")
    conv = lang.stage(
        lambda n, oc, oh, ow: lang.sum(
            image[n, ic, oh + kh, ow + kw] * weight[oc, ic, kh, kw], axis=(ic, kh, kw)
        ),
        name="conv",
    )
    out = lang.stage(lambda n, oc, oh, ow: lang.relu(conv[n, oc, oh, ow] + bias[oc]), name="conv_layer")
    return lang.program([image, weight, bias], out, name="conv_layer", region=[BATCH, CHANNELS, h, w])


def inputs(h: int, w: int) -> dict[str, Array]:
    rng = np.random.default_rng(2)
    shapes = {
        "image": (BATCH, CHANNELS, h + 2, w + 2), "weight": (CHANNELS, CHANNELS, 3, 3), "bias": (CHANNELS,),
    }  # fmt: skip
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def reference(arrays: Mapping[str, Array]) -> Array:
    image, weight, bias = (a.astype(np.float64) for a in arrays.values())
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(2, 3))
    out = np.einsum("nihwkl,oikl->nohw", windows, weight, optimize=True) + bias[:, None, None]
    return np.maximum(out, 0).astype(np.float32)


APPLICATION = Application(
    "conv_layer",
    "Convolution layer",
    program,
    inputs,
    reference,
    small=(6, 9),
    large=(80, 100),
    picture=lambda out: shades(out[0, 0]),
)
