"""The devices at hand: an NVIDIA card and PoCL or another OpenCL device where one is, and this CPU through C
everywhere.
"""

from importlib.util import find_spec

from tilewright.build import DeviceFunction, kernel_source
from tilewright.codegen import compile_cuda
from tilewright.devices import open_device
from tilewright.support import InstallationError, TargetError, read_settings


def _have(language):
    try:
        open_device(language)
    except (InstallationError, TargetError):
        return False
    return True


HAVE_CUDA, HAVE_OPENCL = _have("cuda"), _have("opencl")
HAVE_NVRTC = find_spec("cuda") is not None and find_spec("cuda.bindings") is not None
#: Languages to run kernels in; where there is no device the same kernels still run through C.
LANGUAGES = ("cuda",) * HAVE_CUDA + ("opencl",) * HAVE_OPENCL + ("c",)
ARCHITECTURES = ("sm_80", "sm_90")


def on_device(func, language):
    """A scheduled function on the device of a language."""
    return DeviceFunction(func, open_device(language), read_settings())


def checked_by_nvrtc(func, *, registers=255):
    """Compile the CUDA text of a function where NVRTC is: no spills, registers bounded. Returns the text."""
    source = kernel_source(func, "cuda")
    if HAVE_NVRTC:
        for arch in ARCHITECTURES:
            made = compile_cuda(source.text, arch)
            assert {entry.symbol for entry in source.kernels} == set(made.resources)
            for name, used in made.resources.items():
                assert used.spilled == 0, f"{name} spills {used.spilled} bytes"
                assert used.registers <= registers, f"{name} takes {used.registers} registers"
    return source.text
