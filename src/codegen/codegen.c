/* The code of a program's kernels. */
#include "codegen/codegen.h"

#include "codegen/kernel.h"
#include "codegen/pages.h"

#if defined(__x86_64__) && !defined(_WIN32)

#include "base/allocate.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static bool is_wanted(void)
{
    static _Atomic int answer; /* 0: not asked yet */
    int known = atomic_load_explicit(&answer, memory_order_relaxed);
    if (known == 0) {
        const char *switched = getenv("QUABLA_MACHINE_CODE");
        bool off = (switched && strcmp(switched, "0") == 0) || strcmp(qb_lane_instruction_set(), "baseline") == 0;
        known = off ? -1 : 1;
        atomic_store_explicit(&answer, known, memory_order_relaxed);
    }
    return known > 0;
}

/* Where the code of a kernel begins; -1: it has none. */
typedef struct entry {
    int32_t whole, block;
} entry;

static qb_status generate(qb_x86 *x, const qb_code_layout *layout, int32_t step_count, const qb_step *steps,
                          entry *entries)
{
    for (int32_t i = 0; i < step_count; i++) {
        entries[i] = (entry){-1, -1};
        if (steps[i].kind != QB_STEP_KERNEL)
            continue;
        const qb_kernel *kernel = steps[i].kernel;
        qb_x86_align(x);
        if (qb_code_suits_whole(layout, kernel)) {
            entries[i].whole = x->count;
            QB_TRY(qb_code_whole(x, layout, kernel));
        } else if (qb_code_suits_block(kernel)) {
            entries[i].block = x->count;
            QB_TRY(qb_code_block(x, kernel));
        }
    }
    if (x->count > 0)
        qb_x86_finish(x);
    return x->failed ? qb_fail_memory() : QB_OK;
}

static qb_code code_at(const qb_code_pages *pages, int32_t entry)
{
    return entry < 0 ? NULL : (qb_code)(uintptr_t)((char *)pages->memory + entry);
}

qb_status qb_codegen(const qb_code_layout *layout, int32_t step_count, const qb_step *steps, qb_code_pages *out)
{
    *out = (qb_code_pages){NULL, 0};
    if (!is_wanted())
        return QB_OK;
    qb_x86 x = {.widest = strcmp(qb_lane_instruction_set(), "avx512") == 0 ? 64 : 32};
    entry *entries = qb_allocate((size_t)step_count * sizeof *entries);
    qb_status status = entries ? generate(&x, layout, step_count, steps, entries) : qb_fail_memory();
    if (status == QB_OK && x.count > 0 && qb_code_pages_make((size_t)x.count, x.bytes, out)) {
        for (int32_t i = 0; i < step_count; i++) {
            if (steps[i].kind != QB_STEP_KERNEL)
                continue;
            steps[i].kernel->whole = code_at(out, entries[i].whole);
            steps[i].kernel->block = code_at(out, entries[i].block);
        }
    }
    qb_x86_free(&x);
    qb_free(entries);
    return status;
}

#else

qb_status qb_codegen(const qb_code_layout *layout, int32_t step_count, const qb_step *steps, qb_code_pages *out)
{
    (void)layout, (void)step_count, (void)steps;
    *out = (qb_code_pages){NULL, 0};
    return QB_OK;
}

#endif
