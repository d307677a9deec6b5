"""The operators, one file a family. Importing the package registers them all."""

from tilewright.graph.ops import (
    activation,
    contraction,
    convolution,
    elementwise,
    indexing,
    movement,
    normalisation,
    pooling,
    quantisation,
    recurrent,
    reduction,
    resize,
    sampling,
    scatter,
    signal,
    static,
)

__all__ = [
    "activation",
    "contraction",
    "convolution",
    "elementwise",
    "indexing",
    "movement",
    "normalisation",
    "pooling",
    "quantisation",
    "recurrent",
    "reduction",
    "resize",
    "sampling",
    "scatter",
    "signal",
    "static",
]
