/* Eager calls as cached programs.
 *
 * The key of a call is a row of words: the function, its parameters, and dtype, weakness and shape of every operand.
 * Values are not part of it, so x * 0.1 and x * 0.2 share a program. The cache is a hash table under a mutex, held for
 * the look-up only; a program found is retained, so that it may be evicted while it runs. Eviction goes round the
 * entries and drops the first that has not been used since its last visit (the clock algorithm, Corbato 1968). */
#include "base/allocate.h"
#include "program/program.h"

#include <pthread.h>

enum { MOST_ENTRIES = 4096, BUCKETS = 8192, FEW_WORDS = 128 };

/* A call made ready. */
typedef struct callable {
    qb_program *program;
    const char *failure; /* what fails where its last output, which is no result, is true; NULL: there is no such */
    int32_t result_count;
    bool result_weak;
} callable;

typedef struct entry {
    struct entry *next; /* of the bucket */
    callable callable;
    uint64_t hash;
    bool used;
    int32_t word_count;
    uint64_t words[];
} entry;

struct qb_eager_cache {
    pthread_mutex_t mutex;
    int32_t entry_count, hand;
    entry *entries[MOST_ENTRIES];
    entry *buckets[BUCKETS];
};

qb_status qb_eager_cache_create(qb_eager_cache **out)
{
    qb_eager_cache *cache = qb_allocate_zeroed(1, sizeof *cache);
    if (!cache)
        return qb_fail_memory();
    if (pthread_mutex_init(&cache->mutex, NULL) != 0) {
        qb_free(cache);
        return qb_fail(QB_ERROR_RUNTIME, "context: the system gave no mutex");
    }
    *out = cache;
    return QB_OK;
}

static void end_entry(entry *e)
{
    qb_program_release(e->callable.program);
    qb_free(e);
}

void qb_eager_cache_destroy(qb_eager_cache *cache)
{
    for (int32_t i = 0; i < cache->entry_count; i++)
        end_entry(cache->entries[i]);
    (void)pthread_mutex_destroy(&cache->mutex);
    qb_free(cache);
}

/* ---- Keys */

typedef struct key {
    uint64_t *words;
    int32_t count;
    uint64_t hash;
    uint64_t few[FEW_WORDS];
} key;

static int parameter_count(const qb_function *function)
{
    return function->parameter_count - function->operand_parameters;
}

static size_t key_size(const qb_function *function, const qb_attribute *parameters, int operand_count,
                       qb_tensor *const *operands)
{
    size_t size = 2;
    for (int i = 0; i < parameter_count(function); i++)
        size +=
            2 + (size_t)(parameters[i].kind == QB_ATTRIBUTE_INTS && parameters[i].count > 0 ? parameters[i].count : 0);
    for (int i = 0; i < operand_count; i++)
        size += 1 + (size_t)(operands[i] ? operands[i]->rank : 0);
    return size;
}

static void write_parameter(key *k, const qb_attribute *parameter)
{
    k->words[k->count++] = (uint64_t)parameter->kind | (uint64_t)(uint32_t)parameter->count << 32;
    if (parameter->kind != QB_ATTRIBUTE_INTS) {
        k->words[k->count++] = (uint64_t)parameter->integer; /* or the bits of the number, or an address */
        return;
    }
    for (int i = 0; i < parameter->count; i++)
        k->words[k->count++] = (uint64_t)parameter->integers[i];
}

static qb_status make_key(key *k, const qb_function *function, const qb_attribute *parameters, int operand_count,
                          qb_tensor *const *operands, const bool *weak)
{
    k->words = k->few;
    k->count = 0;
    size_t size = key_size(function, parameters, operand_count, operands);
    if (size > FEW_WORDS && !(k->words = qb_allocate(size * sizeof *k->words)))
        return qb_fail_memory();
    k->words[k->count++] = (uint64_t)(uintptr_t)function;
    k->words[k->count++] = (uint64_t)operand_count;
    for (int i = 0; i < parameter_count(function); i++)
        write_parameter(k, &parameters[i]);
    for (int i = 0; i < operand_count; i++) {
        const qb_tensor *operand = operands[i];
        if (!operand) {
            k->words[k->count++] = UINT64_MAX;
            continue;
        }
        bool is_weak = weak && weak[i];
        k->words[k->count++] = (uint64_t)operand->dtype | (uint64_t)operand->rank << 8 | (uint64_t)is_weak << 16;
        for (int axis = 0; axis < operand->rank; axis++)
            k->words[k->count++] = (uint64_t)operand->shape[axis];
    }
    uint64_t hash = 0;
    for (int i = 0; i < k->count; i++) {
        hash = (hash ^ k->words[i]) * 0x9e3779b97f4a7c15u; /* Fibonacci hashing (Knuth, TAOCP 3, 6.4) */
        hash ^= hash >> 32;
    }
    k->hash = hash;
    return QB_OK;
}

