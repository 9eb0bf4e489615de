/* Making and running regions. */
#include "program/region.h"

#include "base/allocate.h"
#include "base/threads.h"
#include "control/control.h"
#include "program/program.h"

#include <time.h>

/* Slots of a loop's body that change between iterations: of a carry, which has one address in even iterations and
 * another in odd ones; of an element of a sequence or of ys, which moves on by so many bytes. */
typedef struct carry_slot {
    char **slot, *address[2];
} carry_slot;

typedef struct moving_slot {
    char **slot;
    int64_t step;
} moving_slot;

/* ---- Making */

/* Makes the workspace larger by so many bytes, which begin at `offset`. */
static qb_status reserve(qb_region *region, int64_t size, int64_t *offset)
{
    *offset = region->workspace_size;
    if (size > QB_MOST_BYTES - region->workspace_size)
        return qb_fail_memory();
    region->workspace_size += qb_whole_lines(size);
    return QB_OK;
}

static qb_status add_program(qb_context *context, qb_region *region, qb_graph *graph)
{
    qb_program **program = &region->programs[region->program_count];
    QB_TRY(qb_program_make(context, graph, program));
    return reserve(region, (*program)->frame_size, &region->frame_offset[region->program_count++]);
}

static int64_t value_bytes(const qb_graph *graph, qb_value value)
{
    return qb_value_size(graph, value) * (int64_t)qb_dtype_size(graph->values[value].dtype);
}

/* Iterations of a loop without carries go to threads where each is worth it. */
static qb_status share_iterations(qb_region *region, const qb_graph *body)
{
    enum { LEAST_FLOPS = 50000 };
    region->thread_count = 1;
    region->thread_size = region->workspace_size;
    if (region->carries > 0 || region->tested || region->capacity < 2 || qb_graph_flops(body) < LEAST_FLOPS)
        return QB_OK;
    region->thread_count = (int32_t)qb_worker_limit(region->capacity);
    for (int i = 1; i < region->thread_count; i++) { /* one workspace behind the other */
        int64_t offset;
        QB_TRY(reserve(region, region->thread_size, &offset));
    }
    return QB_OK;
}

static qb_status make_loop(qb_region *region, const qb_node *node, qb_arena *memory)
{
    qb_loop loop = qb_loop_of(node->attributes, node->operand_count, NULL);
    int ys = qb_loop_ys(&loop), moving = loop.carries + loop.sequences + ys;
    region->capacity = loop.capacity;
    region->reverse = loop.reverse;
    region->counted = node->operand_count > qb_loop_operands(&loop);
    region->tested = loop.condition != NULL;
    region->consts = loop.consts;
    region->carries = loop.carries;
    region->sequences = loop.sequences;
    region->ys = ys;
    region->bytes = qb_arena_allocate(memory, (size_t)(moving + 1) * sizeof(int64_t));
    region->buffer_offset = qb_arena_allocate(memory, (size_t)(loop.carries + 1) * sizeof(int64_t));
    if (!region->bytes || !region->buffer_offset)
        return qb_fail_memory();
    for (int i = 0; i < loop.carries + loop.sequences; i++)
        region->bytes[i] = value_bytes(loop.body, loop.body->inputs[1 + loop.consts + i]);
    for (int i = 0; i < ys; i++)
        region->bytes[loop.carries + loop.sequences + i] = value_bytes(loop.body, loop.body->outputs[loop.carries + i]);
    for (int i = 0; i < loop.carries; i++)
        QB_TRY(reserve(region, region->bytes[i], &region->buffer_offset[i]));
    int64_t entries = loop.body->input_count + loop.body->output_count + loop.carries;
    const qb_program *body = region->programs[0];
    int64_t slots = body->moving_input_count + body->moving_output_count;
    entries = entries * (int64_t)sizeof(char *) + slots * (int64_t)(sizeof(carry_slot) + sizeof(moving_slot));
    QB_TRY(reserve(region, entries, &region->table_offset));
    return share_iterations(region, loop.body);
}

static qb_status make_programs(qb_context *context, qb_region *region, const qb_node *node)
{
    const qb_attribute *attribute = node->attributes;
    if (node->op == &qb_op_switch) { /* one frame for all: only one runs */
        int64_t most = 0;
        for (int i = 0; i < attribute[0].count; i++) {
            region->workspace_size = 0;
            QB_TRY(add_program(context, region, attribute[0].graphs[i]));
            most = region->workspace_size > most ? region->workspace_size : most;
        }
        region->workspace_size = most;
        return QB_OK;
    }
    QB_TRY(add_program(context, region, attribute[0].graph));
    if (node->op == &qb_op_loop && attribute[1].graph)
        QB_TRY(add_program(context, region, attribute[1].graph));
    return QB_OK;
}

