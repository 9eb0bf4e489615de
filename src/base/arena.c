/* Blocks that double in size, chained from the newest. */
#include "base/arena.h"

#include "base/allocate.h"

struct qb_arena_block {
    struct qb_arena_block *older;
    size_t used, size;
    _Alignas(8) char memory[];
};

enum { FIRST_BLOCK = 1024, LARGEST_STEP = 1 << 20 };

void *qb_arena_allocate(qb_arena *arena, size_t size)
{
    size = (size + 7) / 8 * 8;
    struct qb_arena_block *block = arena->block;
    if (!block || block->size - block->used < size) {
        size_t room = block ? block->size * 2 : FIRST_BLOCK;
        if (room > LARGEST_STEP)
            room = LARGEST_STEP;
        if (room < size)
            room = size;
        struct qb_arena_block *fresh = qb_allocate(sizeof *fresh + room);
        if (!fresh)
            return NULL;
        *fresh = (struct qb_arena_block){.older = block, .size = room};
        arena->block = block = fresh;
    }
    void *memory = block->memory + block->used;
    block->used += size;
    return memory;
}

void qb_arena_free(qb_arena *arena)
{
    for (struct qb_arena_block *block = arena->block; block;) {
        struct qb_arena_block *older = block->older;
        qb_free(block);
        block = older;
    }
    arena->block = NULL;
}
