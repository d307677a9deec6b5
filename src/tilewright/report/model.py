"""What a compiled model is, measured once: its kernels beside their limits, its layouts and its graph."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from tilewright import __version__
from tilewright.build import KernelDescription
from tilewright.driver import CompiledModel, GroupInfo, KernelProfile, Limits, Profile, network_of
from tilewright.ir import print_function
from tilewright.plan import Reasons
from tilewright.report.content import Content, Kernel, Price
from tilewright.support import available_cpus
from tilewright.target import TargetBase, detect

#: Longest text of a kernel's loops that is shown; schedules and plans are shown whole.
LONGEST_LOOPS: Final = 20_000
#: Kernels of which other ways are priced take this part of the time or more, and how many ways are shown.
PRICED: Final = 0.05
MOST_OTHERS: Final = 8


def of_model(compiled: CompiledModel, profile: Profile, others_cpu: float | None = None) -> Content:
    """The report of a model from a profile of it, with limits if it has them.

    ``others_cpu`` is the part of the CPUs that others used meanwhile.
    """
    groups = compiled.groups()
    described = compiled.descriptions()
    kernels = tuple(
        _kernel(group, each, row, row.milliseconds >= PRICED * profile.total)
        for group, each, row in zip(groups, described, profile.rows, strict=True)
    )
    network = replace(network_of(compiled, [each.key for each in kernels]), untuned=profile.total / 1e3)
    limits = profile.limits
    return Content(
        title=f"{compiled.name}: {len(groups)} kernels",
        kind="model",
        made=now(),
        facts=(
            *machine_facts(compiled.target, compiled.threads, others_cpu),
            ("Precision", compiled.precision),
            ("Compiled in", f"{compiled.compile_seconds['total']:.2f} s"),
            ("Intermediate memory", f"{compiled.run_bytes / 1e6:.1f} MB"),
            ("Packed weights", f"{compiled.constant_bytes / 1e6:.1f} MB"),
        ),
        kernels=kernels,
        networks=(network,),
        peak=None if limits is None else limits.gflops * 1e9,
        bandwidth=None if limits is None else from_memory(limits),
        untuned=profile.total / 1e3,
    )


def machine_facts(
    target: TargetBase, threads: int | None, others_cpu: float | None
) -> tuple[tuple[str, str], ...]:
    """What was measured where, and how quiet it was there."""
    facts = [
        ("Machine", f"{detect().llvm_cpu}, {available_cpus()} CPUs"),
        ("Target", f"{target.name}, {target.fingerprint[:16]}"),
        ("Versions", f"Tilewright {__version__}, Python {platform.python_version()}"),
    ]
    if threads is not None:
        facts.insert(2, ("Threads", str(threads)))
    if others_cpu is not None:
        facts.append(("Others' use of the CPUs", f"{others_cpu:.0%}"))
    return tuple(facts)


def now() -> str:
    """The date and the time of day."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _kernel(group: GroupInfo, described: KernelDescription, row: KernelProfile, priced: bool) -> Kernel:
    loops = print_function(group.kernel.loops())
    decided = group.kernel.decided()
    return Kernel(
        name=group.label,
        key=str(group.index),
        nodes=group.nodes,
        operators=group.operators,
        flops=float(row.flops),
        nbytes=float(row.nbytes),
        untuned=row.milliseconds / 1e3,
        limit=None if row.limit is None else row.limit / 1e3,
        algorithm=described.algorithm,
        layouts=described.layouts,
        plan="" if decided is None else str(decided[1]),
        schedule=group.kernel.schedule.trace.to_python(),
        loops=loops if len(loops) <= LONGEST_LOOPS else loops[:LONGEST_LOOPS] + "\n…",
        prices=tuple(price for each in group.reasons() for price in _prices(each)) if priced else (),
    )


def _prices(reasons: Reasons) -> Iterator[Price]:
    """What was taken, then the cheapest of the others."""
    known = [each for each in (reasons.taken, *reasons.others) if each.seconds is not None]
    for each in known[: 1 + MOST_OTHERS]:
        yield Price(reasons.root, each.change, each.seconds or 0.0, tuple(each.terms.items()))


def from_memory(limits: Limits) -> float:
    """Bytes a second of the largest working set."""
    return min(limits.read.values()) * 1e9
