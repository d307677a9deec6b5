"""Operators taken apart into simpler ones, one file a family. Importing the package registers them all."""

from tilewright.graph.decompositions import (
    activations,
    attention,
    convolutions,
    distinct,
    normalisations,
    old_forms,
    products,
    quantised,
    quantised_recurrent,
    recurrent,
    scores,
    selection,
    tables,
    trees,
)

__all__ = [
    "activations",
    "attention",
    "convolutions",
    "distinct",
    "normalisations",
    "old_forms",
    "products",
    "quantised",
    "quantised_recurrent",
    "recurrent",
    "scores",
    "selection",
    "tables",
    "trees",
]
