"""Managed machines from files: system graphs, a static scheduler, instruction streams, their simulator."""

from tilewright.mapping.system.approach import Approach as Approach, Heuristics as Heuristics
from tilewright.mapping.system.bind import cover as cover, needles_of as needles_of, select as select
from tilewright.mapping.system.execute import execute as execute
from tilewright.mapping.system.graph import (
    Channel as Channel,
    Memory as Memory,
    SystemGraph as SystemGraph,
    Unit as Unit,
)
from tilewright.mapping.system.read import (
    load_machine as load_machine,
    parse_machine as parse_machine,
    shipped_machines as shipped_machines,
)
from tilewright.mapping.system.recurrence import (
    Recurrence as Recurrence,
    schedule_recurrence as schedule_recurrence,
)
from tilewright.mapping.system.static import schedule as schedule
from tilewright.mapping.system.stream import StreamProgram as StreamProgram
from tilewright.mapping.system.text import parse_streams as parse_streams, print_streams as print_streams
from tilewright.mapping.system.timeline import timeline as timeline
from tilewright.mapping.system.timing import Span as Span, Timing as Timing, time_streams as time_streams
