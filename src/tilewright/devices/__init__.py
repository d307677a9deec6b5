"""Devices: their memory, compiled modules, launches and events; plans that run models on them."""

from tilewright.devices.dlpack import DeviceTensor as DeviceTensor, Lendable as Lendable
from tilewright.devices.host import HostDevice as HostDevice
from tilewright.devices.model import (
    DEVICE_ALIGNMENT as DEVICE_ALIGNMENT,
    Device as Device,
    DeviceLimits as DeviceLimits,
    DeviceModule as DeviceModule,
    Memory as Memory,
)
from tilewright.devices.offline import OfflineDevice as OfflineDevice
from tilewright.devices.open import open_device as open_device
from tilewright.devices.plan import (
    DeviceCall as DeviceCall,
    DevicePlan as DevicePlan,
    DevicePlanBuilder as DevicePlanBuilder,
    DevicePlanContents as DevicePlanContents,
)
from tilewright.devices.resident import BoundTensors as BoundTensors, bind_tensors as bind_tensors
from tilewright.devices.saved import (
    SavedDeviceModel as SavedDeviceModel,
    load_fixed as load_fixed,
    load_model as load_model,
)
