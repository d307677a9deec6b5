"""Indices and conditions on them to values.

Indices are evaluated symbolically as far as constants reach: an unrolled loop variable is a number, a running
one a value with a known range, and the lane of a vector loop the variable ``$lane``, whose coefficient in an
access decides between one scalar load, one vector load and a gather.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import gcd

from tilewright.codegen.llvm.builder import Builder
from tilewright.codegen.llvm.values import Val, iota, mask_literal
from tilewright.codegen.memory import Plan, Resolved
from tilewright.codegen.operations import cast
from tilewright.codegen.state import LANE, LANE_INDEX, State
from tilewright.ir import (
    I32,
    I64,
    Atom,
    Condition,
    Expr,
    FloorDiv,
    Index,
    MinMax,
    Mod,
    Opaque,
    Param,
    Pred,
    Var,
    int_lower,
    int_upper,
    linear,
    prove_ge0,
    simplify,
    substitute_index,
    walk_index,
)
from tilewright.support import InternalError

#: Bound of the scalar part of a lane condition evaluated in 32 bits.
_CLAMP = (1 << 30) - 1


class Indices(ABC):
    """Evaluates indices in a :class:`State`, writing through a :class:`Builder`."""

    def __init__(self, builder: Builder, state: State) -> None:
        self.b = builder
        self.state = state
        self._plans: dict[Index, Plan] = {}
        self._atoms: dict[tuple[object, ...], Index] = {}
        self._names: dict[Atom, tuple[str, ...]] = {}

    @abstractmethod
    def value(self, e: Expr) -> Val:
        """The value of a scalar expression."""

    # -- symbolic evaluation --------------------------------------------------------------------------------

    def plan(self, x: Index) -> Plan:
        """Split an index for :meth:`evaluate`."""
        got = self._plans.get(x)
        if got is None:
            got = self._plans[x] = new_plan(x)
        return got

    def evaluate(self, plan: Plan) -> tuple[int, Resolved]:
        """The index over SSA names, simplified by their ranges: its constant, and the rest of it."""
        env = self.state.env
        const = plan.const
        key: list[object] = [self.state.width]
        for name, c in plan.plain:
            e = env.get(name)
            if e is None:
                key.append(None)
            else:
                const += c * e.const
                key.append(id(e.terms))
        for name in plan.names:
            e = env.get(name)
            if e is None:
                key.append(None)
            else:
                key.append(id(e.terms))
                key.append(e.const)
        k = tuple(key)
        got = plan.cache.get(k)
        if got is None:
            got = plan.cache[k] = self._evaluate(plan)
        return const + got.shift, got

    def _evaluate(self, plan: Plan) -> Resolved:
        env = self.state.env
        const = 0
        sums: dict[Atom, int] = {}
        for name, c in plan.plain:
            e = env.get(name)
            if e is None:
                sums[Var(name)] = sums.get(Var(name), 0) + c
            elif e.terms:
                plan.kept.append(e.terms)
                for atom, k in e.terms:
                    sums[atom] = sums.get(atom, 0) + k * c
        plan.kept.extend(e.terms for e in map(env.get, plan.names) if e is not None)
        for atom, c in plan.rest:
            part = self._atom(atom)
            const += part.const * c
            for inner, k in part.terms:
                sums[inner] = sums.get(inner, 0) + k * c
        x = linear(const, sums)
        lane = x.coefficient(LANE)
        terms = x - LANE_INDEX * lane if lane else x
        volatile = bool(plan.rest) and any(True for _ in walk_index(x))
        whole = Index(0, x.terms)
        bare = whole if not lane else Index(0, terms.terms)
        return Resolved(bare, lane, LANE in terms.vars, volatile, x.const, whole)

    def _atom(self, atom: Atom) -> Index:
        """An atom over SSA names, simplified by their ranges, which never change."""
        if isinstance(atom, Param):
            return Index(0, ((atom, 1),))
        st = self.state
        key: list[object] = [atom, st.width]
        names = self._names.get(atom)
        if names is None:
            names = self._names[atom] = tuple(sorted(Index(0, ((atom, 1),)).vars))
        key.extend([st.env.get(name) for name in names])
        k = tuple(key)
        got = self._atoms.get(k)
        if got is None:
            x = substitute_index(Index(0, ((atom, 1),)), st.env)
            got = self._atoms[k] = simplify(x, st.ranges)
        return got

    def resolve(self, x: Index) -> Index:
        """``x`` over SSA names, simplified by their ranges."""
        if not x.terms:
            return x
        const, r = self.evaluate(self.plan(x))
        return Index(const, r.whole.terms)

    # -- values ---------------------------------------------------------------------------------------------

    def index_value(self, x: Index) -> Val:
        """The value of a resolved index: a scalar ``i64``, or lanes where ``$lane`` occurs."""
        b = self.b
        parts = [(self.atom_value(atom), c) for atom, c in x.terms]
        if len(parts) > 1:
            parts.sort(key=_by_depth)
        acc: Val | None = None
        for v, c in parts:
            term = v if abs(c) == 1 else b.op("mul nsw", v, b.const(abs(c), I64))
            if acc is None:
                acc = term if c > 0 else b.op("sub nsw", b.const(0, I64), term)
            else:
                acc = b.op("add nsw" if c > 0 else "sub nsw", acc, term)
        if acc is None:
            return b.const(x.const, I64)
        return acc if x.const == 0 else b.op("add nsw", acc, b.const(x.const, I64))

    def atom_value(self, atom: Atom) -> Val:
        """The value of one atom of a resolved index."""
        b, st = self.b, self.state
        match atom:
            case Var(name):
                return iota(I64, st.width) if name == LANE else st.ssa[name]
            case Param():
                return st.params[atom.name]
            case FloorDiv(arg, d):
                return self._floordiv(arg, d)
            case Mod(arg, d):
                v = self.index_value(arg)
                if d & (d - 1) == 0:
                    return b.op("and", v, b.const(d - 1, I64))
                if prove_ge0(arg, st.ranges):
                    return b.op("urem", v, b.const(d, I64))
                q = self._floordiv(arg, d)
                return b.op("sub nsw", v, b.op("mul nsw", q, b.const(d, I64)))
            case MinMax(op, args):
                vals = [self.index_value(a) for a in args]
                acc = vals[0]
                for v in vals[1:]:
                    acc = b.intrinsic("smin" if op == "min" else "smax", I64, (acc, v))
                return acc
            case Opaque(expr):
                return cast(b, self.value(expr), I64, "wrap")
            case _:
                raise InternalError(f"unknown index atom {atom}")

    def _floordiv(self, arg: Index, d: int) -> Val:
        b = self.b
        v = self.index_value(arg)
        if d & (d - 1) == 0:
            return b.op("ashr", v, b.const(d.bit_length() - 1, I64))
        if prove_ge0(arg, self.state.ranges):
            return b.op("udiv", v, b.const(d, I64))
        q = b.op("sdiv", v, b.const(d, I64))
        r = b.op("srem", v, b.const(d, I64))
        neg = b.compare("icmp slt", r, b.const(0, I64))
        return b.op("sub nsw", q, b.convert("zext", neg, I64))

    # -- conditions -----------------------------------------------------------------------------------------

    def condition(self, c: Condition) -> bool | Val:
        """A conjunct: a known truth, or a value (lanes where it depends on the lane)."""
        if c.expr is not None:
            v = self.value(c.expr)
            return v if v.depth or v.text not in ("true", "false") else v.text == "true"
        assert c.index is not None
        const, r = self.evaluate(self.plan(c.index))
        if not r.whole.terms:
            return const >= 0 if c.op == "ge" else const == 0
        key = (const, c.op)
        if key not in r.signs:
            r.signs[key] = self._decide(Index(const, r.whole.terms), c.op)
        known = r.signs[key]
        return known if known is not None else self._sign_value(Index(const, r.whole.terms), c.op)

    def conjuncts(self, conditions: Pred) -> list[Val] | None:
        """What of the conjuncts only a run tells; ``None`` where one is known not to hold.

        They are evaluated in order: a conjunct may read what only exists where those before it hold.
        """
        guards = self.state.guards
        outer = len(guards)
        for c in conditions:
            got = self.condition(c)
            if got is False:
                del guards[outer:]
                return None
            if isinstance(got, Val):
                guards.append(got)
        values = guards[outer:]
        del guards[outer:]
        return values

    def sign(self, x: Index, op: str) -> bool | Val:
        """Whether a resolved index is ``>= 0`` (``ge``) or ``== 0`` (``eq``)."""
        known = self._decide(x, op)
        return self._sign_value(x, op) if known is None else known

    def _decide(self, x: Index, op: str) -> bool | None:
        """The truth of a condition where the ranges of its variables tell."""
        low, high = self.bounds(x)
        if op == "ge":
            if low is not None and low >= 0:
                return True
            if high is not None and high < 0:
                return False
        else:
            if low == 0 and high == 0:
                return True
            if (low is not None and low > 0) or (high is not None and high < 0):
                return False
        return None

    def _sign_value(self, x: Index, op: str) -> Val:
        """The truth of a condition as a value, lanes where it depends on the lane."""
        st, b = self.state, self.b
        lane = x.coefficient(LANE)
        rest = x - LANE_INDEX * lane
        if lane and not rest.terms:
            values = [rest.const + lane * n for n in range(st.width)]
            return mask_literal([v >= 0 if op == "ge" else v == 0 for v in values])
        lowest = rest + min(lane, 0) * (st.width - 1)
        if lane and op == "ge" and LANE not in rest.vars and _agree(lowest, abs(lane) * (st.width - 1)):
            return b.compare("icmp sge", self.index_value(lowest), b.const(0, I64))
        if not lane and x.vars == {LANE}:
            each = [substitute_index(x, {LANE: Index(n)}) for n in range(st.width)]
            # beside the lane there may be a size that only a run knows
            if all(v.is_const for v in each):
                return mask_literal([v.const >= 0 if op == "ge" else v.const == 0 for v in each])
        if lane and LANE not in rest.vars and abs(lane) * st.width < _CLAMP:
            # r + c*lane >= 0 as a comparison of 32-bit lanes with the clamped scalar r
            limit = b.const(_CLAMP, I64)
            r = b.intrinsic("smin", I64, (self.index_value(rest), limit))
            r = b.intrinsic("smax", I64, (r, b.const(-_CLAMP, I64)))
            lanes = iota(I32, st.width)
            if lane != 1:
                lanes = b.op("mul", lanes, b.const(lane, I32))
            total = b.op("add", b.splat(b.convert("trunc", r, I32), st.width), lanes)
            return b.compare("icmp sge" if op == "ge" else "icmp eq", total, b.const(0, I32))
        return b.compare("icmp sge" if op == "ge" else "icmp eq", self.index_value(x), b.const(0, I64))

    def bounds(self, x: Index) -> tuple[int | None, int | None]:
        """Numbers that a resolved index lies between."""
        spans = self.state.spans
        low = high = x.const
        for atom, c in x.terms:
            lo, hi = spans.get(atom.name, (None, None)) if isinstance(atom, Var) else (None, None)
            if lo is None or hi is None:
                return int_lower(x, self.state.ranges), int_upper(x, self.state.ranges)
            low += c * lo if c > 0 else c * hi
            high += c * hi if c > 0 else c * lo
        if len(x.terms) < 2 or low >= 0 or high < 0:
            return low, high
        # terms may depend on each other
        return int_lower(x, self.state.ranges), int_upper(x, self.state.ranges)


def new_plan(x: Index) -> Plan:
    """An index split for evaluation, with a cache of its own."""
    plain = tuple((a.name, c) for a, c in x.terms if isinstance(a, Var))
    rest = tuple((a, c) for a, c in x.terms if not isinstance(a, Var))
    names = tuple(sorted(Index(0, rest).vars)) if rest else ()
    return Plan(x.const, plain, rest, names)


def _agree(lowest: Index, spread: int) -> bool:
    """Whether ``lowest + n`` has one sign for all ``n`` up to ``spread``: its values lie too far apart."""
    step = gcd(*(c for _, c in lowest.terms))
    return lowest.const % step + spread < step


def _by_depth(part: tuple[Val, int]) -> int:
    return part[0].depth
