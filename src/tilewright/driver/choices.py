"""What callers choose when compiling: target, threads, precision, methods, checked."""

from __future__ import annotations

import os

from tilewright.driver.units import PRECISIONS, Precision
from tilewright.support import InputError, Settings, TargetError, whole_number
from tilewright.target import HOST, CpuTarget, GpuTarget, TargetBase, detect, find_target


def chosen_target(target: str | TargetBase) -> CpuTarget | GpuTarget:
    """The target, which must be one that this machine can run, or have a device for.

    Raises TargetError for others.
    """
    if not isinstance(target, str | TargetBase):
        raise TargetError(f"a target is a name or a target, not {type(target).__name__}")
    found = find_target(target) if isinstance(target, str) else target
    if isinstance(found, GpuTarget):
        return found
    assert isinstance(found, CpuTarget)  # there are two kinds
    if target == HOST:
        return found
    host = detect()
    lacking = sorted(found.features - host.features) if found.arch == host.arch else [found.arch]
    if lacking:
        raise TargetError(
            f"target {found.name!r} cannot run on this machine, which lacks {', '.join(lacking)}",
            hint="compiling for another machine is not possible yet; use target='cpu'",
        )
    return found


def chosen_threads(threads: int | None, settings: Settings) -> int:
    """The threads of a run, by default those of the settings. Raises InputError for what is no count."""
    if threads is None:
        return settings.thread_count
    count = whole_number(threads)
    if count is None or count < 1:
        raise InputError(f"threads must be a whole number from 1, got {threads!r}")
    return count


def chosen_precision(name: str) -> Precision:
    """The precision of that name. Raises InputError where there is none."""
    for known in PRECISIONS:
        if name == known:
            return known
    raise InputError(f"there is no precision {name!r}", hint=f"they are {', '.join(PRECISIONS)}")


def physical_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
