"""CUDA text to PTX and machine code by NVRTC, which needs neither a device nor a driver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from tilewright.support import InstallationError, InternalError, TargetError, known_names

_OPTIONS: Final = ("--std=c++17", "--ptxas-options=--verbose", "--device-as-default-execution-space")
_CACHES: Final = (12, 9)
"""The first NVRTC that keeps what it compiled where a device is: the log of what it finds there is empty."""
_ENTRY: Final = re.compile(r"Compiling entry function '(\w+)'")
_FRAME: Final = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED: Final = re.compile(r"Used (\d+) registers")
_SHARED: Final = re.compile(r"(\d+) bytes smem")
_WARNED: Final = re.compile("Potential Performance Loss")


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What a kernel takes of a multiprocessor: registers a thread, and bytes."""

    registers: int
    spilled: int
    """Bytes stored to and loaded from memory because registers ran out, both counted."""
    stack: int
    shared: int


@dataclass(frozen=True, slots=True)
class CudaModule:
    """A compiled text: machine code for one architecture, PTX, and what its kernels take."""

    cubin: bytes
    ptx: str
    resources: Mapping[str, KernelResources]
    warnings: tuple[str, ...] = ()
    """What the compiler says of code that is right but slow, as where matrix units wait for each other."""


def compile_cuda(text: str, arch: str) -> CudaModule:
    """Compile CUDA C++ for an architecture such as ``sm_90``, or ``sm_90a`` with what only it has.

    Raises InstallationError without cuda-bindings or NVRTC, TargetError for an architecture that the
    installed NVRTC does not know, InternalError where it refuses the text.
    """
    nvrtc = _nvrtc()
    numbers = _checked(nvrtc, nvrtc.nvrtcGetSupportedArchs(), "to list architectures")
    known = [f"sm_{number}{suffix}" for number in numbers for suffix in _suffixes(int(number))]
    if arch not in known:
        hint = known_names(arch, known, "those it knows")
        if (len(arch), arch) < (len(known[0]), known[0]):
            hint = f"an older NVRTC knows it: pip install nvidia-cuda-nvrtc-cu12; {hint}"
        raise TargetError(f"the installed NVRTC does not compile for {arch}", hint=hint)
    program = _checked(nvrtc, nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], []), "a text")
    try:
        uncached = ("--no-cache",) if nvrtc.nvrtcVersion()[1:] >= _CACHES else ()
        options = [option.encode() for option in (f"--gpu-architecture={arch}", *_OPTIONS, *uncached)]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _read(nvrtc, program, "ProgramLog").decode(errors="replace").rstrip("\0")
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            lines = log.splitlines()
            first = next((line for line in lines if "error" in line), lines[0] if lines else str(result))
            raise InternalError(f"NVRTC refuses generated code: {first[:500]}")
        cubin = _read(nvrtc, program, "CUBIN")
        ptx = _read(nvrtc, program, "PTX").decode().rstrip("\0")
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    warnings = tuple(line for line in log.splitlines() if _WARNED.search(line))
    return CudaModule(cubin, ptx, MappingProxyType(read_resources(log)), warnings)


def _suffixes(number: int) -> tuple[str, ...]:
    """The kinds of code for an architecture: that of all later ones, its own, that of its family.

    CUDA C++ Programming Guide, "Feature Availability": specific ones from 9.0 on, families from 10.0 on.
    """
    return ("", "a", "f") if number >= 100 else ("", "a") if number >= 90 else ("",)


def read_resources(log: str) -> dict[str, KernelResources]:
    """What ``ptxas`` says of each kernel in its verbose log."""
    found: dict[str, KernelResources] = {}
    name, stack, spilled = "", 0, 0
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            name, stack, spilled = match[1], 0, 0
        elif match := _FRAME.search(line):
            stack, spilled = int(match[1]), int(match[2]) + int(match[3])
        elif match := _USED.search(line):
            shared = _SHARED.search(line)
            found[name] = KernelResources(int(match[1]), spilled, stack, int(shared[1]) if shared else 0)
    return found


def _nvrtc() -> Any:
    try:
        # an extra: programs that make no CUDA kernels do without it
        nvrtc = import_module("cuda.bindings.nvrtc")
    except ImportError as error:
        raise InstallationError(
            f"cuda-bindings cannot be imported: {error}", hint="pip install 'tilewright[cuda]'"
        ) from None
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:  # the package is there, the library that it loads is not
        raise InstallationError(
            f"NVRTC cannot be loaded: {str(error).splitlines()[0]}", hint="pip install 'tilewright[cuda]'"
        ) from None
    return nvrtc


def _checked(nvrtc: Any, answer: tuple[Any, ...], what: str) -> Any:
    if answer[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise InternalError(f"NVRTC refuses {what}: {answer[0]}")
    return answer[-1]


def _read(nvrtc: Any, program: Any, kind: str) -> bytes:
    size = _checked(nvrtc, getattr(nvrtc, f"nvrtcGet{kind}Size")(program), kind)
    content = bytearray(size)
    (result,) = getattr(nvrtc, f"nvrtcGet{kind}")(program, content)
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise InternalError(f"NVRTC refuses its {kind}: {result}")
    return bytes(content)
