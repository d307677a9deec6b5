"""Teams of a block in CUDA text: rings of slots by ``mbarrier``, boxes by tensor maps, products by ``wgmma``.

A channel is a pair of barriers a slot, *full* and *empty*. The number of an item says which slot it has and
how often that was used before, so which parity a wait is for: nothing is counted while running. The first
wait for an empty slot is for the parity before the first, which a fresh barrier has passed. (PTX ISA,
"Parallel Synchronization and Communication Instructions: mbarrier", "Data Movement and Conversion
Instructions: Tensor copy", "Asynchronous Warpgroup Level Matrix Instructions".)

Warps arrive by one thread each. A team in which no loop spreads anything over threads is one thread. Products
are begun and waited for in groups, one an item: what a release names is waited for before it.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import nullcontext
from math import prod
from typing import Final

import numpy as np

from tilewright.analysis import only_inside, padded_read
from tilewright.codegen.clike.dialect import Dialect
from tilewright.codegen.clike.helpers import Helpers
from tilewright.codegen.clike.launches import Grid, leaves, team_grid
from tilewright.codegen.clike.statements import constant_extent, is_unrolled
from tilewright.codegen.clike.tiles import MatrixPlace, Places, box_swizzle, matrix_place, placed, values
from tilewright.codegen.clike.warps import WARP, WarpCalls
from tilewright.codegen.clike.writer import Writer
from tilewright.ir import (
    BOX,
    ZERO,
    Barrier,
    Buffer,
    Channel,
    DType,
    Exec,
    For,
    If,
    Index,
    Seq,
    Stmt,
    Store,
    Sync,
    Team,
    Teams,
    Window,
    buffer,
    dtype_of,
    floordiv,
    int_range,
    mod,
    simplify,
    stmt_children,
    stmt_loads,
    stmt_writes,
    substitute_index,
    var,
)
from tilewright.support import ScheduleError, TargetError
from tilewright.target import MOST_BOX, MOST_RANK, STRIDE_BYTES, TensorMap

GROUP: Final = 128
"""Threads of a warpgroup."""
REGISTERS: Final = 65536
"""Registers of a multiprocessor; a block's threads begin with equal shares (multiples of 8)."""


