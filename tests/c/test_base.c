/* The base: dtypes and their promotion, shapes and their limits, tensors, arenas, texts, messages, the failing
 * allocator. */
#include "base/arena.h"
#include "base/text.h"
#include "check.h"

/* ---- Dtypes */

static void test_dtypes(void)
{
    static const struct {
        const char *name;
        size_t size;
        char kind;
    } expected[] = {{"float64", 8, 'f'}, {"float32", 4, 'f'}, {"bool", 1, 'b'},  {"int32", 4, 'i'},
                    {"int64", 8, 'i'},   {"uint32", 4, 'u'},  {"uint64", 8, 'u'}};
    for (int i = 0; i < QB_DTYPE_COUNT; i++) {
        CHECK(strcmp(qb_dtype_name((qb_dtype)i), expected[i].name) == 0);
        CHECK(qb_dtype_size((qb_dtype)i) == expected[i].size && qb_dtype_kind((qb_dtype)i) == expected[i].kind);
    }
}

/* Every pair, in the order float64 float32 bool int32 int64 uint32 uint64; -1 is an error. */
static void test_promotion(void)
{
    enum {
        D = QB_FLOAT64,
        F = QB_FLOAT32,
        B = QB_BOOL,
        I = QB_INT32,
        L = QB_INT64,
        U = QB_UINT32,
        V = QB_UINT64,
        X = -1
    };
    static const int table[QB_DTYPE_COUNT][QB_DTYPE_COUNT] = {
        {D, X, D, D, D, D, D}, {X, F, F, F, F, F, F}, {D, F, B, I, L, U, V}, {D, F, I, I, L, L, X},
        {D, F, L, L, L, L, X}, {D, F, U, L, L, U, V}, {D, F, V, X, X, V, V},
    };
    for (int a = 0; a < QB_DTYPE_COUNT; a++)
        for (int b = 0; b < QB_DTYPE_COUNT; b++) {
            qb_dtype met;
            qb_status status = qb_dtype_promote("add", (qb_dtype)a, (qb_dtype)b, &met);
            const char *left = qb_dtype_name((qb_dtype)a), *right = qb_dtype_name((qb_dtype)b);
            if (table[a][b] >= 0) {
                CHECK(status == QB_OK && (int)met == table[a][b], "%s with %s", left, right);
                continue;
            }
            CHECK(status == QB_ERROR_VALUE && strncmp(qb_error_message(), "add:", 4) == 0, "%s with %s", left, right);
            CHECK(strstr(qb_error_message(), left) && strstr(qb_error_message(), right), "%s with %s", left, right);
            CHECK(strstr(qb_error_message(), "astype"), "%s with %s", left, right);
        }
}

static double stored(qb_dtype dtype, double number)
{
    uint64_t element = 0;
    qb_dtype_store(dtype, number, &element);
    return qb_dtype_load(dtype, &element);
}

/* Truncation, saturation, and zero for NaN. */
static void test_elements(void)
{
    CHECK(stored(QB_FLOAT64, 0.1) == 0.1 && stored(QB_FLOAT32, 0.1) == (double)0.1f);
    CHECK(stored(QB_FLOAT32, 1e300) == INFINITY && isnan(stored(QB_FLOAT32, NAN)));
    CHECK(stored(QB_BOOL, 0.5) == 1 && stored(QB_BOOL, -0.0) == 0 && stored(QB_BOOL, NAN) == 1);
    CHECK(stored(QB_INT32, -2.9) == -2 && stored(QB_INT32, 3e9) == INT32_MAX && stored(QB_INT32, -3e9) == INT32_MIN);
    CHECK(stored(QB_INT64, 1e30) == 0x1p63 && stored(QB_INT64, -INFINITY) == -0x1p63 && stored(QB_INT64, NAN) == 0);
    CHECK(stored(QB_UINT32, -1) == 0 && stored(QB_UINT32, 5e9) == UINT32_MAX && stored(QB_UINT32, 7.9) == 7);
    CHECK(stored(QB_UINT64, 1e30) == 0x1p64 && stored(QB_UINT64, -1e30) == 0);
    int64_t exact;
    qb_dtype_store_integer(QB_INT64, INT64_MAX, &exact);
    CHECK(exact == INT64_MAX);
}

