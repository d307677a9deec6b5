"""Devices: their memory, compiled modules, launches and events; plans that run models on them."""

from tilewright.devices.dlpack import DeviceTensor, Lendable
from tilewright.devices.host import HostDevice
from tilewright.devices.model import DEVICE_ALIGNMENT, Device, DeviceLimits, DeviceModule, Memory
from tilewright.devices.offline import OfflineDevice
from tilewright.devices.open import DEVICE_KINDS, open_device
from tilewright.devices.plan import (
    BoundDevicePlan,
    DeviceCall,
    DevicePlan,
    DevicePlanBuilder,
    DevicePlanContents,
)
from tilewright.devices.resident import BoundTensors, bind_tensors
from tilewright.devices.saved import SavedDeviceModel, load_fixed, load_model

__all__ = [
    "BoundDevicePlan",
    "DEVICE_ALIGNMENT",
    "DEVICE_KINDS",
    "DeviceTensor",
    "Lendable",
    "BoundTensors",
    "bind_tensors",
    "Device",
    "DeviceCall",
    "DeviceLimits",
    "DeviceModule",
    "DevicePlan",
    "DevicePlanBuilder",
    "DevicePlanContents",
    "OfflineDevice",
    "SavedDeviceModel",
    "load_fixed",
    "load_model",
    "HostDevice",
    "Memory",
    "open_device",
]
