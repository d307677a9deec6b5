"""Indices, predicates, accesses and scalar expressions as Python closures over one flat environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir import scalar_ops
from tilewright.ir.dtypes import DType
from tilewright.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Load, OfIndex, Select, Unary
from tilewright.ir.index import (
    FloorDiv,
    Index,
    MinMax,
    Mod,
    Opaque,
    Param,
    Var,
)
from tilewright.ir.interp_memory import ExecutionError, PoisonError, physical_position
from tilewright.ir.interp_scope import EPOCH, TASK, Env, IntFn, Place, Scope, ValueFn, flat_fn
from tilewright.ir.sharing import shared_nodes
from tilewright.ir.stmt import Pred


def index_fn(x: Index, scope: Scope) -> IntFn:
    """The value of an index as a function of the environment."""
    const = x.const
    plain: list[tuple[int, int]] = []
    others: list[tuple[IntFn, int]] = []
    for atom, c in x.terms:
        match atom:
            case Var(name):
                if name not in scope.vars:
                    raise ExecutionError(f"variable {name} is not in scope in the index {x}")
                plain.append((scope.vars[name], c))
            case Param():
                const += c * scope.params[atom.name]
            case _:
                others.append((_atom_fn(atom, scope), c))
    if others:
        return _general_index(const, tuple(plain), tuple(others))
    if not plain:
        return lambda e: const
    if len(plain) == 1:
        ((s, c),) = plain
        if c == 1:
            return (lambda e: e[s]) if const == 0 else (lambda e: e[s] + const)
        return lambda e: c * e[s] + const
    if len(plain) == 2:
        (s, c), (s2, c2) = plain
        if c == 1 and c2 == 1:
            return lambda e: e[s] + e[s2] + const
        return lambda e: c * e[s] + c2 * e[s2] + const
    if len(plain) == 3:
        (s, c), (s2, c2), (s3, c3) = plain
        return lambda e: c * e[s] + c2 * e[s2] + c3 * e[s3] + const
    return _general_index(const, tuple(plain), ())


def _general_index(
    const: int, plain: tuple[tuple[int, int], ...], others: tuple[tuple[IntFn, int], ...]
) -> IntFn:
    if len(others) == 1 and not plain:
        ((only, k),) = others
        if k == 1 and const == 0:
            return only
        return lambda e: k * only(e) + const

    def run(e: Env) -> int:
        total: int = const
        for s, c in plain:
            total += c * e[s]
        for f, c in others:
            total += c * f(e)
        return total

    return run


def _atom_fn(atom: FloorDiv | Mod | MinMax | Opaque, scope: Scope) -> IntFn:
    match atom:
        case FloorDiv(arg, d):
            f = index_fn(arg, scope)
            return lambda e: f(e) // d
        case Mod(arg, d):
            f = index_fn(arg, scope)
            return lambda e: f(e) % d
        case MinMax(op, args):
            fs = [index_fn(a, scope) for a in args]
            pick = min if op == "min" else max
            return lambda e: pick([f(e) for f in fs])
        case Opaque(expr):
            value = expr_fn(expr, scope)
            return lambda e: int(value(e))


def pred_fn(pred: Pred, scope: Scope) -> Callable[[Env], bool] | None:
    """Whether all conditions hold, as a function of the environment; ``None`` for the empty predicate."""
    tests: list[Callable[[Env], bool]] = []
    for c in pred:
        if c.expr is not None:
            tests.append(expr_fn(c.expr, scope))
            continue
        assert c.index is not None
        tests.append(_sign_test(index_fn(c.index, scope), c.op == "ge"))
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda e: all(t(e) for t in tests)


def _sign_test(f: IntFn, ge: bool) -> Callable[[Env], bool]:
    return (lambda e: f(e) >= 0) if ge else (lambda e: f(e) == 0)


def locator(place: Place, indices: tuple[Index, ...], scope: Scope) -> IntFn:
    """The flat position of an access as a function of the environment, checked against the buffer's box."""
    if len(indices) != len(place.logical):
        raise ExecutionError(
            f"access to {place.buffer.name} with {len(indices)} indices, "
            f"it has {len(place.logical)} dimensions"
        )
    fs = [index_fn(i, scope) for i in indices]
    flat = flat_fn(place)
    if place.mapped:
        return lambda e: flat(e, tuple([f(e) for f in fs]))
    names = [i.as_var() for i in indices]
    box, strides = place.box, place.strides
    base = -sum(lo * t for (lo, _), t in zip(box, strides, strict=True))
    direct = [scope.vars[n] for n in names if n is not None]
    if len(direct) == len(fs) and 0 < len(fs) <= 3:
        return _slot_locator(direct, box, strides, base, flat)
    match len(fs):
        case 0:
            return lambda e: 0
        case 1:
            f0, ((l0, h0),) = fs[0], box

            def one(e: Env) -> int:
                i = f0(e)
                return i + base if l0 <= i < h0 else flat(e, (i,))

            return one
        case 2:
            (f0, f1), ((l0, h0), (l1, h1)), t0 = fs, box, strides[0]

            def two(e: Env) -> int:
                i, j = f0(e), f1(e)
                return i * t0 + j + base if l0 <= i < h0 and l1 <= j < h1 else flat(e, (i, j))

            return two
        case 3:
            (f0, f1, f2), ((l0, h0), (l1, h1), (l2, h2)), (t0, t1, _) = fs, box, strides

            def three(e: Env) -> int:
                i, j, k = f0(e), f1(e), f2(e)
                if l0 <= i < h0 and l1 <= j < h1 and l2 <= k < h2:
                    return i * t0 + j * t1 + k + base
                return flat(e, (i, j, k))

            return three
        case 4:
            (f0, f1, f2, f3), ((l0, h0), (l1, h1), (l2, h2), (l3, h3)) = fs, box
            t0, t1, t2, _ = strides

            def four(e: Env) -> int:
                i, j, k, m = f0(e), f1(e), f2(e), f3(e)
                if l0 <= i < h0 and l1 <= j < h1 and l2 <= k < h2 and l3 <= m < h3:
                    return i * t0 + j * t1 + k * t2 + m + base
                return flat(e, (i, j, k, m))

            return four
        case _:
            return lambda e: flat(e, tuple([f(e) for f in fs]))