/* ---- Shapes */

static void test_shapes(void)
{
    int64_t size, many[QB_MAX_RANK + 1];
    for (int i = 0; i <= QB_MAX_RANK; i++)
        many[i] = 1;
    OK(qb_shape_size(SCALAR, 8, &size));
    CHECK(size == 1);
    OK(qb_shape_size(SHAPE(2, 3, 4), 8, &size));
    CHECK(size == 24);
    OK(qb_shape_size(SHAPE(5, 0, 7), 8, &size));
    CHECK(size == 0);
    OK(qb_shape_size(QB_MAX_RANK, many, 8, &size));
    CHECK(size == 1);
    OK(qb_shape_size(SHAPE(INT64_C(1) << 57), 8, &size));
    FAILS(qb_shape_size(QB_MAX_RANK + 1, many, 8, &size), QB_ERROR_VALUE, "rank 33");
    FAILS(qb_shape_size(-1, many, 8, &size), QB_ERROR_VALUE, "rank -1");
    FAILS(qb_shape_size(SHAPE(2, -3), 8, &size), QB_ERROR_VALUE, "(2, -3)");
    FAILS(qb_shape_size(SHAPE(INT64_C(1) << 58), 8, &size), QB_ERROR_VALUE, "too many elements");
    FAILS(qb_shape_size(SHAPE(INT64_C(1) << 32, INT64_C(1) << 32), 1, &size), QB_ERROR_VALUE, "too many elements");
    FAILS(qb_shape_size(SHAPE(INT64_MAX, INT64_MAX, 0), 8, &size), QB_ERROR_VALUE, "too many elements");
    FAILS(qb_shape_size(SHAPE(0, INT64_MAX, 2), 8, &size), QB_ERROR_VALUE, "too many elements");
}

static void test_shape_texts(void)
{
    CHECK(strcmp(qb_print_shape(SCALAR).text, "()") == 0);
    CHECK(strcmp(qb_print_shape(SHAPE(4)).text, "(4,)") == 0);
    CHECK(strcmp(qb_print_shape(SHAPE(2, 0, 3)).text, "(2, 0, 3)") == 0);
    CHECK(strcmp(qb_print_type(QB_FLOAT32, SHAPE(2, 3)).text, "float32[2,3]") == 0);
    CHECK(strcmp(qb_print_type(QB_BOOL, SCALAR).text, "bool[]") == 0);
    int64_t long_shape[QB_MAX_RANK];
    for (int i = 0; i < QB_MAX_RANK; i++)
        long_shape[i] = INT64_MAX;
    qb_shape_text text = qb_print_shape(QB_MAX_RANK, long_shape);
    CHECK(strlen(text.text) < sizeof text.text && strcmp(text.text + strlen(text.text) - 4, "...)") == 0);
}

/* ---- Tensors */

static void test_tensors(void)
{
    const double data[] = {1, 2, 3, 4, 5, 6};
    qb_tensor *x = NULL, *untouched = NULL;
    OK(qb_tensor_create(QB_FLOAT64, SHAPE(2, 3), data, &x));
    CHECK(qb_tensor_dtype(x) == QB_FLOAT64 && qb_tensor_rank(x) == 2 && qb_tensor_size(x) == 6);
    CHECK(qb_tensor_shape(x)[0] == 2 && qb_tensor_shape(x)[1] == 3 && qb_tensor_bytes(x) == sizeof data);
    CHECK((uintptr_t)qb_tensor_data(x) % 64 == 0 && memcmp(qb_tensor_data(x), data, sizeof data) == 0);
    CHECK(qb_tensor_retain(x) == x);
    qb_tensor_release(x);
    CHECK(((double *)qb_tensor_data(x))[5] == 6);
    qb_tensor_release(x);
    OK(qb_tensor_create(QB_INT32, SHAPE(3, 0), NULL, &x));
    CHECK(qb_tensor_size(x) == 0 && qb_tensor_data(x));
    qb_tensor_release(x);
    qb_tensor_release(NULL);
    CHECK(!qb_tensor_retain(NULL));
    FAILS(qb_tensor_create(QB_FLOAT64, SHAPE(-1), NULL, &untouched), QB_ERROR_VALUE, "negative");
    CHECK(!untouched);
}

