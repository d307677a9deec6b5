"""Kernels: compiled functions, as steps of a model's run and called on arrays of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from tilewright.build.sizes import read_sizes
from tilewright.codegen import (
    CompilePool,
    KernelText,
    LoadedObject,
    Memory,
    assembly,
    compile_request,
    emit_c,
    emit_kernel,
    load_object,
    lower_for_c,
    optimised_ir,
)
from tilewright.ir import Buffer, LoopFunction, Program, evaluate_index, strides_of, to_function
from tilewright.lower import lower
from tilewright.runtime import (
    BoundModel,
    BufferRef,
    ExecutionPlan,
    HoldsCode,
    PlanBuilder,
    PoolOptions,
    Results,
    TensorInfo,
    ThreadPool,
    as_array,
    checked_results,
    laid_out,
    shared_pool,
    tensor_bytes,
)
from tilewright.schedule import Schedule
from tilewright.support import InputError, Settings, TargetError, known_names, quoted, read_settings
from tilewright.target import Target, detect

Array = npt.NDArray[np.generic]


PLANS_KEPT: Final = 8
"""For so many combinations of sizes a kernel keeps its plan and the memory of its runs."""
TEXTS_KEPT: Final = 64
"""Texts of functions emitted last: of a small model all, so that compiling it once more emits none."""


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """A kernel at given sizes, with what its outputs are and memory for them."""

    plan: ExecutionPlan
    outputs: tuple[TensorInfo, ...]
    results: Results


class Kernel(HoldsCode):
    """A compiled function: a step of a model's run, or called with an array for each argument that it reads.

    ``kernel(A, B)`` or ``kernel(A=..., B=...)`` returns the list of its outputs; those of in-out arguments
    are new arrays, what was given stays (:meth:`run` changes arrays in place). Symbolic sizes are
    taken from the arrays' shapes, from dimensions such as ``H`` or ``2*H + 4``. Raises InputError for
    arrays of the wrong shape or dtype. Text of any form is made again on demand; a few texts are kept.
    """

    def __init__(
        self,
        func: LoopFunction,
        target: Target,
        threads: int | None,
        symbol: str,
        memory: Memory,
        code: LoadedObject,
        *,
        apart: bool = False,
    ) -> None:
        self.func = func
        """The scheduled function."""
        self.target = target
        """The machine that it was compiled for."""
        self.threads = threads
        """Threads of a call of its own; in a model's run those of the run."""
        self.symbol = symbol
        """Its name in the code."""
        self.memory = memory
        """The bytes that a call needs beside its arguments."""
        self.code = code
        """The loaded machine code."""
        self.apart = apart
        """Whether it is right only for arguments that share no memory."""
        self._plans: dict[tuple[int, ...], _Prepared] = {}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the kernel checks of its sizes when it is called: the failures' texts, numbered from 1."""
        return tuple(f"it assumes {condition}" for condition in self.func.assumes)

    @property
    def address(self) -> int:
        """Where the kernel is in this process."""
        return self.code.address(self.symbol)

    def lowered(self) -> LoopFunction:
        """The loop function that code generation took."""
        return lower(self.func, native=self.target.functions)

    def llvm(self, *, optimised: bool = False) -> str:
        """LLVM IR of the kernel's module, as emitted or after LLVM's passes."""
        made = emit(self.func, self.target, apart=self.apart)
        return optimised_ir(made.text, self.target, opt=made.level) if optimised else made.text

    def assembly(self) -> str:
        """Assembly of the kernel's module."""
        made = emit(self.func, self.target, apart=self.apart)
        return assembly(made.text, self.target, opt=made.level)

    def code_text(self, form: str) -> str:
        """The code as ``llvm`` after its passes, ``asm``, or ``source``, which is C.

        Raises TargetError for another form.
        """
        match form:
            case "llvm":
                return self.llvm(optimised=True)
            case "asm":
                return self.assembly()
            case "source":
                return emit_c(lower_for_c(self.func, self.target.operations)).text
        raise TargetError(
            f"a kernel of {self.target.name} has no text of the form {form!r}",
            hint="it has llvm, asm and source (C)",
        )

    def __call__(self, *arrays: Array, out: Mapping[str, Array] | None = None, **named: Array) -> list[Array]:
        """Run on the inputs in order, or by name; ``out`` has arrays for outputs that are written there.

        Inputs are read where they lie.
        """
        given, sizes = self._given(arrays, named)
        prepared = self._prepared(sizes)
        into = dict(out or {})
        if strange := next((name for name in into if name not in self.func.outputs), None):
            known = known_names(strange, list(self.func.outputs), "its outputs")
            raise InputError(
                f"the kernel {quoted(self.func.name)} has no output {quoted(strange)}", hint=known
            )
        infos = [info for info in prepared.outputs if info.name in into]
        checked_results([into[info.name] for info in infos], infos, list(given.values()))
        results = [
            into.get(b.name, made) for b, made in zip(self._written, prepared.results.take(), strict=True)
        ]
        for b, result in zip(self._written, results, strict=True):
            if b.name in self.func.inouts:
                np.copyto(result, given[b.name])
        prepared.plan.run([given[b.name] for b in self._read], results)
        return results

    def bind(self, *arrays: Array, **named: Array) -> BoundModel:
        """Runs on these very inputs, whose contents may change between runs: ``bind(A, B).run()``.

        The results of a run are overwritten by the next one. Raises InputError also for in-out arguments.
        """
        if self.func.inouts:
            raise InputError(
                f"the kernel {quoted(self.func.name)} changes {quoted(self.func.inouts[0])}: it is not bound",
                hint="plan(table) runs on arrays in place",
            )
        given, sizes = self._given(arrays, named)
        prepared = self._prepared(sizes)
        results = prepared.results.take()
        plan = prepared.plan.bind([given[b.name] for b in self._read], results)
        return BoundModel(plan, results.copy)

    def run(self, table: Sequence[Array], params: Sequence[int] = ()) -> None:
        """Run on the arrays of all argument buffers, outputs written in place."""
        sizes = dict(zip((p.name for p in self.func.params), params, strict=True))
        arrays = dict(zip((b.name for b in self.func.buffers), table, strict=True))
        read, written = ([arrays[b.name] for b in some] for some in (self._read, self._written))
        self._prepared(sizes).plan.run(read, written)

    def plan(self, table: Sequence[Array], params: Sequence[int] = ()) -> ExecutionPlan:
        """An execution plan of this one kernel over the given arrays (for timing)."""
        builder = PlanBuilder(self._pool)
        self.add_to(builder, [builder.constant(a) for a in table], params)
        return builder.build([self, *table])

    def sizes(self, given: Mapping[str, Array], stated: Mapping[str, int] | None = None) -> dict[str, int]:
        """The values of the symbolic sizes: ``stated`` ones, others from the shapes of arrays by name.

        Raises InputError for a size that no shape shows, or that is out of its range.
        """
        return read_sizes(self.func, {name: array.shape for name, array in given.items()}, stated)

    @property
    def _written(self) -> list[Buffer]:
        return [b for b in self.func.buffers if b.name in self.func.outputs]

    @property
    def _read(self) -> list[Buffer]:
        return [b for b in self.func.buffers if b.name not in self.func.outputs]

    def _given(
        self, arrays: Sequence[Array], named: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, int]]:
        """The inputs by name, row by row in memory, and the sizes that their shapes show."""
        func = self.func
        names = [b.name for b in func.inputs]
        if len(arrays) > len(names):
            known = ", ".join(map(quoted, names)) or "none"
            raise InputError(
                f"the kernel {quoted(func.name)} takes {len(names)} inputs, got {len(arrays)}", hint=known
            )
        if strange := next((name for name in named if name not in names), None):
            known = known_names(strange, names, "its inputs")
            raise InputError(f"the kernel {quoted(func.name)} has no input {quoted(strange)}", hint=known)
        given = {
            name: _array(name, a)
            for name, a in (dict(zip(names, arrays, strict=False)) | dict(named)).items()
        }
        sizes = self.sizes(given)
        for b in func.inputs:
            a = given.get(b.name)
            if a is None:
                raise InputError(f"input {quoted(b.name)} is missing")
            shape, strides = _shape(b, sizes), strides_of(b)
            if strides is not None and a.shape != shape:
                # by its strides; as it lies in memory it may be given too
                shape = tuple(n.as_int() for n in b.shape)
            else:
                strides = None
            if a.shape != shape or a.dtype != b.dtype.numpy:
                raise InputError(
                    f"input {quoted(b.name)} must be {b.dtype} of shape {list(shape)}, got {a.dtype} "
                    f"of shape {list(a.shape)}"
                )
            given[b.name] = laid_out(a, TensorInfo(b.name, b.dtype.numpy, shape, strides))
        return given, sizes

    def _prepared(self, sizes: Mapping[str, int]) -> _Prepared:
        """The plan for given sizes: kept, with the memory of its runs."""
        params = tuple(sizes[p.name] for p in self.func.params)
        found = self._plans.get(params)
        if found is not None:
            return found
        builder = PlanBuilder(self._pool)
        infos = {b.name: TensorInfo(b.name, b.dtype.numpy, _shape(b, sizes)) for b in self.func.buffers}
        refs = {b.name: builder.input(tensor_bytes(infos[b.name])) for b in self._read}
        refs |= {b.name: builder.output(tensor_bytes(infos[b.name])) for b in self._written}
        self.add_to(builder, [refs[b.name] for b in self.func.buffers], params)
        outputs = tuple(infos[b.name] for b in self._written)
        made = _Prepared(
            builder.build([self.code]), outputs, Results([(info.dtype, info.shape) for info in outputs])
        )
        while len(self._plans) >= PLANS_KEPT:
            self._plans.pop(next(iter(self._plans)), None)
        self._plans[params] = made
        return made

    def add_to(
        self,
        builder: PlanBuilder,
        refs: Sequence[BufferRef],
        sizes: Sequence[int],
        *,
        name: str | None = None,
        section: int = 0,
        lane: int = 0,
        repeat: int = 1,
    ) -> None:
        """Add a call to a plan: ``refs`` are the arguments in order, ``sizes`` the parameters."""
        builder.step(
            self.address,
            refs,
            sizes,
            workspace_bytes=self.memory.workspace,
            scratch_bytes=self.memory.scratch,
            name=self.func.name if name is None else name,
            repeat=repeat,
            checks=self.assumptions,
            section=section,
            lane=lane,
        )

    @cached_property
    def _pool(self) -> ThreadPool:
        return shared_pool(PoolOptions.of(read_settings(), self.threads))


