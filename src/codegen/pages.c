/* Executable memory. */
#include "codegen/pages.h"

#include <string.h>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>

bool qb_code_pages_make(size_t size, const void *bytes, qb_code_pages *out)
{
    *out = (qb_code_pages){NULL, 0};
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    memcpy(memory, bytes, size);
    if (mprotect(memory, size, PROT_READ | PROT_EXEC) != 0) {
        (void)munmap(memory, size);
        return false;
    }
    *out = (qb_code_pages){memory, size};
    return true;
}

void qb_code_pages_free(qb_code_pages *pages)
{
    if (pages->memory)
        (void)munmap(pages->memory, pages->size);
    *pages = (qb_code_pages){NULL, 0};
}

#else

bool qb_code_pages_make(size_t size, const void *bytes, qb_code_pages *out)
{
    (void)size, (void)bytes;
    *out = (qb_code_pages){NULL, 0};
    return false;
}

void qb_code_pages_free(qb_code_pages *pages)
{
    (void)pages;
}

#endif
