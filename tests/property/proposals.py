"""Legal-looking random steps: for each primitive, arguments that a schedule as it stands might accept."""

from hypothesis import strategies as st

from property.program_proposals import (
    TILES,
    as_matrices,
    bf16x3,
    decouple_at,
    factor_out,
    flatten_rows,
    fuse_iterators,
    gather_operand,
    last_writes,
    layout_adopt,
    layout_fold,
    layout_fuse,
    layout_pad,
    layout_place,
    layout_reorder,
    layout_split,
    layout_unfold,
    layout_unpad,
    pad_operand,
    pick,
    rfactor,
    shift_factor,
    skip_padding,
    split_phases,
    split_scan,
    split_terms,
    split_window,
    store_as,
    store_at,
    strassen,
    winograd,
)
from property.tree_proposals import import_tree
from tilewright.ir import (
    HINTS,
    Alloc,
    Block,
    For,
    Index,
    Store,
    blocks,
    buffers_of,
    locate,
    spread_updates,
    stmt_children,
)
from tilewright.schedule import Schedule

TAILS = ("guard", "peel", "mask", "shift", "roundup")
#: `tile` refuses to peel: the nest would not stay perfect.
TILE_TAILS = tuple(tail for tail in TAILS if tail != "peel")


def loops_of(s: Schedule):
    """All loops, as locations."""
    return list(locate(s.func.body, For))


def feeds(node: For):
    """Kinds of the iterators that a loop feeds."""
    kinds = set()
    for place in locate(node.body, Block):
        for it, b in zip(place.node.iters, place.node.bind, strict=True):
            if node.var in b.vars:
                kinds.add(it.kind)
    return kinds


def _blocks(node: For):
    return [p.node for p in locate(node, Block)]


def _serial(s):
    return [p for p in loops_of(s) if p.node.kind.name == "serial"]


def _splittable(s, tail):
    """Loops that a split of this tail might accept."""
    options = [p for p in loops_of(s) if p.node.kind.name in ("serial", "unroll", "parallel")]
    if tail in ("shift", "roundup"):
        options = [p for p in options if feeds(p.node) == {"par"}]
    if tail == "shift":
        options = [p for p in options if not any(b.is_reduction for b in _blocks(p.node))]
        options = [p for p in options if p.node.extent.is_const and p.node.extent.const > 2]
        options = [p for p in options if len(_blocks(p.node)) == 1] or options
    if tail == "roundup":
        args = {b.name for b in s.func.buffers}
        known = buffers_of(s.func)
        makers: dict[str, set[str]] = {}
        for b in _blocks(s.func.body):
            for w, _ in b.writes:
                makers.setdefault(w, set()).add(b.stage)

        def growable(name):
            return name not in args and known[name].layout is None and len(makers[name]) == 1

        options = [
            p
            for p in options
            if p.node.extent.is_const
            and all(growable(w) for b in _blocks(p.node) for w, _ in b.writes)
            and all(
                b.is_reduction is False and p.node.var in {x.as_var() for x in b.bind}
                for b in _blocks(p.node)
            )
        ]
    return options


def split(draw, s, tail=None, groups=False):
    """A loop and factors; with ``groups``, the neighbours that an instruction takes, of a sum of products."""
    if groups:
        found = [(p.node.var, depth) for p, depth in _sums_of_products(s) if p.node.extent.const > depth]
        chosen = pick(draw, found, "loop")
        return None if chosen is None else (chosen, {})
    tail = tail or draw(st.sampled_from(TAILS), label="tail")
    place = pick(draw, _splittable(s, tail), "loop")
    if place is None:
        return None
    factor = draw(st.sampled_from(TILES), label="factor")
    if tail != "shift" and draw(st.integers(0, 4), label="several") == 0:
        factor = (draw(st.sampled_from((1, 2, 3))), factor)
    return (place.node.var, factor), {"tail": tail}


#: Instructions by the element types of the factors and of the sum, and the neighbours that they take.
INSTRUCTIONS = {("bf16", "bf16", "f32"): ("vdpbf16ps", 2), ("i8", "u8", "i32"): ("vpdpbusd", 4)}


