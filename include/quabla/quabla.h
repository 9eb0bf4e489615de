/* Quabla: differentiable array programs as graphs, compiled and run.
 *
 * This is the whole public interface of libquabla. The life of a program:
 *
 *     qb_context_create -> qb_graph_create, qb_graph_input, qb_apply ..., qb_graph_output
 *                       -> qb_graph_gradient / qb_graph_jvp / qb_graph_vmap      (graph to graph)
 *                       -> qb_compile -> qb_run(tensors) -> tensors
 *
 * Rules that hold everywhere:
 * - Handles are opaque. What a function named create, retain or an out parameter hands over belongs to the caller, who
 *   ends it with the matching release or destroy; those accept NULL.
 * - A function that can fail returns qb_status; qb_error_message() then says what was wrong, what was expected, and
 *   where. After a failure out parameters are untouched and every argument is as it was. Nothing aborts, exits or
 *   prints.
 * - Tensors and programs are immutable and may be used from any thread. A graph is built by one thread at a time; a
 *   context may be shared. Reference counts are atomic.
 * - Shapes are row-major, of rank 0 to QB_MAX_RANK; extents may be 0.
 */
#ifndef QUABLA_H
#define QUABLA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define QB_API __declspec(dllexport)
#else
#define QB_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------------------------------------------------------- status */

typedef enum qb_status {
    QB_OK = 0,
    QB_ERROR_VALUE,       /* a value, shape or dtype that cannot be */
    QB_ERROR_TYPE,        /* a thing of the wrong kind */
    QB_ERROR_INDEX,       /* an index outside its axis */
    QB_ERROR_MEMORY,      /* out of memory */
    QB_ERROR_UNSUPPORTED, /* an operation that a device lacks, or a device that is not there; see qb_error_operation */
    QB_ERROR_RUNTIME,     /* a program that could not finish */
    QB_ERROR_INTERRUPTED, /* a run that qb_context_on_poll's function stopped */
    QB_ERROR_NONFINITE,   /* a result with NaN or an infinity, where that was asked about */
    QB_ERROR_INTERNAL     /* a fault of the library itself */
} qb_status;

/* The message of the calling thread's last failure; valid until its next call into the library. Never NULL. */
QB_API const char *qb_error_message(void);
/* For QB_ERROR_UNSUPPORTED: the operation and the device it is missing on; "" otherwise. */
QB_API const char *qb_error_operation(void);
QB_API const char *qb_error_device(void);

/* ----------------------------------------------------------------------------------------------------------- dtypes */

typedef enum qb_dtype {
    QB_FLOAT64,
    QB_FLOAT32,
    QB_BOOL, /* one byte, 0 or 1 */
    QB_INT32,
    QB_INT64,
    QB_UINT32,
    QB_UINT64,
    QB_DTYPE_COUNT
} qb_dtype;

QB_API const char *qb_dtype_name(qb_dtype dtype); /* "float64", "bool", ... */
QB_API size_t qb_dtype_size(qb_dtype dtype);      /* bytes of an element */

/* ---------------------------------------------------------------------------------------------------------- tensors */

#define QB_MAX_RANK 32

/* An immutable, contiguous, row-major array. */
typedef struct qb_tensor qb_tensor;

/* A new tensor of the given shape with a copy of `data`, or with unset elements when `data` is NULL (write them through
 * qb_tensor_data before the tensor is given to anybody else). QB_ERROR_VALUE for a rank or size out of range. */
QB_API qb_status qb_tensor_create(qb_dtype dtype, int rank, const int64_t *shape, const void *data, qb_tensor **out);
QB_API qb_tensor *qb_tensor_retain(qb_tensor *tensor);
QB_API void qb_tensor_release(qb_tensor *tensor);
QB_API qb_dtype qb_tensor_dtype(const qb_tensor *tensor);
QB_API int qb_tensor_rank(const qb_tensor *tensor);
QB_API const int64_t *qb_tensor_shape(const qb_tensor *tensor);
QB_API int64_t qb_tensor_size(const qb_tensor *tensor); /* number of elements */
QB_API void *qb_tensor_data(const qb_tensor *tensor);   /* row-major elements, aligned to 64 bytes */

/* --------------------------------------------------------------------------------------------------------- contexts */

/* What calls share: the programs of functions called on tensors directly, as the Python package does. (Work buffers
 * belong to their program.) */
typedef struct qb_context qb_context;

