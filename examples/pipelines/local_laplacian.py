"""Local Laplacian filter: detail made stronger at every scale, edges kept (Paris, Hasinoff & Kautz, 2011)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from application import Application, Array, Grid, to_bytes
from photo import photo
from pyramids import doubled, down, halved, levels_for, up
from strips import strip, vectors
from tilewright import ir, lang
from tilewright.schedule import Schedule

LEVELS = 8  # of the pyramid, at most
TONES = 8  # brightnesses for which a pyramid is made
ALPHA, BETA = 1 / (TONES - 1), 1.0
STEPS = 256  # of the table of the remapping, per tone
EPS = 0.01


def program(h: int, w: int) -> ir.Program:
    levels = levels_for(h, w, LEVELS)
    image = lang.placeholder((3, h, w), name="image")
    near = lang.boundary(image, mode="clamp")
    gray = lang.stage(
        lambda y, x: 0.299 * near[0, y, x] + 0.587 * near[1, y, x] + 0.114 * near[2, y, x], name="gray"
    )
    remap = lang.stage(
        lambda i: ALPHA * (i / float(STEPS)) * lang.exp(-0.5 * lang.square(i / float(STEPS))), name="remap"
    )

    def remapped(k, y, x):
        v = gray[y, x]
        step = lang.to_index(
            lang.clamp(lang.cast(v * float((TONES - 1) * STEPS), "i32"), 0, (TONES - 1) * STEPS)
        )
        tone = k * (1 / (TONES - 1))
        return BETA * (v - tone) + tone + remap[step - STEPS * k]

    tones = [lang.stage(remapped, name="tones0")]
    plain = [gray]
    for n in range(1, levels):
        tones.append(down(tones[-1], f"tones{n}"))
        plain.append(down(plain[-1], f"plain{n}"))
    out = None
    for n in reversed(range(levels)):
        detail = tones[n]
        if n < levels - 1:
            coarse = up(tones[n + 1], f"tones_up{n}")
            detail = lang.stage(
                lambda k, y, x, a=tones[n], b=coarse: a[k, y, x] - b[k, y, x], name=f"detail{n}"
            )

        def chosen(y, x, f=detail, g=plain[n]):
            level = g[y, x] * float(TONES - 1)
            k = lang.to_index(lang.clamp(lang.cast(level, "i32"), 0, TONES - 2))
            return lang.lerp(f[k, y, x], f[k + 1, y, x], level - lang.to_scalar(k, "f32"))

        wanted = lang.stage(chosen, name=f"wanted{n}")
        if out is None:
            out = wanted
        else:
            coarse = up(out, f"out_up{n}")
            out = lang.stage(lambda y, x, a=wanted, b=coarse: a[y, x] + b[y, x], name=f"out{n}")
    assert out is not None
    colour = lang.stage(
        lambda c, y, x: out[y, x] * (image[c, y, x] + EPS) / (gray[y, x] + EPS), name="local_laplacian"
    )
    return lang.program([image], colour, name="local_laplacian", region=[3, h, w])


def reference(arrays: Mapping[str, Array]) -> Array:
    image = arrays["image"]
    h, w = image.shape[1:]
    levels = levels_for(h, w, LEVELS)
    margin = 4 * 2**levels
    ys, xs = np.arange(-margin, h + margin), np.arange(-margin, w + margin)
    r, g, b = image[:, np.clip(ys, 0, h - 1)][:, :, np.clip(xs, 0, w - 1)]
    f32 = np.float32
    gray = f32(0.299) * r + f32(0.587) * g + f32(0.114) * b
    step = np.clip((gray * f32((TONES - 1) * STEPS)).astype(int), 0, (TONES - 1) * STEPS)
    k = np.arange(TONES)[:, None, None]
    fx = (step - STEPS * k) / STEPS
    tone = k / (TONES - 1)
    first = BETA * (gray.astype(np.float64) - tone) + tone + ALPHA * fx * np.exp(-0.5 * fx**2)

    tones, plain = [Grid(first, -margin, -margin)], [Grid(gray.astype(np.float64), -margin, -margin)]
    for _ in range(1, levels):
        tones.append(halved(tones[-1]))
        plain.append(halved(plain[-1]))
    out: Grid | None = None
    for n in reversed(range(levels)):
        coarse, rows, columns = 0, np.array(tones[n].rows), np.array(tones[n].columns)
        finer = 0
        if out is not None:  # where the coarser level has all that is read
            coarse, rows, columns = doubled(out, tones[n])
            finer = doubled(tones[n + 1], Grid(coarse, rows[0], columns[0]))[0]
        detail = tones[n].at(rows, columns) - finer
        level = plain[n].at(rows, columns) * (TONES - 1)
        k = np.clip(level.astype(int), 0, TONES - 2)
        weight = level - k
        low, high = (np.take_along_axis(detail, (k + d)[None], 0)[0] for d in (0, 1))
        wanted = low * (1 - weight) + high * weight
        out = Grid(wanted + coarse, rows[0], columns[0])
    assert out is not None
    ys, xs = np.arange(h), np.arange(w)
    ratio = out.at(ys, xs) / (plain[0].at(ys, xs) + EPS)
    return (ratio * (image + EPS)).astype(np.float32)


def schedule(program: ir.Program) -> Schedule:
    """Each level of each pyramid in strips; on the way back a strip has what it is mixed from."""
    s = Schedule(program)
    assert s.program is not None
    levels = sum(stage.name.startswith("wanted") for stage in s.program.stages)
    s = strip(strip(s, "gray", 16), "tones0", 16)
    for n in range(1, levels):
        for pyramid in ("tones", "plain"):
            s = strip(s, f"{pyramid}{n}", 16, [f"{pyramid}{n}_x"], plane=True)
    mixed = ("out_up{}", "out_up{}_x", "wanted{}", "detail{}", "tones_up{}", "tones_up{}_x")
    s = strip(s, f"wanted{levels - 1}", 16)
    for n in reversed(range(1, levels - 1)):
        s = strip(s, f"out{n}", 16, [name.format(n) for name in mixed])
    return vectors(strip(s, "local_laplacian", 16, ["out0", *(name.format(0) for name in mixed)]))


APPLICATION = Application(
    "local_laplacian",
    "Local Laplacian filter",
    program,
    lambda h, w: {"image": photo(h, w)},
    reference,
    small=(18, 24),
    schedule=schedule,
    tolerance=2e-5,
    flips=1e-2,
    picture=to_bytes,
)
