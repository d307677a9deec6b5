"""A process that builds, checks and times candidates for the tuner: one request a line, one answer a line.

It is a process of its own because a candidate may crash it or never end; who started it then kills it and
starts another one. What it has built it keeps until it is told to run it.

Requests come from the process that tunes, on standard input, as JSON; programs and plans
in them are read like any other text.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.build import Array, emit, pack, unpack
from tilewright.codegen import KernelText, LoadedObject, compile_ir, load_object
from tilewright.cost import Machine
from tilewright.driver.load import OtherLoad
from tilewright.ir import (
    Buffer,
    LoopFunction,
    Program,
    copy_nest,
    most_iterations,
    parse_source,
    seq,
    structural_hash,
)
from tilewright.lang import evaluate
from tilewright.plan import plan_from_json
from tilewright.runtime import (
    ExecutionPlan,
    PlanBuilder,
    PoolOptions,
    aligned_copy,
    aligned_empty,
    shared_pool,
)
from tilewright.schedule import Schedule, derived_constants, load_trace, pack_argument, unpack_argument
from tilewright.strategies import Candidate, NestTask, Status, Task, for_code_generation, work
from tilewright.support import (
    ResourceError,
    ScheduleError,
    TilewrightError,
    UserError,
    compare,
    format_bytes,
    read_settings,
)
from tilewright.target import CACHE_LINE, Target, detect
from tilewright.tune import LEAST_RUNS, LONG_RUN, ROUND_SECONDS, SECONDS

#: Whoever takes longer than the best by this factor is run no more than the least number of times.
WORTH_MORE: Final = 1.5
#: A first run of fewer seconds is not called slow: it also loads code and maps memory.
LEAST_SLOW: Final = 0.05
#: A run that is slow is repeated before it is called so, unless it took more seconds.
MOST_REPEATED: Final = 1.0
#: A round begins where so many times the longest so far are left.
ROOM: Final = 2.0
#: Candidates that are kept ready, and programs of which it is known what they should give.
KEPT: Final = 32
KEPT_REFERENCES: Final = 4
MOST_RUNS: Final = 1000
#: Bytes of arguments that are moved between rounds at most, and lines at which an array may begin.
MOST_MOVED: Final = 1 << 24
PLACES: Final = 64
#: How many of the shortest runs are reported.
SHORTEST: Final = 5
_PR_SET_PDEATHSIG: Final = 1
#: Roundings besides those of the longest sum: of what a program computes element by element.
ROUNDINGS: Final = 64


@dataclass(frozen=True, eq=False)
class _Reference:
    """What the untuned plan gives for some inputs, the magnitude of what was summed, a run's time."""

    program: Program | LoopFunction
    inputs: dict[str, Array]
    results: dict[str, Array]
    magnitudes: dict[str, Array]
    seconds: float

    @cached_property
    def sums(self) -> dict[str, Array]:
        """Magnitudes of all that was added or subtracted on the way, by the evaluator: slow."""
        if isinstance(self.program, Program):
            return evaluate(self.program, self.inputs, absolute=True)
        return self.magnitudes

    @cached_property
    def reals(self) -> frozenset[str]:
        """The results that are real numbers."""
        program = self.program
        if isinstance(program, Program):
            return frozenset(b.name for b in program.outputs if b.dtype.is_float)
        return frozenset(name for name in program.outputs if program.buffer(name).dtype.is_float)

    @cached_property
    def terms(self) -> int:
        """How many roundings a result may have gone through."""
        if isinstance(self.program, Program):
            return ROUNDINGS + sum(most_iterations(stage, "red") for stage in self.program.stages)
        return ROUNDINGS + work(self.program.body) // max(1, sum(a.size for a in self.results.values()))


@dataclass(frozen=True, eq=False)
class _Built:
    """A candidate that can be run: its function, the schedule of one that is a program's, and the code."""

    program: Program | LoopFunction
    func: LoopFunction
    schedule: Schedule | None
    text: KernelText
    code: LoadedObject
    digest: str


