"""Statements of C in nests: assignments, loops over integers in constant steps, branches, calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tilewright.frontend.c.expressions import BINARY, Expressions, Fact, Pointer, Variable
from tilewright.frontend.c.flow import (
    all_of,
    assigned,
    changed,
    continues,
    mentioned,
    same,
    statements,
    without_continue,
)
from tilewright.frontend.c.numbers import Number, number
from tilewright.frontend.c.steps import STEPS
from tilewright.frontend.nests import FALSE, Place, decided_by_loops
from tilewright.ir import (
    I32,
    I64,
    NOTHING,
    Binary,
    Const,
    Expr,
    Index,
    Stmt,
    Var,
    floordiv,
    imax,
    imin,
    index,
    loads,
    prove_ge0,
    seq,
    substitute_index,
    var,
)
from tilewright.support import quoted

Array = npt.NDArray[np.generic]

_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!="}
_CALLED: Final = {
    "Return": ("return ends a function, and nests end at their end", "branch around what is not to run"),
    "Break": ("break ends a loop early, which data decide", "loop over everything, under a condition"),
    "Goto": ("goto is not part of nests", None),
    "Label": ("labels are not part of nests", None),
    "Switch": ("switch is not part of nests", "write if and else"),
    "Continue": ("continue stands in no loop of this nest", None),
}


@dataclass(slots=True)
class Statements(Expressions):
    """Reads statements one after another, in the order in which they run."""

    # -- statements ------------------------------------------------------------------------------------------

    def stmt(self, s: Any, at: Place) -> Stmt:
        """One statement."""
        self.at, self.place = s, at
        c = self.c
        match s:
            case c.Compound():
                return self.scoped(s.block_items or (), at)
            case c.For():
                return self.loop(s, at)
            case c.While():
                return self.counted(s, at)
            case c.DoWhile():
                zero = self.condition(s.cond)
                if zero != FALSE or (not continues(c, s.stmt) and _leaves(c, s.stmt)):
                    raise self.refused(s, "loops with their condition at the end are: do { ... } while (0)")
                return self.scoped(without_continue(self.source, statements(c, s.stmt)), at)
            case c.If():
                return self.branch(s, at)
            case c.Decl():
                return self.declared(s, at)
            case c.DeclList():
                return seq(*(self.declared(d, at) for d in s.decls))
            case c.ExprList():
                return seq(*(self.stmt(e, at) for e in s.exprs))
            case c.Assignment():
                return self.assignment(s, at)
            case c.UnaryOp() if s.op in STEPS:
                op = "add" if "+" in s.op else "sub"
                target = self.found(s.expr.name) if isinstance(s.expr, c.ID) else None
                if target is not None and target.pointer:
                    one = c.Constant("int", "1", s.coord)
                    return self.aimed(target, c.BinaryOp("+" if "+" in s.op else "-", s.expr, one, s.coord))
                return self.assign(s.expr, lambda: self.arith.binary(op, self.value(s.expr), number(1)), at)
            case c.FuncCall(name=c.ID()) if self.source.function(s.name.name) is not None:
                return self.call(s, at)
            case c.Cast() if self.kind(s.to_type.type, s) is None:
                return NOTHING  # (void)x
            case c.EmptyStatement() | c.Typedef():
                return NOTHING
        what, hint = _CALLED.get(type(s).__name__, ("this statement has no effect that nests know", None))
        if isinstance(s, c.FuncCall):
            what = "a call of a function that the file does not define is not part of nests"
        raise self.refused(s, what, hint)

    def scoped(self, items: Sequence[Any], at: Place) -> Stmt:
        """Statements in a scope of their own."""
        self.scopes.append({})
        out = [self.stmt(k, at) for k in items]
        self.scopes.pop()
        return seq(*out)

    def call(self, s: Any, at: Place) -> Stmt:
        """A function of the file, its statements in the place of the call."""
        part = self.source.function(s.name.name)
        f = self.entered(s, part, [] if s.args is None else list(s.args.exprs))
        held = [(v, v.value) for v in self.scopes[1].values() if v.value is not None]
        stored: list[Stmt] = []
        for v, value in held:
            v.value = None
            stored.append(self.put(v, value, at))
        items = list(f.body.block_items or ())
        if items and isinstance(items[-1], self.c.Return):
            items.pop()
        # integers that the function changes have storage, too
        for v in list(self.scopes[1].values()):
            known = self.facts.get(v)
            if isinstance(known, Index) and v.name in changed(self.source, f.body):
                stored.append(self.put(v, Number(known, v.dtype), at))
        body = self.scoped(items, at)
        self.left()
        return seq(*stored, body)

    def declared(self, d: Any, at: Place) -> Stmt:
        """A declaration, and the value that it gives."""
        self.at = d
        c = self.c
        if isinstance(d.type, c.PtrDecl):
            dtype = (
                self.kind(d.type.type, d) if not isinstance(d.type.type, c.PtrDecl | c.ArrayDecl) else None
            )
            if dtype is None:
                raise self.refused(d, f"{quoted(d.name)} is a pointer to something other than numbers")
            v = self.declare(Variable(d.name, dtype, pointer=True), d)
            return NOTHING if d.init is None else self.aimed(v, d.init)
        dtype, extents = self.shape(d.type, d)
        if not extents:
            v = Variable(d.name, dtype)
            # the value is read before the name has its new meaning
            value = None if d.init is None else self.value(d.init)
            self.declare(v, d)
            if value is None and dtype.is_float:
                v.buffer = self.builder.local(v.name, (), dtype)
            self.at = d
            return NOTHING if value is None else self.put(v, value, at)
        v = self.declare(Variable(d.name, dtype, rank=len(extents)), d)
        v.buffer = self.builder.local(d.name, extents, dtype)
        if d.init is None:
            return NOTHING
        out: list[Stmt] = []
        for where, element in np.ndenumerate(self.listed(d, v)):
            held = element.item()
            value = Number(Const(held, dtype), dtype) if dtype.is_float else number(int(held), dtype)
            out.append(self.store(v, [number(n, I64) for n in where], value, at))
        return seq(*out)

    def aimed(self, v: Variable, e: Any) -> Stmt:
        """Let a pointer point at what an expression says."""
        found = self.pointer(e)
        if found.array.dtype != v.dtype:
            raise self.refused(
                e,
                f"{quoted(v.name)} points at {v.dtype}, {quoted(found.array.name)} has {found.array.dtype}",
            )
        self.facts[v] = found
        return NOTHING

    def assignment(self, s: Any, at: Place) -> Stmt:
        """``x = e``, ``x op= e``, or ``x = y = e``: the inner assignment first, whose value it takes."""
        c = self.c
        target = self.found(s.lvalue.name) if isinstance(s.lvalue, c.ID) else None
        if target is not None and target.pointer:
            if s.op == "=":
                return self.aimed(target, s.rvalue)
            by = c.BinaryOp(s.op[:-1], s.lvalue, s.rvalue, s.coord)
            return self.aimed(target, by)
        if s.op == "=" and isinstance(s.rvalue, c.Assignment):
            inner = self.stmt(s.rvalue, at)
            return seq(inner, self.assign(s.lvalue, lambda: self.value(s.rvalue.lvalue), at))

        def value() -> Number:
            if s.op == "=":
                return self.value(s.rvalue)
            old, term = self.value(s.lvalue), self.value(s.rvalue)
            self.at = s
            return self.arith.binary(BINARY[s.op[:-1]], old, term)

        return self.assign(s.lvalue, value, at)

    def assign(self, target: Any, value: Callable[[], Number], at: Place) -> Stmt:
        """An assignment to an element or a variable."""
        self.place = at
        v, indices = self.element(target)
        if v in self.loops:
            raise self.refused(
                target,
                f"{quoted(v.name)} is the variable of a loop: only the loop changes it",
                "use another variable",
            )
        found = value()
        self.at = target
        return self.store(v, indices, found, at) if indices else self.put(v, found, at)

    def store(self, v: Variable, indices: Sequence[Number], value: Number, at: Place) -> Stmt:
        """A value in an element."""
        assert v.buffer is not None
        e = self.arith.expr(self.arith.converted(value, v.dtype))
        return self.builder.assign(at, v.buffer, [n.value for n in indices], e)

    def put(self, v: Variable, value: Number, at: Place) -> Stmt:
        """A value in a variable; integers are known by theirs as well."""
        if v.value is not None:
            raise self.error(f"{quoted(v.name)} is what the file says, and is never changed")
        if v.buffer is None:
            v.buffer = self.builder.local(v.name, (), v.dtype)
        held = self.arith.converted(value, v.dtype)
        self.facts.pop(v, None)
        v.lost = False
        out = self.store(v, (), held, at)
        if isinstance(held.value, Index) and v.buffer in self.builder.temps:
            self.facts[v] = held.value
        return out

    def listed(self, d: Any, v: Variable) -> Array:
        """The numbers that an array outside of functions is given, zeros behind them."""
        assert v.buffer is not None
        extents = self.builder.buffers[v.buffer].shape
        if not all(x.is_const for x in extents):
            raise self.refused(d, f"{quoted(d.name)} is given its elements: its extents must be numbers")
        out = np.zeros([x.const for x in extents], v.dtype.numpy)
        self.filled(out, d.init, v)
        return out

    def filled(self, out: Array, init: Any, v: Variable) -> None:
        """Put the numbers of a list in braces into a part of an array."""
        if not isinstance(init, self.c.InitList) or len(init.exprs) > len(out):
            raise self.refused(init, f"{quoted(v.name)} is given other elements than it has")
        for n, e in enumerate(init.exprs):
            if out.ndim > 1:
                self.filled(out[n], e, v)
                continue
            value = self.arith.converted(self.value(e), v.dtype)
            match value.value:
                case Index() if value.value.is_const:
                    out[n] = value.value.const
                case Const():
                    out[n] = value.value.value
                case _:
                    raise self.refused(e, f"the elements of {quoted(v.name)} must be numbers")

    # -- loops -----------------------------------------------------------------------------------------------

    def loop(self, s: Any, at: Place) -> Stmt:
        """A ``for`` loop over an integer in constant steps."""
        c = self.c
        self.scopes.append({})
        steps = _listed(c, s.next)
        inside = None if s.cond is None else _counting(c, s.cond)
        if s.cond is None or not (steps or inside):
            raise self.refused(s, "a loop has a condition and a step", "for (i = first; i < last; i++)")
        begin = list(s.init.decls) if isinstance(s.init, c.DeclList) else _listed(c, s.init)
        targets = [_target(c, e) for e in (steps if inside is None else [inside])]
        named = [t for t in targets if t is not None and t.name in mentioned(c, s.cond)]
        # of several variables the one that the condition names; what else is stepped moves with it
        given = [t.name for t in (_target(c, e) for e in begin) if t is not None]
        counter = next((t.name for t in named), next(iter(given), None))
        following = inside or next((e for e, t in zip(steps, targets, strict=True) if t in named), steps[0])
        before: list[Stmt] = []
        v: Variable | None = None
        outer = True
        for each in begin:
            target, init = _target(c, each), getattr(each, "init", None) or getattr(each, "rvalue", None)
            if target is None or target.name != counter or init is None:
                before.append(self.stmt(each, at))
                continue
            first = self.value(init)
            if isinstance(each, c.Decl):
                dtype = self.kind(each.type, each)
                if dtype is None or not dtype.is_integer:
                    raise self.refused(each, f"loop {quoted(counter)} counts in integers")
                v, outer = self.declare(Variable(counter, dtype), each), False
            else:
                v = self.variable(target)
        if v is None:
            if not named:
                raise self.refused(
                    s, "a loop begins with one assignment to its variable", "for (i = first; i < last; i++)"
                )
            v, first = self.variable(named[0]), self.named(named[0])
        body = without_continue(self.source, statements(c, s.stmt))
        body += [e for e in steps if e is not following]
        out = self.over(s, v, first, s.cond, following, body, at, outer=outer)
        self.scopes.pop()
        return seq(*before, out)

    def over(
        self,
        s: Any,
        v: Variable,
        first: Number,
        cond: Any,
        following: Any,
        body: Sequence[Any],
        at: Place,
        *,
        outer: bool,
    ) -> Stmt:
        """A loop over ``v``, which keeps its last value where it is declared outside (``outer``)."""
        if v in self.loops:
            raise self.refused(
                s, f"{quoted(v.name)} is the variable of a loop around this one", "use another variable"
            )
        if v.dtype.is_float or v.rank or v.pointer:
            raise self.refused(s, f"loop {quoted(v.name)} counts in integers")
        lo = self.arith.exact(self.arith.converted(first, v.dtype))
        moved = self.moved_by_turns(body)
        self.forget(body, v)
        step = self.step(following, v)
        self.place = at
        if following is _counting(self.c, cond):
            # the condition steps: the first turn has the first value behind the step
            if not isinstance(lo.value, Index):
                raise self.refused(cond, f"data decide where loop {quoted(v.name)} begins")
            lo = Number(lo.value + step, I64 if v.dtype.kind == "uint" else v.dtype)
        hi = self.bound(cond, v, step, lo, moved)
        data = [x.value for x in (lo, hi) if isinstance(x.value, Expr)]
        effects = self.buffers(body)
        if any(ld.buffer in effects for x in data[-1:] if x is hi.value for ld in loads(x)):
            raise self.refused(
                cond,
                f"the bound of the loop over {quoted(v.name)} changes in it",
                "keep it in a variable before",
            )
        self.at = s
        kept = dict(self.facts)
        self.facts.pop(v, None)

        def inside(p: Place) -> Stmt:
            self.loops[v] = p.names[-1][1]
            if not p.box:
                loop, begin, _ = p.loops[-1]
                self.facts |= {w: self.after(known, var(loop) - begin, by) for w, known, by in moved}
            out = self.scoped(body, p)
            del self.loops[v]
            return out

        made = self.builder.counting(at, v.name, lo.value, hi.value, step, inside)
        self.facts = {w: x for w, x in kept.items() if w is not v}
        self.place = at
        turns = index(0)
        if isinstance(lo.value, Index) and isinstance(hi.value, Index):
            way = hi.value - lo.value if step > 0 else lo.value - hi.value
            turns = imax(floordiv(way + (abs(step) - 1), abs(step)), index(0))
            self.facts |= {w: self.after(known, turns, by) for w, known, by in moved}
        if not outer:
            return made
        if isinstance(lo.value, Index) and isinstance(hi.value, Index):
            return seq(made, self.put(v, Number(lo.value + turns * step, v.dtype), at))
        if any(ld.buffer in effects for x in data for ld in loads(x)):
            v.lost = True
            return made
        last = Binary("max", *(self.arith.expr(self.arith.converted(x, v.dtype)) for x in (lo, hi)))
        return seq(made, self.put(v, Number(last, v.dtype), at))

    def moved_by_turns(self, body: Sequence[Any]) -> list[tuple[Variable, Fact, int]]:
        """Integers and pointers that each turn of a loop moves alike: as they are before it, and by what."""
        c = self.c
        out: list[tuple[Variable, Fact, int]] = []
        whole = c.Compound(list(body))
        targets = [e.lvalue for e in all_of(c.Assignment, whole)]
        targets += [e.expr for e in all_of(c.UnaryOp, whole) if e.op in STEPS]
        declared = {d.name for d in all_of(c.Decl, whole)}
        for s in body:
            match s:
                case c.UnaryOp(expr=c.ID()) if s.op in STEPS:
                    target, by = s.expr, number(1 if "+" in s.op else -1)
                case c.Assignment(op="+=" | "-=", lvalue=c.ID(), rvalue=c.Constant(type="int")):
                    target, by = s.lvalue, self.constant(s.rvalue)
                    by = self.arith.negative(by) if s.op == "-=" else by
                case _:
                    continue
            w = self.found(target.name)
            once = sum(isinstance(t, c.ID) and t.name == target.name for t in targets) == 1
            known = None if w is None or target.name in declared else self.facts.get(w)
            if w is None or not (w.pointer or w.dtype.bits >= I32.bits):
                continue  # short integers wrap around
            if known is not None and once and isinstance(by.value, Index):
                out.append((w, known, by.value.as_int()))
        return out

    def after(self, known: Fact, turns: Index, by: int) -> Fact:
        """What an integer or a pointer is after some turns of a loop that each move it."""
        if isinstance(known, Index):
            return known + turns * by
        *outer, last = known.indices
        moved = self.arith.binary("add", last, Number(turns * by, I64))
        return Pointer(known.array, (*outer, moved))

    def forget(self, body: Sequence[Any], v: Variable | None = None) -> None:
        """Drop what a part of the nest changes of what is known."""
        for name in assigned(self.c, self.c.Compound(list(body))):
            w = self.found(name)
            if w is not None:
                self.facts.pop(w, None)

    def buffers(self, body: Sequence[Any]) -> set[str]:
        """The buffers that a part of the nest may change."""
        arrays = {
            w.buffer for scope in self.scopes for w in scope.values() if w.rank and w.buffer is not None
        }
        out: set[str] = set()
        whole = self.c.Compound(list(body))
        own = {d.name for d in all_of(self.c.Decl, whole) if not isinstance(d.type, self.c.PtrDecl)}
        for name in changed(self.source, whole):
            w = self.found(name)
            if w is None and name in own:
                continue
            if w is None or w.pointer:
                # a pointer into some array
                known = None if w is None else self.facts.get(w)
                pointed = known.array.buffer if isinstance(known, Pointer) else None
                out |= {pointed} if pointed is not None else arrays
            elif w.buffer is not None:
                out.add(w.buffer)
        return out

    def step(self, e: Any, v: Variable) -> int:
        """The constant step of a loop."""
        c = self.c
        match e:
            case c.UnaryOp(op="p++" | "++", expr=c.ID(name=name)) if name == v.name:
                return 1
            case c.UnaryOp(op="p--" | "--", expr=c.ID(name=name)) if name == v.name:
                return -1
            case c.Assignment(op="+=" | "-=", lvalue=c.ID(name=name), rvalue=by) if name == v.name:
                sign = 1 if e.op == "+=" else -1
            case c.Assignment(
                op="=",
                lvalue=c.ID(name=name),
                rvalue=c.BinaryOp(op="+" | "-", left=c.ID(name=also), right=by),
            ) if name == also == v.name:
                sign = 1 if e.rvalue.op == "+" else -1
            case c.Assignment(
                op="=", lvalue=c.ID(name=name), rvalue=c.BinaryOp(op="+", left=by, right=c.ID(name=also))
            ) if name == also == v.name:
                sign = 1
            case _:
                raise self.refused(
                    e, f"the step of loop {quoted(v.name)} must be a constant", "i++ or i += 2"
                )
        found = self.value(by)
        if isinstance(found.value, Index) and found.value.is_const and found.value.const:
            return sign * found.value.const
        raise self.refused(e, f"the step of loop {quoted(v.name)} must be a constant, other than 0")

    def bound(
        self, cond: Any, v: Variable, step: int, lo: Number, moved: Sequence[tuple[Variable, Fact, int]]
    ) -> Number:
        """Where a loop ends, behind its last turn: what its condition compares the variable with."""
        c = self.c
        inside = _counting(c, cond)
        if inside is not None:
            if inside is cond:
                cond = c.BinaryOp("!=", inside.expr, c.Constant("int", "0", cond.coord), cond.coord)
            else:
                cond = c.BinaryOp(cond.op, inside.expr, cond.right, cond.coord)
            if inside.op.startswith("p"):  # what is compared is the value before the step
                before = Number(lo.value - step, v.dtype) if isinstance(lo.value, Index) else lo
                tested = self.bound(cond, v, step, before, moved)
                return self.arith.binary("add", Number(tested.value, I64), number(step, I64))
        if isinstance(cond, c.BinaryOp) and cond.op == "&&":
            a, b = (self.bound(part, v, step, lo, moved) for part in (cond.left, cond.right))
            if isinstance(a.value, Index) and isinstance(b.value, Index):
                return Number((imin if step > 0 else imax)(a.value, b.value), a.dtype)
            raise self.refused(cond, f"data decide about several ends of loop {quoted(v.name)}")
        if not isinstance(cond, c.BinaryOp) or cond.op not in _FLIPPED:
            raise self.refused(
                cond, f"the condition of loop {quoted(v.name)} must compare it with its bound", "i < last"
            )
        op = cond.op
        sides = [cond.left, cond.right]
        alone = [isinstance(e, c.ID) and e.name == v.name for e in sides]
        turning = mentioned(c, cond) & {w.name for w, _, _ in moved}
        if sum(alone) != 1 or turning or v.name in mentioned(c, sides[alone.index(False)]):
            op, limit = self.solved(cond, v, step, lo, moved)
            lo = Number(lo.value, I64)
        elif alone[0]:
            limit = self.value(cond.right)
        else:
            op, limit = _FLIPPED[op], self.value(cond.left)
        if op != "!=" and (step > 0) != (op in ("<", "<=")):
            raise self.refused(cond, f"loop {quoted(v.name)} steps away from its bound")
        if op == "!=" and abs(step) != 1:
            raise self.refused(cond, f"loop {quoted(v.name)} may step over its bound", "write < or >")
        self.at = cond
        mine, hi = self.arith.together(lo, limit)
        if hi.dtype.is_float:
            raise self.refused(cond, f"the bounds of loop {quoted(v.name)} are no integers")
        hi = self.arith.exact(hi)
        if isinstance(hi.value, Const):
            raise self.refused(
                cond,
                f"the bound of loop {quoted(v.name)} is {hi.value.value}: it was negative, and is unsigned",
                "convert it to int, or give other sizes",
            )
        if hi.dtype.kind == "uint" and v.dtype.kind == "int" and isinstance(mine.value, Index):
            if not isinstance(self.arith.exact(mine).value, Index):
                raise self.refused(
                    cond,
                    f"loop {quoted(v.name)} may begin below 0, and is compared with an unsigned integer",
                    "convert its bound to int",
                )
        unsigned = hi.dtype.kind == "uint"
        if op in ("<=", ">="):
            # one behind the last: sums of unsigned integers would wrap around
            wide = Number(hi.value, I64) if isinstance(hi.value, Index) else self.arith.converted(hi, I64)
            hi = self.arith.binary("add", wide, number(1 if step > 0 else -1, I64))
        last = hi.value + step + 1 if isinstance(hi.value, Index) else index(0)
        if unsigned and step < 0 and not prove_ge0(last, self.arith.ranges()):
            # what is compared as unsigned is never less than 0
            raise self.refused(
                cond,
                f"loop {quoted(v.name)} may pass by 0, below which its unsigned condition holds again",
                "count in int, or begin with: for (i = n; i > 0; i--) and use i - 1",
            )
        return hi

    def solved(
        self, cond: Any, v: Variable, step: int, lo: Number, moved: Sequence[tuple[Variable, Fact, int]]
    ) -> tuple[str, Number]:
        """A condition that is linear in the variable of its loop, by it: ``i + 3 < n``  ->  ``i < n - 3``."""
        refusal = self.refused(cond, f"the condition of loop {quoted(v.name)} must be linear in it")
        here, kept, place = var("?"), dict(self.facts), self.place
        if abs(step) == 1 and isinstance(lo.value, Index):
            self.facts |= {w: self.after(known, (here - lo.value) * step, by) for w, known, by in moved}
        self.loops[v] = here
        if isinstance(lo.value, Index):
            least, most = (index(int(end)) for end in (v.dtype.min_value, v.dtype.max_value))
            ends = (lo.value, most) if step > 0 else (least, lo.value)
            self.place = replace(self.place, loops=(*self.place.loops, ("?", ends[0], ends[1] + 1)))
        a, b = self.arith.together(self.value(cond.left), self.value(cond.right))
        del self.loops[v]
        self.facts, self.place = kept, place
        if not (isinstance(a.value, Index) and isinstance(b.value, Index) and isinstance(lo.value, Index)):
            raise refusal
        for side in (a.value, b.value) if a.dtype.kind == "uint" else ():
            # neither may wrap around: both begin at 0 or above, and do not fall
            begins = substitute_index(side, {"?": lo.value})
            falls = any(atom == Var("?") and by * step < 0 for atom, by in side.terms)
            if falls or not prove_ge0(begins, self.arith.ranges()):
                raise refusal
        apart = a.value - b.value
        by = next((k for atom, k in apart.terms if atom == Var("?")), 0)
        limit = here * by - apart
        if by == 0 or "?" in limit.vars or (abs(by) > 1 and cond.op == "!="):
            raise refusal
        op = cond.op if by > 0 else _FLIPPED[cond.op]
        up = abs(by) - 1 if op in ("<", ">=") else 0
        return op, Number(floordiv((limit if by > 0 else -limit) + up, abs(by)), I64)

    def counted(self, s: Any, at: Place) -> Stmt:
        """``while (e < end) { ...; e++; }`` or ``while (e-- > 0) { ... }`` as a loop over ``e``."""
        c = self.c
        body = statements(c, s.stmt)
        inside = _counting(c, s.cond)
        if inside is not None:
            v = self.variable(inside.expr)
            body = without_continue(self.source, body)
            return self.over(s, v, self.named(inside.expr), s.cond, inside, body, at, outer=True)
        following = body[-1] if body else None
        target = _target(c, following)
        if target is None or target.name not in mentioned(c, s.cond):
            raise self.refused(
                s,
                "the last statement of a while loop must change its variable",
                "while (e < last) { ... e++; }",
            )
        if any(continues(c, part) for part in body):
            raise self.refused(s, "continue in a while loop passes by its step", "write a for loop")
        v = self.variable(target)
        if v.name in assigned(c, c.Compound(body[:-1])):
            raise self.refused(s, f"{quoted(v.name)} must be changed by the end of the loop alone")
        first = self.named(target)
        return self.over(s, v, first, s.cond, following, body[:-1], at, outer=True)

    # -- branches --------------------------------------------------------------------------------------------

    def branch(self, s: Any, at: Place) -> Stmt:
        """A branch, on loops or on data."""
        c = self.c
        chosen = self.merged(s)
        if chosen is not None:
            return self.assign(chosen.lvalue, lambda: self.value(chosen.rvalue), at)
        cond = self.condition(s.cond)
        known = dict(self.facts)
        parts = [s.iftrue] if s.iffalse is None else [s.iftrue, s.iffalse]
        # the condition of a single assignment is read before anything changes
        effects = set() if s.iffalse is None and _single(c, s.iftrue) else self.buffers(parts)

        def run(part: Any, p: Place) -> Stmt:
            self.facts = dict(known)
            return self.scoped(statements(c, part), p)

        self.at = s
        out = self.builder.branch(
            at,
            cond,
            effects,
            lambda p: run(s.iftrue, p),
            None if s.iffalse is None else lambda p: run(s.iffalse, p),
        )
        if not isinstance(cond, Const):
            self.facts = known
            self.forget(parts)
        self.place = at
        return out

    def merged(self, s: Any) -> Any | None:
        """``if (c) x = a; else x = b;`` as ``x = c ? a : b``, where data decide."""
        c = self.c
        parts = [statements(c, part) for part in (s.iftrue, s.iffalse)]
        if not all(len(p) == 1 and isinstance(p[0], c.Assignment) and p[0].op == "=" for p in parts):
            return None
        (one,), (two,) = parts
        simple = not any(isinstance(p.rvalue, c.Assignment) for p in (one, two))
        if not (simple and same(c, one.lvalue, two.lvalue)) or decided_by_loops(self.condition(s.cond)):
            return None
        if isinstance(one.lvalue, c.ID) and self.variable(one.lvalue).pointer:
            return None
        return c.Assignment("=", one.lvalue, c.TernaryOp(s.cond, one.rvalue, two.rvalue, s.coord), s.coord)


def _listed(c: Any, e: Any) -> list[Any]:
    """The expressions of a list, or of one."""
    return [] if e is None else list(e.exprs) if isinstance(e, c.ExprList) else [e]


def _target(c: Any, s: Any) -> Any | None:
    """The variable that a statement gives a value, or that an expression steps."""
    if isinstance(s, c.Decl):
        return c.ID(s.name, s.coord)
    target = getattr(s, "expr", None) if isinstance(s, c.UnaryOp) else getattr(s, "lvalue", None)
    return target if isinstance(target, c.ID) else None


def _counting(c: Any, cond: Any) -> Any | None:
    """The step in a condition that counts by itself: ``i-- > 0``, ``n--``."""
    e = cond.left if isinstance(cond, c.BinaryOp) else cond
    return e if isinstance(e, c.UnaryOp) and e.op in STEPS and isinstance(e.expr, c.ID) else None


def _single(c: Any, s: Any) -> bool:
    """Whether a statement is one assignment, maybe under further conditions."""
    items = statements(c, s)
    if len(items) != 1:
        return False
    (only,) = items
    if isinstance(only, c.If) and only.iffalse is None:
        return _single(c, only.iftrue)
    return isinstance(only, c.UnaryOp) or (
        isinstance(only, c.Assignment) and not isinstance(only.rvalue, c.Assignment)
    )


def _leaves(c: Any, s: Any) -> bool:
    """Whether a statement may leave the loop around."""
    if isinstance(s, c.For | c.While | c.DoWhile | c.Switch):
        return False
    return isinstance(s, c.Break) or any(_leaves(c, child) for _, child in s.children())
