/* The message of a thread's last failure. Fixed buffers: reporting that memory ran out must not need memory. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[1024];
static _Thread_local char operation_name[64];
static _Thread_local char device_name[64];

static void record(const char *operation, const char *device, const char *format, va_list arguments)
{
    /* Formatted aside first: an argument may be the previous message. */
    char text[sizeof message];
    (void)vsnprintf(text, sizeof text, format, arguments);
    (void)snprintf(message, sizeof message, "%s", text);
    (void)snprintf(operation_name, sizeof operation_name, "%s", operation);
    (void)snprintf(device_name, sizeof device_name, "%s", device);
}

qb_status qb_fail(qb_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    record("", "", format, arguments);
    va_end(arguments);
    return status;
}

qb_status qb_fail_memory(void)
{
    return qb_fail(QB_ERROR_MEMORY, "out of memory");
}

qb_status qb_fail_unsupported(const char *operation, const char *device, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    record(operation, device, format, arguments);
    va_end(arguments);
    return QB_ERROR_UNSUPPORTED;
}

const char *qb_error_message(void)
{
    return message;
}

const char *qb_error_operation(void)
{
    return operation_name;
}

const char *qb_error_device(void)
{
    return device_name;
}
