/* The contract between generated code, the native runtime and its Python wrappers. */
#ifndef TW_RUNTIME_H
#define TW_RUNTIME_H

#include <stdint.h>

/* ======== Part 1: the kernel ABI. Fixed: code generation depends on it. ======== */

typedef struct tw_context tw_context;

/* One thread's share [begin, end) of a parallel loop, begin < end. `closure` is what was given to parallel_for.
 * `scratch` is private to the thread while the body runs: 64-byte aligned, at least as large as the kernel's metadata
 * asks for, of undefined content on entry; NULL where it asks for none. */
typedef void (*tw_body)(void *closure, int64_t begin, int64_t end, void *scratch);

/* Generated code reads these three fields, in this order and at these offsets. What follows them is the runtime's. */
struct tw_context {
    /* Runs the body over [0, n) in contiguous chunks whose sizes differ by at most one, min(n, threads) of them, and
     * returns when all have run; all their writes are then visible to the caller. The split depends on n and the
     * context only. n <= 0 runs nothing. Within a body, and where another caller holds the threads, the chunks run one
     * after the other on the calling thread, with the same split. */
    void (*parallel_for)(tw_context *context, tw_body body, void *closure, int64_t n);
    /* 64-byte aligned memory of undefined content, or NULL: the kernel then leaves out what needs it, and its run fails.
     * From any thread; released by any thread. */
    void *(*alloc)(tw_context *context, int64_t bytes);
    void (*release)(tw_context *context, void *memory);
};

/* A compiled kernel. Returns 0, or a number > 0 from the kernel's own table of failed entry checks.
 *
 * buffers    one pointer an argument, in the order of the kernel's metadata. Intermediate and constant buffers are
 *            64-byte aligned at their offset 0; a model's inputs and outputs only to the size of their element.
 * params     the values of its symbolic parameters, in the order of its metadata.
 * workspace  for what it allocates outside parallel loops: 64-byte aligned, of the size its metadata states, undefined.
 * scratch    the calling thread's scratch. The same memory that parallel_for hands to the chunk run by the calling
 *            thread: its content does not survive a call of parallel_for.
 *
 * Kernels run under the default floating-point environment (round to nearest, no flush to zero), on every thread. */
typedef int32_t (*tw_kernel)(tw_context *context, void *const *buffers, const int64_t *params, void *workspace,
                             void *scratch);

/* ======== Part 2: the runtime, called from Python through ctypes. ======== */

#define TW_EXPORT __attribute__((visibility("default")))

enum { TW_ALIGNMENT = 64 };

/* Raised with any change of Part 2; the Python side refuses a library of another version. */
enum { TW_VERSION = 6 };
TW_EXPORT int32_t tw_version(void);

/* Nanoseconds on the monotonic clock. */
TW_EXPORT int64_t tw_now_ns(void);

/* ---- memory ---- */

/* 64-byte aligned memory; large blocks start on a huge page and ask for huge pages. NULL if there is none. Some large
 * blocks are kept when they are released, for later ones of about their size; tw_memory_trim gives them back. */
TW_EXPORT void *tw_alloc(int64_t bytes);
TW_EXPORT void tw_release(void *memory);
TW_EXPORT void tw_memory_trim(void);

/* Memory between two inaccessible pages, for tests. The block touches the page behind it (at_end != 0) or before it, as
 * nearly as `align`, a power of two up to a page, lets it. *region and *region_bytes receive what tw_guarded_release
 * needs. NULL if there is none. */
TW_EXPORT void *tw_guarded_alloc(int64_t bytes, int64_t align, int32_t at_end, void **region, int64_t *region_bytes);
TW_EXPORT void tw_guarded_release(void *region, int64_t region_bytes);

/* ---- thread pool ---- */

typedef struct tw_pool tw_pool;

/* A pool of `threads` >= 1 threads, the caller of a parallel loop included: threads - 1 workers are started. An idle
 * thread spins for spin_ns and then sleeps. cpus, unless NULL, holds one CPU number a worker, to which it is bound.
 * NULL where the threads cannot be had. */
TW_EXPORT tw_pool *tw_pool_create(int32_t threads, int64_t spin_ns, const int32_t *cpus);

/* Ends the workers, after any parallel loop now running. Loops started later run on their caller. May be repeated. */
TW_EXPORT void tw_pool_shutdown(tw_pool *pool);

/* Shuts down and frees. No plan may refer to the pool any more. */
TW_EXPORT void tw_pool_destroy(tw_pool *pool);

/* Mean nanoseconds of one empty parallel loop over all threads, in `rounds` back to back. */
TW_EXPORT double tw_pool_fork_join_ns(tw_pool *pool, int32_t rounds);

/* ---- plans: a model as a list of kernels ---- */

