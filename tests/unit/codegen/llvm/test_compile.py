import ctypes
import subprocess
import sys
from dataclasses import replace

import pytest

from tilewright.codegen.link import link_shared
from tilewright.codegen.llvm import loader
from tilewright.codegen.llvm.compile import assembly, compile_ir, compile_request, optimised_ir
from tilewright.codegen.llvm.loader import Loader, load_object
from tilewright.codegen.llvm.spills import count_vector_spills
from tilewright.codegen.llvm.symbols import read_symbols, rename_functions
from tilewright.support import InstallationError, InternalError
from tilewright.target import AARCH64_NEON, AARCH64_SVE, X86_AVX2, X86_AVX512, detect

HOST = detect()
ADD = """
define i64 @add(i64 %a, i64 %b) {
  %r = call i64 @helper(i64 %a, i64 %b)
  ret i64 %r
}
define internal i64 @helper(i64 %a, i64 %b) noinline {
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


BAD_PHI = """
define void @f() {
a:
  br label %b
b:
  %x = phi i32 [ 0, %c ]
  ret void
c:
  ret void
}
"""


def call(address, restype, *args):
    return ctypes.CFUNCTYPE(restype, *(type(a) for a in args))(address)(*args)


@pytest.mark.parametrize("level", [0, 1, 2, 3, 4])
def test_code_compiled_at_every_level_runs(level):
    loaded = load_object(compile_ir(ADD, HOST, opt=level))
    assert loaded.names == ("add",)
    assert call(loaded.address("add"), ctypes.c_int64, ctypes.c_int64(40), ctypes.c_int64(2)) == 42


def test_objects_loaded_together_call_each_other():
    with pytest.raises(InternalError, match="calls 'add'"):
        load_object(compile_ir(TWICE, HOST))
    loaded = load_object(compile_ir(ADD, HOST), compile_ir(TWICE, HOST))
    assert call(loaded.address("twice"), ctypes.c_int64, ctypes.c_int64(21)) == 42


def test_constants_and_the_c_library_are_reachable():
    loaded = load_object(compile_ir(LIBRARY, HOST))
    buffer = (ctypes.c_double * 4)()
    rest = call(
        loaded.address("f"), ctypes.c_double, ctypes.pointer(buffer), ctypes.c_int64(32), ctypes.c_double(7.5)
    )
    assert (rest, list(buffer)) == (1.5, [1, 2, 4, 8])


def test_same_name_in_two_objects_and_unloading_one():
    loader = Loader()
    one, two = (loader.load(compile_ir(f"define i64 @f() {{ ret i64 {n} }}", HOST)) for n in (1, 2))
    assert [call(o.address("f"), ctypes.c_int64) for o in (one, two)] == [1, 2]
    one.close()
    one.close()
    with pytest.raises(InternalError, match="unloaded"):
        one.address("f")
    assert call(two.address("f"), ctypes.c_int64) == 2
    with pytest.raises(InternalError, match=r"no function 'g'.*there are f"):
        two.address("g")


def test_loaded_code_outlives_its_loader():
    loaded = Loader().load(compile_ir(ADD, HOST))
    assert call(loaded.address("add"), ctypes.c_int64, ctypes.c_int64(1), ctypes.c_int64(2)) == 3


def test_old_objects_outlive_their_linking_session(monkeypatch):
    monkeypatch.setattr(loader, "LOADS_PER_SESSION", 2)
    made = Loader()
    content = [compile_ir(f"define i64 @f() {{ ret i64 {n} }}", HOST) for n in range(7)]
    loaded = [made.load(each) for each in content]
    del made
    assert len({id(each._tracker.session) for each in loaded}) == 4
    for n in (1, 5, 3):
        assert call(loaded[n].address("f"), ctypes.c_int64) == n
        loaded[n] = None
    assert [call(loaded[n].address("f"), ctypes.c_int64) for n in (0, 2, 4, 6)] == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("ir", "words"),
    [
        ("define void @f( {", "expected type"),
        ("define i32 @f() { ret i64 0 }", "function result type.*ret i64 0"),
        (
            BAD_PHI,
            "PHI",
        ),
    ],
    ids=["syntax", "type", "verifier"],
)
def test_refused_modules_say_why(ir, words):
    with pytest.raises(InternalError, match=words) as caught:
        compile_ir(ir, HOST)
    assert "\n" not in caught.value.what


def test_unknown_level_and_triple():
    with pytest.raises(InternalError, match="level 7"):
        compile_ir(ADD, HOST, opt=7)
    with pytest.raises(InternalError, match=r"No available targets|nope"):
        compile_ir(ADD, replace(HOST, llvm_triple="nope-nope-nope"))


@pytest.mark.parametrize(
    ("target", "instruction"),
    [(X86_AVX512, "zmm"), (X86_AVX2, "ymm"), (AARCH64_NEON, "fmla"), (AARCH64_SVE, "fmla")],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_table_compiles(target, instruction):
    lanes = target.preferred_vector_bits // 32
    kind = f"<{lanes} x float>"
    ir = f"""
