/* Random values of a graph, made of those that it has: elementwise functions, views, reductions, products, and calls.
 * Included by test_program.c, whose words they use. Numbers stay small integers, see clip. */

typedef struct sampler {
    qb_graph *graph;
    qb_value values[64];
    int count;
} sampler;

static inline qb_value any(const sampler *s)
{
    return s->values[pick(s->count)];
}

static inline const qb_value_info *info_of(const sampler *s, qb_value value)
{
    return &s->graph->values[value];
}

static inline bool is_number(const sampler *s, qb_value value)
{
    return info_of(s, value)->dtype != QB_BOOL;
}

/* Keeps numbers small, so that everything stays exact. */
static inline qb_value clip(sampler *s, qb_value x)
{
    if (!is_number(s, x))
        return x;
    bool is_signed = qb_dtype_kind(info_of(s, x)->dtype) != 'u';
    return qb_max(s->graph, qb_min(s->graph, x, qb_splat_like(s->graph, x, 8)),
                  qb_splat_like(s->graph, x, is_signed ? -8 : 0));
}

/* Something of the type of `like`: another value of that type, a broadcast of one, or a constant. */
static inline qb_value partner(sampler *s, qb_value like)
{
    const qb_value_info info = *info_of(s, like);
    for (int attempt = 0; attempt < 20; attempt++) {
        qb_value other = any(s);
        const qb_value_info *o = info_of(s, other);
        if (o->dtype != info.dtype)
            continue;
        if (qb_shape_equal(o->rank, o->shape, info.rank, info.shape))
            return other;
        bool fits = o->rank <= info.rank;
        for (int i = 0; fits && i < o->rank; i++)
            fits = o->shape[i] == 1 || o->shape[i] == info.shape[info.rank - o->rank + i];
        if (fits)
            return qb_broadcast_to(s->graph, other, info.rank, info.shape);
    }
    return qb_splat_like(s->graph, like, (double)pick(4));
}

static inline qb_value sample_elementwise(sampler *s)
{
    qb_graph *g = s->graph;
    qb_value a = any(s);
    if (!is_number(s, a)) {
        if (pick(2)) {
            qb_value b = partner(s, a);
            return pick(2) ? qb_bit_and(g, a, b) : qb_bit_xor(g, a, b);
        }
        const qb_value_info info = *info_of(s, a);
        qb_value number = qb_convert(g, a, pick(2) ? QB_FLOAT64 : QB_INT32);
        (void)info;
        return qb_select(g, a, number, partner(s, number));
    }
    bool is_signed = qb_dtype_kind(info_of(s, a)->dtype) != 'u'; /* the reference does not wrap */
    switch (pick(10)) {
    case 0: return is_signed ? qb_neg(g, a) : a;
    case 1: return is_signed ? qb_abs(g, a) : a;
    case 2: return qb_sign(g, a);
    case 3: return qb_add(g, a, partner(s, a));
    case 4: return is_signed ? qb_sub(g, a, partner(s, a)) : a;
    case 5: return qb_mul(g, a, partner(s, a));
    case 6: return qb_max(g, a, partner(s, a));
    case 7: return qb_less(g, a, partner(s, a));
    case 8: return qb_convert(g, a, (qb_dtype[]){QB_FLOAT64, QB_FLOAT32, QB_INT32, QB_INT64, QB_BOOL}[pick(5)]);
    default: return qb_stop_gradient(g, a);
    }
}

static inline qb_value sample_reshape(sampler *s, qb_value a)
{
    const qb_value_info *info = info_of(s, a);
    int64_t shape[QB_MAX_RANK];
    int rank = 0;
    if (info->rank > 1 && pick(2)) { /* merge two axes */
        int at = (int)pick(info->rank - 1);
        for (int i = 0; i < info->rank; i++) {
            if (i == at + 1)
                shape[rank - 1] *= info->shape[i];
            else
                shape[rank++] = info->shape[i];
        }
    } else { /* split one, or add one */
        int at = (int)pick(info->rank + 1);
        for (int i = 0; i <= info->rank; i++) {
            if (i == at)
                shape[rank++] = 1;
            if (i == info->rank)
                break;
            int64_t extent = info->shape[i];
            int64_t factor = extent % 2 == 0 && extent > 0 ? 2 : extent % 3 == 0 && extent > 0 ? 3 : 1;
            if (pick(2) && factor > 1) {
                shape[rank++] = extent / factor;
                extent = factor;
            }
            shape[rank++] = extent;
        }
    }
    return qb_reshape(s->graph, a, rank, shape);
}

