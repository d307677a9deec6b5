"""Tensors of a model file as arrays: embedded ones, and those in files beside the model.

Sizes are checked before anything is allocated: a tensor's dimensions must agree with the bytes there are.
External data is read only from regular files inside the model's folder, links followed.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
from onnx import TensorProto, numpy_helper

from tilewright.graph import Array
from tilewright.ir import MAX_RANK, dtype_of
from tilewright.support import ModelError, ResourceError, UnsupportedOperatorError, format_bytes, quoted

#: The element types of the format that tensors here can have.
DTYPES: Final[Mapping[int, str]] = MappingProxyType(
    {
        TensorProto.FLOAT: "f32",
        TensorProto.DOUBLE: "f64",
        TensorProto.FLOAT16: "f16",
        TensorProto.BFLOAT16: "bf16",
        TensorProto.INT8: "i8",
        TensorProto.INT16: "i16",
        TensorProto.INT32: "i32",
        TensorProto.INT64: "i64",
        TensorProto.UINT8: "u8",
        TensorProto.UINT16: "u16",
        TensorProto.UINT32: "u32",
        TensorProto.UINT64: "u64",
        TensorProto.BOOL: "bool",
        TensorProto.INT4: "i4",
        TensorProto.UINT4: "u4",
        TensorProto.INT2: "i2",
        TensorProto.UINT2: "u2",
        TensorProto.FLOAT8E4M3FN: "f8e4m3fn",
        TensorProto.FLOAT8E4M3FNUZ: "f8e4m3fnuz",
        TensorProto.FLOAT8E5M2: "f8e5m2",
        TensorProto.FLOAT8E5M2FNUZ: "f8e5m2fnuz",
        TensorProto.FLOAT8E8M0: "f8e8m0",
        TensorProto.FLOAT4E2M1: "f4e2m1",
    }
)


#: Where each element type is kept when it is not in `raw_data`.
_FIELDS: Final[Mapping[int, str]] = MappingProxyType(
    {
        TensorProto.FLOAT: "float_data",
        TensorProto.DOUBLE: "double_data",
        TensorProto.INT64: "int64_data",
        TensorProto.UINT32: "uint64_data",
        TensorProto.UINT64: "uint64_data",
    }
)


def type_name(elem_type: int) -> str:
    """The format's name of an element type, for messages."""
    try:
        return str(TensorProto.DataType.Name(elem_type)).lower()
    except ValueError:
        return f"type {elem_type}"


def tensor_array(tensor: TensorProto, folder: Path | None, max_bytes: int, what: str = "tensor") -> Array:
    """The tensor's elements. `folder` is where external data may lie; None allows none.

    Raises ModelError where data and dimensions disagree, ResourceError for more than `max_bytes`,
    UnsupportedOperatorError for an element type that tensors here cannot have.
    """
    name = f"the {what} {quoted(tensor.name)}" if tensor.name else f"a {what} without a name"
    dtype = DTYPES.get(tensor.data_type)
    if dtype is None:
        raise UnsupportedOperatorError(f"{name} has elements of {type_name(tensor.data_type)}")
    if any(size < 0 for size in tensor.dims):
        raise ModelError(f"{name} has a negative size: {list(tensor.dims)}")
    if len(tensor.dims) > MAX_RANK:
        raise ModelError(f"{name} has {len(tensor.dims)} dimensions; a tensor has at most {MAX_RANK}")
    count = math.prod(tensor.dims)
    nbytes = count * dtype_of(dtype).bytes
    if nbytes > max_bytes:
        raise ResourceError(
            f"{name} would take {format_bytes(nbytes)}; one tensor may have at most {format_bytes(max_bytes)}"
        )
    packed = dtype_of(dtype).bits < 8
    if packed:
        count = nbytes = -(-count * dtype_of(dtype).bits // 8)
    if tensor.data_location == TensorProto.EXTERNAL:
        data = _external(tensor, folder, nbytes, name)
        if packed:
            inside = TensorProto(dims=tensor.dims, data_type=tensor.data_type, raw_data=data)
            return numpy_helper.to_array(inside)
        return np.frombuffer(data, dtype_of(dtype).numpy).reshape(tuple(tensor.dims))
    if tensor.HasField("raw_data"):
        have, want, unit = len(tensor.raw_data), nbytes, "bytes"
    else:
        field = _FIELDS.get(tensor.data_type, "int32_data")
        have, want, unit = len(getattr(tensor, field)), count, "elements"
    if have != want:
        raise ModelError(
            f"{name} has the shape {list(tensor.dims)} and {have} {unit} of data instead of {want}"
        )
    return numpy_helper.to_array(tensor)


def _external(tensor: TensorProto, folder: Path | None, nbytes: int, name: str) -> bytes:
    """The bytes of a tensor kept in a file of its own."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise ModelError(f"{name} is kept in the file {quoted(location)}", hint="give the model as a path")
    path = _inside(folder, location, name)
    offset, length = _number(entries, "offset", 0, name), _number(entries, "length", nbytes, name)
    if length != nbytes:
        raise ModelError(f"{name} needs {nbytes} bytes of external data, but the model says {length}")
    place = f"the external data {quoted(location)} of {name}"
    try:
        # Opening a pipe or a device must not hang: no blocking, and only regular files are read.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ModelError(f"{place} cannot be opened: {error.strerror}") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{place} is not a regular file")
        if offset + length > status.st_size:
            raise ModelError(f"{place} ends at byte {status.st_size}, before byte {offset + length}")
        with os.fdopen(handle, "rb", closefd=False) as file:
            file.seek(offset)
            data = file.read(length)
    finally:
        os.close(handle)
    if len(data) != length:
        raise ModelError(f"{place} ended while it was read")
    return data


def _inside(folder: Path, location: str, name: str) -> Path:
    """The file's real path. Raises ModelError unless it lies inside the model's folder."""
    given = Path(location)
    odd = not location or "\x00" in location or "\\" in location
    if not odd and not given.is_absolute() and ".." not in given.parts:
        root = folder.resolve()
        real = (root / given).resolve()
        if real.is_relative_to(root) and real != root:
            return real
    raise ModelError(f"the external data {quoted(location)} of {name} is outside of the model's folder")


def _number(entries: Mapping[str, str], key: str, default: int, name: str) -> int:
    text = entries.get(key, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelError(f"the {key} {quoted(text)} of the external data of {name} is no number")
    return int(text)
