"""Loop nests in C: the statements between ``#pragma scop`` and ``#pragma endscop`` of one function."""

from tilewright.frontend.c.preprocess import Preprocessor
from tilewright.frontend.c.reader import read_c, read_c_file

__all__ = ["Preprocessor", "read_c", "read_c_file"]
