/* cpu_codes_isa.c - panels of codes (cpu_gemm.h): times one row, or decoded for a
 * product of many.
 * row     c[n] = sum_g scale[n,g] sum_k x[k] code[n,k] + offset[n,g] sum_k x[k]
 * decode  w = scale code + offset, one multiplication and one addition, rounded
 *         each: the bits of codes_decode, in the layouts of cpu_gemm.h
 * shapes  panel of 64 outputs; 4, 6 or 8 bits; groups of whole blocks of 16
 * cost    row reads bits / 8 bytes a weight once, in order: memory bound
 * sums    f32, one chain an output within a group and one over its groups
 * NaN     goes through; with offsets infinity may become NaN, as it is in both sums
 * test    tests/kernels/test_linear_codes.c, every instruction set */
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_gemm.h"
#include "kernels/vec.h"

enum {
    PANEL_VECS = PANEL / VEC,
    PART = PANEL_VECS < 4 ? PANEL_VECS : 4  // vectors of outputs whose sums and
};                                          //   words fit in the registers

/* --- codes to floats, exact --- */

ALWAYS Vec to_floats(Ivec v)
{
    return __builtin_convertvector(v, Vec);
}

/* Field j of words that hold fields of so many bits, signed. */
ALWAYS Ivec field(Uvec words, const int bits, int j)
{
    return (Ivec)(words << (32 - bits - bits * j)) >> (32 - bits);
}

ALWAYS Vec code_4(Uvec words, int j)
{
#if DQ_ISA_avx512
    /* Looks a lane's lowest four bits up and at no others. */
    const __m512 codes = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
    return (Vec)_mm512_permutexvar_ps((__m512i)(words >> (4 * j)), codes);
#else
    return to_floats(field(words, 4, j));
#endif
}

/* The code whose bits end the three words. */
ALWAYS Vec code_of_ends(Uvec a, Uvec b, Uvec c)
{
    return to_floats(field(c, 2, 15) << 4 | (Ivec)(b >> 30 << 2 | a >> 30));
}

ALWAYS Uvec load_words(const uint32_t *p)
{
    return (Uvec)ivec_load(p);
}

/* gcc 12 converts bytes one by one where it is left to it. */
ALWAYS Ivec load_bytes(const int8_t *p)
{
#if DQ_ISA_avx512
    return (Ivec)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i_u *)p));
#elif DQ_ISA_avx2
    return (Ivec)_mm256_cvtepi8_epi32(_mm_loadu_si64(p));
#else
    return (Ivec){p[0], p[1], p[2], p[3]};
#endif
}

/* Codes of input j of a block for outputs n ... */
ALWAYS Vec code_at(const uint32_t *block, const int bits, int j, int n)
{
    if (bits == 8)
        return to_floats(load_bytes((const int8_t *)block + j * PANEL + n));
    if (bits == 4)
        return code_4(load_words(block + j / 8 * PANEL + n), j % 8);
    if (j < 15)
        return to_floats(field(load_words(block + j / 5 * PANEL + n), 6, j % 5));
    return code_of_ends(load_words(block + n), load_words(block + PANEL + n),
                        load_words(block + 2 * PANEL + n));
}

/* --- one row --- */

/* sum += x code over the blocks of a group, for outputs n ... */
ALWAYS void add_group(Vec sum[PART], const float *x, const uint32_t *block, int64_t n_blocks,
                      const int bits, int n)
{
    for (int64_t b = 0; b < n_blocks; b++, block += cpu_codes_block(bits), x += CODE_BLOCK)
#pragma GCC unroll 16
        for (int j = 0; j < CODE_BLOCK; j++) {
            Vec xj = vec_all(x[j]);
#pragma GCC unroll 4
            for (int i = 0; i < PART; i++)
                sum[i] = vec_fma(xj, code_at(block, bits, j, n + i * VEC), sum[i]);
        }
}

ALWAYS void row_part(float *c, const float *x, const float *sums, const CpuWeights *w,
                     int64_t panel, int part, const int bits)
{
    const CpuCodes *q = w->codes;
    const uint32_t *block = cpu_codes_panel(w, panel);
    int64_t         n_blocks = (q->group + CODE_BLOCK - 1) / CODE_BLOCK;
    Vec             total[PART] = {{0}};
    for (int64_t g = 0; g < q->n_groups; g++) {
        int64_t at = (panel * q->n_groups + g) * PANEL + part;
        Vec     sum[PART] = {{0}};
        add_group(sum, x + g * q->group, block, n_blocks, bits, part);
        block += n_blocks * cpu_codes_block(bits);
        for (int i = 0; i < PART; i++) {
            total[i] = vec_fma(vec_load(q->scales + at + i * VEC), sum[i], total[i]);
            if (q->offsets)
                total[i] = vec_fma(vec_load(q->offsets + at + i * VEC), vec_all(sums[g]),
                                   total[i]);
        }
    }
    for (int i = 0; i < PART; i++)
        vec_store(c + part + i * VEC, total[i]);
}

