/* Composing the operations that only move elements into strides. */
#include "program/view.h"

#include "ops/op.h"

static qb_view *make(qb_arena *arena, int rank, int64_t offset)
{
    qb_view *view = qb_arena_allocate(arena, sizeof *view + 2 * (size_t)rank * sizeof(int64_t));
    if (!view)
        return NULL;
    int64_t *axes = (int64_t *)(view + 1);
    *view = (qb_view){.offset = offset, .rank = rank, .shaped = true, .extent = axes, .stride = axes + rank};
    return view;
}

qb_view *qb_view_whole(qb_arena *arena, int rank, const int64_t *shape)
{
    qb_view *view = make(arena, rank, 0);
    if (!view)
        return NULL;
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        view->extent[i] = shape[i];
        view->stride[i] = stride;
        stride *= shape[i];
    }
    return view;
}

qb_view *qb_view_keep(qb_arena *arena, const qb_view *view)
{
    qb_view *out = make(arena, view->rank, view->offset);
    if (!out)
        return NULL;
    memcpy(out->extent, view->extent, (size_t)view->rank * sizeof(int64_t));
    memcpy(out->stride, view->stride, (size_t)view->rank * sizeof(int64_t));
    out->shaped = view->shaped;
    return out;
}

int qb_view_collapse(const qb_view *view, int64_t *extent, int64_t *stride)
{
    int rank = 0;
    for (int i = 0; i < view->rank; i++) {
        if (view->extent[i] == 1)
            continue;
        if (rank > 0 && stride[rank - 1] == view->extent[i] * view->stride[i]) {
            extent[rank - 1] *= view->extent[i];
            stride[rank - 1] = view->stride[i];
        } else {
            extent[rank] = view->extent[i];
            stride[rank++] = view->stride[i];
        }
    }
    return rank;
}

/* Strides for the new shape: each new axis must lie within one axis of the collapsed view, counted from the innermost.
 */
static bool reshape_strides(const qb_view *view, qb_view *out)
{
    int64_t extent[QB_MAX_RANK], stride[QB_MAX_RANK];
    int axis = qb_view_collapse(view, extent, stride) - 1;
    int64_t left = axis >= 0 ? extent[axis] : 1, step = axis >= 0 ? stride[axis] : 0;
    for (int i = out->rank - 1; i >= 0; i--) {
        out->stride[i] = 0;
        if (out->extent[i] == 1)
            continue;
        if (left == 1 && axis > 0) {
            left = extent[--axis];
            step = stride[axis];
        }
        if (out->extent[i] == 0 || left % out->extent[i] != 0)
            return false;
        out->stride[i] = step;
        step *= out->extent[i];
        left /= out->extent[i];
    }
    return true;
}

qb_view *qb_view_reshape(qb_arena *arena, const qb_view *view, int rank, const int64_t *shape)
{
    qb_view *out = make(arena, rank, view->offset);
    if (!out)
        return NULL;
    if (rank > 0)
        memcpy(out->extent, shape, (size_t)rank * sizeof(int64_t));
    if (reshape_strides(view, out))
        return out;
    out = qb_view_keep(arena, view);
    if (out)
        out->shaped = false;
    return out;
}

qb_view *qb_view_pick(qb_arena *arena, const qb_view *view, int count, const int64_t *axes)
{
    qb_view *out = make(arena, count, view->offset);
    for (int i = 0; out && i < count; i++) {
        out->extent[i] = view->extent[axes[i]];
        out->stride[i] = view->stride[axes[i]];
    }
    return out;
}

static qb_view *broadcast(qb_arena *arena, const qb_view *view, const qb_attribute *shape, const qb_attribute *axes)
{
    qb_view *out = make(arena, shape->count, view->offset);
    if (!out)
        return NULL;
    for (int i = 0; i < shape->count; i++) {
        out->extent[i] = shape->integers[i];
        out->stride[i] = 0;
    }
    for (int i = 0; i < axes->count; i++)
        if (view->extent[i] != 1)
            out->stride[axes->integers[i]] = view->stride[i];
    return out;
}

static qb_view *slice(qb_arena *arena, const qb_view *view, const qb_attribute *attribute)
{
    qb_view *out = make(arena, view->rank, view->offset);
    for (int i = 0; out && i < view->rank; i++) {
        int64_t start = attribute[0].integers[i], limit = attribute[1].integers[i], step = attribute[2].integers[i];
        out->extent[i] = (limit - start + step - 1) / step;
        out->stride[i] = view->stride[i] * step;
        if (out->extent[i] > 0)
            out->offset += start * view->stride[i];
    }
    return out;
}

static qb_view *reverse(qb_arena *arena, const qb_view *view, const qb_attribute *axes)
{
    qb_view *out = make(arena, view->rank, view->offset);
    if (!out)
        return NULL;
    for (int i = 0; i < view->rank; i++) {
        out->extent[i] = view->extent[i];
        out->stride[i] = view->stride[i];
    }
    for (int i = 0; i < axes->count; i++) {
        int axis = (int)axes->integers[i];
        if (out->extent[axis] > 0)
            out->offset += (out->extent[axis] - 1) * out->stride[axis];
        out->stride[axis] = -out->stride[axis];
    }
    return out;
}

qb_view *qb_view_compose(qb_arena *arena, const qb_view *view, const qb_node *node)
{
    const qb_attribute *attribute = node->attributes;
    if (node->op == &qb_op_reshape)
        return qb_view_reshape(arena, view, attribute[0].count, attribute[0].integers);
    if (node->op == &qb_op_permute)
        return qb_view_pick(arena, view, attribute[0].count, attribute[0].integers);
    if (node->op == &qb_op_broadcast)
        return broadcast(arena, view, &attribute[0], &attribute[1]);
    if (node->op == &qb_op_slice)
        return slice(arena, view, attribute);
    return reverse(arena, view, &attribute[0]);
}

bool qb_view_merge(const qb_view *view, int count, const int64_t *axes, int64_t *extent, int64_t *stride)
{
    *extent = 1;
    *stride = 0;
    for (int i = count - 1; i >= 0; i--) {
        int64_t e = view->extent[axes[i]], s = view->stride[axes[i]];
        if (e == 1)
            continue;
        if (*extent == 1)
            *stride = s;
        else if (s != *extent * *stride)
            return false;
        *extent *= e;
    }
    return true;
}

bool qb_view_is_contiguous(const qb_view *view)
{
    int64_t extent[QB_MAX_RANK], stride[QB_MAX_RANK];
    for (int i = 0; i < view->rank; i++)
        if (view->extent[i] == 0)
            return true;
    int rank = qb_view_collapse(view, extent, stride);
    return rank == 0 || (rank == 1 && stride[0] == 1);
}
