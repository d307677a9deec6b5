"""What primitives share: finding by name, fresh names, environments, and refusing with the program shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tilewright.ir import (
    Block,
    For,
    Index,
    Location,
    LoopFunction,
    find,
    fresh_name,
    loop_env,
    print_function,
    simplify,
)
from tilewright.support import ScheduleError, suggestion

_STATEMENT = r"\s*(for {0} in |with block\(\"{0}\")"
_BUFFER = r"\s*({0} = (alloc|buffer|param|\w+\[)|with .* as {0}:)"
#: Two underscores in front are for the dimensions of index maps.
_IDENTIFIER = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


def refusal(
    func: LoopFunction,
    what: str,
    *,
    hint: str | None = None,
    at: Iterable[str] = (),
    buffers: Iterable[str] = (),
) -> ScheduleError:
    """The error of a refused primitive; the lines of loops and blocks ``at`` and of ``buffers`` are marked.

    A name in ``at`` that no loop or block has is taken for a buffer's.
    """
    statements, named = list(at), list(buffers)

    def shown() -> tuple[str, list[int]]:
        text = print_function(func)
        names = [(_STATEMENT if name in func.body.names else _BUFFER, name) for name in statements]
        names += [(_BUFFER, name) for name in named]
        wanted = [re.compile(pattern.format(re.escape(name))) for pattern, name in names]
        return text, [n for n, line in enumerate(text.splitlines()) if any(w.match(line) for w in wanted)]

    return ScheduleError(what, hint=hint, shown=shown)


def find_loop(func: LoopFunction, name: str) -> tuple[Location, For]:
    """The loop called ``name`` and its place; ScheduleError where there is none."""
    place = find(func.body, name)
    if place is None:
        raise _unknown(func, "loop", name)
    if not isinstance(place.node, For):
        raise refusal(func, f"{name!r} is a block, not a loop", hint="name a loop", at=[name])
    return place, place.node


def find_block(func: LoopFunction, name: str) -> tuple[Location, Block]:
    """The block called ``name`` and its place; ScheduleError where there is none."""
    place = find(func.body, name)
    if place is None:
        raise _unknown(func, "block", name)
    if not isinstance(place.node, Block):
        raise refusal(func, f"{name!r} is a loop, not a block", hint="name a block", at=[name])
    return place, place.node


def _unknown(func: LoopFunction, kind: str, name: str) -> ScheduleError:
    return refusal(
        func,
        f"there is no {kind} {name!r}",
        hint=suggestion(name, sorted(func.body.names)) or f"the program below lists the {kind}s",
    )


def taken_names(func: LoopFunction) -> set[str]:
    """Names a new loop or block may not have: loops, blocks, what opaque blocks hold, and parameters."""
    return {*func.body.inner_names, *(p.name for p in func.params)}


def new_names(defaults: Sequence[str], names: Sequence[str], taken: set[str]) -> tuple[str, ...]:
    """Names for new loops: ``names`` where given (unused identifiers), else ``defaults`` made unique.

    ``taken`` (see :func:`taken_names`) grows by them. Raises ScheduleError for too many or too few names,
    those that are taken, and those that are no identifiers.
    """
    if not names:
        out = []
        for base in defaults:
            name = fresh_name(base, taken)
            taken.add(name)
            out.append(name)
        return tuple(out)
    if len(names) != len(defaults):
        raise ScheduleError(f"{len(defaults)} names are needed, {len(names)} are given: {', '.join(names)}")
    for name in names:
        if not _IDENTIFIER.match(name):
            raise ScheduleError(f"{name[:80]!r} cannot be the name of a loop", hint="use a plain identifier")
        if name in taken:
            raise ScheduleError(f"the name {name!r} is taken", hint="choose another or leave names= out")
        taken.add(name)
    return tuple(names)


def env_at(place: Location) -> dict[str, tuple[Index, Index]]:
    """Ranges of the loops around a place."""
    return loop_env(place.loops)


def constant_extent(func: LoopFunction, place: Location, node: For, wanted: str) -> int:
    """The loop's extent; ScheduleError where it is not a constant."""
    extent = simplify(node.extent, env_at(place))
    if not extent.is_const or node.step != 1:
        raise refusal(
            func,
            f"{node.var!r} has {extent} iterations, not a constant number, and cannot be {wanted}",
            hint="split it by a constant first",
            at=[node.var],
        )
    return extent.const
