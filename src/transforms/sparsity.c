/* The sparsity pattern of a Jacobian, by propagation: each element of each value is given the set of input elements
 * that it can depend on (Curtis, Powell and Reid, "On the Estimation of Sparse Jacobian Matrices", 1974, is where such
 * patterns are used; index_sets.h is what makes them cheap). The Hessian's pattern is that of the gradient's Jacobian.
 *
 * Invariant: a set may be too large, never too small. Where an operation is not known here, each element of its
 * result depends on all that its operands depend on. What does not depend on any input is computed on the way
 * (`known`): indices that constants give, and the zeros of constant factors and conditions, make sets smaller. */
#include "transforms/sparsity.h"

#include "base/allocate.h"
#include "ops/build.h"
#include "transforms/index_sets.h"

typedef struct walk {
    const qb_graph *graph;
    qb_arena memory;     /* everything below */
    int32_t **sets;      /* per value: the set of each element; NULL: all are empty */
    const void **known;  /* per value: the elements, where they are the same for all inputs; NULL where not */
    const int32_t *none; /* empty sets, as many as the largest value has elements */
    qb_index_sets *pool;
} walk;

static bool is_floating(const walk *w, qb_value value)
{
    return qb_dtype_is_floating(w->graph->values[value].dtype);
}

static const int32_t *sets_of(const walk *w, qb_value value)
{
    return w->sets[value] ? w->sets[value] : w->none;
}

static void *array(walk *w, qb_value value, size_t element)
{
    return qb_arena_allocate(&w->memory, (size_t)qb_value_size(w->graph, value) * element + 1);
}

static void row_major_strides(int rank, const int64_t *shape, int64_t *stride)
{
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= shape[i];
    }
}

/* ---- Operations that move elements, run on elements of any kind: numbers, or sets */

/* Where a view reads its operand: the offset, and a stride for each axis of the result. False for a reshape. */
static bool view_strides(const walk *w, const qb_node *node, int64_t *offset, int64_t *stride)
{
    const qb_value_info *from = &w->graph->values[qb_operand(w->graph, node, 0)], *to = &w->graph->values[node->result];
    int64_t own[QB_MAX_RANK];
    const qb_attribute *attribute = node->attributes;
    row_major_strides(from->rank, from->shape, own);
    *offset = 0;
    for (int i = 0; i < to->rank; i++)
        stride[i] = 0;
    if (node->op == &qb_op_reshape)
        return false;
    for (int i = 0; i < from->rank; i++) {
        if (node->op == &qb_op_broadcast)
            stride[attribute[1].integers[i]] = from->shape[i] == 1 ? 0 : own[i];
        else if (node->op == &qb_op_slice) {
            stride[i] = own[i] * attribute[2].integers[i];
            *offset += own[i] * attribute[0].integers[i];
        } else
            stride[i] = node->op == &qb_op_permute ? own[attribute[0].integers[i]] : own[i];
    }
    for (int i = 0; node->op == &qb_op_reverse && i < attribute[0].count; i++) {
        int axis = (int)attribute[0].integers[i];
        *offset += own[axis] * (from->shape[axis] - 1);
        stride[axis] = -own[axis];
    }
    return true;
}

static void copy_strided(int rank, const int64_t *shape, const int64_t *stride, size_t size, const char *from,
                         char **to)
{
    if (rank == 0) {
        memcpy(*to, from, size);
        *to += size;
        return;
    }
    for (int64_t k = 0; k < shape[0]; k++)
        copy_strided(rank - 1, shape + 1, stride + 1, size, from + k * stride[0] * (int64_t)size, to);
}

static void run_view(const walk *w, const qb_node *node, size_t size, const void *from, void *to)
{
    const qb_value_info *info = &w->graph->values[node->result];
    int64_t offset, stride[QB_MAX_RANK];
    char *place = to;
    if (qb_value_size(w->graph, node->result) == 0)
        return;
    if (view_strides(w, node, &offset, stride))
        copy_strided(info->rank, info->shape, stride, size, (const char *)from + offset * (int64_t)size, &place);
    else
        memcpy(to, from, (size_t)qb_value_size(w->graph, node->result) * size);
}

