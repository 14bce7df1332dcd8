/* test_linear_codes.c - products on codes: a batch has the very bits of op_linear
 * on the decoded weights, one row agrees with double. N, K, T on both sides of
 * panels (64), blocks (16), padding (32) and chunks (64). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/half.h"
#include "tests/check.h"
#include "tests/kernels/ref_codes.h"
#include "tests/kernels/ref_ops.h"

enum { MAX_T = 130 };

static void case_open(CodesCase *c, CodesShape s)
{
    ref_codes_open(c, s, MAX_T);
}

/* --- codes_decode --- */

TEST(codes_decode_by_hand)
{
    const int8_t  codes[] = {-8, 7, 0, 1, 2, -3, 4, 5};
    const float   scales[] = {0.5f, 2, -1, 0.25f}, offsets[] = {1, -1, 0, 8};
    const int32_t order[] = {2, 0, 3, 1};
    const float   PLAIN[] = {-4, 3.5f, 0, 2, -2, 3, 1, 1.25f};
    const float   OFFSET[] = {-3, 4.5f, -1, 1, -2, 3, 9, 9.25f};
    const float   MOVED[] = {4.5f, 1, -3, -1, 3, 9.25f, -2, 9};
    Codes         c = {2, 4, 4, 2, codes, scales, NULL, NULL};
    float         w[8];
    codes_decode(w, &c, 0, 2);
    T_OK(memcmp(w, PLAIN, sizeof w) == 0);
    c.offsets = offsets;
    codes_decode(w, &c, 0, 2);
    T_OK(memcmp(w, OFFSET, sizeof w) == 0);
    c.order = order;
    codes_decode(w, &c, 0, 2);
    T_OK(memcmp(w, MOVED, sizeof w) == 0);
    codes_decode(w, &c, 1, 1);
    T_OK(memcmp(w, MOVED + 4, 4 * sizeof *w) == 0);
}

TEST(codes_decode_rounds_twice)
{
    CodesCase c;
    for (int order = 0; order < 2; order++) {
        case_open(&c, (CodesShape){3, 64, 16, 8, true, order, false});
        for (int64_t n = 0; n < 3; n++)
            for (int64_t k = 0; k < 64; k++) {
                int64_t at = n * 4 + k / 16, to = order ? c.codes.order[k] : k;
                double  product = (double)c.codes.scales[at] * c.codes.codes[n * 64 + k];
                float   w = (float)((double)(float)product + (double)c.codes.offsets[at]);
                T_OK(f32_bits(c.w[n * 64 + to]) == f32_bits(w));
            }
        T_OK(ref_guards_hold(c.w, 3 * 64));
        arena_close(&c.arena);
    }
}

/* --- batches --- */

static const struct {
    int64_t N, K, group;
} SIZES[] = {
    {130, 128, 16}, {64, 128, 32}, {63, 192, 64}, {300, 256, 128}, {65, 256, 256},
    {70, 48, 16},   {1, 16, 16},   {257, 96, 96}, {66, 33, ROW},   {130, 100, ROW},
    {5, 7, ROW},    {64, 1, ROW},  {700, 40, ROW},
};

/* check(shape) for every size, all bits, with and without offsets and order. */
static void each_shape(void (*check)(CodesShape, Dtype), Dtype dtype)
{
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        for (int j = 0; j < 12; j++)
            check((CodesShape){SIZES[i].N, SIZES[i].K, SIZES[i].group, 4 + j % 3 * 2, j / 3 % 2,
                               j / 6, (i + (size_t)j) % 2},
                  dtype);
}

