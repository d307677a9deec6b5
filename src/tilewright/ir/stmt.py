"""Statements and loop functions: the grammar of the IR.

    Index := c0 + sum(ci * atom)            canonical by construction            (ir/index.py)
    atom  := Var | Param | floordiv(Index, c) | mod(Index, c) | min(Index+) | max(Index+) | Opaque(Expr)
    Expr  := Const | OfIndex | Load | Unary | Binary | Compare | Select | Cast | Call   (ir/expr.py)
    Pred  := and of (Index >= 0 | Index == 0 | Opaque)
    Stmt  := Seq | If(Pred, Stmt, Stmt?) | Alloc(Buffer, Stmt) | Barrier(scope)
           | For(var, lo, hi, step, kind, hints, Stmt)
           | Block | Store((buffer, Index*, Expr)+)              stores of one statement are simultaneous
           | Exec(instruction, Window*, Expr*)
           | Teams(Channel*, Team*) | Sync(acquire|put|get|release, channel, Index)
    Team  := (name, threads, registers, Stmt)
    Block := (name, stage, iters = ((name, lo, hi, par|red|ord)...), bind = Index*, where = Pred,
              init = Stmt?, body)

A function denotes an ordered set of block *instances*. For each point of the enclosing loops where ``where``
holds (over the loop variables), the block runs once with ``iters := bind``. A block is a closed scope: its
``init`` and ``body`` mention block iterators and parameters, never loop variables, so moving loops about
never touches them. ``init`` runs before ``body`` in the instances whose ``red`` iterators all have their
first values; ``decompose_init`` makes it a block of its own before code generation. ``red`` and ``ord``
instances run exactly once per written location; ``par`` instances may repeat only into a buffer allocated
inside every enclosing parallel or thread loop.

The threads of a block may be in ``Teams``, which run bodies of their own at the same time: all of the block's
loops over threads, and its barriers, are then some team's. Only channels order what different teams do.

Names of loop variables and blocks are unique in a function; nodes are frozen and rewriting shares what it
keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Load, loads, walk_index
from tilewright.ir.index import Index, Param

IterKind = Literal["par", "red", "ord"]
LoopKindName = Literal["serial", "parallel", "vector", "unroll", "thread"]
WindowMode = Literal["r", "w", "rw"]
SyncOp = Literal["acquire", "put", "get", "release"]


@dataclass(frozen=True, slots=True)
class Condition:
    """One conjunct of a predicate: ``index >= 0`` (``ge``), ``index == 0`` (``eq``) or a scalar ``bool``."""

    op: Literal["ge", "eq", "opaque"]
    index: Index | None = None
    expr: Expr | None = None

    def __str__(self) -> str:
        if self.op == "opaque":
            return str(self.expr)
        return f"{self.index} {'>=' if self.op == 'ge' else '=='} 0"

    @property
    def vars(self) -> frozenset[str]:
        """Names of the variables that occur."""
        if self.expr is not None:
            return self.expr.vars
        assert self.index is not None
        return self.index.vars


Pred: TypeAlias = tuple[Condition, ...]  # () is "always"


def ge0(x: Index) -> Condition:
    """The condition ``x >= 0``."""
    return Condition("ge", x)


def eq0(x: Index) -> Condition:
    """The condition ``x == 0``."""
    return Condition("eq", x)


def holds(e: Expr) -> Condition:
    """The condition that a boolean expression is true."""
    return Condition("opaque", None, e)


@dataclass(frozen=True, slots=True)
class LoopKind:
    """``serial``, ``parallel``, ``vector``, ``unroll`` or ``thread`` on a hardware ``axis``."""

    name: LoopKindName
    axis: str = ""

    def __str__(self) -> str:
        return f"thread({self.axis})" if self.axis else self.name


SERIAL = LoopKind("serial")
PARALLEL = LoopKind("parallel")
VECTOR = LoopKind("vector")
UNROLL = LoopKind("unroll")


def thread(axis: str) -> LoopKind:
    """The kind of a loop bound to a hardware axis such as ``block.x`` or ``thread.y``."""
    return LoopKind("thread", axis)


THREAD_AXES = ("thread.x", "thread.y", "thread.z", "thread.warp", "thread.lane")
"""Hardware axes of the threads of a block. Warps and lanes are x taken apart."""


def is_thread(kind: LoopKind) -> bool:
    """Whether a loop of this kind runs over the threads inside a block of threads."""
    return kind.name == "thread" and not kind.axis.startswith("block")


@dataclass(frozen=True, slots=True)
class _Stmt:
    """Caches shared by all statements: what searches of a large function prune by.

    A statement around one other shares the caches of that one where it adds nothing, so that a change deep
    in a function costs little on the way to its root.
    """

    _names: frozenset[str] | None = field(init=False, default=None, compare=False, repr=False)
    _inner: frozenset[str] | None = field(init=False, default=None, compare=False, repr=False)
    _allocated: tuple[Buffer, ...] | None = field(init=False, default=None, compare=False, repr=False)
    _threads: bool | None = field(init=False, default=None, compare=False, repr=False)
    _spread: bool | None = field(init=False, default=None, compare=False, repr=False)

    @property
    def names(self) -> frozenset[str]:
        """Names of the loops and blocks in this subtree (cached; what path search prunes by)."""
        found = self._names
        if found is None:
            kids: list[frozenset[str]] = []
            for child in stmt_children(self):  # type: ignore[arg-type]  # subclasses are all in `Stmt`
                kids.append(child.names)  # no comprehension: it would double the depth of the recursion
            found = _joined(kids, _own_name(self))
            object.__setattr__(self, "_names", found)
        return found

    @property
    def inner_names(self) -> frozenset[str]:
        """:attr:`names` and those inside of the blocks' bodies, buffers allocated there included (cached)."""
        found = self._inner
        if found is None:
            parts: tuple[Stmt, ...] = stmt_children(self)  # type: ignore[arg-type]  # as above
            if isinstance(self, Block):
                parts = (self.body,) if self.init is None else (self.body, self.init)
            kids: list[frozenset[str]] = []
            for child in parts:
                kids.append(child.inner_names)
                if isinstance(self, Block) and child.allocated:
                    kids.append(frozenset(b.name for b in child.allocated))
            found = _joined(kids, _own_name(self))
            object.__setattr__(self, "_inner", found)
        return found

    @property
    def allocated(self) -> tuple[Buffer, ...]:
        """Buffers allocated in this subtree, in program order (cached)."""
        found = self._allocated
        if found is None:
            parts: list[tuple[Buffer, ...]] = []
            for child in stmt_children(self):  # type: ignore[arg-type]  # subclasses are all in `Stmt`
                if child.allocated:
                    parts.append(child.allocated)
            found = parts[0] if len(parts) == 1 else tuple(b for part in parts for b in part)
            if isinstance(self, Alloc):
                found = (self.buffer, *found)
            object.__setattr__(self, "_allocated", found)
        return found

    @property
    def has_threads(self) -> bool:
        """Whether a loop over the threads of a block is in this subtree (cached)."""
        found = self._threads
        if found is None:
            found = isinstance(self, For) and is_thread(self.kind)
            for child in stmt_children(self):  # type: ignore[arg-type]  # subclasses are all in `Stmt`
                found = found or child.has_threads
            object.__setattr__(self, "_threads", found)
        return found

    @property
    def is_spread(self) -> bool:
        """Whether a loop over blocks or threads is in this subtree (cached)."""
        found = self._spread
        if found is None:
            found = isinstance(self, For) and self.kind.name == "thread"
            for child in stmt_children(self):  # type: ignore[arg-type]  # as above
                found = found or child.is_spread
            object.__setattr__(self, "_spread", found)
        return found


