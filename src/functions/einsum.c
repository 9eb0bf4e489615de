/* einsum: a sum of products over named indices, as contractions of two operands at a time.
 *
 * An equation is read as NumPy reads it; the axes of an ellipsis are indices, too. Each operand first loses what it
 * can alone: a repeated index becomes the diagonal, a strided view; an index that nobody else has is summed; an axis
 * of extent 1 that others broadcast vanishes. Then pairs are contracted until one operand is left, whose axes are
 * put in order. A pair that sums over an index is one product (qb_dot); without one it is an elementwise product of
 * views.
 *
 * Which pair comes next: the one whose product saves most elements against its two operands, and pairs with an index
 * in common before others (the greedy rule of Smith and Gray, "opt_einsum", JOSS 2018). */
#include "functions/builder.h"

#include "base/allocate.h"

#include <ctype.h>

enum { MOST_INDICES = 64, MOST_CHARACTERS = 8 * QB_MAX_INTEGERS };

typedef uint64_t index_set; /* bit i: index i */

/* An operand, or what is left of several: index[i] names its axis i. */
typedef struct factor {
    qb_value value;
    int rank;
    int64_t extent[QB_MAX_RANK];
    int index[QB_MAX_RANK];
    index_set set;
} factor;

typedef struct einsum {
    qb_call *call;
    qb_graph *graph;
    char text[MOST_CHARACTERS + 1];
    int count;         /* of factors */
    factor *factors;   /* as many as operands */
    int ellipsis_rank; /* its indices are 0 .. ellipsis_rank - 1 */
    int index_count;
    int64_t extent[MOST_INDICES];
    int of_letter[128]; /* -1: not used */
    char letter[MOST_INDICES];
    int out_rank;
    int out[QB_MAX_RANK];
    index_set out_set;
} einsum;

static index_set set_of(int index)
{
    return (index_set)1 << index;
}

/* ---- The equation */

/* One term from *cursor on, up to ',' or '->' or the end: the letters in order, '.' for the ellipsis. */
static qb_status read_term(const einsum *e, const char **cursor, int *length, char *out)
{
    int ellipses = 0;
    *length = 0;
    for (;; (*cursor)++) {
        char c = **cursor;
        if (c == ' ')
            continue;
        if (c == '\0' || c == ',' || c == '-')
            return QB_OK;
        if (c == '.' && strncmp(*cursor, "...", 3) == 0 && ellipses++ == 0)
            *cursor += 2;
        else if (c == '.')
            return qb_fail(QB_ERROR_VALUE, "einsum: '%s': a term has one ellipsis ('...') at most, and no other dots",
                           e->text);
        else if (!isalpha((unsigned char)c))
            return qb_fail(QB_ERROR_VALUE, "einsum: '%s': '%c' is not an index; indices are letters", e->text, c);
        if (*length == 2 * QB_MAX_RANK)
            return qb_fail(QB_ERROR_VALUE, "einsum: '%s': more indices in a term than an array has axes", e->text);
        out[(*length)++] = c;
    }
}

static int letters_of(int length, const char *term)
{
    int letters = 0;
    for (int i = 0; i < length; i++)
        letters += term[i] != '.';
    return letters;
}

/* How many terms stand before "->" or the end. */
static int count_terms(const char *text)
{
    int terms = 1;
    for (; *text && *text != '-'; text++)
        terms += *text == ',';
    return terms;
}

/* First pass: as many terms as operands, as many indices as axes, and the axes that an ellipsis stands for. Leaves
 * the cursor behind the terms. */
static qb_status check_terms(einsum *e, const char **cursor)
{
    int terms = count_terms(e->text);
    if (terms != e->count)
        return qb_fail(QB_ERROR_VALUE, "einsum: '%s' has %d term%s for %d operand%s", e->text, terms,
                       terms == 1 ? "" : "s", e->count, e->count == 1 ? "" : "s");
    for (int i = 0; i < e->count; i++) {
        char term[2 * QB_MAX_RANK];
        int length, rank = e->factors[i].rank;
        QB_TRY(read_term(e, cursor, &length, term));
        int letters = letters_of(length, term), more = rank - letters;
        if (more < 0 || (more > 0 && letters == length))
            return qb_fail(QB_ERROR_VALUE, "einsum: '%s': operand %d has shape %s, and its term %d ind%s%s", e->text, i,
                           qb_print_shape(rank, e->factors[i].extent).text, letters, letters == 1 ? "ex" : "ices",
                           more > 0 ? "; '...' stands for further axes" : "");
        e->ellipsis_rank = more > e->ellipsis_rank ? more : e->ellipsis_rank;
        *cursor += **cursor == ',';
    }
    if (**cursor != '\0' && strncmp(*cursor, "->", 2) != 0)
        return qb_fail(QB_ERROR_VALUE, "einsum: '%s': '-' must be part of '->'", e->text);
    return QB_OK;
}

