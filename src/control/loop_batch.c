/* Batching of loops.
 *
 * A carry is mapped where its first value is or the body makes it so. Where examples differ in how long they run (a
 * mapped condition or count), the loop runs while any example does, and all carries are mapped: an example that is
 * done keeps its carry, and its ys are 0. */
#include "control/control.h"
#include "transforms/transforms.h"

typedef struct batch {
    qb_rule *rule;
    qb_loop loop;
    int first;       /* the first operand of the rule that the body sees */
    bool *mapped;    /* of each input of the body */
    bool *makes;     /* of each output of the body: whether it comes out mapped */
    bool individual; /* examples differ in how long they run */
    bool tests;      /* there is a condition, mapped */
    qb_value count;  /* int64[size]: iterations of each example; QB_NONE: no limit that differs */
    qb_graph *body, *condition;
    qb_value *operands;
} batch;

static int64_t size_of(const batch *b)
{
    return b->rule->batch_size;
}

/* An input of `graph` for input i of the loop's body, with the batch axis in front where it is mapped. */
static qb_status add_input(const batch *b, qb_graph *graph, int i, qb_value *out)
{
    const qb_graph *body = b->loop.body;
    const qb_value_info *info = &body->values[body->inputs[i]];
    if (!b->mapped[i])
        return qb_graph_input(graph, NULL, info->dtype, info->rank, info->shape, out);
    if (info->rank == QB_MAX_RANK)
        return qb_fail(QB_ERROR_VALUE, "vmap: a carry of a loop would have more than %d axes", QB_MAX_RANK);
    int64_t shape[QB_MAX_RANK] = {size_of(b)};
    memcpy(shape + 1, info->shape, (size_t)info->rank * sizeof *shape);
    return qb_graph_input(graph, NULL, info->dtype, info->rank + 1, shape, out);
}

/* bool[size] for an array of one example's shape: repeated over its axes. */
static qb_value spread(qb_graph *graph, qb_value flags, qb_value like)
{
    if (like < 0)
        return like;
    const qb_value_info info = graph->values[like];
    return qb_broadcast(graph, flags, info.rank, info.shape, (int64_t[]){0});
}

/* Inputs i, consts, the extra constants, and carries: shared by the condition and the body. */
static qb_status add_lasting(const batch *b, qb_graph *graph, qb_value *inputs, qb_value *count, qb_value *active)
{
    int64_t shape[] = {size_of(b)};
    *count = *active = QB_NONE;
    for (int i = 0; i <= b->loop.consts; i++)
        QB_TRY(add_input(b, graph, i, &inputs[i]));
    if (b->count != QB_NONE)
        QB_TRY(qb_graph_input(graph, NULL, QB_INT64, 1, shape, count));
    if (b->rule->active != QB_NONE)
        QB_TRY(qb_graph_input(graph, NULL, QB_BOOL, 1, shape, active));
    for (int i = 1 + b->loop.consts; i <= b->loop.consts + b->loop.carries; i++)
        QB_TRY(add_input(b, graph, i, &inputs[i]));
    return QB_OK;
}

/* bool[size]: which examples go on; QB_NONE: all do as long as the loop runs. */
static qb_status who_runs(const batch *b, qb_graph *graph, const qb_value *inputs, qb_value count, qb_value active,
                          qb_value *out)
{
    int64_t shape[] = {size_of(b)};
    *out = active;
    if (b->tests) {
        qb_value test;
        bool is_mapped;
        QB_TRY(qb_vmap_active(b->loop.condition, graph, active, inputs, b->mapped, size_of(b), &test, &is_mapped));
        if (!is_mapped)
            test = qb_broadcast_leading(graph, test, size_of(b));
        *out = *out == QB_NONE ? test : qb_bit_and(graph, *out, test);
    }
    if (count != QB_NONE) {
        qb_value below = qb_less(graph, qb_broadcast_to(graph, inputs[0], 1, shape), count);
        *out = *out == QB_NONE ? below : qb_bit_and(graph, *out, below);
    }
    return qb_graph_take_status(graph);
}

/* Which carries will be mapped, and whether examples differ in how long they run. */
static qb_status find_mapped(batch *b)
{
    const qb_loop *loop = &b->loop;
    QB_TRY(qb_loop_reach(loop, false, b->mapped));
    if (loop->condition && !b->individual)
        QB_TRY(qb_reaches(loop->condition, 0, b->mapped, &b->individual));
    for (int i = 0; b->individual && i < loop->carries; i++)
        b->mapped[1 + loop->consts + i] = true;
    return QB_OK;
}

