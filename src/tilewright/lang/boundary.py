"""Reading a tensor outside of its box."""

from __future__ import annotations

from tilewright import ir
from tilewright.ir import Expr, Index
from tilewright.lang.axes import axis_env
from tilewright.lang.source import here, problem
from tilewright.lang.tensors import Tensor
from tilewright.lang.values import Scalar, ValueLike, literal, operand

_MODES = ("constant", "clamp", "reflect", "symmetric", "wrap")


class Padded:
    """A view of a tensor that can be read at any index; made by :func:`boundary`."""

    __slots__ = ("mode", "tensor", "value")

    def __init__(self, tensor: Tensor, mode: str, value: Expr | None) -> None:
        self.tensor = tensor
        self.mode = mode
        self.value = value

    def __getitem__(self, key: object) -> Scalar:
        t = self.tensor
        indices = t.indices(key)
        env = axis_env(indices)
        place = here()
        inside = [
            ir.prove_ge0(i, env) and ir.prove_lt(i, n, env) for i, n in zip(indices, t.extents, strict=True)
        ]
        if self.mode == "constant":
            assert self.value is not None
            load = ir.Load(t.ref(place), indices, t.dtype)
            condition: Expr | None = None
            for i, n, fits in zip(indices, t.extents, inside, strict=True):
                if fits:
                    continue
                for test in _limits(i, n, env):
                    condition = test if condition is None else ir.Binary("and", condition, test)
            return Scalar(load if condition is None else ir.Select(condition, load, self.value))
        moved = tuple(
            i if fits else _move(self.mode, i, n, env)
            for i, n, fits in zip(indices, t.extents, inside, strict=True)
        )
        return Scalar(ir.Load(t.ref(place), moved, t.dtype))


def _limits(i: Index, n: Index, env: ir.Env) -> list[Expr]:
    out: list[Expr] = []
    at = ir.OfIndex(i, ir.I64)
    if not ir.prove_ge0(i, env):
        out.append(ir.Compare("ge", at, ir.OfIndex(ir.ZERO, ir.I64)))
    if not ir.prove_lt(i, n, env):
        out.append(ir.Compare("lt", at, ir.OfIndex(n, ir.I64)))
    return out


def _move(mode: str, i: Index, n: Index, env: ir.Env) -> Index:
    if mode == "clamp":
        low = i if ir.prove_ge0(i, env) else ir.imax(i, 0)
        return low if ir.prove_lt(i, n, env) else ir.imin(low, n - 1)
    if mode == "wrap":
        if n.is_const:
            return ir.mod(i, n.as_int()) if n.as_int() else i
        return _wrapped_once(i, n, env)
    # the border stands once or twice: mirrored at 0 or between -1 and 0, with the period 2n - 2 or 2n;
    # one reflection on either side needs no division
    last = n - 1
    twice = 1 if mode == "symmetric" else 0
    once = ir.prove_ge0(i + last + twice, env) and ir.prove_ge0(last * 2 + twice - i, env)
    if n.is_const and not once:
        if n.as_int() <= 1:
            return ir.ZERO
        at = ir.mod(i, 2 * n.as_int() - 2 + 2 * twice)
        return ir.imin(at, last * 2 + twice - at)
    low = i if ir.prove_ge0(i, env) else ir.imax(i, -i - twice)
    low = low if ir.prove_lt(i, n, env) else ir.imin(low, last * 2 + twice - low)
    # a symbolic extent may be smaller than the window: clamp what one reflection leaves outside
    return low if once else ir.imin(ir.imax(low, 0), last)


def _wrapped_once(i: Index, n: Index, env: ir.Env) -> Index:
    """``i + n`` below 0, ``i - n`` from ``n`` on, else ``i``; of what is farther outside the nearest element.

    No remainder by a size is affine; a line as steep as the largest size chooses between the others.
    """
    steep = ir.int_upper(n, {})
    assert steep is not None, f"{n} has no largest value"
    at = i if ir.prove_ge0(i, env) else ir.imax(i, ir.imin(i + n, i * -steep - 1))
    at = at if ir.prove_lt(i, n, env) else ir.imin(at, ir.imax(at - n, (n - at) * steep - 1))
    once = ir.prove_ge0(i + n, env) and ir.prove_lt(i, n * 2, env)
    return at if once else ir.imin(ir.imax(at, 0), n - 1)


def boundary(tensor: Tensor, value: ValueLike | None = None, mode: str | None = None) -> Padded:
    """A view that can be read outside of the tensor's box.

    ``value`` (mode ``constant``, default 0) is what lies outside: a literal or a scalar of the tensor's type.
    Mode ``clamp`` repeats the nearest element, ``reflect`` mirrors without repeating the border and
    ``symmetric`` with (as numpy's modes of these names; of a symbolic extent one reflection, clamped beyond),
    ``wrap`` continues periodically (over a symbolic extent once, clamped beyond).

    Raises ProgramError for an unknown mode, and a value where the mode takes none.
    """
    if not isinstance(tensor, Tensor):
        raise problem(f"lang.boundary of {type(tensor).__name__}", "it needs a tensor")
    if tensor.inferred:
        raise problem(
            f"lang.boundary of {tensor.label}, whose region is inferred",
            "it has no border: put the boundary around the inputs that it reads",
        )
    chosen = mode or "constant"
    if chosen not in _MODES:
        raise problem(f"lang.boundary has no mode {chosen!r}", f"one of {', '.join(_MODES)}")
    if chosen != "constant":
        if value is not None:
            raise problem(f"mode {chosen!r} takes no value", "leave out value=, or use mode='constant'")
        return Padded(tensor, chosen, None)
    if value is None:
        value = False if tensor.dtype.kind == "bool" else 0
    outside = operand(value, tensor.dtype, "lang.boundary") or literal(value, tensor.dtype)
    if outside is None:
        raise problem(f"the value outside is {type(value).__name__}", "give a literal or a scalar")
    return Padded(tensor, chosen, outside)
