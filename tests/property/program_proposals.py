"""Legal-looking random steps of the program phase: rewrites and layouts."""

from hypothesis import strategies as st

from tilewright.ir import (
    Binary,
    If,
    Load,
    Select,
    Store,
    fresh_name,
    iter_env,
    prove_ge0,
    prove_lt,
    stmt_writes,
    walk,
)
from tilewright.lang import match_product, match_sum, match_winograd

TILES = (2, 3, 4)


def pick(draw, items, label):
    """One of some items, ``None`` where there are none."""
    items = list(items)
    return items[draw(st.integers(0, len(items) - 1), label=label)] if items else None


def winograd(draw, s):
    if s.program is None:
        return None
    taken = {b.name for b in (*s.program.inputs, *s.program.temps, *s.program.outputs)}
    name = pick(draw, [x.name for x in s.program.stages if match_winograd(s.program, x)], "stage")
    if name is None:
        return None
    # tiles of 4 have factors such as 1/24: sums of small integers are not exact
    tiles = draw(st.integers(0, 3), label="tiles")
    return (name, 2, fresh_name("U", taken)), {"tiles": tiles} if tiles else {}


def strassen(draw, s):
    if s.program is None:
        return None
    taken = {b.name for b in (*s.program.inputs, *s.program.temps, *s.program.outputs)}
    found = {x.name: m for x in s.program.stages if (m := match_product(s.program, x)) is not None}
    name = pick(draw, list(found), "stage")
    if name is None:
        return None
    half = found[name].extent(found[name].m) // 2
    height = pick(draw, [0, *(n for n in range(1, half + 1) if half % n == 0)], "height")
    width = draw(st.integers(1, 3), label="width")
    return (name, width, fresh_name("Q", taken)), {"height": height} if height else {}


def bf16x3(draw, s):
    if s.program is None:
        return None
    # computed operands may be integers beyond what two pieces hold
    given = {b.name for b in s.program.inputs}
    found = {x.name: m for x in s.program.stages if (m := match_sum(s.program, x)) is not None}
    known = {name: m for name, m in found.items() if {m.data.buffer, m.other.buffer} <= given}
    name = pick(draw, list(known), "stage")
    if name is None:
        return None
    taken = {b.name for b in (*s.program.inputs, *s.program.temps, *s.program.outputs)}
    if known[name].constant:
        return (name, fresh_name("W", taken)), {}
    shape = [e.as_int() for e in s.program.buffer(known[name].other.buffer).shape]
    if len(shape) != 2 or draw(st.booleans(), label="plain"):
        return (name,), {}
    divisors = [[n for n in range(1, extent + 1) if extent % n == 0] for extent in shape]
    width, group = (pick(draw, sizes, label) for sizes, label in zip(divisors[::-1], "wg", strict=True))
    return (name,), {"panels": (width, group)}


#: Types that hold whatever arguments of each type hold in these programs.
WIDER = {"f32": ("f64",), "i32": ("i64",)}


NARROWER = {"i32": ("i8", "i16")}


def store_as(draw, s):
    if s.program is None:
        return None
    options = [(b.name, t) for b in s.program.outputs for t in WIDER.get(b.dtype.name, ())]
    for b in s.program.inputs:
        types = (*WIDER.get(b.dtype.name, ()), *NARROWER.get(b.dtype.name, ()))
        options.extend((b.name, t) for t in types)
    chosen = pick(draw, options, "argument and type")
    return None if chosen is None else (chosen, {})


def _pads(stage):
    return any(isinstance(e, Binary) and e.op == "mul" and isinstance(e.a, Select) for e in _values(stage))


def _values(stage):
    return [e for w in getattr(stage.body, "writes", ()) for e in walk(w.value)]


def skip_padding(draw, s):
    if s.program is None:
        return None
    names = [x.name for x in s.program.stages if x.is_reduction and _pads(x)]
    name = pick(draw, names, "stage")
    return None if name is None else ((name,), {})


