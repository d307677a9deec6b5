"""A depthwise convolution of 3x3 windows, a product over channels, bias and ReLU (Vanhoucke, 2014)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from application import Application, Array, shades
from tilewright import ir, lang
from tilewright.schedule import Schedule

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


def schedule(program: ir.Program) -> Schedule:
    """Four rows of the depthwise convolution in the cache, tiles of the product in registers."""
    s = Schedule(program).skip_padding("own")
    n, oc, y, x = (f"depthwise_separable_{axis}" for axis in ("n", "oc", "y", "x"))
    s = s.split(y, 4).split(oc, 8).split(x, 16)
    s = s.reorder(n, f"{y}_o", f"{y}_i", f"{x}_o", f"{oc}_o", f"{oc}_i", f"{x}_i")
    s = s.compute_at("joined", f"{oc}_o").set_scope("joined", "register").compute_at("own", f"{y}_o")
    s = s.reorder("joined_ic", "joined_oc", "joined_x").decompose_init("joined", "joined_ic")
    for nest in ("joined_oc_init", "joined_x_init"), ("joined_oc", "joined_x"), (f"{oc}_i", f"{x}_i"):
        s = s.unroll(nest[0]).vectorize(nest[1])
    s = s.split("own_x", 16).reorder("own_x_o", "own_kh", "own_kw", "own_x_i")
    s = s.cache("own", at="own_x_o", scope="register", mode="write", name="sum").decompose_init(
        "own", "own_kh"
    )
    s = s.unroll("own_kh").unroll("own_kw")
    s = s.vectorize("own_x_i_init").vectorize("own_x_i").vectorize("sum_out_x")
    # only the first and the last vector of a row reach into the padding
    s = s.partition("own_x_o", (1, -1))
    return s.fuse(n, f"{y}_o", names=["strip"]).parallel("strip")


APPLICATION = Application(
    "depthwise_separable",
    "Depthwise-separable convolution",
    program,
    inputs,
    reference,
    small=(12, 15),
    large=(112, 112),
    schedule=schedule,
    picture=lambda out: shades(out[0, 0]),
)
