#include "base/source.h"

#include "base/allocate.h"

#include <pthread.h>
#include <string.h>

typedef struct entry {
    const char *file; /* one copy for all lines of a file that follow one another in the table */
    int32_t line;
    int32_t next; /* of the entries with the same hash; 0 ends */
} entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry *entries; /* entry 0 is not used */
static int32_t count = 1, capacity;
static int32_t *buckets; /* as many as there is room for entries, at least */
static int32_t bucket_count;

static uint32_t hash_of(const char *file, int line)
{
    uint32_t hash = (uint32_t)line * 0x9e3779b9u;
    for (const char *c = file; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u; /* FNV */
    return hash;
}

static bool grow(void)
{
    if (count < bucket_count)
        return true;
    int32_t wanted = bucket_count ? 2 * bucket_count : 256;
    int32_t *grown = qb_allocate_zeroed((size_t)wanted, sizeof *grown);
    if (!grown || !QB_GROW(entries, count, capacity, wanted - count)) {
        qb_free(grown);
        return false;
    }
    for (int32_t i = 1; i < count; i++) {
        int32_t *bucket = &grown[hash_of(entries[i].file, entries[i].line) & (uint32_t)(wanted - 1)];
        entries[i].next = *bucket;
        *bucket = i;
    }
    qb_free(buckets);
    buckets = grown;
    bucket_count = wanted;
    return true;
}

static const char *keep(const char *file)
{
    if (count > 1 && strcmp(entries[count - 1].file, file) == 0)
        return entries[count - 1].file;
    size_t size = strlen(file) + 1;
    char *copy = qb_allocate(size);
    if (copy)
        memcpy(copy, file, size);
    return copy;
}

static int32_t add(const char *file, int line)
{
    const char *kept = grow() ? keep(file) : NULL;
    if (!kept)
        return 0;
    int32_t *bucket = &buckets[hash_of(file, line) & (uint32_t)(bucket_count - 1)];
    entries[count] = (entry){kept, line, *bucket};
    *bucket = count;
    return count++;
}

int32_t qb_source_intern(const char *file, int line)
{
    (void)pthread_mutex_lock(&lock);
    int32_t found = bucket_count ? buckets[hash_of(file, line) & (uint32_t)(bucket_count - 1)] : 0;
    while (found && (entries[found].line != line || strcmp(entries[found].file, file) != 0))
        found = entries[found].next;
    if (!found)
        found = add(file, line);
    (void)pthread_mutex_unlock(&lock);
    return found;
}

const char *qb_source_find(int32_t source, int *line)
{
    const char *file = NULL;
    (void)pthread_mutex_lock(&lock);
    if (source > 0 && source < count) {
        file = entries[source].file;
        *line = entries[source].line;
    }
    (void)pthread_mutex_unlock(&lock);
    return file;
}
