"""A chain of 32 stencils of 5x5 points on integers of 16 bits: nothing but locality to be had."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from application import Application, Array, at, padded, shades
from photo import photo
from tilewright import ir, lang
from tilewright.schedule import Schedule

STAGES = 32
WINDOW = [(dy, dx) for dy in range(-2, 3) for dx in range(-2, 3)]


def program(h: int, w: int, stages: int = STAGES) -> ir.Program:
    image = lang.placeholder((h, w), "u16", name="image")
    near = lang.boundary(image, mode="clamp")
    f = lang.stage(lambda y, x: near[y, x], name="f0")
    for n in range(1, stages + 1):
        f = lang.stage(
            lambda y, x, f=f: sum(f[y + dy, x + dx] * ((dy + 3) * (dx + 3)) for dy, dx in WINDOW),
            name=f"f{n}",
        )
    return lang.program([image], f, name="stencil_chain", region=[h, w])


def reference(arrays: Mapping[str, Array]) -> Array:
    f = padded(arrays["image"], 2 * STAGES)
    for _ in range(STAGES):
        f = sum(at(f, dy, dx, 2) * np.uint16((dy + 3) * (dx + 3)) for dy, dx in WINDOW).astype(np.uint16)
    return f


def schedule(program: ir.Program) -> Schedule:
    """Strips of 64 rows go through four stages in the cache: more would repeat too much at their borders."""
    s = Schedule(program).inline_stage("f0")
    for n in range(4, len(program.stages), 4):
        y = s.loops(f"f{n}")[0]
        s = s.split(y, 64).parallel(f"{y}_o")
        for before in (n - 1, n - 2, n - 3):
            s = s.compute_at(f"f{before}", f"{y}_o")
    for block in s.blocks():
        s = s.vectorize(s.loops(block)[-1])
    return s


APPLICATION = Application(
    "stencil_chain",
    "Chain of 32 stencils",
    program,
    lambda h, w: {"image": (photo(h, w)[0] * 1023).astype(np.uint16)},
    reference,
    small=(10, 17),
    schedule=schedule,
    tolerance=0,
    picture=shades,
)
