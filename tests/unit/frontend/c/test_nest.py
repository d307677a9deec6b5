"""Nests in C against gcc, which compiles the same text: interpreted and compiled, at sizes from none on."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from c_nests import GCC, differences, drawn, interpreted, original
from random_nests import outcome, text_of
from tilewright.driver import Nest

NESTS = {
    "collatz": """
void f(int n, int A[n]) { for (int i=0;i<n;i++) { int k = 2*i; if (k < n) A[k] = k % 3; k = k/3;
    A[k] += k; } }
""",
    "whiles": """
void f(int n, double A[n]) { int i = 0; while (i < n) { A[i] += i; i += 2; } if (n > 0) A[0] = i; }
""",
    "down": """
void f(unsigned n, unsigned A[n]) { for (unsigned i = n; i > 0; i--) A[i-1] = A[i-1] - 3u*i; }
""",
    "wrap": """
#include <stdint.h>
void f(int n, uint8_t A[n], uint16_t B[n], int8_t C[n], int D[n]) { for (int i=0;i<n;i++) {
    A[i] += 200; B[i] = B[i]*B[i]; C[i] -= 100; D[i] = A[i] - B[i] + C[i] * 7; } }
""",
    "cmp": """
void f(unsigned n, int A[n]) { for (unsigned i=0;i<n;i++) { if (i - 1 < n - 2) A[i] += 1;
    else A[i] -= 2; if (i - 3 > 2) A[i] *= 3; if (i - 2 == -1u) A[i] = 9;} }
""",
    "cmp2": """
#include <stddef.h>
void f(size_t n, int A[n]) { for (size_t i=0;i<n;i++) { if (i - 1 < n) A[i] += 1;
    if (i >= 3 && i - 3 < 2) A[i] *= 3; } }
""",
    "periodic": """
void f(int n, double A[n], double B[n]) {
    for (int i=0;i<n;i++) B[i] = A[(i+1)%n] + A[(i+n-1)%n] + A[i == 0 ? n-1 : i-1]; }
""",
    "clamped": """
void f(int n, double A[n], double B[n]) { for (int i=0;i<n;i++) { int l = i > 0 ? i-1 : 0;
    int r = i < n-1 ? i+1 : n-1; B[i] = A[l] + A[r]; } }
""",
    "helper": """
static inline double sq(double x) { return x * x; }
static int idx(int i, int j, int m) { return i*m+j; }
void f(int n, int m, double *A, double *B) {
    for (int i=0;i<n;i++) for (int j=0;j<m;j++) B[idx(i,j,m)] = sq(A[idx(i,j,m)]) + sq(2); }
""",
    "helper2": """
static void row(int m, const double *a, double *b, double s) { for (int j=0;j<m;j++) b[j] += s*a[j]; }
void f(int n, int m, double A[n][m], double B[n][m], double x[n]) {
    for (int i=0;i<n;i++) row(m, A[i], B[i], x[i]); }
""",
    "ptr": """
void f(int n, int m, double *A, double *B) { for (int i=0;i<n;i++) { const double *a = A + i*m;
    double *b = &B[i*m]; for (int j=0;j<m;j++) *(b+j) = a[j] + (j>0 ? a[j-1] : 0.0); } }
""",
    "logic": """
void f(int n, int A[n], int B[n], int C[n]) { for (int i=0;i<n;i++) {
    C[i] = (A[i] && B[i]) + (A[i] || !B[i])*2 + (A[i] > B[i])*4 + (i > 2) + !i; if (A[i] & 1) C[i]++;
    if (!(A[i] > 3 || B[i] < 2)) C[i] = ~C[i]; } }
""",
    "divs": """
void f(int n, int A[n], int B[n]) { for (int i=0;i<n;i++) {
    if (B[i] != 0) A[i] = A[i]/B[i] + A[i]%B[i]; B[i] = (i-5)/3 + (i-5)%3*10 + (3-i)/2*100; } }
""",
    "dividx": """
void f(int n, int A[n], int B[2*n+10]) { for (int i=0;i<n;i++) { B[(i-5)/3+5] += A[i];
    B[(i-5)%4+5] -= i; } }
""",
    "longs": """
