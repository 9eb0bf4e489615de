/* One element type's loops of sort.h, included by sort_loops.c with T (floating, or signed), WORD and UWORD
 * (integers of its size), and FLOATING (then T_MAX, too). What depends on whether places are moved along is in
 * sort_part.h. */

#define NAME(name) PASTE_EXPANDED(PASTE_EXPANDED(name, _), T)
#define VECTOR     NAME(vector)
#define WORDS      NAME(words)
#define UNALIGNED  NAME(unaligned)
#define LANES      (QB_VECTOR_BYTES / (int)sizeof(T))

#define MOST_VECTORS (FEW / LANES)
#define WORD_MAX     ((WORD)((UWORD)-1 >> 1))
#define WORD_MIN     (-WORD_MAX - 1)

typedef T VECTOR __attribute__((vector_size(QB_VECTOR_BYTES)));
typedef WORD WORDS __attribute__((vector_size(QB_VECTOR_BYTES)));
typedef T UNALIGNED __attribute__((vector_size(QB_VECTOR_BYTES), aligned(sizeof(T)), may_alias));
typedef WORD NAME(unaligned_words) __attribute__((vector_size(QB_VECTOR_BYTES), aligned(sizeof(T)), may_alias));

QB_ALWAYS_INLINE T NAME(biased)(T x, uint64_t bias)
{
#if FLOATING
    (void)bias;
    return x;
#else
    return (T)((UWORD)x ^ (UWORD)bias);
#endif
}

QB_ALWAYS_INLINE bool NAME(is_nan)(T x)
{
#if FLOATING
    return x != x;
#else
    (void)x;
    return false;
#endif
}

/* At most LANES elements, and zeros. */
QB_ALWAYS_INLINE VECTOR NAME(load_some)(const T *x, int n)
{
#if defined(__AVX512F__)
    __mmask16 lanes = (__mmask16)((1u << n) - 1);
    return sizeof(T) == 8 ? (VECTOR)_mm512_maskz_loadu_epi64((__mmask8)lanes, x)
                          : (VECTOR)_mm512_maskz_loadu_epi32(lanes, x);
#else
    T some[LANES] = {0};
    for (int i = 0; i < n; i++)
        some[i] = x[i];
    return *(const UNALIGNED *)some;
#endif
}

/* Copies n elements, and counts how many are smaller than each. The last of several vectors ends with the elements,
 * and may begin over the one before. */
QB_ALWAYS_INLINE void NAME(count_smaller)(const T *x, int n, T *keys, WORD *smaller, const int vectors)
{
    const int last = vectors > 1 ? n - LANES : 0;
    VECTOR all[MOST_VECTORS];
    WORDS count[MOST_VECTORS];
    QB_UNROLLED
    for (int v = 0; v < vectors; v++) {
        const int at = v < vectors - 1 ? v * LANES : last;
        if (vectors > 1)
            all[v] = *(const UNALIGNED *)(x + at);
        else
            all[v] = NAME(load_some)(x, n);
        *(UNALIGNED *)(keys + at) = all[v];
        count[v] = (WORDS){0};
    }
    for (int i = 0; i < n; i++) {
        VECTOR one = x[i] - (VECTOR){0};
        QB_UNROLLED
        for (int v = 0; v < vectors; v++)
            count[v] -= (WORDS)(all[v] > one);
    }
    QB_UNROLLED
    for (int v = 0; v < vectors; v++)
        *(NAME(unaligned_words) *)(smaller + (v < vectors - 1 ? v * LANES : last)) = count[v];
}

/* ---- Digits */

/* An integer that is ordered as x is, the same for zeros of both signs. */
QB_ALWAYS_INLINE WORD NAME(key)(T x)
{
#if FLOATING
    WORD bits;
    x += 0; /* -0 becomes 0 */
    memcpy(&bits, &x, sizeof bits);
    return bits < 0 ? bits ^ WORD_MAX : bits;
#else
    return x;
#endif
}

/* Digits 0 .. digits-1, linear in the value; false where its range, or that of its steps, is not finite. */
static bool NAME(rule_by_value)(qb_sort_rule *rule, T lowest, T highest, int32_t digits)
{
#if FLOATING
    T range = highest - lowest, scale = (T)(digits - 1) / range;
    *rule = (qb_sort_rule){.by_value = true, .lowest = (double)lowest, .scale = (double)scale, .last = digits - 1};
    return range <= T_MAX && scale > 0 && scale <= T_MAX;
#else
    (void)rule, (void)lowest, (void)highest, (void)digits;
    return false;
#endif
}