class _Ready:
    """A candidate with its arguments somewhere in memory.

    What it changes in place is as it was ``first`` before each run: the step before copies it.
    """

    def __init__(
        self,
        built: _Built,
        threads: int,
        table: Sequence[Array],
        first: tuple[_Built, Sequence[Array]] | None = None,
    ) -> None:
        self._built, self._threads, self._table, self._first = built, threads, table, first
        builder = PlanBuilder(shared_pool(PoolOptions.of(read_settings(), threads)))
        places = [builder.constant(array) for array in table]
        calls = [(built, places)]
        given: Sequence[Array] = ()
        if first is not None:
            restoring, given = first
            names = [b.name for b in built.func.buffers]
            changed = [places[names.index(name)] for name in restoring.func.outputs]
            calls.insert(0, (restoring, [*map(builder.constant, given), *changed]))
        for each, arguments in calls:
            builder.step(
                each.code.address(each.text.symbol),
                arguments,
                [],
                workspace_bytes=each.text.memory.workspace,
                scratch_bytes=each.text.memory.scratch,
                name=each.func.name,
                checks=[f"it assumes {condition}" for condition in each.func.assumes],
            )
        self.plan: ExecutionPlan = builder.build([*(each.code for each, _ in calls), *table, *given])

    def elsewhere(self, rng: np.random.Generator) -> _Ready:
        """The same with its arguments elsewhere, at lines drawn anew, unless they are large."""
        if sum(array.nbytes for array in self._table) > MOST_MOVED:
            return self
        moved: list[Array] = []
        for array in self._table:
            skip = CACHE_LINE * int(rng.integers(PLACES))
            room = aligned_empty(array.nbytes + CACHE_LINE * PLACES, np.uint8)
            copy: Array = np.ndarray(array.shape, array.dtype, buffer=room, offset=skip)
            np.copyto(copy, array)
            moved.append(copy)
        return _Ready(self._built, self._threads, moved, self._first)


