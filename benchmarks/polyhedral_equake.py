"""One time step of a simulation of earthquakes: a nest in C that holds a sparse product, a black box."""

from __future__ import annotations

import ctypes
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from polyhedral_nests import GCC, interleaved, peer

from tilewright.driver.nests import Nest
from tilewright.frontend.c import read_c
from tilewright.runtime import aligned_copy
from tilewright.target import detect

Array = npt.NDArray[Any]

#: Nodes and elements of a row in the meshes of the Quake project: sf10, sf5 and sf2.
MESHES = {"sf10": (7_294, 7), "sf5": (30_169, 7), "sf2": (378_747, 7)}

#: Displacements now (``u``), before (``o``) and next (``w``) by central differences in time. Of the symmetric
#: matrix of blocks ``K`` one half is stored, a row's first block on the diagonal.
STEP = """
void equake(int n, int m, int first[restrict n + 1], int column[restrict m], double K[restrict m][3][3],
            double u[restrict n][3], double w[restrict n][3], double o[restrict n][3],
            double M[restrict n][3], double C[restrict n][3], double D[restrict n][3],
            double E[restrict n][3], double V[restrict n][3], double v[restrict n][3],
            double h, double p, double q, double r) {
#pragma scop
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 3; j++)
            w[i][j] = 0.0;
    for (int i = 0; i < n; i++) {
        int e = first[i];
        double s0 = K[e][0][0] * u[i][0] + K[e][0][1] * u[i][1] + K[e][0][2] * u[i][2];
        double s1 = K[e][1][0] * u[i][0] + K[e][1][1] * u[i][1] + K[e][1][2] * u[i][2];
        double s2 = K[e][2][0] * u[i][0] + K[e][2][1] * u[i][1] + K[e][2][2] * u[i][2];
        e++;
        while (e < first[i + 1]) {
            int c = column[e];
            s0 += K[e][0][0] * u[c][0] + K[e][0][1] * u[c][1] + K[e][0][2] * u[c][2];
            s1 += K[e][1][0] * u[c][0] + K[e][1][1] * u[c][1] + K[e][1][2] * u[c][2];
            s2 += K[e][2][0] * u[c][0] + K[e][2][1] * u[c][1] + K[e][2][2] * u[c][2];
            w[c][0] += K[e][0][0] * u[i][0] + K[e][1][0] * u[i][1] + K[e][2][0] * u[i][2];
            w[c][1] += K[e][0][1] * u[i][0] + K[e][1][1] * u[i][1] + K[e][2][1] * u[i][2];
            w[c][2] += K[e][0][2] * u[i][0] + K[e][1][2] * u[i][1] + K[e][2][2] * u[i][2];
            e++;
        }
        w[i][0] += s0;
        w[i][1] += s1;
        w[i][2] += s2;
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 3; j++)
            w[i][j] *= -(h * h);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 3; j++)
            w[i][j] += 2.0 * M[i][j] * u[i][j] - (M[i][j] - h * 0.5 * C[i][j]) * o[i][j]
                       - h * h * (D[i][j] * p * 0.5 + E[i][j] * q * 0.5 + V[i][j] * r * 0.5);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 3; j++)
            w[i][j] = w[i][j] / (M[i][j] + h * 0.5 * C[i][j]);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 3; j++)
            v[i][j] = 0.5 / h * (w[i][j] - o[i][j]);
#pragma endscop
}
"""


def _mesh(n: int, row_length: int) -> dict[str, Array]:
    """Arguments of a step on a mesh whose neighbours are near each other in its numbering."""
    rng = np.random.default_rng(0)
    counts = rng.integers(row_length - 2, row_length + 3, n)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    row = np.repeat(np.arange(n), counts)
    column = np.minimum(row + rng.integers(0, 200, first[-1]), n - 1).astype(np.int32)
    column[first[:-1]] = np.arange(n)
    out: dict[str, Array] = {"first": first, "column": column}
    out["K"] = rng.uniform(-1.0, 1.0, (int(first[-1]), 3, 3))
    out |= {name: rng.uniform(0.5, 1.5, (n, 3)) for name in "uwoMCDEVv"}
    return out | {k: np.array(x) for k, x in zip("hpqr", (0.0024, 0.3, 0.2, 0.1), strict=True)}


def equake(threads: int, turns: int, limit: float) -> Iterator[dict[str, Any]]:
    """A row for each mesh: the nest as it is in C, by ours and by gcc on one thread."""
    nest = Nest(read_c(STEP), detect(), threads)
    for mesh, (n, row_length) in MESHES.items():
        given = _mesh(n, row_length)
        sizes = {"n": n, "m": len(given["column"])}
        tables = [{b.name: aligned_copy(given[b.name]) for b in nest.arguments.buffers} for _ in range(2)]
        mine, theirs = tables
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "equake.c"
            path.write_text(STEP)
            library = peer(GCC, path)
            if library is None:
                return
            at: list[Any] = [ctypes.c_int(x) for x in sizes.values()]
            for a in theirs.values():
                at.append(ctypes.c_void_p(a.ctypes.data) if a.ndim else ctypes.c_double(float(a)))
            plan = nest.kernel(sizes).plan(list(mine.values()))
            calls = {
                "ours": (lambda: None, lambda p=plan: p.run([], [])),
                "gcc": (lambda: None, lambda f=library.equake, at=at: f(*at)),
            }
            for _, run in calls.values():
                run()  # type: ignore[no-untyped-call]
            for name in nest.arguments.outputs:
                if not np.allclose(mine[name], theirs[name], rtol=1e-9, atol=1e-9):
                    print(f"equake {mesh}: {name} differs", file=sys.stderr)
            times = interleaved(calls, turns, limit)
        ratio = times["gcc"] / times["ours"]
        yield {
            "part": "equake",
            "name": mesh,
            "nodes": n,
            **{k: v * 1e3 for k, v in times.items()},
            "ratio": ratio,
        }
