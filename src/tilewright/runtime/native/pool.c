/* The thread pool: workers that wait for work by spinning for a while and then sleeping.
 *
 * Every worker has a mailbox. The caller of a parallel loop takes the pool (`busy`), fills the mailboxes of as many
 * workers as there are chunks, raises their `posted` counts, runs the first chunk itself and waits until each worker's
 * `finished` count has caught up. A worker claims a chunk (`claimed`) before it looks into the mailbox; a caller that is
 * done claims what no worker has begun, because it sleeps still or another process has its CPU, and does it itself.
 * Counts, not flags: nothing has to be reset, and a late worker cannot mistake an old loop for a new one. Both sides sleep on these counts by futex; the side that raises a count wakes the other only if it
 * has announced its sleep, so a loop whose threads all spin makes no system call.
 *
 * No lost wake-up: the sleeper announces, then reads the count; the other raises the count, then reads the announcement;
 * between the two of each lies a sequentially consistent fence, so at least one of them sees the other's write. */
#define _GNU_SOURCE
#include "tw_internal.h"

#include <fenv.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CACHE_LINE 128 /* two lines of 64 bytes: x86 fetches them in pairs */

/* Polls between two looks at the clock: about a microsecond. */
enum { POLLS_PER_CLOCK = 32 };

typedef struct {
    /* Written by the pool's holder. */
    _Alignas(CACHE_LINE) _Atomic uint32_t posted; /* loops handed out so far */
    tw_body body;                                 /* NULL: end the thread */
    void *closure;
    int64_t begin, end;
    void *scratch;
    /* Written by the worker, or by the holder that does its chunk. */
    _Alignas(CACHE_LINE) _Atomic uint32_t finished; /* loops done so far */
    _Atomic uint32_t claimed;                       /* loops begun so far, by whomever */
    _Atomic uint32_t asleep;                        /* sleeping, or about to, on `posted` */
    /* Constant while the thread lives. */
    _Alignas(CACHE_LINE) tw_pool *pool;
    pthread_t thread;
    int32_t cpu;     /* to be bound to, or -1 */
    int32_t avoided; /* the CPU it is kept from, or -1; guarded by `busy` */
} worker;

struct tw_pool {
    worker *workers;
    int32_t threads; /* workers + 1 */
    int64_t spin_ns;
    cpu_set_t cpus; /* allowed to the thread that made the pool */
    bool placed;    /* whether workers are kept away from the CPU of their callers */
    _Atomic bool closed;
    _Atomic int32_t caller_cpu;  /* where the last loop's caller ran */
    _Atomic int32_t brief_waits; /* so many more waits are brief, as others want the CPUs */
    _Atomic uint32_t epoch;                             /* fork_epoch when the workers were started */
    _Alignas(CACHE_LINE) _Atomic uint32_t busy;         /* held by the caller of a loop, for ever once closed */
    _Alignas(CACHE_LINE) _Atomic uint32_t holder_asleep; /* sleeping, or about to, on some worker's `finished` */
};

/* A forked child has no worker threads: it counts its generation here, and pools restart theirs when next used. */
static _Atomic uint32_t fork_epoch = 1;
enum { REVIVING = 0 };

static void count_fork(void) { atomic_fetch_add_explicit(&fork_epoch, 1, memory_order_relaxed); }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, count_fork); }

/* How long a caller waits awake at most because its own chunk took as long. */
#define MOST_OF_OWN_NS ((int64_t)500000)

/* Bodies that the current thread is within; loops started there run inline. */
static _Thread_local int32_t body_depth;

/* ---- waiting ---- */

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Where a thread that spins lost its CPU for so long, somebody else wants it, and where it spun in vain on the CPU of its
 * caller, that one: the pool's threads then sleep almost at once for so many waits, and try again. */
#define LOST_NS ((int64_t)300000)
#define BRIEF_NS ((int64_t)2000)
enum { BRIEF_WAITS = 2000 };

static void be_brief(tw_pool *pool) {
    atomic_store_explicit(&pool->brief_waits, BRIEF_WAITS, memory_order_relaxed);
}

static void note_gap(tw_pool *pool, int64_t from, int64_t to) {
    if (to - from > LOST_NS) be_brief(pool);
}

/* How long a thread may spin now: less where others want the CPUs. */
static int64_t patience(tw_pool *pool) {
    int32_t left = atomic_load_explicit(&pool->brief_waits, memory_order_relaxed);
    if (left <= 0) return pool->spin_ns;
    atomic_store_explicit(&pool->brief_waits, left - 1, memory_order_relaxed); /* about as many as there are */
    return pool->spin_ns < BRIEF_NS ? pool->spin_ns : BRIEF_NS;
}

