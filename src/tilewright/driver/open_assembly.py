"""From units and kernels to one plan for all sizes: what depends on them is a number of each run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.build import is_plain
from tilewright.driver.assemble import Steps, memory_steps, staged_outputs, value_dtype
from tilewright.driver.sections import Section
from tilewright.driver.size_program import SizeNumbers
from tilewright.driver.units import Unit
from tilewright.graph import Array, Repetition, ValueRange, plan_slots, writes_state
from tilewright.ir import CONST, as_size, dtype_of, index, typical
from tilewright.runtime import (
    CONSTANT,
    INPUT,
    OUTPUT,
    Amount,
    BufferRef,
    OpenPlan,
    ParamRef,
    PlanBuilder,
    RangeCheck,
    Relation,
    SizedTensor,
    ThreadPool,
)
from tilewright.support import InternalError, quoted


def assemble_open(
    steps: Steps, pool: ThreadPool, numbers: SizeNumbers, relations: Sequence[Relation], *, checks: bool
) -> OpenPlan:
    """The plan that computes the graph's outputs at all sizes; ``numbers`` are what runs compute of these."""
    graph = steps.graph
    builder = PlanBuilder(pool)
    made = list(dict.fromkeys(value for unit in steps.units for value in unit.outputs.values()))
    sizes = {value: _nbytes(steps, value) for value in (*graph.inputs, *made)}
    refs = {value: builder.input(numbers.amount(sizes[value])) for value in graph.inputs}
    outputs = list(dict.fromkeys(root for root in map(steps.root, graph.outputs) if root in made))
    results = {value: builder.output(numbers.amount(sizes[value])) for value in outputs}
    refs |= results
    # every unit stands for itself: batches that only a run knows are not taken in parts
    sections = [Section((at,), 1, frozenset()) for at in range(len(steps.units))]
    staged = staged_outputs(steps, sections, outputs) if checks else ()
    # states have what was there before
    staged = tuple(value for value in staged if not writes_state(graph, value))
    planned = {value: sizes[value] for value in made if value not in refs or value in staged}
    usual = {value: typical(nbytes) for value, nbytes in planned.items()}
    for slot in plan_slots(memory_steps(steps), planned, usual, staged):
        ref = builder.slot(numbers.largest([planned[value] for value in slot]))
        refs |= {value: BufferRef(ref.kind, ref.index, 0, numbers.amount(planned[value])) for value in slot}
    for value in staged:
        builder.copy(refs[value], results[value])
    calls = _Calls(steps, builder, refs, numbers)
    for at, unit in enumerate(steps.units):
        for asked in unit.ranges if checks else ():
            builder.check(_check(steps, refs, numbers, asked))
        calls.add(at)
    inputs = [_sized(steps, numbers, value, value) for value in graph.inputs]
    named = zip(graph.output_names, graph.outputs, strict=True)
    returned = [_sized(steps, numbers, name, value) for name, value in named]
    places, constants = _results(steps, outputs, numbers)
    program = numbers.program()
    builder.params(program.count + len(program.instructions))
    return OpenPlan(builder.build(steps.kernels), program, inputs, returned, places, constants, relations)


