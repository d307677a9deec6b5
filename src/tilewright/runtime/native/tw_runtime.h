/* The contract between generated code and the runtime. Generated kernels rely on this file's first part only. */
#ifndef TW_RUNTIME_H
#define TW_RUNTIME_H

#include <stdint.h>

/* ---- Part 1: the kernel ABI (fixed; code generation depends on it) ---- */

typedef struct tw_context tw_context;

/* One worker's share [begin, end) of a parallel loop. `closure` is what the kernel passed to parallel_for; `scratch` is
 * the worker's private arena, 64-byte aligned, at least as large as the running kernel's metadata asks for, its
 * content undefined on entry. */
typedef void (*tw_body)(void *closure, int64_t begin, int64_t end, void *scratch);

/* Generated code reads these three fields, in this order and at these offsets; the rest is the runtime's own. */
struct tw_context {
    /* Run body over [0, n), split into contiguous static chunks, at most one a thread; returns when all have run, and
     * all their writes are then visible. n <= 0 runs nothing. A call from within a body runs inline, on the caller. */
    void (*parallel_for)(tw_context *context, tw_body body, void *closure, int64_t n);
    /* 64-byte aligned memory of undefined content; NULL if there is none. Safe from any thread. */
    void *(*alloc)(tw_context *context, int64_t bytes);
    void (*release)(tw_context *context, void *memory);
};

/* A compiled kernel. `buffers` are the arguments in the order of the kernel's metadata; `params` the values of its symbolic
 * parameters; `workspace` 64-byte aligned memory for what it allocates outside parallel loops, of the size its
 * metadata states; `scratch` the calling thread's arena. Returns 0, or a number from the kernel's table of entry checks. */
typedef int32_t (*tw_kernel)(tw_context *context, void *const *buffers, const int64_t *params, void *workspace,
                             void *scratch);

/* ---- Part 2: the runtime, called from Python through ctypes ---- */

#define TW_EXPORT __attribute__((visibility("default")))

/* Nanoseconds on the monotonic clock. */
TW_EXPORT int64_t tw_now_ns(void);

#endif