void f(int n, long A[n], unsigned long B[n], unsigned C[n], int D[n]) { for (int i=0;i<n;i++) {
    A[i] = A[i]*D[i] + C[i]; B[i] = B[i] + D[i] - C[i]; C[i] = C[i]*D[i] >> 3;
    D[i] = (D[i] << 5) >> 2; A[i] += -1 > 0u; A[i] += (C[i] > D[i]); } }
""",
    "floats": """
void f(int n, float A[n], double B[n], int C[n]) { for (int i=0;i<n;i++) { A[i] = A[i] * 0.5 + C[i];
    B[i] = A[i] / 4 + (float)C[i]; C[i] = (int)(B[i] * 1.5); C[i] += B[i] > 2 ? 1 : -1;} }
""",
    "bools": """
#include <stdbool.h>
void f(int n, bool A[n], _Bool B[n], double x[n]) { for (int i=0;i<n;i++) { A[i] = x[i];
    B[i] = A[i] && !B[i]; if (A[i] == true) x[i] = -1; bool t = x[i] > 0; x[i] += t; } }
""",
    "nestcont": """
void f(int n, double A[n], double B[n]) { for (int i=0;i<n;i++) { if (i % 3 == 0) continue;
    if (A[i] > 0) { if (B[i] > 1) continue; B[i] = 2; } else if (A[i] < -2) { A[i] = 0; continue; }
    A[i] += B[i]; } }
""",
    "globals": """
#define N 12
int A[N][N]; static const int K[3] = {1,2,1}; static double scale = 0.5; enum { P = 3, Q };
void f(void) { for (int i=1;i<N-1;i++) for (int j=0;j<N;j++) { int s = 0;
    for (int k=0;k<3;k++) s += K[k]*A[i][j]; A[i][j] = s + P*Q; } }
""",
    "locals": """
void f(int n, double A[n][8]) { for (int i=0;i<n;i++) { double t[8]; double s = 0;
    for (int j=0;j<8;j++) { t[j] = A[i][7-j]; s += t[j]; } for (int j=0;j<8;j++) A[i][j] = t[j] - s; } }
""",
    "shadow": """
void f(int n, double A[n]) { double t = 1; for (int i=0;i<n;i++) { double t = A[i]; { double t = 3;
    A[i] += t; } A[i] *= t; } if (n > 0) A[0] += t; for (int i=0;i<n;i++) { int i2 = i;
    for (int i=0;i<2;i++) A[i2] += i; } }
""",
    "params": """
void f(int n, double s, double A[n], int k) { s = s * 2; k += 3; n = n / 2; for (int i=0;i<n;i++) {
    A[i] = s * k; s += 1; k--; } }
""",
    "ternsum": """
void f(int n, double A[n], double B[1]) { double m = -100; int c = 0; for (int i=0;i<n;i++) {
    m = A[i] > m ? A[i] : m; c += A[i] > 0; } B[0] = m + c; }
""",
    "hist": """
void f(int n, int k[n], int H[256]) { for (int i=0;i<n;i++) H[(unsigned char)k[i]]++; }
""",
    "csr": """
void f(int n, int p[n+1], int c[64], double v[64], double x[64], double y[n]) {
    for (int i=0;i<n;i++) { double s = 0; for (int e=i*3;e<i*3+(p[i]&3);e++) s += v[e]*x[c[e] & 63];
    y[i] = s; } }
""",
    "flat3": """
void f(int n, int m, float *A, float *B) { for (int q=0;q<n*m;q++) { int i = q / m, j = q % m;
    B[j*n+i] = A[q]; } }
""",
    "tri": """
void f(int n, double A[n][n]) {
    for (int i=0;i<n;i++) for (int j=i;j<n;j+=2)
    for (int k=j-1;k>=0;k-=3) A[i][j] += A[k][j] * (k%2 ? 1 : -1); }
""",
    "elseif": """
void f(int n, double A[n][n]) { for (int i=0;i<n;i++) for (int j=0;j<n;j++) {
    if (i == j) A[i][j] = 1; else if (i < j && j < i + 3) A[i][j] *= 2;
    else if (i > j || j % 2) A[i][j] -= 1; else A[i][j] = 0; } }
""",
    "datacond": """
void f(int n, double A[n], double B[n]) { for (int i=0;i<n;i++) { if (A[i] > 0 && i > 1) { A[i] = -1;
    B[i] = A[i-1]; } else { B[i] = 5; A[i] += 1; } } }
