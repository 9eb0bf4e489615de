/* A small parser of what stands between the parentheses of a call: signatures, and the parameters that qb_apply takes
 * as text.
 *
 * Values are Python's literals: None, True, 3, -0.5, (0, 1), float32, and for an index 0, 1:-1:2, None, ... in a tuple.
 * Which of them a parameter takes depends on its kind alone. */
#include "functions/signature.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const kind_names[] = {
    [QB_PARAMETER_OPERAND] = "array", [QB_PARAMETER_OPERANDS] = "operands", [QB_PARAMETER_INT] = "int",
    [QB_PARAMETER_BOOL] = "bool",     [QB_PARAMETER_NUMBER] = "number",     [QB_PARAMETER_AXIS] = "axis",
    [QB_PARAMETER_AXES] = "axes",     [QB_PARAMETER_SHAPE] = "shape",       [QB_PARAMETER_DTYPE] = "dtype",
    [QB_PARAMETER_PAIRS] = "pairs",   [QB_PARAMETER_WIDTHS] = "widths",     [QB_PARAMETER_TEXT] = "text",
    [QB_PARAMETER_INDEX] = "index",   [QB_PARAMETER_INDICES] = "indices",
};

/* ---- Words. A cursor is a pointer into the text, moved past what was read. */

static void skip_space(const char **cursor)
{
    while (isspace((unsigned char)**cursor))
        (*cursor)++;
}

static bool read_character(const char **cursor, char expected)
{
    skip_space(cursor);
    if (**cursor != expected)
        return false;
    (*cursor)++;
    return true;
}

/* A name of at most room - 1 letters, digits and underscores. */
static bool read_name(const char **cursor, size_t room, char *out)
{
    skip_space(cursor);
    size_t length = 0;
    while (isalnum((unsigned char)(*cursor)[length]) || (*cursor)[length] == '_')
        length++;
    if (length == 0 || length >= room || isdigit((unsigned char)**cursor))
        return false;
    memcpy(out, *cursor, length);
    out[length] = '\0';
    *cursor += length;
    return true;
}

/* The given word, and not a longer one. */
static bool read_word(const char **cursor, const char *word)
{
    const char *start = *cursor;
    char name[32];
    if (read_name(cursor, sizeof name, name) && strcmp(name, word) == 0)
        return true;
    *cursor = start;
    return false;
}

static bool read_integer(const char **cursor, int64_t *out)
{
    skip_space(cursor);
    char *end;
    errno = 0;
    long long value = strtoll(*cursor, &end, 10);
    if (end == *cursor || errno == ERANGE || *end == '.' || *end == 'e' || *end == 'E')
        return false;
    *cursor = end;
    *out = value;
    return true;
}

static bool keep(qb_integers *space, int64_t integer)
{
    if (space->count >= space->capacity)
        return false;
    space->data[space->count++] = integer;
    return true;
}

/* ---- Values */

/* strtod for numbers with a decimal point, whatever the locale makes of it. */
static double read_double(const char *text, char **end)
{
    char own[64];
    const char *point = localeconv()->decimal_point;
    size_t length = strspn(text, "+-.0123456789eEinfatyINFATY"), point_length = strlen(point), used = 0, before = 0;
    bool has_point = false;
    for (size_t i = 0; i < length && used + point_length < sizeof own; i++) {
        if (text[i] != '.') {
            own[used++] = text[i];
        } else if (!has_point) {
            memcpy(own + used, point, point_length);
            used += point_length;
            before = i;
            has_point = true;
        } else {
            break;
        }
    }
    own[used] = '\0';
    char *own_end;
    double number = strtod(own, &own_end);
    size_t read = (size_t)(own_end - own);
    if (has_point && read > before)
        read -= point_length - 1;
    *end = (char *)(uintptr_t)text + read;
    return number;
}

static bool read_number(const char **cursor, qb_attribute *out)
{
    char *end;
    skip_space(cursor);
    double number = read_double(*cursor, &end);
    if (end == *cursor)
        return false;
    *cursor = end;
    *out = (qb_attribute){.kind = QB_ATTRIBUTE_NUMBER, .number = number};
    return true;
}

static bool read_dtype(const char **cursor, qb_attribute *out)
{
    char name[32], quote = '\0';
    skip_space(cursor);
    if (**cursor == '\'' || **cursor == '"')
        quote = *(*cursor)++;
    if (!read_name(cursor, sizeof name, name) || (quote && !read_character(cursor, quote)))
        return false;
    for (int dtype = 0; dtype < QB_DTYPE_COUNT; dtype++) {
        if (strcmp(name, qb_dtype_name((qb_dtype)dtype)) == 0 || (dtype == QB_BOOL && strcmp(name, "bool_") == 0)) {
            *out = qb_int(dtype);
            return true;
        }
    }
    return false;
}

