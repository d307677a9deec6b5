"""Sorting: the places of the largest or smallest elements along an axis, in order.

Elements become whole numbers that order as they do, so that nothing is no number (see `_ordered`). Two
algorithms on them, both deterministic, equal elements in the order of their places:

* few of many: the k largest lie in the k blocks whose largest elements are the largest (an element of another
  block has k before it), so the blocks' maxima are searched in the same way, then the elements of these
  blocks. What is left is ranked: the rank of an element is the number of larger ones.
* many: sorting by counting, a byte at a time from the lowest (LSD radix sort): each pass is stable, so that
the last one leaves all in order. Linear in the number of elements.

Sources: Knuth, The Art of Computer Programming, volume 3, sections 5.2 (algorithm C, comparison counting) and
5.2.5 (radix sorting); for the order of bits of floating-point numbers IEEE 754, section 5.10 (totalOrder).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from tilewright import lang
from tilewright.graph.operand import Ix, Operand, Place, clamped, compute, index_value, scanned, updated
from tilewright.graph.ops.common import Scalar, cast, number, stem
from tilewright.graph.registry import Context, Kind, operator
from tilewright.ir import dtype_of, is_open, most_of, typical

#: Values of a digit of the radix sort, and its bits.
_DIGITS: Final = 256
_DIGIT_BITS: Final = 8
#: Nanoseconds on one core of a Zen 5 machine: of ranking two elements, of looking at an element once, of an
#: element in a pass of the radix sort, and of a row in a pass for its 256 counters.
_RANKED: Final = 0.05
_SEEN: Final = 0.3
_PASSED: Final = 1.5
_COUNTERS: Final = 400.0
#: A key of 32 bits and a place share a number of double precision, exactly: machines compare such numbers in
#: vectors, which not all do with integers of 64 bits.
_KEY_BITS: Final = 32
_PLACE_BITS: Final = 21
_MOST_PLACES: Final = 1 << _PLACE_BITS
_PACKED_BYTES: Final = 7
#: What is less than any of them.
_LEAST: Final = -float(1 << (_KEY_BITS + _PLACE_BITS))
#: Keys that are stored, as a row of them fits the first cache level (32 KB). Zen 4, two threads: 50 of
#: 50,257 50.6 -> 41.6 us without storing them, 300 of 81,900 122 -> 112; 5 of 64 rows of 1,000 32.9 -> 35.
_MOST_STORED: Final = 1 << 12
#: Both steps of a search by blocks have at most this part of the keys. Granite Rapids, two threads, with a
#: quarter and with this: 50 of 50,257 34.2 -> 25.4 us, 50 of 3,144 17.1 -> 8.0.
_SMALLER: Final = 0.75
#: Sizes of blocks that are tried.
_BLOCKS: Final = tuple(1 << power for power in range(2, 11))


def _ordered(x: Scalar, dtype: str) -> Scalar:
    """A signed integer, larger for larger elements, the largest for what is no number; zeros are equal."""
    kind = dtype_of(dtype)
    if kind.kind in ("int", "bool"):
        return lang.cast(x, "i64" if kind.bits == 64 else "i32")
    if kind.kind == "uint":
        if kind.bits < 32:
            return lang.cast(x, "i32")
        signed = "i64" if kind.bits == 64 else "i32"
        return lang.cast(x, signed, "bits") ^ number(int(dtype_of(signed).min_value), signed)
    inner, signed = ("f64", "i64") if kind.bits == 64 else ("f32", "i32")
    value = cast(x, dtype, inner)
    most = number(int(dtype_of(signed).max_value), signed)
    bits = lang.cast(lang.select(value == number(0, inner), number(0, inner), value), signed, "bits")
    # Negative numbers grow as their bits shrink: all but the sign are flipped.
    flipped = bits ^ ((bits >> number(dtype_of(signed).bits - 1, signed)) & most)
    return lang.select(lang.isnan(value), most, flipped)


def _sorting(size: int, passes: int) -> float:
    """The estimated time of sorting by so many bytes."""
    return passes * (_PASSED * size + _COUNTERS)


@cache
def _plan(size: int, count: int) -> tuple[float, int]:
    """The estimated time of finding the `count` largest of `size` keys, and the size of blocks.

    Where that is 0 all are ranked, where it is 1 sorted, as where only a run knows how many there are.
    """
    if is_open(size) or is_open(count):
        usual = typical(size)
        return min((_RANKED * usual * usual + _SEEN * usual, 0), (_sorting(usual, _PACKED_BYTES), 1))
    best, block = min((_RANKED * size * size + _SEEN * size, 0), (_sorting(size, _PACKED_BYTES), 1))
    for width in _BLOCKS:
        blocks, left = -(-size // width), count * width
        if blocks < count or max(blocks, left) > _SMALLER * size:
            continue
        time = _SEEN * (size + 2 * left) + _plan(blocks, count)[0] + _plan(left, count)[0]
        if time < best:
            best, block = time, width
    return best, block


def _room(size: int, count: int) -> int:
    """So many keys `_places` takes for `size` of them: whole blocks of equal size at every level."""
    width = _plan(size, count)[1]
    return _room(-(-size // width), count) * width if width > 1 else size


def _places(ctx: Context, keys: Operand, size: int, count: int, inside: Operand | None = None) -> Operand:
    """The places along the last axis of the `count` largest of `size` keys, no two of which are equal, in
    order.

    Behind the keys there may be infinitely small ones, `_room` in all; `inside` are those before them, where
    telling them apart takes time. Blocks run across the keys, one element in each part of them, so that
    vectors do.
    """
    rows, width = keys.shape[:-1], _plan(size, count)[1]
    if width == 0:
        return _ranked(ctx, keys, count, lambda mine, theirs, i, other: theirs > mine)
    if width == 1:
        most = number((1 << (_KEY_BITS + _PLACE_BITS)) - 1, "i64")
        whole = compute(
            keys.shape,
            lambda *i: lang.cast(most - lang.cast(keys[i], "i64"), "u64", "bits"),
            name=f"{stem(ctx)}_whole",
        )
        return _sorted(ctx, whole, _PACKED_BYTES)
    blocks = keys.shape[-1] // width
    full = size // blocks
    if inside is None or full in (0, width):
        best = _best(ctx, keys, blocks, 0, width)
    else:
        first, rest = _best(ctx, inside, blocks, 0, full), _best(ctx, keys, blocks, full, width)
        best = compute(first.shape, lambda *i: lang.maximum(first[i], rest[i]), name=f"{stem(ctx)}_best")
    chosen = _places(ctx, best, -(-size // width), count)

    def element(at: Ix, i: Sequence[Ix]) -> Ix:
        return (at // count) * blocks + clamped(chosen[(*i[:-1], at % count)], blocks)

    room, least = _room(count * width, count), number(_LEAST, "f64")

    def candidate(*i: Ix) -> Scalar:
        if room == count * width:
            # An operation that changes nothing: what only looks up is not stored, but looked up by each
            # of its readers.
            return lang.maximum(keys[(*i[:-1], element(i[-1], i))], least)
        at = lang.minimum(i[-1], count * width - 1)
        return lang.select(i[-1] < count * width, keys[(*i[:-1], element(at, i))], least)

    left = compute((*rows, room), candidate, name=f"{stem(ctx)}_left")
    found = _places(ctx, left, count * width, count)

    def place(*i: Ix) -> Scalar:
        return index_value(element(clamped(found[i], count * width), i), "i32")

    return compute((*rows, count), place, name=f"{stem(ctx)}_place")


def _best(ctx: Context, keys: Operand, blocks: int, begin: int, end: int) -> Operand:
    """The largest keys of blocks that have an element in each of these parts."""
    part = lang.reduce_axis(end - begin, "part")
    return compute(
        (*keys.shape[:-1], blocks),
        lambda *i: lang.max(keys[(*i[:-1], (part + begin) * blocks + i[-1])], axis=part),
        name=f"{stem(ctx)}_best",
    )


def _ranked(
    ctx: Context, keys: Operand, count: int, ahead: Callable[[Scalar, Scalar, Ix, Ix], Scalar]
) -> Operand:
    """The places of the first `count` keys: each key's rank is the number of those ahead of it."""
    *rows, size = keys.shape
    other = lang.reduce_axis(size, "other")

    def before(*i: Ix) -> Scalar:
        theirs = ahead(keys[i], keys[(*i[:-1], other)], i[-1], other)
        return lang.sum(lang.select(theirs, number(1, "f32"), number(0, "f32")), axis=other)

    ranks = compute(keys.shape, before, name=f"{stem(ctx)}_rank")
    empty = compute((*rows, count), lambda *i: number(0, "i32"), name=f"{stem(ctx)}_empty")

    def put(target: Operand, *i: Ix) -> lang.Write:
        place = (*i[:-1], clamped(lang.cast(ranks[i], "i32"), count))
        return lang.write(place, index_value(i[-1], "i32"), where=ranks[i] < number(count, "f32"))

    return updated(empty, keys.shape, put, f"{stem(ctx)}_put", free=range(len(rows)))


