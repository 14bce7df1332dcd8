/* test_cuda_attention.c - attention in f32 on the GPU, against double and against the CPU. */
#include <math.h>
#include <string.h>

#include "kernels/cpufeat.h"
#include "kernels/half.h"
#include "tests/cuda/ref_cuda_case.h"
#include "tests/kernels/ref_logit_quant.h"

/* tol: as in tests/kernels/test_attention.c. A norm of nearly cancelled rows would multiply
 * errors without end: eps is large. */
static void check_case(Backend *be, const CaseShape *shape, const CaseWide *wide, int64_t shift)
{
    Case c;
    T_STATUS_OK(case_init_wide(&c, shape, wide, 1));
    c.a.norm_eps = c.a.norm_eps >= 0 ? 0.1f : -1;
    T_STATUS_OK(ref_cuda_case_run(be, &c, shift));
    T_NEAR(ref_case_error(&c), 0, 2e-6);
    arena_close(&c.arena);
}

/* Both sides of tiles of queries (64 lines) and keys (128, sets of 32), of chunks of dims (16)
 * and of columns (64, 128, 256 and several times), with and without a cache. */
static const CaseShape SHAPES[] = {
    {4, 2, 1, 8, 3, {1, 1, 3}, {1, 9, 3}},
    {4, 2, 2, 8, 3, {1, 1, 3}, {1, 9, 3}},
    {2, 1, 1, 24, 3, {63, 64, 65}, {63, 128, 129}},
    {1, 1, 2, 16, 3, {31, 32, 33}, {127, 128, 129}},
    {2, 2, 2, 33, 2, {40, 0}, {160, 7}},
    {2, 2, 1, 100, 1, {5}, {70}},
    {1, 1, 2, 36, 1, {9}, {33}},
    {1, 1, 2, 64, 1, {9}, {33}},
    {2, 1, 2, 128, 1, {3}, {140}},
    {1, 1, 1, 256, 1, {4}, {20}},
    {1, 1, 2, 256, 1, {4}, {20}},
    {2, 1, 2, 1, 1, {20}, {20}},
};
enum { N_SHAPES = sizeof SHAPES / sizeof *SHAPES };

TEST(attention_equals_whole_maps_in_double)
{
    Backend be;
    T_GPU(&be);
    for (int i = 0; i < N_SHAPES; i++)
        check_case(&be, &SHAPES[i], &(CaseWide){0}, i % 3 == 2 ? 1 : 0);
    backend_close(&be);
}

/* --- heads, keys and values beyond a noise map a head --- */

static const CaseShape WIDE = {4, 1, 2, 8, 3, {40, 1, 20}, {150, 60, 20}};

static const struct {
    CaseShape shape;
    CaseWide  wide;  // n_signals, value_dim, reach, shared_keys
} WIDES[] = {
    {{4, 1, 1, 8, 3, {70, 1, 20}, {150, 60, 20}}, {0, 20, 1, false}},
    {{4, 1, 1, 8, 3, {70, 1, 20}, {150, 60, 20}}, {0, 8, 33, false}},
    {{4, 1, 2, 8, 3, {40, 1, 20}, {150, 60, 20}}, {1, 3, 2, false}},
    {{4, 1, 2, 8, 3, {40, 1, 20}, {150, 60, 20}}, {2, 20, 64, true}},
    {{4, 1, 2, 8, 3, {40, 1, 20}, {150, 60, 20}}, {4, 0, 129, false}},
    {{4, 1, 2, 8, 3, {40, 1, 20}, {150, 60, 20}}, {4, 8, 1000, true}},
    {{6, 2, 2, 6, 2, {30, 3}, {40, 131}}, {3, 0, 20, false}},
    {{8, 2, 2, 20, 1, {17}, {140}}, {4, 68, 0, true}},      // a second group of columns
    {{5, 1, 2, 4, 1, {11}, {11}}, {5, 130, 0, false}},      // 9 queries a tile
    {{8, 1, 2, 4, 1, {9}, {12}}, {8, 6, 0, false}},         // 7 queries a tile, as Motif
    {{63, 1, 2, 3, 1, {2}, {5}}, {63, 2, 0, false}},        // more lines than a block has
    {{1, 1, 1, 2, 1, {3}, {7}}, {0, 259, 0, false}},        // columns in two launches
};

