/* Signatures and parameter values in text form, as Python writes them. */
#ifndef QB_FUNCTIONS_SIGNATURE_H
#define QB_FUNCTIONS_SIGNATURE_H

#include "functions/function.h"

/* Fills in what a function derives from its signature; false when the signature is not well formed. */
bool qb_parse_signature(qb_function *function);

/* Space for the integers of parsed attributes. */
typedef struct qb_integers {
    int64_t *data;
    int count, capacity;
} qb_integers;

/* The function's parameters that are not operands from "axis=-1, keepdims=True", defaults standing for the others.
 * `parameters` has QB_MAX_PARAMETERS entries, which point into `space`. */
qb_status qb_parse_parameters(const qb_function *function, const char *text, qb_attribute *parameters,
                              qb_integers *space);

#endif
