"""A shallow depth of field from a stereo pair: depth by matching, blur by random samples of the aperture."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from application import Application, Array, Grid
from photo import photo
from pyramids import doubled, down, halved, levels_for, up
from strips import strip, vectors
from tilewright import ir, lang
from tilewright.schedule import Schedule

SLICES = 32  # depths, each of two pixels of disparity
FOCUS = 13  # the depth that is sharp
SCALE = 0.5  # of the radius of the blur, per slice
LEVELS = 8  # of the pyramid that fills in unsure depths, at most
SAMPLES = 32
RADIUS = int(SCALE * max(SLICES - FOCUS, FOCUS)) + 1


def program(h: int, w: int) -> ir.Program:
    levels = levels_for(h, w, LEVELS)
    left, right = (lang.placeholder((3, h, w), "u8", name=n) for n in ("left", "right"))
    near, far = (lang.boundary(t, mode="clamp") for t in (left, right))

    def difference(z, c, y, x):
        one, two = (lang.absd(near[c, y, x], far[c, y, x + 2 * z + d]) for d in (0, 1))
        return lang.cast(lang.minimum(one, two), "f32")

    cost = lang.stage(lambda z, y, x: sum(lang.square(difference(z, c, y, x)) for c in range(3)), name="cost")
    k = lang.reduce_axis(SLICES, "k")

    def confidence(y, x):
        squares, mean = lang.sum(lang.square(cost[k, y, x]), axis=k), lang.sum(cost[k, y, x], axis=k)
        return squares * (1 / SLICES) - lang.square(mean * (1 / SLICES))

    sure = lang.stage(confidence, name="sure")
    # the last slice holds the weights of the others
    f = lang.stage(
        lambda z, y, x: lang.select(z < SLICES, cost[lang.minimum(z, SLICES - 1), y, x], 1.0) * sure[y, x],
        name="push0",
    )
    push = [f]
    for n in range(1, levels):
        push.append(down(push[-1], f"push{n}"))
    pull = push[-1]
    for n in reversed(range(levels - 1)):
        wider = up(pull, f"up{n}")
        pull = lang.stage(
            lambda z, y, x, a=wider, b=push[n]: lang.lerp(a[z, y, x], b[z, y, x], 0.5), name=f"pull{n}"
        )
    filtered = lang.stage(
        lambda z, y, x: pull[z, y, x] / lang.maximum(pull[SLICES, y, x], 1e-6), name="filtered"
    )
    depth = lang.stage(lambda y, x: lang.argmin(filtered[k, y, x], axis=k), name="depth")
    radius = lang.stage(lambda y, x: lang.cast(abs(depth[y, x] - FOCUS), "f32") * SCALE, name="radius")
    worst_x = lang.stage(lambda y, x: largest(lambda d: radius[y, x + d]), name="worst_x")
    worst = lang.stage(lambda y, x: largest(lambda d: worst_x[y + d, x]), name="worst")

    s = lang.reduce_axis(SAMPLES, "s")

    def offset(seed: int, t, y, x):
        u = (lang.random(seed, t, y, x) - 0.5) * 2 * worst[y, x]
        return lang.clamp(lang.cast(u, "i32"), -RADIUS, RADIUS)

    dy = lang.stage(lambda t, y, x: offset(1, t, y, x), name="dy")
    dx = lang.stage(lambda t, y, x: offset(2, t, y, x), name="dx")

    def weight_of(t, y, x):
        v, u = (lang.clamp(d[t, y, x], -RADIUS, RADIUS) for d in (dy, dx))
        place = y + lang.to_index(v), x + lang.to_index(u)
        distance = lang.square(lang.cast(v, "f32")) + lang.square(lang.cast(u, "f32"))
        reaches = distance < lang.square(radius[place])
        sees = distance < lang.square(radius[y, x])
        return lang.select((sees | (depth[place] < depth[y, x])) & reaches, 1.0, 0.0)

    weight = lang.stage(weight_of, name="weight")

    def sample(c, t, y, x):
        v, u = (lang.to_index(lang.clamp(d[t, y, x], -RADIUS, RADIUS)) for d in (dy, dx))
        return weight[t, y, x] * lang.cast(near[c, y + v, x + u], "f32")

    colour = lang.stage(lambda c, y, x: lang.sum(sample(c, s, y, x), axis=s), name="colour")
    total = lang.stage(lambda y, x: lang.sum(weight[s, y, x], axis=s), name="total")
    out = lang.stage(
        lambda c, y, x: (colour[c, y, x] + lang.cast(left[c, y, x], "f32")) / (total[y, x] + 1),
        name="lens_blur",
    )
    return lang.program([left, right], out, name="lens_blur", region=[3, h, w])


def largest(f) -> lang.Scalar:
    out = f(-RADIUS)
    for d in range(-RADIUS + 1, RADIUS + 1):
        out = lang.maximum(out, f(d))
    return out


def inputs(h: int, w: int) -> dict[str, Array]:
    scene = (photo(h, w + 2 * SLICES) * 255).astype(np.uint8)
    near = np.arange(h) * SLICES // h  # the ground comes nearer towards the bottom
    left = scene[:, :, :w]
    right = np.stack([np.roll(scene[:, y], 2 * int(near[y]), axis=-1)[:, :w] for y in range(h)], axis=1)
    return {"left": np.ascontiguousarray(left), "right": right}


def mixed(value: Array) -> Array:
    """What ``lang.random`` mixes the bits with."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        value = (value ^ (value >> np.uint32(shift))) * np.uint32(factor)
    return value


