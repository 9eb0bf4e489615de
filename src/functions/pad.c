/* Arrays made longer, and elements moved round: pad, roll, diag. */
#include "functions/builder.h"

#include "base/allocate.h"

/* ---- pad */

typedef enum mode { CONSTANT, EDGE, REFLECT, SYMMETRIC, WRAP, MODES } mode;

static qb_status read_mode(const qb_attribute *text, mode *out)
{
    static const char *const names[MODES] = {"constant", "edge", "reflect", "symmetric", "wrap"};
    char given[32];
    if (!qb_attribute_text(text, sizeof given, given))
        memcpy(given, "...", 4);
    for (int i = 0; i < MODES; i++)
        if (strcmp(given, names[i]) == 0) {
            *out = (mode)i;
            return QB_OK;
        }
    return qb_fail(QB_ERROR_VALUE, "pad: mode must be 'constant', 'edge', 'reflect', 'symmetric' or 'wrap', got '%s'",
                   given);
}

/* The widths at both ends of every axis: as given, or one pair for all. */
static qb_status read_widths(const qb_attribute *given, const qb_type *type, int64_t *before, int64_t *after)
{
    if (given->count != 2 && given->count != 2 * type->rank)
        return qb_fail(QB_ERROR_VALUE,
                       "pad: %d pairs of widths for an array of shape %s; one for all axes, or one for each",
                       given->count / 2, qb_print_shape(type->rank, type->shape).text);
    for (int axis = 0; axis < type->rank; axis++) {
        const int64_t *pair = given->integers + (given->count == 2 ? 0 : 2 * axis);
        before[axis] = pair[0];
        after[axis] = pair[1];
        int64_t most = INT64_MAX / 4;
        if (pair[0] < 0 || pair[1] < 0 || pair[0] > most || pair[1] > most)
            return qb_fail(QB_ERROR_VALUE, "pad: widths (%lld, %lld) along axis %d; they must be 0 or more",
                           (long long)pair[0], (long long)pair[1], axis);
    }
    return QB_OK;
}

/* A splat of the extent along the axis, or the first or last element so often. */
static qb_value margin(qb_graph *g, qb_value x, const qb_type *type, int axis, int64_t width, bool at_end,
                       const double *number)
{
    qb_type wide = *type;
    wide.shape[axis] = width;
    if (number)
        return qb_splat(g, type->dtype, wide.rank, wide.shape, *number);
    int64_t place = at_end ? type->shape[axis] - 1 : 0, axes[QB_MAX_RANK];
    for (int i = 0; i < type->rank; i++)
        axes[i] = i;
    return qb_broadcast(g, qb_part(g, x, type, axis, place, place + 1), wide.rank, wide.shape, axes);
}

static qb_value pad_with_margins(qb_graph *g, qb_value x, const qb_type *type, int axis, int64_t before, int64_t after,
                                 const double *number)
{
    qb_value pieces[3];
    int count = 0;
    if (before > 0)
        pieces[count++] = margin(g, x, type, axis, before, false, number);
    pieces[count++] = x;
    if (after > 0)
        pieces[count++] = margin(g, x, type, axis, after, true, number);
    return qb_concat(g, count, pieces, axis);
}

/* The axis goes on as a periodic sequence: n elements forwards and, mirrored, `back` elements backwards from
 * `back_start` on. What is wanted of it, from `before` places in front of the array to `after` places behind it, is
 * joined from runs in one direction. */
static qb_value pad_periodically(qb_graph *g, qb_value x, const qb_type *type, int axis, int64_t before, int64_t after,
                                 int64_t back_start, int64_t back)
{
    int64_t n = type->shape[axis], period = n + back, length = before + n + after, reversed = axis;
    int64_t most = 2 * (length / period + 2);
    qb_value *pieces = most <= INT32_MAX ? qb_allocate((size_t)most * sizeof *pieces) : NULL;
    if (!pieces)
        return qb_graph_fail(g, qb_fail_memory());
    int count = 0;
    int64_t phase = (period - before % period) % period;
    for (int64_t done = 0, run; done < length; done += run, phase = (phase + run) % period) {
        bool forwards = phase < n;
        int64_t left = forwards ? n - phase : period - phase;
        run = left < length - done ? left : length - done;
        int64_t top = back_start - (phase - n);
        pieces[count++] = forwards ? qb_part(g, x, type, axis, phase, phase + run)
                                   : qb_reverse(g, qb_part(g, x, type, axis, top - run + 1, top + 1), 1, &reversed);
    }
    qb_value joined = qb_concat(g, count, pieces, axis);
    qb_free(pieces);
    return joined;
}

static qb_value pad_axis(qb_graph *g, qb_value x, const qb_type *type, int axis, int64_t before, int64_t after,
                         mode how, double number)
{
    int64_t n = type->shape[axis];
    if (how == CONSTANT || how == EDGE || n == 1)
        return pad_with_margins(g, x, type, axis, before, after, how == CONSTANT ? &number : NULL);
    if (how == WRAP)
        return pad_periodically(g, x, type, axis, before, after, 0, 0);
    return how == REFLECT ? pad_periodically(g, x, type, axis, before, after, n - 2, n - 2)
                          : pad_periodically(g, x, type, axis, before, after, n - 1, n);
}