_NO_NAMES: frozenset[str] = frozenset()


def _own_name(s: _Stmt) -> str | None:
    if isinstance(s, For):
        return s.var
    return s.name if isinstance(s, Block) else None


def _joined(sets: list[frozenset[str]], own: str | None) -> frozenset[str]:
    """The union; one of the sets itself where that is all."""
    full = [s for s in sets if s]
    if own is None and len(full) <= 1:
        return full[0] if full else _NO_NAMES
    return frozenset((own,)).union(*full) if own is not None else full[0].union(*full[1:])


@dataclass(frozen=True, slots=True)
class Seq(_Stmt):
    """Statements one after another; an empty one does nothing."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class If(_Stmt):
    """``then`` where all conditions hold, else ``orelse``."""

    cond: Pred
    then: Stmt
    orelse: Stmt | None = None


@dataclass(frozen=True, slots=True)
class Alloc(_Stmt):
    """Fresh, undefined storage for ``buffer`` during ``body``, once per execution of this statement."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True)
class Barrier(_Stmt):
    """All threads of the block wait for each other; memory of ``scope`` is visible afterwards."""

    scope: str


@dataclass(frozen=True, slots=True)
class Channel:
    """A ring of ``slots`` slots: one team fills it with items 0, 1, 2 …, others take each of them."""

    name: str
    slots: int


