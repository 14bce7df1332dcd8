/* cpu_attention_pack.c - queries, keys and values as the products of attention read them, in
 * words (cpu_words.h): of f32, or of pairs of bf16 along what is summed.
 * k         [S,G*K,d] -> k_panels [panels,G,K,d_words,PANEL_KEYS]: 64 keys of one
 *           sequence side by side, transposed; what is missing is 0
 * v         [S,G,dv] -> v_rows [G,S / per_word,dv_pad]: columns of 0 up to the padding
 * cost      8 or 6 bytes a number, once a call; every tile of T reads them again. Panels
 *           out of every query's reach are left out: a step of generation with a
 *           window does not pay for its whole cache
 * sums      none; with BF16 the copies are rounded
 * test      tests/kernels/test_attention.c, ragged d and S */
#include <omp.h>
#include <string.h>

#include "kernels/cpu/cpu_attention.h"
#include "kernels/cpu/cpu_backend.h"

void attn_pack_row(const AttnCall *c, Word *to, const float *x)
{
    if (c->per_word == 2) {
        to[c->d_words - 1] = 0;
        cpu_rows()->round_bf16((uint16_t *)(void *)to, x, c->d);
    } else if (c->a->dtype == DTYPE_BF16) {
        cpu_rows()->round_to_bf16((float *)(void *)to, x, c->d);
    } else {
        memcpy(to, x, (size_t)c->d * sizeof *to);
    }
}

void attn_pack_keys(const AttnCall *c, Word *panel, Word *rows, const float *k, int64_t n)
{
    int64_t ld = c->a->n_groups * c->n_key_maps * c->d;
    if (c->a->dtype != DTYPE_BF16) {
        words_panel(panel, (const Word *)(const void *)k, ld, n, c->d);
        return;
    }
    for (int64_t j = 0; j < n; j++)
        attn_pack_row(c, rows + j * c->d_words, k + j * ld);
    words_panel(panel, rows, c->d_words, n, c->d_words);
}

/* y [n] = pairs of numbers of two rows; high NULL: zeros. */
static void pair_rows(Word *y, const float *low, const float *high, int64_t n)
{
    static const float ZEROS[PANEL_KEYS];
    int64_t step = high ? n : PANEL_KEYS;
    for (int64_t i = 0; i < n; i += step)
        cpu_rows()->pair_bf16(y + i, low + i, high ? high : ZEROS, i64_min(n - i, step));
}

void attn_pack_values(const AttnCall *c, Word *rows, const float *v, int64_t n)
{
    int64_t dv = c->dv, ld = c->a->n_groups * dv;
    for (int64_t i = 0; i < n; i += c->per_word, v += c->per_word * ld, rows += c->dv_pad) {
        if (c->per_word == 2)
            pair_rows(rows, v, i + 1 < n ? v + ld : NULL, dv);
        else if (c->a->dtype == DTYPE_BF16)
            cpu_rows()->round_to_bf16((float *)(void *)rows, v, dv);
        else
            memcpy(rows, v, (size_t)dv * sizeof *rows);
        memset(rows + dv, 0, (size_t)(c->dv_pad - dv) * sizeof *rows);
    }
}

/* Panel p of the sequence, of all groups and maps. */
static void pack_keys(const AttnCall *c, Word *rows, const float *k, int64_t sequence,
                      int64_t p)
{
    int64_t n_heads = c->a->n_groups * c->n_key_maps, ld = n_heads * c->d;
    int64_t key = c->key_start[sequence] + p * PANEL_KEYS;
    int64_t n = i64_min(c->key_start[sequence + 1] - key, PANEL_KEYS);
    int64_t words = c->d_words * PANEL_KEYS;
    Word   *panel = c->k_panels + (c->panel_start[sequence] + p) * n_heads * words;
    for (int64_t h = 0; h < n_heads; h++)
        attn_pack_keys(c, panel + h * words, rows, k + key * ld + h * c->d, n);
}

/* The values of the same keys, of all groups. */
static void pack_values(const AttnCall *c, const float *v, int64_t sequence, int64_t p)
{
    int64_t rows = value_rows(c, c->a->batch.n_sequences);
    int64_t row = value_rows(c, sequence) + p * (PANEL_KEYS / c->per_word);
    int64_t key = c->key_start[sequence] + p * PANEL_KEYS;
    int64_t n = i64_min(c->key_start[sequence + 1] - key, PANEL_KEYS);
    for (int64_t g = 0; g < c->a->n_groups; g++)
        attn_pack_values(c, c->v_rows + (g * rows + row) * c->dv_pad,
                         v + (key * c->a->n_groups + g) * c->dv, n);
}

/* The first key of the sequence that its first query sees. */
static int64_t first_key(const AttnCall *c, int64_t sequence)
{
    const int32_t *start = c->a->batch.start + sequence, *keys = c->key_start + sequence;
    int64_t position = (int64_t)keys[1] - keys[0] - (start[1] - start[0]);
    return i64_max(position + 1 - c->reach, 0);
}

void attn_pack(const AttnCall *c, AttnScratch *threads, const float *k, const float *v,
               int n_threads)
{
    int64_t n_sequences = c->a->batch.n_sequences;
#pragma omp parallel num_threads(n_threads)
    for (int64_t b = 0; b < n_sequences; b++) {
        Word   *rows = threads[omp_get_thread_num()].key_rows;
        int64_t n = c->panel_start[b + 1] - c->panel_start[b];
#pragma omp for schedule(static) nowait
        for (int64_t p = first_key(c, b) / PANEL_KEYS; p < n; p++) {
            pack_keys(c, rows, k, b, p);
            pack_values(c, v, b, p);
        }
    }
}
