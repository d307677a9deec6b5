"""What a primitive is, and how one is declared.

A primitive is one file with one function: ``(func: LoopFunction, ...) -> LoopFunction`` in the loop phase or
``(program: Program, ...) -> Program`` in the program phase, decorated with :func:`primitive`. Its further
arguments are JSON values only: loops, blocks and buffers are named. One that is called ``operations`` gets
the instructions of the schedule's target, and is not recorded. :mod:`tilewright.schedule.catalog` lists
all of them: each is a method of :class:`~tilewright.schedule.Schedule`.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import (
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from tilewright.support import ScheduleError, suggestion, whole_number

Phase = Literal["program", "loop"]
Scalar: TypeAlias = "str | int | float | bool | None"
Value: TypeAlias = "Scalar | tuple[Value, ...]"

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Schedule = TypeVar("_Schedule", bound="_Applies")
_Arguments = ParamSpec("_Arguments")
_MARK = "__tilewright_primitive__"
OPERATIONS = "operations"


@dataclass(frozen=True, slots=True)
class Primitive:
    """A registered primitive: its name, its phase, the function and the parameters after the first."""

    name: str
    phase: Phase
    function: Callable[..., Any]
    parameters: tuple[inspect.Parameter, ...]
    types: Mapping[str, Any]
    on_target: bool = False
    """Whether the function takes the ``operations`` of the schedule's target, which are not recorded."""

    def normalise(
        self, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> tuple[tuple[Value, ...], tuple[tuple[str, Value], ...]]:
        """Arguments in their one canonical form: required ones by position, others by name unless default.

        Raises ScheduleError for a missing, unknown or wrongly typed argument.
        """
        positional: list[Value] = []
        named: list[tuple[str, Value]] = []
        left = dict(kwargs)
        at = 0
        for p in self.parameters:
            if p.kind is p.VAR_POSITIONAL:
                positional.extend(self._value(p.name, a) for a in args[at:])
                at = len(args)
            elif p.kind is not p.KEYWORD_ONLY and at < len(args):
                if p.name in left:
                    raise ScheduleError(f"{self.name}: argument {p.name!r} is given twice")
                self._place(p, self._value(p.name, args[at]), positional, named)
                at += 1
            elif p.name in left:
                self._place(p, self._value(p.name, left.pop(p.name)), positional, named)
            elif p.default is p.empty:
                raise ScheduleError(f"{self.name}: argument {p.name!r} is missing", hint=self.usage())
        if at < len(args):
            raise ScheduleError(f"{self.name}: {len(args) - at} arguments too many", hint=self.usage())
        if left:
            word = next(iter(left))
            known = [p.name for p in self.parameters]
            raise ScheduleError(
                f"{self.name} has no argument {word!r}", hint=suggestion(word, known) or self.usage()
            )
        return tuple(positional), tuple(named)

    def _place(
        self,
        p: inspect.Parameter,
        value: Value,
        positional: list[Value],
        named: list[tuple[str, Value]],
    ) -> None:
        if p.default is p.empty and p.kind is not p.KEYWORD_ONLY:
            positional.append(value)
        elif type(value) is not type(p.default) or value != p.default:
            named.append((p.name, value))

    def _value(self, name: str, given: object) -> Value:
        try:
            value = _frozen(given)
        except TypeError:
            raise ScheduleError(
                f"{self.name}: argument {name!r} is {_short(given)}, which a trace cannot record",
                hint="loops, blocks and buffers are given by name; use strings, numbers and lists of them",
            ) from None
        if not _fits(value, self.types[name]):
            raise ScheduleError(
                f"{self.name}: argument {name!r} cannot be {_short(given)}",
                hint=f"expected {_spelled(self.types[name])}",
            )
        return value

    def usage(self) -> str:
        """The call as one line: ``split(loop, factor, *, tail='guard', names=())``."""
        shown = [p.replace(annotation=p.empty) for p in self.parameters]
        return f"{self.name}{inspect.Signature(shown)}"


def primitive(name: str, *, phase: Phase) -> Callable[[_Function], _Function]:
    """Declare the decorated function as the primitive ``name`` of a phase; returns the function itself."""

    def mark(function: _Function) -> _Function:
        setattr(function, _MARK, (name, phase))
        return function

    return mark


class _Applies(Protocol):
    def apply(self, primitive: str, *args: object, **kwargs: object) -> Self: ...


def method(
    function: Callable[Concatenate[Any, _Arguments], object],
) -> Callable[Concatenate[_Schedule, _Arguments], _Schedule]:
    """The method of a schedule that applies a primitive, whose signature and text it takes."""

    @wraps(function)
    def applied(schedule: _Schedule, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Schedule:
        return schedule.apply(function.__name__, *args, **kwargs)

    return applied


def primitive_of(function: Callable[..., Any]) -> Primitive:
    """The :class:`Primitive` of a decorated function; ``ValueError`` where it is not one."""
    found = getattr(function, _MARK, None)
    if found is None:
        raise ValueError(f"{function!r} is not decorated with @primitive")
    name, phase = found
    given = tuple(inspect.signature(function).parameters.values())[1:]
    parameters = tuple(p for p in given if p.name != OPERATIONS)
    return Primitive(
        name, phase, function, parameters, get_type_hints(function), len(parameters) < len(given)
    )


def _short(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _frozen(value: object) -> Value:
    """A JSON-like value with lists as tuples; ``TypeError`` for anything else."""
    if (whole := whole_number(value)) is not None:
        return whole
    if value is None or isinstance(value, str | bool | float):
        return value
    if isinstance(value, list | tuple):
        return tuple(_frozen(v) for v in value)
    raise TypeError


def _fits(value: Value, kind: Any) -> bool:
    """Whether a value is of an annotated type built of scalars, literals, unions, tuples and sequences."""
    if kind is None or kind is type(None):
        return value is None
    if kind is Any or kind is object:
        return True
    origin = get_origin(kind)
    if origin is Literal:
        return any(value == option and type(value) is type(option) for option in get_args(kind))
    if origin in (Union, types.UnionType):
        return any(_fits(value, option) for option in get_args(kind))
    if origin is tuple:
        items = get_args(kind)
        if not isinstance(value, tuple):
            return False
        if len(items) == 2 and items[1] is Ellipsis:
            return all(_fits(v, items[0]) for v in value)
        return len(items) == len(value) and all(_fits(v, k) for v, k in zip(value, items, strict=True))
    if origin in (Sequence, list):
        return isinstance(value, tuple) and all(_fits(v, get_args(kind)[0]) for v in value)
    if kind is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(kind, type) and isinstance(value, kind)


def _spelled(kind: Any) -> str:
    if kind is type(None):
        return "None"
    origin = get_origin(kind)
    if origin is Literal:
        return " | ".join(repr(o) for o in get_args(kind))
    if origin in (Union, types.UnionType):
        return " | ".join(_spelled(o) for o in get_args(kind))
    if origin in (Sequence, list):
        return f"a list of {_spelled(get_args(kind)[0])}"
    if origin is tuple:
        items = get_args(kind)
        if len(items) == 2 and items[1] is Ellipsis:
            return f"a list of {_spelled(items[0])}"
        return f"({', '.join(_spelled(i) for i in items)})"
    return kind.__name__ if isinstance(kind, type) else str(kind)
