"""The thirty kernels of PolyBench, each written from the mathematics of what it computes.

The functions are nests for :func:`tilewright.frontend.nests.scop` and plain Python at the same time, which is
what the tests compare with. Matrices that are factored are made diagonally dominant.
"""

from __future__ import annotations

from math import exp, sqrt

import numpy as np

# ruff: noqa: F821 (annotations are read as text; names are those of the mathematics)


def gemm(C: f64[NI, NJ], A: f64[NI, NK], B: f64[NK, NJ], alpha: f64, beta: f64):
    for i in range(NI):
        for j in range(NJ):
            C[i, j] *= beta
        for k in range(NK):
            for j in range(NJ):
                C[i, j] += alpha * A[i, k] * B[k, j]


def two_mm(
    tmp: f64[NI, NJ], A: f64[NI, NK], B: f64[NK, NJ], C: f64[NJ, NL], D: f64[NI, NL], alpha: f64, beta: f64
):
    for i in range(NI):
        for j in range(NJ):
            tmp[i, j] = 0.0
            for k in range(NK):
                tmp[i, j] += alpha * A[i, k] * B[k, j]
    for i in range(NI):
        for j in range(NL):
            D[i, j] *= beta
            for k in range(NJ):
                D[i, j] += tmp[i, k] * C[k, j]


def three_mm(
    E: f64[NI, NJ],
    A: f64[NI, NK],
    B: f64[NK, NJ],
    F: f64[NJ, NL],
    C: f64[NJ, NM],
    D: f64[NM, NL],
    G: f64[NI, NL],
):
    for i in range(NI):
        for j in range(NJ):
            E[i, j] = 0.0
            for k in range(NK):
                E[i, j] += A[i, k] * B[k, j]
    for i in range(NJ):
        for j in range(NL):
            F[i, j] = 0.0
            for k in range(NM):
                F[i, j] += C[i, k] * D[k, j]
    for i in range(NI):
        for j in range(NL):
            G[i, j] = 0.0
            for k in range(NJ):
                G[i, j] += E[i, k] * F[k, j]


def gemver(
    A: f64[N, N], u1: f64[N], v1: f64[N], u2: f64[N], v2: f64[N], w: f64[N], x: f64[N], y: f64[N], z: f64[N],
    alpha: f64, beta: f64,
):  # fmt: skip
    for i in range(N):
        for j in range(N):
            A[i, j] = A[i, j] + u1[i] * v1[j] + u2[i] * v2[j]
    for i in range(N):
        for j in range(N):
            x[i] = x[i] + beta * A[j, i] * y[j]
    for i in range(N):
        x[i] = x[i] + z[i]
    for i in range(N):
        for j in range(N):
            w[i] = w[i] + alpha * A[i, j] * x[j]


def gesummv(A: f64[N, N], B: f64[N, N], tmp: f64[N], x: f64[N], y: f64[N], alpha: f64, beta: f64):
    for i in range(N):
        tmp[i] = 0.0
        y[i] = 0.0
        for j in range(N):
            tmp[i] = A[i, j] * x[j] + tmp[i]
            y[i] = B[i, j] * x[j] + y[i]
        y[i] = alpha * tmp[i] + beta * y[i]


def symm(C: f64[M, N], A: f64[M, M], B: f64[M, N], alpha: f64, beta: f64):
    for i in range(M):
        for j in range(N):
            t = 0.0
            for k in range(i):
                C[k, j] += alpha * B[i, j] * A[i, k]
                t += B[k, j] * A[i, k]
            C[i, j] = beta * C[i, j] + alpha * B[i, j] * A[i, i] + alpha * t


def syrk(C: f64[N, N], A: f64[N, M], alpha: f64, beta: f64):
    for i in range(N):
        for j in range(i + 1):
            C[i, j] *= beta
        for k in range(M):
            for j in range(i + 1):
                C[i, j] += alpha * A[i, k] * A[j, k]


def syr2k(C: f64[N, N], A: f64[N, M], B: f64[N, M], alpha: f64, beta: f64):
    for i in range(N):
        for j in range(i + 1):
            C[i, j] *= beta
        for k in range(M):
            for j in range(i + 1):
                C[i, j] += A[j, k] * alpha * B[i, k] + B[j, k] * alpha * A[i, k]


def trmm(A: f64[M, M], B: f64[M, N], alpha: f64):
    for i in range(M):
        for j in range(N):
            for k in range(i + 1, M):
                B[i, j] += A[k, i] * B[k, j]
            B[i, j] = alpha * B[i, j]