declare {kind} @llvm.fma.v{lanes}f32({kind}, {kind}, {kind})
define void @f(ptr %a, ptr %b) {{
  %x = load {kind}, ptr %a
  %y = load {kind}, ptr %b
  %r = call {kind} @llvm.fma.v{lanes}f32({kind} %x, {kind} %x, {kind} %y)
  store {kind} %r, ptr %b
  ret void
}}
"""
    assert instruction in assembly(ir, target)
    assert compile_ir(ir, target)[:4] == b"\x7fELF"


def test_optimised_ir_is_what_was_asked_for():
    ir = "define i64 @f(i64 %a) {\n  %b = add i64 %a, 0\n  ret i64 %b\n}"
    assert "add" in optimised_ir(ir, HOST, opt=0)
    assert "add" not in optimised_ir(ir, HOST, opt=1)


def test_key_depends_on_everything_that_matters():
    keys = {
        compile_request(ADD, HOST).key,
        compile_request(TWICE, HOST).key,
        compile_request(ADD, X86_AVX2).key,
        compile_request(ADD, HOST, opt=2).key,
        compile_request(ADD, HOST, output="assembly").key,
    }
    assert len(keys) == 5
    assert compile_request(ADD, HOST).key == compile_request(ADD, HOST).key


def test_shared_library(tmp_path):
    made = link_shared([compile_ir(ADD, HOST), compile_ir(TWICE, HOST)], tmp_path / "kernels.so")
    code = f"import ctypes; print(ctypes.CDLL({str(made)!r}).twice(ctypes.c_int64(21)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "42\n"
    assert [file.name for file in tmp_path.iterdir()] == ["kernels.so"]
    with pytest.raises(InternalError, match=r"bad\.so failed"):
        link_shared([b"no object"], tmp_path / "bad.so")
    assert not (tmp_path / "bad.so").exists()


def test_functions_renamed_and_exported(tmp_path):
    """Objects with functions of one name become one library, which shows what it is told to."""
    objects = [rename_functions(compile_ir(ADD, HOST), {"add": name}) for name in ("first", "a_longer_name")]
    assert [read_symbols(content).functions for content in objects] == [("first",), ("a_longer_name",)]
    source = b"extern int first(int, int); int both(int a, int b) { return first(a, b) * 2; }"
    made = link_shared(objects, tmp_path / "k.so", files={"both.c": [source]}, exports=["first"])
    code = (
        f"import ctypes; k = ctypes.CDLL({str(made)!r})\n"
        "print(k.first(20, 1), [hasattr(k, name) for name in ('a_longer_name', 'both')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "21 [False, False]\n"
    caller = rename_functions(compile_ir(TWICE, HOST), {"add": "first"})
    assert (read_symbols(caller).functions, read_symbols(caller).undefined) == (("twice",), ("first",))
    with pytest.raises(InternalError, match="not a 64-bit ELF object"):
        rename_functions(b"no object", {})


def test_no_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InstallationError, match="C compiler"):
        link_shared([compile_ir(ADD, HOST)], tmp_path / "kernels.so")


def test_damaged_objects_are_refused():
    whole = compile_ir(ADD, HOST)
    assert read_symbols(whole).functions == ("add",)
    for damaged in (b"", b"text", whole[:40], whole[:100], whole[: len(whole) // 2], whole[:-1]):
        with pytest.raises(InternalError, match="ELF object"):
            load_object(damaged)


def accumulators(count):
    """Multiply-adds on `count` accumulators of the widest AVX-512 vectors, all alive across a loop."""
    kind = "<16 x float>"
    phis = "".join(
        f"  %p{i} = phi {kind} [ splat (float {i}.0), %entry ], [ %n{i}, %loop ]\n" for i in range(count)
    )
    work = "".join(
        f"  %n{i} = call {kind} @llvm.fma.v16f32({kind} %p{i}, {kind} %x, {kind} %p{i})\n"
        for i in range(count)
    )
    ends = "".join(
        f"  %q{i} = getelementptr {kind}, ptr %a, i64 {i}\n  store {kind} %n{i}, ptr %q{i}\n"
        for i in range(count)
    )
    return f"""
declare {kind} @llvm.fma.v16f32({kind}, {kind}, {kind})
define void @kernel(ptr %a, i64 %n) {{
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]
{phis}  %at = getelementptr {kind}, ptr %a, i64 %k
  %x = load {kind}, ptr %at
{work}  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, %n
  br i1 %more, label %loop, label %done
done:
{ends}  ret void
}}
define void @"other one"() {{
  ret void
}}
"""


@pytest.mark.parametrize("comments", [True, False])
def test_spills_are_counted_by_function(comments):
    few = assembly(accumulators(24), X86_AVX512)
    many = assembly(accumulators(40), X86_AVX512)
    if not comments:
        few, many = ("\n".join(line.split("#")[0] for line in text.splitlines()) for text in (few, many))
    assert count_vector_spills(few)["kernel"] == 0
    # eight accumulators and more have no register: each is written and read at least once
    assert count_vector_spills(many)["kernel"] >= 16
    if comments:
        assert count_vector_spills(many)["other one"] == 0


def test_scalar_and_mask_spills_do_not_count():
    text = """
\t.type\tf,@function
f:
\tmovq\t%rax, 8(%rsp) # 8-byte Spill
\tkmovw\t%k1, 16(%rsp) # 2-byte Spill
\tvmovups\t%zmm0, 64(%rsp) # 64-byte Spill
\tvfmadd231ps\t64(%rsp), %zmm1, %zmm2 # 64-byte Folded Reload
"""
    assert count_vector_spills(text) == {"f": 2}
