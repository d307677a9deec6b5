"""Numpy reference evaluation of programs."""

from tilewright.lang.evaluation.evaluate import evaluate, infer_params, roundings

__all__ = [
    "evaluate",
    "infer_params",
    "roundings",
]
