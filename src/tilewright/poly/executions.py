"""What a schedule tree executes, and when: the prefixes of its leaves, extension nodes included.

``isl_schedule_node_get_prefix_schedule_relation`` refuses trees with extension nodes; here they count as what
they are: further instances, run for the tiles that their relation names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import islpy as isl

from tilewright.poly.spaces import CONTEXT, DIM, maps_of, union_map
from tilewright.support import InternalError

PARALLEL_MARK = "parallel"
SCRATCH_MARK = "scratch"


def type_of(node: isl.ScheduleNode) -> str:
    """The type of a node: ``domain``, ``band``, ``filter`` …"""
    # an enumeration of isl, typed as a number in islpy's stubs
    return str(node.get_type().name).rstrip("_")  # type: ignore[attr-defined]  # see above


def scratch_mark(buffers: tuple[str, ...]) -> isl.Id:
    """The mark below which ``buffers`` live: one storage for each execution of what is below."""
    return isl.Id(f"{SCRATCH_MARK}({', '.join(buffers)})")


def scratch_buffers(mark: str) -> tuple[str, ...] | None:
    """The buffers that a mark allocates; ``None`` for other marks."""
    if not (mark.startswith(f"{SCRATCH_MARK}(") and mark.endswith(")")):
        return None
    inside = mark[len(SCRATCH_MARK) + 1 : -1]
    return tuple(inside.split(", ")) if inside else ()


@dataclass(frozen=True, slots=True)
class MarkedPart:
    """A mark: its name, the schedule dimensions above it, and what runs below it.

    ``executed`` maps instances to the values of the dimensions above the mark.
    """

    name: str
    depth: int
    executed: isl.UnionMap


def prefixes(schedule: isl.Schedule) -> isl.UnionMap:
    """Instances to the schedule dimensions at the leaves where they run."""
    return _Walk().visit(schedule.get_root(), None, 0)


def marked_parts(schedule: isl.Schedule) -> list[MarkedPart]:
    """All marks of a tree, in its order, outer ones first."""
    walk = _Walk()
    walk.visit(schedule.get_root(), None, 0)
    return [walk.marks[n] for n in sorted(walk.marks)]


class _Walk:
    def __init__(self) -> None:
        self.marks: dict[int, MarkedPart] = {}
        self.count = 0

    def visit(self, node: isl.ScheduleNode, prefix: isl.UnionMap | None, depth: int) -> isl.UnionMap:
        """What is executed below ``node``, with the dimensions at its leaves."""
        kind = type_of(node)
        if kind == "domain":
            domain = node.domain_get_domain()
            everything = isl.UnionMap.from_domain_and_range(domain, _origin(domain))
            return self.visit(node.child(0), everything, 0)
        if prefix is None:
            raise InternalError("a schedule tree that does not begin with its domain")
        match kind:
            case "leaf":
                return prefix
            case "band":
                partial = isl.UnionMap.from_multi_union_pw_aff(node.band_get_partial_schedule())
                return self.visit(
                    node.child(0), prefix.flat_range_product(partial), depth + node.band_n_member()
                )
            case "filter":
                return self.visit(node.child(0), prefix.intersect_domain(node.filter_get_filter()), depth)
            case "extension":
                more = node.extension_get_extension().reverse()
                return self.visit(node.child(0), prefix.union(more), depth)
            case "sequence":
                return _joined(self.visit(child, prefix, depth) for child in children(node))
            case "mark":
                at, self.count = self.count, self.count + 1
                below = self.visit(node.child(0), prefix, depth)
                name = str(node.mark_get_id().get_name())
                self.marks[at] = MarkedPart(name, depth, outermost(below, depth))
                return below
            case other:
                raise InternalError(f"a schedule tree with a node of type {other}")


def children(node: isl.ScheduleNode) -> Iterator[isl.ScheduleNode]:
    """The children of a node."""
    for n in range(node.n_children()):
        yield node.child(n)


def _origin(domain: isl.UnionSet) -> isl.UnionSet:
    """The one point of no dimensions."""
    space = domain.get_space().set_from_params()
    return isl.Set.universe(space).to_union_set()


def _joined(parts: Iterator[isl.UnionMap]) -> isl.UnionMap:
    out: isl.UnionMap | None = None
    for part in parts:
        out = part if out is None else out.union(part)
    return isl.UnionMap.empty(isl.Space.params_alloc(CONTEXT, 0)) if out is None else out


def outermost(times: isl.UnionMap, depth: int) -> isl.UnionMap:
    """The first ``depth`` dimensions of every map's range."""
    found = []
    for m in maps_of(times):
        found.append(m.project_out(DIM.out, depth, m.dim(DIM.out) - depth))
    return union_map(found)
