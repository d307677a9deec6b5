"""Plans: a model, or a single kernel, as one native call over statically planned memory.

A `PlanBuilder` collects the steps: each a compiled kernel (its address), with its arguments as places in the
model's inputs and outputs, in constants or in the arena of intermediate tensors. The `ExecutionPlan` it makes
runs them all by one call without the GIL, from any number of threads at once.
"""

import weakref
from collections.abc import Iterable, Sequence
from ctypes import byref, c_void_p
from dataclasses import dataclass, replace
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.runtime import native
from tilewright.runtime.memory import address_of, writeable_addresses
from tilewright.runtime.pool import ThreadPool
from tilewright.runtime.tensors import checked_repeats
from tilewright.support import InputError, InternalError, ResourceError, StoppedError, format_bytes, quoted

MAX_BYTES: Final = 1 << 46
"""Sizes and offsets beyond this are mistakes: 64 TiB."""


if TYPE_CHECKING:
    # to types a number of a run is an integer; where one is calculated with before, that fails
    _Integer = int
else:
    _Integer = object

SCRATCH_PAGE: Final = 4096
"""The scratch of each thread begins at a multiple of this from the first one's (OWN_PAGE of plan.c)."""


@dataclass(frozen=True, slots=True)
class ParamRef(_Integer):
    """A number that each run is given, by its place among the run's parameters."""

    index: int

    def __str__(self) -> str:
        return f"value {self.index} of a run"


Amount: TypeAlias = int
"""A number that is known, or that each run is given: a :class:`ParamRef`."""


def amount_in(amount: Amount, params: Sequence[int]) -> int:
    """A number in a run of these parameters."""
    return params[amount.index] if isinstance(amount, ParamRef) else amount


@dataclass(frozen=True, slots=True)
class BufferRef:
    """A run of bytes that a kernel may be given: in an input, an output, a constant or the arena."""

    kind: int
    """INPUT, OUTPUT, CONSTANT or ARENA of `runtime.native`."""
    index: int
    """Number of the input, output, constant or slot of the arena."""
    offset: Amount
    """First byte."""
    nbytes: Amount
    """Number of bytes."""
    advance: Amount = 0
    """Bytes by which it moves on with each call of a step that is repeated."""
    first: int = 0
    """Unless 0, which of the step's places the first call is given instead: this one is the second's."""

    def part(self, offset: int, nbytes: int) -> "BufferRef":
        """The `nbytes` bytes from `offset` on. Raises ValueError if they are not all within."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"bytes {offset} to {offset + nbytes} are not within {self.nbytes}")
        return BufferRef(self.kind, self.index, self.offset + offset, nbytes)


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One step of a plan: the address of a kernel, its arguments, and the texts of its failed checks.

    Consecutive steps of one ``section`` (not 0) run lane by lane, the lanes at the same time: those of a lane
    in order on one thread. They must not use what steps of other lanes write.
    """

    kernel: int
    buffers: tuple[BufferRef, ...]
    params: tuple[Amount, ...]
    name: str
    checks: tuple[str, ...]
    section: int = 0
    lane: int = 0
    repeat: Amount = 1
    """How often it is called, one call after the other; places move on where a run says it."""


