/* A growing text, for printing graphs and programs. */
#ifndef QB_BASE_TEXT_H
#define QB_BASE_TEXT_H

#include "base/status.h"

typedef struct qb_text {
    char *text; /* NUL-terminated once anything was added; freed by qb_text_free */
    size_t length, capacity;
    bool failed; /* memory ran out: what was added since is missing */
} qb_text;

void qb_text_add(qb_text *text, const char *format, ...) QB_PRINTF(2, 3);

/* Hands the text over, or reports that memory ran out. */
qb_status qb_text_take(qb_text *text, char **out);

/* The shortest decimal that reads back as the same double (or float), with "nan", "inf", "-inf". */
void qb_text_add_number(qb_text *text, double number, bool single);

#endif