def rfactor(draw, s):
    if s.program is None:
        return None
    options = []
    for x in s.program.stages:
        reds = [it for it in x.iters if it.kind == "red"]
        if reds and not any(it.lo.vars or it.hi.vars for it in x.iters):
            options.append((x.name, reds[0].name))
    chosen = pick(draw, options, "stage")
    if chosen is None:
        return None
    part = draw(st.sampled_from(("outer", "inner")), label="part")
    return (*chosen, draw(st.sampled_from((2, 3)), label="factor")), {"part": part}


def split_scan(draw, s):
    if s.program is None:
        return None
    stages = [x.name for x in s.program.stages if any(it.kind == "ord" for it in x.iters)]
    chosen = pick(draw, stages, "stage")
    if chosen is None:
        return None
    return (chosen, draw(st.sampled_from((1, 2, 3)), label="factor"), f"parts{len(s.trace.steps)}"), {}


def last_writes(draw, s):
    if s.program is None:
        return None
    stages = [x.name for x in s.program.stages if any(it.kind == "ord" for it in x.iters)]
    chosen = pick(draw, stages, "stage")
    return None if chosen is None else ((chosen, f"last{len(s.trace.steps)}"), {})


def _temps(s, most=4):
    return (
        [] if s.program is None else [b for b in s.program.temps if len(b.shape) <= most and b.layout is None]
    )


def layout_split(draw, s):
    b = pick(draw, _temps(s), "tensor")
    if b is None:
        return None
    d = draw(st.integers(0, len(b.shape) - 1), label="dim")
    return (b.name, d, (-1, draw(st.sampled_from(TILES)))), {}


def layout_reorder(draw, s):
    b = pick(draw, _temps(s, 5), "tensor")
    return None if b is None else ((b.name, tuple(draw(st.permutations(range(len(b.shape)))))), {})


def layout_fuse(draw, s):
    b = pick(draw, [b for b in _temps(s) if len(b.shape) > 1 and b.shape[-1].is_const], "tensor")
    return None if b is None else ((b.name, len(b.shape) - 2, 2), {})


def layout_pad(draw, s):
    b = pick(draw, _temps(s), "tensor")
    if b is None:
        return None
    d = draw(st.integers(0, len(b.shape) - 1), label="dim")
    return (b.name, d, draw(st.integers(0, 2)), draw(st.integers(0, 2))), {}


def _rebuilt(s, b):
    """Whether all stages that write a tensor have one iterator a dimension, and no triangle."""
    for stage in s.program.producers(b.name):
        its = {it.name: it for it in stage.iters}
        places = [i for name, i in stmt_writes(stage.body) if name == b.name]
        axes = {x.as_var() for x in places[0]}
        if any(i != places[0] for i in places) or len(axes & its.keys()) < len(b.shape):
            return False
        if any((it.lo.vars | it.hi.vars) & axes for it in stage.iters):
            return False
    return True


def layout_unfold(draw, s):
    able = [b for b in _temps(s) if all(n.is_const for n in b.shape) and _rebuilt(s, b)]
    b = pick(draw, able, "tensor")
    if b is None:
        return None
    d = draw(st.integers(0, len(b.shape) - 1), label="dim")
    stride = draw(st.integers(1, 3), label="stride")
    return (b.name, d, stride + draw(st.integers(0, 2), label="more"), stride), {}


def _last(s, primitive):
    """The arguments of the last step of the trace, where it is that primitive."""
    steps = [] if s.program is None else s.trace.steps
    return steps[-1].args if steps and steps[-1].primitive == primitive else None


def layout_fold(draw, s):
    unfolded = _last(s, "layout_unfold")
    return None if unfolded is None else ((*unfolded[:2], unfolded[3]), {})


def layout_unpad(draw, s):
    padded = _last(s, "layout_pad")
    if padded is None:
        return None
    before, after = (draw(st.integers(0, n), label="left out") for n in padded[2:])
    return (*padded[:2], before, after), {}


def layout_place(draw, s):
    b = pick(draw, [] if s.program is None else [b for b in s.program.temps if len(b.shape) == 2], "tensor")
    layouts = (("d1", "d0"), ("d1//2", "d0", "d1%2"), ("d0//3", "d1", "d0%3"), ())
    return None if b is None else ((b.name, draw(st.sampled_from(layouts), label="layout")), {})


