"""A product of two matrices in single precision."""

from __future__ import annotations

import numpy as np

from application import Application, Array, shades
from tilewright import ir, lang


def program(h: int, w: int) -> ir.Program:
    A, B = lang.placeholder((h, w), name="A"), lang.placeholder((w, h), name="B")
    k = lang.reduce_axis(w, "k")
    C = lang.stage(lambda i, j: lang.sum(A[i, k] * B[k, j], axis=k), name="matmul")
    return lang.program([A, B], C, name="matmul", region=[h, h])


def inputs(h: int, w: int) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    return {"A": rng.normal(size=(h, w)).astype(np.float32), "B": rng.normal(size=(w, h)).astype(np.float32)}


APPLICATION = Application(
    "matmul",
    "Product of matrices",
    program,
    inputs,
    lambda arrays: (arrays["A"].astype(np.float64) @ arrays["B"]).astype(np.float32),
    small=(37, 53),
    large=(1024, 1024),
    picture=shades,
)
