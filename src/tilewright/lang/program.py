"""From tensors to a Program: reachable stages in order, unique names, simplified indices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright import ir
from tilewright.ir import Access, Buffer, Expr, Index, Iter, Load, Param, Pred, Stage, Stmt, Store
from tilewright.lang.axes import check_name
from tilewright.lang.compute import to_pred
from tilewright.lang.functions import condition_of
from tilewright.lang.regions import Region, infer
from tilewright.lang.source import Place, here, location, problem
from tilewright.lang.tensors import Definition, Tensor, TensorName
from tilewright.lang.values import AxisName, Scalar, ScalarParam


def program(
    inputs: Sequence[Tensor | ScalarParam],
    outputs: Tensor | Sequence[Tensor],
    name: str = "main",
    assumes: Sequence[Scalar] = (),
    region: Region | None = None,
) -> ir.Program:
    """The program that computes ``outputs`` from ``inputs``: all stages they need, in a fixed order.

    Names given by the user are kept and must be unique; other tensors are numbered after their hints.
    Iterators keep their names where no symbolic size has them. ``assumes`` are conditions on symbolic sizes,
    checked when a kernel is called. ``region`` says which elements of outputs made by ``lang.stage`` are
    wanted: an extent or ``(first, end)`` for each dimension, for all such outputs or by output. What that
    needs of other stages is inferred; every buffer then begins at 0.

    Raises ``ProgramError`` for an output, an input or a region that does not fit, and for reads outside of
    tensors.
    """
    at = here()
    check_name(name, "program")
    ins = [_input(t, at) for t in inputs]
    outs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    _check_ends(ins, outs, at)
    order = _order(outs, {id(t) for t in ins}, at)
    builder = _Builder(ins, outs, order, infer(order, outs, region, at), at)
    return builder.build(name, [_assumption(a, at) for a in assumes])


def _input(t: object, at: Place) -> Tensor:
    if isinstance(t, ScalarParam):
        assert isinstance(t.expr, Load)
        assert isinstance(t.expr.buffer, TensorName)
        return t.expr.buffer.tensor
    if not isinstance(t, Tensor):
        raise problem(
            f"an input of the program is {type(t).__name__}", "list placeholders and scalar parameters", at
        )
    if t.definition is not None:
        raise problem(
            f"the input {t.label} is computed", "inputs are made by lang.placeholder and lang.scalar", at
        )
    return t


def _check_ends(ins: list[Tensor], outs: list[Tensor], at: Place) -> None:
    if not outs:
        raise problem("the program has no outputs", "name at least one tensor to compute", at)
    for t in outs:
        if not isinstance(t, Tensor):
            raise problem(f"an output of the program is {type(t).__name__}, not a tensor", None, at)
        if t.definition is None:
            raise problem(
                f"the output {t.label} is not computed: it is a placeholder",
                "copy it: lang.compute(A.shape, lambda *i: A[i])",
                at,
            )
    for what, ts in (("input", ins), ("output", outs)):
        if len({id(t) for t in ts}) < len(ts):
            twice = next(t for n, t in enumerate(ts) if t in ts[:n])
            raise problem(f"the {what} {twice.label} is listed twice", None, at)


def _assumption(condition: object, at: Place) -> Pred:
    pred = to_pred(condition_of(condition, "an assumption"))
    for c in pred:
        if c.index is None or c.vars:
            raise problem(
                f"the assumption {c} is not a linear condition on symbolic sizes", "e.g. n >= m", at
            )
    return pred


def _needs(d: Definition) -> list[Tensor]:
    """Tensors that a definition reads or starts from, in order, without those it defines."""
    found: dict[int, Tensor] = {} if d.base is None else {id(d.base): d.base}
    for s in (d.body, d.init):
        for ld in ir.stmt_loads(s) if s is not None else ():
            if isinstance(ld.buffer, TensorName) and ld.buffer.tensor not in d.outputs:
                found[id(ld.buffer.tensor)] = ld.buffer.tensor
    for it in d.iters:
        for bound in (it.lo, it.hi):
            for e in ir.walk_index(bound):
                if isinstance(e, Load) and isinstance(e.buffer, TensorName):
                    found[id(e.buffer.tensor)] = e.buffer.tensor
    return list(found.values())


def _order(outs: list[Tensor], known: set[int], at: Place) -> list[Definition]:
    """Definitions reachable from the outputs, every one after what it needs."""
    done: set[int] = set()
    order: list[Definition] = []
    stack: list[tuple[Definition, bool]] = []
    for out in outs:
        assert out.definition is not None
        stack.append((out.definition, False))
        while stack:
            d, ready = stack.pop()
            if id(d) in done:
                continue
            if ready:
                done.add(id(d))
                order.append(d)
                continue
            stack.append((d, True))
            for t in reversed(_needs(d)):
                if t.definition is not None:
                    if id(t.definition) not in done:
                        stack.append((t.definition, False))
                elif id(t) not in known:
                    raise problem(
                        f"the program reads {t.label}, which is not among its inputs",
                        "add it to the list of inputs",
                        at,
                    )
    return order


class _Builder:
    """Gives names to the tensors and iterators of ordered definitions."""

    def __init__(
        self,
        ins: list[Tensor],
        outs: list[Tensor],
        order: list[Definition],
        bounds: dict[str, Index],
        at: Place,
    ) -> None:
        self.ins, self.outs, self.order, self.bounds, self.at = ins, outs, order, bounds, at
        self.params: dict[str, Param] = {}
        self.names: dict[int, str] = {}
        self.tensors: list[Tensor] = []

    def build(self, name: str, assumes: list[Pred]) -> ir.Program:
        needs = [(d, _needs(d)) for d in self.order]
        in_place = self._in_place(needs)
        defined = [t for d in self.order for t in d.outputs]
        self._collect_params(defined, assumes)
        self._name(defined, in_place)
        stages: list[Stage] = []
        taken = set(self.names.values()) | set(self.params)
        for d in self.order:
            if d.base is not None and id(d.outputs[0]) not in in_place:
                stages.append(self._copy(d, taken))
            stages.append(self._stage(d, taken))
        outs = {id(t) for t in self.outs}
        merged = {id(base) for base in in_place.values()}
        temps = [t for t in defined if id(t) not in outs and id(t) not in merged]
        return ir.Program(
            name,
            tuple(self.params.values()),
            tuple(self._buffer(t) for t in self.ins),
            tuple(self._buffer(t) for t in self.outs),
            tuple(self._buffer(t) for t in temps),
            tuple(stages),
            tuple(c for p in assumes for c in p),
        )

    def _in_place(self, needs: list[tuple[Definition, list[Tensor]]]) -> dict[int, Tensor]:
        """Updates that may overwrite their base: nobody else reads it, and it is no input or output."""
        readers: dict[int, int] = {}
        for _, ts in needs:
            for t in ts:
                readers[id(t)] = readers.get(id(t), 0) + 1
        ends = {id(t) for t in (*self.ins, *self.outs)}
        out: dict[int, Tensor] = {}
        for d, _ in needs:
            if d.base is None or id(d.base) in ends or readers[id(d.base)] > 1:
                continue
            own = [ld for ld in ir.stmt_loads(d.body) if isinstance(ld.buffer, TensorName)]
            if all(ld.buffer.tensor is not d.base for ld in own if isinstance(ld.buffer, TensorName)):
                out[id(d.outputs[0])] = d.base
        return out

    def _collect_params(self, defined: list[Tensor], assumes: list[Pred]) -> None:
        def visit(x: Index) -> None:
            for p in sorted(ir.params_of(x), key=lambda p: p.name):
                if self.params.setdefault(p.name, p) != p:
                    raise problem(
                        f"the symbolic size {p.name} is declared twice with different ranges",
                        "call lang.param once and use its result everywhere",
                        self.at,
                    )

        for t in (*self.ins, *defined):
            for s in self.extents(t):
                visit(s)
        for d in self.order:
            for it in d.iters:
                visit(ir.substitute_index(it.lo, self.bounds))
                visit(ir.substitute_index(it.hi, self.bounds))
            for part in (d.body, d.init):
                for e in () if part is None else ir.stmt_exprs(part):
                    for node in ir.walk(e):
                        for i in ir.indices_of(node):
                            visit(i)
        for p in assumes:
            for c in p:
                if c.index is not None:
                    visit(c.index)

    def _name(self, defined: list[Tensor], in_place: dict[int, Tensor]) -> None:
        taken: dict[str, Tensor | None] = dict.fromkeys(self.params)
        everything = [*self.ins, *defined]
        same: dict[int, int] = {id(base): key for key, base in in_place.items()}
        for t in everything:
            if t.name is None:
                continue
            if t.name in taken:
                other = taken[t.name]
                what = "a symbolic size" if other is None else f"the tensor of line {other.place[1]}"
                raise problem(
                    f"the name {t.name!r} of a tensor is also that of {what}", "choose another", t.place
                )
            taken[t.name] = t
            self.names[id(t)] = t.name
        for t in everything:
            if id(t) not in self.names and id(t) not in same:
                new = ir.fresh_name(t.hint, taken)
                taken[new] = t
                self.names[id(t)] = new
        # an updated tensor and its base are one buffer, called as the last update is
        for t in reversed(defined):
            if id(t) in same:
                self.names[id(t)] = self.names[same[id(t)]]

    def extents(self, t: Tensor) -> tuple[Index, ...]:
        """The shape of a tensor's buffer."""
        return tuple(ir.substitute_index(s, self.bounds) for s in t.extents) if t.inferred else t.extents

    def place(self, t: Tensor, indices: tuple[Index, ...]) -> tuple[Index, ...]:
        """Where in its buffer an element of a tensor lies."""
        if not t.inferred:
            return indices
        return tuple(i - ir.substitute_index(o, self.bounds) for i, o in zip(indices, t.origin, strict=True))

    def _buffer(self, t: Tensor) -> Buffer:
        layout = None if t.strides is None else ir.strided_map(self.extents(t), t.strides)
        return Buffer(self.names[id(t)], self.extents(t), t.dtype, layout=layout)

    def _stage(self, d: Definition, taken: set[str]) -> Stage:
        first = self.names[id(d.outputs[-1])]
        name = first
        if d.base is not None:
            name = ir.fresh_name(f"{first}_update", taken)
            taken.add(name)
        return _Renamer(self, d.iters).stage(name, d)

    def _copy(self, d: Definition, taken: set[str]) -> Stage:
        assert d.base is not None
        target = self.names[id(d.outputs[0])]
        name = ir.fresh_name(f"{target}_init", taken)
        taken.add(name)
        dims = [ir.fresh_name(f"i{n}", self.params) for n in range(d.base.rank)]
        where = tuple(ir.var(n) for n in dims)
        new = d.outputs[0]
        iters = tuple(Iter(n, ir.ZERO, s, "par") for n, s in zip(dims, self.extents(new), strict=True))
        shift = [a - b for a, b in zip(self.place(d.base, where), self.place(new, where), strict=True)]
        at = tuple(i + s for i, s in zip(where, shift, strict=True))
        value = Load(self.names[id(d.base)], at, d.base.dtype)
        return Stage(name, iters, Store((Access(target, where, value),)), source=location(d.source))