qb_status qb_region_make(qb_context *context, const qb_node *node, qb_arena *memory, qb_region **out)
{
    if (node->op != &qb_op_loop && node->op != &qb_op_switch && node->op != &qb_op_checkpoint)
        return qb_fail(QB_ERROR_INTERNAL, "%s was left in a program", node->op->name);
    int most = node->op == &qb_op_switch ? node->attributes[0].count : 2;
    qb_region *region = qb_arena_allocate(memory, sizeof *region);
    qb_program **programs = qb_arena_allocate(memory, (size_t)most * sizeof(qb_program *));
    int64_t *offsets = qb_arena_allocate(memory, (size_t)most * sizeof(int64_t));
    if (!region || !programs || !offsets)
        return qb_fail_memory();
    *region = (qb_region){.op = node->op,
                          .operand_count = node->operand_count,
                          .result_count = node->result_count,
                          .programs = programs,
                          .frame_offset = offsets};
    *out = region;
    QB_TRY(make_programs(context, region, node));
    return node->op == &qb_op_loop ? make_loop(region, node, memory) : QB_OK;
}

void qb_regions_release(qb_region *regions)
{
    for (qb_region *region = regions; region; region = region->next)
        for (int32_t i = 0; i < region->program_count; i++)
            qb_program_release(region->programs[i]);
}

/* ---- Going on */

static int64_t nanoseconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Reads the clock after as many iterations as took some milliseconds, and asks the host every fiftieth of a second. */
static qb_status ask(qb_run_state *state)
{
    enum { SHORT = 2000000, LONG = 20000000 };
    if (state->failure && atomic_load_explicit(state->failure, memory_order_relaxed) != QB_OK)
        return QB_ERROR_INTERRUPTED;
    int64_t now = nanoseconds(), passed = now - state->last;
    if (passed < SHORT && state->stride < 1 << 20)
        state->stride *= 2;
    else if (passed > LONG && state->stride > 1)
        state->stride /= 2;
    state->patience = state->stride;
    if (passed < LONG)
        return QB_OK;
    state->last = now;
    return qb_context_poll(state->context);
}

static inline qb_status go_on(qb_run_state *state)
{
    return --state->patience > 0 ? QB_OK : ask(state);
}

/* ---- Running */

static qb_status run_once(const qb_region *region, int which, char *workspace, void **operands, void **results,
                          qb_run_state *state)
{
    qb_program *program = region->programs[which];
    qb_frame *frame = qb_frame_set_up(program, workspace + region->frame_offset[which]);
    return qb_frame_run(program, frame, (char *const *)operands, (char *const *)results, state);
}

typedef struct running {
    const qb_region *region;
    qb_run_state *state;
    qb_frame *body, *condition;
    char **inputs;  /* of the body (and the condition): i, consts, carries, sequences */
    char **outputs; /* carries, ys */
    char **other;   /* of each carry: the buffer that is free */
    carry_slot *carry_slots;
    moving_slot *moving_slots;
    int carry_count, moving_count;
    void **operands, **results;
    int64_t index, limit, executed;
} running;

static int64_t limit_of(const qb_region *region, void *const *operands)
{
    if (!region->counted)
        return region->capacity < 0 ? INT64_MAX : region->capacity;
    int64_t count = *(const int64_t *)operands[0];
    if (count < 0)
        return 0;
    return region->capacity >= 0 && count > region->capacity ? region->capacity : count;
}

static void begin(running *l, char *workspace)
{
    const qb_region *region = l->region;
    int body_inputs = 1 + region->consts + region->carries + region->sequences;
    void *const *operands = l->operands + region->counted;
    l->inputs = (char **)(void *)(workspace + region->table_offset);
    l->outputs = l->inputs + body_inputs;
    l->other = l->outputs + region->carries + region->ys;
    const qb_program *body = region->programs[0];
    l->carry_slots = (carry_slot *)(void *)(l->other + region->carries);
    l->moving_slots = (moving_slot *)(void *)(l->carry_slots + body->moving_input_count + body->moving_output_count);
    l->body = qb_frame_set_up(region->programs[0], workspace + region->frame_offset[0]);
    if (region->tested)
        l->condition = qb_frame_set_up(region->programs[1], workspace + region->frame_offset[1]);
    l->limit = limit_of(region, l->operands);
    l->inputs[0] = (char *)&l->index;
    for (int i = 0; i < body_inputs - 1; i++)
        l->inputs[1 + i] = operands[i];
    bool last_in_second = !region->tested && l->limit % 2 == 0; /* so that the last iteration writes the results */
    for (int i = 0; i < region->carries; i++) {
        char *result = l->results[i], *second = workspace + region->buffer_offset[i];
        l->outputs[i] = last_in_second ? second : result;
        l->other[i] = last_in_second ? result : second;
    }
}