def instruction_of(block):
    """The instruction that does a block's sum of products; ``None`` where there is none."""
    if not isinstance(block.body, Store) or len(block.body.writes) != 1:
        return None
    w = block.body.writes[0]
    factors = sorted(ld.dtype.name for ld in block.reads if ld.buffer != w.buffer)
    return INSTRUCTIONS.get((*factors, w.value.dtype.name))


def _sums_of_products(s):
    """Loops over what the block in them sums, and how many neighbours an instruction takes of that."""
    for p in _serial(s):
        inside = _blocks(p.node)
        found = [instruction_of(b) for b in inside if b.is_reduction]
        if len(inside) == 1 and found and found[0] and feeds(p.node) == {"red"} and p.node.extent.is_const:
            yield p, found[0][1]


def tensorize(draw, s):
    options = []
    for p in _serial(s):
        block = p.node.body
        found = instruction_of(block) if isinstance(block, Block) and block.init is None else None
        if found and p.node.extent == Index(found[1]) and feeds(p.node) == {"red"}:
            if not any(p.node.var in c.vars for c in block.where):
                options.append((p.node.var, found[0]))
    chosen = pick(draw, options, "loop")
    return None if chosen is None else (chosen, {})


def _chains(s):
    out = []
    for p in loops_of(s):
        if p.ancestors and isinstance(p.ancestors[-1], For):
            continue
        chain = [p.node]
        while isinstance(chain[-1].body, For):
            chain.append(chain[-1].body)
        if len(chain) > 1:
            out.append(chain)
    return out


def reorder(draw, s):
    options = []
    for chain in _chains(s):
        free = [f for f in chain if f.kind.name in ("serial", "unroll")]
        if len(free) > 1:
            options.append(free)
    chain = pick(draw, options, "nest")
    if chain is None:
        return None
    names = [f.var for f in chain]
    order = draw(st.permutations(names), label="order")
    count = draw(st.integers(2, len(order)), label="count")
    return tuple(order[:count]), {}


def fuse(draw, s):
    options = [
        (a, a.body)
        for a in (p.node for p in loops_of(s))
        if isinstance(a.body, For)
        and a.kind == a.body.kind
        and a.body.extent.is_const
        and a.kind.name != "vector"
    ]
    pair = pick(draw, options, "pair")
    return None if pair is None else ((pair[0].var, pair[1].var), {})


def tile(draw, s, tail=None):
    tail = tail or draw(st.sampled_from(TILE_TAILS), label="tail")
    able = {p.node.var for p in _splittable(s, tail)}
    options = [c for c in _chains(s) if all(f.kind.name == "serial" and f.var in able for f in c[:2])]
    chain = pick(draw, options, "nest")
    if chain is None:
        return None
    most = [f.extent.const if tail == "shift" else max(TILES) for f in chain[:2]]
    factors = tuple(draw(st.sampled_from([t for t in TILES if t <= n]), label="factor") for n in most)
    return ((chain[0].var, chain[1].var), factors), {"tail": tail}


def partition(draw, s):
    options = [p for p in loops_of(s) if p.node.kind.name in ("serial", "parallel", "unroll")]
    place = pick(draw, options, "loop")
    if place is None:
        return None
    cuts = sorted(draw(st.sets(st.integers(1, 5), min_size=1, max_size=2), label="cuts"))
    from_end = draw(st.integers(0, len(cuts)), label="from the end")
    cuts = cuts[from_end:] + sorted(-c for c in cuts[:from_end])
    return (place.node.var, cuts[0] if len(cuts) == 1 else tuple(cuts)), {}


def peel(draw, s, which=None):
    options = [p for p in loops_of(s) if p.node.kind.name in ("serial", "parallel", "unroll")]
    place = pick(draw, options, "loop")
    if place is None:
        return None
    return (place.node.var, which or draw(st.sampled_from(("first", "last")))), {}


def _independent(s):
    """Loops of parallel iterators, none of whose values passes from one block to another through memory."""
    out = []
    for p in _serial(s):
        if feeds(p.node) != {"par"} or any(f.kind.name in ("parallel", "vector") for f in p.loops):
            continue
        own = {a.node.buffer.name for a in locate(p.node, Alloc)}
        bound = all(
            any(p.node.var in x.vars and "min(" not in str(x) for x in b.bind) for b in _blocks(p.node)
        )
        scopes = buffers_of(s.func)
        thread = any(
            w not in own and w in scopes and scopes[w].scope in ("local", "register")
            for b in _blocks(p.node)
            for w, _ in b.writes
        )
        if bound and not thread:
            out.append(p)
    return out


