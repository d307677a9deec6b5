"""The rule of element-wise stages: vectors along the axis that moves most accesses by single elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from tilewright import tiling
from tilewright.ir import Stage
from tilewright.plan.elementwise.nest import elementwise_nest
from tilewright.plan.elementwise.panels import panels_nest
from tilewright.plan.elementwise.plan import ElementwisePlan, default_elementwise
from tilewright.plan.elementwise.readers import is_made_in, threads_of_reader
from tilewright.plan.rule import Asked, Cluster, Context, Nest, Rule
from tilewright.plan.space import Space

#: Iterations for each thread that a search tries.
SHARES = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True, eq=False)
class StageProblem:
    """One stage, scheduled by itself."""

    context: Context
    stage: Stage


class ElementwiseRule(Rule[StageProblem, ElementwisePlan]):
    """Any stage: outer loops in parallel, vectors along one axis, everything else in order."""

    name = "elementwise"
    follows = True
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"loops": ElementwisePlan})

    def propose(self, asked: Asked) -> Iterable[Cluster]:
        """Each stage by itself."""
        return (Cluster(self.name, stage.name) for stage in asked.roots)

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> StageProblem:
        """Every stage can be done so."""
        return StageProblem(context, context.program.stage(root))

    def default(self, problem: StageProblem) -> ElementwisePlan:
        """Vectors along the axis that moves most accesses by single elements."""
        return default_elementwise(problem.context.program, problem.stage)

    def space(self, problem: StageProblem) -> Space[ElementwisePlan]:
        """Every axis that the stage has no carried value along, with and without transposing in registers."""
        default = self.default(problem)
        axes = [
            n
            for n, it in enumerate(problem.stage.iters)
            if it.kind == "par" and it.extent.is_const and it.extent.as_int() > 1
        ]
        options: dict[str, tuple[object, ...]] = {
            "vector": tuple(dict.fromkeys((default.vector, *axes))),
            "run": tuple(dict.fromkeys((default.run, None))),
            "transpose": (default.transpose, not default.transpose),
            "share": tuple(dict.fromkeys((default.share, *SHARES))),
        }

        def refusal(plan: ElementwisePlan) -> str:
            if plan.run is not None and plan.vector != default.vector:
                return f"axis {plan.vector} does not lie in runs of {plan.run}"
            return ""

        return Space(default, options, refusal)

    def trees(self, problem: StageProblem, plan: ElementwisePlan) -> tuple[tiling.Nest, ...]:
        """The loops of a stage by itself, shared as suits it alone."""
        context = problem.context
        nest = elementwise_nest(context.program, problem.stage, context.machine, plan)
        return () if nest is None else (nest,)

    def write(
        self,
        cluster: Cluster,
        problem: StageProblem,
        plan: ElementwisePlan,
        others: Sequence[tiling.Nest] = (),
    ) -> Nest:
        """The loops of a stage by itself, unless another nest has it; shared as those of its readers."""
        context, stage = problem.context, problem.stage
        trees: tuple[tiling.Nest, ...] = ()
        if not is_made_in(stage.name, others):
            panels = panels_nest(context.program, stage, context.machine, others)
            reader = threads_of_reader(context.program, stage, others)
            nest = elementwise_nest(context.program, stage, context.machine, plan, reader)
            trees = panels if panels is not None else () if nest is None else (nest,)
        return Nest(cluster.rule, cluster.root, cluster.stages, trees, (), plan)
