/* test_attention.c - attention against double, on every instruction set. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_attention.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpufeat.h"
#include "kernels/half.h"
#include "tests/check.h"
#include "tests/kernels/ref_attention.h"
#include "tests/kernels/ref_ops.h"
#include "tests/kernels/ref_numbers.h"

/* Lengths on both sides of tiles of queries (48) and keys (128, panels of 64),
 * with and without a cache before them. */
static const CaseShape SHAPES[] = {
    {4, 2, 1, 8, 3, {1, 1, 3}, {1, 9, 3}},
    {4, 2, 2, 8, 3, {1, 1, 3}, {1, 9, 3}},
    {2, 1, 1, 24, 3, {47, 48, 49}, {47, 64, 65}},
    {2, 1, 2, 24, 3, {47, 48, 49}, {127, 128, 129}},
    {3, 3, 2, 32, 1, {193}, {193}},
    {3, 3, 1, 64, 2, {97, 2}, {300, 257}},
    {6, 2, 2, 64, 2, {97, 2}, {97, 130}},
    {2, 2, 1, 100, 1, {70}, {70}},
    {2, 2, 2, 100, 1, {70}, {70}},
    {2, 1, 2, 128, 1, {50}, {60}},
    {1, 1, 1, 256, 1, {20}, {20}},
    {1, 1, 2, 256, 1, {20}, {20}},
    {2, 1, 2, 1, 1, {20}, {20}},
};
enum { N_SHAPES = sizeof SHAPES / sizeof *SHAPES };

/* tol: a plain float loop over the same data loses 5e-7 in f32; twice that,
 * doubled again by the norm of nearly cancelled rows. */
static void check_shapes(Dtype dtype, double tol)
{
    for (int isa = 0; isa < N_CPU_ISAS; isa++)
        for (int i = 0; cpu_isa_force((CpuIsa)isa) && i < N_SHAPES; i++) {
            Case c;
            T_STATUS_OK(case_init(&c, &SHAPES[i], (uint64_t)i + 1));
            c.a.dtype = dtype;
            T_STATUS_OK(case_run(&c, 2));
            T_NEAR(ref_case_error(&c), 0, tol);
            T_OK(case_guard_intact(&c));
            arena_close(&c.arena);
        }
    cpu_isa_force(N_CPU_ISAS);
}

TEST(attention_equals_whole_maps_in_double)
{
    check_shapes(DTYPE_F32, 2e-6);
}

/* q, k and v are rounded in the reference too; what is left are the weights,
 * rounded to 8 bits before they meet v. */
TEST(attention_bf16_rounds_its_inputs)
{
    check_shapes(DTYPE_BF16, 2.0 / 256);
}

static void round_all(const Tensor *t)
{
    float *x = t->data;
    for (int64_t i = 0; i < tensor_count(t); i++)
        x[i] = bf16_round(x[i]);
}

/* Rounding q, k or v beforehand changes nothing, and rounding is not all: the
 * weights are rounded too. */
TEST(attention_bf16_rounds_each_input_once)
{
    for (int which = 0; which < 3; which++) {
        Case c, before;
        T_STATUS_OK(case_init(&c, &SHAPES[4], 1));
        T_STATUS_OK(case_init(&before, &SHAPES[4], 1));
        round_all(which == 0 ? &before.q : which == 1 ? &before.k : &before.v);
        c.a.dtype = before.a.dtype = DTYPE_BF16;
        T_STATUS_OK(case_run(&c, 1));
        T_STATUS_OK(case_run(&before, 1));
        T_OK(memcmp(c.out.data, before.out.data, tensor_bytes(&c.out)) == 0);
        arena_close(&c.arena);
        arena_close(&before.arena);
    }
}

TEST(attention_bf16_rounds_the_weights)
{
    Case c, half;
    T_STATUS_OK(case_init(&c, &SHAPES[4], 1));
    T_STATUS_OK(case_init(&half, &SHAPES[4], 1));
    round_all(&c.q), round_all(&c.k), round_all(&c.v);
    half.a.dtype = DTYPE_BF16;
    T_STATUS_OK(case_run(&c, 1));
    T_STATUS_OK(case_run(&half, 1));
    T_OK(memcmp(c.out.data, half.out.data, tensor_bytes(&c.out)) != 0);
    arena_close(&c.arena);
    arena_close(&half.arena);
}