static void end_key(key *k)
{
    if (k->words != k->few)
        qb_free(k->words);
}

/* ---- Look-up */

static entry *find_entry(const qb_eager_cache *cache, const key *k)
{
    for (entry *e = cache->buckets[k->hash % BUCKETS]; e; e = e->next)
        if (e->hash == k->hash && e->word_count == k->count &&
            memcmp(e->words, k->words, (size_t)k->count * sizeof *k->words) == 0)
            return e;
    return NULL;
}

/* With a reference to the program for the caller; false when there is none. */
static bool look_up(qb_eager_cache *cache, const key *k, callable *out)
{
    (void)pthread_mutex_lock(&cache->mutex);
    entry *found = find_entry(cache, k);
    if (found) {
        found->used = true;
        *out = found->callable;
        (void)qb_program_retain(out->program);
    }
    (void)pthread_mutex_unlock(&cache->mutex);
    return found != NULL;
}

static entry *evict(qb_eager_cache *cache)
{
    while (cache->entries[cache->hand]->used) {
        cache->entries[cache->hand]->used = false;
        cache->hand = (cache->hand + 1) % MOST_ENTRIES;
    }
    entry *victim = cache->entries[cache->hand];
    entry **link = &cache->buckets[victim->hash % BUCKETS];
    while (*link != victim)
        link = &(*link)->next;
    *link = victim->next;
    return victim;
}

/* Keeps the program, unless another thread has stored one for the key meanwhile. */
static qb_status store(qb_eager_cache *cache, const key *k, const callable *made)
{
    entry *fresh = qb_allocate(sizeof *fresh + (size_t)k->count * sizeof *k->words), *unused = fresh;
    if (!fresh)
        return qb_fail_memory();
    *fresh = (entry){.callable = *made, .hash = k->hash, .used = true, .word_count = k->count};
    (void)qb_program_retain(made->program);
    memcpy(fresh->words, k->words, (size_t)k->count * sizeof *k->words);
    (void)pthread_mutex_lock(&cache->mutex);
    if (!find_entry(cache, k)) {
        int32_t place = cache->entry_count;
        unused = NULL;
        if (cache->entry_count == MOST_ENTRIES) {
            unused = evict(cache);
            place = cache->hand;
            cache->hand = (cache->hand + 1) % MOST_ENTRIES;
        } else {
            cache->entry_count++;
        }
        cache->entries[place] = fresh;
        fresh->next = cache->buckets[k->hash % BUCKETS];
        cache->buckets[k->hash % BUCKETS] = fresh;
    }
    (void)pthread_mutex_unlock(&cache->mutex);
    if (unused)
        end_entry(unused);
    return QB_OK;
}

/* ---- Misses */

static qb_status build_graph(const qb_function *function, const qb_attribute *parameters, int operand_count,
                             qb_tensor *const *operands, const bool *weak, qb_value *values, qb_graph *graph,
                             callable *out)
{
    for (int i = 0; i < operand_count; i++) {
        const qb_tensor *operand = operands[i];
        values[i] = QB_NONE;
        if (operand)
            QB_TRY(qb_graph_input(graph, NULL, operand->dtype, operand->rank, operand->shape, &values[i]));
    }
    qb_call call = {.graph = graph,
                    .function = function,
                    .operand_count = operand_count,
                    .operand = values,
                    .weak = weak,
                    .parameter = parameters};
    QB_TRY(qb_function_build(&call));
    out->result_weak = call.result_weak;
    for (int i = 0; i < function->result_count && call.results[i] != QB_NONE; i++, out->result_count++)
        QB_TRY(qb_graph_output(graph, call.results[i]));
    if (call.failed < 0)
        return QB_OK;
    out->failure = call.failure;
    return qb_graph_output(graph, call.failed);
}

