"""Updates in no order whose place data decide: one instance for each element that may change.

``H[y, f(X[y, x])] += v`` is for every ``c``: ``H[y, c] += v`` where ``c`` is the place, else ``H[y, c] += 0``
(of other operations the neutral element). Said so, every access is exact, the elements that data index are a
coordinate like others, and the order of ``x`` is a reduction's.
"""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from tilewright.ir import SERIAL, Index, Store, fresh_name, is_opaque, substitute_index, var
from tilewright.poly.extract import Model, PolyAccess, PolyStatement
from tilewright.poly.spaces import DIM, Domain


def elements_apart(model: Model) -> Model:
    """The model with such updates as instances of all elements that they may change."""
    return replace(model, statements=tuple(_apart(model, s) for s in model.statements))


def _apart(model: Model, s: PolyStatement) -> PolyStatement:
    if "red" not in s.coord_kinds or not isinstance(s.node, Store) or len(s.writes) != 1:
        return s
    (write,), target = s.writes, s.node.writes[0]
    own = [
        r.load is not None and (r.load.buffer, r.load.indices) == (target.buffer, target.indices)
        for r in s.reads
    ]
    if write.exact or not any(own):
        return s
    names = set(s.dims) | set(s.coord_names)
    cells = {}
    for n, x in enumerate(target.indices):
        if is_opaque(x):
            cells[n] = fresh_name(f"element{n}", names)
            names.add(cells[n])
    buffer = model.buffers[write.buffer]
    wide = Domain(s.name, (*s.dims, *cells.values()), model.params)
    domain = _with_dims(s.domain, wide)
    for n, c in cells.items():
        domain = domain.intersect(wide.at_least(var(c))).intersect(
            wide.at_least(buffer.shape[n] - var(c) - 1)
        )
    scope = dict(zip(s.coord_names, s.coords, strict=True))
    place = [
        var(cells[n]) if n in cells else substitute_index(x, scope) for n, x in enumerate(target.indices)
    ]
    physical: list[Index] = list(buffer.physical(tuple(place)))
    before = write.relation.dim(DIM.out) - len(physical)
    at = wide.map_to(write.buffer, [*[None] * before, *physical])

    def access(a: PolyAccess, *, exact: bool) -> PolyAccess:
        relation = a.relation.insert_dims(DIM.in_, len(s.dims), len(cells)).set_tuple_name(DIM.in_, s.name)
        if exact:
            relation = relation.intersect(at)
        return replace(a, relation=relation.intersect_domain(domain), exact=a.exact or exact)

    # what is not overwritten (a read of no load) needs no read of its own: it is the same element's
    reads = [access(r, exact=mine) for r, mine in zip(s.reads, own, strict=True) if r.load is not None]
    return replace(
        s,
        dims=wide.dims,
        kinds=(*s.kinds, *[SERIAL] * len(cells)),
        domain=domain,
        exact=True,
        coord_names=(*s.coord_names, *cells.values()),
        coord_kinds=(*s.coord_kinds, *["par"] * len(cells)),
        coords=(*s.coords, *map(var, cells.values())),
        time=(*s.time, *cells.values()),
        reads=tuple(reads),
        writes=(access(write, exact=True),),
    )


def _with_dims(s: isl.Set, wide: Domain) -> isl.Set:
    more = len(wide.dims) - s.dim(DIM.set)
    return s.insert_dims(DIM.set, s.dim(DIM.set), more).set_tuple_name(wide.name)
