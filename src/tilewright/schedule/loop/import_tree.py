"""import_tree: run whole stages in the order of a schedule tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright import poly
from tilewright.ir import (
    Alloc,
    Buffer,
    For,
    LoopFunction,
    Seq,
    Stmt,
    blocks,
    locate,
    outermost,
    seq,
    simplify_seqs,
)
from tilewright.schedule.common import refusal, taken_names
from tilewright.schedule.registry import primitive
from tilewright.support import ResourceError, ScheduleError, known_names


@primitive("import_tree", phase="loop")
def import_tree(func: LoopFunction, stages: Sequence[str], tree: str) -> LoopFunction:
    """Run ``stages``, a run of the function's outermost statements, as the schedule tree ``tree`` says.

    ``tree`` is isl's text of a tree over the blocks of these stages (a statement is called as its block, its
    initialisation ``NAME_init``). A mark ``scratch(B, C)`` allocates buffers that only these stages use where
    it stands, as the box that is used below it; a mark ``parallel`` makes the loop below it parallel. Loops
    come out from 0 in steps of 1 and are called ``c0``, ``c1`` … Instances may run several times in storage
    of a tile (extension nodes), and those whose values nobody reads not at all. The text is not trusted: it
    is read within limits, and exact dependences decide whether it computes the same.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((8,), name="X")
    >>> B = lang.compute((8,), lambda i: X[i] * 2, name="B")
    >>> C = lang.compute((8,), lambda i: B[i] + 1, name="C")
    >>> s = Schedule(lang.program([X], [C]))
    >>> print(s)
    func main:
        alloc B: f32[8] global
        for i in 0:8:
            block B(par i=i):
                B[i] = (X[i] * f32(2.0))
        for C_i in 0:8:
            block C(par i=C_i):
                C[i] = (B[i] + f32(1.0))
    >>> tree = '''{ domain: "{ B[i] : 0 <= i < 8; C[C_i] : 0 <= C_i < 8 }", child: {
    ...     mark: "parallel", child: { schedule: "[{ B[i] -> [i]; C[C_i] -> [C_i] }]", child: {
    ...     mark: "scratch(B)", child: {
    ...     sequence: [ { filter: "{ B[i] }" }, { filter: "{ C[C_i] }" } ] } } } } }'''
    >>> print(s.import_tree(["B", "C"], tree))
    func main:
        for c0 in 0:8 parallel:
            alloc B: f32[1] global
            block B(par i=c0):
                B[i] = (X[i] * f32(2.0))
            block C(par i=c0):
                C[i] = (B[i] + f32(1.0))

    Raises ScheduleError for stages that are no run of outermost statements or that run on hardware threads,
    for text that is no such tree, and for trees that change what is computed.
    """
    part = _part_of(func, tuple(stages))
    try:
        after = poly.follow_tree(part.function, tree, taken_names(func) - part.function.body.inner_names)
    except (ScheduleError, ResourceError) as error:
        raise refusal(func, error.what, hint=error.hint, at=part.blocks) from error
    return func.with_body(simplify_seqs(part.rebuilt(after.body)))


@dataclass(frozen=True, slots=True)
class _Part:
    """A run of outermost statements as a function of its own: buffers used elsewhere are its arguments."""

    function: LoopFunction
    blocks: tuple[str, ...]
    before: tuple[Stmt, ...]
    after: tuple[Stmt, ...]
    around: tuple[Buffer, ...]

    def rebuilt(self, body: Stmt) -> Stmt:
        """The whole body with another one for this part."""
        out = seq(*self.before, body, *self.after)
        for b in reversed(self.around):
            out = Alloc(b, out)
        return out


def _allocated(s: Stmt) -> Iterator[Buffer]:
    match s:
        case Seq():
            for child in s.stmts:
                yield from _allocated(child)
        case Alloc():
            yield s.buffer
            yield from _allocated(s.body)


def _part_of(func: LoopFunction, stages: tuple[str, ...]) -> _Part:
    statements = list(outermost(func.body))
    made = [{place.node.stage for place in blocks(s)} for s in statements]
    known = {name for names in made for name in names}
    for name in stages:
        if name not in known:
            raise refusal(
                func, f"there is no stage {name!r}", hint=known_names(name, sorted(known), "the stages")
            )
    inside = [n for n, names in enumerate(made) if names & set(stages)]
    if not inside:
        raise refusal(func, "no stages are given", hint="name the stages whose order the tree says")
    first, last = inside[0], inside[-1] + 1
    others = sorted({name for names in made[first:last] for name in names} - set(stages))
    if others:
        raise refusal(
            func,
            f"the stage {others[0]!r} stands among those of the tree",
            hint="give a run of outermost statements with all of their stages",
            at=[place.node.name for s in statements[first:last] for place in blocks(s)],
        )
    threads = [p.node.var for s in statements[first:last] for p in locate(s, For) if p.node.kind.axis]
    if threads:
        raise refusal(func, f"{threads[0]!r} runs on hardware threads", hint="bind loops later", at=threads)
    allocated = tuple(_allocated(func.body))
    outside = (*statements[:first], *statements[last:])
    used = {name for s in outside for name in _touched(s)}
    own = tuple(b for b in allocated if b.name not in used)
    shared = tuple(b for b in allocated if b.name in used)
    body = seq(*statements[first:last])
    for b in reversed(own):
        body = Alloc(b, body)
    function = replace(
        func,
        buffers=(*func.buffers, *shared),
        outputs=(*func.outputs, *(b.name for b in shared)),
        inouts=(*func.inouts, *(b.name for b in shared)),
        body=body,
    )
    names = tuple(place.node.name for place in blocks(body))
    return _Part(function, names, tuple(statements[:first]), tuple(statements[last:]), shared)


def _touched(s: Stmt) -> Iterator[str]:
    for place in blocks(s):
        yield from (load.buffer for load in place.node.reads)
        yield from (name for name, _ in place.node.writes)