/* The kernel of the op; `as`: the dtype of the floating operands and the result, which are then sets. */
static bool run_kernel(walk *w, const qb_node *node, const qb_dtype *as, const void *const *operands, void *result)
{
    void *results[2] = {result};
    qb_type *types = qb_arena_allocate(&w->memory, (size_t)(node->operand_count + 1) * sizeof *types), *out;
    if (!types)
        return false;
    for (int i = 0; i < node->operand_count; i++) {
        qb_value_type(w->graph, qb_operand(w->graph, node, i), &types[i]);
        if (as && qb_dtype_is_floating(types[i].dtype))
            types[i].dtype = *as;
    }
    out = &types[node->operand_count];
    qb_value_type(w->graph, node->result, out);
    if (as)
        out->dtype = *as;
    if (node->op->workspace) {
        results[1] = qb_arena_allocate(&w->memory, (size_t)node->op->workspace(node->attributes, types));
        if (!results[1])
            return false;
    }
    node->op->cpu(node->attributes, node->operand_count, types, operands, out, results);
    return true;
}

/* ---- What no input changes */

static bool run_lanes(const walk *w, const qb_node *node, const void *const *operands, void *result)
{
    qb_dtype dtype = w->graph->values[qb_operand(w->graph, node, node->operand_count - 1)].dtype;
    qb_lane_kernel kernel = qb_lane_lookup(node->op->lane, dtype, w->graph->values[node->result].dtype);
    if (!kernel)
        return false;
    kernel((size_t)qb_value_size(w->graph, node->result), result, operands[0], operands[node->operand_count > 1],
           operands[node->operand_count > 2 ? 2 : 0]);
    return true;
}

/* Leaves `known` unset where there is no plain way to compute the node. */
static qb_status compute(walk *w, const qb_node *node)
{
    if (node->op == &qb_op_constant) {
        w->known[node->result] = node->attributes[0].tensor->data;
        return QB_OK;
    }
    bool lanes = (node->op->flags & QB_OP_ELEMENTWISE) && node->op->lane != QB_LANE_NONE;
    if ((node->op->flags & (QB_OP_UNIQUE | QB_OP_EFFECT)) || node->result_count != 1 ||
        !(lanes || (node->op->flags & QB_OP_VIEW) || node->op->cpu))
        return QB_OK;
    const void **operands = qb_arena_allocate(&w->memory, (size_t)(node->operand_count + 1) * sizeof *operands);
    if (!operands)
        return qb_fail_memory();
    for (int i = 0; i < node->operand_count; i++)
        if (!(operands[i] = w->known[qb_operand(w->graph, node, i)]))
            return QB_OK;
    size_t size = qb_dtype_size(w->graph->values[node->result].dtype);
    void *result = array(w, node->result, size);
    bool done = result != NULL;
    if (done && lanes)
        done = run_lanes(w, node, operands, result);
    else if (done && (node->op->flags & QB_OP_VIEW))
        run_view(w, node, size, operands[0], result);
    else if (done && !run_kernel(w, node, NULL, operands, result))
        return qb_fail_memory();
    w->known[node->result] = done ? result : NULL;
    return result ? QB_OK : qb_fail_memory();
}

static bool known_zero(const walk *w, qb_value value, int64_t element)
{
    const void *known = w->known[value];
    qb_dtype dtype = w->graph->values[value].dtype;
    return known && qb_dtype_load(dtype, (const char *)known + (size_t)element * qb_dtype_size(dtype)) == 0;
}

/* ---- Rules: the sets of the result, from those of the operands */

static void elementwise(walk *w, const qb_node *node, int32_t *out)
{
    const qb_graph *g = w->graph;
    int64_t count = qb_value_size(g, node->result);
    bool choice = node->op == &qb_op_select && w->known[qb_operand(g, node, 0)];
    for (int i = 0; i < node->operand_count; i++) {
        qb_value operand = qb_operand(g, node, i);
        const int32_t *in = w->sets[operand];
        qb_value factor = node->op->flags & QB_OP_BILINEAR ? qb_operand(g, node, 1 - i) : QB_NONE;
        for (int64_t k = 0; in && k < count; k++) {
            if (factor != QB_NONE && known_zero(w, factor, k))
                continue;
            if (choice && known_zero(w, qb_operand(g, node, 0), k) != (i == 2))
                continue;
            out[k] = qb_index_sets_unite(w->pool, out[k], in[k]);
        }
    }
}