static qb_status index_of_letter(einsum *e, char letter, int *out)
{
    int *index = &e->of_letter[(unsigned char)letter];
    if (*index < 0) {
        if (e->index_count == MOST_INDICES)
            return qb_fail(QB_ERROR_VALUE, "einsum: '%.80s...': more than %d different indices", e->text, MOST_INDICES);
        e->letter[e->index_count] = letter;
        e->extent[e->index_count] = 1;
        *index = e->index_count++;
    }
    *out = *index;
    return QB_OK;
}

/* The axis' extent is that of its index, unless one of both is 1. */
static qb_status meet_extent(einsum *e, int operand, int axis)
{
    const factor *f = &e->factors[operand];
    int64_t given = f->extent[axis], *known = &e->extent[f->index[axis]];
    if (given == *known || given == 1)
        return QB_OK;
    if (*known == 1) {
        *known = given;
        return QB_OK;
    }
    char name[32] = "an axis of the ellipsis";
    if (f->index[axis] >= e->ellipsis_rank)
        memcpy(name, (const char[]){'i', 'n', 'd', 'e', 'x', ' ', e->letter[f->index[axis]], '\0'}, 8);
    return qb_fail(QB_ERROR_VALUE,
                   "einsum: '%s': %s has extent %lld in operand %d of shape %s, and %lld in one before it", e->text,
                   name, (long long)given, operand, qb_print_shape(f->rank, f->extent).text, (long long)*known);
}

/* Second pass: names the axes of every operand. */
static qb_status name_axes(einsum *e)
{
    const char *cursor = e->text;
    e->index_count = e->ellipsis_rank;
    for (int i = 0; i < e->ellipsis_rank; i++)
        e->extent[i] = 1;
    for (int i = 0; i < e->count; i++) {
        char term[2 * QB_MAX_RANK];
        int length, axis = 0;
        factor *f = &e->factors[i];
        QB_TRY(read_term(e, &cursor, &length, term));
        int more = f->rank - letters_of(length, term);
        for (int k = 0; k < length; k++) {
            for (int m = 0; term[k] == '.' && m < more; m++)
                f->index[axis++] = e->ellipsis_rank - more + m;
            if (term[k] != '.')
                QB_TRY(index_of_letter(e, term[k], &f->index[axis++]));
        }
        for (axis = 0; axis < f->rank; axis++) {
            for (int before = 0; before < axis; before++)
                if (f->index[before] == f->index[axis] && f->extent[before] != f->extent[axis])
                    return qb_fail(QB_ERROR_VALUE,
                                   "einsum: '%s': index %c has extents %lld and %lld in operand %d of shape %s",
                                   e->text, e->letter[f->index[axis]], (long long)f->extent[before],
                                   (long long)f->extent[axis], i, qb_print_shape(f->rank, f->extent).text);
            QB_TRY(meet_extent(e, i, axis));
            f->set |= set_of(f->index[axis]);
        }
        cursor += *cursor == ',';
    }
    return QB_OK;
}

static qb_status add_to_output(einsum *e, int index)
{
    if (e->out_rank == QB_MAX_RANK)
        return qb_fail(QB_ERROR_VALUE, "einsum: '%s': the result would have more than %d axes", e->text, QB_MAX_RANK);
    e->out[e->out_rank++] = index;
    e->out_set |= set_of(index);
    return QB_OK;
}