def parallel(draw, s):
    place = pick(draw, _independent(s), "loop")
    return None if place is None else ((place.node.var,), {})


def bind(draw, s):
    updates = [p for p in _serial(s) if spread_updates(p.node)]  # of integers, which blocks may do at once
    loops = [*_independent(s), *(p for p in updates if not any(f.kind.name == "vector" for f in p.loops))]
    options = [p for p in loops if not any(f.kind.name == "thread" for f in p.loops)]
    place = pick(draw, options, "loop")
    if place is None or any(f.node.kind.name == "thread" for f in locate(place.node, For)):
        return None
    return (place.node.var, draw(st.sampled_from(("block.x", "block.y")))), {}


def vectorize(draw, s):
    options = []
    for p in _serial(s):
        inner = [q.node for q in locate(p.node.body, For)]
        kinds = feeds(p.node)
        if not p.node.extent.is_const or "ord" in kinds:
            continue
        if any(f.kind.name in ("vector", "parallel", "thread") for f in inner):
            continue
        if any(f.kind.name == "vector" for f in p.loops):
            continue
        if "red" in kinds and any(b.init is not None for b in _blocks(p.node)):
            continue
        options.append(p)
    place = pick(draw, options, "loop")
    return None if place is None else ((place.node.var,), {})


def unroll(draw, s):
    place = pick(draw, [p for p in _serial(s) if p.node.extent.is_const], "loop")
    return None if place is None else ((place.node.var,), {})


def annotate(draw, s, key=None):
    """A hint: ``key``, or any of them; buffers are those that the loop touches."""
    key = key or draw(st.sampled_from(HINTS), label="hint")
    place = pick(draw, loops_of(s), "loop")
    if place is None:
        return None
    own = {b.name for b in place.node.allocated}
    written = sorted({w for b in _blocks(place.node) for w, _ in b.writes} - own)
    read = sorted({ld.buffer for b in _blocks(place.node) for ld in b.reads})
    if key in ("unroll", "pipeline"):
        value = str(draw(st.sampled_from(TILES), label="count"))
    elif key == "nontemporal" and not written:
        return None
    elif key == "nontemporal":
        value = ",".join(draw(st.lists(st.sampled_from(written), min_size=1, unique=True), label="buffers"))
    elif key == "in_place" and not read:
        return None
    elif key == "in_place":
        value = ",".join(draw(st.lists(st.sampled_from(read), min_size=1, unique=True), label="buffers"))
    elif key == "prefetch":
        names = draw(st.lists(st.sampled_from(sorted({*written, *read})), min_size=1), label="buffers")
        forms = st.sampled_from(("", "@2", "@spread", "+5", "+64:1"))
        value = ",".join(name + draw(forms, label="what of it") for name in names)
    else:
        value = ""
    return (place.node.var, key, value), {}


def decompose_init(draw, s, products=False):
    """A block and a loop; with ``products``, of sums that instructions do."""
    options = []
    for p in blocks(s.func.body):
        b = p.node
        if b.init is None or (products and not instruction_of(b)):
            continue
        red = {v for it, x in zip(b.iters, b.bind, strict=True) if it.kind == "red" for v in x.vars}
        par = {v for it, x in zip(b.iters, b.bind, strict=True) if it.kind == "par" for v in x.vars}
        shifted = any(it.kind == "red" and x.const > 0 for it, x in zip(b.iters, b.bind, strict=True))
        first = next((n for n, f in enumerate(p.loops) if f.var in red), None)
        if first is None or red & par or shifted:
            continue
        options.append((b.name, [f.var for f in p.loops[: first + 1]]))
    chosen = pick(draw, options, "block")
    if chosen is None:
        return None
    return (chosen[0], draw(st.sampled_from(chosen[1]), label="loop")), {}


