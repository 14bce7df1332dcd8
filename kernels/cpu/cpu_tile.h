/* cpu_tile.h - C = A B in tiles of registers: the arithmetic of linear layers (cpu_panel_isa.c)
 * and of attention (cpu_attn_isa.c), of f32 or of pairs of bf16. Only for *_isa.c.
 * c[i,j] = scale sum_k a[i,k] b[k,j], or keep[i] c[i,j] + that sum
 * shapes  any number of rows, any depth; columns a multiple of 16
 * cost    a tile of TILE_R rows and TILE_V vectors: with AVX-512 24 steps for 4 vectors and 6
 *         words loaded
 * sums    f32, one chain an output over depth, in order, whatever the tile
 * NaN     goes through
 * test    tests/kernels/test_linear.c, test_attention.c, every instruction set */
#ifndef DQ_CPU_TILE_H
#define DQ_CPU_TILE_H

#include "kernels/cpu/cpu_words.h"
#include "kernels/vec.h"

enum {
    TILE_R = 6,                   // rows and vectors of a tile whose sums fit in the
    TILE_V = VEC == 16 ? 4 : 2    //   registers beside the vectors of b
};

/* sum + a b, a the same for all lanes. */
typedef Vec (*Step)(Vec sum, Word a, Vec b);

ALWAYS Vec step_f32(Vec sum, Word a, Vec b)
{
    return vec_fma((Vec)ivec_all((int32_t)a), b, sum);
}

#if DQ_ISA_avx512
#define DOTS __attribute__((target("avx512bf16")))

DOTS ALWAYS Vec step_bf16(Vec sum, Word a, Vec b)
{
    return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int)a), (__m512bh)b);
}
#endif

/* R and V are constants where this is inlined: the loops over them unroll and sum lives in
 * registers. p by value: stores to c cannot change it. */
ALWAYS void tile(const Product p, int64_t depth, const float *keep, float scale, const int R,
                 const int V, Step step)
{
    Vec sum[TILE_R][TILE_V];
#pragma GCC unroll 6
    for (int i = 0; i < R; i++)
#pragma GCC unroll 4
        for (int j = 0; j < V; j++)
            sum[i][j] = keep ? vec_load(p.c + i * p.ldc + j * VEC) * vec_all(keep[i])
                             : vec_all(0);
    const Word *b = p.b;
    for (int64_t k = 0; k < depth; k++, b += p.ldb) {
        Vec right[TILE_V];
#pragma GCC unroll 4
        for (int j = 0; j < V; j++)
            right[j] = (Vec)ivec_load(b + j * VEC);
#pragma GCC unroll 6
        for (int i = 0; i < R; i++)
#pragma GCC unroll 4
            for (int j = 0; j < V; j++)
                sum[i][j] = step(sum[i][j], p.a[i * p.lda + k], right[j]);
    }
#pragma GCC unroll 6
    for (int i = 0; i < R; i++)
#pragma GCC unroll 4
        for (int j = 0; j < V; j++)
            vec_store(p.c + i * p.ldc + j * VEC, keep ? sum[i][j] : sum[i][j] * vec_all(scale));
}

/* The rows of V vectors of columns, TILE_R at a time. */
ALWAYS void tile_rows(Product p, int64_t rows, int64_t depth, const float *keep, float scale,
                      const int V, Step step)
{
    for (; rows > 0; rows -= TILE_R) {
        switch (rows) {
        case 1:  tile(p, depth, keep, scale, 1, V, step); break;
        case 2:  tile(p, depth, keep, scale, 2, V, step); break;
        case 3:  tile(p, depth, keep, scale, 3, V, step); break;
        case 4:  tile(p, depth, keep, scale, 4, V, step); break;
        case 5:  tile(p, depth, keep, scale, 5, V, step); break;
        default: tile(p, depth, keep, scale, TILE_R, V, step);
        }
        p.c += TILE_R * p.ldc;
        p.a += TILE_R * p.lda;
        keep = keep ? keep + TILE_R : keep;
    }
}

/* keep NULL: C = scale A B, else C = keep C + A B. cols a multiple of 16. */
ALWAYS void tiles(Product p, int64_t rows, int64_t cols, int64_t depth, const float *keep,
                  float scale, Step step)
{
    for (int64_t left = cols / VEC; left > 0; left -= TILE_V) {
        switch (left < TILE_V ? left : TILE_V) {
        case 1:  tile_rows(p, rows, depth, keep, scale, 1, step); break;
#if DQ_ISA_avx512
        case 2:  tile_rows(p, rows, depth, keep, scale, 2, step); break;
        case 3:  tile_rows(p, rows, depth, keep, scale, 3, step); break;
#endif
        default: tile_rows(p, rows, depth, keep, scale, TILE_V, step);
        }
        p.c += TILE_V * VEC;
        p.b += TILE_V * VEC;
    }
}

#endif
