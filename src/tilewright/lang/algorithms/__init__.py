"""Algorithms: rewrites of programs into others that compute the same by different arithmetic."""

from tilewright.lang.algorithms.bf16x3 import SumMatch, bf16x3, bf16x3_error, match_sum, pieces_of
from tilewright.lang.algorithms.storage import large_outputs, largest, store_as
from tilewright.lang.algorithms.strassen import (
    ProductMatch,
    match_product,
    quarter_weights,
    strassen,
    strassen_error,
)
from tilewright.lang.algorithms.winograd import (
    WinogradMatch,
    match_winograd,
    transform_weights,
    winograd,
)
from tilewright.lang.algorithms.winograd_error import winograd_error

__all__ = [
    "ProductMatch",
    "SumMatch",
    "WinogradMatch",
    "bf16x3",
    "bf16x3_error",
    "large_outputs",
    "largest",
    "match_product",
    "match_sum",
    "match_winograd",
    "pieces_of",
    "quarter_weights",
    "store_as",
    "strassen",
    "strassen_error",
    "transform_weights",
    "winograd",
    "winograd_error",
]
