"""The process that builds, checks and times candidates for the tuner: one request a line, one answer a line.

It is a process of its own because a candidate may crash it or never end; who started it then kills it and
starts another one. Requests come from the process that tunes, on standard input, as JSON; programs and plans
in them are read like any other text.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Final

import numpy as np

from tilewright.codegen import KernelText, LoadedObject, compile_ir, emit_kernel, load_object
from tilewright.cost import Machine
from tilewright.driver.layouts import Array, pack, unpack
from tilewright.ir import Program, Stage, parse_program
from tilewright.lang import evaluate
from tilewright.lower import lower
from tilewright.plan import build_unit, plan_from_json
from tilewright.runtime import (
    ExecutionPlan,
    PlanBuilder,
    PoolOptions,
    aligned_copy,
    aligned_empty,
    shared_pool,
)
from tilewright.schedule import Schedule, derived_constants, load_trace, pack_argument, unpack_argument
from tilewright.support import TilewrightError, UserError, compare, read_settings
from tilewright.target import Target, detect

#: Seconds for which a candidate is run, at most, and runs at least.
SECONDS: Final = 0.05
LEAST_RUNS: Final = 3
MOST_RUNS: Final = 1000
#: How many of the shortest runs are reported.
SHORTEST: Final = 5
#: Roundings besides those of the longest sum: of what a program computes element by element.
ROUNDINGS: Final = 64


@dataclass(frozen=True, eq=False)
class _Reference:
    """What the ``untuned`` plan gives for the inputs of a program, and the magnitude of what was summed."""

    program: Program
    untuned: Schedule
    inputs: dict[str, Array]
    results: dict[str, Array]
    magnitudes: dict[str, Array]

    @cached_property
    def sums(self) -> dict[str, Array]:
        """Magnitudes of all that was added or subtracted on the way, by the evaluator: slow."""
        return evaluate(self.program, self.inputs, absolute=True)


class Runner:
    """Runs candidates of one program after another, and remembers what each should give."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._references: dict[str, _Reference] = {}
        self._made: tuple[Schedule, KernelText, LoadedObject] | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request: status, reason, seconds."""
        program = parse_program(request["program"])
        machine = Machine(self._target, int(request["threads"]))
        if request["program"] not in self._references:
            untuned = build_unit(program, plan_from_json(request["reference"]), machine)
            self._references[request["program"]] = self._refer(program, untuned, machine)
        reference = self._references[request["program"]]
        try:
            # the untuned plan itself is a candidate: it was built already
            untuned = request["form"] == "plan" and request["candidate"] == request["reference"]
            same = untuned and reference.untuned.source == program
            s = reference.untuned if same else self._schedule(program, request, machine)
        except UserError as error:
            return {"status": "refused", "reason": str(error).splitlines()[0]}
        try:
            results, seconds = self._run(program, s, machine, reference.inputs, timed=True)
        except TilewrightError as error:
            return {"status": "uncompilable", "reason": str(error).splitlines()[0]}
        wrong = _differs(program, results, reference)
        if wrong:
            return {"status": "wrong", "reason": wrong}
        return {"status": "ok", "reason": "", "seconds": seconds}

    def _schedule(self, program: Program, request: dict[str, Any], machine: Machine) -> Schedule:
        if request["form"] == "plan":
            return build_unit(program, plan_from_json(request["candidate"]), machine)
        return Schedule(program, operations=self._target.operations).replay(load_trace(request["candidate"]))

    def _refer(self, program: Program, untuned: Schedule, machine: Machine) -> _Reference:
        rng = np.random.default_rng(0)
        inputs: dict[str, Array] = {}
        for b in program.inputs:
            shape = [e.as_int() for e in b.shape]
            drawn = rng.standard_normal(shape) if b.dtype.is_float else rng.integers(0, 2, shape)
            inputs[b.name] = drawn.astype(b.dtype.numpy)
        results, _ = self._run(program, untuned, machine, inputs)
        whole = {name: np.abs(array) if array.dtype.kind == "f" else array for name, array in inputs.items()}
        magnitudes, _ = self._run(program, untuned, machine, whole)
        return _Reference(program, untuned, inputs, results, magnitudes)

    def _compiled(self, s: Schedule) -> tuple[KernelText, LoadedObject]:
        """The kernel of a schedule. The last one is kept: the untuned plan is run several times."""
        if self._made is None or self._made[0] is not s:
            target = self._target
            made = emit_kernel(
                lower(s.func, native=target.functions),
                triple=target.llvm_triple,
                vector_bits=target.preferred_vector_bits,
                operations=target.operations,
            )
            self._made = (s, made, load_object(compile_ir(made.text, target)))
        return self._made[1:]

    def _run(
        self, program: Program, s: Schedule, machine: Machine, inputs: dict[str, Array], timed: bool = False
    ) -> tuple[dict[str, Array], list[float]]:
        made, code = self._compiled(s)
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
        pool = shared_pool(PoolOptions.of(read_settings(), machine.threads))
        builder = PlanBuilder(pool)
        refs = [builder.constant(array) for array in table]
        builder.step(
            code.address(made.symbol),
            refs,
            [],
            workspace_bytes=made.memory.workspace,
            scratch_bytes=made.memory.scratch,
            name=s.func.name,
            checks=[f"it assumes {condition}" for condition in s.func.assumes],
        )
        plan = builder.build([code, *table])
        plan.run([], [])
        outputs = {b.name: b for b in s.func.buffers if b.name in s.func.outputs}
        arrays = {b.name: a for b, a in zip(s.func.buffers, table, strict=True)}
        results: dict[str, Array] = {}
        for b in program.outputs:
            array = unpack(arrays[b.name].copy(), outputs[b.name])
            sizes = [e.as_int() for e in b.shape]
            results[b.name] = unpack_argument(array, b.name, sizes, steps, b.layout)
        return results, _seconds(plan) if timed else []


def _seconds(plan: ExecutionPlan) -> list[float]:
    """The shortest runs of a plan of one step, as the runtime itself counts them."""
    first = float(plan.measure([], [], repeats=1).min()) * 1e-9
    runs = max(LEAST_RUNS, min(MOST_RUNS, int(SECONDS / max(first, 1e-9))))
    taken = plan.measure([], [], repeats=runs)[:, 0] * 1e-9
    return [float(t) for t in np.sort(taken)[:SHORTEST]]


def _differs(program: Program, results: dict[str, Array], reference: _Reference) -> str:
    """The first result that is not the untuned plan's, up to rounding; empty where all are."""
    terms = ROUNDINGS + sum(_terms(stage) for stage in program.stages)
    for b in program.outputs:
        expected, actual = reference.results[b.name], results[b.name]
        size = np.maximum(np.abs(expected), np.abs(reference.magnitudes[b.name]))
        found = compare(actual, expected, magnitude=size, terms=terms)
        if not found and b.dtype.is_float:
            # differences of sums: inputs without their signs do not show how large these are
            found = compare(actual, expected, magnitude=np.maximum(size, reference.sums[b.name]), terms=terms)
        if not found:
            return (
                f"{b.name}{list(found.index or ())} is {found.actual:g}, and {found.expected:g} "
                f"by the untuned plan"
            )
    return ""


def _terms(stage: Stage) -> int:
    return prod(it.extent.as_int() for it in stage.iters if it.kind == "red")


def main() -> None:
    """Answer requests until standard input ends."""
    runner = Runner(detect())
    for line in sys.stdin:
        answer = runner.answer(json.loads(line))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
