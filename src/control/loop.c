/* The one loop: its parts and types. scan, fori_loop and while_loop are ways to make it. */
#include "control/control.h"

#include "base/allocate.h"

enum { BODY, CONDITION, CAPACITY, REVERSE, COUNTED, CONSTS, CARRIES, ATTRIBUTES };

qb_loop qb_loop_of(const qb_attribute *attribute, int operand_count, const qb_value *operands)
{
    int counted = (int)attribute[COUNTED].integer;
    qb_loop loop = {.body = attribute[BODY].graph,
                    .condition = attribute[CONDITION].graph,
                    .capacity = attribute[CAPACITY].integer,
                    .reverse = attribute[REVERSE].integer != 0,
                    .count = counted && operands ? operands[0] : QB_NONE,
                    .consts = (int)attribute[CONSTS].integer,
                    .carries = (int)attribute[CARRIES].integer,
                    .operands = operands ? operands + counted : NULL};
    loop.sequences = operand_count - counted - loop.consts - loop.carries;
    return loop;
}

static int count_results(int operand_count, const qb_attribute *attribute)
{
    (void)operand_count;
    return attribute[BODY].graph->output_count + (attribute[CONDITION].graph != NULL);
}

/* ---- Types */

static bool is_scalar(const qb_type *type, qb_dtype dtype)
{
    return type->dtype == dtype && type->rank == 0;
}

/* An element of a sequence. */
static qb_status element_type(const qb_type *sequence, int64_t capacity, qb_type *out)
{
    if (capacity < 0)
        return qb_fail(QB_ERROR_VALUE, "loop: a sequence needs a limit on the number of iterations");
    if (sequence->rank == 0 || sequence->shape[0] != capacity)
        return qb_fail(QB_ERROR_VALUE, "loop: a sequence for %lld iterations has the shape %s", (long long)capacity,
                       qb_print_shape(sequence->rank, sequence->shape).text);
    qb_type_set(out, sequence->dtype, sequence->rank - 1, sequence->shape + 1);
    return QB_OK;
}

static qb_status check_graph(const qb_inference *inference, const qb_graph *graph, const char *name, int operands,
                             const qb_type *operand)
{
    const qb_attribute *attribute = inference->attribute;
    int lasting = (int)(attribute[CONSTS].integer + attribute[CARRIES].integer);
    qb_type index = {.dtype = QB_INT64}, element;
    if (graph->input_count != 1 + operands)
        return qb_fail(QB_ERROR_INTERNAL, "loop: the %s has %d inputs, the loop has %d operands", name,
                       (int)graph->input_count, operands);
    for (int i = 0; i < graph->input_count; i++) {
        const qb_type *type = i == 0 ? &index : &operand[i - 1];
        if (i > lasting) {
            QB_TRY(element_type(type, attribute[CAPACITY].integer, &element));
            type = &element;
        }
        if (!qb_value_has_type(graph, graph->inputs[i], type))
            return qb_fail(QB_ERROR_VALUE, "loop: input %d of the %s is not like operand %d of the loop", i, name, i);
    }
    return QB_OK;
}

static qb_status infer_results(const qb_inference *inference, const qb_type *carry)
{
    const qb_attribute *attribute = inference->attribute;
    const qb_graph *body = attribute[BODY].graph;
    int carries = (int)attribute[CARRIES].integer;
    if (body->output_count < carries)
        return qb_fail(QB_ERROR_INTERNAL, "loop: %d carries, but the body has %d outputs", carries,
                       (int)body->output_count);
    for (int i = 0; i < body->output_count; i++) {
        qb_type *result = &inference->result[i];
        qb_value_type(body, body->outputs[i], result);
        if (i < carries) {
            if (!qb_value_has_type(body, body->outputs[i], &carry[i]))
                return qb_fail(QB_ERROR_VALUE, "loop: carry %d is %s, but the body makes it %s", i,
                               qb_print_type(carry[i].dtype, carry[i].rank, carry[i].shape).text,
                               qb_print_type(result->dtype, result->rank, result->shape).text);
            continue;
        }
        int64_t size;
        if (attribute[CAPACITY].integer < 0)
            return qb_fail(QB_ERROR_VALUE, "loop: stacked results need a limit on the number of iterations");
        if (result->rank == QB_MAX_RANK)
            return qb_fail(QB_ERROR_VALUE, "loop: a stacked result would have more than %d axes", QB_MAX_RANK);
        memmove(result->shape + 1, result->shape, (size_t)result->rank * sizeof *result->shape);
        result->shape[0] = attribute[CAPACITY].integer;
        result->rank++;
        QB_TRY(qb_shape_size(result->rank, result->shape, qb_dtype_size(result->dtype), &size));
    }
    if (attribute[CONDITION].graph)
        qb_type_set(&inference->result[body->output_count], QB_INT64, 0, NULL);
    return QB_OK;
}

