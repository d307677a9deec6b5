"""Which outputs come with contents that count: read before they are written, or kept in part."""

from __future__ import annotations

from tilewright.ir import LoopFunction, var
from tilewright.poly.budget import OPERATIONS, bounded
from tilewright.poly.dependences import sources
from tilewright.poly.extract import Model, extract_model
from tilewright.poly.spaces import DIM, Domain, union_set
from tilewright.support import ResourceError


def contents_that_count(func: LoopFunction, *, operations: int = OPERATIONS) -> frozenset[str]:
    """The outputs that are read before they are written, or of which some element is never written.

    For some values of the parameters at least; all outputs where isl would need more than ``operations``.
    Raises ProgramError for loops whose bounds depend on data.
    """

    def found() -> frozenset[str]:
        model = extract_model(func)
        return frozenset(name for name in func.outputs if _counts(model, name))

    try:
        return bounded(found, f"the dataflow of {func.name} is too large", operations=operations)
    except ResourceError:
        return frozenset(func.outputs)


def _counts(model: Model, name: str) -> bool:
    buffer = model.buffers[name]
    dims = tuple(f"d{n}" for n in range(len(buffer.physical_shape)))
    space = Domain(name, dims, model.params)
    box = space.universe().intersect_params(model.context)
    for d, extent in zip(dims, buffer.physical_shape, strict=True):
        box = box.intersect(space.at_least(var(d))).intersect(space.at_least(extent - 1 - var(d)))
    written = union_set(
        w.relation.range() for s in model.statements for w in s.writes if w.buffer == name and w.exact
    )
    if not box.to_union_set().is_subset(written):
        return True
    return any(
        not sources(model, s, slot).initial.is_empty()
        for s in model.statements
        for slot, r in enumerate(s.reads)
        if r.buffer == name and r.relation.dim(DIM.out) == len(dims)
    )
