"""Programs of the language, and their schedules, compiled to the same objects as models."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from tilewright.build import Array, UnitKernel, describe, flops, read_sizes
from tilewright.cost import Machine
from tilewright.driver.assemble import Assembled, Steps, assemble, make_steps
from tilewright.driver.choices import physical_memory
from tilewright.driver.explained import Text, kernel_texts
from tilewright.driver.kernels import KernelOptions, build_kernels, planner_of, scheduled_kernel
from tilewright.driver.model import CompiledModel
from tilewright.driver.open_assembly import assemble_open
from tilewright.driver.profile import Profile
from tilewright.driver.progress import Progress
from tilewright.driver.save import Described, Library, Weights, range_manifest, save_model
from tilewright.driver.size_program import SizeNumbers
from tilewright.driver.units import Unit
from tilewright.graph import Graph, Node, TensorType
from tilewright.ir import (
    CONST,
    Buffer,
    Index,
    Param,
    Program,
    as_size,
    buffer_at,
    program_at,
    strides_of,
)
from tilewright.plan import plan_open
from tilewright.runtime import (
    AffineDim,
    BoundModel,
    HoldsCode,
    OpenManifest,
    OpenTensor,
    SizeRange,
    StagedPlan,
    ThreadPool,
    one_plan,
)
from tilewright.schedule import Schedule
from tilewright.support import InputError, Settings, known_names, quoted
from tilewright.target import CpuTarget

SIZES_KEPT: Final = 8
"""Of a program with symbolic sizes, the plans of so many combinations of sizes are kept: the last used."""


OpenManifestParts: TypeAlias = tuple[OpenManifest, Library, Weights]
"""What a file says of a program, its kernel and its constants."""


@dataclass(frozen=True, slots=True, eq=False)
class _Compiled:
    """A program with its kernel, at whatever sizes."""

    unit: Unit
    kernel: UnitKernel
    constants: Mapping[str, Array]
    pool: ThreadPool
    seconds: Mapping[str, float]

    def steps(self, sizes: Mapping[str, int] | None) -> Steps:
        """The one step of a run at given sizes, or at all."""
        unit, kernel, program = self.unit, self.kernel, self.unit.program
        if sizes:
            program = program_at(program, sizes)
            unit = replace(unit, program=program)
            kernel = replace(
                kernel,
                program=program,
                buffers=tuple(buffer_at(b, sizes) for b in kernel.buffers),
                sizes=tuple(sizes[p.name] for p in self.unit.program.params),
                flops=flops(program),
            )
        arguments = (*program.inputs, *program.outputs)
        graph = Graph(
            inputs=tuple(b.name for b in program.inputs if b.name not in self.constants),
            outputs=tuple(b.name for b in program.outputs),
            nodes=unit.nodes,
            constants=self.constants,
            types={b.name: TensorType(b.dtype.name, _extents(b)) for b in arguments},
            name=program.name,
        )
        steps = make_steps(graph, [unit], [kernel], {}, kernel.threads)
        return replace(steps, graph=replace(graph, constants={}))

    def assembled(self, steps: Steps, wanted: Sequence[str]) -> Assembled:
        """The plan of a run that makes these values."""
        return assemble(steps, self.pool, physical_memory(), wanted)

    def at(self, sizes: Mapping[str, int]) -> CompiledModel:
        """The program at given sizes, ready to run."""
        steps = self.steps(sizes)
        (unit,) = steps.units
        return CompiledModel(
            steps,
            self.assembled(steps, steps.graph.outputs),
            target=self.kernel.target,
            threads=self.kernel.threads,
            assemble=self.assembled,
            compile_seconds=self.seconds,
            strides={b.name: lies for b in unit.program.inputs if (lies := strides_of(b)) is not None},
        )

    def at_all_sizes(self) -> OpenManifestParts:
        """What a file says of the program at all of its sizes, with its kernel and constants.

        Raises InputError where an input's dimension is not affine in the sizes.
        """
        program = self.unit.program
        sizes = {p.name: SizeRange(p.lo, p.hi, p.multiple_of) for p in program.params}
        inputs, outputs = (
            tuple(
                OpenTensor(b.name, b.dtype.numpy, tuple(map(_open_dim, b.physical_shape))) for b in arguments
            )
            for arguments in (program.inputs, program.outputs)
        )
        inputs = tuple(each for each in inputs if each.name not in self.constants)
        for tensor in inputs:
            if strange := [dim for dim in tensor.shape if isinstance(dim, str) and dim not in sizes]:
                raise InputError(
                    f"the input {quoted(tensor.name)} has a dimension of {strange[0]} elements: a file says "
                    "sums of sizes",
                    hint="at(…).save(path) saves the program at fixed sizes",
                )
        numbers = SizeNumbers({p.name: 1 for p in program.params})
        steps = self.steps(None)
        whole = assemble_open(steps, self.pool, numbers, (), checks=True)
        plan = StagedPlan(one_plan(len(sizes), [tensor.name for tensor in whole.outputs]), [whole])
        said = Described(program.name, self.kernel.target, (), (), {})
        library, weights = Library(), Weights()
        ranges = tuple((known.least, known.largest) for known in sizes.values())
        made_of = [(steps.graph, steps.kernels)]
        manifest = range_manifest(ranges, plan, made_of, said, library, weights)
        return OpenManifest(sizes, inputs, outputs, (manifest,)), library, weights


class CompiledProgram(HoldsCode):
    """A program with symbolic sizes, compiled once for all of them; made by ``tilewright.compile``.

    Calls take the sizes from the shapes of their arrays. :meth:`at` gives the program at fixed sizes, which
    is the same object as a compiled model. Any number of Python threads may use one at once.
    """

    def __init__(self, compiled: _Compiled) -> None:
        self._compiled = compiled
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[int, ...], CompiledModel] = OrderedDict()
        self.name = compiled.unit.program.name
        """The program's name."""
        self.target = compiled.kernel.target
        """The machine that the program was compiled for."""
        self.threads = compiled.kernel.threads
        """Threads that a run uses."""
        self.compile_seconds = dict(compiled.seconds)
        """Seconds of each phase of the compilation, and of all (``total``)."""
        self.inputs = tuple(b.name for b in self._buffers())
        """The names of the inputs, in order."""
        self.sizes = tuple(p.name for p in compiled.unit.program.params)
        """The names of the symbolic sizes."""

    def at(self, **sizes: int) -> CompiledModel:
        """The program at given sizes; nothing is compiled again.

        Raises InputError for a size that is missing, strange or out of its range.
        """
        for name in sizes:
            if name not in self.sizes:
                hint = known_names(name, self.sizes, "its sizes")
                raise InputError(f"the program {quoted(self.name)} has no size {quoted(name)}", hint=hint)
        return self._at(read_sizes(self._compiled.unit.program, {}, sizes))

    def __call__(self, *arrays: Array, out: Sequence[Array] | None = None) -> list[Array]:
        """Run on one array an input, in order; returns all outputs in order. Raises what :meth:`run` does."""
        if len(arrays) != len(self.inputs):
            raise InputError(
                f"the program takes {len(self.inputs)} inputs, got {len(arrays)}",
                hint=", ".join(self.inputs),
            )
        return self.run(None, dict(zip(self.inputs, arrays, strict=True)), out=out)

    def run(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Array],
        *,
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """As :meth:`CompiledModel.run`, at the sizes that the arrays' shapes show.

        Raises InputError also for a size that no shape shows, or that is out of its range.
        """
        return self._for(feeds).run(output_names, feeds, out=out)

    def bind(self, feeds: Mapping[str, Array]) -> BoundModel:
        """As :meth:`CompiledModel.bind`, at the sizes that the arrays' shapes show."""
        return self._for(feeds).bind(feeds)

    def profile(self, feeds: Mapping[str, Array], repeats: int = 20) -> Profile:
        """As :meth:`CompiledModel.profile`, at the sizes that the arrays' shapes show."""
        return self._for(feeds).profile(feeds, repeats)

    def explain(self) -> list[dict[str, Any]]:
        """What was compiled, as plain data: as that of a model, without what depends on the sizes."""
        kernel = self._compiled.kernel
        return [
            {
                "kernel": kernel.name,
                "inputs": list(self.inputs),
                "outputs": [b.name for b in kernel.program.outputs],
                **describe(kernel.schedule, self.threads).as_data(),
                "schedule": kernel.schedule.trace.to_python(),
            }
        ]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program as one file that ``tilewright.load`` runs without the compiler, at all sizes.

        Raises InputError for a program that no file can hold at all sizes (``at(…).save`` then saves it at
        some), ArtefactError where the file cannot be written, InstallationError off x86-64 where there is no
        C compiler to link with.
        """
        save_model(*self._compiled.at_all_sizes(), path)

    def emit(self, form: Text = "c") -> str:
        """The code in a form, for all sizes: see :meth:`CompiledModel.emit`."""
        return kernel_texts([self._compiled.kernel], form)

    def __repr__(self) -> str:
        return f"<CompiledProgram {self.name!r}: {', '.join(self.inputs)}; sizes {', '.join(self.sizes)}>"

    def _buffers(self) -> list[Buffer]:
        compiled = self._compiled
        return [b for b in compiled.unit.program.inputs if b.name not in compiled.constants]

    def _for(self, feeds: Mapping[str, Array]) -> CompiledModel:
        if not isinstance(feeds, Mapping):
            raise InputError(f"inputs must be a mapping from names to arrays, got {type(feeds).__name__}")
        shapes = {name: np.shape(array) for name, array in feeds.items()}
        shapes |= {name: array.shape for name, array in self._compiled.constants.items()}
        return self._at(read_sizes(self._compiled.unit.program, shapes))

    def _at(self, sizes: Mapping[str, int]) -> CompiledModel:
        key = tuple(sizes[name] for name in self.sizes)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        made = self._compiled.at(sizes)
        with self._lock:
            self._known[key] = made
            while len(self._known) > SIZES_KEPT:
                self._known.popitem(last=False)
        return made


def compile_program(
    source: Program | Schedule,
    target: CpuTarget,
    options: KernelOptions,
    pool: ThreadPool,
    constants: Mapping[str, Array],
    shapes: Mapping[str, Any],
    settings: Settings,
    progress: Progress,
) -> CompiledModel | CompiledProgram:
    """Compile a program by a strategy or a plan, or a schedule as it stands.

    Raises InputError for a schedule of a loop function, and for constants and sizes that do not fit.
    """
    start = time.perf_counter()
    program = source if isinstance(source, Program) else source.source
    if not isinstance(program, Program):
        raise InputError(
            "a schedule that is compiled must be one of a program, this is one of a loop function",
            hint="tilewright.build.build takes loop functions",
        )
    if strange := next((name for name in shapes if name not in {p.name for p in program.params}), None):
        hint = known_names(strange, [p.name for p in program.params], "its sizes")
        raise InputError(f"the program {quoted(program.name)} has no size {quoted(strange)}", hint=hint)
    if shapes:
        if not isinstance(source, Program):
            raise InputError(
                "shapes= is for programs: this schedule is made for all sizes",
                hint="compile(schedule).at(…) gives it at fixed sizes",
            )
        program = program_at(program, read_sizes(program, {}, shapes))
    known = _known(program, constants)
    unit = _unit(program, source if isinstance(source, Schedule) else None, known)
    if isinstance(source, Schedule):
        schedule: Schedule | None = source
    elif program.params:
        if options.plan is not None:
            raise InputError(
                "a plan needs a program of fixed sizes",
                hint=f"shapes= settles them: {', '.join(p.name for p in program.params)}",
            )
        machine = Machine(target, options.threads)
        schedule = plan_open(program, machine, planner_of(options.strategy)).schedule
    else:
        schedule = None
    if schedule is not None:
        kernel = scheduled_kernel(unit, schedule, target, options.threads, settings)
        buffers = tuple(b if b.name in known else _as_it_lies(b) for b in kernel.buffers)
        kernel = replace(kernel, buffers=buffers)
    else:
        _, (kernel,) = build_kernels([unit], target, options, known.get, settings, progress)
    seconds = time.perf_counter() - start
    compiled = _Compiled(unit, kernel, known, pool, {"kernels": seconds, "total": seconds})
    return CompiledProgram(compiled) if program.params else compiled.at({})


def _unit(program: Program, schedule: Schedule | None, constants: Mapping[str, Array]) -> Unit:
    """The one step of a program: its arguments are values of the same names.

    Those whose layout a schedule changes are taken as they lie; constants are packed.
    """
    made = {} if schedule is None else {b.name: _as_it_lies(b) for b in schedule.func.buffers}
    inputs = tuple(
        b.with_(scope=CONST) if b.name in constants else made.get(b.name, b) for b in program.inputs
    )
    outputs = tuple(made.get(b.name, b) for b in program.outputs)
    names = {b.name: b.name for b in (*inputs, *outputs)}
    node = Node("Program", tuple(b.name for b in inputs), tuple(b.name for b in outputs), name=program.name)
    return Unit(
        (node,),
        replace(program, inputs=inputs, outputs=outputs),
        {b.name: names[b.name] for b in inputs},
        {b.name: names[b.name] for b in outputs},
        {},
    )


def _as_it_lies(b: Buffer) -> Buffer:
    return b.with_(shape=tuple(b.physical_shape), layout=None)


def _known(program: Program, constants: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays of inputs that are constants. Raises InputError for one that does not fit."""
    inputs = {b.name: b for b in program.inputs}
    known: dict[str, Array] = {}
    for name, array in constants.items():
        if name not in inputs:
            hint = known_names(name, list(inputs), "its inputs")
            raise InputError(f"the program {quoted(program.name)} has no input {quoted(name)}", hint=hint)
        b = inputs[name]
        if program.params:
            raise InputError(
                f"the constant {quoted(name)} needs a program without symbolic sizes",
                hint="shapes= settles them",
            )
        if array.dtype != b.dtype.numpy or array.shape != _extents(b):
            raise InputError(
                f"the constant {quoted(name)} must be {b.dtype} of shape {list(_extents(b))}, got "
                f"{array.dtype} of shape {list(array.shape)}"
            )
        known[name] = array
    return known


def _open_dim(extent: Index) -> int | str | AffineDim:
    """A dimension as a file says it: as a text where it is not affine in sizes."""
    if extent.is_const:
        return extent.const
    terms = tuple((atom.name, factor) for atom, factor in extent.terms if isinstance(atom, Param))
    if len(terms) < len(extent.terms):
        return str(extent)
    return (
        terms[0][0] if (terms, extent.const) == (((terms[0][0], 1),), 0) else AffineDim(terms, extent.const)
    )


def _extents(b: Buffer) -> tuple[int, ...]:
    return tuple(map(as_size, b.shape))
