"""One time step of a simulation of earthquakes, whose sparse product is a black box to the compiler."""

from __future__ import annotations

import ctypes
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from polyhedral_nests import GCC, Call, InC, interleaved, peer

from tilewright.driver.nests import Nest
from tilewright.frontend.nests import scop
from tilewright.runtime import aligned_copy
from tilewright.target import detect

# ruff: noqa: F821 (annotations are read as text)
Array = npt.NDArray[Any]

#: Nodes and elements of a row in the meshes of the Quake project: sf10, sf5 and sf2.
MESHES = {"sf10": (7_294, 7), "sf5": (30_169, 7), "sf2": (378_747, 7)}

_PRODUCT = """
void product(int n, const int *first, const int *column, const double (*K)[3][3], const double (*u)[3],
             double (*w)[3]) {
    for (int i = 0; i < n; i++) {
        double s[3] = {0, 0, 0};
        int e = first[i];
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++)
                s[a] += K[e][a][b] * u[i][b];
        for (e++; e < first[i + 1]; e++) {
            int c = column[e];
            for (int a = 0; a < 3; a++)
                for (int b = 0; b < 3; b++) {
                    s[a] += K[e][a][b] * u[c][b];
                    w[c][a] += K[e][b][a] * u[i][b];
                }
        }
        for (int a = 0; a < 3; a++)
            w[i][a] += s[a];
    }
}
"""


def clear(w: f64[N, 3]):
    for i in range(N):
        for j in range(3):
            w[i, j] = 0.0


def step(
    w: f64[N, 3],
    u: f64[N, 3],
    o: f64[N, 3],
    M: f64[N, 3],
    C: f64[N, 3],
    D: f64[N, 3],
    E: f64[N, 3],
    V: f64[N, 3],
    v: f64[N, 3],
    h: f64,
    p: f64,
    q: f64,
    r: f64,
):
    """Central differences in time of displacements: ``u`` now, ``o`` before, ``w`` next."""
    for i in range(N):
        for j in range(3):
            w[i, j] *= -(h * h)
    for i in range(N):
        for j in range(3):
            w[i, j] += (
                2.0 * M[i, j] * u[i, j]
                - (M[i, j] - h * 0.5 * C[i, j]) * o[i, j]
                - h * h * (D[i, j] * p * 0.5 + E[i, j] * q * 0.5 + V[i, j] * r * 0.5)
            )
    for i in range(N):
        for j in range(3):
            w[i, j] = w[i, j] / (M[i, j] + h * 0.5 * C[i, j])
    for i in range(N):
        for j in range(3):
            v[i, j] = 0.5 / h * (w[i, j] - o[i, j])


def _at(a: Array) -> Any:
    return ctypes.c_void_p(a.ctypes.data) if a.ndim else ctypes.c_double(float(a))


def _ours(clear: Call, step: Call, library: ctypes.CDLL, fixed: list[Any], t: dict[str, Array]) -> None:
    clear()
    library.product(*fixed, _at(t["u"]), _at(t["w"]))
    step()


def _theirs(names: dict[str, list[str]], library: ctypes.CDLL, fixed: list[Any], t: dict[str, Array]) -> None:
    library.clear(_at(t["w"]))
    library.product(*fixed, _at(t["u"]), _at(t["w"]))
    library.step(*(_at(t[name]) for name in names["step"]))


def equake(threads: int, turns: int, limit: float) -> Iterator[dict[str, Any]]:
    """One time step of a simulation of earthquakes, its sparse product a black box: by gcc in both.

    Around it stand affine loops: of ours two nests, before and after the product, of gcc the same in C.
    """
    for mesh, (n, row_length) in MESHES.items():
        rng = np.random.default_rng(0)
        counts = rng.integers(row_length - 2, row_length + 3, n)
        first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        row = np.repeat(np.arange(n), counts)
        # neighbours are near in the numbering of a mesh
        column = np.minimum(row + rng.integers(0, 200, first[-1]), n - 1).astype(np.int32)
        column[first[:-1]] = np.arange(n)
        K = aligned_copy(rng.uniform(-1.0, 1.0, (int(first[-1]), 3, 3)))
        given = {name: rng.uniform(0.5, 1.5, (n, 3)) for name in "wuoMCDEVv"}
        given |= dict(zip("hpqr", map(np.float64, (0.0024, 0.3, 0.2, 0.1)), strict=True))
        nests = {f.__name__: Nest(scop(f).func, detect(), threads) for f in (clear, step)}
        names = {name: [b.name for b in nest.func.buffers] for name, nest in nests.items()}
        kernels = {name: nest.kernel({"N": n}) for name, nest in nests.items()}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "equake.c"
            parts = (InC(f, {"N": n}).text(f.__name__) for f in (clear, step))
            path.write_text("\n".join((_PRODUCT, *parts)))
            library = peer(GCC, path)
            if library is None:
                return
            tables = {who: {k: aligned_copy(a) for k, a in given.items()} for who in ("ours", "gcc")}

            fixed = [ctypes.c_int(n), *(_at(a) for a in (first, column, K))]

            mine = tables["ours"]
            plans = {k: kernel.plan([mine[name] for name in names[k]]) for k, kernel in kernels.items()}
            calls = [partial(plans[k].run, [], []) for k in ("clear", "step")]
            ours = partial(_ours, *calls, library, fixed, mine)
            theirs = partial(_theirs, names, library, fixed, tables["gcc"])
            ours()
            theirs()
            for name in ("w", "v"):
                if not np.allclose(tables["ours"][name], tables["gcc"][name], rtol=1e-9, atol=1e-9):
                    print(f"equake {mesh}: {name} differs", file=sys.stderr)
            times = interleaved({"ours": (lambda: None, ours), "gcc": (lambda: None, theirs)}, turns, limit)
        yield {
            "part": "equake",
            "name": mesh,
            "nodes": n,
            **{k: v * 1e3 for k, v in times.items()},
            "ratio": times["gcc"] / times["ours"],
        }
