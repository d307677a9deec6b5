"""LLVM IR text, structured: scopes instead of basic blocks, code motion and value numbering while writing.

Every value knows the depth of the scope that defines it. A pure operation is written into the deepest scope
of its operands, which hoists loop-invariant arithmetic as it is emitted; asking for the same operation again
gives the same value. Functions opened in the middle of another one (outlined micro-kernels, bodies of
parallel loops) capture outer values on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tilewright.codegen.llvm.values import Val
from tilewright.ir import DType

Text: TypeAlias = Callable[[list[Val]], str]


@dataclass(slots=True)
class Function:
    """A function being written; ``base`` is the depth of its outermost scope."""

    base: int
    captured: dict[tuple[int, str], tuple[Val, Val]] = field(default_factory=dict)  # outer and inner value
    written: set[str] = field(default_factory=set)  # roots of the pointers that it stores through
    allocas: list[str] = field(default_factory=list)
    counter: int = 0

    def outer(self) -> list[Val]:
        """The captured values, as the surrounding function knows them."""
        return [outer for outer, _ in self.captured.values()]

    def inner(self) -> list[Val]:
        """The captured values, as this function knows them."""
        return [inner for _, inner in self.captured.values()]


@dataclass(slots=True)
class Loop:
    """An open loop ``for i in range(lo, hi, step)`` with the values it carries."""

    label: str
    lo: Val
    hi: Val
    step: int
    i: Val
    inits: list[Val]
    phis: list[Val]
    guard: bool  # it may run zero times


@dataclass(slots=True)
class Branch:
    """An open two-way branch; ``then_lines`` and ``then_end`` once the first side is complete."""

    cond: Val
    labels: tuple[str, str, str]  # then, else, exit
    then_lines: list[str] = field(default_factory=list)
    then_end: str = ""


@dataclass(slots=True)
class Scope:
    """Straight-line text at one nesting depth, with nested scopes spliced in where they ended."""

    func: Function
    depth: int
    label: str
    lines: list[str] = field(default_factory=list)
    memo: dict[tuple[object, ...], Val] = field(default_factory=dict)
    loop: Loop | None = None
    branch: Branch | None = None


class Scopes:
    """The stack of open scopes and the ways to write an instruction into it."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = [Scope(Function(0), 0, "")]  # literals live at depth 0
        self.declared: dict[str, str] = {}

    @property
    def scope(self) -> Scope:
        """The innermost open scope."""
        return self.scopes[-1]

    @property
    def depth(self) -> int:
        """Its depth."""
        return len(self.scopes) - 1

    def alive(self, v: Val, home: Scope) -> bool:
        """Whether a value that was defined in ``home`` may still be used."""
        return v.depth < len(self.scopes) and self.scopes[v.depth] is home

    def fresh(self, scope: Scope) -> str:
        """A new SSA name in the scope's function."""
        scope.func.counter += 1
        return f"%t{scope.func.counter}"

    def push(self, func: Function, label: str) -> Scope:
        """Open a scope."""
        s = Scope(func, len(self.scopes), label)
        self.scopes.append(s)
        return s

    def localise(self, v: Val, scope: Scope) -> Val:
        """``v`` as seen in ``scope``: captured where it belongs to an outer function."""
        func = scope.func
        if v.depth == 0 or v.depth >= func.base:
            return v
        key = (v.depth, v.text)
        got = func.captured.get(key)
        if got is None:
            got = (v, Val(f"%c{len(func.captured)}", v.dtype, v.lanes, func.base, v.root))
            func.captured[key] = got
        return got[1]

    def pure(
        self,
        key: str,
        dtype: DType,
        lanes: int,
        operands: Sequence[Val],
        text: Text,
        *,
        root: str = "",
        local: bool = False,
    ) -> Val:
        """A side-effect-free operation, at the deepest scope of its operands (``local``: here)."""
        scopes = self.scopes
        if local:
            depth = len(scopes) - 1
        else:
            depth = 0
            for v in operands:
                if v.depth > depth:
                    depth = v.depth
            if depth == 0:
                depth = scopes[-1].func.base
        scope = scopes[depth]
        base = scope.func.base
        ops = [v if v.depth == 0 or v.depth >= base else self.localise(v, scope) for v in operands]
        full = (key, dtype.name, lanes, *[o.text for o in ops])
        hit = scope.memo.get(full)
        if hit is None and local:
            for s in scopes[base:depth]:
                hit = s.memo.get(full)
                if hit is not None:
                    break
        if hit is not None:
            return hit
        scope.func.counter += 1
        name = f"%t{scope.func.counter}"
        scope.lines.append(f"  {name} = {text(ops)}")
        out = Val(name, dtype, lanes, depth, root)
        scope.memo[full] = out
        return out

    def effect(self, text: Text, operands: Sequence[Val]) -> None:
        """An instruction without a result in the current scope."""
        scope = self.scopes[-1]
        scope.lines.append("  " + text([self.localise(v, scope) for v in operands]))

    def impure(self, dtype: DType, lanes: int, operands: Sequence[Val], text: Text, root: str = "") -> Val:
        """An instruction with a result that must stay where it is."""
        scope = self.scopes[-1]
        ops = [self.localise(v, scope) for v in operands]
        scope.func.counter += 1
        name = f"%t{scope.func.counter}"
        scope.lines.append(f"  {name} = {text(ops)}")
        return Val(name, dtype, lanes, scope.depth, root)

    def declare(self, name: str, result: str, args: Sequence[str]) -> None:
        """Declare an external function once."""
        if name not in self.declared:
            self.declared[name] = f"declare {result} @{name}({', '.join(args)})"
