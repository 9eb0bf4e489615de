/* One element type's products, included by gemm.c with T, LANES (of a vector), and TRANSPOSE (see transpose.h).
 *
 * c is computed tile by tile, each from a few rows of a and a panel of b. A panel is at most TILE_VECTORS wide; of
 * its vectors the last one ends with the panel, so it may begin over columns of the one before, which are then
 * computed twice. So no tile reads or writes beyond its columns, except where b is narrower than a vector: then
 * zeros are packed. */

#define NAME(name) PASTE_EXPANDED(PASTE_EXPANDED(name, _), T)
#define VECTOR     NAME(vector)
#define UNALIGNED  NAME(unaligned)

TRANSPOSE(NAME(transpose), VECTOR, UNALIGNED, T)

/* ---- Tiles */

/* What a tile reads and writes; columns of the last vector begin at b_last and c_last. */
typedef struct NAME(tile) {
    int64_t k;
    const T *a, *b;
    int64_t a_m, a_k, b_k, b_last;
    T *c;
    int64_t c_m, c_last;
    const T *addend; /* like c; NULL: zeros */
    int64_t width;   /* columns, where they are fewer than LANES */
} NAME(tile);

QB_ALWAYS_INLINE void NAME(fetch)(const NAME(tile) * t, const int rows, const int vectors)
{
    QB_UNROLLED
    for (int i = 0; i < rows; i++) {
        QB_UNROLLED
        for (int v = 0; v < vectors; v++)
            __builtin_prefetch(t->addend + i * t->c_m + v * LANES);
    }
}

QB_ALWAYS_INLINE void NAME(multiply)(const NAME(tile) * t, const int rows, const int vectors,
                                     VECTOR sum[QB_GEMM_ROWS][TILE_VECTORS])
{
    const T *a = t->a, *b = t->b;
    int64_t a_m = t->a_m, a_k = t->a_k, b_k = t->b_k, b_last = t->b_last;
    QB_UNROLLED
    for (int i = 0; i < rows; i++) {
        QB_UNROLLED
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (VECTOR){0};
    }
    for (int64_t p = t->k; p > 0; p--, a += a_k, b += b_k) {
        VECTOR row[TILE_VECTORS];
        QB_UNROLLED
        for (int v = 0; v < vectors; v++)
            row[v] = *(const UNALIGNED *)(b + (v < vectors - 1 ? v * LANES : b_last));
        QB_UNROLLED
        for (int i = 0; i < rows; i++) {
            VECTOR factor = NAME(ALL)(a[i * a_m]);
            QB_UNROLLED
            for (int v = 0; v < vectors; v++)
                sum[i][v] = NAME(FMA)(factor, row[v], sum[i][v]);
        }
    }
}

QB_ALWAYS_INLINE void NAME(compute)(const NAME(tile) * t, const int rows, const int vectors)
{
    VECTOR sum[QB_GEMM_ROWS][TILE_VECTORS];
    if (t->addend)
        NAME(fetch)(t, rows, vectors);
    NAME(multiply)(t, rows, vectors, sum);
    T *c = t->c;
    int64_t c_m = t->c_m, c_last = t->c_last;
    if (t->addend) { /* all is read before c is written, which it may be: a last vector may overlap the one before */
        QB_UNROLLED
        for (int i = 0; i < rows; i++) {
            QB_UNROLLED
            for (int v = 0; v < vectors; v++)
                sum[i][v] += *(const UNALIGNED *)(t->addend + i * c_m + (v < vectors - 1 ? v * LANES : c_last));
        }
    }
    QB_UNROLLED
    for (int i = 0; i < rows; i++) {
        QB_UNROLLED
        for (int v = 0; v < vectors; v++)
            *(UNALIGNED *)(c + i * c_m + (v < vectors - 1 ? v * LANES : c_last)) = sum[i][v];
    }
}