def _slot_locator(
    slots: list[int],
    box: tuple[tuple[int, int], ...],
    strides: tuple[int, ...],
    base: int,
    flat: Callable[[Env, tuple[int, ...]], int],
) -> IntFn:
    """:func:`locator` where every index is one variable: no calls on the way."""
    if len(slots) == 1:
        (s0,), ((l0, h0),) = slots, box

        def one(e: Env) -> int:
            i: int = e[s0]
            return i + base if l0 <= i < h0 else flat(e, (i,))

        return one
    if len(slots) == 2:
        (s0, s1), ((l0, h0), (l1, h1)), t0 = slots, box, strides[0]

        def two(e: Env) -> int:
            i: int = e[s0]
            j: int = e[s1]
            return i * t0 + j + base if l0 <= i < h0 and l1 <= j < h1 else flat(e, (i, j))

        return two
    (s0, s1, s2), ((l0, h0), (l1, h1), (l2, h2)), (t0, t1, _) = slots, box, strides

    def three(e: Env) -> int:
        i: int = e[s0]
        j: int = e[s1]
        k: int = e[s2]
        if l0 <= i < h0 and l1 <= j < h1 and l2 <= k < h2:
            return i * t0 + j * t1 + k + base
        return flat(e, (i, j, k))

    return three


def poison_error(place: Place, at: int) -> PoisonError:
    """The error of reading an element that nothing has written."""
    kind = "physical index" if place.mapped else "index"
    return PoisonError(
        f"read of uninitialised memory: buffer {place.buffer.name} at {kind} "
        f"{physical_position(place.buffer, at)}"
    )


def is_tracked(place: Place, scope: Scope) -> bool:
    """Whether accesses from here can race with others; marks the buffer as needing a shadow."""
    tracked = place.writable and scope.level > place.level
    if tracked:
        place.shadowed = True
        scope.slots.tracked += 1
    return tracked


def _load_fn(load: Load, scope: Scope, *, poison: bool = False) -> ValueFn:
    """The value of an element; with ``poison`` also where there is none, ``None`` then."""
    place = scope.place(load.buffer)
    if load.dtype != place.buffer.dtype:
        raise ExecutionError(f"load of {load} as {load.dtype}, the buffer holds {place.buffer.dtype}")
    at, data, shadow = locator(place, load.indices, scope), place.data, place.shadow
    if not is_tracked(place, scope):

        def plain(e: Env) -> Any:
            n = at(e)
            v = e[data][n]
            if v is None and not poison:
                raise poison_error(place, n)
            return v

        return plain

    # what an atomic update reads of its element is recorded with what it writes
    watched = scope.updated is None or scope.updated[0] != load.buffer

    def tracked(e: Env) -> Any:
        n = at(e)
        v = e[data][n]
        if watched:
            e[shadow].note_read(n, e[TASK])
        if v is None and not poison:
            raise poison_error(place, n)
        return v

    return tracked


