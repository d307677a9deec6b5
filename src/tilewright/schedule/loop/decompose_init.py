"""decompose_init: make the initialisation of a reduction a block of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.ir import (
    Block,
    For,
    If,
    Index,
    Location,
    LoopFunction,
    Pred,
    Seq,
    Stmt,
    buffers_of,
    find,
    fresh_name,
    loop_env,
    map_blocks,
    prove_ge0,
    replace_at,
    seq,
    simplify,
    simplify_pred,
    stmt_loads,
    stmt_writes,
    substitute_index,
    substitute_pred,
    var,
)
from tilewright.schedule.carried import folded, name_list
from tilewright.schedule.common import find_block, find_loop, refusal, taken_names
from tilewright.schedule.nests import allocated_below, blocks_below
from tilewright.schedule.registry import primitive


@primitive("decompose_init", phase="loop")
def decompose_init(func: LoopFunction, block: str, loop: str) -> LoopFunction:
    """Move the initialisation of the reduction ``block`` to a block ``<block>_init`` just before ``loop``.

    The new block runs for the parallel iterators that vary inside of ``loop``, in loops named ``<i>_init``,
    under the conditions that hold for the first step of the reduction. Further blocks of the stage after it,
    such as peeled remainders, lose their initialisation where the new block does it for them.

    Refused where a loop of the reduction is outside of ``loop``: sums would start anew in its iterations.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> A, B = lang.placeholder((10, 6), name="A"), lang.placeholder((6, 8), name="B")
    >>> k = lang.reduce_axis(6, "k")
    >>> C = lang.compute((10, 8), lambda i, j: lang.sum(A[i, k] * B[k, j], axis=k), name="C")
    >>> s = Schedule(lang.program([A, B], [C]))
    >>> s = s.reorder("k", "j")
    >>> print(s)
    func main:
        for i in 0:10:
            for k in 0:6:
                for j in 0:8:
                    block C(par i=i, par j=j, red k=k):
                        init:
                            C[i, j] = f32(0.0)
                        C[i, j] = (C[i, j] + (A[i, k] * B[k, j]))
    >>> print(s.decompose_init("C", "k"))
    func main:
        for i in 0:10:
            for j_init in 0:8:
                block C_init(par i=i, par j=j_init):
                    C[i, j] = f32(0.0)
            for k in 0:6:
                for j in 0:8:
                    block C(par i=i, par j=j, red k=k):
                        C[i, j] = (C[i, j] + (A[i, k] * B[k, j]))
    """
    place, node = find_block(func, block)
    loop_place, loop_node = find_loop(func, loop)
    if node.init is None:
        raise refusal(
            func, f"block {block!r} has no initialisation", hint="it was decomposed before", at=[block]
        )
    if block not in loop_node.body.names:
        raise refusal(func, f"block {block!r} is not inside of {loop!r}", at=[block, loop])
    # of one iteration nothing starts anew
    outer = {f.var for f in loop_place.loops if f.extent != Index(1)}
    for it, b in zip(node.iters, node.bind, strict=True):
        if it.kind == "ord":
            raise refusal(func, f"block {block!r} has the ordered iterator {it.name!r}", at=[block])
        if it.kind == "red" and (running := b.vars & outer):
            raise refusal(
                func,
                f"the reduction iterator {it.name!r} of block {block!r} also runs in {name_list(running)}, "
                f"outside of {loop!r}: sums would start anew in each of its iterations",
                hint="decompose at the outermost loop of the reduction",
                at=[block, loop, *running],
            )
    _check_motion(func, loop_node, node)
    depth = len(loop_place.path)
    plan = _first_step(func, place, node, depth)
    _check_first(func, node, loop, plan)
    if plan.loops and any(folded(b) for n, b in buffers_of(func).items() if n in dict(node.writes)):
        raise refusal(
            func,
            f"{sorted(dict(node.writes))[0]!r} is a rolled buffer: initialising ahead overwrites live values",
            hint="decompose at a loop inside of the loops that the buffer is rolled over",
            at=[block, loop],
        )
    made = _nest(plan, node, taken_names(func))
    body = _without_init(func.body, {block} | _covered(func, node, loop_place, plan))
    _, rest = find_loop(func.with_body(body), loop)
    return func.with_body(replace_at(body, loop_place.path, seq(made, rest)))


@dataclass(frozen=True, slots=True)
class _Plan:
    """The first step of a reduction: spatial loops, bindings of all iterators, and conditions."""

    loops: tuple[For, ...]
    bind: tuple[Index, ...]
    where: Pred
    env: dict[str, tuple[Index, Index]]


def _first_step(func: LoopFunction, place: Location, node: Block, depth: int) -> _Plan:
    """What is left of the loops below ``depth`` when those of the reduction stand at their first values."""
    reducing = frozenset(
        v for it, b in zip(node.iters, node.bind, strict=True) if it.kind == "red" for v in b.vars
    )
    spatial = frozenset(
        v for it, b in zip(node.iters, node.bind, strict=True) if it.kind == "par" for v in b.vars
    )
    start: dict[str, Index] = {}
    loops: list[For] = []
    env = loop_env(a for a in place.ancestors[:depth] if isinstance(a, For))
    where = node.where
    for above, step in zip(place.ancestors[depth:], place.path[depth:], strict=True):
        match above:
            case For():
                if above.var in reducing and above.var in spatial:
                    raise refusal(
                        func,
                        f"{above.var!r} runs parallel and reduction iterators of block {node.name!r} at once",
                        hint="decompose before fusing such loops",
                        at=[above.var, node.name],
                    )
                lo, hi = substitute_index(above.lo, start), substitute_index(above.hi, start)
                if above.var in spatial:
                    loops.append(replace(above, lo=lo, hi=hi))
                    env[above.var] = (lo, hi - 1)
                else:
                    start[above.var] = lo
            case If():
                if step != 0:
                    raise refusal(
                        func, f"block {node.name!r} is in the else branch of a condition", at=[node.name]
                    )
                where = (*where, *above.cond)
            case _:
                pass
    bind = tuple(simplify(substitute_index(b, start), env) for b in node.bind)
    return _Plan(tuple(loops), bind, simplify_pred(substitute_pred(where, start), env), env)


def _check_first(func: LoopFunction, node: Block, loop: str, plan: _Plan) -> None:
    at = {it.name: b for it, b in zip(node.iters, plan.bind, strict=True)}
    for it, b in zip(node.iters, plan.bind, strict=True):
        gap = b - substitute_index(it.lo, at)
        if it.kind == "red" and not (prove_ge0(gap, plan.env) and prove_ge0(-gap, plan.env)):
            raise refusal(
                func,
                f"the reduction iterator {it.name!r} of block {node.name!r} starts at {b} inside of "
                f"{loop!r}, not at its first value {it.lo}",
                hint="decompose the copy of the block that runs first",
                at=[node.name, loop],
            )


def _check_motion(func: LoopFunction, loop: For, node: Block) -> None:
    """Refuse where something inside ``loop`` stands in the way of initialising before it."""
    assert node.init is not None
    written = {name for name, _ in stmt_writes(node.init)}
    read = {ld.buffer for ld in stmt_loads(node.init)} - written
    private = allocated_below(loop)
    if inside := (written | read) & private:
        raise refusal(
            func,
            f"{sorted(inside)[0]!r} is allocated inside of {loop.var!r}",
            hint="decompose at a loop inside of the allocation, or hoist_alloc it",
            at=[loop.var],
            buffers=inside,
        )
    earlier = True
    for other in blocks_below(loop):
        if other.name == node.name:
            earlier = False
        if other.stage == node.stage:
            continue
        stores = {name for name, _ in other.writes}
        early_loads = {ld.buffer for ld in other.reads} if earlier else set()
        if clash := (stores & (read | written)) | (early_loads & written):
            raise refusal(
                func,
                f"block {other.name!r} uses {sorted(clash)[0]!r} inside of {loop.var!r} before {node.name!r} "
                "may be initialised",
                hint="decompose at a loop inside of it",
                at=[loop.var, other.name, node.name],
            )


def _nest(plan: _Plan, node: Block, taken: set[str]) -> Stmt:
    mapping: dict[str, Index] = {}
    heads: list[For] = []
    for f in plan.loops:
        name = fresh_name(f"{f.var}_init", taken)
        taken.add(name)
        heads.append(
            replace(
                f, var=name, lo=substitute_index(f.lo, mapping), hi=substitute_index(f.hi, mapping), hints=()
            )
        )
        mapping[f.var] = var(name)
    kept = [(it, b) for it, b in zip(node.iters, plan.bind, strict=True) if it.kind != "red"]
    assert node.init is not None
    body: Stmt = Block(
        fresh_name(f"{node.name}_init", taken),
        node.stage,
        tuple(it for it, _ in kept),
        tuple(substitute_index(b, mapping) for _, b in kept),
        node.init,
        None,
        substitute_pred(plan.where, mapping),
    )
    for f in reversed(heads):
        body = replace(f, body=body)
    return body


def _without_init(s: Stmt, names: set[str]) -> Stmt:
    return map_blocks(s, lambda b: replace(b, init=None) if b.name in names and b.init is not None else b)


def _covered(func: LoopFunction, node: Block, place: Location, plan: _Plan) -> set[str]:
    """Other blocks of the stage, inside of the loop or after it, that the new block initialises too.

    Those are the ones with the same parallel part of the first step; before them only blocks of the same
    stage may use the buffer.
    """
    out: set[str] = set()
    depth = len(place.path)
    parent = place.ancestors[-1] if place.ancestors else None
    group = [place.node]
    if isinstance(parent, Seq):
        group += parent.stmts[place.path[-1] + 1 :]
    wanted = _canonical(node, plan)
    written = {name for name, _ in node.writes}
    for s in group:
        for other in blocks_below(s):
            if other.stage != node.stage:
                if s is not place.node and written & (
                    {n for n, _ in other.writes} | {ld.buffer for ld in other.reads}
                ):
                    return out
                continue
            if other.init is None or other.name == node.name:
                continue
            there = find(func.body, other.name)
            assert there is not None
            if _canonical(other, _first_step(func, there, other, depth)) == wanted:
                out.add(other.name)
    return out


def _canonical(node: Block, plan: _Plan) -> object:
    """The parallel part of a first step with loops named by position, for comparison."""
    names = {f.var: var(f"#{n}") for n, f in enumerate(plan.loops)}
    return (
        node.init,
        tuple((substitute_index(f.lo, names), substitute_index(f.hi, names)) for f in plan.loops),
        tuple(
            (it, substitute_index(b, names))
            for it, b in zip(node.iters, plan.bind, strict=True)
            if it.kind != "red"
        ),
        frozenset(substitute_pred(plan.where, names)),
    )
