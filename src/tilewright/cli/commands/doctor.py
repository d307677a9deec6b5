"""``tilewright doctor``: whether everything that Tilewright needs is there."""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires, version

import click
import llvmlite.binding as llvm

from tilewright import __version__
from tilewright.cli.options import common_options
from tilewright.cli.state import FAILED, State
from tilewright.codegen import COMPILERS, ObjectCache, open_cache
from tilewright.runtime import default_pool
from tilewright.support import TilewrightError, available_cpus, digest, read_settings
from tilewright.target import detect

#: Where a requirement's name ends: at its versions, extras or conditions.
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_PEERS = ("onnxruntime", "openvino", "torch")


@click.command()
@common_options
@click.pass_context
def doctor(context: click.Context, state: State) -> None:
    """Check the installation: packages, native runtime, machine, cache. Exit status 1 if a check fails."""
    checks = [
        ("tilewright", True, f"{__version__} on Python {platform.python_version()}, {available_cpus()} CPUs"),
        *_packages("tilewright"),
        ("llvm", True, ".".join(map(str, llvm.llvm_version_info))),
        _tried("machine", lambda: f"{detect().llvm_cpu} ({detect().name})"),
        _tried("runtime", _fork_join),
        ("cache", *_cache(open_cache(read_settings()))),
        ("compiler", True, _compiler()),
    ]
    peers = {name: _version(name) for name in _PEERS}
    ok = all(passed for _, passed, _ in checks)
    if state.json:
        rows = [{"check": name, "ok": passed, "message": text} for name, passed, text in checks]
        state.print_json({"command": "doctor", "ok": ok, "checks": rows, "peers": peers})
    else:
        for name, passed, text in checks:
            state.say(f"{'ok ' if passed else 'BAD'}  {name:<10}  {text}")
        there = ", ".join(f"{name} {found}" for name, found in peers.items() if found)
        state.say(f"     to compare  {there or 'none of ' + ', '.join(_PEERS)}")
    if not ok:
        context.exit(FAILED)


def _packages(whose: str) -> list[tuple[str, bool, str]]:
    """What a package says that it needs, those of extras apart."""
    try:
        said = [text for text in requires(whose) or () if "extra ==" not in text]
    except PackageNotFoundError:
        return [("package", True, f"{whose} is a folder, not installed: what it needs is not known")]
    names = [found.group() for text in said if (found := _NAME.match(text))]
    return [("package", bool(_version(name)), f"{name} {_version(name) or 'missing'}") for name in names]


def _compiler() -> str:
    """The C compiler, and what needs one."""
    needed = "to write models for C and to install from source; not to compile, run and save"
    found = next((found for found in map(shutil.which, COMPILERS) if found), None)
    return (
        f"{found}: needed {needed}" if found else f"no C compiler ({', '.join(COMPILERS)}): needed {needed}"
    )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _tried(name: str, check: Callable[[], str]) -> tuple[str, bool, str]:
    try:
        return name, True, check()
    except TilewrightError as error:
        return name, False, str(error)


def _fork_join() -> str:
    pool = default_pool()
    return f"{pool.threads} threads, {pool.fork_join_ns() / 1e3:.2f} us an empty parallel loop"


def _cache(cache: ObjectCache | None) -> tuple[bool, str]:
    if cache is None:
        return True, "turned off"
    key = digest("doctor")
    cache.put(key, b"doctor")
    if cache.get(key) != b"doctor":
        return False, f"{cache.folder} cannot be used"
    return True, str(cache.folder)
