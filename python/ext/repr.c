/* The text of a Tensor: its elements as NumPy prints an array, and always the dtype.
 *
 * NumPy's layout, of its documented print options (numpy.set_printoptions): precision 8, at most 75 columns, 3
 * elements at each edge of an axis when there are more than 1000 in all. Elements get the digits that tell them apart
 * from their neighbours in their own dtype, at most 8 of them after the point, and one width for all. Elements that
 * are not shown are never read. */
#include "base/dtype.h"
#include "base/tensor.h"

#include "elements.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PRECISION = 8, LINE_WIDTH = 75, SUMMARY_ABOVE = 1000, EDGE = 3, NUMBER_ROOM = 64 };

typedef struct number_text {
    char text[NUMBER_ROOM];
} number_text;

/* How all elements are written. */
typedef struct format {
    qb_dtype dtype;
    bool scientific;
    int before;   /* columns before the point, or of the whole integer or bool */
    int after;    /* digits after it */
    int exponent; /* digits of the exponent, at least 2 */
} format;

/* --------------------------------------------------------------------------------------------------------- elements */

static double load(const format *f, const char *element)
{
    return qb_dtype_load(f->dtype, element);
}

static bool reads_back(qb_dtype dtype, double x, int digits, char *text, size_t room)
{
    (void)snprintf(text, room, "%.*e", digits - 1, x);
    return dtype == QB_FLOAT32 ? strtof(text, NULL) == (float)x : strtod(text, NULL) == x;
}

/* The fewest significant digits that read back as the same number of the dtype. As many as every normal number keeps
 * are tried first: what reads back then needs no zeros at its end. */
static int shortest_digits(qb_dtype dtype, double x)
{
    char text[40];
    bool is_single = dtype == QB_FLOAT32;
    int kept = is_single ? FLT_DIG : DBL_DIG, most = is_single ? 9 : 17;
    bool is_normal = fabs(x) >= (is_single ? (double)FLT_MIN : DBL_MIN);
    if (is_normal && reads_back(dtype, x, kept, text, sizeof text)) {
        const char *e = strchr(text, 'e');
        while (e[-1] == '0' && kept > 1) {
            e--;
            kept--;
        }
        return kept;
    }
    int digits = is_normal ? kept + 1 : 1;
    while (digits < most && !reads_back(dtype, x, digits, text, sizeof text))
        digits++;
    return digits;
}

/* The exponent of the leading decimal digit when x is rounded to that many digits. */
static int decimal_exponent(double x, int digits)
{
    char text[40];
    (void)snprintf(text, sizeof text, "%.*e", digits - 1, x);
    return atoi(strchr(text, 'e') + 1);
}

static void strip_zeros(char *text)
{
    size_t length = strlen(text);
    while (length && text[length - 1] == '0')
        text[--length] = 0;
}

/* A finite number with its point and without zeros at the end: "2.5", "1.". */
static number_text positional(qb_dtype dtype, double x)
{
    number_text out;
    int digits = x == 0 ? 1 : shortest_digits(dtype, x);
    int after = x == 0 ? 0 : digits - 1 - decimal_exponent(x, digits);
    (void)snprintf(out.text, sizeof out.text, "%#.*f", after < 0 ? 0 : after > PRECISION ? PRECISION : after, x);
    if (strchr(out.text, '.'))
        strip_zeros(out.text);
    return out;
}

/* "1.25" of 1.25e-10, and the exponent. */
static number_text mantissa(qb_dtype dtype, double x, int *exponent)
{
    number_text out;
    int digits = x == 0 ? 1 : shortest_digits(dtype, x);
    (void)snprintf(out.text, sizeof out.text, "%#.*e", digits - 1 > PRECISION ? PRECISION : digits - 1, x);
    char *e = strchr(out.text, 'e');
    *exponent = atoi(e + 1);
    *e = 0;
    strip_zeros(out.text);
    return out;
}

static int digits_of(int number)
{
    int digits = 1;
    for (number = abs(number); number >= 10; number /= 10)
        digits++;
    return digits;
}

static void widen(int *width, size_t needed)
{
    if (*width < (int)needed)
        *width = (int)needed;
}

/* --------------------------------------------------------------------------------- what the elements have in common */

/* Calls `visit` for each element that is shown. */
typedef struct shown {
    const qb_tensor *tensor;
    bool summarized;
} shown;

static bool is_cut(const shown *s, int axis)
{
    return s->summarized && s->tensor->shape[axis] > 2 * EDGE;
}

typedef void visitor(void *data, const char *element);

