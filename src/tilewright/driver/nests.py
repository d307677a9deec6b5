"""Nests as callables: scheduled and compiled for the sizes they are called at, on numpy arrays in place."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, overload

import numpy as np

from tilewright import poly
from tilewright.build import Array, Kernel, build, read_sizes
from tilewright.codegen import emit_c, lower_for_c
from tilewright.cost import Machine
from tilewright.driver.choices import chosen_target, chosen_threads
from tilewright.driver.nest_source import drop_in, prototype
from tilewright.driver.save_nest import save_nest
from tilewright.frontend import c, nests
from tilewright.ir import Buffer, LoopFunction, evaluate_index, function_at, print_function
from tilewright.runtime import named_arguments, pointed_at, run_in_place
from tilewright.strategies import (
    DEFAULT,
    ScheduledNest,
    Strategy,
    neighbours_in_registers,
    schedule_nest,
    streams_asked_ahead,
)
from tilewright.support import InputError, Location, known_names, quoted, read_settings, whole_number
from tilewright.target import CpuTarget, Target, TargetBase, detect
from tilewright.tune import records_at

AS_WRITTEN: Final = "as-written"
"""The name of the strategy that leaves nests in their order, on one thread."""
NEST_STRATEGIES: Final = ("polyhedral", AS_WRITTEN)
KERNELS_KEPT: Final = 8
"""Of a nest, the kernels for so many combinations of sizes are kept: the last used."""
MAX_BYTES: Final = 1 << 40
"""Largest array that a nest of fixed sizes may have."""
MAX_EXTENT: Final = 1 << 31
"""Extent of what a pointer points at, while it is looked how much of it is needed."""


class Nest:
    """A nest that runs on numpy arrays in place, in an order that a strategy finds for the sizes of a call.

    ``nest(A, x, alpha=1.5)``: arguments in their order, or by name; scalars are numbers. The order is that of
    the parameters in C, of the loop function's buffers otherwise. Sizes are read off shapes; those that no
    shape shows are given by name (in C also in their places). What ``sizes`` settles need not be given again.
    Arrays that are written must be arrays of the right type that may be written; those that are not
    row-major, or whose elements are not aligned, are copied to and fro. Raises InputError for others.

    ``records`` is the database that sizes of tiles are taken from, as in :func:`tilewright.compile`.
    """

    def __init__(
        self,
        source: LoopFunction | c.CNest,
        target: Target | None = None,
        threads: int | None = None,
        strategy: str = NEST_STRATEGIES[0],
        records: Path | str | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        if strategy not in NEST_STRATEGIES:
            hint = known_names(strategy, NEST_STRATEGIES, "strategies of nests")
            raise InputError(f"there is no strategy {strategy!r} of nests", hint=hint)
        self.source = source
        self.strategy = strategy
        self._target, self._threads = target, threads
        self._records = records_at(records, read_settings())
        self._kernels: OrderedDict[tuple[int, ...], Kernel] = OrderedDict()
        self._reaches: dict[tuple[tuple[str, int], ...], dict[str, int | None]] = {}
        self._read: dict[tuple[int, ...], LoopFunction] = {}
        self.sizes = self._settled(sizes or {})
        """The sizes that are settled for all calls."""

    @cached_property
    def arguments(self) -> LoopFunction:
        """A function of the nest's sizes and arguments; of a nest in C without its statements."""
        return self.source.arguments if isinstance(self.source, c.CNest) else self.source

    @property
    def name(self) -> str:
        """The name of the function that the nest was."""
        return self.arguments.name

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The names of arguments in their places."""
        if isinstance(self.source, c.CNest):
            return self.source.order
        return tuple(b.name for b in self.source.buffers)

    @property
    def target(self) -> Target:
        """The machine that the nest is compiled for."""
        return self._target or detect()

    @property
    def threads(self) -> int:
        """Threads that a run uses."""
        return chosen_threads(self._threads, read_settings())

    @property
    def open_sizes(self) -> tuple[str, ...]:
        """The sizes that a call gives, or its arrays; not those that accesses through pointers imply."""
        return tuple(p.name for p in self.arguments.params if p.name not in {*self.sizes, *self._implied})

    @property
    def decided_by_data(self) -> bool:
        """Whether data decide how far pointers reach, so that sizes of their arrays are needed."""
        return None in self._reach(self.sizes).values()

    def _settled(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes that are given. Raises InputError for strange ones."""
        names = [p.name for p in self.arguments.params]
        for name, value in sizes.items():
            if name not in names:
                hint = known_names(name, names, "its sizes") if names else "all of its sizes are numbers"
                if any(b.name == name for b in self.arguments.buffers):
                    hint = f"{quoted(name)} is an argument; its sizes are {', '.join(names) or 'numbers'}"
                raise InputError(f"the nest {quoted(self.name)} has no size {quoted(name)}", hint=hint)
            if whole_number(value) is None:
                raise InputError(f"the size {name} must be an integer")
        return {name: int(value) for name, value in sizes.items()}

    def _complete(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """All sizes: those of what pointers point at as large as accesses need, where they are not given."""
        values = {**self.sizes, **self._settled(sizes)}
        for name, needed in self._reach(values).items():
            if name not in values and needed is None:
                pointer, _ = self._implied[name]
                raise InputError(
                    f"data decide how far {quoted(pointer)} is read or written",
                    hint=f"give its number of elements as the size {name}",
                )
            values.setdefault(name, needed or 0)
        return read_sizes(self.arguments, {}, values)

    @cached_property
    def _implied(self) -> Mapping[str, tuple[str, int]]:
        """The sizes that no parameter is, with their arrays and dimensions."""
        return self.source.implied if isinstance(self.source, c.CNest) else {}

    def _reach(self, sizes: Mapping[str, int]) -> dict[str, int | None]:
        """Extents that sizes imply, given the others: what formulas say, or how much pointers need.

        ``None`` where data decide.
        """
        if not self._implied or not isinstance(self.source, c.CNest):
            return {}
        known = {name: value for name, value in sizes.items() if name not in self._implied}
        key = tuple(sorted(known.items()))
        if key not in self._reaches:
            wide = read_sizes(self.arguments, {}, {**known, **dict.fromkeys(self._implied, MAX_EXTENT)})
            func = self.source.at(wide)
            extents: dict[str, int | None] = {
                name: evaluate_index(func.buffer(array).shape[dim], {})
                for name, (array, dim) in self._implied.items()
            }
            pointers = {name: self._implied[name][0] for name, n in extents.items() if n == MAX_EXTENT}
            found = poly.outermost_extents(func, list(pointers.values()))
            while len(self._reaches) >= KERNELS_KEPT:
                del self._reaches[next(iter(self._reaches))]
            self._reaches[key] = extents | {name: found[pointer] for name, pointer in pointers.items()}
        return self._reaches[key]

    def at(self, sizes: Mapping[str, int]) -> LoopFunction:
        """The nest at given sizes, as it is written.

        Raises InputError for sizes that are missing, strange, out of range, make arrays too large, or with
        which an access leaves its array.
        """
        return self._at(self._complete(sizes))

    def _at(self, values: Mapping[str, int]) -> LoopFunction:
        key = tuple(values[p.name] for p in self.arguments.params)
        if key in self._read:
            return self._read[key]
        places: Mapping[str, Location] = {}
        if isinstance(self.source, c.CNest):
            func, places = self.source.read(values)
        else:
            func = function_at(self.source, values)
        for b in func.buffers:
            nbytes = b.dtype.bytes
            for extent in b.physical_shape:
                nbytes *= evaluate_index(extent, {})
            if not 0 <= nbytes <= MAX_BYTES:
                raise InputError(
                    f"the array {quoted(b.name)} would have {nbytes} bytes", hint="give other sizes"
                )
        if outside := poly.check_bounds(func):
            shown = ", ".join(f"{name} = {value}" for name, value in sorted(values.items()))
            raise InputError(
                f"{f'with {shown}, ' if shown else ''}{outside[0].message}",
                where=places.get(outside[0].stage),
                hint="give sizes that fit the arrays",
            )
        while len(self._read) >= KERNELS_KEPT:
            del self._read[next(iter(self._read))]
        self._read[key] = func
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
        """The nest at given sizes as C99 with pragmas of OpenMP, on arrays in place.

        Of a nest in C that is its file with the function compiled (:mod:`tilewright.driver.nest_source`),
        of others one function. Raises InputError as :meth:`scheduled` does, ProgramError for a function of C
        that does more than its nest.
        """
        func = replace(self.scheduled(sizes).func, name=self.name)
        if isinstance(self.source, c.CNest):
            return drop_in(self.source, func, self._complete(sizes))
        return emit_c(lower_for_c(func)).text

    def c_header(self) -> str:
        """A header for what :meth:`c_source` is. Raises InputError for nests that are not in C."""
        if not isinstance(self.source, c.CNest):
            raise InputError(f"the nest {quoted(self.name)} is not in C", hint="headers are for C")
        return prototype(self.source)

    def kernel(self, sizes: Mapping[str, int]) -> Kernel:
        """The compiled function for given sizes; raises InputError as :meth:`scheduled` does."""
        values = self._complete(sizes)
        key = tuple(values[p.name] for p in self.arguments.params)
        if key not in self._kernels:
            made = neighbours_in_registers(self.scheduled(values).func, self.target)
            made = streams_asked_ahead(made, self.target)
            self._kernels[key] = build(made, target=self.target, threads=self.threads, apart=True)
            while len(self._kernels) > KERNELS_KEPT:
                self._kernels.popitem(last=False)
        self._kernels.move_to_end(key)
        return self._kernels[key]

    def save(self, path: str | os.PathLike[str], sizes: Mapping[str, int] | None = None) -> None:
        """Write the nest at given sizes as one file, which ``tilewright.load`` calls without the compiler.

        Raises InputError as :meth:`scheduled` does, and what saving a model raises.
        """
        contents: Mapping[str, Array] = self.source.contents if isinstance(self.source, c.CNest) else {}
        result = self.source.result if isinstance(self.source, c.CNest) else None
        pointers = [array for array, dim in self._implied.values() if dim == 0]
        save_nest(self.kernel(sizes or {}), path, self.order, pointers, contents, result)

    def explain(self, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
        """What is decided for given sizes, as plain data: arguments, how the order came about, and loops.

        ``schedule`` has the steps of parts that are lifted, as Python.
        """
        func, made = self.at(sizes or {}), self.scheduled(sizes or {})
        read = {b.name for b in func.inputs}
        return {
            "nest": self.name,
            "strategy": self.strategy,
            "threads": self.threads,
            "arguments": [
                {
                    "name": b.name,
                    "dtype": b.dtype.numpy.name,
                    "shape": [e.as_int() for e in b.shape],
                    "written": b.name in func.outputs,
                    "read": b.name in read,
                }
                for b in func.buffers
                if b.name in self.order
            ],
            "notes": list(made.notes),
            "schedule": "\n".join(each.trace.to_python() for each in made.schedules),
            "loops": print_function(made.func),
        }

    def __call__(self, *arguments: object, **named: object) -> object:
        """Run once; what a function of C returns, else ``None``."""
        given, stated = self._given(arguments, named)
        declared = self.arguments.buffers
        arrays = {b.name: self._array(b, given) for b in declared}
        values = read_sizes(self.arguments, {n: a.shape for n, a in arrays.items()}, stated)
        for name, needed in self._reach(values).items():
            # one kernel for all arrays that are long enough; others are refused below
            array, dim = self._implied[name]
            if needed is not None and dim == 0 and needed < values[name]:
                arrays[array] = arrays[array][:needed]
            values[name] = values[name] if needed is None else needed
        for b in declared:
            shape = tuple(evaluate_index(e, values) for e in b.physical_shape)
            if arrays[b.name].shape != shape:
                got = list(arrays[b.name].shape)
                raise InputError(f"{quoted(b.name)} must be {b.dtype} of shape {list(shape)}, got {got}")
        outputs = self._at(values).outputs

        def run(table: Mapping[str, Array]) -> None:
            kernel = self.kernel(values)
            kernel.run([table[b.name] for b in kernel.func.buffers])

        run_in_place(given, arrays, outputs, run)
        result = self.source.result if isinstance(self.source, c.CNest) else None
        return None if result is None else arrays[result].item()

    def _given(
        self, arguments: Sequence[object], named: Mapping[str, object]
    ) -> tuple[dict[str, object], dict[str, int]]:
        """The arguments of a call by their names, and its sizes."""
        sizes = {p.name for p in self.arguments.params}
        arrays = [b.name for b in self.arguments.buffers]
        names = [name for name in self.order if name not in self.sizes]
        if len(arguments) == len(self.order):
            names = list(self.order)
        given = named_arguments(self.name, names, arguments, named)
        if isinstance(self.source, c.CNest):
            if fixed := next((name for name in self.source.contents if name in given), None):
                raise InputError(f"{quoted(fixed)} is what the file says: it is no argument")
            given |= self.source.contents
            if self.source.result is not None:
                dtype = self.arguments.buffer(self.source.result).dtype
                given[self.source.result] = np.zeros((), dtype.numpy)
        stated = dict(self.sizes)
        for name in (name for name in sizes if name in given):
            value = whole_number(given.pop(name))
            if value is None:
                raise InputError(f"the size {name} must be an integer")
            if stated.setdefault(name, value) != value:
                raise InputError(f"the nest was compiled for {name} = {stated[name]}, got {value}")
        if strange := next((name for name in given if name not in arrays), None):
            raise InputError(
                f"the nest {quoted(self.name)} has no argument {quoted(strange)}",
                hint=known_names(strange, arrays, "its arguments"),
            )
        return given, stated

    def _array(self, b: Buffer, given: Mapping[str, object]) -> Array:
        if b.name not in given:
            raise InputError(f"the argument {quoted(b.name)} is missing")
        value = given[b.name]
        if not b.shape and not isinstance(value, np.ndarray):
            return np.asarray(value, b.dtype.numpy)
        if not isinstance(value, np.ndarray) or value.dtype != b.dtype.numpy:
            raise InputError(f"the argument {quoted(b.name)} must be an array of {b.dtype}")
        return pointed_at(b.name, value, len(b.shape)) if (b.name, 0) in self._implied.values() else value


def names_c(text: str | Path) -> tuple[str, str | None] | None:
    """The path that ``FILE.c`` or ``FILE.c:NAME`` names, and the function; ``None`` for other text."""
    found = re.fullmatch(r"(.+\.c)(?::([A-Za-z_]\w*))?", str(text), re.S)
    return None if found is None else (found.group(1), found.group(2))


def compile_nest(
    source: object,
    sizes: Mapping[str, int],
    target: str | TargetBase = "cpu",
    threads: int | None = None,
    strategy: str | Strategy = DEFAULT,
    records: Path | str | None = None,
    defines: Mapping[str, str] | None = None,
    headers: Sequence[Path | str] = (),
) -> Nest:
    """A function of a C file (``FILE.c`` or ``FILE.c:NAME``), or one of Python, called on numpy arrays.

    ``sizes`` settles integer parameters; those that it leaves open are given by calls, each of which compiles
    for new ones. ``defines`` are macros, ``headers`` folders of headers in angle brackets. Raises InputError
    for another source, and what :class:`Nest` and the readers of C and Python do.
    """
    found = names_c(source) if isinstance(source, str | Path) else None
    if found is None and (not callable(source) or isinstance(source, Nest)):
        raise InputError(
            "sizes= is for nests", hint="give a path, kernel.c or kernel.c:name, or a function of loops"
        )
    if found is None and (defines or headers):
        raise InputError("defines= and headers= are for nests in C")
    if not isinstance(strategy, str):
        raise InputError("strategies of nests are named", hint=", ".join(NEST_STRATEGIES))
    machine = chosen_target(target)
    if not isinstance(machine, CpuTarget):
        raise InputError(f"nests are compiled for CPUs, {machine.name} is none")
    read: LoopFunction | c.CNest
    if found is None:
        assert callable(source)
        read = nests.scop(source).func
    else:
        read = c.c_nest(found[0], found[1], defines, [Path(folder) for folder in headers])
    name = NEST_STRATEGIES[0] if strategy == DEFAULT else strategy
    nest = Nest(read, machine, threads, name, records, sizes)
    if not nest.open_sizes and not nest.decided_by_data:
        nest.kernel({})
    return nest


@overload
def scop(function: Callable[..., Any], /) -> Nest: ...


@overload
def scop(
    *,
    sizes: Mapping[str, int] = ...,
    target: str | TargetBase = ...,
    threads: int | None = ...,
    strategy: str = ...,
    records: Path | str | None = ...,
) -> Callable[[Callable[..., Any]], Nest]: ...


def scop(
    function: Callable[..., Any] | None = None, /, **options: Any
) -> Nest | Callable[[Callable[..., Any]], Nest]:
    """A Python function over numpy arrays as a nest: see :mod:`tilewright.frontend.nests.python`.

    ``@tilewright.scop`` compiles for the sizes of each call; ``@tilewright.scop(sizes={"n": 9}, threads=2)``
    has the options of :func:`compile_nest`, as ``tilewright.compile(function, sizes=…)`` has. Raises
    ProgramError, with the line, for what is not affine or not supported.
    """
    if function is not None:
        return Nest(nests.scop(function).func)
    sizes = options.pop("sizes", {})
    return lambda given: compile_nest(given, sizes, **options)
