/* print: values handed to the host while a program runs, for it to show. An effect: it stays where nothing uses its
 * result, and a value that it reads is computed for it alone. It has no derivative: what is printed is the primal,
 * once.
 *
 * Operands are the values and, where `masked`, a bool that says whether to print. The first `batch` axes of all pair
 * up: one call of the host for each example. The result is 0. */
#include "ops/build.h"

#include "base/allocate.h"

#include <stdatomic.h>

enum { FORMAT, SEQUENCE, BATCH, MASKED, ATTRIBUTES };

static _Atomic(qb_print_function) print_function;

void qb_on_print(qb_print_function function)
{
    atomic_store(&print_function, function);
}

static qb_status print_infer(const qb_inference *in)
{
    int64_t batch = in->attribute[BATCH].integer;
    bool masked = in->attribute[MASKED].integer != 0;
    bool valid = batch >= 0 && batch < QB_MAX_RANK && (in->operand_count > 0 || (batch == 0 && !masked));
    for (int i = 0; valid && i < in->operand_count; i++)
        valid = in->operand[i].rank >= batch &&
                qb_shape_equal((int)batch, in->operand[0].shape, (int)batch, in->operand[i].shape);
    if (valid && masked) {
        const qb_type *mask = &in->operand[in->operand_count - 1];
        valid = mask->dtype == QB_BOOL && mask->rank == batch;
    }
    if (!valid)
        return qb_fail(QB_ERROR_VALUE, "print: the operands do not have %lld axes of examples in common",
                       (long long)batch);
    qb_type_set(in->result, QB_INT64, 0, NULL);
    return QB_OK;
}

/* All examples of the operand: with the new axis of examples in front. */
static qb_value over_batch(qb_rule *r, int i)
{
    return r->mapped[i] ? r->operand[i] : qb_broadcast_leading(r->graph, r->operand[i], r->batch_size);
}

/* The mask over the new axis too, which examples that do not count are taken out of. */
static qb_value mask_over_batch(qb_rule *r, int64_t batch)
{
    qb_graph *g = r->graph;
    bool masked = r->attribute[MASKED].integer != 0;
    qb_value mask = masked ? over_batch(r, r->operand_count - 1) : QB_NONE;
    if (r->active == QB_NONE)
        return mask;
    int64_t shape[QB_MAX_RANK] = {r->batch_size}, axis = 0;
    for (int i = 0; i < batch; i++) { /* of the old axes, which every operand has behind the new one */
        int old = r->mapped[0] ? i + 1 : i;
        shape[i + 1] = g->values[r->operand[0]].shape[old];
    }
    qb_value active = qb_broadcast(g, r->active, (int)batch + 1, shape, &axis);
    return mask == QB_NONE ? active : qb_bit_and(g, mask, active);
}

static void print_batch(qb_rule *r)
{
    int64_t batch = r->attribute[BATCH].integer;
    bool masked = r->attribute[MASKED].integer != 0;
    int count = r->operand_count - masked;
    qb_value *operands = qb_graph_allocate(r->graph, (size_t)(count + 1) * sizeof *operands);
    if (!operands)
        return;
    for (int i = 0; i < count; i++)
        operands[i] = over_batch(r, i);
    qb_value mask = mask_over_batch(r, batch);
    if (mask != QB_NONE)
        operands[count++] = mask;
    const qb_attribute attributes[ATTRIBUTES] = {r->attribute[FORMAT], r->attribute[SEQUENCE], qb_int(batch + 1),
                                                 qb_int(mask != QB_NONE)};
    r->batched_result[0] = qb_emit(r->graph, r->op, count, operands, attributes);
    r->result_mapped[0] = false;
}

/* One example: its parts of the operands, to the host. */
static void print_example(qb_print_function function, const qb_attribute *attribute, int count, const qb_type *types,
                          const void *const *operands, int64_t example)
{
    int batch = (int)attribute[BATCH].integer;
    qb_printed *values = qb_allocate((size_t)count * sizeof *values);
    char *format = qb_allocate((size_t)attribute[FORMAT].count + 1);
    for (int i = 0; values && format && i < count; i++) {
        int64_t bytes = (int64_t)qb_dtype_size(types[i].dtype);
        for (int axis = batch; axis < types[i].rank; axis++)
            bytes *= types[i].shape[axis];
        values[i] = (qb_printed){types[i].dtype, types[i].rank - batch, types[i].shape + batch,
                                 (const char *)operands[i] + example * bytes};
    }
    if (values && format) {
        for (int i = 0; i < attribute[FORMAT].count; i++)
            format[i] = (char)attribute[FORMAT].integers[i];
        format[attribute[FORMAT].count] = '\0';
        function(format, count, values);
    }
    qb_free(values);
    qb_free(format);
}

static void print_cpu(const qb_attribute *attribute, int operand_count, const qb_type *operand_type,
                      const void *const *operand, const qb_type *result_type, void *const *result)
{
    (void)result_type;
    qb_print_function function = atomic_load(&print_function);
    bool masked = attribute[MASKED].integer != 0;
    const bool *mask = masked ? operand[operand_count - 1] : NULL;
    int64_t examples = 1;
    for (int i = 0; i < attribute[BATCH].integer; i++)
        examples *= operand_type[0].shape[i];
    for (int64_t k = 0; function && k < examples; k++)
        if (!mask || mask[k])
            print_example(function, attribute, operand_count - masked, operand_type, operand, k);
    *(int64_t *)result[0] = 0;
}

const qb_op qb_op_print = {.name = "print",
                           .summary = "values shown by the host while the program runs",
                           .arity = -1,
                           .result_count = 1,
                           .flags = QB_OP_FLAT | QB_OP_EFFECT,
                           .attribute_count = ATTRIBUTES,
                           .attribute_name = {".format", ".sequence", "batch", ".masked"},
                           .lane = QB_LANE_NONE,
                           .infer = print_infer,
                           .batch = print_batch,
                           .cpu = print_cpu};

qb_status qb_graph_print(qb_graph *graph, const char *format, int count, const qb_value *values)
{
    static _Atomic int64_t calls;
    size_t length = strlen(format);
    int64_t *letters = qb_allocate(length * sizeof *letters);
    if (!letters)
        return qb_fail_memory();
    for (size_t i = 0; i < length; i++)
        letters[i] = (unsigned char)format[i];
    const qb_attribute attributes[ATTRIBUTES] = {qb_ints((int)length, letters),
                                                 qb_int(atomic_fetch_add(&calls, 1)), /* no two calls are one node */
                                                 qb_int(0), qb_int(0)};
    qb_value made = qb_emit(graph, &qb_op_print, count, values, attributes);
    qb_free(letters);
    return made < 0 ? qb_graph_take_status(graph) : QB_OK;
}
