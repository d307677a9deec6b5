"""Managed machines from files: system graphs, a static scheduler, instruction streams, their simulator."""

from tilewright.mapping.system.approach import Approach, Heuristics
from tilewright.mapping.system.bind import cover, needles_of, select
from tilewright.mapping.system.execute import execute
from tilewright.mapping.system.graph import (
    Channel,
    Memory,
    Mover,
    SystemGraph,
    SystemInstruction,
    Unit,
)
from tilewright.mapping.system.read import load_machine, parse_machine, shipped_machines
from tilewright.mapping.system.recurrence import Recurrence, schedule_recurrence
from tilewright.mapping.system.static import schedule
from tilewright.mapping.system.stream import StreamProgram
from tilewright.mapping.system.text import parse_streams, print_streams
from tilewright.mapping.system.timeline import timeline
from tilewright.mapping.system.timing import Span, Timing, time_streams

__all__ = [
    "Approach",
    "Channel",
    "Heuristics",
    "Memory",
    "Mover",
    "Recurrence",
    "Span",
    "StreamProgram",
    "SystemGraph",
    "SystemInstruction",
    "Timing",
    "Unit",
    "cover",
    "execute",
    "load_machine",
    "needles_of",
    "parse_machine",
    "parse_streams",
    "print_streams",
    "schedule",
    "schedule_recurrence",
    "select",
    "shipped_machines",
    "time_streams",
    "timeline",
]