def atax(A: f64[M, N], x: f64[N], y: f64[N], tmp: f64[M]):
    for i in range(N):
        y[i] = 0.0
    for i in range(M):
        tmp[i] = 0.0
        for j in range(N):
            tmp[i] = tmp[i] + A[i, j] * x[j]
        for j in range(N):
            y[j] = y[j] + A[i, j] * tmp[i]


def bicg(A: f64[N, M], s: f64[M], q: f64[N], p: f64[M], r: f64[N]):
    for i in range(M):
        s[i] = 0.0
    for i in range(N):
        q[i] = 0.0
        for j in range(M):
            s[j] = s[j] + r[i] * A[i, j]
            q[i] = q[i] + A[i, j] * p[j]


def mvt(A: f64[N, N], x1: f64[N], x2: f64[N], y1: f64[N], y2: f64[N]):
    for i in range(N):
        for j in range(N):
            x1[i] = x1[i] + A[i, j] * y1[j]
    for i in range(N):
        for j in range(N):
            x2[i] = x2[i] + A[j, i] * y2[j]


def doitgen(A: f64[R, Q, P], C4: f64[P, P], row: f64[P]):
    for r in range(R):
        for q in range(Q):
            for p in range(P):
                row[p] = 0.0
                for s in range(P):
                    row[p] += A[r, q, s] * C4[s, p]
            for p in range(P):
                A[r, q, p] = row[p]


def covariance(data: f64[N, M], cov: f64[M, M], mean: f64[M], count: f64):
    for j in range(M):
        mean[j] = 0.0
        for i in range(N):
            mean[j] += data[i, j]
        mean[j] /= count
    for i in range(N):
        for j in range(M):
            data[i, j] -= mean[j]
    for i in range(M):
        for j in range(i, M):
            cov[i, j] = 0.0
            for k in range(N):
                cov[i, j] += data[k, i] * data[k, j]
            cov[i, j] /= count - 1.0
            cov[j, i] = cov[i, j]


def correlation(data: f64[N, M], corr: f64[M, M], mean: f64[M], stddev: f64[M], count: f64):
    for j in range(M):
        mean[j] = 0.0
        for i in range(N):
            mean[j] += data[i, j]
        mean[j] /= count
    for j in range(M):
        stddev[j] = 0.0
        for i in range(N):
            stddev[j] += (data[i, j] - mean[j]) * (data[i, j] - mean[j])
        stddev[j] /= count
        stddev[j] = sqrt(stddev[j])
        stddev[j] = 1.0 if stddev[j] <= 0.1 else stddev[j]
    for i in range(N):
        for j in range(M):
            data[i, j] -= mean[j]
            data[i, j] /= sqrt(count) * stddev[j]
    for i in range(M - 1):
        corr[i, i] = 1.0
        for j in range(i + 1, M):
            corr[i, j] = 0.0
            for k in range(N):
                corr[i, j] += data[k, i] * data[k, j]
            corr[j, i] = corr[i, j]
    corr[M - 1, M - 1] = 1.0


def cholesky(A: f64[N, N]):
    for i in range(N):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[j, k]
            A[i, j] /= A[j, j]
        for k in range(i):
            A[i, i] -= A[i, k] * A[i, k]
        A[i, i] = sqrt(A[i, i])


def lu(A: f64[N, N]):
    for i in range(N):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[k, j]
            A[i, j] /= A[j, j]
        for j in range(i, N):
            for k in range(i):
                A[i, j] -= A[i, k] * A[k, j]


def ludcmp(A: f64[N, N], b: f64[N], x: f64[N], y: f64[N]):
    for i in range(N):
        for j in range(i):
            w = A[i, j]
            for k in range(j):
                w -= A[i, k] * A[k, j]
            A[i, j] = w / A[j, j]
        for j in range(i, N):
            w = A[i, j]
            for k in range(i):
                w -= A[i, k] * A[k, j]
            A[i, j] = w
    for i in range(N):
        w = b[i]
        for j in range(i):
            w -= A[i, j] * y[j]
        y[i] = w
    for i in range(N - 1, -1, -1):
        w = y[i]
        for j in range(i + 1, N):
            w -= A[i, j] * x[j]
        x[i] = w / A[i, i]


def trisolv(L: f64[N, N], x: f64[N], b: f64[N]):
    for i in range(N):
        x[i] = b[i]
        for j in range(i):
            x[i] -= L[i, j] * x[j]
        x[i] = x[i] / L[i, i]


def durbin(r: f64[N], y: f64[N], z: f64[N]):
    y[0] = -r[0]
    beta = 1.0
    alpha = -r[0]
    for k in range(1, N):
        beta = (1.0 - alpha * alpha) * beta
        s = 0.0
        for i in range(k):
            s += r[k - i - 1] * y[i]
        alpha = -(r[k] + s) / beta
        for i in range(k):
            z[i] = y[i] + alpha * y[k - i - 1]
        for i in range(k):
            y[i] = z[i]
        y[k] = alpha