/* Moves on to the elements of iteration `index`. */
static void address_elements(running *l)
{
    const qb_region *region = l->region;
    void *const *operands = l->operands + region->counted + region->consts + region->carries;
    char **inputs = l->inputs + 1 + region->consts + region->carries;
    const int64_t *bytes = region->bytes + region->carries;
    for (int i = 0; i < region->sequences; i++)
        inputs[i] = (char *)operands[i] + l->index * bytes[i];
    for (int i = 0; i < region->ys; i++)
        l->outputs[region->carries + i] =
            (char *)l->results[region->carries + i] + l->index * bytes[region->sequences + i];
}

static void exchange_carries(running *l)
{
    char **carries = l->inputs + 1 + l->region->consts;
    for (int i = 0; i < l->region->carries; i++) {
        carries[i] = l->outputs[i];
        l->outputs[i] = l->other[i];
        l->other[i] = carries[i];
    }
}

static qb_status test(running *l, bool *goes_on)
{
    unsigned char answer = 0;
    char *output = (char *)&answer;
    QB_TRY(qb_frame_run(l->region->programs[1], l->condition, l->inputs, &output, l->state));
    *goes_on = answer != 0;
    return QB_OK;
}

static qb_status iterate(running *l)
{
    const qb_region *region = l->region;
    bool moves = region->sequences + region->ys > 0, goes_on = true;
    for (l->executed = 0; l->executed < l->limit; l->executed++) {
        l->index = region->reverse ? l->limit - 1 - l->executed : l->executed;
        if (region->tested)
            QB_TRY(test(l, &goes_on));
        if (!goes_on)
            return QB_OK;
        if (moves)
            address_elements(l);
        QB_TRY(qb_frame_run(region->programs[0], l->body, l->inputs, l->outputs, l->state));
        exchange_carries(l);
        QB_TRY(go_on(l->state));
    }
    return QB_OK;
}

/* ---- In place: where steps of the body write all that it gives, and nothing is tested, the slots of its frame are set
 * once, and then only those that change from one iteration to the next */

static bool runs_in_place(const qb_region *region)
{
    return !region->tested && region->programs[0]->copy_count == 0;
}

static void add_carry_slot(running *l, char **slot, char *even, char *odd)
{
    l->carry_slots[l->carry_count++] = (carry_slot){slot, {even, odd}};
}

static void add_moving_slot(running *l, char **slot, int64_t step)
{
    l->moving_slots[l->moving_count++] = (moving_slot){slot, l->region->reverse ? -step : step};
}

/* For the first iteration. An input or output may have several slots; the index has its address for good. */
static void set_slots(running *l)
{
    const qb_region *region = l->region;
    const qb_program *body = region->programs[0];
    char **slots = qb_frame_slots(l->body);
    int fixed = 1 + region->consts, carries = region->carries;
    for (int32_t i = 0; i < body->moving_input_count; i++) {
        char **slot = slots + body->moving_inputs[i].slot;
        int32_t input = body->moving_inputs[i].index, at = input - fixed;
        *slot = l->inputs[input];
        if (at >= carries)
            add_moving_slot(l, slot, region->bytes[at]);
        else if (at >= 0)
            add_carry_slot(l, slot, l->other[at], l->outputs[at]);
    }
    for (int32_t i = 0; i < body->moving_output_count; i++) {
        char **slot = slots + body->moving_outputs[i].slot;
        int32_t output = body->moving_outputs[i].index;
        *slot = l->outputs[output];
        if (output >= carries)
            add_moving_slot(l, slot, region->bytes[region->sequences + output]);
        else
            add_carry_slot(l, slot, l->outputs[output], l->other[output]);
    }
}

static qb_status iterate_in_place(running *l)
{
    const qb_region *region = l->region;
    if (l->limit == 0)
        return QB_OK;
    l->index = region->reverse ? l->limit - 1 : 0;
    address_elements(l);
    set_slots(l);
    for (l->executed = 0;;) {
        QB_TRY(qb_frame_step(region->programs[0], l->body, l->state));
        if (++l->executed == l->limit)
            break;
        QB_TRY(go_on(l->state));
        for (int i = 0; i < l->carry_count; i++)
            *l->carry_slots[i].slot = l->carry_slots[i].address[l->executed % 2];
        for (int i = 0; i < l->moving_count; i++)
            *l->moving_slots[i].slot += l->moving_slots[i].step;
        l->index += region->reverse ? -1 : 1;
    }
    for (int i = 0; i < region->carries; i++)
        l->inputs[1 + region->consts + i] = l->limit % 2 ? l->outputs[i] : l->other[i];
    return QB_OK;
}

