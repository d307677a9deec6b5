"""Copies from global to shared memory that a thread does not wait for, in CUDA text: ``cp.async``.

PTX ISA, "Data Movement and Conversion Instructions: Non-bulk copy"; devices before ``sm_80`` copy at once.
"""

from __future__ import annotations

from typing import Final

from tilewright.codegen.clike.helpers import Helpers

SIZES: Final = (4, 8, 16)
"""Bytes that one copy moves."""


def copy_function(helpers: Helpers, nbytes: int) -> str:
    """The name of the function that copies so many bytes, by two pointers that are multiples of them."""
    # 16 bytes pass by the first level cache: the tile is read from shared memory from now on
    kept = "cg" if nbytes == 16 else "ca"
    kind = {4: "int", 8: "int2", 16: "int4"}[nbytes]
    lines = [
        f"void tw_copy_{nbytes}(void *to, const void *from) {{",
        "#if __CUDA_ARCH__ >= 800",
        f'    asm volatile("cp.async.{kept}.shared.global [%0], [%1], {nbytes};"',
        '        :: "r"((unsigned int)__cvta_generic_to_shared(to)), "l"(from) : "memory");',
        "#else",
        f"    *({kind} *)to = *(const {kind} *)from;",
        "#endif",
        "}",
    ]
    return helpers.verbatim(f"tw_copy_{nbytes}", "\n".join(lines))


def arrive_function(helpers: Helpers) -> str:
    """The name of the function that waits for the copies that this thread began."""
    lines = [
        "void tw_copies_arrive() {",
        "#if __CUDA_ARCH__ >= 800",
        '    asm volatile("cp.async.wait_all;" ::: "memory");',
        "#endif",
        "}",
    ]
    return helpers.verbatim("tw_copies_arrive", "\n".join(lines))
