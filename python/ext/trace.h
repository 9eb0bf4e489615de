/* Tracing: running a Python function on tracers, which record every operation in a graph.
 *
 * Traces nest: a transform called while another function is being traced opens an inner trace, whose graph is inlined
 * into the outer one when it is done. Every operation that has a tracer among its operands is recorded in the innermost
 * active trace. A tracer of an enclosing trace that is met there becomes a capture: one more input of the inner graph,
 * which stands for the outer value when the graph is inlined (qbpy_trace_lift is the one place where that happens). */
#ifndef QUABLA_EXT_TRACE_H
#define QUABLA_EXT_TRACE_H

#include "functions/function.h"
#include "quabla_ext.h"

/* Where calls came from in this trace: by code object (owned) and instruction. */
enum { QBPY_SOURCES = 64 };
typedef struct qbpy_source_cache {
    struct {
        PyObject *code;
        int instruction;
        int32_t source;
    } entries[QBPY_SOURCES];
} qbpy_source_cache;

/* The line of the innermost frame outside the package (base/source.h; 0: there is none); `cache` may be NULL. */
int32_t qbpy_current_source(qbpy_state *state, qbpy_source_cache *cache);
void qbpy_source_cache_clear(qbpy_source_cache *cache);
/* Takes the package's own frames out of the traceback of the exception that is set. */
void qbpy_trim_traceback(qbpy_state *state);

/* Whether results are to be checked for NaN and infinities on this thread (debug.c). */
bool qbpy_debug_nans(void);

/* A graph under construction. */
typedef struct qbpy_trace {
    PyObject_HEAD qb_graph *graph;
    struct qbpy_trace *parent; /* the enclosing trace, or NULL */
    bool active;               /* on the thread's stack of traces */
    PyObject *captures;        /* list of TraceTensors of enclosing traces, one for each input after the arguments */
    qb_value *capture_values;  /* the inputs that stand for them */
    Py_ssize_t capture_capacity;
    qbpy_source_cache sources;
} qbpy_trace;

/* A value of a trace. Has no elements. */
typedef struct qbpy_trace_tensor {
    PyObject_HEAD qbpy_trace *trace; /* owned */
    qb_value value;
    bool weak;
    PyObject *weakrefs;
} qbpy_trace_tensor;

static inline bool qbpy_is_tracer(const qbpy_state *state, PyObject *object)
{
    return Py_IS_TYPE(object, state->trace_tensor_type);
}

/* The dtype and shape of a tracer. */
void qbpy_tracer_type(PyObject *tracer, qb_type *out);

/* Records a call in the innermost active trace. operands[i]: NULL (absent), a TraceTensor, a Tensor, or a Python
 * number. */
PyObject *qbpy_traced_call(qbpy_state *state, const qb_function *function, const qb_attribute *parameters,
                           int operand_count, PyObject *const *operands);

/* The TracerError of an attempt to read a tracer's value; `what` is the attempt: "bool()", "float()". */
PyObject *qbpy_tracer_has_no_value(PyObject *tracer, const char *what);

/* The TracerError of a tracer whose trace has ended. Returns NULL. */
PyObject *qbpy_tracer_escaped(qbpy_state *state, PyObject *tracer);

/* A finished graph as a Python object. */
typedef struct qbpy_graph {
    PyObject_HEAD qb_graph *graph;
    bool *weak; /* of each output */
} qbpy_graph;

/* A compiled program as a Python object. */
typedef struct qbpy_program {
    PyObject_HEAD qb_program *program;
    int input_count, output_count;
    bool *weak; /* of each output */
} qbpy_program;

PyObject *qbpy_graph_wrap(qbpy_state *state, qb_graph *stolen, const bool *weak);
int qbpy_graph_install(PyObject *module); /* graph.c: Graph, Program; sparse.c */
int qbpy_sparse_install(PyObject *module);

int qbpy_control_install(PyObject *module); /* control.c */

/* The value that stands for a leaf (TraceTensor, Tensor, number) in the innermost active trace; QB_FAILED with an
 * exception set, which names the function. */
qb_value qbpy_trace_value(qbpy_state *state, const char *function, qbpy_trace *trace, PyObject *leaf, bool *weak);
qbpy_trace *qbpy_current_trace(void); /* borrowed; NULL when none is active */
PyObject *qbpy_tracer_wrap(qbpy_state *state, qbpy_trace *trace, qb_value value, bool weak);

#endif