/* Carries to their results where they are not there already; zeros for what did not happen; the number of
 * iterations. */
static void finish(const running *l)
{
    const qb_region *region = l->region;
    for (int i = 0; i < region->carries; i++) {
        const char *carry = l->inputs[1 + region->consts + i];
        if (carry != l->results[i])
            memcpy(l->results[i], carry, (size_t)region->bytes[i]);
    }
    for (int i = 0; i < region->ys; i++) {
        int64_t bytes = region->bytes[region->carries + region->sequences + i];
        memset((char *)l->results[region->carries + i] + l->executed * bytes, 0,
               (size_t)((region->capacity - l->executed) * bytes));
    }
    if (region->tested)
        *(int64_t *)l->results[region->carries + region->ys] = l->executed;
}

typedef struct shared_loop {
    const qb_region *region;
    char *workspace;
    void **operands, **results;
    qb_run_state *state; /* of the thread that called */
    running running[QB_MOST_THREADS];
    qb_run_state states[QB_MOST_THREADS];
    bool begun[QB_MOST_THREADS];
    _Atomic int failure;
} shared_loop;

static void run_iteration(void *data, int64_t index, int worker)
{
    shared_loop *s = data;
    running *l = &s->running[worker];
    if (atomic_load_explicit(&s->failure, memory_order_relaxed) != QB_OK)
        return;
    if (!s->begun[worker]) {
        s->states[worker] = (qb_run_state){.context = s->state->context, .patience = 1, .stride = 1};
        s->states[worker].failure = &s->failure;
        *l = (running){.region = s->region,
                       .state = worker == 0 ? s->state : &s->states[worker],
                       .operands = s->operands,
                       .results = s->results};
        begin(l, s->workspace + worker * s->region->thread_size);
        s->begun[worker] = true;
    }
    l->index = index;
    address_elements(l);
    qb_status status = qb_frame_run(s->region->programs[0], l->body, l->inputs, l->outputs, l->state);
    if (status == QB_OK)
        status = go_on(l->state);
    int none = QB_OK;
    if (status != QB_OK)
        (void)atomic_compare_exchange_strong(&s->failure, &none, status);
}

static qb_status run_shared(const qb_region *region, char *workspace, void **operands, void **results,
                            qb_run_state *state)
{
    shared_loop s = {
        .region = region, .workspace = workspace, .operands = operands, .results = results, .state = state};
    int64_t limit = limit_of(region, operands);
    atomic_init(&s.failure, QB_OK);
    qb_parallel(limit, run_iteration, &s);
    qb_status status = (qb_status)atomic_load(&s.failure);
    if (status == QB_OK)
        finish(&(running){.region = region, .results = results, .executed = limit, .inputs = NULL});
    return status;
}

static qb_status run_loop(const qb_region *region, char *workspace, void **operands, void **results,
                          qb_run_state *state)
{
    if (region->thread_count > 1)
        return run_shared(region, workspace, operands, results, state);
    running l = {.region = region, .state = state, .operands = operands, .results = results};
    begin(&l, workspace);
    QB_TRY(runs_in_place(region) ? iterate_in_place(&l) : iterate(&l));
    finish(&l);
    return QB_OK;
}

qb_status qb_region_run(const qb_region *region, char *const *slots, void **addresses, qb_run_state *state)
{
    void **results = addresses + region->operand_count;
    char *workspace = slots[region->slot[region->operand_count + region->result_count]];
    for (int i = 0; i < region->operand_count; i++)
        addresses[i] = slots[region->slot[i]] + region->operand_offset[i];
    for (int i = 0; i < region->result_count; i++)
        results[i] = slots[region->slot[region->operand_count + i]];
    if (region->op == &qb_op_loop)
        return run_loop(region, workspace, addresses, results, state);
    if (region->op == &qb_op_checkpoint)
        return run_once(region, 0, workspace, addresses, results, state);
    int64_t index = *(const int64_t *)addresses[0];
    index = index < 0 ? 0 : index >= region->program_count ? region->program_count - 1 : index;
    return run_once(region, (int)index, workspace, addresses + 1, results, state);
}