static void check_same_bits(CodesShape s, Dtype dtype)
{
    const int64_t COUNTS[] = {2, 63, 64, 65, MAX_T};
    CodesCase c;
    Backend   be;
    Linear    packed, plain;
    case_open(&c, s);
    Tensor y = ref_empty(&c.arena, MAX_T, s.N), want = ref_empty(&c.arena, MAX_T, s.N);
    T_STATUS_OK(backend_open(&be, "cpu", 1));
    T_STATUS_OK(op_linear_codes(&be, &packed, &c.codes, c.bias, dtype));
    T_STATUS_OK(op_linear_pack(&be, &plain, c.w, c.bias, s.N, s.K, dtype));
    T_OK(packed.bits == s.bits && packed.n == s.N && packed.k == s.K && plain.bits == 0);
    T_STATUS_OK(op_linear(&be, &want, &c.x, &plain));
    for (int i = 0; i < 5; i++) {
        Tensor x = c.x;
        x.shape[0] = y.shape[0] = COUNTS[i];
        T_STATUS_OK(op_linear(&be, &y, &x, &packed));
        T_OK(memcmp(y.data, want.data, tensor_bytes(&y)) == 0);
    }
    T_OK(ref_guards_hold(y.data, MAX_T * s.N));
    backend_close(&be);
    arena_close(&c.arena);
}

TEST(linear_codes_batch_has_the_bits_of_decoded_weights_f32)
{
    REF_EACH_ISA(isa) each_shape(check_same_bits, DTYPE_F32);
}

TEST(linear_codes_batch_has_the_bits_of_decoded_weights_bf16)
{
    REF_EACH_ISA(isa) each_shape(check_same_bits, DTYPE_BF16);
}

/* --- one row --- */

/* What its roundings may lose: each term goes through a sum of its group, of the groups and of
 * the bias, and through two products. */
static void check_one_row(CodesShape s, Dtype dtype)
{
    CodesCase c;
    Backend   be;
    Linear    packed;
    case_open(&c, s);
    c.x.shape[0] = 1;
    double roundings = (double)(c.codes.group + 2 * (s.K / c.codes.group) + 3);
    Tensor y = ref_empty(&c.arena, 1, s.N);
    T_STATUS_OK(backend_open(&be, "cpu", 1));
    T_STATUS_OK(op_linear_codes(&be, &packed, &c.codes, c.bias, dtype));
    T_STATUS_OK(op_linear(&be, &y, &c.x, &packed));
    for (int64_t n = 0; n < s.N; n++) {
        double size, want = ref_codes_output(&size, &c, n, c.x.data, dtype, 1);
        T_NEAR(((float *)y.data)[n], want, roundings * 0x1p-24 * size);
    }
    T_OK(ref_guards_hold(y.data, s.N));
    backend_close(&be);
    arena_close(&c.arena);
}

TEST(linear_codes_one_row_agrees_with_double)
{
    REF_EACH_ISA(isa)
    {
        each_shape(check_one_row, DTYPE_F32);
        each_shape(check_one_row, DTYPE_BF16);
    }
}

/* --- what a row depends on --- */

static void check_rows_alone(CodesShape s, Dtype dtype)
{
    const int64_t FIRST[] = {0, 1, 31, 60, 98, 129}, COUNT[] = {2, 64, 5, 70, 2, 1};
    CodesCase c;
    Backend   one, two;
    Linear    w1, w2;
    case_open(&c, s);
    Tensor y = ref_empty(&c.arena, MAX_T, s.N), row = ref_empty(&c.arena, 1, s.N);
    T_STATUS_OK(backend_open(&one, "cpu", 1));
    T_STATUS_OK(backend_open(&two, "cpu", 2));
    T_STATUS_OK(op_linear_codes(&one, &w1, &c.codes, c.bias, dtype));
    T_STATUS_OK(op_linear_codes(&two, &w2, &c.codes, c.bias, dtype));
    T_STATUS_OK(op_linear(&one, &y, &c.x, &w1));
    for (size_t i = 0; i < sizeof FIRST / sizeof *FIRST; i++) {
        float *want = (float *)y.data + FIRST[i] * s.N;
        Tensor x = tensor_2d(DTYPE_F32, (float *)c.x.data + FIRST[i] * s.K, COUNT[i], s.K);
        Tensor part = ref_empty(&c.arena, COUNT[i], s.N);
        T_STATUS_OK(op_linear(&two, &part, &x, &w2));
        if (COUNT[i] == 1) {
            T_STATUS_OK(op_linear(&one, &row, &x, &w1));
            want = row.data;
        }
        T_OK(memcmp(part.data, want, tensor_bytes(&part)) == 0);
    }
    backend_close(&one);
    backend_close(&two);
    arena_close(&c.arena);
}

