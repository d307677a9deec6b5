"""From nodes to one program of `tilewright.lang`, and its evaluation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from tilewright import lang
from tilewright.graph.model import Array, Node, TensorType
from tilewright.graph.operand import Operand, compute, literal, placeholder
from tilewright.graph.orders import in_order_of_readers
from tilewright.graph.registry import (
    DEFAULT_MAX_BYTES,
    Context,
    IndexRange,
    Operator,
    build,
    find_operator,
)
from tilewright.ir import MAX_RANK, Program, dtype_of
from tilewright.support import InputError, InternalError, ModelError, NodeLocation, ProgramError, quoted


@dataclass(frozen=True, slots=True)
class ValueRange:
    """What the elements of a value that is no constant must be for a node: see `IndexRange`."""

    value: str
    range: IndexRange
    node: NodeLocation


@dataclass(frozen=True, slots=True, eq=False)
class Repetition:
    """How often a program runs in a row, and what each run is given.

    Of the arguments `sliced`, inputs and all outputs, a run sees its own part alone. `carried` maps inputs to
    the outputs that they are in the run before; the first run is given the input itself. There are `count`
    runs, which only a run of the model may know; those that go `backwards` begin with the last part.
    """

    count: int
    sliced: frozenset[str]
    carried: Mapping[str, str]
    backwards: bool = False

    @property
    def order(self) -> range:
        """The parts in the order of the runs."""
        return range(self.count - 1, -1, -1) if self.backwards else range(self.count)

    def source(self, name: str, run: int) -> tuple[str, int | None]:
        """What an argument is in a run: an argument of the program, and its part; none if it is the whole."""
        if name in self.carried and run:
            return self.carried[name], self.order[run - 1]
        return name, self.order[run] if name in self.sliced else None


@dataclass(frozen=True, slots=True, eq=False)
class NodesProgram:
    """The program that computes some nodes.

    `inputs` maps the program's input names to the graph's values, `outputs` its output names likewise;
    `tables` maps further inputs to constants that operators made. Every input is read. No name in the
    program comes from the model. `ranges` are what the nodes ask of values that hold places. The program may
    be that of one of several runs: `repeat`.
    """

    program: Program
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    tables: Mapping[str, Array]
    ranges: tuple[ValueRange, ...] = ()
    repeat: Repetition | None = None

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs", "tables"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def of_values(self, names: Mapping[str, str]) -> NodesProgram:
        """The same program of other values: `names` gives each one's."""
        return replace(
            self,
            inputs={label: names[value] for label, value in self.inputs.items()},
            outputs={label: names[value] for label, value in self.outputs.items()},
        )

    def evaluate(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Run the reference evaluation on the graph's values; gives the outputs by the graph's names.

        Raises InputError, naming the node, where an index is out of range.
        """
        for asked in self.ranges:
            if problem := asked.range.outside(arrays[asked.value]):
                raise InputError(f"{asked.node}: {quoted(asked.value)} {problem}")
        feeds = {name: arrays[value] for name, value in self.inputs.items()}
        if self.repeat is not None:
            return self._evaluate_runs(self.repeat, feeds)
        made = lang.evaluate(self.program, {**feeds, **self.tables})
        return {value: made[name] for name, value in self.outputs.items()}

    def _evaluate_runs(self, repeat: Repetition, feeds: Mapping[str, Array]) -> dict[str, Array]:
        runs: dict[int, dict[str, Array]] = {}
        for run, part in enumerate(repeat.order):
            given = dict(self.tables)
            for name, array in feeds.items():
                source, at = repeat.source(name, run)
                if source != name and at is not None:
                    given[name] = runs[at][source]
                else:
                    given[name] = array if at is None else array[at]
            runs[part] = dict(lang.evaluate(self.program, given))
        return {
            value: np.stack([runs[at][name] for at in range(repeat.count)])
            for name, value in self.outputs.items()
        }


def context_of(
    node: Node,
    types: Mapping[str, TensorType],
    constants: Mapping[str, Array],
    max_bytes: int = DEFAULT_MAX_BYTES,
    table_base: int = 0,
) -> Context:
    """The context of a node whose inputs' types are known."""
    given = tuple(types.get(value) if value else None for value in node.inputs)
    if node.repeat is not None:
        given = tuple(t if t is None else node.repeat.step_type(at, t) for at, t in enumerate(given))
    values = tuple(constants.get(value) if value else None for value in node.inputs)
    return Context(node, given, values, max_bytes, table_base)


def apply(entry: Operator, context: Context, operands: Sequence[Operand | None]) -> tuple[Operand, ...]:
    """Run a definition. Raises ModelError where the node has other inputs or outputs than the operator.

    Sizes are checked before anything is computed: no output may exceed the context's limit.
    """
    present = list(operands)
    while present and present[-1] is None:
        present.pop()
    required = len(present) if entry.max_inputs is None else entry.min_inputs
    missing = present.index(None) if None in present else len(present)
    context.require(missing >= required, f"its input {missing} is missing")
    most = len(present) if entry.max_inputs is None else entry.max_inputs
    fits = entry.min_inputs <= len(present) <= most
    context.require(fits, f"it has {len(present)} inputs, which is not what it takes")
    with blaming(context.node):
        try:
            made = build(entry, context, present)
        except ProgramError as error:
            small = next((t.dtype for t in context.types if t and dtype_of(t.dtype).small), None)
            if small is None:
                raise
            raise context.unsupported(
                f"{error.what}: those of {small} are only moved, converted, quantised and dequantised"
            ) from error
    wanted = [at for at, value in enumerate(context.node.outputs) if value]
    if wanted and wanted[-1] >= len(made):
        raise context.unsupported(f"its output {wanted[-1]} is not supported")
    for operand in made:
        context.limit_bytes(operand.type.nbytes)
        rank = len(operand.shape)
        context.require(
            rank <= MAX_RANK, f"its output has {rank} dimensions; a tensor has at most {MAX_RANK}"
        )
    # A definition may find that there is nothing to do. What it gives must be computed all the same.
    given = {id(operand) for operand in present}
    return tuple(_copied(context, operand) if id(operand) in given else operand for operand in made)


def _copied(context: Context, operand: Operand) -> Operand:
    return compute(operand.shape, lambda *i: operand[i], context.node.op.lower(), operand.dtype)


def evaluate_static(entry: Operator, context: Context) -> Sequence[Array]:
    """The outputs of an operator that is evaluated when compiling."""
    if entry.evaluate is None:
        raise InternalError(f"{entry.name} is not evaluated when compiling")
    with blaming(context.node):
        return entry.evaluate(context)


@contextmanager
def blaming(node: Node) -> Iterator[None]:
    """Turn what a definition stumbles over into an error that names the node.

    Attributes and constants come from a model that nobody has vouched for: what a definition does not check
    by itself ends here.
    """
    try:
        yield
    except (IndexError, ValueError, ZeroDivisionError, OverflowError, RecursionError) as error:
        reason = f"its attributes, or the shapes of its inputs, do not fit the operator ({error})"
        raise ModelError(reason, where=node.location) from error
    except ProgramError as error:
        raise ModelError(error.what, where=node.location) from error


@dataclass(frozen=True, slots=True)
class Build:
    """How nodes become stages. `through` are values that are read without stages of their own.

    The values in `permuted` are stored with their axes in the order `order`; `order` is empty if none are.
    `renamed` holds pairs of an output and the permuted value that it is, as it is stored.
    """

    through: frozenset[str] = frozenset()
    order: tuple[int, ...] = ()
    permuted: frozenset[str] = frozenset()
    renamed: tuple[tuple[str, str], ...] = ()


def nodes_program(
    nodes: Sequence[Node],
    types: Mapping[str, TensorType],
    constants: Mapping[str, Array],
    outputs: Sequence[str],
    name: str = "group",
    how: Build | None = None,
) -> NodesProgram:
    """One program that computes `outputs` (values made by `nodes`, which are in topological order).

    Constants of one element are folded into the expressions; other values that no node makes are inputs.
    """
    builder = _Builder(types, constants, how or Build())
    for node in nodes:
        builder.add(node)
    return builder.program(outputs, name)


class _Builder:
    """The operands made so far, and the inputs and tables that they read."""

    def __init__(self, types: Mapping[str, TensorType], constants: Mapping[str, Array], how: Build) -> None:
        self.types = types
        self.constants = constants
        self.how = how
        self.operands: dict[str, Operand] = {}
        self.stored: dict[str, Operand] = {}
        self.inputs: dict[str, str] = {}
        self.given: dict[str, Operand] = {}
        self.places: dict[str, int] = {}
        self.repeated: Node | None = None
        self.tables: dict[str, tuple[Array, Operand]] = {}
        self.ranges: list[ValueRange] = []

    def operand(self, value: str) -> Operand | None:
        """The operand of a value; an input of the program if no node made it."""
        if not value:
            return None
        if value not in self.operands:
            array = self.constants.get(value)
            if array is not None and array.size == 1:
                self.operands[value] = literal(array, self.types[value].dtype)
            else:
                self.operands[value] = self._given(value, self.types[value])
        return self.operands[value]

    def _given(self, value: str, type_: TensorType, at: int | None = None) -> Operand:
        """A new input of the program; `at` is its place among the node's where the node is repeated."""
        label = f"x{len(self.inputs)}"
        self.inputs[label] = value
        if at is not None:
            self.places[label] = at
        self.given[label] = placeholder(type_, label)
        return self.given[label]

    def input(self, entry: Operator, node: Node, at: int) -> Operand | None:
        """The operand of a node's input. Static ones are known and never read: no program's inputs."""
        value = node.inputs[at]
        repeat = node.repeat
        if repeat is not None and value:
            if at in dict(repeat.carried) or at in repeat.sliced:
                # arguments of their own, which differ from run to run
                return self._given(value, repeat.step_type(at, self.types[value]), at)
        if value and at in entry.static and value in self.constants:
            return placeholder(self.types[value], "static")
        return self.operand(value)

    def add(self, node: Node) -> None:
        """Build a node."""
        entry = find_operator(node)
        if entry is None:
            raise InternalError(f"no definition of {node.op}")
        if node.repeat is not None:
            self.repeated = node
        context = context_of(node, self.types, self.constants, table_base=len(self.tables))
        made = apply(entry, context, [self.input(entry, node, at) for at in range(len(node.inputs))])
        self.tables.update(context.tables)
        values = ((node.inputs[asked.input], asked) for asked in context.ranges)
        self.ranges += [
            ValueRange(value, asked, node.location) for value, asked in values if value not in self.constants
        ]
        for value, operand in zip(node.outputs, made, strict=False):
            if not value:
                continue
            if value in self.how.permuted:
                stored, operand = operand.permuted(self.how.order, node.op.lower())
                self.stored[value] = stored
            elif value in self.how.through:
                operand = operand.through()
            self.operands[value] = operand

    def program(self, outputs: Sequence[str], name: str) -> NodesProgram:
        """The program of everything that the outputs need."""
        given = list(self.given.values())
        given += [operand for _, operand in self.tables.values()]
        made = {value: self.stored.get(value, operand) for value, operand in self.operands.items()}
        made |= {output: made[value] for output, value in self.how.renamed}
        wanted = [made[value] for value in outputs]
        program = lang.program(
            [operand.tensor for operand in given if operand.tensor is not None],
            [operand.tensor for operand in wanted if operand.tensor is not None],
            name=name,
        )
        if self.how.order:
            program = in_order_of_readers(program)
        read = {name for stage in program.stages for name in stage.reads}
        used = tuple(buffer for buffer in program.inputs if buffer.name in read)
        return NodesProgram(
            replace(program, inputs=used),
            {label: value for label, value in self.inputs.items() if label in read},
            dict(zip((buffer.name for buffer in program.outputs), outputs, strict=True)),
            {label: array for label, (array, _) in self.tables.items() if label in read},
            tuple(dict.fromkeys(self.ranges)),
            self._repetition(outputs, [b.name for b in program.outputs], read),
        )

    def _repetition(
        self, outputs: Sequence[str], labels: Sequence[str], read: Collection[str]
    ) -> Repetition | None:
        node = self.repeated
        if node is None or node.repeat is None:
            return None
        made = dict(zip(outputs, labels, strict=True))
        carried = dict(node.repeat.carried)
        places = {label: at for label, at in self.places.items() if label in read}
        sliced = {label for label, at in places.items() if at in node.repeat.sliced}
        return Repetition(
            node.repeat.count,
            frozenset((*sliced, *labels)),
            {label: made[node.outputs[carried[at]]] for label, at in places.items() if at in carried},
            node.repeat.backwards,
        )
