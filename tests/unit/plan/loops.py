"""What tests ask of the loops that a plan became, whatever these are called."""


def along(s, block, axis=None):
    """The loops around a block that feed one of its iterators, by name or number, outermost first."""
    found = s.block(block)
    names = [it.name for it in found.iters]
    bound = found.bind[names.index(axis) if isinstance(axis, str) else axis]
    return [loop for loop in s.loops(block) if loop in bound.vars]


def accumulates(s):
    """Whether tiles of some result are loaded into registers, added to, and stored again."""
    return any(name.endswith("_register") for name in s.blocks())


def extent(s, loop):
    """Iterations of a loop."""
    return s.loop(loop).extent.as_int()
