/* Looking for the number that is not finite inside an operation that runs graphs: what it ran is run again, a loop
 * iteration by iteration, until a result is not finite, and the search goes on there. */
#include "base/allocate.h"
#include "control/control.h"
#include "program/program.h"

/* The graph on these inputs: QB_ERROR_NONFINITE where a result is not finite, else the results. */
static qb_status run_checked(qb_program *program, qb_tensor *const *inputs, qb_tensor **results)
{
    QB_TRY(qb_run(program, inputs, results));
    qb_status status = qb_check_finite(program, inputs, results);
    for (int32_t i = 0; status != QB_OK && i < program->output_count; i++)
        qb_tensor_release(results[i]);
    return status;
}

static qb_status search_graph(const qb_graph *graph, qb_tensor *const *inputs)
{
    qb_program *program;
    QB_TRY(qb_compile(NULL, graph, "cpu", &program));
    qb_tensor **results = qb_allocate((size_t)graph->output_count * sizeof *results);
    qb_status status = results ? run_checked(program, inputs, results) : qb_fail_memory();
    for (int32_t i = 0; status == QB_OK && i < graph->output_count; i++)
        qb_tensor_release(results[i]);
    qb_free(results);
    qb_program_release(program);
    return status;
}

static qb_status search_switch(const qb_node *node, qb_tensor *const *operands)
{
    int count = node->attributes[0].count;
    int64_t index = *(const int64_t *)operands[0]->data;
    index = index < 0 ? 0 : index >= count ? count - 1 : index;
    return search_graph(node->attributes[0].graphs[index], operands + 1);
}

/* ---- Loops */

typedef struct iterations {
    qb_loop loop;
    qb_program *body, *condition;
    qb_tensor **inputs; /* of the body, each with a reference; results behind them */
    qb_tensor *const *sequences;
} iterations;

static int input_count(const iterations *it)
{
    return 1 + qb_loop_operands(&it->loop);
}

static void replace(qb_tensor **place, qb_tensor *tensor)
{
    qb_tensor_release(*place);
    *place = tensor;
}

static qb_status set_index(iterations *it, int64_t index)
{
    qb_tensor *number;
    QB_TRY(qb_tensor_create(QB_INT64, 0, NULL, &index, &number));
    replace(&it->inputs[0], number);
    return QB_OK;
}

static qb_status set_slices(iterations *it, int64_t index)
{
    int first = 1 + it->loop.consts + it->loop.carries;
    for (int i = 0; i < it->loop.sequences; i++) {
        const qb_tensor *whole = it->sequences[i];
        const char *row = (const char *)whole->data + (size_t)index * qb_tensor_bytes(whole) / (size_t)whole->shape[0];
        qb_tensor *slice;
        QB_TRY(qb_tensor_create(whole->dtype, whole->rank - 1, whole->shape + 1, row, &slice));
        replace(&it->inputs[first + i], slice);
    }
    return QB_OK;
}

static qb_status test(iterations *it, bool *goes_on)
{
    qb_tensor *flag;
    *goes_on = true;
    if (!it->condition)
        return QB_OK;
    QB_TRY(qb_run(it->condition, it->inputs, &flag));
    *goes_on = *(const bool *)flag->data;
    qb_tensor_release(flag);
    return QB_OK;
}

static qb_status step(iterations *it)
{
    qb_tensor **results = it->inputs + input_count(it);
    QB_TRY(run_checked(it->body, it->inputs, results));
    for (int i = 0; i < it->loop.carries; i++)
        replace(&it->inputs[1 + it->loop.consts + i], results[i]);
    for (int i = it->loop.carries; i < it->loop.body->output_count; i++)
        qb_tensor_release(results[i]);
    return QB_OK;
}

static qb_status repeat(iterations *it, int64_t total)
{
    bool goes_on = true;
    for (int64_t n = 0; goes_on && (total < 0 || n < total); n++) {
        int64_t index = it->loop.reverse ? total - 1 - n : n;
        QB_TRY(set_index(it, index));
        QB_TRY(test(it, &goes_on));
        if (!goes_on)
            break;
        QB_TRY(set_slices(it, index));
        QB_TRY(step(it));
    }
    return QB_OK;
}

static qb_status search_loop(const qb_node *node, qb_tensor *const *operands)
{
    iterations it = {.loop = qb_loop_of(node->attributes, node->operand_count, NULL)};
    int first = node->operand_count - qb_loop_operands(&it.loop), lasting = it.loop.consts + it.loop.carries;
    int64_t total = it.loop.capacity, given = first ? *(const int64_t *)operands[0]->data : total;
    if (first && (total < 0 || given < total))
        total = given > 0 ? given : 0;
    it.sequences = operands + first + lasting;
    it.inputs = qb_allocate_zeroed((size_t)(input_count(&it) + it.loop.body->output_count), sizeof(qb_tensor *));
    qb_status status = it.inputs ? qb_compile(NULL, it.loop.body, "cpu", &it.body) : qb_fail_memory();
    if (status == QB_OK && it.loop.condition)
        status = qb_compile(NULL, it.loop.condition, "cpu", &it.condition);
    for (int i = 0; status == QB_OK && i < lasting; i++)
        it.inputs[1 + i] = qb_tensor_retain(operands[first + i]);
    if (status == QB_OK)
        status = repeat(&it, total);
    for (int i = 0; it.inputs && i < input_count(&it); i++)
        qb_tensor_release(it.inputs[i]);
    qb_free(it.inputs);
    qb_program_release(it.body);
    qb_program_release(it.condition);
    return status;
}

qb_status qb_search_region(const qb_node *node, qb_tensor *const *operands)
{
    if (node->op == &qb_op_loop)
        return search_loop(node, operands);
    if (node->op == &qb_op_switch)
        return search_switch(node, operands);
    return node->op == &qb_op_checkpoint ? search_graph(node->attributes[0].graph, operands) : QB_OK;
}
