/* The entry point for C of a saved model: compiled, with the runtime and generated tables, into its library. */
#define _GNU_SOURCE
#include "tw_runtime.h"

#include "tables.h" /* generated, see driver/export_c.py */

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if TW_TILES
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { ACTIVE_SPIN_NS = 500000, PASSIVE_SPIN_NS = 2000, MAX_THREADS = 1024 }; /* as in runtime/pool.py */

struct tw_model {
    tw_pool *pool;
    tw_plan *plan;
};

/* ---- what the machine can do ---- */

/* Whether the words of `line` hold `word`. */
static int has_word(const char *line, const char *word) {
    size_t length = strlen(word);
    for (const char *at = line; (at = strstr(at, word)); at += length) {
        int begins = at == line || at[-1] == ' ' || at[-1] == '\t';
        if (begins && (at[length] == ' ' || at[length] == '\n' || at[length] == '\0')) return 1;
    }
    return 0;
}

/* Whether the CPU has every feature that the code was compiled for. Where the kernel does not say, nobody knows. */
static int suits_cpu(void) {
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file) return 1;
    char *line = NULL;
    size_t room = 0;
    int suits = 1;
    while (getline(&line, &room, file) >= 0) {
        if (strncmp(line, TW_FLAGS_LINE, strlen(TW_FLAGS_LINE)) != 0) continue;
        for (int32_t i = 0; i < TW_FLAG_COUNT; i++) suits = suits && has_word(line, flags[i]);
        break;
    }
    free(line);
    fclose(file);
    return suits;
}

/* Whether the process, all its threads, may use the tile registers of AMX: asks the kernel, if the code has any. */
static int may_use_tiles(void) {
#if TW_TILES
    enum { REQUEST_STATE = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
#else
    return 1;
#endif
}

/* More threads than CPUs never spin long: each would keep another from its work. */
static int64_t spin_ns(int32_t threads, int32_t wait) {
    cpu_set_t cpus;
    int few = sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) < threads;
    return wait == TW_MODEL_PASSIVE || few ? PASSIVE_SPIN_NS : ACTIVE_SPIN_NS;
}

/* ---- opening and closing ---- */

static tw_plan *create_plan(tw_pool *pool) {
    void **constants = calloc(TW_CONSTANT_COUNT + 1, sizeof *constants);
    if (!constants) return NULL;
    for (int64_t i = 0; i < TW_CONSTANT_COUNT; i++) constants[i] = (char *)tw_weights + constant_offsets[i];
    tw_plan_description description = {
        .steps = steps,
        .step_count = TW_STEP_COUNT,
        .places = places,
        .place_count = TW_PLACE_COUNT,
        .values = values,
        .value_count = TW_VALUE_COUNT,
        .checks = checks,
        .check_count = TW_CHECK_COUNT,
        .copies = copies,
        .copy_count = TW_COPY_COUNT,
        .constants = constants,
        .constant_count = TW_CONSTANT_COUNT,
        .slots = (const tw_value[]){{-1, TW_ARENA_BYTES}},
        .slot_count = 1,
        .workspace_bytes = TW_WORKSPACE_BYTES,
        .scratch_bytes = TW_SCRATCH_BYTES,
    };
    tw_plan *plan = tw_plan_create(pool, &description);
    free(constants);
    return plan;
}

static int32_t open_model(tw_model **model, int32_t threads, int32_t wait) {
    if (threads < 1 || threads > MAX_THREADS) return TW_MODEL_BAD_ARGUMENT;
    if (wait != TW_MODEL_ACTIVE && wait != TW_MODEL_PASSIVE) return TW_MODEL_BAD_ARGUMENT;
    if (!suits_cpu() || !may_use_tiles()) return TW_MODEL_WRONG_CPU;
    *model = calloc(1, sizeof **model);
    if (!*model) return TW_MODEL_NO_MEMORY;
    (*model)->pool = tw_pool_create(threads, spin_ns(threads, wait), NULL);
    (*model)->plan = (*model)->pool ? create_plan((*model)->pool) : NULL;
    return (*model)->plan ? TW_MODEL_OK : TW_MODEL_NO_MEMORY;
}