def gramschmidt(A: f64[M, N], R: f64[N, N], Q: f64[M, N]):
    for k in range(N):
        norm = 0.0
        for i in range(M):
            norm += A[i, k] * A[i, k]
        R[k, k] = sqrt(norm)
        for i in range(M):
            Q[i, k] = A[i, k] / R[k, k]
        for j in range(k + 1, N):
            R[k, j] = 0.0
            for i in range(M):
                R[k, j] += Q[i, k] * A[i, j]
            for i in range(M):
                A[i, j] = A[i, j] - Q[i, k] * R[k, j]


def floyd_warshall(path: f64[N, N]):
    for k in range(N):
        for i in range(N):
            for j in range(N):
                path[i, j] = path[i, j] if path[i, j] < path[i, k] + path[k, j] else path[i, k] + path[k, j]


def nussinov(seq: f64[N], table: f64[N, N]):
    for i in range(N - 1, -1, -1):
        for j in range(i + 1, N):
            table[i, j] = max(table[i, j], table[i, j - 1])
            table[i, j] = max(table[i, j], table[i + 1, j])
            if i < j - 1:
                table[i, j] = max(table[i, j], table[i + 1, j - 1] + (1.0 if seq[i] + seq[j] == 3.0 else 0.0))
            else:
                table[i, j] = max(table[i, j], table[i + 1, j - 1])
            for k in range(i + 1, j):
                table[i, j] = max(table[i, j], table[i, k] + table[k + 1, j])


def deriche(imgIn: f64[W, H], imgOut: f64[W, H], y1: f64[W, H], y2: f64[W, H], alpha: f64):
    k = (1.0 - exp(-alpha)) * (1.0 - exp(-alpha)) / (1.0 + 2.0 * alpha * exp(-alpha) - exp(2.0 * alpha))
    a2 = k * exp(-alpha) * (alpha - 1.0)
    a3 = k * exp(-alpha) * (alpha + 1.0)
    a4 = -k * exp(-2.0 * alpha)
    b1 = 2.0 ** (-alpha)
    b2 = -exp(-2.0 * alpha)
    for i in range(W):
        ym1 = 0.0
        ym2 = 0.0
        xm1 = 0.0
        for j in range(H):
            y1[i, j] = k * imgIn[i, j] + a2 * xm1 + b1 * ym1 + b2 * ym2
            xm1 = imgIn[i, j]
            ym2 = ym1
            ym1 = y1[i, j]
    for i in range(W):
        yp1 = 0.0
        yp2 = 0.0
        xp1 = 0.0
        xp2 = 0.0
        for j in range(H - 1, -1, -1):
            y2[i, j] = a3 * xp1 + a4 * xp2 + b1 * yp1 + b2 * yp2
            xp2 = xp1
            xp1 = imgIn[i, j]
            yp2 = yp1
            yp1 = y2[i, j]
    for i in range(W):
        for j in range(H):
            imgOut[i, j] = y1[i, j] + y2[i, j]


def adi(T: int, u: f64[N, N], v: f64[N, N], p: f64[N, N], q: f64[N, N], a: f64, b: f64):
    for _t in range(T):
        for i in range(1, N - 1):
            v[0, i] = 1.0
            p[i, 0] = 0.0
            q[i, 0] = v[0, i]
            for j in range(1, N - 1):
                p[i, j] = -b / (a * p[i, j - 1] + 2.0)
                q[i, j] = (u[j, i - 1] + 0.5 * u[j, i] + u[j, i + 1] - a * q[i, j - 1]) / (
                    a * p[i, j - 1] + 2.0
                )
            v[N - 1, i] = 1.0
            for j in range(N - 2, 0, -1):
                v[j, i] = p[i, j] * v[j + 1, i] + q[i, j]
        for i in range(1, N - 1):
            u[i, 0] = 1.0
            p[i, 0] = 0.0
            q[i, 0] = u[i, 0]
            for j in range(1, N - 1):
                p[i, j] = -b / (a * p[i, j - 1] + 2.0)
                q[i, j] = (v[i - 1, j] + 0.5 * v[i, j] + v[i + 1, j] - a * q[i, j - 1]) / (
                    a * p[i, j - 1] + 2.0
                )
            u[i, N - 1] = 1.0
            for j in range(N - 2, 0, -1):
                u[i, j] = p[i, j] * u[i, j + 1] + q[i, j]


