"""Copies from global to shared memory that a thread does not wait for, in CUDA text: ``cp.async``.

PTX ISA, "Data Movement and Conversion Instructions: Non-bulk copy"; devices before ``sm_80`` copy at once.
"""

from __future__ import annotations

from typing import Final

from tilewright.codegen.clike.helpers import Helpers

SIZES: Final = (4, 8, 16)
"""Bytes that one copy moves."""


def copy_function(helpers: Helpers, nbytes: int, guarded: bool = False) -> str:
    """The name of the function that copies so many bytes, by two pointers that are multiples of them.

    One that is ``guarded`` also takes a condition; where it does not hold nothing is read, and zeros arrive.
    """
    # 16 bytes pass by the first level cache: the tile is read from shared memory from now on
    kept = "cg" if nbytes == 16 else "ca"
    kind = {4: "int", 8: "int2", 16: "int4"}[nbytes]
    name = f"tw_copy_{nbytes}{'_if' if guarded else ''}"
    value, arguments, size, operand = f"*(const {kind} *)from", "void *to, const void *from", "", ""
    if guarded:
        zeros = {4: "0", 8: "make_int2(0, 0)", 16: "make_int4(0, 0, 0, 0)"}[nbytes]
        value, arguments = f"there ? {value} : {zeros}", f"{arguments}, bool there"
        size, operand = ", %2", f', "r"(there ? {nbytes} : 0)'
    lines = [
        f"void {name}({arguments}) {{",
        "#if __CUDA_ARCH__ >= 800",
        f'    asm volatile("cp.async.{kept}.shared.global [%0], [%1], {nbytes}{size};"',
        f'        :: "r"((unsigned int)__cvta_generic_to_shared(to)), "l"(from){operand} : "memory");',
        "#else",
        f"    *({kind} *)to = {value};",
        "#endif",
        "}",
    ]
    return helpers.verbatim(name, "\n".join(lines))


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