TEST(attention_of_wide_heads_equals_whole_maps_in_double)
{
    Backend be;
    T_GPU(&be);
    for (size_t i = 0; i < sizeof WIDES / sizeof *WIDES; i++)
        check_case(&be, &WIDES[i].shape, &WIDES[i].wide, i % 2);
    backend_close(&be);
}

/* In (0,1), as sigmoids are. */
static void fill(float *x, int64_t n)
{
    uint64_t state = 77;
    for (int64_t i = 0; i < n; i++)
        x[i] = 0.5f + 0.49f * check_uniform(&state);
}

TEST(attention_lambda_of_each_row_and_norm_weight)
{
    enum { N = 61 };
    float   lambda[4 * N], weight[20];
    Backend be;
    T_GPU(&be);
    fill(lambda, 4 * N);
    fill(weight, 20);
    for (int i = 0; i < 3; i++) {
        Case c;
        T_STATUS_OK(case_init_wide(&c, &WIDE, &(CaseWide){1 << i, 20, 48, i == 1}, 3));
        c.a.lambda_rows = lambda;
        c.a.lambda = NAN;  // not looked at
        c.a.norm_weight = weight;
        c.a.norm_eps = i == 1 ? -1 : 0.1f;
        T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
        T_NEAR(ref_case_error(&c), 0, 2e-6);
        arena_close(&c.arena);
    }
    backend_close(&be);
}

/* --- what must give the same bits --- */