class _Renamer:
    """Rewrites one definition with final names and simplifies it for the ranges of its iterators."""

    def __init__(self, owner: _Builder, iters: Iterable[Iter]) -> None:
        self.owner = owner
        self.mapping: dict[str, Index] = dict(owner.bounds)
        self.iters: list[Iter] = []
        taken: dict[str, object] = dict(owner.params)
        self.env = ir.iter_env(())
        for it in iters:
            assert isinstance(it.name, AxisName)
            name = ir.fresh_name(it.name.axis.name, taken)
            taken[name] = it
            lo, hi = self.index(it.lo), self.index(it.hi)
            first = lo if it.name.axis.inferred else ir.ZERO
            self.mapping[it.name] = ir.var(name) + first
            self.iters.append(Iter(name, lo - first, hi - first, it.kind))
            self.env = ir.iter_env(self.iters)

    def stage(self, name: str, d: Definition) -> Stage:
        init = None if d.init is None else self.stmt(d.init)
        return Stage(name, tuple(self.iters), self.stmt(d.body), init, location(d.source))

    def index(self, x: Index) -> Index:
        if not x.terms:
            return x
        if len(x.terms) == 1 and isinstance(x.terms[0][0], ir.Var) and x.terms[0][0].name in self.mapping:
            return self.mapping[x.terms[0][0].name] * x.terms[0][1] + x.const
        plain = all(isinstance(a, ir.Var | Param) for a, _ in x.terms)
        new = ir.substitute_index(x, self.mapping, None if plain else self.expr)
        return new if plain else ir.simplify(new, self.env)

    def _at(self, buffer: str, indices: tuple[Index, ...]) -> tuple[Index, ...]:
        if not isinstance(buffer, TensorName):
            return tuple(self.index(i) for i in indices)
        return tuple(self.index(i) for i in self.owner.place(buffer.tensor, indices))

    def buffer(self, name: str) -> str:
        return self.owner.names[id(name.tensor)] if isinstance(name, TensorName) else name

    def expr(self, e: Expr) -> Expr:
        return ir.map_expr(e, self._visit)

    def _visit(self, e: Expr) -> Expr:
        match e:
            case Load():
                return Load(self.buffer(e.buffer), self._at(e.buffer, e.indices), e.dtype)
            case ir.OfIndex():
                return ir.OfIndex(self.index(e.index), e.dtype)
            case ir.Select():
                return self._select(e)
            case _:
                return e

    def _select(self, e: ir.Select) -> Expr:
        """Drop the conditions on indices that the ranges decide."""
        kept: Expr | None = None
        for c in _conjuncts(e.cond):
            known = self._decide(c)
            if known is False:
                return e.b
            if known is None:
                kept = c if kept is None else ir.Binary("and", kept, c)
        return e.a if kept is None else ir.Select(kept, e.a, e.b)

    def _decide(self, c: Expr) -> bool | None:
        pred = to_pred(c)
        if len(pred) == 1 and pred[0].op == "ge":
            assert pred[0].index is not None
            if ir.prove_ge0(pred[0].index, self.env):
                return True
            if ir.prove_ge0(-pred[0].index - 1, self.env):
                return False
        return None

    def pred(self, p: Pred) -> Pred:
        return ir.map_pred(p, self.index, self.expr)

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case Store():
                return Store(
                    tuple(
                        Access(self.buffer(w.buffer), self._at(w.buffer, w.indices), self.expr(w.value))
                        for w in s.writes
                    )
                )
            case ir.If():
                cond = ir.simplify_pred(self.pred(s.cond), self.env)
                then = self.stmt(s.then)
                return ir.If(cond, then) if cond else then
            case ir.Seq():
                return ir.Seq(tuple(self.stmt(k) for k in s.stmts))
            case _:
                raise AssertionError(f"no {type(s).__name__} in a definition")


def _conjuncts(e: Expr) -> list[Expr]:
    if isinstance(e, ir.Binary) and e.op == "and":
        return [*_conjuncts(e.a), *_conjuncts(e.b)]
    return [e]
