"""Opening devices by the language that they take."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tilewright.devices.cuda import CudaDevice
from tilewright.devices.host import HostDevice
from tilewright.devices.model import Device
from tilewright.devices.opencl import OpenClDevice
from tilewright.support import TargetError, known_names

DEVICE_KINDS: Final = ("opencl", "cuda", "c")
"""The languages of devices."""


@lru_cache(maxsize=8)
def open_device(language: str, wanted: str = "") -> Device:
    """The device of a language: one for the whole process, whose contexts are dear.

    ``wanted`` is a part of its name, or a CUDA device's architecture. Raises InstallationError where a
    package or driver is missing, TargetError where there is no such device.
    """
    if language == "opencl":
        return OpenClDevice(wanted)
    if language == "cuda":
        return CudaDevice(wanted)
    if language == "c":
        return HostDevice()
    raise TargetError(
        f"there is no device for {language!r}", hint=known_names(language, DEVICE_KINDS, "the languages")
    )
