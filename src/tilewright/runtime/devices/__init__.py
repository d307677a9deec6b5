"""Devices: their memory, compiled modules, launches and events; plans that run models on them."""

from tilewright.runtime.devices.host import HostDevice
from tilewright.runtime.devices.model import Device, DeviceLimits, DeviceModule, Memory
from tilewright.runtime.devices.open import DEVICE_KINDS, open_device
from tilewright.runtime.devices.plan import DeviceCall, DevicePlan, DevicePlanBuilder

__all__ = [
    "DEVICE_KINDS",
    "Device",
    "DeviceCall",
    "DeviceLimits",
    "DeviceModule",
    "DevicePlan",
    "DevicePlanBuilder",
    "HostDevice",
    "Memory",
    "open_device",
]
