"""A fusion rule from outside: sums along rows and what is computed of them, in one loop over the rows."""

from dataclasses import dataclass
from types import MappingProxyType

from tilewright.plan import Cluster, Rule
from tilewright.tiling import Leaf, Nest, Place, Step, chain, sequence


@dataclass(frozen=True)
class Problem:
    """A stage, and the sum along rows that it alone reads."""

    stage: object
    inner: object


@dataclass(frozen=True)
class Plain:
    """Nothing is decided."""


class RowByRow(Rule):
    """``made`` for each row right before the row that reads it."""

    name = "row_by_row"
    forms = MappingProxyType({"plain": Plain})

    def propose(self, asked):
        for stage in asked.roots:
            for inner in asked.program.stages:
                if asked.is_free(inner.name) and self.match(asked.context, stage.name, (inner.name,)):
                    yield Cluster(self.name, stage.name, (inner.name,))

    def match(self, context, root, stages):
        stage, program = context.program.stage(root), context.program
        if len(stages) != 1 or stage.is_reduction or [it.kind for it in stage.iters] != ["par", "par"]:
            return None
        inner = program.stage(stages[0])
        alone = [program.consumers(name) for name in inner.writes] == [(stage,)]
        fits = inner.is_reduction and [it.kind for it in inner.iters] == ["par", "red"]
        rows = fits and inner.iters[0].extent == stage.iters[0].extent
        return Problem(stage, inner) if alone and rows else None

    def default(self, problem):
        return Plain()

    def trees(self, problem, plan):
        (row, along), (rows, columns) = problem.inner.iters, problem.stage.iters
        inner = chain([Step(row.name, 1), Step(along.name, 1)], Leaf(problem.inner.name))
        made = Place(problem.inner.name, "make", "stack", inner)
        leaf = chain([Step(columns.name, 1, "vector")], Leaf(problem.stage.name))
        return (Nest(problem.stage.name, chain([Step(rows.name, 1)], sequence(made, leaf))),)
