"""Propagation: from layouts of complex operators' results to those of all values (ALT, Secs. 4.2 and 6).

A layout goes from a value to a neighbour where the kernel between reads one to make the other element by
element, of one shape, and where the neighbour is no result of another complex operator (convolution or
product): each of those has a layout of its own. Layouts that store elements several times are none of values
(they stay inside of kernels), so what goes on is always a map. A kernel that reads a value in a layout other
than its results' converts on the way; constants are packed when compiling.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from tilewright.analysis import find_operator, reads_in_place
from tilewright.ir import Index, Program, stmt_loads
from tilewright.plan.graph.layouts import Flow, Layouts
from tilewright.schedule import index_map, index_texts

Texts: TypeAlias = tuple[str, ...]
"""Where elements lie: an index a physical dimension, as ``set_layout`` takes it; none for row by row."""

#: What becomes of a complex operator's layout: ``full`` propagates it, ``none`` keeps it to its result.
Variant = Literal["full", "none"]
VARIANTS: Final[tuple[Variant, ...]] = ("full", "none")


def value_layouts(shape: Sequence[int], lanes: int) -> list[Texts]:
    """The layouts that a value may have: row by row, in blocks of one and two vectors, channels last.

    Channels are dimension 1 of images, and the last one of others.

    >>> value_layouts((1, 64, 7, 7), 16)[1:]
    [('d0', 'd1//16', 'd2', 'd3', 'd1%16'), ('d0', 'd1//32', 'd2', 'd3', 'd1%32'), ('d0', 'd2', 'd3', 'd1')]
    """
    rank = len(shape)
    found: list[Texts] = [()]
    if rank < 2:
        return found
    channel = 1 if rank > 3 else rank - 1
    if rank == 3 and shape[1] % lanes == 0 and shape[2] % lanes:
        channel = 1
    sizes = tuple(map(Index, shape))
    for size in (lanes, 2 * lanes):
        if shape[channel] % size == 0 and shape[channel] > size:
            inner = channel + 1
            order = (*(n for n in range(rank + 1) if n != inner), inner)
            blocks = (("split", channel, (-1, size)), ("reorder", order))
            found.append(index_texts(index_map(sizes, blocks)))
    if channel < rank - 1:
        order = (*(n for n in range(rank) if n != channel), channel)
        found.append(index_texts(index_map(sizes, (("reorder", order),))))
    return found


def neighbours(program: Program) -> tuple[tuple[str, str], ...]:
    """Pairs of arguments of a program of which the second is made of the first element by element.

    In the order in which operands are read; of one shape, through any number of stages without reductions.
    """
    shapes = {b.name: b.shape for b in program.buffers}
    arguments = {b.name for b in (*program.inputs, *program.outputs)}
    reach: dict[str, dict[str, None]] = {}
    for stage in program.stages:
        for made in stage.writes:
            found = reach.setdefault(made, {})
            if stage.is_reduction or any(it.kind != "par" for it in stage.iters):
                continue
            for read in dict.fromkeys(ld.buffer for ld in stmt_loads(stage.body)):
                if shapes[read] == shapes[made] and reads_in_place(stage, read):
                    found.update({read: None} if read in arguments else {})
                    found.update(reach.get(read, {}))
    pairs = [(a, b.name) for b in program.outputs for a in reach.get(b.name, {}) if a != b.name]
    return tuple(dict.fromkeys(pairs))


def owned_values(flows: Sequence[Flow]) -> tuple[str, ...]:
    """The values that complex operators make, in the order in which they run."""
    return tuple(
        value for flow in flows if find_operator(flow.program) is not None for value in flow.outputs.values()
    )


def tied_values(flows: Sequence[Flow], fixed: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """Groups of values that are best of one layout: neighbours of each other, owned or not.

    Values in ``fixed`` stay plain, and so do those tied to one of them through no operator's result.
    """
    root: dict[str, str] = {}

    def find(value: str) -> str:
        root.setdefault(value, value)
        while root[value] != value:
            value = root[value]
        return value

    for flow in flows:
        for value in (*flow.inputs.values(), *flow.outputs.values()):
            find(value)
        for a, b in neighbours(flow.program):
            x, y = flow.inputs.get(a), flow.outputs.get(b)
            if x is not None and y is not None and not {x, y} & set(fixed):
                root[find(y)] = find(x)
    groups: dict[str, list[str]] = {}
    for value in root:
        if value not in fixed:
            groups.setdefault(find(value), []).append(value)
    return tuple(tuple(group) for group in groups.values())


def propagated(
    flows: Sequence[Flow],
    fixed: Collection[str],
    chosen: Mapping[str, Texts],
    variant: Variant = "full",
    copied: Mapping[str, Texts] | None = None,
) -> Layouts:
    """The layouts of all values, where complex operators' results have those ``chosen``.

    Downstream in the order in which kernels run, to all readers; where several operands have layouts, the
    first one's is taken (the rule of X0). Then upstream to operands of what was laid out with nothing complex
    before it. Values in ``fixed`` stay plain. ``copied`` is handed on.
    """
    owned = set(owned_values(flows))
    layouts = {value: texts for value, texts in chosen.items() if value not in fixed}
    if variant == "full":
        for flow in flows:
            for a, b in neighbours(flow.program):
                source, made = flow.inputs.get(a), flow.outputs.get(b)
                if source in layouts and made is not None and made not in {*fixed, *owned, *layouts}:
                    layouts[made] = layouts[source]
        for flow in reversed(flows):
            for a, b in neighbours(flow.program):
                source, made = flow.inputs.get(a), flow.outputs.get(b)
                if made in layouts and source is not None and source not in {*fixed, *owned, *layouts}:
                    layouts[source] = layouts[made]
    kept = {value: texts for value, texts in layouts.items() if texts}
    return Layouts(kept, dict(copied or {}))
