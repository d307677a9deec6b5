/* Kernels for the tests of the runtime. */
#define _GNU_SOURCE
#include "tw_runtime.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- double: out[i] = 2 * in[i] over params[0] elements ---- */

typedef struct {
    const float *in;
    float *out;
} pair;

static void double_body(void *closure, int64_t begin, int64_t end, void *scratch) {
    (void)scratch;
    const pair *p = closure;
    for (int64_t i = begin; i < end; i++) p->out[i] = 2 * p->in[i];
}

TW_EXPORT int32_t double_all(tw_context *context, void *const *buffers, const int64_t *params, void *workspace,
                             void *scratch) {
    (void)workspace, (void)scratch;
    pair p = {buffers[0], buffers[1]};
    context->parallel_for(context, double_body, &p, params[0]);
    return 0;
}

/* ---- trace: out[i] = (begin, end, thread) of the chunk that ran i; adds one to counts[i] ---- */

typedef struct {
    int64_t begin, end, thread;
    void *scratch;
} mark;

typedef struct {
    mark *marks;
    int64_t *counts;
} trace;

static void trace_body(void *closure, int64_t begin, int64_t end, void *scratch) {
    trace *t = closure;
    for (int64_t i = begin; i < end; i++) {
        t->marks[i] = (mark){begin, end, syscall(SYS_gettid), scratch};
        t->counts[i]++;
    }
}

/* params: n, how many loops back to back */
TW_EXPORT int32_t trace_loop(tw_context *context, void *const *buffers, const int64_t *params, void *workspace,
                             void *scratch) {
    (void)workspace, (void)scratch;
    trace t = {buffers[0], buffers[1]};
    for (int64_t i = 0; i < params[1]; i++) context->parallel_for(context, trace_body, &t, params[0]);
    return 0;
}

/* ---- sum: chunks leave partial sums in their scratch's first bytes and in partial[thread's begin] ---- */

typedef struct {
    const int64_t *in;
    int64_t *partial;
} sums;

static void sum_body(void *closure, int64_t begin, int64_t end, void *scratch) {
    const sums *s = closure;
    int64_t *total = scratch;
    *total = 0;
    for (int64_t i = begin; i < end; i++) *total += s->in[i];
    s->partial[begin] = *total;
}

TW_EXPORT int32_t sum_all(tw_context *context, void *const *buffers, const int64_t *params, void *workspace,
                          void *scratch) {
    (void)scratch;
    int64_t n = params[0], *out = buffers[1];
    sums s = {buffers[0], workspace};
    memset(workspace, 0, (size_t)n * sizeof(int64_t));
    context->parallel_for(context, sum_body, &s, n);
    *out = 0;
    for (int64_t i = 0; i < n; i++) *out += s.partial[i];
    return 0;
}

/* ---- nested: counts[i * m + j] += 1 by a loop within a loop; the outer body's scratch must survive ---- */

typedef struct {
    tw_context *context;
    int64_t *counts;
    int64_t m, i;
} nest;

static void inner_body(void *closure, int64_t begin, int64_t end, void *scratch) {
    const nest *t = closure;
    *(int64_t *)scratch = -1;
    for (int64_t j = begin; j < end; j++) t->counts[t->i * t->m + j]++;
}

static void outer_body(void *closure, int64_t begin, int64_t end, void *scratch) {
    nest t = *(const nest *)closure;
    for (t.i = begin; t.i < end; t.i++) {
        *(int64_t *)scratch = t.i;
        t.context->parallel_for(t.context, inner_body, &t, t.m);
        if (*(int64_t *)scratch != t.i) t.counts[t.i * t.m] = -1000;
    }
}

/* params: n, m */
TW_EXPORT int32_t nested(tw_context *context, void *const *buffers, const int64_t *params, void *workspace,
                         void *scratch) {
    (void)workspace, (void)scratch;
    nest t = {context, buffers[0], params[1], 0};
    context->parallel_for(context, outer_body, &t, params[0]);
    return 0;
}

/* ---- refuse: returns params[0] ---- */

TW_EXPORT int32_t refuse(tw_context *context, void *const *buffers, const int64_t *params, void *workspace,
                         void *scratch) {
    (void)context, (void)buffers, (void)workspace, (void)scratch;
    return (int32_t)params[0];
}

/* ---- describe: out = address of workspace, of scratch, of an allocation, of buffers[1], floating-point control ---- */

static void control_body(void *closure, int64_t begin, int64_t end, void *scratch) {
    (void)scratch;
    int64_t *out = closure;
    for (int64_t i = begin; i < end; i++) {
#if defined(__x86_64__)
        out[i] = _mm_getcsr() & ~0x3fU; /* without the sticky flags */
#else
        out[i] = 0;
#endif
    }
}

TW_EXPORT int32_t describe(tw_context *context, void *const *buffers, const int64_t *params, void *workspace,
                           void *scratch) {
    int64_t *out = buffers[0];
    void *memory = context->alloc(context, params[0]);
    memset(memory, 1, (size_t)params[0]);
    out[0] = (int64_t)(intptr_t)workspace;
    out[1] = (int64_t)(intptr_t)scratch;
    out[2] = (int64_t)(intptr_t)memory;
    out[3] = (int64_t)(intptr_t)buffers[1];
    context->release(context, memory);
    context->parallel_for(context, control_body, out + 4, 2);
    return 0;
}

/* Sets flush-to-zero on the calling thread, as some libraries do; returns the control word before. */
TW_EXPORT uint32_t set_control(uint32_t control) {
#if defined(__x86_64__)
    uint32_t before = _mm_getcsr();
    _mm_setcsr(control);
    return before;
#else
    return control;
#endif
}

/* ---- spin: keeps every thread busy for params[0] nanoseconds ---- */

static void spin_body(void *closure, int64_t begin, int64_t end, void *scratch) {
    (void)begin, (void)end, (void)scratch;
    int64_t ns = *(const int64_t *)closure;
    struct timespec { int64_t s, ns; } now;
    int64_t until = 0;
    for (;;) {
        syscall(SYS_clock_gettime, 1, &now);
        int64_t clock = now.s * 1000000000 + now.ns;
        if (!until) until = clock + ns;
        if (clock >= until) return;
    }
}

TW_EXPORT int32_t spin(tw_context *context, void *const *buffers, const int64_t *params, void *workspace,
                       void *scratch) {
    (void)buffers, (void)workspace, (void)scratch;
    int64_t ns = params[0];
    context->parallel_for(context, spin_body, &ns, 1 << 20);
    return 0;
}

/* ---- hold: keeps every thread busy from when buffers[0][0] becomes 1 until another sets buffers[0][1] ---- */

static void hold_body(void *closure, int64_t begin, int64_t end, void *scratch) {
    (void)begin, (void)end, (void)scratch;
    volatile int64_t *flags = closure;
    flags[0] = 1;
    while (!flags[1]) syscall(SYS_sched_yield);
}

TW_EXPORT int32_t hold(tw_context *context, void *const *buffers, const int64_t *params, void *workspace,
                       void *scratch) {
    (void)params, (void)workspace, (void)scratch;
    context->parallel_for(context, hold_body, buffers[0], 1 << 20);
    return 0;
}
