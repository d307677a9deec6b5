/* Aligned and guarded memory. */
#define _GNU_SOURCE
#include "tw_runtime.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Huge pages of x86-64 and of most arm64 configurations. Blocks of at least one are aligned to one. */
#define HUGE_PAGE ((int64_t)2 << 20)

void *tw_alloc(int64_t bytes) {
    if (bytes < 0 || bytes > INT64_MAX - HUGE_PAGE) return NULL;
    int64_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : TW_ALIGNMENT;
    /* Whole units only: what lies in a huge page is then ours alone. At least one: NULL means failure. */
    int64_t size = bytes > 0 ? (bytes + align - 1) & ~(align - 1) : align;
    void *memory = aligned_alloc((size_t)align, (size_t)size);
    if (memory && align == HUGE_PAGE) (void)madvise(memory, (size_t)size, MADV_HUGEPAGE); /* only advice */
    return memory;
}

void tw_release(void *memory) { free(memory); }

void *tw_guarded_alloc(int64_t bytes, int64_t align, int32_t at_end, void **region, int64_t *region_bytes) {
    int64_t page = sysconf(_SC_PAGESIZE);
    if (bytes < 0 || bytes > INT64_MAX / 2 || align < 1 || align > page || (align & (align - 1))) return NULL;
    int64_t usable = (bytes + page - 1) & ~(page - 1);
    int64_t whole = usable + 2 * page;
    char *start = mmap(NULL, (size_t)whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    if (usable && mprotect(start + page, (size_t)usable, PROT_READ | PROT_WRITE) != 0) {
        munmap(start, (size_t)whole);
        return NULL;
    }
    *region = start;
    *region_bytes = whole;
    return at_end ? start + page + ((usable - bytes) & ~(align - 1)) : start + page;
}

void tw_guarded_release(void *region, int64_t region_bytes) { munmap(region, (size_t)region_bytes); }