class Runner:
    """Builds and runs candidates of one program after another, and remembers what each should give."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._references: dict[str, _Reference] = {}
        self._built: OrderedDict[tuple[str, int, str], _Built] = OrderedDict()
        self._best: dict[str, float] = {}
        self._restoring: dict[LoopFunction, _Built] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request: to build a candidate, or to run some."""
        if request["do"] == "build":
            begin = time.perf_counter()
            made = self._made(request)
            told = made if isinstance(made, dict) else {"status": "ok", "reason": "", "func": made.digest}
            return told | {"build_seconds": time.perf_counter() - begin}
        end = time.perf_counter() + float(request.get("seconds", math.inf))
        trials = self._run_all(request["candidates"], int(request["rounds"]), end)
        return {"trials": trials, "held": _held_bytes()}

    def _made(self, request: dict[str, Any]) -> _Built | dict[str, Any]:
        """A candidate that is built, or what became of it."""
        key = (request["program"], int(request["threads"]), request["candidate"])
        if key in self._built:
            self._built.move_to_end(key)
            return self._built[key]
        try:
            program = parse_source(request["program"])
            func, s = self._scheduled(program, request, Machine(self._target, key[1]))
        except ResourceError as error:
            return _refusal("memory", error)
        except UserError as error:
            return _refusal("refused", error)
        try:
            made = self._compiled(program, func, s)
        except ResourceError as error:
            return _refusal("memory", error)
        except TilewrightError as error:
            return _refusal("uncompilable", error)
        self._built[key] = made
        while len(self._built) > KEPT:
            self._built.popitem(last=False)
        return made

    def _compiled(self, program: Program | LoopFunction, func: LoopFunction, s: Schedule | None) -> _Built:
        digest = structural_hash(func)
        if s is None:
            func = for_code_generation(func, self._target)
        text = emit(func, self._target, apart=s is None)
        code = load_object(compile_ir(text.text, self._target, opt=text.level))
        return _Built(program, func, s, text, code, digest)

    def _run_all(self, requests: Sequence[dict[str, Any]], rounds: int, end: float) -> list[dict[str, Any]]:
        """Check all candidates, then time them in turns; one alone is timed once.

        Whoever asks waits until ``end``, of ``time.perf_counter``: a round after the first that would hardly
        be over by then is not begun, so that the others are told.
        """
        ready: list[_Ready | None] = []
        told: list[dict[str, Any]] = []
        for request in requests:
            made, answer = self._checked(request)
            ready.append(made)
            told.append(answer)
        rng = np.random.default_rng(0)
        with OtherLoad() as load:
            longest = 0.0
            for _ in range(rounds):
                begin = time.perf_counter()
                if longest and begin + ROOM * longest > end:
                    break
                for n, (request, made, answer) in enumerate(zip(requests, ready, told, strict=True)):
                    if made is None:
                        continue
                    if rounds > 1:
                        # where arrays lie makes one of two equal plans faster, as long as they lie there
                        ready[n] = made = made.elsewhere(rng)
                        answer["seconds"].append(_seconds(made.plan, ROUND_SECONDS)[0])
                        continue
                    known = self._best.get(request["program"], math.inf)
                    answer["seconds"] = _seconds(made.plan, SECONDS, known * WORTH_MORE)
                    self._best[request["program"]] = min(known, answer["seconds"][0])
                longest = max(longest, time.perf_counter() - begin)
        return [answer | {"load": load.share} for answer in told]

    def _checked(self, request: dict[str, Any]) -> tuple[_Ready | None, dict[str, Any]]:
        """A candidate ready to be timed, if its results are right and it is not far too slow."""
        made = self._made(request)
        if isinstance(made, dict):
            return None, made
        machine = Machine(self._target, int(request["threads"]))
        try:
            reference = self._reference(request, machine)
            results, ready, seconds = self._run(made, machine, reference.inputs)
        except (ResourceError, MemoryError) as error:
            return None, _refusal("memory", error)
        except TilewrightError as error:
            return None, _refusal("uncompilable", error)
        wrong = _differs(results, reference)
        if wrong:
            return None, {"status": "wrong", "reason": wrong, "func": made.digest}
        most = max(LEAST_SLOW, float(request["slow"]) * reference.seconds)
        if most < seconds < MOST_REPEATED:
            # others' load comes in bursts: the untuned plan itself was called slow
            seconds = min(seconds, float(ready.plan.measure([], [], repeats=1)[0, -1]) * 1e-9)
        if seconds > most:
            reason = f"a run took {seconds:.3g} s, by the untuned plan {reference.seconds:.3g} s"
            return None, {"status": "slow", "reason": reason, "func": made.digest}
        return ready, {"status": "ok", "reason": "", "seconds": [], "func": made.digest}

    def _reference(self, request: dict[str, Any], machine: Machine) -> _Reference:
        known = self._references.get(request["program"])
        if known is None:
            made = self._made(request | {"form": "plan", "candidate": request["reference"]})
            if isinstance(made, dict):
                raise ScheduleError(f"the untuned plan is {made['status']}: {made['reason']}")
            known = self._references[request["program"]] = self._refer(made, machine)
            while len(self._references) > KEPT_REFERENCES:
                del self._references[next(iter(self._references))]
        return known

    def _scheduled(
        self, program: Program | LoopFunction, request: dict[str, Any], machine: Machine
    ) -> tuple[LoopFunction, Schedule | None]:
        read = plan_from_json if request["form"] == "plan" else load_trace
        plan = read(request["candidate"])
        if isinstance(program, LoopFunction):
            return NestTask(program, machine).carried_out(plan).func, None
        s = Candidate("", plan).schedule(Task(program, machine))
        return s.func, s

    def _refer(self, untuned: _Built, machine: Machine) -> _Reference:
        rng, program = np.random.default_rng(0), untuned.program
        if isinstance(program, LoopFunction):
            given = {b.name: _drawn(b, rng) for b in program.buffers}
            results, _, seconds = self._run(untuned, machine, given)
            most = {name: np.full(a.shape, np.abs(a).max(initial=0)) for name, a in results.items()}
            return _Reference(program, given, results, most, seconds)
        inputs: dict[str, Array] = {}
        for b in program.inputs:
            shape = [e.as_int() for e in b.shape]
            drawn = rng.standard_normal(shape) if b.dtype.is_float else rng.integers(0, 2, shape)
            inputs[b.name] = drawn.astype(b.dtype.numpy)
        results, _, seconds = self._run(untuned, machine, inputs)
        whole = {name: np.abs(array) if array.dtype.kind == "f" else array for name, array in inputs.items()}
        magnitudes, _, _ = self._run(untuned, machine, whole)
        return _Reference(program, inputs, results, magnitudes, seconds)

    def _run(
        self, built: _Built, machine: Machine, inputs: dict[str, Array]
    ) -> tuple[dict[str, Array], _Ready, float]:
        """The results of one run, what others need, and its seconds."""
        s, program = built.schedule, built.program
        if s is None or isinstance(program, LoopFunction):
            return self._run_in_place(built, machine, inputs)
        derived, steps = derived_constants(s), s.trace.steps
        declared = {b.name: b for b in (*program.inputs, *program.outputs)}
        table: list[Array] = []
        for b in s.func.buffers:
            if b.name in s.func.outputs:
                shape = tuple(e.as_int() for e in b.physical_shape)
                table.append(aligned_empty(shape, b.dtype.numpy))
                continue
            constant = derived.get(b.name)
            if constant is not None:
                logical = constant.of(inputs)
            else:
                logical = pack_argument(inputs[b.name], b.name, steps, declared[b.name].layout)
            table.append(aligned_copy(pack(logical, b)))
        ready = _Ready(built, machine.threads, tuple(table))
        plan = ready.plan
        begin = time.perf_counter()
        plan.run([], [])
        seconds = time.perf_counter() - begin
        outputs = {b.name: b for b in s.func.buffers if b.name in s.func.outputs}
        arrays = {b.name: a for b, a in zip(s.func.buffers, table, strict=True)}
        results: dict[str, Array] = {}
        for b in program.outputs:
            array = unpack(arrays[b.name].copy(), outputs[b.name])
            sizes = [e.as_int() for e in b.shape]
            results[b.name] = unpack_argument(array, b.name, sizes, steps, b.layout)
        return results, ready, seconds

    def _run_in_place(
        self, built: _Built, machine: Machine, given: dict[str, Array]
    ) -> tuple[dict[str, Array], _Ready, float]:
        """As :meth:`_run`, of a nest, which changes arrays where they lie."""
        func = built.func
        table = {b.name: aligned_copy(given[b.name]) for b in func.buffers}
        first = None
        if func.inouts:
            copies = _restoring(func)
            if copies not in self._restoring:
                self._restoring.clear()
                self._restoring[copies] = self._compiled(copies, copies, None)
            first = self._restoring[copies], [aligned_copy(given[name]) for name in func.inouts]
        ready = _Ready(built, machine.threads, list(table.values()), first)
        begin = time.perf_counter()
        ready.plan.run([], [])
        seconds = time.perf_counter() - begin
        return {name: table[name].copy() for name in func.outputs}, ready, seconds


