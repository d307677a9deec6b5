"""Graphs of torch: ATen operators with fake tensors, read as typed graphs. An extra."""

from tilewright.frontend.torch.dtypes import DTYPES, as_array, as_tensor, tensor_type
from tilewright.frontend.torch.open import OpenModule
from tilewright.frontend.torch.reader import Input, Output, ReadModule, Refusal, read_module
from tilewright.frontend.torch.sizes import size_of
from tilewright.frontend.torch.table import TABLE, VIEWS, decompositions, rule_of

__all__ = [
    "DTYPES",
    "TABLE",
    "VIEWS",
    "Input",
    "OpenModule",
    "Output",
    "ReadModule",
    "Refusal",
    "as_array",
    "as_tensor",
    "decompositions",
    "read_module",
    "rule_of",
    "size_of",
    "tensor_type",
]
