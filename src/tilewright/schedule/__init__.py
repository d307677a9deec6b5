"""Schedules: recorded decisions about order and storage, applied by primitives.

``Schedule(program).split("i", 32).parallel("i_o")`` is a new value at every dot; its trace prints as Python,
serialises to JSON and replays. ``docs/schedule.md`` is the overview.
"""

from tilewright.ir import rename_buffers
from tilewright.schedule.algorithm import Algorithm, DerivedConstant
from tilewright.schedule.catalog import ALGORITHMS, PRIMITIVES
from tilewright.schedule.derived import derived_constants, scheduled_program
from tilewright.schedule.layout.arrays import pack_argument, places, unpack_argument
from tilewright.schedule.layout.sequence import Change, Changes, argument_map, index_map, index_texts
from tilewright.schedule.loop.set_layout import with_layout
from tilewright.schedule.overwriting import may_overwrite, overwritable
from tilewright.schedule.owners import Placed, ownerless, placed_accesses
from tilewright.schedule.registry import Primitive, primitive
from tilewright.schedule.rewrite.bf16x3 import BF16X3
from tilewright.schedule.rewrite.strassen import STRASSEN
from tilewright.schedule.rewrite.winograd import WINOGRAD
from tilewright.schedule.schedule import Schedule, load_trace, replay
from tilewright.schedule.trace import Step, Trace

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "BF16X3",
    "Change",
    "Changes",
    "DerivedConstant",
    "PRIMITIVES",
    "Placed",
    "Primitive",
    "STRASSEN",
    "Schedule",
    "Step",
    "Trace",
    "WINOGRAD",
    "argument_map",
    "derived_constants",
    "index_map",
    "index_texts",
    "load_trace",
    "may_overwrite",
    "overwritable",
    "ownerless",
    "pack_argument",
    "places",
    "placed_accesses",
    "primitive",
    "rename_buffers",
    "replay",
    "scheduled_program",
    "unpack_argument",
    "with_layout",
]
