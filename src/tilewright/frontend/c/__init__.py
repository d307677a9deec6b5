"""Loop nests in C: functions of loops over arrays, or what ``#pragma scop`` marks in them."""

from tilewright.frontend.c.nest import CNest, c_nest, read_c, read_c_file

__all__ = ["CNest", "c_nest", "read_c", "read_c_file"]