class _Calls:
    """Adds the calls of units to a plan, each constant once."""

    def __init__(
        self, steps: Steps, builder: PlanBuilder, refs: Mapping[str, BufferRef], numbers: SizeNumbers
    ) -> None:
        self._steps, self._builder, self._refs, self._numbers = steps, builder, refs, numbers
        self._stored: dict[int, BufferRef] = {}

    def add(self, at: int) -> None:
        """Call unit ``at``, as often as it is repeated."""
        unit, kernel = self._steps.units[at], self._steps.kernels[at]
        params = [self._numbers.of(index(p)) for p in kernel.program.params]
        places = [self._place(unit, b.name, at) for b in kernel.buffers]
        repeat: Amount = 1
        if unit.is_version:
            shapes = [b.shape for b in (*kernel.program.inputs, *kernel.program.outputs) if b.scope != CONST]
            repeat = self._numbers.within(shapes, *unit.elements)
        elif unit.repeat is not None:
            # a number of the run, even where it is known: places move on
            repeat = self._numbers.largest([unit.repeat.count])
            for n, b in enumerate(kernel.buffers):
                places[n] = self._moving(unit, unit.repeat, b.name, at, places)
        kernel.on_cpu().add_to(self._builder, places, params, name=unit.label, repeat=repeat)

    def _moving(
        self, unit: Unit, repeat: Repetition, name: str, at: int, places: list[BufferRef]
    ) -> BufferRef:
        """Where an argument lies in a loop over time: its part, or what the step before has made."""
        source = repeat.carried.get(name, name)
        if source not in repeat.sliced:
            return self._place(unit, name, at)
        value = self._steps.root(unit.inputs.get(source) or unit.outputs[source])
        each = _nbytes(self._steps, value) // repeat.count
        amount = self._numbers.amount
        start = each * (repeat.count - 1) if repeat.backwards else 0
        part = replace(
            self._place(unit, source, at),
            offset=amount(start),
            nbytes=amount(each),
            advance=amount(-each if repeat.backwards else each),
        )
        if name not in repeat.carried:
            return part
        places.append(self._place(unit, name, at))
        return replace(part, first=len(places) - 1)

    def _place(self, unit: Unit, name: str, at: int) -> BufferRef:
        """Where an argument lies as a whole."""
        array = self._steps.constants.get((at, name))
        if array is None:
            return self._refs[self._steps.root(unit.inputs.get(name) or unit.outputs[name])]
        if id(array) not in self._stored:
            self._stored[id(array)] = self._builder.constant(array)
        return self._stored[id(array)]


def _nbytes(steps: Steps, value: str) -> int:
    """The bytes of a value, as sizes of a run say them."""
    buffer = steps.buffers.get(value)
    shape = steps.graph.types[value].sizes
    if buffer is not None and not is_plain(buffer):
        shape = tuple(map(as_size, buffer.physical_shape))
    return math.prod(shape) * value_dtype(steps, value).bytes


def _sized(steps: Steps, numbers: SizeNumbers, name: str, value: str) -> SizedTensor:
    type_ = steps.graph.types[value]
    return SizedTensor(name, dtype_of(type_.dtype).numpy, tuple(map(numbers.amount, type_.sizes)))


def _check(
    steps: Steps, refs: Mapping[str, BufferRef], numbers: SizeNumbers, asked: ValueRange
) -> RangeCheck:
    type_, bounds = steps.graph.types[asked.value], asked.range
    count = -(-(type_.elements - bounds.first) // bounds.stride)
    many = numbers.amount(count)
    place = refs[steps.root(asked.value)]
    item = dtype_of(type_.dtype)
    offset = bounds.first * item.bytes
    return RangeCheck(
        place=replace(place, offset=offset, nbytes=numbers.amount(type_.nbytes - offset)),
        dtype=item.numpy.name,
        low=numbers.amount(bounds.low),
        high=numbers.amount(bounds.high),
        node=str(asked.node),
        value=asked.value,
        shape=tuple(map(numbers.amount, type_.sizes)),
        first=bounds.first,
        stride=bounds.stride,
        many=many if isinstance(many, ParamRef) else None,
    )


def _results(
    steps: Steps, outputs: Sequence[str], numbers: SizeNumbers
) -> tuple[list[BufferRef], list[Array]]:
    """Where each output of the model is after a run, and the constants among them."""
    places: list[BufferRef] = []
    constants: list[Array] = []
    for value in steps.graph.outputs:
        root = steps.root(value)
        nbytes = numbers.amount(steps.graph.types[value].nbytes)
        if root in outputs:
            buffer = steps.buffers.get(root)
            if buffer is not None and not is_plain(buffer):
                raise InternalError(f"the output {quoted(value)} is in a layout of its own")
            places.append(BufferRef(OUTPUT, outputs.index(root), 0, nbytes))
        elif root in steps.graph.inputs:
            places.append(BufferRef(INPUT, steps.graph.inputs.index(root), 0, nbytes))
        else:
            constants.append(steps.graph.constants[root])
            places.append(BufferRef(CONSTANT, len(constants) - 1, 0, nbytes))
    return places, constants