TEST(attention_norm_weight_and_no_norm)
{
    for (int with = 0; with < 2; with++) {
        Case c;
        float weight[200];
        uint64_t state = 5;
        for (int i = 0; i < 200; i++)
            weight[i] = 1 + check_uniform(&state);
        T_STATUS_OK(case_init(&c, &SHAPES[8], 3));
        c.a.norm_weight = weight;
        c.a.norm_eps = with ? 0.5f : -1;
        T_STATUS_OK(case_run(&c, 2));
        T_NEAR(ref_case_error(&c), 0, 2e-6);
        arena_close(&c.arena);
    }
}

static bool same_output(const Case *a, const Case *b)
{
    return memcmp(a->out.data, b->out.data, tensor_bytes(&a->out)) == 0;
}

TEST(attention_is_the_same_for_any_number_of_threads)
{
    for (int i = 0; i < N_SHAPES; i++) {
        Case c, ref;
        T_STATUS_OK(case_init(&ref, &SHAPES[i], 9));
        T_STATUS_OK(case_run(&ref, 1));
        T_STATUS_OK(case_init(&c, &SHAPES[i], 9));
        for (int threads = 2; threads <= 5; threads++) {
            T_STATUS_OK(case_run(&c, threads));
            T_OK(same_output(&c, &ref));
        }
        arena_close(&c.arena);
        arena_close(&ref.arena);
    }
}

static void check_of_a_sequence_does_not_see_the_batch(Dtype dtype)
{
    for (int i = 0; i < N_SHAPES; i++) {
        Case c, one;
        T_STATUS_OK(case_init(&c, &SHAPES[i], 11));
        c.a.dtype = dtype;
        T_STATUS_OK(case_run(&c, 2));
        for (int64_t b = 0; b < c.shape.n_sequences; b++) {
            T_STATUS_OK(case_one_sequence(&one, &c, b));
            T_STATUS_OK(case_run(&one, 2));
            const float *part = (const float *)c.out.data +
                                c.start[b] * c.out.shape[1] * c.out.shape[2];
            T_OK(memcmp(one.out.data, part, tensor_bytes(&one.out)) == 0);
            arena_close(&one.arena);
        }
        arena_close(&c.arena);
    }
}

TEST(attention_of_a_sequence_does_not_see_the_batch)
{
    ref_each_dtype(check_of_a_sequence_does_not_see_the_batch);
}

static void check_with_a_cache_equals_all_at_once(Dtype dtype)
{
    CaseShape all = {2, 1, 2, 24, 1, {200}, {200}};
    Case c, later;
    T_STATUS_OK(case_init(&c, &all, 13));
    c.a.dtype = dtype;
    T_STATUS_OK(case_run(&c, 2));
    for (int32_t n = 1; n <= 61; n += 20) {  // the last n queries alone
        T_STATUS_OK(case_one_sequence(&later, &c, 0));
        later.q.data = (float *)c.q.data + (200 - n) * 2 * 2 * 24;
        later.q.shape[0] = later.out.shape[0] = later.start[1] = n;
        T_STATUS_OK(case_run(&later, 2));
        T_OK(memcmp(later.out.data, (float *)c.out.data + (200 - n) * 2 * 48,
                    tensor_bytes(&later.out)) == 0);
        arena_close(&later.arena);
    }
    arena_close(&c.arena);
}

TEST(attention_with_a_cache_equals_all_at_once)
{
    ref_each_dtype(check_with_a_cache_equals_all_at_once);
}

