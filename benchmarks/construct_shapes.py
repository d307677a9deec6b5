"""The programs of `construct.py`: Gensor's Table IV, twenty shapes marked as ours, ten general stages.

Each has its torch counterpart, a function of the same arrays. Convolutions have no padding but what the
paper's shapes hold; GEMM is `1.5 A B + 0.5 C`, GEMV `1.5 A x + 0.5 y`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from random import Random
from typing import Any

import torch

from tilewright import lang
from tilewright.ir import Program

ALPHA, BETA = 1.5, 0.5


@dataclass(frozen=True)
class Shape:
    """A program, where it is from, its operations, the same by torch, and a small one of its kind."""

    name: str
    source: str
    make: Callable[[], Program]
    torch: Callable[..., Any]
    flops: float
    small: Callable[[], "Shape"] | None = None

    @property
    def nbytes(self) -> float:
        """Bytes of its arrays, each once."""
        program = self.make()
        return 4.0 * sum(prod(e.as_int() for e in b.shape) for b in (*program.inputs, *program.outputs))


def _t(name: str, *shape: int) -> Any:
    return lang.placeholder(shape, "f32", name)


def gemm(name: str, source: str, m: int, k: int, n: int) -> Shape:
    """`1.5 A B + 0.5 C`."""

    def make() -> Program:
        a, b, c = _t("A", m, k), _t("B", k, n), _t("C", m, n)
        return lang.program([a, b, c], [lang.ops.gemm(a, b, c, ALPHA, BETA)])

    return Shape(
        name,
        source,
        make,
        lambda a, b, c: torch.addmm(c, a, b, beta=BETA, alpha=ALPHA),
        2.0 * m * k * n,
        lambda: gemm(name, source, min(m, 200), min(k, 150), min(n, 200)),
    )


def gemv(name: str, source: str, m: int, n: int) -> Shape:
    """`1.5 A x + 0.5 y`."""

    def make() -> Program:
        a, x, y = _t("A", m, n), _t("x", n), _t("y", m)
        k = lang.reduce_axis(n, "k")
        s = lang.compute((m,), lambda i: lang.sum(a[i, k] * x[k], axis=k), name="S")
        out = lang.compute((m,), lambda i: ALPHA * s[i] + BETA * y[i], name="Y")
        return lang.program([a, x, y], [out])

    return Shape(
        name,
        source,
        make,
        lambda a, x, y: torch.addmv(y, a, x, beta=BETA, alpha=ALPHA),
        2.0 * m * n,
        lambda: gemv(name, source, min(m, 500), min(n, 700)),
    )


def conv(
    name: str, source: str, image: tuple[int, ...], weight: tuple[int, ...], stride: int, groups: int = 1
) -> Shape:
    """A convolution whose weights are given at run time."""

    def make() -> Program:
        x, w = _t("X", *image), _t("W", *weight)
        return lang.program([x, w], [lang.ops.conv(x, w, strides=stride, groups=groups)])

    n, _, h, w = image
    oc, ic, kh, kw = weight
    out = ((h - kh) // stride + 1) * ((w - kw) // stride + 1)
    run = partial(torch.nn.functional.conv2d, stride=stride, groups=groups)

    def small() -> Shape:
        few = (1, min(image[1], 32 * groups), min(h, 20), min(w, 20))
        return conv(
            name, source, few, (min(oc, 64) if groups == 1 else oc, min(ic, 32), kh, kw), stride, groups
        )

    return Shape(name, source, make, run, 2.0 * n * oc * out * ic * kh * kw, small)


def pool(name: str, source: str, image: tuple[int, ...], window: int, stride: int) -> Shape:
    """Average pooling."""

    def make() -> Program:
        x = _t("X", *image)
        return lang.program([x], [lang.ops.average_pool(x, (window, window), stride)])

    n, c, h, w = image
    out = ((h - window) // stride + 1) * ((w - window) // stride + 1)
    run = partial(torch.nn.functional.avg_pool2d, kernel_size=window, stride=stride)

    def small() -> Shape:
        return pool(name, source, (min(n, 2), min(c, 33), min(h, 30), min(w, 30)), window, stride)

    return Shape(name, source, make, run, 1.0 * n * c * out * window * window, small)


def _reduced(
    name: str, m: int, n: int, k: int, term: Any, fold: Any, run: Any, shapes: Any, work: float
) -> Shape:
    def make() -> Program:
        arguments = [_t(f"A{at}", *shape) for at, shape in enumerate(shapes)]
        axis = lang.reduce_axis(k, "k")
        y = lang.compute((m, n), lambda i, j: fold(term(*arguments, i, j, axis), axis=axis), name="Y")
        return lang.program(arguments, [y])

    return Shape(name, "general", make, run, work * m * n * k)


def general() -> list[Shape]:
    """Ten stages that are no sums of two factors."""
    m = n = k = 512
    two, three = [(m, k), (k, n)], [(m, k), (k, n), (n, k)]
    far = lang.const(0.0, "f32")
    return [
        _reduced("three factors", m, n, k, lambda a, b, d, i, j, x: a[i, x] * b[x, j] * d[j, x], lang.sum,
                 lambda a, b, d: (a @ (b * d.T)), three, 3),
        _reduced("min-plus", m, n, k, lambda a, b, i, j, x: a[i, x] + b[x, j], lang.min,
                 lambda a, b: torch.stack([(r[:, None] + b).amin(0) for r in a]), two, 2),
        _reduced("max-plus", m, n, k, lambda a, b, i, j, x: a[i, x] + b[x, j], lang.max,
                 lambda a, b: torch.stack([(r[:, None] + b).amax(0) for r in a]), two, 2),
        _reduced("max-times", m, n, k, lambda a, b, i, j, x: a[i, x] * b[x, j], lang.max,
                 lambda a, b: torch.stack([(r[:, None] * b).amax(0) for r in a]), two, 2),
        _reduced("squared distances", m, n, k, lambda a, b, i, j, x: lang.square(a[i, x] - b[x, j]),
                 lang.sum, lambda a, b: torch.cdist(a, b.T.contiguous()) ** 2, two, 3),
        _reduced("distances of sums", m, n, k, lambda a, b, i, j, x: lang.absolute(a[i, x] - b[x, j]),
                 lang.sum,
                 lambda a, b: torch.cdist(a, b.T.contiguous(), p=1), two, 3),
        _reduced("largest distance", m, n, k, lambda a, b, i, j, x: lang.absolute(a[i, x] - b[x, j]),
                 lang.max,
                 lambda a, b: torch.cdist(a, b.T.contiguous(), p=float("inf")), two, 3),
        _reduced("bottleneck paths", m, n, k, lambda a, b, i, j, x: lang.minimum(a[i, x], b[x, j]), lang.max,
                 lambda a, b: torch.stack([torch.minimum(r[:, None], b).amax(0) for r in a]), two, 2),
        _reduced("rectified products", m, n, k, lambda a, b, i, j, x: lang.maximum(a[i, x] * b[x, j], far),
                 lang.sum, lambda a, b: torch.stack([(r[:, None] * b).relu().sum(0) for r in a]), two, 3),
        _reduced("smaller of two", m, n, k, lambda a, b, i, j, x: lang.minimum(a[i, x], b[x, j]), lang.sum,
                 lambda a, b: torch.stack([torch.minimum(r[:, None], b).sum(0) for r in a]), two, 2),
    ]  # fmt: skip


def table_four() -> list[Shape]:
    """The paper's twelve, and twenty of ours: other sizes, awkward ones, windows, grouped channels."""
    paper, ours = "paper", "ours"
    return [
        conv("C1", paper, (128, 256, 30, 30), (256, 256, 3, 3), 2),
        conv("C2", paper, (128, 128, 28, 28), (128, 128, 3, 3), 1),
        conv("C3", paper, (128, 128, 58, 58), (128, 128, 3, 3), 2),
        gemm("M1", paper, 8192, 8192, 8192),
        gemm("M2", paper, 65536, 4, 1024),
        gemm("M3", paper, 65536, 1024, 4096),
        gemv("V1", paper, 16384, 16384),
        gemv("V2", paper, 16384, 8192),
        gemv("V3", paper, 16384, 1000),
        pool("P1", paper, (16, 48, 48, 48), 2, 2),
        pool("P2", paper, (128, 168, 83, 83), 2, 2),
        pool("P3", paper, (128, 617, 21, 21), 3, 2),
        gemm("M4", "table5", 32768, 64, 2048),
        gemm("M5", "table5", 16384, 32, 1024),
        gemm("M6", ours, 1024, 1024, 1024),
        gemm("M7", ours, 1000, 700, 333),
        gemm("M8", ours, 128, 4096, 128),
        gemm("M9", ours, 8, 2048, 2048),
        gemm("M10", ours, 333, 77, 5000),
        gemm("M11", ours, 64, 64, 64),
        gemv("V4", ours, 4096, 4096),
        gemv("V5", ours, 1000, 16384),
        gemv("V6", ours, 333, 777),
        conv("C4", ours, (1, 64, 58, 58), (64, 64, 3, 3), 1),
        conv("C5", ours, (1, 3, 229, 229), (64, 3, 7, 7), 2),
        conv("C6", ours, (16, 256, 14, 14), (1024, 256, 1, 1), 1),
        conv("C7", ours, (8, 96, 30, 30), (96, 1, 3, 3), 1, 96),
        conv("C8", ours, (1, 48, 37, 37), (80, 48, 5, 5), 1),
        conv("C9", ours, (32, 512, 9, 9), (512, 512, 3, 3), 1),
        pool("P4", ours, (1, 64, 112, 112), 3, 2),
        pool("P5", ours, (32, 256, 28, 28), 2, 2),
        pool("P6", ours, (8, 33, 61, 47), 3, 1),
    ]  # fmt: skip


def drawn(count: int, seed: int = 0) -> list[Shape]:
    """GEMM, GEMV and products of few rows, sizes drawn by a seed: powers of two, what is near, and any."""
    random, found = Random(seed), []

    def size(most: int) -> int:
        n = 2 ** random.randint(3, most)
        return max(1, random.choice((n, n - 1, n + random.randint(1, n), 3 * n // 4)))

    for at in range(count):
        kind = random.choice(("gemm", "gemm", "prefill", "decode", "gemv"))
        if kind == "gemv":
            found.append(gemv(f"{kind} {at}", kind, size(11), size(11)))
        else:
            rows = {"gemm": size(9), "prefill": size(10), "decode": random.randint(1, 16)}[kind]
            found.append(gemm(f"{kind} {at}", kind, rows, size(9), size(10)))
    return found