/* One item, or a parenthesised sequence of them, with a comma after the last allowed. */
static bool read_sequence(const char **cursor, qb_integers *space, bool (*read_item)(const char **, qb_integers *))
{
    skip_space(cursor);
    char close = **cursor == '(' ? ')' : **cursor == '[' ? ']' : '\0';
    if (!close)
        return read_item(cursor, space);
    (*cursor)++;
    while (!read_character(cursor, close)) {
        if (!read_item(cursor, space))
            return false;
        if (read_character(cursor, close))
            return true;
        if (!read_character(cursor, ','))
            return false;
    }
    return true;
}

static bool read_integer_item(const char **cursor, qb_integers *space)
{
    int64_t integer;
    return read_integer(cursor, &integer) && keep(space, integer);
}

static bool read_integers(const char **cursor, qb_attribute *out, qb_integers *space)
{
    int first = space->count;
    if (!read_sequence(cursor, space, read_integer_item))
        return false;
    *out = qb_ints(space->count - first, space->data + first);
    return true;
}

/* n, or (axes of a, axes of b). */
static bool read_pairs(const char **cursor, qb_attribute *out, qb_integers *space)
{
    int first = space->count;
    skip_space(cursor);
    if (!keep(space, 0))
        return false;
    if (!read_character(cursor, '(')) {
        if (!read_integer(cursor, &space->data[first]))
            return false;
    } else {
        qb_attribute of_a, of_b;
        if (!read_integers(cursor, &of_a, space) || !read_character(cursor, ',') ||
            !read_integers(cursor, &of_b, space) || !read_character(cursor, ')') || of_a.count != of_b.count)
            return false;
        space->data[first] = of_a.count;
    }
    *out = qb_ints(space->count - first, space->data + first);
    return true;
}

/* n, or (n, m), or ((n, m), ...). */
static bool read_width_item(const char **cursor, qb_integers *space)
{
    int64_t first, second;
    if (!read_character(cursor, '('))
        return read_integer(cursor, &first) && keep(space, first) && keep(space, first);
    return read_integer(cursor, &first) && read_character(cursor, ',') && read_integer(cursor, &second) &&
           read_character(cursor, ')') && keep(space, first) && keep(space, second);
}

static bool read_widths(const char **cursor, qb_attribute *out, qb_integers *space)
{
    const char *start = *cursor;
    int first = space->count;
    if (!read_width_item(cursor, space)) { /* not a number, nor a pair of them */
        *cursor = start;
        space->count = first;
        if (!read_sequence(cursor, space, read_width_item))
            return false;
    }
    *out = qb_ints(space->count - first, space->data + first);
    return true;
}

int qb_pack_text(size_t length, const char *text, int capacity, int64_t *out)
{
    if ((length + 7) / 8 > (size_t)capacity)
        return -1;
    int count = (int)((length + 7) / 8);
    for (int i = 0; i < count; i++) {
        uint64_t word = 0;
        for (size_t k = 8 * (size_t)i; k < length && k < 8 * (size_t)i + 8; k++)
            word |= (uint64_t)(unsigned char)text[k] << (8 * (k % 8));
        out[i] = (int64_t)word;
    }
    return count;
}

bool qb_attribute_text(const qb_attribute *text, size_t room, char *out)
{
    size_t length = 0;
    for (int i = 0; i < 8 * text->count; i++) {
        char character = (char)((uint64_t)text->integers[i / 8] >> (8 * (i % 8)) & 255);
        if (character && length + 1 < room)
            out[length++] = character;
        else if (character)
            return false;
    }
    out[length] = '\0';
    return true;
}

/* Between quotes of one kind. */
static bool read_text(const char **cursor, qb_attribute *out, qb_integers *space)
{
    skip_space(cursor);
    char quote = **cursor;
    const char *start = *cursor + 1, *end = quote == '\'' || quote == '"' ? strchr(start, quote) : NULL;
    if (!end)
        return false;
    int count = qb_pack_text((size_t)(end - start), start, space->capacity - space->count, space->data + space->count);
    if (count < 0)
        return false;
    *out = qb_ints(count, space->data + space->count);
    space->count += count;
    *cursor = end + 1;
    return true;
}

