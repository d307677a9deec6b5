"""Compiled models for C: a header, and a shared library that stands alone.

The library holds kernels, weights, the runtime's C sources and the entry point ``runtime/export/entry.c``,
which reads the plan from tables written here. Names from the model occur only as escaped strings.
"""

from __future__ import annotations

import os
import re
import string
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from tilewright.codegen import link_shared
from tilewright.driver.save import Parts, as_path
from tilewright.runtime import (
    CONSTANT,
    ENTRY_PATH,
    HEADER_PATH,
    BufferRef,
    Manifest,
    Piece,
    RangeCheck,
    TensorInfo,
    tensor_bytes,
)
from tilewright.support import ArtefactError, InputError, ResourceError, format_bytes, quoted_path, replacing
from tilewright.target import cpuinfo_flags

WEIGHTS_BOUND: Final = 1 << 30
"""Bytes of weights that a library may hold: beyond, its parts are too far apart for the linker."""

_FUNCTIONS: Final = ("open", "run", "close", "inputs", "outputs", "explain", "message")
_PLAIN: Final = frozenset(string.ascii_letters + string.digits + " _.,:()[]-+")

_TYPES: Final = """\
#ifndef TW_MODEL_TYPES
#define TW_MODEL_TYPES

typedef struct tw_model tw_model;

/* An input or output: its name in the model, element type ("float32", "int64" ...), shape and size. Elements
 * lie row by row without gaps, in the machine's byte order. */
typedef struct {
    const char *name;
    const char *dtype;
    int32_t rank;
    const int64_t *shape;
    int64_t bytes;
} tw_model_tensor;

enum {
    TW_MODEL_OK = 0,
    TW_MODEL_NO_MEMORY = -1,
    TW_MODEL_WRONG_CPU = -2,
    TW_MODEL_BAD_ARGUMENT = -3,
    TW_MODEL_OUT_OF_RANGE = -4 /* an index, given or computed; the outputs are as they were */
};

/* What idle threads do between the loops of a run: spin, for the lowest latency, or sleep almost at once. */
enum { TW_MODEL_ACTIVE = 0, TW_MODEL_PASSIVE = 1 };

/* All zero is the default. */
typedef struct {
    int32_t threads; /* of a run, the caller included; 0: as many as the model was compiled for */
    int32_t wait;
} tw_model_options;

#endif
"""

_HEADER: Final = """\
/* A model compiled by {producer} for {arch} with
 *   {features}.
 *
{tensors}
 *
 * Link with {library}; it needs nothing but the C library. */
#ifndef TW_MODEL_{upper}_H
#define TW_MODEL_{upper}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

{types}
enum {{ {prefix}_input_count = {inputs}, {prefix}_output_count = {outputs} }};

/* Opens the model. `options` may be NULL. Returns NULL where that fails; *status, unless NULL, says why. */
tw_model *{prefix}_open(const tw_model_options *options, int32_t *status);

/* Runs the model: one pointer an input, one an output, aligned as their elements are. Outputs overlap
 * nothing. From any number of threads at once. Returns TW_MODEL_OK, or a status. */
int32_t {prefix}_run(tw_model *model, const void *const *inputs, void *const *outputs);

/* Ends the threads and frees the memory, once no run is under way. NULL is allowed. */
void {prefix}_close(tw_model *model);

/* The inputs and the outputs, {prefix}_input_count and {prefix}_output_count of them. */
const tw_model_tensor *{prefix}_inputs(void);
const tw_model_tensor *{prefix}_outputs(void);

/* What a status means. */
const char *{prefix}_explain(int32_t status);

/* After TW_MODEL_OUT_OF_RANGE: which node has found which index, and what its range is. Valid until the
 * calling thread's next run that fails so. */
const char *{prefix}_message(void);

#ifdef __cplusplus
}}
#endif

#endif
"""

_WEIGHTS: Final = """\
    .section .rodata
    .balign 4096
    .globl tw_weights
    .hidden tw_weights
tw_weights:
    .incbin "weights.bin"
    .byte 0
    .section .note.GNU-stack,"",%progbits
"""


