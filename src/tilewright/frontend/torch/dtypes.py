"""Element types of torch, under the names that they have here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import torch

from tilewright.frontend.torch.sizes import Sizes, size_of
from tilewright.graph import Array, TensorType
from tilewright.ir import dtype_of
from tilewright.support import InputError

#: Those that kernels know; complex, quantised and 8-bit floating-point numbers are not among them.
DTYPES: Final[Mapping[torch.dtype, str]] = MappingProxyType(
    {
        torch.float64: "f64",
        torch.float32: "f32",
        torch.float16: "f16",
        torch.bfloat16: "bf16",
        torch.int64: "i64",
        torch.int32: "i32",
        torch.int16: "i16",
        torch.int8: "i8",
        torch.uint8: "u8",
        torch.bool: "bool",
    }
)

_PARTS: Final = MappingProxyType({torch.complex64: torch.float32, torch.complex128: torch.float64})
_TORCH: Final = MappingProxyType({dtype_of(name).numpy: dtype for dtype, name in DTYPES.items()})


def tensor_type(tensor: torch.Tensor, sizes: Sizes | None = None) -> TensorType | None:
    """The type of a tensor, fake or not, of complex numbers that of their parts; None for what is not taken.

    That is one of another element type, on another device, sparse, or of a subclass that means more by it;
    one whose sizes are symbols, where these are not among the ``sizes``.
    """
    dtype = element_type(tensor)
    if dtype is None or (sizes is None and not all(isinstance(size, int) for size in tensor.shape)):
        return None
    return TensorType(dtype, tuple(size_of(size, sizes or {}) for size in tensor.shape))


def element_type(tensor: torch.Tensor) -> str | None:
    """The type of a tensor's elements, or of their parts; None for a tensor that kernels cannot take."""
    plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    return DTYPES.get(_PARTS.get(tensor.dtype, tensor.dtype)) if plain else None


def as_array(tensor: torch.Tensor) -> Array:
    """The memory of a tensor of the CPU, as an array of the same strides; complex numbers as pairs.

    Raises InputError for a tensor on another device.
    """
    plain = tensor.detach()
    if plain.device.type != "cpu":
        raise InputError(
            f"a tensor is on the device {plain.device.type!r}, and the model was compiled for the CPU",
            hint="tensor.cpu(), or compile with an example on that device",
        )
    if plain.is_conj() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    if plain.dtype == torch.bfloat16:
        bits: Array = plain.view(torch.int16).numpy()
        return bits.view(dtype_of("bf16").numpy)
    array: Array = plain.numpy()
    return array


def as_tensor(array: Array) -> torch.Tensor:
    """The memory of an array, as a tensor of the same strides."""
    if not array.size:
        # arrays of nothing have any strides
        return torch.empty(array.shape, dtype=_TORCH[array.dtype])
    if array.dtype == dtype_of("bf16").numpy:
        bits: Any = torch.from_numpy(array.view("int16"))
        half: torch.Tensor = bits.view(torch.bfloat16)
        return half
    tensor: torch.Tensor = torch.from_numpy(array)
    return tensor
