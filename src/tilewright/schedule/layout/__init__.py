"""Layout primitives: they re-index a tensor of a program and rebuild the axes of the stage that defines it.

The primitives of ALT (Table 1 and Sec. 6), in the program phase. A tensor's shape changes, every access to
it is rewritten, and the stage that defines it gets one parallel axis for each new dimension, so that loops
follow the layout. For arguments (inputs and outputs) the *caller's* array must then have the new shape:
:func:`~tilewright.schedule.layout.arrays.pack_argument` and ``unpack_argument`` convert; weights are packed
once, at compile time.
"""
