"""Small functions written out as text, from ``X`` to ``C``: nests with which no program begins."""

from tilewright.ir import parse_function
from tilewright.schedule import Schedule


def written(body, size, buffers="T"):
    """A schedule of a function on arguments of so many elements.

    ``buffers`` are those beside them: the name of one as large, or their text.
    """
    head = f'function("f", outputs=[C])\nX = f32[{size}]\nC = f32[{size}]\n'
    own = f"{buffers} = alloc(f32[{size}])\n" if buffers.isidentifier() else buffers
    return Schedule(parse_function(head + own + body.strip("\n")))


def copy(block, target, source, loop, *, extent=4, at="i", bind=None, indent=0):
    """A loop around a block that assigns one buffer."""
    lines = [
        f"for {loop} in range({extent}):",
        f'    with block("{block}"):',
        f"        i = par(0, {extent}, {bind or loop})",
        f"        {target}[{at}] = {source}",
    ]
    return "".join(" " * indent + line + "\n" for line in lines)