TEST(linear_codes_row_depends_neither_on_threads_nor_on_other_rows)
{
    REF_EACH_ISA(isa)
    for (int bits = 4; bits <= 8; bits += 2) {
        check_rows_alone((CodesShape){300, 256, 32, bits, true, false, true}, DTYPE_F32);
        check_rows_alone((CodesShape){300, 256, 32, bits, false, true, false}, DTYPE_BF16);
    }
}

/* --- layers of one input --- */

enum { N_LAYERS = 5 };

static void check_together(int64_t T, Dtype dtype, int n_threads)
{
    static const CodesShape SHAPES[N_LAYERS] = {
        {130, 96, 32, 4, true, false, true}, {64, 96, ROW, 8, false, false, false},
        {1, 96, 16, 6, true, true, true},    {257, 96, 96, 4, false, true, false},
        {65, 96, 48, 6, false, false, true},
    };
    CodesCase c[N_LAYERS];
    Backend   be;
    Linear    w[N_LAYERS + 1];
    Tensor    y[N_LAYERS + 1], want;
    LinearOut outs[N_LAYERS + 1];
    T_STATUS_OK(backend_open(&be, "cpu", n_threads));
    for (int i = 0; i < N_LAYERS; i++) {
        case_open(&c[i], SHAPES[i]);
        T_STATUS_OK(op_linear_codes(&be, &w[i], &c[i].codes, c[i].bias,
                                    i == 1 ? DTYPE_F32 : dtype));  // wants other rows of x
    }
    T_STATUS_OK(op_linear_pack(&be, &w[N_LAYERS], c[0].w, c[0].bias, 130, 96, dtype));
    c[0].x.shape[0] = T;
    for (int n = 0; n <= N_LAYERS + 1; n++) {  // four go together, more do not
        for (int i = 0; i < n; i++) {
            y[i] = ref_empty(&c[0].arena, T, w[i].n);
            outs[i] = (LinearOut){&y[i], &w[i]};
        }
        T_STATUS_OK(op_linears(&be, outs, n, &c[0].x));
        for (int i = 0; i < n; i++) {
            want = ref_empty(&c[0].arena, T, w[i].n);
            T_STATUS_OK(op_linear(&be, &want, &c[0].x, &w[i]));
            T_OK(memcmp(y[i].data, want.data, tensor_bytes(&want)) == 0);
            T_OK(ref_guards_hold(y[i].data, T * w[i].n));
        }
    }
    y[1].shape[1]++;
    T_FAILS(op_linears(&be, outs, 2, &c[0].x), ERR_SHAPE, "linear: y is F32");
    backend_close(&be);
    for (int i = 0; i < N_LAYERS; i++)
        arena_close(&c[i].arena);
}

TEST(linears_of_one_input_have_the_bits_of_each)
{
    static const int64_t T[] = {1, 3, 64, 130};
    REF_EACH_ISA(isa)
    for (int i = 0; i < 16; i++)
        check_together(T[i % 4], i / 4 % 2 ? DTYPE_BF16 : DTYPE_F32, 1 + i / 8 * 2);
}

/* --- what is not finite --- */

static void check_nan(int64_t T, Dtype dtype, bool offsets)
{
    CodesCase c;
    Backend   be;
    Linear    packed;
    case_open(&c, (CodesShape){70, 48, 16, 4, offsets, false, false});
    c.x.shape[0] = T;
    float *x = c.x.data;
    x[47] = NAN;
    if (T > 1)
        x[(T - 1) * 48] = INFINITY;
    Tensor y = ref_empty(&c.arena, T, 70);
    T_STATUS_OK(backend_open(&be, "cpu", 2));
    T_STATUS_OK(op_linear_codes(&be, &packed, &c.codes, NULL, dtype));
    T_STATUS_OK(op_linear(&be, &y, &c.x, &packed));
    for (int64_t t = 0; t < T; t++)
        for (int64_t n = 0; n < 70; n++) {
            float v = ((float *)y.data)[t * 70 + n];
            T_OK(t == 0 ? isnan(v) : isfinite(v) == (t < T - 1));
        }
    backend_close(&be);
    arena_close(&c.arena);
}

