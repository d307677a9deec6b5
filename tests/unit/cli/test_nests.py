"""Nests in C on the command line: compiled, emitted, run, and what is wrong with them."""

import ctypes
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import tilewright
from tilewright.cli import main
from tilewright.runtime import aligned_copy

GEMVER = """
#ifndef N
#define N 40
#endif
void gemver(double alpha, double A[N][N], double u[N], double v[N], double x[N], double y[N])
{
  int i, j;
#pragma scop
  for (i = 0; i < N; i++)
    for (j = 0; j < N; j++)
      A[i][j] = A[i][j] + u[i] * v[j];
  for (i = 0; i < N; i++)
    for (j = 0; j < N; j++)
      x[i] = x[i] + alpha * A[j][i] * y[j];
#pragma endscop
}
"""
OPEN = GEMVER.replace("double alpha", "int n, double alpha").replace("N", "n").replace("#define n 40", "")


@pytest.fixture
def files(tmp_path):
    (tmp_path / "gemver.c").write_text(GEMVER)
    (tmp_path / "open.c").write_text("\n".join(OPEN.split("\n")[4:]))
    return tmp_path


@pytest.fixture
def call(capsys):
    """Runs a command: its status, what it printed, and what it said on stderr."""

    def run(*arguments):
        status = main([str(each) for each in arguments])
        return (status, *capsys.readouterr())

    return run


def values(n, seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"alpha": (), "A": (n, n), "u": (n,), "v": (n,), "x": (n,), "y": (n,)}
    return {name: rng.random(shape) for name, shape in shapes.items()}


def expected(a):
    A = a["A"] + np.outer(a["u"], a["v"])
    return {"A": A, "x": a["x"] + a["alpha"] * (A.T @ a["y"])}


def test_headers_come_from_the_folders_that_are_named(files, call):
    (files / "more").mkdir()
    (files / "more" / "sizes.h").write_text("#define N 12\n")
    text = (files / "gemver.c").read_text()
    (files / "other.c").write_text("#include <sizes.h>\n" + text)
    result = call("compile", files / "other.c", "-I", files / "more", "--json")
    assert result[0] == 0 and json.loads(result[1])["arguments"][1]["shape"] == [12, 12], result
    assert "-I is for nests in C" in call("compile", "zoo:resnet18:small", "-I", files / "more")[2]


def test_fusion_of_a_nest_is_explained(files, call):
    told = ("explain", files / "gemver.c", "-D", "N=24", "--poly", "--tile", "8x8")
    assert "in tiles of 8 x 8, tiles on threads" in call(*told, "--fusion", "smart")[1]


def test_a_nest_is_compiled_and_reported(files, call):
    result = call("compile", files / "gemver.c", "--strategy", "polyhedral", "-D", "N=24", "--json")
    assert result[0] == 0, result
    data = json.loads(result[1])
    assert data["notes"] == ["lifted to a program"]
    assert {a["name"]: (a["read"], a["written"]) for a in data["arguments"]}["x"] == (True, True)
    assert data["arguments"][1]["shape"] == [24, 24]


@pytest.mark.parametrize("strategy", ["polyhedral", "as-written"])
def test_a_nest_runs_on_files(files, strategy, call):
    given = values(40)
    np.savez(files / "in.npz", **given)
    result = call("run", files / "gemver.c", "--strategy", strategy, "--inputs", files / "in.npz", "--output",
                  files / "out.npz")  # fmt: skip
    assert result[0] == 0, result
    assert "'x': float64[40]" in result[1]
    with np.load(files / "out.npz") as out:
        assert set(out) == {"A", "x"}
        for name, want in expected(given).items():
            np.testing.assert_allclose(out[name], want, rtol=1e-12)


