/* The monotonic clock, and the library's version. */
#define _GNU_SOURCE
#include "tw_runtime.h"

#include <time.h>

int32_t tw_version(void) { return TW_VERSION; }

int64_t tw_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
