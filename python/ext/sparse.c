/* compress(graph, ...): what a sparse derivative needs to know before it is traced. */
#include "transforms/sparsity.h"
#include "transforms/transforms.h"

#include "trace.h"

/* A new int64 vector of `wide` numbers, or `narrow` ones. */
static PyObject *index_vector(qbpy_state *state, int64_t count, const int64_t *wide, const int32_t *narrow)
{
    qb_tensor *tensor;
    qb_status status = qb_tensor_create(QB_INT64, 1, &count, NULL, &tensor);
    if (status != QB_OK)
        return qbpy_raise(state, status);
    int64_t *data = tensor->data;
    for (int64_t i = 0; i < count; i++)
        data[i] = wide ? wide[i] : narrow[i];
    return qbpy_tensor_wrap(state, tensor, false);
}

typedef struct compression {
    qb_pattern pattern, transposed;
    qb_compression kind;
    int32_t *colour[2]; /* of columns, of rows */
    int64_t *row, *place;
    int32_t count;
} compression;

static void compression_end(compression *c)
{
    qb_pattern_end(&c->pattern);
    qb_pattern_end(&c->transposed);
    PyMem_Free(c->colour[0]);
    PyMem_Free(c->colour[1]);
    PyMem_Free(c->row);
    PyMem_Free(c->place);
}

/* Columns or rows, whichever needs fewer colours; rows where only products with rows can be computed. */
static qb_status colour_either_way(compression *c, bool only_rows)
{
    int32_t by_rows;
    QB_TRY(qb_pattern_transpose(&c->pattern, &c->transposed));
    QB_TRY(qb_colour_columns(&c->pattern, c->colour[0], &c->count));
    QB_TRY(qb_colour_columns(&c->transposed, c->colour[1], &by_rows));
    if (only_rows || by_rows < c->count) {
        c->kind = QB_COMPRESS_ROWS;
        c->count = by_rows;
    } else {
        c->kind = QB_COMPRESS_COLUMNS;
    }
    return QB_OK;
}

static qb_status compress(compression *c, bool symmetric, bool only_rows)
{
    if (symmetric) {
        qb_pattern found = c->pattern;
        qb_status status = qb_pattern_symmetric(&found, &c->pattern);
        qb_pattern_end(status == QB_OK ? &found : &(qb_pattern){0});
        QB_TRY(status);
    }
    const qb_pattern *p = &c->pattern;
    size_t entries = (size_t)p->start[p->rows] + 1;
    c->colour[0] = PyMem_Malloc((size_t)(p->columns + 1) * sizeof(int32_t));
    c->colour[1] = PyMem_Malloc((size_t)(p->rows + 1) * sizeof(int32_t));
    c->row = PyMem_Malloc(entries * sizeof *c->row);
    c->place = PyMem_Malloc(entries * sizeof *c->place);
    if (!c->colour[0] || !c->colour[1] || !c->row || !c->place)
        return qb_fail_memory();
    c->kind = QB_COMPRESS_SYMMETRIC;
    QB_TRY(symmetric ? qb_colour_symmetric(p, c->colour[0], &c->count) : colour_either_way(c, only_rows));
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t e = p->start[r]; e < p->start[r + 1]; e++)
            c->row[e] = r;
    return qb_compressed_places(p, c->kind, c->colour[c->kind == QB_COMPRESS_ROWS], c->place);
}

PyDoc_STRVAR(
    compress_doc,
    "compress(graph, input, output, symmetric)\n--\n\n"
    "How to evaluate the Jacobian of an output by an input in few products: (rows, columns, places, colours,\n"
    "count of colours, whether the products are with rows). Entry e, at rows[e] and columns[e], stands at\n"
    "places[e] of the products, one for each colour. symmetric: the Jacobian is a Hessian. A graph without forward\n"
    "mode is evaluated by rows.");

static PyObject *compress_function(PyObject *module, PyObject *args)
{
    qbpy_state *state = qbpy_state_of(module);
    PyObject *graph;
    int input, output, symmetric;
    if (!PyArg_ParseTuple(args, "O!iip", state->graph_type, &graph, &input, &output, &symmetric))
        return NULL;
    compression c = {0};
    qb_status status = qb_sparsity(((qbpy_graph *)graph)->graph, input, output, &c.pattern);
    if (status == QB_OK)
        status = compress(&c, symmetric, qb_is_reverse_only(((qbpy_graph *)graph)->graph));
    PyObject *result = NULL;
    if (status != QB_OK) {
        qbpy_raise(state, status);
    } else {
        bool by_rows = c.kind == QB_COMPRESS_ROWS;
        int64_t entries = c.pattern.start[c.pattern.rows];
        result = Py_BuildValue(
            "NNNNiN", index_vector(state, entries, c.row, NULL), index_vector(state, entries, NULL, c.pattern.column),
            index_vector(state, entries, c.place, NULL),
            index_vector(state, by_rows ? c.pattern.rows : c.pattern.columns, NULL, c.colour[by_rows]), (int)c.count,
            PyBool_FromLong(by_rows));
    }
    compression_end(&c);
    return result;
}

static PyMethodDef functions[] = {
    {"compress", compress_function, METH_VARARGS, compress_doc},
    {NULL, NULL, 0, NULL},
};

int qbpy_sparse_install(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
