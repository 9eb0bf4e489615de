/* The pool of workers: every chunk once, no two calls with one worker number at a time, any number of callers. */
#include "base/threads.h"

#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CHUNKS = 1000, CALLERS = 6, ROUNDS = 200, SLOW_ROUNDS = 50 };

typedef struct piece {
    _Atomic int done[CHUNKS];
    _Atomic int busy[QB_MOST_THREADS];
    _Atomic int wrong;
    int64_t chunks;
} piece;

static void work(void *data, int64_t chunk, int worker)
{
    piece *p = data;
    bool valid = worker >= 0 && worker < qb_thread_count() && worker < p->chunks && chunk >= 0 && chunk < p->chunks;
    if (!valid || atomic_fetch_add(&p->busy[worker], 1) != 0)
        atomic_fetch_add(&p->wrong, 1);
    atomic_fetch_add(&p->done[chunk], 1);
    atomic_fetch_sub(&p->busy[worker], 1);
}

static void check_piece(int64_t chunks)
{
    piece *p = calloc(1, sizeof *p);
    CHECK(p != NULL);
    p->chunks = chunks;
    qb_parallel(chunks, work, p);
    CHECK(atomic_load(&p->wrong) == 0);
    for (int64_t i = 0; i < CHUNKS; i++)
        CHECK(atomic_load(&p->done[i]) == (i < chunks), "chunk %d of %d", (int)i, (int)chunks);
    free(p);
}

static void *call(void *unused)
{
    for (int i = 0; i < ROUNDS; i++)
        check_piece(i % 7 == 0 ? i % 3 : CHUNKS - i);
    return unused;
}

/* The caller's own chunks leave time for workers to join, whose chunks last longer than it looks for their end before
 * it sleeps. */
static void slow(void *data, int64_t chunk, int worker)
{
    const struct timespec time = {.tv_nsec = worker > 0 ? 2000000 : 200000};
    (void)chunk;
    (void)nanosleep(&time, NULL);
    atomic_fetch_add((_Atomic int *)data, 1);
}

static void *call_slow(void *unused)
{
    for (int i = 0; i < SLOW_ROUNDS; i++) {
        _Atomic int done = 0;
        qb_parallel(4 + i % 5, slow, &done);
        CHECK(atomic_load(&done) == 4 + i % 5);
    }
    return unused;
}

/* Fewer chunks than threads, each long enough for all workers to wake. */
static void few(void *data, int64_t chunk, int worker)
{
    const struct timespec time = {.tv_nsec = 300000};
    piece *p = data;
    (void)nanosleep(&time, NULL);
    if (worker >= p->chunks)
        atomic_fetch_add(&p->wrong, 1);
    atomic_fetch_add(&p->done[chunk], 1);
}

static void check_few(void)
{
    for (int round = 0; round < SLOW_ROUNDS; round++) {
        piece p = {.chunks = 2 + round % 2};
        qb_parallel(p.chunks, few, &p);
        CHECK(atomic_load(&p.wrong) == 0, "a worker has a number beyond the chunks");
        for (int64_t i = 0; i < p.chunks; i++)
            CHECK(atomic_load(&p.done[i]) == 1);
    }
}

#if defined(__linux__)
/* Notes on which processor each chunk that is not the caller's is done. */
static void note_processor(void *data, int64_t chunk, int worker)
{
    const struct timespec time = {.tv_nsec = 200000};
    ((int *)data)[chunk] = worker > 0 ? sched_getcpu() : -1;
    (void)nanosleep(&time, NULL);
}

/* Wherever the caller is, workers that it wakes are somewhere else, where there are as many processors as threads. */
static void check_processor(size_t processor)
{
    enum { PIECES = 16 };
    const struct timespec until_workers_sleep = {.tv_nsec = 20000000};
    cpu_set_t one;
    int noted[PIECES];
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    for (int round = 0; round < 5; round++) {
        (void)nanosleep(&until_workers_sleep, NULL);
        qb_parallel(PIECES, note_processor, noted);
        for (int i = 0; i < PIECES; i++)
            CHECK(noted[i] != (int)processor, "a worker is on the caller's processor");
    }
}

static void check_processors(void)
{
    cpu_set_t all;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    qb_parallel(2, slow, &(_Atomic int){0}); /* starts the workers, on all of them */
    int checked = 0;
    for (size_t processor = 0; processor < CPU_SETSIZE && checked < 8; processor++)
        if (CPU_ISSET(processor, &all)) {
            check_processor(processor);
            checked++;
        }
}

/* By a process of its own, with a thread for each processor; with one processor there is nothing to see. */
static void check_processors_apart(const char *program)
{
    cpu_set_t all;
    char variables[64];
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    if (CPU_COUNT(&all) < 2 || CPU_COUNT(&all) > QB_MOST_THREADS)
        return;
    (void)snprintf(variables, sizeof variables, "QUABLA_NUM_THREADS=%d", CPU_COUNT(&all));
    check_again(program, "processors", variables);
}
#endif

static void nested(void *data, int64_t chunk, int worker)
{
    (void)chunk, (void)worker;
    check_piece(5); /* the pool is taken: the thread works alone */
    atomic_fetch_add((_Atomic int *)data, 1);
}

int main(int argc, char **argv)
{
#if defined(__linux__)
    if (argc > 1) {
        check_processors();
        return 0;
    }
    check_processors_apart(argv[0]);
#endif
    (void)argc, (void)argv;
    (void)setenv("QUABLA_NUM_THREADS", "4", 1);
    CHECK(qb_thread_count() == 4);
    (void)call(NULL);
    (void)call_slow(NULL);
    check_few();
    pthread_t callers[CALLERS];
    for (int i = 0; i < CALLERS; i++)
        CHECK(pthread_create(&callers[i], NULL, i % 2 ? call : call_slow, NULL) == 0);
    for (int i = 0; i < CALLERS; i++)
        CHECK(pthread_join(callers[i], NULL) == 0);
    _Atomic int outer = 0;
    qb_parallel(50, nested, &outer);
    CHECK(atomic_load(&outer) == 50);
    return 0;
}