static bool read_index_item(const char **cursor, qb_integers *space)
{
    int64_t entry[QB_INDEX_FIELDS] = {QB_INDEX_SLICE, QB_INDEX_ABSENT, QB_INDEX_ABSENT, QB_INDEX_ABSENT};
    skip_space(cursor);
    if (strncmp(*cursor, "...", 3) == 0) {
        *cursor += 3;
        entry[0] = QB_INDEX_ELLIPSIS;
    } else if (read_word(cursor, "None")) {
        entry[0] = QB_INDEX_NEW_AXIS;
    } else if (read_character(cursor, '%')) { /* %k: index array k */
        entry[0] = QB_INDEX_ARRAY;
        if (!read_integer(cursor, &entry[1]) || entry[1] < 0)
            return false;
    } else {
        bool has_integer = read_integer(cursor, &entry[1]);
        bool is_slice = read_character(cursor, ':');
        if (!has_integer && !is_slice)
            return false;
        if (!is_slice) {
            entry[0] = QB_INDEX_INTEGER;
        } else {
            (void)read_integer(cursor, &entry[2]);
            if (read_character(cursor, ':'))
                (void)read_integer(cursor, &entry[3]);
        }
    }
    for (int i = 0; i < QB_INDEX_FIELDS; i++)
        if (!keep(space, entry[i]))
            return false;
    return true;
}

static bool read_index(const char **cursor, qb_attribute *out, qb_integers *space)
{
    int first = space->count;
    if (!read_sequence(cursor, space, read_index_item))
        return false;
    *out = qb_ints(space->count - first, space->data + first);
    return true;
}

static bool read_value(const char **cursor, qb_parameter_kind kind, qb_attribute *out, qb_integers *space)
{
    int64_t integer;
    switch (kind) {
    case QB_PARAMETER_OPERAND:
    case QB_PARAMETER_OPERANDS:
    case QB_PARAMETER_INDICES: *out = qb_none_attribute(); return read_word(cursor, "None");
    case QB_PARAMETER_INT:
        if (!read_integer(cursor, &integer))
            return false;
        *out = qb_int(integer);
        return true;
    case QB_PARAMETER_BOOL:
        *out = qb_int(1);
        if (read_word(cursor, "True"))
            return true;
        *out = qb_int(0);
        return read_word(cursor, "False");
    case QB_PARAMETER_NUMBER: *out = qb_none_attribute(); return read_word(cursor, "None") || read_number(cursor, out);
    case QB_PARAMETER_AXIS:
        *out = qb_none_attribute();
        return read_word(cursor, "None") || (read_integers(cursor, out, space) && out->count == 1);
    case QB_PARAMETER_AXES:
        *out = qb_none_attribute();
        return read_word(cursor, "None") || read_integers(cursor, out, space);
    case QB_PARAMETER_SHAPE: return read_integers(cursor, out, space);
    case QB_PARAMETER_DTYPE: *out = qb_int(-1); return read_word(cursor, "None") || read_dtype(cursor, out);
    case QB_PARAMETER_PAIRS: return read_pairs(cursor, out, space);
    case QB_PARAMETER_WIDTHS: return read_widths(cursor, out, space);
    case QB_PARAMETER_TEXT: return read_text(cursor, out, space);
    case QB_PARAMETER_INDEX: return read_index(cursor, out, space);
    }
    return false;
}

/* ---- Signatures */

static bool read_kind(const char **cursor, qb_parameter_kind *out)
{
    char word[16];
    if (!read_name(cursor, sizeof word, word))
        return false;
    for (size_t kind = 0; kind < sizeof kind_names / sizeof *kind_names; kind++) {
        if (strcmp(word, kind_names[kind]) == 0) {
            *out = (qb_parameter_kind)kind;
            return true;
        }
    }
    return false;
}

/* name[: kind][= default]; the text as a Python signature has it, without the kind, is appended to call_text. */
static bool read_parameter(const char **cursor, qb_function *function, size_t *used)
{
    qb_parameter *parameter = &function->parameter[function->parameter_count];
    parameter->kind = QB_PARAMETER_OPERAND;
    parameter->is_spread = read_character(cursor, '*');
    if (!read_name(cursor, sizeof parameter->name, parameter->name))
        return false;
    if (read_character(cursor, ':') && !read_kind(cursor, &parameter->kind))
        return false;
    size_t room = sizeof function->call_text - *used;
    *used += (size_t)snprintf(function->call_text + *used, room, "%s%s%s", function->parameter_count ? ", " : "",
                              parameter->is_spread ? "*" : "", parameter->name);
    parameter->has_default = read_character(cursor, '=');
    if (parameter->has_default) {
        skip_space(cursor);
        const char *start = *cursor;
        qb_integers space = {&parameter->default_integer, 0, 1};
        if (!read_value(cursor, parameter->kind, &parameter->default_value, &space) ||
            *used >= sizeof function->call_text)
            return false;
        if (!parameter->is_spread)
            *used += (size_t)snprintf(function->call_text + *used, sizeof function->call_text - *used, "=%.*s",
                                      (int)(*cursor - start), start);
    }
    function->parameter_count++;
    return *used < sizeof function->call_text;
}

