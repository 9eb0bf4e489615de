/* The operations that are done in vector registers. Everything else is a call of its lane kernel, which defines it;
 * what is said here has to agree with cpu/lanes.def to the bit. */
#include "codegen/lower.h"

#define SIGN_64      0x8000000000000000u
#define SIGN_32      0x8000000080000000u
#define MAGNITUDE_64 0x7fffffffffffffffu
#define MAGNITUDE_32 0x7fffffff7fffffffu
#define ONE_64       0x3ff0000000000000u
#define ONE_32       0x3f8000003f800000u

static bool is_floating(int dtype)
{
    return dtype == QB_FLOAT64 || dtype == QB_FLOAT32;
}

bool qb_code_is_arithmetic(const qb_instruction *i)
{
    switch (i->lane) {
    case QB_LANE_neg:
    case QB_LANE_abs:
    case QB_LANE_add:
    case QB_LANE_sub:
    case QB_LANE_mul:
    case QB_LANE_div:
    case QB_LANE_strong_mul:
    case QB_LANE_strong_div:
    case QB_LANE_max:
    case QB_LANE_min:
    case QB_LANE_sqrt:
    case QB_LANE_root:
    case QB_LANE_isnan:
    case QB_LANE_equal:
    case QB_LANE_not_equal:
    case QB_LANE_less:
    case QB_LANE_less_equal:
    case QB_LANE_select: return is_floating(i->dtype);
    case QB_LANE_bit_and:
    case QB_LANE_bit_or:
    case QB_LANE_bit_xor:
    case QB_LANE_bit_not: return i->dtype == QB_BOOL;
    case QB_LANE_convert: /* a copy, or from and to bool */
        return i->dtype == QB_BOOL
                   ? is_floating(i->result_dtype)
                   : is_floating(i->dtype) && (i->result_dtype == i->dtype || i->result_dtype == QB_BOOL);
    default: return false;
    }
}

/* a op the same bits in every lane */
static void combine(qb_x86 *x, qb_x86_lanes lanes, qb_x86_operation operation, int result, int a, uint64_t bits)
{
    qb_x86_broadcast(x, lanes, QB_X86_SPARE, (qb_x86_memory){.constant = qb_x86_constant(x, bits)});
    qb_x86_arithmetic(x, lanes, operation, result, a, QB_X86_SPARE);
}

static void lower_convert(qb_x86 *x, qb_x86_lanes lanes, const qb_instruction *i, int result, int a)
{
    if (i->dtype == i->result_dtype) {
        qb_x86_move(x, lanes, result, a);
    } else if (i->result_dtype == QB_BOOL) {
        qb_x86_zero(x, QB_X86_SPARE);
        qb_x86_compare(x, lanes, QB_X86_NOT_EQUAL, result, a, QB_X86_SPARE);
    } else {
        combine(x, lanes, QB_X86_AND, result, a, lanes.dtype == QB_FLOAT64 ? ONE_64 : ONE_32);
    }
}

void qb_code_lower(qb_x86 *x, qb_x86_lanes lanes, const qb_instruction *i, int result, const int *v)
{
    bool is_64 = lanes.dtype == QB_FLOAT64;
    switch (i->lane) {
    case QB_LANE_neg: combine(x, lanes, QB_X86_XOR, result, v[0], is_64 ? SIGN_64 : SIGN_32); break;
    case QB_LANE_abs: combine(x, lanes, QB_X86_AND, result, v[0], is_64 ? MAGNITUDE_64 : MAGNITUDE_32); break;
    case QB_LANE_add: qb_x86_arithmetic(x, lanes, QB_X86_ADD, result, v[0], v[1]); break;
    case QB_LANE_sub: qb_x86_arithmetic(x, lanes, QB_X86_SUB, result, v[0], v[1]); break;
    case QB_LANE_mul: qb_x86_arithmetic(x, lanes, QB_X86_MUL, result, v[0], v[1]); break;
    case QB_LANE_div: qb_x86_arithmetic(x, lanes, QB_X86_DIV, result, v[0], v[1]); break;
    case QB_LANE_strong_mul: qb_x86_strong(x, lanes, QB_X86_MUL, true, result, v[0], v[1]); break;
    case QB_LANE_strong_div: qb_x86_strong(x, lanes, QB_X86_DIV, false, result, v[0], v[1]); break;
    case QB_LANE_max: qb_x86_extremum(x, lanes, QB_X86_MAX, result, v[0], v[1]); break;
    case QB_LANE_min: qb_x86_extremum(x, lanes, QB_X86_MIN, result, v[0], v[1]); break;
    case QB_LANE_sqrt:
    case QB_LANE_root: qb_x86_arithmetic(x, lanes, QB_X86_SQRT, result, v[0], v[0]); break;
    case QB_LANE_isnan: qb_x86_compare(x, lanes, QB_X86_UNORDERED, result, v[0], v[0]); break;
    case QB_LANE_equal: qb_x86_compare(x, lanes, QB_X86_EQUAL, result, v[0], v[1]); break;
    case QB_LANE_not_equal: qb_x86_compare(x, lanes, QB_X86_NOT_EQUAL, result, v[0], v[1]); break;
    case QB_LANE_less: qb_x86_compare(x, lanes, QB_X86_LESS, result, v[0], v[1]); break;
    case QB_LANE_less_equal: qb_x86_compare(x, lanes, QB_X86_LESS_EQUAL, result, v[0], v[1]); break;
    case QB_LANE_select: qb_x86_select(x, lanes, result, v[0], v[1], v[2]); break;
    case QB_LANE_bit_and: qb_x86_arithmetic(x, lanes, QB_X86_AND, result, v[0], v[1]); break;
    case QB_LANE_bit_or: qb_x86_arithmetic(x, lanes, QB_X86_OR, result, v[0], v[1]); break;
    case QB_LANE_bit_xor: qb_x86_arithmetic(x, lanes, QB_X86_XOR, result, v[0], v[1]); break;
    case QB_LANE_bit_not:
        qb_x86_set_all(x, lanes, QB_X86_SPARE);
        qb_x86_arithmetic(x, lanes, QB_X86_XOR, result, v[0], QB_X86_SPARE);
        break;
    default: lower_convert(x, lanes, i, result, v[0]); break;
    }
}