@dataclass(frozen=True, slots=True)
class Team(_Stmt):
    """``threads`` of a block's threads, with a body and, where that is not 0, so many ``registers`` each."""

    name: str
    threads: int
    body: Stmt
    registers: int = 0


@dataclass(frozen=True, slots=True)
class Teams(_Stmt):
    """The threads of a block in teams, all at work at once; it stands below loops over blocks alone."""

    channels: tuple[Channel, ...]
    teams: tuple[Team, ...]


@dataclass(frozen=True, slots=True)
class Sync(_Stmt):
    """What all threads of a team say to a channel about its item number ``item``, or wait for.

    ``acquire`` waits until all takers have released the item that had the slot before, ``put`` says that the
    item is there, ``get`` waits for that, ``release`` says that this team is done with it.
    """

    op: SyncOp
    channel: str
    item: Index


@dataclass(frozen=True, slots=True)
class For(_Stmt):
    """``for var in range(lo, hi, step)``; ``hints`` are back-end options such as ``("outline", "")``.

    ``hints.py`` says which there are. None changes what a function computes.
    """

    var: str
    lo: Index
    hi: Index
    body: Stmt
    kind: LoopKind = SERIAL
    step: int = 1
    hints: tuple[tuple[str, str], ...] = ()

    @property
    def extent(self) -> Index:
        """Number of iterations for step 1: ``hi - lo``."""
        return self.hi - self.lo


@dataclass(frozen=True, slots=True)
class Iter:
    """A block iterator over ``[lo, hi)``: parallel (``par``), reduction (``red``) or ordered (``ord``)."""

    name: str
    lo: Index
    hi: Index
    kind: IterKind

    @property
    def extent(self) -> Index:
        """``hi - lo``."""
        return self.hi - self.lo


@dataclass(frozen=True, slots=True)
class Block(_Stmt):
    """The unit that schedules move: one instance computes ``body`` for one binding of its iterators."""

    name: str
    stage: str
    iters: tuple[Iter, ...]
    bind: tuple[Index, ...]
    body: Stmt
    init: Stmt | None = None
    where: Pred = ()
    _reads: tuple[Load, ...] | None = field(init=False, default=None, compare=False, repr=False)
    _writes: tuple[tuple[str, tuple[Index, ...]], ...] | None = field(
        init=False, default=None, compare=False, repr=False
    )

    @property
    def reads(self) -> tuple[Load, ...]:
        """Loads of the body (over block iterators), without duplicates, accumulators included.

        Buffers that the body of an opaque block allocates are its own and left out, here as in ``writes``.
        """
        if self._reads is None:
            found: dict[Load, None] = {}
            for s in (self.init, self.body):
                if s is not None:
                    found.update(dict.fromkeys(stmt_loads(s)))
            own = {b.name for b in self.body.allocated}
            object.__setattr__(self, "_reads", tuple(ld for ld in found if ld.buffer not in own))
        assert self._reads is not None
        return self._reads

    @property
    def writes(self) -> tuple[tuple[str, tuple[Index, ...]], ...]:
        """Written ``(buffer, indices)`` of body and init, without duplicates."""
        if self._writes is None:
            found: dict[tuple[str, tuple[Index, ...]], None] = {}
            for s in (self.init, self.body):
                if s is not None:
                    found.update(dict.fromkeys(stmt_writes(s)))
            own = {b.name for b in self.body.allocated}
            object.__setattr__(self, "_writes", tuple(w for w in found if w[0] not in own))
        assert self._writes is not None
        return self._writes

    def binding(self) -> dict[str, Index]:
        """Iterator names to their loop-variable expressions."""
        return {it.name: b for it, b in zip(self.iters, self.bind, strict=True)}

    @property
    def is_reduction(self) -> bool:
        """Whether some iterator is a reduction."""
        return any(it.kind == "red" for it in self.iters)


