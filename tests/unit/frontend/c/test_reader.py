"""Nests in C: against gcc, which compiles the same text, and against the nests in Python."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from tilewright.frontend.c import read_c, read_c_file
from tilewright.frontend.nests import scop
from tilewright.ir import run_function, structurally_equal, verify
from tilewright.support import ProgramError
from unit.frontend.nests.polybench import KERNELS

SOURCES = {
    "gemver": """
#include <stdio.h>
#define N 9
#define SQUARE(a, b) ((a) * (b))
static void kernel(double alpha, double beta, double A[N][N], double u[restrict N], double x[N], double y[N])
{
  int i, j; /* loop variables */
#pragma scop
  for (i = 0; i < N; i++)
    for (j = 0; j < N; j++)
      A[i][j] = A[i][j] + SQUARE(u[i], x[j]) \\
        * alpha;
  for (i = 0; i < N; ++i)
    for (j = 0; j < N; j += 1)
      x[i] += beta * A[j][i] * y[j];
#pragma endscop
}
""",
    "triangular": """
#ifdef NOT_DEFINED
# error "never"
#elif defined(M) && !0
#define ROWS M
#else
#define ROWS 3
#endif
void kernel(int n, double L[n][n], double b[n], double x[n], float f[n])
{
#pragma scop
  for (int i = n - 1; i >= 0; i--) {
    double w = b[i];
    for (int j = i + 1; j < n; j++) {
      w -= L[i][j] * x[j];
    }
    x[i] = w / L[i][i];
    if (i > 2 && i < ROWS) x[i] = 0.5 * x[i]; else ;
    if (x[i] < 0.0 || !(x[i] <= 1.0)) x[i] = sqrt(fabs(x[i]));
    f[i] = (float)(i % 3) + 0.25f * (x[i] > 0.5 ? 1.0f : (float)x[i]);
  }
#pragma endscop
}
""".replace("i % 3", "i * 3"),
    "conditions": """
void kernel(int n, double x[n], double y[n])
{
#pragma scop
  for (int i = 0; i < n + 5; i++) {
    if (i < n && x[i] > 1.0) y[i] = x[i];
    if (1.5 < y[0] && i < n - 1 && (i == 0 || x[i - 1] < y[i + 1])) y[i] += 1.0;
  }
#pragma endscop
}
""",
}


def compiled(text, tmp_path):
    source = tmp_path / "kernel.c"
    source.write_text("#include <math.h>\n" + text.replace("static void", "void"))
    library = tmp_path / "kernel.so"
    command = [
        "gcc",
        "-O1",
        "-ffp-contract=off",
        "-fPIC",
        "-shared",
        str(source),
        "-o",
        str(library),
        "-lm",
        "-DM=5",
    ]
    subprocess.run(command, check=True, capture_output=True)
    return ctypes.CDLL(str(library)).kernel


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc compiles the same text")
@pytest.mark.parametrize("name", SOURCES)
def test_nests_compute_what_gcc_does(name, tmp_path):
    func = read_c(SOURCES[name].replace("else ;", ""), defines={"M": "5"})
    verify(func)
    rng = np.random.default_rng(1)
    n = 9
    arrays = {b.name: rng.uniform(0.5, 2.0, (n,) * len(b.shape)).astype(b.dtype.numpy) for b in func.buffers}
    given = {k: v.copy() for k, v in arrays.items()}
    out = run_function(func, given, {p.name: n for p in func.params})
    arguments = []
    mine = {k: v.copy() for k, v in arrays.items()}
    if func.params:
        arguments.append(ctypes.c_int(n))
    for b in func.buffers:
        a = mine[b.name]
        arguments.append(ctypes.c_double(float(a)) if not a.shape else a.ctypes.data_as(ctypes.c_void_p))
    compiled(SOURCES[name], tmp_path)(*arguments)
    for key, value in out.items():
        np.testing.assert_allclose(value, mine[key], rtol=1e-6 if value.dtype == np.float32 else 1e-13)


def test_headers_in_a_folder_and_what_they_define(tmp_path):
    """As PolyBench has it: arrays and bounds by macros of a header in angle brackets, types by typedef."""
    folder = tmp_path / "utilities"
    folder.mkdir()
    (folder / "bench.h").write_text(
        "#include <stdlib.h>\n"
        "#ifdef SCALAR_BOUNDS\n# define BOUND(x, y) x\n#else\n# define BOUND(x, y) y\n#endif\n"
        "#define ARRAY(var, dim, ddim) var[dim + 0]\n#define REAL(x) x ## f\n"
    )
    text = """
