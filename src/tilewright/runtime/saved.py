"""Saved models: loading and running them, without the compiler and what it depends on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tilewright.runtime import native
from tilewright.runtime.bound import BoundModel, RunsOnArrays, bound_feeds
from tilewright.runtime.code import SharedCode
from tilewright.runtime.container import MAGIC, open_container
from tilewright.runtime.executor import ExecutionPlan, PlanContents
from tilewright.runtime.manifest import CODE, WEIGHTS, Manifest, Requirements, kernel_symbol, read_manifest
from tilewright.runtime.memory import aligned_empty
from tilewright.runtime.pool import pool_for
from tilewright.runtime.results import Results
from tilewright.runtime.tensors import HoldsCode, checked_feeds, checked_names, draw_feeds, named_feeds
from tilewright.support import (
    ArtefactError,
    InputError,
    ResourceError,
    Settings,
    TargetError,
    WaitPolicy,
    format_bytes,
    quoted_path,
    read_settings,
)
from tilewright.target import Target, detect

Array = npt.NDArray[Any]


class RunnablePlan(Protocol):
    """A plan, on a CPU or a device, as a saved model needs it."""

    @property
    def outputs(self) -> tuple[int, ...]:
        """Bytes of each output."""

    @property
    def run_bytes(self) -> int:
        """Bytes that a run works on."""

    @property
    def step_names(self) -> tuple[str, ...]:
        """The name of each step."""

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run once."""

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> RunsOnArrays:
        """Runs on these very arrays."""

    def measure(
        self, inputs: Sequence[Array], outputs: Sequence[Array], *, repeats: int = 1
    ) -> npt.NDArray[np.int64]:
        """Nanoseconds of each step."""

    def trim(self) -> None:
        """Free the memory kept for runs to come."""


class SavedModel(HoldsCode):
    """A model that was compiled and saved before; made by ``tilewright.load``.

    Call it with arrays, or use :meth:`run`. Any number of Python threads may run one model at once: each run
    has memory of its own, and the GIL is released meanwhile.
    """

    def __init__(
        self, manifest: Manifest, plan: RunnablePlan, weights: Sequence[Array], *, threads: int
    ) -> None:
        self.threads = threads
        """Threads that a run uses; on a device that of the caller, which only starts kernels."""
        self._manifest = manifest
        self._plan = plan
        self._weights = tuple(weights)
        self._results = Results([(np.dtype(np.uint8), (size,)) for size in plan.outputs])
        self.name = manifest.name
        """The model's name, as it says itself."""
        self.producer = manifest.producer
        """What wrote the file."""
        self.requires = manifest.requires
        """What the code needs of a machine."""
        self.inputs = manifest.inputs
        """Name, dtype and shape of each input."""
        self.outputs = manifest.outputs
        """Name, dtype and shape of each output."""

    @property
    def run_bytes(self) -> int:
        """Bytes of intermediate memory of one run."""
        return self._plan.run_bytes

    @property
    def constant_bytes(self) -> int:
        """Bytes of weights, mapped from the file."""
        return sum(array.nbytes for array in self._weights)

    @property
    def step_names(self) -> tuple[str, ...]:
        """The nodes that each step of a run computes, by their names in the model."""
        return self._plan.step_names

    def __call__(self, *arrays: Array) -> list[Array]:
        """Run on one array an input, in order; returns all outputs in order. Raises what :meth:`run` does."""
        return self.run(None, named_feeds(arrays, self.inputs))

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Array]:
        """The named outputs (``None``: all, in order) for the given inputs by name.

        Arrays must have exactly the dtypes and shapes of :attr:`inputs`; any strides will do. The results are
        new arrays, bit for bit those of the model that was saved. Raises InputError naming the input or
        output that does not fit, ResourceError where there is no memory.
        """
        wanted = checked_names(output_names, self.outputs)
        inputs = list(checked_feeds(feeds, self.inputs).values())
        made = self._results.take()
        self._plan.run(inputs, made)
        numbers = {info.name: at for at, info in enumerate(self.outputs)}
        given: set[int] = set()
        return [self._result(numbers[name], inputs, made, given) for name in wanted]

    def bind(self, feeds: Mapping[str, Array]) -> BoundModel:
        """Runs on these very arrays, whose contents may change between runs: ``bind(feeds).run()``.

        The arrays are checked once. The results of a run are overwritten by the next one. Raises InputError
        naming the input that does not fit or does not lie row by row in memory, ResourceError where there is
        no memory.
        """
        inputs = list(bound_feeds(feeds, self.inputs).values())
        made = [aligned_empty((size,), np.uint8) for size in self._plan.outputs]

        def results() -> list[Array]:
            given: set[int] = set()
            return [self._result(at, inputs, made, given) for at in range(len(self.outputs))]

        return BoundModel(self._plan.bind(inputs, made), results)

    def measure(self, feeds: Mapping[str, Array], repeats: int = 20) -> npt.NDArray[np.int64]:
        """Nanoseconds of each step in ``repeats`` runs after one to warm up, of shape (repeats, steps).

        Raises what :meth:`run` raises.
        """
        inputs = list(checked_feeds(feeds, self.inputs).values())
        made = self._results.take()
        self._plan.run(inputs, made)
        return self._plan.measure(inputs, made, repeats=repeats)

    def sample_feeds(self, seed: int = 0) -> dict[str, Array]:
        """Random inputs: normal numbers, indices within the tables that they index."""
        return draw_feeds(self.inputs, self._manifest.index_bounds, seed)

    def trim(self) -> None:
        """Free the memory kept for runs to come."""
        self._results.trim()
        self._plan.trim()

    def __repr__(self) -> str:
        takes = ", ".join(map(str, self.inputs))
        gives = ", ".join(map(str, self.outputs))
        return f"<SavedModel {self.name!r}: ({takes}) -> ({gives}), {len(self.step_names)} steps>"

    def _result(self, at: int, inputs: Sequence[Array], made: Sequence[Array], given: set[int]) -> Array:
        """An output as an array of its own. ``given`` are the plan's outputs that have been handed out."""
        info, place = self.outputs[at], self._manifest.results[at]
        if place.kind == native.OUTPUT:
            raw = made[place.index].copy() if place.index in given else made[place.index]
            given.add(place.index)
        else:
            source = inputs if place.kind == native.INPUT else self._weights
            raw = source[place.index].reshape(-1).view(np.uint8).copy()
        return raw.view(info.dtype).reshape(info.shape)