def blockize(draw, s):
    options = []
    for p in loops_of(s):
        inner = [q.node for q in locate(p.node, For)]
        plain = all(b.init is None for b in _blocks(p.node))
        plain = plain and not any(f.kind.name == "vector" and "red" in feeds(f) for f in inner)
        if plain and not any(f.kind.name in ("parallel", "thread") for f in inner):
            options.append(p.node.var)
    loop = pick(draw, options, "loop")
    return None if loop is None else ((loop,), {})


def set_scope(draw, s):
    names = [p.node.buffer.name for p in locate(s.func.body, Alloc)]
    kinds = {f.node.kind.name for f in loops_of(s)}
    name = pick(draw, names, "buffer")
    scopes = ("global",) if kinds & {"parallel", "thread"} else ("global", "local")
    return None if name is None else ((name, draw(st.sampled_from(scopes))), {})


def _slides(reader, buffers, loop):
    """Whether iterations of a loop read overlapping windows: indices that differ by a constant."""
    found = [ld.indices for ld in reader.reads if ld.buffer in buffers]
    moved = {it.name for it, b in zip(reader.iters, reader.bind, strict=True) if loop in b.vars}
    return any(
        x != y and x.vars & moved and (x - y).is_const
        for first in found
        for x, y in zip(first, found[0], strict=True)
    )


def compute_at(draw, s, sliding=False):
    known = [p.node for p in blocks(s.func.body)]
    args = {b.name for b in s.func.buffers}
    options = []
    for producer in known:
        made = {w for w, _ in producer.writes}
        if made & args or any(it.kind == "ord" for it in producer.iters):
            continue
        if any(made & {w for w, _ in b.writes} for b in known if b.stage != producer.stage):
            continue
        readers = {
            b.name for b in known if b.stage != producer.stage and made & {ld.buffer for ld in b.reads}
        }
        for p in loops_of(s):
            inside = p.node.body.names
            if sliding and not any(_slides(b, made, p.node.var) for b in known if b.name in readers):
                continue
            if readers and readers <= inside and producer.name not in inside:
                options.append((producer.name, p.node.var))
    chosen = pick(draw, options, "producer and loop")
    return None if chosen is None else (chosen, {})


def cache(draw, s):
    options = []
    args = {b.name for b in s.func.buffers}
    for p in loops_of(s):
        written = {w for b in _blocks(p.node) for w, _ in b.writes}
        read = {ld.buffer for b in _blocks(p.node) for ld in b.reads}
        own = {a.node.buffer.name for a in locate(p.node, Alloc)}
        options.extend((b, p.node.var, "read") for b in sorted(read - written - own))
        if all(b.is_reduction is False for b in _blocks(p.node)):
            options.extend((b, p.node.var, "write") for b in sorted((written - read - own) & args))
    chosen = pick(draw, options, "buffer and loop")
    return None if chosen is None else (chosen[:2], {"mode": chosen[2]})


def _reads_in_place(consumer, makers, loop):
    """Whether a block reads at one iterator wherever iterations of a loop make elements side by side."""
    moved = {
        (name, d)
        for b in makers
        for name, indices in b.writes
        for d, i in enumerate(indices)
        if any(loop in x.vars for it, x in zip(b.iters, b.bind, strict=True) if it.name in i.vars)
    }
    places = {(ld.buffer, d): i for ld in consumer.reads for d, i in enumerate(ld.indices)}
    return all(places[at].as_var() is not None for at in moved & places.keys())


def reverse_compute_at(draw, s):
    known = [p.node for p in blocks(s.func.body)]
    options = []
    for consumer in known:
        if consumer.is_reduction:
            continue
        read = {ld.buffer for ld in consumer.reads}
        for p in loops_of(s):
            inside = _blocks(p.node)
            if consumer.name in p.node.body.names or feeds(p.node) != {"par"}:
                continue
            made = {w for b in inside for w, _ in b.writes}
            after = known.index(consumer) > max(known.index(b) for b in inside)
            between = known[known.index(inside[-1]) + 1 : known.index(consumer)]
            served = p.node.kind.name != "vector" and _reads_in_place(consumer, inside, p.node.var)
            if after and read & made and not any({w for w, _ in b.writes} & read for b in between):
                options.extend([(consumer.name, p.node.var)] if served else [])
    chosen = pick(draw, options, "consumer and loop")
    return None if chosen is None else (chosen, {})


