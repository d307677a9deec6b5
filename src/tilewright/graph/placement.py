"""Where every value of a partitioned graph lives while the model runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from tilewright.graph.fusion import Group, Partition
from tilewright.graph.memory import Step, plan_memory
from tilewright.graph.registry import Kind
from tilewright.ir import Load, Program, Stage, Store, stmt_loads, var


class Storage(Enum):
    """Who owns a value's bytes."""

    INPUT = "input"
    """The caller, who gives input number `index`."""
    OUTPUT = "output"
    """The caller, who receives output number `index`."""
    CONSTANT = "constant"
    """The compiled model."""
    ARENA = "arena"
    """The memory of one run, `offset` bytes from its start."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one value is."""

    storage: Storage
    nbytes: int
    index: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """The place of every value that a group reads or writes, views included.

    `copies` lists outputs that no group can write directly, as (number of the output, value to copy from): an
    output that is an input, a constant, or the same buffer as another output.
    """

    places: Mapping[str, Place]
    arena_bytes: int
    copies: tuple[tuple[int, str], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", MappingProxyType(dict(self.places)))


def place_values(partition: Partition, in_place: bool = False) -> Placement:
    """Plan the memory of a model whose groups run one after another, in the partition's order.

    With `in_place`, an element-wise group may overwrite an input that nothing needs afterwards: its kernel
    must then allow that one buffer is given to it twice.
    """
    graph = partition.graph
    made = {value for group in partition.groups for value in group.outputs}
    places: dict[str, Place] = {}
    for index, value in enumerate(graph.inputs):
        places[value] = Place(Storage.INPUT, graph.types[value].nbytes, index)
    copies: list[tuple[int, str]] = []
    for index, value in enumerate(graph.outputs):
        buffer = partition.buffer(value)
        if buffer in made and buffer not in places:
            places[buffer] = Place(Storage.OUTPUT, graph.types[buffer].nbytes, index)
        else:
            copies.append((index, value))
    sizes = {value: graph.types[value].nbytes for value in made if value not in places}
    steps = [
        Step(
            tuple(dict.fromkeys(partition.buffer(value) for value in group.inputs)),
            group.outputs,
            _overwritable(partition, group) if in_place else (),
        )
        for group in partition.groups
    ]
    plan = plan_memory(steps, sizes)
    for value, offset in plan.offsets.items():
        places[value] = Place(Storage.ARENA, sizes[value], 0, offset)
    for value, array in graph.constants.items():
        places[value] = Place(Storage.CONSTANT, array.nbytes)
    for view, buffer in partition.views.items():
        if buffer in places:
            places[view] = places[buffer]
    return Placement(places, plan.size, tuple(copies))


def _overwritable(partition: Partition, group: Group) -> tuple[tuple[str, str], ...]:
    """Pairs (output, buffer of an input) such that each element is read only where it is written."""
    if group.kind is not Kind.ELEMENTWISE or len(group.outputs) != 1:
        return ()
    output = group.outputs[0]
    made = partition.program(group)
    types = partition.graph.types
    buffers = [partition.buffer(value) for value in group.inputs]
    pairs: list[tuple[str, str]] = []
    for label, value in made.inputs.items():
        buffer = partition.buffer(value)
        same_type = types[buffer].nbytes == types[output].nbytes and types[value].shape == types[output].shape
        if same_type and buffers.count(buffer) == 1 and _read_in_step(made.program, label):
            pairs.append((output, buffer))
    return tuple(pairs)


def _read_in_step(program: Program, name: str) -> bool:
    """Whether every stage reads the buffer only at the element that it writes."""
    for stage in program.stages:
        if name in stage.reads and not isinstance(stage.body, Store):
            return False
        for load in stmt_loads(stage.body):
            if load.buffer == name and not _at_own_element(load, stage):
                return False
    return True


def _at_own_element(load: Load, stage: Stage) -> bool:
    if len(load.indices) != len(stage.iters):
        return False
    # An index over a size of one is simplified to 0.
    return all(
        index == var(it.name) or ((it.hi - it.lo).is_const and (it.hi - it.lo).as_int() == 1)
        for index, it in zip(load.indices, stage.iters, strict=True)
    )
