"""Budgets of isl: a count of its operations, which is the same in every run, and a time behind it.

An operation is an allocation of isl's: between two of them it may pivot tables of any size, so that a
million takes from 0.05 to ten seconds. What is not answered within few operations is tried in a process of
its own (:mod:`tilewright.poly.child`), which is ended after some seconds of a processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import TracebackType
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

import islpy as isl

from tilewright.poly.child import EndedError, SpentError, asked_apart
from tilewright.poly.spaces import CONTEXT
from tilewright.support import ResourceError

OPERATIONS: Final = 200_000_000
"""Limit on isl's operations of one question (ten seconds where they are quick)."""
AT_ONCE: Final = 2_000_000
"""Operations that are tried at once (0.1 seconds in the rule): few questions take more."""
FIRST: Final = 50_000
STEP: Final = 4
"""So many are tried first, then so many times as many: how long they take grows without limit."""
AT_ONCE_SECONDS: Final = 2.0
"""Seconds that the next try at once may be expected to take: after these the process of its own is better."""
SECONDS: Final = 20
"""Seconds of a processor of one question."""

# isl tells by the text alone why it gave up; some wrappers leave even that out
_SPENT: Final = "maximal number of operations exceeded"
_NO_MEMORY: Final = "allocation failure"

T = TypeVar("T")
P = ParamSpec("P")


class _Named(Protocol):
    """What questions are about: a model, or something that has one."""

    @property
    def name(self) -> str: ...


S = TypeVar("S", bound=_Named)


def is_spent(error: isl.Error) -> bool:
    """Whether isl gave up because the budget around is spent: then nothing else works either."""
    return _SPENT in str(error) or _nothing_works()


def _nothing_works() -> bool:
    try:
        isl.Val.int_from_si(CONTEXT, 1).add(isl.Val.int_from_si(CONTEXT, 1))
        isl.Set.universe(isl.Space.set_alloc(CONTEXT, 0, 1)).subtract(isl.Set("{ [i] : i > 0 }"))
    except isl.Error:
        return True
    return False


def bounded(
    question: Callable[[], T],
    what: str,
    hint: str = "",
    *,
    operations: int = OPERATIONS,
    seconds: int = SECONDS,
) -> T:
    """The answer to a question to isl; it may be asked more than once, and must then answer the same.

    Raises ResourceError, saying ``what`` was too much, where isl needs more than ``operations``, more than
    ``seconds`` of a processor, or too much memory. Inside of another question only what is small has a limit
    of its own: else the outer one holds.
    """
    if CONTEXT.get_max_operations() and operations > AT_ONCE:
        return question()
    try:
        if operations <= AT_ONCE:
            return counted(question, operations)
        try:
            return _at_once(question)
        except SpentError:
            asked_apart(lambda: counted(lambda: _answered(question), operations), seconds)
        return counted(question, operations)
    except SpentError:
        raise ResourceError(f"{what}: isl gave up after {operations} operations", hint=hint) from None
    except EndedError:
        raise ResourceError(f"{what}: {ended_after(seconds)}", hint=hint) from None


def limited(
    what: str, hint: str = ""
) -> Callable[[Callable[Concatenate[S, P], T]], Callable[Concatenate[S, P], T]]:
    """A function of which each call is a question, as :func:`bounded` asks it.

    ``{}`` in ``what`` becomes the name of the first argument.
    """

    def asking(function: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
        @wraps(function)
        def ask(about: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return bounded(lambda: function(about, *args, **kwargs), what.format(about.name), hint)

        return ask

    return asking


@contextmanager
def uncounted() -> Iterator[None]:
    """Operations that do not count: of what isl does not survive to be ended in, and which takes few."""
    most = CONTEXT.get_max_operations()
    CONTEXT.set_max_operations(0)
    try:
        yield
    finally:
        CONTEXT.set_max_operations(most)


def _at_once(question: Callable[[], T]) -> T:
    """The answer within :data:`AT_ONCE` operations, or SpentError, also where they turn out to be slow."""
    operations = min(FIRST, AT_ONCE)
    while True:
        begin = time.thread_time()
        try:
            return counted(question, operations)
        except SpentError:
            if operations == AT_ONCE or STEP * (time.thread_time() - begin) > AT_ONCE_SECONDS:
                raise
        operations = min(STEP * operations, AT_ONCE)


def ended_after(seconds: int) -> str:
    """What is said of a question that was ended."""
    return f"isl was ended after {seconds} seconds, or for want of memory"


def counted(question: Callable[[], T], operations: int) -> T:
    """The answer within so many operations, or SpentError or MemoryError.

    The count of a question around begins anew.
    """
    with _Count(operations):
        return question()


class _Count:
    """A count of operations: once it is spent, whatever came of the question after that does not count.

    Some wrappers then return nothing in place of raising, on which Python ends with errors of its own.
    """

    def __init__(self, operations: int) -> None:
        self._operations = operations
        self._around = CONTEXT.get_max_operations()

    def __enter__(self) -> None:
        CONTEXT.reset_operations()
        CONTEXT.set_max_operations(self._operations)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        spent = (kind is None or issubclass(kind, Exception)) and _nothing_works()
        CONTEXT.set_max_operations(self._around)
        CONTEXT.reset_operations()
        if isinstance(error, isl.Error) and _NO_MEMORY in str(error):
            raise MemoryError from error
        if spent:
            raise SpentError from error


def _answered(question: Callable[[], object]) -> str:
    """No answer, but that there is one: the process that asks finds it then by itself."""
    question()
    return ""
