"""The settings, and the only reader of the environment.

Every setting is one field of `Settings` and one variable `TILEWRIGHT_<FIELD>`. `read_settings` is cheap and
holds no state: a program reads once, and passes the value on.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from tilewright.support.errors import SettingsError
from tilewright.support.pretty import known_names

PREFIX: Final = "TILEWRIGHT_"

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


class WaitPolicy(Enum):
    """What an idle worker thread does, as OpenMP's `OMP_WAIT_POLICY`."""

    ACTIVE = "active"
    """Spins for long before it sleeps: lowest latency."""
    PASSIVE = "passive"
    """Sleeps almost at once: leaves the cores to others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, with the defaults of an empty environment."""

    cache_dir: Path
    """Folder of compiled objects and records: `$XDG_CACHE_HOME/tilewright` or `~/.cache/tilewright`."""
    cache: bool = True
    """Whether compiled objects are kept on disk."""
    threads: int | None = None
    """Threads of a parallel loop; None is one for each CPU this process may use."""
    wait_policy: WaitPolicy = WaitPolicy.ACTIVE
    """What idle worker threads do."""
    pin_threads: bool = False
    """Whether worker threads are bound to CPUs. The calling thread never is."""
    compile_jobs: int | None = None
    """Processes that compile; None chooses from the CPUs this process may use."""
    records: str = ""
    """The database of tuning: a path, or `off`; empty is `records.db` in the cache folder."""
    log_level: str = "WARNING"
    """Least level of messages the command line shows."""

    @property
    def thread_count(self) -> int:
        """Threads of a parallel loop, the default resolved."""
        return self.threads if self.threads is not None else available_cpus()

    @property
    def records_path(self) -> Path | None:
        """The database that tuning writes and compilations take plans from; None where it is switched off."""
        if self.records.lower() in _FALSE:
            return None
        return Path(self.records).expanduser() if self.records else self.cache_dir / "records.db"


def available_cpus() -> int:
    """CPUs this process may use: those it may run on, no more than its control group's quota of CPU time."""
    cpus = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    return cpus if quota is None else max(1, min(cpus, math.ceil(quota)))


def cpu_quota(root: Path = Path("/")) -> float | None:
    """How many CPUs' time the control groups of this process get; None where nothing limits it.

    Of both versions: ``cpu.max`` holds quota and period, ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us`` one
    each; the least of a group and those around it counts. ``root`` is where ``proc`` and ``sys`` are.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    found: list[float] = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / (controllers and "cpu")
        folder = mount / group.strip("/")
        for place in (folder, *folder.parents):
            if not place.is_relative_to(mount):
                break
            found += _quota_of(place)
    return min(found, default=None)


def _quota_of(folder: Path) -> list[float]:
    """What one group states, if anything."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text(encoding="ascii")
            period = (folder / "cpu.cfs_period_us").read_text(encoding="ascii")
        return [int(quota) / int(period)] if int(quota) > 0 and int(period) > 0 else []
    except (OSError, ValueError):
        return []


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings that the environment (or the given mapping) states.

    Raises SettingsError for a variable with the prefix that is not a setting, or whose value cannot be read.
    """
    given = os.environ if environ is None else environ
    readers = _readers()
    values: dict[str, object] = {}
    for variable in sorted(given):
        if not variable.startswith(PREFIX):
            continue
        field = variable.removeprefix(PREFIX).lower()
        if field not in readers or variable != variable.upper():
            known = [PREFIX + name.upper() for name in readers]
            raise SettingsError(
                f"there is no setting {variable}",
                hint=known_names(variable, known, "the settings"),
            )
        text = given[variable].strip()
        try:
            values[field] = readers[field](text)
        except ValueError as error:
            raise SettingsError(f"{variable}={text!r}: {error}") from None
    if "cache_dir" not in values:
        values["cache_dir"] = _default_cache_dir(given)
    return Settings(**values)  # type: ignore[arg-type]  # each reader returns its field's type


def _readers() -> dict[str, Callable[[str], object]]:
    readers: dict[str, Callable[[str], object]] = {
        "cache_dir": _path,
        "cache": _flag,
        "threads": _positive,
        "wait_policy": lambda text: _member(WaitPolicy, text),
        "pin_threads": _flag,
        "compile_jobs": _positive,
        "records": _records,
        "log_level": _level,
    }
    assert set(readers) == {field.name for field in dataclasses.fields(Settings)}
    return readers


def _default_cache_dir(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if base and Path(base).is_absolute() else _home(environ) / ".cache"
    return root / "tilewright"


def _home(environ: Mapping[str, str]) -> Path:
    if environ.get("HOME"):
        return Path(environ["HOME"])
    try:
        return Path.home()
    except RuntimeError:  # a user whom the system has not listed, as in containers
        raise SettingsError(
            "there is no home folder for the cache: HOME is not set, and this user has no entry",
            hint="set HOME, or TILEWRIGHT_CACHE_DIR to a folder",
        ) from None


def _path(text: str) -> Path:
    if not text:
        raise ValueError("expected a folder")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError("there is no home folder of that user") from None


def _records(text: str) -> str:
    return str(_path(text)) if text.startswith("~") else text


def _flag(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("expected 0 or 1")


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError("expected a whole number from 1")
    return int(text)


def _member(kind: type[Enum], text: str) -> Enum:
    for member in kind:
        if member.value == text.lower():
            return member
    raise ValueError(f"expected one of {', '.join(str(member.value) for member in kind)}")


def _level(text: str) -> str:
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    if text.upper() not in levels:
        raise ValueError(f"expected one of {', '.join(levels)}")
    return text.upper()
