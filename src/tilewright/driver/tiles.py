"""C whose tile sizes are arguments: one object for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from math import prod
from typing import Final

from tilewright.codegen import emit_c, lower_for_c
from tilewright.ir import Buffer, LoopFunction
from tilewright.poly import OneTile, infer_kinds, tile_by_tile

DIMS: Final = 2
"""Loops that are tiled: rows and columns of an image."""
ALIGNMENT: Final = 64
"""Bytes that arrays begin at multiples of."""


def tiled_source(func: LoopFunction, dims: int = DIMS) -> str:
    """A function of fixed sizes as C99: those that compute a tile, and ``NAME_tiles``, all tiles.

    They return 0, or another number where there is no memory. ``NAME_tiles`` takes the arrays, then the sizes
    of tiles, positive numbers: those of each group of loops in the order in which these run. Raises
    what :func:`tile_by_tile` does.
    """
    made = tile_by_tile(infer_kinds(func), dims)
    spaces = [replace(s.func, name=f"{func.name}_tile") for s in made.spaces]
    text = emit_c(*map(lower_for_c, spaces))
    given = [f"a{n}" for n in range(len(func.buffers))]
    own = [f"b{n}" for n in range(len(made.between))]
    every = [f"T{n}" for n in range(sum(len(s.sizes) for s in made.spaces))]
    listed = ", ".join((*(f"void *{a}" for a in given), *(f"int64_t {t}" for t in every)))
    called = dict(zip((b.name for b in made.spaces[0].func.buffers), (*given, *own), strict=True))
    lines = [f"/* {line} */" for line in _meaning(made.spaces, called)]
    lines += [f"int32_t {text.symbols[0].removesuffix('_tile')}_tiles({listed})", "{"]
    lines.append("    int32_t failed = 0;")
    lines.append(f"    if ({' || '.join(f'{t} < 1' for t in every)}) return -2;")
    for b, buffer in zip(own, made.between, strict=True):
        lines.append(f"    void *{b} = aligned_alloc({ALIGNMENT}, {_bytes(buffer)});")
    if own:
        lines.append(f"    if ({' || '.join(f'!{b}' for b in own)}) failed = -1;")
    number = count()
    for space, symbol in zip(made.spaces, text.symbols, strict=True):
        sizes = [every[next(number)] for _ in space.sizes]
        lines += _all_tiles(space, symbol, [*given, *own], sizes)
    lines += [*(f"    free({b});" for b in own), "    return failed;", "}", ""]
    return "\n".join((text.text, *lines))


def _meaning(spaces: Sequence[OneTile], called: Mapping[str, str]) -> Iterator[str]:
    """What the sizes of tiles are of, group by group."""
    number = count()
    for space in spaces:
        names = ", ".join(f"T{next(number)} of {extent}" for extent in space.extents)
        yield f"{' and '.join(called[name] for name in space.func.outputs)}: {names or 'as a whole'}"


def _bytes(b: Buffer) -> int:
    """Bytes of an array, up to a multiple of its alignment."""
    size = prod(e.as_int() for e in b.physical_shape) * b.dtype.bytes
    return -(-size // ALIGNMENT) * ALIGNMENT


def _all_tiles(space: OneTile, symbol: str, arrays: Sequence[str], sizes: Sequence[str]) -> Iterator[str]:
    """Loops over the tiles of a group, on threads, which end early where one before them has failed."""
    origins = [f"o{n}" for n in range(len(sizes))]
    pad = "    "
    if sizes:
        yield f"#pragma omp parallel for collapse({len(sizes)})"
    rest = []
    for o, t, extent in zip(origins, sizes, space.extents, strict=True):
        yield f"{pad}for (int64_t {o} = 0; {o} < {extent}; {o} += {t})"
        rest.append(f"{t} < {extent} - {o} ? {t} : {extent} - {o}")
        pad += "    "
    called = f"{symbol}({', '.join((*arrays, *origins, *rest))})"
    yield from (
        f"{pad[4:]}{{",
        f"{pad}int32_t before, error = 0;",
        "#pragma omp atomic read",
        f"{pad}before = failed;",
        f"{pad}if (before == 0) error = {called};",
        f"{pad}if (error != 0) {{",
        "#pragma omp atomic write",
        f"{pad}    failed = error;",
        f"{pad}}}",
        f"{pad[4:]}}}",
    )