@dataclass(frozen=True, slots=True)
class Access:
    """One assignment ``buffer[indices] = value`` of a :class:`Store`."""

    buffer: str
    indices: tuple[Index, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Store(_Stmt):
    """Simultaneous assignments: all values are read before anything is written (argmin's pair)."""

    writes: tuple[Access, ...]


@dataclass(frozen=True, slots=True)
class Along:
    """An axis of an operand: ``count`` elements along dimension ``dim`` of a buffer, ``step`` apart."""

    dim: int
    count: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class Window:
    """A box of a buffer passed to an instruction: per dimension an offset and a constant extent.

    ``axes`` say how the elements that are passed lie in it, one for each axis of the instruction's operand;
    two may be along one dimension, as of rows that overlap. Empty: all elements, in the buffer's order.
    """

    buffer: str
    offsets: tuple[Index, ...]
    extents: tuple[int, ...]
    mode: WindowMode
    axes: tuple[Along, ...] = ()


@dataclass(frozen=True, slots=True)
class Exec(_Stmt):
    """One call of the target instruction named ``instr`` on windows and scalar arguments."""

    instr: str
    windows: tuple[Window, ...]
    args: tuple[Expr, ...] = ()


Stmt: TypeAlias = Seq | If | Alloc | Barrier | For | Block | Store | Exec | Teams | Team | Sync

NOTHING = Seq(())


@dataclass(frozen=True, slots=True)
class LoopFunction:
    """A compilable function: symbolic ``params``, argument ``buffers``, and a ``body``.

    ``outputs`` names the argument buffers that the function defines; all others are read only. Those among
    them that are ``inouts`` come with contents that count: they are read before they are written, or keep
    some of their elements; the contents of other outputs are undefined on entry. A call provides one array
    per argument buffer, in order. ``assumes`` are conditions on the parameters that are checked at entry.
    """

    name: str
    params: tuple[Param, ...]
    buffers: tuple[Buffer, ...]
    outputs: tuple[str, ...]
    body: Stmt
    assumes: Pred = ()
    inouts: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """The argument buffers whose contents count on entry."""
        return tuple(b for b in self.buffers if b.name not in self.outputs or b.name in self.inouts)

    def buffer(self, name: str) -> Buffer:
        """The argument buffer called ``name``; ``KeyError`` where there is none."""
        for b in self.buffers:
            if b.name == name:
                return b
        raise KeyError(name)

    def with_body(self, body: Stmt) -> LoopFunction:
        """The same function with another body (``self`` where it is the same object)."""
        return self if body is self.body else replace(self, body=body)


def stmt_children(s: Stmt) -> tuple[Stmt, ...]:
    """Direct sub-statements (a block's body and init are its own scope and not among them)."""
    match s:
        case Seq():
            return s.stmts
        case If():
            return (s.then,) if s.orelse is None else (s.then, s.orelse)
        case Alloc() | For() | Team():
            return (s.body,)
        case Teams():
            return s.teams
        case _:
            return ()


def outermost(s: Stmt) -> Iterator[Stmt]:
    """What a body runs one after another: its statements below allocations and sequences."""
    match s:
        case Seq():
            for child in s.stmts:
                yield from outermost(child)
        case Alloc():
            yield from outermost(s.body)
        case _:
            yield s


def condition_of(s: Stmt) -> tuple[Pred, Stmt]:
    """The condition and the statement of an ``if`` without ``else``; other statements have no condition."""
    return (s.cond, s.then) if isinstance(s, If) and s.orelse is None else ((), s)


def with_stmt_children(s: Stmt, new: tuple[Stmt, ...]) -> Stmt:
    """The statement with other children; ``s`` itself where they are the same objects."""
    if all(a is b for a, b in zip(stmt_children(s), new, strict=True)):
        return s
    match s:
        case Seq():
            return Seq(new)
        case If():
            return If(s.cond, new[0], new[1] if s.orelse is not None else None)
        case Alloc():
            return Alloc(s.buffer, new[0])
        case For() | Team():
            return replace(s, body=new[0])
        case Teams():
            return Teams(s.channels, tuple(k for k in new if isinstance(k, Team)))
        case _:
            return s


def seq(*stmts: Stmt) -> Stmt:
    """Sequence with nested sequences flattened; a single statement stays itself."""
    flat: list[Stmt] = []
    for s in stmts:
        if isinstance(s, Seq):
            flat.extend(s.stmts)
        else:
            flat.append(s)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def store(buffer: str, indices: tuple[Index, ...], value: Expr) -> Store:
    """A single assignment."""
    return Store((Access(buffer, indices, value),))


def sums_lanes(loop: For) -> bool:
    """Whether ``loop`` is a vector loop over a reduction: its lanes accumulate apart, joined at the end."""

    def reduces(s: Stmt) -> bool:
        if isinstance(s, Block):
            return any(it.kind == "red" and loop.var in b.vars for it, b in zip(s.iters, s.bind, strict=True))
        return any(map(reduces, stmt_children(s)))

    return loop.kind.name == "vector" and reduces(loop.body)


def stmt_exprs(s: Stmt) -> list[Expr]:
    """All scalar expressions of a statement tree, block bodies and opaque indices included."""
    out: list[Expr] = []

    def of_index(i: Index) -> None:
        out.extend(walk_index(i))

    def visit(node: Stmt) -> None:
        match node:
            case Store():
                for w in node.writes:
                    out.append(w.value)
                    for i in w.indices:
                        of_index(i)
            case Exec():
                out.extend(node.args)
                for win in node.windows:
                    for i in win.offsets:
                        of_index(i)
            case Sync():
                of_index(node.item)
            case If():
                out.extend(pred_exprs(node.cond))
            case For():
                of_index(node.lo)
                of_index(node.hi)
            case Block():
                out.extend(pred_exprs(node.where))
                for i in node.bind:
                    of_index(i)
                if node.init is not None:
                    visit(node.init)
                visit(node.body)
            case _:
                pass
        for child in stmt_children(node):
            visit(child)

    visit(s)
    return out


def pred_exprs(p: Pred) -> list[Expr]:
    """All scalar expressions of a predicate, those in indices included."""
    out: list[Expr] = []
    for c in p:
        if c.index is not None:
            out.extend(walk_index(c.index))
        if c.expr is not None:
            out.append(c.expr)
    return out


def pred_loads(p: Pred) -> list[Load]:
    """All loads of a predicate, duplicates included."""
    return [ld for e in pred_exprs(p) for ld in loads(e)]


def stmt_loads(s: Stmt) -> list[Load]:
    """All loads of a statement tree, in order, duplicates included."""
    return [ld for e in stmt_exprs(s) for ld in loads(e)]


def stmt_writes(s: Stmt) -> list[tuple[str, tuple[Index, ...]]]:
    """All written ``(buffer, indices)`` of a statement tree, block bodies included, in order."""
    out: list[tuple[str, tuple[Index, ...]]] = []
    match s:
        case Store():
            out.extend((w.buffer, w.indices) for w in s.writes)
        case Exec():
            out.extend((w.buffer, w.offsets) for w in s.windows if w.mode != "r")
        case Block():
            for part in (s.init, s.body):
                if part is not None:
                    out.extend(stmt_writes(part))
        case _:
            for child in stmt_children(s):
                out.extend(stmt_writes(child))
    return out
