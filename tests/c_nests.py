"""C nests against gcc -O0, which compiles the same text: drawn arguments, called in place, equal bytes.

Real numbers are small multiples of a quarter, so that sums are exact in whatever order.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.frontend.c import CNest, c_nest
from tilewright.ir import LoopFunction, run_function, verify

GCC = shutil.which("gcc")
FLAGS = ("-w", "-fwrapv", "-ffp-contract=off", "-shared", "-fPIC")
_SCALARS = {"f64": ctypes.c_double, "f32": ctypes.c_float}


@dataclass(frozen=True)
class Original:
    """A C function as a compiler made it: ``original(arrays, sizes)`` changes arrays in place."""

    nest: CNest
    library: ctypes.CDLL

    def __call__(self, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> None:
        known = {b.name: b for b in self.nest.arguments.buffers}
        given, outside = [], []
        for name in self.nest.order:
            if name in self.nest.outside:
                held = (ctypes.c_byte * arrays[name].nbytes).in_dll(self.library, name)
                outside.append((held, arrays[name]))
                ctypes.memmove(held, arrays[name].ctypes.data, arrays[name].nbytes)
            elif name not in known:
                given.append(ctypes.c_int64(sizes[name]))
            elif known[name].shape:
                given.append(arrays[name].ctypes.data_as(ctypes.c_void_p))
            else:
                given.append(_SCALARS[str(known[name].dtype)](float(arrays[name])))
        call = getattr(self.library, self.nest.arguments.name)
        if self.nest.result is not None:
            call.restype = np.ctypeslib.as_ctypes_type(known[self.nest.result].dtype.numpy)
        returned = call(*given)
        if self.nest.result is not None:
            arrays[self.nest.result][...] = returned
        for held, array in outside:
            ctypes.memmove(array.ctypes.data, held, array.nbytes)


def original(
    path: Path,
    name: str | None = None,
    *,
    compiler: str | None = None,
    level: str = "-O0",
    library_of: CNest | None = None,
) -> Original:
    """Compile a file as a library of its own, and read its nest, unless it is that of another file."""
    library = path.with_suffix(".so")
    command = [str(compiler or GCC), level, *FLAGS, str(path), "-o", str(library), "-lm"]
    subprocess.run(command, check=True, capture_output=True)
    return Original(library_of or c_nest(path, name), ctypes.CDLL(str(library)))


def drawn(nest: CNest, func: LoopFunction, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Arrays for the arguments of a nest, in memory of their own."""
    out = {}
    for b in func.buffers:
        shape = tuple(e.as_int() for e in b.shape)
        if b.name == nest.result:
            out[b.name] = np.zeros((), b.dtype.numpy)
        elif b.name in nest.contents:
            out[b.name] = nest.contents[b.name].copy()
        elif b.dtype.is_float:
            out[b.name] = (np.asarray(rng.integers(-16, 17, shape)) / 4).astype(b.dtype.numpy)
        else:
            low, high = {"uint": (0, 200), "bool": (0, 2), "int": (-100, 100)}[b.dtype.kind]
            out[b.name] = np.asarray(rng.integers(low, high, shape)).astype(b.dtype.numpy)
    return out


def interpreted(func: LoopFunction, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a nest makes of arrays, by the reference interpreter."""
    verify(func)
    return {**arrays, **run_function(func, {n: a.copy() for n, a in arrays.items()}, {})}


def differences(got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray]) -> list[str]:
    """The arrays that differ in some element; NaN equals itself."""
    return [n for n in want if not np.array_equal(got[n], want[n], equal_nan=want[n].dtype.kind == "f")]
