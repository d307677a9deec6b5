"""Models with open sizes, compiled: one plan for all sizes, or a few where a comparison parts them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tilewright.build import Array
from tilewright.driver.assemble import Packs, Steps
from tilewright.driver.compiler import Clock, OnCpu, compiled_steps
from tilewright.driver.graph_plan import GraphUnits
from tilewright.driver.open_assembly import assemble_open
from tilewright.driver.open_graphs import graphs_at
from tilewright.driver.open_sizes import OpenSizes
from tilewright.driver.open_stages import stages_of
from tilewright.driver.progress import Progress, no_progress
from tilewright.driver.size_program import SizeNumbers
from tilewright.frontend import OpenSource, Shapes
from tilewright.graph import MOST_COUNTED, Control, Graph, Listing, ListType, Node, TensorType
from tilewright.ir import (
    OpenIndexError,
    OpenSizeError,
    Param,
    Size,
    base_symbols,
    dtype_of,
    index_of,
)
from tilewright.runtime import (
    Branch,
    Count,
    Course,
    ListStep,
    Loop,
    OpenList,
    OpenPlan,
    OpenTensor,
    Ranges,
    Relation,
    RunStage,
    StagedPlan,
)
from tilewright.support import get_logger, quoted

_log = get_logger(__name__)

#: Parts of the range of sizes that have a plan each, at most.
MOST_PLANS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class PlannedStage:
    """A plan, and what it was made of."""

    plan: OpenPlan
    steps: Steps
    units: GraphUnits


@dataclass(frozen=True, slots=True, eq=False)
class PlannedRange:
    """The plan of a range of sizes, and what each of its plans was made of."""

    ranges: Ranges
    plan: StagedPlan
    stages: tuple[PlannedStage, ...]
    outputs: tuple[OpenTensor, ...]


def plan_sizes(
    model: OpenSource,
    sizes: OpenSizes,
    shapes: Shapes,
    constants: Mapping[str, Array],
    compiler: OnCpu,
    progress: Progress = no_progress,
) -> list[PlannedRange]:
    """A plan for all sizes, or one each for parts of their range, the smaller sizes first.

    Raises what importing and compiling raise: UnsupportedOperatorError, too, where a node needs a number that
    only a run knows.
    """
    packs = Packs()
    found = graphs_at(model, sizes, shapes, constants, MOST_PLANS)
    try:
        return [_planned(*each, compiler, packs, progress) for each in found]
    except OpenIndexError as error:
        # a rule asks for a number where there is an expression
        raise OpenSizeError(f"no plan is for all sizes: {error}") from error


def _planned(
    sizes: OpenSizes, graph: Graph, compiler: OnCpu, packs: Packs, progress: Progress
) -> PlannedRange:
    ranges = tuple((known.least, known.largest) for known in sizes.ranges.values())
    maker = _Maker(sizes, compiler, packs, progress)
    course = maker.course(graph, sizes.symbols, sizes)
    plan = StagedPlan(course, [stage.plan for stage in maker.made])
    named = zip(graph.output_names, graph.outputs[: graph.returned], strict=False)
    outputs = tuple(
        open_list(name, graph.lists[v], sizes) if v in graph.lists else _told(name, graph.types[v], sizes)
        for name, v in named
    )
    return PlannedRange(ranges, plan, tuple(maker.made), outputs)


@dataclass(slots=True, eq=False)
class _Maker:
    """Makes the plans of a graph's stages, and of the graphs that these run."""

    sizes: OpenSizes
    compiler: OnCpu
    packs: Packs
    progress: Progress
    made: list[PlannedStage] = field(default_factory=list)

    def course(self, graph: Graph, symbols: Mapping[str, int], sizes: OpenSizes | None = None) -> Course:
        """The course of a graph whose sizes, and course, data may decide; its symbols come behind others."""
        stages = stages_of(graph)
        symbols = {**symbols, **{symbol: 1 for stage in stages for symbol in stage.counts}}
        places = {symbol: n for n, symbol in enumerate(symbols)}
        made: list[RunStage] = []
        open_ = list(graph.relations)
        later = {symbol for stage in stages for symbol in stage.counts}
        for at, stage in enumerate(stages):
            counts = tuple(
                Count(*graph.counts[s], places[s], *_said(graph, self.sizes, s)) for s in stage.counts
            )
            numbers = SizeNumbers(symbols)
            later -= stage.counts.keys()
            found = [r for r in open_ if not {p.name for n in r[:2] for p in _base(n)} & later]
            open_ = [r for r in open_ if r not in found]
            relations = [self._relation(graph, numbers, *each) for each in found]
            relations += [] if at or sizes is None else _relations(sizes, numbers)
            runs = tuple(self._control(node, graph, symbols, numbers) for node in stage.controls)
            plan = self.stage(stage.graph, numbers, relations)
            made.append(RunStage(counts, plan, runs))
        outputs = graph.outputs[: graph.returned]
        constants = {value: graph.constants[value] for value in outputs if value in graph.constants}
        results = tuple(zip(graph.output_names, outputs, strict=False))
        return Course(tuple(made), len(symbols), results, constants)

    def _control(
        self, node: Node, graph: Graph, symbols: Mapping[str, int], numbers: SizeNumbers
    ) -> Branch | Loop | ListStep:
        control = graph.controls[node.used_outputs[0]]
        given = str(node.attributes["inputs"]).split(",")
        rest = iter(node.inputs)
        inputs = [next(rest) if present == "1" else "" for present in given]
        known = {v: graph.constants[v] for v in node.inputs if v in graph.constants}
        if isinstance(control, Listing):
            place = control.op, control.attributes, control.where
            return ListStep(*place, tuple(inputs), node.outputs, known)
        assert isinstance(control, Control)
        courses = tuple(self.course(each, symbols) for each in control.graphs)
        if not control.takes:
            return Branch(inputs[0], courses, node.inputs, node.outputs, known, control.refusal)
        kinds = tuple(
            (dtype_of(graph.types[v].dtype).numpy.name, (0, *map(numbers.amount, graph.types[v].sizes[1:])))
            if v in graph.types
            else None
            for v in node.outputs
        )
        inputs += [""] * (2 - len(inputs))
        return Loop(
            courses, tuple(inputs), control.takes, control.carried, node.inputs, node.outputs, kinds, known
        )

    def _relation(self, graph: Graph, numbers: SizeNumbers, a: int, b: int, node: str) -> Relation:
        """What a run checks of sizes that data says."""
        texts = []
        for size in (a, b):
            text = self.sizes.shown(index_of(size))
            for symbol, (value, place, axis) in reversed([*graph.counts.items()]):
                said = f"axis {place} of {quoted(value)}" if axis else f"what {quoted(value)} says"
                text = text.replace(symbol, said)
            texts.append(text)
        return Relation((texts[0], texts[1]), (numbers.amount(a), numbers.amount(b)), node, said=True)

    def stage(self, graph: Graph, numbers: SizeNumbers, relations: Sequence[Relation]) -> int:
        """The number of the plan of a graph for all sizes, which checks ``relations`` between these."""
        for array in graph.constants.values():
            self.packs.keep(array)
        compiler = self.compiler
        steps, made = compiled_steps(graph, compiler, Clock(), self.progress, self.packs)
        plan = assemble_open(steps, compiler.pool, numbers, relations, checks=compiler.checks)
        self.made.append(PlannedStage(plan, steps, made))
        return len(self.made) - 1


