/* Plans: a model as a list of kernel calls over statically planned memory. */
#define _GNU_SOURCE
#include "tw_internal.h"

#include <fenv.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A thread's scratch begins at a multiple of this from the first one's, so that it shares no page with another's. */
#define OWN_PAGE ((int64_t)4096)

/* The memory of one run at a time: arena, workspace, scratch, and every step's arguments. Nothing here writes to it: a
 * page is first touched, and so placed, by the thread that works on it. */
typedef struct session {
    tw_run run; /* first: its context is the session's */
    struct session *next;
    char *memory; /* one block: arena, unless runs say how large it is, a workspace for each lane, scratch */
    int64_t memory_bytes; /* without scratch, which threads place themselves */
    char *workspace;
    char *grown;         /* an arena of its own, where runs say how large it is */
    int64_t grown_bytes; /* the most that a run has wanted */
    char **slots;        /* where each slot of the arena begins */
    void **buffers; /* of all steps; inputs and outputs are filled in a run */
    int64_t *params;
    void *const *inputs; /* of the run */
    void *const *outputs;
    const int64_t *given; /* the run's parameters */
    const tw_stop *stop;  /* what may end the run, or NULL */
} session;

struct tw_plan {
    tw_pool *pool;
    tw_plan_description d; /* with tables of its own */
    int64_t *first_place;  /* of each step */
    int64_t *first_value;
    int64_t *first_check; /* of each step: those before any step come before the first one's */
    int32_t lanes;         /* of the widest section; at least 1 */
    int32_t grows;         /* whether runs say how large the arena is, or where anything lies */
    session *idle;         /* free list, guarded by `lock` */
};

/* Guards the free lists of all plans: held for a few instructions, twice a run. Taken around fork, so that a child never
 * inherits it locked. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void take_lock(void) { pthread_mutex_lock(&lock); }
static void free_lock(void) { pthread_mutex_unlock(&lock); }

__attribute__((constructor)) static void guard_lock_across_forks(void) {
    pthread_atfork(take_lock, free_lock, free_lock);
}

/* ---- places ---- */

static int64_t value_of(const tw_value *v, const int64_t *params) { return v->index >= 0 ? params[v->index] : v->value; }

/* Where a place lies in a run; the arena's and constants' before one, too, where no run says their offset. */
static char *at_place(const tw_plan_description *d, const session *s, const tw_place *p) {
    int64_t offset = value_of(&p->offset, s->given);
    switch (p->kind) {
        case TW_INPUT: return (char *)s->inputs[p->index] + offset;
        case TW_OUTPUT: return (char *)s->outputs[p->index] + offset;
        case TW_CONSTANT: return (char *)d->constants[p->index] + offset;
        default: return s->slots[p->index] + offset;
    }
}

/* ---- sessions ---- */

static void session_free(session *s) {
    if (!s) return;
    tw_release(s->memory);
    tw_release(s->grown);
    free(s->slots);
    free(s->buffers);
    free(s->params);
    free(s);
}

static session *session_create(const tw_plan *plan) {
    const tw_plan_description *d = &plan->d;
    int64_t threads = tw_pool_threads(plan->pool);
    int64_t stride = (d->scratch_bytes + OWN_PAGE - 1) / OWN_PAGE * OWN_PAGE;
    session *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    int64_t workspaces = plan->lanes * tw_aligned(d->workspace_bytes);
    int64_t arena = 0;
    for (int64_t i = 0; i < d->slot_count && !plan->grows; i++) arena += tw_aligned(d->slots[i].value);
    s->memory_bytes = arena + workspaces;
    s->memory = tw_alloc(s->memory_bytes + threads * stride);
    s->slots = calloc((size_t)d->slot_count + 1, sizeof *s->slots);
    s->buffers = calloc((size_t)d->place_count + 1, sizeof *s->buffers);
    s->params = calloc((size_t)d->value_count + 1, sizeof *s->params);
    if (!s->memory || !s->slots || !s->buffers || !s->params) {
        session_free(s);
        return NULL;
    }
    s->workspace = s->memory + arena;
    s->slots[0] = s->memory;
    for (int64_t i = 1; i < d->slot_count && !plan->grows; i++)
        s->slots[i] = s->slots[i - 1] + tw_aligned(d->slots[i - 1].value);
    s->run.context = tw_pool_context;
    s->run.pool = plan->pool;
    s->run.scratch = stride ? s->workspace + workspaces : NULL;
    s->run.scratch_stride = stride;
    for (int64_t i = 0; i < d->place_count && !plan->grows; i++) {
        const tw_place *p = &d->places[i];
        if (p->kind == TW_ARENA || p->kind == TW_CONSTANT) s->buffers[i] = at_place(d, s, p);
    }
    return s;
}