/* Every element of the result depends on everything. */
static void everything(walk *w, const qb_node *node, int32_t *out)
{
    int32_t all = QB_SET_EMPTY;
    for (int i = 0; i < node->operand_count; i++) {
        qb_value operand = qb_operand(w->graph, node, i);
        if (w->sets[operand]) {
            int32_t own = qb_index_sets_unite_all(w->pool, qb_value_size(w->graph, operand), w->sets[operand], 1);
            all = qb_index_sets_unite(w->pool, all, own);
        }
    }
    for (int64_t k = qb_value_size(w->graph, node->result) - 1; k >= 0; k--)
        out[k] = all;
}

/* Indices, which are not floating, must be known. */
static bool can_move(const walk *w, const qb_node *node)
{
    for (int i = 0; i < node->operand_count; i++) {
        qb_value operand = qb_operand(w->graph, node, i);
        if (!is_floating(w, operand) && !w->known[operand])
            return false;
    }
    return true;
}

static qb_status move(walk *w, const qb_node *node, int32_t *out)
{
    const qb_dtype as = QB_INT32; /* sets */
    const void **operands = qb_arena_allocate(&w->memory, (size_t)node->operand_count * sizeof *operands);
    if (!operands)
        return qb_fail_memory();
    for (int i = 0; i < node->operand_count; i++) {
        qb_value operand = qb_operand(w->graph, node, i);
        operands[i] = is_floating(w, operand) ? (const void *)sets_of(w, operand) : w->known[operand];
    }
    if (node->op->flags & QB_OP_VIEW)
        run_view(w, node, sizeof *out, operands[0], out);
    else if (!run_kernel(w, node, &as, operands, out))
        return qb_fail_memory();
    return QB_OK;
}

/* The array and, where they are written, the updates. Where an update goes is what gather reads there: the places of
 * the array, counted from 1. */
static qb_status scatter(walk *w, const qb_node *node, int32_t *out)
{
    qb_value whole = qb_operand(w->graph, node, 0), updates = qb_operand(w->graph, node, 1);
    int64_t size = qb_value_size(w->graph, whole), count = qb_value_size(w->graph, updates);
    int64_t *places = array(w, whole, sizeof *places), *targets = array(w, updates, sizeof *targets);
    qb_type *types = qb_arena_allocate(&w->memory, (size_t)(node->operand_count + 1) * sizeof *types);
    const void **operands = qb_arena_allocate(&w->memory, (size_t)node->operand_count * sizeof *operands);
    if (!places || !targets || !types || !operands)
        return qb_fail_memory();
    for (int64_t k = 0; k < size; k++)
        places[k] = k + 1;
    qb_value_type(w->graph, whole, &types[0]);
    qb_value_type(w->graph, updates, &types[node->operand_count]);
    types[0].dtype = types[node->operand_count].dtype = QB_INT64;
    operands[0] = places;
    for (int i = 2; i < node->operand_count; i++) {
        qb_value_type(w->graph, qb_operand(w->graph, node, i), &types[i - 1]);
        operands[i - 1] = w->known[qb_operand(w->graph, node, i)];
    }
    qb_gather_run(node->attributes, node->operand_count - 1, types, operands, &types[node->operand_count],
                  (void *const[]){targets});
    memcpy(out, sets_of(w, whole), (size_t)size * sizeof *out);
    const int32_t *in = sets_of(w, updates);
    for (int64_t k = 0; k < count; k++)
        if (targets[k] > 0)
            out[targets[k] - 1] = qb_index_sets_unite(w->pool, out[targets[k] - 1], in[k]);
    return QB_OK;
}

