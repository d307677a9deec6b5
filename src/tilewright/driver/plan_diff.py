"""What two plans of a model decide differently: of the graph, of kernels, of the nests of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from difflib import SequenceMatcher
from typing import Any

from tilewright.driver.plans import ModelPlan
from tilewright.plan import Cluster, Nest, UnitPlan
from tilewright.tiling import show


@dataclass(frozen=True, slots=True)
class Difference:
    """One decision, and what each plan says of it: empty where it says nothing."""

    place: str
    first: str
    second: str


def plan_differences(first: ModelPlan, second: ModelPlan) -> tuple[Difference, ...]:
    """All decisions in which two plans differ; kernels are the same by their programs and threads."""
    graphs = [{} if plan.graph is None else plan.graph.to_data() for plan in (first, second)]
    machine = [{"fingerprint": plan.target, "quantities": plan.quantities} for plan in (first, second)]
    out = [*_data("target", *machine), *_data("graph", *graphs)]
    for key in dict.fromkeys((*first.units, *second.units)):
        one, other = first.units.get(key), second.units.get(key)
        threads = key.rpartition("/")[2]
        known = one or other
        assert known is not None  # the key is of one of them
        place = f"kernel {', '.join(nest.root for nest in known.parts)} ({threads} threads)"
        if one is None or other is None:
            out.append(Difference(place, "" if one is None else "there", "" if other is None else "there"))
        else:
            out += _units(place, one, other)
    return tuple(out)


def _units(place: str, first: UnitPlan, second: UnitPlan) -> Iterator[Difference]:
    yield from _data(place, _around(first), _around(second))
    one, other = ({nest.root: nest for nest in plan.parts} for plan in (first, second))
    for root in dict.fromkeys((*one, *other)):
        here, left, right = f"{place}, nest {root}", one.get(root), other.get(root)
        yield from _data(here, _nest(left), _nest(right))
        if isinstance(left, Nest) and isinstance(right, Nest):
            yield from _loops(here, left, right)


def _around(plan: UnitPlan) -> dict[str, Any]:
    """What a kernel's plan decides besides its nests."""
    return {"rewrites": [str(s) for s in plan.rewrites.steps], "stored past the caches": plan.streamed}


def _nest(nest: Nest | Cluster | None) -> dict[str, Any]:
    """What a nest decides besides its loops."""
    if nest is None:
        return {}
    choice = nest.choice if isinstance(nest, Nest) else nest.plan
    decided = {f.name: getattr(choice, f.name) for f in fields(choice)} if is_dataclass(choice) else {}
    return {"rule": nest.rule, "with": list(nest.stages), **decided}


def _loops(place: str, one: Nest, other: Nest) -> Iterator[Difference]:
    """The lines of trees that only one of two nests has."""
    first, second = (
        [line.strip() for tree in nest.trees for line in show(tree).splitlines()] for nest in (one, other)
    )
    for what, a, b, c, d in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if what != "equal":
            yield Difference(f"{place}: loops", " / ".join(first[a:b]), " / ".join(second[c:d]))


def _data(place: str, first: Any, second: Any) -> Iterator[Difference]:
    """The leaves in which plain data differ."""
    if first == second:
        return
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for key in dict.fromkeys((*first, *second)):
            yield from _data(f"{place}: {key}", first.get(key, ""), second.get(key, ""))
    else:
        yield Difference(place, _shown(first), _shown(second))


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value)) or "none"
    return "none" if value is None else str(value)
