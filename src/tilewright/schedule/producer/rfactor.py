"""rfactor: partial results of a reduction as a stage of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tilewright.analysis import Order, best_pair_of, better
from tilewright.ir import (
    ZERO,
    Access,
    Binary,
    Buffer,
    Const,
    DType,
    Expr,
    If,
    Index,
    Iter,
    Load,
    Pred,
    Program,
    Stage,
    Stmt,
    Store,
    buffer,
    condition_of,
    floordiv,
    fresh_name,
    ge0,
    iter_env,
    loads,
    map_exprs,
    prove_ge0,
    simplify_deep,
    simplify_expr,
    substitute_body,
    var,
)
from tilewright.schedule.producer.stages import find_stage, find_tensor, refused
from tilewright.schedule.registry import primitive

OPERATIONS = ("add", "mul", "max", "min")


@primitive("rfactor", phase="program")
def rfactor(
    program: Program,
    stage: str,
    axis: str,
    factor: int,
    *,
    part: Literal["outer", "inner"] = "outer",
    name: str | None = None,
) -> Program:
    """Split the reduction ``axis`` of ``stage`` by ``factor``, and reduce one part in a stage of its own.

    ``axis`` becomes ``factor * <axis>_o + <axis>_i``. The new stage ``name`` (default ``<stage>_rf``) keeps
    the named ``part`` as a parallel axis and reduces over the other; ``stage`` then reduces its results. With
    ``outer`` that is split-K, with ``inner`` a row of partial sums that can be vectorised; the partial
    results have the new axis first or last.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> A = lang.placeholder((4, 64), name="A")
    >>> k = lang.reduce_axis(64, "k")
    >>> S = lang.compute((4,), lambda i: lang.sum(A[i, k], axis=k), name="S")
    >>> s = Schedule(lang.program([A], [S]))
    >>> print(s)
    func main:
        for i in 0:4:
            for k in 0:64:
                block S(par i=i, red k=k):
                    init:
                        S[i] = f32(0.0)
                    S[i] = (S[i] + A[i, k])
    >>> print(s.rfactor("S", "k", 8, part="inner"))
    func main:
        alloc S_rf: f32[4, 8] global
        for i in 0:4:
            for k_i in 0:8:
                for k_o in 0:8:
                    block S_rf(par i=i, par k_i=k_i, red k_o=k_o):
                        init:
                            S_rf[i, k_i] = f32(0.0)
                        S_rf[i, k_i] = (S_rf[i, k_i] + A[i, k_i + 8*k_o])
        for S_i in 0:4:
            for S_k_i in 0:8:
                block S(par i=S_i, red k_i=S_k_i):
                    init:
                        S[i] = f32(0.0)
                    S[i] = (S[i] + S_rf[i, k_i])

    For sums, products, maxima and minima, and maxima and minima with their places (``lang.argmax``), whose
    parts are values and places; the order of floating-point operations changes. Where ``factor``
    does not divide the axis the rest is skipped by a condition. An update over reduction axes (a histogram)
    gets copies of its whole buffer, one for each value of the new axis; ``<name>_start`` fills them, and
    ``stage`` adds them to what the buffer held. Raises ScheduleError for other reductions.
    """
    node = find_stage(program, stage)
    red = next((it for it in node.iters if it.name == axis), None)
    if red is None or red.kind != "red":
        names = ", ".join(it.name for it in node.iters if it.kind == "red")
        raise refused(
            node,
            f"stage {stage!r} has no reduction axis {axis!r}",
            f"its reduction axes are {names}" if names else "it is no reduction",
        )
    if factor < 1:
        raise refused(node, f"axis {axis!r} cannot be split by {factor}", "give a positive factor")
    form = _form(node)
    if isinstance(form, str):
        raise refused(node, f"stage {stage!r} cannot be factored: {form}")
    if red.lo.vars or red.hi.vars or any(axis in it.lo.vars | it.hi.vars for it in node.iters):
        raise refused(node, f"the bounds of axis {axis!r} depend on other axes, or others on it")
    return _factored(program, node, red, form, factor, part, name)


@dataclass(frozen=True, slots=True)
class _Form:
    """``if cond: buffers[indices] = op(buffers[indices], terms)``: a value, or an extremum and its place."""

    buffers: tuple[str, ...]
    indices: tuple[Index, ...]
    op: str | Order
    terms: tuple[Expr, ...]
    cond: Pred

    def step(self, buffers: Sequence[Buffer], place: tuple[Index, ...], terms: tuple[Expr, ...]) -> Store:
        """Running values in ``buffers`` at ``place`` after ``terms``."""
        old = [Load(b.name, place, b.dtype) for b in buffers]
        if len(old) == 1:
            new: tuple[Expr, ...] = (Binary(self.op, old[0], terms[0]),)
        else:
            new = better(self._order, old[0], old[1], terms[0], terms[1])
        return Store(tuple(Access(b.name, place, value) for b, value in zip(buffers, new, strict=True)))

    def start(self, buffers: Sequence[Buffer], place: tuple[Index, ...]) -> Store:
        """What running values begin with: values that change no others."""
        first, *rest = (b.dtype for b in buffers)
        values = [_identity(self.op, first)]
        if rest:
            values = [_identity("max" if self._order == "gt" else "min", first), _identity("min", rest[0])]
        return Store(tuple(Access(b.name, place, value) for b, value in zip(buffers, values, strict=True)))

    @property
    def _order(self) -> Order:
        return "gt" if self.op == "gt" else "lt"


def _form(stage: Stage) -> _Form | str:
    cond, body = condition_of(stage.body)
    if (
        isinstance(body, Store)
        and stage.init is not None
        and (found := best_pair_of(body.writes)) is not None
    ):
        pair = (found.value, found.position)
        if not any(ld.buffer in found.buffers for e in pair for ld in loads(e)):
            return _Form(found.buffers, body.writes[0].indices, found.order, pair, cond)
    if not isinstance(body, Store) or len(body.writes) != 1:
        return "it is neither one running value nor an extremum with its place"
    (access,) = body.writes
    value = access.value
    if not isinstance(value, Binary) or value.op not in OPERATIONS:
        return f"it is none of {', '.join(OPERATIONS)}"
    for own, term in ((value.a, value.b), (value.b, value.a)):
        if isinstance(own, Load) and (own.buffer, own.indices) == (access.buffer, access.indices):
            if all(ld.buffer != access.buffer for ld in loads(term)):
                return _Form((access.buffer,), access.indices, value.op, (term,), cond)
    return "its body is not an operation on the running value"


def _factored(
    program: Program, node: Stage, red: Iter, form: _Form, factor: int, part: str, name: str | None
) -> Program:
    held = [find_tensor(program, name) for name in form.buffers]
    found = held[0]
    taken = {*(s.name for s in program.stages), *(b.name for b in program.buffers)}
    new = fresh_name(f"{node.name}_rf", taken) if name is None else name
    if new in taken or not (new.isascii() and new.isidentifier()):
        raise refused(node, f"the name {new[:80]!r} is taken or no identifier")
    used = {it.name for it in node.iters} | {p.name for p in program.params}
    outer = fresh_name(f"{red.name}_o", used)
    inner = fresh_name(f"{red.name}_i", used | {outer})
    count = floordiv(red.extent + (factor - 1), factor)
    extents = {outer: count, inner: Index(factor)}
    kept, reduced = (outer, inner) if part == "outer" else (inner, outer)
    first = part == "outer"

    pars = [it for it in node.iters if it.kind == "par"]
    lane = Iter(kept, ZERO, extents[kept], "par")
    others: list[Iter] = []
    for it in node.iters:
        if it.kind != "par":
            others.append(Iter(reduced, ZERO, extents[reduced], "red") if it.name == red.name else it)
    iters = (lane, *pars, *others) if first else (*pars, lane, *others)
    env = iter_env(iters)
    at = red.lo + var(outer) * factor + var(inner)
    inside = red.hi - 1 - at

    def moved(s: Stmt) -> Stmt:
        s = substitute_body(s, {red.name: at})
        return map_exprs(s, lambda x: simplify_deep(x, env), lambda e: simplify_expr(e, env))

    shape = (extents[kept], *found.shape) if first else (*found.shape, extents[kept])
    names = (new,) if len(held) == 1 else (fresh_name(f"{new}_value", taken | {new}), new)
    made = [buffer(each, shape, b.dtype) for each, b in zip(names, held, strict=True)]
    place = (var(kept), *form.indices) if first else (*form.indices, var(kept))
    step: Stmt = form.step(made, place, form.terms)
    # first, as what the others read may not exist past the axis' end
    cond = form.cond if prove_ge0(inside, env) else (ge0(red.hi - 1 - var(red.name)), *form.cond)
    body = moved(If(cond, step) if cond else step)
    starts: tuple[Stage, ...] = ()
    indices, spread = form.indices, pars
    every = place
    if node.init is None:
        # an update: which elements it changes is known to it alone, so all have copies
        own = [fresh_name(f"i{d}", used | {outer, inner}) for d in range(len(found.shape))]
        spread = [Iter(name, ZERO, extent, "par") for name, extent in zip(own, found.shape, strict=True)]
        indices = tuple(var(name) for name in own)
        every = (var(kept), *indices) if first else (*indices, var(kept))
        all_of = (lane, *spread) if first else (*spread, lane)
        fill = form.start(made, every)
        starts = (Stage(fresh_name(f"{new}_start", taken | {new}), all_of, fill, None, node.source),)
    partial = Stage(new, iters, body, None if starts else form.start(made, place), node.source)
    last = form.step(held, indices, tuple(Load(b.name, every, b.dtype) for b in made))
    final = replace(node, iters=(*spread, Iter(kept, ZERO, extents[kept], "red")), body=last)
    n = program.stages.index(node)
    return replace(
        program,
        temps=(*program.temps, *made),
        stages=(*program.stages[:n], *starts, partial, final, *program.stages[n + 1 :]),
    )


def _identity(op: str, dtype: DType) -> Const:
    """The value that changes no other one under ``op``."""
    if op in ("max", "min"):
        return Const(dtype.min_value if op == "max" else dtype.max_value, dtype)
    n = 0 if op == "add" else 1
    return Const(float(n) if dtype.is_float else n, dtype)
