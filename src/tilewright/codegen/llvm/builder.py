"""LLVM IR text with structured control flow and functions that capture what they use.

Functions opened in the middle of another one get captured values as parameters (outlined micro-kernels) or
through a closure (bodies of parallel loops). Equal outlined functions are written once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tilewright.codegen.llvm.access import Access
from tilewright.codegen.llvm.scopes import Branch, Function, Loop
from tilewright.codegen.llvm.values import PTR, Val, poison
from tilewright.ir import I64, DType

#: The number of the metadata that says that a loop is scalar; those of single loops follow it.
_SCALAR = 1


class Builder(Access):
    """Writes one LLVM module. See :mod:`tilewright.codegen.llvm.scopes` for the discipline of scopes."""

    def __init__(self, triple: str, attributes: str = "nounwind", rounds_bf16: bool = True) -> None:
        super().__init__()
        self.triple = triple
        self.rounds_bf16 = rounds_bf16
        self.attributes = attributes  # of every function
        self.functions: dict[str, str] = {}  # text without its name -> name
        self.finished: list[str] = []
        self.tables: dict[str, bytes] = {}  # constants of the module
        self.overlapping: frozenset[str] = frozenset()  # roots of arguments that may share memory

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
        label = f"L{parent.func.counter}"
        s = self.push(parent.func, f"{label}h")
        i = Val(self.fresh(s), I64, 1, s.depth)
        phis = [Val(self.fresh(s), v.dtype, v.lanes, s.depth, v.root) for v in carried]
        s.loop = Loop(label, lo, hi, step, i, inits, phis, guard)
        return i, list(phis)

    def end_loop(self, nexts: Sequence[Val], fresh: Sequence[Val] = (), *, scalar: bool = False) -> list[Val]:
        """Close the loop with the carried values of its last statement; returns them as seen afterwards.

        Values of ``fresh`` come after them; they are undefined where the loop did not run. A ``scalar`` loop
        is one that LLVM must not put in lanes.
        """
        s = self.scope
        loop = s.loop
        assert loop is not None
        outs = [self.localise(v, s) for v in nexts]
        extra = [self.localise(v, s) for v in fresh]
        self.scopes.pop()
        parent = self.scope
        header, exit_ = f"{loop.label}h", f"{loop.label}x"
        i, hi = loop.i.text, loop.hi.text
        following, more = self.fresh(s), self.fresh(s)
        pre = parent.label
        out = parent.lines
        if loop.guard:
            some = self.fresh(parent)
            out.append(f"  {some} = icmp slt i64 {loop.lo.text}, {hi}")
            out.append(f"  br i1 {some}, label %{header}, label %{exit_}")
        else:
            out.append(f"  br label %{header}")
        out.append(f"{header}:")
        out.append(f"  {i} = phi i64 [ {loop.lo.text}, %{pre} ], [ {following}, %{s.label} ]")
        for p, a, b in zip(loop.phis, loop.inits, outs, strict=True):
            out.append(f"  {p.text} = phi {p.type} [ {a.text}, %{pre} ], [ {b.text}, %{s.label} ]")
        out.extend(s.lines)
        out.append(f"  {following} = add nsw i64 {i}, {loop.step}")
        out.append(f"  {more} = icmp slt i64 {following}, {hi}")
        hint = ""
        if scalar:
            self.scalar_loops += 1
            hint = f", !llvm.loop !{_SCALAR + self.scalar_loops}"
        out.append(f"  br i1 {more}, label %{header}, label %{exit_}{hint}")
        out.append(f"{exit_}:")
        parent.label = exit_
        if not loop.guard:
            return [self.outside(v) for v in (*outs, *extra)]
        results: list[Val] = []
        undefined = [poison(v) for v in extra]
        for a, b in zip((*loop.inits, *undefined), (*outs, *extra), strict=True):
            name = self.fresh(parent)
            out.append(f"  {name} = phi {b.type} [ {a.text}, %{pre} ], [ {b.text}, %{s.label} ]")
            results.append(Val(name, b.dtype, b.lanes, parent.depth, b.root))
        return results

    def outside(self, v: Val) -> Val:
        """A value of a scope that ended and always runs, as seen in the present scope."""
        return Val(v.text, v.dtype, v.lanes, min(v.depth, self.depth), v.root)

    def begin_if(self, cond: Val) -> None:
        """Open the ``then`` side of a branch."""
        parent = self.scope
        parent.func.counter += 1
        n = parent.func.counter
        branch = Branch(self.localise(cond, parent), (f"B{n}t", f"B{n}e", f"B{n}x"))
        self.push(parent.func, branch.labels[0]).branch = branch

    def begin_else(self, values: Sequence[Val]) -> list[Val]:
        """Close the ``then`` side with its values of what both sides define, and open the other side."""
        s = self.scope
        branch = s.branch
        assert branch is not None
        outs = [self.localise(v, s) for v in values]
        self.scopes.pop()
        branch.then_lines, branch.then_end = s.lines, s.label
        self.push(s.func, branch.labels[1]).branch = branch
        return outs

    def end_if(self, thens: Sequence[Val], values: Sequence[Val]) -> list[Val]:
        """Close the branch; returns the merged values."""
        s = self.scope
        branch = s.branch
        assert branch is not None
        elses = [self.localise(v, s) for v in values]
        self.scopes.pop()
        parent = self.scope
        then_label, else_label, exit_ = branch.labels
        out = parent.lines
        out.append(f"  br i1 {branch.cond.text}, label %{then_label}, label %{else_label}")
        out.append(f"{then_label}:")
        out.extend(branch.then_lines)
        out.append(f"  br label %{exit_}")
        out.append(f"{else_label}:")
        out.extend(s.lines)
        out.append(f"  br label %{exit_}")
        out.append(f"{exit_}:")
        parent.label = exit_
        merged = []
        for a, b in zip(thens, elses, strict=True):
            name = self.fresh(parent)
            out.append(f"  {name} = phi {a.type} [ {a.text}, %{branch.then_end} ], [ {b.text}, %{s.label} ]")
            merged.append(Val(name, a.dtype, a.lanes, parent.depth, a.root))
        return merged

    def fence(self) -> None:
        """Keep LLVM from moving loads from one side to the other (no instruction)."""
        self.scope.lines.append('  call void asm sideeffect "", "~{memory}"()')

    def in_turn(self, v: Val) -> Val:
        """The value itself; what follows from it is computed after the stores before (no instruction)."""
        kind = _register_kind(self.triple, v)
        if not kind:
            return v
        constraints = f"={kind},0,~{{memory}}"
        return self.impure(
            v.dtype,
            v.lanes,
            (v,),
            lambda o: f'call {o[0].type} asm sideeffect "", "{constraints}"({o[0].typed})',
        )

    def multiplier(self, a: Val, other: Val) -> Val:
        """A factor of a product: a constant one of lanes of 16 bits as a value that LLVM does not look into.

        It would write a product by 3 or 20 as up to four shifts and additions; the instruction of x86 is as
        fast as one of these. Products by powers of two become shifts.
        """
        lanes = other.lanes > 1 and a.lanes == 1 and a.dtype.bits == 16 and not a.dtype.is_float
        number = a.text.removeprefix("-")
        if not lanes or not number.isdecimal() or int(number).bit_count() < 2:
            return a
        if not self.triple.startswith("x86_64"):
            return a
        return self.pure(
            f"multiplier {a.text}",
            a.dtype,
            1,
            (a,),
            lambda o: f'call {o[0].type} asm "", "=r,0"({o[0].typed})',
        )

    def order_nontemporal(self) -> None:
        """Have stores past the caches done before what follows, for other threads to see.

        x86 keeps other stores in order, but not these; elsewhere whatever publishes results orders all.
        """
        if self.triple.startswith("x86_64"):
            self.declare("llvm.x86.sse.sfence", "void", [])
            self.scope.lines.append("  call void @llvm.x86.sse.sfence()")

    def return_unless(self, cond: Val, code: int) -> None:
        """Leave the kernel with ``code`` where ``cond`` does not hold."""
        s = self.scope
        s.func.counter += 1
        go, stop = f"R{s.func.counter}g", f"R{s.func.counter}s"
        s.lines.append(f"  br i1 {cond.text}, label %{go}, label %{stop}")
        s.lines += [f"{stop}:", f"  ret i32 {code}", f"{go}:"]
        s.label = go

    # -- functions ------------------------------------------------------------------------------------------

    def begin_function(self, args: Sequence[tuple[str, DType]]) -> list[Val]:
        """Open a function; returns its arguments. Nested ones capture what they use of the outer function."""
        s = self.push(Function(len(self.scopes)), "entry")
        return [Val(name, dtype, 1, s.depth) for name, dtype in args]

    def end_kernel(self, name: str, args: Sequence[Val]) -> None:
        """Close an exported kernel of type ``i32 (args)``."""
        s = self.scopes.pop()
        text = ", ".join(f"ptr noalias {a.text}" if a.dtype is PTR else a.typed for a in args)
        body = [*s.func.allocas, *s.lines, "  ret i32 0"]
        self.finished.append(
            f"define i32 @{name}({text}) {self.attributes} {{\nentry:\n" + "\n".join(body) + "\n}\n"
        )

    def end_outlined(self, prefix: str) -> None:
        """Close a function that was opened for a micro-kernel and call it where it was opened."""
        s = self.scopes.pop()
        func = s.func
        parent = self.scope
        roots = Counter(v.root for v in func.outer() if v.dtype is PTR)
        # an output may lie where an input was that nobody needs any more
        overlapping = self.overlapping if func.written & self.overlapping else frozenset[str]()
        params = []
        for v in func.inner():
            alone = v.dtype is PTR and v.lanes == 1 and (v.root not in func.written or roots[v.root] == 1)
            alone = alone and v.root not in overlapping
            params.append(f"{v.type}{' noalias' if alone else ''} {v.text}")
        text = (
            f"({', '.join(params)}) noinline {self.attributes} {{\nentry:\n"
            + "\n".join([*func.allocas, *s.lines, "  ret void"])
            + "\n}\n"
        )
        name = self.functions.get(text)
        if name is None:
            name = f"{prefix}_{len(self.functions)}"
            self.functions[text] = name
            self.finished.append(f"define internal void @{name}{text}")
        parent.func.written |= func.written
        actual = [self.localise(v, parent) for v in func.outer()]
        parent.lines.append(f"  call void @{name}({', '.join(a.typed for a in actual)})")

    def end_parallel(self, prefix: str, context: Val, n: Val, args: Sequence[Val]) -> None:
        """Close the body ``(closure, begin, end, scratch)`` of a parallel loop and run it over ``[0, n)``."""
        s = self.scopes.pop()
        func = s.func
        parent = self.scope
        actual = [self.localise(v, parent) for v in func.outer()]
        fields = [a.type for a in actual]
        struct_type = "{ " + ", ".join(fields) + " }" if fields else "{ i8 }"
        loads = []
        for k, inner in enumerate(func.inner()):
            loads.append(f"  %f{k} = getelementptr inbounds {struct_type}, ptr %closure, i32 0, i32 {k}")
            loads.append(f"  {inner.text} = load {inner.type}, ptr %f{k}")
        name = f"{prefix}_{len(self.finished)}"
        params = ", ".join(a.typed for a in args)
        body = [*func.allocas, *loads, *s.lines, "  ret void"]
        self.finished.append(
            f"define internal void @{name}({params}) {self.attributes} {{\nentry:\n"
            + "\n".join(body)
            + "\n}\n"
        )
        parent.func.written |= func.written
        parent.func.counter += 1
        box = f"%closure{parent.func.counter}"
        parent.func.allocas.append(f"  {box} = alloca {struct_type}, align 64")
        for k, a in enumerate(actual):
            q = self.fresh(parent)
            parent.lines.append(f"  {q} = getelementptr inbounds {struct_type}, ptr {box}, i32 0, i32 {k}")
            parent.lines.append(f"  store {a.typed}, ptr {q}")
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
        for name, content in self.tables.items():
            text = "".join(f"\\{byte:02x}" for byte in content)
            head.append(f'@{name} = internal constant [{len(content)} x i8] c"{text}", align 64')
        tail = ["!0 = !{i32 1}"] if self.uses_nontemporal else []
        if self.scalar_loops:
            tail.append(f'!{_SCALAR} = !{{!"llvm.loop.vectorize.enable", i1 false}}')
        loops = range(_SCALAR + 1, _SCALAR + 1 + self.scalar_loops)
        tail += [f"!{n} = distinct !{{!{n}, !{_SCALAR}}}" for n in loops]
        return "\n".join([*head, *self.declared.values(), *self.finished, *tail]) + "\n"


def _register_kind(triple: str, v: Val) -> str:
    """The constraint by which an ``asm`` names the registers of a vector; empty where there may be none."""
    bits = v.lanes * v.dtype.bits
    if v.lanes == 1 or not v.dtype.is_float:
        return ""
    if triple.startswith("x86_64"):
        return "v" if bits in (128, 256, 512) else ""
    return "w" if triple.startswith("aarch64") and bits == 128 else ""
