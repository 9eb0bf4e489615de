/* Encoding. All vector instructions have the three-byte VEX prefix: C4, [R X B map], [W vvvv L pp], where R, X, B and
 * vvvv are inverted. */
#include "codegen/x86_64.h"

#include "base/allocate.h"

#include <string.h>

/* Values of the prefix fields. */
enum { MAP_0F = 1, MAP_0F38 = 2, MAP_0F3A = 3 };
enum { PP_NONE = 0, PP_66 = 1, PP_F3 = 2, PP_F2 = 3 };

/* ---- Bytes */

static void put(qb_x86 *x, unsigned byte)
{
    if (x->failed || (x->count == x->capacity && !QB_GROW(x->bytes, x->count, x->capacity, 1))) {
        x->failed = true;
        return;
    }
    x->bytes[x->count++] = (uint8_t)byte;
}

static void put_all(qb_x86 *x, int count, const uint8_t *bytes)
{
    for (int i = 0; i < count; i++)
        put(x, bytes[i]);
}
#define PUT(x, ...) put_all(x, (int)sizeof((const uint8_t[]){__VA_ARGS__}), (const uint8_t[]){__VA_ARGS__})

static void put_number(qb_x86 *x, int bytes, uint64_t value)
{
    for (int i = 0; i < bytes; i++)
        put(x, (unsigned)(value >> (8 * i) & 0xff));
}

static void set_distance(qb_x86 *x, int32_t position, int32_t target)
{
    uint32_t distance = (uint32_t)(target - (position + 4));
    for (int i = 0; i < 4; i++)
        x->bytes[position + i] = (uint8_t)(distance >> (8 * i));
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
    put(x, opcode);
    put(x, 0x80u | ((unsigned)to & 7) << 3 | QB_RBX);
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

typedef struct vex {
    unsigned map, pp, opcode;
    bool wide; /* 32 bytes */
} vex;

static void put_vex(qb_x86 *x, vex v, int reg, int source, bool index, int rm)
{
    put(x, 0xc4);
    put(x, (reg & 8 ? 0u : 0x80u) | (index ? 0u : 0x40u) | (rm & 8 ? 0u : 0x20u) | v.map);
    put(x, (~(unsigned)source & 15u) << 3 | (v.wide ? 4u : 0u) | v.pp);
    put(x, v.opcode);
}

static void put_registers(qb_x86 *x, vex v, int reg, int source, int rm)
{
    put_vex(x, v, reg, source, false, rm);
    put(x, 0xc0u | ((unsigned)reg & 7) << 3 | ((unsigned)rm & 7));
}

/* The bytes after an opcode that say: this register, and memory. */
static void put_operand(qb_x86 *x, int reg, qb_x86_memory m)
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
    bool is_short = m.displacement >= -128 && m.displacement < 128;
    field |= m.displacement == 0 ? 0u : is_short ? 0x40u : 0x80u;
    put(x, field | (m.scale ? 4u : (unsigned)m.base));
    if (m.scale)
        put(x, (m.scale == 8 ? 3u : m.scale == 4 ? 2u : 0u) << 6 | (QB_R13 & 7u) << 3 | (unsigned)m.base);
    if (m.displacement != 0)
        put_number(x, is_short ? 1 : 4, (uint64_t)(int64_t)m.displacement);
}

static void put_memory(qb_x86 *x, vex v, int reg, qb_x86_memory m)
{
    put_vex(x, v, reg, 0, m.constant < 0 && m.scale != 0, 0);
    put_operand(x, reg, m);
}

static bool is_wide(qb_x86_lanes lanes)
{
    return lanes.dtype == QB_FLOAT64 && lanes.width == 4;
}

/* Moves between memory and a register: of 4, 8, 16 or 32 bytes. */
static vex transfer(qb_x86_lanes lanes, unsigned opcode)
{
    int bytes = lanes.width * (lanes.dtype == QB_FLOAT64 ? 8 : 4);
    unsigned pp = bytes == 4 ? PP_F3 : bytes == 8 ? PP_F2 : PP_NONE;
    return (vex){MAP_0F, pp, opcode, bytes == 32};
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
    else if (lanes.dtype == QB_FLOAT32)
        put_memory(x, (vex){MAP_0F38, PP_66, 0x18, false}, to, from); /* vbroadcastss */
    else if (lanes.width == 2)
        put_memory(x, (vex){MAP_0F, PP_F2, 0x12, false}, to, from); /* vmovddup */
    else
        put_memory(x, (vex){MAP_0F38, PP_66, 0x19, true}, to, from); /* vbroadcastsd */
}

void qb_x86_move(qb_x86 *x, qb_x86_lanes lanes, int to, int from)
{
    put_registers(x, (vex){MAP_0F, PP_NONE, 0x28, is_wide(lanes)}, to, 0, from); /* vmovaps */
}

