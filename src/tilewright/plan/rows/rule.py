"""The rules of reductions along rows: chains of stages over one row, sums along memory, parts of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from tilewright.ir import Stage
from tilewright.plan.elementwise.rule import SHARES, StageProblem
from tilewright.plan.rows.lanes import lanes_nests
from tilewright.plan.rows.match_rows import rows_of, shared_depth
from tilewright.plan.rows.nest import RowsPlan, default_rows, rows_nest
from tilewright.plan.rows.reduction import LaneReduction, chunk_sizes, in_chunks
from tilewright.plan.rows.split_rows import parts_nest
from tilewright.plan.rule import Asked, Cluster, Context, Rule
from tilewright.plan.space import Space
from tilewright.tiling import Nest

#: Rows at once that a search tries.
ROWS = (1, 2, 3, 4, 6, 8, 12, 16)


@dataclass(frozen=True, slots=True)
class Fixed:
    """The plan of a rule that leaves nothing to decide."""


@dataclass(frozen=True, slots=True, eq=False)
class RowsProblem:
    """``stages``, producers first, which feed ``last`` alone and share ``depth`` loops with it."""

    context: Context
    stages: tuple[Stage, ...]
    last: Stage
    depth: int


class RowsRule(Rule[RowsProblem, RowsPlan]):
    """Softmax, normalisations, and other chains: everything about a row while it is in the first cache."""

    name = "rows"
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"rows": RowsPlan})

    def propose(self, asked: Asked) -> Iterable[Cluster]:
        """A stage that follows reductions over its own rows, with those."""
        for stage in asked.roots:
            members = rows_of(asked, stage)
            if members is not None:
                yield Cluster(self.name, stage.name, tuple(member.name for member in members))

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> RowsProblem | None:
        """The stages before ``root``, if they share loops with it."""
        members = [context.program.stage(name) for name in stages]
        last = context.program.stage(root)
        depth = shared_depth(members, last)
        return RowsProblem(context, tuple(members), last, depth) if depth else None

    def default(self, problem: RowsProblem) -> RowsPlan:
        """Vectors along rows, or across those that lie side by side."""
        machine = problem.context.machine
        return default_rows(
            problem.context.program,
            problem.stages,
            problem.last,
            problem.depth,
            machine,
        )

    def space(self, problem: RowsProblem) -> Space[RowsPlan]:
        """Rows at once, passes folded or not, requests, and how finely threads share."""
        default = self.default(problem)
        row = problem.last.iters[problem.depth - 1].extent
        fits = [n for n in ROWS if row.is_const and n <= row.as_int()]
        options: dict[str, tuple[object, ...]] = {
            "rows": (default.rows,) if default.across else tuple(dict.fromkeys((default.rows, *fits))),
            "fold": (True, False),
            "ahead": (True, False),
            "share": tuple(dict.fromkeys((default.share, *SHARES))),
        }
        return Space(default, options)

    def trees(self, problem: RowsProblem, plan: RowsPlan) -> tuple[Nest, ...]:
        """All stages of a row inside its loop."""
        machine, program = problem.context.machine, problem.context.program
        return (rows_nest(program, problem.stages, problem.last, plan, machine),)


class LanesRule(Rule[StageProblem, LaneReduction]):
    """Reductions along memory that the program was split for: vectors of sums, joined at the end."""

    name = "lanes"
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"lanes": LaneReduction})

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> StageProblem | None:
        """A stage that ends such a reduction; what was split is in the context's matches."""
        split = isinstance(context.matches.get(root), LaneReduction)
        return StageProblem(context, context.program.stage(root)) if split else None

    def default(self, problem: StageProblem) -> LaneReduction:
        """What the program was split for."""
        found = problem.context.matches[problem.stage.name]
        assert isinstance(found, LaneReduction)
        return found

    def space(self, problem: StageProblem) -> Space[LaneReduction]:
        """With and without what is asked for ahead; in chunks of every size, or all at once."""
        default, program = self.default(problem), problem.context.program
        options: dict[str, tuple[object, ...]] = {"ahead": tuple(dict.fromkeys((default.ahead, ())))}
        others: tuple[LaneReduction, ...] = ()
        if default.chunk:
            options["chunk"] = tuple(dict.fromkeys((default.chunk, 0, *chunk_sizes(program, default))))
        elif (chunked := in_chunks(program, default, problem.context.machine.target)) is not None:
            others = tuple(replace(chunked, chunk=n) for n in chunk_sizes(program, chunked))
        return Space(default, options, others=others)

    def trees(self, problem: StageProblem, plan: LaneReduction) -> tuple[Nest, ...]:
        """Vectors of sums in registers."""
        context = problem.context
        return lanes_nests(context.program, plan, problem.stage, context.machine)


class PartsRule(Rule[StageProblem, Fixed]):
    """Rows fewer than the threads: a stage that reduces parts of them."""

    name = "row_parts"
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"fixed": Fixed})

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> StageProblem:
        """A stage that reduces parts of rows."""
        return StageProblem(context, context.program.stage(root))

    def default(self, problem: StageProblem) -> Fixed:
        """Nothing is left to decide."""
        return Fixed()

    def trees(self, problem: StageProblem, plan: Fixed) -> tuple[Nest, ...]:
        """Sums of several parts in registers, threads share parts."""
        return (parts_nest(problem.context.program, problem.stage, problem.context.machine),)
