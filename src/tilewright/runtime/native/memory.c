/* Aligned and guarded memory. */
#define _GNU_SOURCE
#include "tw_runtime.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Huge pages of x86-64 and of most arm64 configurations. Blocks of at least one are aligned to one. */
#define HUGE_PAGE ((int64_t)2 << 20)

/* Large blocks come from the system, and are kept when they are released: a run's results are as large as those of the
 * run before, and fresh pages cost more than most kernels that fill them (0.25 us and more a page of 4 KiB). */
enum { KEPT = 16 };
/* This part of the machine's memory may be kept. */
enum { KEPT_PART = 16 };

/* Lies right before what tw_alloc returns. */
typedef struct {
    void *start;      /* of what the system gave */
    int64_t reserved; /* bytes of that; 0: from malloc */
    int64_t size;     /* bytes that may be used */
} header;
_Static_assert(sizeof(header) <= TW_ALIGNMENT, "the header fits before the block");

static header *header_of(void *memory) { return (header *)((char *)memory - TW_ALIGNMENT); }

/* Oldest first; whoever sets `taken` may change them. A forked child may find it set for ever, and then keeps nothing. */
static struct {
    void *block[KEPT];
    int count;
    int64_t bytes;
} kept;
static _Atomic int taken;

static int take_kept(void) {
    int nobody = 0;
    return atomic_compare_exchange_strong_explicit(&taken, &nobody, 1, memory_order_acquire, memory_order_relaxed);
}

static void give_kept(void) { atomic_store_explicit(&taken, 0, memory_order_release); }

static void *remove_kept(int at) {
    void *found = kept.block[at];
    kept.bytes -= header_of(found)->size;
    kept.count--;
    memmove(&kept.block[at], &kept.block[at + 1], (size_t)(kept.count - at) * sizeof *kept.block);
    return found;
}

static void unmap(void *memory) {
    header *h = header_of(memory);
    munmap(h->start, (size_t)h->reserved);
}

/* The kept block that fits best, with at most an eighth to spare. */
static void *reuse(int64_t size) {
    int best = -1;
    for (int i = 0; i < kept.count; i++) {
        int64_t has = header_of(kept.block[i])->size;
        if (has >= size && has <= size + size / 8 && (best < 0 || has < header_of(kept.block[best])->size)) best = i;
    }
    return best < 0 ? NULL : remove_kept(best);
}

static void *map_large(int64_t size) {
    int64_t reserved = size + HUGE_PAGE;
    char *start = mmap(NULL, (size_t)reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    char *memory = (char *)(((uintptr_t)start + (uintptr_t)HUGE_PAGE) & ~(uintptr_t)(HUGE_PAGE - 1));
    *header_of(memory) = (header){start, reserved, size};
    (void)madvise(memory, (size_t)size, MADV_HUGEPAGE); /* only advice */
    return memory;
}

void *tw_alloc(int64_t bytes) {
    if (bytes < 0 || bytes > INT64_MAX - 2 * HUGE_PAGE) return NULL;
    if (bytes < HUGE_PAGE) {
        int64_t size = (bytes + TW_ALIGNMENT - 1) & ~(int64_t)(TW_ALIGNMENT - 1);
        char *start = aligned_alloc(TW_ALIGNMENT, (size_t)(size + TW_ALIGNMENT));
        if (!start) return NULL;
        *(header *)start = (header){start, 0, size};
        return start + TW_ALIGNMENT;
    }
    /* Whole units only: what lies in a huge page is then ours alone. */
    int64_t size = (bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    void *memory = NULL;
    if (take_kept()) {
        memory = reuse(size);
        give_kept();
    }
    return memory ? memory : map_large(size);
}

void tw_release(void *memory) {
    if (!memory) return;
    header *h = header_of(memory);
    if (!h->reserved) {
        free(h->start);
        return;
    }
    int64_t most = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / KEPT_PART;
    if (h->size > most || !take_kept()) {
        unmap(memory);
        return;
    }
    while (kept.count == KEPT || kept.bytes + h->size > most) unmap(remove_kept(0));
    kept.block[kept.count++] = memory;
    kept.bytes += h->size;
    give_kept();
}

void tw_memory_trim(void) {
    if (!take_kept()) return;
    while (kept.count) unmap(remove_kept(0));
    give_kept();
}

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