static const char *visit_shown(const shown *s, int axis, const char *element, visitor *visit, void *data)
{
    size_t size = qb_dtype_size(s->tensor->dtype);
    if (axis == s->tensor->rank) {
        visit(data, element);
        return element + size;
    }
    for (int i = axis + 1; i < s->tensor->rank; i++)
        size *= (size_t)s->tensor->shape[i];
    int64_t extent = s->tensor->shape[axis];
    for (int64_t i = 0; i < extent; i++) {
        if (is_cut(s, axis) && i == EDGE)
            i = extent - EDGE;
        (void)visit_shown(s, axis + 1, element + (size_t)i * size, visit, data);
    }
    return element + (size_t)extent * size;
}

typedef struct extremes {
    const format *format;
    double largest, smallest; /* of the absolute values of finite elements that are not 0 */
} extremes;

static void visit_extremes(void *data, const char *element)
{
    extremes *e = data;
    double x = fabs(load(e->format, element));
    if (!isfinite(x) || x == 0)
        return;
    if (e->largest == 0 || x > e->largest)
        e->largest = x;
    if (e->smallest == 0 || x < e->smallest)
        e->smallest = x;
}

static void visit_widths(void *data, const char *element)
{
    format *f = data;
    double x = load(f, element);
    if (!isfinite(x))
        return;
    int exponent = 0;
    number_text number = f->scientific ? mantissa(f->dtype, x, &exponent) : positional(f->dtype, x);
    const char *point = strchr(number.text, '.');
    widen(&f->before, (size_t)(point - number.text));
    widen(&f->after, strlen(point + 1));
    if (f->scientific)
        widen(&f->exponent, (size_t)digits_of(exponent));
}

/* Infinities and NaN are right-aligned in the whole column. */
static void visit_special(void *data, const char *element)
{
    format *f = data;
    double x = load(f, element);
    int others = 1 + f->after + (f->scientific ? 2 + f->exponent : 0), length = isnan(x) || x > 0 ? 3 : 4;
    if (!isfinite(x) && length > f->before + others)
        f->before = length - others;
}

static number_text whole(const format *f, const char *element)
{
    number_text out;
    switch (f->dtype) {
    case QB_BOOL: (void)snprintf(out.text, sizeof out.text, "%s", *element ? "True" : "False"); break;
    case QB_UINT64:
        (void)snprintf(out.text, sizeof out.text, "%llu", *(const unsigned long long *)(const void *)element);
        break;
    case QB_INT64: (void)snprintf(out.text, sizeof out.text, "%lld", *(const long long *)(const void *)element); break;
    default: (void)snprintf(out.text, sizeof out.text, "%.0f", load(f, element));
    }
    return out;
}

static void visit_whole(void *data, const char *element)
{
    format *f = data;
    widen(&f->before, strlen(whole(f, element).text));
}

static format choose_format(const shown *s)
{
    format f = {.dtype = s->tensor->dtype};
    const char *data = s->tensor->data;
    if (!qb_dtype_is_floating(f.dtype)) {
        (void)visit_shown(s, 0, data, visit_whole, &f);
        if (f.dtype == QB_BOOL && s->tensor->rank)
            f.before = 5;
        return f;
    }
    extremes e = {.format = &f};
    (void)visit_shown(s, 0, data, visit_extremes, &e);
    f.scientific = e.largest >= (f.dtype == QB_FLOAT32 ? 1e6 : 1e8) ||
                   (e.smallest != 0 && (e.smallest < 1e-4 || e.largest / e.smallest > 1000));
    f.exponent = 2;
    (void)visit_shown(s, 0, data, visit_widths, &f);
    (void)visit_shown(s, 0, data, visit_special, &f);
    return f;
}

/* `text` at the column where it belongs: after blanks up to `width`, where `length` of it are to the left of the
 * column's line. */
static number_text aligned(const char *text, size_t length, int width)
{
    number_text out;
    size_t blanks = (size_t)width > length ? (size_t)width - length : 0, count = strlen(text);
    if (blanks + count >= NUMBER_ROOM)
        blanks = NUMBER_ROOM - 1 - count;
    memset(out.text, ' ', blanks);
    memcpy(out.text + blanks, text, count + 1);
    return out;
}

static number_text element_text(const format *f, const char *element)
{
    number_text number;
    if (!qb_dtype_is_floating(f->dtype)) {
        number = whole(f, element);
        return aligned(number.text, strlen(number.text), f->before);
    }
    double x = load(f, element);
    if (!isfinite(x)) {
        const char *word = isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
        return aligned(word, strlen(word), f->before + 1 + f->after + (f->scientific ? 2 + f->exponent : 0));
    }
    if (f->scientific) {
        (void)snprintf(number.text, sizeof number.text, "%#.*e", f->after, x);
        char *e = strchr(number.text, 'e');
        int exponent = atoi(e + 1);
        (void)snprintf(e + 1, 8, exponent < 0 ? "-%0*d" : "+%0*d", f->exponent, abs(exponent));
        return aligned(number.text, strcspn(number.text, "."), f->before);
    }
    number = positional(f->dtype, x);
    size_t point = strcspn(number.text, "."), count = strlen(number.text);
    for (int missing = f->after - (int)(count - point - 1); missing > 0; missing--)
        number.text[count++] = ' ';
    number.text[count] = 0;
    return aligned(number.text, point, f->before);
}