@dataclass(frozen=True, slots=True, eq=False)
class OpenedModel:
    """The file of a saved model: what it says, its sections, and its constants, mapped from it.

    ``shown`` names the file in messages.
    """

    manifest: Manifest
    sections: Mapping[str, memoryview]
    weights: tuple[Array, ...]
    shown: str


def open_saved_model(path: str | os.PathLike[str], *, verify: bool = True) -> OpenedModel:
    """Open a file and check all that it says. Raises ArtefactError for one that is damaged."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"a saved model is given by its path, not by {type(path).__name__}")
    file = Path(path)
    shown = quoted_path(file)
    container = open_container(file, verify=verify)
    manifest = read_manifest(container.manifest, shown)
    weights = _weights(manifest, container.sections, shown)
    return OpenedModel(manifest, container.sections, weights, shown)


def load_opened(
    opened: OpenedModel,
    *,
    threads: int | None = None,
    wait_policy: WaitPolicy | str | None = None,
    settings: Settings | None = None,
) -> SavedModel:
    """A model for CPUs, ready to run. Raises what loading it raises (``tilewright.load``)."""
    options = read_settings() if settings is None else settings
    manifest, weights, shown = opened.manifest, opened.weights, opened.shown
    check_machine(manifest.requires, shown)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if threads is not None and type(threads) is not int:
        raise InputError(f"threads must be a whole number from 1, got {threads!r}")
    count = options.threads or manifest.threads if threads is None else threads
    pool = pool_for(options, count, wait_policy)
    needed = manifest.arena_bytes + manifest.workspace_bytes + manifest.scratch_bytes * pool.threads
    if needed > memory:
        raise ResourceError(
            f"one run of {shown} would take {format_bytes(needed)}; there are {format_bytes(memory)}"
        )
    code = SharedCode(opened.sections.get(CODE, memoryview(b"")), shown)
    calls = [replace(call, kernel=code.address(kernel_symbol(call.kernel))) for call in manifest.calls]
    contents = PlanContents(
        inputs=manifest.plan_inputs,
        outputs=manifest.plan_outputs,
        param_count=0,
        constants=weights,
        steps=tuple(calls),
        arena_bytes=manifest.arena_bytes,
        workspace_bytes=manifest.workspace_bytes,
        scratch_bytes=manifest.scratch_bytes,
        checks=manifest.checks,
        copies=manifest.copies,
    )
    return SavedModel(manifest, ExecutionPlan(pool, contents, [code]), weights, threads=pool.threads)


def is_saved_model(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as those of ``CompiledModel.save`` do."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def check_machine(requires: Requirements, shown: str, host: Target | None = None) -> None:
    """That the code can run on this machine (or ``host``). Raises ArtefactError saying what it lacks."""
    try:
        machine = detect() if host is None else host
    except TargetError as error:
        raise ArtefactError(f"{shown} cannot run here: {error.what}") from None
    hint = "compile the model again on this machine"
    if machine.arch != requires.arch:
        raise ArtefactError(f"{shown} is for {requires.arch}, this machine is {machine.arch}", hint=hint)
    if lacking := sorted(set(requires.features) - machine.features):
        raise ArtefactError(f"{shown} needs CPU features this machine lacks: {', '.join(lacking)}", hint=hint)


def _weights(manifest: Manifest, sections: Mapping[str, memoryview], shown: str) -> tuple[Array, ...]:
    """The constants as arrays of bytes in the mapped file."""
    content = sections.get(WEIGHTS, memoryview(b""))
    if any(offset + nbytes > len(content) for offset, nbytes in manifest.constants):
        raise ArtefactError(f"{shown} does not hold all of its weights", hint="save the model again")
    whole = np.ndarray(len(content), np.uint8, buffer=content)
    return tuple(whole[offset : offset + nbytes] for offset, nbytes in manifest.constants)