def layout_adopt(draw, s):
    laid = [] if s.program is None else [b for b in s.program.temps if b.layout is not None]
    b = pick(draw, laid, "tensor")
    return None if b is None else ((b.name,), {})


def _constants(s):
    return (
        [] if s.program is None else [b for b in s.program.inputs if b.scope == "const" and b.layout is None]
    )


def store_at(draw, s):
    found = [
        (a.name, b.name, d)
        for a in _constants(s)
        for b in _constants(s)
        for d in range(len(b.shape))
        if a is not b and a.dtype == b.dtype and a.shape == (*b.shape[:d], *b.shape[d + 1 :])
    ]
    chosen = pick(draw, found, "tensors")
    return None if chosen is None else ((*chosen, "stored"), {})


def decouple_at(draw, s):
    stored = _last(s, "store_at")
    return None if stored is None else (("stored", stored[2], stored[1], stored[0]), {})


def match_factors(stage):
    """Whether a stage sums products."""
    body = stage.body
    if not stage.is_reduction or not isinstance(body, Store) or len(body.writes) != 1:
        return False
    value = body.writes[0].value
    return (
        isinstance(value, Binary)
        and value.op == "add"
        and isinstance(value.b, Binary)
        and value.b.op == "mul"
    )


def factor_out(draw, s):
    if s.program is None:
        return None
    options = [
        (x.name, n)
        for x in s.program.stages
        if match_factors(x) and len(x.operands) > 1
        for n, ld in enumerate(x.operands)
        if any(it.kind == "red" and not any(it.name in i.vars for i in ld.indices) for it in x.iters)
    ]
    chosen = pick(draw, options, "operand")
    if chosen is None:
        return None
    taken = {b.name for b in (*s.program.inputs, *s.program.temps, *s.program.outputs)}
    return (chosen[0], (chosen[1],), fresh_name("F", taken)), {}


def shift_factor(draw, s):
    if s.program is None:
        return None
    options = [
        (x.name, n)
        for x in s.program.stages
        if match_factors(x) and x.body.writes[0].value.dtype.name == "i32"
        for n, ld in enumerate(x.operands)
        if ld.dtype.name == "i8"
    ]
    chosen = pick(draw, options, "operand")
    if chosen is None:
        return None
    taken = {b.name for b in (*s.program.inputs, *s.program.temps, *s.program.outputs)}
    return (*chosen, fresh_name("V", taken)), {}


def split_terms(draw, s):
    if s.program is None:
        return None
    chosen = pick(draw, [x.name for x in s.program.stages if x.is_reduction], "stage")
    taken = {b.name for b in (*s.program.inputs, *s.program.temps, *s.program.outputs)}
    return None if chosen is None else ((chosen, fresh_name("V", taken), draw(st.booleans())), {})


def fuse_iterators(draw, s):
    if s.program is None:
        return None
    options = [
        (x.name, a.name, b.name)
        for x in s.program.stages
        for a, b in zip(x.iters, x.iters[1:], strict=False)
        if a.kind == b.kind and all(e.is_const for e in (a.lo, a.hi, b.lo, b.hi))
    ]
    chosen = pick(draw, options, "axes")
    return None if chosen is None else (chosen, {})


def split_window(draw, s):
    if s.program is None:
        return None
    options = [
        (x.name, a.name, b.name)
        for x in s.program.stages
        for a in x.iters
        for b in x.iters
        if (a.kind, b.kind) == ("par", "red")
    ]
    chosen = pick(draw, options, "window")
    return None if chosen is None else (chosen, {})


