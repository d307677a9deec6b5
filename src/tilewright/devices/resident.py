"""Models bound to tensors in the memory of their device: nothing is copied, to it or back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.devices.dlpack import DeviceTensor, Lendable, borrowed
from tilewright.devices.plan import DevicePlan, ResidentPlan
from tilewright.runtime import HoldsCode, TensorInfo, checked_input_names


class BoundTensors(HoldsCode):
    """A model that reads the same tensors in each run; made by ``bind_tensors`` of a model."""

    __slots__ = ("_plan", "_results")

    def __init__(self, plan: ResidentPlan, results: Sequence[DeviceTensor]) -> None:
        self._plan = plan
        self._results = tuple(results)

    def run(self) -> list[DeviceTensor]:
        """Start a run: its outputs in order, in memory that the next run overwrites.

        A tensor waits for the run when it is passed on or copied. Raises InputError where a number of an
        input is out of range.
        """
        self._plan.run()
        return list(self._results)


def bind_tensors(
    plan: DevicePlan,
    feeds: Mapping[str, Lendable],
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
    places: Sequence[int],
) -> BoundTensors:
    """Runs of a plan on other libraries' tensors; ``places`` are the model's outputs among the plan's.

    Raises InputError naming the input that does not fit, TargetError where the device is not here,
    ResourceError where it has no memory for the outputs.
    """
    plan.require_device()
    checked_input_names(feeds, inputs)
    given = [borrowed(plan.device, info, feeds[info.name]) for info in inputs]
    made = [plan.device.allocate(nbytes) for nbytes in plan.outputs]
    results = [
        DeviceTensor(plan.device, made[at], info.dtype, info.shape)
        for info, at in zip(outputs, places, strict=True)
    ]
    return BoundTensors(plan.on_device(given, made), results)
