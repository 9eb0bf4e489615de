/* A short list of free blocks under a lock. */
#include "base/large.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BLOCKS = 32, HUGE_PAGE = 1 << 21, HUGE_BLOCK = 2 * HUGE_PAGE };

typedef struct kept_block {
    void *block;
    size_t size;
} kept_block;

static kept_block kept[MOST_BLOCKS]; /* oldest first */
static int kept_count;
static size_t kept_size;
static atomic_flag lock = ATOMIC_FLAG_INIT;

/* Held for a walk over the list and never while calling the system: whoever finds it taken does without. */
static bool try_lock(void)
{
    return !atomic_flag_test_and_set_explicit(&lock, memory_order_acquire);
}

static void unlock(void)
{
    atomic_flag_clear_explicit(&lock, memory_order_release);
}

static kept_block remove_at(int index)
{
    kept_block found = kept[index];
    kept_count--;
    kept_size -= found.size;
    memmove(kept + index, kept + index + 1, (size_t)(kept_count - index) * sizeof *kept);
    return found;
}

/* Where the system has pages of 2 MiB, a block of several gets them: a thousandth of the page faults when it is first
 * written, and reading it in any order stays within the processor's table of pages. Only whole ones are asked for, so
 * that no more memory is touched than the block has. */
void *qb_large_allocate(size_t size)
{
#if defined(MADV_HUGEPAGE)
    if (size >= HUGE_BLOCK && size <= SIZE_MAX - HUGE_PAGE) {
        void *block = aligned_alloc(HUGE_PAGE, (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
        if (block)
            (void)madvise(block, size / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
        return block;
    }
#endif
    return malloc(size);
}

void *qb_large_take(size_t size, size_t *own_size)
{
    kept_block found = {NULL, 0};
    if (!try_lock())
        return NULL;
    for (int i = kept_count - 1; i >= 0 && !found.block; i--)
        if (kept[i].size >= size && kept[i].size - size <= size / 4)
            found = remove_at(i);
    unlock();
    *own_size = found.size;
    return found.block;
}

void qb_large_give(void *block, size_t size)
{
    void *surplus[MOST_BLOCKS + 1];
    int surplus_count = 0;
    if (size > QB_LARGE_KEPT || !try_lock()) {
        free(block);
        return;
    }
    while (kept_count == MOST_BLOCKS || kept_size + size > QB_LARGE_KEPT)
        surplus[surplus_count++] = remove_at(0).block;
    kept[kept_count++] = (kept_block){block, size};
    kept_size += size;
    unlock();
    while (surplus_count > 0)
        free(surplus[--surplus_count]);
}