/* The loop over examples: `running`, a further carry where there is a condition, counts each one's iterations. */
static qb_status make_body(batch *b, qb_scratch *scratch)
{
    const qb_loop *loop = &b->loop;
    const qb_graph *body = loop->body;
    int64_t shape[] = {size_of(b)};
    qb_value *inputs = qb_scratch_values(scratch, body->input_count);
    qb_value *outputs = qb_scratch_values(scratch, body->output_count), count, active, executed = QB_NONE;
    bool *is_mapped = qb_scratch_take(scratch, body->output_count, sizeof *is_mapped);
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_graph_create(&b->body));
    QB_TRY(add_lasting(b, b->body, inputs, &count, &active));
    if (b->tests)
        QB_TRY(qb_graph_input(b->body, NULL, QB_INT64, 1, shape, &executed));
    for (int i = 1 + loop->consts + loop->carries; i < body->input_count; i++)
        QB_TRY(add_input(b, b->body, i, &inputs[i]));
    qb_value runs = QB_NONE;
    if (b->individual)
        QB_TRY(who_runs(b, b->body, inputs, count, active, &runs));
    QB_TRY(qb_vmap_active(body, b->body, b->individual ? runs : active, inputs, b->mapped, size_of(b), outputs,
                          is_mapped));
    for (int i = 0; i < body->output_count; i++) {
        bool carried = i < loop->carries;
        b->makes[i] = carried ? b->mapped[1 + loop->consts + i] : is_mapped[i] || b->individual;
        if (is_mapped[i] && !b->makes[i])
            return qb_fail(QB_ERROR_INTERNAL, "loop: carry %d is mapped against expectation", i);
        if (b->makes[i] && !is_mapped[i])
            outputs[i] = qb_broadcast_leading(b->body, outputs[i], size_of(b));
        if (runs != QB_NONE && outputs[i] >= 0)
            outputs[i] = qb_select(b->body, spread(b->body, runs, outputs[i]), outputs[i],
                                   carried ? inputs[1 + loop->consts + i] : qb_splat_like(b->body, outputs[i], 0));
    }
    if (b->tests)
        executed = qb_add(b->body, executed, qb_convert(b->body, runs, QB_INT64));
    for (int i = 0; i <= body->output_count; i++) {
        if (i == loop->carries && b->tests)
            QB_TRY(executed < 0 ? qb_graph_take_status(b->body) : qb_graph_output(b->body, executed));
        if (i < body->output_count)
            QB_TRY(outputs[i] < 0 ? qb_graph_take_status(b->body) : qb_graph_output(b->body, outputs[i]));
    }
    return qb_graph_take_status(b->body);
}

static qb_status make_condition(batch *b, qb_scratch *scratch)
{
    const qb_loop *loop = &b->loop;
    qb_value *inputs = qb_scratch_values(scratch, loop->body->input_count), count, active, executed, output;
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_graph_create(&b->condition));
    QB_TRY(add_lasting(b, b->condition, inputs, &count, &active));
    if (b->tests) {
        int64_t shape[] = {size_of(b)};
        QB_TRY(qb_graph_input(b->condition, NULL, QB_INT64, 1, shape, &executed));
        QB_TRY(who_runs(b, b->condition, inputs, count, active, &output));
    } else {
        QB_TRY(qb_inline(loop->condition, b->condition, inputs, &output));
        if (active != QB_NONE && size_of(b) > 0)
            output = qb_bit_and(b->condition, output, qb_reduce_max(b->condition, active, 1, (int64_t[]){0}));
    }
    if (size_of(b) == 0)
        output = qb_scalar(b->condition, QB_BOOL, 0);
    else if (b->tests)
        output = qb_reduce_max(b->condition, output, 1, (int64_t[]){0});
    return output < 0 ? qb_graph_take_status(b->condition) : qb_graph_output(b->condition, output);
}

/* The mapped axis of a stacked array, and its axis of iterations, exchanged. */
static qb_value exchange(qb_graph *graph, qb_value value)
{
    int64_t order[QB_MAX_RANK] = {1, 0};
    if (value < 0)
        return value;
    int rank = graph->values[value].rank;
    for (int i = 2; i < rank; i++)
        order[i] = i;
    return qb_permute(graph, value, rank, order);
}