""",
    "scan": """
void f(int n, unsigned char P[n], unsigned int S[n]) { unsigned s = 0; for (int i=0;i<n;i++) {
    s += P[i]; S[i] = s; s ^= s << 3; } }
""",
    "minmax": """
#define MIN(a,b) ((a)<(b)?(a):(b))
#define MAX(a,b) ((a)>(b)?(a):(b))
void f(int n, int A[n], int B[n]) { for (int i=0;i<n;i++) { A[i] = MIN(MAX(A[i], 0), 50);
    for (int j=MAX(0,i-2);j<MIN(n,i+3);j++) B[i] = MAX(B[i], A[j]); } }
""",
    "dotwo": """
#define ADD(x) do { (x) += 1; if ((x) > 2) (x) -= 3; } while (0)
void f(int n, int A[n]) { for (int i=0;i<n;i++) { ADD(A[i]); if (i) ADD(A[i-1]); } }
""",
    "comma": """
void f(int n, int A[n]) { int i, j; for (i=0;i<n;i++) { j = i, A[j] += 1; A[i] = A[j] = A[j] + 2; }
    if (n > 3) A[2] = i + j; }
""",
    "uneg": """
void f(int n, unsigned A[n], double x[n]) { for (int i=0;i<n;i++) { A[i] = -1; A[i] = A[i] / (i+1u) ;
    x[i] = -(unsigned)i; x[i] += (unsigned)(i-2) / 3; } }
""",
    "chars": """
void f(int n, char A[n], signed char B[n]) { for (int i=0;i<n;i++) {
    if (A[i] >= 'A' && A[i] <= 'Z') B[i] = A[i] - 'A' + 'a'; else B[i] = '\\n'; } }
""",
    "sizebig": """
#include <limits.h>
void f(int n, int A[n], long L[n]) { for (int i=0;i<n;i++) { if (A[i] < 0) A[i] = INT_MAX;
    L[i] = LONG_MAX - A[i]; L[i] ^= 0xffffffff; L[i] += 0x80000000 + 0x7fffffff; } }
""",
    "case_bits": """
void bits(int n, unsigned int A[n], unsigned short B[n], int C[n]) {
#pragma scop
  for (int i = 0; i < n; i++) {
    A[i] = (A[i] ^ (A[i] << 13)) & ~7u;
    B[i] = (unsigned short)(B[i] * 3);
    C[i] = C[i] / 3 + C[i] % 5 + !C[i];
  }
#pragma endscop
}
""",
    "case_else_affine": """
void else_affine(int n, double A[n], double B[n]) {
#pragma scop
  for (int i = 0; i < n; i++) {
    if (i > 0 && i < n - 1) B[i] = A[i - 1] + A[i + 1];
    else B[i] = A[i];
  }
#pragma endscop
}
""",
    "case_else_data": """
void else_data(int n, double A[n], double B[n], double C[n]) {
#pragma scop
  for (int i = 0; i < n; i++) {
    if (A[i] > 0.0) B[i] = A[i]; else C[i] = -A[i];
  }
#pragma endscop
}
""",
    "case_else_or": """
void else_or(int n, int m, double A[n][m]) {
#pragma scop
  for (int i = 0; i < n; i++)
    for (int j = 0; j < m; j++)
      if (i == 0 || j == m - 1) A[i][j] = 1.0; else A[i][j] = 2.0 * A[i][j];
#pragma endscop
}
""",
    "case_file_scope": """
static double W[3] = {0.25, 0.5, 0.25};
void file_scope(int n, double A[n], double B[n]) {
  double eps = 0.125;
#pragma scop
  for (int i = 1; i < n - 1; i++) B[i] = eps + W[0] * A[i - 1] + W[1] * A[i] + W[2] * A[i + 1];
#pragma endscop
}
""",
    "case_flat": """
void flat(int n, int m, const double *A, double *x, double *y) {
#pragma scop
  for (int i = 0; i < n; i++)
    for (int j = 0; j < m; j++) y[i] += A[i * m + j] * x[j];
#pragma endscop
}
""",
    "case_halves": """
void halves(int n, double A[n], double B[n]) {
#pragma scop
  for (int i = 0; i < n / 2; i++) { B[i] = A[2 * i]; B[n / 2 + i] = A[i / 2]; }
#pragma endscop
}
""",
    "case_macro": """
