/* An arena: many small pieces of memory that live and die together (a graph's shapes and attributes). */
#ifndef QB_BASE_ARENA_H
#define QB_BASE_ARENA_H

#include <stddef.h>

typedef struct qb_arena {
    struct qb_arena_block *block; /* the newest; older ones are chained behind it */
} qb_arena;

/* Aligned to 8 bytes; NULL when memory is out. Freed by qb_arena_free only, all at once. */
void *qb_arena_allocate(qb_arena *arena, size_t size);
void qb_arena_free(qb_arena *arena);

#endif
