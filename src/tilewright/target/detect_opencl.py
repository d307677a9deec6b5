"""OpenCL devices of this machine as targets, through pyopencl."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from tilewright.support import InstallationError, TargetError, get_logger, known_names
from tilewright.target.gpu import WIDE_ATOMICS, GpuTarget
from tilewright.target.model import MemoryLevel
from tilewright.target.nvidia import H200, NVIDIA
from tilewright.target.simulated import POCL

_log = get_logger("target.opencl")


def pyopencl() -> Any:
    """The package. Raises InstallationError where it is missing."""
    try:
        # an extra: programs that use no OpenCL device do without it
        return import_module("pyopencl")
    except ImportError as error:
        raise InstallationError(
            f"pyopencl cannot be imported: {error}", hint="pip install 'tilewright[opencl]'"
        ) from None


def opencl_devices() -> list[Any]:
    """All OpenCL devices, GPUs first, as pyopencl has them. Raises InstallationError without pyopencl."""
    cl = pyopencl()
    try:
        found = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as error:
        _log.info("no OpenCL platform: %s", error)
        return []
    return sorted(found, key=lambda device: not device.type & cl.device_type.GPU)


def choose_opencl_device(wanted: str = "") -> Any:
    """The first device whose name holds ``wanted``.

    Raises InstallationError where pyopencl or any driver is missing, TargetError where no device has the
    name.
    """
    devices = opencl_devices()
    if not devices:
        raise InstallationError(
            "there is no OpenCL device: no driver is installed",
            hint="install the OpenCL driver of your device, or PoCL, which runs on CPUs "
            "(apt-get install pocl-opencl-icd)",
        )
    named = [device for device in devices if wanted.lower() in device.name.lower()]
    if not named:
        names = [device.name for device in devices]
        raise TargetError(
            f"there is no OpenCL device {wanted!r}", hint=known_names(wanted, names, "the devices")
        )
    return named[0]


def _features(extensions: str) -> frozenset[str]:
    """The features of tables that a device has, by its list of extensions."""
    wide = {"cl_khr_int64_base_atomics", "cl_khr_int64_extended_atomics"} <= set(extensions.split())
    return frozenset({WIDE_ATOMICS} if wide else ())


def detect_opencl(wanted: str = "") -> GpuTarget:
    """The target of an OpenCL device: the nearest table, with what the device says of itself.

    Raises what :func:`choose_opencl_device` raises.
    """
    device = choose_opencl_device(wanted)
    name = str(device.name).lower()
    is_cpu = bool(device.type & pyopencl().device_type.CPU)
    table = POCL if is_cpu else next((t for t in NVIDIA if t.name in name.replace(" ", "")), H200)
    threads = int(device.max_work_group_size) // table.warp * table.warp
    shared, size = int(device.local_mem_size), int(device.global_mem_size)

    def level(known: MemoryLevel) -> MemoryLevel:
        sizes = {"shared": shared, "global": size}
        return replace(known, size=sizes[known.scope]) if known.scope in sizes else known

    return replace(
        table,
        name=f"opencl:{wanted}" if wanted else "opencl",
        language="opencl",
        units=int(device.max_compute_units),
        threads_per_block=threads,
        threads_per_unit=max(threads, table.threads_per_unit),
        shared_per_block=shared,
        shared_per_unit=max(shared, table.shared_per_unit),
        memory=tuple(map(level, table.memory)),
        clock_hz=float(device.max_clock_frequency) * 1e6 or None,
        features=_features(str(device.extensions)),
        instructions=(),
    )
