"""Loop nests in C: functions of loops over arrays, or what ``#pragma scop`` marks in them."""

from tilewright.frontend.c.nest import CNest, c_nest, read_c, read_c_file
from tilewright.frontend.c.reader import SIZE_OF

__all__ = ["SIZE_OF", "CNest", "c_nest", "read_c", "read_c_file"]
