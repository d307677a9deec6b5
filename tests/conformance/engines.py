"""How the node tests run a model: by the reference evaluation of its groups, or compiled to native code."""

from __future__ import annotations

import numpy as np
import onnx

import tilewright
from conformance.node_cases import Arrays
from model_cases import run_partition
from tilewright.frontend import import_onnx
from tilewright.graph import fuse, simplify


def reference(model: onnx.ModelProto, feeds: Arrays, constants: Arrays) -> list[np.ndarray]:
    """Import, simplify, fuse, and evaluate each group's program by numpy."""
    shapes = {name: array.shape for name, array in feeds.items()}
    partition = fuse(simplify(import_onnx(model, shapes=shapes, constants=constants)))
    found = run_partition(partition, feeds)
    return [found[value.name] for value in model.graph.output]


def compiled(model: onnx.ModelProto, feeds: Arrays, constants: Arrays) -> list[np.ndarray]:
    """Compile the model and run it."""
    shapes = {name: array.shape for name, array in feeds.items()}
    return tilewright.compile(model, shapes=shapes, constants=constants, threads=1).run(None, feeds)