static qb_status compile_call(qb_context *context, const qb_function *function, const qb_attribute *parameters,
                              int operand_count, qb_tensor *const *operands, const bool *weak, callable *out)
{
    enum { FEW = 8 };
    qb_value few[FEW], *values = few;
    qb_graph *graph;
    if (operand_count > FEW && !(values = qb_allocate((size_t)operand_count * sizeof *values)))
        return qb_fail_memory();
    qb_status status = qb_graph_create(&graph);
    if (status == QB_OK) {
        status = build_graph(function, parameters, operand_count, operands, weak, values, graph, out);
        if (status == QB_OK)
            status = qb_compile(context, graph, "cpu", &out->program);
        qb_graph_release(graph);
    }
    if (values != few)
        qb_free(values);
    return status;
}

/* ---- Calls */

static qb_status run(qb_program *program, int operand_count, qb_tensor *const *operands, qb_tensor **out)
{
    enum { FEW = 8 };
    if (program->input_count == operand_count)
        return qb_run(program, operands, out);
    qb_tensor *few[FEW] = {NULL}, **present = few; /* absent operands are no inputs */
    if (program->input_count > FEW && !(present = qb_allocate((size_t)program->input_count * sizeof *present)))
        return qb_fail_memory();
    int count = 0;
    for (int i = 0; i < operand_count; i++)
        if (operands[i])
            present[count++] = operands[i];
    qb_status status = qb_run(program, present, out);
    if (present != few)
        qb_free(present);
    return status;
}

/* The first entry that is true: which matrix of the batch it is, if there are more. */
static qb_status fail_for(const qb_function *function, const char *failure, const qb_tensor *failed, int64_t entry)
{
    int64_t index[QB_MAX_RANK], rest = entry;
    if (failed->rank == 0)
        return qb_fail(QB_ERROR_VALUE, "%s: the matrix %s", function->name, failure);
    for (int axis = failed->rank - 1; axis >= 0; axis--) {
        index[axis] = rest % failed->shape[axis];
        rest /= failed->shape[axis];
    }
    return qb_fail(QB_ERROR_VALUE, "%s: the matrix at batch index %s %s", function->name,
                   qb_print_shape(failed->rank, index).text, failure);
}

static qb_status run_and_check(const qb_function *function, const callable *made, int operand_count,
                               qb_tensor *const *operands, qb_tensor **out)
{
    qb_tensor *results[QB_MAX_RESULTS + 1];
    QB_TRY(run(made->program, operand_count, operands, results));
    const qb_tensor *failed = results[made->result_count];
    qb_status status = QB_OK;
    for (int64_t i = 0; i < failed->size && status == QB_OK; i++)
        if (((const bool *)failed->data)[i])
            status = fail_for(function, made->failure, failed, i);
    for (int i = 0; i < made->result_count; i++) {
        out[i] = results[i];
        if (status != QB_OK)
            qb_tensor_release(results[i]);
    }
    qb_tensor_release(results[made->result_count]);
    return status;
}

qb_status qb_call_eagerly(qb_context *context, const qb_function *function, const qb_attribute *parameters,
                          int operand_count, qb_tensor *const *operands, const bool *weak, qb_tensor **out,
                          bool *out_weak)
{
    key k;
    QB_TRY(make_key(&k, function, parameters, operand_count, operands, weak));
    qb_eager_cache *cache = qb_context_eager_cache(context);
    callable made = {0};
    qb_status status = QB_OK;
    if (!look_up(cache, &k, &made)) {
        status = compile_call(context, function, parameters, operand_count, operands, weak, &made);
        if (status == QB_OK)
            status = store(cache, &k, &made);
    }
    end_key(&k);
    if (status == QB_OK)
        status = qb_check_call(function, parameters, operand_count, operands);
    if (status == QB_OK)
        status = made.failure ? run_and_check(function, &made, operand_count, operands, out)
                              : run(made.program, operand_count, operands, out);
    for (int i = made.result_count; status == QB_OK && i < function->result_count; i++)
        out[i] = NULL;
    if (status == QB_OK && out_weak)
        *out_weak = made.result_weak;
    qb_program_release(made.program);
    return status;
}