/* Without "->": the ellipsis, then the letters that occur once, in the order of the alphabet, capitals first. */
static qb_status imply_output(einsum *e)
{
    int occurrences[128] = {0};
    for (const char *c = e->text; *c; c++)
        occurrences[(unsigned char)*c & 127]++;
    for (int i = 0; i < e->ellipsis_rank; i++)
        QB_TRY(add_to_output(e, i));
    for (int letter = 'A'; letter <= 'z'; letter++)
        if (isalpha(letter) && occurrences[letter] == 1)
            QB_TRY(add_to_output(e, e->of_letter[letter]));
    return QB_OK;
}

static qb_status read_output(einsum *e, const char *cursor)
{
    char term[2 * QB_MAX_RANK];
    int length, ellipses = 0;
    if (*cursor == '\0')
        return imply_output(e);
    cursor += 2;
    QB_TRY(read_term(e, &cursor, &length, term));
    if (*cursor != '\0')
        return qb_fail(QB_ERROR_VALUE, "einsum: '%s': '%s' cannot follow the output", e->text, cursor);
    for (int k = 0; k < length; k++) {
        for (int i = 0; term[k] == '.' && i < e->ellipsis_rank; i++)
            QB_TRY(add_to_output(e, i));
        ellipses += term[k] == '.';
        if (term[k] == '.')
            continue;
        int index = e->of_letter[(unsigned char)term[k]];
        if (index < 0)
            return qb_fail(QB_ERROR_VALUE, "einsum: '%s': index %c of the output is in no operand", e->text, term[k]);
        if (e->out_set & set_of(index))
            return qb_fail(QB_ERROR_VALUE, "einsum: '%s': index %c occurs twice in the output", e->text, term[k]);
        QB_TRY(add_to_output(e, index));
    }
    if (e->ellipsis_rank > 0 && ellipses == 0)
        return qb_fail(QB_ERROR_VALUE,
                       "einsum: '%s': the output lacks '...', for the %d ax%s that it stands for in the operands",
                       e->text, e->ellipsis_rank, e->ellipsis_rank == 1 ? "is" : "es");
    return QB_OK;
}

/* ---- One operand */

static void remove_axis(factor *f, int axis)
{
    for (int i = axis + 1; i < f->rank; i++) {
        f->index[i - 1] = f->index[i];
        f->extent[i - 1] = f->extent[i];
    }
    f->rank--;
}

/* Axes of extent 1 whose index has another extent. */
static void drop_broadcast_axes(einsum *e, factor *f)
{
    for (int axis = f->rank - 1; axis >= 0; axis--)
        if (f->extent[axis] == 1 && e->extent[f->index[axis]] != 1) {
            f->set &= ~set_of(f->index[axis]);
            remove_axis(f, axis);
        }
    f->value = qb_reshape(e->graph, f->value, f->rank, f->extent);
}

/* Two axes of one index become one: last in order and flattened, they hold the diagonal at a step of n + 1. */
static void take_diagonal(einsum *e, factor *f, int first, int second)
{
    int64_t order[QB_MAX_RANK], start[QB_MAX_RANK] = {0}, step[QB_MAX_RANK], n = f->extent[first];
    int index = f->index[first], next = 0;
    for (int axis = 0; axis < f->rank; axis++)
        if (axis != first && axis != second)
            order[next++] = axis;
    order[next] = first;
    order[next + 1] = second;
    f->value = qb_permute(e->graph, f->value, f->rank, order);
    remove_axis(f, second);
    remove_axis(f, first);
    f->index[f->rank] = index;
    f->extent[f->rank++] = n * n;
    for (int axis = 0; axis < f->rank; axis++)
        step[axis] = 1;
    step[f->rank - 1] = n + 1;
    f->value = qb_slice(e->graph, qb_reshape(e->graph, f->value, f->rank, f->extent), start, f->extent, step);
    f->extent[f->rank - 1] = n;
}

static void take_diagonals(einsum *e, factor *f)
{
    for (int second = f->rank - 1; second > 0; second--)
        for (int first = 0; first < second; first++)
            if (f->index[first] == f->index[second]) {
                take_diagonal(e, f, first, second);
                second = f->rank; /* the axes have moved */
                break;
            }
}

/* Over the indices outside `needed`. */
static void sum_indices(einsum *e, factor *f, index_set needed)
{
    int64_t axes[QB_MAX_RANK];
    int count = 0;
    for (int axis = 0; axis < f->rank; axis++)
        if (!(needed & set_of(f->index[axis])))
            axes[count++] = axis;
    f->value = qb_reduce_sum(e->graph, f->value, count, axes);
    for (int i = count - 1; i >= 0; i--)
        remove_axis(f, (int)axes[i]);
    f->set &= needed;
}

