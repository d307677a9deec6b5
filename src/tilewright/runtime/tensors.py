"""Inputs and outputs of a compiled model: what they are, checking what a caller gives, drawing samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilewright.support import InputError, quoted, suggestion, whole_number

Array = npt.NDArray[Any]

#: Integers of fewer than 8 bits, whose elements may be given as such bytes.
_INTEGERS: Final = MappingProxyType(
    {
        np.dtype(ml_dtypes.int4): np.dtype(np.int8),
        np.dtype(ml_dtypes.uint4): np.dtype(np.uint8),
        np.dtype(ml_dtypes.int2): np.dtype(np.int8),
        np.dtype(ml_dtypes.uint2): np.dtype(np.uint8),
    }
)
_FLOATS: Final = (
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float8_e8m0fnu,
    ml_dtypes.float4_e2m1fn,
)
SMALL: Final = (*_INTEGERS, *map(np.dtype, _FLOATS))
"""Element types that numpy has not by itself, of a byte in memory."""
SMALL_INTEGERS = 2
"""Integer inputs that index nothing are drawn from 0 up to, not including, this."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output of a compiled model: its name in the model, element type and shape.

    ``strides`` are those of an input that is no dense array, in elements. With ``texts`` integers stand for
    texts, by their places; with ``keys`` each row of an output is a map from these.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    texts: tuple[str, ...] | None = None
    keys: tuple[int | str, ...] | None = None

    def __str__(self) -> str:
        elements = self.dtype.name if self.texts is None else "str"
        return f"{quoted(self.name)}: {elements}[{', '.join(map(str, self.shape))}]"


def tensor_bytes(info: TensorInfo) -> int:
    """The bytes of a tensor, from its first to its last element."""
    return _elements(info) * info.dtype.itemsize


def _elements(info: TensorInfo) -> int:
    if info.strides is None or not all(info.shape):
        return math.prod(info.shape)
    return 1 + sum((n - 1) * step for n, step in zip(info.shape, info.strides, strict=True))


def as_array(given: object) -> Array:
    """An array over the memory of what speaks numpy's, the buffer or dlpack's protocol; else a new one.

    Raises ValueError, TypeError, RuntimeError or BufferError for what cannot be made an array.
    """
    if isinstance(given, np.ndarray):
        return given
    if hasattr(given, "__dlpack__") and not hasattr(given, "__array__"):
        return np.from_dlpack(given)
    return np.asarray(given)


def laid_out(array: Array, info: TensorInfo) -> Array:
    """The elements of an input as a kernel reads them: where they lie, if they lie so, else copied."""
    if info.strides is None:
        return array if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(info.shape)
    size, count = info.dtype.itemsize, _elements(info)
    steps = tuple(step * size for step in info.strides)
    lies = all(n == 1 or a == b for n, a, b in zip(info.shape, array.strides, steps, strict=True))
    if not lies:
        copy = np.lib.stride_tricks.as_strided(np.zeros(count, info.dtype), info.shape, steps)
        copy[...] = array
        array = copy
    # from the first element to the last: memory of the array, and none beyond it
    return np.lib.stride_tricks.as_strided(array, (count,), (size,), writeable=False)


def as_declared(array: Array, info: TensorInfo) -> Any:
    """What kernels wrote as a caller gets it: texts for their numbers, a list of maps for rows."""
    if info.keys is not None:
        return [dict(zip(info.keys, row, strict=False)) for row in array.tolist()]
    if info.texts is not None:
        # what is no text of the model's is the empty one, which comes first
        return np.array(info.texts, object).take(array, mode="clip")
    return array.view(info.dtype)


def _numbers(array: Array, info: TensorInfo) -> Array:
    """The numbers of texts; those that the model does not have are none of its own."""
    if array.dtype.kind not in "OUST":
        hint = "an array of texts: numpy.array([['a', 'b']])"
        raise InputError(f"the input {info} got elements of {array.dtype.name}", hint=hint)
    assert info.texts is not None
    numbers = {text: at for at, text in enumerate(info.texts)}
    found = [numbers.get(str(text), -1) for text in array.reshape(-1)]
    return np.array(found, info.dtype).reshape(array.shape)


def draw_feeds(inputs: Sequence[TensorInfo], bounds: Mapping[str, int], seed: object = 0) -> dict[str, Array]:
    """Normal numbers for float inputs, indices within their bounds for integers; the same for equal seeds.

    Raises InputError for a seed that is none.
    """
    start = whole_number(seed)
    if start is None or start < 0:
        raise InputError(f"a seed is a whole number from 0, not {seed!r}")
    generator = np.random.default_rng(start)
    feeds: dict[str, Array] = {}
    for info in inputs:
        if info.texts is not None:
            feeds[info.name] = np.array(info.texts, object)[
                generator.integers(0, len(info.texts), info.shape)
            ]
        elif info.dtype.kind in "iu" or info.dtype in _INTEGERS:
            high = max(1, bounds.get(info.name, SMALL_INTEGERS))
            feeds[info.name] = np.asarray(generator.integers(0, high, info.shape)).astype(info.dtype)
        elif info.dtype.kind == "b":
            feeds[info.name] = generator.integers(0, 2, info.shape).astype(info.dtype)
        else:
            feeds[info.name] = np.asarray(generator.standard_normal(info.shape)).astype(info.dtype)
    return feeds


def checked_names(names: object, known: Sequence[TensorInfo]) -> tuple[str, ...]:
    """The outputs asked for; ``None`` is all. Raises InputError for a name that is none of them."""
    every = [info.name for info in known]
    if names is None:
        return tuple(every)
    if isinstance(names, str) or not isinstance(names, Iterable):
        example = [names] if isinstance(names, str) else every[:1]
        raise InputError("output names must be a list of names", hint=str(example))
    wanted = tuple(names)
    for name in wanted:
        if name not in every:
            raise InputError(f"the model has no output {_shown(name)}", hint=_hint(name, every, "outputs"))
    return wanted