def _sorted(ctx: Context, keys: Operand, passes: int) -> Operand:
    """The places along the last axis of all keys (unsigned, of so many bytes), the smallest first, stable."""
    rows = keys.shape[:-1]

    none = compute((*rows, passes, _DIGITS), lambda *i: number(0, "i32"), name=f"{stem(ctx)}_none")

    def count(target: Operand, *i: Ix) -> list[lang.Write]:
        places: list[Place] = [(*i[:-1], at, _digit(keys[i], at)) for at in range(passes)]
        return [lang.write(place, target[place] + number(1, "i32")) for place in places]

    counts = updated(none, keys.shape, count, f"{stem(ctx)}_counts", free=range(len(rows)))

    def start(made: Operand, *i: Ix) -> Scalar:
        behind = (*i[:-1], i[-1] - 1)
        return lang.select(i[-1] >= 1, made[behind] + counts[behind], number(0, "i32"))

    starts = scanned(counts.shape, len(rows) + 1, start, f"{stem(ctx)}_starts", "i32")
    order: Operand | None = None
    for at in range(passes):
        order = _pass(ctx, keys, order, starts, at)
    assert order is not None
    return order


def _digit(key: Scalar, at: int) -> Ix:
    """A byte of a key, counted from the lowest."""
    dtype = key.dtype.name
    byte = (key >> number(at * _DIGIT_BITS, dtype)) & number(_DIGITS - 1, dtype)
    return clamped(lang.cast(byte, "i32"), _DIGITS)


