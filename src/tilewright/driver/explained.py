"""What a model was compiled to, told: its groups, what their kernels do, the code, and rows of profiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.build import KernelDescription, UnitKernel, describe, moved_bytes, reduction_length
from tilewright.codegen import emit_c, lower_for_c
from tilewright.cost import Machine
from tilewright.driver.assemble import Steps
from tilewright.driver.limits import Limits
from tilewright.driver.profile import KernelProfile
from tilewright.driver.units import Unit
from tilewright.ir import typical
from tilewright.plan import Reasons, why
from tilewright.support import InputError, known_names, quoted
from tilewright.target import CpuTarget, GpuTarget

Text: TypeAlias = Literal["c", "llvm", "asm"]
TEXTS: Final[tuple[Text, ...]] = ("c", "llvm", "asm")


@dataclass(frozen=True, slots=True, eq=False)
class GroupInfo:
    """One step of a model, for explanations: the model's nodes, their values, and the kernel."""

    index: int
    label: str
    operators: str
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kernel: UnitKernel
    parts: int
    """Calls of the kernel in a run: for parts of the batch, or for steps in time."""
    sliced: frozenset[str] = frozenset()
    """The kernel's arguments of which a call sees its part alone."""

    @property
    def terms(self) -> int:
        """Roundings on the longest way from an input to an output of the group, for error bounds."""
        return reduction_length(self.kernel.program)

    def reasons(self) -> tuple[Reasons, ...]:
        """Why its kernel is made as it is; nothing where it follows no plan (:func:`tilewright.plan.why`)."""
        decided, target = self.kernel.decided(), self.kernel.target
        if decided is None:
            return ()
        assert isinstance(target, CpuTarget | GpuTarget)  # there are no others
        threads, plan = decided
        return why(self.kernel.program, plan, Machine(target, threads))


class Explained(ABC):
    """What every compiled model says of itself, whatever its sizes."""

    threads: int

    @abstractmethod
    def _every_steps(self) -> Sequence[Steps]:
        """What its plans were made of."""

    def _calls(self) -> Iterator[tuple[Unit, UnitKernel]]:
        for steps in self._every_steps():
            yield from zip(steps.units, steps.kernels, strict=True)

    def descriptions(self) -> tuple[KernelDescription, ...]:
        """What the kernel of each step does: algorithm, layouts, register tile and threads."""
        kernels = [kernel for _, kernel in self._calls()]
        made = {id(k): describe(k.schedule, self.threads) for k in set(kernels)}
        return tuple(made[id(kernel)] for kernel in kernels)

    def groups(self) -> tuple[GroupInfo, ...]:
        """The steps of a run in order, each with the nodes it computes and its kernel."""
        return tuple(
            GroupInfo(
                index=at,
                label=unit.label,
                operators=unit.operators,
                nodes=tuple(node.location.name for node in unit.nodes),
                inputs=tuple(unit.inputs.values()),
                outputs=tuple(unit.outputs.values()),
                kernel=kernel,
                parts=typical(unit.calls),
                sliced=unit.partly_seen,
            )
            for at, (unit, kernel) in enumerate(self._calls())
        )

    def explain(self) -> list[dict[str, Any]]:
        """What was compiled, as plain data: one entry a group, its nodes, kernel, algorithm and schedule."""
        return [
            {
                "group": group.index,
                "nodes": list(group.nodes),
                "operators": group.operators,
                "inputs": list(group.inputs),
                "outputs": list(group.outputs),
                "kernel": group.kernel.name,
                **description.as_data(),
                "flops": group.kernel.flops * group.parts,
                "bytes": moved_bytes(group.kernel.program, group.parts, group.sliced),
                "parts": group.parts,
                "workspace_bytes": group.kernel.memory.workspace,
                "scratch_bytes": group.kernel.memory.scratch,
                "schedule": group.kernel.schedule.trace.to_python(),
            }
            for group, description in zip(self.groups(), self.descriptions(), strict=True)
        ]

    def why(self, node: str) -> list[tuple[GroupInfo, tuple[Reasons, ...]]]:
        """Why the kernels that compute a node are made as they are: see :func:`tilewright.plan.why`.

        ``node`` is the name of a node, or of a value that one makes. Raises InputError where the model has
        none of that name, or its kernel follows no plan.
        """
        groups = self.groups()
        found = [each for each in groups if node in each.nodes or node in each.outputs]
        if not found:
            names = [name for each in groups for name in each.nodes]
            raise InputError(
                f"no kernel computes a node {quoted(node)}", hint=known_names(node, names, "the nodes")
            )
        out = []
        for each in found:
            if each.kernel.decided() is None:
                raise InputError(
                    f"the kernel of {quoted(node)} has no plan: its sizes are open, or its schedule was given"
                )
            out.append((each, each.reasons()))
        return out

    @property
    def views(self) -> Mapping[str, str]:
        """Values that are another value's buffer under another shape, with that other value."""
        return {view: steps.root(view) for steps in self._every_steps() for view in steps.views}

    def emit(self, form: Text = "c") -> str:
        """The kernels in the order in which they first run: as ``c``, ``llvm`` (after its passes) or ``asm``.

        Raises InputError for another form, TargetError for one that the machine does not have, and where a
        kernel uses instructions that C does not have.
        """
        return kernel_texts(list(dict.fromkeys(kernel for _, kernel in self._calls())), form)

    def c_source(self) -> str:
        """The kernels as one file of C99 with pragmas of OpenMP, in the order in which they first run."""
        return self.emit("c")


def kernel_texts(kernels: Sequence[UnitKernel], form: Text) -> str:
    """Kernels in one text: see :meth:`CompiledModel.emit`.

    Raises InputError for a form that there is not, TargetError for one that the machine does not have.
    """
    if form == "c":
        lowered = [
            replace(lower_for_c(kernel.loops(), kernel.schedule.operations), name=kernel.name)
            for kernel in kernels
        ]
        return emit_c(*lowered).text
    if form not in TEXTS:
        raise InputError(f"there is no form {form!r}", hint=f"it is one of {', '.join(TEXTS)}")
    return "\n".join(kernel.code_text(form) for kernel in kernels)


def profile_row(
    index: int,
    unit: Unit,
    kernel: UnitKernel,
    description: KernelDescription,
    nanoseconds: npt.NDArray[Any],
    work: tuple[int, int],
    limits: Limits | None,
) -> KernelProfile:
    """The row of a unit whose calls took so long in each run; ``work`` are its operations and bytes.

    With limits: beside the least seconds for these, all its calls together.
    """
    flops, nbytes = work
    instruction = next(iter(description.instructions), None)
    return KernelProfile(
        index=index,
        kernel=kernel.name,
        nodes=tuple(node.location.name for node in unit.nodes),
        operators=unit.operators,
        milliseconds=float(np.median(nanoseconds)) / 1e6,
        fastest=float(nanoseconds.min()) / 1e6,
        flops=flops,
        nbytes=nbytes,
        algorithm=description.algorithm,
        limit=None if limits is None else limits.seconds(flops, nbytes, instruction) * 1e3,
    )
