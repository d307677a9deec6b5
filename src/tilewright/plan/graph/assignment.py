"""Assignment: one option for each variable so that a sum of costs, each of a few variables, is least.

Exactly, by eliminating one variable after another: what is left of the costs with it, the least over its
options, is a cost of its neighbours. Where that table would be too large, by descent from the first options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, prod
from typing import Final

#: Entries of a table up to which variables are eliminated.
MOST_ENTRIES: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost by the options of the variables in ``scope``; what the table does not have cannot be chosen."""

    scope: tuple[str, ...]
    table: Mapping[tuple[int, ...], float]

    def of(self, chosen: Mapping[str, int]) -> float:
        """The cost of an assignment."""
        return self.table.get(tuple(chosen[v] for v in self.scope), inf)


def total_cost(costs: Sequence[Cost], chosen: Mapping[str, int]) -> float:
    """The sum over all costs."""
    return sum(cost.of(chosen) for cost in costs)


def assign(options: Mapping[str, int], costs: Sequence[Cost]) -> dict[str, int]:
    """The assignment of least cost; ``options`` are how many each variable has."""
    left = list(costs)
    order: list[tuple[str, tuple[str, ...], dict[tuple[int, ...], int]]] = []
    todo = list(options)
    while todo:
        sizes = {v: prod(options[u] for u in _scope(v, left)) * options[v] for v in todo}
        variable = min(todo, key=lambda v: (sizes[v], v))
        if sizes[variable] > MOST_ENTRIES:
            return _descent(options, costs)
        todo.remove(variable)
        own = [cost for cost in left if variable in cost.scope]
        scope = _scope(variable, left)
        table: dict[tuple[int, ...], float] = {}
        best: dict[tuple[int, ...], int] = {}
        for values in product(*(range(options[v]) for v in scope)):
            chosen = dict(zip(scope, values, strict=True))
            sums = [total_cost(own, {**chosen, variable: n}) for n in range(options[variable])]
            best[values] = min(range(len(sums)), key=sums.__getitem__)
            table[values] = sums[best[values]]
        order.append((variable, scope, best))
        left = [cost for cost in left if variable not in cost.scope] + [Cost(scope, table)]
    found: dict[str, int] = {}
    for variable, scope, best in reversed(order):
        found[variable] = best[tuple(found[v] for v in scope)]
    return found


def _scope(variable: str, costs: Sequence[Cost]) -> tuple[str, ...]:
    """The variables that share a cost with one."""
    found = {v for cost in costs if variable in cost.scope for v in cost.scope}
    return tuple(sorted(found - {variable}))


def _descent(options: Mapping[str, int], costs: Sequence[Cost]) -> dict[str, int]:
    """One variable after another takes its best option, until none changes."""
    chosen = dict.fromkeys(options, 0)
    changed = True
    while changed:
        changed = False
        for variable, count in options.items():
            own = [cost for cost in costs if variable in cost.scope]
            sums = [total_cost(own, {**chosen, variable: n}) for n in range(count)]
            best = sums.index(min(sums))
            if sums[best] < sums[chosen[variable]]:
                chosen[variable], changed = best, True
    return chosen
