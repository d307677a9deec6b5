"""Schedule trees as text, which is untrusted: read within limits, and held against the model they are for.

The text is isl's own (``str`` of a schedule). What a tree *means* is judged elsewhere, by exact dependences;
here it is made sure that it speaks of the statements of a model, of nothing else, in node types that
:mod:`tilewright.poly.executions` knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import islpy as isl

from tilewright.ir import LoopFunction
from tilewright.poly.ast_import import import_tree
from tilewright.poly.budget import OPERATIONS, bounded, is_spent
from tilewright.poly.executions import PARALLEL_MARK, children, scratch_buffers, type_of
from tilewright.poly.extract import Model, extract_model
from tilewright.poly.spaces import CONTEXT, DIM, sets_of
from tilewright.poly.symbolic import check_symbolic
from tilewright.support import ProgramError, ScheduleError

MAX_CHARACTERS: Final = 1 << 20
"""Longest text that is read: a tree of 100 stages takes a twentieth."""
MAX_DEPTH: Final = 300
"""Deepest nesting of braces and brackets: isl's parser recurses."""
MAX_NODES: Final = 20_000
"""Most nodes of a tree."""

_NODES = frozenset(("domain", "band", "filter", "sequence", "mark", "extension", "leaf"))
_HINT = "record the tree again: str(schedule) of a tree over this function's statements"


def read_tree(model: Model, text: str) -> isl.Schedule:
    """The schedule tree that ``text`` says, over the statements of ``model``.

    Raises ScheduleError for text that is no tree, is larger than the limits above, or speaks of other
    statements, instances, parameters, marks or kinds of nodes.
    """
    if len(text) > MAX_CHARACTERS:
        raise ScheduleError(f"the tree has {len(text)} characters; at most {MAX_CHARACTERS} are read")
    if not text.isascii() or not text.replace("\n", " ").isprintable():
        raise ScheduleError("the tree has characters that are not printable ASCII", hint=_HINT)
    if _nesting(text) > MAX_DEPTH:
        raise ScheduleError(f"the tree is nested deeper than {MAX_DEPTH} brackets", hint=_HINT)
    try:
        schedule = isl.Schedule.read_from_str(CONTEXT, text)
    except isl.Error as error:
        if is_spent(error):
            raise
        raise ScheduleError(f"the text is no schedule tree: {_reason(error)}", hint=_HINT) from None
    for count, node in enumerate(_all_nodes(schedule.get_root())):
        if count >= MAX_NODES:
            raise ScheduleError(f"the tree has more than {MAX_NODES} nodes")
        _check_node(model, node)
    return schedule


def _nesting(text: str) -> int:
    deepest = depth = 0
    for c in text:
        if c in "{[(":
            depth += 1
            deepest = max(deepest, depth)
        elif c in "}])":
            depth -= 1
    return deepest


def _reason(error: isl.Error) -> str:
    """What isl says, without where in its own source."""
    return str(error).split(" failed: ")[-1].split(" in /")[0][:120]


def _all_nodes(node: isl.ScheduleNode) -> Iterator[isl.ScheduleNode]:
    yield node
    for child in children(node):
        yield from _all_nodes(child)


def _check_node(model: Model, node: isl.ScheduleNode) -> None:
    kind = type_of(node)
    match kind:
        case "domain":
            _check_instances(model, node.domain_get_domain())
        case "extension":
            _check_instances(model, node.extension_get_extension().range())
        case "mark":
            name = str(node.mark_get_id().get_name())
            if name != PARALLEL_MARK and scratch_buffers(name) is None:
                raise ScheduleError(
                    f"the mark {name[:80]!r} has no meaning", hint="marks are parallel and scratch(buffers)"
                )
        case _ if kind not in _NODES:
            raise ScheduleError(f"a node of type {kind} has no meaning here", hint=_HINT)


def _check_instances(model: Model, instances: isl.UnionSet) -> None:
    known = {s.name: s for s in model.statements}
    params = {p.name for p in model.params}
    for s in sets_of(instances):
        name = str(s.get_tuple_name()) if s.has_tuple_name() else ""
        if name not in known or s.dim(DIM.set) != len(known[name].dims):
            raise ScheduleError(
                f"there is no statement {name[:80]!r} of {s.dim(DIM.set)} loops",
                hint=f"the statements are {', '.join(known)}"[:400],
            )
        strange = {str(s.get_dim_name(DIM.param, n)) for n in range(s.dim(DIM.param))} - params
        if strange:
            raise ScheduleError(f"there is no parameter {min(strange)[:80]!r}")
        if not s.intersect_params(model.context).is_subset(known[name].domain):
            raise ScheduleError(f"the tree runs instances of {name!r} that there are not", hint=_HINT)


def follow_tree(
    func: LoopFunction, text: str, taken: Collection[str] = (), *, operations: int = OPERATIONS
) -> LoopFunction:
    """The statements of ``func`` in the order that a tree's text says, judged by exact dependences.

    ``taken`` are names that new loops may not have. Raises ScheduleError where the text is no tree of this
    function or changes what it computes, ResourceError where isl needs more than ``operations``.
    """

    def followed() -> LoopFunction:
        try:
            return _followed(func, text, taken)
        except isl.Error as error:
            if is_spent(error):
                raise
            raise ScheduleError(f"isl cannot follow the tree: {_reason(error)}", hint=_HINT) from None
        except ProgramError as error:
            raise ScheduleError(error.what, hint=error.hint) from None

    what = f"the tree for {func.name} is too large"
    return bounded(followed, what, "use smaller parts, or another tree", operations=operations)


def _followed(func: LoopFunction, text: str, taken: Collection[str]) -> LoopFunction:
    model = extract_model(func)
    schedule = read_tree(model, text)
    # options say how isl writes the loops, not in which order they run: the judge needs no copies
    wrong = check_symbolic(func, import_tree(model, without_options(schedule), taken))
    if wrong:
        raise ScheduleError(f"the tree changes what is computed: {wrong[0].message}")
    return import_tree(model, schedule, taken)


def without_options(schedule: isl.Schedule) -> isl.Schedule:
    """The tree without options of code generation."""
    nothing = isl.UnionSet.empty(isl.Space.params_alloc(CONTEXT, 0))

    def cleared(node: isl.ScheduleNode) -> isl.ScheduleNode:
        return node.band_set_ast_build_options(nothing) if type_of(node) == "band" else node

    return schedule.map_schedule_node_bottom_up(cleared)


def tree_lines(schedule: isl.Schedule) -> str:
    """A schedule tree for people to read: a node a line, children indented."""
    return "\n".join(_lines(schedule.get_root(), 0))


def _lines(node: isl.ScheduleNode, depth: int) -> Iterator[str]:
    kind = type_of(node)
    match kind:
        case "domain":
            says = str(node.domain_get_domain())
        case "band":
            says = str(node.band_get_partial_schedule())
        case "filter":
            says = str(node.filter_get_filter())
        case "extension":
            says = str(node.extension_get_extension())
        case "mark":
            says = str(node.mark_get_id().get_name())
        case _:
            says = ""
    if kind != "leaf":
        yield f"{'  ' * depth}{kind} {says}".rstrip()
    for child in children(node):
        yield from _lines(child, depth + 1)
