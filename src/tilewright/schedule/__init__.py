"""Schedules: recorded decisions about order and storage, applied by primitives.

``Schedule(program).split("i", 32).parallel("i_o")`` is a new value at every dot; its trace prints as Python,
serialises to JSON and replays. ``docs/schedule.md`` is the overview.
"""

from tilewright.ir import rename_buffers
from tilewright.schedule.catalog import PRIMITIVES
from tilewright.schedule.derived import DerivedConstant, derived_constants, scheduled_program
from tilewright.schedule.layout.arrays import pack_argument, unpack_argument
from tilewright.schedule.loop.set_layout import with_layout
from tilewright.schedule.owners import Placed, ownerless, placed_accesses
from tilewright.schedule.registry import Primitive, primitive
from tilewright.schedule.schedule import Schedule, load_trace, replay
from tilewright.schedule.trace import Step, Trace

__all__ = [
    "DerivedConstant",
    "PRIMITIVES",
    "Placed",
    "Primitive",
    "Schedule",
    "Step",
    "Trace",
    "derived_constants",
    "load_trace",
    "ownerless",
    "pack_argument",
    "placed_accesses",
    "primitive",
    "rename_buffers",
    "replay",
    "scheduled_program",
    "unpack_argument",
    "with_layout",
]