def _pass(ctx: Context, keys: Operand, order: Operand | None, starts: Operand, at: int) -> Operand:
    """The order after sorting by one byte. Counters and places share a buffer: a step changes one of each."""
    *rows, size = keys.shape
    begin = compute(
        (*rows, _DIGITS + size),
        lambda *i: lang.select(
            i[-1] < _DIGITS, starts[(*i[:-1], at, lang.minimum(i[-1], _DIGITS - 1))], number(0, "i32")
        ),
        name=f"{stem(ctx)}_begin",
    )

    def put(target: Operand, *i: Ix) -> list[lang.Write]:
        entry = index_value(i[-1], "i32") if order is None else order[i]
        key = keys[i] if order is None else keys[(*i[:-1], clamped(entry, size))]
        counter = (*i[:-1], _digit(key, at))
        place = (*i[:-1], clamped(target[counter], size) + _DIGITS)
        return [lang.write(place, entry), lang.write(counter, target[counter] + number(1, "i32"))]

    placed = updated(begin, keys.shape, put, f"{stem(ctx)}_pass", free=range(len(rows)))
    return compute(keys.shape, lambda *i: placed[(*i[:-1], i[-1] + _DIGITS)], name=f"{stem(ctx)}_order")


def top_places(ctx: Context, x: Operand, axis: int, count: int, largest: bool) -> Operand:
    """The places (i32) of the largest or smallest elements along an axis, which becomes the last."""
    size = x.shape[axis]
    rows = [n for at, n in enumerate(x.shape) if at != axis]
    wide = dtype_of(x.dtype).bits == 64
    bits = 64 if wide else 32

    def key(i: Sequence[Ix]) -> Scalar:
        value = _ordered(x[(*i[:axis], i[-1], *i[axis:-1])], x.dtype)
        return value if largest else ~value

    passes = bits // _DIGIT_BITS
    # numbers of 64 bits have no room for places: they are ranked if they are few, with ties told apart
    usual = typical(size)
    other = _RANKED * usual * usual * 2 if wide else _plan(size, count)[0]
    if most_of(size) > _MOST_PLACES or _sorting(usual, passes) < other:
        unsigned = f"u{bits}"
        # The largest first: all bits but the sign flipped, of what is smallest first as an unsigned number.
        keys = compute(
            (*rows, size),
            lambda *i: lang.cast(key(i), unsigned, "bits") ^ number((1 << (bits - 1)) - 1, unsigned),
            name=f"{stem(ctx)}_keys",
        )
        return _sorted(ctx, keys, passes)
    if wide:
        keys = compute((*rows, size), lambda *i: key(i), name=f"{stem(ctx)}_keys")
        return _ranked(
            ctx, keys, count, lambda mine, theirs, i, o: (theirs > mine) | ((theirs == mine) & (o < i))
        )

    def exact(*i: Ix) -> Scalar:
        # Behind the point of the key the place, lower ones larger: keys are all different, and exact.
        behind = number(_MOST_PLACES - 1, "f64") - index_value(i[-1], "f64")
        return lang.cast(key(i), "f64") * number(_MOST_PLACES, "f64") + behind

    def padded(*i: Ix) -> Scalar:
        return lang.select(i[-1] < size, exact(*i[:-1], lang.minimum(i[-1], size - 1)), number(_LEAST, "f64"))

    room = _room(size, count)
    keys = compute((*rows, room), padded if room > size else exact, name=f"{stem(ctx)}_keys")
    if _plan(size, count)[1] > 1 and size > _MOST_STORED:
        # read once and, few of them, once more: made anew, they need not be stored and read again
        inside = compute((*rows, size), exact, name=f"{stem(ctx)}_inside")
        return _places(ctx, keys.through(), size, count, inside.through())
    return _places(ctx, keys, size, count)


