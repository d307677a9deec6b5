"""Nests as callables: scheduled and compiled for the sizes they are called at, on numpy arrays in place."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, overload

import numpy as np

from tilewright import poly
from tilewright.build import Array, Kernel, build, read_sizes
from tilewright.codegen import emit_c, lower_for_c
from tilewright.cost import Machine
from tilewright.driver.choices import chosen_target, chosen_threads
from tilewright.driver.nest_source import drop_in, prototype
from tilewright.driver.nest_times import REPEATS, nest_times
from tilewright.driver.plans import ModelPlan, given_plan, plan_of_kernels
from tilewright.driver.save_nest import save_nest
from tilewright.frontend import c, nests
from tilewright.ir import Buffer, LoopFunction, evaluate_index, function_at, print_function
from tilewright.plan import Reasons
from tilewright.runtime import named_arguments, pointed_at, run_in_place
from tilewright.strategies import (
    DEFAULT,
    NestTask,
    ScheduledNest,
    Strategy,
    best_by_model,
    find_strategy,
    for_code_generation,
    schedule_nest,
)
from tilewright.support import (
    InputError,
    Location,
    Settings,
    known_names,
    quoted,
    read_settings,
    whole_number,
)
from tilewright.target import CpuTarget, Target, TargetBase, detect
from tilewright.tune import OFF, TaskUse, records_at

AS_WRITTEN: Final = "as-written"
"""The name of the strategy that leaves nests in their order, on one thread."""
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

    ``strategy``, ``plan`` and ``records`` are as in :func:`tilewright.compile`: parts of nests that are
    programs are planned as those are; with the strategy ``as-written`` nothing is changed.
    """

    def __init__(
        self,
        source: LoopFunction | c.CNest,
        target: Target | None = None,
        threads: int | None = None,
        strategy: str | Strategy = DEFAULT,
        records: Path | str | None = None,
        sizes: Mapping[str, int] | None = None,
        plan: ModelPlan | str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.source = source
        self._settings = settings
        self.strategy = strategy if isinstance(strategy, str) else strategy.name
        """The name of the strategy that decides where nothing else does."""
        self._strategy = None if strategy == AS_WRITTEN else find_strategy(strategy)
        self._plan = given_plan(plan)
        self._target, self._threads = target, threads
        self._records = records_at(records, settings or read_settings())
        self._reached = lru_cache(KERNELS_KEPT)(self._extents)
        self._at = lru_cache(KERNELS_KEPT)(self._read)
        self._scheduled = lru_cache(KERNELS_KEPT)(self._made)
        self._kernel = lru_cache(KERNELS_KEPT)(self._built)
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
        return chosen_threads(self._threads, self._settings or read_settings())

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
        if not self._implied:
            return {}
        return self._reached(tuple(sorted(each for each in sizes.items() if each[0] not in self._implied)))

    def _extents(self, known: tuple[tuple[str, int], ...]) -> dict[str, int | None]:
        assert isinstance(self.source, c.CNest)
        wide = read_sizes(self.arguments, {}, {**dict(known), **dict.fromkeys(self._implied, MAX_EXTENT)})
        func = self.source.at(wide)
        extents: dict[str, int | None] = {
            name: evaluate_index(func.buffer(array).shape[dim], {})
            for name, (array, dim) in self._implied.items()
        }
        pointers = {name: self._implied[name][0] for name, n in extents.items() if n == MAX_EXTENT}
        found = poly.outermost_extents(func, list(pointers.values()))
        return extents | {name: found[pointer] for name, pointer in pointers.items()}

    def at(self, sizes: Mapping[str, int]) -> LoopFunction:
        """The nest at given sizes, as it is written.

        Raises InputError for sizes that are missing, strange, out of range, make arrays too large, or with
        which an access leaves its array.
        """
        return self._at(self._key(sizes))

    def _key(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The values of all sizes, in their order."""
        values = self._complete(sizes)
        return tuple(values[p.name] for p in self.arguments.params)

    def _read(self, key: tuple[int, ...]) -> LoopFunction:
        values = {p.name: value for p, value in zip(self.arguments.params, key, strict=True)}
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
        return func

    def scheduled(self, sizes: Mapping[str, int]) -> ScheduledNest:
        """The nest at given sizes, each part by the plan that was given, by records, or by the strategy.

        Raises InputError as :meth:`at` does, also for the plan of another nest, ArtefactError for one that
        cannot be carried out.
        """
        return self._scheduled(self._key(sizes))

    def _made(self, key: tuple[int, ...]) -> ScheduledNest:
        func = self._at(key)
        if self.strategy == AS_WRITTEN:
            return ScheduledNest(func, ("as it is written",))
        made = schedule_nest(func, Machine(self.target, self.threads), self._chosen)
        if self._plan is not None:
            self._plan.require((task.program, self.threads) for task, _ in made.parts)
        return made

    def _chosen(self, task: NestTask) -> ScheduledNest:
        """A part by what was given, what was found by tuning, or what the strategy says."""
        known = None if self._plan is None else self._plan.find(task.program, self.threads)
        if known is not None:
            return task.carried_out(known)
        if self._strategy is None:
            found = () if self._records is None else self._records.plans(task)
            return next(iter(found), None) or task.default()
        program = task.as_program()
        if program is None:
            return task.default()
        return task.carried_out(best_by_model(self._strategy, program).plan)

    def plan(self, sizes: Mapping[str, int] | None = None) -> ModelPlan:
        """The plan of each part at given sizes, which ``plan=`` takes. Raises what :meth:`scheduled` does."""
        parts = self.scheduled(sizes or {}).parts
        made = [(task.program, self.threads, plan) for task, plan in parts]
        return plan_of_kernels(self.target, made, None)

    def tasks(self, sizes: Mapping[str, int] | None = None) -> tuple[TaskUse, ...]:
        """The parts that can be tuned at given sizes.

        Not those in which data decide about loops or indices: arrays are drawn for measuring. Raises what
        :meth:`scheduled` does.
        """
        parts = dict.fromkeys(task for task, _ in self.scheduled(sizes or {}).parts)
        found = [task for task in parts if not poly.data_decides(task.program)]
        return tuple(TaskUse(task, f"{self.name}, part {n}") for n, task in enumerate(found, 1))

    def profile(self, sizes: Mapping[str, int] | None = None, repeats: int = REPEATS) -> dict[str, float]:
        """Seconds of each outermost loop, by its last statement: the shortest of some runs alone, on ones.

        Raises what :meth:`scheduled` does, and InputError where data decide about loops or indices.
        """
        func = self.at(sizes or {})
        if poly.data_decides(func):
            raise InputError(
                f"data decide about loops or indices of the nest {quoted(self.name)}",
                hint="its loops are timed one by one, on ones",
            )
        made = for_code_generation(self.scheduled(sizes or {}).func, self.target)
        return nest_times(made, self.target, self.threads, repeats, apart=True)

    def why(self, name: str, sizes: Mapping[str, int] | None = None) -> list[tuple[Reasons, ...]]:
        """Why each part that writes an array (of the nest's own name: each part) is made as it is.

        Raises InputError where no part writes that.
        """
        parts = self.scheduled(sizes or {}).parts
        found = [(task, plan) for task, plan in parts if name in (self.name, *task.program.outputs)]
        if not found:
            known = dict.fromkeys((self.name, *(out for task, _ in parts for out in task.program.outputs)))
            hint = known_names(name, list(known), "what is written")
            raise InputError(f"no part of the nest {quoted(self.name)} writes {quoted(name)}", hint=hint)
        return [task.reasons(plan) for task, plan in found]

    def planned(self, plan: ModelPlan | None) -> Nest:
        """The same nest by another plan, or by none."""
        strategy = self._strategy or self.strategy
        return Nest(self.source, self._target, self._threads, strategy, OFF, self.sizes, plan, self._settings)

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
        return self._kernel(self._key(sizes))

    def _built(self, key: tuple[int, ...]) -> Kernel:
        made = for_code_generation(self._scheduled(key).func, self.target)
        return build(made, target=self.target, threads=self.threads, apart=True)

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
        key = tuple(values[p.name] for p in self.arguments.params)
        outputs = self._at(key).outputs

        def run(table: Mapping[str, Array]) -> None:
            kernel = self._kernel(key)
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
    plan: ModelPlan | str | None = None,
    settings: Settings | None = None,
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
    machine = chosen_target(target)
    if not isinstance(machine, CpuTarget):
        raise InputError(f"nests are compiled for CPUs, {machine.name} is none")
    read: LoopFunction | c.CNest
    if found is None:
        assert callable(source)
        read = nests.scop(source).func
    else:
        read = c.c_nest(found[0], found[1], defines, [Path(folder) for folder in headers])
    nest = Nest(read, machine, threads, strategy, records, sizes, plan, settings)
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
    strategy: str | Strategy = ...,
    records: Path | str | None = ...,
    plan: ModelPlan | str | None = ...,
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
