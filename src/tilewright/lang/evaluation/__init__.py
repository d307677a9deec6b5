"""Numpy reference evaluation of programs."""

from tilewright.lang.evaluation.evaluate import (
    evaluate as evaluate,
    infer_params as infer_params,
    roundings as roundings,
)