static void NAME(rule_by_key)(qb_sort_rule *rule, WORD lowest, WORD highest, int32_t digits)
{
    *rule = (qb_sort_rule){.lowest_key = lowest, .highest_key = highest, .last = digits - 1};
    while (((UWORD)highest - (UWORD)lowest) >> rule->shift >= (UWORD)digits)
        rule->shift++;
}

static void NAME(digits)(const qb_sort_rule *rule, const T *restrict x, int n, uint32_t *restrict digit)
{
#if FLOATING
    if (rule->by_value) {
        const T lowest = (T)rule->lowest, scale = (T)rule->scale, last = (T)rule->last;
        for (int i = 0; i < n; i++) {
            T t = (x[i] - lowest) * scale;
            t = t < last ? t : last;
            digit[i] = (uint32_t)(int32_t)(t > 0 ? t : 0);
        }
        return;
    }
#endif
    const WORD lowest = (WORD)rule->lowest_key, highest = (WORD)rule->highest_key;
    const int shift = rule->shift;
    for (int i = 0; i < n; i++) {
        WORD key = NAME(key)(x[i]);
        key = key < lowest ? lowest : key;
        key = key > highest ? highest : key;
        digit[i] = (uint32_t)(((UWORD)key - (UWORD)lowest) >> shift);
    }
}

#define SMALLER_LANES(a, b) (VECTOR)(((WORDS)(a) & ((a) < (b))) | ((WORDS)(b) & ~((a) < (b))))
#define LARGER_LANES(a, b)  (VECTOR)(((WORDS)(a) & ((a) > (b))) | ((WORDS)(b) & ~((a) > (b))))

/* Of n >= LANES numbers. */
static void NAME(find_extremes)(const T *x, int64_t n, T *lowest, T *highest)
{
    VECTOR low = *(const UNALIGNED *)(x + n - LANES), high = low;
    for (int64_t i = 0; i <= n - LANES; i += LANES) {
        VECTOR next = *(const UNALIGNED *)(x + i);
        low = SMALLER_LANES(next, low);
        high = LARGER_LANES(next, high);
    }
    *lowest = low[0];
    *highest = high[0];
    for (int i = 1; i < LANES; i++) {
        *lowest = low[i] < *lowest ? low[i] : *lowest;
        *highest = high[i] > *highest ? high[i] : *highest;
    }
}

/* How many elements have each digit; the largest of these numbers. */
static uint32_t NAME(count_digits)(const qb_sort_rule *rule, const T *x, int64_t n, uint32_t *count)
{
    uint32_t digit[BLOCK], largest = 0;
    memset(count, 0, (size_t)(rule->last + 1) * sizeof *count);
    for (int64_t first = 0; first < n; first += BLOCK) {
        int here = n - first < BLOCK ? (int)(n - first) : BLOCK;
        NAME(digits)(rule, x + first, here, digit);
        for (int i = 0; i < here; i++)
            count[digit[i]]++;
    }
    for (int32_t d = 0; d <= rule->last; d++)
        largest = count[d] > largest ? count[d] : largest;
    return largest;
}

#define ITEMS      NAME(items)
#define PART(name) NAME(name)
#define PLACES     0
#include "cpu/sort_part.h"
#define ITEMS      NAME(items_places)
#define PART(name) NAME(name##_places)
#define PLACES     1
#include "cpu/sort_part.h"

/* ---- Long rows */

static bool NAME(is_ascending)(const void *elements, int64_t n, uint64_t bias)
{
    const T *x = elements;
    for (int64_t first = 0; first < n - 1; first += BLOCK) {
        int here = n - 1 - first < BLOCK ? (int)(n - 1 - first) : BLOCK;
        WORD out_of_order = 0;
        for (int i = 0; i < here; i++)
            out_of_order |= !(NAME(biased)(x[first + i], bias) <= NAME(biased)(x[first + i + 1], bias));
        if (out_of_order)
            return false;
    }
    return true;
}

/* Buckets of about as many elements of the sorted sample; the most elements in a cell. */
static int32_t NAME(cut)(qb_sort_classifier *classifier, const T *sorted, int32_t m)
{
    int32_t heaviest = 0, cell = 0, next;
    NAME(digits)(&classifier->rule, sorted, m, classifier->digit);
    for (int32_t first = 0; first < m; first = next) {
        int32_t here = (int32_t)classifier->digit[first];
        for (; cell <= here; cell++)
            classifier->bucket[cell] = (uint16_t)(first * classifier->buckets / m);
        for (next = first + 1; next < m && (int32_t)classifier->digit[next] == here;)
            next++;
        heaviest = next - first > heaviest ? next - first : heaviest;
    }
    for (; cell < QB_SORT_CELLS; cell++)
        classifier->bucket[cell] = (uint16_t)(classifier->buckets - 1);
    return heaviest;
}