@dataclass(frozen=True, slots=True)
class RangeCheck:
    """Numbers that a step takes as places: all must be at least ``low`` and less than ``high``.

    The numbers are those of ``place``, of a numpy dtype, every ``stride``-th from the first on. A run looks
    at them before the step ``step``, at those of inputs before any step (-1), and ends without a change of
    its outputs where one is out of range. ``node`` says who takes them, ``value`` what they are called; the
    first is element ``first`` of the value, which has the shape ``shape``.
    """

    place: BufferRef
    dtype: str
    low: Amount
    high: Amount
    node: str
    value: str
    shape: tuple[Amount, ...]
    first: int = 0
    stride: int = 1
    step: int = native.FIRST
    many: ParamRef | None = None
    """How many numbers there are, where runs say so."""

    @property
    def count(self) -> Amount:
        """How many numbers there are."""
        if self.many is not None:
            return self.many
        return -(-(self.place.nbytes // np.dtype(self.dtype).itemsize) // self.stride)

    def complaint(self, at: int, number: int, params: Sequence[int] = ()) -> InputError:
        """The error for number ``at`` of the check, in a run of some parameters."""
        low, high, *shape = (amount_in(n, params) for n in (self.low, self.high, *self.shape))
        place = [int(i) for i in np.unravel_index(self.first + at * self.stride, shape or (1,))]
        where = f" at {place}" if self.shape else ""
        allowed = f"from {low} to {high - 1}" if low < high else "nothing"
        return InputError(
            f"{self.node}: {quoted(self.value)} holds {number}{where}, which is out of range ({allowed})",
            hint="checks=False when compiling leaves such checks out, and results are then undefined",
        )


@dataclass(frozen=True, slots=True, eq=False)
class PlanContents:
    """All that a plan is made of; sizes in bytes.

    ``constants`` are row-major arrays aligned to 64 bytes, ``workspace_bytes`` and ``scratch_bytes`` the most
    that one step needs, the latter for each thread. ``copies`` are pairs of an arena's part and the output
    that it is copied to when all steps have run.
    """

    inputs: tuple[Amount, ...]
    outputs: tuple[Amount, ...]
    param_count: int
    constants: tuple[npt.NDArray[Any], ...]
    steps: tuple[KernelCall, ...]
    arena_bytes: int
    workspace_bytes: int
    scratch_bytes: int
    checks: tuple[RangeCheck, ...] = ()
    copies: tuple[tuple[BufferRef, BufferRef], ...] = ()
    slots: tuple[ParamRef, ...] = ()
    """Bytes of the slots of the arena after the first one, which has ``arena_bytes``."""


class PlanBuilder:
    """Collects what a plan consists of.

    Inputs, outputs, parameters and steps are numbered in the order in which they are added.
    """

    def __init__(self, pool: ThreadPool) -> None:
        """A plan whose parallel loops will run on this pool."""
        self._pool = pool
        self._inputs: list[Amount] = []
        self._outputs: list[Amount] = []
        self._slots: list[ParamRef] = []
        self._constants: list[npt.NDArray[Any]] = []
        self._param_count = 0
        self._steps: list[KernelCall] = []
        self._checks: list[RangeCheck] = []
        self._copies: list[tuple[BufferRef, BufferRef]] = []
        self._arena_bytes = 0
        self._workspace_bytes = 0
        self._scratch_bytes = 0

    def input(self, nbytes: Amount) -> BufferRef:
        """The next input, of `nbytes` bytes."""
        self._inputs.append(_checked_size(nbytes))
        return BufferRef(native.INPUT, len(self._inputs) - 1, 0, nbytes)

    def output(self, nbytes: Amount) -> BufferRef:
        """The next output, of `nbytes` bytes."""
        self._outputs.append(_checked_size(nbytes))
        return BufferRef(native.OUTPUT, len(self._outputs) - 1, 0, nbytes)

    def constant(self, array: npt.NDArray[Any]) -> BufferRef:
        """A constant. The plan refers to the array's own memory: make it with `aligned_copy`.

        Raises ValueError if the array is not row-major or not aligned to 64 bytes.
        """
        if not array.flags.c_contiguous or (array.nbytes and address_of(array) % native.ALIGNMENT):
            raise ValueError(f"a constant must be row-major and aligned to {native.ALIGNMENT} bytes")
        self._constants.append(array)
        return BufferRef(native.CONSTANT, len(self._constants) - 1, 0, array.nbytes)

    def arena(self, offset: int, nbytes: int) -> BufferRef:
        """Bytes of the arena, which grows to hold them. Raises ValueError unless 64 divides `offset`."""
        _checked_size(offset)
        _checked_size(nbytes)
        if offset % native.ALIGNMENT:
            raise ValueError(f"an offset in the arena must be a multiple of {native.ALIGNMENT}, got {offset}")
        self._arena_bytes = max(self._arena_bytes, offset + nbytes)
        return BufferRef(native.ARENA, 0, offset, nbytes)

    def slot(self, nbytes: ParamRef) -> BufferRef:
        """A slot of the arena whose size each run says."""
        self._slots.append(nbytes)
        return BufferRef(native.ARENA, len(self._slots), 0, nbytes)

    def params(self, count: int) -> None:
        """Have runs be given so many parameters in all."""
        self._param_count = count

    def param(self) -> ParamRef:
        """The next parameter of a run."""
        self._param_count += 1
        return ParamRef(self._param_count - 1)

    def step(
        self,
        kernel: int,
        buffers: Sequence[BufferRef],
        params: Sequence[Amount] = (),
        *,
        workspace_bytes: int = 0,
        scratch_bytes: int = 0,
        name: str = "",
        checks: Sequence[str] = (),
        section: int = 0,
        lane: int = 0,
        repeat: Amount = 1,
    ) -> None:
        """Add a kernel call, ``repeat`` times over.

        `kernel` is the address of a `tw_kernel`; `workspace_bytes` and `scratch_bytes` are what its metadata
        asks for; `checks[k - 1]` says what was wrong when it returns k. `section` and `lane` are those of
        `KernelCall`.
        """
        if not kernel:
            raise ValueError("a kernel has no address")
        if section < 0 or lane < 0:
            raise ValueError(f"sections and lanes count from 0, got {section} and {lane}")
        self._workspace_bytes = max(self._workspace_bytes, _checked_size(workspace_bytes))
        self._scratch_bytes = max(self._scratch_bytes, _checked_size(scratch_bytes))
        label = name or f"step {len(self._steps)}"
        self._steps.append(
            KernelCall(kernel, tuple(buffers), tuple(params), label, tuple(checks), section, lane, repeat)
        )

    def check(self, check: RangeCheck) -> None:
        """Have numbers looked at: those of an input before any step, others before the step added next."""
        first = check.place.kind == native.INPUT
        self._checks.append(replace(check, step=native.FIRST if first else len(self._steps)))

    def copy(self, source: BufferRef, target: BufferRef) -> None:
        """Copy a part of the arena to an output of the same size when all steps have run."""
        if source.nbytes != target.nbytes:
            raise ValueError(f"{source.nbytes} bytes cannot be copied to {target.nbytes}")
        self._copies.append((source, target))

    def build(self, keep_alive: Iterable[object] = ()) -> "ExecutionPlan":
        """The plan. It keeps the constants, the pool and the given objects (owners of code) alive."""
        contents = PlanContents(
            inputs=tuple(self._inputs),
            outputs=tuple(self._outputs),
            param_count=self._param_count,
            constants=tuple(self._constants),
            steps=tuple(self._steps),
            arena_bytes=self._arena_bytes,
            workspace_bytes=self._workspace_bytes,
            scratch_bytes=self._scratch_bytes,
            checks=tuple(sorted(dict.fromkeys(self._checks), key=lambda check: check.step)),
            copies=tuple(self._copies),
            slots=tuple(self._slots),
        )
        return ExecutionPlan(self._pool, contents, keep_alive)


class ExecutionPlan:
    """A list of kernel calls that runs as one. Made by `PlanBuilder.build`, or from the contents of another.

    It keeps the constants, the pool and the objects of `keep_alive` (owners of code) alive.
    """

    def __init__(self, pool: ThreadPool, contents: PlanContents, keep_alive: Iterable[object] = ()) -> None:
        self.pool = pool
        self.contents = contents
        """What the plan is made of, for saving it."""
        self.inputs = contents.inputs
        """Bytes of each input."""
        self.outputs = contents.outputs
        """Bytes of each output."""
        self.param_count = contents.param_count
        """Number of parameters of a run."""
        self.step_names = tuple(step.name for step in contents.steps)
        """Name of each step, for profiles and messages."""
        self.arena_bytes = contents.arena_bytes
        """Bytes of intermediate tensors of one run, as far as it does not say them itself."""
        scratch = -(-contents.scratch_bytes // SCRATCH_PAGE) * SCRATCH_PAGE
        lanes = 1 + max((step.lane for step in contents.steps if step.section), default=0)
        self.run_bytes = contents.arena_bytes + contents.workspace_bytes * lanes + scratch * pool.threads
        """Bytes of memory of one run, all kinds."""
        self._steps = contents.steps
        # tables for C as bytes: ctypes takes five times as long to make arrays of pointers
        self._input_table = Struct(f"{len(contents.inputs)}P")
        self._output_table = Struct(f"{len(contents.outputs)}P")
        self._sizes = [*contents.inputs, *contents.outputs]
        self._param_table = Struct(f"{contents.param_count}q")
        self._run = native.library().tw_plan_run
        self._alive = tuple(keep_alive)
        self._handle = _create(pool, contents)
        weakref.finalize(self, native.library().tw_plan_destroy, self._handle).atexit = False

    def run(
        self,
        inputs: Sequence[npt.NDArray[Any]],
        outputs: Sequence[npt.NDArray[Any]],
        params: Sequence[int] = (),
    ) -> None:
        """Run the steps once.

        The arrays must be row-major and of the stated sizes in bytes, the outputs writeable. Raises
        InputError where they are not, where a kernel's check of its arguments fails and where a number is out
        of range (outputs are then as they were), ResourceError if there is no memory.
        """
        self._call(inputs, outputs, params, 1, None)

    def run_within(
        self,
        inputs: Sequence[npt.NDArray[Any]],
        outputs: Sequence[npt.NDArray[Any]],
        params: Sequence[int],
    ) -> None:
        """Run the steps once on arrays that fit, as the caller has made sure: row-major, outputs writeable.

        Raises what `run` raises.
        """
        arrays = [*inputs, *outputs]
        found = writeable_addresses(arrays)
        addresses = [address_of(array) for array in arrays] if found is None else found
        count = len(self.inputs)
        tables = (
            self._input_table.pack(*addresses[:count]),
            self._output_table.pack(*addresses[count:]),
            self._param_table.pack(*params),
        )
        failure = native.Failure()
        code = self._run(self._handle, *tables, 1, None, byref(failure))
        if code:
            raise self.failure(code, failure, params)

    def measure(
        self,
        inputs: Sequence[npt.NDArray[Any]],
        outputs: Sequence[npt.NDArray[Any]],
        params: Sequence[int] = (),
        *,
        repeats: int = 1,
    ) -> npt.NDArray[np.int64]:
        """Run `repeats` times over, in one native call.

        Returns the nanoseconds of each step, of shape (repeats, steps). Raises what `run` raises.
        """
        repeats = checked_repeats(repeats)
        nanoseconds = np.zeros((repeats, len(self._steps)), np.int64)
        self._call(inputs, outputs, params, repeats, nanoseconds)
        return nanoseconds

    def bind(
        self,
        inputs: Sequence[npt.NDArray[Any]],
        outputs: Sequence[npt.NDArray[Any]],
        params: Sequence[int] = (),
    ) -> "BoundPlan":
        """Runs on these very arrays, checked once. Raises what `run` raises before it runs."""
        tables = self._tables(inputs, outputs, params)
        return BoundPlan(self, inputs, outputs, params, (self._handle, *tables))

    def reserve(self, params: Sequence[int] = ()) -> None:
        """Have the memory of one run of these parameters. Raises ResourceError where there is none."""
        if native.library().tw_plan_reserve(self._handle, self._param_table.pack(*params)):
            raise ResourceError(f"no memory to run the plan ({format_bytes(self.run_bytes)})")

    def trim(self) -> None:
        """Free the memory kept for runs to come."""
        native.library().tw_plan_trim(self._handle)
        native.library().tw_memory_trim()

    def _call(
        self,
        inputs: Sequence[npt.NDArray[Any]],
        outputs: Sequence[npt.NDArray[Any]],
        params: Sequence[int],
        repeats: int,
        nanoseconds: npt.NDArray[np.int64] | None,
    ) -> None:
        tables = self._tables(inputs, outputs, params)
        failure = native.Failure()
        timed = None if nanoseconds is None else address_of(nanoseconds)
        code = self._run(self._handle, *tables, repeats, timed, byref(failure))
        if code:
            raise self.failure(code, failure, params)

    def _tables(
        self,
        inputs: Sequence[npt.NDArray[Any]],
        outputs: Sequence[npt.NDArray[Any]],
        params: Sequence[int],
    ) -> tuple[bytes, bytes, bytes]:
        """The addresses of the arrays and the parameters, checked, as C reads them."""
        if len(params) != self.param_count:
            raise InputError(f"expected {self.param_count} parameters, got {len(params)}")
        count = len(self.inputs)
        arrays = [*inputs, *outputs]
        addresses = writeable_addresses(arrays) if len(inputs) == count else None
        if addresses is None or [array.nbytes for array in arrays] != self._sizes:
            _check("input", inputs, [amount_in(n, params) for n in self.inputs], writeable=False)
            _check("output", outputs, [amount_in(n, params) for n in self.outputs], writeable=True)
            addresses = [address_of(array) for array in arrays]
        return (
            self._input_table.pack(*addresses[:count]),
            self._output_table.pack(*addresses[count:]),
            self._param_table.pack(*params) if params else b"",
        )

    def failure(self, code: int, found: native.Failure, params: Sequence[int] = ()) -> Exception:
        """The error that says what a native run of these parameters returned, and where."""
        at = found.step
        if code == native.OUT_OF_RANGE:
            check: RangeCheck = self.contents.checks[found.check]
            return check.complaint(found.at, found.number, params)
        if code == native.NO_MEMORY and at < 0:
            return ResourceError(f"no memory to run the plan ({format_bytes(self.run_bytes)})")
        step = self._steps[at]
        if code == native.STOPPED:
            return StoppedError(f"the run was stopped before {quoted(step.name)} was done")
        if code == native.NO_MEMORY:
            return ResourceError(
                f"{quoted(step.name)} found no memory for buffers whose sizes are known only when it runs",
                hint="run it on smaller arrays",
            )
        if 1 <= code <= len(step.checks):
            return InputError(f"{quoted(step.name)} cannot run: {step.checks[code - 1]}")
        return InternalError(f"{quoted(step.name)} returned {code}, which its kernel does not explain")


class BoundPlan:
    """Runs of a plan on arrays that stay where they are, and that it keeps alive: `ExecutionPlan.bind`."""

    __slots__ = ("_arguments", "_failure", "_kept", "_params", "_plan", "_run")

    def __init__(
        self,
        plan: ExecutionPlan,
        inputs: Sequence[npt.NDArray[Any]],
        outputs: Sequence[npt.NDArray[Any]],
        params: Sequence[int],
        arguments: tuple[int | bytes, ...],
    ) -> None:
        self._plan = plan
        self._params = tuple(params)
        self._kept = (tuple(inputs), tuple(outputs))
        self._failure = native.Failure()
        self._arguments = (*arguments, 1, None, byref(self._failure))
        self._run = native.library().tw_plan_run

    def run(self) -> None:
        """Run the steps once. Raises what `ExecutionPlan.run` raises."""
        code = self._run(*self._arguments)
        if code:
            raise self._plan.failure(code, self._failure, self._params)


def _checked_size(nbytes: Amount) -> Amount:
    if not isinstance(nbytes, ParamRef) and not 0 <= nbytes <= MAX_BYTES:
        raise ResourceError(f"a size of {nbytes} bytes is not between 0 and {format_bytes(MAX_BYTES)}")
    return nbytes


def _create(pool: ThreadPool, contents: PlanContents) -> int:
    """The native plan; it copies the tables."""
    steps, constants = contents.steps, contents.constants
    places = [_place(ref) for step in steps for ref in step.buffers]
    values = [_value(value) for step in steps for value in step.params]
    calls = [
        native.Step(
            step.kernel, len(step.buffers), len(step.params), _value(step.repeat), step.section, step.lane
        )
        for step in steps
    ]
    checks = [
        native.Check(
            _place(check.place),
            check.step,
            _value(check.count),
            check.stride,
            _value(check.low),
            _value(check.high),
            np.dtype(check.dtype).itemsize,
            np.dtype(check.dtype).kind == "i",
        )
        for check in contents.checks
    ]
    copies = [
        native.Copy(_place(source), _place(target), _value(source.nbytes))
        for source, target in contents.copies
    ]
    slots = [_value(nbytes) for nbytes in (contents.arena_bytes, *contents.slots)]
    description = native.PlanDescription(
        (native.Step * len(calls))(*calls),
        len(calls),
        (native.Place * len(places))(*places),
        len(places),
        (native.Value * len(values))(*values),
        len(values),
        (native.Check * len(checks))(*checks),
        len(checks),
        (native.Copy * len(copies))(*copies),
        len(copies),
        (c_void_p * len(constants))(*(address_of(array) for array in constants)),
        len(constants),
        (native.Value * len(slots))(*slots),
        len(slots),
        contents.workspace_bytes,
        contents.scratch_bytes,
    )
    handle = native.library().tw_plan_create(pool.handle, byref(description))
    if not handle:
        raise ResourceError("no memory for a plan")
    return int(handle)


def _value(value: Amount) -> native.Value:
    return native.Value(value.index, 0) if isinstance(value, ParamRef) else native.Value(-1, value)


def _place(ref: BufferRef) -> native.Place:
    return native.Place(ref.kind, ref.index, _value(ref.offset), _value(ref.advance), ref.first)


def _check(what: str, arrays: Sequence[npt.NDArray[Any]], sizes: Sequence[int], *, writeable: bool) -> None:
    """Refuse arrays whose memory is not what the plan expects."""
    if len(arrays) != len(sizes):
        raise InputError(f"expected {len(sizes)} {what}s, got {len(arrays)}")
    for at, (array, nbytes) in enumerate(zip(arrays, sizes, strict=True)):
        flags = array.flags
        if array.nbytes != nbytes or not flags.c_contiguous or (writeable and not flags.writeable):
            raise _unfit(f"{what} {at}", array, nbytes)


def _unfit(name: str, array: npt.NDArray[Any], nbytes: int) -> InputError:
    """What is wrong with an array."""
    if array.nbytes != nbytes:
        return InputError(f"{name} has {array.nbytes} bytes, expected {nbytes}")
    if not array.flags.c_contiguous:
        return InputError(f"{name} is not row-major", hint="pass numpy.ascontiguousarray of it")
    return InputError(f"{name} is read-only")