static qb_status reduce(walk *w, const qb_node *node, int32_t *out)
{
    qb_value operand = qb_operand(w->graph, node, 0);
    const qb_value_info *from = &w->graph->values[operand];
    const qb_attribute *axes = &node->attributes[0];
    bool reduced[QB_MAX_RANK] = {false};
    int64_t stride[QB_MAX_RANK], shape[QB_MAX_RANK], order[QB_MAX_RANK], terms = 1;
    for (int i = 0; i < axes->count; i++) {
        reduced[axes->integers[i]] = true;
        terms *= from->shape[axes->integers[i]];
    }
    int64_t own[QB_MAX_RANK];
    row_major_strides(from->rank, from->shape, own);
    for (int i = 0, kept = 0, gone = from->rank - axes->count; i < from->rank; i++)
        order[reduced[i] ? gone++ : kept++] = i;
    for (int i = 0; i < from->rank; i++) { /* the axes that go are made the last */
        stride[i] = own[order[i]];
        shape[i] = from->shape[order[i]];
    }
    int32_t *lined_up = array(w, operand, sizeof *lined_up);
    if (!lined_up)
        return qb_fail_memory();
    char *place = (char *)lined_up;
    if (qb_value_size(w->graph, operand) > 0)
        copy_strided(from->rank, shape, stride, sizeof *lined_up, (const char *)sets_of(w, operand), &place);
    for (int64_t k = qb_value_size(w->graph, node->result) - 1; k >= 0; k--)
        out[k] = qb_index_sets_unite_all(w->pool, terms, lined_up + k * terms, 1);
    return QB_OK;
}

/* What reads along an axis: everything before the place (recurrence), or all of the axis (sort). */
static void along(walk *w, const qb_node *node, bool running, bool reverse, int32_t *out)
{
    const qb_value_info *info = &w->graph->values[node->result];
    int axis = (int)node->attributes[0].integer;
    int64_t outer = 1, inner = 1, n = info->shape[axis];
    for (int i = 0; i < info->rank; i++) {
        outer *= i < axis ? info->shape[i] : 1;
        inner *= i > axis ? info->shape[i] : 1;
    }
    for (int64_t line = 0; line < outer * inner; line++) {
        int64_t first = line / inner * n * inner + line % inner;
        int32_t all = QB_SET_EMPTY;
        for (int64_t k = 0; k < n; k++) {
            int64_t place = first + (reverse ? n - 1 - k : k) * inner;
            for (int i = 0; i < node->operand_count; i++)
                all = qb_index_sets_unite(w->pool, all, sets_of(w, qb_operand(w->graph, node, i))[place]);
            out[place] = all;
        }
        for (int64_t k = 0; !running && k < n; k++)
            out[first + k * inner] = all;
    }
}

/* One operand of a product, its axes in the order batch, free, contracted: the sets of its elements, and the places of
 * those elements in the operand. */
typedef struct factor {
    qb_value value;
    int64_t batch, free, contract; /* numbers of elements */
    int64_t *place;
    int32_t *line; /* per (batch, free): the union over the contracted axes */
} factor;

