"""What a scope asks of the statements that use a buffer: memory of one thread, tile registers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod

from tilewright.analysis import update_of
from tilewright.ir import (
    GLOBAL,
    ONE,
    PRIVATE,
    SHARED,
    TILE,
    Access,
    Alloc,
    Block,
    Buffer,
    Const,
    DType,
    Exec,
    For,
    Located,
    LoopFunction,
    Seq,
    Stmt,
    Store,
    Window,
    block_update,
    blocks,
    buffers_of,
    is_thread,
    loads,
    locate,
    loop_env,
    simplify,
    substitute_index,
)
from tilewright.schedule.common import refusal
from tilewright.schedule.nests import fed
from tilewright.schedule.owners import ownerless
from tilewright.target import (
    BUILT_IN,
    ROW_BYTES,
    ROWS,
    TILES,
    Operand,
    Operations,
    find_operation,
)

#: Registers that a product loads its operands into.
OPERANDS = 2


def check_private(func: LoopFunction, buffer: str, scope: str, *, shown: LoopFunction | None = None) -> None:
    """Refuse memory of one thread for what several write; errors show ``shown`` (default ``func``).

    Loops over the threads of a block may write parts of it: each element must then have one thread, the
    same in all these loops.
    """
    for place in blocks(func.body):
        if buffer not in dict(place.node.writes):
            continue
        for at in range(len(place.ancestors) - 1, -1, -1):
            above = place.ancestors[at]
            if isinstance(above, Alloc) and above.buffer.name == buffer:
                break
            if (
                isinstance(above, For)
                and above.kind.name in ("parallel", "thread")
                and not (is_thread(above.kind))
            ):
                raise refusal(
                    shown or func,
                    f"{buffer!r} cannot be {scope}: the {above.kind} loop {above.var!r} inside of its "
                    "allocation writes it",
                    hint="allocate it inside of the loop",
                    at=[above.var],
                    buffers=[buffer],
                )


def check_threads(func: LoopFunction, shown: LoopFunction, known: LoopFunction | None = None) -> None:
    """Refuse what memory of a block, or of its threads, cannot be: asked after every step with loops over
    threads.

    A shared buffer below such a loop would hold one thread's box, and be all threads' memory; an element
    of a buffer of one thread must have one thread, the same in all loops; what such a loop reduces must be
    updates that threads may do at once. Errors show ``shown``. Parts of a function that is ``known`` to be
    right are right.
    """
    if not func.body.is_spread:
        return
    before = set() if known is None else {id(s) for s in _parts(known.body)}
    new = [s for s in _parts(func.body) if id(s) not in before]
    for place in (each for s in new if s.is_spread for each in locate(s, For)):
        if place.node.kind.name == "thread":
            _check_updates(place, shown)
    if not func.body.has_threads:
        return
    for alloc in (*_outermost(func.body), *(each for s in new for each in locate(s, Alloc))):
        buf = alloc.node.buffer
        if buf.scope == SHARED:
            for f in alloc.loops:
                if is_thread(f.kind):
                    raise refusal(
                        shown,
                        f"shared buffer {buf.name!r} would hold what one iteration of {f.var!r} uses, on "
                        f"{f.kind.axis}, and be one for all of them",
                        hint=f"allocate it outside of {f.var!r}: it then holds what all threads use",
                        at=[f.var],
                        buffers=[buf.name],
                    )
        elif alloc.node.body.has_threads and (
            buf.scope in PRIVATE or any(is_thread(f.kind) for f in alloc.loops)
        ):
            _check_owned(alloc, shown)


def _parts(s: Stmt) -> Iterator[Stmt]:
    """What stands one after another in a function, inside of its outermost allocations."""
    match s:
        case Alloc():
            yield from _parts(s.body)
        case Seq():
            for each in s.stmts:
                yield from _parts(each)
        case _:
            yield s


def _outermost(s: Stmt) -> Iterator[Located[Alloc]]:
    """The allocations around these parts."""
    match s:
        case Alloc():
            yield Located(s, (), ())
            yield from _outermost(s.body)
        case Seq():
            for each in s.stmts:
                yield from _outermost(each)


def _check_updates(place: Located[For], shown: LoopFunction) -> None:
    loop = place.node
    if simplify(loop.extent, loop_env(place.loops)) == ONE:
        return
    for block, it, _ in fed(loop.body, loop.var):
        if it.kind == "red" and block_update(block) is None:
            written = ", ".join(sorted({name for name, _ in block.writes}))
            raise refusal(
                shown,
                f"block {block.name!r} would not update {written} at once, though {loop.kind.axis} runs its "
                f"{it.name!r}",
                hint="threads share updates of integers one by one: bind the loop after this step",
                at=[loop.var, block.name],
            )


def _check_owned(alloc: Located[Alloc], shown: LoopFunction) -> None:
    found = ownerless(alloc.node, loop_env(alloc.loops))
    if found is None:
        return
    name, a, b = alloc.node.buffer.name, found.first.name, found.second.name
    raise refusal(
        shown,
        f"an element of {name!r} would have several threads of {found.axis}, by "
        + (f"block {a!r}" if a == b else f"blocks {a!r} and {b!r}")
        + ": its memory belongs to one thread",
        hint="bind all loops that touch the buffer at once, or allocate it inside of them",
        at=[a, b],
        buffers=[name],
    )


def check_scope_of_operands(
    func: LoopFunction, buffer: str, scope: str, operations: Operations = BUILT_IN
) -> None:
    """Refuse a ``scope`` in which instructions that use a buffer cannot have it."""
    for _, node in _uses(func, buffer):
        if not isinstance(node, Exec):
            continue
        for window, operand in _operands(node, operations):
            if window.buffer == buffer and TILE in (operand.scope, scope) and operand.scope != scope:
                raise refusal(
                    func,
                    f"{buffer!r} cannot be {scope}: {node.instr} has it in scope {operand.scope or GLOBAL}",
                    hint="cache a copy of it"
                    if scope == TILE
                    else f"leave it in scope {operand.scope}, or choose the scope before tensorize",
                    buffers=[buffer],
                )


def check_tiles(
    func: LoopFunction,
    buffer: str,
    operations: Operations = BUILT_IN,
    *,
    shown: LoopFunction | None = None,
) -> None:
    """Refuse to keep a buffer in tile registers where no further step could make that work.

    What clears, sums and reads it may still be done by elements, and is to be tensorized. Errors show
    ``shown`` (default ``func``).
    """
    shown = shown or func
    (place,) = (p for p in locate(func.body, Alloc) if p.node.buffer.name == buffer)
    buf = buffers_of(func)[buffer]
    for other in locate(func.body, Alloc):
        if other.node.buffer.scope != TILE or other.node.buffer.name == buffer:
            continue
        if other.node in place.ancestors or place.node in other.ancestors:
            raise refusal(
                shown,
                f"{buffer!r} cannot be in tiles: {other.node.buffer.name!r} is, where both are allocated",
                hint="allocate them in separate loops",
                buffers=[buffer, other.node.buffer.name],
            )
    _check_writers(func, buf, operations, shown)
    _check_registers(func, buf, shown)
    _check_constant(func, buf, shown)


def _check_writers(func: LoopFunction, buf: Buffer, operations: Operations, shown: LoopFunction) -> None:
    """Only zeros and sums of products come into tiles."""
    products = [p for p in operations.values() if p.is_contraction and p.result.scope == TILE]
    types = sorted({p.result.dtype.name for p in products})
    factors = {o.dtype for p in products for o in (p.a, p.b)}
    if buf.dtype.name not in types:
        raise refusal(
            shown,
            f"{buf.name!r} cannot be in tiles: its elements are {buf.dtype}, results in tiles are "
            + " or ".join(types),
            hint="cache it in another scope",
            buffers=[buf.name],
        )
    for place, node in _uses(func, buf.name):
        if isinstance(node, Exec):
            continue
        for w in node.writes:
            if w.buffer != buf.name:
                continue
            zero = isinstance(w.value, Const) and w.value.value == 0
            if not zero and not _sums_products(w, factors):
                raise refusal(
                    shown,
                    f"{buf.name!r} cannot be in tiles: what block {place.node.name!r} stores there is "
                    f"neither 0 nor a sum of products of {' or '.join(sorted(t.name for t in factors))}",
                    hint="tiles hold results of contractions: keep others in another scope",
                    at=[place.node.name],
                    buffers=[buf.name],
                )


def _sums_products(w: Access, types: Collection[DType]) -> bool:
    """Whether an element is increased by a product of elements of such types."""
    update = update_of(w)
    factors = None if update is None else update.factors
    return factors is not None and all(any(ld.dtype in types for ld in loads(f)) for f in factors)


def _check_registers(func: LoopFunction, buf: Buffer, shown: LoopFunction) -> None:
    """There must be registers for all of the buffer, and for the operands of its products."""
    if not all(e.is_const for e in buf.physical_shape):
        raise refusal(
            shown,
            f"{buf.name!r} cannot be in tiles: its size is known only when running",
            hint="allocate it inside of loops over parts of a constant size",
            buffers=[buf.name],
        )
    sizes = [e.as_int() for e in buf.physical_shape]
    count = -(-prod(sizes) * buf.dtype.bytes // (ROWS * ROW_BYTES))
    for _, w in _windows(func, buf.name):
        count = prod(-(-size // n) for size, n in zip(sizes, w.extents, strict=True))
    if count + OPERANDS > TILES:
        raise refusal(
            shown,
            f"{buf.name!r} takes {count} tile registers, and products {OPERANDS} more: there are {TILES}",
            hint="make the tiles of results smaller, or allocate them inside of the loops over them",
            buffers=[buf.name],
        )


def _check_constant(func: LoopFunction, buf: Buffer, shown: LoopFunction) -> None:
    """Registers have numbers in instructions: loops that choose one must be unrolled."""
    for place, w in _windows(func, buf.name):
        inside: list[For] = []
        for above in place.ancestors:
            if isinstance(above, Alloc) and above.buffer.name == buf.name:
                inside = []
            elif isinstance(above, For):
                inside.append(above)
        env = loop_env(place.loops)
        binding = {it.name: b for it, b in zip(place.node.iters, place.node.bind, strict=True)}
        offsets = tuple(substitute_index(i, binding) for i in w.offsets)
        used = {v for i in buf.physical(offsets) for v in simplify(i, env).vars}
        chosen = [f.var for f in inside if f.var in used and f.kind.name != "unroll"]
        if chosen:
            raise refusal(
                shown,
                f"the tiles of {buf.name!r} would be chosen by {' and '.join(map(repr, chosen))}, and code "
                "names registers by constants",
                hint="unroll first, or allocate the buffer inside of the loop",
                at=chosen,
                buffers=[buf.name],
            )


def _uses(func: LoopFunction, buffer: str) -> Iterator[tuple[Located[Block], Store | Exec]]:
    """Statements of blocks that read or write a buffer, with their outermost blocks."""
    for place in blocks(func.body):
        for node in _statements(place.node):
            if isinstance(node, Exec):
                if any(w.buffer == buffer for w in node.windows):
                    yield place, node
            elif any(w.buffer == buffer for w in node.writes):
                yield place, node


def _statements(block: Block) -> Iterator[Store | Exec]:
    parts: list[Stmt] = [block.body] if block.init is None else [block.init, block.body]
    for part in parts:
        for found in locate(part, (Store, Exec, Block)):
            node = found.node
            if isinstance(node, Block):
                yield from _statements(node)
            elif isinstance(node, Store | Exec):
                yield node


def _windows(func: LoopFunction, buffer: str) -> Iterator[tuple[Located[Block], Window]]:
    """Windows of a buffer that instructions take."""
    for place, node in _uses(func, buffer):
        if isinstance(node, Exec):
            yield from ((place, w) for w in node.windows if w.buffer == buffer)


def _operands(node: Exec, operations: Operations) -> Iterator[tuple[Window, Operand]]:
    """The windows of an instruction, each with what it is there."""
    yield from zip(node.windows, find_operation(node.instr, operations).operands, strict=True)
