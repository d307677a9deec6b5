"""Builds the native runtime as a plain shared library (loaded by ctypes, independent of libpython)."""

import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

NATIVE = Path("src/tilewright/runtime/native")


class BuildNative(build_ext):
    """Compile and link without Python's name suffix, init symbol or library."""

    def build_extension(self, ext: Extension) -> None:
        """Build it, or say in one line what is missing."""
        try:
            super().build_extension(ext)
        except CompileError as error:
            compiler = self.compiler.compiler_so[0]
            if shutil.which(compiler):
                raise
            raise SystemExit(
                f"tilewright: no C compiler ({compiler}): install one, or a wheel of tilewright ({error})"
            ) from None

    def get_ext_filename(self, fullname: str) -> str:
        """`a.b.c` -> `a/b/c.so`: one name for every Python version."""
        return fullname.replace(".", "/") + ".so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """What is exported is said in the C source."""
        return list(ext.export_symbols)

    def get_libraries(self, ext: Extension) -> list[str]:
        """Only what the C source asks for; never libpython."""
        return list(ext.libraries)


class PlatformWheel(bdist_wheel):
    """The library depends on the platform only, not on the interpreter."""

    def get_tag(self) -> tuple[str, str, str]:
        """`py3-none-<platform>`."""
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[
        Extension(
            "tilewright.runtime._native",
            sources=sorted(str(file) for file in NATIVE.glob("*.c")),
            depends=sorted(str(file) for file in NATIVE.glob("*.h")),
            include_dirs=[str(NATIVE)],
            libraries=["m"],
            extra_compile_args=["-std=c11", "-O2", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra"],
            extra_link_args=["-pthread"],
        )
    ],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": PlatformWheel},
)
