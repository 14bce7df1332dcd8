/* cpu_gram.c - x^T x of rows, which GPTQ calls the Hessian.
 * gram[i,j] += sum_t x[t,i] x[t,j],  j >= i
 * shapes  x [T,K] f32, gram [K,K] double; any T, K
 * cost    T K^2 flops and a little more along the diagonal; x is packed first, 4 T K bytes
 *         there and back, and each block reads 2 * 4 T * BLOCK bytes of that
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
    PANEL = PART * GRAM_PANEL,   // floats of a panel
    PACK = 8,                    // panels that are packed together: they read whole pages
    PACKED_BYTES = 8 << 20       // or a part, if that is more: stays in the last level
};

typedef struct {
    double      *gram;
    const float *x;              // [T,K] rows at hand
    int64_t      T, K;
    int64_t      panels;         // of a part; whole tiles, zeros past K
    float       *packed;         // [parts][panels][PART][GRAM_PANEL]
    GramTile    *tile;
} Gram;

static float *panel_at(const Gram *g, int64_t part, int64_t panel)
{
    return g->packed + (part * g->panels + panel) * PANEL;
}

static void pack_row(float *to, const Gram *g, int64_t t, int64_t panel)
{
    int64_t      k = panel * GRAM_PANEL, n = i64_min(GRAM_PANEL, i64_max(g->K - k, 0));
    const float *from = g->x + t * g->K + k;
    if (n == GRAM_PANEL) {
        memcpy(to, from, GRAM_PANEL * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < GRAM_PANEL; i++)
        to[i] = i < n ? from[i] : 0;
}

static void pack(const Gram *g, int64_t part, int64_t first)
{
    int64_t end = i64_min(first + PACK, g->panels), n = i64_min(PART, g->T - part * PART);
    for (int64_t t = 0; t < n; t++)
        for (int64_t p = first; p < end; p++)
            pack_row(panel_at(g, part, p) + t * GRAM_PANEL, g, part * PART + t, p);
}

/* Tiles of a part in columns j .. j + GRAM_COLS, rows i .. end, that reach the diagonal. */
static void add_column(const Gram *g, int64_t part, int64_t i, int64_t end, int64_t j)
{
    int64_t      n = i64_min(PART, g->T - part * PART);
    const float *b = panel_at(g, part, j / GRAM_PANEL);
    for (; i < i64_min(end, j + GRAM_COLS); i += GRAM_ROWS)
        g->tile(g->gram + i * g->K + j, g->K, i64_min(GRAM_ROWS, g->K - i),
                i64_min(GRAM_COLS, g->K - j),
                panel_at(g, part, i / GRAM_PANEL) + i % GRAM_PANEL, b, PANEL, n);
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

Status cpu_gram(Backend *be, double *gram, const Tensor *x)
{
    static GramTile *const OF[N_CPU_ISAS] = {gram_plain, gram_avx2, gram_avx512};
    int64_t T = x->shape[0], K = x->shape[1], panels = ceil_div(K, GRAM_COLS) * 3;
    int64_t bytes = panels * PANEL * (int64_t)sizeof(float);
    int64_t parts = i64_min(i64_max(PACKED_BYTES / bytes, 1), ceil_div(T, PART));
    void   *packed;
    TRY(cpu_scratch(be, &packed, (size_t)(parts * bytes)));
    for (int64_t t = 0; t < T; t += parts * PART) {
        Gram g = {.gram = gram, .x = (const float *)x->data + t * K,
                  .T = i64_min(parts * PART, T - t), .K = K, .panels = panels,
                  .packed = packed, .tile = OF[cpu_isa()]};
        add_rows(&g, cpu_threads(be, g.T * K * K));
    }
    return OK;
}
