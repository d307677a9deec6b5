"""The grammar of tilings: what is decided about a nest, as a tree of levels, cuts, places and leaves.

    Body  = Level | Cut | Seq | Leaf
    Level = one loop over tiles of an axis, or of several axes as one fused loop, bound to something
    Cut   = the range of an axis in parts, each with a body of its own: boundary tiles, uneven blocks
    Seq   = what stands in one level, in order: places, then the body, then stages that go along with it
    Place = storage in a level, and what fills and drains it: a producer, a copy, a result that is kept
    Leaf  = an instance of a stage, perhaps by an instruction

Extents are derived, never stored: a size says how many elements of its axis one iteration has, the level
around how many there are. So equal trees mean equal loops.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

import msgspec

Bind: TypeAlias = Literal[
    "serial", "parallel", "vector", "unroll",
    "block.x", "block.y", "block.z", "thread.x", "thread.y", "thread.z", "virtual",
]  # fmt: skip
"""What the iterations of a level run on."""
Tail: TypeAlias = Literal["exact", "guard", "mask"]
"""What becomes of a last iteration that has fewer elements.

``exact``: there is none below, a cut or an end of loops of its own takes it; ``guard``: loops of whole tiles
with a condition; ``mask``: the same decided lane by lane.
"""
How: TypeAlias = Literal["make", "slide", "copy", "keep", "accumulate", "init"]
"""What a place is for.

``make``: a producer, for what is read below; ``slide``: a producer that keeps what the iteration before made;
``copy``: a buffer's elements that are read below, in storage of their own; ``keep``: the result of the nest
inside, drained when it is done; ``accumulate``: the same, from what is there; ``init``: a start of sums.
"""
Pairs: TypeAlias = tuple[tuple[str, str], ...]
BINDS: Final[tuple[str, ...]] = get_args(Bind)
TAILS: Final[tuple[str, ...]] = get_args(Tail)
HOWS: Final[tuple[str, ...]] = get_args(How)
#: Places that hold the result of the nest inside of them.
KEPT: Final = ("keep", "accumulate")
#: Places that hold a producer's result.
MADE: Final = ("make", "slide")
#: Levels that expand into code of their own: nothing below them is cut.
EXPANDED: Final = ("unroll", "vector")


class Leaf(msgspec.Struct, frozen=True, tag="do"):
    """An instance of a stage; ``instruction`` is the target's that does it, with the levels of its axes."""

    stage: str
    instruction: str = ""


class Level(msgspec.Struct, frozen=True, tag="for"):
    """One loop. ``axes`` are pairs of an axis and of how many elements of it an iteration has.

    Several axes are one fused loop, the first one outermost. An axis ``h*w`` is the product of two iterators,
    ``h/4*w/4`` that of their tiles. ``hints`` are those of loops (``ir.hints``), and ``stages`` of a ring.
    """

    axes: tuple[tuple[str, int], ...]
    body: Body
    bind: Bind = "serial"
    hints: Pairs = ()
    tail: Tail = "exact"


class Cut(msgspec.Struct, frozen=True, tag="cut"):
    """The range of an axis in parts that begin at 0 and at the elements ``at`` of the tile around.

    Of an extent that only a run knows the last part's end is apart, too, where it has fewer elements or a
    statement's condition may fail; there may be no other cut.
    """

    axis: str
    at: tuple[int, ...]
    parts: tuple[Body, ...]


class Place(msgspec.Struct, frozen=True, tag="place"):
    """Storage of ``value`` (a stage that is made, or a buffer) and the ``nest`` that fills it.

    Axes of a copy are called ``d0``, ``d1`` … as the buffer's dimensions. ``drain`` is the way out of what is
    kept: a copy, or the nest of the stage that reads it. ``layout`` is the storage's, in layout expressions.
    ``hints``: ``pad=14`` (elements a row more), ``rows=y:4`` (a rolling buffer), ``borders`` (loops over taps
    cut where tiles meet padding), ``swizzle=8x8`` (groups of a row that change places, elements of each);
    of copies by threads ``threads``, ``vector``, ``rounds``, ``along``.
    """

    value: str
    how: How
    scope: str
    nest: Body | None = None
    drain: Body | None = None
    layout: tuple[str, ...] = ()
    hints: Pairs = ()


class Seq(msgspec.Struct, frozen=True, tag="seq"):
    """What stands in one level, in the order in which it is executed."""

    items: tuple[Place | Level | Cut | Leaf, ...]


Body: TypeAlias = Level | Cut | Seq | Leaf


class Nest(msgspec.Struct, frozen=True):
    """The nest that ends with the stage ``root``.

    ``layouts`` are those of constants that it reads, ``scopes`` where values that it makes are kept, where
    that is not where the program has them.
    """

    root: str
    body: Body
    layouts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    scopes: Pairs = ()


def items_of(body: Body) -> tuple[Place | Level | Cut | Leaf, ...]:
    """What stands in a level, as items of a sequence."""
    return body.items if isinstance(body, Seq) else (body,)


def sequence(*bodies: Place | Body) -> Body:
    """Places and bodies one after another; one body by itself is no sequence."""
    found = [x for each in bodies for x in ((each,) if isinstance(each, Place) else items_of(each))]
    first = found[0]
    return first if len(found) == 1 and not isinstance(first, Place) else Seq(tuple(found))