static session *session_take(tw_plan *plan) {
    take_lock();
    session *s = plan->idle;
    if (s) plan->idle = s->next;
    free_lock();
    return s ? s : session_create(plan);
}

static void session_give_back(tw_plan *plan, session *s) {
    take_lock();
    s->next = plan->idle;
    plan->idle = s;
    free_lock();
}

/* ---- plans ---- */

static void *copied(const void *table, int64_t count, size_t size) {
    void *copy = calloc((size_t)count + 1, size);
    if (copy && count) memcpy(copy, table, (size_t)count * size);
    return copy;
}

tw_plan *tw_plan_create(tw_pool *pool, const tw_plan_description *description) {
    tw_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return NULL;
    tw_plan_description *d = &plan->d;
    *d = *description;
    plan->pool = pool;
    d->steps = copied(d->steps, d->step_count, sizeof *d->steps);
    d->places = copied(d->places, d->place_count, sizeof *d->places);
    d->values = copied(d->values, d->value_count, sizeof *d->values);
    d->constants = copied(d->constants, d->constant_count, sizeof *d->constants);
    d->checks = copied(d->checks, d->check_count, sizeof *d->checks);
    d->copies = copied(d->copies, d->copy_count, sizeof *d->copies);
    d->slots = copied(d->slots, d->slot_count, sizeof *d->slots);
    plan->first_place = calloc((size_t)d->step_count + 1, sizeof *plan->first_place);
    plan->first_value = calloc((size_t)d->step_count + 1, sizeof *plan->first_value);
    plan->first_check = calloc((size_t)d->step_count + 1, sizeof *plan->first_check);
    if (!d->steps || !d->places || !d->values || !d->constants || !d->checks || !d->copies || !d->slots ||
        !plan->first_place || !plan->first_value || !plan->first_check) {
        tw_plan_destroy(plan);
        return NULL;
    }
    plan->lanes = 1;
    for (int64_t i = 0; i < d->slot_count; i++) plan->grows |= d->slots[i].index >= 0;
    for (int64_t i = 0; i < d->place_count; i++) plan->grows |= d->places[i].offset.index >= 0;
    for (int64_t i = 0; i < d->step_count; i++) {
        const tw_step *step = &d->steps[i];
        plan->grows |= step->repeat.index >= 0;
        plan->first_place[i + 1] = plan->first_place[i] + step->place_count;
        plan->first_value[i + 1] = plan->first_value[i] + step->value_count;
        if (step->section && step->lane >= plan->lanes) plan->lanes = step->lane + 1;
    }
    for (int64_t i = 0, at = 0; i <= d->step_count; i++) {
        while (at < d->check_count && d->checks[at].step < i) at++;
        plan->first_check[i] = at;
    }
    return plan;
}

void tw_plan_trim(tw_plan *plan) {
    take_lock();
    session *s = plan->idle;
    plan->idle = NULL;
    free_lock();
    while (s) {
        session *next = s->next;
        session_free(s);
        s = next;
    }
}

void tw_plan_destroy(tw_plan *plan) {
    if (!plan) return;
    tw_plan_trim(plan);
    free((void *)plan->d.steps);
    free((void *)plan->d.places);
    free((void *)plan->d.values);
    free((void *)plan->d.constants);
    free((void *)plan->d.checks);
    free((void *)plan->d.copies);
    free((void *)plan->d.slots);
    free(plan->first_check);
    free(plan->first_place);
    free(plan->first_value);
    free(plan);
}

/* ---- running ---- */

/* The arena of a run that says how large its slots are; kept for later ones, which mostly fit. */
static int32_t bind_arena(const tw_plan_description *d, session *s, const int64_t *params) {
    int64_t wanted = 0;
    for (int64_t i = 0; i < d->slot_count; i++) {
        int64_t bytes = value_of(&d->slots[i], params);
        if (bytes < 0 || __builtin_add_overflow(wanted, tw_aligned(bytes), &wanted)) return TW_NO_MEMORY;
    }
    if (!s->grown || wanted > s->grown_bytes) {
        tw_release(s->grown);
        s->grown = tw_alloc(wanted);
        s->grown_bytes = s->grown ? wanted : 0;
        if (!s->grown) return TW_NO_MEMORY;
    }
    char *at = s->grown;
    for (int64_t i = 0; i < d->slot_count; i++) {
        s->slots[i] = at;
        at += tw_aligned(value_of(&d->slots[i], params));
    }
    return 0;
}