TEST(attention_avx2_and_avx512_give_the_same_bits)
{
    if (!cpu_isa_force(CPU_AVX512))
        T_SKIP("no avx512 on this machine");
    for (int i = 0; i < N_SHAPES; i++) {
        Case wide, narrow;
        T_STATUS_OK(case_init(&wide, &SHAPES[i], 17));
        T_STATUS_OK(case_init(&narrow, &SHAPES[i], 17));
        cpu_isa_force(CPU_AVX512);
        T_STATUS_OK(case_run(&wide, 2));
        cpu_isa_force(CPU_AVX2);
        T_STATUS_OK(case_run(&narrow, 2));
        T_OK(same_output(&wide, &narrow));
        arena_close(&wide.arena);
        arena_close(&narrow.arena);
    }
    cpu_isa_force(N_CPU_ISAS);
}

/* Rows up to `last` are those of `ref` bit for bit; the others are NaN. */
static bool nan_after(const Case *c, const Case *ref, int64_t last)
{
    int64_t width = c->out.shape[1] * c->out.shape[2];
    const float *out = c->out.data;
    if (memcmp(out, ref->out.data, (size_t)((last + 1) * width) * sizeof *out) != 0)
        return false;
    for (int64_t i = (last + 1) * width; i < tensor_count(&c->out); i++)
        if (!isnan(out[i]))
            return false;
    return true;
}

static void check_nan_reaches_later_rows_only(Dtype dtype)
{
    CaseShape shape = {1, 1, 2, 24, 1, {150}, {150}};
    float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 6; i++) {
        Case c, ref;
        T_STATUS_OK(case_init(&ref, &shape, 19));
        ref.a.dtype = dtype;
        T_STATUS_OK(case_run(&ref, 1));
        T_STATUS_OK(case_init(&c, &shape, 19));
        c.a.dtype = dtype;
        int64_t at = i < 3 ? 77 : 127;
        for (int64_t j = 0; j < 48; j++)  // the whole value of a key
            ((float *)c.v.data)[at * 48 + j] = bad[i % 3];
        T_STATUS_OK(case_run(&c, 2));
        T_OK(nan_after(&c, &ref, at - 1));
        arena_close(&c.arena);
        T_STATUS_OK(case_init(&c, &shape, 19));
        c.a.dtype = dtype;
        ((float *)c.k.data)[at * 48] = NAN;
        T_STATUS_OK(case_run(&c, 2));
        T_OK(nan_after(&c, &ref, at - 1));
        arena_close(&c.arena);
        arena_close(&ref.arena);
    }
}

TEST(attention_nan_reaches_later_rows_only)
{
    ref_each_dtype(check_nan_reaches_later_rows_only);
}

static void check_nan_query_spoils_its_own_row_only(Dtype dtype)
{
    CaseShape shape = {1, 1, 1, 24, 1, {150}, {150}};
    Case c, ref;
    T_STATUS_OK(case_init(&ref, &shape, 21));
    ref.a.dtype = dtype;
    T_STATUS_OK(case_run(&ref, 1));
    T_STATUS_OK(case_init(&c, &shape, 21));
    c.a.dtype = dtype;
    for (int i = 0; i < 24; i++)
        ((float *)c.q.data)[100 * 24 + i] = NAN;
    T_STATUS_OK(case_run(&c, 1));
    for (int64_t i = 0; i < tensor_count(&c.out); i++) {
        float x = ((float *)c.out.data)[i], y = ((float *)ref.out.data)[i];
        T_OK(i / 24 == 100 ? isnan(x) : x == y);
    }
    arena_close(&c.arena);
    arena_close(&ref.arena);
}

TEST(attention_nan_query_spoils_its_own_row_only)
{
    ref_each_dtype(check_nan_query_spoils_its_own_row_only);
}

