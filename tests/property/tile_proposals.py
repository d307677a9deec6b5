"""Legal-looking steps towards instructions on tiles: sums of products in parts, and what moves the parts.

Each proposer tells from the loops around a sum how far it has come: its parts are cut (``tile``, ``split``),
its results staged in tiles, the loops of a part put inside (``reorder``), its initialisation taken out, and
the three nests of a tile, cleared, summed up and stored, become instructions.
"""

from hypothesis import strategies as st

from property.program_proposals import pick
from property.proposals import feeds, instruction_of
from tilewright.ir import TILE, Const, For, Load, Store, blocks, buffers_of
from tilewright.target.x86_amx import INSTRUCTIONS, ROWS

#: Products of tiles by the element types of their factors in order, as those of lanes have them.
PRODUCTS = {tuple(sorted((known.a.dtype.name, known.b.dtype.name))): known for known in INSTRUCTIONS}


def _sums(s, kinds):
    """Sums of products in perfect nests of serial loops over axes of these kinds: ``p`` par, ``r`` red."""
    for place in blocks(s.func.body):
        block, loops = place.node, place.loops
        if not block.is_reduction or instruction_of(block) is None or block.where:
            continue
        if "".join(_kind(loop) for loop in loops) == kinds and all(f.kind.name == "serial" for f in loops):
            yield block, [f.var for f in loops], [f.extent for f in loops]


def _kind(loop):
    found = feeds(loop)
    return "".join(sorted(kind[0] for kind in found)) or "p"


def _product(block):
    """The instruction on tiles for a block's sum."""
    w = block.body.writes[0]
    return PRODUCTS[tuple(sorted(ld.dtype.name for ld in block.reads if ld.buffer != w.buffer))]


def _parts(extent, most, group=1):
    """What divides an extent into parts that an instruction takes; of symbolic ones single elements."""
    if not extent.is_const:
        return [1]
    return [n for n in range(group, most + 1, group) if extent.const % n == 0]


def tile(draw, s):
    chosen = pick(draw, _sums(s, "ppr"), "sum")
    if chosen is None:
        return None
    _, loops, extents = chosen
    parts = tuple(draw(st.sampled_from(_parts(e, ROWS)), label="part") for e in extents[:2])
    return (tuple(loops[:2]), parts), {}


def split(draw, s):
    chosen = pick(draw, _sums(s, "ppppr"), "sum")
    if chosen is None:
        return None
    block, loops, extents = chosen
    known = _product(block)
    parts = _parts(extents[-1], known.depth, known.b.group)
    return ((loops[-1], draw(st.sampled_from(parts), label="part")), {}) if parts else None


def cache(draw, s):
    chosen = pick(draw, _sums(s, "pppprr"), "sum")
    if chosen is None:
        return None
    block, loops, _ = chosen
    return (block.writes[0][0], loops[1]), {"mode": "write", "scope": TILE}


def reorder(draw, s):
    chosen = pick(draw, _sums(s, "pppprr"), "sum")
    if chosen is None:
        return None
    rows, columns, turns, deep = chosen[1][2:]
    return (turns, *draw(st.permutations((rows, columns, deep)), label="order")), {}


def decompose_init(draw, s):
    found = [f for order in ("pprppr", "pprprp", "pprrpp") for f in _sums(s, order)]
    chosen = pick(draw, [f for f in found if f[0].init is not None], "sum")
    return None if chosen is None else ((chosen[0].name, chosen[1][2]), {})


def product(draw, s):
    found = [f for order in ("pprppr", "pprprp", "pprrpp") for f in _sums(s, order)]
    chosen = pick(draw, [f for f in found if f[0].init is None], "sum")
    return None if chosen is None else ((chosen[1][3], _product(chosen[0]).name), {})


def move(draw, s):
    """What clears a tile, or stores one."""
    scopes = {name: b.scope for name, b in buffers_of(s.func).items()}
    options = []
    for place in blocks(s.func.body):
        body = place.node.body
        nest = place.ancestors[-2:]
        if not isinstance(body, Store) or not all(isinstance(f, For) and f.extent.is_const for f in nest):
            continue
        w = body.writes[0]
        if scopes.get(w.buffer) == TILE and isinstance(w.value, Const):
            options.append((nest[0].var, f"tilezero_{w.value.dtype}"))
        elif isinstance(w.value, Load) and scopes.get(w.value.buffer) == TILE:
            options.append((nest[0].var, f"tilestored_{w.value.dtype}"))
    chosen = pick(draw, options, "nest")
    return None if chosen is None else (chosen, {})


#: The steps before a product, in order; those that move tiles may come before it, too.
BEFORE = (
    ("tile", {"by": tile}),
    ("split", {"by": split}),
    ("cache", {"by": cache}),
    ("reorder", {"by": reorder}),
    ("decompose_init", {"by": decompose_init}),
    ("tensorize", {"by": move}),
    ("tensorize", {"by": move}),
)
