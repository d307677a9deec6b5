"""A product of two matrices in single precision."""

from __future__ import annotations

import numpy as np

from application import Application, Array, shades
from tilewright import ir, lang
from tilewright.schedule import Schedule


def program(h: int, w: int) -> ir.Program:
    A, B = lang.placeholder((h, w), name="A"), lang.placeholder((w, h), name="B")
    k = lang.reduce_axis(w, "k")
    C = lang.stage(lambda i, j: lang.sum(A[i, k] * B[k, j], axis=k), name="matmul")
    return lang.program([A, B], C, name="matmul", region=[h, h])


def inputs(h: int, w: int) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    return {"A": rng.normal(size=(h, w)).astype(np.float32), "B": rng.normal(size=(w, h)).astype(np.float32)}


def schedule(program: ir.Program) -> Schedule:
    """Tiles of 6 x 64 in registers, over columns of ``B`` that were copied side by side."""
    s = Schedule(program)
    s = s.split("j", 64).split("j_o", 8).split("i", 6)
    s = s.reorder("j_o_o", "j_o_i", "i_o", "k", "i_i", "j_i")
    s = s.cache("matmul", at="i_o", scope="register", mode="write", name="tile")
    s = s.cache("B", at="j_o_i", name="panel").vectorize("panel_j")
    s = s.decompose_init("matmul", "k")
    for nest in ("i_i_init", "j_i_init"), ("i_i", "j_i"), ("tile_out_i", "tile_out_j"):
        s = s.unroll(nest[0]).vectorize(nest[1])
    return s.partition("i_o", -1).parallel("j_o_o")  # all tiles but the last row's are whole


APPLICATION = Application(
    "matmul",
    "Product of matrices",
    program,
    inputs,
    lambda arrays: (arrays["A"].astype(np.float64) @ arrays["B"]).astype(np.float32),
    small=(37, 53),
    large=(1024, 1024),
    schedule=schedule,
    picture=shades,
)
