"""The native thread pool that runs parallel loops."""

import os
import weakref
from ctypes import c_int32
from dataclasses import dataclass, replace
from functools import cache
from types import TracebackType
from typing import Final, Self

from tilewright.runtime.native import library
from tilewright.support import (
    InputError,
    ResourceError,
    Settings,
    WaitPolicy,
    available_cpus,
    read_settings,
    whole_number,
)

ACTIVE_SPIN_NS: Final = 500_000
"""How long an idle thread spins before it sleeps: longer than the gaps between a running model's loops."""
PASSIVE_SPIN_NS: Final = 2_000
"""The same where other work should have the CPU: about what a sleep and a wake-up cost."""
MAX_THREADS: Final = 1024
"""No pool has more threads."""

_CHOICES: Final = f"wait policies are {', '.join(policy.value for policy in WaitPolicy)}"


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """What a pool is like."""

    threads: int
    """Threads that work on a parallel loop, its caller included."""
    spin_ns: int = ACTIVE_SPIN_NS
    """Nanoseconds an idle thread spins before it sleeps."""
    pin: bool = False
    """Whether the workers are bound to CPUs, one each; the calling thread is never bound."""

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= MAX_THREADS:
            raise ValueError(_no_count(self.threads))
        if self.spin_ns < 0:
            raise ValueError(f"spin_ns must be at least 0, got {self.spin_ns}")

    @classmethod
    def of(cls, settings: Settings, threads: int | None = None) -> "PoolOptions":
        """The options that the settings state, with another number of threads if given.

        More threads than CPUs never spin long: each would keep another from its work. Raises ValueError for
        what is no number of threads.
        """
        # a truth value is a number to Python, and 2.0 compares like one
        count = settings.thread_count if threads is None else whole_number(threads)
        if count is None:
            raise ValueError(_no_count(threads))
        active = settings.wait_policy is WaitPolicy.ACTIVE and count <= available_cpus()
        return cls(count, ACTIVE_SPIN_NS if active else PASSIVE_SPIN_NS, settings.pin_threads)


def _no_count(threads: object) -> str:
    return f"threads must be a whole number from 1 to {MAX_THREADS}, got {threads!r}"


class ThreadPool:
    """A persistent pool of native threads.

    Any number of Python threads may run plans on one pool: a parallel loop that finds it taken runs on its
    caller, in the same chunks, with the same result. In a forked child the pool starts its threads anew.
    """

    def __init__(self, options: PoolOptions) -> None:
        """Start the threads. Raises ResourceError if they cannot be had."""
        self.options = options
        cpus = _worker_cpus(options.threads - 1) if options.pin else None
        handle = library().tw_pool_create(options.threads, options.spin_ns, cpus)
        if not handle:
            raise ResourceError(f"cannot start a pool of {options.threads} threads", hint="use fewer threads")
        self.handle: int = handle
        """The native tw_pool."""
        # Not at exit: a thread that still runs a plan then would lose the pool under it.
        weakref.finalize(self, library().tw_pool_destroy, handle).atexit = False

    @property
    def threads(self) -> int:
        """Threads that work on a parallel loop, its caller included."""
        return self.options.threads

    def close(self) -> None:
        """End the threads, after a loop now running. Plans on this pool still run, on their callers."""
        library().tw_pool_shutdown(self.handle)

    def fork_join_ns(self, rounds: int = 1000) -> float:
        """Mean nanoseconds of an empty parallel loop over all threads, in `rounds` of them back to back."""
        return float(library().tw_pool_fork_join_ns(self.handle, rounds))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@cache
def shared_pool(options: PoolOptions) -> ThreadPool:
    """The process's pool with these options, started on first use."""
    return ThreadPool(options)


def pool_for(
    settings: Settings, threads: int | None = None, wait_policy: WaitPolicy | str | None = None
) -> ThreadPool:
    """The process's pool as the settings have it, with another number of threads or wait policy if given.

    Raises InputError for a number of threads or a policy that does not exist.
    """
    try:
        policy = settings.wait_policy if wait_policy is None else WaitPolicy(wait_policy)
    except ValueError:
        raise InputError(f"there is no wait policy {wait_policy!r}", hint=_CHOICES) from None
    try:
        return shared_pool(PoolOptions.of(replace(settings, wait_policy=policy), threads))
    except ValueError as error:
        raise InputError(str(error)) from None


def default_pool(threads: int | None = None) -> ThreadPool:
    """The process's pool as the settings have it, with another number of threads if given."""
    return shared_pool(PoolOptions.of(read_settings(), threads))


def _worker_cpus(workers: int) -> "list[int] | object":
    """One CPU a worker, leaving the first of the process's CPUs to the caller."""
    cpus = sorted(os.sched_getaffinity(0))
    return (c_int32 * max(workers, 1))(*(cpus[(at + 1) % len(cpus)] for at in range(workers)))