def compiled_tiles(path):
    """What runs all tiles: takes arrays, then the sizes, of which ``sizes`` is the number."""
    flags = ["-O2", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, path, "-o", path.with_suffix(".so"), "-lm"], check=True)
    name, listed = re.findall(r"int32_t (\w+_tiles)\((.*)\)", path.read_text())[0]
    function = getattr(ctypes.CDLL(str(path.with_suffix(".so"))), name)

    def run(*arguments):
        arrays = [ctypes.c_void_p(a.ctypes.data) for a in arguments if isinstance(a, np.ndarray)]
        return function(*arrays, *map(ctypes.c_int64, arguments[len(arrays) :]))

    run.sizes = listed.count("int64_t T")
    return run


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc compiles what is emitted")
def test_sizes_of_tiles_are_arguments_of_emitted_c(files, call):
    (files / "blur.py").write_text(
        "from tilewright import lang\n\n\ndef blur():\n    x = lang.placeholder((40, 50), name='x')\n"
        "    r = lang.compute((38, 50), lambda i, j: x[i, j] + x[i + 2, j], name='r')\n"
        "    o = lang.compute((38, 48), lambda i, j: r[i, j] - r[i, j + 2], name='o')\n"
        "    return lang.program([x], [o])\n"
    )
    result = call("compile", f"{files / 'blur.py'}:blur", "--emit", "c-tiles", "-o", files / "b.c")
    assert result[0] == 0, result
    run = compiled_tiles(files / "b.c")
    x = aligned_copy(np.random.default_rng(0).uniform(size=(40, 50)).astype(np.float32))
    r = x[:-2] + x[2:]
    for sizes in ((8, 16), (1, 48), (64, 7)):
        out = aligned_copy(np.zeros((38, 48), np.float32))
        assert run(x, out, *sizes) == 0
        np.testing.assert_array_equal(out, r[:, :-2] - r[:, 2:])
    assert run(x, out, 0, 4) == -2
    refused = call("compile", "zoo:resnet18:small", "--emit", "c-tiles", "-o", files / "n.c")
    assert "is for programs and nests" in refused[2]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc compiles what is emitted")
def test_sizes_of_tiles_of_several_groups(files, call):
    """Both nests of gemver, and a program with two results that need the same sums."""
    assert call("compile", files / "gemver.c", "--emit", "c-tiles", "-o", files / "n.c")[0] == 0
    text = (files / "n.c").read_text()
    assert "/* a1: T0 of 40, T1 of 40 */" in text and "/* a4: T2 of 40 */" in text
    given = values(40)
    arrays = {n: aligned_copy(a) for n, a in given.items()}
    run = compiled_tiles(files / "n.c")
    assert run(*arrays.values(), 7, 16, 11) == 0
    for name, want in expected(given).items():
        np.testing.assert_allclose(arrays[name], want, rtol=1e-12)
    (files / "mean.py").write_text(
        "from tilewright import lang\n\n\ndef mean():\n    x = lang.placeholder((30, 44), 'f64', name='x')\n"
        "    j = lang.reduce_axis(44)\n"
        "    rows = lang.compute((30,), lambda i: lang.sum(x[i, j], j), name='rows')\n"
        "    o = lang.compute((30, 44), lambda i, j: x[i, j] - rows[29 - i], name='o')\n"
        "    p = lang.compute((30,), lambda i: rows[i] / 44, name='p')\n"
        "    return lang.program([x], [o, p])\n"
    )
    assert call("compile", f"{files / 'mean.py'}:mean", "--emit", "c-tiles", "-o", files / "m.c")[0] == 0
    assert "aligned_alloc(64, 256)" in (files / "m.c").read_text()
    x, out = aligned_copy(np.random.default_rng(0).random((30, 44))), aligned_copy(np.zeros((30, 44)))
    mean = aligned_copy(np.zeros(30))
    run = compiled_tiles(files / "m.c")
    assert run(x, out, mean, *range(5, 5 + run.sizes)) == 0
    np.testing.assert_allclose(out, x - x.sum(1)[::-1, None], rtol=1e-12)
    np.testing.assert_allclose(mean, x.mean(1), rtol=1e-12)


