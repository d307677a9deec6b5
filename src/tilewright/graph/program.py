"""From nodes to one program of `tilewright.lang`, and its evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tilewright import lang
from tilewright.graph.model import Array, Node, TensorType
from tilewright.graph.operand import Operand, literal, placeholder
from tilewright.graph.registry import DEFAULT_MAX_BYTES, Context, Operator, build, find_operator
from tilewright.ir import Program
from tilewright.support import InternalError, ModelError


@dataclass(frozen=True, slots=True, eq=False)
class NodesProgram:
    """The program that computes some nodes.

    `inputs` maps the program's input names to the graph's values, `outputs` its output names likewise;
    `tables` maps further inputs to constants that operators made. No name in it comes from the model.
    """

    program: Program
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    tables: Mapping[str, Array]

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs", "tables"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def evaluate(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Run the reference evaluation on the graph's values; gives the outputs by the graph's names."""
        feeds = {name: arrays[value] for name, value in self.inputs.items()}
        made = lang.evaluate(self.program, {**feeds, **self.tables})
        return {value: made[name] for name, value in self.outputs.items()}


def context_of(
    node: Node,
    types: Mapping[str, TensorType],
    constants: Mapping[str, Array],
    max_bytes: int = DEFAULT_MAX_BYTES,
    table_base: int = 0,
) -> Context:
    """The context of a node whose inputs' types are known."""
    given = tuple(types.get(value) if value else None for value in node.inputs)
    values = tuple(constants.get(value) if value else None for value in node.inputs)
    return Context(node, given, values, max_bytes, table_base)


def apply(entry: Operator, context: Context, operands: Sequence[Operand | None]) -> tuple[Operand, ...]:
    """Run a definition. Raises ModelError where the node has other inputs or outputs than the operator.

    Sizes are checked before anything is computed: no output may exceed the context's limit.
    """
    present = list(operands)
    while present and present[-1] is None:
        present.pop()
    if None in present and entry.min_inputs > present.index(None):
        raise ModelError(f"its input {present.index(None)} is missing", where=context.node.location)
    too_many = entry.max_inputs is not None and len(present) > entry.max_inputs
    if too_many or len(present) < entry.min_inputs:
        raise ModelError(
            f"it has {len(present)} inputs, which is not what it takes", where=context.node.location
        )
    made = build(entry, context, present)
    wanted = [at for at, value in enumerate(context.node.outputs) if value]
    if wanted and wanted[-1] >= len(made):
        raise context.unsupported(f"its output {wanted[-1]} is not supported")
    for operand in made:
        context.limit_bytes(operand.type.nbytes)
    return made


def nodes_program(
    nodes: Sequence[Node],
    types: Mapping[str, TensorType],
    constants: Mapping[str, Array],
    outputs: Sequence[str],
    name: str = "group",
) -> NodesProgram:
    """One program that computes `outputs` (values made by `nodes`, which are in topological order).

    Constants of one element are folded into the expressions; other values that no node makes are inputs.
    """
    operands: dict[str, Operand] = {}
    inputs: dict[str, str] = {}
    tables: dict[str, Array] = {}
    table_operands: list[Operand] = []

    def operand_of(value: str) -> Operand | None:
        if not value:
            return None
        if value not in operands:
            array = constants.get(value)
            if array is not None and array.size == 1:
                operands[value] = literal(array)
            else:
                label = f"x{len(inputs)}"
                inputs[label] = value
                operands[value] = placeholder(types[value], label)
        return operands[value]

    for node in nodes:
        entry = find_operator(node)
        if entry is None:
            raise InternalError(f"no definition of {node.op}")
        context = context_of(node, types, constants, table_base=len(tables))
        made = apply(entry, context, [operand_of(value) for value in node.inputs])
        for label, (array, operand) in context.tables.items():
            tables[label] = array
            table_operands.append(operand)
        for value, operand in zip(node.outputs, made, strict=False):
            if value:
                operands[value] = operand
    given = [operands[value].tensor for value in inputs.values()] + [t.tensor for t in table_operands]
    wanted = [operands[value].tensor for value in outputs]
    program = lang.program(
        [t for t in given if t is not None], [t for t in wanted if t is not None], name=name
    )
    return NodesProgram(
        program, inputs, dict(zip((b.name for b in program.outputs), outputs, strict=True)), tables
    )
