"""Algorithms: rewrites of programs into others that compute the same by different arithmetic."""

from tilewright.lang.algorithms.storage import store_as
from tilewright.lang.algorithms.winograd import (
    WinogradMatch,
    match_winograd,
    transform_weights,
    winograd,
)
from tilewright.lang.algorithms.winograd_error import winograd_error

__all__ = ["WinogradMatch", "match_winograd", "store_as", "transform_weights", "winograd", "winograd_error"]
