"""LLVM IR text, structured: scopes instead of basic blocks, code motion and value numbering while writing.

Every value knows the depth of the scope that defines it. A pure operation is written into the deepest scope
of its operands, which hoists loop-invariant arithmetic as it is emitted; asking for the same operation again
gives the same value. Functions opened in the middle of another one (outlined micro-kernels,
bodies of parallel loops) capture outer values on first use as parameters or through a closure. Equal outlined
functions are written once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from tilewright.ir import BOOL, F32, I64, DType
from tilewright.support import InternalError

PTR = DType("ptr", "uint", 64)

_TYPE = MappingProxyType(
    {
        "f64": "double", "f32": "float", "f16": "half", "bf16": "bfloat", "i64": "i64", "i32": "i32",
        "i16": "i16", "i8": "i8", "u32": "i32", "u16": "i16", "u8": "i8", "bool": "i1", "ptr": "ptr",
    }
)  # fmt: skip
_SUFFIX = MappingProxyType(dict(_TYPE, f64="f64", f32="f32", f16="f16", bf16="bf16"))


@dataclass(frozen=True, slots=True)
class Val:
    """An SSA value or literal: operand ``text``, scalar ``dtype``, ``lanes`` (1 = scalar), defining scope.

    ``root`` names the buffer that a pointer points into.
    """

    text: str
    dtype: DType
    lanes: int = 1
    depth: int = 0
    root: str = ""

    @property
    def type(self) -> str:
        """The LLVM type."""
        t = _TYPE[self.dtype.name]
        return t if self.lanes == 1 else f"<{self.lanes} x {t}>"

    @property
    def typed(self) -> str:
        """``type operand``."""
        return f"{self.type} {self.text}"


@dataclass(slots=True)
class _Function:
    """A function being written; ``base`` is the depth of its outermost scope."""

    base: int
    captured: dict[Val, Val] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    allocas: list[str] = field(default_factory=list)
    counter: int = 0


@dataclass(slots=True)
class _Scope:
    """Straight-line text at one nesting depth, with nested scopes spliced in where they ended."""

    func: _Function
    depth: int
    label: str
    lines: list[str] = field(default_factory=list)
    memo: dict[tuple[object, ...], Val] = field(default_factory=dict)
    loop: tuple[Val, Val, int, Val, list[Val], list[Val], bool] | None = None
    branch: tuple[Val, str, str, str, list[str]] | None = None


class Builder:
    """Writes one LLVM module. See the module's head for the discipline of scopes."""

    def __init__(self, triple: str) -> None:
        self.triple = triple
        self.functions: dict[str, str] = {}  # text with a placeholder name -> name
        self.finished: list[str] = []
        self.declared: dict[str, str] = {}
        self.scopes: list[_Scope] = [_Scope(_Function(0), 0, "")]  # literals live at depth 0
        self.uses_zero = False

    # -- literals -------------------------------------------------------------------------------------------

    def const(self, value: float | int | bool, dtype: DType, lanes: int = 1) -> Val:
        """A literal, splat over ``lanes``."""
        if dtype.kind == "bool":
            text = "true" if value else "false"
        elif dtype.kind == "float":
            text = _float_text(float(value), dtype)
        else:
            n = int(value)
            if dtype.kind == "uint" and n >= 1 << (dtype.bits - 1) and dtype.name != "ptr":
                n -= 1 << dtype.bits
            text = str(n)
        if lanes > 1:
            text = f"splat ({_TYPE[dtype.name]} {text})"
        return Val(text, dtype, lanes)

    def iota(self, dtype: DType, lanes: int) -> Val:
        """The literal ``0, 1, 2 …``."""
        t = _TYPE[dtype.name]
        items = ", ".join(f"{t} {self.const(n, dtype).text}" for n in range(lanes))
        return Val(f"<{items}>", dtype, lanes)

    def mask_literal(self, active: int, lanes: int) -> Val:
        """A mask whose first ``active`` lanes are on."""
        items = ", ".join(f"i1 {'true' if n < active else 'false'}" for n in range(lanes))
        return Val(f"<{items}>", BOOL, lanes)

    # -- scopes ---------------------------------------------------------------------------------------------

    @property
    def scope(self) -> _Scope:
        """The innermost open scope."""
        return self.scopes[-1]

    @property
    def depth(self) -> int:
        """Its depth."""
        return len(self.scopes) - 1

    def fresh(self, scope: _Scope) -> str:
        """A new SSA name in the scope's function."""
        scope.func.counter += 1
        return f"%t{scope.func.counter}"

    def _push(self, func: _Function, label: str) -> _Scope:
        s = _Scope(func, len(self.scopes), label)
        self.scopes.append(s)
        return s

    def localise(self, v: Val, scope: _Scope) -> Val:
        """``v`` as seen in ``scope``: captured where it belongs to an outer function."""
        if v.depth == 0 or v.depth >= scope.func.base:
            return v
        func = scope.func
        got = func.captured.get(v)
        if got is None:
            got = Val(f"%c{len(func.captured)}", v.dtype, v.lanes, func.base, v.root)
            func.captured[v] = got
        return got

    def pure(
        self,
        key: tuple[object, ...],
        dtype: DType,
        lanes: int,
        operands: Sequence[Val],
        text: Callable[[list[Val]], str],
        *,
        root: str = "",
        local: bool = False,
    ) -> Val:
        """A side-effect-free operation, at the deepest scope of its operands (``local``: here)."""
        base = self.scope.func.base if not any(v.depth for v in operands) else 1
        depth = self.depth if local else max([base, *(v.depth for v in operands)])
        scope = self.scopes[depth]
        ops = [self.localise(v, scope) for v in operands]
        full = (key, dtype.name, lanes, *(o.text for o in ops))
        if local:
            for s in reversed(self.scopes[scope.func.base : depth]):
                hit = s.memo.get(full)
                if hit is not None:
                    return hit
        hit = scope.memo.get(full)
        if hit is not None:
            return hit
        name = self.fresh(scope)
        scope.lines.append(f"  {name} = {text(ops)}")
        out = Val(name, dtype, lanes, depth, root)
        scope.memo[full] = out
        return out

    def effect(self, text: Callable[[list[Val]], str], operands: Sequence[Val]) -> None:
        """An instruction without a result in the current scope."""
        ops = [self.localise(v, self.scope) for v in operands]
        self.scope.lines.append("  " + text(ops))

    def impure(
        self,
        dtype: DType,
        lanes: int,
        operands: Sequence[Val],
        text: Callable[[list[Val]], str],
        root: str = "",
    ) -> Val:
        """An instruction with a result that must stay where it is."""
        ops = [self.localise(v, self.scope) for v in operands]
        name = self.fresh(self.scope)
        self.scope.lines.append(f"  {name} = {text(ops)}")
        return Val(name, dtype, lanes, self.depth, root)

    # -- arithmetic -----------------------------------------------------------------------------------------

    def splat(self, v: Val, lanes: int) -> Val:
        """A scalar in every lane."""
        if lanes == 1 or v.lanes == lanes:
            return v
        if v.lanes != 1:
            raise InternalError(f"cannot widen {v.lanes} lanes to {lanes}")
        if v.depth == 0:
            return Val(f"splat ({v.typed})", v.dtype, lanes)
        vt = f"<{lanes} x {_TYPE[v.dtype.name]}>"
        one = self.pure(
            ("insert",), v.dtype, lanes, [v], lambda o: f"insertelement {vt} poison, {o[0].typed}, i64 0"
        )
        return self.pure(
            ("shuffle",), v.dtype, lanes, [one],
            lambda o: f"shufflevector {vt} {o[0].text}, {vt} poison, <{lanes} x i32> zeroinitializer",
        )  # fmt: skip

    def same_lanes(self, *vals: Val) -> list[Val]:
        """All operands with the widest operand's lanes."""
        lanes = max(v.lanes for v in vals)
        return [self.splat(v, lanes) for v in vals]

    def op(self, name: str, a: Val, b: Val, flags: str = "") -> Val:
        """A binary instruction ``name`` such as ``fadd`` or ``add nsw``."""
        a, b = self.same_lanes(a, b)
        return self.pure(
            (name,), a.dtype, a.lanes, [a, b], lambda o: f"{name} {flags}{o[0].type} {o[0].text}, {o[1].text}"
        )

    def compare(self, name: str, a: Val, b: Val) -> Val:
        """``icmp``/``fcmp`` with the condition in ``name``."""
        a, b = self.same_lanes(a, b)
        return self.pure(
            (name,), BOOL, a.lanes, [a, b], lambda o: f"{name} {o[0].type} {o[0].text}, {o[1].text}"
        )

    def select(self, c: Val, a: Val, b: Val) -> Val:
        """``a`` where ``c`` else ``b``, lane by lane."""
        lanes = max(c.lanes, a.lanes, b.lanes)
        if lanes > 1:
            a, b = self.splat(a, lanes), self.splat(b, lanes)
            c = self.splat(c, lanes) if c.lanes > 1 else c
        return self.pure(
            ("select",), a.dtype, lanes, [c, a, b],
            lambda o: f"select {o[0].typed}, {o[1].typed}, {o[2].typed}", root=a.root,
        )  # fmt: skip

    def convert(self, name: str, a: Val, dtype: DType) -> Val:
        """A conversion instruction (``sext``, ``fptosi``, ``bitcast`` …)."""
        target = Val("", dtype, a.lanes).type
        return self.pure(
            (name, dtype.name), dtype, a.lanes, [a], lambda o: f"{name} {o[0].typed} to {target}"
        )

    def intrinsic(self, name: str, dtype: DType, args: Sequence[Val], *, extra: str = "") -> Val:
        """A call of the pure overloaded intrinsic ``llvm.name`` on its first operand's type."""
        vals = self.same_lanes(*args)
        suffix = _suffix(vals[0])
        full = f"llvm.{name}.{suffix}"
        result = Val("", dtype, vals[0].lanes).type
        self.declare(full, result, [v.type for v in vals] + ([extra.split()[0]] if extra else []))
        tail = f", {extra}" if extra else ""
        return self.pure(
            (full,), dtype, vals[0].lanes, vals,
            lambda o: f"call {result} @{full}({', '.join(v.typed for v in o)}{tail})",
        )  # fmt: skip

    def reduce(self, name: str, v: Val, start: Val | None = None) -> Val:
        """``llvm.vector.reduce.name`` of all lanes (``start`` for ``fadd``/``fmul``, reassociated)."""
        full = f"llvm.vector.reduce.{name}.{_suffix(v)}"
        scalar = Val("", v.dtype).type
        args = [v] if start is None else [start, v]
        self.declare(full, scalar, [a.type for a in args])
        flags = "reassoc " if start is not None else ""
        return self.pure(
            (full,), v.dtype, 1, args,
            lambda o: f"call {flags}{scalar} @{full}({', '.join(a.typed for a in o)})",
        )  # fmt: skip

    def declare(self, name: str, result: str, args: Sequence[str]) -> None:
        """Declare an external function once."""
        self.declared.setdefault(name, f"declare {result} @{name}({', '.join(args)})")

    # -- memory ---------------------------------------------------------------------------------------------

    def gep(self, p: Val, offset: Val | int, dtype: DType, *, local: bool = False) -> Val:
        """``p`` advanced by ``offset`` elements of ``dtype``."""
        if offset == 0:
            return p
        t = "i8" if dtype.kind == "bool" else _TYPE[dtype.name]
        off = self.const(offset, I64) if isinstance(offset, int) else offset
        return self.pure(
            ("gep", t), PTR, 1, [p, off],
            lambda o: f"getelementptr inbounds {t}, ptr {o[0].text}, {o[1].typed}", root=p.root, local=local,
        )  # fmt: skip

    def _memory_type(self, dtype: DType, lanes: int) -> str:
        t = "i8" if dtype.kind == "bool" else _TYPE[dtype.name]
        return t if lanes == 1 else f"<{lanes} x {t}>"

    def load(self, p: Val, dtype: DType, lanes: int, version: int, mask: Val | None = None) -> Val:
        """Load ``lanes`` consecutive elements; equal loads of one ``version`` of memory are shared."""
        scope = self.scope
        ptr = self.localise(p, scope)
        m = None if mask is None else self.localise(mask, scope)
        key = ("load", ptr.text, dtype.name, lanes, version, m.text if m else "")
        for s in reversed(self.scopes[scope.func.base :]):
            hit = s.memo.get(key)
            if hit is not None:
                return hit
        t = self._memory_type(dtype, lanes)
        stored = DType("u8", "uint", 8) if dtype.kind == "bool" else dtype
        if m is None:
            out = self.impure(
                stored, lanes, [ptr], lambda o: f"load {t}, ptr {o[0].text}, align {stored.bytes}"
            )
        else:
            name = f"llvm.masked.load.{_suffix(Val('', stored, lanes))}.p0"
            self.declare(name, t, ["ptr", "i32", f"<{lanes} x i1>", t])
            out = self.impure(
                stored, lanes, [ptr, m],
                lambda o: (
                    f"call {t} @{name}(ptr {o[0].text}, i32 {stored.bytes}, {o[1].typed}, "
                    f"{t} zeroinitializer)"
                ),
            )  # fmt: skip
        if dtype.kind == "bool":
            out = self.compare("icmp ne", out, self.const(0, stored, lanes))
        scope.memo[key] = out
        return out

    def gather(self, p: Val, offsets: Val, dtype: DType, mask: Val | None) -> Val:
        """Load one element per lane at element ``offsets`` from ``p``."""
        lanes = offsets.lanes
        t = self._memory_type(dtype, 1)
        stored = DType("u8", "uint", 8) if dtype.kind == "bool" else dtype
        vt = self._memory_type(dtype, lanes)
        ptrs = self.pure(
            ("vgep", t), PTR, lanes, [p, offsets],
            lambda o: f"getelementptr inbounds {t}, ptr {o[0].text}, {o[1].typed}", root=p.root,
        )  # fmt: skip
        m = mask or self.const(True, BOOL, lanes)
        name = f"llvm.masked.gather.{_suffix(Val('', stored, lanes))}.v{lanes}p0"
        self.declare(name, vt, [f"<{lanes} x ptr>", "i32", f"<{lanes} x i1>", vt])
        out = self.impure(
            stored, lanes, [ptrs, m],
            lambda o: (
                f"call {vt} @{name}({o[0].typed}, i32 {stored.bytes}, {o[1].typed}, {vt} zeroinitializer)"
            ),
        )  # fmt: skip
        return self.compare("icmp ne", out, self.const(0, stored, lanes)) if dtype.kind == "bool" else out

    def _to_stored(self, v: Val) -> Val:
        return self.convert("zext", v, DType("u8", "uint", 8)) if v.dtype.kind == "bool" else v

    def store(self, p: Val, v: Val, mask: Val | None = None, *, nontemporal: bool = False) -> None:
        """Store a scalar or consecutive lanes."""
        v = self._to_stored(v)
        self.scope.func.written.add(p.root)
        if mask is None:
            hint = (
                f", align {v.lanes * v.dtype.bytes}, !nontemporal !0"
                if nontemporal
                else f", align {v.dtype.bytes}"
            )
            self.effect(lambda o: f"store {o[0].typed}, ptr {o[1].text}{hint}", [v, p])
            return
        mask = self.splat(mask, v.lanes)
        name = f"llvm.masked.store.{_suffix(v)}.p0"
        self.declare(name, "void", [v.type, "ptr", "i32", mask.type])
        self.effect(
            lambda o: f"call void @{name}({o[0].typed}, ptr {o[1].text}, i32 {v.dtype.bytes}, {o[2].typed})",
            [v, p, mask],
        )

    def scatter(self, p: Val, offsets: Val, v: Val, mask: Val | None) -> None:
        """Store one element per lane at element ``offsets`` from ``p``, lower lanes first."""
        v = self.splat(self._to_stored(v), offsets.lanes)
        self.scope.func.written.add(p.root)
        t = _TYPE[v.dtype.name]
        ptrs = self.pure(
            ("vgep", t), PTR, offsets.lanes, [p, offsets],
            lambda o: f"getelementptr inbounds {t}, ptr {o[0].text}, {o[1].typed}", root=p.root,
        )  # fmt: skip
        m = mask or self.const(True, BOOL, v.lanes)
        name = f"llvm.masked.scatter.{_suffix(v)}.v{v.lanes}p0"
        self.declare(name, "void", [v.type, ptrs.type, "i32", m.type])
        self.effect(
            lambda o: f"call void @{name}({o[0].typed}, {o[1].typed}, i32 {v.dtype.bytes}, {o[2].typed})",
            [v, ptrs, m],
        )

    def zeros(self, root: str) -> Val:
        """A pointer to readable zeros: where guarded loads of ``root`` go that must not happen."""
        self.uses_zero = True
        return Val("@tw_zeros", PTR, 1, 0, root)

    # -- control flow ---------------------------------------------------------------------------------------

    def begin_loop(
        self, lo: Val, hi: Val, step: int, carried: Sequence[Val], guard: bool
    ) -> tuple[Val, list[Val]]:
        """Open ``for i in range(lo, hi, step)``; returns ``i`` and the carried values inside.

        Without ``guard`` the loop is known to run at least once.
        """
        parent = self.scope
        lo, hi = self.localise(lo, parent), self.localise(hi, parent)
        inits = [self.localise(v, parent) for v in carried]
        parent.func.counter += 1
        s = self._push(parent.func, f"L{parent.func.counter}h")
        i = Val(self.fresh(s), I64, 1, s.depth)
        phis = [Val(self.fresh(s), v.dtype, v.lanes, s.depth, v.root) for v in carried]
        s.loop = (lo, hi, step, i, inits, phis, guard)
        return i, phis

    def end_loop(self, nexts: Sequence[Val]) -> list[Val]:
        """Close the loop with the carried values of its last statement; returns them as seen afterwards."""
        s = self.scopes.pop()
        assert s.loop is not None
        lo, hi, step, i, inits, phis, guard = s.loop
        parent = self.scope
        header = f"L{int(i.text[2:]) - 1}h"
        exit_ = header[:-1] + "x"
        self.scopes.append(s)
        outs = [self.localise(v, s) for v in nexts]
        self.scopes.pop()
        nxt, cond = self.fresh(s), self.fresh(s)
        latch = s.label
        pre = parent.label
        out = parent.lines
        if guard:
            g = self.fresh(parent)
            out.append(f"  {g} = icmp slt i64 {lo.text}, {hi.text}")
            out.append(f"  br i1 {g}, label %{header}, label %{exit_}")
        else:
            out.append(f"  br label %{header}")
        out.append(f"{header}:")
        out.append(f"  {i.text} = phi i64 [ {lo.text}, %{pre} ], [ {nxt}, %{latch} ]")
        for p, a, b in zip(phis, inits, outs, strict=True):
            out.append(f"  {p.text} = phi {p.type} [ {a.text}, %{pre} ], [ {b.text}, %{latch} ]")
        out.extend(s.lines)
        out.append(f"  {nxt} = add nsw i64 {i.text}, {step}")
        out.append(f"  {cond} = icmp slt i64 {nxt}, {hi.text}")
        out.append(f"  br i1 {cond}, label %{header}, label %{exit_}")
        out.append(f"{exit_}:")
        parent.label = exit_
        results: list[Val] = []
        for a, b in zip(inits, outs, strict=True):
            if guard:
                name = self.fresh(parent)
                out.append(f"  {name} = phi {b.type} [ {a.text}, %{pre} ], [ {b.text}, %{latch} ]")
                results.append(Val(name, b.dtype, b.lanes, parent.depth, b.root))
            else:
                results.append(Val(b.text, b.dtype, b.lanes, parent.depth if b.depth else 0, b.root))
        return results

    def begin_if(self, cond: Val) -> None:
        """Open the ``then`` side of a branch."""
        parent = self.scope
        parent.func.counter += 1
        n = parent.func.counter
        c = self.localise(cond, parent)
        s = self._push(parent.func, f"B{n}t")
        s.branch = (c, f"B{n}t", f"B{n}e", f"B{n}x", [])

    def begin_else(self, values: Sequence[Val]) -> list[Val]:
        """Close the ``then`` side with its values of what both sides define, and open the other side."""
        s = self.scopes.pop()
        assert s.branch is not None
        self.scopes.append(s)
        outs = [self.localise(v, s) for v in values]
        self.scopes.pop()
        s.lines.append(f"  br label %{s.branch[3]}")
        e = self._push(s.func, s.branch[2])
        e.branch = (*s.branch[:4], [*s.lines, f"\0{s.label}"])
        return outs

    def end_if(self, thens: Sequence[Val], values: Sequence[Val]) -> list[Val]:
        """Close the branch; returns the merged values."""
        e = self.scopes.pop()
        assert e.branch is not None
        cond, then_l, else_l, exit_l, then_lines = e.branch
        then_end = then_lines[-1][1:]
        self.scopes.append(e)
        elses = [self.localise(v, e) for v in values]
        self.scopes.pop()
        parent = self.scope
        out = parent.lines
        out.append(f"  br i1 {cond.text}, label %{then_l}, label %{else_l}")
        out.append(f"{then_l}:")
        out.extend(then_lines[:-1])
        out.append(f"{else_l}:")
        out.extend(e.lines)
        out.append(f"  br label %{exit_l}")
        out.append(f"{exit_l}:")
        parent.label = exit_l
        merged = []
        for a, b in zip(thens, elses, strict=True):
            name = self.fresh(parent)
            out.append(f"  {name} = phi {a.type} [ {a.text}, %{then_end} ], [ {b.text}, %{e.label} ]")
            merged.append(Val(name, a.dtype, a.lanes, parent.depth, a.root))
        return merged

    # -- functions ------------------------------------------------------------------------------------------

    def begin_function(self, args: Sequence[tuple[str, DType]]) -> list[Val]:
        """Open a function; returns its arguments. Nested ones capture what they use of the outer function."""
        func = _Function(len(self.scopes))
        s = self._push(func, "entry")
        return [Val(name, dtype, 1, s.depth) for name, dtype in args]

    def end_kernel(self, name: str, args: Sequence[Val]) -> None:
        """Close an exported kernel of type ``i32 (args)``."""
        s = self.scopes.pop()
        text = ", ".join(f"ptr noalias {a.text}" if a.dtype is PTR else a.typed for a in args)
        body = [*s.func.allocas, *s.lines, "  ret i32 0"]
        self.finished.append(f"define i32 @{name}({text}) nounwind {{\nentry:\n" + "\n".join(body) + "\n}\n")

    def end_outlined(self, prefix: str) -> None:
        """Close a function that was opened for a micro-kernel and call it where it was opened."""
        s = self.scopes.pop()
        func = s.func
        parent = self.scope
        roots: dict[str, int] = {}
        for v in func.captured:
            if v.dtype is PTR:
                roots[v.root] = roots.get(v.root, 0) + 1
        params = []
        for v, inner in func.captured.items():
            alone = v.dtype is PTR and (v.root not in func.written or roots[v.root] == 1)
            params.append(f"{inner.type}{' noalias' if alone else ''} {inner.text}")
        text = (
            f"({', '.join(params)}) noinline nounwind {{\nentry:\n"
            + "\n".join([*func.allocas, *s.lines, "  ret void"])
            + "\n}\n"
        )
        name = self.functions.get(text)
        if name is None:
            name = f"{prefix}_{len(self.functions)}"
            self.functions[text] = name
            self.finished.append(f"define internal void @{name}{text}")
        parent.func.written |= func.written
        actual = [self.localise(v, parent) for v in func.captured]
        parent.lines.append(f"  call void @{name}({', '.join(a.typed for a in actual)})")

    def end_parallel(self, prefix: str, context: Val, n: Val, args: Sequence[Val]) -> None:
        """Close the body ``(closure, begin, end, scratch)`` of a parallel loop and run it over ``[0, n)``."""
        s = self.scopes.pop()
        func = s.func
        parent = self.scope
        actual = [self.localise(v, parent) for v in func.captured]
        fields = [a.type for a in actual]
        struct_type = "{ " + ", ".join(fields) + " }" if fields else "{ i8 }"
        loads = []
        for k, inner in enumerate(func.captured.values()):
            loads.append(f"  %f{k} = getelementptr inbounds {struct_type}, ptr %closure, i32 0, i32 {k}")
            loads.append(f"  {inner.text} = load {inner.type}, ptr %f{k}, align 8")
        name = f"{prefix}_{len(self.finished)}"
        params = ", ".join(a.typed for a in args)
        body = [*func.allocas, *loads, *s.lines, "  ret void"]
        self.finished.append(
            f"define internal void @{name}({params}) nounwind {{\nentry:\n" + "\n".join(body) + "\n}\n"
        )
        parent.func.written |= func.written
        parent.func.counter += 1
        box = f"%closure{parent.func.counter}"
        parent.func.allocas.append(f"  {box} = alloca {struct_type}, align 64")
        for k, a in enumerate(actual):
            q = self.fresh(parent)
            parent.lines.append(f"  {q} = getelementptr inbounds {struct_type}, ptr {box}, i32 0, i32 {k}")
            parent.lines.append(f"  store {a.typed}, ptr {q}, align 8")
        ctx = self.localise(context, parent)
        run = self.fresh(parent)
        count = self.localise(n, parent)
        parent.lines.append(f"  {run} = load ptr, ptr {ctx.text}, align 8")
        parent.lines.append(f"  call void {run}(ptr {ctx.text}, ptr @{name}, ptr {box}, i64 {count.text})")

    def module(self) -> str:
        """The text of everything finished so far."""
        head = [f'target triple = "{self.triple}"']
        if self.uses_zero:
            head.append("@tw_zeros = internal constant [512 x i8] zeroinitializer, align 64")
        tail = "!0 = !{i32 1}"
        return "\n".join([*head, *self.declared.values(), *self.finished, tail]) + "\n"


def _suffix(v: Val) -> str:
    t = _SUFFIX[v.dtype.name]
    return t if v.lanes == 1 else f"v{v.lanes}{t}"


def _float_text(value: float, dtype: DType) -> str:
    """The exact hexadecimal literal of a float."""
    if dtype.name in ("f64", "f32"):
        if dtype is F32 or dtype.name == "f32":
            value = struct.unpack("<f", struct.pack("<f", _clamp_f32(value)))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    bits = int.from_bytes(dtype.numpy.type(value).tobytes(), "little")
    return f"0x{'H' if dtype.name == 'f16' else 'R'}{bits:04X}"


def _clamp_f32(value: float) -> float:
    """Overflowing literals become infinities as in a cast (``struct.pack`` would raise)."""
    if value != value or abs(value) <= 3.4028235677973366e38:
        return value
    return float("inf") if value > 0 else float("-inf")
