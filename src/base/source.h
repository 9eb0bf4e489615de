/* Lines of users' programs, as small numbers that nodes of graphs carry. The table is the process's, only grows, and
 * has one entry for each line that operations were written on. */
#ifndef QB_BASE_SOURCE_H
#define QB_BASE_SOURCE_H

#include <stdint.h>

/* The number of a line, from 1; 0 when memory is out, which is the number of an unknown line. Safe from any thread. */
int32_t qb_source_intern(const char *file, int line);

/* The file, and the line; NULL for an unknown one. The text stays valid. */
const char *qb_source_find(int32_t source, int *line);

#endif