/* ----------------------------------------------------------------------------------------------------------- layout */

typedef struct writer {
    const shown *shown;
    const format *format;
    char *text;
    size_t length, capacity, line_start;
    bool failed;
} writer;

static void put(writer *w, const char *text)
{
    size_t count = strlen(text);
    if (w->failed)
        return;
    if (w->length + count + 1 > w->capacity) {
        size_t capacity = 2 * (w->length + count + 1);
        char *grown = PyMem_Realloc(w->text, capacity);
        if (!grown) {
            w->failed = true;
            return;
        }
        w->text = grown;
        w->capacity = capacity;
    }
    memcpy(w->text + w->length, text, count + 1);
    w->length += count;
}

static void put_line(writer *w, int indent)
{
    while (w->length && w->text[w->length - 1] == ' ')
        w->length--;
    put(w, "\n");
    w->line_start = w->length;
    for (int i = 0; i < indent; i++)
        put(w, " ");
}

/* A word of the innermost axis, on a new line where it would pass column `limit`; the first on a line always stays. */
static void put_word(writer *w, const char *word, int indent, int limit)
{
    size_t column = w->length - w->line_start;
    if (column > (size_t)indent && column + strlen(word) > (size_t)limit)
        put_line(w, indent);
    put(w, word);
}

/* `room`: the columns that the closing brackets of enclosing axes leave. */
static void put_axis(writer *w, int axis, const char *element, int indent, int room)
{
    const qb_tensor *tensor = w->shown->tensor;
    size_t size = qb_dtype_size(tensor->dtype);
    if (axis == tensor->rank) {
        put(w, element_text(w->format, element).text);
        return;
    }
    bool innermost = axis == tensor->rank - 1;
    for (int i = axis + 1; i < tensor->rank; i++)
        size *= (size_t)tensor->shape[i];
    put(w, "[");
    int64_t extent = tensor->shape[axis];
    for (int64_t i = 0; i < extent; i++) {
        if (i > 0) {
            put(w, innermost ? ", " : ",");
            for (int blank = 1; !innermost && blank < tensor->rank - axis - 1; blank++)
                put(w, "\n");
            if (!innermost)
                put_line(w, indent + 1);
        }
        bool cut = is_cut(w->shown, axis) && i == EDGE;
        if (innermost)
            put_word(w, cut ? "..." : element_text(w->format, element + (size_t)i * size).text, indent + 1, room - 1);
        else if (cut)
            put(w, "...");
        else
            put_axis(w, axis + 1, element + (size_t)i * size, indent + 1, room - 1);
        if (cut)
            i = extent - EDGE - 1;
    }
    put(w, "]");
}

/* ", shape=(2000,), dtype=float64)" on the last line if there is room: an array that shows too little to tell its
 * shape names it. */
static void put_type(writer *w, int indent)
{
    const qb_tensor *tensor = w->shown->tensor;
    char type[64 + sizeof(qb_shape_text)];
    bool shape_shows = !w->shown->summarized && (tensor->size > 0 || (tensor->rank == 1));
    if (shape_shows)
        (void)snprintf(type, sizeof type, "dtype=%s)", qb_dtype_name(tensor->dtype));
    else
        (void)snprintf(type, sizeof type, "shape=%s, dtype=%s)", qb_print_shape(tensor->rank, tensor->shape).text,
                       qb_dtype_name(tensor->dtype));
    put(w, ",");
    if (w->length - w->line_start + strlen(type) + 1 > LINE_WIDTH)
        put_line(w, indent);
    else
        put(w, " ");
    put(w, type);
}

PyObject *qbpy_tensor_repr(PyObject *self)
{
    static const char prefix[] = "Tensor(";
    const qb_tensor *tensor = qbpy_tensor_get(self);
    shown all = {tensor, tensor->size > SUMMARY_ABOVE};
    format f = choose_format(&all);
    writer w = {.shown = &all, .format = &f};
    int indent = (int)sizeof prefix - 1;
    put(&w, prefix);
    if (tensor->size == 0)
        put(&w, "[]");
    else
        put_axis(&w, 0, tensor->data, indent, LINE_WIDTH - 1);
    put_type(&w, indent);
    PyObject *text = w.failed ? PyErr_NoMemory() : PyUnicode_FromStringAndSize(w.text, (Py_ssize_t)w.length);
    PyMem_Free(w.text);
    return text;
}
