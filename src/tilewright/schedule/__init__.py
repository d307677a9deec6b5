"""Schedules: recorded decisions about order and storage, applied by primitives.

``Schedule(program).split("i", 32).parallel("i_o")`` is a new value at every dot; its trace prints as Python,
serialises to JSON and replays. ``docs/schedule.md`` is the overview.
"""

from tilewright.ir import rename_buffers as rename_buffers
from tilewright.schedule.algorithm import Algorithm as Algorithm, DerivedConstant as DerivedConstant
from tilewright.schedule.catalog import ALGORITHMS as ALGORITHMS, PRIMITIVES as PRIMITIVES
from tilewright.schedule.derived import (
    derived_constants as derived_constants,
    scheduled_program as scheduled_program,
)
from tilewright.schedule.layout.arrays import (
    pack_argument as pack_argument,
    places as places,
    unpack_argument as unpack_argument,
)
from tilewright.schedule.layout.sequence import (
    Change as Change,
    Changes as Changes,
    argument_map as argument_map,
    index_map as index_map,
    index_texts as index_texts,
)
from tilewright.schedule.loop.partition import has_tail as has_tail
from tilewright.schedule.loop.set_layout import with_layout as with_layout
from tilewright.schedule.overwriting import may_overwrite as may_overwrite, overwritable as overwritable
from tilewright.schedule.owners import (
    Placed as Placed,
    ownerless as ownerless,
    placed_accesses as placed_accesses,
)
from tilewright.schedule.registry import primitive as primitive
from tilewright.schedule.rewrite.bf16x3 import BF16X3 as BF16X3
from tilewright.schedule.rewrite.split_window import window_of as window_of
from tilewright.schedule.rewrite.strassen import STRASSEN as STRASSEN
from tilewright.schedule.rewrite.winograd import WINOGRAD as WINOGRAD
from tilewright.schedule.schedule import Schedule as Schedule, load_trace as load_trace, replay as replay
from tilewright.schedule.trace import Step as Step, Trace as Trace
