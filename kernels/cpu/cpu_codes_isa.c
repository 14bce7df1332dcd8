/* cpu_codes_isa.c - panels of codes (cpu_gemm.h): times one row, or decoded for a
 * product of many.
 * row     c[n] = sum_g scale[n,g] sum_k x[k] code[n,k] + offset[n,g] sum_k x[k]
 * dots    the same of x in bf16 and codes of 4 and 6 bits, which bf16 holds too: where
 *         the processor multiplies pairs of these, at twice the rate
 * decode  w = scale code + offset, one multiplication and one addition, rounded
 *         each: the bits of codes_decode, in the layouts of cpu_gemm.h
 * shapes  panel of 64 outputs; 4, 6 or 8 bits; groups of whole blocks of 16
 * cost    row reads bits / 8 bytes a weight once, in order: memory bound
 * sums    f32, one chain an output within a group (dots: two) and one over its groups
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

/* total += scale sum + offset sums[g], scales and offsets at `at`. */
ALWAYS void add_scaled(Vec *total, Vec sum, const CpuCodes *q, int64_t at, const float *sums,
                       int64_t g)
{
    *total = vec_fma(vec_load(q->scales + at), sum, *total);
    if (q->offsets)
        *total = vec_fma(vec_load(q->offsets + at), vec_all(sums[g]), *total);
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
        for (int i = 0; i < PART; i++)
            add_scaled(&total[i], sum[i], q, at + i * VEC, sums, g);
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

/* --- one row of bf16 --- */

#if DQ_ISA_avx512
#define DOTS __attribute__((target("avx512bf16")))

/* A word of x holds the inputs whose codes come to stand at the end of the halves of a word
 * (pair_4, pair_6). */
static void pairs(uint32_t *to, const float *x, int64_t n_blocks, int bits)
{
    const Ivec EVEN_4 = {0, 1, 2, 3, 8, 9, 10, 11}, ODD_4 = {4, 5, 6, 7, 12, 13, 14, 15};
    const Ivec EVEN_6 = {0, 1, 5, 6, 10, 11, 2, 12}, ODD_6 = {3, 4, 8, 9, 13, 14, 7, 15};
    const __m512i even = (__m512i)(bits == 4 ? EVEN_4 : EVEN_6);
    const __m512i odd = (__m512i)(bits == 4 ? ODD_4 : ODD_6);
    for (int64_t b = 0; b < n_blocks; b++, x += CODE_BLOCK, to += CODE_BLOCK / 2) {
        __m512i v = _mm512_loadu_si512(x);
        Uvec    low = (Uvec)_mm512_permutexvar_epi32(even, v) >> 16;
        Uvec    high = (Uvec)_mm512_permutexvar_epi32(odd, v) & 0xffff0000u;
        _mm256_storeu_si256((__m256i_u *)to, _mm512_castsi512_si256((__m512i)(low | high)));
    }
}

/* Codes first .. first + 31 as bf16. */
ALWAYS __m512i bf16_codes(int first, const int bits)
{
    const Uvec even = (Uvec){0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30} +
                      (uint32_t)first;
    Uvec low = (Uvec)to_floats(field(even, bits, 0)) >> 16;
    Uvec high = (Uvec)to_floats(field(even + 1, bits, 0));
    return (__m512i)(low | high);
}

/* What turns the lowest bits of halves of words into codes. */
typedef struct {
    __m512i codes[2];
} Lookup;

ALWAYS Lookup make_lookup(const int bits)
{
    return (Lookup){{bf16_codes(0, bits), bf16_codes(32, bits)}};
}

ALWAYS __m512i look_up(const Lookup *l, __m512i at, const int bits)
{
    if (bits == 4)  // 5 bits are looked at: the codes are there twice
        return _mm512_permutexvar_epi16(at, l->codes[0]);
    return _mm512_permutex2var_epi16(l->codes[0], at, l->codes[1]);
}

/* Pair j of a block, for outputs n ..., in the lowest bits of halves. */
ALWAYS __m512i pair_4(const uint32_t *block, int j, int n)
{
    __m512i words = (__m512i)load_words(block + j / 4 * PANEL + n);
    return j % 4 ? _mm512_srli_epi16(words, (unsigned)(4 * (j % 4))) : words;
}

ALWAYS __m512i pair_6(const uint32_t *block, int j, int n)
{
    Uvec word = load_words(block + j % 6 / 2 * PANEL + n);
    Uvec a = load_words(block + n), b = load_words(block + PANEL + n);
    Uvec c = load_words(block + 2 * PANEL + n);
    if (j < 6)  // fields 0 and 3, or 1 and 4: bits 18 and 24 are 2 and 8 of their half
        return _mm512_srlv_epi16((__m512i)word,
                                 _mm512_set1_epi32(j % 2 ? 8 << 16 | 6 : 2 << 16));
    if (j == 6)
        return _mm512_mask_blend_epi16(0xaaaaaaaa, (__m512i)(a >> 12), (__m512i)(b << 4));
    Uvec ends = (a >> 14 & 0x30000) | (b >> 12 & 0xc0000) | (c >> 10 & 0x300000);
    return _mm512_mask_blend_epi16(0xaaaaaaaa, (__m512i)(c >> 12), (__m512i)ends);
}

/* sum += x code over the blocks of a group. Two chains, as one would wait for itself. */
DOTS ALWAYS void dot_group(__m512 sum[2][PART], const uint32_t *x, const uint32_t *block,
                           int64_t n_blocks, const Lookup *l, const int bits)
{
    for (int64_t b = 0; b < n_blocks; b++, block += cpu_codes_block(bits), x += CODE_BLOCK / 2)
#pragma GCC unroll 8
        for (int j = 0; j < CODE_BLOCK / 2; j++) {
            __m512bh xj = (__m512bh)_mm512_set1_epi32((int)x[j]);
#pragma GCC unroll 4
            for (int i = 0; i < PART; i++) {
                __m512i at = bits == 4 ? pair_4(block, j, i * VEC) : pair_6(block, j, i * VEC);
                sum[j % 2][i] = _mm512_dpbf16_ps(sum[j % 2][i],
                                                 (__m512bh)look_up(l, at, bits), xj);
            }
        }
}

DOTS ALWAYS void dots_panel(float *c, const uint32_t *x, const float *sums,
                            const CpuWeights *w, int64_t panel, const int bits)
{
    const CpuCodes *q = w->codes;
    const uint32_t *block = cpu_codes_panel(w, panel);
    const Lookup    l = make_lookup(bits);
    int64_t         n_blocks = (q->group + CODE_BLOCK - 1) / CODE_BLOCK;
    Vec             total[PART] = {{0}};
    for (int64_t g = 0; g < q->n_groups; g++, x += n_blocks * (CODE_BLOCK / 2)) {
        int64_t at = (panel * q->n_groups + g) * PANEL;
        __m512  sum[2][PART] = {{{0}}};
        dot_group(sum, x, block, n_blocks, &l, bits);
        block += n_blocks * cpu_codes_block(bits);
        for (int i = 0; i < PART; i++)
            add_scaled(&total[i], (Vec)(sum[0][i] + sum[1][i]), q, at + i * VEC, sums, g);
    }
    for (int i = 0; i < PART; i++)
        vec_store(c + i * VEC, total[i]);
}

DOTS static void dots(float *c, const uint32_t *x, const float *sums, const CpuWeights *w,
                      int64_t panel)
{
    if (w->codes->bits == 4)
        dots_panel(c, x, sums, w, panel, 4);
    else
        dots_panel(c, x, sums, w, panel, 6);
}
#else
#define pairs NULL
#define dots NULL
#endif

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

const CodesIsa ISA_NAME(codes_) = {row, pairs, dots, decode, decode_bf16};
