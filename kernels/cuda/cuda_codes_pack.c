/* cuda_codes_pack.c - codes on their way into the bricks of cuda_codes.h.
 * shapes  codes [N,K] int8 of 4, 6 or 8 bits; past N and K zeros
 * memory  bits / 8 bytes a code, 4 a scale, 4 an offset, 4 an input if reordered
 * cost    in pieces of PIECE bytes; threads take a strip each
 * test    tests/cuda/test_cuda_codes.c */
#include <string.h>

#include "kernels/cuda/cuda_codes.h"
#include "kernels/cuda/cuda_linear.h"
#include "kernels/cuda/cuda_twin.h"
#include "kernels/cuda/cuda_weights.h"
#include "kernels/size.h"

enum { PIECE = 8 << 20, LANES = 32, LANE_OUTPUTS = 4, WORDS = 8, PART = 256 };

/* --- words --- */

static uint32_t pair(const int8_t *codes, int i, int bits)
{
    uint32_t half = bits == 8 ? 0 : 1u << (bits - 1), mask = (1u << bits) - 1;
    uint32_t low = ((uint32_t)codes[2 * i] + half) & mask;
    return low | (((uint32_t)codes[2 * i + 1] + half) & mask) << 16;
}

static void pack_4(uint32_t *words, const int8_t *codes)
{
    for (int i = 0; i < 8; i++)
        words[i / 4] |= pair(codes, i, 4) << (i % 4 * 4);
}

static void pack_6(uint32_t *words, const int8_t *codes)
{
    const uint32_t low = 0x000f000f, high = 0x00030003;
    for (int i = 0; i < 6; i++)
        words[i / 2] |= pair(codes, i, 6) << (i % 2 * 6);
    words[0] |= (pair(codes, 6, 6) & low) << 12;
    words[2] |= (pair(codes, 7, 6) & low) << 12;
    words[1] |= (pair(codes, 6, 6) >> 4 & high) << 12;
    words[1] |= (pair(codes, 7, 6) >> 4 & high) << 14;
}

static void pack_8(uint32_t *words, const int8_t *codes)
{
    for (int i = 0; i < 8; i++)
        words[i / 2] |= pair(codes, i, 8) << (i % 2 * 8);
}

/* CODES_RUN codes of one output; words [bits / 2]. */
static void pack_run(uint32_t *words, const int8_t *codes, int bits)
{
    if (bits == 4)
        pack_4(words, codes);
    else if (bits == 6)
        pack_6(words, codes);
    else
        pack_8(words, codes);
}

/* --- bricks --- */

static size_t brick_bytes(int bits)
{
    return (size_t)(CODES_STRIP * CODES_STEP / 8 * bits);
}

/* Output n of the strip and inputs of run q of the brick. */
static void place_run(uint32_t *brick, const uint32_t *words, int bits, int64_t n, int64_t q)
{
    int lane = (int)(n / LANE_OUTPUTS * 4 + q);
    for (int i = 0; i < bits / 2; i++) {
        int at = (int)(n % LANE_OUTPUTS) * (bits / 2) + i;
        brick[(at / 4 * LANES + lane) * 4 + at % 4] = words[i];
    }
}

static void pack_strip(char *strip, const Codes *c, int64_t first)
{
    int64_t rows = i64_min(CODES_STRIP, c->n - first), k_pad = ceil_div(c->k, CODES_STEP) *
                                                               CODES_STEP;
    for (int64_t n = 0; n < CODES_STRIP; n++)
        for (int64_t k = 0; k < k_pad; k += CODES_RUN) {
            int8_t   codes[CODES_RUN] = {0};
            uint32_t words[WORDS] = {0};
            int64_t  some = n < rows ? i64_max(0, i64_min(CODES_RUN, c->k - k)) : 0;
            if (some)
                memcpy(codes, c->codes + (first + n) * c->k + k, (size_t)some);
            pack_run(words, codes, c->bits);
            place_run((uint32_t *)(void *)(strip + (size_t)(k / CODES_STEP) *
                                                       brick_bytes(c->bits)),
                      words, c->bits, n, k % CODES_STEP / CODES_RUN);
        }
}