@operator("TopK", kind=Kind.OPAQUE, static=(1,))
def top_k(ctx: Context, x: Operand, k: Operand | None = None) -> tuple[Operand, Operand]:
    """The k largest (or smallest) elements along an axis in order, and where they were.

    What is no number is larger than any number, as in sorting by numpy; equal elements come in the order of
    their places.
    """
    axis = ctx.axis("axis", len(x.shape), -1)
    count = ctx.integer("k") if ctx.has("k") else ctx.static_int(1)
    size = x.shape[axis]
    ctx.require(0 <= count <= size, f"the {count} largest of {size} elements")
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    if 0 in shape:
        nothing = compute(shape, lambda *i: number(0, x.dtype), name=stem(ctx))
        return nothing, compute(shape, lambda *i: number(0, "i64"), name=f"{stem(ctx)}_where")
    places = top_places(ctx, x, axis, count, ctx.flag("largest", True))

    def at(i: Sequence[Ix]) -> Scalar:
        return places[(*i[:axis], *i[axis + 1 :], i[axis])]

    where = compute(shape, lambda *i: lang.cast(at(i), "i64"), name=f"{stem(ctx)}_where")
    values = compute(shape, lambda *i: x[(*i[:axis], clamped(at(i), size), *i[axis + 1 :])], name=stem(ctx))
    return values, where