/* Nothing, for one result; else the names of several. */
static bool read_results(const char **cursor, qb_function *function)
{
    function->result_count = 1;
    if (read_character(cursor, '-')) {
        if (!read_character(cursor, '>'))
            return false;
        function->result_count = 0;
        do {
            if (function->result_count == QB_MAX_RESULTS ||
                !read_name(cursor, sizeof *function->result_name, function->result_name[function->result_count++]))
                return false;
        } while (read_character(cursor, ','));
    }
    skip_space(cursor);
    return **cursor == '\0';
}

bool qb_parse_signature(qb_function *function)
{
    const char *cursor = function->signature;
    size_t used = 0;
    do {
        if (function->parameter_count == QB_MAX_PARAMETERS || !read_parameter(&cursor, function, &used))
            return false;
        qb_parameter *parameter = &function->parameter[function->parameter_count - 1];
        function->takes_index = function->takes_index || parameter->kind == QB_PARAMETER_INDEX;
        function->takes_indices =
            function->takes_index || parameter->kind == QB_PARAMETER_INDICES || function->takes_indices;
        if (!qb_parameter_is_operand(parameter)) {
            parameter->place = function->parameter_count - 1 - function->operand_parameters;
            continue;
        }
        if (function->takes_operand_list)
            return false; /* a list is the last of the operands */
        parameter->place = function->operand_parameters;
        function->operand_at[function->operand_parameters++] = function->parameter_count - 1;
        function->takes_operand_list = parameter->kind == QB_PARAMETER_OPERANDS;
        function->required_operands += parameter->kind != QB_PARAMETER_OPERANDS && !parameter->has_default;
    } while (read_character(&cursor, ','));
    return read_results(&cursor, function);
}

/* ---- Parameters of a call */

static int find_parameter(const qb_function *function, const char *name)
{
    for (int i = 0; i < function->parameter_count; i++)
        if (!qb_parameter_is_operand(&function->parameter[i]) && strcmp(function->parameter[i].name, name) == 0)
            return i;
    return -1;
}

static qb_status fail_to_parse(const qb_function *function, const char *text, const char *rest)
{
    return qb_fail(QB_ERROR_VALUE, "%s: cannot read the parameters \"%s\" from \"%.40s\" on; the signature is %s(%s)",
                   function->name, text, rest, function->name, function->call_text);
}

qb_status qb_parse_parameters(const qb_function *function, const char *text, qb_attribute *parameters,
                              qb_integers *space)
{
    bool given[QB_MAX_PARAMETERS] = {false};
    const char *cursor = text ? text : "";
    text = cursor;
    for (skip_space(&cursor); *cursor; skip_space(&cursor)) {
        char name[16];
        const char *start = cursor;
        if (!read_name(&cursor, sizeof name, name) || !read_character(&cursor, '='))
            return fail_to_parse(function, text, start);
        int i = find_parameter(function, name);
        if (i < 0)
            return qb_fail(QB_ERROR_TYPE, "%s: no parameter is named '%s'; the signature is %s(%s)", function->name,
                           name, function->name, function->call_text);
        if (given[i])
            return qb_fail(QB_ERROR_TYPE, "%s: parameter '%s' is given twice", function->name, name);
        const char *value = cursor;
        if (!read_value(&cursor, function->parameter[i].kind, &parameters[function->parameter[i].place], space))
            return fail_to_parse(function, text, value);
        given[i] = true;
        if (!read_character(&cursor, ',') && *cursor)
            return fail_to_parse(function, text, cursor);
    }
    for (int i = 0; i < function->parameter_count; i++) {
        const qb_parameter *parameter = &function->parameter[i];
        if (given[i] || qb_parameter_is_operand(parameter))
            continue;
        if (!parameter->has_default)
            return qb_fail(QB_ERROR_TYPE, "%s: parameter '%s' is missing; the signature is %s(%s)", function->name,
                           parameter->name, function->name, function->call_text);
        parameters[function->parameter[i].place] = parameter->default_value;
    }
    return QB_OK;
}
