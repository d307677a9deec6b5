"""C whose tile sizes are arguments: one object for all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.codegen import emit_c, lower_for_c
from tilewright.ir import LoopFunction
from tilewright.poly import infer_kinds, one_tile

DIMS: Final = 2
"""Loops that are tiled: rows and columns of an image."""


def tiled_source(func: LoopFunction, dims: int = DIMS) -> str:
    """A function of fixed sizes as C99: one that computes a tile, and ``NAME_tiles``, all of them.

    Both return 0, or another number where there is no memory. ``NAME_tiles`` takes the arrays, then the sizes
    of tiles, positive numbers. Raises ScheduleError for what is no single group of tiles (:func:`one_tile`),
    ResourceError where isl needs too long.
    """
    tile = one_tile(infer_kinds(func), dims)
    made = emit_c(lower_for_c(replace(tile.func, name=f"{func.name}_tile")))
    arrays = [f"a{n}" for n in range(len(func.buffers))]
    sizes = [f"T{n}" for n in range(len(tile.sizes))]
    origins = [f"o{n}" for n in range(len(sizes))]
    listed = ", ".join((*(f"void *{a}" for a in arrays), *(f"int64_t {t}" for t in sizes)))
    lines = [f"int32_t {made.symbol.removesuffix('_tile')}_tiles({listed})", "{", "    int32_t failed = 0;"]
    lines.append(f"    if ({' || '.join(f'{t} < 1' for t in sizes)}) return -2;")
    lines.append(f"#pragma omp parallel for collapse({len(sizes)})")
    rest = []
    for n, (o, t, extent) in enumerate(zip(origins, sizes, tile.extents, strict=True)):
        lines.append(f"{'    ' * (n + 1)}for (int64_t {o} = 0; {o} < {extent}; {o} += {t})")
        rest.append(f"{t} < {extent} - {o} ? {t} : {extent} - {o}")
    pad = "    " * (len(sizes) + 1)
    called = f"{made.symbol}({', '.join((*arrays, *origins, *rest))})"
    lines += [
        pad[4:] + "{",
        f"{pad}int32_t error = {called};",
        pad + "if (error != 0) {",
        "#pragma omp atomic write",
        f"{pad}    failed = error;",
        pad + "}",
        pad[4:] + "}",
        "    return failed;",
        "}",
        "",
    ]
    return "\n".join((made.text, *lines))