def moved_fn(x: Expr, scope: Scope) -> ValueFn:
    """:func:`shared_fn` for a value on its way from one place to another: poison may be copied, not used."""
    match x:
        case Load():
            return _load_fn(x, scope, poison=True)
        case Select() if not shared_nodes((x,)):
            test, a, b = expr_fn(x.cond, scope), moved_fn(x.a, scope), moved_fn(x.b, scope)
            return lambda e: a(e) if test(e) else b(e)
        case _:
            return shared_fn(x, scope)


def shared_fn(x: Expr, scope: Scope) -> ValueFn:
    """:func:`expr_fn` for expressions that share parts: evaluates each once, until EPOCH changes."""
    shared = shared_nodes((x,))
    if not shared:
        return expr_fn(x, scope)
    return expr_fn(x, scope.inner(shared=shared, kept={}))


def _kept_fn(x: Expr, scope: Scope) -> ValueFn:
    assert scope.kept is not None
    found = scope.kept.get(id(x))
    if found is None:
        fn = _node_fn(x, scope)
        value, stamp = scope.slots.new(), scope.slots.new()

        def found(e: Env) -> Any:
            if e[stamp] != e[EPOCH]:
                e[value] = fn(e)
                e[stamp] = e[EPOCH]
            return e[value]

        scope.kept[id(x)] = found
    return found


def expr_fn(x: Expr, scope: Scope) -> ValueFn:
    """The value of a scalar expression as a function of the environment."""
    return _kept_fn(x, scope) if id(x) in scope.shared else _node_fn(x, scope)


def _node_fn(x: Expr, scope: Scope) -> ValueFn:
    match x:
        case Const():
            value = scalar_ops.constant(x.value, x.dtype)
            return lambda e: value
        case OfIndex():
            return _of_index_fn(index_fn(x.index, scope), x.dtype)
        case Load():
            return _load_fn(x, scope)
        case Unary():
            op, a = scalar_ops.unary(x.op, x.a.dtype), expr_fn(x.a, scope)
            return lambda e: op(a(e))
        case Binary():
            return _binary_fn(x, scope)
        case Compare():
            compare, a, b = scalar_ops.comparison(x.op), expr_fn(x.a, scope), expr_fn(x.b, scope)
            return lambda e: bool(compare(a(e), b(e)))
        case Select():
            test, a, b = expr_fn(x.cond, scope), expr_fn(x.a, scope), expr_fn(x.b, scope)
            return lambda e: a(e) if test(e) else b(e)
        case Cast():
            convert, a = scalar_ops.cast(x.a.dtype, x.dtype, x.mode), expr_fn(x.a, scope)
            return lambda e: convert(a(e))
        case Call():
            fn = scalar_ops.call(x.fn, x.args[0].dtype)
            args = [expr_fn(arg, scope) for arg in x.args]
            if len(args) == 1:
                a = args[0]
                return lambda e: fn(a(e))
            return lambda e: fn(*[arg(e) for arg in args])


def _of_index_fn(f: IntFn, dtype: DType) -> ValueFn:
    if dtype.kind == "bool":
        return lambda e: f(e) != 0
    convert: Callable[[int], Any]
    convert = scalar_ops.rounder(dtype) if dtype.is_float else scalar_ops.wrapper(dtype)
    return lambda e: convert(f(e))


def _binary_fn(x: Binary, scope: Scope) -> ValueFn:
    if x.a.dtype != x.b.dtype:
        raise ExecutionError(f"operands of {x.op} have types {x.a.dtype} and {x.b.dtype}")
    op = scalar_ops.binary(x.op, x.a.dtype)
    a, b = expr_fn(x.a, scope), expr_fn(x.b, scope)
    if x.a.dtype.is_float:  # the common cases without a call
        match x.op:
            case "add":
                return lambda e: a(e) + b(e)
            case "sub":
                return lambda e: a(e) - b(e)
            case "mul":
                return lambda e: a(e) * b(e)
            case _:
                pass
    return lambda e: op(a(e), b(e))
