/* Encoding. Vector instructions have one of two prefixes: VEX, in its form of three bytes, C4 [R X B map] [W vvvv L
 * pp], for vectors of up to 32 bytes, and EVEX, 62 [R X B R' map] [W vvvv 1 pp] [z L'L b V' aaa], for those of 64
 * and whatever has to do with mask registers (aaa). R, X, B, R', V' and vvvv are inverted. */
#include "codegen/x86_64.h"

#include "base/allocate.h"

#include <string.h>

/* Values of the prefix fields. */
enum { MAP_0F = 1, MAP_0F38 = 2, MAP_0F3A = 3 };
enum { PP_NONE = 0, PP_66 = 1, PP_F3 = 2, PP_F2 = 3 };

/* ---- Bytes */

/* Once a try to grow has failed there is never room: neither bytes nor a capacity are left. */
static bool grow(qb_x86 *x, int bytes)
{
    enum { FIRST = 1024 };
    if (!x->failed && QB_GROW(x->bytes, x->count, x->capacity, x->capacity == 0 ? FIRST : bytes))
        return true;
    x->failed = true;
    x->capacity = x->count;
    return false;
}

static bool has_room(qb_x86 *x, int bytes)
{
    return x->capacity - x->count >= bytes || grow(x, bytes);
}

static void put(qb_x86 *x, unsigned byte)
{
    if (has_room(x, 1))
        x->bytes[x->count++] = (uint8_t)byte;
}

static void put_all(qb_x86 *x, int count, const uint8_t *bytes)
{
    if (!has_room(x, count))
        return;
    memcpy(x->bytes + x->count, bytes, (size_t)count);
    x->count += count;
}
#define PUT(x, ...) put_all(x, (int)sizeof((const uint8_t[]){__VA_ARGS__}), (const uint8_t[]){__VA_ARGS__})

/* The lowest bytes of a number come first in memory, here as there. */
static void put_number(qb_x86 *x, int bytes, uint64_t value)
{
    uint8_t all[8];
    memcpy(all, &value, sizeof all);
    put_all(x, bytes, all);
}

static void set_distance(qb_x86 *x, int32_t position, int32_t target)
{
    int32_t distance = target - (position + 4);
    memcpy(x->bytes + position, &distance, sizeof distance);
}

void qb_x86_free(qb_x86 *x)
{
    qb_free(x->bytes);
    qb_free(x->constants);
    qb_free(x->fixups);
}

void qb_x86_align(qb_x86 *x)
{
    while (!x->failed && x->count % 16 != 0)
        put(x, 0xcc);
}

int32_t qb_x86_constant(qb_x86 *x, uint64_t bits)
{
    for (int32_t i = x->constant_count - 1; i >= 0 && i >= x->constant_count - 16; i--)
        if (x->constants[i] == bits)
            return i;
    if (x->failed || !QB_GROW(x->constants, x->constant_count, x->constant_capacity, 1)) {
        x->failed = true;
        return 0;
    }
    x->constants[x->constant_count] = bits;
    return x->constant_count++;
}

void qb_x86_finish(qb_x86 *x)
{
    qb_x86_align(x);
    int32_t pool = x->count;
    for (int32_t i = 0; i < x->constant_count; i++)
        put_number(x, 8, x->constants[i]);
    for (int32_t i = 0; !x->failed && i < x->fixup_count; i++)
        set_distance(x, x->fixups[i].position, pool + 8 * x->fixups[i].constant);
}

/* ---- General registers */

static void put_rex(qb_x86 *x, int reg, int rm)
{
    put(x, 0x48u | (unsigned)(reg >> 3 << 2) | (unsigned)(rm >> 3));
}

void qb_x86_enter(qb_x86 *x)
{
    PUT(x, 0x53, 0x41, 0x55, 0x50, 0x48, 0x89, 0xfb); /* push rbx; push r13; push rax; mov rbx, rdi */
}

