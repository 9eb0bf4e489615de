/* The pool of workers. */
#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define RELAX() _mm_pause()
#else
#define RELAX() ((void)0)
#endif

enum {
    WAITS = 4000, /* turns that a worker looks for the next piece before it sleeps: some ten microseconds */
    UNKNOWN = 0
};

typedef struct pool {
    pthread_mutex_t owner; /* held by the caller whose work is being done */
    pthread_mutex_t sleep; /* for the conditions below: */
    pthread_cond_t wake;   /* there is a piece, */
    pthread_cond_t left;   /* nobody is inside */
    _Atomic int64_t piece; /* counts pieces of work; a worker joins one that it has not seen */
    _Atomic bool open;     /* whether the piece can be joined */
    _Atomic int inside;    /* workers that have joined, or are about to find that they cannot */
    _Atomic int sleepers;
    _Atomic bool owner_sleeps; /* until nobody is inside */
    _Atomic bool stop;
    _Atomic int64_t next; /* chunk to be claimed */
    int64_t chunks;
    qb_chunk_work work;
    void *data;
    int started; /* workers; -1: none can be started */
    pthread_t threads[QB_MOST_THREADS];
#if defined(__linux__)
    cpu_set_t processors;  /* that the workers may use, */
    cpu_set_t kept;        /* and those that they were last told to: all but */
    int callers_processor; /* -1: not told yet */
#endif
} pool;

#define NEW_POOL                                                                                                       \
    {                                                                                                                  \
        .owner = PTHREAD_MUTEX_INITIALIZER, .sleep = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER,      \
        .left = PTHREAD_COND_INITIALIZER                                                                               \
    }
static pool shared = NEW_POOL;
static _Atomic int known_count = UNKNOWN;

int qb_thread_count(void)
{
    int count = atomic_load_explicit(&known_count, memory_order_relaxed);
    if (count != UNKNOWN)
        return count;
    const char *wanted = getenv("QUABLA_NUM_THREADS");
    count = wanted ? atoi(wanted) : 0;
#if defined(__linux__)
    cpu_set_t set;
    if (count <= 0 && sched_getaffinity(0, sizeof set, &set) == 0)
        count = CPU_COUNT(&set);
#endif
    count = count < 1 ? 1 : count > QB_MOST_THREADS ? QB_MOST_THREADS : count;
    atomic_store_explicit(&known_count, count, memory_order_relaxed);
    return count;
}

static void work_on(pool *p, int worker)
{
    for (;;) {
        int64_t chunk = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (chunk >= p->chunks)
            return;
        p->work(p->data, chunk, worker);
    }
}

/* Waits for a piece other than `seen`; false when the pool ends. */
static bool wait_for_piece(pool *p, int64_t seen)
{
    for (int turn = 0; turn < WAITS; turn++) {
        if (atomic_load(&p->piece) != seen || atomic_load(&p->stop))
            return !atomic_load(&p->stop);
        RELAX();
    }
    (void)pthread_mutex_lock(&p->sleep);
    atomic_fetch_add(&p->sleepers, 1);
    while (atomic_load(&p->piece) == seen && !atomic_load(&p->stop))
        (void)pthread_cond_wait(&p->wake, &p->sleep);
    atomic_fetch_sub(&p->sleepers, 1);
    (void)pthread_mutex_unlock(&p->sleep);
    return !atomic_load(&p->stop);
}

static void leave(pool *p)
{
    if (atomic_fetch_sub(&p->inside, 1) == 1 && atomic_load(&p->owner_sleeps)) {
        (void)pthread_mutex_lock(&p->sleep);
        (void)pthread_cond_signal(&p->left);
        (void)pthread_mutex_unlock(&p->sleep);
    }
}

/* Each of those inside is in its last chunk. Who sleeps gets a processor that others use as soon as there is a reason;
 * who goes on asking has to wait for a turn. */
static void wait_for_others(pool *p)
{
    for (int turn = 0; turn < WAITS; turn++) {
        if (atomic_load(&p->inside) == 0)
            return;
        RELAX();
    }
    (void)pthread_mutex_lock(&p->sleep);
    atomic_store(&p->owner_sleeps, true);
    while (atomic_load(&p->inside) > 0)
        (void)pthread_cond_wait(&p->left, &p->sleep);
    atomic_store(&p->owner_sleeps, false);
    (void)pthread_mutex_unlock(&p->sleep);
}

static void *run_worker(void *argument)
{
    pool *p = &shared;
    int worker = (int)(intptr_t)argument;
    int64_t seen = 0;
    while (wait_for_piece(p, seen)) {
        atomic_fetch_add(&p->inside, 1);
        seen = atomic_load(&p->piece);
        if (atomic_load(&p->open) && worker < p->chunks)
            work_on(p, worker);
        leave(p);
    }
    return NULL;
}

/* A child has none of its parent's threads. */
static void forget_workers(void)
{
    shared = (pool)NEW_POOL;
}

