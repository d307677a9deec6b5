"""Functions compiled for devices: text, modules kept on disk, and launches in plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.codegen import (
    ALL_CALLS,
    DeviceSource,
    KernelEntry,
    Memory,
    ObjectCache,
    emit_kernels,
    lower_for_c,
    open_cache,
)
from tilewright.devices import (
    Device,
    DeviceCall,
    DeviceModule,
    DevicePlan,
    DevicePlanBuilder,
    OfflineDevice,
    open_device,
)
from tilewright.ir import Buffer, Index, LoopFunction, evaluate_index
from tilewright.lower import lower
from tilewright.runtime import BufferRef, aligned_copy, aligned_empty
from tilewright.support import (
    InputError,
    InstallationError,
    ScheduleError,
    Settings,
    TargetError,
    digest,
    format_bytes,
    quoted,
)
from tilewright.target import BUILT_IN, GpuTarget

Array = npt.NDArray[np.generic]


def device_of(target: GpuTarget) -> Device:
    """The device that runs code for a target.

    A CUDA device that was named by its architecture need not be here: its kernels are compiled, to be saved.
    Raises InstallationError where a package or a driver is missing, TargetError where there is no such
    device.
    """
    _, _, wanted = target.name.partition(":")
    if target.language != "cuda":
        return open_device(target.language, wanted)
    try:
        return open_device("cuda", target.arch)
    except (InstallationError, TargetError):
        if not wanted:
            raise
        return OfflineDevice(target)


def kernel_source(func: LoopFunction, language: str) -> DeviceSource:
    """A scheduled function as text of a device's language. Raises ScheduleError, TargetError."""
    return emit_kernels(lowered_for(func, language), language)


def lowered_for(func: LoopFunction, language: str) -> LoopFunction:
    """A scheduled function, lowered for a device's language. Raises ScheduleError.

    OpenCL C has no instructions of warps: a thread does the loops that they stand for.
    """
    if language == "c":
        return lower_for_c(func)
    return lower(func, native=ALL_CALLS, expanded=BUILT_IN if language == "opencl" else {}, teams=language == "cuda")


def load_source(device: Device, text: str, cache: ObjectCache | None) -> DeviceModule:
    """Compile a text for a device, or take what was compiled of it before, and load it."""
    key = digest(("device module", device.identity, text))
    binary = None if cache is None else cache.get(key)
    if binary is None:
        binary = device.compile(text)
        if cache is not None:
            cache.put(key, binary)
    return device.load(binary)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedKernels:
    """A function on a device: its kernels, and where each of its launches gets its arguments.

    ``workspace`` are bytes for the buffers between its kernels, one after the other from ``places``.
    """

    func: LoopFunction
    language: str
    source: DeviceSource
    module: DeviceModule
    workspace: int
    places: Mapping[str, tuple[int, int]]

    @property
    def memory(self) -> Memory:
        """The bytes that a call needs beside its arguments."""
        return Memory(self.workspace, 0)

    def lowered(self) -> LoopFunction:
        """The loop function that code generation took."""
        return lowered_for(self.func, self.language)

    def code_text(self, form: str) -> str:
        """The source text of the module. Raises TargetError for other forms."""
        if form != "source":
            raise TargetError(
                f"kernels of devices have no text of the form {form!r}",
                hint="they have source; those of CPUs have llvm, asm and source (C)",
            )
        return self.source.text

    def add_to(
        self,
        builder: DevicePlanBuilder,
        step: int,
        refs: Mapping[str, BufferRef],
        workspace: BufferRef | None,
        sizes: Mapping[str, int],
    ) -> None:
        """Add the launches to a plan; ``refs`` are the arguments by name, ``sizes`` the parameters."""
        device = builder.device
        where = dict(refs)
        for name, (offset, nbytes) in self.places.items():
            assert workspace is not None
            where[name] = workspace.part(offset, nbytes)
        for number, values in self.source.launches:
            entry = self.source.kernels[number]
            host = entry.scalars[len(self.func.params) :]
            known = {**sizes, **dict(zip(host, values, strict=True))}
            kind = np.int64 if entry.scalar_bytes == np.dtype(np.int64).itemsize else np.int32
            builder.launch(
                DeviceCall(
                    module=self.module,
                    symbol=entry.symbol,
                    grid=_extents(entry.grid.blocks, sizes),
                    block=check_limits(device, entry, sizes),
                    buffers=tuple(where[name] for name in entry.buffers),
                    scalars=tuple(kind(known[name]) for name in entry.scalars),
                    shared_bytes=entry.dynamic_bytes,
                    step=step,
                    maps=entry.maps,
                )
            )


def _extents(extents: Sequence[Index], sizes: Mapping[str, int]) -> tuple[int, int, int]:
    x, y, z = (evaluate_index(extent, sizes) for extent in extents)
    return (x, y, z)