class TeamCalls(WarpCalls):
    """Statements of a kernel whose threads may be in teams."""

    def __init__(
        self, dialect: Dialect, helpers: Helpers, writer: Writer, *, wide: bool, grid: Grid, symbol: str
    ) -> None:
        super().__init__(dialect, helpers, writer, wide=wide, grid=grid, symbol=symbol)
        self.maps: list[TensorMap] = []
        self.has_teams = False
        self.arguments: tuple[str, ...] = ()
        """Names of the kernel's buffers, in order."""
        self._channels: dict[str, Channel] = {}
        self._takers: dict[str, int] = {}
        self._filler: dict[str, int] = {}
        self._team = -1
        self._active = 0
        self._threads = ""
        """The variable of the loop that names each thread of the team, where all run it."""
        self._filled: Sync | None = None
        self._taken: Index | None = None
        self._grouped = False
        """Whether the team multiplies in groups."""
        self._as_tf32: set[str] = set()
        """Tiles of f32 that products read as TF32: they are rounded as they are copied."""
        self._open = False
        """Whether an item was taken whose group of products has no end yet."""
        self._fenced = False
        """Whether units see the registers that the sums are in."""
        self._unwaited: set[str] = set()
        """Buffers that products write which are not waited for."""

    def written_out(self, s: For) -> list[str]:
        """Lines before a loop that say how much of it is written out."""
        factor = is_unrolled(s)
        return [f"#pragma unroll {factor}"] if factor > 1 else []

    @abstractmethod
    def add_shared(self, name: str, b: Buffer, nbytes: int) -> None:
        """Give a block so many bytes of shared memory under a name."""

    @property
    def in_team(self) -> bool:
        """Whether what is written is a team's."""
        return self._team >= 0

    # -- teams ----------------------------------------------------------------------------------------------

    def id(self, axis: str) -> str:
        """The number of this thread in its team along an axis, or of the block."""
        if self._team < 0 or axis.startswith("block"):
            return super().id(axis)
        x, y, _ = (extent.const for extent in self.grid.threads)
        return {
            "thread.x": "tw_thread" if self._active == x else f"tw_thread % {x}",
            "thread.y": f"tw_thread / {x} % {y}",
            "thread.z": f"tw_thread / {x * y}",
        }[axis]

    def teams(self, s: Teams) -> None:
        """Write teams one after the other, each under a condition on the number of a thread."""
        if not self.dialect.group_instructions:
            raise TargetError(f"{self.dialect.name} has no teams of threads")
        self.has_teams = True
        grids = [team_grid(team, self.grid, self.symbol) for team in s.teams]
        active = [prod(e.const for e in g.threads) for g in grids]
        total = sum(team.threads for team in s.teams)
        products = [k for k in _executed(s) if k.instr in self.dialect.group_instructions]
        self._as_tf32 = {w.buffer for k in products if k.instr.endswith("tf32") for w in k.windows[1:]}
        for c in s.channels:
            self._channels[c.name] = c
            said = [{k.op for k in _syncs(team.body) if k.channel == c.name} for team in s.teams]
            self._filler[c.name] = sum(
                _arrivals(a) for a, ops in zip(active, said, strict=True) if "put" in ops
            )
            self._takers[c.name] = sum(
                _arrivals(a) for a, ops in zip(active, said, strict=True) if "release" in ops
            )
            for kind in ("full", "empty"):
                b = buffer(f"tw_{kind}_{c.name}", (c.slots,), dtype_of("i64"))
                self.add_shared(b.name, b, 8 * c.slots)
        self._begin_rings(s)
        first, share = 0, min(255, REGISTERS // total) // 8 * 8
        outer = self.grid, self.covered
        for n, team in enumerate(s.teams):
            self._team, self.grid, self._active = n, grids[n], active[n]
            self._grouped = any(k.instr in self.dialect.group_instructions for k in _executed(team.body))
            bounds = [f"threadIdx.x >= {first}"] * (first > 0)
            bounds += [f"threadIdx.x < {first + team.threads}"] * (first + team.threads < total)
            with self.writer.block(f"if ({' && '.join(bounds) or '1'})"):
                if team.registers and team.registers != share:
                    self._check_registers(s, team)
                    way = "inc" if team.registers > share else "dec"
                    self.writer.line(f'asm volatile("setmaxnreg.{way}.sync.aligned.u32 {team.registers};");')
                self.writer.line(f"const int tw_thread = (int)threadIdx.x - {first};")
                idle = active[n] < team.threads
                with self.writer.block(f"if (tw_thread < {active[n]})") if idle else nullcontext():
                    self.stmt(team.body)
                    self._wait_all()
            first += team.threads
        self._team, (self.grid, self.covered) = -1, outer

    def _check_registers(self, s: Teams, team: Team) -> None:
        used = sum(t.threads * t.registers for t in s.teams)
        if used > REGISTERS or team.threads % GROUP:
            raise ScheduleError(
                f"{self.symbol}: teams of {', '.join(str(t.threads) for t in s.teams)} threads take {used} "
                f"registers of {REGISTERS}",
                hint=f"teams that state registers have multiples of {GROUP} threads; state fewer registers",
            )

    def _begin_rings(self, s: Teams) -> None:
        with self.writer.block("if (threadIdx.x == 0)"):
            for c in s.channels:
                for kind, count in (("full", self._filler[c.name]), ("empty", self._takers[c.name])):
                    self.writer.line(f"for (int n = 0; n < {c.slots}; ++n)")
                    self.writer.line(
                        f"    {self._helper('tw_ring_init', _INIT)}(&tw_{kind}_{c.name}[n], {count});"
                    )
            self.writer.line('asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");')
            self.writer.line('asm volatile("fence.proxy.async.shared::cta;" ::: "memory");')
        self.writer.line("__syncthreads();")

    def _helper(self, name: str, text: str) -> str:
        return self.helpers.verbatim(name, text)

    # -- channels -------------------------------------------------------------------------------------------

    def _slot(self, s: Sync, kind: str) -> str:
        slots = self._channels[s.channel].slots
        return f"&tw_{kind}_{s.channel}[{self.index(simplify(mod(s.item, slots), self.env))}]"

    def say(self, s: Sync) -> None:
        """Write what a team says to a channel, or waits for."""
        slots = self._channels[s.channel].slots
        if s.op in ("acquire", "get"):
            kind, before = ("empty", 1) if s.op == "acquire" else ("full", 0)
            turn = self.index(simplify(mod(floordiv(s.item, slots) + before, 2), self.env))
            wait = self._helper("tw_ring_wait", _WAIT)
            self.writer.line(f"{wait}({self._slot(s, kind)}, {turn});")
            if s.op == "acquire":
                self._filled = s
            else:
                self._taken = s.item
                self._open = self._grouped
                if self._grouped:
                    self._fence()
            return
        if s.op == "release":
            self._wait_for(s.item)
        elif self._active > 1:
            # what threads stored is read by units that see memory otherwise
            self.writer.line('asm volatile("fence.proxy.async.shared::cta;" ::: "memory");')
        arrive = self._helper("tw_ring_arrive", _ARRIVE)
        call = f"{arrive}({self._slot(s, 'full' if s.op == 'put' else 'empty')});"
        if self._active % WARP == 0:
            self.writer.line("__syncwarp();")
            call = f"if (tw_thread % {WARP} == 0) {call}"
        self.writer.line(call)

    def wait(self, s: Barrier) -> None:
        """Write a barrier of a team."""
        if self._active > 1:
            if self._active % WARP:
                raise ScheduleError(
                    f"{self.symbol}: a team of {self._active} threads waits for each other",
                    hint=f"give it a multiple of {WARP}",
                )
            self.writer.line(f'asm volatile("bar.sync {self._team + 1}, {self._active};" ::: "memory");')

    # -- what is inside -------------------------------------------------------------------------------------

    def lanes(self, s: For, *, full: bool) -> str:
        """Take a loop on ``thread.x`` for lanes, and for the threads of warpgroups, where it is."""
        outer = super().lanes(s, full=full)
        if s.kind.axis == "thread.x":
            whole = full and s.lo == ZERO and s.hi.is_const and s.hi.const % GROUP == 0
            self._threads = s.var if whole and self._team >= 0 else ""
        return outer

    def stmt(self, s: Stmt) -> None:
        """Write a statement."""
        match s:
            case Teams():
                self.teams(s)
            case Sync():
                self.say(s)
            case For() if BOX in dict(s.hints) and self._team >= 0:
                if not self._box(s):
                    raise ScheduleError(
                        f"{self.symbol}: the copy in {s.var!r} is no box that a tensor map can say",
                        hint="its argument's strides are multiples of 16 bytes, and its tile lies in rows of "
                        "32, 64 or 128 bytes",
                    )
            case Store() | Exec() if self._touches(s):
                self._wait_all()
                self._fenced = False
                super().stmt(s)
            case Seq() if self._grouped:
                for part in s.stmts:
                    if self._open and any(True for _ in _syncs(part)):
                        self._end_group()
                    self.stmt(part)
            case _:
                self._fenced = self._fenced and not isinstance(s, Store)
                super().stmt(s)

    def pragmas(self, s: For) -> list[str]:
        """Lines before a loop: what turns of a ring are is decided, and no compiler writes out more."""
        ring = s.kind.name == "serial" and any(True for _ in _syncs(s.body))
        return ["#pragma unroll 1"] if ring else self.written_out(s)

    def branch(self, s: If) -> None:
        """Write an ``if``, of which one side may not run."""
        outer = set(self._unwaited)
        super().branch(s)
        self._unwaited |= outer

    def body(self, s: For) -> None:
        """Write what a loop repeats: an iteration may begin with what the one before multiplies into."""
        super().body(s)
        if any(map(self._touches, leaves(s.body))):
            self._wait_all()

    def _touches(self, s: Store | Exec) -> bool:
        """Whether a statement, no product itself, touches what products that are under way write."""
        if isinstance(s, Exec) and s.instr in self.dialect.group_instructions:
            return False
        names = {ld.buffer for ld in stmt_loads(s)} | {name for name, _ in stmt_writes(s)}
        return bool(names & self._unwaited)

    # -- products -------------------------------------------------------------------------------------------

    def execute(self, s: Exec) -> None:
        """Write a call of an instruction."""
        if s.instr in self.dialect.group_instructions:
            self._by_group(s)
        else:
            super().execute(s)

    def _fence(self) -> None:
        self.writer.line('asm volatile("wgmma.fence.sync.aligned;" ::: "memory");')
        self._fenced = True

    def _end_group(self) -> None:
        """End the group of an item's products: each item has one, perhaps of none."""
        if self._open:
            self.writer.line('asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");')
            self._open = False

    def _wait_for(self, item: Index) -> None:
        """Wait until the products of an item are done: of those that follow it may be under way."""
        if not self._unwaited:
            return
        later = simplify(self._taken - item, self.env) if self._taken is not None else ZERO
        count = later.const if later.is_const and 0 <= later.const < 8 else 0
        self.writer.line(f'asm volatile("wgmma.wait_group.sync.aligned {count};" ::: "memory");')
        if not count:
            self._unwaited.clear()

    def _wait_all(self) -> None:
        if self._unwaited:
            self._open = True
            self._end_group()
            self.writer.line('asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");')
            self._unwaited.clear()

    def _by_group(self, s: Exec) -> None:
        """A product of a warpgroup: sums in registers, both factors by descriptors."""
        row = self.dialect.group_instructions[s.instr]
        result, *factors = s.windows
        if not self._threads or any(w.buffer not in self.shared for w in factors):
            raise ScheduleError(
                f"{self.symbol}: {s.instr} is done by the {GROUP} threads of a warpgroup together, from "
                f"shared memory: it stands in a loop of {GROUP} iterations or more of thread.x, in a team",
                hint="give the loop that copies its factors the hint 'teams'",
            )
        place = self.place(result.buffer)
        sums = []
        for j, r, c in itertools.product(*(range(result.axes[n].count) for n in (1, 0, 2))):
            at = list(result.offsets)
            for along, n in zip(result.axes, (r, j, c), strict=True):
                at[along.dim] = at[along.dim] + along.step * n
            total = simplify(self.offset(place, tuple(at))[0], self.env)
            if self._threads in total.vars or result.buffer not in self.private:
                raise ScheduleError(f"{self.symbol}: {s.instr} sums in registers, not in {result.buffer!r}")
            sums.append(f"{place.text}[{self.index_text(total)}]")
        operands = []
        for n, w in enumerate(factors):
            pointer, found = self._described(s, w, n)
            if found.turned and not row.turns:
                raise ScheduleError(
                    f"{self.symbol}: {s.instr} takes {w.buffer!r} with neighbours along the sums together",
                    hint="transpose the operand",
                )
            operands.append((pointer, found))
        if not self._fenced:
            self._fence()
        self._unwaited.add(result.buffer)
        count = len(sums)
        listed = ", ".join(f"%{n}" for n in range(count))
        turns = "".join(f", {int(found.turned)}" for _, found in operands) if row.turns else ""
        describe = self._helper("tw_matrix", _MATRIX)
        given = [f'"+f"({x})' for x in sums]
        described = [
            f'"l"({describe}({p}, {m.leading >> 4}, {m.stride >> 4}, {m.mode}))' for p, m in operands
        ]
        call = f"{row.mnemonic} {{{listed}}}, %{count}, %{count + 1}, 1, 1, 1{turns};"
        self.writer.line(f'asm volatile("{call}" : {", ".join(given)} : {", ".join(described)});')

    def _described(self, s: Exec, w: Window, factor: int) -> tuple[str, MatrixPlace]:
        """Where a factor begins, and how its elements lie, of all threads of a warpgroup together."""
        place, axes = self.place(w.buffer), w.axes
        if factor == 0:
            r, k = axes
            counts: tuple[int, ...] = (2, GROUP, k.count)
            pairs = [(r, 0), (k, 2)]
        else:
            k, j, c = axes
            counts, pairs = (j.count, GROUP, c.count, k.count), [(k, 3), (j, 0), (c, 2)]
        grid = np.ogrid[tuple(slice(n) for n in counts)]
        names = [f"@{n}" for n in range(len(counts))]
        at = list(w.offsets)
        for along, n in pairs:
            at[along.dim] = at[along.dim] + var(names[n]) * along.step
        group, thread = var("@group"), var(names[1])
        env = {**self.env, "@group": (ZERO, floordiv(self.env[self._threads][1], GROUP))}
        inner = {
            **env,
            **{name: (ZERO, Index(n - 1)) for name, n in zip(names, counts, strict=True)},
        }
        of_thread = {self._threads: group * GROUP + thread}
        at = [simplify(substitute_index(i, of_thread), inner) for i in at]
        total = simplify(self.offset(place, tuple(at))[0], inner)
        nbytes = place.buffer.dtype.bytes
        found: set[MatrixPlace | None] = set()
        for point in values(sorted(total.vars - set(names)), env) or ():
            spread = placed(total, {**point, **dict(zip(names, grid, strict=True))}) * nbytes
            matrix = _of_rows(np.broadcast_to(spread, counts), factor)
            found.add(None if matrix is None else matrix_place(matrix, nbytes))
        said = found.pop() if len(found) == 1 else None
        if said is None:
            raise self._uneven(w)
        base = dict.fromkeys(names, ZERO)
        start = substitute_index(total, base)
        start = substitute_index(start, {"@group": floordiv(var(self._threads), GROUP)})
        return f"&{place.text}[{self.index_text(simplify(start, self.env))}]", said

    # -- boxes ----------------------------------------------------------------------------------------------

    def _box(self, s: For) -> bool:
        """Write loops that copy a box of an argument, or loops around some: the widest that there is."""
        if self._as_box(s):
            return True
        inner = s.body
        if not isinstance(inner, For) or constant_extent(s) is None:
            return False
        with (
            self.variable(s) as name,
            self.writer.block(f"for ({self.index_type} {name} = 0; {name} < {self.index(s.hi)}; ++{name})"),
        ):
            return self._box(inner)

    def _as_box(self, s: For) -> bool:
        loops: list[For] = []
        body: Stmt = s
        while isinstance(body, For):
            loops.append(body)
            body = body.body
        if not isinstance(body, Store) or len(body.writes) != 1 or self._filled is None:
            return False
        (w,) = body.writes
        read = padded_read(w.value)
        if read is None or w.buffer not in self.shared or read[0].buffer in self.shared:
            return False
        load, conditions = read
        source, target = self.place(load.buffer), self.place(w.buffer)
        inner = {**self.env, **{f.var: (f.lo, f.hi - 1) for f in loops}}
        at = [simplify(i, inner) for i in source.buffer.physical(load.indices)]
        shape = [e.const for e in source.buffer.physical_shape if e.is_const]
        strides = [x for x in source.strides if isinstance(x, int)]
        if not len(shape) == len(strides) == len(at) <= MOST_RANK or source.shift or source.buffer.halo:
            return False
        nbytes = source.buffer.dtype.bytes
        order: list[For] = []
        box = [1] * len(at)
        for d, i in enumerate(at):
            own = [f for f in loops if f.var in i.vars]
            if len(own) > 1 or any(i.coefficient(f.var) != 1 for f in own):
                return False
            for f in own:
                if f.var in (i - var(f.var)).vars or f in order or constant_extent(f) is None:
                    return False
                order.append(f)
                box[d] = f.extent.const
        aligned = all(x * nbytes % STRIDE_BYTES == 0 for x in strides[:-1])
        if len(order) != len(loops) or strides[-1] != 1 or not aligned or max(box) > MOST_BOX:
            return False
        if any(b > n for b, n in zip(box, shape, strict=True)) or box[-1] * nbytes % STRIDE_BYTES:
            return False
        ends = {name: (int_range(lo, inner)[0], int_range(hi, inner)[1]) for name, (lo, hi) in inner.items()}
        ranges = {name: (lo, hi + 1) for name, (lo, hi) in ends.items() if lo is not None and hi is not None}
        # what the instruction leaves out are zeros, and the same elements
        said = [simplify(x, inner) for x in conditions]
        if not only_inside(at, shape, said, ranges):
            return False
        total = simplify(self.offset(target, w.indices)[0], inner)
        swizzle = self._lies(total, order, box[-1] * nbytes, target.buffer.dtype)
        if swizzle is None:
            return False
        start = dict.fromkeys((f.var for f in loops), ZERO)
        key = TensorMap(
            self.arguments.index(load.buffer),
            "tf32" if w.buffer in self._as_tf32 else source.buffer.dtype.name, tuple(shape), tuple(strides),
            tuple(box), swizzle,
        )  # fmt: skip
        if key not in self.maps:
            self.maps.append(key)
        corner = [self.index(simplify(substitute_index(i, start), self.env)) for i in reversed(at)]
        size = prod(box) * nbytes
        self.helpers.declaration("TwTensorMap", _MAP)
        copy = self._helper(f"tw_box_{len(box)}", _box_function(len(box)))
        first = self.index_text(simplify(substitute_index(total, start), self.env))
        self.writer.line(
            f"{copy}(&{target.text}[{first}], &tw_map_{self.maps.index(key)}, "
            f"{self._slot(self._filled, 'full')}, {size}, {', '.join(corner)});"
        )
        return True

    def _lies(self, total: Index, order: list[For], inner_bytes: int, dtype: DType) -> int | None:
        """The swizzle of a box in shared memory; ``None`` where its elements lie otherwise."""
        counts = [f.extent.const for f in order]
        grid = dict(zip((f.var for f in order), np.ogrid[tuple(slice(n) for n in counts)], strict=True))
        points = values(sorted(total.vars - set(grid)), self.env)
        found: set[int | None] = set()
        for point in points or ():
            places = placed(total, {**point, **grid}) * dtype.bytes
            found.add(box_swizzle(np.broadcast_to(places, counts), inner_bytes, dtype.bytes))
        return found.pop() if len(found) == 1 else None


def _of_rows(spread: Places, factor: int) -> Places | None:
    """Places by rows (of the second factor columns) and terms; ``None`` where threads do not agree."""
    if factor == 0:
        # (half, thread, k) -> rows 16 * warp + 8 * half + lane // 4
        same = spread.reshape(2, 4, 8, 4, -1)
        if not (same == same[:, :, :, :1]).all():
            return None
        return np.ascontiguousarray(same[:, :, :, 0].transpose(1, 0, 2, 3).reshape(64, -1))
    # (eight, thread, pair, k) -> columns 8 * eight + 2 * (thread % 4) + pair
    same = spread.reshape(spread.shape[0], GROUP // 4, 4, 2, -1)
    if not (same == same[:, :1]).all():
        return None
    return np.ascontiguousarray(same[:, 0].reshape(spread.shape[0] * 8, -1))


def _syncs(s: Stmt) -> Iterator[Sync]:
    if isinstance(s, Sync):
        yield s
    for child in stmt_children(s):
        yield from _syncs(child)


def _executed(s: Stmt) -> Iterator[Exec]:
    return (k for k in leaves(s) if isinstance(k, Exec))


def _arrivals(active: int) -> int:
    """Threads of a team that arrive at a barrier of a channel."""
    return active // WARP if active % WARP == 0 else active


_MAP: Final = "struct alignas(64) TwTensorMap { unsigned long long words[16]; };"
_INIT: Final = """void tw_ring_init(long long *at, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
        :: "r"((unsigned int)__cvta_generic_to_shared(at)), "r"(count) : "memory");
}"""
_WAIT: Final = """void tw_ring_wait(long long *at, int turn) {
    asm volatile("{\\n.reg .pred there;\\nwait:\\n"
        "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\\n@!there bra wait;\\n}"
        :: "r"((unsigned int)__cvta_generic_to_shared(at)), "r"(turn) : "memory");
}"""
_ARRIVE: Final = """void tw_ring_arrive(long long *at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
        :: "r"((unsigned int)__cvta_generic_to_shared(at)) : "memory");
}"""
_MATRIX: Final = """unsigned long long tw_matrix(const void *at, int leading, int stride, int mode) {
    const unsigned int place = (unsigned int)__cvta_generic_to_shared(at);
    return (unsigned long long)mode << 62 | (unsigned long long)stride << 32
        | (unsigned long long)leading << 16 | (place >> 4 & 0x3fff);
}"""


def _box_function(rank: int) -> str:
    at = ", ".join(f"int c{n}" for n in range(rank))
    listed = ", ".join(f"%{n + 3}" for n in range(rank))
    given = ", ".join(f'"r"(c{n})' for n in range(rank))
    return f"""void tw_box_{rank}(void *to, const TwTensorMap *map, long long *full, int size, {at}) {{
    const unsigned int bar = (unsigned int)__cvta_generic_to_shared(full);
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
        :: "r"(bar), "r"(size) : "memory");
    asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {{{listed}}}], [%2];"
        :: "r"((unsigned int)__cvta_generic_to_shared(to)), "l"(map), "r"(bar), {given} : "memory");
}}"""