/* The indices that the output and the factors other than a and b have. */
static index_set needed_beside(const einsum *e, int a, int b)
{
    index_set needed = e->out_set;
    for (int i = 0; i < e->count; i++)
        if (i != a && i != b)
            needed |= e->factors[i].set;
    return needed;
}

static void prepare_factors(einsum *e)
{
    for (int i = 0; i < e->count; i++) {
        drop_broadcast_axes(e, &e->factors[i]);
        take_diagonals(e, &e->factors[i]);
    }
    for (int i = 0; i < e->count; i++)
        sum_indices(e, &e->factors[i], needed_beside(e, i, i));
}

/* ---- Two operands */

static int axis_of(const factor *f, int index)
{
    for (int axis = 0; axis < f->rank; axis++)
        if (f->index[axis] == index)
            return axis;
    return -1;
}

static void append_axis(factor *f, const factor *from, int axis)
{
    if (f->rank < QB_MAX_RANK) { /* beyond it the product fails */
        f->index[f->rank] = from->index[axis];
        f->extent[f->rank] = from->extent[axis];
    }
    f->rank++;
    f->set |= set_of(from->index[axis]);
}

/* The product summed over the indices of both that are not needed. */
static factor contract(einsum *e, const factor *a, const factor *b, index_set needed)
{
    int64_t contracted[2][QB_MAX_RANK], batch[2][QB_MAX_RANK];
    int contracted_count = 0, batch_count = 0;
    factor result = {.rank = 0};
    for (int axis = 0; axis < a->rank; axis++) {
        int other = axis_of(b, a->index[axis]);
        if (other < 0)
            continue;
        bool kept = (needed & set_of(a->index[axis])) != 0;
        if (kept)
            append_axis(&result, a, axis);
        int *count = kept ? &batch_count : &contracted_count;
        (kept ? batch : contracted)[0][*count] = axis;
        (kept ? batch : contracted)[1][(*count)++] = other;
    }
    for (int axis = 0; axis < a->rank; axis++)
        if (!(b->set & set_of(a->index[axis])))
            append_axis(&result, a, axis);
    for (int axis = 0; axis < b->rank; axis++)
        if (!(a->set & set_of(b->index[axis])))
            append_axis(&result, b, axis);
    result.value = qb_dot(e->graph, a->value, b->value, contracted_count, contracted[0], contracted[1], batch_count,
                          batch[0], batch[1]);
    return result;
}

/* The factor's axes in the order of `target`, repeated over those that it lacks. */
static qb_value spread(einsum *e, const factor *f, const factor *target)
{
    int64_t order[QB_MAX_RANK], places[QB_MAX_RANK];
    int count = 0;
    for (int axis = 0; axis < target->rank; axis++) {
        int own = axis_of(f, target->index[axis]);
        if (own < 0)
            continue;
        order[count] = own;
        places[count++] = axis;
    }
    return qb_broadcast(e->graph, qb_permute(e->graph, f->value, count, order), target->rank, target->extent, places);
}

/* The product of two factors whose indices are all needed, with the axes in the order of the output where it is the
 * last one. */
static factor multiply(einsum *e, const factor *a, const factor *b)
{
    factor result = {.rank = 0};
    if ((a->set | b->set) == e->out_set) {
        for (int i = 0; i < e->out_rank; i++) {
            int of_a = axis_of(a, e->out[i]);
            append_axis(&result, of_a < 0 ? b : a, of_a < 0 ? axis_of(b, e->out[i]) : of_a);
        }
    } else {
        for (int axis = 0; axis < a->rank; axis++)
            append_axis(&result, a, axis);
        for (int axis = 0; axis < b->rank; axis++)
            if (!(a->set & set_of(b->index[axis])))
                append_axis(&result, b, axis);
    }
    if (result.rank > QB_MAX_RANK)
        result.value =
            qb_graph_fail(e->graph, qb_fail(QB_ERROR_VALUE, "einsum: '%s': a product would have more than %d axes",
                                            e->text, QB_MAX_RANK));
    else
        result.value = qb_mul(e->graph, spread(e, a, &result), spread(e, b, &result));
    return result;
}