SEIDEL = """void relax(double A[30][26]) {
#pragma scop
  for (int t = 0; t < 5; t++)
    for (int i = 1; i < 29; i++)
      for (int j = 1; j < 25; j++)
        A[i][j] = (A[i-1][j] + A[i][j-1] + A[i][j] + A[i][j+1] + A[i+1][j]) / 5.0;
#pragma endscop
}
"""
FLOYD = """void paths(double A[30][30]) {
#pragma scop
  for (int k = 0; k < 30; k++)
    for (int i = 0; i < 30; i++)
      for (int j = 0; j < 30; j++)
        A[i][j] = A[i][j] < A[i][k] + A[k][j] ? A[i][j] : A[i][k] + A[k][j];
#pragma endscop
}
"""


def relaxed(a):
    for _ in range(5):
        for i in range(1, 29):
            for j in range(1, 25):
                a[i, j] = (a[i - 1, j] + a[i, j - 1] + a[i, j] + a[i, j + 1] + a[i + 1, j]) / 5.0


def paths(a):
    for k in range(30):
        np.minimum(a, a[:, k, None] + a[None, k], out=a)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc compiles what is emitted")
@pytest.mark.parametrize(
    ("text", "expect", "sizes"),
    [(SEIDEL, relaxed, ("of 5", "of 32", "of 28")), (FLOYD, paths, ("of 30", "of 30"))],
)
def test_sizes_of_tiles_without_parallel_loops(files, call, text, expect, sizes):
    """Tiles run in wavefronts, inside of loops that must stay outermost."""
    (files / "s.c").write_text(text)
    assert call("compile", files / "s.c", "--emit", "c-tiles", "-o", files / "n.c")[0] == 0
    told = ", ".join(f"T{n} {of}" for n, of in enumerate(sizes))
    assert f"/* a0: {told} */" in (files / "n.c").read_text()
    run = compiled_tiles(files / "n.c")
    shape = (30, 26) if len(sizes) == 3 else (30, 30)
    given = np.random.default_rng(0).random(shape)
    want = given.copy()
    expect(want)
    for tiles in ((2, 7, 9), (64, 3, 1), (1 << 62, 1 << 62, 1 << 62)):
        a = aligned_copy(given)
        assert run(a, *tiles[: len(sizes)]) == 0
        np.testing.assert_allclose(a, want, rtol=1e-12)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc compiles what is emitted")
def test_emitted_c_changes_arrays_in_place(files, call):
    for emit, name in (("c", "g.c"), ("c-header", "g.h")):
        result = call("compile", files / "open.c", "--shape", "n=33", "--emit", emit, "-o", files / name)
        assert result[0] == 0, result
    # one that calls it through its header: so do the types of both agree
    (files / "main.c").write_text(
        '#include "g.h"\nvoid called(int n, double s, double *A, double *u, double *v, double *x, double *y)'
        "\n{ gemver(n, s, (void *)A, u, v, x, y); }\n"
    )
    library = files / "g.so"
    flags = ["-O2", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, files / "main.c", files / "g.c", "-o", library, "-lm"], check=True)
    called = ctypes.CDLL(str(library)).called
    for n in (33, 9):  # of which the second runs as written
        given = values(n, seed=1)
        want = expected(given)
        alpha, *arrays = given.values()
        pointers = (ctypes.c_void_p(a.ctypes.data) for a in arrays)
        called(n, ctypes.c_double(alpha), *pointers)
        for name, value in want.items():
            np.testing.assert_allclose(given[name], value, rtol=1e-12)


def test_emitted_c_runs_arrays_that_overlap_as_written(files, call):
    (files / "s.c").write_text("void moved(int n, double *a, const double *b) {\n"
        "  for (int i = 0; i < n; i++) a[i] = b[i] + 1;\n}\n")  # fmt: skip
    assert call("compile", files / "s.c", "--shape", "n=8", "--emit", "c", "-o", files / "g.c")[0] == 0
    subprocess.run(["gcc", "-O3", "-shared", "-fPIC", files / "g.c", "-o", files / "g.so", "-lm"], check=True)
    a = np.zeros(9)
    moved = ctypes.CDLL(str(files / "g.so")).moved
    moved(8, ctypes.c_void_p(a.ctypes.data + 8), ctypes.c_void_p(a.ctypes.data))
    assert a.tolist() == list(range(9))


