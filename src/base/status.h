/* Failing: a status code returned, a message kept for the calling thread.
 *
 * `return qb_fail(QB_ERROR_VALUE, "...")` is the one way to report an error; QB_TRY passes one on. Messages say what
 * was given, what was expected, and the way out; the Python package turns status into exception in one place. */
#ifndef QB_BASE_STATUS_H
#define QB_BASE_STATUS_H

#include "quabla/quabla.h"

#define QB_TRY(call)                                                                                                   \
    do {                                                                                                               \
        qb_status qb_try_status = (call);                                                                              \
        if (qb_try_status != QB_OK)                                                                                    \
            return qb_try_status;                                                                                      \
    } while (0)

#if defined(__GNUC__)
#define QB_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define QB_PRINTF(text, first)
#endif

/* Records the message (printf style; cut at about a thousand bytes) and returns `status`. */
qb_status qb_fail(qb_status status, const char *format, ...) QB_PRINTF(2, 3);
qb_status qb_fail_memory(void);
qb_status qb_fail_unsupported(const char *operation, const char *device, const char *format, ...) QB_PRINTF(3, 4);

#endif
