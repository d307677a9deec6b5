"""Functions printed as C, compiled by the system's compiler and called."""

import ctypes
import tempfile
from pathlib import Path

import numpy as np

from tilewright.codegen import emit_c, link_shared, lower_for_c
from tilewright.ir import evaluate_index
from tilewright.runtime import aligned_copy


class CKernel:
    """A function compiled through C; calls return the outputs by name."""

    def __init__(self, func, *, openmp=False):
        self.func = func
        self.source = emit_c(lower_for_c(func), openmp=openmp)
        with tempfile.TemporaryDirectory() as folder:
            path = link_shared(
                [],
                Path(folder, "kernel.so"),
                files={"kernel.c": [self.source.text.encode()]},
                flags=["-std=c99", "-fvisibility=default", *(["-fopenmp"] if openmp else [])],
            )
            self._library = ctypes.CDLL(str(path))
        self._call = self._library[self.source.symbol]
        self._call.restype = ctypes.c_int32

    def __call__(self, arrays, params=None):
        params = params or {}
        table = []
        for b in self.func.buffers:
            shape = tuple(evaluate_index(e, params) for e in b.physical_shape)
            given = np.zeros(shape, b.dtype.numpy) if b.name in self.func.outputs else arrays[b.name]
            assert given.shape == shape and given.dtype == b.dtype.numpy
            table.append(aligned_copy(given))
        code = self._call(
            *(ctypes.c_void_p(a.ctypes.data) for a in table),
            *(ctypes.c_int64(params[p.name]) for p in self.func.params),
        )
        assert code == 0, f"the kernel returned {code}"
        return {
            b.name: a for b, a in zip(self.func.buffers, table, strict=True) if b.name in self.func.outputs
        }
