/* A growing text. */
#include "base/text.h"

#include "base/allocate.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void qb_text_add(qb_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    size_t needed = text->length + (size_t)(length < 0 ? 0 : length) + 1;
    if (needed > text->capacity) {
        size_t capacity = needed * 2 < 256 ? 256 : needed * 2;
        char *moved = qb_reallocate(text->text, capacity);
        if (!moved) {
            text->failed = true;
            return;
        }
        text->text = moved;
        text->capacity = capacity;
    }
    va_start(arguments, format);
    (void)vsnprintf(text->text + text->length, text->capacity - text->length, format, arguments);
    va_end(arguments);
    text->length = needed - 1;
}

qb_status qb_text_take(qb_text *text, char **out)
{
    qb_text_add(text, "%s", ""); /* so that an empty text is a text too */
    if (text->failed) {
        qb_free(text->text);
        return qb_fail_memory();
    }
    *out = text->text;
    return QB_OK;
}

void qb_text_add_number(qb_text *text, double number, bool single)
{
    char digits[40];
    if (fabs(number) < 1e6 && number == trunc(number)) {
        qb_text_add(text, "%.0f", number); /* 10, not 1e+01 */
        return;
    }
    for (int precision = 1; precision <= 17; precision++) {
        (void)snprintf(digits, sizeof digits, "%.*g", precision, number);
        bool same = single ? strtof(digits, NULL) == (float)number : strtod(digits, NULL) == number;
        if (same || isnan(number))
            break;
    }
    qb_text_add(text, "%s", digits);
}

void qb_text_free(char *text)
{
    qb_free(text);
}
