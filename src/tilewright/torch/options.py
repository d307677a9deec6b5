"""What users may say of how modules of torch are compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tilewright.support import InputError, quoted, suggestion


@dataclass(frozen=True, slots=True)
class Options:
    """The options of ``torch.compile(…, backend="tilewright", options={…})`` and of ``from_torch``."""

    threads: int | None = None
    """Threads of a run, as :func:`tilewright.compile` has them."""
    accuracy: str | float = "auto"
    """What may be done instead of direct methods, as :func:`tilewright.compile` has it."""
    strategy: str = "default"
    """What chooses the plans of kernels, as :func:`tilewright.compile` has it."""
    records: Path | str | None = None
    """A database of tuning, as :func:`tilewright.compile` has it."""
    fallback: bool = True
    """Whether torch runs what cannot be compiled; it is an error otherwise."""
    freeze: bool = False
    """Whether weights are packed once where nothing is trained. Updates in place and by `load_state_dict` are
    seen, and lead to another compilation; those through `Tensor.data` are not."""

    def of_models(self) -> dict[str, Any]:
        """Those that :func:`tilewright.compile` has, too."""
        return {name: getattr(self, name) for name in ("threads", "accuracy", "strategy", "records")}

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Options:
        """The options that a mapping says. Raises InputError for one that there is not."""
        known = [each.name for each in fields(cls)]
        for name in given or {}:
            if name not in known:
                hint = suggestion(name, known) or f"the options are {', '.join(known)}"
                raise InputError(f"the back end has no option {quoted(name)}", hint=hint)
        return cls(**(given or {}))
