/* Numbers that are taken as places: whether all of them are within their range. */
#include "tw_internal.h"

/* From so many numbers on threads share them. */
enum { MANY = 1 << 16 };

/* In the widest vectors that the CPU has, chosen when the library is loaded. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDEST
#endif

/* The sign of (n - low) | (high - 1 - n) says whether n is out of range, an overflow included: additions and a bitwise or,
 * which compilers put into vectors for every x86-64. */
#define SCAN(name, type)                                                                           \
    WIDEST static int name(const void *numbers, int64_t begin, int64_t end, int64_t stride, int64_t low, int64_t high) { \
        const type *n = numbers;                                                                   \
        uint64_t signs = 0;                                                                        \
        if (stride == 1) {                                                                         \
            for (int64_t i = begin; i < end; i++)                                                  \
                signs |= ((uint64_t)(int64_t)n[i] - (uint64_t)low) | ((uint64_t)high - 1 - (uint64_t)(int64_t)n[i]); \
        } else {                                                                                   \
            for (int64_t i = begin; i < end; i++) {                                                \
                uint64_t v = (uint64_t)(int64_t)n[i * stride];                                     \
                signs |= (v - (uint64_t)low) | ((uint64_t)high - 1 - v);                           \
            }                                                                                      \
        }                                                                                          \
        return (int64_t)signs < 0;                                                                 \
    }

#pragma GCC push_options
#pragma GCC optimize("O3")
SCAN(scan_i8, int8_t)
SCAN(scan_i16, int16_t)
SCAN(scan_i32, int32_t)
SCAN(scan_i64, int64_t)
SCAN(scan_u8, uint8_t)
SCAN(scan_u16, uint16_t)
SCAN(scan_u32, uint32_t)
#pragma GCC pop_options

/* Whether any of the numbers [begin, end) is out of range. Unsigned ones of 8 bytes: `low` is not below zero, and those
 * from 2^63 on look negative. */
static int any_outside(const tw_check *c, const void *numbers, int64_t begin, int64_t end) {
    switch (c->bytes) {
        case 1: return (c->is_signed ? scan_i8 : scan_u8)(numbers, begin, end, c->stride, c->low.value, c->high.value);
        case 2: return (c->is_signed ? scan_i16 : scan_u16)(numbers, begin, end, c->stride, c->low.value, c->high.value);
        case 4: return (c->is_signed ? scan_i32 : scan_u32)(numbers, begin, end, c->stride, c->low.value, c->high.value);
        default: return scan_i64(numbers, begin, end, c->stride, c->low.value, c->high.value);
    }
}

static int64_t number_at(const tw_check *c, const void *numbers, int64_t at) {
    int64_t i = at * c->stride;
    if (c->bytes == 8) return ((const int64_t *)numbers)[i];
    if (c->is_signed) {
        if (c->bytes == 4) return ((const int32_t *)numbers)[i];
        return c->bytes == 2 ? ((const int16_t *)numbers)[i] : ((const int8_t *)numbers)[i];
    }
    if (c->bytes == 4) return ((const uint32_t *)numbers)[i];
    return c->bytes == 2 ? ((const uint16_t *)numbers)[i] : ((const uint8_t *)numbers)[i];
}

typedef struct {
    const tw_check *check;
    const void *numbers;
    _Atomic int32_t outside;
} shared_scan;

static void scan_share(void *closure, int64_t begin, int64_t end, void *scratch) {
    (void)scratch;
    shared_scan *s = closure;
    if (any_outside(s->check, s->numbers, begin, end)) atomic_store_explicit(&s->outside, 1, memory_order_relaxed);
}

int64_t tw_first_out_of_range(tw_context *context, const tw_check *check, const void *numbers, int64_t count,
                              int64_t *number) {
    int outside;
    if (count < MANY) {
        outside = any_outside(check, numbers, 0, count);
    } else {
        shared_scan shared = {check, numbers, 0};
        context->parallel_for(context, scan_share, &shared, count);
        outside = atomic_load_explicit(&shared.outside, memory_order_relaxed);
    }
    if (!outside) return -1;
    for (int64_t at = 0; at < count; at++) {
        *number = number_at(check, numbers, at);
        if (*number < check->low.value || *number >= check->high.value) return at;
    }
    return -1; /* the numbers change while they are read */
}
