"""Compiled nests as C files that take the place of those that they were read from.

The file has all that the original has. Its function keeps name and parameters: for the sizes that it was
compiled for, and arrays that lie apart, it runs what was compiled, and what was written otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Final

from tilewright.codegen import emit_c, lower_for_c
from tilewright.frontend import c
from tilewright.ir import Buffer, LoopFunction
from tilewright.support import ProgramError, quoted

_APART: Final = """\
static int tw_apart(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x + a_bytes <= y || y + b_bytes <= x;
}
"""
_TYPES: Final = ("stddef.h", "stdint.h", "stdbool.h")
"""Headers of the system that declare types of parameters."""
_REALS: Final = {"f64": "double", "f32": "float", "bool": "uint8_t"}


def drop_in(nest: c.CNest, made: LoopFunction, sizes: Mapping[str, int]) -> str:
    """The C file of a nest with its function compiled for ``sizes`` as ``made``, which has its arguments.

    Raises ProgramError where the function does more than the nest that is marked in it.
    """
    name, text, part = str(nest.part.name), nest.source.text, nest.part
    if nest.left_out is not None:
        raise ProgramError(
            f"the function {quoted(name)} does more than the nest that is marked in it",
            where=nest.left_out,
            hint="put the nest into a function of its own",
        )
    emitted = emit_c(replace(lower_for_c(made), name=f"tw_{name}"))
    brace = part.text.index("{")
    # the text of the file, not that which was made easier to parse: both are as long
    head = text[part.start : part.start + brace].rstrip()
    written = f"{name}_as_written"
    kept = re.sub(r"\b(?:static|extern)\b\s*", "", head)
    kept = "static " + re.sub(rf"\b{name}\b(?=\s*\()", written, kept, count=1)
    end = part.start + len(part.text)
    compiled = emitted.text.replace(f"int32_t {emitted.symbol}(", f"static int32_t {emitted.symbol}(")
    shown = ", ".join(f"{n} = {sizes[n]}" for n in nest.order if n in sizes) or "all calls"
    calls = list(_calls(nest, made, sizes, emitted.symbol, written))
    return "\n".join([
        f"/* {name}, compiled for {shown}: other sizes, and arrays that overlap, run as written. */",
        *(f"#include <{header}>" for header in nest.source.headers),
        "#include <stddef.h>",
        compiled,
        _APART if any("tw_apart(" in line for line in calls) else "",
        text[: part.start] + kept + text[part.start + brace : end],
        "",
        head,
        "{",
        *calls,
        "}" + text[end:].rstrip(),
        "",
    ])  # fmt: skip


def prototype(nest: c.CNest) -> str:
    """A header that declares the function of a nest."""
    part, source = nest.part, nest.source
    guard = f"{re.sub(r'[^A-Za-z0-9]', '_', str(part.name)).upper()}_H"
    head = source.text[part.start : part.start + part.text.index("{")].strip()
    head = re.sub(r"\b(?:static|extern|inline)\b\s*", "", head)
    types = [source.text[p.start : p.start + len(p.text)] for p in source.parts if p.declares_types]
    includes = [f"#include <{header}>" for header in source.headers if header in _TYPES]
    return "\n".join([f"#ifndef {guard}", f"#define {guard}", *includes, *types, f"{head};", "#endif", ""])


def _calls(
    nest: c.CNest, made: LoopFunction, sizes: Mapping[str, int], symbol: str, written: str
) -> Iterator[str]:
    """The body of the function that decides which of the two runs."""
    open_sizes = [p.name for p in nest.arguments.params if p.name not in nest.implied]
    tests = [f"{name} == {sizes[name]}" for name in open_sizes]
    result = None if nest.result is None else made.buffer(nest.result).dtype
    arrays = [b for b in made.buffers if b.shape and b.name not in nest.contents]
    for a, b in combinations(arrays, 2):
        if {a.name, b.name} & set(made.outputs) and _bytes(a) and _bytes(b):
            tests.append(f"tw_apart({a.name}, {_bytes(a)}, {b.name}, {_bytes(b)})")
    given = ", ".join(f"(void *){'' if b.shape else '&'}{b.name}" for b in made.buffers)
    passed = ", ".join(name for name in nest.order if name not in nest.outside)
    if result is not None:
        kind = f"{'u' if result.kind == 'uint' else ''}int{result.bits}_t"
        yield f"    {_REALS.get(result.name, kind)} {nest.result};"
    yield f"    if ({' && '.join(tests) or '1'}) {{"
    yield f"        if ({symbol}({given}) != 0) abort(); /* there is no memory */"
    yield f"        return{'' if result is None else f' {nest.result}'};"
    yield "    }"
    yield f"    {'' if result is None else 'return '}{written}({passed});"


def _bytes(b: Buffer) -> int:
    """The bytes of an array of fixed extents."""
    out = b.dtype.bytes
    for extent in b.shape:
        out *= extent.as_int()
    return out