def _restoring(func: LoopFunction) -> LoopFunction:
    """Copies of what a nest changes from what it was given."""
    changed = [func.buffer(name) for name in func.inouts]
    given = [b.with_(name=f"{b.name}_given") for b in changed]
    taken = {b.name for b in (*changed, *given)}
    body = seq(*(copy_nest(a.name, b, taken) for a, b in zip(given, changed, strict=True)))
    return LoopFunction("restore", (), (*given, *changed), func.inouts, body)


def _drawn(b: Buffer, rng: np.random.Generator) -> Array:
    """Positive numbers; square matrices have large ones on the diagonal, so that they can be factorised."""
    shape = tuple(e.as_int() for e in b.physical_shape)
    array = np.asarray(rng.uniform(0.5, 1.5, shape).astype(b.dtype.numpy))
    if b.dtype.is_float and len(shape) == 2 and shape[0] == shape[1]:
        array[np.diag_indices(shape[0])] += shape[0]
    return array


def _seconds(plan: ExecutionPlan, seconds: float, enough: float = math.inf) -> list[float]:
    """The shortest runs of a plan's last step, as the runtime itself counts them, the shortest first.

    Where the first ones take longer than ``enough`` there are no others.
    """
    taken = plan.measure([], [], repeats=1)[:, -1] * 1e-9
    if taken[0] >= LONG_RUN:
        return [float(taken[0])]
    taken = np.concatenate([taken, plan.measure([], [], repeats=LEAST_RUNS - 1)[:, -1] * 1e-9])
    first = max(float(taken.min()), 1e-9)
    runs = min(MOST_RUNS, int(seconds / first)) - LEAST_RUNS
    if runs > 0 and first <= enough:
        taken = np.concatenate([taken, plan.measure([], [], repeats=runs)[:, -1] * 1e-9])
    return [max(float(t), 1e-9) for t in np.sort(taken)[:SHORTEST]]


def _refusal(status: Status, error: Exception) -> dict[str, Any]:
    return {"status": status, "reason": (str(error) or type(error).__name__).splitlines()[0]}


def _held_bytes() -> int:
    """Bytes of memory that this process holds; none where that cannot be told."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _differs(results: dict[str, Array], reference: _Reference) -> str:
    """The first result that is not the untuned plan's, up to rounding; empty where all are."""
    terms = reference.terms
    for name, expected in reference.results.items():
        actual = results[name]
        size = np.maximum(np.abs(expected), np.abs(reference.magnitudes[name]))
        found = compare(actual, expected, magnitude=size, terms=terms)
        if not found and name in reference.reals:
            # differences of sums: inputs without their signs do not show how large these are
            found = compare(actual, expected, magnitude=np.maximum(size, reference.sums[name]), terms=terms)
        if not found:
            return (
                f"{name}{list(found.index or ())} is {found.actual:g}, and {found.expected:g} "
                f"by the untuned plan"
            )
    return ""


def _limit_memory(nbytes: int) -> None:
    """No more than so much besides what is mapped already: asking for more fails, and is told."""
    try:
        mapped = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return
    limit = mapped * os.sysconf("SC_PAGE_SIZE") + nbytes
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit if most < 0 else min(limit, most), most))


def _end_with(parent: int) -> None:
    """Have the kernel end this process when the one that started it ends, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def main() -> None:
    """Answer requests until standard input ends."""
    _end_with(int(sys.argv[1]))
    runner = Runner(detect())
    limited = 0
    for line in sys.stdin:
        request = json.loads(line)
        asked = request if request["do"] == "build" else request["candidates"][0]
        if asked["memory"] != limited:
            limited = asked["memory"]
            _limit_memory(limited)
        try:
            answer = runner.answer(request)
        except MemoryError:
            told = {"status": "memory", "reason": f"it takes more than {format_bytes(limited)}"}
            answer = told if request["do"] == "build" else {"trials": [told] * len(request["candidates"])}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