static void test_memory_that_is_not_there(void)
{
    qb_tensor *untouched = NULL;
    qb_allocate_fail_at(1);
    FAILS(qb_tensor_create(QB_FLOAT64, SHAPE(2, 3), NULL, &untouched), QB_ERROR_MEMORY,
          "48 bytes for an array of shape (2, 3)");
    CHECK(!untouched && qb_allocate_has_failed());
    qb_allocate_fail_at(2); /* only the chosen one */
    for (int i = 1; i <= 3; i++) {
        void *memory = qb_allocate(1);
        CHECK((memory == NULL) == (i == 2) && qb_allocate_has_failed() == (i >= 2));
        qb_free(memory);
    }
    qb_allocate_fail_at(0);
    CHECK(!qb_allocate_has_failed());
    CHECK(!qb_allocate_aligned(SIZE_MAX) && !qb_allocate_zeroed(SIZE_MAX / 2, 4));
}

/* ---- Arenas, arrays, texts, messages */

static void test_arena(void)
{
    qb_arena arena = {0};
    char *pieces[200];
    for (size_t i = 0; i < 200; i++) {
        size_t size = i * i;
        pieces[i] = qb_arena_allocate(&arena, size);
        CHECK(pieces[i] && (uintptr_t)pieces[i] % 8 == 0);
        memset(pieces[i], (int)i, size);
    }
    for (size_t i = 0; i < 200; i++)
        for (size_t k = 0; k < i * i; k++)
            CHECK(pieces[i][k] == (char)i);
    qb_arena_free(&arena);
    CHECK(!arena.block);
    qb_arena_free(&arena);
}

static void test_growing_array(void)
{
    int *array = NULL;
    int32_t count = 0, capacity = 0;
    for (; count < 1000; count++) {
        CHECK(QB_GROW(array, count, capacity, 1) && capacity > count);
        array[count] = (int)count;
    }
    for (int i = 0; i < 1000; i++)
        CHECK(array[i] == i);
    CHECK(!qb_grow((void **)&array, sizeof *array, INT32_MAX / 2, &capacity, 1));
    qb_free(array);
}

static void test_numbers_in_text(void)
{
    static const struct {
        double number;
        bool single;
        const char *expected;
    } rows[] = {{0.1, false, "0.1"},
                {1.0 / 3, false, "0.3333333333333333"},
                {(double)0.1f, true, "0.1"},
                {-0.0, false, "-0"},
                {1e300, false, "1e+300"},
                {INFINITY, false, "inf"},
                {-INFINITY, false, "-inf"},
                {5e-324, false, "5e-324"},
                {123456789, false, "123456789"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qb_text text = {0};
        char *taken;
        qb_text_add_number(&text, rows[i].number, rows[i].single);
        OK(qb_text_take(&text, &taken));
        CHECK(strcmp(taken, rows[i].expected) == 0, "%s, expected %s", taken, rows[i].expected);
        qb_text_free(taken);
    }
    qb_text text = {0};
    char *taken;
    qb_text_add_number(&text, NAN, false);
    OK(qb_text_take(&text, &taken));
    CHECK(strstr(taken, "nan"));
    qb_text_free(taken);
    qb_text_free(NULL);
}

static void test_messages(void)
{
    (void)qb_fail_unsupported("sort", "cuda", "%s is missing", "sort");
    CHECK(strcmp(qb_error_operation(), "sort") == 0 && strcmp(qb_error_device(), "cuda") == 0);
    /* an argument may be the last message, and a message may be long */
    (void)qb_fail(QB_ERROR_VALUE, "because: %s", qb_error_message());
    CHECK(strcmp(qb_error_message(), "because: sort is missing") == 0);
    CHECK(qb_error_operation()[0] == '\0' && qb_error_device()[0] == '\0');
    (void)qb_fail(QB_ERROR_VALUE, "%5000d", 1);
    CHECK(strlen(qb_error_message()) > 500);
}

int main(void)
{
    CHECK(qb_error_message() && qb_error_message()[0] == '\0');
    test_dtypes();
    test_promotion();
    test_elements();
    test_shapes();
    test_shape_texts();
    test_tensors();
    test_memory_that_is_not_there();
    test_arena();
    test_growing_array();
    test_numbers_in_text();
    test_messages();
    return 0;
}
