"""Loop nests in C: functions of loops over arrays, or what ``#pragma scop`` marks in them."""

from tilewright.frontend.c.nest import (
    CNest as CNest,
    c_nest as c_nest,
    read_c as read_c,
    read_c_file as read_c_file,
)
