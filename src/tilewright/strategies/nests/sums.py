"""Sums along rows: lanes add up apart over a whole loop, and are joined once behind it.

    for k in range(n):                  for k in range(n // 8):
        x = x - a[k] * b[k]     ->          s[lanes] = s[lanes] + a[8*k + lanes] * b[8*k + lanes]
                                        x = x - (s[0] + ... + s[7]), then the rest one by one

Several vectors add up in turn, as many as additions are under way at once, and are added to the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import (
    SERIAL,
    UNROLL,
    VECTOR,
    Alloc,
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Index,
    Iter,
    IterKind,
    Load,
    LoopFunction,
    LoopKind,
    Stmt,
    Store,
    floordiv,
    fresh_name,
    index,
    int_upper,
    loop_env,
    map_stmt,
    mod,
    seq,
    store,
    substitute_index,
    var,
)


def _summed(s: Stmt) -> tuple[Block, Load, str, Expr] | None:
    """A block that adds to one element or subtracts: the element, which of the two, and what is added."""
    if not isinstance(s, Block) or s.init is not None or s.where:
        return None
    if not isinstance(s.body, Store) or len(s.body.writes) != 1:
        return None
    (w,) = s.body.writes
    own = Load(w.buffer, w.indices, w.value.dtype)
    if not isinstance(w.value, Binary) or w.value.op not in ("add", "sub") or not own.dtype.is_float:
        return None
    if w.value.a == own:
        return s, own, w.value.op, w.value.b
    if w.value.b == own and w.value.op == "add":
        return s, own, w.value.op, w.value.a
    return None


def sum_in_lanes(
    func: LoopFunction, loop: For, around: Sequence[For], lanes: int, vectors: int
) -> LoopFunction | None:
    """A loop that adds up in lanes; ``None`` where it is no sum of floats of this form.

    ``loop`` holds one statement alone, ``x = x + e`` or ``x = x - e``, on one element ``x`` that ``e`` does
    not read; ``around`` are the loops around it. At most ``vectors`` of ``lanes`` each add up in turn.
    """
    found = _summed(loop.body)
    if found is None:
        return None
    b, own, op, added = found
    taken = {*func.body.inner_names, *(x.name for x in (*func.buffers, *func.body.allocated))}

    def name(base: str) -> str:
        fresh = fresh_name(base, taken)
        taken.add(fresh)
        return fresh

    def nest(count: int | Index, body: Callable[[Index], Stmt], kind: LoopKind = SERIAL) -> Stmt:
        loop_name = name(f"{loop.var}_s")
        return For(loop_name, index(0), index(count), body(var(loop_name)), kind)

    def in_lanes(count: int, body: Callable[[Index], Stmt]) -> Stmt:
        """Vectors one after another, written out."""
        if count == 1:
            return nest(lanes, body, VECTOR)
        return nest(count, lambda v: nest(lanes, lambda k: body(v * lanes + k), VECTOR), UNROLL)

    def block(body: Stmt, at: Index | None, *own: tuple[str, int, IterKind, Index]) -> Stmt:
        """A statement at one value of the loop, or (``None``) outside of it, with iterators of its own."""
        pairs = [
            (it, x if at is None else substitute_index(x, {loop.var: at}))
            for it, x in zip(b.iters, b.bind, strict=True)
            if at is not None or loop.var not in x.vars
        ]
        pairs += [(Iter(n, index(0), index(extent), kind), x) for n, extent, kind, x in own]
        label = name(b.name)
        stage = label if at is None else b.stage
        return Block(label, stage, tuple(it for it, _ in pairs), tuple(x for _, x in pairs), body)

    extent = loop.extent
    longest = int_upper(extent, loop_env(around))
    if longest is not None:
        vectors = max(1, min(vectors, longest // (2 * lanes)))
    wide = vectors * lanes
    sums, lane, group = name(f"{own.buffer}_lanes"), name("lane"), name("group")

    def part(at: Index) -> Load:
        return Load(sums, (at,), own.dtype)

    def add(count: int, first: Index) -> Stmt:
        body = store(sums, (var(lane),), Binary("add", part(var(lane)), added))
        return in_lanes(count, lambda k: block(body, first + k, (lane, wide, "par", k)))

    def join(v: Index, k: Index) -> Stmt:
        return block(more, None, (group, vectors, "ord", v), (lane, lanes, "par", k))

    zero = store(sums, (var(lane),), Const(0.0, own.dtype))
    other = part(var(group) * lanes + var(lane))
    more = store(sums, (var(lane),), Binary("add", part(var(lane)), other))
    total = store(own.buffer, own.indices, Binary(op, own, part(var(lane))))
    full = floordiv(extent, wide)
    rest = loop.lo + full * wide
    parts = [
        in_lanes(vectors, lambda k: block(zero, None, (lane, wide, "par", k))),
        nest(full, lambda k: add(vectors, loop.lo + k * wide)),
    ]
    if vectors > 1:
        parts += [
            nest(floordiv(mod(extent, wide), lanes), lambda k: add(1, rest + k * lanes)),
            nest(vectors - 1, lambda v: in_lanes(1, lambda k: join(v + 1, k)), UNROLL),
        ]
    parts.append(in_lanes(1, lambda k: block(total, None, (lane, lanes, "red", k))))
    last = loop.lo + floordiv(extent, lanes) * lanes
    made = seq(
        Alloc(Buffer(sums, (index(wide),), own.dtype), seq(*parts)),
        nest(mod(extent, lanes), lambda k: block(b.body, last + k)),
    )
    return func.with_body(map_stmt(func.body, lambda s: made if s is loop else s))
