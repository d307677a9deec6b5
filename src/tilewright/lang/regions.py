"""Which elements of stages without a shape are computed: boxes inferred from the outputs backwards.

Every reader of a stage asks for the box that its own box touches; the box of a stage holds all that its
readers ask for (Halide's bounds inference: Ragan-Kelley et al., PLDI 2013, Sec. 4.2). Conditions of
``select`` on indices narrow what the chosen side reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from tilewright import ir
from tilewright.ir import Expr, Index, Load, Pred, Stmt
from tilewright.lang.compute import to_pred
from tilewright.lang.source import Place, problem
from tilewright.lang.tensors import Definition, Tensor, TensorName
from tilewright.lang.values import IndexLike, as_index, show_index

#: What a user writes for a dimension: an extent, or a first index and an end.
Dimension: TypeAlias = IndexLike | tuple[IndexLike, IndexLike]
Region: TypeAlias = Dimension | Sequence[Dimension] | Mapping[Tensor, Sequence[Dimension]]
Bounds: TypeAlias = tuple[Index, Index]
Env: TypeAlias = dict[str, Bounds]


def infer(order: Sequence[Definition], outs: Sequence[Tensor], region: object, at: Place) -> dict[str, Index]:
    """The values of all unknown bounds, by name; none where every tensor has a shape.

    Raises ProgramError for an output without a region, a region that does not fit, reads that have no
    bounds, and reads outside of tensors that have a shape.
    """
    wanted = _wanted(outs, region, at)
    if not wanted and not any(t.inferred for d in order for t in d.outputs):
        return {}
    inference = _Inference(wanted)
    for d in reversed(order):
        inference.visit(d)
    return inference.known


def _wanted(outs: Sequence[Tensor], region: object, at: Place) -> dict[int, list[Bounds]]:
    """The boxes of outputs as the user gave them, by identity of the tensor."""
    given: dict[int, list[Bounds]] = {}
    open_outs = [t for t in outs if t.inferred]
    if region is None:
        if open_outs:
            raise problem(
                f"the region of the output {open_outs[0].label} is not known",
                "say which elements are wanted: lang.program(…, region=[height, width])",
                at,
            )
        return given
    if not open_outs:
        raise problem("region= is given, and every output has a shape", "leave out region=", at)
    each = region if isinstance(region, Mapping) else dict.fromkeys(open_outs, region)
    for t, parts in each.items():
        if t not in open_outs:
            what = t.label if isinstance(t, Tensor) else repr(t)
            raise problem(f"region= names {what}, which is no output without a shape", None, at)
        listed = list(parts) if isinstance(parts, tuple | list) else [parts]
        if len(listed) != t.rank:
            raise problem(
                f"the region of {t.label} has {len(listed)} dimensions and the stage {t.rank}",
                "an extent, or (first, end), for each dimension",
                at,
            )
        given[id(t)] = [_bounds(x, t, at) for x in listed]
    for t in open_outs:
        if id(t) not in given:
            raise problem(f"the region of the output {t.label} is not known", "name it in region=", at)
    return given


def _bounds(value: object, t: Tensor, at: Place) -> Bounds:
    pair = value if isinstance(value, tuple) else (0, value)
    ends = [as_index(x) for x in pair]
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        raise problem(
            f"the region of {t.label} has the dimension {value!r}", "give an extent, or (first, end)", at
        )
    lo, hi = ends[0], ends[1]
    if ir.prove_ge0(lo - hi - 1, {}):
        raise problem(
            f"the region of {t.label} has the dimension [{lo}, {hi}), which ends before it begins", None, at
        )
    return lo, hi


class _Inference:
    """Bounds found so far, and what the definitions seen so far ask of those before them."""

    def __init__(self, wanted: dict[int, list[Bounds]]) -> None:
        self.known: dict[str, Index] = {}
        self._wanted = wanted
        self._asked: dict[str, list[Bounds]] = {}

    def visit(self, d: Definition) -> None:
        """Settle where ``d`` is computed, then ask for what it reads there."""
        for t in d.outputs:
            if d.base is not None and t.inferred:
                self._own(d, t)
            for n, (lo, hi) in enumerate(_ends(t)):
                self._settle(d, t, n, lo, hi)
        if d.base is not None and d.base.inferred:
            for (lo, _), box in zip(_ends(d.base), map(self._box, _ends(d.outputs[0])), strict=True):
                self._asked.setdefault(lo, []).append(box)
        inferred = any(t.inferred for t in d.outputs)
        for access in _accesses(d, self._env(d)):
            if access.tensor not in d.outputs:
                self._ask(d, access, inferred)

    def _env(self, d: Definition) -> Env:
        return {it.name: (self._index(it.lo), self._index(it.hi - 1)) for it in d.iters}

    def _index(self, x: Index) -> Index:
        return ir.substitute_index(x, self.known)

    def _box(self, ends: tuple[str, str]) -> Bounds:
        return self.known[ends[0]], self.known[ends[1]]

    def _own(self, d: Definition, t: Tensor) -> None:
        """An update changes and reads its own elements: those have to be there."""
        for access in _accesses(d, self._env(d), writes=True):
            if access.tensor is t:
                self._ask(d, access, False)

    def _settle(self, d: Definition, t: Tensor, n: int, lo: str, hi: str) -> None:
        given = self._wanted.get(id(t))
        asked = self._asked.get(lo, [])
        if lo in self.known:  # another output, or an inner reduction, over the same axis
            found = self._box((lo, hi))
        elif given is not None and not asked:
            found = given[n]
        else:
            found = _union([*asked, *([given[n]] if given is not None else [])])
        if given is not None and found != given[n]:
            raise problem(
                f"{t.label} is read at [{found[0]}, {found[1] - 1}] in dimension {n}, outside of its region"
                f" [{given[n][0]}, {given[n][1] - 1}] as an output",
                "make a copy the output: lang.stage(lambda *i: f[i])",
                d.source,
            )
        self.known[lo], self.known[hi] = found

    def _ask(self, d: Definition, access: _Access, check: bool) -> None:
        t = access.tensor
        for n, x in enumerate(access.indices):
            x = ir.simplify(self._index(x), access.env)
            lo, hi = _bound(x, access.env, False), _bound(x, access.env, True)
            if t.inferred:
                if lo is None or hi is None:
                    raise problem(
                        f"`{d.outputs[-1].label}` reads `{t.label}` at {show_index(x)}, which has no bounds",
                        "an index from data needs them: lang.clamp(x, first, last)",
                        access.place,
                    )
                self._asked.setdefault(_ends(t)[n][0], []).append((lo, hi + 1))
            elif check and not access.guarded and lo is not None and hi is not None and _tight(x):
                last = t.extents[n] - 1
                if ir.prove_ge0(-lo - 1, {}) or ir.prove_ge0(hi - last - 1, {}):
                    raise problem(
                        f"`{d.outputs[-1].label}` reads `{t.label}` at {show_index(access.indices[n])} in"
                        f" [{lo}, {hi}], it holds [0, {last}]",
                        "read outside through lang.boundary(A, …), clamp, or ask for a smaller region",
                        access.place,
                    )


def _ends(t: Tensor) -> list[tuple[str, str]]:
    """The names of the unknown bounds of a tensor's dimensions; none where it has a shape."""
    if not t.inferred:
        return []
    return [(_name(lo), _name(lo + n)) for lo, n in zip(t.origin, t.extents, strict=True)]