def _told(name: str, kind: TensorType, sizes: OpenSizes) -> OpenTensor:
    return OpenTensor(name, dtype_of(kind.dtype).numpy, tuple(map(sizes.told, kind.sizes)))


def open_list(name: str, kind: ListType, sizes: OpenSizes) -> OpenList:
    """A list of a run as inputs and outputs tell it."""
    dims = [sizes.told(n) if isinstance(n, Size) else n for n in kind.shape or ()]
    dtype = dtype_of(kind.dtype or "f32").numpy
    return OpenList(name, dtype, tuple(dims), kind.many, kind.optional, kind.shape is None)


def _said(graph: Graph, sizes: OpenSizes, symbol: str) -> tuple[int, int]:
    """The least and the largest that a size may be that data says."""
    needed = sizes.said.get(symbol)
    if needed is not None and needed.is_const:
        return needed.const, needed.const
    found = (p for type_ in graph.types.values() for n in type_.sizes for p in _base(n) if p.name == symbol)
    return 0, next((p.hi for p in found), MOST_COUNTED)


def _base(n: int) -> Iterable[Param]:
    return base_symbols(n.index).values() if isinstance(n, Size) else ()


def _relations(sizes: OpenSizes, numbers: SizeNumbers) -> Iterator[Relation]:
    """What the model needs of sizes besides what their names say."""
    places = [*sizes.ranges]
    values = sizes.values()
    for name in sizes.equal:
        own = numbers.given(places.index(name))
        value = values[name]
        text = sizes.shown(index_of(value)) if isinstance(value, Size) else str(value)
        yield Relation((f"the size {quoted(name)}", text), (own, numbers.amount(value)), "the model")