void qb_x86_clear_upper(qb_x86 *x)
{
    PUT(x, 0xc5, 0xf8, 0x77); /* vzeroupper */
}

void qb_x86_leave(qb_x86 *x, bool wide)
{
    if (wide)
        qb_x86_clear_upper(x);
    PUT(x, 0x58, 0x41, 0x5d, 0x5b, 0xc3); /* pop rax; pop r13; pop rbx; ret */
}

static void put_at_rbx(qb_x86 *x, unsigned opcode, qb_x86_register to, int64_t displacement)
{
    put_rex(x, (int)to, QB_RBX);
    PUT(x, (uint8_t)opcode, (uint8_t)(0x80u | ((unsigned)to & 7) << 3 | QB_RBX));
    put_number(x, 4, (uint64_t)displacement);
}

void qb_x86_load_pointer(qb_x86 *x, qb_x86_register to, int64_t displacement)
{
    put_at_rbx(x, 0x8b, to, displacement);
}

void qb_x86_address(qb_x86 *x, qb_x86_register to, int64_t displacement)
{
    put_at_rbx(x, 0x8d, to, displacement);
}

void qb_x86_copy(qb_x86 *x, qb_x86_register to, qb_x86_register from)
{
    put_rex(x, (int)from, (int)to);
    PUT(x, 0x89, (uint8_t)(0xc0u | ((unsigned)from & 7) << 3 | ((unsigned)to & 7)));
}

void qb_x86_add(qb_x86 *x, qb_x86_register to, int64_t value)
{
    if (value == 0)
        return;
    put_rex(x, 0, (int)to);
    put(x, 0x81);
    put(x, 0xc0u | ((unsigned)to & 7));
    put_number(x, 4, (uint64_t)value);
}

void qb_x86_set(qb_x86 *x, qb_x86_register to, uint64_t value)
{
    bool is_short = value <= UINT32_MAX; /* the upper half is cleared */
    if (!is_short)
        put_rex(x, 0, (int)to);
    else if (to >= QB_R8)
        put(x, 0x41);
    put(x, 0xb8u | ((unsigned)to & 7));
    put_number(x, is_short ? 4 : 8, value);
}

void qb_x86_call(qb_x86 *x, void (*function)(void))
{
    qb_x86_set(x, QB_RAX, (uint64_t)(uintptr_t)function);
    PUT(x, 0xff, 0xd0);
}

int32_t qb_x86_begin_loop(qb_x86 *x)
{
    return x->count;
}

void qb_x86_end_loop(qb_x86 *x, int32_t begin, int step, int64_t limit)
{
    PUT(x, 0x49, 0x83, 0xc5, (uint8_t)step); /* add r13, step */
    PUT(x, 0x49, 0x81, 0xfd);                /* cmp r13, limit */
    put_number(x, 4, (uint64_t)limit);
    PUT(x, 0x0f, 0x82); /* jb */
    put_number(x, 4, 0);
    if (!x->failed)
        set_distance(x, x->count - 4, begin);
}

/* ---- Vector registers */

/* An instruction but for its registers. */
typedef struct encoding {
    uint8_t map, pp, opcode;
    bool w;       /* EVEX wants it right; VEX ignores it in all instructions here */
    uint8_t size; /* of the vector: 0, 1, 2 for 16, 32, 64 bytes */
    bool evex;    /* even where it is small */
    uint8_t mask; /* register that says which lanes to work on; 0: all */
    bool clears;  /* the others become 0 */
} encoding;

static bool is_evex(encoding e)
{
    return e.evex || e.size == 2;
}

static void put_prefix(qb_x86 *x, encoding e, int reg, int source, bool index, int rm)
{
    unsigned extensions = (reg & 8 ? 0u : 0x80u) | (index ? 0u : 0x40u) | (rm & 8 ? 0u : 0x20u);
    unsigned second = (~(unsigned)source & 15u) << 3 | e.pp;
    if (is_evex(e))
        PUT(x, 0x62, (uint8_t)(extensions | 0x10u | e.map), (uint8_t)(second | 4u | (e.w ? 0x80u : 0u)),
            (uint8_t)((e.clears ? 0x80u : 0u) | (unsigned)e.size << 5 | 8u | e.mask), e.opcode);
    else
        PUT(x, 0xc4, (uint8_t)(extensions | e.map), (uint8_t)(second | (unsigned)e.size << 2), e.opcode);
}

