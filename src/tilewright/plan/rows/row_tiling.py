"""Reductions along memory: rows that are summed together, vectors of each, and what is asked for ahead.

Rows that share an operand share its loads: several at a time, each a stream of its own. Cores differ in what
streams cost. Where the second cache level delivers one twice as fast as several (`Target.stream_gain`), rows
of one or two columns are summed one after the other, in several vectors, and what comes from the third level
is asked for into the first one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.cost import (
    NEXT_SHARE,
    Machine,
    buffer_bytes,
    fetches_ahead,
    first_cache,
    last_cache,
    perhaps_kept,
    prefers_one_stream,
    rows_collide,
    second_cache,
)
from tilewright.ir import Buffer, Load, Program
from tilewright.plan.far_prefetch import FAR, further, into_first_level, steps_ahead, stride
from tilewright.plan.rows.chunks import next_tiles
from tilewright.plan.rows.match import LaneMatch
from tilewright.target import Target

#: Accumulators: enough to hide the latency of additions, few enough for the registers.
MAX_ACCUMULATORS: Final = 24
#: The same where picking lanes from so many vectors, and more, takes registers.
PICKED_VECTORS, MAX_ACCUMULATORS_PICKED = 4, 20
#: Rows of a tile, at most: each is a stream of its own from memory.
MAX_STREAMS: Final = 8
#: Vectors along the reduction axis where rows share nothing.
VECTORS: Final = 4
#: The same where they share an operand.
SHARED_VECTORS: Final = 1
#: Elements of a row from which on one row at a time, in so many vectors, comes faster from the caches than
#: several do (one column, of reading: 2048x1024 79 and 97%, 3072x1024 86 and 96%; 512x512 97 and 89%).
LONG_ROW, STREAM_VECTORS = 1024, 8
#: The same for two columns on cores that fetch ahead by themselves, where the columns take no more than this
#: part of the first level: Zen 5, from the third level, 4608x2x1536 0.178 -> 0.163 ms, 6144x2x2048 0.43
#: -> 0.35.
STREAM_COLUMNS, STREAM_SHARE = 2, 0.5
#: The same where one stream comes faster than several, from whatever cache. Two threads, us, reading as many
#: bytes, several rows, one: 512x1x512 3.9, 6.0, 4.0; 512x2x512 3.9, 6.8, 5.6; 3072x1x1024 62, 66, 57;
#: 3072x2x1024 61, 70, 63. With more columns, from nearly all of the last level: 4608x4x1536 161, 339, 258, at
#: other times 140, 216, 195; 3840x4x1280 99, 151, 128; of half of it: 3072x4x1024 59, 70, 81. One column from
#: nearly all of it: 4608x1x1536 164, 178, 210.
ALONE_ROW, ALONE_VECTORS, ALONE_COLUMNS = 256, 4, 4
#: Steps ahead that operands from main memory are asked for where a tile's rows are longer. Measured with two
#: and four columns: 20 and 27% less time. With one there is little else to do.
AHEAD: Final = 8


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that are summed together, and vectors along the reduction of each."""

    rows: int
    vectors: int


