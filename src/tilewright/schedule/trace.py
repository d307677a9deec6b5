"""Traces: the recorded steps of a schedule as Python text and as versioned JSON.

A trace from a file is untrusted: :func:`trace_from_json` accepts exactly

    {"format": "tilewright-trace", "version": 1,
     "steps": [{"primitive": NAME, "args": [VALUE...], "kwargs": {NAME: VALUE...}}...],
     "instructions": {NAME: DIGEST...}}

where the last says what the instructions meant that steps name, and may be missing. Values are scalars or
lists of values, within the limits below, and primitives exist (older names are read as today's); argument
types are checked against the primitive's signature, and everything else by the primitive itself on replay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import Final

from tilewright.schedule.registry import Primitive, Value
from tilewright.support import ArtefactError, ScheduleError

FORMAT: Final = "tilewright-trace"
VERSION: Final = 1
RENAMED: Final[Mapping[str, str]] = MappingProxyType({"stage": "cache"})
"""Names of primitives in older traces, and what they are called now."""
MAX_BYTES: Final = 1 << 24
"""Longest JSON text read: far above a trace of 10,000 steps."""
MAX_STEPS: Final = 100_000
"""Most steps of a trace read."""
MAX_DEPTH: Final = 6
"""Deepest nesting of lists in an argument."""
MAX_INT: Final = 1 << 62
"""Largest magnitude of an integer argument."""


@dataclass(frozen=True, slots=True)
class Step:
    """One applied primitive with its arguments in canonical form."""

    primitive: str
    args: tuple[Value, ...] = ()
    kwargs: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        parts = [_python(a) for a in self.args] + [f"{k}={_python(v)}" for k, v in self.kwargs]
        return f"{self.primitive}({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Trace:
    """The steps of a schedule, in order."""

    steps: tuple[Step, ...] = ()
    instructions: tuple[tuple[str, str], ...] = ()
    """The instructions that steps name, with the digests of their rows: what they meant."""

    def __len__(self) -> int:
        return len(self.steps)

    def to_python(self, name: str = "s", source: str = "program") -> str:
        """Python that rebuilds the schedule: ``s = Schedule(program)`` and one line a step."""
        lines = [f"{name} = Schedule({source})", *(f"{name} = {name}.{step}" for step in self.steps)]
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return self.to_python()

    def to_json(self, indent: int | None = None) -> str:
        """The versioned JSON text that :func:`trace_from_json` reads."""
        data: dict[str, object] = {
            "format": FORMAT,
            "version": VERSION,
            "steps": [
                {"primitive": s.primitive, "args": s.args, "kwargs": dict(s.kwargs)} for s in self.steps
            ],
        }
        if self.instructions:
            data["instructions"] = dict(self.instructions)
        return json.dumps(data, indent=indent, allow_nan=False)


def trace_from_json(text: str | bytes, primitives: Mapping[str, Primitive]) -> Trace:
    """Read a trace; raises ArtefactError, naming the step, for anything but the format above."""
    if len(text) > MAX_BYTES:
        raise ArtefactError(
            f"the trace has {len(text)} bytes; at most {MAX_BYTES} are read", hint="is this file a trace?"
        )
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"the trace is not JSON: {error}", hint="is the file complete?") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ArtefactError(f"not a trace: 'format' is not {FORMAT!r}")
    version = data.get("version")
    if type(version) is not int or version != VERSION:
        raise ArtefactError(
            f"the trace has version {version!r}; this Tilewright reads version {VERSION}",
            hint="record the schedule again with this version",
        )
    needed = {"format", "version", "steps"}
    if not needed <= set(data) <= needed | {"instructions"} or not isinstance(data["steps"], list):
        raise ArtefactError("the trace must have exactly 'format', 'version' and a list of 'steps'")
    rows = data.get("instructions", {})
    if (
        not isinstance(rows, dict)
        or len(rows) > MAX_STEPS
        or not all(isinstance(v, str) for v in rows.values())
    ):
        raise ArtefactError("the trace's 'instructions' must be names with digests")
    if len(data["steps"]) > MAX_STEPS:
        raise ArtefactError(f"the trace has {len(data['steps'])} steps; at most {MAX_STEPS} are read")
    steps = tuple(_read_step(n, entry, primitives) for n, entry in enumerate(data["steps"]))
    return Trace(steps, tuple(rows.items()))


def _read_step(number: int, entry: object, primitives: Mapping[str, Primitive]) -> Step:
    where = f"step {number}"
    if not isinstance(entry, dict) or set(entry) != {"primitive", "args", "kwargs"}:
        raise ArtefactError("a step has exactly 'primitive', 'args' and 'kwargs'", where=where)
    name, args, kwargs = entry["primitive"], entry["args"], entry["kwargs"]
    if not isinstance(name, str) or not isinstance(args, list) or not isinstance(kwargs, dict):
        raise ArtefactError("'primitive' is a name, 'args' a list, 'kwargs' an object", where=where)
    name = RENAMED.get(name, name)
    if name not in primitives:
        raise ArtefactError(f"there is no primitive {name[:80]!r}", where=where)
    for value in (*args, *kwargs.values()):
        _check_value(value, where, 0)
    try:
        return Step(name, *primitives[name].normalise(args, kwargs))
    except ScheduleError as error:
        raise ArtefactError(error.what, where=where, hint=error.hint) from None


def _check_value(value: object, where: str, depth: int) -> None:
    if isinstance(value, list):
        if depth >= MAX_DEPTH:
            raise ArtefactError(f"an argument is nested deeper than {MAX_DEPTH} lists", where=where)
        for item in value:
            _check_value(item, where, depth + 1)
    elif isinstance(value, int):
        if abs(value) > MAX_INT:
            raise ArtefactError("an integer argument is out of range", where=where)
    elif isinstance(value, float):
        if not isfinite(value):
            raise ArtefactError("a number is not finite", where=where)
    elif value is not None and not isinstance(value, str):
        raise ArtefactError("an argument is neither a scalar nor a list", where=where)


def _python(value: Value) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=True)
    if isinstance(value, tuple):
        inner = ", ".join(_python(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)