static void put_registers(qb_x86 *x, encoding e, int reg, int source, int rm)
{
    put_prefix(x, e, reg, source, false, rm);
    put(x, 0xc0u | ((unsigned)reg & 7) << 3 | ((unsigned)rm & 7));
}

/* The bytes after an opcode that say: this register, and memory. */
static void put_operand(qb_x86 *x, int reg, qb_x86_memory m, bool allows_short)
{
    unsigned field = ((unsigned)reg & 7) << 3;
    if (m.constant >= 0) { /* RIP-relative */
        put(x, field | 5);
        if (x->failed || !QB_GROW(x->fixups, x->fixup_count, x->fixup_capacity, 1)) {
            x->failed = true;
            return;
        }
        x->fixups[x->fixup_count++] = (qb_x86_fixup){x->count, m.constant};
        put_number(x, 4, 0);
        return;
    }
    bool is_short = allows_short && m.displacement >= -128 && m.displacement < 128;
    field |= m.displacement == 0 ? 0u : is_short ? 0x40u : 0x80u;
    put(x, field | (m.scale ? 4u : (unsigned)m.base & 7));
    if (m.scale)
        put(x, (m.scale == 8 ? 3u : m.scale == 4 ? 2u : 0u) << 6 | (QB_R13 & 7u) << 3 | ((unsigned)m.base & 7));
    if (m.displacement != 0)
        put_number(x, is_short ? 1 : 4, (uint64_t)(int64_t)m.displacement);
}

static void put_memory(qb_x86 *x, encoding e, int reg, qb_x86_memory m)
{
    bool at_base = m.constant < 0;
    put_prefix(x, e, reg, 0, at_base && m.scale != 0, at_base ? (int)m.base : 0);
    put_operand(x, reg, m, !is_evex(e)); /* EVEX's short displacements count in vectors */
}

static bool is_64(qb_x86_lanes lanes)
{
    return lanes.dtype == QB_FLOAT64;
}

static int bytes_of(qb_x86_lanes lanes)
{
    return lanes.width * (is_64(lanes) ? 8 : 4);
}

static uint8_t size_of(qb_x86_lanes lanes)
{
    return bytes_of(lanes) == 64 ? 2 : bytes_of(lanes) == 32 ? 1 : 0;
}

/* On all lanes of a vector, in the map 0F. */
static encoding packed(qb_x86_lanes lanes, unsigned opcode)
{
    return (encoding){.map = MAP_0F,
                      .pp = is_64(lanes) ? PP_66 : PP_NONE,
                      .opcode = (uint8_t)opcode,
                      .w = is_64(lanes),
                      .size = size_of(lanes)};
}

/* On whole numbers of the lanes' size, in another map. */
static encoding whole(qb_x86_lanes lanes, unsigned map, unsigned pp, unsigned opcode)
{
    return (encoding){
        .map = (uint8_t)map, .pp = (uint8_t)pp, .opcode = (uint8_t)opcode, .w = is_64(lanes), .size = size_of(lanes)};
}

static encoding transfer(qb_x86_lanes lanes, unsigned opcode)
{
    int bytes = bytes_of(lanes);
    uint8_t pp = bytes == 4 ? PP_F3 : bytes == 8 ? PP_F2 : PP_NONE;
    return (encoding){.map = MAP_0F, .pp = pp, .opcode = (uint8_t)opcode, .size = size_of(lanes)};
}

void qb_x86_load(qb_x86 *x, qb_x86_lanes lanes, int to, qb_x86_memory from)
{
    put_memory(x, transfer(lanes, 0x10), to, from);
}

