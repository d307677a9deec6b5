"""One scheduled function as a callable native kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tilewright.codegen import compile_ir, emit_kernel, load_object
from tilewright.ir import LoopFunction, Param, Program, evaluate_index, to_function
from tilewright.lower import lower
from tilewright.runtime import (
    ALIGNMENT,
    ExecutionPlan,
    PlanBuilder,
    PoolOptions,
    address_of,
    aligned_copy,
    aligned_empty,
    shared_pool,
)
from tilewright.schedule import Schedule
from tilewright.support import InputError, known_names, quoted, read_settings
from tilewright.target import Target, detect

Array = npt.NDArray[np.generic]


class Kernel:
    """A compiled function, called with one array per argument buffer whose contents it reads.

    ``kernel(A, B)`` or ``kernel(A=..., B=...)`` returns the list of its outputs; those of in-out arguments
    are new arrays, what was given stays (:meth:`run` changes arrays in place). Symbolic sizes are
    taken from the arrays' shapes, from dimensions such as ``H`` or ``2*H + 4``. Raises InputError for
    arrays of the wrong shape or dtype.
    """

    def __init__(self, func: LoopFunction, target: Target, threads: int | None = None) -> None:
        self.func = func
        self.target = target
        self.lowered = lower(func, native=target.functions)
        self.text = emit_kernel(
            self.lowered,
            triple=target.llvm_triple,
            vector_bits=target.preferred_vector_bits,
            operations=target.operations,
        )
        self._code = load_object(compile_ir(self.text.text, target))
        self._pool = shared_pool(PoolOptions.of(read_settings(), threads))

    def __call__(self, *arrays: Array, **named: Array) -> list[Array]:
        """Run on the inputs in order, or by name."""
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
            name: _array(name, a) for name, a in (dict(zip(names, arrays, strict=False)) | named).items()
        }
        sizes = self.sizes(given)
        table: list[Array] = []
        for b in func.buffers:
            shape = tuple(evaluate_index(e, sizes) for e in b.physical_shape)
            if b.name not in names:
                table.append(aligned_empty(shape, b.dtype.numpy))
                continue
            a = given.get(b.name)
            if a is None:
                raise InputError(f"input {quoted(b.name)} is missing")
            if a.shape != shape or a.dtype != b.dtype.numpy:
                raise InputError(
                    f"input {quoted(b.name)} must be {b.dtype} of shape {list(shape)}, got {a.dtype} "
                    f"of shape {list(a.shape)}"
                )
            plain = (
                b.name not in func.outputs
                and a.flags.c_contiguous
                and (not a.nbytes or address_of(a) % ALIGNMENT == 0)
            )
            table.append(a if plain else aligned_copy(a))
        self.run(table, [sizes[p.name] for p in func.params])
        return [a for a, b in zip(table, func.buffers, strict=True) if b.name in func.outputs]

    def run(self, table: Sequence[Array], params: Sequence[int] = ()) -> None:
        """Run on the arrays of all argument buffers, outputs written in place."""
        self.plan(table, params).run([], [])

    def plan(self, table: Sequence[Array], params: Sequence[int] = ()) -> ExecutionPlan:
        """An execution plan of this one kernel over the given arrays (for timing)."""
        builder = PlanBuilder(self._pool)
        refs = [builder.constant(a) for a in table]
        builder.step(
            self._code.address(self.text.symbol),
            refs,
            list(params),
            workspace_bytes=self.text.memory.workspace,
            scratch_bytes=self.text.memory.scratch,
            name=self.func.name,
            checks=[f"it assumes {condition}" for condition in self.func.assumes],
        )
        return builder.build([self, *table])

    def sizes(self, given: Mapping[str, Array], stated: Mapping[str, int] | None = None) -> dict[str, int]:
        """The values of the symbolic sizes: ``stated`` ones, others from the shapes of arrays by name.

        Raises InputError for a size that no shape shows, or that is out of its range.
        """
        sizes: dict[str, int] = dict(stated or {})
        for b in self.func.buffers:
            a = given.get(b.name)
            if a is None:
                continue
            for extent, n in zip(b.physical_shape, a.shape, strict=False):
                if len(extent.terms) != 1:
                    continue
                ((atom, scale),) = extent.terms
                value, left = divmod(int(n) - extent.const, scale)
                if isinstance(atom, Param) and not left:
                    sizes.setdefault(atom.name, value)
        for p in self.func.params:
            if p.name not in sizes:
                raise InputError(
                    f"the size {p.name} cannot be read off any input's shape",
                    hint="a dimension of some input must be that size, or a multiple of it plus a number",
                )
            if not (p.lo <= sizes[p.name] <= p.hi) or sizes[p.name] % p.multiple_of:
                raise InputError(
                    f"the size {p.name} = {sizes[p.name]} is not a multiple of {p.multiple_of} in "
                    f"[{p.lo}, {p.hi}]"
                )
        return sizes


def _array(name: str, given: object) -> Array:
    try:
        return given if isinstance(given, np.ndarray) else np.asarray(given)
    except (ValueError, TypeError) as error:
        raise InputError(f"input {quoted(name)} cannot be made an array: {error}") from None


def build(
    source: Program | LoopFunction | Schedule, *, target: Target | None = None, threads: int | None = None
) -> Kernel:
    """Compile a program, loop function or schedule as it stands (no strategy) into a callable kernel."""
    if isinstance(source, Schedule):
        func = source.func
    elif isinstance(source, Program):
        func = to_function(source)
    else:
        func = source
    return Kernel(func, target or detect(), threads)