TEST(linear_codes_passes_nan_and_infinity)
{
    REF_EACH_ISA(isa)
    for (int i = 0; i < 8; i++)
        check_nan(i % 2 ? 35 : 1, i / 2 % 2 ? DTYPE_BF16 : DTYPE_F32, i / 4);
}

/* --- the last layer --- */

static void check_score(int64_t T, Dtype dtype, bool order)
{
    CodesCase c;
    Backend   be;
    Linear    packed, plain;
    int32_t   targets[MAX_T], best[MAX_T], want_best[MAX_T];
    float     logprob[MAX_T], want[MAX_T];
    case_open(&c, (CodesShape){5000, 64, 32, 6, true, order, true});
    c.x.shape[0] = T;
    for (int64_t i = 0; i < T * 64; i++)  // logits of a language model, not of hundreds
        ((float *)c.x.data)[i] *= 0.01f;
    for (int64_t t = 0; t < T; t++)
        targets[t] = (int32_t)(t * 911 % 5000);
    T_STATUS_OK(backend_open(&be, "cpu", 2));
    T_STATUS_OK(op_linear_codes(&be, &packed, &c.codes, c.bias, dtype));
    T_STATUS_OK(op_linear_pack(&be, &plain, c.w, c.bias, 5000, 64, dtype));
    T_STATUS_OK(op_score(&be, &c.x, &packed, targets, logprob, best));
    T_STATUS_OK(op_score(&be, &c.x, &plain, targets, want, want_best));
    for (int64_t t = 0; t < T; t++) {
        /* One row keeps the weights that the other rounds: 2^-9 each, in logits of
         * 64 terms up to 20 * 0.03; in f32 only sums go another way. */
        T_NEAR(logprob[t], want[t], T > 1 ? 0 : dtype == DTYPE_BF16 ? 0.05 : 1e-4);
        T_OK(T == 1 || best[t] == want_best[t]);
    }
    backend_close(&be);
    arena_close(&c.arena);
}

TEST(linear_codes_serve_as_the_last_layer)
{
    REF_EACH_ISA(isa)
    for (int i = 0; i < 4; i++) {
        check_score(1, i % 2 ? DTYPE_BF16 : DTYPE_F32, i / 2);
        check_score(2, i % 2 ? DTYPE_BF16 : DTYPE_F32, i / 2);
        check_score(70, i % 2 ? DTYPE_BF16 : DTYPE_F32, i / 2);
    }
}

/* --- memory, older processors, errors --- */

TEST(linear_codes_stay_small)
{
    for (int bits = 4; bits <= 8; bits += 2)
        for (int offsets = 0; offsets < 2; offsets++) {
            enum { N = 256, K = 512, GROUP = 64 };
            CodesCase c;
            Backend   be;
            Linear    packed;
            case_open(&c, (CodesShape){N, K, GROUP, bits, offsets, false, false});
            T_STATUS_OK(backend_open(&be, "cpu", 2));
            size_t before = be.arena.used;
            T_STATUS_OK(op_linear_codes(&be, &packed, &c.codes, NULL, DTYPE_F32));
            size_t want = N * K * (size_t)bits / 8 + N * (K / GROUP) * (offsets ? 8 : 4);
            T_OK(be.arena.used - before >= want && be.arena.used - before <= want + 1024);
            backend_close(&be);
            arena_close(&c.arena);
        }
}

/* Batches, as in test_linear.c: oneDNN reads its limit once a process. */
TEST(linear_codes_hold_on_older_processors)
{
    const char *const LIMITS[] = {"AVX512_CORE", "AVX2", "SSE41"};
    char              command[320], self[200] = "";
    if (getenv("DQ_OLDER_PROCESSOR"))
        return;
    T_OK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command,
                 "DQ_OLDER_PROCESSOR=1 ONEDNN_MAX_CPU_ISA=%s '%s' batch > /dev/null",
                 LIMITS[i], self);
        T_OK(system(command) == 0);
    }
}

