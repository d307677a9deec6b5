"""Other machines than this one for a whole run of tests: `pytest --machine small`, of what this one can run.

What :func:`tilewright.target.detect` finds then has other caches, no figures of a CPU model, and perhaps no
AVX-512: tests show that read what this machine happens to be. Processes that tests start find the real one.
"""

from dataclasses import dataclass
from pathlib import Path

from tilewright.target import detect


@dataclass(frozen=True, slots=True)
class Machine:
    """Bytes of the first two levels of caches and of the last, and whether there is AVX-512."""

    first: str
    second: str
    last: str
    wide: bool


MACHINES = {
    "small": Machine("32K", "256K", "4096K", wide=False),
    "large": Machine("48K", "2048K", "32768K", wide=True),
    "server": Machine("32K", "1024K", "262144K", wide=True),
}


def pretend(name: str, folder: Path) -> None:
    """Let `detect` find that machine from now on, in files that it reads in place of the kernel's."""
    machine = MACHINES[name]
    caches = (("Data", 1, machine.first), ("Unified", 2, machine.second), ("Unified", 3, machine.last))
    for at, (kind, level, size) in enumerate(caches):
        index = folder / f"cpu0/cache/index{at}"
        index.mkdir(parents=True)
        rows = {"type": kind, "level": level, "size": size, "coherency_line_size": 64}
        for key, value in {**rows, "shared_cpu_list": "0-1" if level == 3 else "0"}.items():
            (index / key).write_text(f"{value}\n")
    defaults = detect.__kwdefaults__
    cpuinfo = folder / "cpuinfo"
    lines = defaults["cpuinfo"].read_text(errors="replace").split("\n\n", 1)[0].splitlines()
    left_out = ("amx_", "amx-") if machine.wide else ("amx_", "amx-", "avx512", "avx_vnni")
    kept = (" ".join(word for word in line.split(" ") if not word.startswith(left_out)) for line in lines)
    cpuinfo.write_text("\n".join(kept) + "\n")
    defaults |= {"cpuinfo": cpuinfo, "system_cpus": folder, "measured": False}
