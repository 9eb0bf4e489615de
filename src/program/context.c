/* Contexts: what calls share. */
#include "base/allocate.h"
#include "program/program.h"

struct qb_context {
    qb_eager_cache *eager;
    qb_status (*poll)(void *data);
    void *poll_data;
};

qb_status qb_context_create(qb_context **out)
{
    qb_context *context = qb_allocate_zeroed(1, sizeof *context);
    if (!context)
        return qb_fail_memory();
    qb_status status = qb_eager_cache_create(&context->eager);
    if (status != QB_OK) {
        qb_free(context);
        return status;
    }
    *out = context;
    return QB_OK;
}

void qb_context_destroy(qb_context *context)
{
    if (!context)
        return;
    qb_eager_cache_destroy(context->eager);
    qb_free(context);
}

qb_eager_cache *qb_context_eager_cache(qb_context *context)
{
    return context->eager;
}

void qb_context_on_poll(qb_context *context, qb_status (*poll)(void *data), void *data)
{
    context->poll = poll;
    context->poll_data = data;
}

qb_status qb_context_poll(const qb_context *context)
{
    return context && context->poll ? context->poll(context->poll_data) : QB_OK;
}