def _name(x: Index) -> str:
    atom = x.terms[0][0]
    assert isinstance(atom, ir.Var)
    return atom.name


def _union(boxes: Sequence[Bounds]) -> Bounds:
    if not boxes:
        return ir.ZERO, ir.ZERO  # read under conditions alone that never hold
    distinct = list(dict.fromkeys(boxes))
    lo, hi = distinct[0]
    for a, b in distinct[1:]:
        lo, hi = ir.simplify(ir.imin(lo, a), {}), ir.simplify(ir.imax(hi, b), {})
    return lo, hi


def _bound(x: Index, env: Env, up: bool) -> Index | None:
    """A bound over sizes alone."""
    found = ir.upper(x, env) if up else ir.lower(x, env)
    if found is not None and not found.vars and not any(True for _ in ir.walk_index(found)):
        return ir.simplify(found, {})
    n = ir.int_upper(x, env) if up else ir.int_lower(x, env)
    return None if n is None else Index(n)


def _tight(x: Index) -> bool:
    """Whether the bounds of an index are reached: no variable occurs twice, and there is no remainder."""
    seen: list[str] = []

    def visit(x: Index) -> bool:
        for atom, _ in x.terms:
            match atom:
                case ir.Var(name):
                    seen.append(name)
                case ir.FloorDiv(arg, _):
                    if not visit(arg):
                        return False
                case ir.MinMax(_, args):
                    if not all(map(visit, args)):
                        return False
                case ir.Mod():
                    return False
                case _:
                    pass
        return True

    return visit(x) and len(set(seen)) == len(seen)