void qb_x86_store(qb_x86 *x, qb_x86_lanes lanes, int from, qb_x86_memory to)
{
    put_memory(x, transfer(lanes, 0x11), from, to);
}

void qb_x86_broadcast(qb_x86 *x, qb_x86_lanes lanes, int to, qb_x86_memory from)
{
    if (lanes.width == 1)
        qb_x86_load(x, lanes, to, from);
    else if (!is_64(lanes))
        put_memory(x, whole(lanes, MAP_0F38, PP_66, 0x18), to, from); /* vbroadcastss */
    else if (lanes.width == 2)
        put_memory(x, whole(lanes, MAP_0F, PP_F2, 0x12), to, from); /* vmovddup */
    else
        put_memory(x, whole(lanes, MAP_0F38, PP_66, 0x19), to, from); /* vbroadcastsd */
}

void qb_x86_move(qb_x86 *x, qb_x86_lanes lanes, int to, int from)
{
    put_registers(x, (encoding){.map = MAP_0F, .opcode = 0x28, .size = size_of(lanes)}, to, 0, from); /* vmovaps */
}

void qb_x86_zero(qb_x86 *x, int to)
{
    put_registers(x, (encoding){.map = MAP_0F, .opcode = 0x57}, to, to, to); /* vxorps; the rest becomes 0, too */
}

void qb_x86_arithmetic(qb_x86 *x, qb_x86_lanes lanes, qb_x86_operation operation, int result, int a, int b)
{
    encoding e = packed(lanes, operation);
    bool bitwise = operation >= QB_X86_AND && operation <= QB_X86_XOR;
    if (!bitwise && lanes.width == 1)
        e.pp = is_64(lanes) ? PP_F2 : PP_F3; /* the first lane alone */
    bool one_source = operation == QB_X86_SQRT && lanes.width > 1;
    put_registers(x, e, result, one_source ? 0 : a, b);
}

/* ---- Comparisons and what hangs on them: in vectors, or, of 64 bytes, by way of mask register 1 */

enum { S = QB_X86_SPARE, T, U, MASK_REGISTER = 1 };

static encoding comparing(qb_x86_lanes lanes)
{
    return packed(lanes, 0xc2);
}

static void put_comparison(qb_x86 *x, encoding e, qb_x86_comparison comparison, int result, int a, int b)
{
    put_registers(x, e, result, a, b);
    put(x, comparison);
}

static void mask_to_vector(qb_x86 *x, qb_x86_lanes lanes, int to)
{
    put_registers(x, whole(lanes, MAP_0F38, PP_F3, 0x38), to, 0, MASK_REGISTER); /* vpmovm2q, vpmovm2d */
}

static void vector_to_mask(qb_x86 *x, qb_x86_lanes lanes, int from)
{
    put_registers(x, whole(lanes, MAP_0F38, PP_F3, 0x39), MASK_REGISTER, 0, from); /* vpmovq2m, vpmovd2m */
}

static void select_by_mask(qb_x86 *x, qb_x86_lanes lanes, int result, int if_set, int if_clear)
{
    encoding e = whole(lanes, MAP_0F38, PP_66, 0x65); /* vblendmpd, vblendmps */
    e.mask = MASK_REGISTER;
    put_registers(x, e, result, if_clear, if_set);
}

void qb_x86_compare(qb_x86 *x, qb_x86_lanes lanes, qb_x86_comparison comparison, int result, int a, int b)
{
    bool by_mask = size_of(lanes) == 2;
    put_comparison(x, comparing(lanes), comparison, by_mask ? MASK_REGISTER : result, a, b);
    if (by_mask)
        mask_to_vector(x, lanes, result);
}

