"""What a saved model says about itself: its tensors, its plan, and what it needs of a machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np

from tilewright.runtime import native
from tilewright.runtime.container import newer_or_older
from tilewright.runtime.device_code import DeviceCode, read_device_code
from tilewright.runtime.executor import MAX_BYTES, BufferRef, KernelCall, RangeCheck
from tilewright.runtime.tensors import TensorInfo, tensor_bytes
from tilewright.support import ArtefactError

SCHEMA: Final = 3
"""Version of the manifest."""
ABI: Final = 1
"""Version of the convention by which kernels are called (part 1 of ``tw_runtime.h``)."""
CODE: Final = "code"
"""The section of the shared library that holds the kernels."""
WEIGHTS: Final = "weights"
"""The section of the constants."""

_DTYPES: Final = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS: Final = ("float16", "float32", "float64")
_MAX_RANK: Final = 64
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a machine must be for the code to run: its kind, and the CPU features, in LLVM's spelling."""

    arch: str
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A saved model without its code and constants; sizes and offsets in bytes.

    ``results`` says where each of ``outputs`` is after a run: in an input, an output of the plan or a
    constant. ``constants`` are the places of the constants within their section. ``calls`` are the steps of
    the plan, their kernels numbered: number n is the symbol ``kernel_symbol(n)`` of the code.
    ``index_bounds`` states for inputs that index a table the size of that table. With ``device`` the code is
    a device's, the calls are launches there, and the last ``returned_constants`` constants stay on the host.
    """

    name: str
    producer: str
    requires: Requirements
    threads: int
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    results: tuple[BufferRef, ...]
    index_bounds: Mapping[str, int]
    plan_inputs: tuple[int, ...]
    plan_outputs: tuple[int, ...]
    arena_bytes: int
    workspace_bytes: int
    scratch_bytes: int
    constants: tuple[tuple[int, int], ...]
    calls: tuple[KernelCall, ...]
    checks: tuple[RangeCheck, ...] = ()
    copies: tuple[tuple[BufferRef, BufferRef], ...] = ()
    device: DeviceCode | None = None
    returned_constants: int = 0

    def as_data(self) -> dict[str, Any]:
        """The manifest as plain data."""
        if self.device is not None:
            of_device = {"device": self.device.as_data(), "returned_constants": self.returned_constants}
            return {**replace(self, device=None).as_data(), **of_device}
        return {
            "schema": SCHEMA,
            "abi": ABI,
            "producer": self.producer,
            "name": self.name,
            "requires": {"arch": self.requires.arch, "features": list(self.requires.features)},
            "threads": self.threads,
            "inputs": [_tensor_data(info) for info in self.inputs],
            "outputs": [_tensor_data(info) for info in self.outputs],
            "results": [_ref_data(ref) for ref in self.results],
            "index_bounds": dict(self.index_bounds),
            "plan": {
                "inputs": list(self.plan_inputs),
                "outputs": list(self.plan_outputs),
                "arena_bytes": self.arena_bytes,
                "workspace_bytes": self.workspace_bytes,
                "scratch_bytes": self.scratch_bytes,
                "constants": [list(place) for place in self.constants],
                "steps": [
                    {
                        "kernel": call.kernel,
                        "name": call.name,
                        "buffers": [_ref_data(ref) for ref in call.buffers],
                        "params": list(call.params),
                        "checks": list(call.checks),
                        "section": call.section,
                        "lane": call.lane,
                    }
                    for call in self.calls
                ],
                "checks": [
                    {
                        "place": _ref_data(check.place),
                        "dtype": check.dtype,
                        "low": check.low,
                        "high": check.high,
                        "node": check.node,
                        "value": check.value,
                        "shape": list(check.shape),
                        "first": check.first,
                        "stride": check.stride,
                        "step": check.step,
                    }
                    for check in self.checks
                ],
                "copies": [[_ref_data(source), _ref_data(target)] for source, target in self.copies],
            },
        }


def kernel_symbol(number: int) -> str:
    """The name of a kernel in the code of a saved model."""
    return f"tw_kernel_{number}"


def read_manifest(data: Mapping[str, Any], shown: str) -> Manifest:
    """The manifest from plain data, checked: kinds of entries, sizes, and that all places exist.

    ``shown`` names the file in messages. Raises ArtefactError for another version, or naming the entry that
    is wrong.
    """
    if (schema := data.get("schema")) != SCHEMA and type(schema) is int:
        raise newer_or_older(shown, "schema", schema, SCHEMA)
    try:
        manifest = _read(data)
        _check(manifest)
    except _MalformedError as error:
        raise ArtefactError(f"the manifest of {shown} is malformed: {error}") from None
    if (abi := data["abi"]) != ABI:
        raise newer_or_older(shown, "kernel interface", abi, ABI)
    return manifest


class _MalformedError(Exception):
    """An entry of a manifest is missing or wrong; the text names it."""


def _tensor_data(info: TensorInfo) -> dict[str, Any]:
    return {"name": info.name, "dtype": info.dtype.name, "shape": list(info.shape)}


def _ref_data(ref: BufferRef) -> list[int]:
    return [ref.kind, ref.index, ref.offset, ref.nbytes]


def _read(data: Mapping[str, Any]) -> Manifest:
    if _size(data, "schema") != SCHEMA:
        raise _MalformedError("schema")
    _size(data, "abi")
    requires, plan = _entry(data, "requires", dict), _entry(data, "plan", dict)
    bounds = _entry(data, "index_bounds", dict)
    return Manifest(
        name=_entry(data, "name", str),
        producer=_entry(data, "producer", str),
        requires=Requirements(_entry(requires, "arch", str), _list(requires, "features", _text)),
        threads=_size(data, "threads"),
        inputs=_list(data, "inputs", _tensor),
        outputs=_list(data, "outputs", _tensor),
        results=_list(data, "results", _ref),
        index_bounds={name: _number(bound, "index_bounds") for name, bound in bounds.items()},
        plan_inputs=_list(plan, "inputs", _number),
        plan_outputs=_list(plan, "outputs", _number),
        arena_bytes=_size(plan, "arena_bytes"),
        workspace_bytes=_size(plan, "workspace_bytes"),
        scratch_bytes=_size(plan, "scratch_bytes"),
        constants=_list(plan, "constants", _place),
        calls=_list(plan, "steps", _call),
        checks=_list(plan, "checks", _range_check),
        copies=_list(plan, "copies", _copy),
        device=_device(data["device"]) if "device" in data else None,
        returned_constants=_size(data, "returned_constants") if "device" in data else 0,
    )


def _device(data: object) -> DeviceCode:
    try:
        return read_device_code(data)
    except ValueError as error:
        raise _MalformedError(f"device: {error}") from None


def _check(manifest: Manifest) -> None:
    """That tensors have the sizes of the plan's arguments and that all places exist."""
    if not manifest.threads >= 1:
        raise _MalformedError("threads")
    if [tensor_bytes(info) for info in manifest.inputs] != list(manifest.plan_inputs):
        raise _MalformedError("inputs do not have the sizes of the plan's")
    if [tensor_bytes(info) for info in manifest.outputs] != [ref.nbytes for ref in manifest.results]:
        raise _MalformedError("outputs do not have the sizes of their results")
    sizes = {
        native.INPUT: manifest.plan_inputs,
        native.OUTPUT: manifest.plan_outputs,
        native.CONSTANT: tuple(nbytes for _, nbytes in manifest.constants),
        native.ARENA: (manifest.arena_bytes,),
    }
    used = [*manifest.results, *(ref for call in manifest.calls for ref in call.buffers)]
    used += [check.place for check in manifest.checks]
    used += [ref for pair in manifest.copies for ref in pair]
    for ref in used:
        whole = sizes.get(ref.kind, ())
        if ref.index >= len(whole) or ref.offset + ref.nbytes > whole[ref.index]:
            raise _MalformedError(f"the place {_ref_data(ref)} does not exist")
    for call in manifest.calls:
        if call.lane >= manifest.threads or call.section > len(manifest.calls):
            raise _MalformedError(f"the section or lane of {call.name!r}")
    count = len(manifest.calls)
    if (code := manifest.device) is not None:
        count = len(code.steps)
        if len(code.call_steps) != len(manifest.calls):
            raise _MalformedError("call_steps")
        if any(call.kernel >= len(code.kernels) for call in manifest.calls):
            raise _MalformedError("the kernels of the launches")
        if manifest.returned_constants > len(manifest.constants):
            raise _MalformedError("returned_constants")
    steps = [check.step for check in manifest.checks]
    if steps != sorted(steps) or any(step >= count for step in steps):
        raise _MalformedError("the steps of the checks")
    for check in manifest.checks:
        size, last = math.prod(check.shape), check.first + max(check.count - 1, 0) * check.stride
        if check.place.offset % np.dtype(check.dtype).itemsize or (check.count and last >= size):
            raise _MalformedError(f"the check of {check.value!r}")
    if any(
        source.nbytes != target.nbytes or target.kind != native.OUTPUT for source, target in manifest.copies
    ):
        raise _MalformedError("copies")
    if any(ref.kind == native.ARENA for ref in manifest.results):
        raise _MalformedError("results")
    for offset, nbytes in manifest.constants:
        if offset % native.ALIGNMENT:
            raise _MalformedError(f"the constant at {offset}, of {nbytes} bytes, is not aligned")


