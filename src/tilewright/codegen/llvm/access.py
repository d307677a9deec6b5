"""Instructions on memory: addresses, loads and stores, also of lanes apart and under masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.codegen.llvm.arithmetic import Arithmetic
from tilewright.codegen.llvm.values import (
    BYTE,
    PTR,
    Val,
    literal,
    literal_lanes,
    mask_literal,
    memory_type,
    suffix,
    type_text,
)
from tilewright.ir import BF16, BOOL, I16, I32, I64, DType

#: Bytes of the parts of a register within which elements change places most cheaply.
_PART: Final = 16
#: Words that hold two elements, by the bits of an element.
_PAIRS: Final = {8: I16, 16: I32, 32: I64}


def runs_of(places: Sequence[int | None]) -> list[tuple[int, int]]:
    """Spans, first and last place, that hold all places: as many as have to be loaded, a vector for each."""
    runs: list[tuple[int, int]] = []
    for at in sorted({at for at in places if at is not None}):
        if runs and at - runs[-1][0] < len(places):
            runs[-1] = (runs[-1][0], at)
        else:
            runs.append((at, at))
    return runs


class Access(Arithmetic):
    """Writes accesses. A ``bool`` is a byte in memory and a bit in registers."""

    def __init__(self) -> None:
        super().__init__()
        self.uses_zero = False
        self.uses_nontemporal = False
        self.scalar_loops = 0

    def gep(self, p: Val, offset: Val | int, dtype: DType, *, local: bool = False) -> Val:
        """``p`` advanced by ``offset`` elements of ``dtype``."""
        if offset == 0:
            return p
        t = memory_type(dtype, 1)
        off = literal(offset, I64) if isinstance(offset, int) else offset
        return self.pure(
            f"gep {t}", PTR, 1, (p, off),
            lambda o: f"getelementptr inbounds {t}, ptr {o[0].text}, i64 {o[1].text}",
            root=p.root, local=local,
        )  # fmt: skip

    def load(self, p: Val, dtype: DType, lanes: int, mask: Val | None = None) -> Val:
        """Load ``lanes`` consecutive elements, those that ``mask`` allows (others are zero)."""
        stored = self._kept(dtype, lanes)
        t = memory_type(stored, lanes)
        if mask is None:
            out = self.impure(
                stored, lanes, (p,), lambda o: f"load {t}, ptr {o[0].text}, align {stored.bytes}"
            )
        else:
            name = f"llvm.masked.load.{suffix(stored.name, lanes)}.p0"
            self.declare(name, t, ["ptr", "i32", f"<{lanes} x i1>", t])
            out = self.impure(
                stored, lanes, (p, mask),
                lambda o: (
                    f"call {t} @{name}(ptr {o[0].text}, i32 {stored.bytes}, {o[1].typed}, "
                    f"{t} zeroinitializer)"
                ),
            )  # fmt: skip
        return self._from_memory(out, dtype)

    def load_unchanging(self, p: Val, dtype: DType) -> Val:
        """Load an element that is there and stays the same while the kernel runs: where ``p`` is known."""
        t = memory_type(dtype, 1)
        out = self.pure(
            "unchanging", dtype, 1, (p,), lambda o: f"load {t}, ptr {o[0].text}, align {dtype.bytes}"
        )
        return self._from_memory(out, dtype)

    def load_backwards(self, p: Val, dtype: DType, lanes: int, mask: Val | None) -> Val:
        """Load ``lanes`` elements one after another, lane 0's at ``p`` and the others before it."""
        back = range(lanes - 1, -1, -1)
        turned = None if mask is None else self.pick(mask, mask, back)
        found = self.load(self.gep(p, 1 - lanes, dtype, local=True), dtype, lanes, turned)
        return self.pick(found, found, back)

    def load_apart(self, p: Val, dtype: DType, lanes: int, stride: int, on: range) -> Val:
        """Load elements ``stride`` apart, lane 0's at ``p``, into the lanes ``on``; others are zero.

        Whole vectors are loaded and the lanes picked from them: a gather loads element by element. Nothing
        before the first element or past the last one is touched.
        """
        span = (len(on) - 1) * stride + 1
        first = self.gep(p, on[0] * stride, dtype, local=True)
        if span < lanes:
            starts = [0]
            parts = [self.load(first, dtype, lanes, mask_literal(n < span for n in range(lanes)))]
        else:
            starts = [min(at, span - lanes) for at in range(0, span, lanes)]
            parts = [self.load(self.gep(first, at, dtype, local=True), dtype, lanes) for at in starts]
        out = literal(0, dtype, lanes)
        for k, (start, part) in enumerate(zip(starts, parts, strict=True)):
            places = {n: (n - on[0]) * stride for n in on}
            here = {n: at - start for n, at in places.items() if min(at // lanes, len(starts) - 1) == k}
            out = self.pick(out, part, [lanes + here[n] if n in here else n for n in range(lanes)])
        return out

    def load_places(self, p: Val, dtype: DType, places: Sequence[int | None]) -> Val:
        """Load the elements ``places`` further on than ``p``, one a lane; lanes without one are zero.

        They are picked from one vector for each of :func:`runs_of` them. Nothing before the first element or
        past the last one is touched.
        """
        lanes = len(places)
        used = [at for at in places if at is not None]
        out = literal(0, dtype, lanes)
        for first, last in runs_of(places):
            width = next(w for w in (1 << k for k in range(lanes.bit_length())) if w > last - first)
            room = max(used) + 1 - width
            start = min(first, room) if room >= min(used) else first
            mask = None if room >= min(used) else mask_literal(n <= last - first for n in range(width))
            part = self.load(self.gep(p, start, dtype, local=True), dtype, width, mask)
            if 1 < width < lanes:
                part = self.pick(part, part, [n % width for n in range(lanes)])
            part = self.splat(part, lanes)
            here = [None if at is None or not first <= at <= last else at - start for at in places]
            out = self.pick(out, part, [n if at is None else lanes + at for n, at in enumerate(here)])
        return out

    def load_interleaved(self, p: Val, dtype: DType, lanes: int, stride: int) -> list[Val]:
        """``stride`` vectors, of which number ``n`` has in lane ``k`` element ``n + k * stride`` of ``p``.

        Whole vectors are loaded; those of each two neighbours that are even and those that are odd make a
        shuffle each, and so on with both. Of an odd number each vector is picked from all of them.
        """

        def picked(rows: list[Val], n: int) -> Val:
            out = rows[0]
            for k, row in enumerate(rows[1:], 1):
                places = [n + lane * len(rows) for lane in range(lanes)]
                taken = [at if k == 1 else lane for lane, at in enumerate(places)]
                out = self.pick(
                    out,
                    row,
                    [
                        lanes + at - k * lanes if at // lanes == k else min(old, lanes - 1)
                        for old, at in zip(taken, places, strict=True)
                    ],
                )
            return out

        def parted(rows: list[Val]) -> list[Val]:
            if len(rows) % 2:
                return [picked(rows, n) for n in range(len(rows))] if len(rows) > 1 else rows
            pairs = list(zip(rows[::2], rows[1::2], strict=True))
            halves = [parted([self.pick(a, b, range(odd, 2 * lanes, 2)) for a, b in pairs]) for odd in (0, 1)]
            return [v for both in zip(*halves, strict=True) for v in both]

        return parted(
            [self.load(self.gep(p, lanes * k, dtype, local=True), dtype, lanes) for k in range(stride)]
        )

    def load_transposed(
        self, p: Val, dtype: DType, apart: int | Val, on: Sequence[bool], count: int
    ) -> list[Val]:
        """``count`` vectors, of which number ``n`` has in lane ``k`` element ``n + k * apart`` of ``p``.

        Lanes that are not ``on`` are undefined. Whole rows of elements are loaded and transposed, with about
        four shuffles a vector.
        """
        lanes = len(on)
        width = next(w for w in (1 << k for k in range(lanes.bit_length())) if w >= count)
        mask = None if width == count else mask_literal(n < count for n in range(width))
        empty = Val("poison", dtype, width)

        def row(k: int) -> Val:
            by = apart * k if isinstance(apart, int) else self.op("mul nsw", apart, self.const(k, I64))
            return self.load(self.gep(p, by, dtype, local=True), dtype, width, mask)

        rows = [row(k) if used else empty for k, used in enumerate(on)]
        while len(rows) > width:
            # one vector of several rows, whose squares are transposed side by side
            size = rows[0].lanes
            rows = [
                self.pick(rows[k], rows[k + width], range(2 * size))
                for k in range(len(rows))
                if not k & width
            ]
        return self._transpose(rows, width, min(width, max(1, _PART // dtype.bytes)))[:count]

    def _transpose(self, rows: list[Val], width: int, part: int) -> list[Val]:
        """Transpose squares of ``width`` side by side: within parts of a register first, then whole parts."""
        lanes = rows[0].lanes

        def exchange(rows: list[Val], a: int, b: int, low: Sequence[int], high: Sequence[int]) -> None:
            rows[a], rows[b] = self.pick(rows[a], rows[b], low), self.pick(rows[a], rows[b], high)

        out = list(rows)
        unit = 1
        while unit < part:
            # units of both in turns: of the first half of each part, of the second half
            halves: tuple[list[int], list[int]] = ([], [])
            for start in range(0, lanes, part):
                for k, half in enumerate(halves):
                    for at in range(start + k * part // 2, start + (k + 1) * part // 2, unit):
                        half += [*range(at, at + unit), *range(lanes + at, lanes + at + unit)]
            for a in range(width):
                if not a & unit:
                    exchange(out, a, a + unit, *halves)
            unit *= 2
        # vector n now has column n with its bits within a part reversed, of every part
        bits = part.bit_length() - 1
        place = {int(f"{n:0{bits}b}"[::-1], 2) if bits else 0: n for n in range(part)}
        out = [out[n - n % part + place[n % part]] for n in range(width)]
        while unit < width:
            # even parts of both, odd parts of both
            halves = ([], [])
            for start in range(0, lanes, width):
                for source in (start, lanes + start):
                    for k, half in enumerate(halves):
                        for at in range(source + k * part, source + width, 2 * part):
                            half += range(at, at + part)
            for a in range(width):
                if not a & unit:
                    exchange(out, a, a + unit, *halves)
            unit *= 2
        return out

    def pick(self, a: Val, b: Val, picks: Sequence[int]) -> Val:
        """Lanes of ``a``, and from its number of lanes on those of ``b``."""
        lanes = ", ".join(f"i32 {n}" for n in picks)
        return self.pure(
            f"pick {lanes}", a.dtype, len(picks), (a, b),
            lambda o: f"shufflevector {o[0].typed}, {o[1].typed}, <{len(picks)} x i32> <{lanes}>",
        )  # fmt: skip

    def joined(self, parts: Sequence[Val]) -> Val:
        """Vectors of one length side by side; their number is a power of two."""
        while len(parts) > 1:
            wide = range(2 * parts[0].lanes)
            parts = [self.pick(a, b, wide) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def load_words(self, p: Val, dtype: DType, lanes: int, mask: Val | None = None) -> Val:
        """Load ``lanes`` words of 32 bits of elements of ``dtype``, those that ``mask`` allows."""
        t, align = type_text("i32", lanes), dtype.bytes
        if mask is None:
            return self.impure(I32, lanes, (p,), lambda o: f"load {t}, ptr {o[0].text}, align {align}")
        name = f"llvm.masked.load.{suffix('i32', lanes)}.p0"
        self.declare(name, t, ["ptr", "i32", f"<{lanes} x i1>", t])
        return self.impure(
            I32, lanes, (p, mask),
            lambda o: f"call {t} @{name}(ptr {o[0].text}, i32 {align}, {o[1].typed}, {t} zeroinitializer)",
        )  # fmt: skip

    def load_pointer(self, p: Val, root: str = "") -> Val:
        """Load a pointer into the buffer ``root``."""
        return self.impure(PTR, 1, (p,), lambda o: f"load ptr, ptr {o[0].text}, align 8", root)

    def gather(self, p: Val, offsets: Val, dtype: DType, mask: Val | None) -> Val:
        """Load one element per lane at element ``offsets`` from ``p``."""
        lanes = offsets.lanes
        stored = self._kept(dtype, lanes)
        vt = memory_type(stored, lanes)
        ptrs = self._pointers(p, offsets, stored)
        m = mask or literal(True, BOOL, lanes)
        name = f"llvm.masked.gather.{suffix(stored.name, lanes)}.v{lanes}p0"
        self.declare(name, vt, [f"<{lanes} x ptr>", "i32", f"<{lanes} x i1>", vt])
        out = self.impure(
            stored, lanes, (ptrs, m),
            lambda o: (
                f"call {vt} @{name}({o[0].typed}, i32 {stored.bytes}, {o[1].typed}, {vt} zeroinitializer)"
            ),
        )  # fmt: skip
        return self._from_memory(out, dtype)

    def gather_pairs(self, p: Val, offsets: Val, dtype: DType, mask: Val | None) -> tuple[Val, Val]:
        """Load for each lane the element at element ``offsets`` from ``p``, and the one after it.

        One gather of what holds both takes as many steps as one for either of them.
        """
        lanes = offsets.lanes
        word = _PAIRS[dtype.bits]
        t, ptrs = type_text(word.name, lanes), self._pointers(p, offsets, dtype)
        name = f"llvm.masked.gather.{suffix(word.name, lanes)}.v{lanes}p0"
        self.declare(name, t, [f"<{lanes} x ptr>", "i32", f"<{lanes} x i1>", t])
        words = self.impure(
            word, lanes, (ptrs, mask or literal(True, BOOL, lanes)),
            lambda o: f"call {t} @{name}({o[0].typed}, i32 {dtype.bytes}, {o[1].typed}, {t} zeroinitializer)",
        )  # fmt: skip
        parts = memory_type(dtype, 2 * lanes)
        both = self.pure(
            f"as {parts}", dtype, 2 * lanes, (words,), lambda o: f"bitcast {o[0].typed} to {parts}"
        )
        return self.pick(both, both, range(0, 2 * lanes, 2)), self.pick(both, both, range(1, 2 * lanes, 2))

    def store(self, p: Val, v: Val, mask: Val | None = None, *, nontemporal: int = 0) -> None:
        """Store a scalar or consecutive lanes, those that ``mask`` allows.

        With ``nontemporal`` all lanes, past the caches; they lie at a multiple of so many bytes.
        """
        v = self._to_memory(v)
        self.scope.func.written.add(p.root)
        if nontemporal:
            self.uses_nontemporal = True
            self.effect(
                lambda o: f"store {o[0].typed}, ptr {o[1].text}, align {nontemporal}, !nontemporal !0", (v, p)
            )
            return
        if mask is None:
            self.effect(lambda o: f"store {o[0].typed}, ptr {o[1].text}, align {v.dtype.bytes}", (v, p))
            return
        mask = self.splat(mask, v.lanes)
        on = literal_lanes(mask) or ()
        if sum(on) == 1:
            # LLVM 22 stores one lane of a truncated vector before it is truncated: over its neighbours
            n = on.index(True)
            self.store(self.gep(p, n, v.dtype), self.lane(v, n))
            return
        name = f"llvm.masked.store.{v.suffix}.p0"
        self.declare(name, "void", [v.type, "ptr", "i32", mask.type])
        self.effect(
            lambda o: f"call void @{name}({o[0].typed}, ptr {o[1].text}, i32 {v.dtype.bytes}, {o[2].typed})",
            (v, p, mask),
        )

    def scatter(self, p: Val, offsets: Val, v: Val, mask: Val | None) -> None:
        """Store one element per lane at element ``offsets`` from ``p``, lower lanes first."""
        v = self.splat(self._to_memory(v), offsets.lanes)
        self.scope.func.written.add(p.root)
        ptrs = self._pointers(p, offsets, v.dtype)
        m = literal(True, BOOL, v.lanes) if mask is None else self.splat(mask, v.lanes)
        name = f"llvm.masked.scatter.{v.suffix}.v{v.lanes}p0"
        self.declare(name, "void", [v.type, ptrs.type, "i32", m.type])
        self.effect(
            lambda o: f"call void @{name}({o[0].typed}, {o[1].typed}, i32 {v.dtype.bytes}, {o[2].typed})",
            (v, ptrs, m),
        )

    def prefetch(self, p: Val, write: bool, level: int = 1) -> None:
        """Ask for the cache line at ``p``, to be read or written soon, to be brought to a cache level."""
        self.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
        how = f"i32 {int(write)}, i32 {4 - level}, i32 1"
        self.effect(lambda o: f"call void @llvm.prefetch.p0(ptr {o[0].text}, {how})", (p,))

    def zeros(self, root: str) -> Val:
        """A pointer to readable zeros: where guarded loads of ``root`` go that must not happen."""
        self.uses_zero = True
        return Val("@tw_zeros", PTR, 1, 0, root)

    def _pointers(self, p: Val, offsets: Val, stored: DType) -> Val:
        t = memory_type(stored, 1)
        return self.pure(
            f"vgep {t}", PTR, offsets.lanes, (p, offsets),
            lambda o: f"getelementptr inbounds {t}, ptr {o[0].text}, {o[1].typed}", root=p.root,
        )  # fmt: skip

    def _kept(self, dtype: DType, lanes: int) -> DType:
        """The type of elements in memory: bytes for booleans.

        Vectors of bf16 are integers there where no instruction rounds to bf16: LLVM takes masked ones apart,
        widens their lanes and calls a function of compilers' own libraries to round them again.
        """
        if dtype == BF16 and lanes > 1 and not self.rounds_bf16:
            return I16
        return BYTE if dtype.kind == "bool" else dtype

    def _from_memory(self, v: Val, dtype: DType) -> Val:
        if v.dtype == I16 and dtype == BF16:
            return self.convert("bitcast", v, BF16)
        if dtype.kind != "bool":
            return v
        return self.compare("icmp ne", v, literal(0, v.dtype, v.lanes))

    def _to_memory(self, v: Val) -> Val:
        kept = self._kept(v.dtype, v.lanes)
        if kept == v.dtype:
            return v
        return self.convert("bitcast" if kept == I16 else "zext", v, kept)
