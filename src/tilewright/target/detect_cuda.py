"""CUDA devices of this machine as targets, through cuda-bindings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final

from tilewright.support import InstallationError, TargetError
from tilewright.target.gpu import GpuTarget
from tilewright.target.model import MemoryLevel
from tilewright.target.nvidia import NVIDIA, OWN_FEATURES

_NAMES: Final = {"V100": "v100", "A100": "a100", "Orin": "orin_nano", "4090": "rtx4090", "H200": "h200"}
"""Parts of devices' names, and the tables that they have."""


@dataclass(frozen=True, slots=True)
class CudaDriver:
    """The driver's functions, as cuda-bindings has them; they return an error code first."""

    module: Any


@dataclass(frozen=True, slots=True)
class CudaDeviceFacts:
    """What the driver says of a device, in bytes, cycles a second, and bytes a second of its memory.

    A clock or a bandwidth is zero where the driver does not say.
    """

    driver: CudaDriver
    device: Any
    name: str
    arch: str
    version: int
    units: int
    threads_per_block: int
    shared_per_block: int
    memory_bytes: int
    clock_hz: float
    bandwidth: float


def cuda_driver() -> CudaDriver:
    """The driver, initialised. Raises InstallationError where cuda-bindings or the driver is missing."""
    try:
        # an extra: programs that use no CUDA device do without it
        module = import_module("cuda.bindings.driver")
    except ImportError as error:
        raise InstallationError(
            f"cuda-bindings cannot be imported: {error}", hint="pip install 'tilewright[cuda]'"
        ) from None
    hint = "kernels can be made without: tilewright compile MODEL --target cuda:sm_90 --emit cubin"
    try:
        (status,) = module.cuInit(0)
    except RuntimeError as problem:  # the package is there, the library that it loads is not
        raise InstallationError(f"there is no NVIDIA driver here: {first_line(problem)}", hint=hint) from None
    if int(status):
        raise InstallationError(f"the NVIDIA driver cannot start: {status.name}", hint=hint)
    return CudaDriver(module)


def first_line(problem: Exception) -> str:
    """The first line of a library's message."""
    return str(problem).splitlines()[0][:300] if str(problem) else type(problem).__name__


def first_cuda_device(driver: CudaDriver | None = None) -> CudaDeviceFacts:
    """What the driver says of its first device.

    Raises InstallationError where cuda-bindings or the driver is missing, TargetError where there is no
    device.
    """
    known = cuda_driver() if driver is None else driver
    module = known.module

    def ask(name: str, *arguments: Any) -> Any:
        error, value = getattr(module, name)(*arguments)
        if int(error):
            raise TargetError(f"the NVIDIA driver refuses {name}: {error.name}")
        return value

    if not ask("cuDeviceGetCount"):
        raise TargetError(
            "there is no CUDA device here", hint="a driver is installed; is a device hidden from it?"
        )
    device = ask("cuDeviceGet", 0)
    attributes = module.CUdevice_attribute

    def attribute(name: str) -> int:
        return int(ask("cuDeviceGetAttribute", getattr(attributes, f"CU_DEVICE_ATTRIBUTE_{name}"), device))

    major, minor = attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")
    return CudaDeviceFacts(
        driver=known,
        device=device,
        name=bytes(ask("cuDeviceGetName", 256, device)).split(b"\0", 1)[0].decode(errors="replace"),
        # devices of 9.0 run what is for them alone, and nothing that they run is for others
        arch=f"sm_{major}{minor}{'a' * (major == 9)}",
        version=int(ask("cuDriverGetVersion")),
        units=attribute("MULTIPROCESSOR_COUNT"),
        threads_per_block=attribute("MAX_THREADS_PER_BLOCK"),
        shared_per_block=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        memory_bytes=int(ask("cuDeviceTotalMem", device)),
        clock_hz=attribute("CLOCK_RATE") * 1e3,
        # kHz and bits; each clock moves two
        bandwidth=attribute("MEMORY_CLOCK_RATE") * 1e3 * 2 * attribute("GLOBAL_MEMORY_BUS_WIDTH") / 8,
    )


def detect_cuda(driver: CudaDriver | None = None) -> GpuTarget:
    """The target of the first CUDA device: the table of its kind, with what the driver says of it.

    Raises what :func:`first_cuda_device` raises.
    """
    found = first_cuda_device(driver)
    by_name = {table.name: table for table in NVIDIA}
    by_arch = {table.arch: table for table in NVIDIA}
    named = next((by_name[table] for part, table in _NAMES.items() if part in found.name), None)
    # of an architecture without a table the nearest older one's: its limits hold
    older = [table for table in NVIDIA if _number(table.arch) <= _number(found.arch)] or list(NVIDIA[:1])
    table = named or by_arch.get(found.arch) or max(older, key=lambda t: _number(t.arch))

    if table.arch != found.arch:
        # units that an architecture has for itself are not in others
        table = replace(
            table,
            features=table.features - OWN_FEATURES,
            instructions=tuple(row for row in table.instructions if not row.features & OWN_FEATURES),
        )
    clock = found.clock_hz or table.clock_hz
    moved = found.bandwidth / (found.units * clock) if clock else 0.0

    def level(known: MemoryLevel) -> MemoryLevel:
        if known.scope != "global":
            return known
        return replace(known, size=found.memory_bytes, bandwidth=moved or known.bandwidth)

    return replace(
        table,
        name="cuda",
        arch=found.arch,
        units=found.units,
        shared_per_block=found.shared_per_block,
        shared_per_unit=max(found.shared_per_block, table.shared_per_unit),
        memory=tuple(map(level, table.memory)),
        clock_hz=clock,
    )


def _number(arch: str) -> int:
    return int(arch.removeprefix("sm_").rstrip("a"))