def _entry(data: Mapping[str, Any], key: str, kind: type[_T]) -> _T:
    value = data.get(key)
    if not isinstance(value, kind):
        raise _MalformedError(key)
    return value


def _size(data: Mapping[str, Any], key: str) -> int:
    return _number(data.get(key), key)


def _number(value: object, what: str) -> int:
    if type(value) is not int or not 0 <= value <= MAX_BYTES:
        raise _MalformedError(what)
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise _MalformedError(what)
    return value


def _list(data: Mapping[str, Any], key: str, item: Callable[[Any, str], _T]) -> tuple[_T, ...]:
    return tuple(item(value, key) for value in _entry(data, key, list))


def _tensor(value: object, what: str) -> TensorInfo:
    data = value if isinstance(value, dict) else {}
    dtype, shape = data.get("dtype"), _list(data, "shape", _number)
    if dtype not in _DTYPES + _FLOATS or len(shape) > _MAX_RANK:
        raise _MalformedError(what)
    return TensorInfo(_entry(data, "name", str), np.dtype(dtype), shape)


def _numbers(value: object, count: int, what: str) -> Sequence[int]:
    if not isinstance(value, list) or len(value) != count:
        raise _MalformedError(what)
    return [_number(each, what) for each in value]


def _ref(value: object, what: str) -> BufferRef:
    return BufferRef(*_numbers(value, 4, what))