static qb_status loop_infer(const qb_inference *inference)
{
    const qb_attribute *attribute = inference->attribute;
    int counted = (int)attribute[COUNTED].integer, operands = inference->operand_count - counted;
    int lasting = (int)(attribute[CONSTS].integer + attribute[CARRIES].integer);
    const qb_type *operand = inference->operand + counted;
    const qb_graph *condition = attribute[CONDITION].graph;
    if (counted && !is_scalar(inference->operand, QB_INT64))
        return qb_fail(QB_ERROR_VALUE, "loop: the number of iterations must be an int64 scalar");
    if (!counted && !condition && attribute[CAPACITY].integer < 0)
        return qb_fail(QB_ERROR_VALUE, "loop: neither a number of iterations nor a condition ends it");
    if (condition && attribute[REVERSE].integer)
        return qb_fail(QB_ERROR_INTERNAL, "loop: a reversed loop has no condition");
    QB_TRY(check_graph(inference, attribute[BODY].graph, "body", operands, operand));
    if (condition) {
        QB_TRY(check_graph(inference, condition, "condition", lasting, operand));
        qb_type result;
        if (condition->output_count == 1)
            qb_value_type(condition, condition->outputs[0], &result);
        if (condition->output_count != 1 || !is_scalar(&result, QB_BOOL))
            return qb_fail(QB_ERROR_VALUE, "loop: the condition must be a bool scalar");
    }
    return infer_results(inference, operand + attribute[CONSTS].integer);
}

/* ---- Making */

bool qb_loop_emit(qb_graph *graph, const qb_loop *loop, qb_value *results)
{
    qb_attribute attributes[ATTRIBUTES];
    int counted = loop->count != QB_NONE, count = qb_loop_operands(loop);
    qb_value *operands = qb_allocate((size_t)(count + 1) * sizeof *operands);
    if (!operands)
        return qb_graph_fail(graph, qb_fail_memory()) >= 0;
    operands[0] = loop->count;
    for (int i = 0; i < count; i++)
        operands[counted + i] = loop->operands[i];
    attributes[BODY] = qb_subgraph(loop->body);
    attributes[CONDITION] = qb_subgraph(loop->condition);
    attributes[CAPACITY] = qb_int(loop->capacity);
    attributes[REVERSE] = qb_int(loop->reverse);
    attributes[COUNTED] = qb_int(counted);
    attributes[CONSTS] = qb_int(loop->consts);
    attributes[CARRIES] = qb_int(loop->carries);
    bool made = qb_emit_all(graph, &qb_op_loop, counted + count, operands, attributes, results);
    qb_free(operands);
    return made;
}

/* Body and condition as often as they can run: with bounds known at run time only the most, without any once. */
static double loop_flops(const qb_graph *graph, const qb_node *node)
{
    (void)graph;
    const qb_loop loop = qb_loop_of(node->attributes, node->operand_count, NULL);
    double body = qb_graph_flops(loop.body), condition = loop.condition ? qb_graph_flops(loop.condition) : 0;
    if (body < 0 || condition < 0)
        return -1;
    return (body + condition) * (double)(loop.capacity < 0 ? 1 : loop.capacity);
}

const qb_op qb_op_loop = {.name = "loop",
                          .summary = "carries through a body that is repeated, slices of sequences in, results stacked",
                          .arity = -1,
                          .count_results = count_results,
                          .flags = QB_OP_REGION,
                          .attribute_count = ATTRIBUTES,
                          .attribute_name = {"body", "while", "capacity", "reverse", "counted", "consts", "carries"},
                          .lane = QB_LANE_NONE,
                          .infer = loop_infer,
                          .jvp = qb_loop_jvp,
                          .transpose = qb_loop_transpose,
                          .batch = qb_loop_batch,
                          .flops = loop_flops,
                          .refine = qb_loop_refine,
                          .needs = qb_loop_needs};
