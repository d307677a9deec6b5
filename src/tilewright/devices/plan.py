"""Plans on devices: a model as a list of launches over one arena."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from tilewright.devices.model import DEVICE_ALIGNMENT, Array, Device, DeviceModule, Extents, Launch, Memory
from tilewright.runtime import ARENA, CONSTANT, FIRST, INPUT, OUTPUT, BufferRef, RangeCheck
from tilewright.support import InputError, ResourceError, TargetError, format_bytes
from tilewright.target import TensorMap

_NANO: Final = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class DeviceCall:
    """One launch of a plan: a kernel of a module with its grid and arguments; ``step`` it belongs to."""

    module: DeviceModule
    symbol: str
    grid: Extents
    block: Extents
    buffers: tuple[BufferRef, ...]
    scalars: tuple[np.generic, ...]
    shared_bytes: int
    step: int
    maps: tuple[TensorMap, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class DevicePlanContents:
    """What a plan consists of: sizes of inputs, outputs and arena in bytes, constants, launches, checks."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: tuple[Array, ...]
    calls: tuple[DeviceCall, ...]
    step_names: tuple[str, ...]
    arena_bytes: int
    checks: tuple[RangeCheck, ...] = ()


def rounded_up(nbytes: int) -> int:
    """Bytes that a buffer takes of an arena."""
    return -(-nbytes // DEVICE_ALIGNMENT) * DEVICE_ALIGNMENT


class DevicePlanBuilder:
    """Collects what a plan consists of; inputs, outputs and steps are numbered as they are added."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._inputs: list[int] = []
        self._outputs: list[int] = []
        self._constants: list[Array] = []
        self._arena_bytes = 0
        self._names: list[str] = []
        self._calls: list[DeviceCall] = []
        self._checks: list[RangeCheck] = []

    def input(self, nbytes: int) -> BufferRef:
        """The next input."""
        self._inputs.append(nbytes)
        return BufferRef(INPUT, len(self._inputs) - 1, 0, nbytes)

    def output(self, nbytes: int) -> BufferRef:
        """The next output."""
        self._outputs.append(nbytes)
        return BufferRef(OUTPUT, len(self._outputs) - 1, 0, nbytes)

    def constant(self, array: Array) -> BufferRef:
        """A row-major constant, copied to the device once."""
        self._constants.append(array)
        return BufferRef(CONSTANT, len(self._constants) - 1, 0, array.nbytes)

    def arena(self, offset: int, nbytes: int) -> BufferRef:
        """Bytes of the arena, which grows to hold them."""
        if offset % DEVICE_ALIGNMENT:
            raise ValueError(f"an offset in the arena must be a multiple of {DEVICE_ALIGNMENT}, got {offset}")
        self._arena_bytes = max(self._arena_bytes, offset + rounded_up(nbytes))
        return BufferRef(ARENA, 0, offset, nbytes)

    def step(self, name: str) -> int:
        """The next step, for profiles and messages; its launches follow."""
        self._names.append(name)
        return len(self._names) - 1

    def check(self, check: RangeCheck) -> None:
        """Look at numbers before the next step, at those of inputs before any."""
        first = check.place.kind == INPUT
        self._checks.append(replace(check, step=FIRST if first else len(self._names)))

    def launch(self, call: DeviceCall) -> None:
        """Add a launch."""
        self._calls.append(call)

    def build(self) -> DevicePlan:
        """The plan, with its memory on the device. Raises ResourceError where that is not to be had."""
        contents = DevicePlanContents(
            tuple(self._inputs),
            tuple(self._outputs),
            tuple(self._constants),
            tuple(self._calls),
            tuple(self._names),
            self._arena_bytes,
            tuple(self._checks),
        )
        return DevicePlan(self.device, contents)


class DevicePlan:
    """Launches over memory of a device. A run copies inputs there, starts all, and copies outputs back.

    Any number of Python threads may run one plan; they take turns. Of a device that is not here a plan can be
    saved, and not run.
    """

    def __init__(self, device: Device, contents: DevicePlanContents) -> None:
        self.device = device
        self.contents = contents
        """What the plan was made of."""
        self.inputs = contents.inputs
        """Bytes of each input."""
        self.outputs = contents.outputs
        """Bytes of each output."""
        self.step_names = contents.step_names
        """Name of each step."""
        self.arena_bytes = contents.arena_bytes
        """Bytes of intermediate tensors."""
        self.run_bytes = self.arena_bytes + sum(map(rounded_up, [*self.inputs, *self.outputs]))
        """Bytes of the device's memory that a run works on."""
        total = self.run_bytes + sum(c.nbytes for c in contents.constants)
        if total > device.limits.memory_bytes:
            raise ResourceError(
                f"the model needs {format_bytes(total)} of memory; the device {device.name} has "
                f"{format_bytes(device.limits.memory_bytes)}"
            )
        self._lock = threading.Lock()
        if device.present:
            self._prepare()

    def _prepare(self) -> None:
        """Lay out the device's memory, and make all launches ready."""
        device, contents = self.device, self.contents
        inputs, outputs, constants = contents.inputs, contents.outputs, contents.constants
        arena_bytes = contents.arena_bytes
        sizes = [*inputs, *outputs, *(c.nbytes for c in constants)]
        # one allocation for all: constants first, then what runs change
        whole = device.allocate(max(DEVICE_ALIGNMENT, sum(map(rounded_up, sizes)) + arena_bytes))
        offset = 0
        places: list[Memory] = []
        for nbytes in sizes:
            places.append(whole.part(offset, nbytes))
            offset += rounded_up(nbytes)
        self._inputs = places[: len(inputs)]
        self._outputs = places[len(inputs) : len(inputs) + len(outputs)]
        self._stored = places[len(inputs) + len(outputs) :]
        for place, constant in zip(self._stored, constants, strict=True):
            device.upload(place, constant)
        self._whole, self._arena_at = whole, offset
        self._steps = [call.step for call in contents.calls]
        self._input_checks = [check for check in contents.checks if check.step == FIRST]
        self._own = self._launched(self._inputs, self._outputs)

    def _launched(self, inputs: Sequence[Memory], outputs: Sequence[Memory]) -> _Launched:
        """All launches, ready, with inputs and outputs in this memory."""
        contents = self.contents

        def memory(ref: BufferRef) -> Memory:
            if ref.kind == ARENA:
                return self._whole.part(self._arena_at + ref.offset, ref.nbytes)
            table = {INPUT: inputs, OUTPUT: outputs, CONSTANT: self._stored}
            found = table[ref.kind][ref.index]
            return (
                found if not ref.offset and ref.nbytes == found.nbytes else found.part(ref.offset, ref.nbytes)
            )

        launches = [
            call.module.prepare(
                call.symbol,
                call.grid,
                call.block,
                [memory(r) for r in call.buffers],
                call.scalars,
                call.shared_bytes,
                call.maps,
            )
            for call in contents.calls
        ]
        # those of what steps compute wait for the device: there the numbers are looked at by the host
        checks = {
            at: [(check, memory(check.place)) for check in contents.checks if check.step == step]
            for at, step in _first_launches(self._steps)
            if any(check.step == step for check in contents.checks)
        }
        # with checks in between, the host has to look at numbers on the way
        return _Launched(launches, launches if checks else self.device.captured(launches), checks)

    def _enqueue(self, launched: _Launched) -> None:
        for at, launch in enumerate(launched.whole):
            for check, place in launched.checks.get(at, ()):
                self._look_at(check, place)
            launch.enqueue()

    def _look_at(self, check: RangeCheck, place: Memory) -> None:
        numbers = np.empty(check.place.nbytes, np.uint8)
        self.device.download(place, numbers)
        _look(check, numbers)

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run once on row-major arrays of the stated sizes.

        Raises InputError where they are not, TargetError where the device is not here.
        """
        self.require_device()
        self._check("input", inputs, self.inputs)
        self._check("output", outputs, self.outputs)
        for check in self._input_checks:
            _look(check, inputs[check.place.index].reshape(-1).view(np.uint8)[check.place.offset :])
        with self._lock:
            for memory, array in zip(self._inputs, inputs, strict=True):
                self.device.upload(memory, array)
            self._enqueue(self._own)
            for memory, array in zip(self._outputs, outputs, strict=True):
                self.device.download(memory, array)

    def require_device(self) -> None:
        """Raises TargetError where the device is not here."""
        if not self.device.present:
            raise TargetError(
                f"the model was compiled for {self.device.name}, which is not here",
                hint="CompiledModel.save writes it, and tilewright.load runs it where the device is",
            )

    def measure(
        self, inputs: Sequence[Array], outputs: Sequence[Array], *, repeats: int = 1
    ) -> npt.NDArray[np.int64]:
        """Run ``repeats`` times with events around each step: nanoseconds, of shape (repeats, steps)."""
        self.run(inputs, outputs)
        nanoseconds = np.zeros((repeats, len(self.step_names)), np.int64)
        device = self.device
        with self._lock:
            for row in nanoseconds:
                events = [device.event()]
                for launch in self._own.launches:
                    launch.enqueue()
                    events.append(device.event())
                device.synchronize()
                for at, step in enumerate(self._steps):
                    row[step] += round(events[at + 1].seconds_since(events[at]) * _NANO)
        return nanoseconds

    def seconds(self, repeats: int = 1) -> float:
        """Seconds a run of the kernels alone, by events around ``repeats`` of them one after another."""
        with self._lock:
            start = self.device.event()
            for _ in range(repeats):
                for launch in self._own.whole:
                    launch.enqueue()
            end = self.device.event()
            return end.seconds_since(start) / repeats

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> BoundDevicePlan:
        """Runs on these very arrays."""
        return BoundDevicePlan(self, tuple(inputs), tuple(outputs))

    def on_device(self, inputs: Sequence[Memory], outputs: Sequence[Memory]) -> ResidentPlan:
        """Runs on memory of the device, which is neither copied there nor back."""
        return ResidentPlan(self, tuple(inputs), self._launched(inputs, outputs))

    def trim(self) -> None:
        """Nothing is kept for runs to come but what every run works on."""

    def _check(self, what: str, arrays: Sequence[Array], sizes: tuple[int, ...]) -> None:
        if len(arrays) != len(sizes):
            raise InputError(f"expected {len(sizes)} {what}s, got {len(arrays)}")
        for n, (array, nbytes) in enumerate(zip(arrays, sizes, strict=True)):
            if array.nbytes != nbytes or not array.flags.c_contiguous:
                raise InputError(f"{what} {n} must be {nbytes} bytes, row by row; got {array.nbytes}")


@dataclass(frozen=True, slots=True)
class BoundDevicePlan:
    """Runs of a plan on arrays that stay where they are."""

    plan: DevicePlan
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]

    def run(self) -> None:
        """Run once. Raises what :meth:`DevicePlan.run` raises."""
        self.plan.run(self.inputs, self.outputs)


@dataclass(frozen=True, slots=True, eq=False)
class _Launched:
    """Launches in order, what stands for all of them, and what the host looks at before which of these."""

    launches: Sequence[Launch]
    whole: Sequence[Launch]
    checks: Mapping[int, Sequence[tuple[RangeCheck, Memory]]]


@dataclass(frozen=True, slots=True, eq=False)
class ResidentPlan:
    """Runs of a plan on memory of its device."""

    plan: DevicePlan
    inputs: tuple[Memory, ...]
    launched: _Launched

    def run(self) -> None:
        """Start a run. Raises InputError where a number of an input is out of range."""
        plan = self.plan
        with plan._lock:
            for check in plan._input_checks:
                memory = self.inputs[check.place.index]
                plan._look_at(check, memory.part(check.place.offset, check.place.nbytes))
            plan._enqueue(self.launched)


def _first_launches(steps: Sequence[int]) -> list[tuple[int, int]]:
    """The first launch of each step, and the step."""
    return [(at, step) for at, step in enumerate(steps) if step not in steps[:at]]


def _look(check: RangeCheck, raw: Array) -> None:
    """Raise InputError where a number of a check is out of range."""
    numbers = raw[: check.place.nbytes].view(check.dtype)[:: check.stride]
    wrong = np.flatnonzero((numbers < check.low) | (numbers >= check.high))
    if wrong.size:
        raise check.complaint(int(wrong[0]), int(numbers[wrong[0]]))