/* Odd dims leave half a word of the queries, which must not be what lay there before. */
TEST(attention_of_odd_dims_does_not_see_older_memory)
{
    CaseShape even = {1, 1, 1, 24, 1, {60}, {60}}, odd = {1, 1, 1, 23, 1, {60}, {60}};
    CpuState  state = {0};
    Backend   be = {.n_threads = 1, .state = &state};
    Case      before, c, ref;
    T_STATUS_OK(case_init(&before, &even, 22));
    T_STATUS_OK(case_init(&c, &odd, 22));
    T_STATUS_OK(case_init(&ref, &odd, 22));
    before.a.dtype = c.a.dtype = ref.a.dtype = DTYPE_BF16;
    memset(before.q.data, 0xff, tensor_bytes(&before.q));  // NaN
    T_STATUS_OK(case_run(&ref, 1));
    Case *both[2] = {&before, &c};
    for (int i = 0; i < 2; i++) {
        both[i]->a.batch = (Batch){1, c.start, c.number};
        both[i]->a.key_start = c.key_start;
        T_STATUS_OK(cpu_attention(&be, &both[i]->out, &both[i]->q, &both[i]->k, &both[i]->v,
                                  &both[i]->a));
    }
    T_OK(same_output(&c, &ref));
    arena_close(&state.scratch.arena);
    arena_close(&be.arena);
    arena_close(&before.arena);
    arena_close(&c.arena);
    arena_close(&ref.arena);
}

/* d = 1 and q = 1: the logits are the keys. */
static Status run_logits(Case *c, const float *logits, int64_t n)
{
    CaseShape shape = {1, 1, 1, 1, 1, {1}, {n}};
    TRY(case_init(c, &shape, 23));
    memcpy(c->k.data, logits, (size_t)n * sizeof *logits);
    *(float *)c->q.data = 1;
    for (int64_t i = 0; i < n; i++)
        ((float *)c->v.data)[i] = (float)(i + 1);
    return case_run(c, 1);
}

TEST(attention_of_extreme_logits)
{
    float x[200];
    Case c;
    for (int isa = 0; isa < N_CPU_ISAS; isa++) {
        if (!cpu_isa_force((CpuIsa)isa))
            continue;
        for (int sign = -1; sign <= 1; sign += 2) {  // all +200 or -200: the mean
            for (int i = 0; i < 200; i++)
                x[i] = 200.0f * (float)sign;
            T_STATUS_OK(run_logits(&c, x, 200));
            T_NEAR((double)*(float *)c.out.data / 100.5, 1, 1e-6);
            arena_close(&c.arena);
        }
        x[150] = 1e30f;  // one takes all
        T_STATUS_OK(run_logits(&c, x, 200));
        T_NEAR(*(float *)c.out.data, 151, 0);
        arena_close(&c.arena);
        for (int i = 0; i < 200; i++)
            x[i] = i < 140 ? -INFINITY : 0;  // a first tile of nothing
        T_STATUS_OK(run_logits(&c, x, 200));
        T_NEAR((double)*(float *)c.out.data / 170.5, 1, 1e-6);
        arena_close(&c.arena);
        for (int bad = 0; bad < 3; bad++) {  // softmax of these is not defined
            for (int i = 0; i < 200; i++)
                x[i] = bad == 0 ? NAN : bad == 1 ? -INFINITY : (float)i;
            x[199] = bad == 2 ? INFINITY : x[199];
            T_STATUS_OK(run_logits(&c, x, 200));
            T_OK(isnan(*(float *)c.out.data));
            arena_close(&c.arena);
        }
    }
    cpu_isa_force(N_CPU_ISAS);
}

/* Distance in units of the last place of the float nearest to `exact`. */
static double ulps(float x, double exact)
{
    double unit = ldexp(1, ilogb(exact) - 23);
    return fabs((double)x - exact) / unit;
}

TEST(weights_are_exp_within_two_ulp)
{
    enum { N = 4096 };
    float x[N], p[N];
    for (int isa = 0; isa < N_CPU_ISAS; isa++) {
        if (!cpu_isa_force((CpuIsa)isa))
            continue;
        for (int part = 0; part < 88; part++) {
            for (int i = 0; i < N; i++)
                x[i] = (float)(-part - 1.0 * i / N);
            attn_isa()->weights(p, x, N, 0);
            for (int i = 0; i < N; i++)
                if (x[i] >= -87.3f)
                    T_OK(ulps(p[i], exp((double)x[i])) <= 2);
                else
                    T_OK(p[i] == 0);
        }
        float edge[16] = {0, -0.0f, -1e-30f, -INFINITY, -1e30f, NAN, -88, -104,
                          f32_from_bits(0x7fc001ff)};  // a NaN that bit tricks could break
        attn_isa()->weights(p, edge, 16, 0);
        T_OK(p[0] == 1 && p[1] == 1 && p[2] == 1 && p[3] == 0 && p[4] == 0 && isnan(p[5]) &&
             p[6] == 0 && p[7] == 0 && isnan(p[8]));
    }
    cpu_isa_force(N_CPU_ISAS);
}