TEST(linear_codes_refuses_what_does_not_fit)
{
    CodesCase c;
    Backend   be;
    Linear    w;
    case_open(&c, (CodesShape){5, 64, 16, 4, true, true, false});
    Codes    q = c.codes;
    int8_t  *codes = (int8_t *)(uintptr_t)q.codes;
    float   *scales = (float *)(uintptr_t)q.scales, *offsets = (float *)(uintptr_t)q.offsets;
    int32_t *order = (int32_t *)(uintptr_t)q.order;
    T_STATUS_OK(backend_open(&be, "cpu", 2));
#define REFUSES(code, text) T_FAILS(op_linear_codes(&be, &w, &q, NULL, DTYPE_F32), code, text)
    q.group = 24;
    REFUSES(ERR_UNSUPPORTED, "groups of 24 in rows of 64, expected a multiple of 16 that");
    q.group = 48;
    REFUSES(ERR_UNSUPPORTED, "groups of 48 in rows of 64");
    q.group = 0;
    REFUSES(ERR_UNSUPPORTED, "groups of 0 in rows of 64");
    q.group = 8;
    REFUSES(ERR_UNSUPPORTED, "groups of 8 in rows of 64");
    q.group = 16;
    q.bits = 5;
    REFUSES(ERR_UNSUPPORTED, "codes of 5 bits, expected 4, 6 or 8");
    q.bits = 4;
    q.n = 0;
    REFUSES(ERR_SHAPE, "weights [0,64]");
    q.n = 5;
    T_FAILS(op_linear_codes(&be, &w, &q, NULL, DTYPE_F16), ERR_UNSUPPORTED, "products in F16");

    codes[3 * 64 + 5] = 8;
    REFUSES(ERR_RANGE, "code [3,5] is 8, expected -8 to 7");
    codes[3 * 64 + 5] = -9;
    REFUSES(ERR_RANGE, "code [3,5] is -9, expected -8 to 7");
    q.bits = 6;
    codes[4 * 64 + 63] = 32;
    REFUSES(ERR_RANGE, "code [4,63] is 32, expected -32 to 31");
    q.bits = 8;
    T_STATUS_OK(op_linear_codes(&be, &w, &q, NULL, DTYPE_F32));

    scales[4 * 4 + 3] = INFINITY;
    REFUSES(ERR_RANGE, "scale [4,3] is inf, expected a finite number");
    scales[4 * 4 + 3] = NAN;
    REFUSES(ERR_RANGE, "scale [4,3] is ");
    scales[4 * 4 + 3] = 1;
    offsets[1] = NAN;
    REFUSES(ERR_RANGE, "offset [0,1] is ");
    offsets[1] = 1;
    int32_t was = order[7];
    order[7] = 64;
    REFUSES(ERR_RANGE, "input of column 7 is 64, expected 0 to 63");
    order[7] = -1;
    REFUSES(ERR_RANGE, "input of column 7 is -1");
    order[7] = order[2];
    REFUSES(ERR_RANGE, "has two columns, the second is 7");
    order[7] = was;
    T_STATUS_OK(op_linear_codes(&be, &w, &q, NULL, DTYPE_F32));
#undef REFUSES
    backend_close(&be);
    arena_close(&c.arena);
}

TEST(linear_codes_survives_every_failed_allocation)
{
    CodesCase c;
    Linear    w;
    case_open(&c, (CodesShape){300, 96, 32, 6, true, true, true});
    Tensor y = ref_empty(&c.arena, MAX_T, 300);
    for (int k = 1; k < 60; k++) {
        Backend be;
        T_STATUS_OK(backend_open(&be, "cpu", 2));
        arena_fail_at(k);
        Status s = op_linear_codes(&be, &w, &c.codes, c.bias, DTYPE_BF16);
        if (s == OK)
            s = op_linear(&be, &y, &c.x, &w);
        arena_fail_at(0);
        T_OK(s == OK || (s == ERR_MEMORY && strstr(status_text(), "out of memory")));
        T_STATUS_OK(op_linear_codes(&be, &w, &c.codes, c.bias, DTYPE_BF16));
        T_STATUS_OK(op_linear(&be, &y, &c.x, &w));
        backend_close(&be);
        if (s == OK) {
            T_OK(k > 9);
            arena_close(&c.arena);
            return;
        }
    }
    T_OK(!"the loop should end by success");
}