void qb_x86_select(qb_x86 *x, qb_x86_lanes lanes, int result, int mask, int if_set, int if_clear)
{
    if (size_of(lanes) == 2) {
        vector_to_mask(x, lanes, mask);
        select_by_mask(x, lanes, result, if_set, if_clear);
        return;
    }
    put_registers(x, whole(lanes, MAP_0F3A, PP_66, is_64(lanes) ? 0x4b : 0x4a), result, if_clear, if_set);
    put(x, (unsigned)mask << 4); /* vblendvpd, vblendvps */
}

/* Only the lanes of vectors of 64 bytes where a, and b if so wanted, is not 0. */
static void strong_by_mask(qb_x86 *x, qb_x86_lanes lanes, qb_x86_operation operation, bool tests_b, int result, int a,
                           int b)
{
    encoding again = comparing(lanes), arithmetic = packed(lanes, operation);
    again.mask = arithmetic.mask = MASK_REGISTER;
    arithmetic.clears = true;
    put_comparison(x, comparing(lanes), QB_X86_NOT_EQUAL, MASK_REGISTER, a, S);
    if (tests_b)
        put_comparison(x, again, QB_X86_NOT_EQUAL, MASK_REGISTER, b, S);
    put_registers(x, arithmetic, result, a, b);
}

void qb_x86_strong(qb_x86 *x, qb_x86_lanes lanes, qb_x86_operation operation, bool tests_b, int result, int a, int b)
{
    qb_x86_zero(x, S);
    if (size_of(lanes) == 2) {
        strong_by_mask(x, lanes, operation, tests_b, result, a, b);
        return;
    }
    qb_x86_compare(x, lanes, QB_X86_EQUAL, T, a, S);
    if (tests_b) {
        qb_x86_compare(x, lanes, QB_X86_EQUAL, U, b, S);
        qb_x86_arithmetic(x, lanes, QB_X86_OR, T, T, U);
    }
    qb_x86_arithmetic(x, lanes, operation, U, a, b);
    qb_x86_arithmetic(x, lanes, QB_X86_AND_NOT, result, T, U);
}

void qb_x86_extremum(qb_x86 *x, qb_x86_lanes lanes, qb_x86_operation operation, int result, int a, int b)
{
    qb_x86_arithmetic(x, lanes, operation, S, a, b);
    if (size_of(lanes) == 2) {
        put_comparison(x, comparing(lanes), QB_X86_UNORDERED, MASK_REGISTER, a, a);
        select_by_mask(x, lanes, result, a, S);
        return;
    }
    qb_x86_compare(x, lanes, QB_X86_UNORDERED, T, a, a);
    qb_x86_select(x, lanes, result, T, a, S);
}

void qb_x86_set_all(qb_x86 *x, qb_x86_lanes lanes, int to)
{
    if (size_of(lanes) < 2) {
        put_registers(x, whole(lanes, MAP_0F, PP_66, 0x76), to, to, to); /* vpcmpeqd */
        return;
    }
    put_registers(x, (encoding){.map = MAP_0F3A, .pp = PP_66, .opcode = 0x25, .size = 2}, to, to, to); /* vpternlogd */
    put(x, 0xff);
}

/* ---- Masks in memory */

/* A general instruction between ECX and memory. */
static void put_general(qb_x86 *x, bool is_word, bool has_escape, unsigned opcode, qb_x86_memory m)
{
    if (is_word)
        put(x, 0x66);
    if (m.scale || m.base >= QB_R8)
        put(x, 0x40u | (m.scale ? 2u : 0u) | (m.base >= QB_R8 ? 1u : 0u));
    if (has_escape)
        put(x, 0x0f);
    put(x, opcode);
    put_operand(x, QB_RCX, m, true);
}

/* Zeros and ones of the bytes in a vector become lanes, and those masks: 0 - 1 has all bits set. */
static void widen_bytes(qb_x86 *x, qb_x86_lanes lanes, int to)
{
    qb_x86_zero(x, S);
    put_registers(x, whole(lanes, MAP_0F, PP_66, is_64(lanes) ? 0xfb : 0xfa), to, S, to); /* vpsubq, vpsubd */
}

