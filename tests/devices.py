"""The devices at hand: PoCL or another OpenCL device where one is, and this CPU through C everywhere."""

from importlib.util import find_spec

from tilewright.build import DeviceFunction, kernel_source
from tilewright.codegen import compile_cuda
from tilewright.devices import open_device
from tilewright.support import InstallationError, read_settings


def _have_opencl():
    if find_spec("pyopencl") is None:
        return False
    try:
        open_device("opencl")
    except InstallationError:
        return False
    return True


HAVE_OPENCL = _have_opencl()
HAVE_NVRTC = find_spec("cuda") is not None and find_spec("cuda.bindings") is not None
#: Languages to run kernels in; where there is no OpenCL device the same kernels still run through C.
LANGUAGES = ("opencl", "c") if HAVE_OPENCL else ("c",)
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
