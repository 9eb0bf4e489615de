/* Regions: the steps that run programs of their own, once (checkpoint), one of several (switch), or again and again
 * (loop).
 *
 * A loop without carries has iterations that do not depend on one another: if they take long enough, threads share
 * them.
 *
 * A region's memory is a workspace in the arena of the program that it belongs to, planned like any buffer: the
 * frames of its programs, and for a loop the second buffers of the carries. So running allocates nothing, at any
 * depth, and a program's peak memory is the size of its frame. */
#ifndef QB_PROGRAM_REGION_H
#define QB_PROGRAM_REGION_H

#include "program/plan.h"

/* What a run has beside frames: whether it is to go on is asked in loops, now and then. */
typedef struct qb_run_state {
    qb_context *context;
    int64_t patience;     /* iterations until the clock is read again, */
    int64_t stride;       /* out of so many */
    int64_t last;         /* nanoseconds: when the host was last asked */
    _Atomic int *failure; /* the status that another thread's part of this run ended with; NULL: there is none */
} qb_run_state;

typedef struct qb_region {
    struct qb_region *next; /* of the program's list */
    const qb_op *op;
    int32_t operand_count, result_count;
    int32_t program_count;
    qb_program **programs;
    int64_t *frame_offset;         /* of each program's frame in the workspace */
    int64_t workspace_size;        /* bytes */
    const int32_t *slot;           /* the operands', the results', the workspace's */
    const int64_t *operand_offset; /* bytes */

    /* loop */
    int64_t capacity;
    bool reverse, counted, tested;
    int32_t consts, carries, sequences, ys;
    int32_t thread_count;   /* that may run iterations at once; each has a workspace of its own, */
    int64_t thread_size;    /* of so many bytes */
    int64_t *bytes;         /* of a carry; of an element of a sequence; of ys: in that order */
    int64_t *buffer_offset; /* of each carry's second buffer in the workspace */
    int64_t table_offset;   /* of the tables of addresses */
} qb_region;

/* The region of a node whose graphs are optimized; its programs are compiled. `memory` keeps it. */
qb_status qb_region_make(qb_context *context, const qb_node *node, qb_arena *memory, qb_region **out);
/* Releases the programs of a list of regions. */
void qb_regions_release(qb_region *regions);
/* Runs it on the frame's slots; `addresses` has room for operands, results and the workspace. QB_ERROR_INTERRUPTED
 * where the host wants it to stop: results are unspecified then. */
qb_status qb_region_run(const qb_region *region, char *const *slots, void **addresses, qb_run_state *state);

#endif