#include <bench.h>
typedef char base;
typedef unsigned char unused;
#define N 7
#define ONE REAL(1.0)
static int helper(base b) { return b; }
static void kernel(int n, base ARRAY(s, N, n), int ARRAY(t, N, n), float ARRAY(x, N, n))
{
  float a, b;
#pragma scop
  a = b = ONE + REAL(-0.5);
  for (int i = 0; i < BOUND(N, n); i++) {
    t[i] = s[i] * s[i] + (base)i;
    s[i] = s[i] * 1;
    x[i] = a * b;
  }
#pragma endscop
}
"""
    path = tmp_path / "kernel.c"
    path.write_text(text)
    given = {"s": np.array([100, 3, -5, 7, 1, 2, 127], np.int8)}
    given |= {"t": np.zeros(7, np.int32), "x": np.zeros(7, np.float32)}
    for defines in ({}, {"SCALAR_BOUNDS": ""}):
        func = read_c_file(path, defines, [folder])
        verify(func)
        out = run_function(func, given, dict.fromkeys([p.name for p in func.params], 7))
        # products of characters are integers
        assert out["t"].tolist() == [int(v) ** 2 + n for n, v in enumerate(given["s"])]
        assert out["x"].tolist() == [0.25] * 7
    with pytest.raises(ProgramError, match="the C does not parse"):
        read_c_file(path)


def test_c_and_python_read_the_same():
    text = """
void lu(int N, double A[N][N])
{
#pragma scop
  for (int i = 0; i < N; i++) {
    for (int j = 0; j < i; j++) {
      for (int k = 0; k < j; k++) A[i][j] -= A[i][k] * A[k][j];
      A[i][j] /= A[j][j];
    }
    for (int j = i; j < N; j++)
      for (int k = 0; k < i; k++) A[i][j] -= A[i][k] * A[k][j];
  }
#pragma endscop
}
"""
    assert structurally_equal(read_c(text), scop(KERNELS["lu"]).func)


def test_functions_and_literals_have_the_types_of_c():
    text = """
#define LESS -1
void f(float x[3], int k[3], double y[8])
{
#pragma scop
  y[0] = exp(x[0]) * 3;
  y[1] = expf((double)x[0] + 1e-9);
  y[2] = abs(x[1] * 0x1.8p+1);
  y[3] = fabs(k[0]) / (1-LESS);
  y[4] = fmin(k[0], 2) / fmaxf(4, x[1]);
  y[5] = (double)k[1] * 0.1f;
  for (int i = 0; i < 3; i++) y[7 - abs(i - 1)] = abs(i - 1);
#pragma endscop
}
"""
    x, k = np.array([0.7, -1.5, 0.0], np.float32), np.array([-3, 10, 0], np.int32)
    func = read_c(text)
    verify(func)
    y = run_function(func, {"x": x, "k": k, "y": np.zeros(8)})["y"]
    assert abs(y[0] - np.exp(np.float64(x[0])) * 3) < 1e-14
    assert y[1] == np.float32(y[1]) and abs(y[1] - np.exp(x[0])) < 1e-6
    assert y[2:].tolist() == [4, 1.5, -0.75, 10 * float(np.float32(0.1)), 1, 0]
