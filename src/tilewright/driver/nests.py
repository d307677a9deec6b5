"""Nests as callables: compiled when first called, on numpy arrays in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright import poly
from tilewright.driver.kernel import Array, Kernel
from tilewright.frontend import nests
from tilewright.ir import Buffer, LoopFunction, evaluate_index
from tilewright.runtime import aligned_copy
from tilewright.support import InputError, known_names, quoted
from tilewright.target import Target, detect


class Nest:
    """A nest that runs on numpy arrays in place, as it is written.

    ``nest(A, x, alpha=1.5)``: arguments in the order of the loop function's buffers, or by name; scalars are
    numbers. Sizes are read off shapes; those that no shape shows are given by name. Arrays that are written
    must be arrays of the right type that may be written; those that are not row-major and aligned to 64 bytes
    are copied to and fro. Raises InputError for other arguments.
    """

    def __init__(self, func: LoopFunction, target: Target | None = None, threads: int | None = None) -> None:
        self.func = func
        self._target, self._threads = target, threads
        self._kernel: Kernel | None = None
        self._checked: set[tuple[tuple[str, int], ...]] = set()

    @property
    def kernel(self) -> Kernel:
        """The compiled function."""
        if self._kernel is None:
            self._kernel = Kernel(self.func, self._target or detect(), self._threads)
        return self._kernel

    def __call__(self, *arguments: object, **named: object) -> None:
        """Run once."""
        func = self.func
        names = [b.name for b in func.buffers]
        if len(arguments) > len(names):
            raise InputError(
                f"the nest {quoted(func.name)} takes {len(names)} arguments, got {len(arguments)}",
                hint=", ".join(names),
            )
        given = dict(zip(names, arguments, strict=False)) | named
        sizes = {p.name: given.pop(p.name) for p in func.params if p.name in given}
        for name, value in sizes.items():
            if not isinstance(value, int) or isinstance(value, bool):
                raise InputError(f"the size {name} must be an integer")
        if strange := next((name for name in given if name not in names), None):
            raise InputError(
                f"the nest {quoted(func.name)} has no argument {quoted(strange)}",
                hint=known_names(strange, names, "its arguments"),
            )
        arrays = [self._array(b, given) for b in func.buffers]
        table = [a if _fits(a) else aligned_copy(a) for a in arrays]
        shapes = dict(zip(names, table, strict=True))
        stated = {name: value for name, value in sizes.items() if isinstance(value, int)}
        values = self.kernel.sizes(shapes, stated)
        self._check(shapes, values)
        self.kernel.run(table, [values[p.name] for p in func.params])
        for b, mine, used in zip(func.buffers, arrays, table, strict=True):
            if used is not mine and b.name in func.outputs:
                mine[...] = used

    def _check(self, arrays: dict[str, Array], sizes: dict[str, int]) -> None:
        """Shapes against sizes, and for new sizes whether all accesses stay inside of the arrays."""
        for b in self.func.buffers:
            shape = tuple(evaluate_index(e, sizes) for e in b.physical_shape)
            if arrays[b.name].shape != shape:
                got = list(arrays[b.name].shape)
                raise InputError(f"{quoted(b.name)} must be {b.dtype} of shape {list(shape)}, got {got}")
        key = tuple(sorted(sizes.items()))
        if key not in self._checked:
            outside = poly.check_bounds(self.func, sizes)
            if outside:
                shown = ", ".join(f"{name} = {value}" for name, value in key)
                raise InputError(f"with {shown}, {outside[0].message}", hint="give sizes that fit the arrays")
            self._checked.add(key)

    def _array(self, b: Buffer, given: dict[str, object]) -> Array:
        if b.name not in given:
            raise InputError(f"the argument {quoted(b.name)} is missing")
        value = given[b.name]
        if b.name in self.func.outputs:
            if not isinstance(value, np.ndarray) or not value.flags.writeable:
                raise InputError(f"{quoted(b.name)} is written: it must be an array that may be written")
        elif not b.shape:
            return np.asarray(value, b.dtype.numpy)
        if not isinstance(value, np.ndarray) or value.dtype != b.dtype.numpy:
            raise InputError(f"the argument {quoted(b.name)} must be an array of {b.dtype}")
        return value


def _fits(a: Array) -> bool:
    """Whether kernels can use an array where it lies."""
    return bool(a.flags.c_contiguous and a.ctypes.data % 64 == 0)


def scop(function: Callable[..., Any]) -> Nest:
    """A Python function over numpy arrays as a compiled nest: see :mod:`tilewright.frontend.nests.python`.

    Raises ProgramError, with the line, for what is not affine or not supported.
    """
    return Nest(nests.scop(function).func)
