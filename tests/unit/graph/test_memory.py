"""Memory plans: no two tensors alive at one step overlap, and bytes are reused."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, strategies as st

from tilewright.graph.memory import ALIGNMENT, MemoryPlan, Step, live_bytes, plan_memory
from tilewright.support import InternalError


def _run(steps: list[Step], sizes: dict[str, int], kept: set[str], plan: MemoryPlan) -> None:
    """Execute the steps on an arena of markers: what a step reads must still be what was written."""
    owner: dict[int, str] = {}
    for step in steps:
        for tensor in step.reads:
            if tensor in sizes:
                begin = plan.offsets[tensor]
                assert all(owner[at] == tensor for at in range(begin, begin + sizes[tensor])), tensor
        spans = [(plan.offsets[t], plan.offsets[t] + sizes[t]) for t in step.writes if t in sizes]
        allowed = set(step.in_place)
        for tensor in step.writes:
            if tensor not in sizes:
                continue
            begin = plan.offsets[tensor]
            for read in step.reads:
                if read in sizes and sizes[read] and sizes[tensor] and read != tensor:
                    other = plan.offsets[read]
                    overlap = begin < other + sizes[read] and other < begin + sizes[tensor]
                    assert not overlap or ((tensor, read) in allowed and begin == other)
            for at in range(begin, begin + sizes[tensor]):
                owner[at] = tensor
        for i, (b0, e0) in enumerate(spans):
            for b1, e1 in spans[i + 1 :]:
                assert e0 <= b1 or e1 <= b0 or b0 == e0 or b1 == e1
    for tensor in kept & set(plan.offsets):
        begin = plan.offsets[tensor]
        assert all(owner[at] == tensor for at in range(begin, begin + sizes[tensor]))


@st.composite
def _runs(draw: st.DrawFn) -> tuple[list[Step], dict[str, int], set[str]]:
    count = draw(st.integers(1, 14))
    steps: list[Step] = []
    made: list[str] = []
    sizes: dict[str, int] = {}
    for at in range(count):
        reads = draw(st.lists(st.sampled_from(made), max_size=3, unique=True)) if made else []
        writes = [f"t{at}.{k}" for k in range(draw(st.integers(0, 2)))]
        for tensor in writes:
            sizes[tensor] = draw(st.sampled_from([0, 1, 4, 64, 65, 100, 128, 200]))
        pairs = [(w, r) for w in writes for r in reads if draw(st.booleans())]
        steps.append(Step(tuple(reads), tuple(writes), tuple(pairs)))
        made += writes
    kept = set(draw(st.lists(st.sampled_from(made), unique=True))) if made else set()
    elsewhere = set(draw(st.lists(st.sampled_from(made), max_size=2, unique=True))) if made else set()
    return steps, {t: s for t, s in sizes.items() if t not in elsewhere}, kept


@given(_runs())
def test_live_tensors_never_overlap(run: tuple[list[Step], dict[str, int], set[str]]) -> None:
    steps, sizes, kept = run
    plan = plan_memory(steps, sizes, kept)
    assert set(plan.offsets) == set(sizes)
    assert all(offset % ALIGNMENT == 0 for offset in plan.offsets.values())
    assert all(plan.offsets[t] + sizes[t] <= plan.size for t in sizes)
    assert plan.size <= sum(-(-s // ALIGNMENT) * ALIGNMENT for s in sizes.values())
    if not plan.shared:
        assert plan.size >= live_bytes(steps, sizes, kept)
    _run(steps, sizes, kept, plan)


@given(_runs())
def test_the_plan_is_repeatable(run: tuple[list[Step], dict[str, int], set[str]]) -> None:
    steps, sizes, kept = run
    assert plan_memory(steps, sizes, kept) == plan_memory(steps, dict(reversed(sizes.items())), kept)


def test_a_chain_needs_two_buffers() -> None:
    steps = [Step((), ("a",)), Step(("a",), ("b",)), Step(("b",), ("c",)), Step(("c",), ("d",))]
    plan = plan_memory(steps, dict.fromkeys("abcd", 256))
    assert plan.size == 512


def test_a_chain_in_place_needs_one() -> None:
    steps = [
        Step((), ("a",)),
        Step(("a",), ("b",), (("b", "a"),)),
        Step(("b",), ("c",), (("c", "b"),)),
    ]
    plan = plan_memory(steps, dict.fromkeys("abc", 256))
    assert plan.size == 256
    assert plan.shared == {"b": "a", "c": "b"}


def test_what_is_read_later_is_not_overwritten() -> None:
    steps = [Step((), ("a",)), Step(("a",), ("b",), (("b", "a"),)), Step(("a", "b"), ("c",))]
    plan = plan_memory(steps, dict.fromkeys("abc", 64))
    assert "b" not in plan.shared
    assert plan.offsets["a"] != plan.offsets["b"]


def test_a_small_tensor_takes_the_smallest_gap() -> None:
    steps = [
        Step((), ("big", "x", "small", "y")),
        Step(("big", "x", "small", "y"), ("keep",)),
        Step(("x", "y", "keep"), ("new",)),
        Step(("x", "y", "new", "keep"), ()),
    ]
    sizes = {"big": 640, "x": 320, "small": 128, "y": 320, "keep": 64, "new": 128}
    plan = plan_memory(steps, sizes)
    assert plan.offsets["new"] == plan.offsets["small"] or plan.offsets["new"] >= plan.offsets["big"]


@given(_runs(), st.randoms(use_true_random=False))
def test_kinds_never_share_bytes(run: tuple[list[Step], dict[str, int], set[str]], random: Random) -> None:
    steps, sizes, kept = run
    kinds = {tensor: random.randrange(3) for tensor in sizes}
    plan = plan_memory(steps, sizes, kept, kinds)
    _run(steps, sizes, kept, plan)
    spans = [(plan.offsets[t], plan.offsets[t] + sizes[t], kinds[t]) for t in sizes if sizes[t]]
    for at, (begin, end, kind) in enumerate(spans):
        assert end <= plan.size
        assert all(kind == k or end <= b or e <= begin for b, e, k in spans[at:])


def test_reading_what_was_never_written_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="'a'"):
        plan_memory([Step(("a",), ("b",))], {"a": 4, "b": 4})