def test_functions_of_files_and_negative_numbers(files, call):
    (files / "two.c").write_text(
        "void one(int n, int by, int a[n]) { for (int i = 0; i < n; i++) a[i] = by; }\n"
        "void two(int n, int a[n]) { for (int i = 0; i < n; i++) a[i] = a[i + 1]; }\n"
    )
    told = call(
        "run", f"{files / 'two.c'}:one", "--shape", "n=3", "--shape", "by=-4", "--output", files / "o.npz"
    )
    assert told[0] == 0, told
    assert np.load(files / "o.npz")["a"].tolist() == [-4, -4, -4]
    assert "choose two.c:one or two.c:two" in call("run", files / "two.c", "--shape", "n=3")[2]
    # nothing is written that run refuses
    for command in ("run",), ("compile", "--emit", "c", "-o", files / "g.c"):
        refused = call(command[0], f"{files / 'two.c'}:two", "--shape", "n=3", *command[1:])
        assert f"{files / 'two.c'}:2:57" in refused[2] and "leaves the buffer a" in refused[2]
    assert not (files / "g.c").exists()


def test_emitted_c_is_of_functions_that_are_nests(files, call):
    text = GEMVER.replace("#pragma endscop\n", '#pragma endscop\n  printf("done");\n')
    (files / "gemver.c").write_text(text)
    refused = call("compile", files / "gemver.c", "--emit", "c", "-o", files / "g.c")
    assert "'gemver' does more than the nest that is marked in it" in refused[2]
    assert f"{files / 'gemver.c'}:16:3" in refused[2]


@pytest.mark.parametrize(
    ("edit", "options", "message"),
    [
        (("j++", "j--"), (), "gemver.c:10:17"),
        (("double x[N]", "double **x"), (), "'x' is a pointer to pointers"),
        (("v[j];", "v[j]]];"), (), "gemver.c:11:"),
        (("A[i][j] + u", "A[v[i]][j] + u"), (), "gemver.c:11:"),
        (("double x[N]", "double A[N]"), (), "the name 'A' is declared twice"),
        (("", ""), ("-D", "N=99999999"), "'A' would have 79999998400000008 bytes"),
        (("", ""), ("-D", "3=4"), "-D takes NAME or NAME=TEXT"),
        (("", ""), ("--precision", "bf16"), "--precision is for models"),
        (("", ""), ("--shape", "n=3"), "has no size 'n'"),
        (("", ""), ("--shape", "n=3,4"), "n of '"),
        (("", ""), ("--target", "cuda:sm_90"), "nests are compiled for CPUs"),
    ],
)
def test_what_is_wrong_is_said(files, edit, options, message, call):
    (files / "gemver.c").write_text(GEMVER.replace(*edit) if edit[0] else GEMVER)
    result = call("compile", files / "gemver.c", *options)
    assert result[0] != 0
    assert message in result[1] + result[2]


def test_sizes_must_be_given_and_macros_are_for_nests(files, call):
    assert "give --shape n=N" in call("compile", files / "open.c")[2]
    assert "-D is for nests in C" in call("compile", "zoo:resnet18:small", "-D", "N=3")[2]
    assert "times the loops of a nest" in call("run", files / "gemver.c", "--profile")[2]


SEIDEL = """
void seidel(double A[N][N])
{
#pragma scop
  for (int t = 0; t < 4; t++)
    for (int i = 1; i < N - 1; i++)
      for (int j = 1; j < N - 1; j++)
        A[i][j] = (A[i-1][j] + A[i][j-1] + A[i][j] + A[i][j+1] + A[i+1][j]) / 5.0;
#pragma endscop
}
"""