def _inlinable(s):
    args = {b.name for b in s.func.buffers}
    known = [p.node for p in blocks(s.func.body)]
    for b in known:
        made = {w for w, _ in b.writes}
        if made & args or {it.kind for it in b.iters} != {"par"} or made & {ld.buffer for ld in b.reads}:
            continue
        others = [o for o in known if o.stage != b.stage]
        if any(made & {w for w, _ in o.writes} for o in others):
            continue
        if any(made & {ld.buffer for ld in o.reads} for o in others):
            yield b


def inline(draw, s):
    chosen = pick(draw, [b.name for b in _inlinable(s)], "block")
    return None if chosen is None else ((chosen,), {})


def inline_stage(draw, s):
    if s.program is None:
        return None
    chosen = pick(draw, [b.stage for b in _inlinable(s)], "stage")
    return None if chosen is None else ((chosen,), {})


def clone_stage(draw, s):
    """A stage and one of several readers; in programs that have none, any two stages."""
    if s.program is None:
        return None
    pairs = []
    for x in s.program.stages:
        readers = [r.name for r in s.program.stages if r is not x and set(x.writes) & set(r.reads)]
        kept = len(readers) > 1 or any(b.name in x.writes for b in s.program.outputs)
        pairs += [(x.name, r) for r in readers if kept]
    names = [x.name for x in s.program.stages]
    chosen = pick(draw, pairs or [(a, b) for a in names for b in names], "stage and reader")
    return None if chosen is None else (chosen, {})


def _around(s, kind=Alloc):
    """Allocations with the loops around them, for those inside of some."""
    return [p for p in locate(s.func.body, kind) if p.loops]


def hoist_alloc(draw, s):
    options = []
    for p in _around(s):
        if any(f.kind.name in ("parallel", "thread", "vector") for f in p.loops):
            continue
        loops = [None, *(f.var for f in p.loops[:-1])]
        options.extend((p.node.buffer.name, v) for v in loops)
    chosen = pick(draw, options, "buffer and loop")
    return None if chosen is None else (chosen, {})


def slide(draw, s):
    options = []
    for p in _around(s):
        loop = p.loops[-1]
        name = p.node.buffer.name
        if loop.kind.name != "serial" or p.ancestors[-1] is not loop:
            continue
        makers = [b for b in _blocks(p.node) if name in {w for w, _ in b.writes}]
        readers = [b for b in _blocks(p.node) if name in {ld.buffer for ld in b.reads} and b not in makers]
        apart = any(len({ld for ld in b.reads if ld.buffer == name}) > 1 for b in readers)
        if len(makers) == 1 and apart and not makers[0].is_reduction:
            options.append((makers[0].name, loop.var))
    chosen = pick(draw, options, "block and loop")
    return None if chosen is None else (chosen, {})


def roll(draw, s):
    options = []
    for p in locate(s.func.body, Alloc):
        b = p.node.buffer
        inside = [q.node for q in locate(p.node.body, Block)]
        first = [q for q in inside if "_first" in q.name and b.name in {w for w, _ in q.writes}]
        if first:
            read = [ld.indices for q in inside for ld in q.reads if ld.buffer == b.name]
            apart = [
                d for d in range(len(b.shape)) if len({x[d] for x in read}) > 1 and not b.shape[d].is_const
            ]
            apart += [
                d for d in range(len(b.shape)) if len({x[d] for x in read}) > 1 and b.shape[d].const > 2
            ]
            options.extend((b.name, d) for d in apart)
    chosen = pick(draw, options, "buffer and dimension")
    return None if chosen is None else ((*chosen, 2), {})


def set_layout(draw, s):
    args = {b.name for b in s.func.buffers}
    names = [
        n for n, b in buffers_of(s.func).items() if n not in args and b.layout is None and len(b.shape) == 2
    ]
    name = pick(draw, names, "buffer")
    layouts = (("d1", "d0"), ("d1//2", "d0", "d1%2"), ("d0//3", "d1", "d0%3"))
    return None if name is None else ((name, draw(st.sampled_from(layouts), label="layout")), {})


