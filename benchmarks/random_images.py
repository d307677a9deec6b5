"""Random pipelines on images, of whole size: what the cost model of the beam search is trained on.

Stages are drawn like those of Adams et al. (SIGGRAPH 2019, Section 5): a directed graph without cycles of
point-wise functions of one, two or three stages, stencils along one or both axes, products with a window,
halves and doubles of the resolution, mixtures of channels, tables that data index, and changes of the type.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tilewright import ir, lang

#: Stages of a pipeline, at least and at most, before those that bring it to the size of its result.
STAGES = (3, 14)
#: Channels, height and width of results.
CHANNELS = (1, 1, 3, 3, 4, 16)
HEIGHTS = (256, 512, 720, 1080)
WIDTHS = (256, 640, 1280, 1920)
#: Elements of a result, at most: what is timed takes milliseconds.
MOST = 3 << 20
#: Halvings of the resolution, at most.
DEEPEST = 3

Value = Any


@dataclass(frozen=True)
class Made:
    """A stage, and how often its resolution was halved."""

    f: Any
    scale: int


class Drawer:
    """Draws one pipeline, stage by stage."""

    def __init__(self, rng: Random, channels: int) -> None:
        self.rng, self.channels = rng, channels
        self.made: list[Made] = []
        self.kinds: list[Callable[[], Made | None]] = [
            self.unary, self.unary, self.binary, self.binary, self.binary, self.ternary,
            self.along, self.along, self.window, self.window, self.halved, self.doubled,
            self.mixed, self.looked_up, self.converted,
        ]  # fmt: skip

    def add(self, value: Callable[[Value, Value, Value], Value], scale: int) -> Made:
        made = Made(lang.stage(value, name=f"f{len(self.made)}"), scale)
        self.made.append(made)
        return made

    def one(self, scale: int | None = None) -> Made | None:
        """A stage that was made, the last ones rather than others."""
        options = [m for m in self.made if scale in (None, m.scale)]
        return options[max(-len(options), -1 - int(self.rng.expovariate(1.2)))] if options else None

    def unary(self) -> Made:
        f, a = self.some(), self.rng.choice((0.5, 1.5, 3.0))
        ways: list[Callable[[Value], Value]] = [
            lambda v: v * a + 0.25, lambda v: lang.maximum(v - a, 0.0), lambda v: v * v * a,
            lambda v: lang.exp(abs(v) * -a), lambda v: lang.sqrt(abs(v) + a), lambda v: a / (abs(v) + 1.0),
        ]  # fmt: skip
        way = self.rng.choice(ways)
        return self.add(lambda c, y, x: way(f.f[c, y, x]), f.scale)

    def some(self) -> Made:
        found = self.one()
        assert found is not None
        return found

    def binary(self) -> Made | None:
        f = self.some()
        g = self.one(f.scale)
        assert g is not None
        ways: list[Callable[[Value, Value], Value]] = [
            lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b * 0.5, lang.maximum, lang.minimum,
            lambda a, b: a / (abs(b) + 1.0),
        ]  # fmt: skip
        way = self.rng.choice(ways)
        return self.add(lambda c, y, x: way(f.f[c, y, x], g.f[c, y, x]), f.scale)

    def ternary(self) -> Made | None:
        f = self.some()
        g, h = self.one(f.scale), self.one(f.scale)
        assert g is not None and h is not None
        if self.rng.random() < 0.5:
            return self.add(
                lambda c, y, x: lang.select(f.f[c, y, x] > 0.5, g.f[c, y, x], h.f[c, y, x]), f.scale
            )
        return self.add(lambda c, y, x: lang.lerp(f.f[c, y, x], g.f[c, y, x], h.f[c, y, x]), f.scale)

    def along(self) -> Made:
        f, radius, down = self.some(), self.rng.randint(1, 4), self.rng.random() < 0.5
        taps = [(d, self.rng.choice((0.25, 0.5, 1.0))) for d in range(-radius, radius + 1)]
        if down:
            return self.add(lambda c, y, x: sum(f.f[c, y + d, x] * w for d, w in taps), f.scale)
        return self.add(lambda c, y, x: sum(f.f[c, y, x + d] * w for d, w in taps), f.scale)

    def window(self) -> Made:
        f, radius = self.some(), self.rng.choice((1, 1, 2))
        places = [(a, b) for a in range(-radius, radius + 1) for b in range(-radius, radius + 1)]
        if self.rng.random() < 0.3:
            a, *rest = places

            def most(c: Value, y: Value, x: Value) -> Value:
                best = f.f[c, y + a[0], x + a[1]]
                for dy, dx in rest:
                    best = lang.maximum(best, f.f[c, y + dy, x + dx])
                return best

            return self.add(most, f.scale)
        weight = 1 / len(places)
        return self.add(
            lambda c, y, x: sum(f.f[c, y + a, x + b] * (weight * (2 + a + b)) for a, b in places), f.scale
        )

    def halved(self) -> Made | None:
        f = self.some()
        if f.scale == DEEPEST:
            return None
        g = self.add(lambda c, y, x: (f.f[c, 2 * y, x] + f.f[c, 2 * y + 1, x]) * 0.5, f.scale)
        return self.add(lambda c, y, x: (g.f[c, y, 2 * x] + g.f[c, y, 2 * x + 1]) * 0.5, f.scale + 1)

    def doubled(self, f: Made | None = None) -> Made | None:
        f = f or self.some()
        if not f.scale:
            return None
        if self.rng.random() < 0.3:
            return self.add(lambda c, y, x: f.f[c, y // 2, x // 2], f.scale - 1)
        g = self.add(lambda c, y, x: f.f[c, y // 2, x] * 0.75 + f.f[c, (y + 1) // 2, x] * 0.25, f.scale)
        return self.add(
            lambda c, y, x: g.f[c, y, x // 2] * 0.75 + g.f[c, y, (x + 1) // 2] * 0.25, f.scale - 1
        )

    def mixed(self) -> Made | None:
        f, weights = self.some(), [self.rng.choice((0.2, 0.4, 0.6)) for _ in range(self.channels)]
        if self.channels == 1:
            return None
        return self.add(
            lambda c, y, x: f.f[c, y, x] - sum(f.f[k, y, x] * w for k, w in enumerate(weights)), f.scale
        )

    def looked_up(self) -> Made | None:
        f = self.some()
        table = lang.stage(lambda i: lang.sqrt(i * 0.01 + 1.0), name=f"table{len(self.made)}")
        return self.add(
            lambda c, y, x: table[lang.clamp(lang.cast(f.f[c, y, x] * 255.0, "i32"), 0, 255)], f.scale
        )

    def converted(self) -> Made | None:
        f = self.some()
        g = lang.stage(
            lambda c, y, x: lang.cast(lang.clamp(f.f[c, y, x] * 255.0, 0.0, 255.0), "u8"),
            name=f"bytes{len(self.made)}",
        )
        return self.add(lambda c, y, x: lang.cast(g[c, y, x], "f32") * (1 / 255), f.scale)


def random_images(seed: int) -> ir.Program:
    """The pipeline of a seed, from ``image`` (its size the result's) to one result."""
    rng = Random(seed)
    while True:
        channels, h, w = (rng.choice(options) for options in (CHANNELS, HEIGHTS, WIDTHS))
        if channels * h * w <= MOST:
            break
    image = lang.placeholder((channels, h, w), name="image")
    near = lang.boundary(image, mode="clamp")
    drawer = Drawer(rng, channels)
    drawer.add(lambda c, y, x: near[c, y, x] * 1.0, 0)
    stages = rng.randint(*STAGES)
    while len(drawer.made) < stages:
        rng.choice(drawer.kinds)()
    last = drawer.made[-1]
    while last.scale:
        last = drawer.doubled(last) or last
    return lang.program([image], last.f, name=f"random{seed}", region=[channels, h, w])