void TW_NAME(close)(tw_model *model) {
    if (!model) return;
    tw_plan_destroy(model->plan);
    if (model->pool) tw_pool_destroy(model->pool);
    free(model);
}

tw_model *TW_NAME(open)(const tw_model_options *options, int32_t *status) {
    tw_model *model = NULL;
    int32_t threads = options && options->threads ? options->threads : TW_THREADS;
    int32_t result = open_model(&model, threads, options ? options->wait : TW_MODEL_ACTIVE);
    if (status) *status = result;
    if (result == TW_MODEL_OK) return model;
    TW_NAME(close)(model);
    return NULL;
}

/* ---- running ---- */

enum { MESSAGE_BYTES = 512 };

/* What the last run of this thread that failed has found. */
static _Thread_local char message[MESSAGE_BYTES];

static void note_out_of_range(const tw_failure *failure) {
    const tw_check *check = &checks[failure->check];
    snprintf(message, sizeof message, "%s holds %lld (element %lld), which is out of range (from %lld to %lld)",
             check_names[failure->check], (long long)failure->number,
             (long long)(check_firsts[failure->check] + failure->at * check->stride), (long long)check->low.value,
             (long long)check->high.value - 1);
}

int32_t TW_NAME(run)(tw_model *model, const void *const *inputs, void *const *outputs) {
    if (!model || (TW_INPUT_COUNT && !inputs) || (TW_OUTPUT_COUNT && !outputs)) return TW_MODEL_BAD_ARGUMENT;
    for (int32_t i = 0; i < TW_INPUT_COUNT; i++)
        if (!inputs[i] && input_tensors[i].bytes) return TW_MODEL_BAD_ARGUMENT;
    for (int32_t i = 0; i < TW_OUTPUT_COUNT; i++)
        if (!outputs[i] && output_tensors[i].bytes) return TW_MODEL_BAD_ARGUMENT;
    /* Several outputs may be one output of the plan: it is made in the first of them. */
    void *made[TW_PLAN_OUTPUT_COUNT + 1];
    for (int32_t i = TW_OUTPUT_COUNT - 1; i >= 0; i--)
        if (results[i].kind == TW_OUTPUT) made[results[i].index] = outputs[i];
    tw_failure failure;
    int32_t code = tw_plan_run(model->plan, (void *const *)inputs, made, NULL, 1, NULL, &failure);
    if (code == TW_OUT_OF_RANGE) {
        note_out_of_range(&failure);
        return TW_MODEL_OUT_OF_RANGE;
    }
    if (code != 0) return code;
    for (int32_t i = 0; i < TW_OUTPUT_COUNT; i++) {
        const tw_place *place = &results[i];
        const void *source = place->kind == TW_INPUT    ? inputs[place->index]
                             : place->kind == TW_OUTPUT ? made[place->index]
                                                        : (const void *)(tw_weights + place->offset.value);
        if (source != outputs[i]) memmove(outputs[i], source, (size_t)output_tensors[i].bytes);
    }
    return TW_MODEL_OK;
}

/* ---- descriptions ---- */

const tw_model_tensor *TW_NAME(inputs)(void) { return input_tensors; }

const tw_model_tensor *TW_NAME(outputs)(void) { return output_tensors; }

const char *TW_NAME(message)(void) { return message; }

const char *TW_NAME(explain)(int32_t status) {
    switch (status) {
        case TW_MODEL_OK: return "done";
        case TW_MODEL_NO_MEMORY: return "no memory, or threads cannot be had";
        case TW_MODEL_WRONG_CPU: return "this CPU lacks features that the model was compiled for, or the kernel refuses them";
        case TW_MODEL_BAD_ARGUMENT: return "an argument is not what the header asks for";
        case TW_MODEL_OUT_OF_RANGE: return "an index is out of range: the outputs are as they were";
        default: return "the contents of the inputs are not what the model can work on";
    }
}
