"""`@pytest.mark.few(n)`: of a test's parameter sets n run each time, the others with those that are `slow`.

The n are chosen so that as many pairs of values of two parameters occur as n allows, and each value as often
as another; of one parameter alone (seeds, say) they are evenly spread.
"""

from collections import Counter, defaultdict
from itertools import combinations

import pytest


def chosen(cases, most):
    """Which of several cases run: tuples of a value of each parameter."""
    if len(cases[0]) == 1:
        return {len(cases) * n // most for n in range(most)}
    said = [(set(enumerate(case)), set(combinations(enumerate(case), 2))) for case in cases]
    seen, pairs, out = Counter(), set(), set()
    while len(out) < min(most, len(cases)):
        left = (n for n in range(len(cases)) if n not in out)
        best = max(left, key=lambda n: (len(said[n][1] - pairs), -sum(map(seen.__getitem__, said[n][0])), -n))
        out.add(best)
        seen.update(said[best][0])
        pairs |= said[best][1]
    return out


@pytest.hookimpl(tryfirst=True)  # before those are left out that are slow
def pytest_collection_modifyitems(items):
    """Mark the others."""
    tests = defaultdict(list)
    for item in items:
        if item.get_closest_marker("few"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for same in tests.values():
        if len(same) == 1:
            continue  # it was asked for
        # values are told by which object they are, which is as it is in every process
        columns = zip(*(map(id, item.callspec.params.values()) for item in same), strict=True)
        # parameters that are given together are one
        apart = dict.fromkeys(tuple(map(column.index, column)) for column in columns)
        keep = chosen(list(zip(*apart, strict=True)), same[0].get_closest_marker("few").args[0])
        for n, item in enumerate(same):
            if n not in keep:
                item.add_marker(pytest.mark.slow)
