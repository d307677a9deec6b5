"""What a saved model says about itself: its tensors, its plan, and what it needs of a machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tilewright.runtime import native
from tilewright.runtime.container import newer_or_older
from tilewright.runtime.device_code import DeviceCode, read_device_code
from tilewright.runtime.entries import MalformedError, entry, list_of, number, numbers, size, text
from tilewright.runtime.executor import Amount, BufferRef, KernelCall, ParamRef, RangeCheck, amount_in
from tilewright.runtime.tensors import SMALL, TensorInfo, tensor_bytes
from tilewright.support import ArtefactError

SCHEMA: Final = 3
"""Version of the manifest."""
ABI: Final = 1
"""Version of the convention by which kernels are called (part 1 of ``tw_runtime.h``)."""
CODE: Final = "code"
"""The section of the shared library that holds the kernels."""
WEIGHTS: Final = "weights"
"""The section of the constants."""

_INTEGERS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_SMALL: Final = tuple(dtype.name for dtype in SMALL)
DTYPES: Final = ("bool", *_INTEGERS, *_SMALL, "bfloat16", "float16", "float32", "float64")
"""The element types of inputs and outputs."""
_MAX_RANK: Final = 64


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a machine must be for the code to run: its kind, and the CPU features, in LLVM's spelling."""

    arch: str
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NestSignature:
    """How a loop nest is called, which changes its arguments: their names in order, and what it returns.

    ``pointers`` are those of them that may be longer, ``result`` is the output of no dimensions that is
    returned, ``None`` for nothing.
    """

    order: tuple[str, ...]
    pointers: tuple[str, ...] = ()
    result: str | None = None

    def as_data(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"order": list(self.order), "pointers": list(self.pointers), "result": self.result}