QB_API qb_status qb_context_create(qb_context **out);
QB_API void qb_context_destroy(qb_context *context); /* after everything made with it is released */
/* Has `poll` called about fifty times a second by running loops, from the thread that runs them; NULL: nobody.
 * Anything but QB_OK ends the run with that status (QB_ERROR_INTERRUPTED is meant for it). To be set before the
 * context is used. */
QB_API void qb_context_on_poll(qb_context *context, qb_status (*poll)(void *data), void *data);

/* ----------------------------------------------------------------------------------------------------------- graphs */

/* A pure function as a graph of primitive operations: inputs, nodes in topological order, outputs. */
typedef struct qb_graph qb_graph;

/* A value of a graph: the result of one of its nodes. */
typedef int32_t qb_value;
#define QB_NONE   ((qb_value)(-1)) /* no value: an absent operand, a tangent that is zero */
#define QB_FAILED ((qb_value)(-2)) /* the value could not be made; operations on it fail alike */

QB_API qb_status qb_graph_create(qb_graph **out);
QB_API qb_graph *qb_graph_retain(qb_graph *graph);
QB_API void qb_graph_release(qb_graph *graph);

/* A new input; `name` (may be NULL, is copied) shows in text and messages. QB_ERROR_VALUE for a rank or size out of
 * range. */
QB_API qb_status qb_graph_input(qb_graph *graph, const char *name, qb_dtype dtype, int rank, const int64_t *shape,
                                qb_value *out);
/* A constant; equal constants are one value. The graph keeps a reference. */
QB_API qb_status qb_graph_constant(qb_graph *graph, qb_tensor *tensor, qb_value *out);
/* Declares the next output, of any dtype and shape; a value may be several outputs. QB_ERROR_VALUE: not a value of
 * the graph. */
QB_API qb_status qb_graph_output(qb_graph *graph, qb_value value);

/* The nodes made from now on come from this line of a user's program: texts and messages name it. `file` is copied;
 * NULL: unknown. What transforms make of a node has that node's line. */
QB_API void qb_graph_set_source(qb_graph *graph, const char *file, int line);

QB_API int qb_graph_input_count(const qb_graph *graph);
QB_API int qb_graph_output_count(const qb_graph *graph);
QB_API qb_value qb_graph_output_at(const qb_graph *graph, int index);
/* What a value is; QB_DTYPE_COUNT, -1 and NULL for a number that is no value of the graph. */
QB_API qb_dtype qb_graph_dtype(const qb_graph *graph, qb_value value);
QB_API int qb_graph_rank(const qb_graph *graph, qb_value value);
QB_API const int64_t *qb_graph_shape(const qb_graph *graph, qb_value value);

/* Applies a function of the library, with NumPy's broadcasting and promotion: qb_apply(g, "sum", 1, &x, "axis=-1,
 * keepdims=True", &y). `parameters` are written as in Python ("" or NULL for the defaults). See qb_function_name for
 * the list. `out` gets one value, or as many as qb_function_result_count says ("linalg.slogdet": 2; those that a
 * call does not give are -1). QB_ERROR_VALUE for an unknown function, shapes that do not broadcast and dtypes that
 * do not mix or are not taken; QB_ERROR_TYPE for a wrong number of operands and for parameters of the wrong kind.
 * The message names the function and the shapes or dtypes. */
QB_API qb_status qb_apply(qb_graph *graph, const char *function, int operand_count, const qb_value *operands,
                          const char *parameters, qb_value *out);
QB_API int qb_function_count(void);
QB_API const char *qb_function_name(int index);
QB_API const char *qb_function_signature(int index); /* "x, axis=None, keepdims=False" */
QB_API const char *qb_function_summary(int index);
QB_API int qb_function_result_count(int index); /* values that qb_apply stores; 1 for most */

/* Hands values to the host whenever the graph is run, also where no output needs them: see qb_on_print. What is
 * batched is handed over example by example; derivatives do not print. QB_ERROR_VALUE: not values of the graph. */
QB_API qb_status qb_graph_print(qb_graph *graph, const char *format, int count, const qb_value *values);

/* A value to print: row-major elements, valid during the call. */
typedef struct qb_printed {
    qb_dtype dtype;
    int rank;
    const int64_t *shape;
    const void *data;
} qb_printed;
/* Called by programs, in the thread that runs them, for qb_graph_print's values; `format` is what was given there.
 * NULL: nothing is printed. One for the process. */
