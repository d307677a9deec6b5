"""Loops whose iterations do not wait for each other, by exact dependences at fixed loops around.

Less than a parallel iterator (:mod:`tilewright.poly.kinds`), which is free wherever its loop stands: the
loops over space of a stencil are independent inside of the loop over time, and nowhere else.
"""

from __future__ import annotations

from tilewright.ir import LoopFunction
from tilewright.poly.budget import OPERATIONS, budget
from tilewright.poly.dependences import Dependences
from tilewright.poly.extract import extract_model
from tilewright.poly.spaces import DIM


def independent_loops(func: LoopFunction, *, operations: int = OPERATIONS) -> frozenset[str]:
    """The loops of a function whose iterations may run at the same time.

    Raises ProgramError for bounds that depend on data, ResourceError where isl takes too many ``operations``.
    """
    with budget(operations, f"the dependences of {func.name} are too many", ""):
        model = extract_model(func)
        dims = {s.name: s.dims for s in model.statements}
        carrying: set[str] = set()
        for d in Dependences(model).among():
            same = d.relation
            for n, (a, b) in enumerate(zip(dims[d.source], dims[d.sink], strict=False)):
                if a != b:
                    break
                equal = same.equate(DIM.in_, n, DIM.out, n)
                if a not in carrying and not same.is_subset(equal):
                    carrying.add(a)
                same = equal
        return frozenset(name for s in model.statements for name in s.dims) - carrying
