"""Saving nests of fixed sizes: the kernel, arrays that the file has, and how it is called, in one file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.build import Array, Kernel
from tilewright.driver.save import Described, Library, Weights, save_model
from tilewright.runtime import (
    OUTPUT,
    BufferRef,
    NestSignature,
    PlanBuilder,
    PoolOptions,
    TensorInfo,
    aligned_copy,
    shared_pool,
    tensor_bytes,
)
from tilewright.support import read_settings


def save_nest(
    kernel: Kernel,
    path: str | os.PathLike[str],
    order: Sequence[str],
    pointers: Sequence[str],
    contents: Mapping[str, Array],
    result: str | None,
) -> None:
    """Write a kernel without sizes as a nest that ``tilewright.load`` calls on arrays in place.

    ``order`` are the arguments in their places, of which ``pointers`` may be longer; those of ``contents``
    are constants, ``result`` is the one that is returned. Raises what saving a model does.
    """
    func = kernel.func
    infos = {
        b.name: TensorInfo(b.name, b.dtype.numpy, tuple(e.as_int() for e in b.physical_shape))
        for b in func.buffers
    }
    written = tuple(infos[name] for name in func.outputs)
    read = tuple(i for i in infos.values() if i not in written and i.name not in contents)
    builder = PlanBuilder(shared_pool(PoolOptions.of(read_settings(), kernel.threads)))
    refs = {i.name: builder.input(tensor_bytes(i)) for i in read}
    refs |= {i.name: builder.output(tensor_bytes(i)) for i in written}
    refs |= {name: builder.constant(aligned_copy(array)) for name, array in contents.items() if name in infos}
    kernel.add_to(builder, [refs[b.name] for b in func.buffers], ())
    plan = builder.build([kernel.code])
    library, weights = Library(), Weights()
    calls = library.calls(plan.contents.steps, [kernel])
    results = tuple(BufferRef(OUTPUT, n, 0, tensor_bytes(info)) for n, info in enumerate(written))
    said = Described(func.name, kernel.target, read, written, {})
    manifest = said.manifest_of_cpu(plan, calls, weights.place(plan.contents.constants), results)
    signature = NestSignature(tuple(name for name in order if name in infos), tuple(pointers), result)
    save_model(replace(manifest, nest=signature), library, weights, path)
