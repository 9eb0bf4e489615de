/* Sorting a part of a row, within a thread: included by sort_type.h without PLACES and with them. */

typedef struct RUN {
    T *keys;
    int64_t *places;
} RUN;

QB_ALWAYS_INLINE RUN PART(from)(RUN run, int64_t first)
{
    return (RUN){run.keys + first, PLACES ? run.places + first : NULL};
}

QB_ALWAYS_INLINE void PART(move)(RUN to, int64_t at, RUN from, int64_t i)
{
    to.keys[at] = from.keys[i];
#if PLACES
    to.places[at] = from.places[i];
#endif
}

/* What has been sorted leaves: places, or elements as they are outside. */
QB_ALWAYS_INLINE void PART(leave)(RUN sorted, int64_t at, RUN from, int64_t i, uint64_t flip)
{
#if PLACES
    (void)flip;
    sorted.places[at] = from.places[i];
#else
    sorted.keys[at] = NAME(flipped)(from.keys[i], flip);
#endif
}

static void PART(leave_all)(RUN sorted, RUN from, int64_t n, uint64_t flip)
{
    for (int64_t i = 0; i < n; i++)
        PART(leave)(sorted, i, from, i, flip);
}

/* ---- Few elements: the place of each is the number of smaller ones, and of equal ones before it */

#define CASE(vectors)                                                                                                  \
    case vectors:                                                                                                      \
        if ((vectors) <= MOST_VECTORS)                                                                                 \
            NAME(count_smaller)(x.keys, n, keys, smaller, (vectors) <= MOST_VECTORS ? (vectors) : 1);                  \
        break;

static void PART(sort_few)(RUN x, RUN sorted, int n, bool leaves, uint64_t flip)
{
    T keys[FEW];
    WORD smaller[FEW];
    uint8_t equal[FEW] = {0};
    int64_t places[PLACES ? FEW : 1];
    RUN copy = {keys, places}; /* `sorted` may be x */
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
            PART(leave)(sorted, at, copy, i, flip);
        else
            PART(move)(sorted, at, copy, i);
    }
}

/* ---- By merging: for what digits do not spread */

static void PART(merge)(RUN a, int64_t n, RUN b, int64_t m, RUN to)
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

static void PART(merge_sort)(RUN x, RUN other, RUN another, RUN sorted, int64_t n, uint64_t flip)
{
    for (int64_t first = 0; first < n; first += FEW)
        PART(sort_few)
    (PART(from)(x, first), PART(from)(other, first), n - first < FEW ? (int)(n - first) : FEW, false, flip);
    for (int64_t width = FEW; width < n; width *= 2) {
        for (int64_t first = 0; first < n; first += 2 * width) {
            int64_t here = n - first < width ? n - first : width, behind = n - first - here;
            PART(merge)
            (PART(from)(other, first), here, PART(from)(other, first + here), behind < width ? behind : width,
             PART(from)(another, first));
        }
        RUN merged = another;
        another = other;
        other = merged;
    }
    PART(leave_all)(sorted, other, n, flip);
}

/* ---- By digits */

/* Deals the elements out to `to` by their digits; count becomes where those of each digit end. */
static void PART(deal_out)(const qb_sort_rule *rule, RUN x, RUN to, int64_t n, uint32_t *count)
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

static void PART(sort)(RUN x, RUN other, RUN another, RUN sorted, int64_t n, uint64_t flip)
{
    T lowest, highest;
    qb_sort_rule rule = {0};
    uint32_t end[MOST_DIGITS], largest = UINT32_MAX, first = 0;
    int32_t digits = 4;
    if (n <= FEW) {
        PART(sort_few)(x, sorted, (int)n, true, flip);
        return;
    }
    NAME(find_extremes)(x.keys, n, &lowest, &highest);
    if (!(lowest < highest)) {
        PART(leave_all)(sorted, x, n, flip);
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
        PART(merge_sort)(x, other, another, sorted, n, flip);
        return;
    }
    PART(deal_out)(&rule, x, other, n, end);
    for (int32_t d = 0; d <= rule.last; first = end[d], d++) {
        while (d < rule.last && end[d + 1] - first <= TOGETHER) /* neighbours together */
            d++;
        uint32_t here = end[d] - first;
        if (here <= FEW)
            PART(sort_few)(PART(from)(other, first), PART(from)(sorted, first), (int)here, true, flip);
        else
            PART(sort)
        (PART(from)(other, first), PART(from)(another, first), PART(from)(other, first), PART(from)(sorted, first),
         here, flip);
    }
}

static void PART(part)(qb_sort_run x, qb_sort_run other, qb_sort_run another, qb_sort_run sorted, int64_t n,
                       uint64_t flip)
{
    PART(sort)
    ((RUN){x.keys, x.places}, (RUN){other.keys, other.places}, (RUN){another.keys, another.places},
     (RUN){sorted.keys, sorted.places}, n, flip);
}

static int64_t PART(take)(const void *elements, int64_t n, uint64_t flip, qb_sort_run to, int64_t *order)
{
    const T *x = elements;
    T *keys = to.keys;
    int64_t count = 0;
    WORD nans = 0;
    for (int64_t i = 0; i < n; i++)
        nans |= NAME(is_nan)(x[i]);
    if (!nans) {
        for (int64_t i = 0; i < n; i++)
            keys[i] = NAME(flipped)(x[i], flip);
#if PLACES
        for (int64_t i = 0; i < n; i++)
            to.places[i] = i;
#endif
        (void)order;
        return n;
    }
    for (int64_t i = 0; i < n; i++) {
        keys[count] = x[i];
#if PLACES
        to.places[count] = i;
#endif
        count += !NAME(is_nan)(x[i]);
    }
#if PLACES
    for (int64_t i = 0, next = count; i < n; i++)
        if (NAME(is_nan)(x[i]))
            order[next++] = i;
#endif
    return count;
}

#undef CASE
#undef RUN
#undef PART
#undef PLACES