def random(seed: int, *indices: Array) -> Array:
    """``lang.random`` in numpy."""
    value = np.array([seed], np.uint32)
    for i in indices:
        value = mixed(value * np.uint32(0x9E3779B9) + i.astype(np.int64).astype(np.uint32))
    return (mixed(value) >> np.uint32(8)).astype(np.float32) / np.float32(1 << 24)


def reference(arrays: Mapping[str, Array]) -> Array:
    left, right = arrays["left"], arrays["right"]
    h, w = left.shape[1:]
    levels = levels_for(h, w, LEVELS)
    margin = 4 * 2**levels + 2 * RADIUS
    ys, xs = np.arange(-margin, h + margin), np.arange(-margin, w + margin)

    def l_at(y: Array, x: Array) -> Array:
        return left[:, np.clip(y, 0, h - 1), np.clip(x, 0, w - 1)].astype(int)

    own = l_at(ys[:, None], xs)
    cost = []
    for z in range(SLICES):
        pair = [
            abs(own - right[:, np.clip(ys, 0, h - 1)[:, None], np.clip(xs + 2 * z + d, 0, w - 1)])
            for d in (0, 1)
        ]
        cost.append((np.minimum(*pair) ** 2).sum(axis=0))
    c = np.stack(cost).astype(np.float64)
    sure = (c**2).mean(axis=0) - c.mean(axis=0) ** 2
    push = [Grid(np.concatenate([c, np.ones_like(c[:1])]) * sure, -margin, -margin)]
    for _ in range(1, levels):
        push.append(halved(push[-1]))
    pull = push[-1]
    for f in reversed(push[:-1]):
        wide, rows, columns = doubled(pull, f)
        pull = Grid((wide + f.at(rows, columns)) / 2, rows[0], columns[0])
    around = 2 * RADIUS
    ys, xs = np.arange(-around, h + around), np.arange(-around, w + around)
    cost = pull.at(ys, xs)
    depth = (cost[:SLICES] / np.maximum(cost[SLICES], 1e-6)).argmin(axis=0)
    radius = (abs(depth - FOCUS) * SCALE).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(radius, (2 * RADIUS + 1, 2 * RADIUS + 1))
    worst = windows.max(axis=(2, 3))[RADIUS:-RADIUS, RADIUS:-RADIUS]
    y, x = np.mgrid[0:h, 0:w]
    colour, total = left.astype(np.float64), np.ones((h, w))
    for s in range(SAMPLES):
        v, u = (
            np.clip(
                ((random(seed, np.array([s]), y, x) - np.float32(0.5)) * 2 * worst).astype(int),
                -RADIUS,
                RADIUS,
            )
            for seed in (1, 2)
        )
        there, here = (y + v + around, x + u + around), (y + around, x + around)
        distance = v**2 + u**2
        weight = ((distance < radius[here] ** 2) | (depth[there] < depth[here])) & (
            distance < radius[there] ** 2
        )
        colour += weight * l_at(y + v, x + u)
        total += weight
    return (colour / total).astype(np.float32)


def schedule(program: ir.Program) -> Schedule:
    """Costs and the pyramid in strips, slice by slice; samples of the aperture in tiles."""
    s = Schedule(program)
    assert s.program is not None
    levels = sum(stage.name.startswith("pull") for stage in s.program.stages) + 1
    for name in ("filtered", *(f"up{n}" for n in range(levels - 1))):
        s = s.inline_stage(name)
    s = strip(s, "push0", 4, ["sure", "sure_sum_1", "sure_sum", "cost"])
    for n in range(1, levels):
        s = strip(s, f"push{n}", 8, [f"push{n}_x"], plane=True)
    for n in reversed(range(levels - 1)):
        s = strip(s, f"pull{n}", 8, [f"up{n}_x"])
    y, x, k = s.loops("depth")
    s = strip(s.reorder(y, k, x).parallel(y), "radius", 8)
    s = strip(s, "worst", 32, ["worst_x"])
    c, y, x = s.loops("lens_blur")
    s = s.split(y, 8).split(x, 128).reorder(f"{y}_o", f"{x}_o", f"{y}_i", c, f"{x}_i").parallel(f"{y}_o")
    for name in ("total", "colour", "weight", "dx", "dy"):
        s = s.compute_at(name, f"{x}_o")
    for name, loops in (("colour", "yscx"), ("total", "ysx"), ("sure_sum", "ykx"), ("sure_sum_1", "ykx")):
        order = [f"{name}_{axis}" for axis in loops]
        s = s.reorder(*order).decompose_init(name, order[1])
    return vectors(s)


APPLICATION = Application(
    "lens_blur",
    "Lens blur",
    program,
    inputs,
    reference,
    small=(12, 18),
    large=(384, 640),
    schedule=schedule,
    flips=0.02,
    picture=lambda out: np.clip(out + 0.5, 0, 255).astype(np.uint8),
)
