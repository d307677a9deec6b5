"""Contractions of which each reads the one before, as one nest: producers at a tile of the last result.

    parallel for each batch index:                 # a head
        panels of the first right operand          # vectors along its columns
        for tiles of rows:                         # as many as a register tile has
            scores = a · panels, point-wise work   # register tiles; the rows stay in the nearest cache level
            reductions and point-wise work on the rows
            out = rows · b                         # register tiles

    parallel for bands of rows:                    # chosen by `bands.py`
        for blocks of channels:                    # where the reader treats channels apart
            expanded = image · weights             # the band and its border
            depthwise = windows of expanded
        out = depthwise · weights

What lies between the contractions never leaves the caches of a core, and one start of the threads serves all.
Which stages are a chain is read off their accesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.analysis import Contraction
from tilewright.ir import F32, Index, Load, Program, Stage, Store, Var, stmt_loads, var
from tilewright.plan.contraction.packing import panel_layout
from tilewright.plan.contraction.register_tiling import is_tileable
from tilewright.plan.graph.layouts import with_blocks
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Link:
    """One contraction of a chain, and what belongs to it.

    ``panels``, if there is one, makes the right operand of ``stage`` with its vectors last. ``epilogue`` is
    the point-wise stage after it, ``rows`` what follows on its rows. ``program`` has the layouts in which
    values between links are best stored. ``axis`` is the iterator of ``stage`` along which the chain is cut
    into tiles; the link reads the one before at ``reads``.
    """

    program: Program
    c: Contraction
    panels: Stage | None
    epilogue: Stage | None
    rows: tuple[Stage, ...]
    axis: str = ""
    reads: Load | None = None

    @property
    def stage(self) -> Stage:
        """The contraction's own stage."""
        return self.c.stage

    @property
    def end(self) -> Stage:
        """The stage that stores the contraction's result."""
        return self.epilogue or self.c.stage

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages of the link but its panels, in order."""
        return (self.stage, *([self.epilogue] if self.epilogue else []), *self.rows)


@dataclass(frozen=True, slots=True)
class Chain:
    """Links in order, each of which alone reads the one before.

    ``outer`` are iterators of the last contraction that all links go through alike, outside of the tiles:
    elements of a batch, heads.
    """

    links: tuple[Link, ...]
    outer: tuple[str, ...]

    @property
    def has_rows(self) -> bool:
        """Whether whole rows are reduced between links: tiles are then rows of a register tile."""
        return any(link.rows for link in self.links)


def find_chain(program: Program, target: Target) -> Chain | None:
    """The chain that the whole program is; ``None`` for other programs."""
    links = find_links(program, target)
    names = [frozenset(name for stage in link.stages for name in stage.writes) for link in links]
    for at, (made, link) in enumerate(zip(names, links, strict=True)):
        after = links[at + 1] if at + 1 < len(links) else None
        own = {stage.name for stage in link.stages} | ({after.stage.name} if after else set())
        if not all(reader.name in own for name in made for reader in program.consumers(name)):
            return None
    return chain_of(links, names[:-1], target)


def chain_of(links: Sequence[Link], names: Sequence[frozenset[str]], target: Target) -> Chain | None:
    """The chain of links of which each contraction reads the link before, in buffers of these ``names``.

    Nothing else may read them. ``None`` where tiles of the last result do not come from tiles of the others,
    or come from too many of them.
    """
    if len(links) < 2 or links[-1].rows:
        return None
    last = links[-1].c
    own = [axis for axis in last.axes("m") if last.extent(axis) > 1]
    if any(link.rows for link in links):
        if len(links) != 2 or len(own) != 1 or not all(link.c.axes("n") for link in links):
            return None
        found = _traced(links, names, own[0])
        return Chain(found, last.axes("batch")) if found is not None and _keep_rows(found) else None
    outer: list[str] = []
    batch = tuple(axis for axis in last.axes("batch") if axis != last.vector)
    for axis in own[:-1]:
        found = _traced(links, names, axis)
        if found is None:
            return None
        if len(own) - len(outer) > 2 and _is_free(found):
            outer.append(axis)
            continue
        if not all(_has_panels(link, target) for link in links) or not all(map(_reads_whole, found[1:])):
            return None
        return Chain(found, (*outer, *batch))
    # tiles of the axis that register tiles take would read all of each right operand again
    return None


def find_links(program: Program, target: Target) -> list[Link]:
    """The stages of a program as links in order; none where they are not."""
    program = with_blocks(program, target)
    stages = list(program.stages)
    links: list[Link] = []
    at = 0
    while at < len(stages):
        panels = None
        c = _product(program, stages[at], target)
        if c is None and at == 0 and len(stages) > 1 and stages[0].writes[0] in stages[1].reads:
            panels, at = stages[0], 1
            c = _product(program, stages[1], target)
        if c is None:
            return []
        at += 1
        rows: list[Stage] = []
        while at < len(stages) and _product(program, stages[at], target) is None:
            rows.append(stages[at])
            at += 1
        epilogue = rows.pop(0) if rows and not rows[0].is_reduction else None
        if rows and not any(stage.is_reduction for stage in rows):
            return []
        c = is_tileable(program, c.stage, target, epilogue, packed=False)
        if c is None:
            # the stage after it, a copy in another order say, does not go along its vectors
            return []
        links.append(Link(program, c, panels, epilogue, tuple(rows)))
    return links


def _product(program: Program, stage: Stage, target: Target) -> Contraction | None:
    """The contraction of two operands that a stage is, with what follows it point by point."""
    readers = [reader for name in stage.writes for reader in program.consumers(name)]
    after = readers[0] if len(readers) == 1 and not readers[0].is_reduction else None
    c = is_tileable(program, stage, target, after, packed=False)
    if c is None and after is not None:
        c = is_tileable(program, stage, target, packed=False)
    return c if c is not None and c.b is not None and c.axes("n", "window") else None


def _has_panels(link: Link, target: Target) -> bool:
    """Whether vectors run along blocks of channels, and the right operand lies so or can be made to."""
    c = link.c
    operands = [c.a.buffer, *([c.b.buffer] if c.b else []), *link.end.writes]
    if any(link.program.buffer(name).dtype != F32 for name in operands):
        # narrower values go through memory in the form that instructions for them take
        return False
    if c.run is None or c.vector not in c.axes("n", "batch") or c.group is not None:
        return False
    packed = panel_layout(link.program, c, target, ()) is not None
    return packed or is_tileable(link.program, link.stage, target, link.epilogue) is not None


def _traced(links: Sequence[Link], names: Sequence[frozenset[str]], axis: str) -> tuple[Link, ...] | None:
    """The links with the iterators along which tiles of the last one's ``axis`` cut them.

    ``None`` where a tile of a result does not come from a tile of the result before.
    """
    found = [replace(links[-1], axis=axis)]
    for link, made in zip(reversed(links[:-1]), reversed(names), strict=True):
        after = found[-1]
        reads = list(dict.fromkeys(ld for ld in stmt_loads(after.stage.body) if ld.buffer in made))
        if len(reads) != 1:
            return None
        dims = [d for d, i in enumerate(reads[0].indices) if after.axis in i.vars]
        if len(dims) != 1 or not _is_affine(reads[0].indices[dims[0]]):
            return None
        own = link.c.write.indices[dims[0]].as_var()
        if own is None or own not in link.c.axes("m", "batch"):
            return None
        found[-1] = replace(after, reads=reads[0])
        found.append(replace(link, axis=own))
    return tuple(reversed(found))


def _reads_whole(link: Link) -> bool:
    """Whether a link reads the one before up to its borders, in bands of rows.

    Of what nothing reads, nothing is computed; the last tile of what is read may reach into it, and read
    there what the link before that has not computed either.
    """
    assert link.reads is not None
    extents = {it.name: it.extent.as_int() for it in link.stage.iters}
    shape = link.program.buffer(link.reads.buffer).shape
    for i, size in zip(link.reads.indices, shape, strict=True):
        if link.axis in i.vars or not _is_affine(i):
            continue
        most = i.const + sum(i.coefficient(v) * (extents[v] - 1) for v in i.vars)
        if i.const > 0 or most < size.as_int() - 1:
            return False
    return True


def _is_affine(i: Index) -> bool:
    return all(isinstance(atom, Var) and factor > 0 for atom, factor in i.terms)


def _is_free(links: tuple[Link, ...]) -> bool:
    """Whether each link reads the one before at just its own index."""
    return all(link.reads is None or var(link.axis) in link.reads.indices for link in links)


def _keep_rows(links: tuple[Link, ...]) -> bool:
    """Whether rows go through the links whole, and each comes from the same row of what is before it."""
    first, last = links
    load, c = last.reads, last.c
    assert load is not None
    dim = next((d for d, i in enumerate(load.indices) if i.as_var() == last.axis), None)
    if dim is None:
        return False
    *outer, along = load.indices
    shape = last.program.buffer(load.buffer).shape
    sums = c.axes("k")
    names = [i.as_var() for i, size in zip(outer, shape, strict=False) if size != Index(1)]
    wanted = {a for a in (*c.axes("batch"), last.axis) if c.extent(a) > 1}
    if len(sums) != 1 or along.as_var() not in sums or set(names) != wanted:
        return False
    made = {name for stage in first.stages for name in stage.writes}
    return Index(c.extent(sums[0])) == shape[-1] and all(
        _keeps_rows(stage, dim, made) for stage in first.stages[1:]
    )


def _keeps_rows(stage: Stage, dim: int, made: set[str]) -> bool:
    """Whether a stage computes a row, dimension ``dim``, from the same row of what it reads in ``made``."""
    body = stage.body
    if not isinstance(body, Store) or len(body.writes) != 1 or len(body.writes[0].indices) <= dim:
        return False
    row = body.writes[0].indices[dim].as_var()
    read = [ld for ld in stmt_loads(body) if ld.buffer in made]
    return row is not None and all(len(ld.indices) > dim and ld.indices[dim] == var(row) for ld in read)


@dataclass(frozen=True, slots=True)
class Window:
    """Rows ``first`` up to ``first + n`` of a link come from ``step * n + overlap`` rows of the one before.

    The first of those is row ``step * first + start``; there may be fewer.
    """

    step: int
    overlap: int
    start: int


def window(link: Link) -> Window:
    """What a link, not the first one, reads of the link before."""
    assert link.reads is not None
    i = next(i for i in link.reads.indices if link.axis in i.vars)
    step = i.coefficient(link.axis)
    taps = sum(i.coefficient(v) * (link.c.extent(v) - 1) for v in i.vars - {link.axis})
    return Window(step, taps + 1 - step, i.const)


def treats_channels_apart(link: Link) -> bool:
    """Whether a block of a link's vectors reads only the same block of the link before."""
    return (
        link.reads is not None
        and link.c.vector in link.c.axes("batch")
        and var(link.c.vector) in link.reads.indices
    )
