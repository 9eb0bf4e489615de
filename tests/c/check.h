/* What the C tests share: checks that name themselves and end the test, and short ways to make tensors, graphs and
 * programs. */
#ifndef CHECK_H
#define CHECK_H

#include "base/allocate.h"
#include "ops/build.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* CHECK(condition) or CHECK(condition, "format", ...): says what did not hold, and where. */
#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            check_failed(__FILE__, __LINE__, #condition, " " __VA_ARGS__);                                             \
    } while (0)

/* The call succeeds; else its message is shown. */
#define OK(call) CHECK((call) == QB_OK, "[%s]", qb_error_message())

/* The call fails with the status, and the message has the part. */
#define FAILS(call, status, part)                                                                                      \
    do {                                                                                                               \
        CHECK((call) == (status));                                                                                     \
        CHECK(strstr(qb_error_message(), part), "the message lacks \"%s\" [%s]", part, qb_error_message());            \
    } while (0)

QB_PRINTF(4, 5)
static inline _Noreturn void check_failed(const char *file, int line, const char *condition, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "%s:%d: not true: %s%s\n", file, line, condition, text);
    exit(1);
}

/* The test again, in a process of its own with these variables, where what is chosen once is chosen anew. */
static inline void check_again(const char *program, const char *argument, const char *variables)
{
    char command[4096];
    const char *emulator = getenv("MESON_EXE_WRAPPER"); /* of another processor */
    (void)snprintf(command, sizeof command, "%s %s '%s' %s", variables, emulator ? emulator : "", program, argument);
    CHECK(system(command) == 0, "%s", variables);
}

/* rank and extents of a shape, where a function takes both: SHAPE(2, 3); SCALAR for rank 0 */
#define INTEGERS(...) ((const int64_t[]){__VA_ARGS__})
#define SHAPE(...)    (int)(sizeof INTEGERS(__VA_ARGS__) / sizeof(int64_t)), INTEGERS(__VA_ARGS__)
#define SCALAR        0, NULL

static inline qb_value check_input(qb_graph *graph, qb_dtype dtype, int rank, const int64_t *shape)
{
    qb_value value;
    OK(qb_graph_input(graph, NULL, dtype, rank, shape, &value));
    return value;
}

static inline void check_output(qb_graph *graph, qb_value value)
{
    OK(qb_graph_take_status(graph));
    OK(qb_graph_output(graph, value));
}

/* A tensor of the given elements; without `elements` they are unset. */
static inline qb_tensor *check_tensor(qb_dtype dtype, int rank, const int64_t *shape, const double *elements)
{
    qb_tensor *tensor;
    OK(qb_tensor_create(dtype, rank, shape, NULL, &tensor));
    for (int64_t i = 0; elements && i < tensor->size; i++)
        qb_dtype_store(dtype, elements[i], (char *)tensor->data + (size_t)i * qb_dtype_size(dtype));
    return tensor;
}

static inline double check_element(const qb_tensor *tensor, int64_t index)
{
    return qb_dtype_load(tensor->dtype, (const char *)tensor->data + (size_t)index * qb_dtype_size(tensor->dtype));
}

/* Compiles and runs: outputs receive new tensors. */
static inline void check_run(qb_context *context, const qb_graph *graph, qb_tensor *const *inputs, qb_tensor **outputs)
{
    qb_program *program;
    OK(qb_verify(graph));
    OK(qb_compile(context, graph, "cpu", &program));
    OK(qb_run(program, inputs, outputs));
    qb_program_release(program);
}

static inline void check_release(int count, qb_tensor *const *tensors)
{
    for (int i = 0; i < count; i++)
        qb_tensor_release(tensors[i]);
}

static inline void check_text(const qb_graph *graph, const char *expected)
{
    char *text;
    OK(qb_graph_text(graph, &text));
    CHECK(strcmp(text, expected) == 0, "the text is\n%s\nexpected\n%s", text, expected);
    qb_text_free(text);
}

/* A fixed sequence of numbers in [0, 1) (Marsaglia's xorshift). */
static inline double check_random(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) * 0x1p-53;
}

#endif