QB_ALWAYS_INLINE void NAME(compute_narrow)(const NAME(tile) * t, const int rows)
{
    VECTOR sum[QB_GEMM_ROWS][TILE_VECTORS];
    T lanes[QB_GEMM_ROWS][LANES];
    NAME(multiply)(t, rows, 1, sum);
    QB_UNROLLED
    for (int i = 0; i < rows; i++)
        *(UNALIGNED *)lanes[i] = sum[i][0];
    for (int i = 0; i < rows; i++) {
        int64_t row = i * t->c_m;
        for (int64_t j = 0; j < t->width; j++)
            t->c[row + j] = t->addend ? t->addend[row + j] + lanes[i][j] : lanes[i][j];
    }
}

#define TILE_NAME(rows, vectors) NAME(tile_##rows##_##vectors)
#define TILE(rows, vectors)                                                                                            \
    static void TILE_NAME(rows, vectors)(const NAME(tile) * t)                                                         \
    {                                                                                                                  \
        NAME(compute)(t, rows, vectors);                                                                               \
    }
#define NARROW_TILE(rows)                                                                                              \
    static void TILE_NAME(rows, 0)(const NAME(tile) * t)                                                               \
    {                                                                                                                  \
        NAME(compute_narrow)(t, rows);                                                                                 \
    }
#define TILES(vectors)                                                                                                 \
    TILE(1, vectors) TILE(2, vectors) TILE(3, vectors) TILE(4, vectors) TILE(5, vectors) TILE(6, vectors)
#define TILE_NAMES(vectors)                                                                                            \
    {                                                                                                                  \
        TILE_NAME(1, vectors), TILE_NAME(2, vectors), TILE_NAME(3, vectors), TILE_NAME(4, vectors),                    \
            TILE_NAME(5, vectors), TILE_NAME(6, vectors)                                                               \
    }
NARROW_TILE(1)
NARROW_TILE(2)
NARROW_TILE(3)
NARROW_TILE(4)
NARROW_TILE(5)
NARROW_TILE(6)
TILES(1)
TILES(2)
#if TILE_VECTORS > 2
TILES(3)
TILES(4)
#endif

/* By vectors (0: fewer columns than one has) and rows. */
static void (*const NAME(tiles)[TILE_VECTORS + 1][QB_GEMM_ROWS])(const NAME(tile) *) = {
    TILE_NAMES(0), TILE_NAMES(1), TILE_NAMES(2),
#if TILE_VECTORS > 2
    TILE_NAMES(3), TILE_NAMES(4),
#endif
};

/* ---- A block: rows of a, all columns of b, terms of one block */

typedef struct NAME(block) {
    const qb_product_shape *d;
    int64_t rows, k;
    const T *a, *b; /* from the block's first row and first term on */
    T *c;
    const T *addend;
    int64_t c_m;
    bool packs_a, packs_b;
    T *packed_a, *packed_b;
} NAME(block);

/* LANES columns of b to rows of `out` that are `stride` apart; where their elements are side by side, in registers. */
static void NAME(pack_columns)(int64_t k, const T *b, int64_t b_k, int64_t b_n, T *out, int64_t stride)
{
    int64_t p = 0;
    for (; b_k == 1 && p + LANES <= k; p += LANES) {
        VECTOR x[LANES];
        QB_UNROLLED
        for (int i = 0; i < LANES; i++)
            x[i] = *(const UNALIGNED *)(b + i * b_n + p);
        NAME(transpose)(x);
        QB_UNROLLED
        for (int i = 0; i < LANES; i++)
            *(VECTOR *)(out + (p + i) * stride) = x[i];
    }
    for (; p < k; p++)
        for (int i = 0; i < LANES; i++)
            out[p * stride + i] = b[i * b_n + p * b_k];
}

/* Some columns, all rows of a block of b; where it is packed, for each term the vectors of a tile side by side. */
typedef struct NAME(panel) {
    int64_t first, width;
    int vectors;
    T *packed;
} NAME(panel);

