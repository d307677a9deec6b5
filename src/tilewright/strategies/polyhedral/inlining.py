"""Ways to inline: which stages are computed where they are read, before groups are formed."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Program
from tilewright.plan import StageGraph, graph_of, inline_stages
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError


def variants(program: Program) -> list[tuple[str, ...]]:
    """Lists of stages that are inlined, in order: as by default, of those the point-wise ones, and none."""
    steps = inline_stages(Schedule(program)).trace.steps
    default = tuple(str(s.args[0]) for s in steps if s.primitive == "inline_stage")
    graph = graph_of(program)
    found = [default, tuple(name for name in default if is_pointwise(graph, name)), ()]
    return [names for names in dict.fromkeys(found) if inlined(program, names) is not None]


def is_pointwise(graph: StageGraph, name: str) -> bool:
    """Whether one stage alone reads a stage, each element once an instance."""
    return graph.is_pointwise(next(n.index for n in graph.nodes if n.name == name))


def inlined(program: Program, names: Sequence[str]) -> Program | None:
    """The program with these stages inlined; ``None`` where that is refused."""
    s = Schedule(program)
    try:
        for name in names:
            s = s.inline_stage(name)
    except ScheduleError:
        return None
    return s.require_program()
