"""Weights in safetensors files: mapped from disk, not copied; the files are checked before anything is read.

The format (github.com/huggingface/safetensors): 8 bytes, little-endian, how long the header is; the header,
JSON: of each tensor its element type, its shape, and from where to where its bytes are behind the header.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeGuard

import numpy as np
import numpy.typing as npt

from tilewright.ir import dtype_of
from tilewright.support import ModelError, UnsupportedOperatorError, quoted

Array = npt.NDArray[Any]

MAX_HEADER: Final = 100_000_000
"""Bytes of the longest header: the limit of the format's own package."""
_DTYPES: Final = {"F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16", "I32": "i32"}


def read_tensors(paths: Iterable[Path]) -> dict[str, Array]:
    """The tensors of files by name, mapped.

    Raises ModelError for files that are missing, cut off or malformed, UnsupportedOperatorError for elements
    that weights do not have.
    """
    return {name: array for path in paths for name, array in _read(path).items()}


def shards(folder: Path, configuration: Mapping[str, Any]) -> list[Path]:
    """The files with a folder's weights; ``configuration`` is its index, empty where there is none.

    Raises ModelError for an index that is malformed.
    """
    named = configuration.get("weight_map", {})
    if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
        raise ModelError(f"the index of weights in {quoted(str(folder))} names no files")
    names = sorted(set(named.values()))
    # names of paths are not followed out of the folder
    if foreign := [name for name in names if Path(name).name != name]:
        raise ModelError(f"the index of weights in {quoted(str(folder))} names {quoted(foreign[0])}")
    return [folder / name for name in names] or sorted(folder.glob("*.safetensors"))


def _read(path: Path) -> dict[str, Array]:
    label = f"the weights {quoted(str(path))}"
    if not path.is_file():
        raise ModelError(f"{label} are missing", hint="all files that the index names belong into the folder")
    if path.stat().st_size < 8:
        raise ModelError(f"{label} are cut off: there is no header")
    data = np.memmap(path, np.uint8, mode="r")
    length = int.from_bytes(data[:8].tobytes(), "little")
    if length > min(MAX_HEADER, len(data) - 8):
        raise ModelError(f"{label} are cut off, or no safetensors file: the header has {length} bytes")
    try:
        header = json.loads(data[8 : 8 + length].tobytes())
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{label} have a header that cannot be read: {error}") from None
    if not isinstance(header, dict):
        raise ModelError(f"{label} have a header that is no JSON object")
    header.pop("__metadata__", None)
    values = data[8 + length :].view(np.ndarray)
    return {
        name: _tensor(values, entry, f"the tensor {quoted(name)} of {label}")
        for name, entry in header.items()
    }


def _tensor(values: Array, entry: object, label: str) -> Array:
    known = entry if isinstance(entry, dict) else {}
    shape, places, kind = known.get("shape"), known.get("data_offsets"), known.get("dtype")
    if not _sizes(shape) or not _sizes(places) or len(places) != 2 or not isinstance(kind, str):
        raise ModelError(f"{label} has no type, shape and place")
    if kind not in _DTYPES:
        raise UnsupportedOperatorError(
            f"{label} has elements of {kind}", hint=f"weights are of {', '.join(_DTYPES)}"
        )
    dtype = dtype_of(_DTYPES[kind])
    start, end = places
    if end - start != math.prod(shape) * dtype.bytes:
        raise ModelError(f"{label} has the shape {shape} of {kind} in {end - start} bytes")
    if end > len(values):
        raise ModelError(f"{label} ends at byte {end} of {len(values)}: the file is cut off")
    return values[start:end].view(dtype.numpy).reshape(shape)


def _sizes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)
