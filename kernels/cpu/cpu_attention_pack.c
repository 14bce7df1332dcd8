/* cpu_attention_pack.c - keys and values as the products of attention read them.
 * k         [S,G*K,d] -> k_panels [panels,G,K,d,PANEL_KEYS]: 64 keys of one
 *           sequence side by side, transposed; what is missing is 0
 * v         [S,G,dv] -> v_rows [G,S,dv_pad]: columns of 0 up to the padding
 * cost      8 bytes a number, once a call; every tile of T reads them again. Keys
 *           out of every query's reach are left out: a step of generation with a
 *           window does not pay for its whole cache
 * sums      none; with BF16 the copies are rounded
 * test      tests/kernels/test_attention.c, ragged d and S */
#include <string.h>

#include "kernels/cpu/cpu_attention.h"
#include "kernels/cpu/cpu_backend.h"

typedef float Quad __attribute__((vector_size(16)));
typedef float QuadAt __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t Pick __attribute__((vector_size(16)));

/* 4 keys x 4 dims -> 4 dims x 4 keys. */
static void transpose_4x4(float *to, const float *k, int64_t ld)
{
    Quad a = *(const QuadAt *)k, b = *(const QuadAt *)(k + ld);
    Quad c = *(const QuadAt *)(k + 2 * ld), d = *(const QuadAt *)(k + 3 * ld);
    Quad ab = __builtin_shuffle(a, b, (Pick){0, 4, 1, 5});
    Quad cd = __builtin_shuffle(c, d, (Pick){0, 4, 1, 5});
    Quad ab2 = __builtin_shuffle(a, b, (Pick){2, 6, 3, 7});
    Quad cd2 = __builtin_shuffle(c, d, (Pick){2, 6, 3, 7});
    *(QuadAt *)to = __builtin_shuffle(ab, cd, (Pick){0, 1, 4, 5});
    *(QuadAt *)(to + PANEL_KEYS) = __builtin_shuffle(ab, cd, (Pick){2, 3, 6, 7});
    *(QuadAt *)(to + 2 * PANEL_KEYS) = __builtin_shuffle(ab2, cd2, (Pick){0, 1, 4, 5});
    *(QuadAt *)(to + 3 * PANEL_KEYS) = __builtin_shuffle(ab2, cd2, (Pick){2, 3, 6, 7});
}

/* panel [d,PANEL_KEYS] from n keys of d dims, ld apart. */
static void pack_panel(float *panel, const float *k, int64_t ld, int64_t n, int64_t d)
{
    int64_t quads = n / 4 * 4, dims = d / 4 * 4;
    if (n < PANEL_KEYS)
        memset(panel, 0, (size_t)d * PANEL_KEYS * sizeof *panel);
    for (int64_t j = 0; j < quads; j += 4) {
        for (int64_t i = 0; i < dims; i += 4)
            transpose_4x4(panel + i * PANEL_KEYS + j, k + j * ld + i, ld);
        for (int64_t i = dims; i < d; i++)
            for (int64_t l = j; l < j + 4; l++)
                panel[i * PANEL_KEYS + l] = k[l * ld + i];
    }
    for (int64_t j = quads; j < n; j++)
        for (int64_t i = 0; i < d; i++)
            panel[i * PANEL_KEYS + j] = k[j * ld + i];
}

void attn_pack_keys(const AttnCall *c, float *panel, const float *k, int64_t n)
{
    pack_panel(panel, k, c->a->n_groups * c->n_key_maps * c->d, n, c->d);
    if (c->a->dtype == DTYPE_BF16)
        cpu_rows()->round_to_bf16(panel, panel, c->d * PANEL_KEYS);
}

void attn_pack_value(const AttnCall *c, float *row, const float *v)
{
    if (c->a->dtype == DTYPE_BF16)
        cpu_rows()->round_to_bf16(row, v, c->dv);
    else
        memcpy(row, v, (size_t)c->dv * sizeof *row);
    memset(row + c->dv, 0, (size_t)(c->dv_pad - c->dv) * sizeof *row);
}

/* Panel p of the sequence, of all groups and maps. */
static void pack_keys(const AttnCall *c, const float *k, int64_t sequence, int64_t p)
{
    int64_t n_heads = c->a->n_groups * c->n_key_maps, ld = n_heads * c->d;
    int64_t key = c->key_start[sequence] + p * PANEL_KEYS;
    int64_t n = i64_min(c->key_start[sequence + 1] - key, PANEL_KEYS);
    int64_t floats = c->d * PANEL_KEYS;
    float *panel = c->k_panels + (c->panel_start[sequence] + p) * n_heads * floats;
    for (int64_t h = 0; h < n_heads; h++)
        attn_pack_keys(c, panel + h * floats, k + key * ld + h * c->d, n);
}

static void pack_values(const AttnCall *c, const float *v, int64_t key)
{
    const float *from = v + key * c->a->n_groups * c->dv;
    for (int64_t g = 0; g < c->a->n_groups; g++)
        attn_pack_value(c, c->v_rows + (g * c->n_keys + key) * c->dv_pad, from + g * c->dv);
}

/* The first key of the sequence that its first query sees. */
static int64_t first_key(const AttnCall *c, int64_t sequence)
{
    const int32_t *start = c->a->batch.start + sequence, *keys = c->key_start + sequence;
    int64_t position = (int64_t)keys[1] - keys[0] - (start[1] - start[0]);
    return i64_max(position + 1 - c->reach, 0);
}

void attn_pack(const AttnCall *c, const float *k, const float *v, int n_threads)
{
    int64_t n_sequences = c->a->batch.n_sequences;
#pragma omp parallel num_threads(n_threads)
    for (int64_t b = 0; b < n_sequences; b++) {
        int64_t first = first_key(c, b), n = c->panel_start[b + 1] - c->panel_start[b];
#pragma omp for schedule(static) nowait
        for (int64_t p = first / PANEL_KEYS; p < n; p++)
            pack_keys(c, k, b, p);
#pragma omp for schedule(static) nowait
        for (int64_t key = c->key_start[b] + first; key < c->key_start[b + 1]; key++)
            pack_values(c, v, key);
    }
}