/* Spins for up to spin_ns until *count differs from `old`; returns its value. */
static uint32_t spin(tw_pool *pool, _Atomic uint32_t *count, uint32_t old, int64_t spin_ns) {
    uint32_t now = old;
    int64_t until = 0, before = 0;
    for (;;) {
        for (int i = 0; i < POLLS_PER_CLOCK; i++) {
            if ((now = atomic_load_explicit(count, memory_order_acquire)) != old) {
                if (until) note_gap(pool, before, tw_now_ns());
                return now;
            }
            relax();
        }
        int64_t clock = tw_now_ns();
        if (until == 0) until = clock + spin_ns;
        else note_gap(pool, before, clock);
        before = clock;
        if (clock >= until) return now;
    }
}

/* Sleeps until *count differs from `old`, announcing it in *asleep; returns its value. */
static uint32_t sleep_on(_Atomic uint32_t *count, uint32_t old, _Atomic uint32_t *asleep) {
    uint32_t now;
    atomic_store_explicit(asleep, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    while ((now = atomic_load_explicit(count, memory_order_acquire)) == old) futex_wait(count, old);
    atomic_store_explicit(asleep, 0, memory_order_relaxed);
    return now;
}

/* ---- placement ---- */

/* A worker that spins or wakes on its caller's CPU waits until the kernel moves one of them, which can take tens of
 * milliseconds (yielding makes it worse: two threads that yield to each other never look like too many for one CPU). So
 * where a worker sleeps, has not begun or keeps its caller waiting for long, it is kept from the CPU that the caller runs on. */
static void keep_away(tw_pool *pool, worker *w) {
    int here = sched_getcpu();
    if (!pool->placed || here < 0 || here == w->avoided) return;
    cpu_set_t others = pool->cpus;
    CPU_CLR((size_t)here, &others);
    if (pthread_setaffinity_np(w->thread, sizeof others, &others) == 0) w->avoided = here;
}

/* The CPUs on which a new worker may run. */
static cpu_set_t first_cpus(const tw_pool *pool, worker *w) {
    cpu_set_t set = pool->cpus;
    if (w->cpu >= 0) {
        CPU_ZERO(&set);
        CPU_SET((size_t)w->cpu, &set);
    } else if (pool->placed) {
        w->avoided = sched_getcpu();
        if (w->avoided >= 0) CPU_CLR((size_t)w->avoided, &set);
    }
    return set;
}

/* ---- workers ---- */

/* Whether the chunk of loop `number` is the caller's of this function to run: of one of them. */
static bool claim(worker *w, uint32_t number) {
    uint32_t before = number - 1;
    return atomic_compare_exchange_strong_explicit(&w->claimed, &before, number, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

static void *worker_main(void *argument) {
    worker *self = argument;
    tw_pool *pool = self->pool;
    fesetenv(FE_DFL_ENV);
    body_depth = 1;
    uint32_t seen = 0;
    for (;;) {
        uint32_t last = seen;
        seen = spin(pool, &self->posted, last, patience(pool));
        if (seen == last) {
            if (sched_getcpu() == atomic_load_explicit(&pool->caller_cpu, memory_order_relaxed)) be_brief(pool);
            seen = sleep_on(&self->posted, last, &self->asleep);
        }
        if (!claim(self, seen)) continue;
        if (!self->body) return NULL;
        self->body(self->closure, self->begin, self->end, self->scratch);
        atomic_store_explicit(&self->finished, seen, memory_order_release);
        atomic_thread_fence(memory_order_seq_cst);
        if (atomic_load_explicit(&pool->holder_asleep, memory_order_relaxed)) futex_wake(&self->finished);
    }
}

/* Does what was posted if the worker has not begun, else waits until it has done it, at first for `spin_ns` without
 * sleeping. */
static void await(tw_pool *pool, worker *w, int64_t spin_ns) {
    uint32_t posted = atomic_load_explicit(&w->posted, memory_order_relaxed);
    if (atomic_load_explicit(&w->finished, memory_order_acquire) == posted) return;
    if (claim(w, posted)) {
        keep_away(pool, w);
        body_depth++;
        w->body(w->closure, w->begin, w->end, w->scratch);
        body_depth--;
        atomic_store_explicit(&w->finished, posted, memory_order_relaxed);
        return;
    }
    uint32_t last = posted - 1;
    if (spin(pool, &w->finished, last, spin_ns) == posted) return;
    keep_away(pool, w);
    sleep_on(&w->finished, last, &pool->holder_asleep);
}

/* Hands what the mailbox holds to the worker; wake_if_asleep must follow. */
static void post(worker *w) {
    uint32_t posted = atomic_load_explicit(&w->posted, memory_order_relaxed);
    atomic_store_explicit(&w->posted, posted + 1, memory_order_release);
}

/* Wakes those of the first `count` workers that sleep, after their posts. */
static void wake_if_asleep(tw_pool *pool, int64_t count) {
    atomic_thread_fence(memory_order_seq_cst);
    for (int64_t i = 0; i < count; i++) {
        worker *w = &pool->workers[i];
        if (atomic_load_explicit(&w->asleep, memory_order_relaxed)) {
            keep_away(pool, w);
            futex_wake(&w->posted);
        }
    }
}

static void end_workers(tw_pool *pool, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        pool->workers[i].body = NULL;
        post(&pool->workers[i]);
    }
    wake_if_asleep(pool, count);
    for (int32_t i = 0; i < count; i++) pthread_join(pool->workers[i].thread, NULL);
}

static bool start_workers(tw_pool *pool) {
    /* Signals are for the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int32_t started = 0;
    while (started < pool->threads - 1) {
        worker *w = &pool->workers[started];
        atomic_store(&w->posted, 0);
        atomic_store(&w->finished, 0);
        atomic_store(&w->claimed, 0);
        atomic_store(&w->asleep, 0);
        cpu_set_t cpus = first_cpus(pool, w);
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setaffinity_np(&attributes, sizeof cpus, &cpus);
        int failed = pthread_create(&w->thread, &attributes, worker_main, w);
        pthread_attr_destroy(&attributes);
        if (failed) break;
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started == pool->threads - 1) return true;
    end_workers(pool, started);
    return false;
}

/* ---- taking the pool ---- */

/* Restarts the workers in a forked child. The parent's holder, if there was one, does not exist here. */
static bool revive(tw_pool *pool, uint32_t epoch) {
    uint32_t old = atomic_load(&pool->epoch);
    if (old == REVIVING || old == epoch || !atomic_compare_exchange_strong(&pool->epoch, &old, REVIVING)) return false;
    atomic_store(&pool->holder_asleep, 0);
    if (!start_workers(pool)) {
        atomic_store(&pool->closed, true);
        return false;
    }
    atomic_store(&pool->busy, 0);
    atomic_store(&pool->epoch, epoch);
    return true;
}

/* Takes the pool if nobody holds it. */
static bool take(tw_pool *pool) {
    uint32_t epoch = atomic_load_explicit(&fork_epoch, memory_order_relaxed);
    if (atomic_load_explicit(&pool->closed, memory_order_acquire)) return false;
    if (atomic_load_explicit(&pool->epoch, memory_order_acquire) != epoch && !revive(pool, epoch)) return false;
    uint32_t nobody = 0;
    return atomic_load_explicit(&pool->busy, memory_order_relaxed) == 0 &&
           atomic_compare_exchange_strong_explicit(&pool->busy, &nobody, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static void give_back(tw_pool *pool) { atomic_store_explicit(&pool->busy, 0, memory_order_release); }

/* ---- parallel loops ---- */

typedef struct {
    int64_t count, size, larger; /* the first `larger` chunks have one more than `size` */
} split;

static split split_evenly(int64_t n, int32_t threads) {
    int64_t count = n < threads ? n : threads;
    return (split){count, n / count, n % count};
}

static int64_t chunk_begin(split s, int64_t chunk) {
    return chunk * s.size + (chunk < s.larger ? chunk : s.larger);
}

/* Ends a run with TW_NO_MEMORY after its present kernel, which leaves out what needs the memory. */
static void note_no_memory(tw_run *run) { atomic_store_explicit(&run->failure, TW_NO_MEMORY, memory_order_relaxed); }

/* Scratch for a loop within a body, whose own scratch the body may be using. */
static bool nested_scratch(tw_run *run, void **scratch) {
    *scratch = run->scratch_stride ? tw_alloc(run->scratch_stride) : NULL;
    if (*scratch || !run->scratch_stride) return true;
    note_no_memory(run);
    return false;
}

static void run_inline(tw_run *run, tw_body body, void *closure, split s) {
    void *scratch = run->scratch;
    bool nested = body_depth > 0;
    if (nested && !nested_scratch(run, &scratch)) return;
    body_depth++;
    for (int64_t chunk = 0; chunk < s.count; chunk++)
        body(closure, chunk_begin(s, chunk), chunk_begin(s, chunk + 1), scratch);
    body_depth--;
    if (nested) tw_release(scratch);
}

static void parallel_for(tw_context *context, tw_body body, void *closure, int64_t n) {
    tw_run *run = (tw_run *)context;
    tw_pool *pool = run->pool;
    if (n <= 0) return;
    split s = split_evenly(n, pool->threads);
    if (s.count == 1 || body_depth > 0 || !take(pool)) {
        run_inline(run, body, closure, s);
        return;
    }
    for (int64_t chunk = 1; chunk < s.count; chunk++) {
        worker *w = &pool->workers[chunk - 1];
        w->body = body;
        w->closure = closure;
        w->begin = chunk_begin(s, chunk);
        w->end = chunk_begin(s, chunk + 1);
        w->scratch = run->scratch ? run->scratch + chunk * run->scratch_stride : NULL;
        post(w);
    }
    wake_if_asleep(pool, s.count - 1);
    /* A caller that sleeps gives its CPU away, and gets it back late where others want it. The other chunks are as long as
     * its own: for so long it waits awake, whatever the policy. */
    atomic_store_explicit(&pool->caller_cpu, sched_getcpu(), memory_order_relaxed);
    int64_t patient = patience(pool);
    bool brief = patient < MOST_OF_OWN_NS;
    int64_t begun = brief ? tw_now_ns() : 0;
    body_depth++;
    body(closure, 0, chunk_begin(s, 1), run->scratch);
    body_depth--;
    int64_t own = brief ? tw_now_ns() - begun : 0;
    if (own > MOST_OF_OWN_NS) own = MOST_OF_OWN_NS;
    int64_t spin_ns = own > patient ? own : patient;
    for (int64_t i = 0; i < s.count - 1; i++) await(pool, &pool->workers[i], spin_ns);
    give_back(pool);
}

static void *context_alloc(tw_context *context, int64_t bytes) {
    void *memory = tw_alloc(bytes);
    if (!memory) note_no_memory((tw_run *)context);
    return memory;
}

static void context_release(tw_context *context, void *memory) {
    (void)context;
    tw_release(memory);
}

const tw_context tw_pool_context = {parallel_for, context_alloc, context_release};

/* ---- life ---- */

tw_pool *tw_pool_create(int32_t threads, int64_t spin_ns, const int32_t *cpus) {
    if (threads < 1 || spin_ns < 0) return NULL;
    size_t worker_bytes = (size_t)(threads - 1) * sizeof(worker);
    tw_pool *pool = aligned_alloc(CACHE_LINE, sizeof *pool);
    worker *workers = aligned_alloc(CACHE_LINE, worker_bytes ? worker_bytes : CACHE_LINE);
    if (pool && workers) {
        memset(pool, 0, sizeof *pool);
        memset(workers, 0, worker_bytes);
        pool->workers = workers;
        pool->threads = threads;
        pool->spin_ns = spin_ns;
        atomic_store(&pool->epoch, atomic_load(&fork_epoch));
        for (int32_t i = 0; i < threads - 1; i++) {
            workers[i].pool = pool;
            workers[i].cpu = cpus && cpus[i] >= 0 && cpus[i] < CPU_SETSIZE ? cpus[i] : -1;
            workers[i].avoided = -1;
        }
        pool->placed = sched_getaffinity(0, sizeof pool->cpus, &pool->cpus) == 0 && !cpus &&
                       CPU_COUNT(&pool->cpus) >= threads && threads > 1;
        if (start_workers(pool)) return pool;
    }
    free(workers);
    free(pool);
    return NULL;
}

void tw_pool_shutdown(tw_pool *pool) {
    if (atomic_exchange(&pool->closed, true)) return;
    /* In a forked child there are no threads to end. */
    if (atomic_load(&pool->epoch) != atomic_load(&fork_epoch)) return;
    uint32_t nobody = 0;
    while (!atomic_compare_exchange_weak(&pool->busy, &nobody, 1)) {
        nobody = 0;
        sched_yield();
    }
    end_workers(pool, pool->threads - 1);
}

void tw_pool_destroy(tw_pool *pool) {
    tw_pool_shutdown(pool);
    free(pool->workers);
    free(pool);
}

int32_t tw_pool_threads(const tw_pool *pool) { return pool->threads; }

static void do_nothing(void *closure, int64_t begin, int64_t end, void *scratch) {
    (void)closure, (void)begin, (void)end, (void)scratch;
}

double tw_pool_fork_join_ns(tw_pool *pool, int32_t rounds) {
    tw_run run = {.context = tw_pool_context, .pool = pool};
    int64_t begin = tw_now_ns();
    for (int32_t i = 0; i < rounds; i++) parallel_for(&run.context, do_nothing, NULL, pool->threads);
    return (double)(tw_now_ns() - begin) / (rounds > 0 ? rounds : 1);
}