qb_status qb_build_pad(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_type type, padded;
    mode how = CONSTANT;
    int64_t before[QB_MAX_RANK], after[QB_MAX_RANK], size;
    qb_value_type(g, call->operand[0], &type);
    QB_TRY(read_mode(&call->parameter[1], &how));
    QB_TRY(read_widths(&call->parameter[0], &type, before, after));
    if (qb_is_none(&call->parameter[2]))
        return qb_fail(QB_ERROR_TYPE, "pad: constant_values must be a number, got None");
    padded = type;
    for (int axis = 0; axis < type.rank; axis++) {
        padded.shape[axis] += before[axis] + after[axis];
        if (type.shape[axis] == 0 && padded.shape[axis] > 0 && how != CONSTANT)
            return qb_fail(QB_ERROR_VALUE,
                           "pad: axis %d of shape %s has no element to go on from; mode 'constant' can pad it", axis,
                           qb_print_shape(type.rank, type.shape).text);
    }
    QB_TRY(qb_shape_size(padded.rank, padded.shape, qb_dtype_size(type.dtype), &size));
    call->result = call->operand[0];
    call->result_weak = qb_call_weak(call, 0);
    if (how == CONSTANT && call->parameter[2].number == 0) {
        const int64_t none[QB_MAX_RANK] = {0};
        call->result = qb_pad(g, call->operand[0], before, after, none);
        return QB_OK;
    }
    for (int axis = 0; axis < type.rank; axis++) {
        if (before[axis] > 0 || after[axis] > 0)
            call->result =
                pad_axis(g, call->result, &type, axis, before[axis], after[axis], how, call->parameter[2].number);
        type.shape[axis] = padded.shape[axis];
    }
    return QB_OK;
}

/* ---- roll */

static qb_value roll_axis(qb_graph *g, qb_value x, const qb_type *type, int64_t axis, int64_t shift)
{
    int64_t n = type->shape[axis];
    shift = n > 0 ? (shift % n + n) % n : 0;
    if (shift == 0)
        return x;
    qb_value pieces[2] = {qb_part(g, x, type, axis, n - shift, n), qb_part(g, x, type, axis, 0, n - shift)};
    return qb_concat(g, 2, pieces, (int)axis);
}

qb_status qb_build_roll(qb_call *call)
{
    qb_graph *g = call->graph;
    const qb_attribute *shifts = &call->parameter[0], *axes = &call->parameter[1];
    qb_type type;
    qb_value x = call->operand[0];
    qb_value_type(g, x, &type);
    call->result_weak = qb_call_weak(call, 0);
    int pairs = shifts->count > axes->count ? shifts->count : axes->count;
    if (!qb_is_none(axes) &&
        ((shifts->count != pairs && shifts->count != 1) || (axes->count != pairs && axes->count != 1)))
        return qb_fail(QB_ERROR_VALUE, "roll: %d shifts for %d axes", (int)shifts->count, (int)axes->count);
    if (qb_is_none(axes)) {
        int64_t size = qb_value_size(g, x), total = 0;
        qb_type flat;
        qb_type_set(&flat, type.dtype, 1, &size);
        for (int i = 0; i < shifts->count && size > 0; i++)
            total += shifts->integers[i] % size;
        call->result = qb_reshape(g, roll_axis(g, qb_flatten(g, x, size), &flat, 0, total), type.rank, type.shape);
        return QB_OK;
    }
    for (int i = 0; i < pairs && shifts->count > 0 && axes->count > 0; i++) {
        int64_t axis = 0;
        QB_TRY(qb_normalize_axis(call, axes->integers[axes->count == 1 ? 0 : i], type.rank, type.shape, &axis));
        x = roll_axis(g, x, &type, axis, shifts->integers[shifts->count == 1 ? 0 : i]);
    }
    call->result = x;
    return QB_OK;
}

/* ---- diag: a matrix with the elements on a diagonal, which in the flattened matrix are n + 1 places apart */

qb_status qb_build_diag(qb_call *call)
{
    qb_graph *g = call->graph;
    int64_t offset = call->parameter[0].integer;
    qb_type type;
    qb_value_type(g, call->operand[0], &type);
    if (type.rank == 2) {
        const qb_attribute *given = call->parameter, axes[] = {given[0], qb_int(0), qb_int(1)};
        call->parameter = axes;
        qb_status status = qb_build_diagonal(call);
        call->parameter = given;
        return status;
    }
    if (type.rank != 1)
        return qb_fail(QB_ERROR_VALUE, "diag: takes a vector or a matrix, got an array of shape %s; diagonal takes any",
                       qb_print_shape(type.rank, type.shape).text);
    int64_t count = type.shape[0], distance = offset < 0 ? -offset : offset, size;
    int64_t shape[2] = {count + distance, count + distance};
    if (distance > INT32_MAX)
        return qb_fail(QB_ERROR_VALUE, "diag: k is %lld, beyond any matrix", (long long)offset);
    QB_TRY(qb_shape_size(2, shape, qb_dtype_size(type.dtype), &size));
    int64_t low = offset < 0 ? distance * shape[0] : distance, interior = shape[0];
    int64_t high = count > 0 ? size - low - (count - 1) * (interior + 1) - 1 : size - low;
    call->result = qb_reshape(g, qb_pad(g, call->operand[0], &low, &high, &interior), 2, shape);
    call->result_weak = qb_call_weak(call, 0);
    return QB_OK;
}