def fdtd_2d(T: int, ex: f64[NX, NY], ey: f64[NX, NY], hz: f64[NX, NY], source: f64[T]):
    for t in range(T):
        for j in range(NY):
            ey[0, j] = source[t]
        for i in range(1, NX):
            for j in range(NY):
                ey[i, j] = ey[i, j] - 0.5 * (hz[i, j] - hz[i - 1, j])
        for i in range(NX):
            for j in range(1, NY):
                ex[i, j] = ex[i, j] - 0.5 * (hz[i, j] - hz[i, j - 1])
        for i in range(NX - 1):
            for j in range(NY - 1):
                hz[i, j] = hz[i, j] - 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])


def heat_3d(T: int, A: f64[N, N, N], B: f64[N, N, N]):
    for _t in range(T):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                for k in range(1, N - 1):
                    B[i, j, k] = A[i, j, k] + 0.125 * (
                        A[i + 1, j, k] + A[i - 1, j, k] + A[i, j + 1, k] + A[i, j - 1, k]
                        + A[i, j, k + 1] + A[i, j, k - 1] - 6.0 * A[i, j, k]
                    )  # fmt: skip
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                for k in range(1, N - 1):
                    A[i, j, k] = B[i, j, k] + 0.125 * (
                        B[i + 1, j, k] + B[i - 1, j, k] + B[i, j + 1, k] + B[i, j - 1, k]
                        + B[i, j, k + 1] + B[i, j, k - 1] - 6.0 * B[i, j, k]
                    )  # fmt: skip


def jacobi_1d(T: int, A: f64[N], B: f64[N]):
    for _t in range(T):
        for i in range(1, N - 1):
            B[i] = 0.25 * (A[i - 1] + A[i] + A[i + 1])
        for i in range(1, N - 1):
            A[i] = 0.25 * (B[i - 1] + B[i] + B[i + 1])


def jacobi_2d(T: int, A: f64[N, N], B: f64[N, N]):
    for _t in range(T):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                B[i, j] = 0.2 * (A[i, j] + A[i, j - 1] + A[i, j + 1] + A[i + 1, j] + A[i - 1, j])
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                A[i, j] = 0.2 * (B[i, j] + B[i, j - 1] + B[i, j + 1] + B[i + 1, j] + B[i - 1, j])


def seidel_2d(T: int, A: f64[N, N]):
    for _t in range(T):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                A[i, j] = (
                    A[i - 1, j - 1] + A[i - 1, j] + A[i - 1, j + 1] + A[i, j - 1] + A[i, j]
                    + A[i, j + 1] + A[i + 1, j - 1] + A[i + 1, j] + A[i + 1, j + 1]
                ) / 9.0  # fmt: skip


KERNELS = {
    f.__name__.replace("two_", "2").replace("three_", "3"): f
    for f in (
        correlation, covariance, gemm, gemver, gesummv, symm, syr2k, syrk, trmm, two_mm, three_mm, atax, bicg,
        doitgen, mvt, cholesky, durbin, gramschmidt, lu, ludcmp, trisolv, deriche, floyd_warshall, nussinov,
        adi, fdtd_2d, heat_3d, jacobi_1d, jacobi_2d, seidel_2d,
    )
}  # fmt: skip

SIZES = {"N": 7, "M": 8, "NI": 5, "NJ": 6, "NK": 7, "NL": 4, "NM": 3, "R": 3, "Q": 4, "P": 5, "W": 5, "H": 6,
         "T": 3, "NX": 5, "NY": 6}  # fmt: skip


def arguments(func, sizes=None, seed=0):
    """Arrays for the arguments of a loop function, and the values of its sizes."""
    rng = np.random.default_rng(seed)
    known = {**SIZES, **(sizes or {})}
    arrays = {}
    for b in func.buffers:
        shape = tuple(e.const if e.is_const else known[str(e)] for e in b.shape)
        a = rng.uniform(0.5, 1.5, shape)
        if len(shape) == 2 and shape[0] == shape[1]:
            a = (a + a.T) / 2 + np.eye(shape[0]) * 2 * shape[0]
        if b.name == "seq":
            a = rng.integers(0, 4, shape).astype(np.float64)
        arrays[b.name] = a
    return arrays, {p.name: known[p.name] for p in func.params}


def run_python(function, arrays, sizes):
    """Run the function itself on copies of the arrays; returns them."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    copies = {n: a.copy() for n, a in arrays.items()}
    given = [sizes[n] if n in sizes and n not in copies else copies[n] for n in names]
    bound = type(function)(function.__code__, {**function.__globals__, **sizes})
    bound(*(g if isinstance(g, int) or g.shape else float(g) for g in given))
    return copies
