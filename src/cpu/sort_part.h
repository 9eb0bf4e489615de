/* Sorting a part of a row, within a thread: included by sort_type.h without PLACES and with them. */

typedef struct ITEMS {
    T *keys;
    int64_t *places;
} ITEMS;

QB_ALWAYS_INLINE ITEMS PART(from)(ITEMS items, int64_t first)
{
    return (ITEMS){items.keys + first, PLACES ? items.places + first : NULL};
}

QB_ALWAYS_INLINE void PART(move)(ITEMS to, int64_t at, ITEMS from, int64_t i)
{
    to.keys[at] = from.keys[i];
#if PLACES
    to.places[at] = from.places[i];
#endif
}

/* What has been sorted leaves: places, or elements as they are outside. */
QB_ALWAYS_INLINE void PART(leave)(ITEMS sorted, int64_t at, ITEMS from, int64_t i, uint64_t bias)
{
#if PLACES
    (void)bias;
    sorted.places[at] = from.places[i];
#else
    sorted.keys[at] = NAME(biased)(from.keys[i], bias);
#endif
}

static void PART(leave_all)(ITEMS sorted, ITEMS from, int64_t n, uint64_t bias)
{
    for (int64_t i = 0; i < n; i++)
        PART(leave)(sorted, i, from, i, bias);
}

/* ---- Few elements: the place of each is the number of smaller ones, and of equal ones before it */

#define CASE(vectors)                                                                                                  \
    case vectors:                                                                                                      \
        if ((vectors) <= MOST_VECTORS)                                                                                 \
            NAME(count_smaller)(x.keys, n, keys, smaller, (vectors) <= MOST_VECTORS ? (vectors) : 1);                  \
        break;

static void PART(sort_few)(ITEMS x, ITEMS sorted, int n, bool leaves, uint64_t bias)
{
    T keys[FEW];
    WORD smaller[FEW];
    uint8_t equal[FEW] = {0};
    int64_t places[PLACES ? FEW : 1];
    ITEMS copy = {keys, places}; /* `sorted` may be x */
    switch ((n + LANES - 1) / LANES) {
    case 0:
        return;
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
        CASE(6)
        CASE(7)
        CASE(8)
        CASE(9)
        CASE(10)
        CASE(11)
        CASE(12)
        CASE(13)
        CASE(14)
        CASE(15)
        CASE(16)
    default: return; /* does not happen */
    }
#if PLACES
    for (int i = 0; i < n; i++)
        places[i] = x.places[i];
#endif
    for (int i = 0; i < n; i++) {
        int at = (int)smaller[i] + equal[smaller[i]]++;
        if (leaves)
            PART(leave)(sorted, at, copy, i, bias);
        else
            PART(move)(sorted, at, copy, i);
    }
}

/* ---- By merging: for what digits do not spread */

static void PART(merge)(ITEMS a, int64_t n, ITEMS b, int64_t m, ITEMS to)
{
    int64_t i = 0, k = 0, at = 0;
    while (i < n && k < m) { /* without a branch that half of the guesses miss */
        T first = a.keys[i], second = b.keys[k];
        int64_t takes_second = second < first;
        to.keys[at] = second < first ? second : first;
#if PLACES
        const int64_t *from[2] = {a.places + i, b.places + k};
        to.places[at] = *from[takes_second];
#endif
        at++;
        k += takes_second;
        i += 1 - takes_second;
    }
    for (; i < n; i++)
        PART(move)(to, at++, a, i);
    for (; k < m; k++)
        PART(move)(to, at++, b, k);
}

static void PART(merge_sort)(ITEMS x, ITEMS buffer, ITEMS next_buffer, ITEMS sorted, int64_t n, uint64_t bias)
{
    for (int64_t first = 0; first < n; first += FEW)
        PART(sort_few)
    (PART(from)(x, first), PART(from)(buffer, first), n - first < FEW ? (int)(n - first) : FEW, false, bias);
    for (int64_t width = FEW; width < n; width *= 2) {
        for (int64_t first = 0; first < n; first += 2 * width) {
            int64_t here = n - first < width ? n - first : width, behind = n - first - here;
            PART(merge)
            (PART(from)(buffer, first), here, PART(from)(buffer, first + here), behind < width ? behind : width,
             PART(from)(next_buffer, first));
        }
        ITEMS merged = next_buffer;
        next_buffer = buffer;
        buffer = merged;
    }
    PART(leave_all)(sorted, buffer, n, bias);
}

/* ---- By digits */