#define SWAP(a, b) do { double t_ = (a); (a) = (b); (b) = t_; } while (0)
void macro(int n, double A[n], double B[n]) {
#pragma scop
  for (int i = 0; i < n; i++) SWAP(A[i], B[i]);
#pragma endscop
}
""",
    "case_negative": """
void negative(int n, int shift, double gain, double A[n], double B[n]) {
#pragma scop
  for (int i = n - 1; i >= 0; i -= 1) B[i] = gain * A[i] + shift;
#pragma endscop
}
""",
    "case_no_pragma": """
void no_pragma(int n, double A[n], double B[n]) {
  for (int i = 0; i < n; i++) B[i] = 2.0 * A[i];
}
""",
    "case_not_equal": """
void not_equal(int n, double A[n][n]) {
#pragma scop
  for (int i = 0; i != n; i++)
    for (int j = 0; n > j; ++j)
      if (i != j) A[i][j] = 0.0;
#pragma endscop
}
""",
    "case_parity": """
void parity(int n, double A[n]) {
#pragma scop
  for (int c = 0; c < 2; c++)
    for (int i = 1; i < n - 1; i++)
      if ((i + c) % 2 == 0) A[i] = 0.5 * (A[i - 1] + A[i + 1]);
#pragma endscop
}
""",
    "case_picture": """
void picture(int n, int m, unsigned char P[n][m], unsigned char Q[n][m]) {
#pragma scop
  for (int i = 1; i < n - 1; i++)
    for (int j = 0; j < m; j++) Q[i][j] = (P[i - 1][j] + 2 * P[i][j] + P[i + 1][j] + 2) >> 2;
#pragma endscop
}
""",
    "case_ring": """
void ring(int n, int m, double U[2][m], double F[n][m]) {
#pragma scop
  for (int s = 1; s < n; s++)
    for (int i = 0; i < m; i++) U[s % 2][i] = 0.5 * U[(s - 1) % 2][i] + F[s][i];
#pragma endscop
}
""",
    "case_row_pointer": """
void row_pointer(int n, int m, double (*A)[m], double (*B)[m]) {
#pragma scop
  for (int i = 0; i < n; i++) {
    double *row = A[i];
    for (int j = 0; j < m; j++) B[i][j] = 2.0 * row[j];
  }
#pragma endscop
}
""",
    "case_sized_types": """
#include <stddef.h>
#include <stdint.h>
void sized_types(size_t n, int32_t A[n], uint8_t P[n]) {
#pragma scop
  for (size_t i = 0; i < n; i++) { A[i] += P[i]; P[i] = (uint8_t)(P[i] + 200); }
#pragma endscop
}
""",
    "case_skip": """
void skip(int n, double A[n], double B[n]) {
#pragma scop
  for (int i = 0; i < n; i++) {
    if (A[i] < 0.0) continue;
    B[i] += A[i];
  }
#pragma endscop
}
""",
    "case_two_int_sums": """
void two_int_sums(int n, int m, int A[n][m], int S[n], int R[n]) {
#pragma scop
  for (int i = 0; i < n; i++)
    for (int j = 0; j < m; j++) { S[i] += A[i][j]; R[i] += 2 * A[i][j]; }
#pragma endscop
}
""",
    "fir": """
void f(int n, const float x[restrict static n+8], const float h[restrict 8], float * restrict y) {
    register int i, k;
#pragma omp parallel for
for (i=0;i<n;i++) { float acc = 0.f; for (k=0;k<8;k++) acc += h[k]*x[i+7-k]; y[i]=acc; } }
""",
    "erode": """
void f(int n, int m, unsigned char A[n][m], unsigned char B[n][m]) {
    for (int i=0;i<n;i++) for (int j=0;j<m;j++) { unsigned char v = 255;
    for (int a=-1;a<=1;a++) for (int b=-1;b<=1;b++) { int y = i+a, x = j+b; if (y < 0) y = 0;
    if (y >= n) y = n-1; if (x < 0) x = 0; if (x >= m) x = m-1; if (A[y][x] < v) v = A[y][x]; }
    B[i][j] = v; } }
""",
    "argmax": """
void f(int n, int m, float A[n][m], int I[n]) { for (int i=0;i<n;i++) { int best = 0;
    for (int j=1;j<m;j++) if (A[i][j] > A[i][best]) best = j; I[i] = best; } }