/* Elements spread over the row, by a fixed choice that no regular pattern meets. */
static int32_t NAME(take_sample)(const T *x, int64_t n, uint64_t bias, T *sample)
{
    int64_t wanted = n / PER_SAMPLE < QB_SORT_SAMPLE ? n / PER_SAMPLE : QB_SORT_SAMPLE, step = n / wanted;
    uint64_t state = 1;
    int32_t m = 0;
    for (int64_t i = 0; i < wanted; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        sample[m] = NAME(biased)(x[i * step + (int64_t)((state >> 33) % (uint64_t)step)], bias);
        m += !NAME(is_nan)(sample[m]);
    }
    return m;
}

/* In the first round by a sample alone, from which its extremes are left out, since they may be far out; in the
 * second by the true extremes, too; then by keys alone, without a sample, so that the range of a bucket surely
 * shrinks. */
static bool NAME(plan)(qb_sort_classifier *classifier, const void *elements, int64_t n, uint64_t bias, int round)
{
    T *sample = (T *)(void *)classifier->sample, *sorted = sample + 2 * QB_SORT_SAMPLE, lowest = 0, highest = 0;
    int32_t m;
    qb_sort_items of_sample = {.keys = sample}, room = {.keys = sample + QB_SORT_SAMPLE};
    WORD low, high;
    classifier->bucket[QB_SORT_CELLS] = (uint16_t)classifier->buckets;
    if (round > 0) {
        NAME(find_extremes)(elements, n, &lowest, &highest);
        if (!(lowest < highest))
            return false;
    }
    if (round > 1) {
        NAME(rule_by_key)(&classifier->rule, NAME(key)(lowest), NAME(key)(highest), classifier->buckets);
        for (int32_t cell = 0; cell < classifier->buckets; cell++)
            classifier->bucket[cell] = (uint16_t)cell;
        return true;
    }
    m = NAME(take_sample)(elements, n, bias, sample);
    NAME(part)(of_sample, room, of_sample, (qb_sort_items){.keys = sorted}, m, 0);
    if (round == 0 && m > 0) {
        lowest = sorted[m / 128];
        highest = sorted[m - 1 - m / 128];
    }
    if (NAME(rule_by_value)(&classifier->rule, lowest, highest, QB_SORT_CELLS) &&
        NAME(cut)(classifier, sorted, m) <= m / 32)
        return true;
    low = NAME(key)(lowest);
    high = NAME(key)(highest);
    low -= low > WORD_MIN; /* what is beyond has a digit of its own, if one is one */
    high += high < WORD_MAX;
    NAME(rule_by_key)(&classifier->rule, low, high, QB_SORT_CELLS);
    (void)NAME(cut)(classifier, sorted, m);
    return true;
}

/* The buckets of n elements, and how many there are in each. */
static void NAME(count)(const qb_sort_classifier *classifier, const void *elements, int64_t n, uint64_t bias,
                        uint16_t *bucket, int64_t *count)
{
    const uint16_t *restrict bucket_of = classifier->bucket;
    T biased[BLOCK];
    uint32_t digit[BLOCK];
    for (int64_t first = 0; first < n; first += BLOCK, bucket += BLOCK) {
        int here = n - first < BLOCK ? (int)(n - first) : BLOCK;
        const T *x = (const T *)elements + first;
        if (bias != 0) {
            for (int i = 0; i < here; i++)
                biased[i] = NAME(biased)(x[i], bias);
            x = biased;
        }
        NAME(digits)(&classifier->rule, x, here, digit);
#if FLOATING
        for (int i = 0; i < here; i++)
            digit[i] = x[i] != x[i] ? QB_SORT_CELLS : digit[i];
#endif
        for (int i = 0; i < here; i++)
            bucket[i] = bucket_of[digit[i]];
        for (int i = 0; i < here; i++)
            count[bucket[i]]++;
    }
}

#undef SMALLER_LANES
#undef LARGER_LANES
#undef NAME
#undef VECTOR
#undef WORDS
#undef UNALIGNED
#undef LANES
#undef MOST_VECTORS
#undef WORD_MAX
#undef WORD_MIN
#undef T
#undef WORD
#undef UWORD
#undef FLOATING
#undef T_MAX