static void row(float *c, const float *x, const float *sums, const CpuWeights *w,
                int64_t panel)
{
    for (int part = 0; part < PANEL; part += PART * VEC)
        switch (w->codes->bits) {
        case 4:
            row_part(c, x, sums, w, panel, part, 4);
            break;
        case 6:
            row_part(c, x, sums, w, panel, part, 6);
            break;
        default:
            row_part(c, x, sums, w, panel, part, 8);
        }
}

/* --- decoding --- */

/* One input of a panel: where its codes and their scales lie. */
typedef struct {
    const uint32_t *block;
    int             j;                 // in the block
    const float    *scales, *offsets;  // [64], offsets may be NULL
} Input;

ALWAYS Input find_input(const CpuWeights *w, int64_t panel, int64_t k, const int bits)
{
    const CpuCodes *q = w->codes;
    uint32_t        column = (uint32_t)(q->column ? q->column[k] : k);
    int64_t         group = column / (uint32_t)q->group;
    int64_t         at = (panel * q->n_groups + group) * PANEL;
    return (Input){cpu_codes_panel(w, panel) + column / CODE_BLOCK * cpu_codes_block(bits),
                   (int)(column % CODE_BLOCK), q->scales + at,
                   q->offsets ? q->offsets + at : 0};
}

ALWAYS Vec weights(const Input *in, int n, const int bits)
{
    Vec w = code_at(in->block, bits, in->j, n) * vec_load(in->scales + n);
    return in->offsets ? w + vec_load(in->offsets + n) : w;
}

/* Bits of v rounded to bf16 and kept as f32. Weights are never NaN: scales and
 * offsets are finite. */
ALWAYS Uvec rounded(Vec v)
{
    Uvec u = (Uvec)v;
    return (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;
}

ALWAYS void decode_f32(float *out, const CpuWeights *w, int64_t panel, bool bf16,
                       const int bits)
{
    for (int64_t k = 0; k < w->codes->k; k++, out += PANEL) {
        Input in = find_input(w, panel, k, bits);
        for (int n = 0; n < PANEL; n += VEC) {
            Vec v = weights(&in, n, bits);
            vec_store(out + n, bf16 ? (Vec)rounded(v) : v);
        }
    }
    for (int64_t i = 0; i < (w->k_pad - w->codes->k) * PANEL; i++)
        out[i] = 0;
}

/* A word holds inputs k and k + 1 of one output. */
ALWAYS void decode_pairs(uint16_t *out, const CpuWeights *w, int64_t panel, const int bits)
{
    int64_t K = w->codes->k;
    for (int64_t k = 0; k < K; k += 2, out += 2 * PANEL) {
        bool  two = k + 1 < K;
        Input even = find_input(w, panel, k, bits);
        Input odd = find_input(w, panel, two ? k + 1 : k, bits);
        for (int n = 0; n < PANEL; n += VEC) {
            Uvec low = rounded(weights(&even, n, bits)) >> 16;
            Uvec high = two ? rounded(weights(&odd, n, bits)) : (Uvec){0};
            ivec_store(out + 2 * n, (Ivec)(low | high));
        }
    }
    for (int64_t i = 0; i < (w->k_pad - (K + 1) / 2 * 2) * PANEL; i++)
        out[i] = 0;
}

static void decode(float *out, const CpuWeights *w, int64_t panel, bool bf16)
{
    switch (w->codes->bits) {
    case 4:
        decode_f32(out, w, panel, bf16, 4);
        break;
    case 6:
        decode_f32(out, w, panel, bf16, 6);
        break;
    default:
        decode_f32(out, w, panel, bf16, 8);
    }
}

static void decode_bf16(uint16_t *out, const CpuWeights *w, int64_t panel)
{
    switch (w->codes->bits) {
    case 4:
        decode_pairs(out, w, panel, 4);
        break;
    case 6:
        decode_pairs(out, w, panel, 6);
        break;
    default:
        decode_pairs(out, w, panel, 8);
    }
}

const CodesIsa ISA_NAME(codes_) = {row, decode, decode_bf16};