def export_c(parts: Parts, header: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Write ``NAME.h`` and beside it ``NAME.so``; returns both paths.

    The functions of the library begin with NAME, letters other than those of C's names replaced by ``_``.
    Raises InputError for a path that does not end in ``.h``, ArtefactError where it cannot be written,
    ResourceError for more than ``WEIGHTS_BOUND`` bytes of weights, InstallationError without a C compiler.
    """
    path = as_path(header, "a header")
    prefix = re.sub(r"[^A-Za-z0-9_]", "_", path.stem)
    if path.suffix != ".h" or not path.stem or prefix[0].isdigit():
        raise InputError(
            f"{quoted_path(path)} cannot be the name of a C header",
            hint="it must end in .h and begin as a name in C does",
        )
    size = sum(map(len, parts.weights.pieces))
    if size > WEIGHTS_BOUND:
        raise ResourceError(
            f"{format_bytes(size)} of weights are more than a library holds ({format_bytes(WEIGHTS_BOUND)})",
            hint="save the model as one file instead, for tilewright.load",
        )
    library = path.with_suffix(".so")
    text = _header(parts.manifest, prefix, library.name)
    folder = HEADER_PATH.parent
    files: dict[str, Sequence[Piece]] = {
        "model.h": [text.encode()],
        "tables.h": [_tables(parts, prefix).encode()],
        "weights.bin": parts.weights.pieces,
        "weights.S": [_WEIGHTS.encode()],
    }
    try:
        link_shared(
            parts.library.objects,
            library,
            files=files,
            sources=[ENTRY_PATH, *sorted(folder.glob("*.c"))],
            includes=[folder],
            exports=[f"{prefix}_{name}" for name in _FUNCTIONS],
        )
        _write(path, text)
    except OSError as error:
        raise ArtefactError(f"cannot write {quoted_path(path)}: {error.strerror or error}") from None
    return path, library


def _header(manifest: Manifest, prefix: str, library: str) -> str:
    rows = [
        f" *   {prefix}_{kind}()[{at}]  {info.dtype.name}{list(info.shape)}"
        f"{'' if info.strides is None else f' by strides of {list(info.strides)}'}  {_comment(info.name)}"
        for kind, infos in (("inputs", manifest.inputs), ("outputs", manifest.outputs))
        for at, info in enumerate(infos)
    ]
    return _HEADER.format(
        producer=manifest.producer,
        arch=manifest.requires.arch,
        features=textwrap.fill(", ".join(manifest.requires.features), 100, subsequent_indent=" *   "),
        tensors="\n".join(rows),
        library=_comment(library),
        upper=prefix.upper(),
        prefix=prefix,
        types=_TYPES,
        inputs=len(manifest.inputs),
        outputs=len(manifest.outputs),
    )


def _tables(parts: Parts, prefix: str) -> str:
    """The tables that ``entry.c`` reads: the model's tensors, the plan, and what the CPU must have."""
    manifest = parts.manifest
    refs = [ref for call in manifest.calls for ref in call.buffers]
    params = [value for call in manifest.calls for value in call.params]
    assert all(isinstance(value, int) for value in params)
    line, flags = cpuinfo_flags(manifest.requires.arch, manifest.requires.features)
    numbers = {
        "THREADS": manifest.threads,
        "TILES": int("amx-tile" in manifest.requires.features),
        "FLAG_COUNT": len(flags),
        "INPUT_COUNT": len(manifest.inputs),
        "OUTPUT_COUNT": len(manifest.outputs),
        "PLAN_OUTPUT_COUNT": len(manifest.plan_outputs),
        "STEP_COUNT": len(manifest.calls),
        "PLACE_COUNT": len(refs),
        "VALUE_COUNT": len(params),
        "CONSTANT_COUNT": len(manifest.constants),
        "CHECK_COUNT": len(manifest.checks),
        "COPY_COUNT": len(manifest.copies),
        "ARENA_BYTES": manifest.arena_bytes,
        "WORKSPACE_BYTES": manifest.workspace_bytes,
        "SCRATCH_BYTES": manifest.scratch_bytes,
    }
    symbols = parts.library.symbols
    calls = [
        f"{{{symbols[call.kernel]}, {len(call.buffers)}, {len(call.params)}, {{-1, 1}}, "
        f"{call.section}, {call.lane}}}"
        for call in manifest.calls
    ]
    kernels = [
        f"extern int32_t {name}(tw_context *, void *const *, const int64_t *, void *, void *);"
        for name in symbols
    ]
    results = [_place(ref, manifest.constants) for ref in manifest.results]
    return "\n".join(
        [
            "#pragma GCC visibility push(default)",
            '#include "model.h"',
            "#pragma GCC visibility pop",
            f"#define TW_NAME(function) {prefix}_##function",
            f"#define TW_FLAGS_LINE {_string(line)}",
            *(f"#define TW_{name} {value}" for name, value in numbers.items()),
            'extern const char tw_weights[] __attribute__((visibility("hidden")));',
            *kernels,
            _table("char *const", "flags", map(_string, flags)),
            *_tensors("input", manifest.inputs),
            *_tensors("output", manifest.outputs),
            _table("tw_step", "steps", calls),
            _table("tw_place", "places", [_place(ref, ()) for ref in refs]),
            _table("tw_value", "values", [f"{{-1, {_number(value)}}}" for value in params]),
            _table("tw_check", "checks", map(_check, manifest.checks)),
            _table(
                "char *const", "check_names", [_string(f"{c.node}: '{c.value}'") for c in manifest.checks]
            ),
            _table("int64_t", "check_firsts", (str(check.first) for check in manifest.checks)),
            _table("tw_copy", "copies", map(_copy, manifest.copies)),
            _table("int64_t", "constant_offsets", (str(offset) for offset, _ in manifest.constants)),
            _table("tw_place", "results", results),
            "",
        ]
    )


def _table(kind: str, name: str, rows: Iterable[str]) -> str:
    """A constant array; C has no empty ones, so one without rows gets one that nobody reads."""
    nothing = "{0}" if kind.startswith("tw_") else "0"
    content = ",\n    ".join(rows) or nothing
    return f"static const {kind} {name}[] = {{\n    {content}}};"


def _tensors(kind: str, infos: Sequence[TensorInfo]) -> list[str]:
    rows, shapes = [], []
    for at, info in enumerate(infos):
        shapes.append(_table("int64_t", f"{kind}_shape_{at}", map(str, info.shape)))
        name, dtype = _string(info.name), _string(info.dtype.name)
        rows.append(f"{{{name}, {dtype}, {len(info.shape)}, {kind}_shape_{at}, {tensor_bytes(info)}}}")
    return [*shapes, _table("tw_model_tensor", f"{kind}_tensors", rows)]


def _place(ref: BufferRef, constants: Sequence[tuple[int, int]]) -> str:
    """A place as C; with ``constants`` those are given by their offset in the weights."""
    offset = ref.offset
    if constants and ref.kind == CONSTANT:
        offset += constants[ref.index][0]
    return f"{{{ref.kind}, {ref.index}, {{-1, {offset}}}, {{-1, 0}}, 0}}"


def _check(check: RangeCheck) -> str:
    kind = np.dtype(check.dtype)
    low, high, count = (f"{{-1, {_number(n)}}}" for n in (check.low, check.high, check.count))
    numbers = f"{_number(check.stride)}, {low}, {high}, {kind.itemsize}, {int(kind.kind == 'i')}"
    return f"{{{_place(check.place, ())}, {_number(check.step)}, {count}, {numbers}}}"


def _copy(pair: tuple[BufferRef, BufferRef]) -> str:
    source, target = pair
    return f"{{{_place(source, ())}, {_place(target, ())}, {{-1, {_number(source.nbytes)}}}}}"


def _number(value: object) -> str:
    return f"INT64_C({value})"


def _string(text: str) -> str:
    """A string in C: whatever is not plain is written in octal, three digits, so that nothing can end it."""
    content = text.encode("utf-8", "replace")
    return '"' + "".join(chr(b) if chr(b) in _PLAIN else f"\\{b:03o}" for b in content) + '"'


def _comment(text: str) -> str:
    """A name within a comment in C: whatever is not plain is left out."""
    return "".join(letter if letter in _PLAIN or letter == "/" else "_" for letter in text)


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode("ascii"))
