"""Compiled functions under hostile conditions, in a child process.

Every argument, allocation, workspace and scratch lies against a forbidden page, once with its end and once
with its start; fresh memory is poisoned; parallel loops run in chunks of random sizes and order. The context
that the kernel calls is written here, in Python: what a kernel may assume is what ``tw_runtime.h`` says.
"""

import ctypes
import itertools
import os
import pickle
import random
import signal
import traceback
import warnings
from ctypes import CFUNCTYPE, c_int32, c_int64, c_void_p
from dataclasses import replace

import numpy as np

from tilewright.codegen import compile_ir, emit_kernel, load_object
from tilewright.codegen.refusals import check_kernel
from tilewright.ir import TILE, evaluate_index
from tilewright.lower import lower
from tilewright.runtime import address_of, guarded_array
from tilewright.target import X86_AVX512, detect

HOST = detect()
#: What tests of choices plan for: one table on all machines, whatever caches, rates and vectors these have.
#: Code is made for this one all the same: LLVM halves vectors that are too wide for it.
STATED = replace(
    X86_AVX512,
    instructions=tuple(known for known in X86_AVX512.instructions if known.features <= HOST.features),
)
#: The same with all instructions for lanes that this machine has, at a rate that pays.
_IN_LANES = tuple(known for known in HOST.instructions if known.result.scope != TILE)
LANES = replace(
    STATED,
    features=STATED.features.union(*(known.features for known in _IN_LANES)),
    instructions=tuple(replace(known, per_cycle=STATED.fma_per_cycle) for known in _IN_LANES),
)
#: This machine without tile registers, its instructions for lanes at a rate that pays.
HERE = replace(
    HOST,
    instructions=tuple(replace(known, per_cycle=HOST.fma_per_cycle) for known in _IN_LANES),
    moves=(),
    tiles=0,
)
POISON = 0xA5

_PARALLEL = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_int64)
_ALLOC = CFUNCTYPE(c_void_p, c_void_p, c_int64)
_RELEASE = CFUNCTYPE(None, c_void_p, c_void_p)
_BODY = CFUNCTYPE(None, c_void_p, c_int64, c_int64, c_void_p)
_KERNEL = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)


class _Context(ctypes.Structure):
    _fields_ = (("parallel_for", _PARALLEL), ("alloc", _ALLOC), ("release", _RELEASE))


def _assert_same(got, want, message):
    if got.dtype.isbuiltin != 1:
        # numpy finds no NaN in types that are not its own
        got, want = got.view(f"u{got.itemsize}"), want.view(f"u{got.itemsize}")
    np.testing.assert_array_equal(got, want, err_msg=message)


class Native:
    """A function compiled for this machine; calls run in a child process and return the outputs by name."""

    def __init__(self, func, vector_bits=HOST.preferred_vector_bits, operations=HOST.operations):
        self.func = func
        self.lowered = lower(func, native=HOST.functions)
        check_kernel(self.lowered, triple=HOST.llvm_triple, vector_bits=vector_bits, operations=operations)
        self.text = emit_kernel(
            self.lowered, triple=HOST.llvm_triple, vector_bits=vector_bits, operations=operations
        )
        self._code = load_object(compile_ir(self.text.text, HOST))

    def __call__(self, arrays, params=None, *, seed=0, isolated=True):
        """Run on arrays (physical shapes) by name: first with their ends guarded, then their starts.

        Not ``isolated`` it runs in this process, once: quicker, for code that cannot but stay in bounds.
        """
        params = params or {}
        if not isolated:
            return self._run(arrays, params, seed, True)
        ends, starts = in_child(
            lambda: [self._run(arrays, params, seed + n, at_end) for n, at_end in enumerate((True, False))]
        )
        for name in ends:
            _assert_same(starts[name], ends[name], f"{name} differs between runs")
        return ends

    def _run(self, arrays, params, seed, at_end):
        func, rng = self.func, random.Random(seed)
        table = []
        for b in func.buffers:
            around = b.halo or ((0, 0),) * len(b.physical_shape)
            ends = zip(b.physical_shape, around, strict=True)
            shape = tuple(evaluate_index(e, params) + before + after for e, (before, after) in ends)
            a = _poisoned(shape, b.dtype.numpy, at_end)
            if b.name not in func.outputs:
                a[...] = arrays[b.name]
            table.append(a)
        live = {}

        def parallel_for(_, body, closure, n):
            run = _BODY(body)
            cuts = sorted({0, max(n, 0), *(rng.randint(0, n) for _ in range(rng.randint(0, 3)) if n > 0)})
            chunks = list(itertools.pairwise(cuts))
            rng.shuffle(chunks)
            for begin, end in chunks:
                scratch = _room(self.text.memory.scratch, at_end)
                run(closure, begin, end, address_of(scratch))

        def alloc(_, nbytes):
            a = _room(nbytes, at_end)
            live[address_of(a)] = a
            return address_of(a)

        def release(_, memory):
            del live[memory]

        context = _Context(_PARALLEL(parallel_for), _ALLOC(alloc), _RELEASE(release))
        workspace = _room(self.text.memory.workspace, at_end)
        scratch = _room(self.text.memory.scratch, at_end)
        pointers = (c_void_p * max(1, len(table)))(*map(address_of, table))
        sizes = [params[p.name] for p in func.params]
        values = (c_int64 * max(1, len(sizes)))(*sizes)
        code = _KERNEL(self._code.address(self.text.symbol))(
            ctypes.addressof(context), ctypes.addressof(pointers), ctypes.addressof(values),
            address_of(workspace), address_of(scratch),
        )  # fmt: skip
        assert code == 0, f"the kernel returned {code}"
        assert not live, "memory is not released"
        for b, a in zip(func.buffers, table, strict=True):
            if b.name not in func.outputs:
                _assert_same(a, arrays[b.name], f"input {b.name} was changed")
        return {
            b.name: np.array(a) for b, a in zip(func.buffers, table, strict=True) if b.name in func.outputs
        }


def _poisoned(shape, dtype, at_end):
    a = guarded_array(shape, dtype, at_end=at_end)
    flat = a.reshape(-1).view(np.uint8)
    flat[...] = POISON if dtype != np.bool_ else 1
    return a


def _room(nbytes, at_end):
    """Poisoned bytes, aligned to 64 as the contract says; its size rounded up to that."""
    a = guarded_array(max(64, -(-nbytes // 64) * 64), np.uint8, at_end=at_end, align=64)
    a[...] = POISON
    return a


def in_child(work):
    """The result of ``work``, done in a forked process; otherwise an AssertionError says how it ended."""
    source, sink = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # forking with threads: the child uses none of them
        child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(source)
            with os.fdopen(sink, "wb") as out:
                try:
                    result = (True, work())
                except (Exception, KeyboardInterrupt):  # noqa: BLE001 - reported to the parent
                    result = (False, traceback.format_exc())
                out.write(pickle.dumps(result))
            status = 0
        finally:
            os._exit(status)
    os.close(sink)
    with os.fdopen(source, "rb") as answers:
        content = answers.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise AssertionError(f"the kernel ended by {signal.Signals(os.WTERMSIG(status)).name}")
    good, result = pickle.loads(content)
    assert good, result
    return result
