/* Threads for one piece of work at a time: fixed chunks, claimed from a counter.
 *
 * What a chunk is does not depend on the number of threads, so neither do results. The calling thread works, too;
 * where the workers are busy for another caller, it works alone. Workers wait for the next piece for some
 * microseconds, then sleep; woken, they run on other processors than the caller's. A forked child starts workers of its
 * own when it needs them. */
#ifndef QB_BASE_THREADS_H
#define QB_BASE_THREADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { QB_MOST_THREADS = 32 };

/* Threads that take part, the caller included: QUABLA_NUM_THREADS, or the processors this process may use. */
int qb_thread_count(void);

/* work(data, chunk, worker) for each chunk in 0 .. chunks-1, each once, in any order; worker is below
 * qb_thread_count() and below chunks, and no two calls with the same one run at once. Returns when all are done. */
typedef void (*qb_chunk_work)(void *data, int64_t chunk, int worker);
void qb_parallel(int64_t chunks, qb_chunk_work work, void *data);

/* How many different workers that can be. */
static inline int64_t qb_worker_limit(int64_t chunks)
{
    return chunks < qb_thread_count() ? chunks : qb_thread_count();
}

/* memcpy; of megabytes, by all threads. */
void qb_parallel_copy(void *target, const void *source, size_t size);

/* Whether qb_parallel would find the workers free now: not within a chunk, nor while another thread's work is being
 * done. For work whose results do not depend on how it is cut, and that is done faster in one piece by one thread. */
bool qb_parallel_is_free(void);

#endif