/* Operand i of the loop (as the body counts), with its batch axis where the new loop wants it. */
static qb_value operand(const batch *b, int i)
{
    qb_graph *graph = b->rule->graph;
    qb_value value = b->loop.operands[i - 1];
    bool has_axis = b->rule->mapped[b->first + i - 1];
    if (i > b->loop.consts + b->loop.carries)
        return has_axis ? exchange(graph, value) : value;
    return b->mapped[i] && !has_axis ? qb_broadcast_leading(graph, value, size_of(b)) : value;
}

static void fill_operands(batch *b, qb_loop *out)
{
    qb_rule *r = b->rule;
    const qb_loop *loop = &b->loop;
    int count = 0, carries = 1 + loop->consts, sequences = carries + loop->carries;
    for (int i = 1; i < carries; i++)
        b->operands[count++] = operand(b, i);
    if (b->count != QB_NONE)
        b->operands[count++] = b->count;
    if (r->active != QB_NONE)
        b->operands[count++] = r->active;
    out->consts = count;
    for (int i = carries; i < sequences; i++)
        b->operands[count++] = operand(b, i);
    if (b->tests)
        b->operands[count++] = qb_splat(r->graph, QB_INT64, 1, (int64_t[]){size_of(b)}, 0);
    out->carries = count - out->consts;
    for (int i = sequences; i < loop->body->input_count; i++)
        b->operands[count++] = operand(b, i);
    out->sequences = loop->sequences;
    out->operands = b->operands;
}

/* The number of iterations that covers all examples: the largest count of one that is active. */
static qb_value common_count(const batch *b)
{
    qb_graph *graph = b->rule->graph;
    qb_value count = b->count, active = b->rule->active;
    if (count == QB_NONE)
        return b->loop.count;
    if (size_of(b) == 0)
        return qb_scalar(graph, QB_INT64, 0);
    if (active != QB_NONE)
        count = qb_select(graph, active, count, qb_splat_like(graph, count, 0));
    return qb_reduce_max(graph, count, 1, (int64_t[]){0});
}

static void store_results(const batch *b, const qb_value *results)
{
    qb_rule *r = b->rule;
    int outputs = b->loop.body->output_count, carries = b->loop.carries, further = b->tests ? 1 : 0;
    for (int i = 0; i < outputs; i++) {
        r->result_mapped[i] = b->makes[i];
        r->batched_result[i] = results[i < carries ? i : i + further];
        if (i >= carries && b->makes[i])
            r->batched_result[i] = exchange(r->graph, r->batched_result[i]);
    }
    if (b->loop.condition) {
        r->result_mapped[outputs] = b->tests;
        r->batched_result[outputs] = results[b->tests ? carries : outputs];
    }
}

static qb_status run(batch *b, qb_scratch *scratch)
{
    qb_rule *r = b->rule;
    const qb_loop *loop = &b->loop;
    int inputs = loop->body->input_count;
    b->mapped = qb_scratch_take(scratch, inputs, sizeof *b->mapped);
    b->makes = qb_scratch_take(scratch, loop->body->output_count, sizeof *b->makes);
    b->operands = qb_scratch_values(scratch, inputs + 3);
    qb_value *results = qb_scratch_values(scratch, loop->body->output_count + 2);
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 1; i < inputs; i++)
        b->mapped[i] = r->mapped[b->first + i - 1];
    if (loop->count != QB_NONE && r->mapped[0])
        b->count = loop->count;
    b->individual = b->count != QB_NONE;
    QB_TRY(find_mapped(b));
    b->tests = loop->condition && b->individual;
    QB_TRY(make_body(b, scratch));
    if (loop->condition)
        QB_TRY(make_condition(b, scratch));
    qb_loop out = {.body = b->body, .condition = b->condition, .capacity = loop->capacity, .reverse = loop->reverse};
    out.count = common_count(b);
    fill_operands(b, &out);
    QB_TRY(qb_graph_take_status(r->graph));
    if (qb_loop_emit(r->graph, &out, results))
        store_results(b, results);
    return qb_graph_take_status(r->graph);
}

void qb_loop_batch(qb_rule *r)
{
    batch b = {.rule = r, .loop = qb_loop_of(r->attribute, r->operand_count, r->operand), .count = QB_NONE};
    qb_scratch scratch = {0};
    b.first = r->operand_count - qb_loop_operands(&b.loop);
    qb_status status = run(&b, &scratch);
    qb_graph_release(b.body);
    qb_graph_release(b.condition);
    qb_arena_free(&scratch.arena);
    if (status != QB_OK)
        (void)qb_graph_fail(r->graph, status);
}