@dataclass(frozen=True, slots=True)
class Manifest:
    """A saved model without its code and constants; sizes and offsets in bytes.

    ``results`` says where each of ``outputs`` is after a run: in an input, an output of the plan or a
    constant. ``constants`` are the places of the constants within their section. ``calls`` are the steps of
    the plan, their kernels numbered: number n is the symbol ``kernel_symbol(n)`` of the code.
    ``index_bounds`` states for inputs that index a table the size of that table. A plan for a range of sizes
    has ``param_count`` parameters, and ``slots`` of its arena that these say. With ``device`` the code
    is a device's, the calls are launches there, and the last ``returned_constants`` constants stay on the
    host. With ``nest`` it is a loop nest, whose outputs are arrays of its caller.
    """

    name: str
    producer: str
    requires: Requirements
    threads: int
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    results: tuple[BufferRef, ...]
    index_bounds: Mapping[str, int]
    plan_inputs: tuple[Amount, ...]
    plan_outputs: tuple[Amount, ...]
    arena_bytes: int
    workspace_bytes: int
    scratch_bytes: int
    constants: tuple[tuple[int, int], ...]
    calls: tuple[KernelCall, ...]
    checks: tuple[RangeCheck, ...] = ()
    copies: tuple[tuple[BufferRef, BufferRef], ...] = ()
    param_count: int = 0
    slots: tuple[ParamRef, ...] = ()
    device: DeviceCode | None = None
    returned_constants: int = 0
    nest: NestSignature | None = None

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
            **({} if self.nest is None else {"nest": self.nest.as_data()}),
            "requires": {"arch": self.requires.arch, "features": list(self.requires.features)},
            "threads": self.threads,
            "inputs": [_tensor_data(info) for info in self.inputs],
            "outputs": [_tensor_data(info) for info in self.outputs],
            "results": [_ref_data(ref) for ref in self.results],
            "index_bounds": dict(self.index_bounds),
            "plan": {
                "inputs": list(map(amount_data, self.plan_inputs)),
                "outputs": list(map(amount_data, self.plan_outputs)),
                "arena_bytes": self.arena_bytes,
                "workspace_bytes": self.workspace_bytes,
                "scratch_bytes": self.scratch_bytes,
                "constants": [list(place) for place in self.constants],
                "steps": [
                    {
                        "kernel": call.kernel,
                        "name": call.name,
                        "buffers": [_ref_data(ref) for ref in call.buffers],
                        "params": list(map(amount_data, call.params)),
                        "checks": list(call.checks),
                        "section": call.section,
                        "lane": call.lane,
                        **({} if call.repeat == 1 else {"repeat": amount_data(call.repeat)}),
                    }
                    for call in self.calls
                ],
                "checks": [
                    {
                        "place": _ref_data(check.place),
                        "dtype": check.dtype,
                        "low": amount_data(check.low),
                        "high": amount_data(check.high),
                        "node": check.node,
                        "value": check.value,
                        "shape": list(map(amount_data, check.shape)),
                        "first": check.first,
                        "stride": check.stride,
                        "step": check.step,
                        **({} if check.many is None else {"many": amount_data(check.many)}),
                    }
                    for check in self.checks
                ],
                "copies": [[_ref_data(source), _ref_data(target)] for source, target in self.copies],
                **({"params": self.param_count} if self.param_count else {}),
                **({"slots": list(map(amount_data, self.slots))} if self.slots else {}),
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
        manifest = read_plan(data)
        if manifest.param_count:
            raise MalformedError("params")
    except MalformedError as error:
        raise ArtefactError(f"the manifest of {shown} is malformed: {error}") from None
    if (abi := data["abi"]) != ABI:
        raise newer_or_older(shown, "kernel interface", abi, ABI)
    return manifest


def read_plan(data: Mapping[str, Any]) -> Manifest:
    """The manifest of one plan, checked. Raises MalformedError."""
    manifest = _read(data)
    _check(manifest)
    return manifest


def _tensor_data(info: TensorInfo) -> dict[str, Any]:
    strides = {} if info.strides is None else {"strides": list(info.strides)}
    texts = {} if info.texts is None else {"texts": list(info.texts)}
    keys = {} if info.keys is None else {"keys": list(info.keys)}
    return {
        "name": info.name,
        "dtype": info.dtype.name,
        "shape": list(info.shape),
        **strides,
        **texts,
        **keys,
    }


def amount_data(amount: Amount) -> int | list[int]:
    """A number, or one of a run, as plain data."""
    return [amount.index] if isinstance(amount, ParamRef) else amount


def _ref_data(ref: BufferRef) -> list[int | list[int]]:
    moving = [amount_data(ref.advance), ref.first] if ref.advance or ref.first else []
    return [ref.kind, ref.index, amount_data(ref.offset), amount_data(ref.nbytes), *moving]


def _read(data: Mapping[str, Any]) -> Manifest:
    if size(data, "schema") != SCHEMA:
        raise MalformedError("schema")
    size(data, "abi")
    requires, plan = entry(data, "requires", dict), entry(data, "plan", dict)
    bounds = entry(data, "index_bounds", dict)
    return Manifest(
        name=entry(data, "name", str),
        producer=entry(data, "producer", str),
        requires=Requirements(entry(requires, "arch", str), list_of(requires, "features", text)),
        threads=size(data, "threads"),
        inputs=list_of(data, "inputs", _tensor),
        outputs=list_of(data, "outputs", _tensor),
        results=list_of(data, "results", _ref),
        index_bounds={name: number(bound, "index_bounds") for name, bound in bounds.items()},
        plan_inputs=list_of(plan, "inputs", read_size),
        plan_outputs=list_of(plan, "outputs", read_size),
        arena_bytes=size(plan, "arena_bytes"),
        workspace_bytes=size(plan, "workspace_bytes"),
        scratch_bytes=size(plan, "scratch_bytes"),
        constants=list_of(plan, "constants", _place),
        calls=list_of(plan, "steps", _call),
        checks=list_of(plan, "checks", _range_check),
        copies=list_of(plan, "copies", _copy),
        param_count=number(plan.get("params", 0), "params"),
        slots=list_of(plan, "slots", _param_ref) if "slots" in plan else (),
        device=_device(data["device"]) if "device" in data else None,
        returned_constants=size(data, "returned_constants") if "device" in data else 0,
        nest=_nest(entry(data, "nest", dict)) if "nest" in data else None,
    )


def _nest(data: Mapping[str, Any]) -> NestSignature:
    result = data.get("result")
    order, pointers = (list_of(data, name, text) for name in ("order", "pointers"))
    return NestSignature(order, pointers, None if result is None else text(result, "result"))


def _device(data: object) -> DeviceCode:
    try:
        return read_device_code(data)
    except ValueError as error:
        raise MalformedError(f"device: {error}") from None


def _check(manifest: Manifest) -> None:
    """That tensors have the sizes of the plan's arguments and that all places exist."""
    if not manifest.threads >= 1:
        raise MalformedError("threads")
    if manifest.param_count:
        _check_amounts(manifest)
    else:
        if [tensor_bytes(info) for info in manifest.inputs] != list(manifest.plan_inputs):
            raise MalformedError("inputs do not have the sizes of the plan's")
        if [tensor_bytes(info) for info in manifest.outputs] != [ref.nbytes for ref in manifest.results]:
            raise MalformedError("outputs do not have the sizes of their results")
        check_places(manifest, ())
    for call in manifest.calls:
        if call.lane >= manifest.threads or call.section > len(manifest.calls):
            raise MalformedError(f"the section or lane of {call.name!r}")
        if any(ref.first >= len(call.buffers) for ref in call.buffers):
            raise MalformedError(f"a place of {call.name!r}, which moves on")
    count = len(manifest.calls)
    if (code := manifest.device) is not None:
        count = len(code.steps)
        if len(code.call_steps) != len(manifest.calls):
            raise MalformedError("call_steps")
        if any(call.kernel >= len(code.kernels) for call in manifest.calls):
            raise MalformedError("the kernels of the launches")
        if manifest.returned_constants > len(manifest.constants):
            raise MalformedError("returned_constants")
    if manifest.nest is not None:
        both, whole = (*manifest.inputs, *manifest.outputs), [(r.kind, r.index) for r in manifest.results]
        returned = [info for info in manifest.outputs if info.name == manifest.nest.result]
        named = [*manifest.nest.order, *(info.name for info in returned)]
        fits = all(info.shape for info in both if info.name in manifest.nest.pointers)
        fits = fits and not any(info.shape for info in returned)
        if not fits or sorted(info.name for info in both) != sorted(named):
            raise MalformedError("the arguments of the nest")
        if whole != [(native.OUTPUT, n) for n in range(len(manifest.plan_outputs))]:
            raise MalformedError("the results of the nest")
    steps = [check.step for check in manifest.checks]
    if steps != sorted(steps) or any(step >= count for step in steps):
        raise MalformedError("the steps of the checks")
    if any(
        source.nbytes != target.nbytes or target.kind != native.OUTPUT for source, target in manifest.copies
    ):
        raise MalformedError("copies")
    if any(ref.kind == native.ARENA for ref in manifest.results):
        raise MalformedError("results")
    for offset, nbytes in manifest.constants:
        if offset % native.ALIGNMENT:
            raise MalformedError(f"the constant at {offset}, of {nbytes} bytes, is not aligned")


def _check_amounts(manifest: Manifest) -> None:
    """That all numbers of a run exist."""
    refs = [*_places(manifest)]
    amounts: list[Amount] = [*manifest.plan_inputs, *manifest.plan_outputs, *manifest.slots]
    amounts += [amount for ref in refs for amount in (ref.offset, ref.nbytes)]
    amounts += [param for call in manifest.calls for param in (*call.params, call.repeat)]
    amounts += [ref.advance for call in manifest.calls for ref in call.buffers]
    amounts += [
        n for check in manifest.checks for n in (check.low, check.high, *check.shape, check.many or 0)
    ]
    if any(isinstance(n, ParamRef) and n.index >= manifest.param_count for n in amounts):
        raise MalformedError("params")
    wholes = {
        native.INPUT: len(manifest.plan_inputs),
        native.OUTPUT: len(manifest.plan_outputs),
        native.CONSTANT: len(manifest.constants),
        native.ARENA: 1 + len(manifest.slots),
    }
    if any(ref.index >= wholes.get(ref.kind, 0) for ref in refs):
        raise MalformedError("a place does not exist")


def _places(manifest: Manifest) -> Iterator[BufferRef]:
    yield from manifest.results
    for call in manifest.calls:
        yield from call.buffers
    for check in manifest.checks:
        yield check.place
    for pair in manifest.copies:
        yield from pair


def check_places(manifest: Manifest, params: Sequence[int]) -> None:
    """That all places exist in a run of these parameters. Raises MalformedError."""

    def at(amount: Amount) -> int:
        found = amount_in(amount, params)
        if found < 0:
            raise MalformedError("a negative size")
        return found

    sizes = {
        native.INPUT: [*map(at, manifest.plan_inputs)],
        native.OUTPUT: [*map(at, manifest.plan_outputs)],
        native.CONSTANT: [nbytes for _, nbytes in manifest.constants],
        native.ARENA: [manifest.arena_bytes, *map(at, manifest.slots)],
    }
    for ref in manifest.results:
        # a result is a whole input, output or constant
        if ref.kind == native.OUTPUT and [at(ref.nbytes)] != sizes[ref.kind][ref.index : ref.index + 1]:
            raise MalformedError("outputs do not have the sizes of their results")
    for ref in _places(manifest):
        whole = sizes.get(ref.kind, [])
        if ref.index >= len(whole) or at(ref.offset) + at(ref.nbytes) > whole[ref.index]:
            raise MalformedError(f"the place {_ref_data(ref)} does not exist")
    for call in manifest.calls:
        for ref in call.buffers if call.repeat != 1 else ():
            # the last of the calls that it moves on to
            moved = amount_in(ref.advance, params) * max(at(call.repeat) - (2 if ref.first else 1), 0)
            last = at(ref.offset) + moved
            if not 0 <= last <= sizes[ref.kind][ref.index] - at(ref.nbytes):
                raise MalformedError(f"a place of {call.name!r}, which moves on")
    for check in manifest.checks:
        count, item = at(check.count), np.dtype(check.dtype).itemsize
        last = check.first + max(count - 1, 0) * check.stride
        beyond = count and last >= math.prod(map(at, check.shape))
        within = count * item * check.stride <= at(check.place.nbytes) + item * (check.stride - 1)
        if at(check.place.offset) % item or beyond or not within:
            raise MalformedError(f"the check of {check.value!r}")


def _tensor(value: object, what: str) -> TensorInfo:
    data = value if isinstance(value, dict) else {}
    dtype, shape = data.get("dtype"), list_of(data, "shape", number)
    if dtype not in DTYPES or len(shape) > _MAX_RANK:
        raise MalformedError(what)
    strides = list_of(data, "strides", number) if "strides" in data else None
    if strides is not None and len(strides) != len(shape):
        raise MalformedError(what)
    texts, keys = data.get("texts"), data.get("keys")
    if texts == []:
        raise MalformedError(what)
    for given, kinds in ((texts, str), (keys, int | str)):
        if given is not None and not (isinstance(given, list) and all(isinstance(g, kinds) for g in given)):
            raise MalformedError(what)
    return TensorInfo(
        entry(data, "name", str),
        np.dtype(dtype),
        shape,
        strides,
        None if texts is None else tuple(texts),
        None if keys is None else tuple(keys),
    )


def _ref(value: object, what: str) -> BufferRef:
    if not isinstance(value, list) or len(value) not in (4, 6):
        raise MalformedError(what)
    kind, index = numbers(value[:2], 2, what)
    place = BufferRef(kind, index, read_size(value[2], what), read_size(value[3], what))
    if len(value) == 4:
        return place
    return replace(place, advance=_call_param(value[4], what), first=number(value[5], what))


def read_size(value: object, what: str) -> Amount:
    """A size from plain data, be it of a run. Raises MalformedError."""
    return _param_ref(value, what) if isinstance(value, list) else number(value, what)


def _param_ref(value: object, what: str) -> ParamRef:
    return ParamRef(*numbers(value, 1, what))


def _place(value: object, what: str) -> tuple[int, int]:
    offset, nbytes = numbers(value, 2, what)
    return offset, nbytes


def _param(value: object, what: str) -> int:
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise MalformedError(what)
    return value


def _call_param(value: object, what: str) -> Amount:
    return _param_ref(value, what) if isinstance(value, list) else _param(value, what)


def _range_check(value: object, what: str) -> RangeCheck:
    data = value if isinstance(value, dict) else {}
    dtype, stride = data.get("dtype"), size(data, "stride")
    if dtype not in _INTEGERS or not stride:
        raise MalformedError(what)
    return RangeCheck(
        place=_ref(data.get("place"), what),
        dtype=str(dtype),
        low=_call_param(data.get("low"), what),
        high=_call_param(data.get("high"), what),
        node=entry(data, "node", str),
        value=entry(data, "value", str),
        shape=list_of(data, "shape", read_size),
        first=size(data, "first"),
        stride=stride,
        step=max(_param(data.get("step"), what), native.FIRST),
        many=_param_ref(data["many"], what) if "many" in data else None,
    )


def _copy(value: object, what: str) -> tuple[BufferRef, BufferRef]:
    if not isinstance(value, list) or len(value) != 2:
        raise MalformedError(what)
    return _ref(value[0], what), _ref(value[1], what)


def _call(value: object, what: str) -> KernelCall:
    data = value if isinstance(value, dict) else {}
    return KernelCall(
        kernel=size(data, "kernel"),
        buffers=list_of(data, "buffers", _ref),
        params=list_of(data, "params", _call_param),
        name=entry(data, "name", str),
        checks=list_of(data, "checks", text),
        section=size(data, "section"),
        lane=size(data, "lane"),
        repeat=read_size(data.get("repeat", 1), what),
    )
