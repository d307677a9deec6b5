"""Nests as callables: scheduled and compiled for the sizes they are called at, on numpy arrays in place."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright import poly
from tilewright.build import Array, Kernel, build, read_sizes
from tilewright.codegen import emit_c, lower_for_c
from tilewright.cost import Machine
from tilewright.driver.choices import chosen_threads
from tilewright.frontend import nests
from tilewright.ir import Buffer, LoopFunction, evaluate_index, function_at
from tilewright.runtime import aligned_copy
from tilewright.strategies import (
    ScheduledNest,
    neighbours_in_registers,
    schedule_nest,
    streams_asked_ahead,
)
from tilewright.support import InputError, known_names, quoted, read_settings, whole_number
from tilewright.target import Target, detect
from tilewright.tune import records_at

AS_WRITTEN: Final = "as-written"
"""The name of the strategy that leaves nests in their order, on one thread."""
NEST_STRATEGIES: Final = ("polyhedral", AS_WRITTEN)
KERNELS_KEPT: Final = 8
"""Of a nest, the kernels for so many combinations of sizes are kept: the last used."""
MAX_BYTES: Final = 1 << 40
"""Largest array that a nest of fixed sizes may have."""


class Nest:
    """A nest that runs on numpy arrays in place, in an order that a strategy finds for the sizes of a call.

    ``nest(A, x, alpha=1.5)``: arguments in the order of the loop function's buffers, or by name; scalars are
    numbers. Sizes are read off shapes; those that no shape shows are given by name. Arrays that are written
    must be arrays of the right type that may be written; those that are not row-major and aligned to 64 bytes
    are copied to and fro. Raises InputError for other arguments.

    ``records`` is the database that sizes of tiles are taken from, as in :func:`tilewright.compile`.
    """

    def __init__(
        self,
        func: LoopFunction,
        target: Target | None = None,
        threads: int | None = None,
        strategy: str = NEST_STRATEGIES[0],
        records: Path | str | None = None,
    ) -> None:
        if strategy not in NEST_STRATEGIES:
            hint = known_names(strategy, NEST_STRATEGIES, "strategies of nests")
            raise InputError(f"there is no strategy {strategy!r} of nests", hint=hint)
        self.func = func
        self.strategy = strategy
        self._target, self._threads = target, threads
        self._records = records_at(records, read_settings())
        self._kernels: OrderedDict[tuple[int, ...], Kernel] = OrderedDict()
        self._checked: set[tuple[tuple[str, int], ...]] = set()

    @property
    def target(self) -> Target:
        """The machine that the nest is compiled for."""
        return self._target or detect()

    @property
    def threads(self) -> int:
        """Threads that a run uses."""
        return chosen_threads(self._threads, read_settings())

    def at(self, sizes: Mapping[str, int]) -> LoopFunction:
        """The nest at given sizes, as it is written.

        Raises InputError for sizes that are missing, strange, out of range or make arrays too large.
        """
        if strange := next((n for n in sizes if n not in {p.name for p in self.func.params}), None):
            names = [p.name for p in self.func.params]
            hint = known_names(strange, names, "its sizes")
            raise InputError(f"the nest {quoted(self.func.name)} has no size {quoted(strange)}", hint=hint)
        values = read_sizes(self.func, {}, sizes)
        func = function_at(self.func, values)
        for b in func.buffers:
            nbytes = b.dtype.bytes
            for extent in b.physical_shape:
                nbytes *= evaluate_index(extent, {})
            if not 0 <= nbytes <= MAX_BYTES:
                raise InputError(
                    f"the array {quoted(b.name)} would have {nbytes} bytes", hint="give other sizes"
                )
        return func

    def scheduled(self, sizes: Mapping[str, int]) -> ScheduledNest:
        """The nest at given sizes, in the order that its strategy finds, or that records have.

        Raises InputError as :meth:`at` does.
        """
        func = self.at(sizes)
        if self.strategy == AS_WRITTEN:
            return ScheduledNest(func, ("as it is written",))
        machine = Machine(self.target, self.threads)
        plan = None if self._records is None else self._records.nest(func, machine)
        return schedule_nest(func, machine, plan)

    def c_source(self, sizes: Mapping[str, int]) -> str:
        """The nest at given sizes as C99 with pragmas of OpenMP: one function, on arrays in place.

        Raises InputError as :meth:`scheduled` does.
        """
        func = self.scheduled(sizes).func
        return emit_c(replace(lower_for_c(func), name=self.func.name)).text

    def kernel(self, sizes: Mapping[str, int]) -> Kernel:
        """The compiled function for given sizes; raises InputError as :meth:`scheduled` does."""
        key = tuple(sizes[p.name] for p in self.func.params)
        if key not in self._kernels:
            made = neighbours_in_registers(self.scheduled(sizes).func, self.target)
            made = streams_asked_ahead(made, self.target)
            self._kernels[key] = build(made, target=self.target, threads=self.threads)
            while len(self._kernels) > KERNELS_KEPT:
                self._kernels.popitem(last=False)
        self._kernels.move_to_end(key)
        return self._kernels[key]

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
        stated: dict[str, int] = {}
        for name in (p.name for p in func.params if p.name in given):
            value = whole_number(given.pop(name))
            if value is None:
                raise InputError(f"the size {name} must be an integer")
            stated[name] = value
        if strange := next((name for name in given if name not in names), None):
            raise InputError(
                f"the nest {quoted(func.name)} has no argument {quoted(strange)}",
                hint=known_names(strange, names, "its arguments"),
            )
        arrays = [self._array(b, given) for b in func.buffers]
        table = [a if _fits(a) else aligned_copy(a) for a in arrays]
        shapes = dict(zip(names, table, strict=True))
        values = read_sizes(func, {n: a.shape for n, a in shapes.items()}, stated)
        self._check(shapes, values)
        self._apart(dict(zip(names, arrays, strict=True)))
        self.kernel(values).run(table)
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

    def _apart(self, arrays: Mapping[str, Array]) -> None:
        """Arrays that are written share no element with others."""
        for (one, a), (two, b) in combinations(arrays.items(), 2):
            if not {one, two} & set(self.func.outputs):
                continue
            try:
                shared = np.shares_memory(a, b, max_work=1000)  # type: ignore[arg-type]  # any number is allowed
            except np.exceptions.TooHardError:
                shared = True
            if shared:
                raise InputError(
                    f"{quoted(one)} and {quoted(two)} share memory: a nest takes arrays that are apart",
                    hint=f"give a copy of {quoted(two if one in self.func.outputs else one)}",
                )

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