/* Panels side by side in memory, term by term: a line of the cache may be part of two. */
static void NAME(pack_rows_of_panels)(const NAME(block) * s, int count, const NAME(panel) * panels)
{
    int wide = 0; /* that have all the vectors of a tile */
    while (wide < count && panels[wide].width == TILE_VECTORS * LANES)
        wide++;
    const T *row = s->b + panels[0].first;
    int64_t step = panels[1 % count].packed - panels[0].packed;
    for (int64_t p = 0; p < s->k; p++, row += s->d->b_k) {
        const T *b = row;
        T *out = panels[0].packed + p * TILE_VECTORS * LANES;
        for (int i = 0; i < wide; i++, b += TILE_VECTORS * LANES, out += step) {
            QB_UNROLLED
            for (int v = 0; v < TILE_VECTORS; v++)
                *(VECTOR *)(out + v * LANES) = *(const UNALIGNED *)(b + v * LANES);
        }
        for (const NAME(panel) *panel = panels + wide; panel < panels + count; panel++) {
            b = row + panel->first - panels[0].first;
            out = panel->packed + p * panel->vectors * LANES;
            for (int v = 0; v < panel->vectors - 1; v++)
                *(VECTOR *)(out + v * LANES) = *(const UNALIGNED *)(b + v * LANES);
            *(VECTOR *)(out + (panel->vectors - 1) * LANES) = *(const UNALIGNED *)(b + panel->width - LANES);
        }
    }
}

static void NAME(pack_panel)(const NAME(block) * s, const NAME(panel) * panel)
{
    int64_t b_k = s->d->b_k, b_n = s->d->b_n;
    const T *b = s->b + panel->first * b_n;
    T *out = panel->packed;
    if (panel->width < LANES) {
        for (int64_t p = 0; p < s->k; p++, b += b_k, out += LANES)
            for (int64_t j = 0; j < LANES; j++)
                out[j] = j < panel->width ? b[j * b_n] : 0;
        return;
    }
    for (int v = 0; v < panel->vectors; v++) {
        int64_t column = v < panel->vectors - 1 ? v * LANES : panel->width - LANES;
        NAME(pack_columns)(s->k, b + column * b_n, b_k, b_n, out + v * LANES, panel->vectors * LANES);
    }
}

/* Rows of a as they are where a row's terms lie side by side; otherwise QB_GEMM_ROWS at a time, the last fewer, for
 * each term their elements. */
static void NAME(pack_rows)(const NAME(block) * s)
{
    int64_t a_m = s->d->a_m, a_k = s->d->a_k, k = s->k, row = 0;
    T *out = s->packed_a;
    if (a_k == 1) {
        for (; row < s->rows; row++)
            memcpy(out + row * k, s->a + row * a_m, (size_t)k * sizeof(T));
        return;
    }
    for (; row + QB_GEMM_ROWS <= s->rows; row += QB_GEMM_ROWS)
        for (int64_t p = 0; p < k; p++, out += QB_GEMM_ROWS) {
            const T *a = s->a + row * a_m + p * a_k;
            QB_UNROLLED
            for (int64_t i = 0; i < QB_GEMM_ROWS; i++)
                out[i] = a[i * a_m];
        }
    for (int64_t p = 0; p < k; p++)
        for (int64_t i = row; i < s->rows; i++)
            *out++ = s->a[i * a_m + p * a_k];
}

/* The panel's columns of c. */
static void NAME(run_panel)(const NAME(block) * s, const NAME(panel) * panel)
{
    int64_t first = panel->first, width = panel->width, last = width < LANES ? 0 : width - LANES;
    NAME(tile)
    t = {.k = s->k,
         .a_m = s->d->a_m,
         .a_k = s->d->a_k,
         .b = s->packs_b ? panel->packed : s->b + first,
         .b_k = s->packs_b ? panel->vectors * LANES : s->d->b_k,
         .b_last = s->packs_b ? (panel->vectors - 1) * LANES : last,
         .c_m = s->c_m,
         .c_last = last,
         .width = width};
    for (int64_t row = 0; row < s->rows; row += QB_GEMM_ROWS) {
        int64_t rows = s->rows - row < QB_GEMM_ROWS ? s->rows - row : QB_GEMM_ROWS;
        t.a = s->packs_a ? s->packed_a + row * s->k : s->a + row * t.a_m;
        if (s->packs_a) {
            t.a_m = s->d->a_k == 1 ? s->k : 1;
            t.a_k = s->d->a_k == 1 ? 1 : rows;
        }
        t.c = s->c + row * s->c_m + first;
        t.addend = s->addend ? s->addend + row * s->c_m + first : NULL;
        NAME(tiles)[width < LANES ? 0 : panel->vectors][rows - 1](&t);
    }
}

