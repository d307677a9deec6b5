/* Twelve kinds of loop nests outside PolyBench, as they are met: see nests.py. */
#include <stdint.h>

/* A row of its own for each iteration: filled, smoothed, used. */
void local_rows(int n, int m, const double A[n][m], double B[n][m]) {
  for (int i = 0; i < n; i++) {
    double row[m];
    for (int j = 0; j < m; j++) row[j] = 0.5 * A[i][j] + 1.0;
    B[i][0] = row[0];
    B[i][m - 1] = row[m - 1];
    for (int j = 1; j < m - 1; j++) B[i][j] = 0.25 * row[j - 1] + 0.5 * row[j] + 0.25 * row[j + 1];
  }
}

/* Every second element of the upper triangle. */
void triangle(int n, int m, const double x[n], double A[n][n]) {
  for (int i = 0; i < n; i++)
    for (int j = i; j < n; j += 2) A[i][j] = A[i][j] * 0.5 + x[i] * x[j];
}

/* Loops that count down; no iteration needs another one of the inner loop. */
void downwards(int n, int m, const double A[n][m], double B[n][m]) {
  for (int i = n - 2; i >= 0; i--)
    for (int j = m - 1; j >= 0; j--) B[i][j] = B[i + 1][j] * 0.5 + A[i][j];
}

/* Elements at places that data say, added to others. */
void scatter_gather(int n, int m, const int32_t from[n][m], const double x[n], const double w[n][m],
                    double y[n]) {
  for (int i = 0; i < n; i++)
    for (int k = 0; k < m; k++) y[i] += w[i][k] * x[from[i][k]];
}

/* A sparse matrix by rows, times a vector. */
void csr(int n, int m, const int32_t first[n + 1], const int32_t at[n * m], const double v[n * m],
         const double x[n], double y[n]) {
  for (int i = 0; i < n; i++) {
    double s = 0.0;
    for (int e = first[i]; e < first[i + 1]; e++) s += v[e] * x[at[e]];
    y[i] = s;
  }
}

/* The smallest and the largest element of each row. */
void min_max(int n, int m, const float A[n][m], float low[n], float high[n]) {
  for (int i = 0; i < n; i++) {
    low[i] = A[i][0];
    high[i] = A[i][0];
    for (int j = 1; j < m; j++) {
      if (A[i][j] < low[i]) low[i] = A[i][j];
      if (A[i][j] > high[i]) high[i] = A[i][j];
    }
  }
}

/* A stencil on a torus. */
void periodic(int n, int m, const double A[n][m], double B[n][m]) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < m; j++)
      B[i][j] = 0.2 * (A[i][j] + A[(i + 1) % n][j] + A[(i + n - 1) % n][j] + A[i][(j + 1) % m] +
                       A[i][(j + m - 1) % m]);
}

/* How often each byte occurs. */
void histogram(int n, int m, const uint8_t P[n][m], int32_t H[256]) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < m; j++) H[P[i][j]]++;
}

/* A picture in bytes: grey from three channels, in fixed point. */
void grey(int n, int m, const uint8_t P[n][m][3], uint8_t G[n][m]) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < m; j++) G[i][j] = (77 * P[i][j][0] + 150 * P[i][j][1] + 29 * P[i][j][2]) >> 8;
}

/* Two sums of integers in one loop. */
void int_sums(int n, int m, const int32_t A[n][m], int32_t s[n], int32_t t[n]) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < m; j++) {
      s[i] += A[i][j];
      t[i] += A[i][j] * A[i][j];
    }
}

/* Elements that data leave as they are, or not. */
void limited(int n, int m, const float A[n][m], float B[n][m], float most) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < m; j++) {
      if (A[i][j] > most) B[i][j] = most;
      else if (A[i][j] < -most) B[i][j] = -most;
      else B[i][j] += A[i][j];
    }
}

/* A flat grid in time: each step reads what the one before wrote. */
void flat_steps(int n, int m, double *u, double *v) {
  for (int t = 0; t < 8; t++) {
    for (int i = 1; i < n - 1; i++)
      for (int j = 1; j < m - 1; j++)
        v[i * m + j] = 0.25 * (u[(i - 1) * m + j] + u[(i + 1) * m + j] + u[i * m + j - 1] + u[i * m + j + 1]);
    for (int i = 1; i < n - 1; i++)
      for (int j = 1; j < m - 1; j++) u[i * m + j] = v[i * m + j];
  }
}

/* What a call takes. */
void nothing(int n, int m, double x[1]) { x[0] = 0.0; }