/* ---- The order of contractions */

static double size_of(const einsum *e, index_set set)
{
    double size = 1;
    for (int i = 0; i < e->index_count; i++)
        if (set & set_of(i))
            size *= (double)e->extent[i];
    return size;
}

typedef struct choice {
    int a, b;
    bool apart; /* no index in common */
    double growth, work;
} choice;

static bool better(const choice *x, const choice *y)
{
    if (x->apart != y->apart)
        return !x->apart;
    return x->growth != y->growth ? x->growth < y->growth : x->work < y->work;
}

static choice choose_pair(const einsum *e)
{
    choice best = {.a = -1};
    for (int a = 0; a < e->count; a++)
        for (int b = a + 1; b < e->count; b++) {
            index_set of_a = e->factors[a].set, of_b = e->factors[b].set, both = of_a | of_b;
            double kept = size_of(e, both & needed_beside(e, a, b));
            choice this = {a, b, (of_a & of_b) == 0, kept - size_of(e, of_a) - size_of(e, of_b), size_of(e, both)};
            if (best.a < 0 || better(&this, &best))
                best = this;
        }
    return best;
}

static void contract_all(einsum *e)
{
    while (e->count > 1) {
        choice next = choose_pair(e);
        const factor *a = &e->factors[next.a], *b = &e->factors[next.b];
        index_set needed = needed_beside(e, next.a, next.b);
        factor product = a->set & b->set & ~needed ? contract(e, a, b, needed) : multiply(e, a, b);
        if (product.value < 0)
            return;
        e->factors[next.a] = product;
        e->factors[next.b] = e->factors[--e->count];
    }
}

/* ---- The whole */

static qb_status build(einsum *e)
{
    const char *cursor = e->text;
    memset(e->of_letter, -1, sizeof e->of_letter);
    QB_TRY(check_terms(e, &cursor));
    QB_TRY(name_axes(e));
    QB_TRY(read_output(e, cursor));
    prepare_factors(e);
    contract_all(e);
    int64_t order[QB_MAX_RANK];
    const factor *last = &e->factors[0];
    if (e->count > 1)
        return QB_OK; /* a product has failed, and the graph knows why */
    for (int i = 0; i < e->out_rank; i++)
        order[i] = axis_of(last, e->out[i]);
    e->call->result = qb_permute(e->graph, last->value, e->out_rank, order);
    return QB_OK;
}

/* The operands, of one dtype. */
static qb_status take_factors(einsum *e)
{
    size_t count = (size_t)e->count;
    qb_value *values = qb_allocate(count * sizeof *values);
    int *which = qb_allocate(count * sizeof *which);
    qb_status status = values && which ? QB_OK : qb_fail_memory();
    for (int i = 0; status == QB_OK && i < e->count; i++)
        which[i] = i;
    if (status == QB_OK)
        status = qb_promote_operands(e->call, QB_TAKES_NUMERIC, e->count, which, values);
    for (int i = 0; status == QB_OK && i < e->count; i++) {
        qb_type type;
        qb_value_type(e->graph, e->call->operand[i], &type);
        e->factors[i] = (factor){.value = values[i], .rank = type.rank};
        memcpy(e->factors[i].extent, type.shape, (size_t)type.rank * sizeof *type.shape);
    }
    qb_free(values);
    qb_free(which);
    return status;
}

qb_status qb_build_einsum(qb_call *call)
{
    if (call->operand_count == 0)
        return qb_fail(QB_ERROR_VALUE, "einsum: needs an operand at least");
    einsum *e = qb_allocate_zeroed(1, sizeof *e);
    if (!e)
        return qb_fail_memory();
    e->call = call;
    e->graph = call->graph;
    e->count = call->operand_count;
    e->factors = qb_allocate((size_t)e->count * sizeof *e->factors);
    qb_status status = e->factors ? QB_OK : qb_fail_memory();
    if (status == QB_OK && !qb_attribute_text(&call->parameter[0], sizeof e->text, e->text))
        status = qb_fail(QB_ERROR_VALUE, "einsum: the equation has more than %d characters", MOST_CHARACTERS);
    if (status == QB_OK)
        status = take_factors(e);
    if (status == QB_OK)
        status = build(e);
    qb_free(e->factors);
    qb_free(e);
    return status;
}
