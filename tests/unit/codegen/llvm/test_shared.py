"""Shared libraries without a linker: loaded by the system's own loader, in a process of their own."""

import subprocess
import sys

import pytest

from tilewright.codegen.llvm.compile import compile_ir
from tilewright.codegen.llvm.shared import can_link, shared_library
from tilewright.codegen.llvm.symbols import read_object, rename_functions
from tilewright.support import InternalError
from tilewright.target import AARCH64_NEON, detect

HOST = detect()
pytestmark = pytest.mark.skipif(HOST.arch != "x86_64", reason="libraries are written for x86-64")

ADD = """
define i64 @add(i64 %a, i64 %b) {
  %r = add i64 %a, %b
  ret i64 %r
}
"""
TWICE = """
declare i64 @add(i64, i64)
define i64 @twice(i64 %a) {
  %r = call i64 @add(i64 %a, i64 %a)
  ret i64 %r
}
"""
LIBRARY = """
@table = private unnamed_addr constant [4 x double] [double 1.0, double 2.0, double 4.0, double 8.0], align 32
declare double @fmod(double, double)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define double @f(ptr %to, i64 %n, double %x) {
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr @table, i64 %n, i1 false)
  %r = call double @fmod(double %x, double 3.0)
  ret double %r
}
"""
ADDRESSES = """
define internal i64 @one(i64 %x) noinline {
  ret i64 11
}
define internal i64 @two(i64 %x) noinline {
  ret i64 22
}
@both = internal global [2 x ptr] [ptr @one, ptr @two]
@shown = global i64 5
define i64 @pick(i64 %at) {
  %place = getelementptr [2 x ptr], ptr @both, i64 0, i64 %at
  %f = load ptr, ptr %place
  %r = call i64 %f(i64 0)
  %s = load i64, ptr @shown
  %t = add i64 %r, %s
  ret i64 %t
}
"""


def run(tmp_path, library, code):
    path = tmp_path / "made.so"
    path.write_bytes(library)
    program = f"import ctypes; k = ctypes.CDLL({str(path)!r})\n{code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_objects_call_one_another_and_only_exports_show(tmp_path):
    objects = [compile_ir(TWICE, HOST), compile_ir(ADD, HOST)]
    assert can_link(objects)
    made = shared_library(objects, ["twice"])
    assert run(tmp_path, made, "print(k.twice(21), hasattr(k, 'add'))") == ["42", "False"]
    renamed = [rename_functions(compile_ir(ADD, HOST), {"add": f"add{n}"}) for n in range(300)]
    made = shared_library(renamed, [f"add{n}" for n in range(0, 300, 7)])
    assert run(tmp_path, made, "print(k.add294(1, 2), hasattr(k, 'add1'))") == ["3", "False"]


def test_constants_and_functions_of_the_c_library(tmp_path):
    made = shared_library(
        [compile_ir(LIBRARY, HOST), compile_ir(LIBRARY.replace("@f(", "@g("), HOST)], ["f", "g"]
    )
    code = (
        "import ctypes as c\nto = (c.c_double * 4)()\n"
        "for f in (k.f, k.g):\n    f.restype = c.c_double\n"
        "    print(f(to, c.c_int64(32), c.c_double(8.5)), *to)\n    to[3] = 0"
    )
    assert run(tmp_path, made, code) == ["2.5", "1.0", "2.0", "4.0", "8.0"] * 2


def test_addresses_that_the_loader_fills_in(tmp_path):
    objects = [compile_ir(ADDRESSES, HOST)]
    kinds = {each.kind for each in read_object(objects[0])[2]}
    assert 1 in kinds, "no absolute address in this object: the test shows nothing"
    made = shared_library(objects, ["pick"])
    assert run(tmp_path, made, "print(k.pick(0), k.pick(1))") == ["16", "27"]


def test_what_is_missing_or_of_another_machine():
    with pytest.raises(InternalError, match="no object defines 'subtract'"):
        shared_library([compile_ir(ADD, HOST)], ["subtract"])
    assert not can_link([compile_ir(ADD, AARCH64_NEON)])
    with pytest.raises(InternalError, match="not a 64-bit ELF object"):
        shared_library([b"no object at all, whatever it may be"], [])
