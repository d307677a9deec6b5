"""Symbolic sizes of a program, read off the shapes of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir import LoopFunction, Param, Program
from tilewright.support import InputError


def read_sizes(
    source: Program | LoopFunction,
    shapes: Mapping[str, Sequence[int]],
    stated: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """The values of the symbolic sizes: ``stated`` ones, others from the shapes of arguments by name.

    A size is read from dimensions such as ``H`` or ``2*H + 4``. Raises InputError for a size that no shape
    shows, or that is out of its range.
    """
    sizes: dict[str, int] = dict(stated or {})
    buffers = source.buffers if isinstance(source, LoopFunction) else (*source.inputs, *source.outputs)
    for b in buffers:
        for extent, n in zip(b.physical_shape, shapes.get(b.name, ()), strict=False):
            if len(extent.terms) != 1:
                continue
            ((atom, scale),) = extent.terms
            value, left = divmod(int(n) - extent.const, scale)
            if isinstance(atom, Param) and not left:
                sizes.setdefault(atom.name, value)
    for p in source.params:
        if p.name not in sizes:
            raise InputError(
                f"the size {p.name} cannot be read off any input's shape",
                hint="a dimension of some input must be that size, or a multiple of it plus a number",
            )
        value = sizes[p.name]
        if type(value) is not int:
            raise InputError(f"the size {p.name} must be an integer")
        if not (p.lo <= value <= p.hi) or value % p.multiple_of:
            raise InputError(
                f"the size {p.name} = {value} is not a multiple of {p.multiple_of} in [{p.lo}, {p.hi}]"
            )
    return sizes