static encoding widening(qb_x86_lanes lanes)
{
    return whole(lanes, MAP_0F38, PP_66, is_64(lanes) ? 0x32 : 0x31); /* vpmovzxbq, vpmovzxbd */
}

void qb_x86_load_mask(qb_x86 *x, qb_x86_lanes lanes, int to, qb_x86_memory from)
{
    if (lanes.width >= 8) {
        put_memory(x, widening(lanes), to, from);
    } else {
        if (lanes.width == 4)
            put_general(x, false, false, 0x8b, from); /* mov ecx */
        else
            put_general(x, false, true, lanes.width == 1 ? 0xb6 : 0xb7, from);                   /* movzx ecx */
        put_registers(x, (encoding){.map = MAP_0F, .pp = PP_66, .opcode = 0x6e}, to, 0, QB_RCX); /* vmovd */
        put_registers(x, widening(lanes), to, 0, to);
    }
    widen_bytes(x, lanes, to);
}

void qb_x86_broadcast_mask(qb_x86 *x, qb_x86_lanes lanes, int to, qb_x86_memory from)
{
    qb_x86_load_mask(x, (qb_x86_lanes){lanes.dtype, 1}, to, from);
    put_registers(x, whole(lanes, MAP_0F38, PP_66, is_64(lanes) ? 0x59 : 0x58), to, 0, to); /* vpbroadcastq, -d */
}

/* Bits 0 to 3 of ECX become bytes 0 to 3: bit i is copied to i + 7 j, and 8 i = i + 7 i stays. */
static void spread_bits(qb_x86 *x)
{
    PUT(x, 0x69, 0xc9); /* imul ecx, ecx, 0x00204081 */
    put_number(x, 4, 0x00204081);
    PUT(x, 0x81, 0xe1); /* and ecx, 0x01010101 */
    put_number(x, 4, 0x01010101);
}

/* Bytes of -1 and 0, one for each lane of a vector of 64 bytes, or of 32 with 8 lanes. */
static void narrow_to_bytes(qb_x86 *x, qb_x86_lanes lanes, int to, int from)
{
    if (size_of(lanes) == 2) {
        vector_to_mask(x, lanes, from);
        encoding e = {.map = MAP_0F38, .pp = PP_F3, .opcode = 0x28, .evex = true}; /* vpmovm2b */
        put_registers(x, e, to, 0, MASK_REGISTER);
        return;
    }
    put_registers(x, (encoding){.map = MAP_0F3A, .pp = PP_66, .opcode = 0x39, .size = 1}, from, 0,
                  to); /* vextracti128 */
    put(x, 1);
    put_registers(x, (encoding){.map = MAP_0F, .pp = PP_66, .opcode = 0x6b}, to, from, to); /* vpackssdw */
    put_registers(x, (encoding){.map = MAP_0F, .pp = PP_66, .opcode = 0x63}, to, to, to);   /* vpacksswb */
}

void qb_x86_store_mask(qb_x86 *x, qb_x86_lanes lanes, int from, qb_x86_memory to)
{
    if (lanes.width >= 8) {
        narrow_to_bytes(x, lanes, S, from);
        put_registers(x, (encoding){.map = MAP_0F38, .pp = PP_66, .opcode = 0x1c}, S, 0, S); /* vpabsb */
        bool half = lanes.width == 8;                                                        /* vmovq, vmovups */
        put_memory(x, (encoding){.map = MAP_0F, .pp = half ? PP_66 : PP_NONE, .opcode = half ? 0xd6 : 0x11}, S, to);
        return;
    }
    put_registers(x, packed(lanes, 0x50), QB_RCX, 0, from); /* vmovmskpd, vmovmskps */
    PUT(x, 0x83, 0xe1, (uint8_t)((1 << lanes.width) - 1));  /* and ecx */
    if (lanes.width > 1)
        spread_bits(x);
    put_general(x, lanes.width == 2, false, lanes.width == 1 ? 0x88 : 0x89,
                to); /* mov byte, word or double word, ecx */
}