class _Access:
    """A read or a write of a tensor, the ranges of the axes around it, and whether a condition guards it."""

    __slots__ = ("env", "guarded", "indices", "place", "tensor")

    def __init__(self, name: TensorName, indices: tuple[Index, ...], env: Env, guarded: bool) -> None:
        self.tensor, self.place = name.tensor, name.place
        self.indices, self.env, self.guarded = indices, env, guarded


def _accesses(d: Definition, env: Env, writes: bool = False) -> Iterator[_Access]:
    """The reads of a definition where they happen, and its writes."""
    walk = _Walk(writes)
    for it in d.iters:
        yield from walk.index(it.lo, env, False)
        yield from walk.index(it.hi, env, False)
    yield from walk.stmt(d.body, env, False)


class _Walk:
    """Visits every access of a definition once for each set of conditions under which it stands."""

    def __init__(self, writes: bool) -> None:
        self._writes = writes
        self._seen: dict[tuple[int, int, bool], tuple[Expr, Env]] = {}

    def stmt(self, s: Stmt, env: Env, guarded: bool) -> Iterator[_Access]:
        match s:
            case ir.Store():
                for w in s.writes:
                    if self._writes and isinstance(w.buffer, TensorName):
                        yield _Access(w.buffer, w.indices, env, guarded)
                    for i in w.indices:
                        yield from self.index(i, env, guarded)
                    yield from self.expr(w.value, env, guarded)
            case ir.If():
                for c in s.cond:
                    if c.expr is not None:
                        yield from self.expr(c.expr, env, guarded)
                    if c.index is not None:
                        yield from self.index(c.index, env, guarded)
                inner = _narrowed(env, s.cond)
                if inner is not None:
                    yield from self.stmt(s.then, inner, True)
            case ir.Seq():
                for k in s.stmts:
                    yield from self.stmt(k, env, guarded)
            case _:
                raise AssertionError(f"no {type(s).__name__} in a definition")

    def expr(self, e: Expr, env: Env, guarded: bool) -> Iterator[_Access]:
        key = id(e), id(env), guarded
        if key in self._seen:
            return
        self._seen[key] = e, env  # kept alive: identities must not be used again
        if isinstance(e, ir.Select):
            yield from self.expr(e.cond, env, guarded)
            holds = to_pred(e.cond)
            for side, pred in ((e.a, holds), (e.b, _negated(holds, env))):
                inner = _narrowed(env, pred)
                if inner is not None:
                    yield from self.expr(side, inner, True)
            return
        if isinstance(e, Load) and isinstance(e.buffer, TensorName):
            yield _Access(e.buffer, e.indices, env, guarded)
        for i in ir.indices_of(e):
            yield from self.index(i, env, guarded)
        for k in ir.children(e):
            yield from self.expr(k, env, guarded)

    def index(self, x: Index, env: Env, guarded: bool) -> Iterator[_Access]:
        for e in ir.walk_index(x):
            if isinstance(e, Load) and isinstance(e.buffer, TensorName):
                yield _Access(e.buffer, e.indices, env, guarded)


_NEVER: Final = (ir.ge0(Index(-1)),)


def _negated(pred: Pred, env: Env) -> Pred:
    """The negation of a condition where it narrows ranges, else nothing; of what always holds: never."""
    if ir.prove_pred(pred, env):
        return _NEVER
    if len(pred) == 1 and pred[0].index is not None and pred[0].op == "ge":
        return (ir.ge0(-pred[0].index - 1),)
    return ()


def _narrowed(env: Env, pred: Pred) -> Env | None:
    """The ranges of axes where a condition holds; ``None`` where it holds nowhere."""
    out = env
    for c in pred:
        if c.index is None:
            continue
        x = c.index
        if ir.prove_ge0(-x - 1, env):
            return None
        for name in x.vars & env.keys():
            k = x.coefficient(name)
            rest = x - ir.var(name) * k
            if not k or rest.vars or any(True for _ in ir.walk_index(rest)):
                continue
            lo, hi = out[name]
            if k > 0 or c.op == "eq":
                first = ir.floordiv(-rest + (k - 1), k) if k > 0 else ir.floordiv(rest - k - 1, -k)
                lo = ir.simplify(ir.imax(lo, first), {})
            if k < 0 or c.op == "eq":
                last = ir.floordiv(rest, -k) if k < 0 else ir.floordiv(-rest, k)
                hi = ir.simplify(ir.imin(hi, last), {})
            if ir.prove_ge0(lo - hi - 1, {}):
                return None
            out = {**out, name: (lo, hi)}
    return out