enum { TW_INPUT = 0, TW_OUTPUT = 1, TW_CONSTANT = 2, TW_ARENA = 3 };

/* A number of a run, such as the value of a kernel's parameter: parameter number `index` of the run, or `value` where index < 0. */
typedef struct {
    int64_t index;
    int64_t value;
} tw_value;

/* A place in memory: `offset` bytes into input, output or constant number `index`, or into slot `index` of the arena.
 * Where its step is repeated it moves on by `advance` bytes each time; the first time, unless `first` is 0, the step is
 * given its place number `first` (from 0, after its arguments) instead, and this one the second time. */
typedef struct {
    int32_t kind;
    int32_t index;
    tw_value offset;
    tw_value advance;
    int64_t first;
} tw_place;

/* One kernel call: its arguments are `places` and `values`, consecutive in the plan's two tables. Consecutive steps of one
 * section (a number other than 0) run lane by lane: those of a lane in order on one thread, the lanes at the same time.
 * Lanes count from 0, and the steps of one must not use what another's write. */
typedef struct {
    tw_kernel kernel;
    int64_t place_count;
    int64_t value_count;
    tw_value repeat; /* how often the kernel is called, one call after the other; places move where a run says it */
    int32_t section;
    int32_t lane;
} tw_step;

/* Numbers that a step takes as places, and what they may be: low <= n < high. They are looked at before that step, or
 * before any step where it is TW_FIRST: those of the plan's inputs. */
typedef struct {
    tw_place place; /* of the first number */
    int64_t step;
    tw_value count;
    int64_t stride; /* from one number to the next, in numbers */
    tw_value low;
    tw_value high;
    int32_t bytes; /* of a number: 1, 2, 4 or 8 */
    int32_t is_signed;
} tw_check;

enum { TW_FIRST = -1 };

/* What is copied once all steps have run: outputs that steps made before the last check of what they computed. A run
 * whose check fails leaves the outputs as they were. */
typedef struct {
    tw_place source;
    tw_place target;
    tw_value bytes;
} tw_copy;

typedef struct {
    const tw_step *steps;
    int64_t step_count;
    const tw_place *places; /* of all steps, in order */
    int64_t place_count;
    const tw_value *values; /* of all steps, in order */
    int64_t value_count;
    const tw_check *checks; /* in the order of their steps */
    int64_t check_count;
    const tw_copy *copies;
    int64_t copy_count;
    void *const *constants;
    int64_t constant_count;
    const tw_value *slots; /* of the arena, one after another: their bytes, which a run may say */
    int64_t slot_count;
    int64_t workspace_bytes; /* the largest of the kernels' */
    int64_t scratch_bytes;   /* the largest of the kernels', for one thread */
} tw_plan_description;

typedef struct tw_plan tw_plan;

/* Copies the description; constants, kernels and the pool must outlive the plan. NULL if there is no memory. */
TW_EXPORT tw_plan *tw_plan_create(tw_pool *pool, const tw_plan_description *description);
TW_EXPORT void tw_plan_destroy(tw_plan *plan);

/* Frees the memory kept for runs to come. */
TW_EXPORT void tw_plan_trim(tw_plan *plan);

/* Has the memory of one run of these parameters there, its pages too, for runs to come. Returns 0 or TW_NO_MEMORY. */
TW_EXPORT int32_t tw_plan_reserve(tw_plan *plan, const int64_t *params);

enum { TW_NO_MEMORY = -1, TW_OUT_OF_RANGE = -2, TW_STOPPED = -3 };

/* What ends runs between kernels: `stopped`, which any thread may set, or the clock. */
typedef struct tw_stop {
    const struct tw_stop *outer; /* ends them as well, or NULL */
    int64_t deadline_ns;         /* of tw_now_ns; 0: none */
    int32_t stopped;
} tw_stop;

/* From now on runs that this thread calls end with TW_STOPPED once `stop` says so (NULL: nothing does). Returns what did. */
TW_EXPORT const tw_stop *tw_stop_by(const tw_stop *stop);

/* Where a run failed: its step (TW_FIRST: before any), and for TW_OUT_OF_RANGE the check, the number and which it is. */
typedef struct {
    int64_t step;
    int64_t check;
    int64_t at;
    int64_t number;
} tw_failure;

/* Runs the steps in order, `repeats` times over. From any number of threads at once: each run has memory of its own.
 * Returns 0; TW_NO_MEMORY; TW_OUT_OF_RANGE; TW_STOPPED; or what a kernel returned; *failure then says where. Unless NULL,
 * `nanoseconds` receives for each repeat the duration of each step, checks included. */
TW_EXPORT int32_t tw_plan_run(tw_plan *plan, void *const *inputs, void *const *outputs, const int64_t *params,
                              int64_t repeats, int64_t *nanoseconds, tw_failure *failure);

#endif
