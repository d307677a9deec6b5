"""What was measured on this machine, kept beside its fingerprint: ``calibration.json`` in the cache folder.

    {"format": "tilewright-calibration", "version": 1, "machines": {FINGERPRINT: {QUANTITY: VALUE...}...}}

Values are kept as they were measured; decisions are made from the classes that they lie in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tilewright.support import ArtefactError, get_logger, read_settings, replacing
from tilewright.target.cpu import CpuTarget
from tilewright.target.quantities import Quantities, quantities_from_data

FORMAT: Final = "tilewright-calibration"
VERSION: Final = 1
#: Longest file that is read: far above that of a thousand machines.
MAX_BYTES: Final = 1 << 22

_log = get_logger("target")


def calibration_path() -> Path:
    """Where measurements of this machine are kept."""
    return read_settings().cache_dir / "calibration.json"


def calibrated(target: CpuTarget, path: Path | None = None) -> CpuTarget:
    """The target with what was measured on it; as it is where nothing was, or what was kept is damaged."""
    place = calibration_path() if path is None else path
    try:
        machines = _read(place)
    except ArtefactError as error:
        _log.warning("measured quantities are not used: %s", error)
        return target
    found = machines.get(target.fingerprint) if machines else None
    return target if found is None else target.with_quantities(found.rounded())


def keep_calibration(target: CpuTarget, measured: Quantities | None, path: Path | None = None) -> Path:
    """Keep what was measured, in place of what was before; ``None``: the table's quantities count again.

    Returns the file. Raises OSError where it cannot be written.
    """
    place = calibration_path() if path is None else path
    try:
        machines = _read(place)
    except ArtefactError as error:
        _log.warning("what was kept is replaced: %s", error)
        machines = {}
    machines.pop(target.fingerprint, None)
    if measured is not None:
        machines[target.fingerprint] = measured
    rows = {key: each.to_data() for key, each in sorted(machines.items())}
    place.parent.mkdir(parents=True, exist_ok=True)
    with replacing(place) as stream:
        data = {"format": FORMAT, "version": VERSION, "machines": rows}
        stream.write((json.dumps(data, indent=1) + "\n").encode("ascii"))
    return place


def _read(path: Path) -> dict[str, Quantities]:
    """What a file keeps, by fingerprints; nothing where there is none.

    Raises ArtefactError that names the file and what is wrong.
    """
    hint = "`tilewright targets --calibrate` writes it again"
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
        data = json.loads(text) if len(text) <= MAX_BYTES else None
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, Mapping) or (data.get("format"), data.get("version")) != (FORMAT, VERSION):
        raise ArtefactError(f"{path} holds no measured quantities of version {VERSION}", hint=hint)
    machines = data.get("machines")
    if not isinstance(machines, Mapping):
        raise ArtefactError(f"{path}: 'machines' are no quantities by fingerprints", hint=hint)
    try:
        return {key: quantities_from_data(row) for key, row in machines.items()}
    except ArtefactError as error:
        raise ArtefactError(f"{path}: {error.what}", hint=hint) from None
