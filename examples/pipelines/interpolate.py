"""Missing pixels filled from a pyramid: colours weighted by how much is known, coarse to fine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from application import Application, Array, to_bytes
from photo import photo
from strips import strip, vectors
from tilewright import ir, lang
from tilewright.schedule import Schedule

LEVELS = 8


def program(h: int, w: int) -> ir.Program:
    image = lang.placeholder((4, h, w), name="image")  # red, green, blue, alpha
    near = lang.boundary(image, mode="clamp")
    known = lang.stage(
        lambda c, y, x: lang.select(c < 3, near[lang.minimum(c, 2), y, x] * near[3, y, x], near[3, y, x]),
        name="known",
    )
    down = [known]
    for n in range(1, LEVELS):
        f = down[-1]
        across = lang.stage(
            lambda c, y, x, f=f: (f[c, y, 2 * x - 1] + 2 * f[c, y, 2 * x] + f[c, y, 2 * x + 1]) * 0.25,
            name=f"across{n}",
        )
        down.append(
            lang.stage(
                lambda c, y, x, f=across: (
                    (f[c, 2 * y - 1, x] + 2 * f[c, 2 * y, x] + f[c, 2 * y + 1, x]) * 0.25
                ),
                name=f"down{n}",
            )
        )
    filled = down[-1]
    for n in reversed(range(LEVELS - 1)):
        wider = lang.stage(
            lambda c, y, x, f=filled: (f[c, y, x // 2] + f[c, y, (x + 1) // 2]) * 0.5, name=f"wider{n}"
        )
        up = lang.stage(
            lambda c, y, x, f=wider: (f[c, y // 2, x] + f[c, (y + 1) // 2, x]) * 0.5, name=f"up{n}"
        )
        filled = lang.stage(
            lambda c, y, x, f=down[n], up=up: f[c, y, x] + (1 - f[3, y, x]) * up[c, y, x], name=f"filled{n}"
        )
    out = lang.stage(lambda c, y, x: filled[c, y, x] / filled[3, y, x], name="interpolate")
    return lang.program([image], out, name="interpolate", region=[3, h, w])


def inputs(h: int, w: int) -> dict[str, Array]:
    alpha = (np.random.default_rng(1).random((1, h, w)) < 0.1).astype(np.float32)
    alpha[:, ::5, ::5] = 1
    return {"image": np.concatenate([photo(h, w), alpha])}


def reference(arrays: Mapping[str, Array]) -> Array:
    image = arrays["image"].astype(np.float64)
    h, w = image.shape[1:]
    low, high = -(2**LEVELS), max(h, w) + 2**LEVELS + 1
    low, high = low, high + (high - low) % 2

    # every level holds the places from low_n on, which are those of even places of the level before
    place = np.arange(low, high)
    f = image[:, np.clip(place, 0, h - 1)][:, :, np.clip(place, 0, w - 1)]
    f = np.concatenate([f[:3] * f[3:], f[3:]])
    levels = [(place, f)]
    for _ in range(1, LEVELS):
        place = np.arange(-(-(place[0] + 1) // 2), (place[-1] - 1) // 2 + 1)
        before, g = levels[-1]
        for axis in (1, 2):
            mid = 2 * place - before[0]
            g = (g.take(mid - 1, axis) + 2 * g.take(mid, axis) + g.take(mid + 1, axis)) / 4
        levels.append((place, g))
    place, filled = levels[-1]
    for before, g in reversed(levels[:-1]):
        here = before[(before // 2 >= place[0]) & ((before + 1) // 2 <= place[-1])]
        up = filled
        for axis in (1, 2):
            up = (up.take(here // 2 - place[0], axis) + up.take((here + 1) // 2 - place[0], axis)) / 2
        part = slice(here[0] - before[0], here[-1] - before[0] + 1)
        g = g[:, part, part]
        place, filled = here, g + (1 - g[3:]) * up
    filled = filled[:, -place[0] :, -place[0] :][:, :h, :w]
    return (filled[:3] / filled[3:]).astype(np.float32)


def schedule(program: ir.Program) -> Schedule:
    """Each level in strips, resized along x in the cache just before it is along y."""
    s = Schedule(program)
    for n in range(LEVELS - 1):
        s = s.inline_stage(f"up{n}")
    s = strip(s, "known", 16)
    for n in range(1, LEVELS):
        s = strip(s, f"down{n}", 16, [f"across{n}"])
    for n in reversed(range(1, LEVELS - 1)):
        s = strip(s, f"filled{n}", 16, [f"wider{n}"])
    return vectors(strip(s, "interpolate", 16, ["filled0", "wider0"]))


APPLICATION = Application(
    "interpolate",
    "Interpolation of missing pixels",
    program,
    inputs,
    reference,
    small=(20, 36),
    schedule=schedule,
    picture=to_bytes,
)