def choose_rows(program: Program, m: LaneMatch, width: int, target: Target) -> Rows:
    """How many rows are summed together, with vectors of ``width`` elements."""
    columns, row = m.results, m.row
    wanted = (MAX_ACCUMULATORS if m.picked < PICKED_VECTORS else MAX_ACCUMULATORS_PICKED) // columns
    vectors, together = _most(program, m, target)
    vectors = max(1, min(vectors, m.extent // width, wanted))
    rows = min(max(1, wanted // vectors), together, row[1] if row else 1)
    if width % columns == 0 and _bytes_read(program, m) <= perhaps_kept(target):
        # what fills a vector of results is joined at once; from memory more rows that share matter more
        rows = min(rows, 1 << (rows.bit_length() - 1))
    if m.shared and row is not None and rows > 1 and rows_collide(rows + 1, _apart(program, m, row[0])):
        # with what they share, their lines need more of a set than it has: 3072x2x1024 78% of reading by
        # 8 rows at a time, 86% by 4; 6144x1x2048 72 and 80%
        rows //= 2
    return Rows(rows, vectors)


def _most(program: Program, m: LaneMatch, target: Target) -> tuple[int, int]:
    """Vectors of each row, and rows at a time, at most."""
    several = (SHARED_VECTORS, MAX_STREAMS)
    columns, nbytes = m.results, _bytes_read(program, m)
    if not m.shared:
        return VECTORS, 1
    if prefers_one_stream(target) and nbytes <= last_cache(target):
        far = nbytes > FAR * last_cache(target)
        most = ALONE_COLUMNS if _columns_stay(program, m, target) else 1
        alone = 1 < columns <= most if far else columns <= STREAM_COLUMNS
        return (ALONE_VECTORS, 1) if alone and m.extent >= ALONE_ROW else several
    if columns == 1:
        kept = nbytes <= perhaps_kept(target)
        return (STREAM_VECTORS, 1) if m.extent >= LONG_ROW and kept else several
    fetches = columns <= STREAM_COLUMNS and fetches_ahead(target)
    stay = fetches and m.extent > LONG_ROW and _columns_stay(program, m, target)
    return (STREAM_VECTORS, 1) if stay else several


def requests_ahead(program: Program, m: LaneMatch, rows: int, machine: Machine) -> tuple[str, ...]:
    """What to ask for ahead, as hints: operands of which each row has a part of its own.

    Where tiles are short, the hardware has hardly begun to follow their rows when they end: the next tile's
    are brought to the second cache level meanwhile. From the caches that would cost up to 20%.
    """
    target = machine.target
    if m.row is None:
        return ()
    if fetches_ahead(target):
        # the core follows rows by itself, but has room for few loads among several products each
        own = machine.threads * second_cache(target)
        if (
            prefers_one_stream(target)
            and m.shared
            and rows == 1
            and own < _bytes_read(program, m) <= last_cache(target)
        ):
            return ahead_in_first_level(program, m, rows, target)
        if m.results > 1 and rows > 1 and _columns_stay(program, m, target):
            return _next_rows(program, m, rows, target)
        return ahead_in_first_level(program, m, rows, target) if m.results > 1 else ()
    found: dict[str, str] = {}
    for buffer, apart in _own_rows(program, m).items():
        if rows > 1 and rows * apart * buffer.dtype.bytes <= NEXT_SHARE * second_cache(target):
            found[buffer.name] = further(buffer, rows * apart, target)
        elif m.results > 1:
            found[buffer.name] = steps_ahead(buffer, AHEAD, target)
    return tuple(hint for hint in found.values() if hint)


def _next_rows(program: Program, m: LaneMatch, rows: int, target: Target) -> tuple[str, ...]:
    """The hints that ask for the next tile's rows, of operands that the last cache level hardly keeps.

    Zen 5, others at work, four columns, of the time without: 4608x1536 (28 MB) 0.66 to 0.87, 3840x1280 (20
    MB) 0.76, but 3072x1024 (13 MB) 1.33.
    """
    apart = _own_rows(program, m)
    large = (b for b in apart if buffer_bytes(b) > FAR * last_cache(target))
    return tuple(hint for b in large for hint in next_tiles(b, rows * apart[b], target))


def _own_rows(program: Program, m: LaneMatch) -> dict[Buffer, int]:
    """The operands of which each row has a part of its own, and the elements from one to the next."""
    assert m.row is not None
    found = ((program.buffer(ld.buffer), ld) for ld in m.moving)
    return {b: n for b, ld in found if (n := _between(b, ld, m.row[0])) > 0}


def ahead_in_first_level(program: Program, m: LaneMatch, rows: int, target: Target) -> tuple[str, ...]:
    """What so many rows at a time ask for ahead, as hints: what the second cache level cannot hold."""
    buffers = dict.fromkeys(program.buffer(ld.buffer) for ld in m.moving)
    return tuple(hint for hint in (into_first_level(b, rows, target) for b in buffers) if hint)


def _bytes_read(program: Program, m: LaneMatch) -> int:
    """Bytes of all that moves along the reduction."""
    return sum(buffer_bytes(program.buffer(ld.buffer)) for ld in m.moving)


def _columns_stay(program: Program, m: LaneMatch, target: Target) -> bool:
    """Whether what the columns share, laid along the reduction, stays in the first cache level."""
    nbytes = m.extent * m.results * program.buffer(m.moving[0].buffer).dtype.bytes
    return nbytes <= STREAM_SHARE * first_cache(target)


def _apart(program: Program, m: LaneMatch, row: str) -> int:
    """Bytes between the rows of what moves with them, 1 where nothing does."""
    buffers = [(program.buffer(ld.buffer), ld) for ld in m.moving]
    return max((abs(_between(b, ld, row)) * b.dtype.bytes for b, ld in buffers), default=0) or 1


def _between(buffer: Buffer, load: Load, axis: str) -> int:
    """Elements from what one row loads to what the next one does; 0: known only at run time."""
    return stride(buffer, load, axis) if all(e.is_const for e in buffer.shape) else 0