""",
    "life": """
void f(int n, int m, unsigned char A[n][m], unsigned char B[n][m]) {
    for (int i=0;i<n;i++) for (int j=0;j<m;j++) { int s = 0;
    for (int a=-1;a<=1;a++) for (int b=-1;b<=1;b++) if (a || b) s += A[(i+a+n)%n][(j+b+m)%m] & 1;
    B[i][j] = s == 3 || (s == 2 && (A[i][j] & 1)); } }
""",
    "compact": """
void f(int n, int A[n], int B[n], int C[1]) { int k = 0; for (int i=0;i<n;i++) { if (A[i] > 0) {
    B[k] = A[i]; k++; } } C[0] = k; }
""",
    "dotret": """
double f(int n, const double *a, const double *b) { double s = 0;
    for (int i=0;i<n;i++) s += a[i]*b[i]; return s; }
""",
    "crc": """
#include <stdint.h>
void f(int n, const uint8_t *d, uint32_t *out) { uint32_t crc = 0xFFFFFFFFu; for (int i=0;i<n;i++) {
    crc ^= d[i]; for (int k=0;k<8;k++) crc = (crc >> 1) ^ (0xEDB88320u & -(crc & 1)); }
    out[0] = ~crc; }
""",
    "redblack": """
void f(int n, int m, double A[n][m]) {
    for (int c=0;c<2;c++) for (int i=1;i<n-1;i++)
    for (int j=1+(i+c)%2;j<m-1;j+=2) A[i][j] = 0.25*(A[i-1][j]+A[i+1][j]+A[i][j-1]+A[i][j+1]); }
""",
    "moved": """
void f(int n, int m, const float *s, float *d, int A[2*n+3]) {
  int k = 1;
  for (int i = 0; i < n; i++) { A[k] += i; k += 2; A[k] -= 1; }
  for (int i = n; i > 0; i -= 3) { *d = *s * 2; d++; s += 2; }
  if (n > 2) A[0] = k;
  unsigned char b = 250;
  for (int i = 0; i < n; i++) { A[i] ^= b; b++; }
  for (int i = 0; i < n; i++) { k--; A[k % (n + 1)] += k; }
}
""",
}
NESTS |= {
    "clampfun": """
static inline int clampi(int x, int lo, int hi) { if (x < lo) return lo; if (x > hi) return hi; return x; }
static int sat(int x) { if (x < 0) x = 0; else if (x > 255) x = 255; return x; }
static int sgn(double v) { if (v > 0) { return 1; } else if (v < 0) return -1; else return 0; }
static double mix(double a, double b) { double t = a - b; t *= 0.5; const int big = t > 1;
    if (big) { t = t - 1; t--; } return t; }
void f(int n, int m, float A[n][m], float B[n][m], int C[n], double x[n]) {
    for (int y=0;y<n;y++) for (int x=0;x<m;x++) for (int d=-1;d<=1;d++)
        B[y][x] += A[clampi(y+d,0,n-1)][clampi(x-d,0,m-1)];
    for (int i=0;i<n;i++) { C[i] = sat(C[i] * 3) + sgn(x[i]); x[i] = mix(x[i], C[i]) + mix(2, 1); } }
""",
    "countdown": """
#include <stddef.h>
void f(size_t n, double x[n+1], double y[n+1]) { for (size_t i = n; i-- > 0;) x[i] = x[i] * 0.5 + (double)i;
    int i = n; while (i--) y[i] += i; y[n] = i; for (int j = n; --j >= 0;) { if (j % 3 == 1) continue;
    x[j] -= 2; } for (size_t i = 0; i + 1 < n; i++) y[i] -= x[i + 1]; }
""",
    "linear": """
void f(int n, const double *x, double *y, double A[n][n]) {
    int i; for (i = 0; i + 3 < n; i += 4) { y[i] += x[i]; y[i+1] += 2*x[i+1]; y[i+3] += 3*x[i+3]; }
    for (; i < n; i++) y[i] += 2*x[i];
    for (int d=0;d<n;d++) for (int i=0; i+d < n; i++) A[i][i+d] += d;
    for (int i=0; 2*i+1 < n; i++) A[0][2*i+1] *= 2;
    for (int i = n - 1; n - i <= 3 && i >= 0; i--) A[i][0] = 7; }