static qb_status line_up(walk *w, const qb_node *node, int which, factor *f)
{
    const qb_value_info *info = &w->graph->values[f->value];
    const qb_attribute *contract = &node->attributes[which], *batch = &node->attributes[2 + which];
    int64_t own[QB_MAX_RANK], stride[QB_MAX_RANK], shape[QB_MAX_RANK];
    bool used[QB_MAX_RANK] = {false};
    int count = 0;
    int order[QB_MAX_RANK];
    f->batch = f->free = f->contract = 1;
    for (int i = 0; i < batch->count; i++) {
        order[count++] = (int)batch->integers[i];
        used[batch->integers[i]] = true;
        f->batch *= info->shape[batch->integers[i]];
    }
    for (int i = 0; i < contract->count; i++)
        used[contract->integers[i]] = true;
    for (int i = 0; i < info->rank; i++)
        if (!used[i]) {
            order[count++] = i;
            f->free *= info->shape[i];
        }
    for (int i = 0; i < contract->count; i++) {
        order[count++] = (int)contract->integers[i];
        f->contract *= info->shape[contract->integers[i]];
    }
    row_major_strides(info->rank, info->shape, own);
    for (int i = 0; i < info->rank; i++) {
        stride[i] = own[order[i]];
        shape[i] = info->shape[order[i]];
    }
    int64_t size = f->batch * f->free * f->contract, *numbers = array(w, f->value, sizeof *numbers);
    f->place = array(w, f->value, sizeof *f->place);
    f->line = qb_arena_allocate(&w->memory, (size_t)(f->batch * f->free) * sizeof *f->line + 1);
    int32_t *sets = array(w, f->value, sizeof *sets);
    if (!numbers || !f->place || !f->line || !sets)
        return qb_fail_memory();
    for (int64_t k = 0; k < size; k++)
        numbers[k] = k;
    char *to = (char *)f->place;
    if (size > 0)
        copy_strided(info->rank, shape, stride, sizeof *numbers, (const char *)numbers, &to);
    for (int64_t k = 0; k < size; k++)
        sets[k] = sets_of(w, f->value)[f->place[k]];
    for (int64_t k = 0; k < f->batch * f->free; k++)
        f->line[k] = qb_index_sets_unite_all(w->pool, f->contract, sets + k * f->contract, 1);
    return QB_OK;
}

/* The set that line i of a contributes to its product with line j of b, of which the elements may be known. */
static int32_t contribution(walk *w, const factor *a, int64_t i, const factor *b, int64_t j)
{
    if (!w->known[b->value] || a->line[i] == QB_SET_EMPTY)
        return a->line[i];
    int32_t set = QB_SET_EMPTY;
    for (int64_t k = 0; k < a->contract; k++)
        if (!known_zero(w, b->value, b->place[j * b->contract + k]))
            set = qb_index_sets_unite(w->pool, set, sets_of(w, a->value)[a->place[i * a->contract + k]]);
    return set;
}

static qb_status product(walk *w, const qb_node *node, int32_t *out)
{
    factor a = {.value = qb_operand(w->graph, node, 0)}, b = {.value = qb_operand(w->graph, node, 1)};
    QB_TRY(line_up(w, node, 0, &a));
    QB_TRY(line_up(w, node, 1, &b));
    for (int64_t batch = 0; batch < a.batch; batch++)
        for (int64_t i = batch * a.free; i < (batch + 1) * a.free; i++)
            for (int64_t j = batch * b.free; j < (batch + 1) * b.free; j++)
                *out++ = qb_index_sets_unite(w->pool, contribution(w, &a, i, &b, j), contribution(w, &b, j, &a, i));
    return QB_OK;
}

static bool is_accumulating_scatter(const qb_op *op)
{
    return op == &qb_op_scatter_add || op == &qb_op_scatter_mul || op == &qb_op_scatter_max || op == &qb_op_scatter_min;
}

static qb_status propagate(walk *w, const qb_node *node, int32_t *out)
{
    const qb_op *op = node->op;
    if (op->flags & QB_OP_ELEMENTWISE)
        elementwise(w, node, out);
    else if ((op->flags & (QB_OP_VIEW | QB_OP_MOVES)) && can_move(w, node))
        return move(w, node, out);
    else if (is_accumulating_scatter(op) && can_move(w, node))
        return scatter(w, node, out);
    else if (op->flags & QB_OP_REDUCES)
        return reduce(w, node, out);
    else if (op == &qb_op_dot)
        return product(w, node, out);
    else if (op == &qb_op_recurrence)
        along(w, node, true, node->attributes[1].integer != 0, out);
    else if (op == &qb_op_sort)
        along(w, node, false, false, out);
    else
        everything(w, node, out);
    return QB_OK;
}

static qb_status visit(walk *w, const qb_node *node)
{
    bool any = false;
    for (int i = 0; i < node->operand_count; i++)
        any = any || w->sets[qb_operand(w->graph, node, i)];
    if (!any)
        return compute(w, node);
    if (node->op->flags & QB_OP_FLAT)
        return QB_OK;
    for (int i = 0; i < node->result_count; i++) {
        qb_value result = node->result + i;
        if (!is_floating(w, result))
            continue;
        int32_t *out = array(w, result, sizeof *out);
        if (!out)
            return qb_fail_memory();
        memset(out, 0, (size_t)qb_value_size(w->graph, result) * sizeof *out);
        qb_node single = *node;
        single.result = result;
        if (node->result_count == 1)
            QB_TRY(propagate(w, node, out));
        else
            everything(w, &single, out);
        w->sets[result] = out;
    }
    return qb_index_sets_status(w->pool);
}

