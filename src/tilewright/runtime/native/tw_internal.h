/* What the runtime's own files share. */
#ifndef TW_INTERNAL_H
#define TW_INTERNAL_H

#include "tw_runtime.h"

#include <stdatomic.h>

/* A context together with the memory of the run it belongs to. */
typedef struct {
    tw_context context; /* first: a tw_context pointer is a tw_run pointer */
    tw_pool *pool;
    char *scratch;          /* one block a thread, scratch_stride apart */
    int64_t scratch_stride; /* 0 where no kernel asks for scratch */
    _Atomic int32_t failure; /* TW_NO_MEMORY once a kernel, or a nested loop, got no memory */
} tw_run;

/* The functions of a context that runs loops on the pool of its tw_run. */
extern const tw_context tw_pool_context;

int32_t tw_pool_threads(const tw_pool *pool);

/* Which of the check's numbers, from `numbers` on, is the first one out of range; -1 if none is. In parallel where there
 * are many. *number receives it. */
int64_t tw_first_out_of_range(tw_context *context, const tw_check *check, const void *numbers, int64_t count,
                              int64_t *number);

/* `bytes` rounded up to whole units of the alignment. */
static inline int64_t tw_aligned(int64_t bytes) {
    return (bytes + TW_ALIGNMENT - 1) & ~(int64_t)(TW_ALIGNMENT - 1);
}

#endif