def check_limits(device: Device, entry: KernelEntry, sizes: Mapping[str, int]) -> tuple[int, int, int]:
    """The threads of a block. Raises ScheduleError where a kernel asks for more than its device has."""
    block = _extents(entry.grid.threads, sizes)
    grid = _extents(entry.grid.blocks, sizes)
    limits = device.limits
    count = block[0] * block[1] * block[2]
    problem = ""
    if count > limits.threads:
        problem = f"{count} threads a block, of {limits.threads}"
    elif any(n > most for n, most in zip(block, limits.threads_per_axis, strict=True)):
        problem = f"blocks of {' x '.join(map(str, block))} threads"
    elif any(n > most for n, most in zip(grid, limits.blocks, strict=True)):
        problem = f"{' x '.join(map(str, grid))} blocks"
    elif entry.shared_bytes > limits.shared_bytes:
        most = format_bytes(limits.shared_bytes)
        problem = f"{format_bytes(entry.shared_bytes)} of shared memory a block, of {most}"
    if problem:
        raise ScheduleError(
            f"the kernel {entry.symbol} asks for {problem}: more than {device.name} has",
            hint="make its tiles smaller",
        )
    return block


def load_function(func: LoopFunction, device: Device, settings: Settings) -> LoadedKernels:
    """Compile and load a scheduled function of constant sizes or sizes known later."""
    return place_kernels(func, kernel_source(func, device.language), device, open_cache(settings))


def place_kernels(
    func: LoopFunction, source: DeviceSource, device: Device, cache: ObjectCache | None
) -> LoadedKernels:
    """Load emitted kernels, their workspace laid out."""
    places: dict[str, tuple[int, int]] = {}
    offset = 0
    for b in source.workspace:
        nbytes = buffer_bytes(b, {})
        places[b.name] = (offset, nbytes)
        offset += -(-nbytes // 256) * 256
    module = load_source(device, source.text, cache)
    return LoadedKernels(func, device.language, source, module, offset, places)


def buffer_bytes(b: Buffer, sizes: Mapping[str, int]) -> int:
    """Bytes of a buffer's memory, its halo included. Raises ScheduleError for sizes known later."""
    count = b.dtype.bytes
    for extent, (before, after) in zip(
        b.physical_shape, b.halo or ((0, 0),) * len(b.physical_shape), strict=True
    ):
        try:
            count *= evaluate_index(extent, sizes) + before + after
        except KeyError:
            raise ScheduleError(
                f"the size of {quoted(b.name)}, {extent}, is not known when the device's memory is laid out",
                hint="inline its stage, or compile for constant sizes",
            ) from None
    return count


class DeviceFunction:
    """A scheduled function on a device, called with arrays by name; returns its outputs by name."""

    def __init__(self, func: LoopFunction, device: Device, settings: Settings) -> None:
        self.func = func
        self.device = device
        self.kernels = load_function(func, device, settings)

    def __call__(
        self, arrays: Mapping[str, Array], params: Mapping[str, int] | None = None
    ) -> dict[str, Array]:
        """Run on arrays in their physical shapes. Raises InputError where one is missing or does not fit."""
        plan, inputs, outputs = self.plan(arrays, params or {})
        plan.run(inputs, list(outputs.values()))
        return outputs

    def plan(
        self, arrays: Mapping[str, Array], sizes: Mapping[str, int]
    ) -> tuple[DevicePlan, list[Array], dict[str, Array]]:
        """A plan of this one function, the inputs it takes and the arrays of its outputs.

        Raises what a call raises: InputError, and ScheduleError for kernels beyond the device's limits.
        """
        builder = DevicePlanBuilder(self.device)
        refs: dict[str, BufferRef] = {}
        inputs: list[Array] = []
        outputs: dict[str, Array] = {}
        for n, c in enumerate(self.func.assumes, 1):
            assert c.index is not None
            value = evaluate_index(c.index, sizes)
            if value < 0 or (c.op == "eq" and value):
                raise InputError(f"{quoted(self.func.name)} cannot run: it assumes {c} (number {n})")
        for b in self.func.buffers:
            shape = tuple(evaluate_index(e, sizes) for e in b.physical_shape)
            if b.name in self.func.outputs:
                outputs[b.name] = aligned_empty(shape, b.dtype.numpy)
                refs[b.name] = builder.output(outputs[b.name].nbytes)
                continue
            if b.name not in arrays:
                raise InputError(f"input {quoted(b.name)} is missing")
            given = arrays[b.name]
            if given.shape != shape or given.dtype != b.dtype.numpy:
                raise InputError(
                    f"input {quoted(b.name)} must be {b.dtype} of shape {list(shape)}, got {given.dtype} of "
                    f"shape {list(given.shape)}"
                )
            inputs.append(aligned_copy(given))
            refs[b.name] = builder.input(given.nbytes)
        workspace = builder.arena(0, self.kernels.workspace) if self.kernels.workspace else None
        self.kernels.add_to(builder, builder.step(self.func.name), refs, workspace, sizes)
        return builder.build(), inputs, outputs
