"""The one hierarchy of errors.

`UserError`: the model, the program, the schedule, an input or a setting is at fault; the message says what is
wrong, where, and what to do. `InternalError`: Tilewright is at fault; a report is welcome. Nothing else is
raised on purpose; a command line shows the first kind without a traceback.

    TilewrightError
    ├── UserError
    │   ├── ModelError                  a model file: malformed, oversized, inconsistent
    │   │   └── UnsupportedOperatorError    every node that cannot be compiled, at once
    │   ├── InputError                  arrays given to a compiled model or kernel
    │   ├── ProgramError                a program in the user's language, with its source line
    │   ├── ParseError                  text of a program or a schedule
    │   ├── ScheduleError               a primitive refused, with the program and the offending lines marked
    │   ├── TargetError                 an unknown or unsuitable target
    │   ├── ArtefactError               a record or compiled file that cannot be trusted or read
    │   ├── ResourceError               a stated limit of memory, size or time was exceeded
    │   ├── InstallationError           a part of the package or of the machine is missing
    │   └── SettingsError               an environment variable
    └── InternalError
        └── VerificationError           the verifier found an invariant broken
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.support.pretty import counted, mark_lines, quoted


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of the user's Python (or other) source."""

    path: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}"
        return f"{place}: `{self.text.strip()}`" if self.text.strip() else place


@dataclass(frozen=True, slots=True)
class NodeLocation:
    """A node of the user's model, by the name it has there."""

    name: str
    operator: str

    def __str__(self) -> str:
        return f"node {quoted(self.name)} ({quoted(self.operator)[1:-1]})"


Location = SourceLocation | NodeLocation | str


class TilewrightError(Exception):
    """Base of all errors raised on purpose.

    `what` is one sentence naming the culprit, `where` a place in the user's material, `hint` what to do.
    """

    def __init__(self, what: str, *, where: Location | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = self.what if self.where is None else f"{self.where}: {self.what}"
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class UserError(TilewrightError):
    """What the user gave is at fault."""


class ModelError(UserError):
    """A model file is malformed, oversized or inconsistent."""


class UnsupportedOperatorError(ModelError):
    """Nodes of a model that cannot be compiled: all of them, by name, operator and reason.

    `nodes` holds one `(location, reason)` a node.
    """

    def __init__(
        self, what: str, *, nodes: Sequence[tuple[NodeLocation, str]] = (), hint: str | None = None
    ) -> None:
        super().__init__(what, hint=hint)
        self.nodes = tuple(nodes)

    @classmethod
    def of(cls, nodes: Sequence[tuple[NodeLocation, str]]) -> "UnsupportedOperatorError":
        """The error for these nodes, its message listing each on a line of its own."""
        rows = [f"  {place}: {reason}" for place, reason in nodes]
        return cls("\n".join([f"{counted(len(nodes), 'node')} cannot be compiled:", *rows]), nodes=nodes)


class InputError(UserError):
    """An array given to a compiled model or kernel has the wrong name, shape, dtype or layout."""


class ProgramError(UserError):
    """A program in the user's language is wrong; `where` is the user's source line."""


class ParseError(UserError):
    """Text that should be a program or a schedule is not; `where` names the line of the text."""


class ScheduleError(UserError):
    """A schedule primitive was refused.

    `program` is the program as it stood, printed, and `marked` the offending lines of it, counted from 0.
    Given ``shown`` in their place, which makes both, they are made when they are asked for: a search reads
    none.
    """

    def __init__(
        self,
        what: str,
        *,
        where: Location | None = None,
        hint: str | None = None,
        program: str = "",
        marked: Sequence[int] = (),
        shown: Callable[[], tuple[str, Sequence[int]]] | None = None,
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self._shown = (program, tuple(marked)) if shown is None else shown

    def shown(self) -> tuple[str, Sequence[int]]:
        """The program, printed, and the lines of it that are marked."""
        if callable(self._shown):
            text, marked = self._shown()
            self._shown = text, tuple(marked)
        return self._shown

    @property
    def program(self) -> str:
        """The program as it stood, printed."""
        return self.shown()[0]

    @property
    def marked(self) -> Sequence[int]:
        """The offending lines of it, counted from 0."""
        return self.shown()[1]

    def __reduce__(self) -> str | tuple[object, ...]:
        self.shown()  # what makes it stays here
        return super().__reduce__()

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n{mark_lines(self.program, self.marked)}" if self.program else text


class TargetError(UserError):
    """A target is unknown or cannot do what was asked of it."""


class ArtefactError(UserError):
    """A record, cached object, weight file or exported artefact is unreadable, altered or outdated."""


class ResourceError(UserError):
    """A stated limit of memory, size or time would be exceeded."""


class StoppedError(UserError):
    """A run was ended before it was done: its time was over, or somebody said so."""


class InstallationError(UserError):
    """A part of the package, or something it needs on the machine, is missing."""


class SettingsError(UserError):
    """An environment variable of Tilewright has no such name or no such value."""


class InternalError(TilewrightError):
    """Tilewright itself is at fault."""

    def __str__(self) -> str:
        return f"internal error: {super().__str__()}"


class VerificationError(InternalError):
    """The verifier found an invariant of the representation broken, usually by the pass just run."""