/* Waits, for a second at most, until no other thread's work is being done, and takes the pool. */
static bool take_at_exit(pool *p)
{
    const struct timespec millisecond = {.tv_nsec = 1000000};
    for (int turn = 0; turn < 1000; turn++) {
        if (pthread_mutex_trylock(&p->owner) == 0)
            return true;
        (void)nanosleep(&millisecond, NULL);
    }
    return false;
}

/* From then on callers work alone. Where another thread goes on and on, the workers end with the process. */
static void end_workers(void)
{
    pool *p = &shared;
    if (!take_at_exit(p))
        return;
    atomic_store(&p->stop, true);
    (void)pthread_mutex_lock(&p->sleep);
    (void)pthread_cond_broadcast(&p->wake);
    (void)pthread_mutex_unlock(&p->sleep);
    for (int i = 0; i < p->started; i++)
        (void)pthread_join(p->threads[i], NULL);
    p->started = -1;
    (void)pthread_mutex_unlock(&p->owner);
}

/* Starts the workers, once; the caller owns the pool. */
static bool start_workers(pool *p)
{
    static atomic_flag prepared = ATOMIC_FLAG_INIT;
    if (p->started != 0)
        return p->started > 0;
    if (!atomic_flag_test_and_set(&prepared)) {
        (void)pthread_atfork(NULL, NULL, forget_workers);
        (void)atexit(end_workers);
    }
#if defined(__linux__)
    p->callers_processor = -1;
#endif
    for (int i = 1; i < qb_thread_count(); i++) {
        if (pthread_create(&p->threads[p->started], NULL, run_worker, (void *)(intptr_t)i) != 0)
            break;
        p->started++;
    }
    if (p->started == 0)
        p->started = -1;
    return p->started > 0;
}

/* Linux may wake a worker on the caller's processor, where it waits until the caller has done all the work, though
 * another one is idle: in a virtual machine a processor that halts looks like one that the host has taken away. So
 * workers that are about to be woken are kept off it, where there are processors enough. The caller owns the pool. */
static void keep_off_processor(pool *p)
{
#if defined(__linux__)
    cpu_set_t found, others;
    int processor = sched_getcpu();
    if (processor < 0 || processor == p->callers_processor ||
        pthread_getaffinity_np(p->threads[0], sizeof found, &found) != 0)
        return;
    if (!CPU_EQUAL(&found, &p->kept)) /* somebody else has chosen */
        p->processors = found;
    others = p->processors;
    CPU_CLR((size_t)processor, &others);
    if (CPU_COUNT(&others) < p->started)
        return;
    for (int i = 0; i < p->started; i++)
        (void)pthread_setaffinity_np(p->threads[i], sizeof others, &others);
    p->kept = others;
    p->callers_processor = processor;
#else
    (void)p;
#endif
}

static void work_together(pool *p, int64_t chunks, qb_chunk_work work, void *data)
{
    p->chunks = chunks;
    p->work = work;
    p->data = data;
    atomic_store(&p->next, 0);
    atomic_store(&p->open, true);
    atomic_fetch_add(&p->piece, 1);
    if (atomic_load(&p->sleepers) > 0) {
        keep_off_processor(p);
        (void)pthread_mutex_lock(&p->sleep);
        (void)pthread_cond_broadcast(&p->wake);
        (void)pthread_mutex_unlock(&p->sleep);
    }
    work_on(p, 0);
    atomic_store(&p->open, false);
    wait_for_others(p);
}

void qb_parallel(int64_t chunks, qb_chunk_work work, void *data)
{
    pool *p = &shared;
    bool owns = chunks > 1 && qb_thread_count() > 1 && pthread_mutex_trylock(&p->owner) == 0;
    if (owns && start_workers(p)) {
        work_together(p, chunks, work, data);
    } else {
        for (int64_t chunk = 0; chunk < chunks; chunk++)
            work(data, chunk, 0);
    }
    if (owns)
        (void)pthread_mutex_unlock(&p->owner);
}

/* ---- Copying */

enum { COPIED_AT_ONCE = 1 << 18, BEYOND_CACHES = 1 << 25 };

typedef struct copy {
    char *target;
    const char *source;
    size_t size;
} copy;

static void copy_chunk(void *data, int64_t chunk, int worker)
{
    const copy *c = data;
    size_t first = (size_t)chunk * COPIED_AT_ONCE, left = c->size - first;
    (void)worker;
    memcpy(c->target + first, c->source + first, left < COPIED_AT_ONCE ? left : COPIED_AT_ONCE);
}

/* What no cache holds, one memcpy moves past them, as fast as the memory takes it. */
void qb_parallel_copy(void *target, const void *source, size_t size)
{
    copy c = {target, source, size};
    if (size < 4 * COPIED_AT_ONCE || size >= BEYOND_CACHES)
        memcpy(target, source, size);
    else
        qb_parallel((int64_t)((size - 1) / COPIED_AT_ONCE + 1), copy_chunk, &c);
}

bool qb_parallel_is_free(void)
{
    pool *p = &shared;
    bool is_free = qb_thread_count() > 1 && pthread_mutex_trylock(&p->owner) == 0;
    if (is_free)
        (void)pthread_mutex_unlock(&p->owner);
    return is_free;
}
