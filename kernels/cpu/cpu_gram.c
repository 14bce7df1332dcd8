/* cpu_gram.c - x^T x of rows, which GPTQ calls the Hessian.
 * gram[i,j] += sum_t x[t,i] x[t,j],  j >= i
 * shapes  x [T,K] f32, gram [K,K] double; any T, K
 * cost    T K^2 flops and a little more along the diagonal; x is packed first, 4 T K bytes
 *         there and back, and each block reads 2 * 4 T * BLOCK bytes of that; half of those in
 *         bf16 on processors with vdpbf16ps
 * threads take blocks of the triangle, each with all the rows that are packed: BLOCK^2
 *         doubles and a part of two panels of blocks stay in the second level of the cache
 * sums    f32 over a part, in order, parts in double, in order
 * NaN     goes through
 * test    tests/kernels/test_gram.c */
#include "kernels/cpu/cpu_gram.h"

#include <string.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/size.h"

enum {
    PART = GRAM_PART,
    BLOCK = 2 * GRAM_COLS,
    PACK = 8,                    // panels that are packed together: they read whole pages
    PACKED_BYTES = 8 << 20       // or a part, if that is more: stays in the last level
};

typedef struct {
    double      *gram;
    const float *x;              // [T,K] rows at hand
    int64_t      T, K;
    int64_t      panels;         // of a part; whole tiles, zeros past K
    int64_t      lines;          // of a panel
    int          in_line;        // rows of a line, 1 or 2
    uint32_t    *packed;         // [parts][panels][lines][GRAM_PANEL]
    GramTile    *tile;
    GramLine    *line;
} Gram;

static void copy_line(uint32_t *to, const float *x, const float *next)
{
    (void)next;
    memcpy(to, x, GRAM_PANEL * sizeof *x);
}

static void choose(Gram *g, Dtype dtype)
{
    static const GramIsa *const OF[N_CPU_ISAS] = {&gram_plain, &gram_avx2, &gram_avx512};
    const GramIsa              *isa = OF[cpu_isa()];
    bool dots = dtype == DTYPE_BF16 && cpu_has_bf16_dot();
    g->tile = dots ? isa->dots : isa->tile;
    g->line = dots ? isa->pair : dtype == DTYPE_BF16 ? isa->round : copy_line;
    g->in_line = dots ? 2 : 1;
    g->lines = PART / g->in_line;
}

/* --- panels --- */

static uint32_t *panel_at(const Gram *g, int64_t part, int64_t panel)
{
    return g->packed + (part * g->panels + panel) * g->lines * GRAM_PANEL;
}

/* Row t from column k on: where it lies, or in `room`, with zeros past the last column. */
static const float *row_of(const Gram *g, int64_t t, int64_t k, float *room)
{
    static const float ZEROS[GRAM_PANEL];
    int64_t            n = i64_min(GRAM_PANEL, g->K - k);
    if (t >= g->T || n <= 0)
        return ZEROS;
    if (n == GRAM_PANEL)
        return g->x + t * g->K + k;
    for (int64_t i = 0; i < GRAM_PANEL; i++)
        room[i] = i < n ? g->x[t * g->K + k + i] : 0;
    return room;
}

static int64_t lines_of(const Gram *g, int64_t part)
{
    return ceil_div(i64_min(PART, g->T - part * PART), g->in_line);
}

static void pack(const Gram *g, int64_t part, int64_t first)
{
    int64_t end = i64_min(first + PACK, g->panels), n = lines_of(g, part);
    float   room[2][GRAM_PANEL];
    for (int64_t line = 0; line < n; line++)
        for (int64_t p = first; p < end; p++) {
            int64_t t = part * PART + line * g->in_line, k = p * GRAM_PANEL;
            g->line(panel_at(g, part, p) + line * GRAM_PANEL, row_of(g, t, k, room[0]),
                    row_of(g, t + 1, k, room[1]));
        }
}

/* --- blocks --- */

/* Tiles of a part in columns j .. j + GRAM_COLS, rows i .. end, that reach the diagonal. */
static void add_column(const Gram *g, int64_t part, int64_t i, int64_t end, int64_t j)
{
    const uint32_t *b = panel_at(g, part, j / GRAM_PANEL);
    for (; i < i64_min(end, j + GRAM_COLS); i += GRAM_ROWS)
        g->tile(g->gram + i * g->K + j, g->K, i64_min(GRAM_ROWS, g->K - i),
                i64_min(GRAM_COLS, g->K - j),
                panel_at(g, part, i / GRAM_PANEL) + i % GRAM_PANEL, b, g->lines * GRAM_PANEL,
                lines_of(g, part));
}

static void add_block(const Gram *g, int64_t i, int64_t j)
{
    int64_t end = i64_min(i + BLOCK, g->K);
    for (int64_t part = 0; part * PART < g->T; part++)
        for (int64_t c = j; c < i64_min(j + BLOCK, g->K); c += GRAM_COLS)
            add_column(g, part, i, end, c);
}

/* Blocks of the triangle are numbered row after row. */
static void add_number(const Gram *g, int64_t number)
{
    int64_t row = 0, length = ceil_div(g->K, BLOCK);
    for (; number >= length; row++, length--)
        number -= length;
    add_block(g, row * BLOCK, (row + number) * BLOCK);
}

static void add_rows(const Gram *g, int n_threads)
{
    int64_t packs = ceil_div(g->panels, PACK), side = ceil_div(g->K, BLOCK);
#pragma omp parallel num_threads(n_threads)
    {
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < ceil_div(g->T, PART) * packs; i++)
            pack(g, i / packs, i % packs * PACK);
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < side * (side + 1) / 2; i++)
            add_number(g, i);
    }
}

Status cpu_gram(Backend *be, double *gram, const Tensor *x, Dtype dtype)
{
    int64_t T = x->shape[0], K = x->shape[1];
    Gram    g = {.gram = gram, .K = K, .panels = ceil_div(K, GRAM_COLS) * 3};
    void   *packed;
    choose(&g, dtype);
    int64_t bytes = g.panels * g.lines * GRAM_PANEL * (int64_t)sizeof *g.packed;
    int64_t parts = i64_min(i64_max(PACKED_BYTES / bytes, 1), ceil_div(T, PART));
    TRY(cpu_scratch(be, &packed, (size_t)(parts * bytes)));
    g.packed = packed;
    for (int64_t t = 0; t < T; t += parts * PART) {
        g.x = (const float *)x->data + t * K;
        g.T = i64_min(parts * PART, T - t);
        add_rows(&g, cpu_threads(be, g.T * K * K));
    }
    return OK;
}