/* ---- The walk */

static qb_status begin(walk *w, const qb_graph *graph, int input)
{
    qb_value value = graph->inputs[input];
    int64_t size = qb_value_size(graph, value), largest = 1;
    for (qb_value v = 0; v < graph->value_count; v++)
        largest = qb_value_size(graph, v) > largest ? qb_value_size(graph, v) : largest;
    if (size >= INT32_MAX || largest >= INT32_MAX)
        return qb_fail(QB_ERROR_VALUE, "sparse derivatives are of arrays with fewer than 2^31 elements");
    w->graph = graph;
    w->pool = qb_index_sets_create(size);
    w->sets = qb_arena_allocate(&w->memory, (size_t)graph->value_count * sizeof *w->sets);
    w->known = qb_arena_allocate(&w->memory, (size_t)graph->value_count * sizeof *w->known);
    int32_t *none = qb_arena_allocate(&w->memory, (size_t)largest * sizeof *none);
    if (!w->pool || !w->sets || !w->known || !none)
        return qb_fail_memory();
    memset(w->sets, 0, (size_t)graph->value_count * sizeof *w->sets);
    memset(w->known, 0, (size_t)graph->value_count * sizeof *w->known);
    memset(none, 0, (size_t)largest * sizeof *none);
    w->none = none;
    if (!(w->sets[value] = array(w, value, sizeof **w->sets)))
        return qb_fail_memory();
    for (int64_t k = 0; k < size; k++)
        w->sets[value][k] = (int32_t)k + 1;
    return QB_OK;
}

static qb_status run(walk *w, int output)
{
    const qb_graph *graph = w->graph;
    bool *live = qb_arena_allocate(&w->memory, (size_t)graph->value_count * sizeof *live);
    if (!live)
        return qb_fail_memory();
    qb_mark_live(graph, 1, &graph->outputs[output], live);
    for (int32_t n = 0; n < graph->node_count; n++)
        if (live[graph->nodes[n].result])
            QB_TRY(visit(w, &graph->nodes[n]));
    return QB_OK;
}

static qb_status pattern_of(walk *w, qb_value value, int64_t columns, qb_pattern *out)
{
    const int32_t *sets = sets_of(w, value);
    qb_pattern p = {.rows = qb_value_size(w->graph, value), .columns = columns};
    int64_t entries = 0;
    p.start = qb_allocate((size_t)(p.rows + 1) * sizeof *p.start);
    for (int64_t r = 0; p.start && r < p.rows; r++) {
        p.start[r] = entries;
        entries += qb_index_set_size(w->pool, sets[r]);
    }
    p.column = qb_allocate((size_t)entries * sizeof *p.column);
    if (!p.start || !p.column) {
        qb_pattern_end(&p);
        return qb_fail_memory();
    }
    p.start[p.rows] = entries;
    for (int64_t r = 0; r < p.rows; r++) {
        size_t count = (size_t)qb_index_set_size(w->pool, sets[r]);
        if (count > 0) /* an empty set may have no items to point to */
            memcpy(p.column + p.start[r], qb_index_set_items(w->pool, sets[r]), count * sizeof *p.column);
    }
    *out = p;
    return QB_OK;
}

qb_status qb_sparsity(const qb_graph *graph, int input, int output, qb_pattern *out)
{
    walk w = {0};
    qb_status status = begin(&w, graph, input);
    if (status == QB_OK)
        status = run(&w, output);
    if (status == QB_OK)
        status = pattern_of(&w, graph->outputs[output], qb_value_size(graph, graph->inputs[input]), out);
    qb_index_sets_destroy(w.pool);
    qb_arena_free(&w.memory);
    return status;
}
