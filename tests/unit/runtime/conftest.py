"""Kernels in C, compiled once a session."""

import ctypes
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tilewright.runtime import HEADER_PATH, PoolOptions, ThreadPool

SOURCE = Path(__file__).with_name("kernels.c")


@pytest.fixture(scope="session")
def compiler():
    """The C compiler of the machine."""
    configured = (sysconfig.get_config_var("CC") or "").split()
    found = next(filter(None, map(shutil.which, ["cc", "gcc", "clang", *configured[:1]])), None)
    assert found, "the tests need a C compiler"
    return found


class Kernels:
    """Addresses of the kernels in kernels.c, by name."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))

    def __getitem__(self, name):
        return ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value


@pytest.fixture(scope="session")
def kernels(tmp_path_factory, compiler):
    """The compiled kernels."""
    target = tmp_path_factory.mktemp("kernels") / "kernels.so"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{HEADER_PATH.parent}"]
    subprocess.run([compiler, *flags, str(SOURCE), "-o", str(target)], check=True)
    return Kernels(target)


@pytest.fixture(params=[1, 2, 5], ids=lambda threads: f"{threads}threads")
def pool(request):
    """Pools without, with one and with several workers; the last may have more threads than CPUs."""
    with ThreadPool(PoolOptions(threads=request.param, spin_ns=20_000)) as made:
        yield made
