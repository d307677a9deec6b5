"""Saved loop nests of fixed sizes: called on arrays in place, without the compiler and what it depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.runtime.executor import ExecutionPlan
from tilewright.runtime.in_place import named_arguments, pointed_at, run_in_place
from tilewright.runtime.manifest import Manifest, NestSignature
from tilewright.runtime.tensors import HoldsCode, TensorInfo
from tilewright.support import InputError, known_names, quoted

Array = npt.NDArray[Any]


class SavedNest(HoldsCode):
    """A loop nest that was compiled and saved before; made by ``tilewright.load``.

    ``nest(A, x, alpha=1.5)``: its arguments in their order, or by name, without the sizes that it was
    compiled for. Arrays are changed in place, as by the nest that was saved.
    """

    def __init__(
        self, manifest: Manifest, signature: NestSignature, plan: ExecutionPlan, *, threads: int
    ) -> None:
        self._plan, self._signature = plan, signature
        self.name = manifest.name
        """The name of the function that the nest was."""
        self.threads = threads
        """Threads that a run uses."""
        self.producer = manifest.producer
        """What wrote the file."""
        self.requires = manifest.requires
        """What the code needs of a machine."""
        self.reads = manifest.inputs
        """Name, dtype and shape of each argument that it only reads."""
        self.writes = tuple(info for info in manifest.outputs if info.name != signature.result)
        """Name, dtype and shape of each array that it changes."""
        self._returned = next((i for i in manifest.outputs if i.name == signature.result), None)
        self._written = manifest.outputs

    @property
    def order(self) -> tuple[str, ...]:
        """The names of the arguments, in their places."""
        return self._signature.order

    def __call__(self, *arguments: object, **named: object) -> object:
        """Run once; what a function of C returns, else ``None``.

        Raises InputError naming what does not fit.
        """
        given = named_arguments(self.name, self.order, arguments, named)
        if strange := next((name for name in given if name not in self.order), None):
            raise InputError(
                f"the nest {quoted(self.name)} has no argument {quoted(strange)}",
                hint=known_names(strange, self.order, "its arguments"),
            )
        arrays = {info.name: self._array(info, given) for info in (*self.reads, *self.writes)}
        returned = np.zeros((), None if self._returned is None else self._returned.dtype)

        def run(table: Mapping[str, Array]) -> None:
            read = [table[info.name] for info in self.reads]
            self._plan.run(read, [table.get(info.name, returned) for info in self._written])

        run_in_place(given, arrays, [info.name for info in self.writes], run)
        return None if self._returned is None else returned.item()

    def _array(self, info: TensorInfo, given: Mapping[str, object]) -> Array:
        if info.name not in given:
            raise InputError(f"the argument {quoted(info.name)} is missing")
        value = given[info.name]
        number = not info.shape and isinstance(value, int | float | np.number)
        array = np.asarray(value, info.dtype) if number else value
        if isinstance(array, np.ndarray) and array.dtype == info.dtype:
            if info.name in self._signature.pointers:
                array = pointed_at(info.name, array, len(info.shape))
                array = array[: info.shape[0]] if array.shape[1:] == info.shape[1:] else array
            if array.shape == info.shape:
                return array
        raise InputError(f"the argument {quoted(info.name)} must be an array {info}")

    def __repr__(self) -> str:
        return f"<SavedNest {self.name!r}: {', '.join(self.order)}>"