""",
    "twoends": """
void f(int n, double x[n], double y[n]) {
    for (int i = 0, j = n-1; i < j; i++, j--) { double t = x[i]; x[i] = x[j]; x[j] = t; }
    int i = 0, j = n-1; while (i < j) { double t = y[i]; y[i] = y[j]; y[j] = t; i++; j--; }
    for (int i = 0, j = n-1; i < j; i++, --j) { if (x[i] > 0) continue; y[i] += x[j]; } }
""",
    "stepping": """
void f(int n, int m, const double *A, double *B, int *C, const int *D) {
    for (int i=0;i<n;i++) { const double *a = A + i*m; double *b = B + i*m;
        for (int j=0;j<m;j++) *b++ = *a++ * 2.0; }
    int k = 0; for (int i=0;i<n;i++) if (D[i] > 0) C[k++] = D[i];
    double *p = B; while (n-- > 0) { double v = *A++; *p++ += v < 0 ? -v : v; }
    double *q = B; for (int i=0;i<m;i++) *++q -= 1; C[99] = k; }
""",
    # isl selects indices: branches take the two ways
    "tilemin": """
#define MIN(a,b) ((a)<(b)?(a):(b))
void f(int n, int m, const float A[n][m], float T[(n+7)/8][(m+7)/8]) {
    for (int I=0;I<(n+7)/8;I++) for (int J=0;J<(m+7)/8;J++) { float b = 1e30f;
    for (int i=8*I;i<MIN(8*I+8,n);i++) for (int j=8*J;j<MIN(8*J+8,m);j++) if (A[i][j] < b) b = A[i][j];
    T[I][J] = b; } }
""",
}
SIZES = {"m": 9, "shift": -3}


@pytest.mark.few(21)
@pytest.mark.skipif(GCC is None, reason="gcc compiles the same text")
@pytest.mark.parametrize("name", NESTS)
def test_nests_compute_what_gcc_does(name, tmp_path):
    path = tmp_path / "k.c"
    path.write_text(NESTS[name])
    compiled = original(path)
    for n in (7, 0, 1, 13):
        sizes = {
            p.name: SIZES.get(p.name, n if p.name == "n" else 400) for p in compiled.nest.arguments.params
        }
        func = compiled.nest.at(sizes)
        arrays = drawn(compiled.nest, func, np.random.default_rng(n))
        want = {name: array.copy() for name, array in arrays.items()}
        compiled(want, sizes)
        got = interpreted(func, arrays)
        assert not differences(got, want)
        Nest(func, threads=2)(**arrays)
        assert not differences(arrays, want)


@pytest.mark.few(42)
@pytest.mark.skipif(GCC is None, reason="gcc compiles the same text")
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", NESTS)
def test_what_is_emitted_takes_the_place_of_the_file(name, compiler, tmp_path):
    if (found := shutil.which(compiler)) is None:
        pytest.skip(f"{compiler} is not there")
    path, made = tmp_path / "k.c", tmp_path / "made.c"
    path.write_text(NESTS[name])
    compiled = original(path)
    sizes = {p.name: SIZES.get(p.name, 7 if p.name == "n" else 400) for p in compiled.nest.arguments.params}
    made.write_text(Nest(compiled.nest, threads=2).c_source(sizes))
    emitted = original(made, compiler=found, level="-O2", library_of=compiled.nest)
    for n in (7, 5):  # of the second it was not compiled for, and runs as written
        sizes |= {"n": n} if "n" in sizes else {}
        arrays = drawn(compiled.nest, compiled.nest.at(sizes), np.random.default_rng(n))
        want = {name: array.copy() for name, array in arrays.items()}
        compiled(want, sizes)
        emitted(arrays, sizes)
        assert not differences(arrays, want)


@pytest.mark.few(2)
@pytest.mark.skipif(GCC is None, reason="gcc compiles the same text")
@pytest.mark.parametrize("seed", range(6))
def test_random_nests(seed, tmp_path):
    """A few of those that ``python tests/random_nests.py 5000`` runs."""
    path = tmp_path / "k.c"
    path.write_text(text_of(seed))
    told = outcome(original(path, "f"), 7, 2, seed)
    assert told.startswith(("right", "refused (bounds")), told