static void bind_arguments(const tw_plan *plan, session *s, void *const *inputs, void *const *outputs,
                           const int64_t *params) {
    const tw_plan_description *d = &plan->d;
    s->inputs = inputs;
    s->outputs = outputs;
    s->given = params;
    for (int64_t i = 0; i < d->place_count; i++) {
        const tw_place *p = &d->places[i];
        if (plan->grows || p->kind == TW_INPUT || p->kind == TW_OUTPUT) s->buffers[i] = at_place(d, s, p);
    }
    for (int64_t i = 0; i < d->value_count; i++) s->params[i] = value_of(&d->values[i], params);
}

/* The checks [begin, end) of the plan. */
static int32_t run_checks(const tw_plan *plan, session *s, int64_t begin, int64_t end, tw_failure *failure) {
    const tw_plan_description *d = &plan->d;
    for (int64_t i = begin; i < end; i++) {
        tw_check check = d->checks[i];
        check.low.value = value_of(&check.low, s->given);
        check.high.value = value_of(&check.high, s->given);
        failure->at = tw_first_out_of_range(&s->run.context, &check, at_place(d, s, &check.place),
                                            value_of(&check.count, s->given), &failure->number);
        if (failure->at < 0) continue;
        failure->check = i;
        return TW_OUT_OF_RANGE;
    }
    return 0;
}

/* The places of a repeated step the n-th time, from 0. */
static void move_on(const tw_plan *plan, session *s, int64_t i, int64_t n) {
    const tw_place *places = plan->d.places + plan->first_place[i];
    void **buffers = s->buffers + plan->first_place[i];
    for (int64_t j = 0; j < plan->d.steps[i].place_count; j++) {
        const tw_place *p = &places[j];
        int64_t times = p->first ? n - 1 : n;
        const tw_place *from = times < 0 ? &places[p->first] : p;
        buffers[j] = at_place(&plan->d, s, from) + (times < 0 ? 0 : times * value_of(&p->advance, s->given));
    }
}

static _Thread_local const tw_stop *stop_of_thread;

const tw_stop *tw_stop_by(const tw_stop *stop) {
    const tw_stop *before = stop_of_thread;
    stop_of_thread = stop;
    return before;
}

static bool is_stopped(const tw_stop *stop) {
    for (; stop; stop = stop->outer)
        if (__atomic_load_n(&stop->stopped, __ATOMIC_RELAXED) || (stop->deadline_ns && tw_now_ns() >= stop->deadline_ns))
            return true;
    return false;
}

static int32_t run_step(const tw_plan *plan, session *s, int64_t i, char *workspace, void *scratch,
                        int64_t *nanoseconds, tw_failure *failure) {
    int64_t begin = nanoseconds ? tw_now_ns() : 0;
    int32_t code = run_checks(plan, s, plan->first_check[i], plan->first_check[i + 1], failure);
    const tw_step *step = &plan->d.steps[i];
    int64_t repeat = value_of(&step->repeat, s->given);
    for (int64_t n = 0; n < repeat && code == 0; n++) {
        if (is_stopped(s->stop)) {
            code = TW_STOPPED;
            break;
        }
        if (step->repeat.index >= 0) move_on(plan, s, i, n);
        code = step->kernel(&s->run.context, s->buffers + plan->first_place[i], s->params + plan->first_value[i],
                            workspace, scratch);
        if (code == 0) code = atomic_load_explicit(&s->run.failure, memory_order_relaxed);
    }
    if (code == 0) code = atomic_load_explicit(&s->run.failure, memory_order_relaxed);
    if (nanoseconds) nanoseconds[i] = tw_now_ns() - begin;
    failure->step = i;
    return code;
}

/* A section in a run, and the first of its steps that failed. */
typedef struct {
    const tw_plan *plan;
    session *s;
    int64_t begin, end;
    int64_t *nanoseconds;
    pthread_mutex_t lock;
    int32_t code;
    tw_failure failure; /* where the code is not 0 */
} section;