def _place(value: object, what: str) -> tuple[int, int]:
    offset, nbytes = _numbers(value, 2, what)
    return offset, nbytes


def _param(value: object, what: str) -> int:
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise _MalformedError(what)
    return value


def _range_check(value: object, what: str) -> RangeCheck:
    data = value if isinstance(value, dict) else {}
    dtype, stride = data.get("dtype"), _size(data, "stride")
    if dtype not in _DTYPES[1:] or not stride:
        raise _MalformedError(what)
    return RangeCheck(
        place=_ref(data.get("place"), what),
        dtype=str(dtype),
        low=_param(data.get("low"), what),
        high=_param(data.get("high"), what),
        node=_entry(data, "node", str),
        value=_entry(data, "value", str),
        shape=_list(data, "shape", _number),
        first=_size(data, "first"),
        stride=stride,
        step=max(_param(data.get("step"), what), native.FIRST),
    )


def _copy(value: object, what: str) -> tuple[BufferRef, BufferRef]:
    if not isinstance(value, list) or len(value) != 2:
        raise _MalformedError(what)
    return _ref(value[0], what), _ref(value[1], what)


def _call(value: object, what: str) -> KernelCall:
    data = value if isinstance(value, dict) else {}
    return KernelCall(
        kernel=_size(data, "kernel"),
        buffers=_list(data, "buffers", _ref),
        params=_list(data, "params", _param),
        name=_entry(data, "name", str),
        checks=_list(data, "checks", _text),
        section=_size(data, "section"),
        lane=_size(data, "lane"),
    )