/* On all lanes of a register (of which more may be there than are meant), or on the first alone. */
static unsigned packed(qb_x86_lanes lanes)
{
    return lanes.dtype == QB_FLOAT64 ? PP_66 : PP_NONE;
}

static unsigned packed_or_scalar(qb_x86_lanes lanes)
{
    return lanes.width > 1 ? packed(lanes) : lanes.dtype == QB_FLOAT64 ? PP_F2 : PP_F3;
}

void qb_x86_arithmetic(qb_x86 *x, qb_x86_lanes lanes, qb_x86_operation operation, int result, int a, int b)
{
    bool bitwise = operation >= QB_X86_AND && operation <= QB_X86_XOR;
    unsigned pp = bitwise ? packed(lanes) : packed_or_scalar(lanes);
    bool one_source = operation == QB_X86_SQRT && lanes.width > 1;
    put_registers(x, (vex){MAP_0F, pp, operation, is_wide(lanes)}, result, one_source ? 0 : a, b);
}

void qb_x86_compare(qb_x86 *x, qb_x86_lanes lanes, qb_x86_comparison comparison, int result, int a, int b)
{
    put_registers(x, (vex){MAP_0F, packed(lanes), 0xc2, is_wide(lanes)}, result, a, b);
    put(x, comparison);
}

void qb_x86_blend(qb_x86 *x, qb_x86_lanes lanes, int result, int mask, int if_set, int if_clear)
{
    unsigned opcode = lanes.dtype == QB_FLOAT64 ? 0x4b : 0x4a;
    put_registers(x, (vex){MAP_0F3A, PP_66, opcode, is_wide(lanes)}, result, if_clear, if_set);
    put(x, (unsigned)mask << 4);
}

/* ---- Masks */

static void put_rex_of_index(qb_x86 *x, qb_x86_memory m)
{
    if (m.scale)
        put(x, 0x42);
}

/* Bits 0, 1, ... of ECX become bytes 0, 1, ...: bit i is copied to i + 7 j, and 8 i = i + 7 i stays. */
static void spread_bits(qb_x86 *x)
{
    PUT(x, 0x69, 0xc9); /* imul ecx, ecx, 0x00204081 */
    put_number(x, 4, 0x00204081);
    PUT(x, 0x81, 0xe1); /* and ecx, 0x01010101 */
    put_number(x, 4, 0x01010101);
}

void qb_x86_load_mask(qb_x86 *x, qb_x86_lanes lanes, int to, qb_x86_memory from)
{
    bool is_64 = lanes.dtype == QB_FLOAT64;
    put_rex_of_index(x, from);
    if (lanes.width < 4)
        PUT(x, 0x0f, lanes.width == 1 ? 0xb6 : 0xb7); /* movzx ecx, byte or word */
    else
        put(x, 0x8b); /* mov ecx */
    put_operand(x, QB_RCX, from);
    put_registers(x, (vex){MAP_0F, PP_66, 0x6e, false}, to, 0, QB_RCX);                       /* vmovd */
    put_registers(x, (vex){MAP_0F38, PP_66, is_64 ? 0x32 : 0x31, is_wide(lanes)}, to, 0, to); /* vpmovzxbq, -bd */
    put_registers(x, (vex){MAP_0F, PP_66, is_64 ? 0x73 : 0x72, is_wide(lanes)}, 6, to, to);   /* vpsllq, -d */
    put(x, is_64 ? 63 : 31);
}

void qb_x86_store_mask(qb_x86 *x, qb_x86_lanes lanes, int from, qb_x86_memory to)
{
    put_registers(x, (vex){MAP_0F, packed(lanes), 0x50, is_wide(lanes)}, QB_RCX, 0, from); /* vmovmskpd, -ps */
    PUT(x, 0x83, 0xe1, (uint8_t)((1 << lanes.width) - 1));                                 /* and ecx */
    if (lanes.width > 1)
        spread_bits(x);
    if (lanes.width == 2)
        put(x, 0x66);
    put_rex_of_index(x, to);
    put(x, lanes.width == 1 ? 0x88 : 0x89); /* mov byte, word or double word, ecx */
    put_operand(x, QB_RCX, to);
}

void qb_x86_spread(qb_x86 *x, qb_x86_lanes lanes, int mask)
{
    unsigned opcode = lanes.dtype == QB_FLOAT64 ? 0x59 : 0x58; /* vpbroadcastq, -d */
    put_registers(x, (vex){MAP_0F38, PP_66, opcode, is_wide(lanes)}, mask, 0, mask);
}

void qb_x86_set_all(qb_x86 *x, qb_x86_lanes lanes, int to)
{
    put_registers(x, (vex){MAP_0F, PP_66, 0x76, is_wide(lanes)}, to, to, to); /* vpcmpeqd */
}
