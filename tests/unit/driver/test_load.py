"""Others' use of the CPUs, read from what the kernel counts."""

import os
import time
from pathlib import Path

import pytest

from tilewright.driver import OtherLoad


def _stat(path: Path, busy: float, ticks: int = os.sysconf("SC_CLK_TCK")) -> None:
    """So many seconds in which each CPU of this process was busy; the others were busy all the time."""
    lines = ["cpu  1 2 3 4"]
    for cpu in range(max(os.sched_getaffinity(0)) + 3):
        mine = cpu in os.sched_getaffinity(0)
        lines.append(f"cpu{cpu} {int(busy * ticks) if mine else 10**9} 0 0 777 55 0 0 0 9999 0")
    path.write_text("\n".join(lines))


class _Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall = self.own = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.wall)
        monkeypatch.setattr(time, "process_time", lambda: self.own)


def test_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stat, cpus = _Clock(monkeypatch), tmp_path / "stat", len(os.sched_getaffinity(0))
    for own, every, wanted in ((0.0, 0.0, 0.0), (2.0, 2.0 / cpus, 0.0), (0.0, 2.0, 1.0), (0.0, 0.5, 0.25)):
        _stat(stat, 100.0)
        load = OtherLoad(stat)
        with load:
            clock.wall += 2.0
            clock.own += own
            _stat(stat, 100.0 + every)
        assert load.share == pytest.approx(wanted, abs=0.02)
        assert bool(load.warning) == (wanted >= 0.1)
    assert "25% of the CPUs" in load.warning


def test_blocks_are_summed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stat = _Clock(monkeypatch), tmp_path / "stat"
    load = OtherLoad(stat)
    for busy in (0.0, 1.0):
        _stat(stat, 5.0)
        with load:
            clock.wall += 1.0
            _stat(stat, 5.0 + busy)
    assert load.share == pytest.approx(0.5)


def test_nothing_is_said_of_short_times_or_unknown_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock(monkeypatch)
    for path, seconds in ((tmp_path / "none", 5.0), (Path("/proc/stat"), 0.05)):
        with (load := OtherLoad(path)):
            clock.wall += seconds
        assert load.share is None
        assert not load.warning
