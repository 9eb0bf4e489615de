/* Memory that is written once and then executed. */
#ifndef QB_CODEGEN_PAGES_H
#define QB_CODEGEN_PAGES_H

#include "codegen/codegen.h"

/* A copy of `size` bytes of code, to be freed by qb_code_pages_free; false where the system gives no such memory. */
bool qb_code_pages_make(size_t size, const void *bytes, qb_code_pages *out);

#endif