def checked_results(given: object, wanted: Sequence[TensorInfo], inputs: Sequence[Array]) -> list[Array]:
    """The arrays that results are written to, in order.

    Raises InputError naming the first output whose array does not fit, or shares memory with another or with
    an input.
    """
    if not isinstance(given, list | tuple):
        raise InputError("out is a list of arrays, one for each output", hint="out=[array]")
    if len(given) != len(wanted):
        raise InputError(f"out has {len(given)} arrays for {len(wanted)} outputs")
    arrays: list[Array] = []
    for info, array in zip(wanted, given, strict=True):
        if info.texts is not None or info.keys is not None:
            raise InputError(f"the output {info} is no array of numbers that could be written to one")
        if not isinstance(array, np.ndarray):
            raise InputError(f"the output {info} cannot be written to {type(array).__name__}")
        if (array.dtype, array.shape) != (info.dtype, info.shape):
            raise InputError(f"the output {info} cannot be written to {array.dtype}{list(array.shape)}")
        if not array.flags.c_contiguous or not array.flags.writeable:
            raise InputError(f"the output {info} needs an array that is row-major and writeable")
        if any(np.may_share_memory(array, other) for other in (*inputs, *arrays)):
            raise InputError(
                f"the array for the output {info} shares memory with another argument",
                hint="kernels read inputs while they write results",
            )
        arrays.append(array)
    return arrays


def checked_repeats(repeats: object) -> int:
    """How often to run. Raises InputError for what is no whole number from 1."""
    count = whole_number(repeats)
    if count is None or count < 1:
        raise InputError(f"repeats must be a whole number from 1, not {repeats!r}")
    return count


class HoldsCode:
    """A mixin of what holds machine code and memory of this process: it cannot be pickled or copied."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> Any:
        raise InputError(
            f"a {type(self).__name__} holds code and memory of this process: it cannot be pickled or copied",
            hint="save(path) and tilewright.load(path) take a model to another process; "
            "any number of threads may run one",
        )


class Named(Protocol):
    """An input or output, whatever its sizes."""

    @property
    def name(self) -> str:
        """Its name in the model."""


def named_feeds(arrays: Sequence[Array], known: Sequence[Named]) -> dict[str, Array]:
    """Arrays given in the order of the inputs, by name. Raises InputError where their number is another."""
    if len(arrays) != len(known):
        names = ", ".join(map(str, known)) or "none"
        raise InputError(f"the model takes {len(known)} inputs, got {len(arrays)}", hint=names)
    return {info.name: array for info, array in zip(known, arrays, strict=True)}


def checked_feeds(feeds: Mapping[str, Array], known: Sequence[TensorInfo]) -> dict[str, Array]:
    """The inputs in order, row by row in memory. Raises InputError naming the first one that does not fit."""
    if type(feeds) is dict and len(feeds) == len(known):
        try:
            return {info.name: checked_array(feeds[info.name], info) for info in known}
        except KeyError:
            pass  # said properly below
    checked_input_names(feeds, known)
    return {info.name: checked_array(feeds[info.name], info) for info in known}


def checked_input_names(feeds: object, known: Sequence[Named]) -> None:
    """Raise InputError unless there is something for each input, and nothing else."""
    if not isinstance(feeds, Mapping):
        raise InputError(
            f"inputs must be a mapping from names to arrays, got {type(feeds).__name__}",
            hint="run(None, {'name': array}), or call the model with the arrays in order",
        )
    every = [info.name for info in known]
    for name in feeds:
        if name not in every:
            raise InputError(f"the model has no input {_shown(name)}", hint=_hint(name, every, "inputs"))
    missing = [info for info in known if info.name not in feeds]
    if missing:
        raise InputError(f"the input {missing[0]} is missing")


def checked_array(given: object, info: TensorInfo) -> Array:
    """An input, row by row in memory. Raises InputError where it does not fit."""
    try:
        array = given if type(given) is np.ndarray else as_array(given)
    except (ValueError, TypeError, RuntimeError, BufferError) as error:
        raise InputError(f"the input {info} cannot be made an array: {error}") from None
    if info.texts is not None:
        array, info = _numbers(array, info), replace(info, texts=None)
    held = _INTEGERS.get(info.dtype)
    if held is not None and array.dtype == held:
        array = array.view(info.dtype)
    if (
        array.dtype == info.dtype
        and array.shape == info.shape
        and info.strides is None
        and array.flags.c_contiguous
    ):
        return array
    if array.dtype != info.dtype:
        home = "numpy" if hasattr(np, info.dtype.name) else "ml_dtypes"
        hint = f"convert it: numpy.asarray(x, {home}.{info.dtype.name})"
        found = f"{array.dtype.name} in foreign byte order" if _swapped(array, info) else array.dtype.name
        raise InputError(f"the input {info} got elements of {found}", hint=hint)
    if array.shape != info.shape:
        raise InputError(
            f"the input {info} got the shape {list(array.shape)}",
            hint="the model was compiled for fixed shapes; compile it again with shapes= for others",
        )
    return laid_out(array, info)


def _swapped(array: Array, info: TensorInfo) -> bool:
    return array.dtype.kind in "biuf" and array.dtype.newbyteorder("=") == info.dtype


def _shown(name: object) -> str:
    return quoted(name) if isinstance(name, str) else repr(name)[:80]


def _hint(name: object, known: Sequence[str], what: str) -> str:
    close = suggestion(name, known) if isinstance(name, str) else ""
    return close or f"its {what} are {', '.join(map(quoted, known)) or 'none'}"