def pipeline(draw, s):
    """Loops that begin by filling what they allocate."""
    options = []
    for p in _serial(s):
        own, body = set(), p.node.body
        while isinstance(body, Alloc):
            own.add(body.buffer.name)
            body = body.body
        first = _blocks(next(iter(stmt_children(body)), body)) if own else []
        if first and {w for w, _ in first[0].writes} <= own:
            options.append(p.node.var)
    loop = pick(draw, options, "loop")
    return None if loop is None else ((loop, draw(st.sampled_from((2, 3)), label="stages")), {})


def cooperative_copy(draw, s):
    """Blocks that no reduction is in, right inside of serial loops."""
    free = {p.node.var for p in _independent(s)}
    options = []
    for p in blocks(s.func.body):
        last = p.ancestors[-1] if p.ancestors else None
        around = [f for f in p.loops if f.kind.name == "serial"]
        bound = any(f.kind.name == "thread" for f in p.loops)
        if (
            isinstance(last, For)
            and last.var in free
            and not bound
            and all(f.extent.is_const for f in around)
        ):
            options.append(p.node.name)
    block = pick(draw, options, "block")
    threads = draw(st.sampled_from(((2,), (3,), (2, 2), (4,))), label="threads")
    return None if block is None else ((block, threads), {})


def _matrices(s):
    return [b for p in locate(s.func.body, Alloc) if len((b := p.node.buffer).physical_shape) > 1]


def pad_stride(draw, s):
    chosen = pick(draw, [b.name for b in _matrices(s)], "buffer")
    return None if chosen is None else ((chosen, draw(st.sampled_from((1, 2, 4)), label="elements")), {})


def swizzle(draw, s):
    wide = [(b.name, n) for b in _matrices(s) for n in (2, 4) if _divides(b.physical_shape[-1], n)]
    chosen = pick(draw, wide, "buffer")
    return None if chosen is None else ((chosen[0], chosen[1]), {})


def _divides(extent, n):
    return extent.is_const and extent.const > 0 and extent.const % n == 0


def virtual_threads(draw, s):
    options = [
        (p.node.var, n)
        for p in _independent(s)
        for n in (1, 2, 3)
        if _divides(p.node.extent, n) and not any(f.kind.name == "thread" for f in p.loops)
    ]
    chosen = pick(draw, options, "loop")
    return None if chosen is None else (((chosen[0],), "thread.x", chosen[1]), {})


#: Every primitive (with what its test fixes) to its proposer.
PROPOSERS = {
    "pipeline": pipeline,
    "cooperative_copy": cooperative_copy,
    "pad_stride": pad_stride,
    "swizzle": swizzle,
    "virtual_threads": virtual_threads,
    "split": split,
    "reorder": reorder,
    "fuse": fuse,
    "tile": tile,
    "partition": partition,
    "peel": peel,
    "parallel": parallel,
    "vectorize": vectorize,
    "unroll": unroll,
    "bind": bind,
    "annotate": annotate,
    "decompose_init": decompose_init,
    "blockize": blockize,
    "set_scope": set_scope,
    "compute_at": compute_at,
    "cache": cache,
    "reverse_compute_at": reverse_compute_at,
    "inline": inline,
    "inline_stage": inline_stage,
    "clone_stage": clone_stage,
    "hoist_alloc": hoist_alloc,
    "slide": slide,
    "roll": roll,
    "set_layout": set_layout,
    "skip_padding": skip_padding,
    "gather_operand": gather_operand,
    "factor_out": factor_out,
    "shift_factor": shift_factor,
    "fuse_iterators": fuse_iterators,
    "split_terms": split_terms,
    "pad_operand": pad_operand,
    "split_phases": split_phases,
    "flatten_rows": flatten_rows,
    "as_matrices": as_matrices,
    "rfactor": rfactor,
    "split_scan": split_scan,
    "split_window": split_window,
    "last_writes": last_writes,
    "layout_split": layout_split,
    "layout_reorder": layout_reorder,
    "layout_fuse": layout_fuse,
    "layout_pad": layout_pad,
    "layout_unfold": layout_unfold,
    "layout_fold": layout_fold,
    "layout_unpad": layout_unpad,
    "layout_place": layout_place,
    "layout_adopt": layout_adopt,
    "store_at": store_at,
    "decouple_at": decouple_at,
    "tensorize": tensorize,
    "import_tree": import_tree,
    "winograd": winograd,
    "strassen": strassen,
    "bf16x3": bf16x3,
    "store_as": store_as,
}
