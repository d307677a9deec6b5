"""Arithmetic rewrites: programs to programs that compute the same numbers in another way."""

from tilewright.lang.algorithms.split_reduction import split_reduction

__all__ = [
    "split_reduction",
]