def gather_operand(draw, s):
    if s.program is None:
        return None
    options = []
    for x in s.program.stages:
        found = x.operands
        if any(it.lo.vars or it.hi.vars for it in x.iters):
            continue
        for n, ld in enumerate(found):
            used = {v for i in ld.indices for v in i.vars}
            env = iter_env(x.iters)
            shape = s.program.buffer(ld.buffer).shape
            inside = all(
                prove_ge0(i, env) and prove_lt(i, m, env) for i, m in zip(ld.indices, shape, strict=True)
            )
            if used and inside:
                options.append((x.name, n, tuple(it.name for it in x.iters if it.name in used)))
    chosen = pick(draw, options, "operand")
    if chosen is None:
        return None
    stage, n, axes = chosen
    name = fresh_name("G", {b.name for b in s.program.temps})
    return (stage, n, tuple(draw(st.permutations(axes))), name), {}


def pad_operand(draw, s, lines=False, steps=False):
    if s.program is None:
        return None
    options = []
    for x in s.program.stages:
        body = x.body.then if isinstance(x.body, If) else x.body
        if not isinstance(body, Store) or not isinstance(body.writes[0].value, Binary):
            continue
        value = body.writes[0].value
        if value.op != "add" or not isinstance(value.b, Binary) or value.b.op != "mul":
            continue
        found = x.operands
        sizes = [n for it in x.iters for n in (it.lo, it.hi)]
        sizes += [n for ld in found for n in s.program.buffer(ld.buffer).shape]
        plain = all(isinstance(e, Load) for e in (value.b.a, value.b.b))
        if plain and x.is_reduction and all(n.is_const for n in sizes):
            options.extend(
                (x.name, n, len(ld.indices))
                for n, ld in enumerate(found)
                if not lines or len(_lines(x, ld, found, steps)) > 1
            )
    chosen = pick(draw, options, "operand")
    if chosen is None:
        return None
    stage, n, rank = chosen
    name = fresh_name("Z", {b.name for b in s.program.temps})
    return (
        stage,
        n,
        name,
        tuple(draw(st.permutations(range(rank)))),
        draw(st.sampled_from((0, 0, 1, 2))),
    ), {}


def _of_copies(s, steps=False):
    """Sums that alone read an operand made for them, with what moves it: see `_lines`."""
    for x in s.program.stages:
        if not x.is_reduction or not isinstance(x.body, Store):
            continue
        found = x.operands
        for ld in found:
            makers, readers = s.program.producers(ld.buffer), s.program.consumers(ld.buffer)
            if len(makers) == 1 and not makers[0].is_reduction and len(readers) == 1:
                yield x.name, _lines(x, ld, found, steps)


def split_phases(draw, s):
    if s.program is None:
        return None
    chosen = pick(draw, [(name, lines) for name, lines in _of_copies(s, steps=True) if lines], "stage")
    if chosen is None:
        return None
    axes = draw(st.permutations([v for _, v in chosen[1]]), label="iterators")
    return (chosen[0], tuple(axes[: draw(st.integers(1, 2), label="count")])), {}


def flatten_rows(draw, s):
    if s.program is None:
        return None
    options = [(name, a, b) for name, lines in _of_copies(s) for n, a in lines for m, b in lines if n != m]
    chosen = pick(draw, options, "lines")
    if chosen is None:
        return None
    name = fresh_name("Z", {b.name for b in s.program.temps})
    return (*chosen, draw(st.integers(1, 16)), name), {}


def as_matrices(draw, s):
    """Any reduction: what is no product of matrices is refused."""
    if s.program is None:
        return None
    chosen = pick(draw, [stage.name for stage in s.program.stages if stage.is_reduction], "stage")
    if chosen is None:
        return None
    multiples = tuple(draw(st.integers(1, 5), label="multiple") for _ in range(3))
    return (chosen, multiples, fresh_name("M", {b.name for b in s.program.buffers})), {}


def _lines(stage, load, loads, steps=False):
    """Dimensions of a load that iterators move by single elements, which move no other load, and those.

    With `steps` also those that move it by several.
    """
    others = {v for other in loads if other != load for i in other.indices for v in i.vars}
    return [
        (n, it.name)
        for it in stage.iters
        for n, i in enumerate(load.indices)
        if it.kind == "par" and it.name not in others
        if i.coefficient(it.name) == 1 or (steps and i.coefficient(it.name) > 0)
    ]