static inline qb_value sample_view(sampler *s)
{
    qb_graph *g = s->graph;
    qb_value a = any(s);
    const qb_value_info info = *info_of(s, a);
    int64_t x[QB_MAX_RANK], y[QB_MAX_RANK], z[QB_MAX_RANK];
    if (info.rank > 6)
        return a;
    switch (pick(5)) {
    case 0: return sample_reshape(s, a);
    case 1:
        for (int i = 0; i < info.rank; i++)
            x[i] = i;
        for (int i = info.rank - 1; i > 0; i--) {
            int64_t k = pick(i + 1), t = x[i];
            x[i] = x[k];
            x[k] = t;
        }
        return qb_permute(g, a, info.rank, x);
    case 2:
        for (int i = 0; i < info.rank; i++) {
            x[i] = info.shape[i] > 0 ? pick(info.shape[i]) : 0;
            y[i] = x[i] + pick(info.shape[i] - x[i] + 1);
            z[i] = 1 + pick(3);
            if (pick(2))
                x[i] = 0, y[i] = info.shape[i], z[i] = 1;
        }
        return qb_slice(g, a, x, y, z);
    case 3: {
        int count = 0;
        for (int i = 0; i < info.rank; i++)
            if (pick(2))
                x[count++] = i;
        return qb_reverse(g, a, count, x);
    }
    default: {
        int rank = 0, next = 0;
        for (int i = 0; i <= info.rank; i++) {
            if (pick(4) == 0)
                x[rank++] = 1 + pick(3);
            if (i < info.rank) {
                y[next++] = rank;
                x[rank++] = info.shape[i] == 1 && pick(2) ? 1 + pick(4) : info.shape[i];
            }
        }
        return qb_broadcast(g, a, rank, x, y);
    }
    }
}

static inline qb_value sample_reduce(sampler *s)
{
    qb_graph *g = s->graph;
    qb_value a = any(s);
    const qb_value_info info = *info_of(s, a);
    int64_t axes[QB_MAX_RANK];
    int count = 0, kind = (int)pick(4);
    bool empty = false;
    for (int i = 0; i < info.rank; i++) {
        if (pick(2))
            axes[count++] = i;
        empty = empty || info.shape[i] == 0;
    }
    if (kind == 1 && is_number(s, a)) /* products of signs stay exact */
        return qb_dtype_kind(info.dtype) == 'u' ? a : qb_reduce_prod(g, qb_sign(g, a), count, axes);
    if (kind == 2 && !empty)
        return qb_reduce_max(g, a, count, axes);
    if (kind == 3 && !empty)
        return qb_reduce_min(g, a, count, axes);
    return is_number(s, a) ? qb_reduce_sum(g, a, count, axes) : a;
}

/* The product of two values over axes of equal extents, paired at random. */
static inline qb_value sample_dot(sampler *s)
{
    qb_value a = any(s), b = a;
    for (int attempt = 0; attempt < 10; attempt++) {
        b = any(s);
        if (info_of(s, b)->dtype == info_of(s, a)->dtype)
            break;
    }
    const qb_value_info ia = *info_of(s, a), ib = *info_of(s, b);
    if (ia.dtype != ib.dtype || !is_number(s, a))
        return a;
    int64_t contract[2][QB_MAX_RANK], batch[2][QB_MAX_RANK];
    int contracted = 0, batched = 0;
    bool used[QB_MAX_RANK] = {false};
    double size = 1;
    for (int i = 0; i < ia.rank; i++) {
        size *= (double)ia.shape[i];
        for (int k = 0; k < ib.rank; k++) {
            if (used[k] || ia.shape[i] != ib.shape[k] || pick(3) == 0)
                continue;
            used[k] = true;
            size /= (double)(ib.shape[k] > 0 ? ib.shape[k] : 1);
            if (pick(3)) {
                contract[0][contracted] = i;
                contract[1][contracted++] = k;
            } else {
                batch[0][batched] = i;
                batch[1][batched++] = k;
            }
            break;
        }
    }
    for (int k = 0; k < ib.rank; k++)
        size *= (double)ib.shape[k];
    if (ia.rank + ib.rank - contracted * 2 - batched > 7 || size > 1e4)
        return a;
    return qb_dot(s->graph, a, b, contracted, contract[0], contract[1], batched, batch[0], batch[1]);
}

static inline qb_value sample_call(sampler *s)
{
    qb_value a = any(s);
    const qb_value_info info = *info_of(s, a);
    int64_t low[QB_MAX_RANK], high[QB_MAX_RANK], interior[QB_MAX_RANK];
    if (info.rank > 0 && pick(2)) {
        qb_value operands[] = {a, a, partner(s, a)};
        return qb_concat(s->graph, 3, operands, (int)pick(info.rank));
    }
    for (int i = 0; i < info.rank; i++) {
        low[i] = pick(3);
        high[i] = pick(2);
        interior[i] = pick(4) == 0;
    }
    return is_number(s, a) ? qb_pad(s->graph, a, low, high, interior) : a;
}
