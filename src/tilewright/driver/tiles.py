"""C whose tile sizes are arguments: one object for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from math import prod
from typing import Final

from tilewright.codegen import emit_c, lower_for_c
from tilewright.ir import Buffer, LoopFunction
from tilewright.poly import OneTile, allocations_inside, infer_kinds, scalars_in_results, tile_by_tile

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
    private = scalars_in_results(allocations_inside(func))
    # trees have no storage inside of loops
    made = tile_by_tile(infer_kinds(func if private.body.allocated else private), dims)
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
        tiled = space.extents[len(space.origins) - len(space.sizes) :]
        names = ", ".join(f"T{next(number)} of {extent}" for extent in tiled)
        yield f"{' and '.join(called[name] for name in space.func.outputs)}: {names or 'as a whole'}"


def _bytes(b: Buffer) -> int:
    """Bytes of an array, up to a multiple of its alignment."""
    size = prod(e.as_int() for e in b.physical_shape) * b.dtype.bytes
    return -(-size // ALIGNMENT) * ALIGNMENT


def _all_tiles(space: OneTile, symbol: str, arrays: Sequence[str], sizes: Sequence[str]) -> Iterator[str]:
    """Loops over the tiles of a group, on threads, which end early where one before them has failed.

    Tiles that wait for others run in wavefronts: those of one sum of their numbers at once.
    """
    steps = len(space.origins) - len(sizes)
    numbers, counts = (
        [f"t{n}" for n in range(len(space.origins))],
        [f"n{n}" for n in range(len(space.origins))],
    )
    widths = ["1"] * steps + list(sizes)
    pad = "    "
    yield f"{pad}{{"
    for c, t, extent in zip(counts, widths, space.extents, strict=True):
        yield f"{pad}    const int64_t {c} = {extent - 1} / {t} + 1;"
    loops = list(zip(numbers, counts, strict=True))
    ordered, loops = loops[:steps], loops[steps:]
    if not space.apart:
        ordered.append(("wave", f"{' + '.join(c for _, c in loops)} - {len(loops) - 1}"))
        (leading, count_of_leading), *loops = loops
    for parallel, nest in ((False, ordered), (True, loops)):
        if parallel and nest:
            yield f"#pragma omp parallel for collapse({len(nest)})"
        for n, bound in nest:
            pad += "    "
            yield f"{pad}for (int64_t {n} = 0; {n} < {bound}; {n}++)"
    yield f"{pad}{{"
    pad += "    "
    if not space.apart:
        first = " - ".join(("wave", *(n for n, _ in loops)))
        yield f"{pad}const int64_t {leading} = {first};"
        yield f"{pad}if ({leading} < 0 || {leading} >= {count_of_leading}) continue;"
    given = [f"{n} * {t}" for n, t in zip(numbers, widths, strict=True)]
    rest = [
        f"({n} + 1 < {c} ? {t} : {extent} - {n} * {t})"
        for n, c, t, extent in zip(numbers, counts, widths, space.extents, strict=True)
    ]
    called = f"{symbol}({', '.join((*arrays, *given, *rest[steps:]))})"
    yield from (
        f"{pad}int32_t before, error = 0;",
        "#pragma omp atomic read",
        f"{pad}before = failed;",
        f"{pad}if (before == 0) error = {called};",
        f"{pad}if (error != 0) {{",
        "#pragma omp atomic write",
        f"{pad}    failed = error;",
        f"{pad}}}",
        f"{pad[4:]}}}",
        "    }",
    )
