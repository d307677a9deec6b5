"""A convolution layer of 3x3 windows with bias and ReLU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from application import Application, Array, shades
from tilewright import ir, lang
from tilewright.schedule import Schedule

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


def schedule(program: ir.Program) -> Schedule:
    """Tiles of 8 channels and 16 columns are summed in registers, and leave them with bias and ReLU."""
    s = Schedule(program)
    s = s.split("conv_layer_oc", 8).split("conv_layer_ow", 16)
    s = s.reorder(
        "conv_layer_n",
        "conv_layer_oh",
        "conv_layer_oc_o",
        "conv_layer_ow_o",
        "conv_layer_oc_i",
        "conv_layer_ow_i",
    )
    s = s.compute_at("conv", "conv_layer_ow_o").set_scope("conv", "register")
    s = s.reorder("conv_ic", "conv_kh", "conv_kw", "conv_oc", "conv_ow").decompose_init("conv", "conv_ic")
    for nest in (
        ("conv_oc_init", "conv_ow_init"),
        ("conv_oc", "conv_ow"),
        ("conv_layer_oc_i", "conv_layer_ow_i"),
    ):
        s = s.unroll(nest[0]).vectorize(nest[1])
    return s.fuse("conv_layer_n", "conv_layer_oh", names=["row"]).parallel("row")


APPLICATION = Application(
    "conv_layer",
    "Convolution layer",
    program,
    inputs,
    reference,
    small=(6, 9),
    large=(80, 100),
    schedule=schedule,
    picture=lambda out: shades(out[0, 0]),
)