static void run_lanes(void *closure, int64_t begin, int64_t end, void *scratch) {
    section *c = closure;
    const tw_plan_description *d = &c->plan->d;
    for (int64_t lane = begin; lane < end; lane++) {
        char *workspace = c->s->workspace + lane * tw_aligned(d->workspace_bytes);
        for (int64_t i = c->begin; i < c->end; i++) {
            if (d->steps[i].lane != lane) continue;
            tw_failure failure;
            int32_t code = run_step(c->plan, c->s, i, workspace, scratch, c->nanoseconds, &failure);
            if (code == 0) continue;
            pthread_mutex_lock(&c->lock);
            if (c->code == 0 || i < c->failure.step) {
                c->failure = failure;
                c->code = code;
            }
            pthread_mutex_unlock(&c->lock);
            break;
        }
    }
}

static int64_t section_end(const tw_plan_description *d, int64_t begin) {
    int64_t end = begin + 1;
    while (end < d->step_count && d->steps[end].section == d->steps[begin].section) end++;
    return end;
}

static int32_t run_steps(const tw_plan *plan, session *s, int64_t *nanoseconds, tw_failure *failure) {
    const tw_plan_description *d = &plan->d;
    failure->step = TW_FIRST;
    int32_t first = run_checks(plan, s, 0, plan->first_check[0], failure);
    if (first != 0) return first;
    for (int64_t i = 0; i < d->step_count;) {
        if (!d->steps[i].section) {
            int32_t code = run_step(plan, s, i, s->workspace, s->run.scratch, nanoseconds, failure);
            if (code != 0) return code;
            i++;
            continue;
        }
        section c = {plan, s, i, section_end(d, i), nanoseconds, PTHREAD_MUTEX_INITIALIZER, 0, {i, 0, 0, 0}};
        s->run.context.parallel_for(&s->run.context, run_lanes, &c, plan->lanes);
        int32_t code = c.code ? c.code : atomic_load_explicit(&s->run.failure, memory_order_relaxed);
        *failure = c.failure;
        if (code != 0) return code;
        i = c.end;
    }
    for (int64_t i = 0; i < d->copy_count; i++) {
        const tw_copy *copy = &d->copies[i];
        memcpy(at_place(d, s, &copy->target), at_place(d, s, &copy->source), (size_t)value_of(&copy->bytes, s->given));
    }
    return 0;
}

static void touch_pages(void *closure, int64_t begin, int64_t end, void *scratch) {
    (void)scratch;
    for (int64_t page = begin; page < end; page++) ((volatile char *)closure)[page * OWN_PAGE] = 0;
}

static void touch(session *s, char *memory, int64_t bytes) {
    if (bytes > 0) s->run.context.parallel_for(&s->run.context, touch_pages, memory, (bytes + OWN_PAGE - 1) / OWN_PAGE);
}

int32_t tw_plan_reserve(tw_plan *plan, const int64_t *params) {
    session *s = session_take(plan);
    if (!s) return TW_NO_MEMORY;
    int32_t code = plan->grows ? bind_arena(&plan->d, s, params) : 0;
    if (code == 0) {
        touch(s, s->memory, s->memory_bytes);
        touch(s, s->grown, s->grown_bytes);
    }
    session_give_back(plan, s);
    return code;
}

int32_t tw_plan_run(tw_plan *plan, void *const *inputs, void *const *outputs, const int64_t *params, int64_t repeats,
                    int64_t *nanoseconds, tw_failure *failure) {
    const tw_plan_description *d = &plan->d;
    failure->step = TW_FIRST;
    session *s = session_take(plan);
    if (!s) return TW_NO_MEMORY;
    if (plan->grows && bind_arena(d, s, params) != 0) {
        session_give_back(plan, s);
        return TW_NO_MEMORY;
    }
    bind_arguments(plan, s, inputs, outputs, params);
    s->stop = stop_of_thread;
    atomic_store_explicit(&s->run.failure, 0, memory_order_relaxed);
    fenv_t environment;
    fegetenv(&environment);
    fesetenv(FE_DFL_ENV);
    int32_t code = 0;
    for (int64_t i = 0; i < repeats && code == 0; i++)
        code = run_steps(plan, s, nanoseconds ? nanoseconds + i * d->step_count : NULL, failure);
    fesetenv(&environment);
    session_give_back(plan, s);
    return code;
}
