"""Loads and stores: addresses from indices, and whether lanes lie together, apart, or in registers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from tilewright.codegen.indices import Indices, new_plan
from tilewright.codegen.llvm.access import runs_of
from tilewright.codegen.llvm.values import Val, literal_lanes
from tilewright.codegen.memory import (
    AccessPlan,
    LoadKey,
    Loads,
    MemoryBuffer,
    Place,
    Products,
    RegisterBuffer,
    RegisterKey,
    Resolved,
)
from tilewright.codegen.state import LANE, LANE_INDEX, Gathers
from tilewright.ir import I64, Index, Load, evaluate_index, prove_ge0
from tilewright.support import InternalError, ScheduleError

#: Lanes up to so many elements apart are picked from whole vectors; a gather costs about as much beyond.
MOST_APART: Final = 4
#: Bits of the vectors whose lanes mask registers choose.
MASKED_BITS: Final = 512
#: Vectors from which lanes at known places are picked, at most.
MOST_RUNS: Final = 4
#: Bits of elements of which a gather brings two, at most: it takes 64 a lane.
PAIRED_BITS: Final = 32
#: Neighbours of a lane from which on vectors of them are transposed.
SMALLEST_SQUARE: Final = 4


class Accesses(Indices):
    """Reads and writes buffers.

    With ``keeps_lanes`` the unused lanes of registers stay as they are, whether they mean anything or not.
    """

    keeps_lanes = False
    vector_bits: int

    # -- registers ------------------------------------------------------------------------------------------

    def register_key(self, buf: RegisterBuffer, indices: tuple[Index, ...]) -> RegisterKey:
        """The register of an access; an error where its indices are not constants but for the lane."""
        got = buf.plans.get(id(indices))
        if got is None:
            flat = Index(0)
            for i, stride in zip(buf.buffer.physical(indices), buf.strides, strict=True):
                flat = flat + i * stride
            got = buf.plans[id(indices)] = (indices, self.plan(flat))
        const, r = self.evaluate(got[1])
        if r.terms.terms or r.irregular:
            raise ScheduleError(
                f"register buffer {buf.buffer.name} is addressed by {', '.join(map(str, indices))}, "
                "which are not constants",
                hint="unroll or vectorize the loops around it",
            )
        return (const, r.lane, self.state.width) if r.lane else (const, 0, 1)

    def _load_register(self, buf: RegisterBuffer, indices: tuple[Index, ...]) -> Val:
        key = self.register_key(buf, indices)
        value = buf.values.get(key) or buf.get(self.b, key)
        if value is None:
            at = ", ".join(map(str, indices))
            raise InternalError(f"register {buf.buffer.name}[{at}] is read before it is written")
        return self.b.in_turn(value) if self.state.in_turn else value

    def _store_register(self, buf: RegisterBuffer, indices: tuple[Index, ...], v: Val) -> None:
        b, mask = self.b, self.state.mask
        key = self.register_key(buf, indices)
        if key[2] == 1 and v.lanes > 1:
            raise InternalError(f"lanes of a vector loop all write one register of {buf.buffer.name}")
        v = b.splat(v, key[2])
        alone = buf.always_under(key, mask if key[2] > 1 else None)
        if mask is None or (key[2] == 1 and not mask.depth):
            buf.put(b, key, v)
            return
        lanes = literal_lanes(mask)
        old = buf.get(b, key)
        kept = not alone and (lanes is None or self.keeps_lanes or not buf.spares(key, lanes))
        if old is not None and kept:
            chosen = mask if key[2] > 1 else b.reduce("or", mask)
            if key[2] * v.dtype.bits == MASKED_BITS:
                chosen = b.mask_register(chosen)
            v = b.select(chosen, v, old)
        buf.put(b, key, v, lanes)
        if old is None and lanes is None:
            buf.put_in_part(key)

    # -- memory ---------------------------------------------------------------------------------------------

    def _access(self, buf: MemoryBuffer, indices: tuple[Index, ...]) -> AccessPlan:
        got = buf.plans.get(id(indices))
        if got is None:
            total = Index(buf.shift)
            products: list[tuple[Index, Val]] = []
            for i, stride in zip(buf.buffer.physical(indices), buf.strides, strict=True):
                if isinstance(stride, int):
                    total = total + i * stride
                else:
                    products.append((i, stride))
            got = buf.plans[id(indices)] = AccessPlan(indices, new_plan(total), tuple(products))
        return got

    def _offset(self, access: AccessPlan) -> tuple[Index, Products]:
        """Element offset: an index over SSA names, plus products with symbolic strides."""
        const, r = self.evaluate(access.plan)
        return Index(const, r.whole.terms), tuple((self.resolve(i), s) for i, s in access.products)

    def _address(self, buf: MemoryBuffer, x: Index, products: Products) -> Val:
        """Pointer to a lane-free offset: outer terms first, each computed where it is invariant."""
        b = self.b
        p = buf.pointer
        parts = [(self.atom_value(atom), c) for atom, c in x.terms]
        terms = [(v.depth, v, c) for v, c in parts]
        for i, stride in products:
            v = b.op("mul nsw", self.index_value(i), stride)
            terms.append((v.depth, v, 1))
        terms.sort(key=lambda t: t[0])
        n = 0
        while n < len(terms):
            depth = terms[n][0]
            acc: Val | None = None
            while n < len(terms) and terms[n][0] == depth:
                _, v, c = terms[n]
                t = v if c == 1 else b.op("mul nsw", v, b.const(c, I64))
                acc = t if acc is None else b.op("add nsw", acc, t)
                n += 1
            assert acc is not None
            p = b.gep(p, acc, buf.buffer.dtype)
        return b.gep(p, x.const, buf.buffer.dtype, local=True)

    def _pointer(self, buf: MemoryBuffer, place: Place, terms: Index) -> Val:
        p, b = place.pointer, self.b
        if p is None or place.home is None or not b.alive(p, place.home):
            p = place.pointer = self._address(buf, terms, ())
            place.home = b.scopes[p.depth]
        return p

    def _earlier_load(self, loads: Loads, key: LoadKey, buf: MemoryBuffer) -> Val | None:
        """What was loaded under a key, where nothing was stored since and it can be used here."""
        hit = loads.get(key)
        if hit is None:
            return None
        v, version, home = hit
        usable = version == buf.version and v.depth >= self.b.scope.func.base and self.b.alive(v, home)
        return v if usable else None

    def _place(self, buf: MemoryBuffer, terms: Index) -> Place:
        place = buf.places.get(terms)
        if place is None:
            place = buf.places[terms] = Place()
        return place

    def _first_lane(self, buf: MemoryBuffer, access: AccessPlan) -> tuple[Val, Loads, int | tuple[int, str]]:
        """Pointer to the first lane's element, what has been loaded around it, and its key there."""
        const, r = self.evaluate(access.plan)
        if access.products or r.volatile:
            x, products = self._offset(access)
            p = self._address(buf, split_lane(x, products)[1], products)
            return p, buf.loads, (p.depth, p.text)
        place = r.place
        if place is None:
            place = r.place = self._place(buf, r.terms)
        p = self.b.gep(self._pointer(buf, place, r.terms), const, buf.buffer.dtype, local=True)
        return p, place.loads, const

    def in_bounds(self, name: str, indices: tuple[Index, ...]) -> bool:
        """Whether an access is shown to stay inside the buffer's logical box."""
        st = self.state
        for i, extent in zip(indices, st.buffers[name].buffer.shape, strict=True):
            x = self.resolve(i)
            low, high = self.bounds(x)
            if low is None or low < 0:
                return False
            if not (extent.is_const and high is not None and high < extent.const) and not prove_ge0(
                extent - 1 - x, st.ranges
            ):
                return False
        return True

    def load(self, ld: Load) -> Val:
        """Load an element, or one a lane."""
        st, b = self.state, self.b
        buf = st.buffers[ld.buffer]
        if isinstance(buf, RegisterBuffer):
            return self._load_register(buf, ld.indices)
        if ld.buffer in st.unchanging:
            return b.load_unchanging(buf.pointer, buf.buffer.dtype)
        access = self._access(buf, ld.indices)
        guard = self._guard() if st.guards and not self.in_bounds(ld.buffer, ld.indices) else None
        const, r = self.evaluate(access.plan)
        if guard is not None or access.products or r.volatile or r.irregular or r.lane not in (0, 1):
            return self._load_anyhow(buf, access, guard)
        place = r.place
        if place is None:
            place = r.place = self._place(buf, r.terms)
        lanes = st.width if r.lane else 1
        mask = st.mask if lanes > 1 else None
        key = (const, lanes, 0, "") if mask is None else (const, lanes, mask.depth, mask.text)
        dtype = buf.buffer.dtype
        if st.reloads is not None and lanes == 1 and st.width > 1:
            use = st.reloads.next_use((id(place), const))
            if use is not None:
                # through a pointer of its own, or LLVM would load it once
                p = b.hidden(self._pointer(buf, place, r.terms), use)
                return b.load(b.gep(p, const, dtype, local=True), dtype, 1)
        hit = self._earlier_load(place.loads, key, buf)
        if hit is not None:
            return hit
        p = b.gep(self._pointer(buf, place, r.terms), const, dtype, local=True)
        v = b.load(p, dtype, lanes, mask)
        place.loads[key] = (v, buf.version, b.scope)
        return v

    def _load_anyhow(self, buf: MemoryBuffer, access: AccessPlan, guard: Val | None) -> Val:
        st, b = self.state, self.b
        x, products = self._offset(access)
        dtype = buf.buffer.dtype
        lane, rest, irregular = split_lane(x, products)
        if not irregular and lane == 0:
            p = self._address(buf, rest, products)
            if guard is not None:
                p = b.select(b.reduce("or", guard) if guard.lanes > 1 else guard, p, b.zeros(p.root))
                return b.load(p, dtype, 1)
            return self._load_known(buf, p, 1, None)
        mask = st.mask
        if guard is not None and guard.lanes == 1 and not irregular and lane == 1:
            # all lanes or none: masked loads from where nothing is mapped cost hundreds of cycles
            p = b.select(guard, self._address(buf, rest, products), b.zeros(buf.pointer.root))
            return b.load(p, dtype, st.width, mask)
        if guard is not None:
            g = b.splat(guard, st.width)
            mask = b.both(mask, g)
        if not irregular and lane == 1:
            p = self._address(buf, rest, products)
            return (
                self._load_known(buf, p, st.width, mask)
                if guard is None
                else b.load(p, dtype, st.width, mask)
            )
        if not irregular and lane == -1:
            last = self._address(buf, rest, products)
            return b.load_backwards(last, dtype, st.width, mask)
        if not irregular and 2 <= lane <= MOST_APART:
            on = (True,) * st.width if mask is None else literal_lanes(mask)
            # of an access in bounds the elements between the lanes are in bounds, too
            if on is not None and any(on):
                which = range(on.index(True), st.width - on[::-1].index(True))
                if all(on[n] for n in which):
                    found = self._together(buf, access, mask, products) if guard is None else None
                    if found is not None:
                        return found
                    return b.load_apart(self._address(buf, rest, products), dtype, st.width, lane, which)
        if guard is None and not products and irregular:
            found = self._at_known_places(buf, access, x, mask)
            if found is not None:
                return found
        if guard is None and (lane > MOST_APART if not irregular else products):
            found = self._together(buf, access, mask, products)
            if found is not None:
                return found
        on = (True,) * st.width if mask is None else literal_lanes(mask)
        if on is not None and not irregular:
            # a stride: loads of single elements overtake the gathers of today's processors
            p = self._address(buf, rest, products)
            each = [
                b.load(b.gep(p, lane * n, dtype), dtype, 1) if used else None for n, used in enumerate(on)
            ]
            return b.vector(each, dtype)
        if st.gathers is not None and not products:
            found = self._with_neighbour(buf, access, x, mask, st.gathers)
            if found is not None:
                return found
        return b.gather(buf.pointer, self._offsets(x, products), dtype, mask)

    def _with_neighbour(
        self, buf: MemoryBuffer, access: AccessPlan, x: Index, mask: Val | None, gathers: Gathers
    ) -> Val | None:
        """An element a lane, loaded together with the one beside it, where the statement reads both."""
        st, b, dtype = self.state, self.b, buf.buffer.dtype
        name = buf.buffer.name
        known = gathers.known.get((name, x))
        if known is not None:
            return known
        other, distance = gathers.partners.get(id(access.indices), (None, 0))
        if (
            other is None
            or len(st.guards) != gathers.guards
            or dtype.kind == "bool"
            or dtype.bits > PAIRED_BITS
        ):
            return None
        y, products = self._offset(self._access(buf, other.indices))
        if products or y != x + distance:
            return None
        first, second = (x, y) if distance == 1 else (y, x)
        pair = b.gather_pairs(buf.pointer, self._offsets(first, ()), dtype, mask)
        gathers.known[name, first], gathers.known[name, second] = pair
        return gathers.known[name, x]

    def _at_known_places(
        self, buf: MemoryBuffer, access: AccessPlan, x: Index, mask: Val | None
    ) -> Val | None:
        """Lanes whose numbers alone say how far apart they read, in few runs: picked from whole vectors."""
        st = self.state
        on = (True,) * st.width if mask is None else literal_lanes(mask)
        tied = Index(0, tuple((atom, c) for atom, c in x.terms if LANE in Index(0, ((atom, c),)).vars))
        _, r = self.evaluate(access.plan)
        if on is None or not any(on) or r.volatile or tied.vars != {LANE}:
            return None
        places = [evaluate_index(tied, {LANE: n}) if used else None for n, used in enumerate(on)]
        if len(runs_of(places)) > MOST_RUNS:
            return None
        return self.b.load_places(self._address(buf, x - tied, ()), buf.buffer.dtype, places)

    def _together(
        self, buf: MemoryBuffer, access: AccessPlan, mask: Val | None, products: Products
    ) -> Val | None:
        """Lanes apart, of an access whose neighbours are read by other copies of expanded loops.

        What all of them read lies together in each lane: it is loaded so, and transposed in registers.
        """
        st, b = self.state, self.b
        on = (True,) * st.width if mask is None else literal_lanes(mask)
        if on is None or not any(on) or st.width < SMALLEST_SQUARE or buf.buffer.dtype.kind == "bool":
            return None
        const, r = self.evaluate(access.plan)
        apart, fixed = _lanes_apart(r, products)
        if r.volatile or r.irregular or apart is None:
            return None
        loads, base, where = self._around(buf, r, fixed)
        known = f"{apart if isinstance(apart, int) else apart.text} apart {where} {mask.text if mask else ''}"

        def key(at: int) -> LoadKey:
            return (at, st.width, 0, known)

        hit = self._earlier_load(loads, key(const), buf)
        if hit is not None:
            return hit
        at, span = self._copies_together(access)
        close = apart if isinstance(apart, int) and apart <= MOST_APART else 0
        if close and not all(on):
            return None
        # of elements close together all that lie between are parted, and none that nobody reads is computed
        aligned = close and not any(c % close for _, c in r.terms.terms)
        inside = const % close if aligned else at % (close or st.width)
        first = const - inside
        count = close or min(st.width, span - at + inside)
        if (count < SMALLEST_SQUARE and not close) or not self._within(buf, r, first, count, on):
            return None
        dtype = buf.buffer.dtype
        p = b.gep(base, first, dtype, local=True)
        vectors = (
            b.load_interleaved(p, dtype, st.width, count)
            if close
            else b.load_transposed(p, dtype, apart, on, count)
        )
        for n, v in enumerate(vectors):
            loads[key(first + n)] = (v, buf.version, b.scope)
        return loads[key(const)][0]

    def _around(self, buf: MemoryBuffer, r: Resolved, products: Products) -> tuple[Loads, Val, str]:
        """Where constant offsets count from: what was loaded from there, the pointer, and which one it is."""
        if products:
            base = self._address(buf, r.terms, products)
            return buf.loads, base, f"{base.depth} {base.text}"
        place = self._place(buf, r.terms)
        return place.loads, self._pointer(buf, place, r.terms), ""

    def _within(self, buf: MemoryBuffer, r: Resolved, first: int, count: int, on: Sequence[bool]) -> bool:
        """Whether ``count`` elements from ``first`` on are inside the allocation in all lanes that are on.

        Of dimensions with symbolic strides an access itself says so; those of constant ones are one block.
        """
        begin = Index(first, r.terms.terms)
        low, high = self.bounds(begin)
        last = r.lane * max(n for n, used in enumerate(on) if used) + count - 1
        if low is None or low < 0:
            return False
        if buf.block.is_const:
            return high is not None and high + last < buf.block.const
        return prove_ge0(buf.block - 1 - last - begin, self.state.ranges)

    def _copies_together(self, access: AccessPlan) -> tuple[int, int]:
        """Copies of expanded loops that read neighbours: which one this is, and of how many."""
        st, plan = self.state, access.plan
        steps: list[tuple[int, int, int]] = []
        names = {*(name for name, _ in plan.plain), *plan.names}
        names -= {name for i, _ in access.products for name in i.vars}
        for name, (n, count) in st.copies.items():
            if count < 2 or name not in names:
                continue
            here = st.env[name]
            _, r = self.evaluate(plan)
            places: list[int] = []
            for k in range(count):
                st.env[name] = here + (k - n)
                const, other = self.evaluate(plan)
                if other.terms == r.terms and other.lane == r.lane:
                    places.append(const)
            st.env[name] = here
            distances = {b - a for a, b in pairwise(places)}
            if len(places) == count and len(distances) == 1 and min(distances) > 0:
                steps.append((distances.pop(), n, count))
        at, span = 0, 1
        for distance, n, count in sorted(steps):
            if distance <= span:
                at += distance * n
                span += distance * (count - 1)
        return at, span

    def _load_known(self, buf: MemoryBuffer, p: Val, lanes: int, mask: Val | None) -> Val:
        """Load from ``p``, or what was loaded from there before; equal addresses are one value."""
        b = self.b
        # names are counted in each function anew: one is a value together with its depth
        at = p.depth, p.text
        key = (at, lanes, 0, "") if mask is None else (at, lanes, mask.depth, mask.text)
        hit = self._earlier_load(buf.loads, key, buf)
        if hit is not None:
            return hit
        v = b.load(p, buf.buffer.dtype, lanes, mask)
        buf.loads[key] = (v, buf.version, b.scope)
        return v

    def _offsets(self, x: Index, products: Products) -> Val:
        offsets = self.index_value(x)
        for i, stride in products:
            offsets = self.b.op("add nsw", offsets, self.b.op("mul nsw", self.index_value(i), stride))
        return self.b.splat(offsets, self.state.width)

    def _guard(self) -> Val:
        acc = self.state.guards[0]
        for g in self.state.guards[1:]:
            acc = self.b.also(acc, g) if acc.lanes == 1 else self.b.op("and", acc, g)
        return acc

    def assign(self, name: str, indices: tuple[Index, ...], v: Val) -> None:
        """Store a value, one a lane where the access depends on the lane."""
        st, b = self.state, self.b
        buf = st.buffers[name]
        if isinstance(buf, RegisterBuffer):
            self._store_register(buf, indices, v)
            return
        access = self._access(buf, indices)
        self.forget({name})
        const, r = self.evaluate(access.plan)
        if not (access.products or r.volatile or r.irregular) and r.lane == 1:
            place = self._place(buf, r.terms)
            p = b.gep(self._pointer(buf, place, r.terms), const, buf.buffer.dtype, local=True)
            aligned = self._past_caches(name, (const, *(c for _, c in r.terms.terms)))
            b.store(p, b.splat(v, st.width), st.mask, nontemporal=aligned)
            return
        x, products = self._offset(access)
        lane, rest, irregular = split_lane(x, products)
        if irregular or lane not in (0, 1):
            b.scatter(buf.pointer, self._offsets(x, products), v, st.mask)
            return
        p = self._address(buf, rest, products)
        if lane == 1:
            b.store(p, b.splat(v, st.width), st.mask)
            return
        if v.lanes > 1:
            raise InternalError(f"lanes of a vector loop all write {name}[{x}]: not a reduction")
        if st.mask is not None and st.mask.depth:
            b.begin_if(b.reduce("or", st.mask))
            b.store(p, v)
            b.end_if(b.begin_else([]), [])
        else:
            b.store(p, v)

    def _past_caches(self, name: str, offsets: Iterable[int]) -> int:
        """The alignment, in bytes, by which whole lanes may be stored past the caches; 0 where they may not.

        Several registers' worth of lanes are stored register by register, and the kernel tests the buffer's
        start for one register only.
        """
        st = self.state
        if st.mask is not None or name not in st.nontemporal:
            return 0
        size = st.buffers[name].buffer.dtype.bytes
        lanes = min(st.width, self.vector_bits // 8 // size)
        return lanes * size if all(c % lanes == 0 for c in offsets) else 0

    def forget(self, written: Iterable[str]) -> None:
        """Loads of buffers in ``written`` (and their aliases) are no longer known."""
        buffers = self.state.buffers
        roots = {buf.pointer.root for name in written if isinstance(buf := buffers.get(name), MemoryBuffer)}
        if roots:
            for buf in buffers.values():
                if isinstance(buf, MemoryBuffer) and buf.pointer.root in roots:
                    buf.version = self.state.fresh()


def _lanes_apart(r: Resolved, products: Products) -> tuple[int | Val | None, Products]:
    """How far apart lanes lie, ``None`` where that is no one number, and the products without the lane."""
    moved = [(i, stride) for i, stride in products if LANE in i.vars]
    if not moved:
        return r.lane, products
    ((i, stride), *more) = moved
    if more or r.lane or i.coefficient(LANE) != 1 or LANE in (i - LANE_INDEX).vars:
        return None, products
    return stride, tuple((x - LANE_INDEX if x is i else x, s) for x, s in products)


def split_lane(x: Index, products: Products) -> tuple[int, Index, bool]:
    """The lane's coefficient, the index without it, and whether the lane enters in other ways."""
    lane = x.coefficient(LANE)
    rest = x - LANE_INDEX * lane
    return lane, rest, LANE in rest.vars or any(LANE in i.vars for i, _ in products)