static void NAME(run_panels)(const NAME(block) * s, int count, const NAME(panel) * panels)
{
    if (s->packs_b && s->d->b_n == 1 && panels[0].width >= LANES)
        NAME(pack_rows_of_panels)(s, count, panels);
    for (int i = 0; i < count; i++) {
        if (s->packs_b && (s->d->b_n != 1 || panels[i].width < LANES))
            NAME(pack_panel)(s, &panels[i]);
        NAME(run_panel)(s, &panels[i]);
    }
}

/* Panels differ by one vector at most, so that the last has two where there are two: columns that are computed twice
 * lie in one panel. */
static void NAME(run_block)(const NAME(block) * s)
{
    enum { MOST_TOGETHER = QB_GEMM_PACKED_BYTES / (VECTOR_BYTES * TILE_VECTORS) };
    int64_t n = s->d->n, vectors = (n + LANES - 1) / LANES, panels = (vectors + TILE_VECTORS - 1) / TILE_VECTORS;
    NAME(panel) together[MOST_TOGETHER];
    int count = 0;
    if (s->packs_a)
        NAME(pack_rows)(s);
    for (int64_t i = 0; i < panels; i++) {
        int64_t first = i * vectors / panels, limit = (i + 1) * vectors / panels;
        together[count] = (NAME(panel)){.first = first * LANES,
                                        .width = (i == panels - 1 ? n : limit * LANES) - first * LANES,
                                        .vectors = (int)(limit - first),
                                        .packed = s->packed_b + count * s->k * TILE_VECTORS * LANES};
        if (++count == MOST_TOGETHER || i == panels - 1) {
            NAME(run_panels)(s, count, together);
            count = 0;
        }
    }
}

void QB_GEMM_NAME(T, QB_ISA)(const qb_product_shape *d, const void *a, const void *b, const void *start, void *c,
                             int64_t c_m, void *scratch)
{
    int64_t size = sizeof(T), depth = qb_gemm_depth(d), panel_bytes = VECTOR_BYTES * TILE_VECTORS;
    NAME(block) s = {.d = d, .c_m = c_m, .packed_b = scratch};
    s.packed_a = s.packed_b + depth * qb_gemm_group(d->n, size, panel_bytes) * panel_bytes / size;
    s.packs_a = qb_gemm_packs_left(d, size, panel_bytes);
    s.packs_b =
        d->b_n != 1 || d->n < LANES || (d->b_k * depth * size > QB_GEMM_DIRECT_BYTES && d->m >= QB_GEMM_ROWS_DIRECT);
    int64_t blocks = s.packs_a ? (d->m + QB_GEMM_HEIGHT - 1) / QB_GEMM_HEIGHT : 1;
    int64_t tiles = (d->m + QB_GEMM_ROWS - 1) / QB_GEMM_ROWS, height = (tiles + blocks - 1) / blocks * QB_GEMM_ROWS;
    for (int64_t p = 0; p < d->k; p += depth) {
        const T *addend = p > 0 ? c : start;
        s.k = depth < d->k - p ? depth : d->k - p;
        s.b = (const T *)b + p * d->b_k;
        for (int64_t i = 0; i < d->m; i += height) {
            s.rows = height < d->m - i ? height : d->m - i;
            s.a = (const T *)a + i * d->a_m + p * d->a_k;
            s.c = (T *)c + i * c_m;
            s.addend = addend ? addend + i * c_m : NULL;
            NAME(run_block)(&s);
        }
    }
}

#undef NAME
#undef VECTOR
#undef UNALIGNED
#undef TILE_NAME
#undef TILE
#undef NARROW_TILE
#undef TILES
#undef TILE_NAMES