static bool same(const float *a, const float *b, int64_t n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* Each sequence alone, and its last queries alone behind a cache; what none of them reaches
 * is not even looked at. */
TEST(attention_does_not_depend_on_the_batch_or_the_tiles)
{
    static const int64_t REACH[] = {0, 1, 40, 64};
    Backend be;
    T_GPU(&be);
    for (int i = 0; i < 4; i++) {
        CaseWide how = {2, 20, REACH[i], false};
        Case     c, one;
        T_STATUS_OK(case_init_wide(&c, &WIDE, &how, 13));
        T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
        for (int64_t b = 0; b < WIDE.n_sequences; b++) {
            const float *part = (const float *)c.out.data + c.start[b] * 4 * 20;
            T_STATUS_OK(case_one_sequence(&one, &c, b));
            T_STATUS_OK(ref_cuda_case_run(&be, &one, 1));
            T_OK(same(one.out.data, part, tensor_count(&one.out)));
            arena_close(&one.arena);
        }
        T_STATUS_OK(case_one_sequence(&one, &c, 0));  // queries 27 .. 40 of 110 .. 150
        one.q.data = (float *)c.q.data + 27 * 6 * 8;
        one.q.shape[0] = one.out.shape[0] = one.start[1] = 13;
        for (int64_t s = 0; REACH[i] && s <= 137 - REACH[i]; s++) {
            memset((float *)c.k.data + s * 2 * 8, 0xff, 2 * 8 * sizeof(float));
            memset((float *)c.v.data + s * 20, 0xff, 20 * sizeof(float));
        }
        T_STATUS_OK(ref_cuda_case_run(&be, &one, 0));
        T_OK(same(one.out.data, (float *)c.out.data + 27 * 4 * 20, tensor_count(&one.out)));
        arena_close(&one.arena);
        arena_close(&c.arena);
    }
    backend_close(&be);
}

/* Equal maps take each other off to the last bit. */
TEST(attention_of_equal_maps_cancels)
{
    Backend be;
    Case    c;
    T_GPU(&be);
    T_STATUS_OK(case_init_wide(&c, &WIDE, &(CaseWide){1, 20, 0, true}, 5));
    for (int64_t i = 0; i < tensor_count(&c.q); i += 16)
        memcpy((float *)c.q.data + i + 8, (float *)c.q.data + i, 8 * sizeof(float));
    c.a.lambda = 1;
    c.a.norm_eps = 1e-5f;
    T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
    for (int64_t i = 0; i < tensor_count(&c.out); i++)
        T_OK(((float *)c.out.data)[i] == 0);
    arena_close(&c.arena);
    backend_close(&be);
}

/* --- data that hurts --- */

/* A key or value that is no number spoils the queries that reach it, and no others: also where
 * it is the last or the first of 32 whose product with V would be one step. */
TEST(attention_nan_key_stays_within_its_reach)
{
    static const struct {
        int at, reach, cache;
    } OF[] = {{5, 0, 0}, {31, 1, 0}, {32, 2, 0}, {40, 33, 0}, {31, 0, 2}, {32, 35, 0}};
    const float bad[] = {NAN, INFINITY, -INFINITY};
    Backend     be;
    T_GPU(&be);
    for (int i = 0; i < 6; i++) {
        CaseShape shape = {2, 1, 2, 5, 1, {70}, {70 + OF[i].cache}};
        CaseWide  how = {2, 9, OF[i].reach, false};
        int64_t   at = OF[i].at, from = at - OF[i].cache, end = 70;
        Case      c, ref;
        if (OF[i].reach && from + OF[i].reach < 70)
            end = from + OF[i].reach;
        T_STATUS_OK(case_init_wide(&ref, &shape, &how, 19));
        T_STATUS_OK(ref_cuda_case_run(&be, &ref, 0));
        T_STATUS_OK(case_init_wide(&c, &shape, &how, 19));
        for (int j = 0; j < 9; j++)
            ((float *)c.v.data)[at * 9 + j] = bad[i % 3];
        T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
        T_OK(ref_nan_within(&c, &ref, from, end, 0, 2));
        arena_close(&c.arena);
        T_STATUS_OK(case_init_wide(&c, &shape, &how, 19));
        ((float *)c.k.data)[at * 10] = NAN;
        T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
        T_OK(ref_nan_within(&c, &ref, from, end, 0, 2));
        arena_close(&c.arena);
        arena_close(&ref.arena);
    }
    backend_close(&be);
}

/* NaN in a query's row of q, or in its lambda of a head. */
TEST(attention_nan_query_or_lambda_spoils_its_heads_only)
{
    CaseShape   shape = {4, 1, 2, 6, 1, {45}, {45}};
    CaseWide    how = {.n_signals = 2, .reach = 20};
    float       lambda[4 * 45];
    const float bad[] = {NAN, INFINITY, -INFINITY};
    Backend     be;
    T_GPU(&be);
    for (int i = 0; i < 6; i++) {
        Case c, ref;
        fill(lambda, 4 * 45);
        T_STATUS_OK(case_init_wide(&ref, &shape, &how, 21));
        T_STATUS_OK(case_init_wide(&c, &shape, &how, 21));
        ref.a.lambda_rows = c.a.lambda_rows = lambda;
        T_STATUS_OK(ref_cuda_case_run(&be, &ref, 0));
        if (i < 3)  // rows of q: heads 0, 1, their noise, heads 2, 3, their noise
            ((float *)c.q.data)[(30 * 6 + 3 + i) * 6] = NAN;
        else
            lambda[30 * 4 + 3] = bad[i - 3];
        T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
        T_OK(ref_nan_within(&c, &ref, 30, 31, i == 0 || i == 2 ? 2 : 3, i == 0 ? 3 : 4));
        arena_close(&c.arena);
        arena_close(&ref.arena);
    }
    backend_close(&be);
}

/* d = 1 and q = 1: the logits are the keys. */
static Status run_logits(Backend *be, float *out, const float *logits, int64_t n)
{
    CaseShape shape = {1, 1, 1, 1, 1, {1}, {n}};
    Case      c;
    TRY(case_init(&c, &shape, 23));
    memcpy(c.k.data, logits, (size_t)n * sizeof *logits);
    *(float *)c.q.data = 1;
    for (int64_t i = 0; i < n; i++)
        ((float *)c.v.data)[i] = (float)(i + 1);
    Status s = ref_cuda_case_run(be, &c, 0);
    *out = *(float *)c.out.data;
    arena_close(&c.arena);
    return s;
}

TEST(attention_of_extreme_logits)
{
    float   x[200], out;
    Backend be;
    T_GPU(&be);
    for (int sign = -1; sign <= 1; sign += 2) {  // all +200 or -200: the mean
        for (int i = 0; i < 200; i++)
            x[i] = 200.0f * (float)sign;
        T_STATUS_OK(run_logits(&be, &out, x, 200));
        T_NEAR((double)out / 100.5, 1, 1e-6);
    }
    x[150] = 1e30f;  // one takes all
    T_STATUS_OK(run_logits(&be, &out, x, 200));
    T_NEAR(out, 151, 0);
    for (int i = 0; i < 200; i++)
        x[i] = i < 140 ? -INFINITY : 0;  // a first tile of nothing
    T_STATUS_OK(run_logits(&be, &out, x, 200));
    T_NEAR((double)out / 170.5, 1, 1e-6);
    for (int i = 0; i < 200; i++)
        x[i] = (float)i / 2;  // the top rises from tile to tile
    T_STATUS_OK(run_logits(&be, &out, x, 200));
    T_NEAR((double)out / (200 - 1 / (exp(0.5) - 1)), 1, 1e-6);
    for (int bad = 0; bad < 3; bad++) {  // softmax of these is not defined
        for (int i = 0; i < 200; i++)
            x[i] = bad == 0 ? NAN : bad == 1 ? -INFINITY : (float)i;
        x[199] = bad == 2 ? INFINITY : x[199];
        T_STATUS_OK(run_logits(&be, &out, x, 200));
        T_OK(isnan(out));
    }
    backend_close(&be);
}

/* --- logits --- */

static bool same_record(const LogitRecord *a, const LogitRecord *b)
{
    bool   same = a->peaks.n == b->peaks.n;
    size_t M = (size_t)b->n_maps, S = (size_t)b->n_positions;
    for (int64_t i = 0; i < b->n_heads * b->n_maps; i++)
        same = same && a->moments[i].count == b->moments[i].count &&
               a->moments[i].min == b->moments[i].min && a->moments[i].max == b->moments[i].max;
    for (int i = 0; same && i < a->peaks.n; i++) {
        const Peak *p = &a->peaks.at[i], *q = &b->peaks.at[i];
        same = p->value == q->value && p->head == q->head && p->map == q->map &&
               p->position == q->position && p->key == q->key;
    }
    for (int64_t m = 0; m < (int64_t)M; m++)
        same = same && hist_equal(&a->hist[m], &b->hist[m]);
    return same &&
           memcmp(a->query_absmax, b->query_absmax, M * S * sizeof(float)) == 0 &&
           memcmp(a->key_absmax, b->key_absmax, M * S * sizeof(float)) == 0;
}

/* Of any numbers: those of tiles and those of chosen rows, each told once, also where a block's
 * heads or columns take several. */
TEST(attention_logits_have_the_cpus_bits)
{
    static const struct {
        CaseShape shape;
        CaseWide  wide;
    } OF[] = {
        {{4, 2, 2, 37, 2, {35, 3}, {140, 7}}, {2, 5, 50, false}},
        {{63, 1, 2, 12, 1, {2}, {5}}, {63, 2, 0, true}},
        {{2, 1, 1, 20, 1, {3}, {7}}, {0, 259, 0, false}},
    };
    Backend be;
    T_GPU(&be);
    if (!cpu_isa_force(CPU_AVX2))
        T_SKIP("no fused multiply-add on this CPU");
    for (size_t i = 0; i < sizeof OF / sizeof *OF; i++) {
        LogitRecord got, want;
        int64_t     H = OF[i].shape.n_heads, M = OF[i].shape.n_maps;
        Case        c;
        T_STATUS_OK(case_init_wide(&c, &OF[i].shape, &OF[i].wide, 7));
        T_STATUS_OK(logit_record_init(&got, &c.arena, 1, H, M, 140));
        T_STATUS_OK(logit_record_init(&want, &c.arena, 1, H, M, 140));
        c.a.record = &got;
        T_STATUS_OK(ref_cuda_case_run(&be, &c, (int64_t)i));
        c.a.record = &want;
        T_STATUS_OK(case_run(&c, 1));
        T_OK(same_record(&got, &want));
        arena_close(&c.arena);
    }
    cpu_isa_force(N_CPU_ISAS);
    backend_close(&be);
}

/* --- quantized logits --- */

/* Exact logits, so that GPU and reference quantize the same numbers. */
static void check_quantized(Backend *be, const CaseShape *shape, int bits, LogitScale scale)
{
    Case c;
    T_STATUS_OK(case_init(&c, shape, 1));
    case_make_exact(&c, 2);
    c.a.norm_eps = c.a.norm_eps >= 0 ? 0.1f : -1;
    c.a.logit_bits = bits;
    c.a.logit_scale = scale;
    T_STATUS_OK(ref_cuda_case_run(be, &c, 0));
    T_NEAR(ref_case_error(&c), 0, 2e-6);
    arena_close(&c.arena);
}

TEST(quantized_logits_equal_plain_loops)
{
    CaseShape diff = {4, 2, 2, 8, 3, {40, 1, 20}, {40, 60, 131}};
    CaseShape plain = {2, 1, 1, 24, 2, {70, 1}, {70, 60}};
    Backend   be;
    T_GPU(&be);
    for (int i = 0; i < 3; i++)
        for (int scale = 0; scale < N_SCALES; scale++) {
            check_quantized(&be, &diff, 4 + 2 * i, (LogitScale)scale);
            if (i == scale)
                check_quantized(&be, &plain, 4 + 2 * i, (LogitScale)scale);
        }
    backend_close(&be);
}

/* Any logits: their bits, scales and codes are the CPU's, so what differs are exp and sums. A
 * code that fell on the other side would be off by far more. */
TEST(quantized_logits_are_those_of_the_cpu)
{
    Backend be;
    T_GPU(&be);
    if (!cpu_isa_force(CPU_AVX2))
        T_SKIP("no fused multiply-add on this CPU");
    for (int scale = 0; scale < N_SCALES; scale++) {
        Case   c, cpu;
        double most = 0;
        T_STATUS_OK(case_init_wide(&c, &WIDE, &(CaseWide){2, 20, 0, false}, 31));
        T_STATUS_OK(case_init_wide(&cpu, &WIDE, &(CaseWide){2, 20, 0, false}, 31));
        c.a.logit_bits = cpu.a.logit_bits = 4;
        c.a.logit_scale = cpu.a.logit_scale = (LogitScale)scale;
        c.a.norm_eps = cpu.a.norm_eps = 0.1f;
        T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
        T_STATUS_OK(case_run(&cpu, 1));
        const float *x = c.out.data, *y = cpu.out.data;
        for (int64_t i = 0; i < tensor_count(&c.out); i++) {
            double e = fabs((double)x[i] - (double)y[i]);
            most = e <= most ? most : e;
        }
        T_NEAR(most, 0, 2e-6);
        arena_close(&c.arena);
        arena_close(&cpu.arena);
    }
    cpu_isa_force(N_CPU_ISAS);
    backend_close(&be);
}

static Status on_gpu(Backend *be, Case *c)
{
    return ref_cuda_case_run(be, c, 0);
}

TEST(quantized_zeros_stay_zero)
{
    Backend be;
    T_GPU(&be);
    ref_quantized_zeros(&be, on_gpu);
    backend_close(&be);
}

TEST(quantized_nan_and_infinity_stay_visible)
{
    Backend be;
    T_GPU(&be);
    ref_quantized_nan(&be, on_gpu);
    backend_close(&be);
}

TEST(quantized_scale_ignores_masked_entries)
{
    Backend be;
    T_GPU(&be);
    ref_quantized_masked(&be, on_gpu);
    backend_close(&be);
}

TEST(attention_of_no_queries_is_nothing)
{
    static const int32_t START[] = {0, 0, 0}, KEYS[] = {0, 0, 5};
    Attention a = {.n_heads = 2, .n_groups = 2, .n_maps = 2, .head_dim = 8, .scale = 1,
                   .norm_eps = 1e-5f, .logit_bits = 4, .dtype = DTYPE_F32,
                   .batch = {2, START, (int64_t[]){1, 2}}, .key_start = KEYS};
    Backend be;
    Tensor  q, k, v, out;
    T_GPU(&be);
    T_STATUS_OK(backend_tensor(&be, &q, 2, (int64_t[]){0, 32}));
    T_STATUS_OK(backend_tensor(&be, &k, 2, (int64_t[]){5, 32}));
    T_STATUS_OK(backend_tensor(&be, &v, 2, (int64_t[]){5, 32}));
    T_STATUS_OK(backend_tensor(&be, &out, 2, (int64_t[]){0, 32}));
    T_STATUS_OK(op_attention(&be, &out, &q, &k, &v, &a));
    backend_close(&be);
}
