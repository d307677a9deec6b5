"""Algorithms: rewrites of programs into others that compute the same by different arithmetic."""

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
    "WinogradMatch",
    "large_outputs",
    "largest",
    "match_product",
    "match_winograd",
    "quarter_weights",
    "store_as",
    "strassen",
    "strassen_error",
    "transform_weights",
    "winograd",
    "winograd_error",
]