/* Moves the elements to `to` by their digits; count becomes where those of each digit end. */
static void PART(distribute_part)(const qb_sort_rule *rule, ITEMS x, ITEMS to, int64_t n, uint32_t *count)
{
    uint32_t at[BLOCK], next = 0;
    for (int32_t d = 0; d <= rule->last; d++) {
        uint32_t here = count[d];
        count[d] = next;
        next += here;
    }
    for (int64_t first = 0; first < n; first += BLOCK) {
        int here = n - first < BLOCK ? (int)(n - first) : BLOCK;
        NAME(digits)(rule, x.keys + first, here, at);
        for (int i = 0; i < here; i++) /* on their own: a processor need not guess whether elements overwrite counts */
            at[i] = count[at[i]]++;
        for (int i = 0; i < here; i++)
            PART(move)(to, at[i], x, first + i);
    }
}

static void PART(sort)(ITEMS x, ITEMS buffer, ITEMS next_buffer, ITEMS sorted, int64_t n, uint64_t bias)
{
    T lowest, highest;
    qb_sort_rule rule = {0};
    uint32_t end[MOST_DIGITS], largest = UINT32_MAX, first = 0;
    int32_t digits = 4;
    if (n <= FEW) {
        PART(sort_few)(x, sorted, (int)n, true, bias);
        return;
    }
    NAME(find_extremes)(x.keys, n, &lowest, &highest);
    if (!(lowest < highest)) {
        PART(leave_all)(sorted, x, n, bias);
        return;
    }
    while (digits < MOST_DIGITS && digits * PER_DIGIT < n)
        digits *= 2;
    if (NAME(rule_by_value)(&rule, lowest, highest, digits))
        largest = NAME(count_digits)(&rule, x.keys, n, end);
    if (largest > n / 4 + FEW) {
        NAME(rule_by_key)(&rule, NAME(key)(lowest), NAME(key)(highest), digits);
        largest = NAME(count_digits)(&rule, x.keys, n, end);
    }
    if (largest > n / 2 && n <= MERGED_UP_TO) {
        PART(merge_sort)(x, buffer, next_buffer, sorted, n, bias);
        return;
    }
    PART(distribute_part)(&rule, x, buffer, n, end);
    for (int32_t d = 0; d <= rule.last; first = end[d], d++) {
        while (d < rule.last && end[d + 1] - first <= TOGETHER) /* neighbours together */
            d++;
        uint32_t here = end[d] - first;
        if (here <= FEW)
            PART(sort_few)(PART(from)(buffer, first), PART(from)(sorted, first), (int)here, true, bias);
        else
            PART(sort)
        (PART(from)(buffer, first), PART(from)(next_buffer, first), PART(from)(buffer, first),
         PART(from)(sorted, first), here, bias);
    }
}

/* ---- The functions of qb_sort_type_loops that differ with places */

static int64_t PART(take)(const void *elements, int64_t n, uint64_t bias, qb_sort_items to, int64_t *order)
{
    const T *x = elements;
    T *keys = to.keys;
    int64_t count = 0;
    WORD nans = 0;
    for (int64_t i = 0; i < n; i++)
        nans |= NAME(is_nan)(x[i]);
    if (!nans) {
        for (int64_t i = 0; i < n; i++)
            keys[i] = NAME(biased)(x[i], bias);
        for (int64_t i = 0; PLACES && i < n; i++)
            to.places[i] = i;
        return n;
    }
    for (int64_t i = 0; i < n; i++) {
        keys[count] = x[i];
        if (PLACES)
            to.places[count] = i;
        count += !NAME(is_nan)(x[i]);
    }
    for (int64_t i = 0, next = count; PLACES && i < n; i++)
        if (NAME(is_nan)(x[i]))
            order[next++] = i;
    return count;
}

static void PART(distribute)(const uint16_t *bucket, const void *elements, const int64_t *places, int64_t place,
                             int64_t n, uint64_t bias, int64_t *next, qb_sort_items to)
{
    const T *x = elements;
    T *keys = to.keys;
    int64_t at[BLOCK];
    for (int64_t first = 0; first < n; first += BLOCK) {
        int here = n - first < BLOCK ? (int)(n - first) : BLOCK;
        for (int i = 0; i < here; i++) {
            at[i] = next[bucket[first + i]]++;
            __builtin_prefetch(keys + at[i], 1);
            if (PLACES)
                __builtin_prefetch(to.places + at[i], 1);
        }
        for (int i = 0; i < here; i++) {
            keys[at[i]] = NAME(biased)(x[first + i], bias);
            if (PLACES)
                to.places[at[i]] = places ? places[first + i] : place + first + i;
        }
    }
}

static void PART(part)(qb_sort_items x, qb_sort_items buffer, qb_sort_items next_buffer, qb_sort_items sorted,
                       int64_t n, uint64_t bias)
{
    PART(sort)
    ((ITEMS){x.keys, x.places}, (ITEMS){buffer.keys, buffer.places}, (ITEMS){next_buffer.keys, next_buffer.places},
     (ITEMS){sorted.keys, sorted.places}, n, bias);
}

#undef CASE
#undef ITEMS
#undef PART
#undef PLACES