def test_nests_are_tuned_as_models_are(files, call):
    (files / "seidel.c").write_text(SEIDEL)
    nest = (files / "seidel.c", "-D", "N=50", "--threads", "1")
    told = ("tune", *nest, "--budget", "10m", "--trials", "1", "-o", files / "plan.json")
    result = call(*told, "--records", files / "r.db", "--json")
    assert result[0] == 0, result
    *_, last = map(json.loads, result[1].splitlines())
    assert [(task["trials"], task["label"]) for task in last["tasks"]] == [(1, "seidel, part 1")]
    assert "seidel, part 1" in call("db", "list", "--records", files / "r.db")[1]
    status, out, _ = call("compile", *nest, "--plan", files / "plan.json")
    assert status == 0 and "nest  " in out
    status, _, err = call("tune", *nest, "--strategy", "as-written", "--records", "off")
    assert status != 0 and "there is no strategy 'as-written'" in err


def test_loops_of_nests_are_profiled(files, call):
    (files / "two.c").write_text(
        "void two(int n, double x[n], double y[n]) { for (int i = 1; i < n; i++) x[i] += x[i - 1];"
        " for (int i = 1; i < n; i++) y[i] = y[i - 1] * 0.5; }"
    )
    told = ("profile", files / "two.c", "--shape", "n=100", "--threads", "1", "--repeats", "2")
    status, out, _ = call(*told)
    assert status == 0 and re.search(r"\d ms +\d+\.\d%  S0", out) and "S1" in out
    rows = json.loads(call(*told, "--json")[1])["nests"]
    assert {row["nest"] for row in rows} == {"S0", "S1"} and all(row["ms"] > 0 for row in rows)
    (files / "data.c").write_text(
        "void f(int n, int k[n], int y[n]) { for (int i = 0; i < n; i++) y[k[i]] = i; }"
    )
    status, _, err = call("profile", files / "data.c", "--shape", "n=9")
    assert status != 0 and "data decide about loops or indices of the nest 'f'" in err


def test_why_a_nest_is_made_so(files, call):
    (files / "seidel.c").write_text(SEIDEL)
    nest = ("explain", files / "seidel.c", "-D", "N=12", "--threads", "1")
    status, out, _ = call(*nest, "--why", "A")
    assert status == 0 and "nest written" in out and "in tiles of 32 x 32 x 32" in out
    (told,) = json.loads(call(*nest, "--why", "seidel", "--json")[1])["nests"]
    assert told["root"] == "written" and told["margin"] > 0
    status, _, err = call(*nest, "--why", "B")
    assert status != 0 and "no part of the nest 'seidel' writes 'B'" in err


def test_explained(files, call):
    """What was decided, the steps, the loops, and the code in its forms; a nest is one kernel."""
    open_ = (files / "open.c", "--shape", "n=8", "--threads", "1")
    status, out, _ = call("explain", *open_)
    assert status == 0 and "in-out  'A': float64[8, 8]" in out and "nest  " in out
    for show, text in (("plan", '"rule": "contraction"'), ("schedule", "s = s.split("),
                       ("loops", 'function("gemver"'), ("lowered", "function("), ("asm", ".text"),
                       ("llvm", "define"), ("source", "gemver(")):  # fmt: skip
        status, out, _ = call("explain", *open_, "--show", show)
        assert status == 0 and text in out
    status, out, _ = call("explain", *open_, "--show", "asm", "--json")
    told = json.loads(out)
    assert told["nest"] == "gemver" and ".text" in told["text"] and told["notes"]
    status, _, err = call("explain", *open_, "--group", "0")
    assert status == 2 and "one kernel" in err


def test_saved(files, call):
    """What ``-o`` writes is called in place by ``tilewright.load``; what takes models says so."""
    where = files / "x.tw"
    status, _, err = call("compile", files / "open.c", "--shape", "n=8", "-o", where)
    assert status == 0 and "written to" in err
    arrays = values(8)
    want = expected(arrays)
    tilewright.load(where)(**arrays)
    assert all(np.allclose(arrays[name], want[name]) for name in want)
    status, _, err = call("run", where)
    assert status != 0 and "is a saved nest" in err and "tilewright.load(path)(" in err