/* No causal mask: each token is a sequence of one query that sees all six. */
TEST(six_tokens_by_hand)
{
    const char *file = "golden/six_token_head.json";
    float q1[48], k1[48], q2[48], k2[48], v[96], maps[2 * 36];
    double map1[36], map2[36], diff[36], out[96];
    int negative = 0;
    T_STATUS_OK(ref_floats(q1, 48, file, "q1"));
    T_STATUS_OK(ref_floats(k1, 48, file, "k1"));
    T_STATUS_OK(ref_floats(q2, 48, file, "q2"));
    T_STATUS_OK(ref_floats(k2, 48, file, "k2"));
    T_STATUS_OK(ref_floats(v, 96, file, "v"));
    T_STATUS_OK(ref_numbers(map1, 36, file, "map1"));
    T_STATUS_OK(ref_numbers(map2, 36, file, "map2"));
    T_STATUS_OK(ref_numbers(diff, 36, file, "diff"));
    T_STATUS_OK(ref_numbers(out, 96, file, "out"));
    for (int t = 0; t < 6; t++) {
        CaseShape shape = {1, 1, 2, 8, 6, {1, 1, 1, 1, 1, 1}, {6, 6, 6, 6, 6, 6}};
        float row_diff[36];
        Case c;
        T_STATUS_OK(case_init(&c, &shape, 1));
        for (int i = 0; i < 6; i++) {
            memcpy((float *)c.q.data + i * 16, q1 + i * 8, 32);
            memcpy((float *)c.q.data + i * 16 + 8, q2 + i * 8, 32);
            for (int j = 0; j < 6; j++) {
                float *k = (float *)c.k.data + (i * 6 + j) * 16;
                memcpy(k, k1 + j * 8, 32);
                memcpy(k + 8, k2 + j * 8, 32);
            }
            memcpy((float *)c.v.data + i * 96, v, sizeof v);
        }
        MapWindow w = {.sequence = t, .n_positions = 6, .maps = maps, .diff = row_diff};
        c.a.window = &w;
        c.a.lambda = 0.8f;
        c.a.norm_eps = -1;
        T_STATUS_OK(case_run(&c, 2));
        double sum = 0;
        for (int j = 0; j < 6; j++) {  // the one query stands last of six keys
            T_NEAR(maps[30 + j], map1[t * 6 + j], 1e-6);
            T_NEAR(maps[36 + 30 + j], map2[t * 6 + j], 1e-6);
            T_NEAR(row_diff[30 + j], diff[t * 6 + j], 1e-6);
            T_OK(maps[j] == 0 && row_diff[24 + j] == 0);  // no such query
            sum += (double)row_diff[30 + j];
            negative += row_diff[30 + j] < 0;
        }
        T_NEAR(sum, 0.20, 1e-6);
        for (int j = 0; j < 16; j++)
            T_NEAR(((float *)c.out.data)[t * 16 + j], out[t * 16 + j], 2e-6);
        arena_close(&c.arena);
    }
    T_OK(negative == 13);
}

TEST(attention_reports_missing_memory)
{
    Case c;
    LogitRecord r;
    T_STATUS_OK(case_init(&c, &SHAPES[6], 1));
    T_STATUS_OK(logit_record_init(&r, &c.arena, 0, 6, 2, 130));
    ShareRecord shares[6] = {0};
    c.a.record = &r;
    c.a.shares = shares;
    c.a.logit_bits = 4;
    Status s = ERR_MEMORY;
    int failures = 0;
    while (s == ERR_MEMORY && failures < 100) {
        arena_fail_at(++failures);
        s = case_run(&c, 2);
    }
    arena_fail_at(0);
    T_OK(s == OK && failures > 5);
    T_NEAR(ref_case_error(&c), 0, 1);
    arena_close(&c.arena);
}
