"""Algorithms: rewrites of programs into others that compute the same by different arithmetic."""

from tilewright.lang.algorithms.bf16x3 import (
    SumMatch as SumMatch,
    bf16x3 as bf16x3,
    bf16x3_error as bf16x3_error,
    match_sum as match_sum,
    pieces_of as pieces_of,
)
from tilewright.lang.algorithms.storage import (
    large_outputs as large_outputs,
    largest as largest,
    store_as as store_as,
)
from tilewright.lang.algorithms.strassen import (
    ProductMatch as ProductMatch,
    match_product as match_product,
    quarter_weights as quarter_weights,
    strassen as strassen,
    strassen_error as strassen_error,
)
from tilewright.lang.algorithms.winograd import (
    WinogradMatch as WinogradMatch,
    match_winograd as match_winograd,
    transform_weights as transform_weights,
    winograd as winograd,
)
from tilewright.lang.algorithms.winograd_error import winograd_error as winograd_error
