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
    graph = import_onnx(model, shapes=shapes, constants=constants)
    held = {}
    for name, texts in graph.texts.items():
        if name in feeds:
            numbers = {text: at for at, text in enumerate(texts)}
            given = [numbers.get(text, -1) for text in feeds[name].ravel()]
            held[name] = np.array(given).reshape(feeds[name].shape)
    found = run_partition(fuse(simplify(graph)), {**feeds, **held})
    names = [value.name for value in model.graph.output]
    found |= {name: np.array(graph.texts[name], object)[found[name]] for name in names if name in graph.texts}
    return [found[name] for name in names]


def compiled(model: onnx.ModelProto, feeds: Arrays, constants: Arrays) -> list[np.ndarray]:
    """Compile the model and run it."""
    shapes = {name: array.shape for name, array in feeds.items()}
    return tilewright.compile(model, shapes=shapes, constants=constants, threads=1).run(None, feeds)
