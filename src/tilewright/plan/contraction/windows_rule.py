"""The rule of windows over planes too narrow for vectors: a block of channels side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from tilewright.plan.contraction.narrow_windows import Planes, find_planes, planes_nest
from tilewright.plan.rule import Asked, Cluster, Context, Rule
from tilewright.tiling import Nest


@dataclass(frozen=True, slots=True)
class WindowsPlan:
    """Blocks of ``size`` channels."""

    size: int


@dataclass(frozen=True, slots=True, eq=False)
class WindowsProblem:
    """A reduction over windows of narrow planes."""

    context: Context
    planes: Planes


class WindowsRule(Rule[WindowsProblem, WindowsPlan]):
    """Pooling and depthwise convolutions of small images."""

    name = "narrow_windows"
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"blocks": WindowsPlan})

    def propose(self, asked: Asked) -> Iterable[Cluster]:
        """Each reduction over windows of narrow planes, with the stage that ends it."""
        for stage in asked.roots:
            found = find_planes(asked.program, stage, asked.context.machine.target)
            if found is not None:
                names = dict.fromkeys((found.stage.name, stage.name))
                each = tuple(Cluster("elementwise", name) for name in names)
                yield Cluster(self.name, stage.name, tuple(n for n in names if n != stage.name), each)

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> WindowsProblem | None:
        """The reduction that ``root`` ends."""
        found = find_planes(context.program, context.program.stage(root), context.machine.target)
        return None if found is None else WindowsProblem(context, found)

    def default(self, problem: WindowsProblem) -> WindowsPlan:
        """The widest blocks that divide the channels."""
        return WindowsPlan(problem.planes.size)

    def trees(self, problem: WindowsProblem, plan: WindowsPlan) -> tuple[Nest, ...]:
        """Both ends in blocks of channels."""
        c = problem.context
        return (planes_nest(c.program, problem.planes, c.machine, c.constants),)