typedef void (*qb_print_function)(const char *format, int count, const qb_printed *values);
QB_API void qb_on_print(qb_print_function function);

/* The canonical text: one line a node, `%3 = mul(%1, %2) : float64[8]`. The caller ends it with qb_text_free. */
QB_API qb_status qb_graph_text(const qb_graph *graph, char **out);
QB_API void qb_text_free(char *text);

/* ------------------------------------------------------------------------------------------------------- transforms */

/* `wrt` lists inputs to differentiate by: indices, floating, each once; anything else is QB_ERROR_VALUE. A gradient,
 * tangent or cotangent has dtype and shape of what it belongs to. */

/* The graph of the outputs followed by the gradients of output 0, a floating scalar (else QB_ERROR_VALUE), in the
 * inputs `wrt`. Inputs are those of `graph`. Reverse mode; where the only `wrt` is a scalar, forward mode unless
 * reverse takes less than 60 % of its operations (qb_cost.flops), or is the only one. */
QB_API qb_status qb_graph_gradient(const qb_graph *graph, int wrt_count, const int *wrt, qb_graph **out);
/* Inputs: those of `graph`, then a tangent for each input in `wrt`. Outputs: those of `graph`, then the tangent of
 * each floating one. */
QB_API qb_status qb_graph_jvp(const qb_graph *graph, int wrt_count, const int *wrt, qb_graph **out);
/* Inputs: those of `graph`, then a cotangent for each floating output. Outputs: those of `graph`, then the
 * cotangents of `wrt`. */
QB_API qb_status qb_graph_vjp(const qb_graph *graph, int wrt_count, const int *wrt, qb_graph **out);
/* The graph over a batch of `size` examples (0 or more): inputs with mapped[i], one flag for each input, and all
 * outputs get a leading axis of that extent. QB_ERROR_VALUE where one has QB_MAX_RANK axes already. */
QB_API qb_status qb_graph_vmap(const qb_graph *graph, const bool *mapped, int64_t size, qb_graph **out);

/* --------------------------------------------------------------------------------------------------------- programs */

/* Whether a program can be compiled for the device: QB_ERROR_VALUE for an unknown spelling, QB_ERROR_UNSUPPORTED,
 * naming what is missing, for a device that is not there. */
QB_API qb_status qb_device_check(const char *device);
/* The devices that can run here, in order; NULL past the last. */
QB_API const char *qb_device_name(int index);

/* A compiled graph. */
typedef struct qb_program qb_program;

/* Compiles for `device`: "cpu". The program keeps what it needs of the graph, which may be released. Errors: those of
 * qb_device_check, and QB_ERROR_UNSUPPORTED for an operation that the device lacks. */
QB_API qb_status qb_compile(qb_context *context, const qb_graph *graph, const char *device, qb_program **out);
QB_API qb_program *qb_program_retain(qb_program *program);
QB_API void qb_program_release(qb_program *program);
/* Runs: inputs[i] of exactly the dtype and shape of input i (else QB_ERROR_VALUE); outputs[i] receive tensors that
 * the caller releases. An output that is an input or a constant is that tensor. Any number of threads at once, each
 * with work memory of its own; QB_ERROR_MEMORY where there is none. */
QB_API qb_status qb_run(qb_program *program, qb_tensor *const *inputs, qb_tensor **outputs);
/* Whether the outputs of a run on these inputs are finite. Where one is not, the program is run again with all
 * results kept, and QB_ERROR_NONFINITE names the operation that made the first number that is not, the line it comes
 * from (see qb_graph_set_source; for a derivative, that of the operation that it is the derivative of), and the
 * range of its operands. */
QB_API qb_status qb_check_finite(qb_program *program, qb_tensor *const *inputs, qb_tensor *const *outputs);
/* What a run costs, estimated from the plan; nothing is executed. A loop counts as often as it runs, of branches the
 * costliest. */
typedef struct qb_cost {
    /* Floating-point operations: 1 for an addition or a test, 4 for a division or a root, 8 for an elementary function;
     * 2 m n k for a product of matrices. */
    int64_t flops;
    int64_t bytes;      /* read from and written to arrays, by each step once */
    int64_t peak_bytes; /* of work memory and outputs */
} qb_cost;
QB_API void qb_program_cost(const qb_program *program, qb_cost *out);
/* The plan as text: steps, kernels, buffers. End with qb_text_free. */
QB_API qb_status qb_program_text(const qb_program *program, char **out);

#ifdef __cplusplus
}
#endif

#endif