static Status write_codes(Backend *be, CudaWeights *p, const Codes *c)
{
    size_t  bytes = (size_t)(p->codes->k_pad / CODES_STEP) * brick_bytes(c->bits);
    int64_t strips = p->codes->n_pad / CODES_STRIP;
    int64_t some = i64_min(strips, i64_max(1, PIECE / (int64_t)bytes));
    char   *piece = arena_raw(&be->arena, some, bytes);
    if (!piece)
        FAIL(ERR_MEMORY, "out of memory: weights [%lld,%lld] on their way", (long long)c->n,
             (long long)c->k);
    for (int64_t first = 0; first < strips; first += some) {
        int64_t n = i64_min(some, strips - first);
#pragma omp parallel for num_threads(be->n_threads)
        for (int64_t i = 0; i < n; i++)
            pack_strip(piece + (size_t)i * bytes, c, (first + i) * CODES_STRIP);
        TRY(cuda_weights_write(be, p, (size_t)first * bytes, piece, (size_t)n * bytes));
    }
    return OK;
}

/* from [N, n_groups] to [n_groups, n_pad], some groups at a time. */
static Status write_groups(Backend *be, CudaWeights *p, size_t at, const float *from,
                           int64_t N)
{
    int64_t n_groups = p->codes->n_groups, n_pad = p->codes->n_pad;
    size_t  row = (size_t)n_pad * sizeof *from;
    int64_t some = i64_min(n_groups, i64_max(1, PIECE / (int64_t)row));
    float  *piece = arena_alloc(&be->arena, some, row);
    if (!piece)
        FAIL(ERR_MEMORY, "out of memory: scales of %lld outputs on their way", (long long)N);
    for (int64_t first = 0; first < n_groups; first += some) {
        int64_t n = i64_min(some, n_groups - first);
#pragma omp parallel for num_threads(be->n_threads)
        for (int64_t g = 0; g < n; g++)
            for (int64_t i = 0; i < N; i++)
                piece[g * n_pad + i] = from[i * n_groups + first + g];
        TRY(cuda_weights_write(be, p, at + (size_t)first * row, piece, (size_t)n * row));
    }
    return OK;
}

/* --- all of it --- */

/* Where the next part begins; *end moves past it. */
static size_t part(size_t *end, size_t bytes)
{
    size_t at = *end;
    *end += (bytes + PART - 1) / PART * PART;
    return at;
}

static CudaCodes layout(const Codes *c)
{
    CudaCodes l = {.bits = c->bits, .k = c->k, .group = c->group, .n_groups = c->k / c->group};
    l.n_pad = ceil_div(c->n, CODES_STRIP) * CODES_STRIP;
    l.k_pad = ceil_div(c->k, CODES_STEP) * CODES_STEP;
    l.whole_numbers = c->bits == 8 && l.n_groups == 1 && !c->offsets &&
                      c->k <= CODES_WHOLE_INPUTS && !c->order;
    size_t groups = (size_t)l.n_groups * (size_t)l.n_pad * sizeof(float);
    part(&l.bytes, (size_t)(l.n_pad / CODES_STRIP * (l.k_pad / CODES_STEP)) *
                       brick_bytes(c->bits));
    l.scales = part(&l.bytes, groups);
    l.offsets = c->offsets ? part(&l.bytes, groups) : 0;
    l.order = c->order ? part(&l.bytes, (size_t)c->k * sizeof *c->order) : 0;
    return l;
}

static Status write_all(Backend *be, CudaWeights *p, const Codes *c)
{
    const CudaCodes *l = p->codes;
    TRY(write_codes(be, p, c));
    TRY(write_groups(be, p, l->scales, c->scales, c->n));
    if (l->offsets)
        TRY(write_groups(be, p, l->offsets, c->offsets, c->n));
    if (l->order)
        TRY(cuda_weights_write(be, p, l->order, c->order, (size_t)c->k * sizeof *c->order));
    return OK;
}

Status cuda_linear_codes(Backend *be, Linear *out, const Codes *c, const float *bias)
{
    CudaWeights *p;
    CudaCodes   *l;
    TRY(cuda_begin(be, NULL));
    ARENA_NEW(l, &be->arena, 1);
    *l = layout(c);
    TRY(cuda_weights_new(be, &p, l->bytes));
    p->codes = l;
    ArenaMark mark = arena_mark(&be->arena);
    Status    s = write_all(be, p, c);
    arena_rewind(&be->arena, mark);
    TRY(s);
    if (l->whole_numbers)
        TRY(cuda_twin_want(be));
    out->packed = p;
    return cuda_pack_bias(be, out, bias);
}