def _shape(b: Buffer, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate_index(e, sizes) for e in b.physical_shape)


def _array(name: str, given: object) -> Array:
    try:
        return as_array(given)
    except (ValueError, TypeError, RuntimeError, BufferError) as error:
        raise InputError(f"input {quoted(name)} cannot be made an array: {error}") from None


def build(
    source: Program | LoopFunction | Schedule,
    *,
    target: Target | None = None,
    threads: int | None = None,
    settings: Settings | None = None,
    apart: bool = False,
) -> Kernel:
    """Compile a program, loop function or schedule as it stands (no strategy) into a callable kernel.

    ``apart`` says that its arguments will share no memory: then LLVM may put serial loops in lanes.
    Raises what lowering and code generation refuse: ScheduleError, TargetError.
    """
    if isinstance(source, Schedule):
        func = source.func
    elif isinstance(source, Program):
        func = to_function(source)
    else:
        func = source
    machine = target or detect()
    text = emit(func, machine, apart=apart)
    with CompilePool.of_settings(settings or read_settings()) as pool:
        (content,) = pool.compile_many([compile_request(text.text, machine, opt=text.level)])
    return Kernel(func, machine, threads, text.symbol, text.memory, load_object(content), apart=apart)


@lru_cache(maxsize=TEXTS_KEPT)
def emit(func: LoopFunction, target: Target, *, apart: bool = False) -> KernelText:
    """A scheduled function lowered, as LLVM IR for a target."""
    return emit_kernel(
        lower(func, native=target.functions),
        triple=target.llvm_triple,
        vector_bits=target.preferred_vector_bits,
        operations=target.operations,
        apart=apart,
    )
