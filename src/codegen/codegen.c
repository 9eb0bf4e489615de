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

static qb_status generate(qb_x86 *x, const qb_code_layout *layout, int32_t step_count, qb_step *steps, int32_t *entry)
{
    for (int32_t i = 0; i < step_count; i++) {
        bool suits = steps[i].kind == QB_STEP_KERNEL && qb_code_suits(layout, steps[i].kernel);
        qb_x86_align(x);
        entry[i] = suits ? x->count : -1;
        if (suits)
            QB_TRY(qb_code_kernel(x, layout, steps[i].kernel));
    }
    qb_x86_finish(x);
    return x->failed ? qb_fail_memory() : QB_OK;
}

qb_status qb_codegen(const qb_code_layout *layout, int32_t step_count, qb_step *steps, qb_code_pages *out)
{
    *out = (qb_code_pages){NULL, 0};
    bool any = false;
    for (int32_t i = 0; i < step_count && is_wanted(); i++)
        any = any || (steps[i].kind == QB_STEP_KERNEL && qb_code_suits(layout, steps[i].kernel));
    if (!any)
        return QB_OK;
    qb_x86 x = {0};
    int32_t *entry = qb_allocate((size_t)step_count * sizeof *entry);
    qb_status status = entry ? generate(&x, layout, step_count, steps, entry) : qb_fail_memory();
    if (status == QB_OK && qb_code_pages_make((size_t)x.count, x.bytes, out))
        for (int32_t i = 0; i < step_count; i++)
            if (entry[i] >= 0)
                steps[i].code = (qb_code)(uintptr_t)((char *)out->memory + entry[i]);
    qb_x86_free(&x);
    qb_free(entry);
    return status;
}

#else

qb_status qb_codegen(const qb_code_layout *layout, int32_t step_count, qb_step *steps, qb_code_pages *out)
{
    (void)layout, (void)step_count, (void)steps;
    *out = (qb_code_pages){NULL, 0};
    return QB_OK;
}

#endif
